"""Lower bounds from the literature, with constants if the argument gives them, otherwise as an order."""

from __future__ import annotations

from math import isqrt, sqrt

from ..sizes import check_sizes, positive_int
from .bound import OUR_CONSTANTS, bound, public, require
from .forward import CLASS, NOT_LINEAR

SAHA_YE = "Saha and Ye, 2402.07443 (ICML 2024)"
FINE_GRAINED = "Li, Liang, Shi, Song and Zhou, 2410.09397 (v2)"
HIDDEN = "Not a number of words: its constant is not given. "
SINKS = "For M > Nd it is smaller than the compulsory traffic; take the larger of both."


@bound(
    id="matmul",
    title="Matrix product",
    formula=r"W \ge \max\left(\frac{2mnk}{\sqrt M} - 2M,\; mk+kn+mn\right)",
    source="Smith, Lowery, Langou, van de Geijn, 1702.02017; the second term is the compulsory traffic",
    regime="every M",
    status="published",
    passes=("matrix product",),
    holds_for="Schedules of C = AB that form all mnk scalar products, in any order.",
    not_about="Fast matrix multiplication (Strassen) is outside.",
)
def matmul(m: int, n: int, k: int, M: int) -> int:
    """Return a lower bound on the words of C = AB by mnk scalar products, A (m, k), B (k, n)."""
    m, n, k, M = (positive_int(name, v) for name, v in (("m", m), ("n", n), ("k", k), ("M", M)))
    return max(isqrt(4 * (m * n * k) ** 2 // M) - 2 * M, m * k + k * n + m * n)


@bound(
    id="saha_ye",
    title="Saha and Ye, large fast memory, constants kept",
    formula=r"W \ge \frac{N^2d^2}{4(M+d^2)} - M",
    source=SAHA_YE
    + ", Lemma 3.3 with Hong-Kung's partition; this course keeps the constants the paper drops",
    regime="M ≥ d²",
    status=OUR_CONSTANTS,
    passes=("forward",),
    holds_for=CLASS,
    not_about="The paper states the order N²d²/M only. It counts score trees, not V and O, and is about 16 "
    "times smaller than Theorem A. " + NOT_LINEAR,
)
def saha_ye(N: int, d: int, M: int) -> int:
    """Return the bound of the published argument for M ≥ d² with all constants, rounded down."""
    N, d, M = positive_int("N", N), positive_int("d", d), positive_int("M", M)
    require("saha_ye", "M ≥ d²", d * d <= M, M=M, d=d)
    return N**2 * d**2 // (4 * (M + d * d)) - M


@bound(
    id="saha_ye_small",
    title="Saha and Ye, small fast memory, constants kept",
    formula=r"W \ge \frac{2N^2d}{\sqrt M} - 2M - N^2",
    source=SAHA_YE
    + ": QKᵀ follows by writing each score once; with the constant of Smith et al., 1702.02017",
    regime="M ≤ d²",
    status=OUR_CONSTANTS,
    passes=("forward",),
    holds_for=CLASS,
    not_about="The paper states the order N²d/√M only. " + NOT_LINEAR,
)
def saha_ye_small(N: int, d: int, M: int) -> int:
    """Return the bound of the published reduction for M ≤ d² with all constants, rounded down."""
    N, d, M = positive_int("N", N), positive_int("d", d), positive_int("M", M)
    require("saha_ye_small", "M ≤ d²", d * d >= M, M=M, d=d)
    return isqrt(4 * (N * N * d) ** 2 // M) - 2 * M - N * N


@bound(
    id="theta_attention",
    title="Order of the attention forward pass",
    formula=r"W = \Theta\left(\min\left\{\frac{N^2d^2}{M},\; \frac{N^2d}{\sqrt M}\right\}\right)",
    source=SAHA_YE,
    regime="M ≤ Nd",
    status="asymptotic only",
    passes=("forward",),
    holds_for=CLASS,
    not_about=HIDDEN + SINKS,
)
def theta_attention(N: int, d: int, M: int) -> float:
    """Return the order min{N²d²/M, N²d/√M}."""
    N, d, M = check_sizes(N=N, d=d, M=M)
    require("theta_attention", "M ≤ Nd", N * d >= M, M=M, N=N, d=d)
    return min(N**2 * d**2 / M, N**2 * d / sqrt(M))


@bound(
    id="omega_fast_matmul",
    title="Attention with any matrix multiplication",
    formula=r"W = \Omega\left(\min\left\{\frac{N^2d^2}{M},\; N^2\right\}\right)",
    source=SAHA_YE + ", Theorem 4.8",
    regime="entries of Q and K from a finite field with more than N elements",
    status="asymptotic only",
    passes=("forward",),
    holds_for="Algorithms that may multiply matrices in any way, Strassen's included.",
    not_about=HIDDEN
    + "It is about worst-case entries of a finite field, not about real numbers of a trained head.",
)
def omega_fast_matmul(N: int, d: int, M: int) -> float:
    """Return the order min{N²d²/M, N²}."""
    N, d, M = check_sizes(N=N, d=d, M=M)
    return min(N**2 * d**2 / M, float(N**2))


@bound(
    id="theta_gradient",
    title="Order of the gradient with respect to X",
    formula=r"W = \Theta\left(\min\left\{\frac{N^2d^2+Nd^3}{M},\; \frac{N^2d+Nd^2}{\sqrt M}\right\}\right)",
    source=FINE_GRAINED + ", main theorem",
    regime="M ≤ Nd",
    status="asymptotic only",
    passes=("gradient",),
    holds_for="Algorithms by ordinary matrix multiplication, as the paper defines them.",
    not_about=HIDDEN + SINKS,
)
def theta_gradient(N: int, d: int, M: int) -> float:
    """Return the order min{(N²d² + Nd³)/M, (N²d + Nd²)/√M}."""
    N, d, M = check_sizes(N=N, d=d, M=M)
    require("theta_gradient", "M ≤ Nd", N * d >= M, M=M, N=N, d=d)
    return min((N**2 * d**2 + N * d**3) / M, (N**2 * d + N * d**2) / sqrt(M))


@bound(
    id="omega_sparse",
    title="Scores of sparse Q and K",
    formula=r"W = \Omega\left(\min\left\{\frac{Z_{\mathrm{in}}^2}{M},\; "
    r"\frac{Z_{\mathrm{in}}\sqrt{Z_{QK}}}{\sqrt M}\right\}\right)",
    source=FINE_GRAINED + "; Pagh and Stöckel, 1403.3551, applied to QKᵀ",
    regime="worst case over the positions of the nonzeros",
    status="asymptotic only",
    passes=("forward", "gradient"),
    holds_for="Schedules that form QKᵀ by semiring operations; Z_input nonzeros in Q and K, Z_QK in QKᵀ.",
    not_about=HIDDEN
    + "It is about nonzero entries of Q and K and of their product, not about a mask: with dense "
    "Q and K and a mask of density s, block-sparse attention moves 4sN²d²/M words, fewer than this "
    "expression for small s. It is the dense bound of the densest block: √Z_QK tokens with "
    "Z_input/√Z_QK features.",
)
def omega_sparse(Z_input: int, Z_QK: int, M: int) -> float:
    """Return the order min{Z_input²/M, Z_input·√Z_QK/√M}."""
    Z_input, Z_QK, M = check_sizes(Z_input=Z_input, Z_QK=Z_QK, M=M)
    return min(Z_input**2 / M, Z_input * sqrt(Z_QK / M))


@public
def square_side(M: int) -> int:
    """Return the largest b with b² + 2b ≤ M: an output tile b × b, a column and a row fit in fast memory."""
    return isqrt(positive_int("M", M) + 1) - 1
