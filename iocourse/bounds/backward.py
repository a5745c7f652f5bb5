"""Lower bounds on the traffic of the backward pass of attention, and of the gradient with respect to X."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt, sqrt

from ..sizes import check_sizes, positive_int
from .bound import bound
from .forward import DERIVED, EVERYTHING, NOT_LINEAR, words_A
from .segments import SCALE, best_segment, segments_C

DISTINCT = "Q, K, V and dO are distinct arrays: no word of one serves as a word of another."
CLASS = (
    "Schedules that form each p_ij from a score of d products q·k, or have P as an input, each dP_ij from d "
    "products dO·v, dV from all products p·dO, and dQ and dK from all products of k and q with a number "
    "computed from the completed s_ij and dP_ij; any order, any tiles, any recomputation. " + DISTINCT
)
CLASS_OWN = CLASS.replace(", or have P as an input,", ", without P as an input,")
NOT_PARTIAL = "Partial sums of dP_ij used in dQ or dK are not covered. " + NOT_LINEAR
CLASS_GRADIENT = (
    "Schedules that form, in computing dL/dX from A1, A2, A3, X, Y and E, each score of softmax(A1 X A2ᵀ) "
    "from d products, and the output from all products of f with rows of h = A3Y, or with rows of A3. The "
    "inputs are distinct arrays: no word of one serves as a word of another."
)


@bound(
    id="compulsory_backward",
    title="Compulsory traffic, backward",
    formula=r"W \ge 7Nd",
    source="every input word is read once, every output word written once",
    regime="every M",
    status="proved here",
    passes=("backward",),
    schedules="any",
    holds_for=EVERYTHING,
    not_about="Row statistics and O, which some schedules also read, are not counted.",
)
def compulsory_backward(N: int, d: int) -> int:
    """Return 7Nd words: Q, K, V and dO are read, dQ, dK and dV are written."""
    return 7 * positive_int("N", N) * positive_int("d", d)


@bound(
    id="C",
    title="Theorem C",
    formula=r"W \ge T\left\lfloor \frac{3N^2d}{F_b(M+T)} \right\rfloor,\quad "
    r"F_b(R)=\max_{0\le c\le R} \frac{(R-c)^2}{16d} + \frac{\sqrt c\,(R-c)}{2}",
    source=DERIVED,
    regime="every M; T near M + min(M, 4d²)",
    status="proved here",
    passes=("backward",),
    schedules="exact",
    holds_for=CLASS,
    not_about="For rows cut into pieces the best constant of reads plus writes is unknown (12 to 14); for "
    "complete rows it is 14 by Theorem E. " + NOT_PARTIAL,
)
def theorem_C(N: int, d: int, M: int, T: int | None = None) -> int:
    """Return a lower bound on the words of a backward pass in the course's class; about 12N²d²/(M + 4d²)."""
    return words_C(positive_int("N", N) ** 2, d, M, T)


def words_C(pairs: int, d: int, M: int, T: int | None = None) -> int:
    """Return Theorem C for any number of pairs (query, key)."""
    d, M = positive_int("d", d), positive_int("M", M)
    return best_segment(lambda t: t * segments_C(3 * pairs * d, M + t, d), M + min(M, 4 * d * d), T)


@bound(
    id="C_line",
    title="Theorem C, closed line",
    formula=r"W \ge \frac{12N^2d^2}{M+4d^2} - (M+4d^2)",
    source=DERIVED + "; Theorem C with T = M + 4d² and F_b(R) ≤ (R + 4d²)²/16d",
    regime="every M; far below C for M under d²",
    status="proved here",
    passes=("backward",),
    holds_for=CLASS,
    not_about=NOT_PARTIAL,
)
def theorem_C_line(N: int, d: int, M: int) -> int:
    """Return the closed form of Theorem C, rounded down."""
    N, d, M = positive_int("N", N), positive_int("d", d), positive_int("M", M)
    return 12 * N**2 * d**2 // (M + 4 * d * d) - (M + 4 * d * d)


@bound(
    id="C_small",
    title="Theorem C, weighted for small fast memory",
    formula=r"W \ge T\left\lfloor \frac{(2+\sqrt 2)N^2d}{F_b(M+T)} \right\rfloor - N^2",
    source=DERIVED + "; products weighted 1 for dQ and dK, 1/√2 for dV and dP",
    regime="every M; T near M + min(M, 4d²); (4 + 2√2)N²d/√M for M much below d²",
    status="proved here",
    passes=("backward",),
    schedules="exact",
    holds_for=CLASS,
    not_about="For M below about 0.4d² Theorem C' is larger if P is not an input, and Theorem C'' below "
    "0.16d² if it may be one. " + NOT_PARTIAL,
)
def theorem_C_small(N: int, d: int, M: int, T: int | None = None) -> int:
    """Return a lower bound on the words of a backward pass, larger than Theorem C for small fast memory."""
    return words_C_small(positive_int("N", N) ** 2, d, M, T)


