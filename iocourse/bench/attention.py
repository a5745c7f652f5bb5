"""Attention on a GPU, side by side in one run: our kernels, PyTorch's, and Triton's own tutorial.

Every shape holds 16,384 tokens and heads so that H · d = 2048, in (B, H, N, d) layout. Before anything is
timed its values are held against float64; what is wrong is not timed. TFLOP/s count 4·B·H·N²·d FLOP forward,
2.5 times that backward, half of it if causal. Our kernels do not specialise their warps: on Hopper Triton can
do so for one loop only, and ours keep the masked and the unmasked part apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from iocourse.bench import Row, grouped
from iocourse.refusal import Refused

from .gpu.contenders import CUDNN, FLASH, TUTORIAL, CannotTakePart, Contender, contenders
from .gpu.dense import Heads, Shape, filled
from .gpu.judging import Goal, Layout, compared
from .gpu.place import Place, cuda_place
from .gpu.text import text
from .gpu.trial import times_of

if TYPE_CHECKING:
    from iocourse.explore.draw.picture import Picture

NAME = "attention"
HELP = "our kernels beside PyTorch's and the tutorial's on a GPU: TFLOP/s, ratios, errors (needs CUDA)"
HEADS = (64, 128)
TYPES = ("bfloat16", "float16")
LENGTHS = (1024, 2048, 4096, 8192, 16384)
QUICK_LENGTHS = (4096,)
MASKS = (False, True)  # causal
WHOLE = len(LENGTHS) * len(MASKS)  # shapes that a mean is taken over
LAYOUT = Layout(
    ("dtype", "d", "pass"), ("N", "causal"), "tflops", "TFLOP/s", (("ratio", "ours / flash"),), FLASH, WHOLE
)


def _goal(pass_: str, d: int, dtype: str, rival: str, goal: float, floor: float | None) -> Goal:
    what = f"{pass_}, d = {d}, {dtype}, against {rival}"
    return Goal(what, {"pass": pass_, "d": d, "dtype": dtype}, goal, floor, WHOLE, rival)


GOALS = (
    _goal("forward", 64, "bfloat16", FLASH, 1.25, 1.15),
    _goal("forward", 128, "bfloat16", FLASH, 1.30, 1.15),
    *(_goal("backward", d, "bfloat16", FLASH, 1.15, 1.0) for d in HEADS),
    *(_goal("forward+backward", d, "bfloat16", FLASH, 1.20, 1.05) for d in HEADS),
    *(_goal("forward", d, "float16", TUTORIAL, 1.08, None) for d in HEADS),
    *(_goal("forward", d, "bfloat16", CUDNN, 0.72, None) for d in HEADS),
    *(_goal("backward", d, "bfloat16", CUDNN, 0.62, None) for d in HEADS),
)


def shapes(quick: bool, types: Sequence[str] = TYPES) -> list[Shape]:
    """Every problem of a run; with `quick` those of one length."""
    lengths = QUICK_LENGTHS if quick else LENGTHS
    return [
        filled(dtype, d, N, causal) for dtype in types for d in HEADS for N in lengths for causal in MASKS
    ]


def run(quick: bool, tutorial: Path | None = None, types: Sequence[str] = TYPES) -> Row:
    """Time every contender at every shape, forward, backward and both.

    Args:
        quick: one length only; goals are then not judged.
        tutorial: a copy of Triton's tutorial 06 (06-fused-attention.py), which then takes part in float16.
        types: the types to measure, so that a run can be cut where a GPU is lent for minutes.

    Raises:
        Refused: there is no GPU, kernels are interpreted, or `tutorial` cannot be loaded.
    """
    if tutorial is not None and not tutorial.is_file():
        raise Refused(f"--tutorial {tutorial} is no file; allowed: a copy of Triton's 06-fused-attention.py")
    place = cuda_place(NAME)
    try:
        field = contenders(place.free_bytes, tutorial)
    except CannotTakePart as error:
        raise Refused(str(error)) from None
    return {"quick": quick} | measured(shapes(quick, types), field, place)


def measured(asked: Sequence[Shape], field: Mapping[str, Contender], place: Place) -> Row:
    """The record: rows, errors, means and goals of every shape asked for, on this place."""
    return compared(times_of(NAME, asked, Heads, field, place), LAYOUT, GOALS)


def show(result: Row) -> str:
    """TFLOP/s, means, errors, who did not take part and why, the goals, and where it was measured."""
    return text(result, LAYOUT)


def pictures(result: Row) -> dict[str, Picture]:
    """TFLOP/s of every contender as bars: a picture for each pass, type and head size, by file name."""
    from iocourse.explore import bench_bars

    return {
        f"{pass_.replace('+', '_and_')}_{dtype}_d{d}": bench_bars(result, pass_=pass_, d=d, dtype=dtype)
        for pass_, dtype, d in grouped(result["rows"], ("pass", "dtype", "d"))
    }
