"""Block masks for `attention(…, block_mask=)`: which query sees which key, cut into tiles once for each size
of tile; and their lists, for each tile of queries the tiles of keys it sees, and the other way round.

A tile is whole, where every pair is seen; or cut, and then a pattern says pair by pair what is seen. Tiles
that nobody sees are not in the lists: they are neither loaded nor computed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ...guard import library_answer
from .tiles import Tiles
from .visibility import Side

UNSEEN, WHOLE = -2, -1
Pairs = Callable[[int, int, Tensor, Tensor], Tensor]  # (batch, head, i, j) -> seen; i and j broadcast
# (batch, head, first query, last + 1) -> (n_k,): keys that these queries may see; others they do not
Near = Callable[[int, int, int, int], Tensor]

_FLEX_TENSORS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
SIZES = (16, 32, 64, 128, 256)
SMALLEST = 64


class TiledMask:
    """Which query sees which key: a predicate on positions, and its tiles. Made by `tiled_mask`.

    Attributes:
        shape: (batches, heads, queries, keys); batches and heads are 1 where all share the mask.
    """

    def __init__(
        self, seen: Pairs, near: Near, shape: tuple[int, int, int, int], blocks: tuple[int, int] | None
    ) -> None:
        """blocks: queries and keys of the blocks that the mask is made of, if it is."""
        self.shape = shape
        self._seen, self._near, self._blocks = seen, near, blocks
        self._cut: dict[tuple[int, int, torch.device], tuple[Tensor, Tensor]] = {}
        self._sides: dict[tuple[Any, ...], Side] = {}

    def tiles(self, BM: int, BN: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """What each tile of BM queries by BN keys is, and patterns of cut ones: see `build`."""
        key = (BM, BN, device)
        if key not in self._cut:
            self._cut[key] = build(self._seen, self._near, *self.shape, BM, BN, device)
        return self._cut[key]

    def lists(self, tiles: Tiles, device: torch.device, group: int, deterministic: bool) -> list[Tensor]:
        """The sides that the kernels need, one after the other: forward; then fused, or queries and keys.

        `group` query heads share a head of keys, whose order of work counts them together.
        """
        sides = [self._side(tiles.forward[:2], device, 0)]
        if deterministic:
            sides += [self._side(tiles.queries[:2], device, 0), self._side(tiles.keys[:2], device, group)]
        else:
            sides += [self._side(tiles.fused[:2], device, group)]
        return [part for one in sides for part in one]

    def _side(self, tile: Sequence[int], device: torch.device, group: int) -> Side:
        """Tiles of queries that list keys; with a group, tiles of keys that list queries."""
        BM, BN = (tile[0], tile[1]) if self._blocks is None else within_blocks(tile, self._blocks)
        key = (BM, BN, device, group)
        if key not in self._sides:
            kinds, patterns = self.tiles(BM, BN, device)
            turned = (kinds.transpose(2, 3), patterns.transpose(1, 2), group)
            self._sides[key] = side_of(*turned) if group else side_of(kinds, patterns)
        return self._sides[key]


def within_blocks(tile: Sequence[int], blocks: tuple[int, int]) -> tuple[int, int]:
    """BM and BN of a tile no larger than a block of so many queries and keys: a larger one is cut by many
    blocks and skips few. But no smaller than 64, below which more is lost than saved.
    """
    BM, BN = (min(size, max(SMALLEST, _floor(block))) for size, block in zip(tile, blocks, strict=True))
    return BM, BN


def _floor(n: int) -> int:
    """The power of two at or below n."""
    return 1 << (n.bit_length() - 1)


# What masks were made of, so that a mask given twice is cut once. A tensor changed in place is cut again.
_made: WeakIdKeyDictionary = WeakIdKeyDictionary()


def tiled_mask(mask: Any, q: Tensor, k: Tensor, *, block: int | None = None) -> TiledMask:
    """The block mask that `mask` means for q and k, to be used as often as there are layers.

    Args:
        mask: a boolean tensor or array of blocks, (rows, columns), (H, rows, columns) or (B, H, rows,
            columns); one of `iocourse.masks`; FlexAttention's BlockMask; or what this function made.
        q: (B, H, Nq, d).
        k: (B, H_kv, Nk, d).
        block: queries, and keys, in a block of a boolean tensor. None: the one of 16, 32, 64, 128 or 256 that
            gives so many blocks; where more than one does (a short N), say which.

    Raises:
        TypeError: `mask` is none of these, or its blocks are not boolean.
        ValueError: it does not match the batches, heads or lengths.
    """
    made = mask if isinstance(mask, TiledMask) else _remembered(mask, q, k, block)
    mb, mh, n_q, n_k = made.shape
    if (n_q, n_k) != (q.shape[2], k.shape[2]):
        raise ValueError(
            f"block_mask is for {n_q} queries and {n_k} keys, q has {q.shape[2]} and k {k.shape[2]}; "
            "allowed: the same numbers"
        )
    if mb not in (1, q.shape[0]) or mh not in (1, q.shape[1]):
        raise ValueError(
            f"block_mask is for {mb} batches and {mh} heads; allowed: 1 or {q.shape[0]}, and 1 or "
            f"{q.shape[1]}"
        )
    return made


def _remembered(mask: Any, q: Tensor, k: Tensor, block: int | None) -> TiledMask:
    state = _state(mask)
    if state is None:
        return _make(mask, q, k, block)
    key = (q.shape[2], k.shape[2], q.device, block, state)
    known: dict[Any, TiledMask] = _made.setdefault(mask, {})
    if key not in known:
        known.clear()
        known[key] = _make(mask, q, k, block)
    return known[key]


def _state(mask: Any) -> tuple[int, ...] | None:
    """A number for each change in place of a mask's tensors; None where changes cannot be seen, as in NumPy's
    arrays and in tensors of torch.inference_mode: those are cut anew each time.
    """
    if hasattr(mask, "sees"):
        return ()
    parts = [mask] if isinstance(mask, Tensor) else [getattr(mask, name, None) for name in _FLEX_TENSORS]
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if not tensors or any(part.is_inference() for part in tensors):
        return None
    return tuple(part._version for part in tensors)


def _make(mask: Any, q: Tensor, k: Tensor, block: int | None) -> TiledMask:
    if hasattr(mask, "sees") and hasattr(mask, "N"):
        return _of_the_course(mask)
    if hasattr(mask, "mask_mod") and hasattr(mask, "kv_num_blocks"):
        return _of_flex(mask, q.device)
    return _of_blocks(mask, q.shape[2], k.shape[2], q.device, block)


def _of_the_course(mask: Any) -> TiledMask:
    def seen(_: int, __: int, i: Tensor, j: Tensor) -> Tensor:
        return torch.from_numpy(mask.sees(i.cpu().numpy(), j.cpu().numpy())).to(i.device)

    def near(_: int, __: int, start: int, stop: int) -> Tensor:
        keys = torch.zeros(mask.N, dtype=torch.bool)
        for begin, end in mask.columns(start, stop):
            keys[begin:end] = True
        return keys

    blocks = (mask.Br, mask.Bc) if hasattr(mask, "Br") else None
    return TiledMask(seen, near, (1, 1, mask.N, mask.N), blocks)


def _of_flex(mask: Any, device: torch.device) -> TiledMask:
    came = mask.kv_num_blocks.device
    if came.type != device.type:
        raise ValueError(f"block_mask is on {came}, q on {device}; allowed: one device for both")

    by_pair = _dense(mask.kv_num_blocks, mask.kv_indices)
    none = torch.zeros_like(by_pair)
    whole = none if mask.full_kv_indices is None else _dense(mask.full_kv_num_blocks, mask.full_kv_indices)
    rows, columns = mask.BLOCK_SIZE

    def seen(batch: int, head: int, i: Tensor, j: Tensor) -> Tensor:
        b, h = torch.tensor(batch, device=i.device), torch.tensor(head, device=i.device)
        at = (i // rows, j // columns)
        return whole[batch, head][at] | (by_pair[batch, head][at] & mask.mask_mod(b, h, i, j))

    n_q, n_k = mask.seq_lengths
    near = _near(whole | by_pair, rows, columns, n_k)
    return TiledMask(seen, near, (*by_pair.shape[:2], n_q, n_k), (rows, columns))


def _near(blocks: Tensor, rows: int, columns: int, n_k: int) -> Near:
    """Keys in blocks that some of the queries see; blocks (batches, heads, …) of rows queries by columns
    keys.
    """

    def near(batch: int, head: int, start: int, stop: int) -> Tensor:
        hit = blocks[batch, head][start // rows : -(-stop // rows)].any(0)
        return hit.repeat_interleave(columns)[:n_k]

    return near


def _dense(counts: Tensor, indices: Tensor) -> Tensor:
    """Which blocks each row lists, (batches, heads, rows, columns): the first `counts` of `indices`."""
    columns = indices.shape[-1]
    listed = torch.arange(columns, device=indices.device) < counts[..., None]
    hit = torch.zeros((*indices.shape[:-1], columns + 1), dtype=torch.bool, device=indices.device)
    # What is not listed goes to a column of its own, which is dropped.
    return hit.scatter(-1, torch.where(listed, indices, columns).long(), True)[..., :columns]


def _of_blocks(mask: Any, n_q: int, n_k: int, device: torch.device, block: int | None) -> TiledMask:
    if not isinstance(mask, (Tensor, np.ndarray, list, tuple)):
        raise TypeError(
            f"block_mask is a {type(mask).__name__}; allowed: booleans for blocks, one of iocourse.masks, "
            "FlexAttention's BlockMask"
        )
    try:
        blocks = torch.as_tensor(np.asarray(mask) if isinstance(mask, (list, tuple)) else mask)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"block_mask is no array of numbers ({error}); allowed: booleans for blocks"
        ) from None
    if blocks.dtype != torch.bool:
        raise TypeError(f"block_mask is {str(blocks.dtype).removeprefix('torch.')}; allowed: booleans")
    if not 2 <= blocks.ndim <= 4:
        raise ValueError(
            f"block_mask has shape {tuple(blocks.shape)}; allowed: (rows, columns), (H, rows, columns) or "
            "(B, H, rows, columns)"
        )
    blocks = blocks.reshape((1,) * (4 - blocks.ndim) + tuple(blocks.shape)).to(device, copy=True)
    size = _block_size(tuple(blocks.shape[2:]), n_q, n_k, block)

    def seen(batch: int, head: int, i: Tensor, j: Tensor) -> Tensor:
        return blocks[batch, head][i // size, j // size]

    shape = (blocks.shape[0], blocks.shape[1], n_q, n_k)
    return TiledMask(seen, _near(blocks, size, size, n_k), shape, (size, size))


def _block_size(shape: tuple[int, ...], n_q: int, n_k: int, block: int | None) -> int:
    sizes = [size for size in SIZES if (-(-n_q // size), -(-n_k // size)) == shape]
    if block is not None:
        if block not in SIZES:
            raise ValueError(f"block is {block!r}; allowed: None, {', '.join(map(str, SIZES))}")
        sizes = [size for size in sizes if size == block]
    if len(sizes) == 1:
        return sizes[0]
    wanted = f"blocks of {block}" if block else "blocks of 16, 32, 64, 128 or 256"
    many = " and ".join(map(str, sizes))
    raise ValueError(
        f"block_mask has {shape[0]} × {shape[1]} blocks for {n_q} queries and {n_k} keys; allowed: "
        + (
            f"⌈N / block⌉ each way, with {wanted}"
            if not sizes
            else f"say which: tiled_mask(…, block=) is {many}"
        )
    )


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
def side_of(kinds: Tensor, patterns: Tensor, heads_together: int = 1) -> Side:
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
