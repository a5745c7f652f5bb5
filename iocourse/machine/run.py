"""Run a schedule on a new machine: place its inputs in slow memory, return its results and its ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ..exact import check_products
from ..ledger import Ledger
from ..sizes import positive_int
from .errors import MachineError, UninitialisedRead
from .machine import Machine
from .slow_memory import SlowArray, box_of

R = TypeVar("R")
MOST_MOVES = 1_000_000  # loads and stores: over ten seconds, about ten times the longest run of the lessons
FRAME_WORDS = 2**16 + 2**10  # of 8 bytes; a chunk is the next power of two, so half of it stays free


class NoResult(TypeError):
    """A schedule finished without returning a slow array."""


class IncompleteResult(UninitialisedRead):
    """A schedule finished without writing every word of its result."""


class Run(NamedTuple):
    """Result of a run: outputs in float64 (empty on a dry machine) and the ledger."""

    outputs: tuple[np.ndarray, ...]
    ledger: Ledger

    @property
    def O(self) -> np.ndarray:  # noqa: E743 - the paper's name
        """The first output."""
        if not self.outputs:
            raise MachineError("a dry run has a ledger but no values; run it with dry=False to get values")
        return self.outputs[0]


def run(
    schedule: Callable[..., Any],
    *,
    M: int,
    dry: bool = False,
    unroll: bool = False,
    trace: bool | None = None,
    watch: Callable[[int], None] | None = None,
    max_moves: int | None = MOST_MOVES,
    **given: Any,
) -> Run:
    """Run `schedule(machine, <arrays by name>, **tiles)` on a new machine of M words.

    Args:
        schedule: a function that returns the slow array, or tuple of slow arrays, with its result.
        M: words of fast memory.
        dry: as for `Machine`.
        unroll: as for `Machine`.
        trace: as for `Machine`.
        watch: a function called with the words of each move.
        max_moves: limit of loads and stores; None for no limit.
        given: arrays (on a dry machine also shapes, as tuples) are placed in slow memory under their name;
            numbers and options are passed on unchanged.

    Returns:
        A Run: the outputs and the ledger.

    Raises:
        MachineError: whatever the machine raises; MoveLimitExceeded after `max_moves` moves.
        ValueError: products of Q and K overflow.
        TypeError: the schedule returned something other than slow arrays.
    """
    most = None if max_moves is None else positive_int("max_moves", max_moves)
    machine = Machine(M, dry=dry, unroll=unroll, trace=trace, watch=watch)
    named = {name: machine.slow(name, value) if _is_words(value) else value for name, value in given.items()}
    _refuse_overflow(
        {name: given[name] for name in ("Q", "K", "X") if isinstance(named.get(name), SlowArray)}
    )
    with machine.running(most):
        returned = with_preallocated_frames(partial(schedule, machine, **named))
    slow = returned if isinstance(returned, tuple) and returned else (returned,)
    return Run(_outputs(machine, slow), machine.ledger)


def with_preallocated_frames(work: Callable[[], R]) -> R:
    """Call `work()` with stack space allocated for about 2,000 frames, and return its result.

    CPython (from 3.11 on) keeps frames in chunks and returns a chunk to the system as soon as it is
    empty. A loop whose calls cross the end of a chunk allocates and frees memory in every iteration. At some
    stack depths a run then takes much longer (tests/machine/stack_depths.py). This function declares a frame
    larger than any existing chunk. CPython allocates a chunk of one megabyte for it; the function does not
    use it, so the frames of `work` are placed in the rest.
    """
    return work()


with_preallocated_frames.__code__ = with_preallocated_frames.__code__.replace(co_stacksize=FRAME_WORDS)


def _refuse_overflow(given: Mapping[str, Any]) -> None:
    """Raise ValueError if a product of rows of Q and K overflows, as `exact` does. Tied keys are named X."""
    Q, K = np.asarray(given.get("Q", 0.0)), np.asarray(given.get("K", given.get("X", 0.0)))
    if Q.ndim == K.ndim == 2 and Q.shape[1] == K.shape[1]:
        check_products(Q, K)


def _outputs(machine: Machine, slow: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
    """Return the values of the slow arrays that a schedule returned. Raises an error if one is incomplete."""
    for array in slow:
        if not isinstance(array, SlowArray):
            names = ", ".join(type(part).__name__ for part in slow)
            kinds = names if len(slow) == 1 else f"a tuple of {names}"
            raise NoResult(f"the schedule returned {kinds}; it must return the slow array with its result")
        try:
            machine._require_written(array, box_of(array, None, None))
        except UninitialisedRead:
            raise IncompleteResult(
                f"the result {array.name} of shape {array.shape} is incomplete: some of its words were "
                "never stored"
            ) from None
    return () if machine.dry else tuple(machine.take(array) for array in slow)


def _is_words(value: Any) -> bool:
    """Return True for an array, list or shape. A Boolean array is an option of the schedule, not an input."""
    truths = isinstance(value, np.ndarray) and value.dtype.kind == "b"
    return isinstance(value, (np.ndarray, list, tuple)) and not truths
