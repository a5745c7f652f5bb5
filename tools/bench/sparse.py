"""Attention under block masks on a GPU: our kernels beside compiled FlexAttention with the same BlockMask.

PyTorch's memory-efficient kernel takes the mask as booleans, where there is memory for these; it computes
every pair. Random masks of five densities then say whether our time follows the share of tiles that is left.
TFLOP/s count the pairs that are seen.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any, NamedTuple

from iocourse import masks
from tools.bench import Row
from tools.bench.gpu import density
from tools.bench.gpu.contenders import (
    EFFICIENT,
    FLEX,
    FUSED,
    Contender,
    check_room,
    flex,
    flex_mask,
    ours,
    sdpa,
)
from tools.bench.gpu.judging import PASSES, Goal, Layout
from tools.bench.gpu.place import Place
from tools.bench.gpu.problem import TOKENS, WIDTH, Pairs, Problem, Tensor, heads
from tools.bench.gpu.runner import Bench

NAME = "sparse"
HELP = "block masks on a GPU: our kernels beside compiled FlexAttention, and time by density (needs CUDA)"
BLOCK = 128  # FlexAttention's own
REACH = 512  # of the window, in keys to either side
NO_MASK = "no mask"
KINDS = ("window", "BigBird", "random")
HEADS = (64, 128)
LENGTHS = (4096, 8192, 16384)
DENSITIES_AT = 8192  # N, where time is held against density
DENSITIES = (NO_MASK, *density.NAMES)
LAYOUT = Layout(
    ("dtype", "d", "mask", "pass"), ("N",), "tflops", "TFLOP/s",
    (("density", "pairs seen"), ("ratio", "fused / Flex")), FLEX, len(LENGTHS),
)  # fmt: skip
# A backward pass alone is held to FlexAttention where its time is the GPU's and not Python's, which took 1.4
# ms to queue it on an NVIDIA H200, 2026-11-26 (`iocourse/data/bench/sparse.json`, d = 128). By the times of
# the larger densities there, 0.10 + 7.6 s ms at N = 8,192 for a share s, that is a tenth of the blocks at
# twice that N: 1.6 ms. The window and BigBird take about 1.1 ms at every N. Nothing is measured at the
# longest N.
GOALS = (
    *(
        Goal({"pass": "forward+backward", "mask": mask, "d": d}, 1.1, 0.9, len(LENGTHS), FLEX)
        for mask in KINDS
        for d in HEADS
    ),
    *(
        Goal({"pass": "backward", "mask": "random", "d": d, "N": LENGTHS[-1]}, 0.95, None, 1, FLEX)
        for d in HEADS
    ),
)
LINE_GOALS = tuple(
    Goal(
        {"pass": pass_, "d": HEADS, "N": DENSITIES_AT}, 0.15, None, len(HEADS), figure="deviation",
        over="largest", called=f"{pass_}, largest deviation from s · dense + overhead",
    )
    for pass_ in PASSES
)  # fmt: skip


class Shape(NamedTuple):
    """One problem: q, k, v are (B, H, N, d); the mask is one of KINDS, NO_MASK or `density.NAMES`."""

    dtype: str
    d: int
    N: int
    B: int
    H: int
    mask: str


def shapes(quick: bool) -> list[Shape]:
    """Every problem with a rival, with `quick` those of d = 128 at one length; then those of `densities`."""
    heads, lengths = ((128,), (4096,)) if quick else (HEADS, LENGTHS)
    return [_filled(d, N, mask) for d in heads for mask in KINDS for N in lengths] + densities(quick)


def densities(quick: bool) -> list[Shape]:
    """Random masks of every density, and no mask, for ours alone; with `quick` for d = 128 only."""
    return [_filled(d, DENSITIES_AT, mask) for d in ((128,) if quick else HEADS) for mask in DENSITIES]


def _filled(d: int, N: int, mask: str) -> Shape:
    return Shape("bfloat16", d, N, TOKENS // N, WIDTH // d, mask)


def mask_of(name: str, N: int, block: int = BLOCK) -> masks.Mask:
    """The mask of this name for N queries and keys, in several blocks of `block`.

    The window is |i - j| ≤ 512, key by key, so its border cuts tiles; BigBird has 1 global row and column of
    blocks, a window of ±1 block and 3 random blocks a row; random has a tenth of the blocks, those of
    `density.NAMES` about the share they are named for, the diagonal among them.
    """
    if name == "window":
        return masks.Window(N, REACH * block // BLOCK)
    if name == "BigBird":
        return masks.bigbird(N, block, g=1, w=1, r=3)
    if name == "random":
        return masks.random(N, block, 0.1)
    blocks = -(-N // block)
    return masks.random(N, block, max(0.0, (density.NAMES[name] * blocks - 1) / (blocks - 1)))


def pairs_of(mask: masks.Mask, device: str) -> Pairs:
    """(i, j) -> whether query i sees key j; positions are tensors that broadcast."""
    import torch

    if isinstance(mask, masks.Window):
        reach = mask.w
        return lambda i, j: (i - j).abs() <= reach
    assert isinstance(mask, masks.BlockMask) and not mask.causal
    tiles, rows, columns = torch.tensor(mask.tiles).to(device), mask.Br, mask.Bc
    return lambda i, j: tiles[i // rows, j // columns]


@lru_cache(maxsize=1)  # made once for each problem
def booleans(pairs: Pairs, N: int, device: str) -> Tensor:
    """(N, N), True where a pair is seen."""
    import torch

    i = torch.arange(N, device=device)
    return pairs(i[:, None], i[None, :])


def masked(shape: Shape, place: Place, seed: int, block: int = BLOCK) -> Problem:
    """Draw it from the seed; random masks have a seed of their own, the same in every run.

    A row says as `density` which share of all pairs is seen; they alone count in its FLOP.
    """
    if shape.mask == NO_MASK:
        return heads(shape, place, seed, None, None, density=1.0)
    mask = mask_of(shape.mask, shape.N, block)
    pairs, share = pairs_of(mask, place.device), mask.nnz / shape.N**2
    return heads(shape, place, seed, pairs, pairs, share, density=share)


@lru_cache(maxsize=1)  # made once for each problem
def tiles_of(pairs: Pairs, N: int, device: str) -> Any:
    """FlexAttention's BlockMask as our kernels take it."""
    import torch

    from iocourse.kernels import tiled_mask

    q = torch.empty(1, 1, N, 1, device=device)
    return tiled_mask(flex_mask(pairs, N, device), q, q)


