"""State of causal attention: a later call continues with it, and many calls give the result of one call.

Keys are cut into tiles of CAUSAL_TILE from the first token on. Complete tiles are summed in T, whose size
does not grow. The rows of the incomplete tile are kept, because attention is exact within a tile.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .numpy_backend import CAUSAL_TILE
from .options import Options
from .statistics import value_offset

COMPUTED_IN = {"float16": "float32", "torch.float16": "torch.float32", "torch.bfloat16": "torch.float32"}


class State(NamedTuple):
    """State of causal attention after `keys` tokens, as arrays or tensors with the leading axes of K.

    T (…, rank, d_v + 1): sums over the keys of complete tiles of the monomials times [v - offset, 1], without
    weights; the last column has the sums of the normaliser. K (…, r, d), V (…, r, d_v): rows of the
    incomplete tile. offset (…, 1, d_v): see `value_offset`. largest (…, 1, 1): largest norm of a key so far.
    """

    T: Any
    K: Any
    V: Any
    offset: Any
    largest: Any
    degree: int
    keys: int

    @property
    def summed(self) -> int:
        """Number of keys in T."""
        return self.keys - int(self.K.shape[-2])

    def each(self, function: Callable[[Any], Any]) -> State:
        """Return the state with `function` of each of its arrays."""
        return self._replace(**{name: function(getattr(self, name)) for name in ARRAYS})


ARRAYS = State._fields[:-2]


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
        ("type", _type(state.T), COMPUTED_IN.get(_type(K), _type(K))),
        ("degree", state.degree, options.degree),
        ("leading axes", tuple(state.K.shape[:-2]), tuple(K.shape[:-2])),
        ("d", state.K.shape[-1], K.shape[-1]),
        ("d_v", state.V.shape[-1], V.shape[-1]),
    ):
        if found != wanted:
            raise ValueError(f"state must have the {what} of this call, {wanted}, got {found}")


def _type(X: Any) -> str:
    return str(X.dtype)  # "torch.float32" for a tensor


def extended(state: State | None, K: Any, V: Any) -> tuple[Any, Any]:
    """Return K and V after the rows of the state's incomplete tile."""
    if state is None or not state.K.shape[-2]:
        return K, V
    join = library(K).concatenate
    return join((state.K, K), -2), join((state.V, V), -2)


def offset_of(V: Any, causal: bool, state: State | None) -> Any:
    """Return `value_offset` of extended V, or that of the state once it has a complete tile."""
    return state.offset if state is not None and state.summed else value_offset(V, causal)


@np.errstate(over="ignore")  # an infinite norm is a valid bound
def state_after(state: State | None, K: Any, V: Any, T: Any, degree: int) -> State:
    """Return the state after extended K and V, whose complete tiles have been added to T."""
    xp, n_k = library(K), K.shape[-2]
    largest = xp.amax(xp.linalg.norm(K, None, -1, True), -2)[..., None, :]
    if state is not None:
        largest = xp.maximum(largest, state.largest)
    summed = n_k // CAUSAL_TILE * CAUSAL_TILE
    # Joined to nothing, they are copies: a view would keep all keys alive.
    inside = [xp.concatenate((X[..., summed:, :],)) for X in (K, V)]
    keys = n_k + (0 if state is None else state.summed)
    return State(T, inside[0], inside[1], offset_of(V, True, state), largest, degree, keys)


def is_tensor(X: Any) -> bool:
    """Return True for a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)


def library(X: Any) -> Any:
    """Return torch for a tensor, and otherwise numpy."""
    return sys.modules["torch"] if is_tensor(X) else np
