"""The command line: a thin face over the rooms of the library. Each command loads only what it needs."""

from __future__ import annotations

import argparse
import codecs
import importlib
import importlib.util
import inspect
import io
import json
import os
import sys
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import Any, NoReturn

from iocourse import __version__
from iocourse.refusal import Refused, write_json

Handler = Callable[[argparse.Namespace], int]
# Letters that an encoding may lack, in plain ones.
_PLAIN = {"–": "-", "—": "-", "−": "-", "×": "x", "·": "*", "≤": "<=", "≥": ">=", "≠": "!=", "≈": "~"}
_PLAIN |= {"√": "sqrt", "…": "...", "→": "->", "←": "<-", "“": '"', "”": '"', "‘": "'", "’": "'"}
_PLAIN |= {"█": "#", "▏": "|", "│": "|", "─": "-", "✓": "+", "✗": "x"}
VISIT = ("minutes", "sitting", "out", "only", "list", "install", "anyway")  # options of bench visit


class Parser(argparse.ArgumentParser):
    """Says in one line which argument was wrong."""

    def error(self, message: str) -> NoReturn:
        """Print the line and leave with exit code 2."""
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; those of the process where None.

    Returns:
        0 done, 1 found something wrong, 2 bad arguments, 130 interrupted.
    """
    _print_anything()
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser(arguments[0] if arguments else "")
    parsed, extra = parser.parse_known_args(arguments)
    if extra and parsed.command != "lab":  # only `lab` passes options on
        parser.error(f"unrecognized arguments: {' '.join(extra)}")
    parsed.extra = extra
    try:
        code = int(parsed.handler(parsed))
        print(end="", flush=True)  # also where there is nothing to write to
        return code
    except BrokenPipeError:  # whoever reads, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (Refused, OSError) as error:
        print(f"iocourse {parsed.command}: {error}", file=sys.stderr)
        return 2
    except MemoryError as error:
        print(f"iocourse {parsed.command}: not enough memory: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _print_anything() -> None:
    """Let standard output and error take any text, also where their encoding lacks a character.

    A character that it lacks is printed as plain letters (× as x, … as ...), or else by its code.
    """
    codecs.register_error("iocourse.plain", _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="iocourse.plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    letters = (_PLAIN.get(one, _without_marks(one)) for one in error.object[error.start : error.end])
    return "".join(letters), error.end


def _without_marks(letter: str) -> str:
    plain = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return plain or letter.encode("ascii", "backslashreplace").decode()


def build_parser(command: str = "") -> Parser:
    """The parser. `count` and `profile` bring their own options, and are loaded for those commands only."""
    parser = Parser(prog="iocourse", description="The I/O complexity of attention.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"iocourse {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_room(commands, command, "count", "count the words one schedule moves")
    bench = _add(commands, "bench", _bench, "measure one subject and print a table")
    bench.add_argument(
        "what", metavar="WHAT", nargs="?", default="", help="the subject: one of those listed below"
    )
    if command == "bench":  # for no other command the subjects are loaded
        bench.formatter_class, bench.epilog = argparse.RawDescriptionHelpFormatter, _each_subject()
    bench.add_argument("--quick", action="store_true", help="as few repeats as possible")
    bench.add_argument("--json", metavar="FILE", type=Path, help="also write the numbers to FILE")
    bench.add_argument(
        "--pictures",
        metavar="FOLDER",
        type=Path,
        help="for attention and lowrank: also draw the numbers, as PNG files",
    )
    bench.add_argument(
        "--threads", metavar="T", type=int, help="for lowrank: threads of everyone, 1 by default"
    )
    bench.add_argument(
        "--tutorial",
        metavar="FILE",
        type=Path,
        help="for attention and visit: also time this copy of Triton's tutorial 06",
    )
    for option, kind, what in (
        ("types", _names, "for attention: 16-bit types, such as bfloat16"),
        ("heads", _sizes, "for attention and tune: head sizes d, such as 64,128"),
        ("lengths", _sizes, "for attention: lengths N, such as 1024,4096"),
    ):
        bench.add_argument(f"--{option}", metavar="LIST", type=kind, help=what)
    bench.add_argument(
        "--without",
        metavar="NAME",
        action="append",
        help="for attention: without this contender; repeatable",
    )
    _add_visit(bench)
    _add_room(
        commands, command, "profile", "measure the bytes of one launch on a GPU, beside the closed form"
    )
    doctor = _add(commands, "doctor", _doctor, "look at this machine and say what it lacks")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    lab = _add(commands, "lab", _lab, "open the course in JupyterLab; further options go to JupyterLab")
    lab.add_argument("--no-browser", action="store_true", help="print the address and open no browser")
    lab.add_argument(
        "--update",
        metavar="LESSON",
        nargs="?",
        const="",
        help="open nothing: bring your copies of the lessons, or of this one, up to date, with your answers",
    )
    _add_progress(commands)
    release = _add(commands, "release", _release, "make the notebooks from their sources")
    release.add_argument("--check", action="store_true", help="only say what is out of date")
    release.add_argument("--execute", action="store_true", help="run unchanged notebooks too")
    release.add_argument(
        "--only", metavar="NAME", action="append", default=[], help="this lesson, such as 02"
    )
    release.add_argument(
        "--colab", metavar="FOLDER", type=Path, help="write the notebooks that Colab opens, and nothing else"
    )
    _add_mutants(commands)
    _add_room(commands, command, "grade", "grade a folder of submissions to one lesson")
    _add_room(commands, command, "site", "build the site of the course")
    return parser


Commands = argparse._SubParsersAction  # argparse has no public name for it


def _names(text: str) -> list[str]:
    """The parts of a list with commas."""
    return [part.strip() for part in text.split(",") if part.strip()]


def _sizes(text: str) -> list[int]:
    """Whole numbers of a list with commas; argparse says which option's value is none."""
    return [int(part) for part in _names(text)]


