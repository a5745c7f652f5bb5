"""Count the words that Triton kernels load and store, in Triton's interpreter, and return them as a Ledger.

Every load, store and atomic of an interpreted kernel, by pointer or by descriptor, calls one of four
functions of Triton's interpreter. `count` replaces them by a proxy that reads the addresses and the mask and
counts each word for the tensor it belongs to. Masked lanes move nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .doctor.triton_missing import require_triton
from .ledger import Ledger

__all__ = ["HOOKS", "OTHER", "CannotCount", "OutsideEveryArray", "count"]

OTHER = "<other>"  # words outside the tensors that were named or passed to a kernel
HOOKS = ("load", "store", "atomic_rmw", "atomic_cas")


class CannotCount(RuntimeError):
    """Launches cannot be counted in this process; the message has the reason and a remedy."""


class OutsideEveryArray(IndexError):
    """A kernel accessed an address outside its arrays; the access was not executed."""


@contextmanager
def count(**tensors: Any) -> Iterator[Ledger]:
    """Context manager: count the words (elements) that Triton kernels read and write inside its block.

    Only loads, stores and atomics of Triton kernels are counted, not work that torch does itself, such as
    filling an array with zeros.

    Args:
        tensors: CPU tensors, by their name in the ledger. A tensor that is not named here has the name of the
            kernel's parameter, and is kept alive until the block ends.

    Yields:
        A `Ledger` with reads, writes, atomics and sizes in words, and `itemsizes` in bytes per word. Its peak
        is 0, because the compiler determines what a program keeps (see `iocourse.gpu.compilation`).

    Raises:
        TritonMissing: torch or triton is missing.
        CannotCount: kernels are compiled in this process, or this version of Triton is not supported.
        OutsideEveryArray: a load, store or atomic is out of bounds of every array, for example because a mask
            is missing (raised inside the kernel, so Triton reports it as an InterpreterError).
        TypeError: an argument is not a tensor, or the grid of a launch is neither a tuple nor a function.
    """
    interpreter, jit = _interpreter()
    ledger = Ledger(measured=True)
    arrays = _Arrays(ledger)
    for name, tensor in tensors.items():
        if not hasattr(tensor, "data_ptr"):
            raise TypeError(f"{name} must be a torch tensor, got {type(tensor).__name__}")
        arrays.add(name, tensor)
    interpreted = interpreter.InterpretedFunction
    changes = [
        (interpreter, "_interpreter", _Proxy(interpreter._interpreter, arrays)),
        (interpreted, "run", _naming(interpreted.run, arrays)),
        (jit.JITFunction, "run", _refuse),
    ]
    before = [(place, name, getattr(place, name)) for place, name, _ in changes]
    try:
        for place, name, value in changes:
            setattr(place, name, value)
        yield ledger
    finally:
        for place, name, value in before:
            setattr(place, name, value)


def _interpreter() -> tuple[Any, Any]:
    """Return Triton's modules interpreter and jit, patched. Raises CannotCount or TritonMissing."""
    require_triton()
    try:
        from triton import knobs
        from triton.runtime import interpreter, jit

        from .doctor.fast_interpreter import patch_interpreter
    except ImportError as error:
        raise CannotCount(str(error)) from None
    native = getattr(interpreter, "_interpreter", None)
    absent = [name for name in HOOKS if not hasattr(native, name)]
    if absent:
        raise CannotCount(
            f"this version of triton cannot be counted: its interpreter lacks {', '.join(absent)}"
        )
    if not knobs.runtime.interpret:
        raise CannotCount(_HOW)
    patch_interpreter()
    return interpreter, jit


_HOW = (
    "kernels are compiled in this process, and only interpreted kernels can be counted. Start a new process "
    "with TRITON_INTERPRET=1 set before triton or iocourse.kernels is imported, and use CPU tensors"
)


def _refuse(*_: Any, **__: Any) -> None:
    raise CannotCount(_HOW)


