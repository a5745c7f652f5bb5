"""Attention on a GPU, side by side in one run: our kernels, PyTorch's, and Triton's own tutorial.

Every shape holds 16,384 tokens and heads so that H · d = 2048, in (B, H, N, d) layout. Before anything is
timed its values are held against float64; what is wrong is not timed. TFLOP/s count 4·B·H·N²·d FLOP forward,
2.5 times that backward, half of it if causal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from iocourse.refusal import Refused
from tools.bench import Row, grouped
from tools.bench.gpu.contenders import CUDNN, FLASH, TUTORIAL, TWO_PASS, contenders, tutorial_file
from tools.bench.gpu.judging import Goal, Layout
from tools.bench.gpu.problem import MASKS, TOKENS, WIDTH, Shape, dense, dense_shapes
from tools.bench.gpu.runner import Bench, Keep

if TYPE_CHECKING:
    from iocourse.explore.draw.picture import Picture

NAME = "attention"
HELP = "our kernels beside PyTorch's and the tutorial's on a GPU: TFLOP/s, ratios, errors (needs CUDA)"
HEADS = (64, 128)
TYPES = ("bfloat16", "float16")
LENGTHS = (1024, 2048, 4096, 8192, 16384)
WHOLE = len(LENGTHS) * len(MASKS)  # shapes that a mean is taken over
BY_DEFAULT = {"contender": TWO_PASS}  # what a backward pass is unasked where the goals are stated for
LAYOUT = Layout(
    ("dtype", "d", "pass"), ("N", "causal"), "tflops", "TFLOP/s", (("ratio", "fused / flash"),), FLASH, WHOLE
)
# Reached is what an NVIDIA H200 did, 2026-11-26 (`iocourse/data/bench/attention.json`, at d = 128 without the
# last three shapes; against the tutorial `attention-tutorial.json`, N = 4,096 alone). A goal is what was
# reached, unless more is stated; a floor is what was reached or was the goal before.
# - Forward against flash: 1.33 and 1.17 at d = 64 and 128, before the tiles that were tuned there; the goals
#   are more. Against the tutorial 0.93 and 0.83: the goal is to be as fast.
# - Backward, and both passes: the two-pass way, which a call takes unasked there. Against flash 1.28 and 1.24
#   (goal: 1.30) backward, 1.30 and 1.21 both; against cuDNN 0.77 and 0.65 backward.
# - Forward against cuDNN: 0.85, and 0.63 where the goal stays.
GOALS = tuple(
    Goal({"pass": pass_, "d": d, "dtype": dtype} | who, goal, floor, WHOLE, rival)
    for pass_, who, dtype, rival, *each in (
        ("forward", {}, "bfloat16", FLASH, (1.40, 1.33), (1.35, 1.15)),
        ("backward", BY_DEFAULT, "bfloat16", FLASH, (1.28, 1.15), (1.30, 1.15)),
        ("forward+backward", BY_DEFAULT, "bfloat16", FLASH, (1.30, 1.20), (1.21, 1.05)),
        ("forward", {}, "float16", TUTORIAL, (1.0, None), (1.0, None)),
        ("forward", {}, "bfloat16", CUDNN, (0.85, None), (0.72, None)),
        ("backward", BY_DEFAULT, "bfloat16", CUDNN, (0.77, None), (0.65, None)),
    )
    for d, (goal, floor) in zip(HEADS, each, strict=True)
)


def shapes(
    quick: bool, types: Sequence[str] | None = None, heads: Sequence[int] | None = None,
    lengths: Sequence[int] | None = None,
) -> list[Shape]:  # fmt: skip
    """Every problem of a run, or those of the types, head sizes and lengths that are asked for.

    Raises Refused where a type has no 16 bits, a head size is above 2048, or a length does not divide 16,384.
    """
    for dtype in types or ():
        if dtype not in TYPES:
            raise Refused(f"--types has {dtype!r}; allowed: {', '.join(TYPES)}")
    for d in heads or ():
        if not 1 <= d <= WIDTH:
            raise Refused(f"--heads has {d}; allowed: 1 to {WIDTH}")
    for N in lengths or ():
        if N < 1 or TOKENS % N:
            raise Refused(f"--lengths has {N}; allowed: divisors of {TOKENS:,}, the tokens of every shape")
    return dense_shapes(types or TYPES, heads or HEADS, lengths or ((4096,) if quick else LENGTHS))


BENCH = Bench(NAME, shapes, contenders, dense, LAYOUT, GOALS)
measured, show = BENCH.measured, BENCH.show


def run(
    quick: bool, tutorial: Path | None = None, types: Sequence[str] | None = None,
    heads: Sequence[int] | None = None, lengths: Sequence[int] | None = None, without: Sequence[str] = (),
    keep: Keep | None = None,
) -> Row:  # fmt: skip
    """Time every contender at every shape, forward, backward and both; those `without` are left out.

    `tutorial` is a copy of Triton's tutorial 06 (06-fused-attention.py), which then takes part in float16;
    `types`, `heads` and `lengths` are as of `shapes`, so that a run fits the minutes a GPU is lent for;
    `quick`, `keep` as of `Bench.run`. Raises Refused as these, and at a tutorial or contender that is none.
    """
    tutorial_file(tutorial)
    asked = shapes(quick, types, heads, lengths)
    field = partial(contenders, tutorial=tutorial, without=without)
    return replace(BENCH, shapes=lambda quick: asked, contenders=field).run(quick, keep)


def pictures(result: Row) -> dict[str, Picture]:
    """TFLOP/s of every contender as bars: a picture for each pass, type and head size, by file name."""
    from iocourse.explore import bench_bars

    return {
        f"{pass_.replace('+', '_and_')}_{dtype}_d{d}": bench_bars(result, pass_=pass_, d=d, dtype=dtype)
        for pass_, dtype, d in grouped(result["rows"], ("pass", "dtype", "d"))
    }
