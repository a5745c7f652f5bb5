"""The passes in registers, called with NumPy arrays."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....monomials import Array, Plan
from ...approximation import Approximation, weights_of
from ...error_certificates import POSITIVE
from ...numpy_backend import Forward, Gradients
from ...polynomials import Polynomial
from .. import map_spans, span_count
from . import causal, dense, writer
from .sixteen import Sixteen
from .steps import LONG, RegisterBlocking

FLOAT32: Any = np.dtype(np.float32)
MOST_COLUMNS, MOST_COORDINATES = 27, 32
TILE, TILE_NUMBERS = 480, 1 << 17  # tokens of a tile of keys, and numbers in it, at the most


def suits(Q: Array, V: Array, g: int) -> bool:
    """Whether these passes are made for such arrays, of degree g, and for this processor."""
    fits = Q.dtype == FLOAT32 and g >= 2
    fits = fits and Q.shape[-1] <= MOST_COORDINATES and V.shape[-1] <= MOST_COLUMNS
    return fits and bool(writer.here())


@dataclass(frozen=True, eq=False)
class Tables:
    """What compiled code knows of a plan and a polynomial: the address of `steps.Steps`, numbers to work in.

    held: keeps it in memory.
    """

    words: int
    room: int
    held: tuple[NDArray[Any], ...]


def held(plan: Plan) -> int:
    """How many features of a token are in memory at the most: all but those of long steps of degree g."""
    made = (step.last - step.first for step in plan.steps[-plan.d :])
    return plan.rank - sum(many for many in made if many >= LONG)


@lru_cache(maxsize=64)
def tables(plan: Plan, polynomial: Polynomial, m: int, panel: int) -> Tables:
    """For m columns and panels of so many tokens."""
    base = int(plan.starts[plan.g])
    parts = np.array([1, 1] + [1 / k for k in range(2, plan.g + 1)], FLOAT32)
    weights = weights_of(plan, polynomial, FLOAT32)
    tile = max(panel, min(TILE, TILE_NUMBERS // base) // panel * panel)
    steps = [len(plan.steps) - plan.d, len(plan.steps)]
    long = steps[0] + sum(step.last - step.first >= LONG for step in plan.steps[-plan.d :])
    head = [plan.g, base, *steps, tile, address(parts), address(weights), long]
    end = [plan.rank, plan.rank, 0, 0]  # a step after the last
    words = np.concatenate([head, plan.starts, plan.table.ravel(), end]).astype(np.int64)
    room = (
        held(plan) * (tile + 2 * panel)
        + (plan.g + 2 * m + 2 * plan.d) * (tile + 2 * panel)
        + 128 * (plan.d + m + 4)
    )
    return Tables(address(words), room, (words, parts, weights))


class Compiled(NamedTuple):
    """Functions by name, the shape they are for, and what keeps their machine code in memory."""

    functions: dict[str, Callable[..., int]]
    shape: RegisterBlocking
    code: Any


Written = tuple[Callable[[RegisterBlocking], None], tuple[str, ...]]
PARTS: dict[str, dict[str, Written]] = {
    "forward": {
        "mean": (dense.mean, dense.MEAN), "keys": (dense.keys, dense.KEYS),
        "finish": (dense.finish, dense.FINISH), "queries": (dense.queries, dense.QUERIES),
        "judge": (dense.judge, dense.JUDGE), "attend": (dense.write_dense_forward, dense.ATTEND),
    },
    "backward": {
        "queries_back": (dense.queries_back, dense.QUERIES_BACK),
        "finish": (dense.finish, dense.FINISH), "keys_back": (dense.keys_back, dense.KEYS_BACK),
        "pull": (dense.pull, dense.PULL),
    },
    "causal": {
        "judge": (dense.judge, dense.JUDGE), "causal_forward": (causal.write_causal_forward, causal.FORWARD),
    },
    "causal backward": {
        "causal_queries_back": (causal.queries_back, causal.QUERIES_BACK),
        "causal_keys_back": (causal.keys_back, causal.KEYS_BACK),
    },
}  # fmt: skip


def written(part: str, d: int, m: int, processor: writer.Processor) -> RegisterBlocking:
    """The functions of a part for d coordinates and m columns, for such a processor, not compiled yet."""
    kind = RegisterBlocking if processor.registers == 32 else Sixteen
    u = kind.at_once(m)
    if part.startswith("causal"):  # a tile is a whole number of panels
        u = max(some for some in (1, 2, 4) if some <= u)
    shape = kind(writer.Program(processor), d, m, u)
    for write, _ in PARTS[part].values():
        write(shape)
    return shape


@lru_cache(maxsize=128)
def compiled(part: str, d: int, m: int) -> Compiled:
    """The same, compiled for this processor when they are first asked for."""
    shape = written(part, d, m, writer.here()[0])
    code = writer.Compiled(shape.p, {name: kinds for name, (_, kinds) in PARTS[part].items()})
    return Compiled(code.functions, shape, code)


_own = threading.local()


def room(numbers: int) -> int:
    """The address of room for so many float32 numbers, at a cache line's start; each thread has its own."""
    if getattr(_own, "numbers", 0) < numbers:
        _own.numbers, _own.memory = numbers, np.empty(numbers + 16, FLOAT32)
        _own.start = address(_own.memory) + -address(_own.memory) % 64
    return int(_own.start)


