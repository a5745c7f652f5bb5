"""Run a schedule on ranks: distribute the arrays, join the outputs, and return a ledger for each rank."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from io import StringIO
from typing import Any, NamedTuple

import numpy as np

from ..exact import check_products, real_array
from ..sizes import Shape, positive_int
from .engines.simulated import run_in_turns
from .layouts import Layout, blocks_of, check_layout, row_count, rows_of
from .ledger import RankLedger
from .rank import Group, Plan, Rank, RankAccount, RankError, RankFailed, Transport
from .shape_arrays import ShapeArray

ENGINES = ("count", "dry", "gloo", "processes")
MOST_RANKS = 1024  # each is a thread
TIMEOUT = 60.0  # seconds on torch.distributed, unless told
Body = Callable[..., Any]


class RankRun(NamedTuple):
    """What a run on ranks left behind: outputs in float64 (none of a dry run), and each rank's ledger."""

    outputs: tuple[np.ndarray, ...]
    ledgers: tuple[RankLedger, ...]

    @property
    def O(self) -> np.ndarray:  # noqa: E743 - the paper's name
        """The first output."""
        if not self.outputs:
            raise RankError("a dry run has ledgers, but no values")
        return self.outputs[0]

    @property
    def words(self) -> int:
        """W of the rank that moves most."""
        return max(ledger.words for ledger in self.ledgers)

    @property
    def peak(self) -> int:
        """The most words of others that any rank held at once."""
        return max(ledger.peak for ledger in self.ledgers)


def run(
    schedule: Body,
    P: int,
    *,
    on: str = "count",
    layout: Layout = "contiguous",
    shared: Collection[str] = (),
    timeout: float | None = None,
    **given: Any,
) -> RankRun:
    """Run `schedule(me, <this rank's rows by name>, **options)` on P ranks.

    Arrays (N, …), on "dry" also shapes, are given out by rows in the `layout`, as copies; those named in
    `shared` every rank has whole. A layout may also say for each rank its blocks, as ranges. Everything else
    is passed on. The schedule returns an array of the rows
    that its rank owns of the first array, or a tuple of them; where that array is shared, the whole result.
    `on` is "count" (NumPy, one rank at a time), "dry" (shapes alone), "gloo" (torch.distributed between
    threads) or "processes". After `timeout` seconds all ranks are ended: unless told, after 60 on these two,
    which are counted first, and never on the others. Raises RankError that names the rank.
    """
    P = positive_int("P", P)
    if P > MOST_RANKS:
        raise ValueError(f"P = {P} is more than the {MOST_RANKS} ranks that one run takes")
    if on not in ENGINES:
        raise ValueError(f"on = {on!r} is unknown; there are {', '.join(ENGINES)}")
    arrays, options = _sorted_out(given, dry=on == "dry")
    partition = RowPartition(
        P, layout, _shared(shared, arrays), {name: a.shape[0] for name, a in arrays.items()}
    )
    for name in partition.lengths.keys() - partition.shared:
        check_layout(layout, partition.lengths[name], P)
    task = RankTask(schedule, partition, arrays, options)
    if on in ("count", "dry"):
        outcomes = run_in_turns(task, P, timeout)
    else:
        outcomes = _on_torch(on, task, P, TIMEOUT if timeout is None else timeout)
    outputs = _outputs([outcome.returned for outcome in outcomes], partition)
    return RankRun(outputs, tuple(outcome.ledger for outcome in outcomes))


class WrongResult(RankError):
    """Ranks came to their end, and what they returned is no result."""


@dataclass(frozen=True)
class RowPartition:
    """How arrays are given out: by rows in a layout, but for those in `shared`, which all have whole."""

    P: int
    layout: Layout
    shared: frozenset[str]
    lengths: Mapping[str, int] = field(default_factory=dict)

    @property
    def first(self) -> str:
        """The name of the first array: outputs lie as it does."""
        return next(iter(self.lengths))

    def blocks(self, rank: int) -> tuple[range, ...]:
        """The rows that a rank owns: of the first array that is given out by rows."""
        length = next((n for name, n in self.lengths.items() if name not in self.shared), 0)
        return blocks_of(self.layout, length, self.P, rank)

    def part(self, name: str, value: Any, rank: int) -> Any:
        """What a rank has of an array, as a copy of its own."""
        if name in self.shared:
            return value.copy()
        if isinstance(value, ShapeArray):
            return ShapeArray((row_count(self.layout, len(value), self.P, rank), *value.shape[1:]))
        return value[rows_of(self.layout, len(value), self.P, rank)]

    def join_outputs(self, parts: list[Any]) -> np.ndarray:
        """One output from what the ranks returned."""
        if self.first in self.shared:
            return self._agreed(parts)
        N = self.lengths[self.first]
        for rank, part in enumerate(parts):
            owned = row_count(self.layout, N, self.P, rank)
            if not part.ndim or len(part) != owned:
                raise WrongResult(
                    f"rank {rank} returned an array of shape {part.shape}; it owns {owned} of the {N} rows "
                    f"of {self.first}, and returns as many"
                )
        whole = np.empty((N, *parts[0].shape[1:]))
        for rank, part in enumerate(parts):
            whole[rows_of(self.layout, N, self.P, rank)] = part
        return whole

    def _agreed(self, parts: list[Any]) -> np.ndarray:
        """The result that all ranks made, up to the order of their sums; NaN in all of them is the same."""
        first = parts[0]
        for rank, part in enumerate(parts):
            if part.shape != first.shape or not np.allclose(
                part, first, rtol=1e-9, atol=1e-9, equal_nan=True
            ):
                raise WrongResult(
                    f"rank {rank} and rank 0 returned different results; every rank has {self.first} whole, "
                    "so all must return the same"
                )
        return np.array(first)


