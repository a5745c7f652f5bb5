"""Block masks for `attention(…, block_mask=)`: which blocks of keys each block of queries sees, and exactly which pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .block_lists import Pairs, Side, build, side
from .tiles import Tiles


class BlockMask:
    """Which query sees which key: a predicate on positions, cut into tiles once for each size of tile.

    Made by `block_mask_of`. batches and heads are 1 where all share the mask.
    """

    def __init__(self, pairs: Pairs, batches: int, heads: int, n_q: int, n_k: int) -> None:
        self.pairs, self.shape = pairs, (batches, heads, n_q, n_k)
        self._cut: dict[tuple[int, int, torch.device], tuple[Tensor, Tensor]] = {}

    def lists(self, tiles: Tiles, device: torch.device, group: int, deterministic: bool) -> list[Tensor]:
        """The sides the kernels need, one after the other: forward; then fused, or queries and keys.

        `group` query heads share a head of keys, whose order of work counts them together.
        """
        sides = [self._rows(tiles.forward[:2], device)]
        if deterministic:
            sides += [self._rows(tiles.queries[:2], device), self._columns(tiles.keys[:2], device, group)]
        else:
            sides += [self._columns(tiles.fused[:2], device, group)]
        return [part for one in sides for part in one]

    def tiles(self, BM: int, BN: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """What each tile is, and the patterns of cut ones (see `block_lists.build`)."""
        key = (BM, BN, device)
        if key not in self._cut:
            self._cut[key] = build(self.pairs, *self.shape, BM, BN, device)
        return self._cut[key]

    def _rows(self, tile: Sequence[int], device: torch.device) -> Side:
        return side(*self.tiles(tile[0], tile[1], device))

    def _columns(self, tile: Sequence[int], device: torch.device, group: int) -> Side:
        kinds, patterns = self.tiles(tile[0], tile[1], device)
        return side(kinds.transpose(2, 3), patterns.transpose(1, 2), group)


def block_mask_of(given: Any, batches: int, heads: int, n_q: int, n_k: int, device: torch.device) -> BlockMask:
    """The block mask that `attention`'s argument means.

    Args:
        given: a `BlockMask`; a boolean tensor or array of blocks, (rows, columns), (heads, rows, columns) or
            (batches, heads, rows, columns), whose block size follows from N; one of the course's masks; or
            FlexAttention's BlockMask.
        batches: of q.
        heads: of q.
        n_q: queries.
        n_k: keys.
        device: where q is.

    Raises:
        TypeError: `given` is none of these, or its blocks are not boolean.
        ValueError: it does not match the batches, heads or lengths.
    """
    if isinstance(given, BlockMask):
        mask = given
    elif hasattr(given, "sees") and hasattr(given, "N"):
        mask = _of_the_course(given)
    elif hasattr(given, "mask_mod") and hasattr(given, "kv_num_blocks"):
        mask = _of_flex(given)
    else:
        mask = _of_blocks(given, n_q, n_k, device)
    _check(mask, batches, heads, n_q, n_k)
    return mask


def _check(mask: BlockMask, batches: int, heads: int, n_q: int, n_k: int) -> None:
    mb, mh, mq, mk = mask.shape
    if (mq, mk) != (n_q, n_k):
        raise ValueError(f"block_mask is for {mq} queries and {mk} keys, q and k have {n_q} and {n_k}")
    if mb not in (1, batches) or mh not in (1, heads):
        raise ValueError(
            f"block_mask is for {mb} batches and {mh} heads; allowed: 1 or {batches}, and 1 or {heads}"
        )


def _of_the_course(given: Any) -> BlockMask:
    def pairs(_: int, __: int, i: Tensor, j: Tensor) -> Tensor:
        seen = given.sees(i.cpu().numpy(), j.cpu().numpy())
        return torch.from_numpy(seen).to(i.device)

    return BlockMask(pairs, 1, 1, given.N, given.N)


def _of_flex(given: Any) -> BlockMask:
    def pairs(batch: int, head: int, i: Tensor, j: Tensor) -> Tensor:
        b, h = torch.tensor(batch, device=i.device), torch.tensor(head, device=i.device)
        return torch.broadcast_to(given.mask_mod(b, h, i, j), torch.broadcast_shapes(i.shape, j.shape))

    batches, heads = given.kv_num_blocks.shape[:2]
    return BlockMask(pairs, batches, heads, *given.seq_lengths)


def _of_blocks(given: Any, n_q: int, n_k: int, device: torch.device) -> BlockMask:
    blocks = torch.as_tensor(given)
    if blocks.dtype != torch.bool:
        raise TypeError(f"block_mask is {str(blocks.dtype).removeprefix('torch.')}; allowed: booleans")
    if not 2 <= blocks.ndim <= 4:
        raise ValueError(f"block_mask has shape {tuple(blocks.shape)}; allowed: (rows, columns), with heads, with batches")
    blocks = blocks.reshape((1,) * (4 - blocks.ndim) + tuple(blocks.shape)).to(device)
    sizes = [s for s in (16, 32, 64, 128, 256) if (-(-n_q // s), -(-n_k // s)) == tuple(blocks.shape[2:])]
    if len(sizes) != 1:
        raise ValueError(
            f"block_mask has {blocks.shape[2]} × {blocks.shape[3]} blocks, which for {n_q} queries and {n_k} keys "
            f"is {'no' if not sizes else 'more than one'} block size of 16, 32, 64, 128, 256; allowed: ⌈N / size⌉ "
            "blocks, or blocks_of_size(blocks, size, n_q, n_k)"
        )
    return blocks_of_size(blocks, sizes[0], n_q, n_k)


def blocks_of_size(blocks: Tensor, size: int, n_q: int, n_k: int) -> BlockMask:
    """The mask of boolean blocks (batches, heads, ⌈n_q/size⌉, ⌈n_k/size⌉)."""
    def pairs(batch: int, head: int, i: Tensor, j: Tensor) -> Tensor:
        return blocks[batch, head][i // size, j // size]

    return BlockMask(pairs, blocks.shape[0], blocks.shape[1], n_q, n_k)
