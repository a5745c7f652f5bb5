"""Exercises of lesson 05: two pebblings by hand, the products of a segment, Theorem A, a run cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import pebbling
from ..exercise import Case, Exercise, NotReached, Trial, exercise
from ..guard import library_solution
from ..properties import Form, as_traffic, idle, is_number

Bits = NDArray[np.bool_]
PEBBLES = 3  # red pebbles of both pebbling exercises


# ---------------------------------------------------------------------- 5A and 5B: pebblings by hand
def _moves(trial: Trial) -> Sequence[Any] | None:
    """Return the moves if the result is a list of texts or triples (kind, vertex, parent)."""
    value = trial.value if isinstance(trial.value, (list, tuple)) else [None]
    known = (isinstance(move, str) or (isinstance(move, tuple) and len(move) == 3) for move in value)
    return value if all(known) else None


MOVES = Form("returns a list of moves", _moves, 'a list of moves such as the text "load a1"')


def _legal(trial: Trial, moves: Sequence[Any]) -> str | None:
    try:
        pebbling.replay(trial.case.expected[0], moves, PEBBLES)
    except pebbling.IllegalMove as error:
        return str(error)
    return None


def _understood(trial: Trial, moves: Sequence[Any]) -> Iterator[pebbling.Move]:
    """Yield the moves before the first illegal one; `_legal` reports that one."""
    game = pebbling.Game(trial.case.expected[0], PEBBLES)
    with suppress(pebbling.IllegalMove):
        for move in moves:
            yield game.move(move)


def _finished(trial: Trial, moves: Sequence[Any]) -> str | None:
    """Test the results by the rules of the game without its limit M: `_legal` reports that one."""
    graph = trial.case.expected[0]
    game = pebbling.Game(graph, len(graph.vertices))
    state = game.start()
    try:
        for move in moves:
            state = game.after(state, move)
    except pebbling.IllegalMove:
        return None if game.finished(state) else NotReached("no move after the first illegal one counts")
    missing = [v for v in graph.outputs if v not in state.blue]
    return f"{missing[0]} is never stored" if missing else None


def _within(trial: Trial, moves: Sequence[Any]) -> str | None:
    """Compare the words moved; few words of an illegal or an unfinished pebbling do not count."""
    words = sum(move.kind in ("load", "store") for move in _understood(trial, moves))
    allowed = trial.case.expected[1]
    if words > allowed:
        return f"moves {words} words, expected at most {allowed}"
    if _legal(trial, moves):
        return NotReached("the pebbling is not legal")
    unfinished = _finished(trial, moves)
    return unfinished and NotReached(unfinished)


def _pebbling(
    id: str, name: str, graph: Callable[[int], pebbling.Graph], words: Callable[[int], int], least: str
) -> Exercise:
    """Return the exercise of a pebbling by hand that moves at most `words(n)` words (formula `least`).

    The graphs are small, medium, and too large for a search.
    """

    def cases(rng: np.random.Generator) -> list[Case]:
        sizes = [2, 3, 4, int(rng.integers(5, 9)), int(rng.integers(20, 40))]
        return [Case(f"{name}={n}", {name: n}, (graph(n), words(n))) for n in sizes]

    return exercise(
        id,
        cases=cases,
        properties=(
            MOVES.kept(),
            idle(MOVES.must(f"every move is legal with M = {PEBBLES} red pebbles", _legal)),
            MOVES.must("every result is stored", _finished),
            as_traffic(MOVES.must(f"moves at most {least} words", _within)),
        ),
    )


def _number(trial: Trial) -> float | None:
    return float(trial.value) if is_number(trial.value) and np.isfinite(trial.value) else None


# ---------------------------------------------------------------------- 5C: the products of one segment
ONLY_OLD, ONLY_NEW, NEARLY, BOTH = "only scores at hand", "only whole rows", "rows with a gap", "all kinds"
EVERYTHING = "all words at hand"


def _segment_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases with only scores, only complete rows, rows that lack one word, and all of them.

    The last case has more keys and products than the smallest integer types of NumPy can count.
    """
    cases = []
    for kind in (ONLY_OLD, ONLY_NEW, NEARLY, BOTH, BOTH):
        queries, keys = (int(n) for n in rng.choice(np.arange(3, 9), size=2, replace=False))
        cases.append(_segment_case(rng, kind, queries, keys, int(rng.integers(2, 5))))
    cases += [_segment_case(rng, BOTH, 5, 4, 3) for _ in "12"]  # the same sizes, other words at hand
    return [*cases, _segment_case(rng, BOTH, 1, 1, 1), _everything(4, 3, 2), _everything(7, 301, 3)]


