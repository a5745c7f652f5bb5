"""Which queries see which keys, in the ways the kernels know: a band, lists of tiles, packed sequences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from .band import Band
from .block_lists import sizes_of
from .tiles import Tile


class Packed(NamedTuple):
    """Sequences of any lengths, one behind the other along N of a batch of 1.

    cu_q, cu_k (sequences + 1,) int32: where each begins, and the end. longest_q, longest_k: rows of the
    longest. lower_right: the band counts from a diagonal that ends in each sequence's own last pair.
    """

    cu_q: Tensor
    cu_k: Tensor
    longest_q: int
    longest_k: int
    lower_right: bool


class Seen(NamedTuple):
    """A band; or the lists of a block mask (see `TiledMask.lists`); in packed sequences a band
    for each.
    """

    band: Band
    lists: Sequence[Tensor] = ()
    packed: Packed | None = None

    def queries(self, q: Tensor, BM: int) -> tuple[int, int]:
        """Batches or sequences, and tiles of BM queries in the longest."""
        if self.packed is None:
            return q.shape[0], -(-q.shape[2] // BM)
        return len(self.packed.cu_q) - 1, -(-self.packed.longest_q // BM)

    def keys(self, k: Tensor, BN: int) -> tuple[int, int]:
        """Batches or sequences, and tiles of BN keys in the longest."""
        if self.packed is None:
            return k.shape[0], -(-k.shape[2] // BN)
        return len(self.packed.cu_k) - 1, -(-self.packed.longest_k // BN)

    def tile(self, tile: Tile, side: int, *, columns: bool = False) -> Tile:
        """The tile, with the sizes that side number `side` of the lists was cut for: a mask is cut in the
        forward pass, and the table may have been changed by hand before the backward pass.
        """
        if not self.lists:
            return tile
        BM, BN = sizes_of(self.lists, side)
        return tile._replace(BM=BN, BN=BM) if columns else tile._replace(BM=BM, BN=BN)

    @property
    def starts(self) -> tuple[Tensor | None, Tensor | None]:
        """cu_q and cu_k, None where there is one sequence a batch."""
        return (None, None) if self.packed is None else (self.packed.cu_q, self.packed.cu_k)

    def ragged(self, n: int, block: int) -> bool:
        """Whether a last tile passes the end, which in packed sequences nobody can rule out."""
        return self.packed is not None or n % block != 0

    @property
    def flags(self) -> dict[str, bool]:
        """What a kernel is compiled for."""
        return {
            **self.band.flags,
            "LISTED": bool(self.lists),
            "PACKED": self.packed is not None,
            "LOWER_RIGHT": self.packed is not None and self.packed.lower_right,
        }


def packed_of(
    q: Tensor, k: Tensor, cu: Sequence[Tensor], longest: tuple[int, int], lower_right: bool
) -> Packed | None:  # fmt: skip
    """Packed sequences from cu_q and cu_k, which are checked unless the longest lengths are given (-1 where
    they are not); None where there are no cu.

    Raises:
        ValueError: a cu does not rise from 0 to the number of rows.
    """
    if not cu:
        return None
    cu_q, cu_k = cu
    if min(longest) < 0:
        starts = torch.stack([cu_q, cu_k]).tolist()  # the one place where a GPU is waited for
        longest = _longest("cu_q", starts[0], q.shape[2]), _longest("cu_k", starts[1], k.shape[2])
    return Packed(cu_q, cu_k, *longest, lower_right)


def _longest(name: str, cu: Sequence[int], rows: int) -> int:
    lengths = [after - before for before, after in pairwise(cu)]
    if cu[0] != 0 or cu[-1] != rows:
        raise ValueError(
            f"{name} goes from {cu[0]} to {cu[-1]}; allowed: from 0 to {rows}, the rows there are"
        )
    for at, length in enumerate(lengths):
        if length < 0:
            raise ValueError(
                f"{name} falls from {cu[at]} to {cu[at + 1]} at {at + 1}; allowed: rising numbers"
            )
    return max(lengths, default=0)
