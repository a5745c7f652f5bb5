"""`iocourse gpu`: run a student's kernels compiled on the student's own GPU, and time them.

Lessons run kernels in Triton's interpreter, which counts words but has no speed. This command takes solved
exercises from saved notebooks (`saved_answers`), runs each in a second process (`compiled_run`), compares its
values, and prints its rate next to a prediction and to a recorded H200 (`timed_problems`).

It was tested with a stub in place of a GPU, and has not been run on a GPU yet.
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ...console import exit_on_sigterm, table
from ...doctor.triton_missing import what_to_install
from ...gpu.timing import cuda_unavailable_reason
from .compiled_run import run_compiled
from .saved_answers import Notebooks
from .timed_problems import PROBLEMS, TimedProblem

Row = dict[str, Any]
LABEL = 12  # width of the labels of a block


def time_in_colab(*exercises: str, tflops: float | None = None, gbytes: float | None = None) -> None:
    """Do in a cell of Colab what `iocourse gpu` does: the notebook is fetched, because it is not a file there.

    Not run in Colab yet.
    """
    from google.colab import _message  # type: ignore[import-not-found]

    notebook = _message.blocking_request("get_ipynb", timeout_sec=60)["ipynb"]
    with TemporaryDirectory() as folder:
        file = Path(folder, "notebook.ipynb")
        file.write_text(json.dumps(notebook), encoding="utf-8")
        time_exercises(Namespace(exercises=exercises, file=[file], tflops=tflops, gbytes=gbytes, json=False))


def time_exercises(arguments: Namespace) -> int:
    """Handle `iocourse gpu` and return its exit code: 1 if a requested exercise could not be timed."""
    with exit_on_sigterm():  # ends the second process too
        return _time_exercises(arguments)


def _time_exercises(arguments: Namespace) -> int:
    named = list(dict.fromkeys(one.upper() for one in arguments.exercises))
    reason = what_to_install() or cuda_unavailable_reason()
    if arguments.json:
        rows = list(_records(named) if reason else _timings(named, arguments))
        print(json.dumps({"not_run": reason, "exercises": rows}, indent=1))
    elif reason:
        rows = list(_records(named))
        print(f"No kernel was run, because {reason}. Recorded runs:")
        print(_table_of_records(rows))
    else:
        rows = []
        for row in _timings(named, arguments, show=True):
            rows.append(row)
            print(_measured(row), flush=True)
    return int(any("fault" in row for row in rows))


# ------------------------------------------------------------------ rows
def _records(named: list[str]) -> Iterator[Row]:
    """Yield the recorded measurement of each exercise; the supported ones if none is named."""
    for exercise in named or PROBLEMS:
        yield _row(exercise) if exercise in PROBLEMS else _unsupported(exercise)


def _row(exercise: str) -> Row:
    problem = PROBLEMS[exercise]
    recorded = problem.recorded()
    row = {"exercise": exercise, "problem": problem.text, "unit": unit_of(problem), "recorded": recorded.rate}
    return row | {"recorded_text": recorded.text, "recorded_source": recorded.source}


def _unsupported(exercise: str) -> Row:
    return {"exercise": exercise, "fault": f"no kernel to time; this command times {', '.join(PROBLEMS)}"}


def unit_of(problem: TimedProblem) -> str:
    """Return the unit of a problem's rate: TFLOP/s, or GB/s for kernels without products."""
    return "TFLOP/s" if problem.flop else "GB/s"


def _timings(named: list[str], arguments: Namespace, show: bool = False) -> Iterator[Row]:
    """Time the exercises one after the other and yield their rows; `show` prints each prediction first."""
    notebooks = Notebooks(arguments.file)
    for fault in notebooks.faults:
        yield {"exercise": "notebook", "fault": fault}
    exercises = named or [one for one in PROBLEMS if not notebooks.answer(one).fault]
    if not exercises:
        fault = f"no solved exercise of {', '.join(PROBLEMS)} in {notebooks.where}"
        yield {"exercise": "notebook", "fault": f"{fault}; solve one and save the notebook, or pass --file"}
    for exercise in exercises:
        answer = notebooks.answer(exercise) if exercise in PROBLEMS else None
        if answer is None:
            yield _unsupported(exercise)
            continue
        if answer.fault:
            yield {"exercise": exercise, "fault": answer.fault}
            continue
        row = _row(exercise)
        row["predicted"] = arguments.tflops if row["unit"] == "TFLOP/s" else arguments.gbytes
        if show:
            print(_announced(row), flush=True)
        yield row | _with_rates(run_compiled(exercise, answer), row)


