"""Tests of the machine on one page (lesson 02): its counts equal those of the library's machine.

The page is the cell `machine-on-one-page` of the lesson. The schedules are the solved exercises of lessons 02
and 04, unchanged; 4B takes its RowStats from the machine that runs it.
"""

import ast
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import iocourse
from iocourse import run
from tools.build.percent_format import parse, shown, side

SOLUTIONS = Path(__file__).parents[2] / "solutions"
SEEDS = range(12)


def cell_of(number, name):
    (path,) = SOLUTIONS.glob(f"{number}_*.py")
    (found,) = (cell for cell in parse(path.read_text(encoding="utf-8"), path) if cell.name == name)
    return found


PAGE = "\n".join(side(cell_of("02", "machine-on-one-page"), solved=True)) + "\n"


@cache
def names_of(code):
    """The names that the code of a page defines."""
    names = {"__name__": "page"}
    exec(compile(code, "page", "exec"), names)
    return names


@cache
def schedule(exercise, row_stats):
    """The solved function of an exercise; `row_stats` is the class that 4B uses."""
    number = {"2": "02", "4": "04"}[exercise[0]]
    code = "\n".join(side(cell_of(number, f"ex-{exercise}"), solved=True))
    names = {"np": np, "RowStats": row_stats}
    exec(code, names)
    (function,) = (value for name, value in names.items() if name.startswith("my_"))
    return function


def attention(rng):
    N, d, Br, Bc = (int(rng.integers(1, most)) for most in (40, 9, 14, 14))
    Q, K, V = rng.standard_normal((3, N, d))
    return {"Q": Q, "K": K, "V": V, "Br": Br, "Bc": Bc}


def matrix(rng):
    A = rng.standard_normal(rng.integers(1, 16, 2))
    return {"A": A, "b": int(rng.integers(1, 7))}


def product(rng):
    m, k, n = rng.integers(1, 16, 3)
    A, B = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    return {"A": A, "B": B, "bm": int(rng.integers(1, 7)), "bn": int(rng.integers(1, 7))}


EXERCISES = {
    "2A": matrix,
    "2B": product,
    "2D": matrix,
    "4A": attention,
    "4B": attention,
    "4C": attention,
}


def ledgers(exercise, seed, code=PAGE):
    """Reads, writes and peak of the page and of the library for one exercise; also compares the values."""
    inputs = EXERCISES[exercise](np.random.default_rng(seed))
    library = run(schedule(exercise, iocourse.RowStats), M=10**6, **inputs)
    names = names_of(code)
    machine = names["TwoLevelMachine"](10**6)
    result = machine.run(schedule(exercise, names["RowStats"]), **inputs)
    np.testing.assert_allclose(result, library.O)
    ledger = library.ledger
    return (dict(machine.reads), dict(machine.writes), machine.peak), (
        dict(ledger.reads),
        dict(ledger.writes),
        ledger.peak,
    )


@pytest.mark.quick
@pytest.mark.parametrize("exercise", EXERCISES)
def test_both_machines_count_the_same_words(exercise):
    for seed in SEEDS:
        page, library = ledgers(exercise, seed)
        assert page == library, seed


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_page_runs_in_the_peak_of_the_library_and_not_in_one_word_less(exercise):
    for seed in SEEDS:
        inputs = EXERCISES[exercise](np.random.default_rng(seed))
        peak = run(schedule(exercise, iocourse.RowStats), M=10**6, **inputs).ledger.peak
        names = names_of(PAGE)
        machine = names["TwoLevelMachine"](peak)
        machine.run(schedule(exercise, names["RowStats"]), **inputs)
        assert machine.peak == peak and not machine.in_use  # every tile was freed
        assert machine.moved == sum(machine.reads.values()) + sum(machine.writes.values()) > 0
        with pytest.raises(MemoryError, match=f"{peak} words needed in fast memory, but M = {peak - 1}"):
            names["TwoLevelMachine"](peak - 1).run(schedule(exercise, names["RowStats"]), **inputs)


