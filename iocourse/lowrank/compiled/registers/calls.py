"""The passes in registers, called with NumPy arrays."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....guard import library_answer
from ....monomials import Array, Plan
from ...passes import Forward, Gradients
from ...polynomials import Polynomial
from ...setting import Setting, weights_of
from ..spans import each
from . import causal, dense, writer
from .steps import REGISTERS, Shape

FLOAT32: Any = np.dtype(np.float32)
MOST_COLUMNS, MOST_COORDINATES = REGISTERS - 1, 32
TILE, TILE_NUMBERS = 480, 1 << 17  # tokens of a tile of keys, and numbers in it, at the most


def suits(Q: Array, V: Array, g: int) -> bool:
    """Whether these passes are made for such arrays, of degree g, and for this processor."""
    fits = Q.dtype == FLOAT32 and g >= 2
    fits = fits and Q.shape[-1] <= MOST_COORDINATES and V.shape[-1] <= MOST_COLUMNS
    return fits and not writer.problem()


class Limits(NamedTuple):
    """The least and the largest number of each column."""

    low: Sequence[float]
    high: Sequence[float]


class Seen(NamedTuple):
    """What a forward pass saw: limits of V, and of O with the denominators last; 0.0 where O is finite."""

    values: Limits
    outputs: Limits
    spoilt: float

    def fine(self, least: float) -> bool:
        """Whether no denominator is below `least`, and all of O is finite and `guards.within` V."""
        if self.spoilt != 0 or not (self.outputs.low[-1] >= least and self.outputs.high[-1] < inf):
            return False
        for low, high, v_low, v_high in zip(*self.outputs, *self.values, strict=False):  # den has no values
            room = (v_high - v_low) / 2 + 1e-3 * (abs(v_low) + abs(v_high))
            if not (low >= v_low - room and high <= v_high + room):
                return False
        return True


class SeenBack(NamedTuple):
    """What a backward pass saw: 0.0 where its results are finite; Σ |dV| and Σ |dO|."""

    spoilt: float
    sizes: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Tables:
    """What compiled code knows of a plan and a polynomial: addresses, tokens of a tile, numbers to work in.

    words: the steps. parts: 1, 1, 1/2, 1/3 … weights: of the monomials. held: keeps them in memory.
    """

    words: int
    parts: int
    weights: int
    tile: int
    room: int
    held: tuple[NDArray[Any], ...]


@lru_cache(maxsize=64)
def tables(plan: Plan, polynomial: Polynomial, m: int, panel: int) -> Tables:
    """For m columns and panels of so many tokens."""
    base = int(plan.starts[plan.g])
    head = [plan.g, base, len(plan.steps) - plan.d, len(plan.steps)]
    words = np.concatenate([head, plan.starts, plan.table.ravel()]).astype(np.int64)
    parts = np.array([1, 1] + [1 / k for k in range(2, plan.g + 1)], FLOAT32)
    held: tuple[NDArray[Any], ...] = (words, parts, weights_of(plan, polynomial, FLOAT32))
    tile = max(panel, min(TILE, TILE_NUMBERS // base) // panel * panel)
    room = (
        base * (tile + 2 * panel)
        + (plan.g + 2 * m + 2 * plan.d) * (tile + 2 * panel)
        + 128 * (plan.d + m + 4)
    )
    places = [address(X) for X in held]
    return Tables(places[0], places[1], places[2], tile, room, held)


class Compiled(NamedTuple):
    """Functions by name, the shape they are for, and what keeps their machine code in memory."""

    functions: dict[str, Callable[..., int]]
    shape: Shape
    code: Any


Written = tuple[Callable[[Shape], None], tuple[str, ...]]
PARTS: dict[str, dict[str, Written]] = {
    "forward": {
        "mean": (dense.mean, dense.MEAN), "keys": (dense.keys, dense.KEYS),
        "finish": (dense.finish, dense.FINISH), "queries": (dense.queries, dense.QUERIES),
    },
    "backward": {
        "queries_back": (dense.queries_back, dense.QUERIES_BACK),
        "keys_back": (dense.keys_back, dense.KEYS_BACK),
    },
    "causal": {"causal_forward": (causal.forward, causal.FORWARD)},
    "causal backward": {
        "causal_queries_back": (causal.queries_back, causal.QUERIES_BACK),
        "causal_keys_back": (causal.keys_back, causal.KEYS_BACK),
    },
}  # fmt: skip


@lru_cache(maxsize=128)
def compiled(part: str, d: int, m: int) -> Compiled:
    """The functions of a part for d coordinates and m columns, compiled when they are first asked for."""
    u = max(1, REGISTERS // m)
    if part.startswith("causal"):  # a tile is a whole number of panels
        u = max(some for some in (1, 2, 4) if some <= u)
    shape = Shape(writer.Program(), d, m, u)
    for write, _ in PARTS[part].values():
        write(shape)
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


def _least(guards: Sequence[Array]) -> list[float]:
    """Number by number the least of the spans'."""
    found: list[float] = (guards[0] if len(guards) == 1 else np.min(guards, axis=0)).tolist()
    return found


