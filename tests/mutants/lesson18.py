"""What is known about the exercises of lesson 18: mistakes, other right answers, cheats."""

import time

import numpy as np
from harness import Mutant, Suite

from iocourse import distributed, exact
from iocourse.course.checking import OWN, RUNS

VALUES, NOTHING = "values equal exact attention", "nothing else moves"
FAR = "scores of ±10,000 neither overflow nor vanish"


def together(o, L, other, other_L):
    """(o, L) over both sets of keys, by weights that sum to one."""
    m = np.maximum(L, other_L)
    one, two = np.exp(L - m), np.exp(other_L - m)
    total = one + two
    return o * (one / total)[:, None] + other * (two / total)[:, None], m + np.log(total)


# ---------------------------------------------------------------------- 18A
ONCE = "every rank receives the keys and values of the others once"
TWO = "no rank holds more than two blocks of others"
SHIFT = "k, v = me.shift(K=k, V=v)"


def the_other_way_round(me, Q, K, V):
    o, L = distributed.attend(Q, K, V)
    for _ in range(me.size - 1):
        K, V = me.shift(K=K, V=V, by=-1)
        o, L = together(o, L, *distributed.attend(Q, K, V))
    return o


def started_before(me, Q, K, V):
    """The next block is under way while this one is used."""
    k, v, found = K, V, None
    for step in range(me.size):
        moving = me.start_shift(K=k, V=v) if step < me.size - 1 else None
        here = distributed.attend(Q, k, v)
        found = here if found is None else together(*found, *here)
        if moving:
            k, v = moving.wait()
    return found[0]


def one_by_one(me, Q, K, V):
    """Sums under a running maximum, K and V in calls of their own."""
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


def by_gathering(me, Q, K, V):
    return distributed.attend(Q, *me.all_gather(K=K, V=V))[0]


def queries_gathered(me, Q, K, V):
    """Columns of the square instead of rows: correct, but Q, O and L are what moves."""
    o, L = distributed.attend(me.all_gather(Q=Q), K, V)
    parts = zip(*me.all_to_all(O=me.cut(o), L=me.cut(L)), strict=True)
    o, L = next(parts)
    for part in parts:
        o, L = together(o, L, *part)
    return o


_BOARD = {}


def over_a_blackboard(me, Q, K, V):
    """Through a name that all ranks of this process share; the call alone makes each wait for all."""
    _BOARD[me.rank] = K, V
    me.all_gather(K=K[:0], V=V[:0])
    k, v = (np.concatenate([_BOARD[rank][n] for rank in range(me.size)]) for n in (0, 1))
    return distributed.attend(Q, k, v)[0]


_KEYS = np.ones((12, 4))


def from_the_notebook(me, Q, K, V):
    return distributed.attend(Q, _KEYS, _KEYS)[0]


def librarys_merge(me, Q, K, V):
    return distributed.merge(*distributed.attend(Q, K, V), *distributed.attend(Q, K, V))[0]


def librarys_ring(me, Q, K, V):
    return distributed.get("ring")(me, Q, K, V)[0]


def one_rank_silent(me, Q, K, V):
    k, v = K, V
    if me.rank:
        k, v = me.shift(K=k, V=v)
    return distributed.attend(Q, k, v)[0]


def one_rank_raises(me, Q, K, V):
    if me.rank == me.size - 1:
        raise ValueError("no room")
    return distributed.attend(Q, *me.shift(K=K, V=V))[0]


def two_receives(me, Q, K, V):
    me.recv((me.rank + 1) % me.size, "K")
    return Q


def waits_a_little(me, Q, K, V):
    time.sleep(0.001)
    return Q


def bare_exponentials(me, Q, K, V):
    """Wrong: numerators and sums added as they are, which overflow."""
    o, L = distributed.attend(Q, K, V)
    total, z, k, v = o * np.exp(L)[:, None], np.exp(L), K, V
    for _ in range(1, me.size):
        k, v = me.shift(K=k, V=v)
        o, L = distributed.attend(Q, k, v)
        total, z = total + o * np.exp(L)[:, None], z + np.exp(L)
    return total / z[:, None]


