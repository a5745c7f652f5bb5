"""Load balance: pairs and words of each rank under a causal mask, and for texts of different length.

A query at row t of its text sees the t + 1 keys up to it. So late rows are dear, and so are long texts: which
rows a rank has decides how long the others wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from ..costs import ceil_div
from ..sizes import check_sizes, positive_int
from ..solution_guard import library_solution
from .layouts import blocks_of

MEDIAN, SIGMA = 1500.0, 1.5  # of the lengths that are drawn: log-normal, a few long texts among many short


@library_solution
def pairs_of_ranks(layout: str, N: int, P: int) -> tuple[int, ...]:
    """Pairs of a query and a key it sees, for each rank, under a causal mask.

    Raises ValueError or TypeError that names the argument, as for all here.
    """
    return _pairs_of_ranks(layout, *check_sizes(N=N, P=P))


@lru_cache(maxsize=256)
def _pairs_of_ranks(layout: str, N: int, P: int) -> tuple[int, ...]:
    return tuple(sum(map(_pairs, blocks)) for blocks in _blocks(layout, N, P))


@library_solution
def words_of_ranks(layout: str, N: int, d: int, P: int) -> tuple[int, ...]:
    """Words of K and V that each rank needs from others under a causal mask, to answer its own queries.

    They are the keys and values of all rows up to its last query, less those it has: all of these are before
    it.
    """
    d = positive_int("d", d)
    needed = []
    for blocks in _blocks(layout, N, P):
        last = max((block[-1] + 1 for block in blocks if block), default=0)
        needed.append(2 * d * (last - sum(map(len, blocks))))
    return tuple(needed)


def _blocks(layout: str, N: int, P: int) -> list[tuple[range, ...]]:
    N, P = check_sizes(N=N, P=P)
    return [blocks_of(layout, N, P, rank) for rank in range(P)]


def _pairs(rows: range) -> int:
    """Pairs of these queries: the sum of t + 1 over them, which are evenly spaced."""
    return len(rows) * (rows[0] + rows[-1] + 2) // 2 if rows else 0


def imbalance(shares: Sequence[float]) -> float:
    """The largest share over the mean: 1 where all have the same; what the time is multiplied by.

    Raises ValueError where there is none.
    """
    if not len(shares) or not sum(shares):
        raise ValueError("shares has nothing in it; it needs at least one number above 0")
    return max(shares) * len(shares) / sum(shares)


# ---------------------------------------------------------------------- texts of different length
@dataclass(frozen=True)
class Piece:
    """Rows of one text on one rank, as ranges; `text` is its place in the list of lengths."""

    text: int
    rank: int
    rows: tuple[range, ...]

    @property
    def tokens(self) -> int:
        """Rows of the piece."""
        return sum(map(len, self.rows))

    @property
    def pairs(self) -> int:
        """Pairs of its queries with the keys of their text up to them."""
        return sum(map(_pairs, self.rows))

    @property
    def missing(self) -> int:
        """Rows of keys that it needs and another rank has."""
        return max((rows.stop for rows in self.rows if rows), default=0) - self.tokens


@dataclass(frozen=True)
class Placement:
    """Which rank has which rows of which text; each row stands on one rank."""

    P: int
    pieces: tuple[Piece, ...]

    @property
    def pairs(self) -> tuple[int, ...]:
        """Pairs of each rank: its work."""
        return self._by_rank([piece.pairs for piece in self.pieces])

    @property
    def tokens(self) -> tuple[int, ...]:
        """Rows of each rank: its memory."""
        return self._by_rank([piece.tokens for piece in self.pieces])

    def words(self, d: int) -> tuple[int, ...]:
        """Words of K and V that each rank needs from others."""
        d = positive_int("d", d)
        return self._by_rank([2 * d * piece.missing for piece in self.pieces])

    @property
    def split(self) -> tuple[int, ...]:
        """The texts that stand on more than one rank."""
        homes: dict[int, set[int]] = {}
        for piece in self.pieces:
            homes.setdefault(piece.text, set()).add(piece.rank)
        return tuple(text for text, ranks in sorted(homes.items()) if len(ranks) > 1)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Rows of each text."""
        rows = [0] * (1 + max((piece.text for piece in self.pieces), default=-1))
        for piece in self.pieces:
            rows[piece.text] += piece.tokens
        return tuple(rows)

    @property
    def layout(self) -> tuple[tuple[range, ...], ...]:
        """For each rank its rows as ranges, where the texts lie one behind the other: what `run` is told."""
        starts = [0, *accumulate(self.lengths)]
        owned: list[list[range]] = [[] for _ in range(self.P)]
        for piece in self.pieces:
            at = starts[piece.text]
            owned[piece.rank] += [range(at + rows.start, at + rows.stop) for rows in piece.rows if rows]
        return tuple(tuple(sorted(blocks, key=lambda rows: rows.start)) for blocks in owned)

    def _by_rank(self, amounts: Sequence[int]) -> tuple[int, ...]:
        shares = [0] * self.P
        for piece, amount in zip(self.pieces, amounts, strict=True):
            shares[piece.rank] += amount
        return tuple(shares)


