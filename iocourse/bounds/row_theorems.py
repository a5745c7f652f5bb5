"""Lower bounds for schedules whose rows travel whole: 4 and 14, proved by charging rows that meet.

They count rows in place of products: what a pair of a query and a key must pay is the cheapest walk of
`whole_rows`, and a row that comes or goes is charged at most (M + t)/d others.
"""

from __future__ import annotations

from math import isqrt

from ..sizes import check_sizes, positive_int
from ..solution_guard import library_solution
from .backward import NOT_PARTIAL
from .bound import bound
from .forward import NOT_LINEAR
from .segments import SCALE

CHARGING = "a derivation of this course: rows that meet are charged to the one that comes or goes"
WHOLE = "Rows of {arrays}, distinct arrays, are read, begun, merged, stored and dropped as wholes"
STEPS = (
    ". The run can be cut into steps: between steps no score, weight or part of one is in fast memory, none "
    "is ever moved, and in a step at most t words of rows come in. Any order, several partial sums of a row, "
    "everything computed again at will."
)
FORWARD_ROWS = WHOLE.format(arrays="Q, K, V and O") + STEPS
BACKWARD_ROWS = WHOLE.format(arrays="Q, K, V, dO, dQ, dK and dV") + STEPS
ANY_SCORES = (
    WHOLE.format(arrays="Q, K, V, dO, dQ, dK and dV")
    + "; scores and weights may be kept and moved at will. Any "
    "order, several partial sums of a row, everything computed again at will."
)


@bound(
    id="A_rows",
    title="Theorem A, whole rows",
    formula=r"W \ge \frac{4N^2d^2}{M+t}",
    source=CHARGING,
    regime="every M; t = 2d for one key and its value at a time",
    status="proved here",
    passes=("forward",),
    holds_for=FORWARD_ROWS,
    not_about="It does not hold where rows are cut into pieces, or scores are kept from step to step. "
    + NOT_LINEAR,
)
def theorem_A_rows(N: int, d: int, M: int, t: int | None = None) -> int:
    """Words that a forward pass of whole rows moves, rounded down; t words come in a step, 2d by default."""
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
    holds_for=BACKWARD_ROWS,
    not_about="Where rows are cut into pieces the least constant is open, 12 to 14. " + NOT_PARTIAL,
)
def theorem_E(N: int, d: int, M: int, t: int | None = None) -> int:
    """Words that a backward pass of whole rows moves, rounded down; t words come in a step, else 2d."""
    N, d, M = check_sizes(N=N, d=d, M=M)
    return 14 * (N * d) ** 2 // (M + _step(d, t)) - 3 * N * d


def _step(d: int, t: int | None) -> int:
    return 2 * d if t is None else positive_int("t", t)


@bound(
    id="E'",
    title="Theorem E'",
    formula=r"W \ge \frac{14N^2d^2 - 3Nd\,R - 14d\,F}{R + 14d\,F/T},\quad R = M+T,\; "
    r"F = \left(\frac R3\right)^{3/2}",
    source=CHARGING + "; pairs whose scores were kept are bounded by Loomis-Whitney and left out",
    regime="every M; it comes near 14N²d²/M for M far above d² and far below Nd",
    status="proved here",
    passes=("backward",),
    holds_for=ANY_SCORES,
    not_about="Where rows are cut into pieces the least constant is open, 12 to 14. " + NOT_PARTIAL,
)
def theorem_E_prime(N: int, d: int, M: int, T: int | None = None) -> int:
    """Words that a backward pass of whole rows moves, whatever it does with scores.

    T, the length of a segment, may be any positive number; by default the best of a fine grid. The formula is
    (M + T)(W + 3Nd) + 14d(W/T + 1)((M + T)/3)^{3/2} ≥ 14N²d², solved for W.
    """
    N, d, M = check_sizes(N=N, d=d, M=M)
    lengths = _lengths(14 * N * d // 3 - M) if T is None else [positive_int("T", T)]
    return max(_words_E_prime(N, d, M, length) for length in lengths)


@library_solution
def _words_E_prime(N: int, d: int, M: int, T: int) -> int:
    R = M + T
    kept = isqrt(196 * d * d * R**3 * SCALE**2 // 27) + 1  # 14d·F in parts of a word, rounded up
    return ((14 * (N * d) ** 2 - 3 * N * d * R) * SCALE - kept) * T // (R * T * SCALE + kept)


def _lengths(most: int) -> list[int]:
    """1 and on in steps of an eighth, as long as three words for each of Nd are fewer than 14N²d²."""
    lengths = [1]
    while lengths[-1] < most:
        lengths.append(lengths[-1] + 1 + lengths[-1] // 8)
    return lengths
