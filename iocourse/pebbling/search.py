"""The cheapest pebbling, by A* over steps (see `steps`), and a clear refusal where the graph is too large."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb
from typing import Any

from ..console import progress_meter
from ..ledger import Ledger
from ..sizes import positive_int
from ..solution_guard import library_solution
from .graph import Graph
from .rules import Game, Move, State, ledger_of, replay
from .search_space import Position, Step, Steps

MAX_STATES = 5_000_000  # one to two minutes
MAX_VERTICES = 100


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


_NO_STEP = Step(0, 0, 0, 0)
