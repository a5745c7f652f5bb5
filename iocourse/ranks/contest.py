"""Who needs how much: the schedules of a pass side by side, each with its best grid, beside the bound."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ..costs import ceil_div
from ..guard import library_answer
from ..sizes import check_sizes, positive_int, words_in
from . import bounds
from .balance import pairs_of_ranks
from .layouts import row_count
from .ledger import RankLedger
from .schedules import REGISTRY, RankSchedule, get
from .times import Cluster, Step, flops_of_rank, seconds

# Schedules that answer the same question, by the pass that a map shows.
CONTESTS = {
    "forward": ("ring", "grid", "ulysses", "ulysses_ring"),
    "backward": ("ring_backward_columns", "ring_backward_rows", "grid_backward"),
    "causal": ("causal_contiguous", "causal_zigzag", "causal_striped"),
}
# Those that compute on a block while the next one comes.
IN_STEPS = ("ring", "ring_backward_columns", "ring_backward_rows", *CONTESTS["causal"])


@dataclass(frozen=True)
class Entry:
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


@library_answer
def contest(
    pass_: str, N: int, d: int, P: int, on: Cluster, *, H: int = 1, a: int | None = None
) -> list[Entry]:
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
    found = (_entry(get(name), N, d, P, H, a, on) for name in contenders(pass_))
    return [entry for entry in found if entry is not None]


def contenders(pass_: str) -> tuple[str, ...]:
    """The names of the schedules of a pass. Raises ValueError that says which passes there are."""
    if pass_ not in CONTESTS:
        raise ValueError(f"pass_ = {pass_!r} is unknown; there are {', '.join(CONTESTS)}")
    return tuple(name for name in CONTESTS[pass_] if name in REGISTRY)


def least_words(pass_: str, N: int, d: int, P: int, H: int = 1) -> tuple[int, str]:
    """The lower bound of a pass on some rank's words, and its id."""
    contenders(pass_)
    kind = "backward" if pass_ == "backward" else "forward"
    return bounds.lower_bound(kind, N, d, P, H=H, causal=pass_ == "causal")


def grids_of(P: int) -> tuple[int, ...]:
    """The numbers of rows that a grid of P ranks can have."""
    return tuple(a for a in range(1, positive_int("P", P) + 1) if P % a == 0)


def best_grid(s: RankSchedule, P: int, N: int, d: int, **sizes: int) -> int:
    """Of all grids the number of rows with which the busiest rank moves the fewest words.

    Raises ValueError, as the closed form does, where it can be run with none.
    """
    words, refused = dict[int, int](), ValueError(f"{s.name} has no grid of P = {P} ranks")
    for a in grids_of(P):
        try:
            words[a] = max(ledger.words for ledger in s.ledgers(P, N, d, **sizes, a=a))
        except ValueError as error:
            refused = error
    if not words:
        raise refused
    return min(words, key=words.__getitem__)


def _entry(s: RankSchedule, N: int, d: int, P: int, H: int, a: int | None, on: Cluster) -> Entry | None:
    """What is to be said of a schedule; None where it cannot be run so, as with too few heads."""
    try:
        ledger, rows = _busiest(s.name, N, d, P, H, a)
    except ValueError:
        return None
    exposed, hidden = (seconds(_steps(s, ledger, N, d, P, H, rows, hide), on) for hide in (False, True))
    memory = own_words(s, P, N, d, 0, H=H) + ledger.peak  # no rank has more rows than the first
    return Entry(s.name, rows, ledger.words, memory, exposed, hidden)


def own_words(s: RankSchedule, P: int, N: int, d: int, rank: int, **sizes: int) -> int:
    """Words that a rank has by itself: its rows of the arrays that go in, and of the results."""
    shapes, rows = s.shapes(N, d, **sizes), row_count(s.layout, N, P, rank)
    had = {name: shape if name in s.shared else (rows, *shape[1:]) for name, shape in shapes.items()}
    results = 3 if s.pass_ == "backward" else 1
    return sum(map(words_in, had.values())) + results * words_in(had[s.operands[0]][:-1]) * d


@lru_cache(maxsize=4096)
def _busiest(name: str, N: int, d: int, P: int, H: int, a: int | None) -> tuple[RankLedger, int | None]:
    """The closed form of the rank that moves most, with the largest peak of all ranks, and its grid."""
    s = get(name)
    if "a" not in s.options:
        a = None
    elif a is None:
        a = best_grid(s, P, N, d, H=H)
    ledgers = s.ledgers(P, N, d, H=H, **({} if a is None else {"a": a}))
    most = max(ledgers, key=lambda one: one.words)
    return RankLedger(most.received, most.sent, max(one.peak for one in ledgers)), a


def _steps(
    s: RankSchedule, ledger: RankLedger, N: int, d: int, P: int, H: int, a: int | None, hidden: bool
) -> tuple[Step, ...]:
    """Its steps on the busiest rank: a block at a time, or words first and products then."""
    pairs = max(pairs_of_ranks(s.layout, N, P)) if s.pass_ == "causal" else N * ceil_div(N, P)
    flops = flops_of_rank(pairs, d, H, backward=s.pass_ == "backward")
    if P == 1 or s.name not in IN_STEPS:
        return (Step(flops, ledger.words, messages_of(s.name, P, a)),)
    rest = Step(flops / P, ceil_div(ledger.words, P - 1), 1, times=P - 1, hidden=hidden)
    return Step(flops / P), rest


def messages_of(name: str, P: int, a: int | None = None) -> int:
    """Messages of a schedule that computes all at once: a collective of p ranks has p - 1, one by one.

    Raises KeyError for one that is not among the contests.
    """
    a = 1 if a is None else a
    b = P // a
    return {
        "ulysses": 2 * (P - 1),
        "ulysses_ring": 2 * (b - 1) + a - 1,
        "grid": 2 * (b - 1) + a - 1,
        "grid_backward": 2 * (b - 1) + 2 * (a - 1),
    }.get(name, P - 1)
