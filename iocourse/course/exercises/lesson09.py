"""Exercises of lesson 09: sequences of passes, an envelope, a backward pass when all fits, and stored dS."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import isclose, sqrt
from typing import Any, NamedTuple

import numpy as np

from ... import exact
from ...costs import ceil_div
from ...ledger import Ledger
from ..bound_ratio import attention_comparison
from ..exercise import Case, Property, Sample, Trial, exercise
from ..guard import library_solution
from ..kinds.choice import choice_exercise
from ..kinds.schedule import schedule_exercise
from ..properties import (
    LARGE,
    TOLERANCE,
    Form,
    block_size,
    every_input_loaded,
    format_apart,
    idle,
    is_number,
    part,
    reads,
    several,
    total_within,
    values_in,
    writes,
)
from ..trials.case_inputs import STRETCH, exact_gradients, samples_with_equal_arrays, with_large

Array = np.ndarray
Arrays = dict[str, np.ndarray]
Guess = tuple[str, float]
Sweep = tuple[str, str, int, str]  # what stays, what passes, N x N matrices moved, what is there afterwards
Sweeps = dict[str, list[Sweep]]  # by what slow memory holds before


# ------------------------------------------------------------------ 9A: sweeps in sequence
BEGIN, END = "inputs", "outputs"
FORWARD: Sweeps = {
    "inputs": [
        ("Q O", "K V", 0, "outputs"),
        ("K V", "Q O O", 0, "outputs"),
        ("Q", "K", 1, "S"),
        ("K", "Q", 1, "S"),
    ],
    "S": [("O", "V", 1, "outputs"), ("V", "O O", 1, "outputs"), ("Q O", "K V", 0, "outputs")],
}
TRAVELLING: Sweeps = {BEGIN: [("K V dK dV", "Q dO dQ dQ", 0, END)]}  # a streamed sum; only one sequence
LATER: Sweeps = {  # the cheapest first sweep leads to an expensive second one
    BEGIN: [("Q", "K", 0, "a"), ("Q O", "K V", 0, "b")],
    "a": [("K V dK dV", "Q dO dQ dQ", 0, END)],
    "b": [("Q", "K", 0, END)],
}
LONGER: Sweeps = {  # three sweeps are cheaper than one
    BEGIN: [("Q O dQ", "K V dK", 2, END), ("Q", "K", 0, "a")],
    "a": [("Q", "K", 0, "b"), ("Q O dQ", "K V dK", 2, END)],
    "b": [("O", "V", 0, END)],
}


def words_of(sweep: Sweep, x: float) -> float:
    """Return the words of a sweep (resident times streamed, plus matrices) in units of N²; x = d/√M."""
    stays, passes, matrices, _ = sweep
    return len(stays.split()) * len(passes.split()) * x * x + matrices


@library_solution
def cheapest(sweeps: Sweeps, x: float, state: str, goal: str) -> list[Sweep]:
    """Return the sweeps with the fewest words from one state to another."""
    if state == goal:
        return []
    ways = ([sweep, *cheapest(sweeps, x, sweep[3], goal)] for sweep in sweeps[state])
    return min(ways, key=lambda path: sum(words_of(sweep, x) for sweep in path))


def drawn_sweeps(rng: np.random.Generator, states: Sequence[str] = (BEGIN, *"abcde", END)) -> Sweeps:
    """Return random sweeps by the state before them: one to the next state, and two to any later states."""
    return {
        state: [_drawn(rng, states[n + 1]), *(_drawn(rng, str(rng.choice(states[n + 1 :]))) for _ in "12")]
        for n, state in enumerate(states[:-1])
    }


def _drawn(rng: np.random.Generator, after: str) -> Sweep:
    stays, passes = (" ".join(rng.choice(["A", "B", "C"], size=rng.integers(1, 4))) for _ in "12")
    return stays, passes, int(rng.integers(3)), after


def searches(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield the forward pass on both sides of M = d², three misleading tables, and three random ones.

    Also: a start from stored scores, states with other names, and a start at the goal.
    """
    small, large = 0.5 + 0.4 * rng.random(), 1.1 + rng.random()
    asked = [("forward", FORWARD, small), ("forward", FORWARD, large), ("no choice", TRAVELLING, small)]
    asked += [("a cheap beginning", LATER, large), ("many passes", LONGER, small)]
    asked += [(f"drawn passes {k}", drawn_sweeps(rng), small + k / 4) for k in range(3)]
    for words, sweeps, x in asked:
        yield _search(words, sweeps, x)
    yield _search("from p to t", drawn_sweeps(rng, [*"pqrst"]), small, "p", "t")
    yield _search("from S", FORWARD, small, "S")
    yield _search("nothing left to do", FORWARD, small, END)


