"""Low-rank attention of NumPy arrays (…, n, d): check, approximate and certify one head after the other."""

from __future__ import annotations

from dataclasses import replace
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from ..doctor import install_command
from ..monomials import Array, rank_of
from . import error_certificates
from . import numba_backend as fast
from . import numpy_backend as plain
from .approximation import Approximation
from .numpy_backend import Forward, Gradients
from .options import (
    Options,
    check_entries,
    check_output_gradient,
    check_shapes,
    head_approximation,
)
from .polynomials import Polynomial
from .statistics import FIRST, add_gradient, of_second_derivative, value_offset

SMALL = 10**7  # rows times features; for smaller problems NumPy is faster than compiling with Numba
TYPES = (np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


def forward_heads(Q: Any, K: Any, V: Any, options: Options) -> Array:
    """Return O (…, n, d_v) of all heads."""
    kind, (Q, K, V) = widened(options, Q=Q, K=K, V=V)
    heads, options = checked(Q, K, V, options)
    found = [head_forward(*head, options, options.degree).found.O for head in heads]
    return _stacked(found, Q.shape[:-2]).astype(kind, copy=False)


def attention_with_state(
    Q: Array, K: Array, V: Array, options: Options, *past: Array | None
) -> tuple[Array, Array]:
    """Return O of causal attention and T after the complete tiles of K; past: see `state.continued`."""
    _, (Q, K, V) = widened(options, Q=Q, K=K, V=V)
    heads, options = checked(Q, K, V, options)
    found = []
    for at, head in zip(np.ndindex(*Q.shape[:-2]), heads, strict=True):
        of_head = (None if X is None else X[at] for X in past)
        found.append(head_forward(*head, options, options.degree, *of_head).found)
    O, T = (_stacked([getattr(f, name) for f in found], Q.shape[:-2]) for name in ("O", "T"))
    return O, T


def backward_heads(Q: Any, K: Any, V: Any, dO: Any, options: Options) -> tuple[Array, Array, Array, Array]:
    """Return O, dQ, dK, dV of all heads, each (…, rows, columns)."""
    kind, (Q, K, V, dO) = widened(options, Q=Q, K=K, V=V, dO=dO)
    heads, options = checked(Q, K, V, options)
    lead = Q.shape[:-2]
    check_output_gradient(dO.shape, Q.shape, V.shape)
    G = as_heads(dO)
    for head in G:
        error_certificates.check_finite("dO", head)
    found = []
    for (q, k, v), g in zip(heads, G, strict=True):
        was = head_forward(q, k, v, options, options.degree)
        found.append((was.found.O, *head_backward(q, k, v, was, g, options)))
    O, dQ, dK, dV = (_stacked(list(X), lead).astype(kind, copy=False) for X in zip(*found, strict=True))
    return O, dQ, dK, dV


def _stacked(heads: list[Array], lead: tuple[int, ...]) -> Array:
    if len(heads) == 1:
        return heads[0].reshape(*lead, *heads[0].shape) if lead else heads[0]
    return np.stack(heads).reshape(*lead, *heads[0].shape)


def widened(options: Options, **arrays: Any) -> tuple[np.dtype[Any], list[Array]]:
    """Return the type of Q, and the inputs as arrays: float16 as float32, in which it is computed.

    Raises TypeError for another type, or one that is not that of Q.
    """
    if options.engine == "torch":
        raise ValueError("engine='torch' needs torch tensors, but Q is a NumPy array")
    kinds = {name: np.asarray(X).dtype for name, X in arrays.items()}
    for name, kind in kinds.items():
        if kind not in TYPES:
            raise TypeError(f"{name} must have dtype float16, float32 or float64, got {kind}")
        if kind != kinds["Q"]:
            raise TypeError(f"{name} must have the dtype of Q, {kinds['Q']}, got {kind}")
    wide = np.promote_types(kinds["Q"], np.float32)
    return kinds["Q"], [np.asarray(X, wide) for X in arrays.values()]


def checked(
    Q: Array, K: Array, V: Array, options: Options
) -> tuple[list[tuple[Array, Array, Array]], Options]:  # fmt: skip
    """Check the inputs, and return Q, K, V of each head, (n, d) and so on, together with the options.

    In the returned options the engine is "numpy" if the problem is too small to be worth compiling.
    """
    check_shapes(Q.shape, K.shape, V.shape, options.causal)
    heads = list(zip(as_heads(Q), as_heads(K), as_heads(V), strict=True))
    d = Q.shape[-1]
    for g in {options.degree, options.gradient_degree or options.degree}:
        error_certificates.check_rank(d, g, V.shape[-1], len(heads), Q.dtype.itemsize)
    if options.engine is None:
        work = max(Q.size, K.size) // d * rank_of(d, options.degree)
        options = replace(options, engine="numpy") if work < SMALL else options
    compiled = is_compiled(options)
    for head in heads:
        if options.bound is not None or not (compiled and fast.finite(*head)):
            check_entries(*head, options)
    return heads, options


def as_heads(X: Array) -> list[Array]:
    """Return X (…, n, d) as a list of arrays (n, d), also of a broadcast array without a copy."""
    return [X[at] for at in np.ndindex(*X.shape[:-2])]


# ---- one head


class Attended(NamedTuple):
    """Result of one head, its approximation, and `fine`: True if the pass itself has checked the result."""

    found: Forward
    approximation: Approximation
    fine: bool


quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")  # results that are not finite raise


@quiet
def head_forward(
    Q: Array, K: Array, V: Array, options: Options, g: int, T: Array | None = None,
    offset: Array | None = None, largest: Array | None = None,
) -> Attended:  # fmt: skip
    """Return attention of one head at degree g with certified denominators, for checked inputs.

    T, offset, largest: those of a `state.State` with complete tiles, which are before K.
    """
    offset = value_offset(V, options.causal) if offset is None else offset
    values = V - offset if offset.any() else V
    was = _attended(Q, K, values, options, g, T)
    # `fine` is a sufficient test. A result that fails it is examined below, and may still be certified.
    found, s, fine = was
    p = s.polynomial
    if not fine or (s.shift is None and p.positive_to < np.inf):  # the lower bound of den depends on the row
        keys: Any = np.arange(len(K) - len(Q) + 1, len(K) + 1) if options.causal else len(K)
        rows = lambda: (s.queries(Q), s.keys(K))  # noqa: E731
        if T is not None and largest is not None:
            keys += int(T[0, -1])  # the first monomial is 1, so its sum is the number of keys
            longest = np.eye(1, K.shape[1]) * largest  # in place of the keys of the state
            rows = lambda: (s.queries(Q), np.concatenate([K, longest]))  # noqa: E731
        error_certificates.check_denominators(p, rows, found.den, keys, centred=s.shift is not None)
    if not fine:
        finite = bool(np.isfinite(found.O).all())
        ranges = (error_certificates.extent(X) for X in (found.O, values))
        # The range of the values in a state is not known.
        if not finite or (T is None and not error_certificates.within(*ranges)):
            error_certificates.refuse_output(p, finite)
    if not options.causal:  # causal attention must not use statistics of the whole sequence
        _warn_if_inaccurate(Q, K, s, options)
    if offset.any():
        found.O[...] += offset
    if T is None:
        _replace_first_tile(found.O, Q, K, V, s)
    return was


def _replace_first_tile(O: Array, Q: Array, K: Array, V: Array, s: Approximation) -> None:
    """If causal, compute the rows of O in the first tile again, which is exact, from this V.

    No row may depend on later tokens, and the offset of V is that of all rows of the tile. Without it, sums
    of large values need float64.
    """
    first = len(K) - len(Q)
    if s.shift is None and first < FIRST:
        x = s.queries(Q[: FIRST - first].astype(np.float64))
        P = np.tril(np.exp(x @ K[:FIRST].T), first)
        O[: len(x)] = P @ V[:FIRST] / P.sum(1, keepdims=True)


def _warn_if_inaccurate(Q: Array, K: Array, s: Approximation, options: Options) -> None:
    covariance = s.covariance
    if covariance is None or options.key_variance is not None:
        y = s.keys(K)
        covariance = y.T @ y / len(y)
    spread = Q @ covariance
    if not error_certificates.is_accurate(s.factor**2 * float(np.vdot(spread, Q)) / len(Q), s.plan.g):
        error_certificates.warn_of_error(s.factor**2 * (spread * Q @ np.ones(Q.shape[1], Q.dtype)), s.plan.g)


def _attended(Q: Array, K: Array, V: Array, options: Options, g: int, T: Array | None = None) -> Attended:
    """Run the forward pass of an available engine."""
    threads = options.threads or 1
    compiled = is_compiled(options)
    passes, s = fast if compiled else plain, head_approximation(K, options, g, compiled)
    if options.causal:
        found = passes.causal_forward(Q, K, V, s, T)
    else:
        found = fast.forward(Q, K, V, s, threads) if compiled else plain.forward(Q, K, V, s)
    # One pass over outputs and denominators suffices for most calls.
    least = error_certificates.POSITIVE if s.shift is None else len(K) / 2
    return Attended(found, s, compiled and fast.output_fine(found.O, found.den, V, least))


@quiet
def head_backward(Q: Array, K: Array, V: Array, was: Attended, dO: Array, options: Options) -> Gradients:
    """Return dQ, dK, dV of one head, certified, at `gradient_degree` if that is given."""
    if options.gradient_degree not in (None, was.approximation.plan.g):
        # O and denominators of the gradient's own degree, because the gradient is that of this polynomial.
        was = head_forward(Q, K, V, options, options.gradient_degree or 0)
    s, offset = was.approximation, value_offset(V, options.causal)
    if offset.any():
        O = was.found.O - offset
        V = V - offset
        _replace_first_tile(O, Q, K, V, s)
        was = was._replace(found=was.found._replace(O=O))
    found = _pulled_back(Q, K, V, was, dO, options)
    add_gradient(found.dQ, found.dK, Q, K, dO, was.found, _two_degrees_lower(Q, K, V, was, options), s)
    _certify_gradients(s.polynomial, found, dO)
    return found


def _two_degrees_lower(Q: Array, K: Array, V: Array, was: Attended, options: Options) -> Array | None:
    """Return [N, den] (n, d_v + 1) of degree g - 2, which the gradient by the rows' variances needs."""
    f, s, _ = was
    if s.covariance is None or (s.plan.g == 1 and not options.causal):
        return None  # 1 + s has no variance in it
    low = of_second_derivative(s)
    compiled = is_compiled(options)
    if options.causal:
        forward = fast.causal_forward if compiled else plain.causal_forward
        found = forward(Q, K, V, low)
    else:
        T = f.T[: rank_of(s.plan.d, s.plan.g - 2)]  # lower degrees come first
        if not compiled or low.plan.g == 1:  # then NumPy needs one product
            return plain.from_state(Q, T, low)
        found = fast.from_state(Q, T, low, options.threads or 1)
    return plain.with_ones(found.O) * found.den[:, None]


def _pulled_back(Q: Array, K: Array, V: Array, was: Attended, dO: Array, options: Options) -> Gradients:
    """Run the backward pass of an available engine."""
    f, s, _ = was
    compiled = is_compiled(options)
    if options.causal:
        found: Gradients = (fast if compiled else plain).causal_backward(Q, K, V, f, dO, s)
        return found
    if compiled:
        return fast.backward(Q, K, V, f, dO, s, options.threads or 1)
    return plain.backward(Q, K, V, f, dO, s)


def is_compiled(options: Options) -> bool:
    """Return True if Numba is used: requested, or installed and no engine requested.

    Raises ImportError if Numba is requested and not installed.
    """
    if options.engine == "numba" and not fast.installed():
        raise ImportError(
            f'engine="numba" needs Numba, which cannot be imported ({fast.problem()}). Install it with: '
            f"{install_command.command('fast')}"
        )
    return options.engine == "numba" or (options.engine is None and fast.installed())


def _certify_gradients(p: Polynomial, found: Gradients, dO: Array) -> None:
    """Raise NotCertified for gradients that are not finite or too large.

    If dO is not finite, as autograd may pass it, nothing is checked.
    """
    if not isfinite(error_certificates.sum_of_squares(dO)) and not np.isfinite(dO).all():
        return
    for name, X in zip(found._fields, found, strict=True):
        error_certificates.check_gradient(p, name, error_certificates.sum_of_squares(X))
    if p.positive_to < np.inf:
        error_certificates.check_gradient(p, "dV", 0.0, (float(abs(found.dV).sum()), float(abs(dO).sum())))
