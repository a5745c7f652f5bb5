"""A subject that times kernels on a GPU says who meets at which shapes; here that is run, kept and shown."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iocourse.console import steps
from iocourse.data.recorded import kernels_code
from iocourse.doctor.circumstances import circumstances
from tools.bench import Row
from tools.bench.gpu.contenders import FIRST, Contender
from tools.bench.gpu.judging import PASSES, Goal, Layout, compared
from tools.bench.gpu.place import Place, cuda_place
from tools.bench.gpu.problem import Problem
from tools.bench.gpu.text import text

Keep = Callable[[Row], None]  # of a record, whole or as far as it has come


@dataclass(frozen=True)
class Bench:
    """One subject. Shapes are named tuples with a `dtype`, as JSON can hold them."""

    name: str
    shapes: Callable[[bool], Sequence[Any]]  # every problem of a run, or the few of a quick one
    contenders: Callable[[Place], Mapping[str, Contender]]  # who takes part there, by name, ours first
    problem: Callable[[Any, Place, int], Problem]  # draws one from a shape, a place and a seed
    layout: Layout  # how rows are compared and shown
    goals: Sequence[Goal]  # what is judged
    passes: Sequence[str] = PASSES  # what is timed
    only_ours: Callable[[Any], bool] = lambda shape: False  # whether nobody else is timed at a shape
    # What else the record says, measured or known before anything is timed.
    facts: Callable[[Place, Sequence[Any]], Row] = lambda place, asked: {}
    more: Callable[[Row], Row] = dict  # makes of a record with ratios what it says before it is judged
    told: Callable[[Row], str] = lambda record: ""  # text above the goals

    def run(self, quick: bool, keep: Keep | None = None) -> Row:
        """Time every contender at every shape; `quick`: at few shapes, and no goal is judged.

        Raises Refused where there is no GPU, or kernels are interpreted. `keep` takes the record after each
        shape, so that a run that is cut off leaves its shapes.
        """
        place = cuda_place(self.name)
        return self.measured(self.shapes(quick), self.contenders(place), place, quick=quick, keep=keep)

    def measured(
        self, asked: Sequence[Any], field: Mapping[str, Contender], place: Place, *, quick: bool = False,
        keep: Keep | None = None,
    ) -> Row:  # fmt: skip
        """The record: rows, errors, means and goals of every shape asked for, on this place."""
        from tools.bench.gpu.trial import tried  # which needs torch

        seed, started = random.SystemRandom().randrange(2**31), time.perf_counter()
        facts = {"quick": quick, "subject": self.name, **circumstances("torch", "triton")}
        facts |= {
            "kernels_code": kernels_code(),
            "device": place.facts(),
            "seed": seed,
            "contenders": list(field),
        } | self.facts(place, asked)
        rows, errors = list[Row](), list[Row]()

        def record(done: int) -> Row:
            came = {"seconds": round(time.perf_counter() - started), "rows": rows, "errors": errors}
            counts = {"shapes": {"asked": len(asked), "done": done}}
            return compared(facts | came | counts, self.layout, self.goals, self.more)

        for done, shape in enumerate(steps(asked, "shapes"), 1):
            place.tidy()
            first = {name: one for name, one in field.items() if name in FIRST}
            some = first if self.only_ours(shape) else field
            found = tried(shape, self.problem, some, place, self.passes, seed)
            rows += found[0]
            errors += found[1]
            if keep:
                keep(record(done))
        return record(len(asked))

    def show(self, result: Row) -> str:
        """Figures, means, errors, who did not take part and why, the goals, and where it was measured."""
        return text(result, self.layout, self.told(result))
