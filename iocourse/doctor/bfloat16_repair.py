"""Repair of bfloat16 in Triton's interpreter: the bits that a GPU computes, sums up to their order.

The interpreter stores a bfloat16 number as its 16 bits, in an unsigned integer. Triton 3.6 to 3.9 then adds,
multiplies and compares these integers, and cuts off the low bits of a float32 number instead of rounding it.
Each repair below widens the operands to float32, which holds every bfloat16 number, and rounds the result to
nearest, ties to even. Each is tried first: where Triton gives the same bits, its own code stays. No other
type is changed.

A sum in bfloat16 is rounded after each addition, as in compiled code; the halves of the axis are added.
"""

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton._C.libtriton import interpreter as memory  # not replaced while words are counted
from triton.runtime import interpreter

Bits = NDArray[np.uint16]
Single = NDArray[np.float32]
BITS = np.dtype(np.uint16)
NAN = 0x7FC0  # the bits of NaN


# ---- numbers
def widened(bits: Any) -> Single:
    """Return bfloat16 numbers, passed as their bits, as float32."""
    wide: Single = np.left_shift(bits, 16, dtype=np.uint32).view(np.float32)
    return wide


def rounded(values: Any) -> Bits:
    """Return the bits of the nearest bfloat16 numbers; a tie goes to the even one, NaN stays NaN."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    nearest = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    return np.where(np.isnan(values), bits >> 16 | NAN, nearest).astype(BITS)


def _toward_zero(values: Any) -> Bits:
    """Return the bits of the bfloat16 numbers next to the values on the side of 0; NaN stays NaN."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return (bits >> 16 | np.where(np.isnan(values), NAN, 0)).astype(BITS)


def _product_and_sum(x: Bits, y: Bits, z: Bits) -> Bits:
    """Return x · y + z with one rounding, as the instruction fma.rn.bf16 does.

    The product is exact in float64. The sum is made odd in float32 where it is not exact, so that the last
    rounding sees on which side of a tie it is.
    """
    product, term = widened(x).astype(np.float64) * widened(y), widened(z).astype(np.float64)
    total = product + term
    second = total - product
    error = (product - (total - second)) + (term - second)
    near = total.astype(np.float32)
    rest = total - near + error
    even = np.isfinite(near) & (rest != 0) & (near.view(np.uint32) & 1 == 0)
    side = np.copysign(np.inf, rest).astype(np.float32)
    return rounded(np.where(even, np.nextafter(near, side), near))


def _is_ours(handle: Any) -> bool:
    """Return True for a bfloat16 tensor stored as bits."""
    return handle.data.dtype == BITS and bool(handle.dtype.scalar.is_bf16())


def _as_single(handle: Any) -> Any:
    """Return a bfloat16 handle as a float32 handle, and any other unchanged."""
    return interpreter.TensorHandle(widened(handle.data), tl.float32) if _is_ours(handle) else handle


def _handle(bits: Any) -> Any:
    return interpreter.TensorHandle(bits, tl.bfloat16)


