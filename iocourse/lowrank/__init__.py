"""Low-rank attention in almost linear time: a polynomial replaces exp, so no n × n matrix is formed.

`attention` and `gradient` compute it; `advise` estimates for given data whether it is worth using. Read the
modules in this order: `monomials` (features of a row, one folder up), `polynomials` (approximations of exp
and their errors), `approximation` (for one head), `numpy_backend` (forward and gradient, for all keys or
causal), `paper_gradient` (the gradient in the paper's form), `error_certificates` (checks that raise errors);
then `statistics` (the gradient through means and variances), `numba_backend` (the same passes compiled),
`torch_backend` (for torch, with autograd), `per_head`, which chooses the engine for NumPy arrays, and
`key_mask` (calls without some keys). `baselines` contains other linear-time methods for comparison.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from . import key_mask as masked
from .advice import Advice, advise
from .error_certificates import NotCertified, RankTooLarge
from .options import checked_options
from .per_head import backward_heads, forward_heads
from .polynomials import Polynomial, largest_error, polynomial, smallest_degree

__all__ = [
    "Advice",
    "Gradient",
    "NotCertified",
    "Polynomial",
    "RankTooLarge",
    "advise",
    "attention",
    "gradient",
    "largest_error",
    "polynomial",
    "smallest_degree",
]


class Gradient(NamedTuple):
    """Result of `gradient`: O (…, n, d_v), dQ (…, n, d), dK (…, n_k, d), dV (…, n_k, d_v)."""

    O: Any
    dQ: Any
    dK: Any
    dV: Any


def attention(
    Q: Any, K: Any, V: Any, *, degree: int, polynomial: str = "hermite", scale: float | None = None,
    causal: bool = False, bound: float | None = None, radius: float | None = None,
    key_variance: float | None = None, gradient_degree: int | None = None, engine: str | None = None,
    threads: int | None = None, key_mask: Any = None,
) -> Any:  # fmt: skip
    """Return softmax(scale · Q Kᵀ) V, with a polynomial of this degree instead of the exponential.

    Time grows with n · rank, where rank = C(d + degree, degree). No n × n array is formed, and of n × rank
    only one tile of tokens; memory is that of the inputs, the outputs and states of rank · (d_v + 1) numbers.

    Args:
        Q: queries (…, n, d), a NumPy array or torch tensor of float32 or float64.
        K: keys (…, n_k, d), of the type of Q. Every row is a key that takes part, also a row of zeros: its
            logit is 0, so padding changes the output unless `key_mask` leaves it out.
        V: values (…, n_k, d_v), of the type of Q.
        degree: degree of the polynomial, at least 1.
        polynomial: "hermite" (fitted to the spread of each row's logits), "taylor", "chebyshev" or "minimax".
        scale: factor of the scores; None is 1/√d.
        causal: if True, row i attends to the keys up to i (exactly within its tile). Statistics of the whole
            sequence are not used then, so "hermite" needs `key_variance`.
        bound: maximum size of the entries of Q and K, which is checked.
        radius: R of the interval [-R, R] of "chebyshev" and "minimax", which need it. It is an argument and
            not taken from the data, so the gradient has no part through it.
        key_variance: variance of the entries of a key; None is the covariance of the keys.
        gradient_degree: degree of the function whose gradient is returned. None is `degree`: then it is the
            gradient of the result itself, also through the mean and the covariance of the keys.
        engine: "numpy", "numba" or "torch". None chooses the one with the least time, but "numpy" for arrays
            that are too small to be worth compiling.
        threads: number of threads of "numba".
        key_mask: Boolean (n_k,), or (…, n_k) with the leading axes of K, each of its size or 1: True where a
            key takes part. The result is that of slicing K and V. With causal=True a token that does not
            take part is left out as a query too, and its row of O is 0. Rows named in errors then count
            those that take part.

    Returns:
        O (…, n, d_v). For tensors it takes part in autograd.

    Raises:
        ValueError: if shapes do not match, entries are not finite or exceed `bound`, or a causal call would
            use statistics of the whole sequence.
        RankTooLarge: if the features do not fit in memory.
        NotCertified: if a denominator may not be positive.
        RuntimeError: in a backward pass with create_graph=True.

    Positive denominators do not imply an accurate output. Except with causal=True, a RuntimeWarning is issued
    if every polynomial of this degree has an error of 50 % or more in at least a tenth of the rows.

    Source: 2408.13233; the row-adaptive coefficients were developed in this course.
    """
    # <!-- 50 = 10**2 * lowrank.error_certificates.WARNED_ERROR -->
    options = checked_options(
        degree=degree, polynomial=polynomial, scale=scale, causal=causal, bound=bound, radius=radius,
        key_variance=key_variance, gradient_degree=gradient_degree, engine=engine, threads=threads,
    )  # fmt: skip
    call: Callable[..., Any] = forward_heads
    if _is_tensor(Q):
        from .torch_backend import attention_with_autograd as call
    if key_mask is None:
        return call(Q, K, V, options)
    if not _is_tensor(Q):
        Q, K, V = np.asarray(Q), np.asarray(K), np.asarray(V)
    return masked.attention_of_kept_keys(partial(call, options=options), key_mask, Q, K, V, options.causal)


def gradient(
    Q: Any, K: Any, V: Any, dO: Any, *, degree: int, polynomial: str = "hermite", scale: float | None = None,
    causal: bool = False, bound: float | None = None, radius: float | None = None,
    key_variance: float | None = None, gradient_degree: int | None = None, engine: str | None = None,
    threads: int | None = None, key_mask: Any = None,
) -> Gradient:  # fmt: skip
    """Return O and the gradient of Σ dO ∘ O by Q, K and V, in almost linear time.

    For NumPy arrays; options and errors as for `attention`. For torch tensors call `attention`: autograd then
    runs the same computation.
    """
    options = checked_options(
        degree=degree, polynomial=polynomial, scale=scale, causal=causal, bound=bound, radius=radius,
        key_variance=key_variance, gradient_degree=gradient_degree, engine=engine, threads=threads,
    )  # fmt: skip
    if _is_tensor(Q):
        raise TypeError(
            "Q must be a NumPy array, got a torch tensor. Use attention(Q, K, V, …) and O.backward(dO)"
        )
    if key_mask is None:
        return Gradient(*backward_heads(Q, K, V, dO, options))
    arrays = np.asarray(Q), np.asarray(K), np.asarray(V), np.asarray(dO)
    call = partial(backward_heads, options=options)
    return Gradient(*masked.gradient_of_kept_keys(call, key_mask, *arrays, options.causal))


def _is_tensor(X: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)
