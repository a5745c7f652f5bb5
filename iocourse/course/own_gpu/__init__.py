"""`iocourse gpu`: run a student's kernels compiled on the student's own GPU, and time them.

Lessons run kernels in Triton's interpreter, which counts words but has no speed. This command takes solved
exercises from saved notebooks (`saved_answers`), runs each in a second process (`compiled_run`), compares its
values, and prints its rate next to a prediction and to a recorded H200 (`timed_problems`).

It was tested with a stub in place of a GPU, and has not been run on a GPU yet.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ...cli import main
from ...console import exit_on_sigterm, table
from ...doctor.triton_missing import what_to_install
from ...errors import UsageError
from ...gpu.timing import cuda_unavailable_reason
from ..exercise import exercises
from .compiled_run import Report, run_compiled
from .saved_answers import Cell, NoAnswer, SavedAnswers
from .timed_problems import PROBLEMS

Say = Callable[[str], None]
CHOICES = ", ".join(PROBLEMS)
OPTIONS = {"TFLOP/s": "tflops", "GB/s": "gbytes"}  # option of a prediction, by unit
LATE = "the GPU waited for Python in half of the laps or more, so the time is partly that of the host"


def time_in_colab(*named: str, tflops: float | None = None, gbytes: float | None = None) -> None:
    """Do in a cell of Colab what the command does; there a notebook is not a file. Not run in Colab yet."""
    from google.colab import _message

    notebook = _message.blocking_request("get_ipynb", timeout_sec=60)["ipynb"]
    predicted = {"--tflops": tflops, "--gbytes": gbytes}
    with TemporaryDirectory() as folder:
        file = Path(folder, "notebook.ipynb")
        file.write_text(json.dumps(notebook), encoding="utf-8")
        options = [f"{name}={rate}" for name, rate in predicted.items() if rate is not None]
        with suppress(SystemExit):  # of a bad argument, which has been named
            main(["gpu", *named, f"--file={file}", *options])


def time_exercises(arguments: Namespace) -> int:
    """Handle `iocourse gpu` and return its exit code: 1 for a fault of a file or an exercise, otherwise 0.

    A fault of a copy of another lesson than those of the named exercises is a line, and does not count.
    """
    reason = what_to_install() or cuda_unavailable_reason()
    requested, cells = _requested(arguments, can_run=not reason)
    say: Say = (lambda text: None) if arguments.json else partial(print, flush=True)
    for report in requested:
        if "fault" in report:
            say(_text(report))
    if reason:
        reports = requested
        say(_records(reason, [one for one in reports if "recorded" in one]))
    else:
        reports = [one for one in requested if "fault" in one]
        with exit_on_sigterm():  # ends the second process too
            for report in requested:
                if report["exercise"] in cells:
                    say(_announcement(report))
                    run = run_compiled(report["exercise"], cells[report["exercise"]])
                    reports.append(report | _with_rates(report, run))
                    say(_text(reports[-1]))
    if arguments.json:
        print(json.dumps({"not_run": reason, "exercises": reports}, indent=1))
    return int(any("fault" in one and one.get("requested", True) for one in reports))


# ------------------------------------------------------------------ reports
def _requested(arguments: Namespace, *, can_run: bool) -> tuple[list[Report], dict[str, list[Cell]]]:
    """Return a report of each faulty notebook and of each exercise, and the cells of the solved exercises."""
    answers = SavedAnswers(arguments.file)
    named = list(dict.fromkeys(one.strip().upper() for one in arguments.exercises))
    reports: list[Report] = [
        {"exercise": file, "fault": fault, "requested": answers.concerns(file, named or [*PROBLEMS])}
        for file, fault in answers.faults.items()
    ]
    # Without a GPU no answer is needed, and a file that cannot be read has its own line.
    silent = not answers.found and bool(answers.faults if arguments.file else not can_run)
    cells: dict[str, list[Cell]] = {}
    for exercise in named or PROBLEMS:
        report = _recorded(exercise, arguments)
        try:
            if exercise in PROBLEMS:
                cells[exercise] = answers.cells_of(exercise)
        except NoAnswer as reason:
            if named and not silent:
                report["fault"] = str(reason)
        reports.append(report)
    if not (named or cells or silent) and (can_run or arguments.file):
        fault = f"none that can be timed is solved in {answers.where}. Save the notebook, or pass --file"
        reports.append({"exercise": "exercises", "fault": fault})
    _check_units(named or (cells if can_run else PROBLEMS), arguments)
    return reports, cells


def _recorded(exercise: str, arguments: Namespace) -> Report:
    """Return problem, prediction and recorded run of an exercise; a fault if it has no kernel to time."""
    if exercise not in PROBLEMS:
        fault = "it is not timed" if exercise in exercises() else "the course has no exercise of this name"
        return {"exercise": exercise, "fault": f"{fault}. Choose from {CHOICES}"}
    problem = PROBLEMS[exercise]
    record = problem.recorded()
    return {
        "exercise": exercise,
        "problem": problem.text,
        "unit": problem.unit,
        "predicted": getattr(arguments, OPTIONS[problem.unit]),
        "recorded": record.rate,
        "recorded_run": record.text,
        "recorded_source": record.source,
    }


def _check_units(named: Iterable[str], arguments: Namespace) -> None:
    """Raise UsageError for a prediction that no exercise uses."""
    units = {one: PROBLEMS[one].unit for one in named if one in PROBLEMS}
    for unit, option in OPTIONS.items():
        if units and unit not in units.values() and getattr(arguments, option) is not None:
            (right,) = {*units.values()}
            raise UsageError(
                f"--{option}: the rate of {', '.join(units)} is in {right}; use --{OPTIONS[right]}"
            )


def _with_rates(report: Report, run: Report) -> Report:
    """Return the measured values with the rates, and the ratios to the prediction and the recorded rate."""
    if "fault" in run:
        return run
    gbytes = {kind: run[f"{kind}_bytes"] / run["ms"] / 1e6 for kind in ("requested", "compulsory")}
    rate = run["flop"] / run["ms"] / 1e9 if run["flop"] else gbytes["compulsory"]
    ratios = {f"over_{one}": rate / report[one] for one in ("predicted", "recorded") if report[one]}
    return run | {"rate": rate} | ratios | {f"{kind}_gbytes_per_s": x for kind, x in gbytes.items()}


# ------------------------------------------------------------------ text
def _records(reason: str, reports: list[Report]) -> str:
    """Return why nothing was run, the recorded runs and predictions, and the devices of the records."""
    if not reports:
        return f"No kernel was run, because {reason}."
    rows = []
    for one in reports:
        rates = _rate(one, "recorded"), _rate(one, "predicted", "your prediction ")
        rows.append((one["exercise"], ", ".join(filter(None, rates)), one["recorded_run"]))
    sources = dict.fromkeys(one["recorded_source"] for one in reports if one["recorded_source"])
    said = f"No kernel was run, because {reason}. Recorded runs:"
    return "\n".join([said, table(rows, left=3), *sources])


def _announcement(report: Report) -> str:
    """Return the lines that are printed before an exercise is run."""
    option = f"iocourse gpu {report['exercise']} --{OPTIONS[report['unit']]} X"
    predicted = _rate(report, "predicted") or f"none. Predict first: {option}"
    return f"{report['exercise']}: {report['problem']}\n{_line('your prediction', predicted)}"


def _text(report: Report) -> str:
    """Return the lines that are printed after an exercise was run, or its fault in one line."""
    if "fault" in report:
        return f"{report['exercise'] or repr('')}: {report['fault']}"
    low, high = report["quartiles_ms"]
    values = f"largest error {report['error']:.1e} of the largest entry, allowed {report['allowed']:.1e}"
    ratios = {"over_predicted": "of the prediction", "over_recorded": "of the recorded rate"}
    parts = [f"{report[name]:.2f} {what}" for name, what in ratios.items() if name in report]
    lines = {
        "device": report["device"],
        "values": values,
        "time": f"{report['ms']:.3f} ms, quartiles {low:.3f} and {high:.3f} ms, {report['repeats']} laps",
        "warning": LATE if report["host_bound"] else "",
        "rate": ", ".join([_rate(report, "rate"), *parts]),
        "requested": _bytes(report, "requested"),
        "compulsory": _bytes(report, "compulsory"),
        "recorded": f"{_rate(report, 'recorded')}  {report['recorded_run']}".strip(),
        "": report["recorded_source"],
    }
    return "\n".join(_line(label, text) for label, text in lines.items() if text) + "\n"


def _line(label: str, text: str) -> str:
    return f"  {label:<17}{text}"


def _rate(report: Report, name: str, before: str = "") -> str:
    rate = report[name]
    return f"{before}{rate:,.{0 if rate >= 100 else 2}f} {report['unit']}" if rate else ""


def _bytes(report: Report, kind: str) -> str:
    return f"{report[f'{kind}_bytes'] / 1e6:,.1f} MB, {report[f'{kind}_gbytes_per_s']:,.1f} GB/s"
