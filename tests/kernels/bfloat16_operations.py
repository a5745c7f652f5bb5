"""Operations of Triton on bfloat16 tensors, each with the same operation in torch.

This file imports nothing of iocourse. Run as a script, it prints which operations Triton's interpreter gets
wrong by itself, as JSON: `TRITON_INTERPRET=1 python tests/kernels/bfloat16_operations.py`.
"""

import io
import json
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime import interpreter

BF16, F32, F16 = torch.bfloat16, torch.float32, torch.float16


class Operation(NamedTuple):
    """One operation. `kernel` gets tiles of x and y, or if `pointers`, the pointers of x, y and the result.

    Attributes:
        exact: returns the expected result, computed by torch from x and y.
        tolerance: how much the result may differ, relative to its largest number.
    """

    kernel: Callable[..., Any]
    exact: Callable[..., Tensor]
    x: Callable[[], Tensor]
    y: Callable[[], Tensor]
    tolerance: float = 0.0
    pointers: bool = False


# ---- inputs
def every_number() -> Tensor:
    """All 65,536 patterns of 16 bits: zeros, denormals, infinities and NaNs too."""
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(BF16).reshape(256, 256)


def without_nan(x: Tensor) -> Tensor:
    """The numbers with 0 for NaN: versions of Triton differ in the larger one of a number and NaN."""
    return torch.where(x.isnan(), 0.0, x)


def partners() -> Tensor:
    """The same numbers in another order."""
    order = torch.randperm(2**16, generator=torch.Generator().manual_seed(0))
    return every_number().flatten()[order].reshape(256, 256)


def ties() -> Tensor:
    """Float32 numbers next to all bfloat16 numbers, at the ties between them, and one unit from a tie."""
    high = torch.arange(-(2**15), 2**15, dtype=torch.int64)[:, None] * 2**16
    low = torch.tensor([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x4000, 0xC000])
    return (high + low).to(torch.int32).view(F32).reshape(512, 1024)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = BF16) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def eighths(*shape: int, seed: int = 0) -> Tensor:
    """Small multiples of 1/8, whose sums and products are exact in float32."""
    numbers = torch.randint(-16, 17, shape, generator=torch.Generator().manual_seed(seed))
    return (numbers / 8).to(BF16)


def signs(*shape: int) -> Tensor:
    """Numbers ±1, ±2 and ±1/2, of which short sums and products are exact in bfloat16."""
    return torch.sign(normal(*shape)) * 2.0 ** torch.randint(
        -1, 2, shape, generator=torch.Generator().manual_seed(0)
    )


def table() -> Tensor:
    return normal(16, 32)


def other_table() -> Tensor:
    return normal(16, 32, seed=1)


def finite() -> Tensor:
    """Numbers that every integer type of at least 8 bits can hold, unsigned ones too."""
    return torch.arange(0, 127.5, 0.125).to(BF16)[:512].reshape(16, 32)


def spread(most: int) -> Tensor:
    """Numbers between -most and 120, of which many need more bits than bfloat16 has."""
    return (300 * normal(16, 32, dtype=F32)).clamp(-most, 120)


def columns() -> Any:
    """The number of the column, for each number of a tile."""
    return tl.arange(0, 32)[None, :] + tl.zeros((16, 32), tl.int32)


# ---- functions that Triton's reductions combine with
@triton.jit
def times(a, b):
    return a * b


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def larger_and_where(a, i, b, j):
    return tl.where(a > b, a, b), tl.where(a > b, i, j)


@triton.jit
def larger_in_float32(a, b):
    return tl.maximum(a, b)


# ---- what torch computes
def halves(x: Tensor, dim: int) -> Tensor:
    """The sum along an axis, rounded after each addition of two halves."""
    while x.shape[dim] > 1:
        one, other = x.chunk(2, dim)
        x = one + other
    return x.squeeze(dim)


