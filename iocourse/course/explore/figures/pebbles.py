"""Figure of a pebbling after one move: graph with pebbles, fast memory, and the neighbouring moves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import hypot
from typing import Any, NamedTuple

from ....console import table, with_unit
from ....pebbling import Game, Graph, Move, Pebbling, State, Vertex, replay
from ....sizes import zero_or_more
from ..draw.graph_layout import layout
from ..draw.palette import BLUE, GRID, INK, PAPER, QUIET, VERMILION
from ..draw.picture import (
    LARGE,
    NORMAL,
    SMALL,
    Element,
    Picture,
    Point,
    Poly,
    Rect,
    Text,
    centred,
    figure,
    text_width,
)
from ..draw.shapes import circle

MOST = 100  # vertices, the limit of `pebbling.optimum`
RADIUS = 21.0
LEFT, TOP = 40.0, 108.0  # of the vertex centres
PANEL = 290.0
SLOT = (46.0, 26.0)
SHOWN = 13  # moves in the strip
ROW = 19.0
NOW = "#FFF4E0"  # background of the shown move

MEANS = {
    "load": "{v} is loaded into fast memory: 1 word",
    "store": "{v} is stored to slow memory: 1 word",
    "compute": "{v} is computed from {parents}",
    "slide": "{v} is computed from {parents} and replaces {parent}",
    "delete": "{v} is deleted from fast memory",
}


class Play(NamedTuple):
    """A game, its states from the start on, and the index of the shown state."""

    game: Game
    states: Sequence[State]
    step: int

    @property
    def state(self) -> State:
        """The shown state."""
        return self.states[self.step]

    @property
    def last(self) -> int:
        """The number of moves."""
        return len(self.states) - 1

    @property
    def missing(self) -> list[Vertex]:
        """The outputs that have no blue pebble yet."""
        return [v for v in self.game.graph.outputs if v not in self.state.blue]


@figure
def pebbles(
    graph: Any,
    step: int | None = None,
    moves: Iterable[Move | str] | None = None,
    M: int | None = None,
    *,
    recompute: bool = True,
    slide: bool = False,
) -> Picture:
    """Pebbles on a graph after `step` moves, with the neighbouring moves.

    Args:
        graph: a Pebbling with its moves, M and rules, or an argument of `pebbling.Graph.of`.
        step: 0 is the start, k is after the k-th move; None is after the last.
        moves: as for `pebbling.replay`; None selects those of the Pebbling, or no moves.
        M: red pebbles; None selects that of the Pebbling, or the smallest M of the graph.
        recompute: True if a vertex may be computed more than once; ignored for a Pebbling.
        slide: True if a result may take the red pebble of a parent; ignored for a Pebbling.

    Raises:
        IllegalMove: a move breaks a rule; the message has its number.
        ValueError: `step` is out of range, or the graph has more than 100 vertices.
    """
    if isinstance(graph, Pebbling):
        recompute, slide = graph.recompute, graph.slide
        moves, M = graph.moves if moves is None else moves, M or graph.M
        graph = graph.graph
    game = Game(graph, 1 if M is None else M, recompute, slide)
    game = game if M is not None else Game(game.graph, game.smallest_M, recompute, slide)
    states = replay(game.graph, moves or (), game.M, recompute=recompute, slide=slide)
    last = len(states) - 1
    if step is not None and zero_or_more("step", step) > last:
        raise ValueError(f"step must be from 0 (the start) to {last}, got {step}")
    return draw_pebbles(Play(game, states, last if step is None else step))


def draw_pebbles(play: Play, chosen: Vertex | None = None) -> Picture:
    """Return the figure of a game at its shown state, with a ring around the vertex `chosen`.

    Raises:
        ValueError: the graph has more than 100 vertices.
    """
    graph, game = play.game.graph, play.game
    if len(graph) > MOST:
        raise ValueError(f"graph must have at most {MOST} vertices to be drawn, got {len(graph)}")
    board = _Board(graph)
    panel = list(_panel(play, board.right + 26, chosen))
    height = max(board.bottom + 44, max(e.y for e in panel if isinstance(e, Text)) + 24)
    width = board.right + 26 + PANEL + 18
    before = f", before {with_unit(play.last, 'move')}" if play.last else ""
    move = play.state.move
    where = f"the start{before}" if move is None else f"move {play.step} of {play.last}, {move}"
    title = f"Red-blue pebbling with M = {game.M}: {where}"
    drawn: list[Element] = [
        Text(18, 28, _cut(title, LARGE, width - 36), LARGE, bold=True),
        Text(18, 52, _cut(meaning(play), NORMAL, width - 36), NORMAL),
        *_edges(board, play),
    ]
    if chosen is not None:  # below the vertices, so it hides no mark
        drawn.append(_ring(board.at(chosen), RADIUS + 6))
    for vertex in graph.vertices:
        drawn += _vertex(board.at(vertex), vertex, play)
    alt, numbers = _in_words(play)
    alt += "" if chosen is None else f" Chosen: {chosen}."
    return Picture(width, height, title, alt, numbers, (*drawn, *panel))


def places_of(graph: Graph) -> dict[Vertex, Point]:
    """Return the centre of each vertex in the figure, in pixels."""
    board = _Board(graph)
    return {v: board.at(v) for v in graph.vertices}


def meaning(play: Play) -> str:
    """Return two sentences: the effect of the shown move, and the traffic so far."""
    state, graph = play.state, play.game.graph
    if state.move is None:
        done = "The inputs are in slow memory; fast memory is empty."
    else:
        kind, v, parent = state.move
        done = MEANS[kind].format(v=v, parent=parent, parents=_listed(graph.parents[v])) + "."
    return f"{done} {with_unit(state.cost, 'word')} moved so far."


def _listed(vertices: Iterable[Vertex]) -> str:
    return ", ".join(str(v) for v in vertices) or "none"


# ---------------------------------------------------------------------- the graph
class _Board:
    """The layout of a graph in pixels."""

    def __init__(self, graph: Graph) -> None:
        self.layout = layout(graph)
        depth = len(graph.levels) - 1
        self.across = min(max(520 / max(self.layout.width, 1), 54.0), 100.0)
        self.up = min(max(370 / max(depth, 1), 64.0), 160.0)
        self.right = max(self.layout.width * self.across + 2 * LEFT, 560.0)
        self.left = (self.right - self.layout.width * self.across) / 2
        self.bottom = TOP + depth * self.up

    def place(self, at: tuple[float, int]) -> Point:
        """Return a point of the layout in pixels; level 0 is at the bottom."""
        return self.left + at[0] * self.across, self.bottom - at[1] * self.up

    def at(self, vertex: Vertex) -> Point:
        """Return the centre of a vertex."""
        return self.place(self.layout.at[vertex])


def _edges(board: _Board, play: Play) -> Iterator[Element]:
    """Yield an arrow from each vertex to those computed from it, thick if the shown move uses it."""
    move = play.state.move
    used = move.vertex if move is not None and move.kind in ("compute", "slide") else None
    for (_, child), way in sorted(board.layout.edges.items(), key=lambda edge: edge[0][1] == used):
        points = [board.place(at) for at in way]
        ringed = move is not None and child == move.vertex
        points[-1], beside = _short_of(points[-1], points[-2], RADIUS + (8.0 if ringed else 1.0))
        thick = child == used and used is not None
        colour, line = (INK, 2.4) if thick else ("#8C8C8C", 1.1)
        yield Poly(tuple(points), colour, line)
        yield Poly((points[-1], *beside), "", 0, (), colour)


def _short_of(end: Point, before: Point, radius: float) -> tuple[Point, tuple[Point, Point]]:
    """Return the tip of an arrow from `before` to a circle around `end`, and the corners of its head."""
    length = hypot(end[0] - before[0], end[1] - before[1])
    x, y = (before[0] - end[0]) / length, (before[1] - end[1]) / length
    tip = (end[0] + x * radius, end[1] + y * radius)
    back = (tip[0] + 9 * x, tip[1] + 9 * y)
    return tip, ((back[0] - 3.5 * y, back[1] + 3.5 * x), (back[0] + 3.5 * y, back[1] - 3.5 * x))


def _vertex(at: Point, vertex: Vertex, play: Play) -> Iterator[Element]:
    """Yield a vertex: a circle with its name, filled for a red pebble, with a square for a blue one."""
    state, (x, y) = play.state, at
    red, corner = vertex in state.red, (x + 0.8 * RADIUS, y - 0.8 * RADIUS)
    if state.move is not None and vertex == state.move.vertex:
        yield circle(at, RADIUS + 6, "", 3)
    yield circle(at, RADIUS, VERMILION if red else PAPER, 1.4)
    yield _name(vertex, x, y, 2 * RADIUS - 2, red)
    if vertex in state.blue:
        yield from _blue(corner)
    elif vertex in play.game.graph.outputs:
        yield from _wanted(corner)


def _ring(at: Point, radius: float) -> Poly:
    """Return the dashed ring of the selected vertex."""
    return replace(circle(at, radius, "", 3), stroke=BLUE, dash=(5, 4))


def _blue(at: Point) -> list[Element]:
    box = Rect(at[0] - 7.5, at[1] - 7.5, 15, 15, BLUE, "", PAPER, 1.5)
    return [box, Text(at[0], centred(at[1], 11), "B", 11, "middle", PAPER, True)]


def _wanted(at: Point) -> list[Element]:
    """Return the dashed square of an output that is not stored yet."""
    (x, y), h = at, 7.0
    corners = ((x - h, y - h), (x + h, y - h), (x + h, y + h), (x - h, y + h), (x - h, y - h))
    return [Rect(x - h, y - h, 2 * h, 2 * h, PAPER), Poly(corners, BLUE, 1.6, (3, 2))]


def _name(vertex: Vertex, x: float, y: float, room: float, bold: bool) -> Text:
    """Return the name of a vertex centred at (x, y), reduced in size or truncated to fit."""
    name, size = str(vertex), SMALL
    while 1.08 * text_width(name, size) > room and size > 9:
        size -= 1
    return Text(x, centred(y, size), _cut(name, size, room), size, "middle", INK, bold)


def _cut(text: str, size: float, room: float) -> str:
    """Truncate a line to the available width."""
    while 1.08 * text_width(text, size) > room and len(text) > 2:
        text = text.removesuffix("…")[:-1] + "…"
    return text


# ---------------------------------------------------------------------- the panel next to the graph
def _panel(play: Play, left: float, chosen: Vertex | None) -> Iterator[Element]:
    """Yield fast memory, the neighbouring moves and the legend."""
    used = len(play.state.red)
    y = 92.0
    yield Text(left, y, f"fast memory: {used} of M = {play.game.M} words", NORMAL, bold=True)
    across, places = int(PANEL // SLOT[0]), slots(play)
    for k, vertex in enumerate(places):
        x, top = left + k % across * SLOT[0], y + 10 + k // across * SLOT[1]
        yield Rect(x, top, *SLOT, PAPER if vertex is None else VERMILION, "", INK, 1.2)
        if vertex is not None:
            yield _name(vertex, x + SLOT[0] / 2, top + SLOT[1] / 2, SLOT[0] - 4, True)
    y += 10 + -(-len(places) // across) * SLOT[1] + 30
    yield from _strip(play, left, y)
    yield from _legend(left, y + (min(SHOWN, len(play.states)) + 1.6) * ROW, chosen is not None)


def slots(play: Play) -> list[Vertex | None]:
    """Return the vertex in each slot of fast memory, or None; a vertex keeps its slot until it is deleted.

    There are M slots, but not more than vertices.
    """
    places: list[Vertex | None] = [None] * min(play.game.M, len(play.game.graph))
    for before, state in pairwise(play.states[: play.step + 1]):
        gone, new = before.red - state.red, state.red - before.red
        if gone or new:
            at = places.index(next(iter(gone), None))  # the slot of the deleted vertex, or the first free one
            places[at] = next(iter(new), None)
    return places


def _strip(play: Play, left: float, y: float) -> Iterator[Element]:
    """Yield the neighbouring moves with the traffic after each."""
    first = min(max(play.step - SHOWN // 2, 0), max(len(play.states) - SHOWN, 0))
    yield Text(left + 40, y, "move", SMALL, colour=QUIET)
    yield Text(left + PANEL - 8, y, "words moved", SMALL, "end", QUIET)
    yield Poly(((left, y + 5), (left + PANEL, y + 5)), GRID, 1)
    for row, k in enumerate(range(first, min(first + SHOWN, len(play.states))), start=1):
        state, here, line = play.states[k], k == play.step, y + row * ROW + 3
        if here:
            yield Rect(left, line - 14, PANEL, ROW, NOW, "", INK, 1.2)
        colour = INK if k <= play.step else QUIET
        texts = (
            (34, str(k), "end"),
            (40, _cut(str(state.move or "start"), SMALL, PANEL - 90), "start"),
            (PANEL - 8, str(state.cost), "end"),
        )
        for x, text, anchor in texts:
            yield Text(left + x, line, text, SMALL, anchor, colour, here)


def _legend(left: float, y: float, chosen: bool) -> Iterator[Element]:
    x = left + 12
    rows: list[tuple[list[Element], str]] = [
        ([circle((x, y), 8, VERMILION, 1.4)], "red pebble: in fast memory"),
        (_blue((x, y + 21)), "blue pebble: in slow memory"),
        (_wanted((x, y + 42)), "output, to be stored"),
        ([circle((x, y + 63), 8, PAPER, 3)], "the vertex of this move"),
        ([_ring((x, y + 84), 8)], "the selected vertex"),
    ]
    for k, (marks, label) in enumerate(rows if chosen else rows[:-1]):
        yield from marks
        yield Text(left + 30, centred(y + 21 * k, SMALL), label, SMALL)


# ---------------------------------------------------------------------- in words
def _in_words(play: Play) -> tuple[str, str]:
    state, game = play.state, play.game
    order = game.graph.vertices
    where = (
        "Before the first move"
        if state.move is None
        else f"After move {play.step} of {play.last}, {state.move}"
    )
    alt = (
        f"A graph of {len(game.graph)} vertices, inputs at the bottom. "
        f"{where}: {with_unit(state.cost, 'word')} moved, "
        f"{len(state.red)} of M = {game.M} red pebbles in use. "
        f"Red pebbles (in fast memory): {_listed(v for v in order if v in state.red)}. "
        f"Blue pebbles (in slow memory): {_listed(v for v in order if v in state.blue)}. "
        f"Outputs to be stored: {_listed(play.missing)}."
    )
    rows = [
        [str(k), str(at.move or "start"), str(at.cost), str(len(at.red))] for k, at in enumerate(play.states)
    ]
    return alt, table([["step", "move", "words moved", f"red of {game.M}"], *rows], left=0)
