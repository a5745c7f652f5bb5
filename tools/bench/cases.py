"""Problems of the passes whose default variant or tile was not measured: packed sequences, block masks,
windows, and query heads that share key heads.

One shape type describes them all, so that their rows have the same keys in one record.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate, product
from typing import Any, NamedTuple

from iocourse.gpu.roofline import flops
from tools.bench import problems
from tools.bench.contest import (
    FUSED,
    SQUARE_TILES,
    TWO_PASS,
    Contender,
    Given,
    Pairs,
    Problem,
    Tensor,
    named,
    normal,
    rates,
    with_tiles,
)
from tools.bench.problems import KINDS, LENGTH_KINDS, LONGEST, REACH, SEQUENCES, TOKENS, WIDTH

PACKED, BLOCKS, WINDOW, CAUSAL, FULL = "packed", "blocks", "window", "causal", "full"
GROUPS = (4, 8)
N, LONG = 4096, 8192  # with few visible pairs N is LONG, so that the GPU and not Python is timed


class Case(NamedTuple):
    """Shape of a problem with q (B, H, N, d) and k, v (B, H_kv, N, d).

    pairs: FULL, CAUSAL, WINDOW (causal, at most REACH keys before the query), "blocks " with a name of KINDS,
    or "packed " with one of LENGTH_KINDS: B causal sequences, the longest of at most N rows.
    """

    dtype: str
    d: int
    N: int
    B: int
    H: int
    H_kv: int
    pairs: str


def _of(d: int, n: int, pairs: str, group: int = 1) -> Case:
    """Return the case with 16,384 tokens and H · d = 2048; for packed sequences, with `SEQUENCES` of them."""
    heads = WIDTH // d
    batches = SEQUENCES if pairs.startswith(PACKED) else TOKENS // n
    return Case("bfloat16", d, n, batches, heads, heads // group, pairs)


def two_pass_shapes(quick: bool) -> list[Case]:
    """Return the backward passes that were not timed both ways; quick: those of d = 128, without masks."""
    heads = (128,) if quick else (128, 64)
    found = [_of(d, LONGEST, f"{PACKED} {LENGTH_KINDS[0]}") for d in heads]
    found += [_of(d, N, pairs, group) for pairs, group, d in product((CAUSAL, FULL), GROUPS, heads)]
    if quick:
        return found
    kinds = (f"{BLOCKS} {KINDS[2]}", WINDOW, *(f"{BLOCKS} {kind}" for kind in KINDS[:2]))
    return [*found, *(_of(d, LONG, kind) for kind, d in product(kinds, heads))]


def square_tile_shapes(quick: bool) -> list[Case]:
    """Return the forward passes whose tiles were measured without masks only; quick: those of d = 128."""
    kinds = [f"{BLOCKS} {kind}" for kind in KINDS], [f"{PACKED} {kind}" for kind in LENGTH_KINDS]
    return [
        _of(d, n, kind)
        for d in ((128,) if quick else (128, 64))
        for n, some in zip((LONG, LONGEST), kinds, strict=True) for kind in some
    ]  # fmt: skip


def ours(q: Tensor, k: Tensor, v: Tensor, seen: dict[str, Any], **options: Any) -> Tensor:
    """Call `attention` or, for packed sequences, `attention_varlen` with the arguments of the problem."""
    from iocourse.kernels import attention, attention_varlen

    return (attention_varlen if "cu_q" in seen else attention)(q, k, v, **seen, **options)


def of_two_pass(place: Any) -> dict[str, Contender]:
    """Return both backward passes by name; `place` is ignored."""
    return {FUSED: partial(ours, deterministic=False), TWO_PASS: partial(ours, deterministic=True)}


def of_square_tiles(place: Any) -> dict[str, Contender]:
    """Return the forward pass with the chosen tile and with others; `place` is ignored."""
    return {FUSED: ours} | with_tiles(ours, *SQUARE_TILES)


def square_tiles_run(shape: Case, name: str) -> bool:
    """Return True if an implementation of `of_square_tiles` runs at this shape."""
    return shape.d == 64 or name != named(SQUARE_TILES[1])


def problem(shape: Case, device: str, seed: int) -> Problem:
    """Return a problem with normal inputs. All query heads of the last key head of the last batch or sequence
    are checked.
    """
    kind, _, name = shape.pairs.partition(" ")
    if kind == PACKED:
        return _packed(shape, name, device, seed)
    queries = normal((shape.B, shape.H, shape.N, shape.d), 2, shape.dtype, device, seed)
    keys = normal((shape.B, shape.H_kv, shape.N, shape.d), 2, shape.dtype, device, seed + 1)
    seen, pairs, visible = _seen(shape, kind, name, device)
    group = shape.H // shape.H_kv
    given = Given((queries[0], *keys), queries[1], seen, partial(_checked, shape.H, group))
    work = visible / shape.N**2 * flops("forward", B=shape.B, H=shape.H, N=shape.N, d=shape.d)
    return Problem(given, pairs and _repeated(pairs, shape.N), rates(work))


def _seen(
    shape: Case, kind: str, name: str, device: str, block: int = problems.BLOCK
) -> tuple[dict[str, Any], Pairs | None, float]:
    """Return the mask as arguments of `attention`, the same as a function of pairs, and their number."""
    import torch

    from iocourse.kernels import tiled_mask

    n = shape.N
    if kind == BLOCKS:
        # Small problems (without a GPU) have blocks of 16 rows, because one of 128 would be all of the mask.
        mask = problems.mask_of(name, n, min(block, max(16, n // 32)))
        like = torch.empty(1, 1, n, 1, device=device)
        tiled = {"block_mask": tiled_mask(mask, like, like)}
        return tiled, problems.pairs_of(mask, device), float(mask.nnz)
    if kind == WINDOW:
        reach = min(REACH, n - 1)
        visible = n * (reach + 1) - reach * (reach + 1) / 2
        return {"window": (REACH, 0)}, lambda i, j: (j <= i) & (i - j <= REACH), visible
    if kind == CAUSAL:
        return {"causal": True}, problems.not_later, n**2 / 2
    if kind == FULL:
        return {}, None, float(n**2)
    raise ValueError(
        f"pairs must be {FULL}, {CAUSAL}, {WINDOW}, {BLOCKS} … or {PACKED} …, got {shape.pairs!r}"
    )


def _packed(shape: Case, lengths: str, device: str, seed: int) -> Problem:
    """Return a causal problem with B packed sequences of at most N rows."""
    import torch

    packs = problems.Packs(
        shape.dtype, shape.d, shape.H, lengths, shape.B, min(problems.SHORTEST, shape.N // 4), shape.N
    )
    drawn = problems.drawn(packs)
    starts, last, group = [0, *accumulate(drawn)], drawn[-1], shape.H // shape.H_kv
    queries = normal((starts[-1], shape.H, shape.d), 2, shape.dtype, device, seed)
    keys = normal((starts[-1], shape.H_kv, shape.d), 2, shape.dtype, device, seed + 1)
    cu = torch.tensor(starts, dtype=torch.int32, device=device)
    seen = {"cu_q": cu, "cu_k": cu, "longest": (max(drawn),) * 2, "causal": True}

    def part(x: Tensor) -> Tensor:
        return _checked(shape.H, group, x[-last:].transpose(0, 1)[None])

    work = 4.0 * shape.H * shape.d * problems.pairs_in(drawn)
    given = Given((queries[0], *keys), queries[1], seen, part)
    return Problem(given, _repeated(problems.not_later, last), rates(work, tokens=starts[-1]))


def _checked(heads: int, group: int, x: Tensor) -> Tensor:
    """Return the checked rows of x (B, heads or key heads, N, d): of the last key head, or the rows of all
    query heads that share it, one head after the other.
    """
    return x[-1, -group:].reshape(-1, x.shape[3]) if x.shape[1] == heads else x[-1, -1]


def _repeated(pairs: Pairs, n: int) -> Pairs:
    """Return the visible pairs of several heads' queries, n rows of each one after the other."""
    return lambda i, j: pairs(i % n, j)
