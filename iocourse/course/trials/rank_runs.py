"""Schedules of a rank: run on the counting engine, judged by values and by what each rank moved and held.

A verdict names the rank, the array and the words. Where ranks cannot go on, or one of them does not end, the
student reads a sentence: no check hangs.
"""

from __future__ import annotations

import ctypes
import dis
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from ... import distributed
from ...distributed.runner import WrongResult
from ...solution_guard import LibrarySolutionUsed
from ..exercise import (
    FORM,
    Case,
    NotJudged,
    Property,
    Trial,
    WrongEverywhere,
    WrongForm,
    student_call,
    trial_from_error,
)
from ..properties import LARGE, TOLERANCE, Where, each, idle, is_right, only_where
from ..sample import Sample

SECONDS = 10.0  # for all ranks of a case together: a thousand times what a right answer takes


@dataclass(frozen=True)
class RankCase(Case):
    """A case for a schedule of a rank: its arrays and options are given to `distributed.run` on P ranks.

    `machine` is what else `run` is told: `layout`, `shared`, or `on="dry"` with shapes for inputs. `budget`
    has the closed form of every rank. `results` is the number of arrays that a rank shall return: the grader
    sends a case without `expected`.
    """

    P: int = 1
    results: int = 1


@dataclass(frozen=True)
class RankTrial(Trial):
    """What was seen besides the value: the ledger of every rank, and the most keys in a call of `attend`."""

    ledgers: tuple[distributed.RankLedger, ...] = ()
    keys: int = 0


class ReadsTheNotebook(distributed.RankError):
    """A rank used an array that it was not given."""


class _Late(BaseException):
    """Raised within a rank whose time is over; no `except Exception` of a schedule catches it."""


# ------------------------------------------------------------------ cases
RAGGED, FEW = "ragged", "more ranks than rows"  # tags
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
    """A case whose budget is what the library's schedule `form` moves, counted on shapes, or a function of P
    and the inputs says for each rank.

    The laws of `tests/distributed` hold schedules to their closed forms. Inputs are (N, d) or (N, H, d), of a
    dry run shapes; what is no array is an option. `tag` is the difficulty of the case; where it has none,
    more ranks than rows are one, and then ragged shards.
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


# ------------------------------------------------------------------ a run, watched
@trial_from_error
def run_distributed(student: Callable[..., Any], case: Case) -> Trial:
    """Run the schedule on its ranks, for at most `SECONDS`; an error names the rank and keeps its line."""
    assert isinstance(case, RankCase), "a case for ranks says how many there are"
    outside = arrays_outside(student)
    if outside:
        name = getattr(student, "__name__", "your function")
        raise ReadsTheNotebook(
            f"{name} reads {', '.join(outside)} of the notebook; a rank has the rows that it is given as "
            "arguments, and what arrives through me"
        )
    try:
        with student_call(), in_time(student, SECONDS) as timed, count_attended_keys() as keys:
            done = distributed.run(timed, case.P, **case.machine, **case.inputs)
    except distributed.RankFailed as failed:
        return RankTrial(case, error=_as_a_student_reads(failed))
    except WrongResult as wrong:
        raise NotJudged(FORM, str(wrong)) from None
    if done.outputs and len(done.outputs) != case.results:
        raise NotJudged(
            FORM,
            f"every rank returned {len(done.outputs)} arrays; {case.results} is what it shall return",
        )
    value = done.outputs[0] if len(done.outputs) == 1 else done.outputs
    return RankTrial(case, value, ledgers=done.ledgers, keys=max(keys, default=0))


@contextmanager
def count_attended_keys() -> Iterator[list[int]]:
    """The number of keys of each call of `distributed.attend` meanwhile.

    What is copied is out of a ledger's sight, so that one who joins copies of all blocks seems to hold two.
    """
    attend, keys = distributed.attend, list[int]()

    def watched(q: Any, k: Any, v: Any, **named: Any) -> Any:
        keys.append(len(k))
        return attend(q, k, v, **named)

    vars(distributed)["attend"] = watched
    try:
        yield keys
    finally:
        vars(distributed)["attend"] = attend


def _as_a_student_reads(failed: distributed.RankFailed) -> Exception:
    """The rank's sentence, with the line on which the error arose; what every check knows, as it is."""
    cause = failed.__cause__
    if isinstance(cause, (NotImplementedError, LibrarySolutionUsed)):
        return cause
    return failed.with_traceback(cause.__traceback__ if cause else failed.__traceback__)


