"""Estimates of the cost and the error of low-rank attention for given queries and keys."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, factorial, sqrt
from typing import Any

import numpy as np

from ..monomials import Array, rank_of
from ..schedules import break_even_length
from ..sizes import positive_int, zero_or_more
from . import error_certificates
from .options import check_number
from .polynomials import CLIP

DEGREES = range(1, 13)
LOGITS = 1 << 20  # maximum number of logits computed: fewer rows are sampled if there are many keys


@dataclass(frozen=True)
class Advice:
    """Result of `advise` for queries (n, d) and keys (n_k, d).

    logit_std: standard deviation of a row's logits, root mean square over rows. logit_limit: upper bound of
    the logits (largest |q| times largest |k|). errors: relative error of the softmax weights for degree 1, 2,
    … 12, measured on sampled rows; it is the error of outputs for values with mean zero. predicted: the same
    by the rule for normal logits, √P[Poisson(σ²) > g]. degree, rank: the smallest that reaches `error`, None
    if no degree up to 12 does. certified_degree, certified_rank: of the polynomial within `error` of exp on
    all of [-limit, limit], for any logits; None if the degree exceeds 40. break_even: number of keys from
    which on low rank of that degree needs fewer multiplications than exact attention and, if M was given,
    also moves fewer words. fits: True if its states fit in memory.
    """

    n: int
    n_k: int
    d: int
    error: float
    logit_std: float
    logit_limit: float
    errors: tuple[float, ...]
    predicted: tuple[float, ...]
    degree: int | None
    rank: int | None
    certified_degree: int | None
    certified_rank: int | None
    break_even: int | None
    fits: bool

    @property
    def exact_is_better(self) -> bool:
        """True if exact attention is the better choice: no degree is sufficient or fits, or n_k is small."""
        return self.break_even is None or not self.fits or self.n_k < self.break_even

    def __str__(self) -> str:
        scale = (
            f"Logits spread by {self.logit_std:.3g} about their row's mean, within ±{self.logit_limit:.3g}."
        )
        return " ".join([scale, self._degree_in_words(), self._certificate_in_words(), self._verdict()])

    def _degree_in_words(self) -> str:
        if self.degree is None:
            return (
                f"No degree up to {len(self.errors)} brings the softmax weights' error to {self.error:.2g}; "
                f"degree {len(self.errors)} has {self.errors[-1]:.2g}."
            )
        return (
            f"Degree {self.degree} (rank {self.rank:,}) brings the error of the softmax weights to "
            f"{self.errors[self.degree - 1]:.2g}, measured on sampled rows."
        )

    def _certificate_in_words(self) -> str:
        if self.certified_degree is None:
            return f"No degree up to 40 is certified to {self.error:.2g} on that whole interval."
        return (
            f"Certified to {self.error:.2g} on that whole interval is degree {self.certified_degree} "
            f"(rank {self.certified_rank:,})."
        )

    def _verdict(self) -> str:
        if self.break_even is None:
            return "Use exact attention."
        if not self.fits:
            return "Its states do not fit in memory: use exact attention."
        if self.exact_is_better:
            return f"Its break-even is about {self.break_even:,} keys: with {self.n_k:,} use exact attention."
        return f"Its break-even is about {self.break_even:,} keys: with {self.n_k:,} choose low rank."


def advise(
    Q: Any,
    K: Any,
    *,
    error: float = 0.01,
    scale: float | None = None,
    M: int | None = None,
    sample: int | None = None,
    seed: int = 0,
) -> Advice:
    """Estimate degree, rank, error and break-even length of low-rank attention for one head.

    Args:
        Q: queries (n, d), a NumPy array or CPU tensor.
        K: keys (n_k, d).
        error: target for the relative error of the softmax weights, root mean square over the sampled rows.
            On these rows the polynomial (each row's own, as "hermite") is applied to all exact logits.
        scale: factor of the scores; None is 1/√d.
        M: words of fast memory, for the break-even in words.
        sample: number of sampled rows; None is all rows, or as many as have 2²⁰ logits.
        seed: seed of the sample.

    Raises:
        ValueError: if shapes do not match, entries are not finite, or error is not between 0 and 1.
        TypeError: if entries are not real numbers, or an option has another type.
    """
    q, k = _real("Q", Q), _real("K", K)
    if q.ndim != 2 or k.ndim != 2 or q.shape[1] != k.shape[1] or 0 in (*q.shape, *k.shape):
        raise ValueError(
            f"Q and K must have shapes (n, d) and (n_k, d) of one head, got {q.shape} and {k.shape}"
        )
    for name, X in (("Q", q), ("K", k)):
        error_certificates.check_finite(name, X)
    _check_numbers(error, scale)
    sizes = (("M", M), ("sample", sample))
    M, sample = (None if size is None else positive_int(name, size) for name, size in sizes)
    n, d = q.shape
    x, rest = q * (1 / sqrt(d) if scale is None else scale), k - k.mean(0)
    variances = ((x @ (rest.T @ rest / len(k))) * x).sum(1)
    source, most = np.random.default_rng(zero_or_more("seed", seed)), LOGITS // len(k)
    rows = source.permutation(n)[: max(1, min(sample or n, most))]
    errors = _measured(x[rows] @ rest.T, variances[rows])
    degree = next((g for g, found in zip(DEGREES, errors, strict=True) if found <= error), None)
    rank = None if degree is None else rank_of(d, degree)
    limit = float(error_certificates.row_limits(x, rest).max())
    certified = error_certificates.accurate_degree(limit, error)
    return Advice(
        n=n,
        n_k=len(k),
        d=d,
        error=error,
        logit_std=float(np.sqrt(variances.mean())),
        logit_limit=limit,
        errors=errors,
        predicted=tuple(predicted_error(variances, g) for g in DEGREES),
        degree=degree,
        rank=rank,
        certified_degree=certified,
        certified_rank=None if certified is None else rank_of(d, certified),
        break_even=None if degree is None else _break_even(d, degree, M),
        fits=degree is not None and _fits(d, degree),
    )


def _real(name: str, X: Any) -> Array:
    """Return X in float64. Raises TypeError for Booleans, complex numbers and other objects."""
    found = np.asarray(X)
    if found.dtype.kind not in "fiu":
        raise TypeError(f"{name} must have a real dtype (float or int), got {found.dtype}")
    return found.astype(np.float64)


def _check_numbers(error: float, scale: float | None) -> None:
    check_number("error", error)
    if not 0 < error < 1:
        raise ValueError(f"error must be between 0 and 1, got {error}")
    if scale is not None:
        check_number("scale", scale)
        if not np.isfinite(scale):
            raise ValueError(f"scale must be finite, got {scale}")


def predicted_error(variances: Array, g: int) -> float:
    """Return √mean(P[Poisson(σ²) > g]), the best polynomial's error for normal logits of variances σ²."""
    small = np.minimum(variances, 1.0)  # here 1 - P[≤ g] would be lost in rounding, so the tail is summed
    tail = sum(np.exp(-small) * small**m / factorial(m) for m in range(g + 1, g + 40))
    large = np.minimum(variances, 700.0)  # the tail is 1 beyond, and e⁻⁷⁰⁰ does not underflow
    below = sum(np.exp(-large) * large**m / factorial(m) for m in range(g + 1))
    return float(np.sqrt(np.where(variances <= 1, tail, 1 - below).mean()))


def _measured(S: Array, variances: Array) -> tuple[float, ...]:
    """Return the relative error of the softmax weights of logits S (rows, n_k), for each degree.

    The polynomial of a row is Σₘ (-σ²/2)ᵐ/m! times Taylor's polynomial of degree g - 2m.
    """
    weights = np.exp(S - S.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    half = -np.minimum(variances, CLIP)[:, None] / 2
    taylors, power = [np.ones_like(S)], np.ones_like(S)
    found = []
    for g in DEGREES:
        with np.errstate(over="ignore", invalid="ignore"):
            power = power * S / g
            taylors.append(taylors[-1] + power)
            p: Any = sum(half**m / factorial(m) * taylors[g - 2 * m] for m in range(g // 2 + 1))
            found.append(_weights_off(p, weights))
    return tuple(found)


def _weights_off(p: Array, weights: Array) -> float:
    """Return ‖p / Σp - weights‖ / ‖weights‖ over all rows; inf if a sum is not positive or not finite."""
    sums = p.sum(axis=1, keepdims=True)
    if not ((sums > 0) & (sums < np.inf)).all():
        return np.inf
    return float(np.linalg.norm(p / sums - weights) / np.linalg.norm(weights))


def _break_even(d: int, g: int, M: int | None) -> int:
    """Return the number of keys from which on low rank needs fewer multiplications than exact attention.

    With M words of fast memory it must also move fewer words. Exact attention has 2d multiplications per
    pair, low rank 2(d + 1) per token and feature.
    """
    multiplies = ceil(rank_of(d, g) * (d + 1) / d)
    return multiplies if M is None else max(multiplies, break_even_length(d, g, M).N)


def _fits(d: int, g: int) -> bool:
    try:
        error_certificates.check_rank(d, g, d)
    except error_certificates.RankTooLarge:
        return False
    return True
