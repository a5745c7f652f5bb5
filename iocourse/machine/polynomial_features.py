"""Monomials of a row, made one at a time in a free register and used at once: features that take no room."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .errors import MachineError, ShapeMismatch, UntrackedArray
from .tiles import Tile


class Features:
    """Feature f of a row x: weight_f times the product of x[a] over a in `factors[f]`; an empty product is 1.

    Which coordinates are multiplied, and by which constant, is the program and no word of fast memory. One
    register holds the running product, another the sum it goes into: the updates below take no room.

    Args:
        factors: for each feature the positions of the coordinates it multiplies, repeated for powers.
        weights: a number for each feature; 1 where not given.

    Raises:
        ValueError: no features, a negative position, or another number of weights than of features.
    """

    def __init__(self, factors: Sequence[Sequence[int]], weights: Sequence[float] | None = None) -> None:
        rows = [[int(axis) for axis in row] for row in factors]
        numbers = [1.0] * len(rows) if weights is None else [float(weight) for weight in weights]
        if not rows or len(numbers) != len(rows):
            raise ValueError(f"there are {len(rows)} features and {len(numbers)} weights; each has one")
        if min((axis for row in rows for axis in row), default=0) < 0:
            raise ValueError("factors holds a negative position; coordinates are counted from 0")
        self._needs_d = 1 + max((axis for row in rows for axis in row), default=0)
        longest = max(map(len, rows))
        # -1 is the position of a 1 set beside the row.
        self._factors = np.array([row + [-1] * (longest - len(row)) for row in rows], dtype=np.int64)
        self._weights = np.array(numbers)

    def __len__(self) -> int:
        return len(self._weights)

    def add_outer(self, state: Tile, x: Tile, v: Tile | None = None) -> None:
        """state += φ(x)ᵀ v: state (features, columns), x (1, d), v (1, columns), or None for ones.

        Raises ShapeMismatch.
        """
        used = (x,) if v is None else (x, v)
        self._require(state, *used)
        _require_other(state, *used)
        if state._data is not None and x._data is not None:
            with np.errstate(all="ignore"):
                state._data += self._of(x._data[0])[:, None] * (1.0 if v is None else v._data)

    def add_matmul(self, o: Tile, x: Tile, state: Tile) -> None:
        """o += φ(x) state: o (1, columns), x (1, d), state (features, columns). Raises ShapeMismatch."""
        self._require(state, x, o)
        _require_other(o, x, state)
        if o._data is not None and x._data is not None and state._data is not None:
            with np.errstate(all="ignore"):
                o._data += self._of(x._data[0]) @ state._data

    def add_gradient(self, dx: Tile, x: Tile, state: Tile, y: Tile) -> None:
        """dx += the gradient in x of φ(x) state yᵀ: dx, x (1, d), state (features, columns), y (1, columns).

        A feature's row of the state times y is one register; times the feature without one of its
        coordinates it goes into that coordinate's place. Raises ShapeMismatch.
        """
        self._require(state, x, y)
        if state._machine._arithmetic.tile(dx).shape != x.shape:
            raise ShapeMismatch(
                f"{dx.name} has shape {dx.shape}; a gradient in {x.name} has its shape {x.shape}"
            )
        _require_other(dx, x, state, y)
        if dx._data is not None and x._data is not None and state._data is not None and y._data is not None:
            with np.errstate(all="ignore"):
                slopes = self._slopes(x._data[0], self._weights * (state._data @ y._data[0]))
                np.add.at(dx._data[0], *slopes)

    def _slopes(self, x: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Which coordinate each factor is, and its feature's weight times the feature's other factors."""
        given = np.append(x, 1.0)[self._factors]
        others = [np.delete(given, at, axis=1).prod(axis=1) for at in range(given.shape[1])]
        slopes = weights[:, None] * np.array(others).T.reshape(given.shape)
        real = self._factors >= 0
        return self._factors[real], slopes[real]

    def _of(self, x: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._weights * np.append(x, 1.0)[self._factors].prod(axis=1)
        return found

    def _require(self, state: Tile, x: Tile, row: Tile | None = None) -> None:
        """All of them are in fast memory, and their shapes match."""
        if not isinstance(state, Tile):
            raise UntrackedArray(f"state must be a tile, not a {type(state).__name__}")
        for tile in (state, x) if row is None else (state, x, row):
            state._machine._arithmetic.tile(tile)
        if x.ndim != 2 or x.shape[0] != 1 or x.shape[1] < self._needs_d:
            raise ShapeMismatch(
                f"{x.name} has shape {x.shape}; these are features of one row, (1, {self._needs_d}) or longer"
            )
        if state.ndim != 2 or len(state) != len(self):
            raise ShapeMismatch(
                f"{state.name} has shape {state.shape}; there are {len(self)} features, a row each"
            )
        if row is not None and row.shape != (1, state.shape[1]):
            raise ShapeMismatch(
                f"{row.name} has shape {row.shape}; with {state.name} {state.shape} it must be "
                f"(1, {state.shape[1]})"
            )


def _require_other(target: Tile, *used: Tile) -> None:
    """A tile that is read for one feature must not change with another."""
    if target._serial in (tile._serial for tile in used):
        raise MachineError(f"{target.name} cannot take up features times itself: its old words are needed")
