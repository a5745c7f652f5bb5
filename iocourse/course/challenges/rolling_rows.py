"""The best score known where a mask is challenged: blocks of queries come and go one at a time.

F3 takes a block of queries in, lets all its keys pass, and takes the next block: keys that two blocks share
come twice. Here several blocks are in fast memory at different stages. Only when one must go do the keys pass
that it still lacks, and every block that is there meets them too. The room that is left holds single keys.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...machine import Block, Machine, RowStats, SlowArray, Tile
from ...masks import Mask
from ...solution_guard import library_solution

NEVER = 10**9  # after every block


@dataclass
class _Rows:
    """A block of queries in fast memory, and the keys it has not met yet."""

    block: Block
    q: Tile  # (B, d)
    o: Tile  # (B, d)
    stats: RowStats
    lacks: set[int]

    def meet(self, m: Machine, key: int, k: Tile, v: Tile, mask: Mask) -> None:
        """Take in one key and its value, where the block still lacks them."""
        if key not in self.lacks:
            return
        self.lacks.remove(key)
        with self.q @ k.T as s:  # (B, 1)
            m.hide(s, self.block, (key, key + 1), mask)
            self.stats.update(s, self.o)
            self.o.add_matmul(s, v)

    def leave(self, m: Machine, O: SlowArray) -> None:
        """Store the outputs and give all room back."""
        self.stats.normalise(self.o)
        m.store(self.o, O, self.block)
        for part in (self.q, self.o, self.stats):
            part.free()


@dataclass(frozen=True)
class _Waiting:
    """The blocks in the order in which they come: what each needs, and for each key who needs it."""

    blocks: list[Block]
    needs: list[set[int]]
    asked: list[list[int]]

    def next_use(self, key: int, came: int) -> int:
        """Place of the first block that needs the key, of those that have not come; NEVER where none does."""
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


Pair = tuple[Tile, Tile]  # a key and its value, (1, d) each


def _arrive(m: Machine, Q: SlowArray, block: Block, needs: set[int]) -> _Rows:
    q = m.load(Q, block)
    q *= q.shape[1] ** -0.5
    return _Rows(block, q, m.zeros(*q.shape), m.row_stats(block), {*needs})


def _keep(held: dict[int, Pair], key: int, pair: Pair, kept: int, next_use: Callable[[int], int]) -> None:
    """Hold the pair where there is room, or in place of one that is needed later; else let it go."""
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
    """softmax(QKᵀ/√d)V over the pairs that the mask lets through.

    `rows` blocks of B queries are there at a time. The one that lacks the fewest keys goes first. Up to
    `kept` keys stay with their values: those that a coming block needs soonest. `order` says which block
    comes first, second, …; by default from top to bottom. Footprint rows·B(2d + 2) + B + 2d(kept + 1) words.
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
