"""Rules of the red–blue pebble game: moves, their legality, and the states that they lead to.

A red pebble is a word of fast memory, a blue one is in slow memory. Source: Hong and Kung 1981;
the one-shot game: Papp and Wattenhofer 2020.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import ledger
from ..sizes import positive_int, truth
from .graphs import Graph, Vertex

KINDS = ("load", "store", "compute", "slide", "delete")


class IllegalMove(ValueError):
    """A move that breaks a rule, or a pebbling that ends with an output not stored."""


class Move(NamedTuple):
    """One move of the game. `parent` is the vertex whose red pebble slides; None in other moves."""

    kind: str  # one of KINDS
    vertex: Vertex
    parent: Vertex | None = None

    def __str__(self) -> str:
        if self.kind == "slide":
            return f"slide {self.parent} to {self.vertex}"
        return f"{self.kind} {self.vertex}"


class State(NamedTuple):
    """State of the game after `move`: vertices with red and blue pebbles, computed ones, and words moved."""

    move: Move | None  # None before the first move
    red: frozenset[Vertex]
    blue: frozenset[Vertex]
    computed: frozenset[Vertex]
    cost: int


@dataclass(frozen=True)
class Game:
    """Pebble game on `graph` with M red pebbles.

    `recompute=False` is the one-shot game: each vertex is computed at most once. With `slide=True` the
    result of a computation may take the red pebble of one of its parents.
    """

    graph: Graph
    M: int
    recompute: bool = True
    slide: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "graph", Graph.of(self.graph))
        object.__setattr__(self, "M", positive_int("M", self.M))
        for name in ("recompute", "slide"):
            object.__setattr__(self, name, truth(name, getattr(self, name)))

    @property
    def smallest_M(self) -> int:
        """Minimum number of red pebbles for computing every output: the largest need of one computation."""
        parents = [len(self.graph.parents[v]) for v in self.graph.needed]
        return max(parents) + (not self.slide) if any(parents) else 1

    def start(self) -> State:
        """Return the initial state: a blue pebble on every input, no red ones."""
        return State(None, frozenset(), frozenset(self.graph.inputs), frozenset(), 0)

    def finished(self, state: State) -> bool:
        """Return True if every output has a blue pebble."""
        return state.blue.issuperset(self.graph.outputs)

    def lost(self, state: State) -> list[Vertex]:
        """Return the needed vertices that are in neither memory and may not be recomputed.

        If there is one, the game cannot be finished.
        """
        gone = set() if self.recompute else state.computed - state.red - state.blue
        ahead = {parent for v in set(self.graph.needed) - state.computed for parent in self.graph.parents[v]}
        return [v for v in self.graph.vertices if v in gone & ahead.union(self.graph.outputs)]

    def after(self, state: State, move: Move | str) -> State:
        """Return the state after `move`. Raises IllegalMove, with the move and the rule that it breaks."""
        move = self.move(move)
        objection = self.objection(state, move)
        if objection:
            raise IllegalMove(f"{move}: {objection}")
        kind, vertex, parent = move
        red, blue, computed, cost = state.red, state.blue, state.computed, state.cost
        if kind == "store":
            blue |= {vertex}
        elif kind == "delete":
            red -= {vertex}
        else:
            red = (red - {parent}) | {vertex} if kind == "slide" else red | {vertex}
        if kind in ("compute", "slide"):
            computed |= {vertex}
        return State(move, red, blue, computed, cost + (kind in ("load", "store")))

    def legal(self, state: State) -> tuple[Move, ...]:
        """Return all legal moves, in the order of KINDS and of the graph's vertices."""
        moves = [
            Move(kind, v, parent)
            for kind in KINDS
            for v in self.graph.vertices
            for parent in (self.graph.parents[v] if kind == "slide" else (None,))
        ]
        return tuple(move for move in moves if not self.objection(state, move))

    def objection(self, state: State, move: Move) -> str:
        """Return the rule that `move` breaks, as a sentence; "" if it is legal."""
        kind, v, _ = move
        if kind == "store" or kind == "delete":
            return self._takes(state, kind, v)
        if v in state.red:
            return f"{v} has a red pebble already"
        if kind == "load" and v not in state.blue:
            return f"{v} has no blue pebble, so it is not in slow memory"
        if kind != "load" and (wrong := self._computes(state, move)):
            return wrong
        if kind != "slide" and len(state.red) >= self.M:
            resident = _listed(v for v in self.graph.vertices if v in state.red)
            return f"all M = {self.M} red pebbles are in use: {resident}"
        return ""

    def _takes(self, state: State, kind: str, v: Vertex) -> str:
        if v not in state.red:
            return f"{v} has no red pebble, so it is not in fast memory"
        return f"{v} has a blue pebble already" if kind == "store" and v in state.blue else ""

    def _computes(self, state: State, move: Move) -> str:
        kind, v, parent = move
        parents = self.graph.parents[v]
        if not parents:
            return f"{v} is an input: it is loaded, not computed"
        missing = [p for p in parents if p not in state.red]
        if missing:
            return f"its parent {missing[0]} has no red pebble"
        if kind == "slide" and not self.slide:
            return "this game has no sliding moves (slide=False)"
        if kind == "slide" and parent not in parents:
            return f"{parent} is not a parent of {v}"
        if v in state.computed and not self.recompute:
            return f"{v} was computed before, and this game computes each vertex once (recompute=False)"
        return ""

    def move(self, move: Move | str) -> Move:
        """Parse a move: "load a", "store a", "compute c", "slide a to c", "delete a".

        Raises IllegalMove if the text is not a move, or contains an unknown vertex.
        """
        kind, *names = _words(move) if isinstance(move, str) else _fields(move)
        if kind not in KINDS:
            raise IllegalMove(f"{move}: a move must be one of {', '.join(KINDS)}")
        wanted = 2 if kind == "slide" else 1
        if len(names) != wanted:
            raise IllegalMove(f"{move}: write it as '{kind} {'a to c' if kind == 'slide' else 'a'}'")
        known: dict[Any, Vertex] = {str(v): v for v in self.graph.vertices} if isinstance(move, str) else {}
        vertices = [known.get(name, name) for name in names]
        for vertex in vertices:
            if vertex not in self.graph.parents:
                raise IllegalMove(f"{move}: the graph has no vertex {vertex}")
        return Move(kind, vertices[-1], vertices[0] if kind == "slide" else None)


