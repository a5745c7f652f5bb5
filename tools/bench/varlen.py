"""Sequences of different lengths on a GPU: packed one behind the other, beside padded ones.

Padding to the longest sequence multiplies the work; `saved` says how often, in FLOP. A packed kernel that is
as good as the padded one is faster by all of it; the figure is the part it reaches, speedup / saved. All is
causal, so that padding at the end changes no result. TFLOP/s count the pairs within the sequences alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import accumulate
from math import log
from typing import Any, NamedTuple

import numpy as np

from tools.bench import Row
from tools.bench.gpu.contenders import CUDNN, FLASH, FUSED, PACKED_DESCRIPTORS, Contender, sdpa
from tools.bench.gpu.judging import PASSES, Goal, Layout, timed_with
from tools.bench.gpu.place import Place
from tools.bench.gpu.problem import WIDTH, Given, Problem, Tensor, normal, not_later, rates
from tools.bench.gpu.runner import Bench

NAME = "varlen"
HELP = "packed sequences on a GPU beside padded ones: speedup, and padding saved (needs CUDA)"
HEADS = (64, 128)
SEQUENCES = 16
SHORTEST, LONGEST = 128, 8192
KINDS = ("log-uniform", "uniform", "equal")
SEED = 0  # of the lengths, which are the same in every run
PADDED = (FLASH, CUDNN)
PACKED = "varlen_attn"  # PyTorch's own
LAYOUT = Layout(
    ("dtype", "d", "pass"), ("lengths",), "tflops", "TFLOP/s",
    (("saved", "padding saved"), ("ratio", "fused / padded"), ("of_saved", "of it")), FLASH,
    len(KINDS), "one head of the last sequence of every shape",
)  # fmt: skip
# An NVIDIA H200 reached, 2026-11-26 (`iocourse/data/bench/varlen.json`, d = 128 and log-uniform lengths
# alone), 0.66 of the speed of PyTorch's packed kernel backward, and 1.11 forward; of the padding saved 0.63
# and 0.97.
GOALS = (
    *(
        Goal(
            {"pass": pass_, "d": d}, 0.9, 0.75, len(KINDS), figure="of_saved",
            called=f"{pass_}, d = {d}: speedup against padded {FLASH} / padding saved",
        )
        for pass_ in PASSES
        for d in HEADS
    ),
    *(Goal({"pass": "backward", "d": d}, 0.95, None, len(KINDS), PACKED) for d in HEADS),
)  # fmt: skip


class Shape(NamedTuple):
    """One problem: `sequences` sequences, their lengths drawn as `lengths` says, H heads of size d."""

    dtype: str
    d: int
    H: int
    lengths: str
    sequences: int
    shortest: int
    longest: int


def shapes(quick: bool) -> list[Shape]:
    """Every problem of a run; with `quick` the log-uniform one of d = 128."""
    heads, kinds = ((128,), KINDS[:1]) if quick else (HEADS, KINDS)
    return [
        Shape("bfloat16", d, WIDTH // d, kind, SEQUENCES, SHORTEST, LONGEST) for d in heads for kind in kinds
    ]


def drawn(shape: Shape) -> list[int]:
    """The lengths: log-uniform or uniform between the two limits, or equal, a quarter of the longest."""
    if shape.lengths == "equal":
        return [shape.longest // 4] * shape.sequences
    source = np.random.default_rng(SEED)
    if shape.lengths == "uniform":
        return [int(n) for n in source.integers(shape.shortest, shape.longest + 1, shape.sequences)]
    exponents = source.uniform(log(shape.shortest), log(shape.longest), shape.sequences)
    return [round(float(n)) for n in np.exp(exponents)]


def pairs(lengths: Sequence[int]) -> int:
    """Pairs of a query and a key that is not later, within each sequence."""
    return sum(n * (n + 1) // 2 for n in lengths)


def saved(lengths: Sequence[int]) -> float:
    """FLOP with every sequence as long as the longest, over FLOP without padding."""
    return pairs([max(lengths)] * len(lengths)) / pairs(lengths)


def sequences(shape: Shape, place: Place, seed: int) -> Problem:
    """q, k, v and dO, normal, packed (T, H, d) and padded (sequences, H, longest, d), the same numbers.

    Who takes packed rows is told where each sequence begins, and the longest length, of queries and keys. The
    last head of the last sequence is held against float64. A row says what padding would multiply: FLOP by
    `saved`, tokens by `tokens_saved`.
    """
    import torch

    lengths = drawn(shape)
    starts, n, longest = [0, *accumulate(lengths)], lengths[-1], max(lengths)
    *inputs, do = normal((starts[-1], shape.H, shape.d), 4, shape.dtype, place, seed)
    cu = torch.tensor(starts, dtype=torch.int32, device=place.device)
    packed = Given(inputs, do, (cu, cu, longest, longest), lambda x: x[-n:, -1])
    *inputs, do = (_with_padding(x, lengths) for x in (*inputs, do))
    padded = Given(inputs, do, True, lambda x: x[-1, -1, :n])
    more = {"saved": saved(lengths), "tokens_saved": longest * len(lengths) / starts[-1]}
    figures = rates(4.0 * shape.H * shape.d * pairs(lengths), tokens=starts[-1], **more)
    return Problem(packed, not_later, figures, dict.fromkeys(PADDED, padded))


def _with_padding(x: Tensor, lengths: Sequence[int]) -> Tensor:
    """(T, H, d) as (sequences, H, longest, d), with zeros behind each sequence."""
    from torch.nn.utils.rnn import pad_sequence

    return pad_sequence(x.split(list(lengths)), batch_first=True).transpose(1, 2).contiguous()


def contenders(place: Place | None = None) -> dict[str, Contender]:
    """Everyone by name, ours first: packed, PyTorch's own packed kernel, and padded."""
    packed = {FUSED: _ours, PACKED_DESCRIPTORS: _ours, PACKED: _varlen_attn}
    return packed | {name: partial(sdpa, name) for name in PADDED}


def _ours(q: Tensor, k: Tensor, v: Tensor, seen: tuple[Any, ...]) -> Tensor:
    from iocourse.kernels import attention_varlen

    return attention_varlen(q, k, v, *seen[:2], longest=seen[2:], causal=True)


def _varlen_attn(q: Tensor, k: Tensor, v: Tensor, seen: tuple[Any, ...]) -> Tensor:
    """FlashAttention for packed sequences, which newer versions of PyTorch have."""
    from torch.nn.attention.varlen import varlen_attn

    return varlen_attn(q, k, v, *seen, window_size=(-1, 0))


def _with_part(record: Row) -> Row:
    """`of_saved`: how much of the padding saved is speed gained, in rows whose rival has a time too."""
    rows = timed_with(
        record["rows"], lambda row: {"of_saved": row["ratio"] / row["saved"]} if row["ratio"] else {}
    )
    return record | {"rows": rows}


BENCH = Bench(
    NAME, shapes, contenders, sequences, LAYOUT, GOALS, more=_with_part,
    facts=lambda place, asked: {"lengths": {shape.lengths: drawn(shape) for shape in asked}},
)  # fmt: skip
run, measured, show = BENCH.run, BENCH.measured, BENCH.show