def one_by_one(combine: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> Tensor:
    """The scan along the last axis, rounded after each step."""
    columns = [x[:, 0]]
    for column in x.unbind(1)[1:]:
        columns.append(combine(columns[-1], column))
    return torch.stack(columns, 1)


def pair(kernel: Callable[..., Any], exact: Callable[..., Tensor]) -> Operation:
    return Operation(kernel, exact, every_number, partners)


def small(kernel: Callable[..., Any], exact: Callable[..., Tensor], tolerance: float = 0.0) -> Operation:
    return Operation(kernel, exact, table, other_table, tolerance)


OPERATIONS = {
    # arithmetic and comparisons, of all numbers
    "x + y": pair(lambda x, y: x + y, lambda x, y: x + y),
    "x - y": pair(lambda x, y: x - y, lambda x, y: x - y),
    "x * y": pair(lambda x, y: x * y, lambda x, y: x * y),
    "x / y": pair(lambda x, y: x / y, lambda x, y: x.float() / y.float()),
    "x % y": small(lambda x, y: x % y, lambda x, y: torch.fmod(x.float(), y.float())),
    "-x": pair(lambda x, y: -x, lambda x, y: 0 - x),
    "abs": pair(lambda x, y: tl.abs(x), lambda x, y: x.abs()),
    "x < y": pair(lambda x, y: x < y, lambda x, y: x < y),
    "x <= y": pair(lambda x, y: x <= y, lambda x, y: x <= y),
    "x > y": pair(lambda x, y: x > y, lambda x, y: x > y),
    "x >= y": pair(lambda x, y: x >= y, lambda x, y: x >= y),
    "x == y": pair(lambda x, y: x == y, lambda x, y: x == y),
    "x == x": pair(lambda x, y: x == x, lambda x, y: x == x),
    "x != x": pair(lambda x, y: x != x, lambda x, y: x != x),
    "(x < y) & (x > 0)": pair(lambda x, y: (x < y) & (x > 0), lambda x, y: (x < y) & (x > 0)),
    "(x < y) as a number": pair(
        lambda x, y: (x < y).to(tl.bfloat16) + (x < y).to(tl.float32), lambda x, y: 2 * (x < y).float()
    ),
    "maximum": Operation(
        lambda x, y: tl.maximum(x, y).to(tl.float32), lambda x, y: torch.maximum(x, y).float(),
        lambda: without_nan(every_number()), lambda: without_nan(partners()),
    ),
    "minimum": Operation(
        lambda x, y: tl.minimum(x, y).to(tl.float32), lambda x, y: torch.minimum(x, y).float(),
        lambda: without_nan(every_number()), lambda: without_nan(partners()),
    ),
    "clamp": small(lambda x, y: tl.clamp(x, -1.0, 0.5).to(tl.float32), lambda x, y: x.float().clamp(-1, 0.5)),
    "fma": small(lambda x, y: tl.fma(x, y, x), lambda x, y: (x.double() * y.double() + x.double()).to(BF16)),
    "where": pair(lambda x, y: tl.where(x < y, x, y), lambda x, y: torch.where(x < y, x, y)),
    "where with a number": pair(
        lambda x, y: tl.where(x < y, x, 0.3),
        lambda x, y: torch.where(x < y, x, torch.tensor(0.3, dtype=BF16))
    ),
    # with numbers and other types
    "x + 1.5": pair(lambda x, y: x + 1.5, lambda x, y: x + 1.5),
    "x * 0.3": pair(lambda x, y: x * 0.3, lambda x, y: x * torch.tensor(0.3, dtype=BF16)),
    "2 - x": pair(lambda x, y: 2 - x, lambda x, y: 2 - x),
    "x / 3": pair(lambda x, y: x / 3, lambda x, y: x.float() / 3),
    "x > 0.25": pair(lambda x, y: x > 0.25, lambda x, y: x > 0.25),
    "x + float32": small(lambda x, y: x + y.to(tl.float32), lambda x, y: x + y.float()),
    "x * float16": small(lambda x, y: x * y.to(tl.float16), lambda x, y: (x.float() * y.to(F16)).to(F16)),
    "x - float64": small(lambda x, y: x - y.to(tl.float64), lambda x, y: x - y.double()),
    "x + int32": small(lambda x, y: x + y.to(tl.int32), lambda x, y: x.float() + y.to(torch.int32)),
    "full": small(
        lambda x, y: tl.full((16, 32), 0.1, tl.bfloat16), lambda x, y: torch.full((16, 32), 0.1, dtype=BF16)
    ),
    "zeros": small(lambda x, y: tl.zeros((16, 32), tl.bfloat16) + x, lambda x, y: x),
    "zeros_like": small(lambda x, y: tl.zeros_like(x) - x, lambda x, y: 0 - x),
    # reductions, scans and orders
    "sum of a column": small(lambda x, y: tl.sum(x, 0), lambda x, y: halves(x, 0)),
    "sum of a row": small(lambda x, y: tl.sum(x, 1, keep_dims=True), lambda x, y: halves(x, 1)[:, None]),
    "sum of all": small(lambda x, y: tl.sum(x), lambda x, y: halves(x.flatten(), 0)),
    "sum in float32": Operation(
        lambda x, y: tl.sum(x, 1, dtype=tl.float32), lambda x, y: x.float().sum(1),
        lambda: eighths(16, 32), table
    ),
    "exact sum": Operation(
        lambda x, y: tl.sum(x, 0), lambda x, y: x.sum(0), lambda: eighths(16, 32), table
    ),
    "product of a column": small(
        lambda x, y: tl.reduce(x, 0, times), lambda x, y: one_by_one(torch.mul, x.T)[:, -1]
    ),
    "largest by a function": small(lambda x, y: tl.reduce(x, 1, larger), lambda x, y: x.amax(1)),
    "largest of all by a function": small(lambda x, y: tl.reduce(x, None, larger), lambda x, y: x.amax()),
    "index of the largest by a function": small(
        lambda x, y: tl.reduce((x, columns()), 1, larger_and_where)[1],
        lambda x, y: x.float().argmax(1).to(torch.int32),
    ),
    "max": small(lambda x, y: tl.max(x, 0), lambda x, y: x.amax(0).float()),
    "min": small(lambda x, y: tl.min(x, 1), lambda x, y: x.amin(1).float()),
    "argmax": small(lambda x, y: tl.argmax(x, 1), lambda x, y: x.float().argmax(1).to(torch.int32)),
    "argmin": small(lambda x, y: tl.argmin(x, 1), lambda x, y: x.float().argmin(1).to(torch.int32)),
    "argmax without order": small(
        lambda x, y: tl.argmax(x, 1, tie_break_left=False), lambda x, y: x.float().argmax(1).to(torch.int32)
    ),
    "cumsum": Operation(
        lambda x, y: tl.cumsum(x, 1).to(tl.float32), lambda x, y: x.float().cumsum(1),
        lambda: signs(16, 32), table
    ),
    "cumsum from the end": Operation(
        lambda x, y: tl.cumsum(x, 1, reverse=True).to(tl.float32),
        lambda x, y: x.float().flip(1).cumsum(1).flip(1),
        lambda: signs(16, 32), table,
    ),
    "cumprod": Operation(
        lambda x, y: tl.cumprod(x, 1).to(tl.float32), lambda x, y: x.float().cumprod(1),
        lambda: signs(16, 32), table
    ),
    "scan": small(lambda x, y: tl.associative_scan(x, 1, plus), lambda x, y: one_by_one(torch.add, x)),
    "sort": small(lambda x, y: tl.sort(x), lambda x, y: x.float().sort(1).values.to(BF16)),
    "sort downwards": small(
        lambda x, y: tl.sort(x, descending=True),
        lambda x, y: x.float().sort(1, descending=True).values.to(BF16)
    ),
    "topk": small(lambda x, y: tl.topk(x, 4), lambda x, y: x.float().topk(4, 1).values),
    "softmax": small(lambda x, y: tl.softmax(x, 1, keep_dims=True), lambda x, y: x.float().softmax(1), 1e-6),
    # products
    "dot": Operation(
        lambda x, y: tl.dot(x, y), lambda x, y: x.float() @ y.float(), lambda: eighths(16, 32),
        lambda: eighths(32, 16)
    ),
    "dot of normal numbers": Operation(
        lambda x, y: tl.dot(x, y), lambda x, y: (x.double() @ y.double()).float(),
        lambda: normal(64, 128), lambda: normal(128, 32), 1e-5,
    ),
    "dot onto a sum": Operation(
        lambda x, y: tl.dot(x, y, tl.full((16, 16), 0.5, tl.float32)),
        lambda x, y: x.float() @ y.float() + 0.5,
        lambda: eighths(16, 32), lambda: eighths(32, 16),
    ),
    "dot of transposes": Operation(
        lambda x, y: tl.dot(tl.trans(x), y.T), lambda x, y: x.float().T @ y.float().T,
        lambda: eighths(32, 16), lambda: eighths(16, 32),
    ),
    "dot of batches": Operation(
        lambda x, y: tl.dot(x, y), lambda x, y: x.float() @ y.float(),
        lambda: eighths(2, 16, 32), lambda: eighths(2, 32, 16),
    ),
    "dot of a rounded factor": Operation(
        lambda x, y: tl.dot(tl.exp2(x.to(tl.float32)).to(tl.bfloat16), y),
        lambda x, y: x.float().exp2().to(BF16).float() @ y.float(),
        lambda: eighths(16, 32), lambda: eighths(32, 16), 1e-6,
    ),
    # shapes
    "broadcast": small(lambda x, y: x + tl.sum(y, 0)[None, :], lambda x, y: x + halves(y, 0)),
    "reshape": small(lambda x, y: tl.reshape(x, (32, 16)), lambda x, y: x.reshape(32, 16)),
    "permute": small(lambda x, y: tl.permute(x, (1, 0)), lambda x, y: x.T),
    "join": small(lambda x, y: tl.join(x, y), lambda x, y: torch.stack([x, y], -1)),
    "split": small(lambda x, y: tl.split(tl.join(x, y))[1], lambda x, y: y),
    "interleave": small(lambda x, y: tl.interleave(x, y), lambda x, y: torch.stack([x, y], -1).flatten(1)),
    "flip": small(lambda x, y: tl.flip(x, 1), lambda x, y: x.flip(1)),
    "gather": small(
        lambda x, y: tl.gather(x, tl.zeros((16, 32), tl.int32) + 3, 1), lambda x, y: x[:, 3:4].expand(16, 32)
    ),
    "bits": pair(lambda x, y: x.to(tl.int16, bitcast=True), lambda x, y: x.view(torch.int16)),
    "from bits": Operation(
        lambda x, y: x.to(tl.bfloat16, bitcast=True), lambda x, y: x.view(BF16),
        lambda: every_number().view(torch.int16), table,
    ),
    # casts of all numbers
    "from float32": Operation(lambda x, y: x.to(tl.bfloat16), lambda x, y: x.to(BF16), ties, table),
    "from float32, toward zero": Operation(
        lambda x, y: x.to(tl.bfloat16, fp_downcast_rounding="rtz"),
        lambda x, y: torch.where(x.isnan(), x, (x.view(torch.int32) & -(2**16)).view(F32)).to(BF16),
        ties, table,
    ),
    "from float32, to nearest": Operation(
        lambda x, y: x.to(tl.bfloat16, fp_downcast_rounding="rtne"), lambda x, y: x.to(BF16), ties, table
    ),
    "to float32": pair(lambda x, y: x.to(tl.float32), lambda x, y: x.float()),
    "to float64": pair(lambda x, y: x.to(tl.float64), lambda x, y: x.double()),
    "to float16": pair(lambda x, y: x.to(tl.float16), lambda x, y: x.to(F16)),
    "to bool": pair(lambda x, y: x.to(tl.int1), lambda x, y: x != 0),
}  # fmt: skip
INTEGERS = {
    tl.int8: torch.int8, tl.uint8: torch.uint8, tl.int16: torch.int16, tl.int32: torch.int32,
    tl.int64: torch.int64,
}  # fmt: skip
FLOATS = {tl.float16: F16, tl.float64: torch.float64}
OPERATIONS |= {
    f"to {kind.name}": Operation(
        lambda x, y, kind=kind: x.to(kind), lambda x, y, same=same: x.to(same), finite, table
    )
    for kind, same in INTEGERS.items()
}
OPERATIONS |= {
    f"from {kind.name}": Operation(
        lambda x, y: x.to(tl.bfloat16), lambda x, y: x.to(BF16),
        lambda same=same: spread(100 if same.itemsize == 1 else 2000).to(same),
        table,
    )
    for kind, same in (INTEGERS | FLOATS).items()
}  # fmt: skip


# ---- memory: the kernel gets pointers, and leaves its result in `out`, of the type and shape of x
def line(p: Any, n: int = 64) -> Any:
    return p + tl.arange(0, n)


def store_masked(x: Any, y: Any, out: Any) -> None:
    lanes = tl.arange(0, 64)
    tl.store(line(out), tl.load(line(x), mask=lanes < 40, other=0.3) * 2, mask=lanes < 60)


def want_masked(x: Tensor, y: Tensor) -> Tensor:
    want = torch.cat([x[:40], torch.full((20,), 0.3, dtype=BF16)]) * 2
    return torch.cat([want, torch.zeros(4, dtype=BF16)])


def store_float32(x: Any, y: Any, out: Any) -> None:
    tl.store(line(out), tl.load(line(x)).to(tl.float32) * 1.1)


def block(p: Any, first: int, size: int = 50) -> Any:
    return tl.make_block_ptr(p, (size,), (1,), (first,), (64,), (0,))


def load_block(x: Any, y: Any, out: Any, padding: str) -> None:
    tile = tl.load(block(x, 0), boundary_check=(0,), padding_option=padding)
    tl.store(block(out, 0, 64), tile + tile, boundary_check=(0,))


def padded(x: Tensor, value: float) -> Tensor:
    return torch.cat([2 * x[:50], torch.full((14,), value, dtype=BF16)])


def load_descriptor(x: Any, y: Any, out: Any, padding: str) -> None:
    inside = tl.make_tensor_descriptor(x, [56], [1], [64], padding_option=padding)
    whole = tl.make_tensor_descriptor(out, [64], [1], [64])
    whole.store([0], inside.load([0]) * 2)


def described(x: Tensor, value: float) -> Tensor:
    return torch.cat([2 * x[:56], torch.full((8,), value, dtype=BF16)])


def add_atomically(x: Any, y: Any, out: Any) -> None:
    """Lanes 0, 4, 8, … add to word 0, and so on; every third lane is masked. The old words are discarded."""
    lanes = tl.arange(0, 64)
    tl.atomic_add(out + lanes % 4, tl.load(line(x)), mask=lanes % 3 > 0)


def want_added(x: Tensor, y: Tensor) -> Tensor:
    want = torch.zeros_like(x)
    for lane in range(64):
        if lane % 3:
            want[lane % 4] += x[lane]
    return want


def add_and_return(x: Any, y: Any, out: Any) -> None:
    old = tl.atomic_add(line(x), tl.load(line(y)))
    tl.store(line(out), old + tl.load(line(x)))


def add_one_word(x: Any, y: Any, out: Any) -> None:
    for _ in range(3):
        tl.atomic_add(out, tl.load(x))


def compare_and_swap(x: Any, y: Any, out: Any) -> None:
    """Swap x for x + y if y equals x; the old words are part of the result."""
    old = tl.atomic_cas(line(x), tl.load(line(y)), tl.load(line(y)) + tl.load(line(x)))
    tl.store(line(out), old + tl.load(line(x)))


def texts(x: Any, y: Any, out: Any) -> None:
    """Print a tile in both ways, and store 1 if the numbers are in both texts."""
    shown = io.StringIO()
    with redirect_stdout(shown):
        tl.device_print("tile", tl.full((2,), 1.5, tl.bfloat16))
        print(tl.full((2,), 2.5, tl.bfloat16))
    tl.store(out, 1.0 if "1.5 1.5" in shown.getvalue() and "2.5 2.5" in shown.getvalue() else 0.0)


def memory(kernel: Callable[..., Any], exact: Callable[..., Tensor], y: Any = None) -> Operation:
    return Operation(kernel, exact, lambda: normal(64), y or (lambda: normal(64, seed=1)), 0.0, True)


def half_equal() -> Tensor:
    return torch.where(torch.arange(64) % 2 == 0, normal(64), normal(64, seed=1))


OPERATIONS |= {
    "masked load and store": memory(store_masked, want_masked),
    "store of float32": memory(store_float32, lambda x, y: (x.float() * 1.1).to(BF16)),
    "descriptor, zeros outside": memory(
        lambda *p: load_descriptor(*p, "zero"), lambda x, y: described(x, 0.0)
    ),
    "descriptor, NaN outside": memory(
        lambda *p: load_descriptor(*p, "nan"), lambda x, y: described(x, torch.nan)
    ),
    "atomic_add": memory(add_atomically, want_added),
    "atomic_add returns the old words": memory(add_and_return, lambda x, y: x + (x + y)),
    "atomic_add to one word": memory(
        add_one_word, lambda x, y: torch.cat([x[:1] + x[:1] + x[:1], torch.zeros(63, dtype=BF16)])
    ),
    "atomic_cas": memory(
        compare_and_swap, lambda x, y: x + torch.where(x == y, x + y, x), half_equal
    ),
    "print": memory(texts, lambda x, y: torch.cat([torch.ones(1), torch.zeros(63)]).to(BF16)),
}  # fmt: skip

if hasattr(interpreter, "BlockPointerHandle"):  # Triton 3.9 has none
    OPERATIONS |= {
        "block pointer, zeros outside": memory(
            lambda *p: load_block(*p, "zero"), lambda x, y: padded(x, 0.0)
        ),
        "block pointer, NaN outside": memory(
            lambda *p: load_block(*p, "nan"), lambda x, y: padded(x, torch.nan)
        ),
    }  # fmt: skip

# What Triton refuses in bfloat16: its front end in both modes, or (fdiv, a function that returns float32) its
# compiler, and then the repair.
REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    **{
        name: (lambda x, y, name=name: getattr(tl, name)(x), "Expected dtype .*fp32.* but got bf16")
        for name in (
            "exp", "exp2", "log", "log2", "sin", "cos", "sqrt", "sqrt_rn", "rsqrt", "erf", "floor", "ceil",
        )
    },
    "sigmoid": (lambda x, y: tl.sigmoid(x), "Expected dtype .*fp32.* but got bf16"),
    "div_rn": (lambda x, y: tl.div_rn(x, y), "Expected dtype .*fp32.* but got bf16"),
    "umulhi": (lambda x, y: tl.umulhi(x, y), "Expected dtype .*int32.* but got bf16"),
    "fdiv": (lambda x, y: tl.fdiv(x, y), "tl.fdiv does not support bf16.*Use x / y"),
    "x // y": (lambda x, y: x // y, "unexpected type fp32"),
    "x & y": (lambda x, y: x & y, "IncompatibleTypeError"),
    "x | y": (lambda x, y: x | y, "IncompatibleTypeError"),
    "x ^ y": (lambda x, y: x ^ y, "IncompatibleTypeError"),
    "x << 1": (lambda x, y: x << 1, "IncompatibleTypeError"),
    "x >> 1": (lambda x, y: x >> 1, "IncompatibleTypeError"),
    "~x": (lambda x, y: ~x, "wrong type argument to unary invert"),
    "dot with a result in bfloat16": (
        lambda x, y: tl.dot(x, y.T, out_dtype=tl.bfloat16), "out_dtype=bfloat16 is unsupported"
    ),
    "dot of two types": (lambda x, y: tl.dot(x, y.T.to(tl.float32)), "Both operands must be same dtype"),
    "histogram": (lambda x, y: tl.histogram(tl.reshape(x, (512,)), 8), "only supports .*integer input"),
    "a reduction that returns float32": (
        lambda x, y: tl.reduce(x, 0, larger_in_float32), "tl.reduce returns fp32 for an operand of type bf16"
    ),
    "a scan that returns float32": (
        lambda x, y: tl.associative_scan(x, 0, larger_in_float32),
        "tl.associative_scan returns fp32 for an operand",
    ),
}  # fmt: skip
REFUSED_BY_THE_COMPILER = {"fdiv", "a reduction that returns float32", "a scan that returns float32"}
REFUSED_ATOMICS = ("max", "min", "and", "or", "xor", "xchg")


# ---- a launch
def load(p: Any, shape: tuple[int, ...]) -> Any:
    size = 1
    for n in shape:
        size *= n
    return tl.reshape(tl.load(p + tl.arange(0, size)), shape)


def put(out: Any, result: Any) -> None:
    if not result.type.is_block():
        tl.store(out, result)
        return
    size = int(result.numel)
    tl.store(out + tl.arange(0, size), tl.reshape(result, (size,)))


@triton.jit
def tiles_kernel(x, y, out, OPERATION: tl.constexpr, X: tl.constexpr, Y: tl.constexpr, KINDS: tl.constexpr):
    result = OPERATION(load(x, X), load(y, Y))
    KINDS.append(result.dtype.name)
    put(out, result)


@triton.jit
def pointers_kernel(x, y, out, OPERATION: tl.constexpr):
    OPERATION(x, y, out)


NAMES = {F32: "fp32", BF16: "bf16", F16: "fp16", torch.float64: "fp64", torch.bool: "int1"}


def run(kernel: Callable[..., Any], x: Tensor, y: Tensor, out: Tensor, pointers: bool = False) -> str:
    """Launch one operation, and return the type of its result."""
    x, y = x.clone(), y.clone()
    if pointers:
        pointers_kernel[(1,)](x, y, out, kernel)
        return NAMES[out.dtype]
    kinds: list[str] = []
    tiles_kernel[(1,)](x, y, out, kernel, tuple(x.shape), tuple(y.shape), kinds)
    return kinds[0]


def complaint(one: Operation) -> str:
    """Return what is wrong with the result of an operation, or ""."""
    x, y = one.x(), one.y()
    want = one.exact(x, y)
    out = torch.zeros(want.shape, dtype=want.dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # NumPy's, of infinities and NaN, in every type
        warnings.filterwarnings("ignore", "tl.make_block_ptr is deprecated")
        kind = run(one.kernel, x, y, out, one.pointers)
    expected = NAMES.get(want.dtype, str(want.dtype).removeprefix("torch."))
    if kind != expected:
        return f"the result has type {kind}, expected {expected}"
    if one.tolerance:
        error = (out.double() - want.double()).abs().max() / want.double().abs().max()
        return "" if error <= one.tolerance else f"relative error {error:.1e}"
    wrong = ~((out == want) | (out.isnan() & want.isnan()) if out.dtype.is_floating_point else out == want)
    first = wrong.flatten().nonzero()[:1].flatten().tolist()
    return "".join(
        f"{int(wrong.sum())} numbers are wrong, first {out.flatten()[i]}, expected {want.flatten()[i]}"
        for i in first
    )


def without_error(one: Operation) -> str:
    try:
        return complaint(one)
    except Exception as error:  # an operation that Triton cannot run is reported like a wrong one
        return repr(error)


if __name__ == "__main__":
    print(json.dumps({name: found for name, one in OPERATIONS.items() if (found := without_error(one))}))
