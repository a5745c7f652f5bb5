"""The counts of bound, listed and unbound numbers: `python -m tools.build.rules.number_counts`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tools.build.percent_format import parse
from tools.build.rules import number_check, number_pages

ROOT = Path(__file__).parents[3]


def tallies(root: Path) -> dict[str, Counter[str]]:
    """Return for each lesson, page and module how many numbers and claims are bound, listed and unbound."""
    sources = sorted((root / "solutions").glob("[0-9]*.py"))
    lessons = {path: parse(path.read_text(encoding="utf-8"), path) for path in sources}
    labels = number_check.course_labels(list(lessons.values()))
    found: dict[str, Counter[str]] = {}
    for path, cells in lessons.items():
        solved = json.loads(path.with_suffix(".ipynb").read_text(encoding="utf-8"))
        name = path.relative_to(root).as_posix()
        hints = number_pages.hint_passages(path.read_text(encoding="utf-8"), path)
        found[name] = number_check.check_lesson(cells, solved, labels, hints=hints).tally
    for name, text in number_pages.checked_texts(root, labels):
        if text.tally:
            found[name] = text.tally
    return found


if __name__ == "__main__":
    print(number_pages.table(tallies(ROOT)))
