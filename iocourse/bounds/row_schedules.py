"""Lower bounds for schedules that move complete rows, and the case analysis for their constants 4 and 14.

The theorems count rows instead of products: a row that is loaded or stored is charged at most (M + t)/d rows
of the other side. The minimum charge per query–key pair is found by a shortest-path search, `min_pair_cost`.
The rows of a pair are on two sides, the query's and the key's. Each row is in fast memory or not, so a run
is, for this pair, a path through subsets of its rows. Loading the row of an input, and the entry and exit of
the row of an accumulator, are events. An event is charged one for each row of the pair on the other side that
is in fast memory. A task is done when all its rows are in fast memory at the same time. The minimum cost of a
path that does all tasks, found by Dijkstra's algorithm, is a lower bound for every pair in every schedule of
complete rows: 4, 12, 13 or 14, depending on the events that are charged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count
from math import isqrt
from typing import NamedTuple

from ..sizes import check_sizes, positive_int
from .backward import NOT_PARTIAL
from .bound import bound, public
from .forward import NOT_LINEAR
from .segments import SCALE

CHARGING = "derived in this course: pairs of rows in fast memory are charged to the row that is moved"
WHOLE = "Rows of {arrays}, distinct arrays, are read, started, merged, stored and freed as a whole"
STEPS = (
    ". The run can be cut into steps: between steps no score, weight or part of one is in fast memory (the "
    "row statistics of a single key count as a score), none is ever moved, and in a step rows of at most t "
    "words are loaded or started. Any order, several partial sums of a row, any recomputation."
)
FORWARD_ROWS = WHOLE.format(arrays="Q, K, V and O") + STEPS
BACKWARD_ROWS = WHOLE.format(arrays="Q, K, V, dO, dQ, dK and dV") + STEPS
ANY_SCORES = (
    WHOLE.format(arrays="Q, K, V, dO, dQ, dK and dV")
    + "; scores and weights may be kept and moved freely. Any "
    "order, several partial sums of a row, any recomputation."
)


@bound(
    id="A_rows",
    title="Theorem A, whole rows",
    formula=r"W \ge \frac{4N^2d^2}{M+t}",
    source=CHARGING,
    regime="every M; t = 2d for one key and its value at a time",
    status="proved here",
    passes=("forward",),
    schedules="whole rows",
    holds_for=FORWARD_ROWS,
    not_about="It does not hold if rows are cut into pieces, or if scores are kept between steps. "
    + NOT_LINEAR,
)
def theorem_A_rows(N: int, d: int, M: int, t: int | None = None) -> int:
    """Return a lower bound for a forward pass with complete rows, rounded down.

    t: words of rows loaded or started per step. None: 2d.
    """
    N, d, M = check_sizes(N=N, d=d, M=M)
    return 4 * (N * d) ** 2 // (M + _step(d, t))


@bound(
    id="E",
    title="Theorem E",
    formula=r"W \ge \frac{14N^2d^2}{M+t} - 3Nd",
    source=CHARGING,
    regime="every M; t = 2d for split_backward",
    status="proved here",
    passes=("backward",),
    schedules="whole rows",
    holds_for=BACKWARD_ROWS,
    not_about="Where rows are cut into pieces the least constant is open, 12 to 14. " + NOT_PARTIAL,
)
def theorem_E(N: int, d: int, M: int, t: int | None = None) -> int:
    """Return a lower bound for a backward pass with complete rows, rounded down.

    t: words of rows loaded or started per step. None: 2d.
    """
    N, d, M = check_sizes(N=N, d=d, M=M)
    # A run has at most (W + 3Nd)/d events, because each of the 3N accumulator rows can enter once unloaded.
    return 14 * (N * d) ** 2 // (M + _step(d, t)) - 3 * N * d


def _step(d: int, t: int | None) -> int:
    return 2 * d if t is None else positive_int("t", t)


@bound(
    id="E'",
    title="Theorem E'",
    formula=r"W \ge \frac{14N^2d^2 - 3Nd\,R - 14d\,F}{R + 14d\,F/T},\quad R = M+T,\; "
    r"F = \left(\frac R3\right)^{3/2}",
    source=CHARGING + "; pairs whose scores were kept are bounded by Loomis-Whitney and excluded",
    regime="every M; it is close to 14N²d²/M for d² << M << Nd",
    status="proved here",
    passes=("backward",),
    schedules="whole rows",
    holds_for=ANY_SCORES,
    not_about="Where rows are cut into pieces the least constant is open, 12 to 14. " + NOT_PARTIAL,
)
def theorem_E_prime(N: int, d: int, M: int, T: int | None = None) -> int:
    """Return a lower bound for a backward pass with complete rows that may keep and move scores.

    T, the length of a segment, may be any positive integer. None: the best of a fine grid. The formula
    is (M + T)(W + 3Nd) + 14d(W/T + 1)((M + T)/3)^{3/2} ≥ 14N²d², solved for W.
    """
    N, d, M = check_sizes(N=N, d=d, M=M)
    # From R = 14Nd/3 on, the first two terms of the numerator are together at most 0.
    lengths = _lengths(14 * N * d // 3 - M) if T is None else [positive_int("T", T)]
    return max(_words_E_prime(N, d, M, length) for length in lengths)


def _words_E_prime(N: int, d: int, M: int, T: int) -> int:
    R = M + T
    kept = isqrt(196 * d * d * R**3 * SCALE**2 // 27) + 1  # 14d·F in fractions of a word, rounded up
    return ((14 * (N * d) ** 2 - 3 * N * d * R) * SCALE - kept) * T // (R * T * SCALE + kept)


def _lengths(most: int) -> list[int]:
    """Return segment lengths from 1 to `most`, each about 1/8 longer than the previous one."""
    lengths = [1]  # a coarse grid is enough, because the bound is flat near its best T
    while lengths[-1] < most:
        lengths.append(lengths[-1] + 1 + lengths[-1] // 8)
    return lengths


# ------------------------------------------------------------------ minimum charge of a query–key pair
@dataclass(frozen=True)
class QueryKeyPair:
    """Rows of a query–key pair on both sides, which of them are accumulators, and the rows of each task."""

    queries: frozenset[str]
    keys: frozenset[str]
    accumulators: frozenset[str]
    tasks: tuple[frozenset[str], ...]

    @property
    def rows(self) -> tuple[str, ...]:
        """All rows of the pair, in alphabetical order."""
        return tuple(sorted(self.queries | self.keys))

    def opposite(self, row: str) -> frozenset[str]:
        """Return the rows on the other side."""
        return self.keys if row in self.queries else self.queries


FORWARD = QueryKeyPair(
    frozenset({"q", "o"}), frozenset({"k", "v"}), frozenset({"o"}), (frozenset({"q", "k", "v", "o"}),)
)
BACKWARD = QueryKeyPair(
    frozenset({"q", "do", "dq"}),
    frozenset({"k", "v", "dk", "dv"}),
    frozenset({"dq", "dk", "dv"}),
    (
        frozenset({"q", "do", "k", "v", "dq"}),  # dQ: a score needs q and k, its gradient also do and v
        frozenset({"q", "do", "k", "v", "dk"}),
        frozenset({"q", "do", "k", "dv"}),  # dV: only the weight
    ),
)


@dataclass(frozen=True)
class Charged:
    """Charges of the events, in halves: a full charge is 2.

    `load` and `drop` of an input, `enter` and `leave` of an accumulator. `edges`: see `Joint`.
    """

    load: int = 2
    drop: int = 0
    enter: int = 2
    leave: int = 2
    edges: bool = False


ENTRIES = Charged(leave=0)  # for Theorem A_rows
LOADS_AND_EXITS = Charged()
HALVES = Charged(load=1, drop=1)  # an input is charged half when it is loaded and half when it is dropped
WITH_EDGES = Charged(edges=True)  # for Theorem E


class Joint(NamedTuple):
    """Joint residency: q, do and one of `stayed` (k, v) have been in fast memory since dq left it.

    During it the first entry of dk and the first entry of dv cost one more charge each, an edge.
    """

    stayed: frozenset[str] = frozenset()
    made: frozenset[str] = frozenset()


class State(NamedTuple):
    """State of the search: the rows in fast memory, the tasks not done yet, and the joint residency."""

    there: frozenset[str]
    left: frozenset[frozenset[str]]
    joint: Joint = Joint()


class Cheapest(NamedTuple):
    """Minimum charge of a pair, and a path with this charge: events such as "load k", "dq leaves"."""

    cost: float
    walk: tuple[str, ...]


@public
def min_pair_cost(pair: QueryKeyPair = BACKWARD, charged: Charged = WITH_EDGES) -> Cheapest:
    """Return the cheapest path that starts and ends with empty fast memory and does all tasks.

    Its cost is 14 for the backward pass with `charged` as in the signature.
    """
    return _search(pair, charged)


@lru_cache
def _search(pair: QueryKeyPair, charged: Charged) -> Cheapest:
    start = State(frozenset(), frozenset(pair.tasks))
    order = count()  # breaks ties: the first found continues, and walks are never compared
    waiting: list[tuple[int, int, State, tuple[str, ...]]] = [(0, next(order), start, ())]
    finished: set[State] = set()
    while waiting:
        cost, _, state, walk = heappop(waiting)
        if state in finished:  # reached before at a charge that is not larger
            continue
        finished.add(state)
        if not state.there and not state.left:
            return Cheapest(cost / 2, walk)
        for event, price, after in _moves(pair, charged, state):
            heappush(waiting, (cost + price, next(order), after, (*walk, event)))
    raise ValueError("no walk does all tasks: a task needs a row that is on neither side of the pair")


def _moves(pair: QueryKeyPair, charged: Charged, state: State) -> Iterator[tuple[str, int, State]]:
    """Yield (event, charge, next state) for each row that can enter or leave fast memory."""
    for row in pair.rows:
        others = len(pair.opposite(row) & state.there)  # rows of the same side are charged by edges only
        added = row in pair.accumulators
        if row in state.there:
            rate, event = (charged.leave, f"{row} leaves") if added else (charged.drop, f"drop {row}")
            yield event, rate * others, _gone(state, row)
        else:
            rate, event = (charged.enter, f"{row} enters") if added else (charged.load, f"load {row}")
            edge = charged.edges and _makes_edge(state.joint, row)
            after = _come(state, row)
            # Without edges the joint residency has no effect. If it is forgotten, fewer states are searched.
            yield event, rate * others + 2 * edge, after if charged.edges else after._replace(joint=Joint())


def _come(state: State, row: str) -> State:
    there = state.there | {row}
    left = frozenset(task for task in state.left if not task <= there)
    joint = state.joint
    if _makes_edge(joint, row):
        joint = joint._replace(made=joint.made | {row})
    return State(there, left, joint)


def _gone(state: State, row: str) -> State:
    there, joint = state.there - {row}, state.joint
    if row == "dq" and {"q", "do"} <= there:
        # `made` is kept, although this exit could have edges too: a charge may be too small, never too large.
        joint = joint._replace(stayed=joint.stayed | (there & {"k", "v"}))
    elif row in ("q", "do"):
        joint = Joint()  # q and do have not both stayed since dq left
    elif row in joint.stayed:
        joint = joint._replace(stayed=joint.stayed - {row})
    # If neither k nor v has stayed, no edge can follow. One value for all such states keeps the search small.
    return State(there, state.left, joint if joint.stayed else Joint())


def _makes_edge(joint: Joint, row: str) -> bool:
    return row in ("dk", "dv") and bool(joint.stayed) and row not in joint.made