def _add(commands: Commands[Parser], name: str, handler: Handler, text: str) -> Parser:
    parser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    parser.set_defaults(handler=handler)
    return parser


def _add_room(commands: Commands[Parser], command: str, name: str, text: str) -> None:
    """A command whose room brings its own options and handler, and is loaded for it alone."""
    if command == name and importlib.util.find_spec(f"iocourse.{name}"):
        importlib.import_module(f"iocourse.{name}").add_parser(commands)
    else:
        _add_not_built(commands, name, text)


def _add_visit(bench: Parser) -> None:
    """What only a visit takes; None where it is not given."""
    visit = bench.add_argument_group("visit")
    visit.add_argument("--minutes", metavar="M", type=float, help="of the whole visit, 45 by default")
    visit.add_argument(
        "--sitting", metavar="M", type=float, help="of this call; the same command again goes on from there"
    )
    visit.add_argument("--out", metavar="FOLDER", type=Path, help="of its records, build/visit by default")
    visit.add_argument("--only", metavar="STEP", action="append", help="this step, done or not; repeatable")
    for option, what in (
        ("list", "show the plan and do nothing"),
        ("install", "put its records into iocourse/data/bench and do nothing else"),
        ("anyway", "measure even where values are wrong or cannot be checked"),
    ):
        visit.add_argument(f"--{option}", action="store_const", const=True, help=what)


def _add_mutants(commands: Commands[Parser]) -> None:
    mutants = _add(
        commands, "mutants", _mutants, "change each reference in one place, and see checks refuse it"
    )
    mutants.add_argument(
        "--only", metavar="EXERCISE", action="append", default=[], help="this exercise or lesson; repeatable"
    )
    mutants.add_argument("--operators", metavar="LIST", type=_names, default=[], help="such as starts,ranges")
    mutants.add_argument(
        "--seeds", metavar="N", type=int, default=10, help="for what is accepted; 10 by default"
    )
    mutants.add_argument("--sample", metavar="K", type=int, default=1, help="one mutant in K, by hash")
    mutants.add_argument(
        "--every-seed", action="store_true", help="try what a seed refuses on the others too"
    )
    mutants.add_argument("--triton", action="store_true", help="lessons 10 to 14 too, a second a mutant")
    mutants.add_argument("--jobs", metavar="J", type=int, help="mutants at a time; all processors by default")
    mutants.add_argument("--json", metavar="FILE", type=Path, help="also write what was found to FILE")
    kept = mutants.add_mutually_exclusive_group()
    kept.add_argument("--record", action="store_true", help="also keep the scores for the instructor's guide")
    kept.add_argument(
        "--remarks", action="store_true", help="only see what refuses the errors that docs/remarks names"
    )


