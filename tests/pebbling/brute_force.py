"""Cheapest pebbling by Dijkstra's algorithm over all single moves, without a normal form or lower bounds."""

import heapq
from collections.abc import Iterator
from itertools import count

Place = tuple[frozenset, frozenset, frozenset]  # red, blue, computed before


def brute_force(
    parents: dict, M: int, recompute: bool, slide: bool, outputs: list | None = None
) -> int | None:
    """Return the fewest loads and stores, by Dijkstra over single moves; None if no pebbling exists."""
    sinks = set(parents) - {p for above in parents.values() for p in above}
    wanted = frozenset(sinks if outputs is None else outputs)
    start = (frozenset(), frozenset(v for v in parents if not parents[v]), frozenset())
    order = count()
    best = {start: 0}
    queue = [(0, next(order), start)]
    while queue:
        cost, _, place = heapq.heappop(queue)
        if cost > best[place]:
            continue
        if wanted <= place[1]:
            return cost
        for price, after in every_move(parents, place, M, recompute, slide):
            if cost + price < best.get(after, float("inf")):
                best[after] = cost + price
                heapq.heappush(queue, (cost + price, next(order), after))
    return None


def every_move(
    parents: dict, place: Place, M: int, recompute: bool, slide: bool
) -> Iterator[tuple[int, Place]]:
    """Yield (words moved, pebbles afterwards) for every legal move, including useless ones."""
    red, blue, before = place
    for v in red:
        yield 1, (red, blue | {v}, before)
        yield 0, (red - {v}, blue, before)
    for v in blue:
        if len(red | {v}) <= M:
            yield 1, (red | {v}, blue, before)
    for v, above in parents.items():
        if not above or not red.issuperset(above) or (v in before and not recompute):
            continue
        now = before if recompute else before | {v}
        if len(red | {v}) <= M:
            yield 0, (red | {v}, blue, now)
        if slide:
            for p in above:
                yield 0, ((red - {p}) | {v}, blue, now)