RING = Suite(
    id="18A",
    mutants=(
        Mutant("a-hop-more", ONCE, ("range(1, me.size)", "range(me.size)")),
        Mutant("a-hop-less", VALUES, ("range(1, me.size)", "range(2, me.size)")),
        Mutant("own-keys-again", VALUES, (SHIFT, "k, v = me.shift(K=K, V=V)")),
        Mutant("names-swapped", VALUES, (SHIFT, "v, k = me.shift(K=k, V=v)")),
        Mutant("queries-travel-too", NOTHING, (SHIFT, "k, v, _ = me.shift(K=k, V=v, Q=Q)")),
        Mutant("values-stay", RUNS, (SHIFT, "k = me.shift(K=k)")),
        Mutant("names-of-its-own", ONCE, (SHIFT, "k, v = me.shift(keys=k, values=v)")),
        Mutant("gathers", TWO, ("k, v = K, V", "return distributed.attend(Q, *me.all_gather(K=K, V=V))[0]")),
        Mutant("keeps-every-block", TWO, ("k, v = K, V", "k, v, kept = K, V, []"),
               (SHIFT, f"{SHIFT}; kept.append(k)")),
        Mutant("joins-copies", TWO, ("k, v = K, V", "k, v, ks, vs = K, V, K, V"),
               (SHIFT, f"{SHIFT}; ks, vs = np.concatenate([ks, k]), np.concatenate([vs, v])"),
               ("o, L = merged(o, L, *distributed.attend(Q, k, v))", "o, L = distributed.attend(Q, ks, vs)")),
        Mutant("log-sums-returned", RUNS, ("return o", "return o, L")),
        Mutant("plain-mean", VALUES, ("o, L = merged(o, L, *distributed.attend(Q, k, v))",
                                      "o = (o + distributed.attend(Q, k, v)[0]) / 2")),
        Mutant("last-one-only", VALUES, ("o, L = merged(o, L, *distributed.attend(Q, k, v))",
                                         "o, L = distributed.attend(Q, k, v)")),
        Mutant("larger-sum-for-all", VALUES, ("o, L = merged(o, L, *distributed.attend(Q, k, v))",
                                              "o, _ = merged(o, L, *distributed.attend(Q, k, v))")),
        Mutant("two-at-a-time", VALUES, (SHIFT, "k, v = me.shift(K=k, V=v, by=2 if me.size > 2 else 1)")),
    ),
    right=(the_other_way_round, started_before, one_by_one),
    cheats=(
        (by_gathering, TWO), (queries_gathered, ONCE), (over_a_blackboard, ONCE), (from_the_notebook, RUNS),
        (librarys_merge, OWN), (librarys_ring, OWN), (one_rank_silent, RUNS),
        (one_rank_raises, RUNS), (two_receives, RUNS), (waits_a_little, VALUES), (exact.attention, OWN),
        (bare_exponentials, FAR),
    ),
)  # fmt: skip


# ---------------------------------------------------------------------- 18B
SQUARE, OBLONG = "on a square, a rank receives the queries of its row once", "where a is not b, too"
COLUMN = "a rank receives the keys and values of its column once"
PARTS = "a rank sends its part of O and L to whom it is due, once"


def by_bare_exponentials(me, Q, K, V, *, a):
    """Wrong: exp(L) of what came, which overflows."""
    row, col = me.grid(a)
    k, v = col.all_gather(K=K, V=V)
    o, L = distributed.attend(row.all_gather(Q=Q), k, v)
    outputs, sums = row.all_to_all(O=row.cut(o), L=row.cut(L))
    weights = np.exp(np.array(sums))
    return sum(w[:, None] * o for w, o in zip(weights, outputs, strict=True)) / weights.sum(axis=0)[:, None]


def by_messages(me, Q, K, V, *, a):
    """No group calls but the gathers: parts go one by one, and the row is known by arithmetic."""
    row, col = me.grid(a)
    o, L = distributed.attend(row.all_gather(Q=Q), col.all_gather(K=K), col.all_gather(V=V))
    outputs, sums = row.cut(o), row.cut(L)
    for other in range(row.size):
        if other != row.rank:
            row.send(other, O=outputs[other], L=sums[other])
    o, L = outputs[row.rank], sums[row.rank]
    for other in range(row.size):
        if other != row.rank:
            o, L = together(o, L, *row.recv(other, "O", "L"))
    return o


