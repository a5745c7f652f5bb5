"""A computation as a graph: each vertex is one word, its parents are the words it is computed from."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Any

Vertex = Hashable


@dataclass(frozen=True, repr=False)
class Graph:
    """A directed graph without cycles: `parents` maps each vertex to the vertices it is computed from.

    Inputs are the vertices without parents. `outputs` are what must stand in slow memory at the end.
    Made by `Graph.of`, which checks; vertices keep the order in which they were given.
    """

    parents: Mapping[Vertex, tuple[Vertex, ...]]
    outputs: tuple[Vertex, ...]

    @classmethod
    def of(cls, graph: Any, outputs: Iterable[Vertex] | None = None) -> Graph:
        """The graph given as a mapping vertex → parents, as a networkx DiGraph, or as a Graph.

        Args:
            graph: such as {"a": [], "b": [], "c": ["a", "b"]}; an input has no parents.
            outputs: the vertices to be stored; by default those that are nobody's parent.

        Raises ValueError or TypeError, naming the vertex, where this is no graph without cycles.
        """
        if isinstance(graph, Graph):
            return graph if outputs is None else cls(graph.parents, _outputs(graph.parents, outputs))
        parents = {vertex: _parents(vertex, given) for vertex, given in _items(graph)}
        if not parents:
            raise ValueError("graph has no vertices")
        _check_parents(parents)
        return cls(MappingProxyType(parents), _outputs(parents, outputs))

    @property
    def vertices(self) -> tuple[Vertex, ...]:
        """All vertices, in the order in which they were given."""
        return tuple(self.parents)

    @property
    def inputs(self) -> tuple[Vertex, ...]:
        """The vertices without parents: they start in slow memory."""
        return tuple(v for v, parents in self.parents.items() if not parents)

    @property
    def children(self) -> dict[Vertex, tuple[Vertex, ...]]:
        """For each vertex those that are computed from it."""
        found: dict[Vertex, list[Vertex]] = {v: [] for v in self.parents}
        for vertex, parents in self.parents.items():
            for parent in parents:
                found[parent].append(vertex)
        return {v: tuple(children) for v, children in found.items()}

    @property
    def levels(self) -> tuple[tuple[Vertex, ...], ...]:
        """The vertices by the length of the longest path that leads to them, inputs first."""
        level: dict[Vertex, int] = {}
        for v in TopologicalSorter(self.parents).static_order():
            level[v] = 1 + max((level[p] for p in self.parents[v]), default=-1)
        depth = range(max(level.values()) + 1)
        return tuple(tuple(v for v in self.parents if level[v] == at) for at in depth)

    @property
    def needed(self) -> tuple[Vertex, ...]:
        """The vertices from which a path leads to an output, and the outputs themselves."""
        seen = set(self.outputs)
        waiting = list(self.outputs)
        while waiting:
            new = set(self.parents[waiting.pop()]) - seen
            seen |= new
            waiting.extend(new)
        return tuple(v for v in self.parents if v in seen)

    def __len__(self) -> int:
        return len(self.parents)

    def __repr__(self) -> str:
        return f"Graph of {len(self)} vertices, {len(self.inputs)} inputs, {len(self.outputs)} outputs"


def compulsory(graph: Any) -> int:
    """Words that every pebbling moves: inputs an output depends on, each loaded, and outputs, each stored."""
    graph = Graph.of(graph)
    needed, outputs, inputs = set(graph.needed), set(graph.outputs), set(graph.inputs)
    used = {parent for v in needed for parent in graph.parents[v]}
    return len(inputs & used) + len(outputs - inputs)


def _items(graph: Any) -> Iterable[tuple[Vertex, Any]]:
    if isinstance(graph, Mapping):
        return graph.items()
    if hasattr(graph, "predecessors") and hasattr(graph, "nodes"):
        return [(v, list(graph.predecessors(v))) for v in graph.nodes]
    raise TypeError(
        "graph must be a mapping vertex → parents, a networkx DiGraph or a Graph, "
        f"got {type(graph).__name__}: such as {{'a': [], 'b': [], 'c': ['a', 'b']}}"
    )


def _parents(vertex: Vertex, given: Any) -> tuple[Vertex, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"the parents of {vertex} must be a list of vertices, got {given!r}")
    parents = tuple(given)
    for parent in parents:
        try:
            hash(parent)
        except TypeError:
            raise TypeError(f"{vertex} has the parent {parent!r}, which cannot name a vertex") from None
        if parents.count(parent) > 1:
            raise ValueError(f"{vertex} has the parent {parent} twice")
    return parents


def _check_parents(parents: Mapping[Vertex, tuple[Vertex, ...]]) -> None:
    for vertex, above in parents.items():
        for parent in above:
            if parent not in parents:
                raise ValueError(
                    f"{vertex} has the parent {parent}, which is no vertex of the graph; "
                    f"an input is given too, with no parents: {parent!r}: []"
                )
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        raise ValueError("graph has a cycle: " + " → ".join(str(v) for v in error.args[1])) from None


def _outputs(
    parents: Mapping[Vertex, tuple[Vertex, ...]], outputs: Iterable[Vertex] | None
) -> tuple[Vertex, ...]:
    if outputs is None:
        inner = {parent for above in parents.values() for parent in above}
        return tuple(v for v in parents if v not in inner)
    chosen = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    for vertex in chosen:
        if vertex not in parents:
            raise ValueError(f"outputs names {vertex}, which is no vertex of the graph")
        if chosen.count(vertex) > 1:
            raise ValueError(f"outputs names {vertex} twice")
    if not chosen:
        raise ValueError("outputs must name at least one vertex")
    return chosen
