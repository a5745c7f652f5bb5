"""Lower bounds with a mask: the theorems with the number of visible pairs instead of N²."""

from __future__ import annotations

from ..sizes import zero_or_more
from .backward import CLASS as CLASS_BACKWARD
from .backward import CLASS_OWN, NOT_PARTIAL, words_C, words_C_prime, words_C_second, words_C_small
from .bound import bound
from .forward import CLASS, CLASS_ONCE, DERIVED, NOT_LINEAR, words_A, words_B, words_B_prime

FIXED = " The mask is fixed, and only the visible pairs count."
COUNTS = (
    "It counts visible pairs, not their positions: a window moves 4Nd for any width whose ring buffer fits. "
)


@bound(
    id="compulsory_sparse",
    title="Compulsory traffic under a mask",
    formula=r"W \ge d\,(2\,n_{rows} + 2\,n_{columns})",
    source="every input word that is needed is read once, every output word of a nonempty row written once",
    regime="every M",
    status="proved here",
    passes=("forward",),
    schedules="any",
    holds_for="Schedules that form every visible score; rows and columns are those with a visible pair.",
    not_about="Outputs of rows without a visible pair are not counted.",
)
def compulsory_sparse(rows: int, columns: int, d: int) -> int:
    """Return d (2 rows + 2 columns) words, for nonempty rows and columns: Q, K, V read, O written."""
    return zero_or_more("d", d) * (2 * zero_or_more("rows", rows) + 2 * zero_or_more("columns", columns))


@bound(
    id="compulsory_sparse_backward",
    title="Compulsory traffic under a mask, backward",
    formula=r"W \ge d\,(3\,n_{rows} + 4\,n_{columns})",
    source="every input word that is needed is read once, gradients of nonempty rows and columns written",
    regime="every M",
    status="proved here",
    passes=("backward",),
    schedules="any",
    holds_for="Schedules that form every visible score; rows and columns are those with a visible pair.",
    not_about="Gradients of rows and columns without a visible pair are not counted.",
)
def compulsory_sparse_backward(rows: int, columns: int, d: int) -> int:
    """Return d (3 rows + 4 columns) words: Q, dO read, dQ written; K, V read, dK, dV written."""
    return zero_or_more("d", d) * (3 * zero_or_more("rows", rows) + 4 * zero_or_more("columns", columns))


@bound(
    id="D",
    title="Theorem D",
    formula=r"W \ge T\left\lfloor \frac{\mathrm{nnz}\cdot d}{F(M+T)} \right\rfloor,\quad "
    r"\text{so } W \ge \frac{4\,\mathrm{nnz}\,d^2}{M+d^2} - (M+d^2)",
    source=DERIVED + "; Theorem A over the visible pairs",
    regime="every M; T = M + d² for M ≥ d², T = 2M below",
    status="proved here",
    passes=("forward",),
    schedules="exact",
    holds_for=CLASS + FIXED,
    not_about=COUNTS + NOT_LINEAR,
)
def theorem_D(nnz: int, d: int, M: int, T: int | None = None) -> int:
    """Return Theorem A with nnz visible pairs instead of N²."""
    return words_A(zero_or_more("nnz", nnz), d, M, T)


@bound(
    id="D_B",
    title="Theorem D, no recomputation",
    formula=r"W \ge T\left\lfloor \frac{2\,\mathrm{nnz}\,d}{((M+T)/3)^{3/2}} \right\rfloor - \mathrm{nnz}",
    source=DERIVED + "; Theorem B over the visible pairs",
    regime="every M; T near 2M",
    status="proved here",
    passes=("forward",),
    schedules="once",
    holds_for=CLASS_ONCE + FIXED,
    not_about="It does not hold for schedules that compute a score more than once. " + COUNTS + NOT_LINEAR,
)
def theorem_D_B(nnz: int, d: int, M: int, T: int | None = None) -> int:
    """Return Theorem B with nnz visible pairs instead of N²."""
    return words_B(zero_or_more("nnz", nnz), d, M, T)


