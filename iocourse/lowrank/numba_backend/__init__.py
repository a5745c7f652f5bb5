"""Passes of `numpy_backend` compiled by Numba, if it is installed, on one or more threads.

Read `products` first, then `tiles`, `dense` and `causal`; `checks` has the checks of complete arrays.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from math import isfinite
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ...monomials import Array, plan
from ..approximation import Approximation
from ..numpy_backend import CAUSAL_TILE, Forward, Gradients

SPAN = 8192  # minimum number of tokens per thread
STORED = 128  # up to this rank all features of a tile are stored, because blocks of few features take longer
SINGLE = 256  # up to this rank causal tiles are processed one by one
CACHE = 1 << 20  # bytes of a second-level cache
TILES = (512, 256, 128, 64)

Found = TypeVar("Found")


@cache
def problem() -> str:
    """Import Numba (extra `fast`) and return the error message, or "" if it can be used."""
    try:
        import numba  # noqa: F401
    except ImportError as error:  # not installed, or it does not support this NumPy
        return str(error)
    return ""


def installed() -> bool:
    """Return True if Numba can be imported."""
    return not problem()


@cache
def _kernels(name: str) -> Any:
    """Import a module of compiled functions on first use, because it needs Numba."""
    return importlib.import_module(f".{name}", __package__)


def _sum(parts: list[Array], weights: Array) -> Array:
    """Return the sum of the parts times weights, in the memory of the first part."""
    total = parts[0]
    for part in parts[1:]:
        total += part
    total *= weights
    return total


def _constants(s: Approximation, X: Array) -> tuple[Any, Array, Array, Array]:
    """Return factor, shift, covariance and weights of the approximation, in the type of X."""
    d, kind = X.shape[1], X.dtype
    shift = np.zeros(d, kind) if s.shift is None else s.shift.astype(kind)
    covariance = np.zeros((0, 0), kind) if s.covariance is None else s.covariance.astype(kind)
    return kind.type(s.factor), shift, covariance, s.weights(X)


class Blocks(NamedTuple):
    """The features that are stored: their number, and the blocks (S, 4) that are stored and that are not."""

    base: int
    low: NDArray[np.int64]
    top: NDArray[np.int64]


@lru_cache(maxsize=256)
def blocks(d: int, g: int) -> Blocks:
    """Return the blocks of d coordinates and degree g; those of degree g are stored if there are few."""
    p = plan(d, g)
    base = p.rank if g == 1 or p.rank <= STORED else int(p.starts[g])
    inside = p.table[:, 0] < base
    return Blocks(base, p.table[inside], p.table[~inside])


def tile_of(base: int, itemsize: int) -> int:
    """Return the tokens of a tile, so that its features and their gradients fit in CACHE bytes."""
    return next((C for C in TILES if 2 * base * C * itemsize <= CACHE), TILES[-1])


def _rows(*arrays: Array) -> tuple[Array, ...]:
    """Return the arrays as contiguous arrays of one Numba type, as the compiled loops need them."""
    return tuple(_of_one_type(np.ascontiguousarray(x)) for x in arrays)


def _of_one_type(X: Array) -> Array:
    """Return X, or a writeable array with the same memory if X is read-only.

    Numba treats these as two types and would compile every loop again, which takes seconds. The loops do not
    write to their inputs.
    """
    if X.flags.writeable:
        return X
    same = X.__array_interface__ | {"data": (X.ctypes.data, False)}
    return np.asarray(SimpleNamespace(__array_interface__=same, held=X))


def _flat(*arrays: Array) -> tuple[Array, ...]:
    """Return all entries of each array, (n · m,)."""
    return tuple(X.reshape(-1) for X in _rows(*arrays))


def moments(K: Array) -> tuple[Array, Array]:
    """Return the mean (d,) of the rows of K (n, d) and their covariance (d, d)."""
    found: tuple[Array, Array] = _kernels("checks").moments(*_rows(K))
    return found


def finite(*arrays: Array) -> bool:
    """Return True if all entries are finite and the sums of their squares do not overflow."""
    return all(isfinite(_kernels("checks").sum_of_squares(flat)) for flat in _flat(*arrays))


def output_fine(O: Array, den: Array, V: Array, least: float) -> bool:
    """Return True if den (n,) is at least `least`, and O (n, m) is finite and within the range of V (n_k, m).

    The range is that of `error_certificates.within`.
    """
    o, v = _flat(O, V)
    return bool(_kernels("checks").output_fine(o, den, v, V.shape[1], least))


def forward(Q: Array, K: Array, V: Array, s: Approximation, threads: int = 1) -> Forward:
    """Return the result of `numpy_backend.forward`, computed by compiled loops."""
    K, V = _rows(K, V)
    _, shift, _, weights = _constants(s, K)
    stored = blocks(s.plan.d, s.plan.g)
    tile = tile_of(stored.base, K.itemsize)

    def state(start: int, stop: int) -> Array:
        T = np.zeros((s.plan.rank, V.shape[1] + 1), K.dtype)
        _kernels("dense").keys_forward(T, K, V, start, stop, shift, *stored, tile)
        return T

    return from_state(Q, _sum(map_spans(state, len(K), threads), weights), s, threads)


def from_state(Q: Array, T: Array, s: Approximation, threads: int = 1) -> Forward:
    """Return the Forward of the queries Q (n, d) from the weighted state T of the keys."""
    (Q,) = _rows(Q)
    factor, _, covariance, _ = _constants(s, Q)
    stored = blocks(s.plan.d, s.plan.g)
    tile = tile_of(stored.base, Q.itemsize)
    O, den = np.empty((len(Q), T.shape[1] - 1), Q.dtype), np.empty(len(Q), Q.dtype)

    def rows(start: int, stop: int) -> None:
        _kernels("dense").queries_forward(
            O, den, T, Q, start, stop, factor, covariance, s.plan.starts, *stored, tile
        )

    map_spans(rows, len(Q), threads)
    return Forward(O, den, T)


def backward(
    Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Approximation, threads: int = 1
) -> Gradients:
    """Return the result of `numpy_backend.backward`, computed by compiled loops."""
    dense = _kernels("dense")
    Q, K, V, dO = _rows(Q, K, V, dO)
    factor, shift, covariance, weights = _constants(s, Q)
    stored = blocks(s.plan.d, s.plan.g)
    tile = tile_of(stored.base, Q.itemsize)
    dQ, dK, dV = np.empty_like(Q), np.empty_like(K), np.empty_like(V)
    given = f.T, Q, f.O, f.den, dO

    def state(start: int, stop: int) -> Array:
        U = np.zeros_like(f.T)
        dense.queries_backward(dQ, U, *given, start, stop, factor, covariance, s.plan.starts, *stored, tile)
        return U

    U = _sum(map_spans(state, len(Q), threads), weights)

    def rows(start: int, stop: int) -> None:
        dense.keys_backward(dK, dV, U, K, V, start, stop, shift, *stored, tile)

    map_spans(rows, len(K), threads)
    return Gradients(dQ, dK, dV)


def causal_forward(Q: Array, K: Array, V: Array, s: Approximation, T: Array | None = None) -> Forward:
    """Return the result of `numpy_backend.causal_forward`, computed by compiled loops."""
    Q, K, V = _rows(Q, K, V)
    T = np.zeros((s.plan.rank, V.shape[1] + 1), Q.dtype) if T is None else T.copy()
    O, den = np.empty((len(Q), V.shape[1]), Q.dtype), np.empty(len(Q), Q.dtype)
    _kernels("causal").forward_of_head(O, den, T, Q, K, V, *_causal_constants(Q, K, s))
    return Forward(O, den, T)


def causal_backward(Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Approximation) -> Gradients:
    """Return the result of `numpy_backend.causal_backward`, computed by compiled loops."""
    Q, K, V, dO = _rows(Q, K, V, dO)
    dQ, dK, dV = np.empty_like(Q), np.empty_like(K), np.empty_like(V)
    given = Q, K, V, f.O, f.den, dO, *_causal_constants(Q, K, s)
    _kernels("causal").queries_backward(dQ, *given)
    _kernels("causal").keys_backward(dK, dV, *given)
    return Gradients(dQ, dK, dV)


def _causal_constants(Q: Array, K: Array, s: Approximation) -> tuple[Any, ...]:
    """Return the arguments of the causal passes after the arrays of the head."""
    factor, _, covariance, weights = _constants(s, Q)
    # One integer per token of a tile, of the size of an entry: the bits of powers of two.
    bits = np.empty(CAUSAL_TILE, np.int32 if Q.itemsize == 4 else np.int64)
    coefficients = s.polynomial.coefficients[: s.plan.g + 1].astype(Q.dtype)
    features = s.plan.starts, weights[:, 0], coefficients, *blocks(s.plan.d, s.plan.g)
    group = CAUSAL_TILE if s.plan.rank <= SINGLE else 2 * CAUSAL_TILE
    return len(K) - len(Q), factor, covariance, *features, group, bits


# ---- spans of tokens, one thread per span


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="lowrank")


if hasattr(os, "register_at_fork"):  # the threads of a parent do not exist in a forked child
    os.register_at_fork(after_in_child=_pool.cache_clear)


def span_count(threads: int, n: int) -> int:
    """Return the number of spans into which n tokens are cut."""
    return min(threads, n // SPAN)


def map_spans(work: Callable[[int, int], Found], n: int, threads: int) -> list[Found]:
    """Run work(start, stop) on equal spans of n tokens in threads, and return the results in order."""
    count = span_count(threads, n)
    if count < 2:
        return [work(0, n)]
    edges = [n * part // count for part in range(count + 1)]
    return list(_pool(threads).map(work, edges[:-1], edges[1:]))
