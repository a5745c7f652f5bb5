"""Which query sees which key: masks, as ranges of rows and columns that a schedule can loop over.

A mask knows positions, never words: asking it costs nothing on the machine. Schedules ask for the
columns a block of rows needs, and for the rows a block of columns needs; `sees` decides single pairs.
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
    """Rows start:stop that a block of columns needs; `first` where no block of columns before needed them."""

    start: int
    stop: int
    first: bool


class Mask:
    """Every query sees every key: the mask that hides nothing, and the base of the others.

    `alike` is True where every block of rows needs the same columns, which lets a dry machine count one
    block for many. `reach`, where it is a number, says how far apart a query and a key that it sees may be,
    and that nothing else matters: blocks with more rows than this before and behind them meet as many.
    Shapes: N queries and N keys.
    """

    alike = True
    reach: int | None = None

    def __init__(self, N: int) -> None:
        self.N = positive_int("N", N)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(N={self.N}): {self.nnz:,} of {self.N**2:,} pairs seen"

    def columns(self, start: int, stop: int) -> list[Range]:
        """Columns that rows start:stop need, as ranges from left to right."""
        return [(0, self.N)]

    def visits(self, start: int, stop: int) -> list[Visit]:
        """Rows that columns start:stop need, from top to bottom, first visits apart from later ones."""
        return [Visit(0, self.N, start == 0)]

    def unseen_rows(self) -> list[Range]:
        """Rows that no block of columns ever visits, as ranges from top to bottom."""
        return []

    def sees(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether query i sees key j; i and j are arrays of positions that broadcast."""
        return np.ones(np.broadcast_shapes(i.shape, j.shape), dtype=bool)

    @property
    def nnz(self) -> int:
        """Number of pairs (query, key) that are seen."""
        return self.N**2

    @property
    def nonempty_rows(self) -> int:
        """Number of queries that see at least one key."""
        return self.N

    @property
    def nonempty_columns(self) -> int:
        """Number of keys that at least one query sees."""
        return self.N

    def pairs(self) -> NDArray[np.bool_]:
        """The mask written out: (N, N), True where query i sees key j."""
        positions = np.arange(self.N)
        return self.sees(positions[:, None], positions[None, :])

    def additive(self) -> NDArray[np.float64]:
        """The mask as `exact.attention` takes it: (N, N), 0 for a pair that is seen, else -inf."""
        return np.where(self.pairs(), 0.0, -np.inf)


class Full(Mask):
    """Every query sees every key."""


class Causal(Mask):
    """Query i sees keys 0 … i."""

    alike = False

    def columns(self, start: int, stop: int) -> list[Range]:
        """All columns up to the last row."""
        return [(0, stop)]

    def visits(self, start: int, stop: int) -> list[Visit]:
        """All rows from the first column on."""
        return [Visit(start, self.N, start == 0)]

    def sees(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.bool_]:
        """j ≤ i."""
        return j <= i

    @property
    def nnz(self) -> int:
        """N(N + 1)/2."""
        return self.N * (self.N + 1) // 2


class Window(Mask):
    """Query i sees the keys at most w positions away: i - w … i + w. Raises ValueError for w < 0."""

    alike = False

    def __init__(self, N: int, w: int) -> None:
        super().__init__(N)
        self.w = self.reach = zero_or_more("w", w)

    def __repr__(self) -> str:
        return super().__repr__().replace("):", f", w={self.w}):")

    def columns(self, start: int, stop: int) -> list[Range]:
        """From w before the first row to w after the last."""
        return [(max(0, start - self.w), min(self.N, stop + self.w))]

    def visits(self, start: int, stop: int) -> list[Visit]:
        """The rows near these columns; rows from start + w on see no column before."""
        top, bottom = max(0, start - self.w), min(self.N, stop + self.w)
        border = min(max(start + self.w, top), bottom) if start else top
        parts = (Visit(top, border, False), Visit(border, bottom, True))
        return [part for part in parts if part.start < part.stop]

    def sees(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.bool_]:
        """|i - j| ≤ w."""
        return np.asarray(np.abs(i - j) <= self.w)

    @property
    def nnz(self) -> int:
        """N(2w + 1) - w(w + 1) for w < N."""
        w = min(self.w, self.N - 1)
        return self.N * (2 * w + 1) - w * (w + 1)


