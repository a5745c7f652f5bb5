"""Lesson 06: other right answers, and wrong ones that no recorded mutant stands for."""

import numpy as np
from harness import Mutant, Suite

# ---------------------------------------------------------------------- 6A
DS_ALL, DS_PART = "ds is right where the tile holds all keys", "ds is the tile's part of dS"


def as_a_list(q, k, v, do, o, L):
    return [*two_products_apart(q, k, v, do, o, L)]


def two_products_apart(q, k, v, do, o, L):
    """p∘dp less D times p."""
    p = np.exp(np.einsum("ic,jc->ij", q, k) / q.shape[1] ** 0.5 - L.reshape(-1, 1))
    D = np.einsum("ic,ic->i", do, o)
    return p, p * np.einsum("ic,jc->ij", do, v) - np.diag(D) @ p


TILE = Suite(
    "6A",
    right=as_a_list,
    library=("iocourse.exact.softmax",),
    wrong={
        "no recorded mutant fails this property alone": (
            Mutant("D-over-the-tile", DS_PART, ("(do * o).sum(axis=1)", "(p * (do @ v.T)).sum(axis=1)")),
        )
    },
)


# ---------------------------------------------------------------------- 6B
def fused_by_range(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """Plain ranges, free() everywhere, one temporary for dP; D of each block on the first visit."""
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    dK, dV = m.new("dK", (N, d)), m.new("dV", (N, d))
    for start in range(0, N, Bc):
        keys = (start, min(start + Bc, N))
        k, v, dk, dv = m.load(K, keys), m.load(V, keys), m.zeros(keys, d), m.zeros(keys, d)
        for first in range(0, N, Br):
            rows = (first, min(first + Br, N))
            if start == 0:
                products_of(m, O, dO, D, rows)
            one_visit(m, (Q, dO, LSE, D, dQ), (k, v, dk, dv), rows, start == 0)
        m.store(dk, dK, keys)
        m.store(dv, dV, keys)
        for tile in (k, v, dk, dv):
            tile.free()
    return dQ, dK, dV


def products_of(m, O, dO, D, rows):
    with m.load(O, rows) as o, m.load(dO, rows) as do:
        do *= o
        with do.sum(axis=1) as products:
            m.store(products, D, rows)


def one_visit(m, rows_of, columns, rows, is_first):
    Q, dO, LSE, D, dQ = rows_of
    k, v, dk, dv = columns
    d = Q.shape[1]
    q, log_sums = m.load(Q, rows), m.load(LSE, rows)
    p = q @ k.T
    p *= d**-0.5
    p -= log_sums[:, None]
    np.exp(p, out=p)
    do = m.load(dO, rows)
    dv.add_matmul(p.T, do)
    dp = do @ v.T
    do.free()
    products = m.load(D, rows, into=log_sums)
    dp -= products[:, None]
    p *= dp
    dp.free()
    p *= d**-0.5
    dk.add_matmul(p.T, q)
    dq = m.zeros(rows, d) if is_first else m.load(dQ, rows)
    dq.add_matmul(p, k)
    m.store(dq, dQ, rows)
    for tile in (q, p, dq, products):
        tile.free()


FUSED = Suite("6B", right=fused_by_range, library=("iocourse.schedules.fused_backward",))


# ---------------------------------------------------------------------- 6C
def by_cases(stays, gradients):
    """Other arithmetic: what does not travel is taken off again."""
    doubled = {"rows": 2 + 2 * ("dQ" in gradients), "columns": 1 + bool({"dQ", "dK"} & set(gradients))}
    doubled["columns"] += 2 * len(set(gradients) - {"dQ"})
    at_home = {"rows": {"dQ"}, "columns": {"dK", "dV"}}[stays] & set(gradients)
    doubled[stays] -= len(at_home)
    return float(doubled["rows"] * doubled["columns"])


SWEEPS = Suite("6C", right=by_cases)


# ---------------------------------------------------------------------- 6D
def rows_by_range(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """Plain ranges, free() everywhere, the scale on the keys, one temporary for dP."""
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    for first in range(0, N, Br):
        rows = (first, min(first + Br, N))
        do, o = m.load(dO, rows), m.load(O, rows)
        o *= do
        products = o.sum(axis=1)
        o.free()
        m.store(products, D, rows)
        q, dq, log_sums = m.load(Q, rows), m.zeros(rows, d), m.load(LSE, rows)
        for start in range(0, N, Bc):
            keys = (start, min(start + Bc, N))
            k, v = m.load(K, keys), m.load(V, keys)
            k *= d**-0.5
            s, dp = q @ k.T, do @ v.T
            s -= log_sums[:, None]
            np.exp(s, out=s)
            dp -= products[:, None]
            s *= dp
            dq.add_matmul(s, k)
            for tile in (k, v, s, dp):
                tile.free()
        m.store(dq, dQ, rows)
        for tile in (do, products, q, dq, log_sums):
            tile.free()
    return dQ, D


QUERIES = Suite("6D", right=rows_by_range, library=("iocourse.schedules.split_backward",))


# ---------------------------------------------------------------------- 6E
def by_counting_visits(walk):
    """A row is there after an odd number of its events."""
    sides = ("q", "do", "dq"), ("k", "v", "dk", "dv")
    own = [next(word for word in event.split() if word in sides[0] + sides[1]) for event in walk]
    paid = 0
    for n, event in enumerate(walk):
        other = sides[own[n] in sides[0]]
        paid += 0 if "drop" in event else sum(own[:n].count(row) % 2 for row in other)
    return paid


WALKS = Suite(
    "6E", right=by_counting_visits, library=("iocourse.explore.figures.pair_residency.pair_residency",)
)

SUITES = (TILE, FUSED, SWEEPS, QUERIES, WALKS)
