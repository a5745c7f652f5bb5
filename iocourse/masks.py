"""Attention masks as ranges of rows and columns that a schedule can loop over.

A mask is a rule on positions and uses no words on the machine. `columns` returns the columns that a block of
rows needs, `visits` the rows that a block of columns needs, and `sees` evaluates single pairs.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .sizes import check_sizes, positive_int, truth, zero_or_more

__all__ = [
    "BlockMask",
    "Causal",
    "Full",
    "Mask",
    "Range",
    "Visit",
    "Window",
    "bigbird",
    "causal",
    "covering_blocks",
    "random",
    "sliding_window",
    "strided",
]

Range = tuple[int, int]  # half-open: start, stop


class Visit(NamedTuple):
    """Rows start:stop that a block of columns needs; `first` is True if no earlier block needed them."""

    start: int
    stop: int
    first: bool


class Mask:
    """Base class of masks of N queries and N keys; by itself it masks nothing.

    `alike`: True if every block of rows needs the same columns, so that a dry machine can count one block for
    many. `reach`: maximum distance of a query and a visible key, if visibility depends on nothing else;
    otherwise None. All blocks with more than `reach` rows before and after them need equally many columns.
    """

    alike = True
    reach: int | None = None

    def __init__(self, N: int) -> None:
        self.N = positive_int("N", N)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(N={self.N}): {self.nnz:,} of {self.N**2:,} pairs visible"

    def columns(self, start: int, stop: int) -> list[Range]:
        """Return the columns that rows start:stop need, as ranges from left to right."""
        return [(0, self.N)]

    def visits(self, start: int, stop: int) -> list[Visit]:
        """Return the rows that columns start:stop need, from top to bottom, with first visits separate."""
        return [Visit(0, self.N, start == 0)]

    def short_first(self, b: int, *, columns: bool = False) -> bool:
        """Return True if a pass over blocks of b rows loads fewer columns with the short block first.

        A block is short if b does not divide N. It is the last one if both ends load equally many columns,
        as without a mask and for a window. With `columns`, a pass over blocks of b columns loads rows.
        """
        return False

    def unseen_rows(self) -> list[Range]:
        """Return the rows that no block of columns needs, as ranges from top to bottom."""
        return []

    def sees(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.bool_]:
        """Return True for each pair in which query i attends to key j; i and j are arrays that broadcast."""
        return np.ones(np.broadcast_shapes(i.shape, j.shape), dtype=bool)

    @property
    def nnz(self) -> int:
        """Number of visible pairs (query, key)."""
        return self.N**2

    @property
    def nonempty_rows(self) -> int:
        """Number of queries that attend to at least one key."""
        return self.N

    @property
    def nonempty_columns(self) -> int:
        """Number of keys to which at least one query attends."""
        return self.N

    def pairs(self) -> NDArray[np.bool_]:
        """Return the mask as an array (N, N), True where query i attends to key j."""
        positions = np.arange(self.N)
        return self.sees(positions[:, None], positions[None, :])

    def additive(self) -> NDArray[np.float64]:
        """Return the mask for `exact.attention`: (N, N), 0 for a visible pair, otherwise -inf."""
        return np.where(self.pairs(), 0.0, -np.inf)


class Full(Mask):
    """Mask in which every query attends to every key."""


class Causal(Mask):
    """Mask in which query i attends to keys 0 … i."""

    alike = False

    def columns(self, start: int, stop: int) -> list[Range]:
        """Return the columns up to the last row."""
        return [(0, stop)]

    def visits(self, start: int, stop: int) -> list[Visit]:
        """Return the rows from the first column on."""
        return [Visit(start, self.N, start == 0)]

    def short_first(self, b: int, *, columns: bool = False) -> bool:
        """Return True for rows: the first rows need the fewest columns, the last columns the fewest rows."""
        return not columns

    def sees(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.bool_]:
        """Return j ≤ i."""
        return j <= i

    @property
    def nnz(self) -> int:
        """Number of visible pairs: N(N + 1)/2."""
        return self.N * (self.N + 1) // 2


class Window(Mask):
    """Mask in which query i attends to keys i - w … i + w. Raises ValueError if w < 0."""

    alike = False

    def __init__(self, N: int, w: int) -> None:
        super().__init__(N)
        self.w = self.reach = zero_or_more("w", w)

    def __repr__(self) -> str:
        return super().__repr__().replace("):", f", w={self.w}):")

    def columns(self, start: int, stop: int) -> list[Range]:
        """Return the columns from w before the first row to w after the last."""
        return [(max(0, start - self.w), min(self.N, stop + self.w))]

    def visits(self, start: int, stop: int) -> list[Visit]:
        """Return the rows within w of these columns; rows from start + w on are first visits."""
        top, bottom = max(0, start - self.w), min(self.N, stop + self.w)
        border = min(max(start + self.w, top), bottom) if start else top
        parts = (Visit(top, border, False), Visit(border, bottom, True))
        return [part for part in parts if part.start < part.stop]

    def sees(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.bool_]:
        """Return |i - j| ≤ w."""
        return np.asarray(np.abs(i - j) <= self.w)

    @property
    def nnz(self) -> int:
        """Number of visible pairs: N(2w + 1) - w(w + 1) for w < N."""
        w = min(self.w, self.N - 1)
        return self.N * (2 * w + 1) - w * (w + 1)


class BlockMask(Mask):
    """Mask of tiles of Br queries and Bc keys, each either full or empty.

    Args:
        N: sequence length.
        tiles: Booleans (⌈N/Br⌉, ⌈N/Bc⌉), True for a visible tile.
        Br: queries per tile.
        Bc: keys per tile (default: Br).
        causal: also mask keys after the query inside visible tiles, and drop tiles that become empty.
        allow_empty: accept queries that attend to no key; their rows of O and their gradients are zero.

    Raises:
        TypeError, ValueError: naming the argument, or the queries that attend to no key.
    """

    alike = False

    def __init__(
        self,
        N: int,
        tiles: ArrayLike,
        Br: int,
        Bc: int | None = None,
        *,
        causal: bool = False,
        allow_empty: bool = False,
    ) -> None:
        super().__init__(N)
        self.Br = positive_int("Br", Br)
        self.Bc = positive_int("Bc", Br if Bc is None else Bc)
        self.causal = truth("causal", causal)
        self.tiles = _grid(tiles, (_blocks(self.N, self.Br), _blocks(self.N, self.Bc)))
        self._row_starts = np.arange(self.tiles.shape[0]) * self.Br
        self._row_stops = np.minimum(self._row_starts + self.Br, self.N)
        if self.causal:
            self.tiles &= np.arange(self.tiles.shape[1])[None, :] * self.Bc < self._row_stops[:, None]
        self.tiles.flags.writeable = False
        self._asked: tuple[Range, list[Range]] = ((0, 0), [])
        if not truth("allow_empty", allow_empty):
            self._refuse_empty_rows()

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.tiles.shape))
        seen = f"{int(self.tiles.sum()):,} of {self.tiles.size:,} tiles not empty"
        return f"BlockMask(N={self.N}, {shape} tiles of {self.Br} x {self.Bc}): {seen}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockMask):
            return NotImplemented
        mine, theirs = ((m.N, m.Br, m.Bc, m.causal) for m in (self, other))
        return mine == theirs and bool((self.tiles == other.tiles).all())

    __hash__ = None  # type: ignore[assignment]

    def _refuse_empty_rows(self) -> None:
        empty = np.flatnonzero(~self._row_is_seen())
        if empty.size:
            I = int(empty[0]) // self.Br
            raise ValueError(
                f"tiles[{I}] leaves {empty.size} queries without any key, the first is query {empty[0]} "
                f"(its row of tiles has queries {self._row_starts[I]}:{self._row_stops[I]}). Every query "
                "must attend to at least one key; or pass allow_empty=True for rows of zeros"
            )

    def _row_is_seen(self) -> NDArray[np.bool_]:
        """Return Booleans (N,): True for queries that attend to at least one key.

        Under a causal mask some rows of a tile may be before all keys of their first tile.
        """
        first = np.where(self.tiles.any(axis=1), self.tiles.argmax(axis=1) * self.Bc, self.N)
        rows = np.arange(self.N)
        first_key = first[rows // self.Br]
        return first_key <= rows if self.causal else first_key < self.N

    def columns(self, start: int, stop: int) -> list[Range]:
        """Return the columns of every tile that is visible to some of these rows, adjacent tiles joined."""
        rows = (start // self.Br, _blocks(stop, self.Br))
        if self._asked[0] != rows:  # the next block of rows is often in the same tiles
            self._asked = rows, _runs(np.asarray(self.tiles[slice(*rows)].any(axis=0)), self.Bc, self.N)
        return list(self._asked[1])

    def visits(self, start: int, stop: int) -> list[Visit]:
        """Return the rows of every tile visible in some of these columns, adjacent ones of a kind joined."""
        needed = np.asarray(self.tiles[:, start // self.Bc : _blocks(stop, self.Bc)].any(axis=1))
        before = np.asarray(self.tiles[:, : _blocks(start, self.Bc)].any(axis=1))
        kinds = ((needed & ~before, True), (needed & before, False))
        return sorted(Visit(*run, first) for rows, first in kinds for run in _runs(rows, self.Br, self.N))

    def short_first(self, b: int, *, columns: bool = False) -> bool:
        """Return True if blocks of b rows (or `columns`) load less in total with the short block first."""
        b = positive_int("b", b)
        return self.N % b > 0 and self._loaded(b, -(-self.N % b), columns) < self._loaded(b, 0, columns)

    def _loaded(self, b: int, begin: int, columns: bool) -> int:
        """Return the columns that blocks of b rows need, summed over the blocks; the first starts at `begin`.

        With `columns`, the rows that blocks of b columns need.
        """
        tiles, across, along = (self.tiles.T, self.Bc, self.Br) if columns else (self.tiles, self.Br, self.Bc)
        starts = np.arange(begin, self.N, b)
        first, stop = np.maximum(starts, 0) // across, -(-np.minimum(starts + b, self.N) // across)
        times = sum(tiles[i:j].any(axis=0) for i, j in zip(first, stop, strict=True))
        return int(times @ np.minimum(along, self.N - np.arange(tiles.shape[1]) * along))

    def unseen_rows(self) -> list[Range]:
        """Return the rows whose tiles are all empty."""
        return _runs(~np.asarray(self.tiles.any(axis=1)), self.Br, self.N)

    def sees(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.bool_]:
        """Return True where the tile of (i, j) is visible and, with a causal mask, j ≤ i."""
        seen = self.tiles[i // self.Br, j // self.Bc]
        return np.asarray(seen & (j <= i)) if self.causal else np.asarray(seen)

    @cached_property
    def nnz(self) -> int:
        """Number of visible pairs: those in visible tiles, less those that a causal mask hides."""
        widths = np.minimum(self.Bc, self.N - np.arange(self.tiles.shape[1]) * self.Bc)
        inside = int((self._row_stops - self._row_starts) @ (self.tiles @ widths))
        return inside - self._hidden_inside() if self.causal else inside

    def _hidden_inside(self) -> int:
        """Return the number of pairs in visible tiles that a causal mask hides (tiles on the diagonal)."""
        hidden = 0
        last_keys = np.minimum(np.arange(1, self.tiles.shape[1] + 1) * self.Bc, self.N) - 1
        for I, J in np.argwhere(self.tiles & (last_keys[None, :] > self._row_starts[:, None])):
            rows = np.arange(self._row_starts[I], self._row_stops[I])
            hidden += int(np.clip(last_keys[J] - np.maximum(rows, J * self.Bc - 1), 0, None).sum())
        return hidden

    @property
    def nonempty_rows(self) -> int:
        """Number of queries that attend to at least one key."""
        return int(self._row_is_seen().sum())

    @property
    def nonempty_columns(self) -> int:
        """Number of keys to which at least one query attends."""
        lowest = np.where(self.tiles, self._row_stops[:, None], 0).max(axis=0)  # one after the last query
        keys = np.arange(self.N)
        seen_until = lowest[keys // self.Bc]
        return int((seen_until > keys).sum() if self.causal else (seen_until > 0).sum())


def _blocks(n: int, b: int) -> int:
    return -(-n // b)


def _runs(flags: NDArray[np.bool_], size: int, N: int) -> list[Range]:
    """Return the positions of the tiles of `size` whose flag is set, as ranges, adjacent tiles joined."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False]))))
    return [(begin * size, min(end * size, N)) for begin, end in edges.reshape(-1, 2).tolist()]


