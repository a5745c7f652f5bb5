"""Block masks, `attention(…, block_mask=)`: evaluate a mask once, and store the result as tiles.

A tile is full (every pair is visible), empty (no pair is), or partial with a pattern for each pair. The masks
are predicates and BlockMasks as of FlexAttention, those of `iocourse.masks`, and booleans for blocks.
`side_of` makes the lists that the kernels read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .choices import Case, tile
from .ranges import Side

UNSEEN, WHOLE, BY_PAIR = -2, -1, 0
# (batch, head, i, j, kinds of the pairs' blocks) -> visible, for pairs in blocks of kind BY_PAIR
Evaluate = Callable[[int, int, Tensor, Tensor, Tensor], Tensor]
SIZES = (16, 32, 64, 128, 256)
SMALLEST_TILE = 64
KEPT = (128, 128)  # tile size in which an evaluated mask is stored


class Source(NamedTuple):
    """A mask before it is split into tiles: blocks that are WHOLE, UNSEEN, or evaluated for each pair."""

    kinds: Tensor  # (batches, heads, rows, columns) int32
    block: tuple[int, int]  # queries and keys
    evaluate: Evaluate


def with_values(x: Tensor) -> torch.device:
    """Return the device on which a mask for x is evaluated: x's own, or the CPU for a meta tensor."""
    return torch.device("cpu") if x.is_meta else x.device


