"""Lower bounds for variants of attention: tied keys and values (K = V), a latent cache, and low rank."""

from __future__ import annotations

from fractions import Fraction

from ..sizes import check_sizes, positive_int
from .bound import bound, require
from .forward import DERIVED, DISTINCT, NOT_LINEAR
from .segments import best_segment, segments_C

CLASS_TIED = (
    "Schedules of softmax(QXᵀ)X, where K = V = X is one array and Q another: each score from d products q·x, "
    "each output from all products p·x; any order, any tiles, any recomputation of scores."
)
CLASS_LATENT = (
    "Schedules whose keys are the rows of one array, d_k wide, and whose values are the first d_v words of "
    "the same rows: each score from d_k products, each output from all products p·v; n pairs over all heads; "
    "any order, any tiles, any recomputation of scores. Q is another array."
)
CLASS_LOW_RANK = (
    "Schedules of φ(Q)(ψ(K)ᵀV) that form every product of a feature with a word of V, and of a feature with "
    "a word of the state. Each of the r features of a row is computed from all d words of the row, not from "
    "a part of them or from another feature. Features and the state may be recomputed, kept or moved; any "
    "order. " + DISTINCT
)


@bound(
    id="compulsory_tied",
    title="Compulsory traffic, keys that are the values",
    formula=r"W \ge 3Nd",
    source="every input word is read once, every output word written once",
    regime="every M",
    status="proved here",
    passes=("tied",),
    schedules="any",
    holds_for="Schedules that read every word of Q and X and write every word of O.",
    not_about="It is not added to a segment bound: both count the same reads.",
)
def compulsory_tied(N: int, d: int) -> int:
    """Return 3Nd words: Q and X are read, O is written."""
    return 3 * positive_int("N", N) * positive_int("d", d)


@bound(
    id="tied",
    title="Theorem A, tied",
    formula=r"W \ge T\left\lfloor \frac{N^2d}{F_t(M+T)} \right\rfloor,\quad "
    r"F_t(R)=\max_{0\le c\le R} \frac{(R-c)^2}{8d} + \frac{\sqrt c\,(R-c)}{2},\quad "
    r"\text{so } W \ge \frac{2N^2d^2}{M+d^2} - (M+d^2)",
    source=DERIVED + "; a row of X is both a key and a value",
    regime="every M; T near M + min(M, d²)",
    status="proved here",
    passes=("tied",),
    schedules="exact",
    holds_for=CLASS_TIED,
    not_about="For distinct K and V, Theorem A is twice as large. If also Q = X, no constant is known. "
    + NOT_LINEAR,
)
def theorem_tied(N: int, d: int, M: int, T: int | None = None) -> int:
    """Return a lower bound on the words of attention with K = V = X; about 2N²d²/(M + d²)."""
    N, d = check_sizes(N=N, d=d)
    return theorem_latent.evaluate(N * N, d, d, M, T)  # type: ignore[no-any-return]


@bound(
    id="latent",
    title="Theorem A, latent cache",
    formula=r"W \ge T\left\lfloor \frac{n\,d_v}{F_l(M+T)} \right\rfloor,\quad "
    r"F_l(R)=\max_{0\le c\le R} \frac{d_v(R-c)^2}{4d_k(d_k+d_v)} + \frac{\sqrt c\,(R-c)}{2},\quad "
    r"\text{so } W \ge \frac{n\,d_k(d_k+d_v)}{M+a} - (M+a)\text{ with } "
    r"a=\left(\frac{d_k(d_k+d_v)}{2d_v}\right)^2",
    source=DERIVED + "; the words of a value are words of its key",
    regime="d_v ≤ d_k",
    status="proved here",
    passes=("latent",),
    holds_for=CLASS_LATENT,
    not_about="It counts one read of the cache for all heads that share it. " + NOT_LINEAR,
)
def theorem_latent(n: int, d_k: int, d_v: int, M: int, T: int | None = None) -> int:
    """Return a lower bound on the words of n pairs if values are the first d_v of the d_k words of keys."""
    n, d_k, d_v, M = check_sizes(n=n, d_k=d_k, d_v=d_v, M=M)
    require("latent", "d_v ≤ d_k", d_v <= d_k, d_k=d_k, d_v=d_v)
    depth = Fraction(d_k * (d_k + d_v), 4 * d_v)
    return best_segment(
        lambda t: t * segments_C(n * d_v, M + t, depth), M + min(M, max(1, int(4 * depth**2))), T
    )


@bound(
    id="low_rank",
    title="Low rank, features from whole rows",
    formula=r"W \ge \frac{2rNd^2}{M} - M - rd",
    source=DERIVED + "; segments of M words, each with products of complete rows and all words of the state",
    regime="d²/2 ≤ M < N",
    status="proved here",
    passes=("low rank",),
    holds_for=CLASS_LOW_RANK,
    not_about="Features computed from each other, or from parts of a row, are not covered. For every r and M "
    "the compulsory traffic holds too; take the larger of both.",
)
def theorem_low_rank(N: int, d: int, r: int, M: int) -> int:
    """Return a lower bound on the words of attention through r features; `low_rank` moves 2rNd²/M + 2Nd."""
    N, d, r, M = check_sizes(N=N, d=d, r=r, M=M)
    require("low_rank", "d²/2 ≤ M < N", d * d <= 2 * M and M < N, M=M, N=N, d=d)
    return 2 * r * N * d * d // M - M - r * d