@bound(
    id="D_B'",
    title="Theorem D, small fast memory",
    formula=r"W \ge T\left\lfloor \frac{2\,\mathrm{nnz}\,d}{F_b(M+T)} \right\rfloor - \mathrm{nnz}",
    source=DERIVED + "; Theorem B' over the visible pairs",
    regime="every M; T near M + min(M, 4d²)",
    status="proved here",
    passes=("forward",),
    schedules="exact",
    holds_for=CLASS + FIXED,
    not_about=COUNTS + NOT_LINEAR,
)
def theorem_D_B_prime(nnz: int, d: int, M: int, T: int | None = None) -> int:
    """Return Theorem B' with nnz visible pairs instead of N²."""
    return words_B_prime(zero_or_more("nnz", nnz), d, M, T)


@bound(
    id="D_C",
    title="Theorem D, backward",
    formula=r"W \ge T\left\lfloor \frac{3\,\mathrm{nnz}\,d}{F_b(M+T)} \right\rfloor",
    source=DERIVED + "; Theorem C over the visible pairs",
    regime="every M; T near M + min(M, 4d²)",
    status="proved here",
    passes=("backward",),
    schedules="exact",
    holds_for=CLASS_BACKWARD + FIXED,
    not_about=COUNTS + NOT_PARTIAL,
)
def theorem_D_C(nnz: int, d: int, M: int, T: int | None = None) -> int:
    """Return Theorem C with nnz visible pairs instead of N²."""
    return words_C(zero_or_more("nnz", nnz), d, M, T)


@bound(
    id="D_C_small",
    title="Theorem D, backward, weighted for small fast memory",
    formula=r"W \ge T\left\lfloor \frac{(2+\sqrt 2)\,\mathrm{nnz}\,d}{F_b(M+T)} \right\rfloor - \mathrm{nnz}",
    source=DERIVED + "; the weighted Theorem C over the visible pairs",
    regime="every M; T near M + min(M, 4d²)",
    status="proved here",
    passes=("backward",),
    schedules="exact",
    holds_for=CLASS_BACKWARD + FIXED,
    not_about=COUNTS + NOT_PARTIAL,
)
def theorem_D_C_small(nnz: int, d: int, M: int, T: int | None = None) -> int:
    """Return the bound of a backward pass with nnz visible pairs: the weighted Theorem C with nnz for N²."""
    return words_C_small(zero_or_more("nnz", nnz), d, M, T)


@bound(
    id="D_C'",
    title="Theorem D, backward, P computed by the schedule",
    formula=r"W \ge T\left\lfloor \frac{(2+\frac32\sqrt 3)\,\mathrm{nnz}\,d}{F_{b'}(M+T)} \right\rfloor "
    r"- 2\,\mathrm{nnz}",
    source=DERIVED + "; Theorem C' over the visible pairs",
    regime="every M; T near M + min(M, 64d²/81)",
    status="proved here",
    passes=("backward",),
    schedules="own weights",
    holds_for=CLASS_OWN + FIXED,
    not_about="It does not hold for a schedule with P as an input. " + COUNTS + NOT_PARTIAL,
)
def theorem_D_C_prime(nnz: int, d: int, M: int, T: int | None = None) -> int:
    """Return Theorem C' with nnz visible pairs instead of N²."""
    return words_C_prime(zero_or_more("nnz", nnz), d, M, T)


@bound(
    id="D_C''",
    title="Theorem D, backward, P as an input or not",
    formula=r"W \ge T\left\lfloor \frac{4\,\mathrm{nnz}\,d}{F_{b''}(M+T)} \right\rfloor - \mathrm{nnz}",
    source=DERIVED + "; Theorem C'' over the visible pairs",
    regime="every M; T near M + min(M, 16d²/27)",
    status="proved here",
    passes=("backward",),
    schedules="exact",
    holds_for=CLASS_BACKWARD + FIXED,
    not_about=COUNTS + NOT_PARTIAL,
)
def theorem_D_C_second(nnz: int, d: int, M: int, T: int | None = None) -> int:
    """Return Theorem C'' with nnz visible pairs instead of N²."""
    return words_C_second(zero_or_more("nnz", nnz), d, M, T)
