"""The score of each exercise: how many mutants its check refuses of those that are mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from iocourse.console import table
from tests.mutation.equivalent_mutants import why_by_rule, why_equivalent, why_open
from tests.mutation.mutant_process import Verdict
from tools.build.instructor_guide import percent


@dataclass
class Score:
    """Counts of the mutants of one exercise by verdict.

    Attributes:
        exercise: its id.
        killed: mutants that every seed rejected.
        by_rule: mutants that a rule recognises as equivalent.
        listed: mutants that are listed as equivalent.
        open: accepted mistakes (by all seeds or by some) that are listed in OPEN.
        left: accepted mistakes (by all seeds or by some) that are not listed.
        stale: mutants that are listed as accepted but rejected.
    """

    exercise: str
    killed: int = 0
    by_rule: int = 0
    listed: int = 0
    open: list[Verdict] = field(default_factory=list)
    left: list[Verdict] = field(default_factory=list)
    stale: list[Verdict] = field(default_factory=list)

    @property
    def mistakes(self) -> int:
        """Number of mutants that a check must reject."""
        return self.killed + len(self.open) + len(self.left)

    @property
    def mutants(self) -> int:
        """Number of all mutants that were tried."""
        return self.mistakes + self.by_rule + self.listed

    @property
    def holds(self) -> bool:
        """True if every mistake was rejected and no listed entry is out of date."""
        return not (self.open or self.left or self.stale)

    def add(self, verdict: Verdict) -> None:
        """Count one verdict."""
        mutant = verdict.mutant
        if verdict.killed:
            self.killed += 1
            if why_open(mutant) or (why_equivalent(mutant) and not why_by_rule(mutant)):
                self.stale.append(verdict)
        elif why_open(mutant):
            self.open.append(verdict)
        elif why_by_rule(mutant) and not verdict.by_chance:
            self.by_rule += 1
        elif why_equivalent(mutant) and not verdict.by_chance:
            self.listed += 1
        else:
            self.left.append(verdict)


class _Row(NamedTuple):
    exercise: str
    mutants: int = 0
    refused: int = 0
    by_rule: int = 0
    listed: int = 0
    open: int = 0
    left: int = 0


def _row(score: Score) -> _Row:
    counts = (score.mutants, score.killed, score.by_rule, score.listed, len(score.open), len(score.left))
    return _Row(score.exercise, *counts)


def scores(verdicts: Iterable[Verdict], exercises: Sequence[str]) -> list[Score]:
    """A score for each of the exercises."""
    found = {exercise: Score(exercise) for exercise in exercises}
    for verdict in verdicts:
        found[verdict.mutant.exercise].add(verdict)
    return list(found.values())


def summary(found: Sequence[Score]) -> str:
    """Format the table of scores, followed by each mutant that is open, left or stale."""
    total = _Row("all", *(sum(column) for column in zip(*(_row(s)[1:] for s in found), strict=True)))
    head = ["exercise", "mutants", "refused", "no mistake: by rule", "listed", "open", "accepted", "score"]
    shown = [
        [*row, percent(row.refused, row.refused + row.open + row.left)] for row in (*map(_row, found), total)
    ]
    lines = [table([head, *shown]), ""]
    lines += [f"no mistakes: {percent(total.by_rule + total.listed, total.mutants)} of all mutants"]
    for title, kind in (("open", "open"), ("accepted", "left"), ("listed, yet refused", "stale")):
        lines += [f"\n{title}: {_told(v)}" for score in found for v in getattr(score, kind)]
    return "\n".join(lines)


def _told(verdict: Verdict) -> str:
    mutant = verdict.mutant
    chance = f", refused after {verdict.accepted} of its seeds" if verdict.by_chance else ""
    why = why_open(mutant)
    lines = [f"{mutant.exercise}, {mutant.operator}{chance}" + (f": {why}" if why else "")]
    lines += [f"  - {line}" for line in mutant.line.splitlines()]
    lines += [f"  + {line}" for line in mutant.after.splitlines()]
    return "\n".join(lines)


def as_json(found: Sequence[Score]) -> dict[str, Any]:
    """The scores as a dictionary that can be written as JSON."""
    return {
        score.exercise: {
            "mutants": score.mutants,
            "refused": score.killed,
            "by rule": score.by_rule,
            "listed": score.listed,
            **{kind: [_data(v) for v in getattr(score, kind)] for kind in ("open", "left", "stale")},
        }
        for score in found
    }


def _data(verdict: Verdict) -> dict[str, Any]:
    mutant = verdict.mutant
    return {
        "operator": mutant.operator,
        "before": mutant.line,
        "after": mutant.after,
        "accepted": verdict.accepted,
        "refused in": verdict.killed_in,
    }
