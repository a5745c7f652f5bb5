"""Lesson 06: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import MOST, Suite, as_scratch

from iocourse.machine import probabilities


# ---------------------------------------------------------------------- 6A
def as_a_list(q, k, v, do, o, L):
    return [*two_products_apart(q, k, v, do, o, L)]


def two_products_apart(q, k, v, do, o, L):
    """Compute p∘dp minus D times p."""
    p = np.exp(np.einsum("ic,jc->ij", q, k) / q.shape[1] ** 0.5 - L.reshape(-1, 1))
    D = np.einsum("ic,ic->i", do, o)
    return p, p * np.einsum("ic,jc->ij", do, v) - np.diag(D) @ p


TILE = Suite("6A", right=as_a_list)


# ---------------------------------------------------------------------- 6B
def products_of(m, O, dO, D, rows):
    with m.load(O, rows) as o, m.load(dO, rows) as do:
        do *= o
        with do.sum(axis=1) as products:
            m.store(products, D, rows)


def dQ_into_the_place_of_dO(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """Reuse the buffer of dO_i by into=, and apply the scale at the end."""
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    dK, dV = m.new("dK", (N, d)), m.new("dV", (N, d))
    for i in m.blocks(N, Br):
        products_of(m, O, dO, D, (i.start, i.stop))
    for j in m.blocks(N, Bc):
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            k *= d**-0.5
            for i in m.blocks(N, Br):
                q, do, log_sums, products = m.load(Q, i), m.load(dO, i), m.load(LSE, i), m.load(D, i)
                s = q @ k.T
                probabilities(s, log_sums)
                dv.add_matmul(s.T, do)
                s.multiply_by_matmul(do, v.T, less=products)
                dk.add_matmul(s.T, q)
                if j.first:
                    do *= 0.0
                    dq = do
                else:
                    dq = m.load(dQ, i, into=do)
                dq.add_matmul(s, k)
                m.store(dq, dQ, i)
                for tile in (q, s, log_sums, products, dq):
                    tile.free()
            dk *= d**-0.5
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV


FUSED = Suite(
    "6B",
    right=dQ_into_the_place_of_dO,
    wrong={"no operator makes it": (as_scratch("Q", "q *=", "m.store(q, Q, i)", MOST),)},
)


# ---------------------------------------------------------------------- 6C
def by_cases(stays, gradients):
    """Compute by another formula, and subtract the arrays that are not moved."""
    doubled = {"rows": 2 + 2 * ("dQ" in gradients), "columns": 1 + bool({"dQ", "dK"} & set(gradients))}
    doubled["columns"] += 2 * len(set(gradients) - {"dQ"})
    at_home = {"rows": {"dQ"}, "columns": {"dK", "dV"}}[stays] & set(gradients)
    doubled[stays] -= len(at_home)
    return float(doubled["rows"] * doubled["columns"])


SWEEPS = Suite("6C", right=by_cases)


# ---------------------------------------------------------------------- 6D
def rows_by_range(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """Use plain ranges, explicit free(), scaled keys, and one temporary for dP."""
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


QUERIES = Suite(
    "6D",
    right=rows_by_range,
    wrong={"no operator makes it": (as_scratch("Q", "probabilities(s, L_i)", "m.store(q, Q, i)", MOST),)},
)


# ---------------------------------------------------------------------- 6E
def by_counting_visits(walk):
    """Count a row as resident after an odd number of its events."""
    sides = ("q", "do", "dq"), ("k", "v", "dk", "dv")
    own = [next(word for word in event.split() if word in sides[0] + sides[1]) for event in walk]
    paid = 0
    for n, event in enumerate(walk):
        other = sides[own[n] in sides[0]]
        paid += 0 if "drop" in event else sum(own[:n].count(row) % 2 for row in other)
    return paid


WALKS = Suite("6E", right=by_counting_visits)

SUITES = (TILE, FUSED, SWEEPS, QUERIES, WALKS)
