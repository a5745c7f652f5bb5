"""Trying a student's Triton kernels: their values, and the words that their loads and stores move.

The student's function takes torch tensors, launches kernels of its own and returns a tensor or several. It
runs in Triton's interpreter, on the CPU, under `traffic.count`: what torch computes by itself moves no word
in that ledger, so an answer that leaves the work to torch has values and no traffic.

Further down is what neither values nor words show, counted by variants of `launch`: products of rounded
factors, tiles that are masked, and programs that store nothing or begin in the wrong order.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import prod
from types import FrameType
from typing import Any

import numpy as np

from ... import traffic
from ...doctor.triton_missing import require_triton
from ...errors import error_text
from ...solution_guard import LibrarySolutionUsed
from ..exercise import (
    Better,
    Case,
    Property,
    Trial,
    differs,
    modified_inputs_error,
    snapshot,
    student_call,
    trial_from_error,
)
from ..properties import budget_of, each, idle, is_right
from .compile_check import record_launches
from .kernel_errors import name_failing_line


@dataclass(frozen=True)
class KernelTrial(Trial):
    """A trial of kernels, why products were made of rounded factors, and what was odd about loads.

    `rounded` has a reason for each such product; `outside` counts loads of a loop that have no lane on,
    `wrapped` loads whose addresses turn back within the tile. `programs` is the number of programs of the
    largest launch, and `reversed` tries the same case again with all programs in reverse order.
    """

    rounded: tuple[str, ...] = ()
    outside: int = 0
    wrapped: int = 0
    programs: int = 0
    reversed: Callable[[], Trial] | None = None


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
    with (
        kernels_compute(copies=copies),
        _rounded_products() as rounded,
        _loads(arrays.values()) as loads,
        traffic.count(**arrays) as ledger,
    ):
        value = student(*given.values())
    changed = [name for name, tensor in arrays.items() if differs(case.inputs[name], tensor.numpy())]
    if changed:
        raise modified_inputs_error(changed, "your kernels write into")
    shared = as_shared_arrays(value)
    kept = (snapshot(shared), shared)
    return KernelTrial(
        case,
        _arrays(value),
        ledger,
        returned=kept,
        rounded=tuple(filter(None, rounded)),
        outside=loads.outside,
        wrapped=loads.wrapped,
        programs=loads.programs,
        reversed=lambda: _in_reverse(student, case, copies),
    )


def _in_reverse(student: Callable[..., Any], case: Case, copies: bool) -> Trial:
    with programs_reversed():
        return launch(student, case, copies=copies)


def launch_in_place(student: Callable[..., Any], case: Case) -> Trial:
    """`launch` where torch must not copy either: a kernel reads its inputs where they lie."""
    return launch(student, case, copies=False)


@contextmanager
def kernels_compute(*, copies: bool = True) -> Iterator[None]:
    """What a student calls in this block is judged: torch hands out memory of NaN and computes nothing.

    Where it ends without an error, what was launched must compile.
    """
    with (
        record_launches() as launches,
        name_failing_line(),
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
    from triton.language.semantic import TritonSemantic
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle, _get_np_dtype

    load, asked, given = InterpreterBuilder.create_masked_load, TritonSemantic._load_legacy, False

    def _load_legacy(self: Any, ptr: Any, mask: Any, other: Any, *rest: Any) -> Any:
        nonlocal given
        given = other is not None  # Triton drops it where its only lane is 0, as it asks for its truth
        return asked(self, ptr, mask, other, *rest)

    def create_masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **options: Any) -> Any:
        element = ptrs.get_element_ty()
        dtype = np.dtype(_get_np_dtype(element))
        if other is None and not given and dtype.kind == "f":
            other = TensorHandle(np.full(np.shape(ptrs.data), np.nan, dtype), element)
        return load(self, ptrs, mask, other, *rest, **options)

    with (
        _replaced(InterpreterBuilder, create_masked_load=create_masked_load),
        _replaced(TritonSemantic, _load_legacy=_load_legacy),
    ):
        yield


@contextmanager
def _replaced(owner: Any, **methods: Any) -> Iterator[None]:
    """In this block the class has these methods in place of its own."""
    own = {name: getattr(owner, name) for name in methods}
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for name, method in own.items():
            setattr(owner, name, method)


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


def as_shared_arrays(value: Any) -> Any:
    """Tensors as arrays in the same memory, bfloat16 by its bits; a tuple stays a tuple."""
    if isinstance(value, (tuple, list)):
        return tuple(map(as_shared_arrays, value))
    if not hasattr(value, "data_ptr"):
        return value
    import torch

    tensor = value.detach()
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def words_exactly(name: str = "moves exactly the words of the closed form") -> Property:
    """Reads of every input, atomic additions, and all reads and writes equal the closed form of the case."""

    def judge(trial: Trial) -> str | None:
        budget = budget_of(trial)
        added, wanted = sum(trial.ledger.atomics.values()), sum(budget.atomics.values())
        if added != wanted:
            return f"yours adds {added:,} words atomically, the formula says {wanted:,}"
        for array in trial.case.inputs:
            got, want = trial.ledger.reads.get(array, 0), budget.reads.get(array, 0)
            if got != want:
                said = f"{array}: yours reads {got:,} words, the formula says {want:,}"
                return said + (_turning_back(trial) if got > want else "")
        return _compared("reads", trial.ledger.read, budget.read) or _compared(
            "writes", trial.ledger.written, budget.written
        )

    return idle(each(name, judge))


def words_within(name: str, formula: str) -> Property:
    """No more is read, and no more written, than the closed form says; less is accepted with a remark."""

    def judge(trials: Sequence[Trial]) -> str | None:
        complaint = at_most.judge(trials)
        if complaint is None and any(t.ledger.total < budget_of(t).total for t in trials):
            return Better(f"fewer than {formula}")
        return complaint

    def too_many(trial: Trial) -> str | None:
        budget = budget_of(trial)
        for verb, got, want in (
            ("reads", trial.ledger.read, budget.read),
            ("writes", trial.ledger.written, budget.written),
        ):
            if got > want:
                said = f"yours {verb} {got:,} words in all, the formula says {want:,}"
                return f"{_read_too_often(trial)}{said}{_turning_back(trial)}"
        return None

    at_most = each(name, too_many)
    return Property(name, judge, idle=True)


def _read_too_often(trial: Trial) -> str:
    """A clause about the first input of which more words were read than it has in the closed form."""
    counts = (
        (name, trial.ledger.reads.get(name, 0), budget_of(trial).reads.get(name, 0))
        for name in trial.case.inputs
    )
    return next((f"{name}: {got:,} words for {want:,}; " for name, got, want in counts if got > want), "")


def _turning_back(trial: Trial) -> str:
    """A clause where loads wrapped around, as in `% M`, in place of a mask."""
    wrapped = trial.wrapped if isinstance(trial, KernelTrial) else 0
    if not wrapped:
        return ""
    times = "1 load" if wrapped == 1 else f"{wrapped:,} loads"
    return (
        f"; in {times} the addresses of a tile wrap around, as by %: a lane that wraps is live and moves its "
        "word, a masked lane moves none"
    )


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


# ------------------------------------------------------------------ products of rounded factors
# Where `tl.dot` is not asked for "ieee", Triton may round float32 factors to tf32, with 11 significant bits,
# for the sake of tensor cores. The interpreter multiplies in float32 whatever it is asked for. And a kernel
# can round a factor itself: to a narrower type, or by its bits.
LOW_BITS = 8  # of the 24 significant bits of float32
MANY = 16  # values whose low bits are all 0: among normal numbers that happens once in 2^128


@contextmanager
def _rounded_products() -> Iterator[list[str]]:
    """For each product made in this block, why its factors have fewer bits than float32; "" where not."""
    from triton.runtime.interpreter import InterpreterBuilder

    rounded, multiply = list[str](), InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, *rest: Any) -> Any:
        asked = str(getattr(input_precision, "name", input_precision)).upper()
        left = a.data.dtype.itemsize >= 4 and asked == "TF32"
        why = 'without input_precision="ieee": a GPU rounds to 11 significant bits there' if left else ""
        rounded.append(why or _rounded_factor(a) or _rounded_factor(b))
        return multiply(self, a, b, d, input_precision, *rest)

    with _replaced(InterpreterBuilder, create_dot=create_dot):
        yield rounded


def _rounded_factor(factor: Any) -> str:
    """Why a factor of `tl.dot` has fewer than the 24 significant bits of float32; "" where it has them."""
    if factor.data.dtype.itemsize < 4:
        return f"with a factor in {factor.get_element_ty()}: its inputs are float32"
    values = np.unique(factor.data[np.isfinite(factor.data) & (factor.data != 0)])
    if values.dtype != np.float32 or len(values) < MANY:
        return ""
    bits = np.bitwise_or.reduce(values.view(np.uint32)) & 0x7FFFFF
    kept = 24 - (int(bits & -bits).bit_length() - 1 if bits else 23)
    return f"with a factor rounded to {kept} of 24 significant bits" if kept <= 24 - LOW_BITS else ""


def full_products() -> Property:
    """No product of float32 tiles has rounded factors, nor leaves it to Triton to round them."""

    def judge(trial: Trial) -> str | None:
        rounded = trial.rounded if isinstance(trial, KernelTrial) else ()
        if not rounded:
            return None
        times = "once" if len(rounded) == 1 else f"{len(rounded):,} times"
        return f"tl.dot was called {times} {rounded[0]}"

    return idle(each("multiplies in full float32 precision", judge))


# ------------------------------------------------------------------ loads, tile by tile
# A load whose mask has no lane on moves no word. Where it stands in a loop and is on in another round, the
# loop has a round too many, with products of zeros in it. A tile of an address that turns back has all its
# lanes on where a mask should have some off.
@dataclass
class Loads:
    """The loads of a block: by program and place in the kernel, how many had a lane on and how many none; in
    how many the addresses turn back within the tile; and the most programs of a launch.
    """

    on: Counter[Hashable] = field(default_factory=Counter)
    off: Counter[Hashable] = field(default_factory=Counter)
    wrapped: int = 0
    programs: int = 0

    @property
    def outside(self) -> int:
        """Loads without a lane on whose place in the kernel has lanes on in other rounds of the program."""
        return sum(times for place, times in self.off.items() if self.on[place])


@contextmanager
def _loads(inputs: Iterable[Any]) -> Iterator[Loads]:
    """The loads of a block. Lanes count as on where they load one of the inputs: of its own scratch memory a
    kernel may load nothing in a first round, which has nothing there yet.
    """
    from triton.runtime.interpreter import InterpreterBuilder

    seen, program = Loads(), 0
    rooms = [(x.data_ptr(), x.data_ptr() + x.untyped_storage().nbytes()) for x in inputs]
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
        elif any(start <= places[lives][0] < end for start, end in rooms):
            seen.on[program, _place_in_kernel()] += 1
        seen.wrapped += any(_turns_back(places, lives, axis) for axis in range(places.ndim))
        return load(self, ptrs, mask, *rest, **options)

    with _replaced(InterpreterBuilder, set_grid_idx=set_grid_idx, create_masked_load=create_masked_load):
        yield seen


def _place_in_kernel() -> Hashable:
    """Where the program stands: the calls from its kernel down to here."""
    frame: FrameType | None = sys._getframe(2)
    calls = []
    while frame is not None and frame.f_code.co_qualname != "GridExecutor.__call__":
        calls.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(calls)


def _turns_back(places: Any, lives: Any, axis: int) -> bool:
    """Whether the addresses of lanes that are on both rise and fall along an axis."""
    steps = np.diff(places, axis=axis)
    size = lives.shape[axis]
    both = np.take(lives, range(1, size), axis) & np.take(lives, range(size - 1), axis)
    return bool((steps[both] > 0).any() and (steps[both] < 0).any())


def no_tile_outside() -> Property:
    """No loop has a round in which it loads a tile that lies wholly outside its array."""

    def judge(trial: Trial) -> str | None:
        outside = trial.outside if isinstance(trial, KernelTrial) else 0
        if not outside:
            return None
        times = "1 load of a loop has" if outside == 1 else f"{outside:,} loads of a loop have"
        return f"{times} no lane that is on: the loop has rounds outside its array"

    return idle(each("no loop iteration is completely out of bounds", judge))


# ------------------------------------------------------------------ tiles that are masked
# A mask moves no word: a kernel that masks every tile has the values and the ledger of one that masks only
# where a pair is hidden. What differs is `tl.where` on whole tiles, and that can be counted.
PRODUCTS = 2  # uses of tl.dot on one tile: scores, and what its values add to the output


@dataclass(frozen=True)
class MaskedTrial(KernelTrial):
    """A trial of a kernel, and for how many tiles it chose between two values for all BM × BN scores."""

    masked: int = 0


@trial_from_error
def launch_and_count_masks(student: Callable[..., Any], case: Case) -> Trial:
    """`launch_in_place`, with the tiles counted on which `tl.where` works; the case says BM and BN.

    A tile is told from the next by its two products, so it may use tl.where as often as it likes. Counted is
    what has BM · BN elements: BM × d, or a row of a tile, must be of another size. Hiding pairs by
    arithmetic, without tl.where, is not seen.
    """
    scores = case.inputs["BM"] * case.inputs["BN"]
    require_triton()
    with _masked_tiles(scores) as tiles:
        trial = launch_in_place(student, case)
    return MaskedTrial(**vars(trial), masked=len(tiles))


@contextmanager
def _masked_tiles(scores: int) -> Iterator[set[int]]:
    """The number, in the order of their products, of each tile on which `tl.where` gave so many elements.

    Raises:
        CannotCount: this Triton has no such functions in its interpreter.
    """
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    choose, multiply = getattr(builder, "create_select", None), getattr(builder, "create_dot", None)
    if choose is None or multiply is None:
        raise traffic.CannotCount(
            "this triton keeps its tl.where or its tl.dot elsewhere: masks cannot be counted"
        )
    tiles: set[int] = set()
    products = 0

    def create_dot(self: Any, *factors: Any, **options: Any) -> Any:
        nonlocal products
        products += 1
        return multiply(self, *factors, **options)

    def create_select(self: Any, condition: Any, one: Any, other: Any) -> Any:
        chosen = choose(self, condition, one, other)
        if np.size(chosen.data) == scores:
            tiles.add(products // PRODUCTS)
        return chosen

    with _replaced(builder, create_select=create_select, create_dot=create_dot):
        yield tiles


def masks_only(cut_tiles: Callable[[Case], int]) -> Property:
    """tl.where is used on no more tiles than those that need it, as `cut_tiles` counts them for a case."""

    def judge(trial: Trial) -> str | None:
        needed = cut_tiles(trial.case)
        if not isinstance(trial, MaskedTrial) or trial.masked <= needed:
            return None
        return f"{needed} tiles hold a hidden pair, and tl.where works on {trial.masked}"

    return idle(each("computes no mask for full blocks", judge))


# ------------------------------------------------------------------ what each program does
# The ledger adds up the words of all programs: it sees neither those that move none, nor which comes first.
@dataclass
class Programs:
    """The programs of all launches, numbered as they begin; those among them that stored a word; for each
    launch, how often `tl.dot` was used in each.
    """

    begun: int = 0
    busy: set[int] = field(default_factory=set)
    products: list[list[int]] = field(default_factory=list)


@dataclass(frozen=True)
class ProgramsTrial(KernelTrial):
    """A trial of a kernel, how many programs were launched and stored nothing, and for each launch how many
    products of tiles each program made, as they began.
    """

    idle: int = 0
    begun: int = 0
    products: tuple[tuple[int, ...], ...] = ()


@trial_from_error
def launch_and_count_programs(student: Callable[..., Any], case: Case) -> Trial:
    """`launch_in_place`, with the programs counted that store no word, and the products of each."""
    require_triton()
    with _programs() as seen:
        trial = launch_in_place(student, case)
    return ProgramsTrial(
        **vars(trial),
        idle=seen.begun - len(seen.busy),
        begun=seen.begun,
        products=tuple(map(tuple, seen.products)),
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
            seen.busy.add(seen.begun)
        return store(self, ptrs, value, mask, *rest)  # an unmasked store comes here too, with a full mask

    with _replaced(
        Builder, set_grid_idx=set_grid_idx, create_masked_store=create_masked_store, create_dot=create_dot
    ):
        yield seen


def nothing_in_vain(name: str = "every program stores part of the result") -> Property:
    """Each program stores a word at least."""

    def judge(trial: Trial) -> str | None:
        if not isinstance(trial, ProgramsTrial) or not trial.idle:
            return None
        return f"{trial.idle:,} of your {trial.begun:,} programs store nothing"

    return idle(each(name, judge))


def heavy_first() -> Property:
    """Programs begin in the order of their products of tiles, most first."""

    def judge(trial: Trial) -> str | None:
        for products in trial.products if isinstance(trial, ProgramsTrial) else ():
            for at, (one, after) in enumerate(pairwise(products)):
                if one < after:
                    return f"program {at} makes {one} products of tiles, and program {at + 1} makes {after}"
        return None

    return idle(each("programs with more blocks start first", judge))


# ------------------------------------------------------------------ programs in another order
# The interpreter runs the programs of a launch one after the other, the first first. A GPU runs as many at
# the same time as have room, in any order. What is right only because an earlier program has stored its
# words is wrong there, and in reverse order it is wrong here.
WAITS = 50_000  # loads of one program, and its atomic operations: more than any kernel of a lesson makes


@contextmanager
def programs_reversed() -> Iterator[None]:
    """In this block each launch runs its last program first.

    A program that waits for one which comes later would never end here: it raises RuntimeError after WAITS
    loads and atomic operations.
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
                raise RuntimeError("a program waits for one that has not begun")
            return method(self, *given, **options)

        return asks

    memory = ("create_masked_load", "create_atomic_cas", "create_atomic_rmw")
    waiting = {name: counted(getattr(Builder, name)) for name in memory}
    with _replaced(Builder, set_grid_idx=set_grid_idx, **waiting):
        yield


