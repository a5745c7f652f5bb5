"""Another command of iocourse, with the tiles that a run of `bench tune` chose, as if they were shipped.

python -m iocourse.bench.visit.tuned tune.json bench attention --json again.json
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from iocourse.bench import Row


def take(record: Row) -> None:
    """Let the record's faster tiles be the measured ones of this process."""
    from iocourse.gpu.measured import measured, tiles_of

    measured().update(tiles_of(record))


def main(arguments: Sequence[str]) -> None:
    """Take the tiles of the record that is the first argument, and run the rest as `python -m iocourse`."""
    take(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    sys.argv[1:] = arguments[1:]
    runpy.run_module("iocourse", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
