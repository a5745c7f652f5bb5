"""Tests of lessons 11 and 11b: kernels compared with the library's, formulas, records and exercises."""

import itertools
import re

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import costs, exact
from iocourse.costs.kernels import KernelProblem, attention_forward
from iocourse.course import explore
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

SHAPES = [(200, 32, 64, 32), (33, 16, 16, 32), (64, 64, 32, 32), (1, 16, 16, 16), (47, 16, 32, 16)]


def defined(*names):
    """Run the code cells that define these names, without the others, and return their namespace."""
    space = {"__name__": "__main__", "np": np, "torch": torch, "triton": triton, "tl": tl}
    return SOURCE.define(names, space)


def tensors(N, d, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((3, N, d)).astype(np.float32))


def counted(launcher, *arguments, **keywords):
    with traffic.count() as ledger:
        value = launcher(*arguments, **keywords)
    return ledger, value


def library(q, k, v, BM, BN, **keywords):
    """Return the library's ledger, O and LSE for one head with this tile."""
    with kernels.using(forward=(BM, BN)):
        ledger, (o, lse) = counted(
            kernels.attention_with_lse, *(x[None, None] for x in (q, k, v)), **keywords
        )
    return ledger, o[0, 0], lse[0, 0]


def same(one, other):
    """Assert that the words are equal, and that O and LSE differ only by rounding."""
    assert one[0] == other[0]
    for mine, theirs in zip(one[1], other[1:], strict=True):
        assert torch.allclose(mine, theirs, rtol=0, atol=2e-6, equal_nan=False)


# ---------------------------------------------------------------------- the lesson's kernels, the library's
@pytest.mark.parametrize(("N", "d", "BM", "BN"), SHAPES)
def test_the_kernel_of_11_3_and_the_librarys_have_the_same_values_and_words(N, d, BM, BN):
    (mine,) = defined("my_flash_forward")
    q, k, v = tensors(N, d)
    same(counted(mine, q, k, v, BM, BN), library(q, k, v, BM, BN))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("N", "d", "BM", "BN"), SHAPES)
def test_the_two_loops_of_11_5_and_the_librarys_have_the_same_values_and_words(N, d, BM, BN, causal):
    (mine,) = defined("my_two_loops")
    q, k, v = tensors(N, d)
    same(counted(mine, q, k, v, causal, BM, BN), library(q, k, v, BM, BN, causal=causal))


@pytest.mark.parametrize(("Nq", "Nk", "left"), [(40, 40, 5), (37, 20, 8), (16, 60, 70), (60, 16, 0)])
def test_the_band_of_11_6_and_the_librarys_have_the_same_values_and_words(Nq, Nk, left):
    (mine,) = defined("my_band_attention")
    q, (k, v) = tensors(Nq, 16)[0], tensors(Nk, 16, 1)[:2]
    diagonal = Nk - Nq
    theirs = library(q, k, v, 16, 32, causal="lower_right", window=(left, None))
    same(counted(mine, q, k, v, diagonal - left, diagonal, 16, 32), theirs)


@pytest.mark.parametrize(("B", "H", "H_kv", "N"), [(2, 2, 1, 20), (1, 4, 2, 33)])
def test_the_heads_of_11_7_and_the_librarys_have_the_same_values_and_words(B, H, H_kv, N):
    (mine,) = defined("my_heads")
    rng = np.random.default_rng(0)
    shapes = [(B, N, heads, 16) for heads in (H, H_kv, H_kv)]
    q, k, v = (torch.from_numpy(rng.standard_normal(s).astype(np.float32)).transpose(1, 2) for s in shapes)
    ledger, o = counted(mine, q, k, v, 32, 16)
    with kernels.using(forward=(32, 16)):
        theirs, want = counted(kernels.attention, q, k, v)
    theirs.writes.pop("LSE")
    assert ledger == theirs and torch.allclose(o, want, rtol=0, atol=2e-6)


def test_what_11_8_says_of_the_librarys_kernel():
    from iocourse.kernels.host.api import LARGEST_HEAD

    says("11.8", f"any $d$ up to {LARGEST_HEAD:,}")
    theirs = len(kernels.forward.forward_kernel.arg_names)
    (mine,) = defined("two_loops_kernel")
    assert theirs > len(mine.arg_names)


