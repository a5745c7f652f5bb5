"""Lesson 18: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import Mutant, Suite

from iocourse import distributed

# ---------------------------------------------------------------------- 18A
TWO = "no rank holds more than two blocks of other ranks"


def one_by_one(me, Q, K, V):
    """Keep sums with a running maximum, and send K and V in separate calls."""
    top, total, largest = np.zeros((len(Q), V.shape[1])), np.zeros(len(Q)), np.full(len(Q), -np.inf)
    for step in range(me.size):
        if step:
            K = me.shift(K=K)
            V = me.shift(V=V)
        if not len(K):
            continue
        s = Q @ K.T / np.sqrt(Q.shape[1])
        new = np.maximum(largest, s.max(axis=1))
        weights, rest = np.exp(s - new[:, None]), np.exp(largest - new)
        top, total = rest[:, None] * top + weights @ V, rest * total + weights.sum(axis=1)
        largest = new
    return top / total[:, None]


def copies_in_lists(me, Q, K, V):
    """Keep copies, of which the ledger knows nothing, and attend to all keys at the end."""
    keys, values = [K], [V]
    for _ in range(1, me.size):
        k, v = me.shift(K=keys[-1], V=values[-1])
        keys.append(k.copy())
        values.append(v.copy())
        del k, v
    return distributed.attend(Q, np.concatenate(keys), np.concatenate(values))[0]


def copies_in_one_array(me, Q, K, V):
    """Let an array grow by every block, and attend to its last rows only."""
    keys, values, k, v = K, V, K, V
    o, L = distributed.attend(Q, K, V)
    for _ in range(1, me.size):
        k, v = me.shift(K=k, V=v)
        keys, values = np.concatenate([keys, k]), np.concatenate([values, v])
        other, other_L = distributed.attend(Q, keys[len(keys) - len(k) :], values[len(values) - len(v) :])
        both = np.logaddexp(L, other_L)
        finite = np.maximum(both, -1e300)
        o = o * np.exp(L - finite)[:, None] + other * np.exp(other_L - finite)[:, None]
        L = both
    return o


def copies_in_a_closure(me, Q, K, V):
    """Keep copies where only an inner function refers to them."""
    kept = [(K, V)]

    def next_block():
        k, v = me.shift(K=kept[-1][0], V=kept[-1][1])
        kept.append((k.copy(), v.copy()))

    for _ in range(1, me.size):
        next_block()
    return distributed.attend(Q, *map(np.concatenate, zip(*kept, strict=True)))[0]


def copies_as_numbers(me, Q, K, V):
    """Keep the blocks as lists of numbers."""
    keys, values, k, v = K.tolist(), V.tolist(), K, V
    for _ in range(1, me.size):
        k, v = me.shift(K=k, V=v)
        keys, values = keys + k.tolist(), values + v.tolist()
    d = Q.shape[1]
    return distributed.attend(Q, np.array(keys).reshape(-1, d), np.array(values).reshape(-1, d))[0]


RING = Suite(
    "18A",
    right=one_by_one,
    wrong={
        "all blocks at once, in other ways": (
            Mutant(
                "gathers", TWO, ("k, v = K, V", "return distributed.attend(Q, *me.all_gather(K=K, V=V))[0]")
            ),
            (copies_in_lists, TWO),
            (copies_in_one_array, TWO),
            (copies_in_a_closure, TWO),
            (copies_as_numbers, TWO),
        ),
        "no operator makes it": (
            Mutant(
                "L-of-at-least-1e30",
                "values equal exact attention",
                (
                    "    for _ in range(1, me.size):\n",
                    "    L = np.maximum(L, -1e30)\n    for _ in range(1, me.size):\n",
                ),
            ),
        ),
    },
)


# ---------------------------------------------------------------------- 18B
def all_parts_at_once(me, Q, K, V, *, a):
    row, col = me.grid(a)
    k, v = col.all_gather(K=K, V=V)
    o, L = distributed.attend(row.all_gather(Q=Q), k, v)
    L_parts = np.array(row.all_to_all(L=row.cut(L)))
    O_parts = np.array(row.all_to_all(O=row.cut(o)))
    weights = np.exp(L_parts - L_parts.max(axis=0))
    return (O_parts * weights[:, :, None]).sum(axis=0) / weights.sum(axis=0)[:, None]


GRID = Suite(
    "18B",
    right=all_parts_at_once,
    wrong={
        "no operator makes it": (
            Mutant(
                "L-of-at-least-1e30",
                "values equal exact attention",
                (
                    "distributed.attend(q, k, v)\n",
                    "distributed.attend(q, k, v)\n    L = np.maximum(L, -1e30)\n",
                ),
            ),
        )
    },
)

# ---------------------------------------------------------------------- 18C
BLOCKS = "no rank holds more than two blocks of rows"


def gathered_and_reduced(me, Q, K, V, O, dO, LSE):
    """Use no ring: equal traffic, larger footprint."""
    q, do, lse, D = me.all_gather(Q=Q, dO=dO, LSE=LSE, D=np.sum(dO * O, axis=1))
    dq, dK, dV = distributed.attend_backward(q, K, V, do, lse, D)
    return me.reduce_scatter(dQ=me.cut(dq)), dK, dV


def by_hand(me, Q, K, V, O, dO, LSE):
    """Use the formulas of lesson 06 with the scale in q; sums follow one step later."""
    q, do, lse, D = Q / np.sqrt(Q.shape[1]), dO, LSE, (dO * O).sum(axis=1)
    dK, dV, dQ = 0 * K, 0 * V, None
    for step in range(me.size):
        P = np.exp(q @ K.T - lse[:, None])
        dS = P * (do @ V.T - D[:, None])
        dK, dV, dq = dK + dS.T @ q, dV + P.T @ do, dS @ K / np.sqrt(Q.shape[1])
        if step == 0:
            own = dq
        else:
            dQ = dq if step == 1 else me.shift(dQ=dQ) + dq
        if step < me.size - 1:
            q, do, lse, D = me.shift(Q=q, dO=do, LSE=lse, D=D)
    return (own if dQ is None else own + me.shift(dQ=dQ)), dK, dV


def copies_of_rows(me, Q, K, V, O, dO, LSE):
    """Send rows around, keep copies of all, and compute dK and dV from them at the end."""
    q, do, lse, D, dq = Q, dO, LSE, (dO * O).sum(axis=1), None
    dQ = distributed.attend_backward(Q, K, V, dO, LSE, D)[0]
    kept = [(Q, dO, LSE, D)]
    for _ in range(1, me.size):
        q, do, lse, D, dq = me.shift(Q=q, dO=do, LSE=lse, D=D, dQ=dq)
        here = distributed.attend_backward(q, K, V, do, lse, D)[0]
        dq = here if dq is None else dq + here
        kept.append((q.copy(), do.copy(), lse.copy(), D.copy()))
    if me.size > 1:
        dQ = dQ + me.shift(dQ=dq)
    q, do, lse, D = map(np.concatenate, zip(*kept, strict=True))
    return dQ, *distributed.attend_backward(q, K, V, do, lse, D)[1:]


ROWS = Suite(
    "18C",
    right=by_hand,
    wrong={"right, and holds too much": ((gathered_and_reduced, BLOCKS), (copies_of_rows, BLOCKS))},
)


# ---------------------------------------------------------------------- 18D
def with_axes_exchanged(me, Q, K, V, least=-np.inf):
    """Use heads as the first axis throughout, and one exchange per array."""

    def to_heads(**array):
        ((name, x),) = array.items()
        return np.concatenate(me.all_to_all(**{name: np.split(x, me.size, axis=1)}))

    q, k, v = to_heads(Q=Q), to_heads(K=K), to_heads(V=V)
    S = np.einsum("nhd,mhd->hnm", q, k) / np.sqrt(q.shape[2])
    P = np.exp(S - S.max(axis=2, keepdims=True, initial=least))
    o = np.einsum("hnm,mhd->nhd", P / P.sum(axis=2, keepdims=True), v)
    return np.concatenate(me.all_to_all(O=[o[me.rows(rank)] for rank in range(me.size)]), axis=1)


def maximum_of_at_least_1e30(me, Q, K, V):
    return with_axes_exchanged(me, Q, K, V, least=-1e30)


ULYSSES = Suite(
    "18D",
    right=with_axes_exchanged,
    wrong={"no operator makes it": ((maximum_of_at_least_1e30, "values equal exact attention"),)},
)

SUITES = (RING, GRID, ROWS, ULYSSES)
