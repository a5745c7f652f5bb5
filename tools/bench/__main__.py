"""`python -m tools.bench WHAT`: measure one subject and print a table."""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from iocourse.cli import Parser
from iocourse.errors import UsageError
from iocourse.files import write_json
from tools import run_main
from tools.bench import (
    Subject,
    bound_ratios,
    depth,
    emulator,
    file_to_copy,
    gpu,
    hot_loops,
    lowrank,
    notebooks,
    pebbling,
    resources,
    steps,
    tune_compiled,
    tuning_rules,
    widget_latency,
)
from tools.build.notebook_execution import ExecutionFailed

_MODULES: tuple[Any, ...] = (
    depth, emulator, widget_latency, file_to_copy, gpu, hot_loops, lowrank, notebooks, pebbling, bound_ratios,
    resources, tune_compiled, tuning_rules,
)  # fmt: skip
SUBJECTS: dict[str, Subject] = {module.NAME: module for module in _MODULES}


def parser() -> Parser:
    """Return the command's parser, whose help lists the subjects after the options."""
    made = Parser(
        prog="python -m tools.bench",
        description="Measure one subject and print a table.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_each_subject(),
        allow_abbrev=False,
    )
    made.add_argument(
        "what", metavar="WHAT", nargs="?", default="", help="the subject: one of those listed below"
    )
    made.add_argument("--quick", action="store_true", help="as few repeats as possible")
    made.add_argument(
        "--json",
        metavar="FILE",
        type=Path,
        help="also write the numbers to FILE; gpu does so after every row, to build/gpu.json by default, and "
        "continues the run whose record FILE holds",
    )
    made.add_argument(
        "--pictures", metavar="FOLDER", type=Path, help="for lowrank: also draw the numbers, as PNG files"
    )
    made.add_argument(
        "--threads", metavar="T", type=int, help="for lowrank: threads of all implementations (1)"
    )
    made.add_argument(
        "--only", metavar="PART", action="append",
        help="for gpu: run only this step, listed below; for depth: measure only this section and keep the "
        "others of the shipped record; repeatable",
    )  # fmt: skip
    group = made.add_argument_group("gpu")
    group.add_argument("--minutes", metavar="M", type=float, help="maximum time of the whole run (15)")
    group.add_argument(
        "--tutorial", metavar="FILE", type=Path, help="also time this copy of Triton's tutorial 06"
    )
    group.add_argument(
        "--install", metavar="FILE", type=Path,
        help="copy the records of an earlier run into iocourse/data/bench and do nothing else",
    )  # fmt: skip
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0 done, 1 a subject failed, 2 bad arguments."""
    return run_main(parser(), bench, argv)


def bench(arguments: argparse.Namespace) -> int:
    """Measure, print the table, and write the files that the options name. Returns the exit code."""
    known = SUBJECTS
    if arguments.what not in known:
        came = f"WHAT {arguments.what!r} is unknown" if arguments.what else "WHAT is missing"
        raise UsageError(
            f"{came}. Use one of: {', '.join(known)}. python -m tools.bench --help describes them"
        )
    if arguments.pictures:
        _only_for("--pictures", arguments.what, [n for n, one in known.items() if hasattr(one, "pictures")])
    try:
        options = _bench_options(arguments, known)
        result = known[arguments.what].run(arguments.quick, **options)
    except ExecutionFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(known[arguments.what].show(result))
    if arguments.json and "file" not in options:
        write_json(arguments.json, result)
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
        for name, picture in known[arguments.what].pictures(result).items():  # type: ignore[attr-defined]
            (arguments.pictures / f"{name}.png").write_bytes(picture.to_png())
    return int(result.get("exit", 0))


def _each_subject() -> str:
    """Return the lists of subjects and of gpu's questions for the help text, wrapped at 100 columns."""
    subjects = [f"  {name:12} {one.HELP}" for name, one in SUBJECTS.items()]
    questions = [
        f"  {', '.join(one.steps) or '-'}: {one.asks}{f' No step: {one.reason}.' if one.reason else ''}"
        for one in gpu.QUESTIONS
    ]
    left = f"  {', '.join(steps.LEFT)}: comparisons and tiles measured before, in the time that is left"
    return "\n".join(
        fill(line, 100, subsequent_indent=" " * 15)
        for line in ("subjects:", *subjects, "steps of gpu, in this order (--only):", *questions, left)
    )


def _bench_options(arguments: argparse.Namespace, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that only some subjects take, those whose `run` has a parameter of that name.

    Raises UsageError if the subject does not take one of them.
    """
    options = ("threads", "minutes", "tutorial", "only", "install")
    given = {name: getattr(arguments, name) for name in options if getattr(arguments, name) is not None}
    for option in given:
        _only_for(f"--{option}", arguments.what, _takers(known, option))
    if arguments.json and arguments.what in _takers(known, "file"):
        given["file"] = arguments.json
    return given


def _takers(known: Mapping[str, Any], option: str) -> list[str]:
    return [name for name, one in known.items() if option in inspect.signature(one.run).parameters]


def _only_for(option: str, what: str, takers: Sequence[str]) -> None:
    if what not in takers:
        raise UsageError(f"{what} does not take {option}. Use it with: {', '.join(takers)}")


if __name__ == "__main__":
    sys.exit(main())
