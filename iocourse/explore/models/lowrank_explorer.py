"""What the low-rank explorer knows of a state: errors, rank, words, the crossing, and a verdict.

The errors are those on `Logits`: of queries and keys that are passed, of a shipped head, or Gaussian ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import ceil, floor, inf, log10, sqrt
from typing import Any, NamedTuple

import numpy as np

from ... import schedules
from ...costs import ceil_div
from ...data import real_head
from ...ledger import Ledger
from ...lowrank.advice import predicted_error
from ...lowrank.polynomials import CLIP, LARGEST_RADIUS, NAMES, Polynomial, hermite, largest_error, polynomial
from ...monomials import Array, rank_of
from ...schedules import BreakEven
from ...sizes import positive_int
from ..draw.text import big, tick_label

# ---------------------------------------------------------------------- the data
SAMPLED_KEYS = 512
SAMPLED = 1 << 15  # logits that are looked at, in whole rows of at most so many keys
GAUSSIAN_ROWS = 64
LARGEST = 1e70  # entry of Q or K: squares of logits are still float64 numbers


@dataclass(frozen=True, eq=False)
class Logits:
    """Sampled rows of q·(k - mean of the keys)/√d: softmax does not see the mean, and low rank leaves it out.

    name: of the data. n, d: its keys and columns. S (rows, keys): the sample. variances (rows,): of each of
    these rows over all keys. entry: the largest |entry| of Q and of K less its mean. limit: largest |q| times
    largest |k| over √d, which no logit passes. drawn: they stand for more of their kind, which has no bound.
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
        """(rows, keys): softmax of the sampled rows."""
        found: Array = np.exp(self.S - self.S.max(axis=1, keepdims=True))
        found /= found.sum(axis=1, keepdims=True)
        return found

    @cached_property
    def largest(self) -> float:
        """The largest |logit| of the sample."""
        return float(abs(self.S).max())

    def quantiles(self, shares: tuple[float, ...]) -> tuple[Array, Array]:
        """Logits below which these shares lie: of the sampled logits, and of their attention weight."""
        ordered, weight = self._by_size
        last = len(ordered) - 1
        places = np.array(shares)
        of_logits = ordered[np.ceil(places * last).astype(int)]
        return of_logits, ordered[np.minimum(np.searchsorted(weight, places * weight[-1]), last)]

    @cached_property
    def _by_size(self) -> tuple[Array, Array]:
        """The sampled logits from the smallest on, and the attention weight up to each."""
        order = np.argsort(self.S, axis=None)
        return self.S.ravel()[order], np.cumsum(self.weights.ravel()[order])

    @cached_property
    def size(self) -> float:
        """Root of the sum of squares of the weights."""
        return size_of(self.weights)

    @property
    def std(self) -> float:
        """Standard deviation of a row's logits, root mean square over the sampled rows."""
        return float(np.sqrt(self.variances.mean()))


def size_of(X: Array) -> float:
    """Root of the sum of squares. Not by BLAS, whose threads take longer to wake than this takes."""
    return float(np.sqrt(np.square(X).sum()))


def logits_of(Q: Any, K: Any, name: str = "Q and K as given") -> Logits:
    """The logits of queries Q (n_q, d) and keys K (n_k, d), with the scale 1/√d.

    Of many rows and keys some are drawn, always the same. Raises ValueError for shapes that do not go
    together and entries that are not finite.
    """
    q, k = (np.asarray(X, dtype=np.float64) for X in (Q, K))
    if q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1] or 0 in (*q.shape, *k.shape):
        raise ValueError(
            f"Q and K have shapes {q.shape} and {k.shape}; they must be (n_q, d) and (n_k, d) of one head"
        )
    for array, X in (("Q", q), ("K", k)):
        if not np.isfinite(X).all():
            row = int(np.argmin(np.isfinite(X).all(axis=1)))
            raise ValueError(f"{array} has an entry that is not finite in row {row}")
        if abs(X).max() > LARGEST:
            raise ValueError(f"{array} has an entry of size {abs(X).max():.3g}; allowed is up to {LARGEST:g}")
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
    """The logits of a shipped head."""
    found = real_head(layer, head)
    return logits_of(found.Q, found.K, f"head {layer}.{head} of MiniLM")


@lru_cache(maxsize=16)
def gaussian_logits(d: int, sigma: float) -> Logits:
    """The logits, of standard deviation sigma, of queries and keys with normal entries of size √sigma."""
    positive_int("d", d)
    if not 0 < sigma < np.inf:
        raise ValueError(f"sigma is {sigma}; it must be positive and finite")
    rng = np.random.default_rng(0)
    Q = sqrt(sigma) * rng.standard_normal((GAUSSIAN_ROWS, d))
    K = sqrt(sigma) * rng.standard_normal((SAMPLED_KEYS, d))
    return replace(logits_of(Q, K, f"Gaussian, σ = {sigma:.3g}"), drawn=True)


