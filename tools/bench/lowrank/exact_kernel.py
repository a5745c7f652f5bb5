"""Exact softmax attention in compiled loops (extra `fast`), one thread: an exact run to compare times with.

The matrix of weights is never stored. A vector register holds the weights of 16 tokens of one side for one
token of the other side. Several registers are computed, exponentiated and multiplied by values before the
next ones. Numba compiles the loops, and `_Vectors` emits their vector instructions. The same loops vectorised
by LLVM need 1.3 to 2.8 times the time at d = 8 to 32 on a processor with AVX-512.

With w = exp(q·k) and l = Σ w over keys: O = Σ w v / l, dV = Σ w do / l, dS = w (do·v - do·O) / l,
dQ = Σ dS k and dK = Σ dS q. The forward pass has queries in the lanes. The other pass has keys in the lanes
and recomputes the weights, so that both passes have 7 d multiply-adds per pair of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

NAME = "compiled loops"
ROWS = 12  # registers of weights in the forward pass; the other pass has half as many, and as many of dS
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
        ValueError: sizes or types do not fit, or max |q| · max |k| is larger than MOST.
    """
    return _forward(q, k, v, causal)[0]


def gradient(
    q: Array, k: Array, v: Array, do: Array, *, causal: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Compute O (n, d_v) and the gradients dQ (n, d), dK (n_k, d), dV (n_k, d_v) for dO (n, d_v).

    Arguments and errors are those of `forward`.
    """
    o, sums = _forward(q, k, v, causal)
    if do.dtype != np.float32 or do.shape != o.shape:
        raise ValueError(f"do must be float32 of shape {o.shape}, got {do.dtype} {do.shape}")
    (n, d), (n_k, d_v) = q.shape, v.shape
    q, k, v, do = map(np.ascontiguousarray, (q, k, v, do / sums[:, None]))
    do_delta = np.hstack([do, -(do * o).sum(1, keepdims=True)])
    keys = _padded(np.pad(k, ((0, 0), (0, -d % _width(d)))), _lanes())
    tiles = _tiles(np.hstack([k, v]))
    queries, dq = _padded(q * LOG2_E, ROWS), np.zeros((_up(n, ROWS), keys.shape[1]), np.float32)
    changes = np.empty_like(tiles)
    _backward_loop(d, d_v)(queries, _padded(do_delta, ROWS), keys, tiles, causal, dq, changes)
    dk, dv = np.split(changes.swapaxes(1, 2).reshape(len(keys), d + d_v)[:n_k], [d], 1)
    dq, dk, dv = map(np.ascontiguousarray, (dq[:n, :d], dk / LOG2_E, dv))
    return o, dq, dk, dv


def check(q: Array, k: Array, v: Array) -> None:
    """Raise the errors of `forward`."""
    if not installed():
        raise ImportError("compiled exact attention needs Numba, which is not installed: pip install numba")
    if any(x.ndim != 2 or x.dtype != np.float32 or not x.size for x in (q, k, v)):
        found = ", ".join(f"{x.dtype} {x.shape}" for x in (q, k, v))
        raise ValueError(f"q, k, v must be float32 matrices with at least one entry, got {found}")
    if q.shape[1] != k.shape[1] or len(k) != len(v):
        raise ValueError(f"sizes must be (n, d), (n_k, d), (n_k, d_v), got {q.shape}, {k.shape}, {v.shape}")
    bound = score_bound(q, k)
    if not bound <= MOST:  # also for NaN
        raise ValueError(f"max |q| · max |k| must be at most {MOST:g}, got {bound:g}: use PyTorch's SDPA")


def score_bound(q: Array, k: Array) -> float:
    """Return max |q| · max |k|, which no |score| exceeds; NaN if there is a NaN."""
    most = [np.einsum("ij,ij->i", x, x).max() for x in (q, k)]
    return float(np.sqrt(most[0]) * np.sqrt(most[1]))


def _forward(q: Array, k: Array, v: Array, causal: bool) -> tuple[Array, Array]:
    """Return O (n, d_v) and the row sums (n,)."""
    check(q, k, v)
    o, sums = np.empty((len(q), v.shape[1]), np.float32), np.empty(len(q), np.float32)
    _forward_loop(q.shape[1], v.shape[1])(*map(np.ascontiguousarray, (q, k, v)), causal, o, sums)
    return o, sums


def _up(n: int, step: int) -> int:
    return n + -n % step


def _padded(x: Array, step: int) -> Array:
    """Return x with rows of zeros up to a multiple of `step`, which change none of the sums."""
    return np.pad(x, ((0, -len(x) % step), (0, 0)))


def _tiles(x: Array) -> Array:
    """Return x (n, columns), padded to a multiple of lanes, in tiles (n / lanes, columns, lanes)."""
    return np.ascontiguousarray(_padded(x, _lanes()).reshape(-1, _lanes(), x.shape[1]).swapaxes(1, 2))


@cache
def _lanes() -> int:
    """Return the number of float32 in a vector register of this processor."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    return 16 if features.get("avx512f") else 8 if features.get("avx2") else 4


def _width(d: int) -> int:
    """Return the number of columns of dQ in a register."""
    return min(_lanes(), 8 if d <= 8 else 16)


@cache
def _forward_loop(d: int, d_v: int) -> Any:
    """Return the forward pass for these sizes, which is compiled at its first call."""
    from numba import njit

    lanes = _lanes()
    add_output, add_masked = (_emitted(_add_output, lanes, d=d, d_v=d_v, rows=rows) for rows in (ROWS, 1))

    def loop(Q: Array, K: Array, V: Array, causal: bool, O: Array, sums: Array) -> None:
        q, o = np.zeros((d, lanes), np.float32), np.empty((d_v + 1, lanes), np.float32)
        for first in range(0, len(Q), lanes):
            last = min(first + lanes, len(Q))
            for i in range(first, last):
                for c in range(d):
                    q[c, i - first] = Q[i, c] * LOG2_E
            o[:] = 0
            keys = min(len(K), last) if causal else len(K)
            blocks = min(keys, first + 1 if causal else keys) // ROWS
            j = blocks * ROWS
            add_output(o, 0, K, V, 0, q, 0, blocks, 0)
            add_masked(o, 0, K, V, j, q, 0, keys - j, j - first if causal else -keys)
            for i in range(first, last):
                sums[i] = o[d_v, i - first]
                for c in range(d_v):
                    O[i, c] = o[c, i - first] / sums[i]

    return njit(nogil=True, error_model="numpy")(loop)


@cache
def _backward_loop(d: int, d_v: int) -> Any:
    """Return the second pass for these sizes, which is compiled at its first call."""
    from numba import njit

    lanes, rows, end = _lanes(), ROWS // 2, d + d_v
    sizes = {"d": d, "d_v": d_v, "rows": rows}
    change, change_masked = (_emitted(_change, lanes, **sizes, masked=masked) for masked in (False, True))
    add_dq = _emitted(_add_dq, _width(d), lanes=lanes, columns=_up(d, _width(d)))

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

    return njit(nogil=True, error_model="numpy")(loop)


# The following functions emit instructions for one block of rows of A and D. C, A, D and B are pointers to
# the first rows, and `token` is the token of the first row minus that of the first lane.


def _add_output(
    new: _Vectors, C: Any, A: Any, D: Any, B: Any, block: Any, token: Any, *, d: int, d_v: int, rows: int
) -> None:
    """C (d_v + 1, lanes) += Σ (v, 1) w over keys A, values D for queries B (d, lanes); one row is masked."""
    keys, values = new.rows(A, block, rows, d), new.rows(D, block, rows, d_v)
    w = [new.power(x) for x in new.products(keys, B, d)]
    if rows == 1:
        w = [new.masked(w[0], ">=", token, block)]
    new.add_products(C, 0, values, d_v, w)
    new.add(C, d_v, w)


def _change(
    new: _Vectors, C: Any, A: Any, D: Any, B: Any, block: Any, token: Any,
    *, d: int, d_v: int, rows: int, masked: bool,
) -> None:  # fmt: skip
    """C (d + d_v, lanes) += (Σ dS q, Σ w do) over queries A with do, -do·O in D for k, v of the keys in B.

    dS is stored in the rows of C after these sums.
    """
    queries, changes = new.rows(A, block, rows, d), new.rows(D, block, rows, d_v + 1)
    w = [new.power(x) for x in new.products(queries, B, d)]
    if masked:
        first = new.builder.mul(block, new.index(rows))
        w = [new.masked(x, "<=", token, new.builder.add(first, new.index(r))) for r, x in enumerate(w)]
    minus_delta = [new.splat(row, d_v) for row in changes]
    ds = new.products(changes, new.near(B, d * new.width), d_v, start=minus_delta)
    ds = [new.builder.fmul(x, y) for x, y in zip(w, ds, strict=True)]
    stored = new.rows(new.near(C, (d + d_v) * new.width), block, rows, new.width)
    for row, x in zip(stored, ds, strict=True):
        new.store(x, row, 0)
    new.add_products(C, d, changes, d_v, w)
    new.add_products(C, 0, queries, d, ds)


def _add_dq(
    new: _Vectors, C: Any, A: Any, D: Any, B: Any, block: Any, token: Any, *, lanes: int, columns: int
) -> None:
    """C (queries, columns) += Σ dS k over keys B (lanes, columns), dS in A; columns of C are in the lanes."""
    changes, dq = new.rows(A, block, ROWS, lanes), new.rows(C, block, ROWS, columns)
    for c in range(0, columns, new.width):
        for row, x in zip(dq, new.products(changes, new.near(B, c), lanes, columns), strict=True):
            new.store(new.builder.fadd(new.load(row, c), x), row, c)


def _emitted(emit: Callable[..., None], width: int, **sizes: int) -> Any:
    """Return f(C, c, A, D, a, B, b, n, token) for compiled loops: emitted instructions for n blocks of rows.

    C, A, D and B are contiguous arrays; their first rows are c, a, a and b.
    """
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def pointer(array: int, row: int) -> Any:
            kind, zero = signature.args[array], context.get_constant(types.intp, 0)
            view, at = context.make_array(kind)(context, builder, arguments[array]), [arguments[row]]
            return cgutils.get_item_pointer(context, builder, kind, view, at + [zero] * (kind.ndim - 1))

        pointers = [pointer(*each) for each in ((0, 1), (2, 4), (3, 4), (5, 6))]
        with cgutils.for_range(builder, arguments[7]) as loop:
            emit(_Vectors(builder, width), *pointers, loop.index, arguments[8], **sizes)
        return context.get_dummy_value()

    @intrinsic  # type: ignore[untyped-decorator]
    def run(typing: Any, C: Any, c: Any, A: Any, D: Any, a: Any, B: Any, b: Any, n: Any, token: Any) -> Any:
        if any(array.layout != "C" for array in (C, A, D, B)):
            raise TypeError("arrays must be contiguous")
        integer = types.intp
        return types.void(C, integer, A, D, integer, B, integer, integer, integer), generate

    return run


class _Vectors:
    """Emit instructions on vectors of `width` float32 in the intermediate representation of LLVM."""

    def __init__(self, builder: Any, width: int) -> None:
        from llvmlite import ir

        self.ir, self.builder, self.width = ir, builder, width
        self.integer, self.index = ir.IntType(32), ir.IntType(64)
        self.floats, self.integers = ir.VectorType(ir.FloatType(), width), ir.VectorType(self.integer, width)

    def near(self, pointer: Any, offset: int) -> Any:
        """Return pointer + offset."""
        return self.builder.gep(pointer, [self.index(offset)])

    def rows(self, pointer: Any, block: Any, count: int, size: int) -> list[Any]:
        """Return pointers to the `count` rows, of `size` numbers each, of a block."""
        first = self.builder.gep(pointer, [self.builder.mul(block, self.index(count * size))])
        return [self.near(first, r * size) for r in range(count)]

    def load(self, pointer: Any, offset: int) -> Any:
        """Load the vector at pointer + offset."""
        at = self.builder.bitcast(self.near(pointer, offset), self.floats.as_pointer())
        return self.builder.load(at, align=4)

    def store(self, x: Any, pointer: Any, offset: int) -> None:
        """Store a vector at pointer + offset."""
        at = self.builder.bitcast(self.near(pointer, offset), self.floats.as_pointer())
        self.builder.store(x, at, align=4)

    def in_all_lanes(self, x: Any) -> Any:
        """Return the number x in all lanes."""
        kind, first = self.ir.VectorType(x.type, self.width), self.integers([0] * self.width)
        nothing = kind(self.ir.Undefined)
        return self.builder.shuffle_vector(
            self.builder.insert_element(nothing, x, self.integer(0)), nothing, first
        )

    def splat(self, pointer: Any, offset: int) -> Any:
        """Load one number into all lanes."""
        return self.in_all_lanes(self.builder.load(self.near(pointer, offset)))

    def constant(self, x: float) -> Any:
        """Return x, rounded to float32, in all lanes."""
        return self.floats([float(np.float32(x))] * self.width)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """Return x y + z, rounded once."""
        from numba.core import cgutils

        kind, name = self.ir.FunctionType(self.floats, [self.floats] * 3), f"llvm.fma.v{self.width}f32"
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, name), [x, y, z])

    def products(
        self, rows: Sequence[Any], B: Any, depth: int, step: int = 0, start: Sequence[Any] | None = None
    ) -> list[Any]:
        """Return start + the products of rows with a matrix B, whose rows are vectors at distance `step`."""
        sums = list(start or [self.constant(0)] * len(rows))
        for c in range(depth):
            x = self.load(B, c * (step or self.width))
            sums = [self.fma(self.splat(row, c), x, total) for row, total in zip(rows, sums, strict=True)]
        return sums

    def add_products(self, C: Any, first: int, rows: Sequence[Any], columns: int, w: Sequence[Any]) -> None:
        """Add Σ row[c] w over rows to row first + c of C for each column c; partial sums round less."""
        for c in range(columns):
            total = self.builder.fmul(self.splat(rows[0], c), w[0])
            for row, x in zip(rows[1:], w[1:], strict=True):
                total = self.fma(self.splat(row, c), x, total)
            self.add(C, first + c, [total])

    def add(self, C: Any, row: int, vectors: Sequence[Any]) -> None:
        """Add vectors to a row of C."""
        total = vectors[0]
        for x in vectors[1:]:
            total = self.builder.fadd(total, x)
        self.store(self.builder.fadd(self.load(C, row * self.width), total), C, row * self.width)

    def masked(self, w: Any, order: str, first: Any, row: Any) -> Any:
        """Return w in the lanes whose number is ≥ or ≤ (`order`) first + row, and 0 in the others."""
        bound = self.in_all_lanes(self.builder.trunc(self.builder.add(first, row), self.integer))
        visible = self.builder.icmp_signed(order, self.integers(list(range(self.width))), bound)
        return self.builder.select(visible, w, self.constant(0))

    def power(self, x: Any) -> Any:
        """Return 2ˣ = 2ⁱ 2ᶠ for |x| < 126: i, the integer nearest to x, is added to the exponent of 2ᶠ."""
        b, rounding = self.builder, self.constant(ROUNDING)
        rounded = b.fadd(x, rounding)
        f = b.fsub(x, b.fsub(rounded, rounding))
        found = self.constant(POWER[-1])
        for coefficient in POWER[-2::-1]:
            found = self.fma(found, f, self.constant(coefficient))
        exponent = b.shl(b.bitcast(rounded, self.integers), self.integers([23] * self.width))
        return b.bitcast(b.add(b.bitcast(found, self.integers), exponent), self.floats)
