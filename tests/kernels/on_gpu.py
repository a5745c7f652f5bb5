"""Compiled kernels against float64 on this machine's GPU, as a separate script, because a process either
interprets or compiles.

`test_on_gpu` runs it with TRITON_INTERPRET=0. It prints one line per configuration: "holds", or "WRONG" and
the error. Compiling takes most of the time, so several processes may share the work: `--shard 2/8` is the
second of eight.
"""

import argparse
import itertools
import math
import re
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import reference_attention
import torch

from iocourse import lowrank
from iocourse.kernels import (
    attention,
    attention_varlen_with_lse,
    attention_with_lse,
    decode,
    tiled_mask,
)
from iocourse.kernels.host.choices import Case, architecture, choice, replaced

CASES = [
    # Nq, Nk, heads, options
    (512, 512, (4, 4), {}),
    (512, 512, (4, 4), {"causal": True}),
    (1000, 1000, (4, 2), {"causal": True}),
    (333, 1111, (4, 1), {"causal": "lower_right"}),
    (1111, 333, (2, 2), {"causal": "lower_right"}),
    (777, 777, (2, 2), {"window": (100, 0), "causal": True}),
    (640, 640, (2, 2), {"window": (65, 130)}),
    (333, 1111, (4, 1), {"window": (100, 30), "align": "lower_right"}),
    (1, 2000, (8, 2), {}),
    (129, 1, (2, 2), {"scale": -0.3}),
]
SIZES = [
    (torch.bfloat16, 64),
    (torch.bfloat16, 128),
    (torch.float16, 128),
    (torch.float16, 80),
    (torch.float16, 256),
]
SIZES += [(torch.bfloat16, 100), (torch.float32, 64), (torch.float32, 40)]


