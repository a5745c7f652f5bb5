"""How little is possible: lower bounds in words, each with its source and how sure it is.

A bound holds for every schedule of its class and every fast memory of M words. `lower_bound` gives the
best one that applies, evaluated at M + 4 because four scalar registers are free on the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt

from .guard import refuse_in_exam
from .machine import FREE_REGISTERS
from .sizes import positive_int


@dataclass(frozen=True)
class Bound:
    """A lower bound: `bound(...)` evaluates it in words.

    `formula` is LaTeX, `status` one of "proved here", "published", "asymptotic only", "open".
    """

    id: str
    title: str
    formula: str
    source: str
    regime: str
    status: str
    evaluate: Callable[..., int]

    def __call__(self, *args: int, **kwargs: int) -> int:
        refuse_in_exam(f"iocourse.bounds, bound {self.id},")
        return self.evaluate(*args, **kwargs)


BOUNDS: dict[str, Bound] = {}


def _bound(
    id: str, title: str, formula: str, source: str, regime: str, status: str
) -> Callable[[Callable[..., int]], Bound]:
    def register(evaluate: Callable[..., int]) -> Bound:
        BOUNDS[id] = Bound(id, title, formula, source, regime, status, evaluate)
        return BOUNDS[id]

    return register


@_bound(
    id="compulsory",
    title="Compulsory traffic",
    formula=r"W \ge 4Nd",
    source="every input word is read once, every output word written once",
    regime="every M",
    status="proved here",
)
def compulsory(N: int, d: int) -> int:
    """4Nd words: Q, K and V are read, O is written."""
    return 4 * positive_int("N", N) * positive_int("d", d)


@_bound(
    id="A",
    title="Theorem A",
    formula=r"W \ge T\left\lfloor \frac{N^2d}{F(M+T)} \right\rfloor,\quad "
    r"F(R)=\frac{(R+d^2)^2}{16d}\ (R\ge 3d^2),\ \left(\frac{R}{3}\right)^{3/2}\ (R<3d^2)",
    source="a derivation of this course: segments and Loomis-Whitney "
    "(Hong-Kung 1981, Irony-Toledo-Tiskin 2004)",
    regime="every M; T = M + d² for M ≥ d², T = 2M below",
    status="proved here",
)
def theorem_A(N: int, d: int, M: int, T: int | None = None) -> int:
    """Words that any exact attention of the course's class moves; recomputation is allowed.

    T, the length of a segment, may be any positive number; the default is the choice for the regime of M.
    For M ≥ d² it reads 4N²d²/(M + d²) - (M + d²) up to rounding.
    """
    N, d, M = positive_int("N", N), positive_int("d", d), positive_int("M", M)
    segment = positive_int("T", T) if T is not None else (M + d * d if d * d <= M else 2 * M)
    return segment * _full_segments(N * N * d, M + segment, d)


def _full_segments(products: int, R: int, d: int) -> int:
    """⌊products / F(R)⌋ in whole numbers: a rounded quotient could turn the bound into a false one."""
    if 3 * d * d <= R:
        return products * 16 * d // (R + d * d) ** 2
    return isqrt(27 * products**2 // R**3)


def products_per_segment(R: int, d: int) -> float:
    """F(R) of Theorem A: the most products p·v that R words of Q, K, V, O and scores allow."""
    if 3 * d * d <= R:
        return float((R + d * d) ** 2 / (16 * d))
    return float((R / 3) ** 1.5)


@_bound(
    id="matmul",
    title="Matrix product",
    formula=r"W \ge \max\left(\frac{2mnk}{\sqrt M} - 2M,\; mk+kn+mn\right)",
    source="Smith, Lowery, Langou, van de Geijn, 1702.02017; the second term is the compulsory traffic",
    regime="every M",
    status="published",
)
def matmul(m: int, n: int, k: int, M: int) -> int:
    """Words that any schedule of C = AB by mnk scalar products moves, A (m, k), B (k, n)."""
    m, n, k, M = (positive_int(name, v) for name, v in (("m", m), ("n", n), ("k", k), ("M", M)))
    return max(isqrt(4 * (m * n * k) ** 2 // M) - 2 * M, m * k + k * n + m * n)


def lower_bound(pass_: str, N: int, d: int, M: int) -> tuple[int, str]:
    """The best lower bound for a pass and the id of the bound that gives it: (words, id).

    `pass_` is "forward". Evaluated at M + 4, the machine's free registers included.
    Raises ValueError for a pass that has no bound here.
    """
    if pass_ != "forward":
        raise ValueError(f"pass_ = {pass_!r} has no lower bound here; there is one for 'forward'")
    registers = positive_int("M", M) + FREE_REGISTERS
    candidates = {"compulsory": compulsory(N, d), "A": theorem_A(N, d, registers)}
    best = max(candidates, key=candidates.__getitem__)
    return candidates[best], best


def square_side(M: int) -> int:
    """The largest b with b² + 2b ≤ M: the side of an output tile that leaves room for a column and a row."""
    return isqrt(positive_int("M", M) + 1) - 1
