"""The statistics of online softmax, updated row by row in at most four free registers."""

from __future__ import annotations

from types import TracebackType

import numpy as np

from .errors import ShapeMismatch, UntrackedArray
from .tiles import Tile


class RowStats:
    """The running maximum m and running sum l of online softmax, one pair a row: 2·rows words.

    After any number of updates, l_i = Σ exp(s_ij - m_i) over all the scores seen. The update works
    row by row in at most four registers, so it takes no room in fast memory.
    """

    def __init__(self, m: Tile, l: Tile) -> None:
        for name, part in (("m", m), ("l", l)):
            if not isinstance(part, Tile):
                raise UntrackedArray(f"{name} must be a tile, not a {type(part).__name__}")
        if m.ndim != 1 or m.shape != l.shape:
            raise ShapeMismatch(f"m has shape {m.shape} and l {l.shape}; both need one word for each row")
        self.m, self.l = m, l

    def __enter__(self) -> RowStats:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.m.__exit__(kind, error, trace)
        self.l.__exit__(kind, error, trace)

    def free(self) -> None:
        """Give the room of both rows back."""
        self.m.free()
        self.l.free()

    def update(self, s: Tile, o: Tile | None = None) -> None:
        """Take in scores s of shape (rows, cols): s becomes exp(s - new m), o is rescaled to the new m."""
        parts = [s] if o is None else [s, o]
        self._require_rows(*parts)
        if s is o:
            raise ShapeMismatch(f"{s.name} was given both as the scores and as the output")
        if s._data is None:
            return
        factor = self._take_in(s._data)
        if o is not None:
            _scale_rows(o, factor)

    def _take_in(self, s: np.ndarray) -> np.ndarray:
        """The update of s, m and l; returns exp(old m - new m)."""
        m, l = _values(self.m), _values(self.l)
        m_new = np.maximum(m, s.max(axis=1))
        shift = np.where(np.isneginf(m_new), 0.0, m_new)  # a row that has seen only -inf stays at l = 0
        factor: np.ndarray = np.exp(m - shift)
        s -= shift[:, None]
        np.exp(s, out=s)
        l *= factor
        l += s.sum(axis=1)
        m[:] = m_new
        return factor

    def normalise(self, o: Tile) -> None:
        """o /= l, row by row; a row that saw no score (l = 0) becomes zeros."""
        self._require_rows(o)
        if o._data is not None:
            l = _values(self.l)
            _scale_rows(o, np.divide(1.0, l, out=np.zeros_like(l), where=l > 0))

    def unnormalise(self, o: Tile) -> None:
        """o *= l, row by row: undo `normalise` before the next update."""
        self._require_rows(o)
        if o._data is not None:
            _scale_rows(o, _values(self.l))

    def lse(self) -> Tile:
        """m becomes m + log l, the log-sum-exp L of each row, in place; call it last."""
        self._require_rows()
        if self.m._data is not None:
            with np.errstate(divide="ignore"):
                self.m._data += np.log(_values(self.l))
        return self.m

    def _require_rows(self, *tiles: Tile) -> None:
        """Everything is in fast memory, and each tile is a matrix with one row for each pair (m, l)."""
        for part in (self.m, self.l, *tiles):
            self.m._machine._arithmetic.tile(part)
        for tile in tiles:
            if tile.ndim != 2 or tile.shape[0] != self.m.shape[0]:
                rows = self.m.shape[0]
                raise ShapeMismatch(
                    f"{tile.name} has shape {tile.shape}, but the row statistics have {rows} rows and "
                    f"work on tiles ({rows}, columns)"
                )


def _values(tile: Tile) -> np.ndarray:
    assert tile._data is not None, "asked for on a machine with values only"
    return tile._data


def _scale_rows(o: Tile, factor: np.ndarray) -> None:
    values = _values(o)
    values *= factor[:, None]


def probabilities(s: Tile, L: Tile) -> Tile:
    """s becomes exp(s - L), L the log-sum-exp of each row: softmax again, in place, from one word a row.

    A row with L = -inf has seen no score; its probabilities are zeros. Raises ShapeMismatch.
    """
    if not isinstance(L, Tile):
        raise UntrackedArray(f"L must be a tile, not a {type(L).__name__}")
    RowStats(L, L)._require_rows(s)
    if s._data is not None:
        shift = _values(L)
        s._data -= np.where(np.isneginf(shift), np.inf, shift)[:, None]
        np.exp(s._data, out=s._data)
    return s
