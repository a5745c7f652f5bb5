"""Lesson 01: naive attention, forward and backward. Mistakes students make, other right answers, cheats."""

from importlib.util import find_spec

import numpy as np
from harness import Mutant, Suite, called

from iocourse import exact
from iocourse.course.checking import RUNS

WATCHED = "the inputs are left as they were"
FINITE = "large logits stay finite"

# ---------------------------------------------------------------------- 1A softmax
SHIFTED = "S - S.max(axis=-1, keepdims=True)"
SUM = "E.sum(axis=-1, keepdims=True)"
SOFTMAX_MUTANTS = (
    Mutant("no maximum", FINITE, (SHIFTED, "S")),
    Mutant(
        "one maximum for all", "rows of different height do not disturb each other", (SHIFTED, "S - S.max()")
    ),
    Mutant("columns summed", "every row sums to one", ("axis=-1", "axis=0")),
    Mutant("sum of columns only", "every row sums to one", (SUM, "E.sum(axis=0, keepdims=True)")),
    Mutant("one sum for all", "every row sums to one", (SUM, "E.sum()")),
    Mutant("forgotten division", "every row sums to one", (f"E / {SUM}", "E")),
    Mutant("a little added to the sum", "every row sums to one", (SUM, f"({SUM} + 1e-6)")),
    Mutant("maximum of at least 0", FINITE, (SHIFTED, "S - np.maximum(S.max(axis=-1, keepdims=True), 0)")),
    Mutant(
        "maximum of at least -10,000",
        FINITE,
        (SHIFTED, "S - np.maximum(S.max(axis=-1, keepdims=True), -1e4)"),
    ),
    Mutant("maximum of at least -100,000", FINITE, (SHIFTED, "S - S.max(1, keepdims=True, initial=-1e5)")),
    Mutant("maximum of at least -10⁹", FINITE, (SHIFTED, "S - S.max(1, keepdims=True, initial=-1e9)")),
    Mutant(
        "complex numbers",
        "values equal exact softmax",
        (f"E / {SUM}", f"E / {SUM} + 1j * np.arange(E.shape[1])"),
    ),
    Mutant("text", "values equal exact softmax", (f"E / {SUM}", f"(E / {SUM}).astype('U40')")),
    Mutant("scores clipped", "values equal exact softmax", (SHIFTED, "np.clip(S, -50, 50)")),
    Mutant(
        "divided by the maximum",
        "a number added to a whole row changes nothing",
        (SHIFTED, "S / np.abs(S).max(axis=-1, keepdims=True)"),
    ),
    Mutant(
        "-inf replaced by a small number",
        "a score of -inf gets the weight 0",
        (SHIFTED, "np.maximum(S, S.max(axis=-1, keepdims=True) - 600) - S.max(axis=-1, keepdims=True)"),
    ),
    Mutant(
        "in place",
        WATCHED,
        (f"E = np.exp({SHIFTED})", "S -= S.max(axis=-1, keepdims=True)\n    E = np.exp(S)"),
    ),
)


def by_log_sum_exp(S):
    top = np.max(S, axis=1)
    lse = top + np.log(np.exp((S.T - top).T).sum(axis=1))
    return np.exp(S - lse[:, None])


BUFFERS = {}


def into_one_buffer(S):
    """The array of the first call is written over by the next one of its shape."""
    P = BUFFERS.setdefault(S.shape, np.empty(S.shape))
    P[:] = by_log_sum_exp(S)
    return P


def with_a_loop_from_a_number(S):
    """Each row's maximum in a loop that begins with a number thought to be low."""
    tops = []
    for row in S:
        top = -99999
        for s in row:
            top = s if s > top else top
        tops.append([top])
    E = np.exp(S - tops)
    return E / E.sum(axis=1, keepdims=True)


def by_torch(S):
    import torch

    return torch.softmax(torch.from_numpy(S), dim=1).numpy()


def by_torch_in_a_try(S):
    """What the guard raises is caught here, and the answer computed all the same."""
    try:
        return by_torch(S)
    except RuntimeError:
        return by_torch(S)


def row_by_row(S):
    P = np.empty_like(S)
    for i, row in enumerate(S):
        e = np.exp(row - max(row))
        P[i] = e / e.sum()
    return P


