"""Which queries see which keys, in the ways the kernels know: a band, lists of tiles, packed sequences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from ..jit_helpers import Seeing, Shape, Starts
from .tile_table import SlicedTile, Tile


class Band(NamedTuple):
    """Query i sees key j where low ≤ j - i ≤ high; None: no limit on that side."""

    low: int | None
    high: int | None

    @property
    def limits(self) -> Seeing:
        """What a kernel that knows bands alone is compiled for."""
        return Seeing(self.low is not None, self.high is not None)


class Packed(NamedTuple):
    """Sequences of any lengths, one behind the other along N of a batch of 1.

    cu_q, cu_k (sequences + 1,) int32: where each begins, and the end. longest_q, longest_k: rows of the
    longest. lower_right: the band counts from a diagonal that ends in each sequence's own last pair. tail:
    there may be rows past the last sequence, which no program writes.
    """

    cu_q: Tensor
    cu_k: Tensor
    longest_q: int
    longest_k: int
    lower_right: bool
    tail: bool = False


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


class View(NamedTuple):
    """What a launch is told of the pairs it is to see, and how its programs share them.

    cu, shape, and n_q, n_k, low and high, 0 where there is no such limit: a kernel's arguments.
    """

    tile: Tile | SlicedTile
    programs: int
    seen: Seeing
    cu: Starts | None
    shape: Shape
    numbers: tuple[int, int, int, int]


class Seen(NamedTuple):
    """A band, for each sequence if they are packed; or the lists of a block mask (see `TiledMask.lists`)."""

    band: Band
    lists: Sequence[Tensor] = ()
    packed: Packed | None = None

    def by_queries(self, q: Tensor, k: Tensor, tile: Tile | SlicedTile, side: int) -> View:
        """For programs that have BM queries each; `side`: number of the lists' side they go by.

        For a block mask the tile has the sizes that this side was cut for: a mask is cut in the forward pass,
        and the table may have been changed by hand before the backward pass.
        """
        if self.lists:
            BM, BN = sizes_of(self.lists, side)
            tile = tile._replace(BM=BM, BN=BN)
        return self._view(q, k, tile, q.shape[1], *self.tiles_of_queries(q, tile.BM))

    def by_keys(self, q: Tensor, k: Tensor, tile: Tile | SlicedTile, side: int) -> View:
        """For programs that have BN keys each."""
        if self.lists:
            BN, BM = sizes_of(self.lists, side)
            tile = tile._replace(BM=BM, BN=BN)
        batches, longest = k.shape[0], k.shape[2]
        if self.packed is not None:
            batches, longest = len(self.packed.cu_k) - 1, self.packed.longest_k
        view = self._view(q, k, tile, k.shape[1], batches, -(-longest // tile.BN))
        # Only these load queries tile by tile, and can leave out a check of the last rows.
        ragged = self.packed is not None or q.shape[2] % tile.BM != 0
        return view._replace(seen=view.seen._replace(RAGGED_Q=ragged))

    def tiles_of_queries(self, q: Tensor, BM: int) -> tuple[int, int]:
        """Batches or sequences, and tiles of BM queries in the longest."""
        if self.packed is None:
            return q.shape[0], -(-q.shape[2] // BM)
        return len(self.packed.cu_q) - 1, -(-self.packed.longest_q // BM)

    def _view(
        self, q: Tensor, k: Tensor, tile: Tile | SlicedTile, heads: int, batches: int, tiles: int
    ) -> View:  # fmt: skip
        n_q, n_k, packed = q.shape[2], k.shape[2], self.packed
        seen = self.band.limits._replace(
            LISTED=bool(self.lists),
            PACKED=packed is not None,
            LOWER_RIGHT=packed is not None and packed.lower_right,
            # In packed sequences nobody can rule out that a last tile passes the end.
            RAGGED_K=packed is not None or n_k % tile.BN != 0,
        )
        return View(
            tile, batches * heads * tiles, seen,
            None if packed is None else Starts(packed.cu_q, packed.cu_k),
            Shape(tiles, heads, q.shape[1] // max(1, k.shape[1]), q.shape[3]),
            (n_q, n_k, self.band.low or 0, self.band.high or 0),
        )  # fmt: skip


def sizes_of(lists: Sequence[Tensor], side: int) -> tuple[int, int]:
    """Rows and columns of the tiles that a side was cut into."""
    rows, columns = Side(*lists[side * len(Side._fields) : (side + 1) * len(Side._fields)]).patterns.shape[1:]
    return rows, columns


def packed_of(
    q: Tensor, k: Tensor, cu: Sequence[Tensor], longest: tuple[int, int], lower_right: bool
) -> Packed:  # fmt: skip
    """Packed sequences from cu_q and cu_k. They are checked where that is free, on the CPU, and where the
    longest lengths are not given (-1).

    Raises:
        ValueError: a cu does not rise from 0 to the number of rows; `longest` is too small, or more than
            there are rows.
    """
    (cu_q, cu_k), rows, given = cu, (q.shape[2], k.shape[2]), min(longest) >= 0
    if longest[0] > rows[0] or longest[1] > rows[1]:
        raise ValueError(f"longest is {longest}; allowed: at most {rows}, the rows of q and k")
    if given and cu_q.device.type != "cpu":
        return Packed(cu_q, cu_k, *longest, lower_right, tail=True)
    starts = torch.stack([cu_q, cu_k]).tolist()  # the one place where a GPU is waited for
    found = (
        _longest("cu_q", starts[0], rows[0], fewer=given),
        _longest("cu_k", starts[1], rows[1], fewer=given),
    )
    if given and (found[0] > longest[0] or found[1] > longest[1]):
        raise ValueError(f"longest is {longest}; allowed: at least {found}, the longest of cu_q and of cu_k")
    tail = (starts[0][-1], starts[1][-1]) != rows
    return Packed(cu_q, cu_k, *(longest if given else found), lower_right, tail)


def _longest(name: str, cu: Sequence[int], rows: int, fewer: bool) -> int:
    lengths = [after - before for before, after in pairwise(cu)]
    if cu[0] != 0 or cu[-1] > rows or (cu[-1] < rows and not fewer):
        raise ValueError(
            f"{name} goes from {cu[0]} to {cu[-1]}; allowed: from 0 to {rows}, the rows there are"
            + (", or fewer" if fewer else "")
        )
    for at, length in enumerate(lengths):
        if length < 0:
            raise ValueError(
                f"{name} falls from {cu[at]} to {cu[at + 1]} at {at + 1}; allowed: rising numbers"
            )
    return max(lengths, default=0)