def identity(array: Any) -> Any:
    """The array as it is."""
    return array


class RankOutcome(NamedTuple):
    """What one rank leaves behind."""

    returned: tuple[Any, ...]
    ledger: RankLedger
    plan: Plan


@dataclass(frozen=True)
class RankTask:
    """What each rank has to do: `task(rank, transport)` is its outcome."""

    schedule: Body
    partition: RowPartition
    arrays: Mapping[str, Any]
    options: Mapping[str, Any]
    convert: Callable[[Any], Any] = identity  # what an engine computes with, from an array, and back
    back: Callable[[Any], Any] = identity

    def __call__(self, rank: int, transport: Transport) -> RankOutcome:
        account = RankAccount()
        me = Rank(transport, Group(tuple(range(self.partition.P))), rank, account, self.partition.blocks)
        own = {name: self.convert(self.partition.part(name, a, rank)) for name, a in self.arrays.items()}
        returned = self.schedule(me, **own, **self.options)
        me.leave()
        transport.finish()
        parts = tuple(map(self.back, _returned(rank, returned)))
        return RankOutcome(parts, account.ledger, getattr(transport, "plan", {}))

    def on_shapes(self) -> RankTask:
        """The same task on the shapes of its arrays."""
        shapes = {name: ShapeArray(tuple(a.shape)) for name, a in self.arrays.items()}
        return replace(self, arrays=shapes, convert=identity, back=identity)


def _on_torch(on: str, task: RankTask, P: int, timeout: float) -> list[RankOutcome]:
    """Ranks on torch.distributed. They are counted first, so that a mistake is told at once."""
    from .engines import multiprocess, torch_backend  # torch is imported here and nowhere above

    task = replace(task, convert=torch_backend.tensor, back=torch_backend.array)
    engine = torch_backend.run_threads if on == "gloo" else multiprocess.run_processes
    return engine(task, _plans(task, P, timeout), timeout)


def _plans(task: RankTask, P: int, timeout: float) -> list[Plan]:
    """What arrives at each rank, from a run on shapes; where shapes do not do, from one on the tensors."""
    with redirect_stdout(StringIO()):  # what ranks print is to be seen once
        try:
            return [outcome.plan for outcome in run_in_turns(task.on_shapes(), P, timeout)]
        except RankFailed:
            return [outcome.plan for outcome in run_in_turns(task, P, timeout)]


def _returned(rank: int, returned: Any) -> tuple[Any, ...]:
    parts = returned if isinstance(returned, tuple) and returned else (returned,)
    for part in parts:
        if not hasattr(part, "shape"):
            raise WrongResult(
                f"rank {rank} returned {type(part).__name__}; a schedule returns the rows of its result, as "
                "an array or a tuple of arrays"
            )
    return parts


def _outputs(returned: list[tuple[Any, ...]], partition: RowPartition) -> tuple[np.ndarray, ...]:
    for rank, parts in enumerate(returned):
        if len(parts) != len(returned[0]):
            raise WrongResult(f"rank {rank} returned {len(parts)} arrays, rank 0 returned {len(returned[0])}")
    if isinstance(returned[0][0], ShapeArray):
        return ()
    return tuple(
        partition.join_outputs([np.asarray(part) for part in parts]) for parts in zip(*returned, strict=True)
    )


def _sorted_out(given: Mapping[str, Any], dry: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arrays, on a dry run as shapes, and the options."""
    arrays = {name: _array(name, value, dry) for name, value in given.items() if _is_words(value, dry)}
    if not arrays:
        raise TypeError(
            "run got no arrays: name them as the schedule does, as in run(schedule, 4, Q=Q, K=K, V=V)"
        )
    if not dry and {"Q", "K"} <= set(arrays) and arrays["Q"].shape[-1] == arrays["K"].shape[-1]:
        # Scores that overflow would come out as NaN: they are refused, as `exact` does.
        d = arrays["Q"].shape[-1]
        check_products(arrays["Q"].reshape(-1, d), arrays["K"].reshape(-1, d))
    return arrays, {name: value for name, value in given.items() if name not in arrays}


def _is_words(value: Any, dry: bool) -> bool:
    """An array of numbers, or on a dry run a shape. An array of True and False is an option."""
    if isinstance(value, (np.ndarray, ShapeArray)) or hasattr(value, "detach"):
        return str(getattr(value, "dtype", "")) not in ("bool", "torch.bool")
    return dry and isinstance(value, tuple) and len(value) > 0 and all(isinstance(n, int) for n in value)


def _array(name: str, value: Any, dry: bool) -> Any:
    shape: Shape = value if isinstance(value, tuple) else tuple(value.shape)
    if not shape:
        raise ValueError(f"{name} has no axes; an array for ranks has rows, shape (N, …)")
    return ShapeArray(shape) if dry else real_array(name, value)


def _shared(shared: Collection[str], arrays: Mapping[str, Any]) -> frozenset[str]:
    names = frozenset([shared] if isinstance(shared, str) else shared)
    if names - set(arrays):
        raise ValueError(
            f"shared names {', '.join(sorted(names - set(arrays)))}; there are {', '.join(arrays)}"
        )
    return names