def _with_rates(report: Row, row: Row) -> Row:
    """Return the report of the second process with its rates, and ratios to the prediction and the record."""
    if "fault" in report:
        return report
    seconds = report["ms"] / 1000
    requested, compulsory = (report[name] / seconds / 1e9 for name in ("requested_bytes", "compulsory_bytes"))
    rate = report["flop"] / seconds / 1e12 if report["flop"] else compulsory
    rates = {"rate": rate, "requested_gbytes_per_s": requested, "compulsory_gbytes_per_s": compulsory}
    others = (("predicted", row["predicted"]), ("recorded", row["recorded"]))
    return report | rates | {f"over_{name}": rate / other for name, other in others if other}


# ------------------------------------------------------------------ text
def _table_of_records(rows: list[Row]) -> str:
    known = [row for row in rows if "fault" not in row]
    cells = [(row["exercise"], _rate(row["recorded"], row["unit"]), row["recorded_text"]) for row in known]
    sources = dict.fromkeys(row["recorded_source"] for row in known if row["recorded_source"])
    lines = [table(cells, left=3)] if cells else []
    return "\n".join([*lines, *sources, *(_fault(row) for row in rows if "fault" in row)])


def _announced(row: Row) -> str:
    """Return the lines of an exercise that are printed before it is run."""
    option = "--tflops" if row["unit"] == "TFLOP/s" else "--gbytes"
    predicted = _rate(row["predicted"], row["unit"])
    none = f"none; predict first: iocourse gpu {row['exercise']} {option} X"
    head = f"{row['exercise']}  {row['problem']}"
    return f"{head}\n{_line('prediction', predicted if row['predicted'] else none)}"


def _measured(row: Row) -> str:
    """Return the lines of an exercise that are printed after it was run."""
    if "fault" in row:
        return _fault(row)
    low, high = row["quartiles_ms"]
    rate = [_rate(row["rate"], row["unit"])]
    rate += [f"{row[f'over_{name}']:.2f} of the {what}" for name, what in _OTHERS if f"over_{name}" in row]
    found = [
        ("device", row["device"]),
        ("values", f"largest error {row['error']:.1e} of the largest entry; allowed {row['allowed']:.1e}"),
        ("time", f"{row['ms']:.3f} ms, quartiles {low:.3f} to {high:.3f} ms, {row['laps']} laps"),
        *([("warning", _LATE)] if row["host_bound"] else []),
        ("rate", ", ".join(rate)),
        ("requested", _bytes(row, "requested")),
        ("compulsory", _bytes(row, "compulsory")),
        ("recorded", " ".join(filter(None, (_rate(row["recorded"], row["unit"]), row["recorded_text"])))),
        *([("", row["recorded_source"])] if row["recorded_source"] else []),
    ]
    return "\n".join(_line(*one) for one in found) + "\n"


_OTHERS = (("predicted", "prediction"), ("recorded", "recorded rate"))
_LATE = "the GPU waited for Python in half of the laps or more, so the time is partly that of the host"


def _fault(row: Row) -> str:
    return f"{row['exercise']}: {row['fault']}"


def _line(label: str, text: str) -> str:
    return f"  {label:<{LABEL}}{text}"


def _rate(rate: float | None, unit: str) -> str:
    return "" if rate is None else f"{rate:,.0f} {unit}" if rate >= 100 else f"{rate:.2f} {unit}"


def _bytes(row: Row, which: str) -> str:
    return f"{row[f'{which}_bytes'] / 1e6:,.1f} MB, {row[f'{which}_gbytes_per_s']:,.1f} GB/s"
