"""Figures of N x N scores: the order of tiles in a schedule, and the attention weights of a head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .... import costs
from ....machine import positive_int
from ....schedules import get
from ..draw.palette import GRID, INK, QUIET, VERMILION, ink_on, ramp
from ..draw.picture import NORMAL, SMALL, Element, Picture, Rect, Text, centred, figure, text_width, titled
from ..draw.shapes import Square, Tile, colour_cells, outline, place
from ..models.memory_states import dry_trace, frozen, memory_states, visits

TRACED_MOVES = 8000
DRAWN_TILES = 1600


# ---------------------------------------------------------------------- order of tiles
@figure
def tile_order(
    schedule_name: str, N: int, d: int, tiles: Mapping[str, int], step: int | None = None
) -> Picture:
    """The tiles of N x N scores, numbered and shaded in the order in which a schedule computes them.

    Only the first 1,600 tiles are drawn.

    Args:
        schedule_name: name of a schedule.
        N: sequence length.
        d: head dimension.
        tiles: tile sizes of the schedule, such as `{"Br": 64, "Bc": 32}`.
        step: index of a tile to outline.

    Raises:
        ValueError: an unknown schedule, a size below 1, or a step that is not drawn.
        TypeError: tile sizes that the schedule does not have.
    """
    N, d = positive_int("N", N), positive_int("d", d)
    order = visits(memory_states(dry_trace(schedule_name, N, d, frozen(tiles), TRACED_MOVES)))[:DRAWN_TILES]
    if step is not None and not 0 <= step < len(order):
        raise ValueError(f"step must be from 0 to {len(order) - 1} for {schedule_name} here, got {step}")
    rows, columns = (costs.ceil_div(N, min(tiles.get(name, N), N)) for name in ("Br", "Bc"))
    sizes = ", ".join(f"{name} = {value:,}" for name, value in tiles.items())
    title = f"{get(schedule_name).title}: the order of tiles, N = {N:,}, {sizes}"
    square = Square(70, 78, 400, N)
    drawn: list[Element] = [square.paper()]
    for k, tile in enumerate(order):  # light to dark, numbered if large enough
        drawn += _numbered(square.box(*tile), k, 0.08 + 0.85 * k / max(len(order) - 1, 1))
    drawn += [] if step is None else outline(square.box(*order[step]))
    drawn += [*square.names("rows of K and V", "rows of Q and O"), *_order_key(500, 96, order, step)]
    drawn += [Text(500, 440 + 18 * k, part, SMALL) for k, part in enumerate(_reach(order, N).split(", "))]
    alt, numbers = _order_words(schedule_name, N, order, step, rows, columns)
    return titled(title, (760.0, 500.0), alt, numbers, drawn)


def _numbered(box: Rect, number: int, share: float) -> Iterator[Element]:
    colour = ramp(share)
    edge = GRID if min(box.width, box.height) >= 4 else ""
    yield Rect(box.x, box.y, box.width, box.height, colour, "", edge, 0.7)
    label = str(number)
    size = min(NORMAL, box.height - 3, 0.8 * box.width / text_width(label, 1.0))
    if size >= 9:
        middle = centred(box.y + box.height / 2, size)
        yield Text(box.x + box.width / 2, middle, label, size, "middle", ink_on(colour))


def _order_key(x: float, y: float, order: Sequence[Tile], step: int | None) -> Iterator[Element]:
    yield Text(x, y, "order", NORMAL, bold=True)
    for k in range(20):
        yield Rect(x + 9 * k, y + 14, 9, 22, ramp(0.08 + 0.85 * k / 19))
    yield Text(x, y + 54, "first: 0", SMALL)
    yield Text(x + 180, y + 54, f"last drawn: {max(len(order) - 1, 0):,}", SMALL, "end")
    if step is not None:
        rows, columns = place(order[step]).split(", ")
        yield Rect(x, y + 84, 22, 22, "", "", VERMILION, 3.5)
        yield Text(x + 34, y + 92, f"tile {step:,}: {rows},", SMALL)
        yield Text(x + 34, y + 109, columns, SMALL)


LISTED = 6  # tiles listed in the numbers


def _order_words(
    name: str, N: int, order: Sequence[Tile], step: int | None, rows: int, columns: int
) -> tuple[str, str]:
    if not order:
        nothing = f"{name} computes no tile of scores in its first {TRACED_MOVES:,} moves"
        return f"An empty {N:,} by {N:,} grid of scores: {nothing}.", f"{nothing}."
    way = _direction(order)
    reach = _reach(order, N)
    alt = f"The {N:,} by {N:,} scores of {name} in {rows:,} by {columns:,} tiles, numbered and shaded from "
    alt += f"light to dark in the order of computation: {way}. {reach}"
    listed = [f"tile {k:,}: {place(tile)}" for k, tile in enumerate(order[:LISTED])]
    which = f"; the first {LISTED}" if len(order) > LISTED else ""
    if step is not None:
        alt += f" Tile {step:,} is outlined: {place(order[step])}."
    return alt, "\n".join([f"{len(order):,} tiles drawn, {way}{which}:", *listed])


def _direction(order: Sequence[Tile]) -> str:
    if len(order) == 1:
        return "one tile"
    (rows, columns), (next_rows, next_columns) = order[0], order[1]
    if rows == next_rows:
        return "along each row of tiles, then the next row"
    if columns == next_columns:
        return "down each column of tiles, then the next column"
    return "in another order"


def _reach(order: Sequence[Tile], N: int) -> str:
    covered = sum((rows[1] - rows[0]) * (columns[1] - columns[0]) for rows, columns in set(order))
    if covered >= N * N:
        return "Every score is covered."
    return f"Only the first {len(order):,} tiles are drawn, {covered / N**2:.1%} of the scores."


# ---------------------------------------------------------------------- a head's attention
@figure
def attention_map(
    P: Any, tokens: Sequence[str] | None = None, *, title: str = "Attention weights"
) -> Picture:
    """Heat map of attention weights P (N, N): rows are queries, columns are keys, dark is large.

    Args:
        P: attention weights, (N, N).
        tokens: N labels of rows and columns.
        title: of the figure.

    Raises:
        ValueError: P is not square or has negative or non-finite entries, or there are not N tokens.
    """
    weights = np.asarray(P, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1] or not weights.size:
        raise ValueError(f"P must be one square matrix (N, N), got shape {weights.shape}")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError(
            "P must have entries that are 0 or more and finite, but some are negative or not finite"
        )
    N = len(weights)
    if tokens is not None and len(tokens) != N:
        raise ValueError(f"tokens must have one entry for each of the N = {N} rows of P, got {len(tokens)}")
    names = [str(token) for token in tokens] if tokens is not None and N <= 32 else []
    margin = 46 + max([text_width(name, SMALL) for name in names], default=24)
    side = 440.0 if N <= 32 else 480.0
    y = 62 + (margin - 36 if names else 14)
    largest, frame = float(weights.max()), Rect(margin, y, side, side, "", "", QUIET)
    drawn: list[Element] = [colour_cells(frame, SHADES, _shades(weights / (largest or 1.0))), frame]
    drawn += _token_labels(names, margin, y, side / N) if names else _index_labels(N, margin, y, side)
    # The colour bar is linear in the weight, with the shades of the map.
    bar = Rect(margin + side + 34, y, 22, side, "", "", QUIET)
    drawn += [colour_cells(bar, SHADES, _shades(np.linspace(1.0, 0.0, 128))[:, None]), bar]
    for quarter in range(5):
        label = f"{largest * (4 - quarter) / 4:.2g}"
        drawn.append(Text(bar.x + 28, centred(y + side * quarter / 4, SMALL), label, SMALL))
    drawn.append(Text(bar.x, y - 8, "weight", SMALL, colour=INK))
    alt, numbers = _map_words(weights, tokens, title)
    return titled(title, (margin + side + 130, y + side + 24), alt, numbers, drawn)


SHADES = [ramp(k / 255) for k in range(256)]


def _shades(shares: Any) -> Any:
    """Return shade indices for shares; the square root makes small weights visible."""
    return np.rint(255 * np.sqrt(np.clip(shares, 0, 1))).astype(np.intp)


def _token_labels(names: Sequence[str], x: float, y: float, cell: float) -> Iterable[Element]:
    size = min(SMALL, max(9.0, cell - 2))
    for k, name in enumerate(names):
        yield Text(x - 6, centred(y + (k + 0.5) * cell, size), name, size, "end")
        yield Text(centred(x + (k + 0.5) * cell, size), y - 6, name, size, turned=True)
    yield Text(x - 6, y - 6, "query ↓  key →", SMALL, "end", QUIET)


def _index_labels(N: int, x: float, y: float, side: float) -> Iterable[Element]:
    stride = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500, N) if 8 * s >= N or s >= N)
    for k in range(0, N, stride):
        at = (k + 0.5) * side / N
        yield Text(x - 6, centred(y + at, SMALL), str(k), SMALL, "end", QUIET)
        yield Text(x + at, y - 6, str(k), SMALL, "middle", QUIET)
    yield Text(x, y - 22, "key (column) →, query (row) ↓", SMALL, colour=QUIET)


def _map_words(weights: np.ndarray, tokens: Sequence[str] | None, title: str) -> tuple[str, str]:
    N = len(weights)
    # The first of nearly equal maxima: rounding errors must not change the result.
    largest = int((weights >= weights.max() * (1 - 1e-6)).argmax())
    row, column = (int(k) for k in np.unravel_index(largest, weights.shape))
    where = f"row {row}, column {column}"
    if tokens is not None:
        where += f' ("{tokens[row]}" to "{tokens[column]}")'
    sorted_rows = -np.sort(-weights, axis=1)
    held = np.cumsum(sorted_rows, axis=1) >= 0.9 * sorted_rows.sum(axis=1, keepdims=True) - 1e-12
    needed = float(np.median(held.argmax(axis=1) + 1))  # keys with 90 % of the weight of a row
    attended = int(weights.sum(axis=0).argmax())
    alt = (
        f"{title}: a {N} by {N} heat map, one row for each query, darker where the weight is larger. "
        f"The largest weight is {weights.max():.3g} at {where}. 90 % of the weight of a row is in {needed:g} "
        f"of its {N} keys (median); column {attended} has the largest total weight."
    )
    numbers = (
        f"N = {N}\nlargest weight {weights.max():.3g} at {where}\n"
        f"keys with 90 % of the weight of a row: {needed:g} (median)\n"
        f"column with the largest total weight: {attended}"
    )
    if tokens is not None:
        numbers += f' ("{tokens[attended]}")'
    return alt, numbers