def draw_lengths(rng: np.random.Generator, tokens: int) -> tuple[int, ...]:
    """Log-normal lengths with a median of 1,500, until there are so many tokens: the last is cut there."""
    lengths: list[int] = []
    left = positive_int("tokens", tokens)
    while left:
        length = min(left, max(1, round(float(rng.lognormal(np.log(MEDIAN), SIGMA)))))
        lengths.append(length)
        left -= length
    return tuple(lengths)


@library_solution
def equal_tokens(lengths: Sequence[int], P: int) -> Placement:
    """The texts one behind the other, cut into P stretches of as many tokens: what packing does by itself."""
    sizes, P = _checked(lengths, P)
    ends = [rank * sum(sizes) // P for rank in range(P + 1)]
    pieces, start = [], 0
    for text, length in enumerate(sizes):
        for rank in range(P):
            rows = range(max(ends[rank], start) - start, min(ends[rank + 1], start + length) - start)
            pieces += [Piece(text, rank, (rows,))] if rows else []
        start += length
    return Placement(P, tuple(pieces))


@library_solution
def whole_texts(lengths: Sequence[int], P: int) -> Placement:
    """Each text on one rank, the longest first, on the rank with the least work so far: no word is moved."""
    sizes, P = _checked(lengths, P)
    return _greedy(sizes, P, [1] * len(sizes))


@library_solution
def split_texts(lengths: Sequence[int], P: int) -> Placement:
    """As `whole_texts`, but a text that is more than a rank's share of the work is split.

    It goes over just so many ranks that a part is no more than that share, in zigzag, so that its parts are
    equal. (After Zeppelin, which splits and places by work: 2509.21841.)
    """
    sizes, P = _checked(lengths, P)
    every = sum(length * (length + 1) for length in sizes)
    return _greedy(sizes, P, [min(P, ceil_div(P * length * (length + 1), every)) for length in sizes])


def _greedy(sizes: Sequence[int], P: int, ranks: Sequence[int]) -> Placement:
    """Each text on as many ranks as told, those with the least work; the largest parts first."""
    work, pieces = [0] * P, list[Piece]()
    for text in sorted(range(len(sizes)), key=lambda text: -(sizes[text] ** 2) / ranks[text]):
        least = sorted(range(P), key=work.__getitem__)[: ranks[text]]
        for part, rank in enumerate(least):
            piece = Piece(text, rank, blocks_of("zigzag", sizes[text], len(least), part))
            work[rank] += piece.pairs
            pieces.append(piece)
    return Placement(P, tuple(pieces))


def _checked(lengths: Sequence[int], P: int) -> tuple[list[int], int]:
    if not len(lengths):
        raise ValueError("lengths has no text in it; it needs at least one")
    return [positive_int(f"lengths[{k}]", length) for k, length in enumerate(lengths)], positive_int("P", P)