# ---------------------------------------------------------------------- 1B attention
MASKED = "np.where(np.tri(len(S), dtype=bool), S, -np.inf)"
LAST = "return my_softmax(S) @ V"
AHEAD, ONES, SCALE = (
    "no query looks ahead",
    "the weights of the visible keys sum to one",
    "scores are divided by √d",
)
VALUES_OF_ATTENTION = "values equal exact attention"
FIRST = "with the mask, the first query sees the first key alone"
ATTENTION_MUTANTS = (
    Mutant("missing scale", SCALE, (" / np.sqrt(Q.shape[1])", "")),
    Mutant("divided by d", SCALE, (" / np.sqrt(Q.shape[1])", " / Q.shape[1]")),
    Mutant("divided by the root of N", SCALE, ("Q.shape[1]", "Q.shape[0]")),
    Mutant("multiplied by the root", SCALE, ("/ np.sqrt", "* np.sqrt")),
    Mutant("mask one too wide", AHEAD, ("np.tri(len(S), dtype=bool)", "np.tri(len(S), k=1, dtype=bool)")),
    Mutant("diagonal hidden", FIRST, ("np.tri(len(S), dtype=bool)", "np.tri(len(S), k=-1, dtype=bool)")),
    Mutant("mask upside down", AHEAD, ("np.tri(len(S), dtype=bool)", "np.tri(len(S), dtype=bool).T")),
    Mutant("mask forgotten", AHEAD, ("if causal:", "if False:")),
    Mutant("mask always on", "values equal exact attention", ("if causal:", "if True:")),
    Mutant("hidden scores 0 instead of -inf", AHEAD, (MASKED, "np.tril(S)")),
    Mutant("hidden scores -10000 instead of -inf", FIRST, (MASKED, MASKED.replace("-np.inf", "-1e4"))),
    Mutant(
        "mask after softmax",
        ONES,
        (MASKED, "S"),
        (LAST, "P = my_softmax(S)\n    return (np.tril(P) if causal else P) @ V"),
    ),
    Mutant("softmax over the queries", ONES, (LAST, "return my_softmax(S.T).T @ V")),
    Mutant("weights transposed", ONES, (LAST, "return my_softmax(S).T @ V")),
    Mutant(
        "no maximum subtracted",
        FINITE,
        (LAST, "E = np.exp(S)\n    return E / E.sum(axis=1, keepdims=True) @ V"),
    ),
    Mutant("softmax forgotten", ONES, (LAST, "return np.where(np.isinf(S), 0, S) @ V")),
    Mutant(
        "argmax for softmax", SCALE, (LAST, "return (S == S.max(axis=1, keepdims=True)).astype(float) @ V")
    ),
    Mutant("mask unless told otherwise", VALUES_OF_ATTENTION, ("causal=False", "causal=True")),
    Mutant(
        "hidden scores -20000 instead of -inf",
        VALUES_OF_ATTENTION,
        (MASKED, MASKED.replace("-np.inf", "-2e4")),
    ),
    Mutant("hidden scores -100,000", FIRST, (MASKED, MASKED.replace("-np.inf", "-1e5"))),
    Mutant("hidden scores -10⁹", FIRST, (MASKED, MASKED.replace("-np.inf", "-1e9"))),
    Mutant("scale of one d", VALUES_OF_ATTENTION, ("np.sqrt(Q.shape[1])", "2.0")),
    Mutant("complex numbers", VALUES_OF_ATTENTION, (LAST, "return my_softmax(S) @ V + 1j * V")),
    Mutant("Q scaled in place", WATCHED, ("S = Q @ K.T", "Q /= 1.5\n    S = 1.5 * Q @ K.T")),
)


def with_an_added_mask(Q, K, V, causal=False):
    N, d = Q.shape
    S = (Q * d**-0.5) @ K.T
    if causal:
        S = S + np.triu(np.full((N, N), -np.inf), k=1)
    E = np.exp(S - S.max(axis=1, keepdims=True))
    return (E @ V) / E.sum(axis=1)[:, None]


def query_by_query(Q, K, V, causal=False):
    rows = []
    for i, q in enumerate(Q):
        seen = i + 1 if causal else len(K)
        s = K[:seen] @ q / len(q) ** 0.5
        e = np.exp(s - s.max())
        rows.append(e @ V[:seen] / e.sum())
    return np.array(rows)


def library_attention(Q, K, V, causal=False):
    return exact.attention(Q, K, V, causal=causal)


def library_scores(Q, K, V, causal=False):
    P = np.exp(exact.scores(Q, K, causal=causal))
    return P @ V / P.sum(axis=1)[:, None]


def torchs_attention(Q, K, V, causal=False):
    import torch

    q, k, v = map(torch.from_numpy, (Q, K, V))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).numpy()


def mean_of_values(Q, K, V, causal=False):
    return np.tile(V.mean(axis=0), (len(Q), 1))