# ---------------------------------------------------------------------- a state against the data
DEGREES = range(1, 13)
VARIANCES = 33  # of rows, for which the largest error of a row's own polynomial is looked for
LARGEST_R = 300.0  # beyond, errors relative to exp are no float64 numbers worth drawing
ROUNDING = 1e-12  # errors below are those of float64
ITEMSIZE = 4  # bytes of a number of the state


class LowRankState(NamedTuple):
    """Where the controls stand, beside the data: degree g, keys n, M words, entries of at most B, error."""

    degree: int
    n: int
    M: int
    polynomial: str
    B: float
    error: float

    def checked(self) -> LowRankState:
        """This state, or the ValueError or TypeError that says which part of it cannot be."""
        for name in ("degree", "n", "M"):
            positive_int(name, getattr(self, name))
        if self.degree not in DEGREES:
            raise ValueError(f"degree is {self.degree}; allowed: 1 to {DEGREES[-1]}")
        if self.polynomial not in NAMES:
            raise ValueError(f"polynomial is {self.polynomial!r}; it must be one of {', '.join(NAMES)}")
        if not 0 < self.B < inf:
            raise ValueError(f"B is {self.B}; it must be positive and finite")
        if not 0 < self.error < 1:
            raise ValueError(f"error is {self.error}; it must be between 0 and 1")
        return self


@dataclass(frozen=True, eq=False)
class Facts:
    """A state of the explorer against some logits. Words are of one head; R is in logits, `state` words."""

    s: LowRankState
    data: Logits

    # ------------------------------------------------------------------ the interval
    @cached_property
    def R(self) -> float:
        """B²√d: entries of at most B give d products of at most B², times the scale 1/√d."""
        return self.s.B**2 * sqrt(self.data.d)

    @cached_property
    def within(self) -> bool:
        """Whether no logit of the data can be beyond R: by its entries, or by the lengths of its rows."""
        return not self.data.drawn and (self.data.entry <= self.s.B or self.data.limit <= self.R)

    @cached_property
    def beyond(self) -> float:
        """The share of the sampled logits that are beyond R."""
        return float((abs(self.data.S) > self.R).mean())

    # ------------------------------------------------------------------ the polynomial
    @cached_property
    def p(self) -> Polynomial | None:
        """What stands for exp; None where it cannot be computed on so large an interval."""
        return _made(self.s.polynomial, self.s.degree, self.R)

    @cached_property
    def curve(self) -> Array | None:
        """(g + 1,): the coefficients that are drawn; of a row's own polynomial those of a row of σ."""
        if self.p is None or not self.p.per_row:
            return None if self.p is None else self.p.coefficients
        return of_row(self.s.degree, self.data.std**2)

    @cached_property
    def off(self) -> float:
        """ε = max |p(s) e⁻ˢ - 1| over [-R, R], inf where none is known.

        Where each row has its own polynomial: the largest over the variances that logits within ±R can have.
        """
        if self.p is None or self.R > LARGEST_R:
            return inf
        return _off(self.s.polynomial, self.s.degree, self.R)

    @cached_property
    def certified(self) -> float:
        """2ε/(1 - ε), the largest relative error of a softmax weight with all logits in [-R, R]; else inf."""
        return 2 * self.off / (1 - self.off) if self.off < 1 else inf

    @cached_property
    def predicted(self) -> float:
        """√P[Poisson(σ²) > g]: of the weights, were the logits normal and the polynomial each row's best."""
        return predicted_error(self.data.variances, self.s.degree)

    @cached_property
    def measured(self) -> float:
        """‖approximate - exact weights‖ / ‖exact weights‖ over the sampled rows.

        inf where a sum of weights is not positive.
        """
        if self.p is None:
            return inf
        rows = hermite(self.s.degree, self.data.variances) if self.p.per_row else self.p.coefficients[:, None]
        values = np.zeros_like(self.data.S)
        for coefficient in rows[::-1]:  # Horner, each row with its own coefficients
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
        """The smallest degree whose predicted error is allowed; None where none up to 12 is."""
        variances = self.data.variances
        return next((g for g in DEGREES if predicted_error(variances, g) <= self.s.error), None)

    # ------------------------------------------------------------------ rank and words
    @cached_property
    def rank(self) -> int:
        """C(d + g, g)."""
        return rank_of(self.data.d, self.s.degree)

    @cached_property
    def state(self) -> int:
        """Words of ψ(K)ᵀ[1, V]: r(d + 1)."""
        return self.rank * (self.data.d + 1)

    @cached_property
    def break_even(self) -> BreakEven:
        """From which n on low rank moves fewer words."""
        return schedules.break_even_length(self.data.d, self.s.degree, self.s.M)

    @cached_property
    def low_rank(self) -> Ledger:
        """Words of `schedules.low_rank` with the tiles it picks for M."""
        return schedules.get("low_rank").cost(self.s.n, self.data.d, g=self.s.degree, **self.break_even.tiles)

    @cached_property
    def exact(self) -> Ledger:
        """Words of `schedules.flash_optimal` with the tiles it picks for M."""
        flash, n, d = schedules.get("flash_optimal"), self.s.n, self.data.d
        return flash.cost(n, d, **flash.tiles(n, d, self.s.M))

    @cached_property
    def pieces(self) -> int:
        """Tiles that the state is cut into to fit M words."""
        rc, Bd = self.break_even.tiles["rc"], self.break_even.tiles["Bd"]
        return ceil_div(self.rank, rc) * ceil_div(self.data.d + 1, Bd)

    # ------------------------------------------------------------------ in words
    @cached_property
    def verdict(self) -> list[str]:
        """Which to choose and why; what the certificate says; which degree would do."""
        return [_choice(self), _certificate(self), _enough(self)]


