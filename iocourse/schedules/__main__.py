"""Run one schedule on a small random input and print its traffic, its errors and the lower bound.

`python -m iocourse.schedules flash2` prints the first line of its docstring, and then the same report as
`iocourse count flash2 --N 128 --d 8 --M 512 --run`. Without a name it prints all names.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from iocourse.errors import UsageError
from iocourse.masks import causal
from iocourse.schedules import REGISTRY, Schedule, get
from iocourse.schedules.report import CountRequest, count_report, text


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 1 if the run does not move the words of the closed form."""
    parser = argparse.ArgumentParser(
        prog="python -m iocourse.schedules",
        description="Run one schedule on a small random input.",
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the schedule; without it, list all")
    parser.add_argument("--N", type=int, default=128, help="sequence length (default: 128)")
    parser.add_argument("--d", type=int, default=8, help="head dimension (default: 8)")
    parser.add_argument("--M", type=int, default=512, help="words of fast memory (default: 512)")
    given = parser.parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # docstrings have ᵀ, which cp1252 lacks
    if given.name is None:
        print("\n".join(REGISTRY))
        return 0
    try:
        request = _request(get(given.name), given.N, given.d, given.M)
        record, form = count_report(request, run_it=True)
    except (ValueError, UsageError) as error:  # an unknown name, a size below 1, an M that is too small
        parser.exit(2, f"{parser.prog}: {error}\n")
    print((request.schedule.__doc__ or "").partition("\n")[0], text(record, form), sep="\n")
    return int("difference" in record)


def _request(schedule: Schedule, N: int, d: int, M: int) -> CountRequest:
    """Return the request with the best tiles, and if needed a causal mask, a window of 17 keys, degree 2."""
    settings: dict[str, Any] = {}
    for name in schedule.needs:
        settings[name] = causal(N, 8) if name == "mask" else {"w": 8, "g": 2}[name]
    return CountRequest(
        schedule=schedule,
        N=N,
        d=d,
        M=M,
        settings=settings,
        tiles=schedule.tiles(N, d, M, **settings),
        note=schedule.note(N, d, M, **settings),
        mask_name="causal" if "mask" in settings else "",
    )


if __name__ == "__main__":
    try:
        code = main()
        print(end="", flush=True)  # raises BrokenPipeError here rather than at exit
    except BrokenPipeError:  # the reader, such as head, closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    raise SystemExit(code)
