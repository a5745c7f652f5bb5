"""Rule for `iocourse/data/choices.json`: each row has a reason and agrees with its record, and exactly one
row decides each case.
"""

from __future__ import annotations

from pathlib import Path

FILE = Path("iocourse", "data", "choices.json")


def problems(root: Path) -> list[str]:
    """Return one message with the row for each fault of the file; [] if a checkout has no such file."""
    try:
        text = (root / FILE).read_text(encoding="utf-8")
    except OSError:
        return []
    from tools.bench.choices import faults  # needs torch and triton, which other rules do not

    return faults(text)
