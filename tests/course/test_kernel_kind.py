"""Tests of exercise kind `kernel`: words, accesses out of bounds, rounded factors, and all its exercises."""

import numpy as np
import pytest

from tools.build.notebook_execution import cannot_run

if reason := cannot_run("import torch, triton\n"):
    pytest.skip(reason, allow_module_level=True)

from iocourse import kernels  # noqa: F401, I001  # before triton
import torch
import triton
import triton.language as tl

from iocourse.course.checking import judge
from iocourse.course.exercise import Case, exercises, find
from iocourse.course.kinds.function import EVERY
from iocourse.course.exercise import Sample
from iocourse.course.kinds.kernel import kernel_exercise
from iocourse.course.trials.float32_inputs import FAR
from iocourse.course.trials.kernel_launch import full_products, launch, no_tile_outside, words_exactly
from iocourse.course.trials.kernel_launch import words_within
from iocourse.ledger import Ledger
from tests.mutation.references import build, exercise_source

WITH_WORDS = ["10B", "10C", "10D", "11A", "11B", "11C", "11D", "11E", "12A", "12B", "12C", "12D"]


def drawn(exercise_id, seeds=range(5)):
    """Return the cases of some seeds."""
    return [find(exercise_id).cases(np.random.default_rng(seed)) for seed in seeds]


# ---------------------------------------------------------------------- all exercises of the kind
@pytest.mark.parametrize("exercise_id", WITH_WORDS)
def test_a_case_has_its_closed_form_and_one_difficulty_at_most_and_a_size_comes_twice(exercise_id):
    """A launcher that caches by the shapes of its inputs then fails."""
    for cases in drawn(exercise_id):
        assert all(case.budget.read and case.budget.written and len(case.tags) <= 1 for case in cases)
        labels = [case.label for case in cases]
        twice = next(label for label in labels if labels.count(label) > 1)
        one, other = (case for case in cases if case.label == twice)
        arrays = [name for name, value in one.inputs.items() if isinstance(value, np.ndarray)]
        assert not any(np.array_equal(one.inputs[name], other.inputs[name]) for name in arrays)


@pytest.mark.parametrize("exercise_id", [id for id in WITH_WORDS if id != "12A"])
def test_tiles_are_ragged_and_whole(exercise_id):
    named = {"10B": ("X", 0, "BM"), "10C": ("X", 1, "BLOCK"), "10D": ("A", 1, "BK")}
    array, axis, tile = named.get(exercise_id, ("K", -2, "BN"))
    for cases in drawn(exercise_id):
        left = [case.inputs[array].shape[axis] % case.inputs[tile] for case in cases]
        assert any(left) and not all(left)


FAR_FROM_0 = [one.id for one in exercises().values() if any(c.has(FAR) for c in drawn(one.id, [0])[0])
              if one.lesson[:2] in ("11", "13")]  # fmt: skip
OTHERS = ("11D", "11F", "11G")  # heads; 16 bits, which tests/course/test_sixteen_bits.py tests


@pytest.mark.parametrize("exercise_id", [one for one in FAR_FROM_0 if one not in OTHERS])
def test_scores_far_from_0_lie_below_and_above_what_float32_can_hold_of_e(exercise_id):
    """With scores below -200 a maximum of -100 gives zero weights; below -1e25, a maximum of -1e6 does."""
    for cases in drawn(exercise_id, range(20)):
        far = [case for case in cases if case.has(FAR)]
        case = far[0]
        assert all(
            c.inputs["Q"].shape == case.inputs["Q"].shape for c in far
        )  # other values of the same shape
        Q, K = case.inputs["Q"], case.inputs["K"]
        scores = Q @ K.T / Q.shape[1] ** 0.5
        mixed, low, lowest, high = (scores[kind::4] for kind in range(4))
        assert mixed.min() < -30 and mixed.max() > 30
        assert low.max() <= -199.9 and lowest.max() <= -9.9e24 and high.min() >= 199.9
        assert np.diff(np.sort(scores)[1::4]).min() > 19 and len(K) % case.inputs["BN"]


def test_all_forward_exercises_have_cases_far_from_0():
    assert {"11A", "11B", "11C", "11D", "11E", "13C", "13D"} <= set(FAR_FROM_0)


def test_a_sample_without_its_closed_form_is_refused():
    about = kernel_exercise(
        "11A", "O", lambda rng: [Sample({"N": 3}, {}, {"O": 1.0})], {("O", EVERY): "O is right"}
    )
    with pytest.raises(ValueError, match=r"exercise 11A: the case with \{'N': 3\} has no closed form"):
        about.cases(np.random.default_rng(0))


# ---------------------------------------------------------------------- iterations and lanes out of bounds
@triton.jit
def sum_kernel(X, Y, n, last, BLOCK: tl.constexpr, WRAP: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, last, BLOCK):
        at = start + tl.arange(0, BLOCK)
        if WRAP:
            total += tl.load(X + at % n)
        else:
            total += tl.load(X + at, mask=at < n, other=0.0)
    tl.store(Y, tl.sum(total, 0))


