"""Trying a student's Triton kernels: their values, and the words that their loads and stores move.

The student's function takes torch tensors, launches kernels of its own and returns a tensor or several. It
runs in Triton's interpreter, on the CPU, under `traffic.count`: what torch computes by itself moves no word
in that ledger, so an answer that leaves the work to torch has values and no traffic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import traffic
from ..needs_triton import require_triton
from .exercise import Case, Property, Trial, judged, settled
from .judging import each


def launch(student: Callable[..., Any], case: Case) -> Trial:
    """Call a launcher on fresh tensors made from the case's arrays, by position; other inputs go as they are.

    Words of the inputs are filed under the names the case gives them, those of the student's own tensors
    under the names of the kernel's parameters.
    """
    try:
        require_triton()
        given = {name: _tensor(value) for name, value in case.inputs.items()}
        arrays = {name: value for name, value in given.items() if hasattr(value, "data_ptr")}
        with judged(), traffic.count(**arrays) as ledger:
            value = student(*given.values())
        return Trial(case, value=settled(_arrays(value)), ledger=ledger)
    except Exception as error:
        return Trial(case, error=_cause(error))


def _tensor(value: Any) -> Any:
    import torch

    return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value


def _arrays(value: Any) -> Any:
    """Tensors as float64 arrays; a tuple stays a tuple."""
    if isinstance(value, (tuple, list)):
        return tuple(_arrays(part) for part in value)
    return value.detach().double().numpy() if hasattr(value, "data_ptr") else value


def _cause(error: Exception) -> Exception:
    """What went wrong inside the kernel: Triton reports it wrapped, once for each function it passed."""
    cause: BaseException = error
    while type(cause).__name__ == "InterpreterError" and cause.__cause__ is not None:
        cause = cause.__cause__
    return cause if isinstance(cause, Exception) else error


def words_exactly(name: str = "loads and stores move exactly what the formula says") -> Property:
    """Reads of every input, and all reads and writes together, equal the closed form of the case."""

    def judge(trial: Trial) -> str | None:
        budget = trial.case.budget
        assert budget is not None, "a case judged by words carries its closed form"
        for array in trial.case.inputs:
            got, want = trial.ledger.reads.get(array, 0), budget.reads.get(array, 0)
            if got != want:
                return f"{array}: yours reads {got:,} words, the formula says {want:,}"
        return _compared("reads", trial.ledger.read, budget.read) or _compared(
            "writes", trial.ledger.written, budget.written
        )

    return each(name, judge)


def _compared(verb: str, got: int, want: int) -> str | None:
    return None if got == want else f"yours {verb} {got:,} words in all, the formula says {want:,}"


def launches_kernels(*arrays: str) -> Property:
    """Every input named is loaded in full by a kernel, and a kernel writes at least as much as is
    returned.
    """

    def judge(trials: Sequence[Trial]) -> str | None:
        for trial in trials:
            for array in arrays:
                size = int(np.size(trial.case.inputs[array]))
                if trial.ledger.reads.get(array, 0) < size:
                    return (
                        f"{array} has {size:,} words, your kernels read {trial.ledger.reads.get(array, 0):,}"
                    )
            parts = trial.value if isinstance(trial.value, tuple) else (trial.value,)
            returned = sum(int(np.size(part)) for part in parts)
            if trial.ledger.written < returned:
                return f"you return {returned:,} words, your kernels wrote {trial.ledger.written:,}"
        return None

    return Property("a kernel does the work", judge)
