"""Commands of the course: `iocourse lab`, `progress`, `gpu` and `grade`."""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

from ..cli import Commands, Parser, add_command
from ..errors import UsageError
from . import progress
from .project_paths import exercise_ids, find_course


def add_parsers(commands: Commands[Parser], command: str) -> None:
    """Add the commands; the options of `grade` only if that is `command`."""
    lab = add_command(
        commands, "lab", _lab, "open the course in JupyterLab; other options are passed to JupyterLab"
    )
    lab.set_defaults(passes_options_on=True)
    lab.add_argument("--no-browser", action="store_true", help="print the address; do not open a browser")
    lab.add_argument(
        "--update",
        metavar="LESSON",
        nargs="?",
        const="",
        help="update your copies of the lessons, or of this one, and keep your answers; open nothing",
    )
    _add_progress(commands)
    _add_gpu(commands)
    if command == "grade":
        importlib.import_module(f"{__package__}.grade").add_parser(commands)
    else:
        commands.add_parser("grade", help="grade a folder of submissions to one lesson")


def _add_progress(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands, "progress", _progress, "show the solved exercises and the file that records them"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--export", metavar="FILE", type=Path, help="write the progress to FILE")
    one.add_argument("--import", metavar="FILE", type=Path, dest="merge", help="merge FILE into the progress")
    one.add_argument("--reset", action="store_true", help="delete the progress; the old file is kept")
    one.add_argument(
        "--cohort", metavar="FOLDER", type=Path, help="count a class's predictions, from exported files"
    )
    parser.add_argument(
        "--only",
        metavar="QUESTION",
        action="append",
        default=[],
        help="with --cohort: this question or lesson, such as 4.5 or 04; repeatable",
    )
    parser.add_argument(
        "--blind", action="store_true", help="with --cohort: hide the correct results, for a class discussion"
    )
    parser.add_argument(
        "--figure", metavar="FILE", type=Path, help="with --cohort: also draw them in FILE.svg or FILE.png"
    )


def _add_gpu(commands: Commands[Parser]) -> None:
    parser = add_command(
        commands, "gpu", _gpu, "time your solved kernels of lessons 10-13 on your own GPU, compiled"
    )
    parser.epilog = (
        "Save the notebook first. Without a GPU, the notebooks and exercises are checked, and recorded runs "
        "are printed. Not run on a GPU yet: this command was tested with a stub in place of one."
    )
    parser.add_argument(
        "exercises",
        metavar="EXERCISE",
        nargs="*",
        help="one of 10B, 10C, 10D, 11A, 11B, 11C, 11D, 11F, 12A, 12B, 12C, 12D, 13C (default: all solved)",
    )
    parser.add_argument(
        "--file",
        metavar="NOTEBOOK",
        type=Path,
        action="append",
        default=[],
        help="read this saved notebook, not your copies in work/; repeatable",
    )
    parser.add_argument(
        "--gbytes", metavar="X", type=_rate, help="the GB/s that you predict for 10B, 10C and 12A"
    )
    parser.add_argument(
        "--tflops", metavar="X", type=_rate, help="the TFLOP/s that you predict for the other exercises"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return rate


def _gpu(arguments: argparse.Namespace) -> int:
    from .own_gpu import time_exercises

    return time_exercises(arguments)


def _lab(arguments: argparse.Namespace) -> int:
    from .lab import open_lab, update_copies

    if arguments.update is not None:
        if arguments.extra:
            raise UsageError(f"--update accepts at most one LESSON, got also {' '.join(arguments.extra)}")
        return update_copies(arguments.update)
    return open_lab(browser=not arguments.no_browser, options=arguments.extra)


def _progress(arguments: argparse.Namespace) -> int:
    if arguments.cohort:
        from . import class_predictions

        found = class_predictions.class_histograms(arguments.cohort, arguments.only, blind=arguments.blind)
        print(class_predictions.as_text(found))
        if arguments.figure:
            class_predictions.draw(found, arguments.figure)
        return 0
    for option in ("only", "blind", "figure"):
        if getattr(arguments, option):
            raise UsageError(f"--{option} can only be used with --cohort FOLDER")
    if arguments.export:
        print(f"{progress.export_to(arguments.export)} exercises written to {arguments.export}")
    elif arguments.merge:
        print(f"{progress.import_from(arguments.merge)} exercises in {progress.location()}")
    elif arguments.reset:
        kept = progress.reset()
        print(f"progress reset; the old file is {kept}" if kept else "nothing to reset: progress is empty")
    elif arguments.json:
        facts = {"path": str(progress.location()), "exercises": progress.load()}
        print(json.dumps(facts, indent=1, sort_keys=True))
    else:
        print(f"{progress.location()}\n\n{progress.table(progress.load(), _known_exercises())}")
    return 0


def _known_exercises() -> tuple[str, ...]:
    try:
        return exercise_ids(find_course())
    except UsageError:  # installed without the lessons
        return ()
    except (ValueError, LookupError, TypeError):  # one of them is not a valid notebook
        return ()
