"""Lower bounds for the dense forward pass of exact attention, proved in this course with every constant."""

from __future__ import annotations

from math import isqrt

from ..sizes import positive_int
from .bound import bound, require
from .segments import SCALE, best_segment, segments_A, segments_B, segments_C

DERIVED = (
    "derived in this course: segments and Loomis-Whitney (Hong-Kung 1981, Irony-Toledo-Tiskin 2004), "
    "with segment lengths as in Smith et al., 1702.02017"
)
DISTINCT = "Q, K and V are distinct arrays: no word of one serves as a word of another."
CLASS = (
    "Schedules that form each score from d products q·k, and each output from all products p·v with p a "
    "function of the score and of statistics of its row; any order, any tiles, any recomputation of scores. "
    + DISTINCT
)
CLASS_ONCE = (
    "Schedules that form each score from d products q·k, none of them twice, and each output from all "
    "products p·v; any order, any tiles. " + DISTINCT
)
NOT_LINEAR = (
    "Fast matrix multiplication and attention without the weights p_ij (linear, low-rank) are not covered."
)
EVERYTHING = (
    "Schedules that read every input word and write every output word: all that use their inputs, which are "
    "distinct arrays."
)


@bound(
    id="compulsory",
    title="Compulsory traffic",
    formula=r"W \ge 4Nd",
    source="every input word is read once, every output word written once",
    regime="every M",
    status="proved here",
    passes=("forward",),
    schedules="any",
    holds_for=EVERYTHING,
    not_about="It is not added to a segment bound: both count the same reads.",
)
def compulsory(N: int, d: int) -> int:
    """Return 4Nd words: Q, K and V are read, O is written."""
    return 4 * positive_int("N", N) * positive_int("d", d)


@bound(
    id="A",
    title="Theorem A",
    formula=r"W \ge T\left\lfloor \frac{N^2d}{F(M+T)} \right\rfloor,\quad "
    r"F(R)=\frac{(R+d^2)^2}{16d}\ (R\ge 3d^2),\ \left(\frac{R}{3}\right)^{3/2}\ (R<3d^2)",
    source=DERIVED,
    regime="every M; T = M + d² for M ≥ d², T = 2M below",
    status="proved here",
    passes=("forward",),
    schedules="exact",
    holds_for=CLASS,
    not_about=NOT_LINEAR,
)
def theorem_A(N: int, d: int, M: int, T: int | None = None) -> int:
    """Return a lower bound on the words of exact attention in the course's class, with recomputation allowed.

    T, the length of a segment, may be any positive integer; None maximises T/F(M + T). For M ≥ d² the
    bound is 4N²d²/(M + d²) - (M + d²) up to rounding.
    """
    return words_A(positive_int("N", N) ** 2, d, M, T)


def words_A(pairs: int, d: int, M: int, T: int | None = None) -> int:
    """Return Theorem A for any number of pairs (query, key)."""
    d, M = positive_int("d", d), positive_int("M", M)
    segment = positive_int("T", T) if T is not None else M + min(M, d * d)
    return segment * segments_A(pairs * d, M + segment, d)


@bound(
    id="A_large",
    title="Theorem A, large fast memory",
    formula=r"W \ge \frac{4N^2d^2}{M+d^2} - (M+d^2)",
    source=DERIVED + "; Theorem A with T = M + d²",
    regime="M ≥ d² (below d², A_small is larger)",
    status="proved here",
    passes=("forward",),
    holds_for=CLASS,
    not_about=NOT_LINEAR,
)
def theorem_A_large(N: int, d: int, M: int) -> int:
    """Return the closed form of Theorem A for M ≥ d², rounded down."""
    N, d, M = positive_int("N", N), positive_int("d", d), positive_int("M", M)
    require("A_large", "M ≥ d²", d * d <= M, M=M, d=d)
    return 4 * N**2 * d**2 // (M + d * d) - (M + d * d)