def replay(
    graph: Any, moves: Iterable[Move | str], M: int, *, recompute: bool = True, slide: bool = False
) -> list[State]:
    """Return the states of a pebbling: the initial state, then one state after each move.

    Moves are Move objects or strings such as "load a"; the pebbling need not be finished. Raises IllegalMove
    with the number of the first move that breaks a rule, the move and the rule.
    """
    game = Game(graph, M, recompute, slide)
    states = [game.start()]
    for number, move in enumerate(moves, start=1):
        try:
            states.append(game.after(states[-1], move))
        except IllegalMove as error:
            raise IllegalMove(f"move {number}, {error}") from None
    return states


def cost_of(
    graph: Any, moves: Iterable[Move | str], M: int, *, recompute: bool = True, slide: bool = False
) -> int:
    """Return the words moved by a finished pebbling: the number of its loads and stores.

    Raises IllegalMove if a move breaks a rule, or if an output has no blue pebble at the end.
    """
    graph = Graph.of(graph)
    last = replay(graph, moves, M, recompute=recompute, slide=slide)[-1]
    missing = [v for v in graph.outputs if v not in last.blue]
    if missing:
        raise IllegalMove(
            f"at the end the outputs {_listed(missing)} are not stored (no blue pebble). Store them"
        )
    return last.cost


def ledger_of(
    graph: Any, moves: Iterable[Move | str], M: int, *, recompute: bool = True, slide: bool = False
) -> ledger.Ledger:
    """Return the ledger of a pebbling, with each vertex an array of one word. Raises as `replay` does."""
    record = ledger.Ledger(measured=True)
    for state in replay(graph, moves, M, recompute=recompute, slide=slide):
        record.peak = max(record.peak, len(state.red))
        if state.move is not None:
            _write(record, state.move, len(state.red))
    return record


_EVENTS = {"load": "load", "store": "store", "compute": "new", "slide": "new", "delete": "free"}


def _write(record: ledger.Ledger, move: Move, resident: int) -> None:
    name = str(move.vertex)
    record.sizes[name] = 1
    counts = {"load": record.reads, "store": record.writes}.get(move.kind, {})
    counts[name] = counts.get(name, 0) + 1
    if move.kind == "slide":
        record.moves.append(ledger.Move("free", str(move.parent), None, None, 1, resident - 1))
    record.moves.append(ledger.Move(_EVENTS[move.kind], name, None, None, 1, resident))


def _words(text: str) -> list[str]:
    words = text.split()
    return [*words[:2], *words[3:]] if words[2:3] == ["to"] else words or [""]


def _fields(move: Any) -> list[Any]:
    try:
        kind, vertex, parent = Move(*move)
    except TypeError:
        raise IllegalMove(f"a move must be a string such as 'load a' or a Move, got {move!r}") from None
    return [kind, vertex] if parent is None else [kind, parent, vertex]


def _listed(vertices: Iterable[Vertex]) -> str:
    return ", ".join(str(v) for v in vertices)
