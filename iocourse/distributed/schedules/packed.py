"""Packed sequences on several ranks: sequences of different lengths, attention only within each of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from ..layouts import check_lengths
from ..partial_attention import Array, attend, merge
from ..rank import Rank
from .registry import rank_schedule


@rank_schedule(pass_="packed", regime="any layout in ranges", source="derived here, after Zeppelin")
def packed(me: Rank, Q: Array, K: Array, V: Array, *, texts: Sequence[int]) -> tuple[Array, Array]:
    """Return (O, LSE) with a causal mask within each sequence; `texts` are the lengths of the sequences.

    A sequence that one rank owns moves no words. For the others a rank receives the keys that its own rows
    attend to, directly from their owners, one owner after the other. Raises ValueError if the lengths do not
    sum to the number of rows.
    """
    owned = [me.rows(rank) for rank in range(me.size)]
    texts = check_lengths(texts, sum(map(len, owned)))
    rows = owned[me.rank]
    o, L = attend(Q, K[:0], V[:0])
    for text in pairwise(accumulate(texts, initial=0)):
        owners = {rank: slice(*np.searchsorted(own, text)) for rank, own in enumerate(owned)}
        mine = owners.pop(me.rank)
        if mine.start == mine.stop:
            continue
        others = [rank for rank, part in owners.items() if part.start < part.stop]
        for rank in others:
            n = count_up_to(rows[mine], owned[rank][owners[rank]][-1])
            if n:
                me.send(rank, K=K[mine][:n], V=V[mine][:n])
        q, at = Q[mine], rows[mine]
        part = attend(q, K[mine], V[mine], rows=at, cols=at)
        for rank in others:
            cols = owned[rank][owners[rank]]
            cols = cols[: count_up_to(cols, at[-1])]
            if len(cols):
                k, v = me.recv(rank, "K", "V")
                part = merge(*part, *attend(q, k, v, rows=at, cols=cols))
        o[mine], L[mine] = part
    return o, L


def count_up_to(rows: np.ndarray, last: int) -> int:
    """Count the entries of the sorted array `rows` that are at most `last`."""
    return int(np.searchsorted(rows, last, side="right"))
