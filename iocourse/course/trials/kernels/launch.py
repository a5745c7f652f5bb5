"""Trying a student's Triton kernels: their values, and the words that their loads and stores move.

The student's function takes torch tensors, launches kernels of its own and returns a tensor or several. It
runs in Triton's interpreter, on the CPU, under `traffic.count`: what torch computes by itself moves no word
in that ledger, so an answer that leaves the work to torch has values and no traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .... import traffic
from ....doctor.triton_missing import require_triton
from ....solution_guard import LibrarySolutionUsed
from ...exercise import Case, Property, Trial, modified_inputs_error, snapshot, student_call, trial_from_error
from ...properties import budget_of, each, idle
from .compile_check import launches_noted
from .dot_precision import KernelTrial, products_watched
from .kernel_errors import told_by_line


@trial_from_error
def launch(student: Callable[..., Any], case: Case, *, copies: bool = True) -> Trial:
    """Call a launcher on fresh tensors made from the case's arrays, by position; other inputs go as they are.

    A tensor has the strides of its array, and NaN lies between its elements and in all memory that the
    student asks for: what a kernel should not have read, or forgot to write, shows in the values. Words of
    the inputs are filed under the names the case gives them, those of the student's own tensors under the
    names of the kernel's parameters. A lane that is off and was given no `other` holds NaN: Triton promises
    nothing about it. torch may hand out, fill, view and (unless `copies` is False) copy memory; where it
    computes, it is refused, and so are kernels that change an input.
    """
    require_triton()
    given = {name: _tensor(value) for name, value in case.inputs.items()}
    arrays = {name: value for name, value in given.items() if hasattr(value, "data_ptr")}
    with kernels_compute(copies=copies), products_watched() as products, traffic.count(**arrays) as ledger:
        value = student(*given.values())
    changed = [name for name, tensor in arrays.items() if not _holds(tensor, case.inputs[name])]
    if changed:
        raise modified_inputs_error(changed, "your kernels write into")
    shared = where_they_lie(value)
    kept = (snapshot(shared), shared)
    return KernelTrial(case, _arrays(value), ledger, returned=kept, rounded=products.rounded)


def launch_in_place(student: Callable[..., Any], case: Case) -> Trial:
    """`launch` where torch must not copy either: a kernel reads its inputs where they lie."""
    return launch(student, case, copies=False)


@contextmanager
def kernels_compute(*, copies: bool = True) -> Iterator[None]:
    """What a student calls in this block is judged: torch hands out memory of NaN and computes nothing.

    Where it ends without an error, what was launched must compile.
    """
    with (
        launches_noted() as launches,
        told_by_line(),
        student_call(),
        _fresh_memory_is_nan(),
        _lanes_off_are_nan(),
        _torch_only_keeps(KEEPS if copies else KEEPS - COPIES),
    ):
        yield
    launches.compile()


def _tensor(value: Any) -> Any:
    """A tensor of the array's values and strides, in memory of its own; anything else as it is."""
    if not isinstance(value, np.ndarray):
        return value
    import torch

    steps = [step // value.itemsize for step in value.strides]
    reach = 1 + sum((n - 1) * step for n, step in zip(value.shape, steps, strict=True)) if value.size else 0
    blank = np.nan if value.dtype.kind == "f" else 0
    memory = torch.from_numpy(np.full(reach, blank, value.dtype)).as_strided(value.shape, steps)
    return memory.copy_(torch.from_numpy(np.ascontiguousarray(value)))


def _holds(tensor: Any, array: np.ndarray) -> bool:
    return np.array_equal(tensor.numpy(), array, equal_nan=array.dtype.kind == "f")


@contextmanager
def _fresh_memory_is_nan() -> Iterator[None]:
    """torch.empty and its like give NaN, not what happens to lie there: perhaps an earlier right answer."""
    import torch

    mode = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)


