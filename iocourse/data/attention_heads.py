"""Q, K, V of a few heads of a real model, read from package data."""

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
    """One attention head on one text of N tokens, d = 32.

    `Q`, `K`, `V` are float32 (N, 32) and belong to the caller: a change stays in this copy. They carry no
    scale; attention multiplies QKᵀ by 1/√d. `tokens` are the N WordPiece tokens, [CLS] first and [SEP] last.
    `stats` are the numbers of `measures.head_stats`; `character` says in a sentence what they show.
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
    """The stored heads as (layer, head), in order: what `real_head` accepts."""
    return sorted((entry["layer"], entry["head"]) for entry in _record()["heads"])


def real_head(layer: SupportsIndex, head: SupportsIndex) -> Head:
    """Head `head` of layer `layer` of all-MiniLM-L6-v2, both counted from 0; fresh arrays on every call.

    The values were stored in float16; `provenance()` gives the error this makes. Raises ValueError for a head
    that is not stored, naming those that are.
    """
    pair = _stored(layer, head)
    entry = next(e for e in _record()["heads"] if (e["layer"], e["head"]) == pair)
    with np.load(BytesIO(_data("heads.npz"))) as arrays:
        Q, K, V = (part.astype(np.float32) for part in arrays["L{}H{}".format(*pair)])
    return Head(*pair, Q, K, V, _record()["tokens"].split(), dict(entry["stats"]), entry["character"])


def provenance() -> dict[str, Any]:
    """Where the heads come from: model, licence, checksums, text, how they were made, errors, statistics.

    A fresh copy of heads.json.
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
