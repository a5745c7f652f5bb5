"""Lower bounds on the words that one of P ranks must move, each with its class of schedules and its status.

Each rank holds its share of the rows of every array, without copies. The traffic of a rank is

    W = words of inputs, statistics and scores that it receives + words of partial sums that it sends.

Partial sums that it receives count for the sender. Each bound holds for at least one rank, hence for the
largest W. No positive bound can hold for every rank, because a rank without work moves nothing.

All bounds consider the rank that forms the most products. It has its share and the words that it received.
If R words allow at most F(R) = (R + ad²)²/16d products (a = 1 forward, 4 backward: lessons 05b and 06b), then
W is at least R minus the share.
"""

from __future__ import annotations

from fractions import Fraction
from math import isqrt
from typing import NamedTuple

from ..bounds.backward import CLASS_OWN, NOT_PARTIAL
from ..bounds.bound import Bound, bound, require
from ..bounds.forward import CLASS, NOT_LINEAR
from ..costs import ceil_div
from ..sizes import check_sizes, positive_int, truth

SHARED = (
    "P ranks, each with at most ⌈N/P⌉ rows of {arrays} and no copy of any other row; the rows of the results "
    "end where their inputs began. "
)
FORWARD_CLASS = SHARED.format(arrays="Q, K, V and O") + CLASS
BACKWARD_CLASS = SHARED.format(arrays="Q, K, V, dO, dQ, dK and dV") + CLASS_OWN
HEADS_CLASS = FORWARD_CLASS + " Each of H heads has separate arrays, and a rank has rows of all of them."
DERIVED = (
    "derived in this course: the products of the busiest rank, and the number of products that R words allow "
    "(Irony-Toledo-Tiskin 2004 for matrix products)"
)
SOME_RANK = "It holds for some rank, not for every rank, and not for the sum over ranks. "
RING = "A ring moves more by a factor of (√P + 1)/2, a square grid as much as the bound. "

BOUNDS: dict[str, Bound] = {}


class Work(NamedTuple):
    """Constants of a pass in the bounds.

    `products` per pair and column, number of `arrays` of which a rank has a share, number of `results` among
    them, and the `a` in F(R) = (R + ad²)²/16d.
    """

    products: int
    arrays: int
    results: int
    a: int


WORK = {"forward": Work(1, 4, 1, 1), "backward": Work(3, 7, 3, 4)}


def pairs_of(N: int, causal: bool) -> int:
    """Return the number of visible query–key pairs: N(N + 1)/2 with a causal mask, otherwise N²."""
    return N * (N + 1) // 2 if truth("causal", causal) else N * N