# ---- arithmetic and casts. Each function returns a method that replaces `original`.
def _binary(original: Callable[..., Any]) -> Callable[..., Any]:
    def binary_op(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        if lhs.data.dtype != BITS or not (_is_ours(lhs) and _is_ours(rhs)):
            return original(self, lhs, rhs, op)
        if op is np.divide:
            raise TypeError(
                "tl.fdiv does not support bf16: Triton's compiler refuses it. Use x / y, which divides in "
                "float32"
            )
        found = op(widened(lhs.data), widened(rhs.data))
        return interpreter.TensorHandle(found, tl.int1) if found.dtype == bool else _handle(rounded(found))

    return binary_op


def _unary(original: Callable[..., Any]) -> Callable[..., Any]:
    def unary_op(self: Any, arg: Any, op: Any) -> Any:
        return _handle(rounded(op(widened(arg.data)))) if _is_ours(arg) else original(self, arg, op)

    return unary_op


def _fused(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        if not _is_ours(z):
            return original(self, x, y, z)
        return _handle(_product_and_sum(x.data, y.data, z.data))

    return create_fma


def _product(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_dot(self: Any, a: Any, b: Any, *rest: Any, **options: Any) -> Any:
        return original(self, _as_single(a), _as_single(b), *rest, **options)

    return create_dot


def _cast(original: Callable[..., Any]) -> Callable[..., Any]:
    def cast_impl(self: Any, src: Any, dst_type: Any) -> Any:
        if not dst_type.scalar.is_bf16():
            return original(self, _as_single(src), dst_type)
        return src if _is_ours(src) else _handle(rounded(original(self, src, tl.float32).data))

    return cast_impl


def _cast_with_rounding(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_fp_to_fp(self: Any, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        if not (dst_type.scalar.is_bf16() and src.dtype.scalar.is_fp32()):
            return original(self, src, dst_type, rounding_mode)
        nearest = rounding_mode == interpreter._ir.ROUNDING_MODE.RTNE
        return _handle((rounded if nearest else _toward_zero)(src.data))

    return create_fp_to_fp


def _constant(_: Any) -> Callable[..., Any]:
    def get_bf16(self: Any, value: Any) -> Any:
        return _handle(rounded(self.get_fp32(value).data))

    return get_bf16


# ---- memory
def _atomic(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_atomic_rmw(self: Any, op: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        if op != interpreter._ir.ATOMIC_OP.FADD or not _is_ours(val):
            return original(self, op, ptr, val, mask, *rest)
        lanes = np.broadcast_to(mask.data, np.shape(ptr.data)).astype(bool)
        places, terms = ptr.data[lanes], np.broadcast_to(widened(val.data), lanes.shape)[lanes]
        # A swap of 0 for 0 changes nothing, but `iocourse.traffic` checks and counts its words.
        zeros = np.zeros(places.shape, BITS)
        old = interpreter._interpreter.atomic_cas(
            places, zeros, zeros, self.ir_sem_to_interpreter_sem[rest[0]]
        )
        for turn in _turns(places):
            here, every = places[turn], np.ones(turn.size, bool)
            old[turn] = memory.load(here, every, old[turn], BITS)
            memory.store(here, rounded(widened(old[turn]) + terms[turn]), every)
        before = np.zeros(lanes.shape, BITS)
        before[lanes] = old
        return _handle(before)

    return create_atomic_rmw


def _turns(places: NDArray[np.uint64]) -> list[NDArray[np.int64]]:
    """Return the lanes in groups, the first lane of each word, then the second of each word, and so on: lanes
    that add to one word do so one after the other.
    """
    order = np.argsort(places, kind="stable")
    first = np.flatnonzero(np.diff(places[order], prepend=places[order][:1] + np.uint64(1)))
    turn = np.arange(places.size) - np.repeat(first, np.diff(first, append=places.size))
    return [np.sort(order[turn == t]) for t in range(int(turn.max(initial=-1)) + 1)]


def _padded(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a load by block pointer or descriptor that pads with NaN where this is requested."""

    def load(self: Any, pointer: Any, *rest: Any, **options: Any) -> Any:
        asked = (getattr(pointer, "padding", None), *rest)
        if interpreter._ir.PADDING_OPTION.PAD_NAN not in asked or not pointer.base.get_element_ty().is_bf16():
            return original(self, pointer, *rest, **options)
        with np.errstate(invalid="ignore"):  # Triton converts NaN to an integer
            return original(_NanOutside(self), pointer, *rest, **options)

    return load


class _NanOutside:
    """The builder, but lanes outside are NaN."""

    def __init__(self, builder: Any) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def create_masked_load(self, pointers: Any, mask: Any, _: Any, *rest: Any, **options: Any) -> Any:
        return self._builder.create_masked_load(pointers, mask, nan_like(pointers), *rest, **options)


def nan_like(pointers: Any) -> Any:
    """Return bfloat16 NaN for each of these pointers."""
    return _handle(np.full_like(pointers.data, NAN, dtype=BITS))


# ---- reductions and scans
def _reduction(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_impl(self: Any, input: Any) -> Any:
        if not any(_is_ours(one.handle) for one in input):
            return original(self, input)
        if self.combine_fn is tl.standard._sum_combine:
            return _sum_of_halves(self, input[0])
        return _with_checked_types(self, input, "tl.reduce").generic_reduce(input)

    return apply_impl


def _sum_of_halves(self: Any, input: Any) -> Any:
    bits, axis = input.handle.data, self.axis
    if axis is None:
        bits, axis = bits.reshape(-1), 0
    bits = np.moveaxis(bits, axis, 0)
    while len(bits) > 1:  # sizes are powers of two
        one, other = np.split(widened(bits), 2)
        bits = rounded(one + other)
    total = bits[0]
    if self.keep_dims:
        total = (
            total.reshape((1,) * input.handle.data.ndim) if self.axis is None else np.expand_dims(total, axis)
        )
    return self.to_tensor(total, input.dtype)


def _scan(original: Callable[..., Any]) -> Callable[..., Any]:
    def apply_impl(self: Any, input: Any) -> Any:
        if not any(_is_ours(one.handle) for one in input):
            return original(self, input)
        combine = self.combine_fn
        try:  # a copy of the function is unknown to the interpreter, which then calls it for each element
            return original(_with_checked_types(self, input, "tl.associative_scan"), input)
        finally:
            self.combine_fn = combine

    return apply_impl


def _with_checked_types(self: Any, input: Any, name: str) -> Any:
    """Let the combine function return the types of its operands, which Triton's compiler requires."""
    combine = self.combine_fn.fn

    def checked(*operands: Any) -> Any:
        found = combine(*operands)
        for one, operand in zip(found if isinstance(found, tuple) else (found,), input, strict=True):
            kind = one.dtype.name if isinstance(one, tl.tensor) else type(one).__name__
            if operand.dtype.is_bf16() and kind != "bf16":
                raise TypeError(
                    f"the function of {name} returns {kind} for an operand of type bf16, and Triton's "
                    f"compiler requires bf16. Pass x.to(tl.float32) to {name}, or return .to(tl.bfloat16)"
                )
        return found

    self.combine_fn = SimpleNamespace(fn=checked)
    return self


# ---- what a student prints
def _print(original: Callable[..., Any]) -> Callable[..., Any]:
    def create_print(self: Any, prefix: Any, hex: Any, values: Any, *rest: Any) -> Any:
        return original(self, prefix, hex, values if hex else [*map(_as_single, values)], *rest)

    return create_print


def _tensor_as_text(original: Callable[..., Any]) -> Callable[..., Any]:
    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__repr__", lambda self: repr(_as_single(self.handle).data))
        scope.set_attr(tensor, "__str__", lambda self: str(_as_single(self.handle).data))

    return patch_lang_tensor


# ---- which repairs this version of Triton needs
class Repair(NamedTuple):
    """A method to replace, and a trial: a call of the original or of the repaired method, to compare both."""

    owner: Any
    name: str
    replace: Callable[[Callable[..., Any]], Callable[..., Any]]
    trial: Callable[[Callable[..., Any]], Any]


_tried: list[bool] = []  # not empty after the first call


def repair_bfloat16() -> tuple[str, ...]:
    """Repair each operation that computes bfloat16 wrongly, and return the names of the methods replaced.

    Only the first call does anything, because a check replaces methods for a while. If Triton stores bfloat16
    in another way than as bits, nothing is replaced.
    """
    if _tried or interpreter._get_np_dtype(tl.bfloat16) != BITS:
        return ()
    _tried.append(True)
    done = []
    for one in _repairs():
        original = getattr(one.owner, one.name, None)
        if original is None and one.name != "get_bf16":  # what a version lacks, it cannot compute wrongly
            continue
        better = one.replace(original)  # type: ignore[arg-type]
        better.repairs = original  # type: ignore[attr-defined]
        if _result(one, original) != _result(one, better):
            setattr(one.owner, one.name, better)
            done.append(f"{one.owner.__name__.rpartition('.')[2]}.{one.name}")
    return tuple(done)


def _result(one: Repair, method: Any) -> Any:
    """Return the bits that a trial computes, or the type of its error."""
    try:
        with np.errstate(all="ignore"):
            found = one.trial(method)
        return [np.asarray(getattr(one, "data", one)).tobytes() for one in found]
    except Exception as error:  # of any kind, for a version of Triton that is not known here
        return type(error)


def _repairs() -> list[Repair]:
    """Return all repairs. A new operation of Triton that reads bits as integers gets a line here."""
    builder = interpreter.InterpreterBuilder
    return [
        Repair(builder, "binary_op", _binary, _try_binary),
        Repair(builder, "unary_op", _unary, lambda unary: [unary(_BUILDER, _handle(X), np.negative)]),
        Repair(
            builder, "create_fma", _fused, lambda fma: [fma(_BUILDER, _handle(X), _handle(Y), _handle(X))]
        ),
        Repair(builder, "create_dot", _product, _try_product),
        Repair(builder, "cast_impl", _cast, _try_cast),
        Repair(builder, "create_fp_to_fp", _cast_with_rounding, _try_cast_with_rounding),
        Repair(builder, "get_bf16", _constant, lambda get: [get(_BUILDER, 1.1)]),
        Repair(builder, "create_atomic_rmw", _atomic, _try_atomic),
        Repair(builder, "create_tensor_pointer_load", _padded, _try_padded),
        Repair(builder, "create_descriptor_load", _padded, _try_padded_by_descriptor),
        Repair(interpreter.ReduceOps, "apply_impl", _reduction, _try_reduction),
        Repair(interpreter.ScanOps, "apply_impl", _scan, _try_scan),
        Repair(builder, "create_print", _print, _try_print),
        Repair(interpreter, "_patch_lang_tensor", _tensor_as_text, _try_text),
    ]


_BUILDER = interpreter.interpreter_builder
X = rounded([1.5, -2.25, 0.25, 3.0, -0.75, 0.1, 1e-40, 5.0])
Y = rounded([0.5, 0.75, -8.0, 3.0, -0.875, 0.2, 2e-40, -5.0])
PAST = 4  # lanes of a padded load past the end


def _try_binary(binary_op: Callable[..., Any]) -> Any:
    operators = (np.add, np.subtract, np.multiply, np.less, np.equal, np.maximum)
    return [binary_op(_BUILDER, _handle(X), _handle(Y), op) for op in operators]


def _try_product(dot: Callable[..., Any]) -> Any:
    a, b = (_handle(bits.reshape(4, 2)) for bits in (X, Y))
    zeros = interpreter.TensorHandle(np.zeros((4, 4), np.float32), tl.float32)
    return [dot(_BUILDER, a, _handle(b.data.T), zeros, None, 0)]


def _try_cast(cast: Callable[..., Any]) -> Any:
    values = np.array([1.1, 1 + 2**-8, 1 + 3 * 2**-8, -0.3, 1e-40])
    single, double = values.astype(np.float32), values
    integers = np.array([257, 259, -7], np.int32)
    into = ((single, tl.float32), (double, tl.float64), (integers, tl.int32))
    handles = [interpreter.TensorHandle(data, kind) for data, kind in into]
    casts = [cast(_BUILDER, one, tl.bfloat16) for one in handles]
    return [*casts, cast(_BUILDER, _handle(X), tl.float32)]


def _try_cast_with_rounding(cast: Callable[..., Any]) -> Any:
    odd_nan = np.array([0x7F800001], np.uint32).view(np.float32)  # cut off, its bits are those of infinity
    data = np.array([1.1, 1 + 2**-8, 2 - 2**-9, *odd_nan], np.float32)
    values = interpreter.TensorHandle(data, tl.float32)
    modes = interpreter._ir.ROUNDING_MODE
    return [cast(_BUILDER, values, tl.bfloat16, mode) for mode in (modes.RTZ, modes.RTNE)]


def _pointer(words: Bits, lanes: Any = 0) -> Any:
    """Return pointers to these words."""
    places = np.asarray(words.ctypes.data + BITS.itemsize * np.atleast_1d(lanes), np.uint64)
    return interpreter.TensorHandle(places, tl.pointer_type(tl.bfloat16))


def _number(value: int) -> Any:
    return interpreter.TensorHandle(np.array([value], np.int64), tl.int64)


def _try_atomic(add: Callable[..., Any]) -> Any:
    words, every = X.copy(), interpreter.TensorHandle(np.ones(4, bool), tl.int1)
    where = _pointer(words, np.array([1, 3, 3, 5]))
    kinds = interpreter._ir
    how = kinds.ATOMIC_OP.FADD, where, _handle(Y[:4]), every, kinds.MEM_SEMANTIC.RELAXED, None
    return [add(_BUILDER, *how), words]


def _try_padded(load: Callable[..., Any]) -> Any:
    size, step, first = _number(X.size), _number(1), _number(PAST)
    pointer = interpreter.BlockPointerHandle(_pointer(X), [size], [step], [first], [X.size], [0])
    return [load(_BUILDER, pointer, (0,), interpreter._ir.PADDING_OPTION.PAD_NAN, None, None, False)]


def _try_padded_by_descriptor(load: Callable[..., Any]) -> Any:
    words = np.zeros(16, BITS)
    nan = interpreter._ir.PADDING_OPTION.PAD_NAN
    made = interpreter.TensorDescHandle(_pointer(words), [_number(12)], [_number(1)], [8], nan)
    try:
        return [load(_BUILDER, made, [_number(8)], None, None)]
    except TypeError:  # from Triton 3.9 on there is one argument less
        return [load(_BUILDER, made, [_number(8)], None)]


def _tensor(bits: Bits) -> Any:
    return tl.tensor(_handle(bits), tl.block_type(tl.bfloat16, list(bits.shape)))


def _try_reduction(apply: Callable[..., Any]) -> Any:
    found = apply(interpreter.ReduceOps(0, tl.standard._sum_combine, False), (_tensor(X[:4]),))
    return [one.handle for one in (found if isinstance(found, (list, tuple)) else [found])]


def _try_scan(apply: Callable[..., Any]) -> Any:
    """Try a function that returns float32: the compiler refuses it."""
    wide = SimpleNamespace(fn=lambda one, _: tl.tensor(_as_single(one.handle), tl.float32))
    return [one.handle for one in apply(interpreter.ScanOps(0, wide, False), (_tensor(X[:4]),))]


def _try_print(show: Callable[..., Any]) -> Any:
    text = io.StringIO()
    with redirect_stdout(text):
        show(SimpleNamespace(grid_idx=(0, 0, 0)), "x", False, [_handle(X[:4])], [True])
    return [text.getvalue()]


def _try_text(patch: Callable[..., Any]) -> Any:
    scope = interpreter._LangPatchScope()
    try:
        patch(tl.tensor, scope)
        return [f"{_tensor(X[:4])} {_tensor(X[:4])!r}"]
    finally:
        scope.restore()
