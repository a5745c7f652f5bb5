"""The cheapest pebbling, by A* over steps: few enough to search, and enough to hold a cheapest pebbling.

A graph that is too large is refused, with what would be small enough.

One step: store and delete some words, load the missing parents of one vertex, compute it, store it if it is
an output. Every pebbling can be brought into this form, without one word more, by these exchanges:

1.  A load waits until the next computation uses it, a delete until its place is needed, and a store until its
    red pebble goes. Nothing in between can tell the difference.
2.  An output is stored as soon as it is computed: it must be stored once, and sooner is never worse.
3.  Any other vertex that is stored is loaded again, else the store was for nothing. Until then it is
    *parked*, is not recomputed (else the store could wait), and its load is counted beforehand.
4.  A red pebble is dropped for nothing once no vertex still to be computed needs it. So it is where the one
    child that needs it has a red pebble: wherever the pebbling would keep, store or load the vertex, it may
    do the same with the child.
5.  What can be computed from red pebbles in a free place is computed at once: it can be deleted again.
    In the one-shot game it could not be computed again; there this holds for vertices without children, and
    where a parent drops out by 4 that is not in slow memory, as the child then costs what the parent did.
    The same holds where the pebble slides from a parent that drops out by 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import comb
from typing import Any, NamedTuple

from ..console import progress_meter
from ..ledger import Ledger
from ..sizes import positive_int
from ..solution_guard import library_solution
from .graphs import Graph, Vertex
from .rules import Game, Move, State, ledger_of, replay

MAX_STATES = 5_000_000  # one to two minutes
MAX_VERTICES = 100
LAST_ASKED = 1 << 16  # answers that are remembered


class TooLarge(ValueError):
    """The search was not begun, or given up, because it would look at too many states."""


class NoPebbling(ValueError):
    """M red pebbles are too few to compute some vertex."""


@dataclass(frozen=True, repr=False)
class Pebbling:
    """A cheapest pebbling: `cost` words moved by `moves`, found after looking at `states` states."""

    graph: Graph
    M: int
    recompute: bool
    slide: bool
    cost: int
    moves: tuple[Move, ...]
    states: int

    def replay(self) -> list[State]:
        """Where the pebbles are before the first move and after each."""
        return replay(self.graph, self.moves, self.M, recompute=self.recompute, slide=self.slide)

    def ledger(self) -> Ledger:
        """What was moved: each vertex is an array of one word."""
        return ledger_of(self.graph, self.moves, self.M, recompute=self.recompute, slide=self.slide)

    def __repr__(self) -> str:
        lines = [f"{self.cost} words moved with M = {self.M}, {len(self.moves)} moves"]
        lines += [f"{number:>4}  {move}" for number, move in enumerate(self.moves, start=1)]
        return "\n".join(lines)


@library_solution
def optimum(
    graph: Any, M: int, *, recompute: bool = True, slide: bool = False, max_states: int = MAX_STATES
) -> Pebbling:
    """A cheapest pebbling of `graph` with M red pebbles; the same one every time.

    Args:
        graph: a Graph, a mapping vertex → parents or a networkx DiGraph; more in `Graph.of`.
        M: red pebbles, the words of fast memory.
        recompute: whether a vertex may be computed more than once.
        slide: whether a result may take the red pebble of one of its parents.
        max_states: how many states the search may look at before it gives up.

    Raises NoPebbling, naming the smallest M, where M is too small, and TooLarge where the search is hopeless
    or was given up.
    """
    game = Game(graph, M, recompute, slide)
    max_states = positive_int("max_states", max_states)
    _check(game)
    search = _Search(Steps(game), max_states)
    with progress_meter(f"states looked at, of at most {max_states:,}", max_states) as tell:
        path = search.run(tell)
    moves = _moves(search.steps, path)
    cost = sum(move.kind in ("load", "store") for move in moves)
    return Pebbling(game.graph, game.M, recompute, slide, cost, moves, search.tried)


def _check(game: Game) -> None:
    if game.smallest_M > game.M:
        hardest = max(game.graph.needed, key=lambda v: len(game.graph.parents[v]))
        raise NoPebbling(
            f"M = {game.M} is too small: computing {hardest} takes its parents "
            f"{', '.join(str(p) for p in game.graph.parents[hardest])}"
            f"{'' if game.slide else ' and a place for the result'}, so M must be at least {game.smallest_M}"
        )
    vertices = len(game.graph.needed)
    if vertices > MAX_VERTICES:
        ways = comb(vertices, min(game.M, vertices // 2))
        raise TooLarge(
            f"the graph has {vertices} vertices and the search takes {MAX_VERTICES} at most: "
            f"red pebbles alone can stand on them in about {ways:.0e} ways. "
            "Take a smaller graph of the same kind"
        )


class _Search:
    """A*: positions wait in stacks by the least total cost of a pebbling through them."""

    def __init__(self, steps: Steps, max_states: int) -> None:
        self.steps, self.max_states = steps, max_states
        self.start = Position(0, 0, 0, 0)
        self.reached: dict[Position, tuple[int, Position, Step]] = {self.start: (0, self.start, _NO_STEP)}
        self.waiting: dict[int, list[tuple[Position, int]]] = {}
        self.tried = 0
        self.tried_below: list[int] = []  # the states looked at when each least total cost was ruled out

    def run(self, tell: Callable[[int], None]) -> list[tuple[Position, Step, Position]]:
        """The steps of a cheapest pebbling, each between the positions before and after it.

        `tell` hears of the states that were looked at.
        """
        outputs = self.steps.board.outputs
        self._wait(self.start, 0)
        told = 0
        while True:
            least = min(self.waiting)
            stack = self.waiting[least]
            while stack:
                tell(self.tried - told)
                told = self.tried
                position, cost = stack.pop()
                if not outputs & ~position.blue:
                    return self._path(position)
                if cost == self.reached[position][0]:
                    self._expand(position, cost, least)
            del self.waiting[least]
            self.tried_below.append(self.tried)

    def _expand(self, position: Position, cost: int, least: int) -> None:
        for step in self.steps.choices(position, self.steps.todo(position)):
            self.tried += 1
            if self.tried > self.max_states:
                raise TooLarge(self._refusal(least))
            after, words = self.steps.after(position, step)
            if after is not None and (after not in self.reached or cost + words < self.reached[after][0]):
                self.reached[after] = (cost + words, position, step)
                self._wait(after, cost + words)

    def _wait(self, position: Position, cost: int) -> None:
        least = cost + self.steps.at_least(position, self.steps.todo(position))
        self.waiting.setdefault(least, []).append((position, cost))

    def _path(self, position: Position) -> list[tuple[Position, Step, Position]]:
        path = []
        while position != self.start:
            _, before, step = self.reached[position]
            path.append((before, step, position))
            position = before
        return path[::-1]

    def _refusal(self, least: int) -> str:
        game = self.steps.game
        return (
            f"{self.tried - 1:,} states were looked at and the search is not over. A cheapest pebbling moves "
            f"at least {least} words; settling whether {least} are enough would take about "
            f"{self._estimate(least):,} states. Take fewer than {len(game.graph)} vertices or more than "
            f"M = {game.M} red pebbles, make product and sum one vertex (fma=True, slide=True), "
            "or allow more states (max_states)"
        )

    def _estimate(self, least: int) -> int:
        """States until every pebbling of `least` words is seen, going by how the costs below it grew."""
        before, last = [0, 0, *self.tried_below][-2:]
        growing = last * last // before if before else 0
        waiting = len(self.waiting[least]) * self.tried // len(self.reached)
        return int(float(f"{max(growing, self.tried + waiting):.1e}"))


def _moves(steps: Steps, path: list[tuple[Position, Step, Position]]) -> tuple[Move, ...]:
    """The single moves of a path, without what is deleted after the last store."""
    moves = [move for part in path for move in steps.moves(*part)]
    while moves and moves[-1].kind == "delete":
        moves.pop()
    return tuple(moves)


# ------------------------------------------------------------------ steps
class Position(NamedTuple):
    """Where the pebbles are; all four are sets of vertices."""

    red: int
    blue: int  # computed and in slow memory; inputs are always there and not listed
    parked: int  # in slow memory too, and not loaded since it was stored
    computed: int  # one-shot game only: what may not be computed again


class Step(NamedTuple):
    """Delete `evicted`, load, compute `vertex`, on the pebble of `slid` if any; `stored` are saved first."""

    vertex: int
    evicted: int
    slid: int
    stored: int


class Steps:
    """The steps from a position, what they cost, and the least that must follow."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.board = Board.of(game.graph)
        self.M, self.recompute, self.slide = game.M, game.recompute, game.slide
        self._todo: dict[int, int] = {}
        # A search asks for the same few again and again.
        self.idle = lru_cache(LAST_ASKED)(self._idle)
        self.dropping = lru_cache(LAST_ASKED)(self._dropping)

    def todo(self, at: Position) -> int:
        """The vertices that may still have to be computed."""
        if not self.recompute:
            return self.board.inner & ~at.computed
        missing = self.board.outputs & ~at.blue
        if missing not in self._todo:
            self._todo[missing] = self.board.ancestors(missing) & self.board.inner
        return self._todo[missing]

    def at_least(self, at: Position, todo: int) -> int:
        """Words that any pebbling from here still moves, by exchange 3 with one load of each parked vertex.

        It falls by no more than a step costs, so the search never meets a position again more cheaply
        after leaving it.
        """
        board = self.board
        missing = board.outputs & ~at.blue
        if self.recompute:
            known = at.red | at.blue | at.parked
            loads = board.ancestors(missing, known) & board.inputs | at.parked
        else:
            away = (board.inputs | at.blue | at.parked) & ~at.red
            loads = sum(1 << v for v in bits(away) if board.children[v] & todo)
        return missing.bit_count() + loads.bit_count()

    def settled(self, at: Position) -> Position | None:
        """The position without pebbles that are of no more use; None where a store was for nothing."""
        children, todo = self.board.children, self.todo(at)
        idle = self.idle(todo)
        if at.parked & idle:
            return None
        red = at.red & ~idle
        for v in bits(red):
            waiting = children[v] & todo
            if waiting & at.red and not waiting & (waiting - 1):
                red ^= 1 << v
        return Position(red, at.blue & ~(idle & ~self.board.outputs), at.parked, at.computed)

    def _idle(self, todo: int) -> int:
        """The vertices that nothing in `todo` needs."""
        return sum(1 << v for v, needing in enumerate(self.board.children) if not needing & todo)

    def choices(self, at: Position, todo: int) -> Iterator[Step]:
        """The steps to choose between; a single one where exchange 5 applies."""
        slow = at.blue | at.parked | self.board.inputs
        possible = [v for v in bits(todo & ~at.red & ~at.parked) if self._possible(v, at, slow, todo)]
        dropping = {v: self.dropping(v, todo) for v in possible}
        for v in possible:
            if self._at_once(v, at, slow, todo, dropping[v]):
                slid = dropping[v] & -dropping[v] if at.red.bit_count() == self.M else 0
                yield Step(v, 0, slid, 0)
                return
        for v in possible:
            for evicted, slid in self._places(at.red, self.board.parents[v], dropping[v]):
                unsaved = (evicted | slid & ~dropping[v]) & ~slow
                for stored in subsets(unsaved) if self.recompute else (unsaved,):
                    yield Step(v, evicted, slid, stored)

    def _possible(self, vertex: int, at: Position, slow: int, todo: int) -> bool:
        """Whether the parents are at hand, and no child stands in for the vertex (exchange 4)."""
        waiting = self.board.children[vertex] & todo
        stood_in = waiting & at.red and not waiting & (waiting - 1)
        return not stood_in and not self.board.parents[vertex] & ~at.red & ~slow

    def _dropping(self, vertex: int, todo: int) -> int:
        """The parents that nothing but `vertex` needs any more."""
        children = self.board.children
        return sum(1 << p for p in bits(self.board.parents[vertex]) if children[p] & todo == 1 << vertex)

    def _at_once(self, vertex: int, at: Position, slow: int, todo: int, dropping: int) -> bool:
        """Whether exchange 5 applies: a place is free, or a pebble that drops out can slide."""
        if self.board.parents[vertex] & ~at.red:
            return False
        if at.red.bit_count() == self.M and not (self.slide and dropping):
            return False
        return self.recompute or not self.board.children[vertex] & todo or bool(dropping & ~slow)

    def _places(self, red: int, parents: int, dropping: int) -> Iterator[tuple[int, int]]:
        """(evicted, slid) for every way to make room: as few pebbles go as must."""
        others = red & ~parents
        excess = (red | parents).bit_count() + 1 - self.M
        if excess <= 0:
            yield 0, 0
            return
        if not (self.slide and dropping):
            yield from ((evicted, 0) for evicted in subsets_of_size(others, excess))
        if self.slide:
            slides = [dropping & -dropping] if dropping else [1 << parent for parent in bits(parents)]
            for evicted in subsets_of_size(others, excess - 1):
                yield from ((evicted, slid) for slid in slides)

    def after(self, at: Position, step: Step) -> tuple[Position | None, int]:
        """The settled position that a step leads to, and the words it moves."""
        vertex, parents = 1 << step.vertex, self.board.parents[step.vertex]
        loaded = parents & ~at.red
        output = vertex & self.board.outputs & ~at.blue
        after = Position(
            (at.red | parents) & ~step.evicted & ~step.slid | vertex,
            at.blue | at.parked & loaded | output,
            at.parked & ~loaded | step.stored,
            0 if self.recompute else at.computed | vertex,
        )
        return self.settled(after), (loaded | step.stored).bit_count() + bool(output)

    def moves(self, at: Position, step: Step, after: Position) -> list[Move]:
        """The single moves of a step, the deletes of what is of no more use last."""
        vertex, parents = 1 << step.vertex, self.board.parents[step.vertex]
        evicted, output = step.evicted, vertex & self.board.outputs & ~at.blue
        found = self._each("store", step.stored & evicted) + self._each("delete", evicted)
        found += self._each("load", parents & ~at.red) + self._each("store", step.stored & step.slid)
        name = self.board.names[step.vertex]
        if step.slid:
            found.append(Move("slide", name, self.board.names[step.slid.bit_length() - 1]))
        else:
            found.append(Move("compute", name))
        left = (at.red | parents | vertex) & ~evicted & ~step.slid & ~after.red
        return found + self._each("store", output) + self._each("delete", left)

    def _each(self, kind: str, vertices: int) -> list[Move]:
        return [Move(kind, self.board.names[v]) for v in bits(vertices)]


