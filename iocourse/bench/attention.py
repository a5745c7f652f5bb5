"""Attention on a GPU, side by side in one run: our kernels, PyTorch's, and Triton's own tutorial.

Every shape holds 16,384 tokens and heads so that H · d = 2048, in (B, H, N, d) layout. Before anything is
timed its values are held against float64; what is wrong is not timed. TFLOP/s count 4·B·H·N²·d FLOP forward,
2.5 times that backward, half of it if causal. Our kernels do not specialise their warps: on Hopper Triton can
do so for one loop only, and ours keep the masked and the unmasked part apart.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from iocourse.bench import circumstances
from iocourse.course.checkout import Refused
from iocourse.data.recorded import provenance
from iocourse.gpu.roofline import flops, tflops
from iocourse.gpu.timing import Staged, Timing, Work, side_by_side
from iocourse.progress_bar import steps

from ._judging import LENGTHS, MASKS, PASSES, STATED_FOR, judged, means, with_ratios
from ._place import Place, cuda_place

if TYPE_CHECKING:
    from torch import Tensor

    from iocourse.explore import Picture

    from ._contenders import Contender

NAME = "attention"
HELP = "our kernels beside PyTorch's and the tutorial's on a GPU: TFLOP/s, ratios, errors (needs CUDA)"
TOKENS = 16384
WIDTH = 2048  # H · d
HEADS = (64, 128)
TYPES = ("bfloat16", "float16")
QUICK_LENGTHS = (4096,)


class Shape(NamedTuple):
    """One problem: q, k, v are (B, H, N, d)."""

    dtype: str
    d: int
    N: int
    B: int
    H: int
    causal: bool


def shapes(quick: bool, types: Sequence[str] = TYPES) -> list[Shape]:
    """Every problem of a run; with `quick` those of one length."""
    return [
        Shape(dtype, d, N, TOKENS // N, WIDTH // d, causal)
        for dtype in types
        for d in HEADS
        for N in (QUICK_LENGTHS if quick else LENGTHS)
        for causal in MASKS
    ]


def run(quick: bool, tutorial: Path | None = None, types: Sequence[str] = TYPES) -> dict[str, Any]:
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
    place = cuda_place()
    from ._contenders import CannotTakePart, contenders

    try:
        field = contenders(place.free_bytes, tutorial)
    except CannotTakePart as error:
        raise Refused(str(error)) from None
    return {"quick": quick} | measured(shapes(quick, types), field, place)


def measured(asked: Sequence[Shape], field: Mapping[str, Contender], place: Place) -> dict[str, Any]:
    """The record: rows, errors, means and goals of every shape asked for, on this place."""
    seed, started = random.SystemRandom().randrange(2**31), time.perf_counter()
    rows: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    for shape in steps(asked, "shapes"):
        place.tidy()
        one = Trial(shape, field, place, seed)
        errors += one.checked()
        rows += one.timed()
    rows = with_ratios(rows)
    return {
        "subject": NAME,
        **circumstances("torch", "triton"),
        "device": place.facts(),
        "seed": seed,
        "seconds": round(time.perf_counter() - started),
        "contenders": list(field),
        "rows": rows,
        "errors": errors,
        "means": means(rows),
        "goals_stated_for": STATED_FOR,
        "goals": judged(rows),
    }


class Trial:
    """Every contender at one shape: first its values, then its times."""

    def __init__(self, shape: Shape, field: Mapping[str, Contender], place: Place, seed: int) -> None:
        """Draw q, k, v and dO (B, H, N, d), normal, from the seed."""
        import torch

        self._shape, self._field, self._place = shape, field, place
        source = torch.Generator(place.device).manual_seed(seed)
        sizes = (shape.B, shape.H, shape.N, shape.d)
        dtype = getattr(torch, shape.dtype)
        q, k, v, do = (torch.randn(sizes, generator=source, device=place.device).to(dtype) for _ in range(4))
        self._inputs = (q.requires_grad_(), k.requires_grad_(), v.requires_grad_())
        self._do = do
        self._refused: dict[tuple[str, str], str] = {}

    # --- values ---------------------------------------------------------------------------------------

    def checked(self) -> list[dict[str, Any]]:
        """The errors of each contender at the last head of the last batch; who is wrong is refused."""
        from ._values import exact_head

        q, k, v = (x[-1, -1] for x in self._inputs)
        reference = exact_head(q, k, v, self._do[-1, -1], self._shape.causal)
        return [row for name in self._field for row in self._check(name, reference)]

    def _check(self, name: str, reference: Mapping[str, Tensor]) -> Iterator[dict[str, Any]]:
        import torch

        from ._values import RESULTS

        forward = self._accepted(name, PASSES, self._forward(name), lambda o: {"O": o}, reference)
        if not forward:
            return
        later = tuple(p for p in PASSES if p != "forward")
        both = self._both(name)
        gradients = self._accepted(
            name, later, both, lambda g: dict(zip(RESULTS[1:], g, strict=True)), reference
        )
        (found, worst), (more, worse) = forward, gradients or ({}, 0.0)
        row = self._facts(name) | found | more | {"worst_block": max(worst, worse)}
        if gradients:
            pair = both(), both()
            row["bit_equal"] = all(torch.equal(a, b) for a, b in zip(*pair, strict=True))
        yield row

    def _accepted(
        self, name: str, passes: Sequence[str], work: Callable[[], Any],
        named: Callable[[Any], dict[str, Tensor]], reference: Mapping[str, Tensor],
    ) -> tuple[dict[str, float], float] | None:  # fmt: skip
        """The errors of what `work` gives; None, and the passes refused, where it raises or is wrong."""
        from ._contenders import with_warnings
        from ._values import WRONG, errors

        self._poison()
        found, reason = with_warnings(work)
        if not reason:
            each, worst = errors({key: x[-1, -1] for key, x in named(found).items()}, reference)
            if worst <= WRONG[self._shape.dtype]:
                return each, worst
            largest = ", ".join(f"{key} {error:.2g}" for key, error in each.items())
            reason = f"its values are wrong: relative errors {largest}, worst block {worst:.2g}"
        self._refused |= {(name, pass_): reason for pass_ in passes}
        return None

    def _poison(self) -> None:
        """Leave NaN in the memory that the next results will get: what is not written shows."""
        import torch

        junk = [torch.full_like(self._do, float("nan")) for _ in range(6)]
        del junk

    # --- times ----------------------------------------------------------------------------------------

    def timed(self) -> list[dict[str, Any]]:
        """One row a contender and pass: its time, or why it has none."""
        return [row for pass_ in PASSES for row in self._timed(pass_)]

    def _timed(self, pass_: str) -> list[dict[str, Any]]:
        from ._contenders import DETERMINISTIC, reason_of

        makers: dict[str, Callable[[str], Work]] = {
            "forward": self._forward,
            "backward": self._backward,
            "forward+backward": self._both,
        }
        # Forward there is nothing that could be in another order: ours once.
        names = [name for name in self._field if (name, pass_) != (DETERMINISTIC, "forward")]
        works = {name: makers[pass_](name) for name in names if (name, pass_) not in self._refused}
        times = side_by_side(works, stopwatch=self._place.stopwatch)
        for name, took in times.items():
            if isinstance(took, Exception):
                self._refused[name, pass_] = reason_of(took)
        return [self._row(name, pass_, times.get(name)) for name in names]

    def _row(self, name: str, pass_: str, took: Timing | Exception | None) -> dict[str, Any]:
        shape = self._shape
        row = self._facts(name) | {"pass": pass_}
        if not isinstance(took, Timing):
            return row | {"refused": self._refused[name, pass_]}
        work = flops(pass_, B=shape.B, H=shape.H, N=shape.N, d=shape.d, causal=shape.causal)
        return row | asdict(took) | {"tflops": tflops(work, took.ms)}

    def _facts(self, name: str) -> dict[str, Any]:
        return self._shape._asdict() | {"contender": name}

    # --- the three passes ------------------------------------------------------------------------------

    def _forward(self, name: str) -> Callable[[], Tensor]:
        import torch

        attend, causal = self._field[name], self._shape.causal
        q, k, v = (x.detach() for x in self._inputs)

        def forward() -> Tensor:
            with torch.no_grad():
                return attend(q, k, v, causal)

        return forward

    def _backward(self, name: str) -> Staged:
        """The backward pass alone: a forward pass runs before each, and is not timed."""
        import torch

        attend, causal = self._field[name], self._shape.causal
        return Staged(
            before=lambda: attend(*self._inputs, causal),
            work=lambda o: torch.autograd.grad(o, self._inputs, self._do),
        )

    def _both(self, name: str) -> Callable[[], Any]:
        import torch

        attend, causal = self._field[name], self._shape.causal
        return lambda: torch.autograd.grad(attend(*self._inputs, causal), self._inputs, self._do)


def show(result: dict[str, Any]) -> str:
    """TFLOP/s, means, errors, who did not take part and why, the goals, and where it was measured."""
    from ._attention_text import text

    return f"{text(result)}\n\n{provenance(result)}"


def pictures(result: dict[str, Any]) -> dict[str, Picture]:
    """TFLOP/s of every contender as bars: a picture for each pass, type and head size, by file name."""
    from iocourse.explore import bench_bars

    kinds = dict.fromkeys((row["pass"], row["dtype"], row["d"]) for row in result["rows"])
    return {
        f"{pass_.replace('+', '_and_')}_{dtype}_d{d}": bench_bars(result, pass_=pass_, d=d, dtype=dtype)
        for pass_, dtype, d in kinds
    }
