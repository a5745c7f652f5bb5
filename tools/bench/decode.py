"""One step of generation on a GPU: a query a head against a long cache, as a share of the copy bandwidth.

The step multiplies little and reads K and V once; bytes a second count these reads alone, whoever runs. The
yardstick is measured in the same run, with the same stopwatch: a copy of 2 GiB from one buffer to another,
every byte counted twice, since it is read and written.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from iocourse.gpu.timing import time_of
from tools.bench import Row
from tools.bench.gpu.contenders import BACKENDS, LAST_MERGES, SPLIT_KV, Contender, sdpa
from tools.bench.gpu.judging import Goal, Layout, timed_with
from tools.bench.gpu.place import Place
from tools.bench.gpu.problem import Given, Problem, Tensor, normal
from tools.bench.gpu.runner import Bench

NAME = "decode"
HELP = "one query a head against a long cache on a GPU: GB/s beside the copy bandwidth (needs CUDA)"
LENGTHS = tuple(4096 << step for step in range(6))  # 4,096 to 131,072
HEADS = ((32, 32), (32, 8), (32, 1))  # of queries, of keys
BATCHES = (1, 8)
D, BYTES = 128, 2
LONG = tuple(N for N in LENGTHS if N >= 32768)
LAST = (("share", "of the copy"), ("us", "split-KV, µs"))
LAYOUT = Layout(("dtype", "H", "H_kv", "B"), ("N",), "gbytes_per_s", "GB/s of K and V", LAST)
# Reached is what an NVIDIA H200 did, 2026-11-26 (`iocourse/data/bench/decode.json`, a quick run). At N =
# 32,768 and B = 1, with 32, 8 and 1 heads of keys, K and V would take 125.5, 31.4 and 3.9 µs at the speed of
# the copy, 4,279 GB/s. The step took 142.0, 47.2 and 25.1 µs: 16 to 21 more, whatever the bytes.
# - 32 heads, B = 1: 0.88 of the copy was reached, and with more keys those 16 µs weigh less.
# - Few bytes are a matter of µs, not of a share. With 8 heads 0.8 of the copy is 39.2 µs, 7.8 more than the
#   copy's own; PyTorch's fastest, cuDNN, needs 10.5 more, 41.9 µs. With one head it is 4.9 µs, 1.0 more,
#   which is less than two launches take: no kernel can. The goals are what cuDNN took, 41.9 (42) and 18.1 µs;
#   the floors what was reached, rounded up.
# - Eight sequences with one head have the bytes of one with 8. Where B = 8 nothing is measured.
SHARES = (  # heads of keys, B, lengths, goal and floor
    (32, 1, LONG, 0.88, 0.80), (32, 8, LONG, 0.80, 0.65), (8, 1, LONG[1:], 0.80, 0.65),
    (8, 8, LONG, 0.80, 0.65), (1, 8, LONG[1:], 0.80, 0.65),
)  # fmt: skip
# Heads of keys, B, goal and floor at N = 32,768.
MICROSECONDS = ((8, 1, 42.0, 48.0), (1, 8, 42.0, 48.0), (1, 1, 18.1, 26.0))
GOALS = (
    *(
        Goal(
            {"H_kv": H_kv, "B": B, "N": Ns}, goal, floor, len(Ns), figure="share", over="least",
            called=f"least share of the copy bandwidth, N ≥ {Ns[0]:,}, {H_kv} heads of keys, B = {B}",
        )
        for H_kv, B, Ns, goal, floor in SHARES
    ),
    *(
        Goal(
            {"H_kv": H_kv, "B": B, "N": LONG[0]}, goal, floor, 1, figure="us", over="largest",
            called=f"µs, N = {LONG[0]:,}, {H_kv} heads of keys, B = {B}",
        )
        for H_kv, B, goal, floor in MICROSECONDS
    ),
)  # fmt: skip


class Shape(NamedTuple):
    """One problem: q is (B, H, 1, d); k, v are (B, H_kv, N, d)."""

    dtype: str
    d: int
    N: int
    B: int
    H: int
    H_kv: int


def shapes(quick: bool) -> list[Shape]:
    """Every problem of a run; with `quick` those of one length and B = 1."""
    lengths, batches = ((32768,), (1,)) if quick else (LENGTHS, BATCHES)
    return [Shape("bfloat16", D, N, B, *heads) for heads in HEADS for B in batches for N in lengths]


def must_read(shape: Shape) -> int:
    """Bytes of K and V, each number once: what the closed form has for them."""
    return 2 * BYTES * shape.B * shape.H_kv * shape.N * shape.d


def cache(shape: Shape, place: Place, seed: int) -> Problem:
    """q, k, v, normal; the last head of the last sequence is held against float64. The query sees all."""
    k, v = normal((shape.B, shape.H_kv, shape.N, shape.d), 2, shape.dtype, place, seed)
    (q,) = normal((shape.B, shape.H, 1, shape.d), 1, shape.dtype, place, seed + 1)
    given = Given((q, k, v), q, False, lambda x: x[-1, -1])  # not causal; there is no backward pass
    return Problem(given, None, lambda _, ms: figures(shape, ms))


def figures(shape: Shape, ms: float) -> Row:
    """GB/s of what must be read, and microseconds."""
    return {"gbytes_per_s": must_read(shape) / ms / 1e6, "us": 1000 * ms}


def contenders(place: Place | None = None) -> dict[str, Contender]:
    """Everyone by name, ours first, in two launches and in one; and every back end of SDPA, with enable_gqa
    where heads share.
    """
    return {SPLIT_KV: _ours, LAST_MERGES: _ours} | {name: partial(sdpa, name) for name in BACKENDS}


def _ours(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    from iocourse.kernels import decode

    return decode(q, k, v)[0]


def copy_speed(place: Place, size: int = 2**31) -> Row:
    """How fast `size` bytes are copied on the place: bytes, milliseconds, and GB/s of reads and writes."""
    import torch

    source = torch.randint(-128, 128, (size,), dtype=torch.int8, device=place.device)
    target = torch.empty_like(source)
    ms = time_of(lambda: target.copy_(source), stopwatch=place.stopwatch).ms
    return {"bytes": size, "ms": ms, "gbytes_per_s": 2 * size / ms / 1e6}


def _with_share(record: Row) -> Row:
    """`share`: GB/s as a share of the copy's, in each row that has a time."""
    copied = record["copy"]["gbytes_per_s"]
    return record | {"rows": timed_with(record["rows"], lambda row: {"share": row["gbytes_per_s"] / copied})}


def _told(record: Row) -> str:
    speed, size, ms = (record["copy"][key] for key in ("gbytes_per_s", "bytes", "ms"))
    return f"the copy: {speed:,.0f} GB/s, {size / 2**30:.3g} GiB read and written in {ms:.3f} ms"


BENCH = Bench(
    NAME, shapes, contenders, cache, LAYOUT, GOALS, passes=("forward",),
    facts=lambda place, asked: {"copy": copy_speed(place)}, more=_with_share, told=_told,
)  # fmt: skip
run, measured, show = BENCH.run, BENCH.measured, BENCH.show