def _search(words: str, sweeps: Sweeps, x: float, state: str = BEGIN, goal: str = END) -> Sample:
    inputs = {"sweeps": sweeps, "x": x, "state": state, "goal": goal}
    return Sample({}, inputs, prefix=f"{words}, x = {x:.3f}")


class Sequenced(NamedTuple):
    """A result: the words of a sequence of sweeps, and the sweeps."""

    words: float
    sweeps: list[Sweep]

    def __str__(self) -> str:
        return f"{len(self.sweeps)} pass{'es' * (len(self.sweeps) != 1)}"


def _sequenced(trial: Trial) -> Sequenced | None:
    words, path = several(trial.value, 2) or (None, None)
    if not is_number(words) or not isinstance(path, (list, tuple)):
        return None
    four = [several(sweep, 4) for sweep in path]
    return None if None in four else Sequenced(float(words), [_as_sweep(one) for one in four if one])


def _as_sweep(parts: Sequence[object]) -> Sweep:
    return parts[0], parts[1], parts[2], parts[3]  # type: ignore[return-value]


A_SEQUENCE = Form("returns words and a list of passes", _sequenced, "a number and a list of passes")


def _leads_there(trial: Trial, answer: Sequenced) -> str | None:
    sweeps, state, goal = (trial.case.inputs[name] for name in ("sweeps", "state", "goal"))
    for number, sweep in enumerate(answer.sweeps, 1):
        if sweep not in sweeps.get(state, ()):
            return f"pass {number}, {sweep}, does not start at {state!r} in this table"
        state = sweep[3]
    return None if state == goal else f"the last pass ends at {state!r}, expected {goal!r}"


def _words_of_all(answer: Sequenced, x: float, **_: Any) -> float:
    return sum(words_of(sweep, x) for sweep in answer.sweeps)


def _own_words(trial: Trial, answer: Sequenced) -> str | None:
    want = _words_of_all(answer, **trial.case.inputs)
    if isclose(answer.words, want, rel_tol=1e-9):
        return None
    return f"got {answer.words:.6g} N², but by (9.1) your passes move {want:.6g} N²"


def _cheapest_sequence(**inputs: Any) -> list[Sequenced]:
    return [Sequenced(0.0, cheapest(**inputs))]


# ------------------------------------------------------------------ 9B: an envelope of eight schedules
@library_solution
def envelope(N: int, d: int, M: int, pass_: str) -> dict[str, float]:
    """Return the words of each schedule if the resident arrays fill M; block counts are real, at least 1."""
    array, pairs, side = N * d, N * N, sqrt(M)
    passes, slices = max(1.0, N / side), max(1.0, d / side)  # square tiles along N, along d
    one = max(1.0, array / M)  # blocks, where a single array stays
    if pass_ == "forward":
        rows = max(1.0, 2 * array / M)  # Q and O stay
        return {
            "F3": 2 * array * (1 + rows),
            "F7": array * (2 + 2 * one) + 2 * pairs,
            "F5": array * (1 + 3 * passes) + pairs * (1 + slices),
        }
    rows, columns = max(1.0, 3 * array / M), max(1.0, 4 * array / M)  # Q, dO, dQ; K, V, dK, dV
    return {
        "B3": array * (5 + 4 * columns),
        "B4": array * (8 + 2 * rows + 2 * columns),
        "B6": array * (6 + 2 * columns + one) + 2 * pairs,
        "B7": array * (6 + 3 * one + max(1.0, 2 * array / M)) + 5 * pairs,
        "B5": array * (5 + 7 * passes) + 3 * pairs * (1 + slices),
    }


SIGNS = ("F3", "F5", "F7", "B3", "B4", "B5", "B6", "B7")
ALL_FITS = "all fits"


