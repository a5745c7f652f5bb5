"""Exercises of lesson 06: a tile of score gradients, the fused backward pass, two passes and their constants.

Part b (06b): the charge of a pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from ... import costs, exact
from ...ledger import Ledger
from ..bound_ratio import attention_comparison
from ..exercise import Case, Property, Sample, exercise
from ..guard import library_solution
from ..kinds.function import function_exercise
from ..kinds.schedule import one_more_of_each_kind, schedule_exercise
from ..properties import (
    LARGE,
    block_size,
    idle,
    part,
    reads,
    reads_within,
    values_in,
    writes,
)
from ..trials.case_inputs import (
    STRETCH,
    exact_gradients,
    samples_with_equal_arrays,
    tilings,
    with_large,
    with_long_blocks,
)

Array = np.ndarray
Arrays = dict[str, Any]
ALL_KEYS = "all keys in one tile"


def _inputs(rng: np.random.Generator, N: int, d: int, *, large: bool = False) -> Arrays:
    """Return the inputs of a backward pass: Q, K, V, dO, and O and LSE of the forward pass."""
    Q, K, V, dO = rng.standard_normal((4, N, d))
    Q *= STRETCH if large else 1.0
    S = exact.scores(Q, K)
    return {"Q": Q, "K": K, "V": V, "O": exact.softmax(S) @ V, "dO": dO, "LSE": exact.log_sum_exp(S)}


# ------------------------------------------------------------------ 6A: one tile
def tile_cases(rng: np.random.Generator) -> list[Case]:
    """Return tiles of a larger attention: everything, some keys, some rows, one pair, scores of ±10,000.

    Some rows occur again with other values, and some with a larger d.
    """
    N, d = int(rng.integers(9, 14)), int(rng.integers(3, 8))
    arrays, large = _inputs(rng, N, d), _inputs(rng, N, d, large=True)
    others, longer = _inputs(rng, N, d), _inputs(rng, N, d + 1)
    start, stop = 2, N - 3
    return [
        _tile_case(arrays, (0, N), (0, N), f"N={N}, d={d}, {ALL_KEYS}"),
        _tile_case(arrays, (start, stop), (0, N), f"N={N}, d={d}, some rows, {ALL_KEYS}"),
        _tile_case(arrays, (0, N), (start, stop), f"N={N}, d={d}, keys {start} to {stop - 1}"),
        _tile_case(arrays, (1, stop), (start, N), f"N={N}, d={d}, some rows, keys {start} to {N - 1}"),
        _tile_case(arrays, (3, 4), (1, 2), f"N={N}, d={d}, one row and one key"),
        _tile_case(others, (start, stop), (0, N), f"N={N}, d={d}, other numbers, some rows, {ALL_KEYS}"),
        _tile_case(longer, (0, N), (0, N), f"N={N}, d={d + 1}, {ALL_KEYS}"),
        _tile_case(large, (0, N), (0, stop), f"N={N}, d={d}, {LARGE}"),
    ]


def _tile_case(a: Arrays, rows: tuple[int, int], keys: tuple[int, int], label: str) -> Case:
    i, j = slice(*rows), slice(*keys)
    P = exact.softmax(exact.scores(a["Q"], a["K"]))
    dS = exact.softmax_backward(P, a["dO"] @ a["V"].T)
    queries = {"do": a["dO"][i], "o": a["O"][i], "L": a["LSE"][i]}
    inputs = {"q": a["Q"][i], "k": a["K"][j], "v": a["V"][j], **queries}
    overflows, whole = a["LSE"].max() > 1e3, keys == (0, len(a["K"]))
    tag = LARGE if overflows else ALL_KEYS if whole else ""
    return Case(label, inputs, (P[i, j], dS[i, j]), tags=frozenset({tag} - {""}))


TILE = ("p", "ds")
TILE_PROPERTIES = (
    part("p is correct when the tile holds all keys", TILE, 0, ALL_KEYS),
    part("p is the tile's part of P", TILE, 0),
    part("ds is correct when the tile holds all keys", TILE, 1, ALL_KEYS),
    part("ds is the tile's part of dS", TILE, 1),
)


# ------------------------------------------------------------------ 6B and 6D: schedules
def backward_inputs(rng: np.random.Generator) -> list[Sample]:
    """Return samples of many tiles; in the last one exp(s) overflows.

    d exceeds Bc + 4, so that the allowance never holds another (Br, d).
    """
    draw = partial(_inputs, rng)
    return with_large(
        samples_with_equal_arrays("N d Br Bc", with_long_blocks(tilings(rng, 12, 17)), draw), draw
    )


def _dQ_and_D(O: Array, dO: Array, **rest: Any) -> tuple[Array, ...]:
    return exact_gradients(dO=dO, **rest)[0], (dO * O).sum(axis=1)


def dq_plain(N: int, d: int, *, Br: int, Bc: int) -> Ledger:
    """Return the first pass of `costs.split_backward`: 4Nd + 2N + 2Nd⌈N/Br⌉ words."""
    r, c, passes = min(Br, N), min(Bc, N), costs.ceil_div(N, Br)
    return Ledger(
        reads={
            **dict.fromkeys(("Q", "O", "dO"), N * d),
            **dict.fromkeys(("K", "V"), N * d * passes),
            "LSE": N,
        },
        writes={"D": N, "dQ": N * d},
        peak=r * (3 * d + 2 + c) + 2 * c * d,
        sizes={**dict.fromkeys(("Q", "K", "V", "O", "dO", "dQ"), N * d), "LSE": N, "D": N},
    )


def _values(outputs: Sequence[str]) -> tuple[Property, ...]:
    exact_ones = (part(f"{name} is exact", outputs, k) for k, name in enumerate(outputs))
    overflow = idle(part(f"{LARGE} neither overflow nor vanish", outputs, 0, LARGE))
    return (*exact_ones, block_size(part=0), overflow)


INPUTS = ("Q", "K", "V", "O", "dO", "LSE")


# ------------------------------------------------------------------ 6C: resident arrays times streamed arrays
FOR_DQ, FOR_DK = "dQ with resident rows", "dK, or dK and dV, with resident columns"
V_AWAY, PASSING = "dV only", "streamed gradient"


def sides_and_gradients(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield both sides with every set of gradients, in random order."""
    names = ("dQ", "dK", "dV")
    sets = [frozenset(some) for n in (1, 2, 3) for some in combinations(names, n)]
    both = [(stays, some) for stays in ("rows", "columns") for some in sets]
    for stays, some in (both[k] for k in rng.permutation(len(both))):
        sizes = {"stays": stays, "gradients": " and ".join(sorted(some))}
        inputs = {"stays": stays, "gradients": set(some)}  # a set, as in the notebook
        passing = some & ({"dK", "dV"} if stays == "rows" else {"dQ"})
        tag = PASSING if passing else FOR_DQ if stays == "rows" else V_AWAY if some == {"dV"} else FOR_DK
        yield Sample(sizes, inputs, {"constant": constant(stays, some)}, tags=(tag,))


