"""Exercise 11F: the error that rounding to 16 bits allows, and what is read off the machine code."""

import re

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse.course.exercise import Case, find
from iocourse.course.trials.float32_inputs import FAR
from iocourse.course.trials.sixteen_bit_inputs import (
    COMPILED,
    SINGLE,
    TYPES,
    BFloat16,
    allowed_errors,
    rounded,
    sixteen_bit_attention,
    type_of,
)
from tests.mutation.references import build, exercise_source
from tools.build.notebook_execution import cannot_run

if reason := cannot_run(Lesson("11_").source):
    pytest.skip(reason, allow_module_level=True)

# isort: split
import torch

from iocourse.course import checking
from iocourse.course.trials import kernel_launch
from iocourse.course.trials.compiled_launch import compiled, compiler_lines
from iocourse.gpu import Resources


@pytest.mark.parametrize("dtype", TYPES)
def test_rounding_equals_that_of_torch(dtype):
    x = np.random.default_rng(0).standard_normal(4096).astype(np.float32) * np.float32(1000)
    x[:4] = 0.0, -0.0, 1 + 2.0**-8, 1 + 3 * 2.0**-8  # ties of bfloat16, to the even neighbour
    theirs = torch.from_numpy(x).to(getattr(torch, dtype)).float().numpy()
    assert (np.asarray(rounded(x, dtype), dtype=np.float32) == theirs).all()


