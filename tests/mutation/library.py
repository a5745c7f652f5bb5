"""`python -m tests.mutation.library`: change random lines of the library and verify that its tests fail."""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from math import sqrt
from pathlib import Path
from typing import Any

from iocourse.cli import Parser
from iocourse.course.exercise import exercises, number_of
from iocourse.course.project_paths import find_checkout
from tests.mutation.library_mutants import LibraryMutant, draw
from tools import run_main

# Tests that need a browser, or that start processes, in which no reach is measured.
LEFT_OUT = (
    "browser",
    "notebooks",
    "site",
    "gpu_launches",
    "test_wheel.py",
    "test_packaging.py",
    "test_lint.py",
)
KILLED, SURVIVED, OUT_OF_TIME, UNREACHED = "killed", "survived", "out of time", "reached by no test"
EQUIVALENT = "equivalent"  # survived, and listed
LISTED = Path("tests") / "mutation" / "library_equivalents.toml"
BATCHES = (12, 60)  # groups in the first two runs, where most mutants fail; the third run has the rest
NEAR = (2, 6)  # test files in the first run and in the second
Change = tuple[str, str, str, str]  # file, line of code, what is replaced in it, and by what
Reach = dict[str, Any]  # `groups`: [name, seconds, failed]; `lines`: per file and line, the groups


def parser() -> Parser:
    """Build the parser of the options."""
    made = Parser(
        prog="python -m tests.mutation.library",
        description="Change random lines of the library, one at a time, and verify that its tests fail.",
    )
    made.add_argument("--draw", metavar="N", type=int, default=60, help="number of mutants (default: 60)")
    made.add_argument("--seed", metavar="SEED", type=int, default=0, help="seed of the draw (default: 0)")
    made.add_argument(
        "--only", metavar="PATH", default="iocourse", help="file or folder to draw from (default: iocourse)"
    )
    made.add_argument(
        "--part",
        metavar="K/N",
        type=_part,
        default=(1, 1),
        help="run every N-th mutant, starting at the K-th",
    )
    made.add_argument(
        "--near",
        action="store_true",
        help=f"run the {sum(NEAR)} test files that name the changed code, without measuring the reach",
    )
    made.add_argument(
        "--reach",
        metavar="FILE",
        type=Path,
        default=Path("build/library-reach.json"),
        help="which tests reach which lines; measured if the file does not exist",
    )
    made.add_argument(
        "--seconds",
        metavar="S",
        type=int,
        default=120,
        help="time for the tests of one mutant (default: 120)",
    )
    made.add_argument(
        "--jobs", metavar="J", type=int, default=1, help="processes that measure the reach (default: 1)"
    )
    return made