def all_parts_at_once(me, Q, K, V, *, a):
    row, col = me.grid(a)
    k, v = col.all_gather(K=K, V=V)
    o, L = distributed.attend(row.all_gather(Q=Q), k, v)
    L_parts = np.array(row.all_to_all(L=row.cut(L)))
    O_parts = np.array(row.all_to_all(O=row.cut(o)))
    weights = np.exp(L_parts - L_parts.max(axis=0))
    return (O_parts * weights[:, :, None]).sum(axis=0) / weights.sum(axis=0)[:, None]


def a_ring_again(me, Q, K, V, *, a):
    return the_other_way_round(me, Q, K, V)


def a_grid_of_its_own(me, Q, K, V, *, a):
    """The other grid, b × a: the values are right."""
    return all_parts_at_once(me, Q, K, V, a=me.size // a)


GATHER_Q, GATHER_KV = "q = row.all_gather(Q=Q)", "k, v = col.all_gather(K=K, V=V)"
DEAL = "outputs, sums = row.all_to_all(O=row.cut(o), L=row.cut(L))"
GRID = Suite(
    id="18B",
    mutants=(
        Mutant("rows-for-columns", OBLONG, ("row, col = me.grid(a)", "col, row = me.grid(a)")),
        Mutant("own-queries-only", VALUES,
               (GATHER_Q, "return distributed.attend(Q, *col.all_gather(K=K, V=V))[0]")),
        Mutant("keeps-its-part", VALUES, (DEAL, "return row.cut(o)[row.rank]")),
        Mutant("no-log-sums", RUNS, (DEAL, "outputs, sums = row.all_to_all(O=row.cut(o)), row.cut(L)")),
        Mutant("gathers-everything", COLUMN, (GATHER_KV, "k, v = me.all_gather(K=K, V=V)")),
        Mutant("queries-of-all", RUNS, (GATHER_Q, "q = me.all_gather(Q=Q)")),
        Mutant("keys-of-the-row", VALUES, (GATHER_KV, "k, v = row.all_gather(K=K, V=V)")),
        Mutant("deals-in-the-column", RUNS, (DEAL, DEAL.replace("row.", "col."))),
        Mutant("a-part-less", VALUES, ("outputs[1:], sums[1:]", "outputs[2:], sums[2:]")),
        Mutant("equal-pieces", RUNS,
               (DEAL, "n = len(o) // row.size; cut = lambda x: [x[i * n : i * n + n] for i in "
                "range(row.size)]; outputs, sums = row.all_to_all(O=cut(o), L=cut(L))")),
        Mutant("begins-twice", VALUES, ("outputs[1:], sums[1:]", "outputs, sums")),
        Mutant("everything-to-everybody", PARTS, (DEAL, "outputs, sums = [row.all_to_all(O=[o] * row.size), "
               "row.all_to_all(L=[L] * row.size)]; mine = slice(sum(len(me.rows(p)) for p in "
               "range(me.rank - row.rank, me.rank)), None); n = len(Q); "
               "outputs = [x[mine][:n] for x in outputs]; sums = [x[mine][:n] for x in sums]")),
        Mutant("the-other-grid", OBLONG, ("me.grid(a)", "me.grid(me.size // a)")),
    ),
    right=(by_messages, all_parts_at_once),
    cheats=((a_ring_again, COLUMN), (a_grid_of_its_own, OBLONG), (by_bare_exponentials, FAR)),
)  # fmt: skip

# ---------------------------------------------------------------------- 18C
GRADIENTS = "dQ, dK and dV equal the exact gradients"
QUERIES = "every rank receives Q and dO of the others once"
NUMBERS = "of O and of the scores a rank receives one number a row each"
HOPS, STAY = "sums of dQ make P - 1 hops", "keys and values, their gradients and O stay at home"


BLOCKS = "no rank holds more than two blocks of rows"


def sums_a_step_behind(me, Q, K, V, O, dO, LSE):
    """What rows need sets off while they are used; their sums follow in a call of their own."""
    moving, dq, own = (Q, dO, LSE, (dO * O).sum(axis=1)), None, None
    dK, dV = np.zeros_like(K), np.zeros_like(V)
    for step in range(me.size):
        q, do, lse, D = moving
        if step < me.size - 1:
            under_way = me.start_shift(Q=q, dO=do, LSE=lse, D=D)
        dq_here, dk, dv = distributed.attend_backward(q, K, V, do, lse, D)
        dK, dV = dK + dk, dV + dv
        if step == 0:
            own = dq_here
        else:
            dq = dq_here if dq is None else me.shift(dQ=dq) + dq_here
        if step < me.size - 1:
            moving = under_way.wait()
    return (own if dq is None else own + me.shift(dQ=dq)), dK, dV


def gathered_and_reduced(me, Q, K, V, O, dO, LSE):
    """No ring at all: the same words, more room."""
    q, do, lse, D = me.all_gather(Q=Q, dO=dO, LSE=LSE, D=np.sum(dO * O, axis=1))
    dq, dK, dV = distributed.attend_backward(q, K, V, do, lse, D)
    return me.reduce_scatter(dQ=me.cut(dq)), dK, dV


def by_hand(me, Q, K, V, O, dO, LSE):
    """The formulas of lesson 06, with the scale in q, and sums a step behind what they belong to."""
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


def columns_instead(me, Q, K, V, O, dO, LSE):
    k, v = me.all_gather(K=K, V=V)
    dQ, dk, dv = distributed.attend_backward(Q, k, v, dO, LSE, (dO * O).sum(axis=1))
    return dQ, *me.reduce_scatter(dK=me.cut(dk), dV=me.cut(dv))


START = "q, do, lse, dq = Q, dO, LSE, None"
HOP = "q, do, lse, D, dq = me.shift(Q=q, dO=do, LSE=lse, D=D, dQ=dq)"
ROWS = Suite(
    id="18C",
    mutants=(
        Mutant("outputs-travel", STAY, (START, "q, do, lse, dq, o = Q, dO, LSE, None, O"),
               (HOP, "q, do, lse, o, dq = me.shift(Q=q, dO=do, LSE=lse, O=o, dQ=dq); D = (do * o).sum(-1)")),
        Mutant("never-home", RUNS, ("dQ = dQ + me.shift(dQ=dq)", "dQ = dQ + dq")),
        Mutant("own-part-lost", GRADIENTS, ("dQ = dQ + me.shift(dQ=dq)", "dQ = me.shift(dQ=dq)")),
        Mutant("sums-left-behind", GRADIENTS, ("dq = dq_here if dq is None else dq + dq_here",
               "dQ = dQ + dq_here[:len(dQ)] if len(dq_here) >= len(dQ) else dQ; dq = 0 * q")),
        Mutant("a-whole-round", HOPS, (START, "q, do, lse, dq = Q, dO, LSE, dQ"),
               ("dQ = dQ + me.shift(dQ=dq)", "dQ = me.shift(dQ=dq)")),
        Mutant("stale-statistics", GRADIENTS,
               ("(q, K, V, do, lse, D)", "(q, K, V, do, LSE[:1] + 0 * lse, D)")),
        Mutant("a-hop-less", RUNS, ("range(1, me.size)", "range(2, me.size)")),
        Mutant("a-hop-more", RUNS, ("range(1, me.size)", "range(me.size)")),
        Mutant("own-D-for-all", GRADIENTS, (HOP, HOP.replace("lse, D, dq =", "lse, _, dq =")),
               ("(q, K, V, do, lse, D)\n        dK", "(q, K, V, do, lse, D[:1] + 0 * lse)\n        dK")),
        Mutant("keys-travel-too", STAY, (HOP, f"{HOP}; me.shift(K=K)")),
        Mutant("no-value-gradient", GRADIENTS, ("        dV += dv_here\n", "")),
        Mutant("log-sums-twice", NUMBERS, (HOP, f"{HOP}; me.shift(LSE=LSE)")),
    ),
    right=(sums_a_step_behind, by_hand),
    cheats=((columns_instead, QUERIES), (gathered_and_reduced, BLOCKS)),
)  # fmt: skip

# ---------------------------------------------------------------------- 18D
HEADS, HOME = "a rank receives all rows of its heads once", "a rank sends the outputs of its heads home once"


def with_axes_exchanged(me, Q, K, V):
    """Heads first from the beginning, and an exchange for each array."""

    def to_heads(**array):
        ((name, x),) = array.items()
        return np.concatenate(me.all_to_all(**{name: np.split(x, me.size, axis=1)}))

    q, k, v = to_heads(Q=Q), to_heads(K=K), to_heads(V=V)
    S = np.einsum("nhd,mhd->hnm", q, k) / np.sqrt(q.shape[2])
    P = np.exp(S - S.max(axis=2, keepdims=True))
    o = np.einsum("hnm,mhd->nhd", P / P.sum(axis=2, keepdims=True), v)
    return np.concatenate(me.all_to_all(O=[o[me.rows(rank)] for rank in range(me.size)]), axis=1)


def head_by_head(me, Q, K, V):
    each = Q.shape[1] // me.size
    pieces = [[x[:, rank * each : rank * each + each] for rank in range(me.size)] for x in (Q, K, V)]
    q, k, v = (np.concatenate(x) for x in me.all_to_all(Q=pieces[0], K=pieces[1], V=pieces[2]))
    found = [distributed.attend(q[:, h], k[:, h], v[:, h])[0] for h in range(each)]
    return np.concatenate(me.all_to_all(O=me.cut(np.stack(found, axis=1))), axis=1)


def a_ring_of_heads(me, Q, K, V):
    o, L = distributed.attend(Q, K, V)
    for _ in range(1, me.size):
        K, V = me.shift(K=K, V=V)
        other, other_L = distributed.attend(Q, K, V)
        both = np.logaddexp(L, other_L)
        o = o * np.exp(L - both)[..., None] + other * np.exp(other_L - both)[..., None]
        L = both
    return o


EXCHANGE = "came = me.all_to_all(Q=by_heads(Q), K=by_heads(K), V=by_heads(V))"
BACK = "return np.concatenate(me.all_to_all(O=me.cut(o)), axis=1)"
ULYSSES = Suite(
    id="18D",
    mutants=(
        Mutant("cut-along-rows", RUNS,
               ("np.split(array, me.size, axis=1)", "np.array_split(array, me.size)")),
        Mutant("joined-along-heads", RUNS,
               ("(np.concatenate(pieces) for", "(np.concatenate(pieces, axis=1) for")),
        Mutant("not-sent-home", RUNS, (BACK, "return o")),
        Mutant("home-along-rows", RUNS, (BACK, "return np.concatenate(me.all_to_all(O=me.cut(o)))")),
        Mutant("gathers-all-heads", HEADS, (EXCHANGE, "came = [[by_heads(x)[me.rank]] for x in "
               "me.all_gather(Q=Q, K=K, V=V)]")),
        Mutant("queries-stay", RUNS, ("(np.concatenate(pieces) for pieces in came)",
               "(by_heads(Q)[me.rank], *(np.concatenate(pieces) for pieces in came[1:]))")),
        Mutant("heads-in-disorder", VALUES, (BACK, BACK.replace("me.all_to_all(O=me.cut(o))",
                                                                "me.all_to_all(O=me.cut(o))[::-1]"))),
        Mutant("outputs-gathered", HOME, (BACK, "own = me.all_gather(O=o); n = len(own) // me.size; "
               "return np.concatenate([own[p * n:p * n + n][me.rows()] for p in range(me.size)], axis=1)")),
        Mutant("keys-for-values", VALUES, ("V=by_heads(V)", "V=by_heads(K)")),
        Mutant("attends-at-home", VALUES, (BACK, "return distributed.attend(Q, K, V)[0]")),
    ),
    right=(with_axes_exchanged, head_by_head),
    cheats=((a_ring_of_heads, HEADS),),
)  # fmt: skip

SUITES = (RING, GRID, ROWS, ULYSSES)