def limits(guard: Sequence[float], many: int) -> Limits:
    """Of `many` columns, from their least numbers and their least negatives."""
    return Limits(guard[:many], [-x for x in guard[many : 2 * many]])


def rows(*arrays: Array) -> tuple[Array, ...]:
    """The arrays with neighbouring entries next to each other."""
    return tuple(X if X.flags.c_contiguous else np.ascontiguousarray(X) for X in arrays)


@library_answer
def forward(Q: Array, K: Array, V: Array, s: Setting, threads: int = 1) -> tuple[Forward, Setting, Seen]:
    """As `passes.forward`, with the mean and the covariance of the keys, which s need not have, and what was
    seen on the way. Where s has a covariance, it is taken.
    """
    Q, K, V = rows(Q, K, V)
    n, d, m = len(K), Q.shape[1], V.shape[1] + 1
    run, shape, _ = compiled("forward", d, m)
    t = tables(s.plan, s.polynomial, m, shape.tokens)
    k, v, states = address(K), address(V), s.plan.rank * m

    def mean(start: int, stop: int) -> Array:
        found = np.empty(d, FLOAT32)
        run["mean"](k, start, stop, address(found), room(t.room))
        return found if stop - start == n else found * FLOAT32.type((stop - start) / n)

    shift = _total(each(mean, n, threads))
    middle = address(shift)

    def state(start: int, stop: int) -> Array:
        found = np.zeros(states + 2 * m - 2, FLOAT32)  # T, and what the guard sees
        T = address(found)
        run["keys"](T, T + 4 * states, k, v, start, stop, t.tile, middle, t.words, room(t.room))
        return found

    parts = each(state, n, threads)
    values = limits(_least([part[states:] for part in parts]), m - 1)
    T = _total(parts)[:states]
    covariance = _known(s.covariance, (d, d))
    read = s.polynomial.per_row and s.covariance is None
    weighted, spread = address(T), address(covariance)
    run["finish"](weighted, spread, t.weights, 1 / n if read else 0.0, t.words)
    O, den = np.empty((len(Q), m - 1), FLOAT32), np.empty(len(Q), FLOAT32)
    o, below, q = address(O), address(den), address(Q)

    def outputs(start: int, stop: int) -> Array:
        guard = np.empty(2 * m + 1, FLOAT32)
        run["queries"](
            o, below, address(guard), weighted, q, start, stop, s.factor, spread, t.parts, t.words,
            room(t.room),
        )  # fmt: skip
        return guard

    guards = each(outputs, len(Q), threads)
    seen = Seen(values, limits(_least(guards), m), sum(float(g[-1]) for g in guards))
    was = Setting(s.plan, s.polynomial, s.factor, shift, covariance if s.polynomial.per_row else None)
    return Forward(O, den, T.reshape(-1, m)), was, seen


def _known(X: Array | None, shape: tuple[int, ...]) -> Array:
    """X in float32, 0 for None."""
    return np.zeros(shape, FLOAT32) if X is None else np.ascontiguousarray(X, FLOAT32)


def _total(parts: list[Array]) -> Array:
    """Their sum, in the first one's memory."""
    for part in parts[1:]:
        parts[0] += part
    return parts[0]


