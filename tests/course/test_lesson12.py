"""Tests of lesson 12: precision and difficulties of its checks."""

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse.course.checking import judge
from iocourse.course.exercise import find
from iocourse.course.exercises import lesson12
from iocourse.course.kinds.kernel import SINGLE
from iocourse.course.trials.sixteen_bit_gradients import HALF
from tests.mutation.references import build, exercise_source
from tools.build.notebook_execution import cannot_run

if reason := cannot_run(Lesson("12").source):
    pytest.skip(reason, allow_module_level=True)


def refusals(exercise, *edits, seed=0):
    """Return the properties that fail for the reference with these edits, each of which must change it."""
    source = exercise_source(exercise, solved=True)
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return {
        name: said for name, said in judge(find(exercise), build(exercise, source), seed) if said is not None
    }


ROUND = """
@triton.jit
def rounded(x, BITS: tl.constexpr):
    half = 1 << (23 - BITS)
    return ((x.to(tl.int32, bitcast=True) + half) & (-2 * half)).to(tl.float32, bitcast=True)


"""


@pytest.mark.parametrize(("hidden", "bits"), [(False, 11), (False, 13), (True, 13)])
@pytest.mark.parametrize("exercise", ["12B", "12C", "12D"])
def test_score_gradients_in_11_or_13_bits_are_refused(exercise, hidden, bits):
    """They are detected by their bits or, if a product hides these, by their error."""
    source = exercise_source(exercise, solved=True)
    (line,) = (line for line in source.splitlines() if ", ds = weights_and_gradients(" in line)
    pad = line[: len(line) - len(line.lstrip())]
    late = f"{line}\n{pad}ds = rounded(ds, {bits})" + " * 1.0000001" * hidden
    kernel = build(exercise, ROUND + source.replace(line, late))
    for seed in range(2):
        failed = {name: said for name, said in judge(find(exercise), kernel, seed) if said is not None}
        assert any(name.endswith(" are exact") for name in failed)
        said = failed.get("multiplies in full float32 precision", "")
        assert (f"rounded to {bits} of 24 significant bits" in said) != hidden


def test_difficulties_of_12B_to_12D_are_in_their_inputs_and_the_plain_case_has_none():
    for exercise in ("12B", "12C", "12D"):
        for case in find(exercise).cases(np.random.default_rng(0)):
            Q, K, tiles = case.inputs["Q"], case.inputs["K"], (case.inputs["BM"], case.inputs["BN"])
            ragged, near_100 = any(len(Q[0]) % tile for tile in tiles), (Q @ K.swapaxes(1, 2) / 4).max() < -50
            alone = not (case.inputs["causal"] or near_100)
            assert case.has(HALF) == (Q.dtype == np.float16)
            assert (case.has(lesson12.CAUSAL) or case.has(HALF)) == case.inputs["causal"] and case.has(
                lesson12.LOW
            ) == near_100
            assert case.has(lesson12.RAGGED) == (ragged and alone)
            assert case.has(lesson12.HEADS) == (len(Q) == 2 and not ragged and alone)


def test_scores_near_minus_100_have_a_tolerance_of_their_own_and_the_others_a_narrow_one():
    """The error of the reference is below a quarter of each tolerance."""
    for exercise in ("12B", "12C", "12D"):
        reference = build(exercise, exercise_source(exercise, solved=True))
        for case in find(exercise).cases(np.random.default_rng(1)):
            if case.has(HALF):  # compared within another bound
                continue
            allowed = lesson12.LOW_TOLERANCE if case.has(lesson12.LOW) else SINGLE
            for got, want in zip(find(exercise).run_case(reference, case).value, case.expected, strict=True):
                assert np.abs(got - want).max() <= allowed / 4 * (1 + np.abs(want).max())


def test_a_query_past_the_end_gives_nothing_whatever_its_log_sum_exp_is():
    assert not refusals("12C", ('mask=i < N, other=float("inf"))', "mask=i < N, other=0.0)"))


def test_D_of_float16_rows_is_summed_in_float32():
    failed = refusals("12A", (".to(tl.float32)", ""))
    assert "sums rows of float16 in float32" in failed


HELPS = "weights_and_gradients returns p and ds in float32, 0 where not seen"


def test_a_helper_that_serves_only_12B_is_refused_there():
    late = ("        p = tl.where(seen, p, 0.0)\n", "        pass\n"), ("return p, ds", "return p, HIDDEN")
    only_ds = refusals("12B", *late, ("HIDDEN", "tl.where(seen, ds, 0.0) if seen is not None else ds"))
    assert "it returns p that is not 0 for pairs that are not seen" in only_ds.pop(HELPS) and not only_ds
    narrow = refusals("12B", ("return p, ds", "return p.to(a.dtype), ds.to(a.dtype)"))
    assert "it returns p in fp16, expected float32" in narrow.pop(HELPS) and not narrow


@pytest.mark.parametrize(("exercise", "factor"), [("12B", "k"), ("12C", "q")])
def test_a_product_of_float32_factors_is_named_if_the_inputs_are_float16(exercise, factor):
    cast = f"ds.to({factor}.dtype), {factor},"
    failed = refusals(exercise, (cast, f"ds, {factor}.to(tl.float32),"))
    ((name, said),) = failed.items()
    assert name == "is right in float16, up to rounding"
    assert f"{factor}.to(tl.float32)" in said and "multiplies float32 factors, expected float16" in said


def test_an_error_in_the_helper_of_12B_names_its_exercise():
    source = exercise_source("12C", solved=True)
    wrong = source.replace("L_i[None, :], D_i[None, :]", "L_i[None, :], D_i[:, None]")
    assert wrong != source
    said = judge(find("12C"), build("12C", wrong), 0)
    assert any("of the cell of 12B (in weights_and_gradients)" in (text or "") for _, text in said)