@contextmanager
def _lanes_off_are_nan() -> Iterator[None]:
    """What a masked load without `other` holds in lanes that are off; the interpreter's own choice is 0."""
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _get_np_dtype

    load = InterpreterBuilder.create_masked_load

    def create_masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        element = ptrs.get_element_ty()
        dtype = np.dtype(_get_np_dtype(element))
        if other is None and dtype.kind == "f":
            other = TensorHandle(np.full(np.shape(ptrs.data), np.nan, dtype), element)
        return load(self, ptrs, mask, other, *rest, **options)

    InterpreterBuilder.create_masked_load = create_masked_load
    try:
        yield
    finally:
        InterpreterBuilder.create_masked_load = load


COPIES = {"clone", "contiguous", "copy_", "_to_copy", "_unsafe_view"}
KEEPS = {  # what torch does with memory, and no arithmetic
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "zeros", "zeros_like"),
    *("new_zeros", "ones", "ones_like", "new_ones", "full", "full_like", "new_full", "fill", "fill_"),
    *("zero_", "set_", "lift_fresh"),
    *COPIES,
}
READS = ("numpy", "__array__", "tolist", "__dlpack__")  # ways out of torch, to compute elsewhere


@contextmanager
def _torch_only_keeps(kept: set[str]) -> Iterator[None]:
    """torch's arithmetic, and a copy not `kept`, raise LibrarySolutionUsed here; memory and views are
    given.
    """
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class NoArithmetic(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = func.overloadpacket.__name__
            aliases = [part.alias_info for part in func._schema.returns]
            views = bool(aliases) and all(alias is not None and not alias.is_write for alias in aliases)
            onto_itself = name == "copy_" and args[0].data_ptr() == args[1].data_ptr()  # Triton's own
            if not (views or onto_itself or name in kept):
                does = "copies" if name in COPIES else "computes"
                raise LibrarySolutionUsed(f"torch {does} here ({name}), where your kernels should")
            return func(*args, **(kwargs or {}))

    class NoWayOut(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            if name in READS:
                raise LibrarySolutionUsed(f"a tensor's {name} hands it to something other than your kernels")
            return func(*args, **(kwargs or {}))

    with NoArithmetic(), NoWayOut():
        yield


def _arrays(value: Any) -> Any:
    """Tensors as float64 arrays; a tuple stays a tuple."""
    if isinstance(value, (tuple, list)):
        return tuple(_arrays(part) for part in value)
    return value.detach().double().numpy() if hasattr(value, "data_ptr") else value


def where_they_lie(value: Any) -> Any:
    """Tensors as arrays in the same memory, bfloat16 by its bits; a tuple stays a tuple."""
    if isinstance(value, (tuple, list)):
        return tuple(map(where_they_lie, value))
    if not hasattr(value, "data_ptr"):
        return value
    import torch

    tensor = value.detach()
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def words_exactly(name: str = "loads and stores move exactly what the formula says") -> Property:
    """Reads of every input, and all reads and writes together, equal the closed form of the case."""

    def judge(trial: Trial) -> str | None:
        budget = budget_of(trial)
        for array in trial.case.inputs:
            got, want = trial.ledger.reads.get(array, 0), budget.reads.get(array, 0)
            if got != want:
                return f"{array}: yours reads {got:,} words, the formula says {want:,}"
        return _compared("reads", trial.ledger.read, budget.read) or _compared(
            "writes", trial.ledger.written, budget.written
        )

    return idle(each(name, judge))


def _compared(verb: str, got: int, want: int) -> str | None:
    return None if got == want else f"yours {verb} {got:,} words in all, the formula says {want:,}"


def launches_kernels(*arrays: str) -> Property:
    """Kernels load every input named in full, and write at least as much as is returned."""

    def judge(trial: Trial) -> str | None:
        for array in arrays:
            size, read = int(np.size(trial.case.inputs[array])), trial.ledger.reads.get(array, 0)
            if read < size:
                return f"{array} has {size:,} words, your kernels read {read:,}"
        parts = trial.value if isinstance(trial.value, tuple) else (trial.value,)
        returned, wrote = sum(int(np.size(part)) for part in parts), trial.ledger.written
        return None if wrote >= returned else f"you return {returned:,} words, your kernels wrote {wrote:,}"

    return idle(each("a kernel does the work", judge))