def _naming(run: Callable[..., Any], arrays: _Arrays) -> Callable[..., Any]:
    """Return a `run` of an interpreted kernel that first registers its tensors under the parameter names."""

    @wraps(run)
    def run_named(self: Any, *args: Any, **kwargs: Any) -> Any:
        grid = kwargs.get("grid")
        if not (isinstance(grid, tuple) or callable(grid)):
            wanted = f"({grid},)" if isinstance(grid, int) else "a tuple"
            raise TypeError(
                f"a grid is a tuple of numbers of programs, one per axis: write {wanted}, not {grid!r}"
            )
        for name, value in [*zip(self.arg_names, args, strict=False), *kwargs.items()]:
            for part, tensor in _tensors(name, value):
                arrays.add_unless_known(part, tensor)
        return run(self, *args, **kwargs)

    return run_named


def _tensors(name: str, value: Any) -> list[tuple[str, Any]]:
    """Return the tensors of an argument with their names.

    Several tensors in a NamedTuple have the names of its fields; a single one has the name of the argument.
    """
    fields = getattr(value, "_fields", None)
    parts = zip(fields, value, strict=True) if fields else [(name, value)]
    bases = [(part, one.base if hasattr(one, "block_shape") else one) for part, one in parts]
    found = [(part, tensor) for part, tensor in bases if hasattr(tensor, "data_ptr")]
    return [(name, found[0][1])] if len(found) == 1 else found


class _Proxy:
    """Proxy of Triton's interpreter that counts the calls of the four functions that access memory."""

    def __init__(self, native: Any, arrays: _Arrays) -> None:
        self._native = native
        self._arrays = arrays

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def array_at(self, address: Any) -> str:
        """Return the name of the tensor that has a word at this address."""
        return self._arrays._owner(np.array([address]), 1)[0]

    def load(self, ptrs: Any, mask: Any, other: Any, dtype: Any) -> Any:
        self._arrays.count(ptrs, mask, np.dtype(dtype).itemsize, reads=True)
        return self._native.load(ptrs, mask, other, dtype)

    def store(self, ptrs: Any, value: Any, mask: Any) -> Any:
        self._arrays.count(ptrs, mask, _width(value), writes=True)
        return self._native.store(ptrs, value, mask)

    def atomic_rmw(self, op: Any, ptrs: Any, value: Any, mask: Any, sem: Any) -> Any:
        self._arrays.count(ptrs, mask, _width(value), reads=True, writes=True)
        return self._native.atomic_rmw(op, ptrs, value, mask, sem)

    def atomic_cas(self, ptrs: Any, compare: Any, value: Any, sem: Any) -> Any:
        self._arrays.count(ptrs, np.ones(np.shape(ptrs), bool), _width(value), reads=True, writes=True)
        return self._native.atomic_cas(ptrs, compare, value, sem)


def _width(value: Any) -> int:
    return int(np.asarray(value).itemsize)


