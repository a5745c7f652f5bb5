"""A visit to a GPU in one command: the steps of `plan` in their order, and what to do with what they found.

It can be cut off at any time: what is measured is on disk after every shape, and the same command goes on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import inf
from pathlib import Path

from iocourse.console import ended_by_term
from iocourse.doctor.circumstances import circumstances
from iocourse.gpu.timing import no_cuda
from iocourse.refusal import Refused, write_json, write_whole
from tools.bench import Row
from tools.bench.device import ROOT, environment
from tools.bench.gpu.contenders import tutorial_file
from tools.bench.visit import summary
from tools.bench.visit.install import install as put_into_package
from tools.bench.visit.plan import CHECKS, MINUTES, Step, chosen, limit, needless, steps
from tools.bench.visit.running import run_commands
from tools.bench.visit.state import CUT, DONE, FAILED, FILE, NEEDLESS, RUNNING, alone, keep_better, load

NAME = "visit"
HELP = (
    "all of the GPU's benchmarks in one visit, which can be cut off and goes on where it stopped (needs CUDA)"
)
OUT = Path("build", "visit")
ENOUGH = 5.0  # seconds below which no step begins
FIRST = ("machine", "values")  # nothing is timed before these
WRONG = ": WRONG, "  # in a line of the checks
show = summary.text


def run(
    quick: bool, minutes: float = MINUTES, sitting: float | None = None, out: Path = OUT,
    only: Sequence[str] = (), tutorial: Path | None = None, list: bool = False, install: bool = False,
    anyway: bool = False,
) -> Row:  # fmt: skip
    """Run the steps that are not done yet, or those in `only`; the record says what became of each.

    The options are those of the command line, which says what each means. `list` and `install` run nothing.
    Raises Refused where an argument is not as it says, `quick` among them, there is no GPU, or the folder is
    in use or cannot be read.
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
    if list or install:
        done = {"plan": True} if list else {"installed": put_into_package(out, known)}
        return _record(out, known, load(out), minutes) | done
    if reason := no_cuda():
        raise Refused(
            f"{reason}, and a visit times kernels on an NVIDIA GPU: run it where one is; "
            "without one, --list shows the plan and --install takes the records of an earlier visit"
        )
    with alone(out), ended_by_term():
        state = load(out)
        for step in known:
            keep_better(out, step.name)
        left = 60 * minutes - state["seconds"]
        if left < ENOUGH:
            raise Refused(f"--minutes is {minutes:g}, and {minutes - left / 60:.1f} are spent; allowed: more")
        ends, stopped = time.monotonic() + 60 * sitting if sitting else inf, "it was interrupted"
        to_do = asked if only else _to_do(asked, state)
        try:
            stopped = _visit(out, to_do, state, left, ends, anyway)
        finally:
            found = _record(out, known, state, minutes) | {"exit": int(bool(stopped)), "stopped": stopped}
            write_whole(out / summary.FILE, summary.text(found) + "\n")
    return found


def _to_do(asked: Sequence[Step], state: Row) -> list[Step]:
    """The steps that are not done, what has had its time already behind what had none."""
    was = {step.name: state["steps"].get(step.name, {}).get("state") for step in asked}
    rest = [step for step in asked if was[step.name] not in (DONE, NEEDLESS)]
    return sorted(rest, key=lambda step: step.name not in FIRST and was[step.name] in (CUT, FAILED))


def _visit(out: Path, to_do: Sequence[Step], state: Row, seconds: float, ends: float, anyway: bool) -> str:
    """Run the steps and keep the state; why the visit stopped before its end, "" where it did not."""
    for at, step in enumerate(to_do):
        here = ends - time.monotonic()
        allowed = limit(step, to_do[at:], seconds)
        if min(here, seconds) < ENOUGH or (allowed > here and at):
            return ""
        entry = _run_step(out, step, state, min(allowed, here))
        seconds -= entry["seconds"]
        if step.name == "values" and not anyway and (wrong := _values_refused(out, step, entry)):
            return wrong
    return ""


def _run_step(out: Path, step: Step, state: Row, allowed: float) -> Row:
    """Run one step; the state says that it runs, and then how it ended."""
    commands = {label: " ".join(command) for label, command in step.commands.items()}
    entry: Row = {"state": RUNNING, "commands": commands, "seconds": 0.0, "limit": round(allowed)}
    if why := needless(out, step):
        entry |= {"state": NEEDLESS, "why": why}
    state["steps"][step.name] = entry
    write_json(out / FILE, state)
    if why:
        return entry
    print(f"--- {step.name}: {step.about}; {allowed:.0f} s at most", flush=True)
    # Kernels are compiled, lines are written at once, and the tests' helpers are found.
    around = environment(ROOT / CHECKS.parent, interpret=False) | {"PYTHONUNBUFFERED": "1"}
    started, entry["state"] = time.monotonic(), CUT  # unless it ends by itself, here or by Ctrl-C
    try:
        entry["codes"], cut = run_commands(step.commands, step.logs(out), allowed, around)
        # That nvidia-smi or doctor cannot speak keeps nobody from measuring.
        fine = step.name == "machine" or {*entry["codes"].values()} == {0}
        entry["state"] = CUT if cut else DONE if fine else FAILED
    finally:
        entry["seconds"] = round(time.monotonic() - started, 1)
        state["seconds"] = round(state["seconds"] + entry["seconds"], 1)
        keep_better(out, step.name)
        write_json(out / FILE, state)
    if len(step.commands) > 1:
        print(_last_lines(out, step))
    print(f"--- {step.name}: {entry['state']} after {entry['seconds']:.0f} s", flush=True)
    return entry


def _values_refused(out: Path, step: Step, entry: Row) -> str:
    """What is wrong with values so that nothing may be timed; "" where nothing is, or they took too long."""
    if entry["state"] == DONE:
        return ""
    if not step.commands:
        why = f"values cannot be checked: {CHECKS} is in the repository and not in the package"
        return f"{why}; run the visit in a checkout, or with --anyway"
    found = [line for lines in _said(out, step).values() for line in lines if WRONG in line]
    if found:
        return "\n".join(["VALUES ARE WRONG, so nothing is timed (--anyway would):", *found])
    if entry["state"] == CUT:
        return ""
    return f"values could not be checked (--anyway goes on):\n{_last_lines(out, step)}"


def _last_lines(out: Path, step: Step) -> str:
    """The last line of each log of a step."""
    return "\n".join(f"{label}: {['nothing', *said][-1]}" for label, said in _said(out, step).items())


def _said(out: Path, step: Step) -> dict[str, list[str]]:
    """The lines of each log of a step."""
    return {label: log.read_text("utf-8", "replace").splitlines() for label, log in step.logs(out).items()}


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