@pytest.mark.parametrize(
    ("right", "wrong", "exercise"),
    [
        ("self.writes[array.name] += part.size", "self.writes[array.name] += 2 * part.size", "4A"),
        ("self.reads[array.name] += tile.size", "self.reads[array.name] += len(tile)", "4B"),
        ("        self.machine.in_use.pop(id(self), None)", "        pass", "4C"),
        ("    __del__ = free", "    __del__ = lambda self, kept=[]: kept.append(self)", "2A"),
        ("self.peak = max(self.peak, used)", "self.peak = used", "4B"),
        ("return self.machine.new_tile(compute(", "return (lambda new: new)(compute(", "2A"),
    ],
)  # fmt: skip
def test_a_page_that_miscounts_is_seen(right, wrong, exercise):
    assert PAGE.count(right) == 1
    found = [ledgers(exercise, seed, PAGE.replace(right, wrong)) for seed in SEEDS]
    assert any(page != library for page, library in found)


def test_a_store_of_another_shape_is_refused_and_not_counted():
    machine = names_of(PAGE)["TwoLevelMachine"](100)

    def schedule(m, A):
        Y = m.new("Y", A.shape)
        with m.load(A, 0) as a:  # one row, which NumPy would write to both
            m.store(a, Y, (0, 2))

    with pytest.raises(ValueError, match=r"tile of shape \(1, 6\), but Y needs \(2, 6\)"):
        machine.run(schedule, A=np.ones((2, 6)))
    assert machine.reads == {"A": 6} and not machine.writes


def test_a_load_that_does_not_fit_is_not_counted_and_the_next_run_starts_at_zero():
    machine = names_of(PAGE)["TwoLevelMachine"](12)
    kept = []

    def two_loads(m, A):
        kept.append(m.load(A, 0))
        kept.append(m.load(A, (0, 2)))

    A = np.arange(12.0).reshape(2, 6)
    with pytest.raises(MemoryError, match="18 words needed in fast memory, but M = 12"):
        machine.run(two_loads, A=A)
    assert machine.reads == {"A": 6} and machine.in_use
    np.testing.assert_array_equal(machine.run(row_by_row, A=A), 2 * A)
    assert (machine.moved, machine.peak, dict(machine.reads)) == (24, 6, {"A": 12})


def row_by_row(m, A):
    """Double A, with every kind of rows and columns that the page accepts."""
    Y = m.new("Y", A.shape)
    for rows, cols in ((0, None), (np.int64(1), (0, 2)), (slice(1, 2), slice(2, 5)), ((1, 2), 5)):
        with m.load(A, rows, cols) as a:
            assert a.ndim == 2  # also for the position of one row or column
            a *= 2
            m.store(a, Y, rows, cols)
    return Y


def test_the_page_counts_no_array_that_a_ufunc_did_not_make():
    machine = names_of(PAGE)["TwoLevelMachine"](100)
    a = machine.zeros(4, (3, 5))
    made = a.copy(), a[[0, 2]], np.dot(a.T, a), a[1:3], a.T  # noqa: F841
    assert sum(machine.in_use.values()) == 8 == a.size
    summed = a.sum(axis=1), a.mean(), a @ a.T  # noqa: F841
    assert sum(machine.in_use.values()) == 8 + 4 + 1 + 16


def test_the_page_can_be_copied_as_one_file():
    tree = ast.parse(PAGE)
    imported = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported += [one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names]
    assert sorted(imported) == ["collections", "numpy"]
    assert ast.get_docstring(tree).startswith("A two-level memory machine on one page")
    assert sum(map(bool, PAGE.splitlines())) <= 115


def test_the_student_sees_the_page():
    cell = cell_of("02", "machine-on-one-page")
    assert shown(cell, solved=False) and side(cell, solved=False) == side(cell, solved=True)