def _part(text: str) -> tuple[int, int]:
    first, step = map(int, text.split("/"))
    if not 1 <= first <= step:
        raise argparse.ArgumentTypeError(f"must be K/N with 1 ≤ K ≤ N, got {text}")
    return first, step


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return 0 after the draw, whatever its verdicts, or 2 for invalid arguments."""
    return run_main(parser(), mutate, argv)


def mutate(arguments: argparse.Namespace) -> int:
    """Run the requested mutants in a temporary copy of the checkout and print the verdicts."""
    root = find_checkout()
    first, step = arguments.part
    mutants = draw(root, arguments.draw, arguments.seed, arguments.only)[first - 1 :: step]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder) / "checkout"
        _copied(root, copy)
        reach = None if arguments.near else _reach(copy, arguments.reach, arguments.jobs)
        verdicts, equivalent = [], listed_equivalents(root)
        for mutant in mutants:
            runs, left = (
                _near(copy, mutant) if reach is None else _reaching(copy, mutant, reach, arguments.seconds)
            )
            verdict, why = _verdict(copy, mutant, runs, arguments.seconds)
            if verdict == SURVIVED and (reason := equivalent.get(change_of(root, mutant))):
                verdict, why = EQUIVALENT, reason
            verdicts.append(verdict)
            print(f"{verdict:8} {mutant}\n         {why}{left}", flush=True)
    print(summary(verdicts))
    return 0


def listed_equivalents(root: Path) -> dict[Change, str]:
    """Read `library_equivalents.toml`: the reason why each change that it lists is not a mistake."""
    path = root / LISTED
    files = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {
        (file, entry["line"], entry["before"], entry["after"]): entry["why"]
        for file, entries in files.items()
        for entry in entries
    }


def change_of(root: Path, mutant: LibraryMutant) -> Change:
    """Return the change of a mutant as `library_equivalents.toml` lists it, without line numbers."""
    lines = (root / mutant.file).read_text(encoding="utf-8").splitlines()
    return mutant.file, lines[mutant.line - 1].strip(), mutant.before, mutant.after


def summary(verdicts: Sequence[str]) -> str:
    """Format the number of each verdict and the detected share with its 95 % interval (Wilson)."""
    count = Counter(verdicts)
    noticed, n = count[KILLED] + count[OUT_OF_TIME], len(verdicts) - count[EQUIVALENT]
    if not n:
        return f"{len(verdicts)} mutants, all equivalent: no share of mistakes."
    share, z = noticed / n, 1.96
    middle, half = share + z * z / (2 * n), z * sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    counts = ", ".join(
        f"{count[one]} {one}" for one in (KILLED, OUT_OF_TIME, SURVIVED, UNREACHED, EQUIVALENT)
    )
    interval = f"95 % interval {low:.0%} to {high:.0%}"
    return f"{len(verdicts)} mutants: {counts}. Noticed {share:.0%} of {n}; {interval}."


def _copied(root: Path, copy: Path) -> None:
    """Copy the files that git tracks or would add, so that no mutant is written into the checkout."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode()
    for name in names.split("\0"):
        if name and (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name)


# ------------------------------------------------------------------ which tests
def _near(copy: Path, mutant: LibraryMutant) -> tuple[list[list[str]], str]:
    """Test files that name the changed function or class, its module or its folder, in runs, nearest first.

    A mutant in the module of a lesson is first tried on the answers to the exercises of this lesson.
    """
    path = Path(mutant.file)
    tree = ast.parse(mutant.source)
    around = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Assign))]
    inside = [n for n in around if n.lineno <= mutant.line <= (n.end_lineno or 0)]
    called = {name.strip("_") for n in inside if (name := getattr(n, "name", ""))}
    module = path.parent.name if path.name == "__init__.py" else path.stem
    near = []
    for file in sorted((copy / "tests").rglob("test_*.py")):
        relative = file.relative_to(copy)
        if relative.parts[1] not in LEFT_OUT and file.parent.name != "mutants":
            words = set(re.findall(r"\w+", file.read_text(encoding="utf-8")))
            score = 4 * len(called & words) + 3 * (module in words) + 2 * (path.parts[1] == relative.parts[1])
            score += 5 * (module in relative.stem) + 4 * (Path(path.parts[1]).stem in relative.stem)
            near.append((-score, file.stat().st_size, relative.as_posix()))
    names = [name for score, _, name in sorted(near)[: sum(NEAR)] if score]
    runs = [batch for batch in (names[: NEAR[0]], names[NEAR[0] :]) if batch]
    if found := re.fullmatch(r"lesson(\d\d)", path.stem):
        ids = " or ".join(f"[{one.id}" for one in exercises().values() if number_of(one.id) == int(found[1]))
        runs.insert(0, ["tests/mutants", "-k", ids])
    return runs, " (of the files that name the changed code)"


def _reach(copy: Path, file: Path, jobs: int) -> Reach:
    """The reach that the plugin measured on these sources, from the file or from a new measurement."""
    sources = sorted((copy / "iocourse").rglob("*.py"))
    state = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    if file.exists() and (kept := json.loads(file.read_text(encoding="utf-8")))["state"] == state:
        return dict(kept)
    for old in file.parent.glob(f"{file.name}.gw*"):
        old.unlink()
    file.parent.mkdir(parents=True, exist_ok=True)
    ignored = [f"--ignore=tests/{name}" for name in LEFT_OUT]
    _pytest(
        copy, ["-n", str(jobs if jobs > 1 else 0), "--reach", str(file.resolve()), *ignored], None, sys.stderr
    )
    groups: list[list[object]] = []
    lines: dict[str, dict[str, list[int]]] = {}
    for part in sorted(file.parent.glob(f"{file.name}.gw*")):
        measured = json.loads(part.read_text(encoding="utf-8"))
        for name, of in measured["lines"].items():
            for line, numbers in of.items():
                lines.setdefault(name, {}).setdefault(line, []).extend(n + len(groups) for n in numbers)
        groups += measured["groups"]
        part.unlink()
    found = {"state": state, "groups": groups, "lines": lines}
    file.write_text(json.dumps(found), encoding="utf-8")
    return found


