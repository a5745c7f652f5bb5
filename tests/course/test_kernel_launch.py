"""Tests of kernel trials: memory layout of the inputs, no computation by torch, and the traffic count."""

from dataclasses import replace

import numpy as np
import pytest

from tools.build.notebook_execution import cannot_run

if reason := cannot_run("import torch, triton\n"):
    pytest.skip(reason, allow_module_level=True)

from iocourse import kernels  # noqa: I001  # before triton
import torch
import triton
import triton.language as tl

from iocourse.course.checking import KEEPS_RESULTS, REUSED, judge
from iocourse.course.exercise import Case, Exercise
from iocourse.course.trials.kernel_launch import launch, launch_in_place, launches_kernels, words_exactly
from iocourse.course.trials.kernel_launch import launch_and_count_masks
from iocourse.course.trials.kernel_launch import launch_and_count_programs
from iocourse.course.guard import LibrarySolutionUsed
from iocourse.ledger import Ledger


@triton.jit
def copy_kernel(X, Y, stride, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(Y + row * columns + at, tl.load(X + row * stride + at, mask=at < columns), mask=at < columns)


def copied(X):
    rows, columns = X.shape
    Y = torch.empty(rows, columns)
    copy_kernel[(rows,)](X, Y, X.stride(0), columns, BLOCK=triton.next_power_of_2(columns))
    return Y


ROOM = np.arange(60, dtype=np.float32).reshape(5, 12)
BUDGET = Ledger(reads={"X": 35}, writes={"Y": 35})
WHY = "because a loop, a mask or the grid"
CASE = Case("5 x 7", {"X": ROOM[:, 2:9]}, ROOM[:, 2:9], budget=BUDGET)


def test_values_and_words_of_a_strided_input():
    trial = launch(copied, CASE)
    assert trial.error is None
    assert np.array_equal(trial.value, CASE.expected)
    assert trial.ledger == BUDGET
    assert words_exactly().judge([trial]) is None and launches_kernels("X").judge([trial]) is None


@pytest.mark.parametrize(
    "X", [ROOM, ROOM[:, 2:9], ROOM[::2, ::3], ROOM.T, ROOM[1], ROOM[:0]], ids=lambda X: f"{X.shape}"
)
def test_a_tensor_has_the_strides_of_its_array_and_memory_of_its_own(X):
    def look(tensor):
        assert tensor.shape == X.shape and (not X.size or tensor.stride() == tuple(s // 4 for s in X.strides))
        around = tensor.as_strided((tensor.untyped_storage().nbytes() // 4,), (1,), 0)
        seen.update(values=tensor, around=around)
        return around

    before, seen = ROOM.copy(), {}
    assert launch(look, Case("", {"X": X})).error is None
    assert np.array_equal(seen["values"].numpy(), X)
    assert int(seen["around"].isnan().sum()) == seen["around"].numel() - X.size
    seen["around"].fill_(-1.0)
    assert np.array_equal(ROOM, before)


def test_what_no_kernel_wrote_is_nan_even_after_a_right_answer():
    def forgets_the_last_row(X):
        Y = torch.empty(5, 7)
        copy_kernel[(4,)](X, Y, X.stride(0), 7, BLOCK=8)
        return Y

    launch(copied, CASE)
    for allocate in (torch.empty, torch.ones(1).new_empty, lambda *s: torch.empty_like(torch.zeros(s))):
        assert np.isnan(launch(lambda X, a=allocate: a(5, 7), CASE).value).all()
    trial = launch(forgets_the_last_row, CASE)
    assert np.isnan(trial.value[4]).all() and not np.isnan(trial.value[:4]).any()
    assert words_exactly().judge([trial]) == "reads 28 words of X, expected 35 (5 x 7)"
    assert launches_kernels("X").judge([trial]) == (
        "your kernels read 28 of 35 words of X: the last of its rows is never read, "
        f"{WHY} ends too early (5 x 7)"
    )
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    "work",
    [
        lambda X: X + 1,
        lambda X: X @ X.T,
        lambda X: torch.softmax(X, 1),
        lambda X: X.sum(),
        lambda X: torch.from_numpy(X.numpy() * 2),
        lambda X: torch.tensor(X.tolist()),
        lambda X: torch.from_numpy(np.asarray(X)),
        lambda X: copied(X).mul_(2),
        lambda X: torch.full((5, 7), X[0, 0].item()),
    ],
)
def test_work_left_to_torch_is_refused(work):
    assert isinstance(launch(work, CASE).error, LibrarySolutionUsed)


@pytest.mark.parametrize(
    "memory",
    [
        lambda X: X.clone(),
        lambda X: X.contiguous().view(-1),
        lambda X: X.T[1:].half().float(),
        lambda X: torch.zeros_like(X).fill_(2.0),
        lambda X: X[None].expand(2, 5, 7).reshape(10, 7),
        lambda X: X.new_full((3,), float("-inf")),
    ],
)
def test_memory_is_given_as_ever(memory):
    assert launch(memory, CASE).error is None


def test_a_kernel_reads_in_place_where_copies_are_refused():
    assert np.array_equal(launch_in_place(copied, CASE).value, CASE.expected)
    assert launch_in_place(lambda X: torch.zeros_like(X).fill_(2.0).T, CASE).error is None
    for copy in (torch.clone, lambda X: copied(X.contiguous()), lambda X: torch.empty(5, 7).copy_(X)):
        error = launch_in_place(copy, CASE).error
        assert isinstance(error, LibrarySolutionUsed) and "torch copies here" in str(error)


@triton.jit
def without_other_kernel(X, Y, whole, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(Y + at, tl.load(X + at, mask=at < 3))
    tl.store(whole + at, tl.load(X + at, mask=at < 3, other=1).to(tl.int32))


def test_a_lane_that_is_off_holds_nan_where_no_other_was_given():
    def work(X):
        Y, whole = torch.zeros(8), torch.zeros(8, dtype=torch.int32)
        without_other_kernel[(1,)](X, Y, whole, BLOCK=8)
        return Y, whole

    X = np.full(3, 7.0, dtype=np.float32)
    Y, whole = launch(work, Case("", {"X": X})).value
    assert (Y[:3] == 7).all() and np.isnan(Y[3:]).all()
    assert whole.tolist() == [7, 7, 7, 1, 1, 1, 1, 1]
    assert not work(torch.from_numpy(X))[0].isnan().any()  # outside a check Triton's own choice is restored


@triton.jit
def largest_kernel(X, high, low, BLOCK: tl.constexpr):
    x = tl.load(X + tl.arange(0, BLOCK), mask=tl.arange(0, BLOCK) < 3)
    tl.store(high, tl.max(x, axis=0))
    tl.store(low, tl.min(x, axis=0))


def test_a_lane_that_is_off_shows_in_a_maximum_too():
    """The interpreter's tl.max and tl.min ignore NaN; a GPU need not."""

    def work(X):
        high, low = torch.zeros(1), torch.zeros(1)
        largest_kernel[(1,)](X, high, low, BLOCK=4)
        return high, low

    X = np.array([2.0, 3.0, 4.0], dtype=np.float32)
    assert all(np.isnan(value).all() for value in launch(work, Case("", {"X": X})).value)
    given = torch.tensor([2.0, np.nan, 4.0])
    assert [float(value) for value in work(given)] == [4, 0]  # outside a check nothing is replaced


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_maximum_of_lanes_that_are_on_stays_as_it_is(dtype):
    def work(X):
        high, low = torch.zeros(1), torch.zeros(1)
        largest_kernel[(1,)](X, high, low, BLOCK=2)
        return high, low

    high, low = launch(work, Case("", {"X": np.array([5, 7, 0], dtype=dtype)})).value
    assert (high, low) == (7, 5)


def test_an_input_that_a_kernel_writes_into_is_named():
    error = launch(lambda X: X.fill_(2.0), Case("", {"X": np.ones(8, np.float32)})).error
    assert str(error) == "your kernels write into X, which belongs to the caller"


@pytest.mark.parametrize("run_case", [launch, launch_and_count_masks, launch_and_count_programs])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16])
def test_what_was_returned_is_not_written_over_by_a_later_launch(run_case, kind):
    def copied_to(X, BM, BN):
        Y = torch.empty(X.shape, dtype=kind)
        copy_kernel[(5,)](X, Y, X.stride(0), 7, BLOCK=8)
        return Y

    def buffered(X, BM, BN):
        Y = copied_to(X, BM, BN)
        kept.append(Y)
        copy_kernel[(5,)](X, kept[0], X.stride(0), 7, BLOCK=8)
        return kept[0]

    def cases(rng):
        drawn = rng.standard_normal((2, 5, 7)).astype(np.float32)
        return [Case(f"{at}", {"X": X, "BM": 16, "BN": 16}) for at, X in enumerate(drawn)]

    kept = []
    about = {"difficulty": 1, "importance": 1, "minutes": 1, "hints": ("", "", ""), "properties": ()}
    made_up = Exercise("99.1", "Copies", "copied_to", cases=cases, run_case=run_case, **about)
    assert judge(made_up, copied_to, 0) == []
    assert judge(made_up, buffered, 0) == [(KEEPS_RESULTS, f"{REUSED} (0)")]


def test_an_unwritten_kernel_and_a_library_kernel_are_named_as_such():
    @triton.jit
    def unwritten(X):
        raise NotImplementedError

    trial = launch(lambda X: unwritten[(1,)](X), CASE)
    assert isinstance(trial.error, NotImplementedError)
    q = np.zeros((1, 1, 4, 4), dtype=np.float32)
    trial = launch(lambda q: kernels.attention(q, q, q), Case("", {"q": q}))
    assert isinstance(trial.error, LibrarySolutionUsed)


def test_words_that_only_one_side_has_are_named():
    more = Ledger(reads={"X": 35, "Z": 1}, writes={"Y": 36})
    trial = launch(copied, Case("", {"X": ROOM[:, 2:9]}, budget=more))
    assert "reads 35 words in total, expected 36" in words_exactly().judge([trial])
    more = Ledger(reads={"X": 35}, writes={"Y": 36})
    trial = launch(copied, Case("", {"X": ROOM[:, 2:9]}, budget=more))
    assert "writes 35 words in total, expected 36" in words_exactly().judge([trial])


@triton.jit
def part_kernel(X, Y, low, high, left, right):
    row, at = tl.program_id(0), tl.arange(0, 8)
    mask = (row >= low) & (row < high) & (at >= left) & (at < right)
    tl.store(Y + row * 7 + at, tl.load(X + row * 12 + at, mask=mask, other=0.0), mask=at < 7)


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ((0, 5, 0, 7), None),
        ((0, 3, 0, 7), f"21 of 35 words of X: the last 2 of its 5 rows are never read, {WHY} ends too early"),
        ((1, 5, 0, 7), f"28 of 35 words of X: the first of its rows is never read, {WHY} begins too late"),
        ((0, 5, 0, 6), f"30 of 35 words of X: the last of its columns is never read, {WHY} ends too early"),
        ((1, 4, 0, 7), "21 of 35 words of X"),
        ((0, 4, 0, 6), "24 of 35 words of X"),
        ((0, 0, 0, 0), "0 of 35 words of X"),
    ],
)  # fmt: skip
def test_words_that_no_kernel_reads_are_named_by_their_rows_or_columns(part, said):
    def read_in_part(X):
        Y = torch.empty(5, 7)
        for _ in range(2):
            part_kernel[(5,)](X, Y, *part)
        return Y

    twice = replace(CASE, budget=Ledger(reads={"X": 70}, writes={"Y": 70}))
    complaint = launches_kernels("X").judge([launch(read_in_part, twice)])
    assert complaint == (said and f"your kernels read {said} (5 x 7)")


def test_a_copy_may_be_read_instead_and_a_case_that_is_read_in_part_comes_first():
    trial = launch(lambda X: copied(X.contiguous()), CASE)
    assert trial.error is None and not trial.read["X"].any()
    assert launches_kernels("X").judge([trial]) is None

    def but_for_one_tile(X):
        Y = torch.zeros(5, 7)
        if len(X) > 1:
            copy_kernel[(len(X) - 1,)](X, Y, X.stride(0), 7, BLOCK=8)
        return Y

    one = Case("one row", {"X": ROOM[:1, 2:9]}, ROOM[:1, 2:9])
    trials = [launch(but_for_one_tile, one), launch(but_for_one_tile, CASE)]
    assert "read 28 of 35 words of X" in launches_kernels("X").judge(trials)
    assert "read 0 of 7 words of X" in launches_kernels("X").judge(trials[:1])


def test_the_right_number_of_words_from_wrong_addresses_is_a_fault_of_the_values():
    def first_row_always(X):
        Y = torch.empty(5, 7)
        copy_kernel[(5,)](X, Y, 0, 7, BLOCK=8)
        return Y

    trial = launch(first_row_always, CASE)
    assert launches_kernels("X").judge([trial]) is None and words_exactly().judge([trial]) is None
