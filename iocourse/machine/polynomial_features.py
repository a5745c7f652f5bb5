"""Polynomial features of one row. Each is computed in a free register and used at once, so none is stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .errors import MachineError, ShapeMismatch, UntrackedArray
from .tiles import Tile


class Features:
    """Polynomial features φ(x) of a row x: φ_f(x) = weight_f · Π x[a] over a in `factors[f]`.

    `factors` and `weights` are part of the program and use no words of fast memory. One register holds the
    running product and another the sum, so the updates below use no words either.

    Args:
        factors: per feature, the positions of the coordinates that it multiplies, repeated for powers.
        weights: one number per feature (default: 1).

    Raises:
        ValueError: no features, a negative position, or numbers of weights and features that differ.
    """

    def __init__(self, factors: Sequence[Sequence[int]], weights: Sequence[float] | None = None) -> None:
        rows = [[int(axis) for axis in row] for row in factors]
        numbers = [1.0] * len(rows) if weights is None else [float(weight) for weight in weights]
        if not rows or len(numbers) != len(rows):
            raise ValueError(
                f"expected at least one feature and one weight per feature, got {len(rows)} features and "
                f"{len(numbers)} weights"
            )
        if min((axis for row in rows for axis in row), default=0) < 0:
            raise ValueError("factors must hold positions of at least 0, got a negative one")
        self._needs_d = 1 + max((axis for row in rows for axis in row), default=0)
        longest = max(map(len, rows))
        # -1 is the position of a 1 appended to the row; it pads the shorter products.
        self._factors = np.array([row + [-1] * (longest - len(row)) for row in rows], dtype=np.int64)
        self._weights = np.array(numbers)

    def __len__(self) -> int:
        return len(self._weights)

    def add_outer(self, state: Tile, x: Tile, v: Tile | None = None) -> None:
        """Add φ(x)ᵀ v to `state` in place.

        Shapes: state (features, columns), x (1, d), v (1, columns), or None for ones. Raises ShapeMismatch.
        """
        used = (x,) if v is None else (x, v)
        self._require(state, *used)
        _require_other(state, *used)
        if state._data is not None and x._data is not None:
            with np.errstate(all="ignore"):
                state._data += self._of(x._data[0])[:, None] * (1.0 if v is None else v._data)

    def add_matmul(self, o: Tile, x: Tile, state: Tile) -> None:
        """Add φ(x) @ state to `o` in place.

        Shapes: o (1, columns), x (1, d), state (features, columns). Raises ShapeMismatch.
        """
        self._require(state, x, o)
        _require_other(o, x, state)
        if o._data is not None and x._data is not None and state._data is not None:
            with np.errstate(all="ignore"):
                o._data += self._of(x._data[0]) @ state._data

    def add_gradient(self, dx: Tile, x: Tile, state: Tile, y: Tile) -> None:
        """Add the gradient of φ(x) state yᵀ with respect to x to `dx` in place.

        Shapes: dx and x (1, d), state (features, columns), y (1, columns). Raises ShapeMismatch.
        One register holds the product of y and one row of the state. It is multiplied by the other
        coordinates of the feature and added to the entry of dx of the coordinate that is left out.
        """
        self._require(state, x, y)
        if state._machine._arithmetic.tile(dx).shape != x.shape:
            raise ShapeMismatch(
                f"{dx.name} has shape {dx.shape}, but a gradient with respect to {x.name} has shape {x.shape}"
            )
        _require_other(dx, x, state, y)
        if dx._data is not None and x._data is not None and state._data is not None and y._data is not None:
            with np.errstate(all="ignore"):
                slopes = self._slopes(x._data[0], self._weights * (state._data @ y._data[0]))
                np.add.at(dx._data[0], *slopes)

    def _slopes(self, x: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinate of each factor and its derivative: weight times the other factors."""
        given = np.append(x, 1.0)[self._factors]
        others = [np.delete(given, at, axis=1).prod(axis=1) for at in range(given.shape[1])]
        slopes = weights[:, None] * np.array(others).T.reshape(given.shape)
        real = self._factors >= 0
        return self._factors[real], slopes[real]

    def _of(self, x: np.ndarray) -> np.ndarray:
        found: np.ndarray = self._weights * np.append(x, 1.0)[self._factors].prod(axis=1)
        return found

    def _require(self, state: Tile, x: Tile, row: Tile | None = None) -> None:
        """Raise an error unless all tiles are in fast memory and their shapes match."""
        if not isinstance(state, Tile):
            raise UntrackedArray(f"state must be a tile, got {type(state).__name__}")
        for tile in (state, x) if row is None else (state, x, row):
            state._machine._arithmetic.tile(tile)
        if x.ndim != 2 or x.shape[0] != 1 or x.shape[1] < self._needs_d:
            raise ShapeMismatch(
                f"{x.name} has shape {x.shape}; expected one row with at least {self._needs_d} columns"
            )
        if state.ndim != 2 or len(state) != len(self):
            raise ShapeMismatch(
                f"{state.name} has shape {state.shape}; expected {len(self)} rows, one per feature"
            )
        if row is not None and row.shape != (1, state.shape[1]):
            raise ShapeMismatch(
                f"{row.name} has shape {row.shape}; with {state.name} {state.shape} it must be "
                f"(1, {state.shape[1]})"
            )


def _require_other(target: Tile, *used: Tile) -> None:
    """Raise MachineError if `target` is one of `used`, because later features need their old words."""
    if target._serial in (tile._serial for tile in used):
        raise MachineError(
            f"{target.name} cannot be updated in place with features times itself: "
            "its old words are still needed"
        )
