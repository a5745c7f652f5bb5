"""Computation graphs for the pebble game: each vertex is one word, computed from its parents.

`Graph.of` accepts any acyclic graph. The graphs of the course are a scalar product, one row of softmax, a
matrix product and attention. With `fma=False` every product and every sum is a separate vertex. With
`fma=True` a product is added to a running sum in one step, c ← c + a·b; pebbled with `slide=True` this is the
emulator's accumulation in place. The last step of a sum has the name of the result, earlier steps have a
number: C11_1, C11_2, C11.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import product
from types import MappingProxyType
from typing import Any

from ..sizes import positive_int, truth

Vertex = Hashable
Parents = dict[str, list[str]]
Names = Callable[..., str]


@dataclass(frozen=True, repr=False)
class Graph:
    """A directed acyclic graph: `parents` maps each vertex to the vertices it is computed from.

    Inputs are the vertices without parents; `outputs` are the vertices to be in slow memory at the end.
    Created by `Graph.of`, which checks the graph; vertices keep the order in which they were passed.
    """

    parents: Mapping[Vertex, tuple[Vertex, ...]]
    outputs: tuple[Vertex, ...]

    @classmethod
    def of(cls, graph: Any, outputs: Iterable[Vertex] | None = None) -> Graph:
        """Create a Graph from a mapping vertex → parents, a networkx DiGraph, or a Graph.

        Args:
            graph: such as `{"a": [], "b": [], "c": ["a", "b"]}`; an input has no parents.
            outputs: the vertices to be stored. None: those without children.

        Raises:
            ValueError or TypeError: if it is not an acyclic graph; the message contains the vertex.
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
        """All vertices, in the order in which they were passed."""
        return tuple(self.parents)

    @property
    def inputs(self) -> tuple[Vertex, ...]:
        """Vertices without parents, which are in slow memory at the start."""
        return tuple(v for v, parents in self.parents.items() if not parents)

    @property
    def children(self) -> dict[Vertex, tuple[Vertex, ...]]:
        """Mapping from each vertex to the vertices that are computed from it."""
        found: dict[Vertex, list[Vertex]] = {v: [] for v in self.parents}
        for vertex, parents in self.parents.items():
            for parent in parents:
                found[parent].append(vertex)
        return {v: tuple(children) for v, children in found.items()}

    @property
    def levels(self) -> tuple[tuple[Vertex, ...], ...]:
        """Vertices grouped by the length of the longest path to them, inputs first."""
        level: dict[Vertex, int] = {}
        for v in TopologicalSorter(self.parents).static_order():
            level[v] = 1 + max((level[p] for p in self.parents[v]), default=-1)
        depth = range(max(level.values()) + 1)
        return tuple(tuple(v for v in self.parents if level[v] == at) for at in depth)

    @property
    def needed(self) -> tuple[Vertex, ...]:
        """Outputs, and the vertices from which a path leads to an output."""
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
    """Return the words that every pebbling moves: one per output, and one per input that an output needs."""
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
        f"got {type(graph).__name__}. Example: {{'a': [], 'b': [], 'c': ['a', 'b']}}"
    )


def _parents(vertex: Vertex, given: Any) -> tuple[Vertex, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"the parents of {vertex} must be a list of vertices, got {given!r}")
    parents = tuple(given)
    for parent in parents:
        try:
            hash(parent)
        except TypeError:
            raise TypeError(f"{vertex} has the parent {parent!r}, but a vertex must be hashable") from None
        if parents.count(parent) > 1:
            raise ValueError(f"{vertex} has the parent {parent} twice")
    return parents


