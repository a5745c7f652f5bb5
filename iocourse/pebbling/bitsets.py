"""A graph as bits: vertex i is the bit 1 << i, a set of vertices is one integer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from .graph import Graph, Vertex


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
