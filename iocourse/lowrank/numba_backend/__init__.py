"""Passes of `numpy_backend` compiled by Numba, if it is installed, on one or more threads.

There are two implementations. `loops` and `causal_loops` support every type and size. `registers` contains
the same passes for float32 on processors with AVX-512, or AVX2 and FMA; they run and compile in less time.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np

from ...monomials import Array
from ..approximation import Approximation
from ..numpy_backend import Forward, Gradients

SPAN = 8192  # minimum number of tokens per thread

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


@cache
def _found() -> bool:
    """Return True if Numba and llvmlite are installed, without importing them, which takes half a second."""
    names = ("numba", "llvmlite")
    return all(sys.modules.get(name, name) is not None and find_spec(name) is not None for name in names)


def in_registers(Q: Array, V: Array, g: int) -> bool:
    """Return True if the passes in `registers` support these arrays, degree g and this processor."""
    return _found() and bool(register_calls().suits(Q, V, g))


def register_calls() -> Any:
    """Return the module `registers.calls`, which calls the passes in registers."""
    return _kernels("registers.calls")


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


def _bits(X: Array) -> Array:
    """Allocate one integer per token of a tile, of the size of an entry of X."""
    from .causal_loops import TILE

    return np.empty(TILE, np.int32 if X.itemsize == 4 else np.int64)


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


def moments(K: Array) -> tuple[Array, Array]:
    """Return the mean (d,) of the rows of K (n, d) and their covariance (d, d)."""
    found: tuple[Array, Array] = _kernels("loops").moments(*_rows(K))
    return found


def finite(Q: Array, K: Array, V: Array) -> bool:
    """Return True if all entries are finite and the sums of their squares do not overflow."""
    return bool(_kernels("loops").finite(*map(_of_one_type, (Q, K, V))))


def output_fine(O: Array, den: Array, V: Array, least: float) -> bool:
    """Return True if den (n,) is at least `least`, and O (n, m) is finite and within the range of V (n_k, m).

    The range is that of `error_certificates.within`.
    """
    return bool(_kernels("loops").output_fine(O, den, _of_one_type(V), least))


def forward(Q: Array, K: Array, V: Array, s: Approximation, threads: int = 1) -> Forward:
    """Return the result of `numpy_backend.forward`, computed by compiled loops."""
    loops = _kernels("loops")
    Q, K, V = _rows(Q, K, V)
    factor, shift, covariance, weights = _constants(s, Q)

    def state(start: int, stop: int) -> Array:
        T = np.zeros((s.plan.rank, V.shape[1] + 1), Q.dtype)
        loops.keys_forward(T, K, V, start, stop, shift, s.plan.table)
        return T

    T = _sum(map_spans(state, len(K), threads), weights)
    O, den = np.empty((len(Q), V.shape[1]), Q.dtype), np.empty(len(Q), Q.dtype)

    def rows(start: int, stop: int) -> None:
        loops.queries_forward(O, den, T, Q, start, stop, factor, covariance, s.plan.table, s.plan.starts)

    map_spans(rows, len(Q), threads)
    return Forward(O, den, T)


def backward(
    Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Approximation, threads: int = 1
) -> Gradients:
    """Return the result of `numpy_backend.backward`, computed by compiled loops."""
    loops = _kernels("loops")
    Q, K, V, dO = _rows(Q, K, V, dO)
    factor, shift, covariance, weights = _constants(s, Q)
    dQ, dK, dV = np.empty_like(Q), np.empty_like(K), np.empty_like(V)

    def state(start: int, stop: int) -> Array:
        U = np.zeros_like(f.T)
        loops.queries_backward(
            dQ, U, f.T, Q, f.O, f.den, dO, start, stop, factor, covariance, s.plan.table, s.plan.starts
        )
        return U

    U = _sum(map_spans(state, len(Q), threads), weights)

    def rows(start: int, stop: int) -> None:
        loops.keys_backward(dK, dV, U, K, V, start, stop, shift, s.plan.table)

    map_spans(rows, len(K), threads)
    return Gradients(dQ, dK, dV)


def causal_forward(Q: Array, K: Array, V: Array, s: Approximation) -> Forward:
    """Return the result of `numpy_backend.causal_forward` without the state T, computed by compiled loops."""
    causal = _kernels("causal_loops")
    Q, K, V = _rows(Q, K, V)
    factor, _, covariance, weights = _constants(s, Q)
    O, den = np.empty((len(Q), V.shape[1]), Q.dtype), np.empty(len(Q), Q.dtype)
    head = (Q, K, V, factor, covariance, s.plan.table, s.plan.starts, weights[:, 0], _bits(Q))
    causal.forward_of_head(O, den, *head)
    return Forward(O, den, np.empty((0, 0), Q.dtype))


def causal_backward(Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Approximation) -> Gradients:
    """Return the result of `numpy_backend.causal_backward`, computed by compiled loops."""
    causal = _kernels("causal_loops")
    Q, K, V, dO = _rows(Q, K, V, dO)
    factor, _, covariance, weights = _constants(s, Q)
    dQ, dK, dV = np.empty_like(Q), np.empty_like(K), np.empty_like(V)
    head = (Q, K, V, f.O, f.den, dO, factor, covariance, s.plan.table, s.plan.starts, weights[:, 0], _bits(Q))
    causal.queries_backward(dQ, *head)
    causal.keys_backward(dK, dV, *head)
    return Gradients(dQ, dK, dV)


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
