"""Run a student's schedule of one rank on the counting engine, and test the words each rank moves and holds.

A message names the rank, the array and the words. If ranks are blocked, or one of them does not end, the run
stops with an error, so a check never hangs.
"""

from __future__ import annotations

import dis
import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np

from ... import distributed
from ...distributed.engines.simulated import LONGER, run_in_turns
from ...distributed.rank import PendingTransfer
from ...distributed.runner import WrongResult
from ..exercise import (
    FORM,
    Case,
    NotJudged,
    NotReached,
    Property,
    Sample,
    Trial,
    WrongEverywhere,
    WrongForm,
    student_call,
    trial_from_error,
)
from ..guard import LibrarySolutionUsed
from ..properties import LARGE, TOLERANCE, Where, as_traffic, each, is_right, only_where

SECONDS = 10.0  # for all ranks of a case: a thousand times the run time of a correct function
_NOT_HELD = (ModuleType, type, CodeType, FrameType, PendingTransfer, str, int, float, np.generic)


@dataclass(frozen=True)
class RankCase(Case):
    """A case for a schedule of one rank: its arrays and options are passed to `distributed.run` on P ranks.

    `machine` has further keyword arguments of `run`: `layout`, `shared`, or `on="dry"` with shapes as inputs.
    `budget` has the closed form of every rank. `results` is the number of arrays that a rank must return,
    because the grader sends cases without `expected`.
    """

    P: int = 1
    results: int = 1


@dataclass(frozen=True)
class RankTrial(Trial):
    """A trial with the ledger of every rank and, for many ranks, the words that each rank's arrays have."""

    ledgers: tuple[distributed.RankLedger, ...] = ()
    held: tuple[int, ...] = ()


class ReadsTheNotebook(distributed.RankError):
    """A rank used an array that was not passed to it."""


# ------------------------------------------------------------------ cases
RAGGED, FEW = "ragged", "more ranks than rows"  # tags
MANY = "many ranks"  # copies of all blocks are far larger than the arrays that a rank needs
ClosedForm = Callable[..., distributed.RankLedger]


def rank_case(
    form: str | ClosedForm,
    P: int,
    inputs: Mapping[str, Any],
    expected: Any = None,
    *,
    tag: str = "",
    **machine: Any,
) -> RankCase:
    """Return a case whose budget is the ledger of the library's schedule `form`, counted on shapes.

    Args:
        form: a schedule of `iocourse.distributed`, or a function of P and the inputs that returns the ledger
            of each rank. The laws of `tests/distributed` compare schedules with their closed forms.
        P: number of ranks.
        inputs: arrays (N, d) or (N, H, d), shapes for a dry run; other values are options.
        expected: the exact outputs.
        tag: the difficulty of the case; default: more ranks than rows, or ragged shards, if so.
        machine: further keyword arguments of `run`.
    """
    shapes = {name: x if isinstance(x, tuple) else np.shape(x) for name, x in inputs.items()}
    arrays = {name: shape for name, shape in shapes.items() if shape}
    options = {name: inputs[name] for name in inputs if name not in arrays}
    (m, *_), (N, *columns) = arrays["Q"], arrays["K"]
    tag = tag or (FEW if N < P else RAGGED if N % P else "")
    sizes = {"P": P, "N": N, **({} if m == N else {"queries": m})}
    sizes |= {**dict(zip("Hd" if columns[1:] else "d", columns, strict=True)), **options}
    sample = Sample(sizes, inputs, tags=(tag,), prefix=tag)
    if callable(form):
        budget = (form(P, **inputs),) * P
    else:
        known = distributed.get(form)
        given = {name: arrays[name] for name in known.operands}
        asked = {name: value for name, value in options.items() if name in known.options}
        budget = known.run(P, on="dry", **given, **asked).ledgers
    results = len(expected) if isinstance(expected, tuple) else 1
    return RankCase(
        sample.label, inputs, expected, budget=budget, machine=machine, tags=sample.tag_set, P=P,
        results=results,
    )  # fmt: skip


