"""Tests of lesson 12: what the compiler makes of its kernels, its page about training, and its exercises."""

import ast
import difflib
import inspect
import linecache

import numpy as np
import pytest
from lesson_source import Lesson
from printed_examples import ROOT, examples

from iocourse import exact
from iocourse.course.checking import judge
from iocourse.course.exercise import find
from iocourse.course.exercises import lesson12
from iocourse.course.kinds.kernel import SINGLE
from tests.mutation.references import build, exercise_source
from tools.build.notebook_execution import cannot_run
from tools.build.percent_format import side

SOURCE = Lesson("12")
says = SOURCE.says
if reason := cannot_run(SOURCE.source):
    pytest.skip(reason, allow_module_level=True)

from iocourse import gpu, kernels  # noqa: E402

# isort: split
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

USED = {"np": np, "exact": exact, "torch": torch, "triton": triton, "tl": tl, "kernels": kernels}


def load_lesson():
    """Return the solved functions and kernels, and the arrays of section 12.1, without launching a kernel."""
    space = {"__name__": "__main__", **USED}
    for n, cell in enumerate(SOURCE.cells):
        source, file = "\n".join(side(cell, solved=True)), f"<lesson 12, cell {n}>"
        if cell.kind != "code" or "def " not in source:
            continue
        kinds = (ast.FunctionDef, ast.ClassDef) + ((ast.Assign,) if "def dq_program" in source else ())
        nodes = [node for node in ast.parse(source).body if isinstance(node, kinds)]
        linecache.cache[file] = (len(source), None, source.splitlines(True), file)  # for triton.jit
        exec(compile(ast.Module(nodes, []), file, "exec"), space)
    return space


LESSON = load_lesson()


def tensors(N, causal, d=16, H=2):
    Q, K, V, dO = torch.from_numpy(np.random.default_rng(N).standard_normal((4, H, N, d)).astype(np.float32))
    return Q, K, V, dO, *LESSON["forward_pass"](Q, K, V, causal)


def test_the_kernels_compile_for_a_gpu_that_is_not_here():
    """The interpreter also accepts code that the compiler rejects."""
    Q, K, V, dO, O, LSE = tensors(64, False)
    tile = {"d": 16, "BM": 32, "BN": 32, "CAUSAL": True, "num_warps": 4}
    rows = Q, O.stride(0), O.stride(1), dO, dO.stride(0), dO.stride(1), LSE, 64
    found = [
        gpu.resources(LESSON["my_row_products_kernel"], 90, *rows, d=16, BM=32),
        gpu.resources(LESSON["my_dq_kernel"], 90, Q, K, V, O, dO, LSE, LSE, Q, 64, 0.25, **tile),
        gpu.resources(LESSON["my_dk_dv_kernel"], 90, Q, K, V, dO, LSE, LSE, K, V, 64, 0.25, **tile),
        gpu.resources(LESSON["my_fused_kernel"], 90, Q, K, V, dO, LSE, LSE, Q, K, V, 64, 0.25, **tile),
        gpu.resources(LESSON["forward_kernel"], 90, Q, K, V, O, LSE, 64, 0.25, **tile),
    ]
    assert all(one.registers > 0 for one in found)


def test_why_section_12_4_sets_weights_of_missing_keys_to_zero():
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.exp(np.float32(100)) == np.inf and np.isnan(np.exp(np.float32(100)) * np.float32(0))
    says("12.4", "$e^{100}$ overflows in float32")


# ---------------------------------------------------------------------- the page about training
def test_the_controls_of_the_page_about_training_hold_for_another_text():
    example, _ = examples(ROOT / "docs" / "guide" / "training.md")
    space = {"__name__": "training"}
    exec(example.code[: example.code.index("\nexpected = train")], space)
    space["codes"] = torch.tensor([ord(letter) for letter in inspect.getsource(difflib) if ord(letter) < 128])
    losses = space["train"](space["by_torch"])
    assert losses[-5:].mean() < losses[0] - 1
    for control in ("zeros", "without_dq_and_dk"):
        assert abs(space["train"](space[control])[-5:].mean() - losses[-5:].mean()) < 0.5


# ---------------------------------------------------------------------- answers that the checks reject
def refusals(exercise, *edits, seed=0):
    """Return the properties that fail for the reference with these edits, each of which must change it."""
    source = exercise_source(exercise, solved=True)
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return {
        name: said for name, said in judge(find(exercise), build(exercise, source), seed) if said is not None
    }