def numbers(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def worst(dtype: torch.dtype, d: int, case: tuple[Any, ...], deterministic: bool) -> str:
    """Return the error of one configuration, or ""."""
    n_q, n_k, (H, H_kv), options = case
    q, do = numbers(2, n_q, H, d, dtype=dtype).transpose(1, 2), numbers(2, H, n_q, d, dtype=dtype)
    k, v = (numbers(2, H_kv, n_k, d, dtype=dtype) for _ in range(2))
    allowed = reference_attention.seen(
        n_q, n_k, *(options.get(name) for name in ("causal", "window", "align"))
    ).cuda()
    scale = options.get("scale")

    def kernels(*leaves: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return attention_with_lse(*leaves, **options, deterministic=deterministic)

    return compared(kernels, q, k, v, do, allowed, scale)


def compared(
    kernels: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, do: torch.Tensor, allowed: torch.Tensor,
    scale: float | None = None,
) -> str:  # fmt: skip
    """Return the error of `kernels(q, k, v)` or its gradients beyond twice PyTorch's error, or ""."""
    got = reference_attention.results(kernels, q, k, v, do, None)
    want = reference_attention.results(
        lambda *x: reference_attention.exact(*x, allowed, scale), *(x.double() for x in (q, k, v)), do, None
    )
    eager = reference_attention.results(
        lambda *x: reference_attention.eager(*x, allowed, scale), q, k, v, do, None
    )
    bounds = reference_attention.bounds(eager, want, q, k, v, do, None, allowed, scale)
    for name, one, exactly, bound in zip(got._fields, got, want, bounds, strict=True):
        if not reference_attention.error(one, exactly) <= bound or math.isnan(bound):
            return f"{name} errs by {reference_attention.error(one, exactly):.3g}, allowed {bound:.3g}"
    return ""


# Block masks, packed sequences, d in slices: (type, d) and the options of the backward pass.
WHOLE_SIZES = [(torch.bfloat16, 64), (torch.float16, 128), (torch.bfloat16, 100), (torch.float32, 64)]
WHOLE_SIZES += [(torch.bfloat16, 256)]
SLICED_SIZES = [(torch.bfloat16, 512), (torch.float16, 320), (torch.bfloat16, 1024), (torch.float32, 512)]
SLICED_SIZES += [(torch.bfloat16, 64), (torch.float16, 300)]


def block_mask(dtype: torch.dtype, d: int, deterministic: bool) -> str:
    """Blocks of 64 drawn for each head, one row of them empty, 777 queries and 1,000 keys."""
    n_q, n_k, H = 777, 1000, 4
    q, do = (numbers(2, H, n_q, d, dtype=dtype) for _ in range(2))
    k, v = (numbers(2, 2, n_k, d, dtype=dtype) for _ in range(2))
    blocks = torch.rand(H, -(-n_q // 64), -(-n_k // 64), device="cuda") < 0.4
    blocks[:, 3] = False
    allowed = blocks.repeat_interleave(64, 1).repeat_interleave(64, 2)[None, :, :n_q, :n_k]
    mask = tiled_mask(blocks, q, k)
    return compared(
        lambda *x: attention_with_lse(*x, block_mask=mask, deterministic=deterministic), q, k, v, do, allowed
    )


def packed(dtype: torch.dtype, d: int, deterministic: bool) -> str:
    """Sequences of 0 to 700 rows, each with its own diagonal. NaN in the third of them reaches no other."""
    lengths = [(300, 500), (0, 40), (700, 700), (1, 3), (65, 0), (129, 64)]
    cu = [
        torch.tensor([0, *itertools.accumulate(pair[side] for pair in lengths)], dtype=torch.int32).cuda()
        for side in (0, 1)
    ]
    T_q, T_k = int(cu[0][-1]), int(cu[1][-1])
    q, do = (numbers(1, 4, T_q, d, dtype=dtype) for _ in range(2))
    k, v = (numbers(1, 2, T_k, d, dtype=dtype) for _ in range(2))
    parts = [reference_attention.seen(*pair, "lower_right").float() for pair in lengths]
    options = {"causal": "lower_right", "deterministic": deterministic}

    def kernels(*leaves: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        o, lse = attention_varlen_with_lse(*(x[0].transpose(0, 1) for x in leaves), *cu, **options)
        return o.transpose(0, 1)[None], lse[None]

    if wrong := compared(kernels, q, k, v, do, torch.block_diag(*parts).bool().cuda()):
        return wrong
    queries, keys = (slice(*ends[2:4].tolist()) for ends in cu)
    for x, third in ((q, queries), (do, queries), (k, keys), (v, keys)):
        x[:, :, third] = math.nan
    got = reference_attention.results(kernels, q, k, v, do, None)
    for name, one, third in zip(got._fields, got, (queries,) * 3 + (keys,) * 2, strict=True):
        if one[:, :, : third.start].isnan().any() or one[:, :, third.stop :].isnan().any():
            return f"NaN in one sequence reaches {name} of another"
    return ""


def packed_otherwise(dtype: torch.dtype, d: int, deterministic: bool) -> str:
    """Packed sequences by descriptors if the choice is pointers, otherwise by pointers."""
    arch = architecture(torch.device("cuda"))
    name, case = "packed descriptors", Case(arch, dtype.itemsize, d, "packed", group=2)
    with replaced({name: not choice(name, case).value}):
        return packed(dtype, d, deterministic)


def in_slices(dtype: torch.dtype, d: int, way: str | None) -> str:
    """Check the schedules that split d, and the default variant."""
    q, do = (numbers(1, 4, 333, d, dtype=dtype) for _ in range(2))
    k, v = (numbers(1, 2, 500, d, dtype=dtype) for _ in range(2))
    allowed = reference_attention.seen(333, 500, "lower_right").cuda()
    return compared(lambda *x: attention_with_lse(*x, causal="lower_right", tile_d=way), q, k, v, do, allowed)


def one_query(dtype: torch.dtype, d: int, parts: int | None) -> str:
    """The decode step, 6 heads to 2, against the same rule; it has no backward pass."""
    q, k, v = numbers(2, 6, 1, d, dtype=dtype), *(numbers(2, 2, 5000, d, dtype=dtype) for _ in range(2))
    allowed = torch.ones(1, 5000, dtype=torch.bool, device="cuda")
    o, lse = decode(q, k, v, parts=parts)
    want, want_lse = reference_attention.exact(q, k, v, allowed, None)
    pytorch, _ = reference_attention.eager(q, k, v, allowed, None)
    bound = 2 * reference_attention.error(pytorch, want) + reference_attention.rounding(want, dtype) + 2e-6
    if (
        not reference_attention.error(o, want) <= bound
        or not reference_attention.error(lse, want_lse) <= 1e-4
    ):
        return f"o errs by {reference_attention.error(o, want):.3g}, allowed {bound:.3g}"
    return ""


LAST_PROGRAM, SECOND_LAUNCH = {"decode step": "last program"}, {"decode step": "second launch"}


def one_query_last_merges(dtype: torch.dtype, d: int, parts: int | None) -> str:
    """The same in one launch, where the last program of a head merges."""
    with replaced(LAST_PROGRAM):
        return one_query(dtype, d, parts)


def last_merges_again() -> str:
    """1,000 decode steps in which the last program merges: each has the bits of the first step with the same
    queries, and differs from a second launch by roundings only. Two problems take turns, so that parts of the
    step before, which lie in the same memory, would show.

    A second launch may have other bits, because its compiled merge adds up the parts in another order.
    """
    rounded = torch.finfo(torch.bfloat16).eps
    for (H, H_kv), parts in (((32, 8), 33), ((32, 1), 264), ((1, 1), 132)):
        k, v = (numbers(1, H_kv, 264 * 64, 128, dtype=torch.bfloat16) for _ in range(2))
        queries = [numbers(1, H, 1, 128, dtype=torch.bfloat16) for _ in range(2)]
        with replaced(SECOND_LAUNCH):
            twice = [decode(q, k, v, parts=parts) for q in queries]
        differ = torch.zeros((), dtype=torch.int64, device=k.device)
        with replaced(LAST_PROGRAM):
            wanted = [decode(q, k, v, parts=parts) for q in queries]
            for (o, lse), (o_twice, lse_twice) in zip(wanted, twice, strict=True):
                o, o_twice = o.float(), o_twice.float()
                off = float(((o - o_twice).abs() / o_twice.abs().clamp_min(2.0**-10)).max())
                if not off <= rounded or not float((lse - lse_twice).abs().max()) <= 1e-5:
                    return f"differs from a second launch by more than a rounding, {H} heads to {H_kv}"
            for turn in range(1000):
                found = decode(queries[turn % 2], k, v, parts=parts)
                differ += sum((a != b).any().long() for a, b in zip(found, wanted[turn % 2], strict=True))
        if differ:
            return f"{int(differ)} of 2,000 results differ, {H} heads to {H_kv} in {parts} parts"
    return ""


LOW_RANK_SIZES = [(torch.float32, 12), (torch.bfloat16, 12), (torch.float16, 40), (torch.float32, 16)]
LOW_RANK_ERRORS = {torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}  # of the largest number
LOW_RANK_SHAPES = ((2, 3, 3001), (160, 1, 130))


def low_rank(dtype: torch.dtype, d: int, how: tuple[int, bool]) -> str:
    """Compare the library call of low-rank attention and its gradient with the same function in float64."""
    degree, causal = how
    options = {"degree": degree, "causal": causal, "key_variance": 0.25}
    for shape in LOW_RANK_SHAPES:
        q, k, v, do = (numbers(*shape, d, dtype=dtype) * size for size in (0.5, 0.5, 1.0, 1.0))
        found = []
        for kind in (dtype, torch.float64):
            leaves = [x.to(kind).requires_grad_() for x in (q, k, v)]
            o = lowrank.attention(*leaves, **options)
            found.append((o.detach(), *torch.autograd.grad(o, leaves, do.to(kind))))
        for name, one, exactly in zip(("O", "dQ", "dK", "dV"), *found, strict=True):
            bound = (4 if name != "O" else 1) * LOW_RANK_ERRORS[dtype] * (0.1 + float(exactly.abs().max()))
            if not float((one.double() - exactly).abs().max()) <= bound:
                return f"{name} errs by more than {bound:.3g} with B, H, N = {shape}"
    return ""


def variants() -> list[tuple[Any, ...]]:
    """Each check with its arguments."""
    both = (False, True)
    return [
        *itertools.product([block_mask], WHOLE_SIZES, both),
        *itertools.product([packed], WHOLE_SIZES, both),
        *itertools.product([packed_otherwise], WHOLE_SIZES[:3], both),
        *itertools.product([in_slices], SLICED_SIZES, (None, "fused", "materialised")),
        *itertools.product([one_query, one_query_last_merges], WHOLE_SIZES, (None, 1, 7)),
        *itertools.product([low_rank], LOW_RANK_SIZES, [(2, False), (2, True)]),
        *itertools.product([low_rank], LOW_RANK_SIZES[:2], [(3, False), (3, True)]),
    ]


def same_bits() -> str:
    """The deterministic backward pass twice on the same inputs."""
    q, k, v, do = (numbers(2, 4, 2048, 128, dtype=torch.bfloat16) for _ in range(4))
    leaves = [x.requires_grad_() for x in (q, k, v)]
    runs = [torch.autograd.grad(attention(*leaves, deterministic=True), leaves, do) for _ in range(3)]
    equal = all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run, strict=True))
    return "" if equal else "deterministic=True differs between runs"


def far_apart() -> str:
    """A view whose last element lies beyond 2³¹ elements; its rows are aligned, or a copy would be read."""
    step = 2**31 // 60 // 16 * 16
    assert 63 * step > 2**31
    memory = torch.zeros(64 * step, dtype=torch.float16, device="cuda")
    far = memory.as_strided((1, 1, 64, 64), (0, 0, step, 1)).copy_(numbers(1, 1, 64, 64, dtype=torch.float16))
    near = far.clone(memory_format=torch.contiguous_format)
    return "" if torch.equal(attention(far, far, far), attention(near, near, near)) else "64-bit offsets fail"


def compiled() -> str:
    """torch.compile with its own back end, forward and backward."""
    q, k, v = (numbers(1, 2, 300, 64, dtype=torch.float16).requires_grad_() for _ in range(3))

    def loss(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return (attention(q * 1.5, k, v, causal=True, deterministic=True).float() ** 2).sum()

    plain = torch.autograd.grad(loss(q, k, v), (q, k, v))
    fast = torch.autograd.grad(torch.compile(loss, fullgraph=True)(q, k, v), (q, k, v))
    near = all(torch.allclose(a, b, atol=2e-2, rtol=2e-2) for a, b in zip(plain, fast, strict=True))
    return "" if near else "torch.compile changes the gradients"


def checks() -> dict[str, Callable[[], str]]:
    """Return every check by its description; each returns its error, or ""."""
    found: dict[str, Callable[[], str]] = {}
    for (dtype, d), case, deterministic in itertools.product(SIZES, CASES, (False, True)):
        name = f"{dtype} d={d} {case} deterministic={deterministic}"
        found[name] = partial(worst, dtype, d, case, deterministic)
    for variant, (dtype, d), option in variants():
        found[f"{variant.__name__} {dtype} d={d} {option}"] = partial(variant, dtype, d, option)
    return found | {check.__name__: check for check in (same_bits, last_merges_again, far_apart, compiled)}


def said_by(check: Callable[[], str]) -> str:
    """Run a check and return its error. An exception counts as one, so that the other checks still run."""
    torch.manual_seed(0)
    try:
        return check()
    except Exception as error:
        return f"raised {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


def shard(text: str) -> tuple[int, int]:
    """(k, n) of "k/n", the k-th of n, from 1."""
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise argparse.ArgumentTypeError(f"a shard must be 1/8 to 8/8, for example, got {text!r}")
    return int(found[1]), int(found[2])


def run(found: dict[str, Callable[[], str]], which: tuple[int, int]) -> int:
    """Try every n-th check, beginning with the k-th, and print a line for each; how many failed."""
    k, n = which
    failed = 0
    for name, check in list(found.items())[k - 1 :: n]:
        wrong = said_by(check)
        failed += bool(wrong)
        print(f"{name}: {f'WRONG, {wrong}' if wrong else 'holds'}", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", type=shard, default=(1, 1), metavar="K/N")
    parser.add_argument("--skip", action="append", default=[], metavar="CHECK", help="leave this check out")
    arguments = parser.parse_args()
    found = checks()
    print(f"{len(found)} checks", flush=True)
    left = {name: check for name, check in found.items() if name not in arguments.skip}
    failed = run(left, arguments.shard)
    print(f"{failed} failed on {torch.cuda.get_device_name()}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
