"""Every contender at one problem: first its values are held against float64, then its time is taken.

What is wrong is not timed. A contender that raises keeps its reason in place of a time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from iocourse.bench import Row, circumstances
from iocourse.console import steps
from iocourse.gpu.timing import Staged, Timing, Work, side_by_side

from .contenders import DETERMINISTIC, OURS_SPECIALISED, Contender, reason_of, with_warnings
from .judging import PASSES
from .place import Place
from .values import RESULTS, WRONG, errors

if TYPE_CHECKING:
    from torch import Tensor


class Given(NamedTuple):
    """What one contender gets.

    Attributes:
        inputs: q, k, v, in the layout it takes, to be differentiated.
        do: gradient of O.
        part: cuts a result or gradient to the (rows, d) that the reference is about.
    """

    inputs: tuple[Tensor, Tensor, Tensor]
    do: Tensor
    part: Callable[[Tensor], Tensor]


class Problem(Protocol):
    """One problem, drawn."""

    seen: Any  # what a query sees, as contenders are told

    def given(self, contender: str) -> Given:
        """The inputs of one contender."""

    def reference(self) -> Mapping[str, Tensor]:
        """O, dQ, dK, dV of one part in float64; O alone where only the forward pass is timed."""

    def figures(self, pass_: str, ms: float) -> Row:
        """What a time means: a row's rates."""


class Shape(Protocol):
    """What is drawn, as JSON can hold it: `dtype` and whatever else tells two problems apart."""

    @property
    def dtype(self) -> str:
        """float16 or bfloat16."""

    def _asdict(self) -> Row:
        """All of it by name."""


S = TypeVar("S", bound=Shape)
Keep = Callable[[Row], None]  # of a record, whole or as far as it has come


def normal(sizes: tuple[int, ...], count: int, dtype: str, place: Place, seed: int) -> list[Tensor]:
    """So many normal tensors of a type from the seed, on the place's device."""
    import torch

    source = torch.Generator(place.device).manual_seed(seed)
    options = {"generator": source, "device": place.device, "dtype": getattr(torch, dtype)}
    return [torch.randn(sizes, **options) for _ in range(count)]


def times_of(
    subject: str, asked: Sequence[S], problem: Callable[[S, Place, int], Problem],
    field: Mapping[str, Contender], place: Place, passes: Sequence[str] = PASSES,
    judge: Callable[[Row], Row] = dict, keep: Keep | None = None,
) -> Row:  # fmt: skip
    """The record of every shape asked for, on this place.

    Args:
        subject: its name.
        asked: the shapes.
        problem: draws one from a shape, a place and a seed.
        field: who takes part, by name.
        place: where this runs.
        passes: what is timed.
        judge: makes of the bare times what a record says.
        keep: takes the record as it is after each shape, so that a run that is cut off leaves its shapes.
    """
    seed, started = random.SystemRandom().randrange(2**31), time.perf_counter()
    facts = circumstances("torch", "triton") | {"device": place.facts()}
    rows: list[Row] = []
    off: list[Row] = []
    done = 0

    def record() -> Row:
        return judge({
            "subject": subject,
            **facts,
            "seed": seed,
            "seconds": round(time.perf_counter() - started),
            "contenders": list(field),
            "shapes": {"asked": len(asked), "done": done},
            "rows": rows,
            "errors": off,
        })  # fmt: skip

    for shape in steps(asked, "shapes"):
        place.tidy()
        found = _tried(shape, problem, field, place, passes, seed)
        rows += found[0]
        off += found[1]
        done += 1
        if keep:
            keep(record())
    return record()


def _tried(
    shape: S, problem: Callable[[S, Place, int], Problem], field: Mapping[str, Contender], place: Place,
    passes: Sequence[str], seed: int,
) -> tuple[list[Row], list[Row]]:  # fmt: skip
    """Rows and errors of one shape; its tensors are gone when this returns."""
    import torch

    try:
        one = Trial(shape, problem(shape, place, seed), field, place, passes)
        found = one.checked()
    except torch.cuda.OutOfMemoryError as error:
        who = (dict(zip(("contender", "pass"), pair, strict=True)) for pair in timed_by(field, passes))
        return [shape._asdict() | pair | {"refused": reason_of(error)} for pair in who], []
    return one.timed(), found


