"""Exact softmax attention in compiled loops (extra `fast`), on one thread: an exact run to compare times with.

The matrix of weights is never stored. Each register holds the weights of 16 tokens of one side for one token of
the other side. Twelve registers are computed, exponentiated and multiplied by the values before the next twelve.
Numba compiles the loops; `_Vectors` emits their vector instructions, because the code that LLVM vectorises by
itself takes about twice the time on a processor with AVX-512.

With w = exp(q·k) = 2^(q·k log₂ e) and l = Σ w over keys: O = Σ w v / l, dV = Σ w do / l, dS = w (do·v - do·O) / l,
dQ = Σ dS k and dK = Σ dS q. The forward pass has queries in the lanes. The other pass has keys in the lanes and
recomputes each weight, so both passes have 7 d multiply-adds per pair of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from iocourse.monomials import Array

NAME = "compiled loops"
ROWS = 12  # tokens of one side whose weights are in registers at the same time
BLOCK = 48  # queries whose dS is stored at the same time, a multiple of ROWS
MOST = 50.0  # |score| up to which weights, row sums and their inverses neither overflow nor underflow
LOG2_E = np.float32(np.log2(np.e))
ROUNDING = 1.5 * 2**23  # for |x| < 2²²: the low bits of x + ROUNDING are round(x)
# 2ᶠ for |f| ≤ 1/2 with the smallest relative error, 7.5e-8.
POWER = (1.00000007, 0.693146967, 0.240221197, 0.0555071327, 0.00967554133, 0.0013276472)


def installed() -> bool:
    """Return True if Numba is installed."""
    return find_spec("numba") is not None


def forward(q: Array, k: Array, v: Array, *, causal: bool = False) -> Array:
    """Compute exact softmax attention O (n, d_v) of unscaled scores q·k.

    Args:
        q: queries (n, d), float32.
        k: keys (n_k, d), float32.
        v: values (n_k, d_v), float32.
        causal: query i attends only to keys j ≤ i.

    Raises:
        ImportError: Numba is not installed.
        ValueError: sizes or types do not fit, or |score| may be larger than MOST.
    """
    return _forward(q, k, v, causal)[0]


def gradient(
    q: Array, k: Array, v: Array, do: Array, *, causal: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Compute O (n, d_v) and the gradients dQ (n, d), dK (n_k, d), dV (n_k, d_v) for dO (n, d_v).

    Arguments and errors are those of `forward`.
    """
    if do.dtype != np.float32 or do.shape != (len(q), v.shape[-1]):
        raise ValueError(f"do must be float32 of shape {(len(q), v.shape[-1])}, got {do.dtype} {do.shape}")
    o, sums = _forward(q, k, v, causal)
    (n, d), (n_k, d_v) = q.shape, v.shape
    do = do / sums[:, None]
    queries = _padded(q * LOG2_E, ROWS)
    changes_of_o = _padded(np.hstack([do, -(do * o).sum(1, keepdims=True)]), ROWS)
    keys = _padded(np.pad(k, ((0, 0), (0, -d % _width(d)))), _lanes())
    tiles = _tiles(np.hstack([k, v]))
    dq, changes = np.zeros((len(queries), keys.shape[1]), np.float32), np.empty_like(tiles)
    _backward_loop(d, d_v)(queries, changes_of_o, keys, tiles, causal, dq, changes)
    dk, dv = np.split(changes.swapaxes(1, 2).reshape(len(keys), d + d_v)[:n_k], [d], 1)
    return o, dq[:n, :d].copy(), dk / LOG2_E, dv.copy()