@library_solution
def constant(stays: str, gradients: frozenset[str]) -> int:
    """Return the number of resident arrays times that of streamed arrays; gradients streamed count twice."""
    on_rows, on_columns = len(gradients & {"dQ"}), len(gradients & {"dK", "dV"})
    columns = 1 if gradients == {"dV"} else 2  # dV needs only P, not V
    if stays == "rows":
        return (2 + on_rows) * (columns + 2 * on_columns)
    return (columns + on_columns) * (2 + 2 * on_rows)


# ------------------------------------------------------------------ 6E: the charge of a pair
QUERIES, KEYS = ("q", "do", "dq"), ("k", "v", "dk", "dv")
SUMS = ("dq", "dk", "dv")
ONE_SIDE, INPUTS_ALONE, SUMS_ALONE = "side alone", "inputs alone", "sums alone"
KINDS = {
    "inputs alone": ("q", "do", "k", "v"),
    "one side alone": QUERIES,
    "the other side alone": KEYS,
    "sums alone": SUMS,
    "all rows": (*QUERIES, *KEYS),
}
COLUMNS_STAY = (
    *("load k", "load v", "dk enters", "dv enters", "load q", "load do", "dq enters", "dq leaves"),
    *("drop q", "drop do", "dk leaves", "dv leaves", "drop k", "drop v"),
)


