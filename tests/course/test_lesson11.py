"""Tests of lessons 11 and 11b: pictures, exercises, and what the compiler makes of the kernels."""

import itertools
from importlib import metadata

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import gpu
from iocourse.course import explore
from iocourse.course.checking import judge
from iocourse.course.exercise import Case, find
from iocourse.course.exercises import lesson11
from iocourse.course.kinds.forward_cases import (
    ALL,
    FEW,
    LATE,
    NOTHING,
    ONE_TILE,
    mask_difficulty,
    tile_difficulty,
)
from iocourse.data.records import load_record
from tests.mutation import references
from tools.build.notebook_execution import cannot_run
from tools.build.percent_format import side

SOURCE, SECOND = Lesson("11_"), Lesson("11b")
says = SOURCE.says
if reason := cannot_run(SOURCE.source):
    pytest.skip(reason, allow_module_level=True)

from iocourse import kernels, traffic  # noqa: E402

# isort: split
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from iocourse.course.trials import kernel_launch  # noqa: E402
from iocourse.gpu import CHIPS  # noqa: E402


def defined(*names):
    """Run the code cells that define these names, without the others, and return their namespace."""
    space = {"__name__": "__main__", "np": np, "torch": torch, "triton": triton, "tl": tl}
    lesson = SECOND if f"def {names[-1]}(" in SECOND.source else SOURCE
    return lesson.define(names, space)


# ---------------------------------------------------------------------- the text
def test_the_kernel_has_some_thirty_lines():
    kernel = "\n".join(side(next(c for c in SOURCE.cells if c.name == "ex-11A"), solved=True)).split("\n\n")[
        0
    ]
    assert 20 <= kernel.count("\n") + 1 <= 35


def test_the_pictures_show_what_the_text_reads_off_them():
    record = load_record("resources")
    assert record is not None, "iocourse/data/bench/resources.json is part of lesson 11b"
    picture = explore.kernel_resources(record["forward_by_tile"], d=128, chips=[75, 80, 90])
    assert "128 × 128 spills, up to 168 bytes" in picture.alt and "BN = 1" in picture.alt
    assert "0 of 8 use tensor cores" in picture.alt
    roof = explore.roofline([75, 80, 90], {"BM = 128": 124.1, "each word once": 2048.0})
    assert "Triton uses no tensor cores on a T4" in roof.alt and "989" in roof.numbers
    reached = min(CHIPS[80].tensor_tflops, 124.1 * CHIPS[80].gbytes_per_s / 1000)
    assert f"{reached:.0f} on A100" in roof.alt


@pytest.mark.parametrize(("lesson", "has"), [(SOURCE, "def program("), (SECOND, "def windowed(")])
def test_the_numpy_sections_come_before_the_cell_that_needs_triton(lesson, has):
    before = lesson.above("iocourse import kernels")
    assert has in before and "import triton" not in before and "torch" not in before


