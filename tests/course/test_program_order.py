"""Tests that checks reject kernels that are correct only if programs run one after the other, and those in
which several programs store the same words.
"""

import math

import numpy as np
import pytest

from tools.build.notebook_execution import cannot_run

if reason := cannot_run("import torch, triton\n"):
    pytest.skip(reason, allow_module_level=True)

from iocourse import kernels  # noqa: I001, F401  # before triton
import torch
import triton
import triton.language as tl

from iocourse.course.checking import failed_properties, judge, read_first
from iocourse.course.exercise import Case, FirstCause, NotReached, exercises, find
from iocourse.course.trials import kernel_launch
from iocourse.course.trials.kernel_launch import any_order, launch, programs_reversed, words_exactly
from iocourse.ledger import Ledger
from tests.mutation.references import build, exercise_source

ORDER = "does not depend on the order of programs"
X = np.arange(1, 7, dtype=np.float32)
CASE = Case("six numbers", {"X": X}, np.cumsum(X))
ONCE = any_order(lambda case: 0.0)


@triton.jit
def running_sum_kernel(X, Y, n, AHEAD: tl.constexpr):
    """Kernel that adds a word of X to the previous word of Y, which another program stores."""
    at = tl.program_id(0) + tl.arange(0, 1)
    before = tl.load(Y + at - 1, mask=at > 0, other=0.0)
    tl.store(Y + at, before + tl.load(X + at))


@triton.jit
def own_sum_kernel(X, Y, n, AHEAD: tl.constexpr):
    at, i = tl.program_id(0), tl.arange(0, 8)
    tl.store(Y + at, tl.sum(tl.load(X + i, mask=i <= at, other=0.0), 0))


@triton.jit
def waiting_kernel(X, Y, n, AHEAD: tl.constexpr):
    """As `running_sum_kernel`, but with a loop that waits until the previous program has stored a word."""
    at = tl.program_id(0) + tl.arange(0, 1)
    before = tl.load(Y + at - 1, mask=at > 0, other=0.0)
    while tl.sum(tl.where((at > 0) & (before == 0.0), 1, 0)) > 0:
        before = tl.load(Y + at - 1, mask=at > 0, other=0.0)
    tl.store(Y + at, before + tl.load(X + at))


def summed_by(kernel):
    def student(X):
        Y = torch.zeros(6)
        kernel[(6,)](X, Y, 6, AHEAD=1)
        return Y

    return student


def test_what_an_earlier_program_wrote_must_not_be_read():
    trial = launch(summed_by(running_sum_kernel), CASE)
    assert trial.error is None and (trial.value == CASE.expected).all() and trial.programs == 6
    assert ONCE.judge([trial]) == (
        "with the last program first, 5 of 6 entries differ, first at [1]: got 2, expected 3 (six "
        "numbers). A GPU runs programs at the same time and in any order, so no program may read a word that "
        "another one writes in the same launch"
    )
    assert ONCE.judge([launch(summed_by(own_sum_kernel), CASE)]) is None


def test_wrong_values_tell_nothing_about_the_order():
    wrong = Case("other numbers", CASE.inputs, CASE.expected + 1)
    assert isinstance(ONCE.judge([launch(summed_by(running_sum_kernel), wrong)]), NotReached)


def test_a_program_that_waits_for_an_earlier_one_is_told(monkeypatch):
    monkeypatch.setattr(kernel_launch, "WAITS", 100)
    said = ONCE.judge([launch(summed_by(waiting_kernel), CASE)])
    assert said.startswith("with the last program first, it ends with ")
    assert "a program waits for another one that has not started (six numbers)" in said


@triton.jit
def numbered_kernel(Y, HIGH: tl.constexpr, DEEP: tl.constexpr):
    at = (tl.program_id(0) * HIGH + tl.program_id(1)) * DEEP + tl.program_id(2)
    tl.store(Y + at, tl.atomic_add(Y + 24, 1.0))


def test_reversed_programs_are_the_same_ones_from_the_last_to_the_first():
    def numbers():
        Y = torch.zeros(25)
        numbered_kernel[(2, 3, 4)](Y, 3, 4)
        return Y[:24].int().tolist()

    assert numbers() == list(range(24))
    with programs_reversed():
        assert numbers() == list(range(24))[::-1]
    assert numbers() == list(range(24))


def test_every_exercise_of_kernels_asks_for_it():
    asked = {id for id, one in exercises().items() if ORDER in [prop.name for prop in one.properties]}
    launched = {
        id
        for id in exercises()
        if id.startswith(("10", "11", "12", "13", "14")) and "triton.jit" in exercise_source(id, solved=True)
    }
    assert launched <= asked | {"12E"}, "12E has the kernels of 12A to 12D"
    assert asked == launched - {"12E"}