def walk_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases without events, with a pair in the fused backward, and with short and long walks."""
    walks = [(kind, _walk(rng, rows, 40)) for kind, rows in KINDS.items() for _ in "12"]
    walks += [
        ("all rows", _walk(rng, KINDS["all rows"], 300)),
        ("nothing", []),
        ("fused backward", list(COLUMNS_STAY)),
    ]
    return [
        Case(f"{kind}, {len(walk)} events", {"walk": walk}, charges(walk), tags=_alone(walk))
        for kind, walk in walks
    ]


def _alone(walk: Sequence[str]) -> frozenset[str]:
    """Return the tag of a walk in which all events are of one side, of inputs, or of sums."""
    rows = {word for event in walk for word in event.split()} & {*QUERIES, *KEYS}
    if not rows or rows <= {*QUERIES} or rows <= {*KEYS}:
        return frozenset({ONE_SIDE} if rows else ())
    return frozenset({INPUTS_ALONE} if not rows & {*SUMS} else {SUMS_ALONE} if rows <= {*SUMS} else ())


def _walk(rng: np.random.Generator, rows: Sequence[str], events: int) -> list[str]:
    """Return a random walk: each row is loaded or enters before it leaves, and may return."""
    there: set[str] = set()
    walk = []
    for row in map(str, rng.choice(rows, size=events)):
        come, go = (f"{row} enters", f"{row} leaves") if row in SUMS else (f"load {row}", f"drop {row}")
        walk.append(go if row in there else come)
        there ^= {row}
    return walk


@library_solution
def charges(walk: Sequence[str]) -> int:
    """Return the total number of resident rows of the other side at each load, entry and exit."""
    found = 0
    there = dict.fromkeys((*QUERIES, *KEYS), False)
    for event in walk:
        row = next(word for word in event.split() if word in there)
        found += sum(there[one] for one in (KEYS if row in QUERIES else QUERIES)) * ("drop" not in event)
        there[row] = not there[row]
    return found


EXERCISES = (
    exercise(
        "6A",
        cases=tile_cases,
        properties=TILE_PROPERTIES,
    ),
    schedule_exercise(
        "6B",
        backward_inputs,
        equals=exact_gradients,
        moves=costs.fused_backward,
        spare=one_more_of_each_kind,
        values=_values(("dQ", "dK", "dV")),
        words=(
            *reads(K="once", V="once", O="once", Q="at most ⌈N/Bc⌉ times"),
            *reads(dO="at most ⌈N/Bc⌉ + 1 times", dQ="at most ⌈N/Bc⌉ - 1 times"),
            *writes(dQ="at most ⌈N/Bc⌉ times", dK="once", dV="once"),
        ),
        comparison=attention_comparison("backward", INPUTS, N=2**20, d=64, Br=1, Bc=1008),
    ),
    function_exercise(
        "6C",
        "constant",
        sides_and_gradients,
        {
            ("constant", FOR_DQ): f"is correct for {FOR_DQ}",
            ("constant", FOR_DK): f"is correct for {FOR_DK}",
            ("constant", V_AWAY): "does not count V when only dV is requested",
            ("constant", PASSING): "counts a streamed gradient twice",
        },
    ),
    schedule_exercise(
        "6D",
        backward_inputs,
        equals=_dQ_and_D,
        moves=dq_plain,
        spare=one_more_of_each_kind,
        values=_values(("dQ", "D")),
        words=(
            *reads(Q="once", dO="once", O="once", K="at most ⌈N/Br⌉ times", V="at most ⌈N/Br⌉ times"),
            *writes(dQ="once", D="once"),
            reads_within("dQ", "dQ is not read back"),
        ),
    ),
    exercise(
        "6E",
        cases=walk_cases,
        properties=(
            idle(values_in("charges nothing for rows of the same side", ONE_SIDE)),
            values_in("charges a load for the rows of the other side, a drop nothing", INPUTS_ALONE),
            values_in("charges an exit like an entry", SUMS_ALONE),
            values_in("charges the correct total for every walk", ""),
        ),
    ),
)