def words_C_small(pairs: int, d: int, M: int, T: int | None = None) -> int:
    """Return the weighted Theorem C for any number of pairs (query, key)."""
    d, M = positive_int("d", d), positive_int("M", M)
    return best_segment(
        lambda t: t * segments_C(2 * pairs * d, M + t, d, square=2 * (pairs * d) ** 2) - pairs,
        M + min(M, 4 * d * d),
        T,
    )


@bound(
    id="C'",
    title="Theorem C'",
    formula=r"W \ge T\left\lfloor \frac{(2+\frac32\sqrt 3)N^2d}{F_{b'}(M+T)} \right\rfloor - 2N^2,\quad "
    r"F_{b'}(R)=\max_{0\le c\le R} \frac{9(R-c)^2}{64d} + \frac{\sqrt c\,(R-c)}{2}",
    source=DERIVED + "; products weighted 1 for dP and dV, √3/2 for S, dQ and dK",
    regime="every M; T near M + min(M, 64d²/81)",
    status="proved here",
    passes=("backward",),
    schedules="own weights",
    holds_for=CLASS_OWN,
    not_about="It does not hold for a schedule with P as an input; Theorem C'' does. " + NOT_PARTIAL,
)
def theorem_C_prime(N: int, d: int, M: int, T: int | None = None) -> int:
    """Return a lower bound for a backward pass that computes P; about (4 + 3√3)N²d/√M for M << d²."""
    return words_C_prime(positive_int("N", N) ** 2, d, M, T)