@contextmanager
def in_time(student: Callable[..., Any], seconds: float) -> Iterator[Callable[..., Any]]:
    """Yields the schedule, whose ranks are stopped after so many seconds, and when the block is left."""
    running: dict[int, int] = {}  # ranks by their threads

    def timed(me: distributed.Rank, *args: Any, **named: Any) -> Any:
        running[threading.get_ident()] = me.rank
        try:
            return student(me, *args, **named)
        except _Late:
            raise distributed.TimedOut(
                f"rank {me.rank} was still running after {seconds:g} seconds: does a loop of it never end?"
            ) from None
        finally:
            running.pop(threading.get_ident(), None)

    clock = threading.Timer(seconds, _stop_all, [running])
    clock.daemon = True
    clock.start()
    try:
        yield timed
    finally:
        clock.cancel()
        if running:  # after an interrupt
            threading.Thread(target=_stop_all, args=[running], daemon=True).start()


def _stop_all(running: Mapping[int, int]) -> None:
    """Raise `_Late` in threads that run, until none is left; those that wait are ended by their engine.

    What is raised while an object is being thrown away is lost: so again and again, for some seconds.
    """
    for _ in range(200):
        for thread in _awake(list(running)):
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(_Late))
        time.sleep(0.02)
        if not running:
            return


def _awake(threads: Sequence[int]) -> list[int]:
    """Those whose innermost function is none of `threading`, where a rank waits for its turn."""
    frames = sys._current_frames()
    return [one for one in threads if one in frames and frames[one].f_code.co_filename != threading.__file__]


def arrays_outside(student: Callable[..., Any]) -> list[str]:
    """Names of arrays that a function, or one of the notebook's that it calls, reads from outside itself."""
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


def _globals_read(code: CodeType) -> Iterator[str]:
    """Names that the code, and what is defined in it, looks up in the notebook."""
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL":
            yield step.argval
    for part in code.co_consts:
        if isinstance(part, CodeType):
            yield from _globals_read(part)


# ------------------------------------------------------------------ properties
def right_on_every_rank(name: str = "values equal exact attention") -> Property:
    """The outputs, put together, are right; a complaint says on which ranks they are not.

    It is read first where they are right in no ordinary case of several ranks.
    """

    def judge(trial: Trial) -> str | None:
        said = is_right(trial)
        return said and type(said)(said + _wrong_ranks(trial, TOLERANCE))

    asked = each(name, judge)

    def over_all(trials: Sequence[Trial]) -> str | None:
        said = asked.judge(trials)
        if said is None or isinstance(said, WrongForm):
            return said
        hopeless = all(asked.judge([one]) for one in trials if _telling(one))
        return WrongEverywhere(said) if hopeless else said

    return Property(name, over_all, general=True)


def _telling(trial: Trial) -> bool:
    """A case whose values tell whether anything is understood: of several ranks, with ordinary scores."""
    return isinstance(trial.case, RankCase) and trial.case.P > 1 and not trial.case.has(LARGE)


def _wrong_ranks(trial: Trial, tolerance: float) -> str:
    """A clause that names the ranks whose rows are wrong; "" where the outputs are no such arrays."""
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


def receives(name: str, *arrays: str, where: Where = "") -> Property:
    """Every rank receives of these arrays what the closed form says: neither more nor less."""
    return _moves("received", "receives", name, arrays, where)


