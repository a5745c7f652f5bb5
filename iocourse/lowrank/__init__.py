"""Low-rank attention in almost linear time: a polynomial replaces exp, so no n × n matrix is formed.

`attention` and `gradient` compute it; `advise` estimates for given data whether it is worth using. Read the
modules in this order: `monomials` (features of a row, one folder up), `polynomials` (approximations of exp
and their errors), `approximation` (for one head), `numpy_backend` (forward and gradient, for all keys or
causal), `paper_gradient` (the gradient in the paper's form), `error_certificates` (checks that raise errors);
then `statistics` (the gradient through means and variances), `numba_backend` (the same passes compiled),
`torch_passes` and `torch_backend` (for torch, with autograd), `per_head`, which chooses the engine for NumPy
arrays, `key_mask` (calls without some keys), `state` (decoding) and `grouped_heads`. `baselines` contains
other linear-time methods for comparison.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from . import per_head
from .advice import Advice, advise
from .error_certificates import NotCertified, RankTooLarge
from .grouped_heads import check_one_library, groups_of, is_tensor
from .key_mask import attention_of_kept_keys, checked_mask, gradient_of_kept_keys
from .options import check_output_gradient, check_shapes, checked_options, warn_of_layout
from .polynomials import Polynomial, largest_error, polynomial, smallest_degree
from .state import check_state, continued
from .untraced import untraced

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


@untraced
def attention(
    Q: Any, K: Any, V: Any, *, degree: int, polynomial: str = "hermite", scale: float | None = None,
    causal: bool = False, bound: float | None = None, radius: float | None = None,
    key_variance: float | None = None, gradient_degree: int | None = None, engine: str | None = None,
    threads: int | None = None, key_mask: Any = None, state: Any = None, return_state: bool = False,
) -> Any:  # fmt: skip
    """Return softmax(scale · Q Kᵀ) V, with a polynomial of this degree instead of the exponential.

    Time grows with n · rank, where rank = C(d + degree, degree). No n × n array is formed, and of n × rank
    only one tile of tokens; memory is that of the inputs, the outputs and states of rank · (d_v + 1) numbers.

    Args:
        Q: queries (…, n, d), a NumPy array or torch tensor of float32 or float64. 16-bit numbers are computed
            in float32. Heads are (…, H, n, d), and H may be a multiple of the heads of K: query head h then
            uses key head h // (H / H_kv), as in `iocourse.kernels`.
        K: keys (…, n_k, d), of the type of Q. Every row is a key that takes part, also a row of zeros: its
            logit is 0, so padding changes the output unless `key_mask` leaves it out.
        V: values (…, n_k, d_v), of the type of Q.
        degree: degree of the polynomial, at least 1.
        polynomial: "hermite" (fitted to the spread of each row's logits), "taylor", "chebyshev" or "minimax".
        scale: factor of the scores; None is 1/√d.
        causal: if True, queries attend to no later key (exactly within a tile of 64 keys). The n queries are
            the last of n_k tokens: query i attends to the keys up to n_k - n + i, which is
            causal="lower_right" of `iocourse.kernels`. Statistics of the whole sequence are not used then,
            so "hermite" needs `key_variance`.
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
        state: state of the tokens before K, from an earlier call with causal=True, the same degree and
            return_state=True. Many calls give the result of one call with all tokens; a decoding step has
            n = n_k = 1. Per head of K it has rank · (d_v + 1) sums, and fewer than 64 keys and values.
        return_state: if True, return (O, state), with the state after K.

    Returns:
        O (…, n, d_v). For tensors it takes part in autograd.

    Raises:
        ValueError: if shapes do not match, entries are not finite or exceed `bound`, a causal call would use
            statistics of the whole sequence, or `state` is of another degree or other shapes.
        RankTooLarge: if the features do not fit in memory.
        NotCertified: if a denominator may not be positive.
        RuntimeError: in a backward pass with create_graph=True.

    Positive denominators do not imply an accurate output. Except with causal=True, a RuntimeWarning is issued
    if every polynomial of this degree has an error of 50 % or more in at least a tenth of the rows. A
    UserWarning is issued if the arrays seem to be (…, n, H, d).

    Source: 2408.13233; the row-adaptive coefficients were developed in this course.
    """
    # <!-- 50 = 10**2 * lowrank.error_certificates.WARNED_ERROR -->
    options = checked_options(
        degree=degree, polynomial=polynomial, scale=scale, causal=causal, bound=bound, radius=radius,
        key_variance=key_variance, gradient_degree=gradient_degree, engine=engine, threads=threads,
    )  # fmt: skip
    module: Any = per_head
    call = per_head.forward_heads
    if is_tensor(Q):
        from . import torch_backend

        module, call = torch_backend, torch_backend.attention_with_autograd
    check_one_library(Q=Q, K=K, V=V)
    Q, K, V = (X if is_tensor(X) else np.asarray(X) for X in (Q, K, V))
    check_shapes(Q.shape, K.shape, V.shape, options.causal)
    groups, mask = groups_of(Q.shape, K.shape, options.causal), checked_mask(key_mask, K)
    if state is None:
        warn_of_layout(Q.shape, K.shape)
    if state is not None or return_state:
        check_state(state, K, V, options, mask)
        with groups.naming_rows(0 if state is None else state.K.shape[-2]):
            O, state = continued(module.attention_with_state, Q, K, V, options, state, groups)
        return (O, state) if return_state else O
    arrays = groups.queries(Q), groups.keys(K), groups.keys(V)
    with groups.naming_rows():
        O = attention_of_kept_keys(partial(call, options=options), mask, *arrays, options.causal)
    return groups.output(O)


@untraced
def gradient(
    Q: Any, K: Any, V: Any, dO: Any, *, degree: int, polynomial: str = "hermite", scale: float | None = None,
    causal: bool = False, bound: float | None = None, radius: float | None = None,
    key_variance: float | None = None, gradient_degree: int | None = None, engine: str | None = None,
    threads: int | None = None, key_mask: Any = None,
) -> Gradient:  # fmt: skip
    """Return O and the gradient of Σ dO ∘ O by Q, K and V, in almost linear time.

    For NumPy arrays; options and errors as for `attention`. A gradient through a state is not supported, so
    there is no `state`. dK and dV of grouped heads are sums over query heads. For torch tensors call
    `attention`: autograd then runs the same computation.
    """
    options = checked_options(
        degree=degree, polynomial=polynomial, scale=scale, causal=causal, bound=bound, radius=radius,
        key_variance=key_variance, gradient_degree=gradient_degree, engine=engine, threads=threads,
    )  # fmt: skip
    if is_tensor(Q):
        raise TypeError(
            "Q must be a NumPy array, got a torch tensor. Use attention(Q, K, V, …) and O.backward(dO)"
        )
    check_one_library(Q=Q, K=K, V=V, dO=dO)
    Q, K, V, dO = (np.asarray(X) for X in (Q, K, V, dO))
    check_shapes(Q.shape, K.shape, V.shape, options.causal)
    check_output_gradient(dO.shape, Q.shape, V.shape)
    warn_of_layout(Q.shape, K.shape)
    groups, mask = groups_of(Q.shape, K.shape, options.causal), checked_mask(key_mask, K)
    call = partial(per_head.backward_heads, options=options)
    arrays = groups.queries(Q), groups.keys(K), groups.keys(V), groups.queries(dO)
    with groups.naming_rows():
        O, dQ, dK, dV = gradient_of_kept_keys(call, mask, *arrays, options.causal)
    return Gradient(groups.output(O), groups.output(dQ), groups.sum(dK), groups.sum(dV))
