"""Visible pairs of queries and keys as launches use them: a band, packed sequences, or lists of tiles.

`VisiblePairs` has one of the three forms, and makes from it the arguments and the grid of a launch. The lists
are made from a block mask (see `masks`): the tiles of keys for each tile of queries, and the reverse. Empty
tiles are not in the lists, so they are neither loaded nor computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..jit_helpers import MaskKind, Shape, Starts
from .choices import SlicedTileConfig, TileConfig


class Band(NamedTuple):
    """A band: query i attends to key j if low ≤ j - i ≤ high. None: no limit on that side."""

    low: int | None
    high: int | None

    @property
    def limits(self) -> MaskKind:
        """The compile-time `MaskKind` of a kernel that supports only bands."""
        return MaskKind(self.low is not None, self.high is not None)


class Packed(NamedTuple):
    """Packed sequences of any lengths, concatenated along N in a batch of 1.

    cu_q, cu_k (sequences + 1,) int32: the first row of each, and the end of the last. longest_q, longest_k:
    rows of the longest. lower_right: the band is relative to the diagonal that ends in each sequence's last
    pair. tail: there may be rows past the last sequence, which no program writes.
    """

    cu_q: Tensor
    cu_k: Tensor
    longest_q: int
    longest_k: int
    lower_right: bool
    tail: bool = False


class Side(NamedTuple):
    """Lists of one side of a block mask: tiles of queries that list keys, or tiles of keys that list queries.

    spans (mb, mh, tiles, 3): for each tile, the first full entry, the first partial entry, and the end.
    entries, slots (total,): the other side's tile, and the pattern of a partial tile. patterns (partial
    tiles, rows, columns): visible pairs. order (mb, mh, tiles): the tiles, most work first. All are int32,
    except patterns, uint8.
    """

    spans: Tensor
    entries: Tensor
    slots: Tensor
    patterns: Tensor
    order: Tensor


class View(NamedTuple):
    """Arguments of a launch that describe its visible pairs and its grid.

    tile, programs: the tile and the number of programs. mask: compile-time description of the pairs. cu:
    starts of packed sequences. shape: the grid. numbers: n_q, n_k, low and high (0 if there is no limit).
    """

    tile: TileConfig | SlicedTileConfig
    programs: int
    mask: MaskKind
    cu: Starts | None
    shape: Shape
    numbers: tuple[int, int, int, int]


class VisiblePairs(NamedTuple):
    """The visible pairs of a call: a band, which applies to each sequence if they are packed, or the lists of
    a block mask (see `TiledMask.lists`).
    """

    band: Band
    lists: Sequence[Tensor] = ()
    packed: Packed | None = None

    @staticmethod
    def all() -> VisiblePairs:
        """Every query attends to every key."""
        return VisiblePairs(Band(None, None))

    def by_queries(self, q: Tensor, k: Tensor, tile: TileConfig | SlicedTileConfig, side: int) -> View:
        """Return the `View` of programs with BM queries each; `side`: index of their side in the lists.

        For a block mask the tile has the sizes of this side, because the mask is split into tiles in the
        forward pass, and `using` may have changed the choice before the backward pass.
        """
        if self.lists:
            BM, BN = sizes_of(self.lists, side)
            tile = tile._replace(BM=BM, BN=BN)
        return self._view(q, k, tile, q.shape[1], *self.tiles_of_queries(q, tile.BM))

    def by_keys(self, q: Tensor, k: Tensor, tile: TileConfig | SlicedTileConfig, side: int) -> View:
        """Return the `View` of programs with BN keys each; `side`: index of their side in the lists."""
        if self.lists:
            BN, BM = sizes_of(self.lists, side)
            tile = tile._replace(BM=BM, BN=BN)
        batches, longest = k.shape[0], k.shape[2]
        if self.packed is not None:
            batches, longest = len(self.packed.cu_k) - 1, self.packed.longest_k
        view = self._view(q, k, tile, k.shape[1], batches, -(-longest // tile.BN))
        # Only these programs stream queries, and can omit the bounds check of the last rows.
        ragged = self.packed is not None or q.shape[2] % tile.BM != 0
        return view._replace(mask=view.mask._replace(RAGGED_Q=ragged))

    def tiles_of_queries(self, q: Tensor, BM: int) -> tuple[int, int]:
        """Return the number of batches or sequences, and of tiles of BM queries in the longest."""
        if self.packed is None:
            return q.shape[0], -(-q.shape[2] // BM)
        return len(self.packed.cu_q) - 1, -(-self.packed.longest_q // BM)

    def _view(
        self, q: Tensor, k: Tensor, tile: TileConfig | SlicedTileConfig, heads: int, batches: int, tiles: int
    ) -> View:  # fmt: skip
        n_q, n_k, packed = q.shape[2], k.shape[2], self.packed
        mask = self.band.limits._replace(
            LISTED=bool(self.lists),
            PACKED=packed is not None,
            LOWER_RIGHT=packed is not None and packed.lower_right,
            # The last tile of a packed sequence may always be partly out of bounds.
            RAGGED_K=packed is not None or n_k % tile.BN != 0,
        )
        return View(
            tile, batches * heads * tiles, mask,
            None if packed is None else Starts(packed.cu_q, packed.cu_k),
            Shape(tiles, heads, q.shape[1] // max(1, k.shape[1]), q.shape[3]),
            (n_q, n_k, self.band.low or 0, self.band.high or 0),
        )  # fmt: skip


def sizes_of(lists: Sequence[Tensor], side: int) -> tuple[int, int]:
    """Return the rows and columns of the tiles of side number `side`."""
    rows, columns = Side(*lists[side * len(Side._fields) : (side + 1) * len(Side._fields)]).patterns.shape[1:]
    return rows, columns


def packed_of(
    q: Tensor, k: Tensor, cu: Sequence[Tensor], longest: tuple[int, int], lower_right: bool
) -> Packed:  # fmt: skip
    """Return packed sequences from cu_q and cu_k. These are checked on the CPU, where it needs no
    synchronisation, and if the longest lengths are not given (-1).

    Raises:
        ValueError: cu_q or cu_k does not rise from 0 to the number of rows; `longest` is too small.
    """
    (cu_q, cu_k), rows, given = cu, (q.shape[2], k.shape[2]), min(longest) >= 0
    # A bound above the number of rows would only add programs without rows, or overflow 32 bits.
    longest = min(longest[0], rows[0]), min(longest[1], rows[1])
    if given and cu_q.device.type != "cpu":
        return Packed(cu_q, cu_k, *longest, lower_right, tail=True)
    starts = torch.stack([cu_q, cu_k]).tolist()  # the only synchronisation with the GPU
    found = (
        _longest("cu_q", starts[0], rows[0], fewer=given),
        _longest("cu_k", starts[1], rows[1], fewer=given),
    )
    if given and (found[0] > longest[0] or found[1] > longest[1]):
        raise ValueError(f"longest must be at least {found}, from cu_q and cu_k, got {longest}")
    tail = (starts[0][-1], starts[1][-1]) != rows
    return Packed(cu_q, cu_k, *(longest if given else found), lower_right, tail)


def _longest(name: str, cu: Sequence[int], rows: int, fewer: bool) -> int:
    lengths = [after - before for before, after in itertools.pairwise(cu)]
    if cu[0] != 0 or cu[-1] > rows or (cu[-1] < rows and not fewer):
        raise ValueError(
            f"{name} goes from {cu[0]} to {cu[-1]}, but must go from 0 to {rows}, the number of rows"
            + (", or fewer" if fewer else "")
        )
    for at, length in enumerate(lengths):
        if length < 0:
            raise ValueError(
                f"{name} must not decrease, but falls from {cu[at]} to {cu[at + 1]} at index {at + 1}"
            )
    return max(lengths, default=0)