def test_the_border_of_11_4_is_the_same_without_its_1_for_powers_of_two():
    for BM, BN in itertools.product((2, 4, 16, 64, 128), repeat=2):
        assert all((t * BM + 1) // BN == t * BM // BN for t in range(20))
    says("11.5", "odd and no multiple of $B_N$, so the term 1 in (11.4) never completes a block")


def test_the_bound_of_shared_memory_counts_the_bytes_of_every_instruction():
    """wgmma has 64 rows and 16 inner elements; Q and P are its left factors, and P is in registers."""
    space = {"__name__": "__main__", "np": np, "load_record": load_record, "record_source": str}
    (clock_bounds,) = SOURCE.define(("clock_bounds",), space | {"measured": lambda *_, **__: None})
    for BM, BN, d in ((64, 64, 64), (128, 64, 64), (128, 128, 128)):
        left, groups = 64 * 16 * 2, BM // 64
        scores = groups * (d // 16) * (left + BN * 16 * 2)
        output = groups * (BN // 16) * d * 16 * 2
        written = 2 * BN * d * 2
        assert clock_bounds(BM, BN, d, 4, 1)["shared memory"] == (scores + output + written) / 128


# ---------------------------------------------------------------------- 11b: the kernel to repair
def test_the_student_finds_the_kernel_as_it_is_shown():
    """The exercise has the lines of the report's kernel, except for names and the lines to be written."""
    cell = next(c for c in SECOND.cells if c.name == "ex-11E")
    body = "\n".join(side(cell, solved=False)).split("raise NotImplementedError\n")[1].split("\n\n")[0]
    shown = SECOND.code("def found_kernel(").split('are wrong."""\n')[1].split("\n\n")[0]
    assert body == shown


# ---------------------------------------------------------------------- exercises
def test_11d_names_11c_while_absorb_is_not_written():
    solved = references.exercise_source("11D", solved=True)
    stub = references.exercise_source("11C", solved=False)
    verdicts = judge(find("11D"), references.build("11D", f"{stub}\n\n{solved}"), 0)
    assert verdicts[0][1] == "it calls absorb, which is not written yet: solve 11C first"
    without_absorb = references.exercise_source("11C", solved=True).replace(
        "    s = tl.dot(", "    raise NotImplementedError\n    s = tl.dot("
    )
    for unwritten in (stub, without_absorb):
        assert judge(find("11C"), references.build("11C", unwritten), 0)[0][1] == "not written yet"


def test_the_programs_per_sm_of_the_exercise_have_every_kind_of_limit():
    for seed in range(5):
        cases = find("11H").cases(np.random.default_rng(seed))
        kernels = [case for case in cases if not case.tags]
        assert len(kernels) == lesson11.RECORDED
        assert len({case.inputs["sm"]["shared_bytes"] for case in kernels}) >= 4  # chips
        binding = {min(case.expected, key=case.expected.get) for case in cases}
        assert binding == set(lesson11.LIMITS)


def test_a_student_cannot_read_the_limits_from_the_library():
    def copied(registers, shared_bytes, warps, sm):
        limits = gpu.Resources(90, registers, 0, shared_bytes, warps, 0, 0, 0, 0.0).program_limits
        return min(limits.values()), min(limits, key=limits.get)

    (_, seen), *_ = (one for one in judge(find("11H"), copied, 0) if one[1])
    assert "program_limits solves the exercise" in seen


def test_the_large_scores_would_overflow_float32_without_their_maximum():
    for seed in range(20):
        case = find("11A").cases(np.random.default_rng(seed))[-1]
        Q, K = case.inputs["Q"], case.inputs["K"]
        scores = Q @ K.T / np.sqrt(Q.shape[1])
        assert scores.max() > 100 and scores.min() < -100
        with np.errstate(over="ignore"):
            assert np.isinf(np.exp(np.float32(scores.max())))


def test_in_the_other_layouts_each_tensor_has_rows_of_its_own_stride_or_heads_within_a_token():
    cases = find("11D").cases(np.random.default_rng(0))
    one_for_each, of_a_layer = (case.inputs for case in cases if case.has(lesson11.LAYOUT))
    Q, K, V = (kernel_launch._tensor(one_for_each[name]) for name in "QKV")
    assert len({x.stride()[2] for x in (Q, K, V, torch.empty_like(Q))}) == 4
    assert not any(x.is_contiguous() for x in (Q, K, V))
    Q = kernel_launch._tensor(of_a_layer["Q"])
    assert (
        Q.stride() == torch.empty_like(Q).stride() == (1024, 16, 32, 1)
    )  # an O created like Q has the layout of Q


def test_the_difficulty_of_a_band_is_computed_from_its_mask():
    def seen(*rows):
        return np.array([[mark == "x" for mark in row] for row in rows])

    assert mask_difficulty(seen("xx..", "...."), 2, 2) == NOTHING
    assert (
        mask_difficulty(seen("xx..", "..xx"), 2, 2) == LATE
        and mask_difficulty(seen("xx..", "..xx"), 1, 2) != LATE
    )
    assert mask_difficulty(seen("xxx", "xxx"), 2, 2) == ALL
    assert (mask_difficulty(seen("xx."), 2, 2), mask_difficulty(seen("xx."), 1, 2)) == (FEW, "")
    assert (tile_difficulty(seen("xxx"), 1, 4), tile_difficulty(seen("xxx"), 1, 2)) == (ONE_TILE, "")
    for seed in range(10):
        for case in find("11C").cases(np.random.default_rng(seed)):
            blind = np.isneginf(case.expected[1])
            assert blind.any() == case.has(NOTHING) and (case.expected[0][blind] == 0).all()


def test_most_blocks_of_11b_are_full_so_that_masking_them_all_shows():
    for seed in range(10):
        cases = find("11B").cases(np.random.default_rng(seed))
        for case, causal in ((cases[0], True), (cases[1], False)):
            assert case.inputs["causal"] == causal
            BM, BN, N = case.inputs["BM"], case.inputs["BN"], len(case.inputs["Q"])
            tiles = case.budget.reads["K"] / case.inputs["K"].shape[1] / BN
            assert 2 * lesson11.cut_tiles(case) < tiles <= -(-N // BM) * -(-N // BN)
        for case in cases:
            BM, BN, d = case.inputs["BM"], case.inputs["BN"], case.inputs["Q"].shape[1]
            assert BM * BN not in (
                BM * d,
                BN * d,
            )  # otherwise a tl.where on another tile would count as a mask


# ---------------------------------------------------------------------- counting tl.where
@triton.jit
def choosing_kernel(X, Y, TILES: tl.constexpr, EARLY: tl.constexpr, LATE: tl.constexpr):
    """Kernel with two products per tile of TILES, and a given number of tl.where before and between them."""
    i, j = tl.arange(0, 16), tl.arange(0, 32)
    x = tl.load(X + i[:, None] * 32 + j)
    total = tl.zeros((16, 32), dtype=tl.float32)
    for _ in tl.static_range(TILES):
        tile = x
        for _ in tl.static_range(EARLY):
            tile = tl.where(i[:, None] > j[None, :], tile, 0.0)
        square = tl.dot(tile, tl.trans(tile), input_precision="ieee")
        for _ in tl.static_range(LATE):
            tile = tl.where(i[:, None] > j[None, :], tile, 0.0)
        total += tl.dot(square, tile, input_precision="ieee")
    tl.store(Y + i[:, None] * 32 + j, total)


@pytest.mark.parametrize(("early", "late"), [(0, 0), (0, 1), (1, 0), (1, 2)])
@pytest.mark.parametrize("tiles", [1, 3])
def test_a_tile_is_masked_once_however_often_tl_where_works_on_it(tiles, early, late):
    def launcher(X, BM, BN):
        Y = torch.empty_like(X)
        choosing_kernel[(1,)](X, Y, TILES=tiles, EARLY=early, LATE=late)
        return Y

    case = Case("", {"X": np.ones((16, 32), np.float32), "BM": 16, "BN": 32})
    trial = kernel_launch.launch_and_count_masks(launcher, case)
    assert trial.error is None and trial.masked == (tiles if early + late else 0)
    assert trial.ledger.total == 2 * 16 * 32


def test_a_triton_without_the_counted_function_is_an_error(monkeypatch):
    from triton.runtime import interpreter

    monkeypatch.delattr(interpreter.InterpreterBuilder, "create_select")
    case = Case("", {"X": np.ones((16, 32), np.float32), "BM": 16, "BN": 32})
    trial = kernel_launch.launch_and_count_masks(lambda X, BM, BN: X, case)
    assert isinstance(trial.error, traffic.CannotCount) and "tl.where" in str(trial.error)


def test_an_error_of_the_student_is_kept():
    def launcher(X, BM, BN):
        raise ZeroDivisionError("mine")

    case = Case("", {"X": np.ones((16, 32), np.float32), "BM": 16, "BN": 32})
    assert isinstance(kernel_launch.launch_and_count_masks(launcher, case).error, ZeroDivisionError)


# ---------------------------------------------------------------------- kernels compile
@triton.jit
def weighted_sum_kernel(P, V, O, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    i, j, c = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, d)
    p, v = tl.load(P + i[:, None] * BN + j), tl.load(V + j[:, None] * d + c)
    tl.store(O + i[:, None] * d + c, tl.dot(p, v))


def test_a_tile_of_keys_is_an_inner_size_and_has_16_at_least():
    from iocourse.gpu import CompilationFailed, resources

    x, o = torch.empty(64, 64, dtype=torch.float16), torch.empty(64, 64)
    assert resources(weighted_sum_kernel, 90, x, x, o, d=64, BM=64, BN=16).tensor_core > 0
    with pytest.raises(CompilationFailed):
        resources(weighted_sum_kernel, 90, x, x, o, d=64, BM=64, BN=8)


def compiled(name, arguments, **constants):
    """Return the resources of the lesson's kernel on an A100, compiled as for a launch on large tensors."""
    from iocourse.gpu import resources

    *_, kernel = defined("absorb", name)
    return resources(kernel, 80, *arguments, d=64, BM=64, BN=32, num_warps=4, num_stages=2, **constants)


def test_what_a_round_of_the_float32_kernels_takes():
    """Products as in the text; the loop without a mask is shorter than the loop with one."""
    from iocourse.gpu import resources

    (kernel,) = defined("two_loops_kernel")
    x, total = torch.empty(1024, 64), torch.empty(1024)
    tile = {"d": 64, "BM": 64, "BN": 32, "num_warps": 8, "num_stages": 1}
    loop = resources(kernel, 90, x, x, x, x, total, 1024, 0.18, CAUSAL=True, **tile).hot_loop
    assert 0 <= loop.fma - 2 * 64 * 64 * 32 // 256 <= 20 and loop.tensor == 0
    assert loop.fma > loop.instructions / 2
    theirs = kernels.resources_of("forward", 90, d=64, dtype=torch.float32, tile=(64, 32, 8, 1)).hot_loop
    assert 1024 <= theirs.fma <= 1024 + 20 and abs(loop.fma - theirs.fma) <= 8


def test_the_instructions_that_11_14_reads_from_the_slow_kernel():
    """Comparisons and selections vanish from the inner loop when all three mistakes are repaired."""
    x, total = torch.empty(4096, 64, dtype=torch.float16), torch.empty(4096)
    tile = {"d": 64, "BM": 128, "BN": 64, "num_warps": 4, "num_stages": 3}
    loops = {}
    for name in ("slow", "lean"):
        _, kernel = defined(f"{name}_absorb", f"{name}_kernel")
        loops[name] = gpu.resources(kernel, 90, x, x, x, x, total, 4096, 0.18, CAUSAL=True, **tile).hot_loop
    slow, lean = loops["slow"], loops["lean"]
    scores = 64
    assert all(slow.named(kind) > scores / 2 > lean.named(kind) for kind in ("FSETP", "ISETP", "FSEL"))
    assert slow.named("FMUL") > 4 * lean.named("FMUL") and slow.exponentials == lean.exponentials == 68
    if metadata.version("triton") == "3.7.1":
        assert f"{slow.instructions / scores:.2f}" == "19.06" and f"{lean.instructions / scores:.1f}" == "7.8"
    SECOND.says("11.14", "19.06 instructions per score, and 7.8 would be enough")


@pytest.mark.parametrize("name", ["forward_kernel", "two_loops_kernel", "band_kernel", "heads_kernel"])
def test_the_lessons_kernels_compile_for_a_gpu(name):
    """The interpreter also accepts code that the compiler rejects."""
    x, total, strides = torch.empty(1024, 64, dtype=torch.float32), torch.empty(1024), (65536, 65536, 64)
    given = {
        "forward_kernel": ((x, x, x, x, total, 1000, 0.18), {}),
        "two_loops_kernel": ((x, x, x, x, total, 1000, 0.18), {"CAUSAL": True}),
        "band_kernel": ((x, x, x, x, total, 1000, 900, -63, 5, 0.18), {}),
        "heads_kernel": ((x, strides, x, strides, x, strides, x, strides, 8, 2, 1000, 0.18), {}),
    }
    arguments, constants = given[name]
    found = compiled(name, arguments, **constants)
    assert found.registers > 0 and found.shared_bytes > 0