@library_answer
def backward(
    Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Setting, threads: int = 1
) -> tuple[Gradients, SeenBack]:
    """As `passes.backward`, and what was seen on the way."""
    Q, K, V, dO = rows(Q, K, V, dO)
    d, m, states = Q.shape[1], V.shape[1] + 1, f.T.size
    run, shape, _ = compiled("backward", d, m)
    t = tables(s.plan, s.polynomial, m, shape.tokens)
    covariance, shift = _known(s.covariance, (d, d)), _known(s.shift, (d,))
    T, O, den = rows(f.T, f.O, f.den)
    inputs, spread, middle = [address(X) for X in (T, Q, O, den, dO)], address(covariance), address(shift)
    found, (dq, dk, dv) = together(Q, K, V)

    def state(start: int, stop: int) -> Array:
        found = np.zeros(states + 2, FLOAT32)  # U, and what the guard sees
        U = address(found)
        run["queries_back"](
            dq, U + 4 * states, U, *inputs, start, stop, t.tile, s.factor, spread, t.parts, t.words,
            room(t.room),
        )  # fmt: skip
        return found

    parts = each(state, len(Q), threads)
    of_queries = np.sum([part[states:] for part in parts], 0).tolist()
    U, k, v = address(_total(parts)), address(K), address(V)
    compiled("forward", d, m).functions["finish"](U, spread, t.weights, 0.0, t.words)

    def gradients(start: int, stop: int) -> Array:
        guard = np.empty(2, FLOAT32)
        run["keys_back"](dk, dv, address(guard), U, k, v, start, stop, middle, t.words, room(t.room))
        return guard

    of_keys = np.sum(each(gradients, len(K), threads), 0).tolist()
    return Gradients(*found), SeenBack(of_keys[0] + of_queries[0], (of_keys[1], of_queries[1]))


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
        """Addresses of covariance, parts, weights, words, and room."""
        t = self.tables
        return (address(self.covariance), t.parts, t.weights, t.words, room(self.room))


def _causal(part: str, Q: Array, V: Array, s: Setting) -> _Causal:
    d, m, plan = Q.shape[1], V.shape[1] + 1, s.plan
    run, shape, _ = compiled(part, d, m)
    t = tables(plan, s.polynomial, m, shape.tokens)
    across, base = causal.wide(shape), int(plan.starts[plan.g])
    numbers = (base + plan.g + 4 * d + 6 * m + 3 * across) * causal.TILE + base * 2 * shape.tokens
    numbers += (d + plan.g) * shape.tokens + 128 * (d + m + 4)
    return _Causal(run, across, numbers, _known(s.covariance, (d, d)), t)


@library_answer
def causal_forward(Q: Array, K: Array, V: Array, s: Setting) -> tuple[Forward, Setting, Seen]:
    """As `passes.causal_forward`, with no state handed back, and what was seen on the way."""
    Q, K, V = rows(Q, K, V)
    m, c = V.shape[1] + 1, _causal("causal", Q, V, s)
    O, den, guard = np.empty_like(V), np.empty(len(Q), FLOAT32), np.empty(4 * m - 1, FLOAT32)
    T = np.zeros((s.plan.rank, c.wide), FLOAT32)
    arrays = [address(X) for X in (O, den, guard, T, Q, K, V)]
    c.run["causal_forward"](*arrays, len(Q), s.factor, *c.last)
    found = guard.tolist()
    seen = Seen(limits(found[2 * m : -1], m - 1), limits(found, m), found[-1])
    return Forward(O, den, np.empty((0, 0), FLOAT32)), s, seen


@library_answer
def causal_backward(
    Q: Array, K: Array, V: Array, f: Forward, dO: Array, s: Setting
) -> tuple[Gradients, SeenBack]:
    """As `passes.causal_backward`, and what was seen on the way."""
    Q, K, V, dO = rows(Q, K, V, dO)
    O, den = rows(f.O, f.den)
    c = _causal("causal backward", Q, V, s)
    found, (dq, dk, dv) = together(Q, K, V)
    of_queries, of_keys = np.empty(2, FLOAT32), np.empty(2, FLOAT32)
    T, U = (np.zeros((s.plan.rank, c.wide), FLOAT32) for _ in range(2))
    inputs = [address(X) for X in (O, den, dO, Q, K, V)]
    last = (*inputs, len(Q), s.factor, *c.last)
    c.run["causal_queries_back"](dq, address(of_queries), address(T), *last)
    c.run["causal_keys_back"](dk, dv, address(of_keys), address(U), *last)
    sizes = (float(of_keys[1]), float(of_queries[1]))
    return Gradients(*found), SeenBack(float(of_keys[0] + of_queries[0]), sizes)
