"""A visit to a GPU in one command: the steps of `plan` in their order, and what to do with what they found.

A visit can be cut off at any time: what is measured is on disk after every shape, and the same command again
goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

from iocourse.bench import Row, circumstances
from iocourse.gpu.device import ROOT, environment
from iocourse.gpu.timing import no_cuda
from iocourse.refusal import Refused, write_whole

from ..gpu.contenders import tutorial_file
from . import summary
from .install import install as put_into_package
from .plan import CHECKS, MINUTES, Step, chosen, limit, log_path, part_path, record_path, steps
from .running import ended_by_term
from .running import run as run_commands
from .state import CUT, DONE, FAILED, NEEDLESS, RUNNING, alone, keep_better, load, read_record, save

NAME = "visit"
HELP = (
    "all of the GPU's benchmarks in one visit, which can be cut off and goes on where it stopped (needs CUDA)"
)
OUT = Path("build", "visit")
ENOUGH = 5.0  # seconds below which no step begins
FIRST = ("machine", "values")  # nothing is timed before these
WRONG = ": WRONG, "  # in a line of the checks


def run(
    quick: bool, minutes: float = MINUTES, sitting: float | None = None, out: Path = OUT,
    only: Sequence[str] = (), tutorial: Path | None = None, list: bool = False, install: bool = False,
    anyway: bool = False,
) -> Row:  # fmt: skip
    """Run the steps that are not done yet; the record says what became of each.

    Args:
        quick: refused: every step is as quick as it should be.
        minutes: that the visit may take, all calls together.
        sitting: minutes that this call may take; it ends before a step that would take longer.
        out: the folder of logs, records, summary and state.
        only: the steps to run, done or not; empty: all that are not done.
        tutorial: a copy of Triton's tutorial 06, which then has a step of its own.
        list: say what would be done, and do nothing.
        install: put the records into the package, and do nothing else.
        anyway: measure even where values are wrong or cannot be checked.

    Raises:
        Refused: an argument is not as described, there is no GPU, or the folder is in use or cannot be read.
    """
    if quick:
        raise Refused("--quick is not for visit; allowed: --minutes, which every step has its share of")
    for name, value in (("minutes", minutes), ("sitting", sitting)):
        if value is not None and not 0 < value < inf:
            raise Refused(f"--{name} is {value:g}; allowed: more than 0")
    tutorial_file(tutorial)
    out = out.absolute()
    known = steps(out, tutorial and tutorial.absolute())
    asked = chosen(known, only)
    if list:
        return _record(out, known, load(out), minutes) | {"plan": True}
    if install:
        return _record(out, known, load(out), minutes) | {"installed": put_into_package(out, known)}
    reason = no_cuda()
    if reason:
        raise Refused(
            f"{reason}, and a visit times kernels on an NVIDIA GPU: run it where one is; "
            "without one, --list shows the plan and --install takes the records of an earlier visit"
        )
    with alone(out), ended_by_term():
        state = load(out)
        for step in known:
            keep_better(part_path(out, step.name), record_path(out, step.name))
        left = 60 * minutes - state["seconds"]
        if left < ENOUGH:
            raise Refused(
                f"--minutes is {minutes:g}, and {state['seconds'] / 60:.1f} are spent; allowed: more"
            )
        ends, stopped = time.monotonic() + 60 * sitting if sitting else inf, "it was interrupted"
        try:
            stopped = _visit(out, _to_do(asked, state, bool(only)), state, left, ends, anyway)
        finally:
            found = _record(out, known, state, minutes) | {"exit": int(bool(stopped)), "stopped": stopped}
            write_whole(out / summary.FILE, summary.text(found) + "\n")
    return found


def _to_do(asked: Sequence[Step], state: Row, again: bool) -> list[Step]:
    """The steps that are not done, what has had its time already behind what had none; all, if named."""
    was = {step.name: state["steps"].get(step.name, {}).get("state") for step in asked}
    if again:
        return list(asked)
    rest = [step for step in asked if was[step.name] not in (DONE, NEEDLESS)]
    return sorted(rest, key=lambda step: step.name not in FIRST and was[step.name] in (CUT, FAILED))


def _visit(
    out: Path, to_do: Sequence[Step], state: Row, seconds: float, ends: float, anyway: bool
) -> str:  # fmt: skip
    """Run the steps and keep the state; why the visit stopped before its end, "" where it did not."""
    for at, step in enumerate(to_do):
        here = ends - time.monotonic()
        allowed = limit(step, to_do[at:], seconds)
        if min(here, seconds) < ENOUGH or (allowed > here and at):
            return ""
        entry = _run_step(out, step, state, min(allowed, here))
        seconds -= entry["seconds"]
        if step.name == "values" and entry["state"] != DONE and not anyway:
            wrong = _values_refused(out, step, entry)
            if wrong:
                return wrong
    return ""


def _run_step(out: Path, step: Step, state: Row, allowed: float) -> Row:
    """Run one step; the state says that it runs, and then how it ended."""
    commands = {label: " ".join(command) for label, command in step.commands.items()}
    entry: Row = {"state": RUNNING, "commands": commands, "seconds": 0.0, "limit": round(allowed)}
    state["steps"][step.name] = entry
    why = _needless(out, step)
    if why:
        entry |= {"state": NEEDLESS, "why": why}
        save(out, state)
        return entry
    save(out, state)
    print(f"--- {step.name}: {step.about}; {allowed:.0f} s at most", flush=True)
    logs = {label: log_path(out, label) for label in step.commands}
    started = time.monotonic()
    try:
        ended = run_commands(step.commands, logs, allowed, _environment())
        entry |= {"codes": ended.codes, "state": _how(step, ended.codes, ended.cut)}
    finally:  # Ctrl-C too leaves the state as it is
        entry["seconds"] = round(time.monotonic() - started, 1)
        if entry["state"] == RUNNING:
            entry["state"] = CUT
        state["seconds"] = round(state["seconds"] + entry["seconds"], 1)
        keep_better(part_path(out, step.name), record_path(out, step.name))
        save(out, state)
    for line in last_lines(logs) if len(logs) > 1 else ():
        print(line)
    print(f"--- {step.name}: {entry['state']} after {entry['seconds']:.0f} s", flush=True)
    return entry


def _environment() -> dict[str, str]:
    """Kernels are compiled, lines are written at once, and the tests' helpers are found."""
    return environment(ROOT / CHECKS.parent, interpret=False) | {"PYTHONUNBUFFERED": "1"}


