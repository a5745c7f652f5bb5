"""Partial attention: some queries with some keys, forward and backward, and the merge of partial results.

The same code runs on NumPy arrays, torch tensors and ShapeArrays. The first axis is the rows: q is (n, d) or
(n, H, d), and the row statistics are (n,) or (n, H). Partial results of 16-bit arrays are float32.
"""

from __future__ import annotations

import sys
from functools import reduce
from typing import Any

import numpy as np

from .shape_arrays import ShapeArray, promoted

Array = Any  # an np.ndarray, a torch.Tensor or a ShapeArray


def namespace(array: Array) -> Any:
    """Return the module whose functions accept this array: torch for tensors, otherwise NumPy."""
    torch = sys.modules.get("torch")
    # While another thread imports torch, the module exists without Tensor, and no array is a tensor yet.
    tensors = getattr(torch, "Tensor", None)
    return torch if tensors is not None and isinstance(array, tensors) else np


def at_least_float32(*arrays: Array) -> tuple[Array, ...]:
    """Return the arrays in their common type, at least float32, in which partial results are computed.

    Sums over keys in a 16-bit type would have an error that grows with the number of ranks.
    """
    if isinstance(arrays[0], ShapeArray):
        kind = promoted(*arrays, ShapeArray((1,), kind="float32"))
        return tuple(array.astype(kind, copy=False) for array in arrays)
    xp = namespace(arrays[0])
    if xp is np:
        common = np.result_type(np.float32, *(array.dtype for array in arrays))
        return tuple(array.astype(common, copy=False) for array in arrays)
    common = reduce(xp.promote_types, (array.dtype for array in arrays), xp.float32)
    return tuple(array.to(common) for array in arrays)


def _check_shapes(call: str, q: Array, k: Array, v: Array) -> None:
    """Raise ValueError, in one line, unless k and v are keys and values for the queries q."""
    shapes = tuple(q.shape), tuple(k.shape), tuple(v.shape)
    if shapes[0][1:] == shapes[1][1:] and shapes[1][:-1] == shapes[2][:-1] and len(shapes[0]) in (2, 3):
        return
    said = f"{call} got q, k, v of shapes {shapes[0]}, {shapes[1]} and {shapes[2]}; expected (n, d), (m, d) "
    said += "and (m, d), or (n, H, d), (m, H, d) and (m, H, d)"
    if all(len(shape) == 3 for shape in shapes) and shapes[0][1] != shapes[1][1]:
        said += f". q has {shapes[0][1]} heads and k has {shapes[1][1]}: repeat the heads of k and v"
    raise ValueError(said)


