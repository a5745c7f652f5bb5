"""What is recorded for the guide, in `docs/mutants.json`: scores, and what refuses each common error.

`iocourse mutants --record` writes the scores of the exercises it ran, `iocourse mutants --remarks` what
refuses the errors that the remarks name. What was not run stays as it was recorded before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....refusal import Refused, write_whole
from ...exercise import lesson_of
from ..mutation.equivalents import why_open
from ..mutation.report import Score

FILE = Path("docs") / "mutants.json"
Record = dict[str, dict[str, Any]]


def read_record(root: Path) -> Record:
    """What is recorded, by exercise; nothing where there is no file. Raises Refused where it is broken."""
    path = root / FILE
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is not JSON: {error}") from None
    return dict(record)


def record_scores(root: Path, found: Sequence[Score], sample: int, run: str) -> None:
    """Keep the scores of a run.

    Args:
        root: the checkout.
        found: a score an exercise.
        sample: one mutant in so many was tried.
        run: when, and with what.
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


def record_refusals(root: Path, found: Mapping[str, Mapping[str, Mapping[str, str]]], run: str) -> None:
    """Keep what refuses the common errors of these exercises."""
    _merge(root, {name: {"by hand": {"errors": errors, "run": run}} for name, errors in found.items()})


def _merge(root: Path, new: Mapping[str, Mapping[str, Any]]) -> None:
    record = read_record(root)
    for name, facts in new.items():
        record[name] = record.get(name, {}) | dict(facts)
    ordered = {name: record[name] for name in sorted(record, key=_in_order)}
    write_whole(root / FILE, json.dumps(ordered, indent=1, ensure_ascii=False) + "\n")


def _in_order(exercise_id: str) -> tuple[int, str]:
    return lesson_of(exercise_id), exercise_id