def _needless(out: Path, step: Step) -> str:
    """Why a step has nothing to do, "" where it has."""
    if step.name != "again":
        return ""
    record = read_record(record_path(out, "tune"))
    if record is None:
        return "tune has left no record"
    return "" if record.get("tiles") else "tune found no tile that is worth a change"


def _how(step: Step, codes: dict[str, int | None], cut: bool) -> str:
    if cut:
        return CUT
    # That nvidia-smi or doctor cannot speak keeps nobody from measuring.
    fine = step.name == "machine" or (codes and not any(code != 0 for code in codes.values()))
    return DONE if fine else FAILED


def _values_refused(out: Path, step: Step, entry: Row) -> str:
    """What is wrong with values so that nothing may be timed; "" where they only took too long."""
    if not step.commands:
        return (
            f"values cannot be checked: {CHECKS} is in the repository and not in the package; "
            "run the visit in a checkout, or with --anyway"
        )
    logs = {label: log_path(out, label) for label in step.commands}
    found = [line for log in logs.values() for line in _lines(log) if WRONG in line]
    if found:
        return "\n".join(["VALUES ARE WRONG, so nothing is timed (--anyway would):", *found])
    if entry["state"] == CUT:
        return ""
    return "\n".join(["values could not be checked (--anyway goes on):", *last_lines(logs)])


def last_lines(logs: dict[str, Path]) -> Iterator[str]:
    """The last line of each log."""
    for label, log in logs.items():
        lines = _lines(log)
        yield f"{label}: {lines[-1] if lines else 'nothing'}"


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []


def _record(out: Path, known: Sequence[Step], state: Row, minutes: float) -> Row:
    """The visit as the summary tells it."""
    shares = sum(step.minutes for step in known)
    return {
        "subject": NAME, **circumstances("torch", "triton"), "out": str(out), "minutes": minutes,
        "seconds": state["seconds"],
        "steps": [
            {"name": step.name, "about": step.about, "minutes": minutes * step.minutes / shares,
             "shipped": step.shipped, "recorded": step.recorded} | state["steps"].get(step.name, {})
            for step in known
        ],
    }  # fmt: skip


def show(result: Row) -> str:
    """The plan, what was installed, or the summary."""
    return summary.text(result)
