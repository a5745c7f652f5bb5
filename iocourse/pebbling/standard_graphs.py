"""The graphs of the course: scalar product, one row of softmax, matrix product, attention.

With `fma=False` every product and every sum is a vertex of its own. With `fma=True` a product is added
to a running sum in one step, c ← c + a·b: pebbled with `slide=True` this is the emulator's accumulation
in place.
The last step of a sum carries the result's name, the steps before it a number: C11_1, C11_2, C11.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from ..sizes import positive_int, truth
from .graph import Graph

Parents = dict[str, list[str]]
Names = Callable[..., str]


def dot(d: int) -> Graph:
    """Scalar product of two vectors of d words: d products p, summed from left to right. 4d - 1 vertices."""
    factors = [(f"a{l}", f"b{l}") for l in _upto("d", d)]
    parents: Parents = {name: [] for name in (*(a for a, _ in factors), *(b for _, b in factors))}
    _scalar_product(parents, "s", "p", factors, fma=False)
    return Graph.of(parents)


def softmax_row(n: int) -> Graph:
    """Softmax of n words: e = exp(x), their sum l from left to right, p = e / l. 4n - 1 vertices."""
    columns = _upto("n", n)
    parents: Parents = {f"x{j}": [] for j in columns}
    parents |= {f"e{j}": [f"x{j}"] for j in columns}
    total = _sum(parents, "l", [f"e{j}" for j in columns])
    parents |= {f"p{j}": _distinct(f"e{j}", total) for j in columns}
    return Graph.of(parents)


def matmul(m: int, n: int, k: int, fma: bool = False) -> Graph:
    """C = A B with A (m, k) and B (k, n); every entry of C is summed from left to right over k.

    mk + kn inputs and mn(2k - 1) further vertices; with fma mnk.
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
    """O = softmax(Q Kᵀ) V with Q (queries, d), K (keys, d) and V (keys, d).

    e is the exponential of a score, one vertex with the last step of the score's scalar product; l sums a
    row of e, n sums e·v, and o = n / l. The running maximum is left out.
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
    """Names such as A12, and A1.12 where an index may have two digits."""
    between = "." if max(sizes) > 9 else ""
    return lambda letter, *indices: letter + between.join(str(index) for index in indices)


def _first_indices(letter: str, *indices: int) -> str:
    """Names for d = 1, where the last index says nothing: q2, not q21."""
    return letter + str(indices[0])


def _distinct(*parents: str) -> list[str]:
    return list(dict.fromkeys(parents))


def _scalar_product(
    parents: Parents, result: str, step: str, factors: list[tuple[str, str]], fma: bool
) -> None:
    """Add the vertices of result = Σ a·b; `step` begins the names of products or, with fma, partial sums."""
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
    """Add the vertices of a sum from left to right; return the name of the last, or the only term's."""
    total = terms[0]
    for at, term in enumerate(terms[1:], start=2):
        vertex = result if at == len(terms) else f"{result}_{at}"
        parents[vertex] = [total, term]
        total = vertex
    return total