# ------------------------------------------------------------------ one run
@trial_from_error
def run_distributed(student: Callable[..., Any], case: Case) -> Trial:
    """Run the schedule on its ranks for at most `SECONDS`; an error names the rank and its line."""
    assert isinstance(case, RankCase), "the case must be a RankCase"
    outside = arrays_outside(student)
    if outside:
        name = getattr(student, "__name__", "your function")
        raise ReadsTheNotebook(
            f"{name} reads {', '.join(outside)} of the notebook, but a rank may use only its arguments and "
            "the data that it receives through me"
        )
    try:
        with student_call():
            done = distributed.run(student, case.P, timeout=SECONDS, **case.machine, **case.inputs)
            held = _measured(student, case) if case.has(MANY) else ()
    except distributed.TimedOut as late:
        raise distributed.TimedOut(str(late).removesuffix(LONGER)) from None
    except distributed.RankFailed as failed:
        return RankTrial(case, error=_as_a_student_reads(failed))
    except WrongResult as wrong:
        raise NotJudged(FORM, str(wrong)) from None
    if done.outputs and len(done.outputs) != case.results:
        raise NotJudged(
            FORM,
            f"every rank returned {len(done.outputs)} arrays, expected {case.results}",
        )
    value = done.outputs[0] if len(done.outputs) == 1 else done.outputs
    return RankTrial(case, value, ledgers=done.ledgers, held=held)


def in_time(run_case: Callable[[Callable[..., Any], Case], Trial]) -> Callable[..., Trial]:
    """Decorate the `run_case` of a plain function, which gets `SECONDS` for a case, as ranks do.

    The function runs as the only rank, so an endless loop or a long sleep does not hang the check.
    """

    @trial_from_error
    def limited(student: Callable[..., Any], case: Case) -> Trial:
        try:
            (trial,) = run_in_turns(lambda _rank, _transport: run_case(student, case), 1, SECONDS)
        except distributed.TimedOut:
            raise distributed.TimedOut(
                f"the function was still running after {SECONDS:g} seconds. Check for an endless loop"
            ) from None
        assert isinstance(trial, Trial)
        return trial

    return limited


def _measured(student: Callable[..., Any], case: RankCase) -> tuple[int, ...]:
    """Return, for each rank, the largest number of words that its arrays have at one of its calls.

    Ledgers do not see copies, so a schedule that keeps copies of all blocks would seem to hold two. The
    schedule runs again for this, because looking at the variables of a frame may prolong their lives.
    """
    held = [0] * case.P

    def watched(me: distributed.Rank, *args: Any, **named: Any) -> Any:
        me._transport = _Watched(me._transport, me.rank, held)
        return student(me, *args, **named)

    distributed.run(watched, case.P, timeout=SECONDS, **case.machine, **case.inputs)
    return tuple(held)


class _Watched:
    """A transport that measures, at every call of its rank, the words that the rank's functions hold."""

    def __init__(self, inner: Any, rank: int, held: list[int]) -> None:
        self.inner, self.rank, self.held = inner, rank, held

    def post(self, transfer: Any) -> None:
        self.held[self.rank] = max(self.held[self.rank], reachable_words(sys._getframe(1)))
        self.inner.post(transfer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def reachable_words(frame: FrameType | None) -> int:
    """Return the words of all arrays that the functions of a rank, called from this frame up, can reach.

    A slice counts as the array whose memory it keeps. Numbers in lists count too. Frames of the library and
    the private attributes of `me` do not count.
    """
    words, todo = dict[int, int](), list[Any]()
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith(("iocourse.", "threading")):
            known, read = frame.f_globals, _read(frame.f_code)
            todo += [*frame.f_locals.values(), *(known[name] for name in read if name in known)]
        frame = frame.f_back
    while todo:
        value = todo.pop()
        if isinstance(value, np.ndarray):
            while isinstance(value.base, np.ndarray):
                value = value.base
            words[id(value)] = value.size
        elif id(value) not in words and not isinstance(value, _NOT_HELD):
            found = _parts(value)
            words[id(value)] = sum(isinstance(one, (float, np.generic)) for one in found)
            todo += found
    return sum(words.values())


def _parts(value: Any) -> list[Any]:
    """Return the objects to which an object of the student refers, without globals and the library's."""
    if isinstance(value, FunctionType):
        return [value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__]
    if isinstance(value, distributed.Rank):
        return [part for name, part in vars(value).items() if not name.startswith("_")]
    return gc.get_referents(value)


def _as_a_student_reads(failed: distributed.RankFailed) -> Exception:
    """Return the rank's error with the traceback of its cause; or the cause itself if checks handle it."""
    cause = failed.__cause__
    if isinstance(cause, (NotImplementedError, LibrarySolutionUsed)):
        return cause
    return failed.with_traceback(cause.__traceback__ if cause else failed.__traceback__)


def arrays_outside(student: Callable[..., Any]) -> list[str]:
    """Return the names of global arrays that a function, or a notebook function that it calls, reads."""
    seen: set[int] = set()
    return list(dict.fromkeys(_outside(student, seen)))


def _outside(function: Any, seen: set[int]) -> Iterator[str]:
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    found = {name: cell.cell_contents for name, cell in cells if _filled(cell)}
    read = (name for name in _globals_read(function.__code__) if name in function.__globals__)
    found |= {name: function.__globals__[name] for name in read}
    for name, value in found.items():
        if isinstance(value, np.ndarray) and value.ndim:
            yield name
        elif getattr(value, "__globals__", None) is function.__globals__:
            yield from _outside(value, seen)


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


@lru_cache(maxsize=1000)
def _read(code: CodeType) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_globals_read(code)))


