"""Pictures of N x N scores: the order in which a schedule visits their tiles, a real head's attention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ... import costs
from ...machine import positive_int
from ...schedules import get
from ..draw.palette import GRID, INK, QUIET, VERMILION, ink_on, ramp
from ..draw.picture import NORMAL, SMALL, Element, Picture, Rect, Text, centred, figure, text_width, titled
from ..draw.shapes import Square, Tile, colour_cells, outline, place
from ..models.memory_states import dry_trace, frozen, states, visits

TRACED_MOVES = 8000
DRAWN_TILES = 1600


# ---------------------------------------------------------------------- order of tiles
@figure
def tile_order(
    schedule_name: str, N: int, d: int, tiles: Mapping[str, int], step: int | None = None
) -> Picture:
    """The N x N scores cut into tiles, numbered and shaded in the order in which a schedule works on them.

    `tiles` are the schedule's tile sizes, as {"Br": 64, "Bc": 32}. `step` outlines that tile, counted from 0.
    Only the first visits are drawn where there are very many. Raises ValueError for an unknown schedule,
    sizes below 1, a step that is not drawn; TypeError for tile sizes the schedule does not have.
    """
    N, d = positive_int("N", N), positive_int("d", d)
    order = visits(states(dry_trace(schedule_name, N, d, frozen(tiles), TRACED_MOVES)))[:DRAWN_TILES]
    if step is not None and not 0 <= step < len(order):
        raise ValueError(f"step = {step}: {schedule_name} has the tiles 0 to {len(order) - 1} here")
    rows, columns = (costs.ceil_div(N, min(tiles.get(name, N), N)) for name in ("Br", "Bc"))
    sizes = ", ".join(f"{name} = {value:,}" for name, value in tiles.items())
    title = f"{get(schedule_name).title}: the order of tiles, N = {N:,}, {sizes}"
    square = Square(70, 78, 400, N)
    drawn: list[Element] = [square.paper()]
    for k, tile in enumerate(order):  # light to dark, numbered where there is room
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


LISTED = 6  # tiles named in words; the picture numbers all of them


def _order_words(
    name: str, N: int, order: Sequence[Tile], step: int | None, rows: int, columns: int
) -> tuple[str, str]:
    if not order:
        nothing = f"{name} visits no tile of scores within its first {TRACED_MOVES:,} moves"
        return f"An empty {N:,} by {N:,} grid of scores: {nothing}.", f"{nothing}."
    way = _direction(order)
    reach = _reach(order, N)
    alt = f"The {N:,} by {N:,} scores of {name} in {rows:,} by {columns:,} tiles, numbered and shaded from "
    alt += f"light to dark in the order of work: {way}. {reach}"
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
    return "neither row by row nor column by column"


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
    """The weights P (N, N), each row a query, each column a key, dark where the weight is large.

    `tokens` names rows and columns. Raises ValueError where P is not square, has negative or non-finite
    entries, or where there are not N tokens.
    """
    weights = np.asarray(P, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[0] != weights.shape[1] or not weights.size:
        raise ValueError(f"P has shape {weights.shape}; a map needs one square matrix (N, N)")
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("P has entries that are negative or not finite; attention weights are neither")
    N = len(weights)
    if tokens is not None and len(tokens) != N:
        raise ValueError(f"{len(tokens)} tokens for N = {N} rows of P; there must be one for each row")
    names = [str(token) for token in tokens] if tokens is not None and N <= 32 else []
    margin = 46 + max([text_width(name, SMALL) for name in names], default=24)
    side = 440.0 if N <= 32 else 480.0
    y = 62 + (margin - 36 if names else 14)
    largest, frame = float(weights.max()), Rect(margin, y, side, side, "", "", QUIET)
    drawn: list[Element] = [colour_cells(frame, SHADES, _shades(weights / (largest or 1.0))), frame]
    drawn += _token_labels(names, margin, y, side / N) if names else _index_labels(N, margin, y, side)
    # The bar has equal steps of weight, as the map shades them.
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
    """The square root of a share: small weights, which are most of them, stay visible."""
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
    # The first of the largest: which one of many near 1 is larger by a rounding error differs by machine.
    largest = int((weights >= weights.max() * (1 - 1e-6)).argmax())
    row, column = (int(k) for k in np.unravel_index(largest, weights.shape))
    where = f"row {row}, column {column}"
    if tokens is not None:
        where += f' ("{tokens[row]}" to "{tokens[column]}")'
    sorted_rows = -np.sort(-weights, axis=1)
    held = np.cumsum(sorted_rows, axis=1) >= 0.9 * sorted_rows.sum(axis=1, keepdims=True) - 1e-12
    needed = float(np.median(held.argmax(axis=1) + 1))  # keys that hold 90 % of a row's weight
    attended = int(weights.sum(axis=0).argmax())
    alt = (
        f"{title}: a {N} by {N} heat map, one row for each query, darker where the weight is larger. "
        f"The largest weight is {weights.max():.3g} at {where}. A row needs {needed:g} of its {N} keys "
        f"(median) to hold 90 % of its weight; column {attended} receives the most."
    )
    numbers = (
        f"N = {N}\nlargest weight {weights.max():.3g} at {where}\n"
        f"keys that hold 90 % of a row's weight: {needed:g} (median)\n"
        f"column with the most weight: {attended}"
    )
    if tokens is not None:
        numbers += f' ("{tokens[attended]}")'
    return alt, numbers