def envelope_cases(rng: np.random.Generator) -> list[Case]:
    """Return, per pass, an M in every regime, one that depends on N, and one for which everything fits."""
    d, N = int(rng.integers(20, 200)), int(rng.integers(40_000, 200_000))
    near = d * d * N // 10**6 + d * d  # some M of the order of d²
    shared = [near // 50, near // 2, 30 * d * d, 9 * N * d, 30 * N * d]
    forward = [(N, d, M, "forward") for M in (*shared, 9 * d * d // 10)]
    more = (21 * d * d // 20, 2 * d * d, N * d // 2, N * d)
    backward = [(N, d, M, "backward") for M in (*shared, *more)]
    # a tile shorter than the sequence, then one that is longer; then buffer reuse best far below d²
    short = [(d // share, d, d * d // 100, pass_) for share in (4, 20) for pass_ in ("forward", "backward")]
    early = (d // 4, d, 9 * d * d // 20, "forward")
    few = [(41, 37, 90, pass_) for pass_ in ("forward", "backward")]  # no square; a rounded word would show
    return [_envelope_case(*size) for size in (*forward, *backward, *short, early, *few)]


def _envelope_case(N: int, d: int, M: int, pass_: str) -> Case:
    words = envelope(N, d, M, pass_)
    sign = min(words, key=lambda name: words[name])
    inputs = {"N": N, "d": d, "M": M, "pass_": pass_}
    inside = 2 * N * d > M and N * N > M  # no kind of block is as large as its array
    tag = ALL_FITS if 4 * N * d <= M else sign if inside else ""
    return Case(f"N={N}, d={d}, M={M}, {pass_}", inputs, (sign, words[sign]), tags=frozenset({tag} - {""}))


def _guess(trial: Trial) -> Guess | None:
    """Return the result if it is a pair of a label and a number of words."""
    sign, words = several(trial.value, 2) or (None, None)
    return (sign, float(words)) if isinstance(sign, str) and is_number(words) else None


A_GUESS = Form("returns a label and a number of words", _guess, "a label and a number")


def _right_words(trial: Trial, guess: Guess) -> str | None:
    got, want = guess[1], trial.case.expected[1]
    if abs(got - want) <= 1e-6 * want:
        return None
    mine, right = format_apart(got, want, ",")
    return f"got {mine} words, expected {right}"


def _right_sign(trial: Trial, guess: Guess) -> str | None:
    want = trial.case.expected[0]
    return None if guess[0] == want else f"got {guess[0]}, but {want} moves fewer words"


# ------------------------------------------------------------------ 9C: a backward pass when everything fits
def whole_backward(N: int, d: int, *, Br: int) -> Ledger:
    """Return the closed form with resident keys: 7Nd + N words, footprint 4Nd + Br(3d + 2 + N)."""
    r, rows = min(Br, N), N * d
    inputs, outputs = ("Q", "K", "V", "dO"), ("dQ", "dK", "dV")
    return Ledger(
        reads={**dict.fromkeys(inputs, rows), "LSE": N},
        writes=dict.fromkeys(outputs, rows),
        peak=4 * rows + r * (3 * d + 2 + N),
        sizes={**dict.fromkeys((*inputs, *outputs), rows), "LSE": N},
    )


def given(N: int, d: int, Br: int) -> int:
    """Return the fast memory of a case: two rows of scores per query, enough for both formulas of D."""
    return 4 * N * d + min(Br, N) * (3 * d + 2 * N + 6)


def whole_inputs(rng: np.random.Generator) -> list[Sample]:
    """Return samples of ragged blocks, single queries, one block, one query, and large scores."""
    Br, d = int(rng.integers(3, 6)), int(rng.integers(8, 13))
    N = 8 * Br + 1
    sizes = [(N, d, Br), (N, d, Br + 2), (9, d + 1, 1), (5, d, 8), (1, d, Br)]
    draw = partial(_inputs, rng)
    return with_large(samples_with_equal_arrays("N d Br", sizes, draw), draw)


def _inputs(rng: np.random.Generator, N: int, d: int, *, large: bool = False) -> Arrays:
    Q, K, V, dO = rng.standard_normal((4, N, d))
    Q *= STRETCH if large else 1.0
    return {"Q": Q, "K": K, "V": V, "dO": dO, "LSE": exact.log_sum_exp(exact.scores(Q, K))}


def _room_for_either(N: int, d: int, Br: int) -> int:
    return given(N, d, Br) - whole_backward(N, d, Br=Br).peak


def _ordinary(case: Case) -> bool:
    return not case.has(LARGE)


def _values(outputs: Sequence[str]) -> tuple[Property, ...]:
    return (
        *(part(f"{name} is exact", outputs, k, _ordinary) for k, name in enumerate(outputs)),
        block_size(part=0),
        # a rounding of s - L blurs the weights of large scores by about |s|·1e-16
        values_in(f"{LARGE} neither overflow nor vanish", LARGE, TOLERANCE * STRETCH),
    )


# ------------------------------------------------------------------ 9D: the first pass of stored dS
def keys_sweep(N: int, d: int, *, Bc: int) -> Ledger:
    """Return the closed form: K, V, dK, dV resident, Q and dO streamed, dS stored."""
    c, rows = min(Bc, N), N * d
    blocks = ceil_div(N, Bc)
    passing = {**dict.fromkeys(("Q", "dO"), rows * blocks), **dict.fromkeys(("LSE", "D"), N * blocks)}
    return Ledger(
        reads={**passing, "K": rows, "V": rows},
        writes={"dS": N * N, "dK": rows, "dV": rows},
        peak=c * (4 * d + 1) + 2 * d + 2,
        sizes={**dict.fromkeys(("Q", "K", "V", "dO", "dK", "dV"), rows), "LSE": N, "D": N, "dS": N * N},
    )


def keys_sweep_inputs(rng: np.random.Generator) -> list[Sample]:
    """Return samples of ragged blocks, single keys, one block, one key, and large scores."""
    Bc, d = int(rng.integers(3, 6)), int(rng.integers(8, 13))
    N = 4 * Bc + 1
    sizes = [(N, d, Bc), (N, d, Bc + 2), (9, d + 1, 1), (5, d, 8), (1, d, Bc)]

    def draw(N: int, d: int, large: bool = False) -> Arrays:
        arrays = _inputs(rng, N, d, large=large)
        P = exact.softmax(exact.scores(arrays["Q"], arrays["K"]))
        return {**arrays, "D": (P * (arrays["dO"] @ arrays["V"].T)).sum(axis=1)}

    return with_large(samples_with_equal_arrays("N d Bc", sizes, draw), draw)


def _score_gradients(Q: Array, K: Array, V: Array, dO: Array, D: Array, **_: Any) -> tuple[Array, ...]:
    dS = exact.softmax(exact.scores(Q, K)) * (dO @ V.T - D[:, None])
    return dS, *exact_gradients(Q, K, V, dO)[1:]


def _second_row(N: int, Bc: int, **_: int) -> int:
    """Return the allowance: a second row of scores, for dP in a separate buffer."""
    return min(Bc, N) + 2


EACH_BLOCK = "at most ⌈N/Bc⌉ times"
EXERCISES = (
    choice_exercise(
        "9A",
        searches,
        A_SEQUENCE,
        among=_cheapest_sequence,
        moves=_words_of_all,
        fewest="no sequence moves fewer words",
        also=(
            A_SEQUENCE.must("the passes lead from the first state to the goal", _leads_there),
            idle(A_SEQUENCE.must("the words equal those of the passes", _own_words)),
        ),
        unit="N²",
        clue=lambda best: f" N² in {best}",
    ),
    exercise(
        "9B",
        cases=envelope_cases,
        properties=(
            A_GUESS.kept(),
            *(A_GUESS.must(f"is correct where {sign} is best", _right_words, sign) for sign in SIGNS),
            A_GUESS.must("counts at least one pass where everything fits", _right_words, ALL_FITS),
            A_GUESS.must("returns the words of the best schedule for every M", _right_words),
            A_GUESS.must("the label is that of the best schedule", _right_sign),
        ),
    ),
    schedule_exercise(
        "9C",
        whole_inputs,
        equals=exact_gradients,
        moves=whole_backward,
        spare=_room_for_either,
        values=_values(("dQ", "dK", "dV")),
        loads=every_input_loaded("Q", "K", "V", "dO"),
        words=(
            *reads(Q="once", K="once", V="once", dO="once"),
            *writes(dQ="once", dK="once", dV="once"),
        ),
        total=total_within("moves at most 7Nd + N words"),
        comparison=attention_comparison(
            "backward", ("Q", "K", "V", "dO", "LSE"), N=1024, d=64, every_block=True, Br=16
        ),
    ),
    schedule_exercise(
        "9D",
        keys_sweep_inputs,
        equals=_score_gradients,
        moves=keys_sweep,
        spare=_second_row,
        values=_values(("dS", "dK", "dV")),
        loads=every_input_loaded("Q", "K", "V", "dO"),
        words=(
            *reads(Q=EACH_BLOCK, dO=EACH_BLOCK, K="once", V="once"),
            *writes(dS="once", dK="once", dV="once"),
        ),
        total=total_within("moves no more words than (9.4)"),
    ),
)
