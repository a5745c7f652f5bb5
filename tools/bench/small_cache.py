"""Head sizes where fast memory is small for whole rows: every choice of ours beside PyTorch's, on a GPU.

`default` chooses by itself between whole rows and slices of d; the others are told. FlashAttention takes d to
256; above it PyTorch's best without an N × N matrix is the memory-efficient kernel, which the goals name.
"""

from __future__ import annotations

from functools import partial

from tools.bench.gpu.contenders import DEFAULT, EFFICIENT, FLASH, MATH, Contender, ours, sdpa, with_matrices
from tools.bench.gpu.judging import Goal, Layout
from tools.bench.gpu.place import Place
from tools.bench.gpu.problem import MASKS, Shape, dense, dense_shapes
from tools.bench.gpu.runner import Bench

NAME = "small-cache"
HELP = "attention at d = 256 to 1024 on a GPU: whole rows, slices of d, scores written out (needs CUDA)"
HEADS = (256, 320, 512, 1024)
LENGTHS = (1024, 4096, 16384)
WHOLE = len(LENGTHS) * len(MASKS)  # shapes that a mean is taken over
# Of tile_d.
BY_TILE_D = {"never": "whole rows", "fused": "fused split-d", "materialised": "materialised"}
LAYOUT = Layout(
    ("dtype", "d", "pass"), ("N", "causal"), "tflops", "TFLOP/s", (("ratio", "default / efficient"),),
    EFFICIENT, WHOLE,
)  # fmt: skip
# An NVIDIA H200 reached, 2026-11-26 (`iocourse/data/bench/small-cache.json`, N = 4,096 alone), 1.38 forward
# and 1.87 backward by what was chosen then, and 4.14 backward with the scores written out.
GOALS = tuple(
    Goal({"pass": pass_, "d": 512}, goal, floor, WHOLE, EFFICIENT)
    for pass_, goal, floor in (("forward", 1.8, 1.3), ("backward", 3.5, 2.0))
)


def shapes(quick: bool) -> list[Shape]:
    """Every problem of a run; with `quick` those of d = 512 at one length."""
    heads, lengths = ((512,), (4096,)) if quick else (HEADS, LENGTHS)
    return dense_shapes(("bfloat16",), heads, lengths)


def contenders(place: Place) -> dict[str, Contender]:
    """Everyone by name, ours first."""
    field: dict[str, Contender] = {DEFAULT: ours}
    field |= {name: partial(ours, tile_d=way) for way, name in BY_TILE_D.items()}
    field |= {name: partial(sdpa, name) for name in (EFFICIENT, FLASH, MATH)}
    large = (BY_TILE_D["materialised"], MATH)
    return field | {name: partial(with_matrices, field[name], place) for name in large}


BENCH = Bench(NAME, shapes, contenders, dense, LAYOUT, GOALS)
run, measured, show = BENCH.run, BENCH.measured, BENCH.show