def _check_parents(parents: Mapping[Vertex, tuple[Vertex, ...]]) -> None:
    for vertex, above in parents.items():
        for parent in above:
            if parent not in parents:
                raise ValueError(
                    f"{vertex} has the parent {parent}, which is not a vertex of the graph. "
                    f"If it is an input, add it without parents: {parent!r}: []"
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
            raise ValueError(f"outputs names {vertex}, which is not a vertex of the graph")
        if chosen.count(vertex) > 1:
            raise ValueError(f"outputs names {vertex} twice")
    if not chosen:
        raise ValueError("outputs must name at least one vertex")
    return chosen


# ------------------------------------------------------------------ graphs of the course
def dot(d: int) -> Graph:
    """Return the graph of a scalar product of length d: d products p, summed in order; 4d - 1 vertices."""
    factors = [(f"a{l}", f"b{l}") for l in _upto("d", d)]
    parents: Parents = {name: [] for name in (*(a for a, _ in factors), *(b for _, b in factors))}
    _scalar_product(parents, "s", "p", factors, fma=False)
    return Graph.of(parents)


def softmax_row(n: int) -> Graph:
    """Return the graph of the softmax of n words: e = exp(x), l their sum, p = e / l; 4n - 1 vertices."""
    columns = _upto("n", n)
    parents: Parents = {f"x{j}": [] for j in columns}
    parents |= {f"e{j}": [f"x{j}"] for j in columns}
    total = _sum(parents, "l", [f"e{j}" for j in columns])
    parents |= {f"p{j}": _distinct(f"e{j}", total) for j in columns}
    return Graph.of(parents)


def matmul(m: int, n: int, k: int, fma: bool = False) -> Graph:
    """Return the graph of C = A B with A (m, k) and B (k, n); every entry of C is summed in order over k.

    It has mk + kn inputs and mn(2k - 1) further vertices, or mnk with fma.
    """
    rows, columns, inner = _upto("m", m), _upto("n", n), _upto("k", k)
    name = _names(m, n, k)
    parents: Parents = {name("A", i, l): [] for i, l in product(rows, inner)}
    parents |= {name("B", l, j): [] for l, j in product(inner, columns)}
    fma = truth("fma", fma)
    for i, j in product(rows, columns):
        factors = [(name("A", i, l), name("B", l, j)) for l in inner]
        _scalar_product(parents, name("C", i, j), name("C" if fma else "p", i, j) + "_", factors, fma)
    return Graph.of(parents)


def attention(queries: int, keys: int, d: int = 1, fma: bool = False) -> Graph:
    """Return the graph of O = softmax(Q Kᵀ) V with Q (queries, d), K (keys, d) and V (keys, d).

    e is the exponential of a score, one vertex with the last step of the score's scalar product; l is the sum
    of a row of e, n the sum of e·v, and o = n / l. The running maximum is omitted.
    """
    rows, columns, coordinates = _upto("queries", queries), _upto("keys", keys), _upto("d", d)
    name = _names(queries, keys, d) if d > 1 else _first_indices
    fma = truth("fma", fma)
    parents: Parents = {name("q", i, c): [] for i, c in product(rows, coordinates)}
    parents |= {name(x, j, c): [] for x in "kv" for j, c in product(columns, coordinates)}
    pair = _names(queries, keys, d)
    for i in rows:
        for j in columns:
            factors = [(name("q", i, c), name("k", j, c)) for c in coordinates]
            _scalar_product(parents, pair("e", i, j), pair("s", i, j) + "_", factors, fma)
        weights = [pair("e", i, j) for j in columns]
        total = _sum(parents, f"l{i}", weights)
        for c in coordinates:
            factors = [(e, name("v", j, c)) for e, j in zip(weights, columns, strict=True)]
            steps = name("n" if fma else "t", i, c) + "_"
            _scalar_product(parents, name("n", i, c), steps, factors, fma)
            parents[name("o", i, c)] = [name("n", i, c), total]
    return Graph.of(parents)


def _upto(name: str, size: int) -> range:
    return range(1, positive_int(name, size) + 1)


def _names(*sizes: int) -> Names:
    """Return a function for names such as A12, or A1.12 if an index may have two digits."""
    between = "." if max(sizes) > 9 else ""
    return lambda letter, *indices: letter + between.join(str(index) for index in indices)


def _first_indices(letter: str, *indices: int) -> str:
    """Return a name without the last index, which is always 1 for d = 1: q2, not q21."""
    return letter + str(indices[0])


def _distinct(*parents: str) -> list[str]:
    return list(dict.fromkeys(parents))


def _scalar_product(
    parents: Parents, result: str, step: str, factors: list[tuple[str, str]], fma: bool
) -> None:
    """Add the vertices of result = Σ a·b; `step` is the prefix of the products (with fma, partial sums)."""
    if fma or len(factors) == 1:
        before: list[str] = []
        for at, factor in enumerate(factors, start=1):
            vertex = result if at == len(factors) else f"{step}{at}"
            parents[vertex] = [*before, *factor]
            before = [vertex]
        return
    products = [f"{step}{at}" for at in range(1, len(factors) + 1)]
    parents |= {p: list(factor) for p, factor in zip(products, factors, strict=True)}
    _sum(parents, result, products)


def _sum(parents: Parents, result: str, terms: list[str]) -> str:
    """Add the vertices of a sum from left to right; return the name of its last vertex."""
    total = terms[0]
    for at, term in enumerate(terms[1:], start=2):
        vertex = result if at == len(terms) else f"{result}_{at}"
        parents[vertex] = [total, term]
        total = vertex
    return total