def _reaching(copy: Path, mutant: LibraryMutant, reach: Reach, seconds: float) -> tuple[list[list[str]], str]:
    """The groups that reach the line in runs, fastest first, and a note on groups without time to run.

    A line that runs on import counts as reached by every group that reaches a line of the file, or of a file
    that imports from it.
    """
    numbers = set(reach["lines"].get(mutant.file, {}).get(str(mutant.line), []))
    if not numbers:
        path = Path(mutant.file)
        module = path.parent.name if path.name == "__init__.py" else path.stem
        imports = re.compile(rf"^\s*(from|import) .*\b{module}\b", re.MULTILINE)
        for file, lines in reach["lines"].items():
            if file == mutant.file or imports.search((copy / file).read_text(encoding="utf-8")):
                numbers |= {number for of in lines.values() for number in of}
    spent: dict[str, float] = {}
    for number in numbers:
        name, cost, failed = reach["groups"][number]
        if not failed:
            spent[name] = spent.get(name, 0.0) + cost
    chosen, total = [], 0.0
    for name in sorted(spent, key=lambda one: spent[one]):
        total += spent[name]
        if total > seconds:
            break
        chosen.append(name)
    left = f", {len(spent) - len(chosen)} groups were not run" if len(chosen) < len(spent) else ""
    return [_groups(copy, batch) for batch in _batches(chosen)], left


def _batches(groups: list[str]) -> Iterator[list[str]]:
    first, second = BATCHES
    for batch in (groups[:first], groups[first:second], groups[second:]):
        if batch:
            yield batch


def _groups(copy: Path, groups: list[str]) -> list[str]:
    """Arguments of pytest that run these groups in this order."""
    file = copy.parent / f"groups-{hashlib.sha256(repr(groups).encode()).hexdigest()[:8]}.json"
    file.write_text(json.dumps(groups), encoding="utf-8")
    return ["--groups", str(file), *dict.fromkeys(group.split("::")[0] for group in groups)]


# ------------------------------------------------------------------ one mutant
def _verdict(copy: Path, mutant: LibraryMutant, runs: list[list[str]], seconds: float) -> tuple[str, str]:
    """The verdict on a mutant, and the failed test or the number of runs that led to it."""
    if not runs:
        return UNREACHED, ""
    place = copy / mutant.file
    before = place.read_bytes()
    place.write_text(mutant.source, encoding="utf-8")
    try:
        for at, run in enumerate(runs, 1):
            with (copy.parent / "said.txt").open("w+", encoding="utf-8") as said:
                code = _pytest(copy, ["-n", "0", "-x", *run], 10 * seconds, said)
                said.seek(0)
                text = said.read()
            if code is None:
                return OUT_OF_TIME, f"run {at} of {len(runs)}"
            if code not in (0, 5):  # passed, and nothing to run
                first = re.search(r"^(FAILED|ERROR) .*", text, re.MULTILINE)
                return KILLED, f"run {at} of {len(runs)}: " + (first[0] if first else text.strip())[-200:]
    finally:
        place.write_bytes(before)
    return SURVIVED, f"{len(runs)} runs passed"


def _pytest(copy: Path, options: Sequence[str], seconds: float | None, said: Any) -> int | None:
    """Run pytest in the copy and return its exit code, or None if it and its processes had to be stopped."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.reach"]
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy),
        "COVERAGE_CORE": "ctrace",
    }  # the tracer that supports contexts
    run = subprocess.Popen(
        [*command, *options],
        cwd=copy,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return run.wait(seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()


if __name__ == "__main__":
    sys.exit(main())
