"""Best known schedule for the challenges with a mask: query blocks are loaded and evicted one at a time.

The FA-2 order with buffer reuse loads one query block, streams all its keys, and continues with the next, so
a key that two blocks need is loaded twice. This schedule keeps several query blocks in fast memory at
different stages. Before it evicts a block, it loads the keys that this block still lacks and applies them to
all resident blocks. The remaining capacity caches single keys with their values.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...machine import Block, Machine, RowStats, SlowArray, Tile
from ...masks import Mask
from ..guard import library_solution

NEVER = 10**9  # larger than the position of any block


@dataclass
class _Rows:
    """A query block in fast memory: its tiles, its row statistics, and the keys it still lacks."""

    block: Block
    q: Tile  # (B, d)
    o: Tile  # (B, d)
    stats: RowStats
    lacks: set[int]

    def meet(self, m: Machine, key: int, k: Tile, v: Tile, mask: Mask) -> None:
        """Add one key and its value to the partial result of the block, if it still lacks them."""
        if key not in self.lacks:
            return
        self.lacks.remove(key)
        with self.q @ k.T as s:  # (B, 1)
            m.hide(s, self.block, (key, key + 1), mask)
            self.stats.update(s, self.o)
            self.o.add_matmul(s, v)

    def leave(self, m: Machine, O: SlowArray) -> None:
        """Normalise and store the outputs, and free all tiles of the block."""
        self.stats.normalise(self.o)
        m.store(self.o, O, self.block)
        for part in (self.q, self.o, self.stats):
            part.free()


@dataclass(frozen=True)
class _Waiting:
    """The query blocks in loading order, the keys that each needs, and the blocks that need each key."""

    blocks: list[Block]
    needs: list[set[int]]
    asked: list[list[int]]

    def next_use(self, key: int, came: int) -> int:
        """Return the position of the next block to load that needs the key, NEVER if there is none.

        `came` is the number of blocks loaded so far.
        """
        asked = self.asked[key]
        at = bisect_left(asked, came)
        return asked[at] if at < len(asked) else NEVER


def _waiting(m: Machine, mask: Mask, B: int, order: Sequence[int]) -> _Waiting:
    found = list(m.blocks(mask.N, B, alike=False))
    blocks = [found[at] for at in (order or range(len(found))) if at < len(found)]
    needs = [{key for part in mask.columns(i.start, i.stop) for key in range(*part)} for i in blocks]
    asked: list[list[int]] = [[] for _ in range(mask.N)]
    for place, needed in enumerate(needs):
        for key in needed:
            asked[key].append(place)
    return _Waiting(blocks, needs, asked)


Pair = tuple[Tile, Tile]  # a key and its value; each (1, d)


def _arrive(m: Machine, Q: SlowArray, block: Block, needs: set[int]) -> _Rows:
    q = m.load(Q, block)
    q *= q.shape[1] ** -0.5
    return _Rows(block, q, m.zeros(*q.shape), m.row_stats(block), {*needs})


def _keep(held: dict[int, Pair], key: int, pair: Pair, kept: int, next_use: Callable[[int], int]) -> None:
    """Keep the pair if there is capacity, or instead of a pair that is needed later; otherwise free it."""
    if next_use(key) == NEVER or not kept:
        _free(pair)
        return
    if len(held) == kept:
        latest = max(sorted(held), key=next_use)
        if next_use(latest) <= next_use(key):
            _free(pair)
            return
        _free(held.pop(latest))
    held[key] = pair


def _free(pair: Pair) -> None:
    for tile in pair:
        tile.free()


@library_solution
def rolling_rows(
    m: Machine,
    Q: SlowArray,
    K: SlowArray,
    V: SlowArray,
    *,
    mask: Mask,
    B: int,
    rows: int,
    kept: int,
    order: Sequence[int] = (),
) -> SlowArray:
    """Compute softmax(QKᵀ/√d)V over the visible pairs of the mask.

    The resident block that lacks the fewest keys is evicted first. The memory footprint is
    rows·B(2d + 2) + B + 2d(kept + 1) words.

    Args:
        m: the machine.
        Q: slow array (N, d).
        K: slow array (N, d).
        V: slow array (N, d).
        mask: mask of N queries and N keys.
        B: queries per block.
        rows: number of query blocks in fast memory.
        kept: maximum number of keys that are kept with their values: those that a later block needs soonest.
        order: positions of the query blocks in loading order; default: from top to bottom.

    Returns:
        The slow array O (N, d).
    """
    N, d = Q.shape
    O = m.new("O", (N, d))
    waiting = _waiting(m, mask, B, order)
    here: list[_Rows] = []
    held: dict[int, Pair] = {}
    came = 0
    while here or came < len(waiting.blocks):
        while came < len(waiting.blocks) and len(here) < rows:
            here.append(_arrive(m, Q, waiting.blocks[came], waiting.needs[came]))
            came += 1
            for key in sorted(held):
                here[-1].meet(m, key, *held[key], mask)
                if waiting.next_use(key, came) == NEVER:
                    _free(held.pop(key))
        leaving = min(here, key=lambda one: len(one.lacks))
        for key in sorted(leaving.lacks):
            pair = m.load(K, key), m.load(V, key)  # (1, d), (1, d)
            for one in here:
                one.meet(m, key, *pair, mask)
            _keep(held, key, pair, kept, partial(waiting.next_use, came=came))
        leaving.leave(m, O)
        here.remove(leaving)
    return O
