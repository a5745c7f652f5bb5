"""In what precision a student's kernel multiplies: nothing that the interpreter computes shows it.

Where `tl.dot` is not asked for "ieee", Triton may round float32 factors to tf32, with 10 bits behind the
point, for the sake of tensor cores. The interpreter multiplies in float32 whatever it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ...exercise import Property, Trial
from ...properties import each, idle


@dataclass(frozen=True)
class KernelTrial(Trial):
    """A trial of kernels, and how many products of float32 tiles a GPU would make of rounded factors."""

    rounded: int = 0


@dataclass
class Products:
    """Uses of `tl.dot`, counted while kernels run."""

    rounded: int = 0


@contextmanager
def products_watched() -> Iterator[Products]:
    """Count the products of float32 factors that were asked for in tf32."""
    from triton.runtime.interpreter import InterpreterBuilder

    seen, multiply = Products(), InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, *rest: Any) -> Any:
        wide = a.data.dtype.itemsize >= 4
        seen.rounded += wide and str(getattr(input_precision, "name", input_precision)).upper() == "TF32"
        return multiply(self, a, b, d, input_precision, *rest)

    InterpreterBuilder.create_dot = create_dot
    try:
        yield seen
    finally:
        InterpreterBuilder.create_dot = multiply


def full_products() -> Property:
    """No product of float32 tiles leaves it to Triton to round its factors."""

    def judge(trial: Trial) -> str | None:
        rounded = trial.rounded if isinstance(trial, KernelTrial) else 0
        if not rounded:
            return None
        times = "once" if rounded == 1 else f"{rounded:,} times"
        return f'tl.dot was called {times} without input_precision="ieee": a GPU rounds to 10 bits there'

    return idle(each("float32 is multiplied as float32", judge))
