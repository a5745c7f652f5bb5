"""Exact search for a cheapest pebbling: A* over steps in a normal form that contains an optimal pebbling.

If a graph is too large, TooLarge is raised with a suggestion for a smaller problem.

One step stores and deletes some words, loads the missing parents of one vertex, computes it, and stores it if
it is an output. The following exchanges transform every pebbling into this form without moving more words:

1.  A load is delayed until the next computation uses it, a delete until its place is needed, and a store
    until its red pebble is deleted. No move in between depends on them.
2.  An output is stored as soon as it is computed: it must be stored once, and earlier is never worse.
3.  Any other vertex that is stored is loaded again, because otherwise the store would be useless. Until then
    it is *parked*: it is not recomputed (otherwise the store could be delayed), and its load is counted in
    advance.
4.  A red pebble is dropped without cost once no vertex still to be computed needs it. The same holds if the
    only child that needs it has a red pebble: wherever the pebbling would keep, store or load the vertex, it
    may do the same with the child.
5.  A vertex that can be computed from red pebbles in a free place is computed immediately, because it can be
    deleted again. In the one-shot game it could not be computed again. There this holds for vertices without
    children, and if a parent that is not in slow memory is dropped by 4, because the child then costs as much
    as the parent did. The same holds if the pebble slides from a parent that is dropped by 4.
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
from .graphs import Graph, Vertex
from .rules import Game, Move, State, ledger_of, replay

MAX_STATES = 5_000_000  # one to two minutes
MAX_VERTICES = 100
LAST_ASKED = 1 << 16  # cached results per function


class TooLarge(ValueError):
    """The search was not started, or was stopped, because it would examine too many states."""


class NoPebbling(ValueError):
    """M red pebbles are too few to compute some vertex."""


@dataclass(frozen=True, repr=False)
class Pebbling:
    """A cheapest pebbling: `moves` move `cost` words; the search examined `states` states."""

    graph: Graph
    M: int
    recompute: bool
    slide: bool
    cost: int
    moves: tuple[Move, ...]
    states: int

    def replay(self) -> list[State]:
        """Return the states before the first move and after each move."""
        return replay(self.graph, self.moves, self.M, recompute=self.recompute, slide=self.slide)

    def ledger(self) -> Ledger:
        """Return the ledger of the moves, with each vertex an array of one word."""
        return ledger_of(self.graph, self.moves, self.M, recompute=self.recompute, slide=self.slide)

    def __repr__(self) -> str:
        lines = [f"{self.cost} words moved with M = {self.M}, {len(self.moves)} moves"]
        lines += [f"{number:>4}  {move}" for number, move in enumerate(self.moves, start=1)]
        return "\n".join(lines)


def optimum(
    graph: Any, M: int, *, recompute: bool = True, slide: bool = False, max_states: int = MAX_STATES
) -> Pebbling:
    """Return a cheapest pebbling of `graph` with M red pebbles; the result is deterministic.

    Args:
        graph: a Graph, a mapping vertex → parents or a networkx DiGraph, see `Graph.of`.
        M: number of red pebbles, the words of fast memory.
        recompute: if True, a vertex may be computed more than once.
        slide: if True, a result may take the red pebble of one of its parents.
        max_states: maximum number of states that the search examines.

    Raises:
        NoPebbling: if M is too small; the message contains the smallest M.
        TooLarge: if the graph has too many vertices, or the search exceeds `max_states`.
    """
    game = Game(graph, M, recompute, slide)
    max_states = positive_int("max_states", max_states)
    _check(game)
    search = _Search(Steps(game), max_states)
    with progress_meter(f"states examined, of at most {max_states:,}", max_states) as tell:
        path = search.run(tell)
    moves = _moves(search.steps, path)
    cost = sum(move.kind in ("load", "store") for move in moves)
    return Pebbling(game.graph, game.M, recompute, slide, cost, moves, search.tried)


def _check(game: Game) -> None:
    if game.smallest_M > game.M:
        hardest = max(game.graph.needed, key=lambda v: len(game.graph.parents[v]))
        raise NoPebbling(
            f"M = {game.M} is too small: computing {hardest} needs its parents "
            f"{', '.join(str(p) for p in game.graph.parents[hardest])}"
            f"{'' if game.slide else ' and a place for the result'}, so M must be at least {game.smallest_M}"
        )
    vertices = len(game.graph.needed)
    if vertices > MAX_VERTICES:
        ways = comb(vertices, min(game.M, vertices // 2))
        raise TooLarge(
            f"the graph must have at most {MAX_VERTICES} vertices for the search, got {vertices} vertices "
            f"(the red pebbles alone have about {ways:.0e} positions). Use a smaller graph of the same kind"
        )


class _Search:
    """A* search: positions are kept in stacks, one per lower bound of the total cost through them."""

    def __init__(self, steps: Steps, max_states: int) -> None:
        self.steps, self.max_states = steps, max_states
        self.start = Position(0, 0, 0, 0)
        self.reached: dict[Position, tuple[int, Position, Step]] = {self.start: (0, self.start, _NO_STEP)}
        self.waiting: dict[int, list[tuple[Position, int]]] = {}
        self.tried = 0
        self.tried_below: list[int] = []  # number of states examined when each total cost was excluded

    def run(self, tell: Callable[[int], None]) -> list[tuple[Position, Step, Position]]:
        """Return the steps of a cheapest pebbling, each between the positions before and after it.

        `tell` is called with the number of newly examined states.
        """
        outputs = self.steps.board.outputs
        self._wait(self.start, 0)
        told = 0
        while True:
            # Smallest bound first. The bound never falls along a path, so no later stack is below this one.
            least = min(self.waiting)
            stack = self.waiting[least]
            while stack:
                tell(self.tried - told)
                told = self.tried
                # Last in, first out: of equal bounds the latest position, which is deepest, goes on.
                position, cost = stack.pop()
                # Here the bound is the cost, and no waiting bound is smaller: a cheapest pebbling.
                if not outputs & ~position.blue:
                    return self._path(position)
                # A position reached again at a lower cost is still in a stack with its old cost: skip it.
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
            f"{self.tried - 1:,} states were examined without finding a cheapest pebbling. It moves at least "
            f"{least} words; deciding if {least} are enough would need about "
            f"{self._estimate(least):,} states. Use fewer than {len(game.graph)} vertices or more than "
            f"M = {game.M} red pebbles, combine product and sum in one vertex (fma=True, slide=True), "
            "or increase max_states"
        )

    def _estimate(self, least: int) -> int:
        """Estimate the number of states to examine for `least` words, from the growth at smaller costs."""
        before, last = [0, 0, *self.tried_below][-2:]
        growing = last * last // before if before else 0
        waiting = len(self.waiting[least]) * self.tried // len(self.reached)
        return int(float(f"{max(growing, self.tried + waiting):.1e}"))


def _moves(steps: Steps, path: list[tuple[Position, Step, Position]]) -> tuple[Move, ...]:
    """Return the single moves of a path, without deletes after the last store."""
    moves = [move for part in path for move in steps.moves(*part)]
    while moves and moves[-1].kind == "delete":
        moves.pop()
    return tuple(moves)


# ------------------------------------------------------------------ steps
class Position(NamedTuple):
    """Position of the pebbles; all four fields are sets of vertices."""

    red: int
    blue: int  # computed and in slow memory; inputs are always in slow memory and not included
    parked: int  # also in slow memory, and not loaded since they were stored
    computed: int  # one-shot game only: vertices that may not be computed again


class Step(NamedTuple):
    """One step: store `stored`, delete `evicted`, load, compute `vertex` (on the pebble of `slid` if any)."""

    vertex: int
    evicted: int
    slid: int
    stored: int


class Steps:
    """Steps from a position, their costs, and the lower bound of the remaining cost."""

    def __init__(self, game: Game) -> None:
        self.game = game
        self.board = Board.of(game.graph)
        self.M, self.recompute, self.slide = game.M, game.recompute, game.slide
        self._todo: dict[int, int] = {}
        # A search uses the same few arguments many times.
        self.idle = lru_cache(LAST_ASKED)(self._idle)
        self.dropping = lru_cache(LAST_ASKED)(self._dropping)

    def todo(self, at: Position) -> int:
        """Return the vertices that may still have to be computed."""
        if not self.recompute:
            return self.board.inner & ~at.computed
        missing = self.board.outputs & ~at.blue
        if missing not in self._todo:
            self._todo[missing] = self.board.ancestors(missing) & self.board.inner
        return self._todo[missing]

    def at_least(self, at: Position, todo: int) -> int:
        """Return a lower bound on the remaining words, including one load of each parked vertex (exchange 3).

        A step decreases it by at most the cost of the step, so the search never reaches an expanded position
        at a lower cost.
        """
        board = self.board
        missing = board.outputs & ~at.blue
        if self.recompute:
            known = at.red | at.blue | at.parked
            # A stored vertex may be loaded or recomputed, so only inputs that no known vertex hides count.
            loads = board.ancestors(missing, known) & board.inputs | at.parked
        else:
            away = (board.inputs | at.blue | at.parked) & ~at.red
            loads = sum(1 << v for v in bits(away) if board.children[v] & todo)
        return missing.bit_count() + loads.bit_count()

    def settled(self, at: Position) -> Position | None:
        """Return the position without useless pebbles (exchange 4); None if a store was useless."""
        children, todo = self.board.children, self.todo(at)
        idle = self.idle(todo)
        if at.parked & idle:
            return None
        red = at.red & ~idle
        for v in bits(red):
            waiting = children[v] & todo
            # x & (x - 1) clears the lowest bit: exactly one child is waiting, and it has a red pebble.
            if waiting & at.red and not waiting & (waiting - 1):
                red ^= 1 << v
        return Position(red, at.blue & ~(idle & ~self.board.outputs), at.parked, at.computed)

    def _idle(self, todo: int) -> int:
        """Return the vertices without a child in `todo`."""
        return sum(1 << v for v, needing in enumerate(self.board.children) if not needing & todo)

    def choices(self, at: Position, todo: int) -> Iterator[Step]:
        """Yield the steps to be examined; a single one if exchange 5 applies."""
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
                # Words that leave fast memory, are still needed, and are not in slow memory.
                unsaved = (evicted | slid & ~dropping[v]) & ~slow
                # In the one-shot game they cannot be computed again, so all must be stored.
                for stored in subsets(unsaved) if self.recompute else (unsaved,):
                    yield Step(v, evicted, slid, stored)

    def _possible(self, vertex: int, at: Position, slow: int, todo: int) -> bool:
        """Return True if all parents are in a memory and no child replaces the vertex (exchange 4)."""
        waiting = self.board.children[vertex] & todo
        stood_in = waiting & at.red and not waiting & (waiting - 1)
        return not stood_in and not self.board.parents[vertex] & ~at.red & ~slow

    def _dropping(self, vertex: int, todo: int) -> int:
        """Return the parents whose only child still to be computed is `vertex`."""
        children = self.board.children
        return sum(1 << p for p in bits(self.board.parents[vertex]) if children[p] & todo == 1 << vertex)

    def _at_once(self, vertex: int, at: Position, slow: int, todo: int, dropping: int) -> bool:
        """Return True if exchange 5 applies: a place is free, or a pebble that is dropped can slide."""
        if self.board.parents[vertex] & ~at.red:
            return False
        if at.red.bit_count() == self.M and not (self.slide and dropping):
            return False
        return self.recompute or not self.board.children[vertex] & todo or bool(dropping & ~slow)

    def _places(self, red: int, parents: int, dropping: int) -> Iterator[tuple[int, int]]:
        """Yield (evicted, slid) for every way to free the places needed, with the fewest pebbles deleted."""
        others = red & ~parents
        excess = (red | parents).bit_count() + 1 - self.M
        if excess <= 0:
            yield 0, 0
            return
        if not (self.slide and dropping):
            yield from ((evicted, 0) for evicted in subsets_of_size(others, excess))
        if self.slide:
            # Parents that are dropped anyway give the same position, so the first (x & -x) stands for all.
            slides = [dropping & -dropping] if dropping else [1 << parent for parent in bits(parents)]
            for evicted in subsets_of_size(others, excess - 1):
                yield from ((evicted, slid) for slid in slides)

    def after(self, at: Position, step: Step) -> tuple[Position | None, int]:
        """Return the settled position after a step, and the words that the step moves."""
        vertex, parents = 1 << step.vertex, self.board.parents[step.vertex]
        loaded = parents & ~at.red
        output = vertex & self.board.outputs & ~at.blue
        after = Position(
            (at.red | parents) & ~step.evicted & ~step.slid | vertex,
            # A parked vertex that is loaded is an ordinary blue one from now on: its load was counted before.
            at.blue | at.parked & loaded | output,
            at.parked & ~loaded | step.stored,
            0 if self.recompute else at.computed | vertex,
        )
        return self.settled(after), (loaded | step.stored).bit_count() + bool(output)

    def moves(self, at: Position, step: Step, after: Position) -> list[Move]:
        """Return the single moves of a step; deletes of useless pebbles are last."""
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


# ------------------------------------------------------------------ graph as bit sets
# Vertex i is the bit 1 << i, a set of vertices is one integer.
@dataclass(frozen=True)
class Board:
    """The vertices that an output depends on, numbered so that parents precede their children."""

    names: tuple[Vertex, ...]
    parents: tuple[int, ...]
    children: tuple[int, ...]
    inputs: int
    outputs: int  # those that have to be computed

    @classmethod
    def of(cls, graph: Graph) -> Board:
        """Return the board of `graph` without vertices that no output depends on."""
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
        """Set of the vertices that are not inputs."""
        return ((1 << len(self.names)) - 1) & ~self.inputs

    def ancestors(self, vertices: int, known: int = 0) -> int:
        """Return `vertices` and everything they depend on, stopping at the vertices of `known`."""
        found = waiting = vertices
        while waiting:
            vertex = waiting.bit_length() - 1
            new = self.parents[vertex] & ~found & ~known
            found |= new
            waiting = waiting & ~(1 << vertex) | new
        return found


@lru_cache(maxsize=1 << 16)
def bits(vertices: int) -> tuple[int, ...]:
    """Return the numbers of the vertices in a set, in increasing order; cached, because sets repeat."""
    found = list[int]()
    while vertices:
        lowest = vertices & -vertices
        found.append(lowest.bit_length() - 1)
        vertices ^= lowest
    return tuple(found)


def subsets_of_size(vertices: int, size: int) -> Iterator[int]:
    """Return an iterator over all subsets of `size` vertices; it is empty if there are fewer vertices."""
    return map(sum, combinations([1 << v for v in bits(vertices)], size)) if size >= 0 else iter(())


def subsets(vertices: int) -> Iterator[int]:
    """Yield every subset of a set of vertices, each a bit mask as `vertices` is: first `vertices`, last 0."""
    subset = vertices
    while subset:
        yield subset
        subset = (subset - 1) & vertices
    yield 0
