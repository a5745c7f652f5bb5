"""The list of schedules: a schedule is a run on a machine, its closed form, and the tiles it wants.

Adding one is adding one file: decorate the function, and tables, plots, the command line and the
property tests find it here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import costs
from ..guard import library_answer, refuse_in_exam
from ..ledger import Ledger
from ..machine import Machine, Slow
from ..sizes import check_sizes, positive_int

Tiles = dict[str, int]
Chooser = Callable[[int, int, int], Tiles]
Outputs = Slow | tuple[Slow, Slow]  # O, or O and LSE
Body = Callable[..., Outputs]


@dataclass(frozen=True)
class Schedule:
    """One way to move the words of one pass.

    Calling it runs it on a machine: `schedule(m, Q, K, V, **tiles)` returns the slow array it
    filled, and with `lse=True` also that of the rows' log-sum-exp: (O, LSE).
    """

    name: str
    pass_: str
    regime: str
    source: str
    body: Body
    cost_form: Callable[..., Ledger]
    choose: Chooser
    tile_names: tuple[str, ...]
    note: Callable[[int, int, int], str]

    @property
    def __name__(self) -> str:
        return self.name

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self.body.__doc__

    def __repr__(self) -> str:
        return f"schedule {self.name}(m, Q, K, V, {', '.join(self.tile_names)})"

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self.body)

    @property
    def __wrapped__(self) -> Any:  # for inspect.getsource: the code as it was written
        return self.body.__dict__["__wrapped__"]

    def __call__(self, m: Machine, *arrays: Slow, lse: bool = False, **named: Any) -> Outputs:
        refuse_in_exam(f"iocourse.schedules.{self.name}")
        tiles = {name: value for name, value in named.items() if name not in ("Q", "K", "V")}
        self._check_tiles(tiles)
        operands = arrays or tuple(named[name] for name in ("Q", "K", "V") if name in named)
        _check_operands(self.name, operands)
        return self.body(m, *operands, lse=lse, **tiles)

    def _check_tiles(self, tiles: dict[str, Any]) -> None:
        for name, value in tiles.items():
            if name not in self.tile_names:
                raise TypeError(f"{self.name} has no tile size {name!r}; it has {', '.join(self.tile_names)}")
            positive_int(name, value)
        missing = [name for name in self.tile_names if name not in tiles]
        if missing:
            raise TypeError(
                f"{self.name} needs the tile size(s) {', '.join(missing)}; tiles(N, d, M) picks them"
            )

    def cost(self, N: int, d: int, *, lse: bool = False, **tiles: int) -> Ledger:
        """The closed form for these sizes: words per array, and the footprint as `peak`."""
        check_sizes(N=N, d=d)
        self._check_tiles(tiles)
        return self.cost_form(N, d, lse=lse, **tiles)

    def smallest_M(self, N: int, d: int) -> int:
        """Words of fast memory below which no tile size of this schedule fits."""
        check_sizes(N=N, d=d)
        return self.cost_form(N, d, **dict.fromkeys(self.tile_names, 1)).peak

    def tiles(self, N: int, d: int, M: int) -> Tiles:
        """The tile sizes this schedule picks. Raises ValueError naming the smallest M where none fits."""
        positive_int("M", M)
        least = self.smallest_M(N, d)
        if least > M:
            raise ValueError(
                f"M = {M} is too small for {self.name} at N = {N}, d = {d}: "
                f"the smallest M that works is {least}"
            )
        return self.choose(N, d, M)


REGISTRY: dict[str, Schedule] = {}


def _no_note(N: int, d: int, M: int) -> str:
    return ""


def schedule(
    *,
    pass_: str,
    regime: str,
    source: str,
    tiles: Chooser,
    note: Callable[[int, int, int], str] = _no_note,
) -> Callable[[Body], Schedule]:
    """Register the decorated function under its own name; its closed form is `costs.<name>`."""

    def register(body: Body) -> Schedule:
        name = body.__name__
        cost, guarded, choose = getattr(costs, name), library_answer(body), library_answer(tiles)
        made = Schedule(name, pass_, regime, source, guarded, cost, choose, _tile_names(body), note)
        REGISTRY[name] = made
        return made

    return register


def _tile_names(body: Body) -> tuple[str, ...]:
    """The keyword arguments without a default."""
    found = inspect.signature(body).parameters.values()
    return tuple(p.name for p in found if p.kind is p.KEYWORD_ONLY and p.default is p.empty)


def get(name: str) -> Schedule:
    """The schedule called `name`. Raises ValueError that lists the names there are."""
    if name not in REGISTRY:
        raise ValueError(f"there is no schedule {name!r}; there are {', '.join(REGISTRY)}")
    return REGISTRY[name]


def _check_operands(name: str, operands: tuple[Slow, ...]) -> None:
    if len(operands) != 3:
        raise TypeError(f"{name} takes Q, K and V; it was given {len(operands)} array(s)")
    for label, array in zip(("Q", "K", "V"), operands, strict=True):
        if not isinstance(array, Slow):
            raise TypeError(f"{label} must be in slow memory (machine.slow), not a {type(array).__name__}")
    Q = operands[0]
    for label, array in zip(("Q", "K", "V"), operands, strict=True):
        if len(array.shape) != 2:
            raise ValueError(f"{label} has shape {array.shape}; the schedules take one head, (N, d)")
        if array.shape != Q.shape:
            raise ValueError(
                f"{label} has shape {array.shape} but Q has {Q.shape}; Q, K and V must agree in N and d"
            )
