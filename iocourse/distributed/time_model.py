"""How long a step may take on real chips and links: a model that orders schedules, and measures nothing.

A rank needs γ seconds for a flop and β for a word that it receives while it sends another; a message takes
α before its first word. A step that is hidden computes while the next words travel. There is one link a rank,
nobody else uses it, and no kernel starts late: so numbers are too small, all of them, and only which is the
smaller of two means anything.
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
from ..solution_guard import library_solution
from . import bounds
from .layouts import Layout, row_count
from .ledger import RankLedger
from .load_balance import pairs_of_ranks
from .schedules import REGISTRY, RankSchedule, get
from .schedules.ulysses import check_heads

BYTES = 2  # of a word: bfloat16, as the tensor cores' rate has it
REACHED = 0.6  # share of the peak that attention kernels reach


@dataclass(frozen=True)
class Cluster:
    """Ranks of one chip behind one kind of link: `cluster("nvlink4")` is H200s on NVLink."""

    chip: Chip
    link: Link

    @property
    def alpha(self) -> float:
        """Seconds before the first word of a message."""
        return self.link.latency_us * 1e-6

    @property
    def beta(self) -> float:
        """Seconds a word."""
        return BYTES / (self.link.gbytes_per_s * 1e9)

    @property
    def gamma(self) -> float:
        """Seconds a flop."""
        return 1 / (REACHED * self.chip.tensor_tflops * 1e12)


def cluster(link: str = "nvlink4", arch: int = 90) -> Cluster:
    """Chips of an architecture behind a link. Raises ValueError that says which there are."""
    if link not in LINKS:
        raise ValueError(f"link = {link!r} is unknown; there are {', '.join(LINKS)}")
    if arch not in CHIPS:
        raise ValueError(f"arch = {arch!r} is unknown; there are {', '.join(map(str, CHIPS))}")
    return Cluster(CHIPS[arch], LINKS[link])


@dataclass(frozen=True)
class Step:
    """A part of a schedule on its busiest rank, which comes `times` times.

    It computes `flops`, and `words` arrive in `messages`. Where `hidden`, they may do so meanwhile.
    """

    flops: float
    words: int = 0
    messages: int = 0
    times: int = 1
    hidden: bool = False

    def __post_init__(self) -> None:
        plain_ints(self)

    def seconds(self, on: Cluster) -> float:
        """What it takes, all times together."""
        computing = self.flops * on.gamma
        moving = self.messages * on.alpha + self.words * on.beta
        return self.times * (max(computing, moving) if self.hidden else computing + moving)


def seconds(steps: tuple[Step, ...], on: Cluster) -> float:
    """What the steps take, one after the other."""
    return sum(step.seconds(on) for step in steps)


# ---------------------------------------------------------------------- when words hide
# Rows of a rank from which on a step of the ring computes for longer than its words travel, in units of β/γ:
# words a row and column, divided by flops a pair and column.
HIDES = {
    "ring": 2 / 4,
    "ring, causal zigzag": 2 / 2,
    "ring backward, rows travel": 3 / 10,
    "ring backward, columns travel": 4 / 10,
}


def rows_that_hide(what: str, on: Cluster) -> float:
    """The least N/P with which the ring's words hide behind its products: any d and any number of heads do.

    A step has 4(N/P)²d flops, 10 backward and half of them under a causal mask in zigzag, and 2(N/P)d words,
    backward 3 (and 2 numbers a row, left out here) or 4. The time before a message's first word is left out.
    Raises ValueError that says what there is.
    """
    if what not in HIDES:
        raise ValueError(f"what = {what!r} is unknown; there are {', '.join(HIDES)}")
    return HIDES[what] * on.beta / on.gamma


def flops_of_rank(pairs: int, d: int, H: int = 1, *, backward: bool = False) -> float:
    """Flops of so many pairs in each of H heads: four a column, and ten in the backward pass."""
    d, H = check_sizes(d=d, H=H)
    return (10.0 if backward else 4.0) * pairs * d * H


# ---------------------------------------------------------------------- schedules side by side
# Schedules that answer the same question, by the pass that a map shows.
COMPARED = {
    "forward": ("ring", "grid", "ulysses", "ulysses_ring"),
    "backward": ("ring_backward_columns", "ring_backward_rows", "grid_backward"),
    "causal": ("causal_contiguous", "causal_zigzag", "causal_striped"),
}
RINGS = ("ring", "ring_backward_columns", "ring_backward_rows", *COMPARED["causal"])


@dataclass(frozen=True)
class ScheduleEstimate:
    """One schedule at one size: what its busiest rank moves and holds, and what the time model says.

    `a` is the number of rows of its grid, or None. `words` is W; `memory` the rank's own rows of all arrays
    and results, and the most words of others beside them; `exposed` the seconds with no word hidden behind a
    product, `hidden` with all that can be.
    """

    name: str
    a: int | None
    words: int
    memory: int
    exposed: float
    hidden: float

    def title(self, P: int) -> str:
        """Its name, with its grid: grid 4 × 4."""
        name = self.name.replace("_", " ")
        return name if self.a is None else f"{name} {self.a} × {P // self.a}"


@library_solution
def compare_schedules(
    pass_: str, N: int, d: int, P: int, on: Cluster, *, H: int = 1, a: int | None = None
) -> list[ScheduleEstimate]:
    """The schedules of a pass that can be run so, in the order of the course.

    Args:
        pass_: "forward", "backward" or "causal".
        N: rows of a head.
        d: its columns.
        P: ranks.
        on: chips and links, for the time.
        H: heads.
        a: rows of the grids; None takes, for each, those with the fewest words.

    Raises ValueError or TypeError that names the argument.
    """
    N, d, P, H = check_sizes(N=N, d=d, P=P, H=H)
    if a is not None:
        _require_grid(P, positive_int("a", a))
    entries = []
    for s in map(get, schedules_of(pass_)):
        has_grid = "a" in s.options
        # With one rank in a row every schedule with grids can be run.
        tried = None if not has_grid else P if a is None else a
        if fits(s, P, H, tried):
            ledger, rows, memory = _busiest(s.name, N, d, P, H, a if has_grid else None)
            exposed, hidden = (
                seconds(_steps(s, ledger, N, d, P, H, rows, hide), on) for hide in (False, True)
            )
            entries.append(ScheduleEstimate(s.name, rows, ledger.words, memory, exposed, hidden))
    return entries


def schedules_of(pass_: str) -> tuple[str, ...]:
    """The names of the schedules of a pass. Raises ValueError that says which passes there are."""
    if pass_ not in COMPARED:
        raise ValueError(f"pass_ = {pass_!r} is unknown; there are {', '.join(COMPARED)}")
    return tuple(name for name in COMPARED[pass_] if name in REGISTRY)


def least_words(pass_: str, N: int, d: int, P: int, H: int = 1) -> tuple[int, str]:
    """The lower bound of a pass on some rank's words, and its id."""
    schedules_of(pass_)
    kind = "backward" if pass_ == "backward" else "forward"
    return bounds.lower_bound(kind, N, d, P, H=H, causal=pass_ == "causal")