class BlockMask(Mask):
    """Tiles of Br queries and Bc keys that are seen or hidden as a whole.

    `tiles` is boolean, (⌈N/Br⌉, ⌈N/Bc⌉). With `causal`, keys after the query are hidden inside a seen tile
    too, and tiles without any pair left are dropped. A query that sees no key is refused, unless
    `allow_empty`: then its row of O is zero, and so are its gradients.
    Raises TypeError and ValueError naming the argument; an empty row is named by its queries.
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
        seen = f"{int(self.tiles.sum()):,} of {self.tiles.size:,} tiles seen"
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
                f"(its row of tiles holds queries {self._row_starts[I]}:{self._row_stops[I]}); give each "
                "query at least one key it sees, or pass allow_empty=True for rows of zeros"
            )

    def _row_is_seen(self) -> NDArray[np.bool_]:
        """(N,): with a causal mask a row of its first tile may still lie before all of the tile's keys."""
        first = np.where(self.tiles.any(axis=1), self.tiles.argmax(axis=1) * self.Bc, self.N)
        rows = np.arange(self.N)
        first_key = first[rows // self.Br]
        return first_key <= rows if self.causal else first_key < self.N

    def columns(self, start: int, stop: int) -> list[Range]:
        """The columns of every tile that some of these rows see, neighbours joined."""
        rows = (start // self.Br, _blocks(stop, self.Br))
        if self._asked[0] != rows:  # the next block of rows often lies in the same tiles
            self._asked = rows, _runs(np.asarray(self.tiles[slice(*rows)].any(axis=0)), self.Bc, self.N)
        return list(self._asked[1])

    def visits(self, start: int, stop: int) -> list[Visit]:
        """The rows of every tile that some of these columns see, neighbours of the same kind joined."""
        needed = np.asarray(self.tiles[:, start // self.Bc : _blocks(stop, self.Bc)].any(axis=1))
        before = np.asarray(self.tiles[:, : _blocks(start, self.Bc)].any(axis=1))
        kinds = ((needed & ~before, True), (needed & before, False))
        return sorted(Visit(*run, first) for rows, first in kinds for run in _runs(rows, self.Br, self.N))

    def unseen_rows(self) -> list[Range]:
        """The rows of tiles that are hidden throughout."""
        return _runs(~np.asarray(self.tiles.any(axis=1)), self.Br, self.N)

    def sees(self, i: NDArray[Any], j: NDArray[Any]) -> NDArray[np.bool_]:
        """True where the tile of (i, j) is seen and, with a causal mask, j ≤ i."""
        seen = self.tiles[i // self.Br, j // self.Bc]
        return np.asarray(seen & (j <= i)) if self.causal else np.asarray(seen)

    @cached_property
    def nnz(self) -> int:
        """Number of pairs in the tiles that are seen, less those a causal mask hides."""
        widths = np.minimum(self.Bc, self.N - np.arange(self.tiles.shape[1]) * self.Bc)
        inside = int((self._row_stops - self._row_starts) @ (self.tiles @ widths))
        return inside - self._hidden_inside() if self.causal else inside

    def _hidden_inside(self) -> int:
        """Pairs that a causal mask hides in tiles that are seen: those on the diagonal."""
        hidden = 0
        last_keys = np.minimum(np.arange(1, self.tiles.shape[1] + 1) * self.Bc, self.N) - 1
        for I, J in np.argwhere(self.tiles & (last_keys[None, :] > self._row_starts[:, None])):
            rows = np.arange(self._row_starts[I], self._row_stops[I])
            hidden += int(np.clip(last_keys[J] - np.maximum(rows, J * self.Bc - 1), 0, None).sum())
        return hidden

    @property
    def nonempty_rows(self) -> int:
        """Number of queries that see at least one key."""
        return int(self._row_is_seen().sum())

    @property
    def nonempty_columns(self) -> int:
        """Number of keys that at least one query sees."""
        lowest = np.where(self.tiles, self._row_stops[:, None], 0).max(axis=0)  # one after the last query
        keys = np.arange(self.N)
        seen_until = lowest[keys // self.Bc]
        return int((seen_until > keys).sum() if self.causal else (seen_until > 0).sum())


def _blocks(n: int, b: int) -> int:
    return -(-n // b)


def _runs(flags: NDArray[np.bool_], size: int, N: int) -> list[Range]:
    """The positions of the tiles of `size` whose flag is set, neighbours joined."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False]))))
    return [(begin * size, min(end * size, N)) for begin, end in edges.reshape(-1, 2).tolist()]


def _grid(tiles: ArrayLike, shape: tuple[int, int]) -> NDArray[np.bool_]:
    given = np.asarray(tiles)
    if given.dtype.kind != "b":
        raise TypeError(
            f"tiles has dtype {given.dtype}; a mask of tiles is boolean, True where a tile is seen"
        )
    if given.shape != shape:
        raise ValueError(f"tiles has shape {given.shape}; with this N, Br and Bc it must be {shape}")
    return given.copy()


# ------------------------------------------------------------------ builders: square tiles of side B
def _square(N: int, B: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Numbers of the row and of the column of each tile."""
    n = _blocks(*check_sizes(N=N, B=B))
    return np.arange(n)[:, None], np.arange(n)[None, :]


def causal(N: int, B: int) -> BlockMask:
    """The tiles on and below the diagonal, nb(nb + 1)/2 of nb²; on the diagonal later keys are hidden."""
    I, J = _square(N, B)
    return BlockMask(N, J <= I, B, causal=True)


def sliding_window(N: int, B: int, w: int) -> BlockMask:
    """Tiles at most w tiles from the diagonal: nb(2w + 1) - w(w + 1) for w < nb."""
    I, J = _square(N, B)
    return BlockMask(N, np.abs(I - J) <= zero_or_more("w", w), B)


def bigbird(N: int, B: int, g: int, w: int, r: int, *, seed: int = 0) -> BlockMask:
    """g global rows and columns of tiles, a window of ±w tiles, r more random tiles in every other row.

    The three parts of BigBird (Zaheer et al., 2007.14062). A row with fewer than r tiles left gets them all.
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
    """The diagonal and every s-th column of tiles."""
    I, J = _square(N, B)
    step = min(positive_int("s", s), I.size)  # a longer one meets the first column alone, too
    return BlockMask(N, (I == J) | (J % step == 0), B)


def random(N: int, B: int, p: float, *, seed: int = 0) -> BlockMask:
    """The diagonal, and each other tile with probability p. Raises ValueError where p is not in [0, 1]."""
    if isinstance(p, bool) or not isinstance(p, (int, float, np.floating)) or not 0 <= p <= 1:
        raise ValueError(f"p must be a probability, from 0 to 1, got {p!r}")
    I, J = _square(N, B)
    drawn = np.random.default_rng(seed).random((I.size, J.size)) < p
    return BlockMask(N, drawn | (I == J), B)


def covering_blocks(pairs: ArrayLike, B: int) -> BlockMask:
    """The tiles of side B that hold at least one True of `pairs`, (N, N) boolean: a superset of the pairs."""
    given = np.asarray(pairs)
    if given.dtype.kind != "b" or given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise ValueError(f"pairs must be boolean of shape (N, N), got {given.dtype} of shape {given.shape}")
    N, B = given.shape[0], positive_int("B", B)
    n = _blocks(N, B)
    padded = np.zeros((n * B, n * B), dtype=bool)
    padded[:N, :N] = given
    return BlockMask(N, padded.reshape(n, B, n, B).any(axis=(1, 3)), B)