HEAD = object.__basicsize__  # bytes of an object before the first field of its own: of an array, its address


def _field(X: NDArray[Any]) -> int:
    return ctypes.c_size_t.from_address(id(X) + HEAD).value


def _asked(X: NDArray[Any]) -> int:
    return int(X.ctypes.data)


def _fastest() -> Callable[[NDArray[Any]], int]:
    """How to find where an array's first entry lies: its field is read in a fifth of the time of asking."""
    X = np.ones(2)[1:]
    is_cpython = sys.implementation.name == "cpython"
    return _field if is_cpython and _field(X) == _asked(X) else _asked


address = _fastest()


def together(*like: Array) -> tuple[list[Array], list[int]]:
    """Arrays of these shapes, and their addresses, in one piece of memory, which the system takes back and
    clears less eagerly.
    """
    memory = np.empty(sum(X.size for X in like), FLOAT32)
    found, places, at = [], [], 0
    for X in like:
        found.append(memory[at : at + X.size].reshape(X.shape))
        places.append(4 * at)
        at += X.size
    first = address(memory)
    return found, [first + place for place in places]


def contiguous(*arrays: Array) -> tuple[Array, ...]:
    """The arrays with neighbouring entries next to each other."""
    return tuple([np.ascontiguousarray(X) for X in arrays])  # a list is made faster


class Places(NamedTuple):
    """Where what `dense.ForwardBuffers` says lies in one piece of memory."""

    T: slice
    values: slice
    shift: slice
    covariance: slice
    outputs: slice


@lru_cache(maxsize=128)
def places(rank: int, d: int, m: int) -> Places:
    """Of so many features, coordinates and columns."""
    ends = list(accumulate((rank * m, 2 * m - 2, d, d * d, 2 * m + 1)))
    return Places(*(slice(first, last) for first, last in zip([0, *ends], ends, strict=False)))


def forward(
    Q: Array, K: Array, V: Array, s: Approximation, threads: int = 1
) -> tuple[Forward, Approximation, bool]:
    """As `numpy_backend.forward`, with the mean and the covariance of the keys, which s need not have, and
    whether `judge` found the outputs fine. Where s has a covariance, it is taken.
    """
    Q, K, V = contiguous(Q, K, V)
    (n, d), n_k, m, per_row = Q.shape, len(K), V.shape[1] + 1, s.polynomial.per_row
    at = places(s.plan.rank, d, m)
    memory = np.zeros(at.outputs.stop, FLOAT32)
    T, covariance = memory[at.T].reshape(-1, m), memory[at.covariance].reshape(d, d)
    share = 1 / n_k if per_row and s.covariance is None else 0.0
    if s.covariance is not None:
        covariance[:] = s.covariance
    O, den = np.empty((n, m - 1), FLOAT32), np.empty(n, FLOAT32)
    if span_count(threads, max(n, n_k)) < 2:
        run, shape, _ = compiled("forward", d, m)
        t = tables(s.plan, s.polynomial, m, shape.tokens)
        fine = run["attend"](
            address(O), address(den), address(memory), address(Q), address(K), address(V), n, n_k, s.factor,
            share, n_k / 2, t.words, room(t.room),
        )  # fmt: skip
    else:
        fine = _in_spans(O, den, memory, (Q, K, V), s, share, threads)
    found = covariance if per_row else None
    was = Approximation(s.plan, s.polynomial, s.factor, memory[at.shift], found, share > 0)
    return Forward(O, den, T), was, fine == 1


