"""Low-rank attention in which some keys do not take part: each mask row is a call with the keys that remain.

So the result is that of slicing by hand, statistics of the keys included, in every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..monomials import Array
from .options import check_output_gradient, check_shapes

Places = tuple[int | slice, ...]
Kept = NDArray[np.int64]


def calls(key_mask: Any, K: Any) -> Iterator[tuple[Places, Kept]]:
    """Yield, for each row of the mask, the heads that it applies to and the indices of the keys it keeps.

    Raises TypeError or ValueError for a mask that is not Boolean, has another shape, or keeps no key.
    """
    mask = np.asarray(key_mask.detach().cpu() if hasattr(key_mask, "detach") else key_mask)
    if mask.dtype != np.bool_:
        raise TypeError(
            f"key_mask must be Boolean, True where a key takes part, got {mask.dtype}. For ones and zeros "
            "pass key_mask == 1; for lengths pass np.arange(n_k) < lengths[..., None]"
        )
    heads, n_k = tuple(K.shape[:-2]), K.shape[-2]
    fits = mask.ndim == len(heads) + 1 and all(
        a in (1, b) for a, b in zip(mask.shape[:-1], heads, strict=True)
    )
    if mask.shape[-1:] != (n_k,) or not (mask.ndim == 1 or fits):
        raise ValueError(
            f"key_mask must have shape ({n_k},) or (…, {n_k}) with the leading axes of K, {heads}, each of "
            f"its size or 1, got {mask.shape}. For one mask per batch and K of shape (batch, heads, n_k, d), "
            "pass key_mask[:, None]"
        )
    lead = mask.shape[:-1]
    for row in np.ndindex(*lead):
        kept = np.flatnonzero(mask[row])
        if not len(kept):
            raise ValueError(f"key_mask keeps no key in its row {row}; at least one must take part")
        yield tuple(at if size > 1 else slice(None) for at, size in zip(row, lead, strict=True)), kept


def attention_of_kept_keys(
    call: Callable[..., Any], key_mask: Any, Q: Any, K: Any, V: Any, causal: bool
) -> Any:
    """Return O of `call`(q, k, v) with the keys that the mask keeps, for arrays or tensors.

    With a causal mask token i is query i and key i: it is left out as a query too, and its row of O is 0.
    """
    check_shapes(Q.shape, K.shape, V.shape, causal)
    O = zeros(Q, (*Q.shape[:-1], V.shape[-1]))
    for at, kept in calls(key_mask, K):
        queries: Any = kept if causal else slice(None)
        found = call(Q[at][..., queries, :], *(X[at][..., kept, :] for X in (K, V)))
        O[at][..., queries, :] = found
    return O


def gradient_of_kept_keys(
    call: Callable[..., Any], key_mask: Any, Q: Array, K: Array, V: Array, dO: Array, causal: bool
) -> tuple[Array, Array, Array, Array]:
    """Return O, dQ, dK, dV of `call`(q, k, v, dO); rows that are left out are 0."""
    check_shapes(Q.shape, K.shape, V.shape, causal)
    check_output_gradient(dO.shape, Q.shape, V.shape)
    whole = zeros(Q, dO.shape), zeros(Q, Q.shape), zeros(Q, K.shape), zeros(Q, V.shape)
    for at, kept in calls(key_mask, K):
        queries: Any = kept if causal else slice(None)
        rows = queries, queries, kept, kept
        q, k, v, g = (
            X[at][..., r, :] for X, r in zip((Q, K, V, dO), (queries, kept, kept, queries), strict=True)
        )
        for X, r, found in zip(whole, rows, call(q, k, v, g), strict=True):
            X[at][..., r, :] = found
    return whole


def zeros(like: Any, shape: tuple[int, ...]) -> Any:
    """Return zeros of this shape: a tensor on the device of `like`, or an array."""
    return like.new_zeros(shape) if hasattr(like, "new_zeros") else np.zeros(shape, like.dtype)