# Program 0 of each head computes delta for all rows, and every program reads it in the same launch.
RACE = (
    (
        "    first = tl.program_id(1) * N\n",
        "    first = tl.program_id(1) * N\n"
        "    for at in range(0, N if start == 0 else 0, BM):\n"
        "        i = at + tl.arange(0, BM)\n"
        "        rows = (first + i)[:, None] * d + tl.arange(0, d)\n"
        "        o = tl.load(O + rows, mask=i[:, None] < N, other=0.0)\n"
        "        do = tl.load(dO + rows, mask=i[:, None] < N, other=0.0)\n"
        "        tl.store(D + first + i, tl.sum(o * do, 1), mask=i < N)\n",
    ),
    ("def my_fused_kernel(Q, K, V, dO,", "def my_fused_kernel(Q, K, V, O, dO,"),
    ("](Q, K, V, dO,", "](Q, K, V, O, dO,"),
    ("my_row_products(O, dO)", "torch.empty((H, N))"),
)


@pytest.mark.parametrize("seed", [0, 7])
def test_a_sum_for_all_programs_made_by_the_first_of_them_is_refused(seed):
    source = exercise_source("12D", solved=True)
    for old, new in RACE:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    said = {
        name: complaint for name, complaint in judge(find("12D"), build("12D", source), seed) if complaint
    }
    assert list(said) == [ORDER]
    assert said[ORDER].startswith("with the last program first, ")


# ---------------------------------------------------------------------- words that several programs store
@triton.jit
def filling_kernel(Y, n, ALL: tl.constexpr, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Store 1 into all words of Y, or into those of this program: plainly, twice, or atomically."""
    program = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    at = tl.arange(0, BLOCK) + (0 if ALL else program * BLOCK)
    one = tl.full((BLOCK,), 1.0, dtype=tl.float32)
    if KIND == "atomic":
        tl.atomic_max(Y + at, one, mask=at < n)
    else:
        tl.store(Y + at, one, mask=at < n)
        if KIND == "twice":
            tl.store(Y + at, one, mask=at < n)


def filled(grid, n, launches=1, ALL=True, KIND="once"):
    def student(X):
        Y = torch.zeros(n)
        for _ in range(launches):
            filling_kernel[grid](Y, n, ALL=ALL, KIND=KIND, BLOCK=8)
        return Y

    return launch(student, Case("ones", {"X": X}, np.ones(n, np.float32), budget=Ledger(writes={"Y": n})))


@pytest.mark.parametrize(
    ("grid", "n", "said"),
    [
        ((2,), 8, "programs 0 and 1 write the same word of Y (and 7 other words)"),
        ((1, 3), 2, "programs (0, 0) and (0, 1) write the same word of Y (and 1 other word)"),
        ((3, 2), 1, "programs (0, 0) and (0, 1) write the same word of Y"),
    ],
)
def test_words_that_several_programs_store_are_named_though_all_store_the_same_value(grid, n, said):
    trial = filled(grid, n)
    assert trial.shared == said and (trial.value == 1).all()
    complaint = ONCE.judge([trial])
    assert complaint == f"{said}: in one launch each word must be stored by one program (ones)"
    assert isinstance(complaint, FirstCause)
    words = n * math.prod(grid)
    assert words_exactly().judge([trial]) == f"writes {words} words in total, expected {n}: {said} (ones)"


@pytest.mark.parametrize(
    "options",
    [
        {"grid": (1,), "launches": 3},
        {"grid": (3,), "ALL": False},
        {"grid": (2,), "ALL": False, "KIND": "twice"},
        {"grid": (4,), "KIND": "atomic"},
        {"grid": (2, 2), "ALL": False},
    ],
)
def test_one_program_per_word_atomic_operations_and_later_launches_are_no_race(options):
    trial = filled(n=8 if options.get("ALL", True) else 20, **options)
    assert trial.error is None and trial.shared == ""


def test_a_race_is_read_first_and_explains_the_other_properties():
    exercise, source = find("11A"), exercise_source("11A", solved=True)
    for old, new in (
        ("tl.program_id(0) * BM", "tl.program_id(0) // 2 * BM"),
        ("(programs,)", "(2 * programs,)"),
    ):
        assert old in source
        source = source.replace(old, new)
    verdicts = judge(exercise, build("11A", source), 5)
    failed = failed_properties(verdicts)
    assert set(failed) == {"moves exactly the words of the closed form", ORDER}
    assert read_first(exercise, failed) == ORDER
    assert "programs 0 and 1 write the same word of " in failed["moves exactly the words of the closed form"]