def covering(data: Logits) -> float:
    """The smallest B of three figures whose R covers every sampled logit."""
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
    """(g + 1,): the polynomial of a row of this variance, with the factor e^(σ²/2) that softmax cancels."""
    clipped = min(variance, CLIP)
    found: Array = np.exp(clipped / 2) * hermite(g, np.array([clipped]))[:, 0]
    return found


CACHES = (head_logits, gaussian_logits, _made, _off)  # what a measurement of redrawing must forget


# ---------------------------------------------------------------------- in words
def percent(error: float) -> str:
    """An error or a share as text, to two figures."""
    if error > 10:
        return "none" if error == inf else "over 1000 %"
    if error < ROUNDING:
        return "below 10⁻¹⁰ %" if error else "0 %"
    return f"{tick_label(float(f'{100 * error:.2g}'), 10)} %"


def title_of(f: Facts) -> str:
    """The state in a line."""
    s = f.s
    sizes = f"d = {f.data.d:,}, n = {s.n:,}, M = {s.M:,}, B = {s.B:g}"
    return f"{s.polynomial.capitalize()} of degree {s.degree}: {sizes}; {f.data.name}"


def _choice(f: Facts) -> str:
    low, exact, s = f.low_rank.total, f.exact.total, f.s
    if f.measured > s.error:
        left = "leaves weights of no use" if f.measured > 10 else f"is off by {percent(f.measured)}"
        joined = "but" if low < exact else "and"
        return (
            f"Exact attention: low rank of degree {s.degree} moves {_compared(low, exact)}, {joined} {left} "
            f"where {percent(s.error)} is allowed."
        )
    if low >= exact:
        return (
            f"Exact attention moves fewer words at this n: low rank {_compared(low, exact)}, "
            f"and fewer from n* = {big(f.break_even.N)} on."
        )
    return (
        f"Low rank: it moves {_compared(low, exact)}, and its weights are off by {percent(f.measured)} "
        f"where {percent(s.error)} is allowed."
    )


def _compared(low: int, exact: int) -> str:
    if low < exact:
        return f"1/{_times(exact / low)} of exact attention's words"
    return f"{_times(low / exact)} times exact attention's words"


def _times(ratio: float) -> str:
    return tick_label(float(f"{ratio:.3g}"), 10)


def _certificate(f: Facts) -> str:
    data, said = (
        f.data,
        f"Entries of at most B = {f.s.B:g} keep |s| ≤ R = B²√d = {f.R:.3g}; for all such logits ",
    )
    said += (
        "nothing is certified"
        if f.certified == inf
        else f"the weights are certified to {percent(f.certified)}"
    )
    if f.within:
        return f"{said}, and the data keeps within."
    if f.beyond:
        return f"{said}. {percent(f.beyond)} of the data's logits are beyond R."
    kept = "normal entries have no bound" if data.drawn else f"entries go up to {data.entry:.3g}"
    return f"{said}. The sampled logits are within R, but nothing promises it: {kept}."


def _enough(f: Facts) -> str:
    if f.enough is None:
        return f"By the Poisson rule no degree up to {DEGREES[-1]} is enough for {percent(f.s.error)} here."
    d, own = f.data.d, Facts(f.s._replace(degree=f.enough, polynomial="hermite"), f.data)
    return (
        f"By the Poisson rule degree {f.enough} is enough for {percent(f.s.error)}, with rank "
        f"{big(rank_of(d, f.enough))} and fewer words from n* = {big(own.break_even.N)} on; "
        f"measured it is off by {percent(own.measured)} with each row's own polynomial."
    )


def rows_of(f: Facts) -> list[tuple[str, str]]:
    """The numbers, each with its name."""
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
    """A size in the largest unit of which there is one."""
    for unit, size in (("TB", 2**40), ("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if count >= size:
            return f"{big(round(count / size)) if count > 1000 * size else f'{count / size:.3g}'} {unit}"
    return f"{count:,} bytes"