def _add_not_built(commands: Commands[Parser], name: str, text: str) -> None:
    _add(commands, name, _not_built, text).add_argument("rest", nargs=argparse.REMAINDER)


def _add_progress(commands: Commands[Parser]) -> None:
    parser = _add(commands, "progress", _progress, "show what has been solved, and where that is kept")
    parser.add_argument("--json", action="store_true", help="print JSON")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--export", metavar="FILE", type=Path, help="write the progress to FILE")
    one.add_argument("--import", metavar="FILE", type=Path, dest="merge", help="merge FILE into the progress")
    one.add_argument("--reset", action="store_true", help="start afresh; the old file is kept")
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
        "--blind", action="store_true", help="with --cohort: do not say what came out, for a class to discuss"
    )
    parser.add_argument(
        "--figure", metavar="FILE", type=Path, help="with --cohort: also draw them, FILE.svg or FILE.png"
    )


def _not_built(arguments: argparse.Namespace) -> int:
    raise Refused("this command is not built yet")


def _bench(arguments: argparse.Namespace) -> int:
    from iocourse.bench import subjects
    from iocourse.course.authoring.execution import ExecutionFailed

    known = subjects()
    if arguments.what not in known:
        came = f"WHAT {arguments.what!r} is unknown" if arguments.what else "WHAT is missing"
        raise Refused(f"{came}; allowed: {', '.join(known)}. iocourse bench --help says what each measures")
    if arguments.pictures:
        _only_for("--pictures", arguments.what, [n for n, one in known.items() if hasattr(one, "pictures")])
    try:
        result = known[arguments.what].run(arguments.quick, **_bench_options(arguments, known))
    except ExecutionFailed as error:
        print(error, file=sys.stderr)
        return 1
    print(known[arguments.what].show(result))
    if arguments.json:
        write_json(arguments.json, result)
    if arguments.pictures:
        arguments.pictures.mkdir(parents=True, exist_ok=True)
        for name, picture in known[arguments.what].pictures(result).items():  # type: ignore[attr-defined]
            (arguments.pictures / f"{name}.png").write_bytes(picture.to_png())
    return int(result.get("exit", 0))


def _each_subject() -> str:
    """What each subject measures, a line each as wide as a terminal is."""
    from iocourse.bench import subjects

    lines = (f"  {name:12} {one.HELP}" for name, one in subjects().items())
    return "\n".join(["subjects:", *(fill(line, 100, subsequent_indent=" " * 15) for line in lines)])


def _bench_options(arguments: argparse.Namespace, known: Mapping[str, Any]) -> dict[str, Any]:
    """What only some subjects take: those whose `run` has a parameter of that name."""
    options = ("tutorial", "threads", "types", "heads", "lengths", "without", *VISIT)
    given = {name: getattr(arguments, name) for name in options if getattr(arguments, name) is not None}
    for option in given:
        _only_for(f"--{option}", arguments.what, _takers(known, option))
    if arguments.json and arguments.what in _takers(known, "keep"):
        given["keep"] = partial(write_json, arguments.json)
    return given


def _takers(known: Mapping[str, Any], option: str) -> list[str]:
    return [name for name, one in known.items() if option in inspect.signature(one.run).parameters]


def _only_for(option: str, what: str, takers: Sequence[str]) -> None:
    if what not in takers:
        raise Refused(f"{option} is not for {what}; allowed with: {', '.join(takers)}")


def _doctor(arguments: argparse.Namespace) -> int:
    from iocourse.doctor import examine

    report = examine()
    print(report.to_json() if arguments.json else report)
    return 0


def _lab(arguments: argparse.Namespace) -> int:
    from iocourse.course.lab import open_lab, update_copies

    if arguments.update is not None:
        if arguments.extra:
            raise Refused(f"--update takes one LESSON or none; got also {' '.join(arguments.extra)}")
        return update_copies(arguments.update)
    return open_lab(browser=not arguments.no_browser, options=arguments.extra)


