"""Load balance: count pairs and words of each rank for a causal mask, and place sequences on ranks.

The query in row t of a sequence attends to the t + 1 keys up to it. So late rows and long sequences are
expensive, and the layout of the rows decides how much longer the busiest rank works than the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from ..costs import ceil_div
from ..sizes import check_sizes, positive_int
from .layouts import blocks_of

MEDIAN, SIGMA = 1500.0, 1.5  # of the log-normal lengths that are drawn: a few long ones among many short ones


def pairs_of_ranks(layout: str, N: int, P: int) -> tuple[int, ...]:
    """Return the number of visible query–key pairs of each rank for a causal mask.

    Raises ValueError or TypeError with the name of the invalid argument, like all functions of this module.
    """
    return _pairs_of_ranks(layout, *check_sizes(N=N, P=P))


@lru_cache(maxsize=256)
def _pairs_of_ranks(layout: str, N: int, P: int) -> tuple[int, ...]:
    return tuple(sum(map(_pairs, blocks)) for blocks in _blocks(layout, N, P))


def words_of_ranks(layout: str, N: int, d: int, P: int) -> tuple[int, ...]:
    """Return the words of K and V that each rank needs from other ranks for a causal mask.

    These are the keys and values of all rows up to its last query, except those that the rank owns.
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
    """Return the visible pairs of these evenly spaced queries: the sum of t + 1 over all t in `rows`."""
    return len(rows) * (rows[0] + rows[-1] + 2) // 2 if rows else 0


def imbalance(shares: Sequence[float]) -> float:
    """Return the largest share divided by the mean share: the factor by which imbalance lengthens the run.

    It is 1 if all shares are equal. Raises ValueError if there is no share above 0.
    """
    if not len(shares) or not sum(shares):
        raise ValueError("shares must contain at least one number above 0, got none")
    return max(shares) * len(shares) / sum(shares)


# ---------------------------------------------------------------------- sequences of different length
@dataclass(frozen=True)
class Piece:
    """Rows of one sequence on one rank, as ranges; `text` is the index of the sequence in the lengths."""

    text: int
    rank: int
    rows: tuple[range, ...]

    @property
    def tokens(self) -> int:
        """Number of rows of the piece."""
        return sum(map(len, self.rows))

    @property
    def pairs(self) -> int:
        """Number of visible pairs: each query with the keys of its sequence up to it."""
        return sum(map(_pairs, self.rows))

    @property
    def missing(self) -> int:
        """Number of key rows that the piece needs and another rank owns."""
        return max((rows.stop for rows in self.rows if rows), default=0) - self.tokens


@dataclass(frozen=True)
class Placement:
    """Assignment of the rows of all sequences to ranks; each row has exactly one rank."""

    P: int
    pieces: tuple[Piece, ...]

    @property
    def pairs(self) -> tuple[int, ...]:
        """Visible pairs per rank: its work."""
        return self._by_rank([piece.pairs for piece in self.pieces])

    @property
    def tokens(self) -> tuple[int, ...]:
        """Rows per rank: its memory."""
        return self._by_rank([piece.tokens for piece in self.pieces])

    def words(self, d: int) -> tuple[int, ...]:
        """Return the words of K and V that each rank needs from other ranks, for head dimension d."""
        d = positive_int("d", d)
        return self._by_rank([2 * d * piece.missing for piece in self.pieces])

    @property
    def split(self) -> tuple[int, ...]:
        """Indices of the sequences that are split over more than one rank."""
        homes: dict[int, set[int]] = {}
        for piece in self.pieces:
            homes.setdefault(piece.text, set()).add(piece.rank)
        return tuple(text for text, ranks in sorted(homes.items()) if len(ranks) > 1)

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of rows of each sequence."""
        rows = [0] * (1 + max((piece.text for piece in self.pieces), default=-1))
        for piece in self.pieces:
            rows[piece.text] += piece.tokens
        return tuple(rows)

    @property
    def layout(self) -> tuple[tuple[range, ...], ...]:
        """Rows of each rank as ranges, with the sequences concatenated: the argument `layout` of `run`."""
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
    """Draw log-normal lengths with median 1,500 until they sum to `tokens`; the last one is shortened."""
    lengths: list[int] = []
    left = positive_int("tokens", tokens)
    while left:
        length = min(left, max(1, round(float(rng.lognormal(np.log(MEDIAN), SIGMA)))))
        lengths.append(length)
        left -= length
    return tuple(lengths)


def equal_tokens(lengths: Sequence[int], P: int) -> Placement:
    """Concatenate the sequences and cut them into P parts of equal token count, as simple packing does."""
    sizes, P = _checked(lengths, P)
    ends = [rank * sum(sizes) // P for rank in range(P + 1)]
    pieces, start = [], 0
    for text, length in enumerate(sizes):
        for rank in range(P):
            rows = range(max(ends[rank], start) - start, min(ends[rank + 1], start + length) - start)
            pieces += [Piece(text, rank, (rows,))] if rows else []
        start += length
    return Placement(P, tuple(pieces))


def whole_texts(lengths: Sequence[int], P: int) -> Placement:
    """Place each sequence on one rank, longest first, on the rank with the least work so far.

    No words are moved.
    """
    sizes, P = _checked(lengths, P)
    return _greedy(sizes, P, [1] * len(sizes))


def split_texts(lengths: Sequence[int], P: int) -> Placement:
    """Place sequences as `whole_texts` does, but split each one that exceeds a rank's share of the work.

    Such a sequence is split over the smallest number of ranks for which no part exceeds that share. The
    zigzag layout makes its parts equal. (After Zeppelin, which splits and places by work: 2509.21841.)
    """
    sizes, P = _checked(lengths, P)
    every = sum(length * (length + 1) for length in sizes)
    return _greedy(sizes, P, [min(P, ceil_div(P * length * (length + 1), every)) for length in sizes])


def _greedy(sizes: Sequence[int], P: int, ranks: Sequence[int]) -> Placement:
    """Place sequence i on the `ranks[i]` ranks with the least work so far; largest parts first."""
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
        raise ValueError("lengths must contain the length of at least one sequence, got none")
    return [positive_int(f"lengths[{k}]", length) for k, length in enumerate(lengths)], positive_int("P", P)
