"""A block mask as the kernels take it: for each tile of queries the tiles of keys it sees, and the other way
round.

A tile is whole, where every pair is seen; or cut, and then a pattern says pair by pair what is seen. Tiles
that nobody sees are not in the lists: they are neither loaded nor computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..guard import library_answer
from .layout import strides

UNSEEN, WHOLE = -2, -1
Pairs = Callable[[int, int, Tensor, Tensor], Tensor]  # (batch, head, i, j) -> seen; i and j broadcast
# (batch, head, first query, last + 1) -> (n_k,): keys that these queries may see; others they do not
Near = Callable[[int, int, int, int], Tensor]


class Side(NamedTuple):
    """The lists of one side: tiles of queries that list keys, or tiles of keys that list queries.

    spans (mb, mh, tiles, 3): where a tile's whole entries begin, where they end and cut ones begin, where
    those end. entries, slots (total,): the other side's tile, and the pattern of a cut one. patterns (cut,
    rows, columns): pair by pair. order (mb, mh, tiles): the tiles, most work first. All are int32, patterns
    uint8.
    """

    spans: Tensor
    entries: Tensor
    slots: Tensor
    patterns: Tensor
    order: Tensor


class Given(NamedTuple):
    """A side as the kernels take it. A mask that all batches or heads share has stride 0 there.

    Strides stand one by one: in a tuple of their own, triton 3.6 loses those that are 1 within a loop.
    """

    spans: Tensor
    spans_batch: int
    spans_head: int
    spans_tile: int
    entries: Tensor
    slots: Tensor
    patterns: Tensor
    pattern_row: int
    pattern_column: int
    order: Tensor
    order_batch: int
    order_head: int


def given(lists: Sequence[Tensor], side: int) -> Given | None:
    """Side number `side` of the lists of all sides, one after the other; None where there are no lists."""
    if not lists:
        return None
    parts = len(Side._fields)
    one = Side(*lists[side * parts : (side + 1) * parts])
    row, column = one.patterns.stride()[1:]
    spans_batch, spans_head, spans_tile = strides(one.spans)
    order_batch, order_head, _ = strides(one.order)
    return Given(
        one.spans, spans_batch, spans_head, spans_tile, one.entries, one.slots,
        one.patterns, row, column, one.order, order_batch, order_head,
    )  # fmt: skip


def sizes_of(lists: Sequence[Tensor], side: int) -> tuple[int, int]:
    """Rows and columns of the tiles that a side was cut into."""
    rows, columns = Side(*lists[side * len(Side._fields) : (side + 1) * len(Side._fields)]).patterns.shape[1:]
    return rows, columns


@library_answer
def build(
    seen: Pairs, near: Near, batches: int, heads: int, n_q: int, n_k: int, BM: int, BN: int,
    device: torch.device,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """What each tile is, (batches, heads, ⌈n_q/BM⌉, ⌈n_k/BN⌉): -2 unseen, -1 whole, else its pattern's
    number; and the patterns, (cut tiles, BM, BN).

    Pairs are asked for one row of tiles at a time, and only in tiles whose keys are `near`: no N × N matrix
    is kept, and little is asked of a sparse mask. Queries past the last one do not make a tile cut: they have
    no weight anywhere.
    """
    rows, columns = -(-n_q // BM), -(-n_k // BN)
    kinds = torch.full((batches, heads, rows, columns), UNSEEN, dtype=torch.int32, device=device)
    patterns = [torch.zeros((0, BM, BN), dtype=torch.uint8, device=device)]
    count = 0
    for batch, head, row in itertools.product(range(batches), range(heads), range(rows)):
        i = torch.arange(row * BM, (row + 1) * BM, device=device)[:, None]
        keys = near(batch, head, row * BM, min((row + 1) * BM, n_q)).to(device)
        some = torch.nn.functional.pad(keys, (0, columns * BN - n_k)).reshape(columns, BN).any(1).nonzero()
        j = (some * BN + torch.arange(BN, device=device)).reshape(1, -1)
        pairs = seen(batch, head, i.clamp(max=n_q - 1), j.clamp(max=n_k - 1)) & (j < n_k)
        tiles = pairs.expand(BM, j.shape[1]).reshape(BM, len(some), BN).transpose(0, 1)  # (some, BM, BN)
        exists = (i < n_q)[None]
        hit, whole = (tiles & exists).flatten(1).any(1), (tiles | ~exists).flatten(1).all(1)
        cut = hit & ~whole
        found = int(cut.sum())
        here = torch.full((len(some),), UNSEEN, dtype=torch.int32, device=device)
        here[hit & whole] = WHOLE
        here[cut] = torch.arange(count, count + found, dtype=torch.int32, device=device)
        kinds[batch, head, row, some[:, 0]] = here
        patterns.append((tiles & exists)[cut].to(torch.uint8))
        count += found
    return kinds, torch.cat(patterns)


@library_answer
def side(kinds: Tensor, patterns: Tensor, heads_together: int = 1) -> Side:
    """Lists for the rows of `kinds` (batches, heads, rows, columns).

    The order of rows goes by the work of `heads_together` heads, which one program does one after the other.
    """
    heads, columns = kinds.shape[1], kinds.shape[3]
    order_of_kinds = torch.where(kinds == WHOLE, 0, torch.where(kinds == UNSEEN, 2, 1))
    ranked = torch.sort(order_of_kinds, dim=-1, stable=True).indices  # whole, then cut, then unseen
    whole, cut = (kinds == WHOLE).sum(-1), (kinds >= 0).sum(-1)  # (batches, heads, rows)
    work = whole + cut
    ends = work.flatten().cumsum(0).reshape(work.shape)
    spans = torch.stack([ends - work, ends - cut, ends], dim=-1).to(torch.int32)
    listed = torch.arange(columns, device=kinds.device) < work[..., None]
    entries = ranked[listed].to(torch.int32)
    slots = torch.gather(kinds, -1, ranked)[listed].clamp(min=0).to(torch.int32)
    shared = work.unflatten(1, (-1, heads_together if heads > 1 else 1)).sum(2)
    order = torch.sort(shared, dim=-1, descending=True, stable=True).indices.to(torch.int32)
    return Side(spans, entries, slots, patterns, order)