def _progress(arguments: argparse.Namespace) -> int:
    from iocourse.course import progress

    if arguments.cohort:
        return _cohort(arguments)
    for option in ("only", "blind", "figure"):
        if getattr(arguments, option):
            raise Refused(f"--{option} goes with --cohort FOLDER")
    if arguments.export:
        print(f"{progress.export_to(arguments.export)} exercises written to {arguments.export}")
    elif arguments.merge:
        print(f"{progress.import_from(arguments.merge)} exercises in {progress.location()}")
    elif arguments.reset:
        kept = progress.reset()
        print(f"started afresh; the old file is kept at {kept}" if kept else "there was nothing to reset")
    elif arguments.json:
        facts = {"path": str(progress.location()), "exercises": progress.load()}
        print(json.dumps(facts, indent=1, sort_keys=True))
    else:
        print(f"{progress.location()}\n\n{progress.table(progress.load(), _known_exercises())}")
    return 0


def _cohort(arguments: argparse.Namespace) -> int:
    from iocourse.course import cohort

    found = cohort.class_histograms(arguments.cohort, arguments.only, blind=arguments.blind)
    print(cohort.as_text(found))
    if arguments.figure:
        cohort.draw(found, arguments.figure)
    return 0


def _known_exercises() -> tuple[str, ...]:
    from iocourse.course.checkout import exercise_ids, find_course

    try:
        return exercise_ids(find_course())
    except Refused:  # installed without the lessons
        return ()
    except (ValueError, LookupError, TypeError):  # one of them is no notebook
        return ()


def _release(arguments: argparse.Namespace) -> int:
    from iocourse.course.authoring import release
    from iocourse.course.checkout import find_checkout

    root = find_checkout()
    if arguments.colab:
        return _release_for_colab(root, arguments)
    try:
        if arguments.check:
            return _release_check(release.check(root, only=arguments.only))
        written = release.release(root, force=arguments.execute, only=arguments.only)
    except release.ReleaseFailed as error:
        print(error, file=sys.stderr)
        return 1
    print("\n".join(f"wrote {name}" for name in written) or "everything is up to date")
    return 0


def _release_for_colab(root: Path, arguments: argparse.Namespace) -> int:
    from iocourse.course.authoring.links import write_for_colab

    if arguments.check or arguments.execute or arguments.only:
        raise Refused("--colab takes the notebooks as they stand: leave --check, --execute and --only away")
    written = write_for_colab(root, arguments.colab)
    print(f"wrote {len(written)} notebooks, {written[0]} the first")
    return 0


def _mutants(arguments: argparse.Namespace) -> int:
    from iocourse.course.authoring.mutation import command, report

    if arguments.remarks:
        return _remarks(arguments.only)
    if arguments.record and arguments.operators:
        raise Refused("--record keeps the score of all operators: leave --operators away")
    options = ("only", "operators", "seeds", "sample", "every_seed", "triton", "jobs")
    found = command.run(**{name: getattr(arguments, name) for name in options})
    print(report.summary(found))
    if arguments.json:
        write_json(arguments.json, report.as_json(found))
    if arguments.record:
        from iocourse.course.authoring.guide.record import record_scores
        from iocourse.course.checkout import find_checkout

        record_scores(find_checkout(), found, arguments.sample, _today_with("numpy", "triton"))
    return 0 if all(score.holds for score in found) else 1


def _remarks(only: Sequence[str]) -> int:
    """Record what refuses the errors that the guide's remarks name; those of kernels where they can run."""
    from iocourse.course.authoring.guide import by_hand, record, remarks
    from iocourse.course.authoring.mutation import command
    from iocourse.course.checkout import find_checkout

    root = find_checkout()
    said = remarks.read_remarks(root)
    chosen = [name for name in command.chosen(only, triton=True) if name in said]
    found = by_hand.refusals(root, said, chosen)
    record.record_refusals(root, found, _today_with("numpy", "triton"))
    print(f"{sum(map(len, found.values()))} errors of {len(found)} exercises recorded in {record.FILE}")
    return 0


def _today_with(*packages: str) -> str:
    """The date and the versions of Python and of these packages, as a record says them."""
    from iocourse.bench import circumstances

    facts = circumstances(*packages)
    return f"{facts['date']}, " + ", ".join(
        f"{name} {version}" for name, version in facts["versions"].items()
    )


def _release_check(problems: Sequence[str]) -> int:
    for line in problems:
        print(line, file=sys.stderr)
    if problems:
        return 1
    print("everything is up to date")
    return 0
