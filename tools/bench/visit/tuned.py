"""Another command of iocourse, with the tiles that a run of `bench tune` chose, as if they were shipped.

python -m tools.bench.visit.tuned tune.json bench attention --json again.json
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from iocourse.gpu import measured
from iocourse.refusal import read_json


def take(record: Any) -> None:
    """Let the record's faster tiles be the measured ones of this process."""
    measured.measured().update(measured.tiles_of(record))


def main(arguments: Sequence[str]) -> None:
    """Take the tiles of the record that is the first argument, and run the rest as `python -m iocourse`."""
    take(read_json(Path(arguments[0])))
    sys.argv[1:] = arguments[1:]
    runpy.run_module("iocourse", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
