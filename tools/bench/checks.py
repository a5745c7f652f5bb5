"""All checks of compiled kernels, `tests/kernels/on_gpu.py`, in several processes, because most of their time
is compilation.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from tools.bench import Row
from tools.bench.device import environment
from tools.bench.processes import printed_by

PROCESSES = 14  # of 16 cores
HELD, WRONG = "holds", "WRONG, "
_LINE = re.compile(rf"(?P<check>.*): (?:{HELD}|{WRONG}(?P<why>.*))")
_COUNT = re.compile(r"(?P<count>\d+) checks")


def script(root: Path) -> Path:
    """Return the script of a checkout that makes the checks."""
    return root / "tests" / "kernels" / "on_gpu.py"


def checked(
    file: Path, done: Collection[str], processes: int = PROCESSES
) -> Iterator[tuple[int, Row | None]]:  # fmt: skip
    """Yield the number of all checks (0 while it is unknown), and the row of each check, with "refused" if it
    failed; or None if a second has passed without one. Checks named in `done` are left out.
    """
    skip = [option for name in sorted(done) for option in ("--skip", name)]
    commands = {
        f"{k}/{processes}": [sys.executable, str(file), "--shard", f"{k}/{processes}", *skip]
        for k in range(1, processes + 1)
    }
    asked = 0
    for one in printed_by(commands, environment(file.parent, interpret=False), processes):
        if one is None:
            yield asked, None
        elif one.code is not None:
            # 1 is the exit code if a check failed, which has a row.
            if one.code not in (0, 1) or (one.code == 1 and one.line):
                why = f"exit code {one.code}; {one.line or 'no error was printed'}"
                yield asked, {"check": f"shard {one.name}", "refused": why}
        elif found := _COUNT.fullmatch(one.line):
            asked = int(found["count"])
        elif found := _LINE.fullmatch(one.line):
            row: Row = {"check": found["check"]}
            yield asked, row | ({"refused": found["why"]} if found["why"] is not None else {})