def test_dO_has_the_strides_of_a_layer_too_and_a_last_stride_of_1_is_not_enough():
    failed = refusals("12E", ("dO = dO.contiguous()", "dO = dO if dO.stride(2) == 1 else dO.contiguous()"))
    assert list(failed) == ["O and the three gradients are exact", "is exact for any strides of dO"]
    strides = {
        tuple(np.array(case.inputs["dO"].strides) // 4)
        for case in find("12E").cases(np.random.default_rng(0))
        if case.has("dO with strides")
    }
    assert {(0, 0, 0), (16, 32, 1)} < strides
    x = torch.ones(2, 20, 16, requires_grad=True)
    seen = []
    y = 2 * x
    y.register_hook(seen.append)
    (y.transpose(0, 1).reshape(20, 32) ** 2).sum().backward()
    assert seen[0].stride() == (16, 32, 1)  # the layout that autograd passes if a layer joins its heads


def test_tensors_on_ctx_are_refused_and_numbers_are_not():
    saved = ("ctx.save_for_backward(Q, K, V, O, LSE)", "ctx.q, ctx.rest = Q, (K, V, O, LSE)")
    failed = refusals(
        "12E", saved, ("Q, K, V, O, LSE = ctx.saved_tensors", "Q, (K, V, O, LSE) = ctx.q, ctx.rest")
    )
    (said,) = failed.values()
    assert list(failed) == ["saves its tensors with save_for_backward"]
    assert said.startswith(
        "ctx.q and ctx.rest hold tensors that autograd cannot free; use ctx.save_for_backward ("
    )


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
    (line,) = (line for line in source.splitlines() if "ds = p * (dp" in line)
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
            assert case.has(lesson12.CAUSAL) == case.inputs["causal"] and case.has(lesson12.LOW) == near_100
            assert case.has(lesson12.RAGGED) == (ragged and alone)
            assert case.has(lesson12.HEADS) == (len(Q) == 2 and not ragged and alone)


def test_scores_near_minus_100_have_a_tolerance_of_their_own_and_the_others_a_narrow_one():
    """The error of the reference is below a quarter of each tolerance."""
    for exercise in ("12B", "12C", "12D"):
        reference = build(exercise, exercise_source(exercise, solved=True))
        for case in find(exercise).cases(np.random.default_rng(1)):
            allowed = lesson12.LOW_TOLERANCE if case.has(lesson12.LOW) else SINGLE
            for got, want in zip(find(exercise).run_case(reference, case).value, case.expected, strict=True):
                assert np.abs(got - want).max() <= allowed / 4 * (1 + np.abs(want).max())


def test_a_query_past_the_end_gives_nothing_whatever_its_log_sum_exp_is():
    assert not refusals("12C", ('mask=i < N, other=float("inf"))', "mask=i < N, other=0.0)"))
    says("12.5", "contributes nothing, whatever its weights")


# ---------------------------------------------------------------------- 12E as an operator
OPERATOR = """

@torch.library.custom_op("a_student::NAME", mutates_args=())
def operator(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, causal: bool) -> list[torch.Tensor]:
    O, LSE = forward_pass(Q, K, V, causal)
    return [EXTRA, LSE]


@operator.register_fake
def _(Q, K, V, causal):
    return [torch.empty_like(Q), Q.new_empty(Q.shape[:2])]


def _saved(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:3], *output)
    ctx.causal = inputs[3]


def _both(ctx, gradients):
    Q, K, V, O, LSE = ctx.saved_tensors
    dO = gradients[0].contiguous()
    dQ, D = my_dq(Q, K, V, O, dO, LSE, causal=ctx.causal)
    return dQ, *my_dk_dv(Q, K, V, dO, LSE, D, causal=ctx.causal), None


operator.register_autograd(_both, setup_context=_saved)


def my_kernel_attention(Q, K, V, causal=False):
    return operator(Q, K, V, causal)[0]
"""


def as_an_operator(name, extra):
    source = exercise_source("12E", solved=True) + OPERATOR.replace("NAME", name).replace("EXTRA", extra)
    return {name: said for name, said in judge(find("12E"), build("12E", source), 0) if said is not None}


def test_an_operator_that_the_student_registers_is_entered():
    assert as_an_operator("attention", "O") == {}
    (said,) = set(as_an_operator("doubled", "O * 2").values())
    assert "torch computes here (mul); let your kernels do it" in said