def words_C_prime(pairs: int, d: int, M: int, T: int | None = None) -> int:
    """Return Theorem C' for any number of pairs (query, key)."""
    d, M = positive_int("d", d), positive_int("M", M)
    square = 27 * (pairs * d) ** 2 // 4
    return best_segment(
        lambda t: t * segments_C(2 * pairs * d, M + t, Fraction(4 * d, 9), square) - 2 * pairs,
        M + min(M, 64 * d * d // 81),
        T,
    )


@bound(
    id="C'_line",
    title="Theorem C', closed line",
    formula=r"W \ge \frac{(4+3\sqrt 3)N^2d}{\sqrt M\left(1 + \frac{81\sqrt M}{64d}\right)} - 2M - 2N^2",
    source=DERIVED + "; Theorem C' with T = 2M",
    regime="every M",
    status="proved here",
    passes=("backward",),
    holds_for=CLASS_OWN,
    not_about="It does not hold for a schedule with P as an input. " + NOT_PARTIAL,
)
def theorem_C_prime_line(N: int, d: int, M: int) -> int:
    """Return the closed form of Theorem C', rounded down."""
    N, d, M = positive_int("N", N), positive_int("d", d), positive_int("M", M)
    root = isqrt(M * SCALE**2) + 1
    products = 64 * (N * d) ** 2 * (4 * SCALE + isqrt(27 * SCALE**2))
    return products // (64 * d * root + 81 * M * SCALE) - 2 * M - 2 * N * N


@bound(
    id="C''",
    title="Theorem C''",
    formula=r"W \ge T\left\lfloor \frac{4N^2d}{F_{b''}(M+T)} \right\rfloor - N^2,\quad "
    r"F_{b''}(R)=\max_{0\le c\le R} \frac{3\sqrt 3\,(R-c)^2}{32d} + \frac{\sqrt c\,(R-c)}{2}",
    source=DERIVED + "; the products for dP counted as well, all weighted 1",
    regime="every M; T near M + min(M, 16d²/27)",
    status="proved here",
    passes=("backward",),
    schedules="exact",
    holds_for=CLASS,
    not_about="If P is not an input, Theorem C' is larger for small fast memory. " + NOT_PARTIAL,
)
def theorem_C_second(N: int, d: int, M: int, T: int | None = None) -> int:
    """Return a lower bound for a backward pass with or without P as an input; about 8N²d/√M for M << d²."""
    return words_C_second(positive_int("N", N) ** 2, d, M, T)


def words_C_second(pairs: int, d: int, M: int, T: int | None = None) -> int:
    """Return Theorem C'' for any number of pairs (query, key)."""
    d, M = positive_int("d", d), positive_int("M", M)
    # 2d/3√3 instead of d changes 1/16d into 3√3/32d; it is rounded down, so that F is rounded up.
    depth = Fraction(isqrt(4 * d * d * SCALE**2 // 27), SCALE)
    return best_segment(
        lambda t: t * segments_C(4 * pairs * d, M + t, depth) - pairs, M + min(M, 16 * d * d // 27), T
    )


@bound(
    id="C''_line",
    title="Theorem C'', closed line",
    formula=r"W \ge \frac{8N^2d}{\sqrt M\left(1 + \frac{27\sqrt 3\sqrt M}{32d}\right)} - 2M - N^2",
    source=DERIVED + "; Theorem C'' with T = 2M",
    regime="every M",
    status="proved here",
    passes=("backward",),
    holds_for=CLASS,
    not_about=NOT_PARTIAL,
)
def theorem_C_second_line(N: int, d: int, M: int) -> int:
    """Return the closed form of Theorem C'', rounded down."""
    N, d, M = positive_int("N", N), positive_int("d", d), positive_int("M", M)
    root = isqrt(M * SCALE**2) + 1
    steep = isqrt(3 * (27 * M * SCALE) ** 2) + 1  # 27√3·M
    return 256 * (N * d) ** 2 * SCALE // (32 * d * root + steep) - 2 * M - N * N


@bound(
    id="compulsory_gradient",
    title="Compulsory traffic, gradient with respect to X",
    formula=r"W \ge 4Nd + 3d^2",
    source="every input word is read once, every output word written once",
    regime="every M",
    status="proved here",
    passes=("gradient",),
    schedules="any",
    holds_for=EVERYTHING,
    not_about="It is for the inputs listed: a schedule that also has O or LSE as inputs reads them too.",
)
def compulsory_gradient(N: int, d: int) -> int:
    """Return 4Nd + 3d² words: A1, A2, A3, E (N, d), X and Y (d, d) are read, dL/dX (d, d) is written."""
    return 4 * positive_int("N", N) * positive_int("d", d) + 3 * positive_int("d", d) ** 2


@bound(
    id="gradient_forward",
    title="Forward part of the gradient with respect to X",
    formula=r"W \ge T\left\lfloor \frac{N^2d}{F(M+T)} \right\rfloor - Nd,\quad "
    r"\text{so } W \ge \frac{4N^2d^2}{M+d^2} - (M+d^2) - Nd",
    source=DERIVED + "; Theorem A minus the Nd words of O, which need not be written",
    regime="every M; T = M + d² for M ≥ d², T = 2M below",
    status="proved here",
    passes=("gradient",),
    schedules="exact",
    holds_for=CLASS_GRADIENT,
    not_about="It counts the forward part only. For the backward part of this problem no constant is known. "
    "It does not hold for a schedule with O as an input.",
)
def gradient_forward(N: int, d: int, M: int, T: int | None = None) -> int:
    """Return a lower bound on the words of the forward part of a gradient computed from the inputs."""
    N, d = check_sizes(N=N, d=d)
    return words_A(N * N, d, M, T) - N * d


@bound(
    id="open_backward",
    title="Is 14 the least constant for rows cut into pieces?",
    formula=r"W \ge \frac{14N^2d^2}{M}",
    source="an open question: split_backward attains it to leading order, Theorem C proves 12; for complete "
    "rows Theorem E proves 14",
    regime="d² << M << Nd",
    status="open",
    passes=("backward",),
    holds_for=CLASS,
    not_about="For complete rows it is solved: 14 is exact. Reads alone can be 12, which fused_backward "
    "attains. The question is about reads plus writes if parts of rows are moved separately.",
)
def _open_backward(N: int, d: int, M: int) -> float:
    """Return 14N²d²/M; neither a schedule below it nor a proof that none exists is known here."""
    N, d, M = check_sizes(N=N, d=d, M=M)
    return 14 * N**2 * d**2 / M


@bound(
    id="open_backward_small",
    title="Is 10 the least constant for small fast memory?",
    formula=r"W \ge \frac{10N^2d}{\sqrt M}",
    source="an open question: small_cache_backward attains it to leading order, Theorem C' proves 4 + 3√3, "
    "about 9.2",
    regime="M << d²",
    status="open",
    passes=("backward",),
    holds_for=CLASS_OWN,
    not_about="With P as an input it is solved: 8 is attained, and exact by Theorem C''.",
)
def _open_backward_small(N: int, d: int, M: int) -> float:
    """Return 10N²d/√M; neither a schedule below it nor a proof that none exists is known here."""
    N, d, M = check_sizes(N=N, d=d, M=M)
    return 10 * N**2 * d / sqrt(M)
