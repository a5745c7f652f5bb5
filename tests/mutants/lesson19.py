"""Lesson 19: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import Mutant, Suite

from iocourse import distributed

# ---------------------------------------------------------------------- 19A
HELD = "holds only the first rows of other ranks"
LACK = "receives no more keys than zigzag"


def by_a_list(t, N, P):
    order = [*range(P), *reversed(range(P))]
    return order[t * 2 * P // N]


OWNER = Suite(
    "19A",
    right=by_a_list,
    wrong={
        "another placement": (
            Mutant("there-and-back-by-rows", LACK, ("block = t // (N // (2 * P))", "block = t % (2 * P)")),
        ),
        "no operator makes it": (
            Mutant(
                "there-and-not-back",
                "every rank has the same work",
                ("min(block, 2 * P - 1 - block)", "block % P"),
            ),
        ),
    },
)


# ---------------------------------------------------------------------- 19B
def by_a_heap(lengths, P):
    """Assign the largest parts first to the rank with the least work, from a heap."""
    import heapq

    total = sum(n * (n + 1) for n in lengths)
    parts = [min(P, (P * n * (n + 1) + total - 1) // total) for n in lengths]
    heap, placed = [(0.0, rank) for rank in range(P)], {}
    for text in sorted(range(len(lengths)), key=lambda text: -(lengths[text] ** 2) / parts[text]):
        taken = [heapq.heappop(heap) for _ in range(parts[text])]
        for load, rank in taken:
            heapq.heappush(heap, (load + lengths[text] * (lengths[text] + 1) / parts[text], rank))
        placed[text] = tuple(rank for _, rank in taken)
    return [placed[text] for text in range(len(lengths))]


PLACEMENT = Suite(
    "19B",
    right=by_a_heap,
    wrong={
        "no operator makes it": (
            Mutant(
                "lengths-sorted",
                "does not modify its inputs",
                ("    n = np.array(lengths)\n", "    n = np.array(lengths)\n    lengths.sort()\n"),
            ),
            Mutant(
                "a-part-more-at-equality",
                "splits no sequence unnecessarily",
                ("-(-P * work // work.sum())", "P * work // work.sum() + 1"),
            ),
        )
    },
)


# ---------------------------------------------------------------------- 19C
def round_a_ring(me, Q, K, V):
    """Send the (o, L) of each rank around the ring by shifts."""
    o, L = distributed.attend(Q, K, V)
    parts = [(o, L)]
    for _ in range(1, me.size):
        o, L = me.shift(O=o, L=L)
        parts.append((o, L))
    top = np.max([L for _, L in parts], axis=0)
    total = sum(np.exp(L - top) for _, L in parts)
    return sum(np.exp(L - top)[:, None] * o for o, L in parts) / total[:, None]


POOLING = Suite(
    "19C",
    right=round_a_ring,
    wrong={
        "no operator makes it": (
            Mutant(
                "L-of-at-least-1e30",
                "values equal exact attention over all frames",
                ("    weights =", "    all_L = np.maximum(all_L, -1e30)\n    weights ="),
            ),
        )
    },
)


# ---------------------------------------------------------------------- 19D
def clip_by_position(me, Q, K, V, c, hidden=-np.inf):
    """Compute the mask of its rows against its keys and the other ranks' first rows in one product."""
    k, v = me.all_gather(K=K[::c], V=V[::c])
    mine = len(K) // c
    outside = np.ones(len(k), dtype=bool)
    outside[me.rank * mine : (me.rank + 1) * mine] = False
    keys, values = np.concatenate([K, k[outside]]), np.concatenate([V, v[outside]])
    clip = np.arange(len(K)) // c
    inside = (clip[:, None] == clip) | (np.arange(len(K)) % c == 0)
    sees = np.concatenate([inside, np.ones((len(K), outside.sum()), dtype=bool)], axis=1)
    s = np.where(sees, Q @ keys.T / np.sqrt(Q.shape[1]), hidden)
    p = np.exp(s - s.max(axis=1, keepdims=True))
    return p @ values / p.sum(axis=1, keepdims=True)


def hidden_as_1e30(me, Q, K, V, c):
    return clip_by_position(me, Q, K, V, c, hidden=-1e30)


CLIPS = Suite(
    "19D",
    right=clip_by_position,
    wrong={
        "no operator makes it": ((hidden_as_1e30, "values equal exact attention under the mask"),),
        "nothing that travels is a row more": (
            Mutant("all-rows-gathered", HELD, ("    mine, O =", "    me.all_gather(K=K)\n    mine, O =")),
        ),
    },
)


# ---------------------------------------------------------------------- 19E
def by_components(mask, P):
    """Group positions that attend to a common key which not all attend to, transitively."""
    keys, owner, rank = mask & ~mask.all(axis=0), [-1] * len(mask), 0
    for start in range(len(mask)):
        if owner[start] < 0:
            found = [start]
            for a in found:
                owner[a] = rank
                found += [b for b in np.flatnonzero((keys & keys[a]).any(axis=1)) if b not in found]
            rank += 1
    return owner


GROUPS = Suite("19E", right=by_components)

SUITES = (OWNER, PLACEMENT, POOLING, CLIPS, GROUPS)