def test_the_kernel_has_some_thirty_lines():
    kernel = "\n".join(side(next(c for c in SOURCE.cells if c.name == "ex-11A"), solved=True)).split("\n\n")[
        0
    ]
    assert 20 <= kernel.count("\n") + 1 <= 35


# ---------------------------------------------------------------------- formulas
@pytest.mark.parametrize(("N", "d", "BM", "BN"), SHAPES)
def test_formula_11_1(N, d, BM, BN):
    program, mine = defined("program", "my_flash_forward")
    read, written = N * d + 2 * N * d * -(-N // BM), N * d + N
    ledger, _ = counted(mine, *tensors(N, d), BM, BN)
    emulated = costs.flash2(N, d, Br=BM, Bc=BN, lse=True)
    assert (ledger.read, ledger.written) == (emulated.read, emulated.written) == (read, written)
    assert (ledger.reads, ledger.bytes) == (emulated.reads, 4 * (read + written))
    Q, K, V = np.random.default_rng(0).standard_normal((3, N, d))
    O, LSE = np.empty_like(Q), np.empty(N)
    assert sum(program(t, Q, K, V, O, LSE, BM, BN) for t in range(-(-N // BM))) == read
    assert np.allclose(O, exact.attention(Q, K, V), atol=1e-12)
    assert np.allclose(LSE, exact.log_sum_exp(exact.scores(Q, K)), atol=1e-12)
    says("11.1", r"Nd + 2Nd\left\lceil \frac{N}{B_M} \right\rceil", "Nd + N . \\tag{11.1}")


def test_formulas_11_2_and_11_3():
    rng = np.random.default_rng(0)
    s, d = rng.standard_normal(50) * 9, 64
    natural = s / np.sqrt(d)
    factor, m = np.log2(np.e) / np.sqrt(d), natural.max()
    weights = np.exp2(factor * s - m * np.log2(np.e))
    assert np.allclose(np.exp(natural - m), weights, rtol=1e-13)
    L = (m * np.log2(np.e) + np.log2(weights.sum())) * np.log(2)
    assert np.allclose(L, exact.log_sum_exp(natural[None, :])[0], rtol=1e-13)
    says("11.2", r"e^{s/\sqrt d ,-, m} = 2^{,\lambda s ,-, m'}", r"\lambda = \frac{\log_2 e}{\sqrt d}")
    says("11.2", r"\left(m' + \log_2 \ell\right) \ln 2")


@pytest.mark.parametrize(
    ("N", "BM", "BN"), [(512, 64, 32), (200, 64, 32), (100, 16, 32), (33, 32, 16), (5, 16, 16)]
)
def test_formulas_11_4_and_11_5(N, BM, BN):
    i, j = np.arange(N)[:, None], np.arange(N)[None, :]
    met = 0
    for t in range(-(-N // BM)):
        rows = (j <= i)[t * BM : (t + 1) * BM]
        whole, end = BN * ((t * BM + 1) // BN), min((t + 1) * BM, N)
        assert rows[:, :whole].all() and not rows[:, end:].any()
        assert rows[:, end - 1].any() and (whole + BN > N or not rows[:, whole : whole + BN].all())
        met += min(N, BN * -(-end // BN))
    ledger = attention_forward(KernelProblem(N, N, 8, high=0), BM=BM, BN=BN)
    assert ledger.reads["K"] + ledger.reads["V"] == 2 * 8 * met
    says("11.5", r"B_N\left\lfloor \frac{tB_M + 1}{B_N} \right\rfloor", r"\min\bigl((t+1)B_M,\ N\bigr)")
    says("11.5", r"\min\left(N,\ B_N\left\lceil \frac{\text{end}_t}{B_N} \right\rceil\right)")


@pytest.mark.parametrize(("N", "d", "BM", "bytes_a_word"), [(4096, 64, 128, 2), (2048, 128, 64, 4)])
def test_formula_11_8(N, d, BM, bytes_a_word):
    words = costs.flash2(N, d, Br=BM, Bc=64).total
    shown = 2 / bytes_a_word * N / (1 + N / BM)
    assert 4 * N**2 * d / (bytes_a_word * words) == pytest.approx(shown)
    assert shown == pytest.approx(2 / bytes_a_word * BM, rel=0.05)
    SECOND.says("11.10", r"\frac{2}{\beta} \cdot \frac{N}{1 + N/B_M} \approx \frac{2}{\beta} B_M")


# ---------------------------------------------------------------------- numbers, section by section
def test_the_visited_and_the_cut_tiles_of_11_5():
    N, d, BM, BN = 512, 64, 64, 32
    visited = sum(-(-min((t + 1) * BM, N) // BN) for t in range(8))
    cut = lesson11.cut_tiles(Case("", {"Q": np.ones((N, 1)), "causal": True, "BM": BM, "BN": BN}))
    causal = attention_forward(KernelProblem(N, N, d, high=0), BM=BM, BN=BN)
    assert (visited, cut, visited * BN * d) == (72, 16, causal.reads["K"])
    tending = attention_forward(KernelProblem(2**14, 2**14, d, high=0), BM=BM, BN=BN).reads["K"]
    assert tending / attention_forward(KernelProblem(2**14, 2**14, d), BM=BM, BN=BN).reads["K"] < 0.503


def test_the_sums_that_are_lost_in_11_6_and_words_linear_in_the_window():
    (windowed,) = defined("windowed")
    S = np.random.default_rng(0).standard_normal((12, 12))
    with np.errstate(invalid="ignore"):
        sums = windowed(S, -3, 0, 4, 2)
    assert np.flatnonzero(np.isnan(sums)).tolist() == [5, 6, 7, 9, 10, 11]
    i, j = np.arange(12)[:, None], np.arange(12)[None, :]
    good, seen = ~np.isnan(sums), (j - i >= -3) & (j - i <= 0)
    assert seen.any(1).all()
    e = np.where(seen, np.exp(S - np.where(seen, S, -np.inf).max(1, keepdims=True)), 0.0)
    assert np.allclose(sums[good], e.sum(1)[good])
    words = [
        attention_forward(KernelProblem(N, N, 32, low=-63, high=0), BM=64, BN=32).total for N in (256, 512)
    ]
    assert words == [8256 + 3 * 12352, 8256 + 7 * 12352]


def test_shared_heads_do_not_change_what_the_programs_of_11_7_read():
    shared, own = (KernelProblem(64, 64, 16, H=4, H_kv=heads) for heads in (1, 4))
    read = [attention_forward(p, BM=32, BN=32).reads["K"] for p in (shared, own)]
    assert read[0] == read[1]


def test_the_bends_of_11_10_lie_between_what_programs_ask_for_and_the_compulsory_words():
    N = 4096
    asked = 2 * N**2 * 64 / costs.flash2(N, 64, Br=128, Bc=64).total
    bends = [1000 * CHIPS[arch].tensor_tflops / CHIPS[arch].gbytes_per_s for arch in (75, 80, 90)]
    assert asked < min(bends) and max(bends) < 2 * N**2 * 64 / (4 * N * 64)
    assert sum(bend > 200 for bend in bends) == 2 and not CHIPS[75].tensor_cores_in_triton


def spilling(rows, arch, d):
    """Return the tiles (BM, BN) of one GPU that spill with 4 warps, and those that spill with 8."""
    tiles = {}
    for row in rows:
        if (row["arch"], row["d"]) == (arch, d):
            tiles.setdefault((row["BM"], row["BN"]), []).append(row["spill_bytes"])
    assert len(tiles) == 8
    return {tile for tile, spills in tiles.items() if min(spills)}


@pytest.fixture
def rows():
    record = load_record("resources")
    assert record is not None, "iocourse/data/bench/resources.json is part of lesson 11b"
    return record["forward_by_tile"]


def row(rows, arch, BM, BN, warps):
    wanted = {"arch": arch, "d": 128, "BM": BM, "BN": BN, "warps": warps}
    return next(r for r in rows if wanted.items() <= r.items())


def test_what_11_11_reads_from_the_record(rows):
    assert spilling(rows, 80, 128) == {(128, 128)} and not spilling(rows, 90, 128)
    assert len(spilling(rows, 75, 128)) == 7 and (64, 16) not in spilling(rows, 75, 128)
    narrow = row(rows, 90, 128, 64, 8)
    assert narrow["stages"] == 2 and 0 <= narrow["shared_bytes"] - 96 * 1024 < 1024
    best = [
        min(
            (r["spill_bytes"], r["shared_bytes"])
            for r in rows
            if (r["arch"], r["d"], r["BM"], r["BN"]) == (75, 128, BM, BN)
        )
        for BM in (64, 128)
        for BN in (16, 32, 64, 128)
    ]
    assert sum(shared > CHIPS[75].shared_bytes for _, shared in best) == 5
    assert {r["tensor_core"] for r in rows if r["arch"] == 75} == {0}
    assert all(r["tensor_core"] > 0 for r in rows if r["arch"] in (80, 90))
    heavy = [r for r in rows if (r["arch"], r["d"]) == (75, 128) and r["spill_bytes"] > 5000]
    assert heavy and {r["registers"] for r in heavy} == {64}


def test_a_tile_of_single_keys_would_use_the_footprint_of_11_11_best():
    shipped = costs.flash2(4096, 128, Br=128, Bc=128)
    rows = (shipped.peak - 256) // 259
    thin, larger = (costs.flash2(4096, 128, Br=Br, Bc=1) for Br in (rows, rows + 1))
    assert thin.peak <= shipped.peak < larger.peak


def test_the_tiles_that_section_11_11_takes_from_the_librarys_table():
    from iocourse.kernels.host.tile_table import TABLE

    assert TABLE[90, 128, 2].forward[:2] == (128, 128) and TABLE[80, 128, 2].forward[:2] == (128, 64)


def test_the_pictures_show_what_the_text_reads_off_them(rows):
    picture = explore.kernel_resources(rows, d=128, chips=[75, 80, 90])
    assert "128 × 128 spills, up to 168 bytes" in picture.alt and "BN = 1" in picture.alt
    assert "0 of 8 use tensor cores" in picture.alt
    roof = explore.roofline([75, 80, 90], {"BM = 128": 124.1, "each word once": 2048.0})
    assert "Triton uses no tensor cores on a T4" in roof.alt and "989" in roof.numbers
    SECOND.says("11.10", r"\min\bigl(\text{peak}, I \cdot \text{bandwidth}\bigr)".replace(", I", ",\\ I"))
    reached = min(CHIPS[80].tensor_tflops, 124.1 * CHIPS[80].gbytes_per_s / 1000)
    assert f"{reached:.0f} on A100" in roof.alt


@pytest.mark.parametrize(("lesson", "has"), [(SOURCE, "def program("), (SECOND, "explore.kernel_resources(")])
def test_the_numpy_sections_come_before_the_cell_that_needs_triton(lesson, has):
    before = lesson.above("iocourse import kernels")
    assert has in before and "import triton" not in before and "torch" not in before


def test_the_border_of_11_4_is_the_same_without_its_1_for_powers_of_two():
    for BM, BN in itertools.product((2, 4, 16, 64, 128), repeat=2):
        assert all((t * BM + 1) // BN == t * BM // BN for t in range(20))
    says("11.5", "powers of two above 1, the 1 never completes a tile")


# ---------------------------------------------------------------------- 11b: the kernel to repair
def test_the_kernel_as_found_has_three_faults_and_the_report_tells_them():
    space = {"__name__": "__main__", "np": np, "torch": torch, "triton": triton, "tl": tl}
    (found,) = SECOND.define(("found_kernel",), space)
    (repaired,) = SECOND.define(("my_repaired",), space)
    N, d, BM, BN = 128, 16, 32, 16
    q, k, v = tensors(N, d)
    due = attention_forward(KernelProblem(N, N, d, high=0), BM=BM, BN=BN)
    ledger, (o, lse) = counted(space["launched"], found, q, k, v, BM, BN)
    good, (right, sums) = counted(repaired, q, k, v, BM, BN)
    assert not good - due and torch.equal(lse, sums)
    rounds = [-(-(t + 1) * BM // BN) for t in range(N // BM)]
    assert ledger.reads == {"Q": 8 * N * d, "K": 4 * N * d, "V": 4 * N * d} and ledger.writes == good.writes
    assert sum(rounds) == 20 and sum(rounds) * BM * d - N * d == 8192
    wrong = (o - right).abs().amax(1) > 1e-5
    scores = (q @ k.T).masked_fill(~torch.ones(N, N, dtype=torch.bool).tril(), -torch.inf)
    assert not wrong[:BN].any() and torch.equal(~wrong, scores.argmax(1) < BN)


def test_the_student_finds_the_kernel_as_it_is_shown():
    """The exercise has the lines of the report's kernel, except for names and the lines to be written."""
    cell = next(c for c in SECOND.cells if c.name == "ex-11E")
    body = "\n".join(side(cell, solved=False)).split("raise NotImplementedError\n")[1].split("\n\n")[0]
    shown = SECOND.code("def found_kernel(").split('are wrong."""\n')[1].split("\n\n")[0]
    assert body == shown


# ---------------------------------------------------------------------- exercises
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


def test_most_tiles_of_11_2_are_whole_so_that_masking_them_all_shows():
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
    for _ in tl.static_range(TILES):
        for _ in tl.static_range(EARLY):
            x = tl.where(i[:, None] > j[None, :], x, 0.0)
        square = tl.dot(x, tl.trans(x), input_precision="ieee")
        for _ in tl.static_range(LATE):
            x = tl.where(i[:, None] > j[None, :], x, 0.0)
        x += tl.dot(square, x, input_precision="ieee")
    one = tl.where(i > 0, 1.0, 0.0)
    tl.store(Y + i[:, None] * 32 + j, x * one[:, None])


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

    (kernel,) = defined(name)
    return resources(kernel, 80, *arguments, d=64, BM=64, BN=32, num_warps=4, num_stages=2, **constants)


def test_what_a_round_takes_in_the_kernel_of_11_5_and_in_16_bits():
    """Products as in the text; the loop without a mask is shorter than the loop with one."""
    from iocourse.gpu import resources

    (kernel,) = defined("two_loops_kernel")
    x, total = torch.empty(1024, 64), torch.empty(1024)
    tile = {"d": 64, "BM": 64, "BN": 32, "num_warps": 8, "num_stages": 1}
    loop = resources(kernel, 90, x, x, x, x, total, 1024, 0.18, CAUSAL=True, **tile).hot_loop
    assert 0 <= loop.fma - 2 * 64 * 64 * 32 // 256 <= 20 and loop.tensor == 0
    assert loop.fma > loop.instructions / 2
    shipped = load_record("hot-loops")["shipped"]
    half = next(r for r in shipped if (r["kernel"], r["d"], r["causal"]) == ("forward", 64, True))
    assert (half["BM"], half["BN"], half["warps"]) == (64, 64, 4)
    in_half = half["hot_loop"]
    theirs = kernels.resources_of("forward", 90, d=64, dtype=torch.float32, tile=(64, 32, 8, 1)).hot_loop
    assert 1024 <= theirs.fma <= 1024 + 20 and abs(loop.fma - theirs.fma) <= 8
    SECOND.says("11.12", "make 1,024 multiply-adds", "the dozen beyond them")
    assert in_half["wgmma"] == 2 * (64 // 64) * (64 // 64) * (64 // 16) < in_half["instructions"] / 20
    assert in_half["special"] >= 64 * 64 // 128  # one exp2 per score of a thread


def test_the_students_hot_loop_stands_beside_the_librarys(capsys):
    """In compiled code: equal products and powers, and a mask in every iteration of the student's loop."""
    from iocourse import gpu

    space = {"__name__": "__main__", "np": np, "torch": torch, "triton": triton, "tl": tl, "gpu": gpu}
    space |= {"load_record": load_record, "record_source": str, "measured": lambda *_, **__: None}
    space |= {"attempt": lambda *_: None, "arrays": np.ones((3, 128, 16), dtype=np.float32)}
    space["theirs"] = kernels.resources_of("forward", 90, d=64, dtype=torch.float32, tile=(64, 32, 8, 1))
    (repaired,) = SECOND.define(("my_repaired",), space)
    SECOND.define(("found_kernel", "a_round"), space)
    (hot_loops,) = SECOND.define(("hot_loops",), space)
    capsys.readouterr()
    yours = hot_loops(repaired)
    mine, theirs = capsys.readouterr().out.splitlines()
    assert mine.startswith("yours: ") and theirs.startswith("the library's: ")
    found = [[int(n.replace(",", "")) for n in re.findall(r"([\d,]+) (?:instr|multi|special)", line)]
             for line in (mine, theirs)]  # fmt: skip
    (instructions, fma, special), (_, fma_there, special_there) = found
    assert instructions == yours.instructions > found[1][0] and abs(fma - fma_there) <= 16
    assert special == special_there > 0 == yours.tensor


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
