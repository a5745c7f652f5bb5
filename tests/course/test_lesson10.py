"""Tests of lesson 10: its programs, kernels, formulas and exercises."""

import re
from itertools import pairwise

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import costs, exact, gpu
from iocourse.course.checking import check, judge, read_first
from iocourse.course.exercise import find
from iocourse.course.properties import LARGE
from tests.mutation.references import build, exercise_source
from tools.build.notebook_execution import cannot_run
from tools.build.percent_format import side

SOURCE = Lesson("10")
section, says = SOURCE.section, SOURCE.says


needs_triton = pytest.mark.skipif(bool(cannot_run("import triton\n")), reason=cannot_run("import triton\n"))


def definitions(*names):
    """Return the lesson's functions of these names, defined in one namespace."""
    space = {"np": np}
    for _, text in SOURCE.solved_cells():
        if any(f"def {name}(" in text for name in names):
            exec("\n".join(line for line in text.splitlines() if not line.startswith("%")), space)
    return space


@pytest.fixture(scope="module")
def in_numpy():
    return definitions("load", "softmax_program")


@pytest.fixture(scope="module")
def in_triton(tmp_path_factory):
    """Define the lesson's kernels in a file, because Triton reads their source from there."""
    import importlib.util

    parts = ["from iocourse import kernels", "import torch, triton", "import triton.language as tl"]
    parts += ["from iocourse import gpu, traffic"]
    parts += [
        "\n".join(side(c, solved=True)) for c in SOURCE.cells if c.kind == "code" and "@triton.jit" in c.lines
    ]
    parts = [re.sub(r"\nfor length in .*", "", part, flags=re.DOTALL) for part in parts]
    path = tmp_path_factory.mktemp("lesson") / "lesson10_kernels.py"
    path.write_text("\n\n".join(parts), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("__main__", path)  # as for the kernels of a notebook
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_needs_numpy_only_comes_before_the_first_import_of_triton():
    code = [source for _, source in SOURCE.solved_cells()]
    first = next(
        n for n, text in enumerate(code) if re.search(r"^ *import (torch|triton)", text, re.MULTILINE)
    )
    assert not any(re.search(r"\b(torch|triton|tl|traffic|kernels)\b", text) for text in code[:first])
    assert code[first].index("from iocourse import kernels") < code[first].index("import torch")
    assert code[first].index('"TRITON_INTERPRET"') < code[first].index("from iocourse")
    for name in ("copy_program", "softmax_program", "product_program", "my_tile"):
        assert any(f"def {name}(" in text for text in code[:first])


# ---------------------------------------------------------------------- 10.1 to 10.3, NumPy
def test_the_places_of_10_1_and_10_2():
    """They define where a program and an element lie, so no function of the library computes them."""
    says("10.1", r"p = 0, \dots, \lceil n/B \rceil - 1")
    says("10.2", r"\text{start} + i, s_0 + j, s_1")


def test_softmax_of_10_3(in_numpy):
    S = np.random.default_rng(0).standard_normal((6, 11))
    Y, words = np.zeros(66), in_numpy["words"]
    words.update(read=0, written=0)
    for row in range(6):
        in_numpy["softmax_program"](row, S.ravel(), Y, 11, 16)
    assert np.allclose(Y.reshape(6, 11), exact.softmax(S)) and words == {"read": 66, "written": 66}
    says("10.3", "$W = 2mn$ for $m$ rows of $n$ words")


# ---------------------------------------------------------------------- 10.4 to 10.6, Triton
@needs_triton
def test_a_row_of_10_5_does_not_fit_a_chip_and_one_of_the_check_not_even_a_block():
    from triton.language.core import TRITON_MAX_TENSOR_NUMEL

    assert TRITON_MAX_TENSOR_NUMEL == 2**20
    assert max(case.inputs["X"].shape[1] for case in find("10C").cases(np.random.default_rng(0))) > 2**20
    chip = gpu.chip_of(90)
    assert chip.registers + chip.shared_bytes // 4 < 2**18


@needs_triton
def test_every_kernel_of_the_lesson_compiles_for_a_gpu(in_triton):
    """All kernels of the lesson compile and are not only accepted by the interpreter."""
    import torch

    X = torch.empty(64, 64, dtype=torch.float16)
    jobs = {
        in_triton.copy_kernel: ((X, X, 60, 60, 64, 64), {"BM": 32, "BN": 32}),
        in_triton.careless_kernel: ((X, X), {"BLOCK": 64}),
        in_triton.my_transpose_kernel: ((X, X, 60, 60, 64, 1), {"BM": 32, "BN": 32}),
        in_triton.softmax_kernel: ((X.float(), X.float(), 60, 64, 64), {"BLOCK": 64}),
        in_triton.my_long_softmax_kernel: ((X.float(), X.float(), 60, 64), {"BLOCK": 32}),
        in_triton.my_product_kernel: ((X, X, X, 60, 60, 60, 64, 64), {"BM": 32, "BN": 32, "BK": 32}),
        in_triton.tally_kernel: ((X.float(), X.float()), {}),
    }
    defined = {name for name in vars(in_triton) if name.endswith("_kernel")} - {"one_tile_kernel"}
    assert defined == {kernel.fn.__name__ for kernel in jobs}
    for kernel, (arguments, constants) in jobs.items():
        found = gpu.resources(kernel, 90, *arguments, **constants)
        assert found.fits and bool(found.tensor_core) == (kernel is in_triton.my_product_kernel)


# ---------------------------------------------------------------------- 10.7, 10.8
def test_twice_the_side_halves_the_words_of_A_and_B_in_10_7():
    n = 1024
    totals = [costs.matmul(n, n, n, bm=side, bn=side).total - n * n for side in (16, 32, 64, 128, 256)]
    assert all(one == 2 * other for one, other in pairwise(totals))


def test_the_order_of_programs_of_10_7():
    space = definitions("by_rows")
    orders = space["by_rows"], space["in_groups"]
    for order in orders:
        assert {order(pid) for pid in range(256)} == {(i, j) for i in range(16) for j in range(16)}
    first = {orders[1](pid) for pid in range(32)}
    assert first == {(i, j) for i in range(4) for j in range(8)}  # "the block of 4 rows and 8 columns"
    rows, groups = (space["strips"](order) for order in orders)
    assert groups == 8 * (4 + 8) and 3 * groups == 2 * rows  # "a third less"


@needs_triton
def test_tl_dot_wants_an_inner_size_of_16(in_triton):
    import torch

    assert in_triton.on_a_chip(16, torch.float16) == "on tensor cores"
    assert in_triton.on_a_chip(8, torch.float16) == "refused by the compiler"
    assert "`tl.dot` wants an inner size of at least 16 (10.8)" in section("10.7")


# ---------------------------------------------------------------------- exercises
@pytest.mark.parametrize("exercise", ["10B", "10C", "10D"])
def test_every_exercise_has_a_case_whose_rows_lie_apart(exercise):
    for seed in range(5):
        cases = find(exercise).cases(np.random.default_rng(seed))
        first = [next(v for v in case.inputs.values() if isinstance(v, np.ndarray)) for case in cases]
        apart = [X.strides[1] == 4 and X.strides[0] > 4 * X.shape[1] for X in first]
        assert any(apart) and apart == [case.has("a slice of a larger matrix") for case in cases]
        assert all(X.dtype == np.float32 for X in first)


def test_10D_has_each_size_ragged_alone():
    for seed in range(20):
        ragged = set()
        for case in find("10D").cases(np.random.default_rng(seed)):
            (m, k), n = case.inputs["A"].shape, case.inputs["B"].shape[1]
            sizes = ((m, "BM"), (n, "BN"), (k, "BK"))
            ragged.add(tuple(bool(size % case.inputs[tile]) for size, tile in sizes))
            assert case.has("ragged depth") == (tuple(s % case.inputs[t] > 0 for s, t in sizes) == (0, 0, 1))
        one = {(True, False, False), (False, True, False), (False, False, True)}
        assert ragged >= one | {(False, False, False)}


def test_only_rows_that_rise_and_large_or_low_ones_need_their_sum_rescaled():
    for seed in range(5):
        for case in find("10C").cases(np.random.default_rng(seed)):
            X, BLOCK = case.inputs["X"], case.inputs["BLOCK"]
            rises = (X[:, :BLOCK].max(1) < X.max(1)).any()
            assert rises == case.has("rising scores") or case.has(LARGE) or case.has("all far below zero")


def answer(exercise, *edits):
    """Return the reference with these edits, each of which must change it."""
    source = exercise_source(exercise, solved=True)
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return build(exercise, source)


def refused(exercise, *edits):
    """Return the properties that fail for the reference with these edits, and the one to read first."""
    verdicts = judge(find(exercise), answer(exercise, *edits), 0)
    failed = {name: said for name, said in verdicts if said is not None}
    return failed, read_first(find(exercise), failed)


@needs_triton
def test_a_sum_that_is_not_rescaled_is_named_first():
    failed, first = refused("10C", ("l * tl.exp(m - m_new) +", "l +"))
    assert len(failed) > 2 and first == "the sum is rescaled when the maximum rises"


@needs_triton
def test_a_row_that_fits_in_a_block_may_be_read_once(capsys, monkeypatch):
    once = (
        "    for start in range(0, n, BLOCK):",
        "    if n <= BLOCK:\n"
        "        j = tl.arange(0, BLOCK)\n"
        '        s = tl.load(X + row * s_x + j, mask=j < n, other=-float("inf"))\n'
        "        e = tl.exp(s - tl.max(s, 0))\n"
        "        tl.store(Y + row * n + j, e / tl.sum(e, 0), mask=j < n)\n"
        "        return\n"
        "    for start in range(0, n, BLOCK):",
    )
    source = exercise_source("10C", solved=True)
    assert source.count(once[0]) == 2
    check("10C", build("10C", source.replace(*once, 1)), seed=0)
    said = capsys.readouterr().out
    assert "  holds  each word is read at most twice and written once: fewer than (10.3)\n" in said
    assert said.endswith("Solved.\n")


@needs_triton
def test_who_wraps_rows_by_a_remainder_hears_that_such_lanes_are_live():
    """As in Triton's tutorial on matrix products, rows out of bounds wrap to the first ones."""
    failed, first = refused(
        "10D", ("mask=(i < m) & (along < k)", "mask=along < k"), ("A + i * s_a", "A + i % m * s_a")
    )
    assert first == "moves exactly the words of (10.4)" and list(failed) == [first]
    assert (
        " words of A, expected " in failed[first] and "A lane that wraps around moves a word" in failed[first]
    )
