"""Exact softmax attention in compiled loops (extra `fast`), on one thread: the exact run to compare times with.

The matrix of weights is never stored: a tile of it stays in the first-level cache, with 16 tokens in the lanes
of vector registers and a block of tokens of the other side in its rows. The tile is computed, exponentiated
and multiplied by matrix products of one kind, `_product`, whose instructions are emitted by the few methods of
`_Vectors`, because the loop vectoriser of LLVM leaves half of the speed of a processor with AVX-512 unused.

With m = log₂ e: x = m q·k - shift, w = 2ˣ and the row sums l = Σ w give O = Σ w v / l, dV = Σ w do / l,
dS = w (do·v - do·O) / l, dQ = Σ dS k and dK = Σ dS q. The forward pass has queries in the lanes; the second
pass has keys in the lanes and computes each weight again. This needs 7 d multiply-adds per pair of tokens.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from iocourse.monomials import Array

NAME = "compiled loops"
BLOCK = 48  # rows of a tile of weights; a multiple of all the numbers of rows per product
ROWS = 16  # of scores per product
SAFE = 40.0  # |score| up to which exp needs no shift: no weight or row sum over- or underflows
LARGEST = 1e37  # |score| above which float32 overflows
LOG2_E = np.float32(np.log2(np.e))
LOWEST = -126.0  # exponent of the smallest normal float32
ROUNDING = 1.5 * 2**23  # adding this to |x| < 2²² rounds x to an integer, in the low bits of the sum
# 2ᶠ for |f| ≤ 1/2, fitted to the smallest relative error, 7.5e-8.
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
        ValueError: sizes or types do not fit, or scores are not finite in float32.
    """
    return _forward(q, k, v, causal, _shift(q, k, v, causal))[0]