def check(q: Array, k: Array, v: Array) -> None:
    """Raise the errors of `forward`."""
    if not installed():
        raise ImportError("the compiled exact attention needs Numba: pip install numba")
    if any(x.ndim != 2 or x.dtype != np.float32 or not x.size for x in (q, k, v)):
        found = ", ".join(f"{x.dtype} {x.shape}" for x in (q, k, v))
        raise ValueError(f"q, k, v must be float32 matrices with at least one entry, got {found}")
    if q.shape[1] != k.shape[1] or len(k) != len(v):
        raise ValueError(f"sizes must be (n, d), (n_k, d), (n_k, d_v), got {q.shape}, {k.shape}, {v.shape}")
    most = np.sqrt(np.prod([np.einsum("ij,ij->i", x, x).max() for x in (q, k)], dtype=np.float64))
    if not most <= MOST:  # also for NaN
        raise ValueError(f"max |q| · max |k| must be at most {MOST:g}, got {most:g}; use SDPA for larger scores")


def _forward(q: Array, k: Array, v: Array, causal: bool) -> tuple[Array, Array]:
    """Return O (n, d_v) and the row sums (n,)."""
    check(q, k, v)
    q, k, v = map(np.ascontiguousarray, (q, k, v))
    o, sums = np.empty((len(q), v.shape[1]), np.float32), np.empty(len(q), np.float32)
    _forward_loop(q.shape[1], v.shape[1])(q, k, v, causal, o, sums)
    return o, sums


def _padded(x: Array, step: int) -> Array:
    """Return x with rows of zeros up to a multiple of `step`. They change no sum over keys or queries."""
    return np.pad(x, ((0, -len(x) % step), (0, 0)))


def _tiles(x: Array) -> Array:
    """Return x (n, columns) padded to a multiple of lanes, in tiles (n / lanes, columns, lanes)."""
    return np.ascontiguousarray(_padded(x, _lanes()).reshape(-1, _lanes(), x.shape[1]).swapaxes(1, 2))