def _grid(tiles: ArrayLike, shape: tuple[int, int]) -> NDArray[np.bool_]:
    given = np.asarray(tiles)
    if given.dtype.kind != "b":
        raise TypeError(f"tiles must be Boolean, True for a visible tile, got dtype {given.dtype}")
    if given.shape != shape:
        raise ValueError(f"tiles must have shape {shape} for this N, Br and Bc, got {given.shape}")
    return given.copy()


# ------------------------------------------------------------------ builders: square tiles of side B
def _square(N: int, B: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the row indices (n, 1) and the column indices (1, n) of the n x n tiles."""
    n = _blocks(*check_sizes(N=N, B=B))
    return np.arange(n)[:, None], np.arange(n)[None, :]


def causal(N: int, B: int) -> BlockMask:
    """Return the causal mask in tiles of side B: nb(nb + 1)/2 of nb² tiles are visible, nb = ⌈N/B⌉."""
    I, J = _square(N, B)
    return BlockMask(N, J <= I, B, causal=True)


def sliding_window(N: int, B: int, w: int) -> BlockMask:
    """Return the mask of tiles at most w tiles from the diagonal: nb(2w + 1) - w(w + 1) tiles for w < nb."""
    I, J = _square(N, B)
    return BlockMask(N, np.abs(I - J) <= zero_or_more("w", w), B)


def bigbird(N: int, B: int, g: int, w: int, r: int, *, seed: int = 0) -> BlockMask:
    """Return a BigBird mask: g global rows and columns of tiles, a window of ±w, r random tiles per row.

    The r random tiles are in addition to the others, in rows that are not global; a row with fewer than r
    remaining tiles gets all of them. Source: BigBird (Zaheer et al., 2007.14062).
    """
    I, J = _square(N, B)
    g, w, r = (zero_or_more(name, value) for name, value in (("g", g), ("w", w), ("r", r)))
    tiles = (np.abs(I - J) <= w) | (np.minimum(I, J) < g)
    rng = np.random.default_rng(seed)
    for row in tiles[g:]:
        left = np.flatnonzero(~row)
        row[rng.choice(left, size=min(r, left.size), replace=False)] = True
    return BlockMask(N, tiles, B)


def strided(N: int, B: int, s: int) -> BlockMask:
    """Return the mask of the diagonal and every s-th column of tiles."""
    I, J = _square(N, B)
    step = min(positive_int("s", s), I.size)  # a larger s also selects the first column only
    return BlockMask(N, (I == J) | (J % step == 0), B)


def random(N: int, B: int, p: float, *, seed: int = 0) -> BlockMask:
    """Return a mask of the diagonal and each other tile with probability p.

    Raises ValueError if p is not in [0, 1].
    """
    if isinstance(p, bool) or not isinstance(p, (int, float, np.floating)) or not 0 <= p <= 1:
        raise ValueError(f"p must be a probability from 0 to 1, got {p!r}")
    I, J = _square(N, B)
    drawn = np.random.default_rng(seed).random((I.size, J.size)) < p
    return BlockMask(N, drawn | (I == J), B)


def covering_blocks(pairs: ArrayLike, B: int) -> BlockMask:
    """Return the mask of all tiles of side B with at least one True of `pairs`, Booleans of shape (N, N).

    Raises ValueError.
    """
    given = np.asarray(pairs)
    if given.dtype.kind != "b" or given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise ValueError(f"pairs must be boolean of shape (N, N), got {given.dtype} of shape {given.shape}")
    N, B = given.shape[0], positive_int("B", B)
    n = _blocks(N, B)
    padded = np.zeros((n * B, n * B), dtype=bool)
    padded[:N, :N] = given
    return BlockMask(N, padded.reshape(n, B, n, B).any(axis=(1, 3)), B)
