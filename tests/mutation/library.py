"""`python -m tests.mutation.library`: change the library in one place at random, and see its tests fail."""

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
from iocourse.course.exercise import exercises
from iocourse.course.project_paths import find_checkout
from tests.mutation.library_mutants import LibraryMutant, draw
from tools import run_main

# What runs in processes of its own, where no reach is seen, or needs a browser.
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
BATCHES = (12, 60)  # groups of the first two runs, as most mutants die at once; the third run takes the rest
NEAR = (2, 6)  # files of tests in the first run, and in the second
Change = tuple[str, str, str, str]  # file, line of code, what is replaced in it, and by what
Reach = dict[str, Any]  # `groups`: [name, seconds, failed]; `lines`: of each file, the groups that reach each


def parser() -> Parser:
    """The options."""
    made = Parser(
        prog="python -m tests.mutation.library",
        description="Change the library in one place at random, and see its tests fail.",
    )
    made.add_argument("--draw", metavar="N", type=int, default=60, help="mutants; 60 by default")
    made.add_argument("--seed", metavar="SEED", type=int, default=0, help="of the draw; 0 by default")
    made.add_argument("--only", metavar="PATH", default="iocourse", help="the file or folder to draw from")
    made.add_argument(
        "--part", metavar="K/N", type=_part, default=(1, 1), help="every N-th of them, from the K-th"
    )
    made.add_argument(
        "--near",
        action="store_true",
        help=f"take the {sum(NEAR)} test files that name what is changed, and measure no reach",
    )
    made.add_argument(
        "--reach",
        metavar="FILE",
        type=Path,
        default=Path("build/library-reach.json"),
        help="which tests reach which lines; measured where there is no such file",
    )
    made.add_argument(
        "--seconds", metavar="S", type=int, default=120, help="for the tests of one mutant; 120 by default"
    )
    made.add_argument("--jobs", metavar="J", type=int, default=1, help="processes that measure the reach")
    return made


def _part(text: str) -> tuple[int, int]:
    first, step = map(int, text.split("/"))
    if not 1 <= first <= step:
        raise argparse.ArgumentTypeError(f"{text} is no K/N with 1 ≤ K ≤ N")
    return first, step


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 where the draw is done, whatever it finds, and 2 for bad arguments."""
    return run_main(parser(), mutate, argv)


def mutate(arguments: argparse.Namespace) -> int:
    """What the options ask for, in a copy of the checkout, which is removed."""
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
    """The change of a mutant as `library_equivalents.toml` lists it; line numbers would move."""
    lines = (root / mutant.file).read_text(encoding="utf-8").splitlines()
    return mutant.file, lines[mutant.line - 1].strip(), mutant.before, mutant.after


def summary(verdicts: Sequence[str]) -> str:
    """Count each verdict, and give the share that tests noticed, with its Wilson 95 % interval."""
    count = Counter(verdicts)
    noticed, n = count[KILLED] + count[OUT_OF_TIME], len(verdicts) - count[EQUIVALENT]
    share, z = noticed / n, 1.96
    middle, half = share + z * z / (2 * n), z * sqrt(share * (1 - share) / n + (z / (2 * n)) ** 2)
    low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    counts = ", ".join(
        f"{count[one]} {one}" for one in (KILLED, OUT_OF_TIME, SURVIVED, UNREACHED, EQUIVALENT)
    )
    interval = f"95 % interval {low:.0%} to {high:.0%}"
    return f"{len(verdicts)} mutants: {counts}. Noticed {share:.0%} of {n}; {interval}."


def _copied(root: Path, copy: Path) -> None:
    """The files of the checkout that git knows or would add, so that no mutant ever stands in it."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=root, capture_output=True, check=True).stdout.decode()
    for name in names.split("\0"):
        if name and (root / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, copy / name)


# ------------------------------------------------------------------ which tests
def _near(copy: Path, mutant: LibraryMutant) -> tuple[list[list[str]], str]:
    """Files of tests that name the changed function or class, its module or its folder, the nearest first.

    What belongs to a lesson is tried on the answers to its exercises first.
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
        ids = " or ".join(f"[{one.id}" for one in exercises().values() if one.lesson == int(found[1]))
        runs.insert(0, ["tests/mutants", "-k", ids])
    return runs, " (of the files that name what is changed)"


def _reach(copy: Path, file: Path, jobs: int) -> Reach:
    """What the plugin measured on these sources, or measures now."""
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
    """The groups that reach the line, the fastest first, in runs; and how many there was no time for.

    What runs on import is reached by whoever reaches anything in the file, or in one that imports from it.
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
    """Arguments of pytest for these groups, in this order."""
    file = copy.parent / f"groups-{hashlib.sha256(repr(groups).encode()).hexdigest()[:8]}.json"
    file.write_text(json.dumps(groups), encoding="utf-8")
    return ["--groups", str(file), *dict.fromkeys(group.split("::")[0] for group in groups)]


# ------------------------------------------------------------------ one mutant
def _verdict(copy: Path, mutant: LibraryMutant, runs: list[list[str]], seconds: float) -> tuple[str, str]:
    """The verdict on a mutant, and the test or the numbers behind it."""
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
    """pytest's exit code in the copy, None where it had to be stopped, with the processes it started."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.reach"]
    environment = {**os.environ, "PYTHONPATH": str(copy), "COVERAGE_CORE": "ctrace"}  # which knows contexts
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