def _segment_case(rng: np.random.Generator, kind: str, queries: int, keys: int, d: int) -> Case:
    q, k = _rows(rng, kind, queries, d), _rows(rng, kind, keys, d)
    v, o = rng.random((keys, d)) < 0.6, rng.random((queries, d)) < 0.6
    s = rng.random((queries, keys)) < (0.5 if kind in (ONLY_OLD, BOTH) else 0.0)
    v[:, 0] = o[:, 0] = True
    if d > 1:  # a value is not there whose accumulator is, and the other way round, both with a score at hand
        v[0, 1], o[0, 1], v[1, 1], o[1, 1] = False, True, True, False
    at_hand = kind in (ONLY_OLD, BOTH)
    s[0, :2] |= at_hand  # in BOTH rows 0 are whole: the first pair has a score and could make one
    s[1:2, 1:2] |= at_hand
    return _known(kind, q, k, v, o, s)


def _rows(rng: np.random.Generator, kind: str, rows: int, d: int) -> Bits:
    """Return rows with at least one gap, about half of them (and the first) filled up.

    In ONLY_OLD no row is filled up. In NEARLY every gap is one word, and the last row has one.
    """
    gaps: Bits = np.arange(d) == rng.integers(d, size=(rows, 1))
    whole = rng.random((rows, 1)) < 0.5
    whole[0], whole[-1] = True, whole[-1] & (kind != NEARLY) | (rows == 1)
    if kind != NEARLY:
        gaps |= rng.random((rows, d)) < 0.5
    filled: Bits = ~gaps | (whole & (kind != ONLY_OLD))
    return filled


def _everything(queries: int, keys: int, d: int) -> Case:
    shapes = ((queries, d), (keys, d), (keys, d), (queries, d), (queries, keys))
    return _known(EVERYTHING, *(np.ones(shape, dtype=bool) for shape in shapes))


def _known(kind: str, q: Bits, k: Bits, v: Bits, o: Bits, s: Bits) -> Case:
    inputs = {"q": q, "k": k, "v": v, "o": o, "s": s}
    (queries, d), keys = q.shape, len(k)
    label = f"{kind}: {queries} queries, {keys} keys, d={d}"
    return Case(label, inputs, _products(**inputs), tags=frozenset([kind]))


@library_solution
def _products(q: Bits, k: Bits, v: Bits, o: Bits, s: Bits) -> int:
    """Count the products p·v that can be formed."""
    (queries, d), keys = q.shape, len(k)
    return sum(
        bool(v[j, c] and o[i, c] and (s[i, j] or (all(q[i]) and all(k[j]))))
        for i, j, c in product(range(queries), range(keys), range(d))
    )


def _has_all_kinds(case: Case) -> bool:
    return case.has(BOTH) or case.has(EVERYTHING)


A_NUMBER = Form("returns a number of words", _number, "a number")


def _right_count(trial: Trial, count: float) -> str | None:
    want = trial.case.expected
    return None if count == want else f"got {count:g} products, expected {want}"