# ---------------------------------------------------------------------- 1C back through softmax
ZERO_SUM = "every row of dS sums to zero"
D = "(P * dP).sum(axis=-1, keepdims=True)"
SOFTMAX_BACKWARD_MUTANTS = (
    Mutant("forgotten D", ZERO_SUM, ("P * (dP - D)", "P * dP")),
    Mutant("D not weighted", ZERO_SUM, (D, "dP.sum(axis=-1, keepdims=True)")),
    Mutant("a mean instead of a sum", ZERO_SUM, (D, "(P * dP).mean(axis=-1, keepdims=True)")),
    Mutant("D of the columns", ZERO_SUM, (D, "(P * dP).sum(axis=0, keepdims=True)")),
    Mutant("one D for all", ZERO_SUM, (D, "(P * dP).sum()")),
    Mutant("P times dP alone", "a pair of weight 0 gets the gradient 0", ("P * (dP - D)", "P * dP - D")),
    Mutant("sign of D", "a number added to a row of dP changes nothing", ("dP - D", "dP + D")),
    Mutant("diagonal of the matrix only", ZERO_SUM, ("P * (dP - D)", "P * (1 - P) * dP")),
    Mutant("wrong sign", "values equal the derivative of softmax", ("P * (dP - D)", "P * (D - dP)")),
    Mutant("in place", WATCHED, ("return P * (dP - D)", "dP -= D\n    return P * dP")),
)


def by_the_full_matrix(P, dP):
    return np.stack([(np.diag(p) - np.outer(p, p)) @ dp for p, dp in zip(P, dP, strict=True)])


def torchs_softmax_backward(P, dP):
    import torch

    S = torch.from_numpy(np.log(P)).requires_grad_()
    torch.softmax(S, dim=1).backward(torch.from_numpy(dP))
    return S.grad.numpy()


def by_einsum(P, dP):
    D = np.einsum("ij,ij->i", P, dP)
    return P * dP - P * D[:, None]


# ---------------------------------------------------------------------- 1D the whole backward pass
STEEP = "dQ and dK are as steep as the loss: the scale is in both"
KEYS = "a vector added to every key costs nothing: the rows of dK sum to zero"
VALUES = "a vector added to every value shifts every output: dV and dO have equal sums"
PAIR = "a masked pair passes no gradient back"
DS = "dS = my_softmax_backward(P, dP)"
MASK_LINES = "    if causal:\n        S = np.where(np.tri(len(S), dtype=bool), S, -np.inf)  # (N, N)\n"
BACKWARD_MUTANTS = (
    Mutant("scale forgotten in dQ", STEEP, ("scale * (dS @ K)", "dS @ K")),
    Mutant("scale forgotten in dK", STEEP, ("scale * (dS.T @ Q)", "dS.T @ Q")),
    Mutant(
        "scale forgotten in both", STEEP, ("scale * (dS @ K)", "dS @ K"), ("scale * (dS.T @ Q)", "dS.T @ Q")
    ),
    Mutant("scale forgotten in S", "dV equals the exact gradient", ("scale * (Q @ K.T)", "Q @ K.T")),
    Mutant("forgotten D", KEYS, (DS, "dS = P * dP")),
    Mutant("D from dO alone", KEYS, (DS, "dS = P * (dP - dO.sum(axis=1, keepdims=True))")),
    Mutant("softmax passed over", KEYS, (DS, "dS = dP")),
    Mutant("dS transposed", KEYS, ("dS.T @ Q", "dS @ Q"), ("dS @ K", "dS.T @ K")),
    Mutant("dS transposed in dQ", "dQ equals the exact gradient", ("dS @ K", "dS.T @ K")),
    Mutant("P not transposed", VALUES, ("P.T @ dO", "P @ dO")),
    Mutant("mask forgotten", PAIR, (MASK_LINES, "")),
    Mutant("mask one too wide", PAIR, ("np.tri(len(S), dtype=bool)", "np.tri(len(S), k=1, dtype=bool)")),
    Mutant("K for Q", "dK equals the exact gradient", ("dS.T @ Q", "dS.T @ K")),
    Mutant(
        "no maximum subtracted",
        FINITE,
        ("P = my_softmax(S)", "P = np.exp(S) / np.exp(S).sum(axis=1, keepdims=True)"),
    ),
    Mutant("another order", "dQ equals the exact gradient", ("return dQ, dK, dV", "return dK, dQ, dV")),
    Mutant("two of three", "runs without an error", ("return dQ, dK, dV", "return dQ, dK")),
    Mutant(
        "stacked, not a tuple",
        "runs without an error",
        ("return dQ, dK, dV", "return np.stack([dQ, dK, dV])"),
    ),
    Mutant(
        "dV left transposed",
        "three gradients, with the shapes of Q, K and V",
        ("return dQ, dK, dV", "return dQ, dK, dV.T"),
    ),
    Mutant("mask unless told otherwise", "dV equals the exact gradient", ("causal=False", "causal=True")),
    Mutant("hidden scores -10000", "dV equals the exact gradient", ("S, -np.inf)", "S, -1e4)")),
    Mutant("hidden scores -100,000", "dV equals the exact gradient", ("S, -np.inf)", "S, -1e5)")),
    Mutant("hidden scores -10⁹", "dV equals the exact gradient", ("S, -np.inf)", "S, -1e9)")),
    Mutant("scale of one d", "dV equals the exact gradient", ("1 / np.sqrt(Q.shape[1])", "0.5")),
    Mutant("complex numbers", "dQ equals the exact gradient", ("return dQ,", "return dQ + 1j * dQ,")),
    Mutant("text", "dV equals the exact gradient", ("return dQ, dK, dV", "return dQ, dK, dV.astype('U40')")),
    Mutant("dO scaled in place", WATCHED, ("dV = P.T @ dO", "dO *= 2\n    dO /= 4\n    dV = P.T @ dO")),
)


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


