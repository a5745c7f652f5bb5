"""Lesson 05: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import Mutant, Suite

from iocourse import pebbling

DOT_WORDS = "moves at most 4d − 1 words"


# ---------------------------------------------------------------------- 5A
def dot_with_waiting_products(d):
    """Evict the new product instead of the sum: equal traffic, as Move objects."""
    product_first = []
    for l in range(2, d + 1):
        product_first += [("load", f"a{l}"), ("load", f"b{l}"), ("compute", f"p{l}"), ("store", f"p{l}")]
        product_first += [
            (kind, f"{x}{l}") for kind, x in (("delete", "a"), ("delete", "b"), ("delete", "p"))
        ]
    moves = [("load", "a1"), ("load", "b1"), ("compute", "p1"), ("delete", "a1"), ("delete", "b1")]
    so_far = "p1"
    for l in range(2, d + 1):
        total = "s" if l == d else f"s_{l}"
        moves += [("load", f"p{l}"), ("compute", total), ("delete", so_far), ("delete", f"p{l}")]
        so_far = total
    return [pebbling.Move(*move) for move in [*product_first, *moves, ("store", "s")]]


DOT = Suite(
    "5A",
    right=dot_with_waiting_products,
    wrong={
        "one move less, and all others legal": (
            Mutant("never-stored", "every result is stored", ('[*moves, "store s"]', "moves")),
        ),
        "one more move, and a legal one": (
            Mutant("products-stored-too", DOT_WORDS, ('"compute p{l}", ', '"compute p{l}", f"store p{l}", ')),
        ),
    },
)


# ---------------------------------------------------------------------- 5B
def row_backwards(n):
    """Compute the second score first, and run the second pass in reverse."""
    moves, so_far = ["load x2", "compute e2", "delete x2"], "e2"
    for j in [1, *range(3, n + 1)]:
        total = "l" if max(j, 2) == n else f"l_{max(j, 2)}"
        moves += [f"load x{j}", f"compute e{j}", f"delete x{j}", f"compute {total}", f"delete {so_far}"]
        last = j
        so_far = total
        if total != "l":
            moves += [f"delete e{j}"]
    for j in [last, *(j for j in range(n, 0, -1) if j != last)]:
        if j != last:
            moves += [f"load x{j}", f"compute e{j}", f"delete x{j}"]
        moves += [f"compute p{j}", f"store p{j}", f"delete e{j}", f"delete p{j}"]
    return tuple(moves)


ROW = Suite("5B", right=row_backwards)


# ---------------------------------------------------------------------- 5C
def products_one_by_one(q, k, v, o, s):
    count = 0
    for i in range(len(q)):
        for j in range(len(k)):
            if s[i, j] or (all(q[i]) and all(k[j])):
                count += sum(1 for c in range(q.shape[1]) if v[j, c] and o[i, c])
    return count


ONCE = "a resident score that can also be computed counts once"

PRODUCTS = Suite(
    "5C",
    right=products_one_by_one,
    wrong={"its size": (Mutant("counted-to-255", ONCE, (".astype(int)", ".astype(np.uint8)")),)},
)


# ---------------------------------------------------------------------- 5D
def bound_at_once(N, d, M):
    """Evaluate all T as one array."""
    R = M + np.arange(1.0, 4 * N * d + 1)
    F = np.where(3 * d**2 <= R, (R + d**2) ** 2 / (16 * d), (R / 3) ** 1.5)
    return ((R - M) * np.floor(N**2 * d / F)).max()


BOUND = Suite("5D", right=bound_at_once)


# ---------------------------------------------------------------------- 5E
def segments_from_stays(run, T):
    """Intervals in which each word is resident, from the segment of its load to that of its eviction."""
    came, since, stays = 0, {}, []
    for event, word in run:
        if event == "in":
            since[word] = came // T
            came += 1
        else:
            stays.append((word, since.pop(word), came // T))
    stays += [(word, first, came // T) for word, first in since.items()]
    return [{word for word, first, last in stays if first <= n <= last} for n in range(came // T)]


FULL = "a segment ends with its T-th load; incomplete ones are left out"
START = "a segment contains the words resident at its start"

CUT = Suite(
    "5E",
    right=segments_from_stays,
    wrong={
        "no recorded mutant fails this property alone": (
            Mutant("start-forgotten", START, ("words, came = set(there), 0", "words, came = set(), 0")),
            Mutant("the-rest-too", FULL, ("return segments", "return [*segments, words]")),
        )
    },
)

SUITES = (DOT, ROW, PRODUCTS, BOUND, CUT)
