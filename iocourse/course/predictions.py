"""Record a prediction (`predict`) and compare it with the measured value later (`measured`)."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Any

import numpy as np

from . import progress
from .attempts import Unsolved

CLOSE = 0.05  # maximum relative error of a correct prediction, also if it has only one digit
LARGE = 1e5  # trailing zeros of floats from this size on are not significant digits
Number = float | int | bool
_predicted: dict[str, dict[str, Any]] = {}


def predict(question: str, **numbers: Any) -> None:
    """Record a prediction, such as `predict("3.2", rescalings=4)`; `...` means that it is still missing.

    Args:
        question: id of the question.
        numbers: predicted numbers or True/False by name. Other values are reported and not recorded.
    """
    plain = {name: _plain(value) for name, value in numbers.items()}
    given = {name: value for name, value in plain.items() if isinstance(value, (int, float))}
    missing = [name for name, value in plain.items() if value is ...]
    for name, value in plain.items():
        if name not in given and value is not ...:
            wanted = "a number, True or False, or ... for not yet"
            print(f"Prediction {question}: {name} must be {wanted}; got {value!r}")
    _predicted[question] = given
    if given:
        print(
            f"Prediction {question}: "
            + ", ".join(f"{name} = {format_number(value)}" for name, value in given.items())
        )
        progress.record(f"p{question}", "seen", prediction=given)
    if missing:
        names = ", ".join(missing)
        print(f"Prediction {question}: write your answer for {names} in place of ... before you go on")


def predicted(question: str) -> dict[str, Any]:
    """Return the prediction for a question, by name; empty if there is none.

    The `predict` call of this session counts, otherwise the recorded prediction. If this copy of the lesson
    leaves a prediction empty, the answer given in another copy is not used.
    """
    if question in _predicted:
        return _predicted[question]
    try:
        kept = progress.load().get(f"p{question}", {}).get("prediction")
    except OSError as error:
        progress.warn_once(f"cannot read your earlier predictions: {error}")
        kept = None
    return dict(kept) if isinstance(kept, dict) else {}


def measured(question: str, **numbers: Any) -> None:
    """Print measured values next to the predictions for the same question and name.

    Args:
        question: id of the question, as in `predict`.
        numbers: measured values by name.
    """
    expected = predicted(question)
    for name, value in numbers.items():
        value = _plain(value)
        if isinstance(value, Unsolved):
            print(f"{name}: {value}")
        else:
            print(f"{name}: {format_number(value)} measured, {_against(expected.get(name), value)}")


def _against(expected: Any, value: Any) -> str:
    if expected is None:
        return "no prediction"
    if isinstance(value, bool) or isinstance(expected, bool):
        return f"{format_number(expected)} predicted: {'right' if bool(expected) == bool(value) else 'wrong'}"
    if not isinstance(value, (int, float)):
        return f"{format_number(expected)} predicted: the measured value is not a number"
    if equal_in_the_digits_given(expected, value):
        return f"{format_number(expected)} predicted: right"
    off = format_number(abs(value - expected))
    return f"{format_number(expected)} predicted: off by {off}{_factor(expected, value)}"


def _factor(expected: float, value: float) -> str:
    """Return ", a factor of …" for value / expected; "" if `expected` is 0 or the ratio rounds to 1.00."""
    factor = f"{value / expected:.2f}" if expected else "1.00"
    return "" if factor == "1.00" else f", a factor of {factor}"


def equal_in_the_digits_given(expected: float, value: float) -> bool:
    """Return True if the value, rounded to the digits of the prediction, equals the prediction.

    1.33 is correct for 1.329, and 2.7e8 for 268,435,456. The relative error must also be at most 5 %: 1 is
    correct for 0.9998 but not for 1.4.
    """
    # <!-- 5 = 10**2 * course.predictions.CLOSE -->
    if expected == value:
        return True
    if isinstance(expected, int) and isinstance(value, int):
        return False
    if not (isfinite(expected) and isfinite(value)):
        return False
    off = abs(value - expected)
    return off < _last_digit(expected) / 2 and off <= CLOSE * (abs(expected) or 1.0)


def _last_digit(number: float) -> float:
    """Return the unit of the last digit, as Python prints the number: 0.01 for 1.33, 10⁷ for 2.7e8."""
    written = Decimal(repr(number))
    if isinstance(number, float) and abs(number) >= LARGE and number == int(number):
        written = written.normalize()  # the zeros of 270,000,000.0 are not significant
    exponent = written.as_tuple().exponent
    return float(10 ** Decimal(int(exponent)))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def format_number(value: Any) -> str:
    """Format a number as `predict` and `measured` print it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
