"""Running a schedule: arrays in, results and ledger out."""

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
MOST_MOVES = 1_000_000  # loads and stores: ten seconds and more, some ten times what any lesson runs
FRAME_WORDS = 2**16 + 2**10  # of 8 bytes; a piece is the next power of two, so half of it is left


class NoResult(TypeError):
    """A schedule came to its end and returned no slow array."""


class IncompleteResult(UninitialisedRead):
    """A schedule came to its end and left words of its result unwritten."""


class Run(NamedTuple):
    """What a run left behind: outputs in float64 (empty on a dry machine) and its ledger."""

    outputs: tuple[np.ndarray, ...]
    ledger: Ledger

    @property
    def O(self) -> np.ndarray:  # noqa: E743 - the paper's name
        """The first output."""
        if not self.outputs:
            raise MachineError("a dry run has a ledger, but no values")
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
    """Run `schedule(machine, <arrays by name>, **tiles)` on a fresh machine of M words.

    Arrays (on a dry machine also shapes, as tuples) become slow arrays under their own name; numbers
    and options are passed on. `watch` is told the words of each move. `schedule` returns the slow array, or
    tuple of them, that it filled. `trace` is as for `Machine`. Raises what the machine raises,
    MoveLimitExceeded after `max_moves` loads and stores (None: no limit), ValueError where products of Q and
    K overflow, and TypeError where nothing or something else was returned.
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
    """What `work()` returns, called where there is room for some 2,000 frames of calls.

    CPython (from 3.11 on) keeps frames in pieces of 16 KB, and returns a piece to the system as soon as it is
    empty. A loop whose calls cross the end of a piece asks for memory, and returns it, in every iteration:
    a run takes up to 7 times as long, at one stack depth in twenty, and a launch in Triton's interpreter
    up to 2.5 times, at one in four (tests/machine/stack_depths.py). This function says that its own frame is
    larger than any piece so far. It gets a piece of a megabyte and touches none of it; the frames above it
    take the rest.
    """
    return work()


with_preallocated_frames.__code__ = with_preallocated_frames.__code__.replace(co_stacksize=FRAME_WORDS)


def _refuse_overflow(given: Mapping[str, Any]) -> None:
    """Scores that overflow would come out as NaN: they are refused, as `exact` does. Tied keys are X."""
    Q, K = np.asarray(given.get("Q", 0.0)), np.asarray(given.get("K", given.get("X", 0.0)))
    if Q.ndim == K.ndim == 2 and Q.shape[1] == K.shape[1]:
        check_products(Q, K)


def _outputs(machine: Machine, slow: tuple[Any, ...]) -> tuple[np.ndarray, ...]:
    """The values of what the schedule returned: slow arrays of which every word has been stored."""
    for array in slow:
        if not isinstance(array, SlowArray):
            names = ", ".join(type(part).__name__ for part in slow)
            kinds = names if len(slow) == 1 else f"a tuple of {names}"
            raise NoResult(
                f"the schedule returned {kinds}; it must return the slow array that holds its result"
            )
        try:
            machine._require_written(array, box_of(array, None, None))
        except UninitialisedRead:
            raise IncompleteResult(
                f"the result {array.name} of shape {array.shape} is not complete: some of its words were "
                "never stored"
            ) from None
    return () if machine.dry else tuple(machine.take(array) for array in slow)


def _is_words(value: Any) -> bool:
    """An array or a shape. An array of True and False is an option, for the schedule to judge: no words."""
    truths = isinstance(value, np.ndarray) and value.dtype.kind == "b"
    return isinstance(value, (np.ndarray, list, tuple)) and not truths
