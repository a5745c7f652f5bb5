"""Exercises of lesson 09: the map on an envelope, a memory for a budget, a backward pass when all fits."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np

from ... import exact
from ...costs import ceil_div
from ...guard import library_answer
from ...ledger import Ledger
from ..budgets import every_input_loaded, fits, reads, total_within, writes
from ..exercise import Case, Exercise, Trial, run_schedule
from ..judging import LARGE, TOLERANCE, Form, block_size, is_number, part, several, values_in, whole
from ..messages.digits import told_apart
from ..trials.tilings import STRETCH, labelled_large

Guess = tuple[str, float]


# ------------------------------------------------------------------ 9.1: the map on an envelope
@library_answer
def envelope(N: int, d: int, M: int, pass_: str) -> dict[str, float]:
    """Words of each schedule where what stays fills M and blocks are not rounded, but at least one."""
    array, pairs, side = N * d, N * N, sqrt(M)
    passes, slices = max(1.0, N / side), max(1.0, d / side)  # square tiles along N, along d
    if pass_ == "forward":
        rows = max(1.0, 2 * array / M)  # Q and O stay
        return {
            "F3": 2 * array * (1 + rows),
            "F5": array * (1 + 3 * passes) + pairs * (1 + slices),
        }
    rows, columns = max(1.0, 3 * array / M), max(1.0, 4 * array / M)  # Q, dO, dQ; K, V, dK, dV
    return {
        "B3": array * (5 + 4 * columns),
        "B4": array * (8 + 2 * rows + 2 * columns),
        "B5": array * (5 + 7 * passes) + 3 * pairs * (1 + slices),
    }


def envelope_cases(rng: np.random.Generator) -> list[Case]:
    """For each pass an M in every regime, one that N decides, and more than everything takes."""
    d, N = int(rng.integers(20, 200)), int(rng.integers(40_000, 200_000))
    near = d * d * N // 10**6 + d * d  # some M of the order of d²
    shared = [near // 50, near // 2, 30 * d * d, 9 * N * d, 30 * N * d]
    forward = [(N, d, M, "forward") for M in (*shared, 9 * d * d // 10)]
    backward = [(N, d, M, "backward") for M in (*shared, 21 * d * d // 20, N * d // 2, N * d)]
    # a tile shorter than the sequence, then one that is longer; then F3 best far below 0.69 d²
    short = [(d // share, d, d * d // 100, pass_) for share in (4, 20) for pass_ in ("forward", "backward")]
    early = (d // 4, d, 9 * d * d // 20, "forward")
    return [_envelope_case(*size) for size in (*forward, *backward, *short, early)]


def _envelope_case(N: int, d: int, M: int, pass_: str) -> Case:
    words = envelope(N, d, M, pass_)
    sign = min(words, key=lambda name: words[name])
    inputs = {"N": N, "d": d, "M": M, "pass_": pass_}
    return Case(f"N={N}, d={d}, M={M}, {pass_}", inputs, (sign, words[sign]))


def _guess(trial: Trial) -> Guess | None:
    """A sign and a number of words, where the answer is such a pair."""
    sign, words = several(trial.value, 2) or (None, None)
    return (sign, float(words)) if isinstance(sign, str) and is_number(words) else None


A_GUESS = Form("returns a sign and a number of words", _guess, "a sign and a number")


def _right_words(trial: Trial, guess: Guess) -> str | None:
    got, want = guess[1], trial.case.expected[1]
    if abs(got - want) <= 1e-6 * want:
        return None
    mine, right = told_apart(got, want, ",")
    return f"yours {mine} words, expected {right}"


def _right_sign(trial: Trial, guess: Guess) -> str | None:
    want = trial.case.expected[0]
    return None if guess[0] == want else f"yours {guess[0]}, fewer words has {want}"


def _where(sign: str) -> Callable[[Case], bool]:
    """Cases in the middle of the regime of a schedule: no kind of block is as large as its array."""

    def concerned(case: Case) -> bool:
        N, d, M = (case.inputs[name] for name in ("N", "d", "M"))
        return case.expected[0] == sign and bool(2 * N * d > M and N * N > M)

    return concerned


def _all_fits(case: Case) -> bool:
    N, d, M = (case.inputs[name] for name in ("N", "d", "M"))
    return bool(4 * N * d <= M)


ENVELOPE = Exercise(
    id="9.1",
    title="The map on an envelope",
    function="my_envelope",
    difficulty=2,
    importance=5,
    minutes=12,
    hints=(
        "Take one schedule at a time. How many arrays stay, with how many rows of d words each? Set their "
        "sum equal to M and solve for the rows; that goes into the closed form.",
        "In F3 two arrays stay, in B3 four, in B4 first three and then four. A square tile of side b has b "
        "times b words. Then each rounded-up quotient becomes the plain quotient, or 1 if that is larger.",
        "A small helper that takes a length and a size of block and gives the larger of 1 and their "
        "quotient does the second part of the rule everywhere, for columns of a tile as well. Collect the "
        "words of the pass by sign and return the pair with the smallest.",
    ),
    cases=envelope_cases,
    properties=(
        A_GUESS.kept(),
        *(A_GUESS.must(f"words of {sign} where it is best", _right_words, _where(sign))
          for sign in ("F3", "F5", "B3", "B4", "B5")),
        A_GUESS.must("where all fits, nobody makes less than one pass", _right_words, _all_fits),
        A_GUESS.must("words of the best schedule, everywhere", _right_words),
        A_GUESS.must("the sign is that of the schedule with the fewest words", _right_sign),
    ),
)  # fmt: skip


# ------------------------------------------------------------------ 9.2: a memory for a budget
def memory_cases(rng: np.random.Generator) -> list[Case]:
    """Budgets just enough for some number of passes, one word less, the smallest, the largest; a long N."""
    d, Br, passes = int(rng.integers(3, 40)), int(rng.integers(5, 30)), int(rng.integers(3, 9))
    N = Br * passes - 1  # the last block is ragged
    exactly = 2 * N * d * (passes + 1)
    long = 10**12 + int(rng.integers(10**6))
    sizes = [(N, d, exactly), (N, d, exactly - 1), (N, d, exactly + 2 * N * d - 1), (N, d, 4 * N * d)]
    sizes += [(N, d, 2 * N * d * (N + 5)), (1, d, 4 * d), (long, d, 2 * long * d * 12_346)]
    return [_memory_case(*size) for size in sizes]


def _memory_case(N: int, d: int, W: int) -> Case:
    least = _rows_needed(N, d, W) * (2 * d + 3) + d
    return Case(f"N={N}, d={d}, W={W}", {"N": N, "d": d, "W": W}, expected=least)


def _words(N: int, d: int, Br: int) -> int:
    return 2 * N * d + 2 * N * d * ceil_div(N, Br)


@library_answer
def _rows_needed(N: int, d: int, W: int) -> int:
    """The smallest Br with which F3 moves at most W words, by halving."""
    low, high = 0, N  # low rows are too few, high rows are enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _words(N, d, middle) <= W else (middle, high)
    return high


A_MEMORY = Form("returns a whole number of at least 1", lambda trial: whole(trial.value), "a whole number")


def _enough(trial: Trial, M: int) -> str | None:
    least = trial.case.expected
    return None if least <= M else f"with M = {M:,} F3 moves more than W words; {least - M:,} are missing"


def _no_more(trial: Trial, M: int) -> str | None:
    least = trial.case.expected
    return None if least >= M else f"yours M = {M:,}; {M - least:,} words fewer would do"


MEMORY = Exercise(
    id="9.2",
    title="A memory for a budget",
    function="my_smallest_memory",
    difficulty=3,
    importance=4,
    minutes=8,
    hints=(
        "Go backwards through (9.2): from W to the number of passes over K and V, from there to the rows "
        "of a block, from there to M. At each step, which way do you have to round?",
        "The passes are the words beyond 2Nd, counted in units of 2Nd: whole ones only, so round down. For "
        "so many passes the block must be so large that so many blocks cover N.",
        "So many blocks of Br rows cover N once Br is at least N over their number, so round up. The rows in "
        "the second half of (9.2) give M. At most one line each.",
    ),
    cases=memory_cases,
    properties=(
        A_MEMORY.kept(),
        A_MEMORY.must("with so much memory F3 moves at most W words", _enough),
        A_MEMORY.must("and with less it would move more", _no_more),
    ),
)


# ------------------------------------------------------------------ 9.3: a backward pass when all fits
def whole_backward(N: int, d: int, *, Br: int) -> Ledger:
    """All keys stay, each input is read once: 7Nd + N words; footprint 4Nd + Br(3d + 2 + N)."""
    r, rows = min(Br, N), N * d
    inputs, outputs = ("Q", "K", "V", "dO"), ("dQ", "dK", "dV")
    return Ledger(
        reads={**dict.fromkeys(inputs, rows), "LSE": N},
        writes=dict.fromkeys(outputs, rows),
        peak=4 * rows + r * (3 * d + 2 + N),
        sizes={**dict.fromkeys((*inputs, *outputs), rows), "LSE": N},
    )


def given(N: int, d: int, Br: int) -> int:
    """Fast memory of a case: two rows of scores a query, with room for either way to D."""
    return 4 * N * d + min(Br, N) * (3 * d + 2 * N + 6)


def whole_cases(rng: np.random.Generator) -> list[Case]:
    """Ragged blocks, two of them on one input; one query at a time, all at once, one query; large scores."""
    Br, d = int(rng.integers(3, 6)), int(rng.integers(8, 13))
    N = 8 * Br + 1
    shapes = [(N, d, Br), (N, d, Br + 2), (9, d, 1), (5, d, 8), (1, d, Br)]
    inputs = {(n, d): _inputs(rng, n, d) for n in {n for n, _, _ in shapes}}
    found = [_whole_case(inputs[n, d], rows) for n, d, rows in shapes]
    return [*found, labelled_large(_whole_case(_inputs(rng, N, d, large=True), Br))]


def _inputs(rng: np.random.Generator, N: int, d: int, *, large: bool = False) -> dict[str, np.ndarray]:
    Q, K, V, dO = rng.standard_normal((4, N, d))
    Q *= STRETCH if large else 1.0
    return {"Q": Q, "K": K, "V": V, "dO": dO, "LSE": exact.log_sum_exp(exact.scores(Q, K))}


def _whole_case(arrays: dict[str, np.ndarray], Br: int) -> Case:
    N, d = arrays["Q"].shape
    want = tuple(exact.attention_backward(*(arrays[name] for name in ("Q", "K", "V", "dO"))))
    budget = whole_backward(N, d, Br=Br)
    return Case(f"N={N}, d={d}, Br={Br}", {**arrays, "Br": Br}, want, given(N, d, Br), budget)


GRADIENTS = ("dQ", "dK", "dV")


def _ordinary(case: Case) -> bool:
    return LARGE not in case.label


WHOLE = Exercise(
    id="9.3",
    title="A backward pass when all fits",
    function="my_whole_backward",
    difficulty=4,
    importance=4,
    minutes=20,
    hints=(
        "Begin with your B3 of exercise 6.6 and one block of all keys. Which of its reads are left over? "
        "They all serve D. What is D a sum of, and which of these numbers does a block of queries have?",
        "Once the weights of a block of queries against all keys are there, its rows of O are one product "
        "away, and so are its rows of dP. Either of them gives D in fast memory, and can go again.",
        "For a block: scale q, scores, weights from L; o from weights and v; D takes in the row products of "
        "do and o, and o goes; dV takes in; weights become score gradients; dK takes in; dq, scaled, is "
        "stored. dK and dV are stored once, after the last block.",
    ),
    cases=whole_cases,
    properties=(
        *(part(f"{name} is exact", GRADIENTS, k, _ordinary) for k, name in enumerate(GRADIENTS)),
        block_size(part=0),
        # a rounding of s - L blurs the weights of large scores by about |s|·1e-16
        values_in(f"{LARGE} neither overflow nor vanish", LARGE, TOLERANCE * STRETCH),
        fits(),
        every_input_loaded("Q", "K", "V", "dO"),
        *reads(Q="once", K="once", V="once", dO="once"),
        *writes(dQ="once", dK="once", dV="once"),
        total_within("no more than 7Nd + N words move"),
    ),
    play=run_schedule,
)

EXERCISES = (ENVELOPE, MEMORY, WHOLE)