def attend(
    q: Array, k: Array, v: Array, *, rows: Any = None, cols: Any = None, scale: float | None = None
) -> tuple[Array, Array]:
    """Return the attention (o, L) of the queries q over the keys k and values v only.

    Args:
        q: queries, (n, d) or (n, H, d).
        k: keys, (m, d) or (m, H, d).
        v: values, of the shape of k.
        rows: positions of the queries in the sequence, (n,).
        cols: positions of the keys, (m,). If given, key j is masked for query i where cols[j] > rows[i].
        scale: factor of the scores; None is 1/√d.

    Returns:
        The normalised output o, of the shape of q, and the log-sum-exp L of each row, both at least float32.
        A query without a visible key has o = 0 and L = -inf, which `merge` ignores.

    Raises:
        ValueError: if the shapes do not match.
    """
    _check_shapes("attend(q, k, v)", q, k, v)
    q, k, v = at_least_float32(q, k, v)
    if isinstance(q, ShapeArray):
        o = ShapeArray((*q.shape[:-1], v.shape[-1]), kind=q.kind)
        return o, ShapeArray(q.shape[:-1], kind=q.kind)
    xp = namespace(q)
    if not len(k):
        o = xp.zeros((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
        return o, o.sum(-1) - float("inf")
    s = _scores(q, k, rows, cols, scale)  # (n, m) or (H, n, m)
    top = _finite(xp, xp.amax(s, -1))  # (n) or (H, n)
    p = xp.exp(s - top[..., None])
    total = xp.sum(p, -1)
    o = (p @ _heads_first(v)) / _or_one(xp, total)[..., None]
    return _rows_first(o), _stats_first(_log_of(xp, top, total))


def _heads_first(a: Array) -> Array:
    return a.swapaxes(0, 1) if a.ndim == 3 else a


_rows_first = _heads_first


def _stats_first(L: Array) -> Array:
    return L.swapaxes(0, 1) if L.ndim == 2 else L


def _scores(q: Array, k: Array, rows: Any, cols: Any, scale: float | None) -> Array:
    xp, factor = namespace(q), q.shape[-1] ** -0.5 if scale is None else scale
    s = _heads_first(q) @ _heads_first(k).swapaxes(-1, -2) * factor  # (n, m) or (H, n, m)
    if rows is None and cols is None:
        return s
    rows, cols = np.asarray(rows), np.asarray(cols)
    if (len(rows), len(cols)) != s.shape[-2:]:
        raise ValueError(
            f"rows and cols must be the positions of the {s.shape[-2]} queries and {s.shape[-1]} keys, got "
            f"{len(rows)} and {len(cols)} positions"
        )
    seen = cols[None, :] <= rows[:, None]  # (n, m)
    return xp.where(xp.asarray(seen), s, -float("inf"))


def _finite(xp: Any, top: Array) -> Array:
    """Return the row maxima, with -inf (no visible key) replaced by 0."""
    return xp.where(top == -float("inf"), 0.0, top)


def _or_one(xp: Any, total: Array) -> Array:
    return xp.where(total > 0, total, 1.0)


def _log_of(xp: Any, top: Array, total: Array) -> Array:
    """Return top + log(total), or -inf where the total is 0."""
    return xp.where(total > 0, top + xp.log(_or_one(xp, total)), -float("inf"))


def merge(o: Array, L: Array, other: Array, other_L: Array) -> tuple[Array, Array]:
    """Merge two partial results over different keys: normalised outputs with the log-sum-exp of each row.

    Where both are empty (L = -inf), the result is empty too: o = 0 and L = -inf.
    """
    o, L, other, other_L = at_least_float32(o, L, other, other_L)
    if isinstance(o, ShapeArray):
        return o.copy(), L.copy()
    xp = namespace(o)
    top = _finite(xp, xp.maximum(L, other_L))
    one, two = xp.exp(L - top), xp.exp(other_L - top)
    total = one + two
    weight = _or_one(xp, total)
    return o * (one / weight)[..., None] + other * (two / weight)[..., None], _log_of(xp, top, total)


def attend_backward(
    q: Array,
    k: Array,
    v: Array,
    do: Array,
    L: Array,
    D: Array,
    *,
    rows: Any = None,
    cols: Any = None,
    scale: float | None = None,
) -> tuple[Array, Array, Array]:
    """Return the contributions (dq, dk, dv) of these queries, keys and values to the gradients.

    L is the log-sum-exp of each query row over all keys, D the row sum of dO∘O (`row_dot`). Shapes, `rows`,
    `cols`, `scale` and ValueError as for `attend`; the results are at least float32.
    """
    _check_shapes("attend_backward", q, k, v)
    q, k, v, do, L, D = at_least_float32(q, k, v, do, L, D)
    if isinstance(q, ShapeArray):
        return q.copy(), k.copy(), v.copy()
    if not len(k) or not len(q):
        return 0 * q, 0 * k, 0 * v
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    s = _scores(q, k, rows, cols, scale)  # (n, m) or (H, n, m)
    p = namespace(q).exp(s - _stats_first(L)[..., None])
    q, k, v, do = (_heads_first(a) for a in (q, k, v, do))
    ds = p * (do @ v.swapaxes(-1, -2) - _stats_first(D)[..., None]) * factor
    across = ds.swapaxes(-1, -2), p.swapaxes(-1, -2)
    return _rows_first(ds @ k), _rows_first(across[0] @ q), _rows_first(across[1] @ do)


def row_dot(a: Array, b: Array) -> Array:
    """Return the sum over each row of a∘b, at least in float32."""
    a, b = at_least_float32(a, b)
    return (a * b).sum(-1)


def tril(a: Array) -> Array:
    """Return the lower triangle of a square array: entries (i, j) with j ≤ i, otherwise 0."""
    return a if isinstance(a, ShapeArray) else namespace(a).tril(a)
