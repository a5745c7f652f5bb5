"""Q, K and V of some heads of a real model, loaded from package data."""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from io import BytesIO
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, repr=False)
class Head:
    """One attention head, applied to one document of N tokens; d = 32.

    Q, K, V: float32 (N, 32), copies that the caller may change. They are not scaled; attention multiplies QKᵀ
    by 1/√d. tokens: the N WordPiece tokens, [CLS] first and [SEP] last. stats: results of
    `measures.head_stats`. character: a sentence that describes them.
    """

    layer: int
    head: int
    Q: NDArray[np.float32]
    K: NDArray[np.float32]
    V: NDArray[np.float32]
    tokens: list[str] = field(default_factory=list)
    stats: dict[str, float] = field(default_factory=dict)
    character: str = ""

    def __repr__(self) -> str:
        N, d = self.Q.shape
        return f"Head(layer={self.layer}, head={self.head}, N={N}, d={d}: {self.character})"


def real_heads() -> list[tuple[int, int]]:
    """Return the stored heads as pairs (layer, head), sorted; `real_head` accepts these pairs."""
    return sorted((entry["layer"], entry["head"]) for entry in _record()["heads"])


def real_head(layer: SupportsIndex, head: SupportsIndex) -> Head:
    """Return head `head` of layer `layer` of all-MiniLM-L6-v2, both counted from 0, as new arrays.

    The values were stored in float16; `provenance()` has the resulting error. Raises ValueError for a head
    that is not stored; the message lists the stored heads.
    """
    pair = _stored(layer, head)
    entry = next(e for e in _record()["heads"] if (e["layer"], e["head"]) == pair)
    with np.load(BytesIO(_data("heads.npz"))) as arrays:
        Q, K, V = (part.astype(np.float32) for part in arrays["L{}H{}".format(*pair)])
    return Head(*pair, Q, K, V, _record()["tokens"].split(), dict(entry["stats"]), entry["character"])


def provenance() -> dict[str, Any]:
    """Return the origin of the heads: model, licence, checksums, document, method, errors and statistics.

    The result is a new copy of heads.json.
    """
    found: dict[str, Any] = json.loads(_data("heads.json"))
    return found


def _stored(layer: SupportsIndex, head: SupportsIndex) -> tuple[int, int]:
    pair = _index("layer", layer), _index("head", head)
    if pair[0] not in {stored for stored, _ in real_heads()}:
        raise ValueError(f"layer={pair[0]}: no head of this layer is stored. {_choice()}")
    if pair not in real_heads():
        raise ValueError(f"head={pair[1]}: not stored for layer {pair[0]}. {_choice()}")
    return pair


def _index(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name}={value!r}: expected an integer. {_choice()}") from None


def _choice() -> str:
    return f"The stored heads, as (layer, head): {', '.join(map(str, real_heads()))}."


@cache
def _data(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()


@cache
def _record() -> dict[str, Any]:
    return provenance()