def tried(n, last, wrap=False, words=None):
    def summed(X):
        Y = torch.empty(1)
        sum_kernel[(1,)](X, Y, n, last, BLOCK=16, WRAP=wrap)
        return Y

    X = np.arange(n, dtype=np.float32)
    budget = Ledger(reads={"X": words or n}, writes={"Y": 1})
    trial = launch(summed, Case(f"n={n}", {"X": X}, budget=budget))
    assert trial.error is None
    return trial


def test_a_round_outside_the_array_is_counted_though_it_moves_no_word():
    asked = no_tile_outside()
    for n, last, outside in ((20, 20, 0), (32, 32, 0), (20, 36, 1), (32, 64, 2)):
        trial = tried(n, last)
        assert trial.outside == outside and words_exactly().judge([trial]) is None
        assert (asked.judge([trial]) is None) == (outside == 0)
    assert asked.judge([tried(20, 36)]) == (
        "1 load has all lanes masked, because the loop runs past the end of the array (n=20)"
    )
    assert tried(20, 0).outside == 0  # without a loop there are no iterations


def test_a_lane_that_wraps_is_said_to_be_live():
    trial = tried(20, 20, wrap=True)
    assert trial.wrapped == 1 and tried(32, 32, wrap=True).wrapped == 0
    said = words_exactly().judge([trial])
    assert said.startswith("reads 32 words of X, expected 20; in 1 load the addresses of a tile wrap")
    assert "A lane that wraps around moves a word" in said
    assert "wrap" not in words_exactly().judge([tried(20, 20, words=19)])


def test_fewer_words_are_accepted_with_a_remark_where_they_may_be():
    asked = words_within("each number is read at most twice", "(10.3)")
    assert asked.judge([tried(20, 20)]) is None
    assert asked.judge([tried(20, 20, words=40)]) == "fewer than (10.3)"
    assert asked.judge([tried(20, 20, words=19)]).startswith(
        "X: 20 words instead of 19; reads 20 words in total, expected at most 19"
    )


def test_a_verdict_with_a_remark_holds_and_the_report_of_a_solved_exercise_shows_it():
    from iocourse.course.checking import HeldWithRemark, report

    verdicts = [(HeldWithRemark("words", "fewer than (10.3)"), None), ("values", None)]
    assert "  holds  words: fewer than (10.3)\n" in report(find("10C"), verdicts, 0)
    assert "  holds  words\n" in report(find("10C"), [verdicts[0], ("values", "wrong")], 0)


@pytest.mark.parametrize(
    ("exercise_id", "loop", "longer"),
    [
        ("11A", "range(0, N, BN)", "range(0, N + BN, BN)"),
        ("11D", "range(0, N, BN)", "range(0, N + BN, BN)"),
        ("12C", "range(begin, N, BM)", "range(begin, N + BM, BM)"),
        ("12D", "range(begin, N, BM)", "range(begin, N + BM, BM)"),
    ],
)
def test_a_loop_with_a_round_too_many_is_refused(exercise_id, loop, longer):
    source = exercise_source(exercise_id, solved=True)
    assert loop in source
    verdicts = judge(find(exercise_id), build(exercise_id, source.replace(loop, longer)), 0)
    assert [name for name, said in verdicts if said] == ["no loop iteration is completely out of bounds"]


# ---------------------------------------------------------------------- factors of products
@triton.jit
def product_kernel(A, B, C, HALF: tl.constexpr, BITS: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i
    a, b = tl.load(A + at), tl.load(B + at)
    if HALF:
        a, b = a.to(tl.float16), b.to(tl.float16)
    elif BITS < 24:
        half = 1 << (23 - BITS)
        b = ((b.to(tl.int32, bitcast=True) + half) & (-2 * half)).to(tl.float32, bitcast=True)
    tl.store(C + at, tl.dot(a, b, input_precision=PRECISION))


@pytest.mark.parametrize(
    ("half", "bits", "precision", "said"),
    [
        (False, 24, "ieee", None),
        (
            False,
            24,
            "tf32",
            'once without input_precision="ieee"; a GPU then rounds the factors to 11 significant bits',
        ),
        (True, 24, "ieee", "once with a factor in fp16, although the inputs are float32"),
        (False, 13, "ieee", "once with a factor rounded to 13 of 24 significant bits"),
        (False, 8, "ieee", "once with a factor rounded to 8 of 24 significant bits"),
    ],
)
def test_a_factor_that_lost_bits_is_told_with_what_it_has_left(half, bits, precision, said):
    def product(A, B):
        C = torch.empty(16, 16)
        product_kernel[(1,)](A, B, C, HALF=half, BITS=bits, PRECISION=precision)
        return C

    A, B = np.random.default_rng(0).standard_normal((2, 16, 16)).astype(np.float32)
    trial = launch(product, Case("16", {"A": A, "B": B}))
    assert trial.error is None
    complaint = full_products().judge([trial])
    assert complaint == (said and f"tl.dot was called {said} (16)")


def test_few_or_plain_numbers_are_no_rounded_factor():
    def product(A, B):
        C = torch.empty(16, 16)
        product_kernel[(1,)](A, B, C, HALF=False, BITS=24, PRECISION="ieee")
        return C

    ones = np.tri(16, dtype=np.float32)
    trial = launch(product, Case("", {"A": ones, "B": 3 * ones}))
    assert trial.error is None and full_products().judge([trial]) is None