def one_query_at_a_time(Q, K, V, dO, causal=False):
    scale = Q.shape[1] ** -0.5
    dQ, dK, dV = np.zeros_like(Q), np.zeros_like(K), np.zeros_like(V)
    for i in range(len(Q)):
        seen = slice(0, i + 1 if causal else len(K))
        s = K[seen] @ Q[i] * scale
        p = np.exp(s - s.max())
        p = p / p.sum()
        dp = V[seen] @ dO[i]
        ds = p * (dp - p @ dp)
        dQ[i] = scale * ds @ K[seen]
        dK[seen] += scale * np.outer(ds, Q[i])
        dV[seen] += np.outer(p, dO[i])
    return dQ, dK, dV


def by_differences(Q, K, V, dO, causal=False):
    """The loss Σ dO∘O at places on both sides of each number, and its slope between them."""
    found = []
    for x in (Q, K, V):
        slopes = np.zeros_like(x)
        for at in np.ndindex(x.shape):
            before, sides = x[at], []
            for step in (2e-5, -2e-5):
                x[at] = before + step
                sides.append((dO * with_an_added_mask(Q, K, V, causal)).sum())
            x[at] = before
            slopes[at] = (sides[0] - sides[1]) / 4e-5
        found.append(slopes)
    return tuple(found)


def by_torchs_autograd(Q, K, V, dO, causal=False):
    import torch

    q, k, v = (torch.tensor(x, requires_grad=True) for x in (Q, K, V))
    torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).backward(torch.tensor(dO))
    return tuple(x.grad.numpy() for x in (q, k, v))


def library_backward(Q, K, V, dO, causal=False):
    return tuple(exact.attention_backward(Q, K, V, dO, causal=causal))


def zeros(Q, K, V, dO, causal=False):
    return np.zeros_like(Q), np.zeros_like(K), np.zeros_like(V)


OWN = "is your own work"


def torchs(*answers):
    """Cheats that hand the work to torch, where it is installed."""
    return tuple((answer, OWN) for answer in answers) if find_spec("torch") else ()


SUITES = (
    Suite(
        "1A",
        SOFTMAX_MUTANTS,
        (by_log_sum_exp, row_by_row),
        (
            (called("library_softmax", lambda S: exact.softmax(S)), OWN),
            (called("library_log_sum_exp", lambda S: np.exp(S - exact.log_sum_exp(S)[:, None])), OWN),
            *torchs(by_torch, by_torch_in_a_try),
            (into_one_buffer, RUNS),
            (with_a_loop_from_a_number, FINITE),
            (called("even_weights", lambda S: np.full_like(S, 1 / S.shape[1])), "values equal exact softmax"),
        ),
    ),
    Suite(
        "1B",
        ATTENTION_MUTANTS,
        (with_an_added_mask, query_by_query),
        (
            (library_attention, OWN),
            (library_scores, OWN),
            *torchs(torchs_attention),
            (mean_of_values, VALUES_OF_ATTENTION),
        ),
    ),
    Suite(
        "1C",
        SOFTMAX_BACKWARD_MUTANTS,
        (by_the_full_matrix, by_einsum),
        (
            (called("library_softmax_backward", lambda P, dP: exact.softmax_backward(P, dP)), OWN),
            *torchs(torchs_softmax_backward),
            (called("nothing", lambda P, dP: np.zeros_like(P)), "values equal the derivative of softmax"),
        ),
    ),
    Suite(
        "1D",
        BACKWARD_MUTANTS,
        (with_d_from_the_output, one_query_at_a_time),
        (
            (library_backward, OWN),
            *torchs(by_torchs_autograd),
            (by_differences, "dQ equals the exact gradient"),
            (zeros, "dV equals the exact gradient"),
        ),
    ),
)
