"""Low-rank attention in which some keys do not take part: each mask row is a call with the keys that remain.

So the result is that of slicing by hand, statistics of the keys included, in every engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..monomials import Array

Places = tuple[int | slice, ...]
Kept = NDArray[np.int64]
Mask = NDArray[np.bool_]


def checked_mask(key_mask: Any, K: Any) -> Mask | None:
    """Return the mask, if any, as an array for the keys K (…, n_k, d).

    Raises TypeError or ValueError for a mask that is not Boolean, has another shape, or keeps no key.
    """
    if key_mask is None:
        return None
    try:
        mask = np.asarray(key_mask.detach().cpu() if hasattr(key_mask, "detach") else key_mask)
    except RuntimeError:  # a tensor within a transform of torch.func has no data
        raise TypeError(
            "key_mask must be a NumPy array within a transform of torch.func, got a tensor. Pass "
            "key_mask.numpy(), made outside the transform"
        ) from None
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
    if not mask.any(-1).all():
        row = tuple(int(at) for at in np.argwhere(~mask.any(-1))[0])
        raise ValueError(f"key_mask keeps no key in its row {row}; at least one must take part")
    return mask


def _calls(mask: Mask, n: int, causal: bool) -> Iterator[tuple[Places, Any, Kept]]:
    """Yield, for each row of the mask, its heads, and the indices of the queries and the keys of the call.

    With a causal mask the n queries are the last tokens. Those of keys that are left out are left out too.
    """
    lead, first = mask.shape[:-1], mask.shape[-1] - n
    for row in np.ndindex(*lead):
        kept = np.flatnonzero(mask[row])
        queries: Any = kept[kept >= first] - first if causal else slice(None)
        if not causal or len(queries):
            yield (
                tuple(at if size > 1 else slice(None) for at, size in zip(row, lead, strict=True)),
                queries,
                kept,
            )


def attention_of_kept_keys(
    call: Callable[..., Any], mask: Mask | None, Q: Any, K: Any, V: Any, causal: bool
) -> Any:
    """Return O of `call`(q, k, v) with the keys that the mask keeps; rows that are left out are 0."""
    if mask is None:
        return call(Q, K, V)
    O = zeros(Q, (*Q.shape[:-1], V.shape[-1]))
    for at, queries, keys in _calls(mask, Q.shape[-2], causal):
        O[at][..., queries, :] = call(Q[at][..., queries, :], *(X[at][..., keys, :] for X in (K, V)))
    return O


def gradient_of_kept_keys(
    call: Callable[..., Any], mask: Mask | None, Q: Array, K: Array, V: Array, dO: Array, causal: bool
) -> tuple[Array, ...]:
    """Return O, dQ, dK, dV of `call`(q, k, v, dO); rows that are left out are 0."""
    if mask is None:
        return tuple(call(Q, K, V, dO))
    whole = tuple(zeros(Q, X.shape) for X in (dO, Q, K, V))
    for at, queries, keys in _calls(mask, Q.shape[-2], causal):
        rows = queries, keys, keys, queries
        found = call(*(X[at][..., r, :] for X, r in zip((Q, K, V, dO), rows, strict=True)))
        for X, r, part in zip(whole, (queries, queries, keys, keys), found, strict=True):
            X[at][..., r, :] = part
    return whole


def zeros(like: Any, shape: tuple[int, ...]) -> Any:
    """Return zeros of this shape: a tensor on the device of `like`, or an array."""
    return like.new_zeros(shape) if hasattr(like, "new_zeros") else np.zeros(shape, like.dtype)
