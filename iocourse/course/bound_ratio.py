"""Ratio of a solved schedule's traffic to a lower bound, which a check prints after "Solved.".

The schedule runs on shapes only (dry), and the bound is evaluated at the peak that this run reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from .. import bounds
from ..machine import FREE_REGISTERS
from ..masks import Mask
from ..schedules import PASSES, mask_of
from .exercise import NO_LIMIT, BoundComparison, Case, RunCase, Trial

# The section that explains a bound, by its id. `bounds.BOUNDS` describes the others.
EXPLAINED = {"matmul": "2.6", "A": "4.7", "B'": "7.7", "C": "6.10", "D": "8.10", "compulsory_sparse": "8.10"}
MOST_MOVES = 12_000  # loads and stores, which take about 0.2 seconds


def attention_comparison(
    pass_: str,
    arrays: Iterable[str] = "QKV",
    *,
    N: int,
    d: int,
    every_block: bool = False,
    **told: Any,
) -> BoundComparison:
    """Return the comparison of a schedule with the largest bound for schedules that do not take P.

    Args:
        pass_: "forward" or "backward".
        arrays: the arrays that the schedule takes.
        N: sequence length.
        d: head dimension.
        every_block: count every block instead of one of several equal ones.
        told: its tile sizes, and its `mask` or the width `w` of its window.
    """
    shapes, mask = PASSES[pass_].shapes(N, d), mask_of(N, told)
    given = {name: shapes[name] for name in arrays} | told

    def bound(M: int) -> tuple[int, str]:
        return bounds.lower_bound(pass_, N, d, M, mask=mask, given_weights=False)

    return BoundComparison(given, bound, every_block)


def product_comparison(
    shapes: Mapping[str, tuple[int, int]], m: int, n: int, k: int, **tiles: int
) -> BoundComparison:
    """Return the comparison of a schedule for an (m, k) by (k, n) product of arrays of these shapes."""

    def bound(M: int) -> tuple[int, str]:
        return bounds.matmul(m, n, k, M + FREE_REGISTERS), bounds.matmul.id

    return BoundComparison({**shapes, **tiles}, bound)


def bound_ratio_message(
    comparison: BoundComparison, run_case: RunCase, schedule: Callable[..., Any], small: Case
) -> str:
    """Return the sentence that is printed after "Solved.".

    It has no ratio if a dry run of the `small` case counts other words than a real run.
    """
    machine = {"dry": True, "unroll": comparison.every_block, "max_moves": MOST_MOVES}
    sizes = _sizes(comparison.inputs)
    counted = run_case(schedule, Case(sizes, comparison.inputs, M=NO_LIMIT, machine=machine))
    dry = run_case(schedule, replace(small, machine=machine))
    if counted.error or dry.error or dry.ledger != run_case(schedule, small).ledger:
        return (
            f"No comparison with the lower bound for {sizes}: a dry run cannot count your schedule. "
            "It needs loops over m.blocks."
        )
    return _sentence(counted, *comparison.bound(counted.ledger.peak))


def _sentence(counted: Trial, least: int, bound: str) -> str:
    words, M = counted.ledger.total, counted.ledger.peak
    named = f"Theorem {bound}" if bound in ("A", "B'", "C", "D") else f"bound {bound}"
    named += f", section {EXPLAINED[bound]}" if bound in EXPLAINED else ""
    where = f"for {counted.case.label}, with {M:,} words of fast memory"
    if words < least:
        return (
            f"Your schedule moves {words:,} words {where}. The lower bound ({named}) is {least:,}, but it "
            "holds for another class of schedules."
        )
    return (
        f"Your schedule moves {words / least:.2f} times the lower bound ({named}):\n"
        f"  {words:,} words compared with {least:,}, {where}."
    )


def _sizes(inputs: Mapping[str, Any]) -> str:
    """Format the sizes as N = 1,024, d = 64, Br = 16; for other arrays format their shapes."""
    shape = inputs.get("Q")
    shapes = (
        {"N": shape[0], "d": shape[1]} if shape else {k: v for k, v in inputs.items() if isinstance(v, tuple)}
    )
    tiles = {name: value for name, value in inputs.items() if isinstance(value, int)}
    masks = [repr(value) for value in inputs.values() if isinstance(value, Mask)]
    parts = []
    for name, value in {**shapes, **tiles}.items():
        sides = [value] if isinstance(value, int) else value
        parts.append(f"{name} = {' × '.join(f'{side:,}' for side in sides)}")
    return ", ".join([*parts, *masks])
