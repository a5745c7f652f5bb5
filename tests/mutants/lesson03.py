"""Lesson 03: alternative correct answers, and wrong answers that no recorded mutant covers."""

import numpy as np
from harness import MOST, Mutant, Suite, as_scratch

# ---------------------------------------------------------------------- 3A maximum and sum
SUM = "l is the sum of e^(s - m) over the whole row"


def scores_one_by_one(pieces):
    m, l = float("-inf"), 0.0
    for piece in pieces:
        for s in piece:
            if s > m:
                l, m = l * np.exp(m - s) + 1.0, s
            else:
                l += np.exp(s - m)
    return m, l


def as_an_array(pieces):
    return np.array(scores_one_by_one(pieces))


# ---------------------------------------------------------------------- 3B the output
MEAN = "o is the softmax-weighted mean of the values"


def finite_start(pieces):
    """Start from a value far below every score instead of -inf, without a special case."""
    m, l, o = -1e300, 0.0, 0.0
    for s, v in pieces:
        top = max(m, s.max())
        l, o = l * np.exp(m - top), o * np.exp(m - top)
        for weight, value in zip(np.exp(s - top), v, strict=True):
            l, o, m = l + weight, o + weight * value, top
    return np.zeros(v.shape[1]) if l == 0 else o / l


# ---------------------------------------------------------------------- 3C merging
GROUPING = "the result does not depend on the grouping of the parts"
FAR = "maxima 10,000 apart neither overflow nor vanish"


def smaller_into_larger(a, b):
    (m, l, o), (m_low, l_low, o_low) = (a, b) if a[0] >= b[0] else (b, a)
    if m_low == -np.inf:
        return m, l, o
    factor = np.exp(m_low - m)
    return m, l + factor * l_low, o + factor * o_low


def as_a_list(a, b):
    return list(smaller_into_larger(a, b))


# ---------------------------------------------------------------------- 3D on the machine
def own_tiles(m, S, *, Br, Bc, start=-np.inf):
    """Compute formula (3.2) on tiles, with temporaries."""
    L = m.new("rows", (S.shape[0],))
    for i in m.blocks(S.shape[0], Br):
        top, total = m.full(i, value=start), m.zeros(i)
        for j in m.blocks(S.shape[1], Bc):
            s = m.load(S, i, j)
            new = np.maximum(top, s.max(axis=1))
            total *= np.exp(top - new)
            s -= new[:, None]
            total += np.exp(s).sum(axis=1)
            top = new
            del s, new
        total = np.log(total)
        total += top
        m.store(total, L, i)
    return L


SUITES = (
    Suite(
        "3A",
        right=as_an_array,
        wrong={
            "its size": (Mutant("a little added", SUM, ("return m, l", "return m, l + 1e-6")),),
            "no operator makes it": (
                Mutant(
                    "starts-at-3e38",
                    "scores of ±10,000 neither overflow nor vanish",
                    ("m, l = -np.inf, 0.0", "m, l = -3e38, 0.0"),
                ),
            ),
        },
    ),
    Suite(
        "3B",
        right=finite_start,
        wrong={
            "its size": (
                Mutant("a little added to the sum", MEAN, ("o / l if l > 0 else o", "o / (l + 1e-6)")),
            ),
            "no operator makes it": (
                Mutant(
                    "starts-at-3e38",
                    "scores of ±10,000 neither overflow nor vanish",
                    ("m, l, o = -np.inf, 0.0, 0.0", "m, l, o = -3e38, 0.0, 0.0"),
                ),
            ),
        },
    ),
    Suite(
        "3C",
        right=as_a_list,
        wrong={
            "its size": (
                Mutant(
                    "a part 15 below dropped",
                    GROUPING,
                    (
                        "m = max(a[0], b[0])",
                        "if abs(a[0] - b[0]) > 15: return max(a, b, key=max_of)\n    m = max(a[0], b[0])",
                    ),
                    ("def my_merge", "def max_of(part):\n    return part[0]\n\n\ndef my_merge"),
                ),
                Mutant(
                    "0 for a maximum below -10,000",
                    FAR,
                    ("shift = m if m > -np.inf else 0.0", "shift = m if m > -10000.0 else 0.0"),
                ),
            ),
            "no operator makes it": (
                Mutant(
                    "maximum-of-at-least-3e38",
                    "maxima 10,000 apart neither overflow nor vanish",
                    ("m = max(a[0], b[0])", "m = max(a[0], b[0], -3e38)"),
                ),
            ),
        },
    ),
    Suite(
        "3D",
        right=own_tiles,
        wrong={"no operator makes it": (as_scratch("S", "stats.update(s)", "m.store(s, S, i, j)", MOST),)},
    ),
)
