"""State of causal attention: a later call continues with it, and many calls give the result of one call.

Keys are cut into tiles of CAUSAL_TILE from the first token on. Complete tiles are summed in T, whose size
does not grow. The rows of the incomplete tile are kept, because attention is exact within a tile.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .grouped_heads import Groups, is_tensor, library
from .numpy_backend import CAUSAL_TILE
from .options import Options
from .statistics import value_offset

SHORT = re.compile("b?float16")  # types of a call that are computed in float32


class State(NamedTuple):
    """State of causal attention after `keys` tokens, as arrays or tensors with the leading axes of K.

    T (…, rank, d_v + 1): sums over the keys of complete tiles of the monomials times [v - offset, 1], without
    weights; the last column has the sums of the normaliser. K (…, r, d), V (…, r, d_v): rows of the
    incomplete tile. offset (…, 1, d_v): see `value_offset`; it is fixed by the first complete tile.
    largest (…, 1, 1): largest norm of a key so far.
    """

    T: Any
    K: Any
    V: Any
    offset: Any
    largest: Any
    degree: int
    keys: int

    def each(self, function: Callable[[Any], Any]) -> State:
        """Return the state with `function` of each of its arrays."""
        return self._replace(**{name: function(getattr(self, name)) for name in self._fields[:-2]})


def check_state(state: Any, K: Any, V: Any, options: Options, key_mask: Any) -> None:
    """Raise TypeError or ValueError unless a call with these K and V can continue the state, if any."""
    if not options.causal:
        raise ValueError("state and return_state need causal=True: otherwise all keys belong to one call")
    if key_mask is not None:
        raise ValueError("state and return_state need key_mask=None. Leave these tokens out of Q, K and V")
    if state is None:
        return
    if not isinstance(state, State):
        raise TypeError(f"state must be a State, from return_state=True, got {type(state).__name__}")
    for what, found, wanted in (
        ("type", str(state.T.dtype), SHORT.sub("float32", str(K.dtype))),  # "torch.float32" for a tensor
        ("degree", state.degree, options.degree),
        ("leading axes", tuple(state.K.shape[:-2]), tuple(K.shape[:-2])),
        ("d", state.K.shape[-1], K.shape[-1]),
        ("d_v", state.V.shape[-1], V.shape[-1]),
    ):
        if found != wanted:
            raise ValueError(f"state must have the {what} of this call, {wanted}, got {found}")


@np.errstate(over="ignore")  # an infinite norm is a valid bound
def continued(
    call: Callable[..., Any], Q: Any, K: Any, V: Any, options: Options, state: State | None, groups: Groups
) -> tuple[Any, State]:
    """Return O and the state after K, by `call`(Q, K, V, options, T, offset, largest), which returns O and T.

    Its K and V begin with the rows of the incomplete tile. T and largest are None before a complete tile.
    """
    xp, kind, summed = library(K), Q.dtype, 0
    if SHORT.search(str(kind)) and kind == K.dtype == V.dtype:
        Q, K, V = (_as(X, xp.float32) for X in (Q, K, V))
    if state is not None:
        summed = state.keys - state.K.shape[-2]
        K, V = (xp.concatenate(pair, -2) for pair in ((state.K, K), (state.V, V)))
    T, offset, largest = None, value_offset(V, True), None
    if state is not None and summed:
        T, offset, largest = state.T, state.offset, state.largest
    past = (X if X is None else groups.keys(X) for X in (T, offset, largest))
    O, T = call(groups.queries(Q), groups.keys(K), groups.keys(V), options, *past)
    norm = xp.amax(xp.linalg.norm(K, None, -1, True), -2)[..., None, :]
    tiles, keys = K.shape[-2] // CAUSAL_TILE, summed + K.shape[-2]
    # Joined to nothing, they are copies: a view would keep all keys alive.
    k, v = (xp.concatenate((X[..., tiles * CAUSAL_TILE :, :],), -2) for X in (K, V))
    norm = norm if largest is None else xp.maximum(norm, largest)
    return _as(groups.output(O), kind), State(groups.first(T), k, v, offset, norm, options.degree, keys)


def _as(X: Any, kind: Any) -> Any:
    return X.to(kind) if is_tensor(X) else X.astype(kind, copy=False)
