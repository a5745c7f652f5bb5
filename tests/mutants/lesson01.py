"""Lesson 01: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import Mutant, Suite

FINITE = "is finite for large logits"


# ---------------------------------------------------------------------- 1A softmax
def row_by_row(S):
    P = np.empty_like(S)
    for i, row in enumerate(S):
        e = np.exp(row - max(row))
        P[i] = e / e.sum()
    return P


# ---------------------------------------------------------------------- 1B attention
def query_by_query(Q, K, V, causal=False):
    rows = []
    for i, q in enumerate(Q):
        seen = i + 1 if causal else len(K)
        s = K[:seen] @ q / len(q) ** 0.5
        e = np.exp(s - s.max())
        rows.append(e @ V[:seen] / e.sum())
    return np.array(rows)


# ---------------------------------------------------------------------- 1C back through softmax
def by_the_full_matrix(P, dP):
    return np.stack([(np.diag(p) - np.outer(p, p)) @ dp for p, dp in zip(P, dP, strict=True)])


# ---------------------------------------------------------------------- 1D the whole backward pass
def with_d_from_the_output(Q, K, V, dO, causal=False):
    q = Q * Q.shape[1] ** -0.5
    S = q @ K.T
    if causal:
        S[np.triu_indices(len(S), 1)] = -np.inf
    E = np.exp(S - S.max(axis=1)[:, None])
    P = E / E.sum(axis=1)[:, None]
    D = (dO * (P @ V)).sum(axis=1)
    dS = P * (dO @ V.T - D[:, None])
    return (dS @ K) * Q.shape[1] ** -0.5, dS.T @ q, P.T @ dO


SUITES = (
    Suite(
        "1A",
        right=row_by_row,
        wrong={
            "its size": (
                Mutant(
                    "-inf replaced by a small number",
                    "gives a score of -inf the weight 0",
                    (
                        "S - S.max(axis=-1, keepdims=True)",
                        "np.maximum(S, S.max(axis=-1, keepdims=True) - 600) - S.max(axis=-1, keepdims=True)",
                    ),
                ),
                Mutant(
                    "maximum of at least -10⁹",
                    FINITE,
                    ("S - S.max(axis=-1, keepdims=True)", "S - S.max(1, keepdims=True, initial=-1e9)"),
                ),
                Mutant(
                    "a little added to the sum",
                    "every row sums to one",
                    ("E.sum(axis=-1, keepdims=True)", "(E.sum(axis=-1, keepdims=True) + 1e-6)"),
                ),
            ),
            "no operator makes it": (
                Mutant(
                    "maximum-of-at-least-3e38",
                    "is finite for large logits",
                    ("S.max(axis=-1, keepdims=True))  #", "S.max(axis=-1, keepdims=True, initial=-3e38))  #"),
                ),
            ),
        },
    ),
    Suite(
        "1B",
        right=query_by_query,
        wrong={
            "no operator makes it": (
                Mutant(
                    "hidden-as-1e30",
                    "with the causal mask, the first query attends to the first key only",
                    ("S, -np.inf)", "S, -1e30)"),
                ),
            )
        },
    ),
    Suite("1C", right=by_the_full_matrix),
    Suite(
        "1D",
        right=with_d_from_the_output,
        wrong={
            "its size": (
                Mutant("hidden scores -10⁹", "dV equals the exact gradient", ("S, -np.inf)", "S, -1e9)")),
            ),
            "no operator makes it": (
                Mutant("hidden-as-1e30", "dV equals the exact gradient", ("S, -np.inf)", "S, -1e30)")),
            ),
        },
    ),
)
