"""The steps between which the search chooses, few enough to search and enough to hold a cheapest pebbling.

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

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from .bitsets import Board, bits, subsets, subsets_of_size
from .rules import Game, Move

LAST_ASKED = 1 << 16  # answers that are remembered


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