@cache
def _lanes() -> int:
    """Return the number of float32 in a vector register of this processor."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8 if features.get("avx2") else 4


def _width(d: int) -> int:
    """Return the number of columns of dQ in a vector."""
    return min(_lanes(), 8 if d <= 8 else 16)


@cache
def _forward_loop(d: int, d_v: int) -> Any:
    """Return the forward pass for these sizes, which is compiled at its first call."""
    from numba import njit

    lanes = _lanes()
    add_output, add_masked = (_compiled(_add_output(d, d_v, rows)) for rows in (ROWS, 1))

    @njit(nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
    def loop(Q: Array, K: Array, V: Array, causal: bool, O: Array, sums: Array) -> None:
        q, o = np.zeros((d, lanes), np.float32), np.empty((d_v + 1, lanes), np.float32)
        for first in range(0, len(Q), lanes):
            for i in range(first, min(first + lanes, len(Q))):
                for c in range(d):
                    q[c, i - first] = Q[i, c] * LOG2_E
            o[:] = 0
            keys = min(len(K), first + lanes) if causal else len(K)
            blocks = min(keys, first + 1 if causal else keys) // ROWS
            add_output(o, 0, K, V, 0, q, 0, blocks, 0)
            j = blocks * ROWS
            add_masked(o, 0, K, V, j, q, 0, keys - j, j - first if causal else -keys)
            for i in range(first, min(first + lanes, len(Q))):
                sums[i] = o[d_v, i - first]
                for c in range(d_v):
                    O[i, c] = o[c, i - first] / sums[i]

    return loop


@cache
def _backward_loop(d: int, d_v: int) -> Any:
    """Return the second pass for these sizes, which is compiled at its first call."""
    from numba import njit

    lanes, end = _lanes(), d + d_v
    rows = ROWS if lanes == 16 else ROWS // 2  # two registers each; without AVX-512 there are 16
    change, change_masked = (_compiled(_change(d, d_v, rows, masked)) for masked in (False, True))
    add_dq = _compiled(_add_dq(d), _width(d))

    @njit(nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
    def loop(Q: Array, dO: Array, K: Array, KV: Array, causal: bool, dQ: Array, dKV: Array) -> None:
        tile = np.empty((end + BLOCK, lanes), np.float32)  # dK and dV of the keys in the lanes, then dS
        for at in range(len(KV)):
            first = at * lanes
            tile[:end] = 0
            for i in range(first // ROWS * ROWS if causal else 0, len(Q), BLOCK):
                count = min(BLOCK, len(Q) - i)
                if causal and i < first + lanes:
                    change_masked(tile, 0, Q, dO, i, KV, at, count // rows, i - first)
                else:
                    change(tile, 0, Q, dO, i, KV, at, count // rows, 0)
                add_dq(dQ, i, tile, tile, end, K, first, count // ROWS, 0)
            dKV[at] = tile[:end]

    return loop


Emit = Callable[["_Vectors", Any, Any, Any, Any, Any, Any], None]


def _add_output(d: int, d_v: int, rows: int) -> Emit:
    """C (d_v + 1, lanes) += Σ (v, 1) w over keys A with values D, for queries B (d, lanes). One row is masked."""

    def emit(new: _Vectors, C: Any, A: Any, D: Any, B: Any, block: Any, offset: Any) -> None:
        keys, values = new.rows(A, block, rows, d), new.rows(D, block, rows, d_v)
        w = new.weights(new.products(keys, B, range(d)), (">=", block, offset) if rows == 1 else None)
        new.add_products(C, 0, values, d_v, w)
        new.add(C, d_v, w)

    return emit


def _change(d: int, d_v: int, rows: int, masked: bool) -> Emit:
    """C (d + d_v, lanes) += Σ q dS and Σ do w over queries A and D with rows do, -do·O, for B (d + d_v, lanes).

    B has keys and values. dS is stored in C after these sums.
    """

    def emit(new: _Vectors, C: Any, A: Any, D: Any, B: Any, block: Any, offset: Any) -> None:
        queries, changes = new.rows(A, block, rows, d), new.rows(D, block, rows, d_v + 1)
        w = new.weights(new.products(queries, B, range(d)), ("<=", block, offset) if masked else None)
        ds = new.products(changes, new.near(B, d * new.width), range(d_v), [new.splat(row, d_v) for row in changes])
        ds = [new.builder.fmul(x, y) for x, y in zip(w, ds, strict=True)]
        for stored, x in zip(new.rows(new.near(C, (d + d_v) * new.width), block, rows, new.width), ds, strict=True):
            new.store(x, stored, 0)
        new.add_products(C, d, changes, d_v, w)
        new.add_products(C, 0, queries, d, ds)

    return emit


def _add_dq(d: int) -> Emit:
    """C += Σ dS k over the keys B, for queries with dS in A (queries, lanes). Columns are in the lanes."""
    lanes, width = _lanes(), _width(d)
    wide = d + -d % width

    def emit(new: _Vectors, C: Any, A: Any, D: Any, B: Any, block: Any, offset: Any) -> None:
        changes, dq = new.rows(A, block, ROWS, lanes), new.rows(C, block, ROWS, wide)
        for column in range(0, wide, width):
            sums = new.products(changes, new.near(B, column), range(lanes), step=wide)
            for row, x in zip(dq, sums, strict=True):
                new.store(new.builder.fadd(new.load(row, column), x), row, column)

    return emit


def _compiled(emit: Emit, width: int = 0) -> Any:
    """Return a function f(C, c, A, a, B, b, n, offset) for compiled code that runs emitted instructions n times.

    They get pointers to row c of C, row a of A and row b of B, the number of the run, and the offset, which is
    (the first token of A - the token of the first lane).
    """
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        zero = context.get_constant(types.intp, 0)
        pointers = [
            cgutils.get_item_pointer(context, builder, kind, context.make_array(kind)(context, builder, array), [row] + [zero] * (kind.ndim - 1))
            for kind, array, row in ((signature.args[a], arguments[a], arguments[i]) for a, i in ((0, 1), (2, 4), (3, 4), (5, 6)))
        ]
        with cgutils.for_range(builder, arguments[7]) as loop:
            emit(_Vectors(builder, width or _lanes()), *pointers, loop.index, arguments[8])
        return context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator]
    def run(typing: Any, C: Any, c: Any, A: Any, D: Any, a: Any, B: Any, b: Any, n: Any, offset: Any) -> Any:
        return types.void(C, types.intp, A, D, types.intp, B, types.intp, types.intp, types.intp), generate

    return run


class _Vectors:
    """Emit instructions on vectors of `width` float32 in the intermediate representation of LLVM."""

    def __init__(self, builder: Any, width: int) -> None:
        from llvmlite import ir

        self.ir, self.builder, self.width = ir, builder, width
        self.floats, self.integers = (ir.VectorType(kind, width) for kind in (ir.FloatType(), ir.IntType(32)))

    def number(self, x: int) -> Any:
        return self.ir.Constant(self.ir.IntType(64), x)

    def near(self, pointer: Any, offset: int) -> Any:
        return self.builder.gep(pointer, [self.number(offset)])

    def rows(self, pointer: Any, block: Any, count: int, size: int) -> list[Any]:
        """Return pointers to the rows of a block of `count` rows."""
        first = self.builder.gep(pointer, [self.builder.mul(block, self.number(count * size))])
        return [self.near(first, r * size) for r in range(count)]

    def load(self, pointer: Any, offset: int) -> Any:
        at = self.builder.bitcast(self.near(pointer, offset), self.floats.as_pointer())
        return self.builder.load(at, align=4)

    def store(self, x: Any, pointer: Any, offset: int) -> None:
        at = self.builder.bitcast(self.near(pointer, offset), self.floats.as_pointer())
        self.builder.store(x, at, align=4)

    def same(self, x: Any) -> Any:
        """Return a vector with the number x in all lanes."""
        kind = self.ir.VectorType(x.type, self.width)
        one = self.builder.insert_element(kind(self.ir.Undefined), x, self.ir.IntType(32)(0))
        return self.builder.shuffle_vector(one, kind(self.ir.Undefined), self.integers([0] * self.width))

    def splat(self, pointer: Any, offset: int) -> Any:
        return self.same(self.builder.load(self.near(pointer, offset)))

    def constant(self, x: float) -> Any:
        return self.floats([float(np.float32(x))] * self.width)

    def fma(self, x, y, z):
        from numba.core import cgutils

        kind = self.ir.FunctionType(self.floats, [self.floats] * 3)
        name = f"llvm.fma.v{self.width}f32"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [x, y, z])

    def products(self, rows, B, columns, start=None, step=0):
        sums = start or [self.constant(0.0)] * len(rows)
        for c in columns:
            x = self.load(B, c * (step or self.width))
            sums = [self.fma(self.splat(row, c), x, total) for row, total in zip(rows, sums, strict=True)]
        return sums

    def add_products(self, C, first, rows, columns, w):
        for c in range(columns):
            total = self.builder.fmul(self.splat(rows[0], c), w[0])
            for row, x in zip(rows[1:], w[1:], strict=True):
                total = self.fma(self.splat(row, c), x, total)
            self.add(C, first + c, [total])

    def add(self, C, row, vectors):
        total = vectors[0]
        for x in vectors[1:]:
            total = self.builder.fadd(total, x)
        self.store(self.builder.fadd(self.load(C, row * self.width), total), C, row * self.width)

    def weights(self, scores, mask):
        w = [self.power(x) for x in scores]
        if mask is None:
            return w
        order, block, offset = mask
        b, kind = self.builder, self.ir.IntType(32)
        first = b.trunc(b.add(offset, b.mul(block, self.number(len(w)))), kind)
        lane = self.integers(list(range(self.width)))
        return [b.select(b.icmp_signed(order, lane, self.same(b.add(first, kind(r)))), x, self.constant(0.0)) for r, x in enumerate(w)]

    def power(self, x):
        b, rounding = self.builder, self.constant(ROUNDING)
        rounded = b.fadd(x, rounding)
        f = b.fsub(x, b.fsub(rounded, rounding))
        found = self.constant(POWER[-1])
        for coefficient in POWER[-2::-1]:
            found = self.fma(found, f, self.constant(coefficient))
        exponent = b.shl(b.bitcast(rounded, self.integers), self.integers([23] * self.width))
        return b.bitcast(b.add(b.bitcast(found, self.integers), exponent), self.floats)
