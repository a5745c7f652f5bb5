"""Tests of lesson 10: its programs, kernels, formulas and exercises."""

import ast
import re
import types
from itertools import pairwise

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import costs, gpu
from iocourse.course.checking import check, failed_properties, judge, read_first
from iocourse.course.exercise import find
from iocourse.course.properties import LARGE
from tests.mutation.references import build, exercise_source
from tools.build.notebook_execution import cannot_run

SOURCE = Lesson("10")
section, says = SOURCE.section, SOURCE.says


needs_triton = pytest.mark.skipif(bool(cannot_run("import triton\n")), reason=cannot_run("import triton\n"))


def functions(text):
    """Return the source of a cell's functions, with decorators and without other statements."""
    lines = text.splitlines()
    defined = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    first = [min([node.lineno, *(one.lineno for one in node.decorator_list)]) for node in defined]
    return "\n\n".join(
        "\n".join(lines[start - 1 : node.end_lineno]) for start, node in zip(first, defined, strict=True)
    )


def definitions(*names):
    """Return the lesson's functions of these names, defined in one namespace."""
    space = {"np": np}
    for _, text in SOURCE.solved_cells():
        if any(f"def {name}(" in text for name in names):
            exec(functions(text), space)
    return space


@pytest.fixture(scope="module")
def in_triton(tmp_path_factory):
    """Define the lesson's kernels in a file, because Triton reads their source from there."""
    import importlib.util

    parts = ["from iocourse import kernels", "import torch, triton", "import triton.language as tl"]
    parts += ["from iocourse import gpu, traffic"]
    parts += [functions(text) for _, text in SOURCE.solved_cells() if "@triton.jit" in text]
    path = tmp_path_factory.mktemp("lesson") / "lesson10_kernels.py"
    path.write_text("\n\n".join(parts), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("__main__", path)  # as for the kernels of a notebook
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compiled(kernel, dtype, BK=32):
    """Compile a product for an H200 as the lesson does."""
    import torch

    X = torch.empty(1024, 1024, dtype=dtype)
    return gpu.resources(kernel, 90, X, X, X, *[1024] * 5, BM=64, BN=64, BK=BK)


def test_triton_is_imported_before_the_first_kernel_and_no_cell_mixes_it_with_what_needs_numpy_only():
    code = [source for _, source in SOURCE.solved_cells()]
    first = next(n for n, text in enumerate(code) if "import triton" in text)
    assert first < next(n for n, text in enumerate(code) if "@triton.jit" in text)
    assert code[first].index("from iocourse import kernels") < code[first].index("import torch")
    assert code[first].index('"TRITON_INTERPRET"') < code[first].index("from iocourse")
    for name in ("copy_program", "my_tile", "requested", "footprint", "strips"):
        (text,) = [text for text in code if f"def {name}(" in text]
        assert not re.search(r"\b(torch|triton|tl|traffic|kernels)\b", text), name


# ---------------------------------------------------------------------- 10.1 to 10.6
def test_the_owned_words_of_10_1_and_the_offset_of_10_2():
    """They define what a program owns and where an element is; the library does not compute them."""
    says("10.1", r"p = 0, \dots, \lceil n/B \rceil - 1")
    says("10.2", r"\text{offset of } (i, j) = i, s_0 + j, s_1")


def test_the_program_in_numpy_copies_in_any_order():
    copy_program = definitions("copy_program")["copy_program"]
    for n, BLOCK in ((1000, 128), (96, 32), (5, 8)):
        X, Y = np.arange(float(n)), np.full(n, np.nan)
        for p in reversed(range(-(-n // BLOCK))):
            copy_program(p, X, Y, n, BLOCK)
        assert (X == Y).all()


@pytest.mark.parametrize("BK", [1, 16, 32, 70])
def test_what_the_programs_of_10_6_request_is_the_closed_form(BK):
    space = definitions("requested") | {"m": 100, "n": 90, "k": 70, "down": 4, "across": 3}
    requested = types.FunctionType(space["requested"].__code__, space)
    assert requested(BK) == costs.matmul(100, 90, 70, bm=32, bn=32).total


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
    F = X.float()
    jobs = {
        in_triton.copy_words_kernel: ((F, F, 60), {"BLOCK": 64}),
        in_triton.copy_kernel: ((X, X, 60, 60, 64, 64), {"BM": 32, "BN": 32}),
        in_triton.unmasked_kernel: ((X, X), {"BLOCK": 64}),
        in_triton.my_transpose_kernel: ((X, X, 60, 60, 64, 1), {"BM": 32, "BN": 32}),
        in_triton.softmax_kernel: ((F, F, 60, 64, 64), {"BLOCK": 64}),
        in_triton.my_long_softmax_kernel: ((F, F, 60, 64), {"BLOCK": 32}),
        in_triton.my_product_kernel: ((X, X, X, 60, 60, 60, 64, 64), {"BM": 32, "BN": 32, "BK": 32}),
        in_triton.tally_kernel: ((F, F), {}),
        in_triton.printing_kernel: ((F, 6), {"BLOCK": 4}),
    }
    defined = {name for name in vars(in_triton) if name.endswith("_kernel")}
    assert defined == {kernel.fn.__name__ for kernel in jobs}
    for kernel, (arguments, constants) in jobs.items():
        found = gpu.resources(kernel, 90, *arguments, **constants)
        prints = kernel is in_triton.printing_kernel  # what it prints passes through local memory
        assert found.fits != prints
        assert bool(found.tensor_core) == (kernel is in_triton.my_product_kernel)


@needs_triton
def test_the_compiled_transpose_of_10B_exchanges_its_tile_in_shared_memory(in_triton):
    """It loads along rows of X, stores along rows of Y; a copy, or a view in columns, exchanges nothing."""
    import torch

    def shared(kernel, *arguments):
        X = torch.empty(1024, 1024)
        return gpu.resources(kernel, 90, X, X, *arguments, BM=32, BN=32).shared_bytes

    transpose, tile = in_triton.my_transpose_kernel, 32 * 32 * 4
    assert shared(transpose, 1024, 1024, 1024, 1) == tile == shared(transpose, 45, 26, 26, 1)
    assert shared(transpose, 1024, 1024, 1, 1024) == 0
    assert shared(in_triton.copy_kernel, 1024, 1024, 1024, 1024) == 0
    assert "the threads exchange the tile in *shared memory*" in section("10.4")


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
def test_the_instructions_of_one_iteration_of_10_8(in_triton):
    import torch

    kernel = in_triton.my_product_kernel
    single, half = (compiled(kernel, dtype).hot_loop for dtype in (torch.float32, torch.float16))
    assert (single.fma, single.tensor) == (64 * 64 * 32 // 128, 0)
    assert (half.fma, half.tensor, half.wgmma) == (0, 32 // 16, 32 // 16)
    assert half.products == {"HGMMA.64x64x16.F32": 2}


@needs_triton
def test_the_copies_of_the_pieces_in_shared_memory_of_10_8(in_triton):
    import torch

    kernel, pieces = in_triton.my_product_kernel, 2 * 64 * 32
    single, half = (compiled(kernel, dtype).shared_bytes for dtype in (torch.float32, torch.float16))
    assert (single, half) == (2 * 4 * pieces, 3 * 2 * pieces)
    assert "two copies of the pieces in float32 (16 KB each) and three in float16 (8 KB each)" in section(
        "10.8"
    )


@needs_triton
def test_only_ieee_keeps_float32_away_from_the_tensor_cores():
    import torch

    source = exercise_source("10D", solved=True)
    for precision in ("tf32", "tf32x3"):
        product = build("10D", source.replace('"ieee"', f'"{precision}"'))
        assert compiled(product.__globals__["my_product_kernel"], torch.float32).tensor_core > 0
    says("10.8", 'Only `input_precision="ieee"` keeps float32 away from the tensor cores.')


@needs_triton
def test_tl_dot_needs_an_inner_size_of_16(in_triton):
    import torch

    assert compiled(in_triton.my_product_kernel, torch.float16, BK=16).tensor_core
    with pytest.raises(gpu.CompilationFailed):
        compiled(in_triton.my_product_kernel, torch.float16, BK=8)
    assert "`tl.dot` needs an inner size of at least 16 (section 10.8)" in section("10.7")


@needs_triton
def test_the_interpreter_ignores_input_precision():
    A, B = np.random.default_rng(0).standard_normal((2, 32, 32), dtype=np.float32)
    source = exercise_source("10D", solved=True)
    import torch

    for precision in ("ieee", "tf32", "tf32x3"):
        product = build("10D", source.replace('"ieee"', f'"{precision}"'))
        C = product(torch.from_numpy(A), torch.from_numpy(B), 16, 16, 16)
        assert np.abs(C.double().numpy() - A.astype(float) @ B.astype(float)).max() < 1e-5


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
    failed = failed_properties(verdicts)
    return failed, read_first(find(exercise), failed)


@needs_triton
def test_a_sum_that_is_not_rescaled_is_named_first():
    failed, first = refused("10C", ("l * tl.exp(m - m_new) +", "l +"))
    assert len(failed) > 2 and first == "the sum is rescaled when the maximum rises"


@needs_triton
def test_a_maximum_over_undefined_lanes_is_refused_even_if_the_sum_is_guarded():
    load, rest = "s = tl.load(X + row * s_x + j, mask=j < n", "\n        m_new"
    failed, first = refused(
        "10C",
        (f'{load}, other=-float("inf")){rest}', f"{load}){rest}"),
        ("tl.sum(tl.exp(s - m_new), axis=0)", "tl.sum(tl.where(j < n, tl.exp(s - m_new), 0.0), axis=0)"),
    )
    assert first == "out-of-bounds lanes do not change the result" and "got nan" in failed[first]
    failed, first = refused(
        "11A",
        (
            "k = tl.load(K + j[:, None] * d + c, mask=there, other=0.0)",
            "k = tl.load(K + j[:, None] * d + c, mask=there)",
        ),
        ('        s = tl.where(j[None, :] < N, s, float("-inf"))\n', ""),
        ("p = tl.exp2(s - m_new[:, None])", "p = tl.where(j[None, :] < N, tl.exp2(s - m_new[:, None]), 0.0)"),
    )
    assert first == "O is correct when one tile holds all keys" and "got nan" in failed[first]


@needs_triton
def test_a_plain_copy_is_not_taken_for_a_fault_of_the_strides():
    """The transpose of one row is a plain copy, so this case is right."""
    moved = ("Y + j[None, :] * rows + i[:, None]", "Y + i[:, None] * columns + j[None, :]")
    assert refused("10B", moved)[1] == "Y is the transpose of X"
    columns_ignored = ("j[None, :] * s1", "j[None, :]")
    assert refused("10B", columns_ignored)[1] == "uses both strides"


@pytest.mark.parametrize(
    ("forgotten", "said"),
    [
        (
            ("(j < columns)", "(j >= 0)"),
            r"first in lane \(0, \d\): element .* is out of bounds in columns \(",
        ),
        (("(i < rows)", "(i >= 0)"), r"first in lane \(\d, 0\): element .* is out of bounds in rows \("),
        (("(j < columns)", "(j < 0)"), r"first in lane \(0, 0\): element \(0, 0\) is within bounds \("),
        (("&", "and"), r"write & for and, \| for or, and brackets"),
    ],
)
def test_a_wrong_mask_of_10A_names_a_lane_and_its_axis(forgotten, said):
    failed, first = refused("10A", forgotten)
    assert re.search(said, failed[first])


@needs_triton
def test_a_grid_of_10D_that_is_a_number_says_what_to_write():
    grid = "(triton.cdiv(m, BM), triton.cdiv(n, BN))"
    failed, first = refused("10D", (f"grid = {grid}", "grid = triton.cdiv(m, BM) * triton.cdiv(n, BN)"))
    assert "a grid is a tuple of numbers of programs, one per axis: write (6,)" in failed[first]


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
