"""Run a student's Triton kernels in the interpreter: record their results and the words they load and store.

The student's function takes torch tensors, launches its kernels and returns one or several tensors. It runs
on the CPU under `traffic.count`. Operations of torch move no words in that ledger, so a function that leaves
the work to torch has results but no traffic.

`launch` and its variants record what neither results nor words show: words that no kernel reads or that
several programs store, products of rounded factors, masked tiles, programs that store nothing, and the order
of the programs.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import traffic
from ...doctor.triton_missing import require_triton
from ...errors import error_text
from ..exercise import (
    FORM,
    Better,
    Case,
    FirstCause,
    NotJudged,
    NotReached,
    Property,
    RunCase,
    TrafficCause,
    Trial,
    differs,
    modified_inputs_error,
    snapshot,
    student_call,
    trial_from_error,
)
from ..guard import LibrarySolutionUsed
from ..properties import as_traffic, budget_of, each, idle, is_right, untouched
from .compile_check import Launch, Launches, record_interpreted_launches, to_ptx
from .kernel_errors import line_in_progress, name_failing_line
from .sixteen_bit_inputs import BFloat16


@dataclass(frozen=True)
class KernelTrial(Trial):
    """A trial of kernels, with findings about their products and loads.

    Attributes:
        rounded: a reason for each product of rounded factors.
        factors: the types of all factors of products, in Triton's names, such as "fp16".
        wide: the student's line with the first product of float32 factors, or "".
        widest: the largest number of rows or columns of a factor.
        read: for each input, which of its words were loaded.
        shared: which words two programs of one launch store, or "".
        outside: number of loads in a loop in which all lanes are masked.
        wrapped: number of loads whose addresses wrap around within the tile.
        programs: number of programs of the largest launch.
        reversed: runs the case again with all programs in reverse order.
        launches: the distinct launches; () in a grader, which has no kernels.
        ptx: compiles the only launch for an architecture and a version of PTX, as `to_ptx`.
    """

    rounded: tuple[str, ...] = ()
    factors: frozenset[str] = frozenset()
    wide: str = ""
    widest: int = 0
    read: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    shared: str = ""
    outside: int = 0
    wrapped: int = 0
    programs: int = 0
    reversed: Callable[[], Trial] | None = None
    launches: tuple[Launch, ...] = ()
    ptx: Callable[[int, int], dict[str, Any]] | None = None


@trial_from_error
def launch(student: Callable[..., Any], case: Case, *, copies: bool = True) -> Trial:
    """Call a launcher with fresh tensors made from the case's arrays, and with other inputs unchanged.

    Each tensor has the strides of its array. The memory between its elements and all memory that torch
    allocates is NaN, so a wrong load or a missing store shows in the result. A masked lane of a load without
    `other` is NaN too, because Triton leaves it undefined. Words of the inputs are counted under the names of
    the case, words of other tensors under the names of the kernel's parameters.

    torch may allocate, fill, view and (unless `copies` is False) copy memory.

    Raises:
        LibrarySolutionUsed: torch computes.
        NotJudged: a kernel modifies an input.
    """
    require_triton()
    given = {name: _tensor(value) for name, value in case.inputs.items()}
    arrays = {name: value for name, value in given.items() if hasattr(value, "data_ptr")}
    with (
        kernels_compute(copies=copies, cell=file_of(student)) as launches,
        products_seen() as products,
        _loads(arrays) as loads,
        traffic.count(**arrays) as ledger,
        _stores() as stores,
    ):
        value = student(*given.values())
    changed = [name for name, tensor in arrays.items() if differs(case.inputs[name], _as_given(tensor))]
    if changed:
        raise modified_inputs_error(changed, "your kernels write into")
    shared = as_shared_arrays(value)
    kept = (snapshot(shared), shared)
    return KernelTrial(
        case,
        _arrays(value),
        ledger,
        returned=kept,
        rounded=tuple(filter(None, products.rounded)),
        factors=frozenset(products.factors),
        wide=products.wide,
        widest=products.widest,
        read=loads.read,
        shared=stores.shared,
        outside=loads.outside,
        wrapped=loads.wrapped,
        programs=loads.programs,
        reversed=lambda: _in_reverse(student, case, copies),
        launches=tuple(launches.seen.values()),
        ptx=lambda arch, version: _only_ptx(tuple(launches.seen.values()), arch, version),
    )


def _only_ptx(launches: Sequence[Launch], arch: int, version: int) -> dict[str, Any]:
    if len(launches) != 1:
        return {"error": f"expected one launch, got {len(launches)}"}
    try:
        return to_ptx(launches[0], arch, version)
    except Exception as error:  # of the compiler
        return {"error": error_text(error)}


def _in_reverse(student: Callable[..., Any], case: Case, copies: bool) -> Trial:
    with programs_reversed():
        return launch(student, case, copies=copies)


def launch_in_place(student: Callable[..., Any], case: Case) -> Trial:
    """Run `launch` without copies by torch: a kernel reads its inputs in place."""
    return launch(student, case, copies=False)


def _require_interpreter() -> None:
    """Raise TritonMissing, or patch the interpreter before any of its methods is replaced for one block."""
    require_triton()
    from triton import knobs

    from ...doctor.fast_interpreter import patch_interpreter

    if knobs.runtime.interpret:
        patch_interpreter()


@contextmanager
def kernels_compute(
    *, copies: bool = True, operators: Operators | None = None, cell: str = ""
) -> Iterator[Launches]:
    """Context for a student's launcher: torch allocates NaN and computes nothing. Yields the launches.

    `operators` notes the calls of operators that the student registered; `cell` is the file of the launcher.
    At the end of a block without an error, every launched kernel is compiled.
    """
    _require_interpreter()
    noted = Operators() if operators is None else operators
    with (
        noted.counting_launches(),
        record_interpreted_launches() as launches,
        name_failing_line(cell),
        student_call(),
        _fresh_memory_is_nan(),
        _lanes_off_are_nan(),
        _torch_only_keeps(KEEPS if copies else KEEPS - COPIES, noted),
    ):
        yield launches
    launches.compile()


def _tensor(value: Any) -> Any:
    """Return a new tensor with the values, strides and type of the array; any other value unchanged."""
    if not isinstance(value, np.ndarray):
        return value
    import torch

    steps = [step // value.itemsize for step in value.strides]
    reach = 1 + sum((n - 1) * step for n, step in zip(value.shape, steps, strict=True)) if value.size else 0
    blank = np.nan if value.dtype.kind == "f" else 0
    memory = torch.from_numpy(np.full(reach, blank, value.dtype))
    if isinstance(value, BFloat16):
        memory = memory.bfloat16()
    tensor = memory.as_strided(value.shape, steps)
    return tensor.copy_(torch.from_numpy(np.ascontiguousarray(value)))


def _as_given(tensor: Any) -> Any:
    """Return the values of a tensor as an array of the type in which the case has them."""
    import torch

    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


@contextmanager
def _fresh_memory_is_nan() -> Iterator[None]:
    """Inside this context torch.empty and the like return NaN; old memory may hold a correct result."""
    import torch

    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)


@contextmanager
def _lanes_off_are_nan() -> Iterator[None]:
    """Fill masked lanes of a load without `other` with NaN; the interpreter uses 0.

    tl.max and tl.min return NaN if one lane is NaN; the interpreter's ignore NaN, so a masked lane would not
    show in them.
    """
    from triton.language.semantic import TritonSemantic
    from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, TensorHandle, _get_np_dtype

    from ...doctor.bfloat16_repair import BITS, nan_like

    load, asked, given = InterpreterBuilder.create_masked_load, TritonSemantic._load_legacy, False

    def _load_legacy(self: Any, ptr: Any, mask: Any, other: Any, *rest: Any) -> Any:
        nonlocal given
        given = (
            other is not None
        )  # Triton drops an `other` whose only lane is 0, because it tests its truth value
        return asked(self, ptr, mask, other, *rest)

    def create_masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        element = ptrs.get_element_ty()
        dtype = np.dtype(_get_np_dtype(element))
        if other is None and not given and dtype.kind == "f":
            other = TensorHandle(np.full(np.shape(ptrs.data), np.nan, dtype), element)
        elif other is None and not given and element.is_bf16() and dtype == BITS:
            other = nan_like(ptrs)
        return load(self, ptrs, mask, other, *rest, **options)

    reduce, keeps_nan = ReduceOps.min_max, {np.nanmax: np.max, np.nanmin: np.min}

    def min_max(self: Any, input: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        return reduce(self, input, keeps_nan.get(val_reduce_op, val_reduce_op), idx_reduce_op)

    with (
        replaced(ReduceOps, min_max=min_max),
        replaced(InterpreterBuilder, create_masked_load=create_masked_load),
        replaced(TritonSemantic, _load_legacy=_load_legacy),
    ):
        yield


@contextmanager
def replaced(owner: Any, **methods: Any) -> Iterator[None]:
    """Replace these methods of a class within the block."""
    own = {name: getattr(owner, name) for name in methods}
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for name, method in own.items():
            setattr(owner, name, method)


COPIES = {"clone", "contiguous", "copy_", "_to_copy", "_unsafe_view"}
KEEPS = {  # operations of torch that move memory but do no arithmetic
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like"),
    *("new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "fill", "fill_"),
    *("zero_", "set_", "lift_fresh"),
    *COPIES,
}
READS = ("numpy", "__array__", "tolist", "__dlpack__")  # conversions that allow computing outside torch


@dataclass(frozen=True)
class OperatorCall:
    """A call of an operator: its results, and copies of its arguments as (args, kwargs)."""

    operator: Any
    arguments: tuple[tuple[Any, ...], dict[str, Any]]
    results: Any


@dataclass
class Operators:
    """The first call of each operator that the student registered, by name, and the launches outside them.

    Arguments of a call in the backward pass need no gradients; `is_backward` is True while it runs.

    Attributes:
        made: the tensors of the forward passes by address of their memory, kept so that none is used again.
        saved: the addresses of memory that autograd saves.
        unsaved: a kernel of the backward pass and its parameter with memory of a forward pass that autograd
            does not save, or "".
    """

    calls: dict[str, OperatorCall] = field(default_factory=dict)
    outside: int = 0
    is_backward: bool = False
    made: dict[int, Any] = field(default_factory=dict)
    saved: set[int] = field(default_factory=set)
    unsaved: str = ""
    _depth: int = 0

    def note(self, results: Any) -> None:
        """Note the tensors that an operation of torch returned in a forward pass."""
        for tensor in results if isinstance(results, (tuple, list)) else (results,):
            if not self.is_backward and hasattr(tensor, "data_ptr"):
                self.made.setdefault(address_of(tensor), tensor)

    def run(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], mode: Any) -> Any:
        """Run the body of an operator in this dispatch mode and note the call."""
        from torch._C import DispatchKey, DispatchKeySet

        name = operator.name().removesuffix(".default")
        arguments = self._copied(args), {key: self._copied(value) for key, value in kwargs.items()}
        self._depth += 1
        try:
            with mode:
                results = operator.redispatch(DispatchKeySet(DispatchKey.CPU), *args, **kwargs)
        except Exception as error:
            if "may not alias" in str(error):
                seen = (
                    "returns an input, or a view of one, or one tensor twice: an operator returns new tensors"
                )
                raise NotJudged(FORM, f"{name} {seen}") from None
            if "'CPU' backend" in str(error):
                lacks = "is not registered for the CPU, on which it runs here: leave out device_types"
                raise RuntimeError(f"{name} {lacks}") from None
            if misplaced := _misplaced(operator, args):
                raise RuntimeError(f"{name} gets {misplaced}") from None
            raise
        finally:
            self._depth -= 1
        self.calls.setdefault(name, OperatorCall(operator, arguments, results))
        return results

    def _copied(self, value: Any) -> Any:
        """Return copies of tensors, also in a tuple or list, with their strides."""
        if isinstance(value, (tuple, list)):
            return type(value)(map(self._copied, value))
        if not hasattr(value, "data_ptr"):
            return value
        return value.detach().clone().requires_grad_(value.requires_grad and not self.is_backward)

    @contextmanager
    def counting_launches(self) -> Iterator[None]:
        """Count the launches of kernels outside operators within the block."""
        from triton.runtime.interpreter import InterpretedFunction

        run = InterpretedFunction.run

        def counted(kernel: Any, *args: Any, **kwargs: Any) -> Any:
            self.outside += not self._depth
            if self.is_backward and not self.unsaved:
                given = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
                tensors = {name: x for name, x in given.items() if hasattr(x, "data_ptr")}
                lost = self.made.keys() - self.saved
                names = (name for name, x in tensors.items() if address_of(x) in lost)
                self.unsaved = next((f"{kernel.fn.__name__} gets {name}" for name in names), "")
            return run(kernel, *args, **kwargs)

        with replaced(InterpretedFunction, run=counted):
            yield


def address_of(tensor: Any) -> int:
    """Return the address of the memory in which a tensor lies, which its views share."""
    return int(tensor.untyped_storage().data_ptr())


AXES = {"dO": 3, "Q": 3, "K": 3, "V": 3, "O": 3, "LSE": 2}  # of arguments with these names


def _misplaced(operator: Any, args: tuple[Any, ...]) -> str:
    """Return a clause about an argument whose number of axes does not fit its name, or ""."""
    names = [argument.name for argument in operator._schema.arguments]
    for name, x in zip(names, args, strict=False):
        if hasattr(x, "data_ptr") and x.dim() != AXES.get(name, x.dim()):
            order = f"pass tensors in the order of its arguments, {', '.join(names)}"
            return f"a tensor of shape {tuple(x.shape)} as {name}: {order}"
    return ""


def file_of(student: Callable[..., Any]) -> str:
    """Return the file, or the cell, in which a function is defined, or ""."""
    return str(getattr(getattr(student, "__code__", None), "co_filename", ""))


@contextmanager
def _torch_only_keeps(kept: set[str], operators: Operators) -> Iterator[None]:
    """Raise LibrarySolutionUsed for torch's arithmetic and for copies that are not in `kept`.

    Operators that the student registered are entered: their body follows the same rules.
    """
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class NoArithmetic(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.overloadpacket.__name__
            aliases = [part.alias_info for part in func._schema.returns]
            views = bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)
            onto_itself = name == "copy_" and args[0].data_ptr() == args[1].data_ptr()  # Triton's own
            if _is_registered(func):
                return operators.run(func, args, kwargs or {}, self)
            if not (views or onto_itself or name in kept):
                does = "copies" if name in COPIES else "computes"
                raise LibrarySolutionUsed(f"torch {does} here ({name}); let your kernels do it")
            results = func(*args, **(kwargs or {}))
            operators.note(results)
            return results

    class NoWayOut(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            if name in READS:
                raise LibrarySolutionUsed(f"{name} passes a tensor to code outside your kernels")
            return func(*args, **(kwargs or {}))

    with NoArithmetic(), NoWayOut():
        yield


def _is_registered(operator: Any) -> bool:
    """Return whether Python code registered the operator, and not in this library.

    `custom_op` has a separate table. In the other one a name is missing after its second registration.
    """
    import torch
    from torch._library import custom_ops

    name = operator.name().partition(".")[0]
    known = getattr(custom_ops, "OPDEFS", ()), getattr(torch.library, "_defs", ())
    return operator.namespace != "iocourse" and any(name in names for names in known)


def _arrays(value: Any) -> Any:
    """Return tensors as float64 arrays; a tuple stays a tuple."""
    if isinstance(value, (tuple, list)):
        return tuple(_arrays(part) for part in value)
    return value.detach().double().numpy() if hasattr(value, "data_ptr") else value


def as_shared_arrays(value: Any) -> Any:
    """Return tensors as arrays that share their memory (bfloat16 as int16 bits); a tuple stays a tuple."""
    if isinstance(value, (tuple, list)):
        return tuple(map(as_shared_arrays, value))
    if not hasattr(value, "data_ptr"):
        return value
    import torch

    tensor = value.detach()
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def words_exactly(name: str = "moves exactly the words of the closed form") -> Property:
    """Return the property that reads per input, atomics, and all reads and writes equal the closed form."""

    def judge(trial: Trial) -> str | None:
        budget = budget_of(trial)
        added, wanted = sum(trial.ledger.atomics.values()), sum(budget.atomics.values())
        if added != wanted:
            return f"adds {added:,} words atomically, expected {wanted:,}"
        for array in trial.case.inputs:
            got, want = trial.ledger.reads.get(array, 0), budget.reads.get(array, 0)
            if got != want:
                said = f"reads {got:,} words of {array}, expected {want:,}"
                return said + (_why_too_many(trial) if got > want else "")
        for verb, got, want in _totals(trial):
            if got != want:
                said = f"{verb} {got:,} words in total, expected {want:,}"
                return said + (_why_too_many(trial) if got > want else "")
        return None

    return as_traffic(each(name, judge))


def words_within(name: str, formula: str) -> Property:
    """Return the property that no more words are read and written than in the closed form.

    Fewer words are accepted with a remark that names the `formula`.
    """

    def judge(trials: Sequence[Trial]) -> str | None:
        complaint = at_most.judge(trials)
        if complaint is None and all(map(untouched, trials)):  # an array may not be needed in some case
            return untouched(trials[0])
        if complaint is None and any(t.ledger.total < budget_of(t).total for t in trials):
            return Better(f"fewer than {formula}")
        return complaint

    def too_many(trial: Trial) -> str | None:
        for verb, got, want in _totals(trial):
            if got > want:
                said = f"{verb} {got:,} words in total, expected at most {want:,}"
                return f"{_read_too_often(trial)}{said}{_why_too_many(trial)}"
        return None

    at_most = each(name, too_many)
    return as_traffic(Property(name, judge))


def _read_too_often(trial: Trial) -> str:
    """Return a clause about the first input with more words read than in the closed form."""
    counts = (
        (name, trial.ledger.reads.get(name, 0), budget_of(trial).reads.get(name, 0))
        for name in trial.case.inputs
    )
    return next(
        (f"{name}: {got:,} words instead of {want:,}; " for name, got, want in counts if got > want), ""
    )


def _totals(trial: Trial) -> tuple[tuple[str, int, int], ...]:
    """Return for reads and writes a verb, the words moved and the words of the closed form."""
    moved, budget = trial.ledger, budget_of(trial)
    return ("reads", moved.read, budget.read), ("writes", moved.written, budget.written)


def _why_too_many(trial: Trial) -> str:
    """Return a clause if several programs store the same words, or if loads wrapped around, as with `% M`,
    instead of being masked.
    """
    if not isinstance(trial, KernelTrial):
        return ""
    if trial.shared and trial.ledger.written > budget_of(trial).written:
        return f": {trial.shared}"
    wrapped = trial.wrapped
    if not wrapped:
        return ""
    times = "1 load" if wrapped == 1 else f"{wrapped:,} loads"
    return (
        f"; in {times} the addresses of a tile wrap around, as with %. A lane that wraps around moves a "
        "word, a masked lane does not"
    )


def launches_kernels(*arrays: str) -> Property:
    """Return the property that kernels load each of these inputs completely and write all returned words.

    Its message is about a case in which an input is read in part, if there is one: it names the first cause.
    """

    def judge(trials: Sequence[Trial]) -> str | None:
        some = [t for t in trials if any(0 < _words_read(t, array) < _size_of(t, array) for array in arrays)]
        return complete.judge([*some, *trials])

    def in_full(trial: Trial) -> str | None:
        for array in arrays:
            size, read = _size_of(trial, array), _words_read(trial, array)
            if read < size:
                return f"your kernels read {read:,} of {size:,} words of {array}{_never_read(trial, array)}"
        parts = trial.value if isinstance(trial.value, tuple) else (trial.value,)
        returned, wrote = sum(int(np.size(part)) for part in parts), trial.ledger.written
        return (
            None
            if wrote >= returned
            else f"{returned:,} words are returned, but your kernels wrote {wrote:,}"
        )

    complete = each("a kernel does the work", in_full)
    return as_traffic(replace(complete, judge=judge))


def _size_of(trial: Trial, array: str) -> int:
    return int(np.size(trial.case.inputs[array]))


def _words_read(trial: Trial, array: str) -> int:
    """Return how many words of an input the kernels read, each once if they load too few in total.

    Wrong addresses with the right total are a fault of the values.
    """
    read = trial.ledger.reads.get(array, 0)
    own = trial.read.get(array) if isinstance(trial, KernelTrial) else None
    too_few = trial.case.budget is None or read < budget_of(trial).reads.get(array, 0)
    return int(np.count_nonzero(own)) if too_few and own is not None and own.any() else read


def _never_read(trial: Trial, array: str) -> str:
    """Return a clause if the words that no kernel reads are the last or the first rows, or columns."""
    own = trial.read.get(array) if isinstance(trial, KernelTrial) else None
    if own is None or not own.any():
        return ""
    lines = {-1: "words"} if own.ndim == 1 else {-2: "rows", -1: "columns"}
    for axis in lines:
        there = np.moveaxis(own, axis, 0).reshape(own.shape[axis], -1)
        read = np.asarray(there.any(axis=1))
        count = int(np.count_nonzero(read))
        if not (there == read[:, None]).all():  # some rows are read in part
            continue
        for end, some, why in (
            ("last", read[:count], "ends too early"),
            ("first", read[-count:], "begins too late"),
        ):
            if some.all():
                lost = len(read) - count
                said = (
                    f"{lost} of its {len(read)} {lines[axis]} are" if lost > 1 else f"of its {lines[axis]} is"
                )
                return f": the {end} {said} never read, because a loop, a mask or the grid {why}"
    return ""


# ------------------------------------------------------------------ products of rounded factors
# Without input_precision="ieee", Triton may round the float32 factors of `tl.dot` to TF32 (11 significant
# bits) for tensor cores. The interpreter always multiplies in float32. A kernel can also round a factor
# itself, by a conversion to a narrower type or by masking bits.
LOW_BITS = 8  # of the 24 significant bits of float32
MANY = 16  # values with all low bits 0; for random values this happens once in 2^128


@dataclass
class Products:
    """The products of a block.

    rounded: per product, why its factors have fewer bits than float32, "" if not. factors: types of factors.
    wide: the student's line with the first product of float32 factors. widest: the largest number of rows or
    columns of a factor.
    """

    rounded: list[str] = field(default_factory=list)
    factors: set[str] = field(default_factory=set)
    wide: str = ""
    widest: int = 0


@contextmanager
def products_seen() -> Iterator[Products]:
    """Yield the products of the block."""
    from triton.runtime.interpreter import InterpreterBuilder

    found, multiply = Products(), InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, *rest: Any) -> Any:
        asked = str(getattr(input_precision, "name", input_precision)).upper()
        left = a.data.dtype.itemsize >= 4 and asked == "TF32"
        why = (
            'without input_precision="ieee"; a GPU then rounds the factors to 11 significant bits'
            if left
            else ""
        )
        found.rounded.append(why or _rounded_factor(a) or _rounded_factor(b))
        kinds = {str(one.get_element_ty()) for one in (a, b)}
        found.factors |= kinds
        found.widest = max(found.widest, *a.data.shape, *b.data.shape)
        if "fp32" in kinds and not found.wide:
            found.wide = line_in_progress()
        return multiply(self, a, b, d, input_precision, *rest)

    with replaced(InterpreterBuilder, create_dot=create_dot):
        yield found


def _rounded_factor(factor: Any) -> str:
    """Return why a factor of `tl.dot` has fewer than the 24 significant bits of float32, or ""."""
    if factor.data.dtype.itemsize < 4:
        return f"with a factor in {factor.get_element_ty()}, although the inputs are float32"
    values = np.unique(factor.data[np.isfinite(factor.data) & (factor.data != 0)])
    if values.dtype != np.float32 or len(values) < MANY:
        return ""
    bits = np.bitwise_or.reduce(values.view(np.uint32)) & 0x7FFFFF
    kept = 24 - (int(bits & -bits).bit_length() - 1 if bits else 23)
    return f"with a factor rounded to {kept} of 24 significant bits" if kept <= 24 - LOW_BITS else ""


def full_products() -> Property:
    """Return the property that every product of float32 inputs keeps their 24 bits, with "ieee" precision."""

    def judge(trial: Trial) -> str | None:
        rounded = trial.rounded if isinstance(trial, KernelTrial) else ()
        narrow = any(getattr(value, "dtype", None) == np.float16 for value in trial.case.inputs.values())
        if narrow or not rounded:
            return None
        times = "once" if len(rounded) == 1 else f"{len(rounded):,} times"
        return f"tl.dot was called {times} {rounded[0]}"

    return idle(each("multiplies in full float32 precision", judge))


# ------------------------------------------------------------------ loads per tile
# A load with all lanes masked moves no word. If the same load has active lanes in another iteration, the loop
# has an iteration too many, which multiplies zeros in vain. If the addresses of a tile wrap around, lanes are
# active that should be masked.
@dataclass
class Loads:
    """The loads of a block.

    Attributes:
        read: for each input, which of its words were loaded.
        on, off: number of loads with and without an active lane, per program and place in the kernel.
        wrapped: number of loads whose addresses wrap around within the tile.
        programs: number of programs of the largest launch.
    """

    read: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    on: Counter[Hashable] = field(default_factory=Counter)
    off: Counter[Hashable] = field(default_factory=Counter)
    wrapped: int = 0
    programs: int = 0

    @property
    def outside(self) -> int:
        """Number of loads with all lanes masked whose place has active lanes in another iteration."""
        return sum(times for place, times in self.off.items() if self.on[place])


@contextmanager
def _loads(inputs: Mapping[str, Any]) -> Iterator[Loads]:
    """Yield the loads of the block; `inputs` are tensors by name.

    Only loads of inputs count as active, because a first iteration may load nothing of scratch memory.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    seen, program = Loads(), 0
    rooms = []
    for name, x in inputs.items():
        words = np.zeros(x.untyped_storage().nbytes() // x.element_size(), bool)
        seen.read[name] = np.lib.stride_tricks.as_strided(words, x.shape, x.stride())
        rooms.append((x.data_ptr(), x.element_size(), words))
    load, begin = InterpreterBuilder.create_masked_load, InterpreterBuilder.set_grid_idx

    def set_grid_idx(self: Any, *at: Any) -> Any:
        nonlocal program
        program += 1
        seen.programs = max(seen.programs, prod(self.grid_dim))
        return begin(self, *at)

    def create_masked_load(self: Any, ptrs: Any, mask: Any, *rest: Any, **options: Any) -> Any:
        places, lives = np.broadcast_arrays(ptrs.data.astype(np.int64), np.asarray(mask.data, dtype=bool))
        if not lives.any():
            seen.off[program, _place_in_kernel()] += 1
        elif _mark(places[lives], rooms):
            seen.on[program, _place_in_kernel()] += 1
        seen.wrapped += any(_turns_back(places, lives, axis) for axis in range(places.ndim))
        return load(self, ptrs, mask, *rest, **options)

    with replaced(InterpreterBuilder, set_grid_idx=set_grid_idx, create_masked_load=create_masked_load):
        yield seen


def _mark(places: Any, rooms: Iterable[tuple[int, int, Any]]) -> bool:
    """Mark the words at these addresses as read; return whether the first one belongs to an input."""
    for start, width, words in rooms:
        if start <= places[0] < start + width * len(words):
            at = (places - start) // width
            words[at[(at >= 0) & (at < len(words))]] = True
            return True
    return False


def _place_in_kernel() -> Hashable:
    """Return the current place in the kernel: the chain of calls from the kernel to this load."""
    frame: FrameType | None = sys._getframe(2)
    calls = []
    while frame is not None and frame.f_code.co_qualname != "GridExecutor.__call__":
        calls.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(calls)


def _turns_back(places: Any, lives: Any, axis: int) -> bool:
    """Return whether the addresses of active lanes both increase and decrease along an axis."""
    steps = np.diff(places, axis=axis)
    size = lives.shape[axis]
    both = np.take(lives, range(1, size), axis) & np.take(lives, range(size - 1), axis)
    return bool((steps[both] > 0).any() and (steps[both] < 0).any())


def no_tile_outside() -> Property:
    """Return the property that no load in a loop is completely out of bounds."""

    def judge(trial: Trial) -> str | None:
        outside = trial.outside if isinstance(trial, KernelTrial) else 0
        if not outside:
            return None
        times = "1 load has" if outside == 1 else f"{outside:,} loads have"
        return TrafficCause(f"{times} all lanes masked, because the loop runs past the end of the array")

    return idle(each("no loop iteration is completely out of bounds", judge))


# ------------------------------------------------------------------ words that several programs store
# The interpreter runs one program after the other, so the last of them leaves its word. On a GPU any of them
# may be the last; and if all store the same value, they store it in vain.
@dataclass
class Stores:
    """The stores of a block, without atomic operations; `shared` names words that two programs store."""

    shared: str = ""
    by_program: dict[tuple[int, ...], list[NDArray[np.int64]]] = field(default_factory=dict)

    def end_launch(self, grid: tuple[int, ...]) -> None:
        """Look for words that several programs of the launch have stored, and forget its stores."""
        programs = [*self.by_program]
        places = [np.concatenate(stored) for stored in self.by_program.values()]
        self.by_program.clear()
        if self.shared or len(places) < 2:
            return
        every = np.concatenate(places)
        if len(np.unique(every)) == len(every):
            return
        own = [np.unique(stored) for stored in places]
        owners, every = np.repeat(np.arange(len(own)), [*map(len, own)]), np.concatenate(own)
        order = np.argsort(every, kind="stable")
        owners, every = owners[order], every[order]
        twice = np.flatnonzero(every[1:] == every[:-1])
        if not len(twice):
            return
        axes = max((at + 1 for at, size in enumerate(grid) if size > 1), default=1)
        one, other = (programs[owners[at]][:axes] for at in (twice[0], twice[0] + 1))
        names = f"programs {one} and {other}" if axes > 1 else f"programs {one[0]} and {other[0]}"
        rest = len(np.unique(every[twice])) - 1
        more = f" (and {rest:,} other word{'s' * (rest > 1)})" if rest else ""
        self.shared = f"{names} write the same word of {_array_at(every[twice[0]])}{more}"


def _array_at(place: np.int64) -> str:
    """Return the name of the array that is counted at this address."""
    from triton.runtime import interpreter

    return str(interpreter._interpreter.array_at(place))


@contextmanager
def _stores() -> Iterator[Stores]:
    """Yield the stores of the block, which must be counted by `traffic.count`."""
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    seen, grid, program = Stores(), (1, 1, 1), (0, 0, 0)
    store, begin = Builder.create_masked_store, Builder.set_grid_idx

    def set_grid_idx(self: Any, *at: Any) -> Any:
        nonlocal grid, program
        if not any(at):  # the first of a launch
            seen.end_launch(grid)
        grid, program = tuple(self.grid_dim), at
        return begin(self, *at)

    def create_masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        lives = np.broadcast_to(np.asarray(mask.data, dtype=bool), ptrs.data.shape)
        seen.by_program.setdefault(program, []).append(ptrs.data[lives].astype(np.int64))
        return store(self, ptrs, value, mask, *rest)

    with replaced(Builder, set_grid_idx=set_grid_idx, create_masked_store=create_masked_store):
        yield seen
    seen.end_launch(grid)


# ------------------------------------------------------------------ masked tiles
# A mask moves no word, so a kernel that masks every tile has the same result and ledger as one that masks
# only partial blocks. Only the number of tiles with a mask differs, and it can be counted: `tl.where`, or
# arithmetic of scores with numbers made from positions, such as `s + (seen - 1) * 1e30`. A mask that is
# computed and not used, which the compiler removes, and masked loads do not count.
PRODUCTS = 2  # uses of tl.dot per tile: the scores, and the product with V
POSITIONS, SCORES = 1, 2  # what the elements of a tile were made from: tl.arange, and tl.dot


@dataclass(frozen=True)
class MaskedTrial(KernelTrial):
    """A trial of a kernel, with the number of tiles on which it masked BM × BN elements."""

    masked: int = 0


@trial_from_error
def launch_and_count_masks(student: Callable[..., Any], case: Case) -> Trial:
    """Run `launch_in_place` and count the tiles on which scores are masked; the case has BM and BN.

    A tile ends with its second product, so several masks on it count once. Only results of BM · BN elements
    count; BM × d, or a row of a tile, must have another size.
    """
    scores = case.inputs["BM"] * case.inputs["BN"]
    _require_interpreter()
    with _masked_tiles(scores) as tiles:
        trial = launch_in_place(student, case)
    return MaskedTrial(**vars(trial), masked=len(tiles))


@contextmanager
def _masked_tiles(scores: int) -> Iterator[set[int]]:
    """Yield the numbers of the tiles, in the order of products, on which `scores` elements are masked.

    Each operation passes on what its operands were made from. A load, a sum and a maximum do not: their
    results depend on positions too, but are no longer a mask.

    Raises:
        CannotCount: the interpreter of this version of Triton lacks the required functions.
    """
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    if not all(hasattr(builder, f"create_{name}") for name in ("select", "dot", "make_range")):
        raise traffic.CannotCount(
            "Masks cannot be counted: this version of Triton implements tl.where or tl.dot differently."
        )
    tiles: set[int] = set()
    products = 0

    def traced(name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        own = {"create_dot": SCORES, "create_make_range": POSITIONS}.get(name, 0)

        def operate(self: Any, *given: Any, **options: Any) -> Any:
            nonlocal products
            made = operation(self, *given, **options)
            if not isinstance(made, interpreter.TensorHandle):
                return made
            # The third operand of tl.dot is what it adds to; the factors pass on no positions.
            operands = given[2:3] if own == SCORES else (*given, *options.values())
            made_from = own
            for operand in operands:
                made_from |= getattr(operand, "made_from", 0)
            vars(made)["made_from"] = made_from
            masks = name == "create_select" or made_from == POSITIONS | SCORES
            if masks and np.size(made.data) == scores:
                tiles.add(products // PRODUCTS)
            products += own == SCORES
            return made

        return operate

    operations = {
        name: traced(name, operation)
        for name, operation in vars(builder).items()
        if name.startswith("create_") and callable(operation) and not re.search("load|store|atomic", name)
    }
    with replaced(builder, **operations):
        yield tiles


def masks_only(cut_tiles: Callable[[Case], int]) -> Property:
    """Return the property that at most `cut_tiles(case)` tiles are masked."""

    def judge(trial: Trial) -> str | None:
        needed = cut_tiles(trial.case)
        if not isinstance(trial, MaskedTrial) or trial.masked <= needed:
            return None
        return (
            f"{trial.masked} tiles are masked, by tl.where or by arithmetic with positions, expected at most "
            f"{needed}: those with a masked pair"
        )

    return as_traffic(each("computes no mask for full blocks", judge))


# ------------------------------------------------------------------ single programs
# The ledger has the sum over all programs. It shows neither programs that move no words nor their order.
@dataclass
class Programs:
    """The programs of all launches.

    Attributes:
        begun: number of programs started so far.
        busy: the programs that stored a word, by number, with the address of the first one.
        products: uses of `tl.dot` per program, one list per launch.
    """

    begun: int = 0
    busy: dict[int, int] = field(default_factory=dict)
    products: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True)
class ProgramsTrial(MaskedTrial):
    """A trial of a kernel, with findings about single programs; masks are counted on request.

    Attributes:
        idle: number of programs that stored nothing.
        begun: number of programs launched.
        products: products of tiles per program in starting order, one tuple per launch.
        stores: the address of the first word that each program stores, for those that store one.
    """

    idle: int = 0
    begun: int = 0
    products: tuple[tuple[int, ...], ...] = ()
    stores: tuple[int, ...] = ()


@trial_from_error
def launch_and_count_programs(student: Callable[..., Any], case: Case) -> Trial:
    """Run `launch_in_place` and count the programs that store nothing and the products of each program."""
    return _count_programs(launch_in_place, student, case)


@trial_from_error
def launch_and_count_programs_and_masks(student: Callable[..., Any], case: Case) -> Trial:
    """Run `launch_and_count_masks` and count programs and products as `launch_and_count_programs` does."""
    return _count_programs(launch_and_count_masks, student, case)


def _count_programs(launch: RunCase, student: Callable[..., Any], case: Case) -> Trial:
    _require_interpreter()
    with _programs() as seen:
        trial = launch(student, case)
    return ProgramsTrial(
        **vars(trial),
        idle=seen.begun - len(seen.busy),
        begun=seen.begun,
        products=tuple(map(tuple, seen.products)),
        stores=tuple(seen.busy.values()),
    )


@contextmanager
def _programs() -> Iterator[Programs]:
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    seen, begin, store = Programs(), Builder.set_grid_idx, Builder.create_masked_store
    multiply = Builder.create_dot

    def set_grid_idx(self: Any, *at: Any) -> Any:
        seen.begun += 1
        if not any(at):  # the first of a launch
            seen.products.append([])
        seen.products[-1].append(0)
        return begin(self, *at)

    def create_dot(self: Any, *factors: Any, **options: Any) -> Any:
        seen.products[-1][-1] += 1
        return multiply(self, *factors, **options)

    def create_masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if np.any(mask.data):
            seen.busy.setdefault(seen.begun, int(ptrs.data[mask.data.astype(bool)].min()))
        return store(self, ptrs, value, mask, *rest)  # an unmasked store has a full mask here

    with replaced(
        Builder, set_grid_idx=set_grid_idx, create_masked_store=create_masked_store, create_dot=create_dot
    ):
        yield seen


def nothing_in_vain(name: str = "every program stores part of the result") -> Property:
    """Return the property that every program stores at least one word."""

    def judge(trial: Trial) -> str | None:
        if not isinstance(trial, ProgramsTrial) or not trial.idle:
            return None
        return f"{trial.idle:,} of your {trial.begun:,} programs store nothing"

    return idle(each(name, judge))


def heavy_first() -> Property:
    """Return the property that programs with more products of tiles start first."""

    def judge(trial: Trial) -> str | None:
        for products in trial.products if isinstance(trial, ProgramsTrial) else ():
            for at, (one, after) in enumerate(pairwise(products)):
                if one < after:
                    return f"program {at} computes {one} products of tiles, but program {at + 1}, {after}"
        return None

    return idle(each("programs with more blocks start first", judge))


# ------------------------------------------------------------------ programs in another order
# The interpreter runs the programs of a launch one after the other, in order. A GPU runs many at the same
# time, in any order. A result that depends on the stores of an earlier program is wrong on a GPU; running the
# programs in reverse order shows this in the interpreter.
WAITS = 50_000  # loads and atomic operations of one program: more than in any kernel of the lessons


@contextmanager
def programs_reversed() -> Iterator[None]:
    """Run the programs of each launch in reverse order within the block.

    A program that waits for a later one would never end. It raises RuntimeError after WAITS loads and atomic
    operations.
    """
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    begin, asked = Builder.set_grid_idx, 0

    def set_grid_idx(self: Any, *at: int) -> Any:
        nonlocal asked
        asked = 0
        return begin(self, *(count - 1 - i for count, i in zip(self.grid_dim, at, strict=True)))

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def asks(self: Any, *given: Any, **options: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked > WAITS:
                raise RuntimeError("a program waits for another one that has not started")
            return method(self, *given, **options)

        return asks

    memory = ("create_masked_load", "create_atomic_cas", "create_atomic_rmw")
    waiting = {name: counted(getattr(Builder, name)) for name in memory}
    with replaced(Builder, set_grid_idx=set_grid_idx, **waiting):
        yield


def any_order(tolerance: Callable[[Case], float]) -> Property:
    """Return the property that programs in reverse order give the same results up to the case's tolerance,
    and that no two programs of a launch store the same word.

    The order is tested on the smallest correct case with several programs, and not reached without one.
    """

    def judge(trials: Sequence[Trial]) -> str | None:
        for trial in trials:
            if isinstance(trial, KernelTrial) and trial.shared:
                rule = "in one launch each word must be stored by one program"
                return FirstCause(f"{trial.shared}: {rule} ({trial.case.label})")
        several = [t for t in trials if isinstance(t, KernelTrial) and t.programs > 1 and t.reversed]
        for trial in sorted(several, key=_size):
            allowed = tolerance(trial.case)
            if is_right(trial, allowed) is None:
                return _after(trial, trial.reversed(), allowed)  # type: ignore[misc]
        return NotReached("no result of several programs is correct") if several else None

    return Property("does not depend on the order of programs", judge, idle=True)


def _size(trial: Trial) -> int:
    """Return the number of words of all inputs."""
    return sum(int(np.size(value)) for value in trial.case.inputs.values())


def _after(trial: Trial, other: Trial, tolerance: float) -> str | None:
    """Return the difference between `trial` and `other`, which ran its programs in reverse order."""
    if other.error is not None:
        seen = f"it ends with {error_text(other.error)}"
    else:
        seen = is_right(replace(other, case=replace(trial.case, expected=trial.value)), tolerance) or ""
    if not seen:
        return None
    return (
        f"with the last program first, {seen} ({trial.case.label}). A GPU runs programs at the same time and "
        "in any order, so no program may read a word that another one writes in the same launch"
    )