def sends(name: str, *arrays: str, where: Where = "") -> Property:
    """Every rank sends of these arrays what the closed form says: partial sums are paid by who sends them."""
    return _moves("sent", "sends", name, arrays, where)


def _moves(book: str, verb: str, name: str, arrays: Sequence[str], where: Where) -> Property:
    def judge(rank: int, got: distributed.RankLedger, want: distributed.RankLedger) -> str | None:
        for array in arrays:
            mine, right = getattr(got, book).get(array, 0), getattr(want, book).get(array, 0)
            if mine != right:
                said = f"rank {rank} {verb} {mine:,} words of {array}, the closed form {right:,}"
                return said + (_otherwise_named(got, want) if mine < right else "")
        return None

    return on_each_rank(name, judge, where)


def _otherwise_named(got: distributed.RankLedger, want: distributed.RankLedger) -> str:
    """A clause for names of the student's own, where something is missing."""
    own = [name for name in got.arrays if name not in want.arrays]
    return f" (yours moves {', '.join(own)}: name what moves by its array)" if own else ""


def nothing_else_moves(name: str = "sends and receives no other array", where: Where = "") -> Property:
    """No rank sends or receives an array that the closed form does not have."""

    def judge(rank: int, got: distributed.RankLedger, want: distributed.RankLedger) -> str | None:
        for array, received, sent in got.rows():
            if array not in want.arrays:
                verb, words = ("receives", received) if received else ("sends", sent)
                return f"rank {rank} {verb} {words:,} words of {array}, the closed form none"
        return None

    return idle(on_each_rank(name, judge, where))


def words_within(name: str, where: Where = "") -> Property:
    """W of every rank, inputs received and partial sums sent, is at most that of the closed form."""

    def judge(rank: int, got: distributed.RankLedger, want: distributed.RankLedger) -> str | None:
        if got.words <= want.words:
            return None
        return f"rank {rank} has W = {got.words:,} words, the closed form {want.words:,}"

    return idle(on_each_rank(name, judge, where))


Room = Callable[[RankCase], int]  # words that a rank may hold at once


def holds_within(name: str, room: Room | None = None) -> Property:
    """No rank holds more words of others at once than `room` says, by default its closed form."""
    return idle(each(name, lambda trial: _held(trial, room)))


def holds_blocks(name: str, blocks: int) -> Property:
    """As `holds_within`; and no call of `attend` is given more keys than so many blocks have."""

    def judge(trial: Trial) -> str | None:
        assert isinstance(trial, RankTrial) and isinstance(trial.case, RankCase)
        N = len(trial.case.inputs["K"])
        block = -(-N // trial.case.P)
        if trial.keys > blocks * block:
            return f"attend is given {trial.keys} of the {N} keys at once, where a block has {block}"
        return _held(trial, None)

    return idle(each(name, judge))


def _held(trial: Trial, room: Room | None) -> str | None:
    case = trial.case
    assert isinstance(trial, RankTrial) and isinstance(case, RankCase) and isinstance(case.budget, tuple)
    for rank, (got, want) in enumerate(zip(trial.ledgers, case.budget, strict=True)):
        most = room(case) if room else want.peak
        if got.peak > most:
            return f"rank {rank} holds {got.peak:,} words of others at once, {most:,} are enough"
    return None


def on_each_rank(
    name: str,
    judge: Callable[[int, distributed.RankLedger, distributed.RankLedger], str | None],
    where: Where = "",
) -> Property:
    """A property of (rank, its ledger, its closed form); the first rank that breaks it is reported."""

    def over_ranks(trial: Trial) -> str | None:
        assert isinstance(trial, RankTrial) and isinstance(trial.case.budget, tuple)
        pairs = enumerate(zip(trial.ledgers, trial.case.budget, strict=True))
        return next((said for rank, (got, want) in pairs if (said := judge(rank, got, want))), None)

    return only_where(name, where, over_ranks) if where else each(name, over_ranks)