@dataclass
class _Array:
    """Addresses start … stop - 1 of one tensor, and its elements among them."""

    name: str
    tensor: Any  # keeps its memory from being reused by another tensor inside the block
    start: int = field(init=False)
    stop: int = field(init=False)
    itemsize: int = field(init=False)

    def __post_init__(self) -> None:
        self.itemsize = self.tensor.element_size()
        self.start = self.tensor.data_ptr()
        reach = sum((n - 1) * step for n, step in zip(self.tensor.shape, self.tensor.stride(), strict=True))
        self.stop = self.start + (reach + 1) * self.itemsize if self.tensor.numel() else self.start

    def distance(self, address: int) -> int:
        """Return the number of bytes from the address to this tensor, 0 between two of its elements."""
        return max(self.start - address, address - self.stop + 1, 0)

    def place(self, address: int) -> str:
        """Return where the address, which is not that of an element, is seen from this tensor."""
        if address >= self.stop:
            return f"{address - self.stop} bytes behind the end of {self.name}"
        if address < self.start:
            return f"{self.start - address} bytes before the start of {self.name}"
        return f"between two rows or columns of {self.name}"

    def holds(self, addresses: NDArray[Any]) -> NDArray[np.bool_]:
        """Return True for each address of an element; views such as q, k, v of one tensor are interleaved."""
        rest = (addresses.astype(np.int64) - self.start) // self.itemsize
        inside = (addresses >= self.start) & (addresses < self.stop)
        steps = sorted(zip(self.tensor.stride(), self.tensor.shape, strict=True), reverse=True)
        for step, n in steps:
            if step and n > 1:
                at = np.minimum(rest // step, n - 1)
                rest = rest - at * step
        return np.asarray(inside & (rest == 0))


class _Arrays:
    """The tensors known in a block, and the ledger that counts their words."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.known: list[_Array] = []

    def add(self, name: str, tensor: Any) -> None:
        self.known.append(_Array(name, tensor))
        self.ledger.sizes[name] = int(tensor.numel())
        self.ledger.itemsizes[name] = int(tensor.element_size())

    def add_unless_known(self, name: str, tensor: Any) -> None:
        same = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))
        for array in self.known:
            if same == (array.start, tuple(array.tensor.shape), tuple(array.tensor.stride())):
                return
        self.add(name, tensor)

    def count(self, ptrs: Any, mask: Any, width: int, *, reads: bool = False, writes: bool = False) -> None:
        """Count every address that is not masked for its tensor."""
        addresses = np.asarray(ptrs)[np.broadcast_to(np.asarray(mask, dtype=bool), np.shape(ptrs))]
        asked = addresses.size
        while addresses.size:
            name, found = self._owner(addresses, asked)
            self._file(name, int(found.sum()), width, reads, writes)
            addresses = addresses[~found]

    def _owner(self, addresses: NDArray[Any], asked: int) -> tuple[str, NDArray[np.bool_]]:
        """Return the name of the tensor of the first address, and True for each address of that tensor.

        The addresses are what is left of an access to `asked` words.
        """
        low, high = addresses.min(), addresses.max()
        near = [array for array in self.known if array.start <= high and low < array.stop]
        if len(near) == 1 and near[0].start <= low and high < near[0].stop:
            return near[0].name, np.ones(addresses.shape, bool)
        for array in near:
            found = array.holds(addresses)
            if found[0]:
                return array.name, found
        if all(array.tensor.device.type == "cpu" for array in self.known):
            raise OutsideEveryArray(self._complaint(addresses, near, asked))
        # The interpreter uses copies of tensors on other devices, whose addresses are not known here.
        others = self._outside(addresses, near)
        return OTHER, np.broadcast_to(others, addresses.shape)

    @staticmethod
    def _outside(addresses: NDArray[Any], near: list[_Array]) -> NDArray[np.bool_]:
        """Return True for each address that belongs to none of these tensors."""
        held = np.logical_or.reduce([array.holds(addresses) for array in near], initial=False)
        return np.asarray(~held)

    def _complaint(self, addresses: NDArray[Any], near: list[_Array], asked: int) -> str:
        """Return a message with the number of words outside, and the tensor nearest to the first of them."""
        outside = np.broadcast_to(self._outside(addresses, near), addresses.shape)
        words, address = int(outside.sum()), int(addresses[0])
        count = (
            f"{words} of {asked} word{'s' * (asked > 1)} {'is' if words == 1 else 'are'} outside every array"
        )
        nearest = min(self.known, key=lambda array: array.distance(address), default=None)
        first = f", {'the first ' * (words > 1)}{nearest.place(address)}" if nearest else ""
        cause = "is a mask missing, or a stride wrong?"
        if nearest and address >= nearest.stop and nearest.tensor.dim() > 2:
            # Such as the head of the queries in place of that of the keys.
            shape = tuple(nearest.tensor.shape)
            cause = f"is a mask missing, a stride wrong, or an index too large for {nearest.name} {shape}?"
        return f"{count}{first}: {cause}"

    def _file(self, name: str, words: int, width: int, reads: bool, writes: bool) -> None:
        tallies = [self.ledger.reads] * reads + [self.ledger.writes] * writes
        for tally in [*tallies, *([self.ledger.atomics] if reads and writes else [])]:
            tally[name] = tally.get(name, 0) + words
        self.ledger.itemsizes.setdefault(name, width)
