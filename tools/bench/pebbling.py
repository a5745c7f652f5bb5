"""Run time of exact pebbling by graph, and the words that an optimal pebbling moves."""

from __future__ import annotations

import time
from typing import Any

from iocourse.console import table
from iocourse.data.records import record_source, run_metadata
from iocourse.pebbling import Graph, attention, compulsory, matmul, optimum, softmax_row

NAME = "pebbling"
HELP = "run time of exact pebbling on the course's smallest graphs"
GOALS_S = {20: 10.0, 40: 60.0}  # by maximum number of vertices
QUICK_VERTICES = 16

CASES: list[tuple[str, Graph, bool, list[int]]] = [  # name, graph, slide, values of M
    ("softmax row of 4", softmax_row(4), False, [3, 4, 5, 6]),
    ("2×2×2 matmul, fma", matmul(2, 2, 2, fma=True), True, [3, 4, 5, 6]),
    ("2×2×2 matmul", matmul(2, 2, 2), False, [3, 4, 5, 6, 7]),
    ("attention 2×2, fma", attention(2, 2, fma=True), True, [3, 4, 5, 6, 7]),
    ("attention 2×2", attention(2, 2), False, [3, 4, 5, 6, 7, 8]),
    ("3×2×2 matmul, fma", matmul(3, 2, 2, fma=True), True, [3, 4, 5, 6, 7]),
    ("2×2×3 matmul, fma", matmul(2, 2, 3, fma=True), True, [3, 4, 5, 6, 7]),
    ("attention 3×2, fma", attention(3, 2, fma=True), True, [5, 6, 7]),
    ("attention 2×3, fma", attention(2, 3, fma=True), True, [6, 7, 8]),
    ("3×3×2 matmul, fma", matmul(3, 3, 2, fma=True), True, [7, 8, 9]),
]


def run(quick: bool) -> dict[str, Any]:
    """Measure wall seconds, words and states of every case.

    Args:
        quick: only graphs of at most 16 vertices instead of all.
    """
    cases = [case for case in CASES if not quick or len(case[1]) <= QUICK_VERTICES]
    measured = [_entry(name, graph, slide, M) for name, graph, slide, sizes in cases for M in sizes]
    return {"subject": NAME, **run_metadata(), "measured": measured}


def _entry(name: str, graph: Graph, slide: bool, M: int) -> dict[str, Any]:
    start = time.perf_counter()
    found = optimum(graph, M, slide=slide)
    seconds = time.perf_counter() - start
    about = {"graph": name, "vertices": len(graph), "slide": slide, "M": M}
    words = {"words": found.cost, "compulsory": compulsory(graph), "states": found.states}
    goal = min(limit for vertices, limit in GOALS_S.items() if len(graph) <= vertices)
    return about | words | {"seconds": round(seconds, 4), "goal_s": goal}


def show(result: dict[str, Any]) -> str:
    """Format the record as plain text, one line per case."""
    rows = [
        [
            one["graph"], f"{one['vertices']} vertices", f"M={one['M']}", f"{one['words']} words",
            f"(compulsory {one['compulsory']})", f"{one['states']:,} states", f"{one['seconds']:.3f} s",
            f"goal below {one['goal_s']:.0f} s",
        ]
        for one in result["measured"]
    ]  # fmt: skip
    return f"{table(rows)}\nonce each, {result['cores']} cores, {record_source(result)}"
