"""Every contender at one problem: first its values are held against float64, then its time is taken.

What is wrong is not timed. A contender that raises keeps its reason in place of a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from iocourse.gpu.timing import CudaStopwatch, Staged, Timing, Work, side_by_side
from tools.bench import Row
from tools.bench.gpu.contenders import TWO_PASS, WAYS, Contender, reason_of, with_warnings
from tools.bench.gpu.judging import PASSES
from tools.bench.gpu.place import Place
from tools.bench.gpu.problem import Problem
from tools.bench.gpu.values import RESULTS, WRONG, errors, exact_head

Step = TypeVar("Step", bound=Callable[..., Any])


def tried(
    shape: Any, problem: Callable[[Any, Place, int], Problem], field: Mapping[str, Contender], place: Place,
    passes: Sequence[str], seed: int,
) -> tuple[list[Row], list[Row]]:  # fmt: skip
    """Rows and errors of one shape; its tensors are gone when this returns."""
    try:
        one = Trial(shape, problem(shape, place, seed), field, passes)
        found = list(one.checked())
    except torch.cuda.OutOfMemoryError as error:
        who = ({"pass": pass_, "contender": name} for pass_ in passes for name in timed_in(pass_, field))
        return [shape._asdict() | one | {"refused": reason_of(error)} for one in who], []
    return list(one.timed(place.stopwatch)), found


def timed_in(pass_: str, field: Mapping[str, Contender]) -> list[str]:
    """Return the names to time in a pass. Two-pass and fused have one forward pass, which is timed once."""
    return [name for name in field if (name, pass_) != (TWO_PASS, "forward")]


def work_of(
    attend: Callable[..., Tensor], inputs: Sequence[Tensor], do: Tensor, pass_: str, way: str | None = None
) -> Work:
    """A pass on q, k, v and the gradient of O; before a backward pass alone a forward one runs, untimed. Both
    run within `using(way=True)`, should there be a way.
    """
    alone = pass_ == PASSES[0]
    given = [x.detach().requires_grad_(not alone) for x in inputs]

    @_within(way)
    def forward() -> Tensor:
        with torch.set_grad_enabled(not alone):
            return attend(*given)

    @_within(way)
    def gradients(o: Tensor) -> Any:
        return torch.autograd.grad(o, given, do)

    if alone:
        return forward
    return Staged(forward, gradients) if pass_ == PASSES[1] else lambda: gradients(forward())


def _within(way: str | None) -> Callable[[Step], Step]:
    """A decorator for what runs within `using(way=True)`; None: as it is."""
    if way is None:
        return lambda step: step
    from iocourse.kernels import using

    return using(**{way: True})


def outcomes(works: Mapping[str, Work], stopwatch: CudaStopwatch) -> dict[str, Row]:
    """What a row says of each piece of work: its time, or why it has none."""
    times = side_by_side(works, stopwatch=stopwatch)
    return {
        name: dataclasses.asdict(took) if isinstance(took, Timing) else {"refused": reason_of(took)}
        for name, took in times.items()
    }


@dataclasses.dataclass(frozen=True)
class Trial:
    """Every contender at one problem; `refused` has who takes no part in a pass, and why."""

    shape: Any
    problem: Problem
    field: Mapping[str, Contender]
    passes: Sequence[str]
    refused: dict[tuple[str, str], Row] = dataclasses.field(default_factory=dict)

    def checked(self) -> Iterator[Row]:
        """The errors of each contender in one part, against float64; who is wrong is refused."""
        given, later = self.problem.given, self.passes[1:]
        q, k, v, do = map(given.part, (*given.inputs, given.do))
        reference = exact_head(q, k, v, do, self.problem.pairs)
        for name in self.field:
            row = self._accepted(name, self.passes, RESULTS[:1], reference)
            gradients = row and later and self._accepted(name, later, RESULTS[1:], reference)
            if gradients:
                both: Any = self._work(name, PASSES[-1])
                row |= gradients | {"worst_block": max(row["worst_block"], gradients["worst_block"])}
                row["bit_equal"] = all(map(torch.equal, both(), both()))
            if row:
                yield {**self.shape._asdict(), "contender": name, **row}

    def _accepted(
        self, name: str, passes: Sequence[str], results: Sequence[str], reference: Mapping[str, Tensor]
    ) -> Row:
        """The errors of a contender's results; none, and the passes refused, where it raises or is wrong."""
        given = self.problem.given_to(name)
        # NaN in the memory that the next results will get: what is not written shows.
        junk = [torch.full_like(given.do, float("nan")) for _ in range(6)]
        del junk
        work: Any = self._work(name, PASSES[0] if len(results) == 1 else PASSES[-1])
        found, reason = with_warnings(work)
        if not reason:
            named = zip(results, found if isinstance(found, tuple) else [found], strict=True)
            each, worst = errors({key: given.part(x) for key, x in named}, reference)
            if worst <= WRONG[self.shape.dtype]:
                return {**each, "worst_block": worst}
            largest = ", ".join(f"{key} {error:.2g}" for key, error in each.items())
            reason = f"its values are wrong: relative errors {largest}, worst block {worst:.2g}"
        self.refused.update({(name, pass_): {"refused": reason} for pass_ in passes})
        return {}

    def timed(self, stopwatch: CudaStopwatch) -> Iterator[Row]:
        """One row a contender and pass: its time, or why it has none."""
        for pass_ in self.passes:
            names = timed_in(pass_, self.field)
            works = {name: self._work(name, pass_) for name in names if (name, pass_) not in self.refused}
            found = outcomes(works, stopwatch)
            for name in names:
                about = {**self.shape._asdict(), "contender": name, "pass": pass_}
                row = about | (found.get(name) or self.refused[name, pass_])
                yield row if "refused" in row else row | self.problem.figures(pass_, row["ms"])

    def _work(self, name: str, pass_: str) -> Work:
        given = self.problem.given_to(name)
        attend = self.field[name]
        return work_of(
            lambda q, k, v: attend(q, k, v, given.seen), given.inputs, given.do, pass_, WAYS.get(name)
        )
