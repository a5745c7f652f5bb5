"""Store scores in `docs/mutants.json` for the instructor's guide."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from iocourse.course.exercise import number_of
from iocourse.files import atomic_write
from tools.build.instructor_guide import RECORD, read_record

from .equivalent_mutants import why_open
from .report import Score


def record_scores(root: Path, found: Sequence[Score], sample: int, run: str) -> None:
    """Store the scores of a run.

    Args:
        root: the checkout.
        found: one score per exercise.
        sample: K if one mutant in K was tried.
        run: date and versions of the run.
    """
    _merge(
        root, {score.exercise: {"by machine": _counts(score) | {"of": sample, "run": run}} for score in found}
    )


def _counts(score: Score) -> dict[str, Any]:
    return {
        "mutants": score.mutants,
        "refused": score.killed,
        "no mistakes": score.by_rule + score.listed,
        "open": len(score.open),
        "accepted": len(score.left),
        "known to pass": sorted({why_open(verdict.mutant) for verdict in score.open}),
    }


def _merge(root: Path, new: Mapping[str, Mapping[str, Any]]) -> None:
    record = read_record(root)
    for name, facts in new.items():
        record[name] = record.get(name, {}) | dict(facts)
    ordered = {name: record[name] for name in sorted(record, key=_in_order)}
    atomic_write(root / RECORD, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def _in_order(exercise_id: str) -> tuple[int, str]:
    return number_of(exercise_id), exercise_id
