"""Attention under block masks on a GPU: our kernels beside compiled FlexAttention with the same BlockMask.

PyTorch's memory-efficient kernel takes the mask as booleans, where there is memory for these; it computes
every pair. Random masks of five densities then say whether our time follows the share of tiles that is left.
TFLOP/s count the pairs that are seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from iocourse.bench import Row

from .gpu import density as _density
from .gpu.contenders import EFFICIENT, FLEX, OURS, Contender, Flex, check_room, sdpa
from .gpu.dense import TOKENS, WIDTH
from .gpu.judging import PASSES, Goal, Layout, compared, judged
from .gpu.masked import KINDS, NO_MASK, Masked, MaskForms, Shape
from .gpu.place import Place, cuda_place
from .gpu.text import text
from .gpu.trial import Keep, times_of

if TYPE_CHECKING:
    from torch import Tensor

NAME = "sparse"
HELP = "block masks on a GPU: our kernels beside compiled FlexAttention, and time by density (needs CUDA)"
HEADS = (64, 128)
LENGTHS = (4096, 8192, 16384)
DENSITIES_AT = 8192  # N, where time is held against density
LAYOUT = Layout(
    ("dtype", "d", "mask", "pass"), ("N",), "tflops", "TFLOP/s",
    (("density", "pairs seen"), ("ratio", "ours / Flex")), FLEX, len(LENGTHS),
)  # fmt: skip
GOALS = tuple(
    Goal(
        f"forward+backward, {mask}, d = {d}, against {FLEX}",
        {"pass": "forward+backward", "mask": mask, "d": d}, 1.1, 0.9, len(LENGTHS), FLEX,
    )
    for mask in KINDS
    for d in HEADS
)  # fmt: skip
LINE_GOALS = tuple(
    Goal(
        f"{pass_}, largest deviation from s · dense + overhead",
        {"pass": pass_, "d": HEADS, "N": DENSITIES_AT}, 0.15, None, len(HEADS),
        figure="deviation", over="largest",
    )
    for pass_ in PASSES
)  # fmt: skip


def shapes(quick: bool) -> list[Shape]:
    """Every problem with a rival; with `quick` those of d = 128 at one length."""
    heads, lengths = ((128,), (4096,)) if quick else (HEADS, LENGTHS)
    return [_filled(d, N, mask) for d in heads for mask in KINDS for N in lengths]


def densities(quick: bool) -> list[Shape]:
    """Random masks of every density, and no mask; with `quick` for d = 128 only."""
    names = (NO_MASK, *(_density.name_of(share) for share in _density.SHARES))
    return [_filled(d, DENSITIES_AT, mask) for d in ((128,) if quick else HEADS) for mask in names]


def _filled(d: int, N: int, mask: str) -> Shape:
    return Shape("bfloat16", d, N, TOKENS // N, WIDTH // d, mask)


def contenders(free_bytes: Callable[[], int], *, compiled: bool = True) -> dict[str, Contender]:
    """Everyone by name, ours first.

    Args:
        free_bytes: the memory that is free, so that masks of N × N booleans are not even tried.
        compiled: compile FlexAttention, as its users must; without, its slow reference runs, for tests.
    """

    def efficient(q: Tensor, k: Tensor, v: Tensor, seen: MaskForms) -> Tensor:
        # The booleans, and what PyTorch makes of them: numbers to add to the scores.
        check_room("N × N masks", q.shape[2] * k.shape[2] * (1 + q.element_size()), free_bytes)
        return sdpa(EFFICIENT, q, k, v, False, attn_mask=seen.booleans)

    return {OURS: ours, FLEX: Flex(lambda seen, q: seen.flex, compiled), EFFICIENT: efficient}


def ours(q: Tensor, k: Tensor, v: Tensor, seen: MaskForms | None) -> Tensor:
    """The course's `attention` under the mask; None: none."""
    from iocourse.kernels import attention

    return attention(q, k, v, block_mask=None if seen is None else seen.tiled(q, k))


def run(quick: bool, keep: Keep | None = None) -> Row:
    """Time everyone at every shape and ours at every density; `quick`: d = 128 at one length, no goal judged.

    Raises Refused where there is no GPU, or kernels are interpreted.
    """
    place = cuda_place(NAME)
    field = contenders(place.free_bytes)
    return measured(shapes(quick), densities(quick), field, place, quick=quick, keep=keep)


def measured(
    asked: Sequence[Shape], dense_to_sparse: Sequence[Shape], field: Mapping[str, Contender], place: Place,
    problem: Callable[[Shape, Place, int], Masked] = Masked, *, quick: bool = False, keep: Keep | None = None,
) -> Row:  # fmt: skip
    """The record: rows, errors, means, lines of time against density, and goals, on this place.

    Args:
        asked: shapes for everyone.
        dense_to_sparse: shapes for ours alone.
        field: who takes part.
        place: where this runs.
        problem: draws one.
        quick: whether few shapes were asked for.
        keep: takes the record after each shape.
    """
    total = len(asked) + len(dense_to_sparse)

    def judge(record: Row) -> Row:
        counted = {"shapes": record["shapes"] | {"asked": total}, "density_rows": [], "lines": []}
        return {"quick": quick} | compared(record, LAYOUT, GOALS) | counted

    def with_lines(alone: Row) -> Row:
        found = _density.lines(alone["rows"], NO_MASK)
        return record | {
            "shapes": {"asked": total, "done": len(asked) + alone["shapes"]["done"]},
            "seconds": record["seconds"] + alone["seconds"],
            "density_seed": alone["seed"],
            "density_rows": alone["rows"],
            "errors": record["errors"] + alone["errors"],
            "lines": found,
            "goals": record["goals"] + judged(found, LINE_GOALS),
        }

    record = times_of(NAME, asked, problem, field, place, judge=judge, keep=keep)
    ours = {OURS: field[OURS]}
    return times_of(NAME, dense_to_sparse, problem, ours, place, judge=with_lines, keep=keep)


def show(result: Row) -> str:
    """TFLOP/s, means, errors, refusals, time against density, the goals, and where it was measured."""
    return text(result, LAYOUT, _density.text_of(result["lines"]))
