"""Run a schedule on ranks: distribute the arrays, join the outputs, and return a ledger for each rank."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..exact import check_products, real_array
from ..sizes import Shape, positive_int
from .engines.simulated import run_in_turns
from .layouts import Layout, blocks_of, check_layout, row_count, rows_of
from .ledger import RankLedger
from .partial_attention import namespace
from .rank import Group, Plan, Rank, RankAccount, RankError, RankFailed, Transport, contiguous_copy
from .shape_arrays import ShapeArray, type_name

ENGINES = ("count", "dry", "gloo", "processes")
MOST_RANKS = 1024  # each is a thread
TIMEOUT = 60.0  # default in seconds for runs with torch.distributed
Body = Callable[..., Any]


class RankRun(NamedTuple):
    """Result of a run on ranks: the outputs in float64 (empty for a dry run) and the ledger of each rank."""

    outputs: tuple[np.ndarray, ...]
    ledgers: tuple[RankLedger, ...]

    @property
    def O(self) -> np.ndarray:  # noqa: E743 - the paper's name
        """The first output."""
        if not self.outputs:
            raise RankError('a dry run has ledgers but no outputs. Use on="count" to compute values')
        return self.outputs[0]

    @property
    def words(self) -> int:
        """W of the rank that moves the most words."""
        return max(ledger.words for ledger in self.ledgers)

    @property
    def peak(self) -> int:
        """Maximum over all ranks of the peak of words of other ranks held at once."""
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
    """Run `schedule(me, <this rank's rows by name>, **options)` on P ranks and join the outputs.

    Args:
        schedule: function that every rank calls. It returns the rows that its rank owns of the first array,
            or a tuple of such arrays; if the first array is shared, the complete result.
        P: number of ranks, at most 1,024.
        on: "count" (NumPy, one rank at a time), "dry" (shapes only), "gloo" (torch.distributed between
            threads) or "processes". Runs on the last two are preceded by a counting run.
        layout: a name in LAYOUTS, or the blocks of each rank as ranges.
        shared: names of the arrays that every rank gets complete.
        timeout: seconds after which all ranks are ended. None is 60 on "gloo" and "processes", and no limit
            otherwise.
        given: arrays (N, …), for "dry" also shapes: each rank gets a copy of its rows. Everything else is
            passed on as an option. Arrays keep their type: float64, float32, float16 or bfloat16. A bfloat16
            tensor, which NumPy cannot represent, makes all arrays tensors, also on "count".

    Raises:
        RankError: if a rank fails; the message contains its number.
        ValueError or TypeError: if an argument is invalid.
    """
    P = positive_int("P", P)
    if P > MOST_RANKS:
        raise ValueError(f"P must be at most {MOST_RANKS}, got {P}")
    if on not in ENGINES:
        raise ValueError(f"on must be one of {', '.join(ENGINES)}, got {on!r}")
    arrays, options = _sorted_out(given, getattr(schedule, "options", ()), dry=on == "dry")
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
    """All ranks ended, but their return values cannot be joined to a result."""


@dataclass(frozen=True)
class RowPartition:
    """Distribution of the arrays over ranks: by rows in a layout; all ranks have those in `shared`."""

    P: int
    layout: Layout
    shared: frozenset[str]
    lengths: Mapping[str, int] = field(default_factory=dict)

    @property
    def first(self) -> str:
        """Name of the first array, whose distribution the outputs have."""
        return next(iter(self.lengths))

    def blocks(self, rank: int) -> tuple[range, ...]:
        """Return the rows that a rank owns of the first array that is distributed by rows."""
        length = next((n for name, n in self.lengths.items() if name not in self.shared), 0)
        return blocks_of(self.layout, length, self.P, rank)

    def part(self, name: str, value: Any, rank: int) -> Any:
        """Return a copy of the part of an array that a rank gets."""
        if name in self.shared:
            return contiguous_copy(value)
        if isinstance(value, ShapeArray):
            rows = row_count(self.layout, len(value), self.P, rank)
            return ShapeArray((rows, *value.shape[1:]), kind=value.kind)
        return value[rows_of(self.layout, len(value), self.P, rank)]

    def join_outputs(self, parts: list[Any]) -> np.ndarray:
        """Join the arrays that the ranks returned to one output. Raises WrongResult if they do not fit."""
        if self.first in self.shared:
            return self._agreed(parts)
        N = self.lengths[self.first]
        for rank, part in enumerate(parts):
            owned = row_count(self.layout, N, self.P, rank)
            if not part.ndim or len(part) != owned:
                raise WrongResult(
                    f"rank {rank} returned an array of shape {part.shape}, but it owns {owned} of the {N} "
                    f"rows of {self.first} and must return {owned} rows"
                )
            if part.shape[1:] != parts[0].shape[1:]:  # assigning it would repeat its columns
                raise WrongResult(
                    f"rank {rank} returned an array of shape {part.shape}, rank 0 one of {parts[0].shape}; "
                    "their rows must have the same shape"
                )
        whole = np.empty((N, *parts[0].shape[1:]))
        for rank, part in enumerate(parts):
            whole[rows_of(self.layout, N, self.P, rank)] = part
        return whole

    def _agreed(self, parts: list[Any]) -> np.ndarray:
        """Return the result of rank 0 if all ranks returned it up to rounding; NaN equals NaN."""
        first = parts[0]
        for rank, part in enumerate(parts):
            if part.shape != first.shape or not np.allclose(
                part, first, rtol=1e-9, atol=1e-9, equal_nan=True
            ):
                raise WrongResult(
                    f"rank {rank} and rank 0 returned different results. {self.first} is shared, so all "
                    "ranks must return the same array"
                )
        return np.array(first)


def identity(array: Any) -> Any:
    """Return the array unchanged."""
    return array


class RankOutcome(NamedTuple):
    """Results of one rank: the arrays that it returned, its ledger, and the plan of its calls."""

    returned: tuple[Any, ...]
    ledger: RankLedger
    plan: Plan


@dataclass(frozen=True)
class RankTask:
    """Work of each rank, as one object that can be pickled: `task(rank, transport)` returns a RankOutcome."""

    schedule: Body
    partition: RowPartition
    arrays: Mapping[str, Any]
    options: Mapping[str, Any]
    convert: Callable[[Any], Any] = identity  # from a NumPy array to the engine's type; `back` reverses it
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
        """Return the same task with ShapeArrays instead of arrays."""
        shapes = {name: ShapeArray(tuple(a.shape), kind=type_name(a)) for name, a in self.arrays.items()}
        return replace(self, arrays=shapes, convert=identity, back=identity)


def _on_torch(on: str, task: RankTask, P: int, timeout: float) -> list[RankOutcome]:
    """Run the task with torch.distributed, after a counting run that reports mistakes immediately."""
    from .engines import multiprocess, torch_backend  # imported here, because they import torch

    task = replace(task, convert=torch_backend.tensor, back=torch_backend.array)
    engine = torch_backend.run_threads if on == "gloo" else multiprocess.run_processes
    return engine(task, _plans(task, P, timeout), timeout)


def _plans(task: RankTask, P: int, timeout: float) -> list[Plan]:
    """Return what each rank sends and receives, from a run on shapes, or on tensors if that run fails."""
    with _muted():  # the real run prints the output of the ranks
        try:
            return [outcome.plan for outcome in run_in_turns(task.on_shapes(), P, timeout)]
        except RankFailed:
            return [outcome.plan for outcome in run_in_turns(task, P, timeout)]


MUTED = ContextVar("MUTED", default=False)  # a rank of a simulated run has the context of its caller
_muting = threading.Lock()


class _Stdout:
    """Standard output without the text of counting runs. Runs in other threads keep theirs."""

    def __init__(self, stream: Any) -> None:
        self.stream, self.runs = stream, 0

    def write(self, text: str) -> int:
        return len(text) if MUTED.get() else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def _muted() -> Iterator[None]:
    """Drop what is printed in this context, until the end of the block."""
    with _muting:
        if not isinstance(sys.stdout, _Stdout):
            sys.stdout = _Stdout(sys.stdout)
        ours: Any = sys.stdout
        ours.runs += 1
    before = MUTED.set(True)
    try:
        yield
    finally:
        MUTED.reset(before)
        with _muting:
            ours.runs -= 1
            if not ours.runs and sys.stdout is ours:
                sys.stdout = ours.stream


def _returned(rank: int, returned: Any) -> tuple[Any, ...]:
    parts = returned if isinstance(returned, tuple) and returned else (returned,)
    for part in parts:
        if not hasattr(part, "shape"):
            raise WrongResult(
                f"rank {rank} returned {type(part).__name__}; a schedule must return the rows of its result, "
                "as an array or a tuple of arrays"
            )
    return parts


def _outputs(returned: list[tuple[Any, ...]], partition: RowPartition) -> tuple[np.ndarray, ...]:
    for rank, parts in enumerate(returned):
        if len(parts) != len(returned[0]):
            raise WrongResult(f"rank {rank} returned {len(parts)} arrays, rank 0 returned {len(returned[0])}")
    if isinstance(returned[0][0], ShapeArray):
        return ()
    return tuple(
        partition.join_outputs([_numpy(part) for part in parts]) for parts in zip(*returned, strict=True)
    )


def _numpy(part: Any) -> np.ndarray:
    return np.asarray(part) if namespace(part) is np else part.detach().double().numpy()


def _sorted_out(
    given: Mapping[str, Any], known: Collection[str], dry: bool
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the arguments into arrays (in a dry run ShapeArrays) and options; check the arrays.

    Options that the schedule has under a known name may be arrays or tuples, such as lengths.
    """
    arrays = {
        name: _array(name, value, dry)
        for name, value in given.items()
        if name not in known and _is_words(value, dry)
    }
    if not arrays:
        raise TypeError(
            "run got no arrays. Pass them by the names of the schedule's parameters: "
            "run(schedule, 4, Q=Q, K=K, V=V)"
        )
    if not dry and {"Q", "K"} <= set(arrays) and arrays["Q"].shape[-1] == arrays["K"].shape[-1]:
        _check_scores(arrays["Q"], arrays["K"])
    if any(type_name(array) == "bfloat16" for array in arrays.values()):
        torch = sys.modules["torch"]
        arrays = {name: torch.as_tensor(array) for name, array in arrays.items()}
    return arrays, {name: value for name, value in given.items() if name not in arrays}