def _globals_read(code: CodeType) -> Iterator[str]:
    """Yield the global names that the code and its nested functions read."""
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL":
            yield step.argval
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _globals_read(part)


# ------------------------------------------------------------------ properties
def right_on_every_rank(name: str = "values equal exact attention") -> Property:
    """The outputs, put together, are right; a complaint says on which ranks they are not.

    It is read first if they are wrong in half or more of the ordinary cases of several ranks.
    """

    def judge(trial: Trial) -> str | None:
        said = is_right(trial)
        return said and type(said)(said + _wrong_ranks(trial, TOLERANCE))

    asked = each(name, judge)

    def over_all(trials: Sequence[Trial]) -> str | None:
        said = asked.judge(trials)
        if said is None or isinstance(said, WrongForm):
            return said
        wrong = [bool(asked.judge([one])) for one in trials if _telling(one)]
        return WrongEverywhere(said) if 2 * sum(wrong) >= len(wrong) else said

    return Property(name, over_all, general=True)


def _telling(trial: Trial) -> bool:
    """Return whether the case has several ranks and ordinary scores, so that wrong values are conclusive."""
    return isinstance(trial.case, RankCase) and trial.case.P > 1 and not trial.case.has(LARGE)


def _wrong_ranks(trial: Trial, tolerance: float) -> str:
    """Return a clause that names the ranks with wrong rows, or "" if the outputs have another form."""
    pairs = [(trial.value, trial.case.expected)]
    if isinstance(trial.case.expected, tuple):
        pairs = list(zip(trial.value, trial.case.expected, strict=False))
    if "shared" in trial.case.machine or any(np.shape(got) != np.shape(want) for got, want in pairs):
        return ""
    assert isinstance(trial.case, RankCase)
    P, wrong = trial.case.P, set[int]()
    for got, want in pairs:
        off = ~(np.abs(np.asarray(got) - want) <= tolerance * (1 + np.abs(want)))
        rows = set(np.nonzero(off.reshape(len(want), -1).any(axis=1))[0].tolist())
        layout = trial.case.machine.get("layout", "contiguous")
        wrong |= {p for p in range(P) if rows & set(distributed.rows_of(layout, len(want), P, p).tolist())}
    if not wrong or P == 1:
        return ""
    if len(wrong) == P:
        return "; wrong on every rank"
    return f"; wrong on rank{'s' if len(wrong) > 1 else ''} {', '.join(map(str, sorted(wrong)))}"


def receives(name: str, *arrays: str, where: Where = "", fewer: bool = False) -> Property:
    """Return the property that every rank receives exactly the words of these arrays of the closed form.

    With `fewer`, it may receive fewer words, or none.
    """
    return _moves("received", "receives", name, arrays, where, fewer)


def sends(name: str, *arrays: str, where: Where = "") -> Property:
    """Return the property that every rank sends exactly the words of these arrays of the closed form."""
    return _moves("sent", "sends", name, arrays, where)


