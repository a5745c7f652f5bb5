"""Data for the low-rank explorer: errors, rank, traffic, break-even length and a recommendation.

Errors are measured on `Logits`: of given queries and keys, of a shipped head, or Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import ceil, floor, inf, log10, sqrt
from typing import Any, NamedTuple

import numpy as np

from .... import schedules
from ....costs import ceil_div
from ....data import real_head
from ....ledger import Ledger
from ....lowrank.advice import predicted_error
from ....lowrank.polynomials import (
    CLIP,
    LARGEST_RADIUS,
    NAMES,
    Polynomial,
    hermite,
    largest_error,
    polynomial,
)
from ....monomials import Array, rank_of
from ....schedules import BreakEven
from ....sizes import positive_int
from ..draw.text import big, tick_label

# ---------------------------------------------------------------------- the data
SAMPLED_KEYS = 512
SAMPLED = 1 << 15  # sampled logits, in rows of at most SAMPLED_KEYS keys
GAUSSIAN_ROWS = 64
LARGEST = 1e70  # entry of Q or K: squares of logits do not overflow float64


@dataclass(frozen=True, eq=False)
class Logits:
    """Sampled rows of q·(k - mean of the keys)/√d. Softmax is invariant to the mean; low rank subtracts it.

    Attributes:
        name: name of the data.
        n, d: keys and columns of the data.
        S: the sample, (rows, keys).
        variances: variance of each sampled row over all keys, (rows,).
        entry: the largest absolute entry of Q and of K minus its mean.
        limit: largest |q| times largest |k| divided by √d, an upper bound on every |logit|.
        drawn: True for random data, whose entries have no bound.
    """

    name: str
    n: int
    d: int
    S: Array
    variances: Array
    entry: float
    limit: float
    drawn: bool = False

    @cached_property
    def weights(self) -> Array:
        """Softmax of the sampled rows, (rows, keys)."""
        found: Array = np.exp(self.S - self.S.max(axis=1, keepdims=True))
        found /= found.sum(axis=1, keepdims=True)
        return found

    @cached_property
    def largest(self) -> float:
        """The largest |logit| of the sample."""
        return float(abs(self.S).max())

    def quantiles(self, shares: tuple[float, ...]) -> tuple[Array, Array]:
        """Return the quantiles for `shares`: of the sampled logits, and weighted by attention weight."""
        ordered, weight = self._by_size
        last = len(ordered) - 1
        places = np.array(shares)
        of_logits = ordered[np.ceil(places * last).astype(int)]
        return of_logits, ordered[np.minimum(np.searchsorted(weight, places * weight[-1]), last)]

    @cached_property
    def _by_size(self) -> tuple[Array, Array]:
        """The sampled logits in ascending order, and their cumulative attention weight."""
        order = np.argsort(self.S, axis=None)
        return self.S.ravel()[order], np.cumsum(self.weights.ravel()[order])

    @cached_property
    def size(self) -> float:
        """Frobenius norm of the weights."""
        return size_of(self.weights)

    @property
    def std(self) -> float:
        """Standard deviation of the logits of a row (root mean square over the sampled rows)."""
        return float(np.sqrt(self.variances.mean()))


def size_of(X: Array) -> float:
    """Return the Frobenius norm of X, without BLAS, whose threads take longer to start."""
    return float(np.sqrt(np.square(X).sum()))


def logits_of(Q: Any, K: Any, name: str = "Q and K as given") -> Logits:
    """Return the logits of queries Q (n_q, d) and keys K (n_k, d), with the scale 1/√d.

    Large inputs are sampled with a fixed seed.

    Raises:
        ValueError: the shapes do not match, or an entry is not finite or too large.
    """
    q, k = (np.asarray(X, dtype=np.float64) for X in (Q, K))
    if q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1] or 0 in (*q.shape, *k.shape):
        raise ValueError(
            f"Q and K must have shapes (n_q, d) and (n_k, d), of one head, got shapes {q.shape} and {k.shape}"
        )
    for array, X in (("Q", q), ("K", k)):
        if not np.isfinite(X).all():
            row = int(np.argmin(np.isfinite(X).all(axis=1)))
            raise ValueError(f"{array} must be finite, but has an entry that is not in row {row}")
        if abs(X).max() > LARGEST:
            raise ValueError(f"{array} must have entries up to {LARGEST:g}, got {abs(X).max():.3g}")
    n, d = k.shape
    rest = k - k.mean(axis=0)
    rng = np.random.default_rng(0)
    keys = rng.permutation(n)[:SAMPLED_KEYS]
    rows = rng.permutation(len(q))[: max(1, SAMPLED // len(keys))]
    x = q[rows] / sqrt(d)
    return Logits(
        name=name,
        n=n,
        d=d,
        S=x @ rest[keys].T,
        variances=((x @ (rest.T @ rest / n)) * x).sum(axis=1),
        entry=float(max(abs(q).max(), abs(rest).max())),
        limit=float(np.linalg.norm(q, axis=1).max() * np.linalg.norm(rest, axis=1).max() / sqrt(d)),
    )


@lru_cache(maxsize=16)
def head_logits(layer: int, head: int) -> Logits:
    """Return the logits of a shipped head of MiniLM."""
    found = real_head(layer, head)
    return logits_of(found.Q, found.K, f"head {layer}.{head} of MiniLM")


@lru_cache(maxsize=16)
def gaussian_logits(d: int, sigma: float) -> Logits:
    """Return logits of standard deviation sigma: Q and K have normal entries of standard deviation √sigma."""
    positive_int("d", d)
    if not 0 < sigma < np.inf:
        raise ValueError(f"sigma must be positive and finite, got {sigma}")
    rng = np.random.default_rng(0)
    Q = sqrt(sigma) * rng.standard_normal((GAUSSIAN_ROWS, d))
    K = sqrt(sigma) * rng.standard_normal((SAMPLED_KEYS, d))
    return replace(logits_of(Q, K, f"Gaussian, σ = {sigma:.3g}"), drawn=True)


# ---------------------------------------------------------------------- a state against the data
DEGREES = range(1, 13)
VARIANCES = 33  # row variances at which the error of a per-row polynomial is maximised
LARGEST_R = 300.0  # for larger R, relative errors exceed the range of float64
ROUNDING = 1e-12  # smaller errors are rounding errors of float64
ITEMSIZE = 4  # bytes per word of the state


class LowRankState(NamedTuple):
    """Values of all controls except the data: degree g, n keys, M words, entry bound B, allowed error."""

    degree: int
    n: int
    M: int
    polynomial: str
    B: float
    error: float

    def checked(self) -> LowRankState:
        """Return this state. Raises ValueError or TypeError that names the invalid field."""
        for name in ("degree", "n", "M"):
            positive_int(name, getattr(self, name))
        if self.degree not in DEGREES:
            raise ValueError(f"degree must be at most {DEGREES[-1]}, got {self.degree}")
        if self.polynomial not in NAMES:
            raise ValueError(f"polynomial must be one of {', '.join(NAMES)}, got {self.polynomial!r}")
        if not 0 < self.B < inf:
            raise ValueError(f"B must be positive and finite, got {self.B}")
        if not 0 < self.error < 1:
            raise ValueError(f"error must be between 0 and 1, got {self.error}")
        return self


@dataclass(frozen=True, eq=False)
class Facts:
    """All results for one state of the explorer and one set of logits, computed on first access.

    Traffic is in words for one head. R is in units of the logits, `state` in words.
    """

    s: LowRankState
    data: Logits

    # ------------------------------------------------------------------ the interval
    @cached_property
    def R(self) -> float:
        """B²√d, the bound on |logit| for entries up to B: d products of at most B², times 1/√d."""
        return self.s.B**2 * sqrt(self.data.d)

    @cached_property
    def within(self) -> bool:
        """True if all logits of the data are within ±R, by a bound on its entries or on its row norms."""
        return not self.data.drawn and (self.data.entry <= self.s.B or self.data.limit <= self.R)

    @cached_property
    def beyond(self) -> float:
        """The share of the sampled logits outside ±R."""
        return float((abs(self.data.S) > self.R).mean())

    # ------------------------------------------------------------------ the polynomial
    @cached_property
    def p(self) -> Polynomial | None:
        """The polynomial that replaces exp, or None if it cannot be computed for so large an R."""
        return _made(self.s.polynomial, self.s.degree, self.R)

    @cached_property
    def curve(self) -> Array | None:
        """Coefficients of the drawn polynomial, (g + 1,); a per-row one is drawn for the σ of the data."""
        if self.p is None or not self.p.per_row:
            return None if self.p is None else self.p.coefficients
        return of_row(self.s.degree, self.data.std**2)

    @cached_property
    def off(self) -> float:
        """ε = max |p(s) e⁻ˢ - 1| over [-R, R], or inf if it is not known.

        For per-row polynomials: the largest ε over all variances that logits within ±R can have.
        """
        if self.p is None or self.R > LARGEST_R:
            return inf
        return _off(self.s.polynomial, self.s.degree, self.R)

    @cached_property
    def certified(self) -> float:
        """2ε/(1 - ε), an upper bound on the relative error of a weight for logits in [-R, R], or inf."""
        return 2 * self.off / (1 - self.off) if self.off < 1 else inf

    @cached_property
    def predicted(self) -> float:
        """√P[Poisson(σ²) > g], the error of the weights for normal logits and the best polynomial per row."""
        return predicted_error(self.data.variances, self.s.degree)

    @cached_property
    def measured(self) -> float:
        """‖approximate - exact weights‖ / ‖exact weights‖ over the sampled rows.

        It is inf if a sum of weights is not positive.
        """
        if self.p is None:
            return inf
        rows = hermite(self.s.degree, self.data.variances) if self.p.per_row else self.p.coefficients[:, None]
        values = np.zeros_like(self.data.S)
        for coefficient in rows[::-1]:  # Horner scheme with the coefficients of each row
            values *= self.data.S
            values += coefficient[:, None]
        sums = values.sum(axis=1, keepdims=True)
        if not (sums > 0).all():
            return inf
        values /= sums
        values -= self.data.weights
        return size_of(values) / self.data.size

    @cached_property
    def enough(self) -> int | None:
        """The smallest degree up to 12 whose predicted error is allowed, or None."""
        variances = self.data.variances
        return next((g for g in DEGREES if predicted_error(variances, g) <= self.s.error), None)

    # ------------------------------------------------------------------ rank and words
    @cached_property
    def rank(self) -> int:
        """The rank C(d + g, g)."""
        return rank_of(self.data.d, self.s.degree)

    @cached_property
    def state(self) -> int:
        """Words of the state ψ(K)ᵀ[1, V]: r(d + 1)."""
        return self.rank * (self.data.d + 1)

    @cached_property
    def break_even(self) -> BreakEven:
        """The length n* from which on low rank has less traffic than exact attention."""
        return schedules.break_even_length(self.data.d, self.s.degree, self.s.M)

    @cached_property
    def low_rank(self) -> Ledger:
        """Traffic of `schedules.low_rank` with the tiles it selects for M."""
        return schedules.get("low_rank").cost(self.s.n, self.data.d, g=self.s.degree, **self.break_even.tiles)

    @cached_property
    def exact(self) -> Ledger:
        """Traffic of `schedules.flash_optimal` with the tiles it selects for M."""
        flash, n, d = schedules.get("flash_optimal"), self.s.n, self.data.d
        return flash.cost(n, d, **flash.tiles(n, d, self.s.M))

    @cached_property
    def pieces(self) -> int:
        """Number of tiles into which the state is split to fit in M words."""
        rc, Bd = self.break_even.tiles["rc"], self.break_even.tiles["Bd"]
        return ceil_div(self.rank, rc) * ceil_div(self.data.d + 1, Bd)

    # ------------------------------------------------------------------ in words
    @cached_property
    def verdict(self) -> list[str]:
        """Three texts: the recommendation with its reason, the certificate, and the sufficient degree."""
        return [_choice(self), _certificate(self), _enough(self)]


def smallest_covering_B(data: Logits) -> float:
    """Return the smallest B with three significant digits whose R covers all sampled logits."""
    exactly = sqrt(max(data.largest, 1e-4) / sqrt(data.d))
    unit = 10.0 ** (floor(log10(exactly)) - 2)
    return float(f"{ceil(exactly / unit * (1 - 1e-12)) * unit:.3g}")


@lru_cache(maxsize=256)
def _made(name: str, g: int, R: float) -> Polynomial | None:
    return None if LARGEST_RADIUS.get(name, inf) < R else polynomial(name, g, R)


@lru_cache(maxsize=256)
def _off(name: str, g: int, R: float) -> float:
    made = _made(name, g, R)
    if made is None:
        return inf
    if not made.per_row:
        return largest_error(made.coefficients, R)
    return max(largest_error(of_row(g, v), R) for v in np.linspace(0, min(CLIP, R * R), VARIANCES))


def of_row(g: int, variance: float) -> Array:
    """Return the coefficients, (g + 1,), for a row of this variance, with the factor e^(σ²/2) (cancels)."""
    clipped = min(variance, CLIP)
    found: Array = np.exp(clipped / 2) * hermite(g, np.array([clipped]))[:, 0]
    return found


CACHES = (head_logits, gaussian_logits, _made, _off)  # cleared by the benchmark of redrawing


# ---------------------------------------------------------------------- in words
def percent(error: float) -> str:
    """Format an error or a share as a percentage with two significant digits."""
    if error > 10:
        return "none" if error == inf else "over 1000 %"
    if error < ROUNDING:
        return "below 10⁻¹⁰ %" if error else "0 %"
    return f"{tick_label(float(f'{100 * error:.2g}'), 10)} %"


def lowrank_title(f: Facts) -> str:
    """Return the title of a state: polynomial, sizes and data."""
    s = f.s
    sizes = f"d = {f.data.d:,}, n = {s.n:,}, M = {s.M:,}, B = {s.B:g}"
    return f"{s.polynomial.capitalize()} of degree {s.degree}: {sizes}; {f.data.name}"


def _choice(f: Facts) -> str:
    low, exact, s = f.low_rank.total, f.exact.total, f.s
    if f.measured > s.error:
        left = "not usable" if f.measured > 10 else f"off by {percent(f.measured)}"
        joined = "but" if low < exact else "and"
        return (
            f"Exact attention: low rank of degree {s.degree} has {_compared(low, exact)}, {joined} its "
            f"weights are {left} (allowed error {percent(s.error)})."
        )
    if low >= exact:
        return (
            f"Exact attention has less traffic at this n: low rank has {_compared(low, exact)}, "
            f"and less only from n* = {big(f.break_even.N)} on."
        )
    return (
        f"Low rank: it has {_compared(low, exact)}, and its weights are off by {percent(f.measured)} "
        f"(allowed error {percent(s.error)})."
    )


def _compared(low: int, exact: int) -> str:
    if low < exact:
        return f"1/{_times(exact / low)} of the traffic of exact attention"
    return f"{_times(low / exact)} times the traffic of exact attention"


def _times(ratio: float) -> str:
    return tick_label(float(f"{ratio:.3g}"), 10)


def _certificate(f: Facts) -> str:
    data, said = (
        f.data,
        f"Entries up to B = {f.s.B:g} give |s| ≤ R = B²√d = {f.R:.3g}. For all such logits ",
    )
    said += (
        "no error bound is certified"
        if f.certified == inf
        else f"the error of the weights is certified to be at most {percent(f.certified)}"
    )
    if f.within:
        return f"{said}. All logits of the data are within ±R."
    if f.beyond:
        return f"{said}. {percent(f.beyond)} of the logits of the data are outside ±R."
    kept = "normal entries have no bound" if data.drawn else f"entries go up to {data.entry:.3g}"
    return f"{said}. The sampled logits are within ±R, but others may not be, because {kept}."


def _enough(f: Facts) -> str:
    if f.enough is None:
        return f"By the Poisson rule, no degree up to {DEGREES[-1]} suffices for {percent(f.s.error)} here."
    d, own = f.data.d, Facts(f.s._replace(degree=f.enough, polynomial="hermite"), f.data)
    return (
        f"By the Poisson rule, degree {f.enough} suffices for {percent(f.s.error)}, with rank "
        f"{big(rank_of(d, f.enough))} and less traffic from n* = {big(own.break_even.N)} on; "
        f"its measured error is {percent(own.measured)} with per-row polynomials."
    )


def number_rows(f: Facts) -> list[tuple[str, str]]:
    """Return the table of numbers: (name, value) as text."""
    rows = ", any row" if f.p is not None and f.p.per_row else ""
    pieces = "fits M" if f.pieces == 1 else f"{big(f.pieces)} tiles for M"
    return [
        ("rank r = C(d + g, g)", big(f.rank)),
        ("state, r(d + 1) words", big(f.state)),
        (f"state in float32, {pieces}", in_bytes(ITEMSIZE * f.state)),
        ("standard deviation σ of the logits", f"{f.data.std:.3g}"),
        ("largest sampled |s|", f"{f.data.largest:.3g}"),
        ("R = B²√d", f"{f.R:.3g}"),
        (f"ε = max |p(s)e⁻ˢ - 1| for |s| ≤ R{rows}", percent(f.off)),
        ("weights, certified for |s| ≤ R: 2ε/(1 - ε)", percent(f.certified)),
        ("weights, predicted: √P[Poisson(σ²) > g]", percent(f.predicted)),
        ("weights, measured on the sample", percent(f.measured)),
        ("low rank moves fewer words from n* on", big(f.break_even.N)),
        ("n*/r", f"{f.break_even.ranks:.3g}"),
    ]


def in_bytes(count: int) -> str:
    """Format a size in bytes with the largest suitable unit."""
    for unit, size in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{big(round(count / size)) if count > 1000 * size else f'{count / size:.3g}'} {unit}"
    return f"{count:,} bytes"