def timed_by(field: Mapping[str, Contender], passes: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Who is timed in which pass. Forward nothing could be in another order, and only there do warps
    specialise: where ours do nothing else, ours once.
    """
    same = (DETERMINISTIC, "forward"), (OURS_SPECIALISED, "backward")
    yield from ((name, p) for p in passes for name in field if (name, p) not in same)


class Trial:
    """Every contender at one problem."""

    def __init__(
        self, shape: Shape, problem: Problem, field: Mapping[str, Contender], place: Place,
        passes: Sequence[str],
    ) -> None:  # fmt: skip
        """Nothing is computed yet."""
        self._shape, self._problem, self._field, self._place = shape, problem, field, place
        self._passes = tuple(passes)
        self._refused: dict[tuple[str, str], str] = {}

    # --- values ---------------------------------------------------------------------------------------

    def checked(self) -> list[Row]:
        """The errors of each contender in one part; who is wrong is refused."""
        reference = self._problem.reference()
        return [row for name in self._field for row in self._check(name, reference)]

    def _check(self, name: str, reference: Mapping[str, Tensor]) -> Iterator[Row]:
        import torch

        forward = self._accepted(name, self._passes, self._forward(name), lambda o: {"O": o}, reference)
        if not forward:
            return
        found, worst = forward
        row = self._facts(name) | found | {"worst_block": worst}
        later = tuple(p for p in self._passes if p != "forward")
        both = self._both(name)
        gradients = later and self._accepted(
            name, later, both, lambda g: dict(zip(RESULTS[1:], g, strict=True)), reference
        )
        if gradients:
            more, worse = gradients
            row |= more | {"worst_block": max(worst, worse)}
            pair = both(), both()
            row["bit_equal"] = all(torch.equal(a, b) for a, b in zip(*pair, strict=True))
        yield row

    def _accepted(
        self, name: str, passes: Sequence[str], work: Callable[[], Any],
        named: Callable[[Any], dict[str, Tensor]], reference: Mapping[str, Tensor],
    ) -> tuple[dict[str, float], float] | None:  # fmt: skip
        """The errors of what `work` gives; None, and the passes refused, where it raises or is wrong."""
        given = self._problem.given(name)
        _poison(given.do)
        found, reason = with_warnings(work)
        if not reason:
            each, worst = errors({key: given.part(x) for key, x in named(found).items()}, reference)
            if worst <= WRONG[self._shape.dtype]:
                return each, worst
            largest = ", ".join(f"{key} {error:.2g}" for key, error in each.items())
            reason = f"its values are wrong: relative errors {largest}, worst block {worst:.2g}"
        self._refused |= {(name, pass_): reason for pass_ in passes}
        return None

    # --- times ----------------------------------------------------------------------------------------

    def timed(self) -> list[Row]:
        """One row a contender and pass: its time, or why it has none."""
        return [row for pass_ in self._passes for row in self._timed(pass_)]

    def _timed(self, pass_: str) -> list[Row]:
        makers: dict[str, Callable[[str], Callable[[], Any] | Staged]]
        makers = dict(zip(PASSES, (self._forward, self._backward, self._both), strict=True))
        names = [name for name, of in timed_by(self._field, self._passes) if of == pass_]
        works = {name: self._led(makers[pass_](name)) for name in names if (name, pass_) not in self._refused}
        times = side_by_side(works, stopwatch=self._place.stopwatch)
        for name, took in times.items():
            if isinstance(took, Exception):
                self._refused[name, pass_] = reason_of(took)
        return [self._row(name, pass_, times.get(name)) for name in names]

    def _led(self, work: Work) -> Staged:
        """The work with a lead before it: what is timed is the device, and not Python, which queues it."""

        def before() -> Any:
            self._place.lead()
            return work.before() if isinstance(work, Staged) else None

        return Staged(before, work.work if isinstance(work, Staged) else lambda _: work())

    def _row(self, name: str, pass_: str, took: Timing | Exception | None) -> Row:
        row = self._facts(name) | {"pass": pass_}
        if not isinstance(took, Timing):
            return row | {"refused": self._refused[name, pass_]}
        return row | asdict(took) | self._problem.figures(pass_, took.ms)

    def _facts(self, name: str) -> Row:
        return self._shape._asdict() | {"contender": name}

    # --- the three passes ------------------------------------------------------------------------------

    def _forward(self, name: str) -> Callable[[], Tensor]:
        import torch

        attend, seen = self._field[name], self._problem.seen
        q, k, v = (x.detach() for x in self._problem.given(name).inputs)

        def forward() -> Tensor:
            with torch.no_grad():
                return attend(q, k, v, seen)

        return forward

    def _backward(self, name: str) -> Staged:
        """The backward pass alone: a forward pass runs before each, and is not timed."""
        import torch

        attend, seen, given = self._field[name], self._problem.seen, self._problem.given(name)
        return Staged(
            before=lambda: attend(*given.inputs, seen),
            work=lambda o: torch.autograd.grad(o, given.inputs, given.do),
        )

    def _both(self, name: str) -> Callable[[], Any]:
        import torch

        attend, seen, given = self._field[name], self._problem.seen, self._problem.given(name)
        return lambda: torch.autograd.grad(attend(*given.inputs, seen), given.inputs, given.do)


def _poison(do: Tensor) -> None:
    """Leave NaN in the memory that the next results will get: what is not written shows."""
    import torch

    junk = [torch.full_like(do, float("nan")) for _ in range(6)]
    del junk