def _moves(
    book: str, verb: str, name: str, arrays: Sequence[str], where: Where, fewer: bool = False
) -> Property:
    def judge(rank: int, got: distributed.RankLedger, want: distributed.RankLedger) -> str | None:
        for array in arrays:
            mine, right = getattr(got, book).get(array, 0), getattr(want, book).get(array, 0)
            if mine > right or (mine < right and not fewer):
                most = "at most " if fewer else ""
                said = f"rank {rank} {verb} {mine:,} words of {array}, expected {most}{right:,}"
                return said + (_otherwise_named(got, want) if mine < right else "")
        return None

    return on_each_rank(name, judge, where)


def _otherwise_named(got: distributed.RankLedger, want: distributed.RankLedger) -> str:
    """Return a clause about arrays under other names, which explains missing words."""
    own = [name for name in got.arrays if name not in want.arrays]
    return f" (it moves {', '.join(own)}; use the name of the array)" if own else ""


def nothing_else_moves(name: str = "sends and receives no other array", where: Where = "") -> Property:
    """Return the property that no rank sends or receives an array that is not in the closed form."""

    def judge(rank: int, got: distributed.RankLedger, want: distributed.RankLedger) -> str | None:
        for array, received, sent in got.rows():
            if array not in want.arrays:
                verb, words = ("receives", received) if received else ("sends", sent)
                return f"rank {rank} {verb} {words:,} words of {array}, expected none"
        return None

    return on_each_rank(name, judge, where)


def rank_words_within(name: str, where: Where = "") -> Property:
    """Return the property that W of every rank (inputs received, sums sent) is at most the closed form."""

    def judge(rank: int, got: distributed.RankLedger, want: distributed.RankLedger) -> str | None:
        if got.words <= want.words:
            return None
        return f"rank {rank} has W = {got.words:,} words, expected at most {want.words:,}"

    return on_each_rank(name, judge, where)


Room = Callable[[RankCase], int]  # words that a rank may hold at the same time


def holds_within(name: str, room: Room | None = None, *, copies_of: Sequence[str] = ()) -> Property:
    """Return the property that no rank holds more words of others than `room`; default: the closed form.

    With `copies_of`, the arrays of a rank in a case of many ranks, own ones included, must also have fewer
    words than three quarters of these arrays of all ranks: more than partial results of all blocks, and fewer
    than copies of them.
    """

    def judge(trial: Trial) -> str | None:
        case = trial.case
        assert isinstance(trial, RankTrial) and isinstance(case, RankCase) and isinstance(case.budget, tuple)
        for rank, (got, want) in enumerate(zip(trial.ledgers, case.budget, strict=True)):
            most = room(case) if room else want.peak
            if got.peak > most:
                return f"rank {rank} holds {got.peak:,} words of other ranks, expected at most {most:,}"
        whole = sum(np.size(case.inputs[array]) for array in copies_of)
        for rank, words in enumerate(trial.held):
            if copies_of and words >= 0.75 * whole:
                return (
                    f"rank {rank} holds {words:,} words in its arrays, and {' and '.join(copies_of)} of all "
                    f"ranks have {whole:,}. Does it keep copies of the blocks that it received?"
                )
        return _silent(trial)

    return as_traffic(each(name, judge))


def on_each_rank(
    name: str,
    judge: Callable[[int, distributed.RankLedger, distributed.RankLedger], str | None],
    where: Where = "",
) -> Property:
    """Return a property of (rank, ledger, closed form); its message is about the first rank that fails.

    It is about traffic, and not reached in a case in which no rank sends a word of those in the closed form.
    """

    def over_ranks(trial: Trial) -> str | None:
        assert isinstance(trial, RankTrial) and isinstance(trial.case.budget, tuple)
        pairs = enumerate(zip(trial.ledgers, trial.case.budget, strict=True))
        failed = next((said for rank, (got, want) in pairs if (said := judge(rank, got, want))), None)
        return failed or _silent(trial)

    return as_traffic(only_where(name, where, over_ranks) if where else each(name, over_ranks))


def _silent(trial: RankTrial) -> NotReached | None:
    """Return a message if the closed form has words and no rank moved one."""
    assert isinstance(trial.case.budget, tuple)
    moved, wanted = ([one for one in some if list(one.rows())] for some in (trial.ledgers, trial.case.budget))
    return NotReached("no rank sends a word") if wanted and not moved else None