def contenders(place: Place, *, compiled: bool = True) -> dict[str, Contender]:
    """Everyone by name, ours first; `compiled` as of dense attention's. They are told which pairs are seen.

    Where the place has no memory for masks of N × N booleans, these are not even tried.
    """

    def efficient(q: Tensor, k: Tensor, v: Tensor, pairs: Pairs) -> Tensor:
        # The booleans, and what PyTorch makes of them: numbers to add to the scores.
        check_room("N × N masks", q.shape[2] * k.shape[2] * (1 + q.element_size()), place)
        return sdpa(EFFICIENT, q, k, v, False, attn_mask=booleans(pairs, q.shape[2], str(q.device)))

    def own(q: Tensor, k: Tensor, v: Tensor, pairs: Pairs | None) -> Tensor:
        return ours(q, k, v, False, block_mask=pairs and tiles_of(pairs, q.shape[2], str(q.device)))

    return {FUSED: own, FLEX: partial(flex, compiled), EFFICIENT: efficient}


def _with_lines(record: Row) -> Row:
    """Rows of masks of every density apart, and the lines through their times."""
    alone = [row for row in record["rows"] if row["mask"] in DENSITIES]
    rows = [row for row in record["rows"] if row["mask"] not in DENSITIES]
    found = {"rows": rows, "density_seed": record["seed"], "density_rows": alone}
    return record | found | {"lines": density.lines(alone, NO_MASK)}


BENCH = Bench(
    NAME, shapes, contenders, masked, LAYOUT, GOALS + LINE_GOALS, more=_with_lines,
    only_ours=lambda shape: shape.mask in DENSITIES, told=lambda record: density.text_of(record["lines"]),
)  # fmt: skip
run, measured, show = BENCH.run, BENCH.measured, BENCH.show
