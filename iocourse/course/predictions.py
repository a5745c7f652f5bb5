"""predict(...) before a measurement, measured(...) after it: what did you expect, what came out."""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Any

import numpy as np

from . import progress
from .attempts import Unsolved

CLOSE = 0.05  # of the prediction: what counts as right although only one digit was given
LARGE = 1e5  # from here on a float is written with an exponent
Number = float | int | bool
_predicted: dict[str, dict[str, Any]] = {}


def predict(question: str, **numbers: Any) -> None:
    """Write down what you expect: `predict("3.2", rescalings=4)`; `...` stands for "not yet".

    Numbers and True/False are kept for `measured`. Anything else is named in a line, and not kept.
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
    """What was predicted for a question: in this session if its `predict` was run, otherwise before.

    Empty if nothing was predicted. Another copy of the lesson may have filled in what this copy leaves empty;
    only the answer of this copy counts here.
    """
    if question in _predicted:
        return _predicted[question]
    try:
        kept = progress.load().get(f"p{question}", {}).get("prediction")
    except OSError as error:
        progress.warn_once(f"what was predicted before cannot be read: {error}")
        kept = None
    return dict(kept) if isinstance(kept, dict) else {}


def measured(question: str, **numbers: Any) -> None:
    """Print what was measured beside what was predicted for the same question and name."""
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
        return (
            f"{format_number(expected)} predicted: {'right' if bool(expected) == bool(value) else 'not so'}"
        )
    if not isinstance(value, (int, float)):
        return f"{format_number(expected)} predicted: what was measured is no number"
    if equal_in_the_digits_given(expected, value):
        return f"{format_number(expected)} predicted: right"
    off = format_number(abs(value - expected))
    return f"{format_number(expected)} predicted: off by {off}{_factor(expected, value)}"


def _factor(expected: float, value: float) -> str:
    """The factor between the two in words; nothing where there is none, or where it would read 1.00."""
    factor = f"{value / expected:.2f}" if expected else "1.00"
    return "" if factor == "1.00" else f", a factor of {factor}"


def equal_in_the_digits_given(expected: float, value: float) -> bool:
    """Whether the value, rounded to the digits the prediction was given in, is the prediction.

    1.33 is right for 1.329, and 2.7e8 for 268,435,456. A single digit may be off by no more than 5 % either:
    1 is right for 0.9998 and not for 1.4.
    """
    if expected == value:
        return True
    if isinstance(expected, int) and isinstance(value, int):
        return False
    if not (isfinite(expected) and isfinite(value)):
        return False
    off = abs(value - expected)
    return off < _last_digit(expected) / 2 and off <= CLOSE * (abs(expected) or 1.0)


def _last_digit(number: float) -> float:
    """What one more in the last digit is worth, as Python writes the number: 0.01 for 1.33, 10⁷ for 2.7e8."""
    written = Decimal(repr(number))
    if isinstance(number, float) and abs(number) >= LARGE and number == int(number):
        written = written.normalize()  # nobody writes 270,000,000.0 and means the zeros
    exponent = written.as_tuple().exponent
    return float(10 ** Decimal(int(exponent)))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def format_number(value: Any) -> str:
    """A number as `predict` and `measured` print it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