@dataclass(frozen=True, eq=False, repr=False)
class TiledMask:
    """A block mask as tiles: an immutable value, made by `tiled_mask`, without a reference to its source.

    Two masks are equal if their shapes are equal and the same pairs are visible. A mask can be pickled and
    used in any number of calls; it is split into tiles once for each tile size.

    Attributes:
        kind: the source, as the name of a predicate or class, or the size of blocks.
        shape: (batches, heads, queries, keys); batches and heads are 1 if all share the mask.
    """

    kind: str
    shape: tuple[int, int, int, int]
    _kinds: Tensor  # as returned by `build`; undefined past the last query and key
    _patterns: Tensor
    _blocks: tuple[int, int] | None  # queries and keys of the blocks that the mask consists of, if it does
    _cut: dict[Any, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)
    _sides: dict[Any, Side] = field(default_factory=dict, init=False)

    def __repr__(self) -> str:
        return "TiledMask({}: B={}, H={}, Nq={}, Nk={})".format(self.kind, *self.shape)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TiledMask):
            return NotImplemented
        BM, BN = self._patterns.shape[1:]
        both = (mask.tiles(BM, BN, torch.device("cpu")) for mask in (self, other))
        return self.shape == other.shape and all(map(torch.equal, *both))

    def __hash__(self) -> int:
        return hash(self.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        return TiledMask, (self.kind, self.shape, self._kinds, self._patterns, self._blocks)

    def tiles(self, BM: int, BN: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return the kind of each tile of BM queries by BN keys, and the patterns of partial tiles, on a
        device (see `build`).
        """
        key = (BM, BN, device)
        if key not in self._cut:
            kinds, patterns = self._kinds.to(device), self._patterns.to(device)
            rows, columns = patterns.shape[1:]

            def evaluate(_: int, __: int, i: Tensor, j: Tensor, slots: Tensor) -> Tensor:
                at = slots.clamp(min=0).long() * (rows * columns) + i % rows * columns + j % columns
                return patterns.take(at).bool() if len(patterns) else slots < UNSEEN

            if (rows, columns) != (BM, BN) or self.shape[3] % BN:
                kinds, patterns = build(Source(kinds, (rows, columns), evaluate), *self.shape[2:], BM, BN)
            self._cut[key] = kinds, patterns
        return self._cut[key]

    def lists(self, case: Case, device: torch.device, deterministic: bool) -> list[Tensor]:
        """Return the sides that the kernels of a case need, concatenated: forward, then fused, or queries and
        keys. The query heads of a key head are counted together in the order of work.
        """
        two_pass, fused = [("queries", 0), ("keys", case.group)], [("fused", case.group)]
        sides = [("forward", 0), *(two_pass if deterministic else fused)]
        return [part for name, group in sides for part in self._side(tile(name, case)[:2], device, group)]

    def _side(self, tile: Sequence[int], device: torch.device, group: int) -> Side:
        """Return tiles of queries that list keys if group is 0, otherwise tiles of keys that list queries."""
        BM, BN = (tile[0], tile[1]) if self._blocks is None else within_blocks(tile, self._blocks)
        key = (BM, BN, device, group)
        if key not in self._sides:
            kinds, patterns = self.tiles(BM, BN, device)
            turned = (kinds.transpose(2, 3), patterns.transpose(1, 2), group)
            self._sides[key] = side_of(*turned) if group else side_of(kinds, patterns)
        return self._sides[key]


# Pickles and help() name the public module, so this file can move. `__reduce__` pickles no other name of it.
TiledMask.__module__ = "iocourse.kernels"


def within_blocks(tile: Sequence[int], blocks: tuple[int, int]) -> tuple[int, int]:
    """Return BM and BN of a tile no larger than a block of the mask, because larger tiles are often partial
    and seldom empty; but at least 64, because smaller tiles cost more than they save.
    """
    powers = [max(SMALLEST_TILE, 1 << (block.bit_length() - 1)) for block in blocks]
    return min(tile[0], powers[0]), min(tile[1], powers[1])


def tiled_mask(mask: Any, q: Tensor, k: Tensor, *, block: int | None = None) -> TiledMask:
    """Evaluate a mask for the sizes of q and k, and return it in the form of `attention(…, block_mask=)`.

    The mask is evaluated now; later changes of its tensors have no effect on the result. Make it once, and
    pass it to every layer.

    Args:
        mask: a predicate mask_mod(b, h, q_idx, kv_idx) as of FlexAttention, written for scalars and evaluated
            under torch.vmap, for each batch and head of q (pass q[:1, :1] if all share it); FlexAttention's
            BlockMask, whose predicate is evaluated for the batches and heads it was made for; one of
            `iocourse.masks`; or a boolean tensor or array of blocks, (rows, columns), (H, rows, columns) or
            (B, H, rows, columns). A TiledMask is returned as it is.
        q: (B, H, Nq, d); only sizes and device are used (for a meta tensor, the CPU).
        k: (B, H_kv, Nk, d); only sizes and device are used.
        block: queries, and keys, per block of a boolean tensor. None: the one of 16, 32, 64, 128 or 256 that
            matches the number of blocks; required if several match (short N).

    Returns:
        A TiledMask.

    Raises:
        TypeError: `mask` has another type, or is not boolean.
        ValueError: it does not match the batches, heads or lengths.
    """
    made = mask if isinstance(mask, TiledMask) else _make(mask, q, k, block)
    (mb, mh, *for_n), B, H, n = made.shape, q.shape[0], q.shape[1], [q.shape[2], k.shape[2]]
    if for_n != n:
        came = "block_mask is for {} queries and {} keys, but q has {} and k has {}".format(*for_n, *n)
        raise ValueError(f"{came}. Build the mask for these")
    if mb not in (1, B) or mh not in (1, H):
        came = f"block_mask is for {mb} batches and {mh} heads"
        raise ValueError(f"{came}, but must be for 1 or {B} batches and 1 or {H} heads")
    return made


@torch.inference_mode(False)
def _make(mask: Any, q: Tensor, k: Tensor, block: int | None) -> TiledMask:
    n_q, n_k, blocks, device = q.shape[2], k.shape[2], None, with_values(q)
    if hasattr(mask, "sees") and hasattr(mask, "N"):
        source, n_q, n_k = _of_the_course(mask, device), mask.N, mask.N
        blocks = (mask.Br, mask.Bc) if hasattr(mask, "Br") else None
    elif hasattr(mask, "mask_mod") and hasattr(mask, "kv_num_blocks"):
        source, blocks, (n_q, n_k) = _of_flex(mask, device), mask.BLOCK_SIZE, mask.seq_lengths
    elif callable(mask):
        kinds = torch.full((*q.shape[:2], 1, 1), BY_PAIR, dtype=torch.int32, device=device)
        source = Source(kinds, (n_q, n_k), _by_predicate(mask))
    else:
        return _of_blocks(mask, n_q, n_k, device, block)
    shape = (*source.kinds.shape[:2], n_q, n_k)
    kind = getattr(mask, "__name__", type(mask).__name__)
    kinds, patterns = build(source, n_q, n_k, *KEPT)
    return TiledMask(kind, shape, kinds, patterns, blocks)


def _of_the_course(mask: Any, device: torch.device) -> Source:
    rows, columns = (-(-mask.N // size) for size in KEPT)
    kinds = torch.full((1, 1, rows, columns), UNSEEN, dtype=torch.int32, device="cpu")
    for row in range(rows):
        for begin, end in mask.columns(row * KEPT[0], min((row + 1) * KEPT[0], mask.N)):
            kinds[..., row, begin // KEPT[1] : -(-end // KEPT[1])] = BY_PAIR

    def evaluate(_: int, __: int, i: Tensor, j: Tensor, ___: Tensor) -> Tensor:
        return torch.from_numpy(mask.sees(i.cpu().numpy(), j.cpu().numpy())).to(device)

    return Source(kinds.to(device), KEPT, evaluate)


def _of_flex(mask: Any, device: torch.device) -> Source:
    came = mask.kv_num_blocks.device
    if came.type != device.type:
        raise ValueError(f"block_mask must be on the device of q, {device}, got {came}")
    by_pair = _dense(mask.kv_num_blocks, mask.kv_indices)
    kinds = torch.where(by_pair, BY_PAIR, UNSEEN).to(torch.int32)
    if mask.full_kv_indices is not None:
        kinds[_dense(mask.full_kv_num_blocks, mask.full_kv_indices)] = WHOLE
    return Source(kinds[(None,) * (4 - kinds.ndim)], mask.BLOCK_SIZE, _by_predicate(mask.mask_mod))


def _by_predicate(mask_mod: Callable[..., Any]) -> Evaluate:
    """Return a function that evaluates a predicate on scalars for many pairs, as FlexAttention does."""

    def evaluate(batch: int, head: int, i: Tensor, j: Tensor, kinds: Tensor) -> Tensor:
        if not (kinds >= BY_PAIR).any():
            return kinds < UNSEEN  # all False; torch.vmap rejects an axis of length 0
        from torch.nn.attention.flex_attention import create_mask  # takes seconds

        def one_pair(b: Tensor, h: Tensor, row: Tensor, column: Tensor) -> Tensor:
            found = mask_mod(b + batch, h + head, i[row, 0], j[0, column])
            if not isinstance(found, Tensor) or found.dtype != torch.bool or found.ndim:
                came = f"{found.dtype} {tuple(found.shape)}" if isinstance(found, Tensor) else repr(found)
                raise TypeError(
                    "the mask's predicate must return a boolean tensor of shape () for one query and key, "
                    f"got {came}"
                )
            return found

        return create_mask(one_pair, 1, 1, i.shape[0], j.shape[1], i.device)[0, 0]

    return evaluate


def _dense(counts: Tensor, indices: Tensor) -> Tensor:
    """Return a mask (batches, heads, rows, columns) of the blocks that each row lists: the first `counts`
    of its `indices`.
    """
    columns = indices.shape[-1]
    listed = torch.arange(columns, device=indices.device) < counts[..., None]
    hit = torch.zeros((*indices.shape[:-1], columns + 1), dtype=torch.bool, device=indices.device)
    # Indices that are not listed go to an extra column, which is dropped.
    return hit.scatter(-1, torch.where(listed, indices, columns).long(), True)[..., :columns]


def _of_blocks(mask: Any, n_q: int, n_k: int, device: torch.device, block: int | None) -> TiledMask:
    if not isinstance(mask, (Tensor, np.ndarray, list, tuple)):
        raise TypeError(
            "block_mask must be booleans for blocks, one of iocourse.masks, FlexAttention's BlockMask or a "
            f"predicate (b, h, q_idx, kv_idx), got a {type(mask).__name__}"
        )
    try:
        blocks = torch.as_tensor(np.asarray(mask) if isinstance(mask, (list, tuple)) else mask)
    except (TypeError, ValueError) as error:
        raise TypeError(f"block_mask must be an array of booleans, but is not an array ({error})") from None
    if blocks.dtype != torch.bool:
        raise TypeError(f"block_mask must be booleans, got {str(blocks.dtype).removeprefix('torch.')}")
    if not 2 <= blocks.ndim <= 4:
        raise ValueError(
            "block_mask must have shape (rows, columns), (H, rows, columns) or (B, H, rows, columns), got "
            f"{tuple(blocks.shape)}"
        )
    size = _block_size(tuple(blocks.shape[-2:]), n_q, n_k, block)
    kinds = torch.where(blocks[(None,) * (4 - blocks.ndim)], WHOLE, UNSEEN).to(device, torch.int32)
    patterns = torch.zeros((0, size, size), dtype=torch.uint8, device=device)
    return TiledMask(f"blocks of {size}", (*kinds.shape[:2], n_q, n_k), kinds, patterns, (size, size))


def _block_size(shape: tuple[int, ...], n_q: int, n_k: int, block: int | None) -> int:
    if block is not None and block not in SIZES:
        raise ValueError(f"block must be one of None, {', '.join(map(str, SIZES))}; got {block!r}")
    sizes = [size for size in SIZES if (-(-n_q // size), -(-n_k // size)) == shape and block in (None, size)]
    if len(sizes) == 1:
        return sizes[0]
    wanted = f"It must have ⌈N / block⌉ each way, with blocks of {block or '16, 32, 64, 128 or 256'}"
    wanted = f"Several sizes fit, {' and '.join(map(str, sizes))}: pass one as block=" if sizes else wanted
    came = f"{shape[0]} × {shape[1]} blocks for {n_q} queries and {n_k} keys"
    raise ValueError(f"block_mask has {came}. {wanted}")


@torch.inference_mode(False)
def build(source: Source, n_q: int, n_k: int, BM: int, BN: int) -> tuple[Tensor, Tensor]:
    """Split a mask into tiles. Return the kind of each tile, (batches, heads, ⌈n_q/BM⌉, ⌈n_k/BN⌉): -2 empty,
    -1 full, otherwise the index of its pattern; and the patterns, (partial tiles, BM, BN).

    Pairs are evaluated for one row of tiles at a time, and only in blocks that are not UNSEEN, so no N × N
    matrix is stored. Queries past the last one do not make a tile partial, because they have no effect.
    """
    (batches, heads), (high, wide), device = source.kinds.shape[:2], source.block, source.kinds.device
    rows, columns = -(-n_q // BM), -(-n_k // BN)
    kinds = torch.full((batches, heads, rows, columns), UNSEEN, dtype=torch.int32, device=device)
    patterns = [torch.zeros((0, BM, BN), dtype=torch.uint8, device=device)]
    count = 0
    for batch, head, row in itertools.product(range(batches), range(heads), range(rows)):
        blocks = source.kinds[batch, head]
        # Tiles of keys whose blocks are all UNSEEN for these queries remain empty without being evaluated.
        near = (blocks[row * BM // high : -(-min((row + 1) * BM, n_q) // high)] != UNSEEN).any(0)
        keys = near.repeat_interleave(wide)[:n_k]
        some = torch.nn.functional.pad(keys, (0, columns * BN - n_k)).reshape(columns, BN).any(1).nonzero()
        i = torch.arange(row * BM, (row + 1) * BM, device=device)[:, None]
        j = (some * BN + torch.arange(BN, device=device)).reshape(1, -1)
        # A predicate may index its own tensors, so it gets only positions that exist.
        at = i.clamp(max=n_q - 1), j.clamp(max=n_k - 1)
        block = blocks[at[0] // high, at[1] // wide]
        by_pair = (block >= BY_PAIR) & source.evaluate(batch, head, *at, block)
        pairs = ((block == WHOLE) | by_pair) & (j < n_k)
        tiles = pairs.expand(BM, j.shape[1]).reshape(BM, len(some), BN).transpose(0, 1)  # (some, BM, BN)
        exists = (i < n_q)[None]
        # Queries past the last one neither make a tile non-empty nor keep it from being full.
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


@torch.inference_mode(False)
def side_of(kinds: Tensor, patterns: Tensor, heads_together: int = 1) -> Side:
    """Return the lists of each row of `kinds` (batches, heads, rows, columns).

    Rows are ordered by the work of `heads_together` heads, which one program processes one after the other.
    """
    heads, columns = kinds.shape[1], kinds.shape[3]
    order_of_kinds = torch.where(kinds == WHOLE, 0, torch.where(kinds == UNSEEN, 2, 1))
    # Stable, so that the tiles of one kind stay in increasing order.
    ranked = torch.sort(order_of_kinds, dim=-1, stable=True).indices  # full, then partial, then empty
    whole, cut = (kinds == WHOLE).sum(-1), (kinds >= 0).sum(-1)  # (batches, heads, rows)
    work = whole + cut
    ends = work.flatten().cumsum(0).reshape(work.shape)
    spans = torch.stack([ends - work, ends - cut, ends], dim=-1).to(torch.int32)
    listed = torch.arange(columns, device=kinds.device) < work[..., None]
    entries = ranked[listed].to(torch.int32)
    # Full tiles (-1) get slot 0, which no kernel reads: only partial tiles load a pattern.
    slots = torch.gather(kinds, -1, ranked)[listed].clamp(min=0).to(torch.int32)
    shared = work.unflatten(1, (-1, heads_together if heads > 1 else 1)).sum(2)
    order = torch.sort(shared, dim=-1, descending=True, stable=True).indices.to(torch.int32)
    return Side(spans, entries, slots, patterns, order)
