"""Attention under block masks on a GPU: our kernels beside compiled FlexAttention with the same BlockMask.

PyTorch's memory-efficient kernel takes the mask as booleans, where there is memory for these; it computes
every pair. Random masks of five densities then say whether our time follows the share of tiles that is left.
TFLOP/s count the pairs that are seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iocourse.bench import Row

from .gpu import density
from .gpu.contenders import EFFICIENT, FLEX, OURS, Contender, check_room, flex, ours, sdpa
from .gpu.judging import PASSES, Goal, Layout
from .gpu.masked import KINDS, NO_MASK, MaskForms, Shape, masked
from .gpu.place import Place
from .gpu.problem import TOKENS, WIDTH
from .gpu.runner import Bench

if TYPE_CHECKING:
    from torch import Tensor

NAME = "sparse"
HELP = "block masks on a GPU: our kernels beside compiled FlexAttention, and time by density (needs CUDA)"
HEADS = (64, 128)
LENGTHS = (4096, 8192, 16384)
DENSITIES_AT = 8192  # N, where time is held against density
DENSITIES = (NO_MASK, *density.NAMES)
LAYOUT = Layout(
    ("dtype", "d", "mask", "pass"), ("N",), "tflops", "TFLOP/s",
    (("density", "pairs seen"), ("ratio", "ours / Flex")), FLEX, len(LENGTHS),
)  # fmt: skip
GOALS = tuple(
    Goal({"pass": "forward+backward", "mask": mask, "d": d}, 1.1, 0.9, len(LENGTHS), FLEX)
    for mask in KINDS
    for d in HEADS
)
LINE_GOALS = tuple(
    Goal(
        {"pass": pass_, "d": HEADS, "N": DENSITIES_AT}, 0.15, None, len(HEADS), figure="deviation",
        over="largest", called=f"{pass_}, largest deviation from s · dense + overhead",
    )
    for pass_ in PASSES
)  # fmt: skip


def shapes(quick: bool) -> list[Shape]:
    """Every problem with a rival, with `quick` those of d = 128 at one length; then those of `densities`."""
    heads, lengths = ((128,), (4096,)) if quick else (HEADS, LENGTHS)
    return [_filled(d, N, mask) for d in heads for mask in KINDS for N in lengths] + densities(quick)


def densities(quick: bool) -> list[Shape]:
    """Random masks of every density, and no mask, for ours alone; with `quick` for d = 128 only."""
    return [_filled(d, DENSITIES_AT, mask) for d in ((128,) if quick else HEADS) for mask in DENSITIES]


def _filled(d: int, N: int, mask: str) -> Shape:
    return Shape("bfloat16", d, N, TOKENS // N, WIDTH // d, mask)


def contenders(place: Place, *, compiled: bool = True) -> dict[str, Contender]:
    """Everyone by name, ours first.

    Args:
        place: where there may be no memory for masks of N × N booleans, which are then not even tried.
        compiled: compile FlexAttention, as its users must; without, its slow reference runs, for tests.
    """

    def efficient(q: Tensor, k: Tensor, v: Tensor, seen: MaskForms) -> Tensor:
        # The booleans, and what PyTorch makes of them: numbers to add to the scores.
        check_room("N × N masks", q.shape[2] * k.shape[2] * (1 + q.element_size()), place)
        return sdpa(EFFICIENT, q, k, v, False, attn_mask=seen.booleans)

    def own(q: Tensor, k: Tensor, v: Tensor, seen: MaskForms | None) -> Tensor:
        return ours(q, k, v, False, block_mask=seen and seen.tiled(q, k))

    return {OURS: own, FLEX: flex(lambda seen, N, device: seen.flex, compiled), EFFICIENT: efficient}


def _with_lines(record: Row) -> Row:
    """Rows of masks of every density apart, and the lines through their times."""
    rows, alone = (
        [row for row in record["rows"] if (row["mask"] in DENSITIES) is it] for it in (False, True)
    )
    found = {"rows": rows, "density_seed": record["seed"], "density_rows": alone}
    return record | found | {"lines": density.lines(alone, NO_MASK)}


BENCH = Bench(
    NAME, shapes, contenders, masked, LAYOUT, GOALS + LINE_GOALS, more=_with_lines,
    only_ours=lambda shape: shape.mask in DENSITIES, told=lambda record: density.text_of(record["lines"]),
)  # fmt: skip
run, measured, show = BENCH.run, BENCH.measured, BENCH.show