def test_a_kernel_gets_the_type_of_the_case_and_its_strides():
    x = rounded(np.arange(12, dtype=np.float32).reshape(3, 4), "bfloat16")
    assert isinstance(x, BFloat16)
    for given in (x, x.T, x.astype(np.float16)):
        tensor = kernel_launch._tensor(given)
        wanted = torch.bfloat16 if isinstance(given, BFloat16) else torch.float16
        assert tensor.dtype == wanted and tensor.shape == given.shape
        assert tensor.stride() == tuple(step // given.itemsize for step in given.strides)
        assert (tensor.float().numpy() == given.astype(np.float32)).all()


def test_scores_far_from_0_lie_below_and_above_what_16_bits_and_finite_masks_can_hold():
    for seed in range(20):
        far = [case for case in find("11F").cases(np.random.default_rng(seed)) if case.has(FAR)]
        assert {type_of(case) for case in far} == set(TYPES)
        for case in far:
            Q, K = (case.inputs[name].astype(np.float64) for name in "QK")
            scores = Q @ K.T / Q.shape[1] ** 0.5
            _, low, lowest, high = (scores[kind::4] for kind in range(4))
            assert low.max() <= -512 and high.min() >= 512
            assert lowest.max() <= (-1e25 if type_of(case) == "bfloat16" else -2e5)
            assert np.diff(np.sort(scores[1:4])).min() >= 20  # one weight is 1
            assert len(K) % case.inputs["BN"] == 1  # one key in the last tile


def reference(Q, K, V, causal):
    """Attention that rounds where a correct kernel must: the weights and the result."""
    kind = torch.bfloat16 if isinstance(Q, BFloat16) else torch.float16
    q, k, v = (torch.from_numpy(np.asarray(x, dtype=np.float32)) for x in (Q, K, V))
    s = q @ k.T / q.shape[1] ** 0.5
    if causal:
        s = s.masked_fill(~torch.ones(len(q), len(q)).tril().bool(), -torch.inf)
    p = torch.exp(s - s.amax(1, keepdim=True))
    o = (p.to(kind).float() @ v) / p.sum(1, keepdim=True)
    return o.to(kind).double().numpy(), torch.logsumexp(s, 1).double().numpy()


def test_the_allowed_error_is_close_to_the_error_of_correct_rounding():
    """Over 20 seeds: never exceeded, and at most three times as large as the largest error."""
    worst = {dtype: 0.0 for dtype in TYPES}
    single = 0.0
    for seed in range(20):
        for sample in sixteen_bit_attention(np.random.default_rng(seed)):
            case = Case(sample.label, sample.inputs, (sample.results["O"], sample.results["LSE"]))
            O, LSE = reference(*(case.inputs[name] for name in ("Q", "K", "V", "causal")))
            allowed_O, allowed_LSE = allowed_errors(case)
            kind = type_of(case)
            worst[kind] = max(worst[kind], (abs(O - case.expected[0]) / allowed_O).max())
            single = max(single, (abs(LSE - case.expected[1]) / allowed_LSE).max() * SINGLE)
    assert all(1 / 3 < share <= 1 for share in worst.values()), worst
    assert 2.0**-24 < single <= 2.0**-20, np.log2(single)


def answer(*edits):
    source = exercise_source("11F", solved=True)
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return build("11F", source)


@pytest.mark.parametrize(
    ("edits", "property_name", "words"),
    [
        ([("p.to(v.dtype), v", "p, v")], "runs without an error", "p.to(v.dtype)"),
        ([("p.to(v.dtype)", "p.to(tl.float16)")], "runs without an error", "fits every type"),
        (
            [("num_warps=4", "num_warps=3")],
            "runs without an error",
            "num_warps must be 1, 2, 4, 8, 16 or 32, got 3",
        ),
        ([("num_stages=3", "num_stages=12")], "registers and shared memory suffice", "Use fewer stages"),
        ([("p.to(v.dtype), v", "p, v.to(tl.float32)")], "", "cast p to the type of v"),
    ],
)
def test_bad_input_gets_one_line_that_names_the_change(edits, property_name, words):
    verdicts = checking.judge(find("11F"), answer(*edits), 0)
    failed = checking.failed_properties(verdicts)
    assert len(failed) == 1, failed
    ((name, said),) = failed.items()
    assert words in said and (not property_name or name == property_name)


def test_a_remark_for_one_instruction_too_many():
    """The scale before the maximum is accepted; fp32 sums written in another way are equal."""
    slower = answer(
        ("s = tl.dot(q, tl.trans(k))  ", "s = tl.dot(q, tl.trans(k)) * scale"),
        ("tl.max(s, 1) * scale", "tl.max(s, 1)"),
        ("tl.exp2(s * scale - m_new", "tl.exp2(s - m_new"),
    )
    verdicts = checking.judge(find("11F"), slower, 0)
    assert not checking.failed_properties(verdicts)
    assert [str(name.remark) for name, _ in verdicts if hasattr(name, "remark")] == [
        "8.8 instructions per score, where 7.8 are enough; 2.0 of them multiply; the scale and "
        "the subtraction of the maximum can be one multiply-add"
    ]


def test_a_solved_check_shows_the_compiled_kernel_and_a_failed_one_does_not(capsys, monkeypatch):
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    checking.check("11F", answer(), seed=0)
    shown = capsys.readouterr().out
    line = "Compiled for sm_90, sixteen_bits_kernel (d = 64, BM = 128, BN = 64): "
    assert (
        shown.count("Compiled for ") == 1
        and line in shown
        and "(7.8 per score), of them 16 HGMMA.64x64x16.F32\n" in shown
    )
    checking.check("11F", answer(("l = l * old + ", "l = l + ")), seed=0)
    assert "Compiled for " not in capsys.readouterr().out


def test_the_lines_of_one_kernel_at_two_head_sizes_name_the_size():
    """Exercise 12E launches the kernel of dQ at another d than 12B, so its counts differ."""
    lines = []
    for exercise in ("12B", "12E"):
        one = find(exercise)
        solved = build(exercise, exercise_source(exercise, solved=True))
        shown = compiler_lines(one.run_case, solved, one.cases(np.random.default_rng(0)))
        lines += [line for line in shown.splitlines() if "my_dq_kernel" in line]
    heads = [int(re.search(r"my_dq_kernel \(d = (\d+), BM = 32, BN = 32\): ", line)[1]) for line in lines]
    assert len({*heads}) == 2, lines


def test_launches_that_compile_alike_are_compiled_once(monkeypatch):
    cases = find("11F").cases(np.random.default_rng(0))
    first = compiler_lines(find("11F").run_case, answer(), cases)
    monkeypatch.setattr("iocourse.course.trials.compiled_launch.reports", None)  # fails if it is called
    assert compiler_lines(find("11F").run_case, answer(), cases) == first
    shown = next(case for case in cases if case.has(COMPILED))
    (launch,) = find("11F").run_case(answer(), shown).launches
    assert isinstance(compiled(launch, 90), Resources)
