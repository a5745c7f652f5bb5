"""Another command of iocourse, with the tiles that a run of `bench tune` chose in the place of the shipped.

python -m iocourse.bench.visit.tuned tune.json bench attention --json again.json
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from iocourse.bench import Row


def faster(record: Row) -> list[Row]:
    """What tune found for each kernel for which it chose another tile than the shipped one."""
    return [one for one in record["kernels"] if list(one["chosen"]) != list(one["shipped"])]


def take(record: Row) -> None:
    """Put the chosen tiles into the table of this process."""
    from iocourse.kernels.host.tiles import TABLE, Tile

    for one in faster(record):
        key = record["arch"], one["d"], 2
        TABLE[key] = TABLE[key]._replace(**{one["kernel"]: Tile(*one["chosen"])})


def main(arguments: Sequence[str]) -> None:
    """Take the tiles of the record that is the first argument, and run the rest as `python -m iocourse`."""
    take(json.loads(Path(arguments[0]).read_text(encoding="utf-8")))
    sys.argv[1:] = arguments[1:]
    runpy.run_module("iocourse", run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
