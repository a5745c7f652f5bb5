"""Bits from run to run: results with a fixed order of every sum are computed several times and compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from iocourse.gpu.roofline import PASSES
from tools.bench import Row
from tools.bench.contest import DEFAULT, LAST_MERGES, SPLIT_KV, TWO_PASS, with_warnings, work_of
from tools.bench.contests import CONTESTS

RUNS = 20


class Promise(NamedTuple):
    """Results that must have equal bits in every run: a step, a shape of it, an implementation and a pass."""

    step: str
    shape: Any
    contender: str
    pass_: str

    @property
    def facts(self) -> Row:
        """The entries of its row that identify it."""
        return {"step": self.step, **self.shape._asdict(), "contender": self.contender, "pass": self.pass_}


def promises() -> list[Promise]:
    """Return the gradients with `deterministic=True` of every kind of mask, materialised gradients, and both
    ways of decoding.
    """
    gradients, forward = PASSES[2], PASSES[0]
    two_pass = CONTESTS["two-pass"].shapes(False)
    kinds = dict.fromkeys((one.pairs, one.d) for one in two_pass)
    first = [next(one for one in two_pass if (one.pairs, one.d) == kind) for kind in kinds]
    dense = [one for one in CONTESTS["attention"].shapes(False) if one.N == 1024]
    # Both steps have one of the shapes.
    decode = dict.fromkeys((*CONTESTS["merging"].shapes(True), *CONTESTS["decode"].shapes(True)))
    return [
        *(Promise("attention", shape, TWO_PASS, gradients) for shape in dense),
        *(Promise("two-pass", shape, TWO_PASS, gradients) for shape in first),
        *(Promise("d-256", shape, DEFAULT, gradients) for shape in CONTESTS["d-256"].shapes(True)),
        *(Promise("decode", shape, name, forward) for shape in decode for name in (SPLIT_KV, LAST_MERGES)),
    ]


def kept(promise: Promise, place: Any, seed: int) -> Iterator[Row]:
    """Run a promise RUNS times. Yields {} after each run, and then its row: with "refused" if the results
    differ or the work raised an exception.
    """
    import torch

    contest = CONTESTS[promise.step]
    problem = contest.problem(promise.shape, place.device, seed)
    attend = contest.contenders(place)[promise.contender]
    work: Any = work_of(attend, problem.given_to(promise.contender), promise.pass_)
    first, differ, row = None, 0, promise.facts | {"runs": RUNS}
    for _ in range(RUNS):
        # Other numbers in the memory that the next results reuse, in case one of them is not written.
        junk = [torch.full_like(problem.given.do, float("nan")) for _ in range(4)]
        del junk
        found, reason = with_warnings(work)
        if reason:
            yield row | {"refused": reason}
            return
        results = found if isinstance(found, tuple) else (found,)
        first = results if first is None else first
        differ += not all(map(torch.equal, results, first))
        yield {}
    yield row | ({"refused": f"{differ} of {RUNS} runs differ from the first"} if differ else {})