def _in_spans(
    O: Array,
    den: Array,
    memory: Array,
    arrays: tuple[Array, ...],
    s: Approximation,
    share: float,
    threads: int,
) -> int:
    """The same on several threads, span by span; what `judge` hands back."""
    Q, K, V = arrays
    n, (n_k, d), m = len(Q), K.shape, V.shape[1] + 1
    run, shape, _ = compiled("forward", d, m)
    t = tables(s.plan, s.polynomial, m, shape.tokens)
    weighted, values, shift, covariance, outside = (memory[at] for at in places(s.plan.rank, d, m))
    q, k, v, o, below = (address(X) for X in (Q, K, V, O, den))
    total, spread, middle, states = address(weighted), address(covariance), address(shift), weighted.size

    def mean(start: int, stop: int) -> Array:
        found = np.empty(d, FLOAT32)
        run["mean"](k, start, stop, address(found), room(t.room))
        found *= FLOAT32.type((stop - start) / n_k)
        return found

    def state(start: int, stop: int) -> Array:
        found = np.zeros(states + 2 * m - 2, FLOAT32)  # T, and the extents of V
        T = address(found)
        run["keys"](T, T + 4 * states, k, v, start, stop, middle, t.words, room(t.room))
        return found

    def outputs(start: int, stop: int) -> Array:
        guard = np.empty(2 * m + 1, FLOAT32)
        run["queries"](
            o, below, address(guard), total, q, start, stop, s.factor, spread, t.words, room(t.room)
        )
        return guard

    shift[:] = _total(map_spans(mean, n_k, threads))
    parts = map_spans(state, n_k, threads)
    values[:] = np.min([part[states:] for part in parts], axis=0)
    weighted[:] = _total(parts)[:states]
    run["finish"](total, spread, share, t.words)
    guards = map_spans(outputs, n, threads)
    outside[:] = np.min(guards, axis=0)
    outside[-1] = sum(guard[-1] for guard in guards)
    return int(run["judge"](address(values), address(outside), n_k / 2))


def _total(parts: list[Array]) -> Array:
    """Their sum, in the first one's memory."""
    for part in parts[1:]:
        parts[0] += part
    return parts[0]


def _known(X: Array | None, shape: tuple[int, ...]) -> Array:
    """X in float32, 0 for None."""
    return np.zeros(shape, FLOAT32) if X is None else np.ascontiguousarray(X, FLOAT32)


def backward(
    Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Approximation, threads: int = 1
) -> tuple[Gradients, bool]:
    """As `numpy_backend.backward`, and whether nothing in the results showed that something is wrong."""
    Q, K, V, dO = contiguous(Q, K, V, dO)
    (n, d), n_k, m = Q.shape, len(K), V.shape[1] + 1
    run, shape, _ = compiled("backward", d, m)
    t = tables(s.plan, s.polynomial, m, shape.tokens)
    T, O, den = contiguous(f.T, f.O, f.den)
    covariance, shift = _known(s.covariance, (d, d)), _known(s.shift, (d,))
    spread, middle = address(covariance), address(shift)
    found, (dq, dk, dv) = together(Q, K, V)
    weighted, q, k, v, o, below, do = (address(X) for X in (T, Q, K, V, O, den, dO))

    def state(start: int, stop: int) -> Array:
        found = np.zeros(T.size + 2, FLOAT32)  # U, and what the guard sees
        U = address(found)
        run["queries_back"](
            dq, U + 4 * T.size, U, weighted, q, o, below, do, start, stop, s.factor, spread, t.words,
            room(t.room),
        )  # fmt: skip
        return found

    def gradients(start: int, stop: int) -> Array:
        guard = np.empty(2, FLOAT32)
        run["keys_back"](dk, dv, address(guard), total, k, v, start, stop, middle, t.words, room(t.room))
        return guard

    if span_count(threads, max(n, n_k)) < 2:
        U = np.zeros(T.size + 4, FLOAT32)
        total = address(U)
        run["pull"](
            dq, dk, dv, total + 4 * T.size, total, weighted, q, k, v, o, below, do, spread, middle, n, n_k,
            s.factor, t.words, room(t.room),
        )  # fmt: skip
        guard = U[T.size :].tolist()
    else:
        U = _total(map_spans(state, n, threads))
        total = address(U)
        run["finish"](total, spread, 0.0, t.words)
        guard = [*U[T.size :].tolist(), *_total(map_spans(gradients, n_k, threads)).tolist()]
    return Gradients(*found), _fine(guard, s)


