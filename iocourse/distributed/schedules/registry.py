"""Registry of the distributed schedules: the decorator `schedule` adds them, `ORDER` sorts them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from ...sizes import Shape, check_sizes
from .. import costs
from ..layouts import Layout, follows
from ..ledger import RankLedger
from ..rank import Rank
from ..runner import RankRun, run

PASSES = ("forward", "backward", "causal", "decode", "states", "packed")
Body = Callable[..., Any]


@dataclass(frozen=True)
class RankSchedule:
    """A registered schedule that distributes one pass over ranks.

    Each rank calls `schedule(me, Q, K, V, …)`. `layout` is the layout of the rows of the arrays in
    `operands`; if `any_layout` is True, others are possible. The arrays in `shared` are complete on every
    rank. `options` are the keyword arguments after the arrays. `heads` is True if the arrays must have shape
    (N, H, d).
    """

    name: str
    pass_: str
    regime: str
    source: str
    body: Body
    layout: str
    any_layout: bool
    shared: tuple[str, ...]
    heads: bool
    operands: tuple[str, ...]
    options: tuple[str, ...]

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.body.__doc__

    def __call__(self, me: Rank, *args: Any, **named: Any) -> Any:
        """Run the schedule on one rank. Raises ValueError if the rows have another layout than its own."""
        if not self.any_layout and me.rank == 0:  # one check for all ranks
            self._check_layout([me.blocks(rank) for rank in range(me.size)])
        return self.body(me, *args, **named)

    def _check_layout(self, blocks: Sequence[Sequence[range]]) -> None:
        if not follows(self.layout, blocks):
            raise ValueError(
                f'{self.name} is written for rows in the layout "{self.layout}", but the rows of the ranks '
                f'have another order. Pass layout="{self.layout}", or use the schedule for your layout'
            )

    def __repr__(self) -> str:
        return f"<{self.name}, a schedule between ranks: {self.pass_}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return get, (self.name,)

    def run(self, P: int, *, on: str = "count", layout: Layout | None = None, **given: Any) -> RankRun:
        """Run the schedule with `distributed.run`. layout None: its own. Raises the same errors."""
        return run(self, P, on=on, layout=layout or self.layout, shared=self.shared, **given)

    def dry(self, P: int, N: int, d: int, *, layout: Layout | None = None, **sizes: Any) -> RankRun:
        """Run the schedule on shapes only. `sizes`: H, m (queries of a decode), r (features), the options."""
        options = {name: value for name, value in sizes.items() if name in self.options}
        shapes: dict[str, Any] = dict(self.shapes(N, d, **sizes))
        return self.run(P, on="dry", layout=layout, **shapes, **options)

    def ledgers(self, P: int, N: int, d: int, **sizes: Any) -> tuple[RankLedger, ...]:
        """Return the closed form of the ledger of each rank: words received, sent and held at the peak.

        `sizes` as for `dry`. If all ranks have the same ledger, one object is shared by all of them.
        """
        P, N, d = check_sizes(P=P, N=N, d=d)
        form = costs.form_of(self.name)
        told = {name: size for name, size in sizes.items() if size is not None}
        if self.pass_ in ("forward", "backward") and N % P == 0:
            return (form(0, P, N, d, **told),) * P
        return tuple(form(rank, P, N, d, **told) for rank in range(P))

    def shapes(
        self, N: int, d: int, *, H: int | None = None, m: int = 1, r: int | None = None, **_: Any
    ) -> dict[str, Shape]:
        """Return the shape of each array for N rows and head dimension d; with H heads if H is not None."""
        heads = () if H is None else (H,)
        known = {name: (N, *heads, d) for name in self.operands}
        known |= {name: (m, *heads, d) for name in self.shared}
        if "LSE" in known:
            known["LSE"] = (N, *heads)
        if self.pass_ == "states":
            known["Q"] = known["K"] = (N, *heads, d if r is None else r)
        return known


REGISTRY: dict[str, RankSchedule] = {}

# The order within a pass, in lists and legends. A schedule that is not here comes after those of its pass.
ORDER = (
    *("ring", "grid", "ulysses", "ulysses_ring"),
    *("ring_backward_columns", "ring_backward_rows", "grid_backward"),
    *("causal_contiguous", "causal_zigzag", "causal_striped"),
    *("states", "states_causal"),
)


def rank_schedule(
    *,
    pass_: str,
    regime: str,
    source: str,
    layout: str = "contiguous",
    any_layout: bool = True,
    shared: tuple[str, ...] = (),
    heads: bool = False,
) -> Callable[[Body], RankSchedule]:
    """Register the decorated function under its own name; its closed form is `distributed.costs.<name>`.

    Raises ValueError if the pass is unknown.
    """
    if pass_ not in PASSES:
        raise ValueError(f"pass_ must be one of {', '.join(PASSES)}, got {pass_!r}")

    def register(body: Body) -> RankSchedule:
        found = list(inspect.signature(body).parameters.values())[1:]
        options = tuple(one.name for one in found if one.kind is one.KEYWORD_ONLY)
        operands = tuple(one.name for one in found if one.name not in options)
        made = RankSchedule(
            name=body.__name__,
            pass_=pass_,
            regime=regime,
            source=source,
            body=body,
            layout=layout,
            any_layout=any_layout,
            shared=shared,
            heads=heads,
            operands=operands,
            options=options,
        )
        REGISTRY[made.name] = made
        return made

    return register


def collect(files: Sequence[ModuleType]) -> None:
    """Sort `REGISTRY` by pass and `ORDER`, after checking that each file registers a schedule.

    Raises ImportError, with the name of the file, if a file registers no schedule.
    """
    having = {one.body.__module__ for one in REGISTRY.values()}
    for file in files:
        if file.__name__ not in having:
            raise ImportError(
                f"{file.__name__.replace('.', '/')}.py registers no schedule: decorate a function of it with "
                "@schedule(...)"
            )
    ordered = sorted(REGISTRY.values(), key=_place)
    REGISTRY.clear()
    REGISTRY.update({one.name: one for one in ordered})


def _place(one: RankSchedule) -> tuple[int, int, str]:
    return PASSES.index(one.pass_), ORDER.index(one.name) if one.name in ORDER else len(ORDER), one.name


def get(name: str) -> RankSchedule:
    """Return the schedule called `name`. Raises ValueError, with all names, if it does not exist."""
    if name not in REGISTRY:
        raise ValueError(f"Unknown distributed schedule {name!r}. Available: {', '.join(REGISTRY)}.")
    return REGISTRY[name]