# ---------------------------------------------------------------------- 5D: Theorem A
def _bound_cases(rng: np.random.Generator) -> list[Case]:
    """Return cases with M above, below and near d², with few segments, and with less than one segment.

    In two small cases the best T is prime, so a search over every second or third T misses it. In one, the
    bound decreases for hundreds of T before the best. The last cases are tiny: the last segment is just full,
    T = 1 is a limit, M is smaller than a row (twice), F changes its form (twice), and two long rows.
    """
    d, N = int(rng.integers(5, 9)), int(rng.integers(150, 230))
    sizes = [(N, d, 4 * d * d + 3), (N, d, 16 * d * d + 1), (N, d, d * d // 3), (N, d, d * d + 1)]
    sizes += [(N, d, N * d // 2), (9, d + 9, 7), (11, 4, 21), (14, 4, 8), (3, 3, 1000)]
    sizes += [(60, 8, 1025), (1, 1, 1), (1, 2, 3), (1, 3, 2), (4, 3, 6), (8, 2, 3), (2, 4, 10)]
    sizes += [
        *rng.integers(1, 9, size=(4, 3)).tolist(),
        (int(rng.integers(1, 9)), d, int(rng.integers(1, d))),
    ]
    return [Case(f"N={N}, d={d}, M={M}", {"N": N, "d": d, "M": M}, _proved(N, d, M)) for N, d, M in sizes]


SLACK = 1e-9  # at the best T the quotient is often exactly an integer, and rounding can go either way


def _proved(N: int, d: int, M: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the best words and T of Theorem A for quotients slightly too small and slightly too large."""
    low, high = (best_segment(N, d, M, factor) for factor in (1 - SLACK, 1 + SLACK))
    return low, high


@library_solution
def best_segment(N: int, d: int, M: int, factor: float) -> tuple[int, int]:
    """Return (words, T) with the largest T·⌊factor·N²d / F(M + T)⌋, found by trying every T."""
    best, T = (0, 1), 1
    while segments := int(_certain(factor, M + T, d) * N * N * d / _most_products(M + T, d)):
        best = max(best, (T * segments, T))
        T += 1
    return best


def _certain(factor: float, R: int, d: int) -> float:
    """Return the factor, or 1 if all floats in the quotient are exact (division by powers of two)."""
    return 1.0 if 3 * d * d <= R and d & (d - 1) == 0 else factor


def _most_products(R: int, d: int) -> float:
    return (R + d * d) ** 2 / (16 * d) if 3 * d * d <= R else (R / 3) ** 1.5


def _not_above(trial: Trial, words: float) -> str | None:
    most = trial.case.expected[1][0]
    if words <= most * (1 + SLACK):
        return None
    return f"got {words:,.10g}, but no T gives more than {most:,}"


def _not_below(trial: Trial, words: float) -> str | None:
    most, T = trial.case.expected[0]
    return None if words >= most * (1 - SLACK) else f"got {words:,.10g}, but T = {T:,} gives {most:,}"


def _large_memory(case: Case) -> bool:
    return bool(case.inputs["M"] >= case.inputs["d"] ** 2)


def _small_memory(case: Case) -> bool:
    return not _large_memory(case)


# ---------------------------------------------------------------------- 5E: a run cut into segments
Run = list[tuple[str, str]]
CUT_RUNS = ((1, 12), (3, 40), (4, 60), (7, 90), (30, 25))  # T, and events: in the last no segment is full


def _run_cases(rng: np.random.Generator) -> list[Case]:
    """Return random runs, one that ends with a full segment, and one with reloaded words."""
    runs = [(T, _random_run(rng, room=int(rng.integers(3, 8)), events=events)) for T, events in CUT_RUNS]
    runs.append((2, [("in", "a"), ("in", "b"), ("out", "a"), ("in", "a"), ("out", "b"), ("in", "c")]))
    runs.append((3, [*_there_and_back("a"), *_there_and_back("a"), ("in", "b"), ("in", "c"), ("out", "b")]))
    return [Case(f"T={T}, {len(run)} events", {"run": run, "T": T}, _segments(run, T)) for T, run in runs]


def _there_and_back(word: str) -> Run:
    return [("in", word), ("out", word)]


def _random_run(rng: np.random.Generator, room: int, events: int) -> Run:
    """Return random loads and evictions of twice as many words as fit."""
    names = [f"w{n}" for n in range(2 * room)]
    there: list[str] = []
    run: Run = []
    for _ in range(events):
        away = [name for name in names if name not in there]
        if there and (len(there) == room or rng.random() < 0.4):
            run.append(("out", there.pop(int(rng.integers(len(there))))))
        else:
            there.append(str(rng.choice(away)))
            run.append(("in", there[-1]))
    return run


@library_solution
def _segments(run: Run, T: int) -> list[tuple[set[str], set[str]]]:
    """Return, per full segment, the words resident at its start and the words loaded during it."""
    ends = [n for n, (event, _) in enumerate(run, 1) if event == "in"][T - 1 :: T]
    starts = [0, *ends]
    return [
        (_there(run[:start]), {word for event, word in run[start:end] if event == "in"})
        for start, end in zip(starts, ends, strict=False)
    ]


def _there(run: Run) -> set[str]:
    last = {word: event for event, word in run}
    return {word for word, event in last.items() if event == "in"}


def _sets(trial: Trial) -> Sequence[frozenset[str]] | None:
    value = trial.value
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, (set, frozenset)) for one in value):
        return None
    return [frozenset(one) for one in value]


SETS = Form("returns a list of sets", _sets, "a list of sets of words")


def _as_many(trial: Trial, got: Sequence[frozenset[str]]) -> str | None:
    want = len(trial.case.expected)
    return None if len(got) == want else f"got {len(got)} sets, expected {want}, one per full segment"


def _has(part: int) -> Callable[[Trial, Sequence[frozenset[str]]], str | None]:
    """Return a test that each set has the words resident at the start (part 0) or loaded (part 1)."""

    def judge(trial: Trial, got: Sequence[frozenset[str]]) -> str | None:
        for number, (want, one) in enumerate(zip(trial.case.expected, _filled(trial, got), strict=True), 1):
            if missing := want[part] - one:
                return f"segment {number} lacks {min(missing)}"
        return None

    return judge


def _nothing_else(trial: Trial, got: Sequence[frozenset[str]]) -> str | None:
    for number, (want, one) in enumerate(zip(trial.case.expected, _filled(trial, got), strict=True), 1):
        if more := one - (want[0] | want[1]):
            return f"segment {number} has {min(more, key=str)}, which is not in fast memory during it"
    return None


def _filled(trial: Trial, got: Sequence[frozenset[str]]) -> list[frozenset[str]]:
    """Return one set per full segment; missing sets are empty."""
    return [*got, *[frozenset()] * len(trial.case.expected)][: len(trial.case.expected)]


EXERCISES = (
    _pebbling("5A", "d", pebbling.dot, lambda d: 4 * d - 1, "4d − 1"),
    _pebbling("5B", "n", pebbling.softmax_row, lambda n: 3 * n - 1, "3n − 1"),
    exercise(
        "5C",
        cases=_segment_cases,
        properties=(
            A_NUMBER.must(
                "a resident score gives a product per column with value and output",
                _right_count,
                ONLY_OLD,
            ),
            A_NUMBER.must("a score can be computed from two complete rows", _right_count, ONLY_NEW),
            A_NUMBER.must("an incomplete row gives no score", _right_count, NEARLY),
            A_NUMBER.must(
                "a resident score that can also be computed counts once", _right_count, _has_all_kinds
            ),
        ),
    ),
    exercise(
        "5D",
        cases=_bound_cases,
        properties=(
            A_NUMBER.kept(),
            idle(A_NUMBER.must("claims no more than Theorem A proves", _not_above)),
            A_NUMBER.must("no T gives a larger bound when M ≥ d²", _not_below, _large_memory),
            A_NUMBER.must("no T gives a larger bound when M < d²", _not_below, _small_memory),
        ),
    ),
    exercise(
        "5E",
        cases=_run_cases,
        properties=(
            SETS.kept(),
            SETS.must("a segment ends with its T-th load; incomplete ones are left out", _as_many),
            SETS.must("a segment contains the words loaded during it", _has(1)),
            SETS.must("a segment contains the words resident at its start", _has(0)),
            idle(SETS.must("a segment contains no word evicted before its start", _nothing_else)),
        ),
    ),
)
