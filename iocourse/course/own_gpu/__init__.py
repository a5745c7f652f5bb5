"""`iocourse gpu`: run a student's kernels compiled on the student's own GPU, and time them.

Lessons run kernels in Triton's interpreter, which counts words but has no speed. This command takes solved
exercises from saved notebooks (`saved_answers`), runs each in a second process (`compiled_run`), compares its
values, and prints its rate next to a prediction and to a recorded H200 (`timed_problems`).

It was tested with a stub in place of a GPU, and has not been run on a GPU yet.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ...console import exit_on_sigterm, table
from ...doctor.triton_missing import what_to_install
from ...gpu.timing import cuda_unavailable_reason
from .compiled_run import Report, run_compiled
from .saved_answers import NoAnswer, SavedAnswers
from .timed_problems import PROBLEMS

Say = Callable[[str], None]
OPTIONS = {"TFLOP/s": "tflops", "GB/s": "gbytes"}  # option of a prediction, by unit
LATE = "the GPU waited for Python in half of the laps or more, so the time is partly that of the host"


def time_in_colab(*exercises: str, tflops: float | None = None, gbytes: float | None = None) -> None:
    """Do in a cell of Colab what the command does; there a notebook is not a file. Not run in Colab yet."""
    from google.colab import _message

    notebook = _message.blocking_request("get_ipynb", timeout_sec=60)["ipynb"]
    with TemporaryDirectory() as folder:
        file = Path(folder, "notebook.ipynb")
        file.write_text(json.dumps(notebook), encoding="utf-8")
        time_exercises(Namespace(exercises=exercises, file=[file], tflops=tflops, gbytes=gbytes, json=False))


def time_exercises(arguments: Namespace) -> int:
    """Handle `iocourse gpu` and return its exit code: 1 if an exercise could not be timed, otherwise 0."""
    named = [one.upper() for one in arguments.exercises]
    reason = what_to_install() or cuda_unavailable_reason()
    say: Say = (lambda text: None) if arguments.json else partial(print, flush=True)
    if reason:
        reports = [_recorded(one) for one in named or PROBLEMS]
        say(f"No kernel was run, because {reason}. Recorded runs:\n{_table(reports)}")
    else:
        reports = []
        with exit_on_sigterm():  # ends the second process too
            for report in _timed(named, arguments, say):
                reports.append(report)
                say(_text(report))
    if arguments.json:
        print(json.dumps({"not_run": reason, "exercises": reports}, indent=1))
    return int(any("fault" in one for one in reports))


# ------------------------------------------------------------------ reports
def _recorded(exercise: str) -> Report:
    """Return the problem of an exercise and its recorded run, or a fault if it has no kernel to time."""
    if exercise not in PROBLEMS:
        return {"exercise": exercise, "fault": f"not timed here. Choose from {', '.join(PROBLEMS)}"}
    problem = PROBLEMS[exercise]
    record = problem.recorded()
    return {
        "exercise": exercise,
        "problem": problem.text,
        "unit": problem.unit,
        "recorded": record.rate,
        "recorded_run": record.text,
        "recorded_source": record.source,
    }


def _timed(named: list[str], arguments: Namespace, say: Say) -> Iterator[Report]:
    """Time the exercises one after the other, and print each prediction before its run."""
    answers = SavedAnswers(arguments.file)
    for file, fault in answers.faults.items():
        yield {"exercise": file, "fault": fault}
    solved = 0
    for exercise in named or PROBLEMS:
        report = _recorded(exercise)
        try:
            cells = answers.cells_of(exercise) if "fault" not in report else []
        except NoAnswer as reason:
            if named:
                yield {"exercise": exercise, "fault": str(reason)}
            continue
        solved += 1
        if cells:
            report["predicted"] = getattr(arguments, OPTIONS[report["unit"]])
            say(_announcement(report))
            report |= _with_rates(report, run_compiled(exercise, cells))
        yield report
    if not named and not solved:
        fault = (
            f"none of {', '.join(PROBLEMS)} is solved in {answers.where}. Save the notebook, or pass --file"
        )
        yield {"exercise": "exercises", "fault": fault}


def _with_rates(report: Report, run: Report) -> Report:
    """Return the measured values with the rates, and the ratios to the prediction and the recorded rate."""
    if "fault" in run:
        return run
    gbytes = {kind: run[f"{kind}_bytes"] / run["ms"] / 1e6 for kind in ("requested", "compulsory")}
    rate = run["flop"] / run["ms"] / 1e9 if run["flop"] else gbytes["compulsory"]
    ratios = {f"over_{one}": rate / report[one] for one in ("predicted", "recorded") if report[one]}
    return run | {"rate": rate} | ratios | {f"{kind}_gbytes_per_s": x for kind, x in gbytes.items()}


# ------------------------------------------------------------------ text
def _table(reports: list[Report]) -> str:
    """Return the recorded runs, the devices that they are from, and the faults."""
    known = [one for one in reports if "fault" not in one]
    rows = [(one["exercise"], _rate(one, "recorded"), one["recorded_run"]) for one in known]
    sources = dict.fromkeys(one["recorded_source"] for one in known if one["recorded_source"])
    faults = [_text(one) for one in reports if "fault" in one]
    return "\n".join([*([table(rows, left=3)] if rows else []), *sources, *faults])


def _announcement(report: Report) -> str:
    """Return the lines that are printed before an exercise is run."""
    option = f"iocourse gpu {report['exercise']} --{OPTIONS[report['unit']]} X"
    predicted = _rate(report, "predicted") or f"none. Predict first: {option}"
    return f"{report['exercise']}: {report['problem']}\n{_line('your prediction', predicted)}"


def _text(report: Report) -> str:
    """Return the lines that are printed after an exercise was run, or its fault in one line."""
    if "fault" in report:
        return f"{report['exercise']}: {report['fault']}"
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


def _rate(report: Report, name: str) -> str:
    rate = report[name]
    return f"{rate:,.{0 if rate >= 100 else 2}f} {report['unit']}" if rate else ""


def _bytes(report: Report, kind: str) -> str:
    return f"{report[f'{kind}_bytes'] / 1e6:,.1f} MB, {report[f'{kind}_gbytes_per_s']:,.1f} GB/s"