def _is_words(value: Any, dry: bool) -> bool:
    """Return True for an array of numbers, in a dry run also for a shape. A Boolean array is an option."""
    if isinstance(value, (np.ndarray, ShapeArray)) or hasattr(value, "detach"):
        return str(getattr(value, "dtype", "")) not in ("bool", "torch.bool")
    return dry and isinstance(value, tuple) and len(value) > 0 and all(isinstance(n, int) for n in value)


def _array(name: str, value: Any, dry: bool) -> Any:
    shape: Shape = value if isinstance(value, tuple) else tuple(value.shape)
    if not shape:
        raise ValueError(f"{name} must be an array with rows, shape (N, …), got shape ()")
    if dry:
        return ShapeArray(shape, kind=type_name(value) if hasattr(value, "dtype") else "float64")
    value = value.detach() if hasattr(value, "detach") else value
    checked = real_array(name, value.double().numpy() if type_name(value) == "bfloat16" else value)
    if type_name(value) == "bfloat16":
        return contiguous_copy(value)
    return checked.astype(type_name(value)) if type_name(value) in ("float32", "float16") else checked


def _check_scores(Q: Any, K: Any) -> None:
    """Raise ValueError if scores overflow the type in which ranks compute them; they would give NaN."""
    d, both = Q.shape[-1], [_numpy(X).astype(np.float64).reshape(-1, Q.shape[-1]) for X in (Q, K)]
    check_products(*both)
    if "float64" in (type_name(Q), type_name(K)):
        return
    largest, limit = [float(np.abs(X).max(initial=0.0)) for X in both], float(np.finfo(np.float32).max)
    if d * largest[0] * largest[1] >= limit and np.abs(both[0] @ both[1].T).max() >= limit:
        raise ValueError("the scores QKᵀ overflow float32, in which ranks compute them; pass float64 arrays")


def _shared(shared: Collection[str], arrays: Mapping[str, Any]) -> frozenset[str]:
    names = frozenset([shared] if isinstance(shared, str) else shared)
    if names - set(arrays):
        raise ValueError(
            f"shared must contain names of arrays ({', '.join(arrays)}), "
            f"got {', '.join(sorted(names - set(arrays)))}"
        )
    return names