@bound(
    id="A_small",
    title="Theorem A, small fast memory",
    formula=r"W \ge \frac{2N^2d}{\sqrt M} - 2M",
    source=DERIVED + "; Theorem A with T = 2M",
    regime="M ≤ d²",
    status="proved here",
    passes=("forward",),
    holds_for=CLASS,
    not_about=NOT_LINEAR,
)
def theorem_A_small(N: int, d: int, M: int) -> int:
    """Return the closed form of Theorem A for M ≤ d², rounded down."""
    N, d, M = positive_int("N", N), positive_int("d", d), positive_int("M", M)
    require("A_small", "M ≤ d²", d * d >= M, M=M, d=d)
    return isqrt(4 * (N * N * d) ** 2 // M) - 2 * M


@bound(
    id="B",
    title="Theorem B",
    formula=r"W \ge T\left\lfloor \frac{2N^2d}{((M+T)/3)^{3/2}} \right\rfloor - N^2",
    source=DERIVED,
    regime="every M; T near 2M",
    status="proved here",
    passes=("forward",),
    schedules="once",
    holds_for=CLASS_ONCE,
    not_about="It does not hold for schedules that compute a score more than once. " + NOT_LINEAR,
)
def theorem_B(N: int, d: int, M: int, T: int | None = None) -> int:
    """Return a lower bound on the words of exact attention that forms no product q·k twice."""
    return words_B(positive_int("N", N) ** 2, d, M, T)


def words_B(pairs: int, d: int, M: int, T: int | None = None) -> int:
    """Return Theorem B for any number of pairs (query, key)."""
    d, M = positive_int("d", d), positive_int("M", M)
    return best_segment(lambda t: t * segments_B(2 * pairs * d, M + t) - pairs, 2 * M, T)


@bound(
    id="B_line",
    title="Theorem B, closed line",
    formula=r"W \ge \frac{4N^2d}{\sqrt M} - 2M - N^2",
    source=DERIVED + "; Theorem B with T = 2M",
    regime="every M; 0 for M ≥ 16d²",
    status="proved here",
    passes=("forward",),
    holds_for=CLASS_ONCE,
    not_about="It does not hold for schedules that compute a score more than once. " + NOT_LINEAR,
)
def theorem_B_line(N: int, d: int, M: int) -> int:
    """Return the closed form of Theorem B, rounded down."""
    N, d, M = positive_int("N", N), positive_int("d", d), positive_int("M", M)
    return isqrt(16 * (N * N * d) ** 2 // M) - 2 * M - N * N


@bound(
    id="B'",
    title="Theorem B'",
    formula=r"W \ge T\left\lfloor \frac{2N^2d}{F_b(M+T)} \right\rfloor - N^2,\quad "
    r"F_b(R)=\max_{0\le c\le R} \frac{(R-c)^2}{16d} + \frac{\sqrt c\,(R-c)}{2}",
    source=DERIVED,
    regime="every M; T near M + min(M, 4d²); larger than A for M up to about d²",
    status="proved here",
    passes=("forward",),
    schedules="exact",
    holds_for=CLASS,
    not_about=NOT_LINEAR,
)
def theorem_B_prime(N: int, d: int, M: int, T: int | None = None) -> int:
    """Return a lower bound on the words of exact attention in the course's class, for small M.

    It is about 4N²d/√M for M << d².
    """
    return words_B_prime(positive_int("N", N) ** 2, d, M, T)


def words_B_prime(pairs: int, d: int, M: int, T: int | None = None) -> int:
    """Return Theorem B' for any number of pairs (query, key)."""
    d, M = positive_int("d", d), positive_int("M", M)
    return best_segment(lambda t: t * segments_C(2 * pairs * d, M + t, d) - pairs, M + min(M, 4 * d * d), T)


@bound(
    id="B'_line",
    title="Theorem B', closed line",
    formula=r"W \ge \frac{4N^2d}{\sqrt M\left(1 + \frac{9\sqrt M}{16d}\right)} - 2M - N^2",
    source=DERIVED + "; Theorem B' with T = 2M and F_b(3M) ≤ M^{3/2} + 9M²/16d",
    regime="every M",
    status="proved here",
    passes=("forward",),
    holds_for=CLASS,
    not_about=NOT_LINEAR,
)
def theorem_B_prime_line(N: int, d: int, M: int) -> int:
    """Return the closed form of Theorem B', rounded down."""
    N, d, M = positive_int("N", N), positive_int("d", d), positive_int("M", M)
    root = isqrt(M * SCALE**2) + 1
    return 64 * (N * d) ** 2 * SCALE // (16 * d * root + 9 * M * SCALE) - 2 * M - N * N
