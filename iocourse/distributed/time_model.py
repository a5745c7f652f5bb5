"""Time model of distributed schedules on real GPUs and links, for comparing schedules. Nothing is measured.

A rank needs γ seconds per flop, and β seconds per word that it receives while it sends another word; α is the
latency of a message. In a hidden step, computation overlaps with the transfer of the next words. The model
has one link per rank without contention, and no launch overhead. So all times are too small, and only
comparisons between them are meaningful.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from ..costs import ceil_div
from ..gpu import CHIPS, Chip
from ..gpu.chips import LINKS, Link
from ..sizes import check_sizes, plain_ints, positive_int, words_in
from . import bounds
from .layouts import Layout, row_count
from .ledger import RankLedger
from .load_balance import pairs_of_ranks
from .schedules import REGISTRY, RankSchedule, get
from .schedules.ulysses import check_heads

BYTES = 2  # per word: bfloat16, the type of the tensor cores' rate
REACHED = 0.6  # fraction of the peak rate that attention kernels reach


@dataclass(frozen=True)
class Cluster:
    """GPUs of one kind connected by one kind of link: `cluster("nvlink4")` is H200s with NVLink."""

    chip: Chip
    link: Link

    @property
    def alpha(self) -> float:
        """Latency of a message in seconds."""
        return self.link.latency_us * 1e-6

    @property
    def beta(self) -> float:
        """Seconds per word."""
        return BYTES / (self.link.gbytes_per_s * 1e9)

    @property
    def gamma(self) -> float:
        """Seconds per flop."""
        return 1 / (REACHED * self.chip.tensor_tflops * 1e12)


def cluster(link: str = "nvlink4", arch: int = 90) -> Cluster:
    """Return the cluster of GPUs of architecture `arch` (such as 90), connected by `link`.

    Raises ValueError, with the possible values, if one of them is unknown.
    """
    if link not in LINKS:
        raise ValueError(f"link must be one of {', '.join(LINKS)}, got {link!r}")
    if arch not in CHIPS:
        raise ValueError(f"arch must be one of {', '.join(map(str, CHIPS))}, got {arch!r}")
    return Cluster(CHIPS[arch], LINKS[link])


@dataclass(frozen=True)
class RankStep:
    """A step of a schedule on its busiest rank, repeated `times` times.

    It computes `flops` and receives `words` in `messages`. If `hidden`, both overlap.
    """

    flops: float
    words: int = 0
    messages: int = 0
    times: int = 1
    hidden: bool = False

    def __post_init__(self) -> None:
        plain_ints(self)

    def seconds(self, on: Cluster) -> float:
        """Return the time of all repetitions in seconds."""
        computing = self.flops * on.gamma
        moving = self.messages * on.alpha + self.words * on.beta
        return self.times * (max(computing, moving) if self.hidden else computing + moving)


def seconds(steps: tuple[RankStep, ...], on: Cluster) -> float:
    """Return the total time of the steps in seconds, one after the other."""
    return sum(step.seconds(on) for step in steps)


# ---------------------------------------------------------------------- overlap of words and products
# Minimum rows per rank for which a step of the ring computes longer than it communicates, in units of β/γ:
# (words per row and column) / (flops per pair and column).
HIDES = {
    "ring": 2 / 4,
    "ring, causal zigzag": 2 / 2,
    "ring backward, rows travel": 3 / 10,  # style: ok (a key that callers pass)
    "ring backward, columns travel": 4 / 10,  # style: ok (a key that callers pass)
}


def rows_that_hide(what: str, on: Cluster) -> float:
    """Return the minimum N/P for which the ring's communication overlaps completely with its computation.

    It does not depend on d or on the number of heads. A step has 4(N/P)²d flops (10 instead of 4 in the
    backward pass, half with a causal mask in zigzag layout) and receives 2(N/P)d words (in the backward pass
    3 or 4 instead of 2). The latency, and two statistics per row in the backward pass, are neglected.

    Args:
        what: a key of `HIDES`.
        on: GPUs and links.

    Raises:
        ValueError: if `what` is unknown; the message contains all keys.
    """
    if what not in HIDES:
        raise ValueError(f"what must be one of {'; '.join(HIDES)}; got {what!r}")
    return HIDES[what] * on.beta / on.gamma


def flops_of_rank(pairs: int, d: int, H: int = 1, *, backward: bool = False) -> float:
    """Return the flops of `pairs` pairs in each of H heads: 4 per pair and column, 10 if backward."""
    d, H = check_sizes(d=d, H=H)
    return (10.0 if backward else 4.0) * pairs * d * H


# ---------------------------------------------------------------------- comparison of schedules
# Schedules with the same result, by the pass.
COMPARED = {
    "forward": ("ring", "grid", "ulysses", "ulysses_ring"),
    "backward": ("ring_backward_columns", "ring_backward_rows", "grid_backward"),
    "causal": ("causal_contiguous", "causal_zigzag", "causal_striped"),
}
RINGS = ("ring", "ring_backward_columns", "ring_backward_rows", *COMPARED["causal"])


@dataclass(frozen=True)
class ScheduleEstimate:
    """Estimate for one schedule at one size: traffic and memory of its busiest rank, and modelled times.

    `a` is the number of rows of its grid, or None. `words` is W. `memory` is the words of the rank's own rows
    of all arrays and results, plus the peak of words of other ranks. `exposed` is the time in seconds without
    any overlap, `hidden` with all possible overlap.
    """

    name: str
    a: int | None
    words: int
    memory: int
    exposed: float
    hidden: float

    def title(self, P: int) -> str:
        """Return the name with the shape of the grid, such as "grid 4 × 4"."""
        # <!-- 4 × 4 as input -->
        name = self.name.replace("_", " ")
        return name if self.a is None else f"{name} {self.a} × {P // self.a}"


def compare_schedules(
    pass_: str, N: int, d: int, P: int, on: Cluster, *, H: int = 1, a: int | None = None
) -> list[ScheduleEstimate]:
    """Estimate all schedules of a pass that fit P ranks and H heads, in the order of `schedules_of`.

    Args:
        pass_: "forward", "backward" or "causal".
        N: sequence length.
        d: head dimension.
        P: number of ranks.
        on: GPUs and links, for the times.
        H: number of heads.
        a: rows of the grids; None chooses the number with the fewest words for each schedule.

    Raises:
        ValueError or TypeError: if an argument is invalid; the message contains its name.
    """
    N, d, P, H = check_sizes(N=N, d=d, P=P, H=H)
    if a is not None:
        _require_grid(P, positive_int("a", a))
    entries = []
    for s in map(get, schedules_of(pass_)):
        has_grid = "a" in s.options
        # With one rank per grid row, every schedule with a grid fits.
        tried = None if not has_grid else P if a is None else a
        if heads_divide_evenly(s, P, H, tried):
            ledger, rows, memory = _busiest(s.name, N, d, P, H, a if has_grid else None)
            exposed, hidden = (
                seconds(_steps(s, ledger, N, d, P, H, rows, hide), on) for hide in (False, True)
            )
            entries.append(ScheduleEstimate(s.name, rows, ledger.words, memory, exposed, hidden))
    return entries


def schedules_of(pass_: str) -> tuple[str, ...]:
    """Return the names of the schedules of a pass. Raises ValueError if the pass is unknown."""
    if pass_ not in COMPARED:
        raise ValueError(f"pass_ must be one of {', '.join(COMPARED)}, got {pass_!r}")
    return tuple(name for name in COMPARED[pass_] if name in REGISTRY)


def least_words(pass_: str, N: int, d: int, P: int, H: int = 1) -> tuple[int, str]:
    """Return the proved lower bound of a pass on the words of the busiest rank, and the id of the bound."""
    schedules_of(pass_)
    kind = "backward" if pass_ == "backward" else "forward"
    return bounds.lower_bound(kind, N, d, P, H=H, causal=pass_ == "causal")


def claimed_words(pass_: str, N: int, d: int, P: int, H: int = 1) -> int:
    """Return the claimed, unproved bound for a forward pass on more ranks than heads; otherwise 0."""
    if pass_ == "backward" or not 1 < H < P:
        return 0
    return bounds.network_few_heads(N, d, P, H, causal=pass_ == "causal")


def grids_of(P: int) -> tuple[int, ...]:
    """Return the possible numbers of rows of a grid of P ranks: the divisors of P."""
    return tuple(a for a in range(1, positive_int("P", P) + 1) if P % a == 0)


def ledgers_of(s: RankSchedule, P: int, N: int, d: int, **sizes: Any) -> tuple[RankLedger, ...]:
    """Return the closed form of the ledger of each rank, after checking the grid and the heads.

    Raises ValueError if the heads cannot be distributed evenly, or if `a` does not divide P.
    """
    a = sizes.get("a", 1)
    _require_grid(P, a)
    if s.heads:
        check_heads(sizes.get("H", 1), P // a)
    return s.ledgers(P, N, d, **sizes)


def _require_grid(P: int, a: int) -> None:
    if P % a:
        allowed = ", ".join(map(str, grids_of(P)))
        raise ValueError(f"a must divide P = {P}: one of {allowed}, got {a}")


def heads_divide_evenly(s: RankSchedule, P: int, H: int, a: int | None = None) -> bool:
    """Return True if H heads can be distributed evenly over P ranks, or over the P/a ranks of a grid row."""
    return not s.heads or H % (P // (1 if a is None else a)) == 0


def best_grid(s: RankSchedule, P: int, N: int, d: int, *, H: int = 1, **sizes: int) -> int:
    """Return the number of grid rows for which the busiest rank moves the fewest words."""
    words = {
        a: max(ledger.words for ledger in _unlike(ledgers_of(s, P, N, d, H=H, **sizes, a=a)))
        for a in grids_of(P)
        if heads_divide_evenly(s, P, H, a)
    }
    return min(words, key=words.__getitem__)


def memory_of(
    s: RankSchedule,
    ledgers: Sequence[RankLedger],
    N: int,
    d: int,
    *,
    layout: Layout | None = None,
    **sizes: Any,
) -> int:
    """Return the maximum over ranks of the words in memory: own rows of inputs and results, plus the peak."""
    P, shapes = len(ledgers), s.shapes(N, d, **sizes)
    results = 3 if s.pass_ == "backward" else 1

    def own(rows: int) -> int:
        had = {name: shape if name in s.shared else (rows, *shape[1:]) for name, shape in shapes.items()}
        return sum(map(words_in, had.values())) + results * words_in(had[s.operands[0]][:-1]) * d

    held = {(row_count(layout or s.layout, N, P, rank), one.peak) for rank, one in enumerate(ledgers)}
    return max(own(rows) + peak for rows, peak in held)


class _Busiest(NamedTuple):
    """Ledger of the rank that moves the most words, rows of the grid, and maximum memory of a rank."""

    ledger: RankLedger
    a: int | None
    memory: int


@lru_cache(maxsize=4096)
def _busiest(name: str, N: int, d: int, P: int, H: int, a: int | None) -> _Busiest:
    """Return the busiest rank of a schedule; `a` None chooses the best grid if the schedule has one."""
    s = get(name)
    if "a" in s.options and a is None:
        a = best_grid(s, P, N, d, H=H)
    ledgers = ledgers_of(s, P, N, d, H=H, **({} if a is None else {"a": a}))
    busiest = max(_unlike(ledgers), key=lambda one: one.words)
    return _Busiest(busiest, a, memory_of(s, ledgers, N, d, H=H))


def _unlike(ledgers: Sequence[RankLedger]) -> list[RankLedger]:
    """Return the distinct ledger objects; ranks may share one."""
    return list({id(one): one for one in ledgers}.values())


def _steps(
    s: RankSchedule, ledger: RankLedger, N: int, d: int, P: int, H: int, a: int | None, hidden: bool
) -> tuple[RankStep, ...]:
    """Return the steps of the busiest rank: first the words that cannot be hidden, then those of the ring."""
    pairs = max(pairs_of_ranks(s.layout, N, P)) if s.pass_ == "causal" else N * ceil_div(N, P)
    flops = flops_of_rank(pairs, d, H, backward=s.pass_ == "backward")
    # Blocks that are computed one by one, and the words that arrive meanwhile.
    blocks, going_round = (P, ledger.words) if s.name in RINGS else (1, 0)
    if s.name == "ulysses_ring" and a is not None:
        blocks, going_round = a, 2 * (ledger.received["K"] - ledger.received["Q"])
    first = RankStep(flops / blocks, ledger.words - going_round, messages_of(s.name, P, a))
    if blocks == 1:
        return (first,)
    return first, RankStep(
        flops / blocks, ceil_div(going_round, blocks - 1), 1, times=blocks - 1, hidden=hidden
    )


def messages_of(name: str, P: int, a: int | None = None) -> int:
    """Return the number of messages except those of a ring; p - 1 in sequence for a collective of p ranks."""
    rows = 1 if a is None else a
    row, column = P // rows - 1, rows - 1
    return {
        "ulysses": 2 * row,
        "ulysses_ring": 2 * row,
        "grid": 2 * row + column,
        "grid_backward": 2 * row + 2 * column,
    }.get(name, 0)