def words_of_one_rank(pass_: str, pairs: int, N: int, d: int, P: int) -> int:
    """Return R minus a rank's share, where F(R) is 1/P of all products; rounded down, at least 0."""
    work = WORK[pass_]
    R = isqrt(16 * d * d * work.products * pairs // P) - work.a * d * d
    return max(0, R - work.arrays * ceil_div(N, P) * d)


def words_in_segments(pass_: str, pairs: int, N: int, d: int, P: int, M: int) -> int:
    """Return the segment bound for a rank with M words of memory; T = M + ad² as in the two-level model."""
    work = WORK[pass_]
    T = M + work.a * d * d
    return 4 * work.products * pairs * d * d // (P * T) - T - work.results * ceil_div(N, P) * d


@bound(
    among=BOUNDS,
    id="network",
    title="Some rank's words",
    formula=r"W \ge \frac{4Nd}{\sqrt P} - \frac{4Nd}{P} - d^2",
    source=DERIVED,
    regime="every P; 0 if the formula is negative; ⌈N/P⌉ replaces N/P if P does not divide N",
    status="proved here",
    passes=("forward across ranks",),
    schedules="exact",
    holds_for=FORWARD_CLASS,
    not_about=SOME_RANK + RING + NOT_LINEAR,
)
def network(N: int, d: int, P: int, *, causal: bool = False) -> int:
    """Lower bound on the words of some rank in a forward pass, rounded down.

    With a causal mask the visible pairs replace N².
    """
    N, d, P = check_sizes(N=N, d=d, P=P)
    return words_of_one_rank("forward", pairs_of(N, causal), N, d, P)


@bound(
    among=BOUNDS,
    id="network_heads",
    title="Some rank's words, heads for every rank",
    formula=r"W \ge H\,\frac{(N^2d/P - f)\,(4Nd - d^2 - 4Nd/P)}{N^2d - f},\quad "
    r"f=\frac{(4Nd/P+d^2)^2}{16d},\quad "
    r"\text{about } \frac{4NHd(P-1)}{P(P+1)} \text{ for } d \ll N/P",
    source=DERIVED + "; F is convex, so a chord from a share to a whole head is above it",
    regime="every P and H; for P > H `network_few_heads` is larger",
    status="proved here",
    passes=("forward across ranks",),
    schedules="exact",
    holds_for=HEADS_CLASS,
    not_about=SOME_RANK + "Ulysses moves (P + 1)/P times the last form. " + NOT_LINEAR,
)
def network_heads(N: int, d: int, P: int, H: int, *, causal: bool = False) -> int:
    """Lower bound on the words of some rank for H heads, rounded down.

    With a causal mask the visible pairs replace N².
    """
    N, d, P, H = check_sizes(N=N, d=d, P=P, H=H)
    products, (share, f) = pairs_of(N, causal) * d, _at_first(N, d, P)
    whole, missing = _root(16 * d * Fraction(products)) - d * d - share, Fraction(products, P) - f
    return int(H * missing * whole / (products - f)) if missing > 0 else 0


@bound(
    among=BOUNDS,
    id="network_few_heads",
    title="Some rank's words, more ranks than heads",
    formula=r"W \ge 4\sqrt{d\left(\frac{HN^2d}{P} - (H-1)f\right)} - \frac{4Nd}{P} - d^2,\quad "
    r"f=\frac{(4Nd/P+d^2)^2}{16d},\quad "
    r"\text{at least about } 4Nd\left(\sqrt{\tfrac HP\left(1-\tfrac1P\right)}-\tfrac1P\right)",
    source=DERIVED + "; proved by hand, not yet checked by a second reader",
    regime="P > H; 0 if the formula is negative",
    status="claimed",
    passes=("forward across ranks",),
    holds_for=HEADS_CLASS,
    not_about=SOME_RANK + "With one head it is `network`, which is proved. " + NOT_LINEAR,
)
def network_few_heads(N: int, d: int, P: int, H: int, *, causal: bool = False) -> int:
    """Lower bound on the words of some rank for more ranks than heads, rounded down.

    With a causal mask the visible pairs replace N².
    """
    N, d, P, H = check_sizes(N=N, d=d, P=P, H=H)
    require("network_few_heads", "P > H", P > H, P=P, H=H)
    share, f = _at_first(N, d, P)
    products = Fraction(H * pairs_of(N, causal) * d, P) - (H - 1) * f
    return _root(16 * d * products) - share - d * d


def _at_first(N: int, d: int, P: int) -> tuple[int, Fraction]:
    """Return the words of a rank's share of one head, and F(share): the products possible without traffic."""
    share = 4 * ceil_div(N, P) * d
    return share, Fraction((share + d * d) ** 2, 16 * d)


def _root(value: Fraction) -> int:
    """Return the square root, rounded down; 0 for a negative value."""
    return isqrt(max(0, int(value)))


@bound(
    among=BOUNDS,
    id="network_memory",
    title="Some rank's words, M words on a rank",
    formula=r"W \ge \frac{4N^2d^2}{P(M+d^2)} - (M+d^2) - \frac{Nd}{P}",
    source=DERIVED + "; segments of M + d² words, as in Theorem A",
    regime="M ≥ 4Nd/P, a rank's share; 0 if the formula is negative",
    status="proved here",
    passes=("forward across ranks",),
    schedules="exact",
    holds_for=FORWARD_CLASS + " A rank has M words of memory in total, and no other storage.",
    not_about=SOME_RANK + NOT_LINEAR,
)
def network_memory(N: int, d: int, P: int, M: int, *, causal: bool = False) -> int:
    """Lower bound on the words of some rank with M words of memory, rounded down.

    With a causal mask the visible pairs replace N². Raises OutsideRegime if a rank's share exceeds M.
    """
    N, d, P, M = check_sizes(N=N, d=d, P=P, M=M)
    _require_share("network_memory", "forward", N, d, P, M)
    return words_in_segments("forward", pairs_of(N, causal), N, d, P, M)


@bound(
    among=BOUNDS,
    id="network_sharp",
    title="Some rank's words, without d²",
    formula=r"W \ge \min\left\{\frac{4Nd}{\sqrt P},\; 3\left(\frac{N^2d}{P}\right)^{2/3}\right\} "
    r"- \frac{4Nd}{P}",
    source=DERIVED
    + "; one Loomis-Whitney inequality for pairs loaded and pairs computed; not yet checked by a "
    "second reader",
    regime="every P; the first of the two for N ≥ 2.37 d√P",
    status="claimed",
    passes=("forward across ranks",),
    holds_for=FORWARD_CLASS,
    not_about=SOME_RANK + RING + NOT_LINEAR,
)
def network_sharp(N: int, d: int, P: int, *, causal: bool = False) -> int:
    """Lower bound on the words of some rank without the term d² of `network`, rounded down."""
    N, d, P = check_sizes(N=N, d=d, P=P)
    pairs = pairs_of(N, causal)
    whole_rows = isqrt(16 * d * d * pairs // P)
    scores = _cube_root(27 * (pairs * d) ** 2 // P**2)
    return min(whole_rows, scores) - 4 * ceil_div(N, P) * d


def _cube_root(value: int) -> int:
    """Return the cube root, rounded down."""
    low, high = 0, 1 << (value.bit_length() // 3 + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**3 <= value else (low, middle)
    return low


@bound(
    among=BOUNDS,
    id="network_backward",
    title="Some rank's words, backward",
    formula=r"W \ge \frac{4\sqrt3\,Nd}{\sqrt P} - \frac{7Nd}{P} - 4d^2",
    source=DERIVED,
    regime="every P; 0 if the formula is negative; ⌈N/P⌉ replaces N/P if P does not divide N",
    status="proved here",
    passes=("backward across ranks",),
    schedules="exact",
    holds_for=BACKWARD_CLASS,
    not_about=SOME_RANK + "A grid with a : b = 3 : 4 is close to it. " + NOT_PARTIAL,
)
def network_backward(N: int, d: int, P: int, *, causal: bool = False) -> int:
    """Lower bound on the words of some rank in a backward pass, rounded down.

    With a causal mask the visible pairs replace N².
    """
    N, d, P = check_sizes(N=N, d=d, P=P)
    return words_of_one_rank("backward", pairs_of(N, causal), N, d, P)


@bound(
    among=BOUNDS,
    id="network_memory_backward",
    title="Some rank's words, M words on a rank, backward",
    formula=r"W \ge \frac{12N^2d^2}{P(M+4d^2)} - (M+4d^2) - \frac{3Nd}{P}",
    source=DERIVED + "; segments of M + 4d² words, as in Theorem C",
    regime="M ≥ 7Nd/P, a rank's share; 0 if the formula is negative",
    status="proved here",
    passes=("backward across ranks",),
    schedules="exact",
    holds_for=BACKWARD_CLASS + " A rank has M words of memory in total, and no other storage.",
    not_about=SOME_RANK + NOT_PARTIAL,
)
def network_memory_backward(N: int, d: int, P: int, M: int, *, causal: bool = False) -> int:
    """Lower bound on the words of some rank with M words of memory in a backward pass, rounded down.

    With a causal mask the visible pairs replace N². Raises OutsideRegime if a rank's share exceeds M.
    """
    N, d, P, M = check_sizes(N=N, d=d, P=P, M=M)
    _require_share("network_memory_backward", "backward", N, d, P, M)
    return words_in_segments("backward", pairs_of(N, causal), N, d, P, M)


def _require_share(id: str, pass_: str, N: int, d: int, P: int, M: int) -> None:
    arrays = WORK[pass_].arrays
    require(id, f"M ≥ {arrays}Nd/P", arrays * ceil_div(N, P) * d <= M, M=M, N=N, d=d, P=P)


# ---------------------------------------------------------------------- the largest proved bound
def lower_bound(
    pass_: str, N: int, d: int, P: int, *, H: int = 1, causal: bool = False, M: int | None = None
) -> tuple[int, str]:
    """Return the largest proved lower bound on the words of some rank, and the id of that bound.

    Args:
        pass_: "forward" or "backward".
        N: sequence length.
        d: head dimension.
        P: number of ranks.
        H: number of heads. The bounds for one head hold too, because one head is part of the work.
        causal: if True, query i attends to the keys up to i only.
        M: words of memory per rank; None is unlimited.

    Raises:
        ValueError or TypeError: if an argument is invalid; the message contains its name.
        OutsideRegime: if a rank's share exceeds M.
    """
    if pass_ not in WORK:
        raise ValueError(f"pass_ must be one of {', '.join(WORK)}, got {pass_!r}")
    sizes = {"N": N, "d": d, "P": P}
    if M is not None:
        sizes["M"] = M
    if pass_ == "forward" and positive_int("H", H) > 1:
        sizes["H"] = H
    found = {
        bound.id: bound.at(sizes, causal=causal)
        for bound in BOUNDS.values()
        if bound.schedules and f"{pass_} across ranks" in bound.passes and {*bound.sizes} <= sizes.keys()
    }
    best = max(found, key=found.__getitem__)
    return found[best], best
