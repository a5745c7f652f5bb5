"""Row statistics of online softmax (running maximum and sum), updated with the four free registers only."""

from __future__ import annotations

from types import TracebackType

import numpy as np

from .errors import ShapeMismatch, UntrackedArray
from .tiles import Tile


class RowStats:
    """Running maximum m and running sum l of online softmax, two words per row.

    After any number of updates, l_i = Σ exp(s_ij - m_i) over all scores processed so far. An update works
    row by row in at most four registers, so it uses no words of fast memory.
    """

    def __init__(self, m: Tile, l: Tile) -> None:
        for name, part in (("m", m), ("l", l)):
            if not isinstance(part, Tile):
                raise UntrackedArray(f"{name} must be a tile, got {type(part).__name__}")
        if m.ndim != 1 or m.shape != l.shape:
            raise ShapeMismatch(f"m and l must both have shape (rows,), got {m.shape} and {l.shape}")
        self.m, self.l = m, l

    def __enter__(self) -> RowStats:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.m.__exit__(kind, error, trace)
        self.l.__exit__(kind, error, trace)

    def free(self) -> None:
        """Free both tiles, m and l."""
        self.m.free()
        self.l.free()

    def update(self, s: Tile, o: Tile | None = None) -> None:
        """Update m and l with scores s (rows, cols), set s to exp(s - new m) and rescale o to the new m."""
        parts = [s] if o is None else [s, o]
        self._require_rows(*parts)
        if s is o:
            raise ShapeMismatch(f"s and o must be different tiles, got {s.name} for both")
        if s._data is None:
            return
        factor = self._take_in(s._data)
        if o is not None:
            _scale_rows(o, factor)

    def _take_in(self, s: np.ndarray) -> np.ndarray:
        """Update s, m and l in place and return exp(old m - new m), the factor of the output."""
        m, l = _values(self.m), _values(self.l)
        m_new = np.maximum(m, s.max(axis=1))
        shift = np.where(np.isneginf(m_new), 0.0, m_new)  # a row with only -inf scores keeps l = 0
        factor: np.ndarray = np.exp(m - shift)
        s -= shift[:, None]
        np.exp(s, out=s)
        l *= factor
        l += s.sum(axis=1)
        m[:] = m_new
        return factor

    def normalise(self, o: Tile) -> None:
        """Divide o by l row by row, in place; a row with l = 0 (every score masked) becomes zeros."""
        self._require_rows(o)
        if o._data is not None:
            l = _values(self.l)
            _scale_rows(o, np.divide(1.0, l, out=np.zeros_like(l), where=l > 0))

    def unnormalise(self, o: Tile) -> None:
        """Multiply o by l row by row, in place: undo `normalise` before the next update."""
        self._require_rows(o)
        if o._data is not None:
            _scale_rows(o, _values(self.l))

    def lse(self) -> Tile:
        """Replace m by m + log l, the log-sum-exp L of each row, and return that tile; call it last."""
        self._require_rows()
        if self.m._data is not None:
            with np.errstate(divide="ignore"):
                self.m._data += np.log(_values(self.l))
        return self.m

    def _require_rows(self, *tiles: Tile) -> None:
        """Raise an error unless m, l and `tiles` are in fast memory and each tile has as many rows as m."""
        for part in (self.m, self.l, *tiles):
            self.m._machine._arithmetic.tile(part)
        for tile in tiles:
            if tile.ndim != 2 or tile.shape[0] != self.m.shape[0]:
                rows = self.m.shape[0]
                raise ShapeMismatch(
                    f"{tile.name} has shape {tile.shape}, but the row statistics have {rows} rows; "
                    f"expected shape ({rows}, columns)"
                )


def _values(tile: Tile) -> np.ndarray:
    assert tile._data is not None, "a tile of a dry machine has no values"
    return tile._data


def _scale_rows(o: Tile, factor: np.ndarray) -> None:
    values = _values(o)
    values *= factor[:, None]


def probabilities(s: Tile, L: Tile) -> Tile:
    """Recompute the softmax weights from the log-sum-exp: replace scores s by exp(s - L) and return s.

    s has shape (rows, cols) and L (rows,). A row with L = -inf (every score masked) becomes zeros.
    Raises ShapeMismatch.
    """
    if not isinstance(L, Tile):
        raise UntrackedArray(f"L must be a tile, got {type(L).__name__}")
    RowStats(L, L)._require_rows(s)
    if s._data is not None:
        shift = _values(L)
        s._data -= np.where(np.isneginf(shift), np.inf, shift)[:, None]
        np.exp(s._data, out=s._data)
    return s