def claimed_words(pass_: str, N: int, d: int, P: int, H: int = 1) -> int:
    """What is claimed and not proved, where more ranks than heads share a forward pass; else 0."""
    if pass_ == "backward" or not 1 < H < P:
        return 0
    return bounds.network_few_heads(N, d, P, H, causal=pass_ == "causal")


def grids_of(P: int) -> tuple[int, ...]:
    """The numbers of rows that a grid of P ranks can have."""
    return tuple(a for a in range(1, positive_int("P", P) + 1) if P % a == 0)


def ledgers_of(s: RankSchedule, P: int, N: int, d: int, **sizes: Any) -> tuple[RankLedger, ...]:
    """The closed form of each rank.

    Raises ValueError where heads cannot be dealt out, or no grid is made.
    """
    a = sizes.get("a", 1)
    _require_grid(P, a)
    if s.heads:
        check_heads(sizes.get("H", 1), P // a)
    return s.ledgers(P, N, d, **sizes)


def _require_grid(P: int, a: int) -> None:
    if P % a:
        allowed = ", ".join(map(str, grids_of(P)))
        raise ValueError(f"a = {a} rows make no grid of P = {P} ranks; allowed are {allowed}")


def fits(s: RankSchedule, P: int, H: int, a: int | None = None) -> bool:
    """Whether its heads can be dealt out to P ranks, or to those of a row of its grid."""
    return not s.heads or H % (P // (1 if a is None else a)) == 0


def best_grid(s: RankSchedule, P: int, N: int, d: int, *, H: int = 1, **sizes: int) -> int:
    """Of all grids the number of rows with which the busiest rank moves the fewest words."""
    words = {
        a: max(ledger.words for ledger in _unlike(ledgers_of(s, P, N, d, H=H, **sizes, a=a)))
        for a in grids_of(P)
        if fits(s, P, H, a)
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
    """The most words on a rank: its rows of what goes in and comes out, and what it holds of others."""
    P, shapes = len(ledgers), s.shapes(N, d, **sizes)
    results = 3 if s.pass_ == "backward" else 1

    def own(rows: int) -> int:
        had = {name: shape if name in s.shared else (rows, *shape[1:]) for name, shape in shapes.items()}
        return sum(map(words_in, had.values())) + results * words_in(had[s.operands[0]][:-1]) * d

    held = {(row_count(layout or s.layout, N, P, rank), one.peak) for rank, one in enumerate(ledgers)}
    return max(own(rows) + peak for rows, peak in held)


class _Busiest(NamedTuple):
    """The closed form of the rank that moves most, the rows of its grid, and the memory of a rank."""

    ledger: RankLedger
    a: int | None
    memory: int


@lru_cache(maxsize=4096)
def _busiest(name: str, N: int, d: int, P: int, H: int, a: int | None) -> _Busiest:
    """`a` None: with the best grid, where it has one."""
    s = get(name)
    if "a" in s.options and a is None:
        a = best_grid(s, P, N, d, H=H)
    ledgers = ledgers_of(s, P, N, d, H=H, **({} if a is None else {"a": a}))
    busiest = max(_unlike(ledgers), key=lambda one: one.words)
    return _Busiest(busiest, a, memory_of(s, ledgers, N, d, H=H))


def _unlike(ledgers: Sequence[RankLedger]) -> list[RankLedger]:
    """The ledgers, one that ranks share once."""
    return list({id(one): one for one in ledgers}.values())


def _steps(
    s: RankSchedule, ledger: RankLedger, N: int, d: int, P: int, H: int, a: int | None, hidden: bool
) -> tuple[Step, ...]:
    """Its steps on the busiest rank: what comes first, then products, a block at a time or all at once."""
    pairs = max(pairs_of_ranks(s.layout, N, P)) if s.pass_ == "causal" else N * ceil_div(N, P)
    flops = flops_of_rank(pairs, d, H, backward=s.pass_ == "backward")
    # Blocks that are computed one by one, and the words that come meanwhile.
    blocks, going_round = (P, ledger.words) if s.name in RINGS else (1, 0)
    if s.name == "ulysses_ring" and a is not None:
        blocks, going_round = a, 2 * (ledger.received["K"] - ledger.received["Q"])
    first = Step(flops / blocks, ledger.words - going_round, messages_of(s.name, P, a))
    if blocks == 1:
        return (first,)
    return first, Step(flops / blocks, ceil_div(going_round, blocks - 1), 1, times=blocks - 1, hidden=hidden)


def messages_of(name: str, P: int, a: int | None = None) -> int:
    """Messages beside those of a ring: a collective of p ranks has p - 1, which wait for each other."""
    rows = 1 if a is None else a
    row, column = P // rows - 1, rows - 1
    return {
        "ulysses": 2 * row,
        "ulysses_ring": 2 * row,
        "grid": 2 * row + column,
        "grid_backward": 2 * row + 2 * column,
    }.get(name, 0)