def gradient(
    q: Array, k: Array, v: Array, do: Array, *, causal: bool = False
) -> tuple[Array, Array, Array, Array]:
    """Compute O (n, d_v) and the gradients dQ (n, d), dK (n_k, d), dV (n_k, d_v) for dO (n, d_v).

    Arguments and errors are those of `forward`.
    """
    if do.shape != (len(q), v.shape[-1]) or do.dtype != np.float32:
        raise ValueError(f"do must be float32 of shape {(len(q), v.shape[-1])}, got {do.dtype} {do.shape}")
    shift = _shift(q, k, v, causal)
    o, sums = _forward(q, k, v, causal, shift)
    (n, d), (n_k, d_v), lanes = q.shape, v.shape, _lanes()[0]
    queries, keys = _up(n, BLOCK), _up(n_k, lanes)
    wide, columns, columns_v = _up(d, _width(d)), _columns(d)[1], _columns(d_v)[1]
    per_sum = do / sums[:, None]
    delta = _padded(-(per_sum * o).sum(1)[:, None], queries, 1)
    dq, dk, dv = (np.zeros(size, np.float32) for size in (queries * wide, keys * columns, keys * columns_v))
    _loops(d, d_v)[1](
        _padded(q * LOG2_E, queries, columns), _padded(per_sum, queries, columns_v),
        _padded(-shift[:, None], queries, 1), delta, _padded(k, keys, wide), _tiles(k, keys), _tiles(v, keys), causal, dq, dk, dv,
    )  # fmt: skip
    dk, dv = (x.reshape(keys // lanes, -1, lanes).swapaxes(1, 2).reshape(keys, -1)[:n_k] for x in (dk, dv))
    return o, dq.reshape(queries, wide)[:n, :d].copy(), dk[:, :d] / LOG2_E, dv[:, :d_v].copy()


def _shift(q: Array, k: Array, v: Array, causal: bool) -> Array:
    """Check the arguments and return the shift (n,) of each row: 0, or the row's maximum if scores are large."""
    if not installed():
        raise ImportError("the compiled exact attention needs Numba: pip install numba")
    if any(x.ndim != 2 or x.dtype != np.float32 or not x.size for x in (q, k, v)):
        found = ", ".join(f"{x.dtype} {x.shape}" for x in (q, k, v))
        raise ValueError(f"q, k, v must be float32 matrices with at least one entry, got {found}")
    if q.shape[1] != k.shape[1] or len(k) != len(v):
        raise ValueError(f"sizes must be (n, d), (n_k, d), (n_k, d_v), got {q.shape}, {k.shape}, {v.shape}")
    largest = float(np.prod([np.sqrt(np.square(x, dtype=np.float64).sum(1).max()) for x in (q, k)]))
    if not largest < LARGEST:  # also for NaN
        raise ValueError(f"|q|·|k| must be below {LARGEST:g}, so that scores are finite, got {largest:g}")
    return np.zeros(len(q), np.float32) if largest <= SAFE else _maxima(q * LOG2_E, k, causal)


def _maxima(q: Array, k: Array, causal: bool) -> Array:
    """Return the maximum (n,) of every row of scores."""
    found = np.empty(len(q), np.float32)
    for at in range(0, len(q), BLOCK):
        scores = q[at : at + BLOCK] @ k.T
        if causal:
            scores[np.arange(len(k)) > np.arange(at, at + len(scores))[:, None]] = -np.inf
        found[at : at + BLOCK] = scores.max(1)
    return found


def _forward(q: Array, k: Array, v: Array, causal: bool, shift: Array) -> tuple[Array, Array]:
    """Return O (n, d_v) and the row sums (n,)."""
    (n, d), (n_k, d_v), lanes = q.shape, v.shape, _lanes()[0]
    queries, keys = _up(n, lanes), _up(n_k, BLOCK)
    o, sums = np.empty((n, d_v), np.float32), np.empty(n, np.float32)
    values = _padded(np.hstack([v, np.ones((n_k, 1), np.float32)]), keys, _columns(d_v + 1)[1])
    _loops(d, d_v)[0](
        _tiles(q * LOG2_E, queries), _padded(-shift[:, None], queries, 1), _padded(k, keys, d, repeat=True),
        values, causal, o, sums,
    )  # fmt: skip
    return o, sums


def _up(n: int, step: int) -> int:
    return -(-n // step) * step


def _padded(x: Array, rows: int, columns: int, repeat: bool = False) -> Array:
    """Return a flat copy of x with zero columns, and with zero rows or the last row repeated, at the end."""
    found = np.zeros((rows, columns), np.float32)
    found[: len(x), : x.shape[1]] = x
    if repeat:
        found[len(x) :, : x.shape[1]] = x[-1]
    return found.reshape(-1)


def _tiles(x: Array, rows: int) -> Array:
    """Return x padded to `rows` by its last row, in tiles [d][lanes]."""
    lanes, d = _lanes()[0], x.shape[1]
    return _padded(x, rows, d, repeat=True).reshape(-1, lanes, d).swapaxes(1, 2).reshape(-1)


@cache
def _lanes() -> tuple[int, int]:
    """Return the float32 of a vector register of this processor, and the rows of a product that fit in."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    return (16, 24) if features.get("avx512f") else (8, 12) if features.get("avx2") else (4, 12)


def _width(d: int) -> int:
    """Return the lanes for d columns of dQ."""
    return min(_lanes()[0], 8 if d <= 8 else 16)


def _columns(count: int) -> tuple[int, int]:
    """Return the columns per product for outputs of `count` columns, and the columns of all products."""
    passes = -(-count // _lanes()[1])
    each = -(-count // passes)
    return each, each * passes


@cache
def _loops(d: int, d_v: int) -> tuple[Any, Any]:
    """Return both passes for these sizes. Each is compiled at its first call, in a few seconds."""
    from numba import njit

    lanes = _lanes()[0]
    wide, width, block = _up(d, _width(d)), _width(d), BLOCK
    (each_k, columns), (each_v, columns_v), (each_o, columns_o) = map(_columns, (d, d_v, d_v + 1))
    rows = ROWS if _lanes()[1] > ROWS else _lanes()[1]

    weights_of_keys = _product(rows, d, (d, 1), lanes, lanes, "lanes", "power")
    add_output = _product(each_o, block, (1, columns_o), lanes, lanes, "zero", "add")
    weights_of_queries = _product(rows, d, (columns, 1), lanes, lanes, "rows", "power")
    times_change = _product(rows, d_v, (columns_v, 1), lanes, lanes, "rows", "multiply")
    add_dv = _product(each_v, block, (1, columns_v), lanes, lanes, "zero", "add")
    add_dk = _product(each_k, block, (1, columns), lanes, lanes, "zero", "add")
    add_dq = _product(rows, lanes, (lanes, 1), wide, wide, "zero", "add", width)

    def forward(Q: Array, shift: Array, K: Array, V: Array, causal: bool, O: Array, sums: Array) -> None:
        w, o = np.empty(block * lanes, np.float32), np.empty(columns_o * lanes, np.float32)
        for first in range(0, len(sums), lanes):
            o[:] = 0
            for j in range(0, min(len(K) // d, first + lanes) if causal else len(K) // d, block):
                for r in range(0, block, rows):
                    weights_of_keys(w, r * lanes, K, (j + r) * d, Q, first * d, shift, first)
                if causal:
                    for r in range(max(0, first + 1 - j), block):  # queries before key j + r
                        w[r * lanes : r * lanes + min(lanes, j + r - first)] = 0
                for c in range(0, columns_o, each_o):
                    add_output(o, c * lanes, V, j * columns_o + c, w, 0, shift, 0)
            for i in range(first, min(first + lanes, len(sums))):
                sums[i] = o[d_v * lanes + i - first]
                for c in range(d_v):
                    O[i, c] = o[c * lanes + i - first] / sums[i]

    def backward(
        Q: Array, dO: Array, shift: Array, delta: Array, K: Array, KT: Array, VT: Array, causal: bool,
        dQ: Array, dK: Array, dV: Array,
    ) -> None:  # fmt: skip
        w = np.empty(block * lanes, np.float32)
        for first in range(0, len(K) // wide, lanes):
            for i in range(first // block * block if causal else 0, len(shift), block):
                for r in range(0, block, rows):
                    weights_of_queries(w, r * lanes, Q, (i + r) * columns, KT, first * d, shift, i + r)
                if causal:
                    for r in range(min(block, first + lanes - 1 - i)):  # keys after query i + r
                        w[r * lanes + max(0, i + r + 1 - first) : (r + 1) * lanes] = 0
                for c in range(0, columns_v, each_v):
                    add_dv(dV, first * columns_v + c * lanes, dO, i * columns_v + c, w, 0, shift, 0)
                for r in range(0, block, rows):
                    times_change(w, r * lanes, dO, (i + r) * columns_v, VT, first * d_v, delta, i + r)
                for c in range(0, columns, each_k):
                    add_dk(dK, first * columns + c * lanes, Q, i * columns + c, w, 0, shift, 0)
                for r in range(0, block, rows):
                    for c in range(0, wide, width):
                        add_dq(dQ, (i + r) * wide + c, w, r * lanes, K, first * wide + c, shift, 0)

    compiled = njit(nogil=True, error_model="numpy")
    return compiled(forward), compiled(backward)


def _product(
    rows: int, depth: int, a: tuple[int, int], b: int, c: int, start: str, finish: str, width: int = 0
) -> Any:
    """Return a function f(C, c0, A, a0, B, b0, S, s0) for compiled code: C = finish(start + A B), in registers.

    The arrays are flat and float32; the numbers after them say where each matrix begins. A is (rows, depth)
    with strides `a`; B (depth, width) and C (rows, width) have rows of one vector at distances b and c.

    Args:
        start: "zero"; "rows" or "lanes", one number of S per row or lane.
        finish: "add" to C, "multiply" C, or "power", 2 to the result.
    """
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    width = width or _lanes()[0]

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        new = _Vectors(builder, width)
        C, A, B, S = (
            builder.gep(context.make_array(kind)(context, builder, array).data, [first])
            for kind, array, first in zip(signature.args[::2], arguments[::2], arguments[1::2], strict=True)
        )
        totals = [cgutils.alloca_once(builder, new.floats) for _ in range(rows)]
        for r, total in enumerate(totals):
            begin = {"zero": lambda: new.constant(0.0), "rows": lambda: new.splat(S, r), "lanes": lambda: new.load(S, 0)}
            builder.store(begin[start](), total)
        with cgutils.for_range(builder, ir.Constant(ir.IntType(64), depth)) as loop:
            vector = new.load(new.at(B, loop.index, b), 0)
            column = new.at(A, loop.index, a[1])
            for r, total in enumerate(totals):
                builder.store(new.fma(new.splat(column, r * a[0]), vector, builder.load(total)), total)
        for r, total in enumerate(totals):
            x = builder.load(total)
            if finish == "power":
                x = new.power(x)
            else:
                x = (builder.fadd if finish == "add" else builder.fmul)(x, new.load(C, r * c))
            new.store(x, C, r * c)
        return context.get_dummy_value()

    @intrinsic  # type: ignore[misc]
    def product(typing, C, c0, A, a0, B, b0, S, s0):  # type: ignore[no-untyped-def]  # noqa: ANN
        return types.void(C, types.intp, A, types.intp, B, types.intp, S, types.intp), emit

    return product


class _Vectors:
    """Emit instructions on vectors of `width` float32 in the intermediate representation of LLVM."""

    def __init__(self, builder: Any, width: int) -> None:
        from llvmlite import ir

        self.ir, self.builder, self.width = ir, builder, width
        self.floats, self.integers = (ir.VectorType(kind, width) for kind in (ir.FloatType(), ir.IntType(32)))

    def constant(self, x: float) -> Any:
        """Return x in all lanes."""
        whole = isinstance(x, int)
        return self.ir.Constant(self.integers if whole else self.floats, [x if whole else float(np.float32(x))] * self.width)

    def at(self, pointer: Any, index: Any, step: int) -> Any:
        """Return pointer + index · step."""
        return self.builder.gep(pointer, [self.builder.mul(index, self.ir.Constant(index.type, step))])

    def _near(self, pointer: Any, offset: int) -> Any:
        return self.builder.gep(pointer, [self.ir.Constant(self.ir.IntType(64), offset)])

    def splat(self, pointer: Any, offset: int) -> Any:
        """Load one number into all lanes."""
        empty = self.ir.Constant(self.floats, self.ir.Undefined)
        one = self.builder.insert_element(empty, self.builder.load(self._near(pointer, offset)), self.ir.Constant(self.ir.IntType(32), 0))
        return self.builder.shuffle_vector(one, empty, self.constant(0))

    def load(self, pointer: Any, offset: int) -> Any:
        """Load a vector."""
        return self.builder.load(self.builder.bitcast(self._near(pointer, offset), self.floats.as_pointer()), align=4)

    def store(self, x: Any, pointer: Any, offset: int) -> None:
        """Store a vector."""
        self.builder.store(x, self.builder.bitcast(self._near(pointer, offset), self.floats.as_pointer()), align=4)

    def fma(self, x: Any, y: Any, z: Any) -> Any:
        """Return x y + z, rounded once."""
        from numba.core import cgutils

        kind = self.ir.FunctionType(self.floats, [self.floats] * 3)
        return self.builder.call(cgutils.get_or_insert_function(self.builder.module, kind, f"llvm.fma.v{self.width}f32"), [x, y, z])

    def power(self, x: Any) -> Any:
        """Return 2ˣ = 2ⁱ 2ᶠ for x ≤ 127, with i the nearest integer: i is added to the exponent bits of 2ᶠ."""
        b, rounding, lowest = self.builder, self.constant(ROUNDING), self.constant(LOWEST)
        x = b.select(b.fcmp_ordered(">", x, lowest), x, lowest)
        rounded = b.fadd(x, rounding)
        f = b.fsub(x, b.fsub(rounded, rounding))
        found = self.constant(POWER[-1])
        for coefficient in POWER[-2::-1]:
            found = self.fma(found, f, self.constant(coefficient))
        exponent = b.shl(b.bitcast(rounded, self.integers), self.constant(23))
        return b.bitcast(b.add(b.bitcast(found, self.integers), exponent), self.floats)