def _fine(guard: Sequence[float], s: Approximation) -> bool:
    """Whether gradients are finite, and no larger than weights of one sign can make them.

    guard: 0 where dQ is finite, Σ |dO|, 0 where dK and dV are, Σ |dV|.
    """
    of_queries, of_outputs, of_keys, of_values = guard
    positive = s.polynomial.positive_to == inf or of_values <= 2 * of_outputs
    return positive and of_queries == 0 and of_keys == 0


@dataclass(frozen=True)
class _Causal:
    """What the causal passes of a head share: functions, arrays and what they end with."""

    run: dict[str, Callable[..., int]]
    wide: int
    room: int
    covariance: Array
    tables: Tables

    @property
    def last(self) -> tuple[int, ...]:
        """Addresses of words and of room."""
        return (self.tables.words, room(self.room))


def _causal(part: str, Q: Array, V: Array, s: Approximation) -> _Causal:
    d, m, plan = Q.shape[1], V.shape[1] + 1, s.plan
    run, shape, _ = compiled(part, d, m)
    t = tables(plan, s.polynomial, m, shape.tokens)
    across, of_token = causal.state_columns(shape), held(plan)
    numbers = (of_token + plan.g + 4 * d + 6 * m + 3 * across) * causal.TILE + of_token * 2 * shape.tokens
    numbers += (d + plan.g) * shape.tokens + 128 * (d + m + 4)
    return _Causal(run, across, numbers, _known(s.covariance, (d, d)), t)


def causal_forward(Q: Array, K: Array, V: Array, s: Approximation) -> tuple[Forward, Approximation, bool]:
    """As `numpy_backend.causal_forward`, with no state handed back, and whether `judge` found the outputs
    fine.
    """
    Q, K, V = contiguous(Q, K, V)
    m, c = V.shape[1] + 1, _causal("causal", Q, V, s)
    O, den, guard = np.empty_like(V), np.empty(len(Q), FLOAT32), np.empty(4 * m - 1, FLOAT32)
    T = np.zeros((s.plan.rank, c.wide), FLOAT32)
    arrays = [address(X) for X in (O, den, guard, T, Q, K, V)]
    spread = address(c.covariance)
    fine = c.run["causal_forward"](*arrays, len(Q), s.factor, spread, POSITIVE, *c.last)
    return Forward(O, den, np.empty((0, 0), FLOAT32)), s, fine == 1


def causal_backward(
    Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Approximation
) -> tuple[Gradients, bool]:
    """As `numpy_backend.causal_backward`, and whether nothing in the results showed that something is
    wrong.
    """
    Q, K, V, dO = contiguous(Q, K, V, dO)
    O, den = contiguous(f.O, f.den)
    c = _causal("causal backward", Q, V, s)
    found, (dq, dk, dv) = together(Q, K, V)
    guard = np.empty(4, FLOAT32)
    seen = address(guard)
    T, U = (np.zeros((s.plan.rank, c.wide), FLOAT32) for _ in range(2))
    inputs = [address(X) for X in (O, den, dO, Q, K, V)]
    last = (*inputs, len(Q), s.factor, address(c.covariance), *c.last)
    c.run["causal_queries_back"](dq, seen, address(T), *last)
    c.run["causal_keys_back"](dk, dv, seen + 8, address(U), *last)
    return Gradients(*found), _fine(guard.tolist(), s)