def any_order(tolerance: Callable[[Case], float]) -> Property:
    """In reverse order the programs give the same results, up to the tolerance of a case.

    Asked of the smallest case with several programs where the values are right: wrong ones tell nothing.
    """

    def judge(trials: Sequence[Trial]) -> str | None:
        several = [t for t in trials if isinstance(t, KernelTrial) and t.programs > 1 and t.reversed]
        for trial in sorted(several, key=_size):
            allowed = tolerance(trial.case)
            if is_right(trial, allowed) is None:
                return _after(trial, trial.reversed(), allowed)  # type: ignore[misc]
        return None

    return Property("does not depend on the order of programs", judge, idle=True)


def _size(trial: Trial) -> int:
    """The words of all inputs together."""
    return sum(int(np.size(value)) for value in trial.case.inputs.values())


def _after(trial: Trial, other: Trial, tolerance: float) -> str | None:
    """What differs where the programs of `trial` ran in reverse order, in `other`."""
    if other.error is not None:
        seen = f"it ends with {error_text(other.error)}"
    else:
        seen = is_right(replace(other, case=replace(trial.case, expected=trial.value)), tolerance) or ""
    if not seen:
        return None
    return (
        f"with the last program first, {seen} ({trial.case.label}). A GPU runs programs at the same time and "
        "in any order: none may read what another one writes in the same launch"
    )
