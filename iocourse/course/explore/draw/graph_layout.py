"""Layered graph layout: vertices in levels, few edge crossings, long edges routed around vertices.

An edge over several levels gets a waypoint in each level that it crosses. Vertices within a level are sorted
by their neighbours and then moved towards them. Source: Sugiyama, Tagawa and Toda 1981.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

from ....pebbling import Graph, Vertex

SWEEPS = 12  # passes over all levels, half of them upwards
WAY = 0.55  # width of a waypoint; a vertex has width 1

Levels = list[list[Hashable]]
Neighbours = Mapping[Hashable, Sequence[Hashable]]


@dataclass(frozen=True)  # a NamedTuple could equal a vertex
class Way:
    """The waypoint of the edges from `vertex` to higher levels, in `level`."""

    vertex: Vertex
    level: int


class Layout(NamedTuple):
    """Positions of vertices and edges: x from 0 to `width` in vertex widths, y the level.

    Each edge is a sequence of points from parent to child.
    """

    width: float
    at: dict[Vertex, tuple[float, int]]
    edges: dict[tuple[Vertex, Vertex], tuple[tuple[float, int], ...]]


def layout(graph: Graph) -> Layout:
    """Return the layout of a graph, with the inputs on level 0."""
    return _layout(tuple(graph.parents.items()))


@lru_cache(maxsize=32)
def _layout(parents: tuple[tuple[Vertex, tuple[Vertex, ...]], ...]) -> Layout:
    graph = Graph.of(dict(parents))
    level = {v: k for k, vertices in enumerate(graph.levels) for v in vertices}
    chains = _chains(graph, level)
    below, above = _neighbours(chains.values())
    levels = _ordered(_filled(graph, chains), below, above)
    x = _places(levels, below, above)
    low, high = min(x.values()), max(x.values())
    at = {v: (x[v] - low, level[v]) for v in graph.vertices}
    edges = {
        edge: tuple((x[place] - low, level[edge[0]] + k) for k, place in enumerate(chain))
        for edge, chain in chains.items()
    }
    return Layout(high - low, at, edges)


CACHES = (_layout,)


def _chains(graph: Graph, level: Mapping[Vertex, int]) -> dict[tuple[Vertex, Vertex], list[Hashable]]:
    """Return the vertices and waypoints of each edge by level; edges from one vertex share waypoints."""
    return {
        (p, v): [p, *(Way(p, k) for k in range(level[p] + 1, level[v])), v]
        for v, parents in graph.parents.items()
        for p in parents
    }


def _filled(graph: Graph, chains: Mapping[tuple[Vertex, Vertex], list[Hashable]]) -> Levels:
    """Return the levels with their vertices and waypoints."""
    levels: Levels = [list(vertices) for vertices in graph.levels]
    ways = {place: None for chain in chains.values() for place in chain if isinstance(place, Way)}
    for way in ways:
        levels[way.level].append(way)
    return levels


def _neighbours(chains: Iterable[list[Hashable]]) -> tuple[dict[Hashable, list[Hashable]], ...]:
    below: dict[Hashable, list[Hashable]] = {}
    above: dict[Hashable, list[Hashable]] = {}
    for low, high in dict.fromkeys(pair for chain in chains for pair in pairwise(chain)):
        below.setdefault(high, []).append(low)
        above.setdefault(low, []).append(high)
    return below, above


# ---------------------------------------------------------------------- order within a level
def _ordered(levels: Levels, below: Neighbours, above: Neighbours) -> Levels:
    """Sort levels repeatedly by the mean position of neighbours; return the order with fewest crossings."""
    best, fewest = [list(row) for row in levels], _crossings(levels, below)
    for sweep in range(SWEEPS):
        towards, rows = (below, levels) if sweep % 2 == 0 else (above, levels[::-1])
        for fixed, row in pairwise(rows):
            place = {v: k for k, v in enumerate(fixed)}
            middle = {v: _mean([place[n] for n in towards.get(v, ())], k) for k, v in enumerate(row)}
            row.sort(key=middle.__getitem__)
        crossings = _crossings(levels, below)
        if crossings < fewest:
            best, fewest = [list(row) for row in levels], crossings
    return best


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _crossings(levels: Levels, below: Neighbours) -> int:
    """Count the crossing pairs of edges between neighbouring levels."""
    crossings = 0
    for low, high in pairwise(levels):
        place = {v: k for k, v in enumerate(low)}
        ends = [place[n] for v in high for n in sorted(below.get(v, ()), key=place.__getitem__)]
        crossings += sum(a > b for k, a in enumerate(ends) for b in ends[k + 1 :])
        # Two edges into one vertex do not cross; they are sorted above and therefore not counted.
    return crossings


# ---------------------------------------------------------------------- places within a level
def _places(levels: Levels, below: Neighbours, above: Neighbours) -> dict[Hashable, float]:
    """Return x of each vertex and waypoint, as near to its neighbours as order and widths allow."""
    x = {v: float(k) for row in levels for k, v in enumerate(row)}
    for sweep in range(SWEEPS):
        for row in levels if sweep % 2 else levels[::-1]:
            wanted = [_mean([x[n] for n in (*below.get(v, ()), *above.get(v, ()))], x[v]) for v in row]
            x.update(zip(row, _apart(wanted, row), strict=True))
    return x


def _apart(wanted: Sequence[float], row: Sequence[Hashable]) -> list[float]:
    """Return the positions nearest to `wanted`, in order and without overlap (pool adjacent violators)."""
    offsets = [0.0]
    for left, right in pairwise(row):
        offsets.append(offsets[-1] + (_room(left) + _room(right)) / 2)
    pools: list[tuple[float, int]] = []  # mean position and number of touching entries
    for value, offset in zip(wanted, offsets, strict=True):
        mean, count = value - offset, 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean, count = (mean * count + other * others) / (count + others), count + others
        pools.append((mean, count))
    starts = [mean for mean, count in pools for _ in range(count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]


def _room(place: Hashable) -> float:
    return WAY if isinstance(place, Way) else 1.0