_NO_STEP = Step(0, 0, 0, 0)


# ------------------------------------------------------------------ a graph as bits
# Vertex i is the bit 1 << i, a set of vertices is one integer.
@dataclass(frozen=True)
class Board:
    """The vertices that an output depends on, numbered so that parents come before their children."""

    names: tuple[Vertex, ...]
    parents: tuple[int, ...]
    children: tuple[int, ...]
    inputs: int
    outputs: int  # those that have to be computed

    @classmethod
    def of(cls, graph: Graph) -> Board:
        """The board of `graph`; vertices that no output depends on are left out."""
        needed = set(graph.needed)
        names = tuple(v for level in graph.levels for v in level if v in needed)
        bit = {v: 1 << number for number, v in enumerate(names)}
        children = graph.children
        inputs = sum(bit[v] for v in graph.inputs if v in needed)
        return cls(
            names,
            tuple(sum(bit[p] for p in graph.parents[v]) for v in names),
            tuple(sum(bit[c] for c in children[v] if c in needed) for v in names),
            inputs,
            sum(bit[v] for v in graph.outputs) & ~inputs,
        )

    @property
    def inner(self) -> int:
        """The vertices that are computed."""
        return ((1 << len(self.names)) - 1) & ~self.inputs

    def ancestors(self, vertices: int, known: int = 0) -> int:
        """`vertices` and all they depend on, not looking at or beyond the vertices of `known`."""
        found = waiting = vertices
        while waiting:
            vertex = waiting.bit_length() - 1
            new = self.parents[vertex] & ~found & ~known
            found |= new
            waiting = waiting & ~(1 << vertex) | new
        return found


@lru_cache(maxsize=1 << 16)
def bits(vertices: int) -> tuple[int, ...]:
    """The numbers of the vertices in a set, rising; a search asks for the same sets again and again."""
    found = list[int]()
    while vertices:
        lowest = vertices & -vertices
        found.append(lowest.bit_length() - 1)
        vertices ^= lowest
    return tuple(found)


def subsets_of_size(vertices: int, size: int) -> Iterator[int]:
    """Every subset of `size` vertices; none where there are too few."""
    return map(sum, combinations([1 << v for v in bits(vertices)], size)) if size >= 0 else iter(())


def subsets(vertices: int) -> Iterator[int]:
    """Every subset, the whole set first and the empty one last."""
    subset = vertices
    while subset:
        yield subset
        subset = (subset - 1) & vertices
    yield 0
