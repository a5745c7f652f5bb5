"""predict(...) before a measurement, measured(...) after it: what did you expect, what came out."""

from __future__ import annotations

from typing import Any

from . import progress
from .attempts import Unsolved

Number = float | int | bool
_predicted: dict[str, dict[str, Any]] = {}


def predict(question: str, **numbers: Any) -> None:
    """Write down what you expect: `predict("3.2", rescalings=4)`; `...` stands for "not yet".

    Numbers and True/False are kept for `measured`. Raises TypeError for anything else.
    """
    for name, value in numbers.items():
        if value is not ... and not isinstance(value, (int, float)):
            raise TypeError(f"{name} must be a number, True or False, or ... for not yet; got {value!r}")
    given = {name: value for name, value in numbers.items() if value is not ...}
    missing = [name for name, value in numbers.items() if value is ...]
    _predicted[question] = given
    if given:
        print(
            f"Prediction {question}: "
            + ", ".join(f"{name} = {_show(value)}" for name, value in given.items())
        )
        progress.record(f"p{question}", "seen", prediction=given)
    if missing:
        names = ", ".join(missing)
        print(f"Prediction {question}: write your answer for {names} in place of ... before you go on")


def predicted(question: str) -> dict[str, Any]:
    """What was predicted for a question in this session, or else in an earlier one; empty if nothing was."""
    if _predicted.get(question):
        return _predicted[question]
    return dict(progress.load().get(f"p{question}", {}).get("prediction") or {})


def measured(question: str, **numbers: Any) -> None:
    """Print what was measured beside what was predicted for the same question and name."""
    expected = predicted(question)
    for name, value in numbers.items():
        if isinstance(value, Unsolved):
            print(f"{name}: {value}")
        else:
            print(f"{name}: {_show(value)} measured, {_against(expected.get(name), value)}")


def _against(expected: Any, value: Any) -> str:
    if expected is None:
        return "no prediction"
    if isinstance(value, bool) or isinstance(expected, bool):
        return f"{_show(expected)} predicted: {'right' if bool(expected) == bool(value) else 'not so'}"
    if expected == value:
        return f"{_show(expected)} predicted: right"
    factor = f", a factor of {value / expected:.2f}" if expected else ""
    return f"{_show(expected)} predicted: off by {_show(abs(value - expected))}{factor}"


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
