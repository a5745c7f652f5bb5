"""Tests of lesson 12: its kernels compared with the library's, its formulas and statements."""

import ast
import difflib
import inspect
import linecache
import statistics
import textwrap
from itertools import permutations

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import costs, exact
from iocourse.costs.kernels import (
    KernelProblem,
    attention_fused_backward,
    attention_split_backward,
    dkdv_plain,
    dq_plain,
    fused_backward_plain,
    sum_ledgers,
)
from iocourse.course.checking import judge
from iocourse.course.exercise import find
from iocourse.course.exercises import lesson12
from iocourse.course.kinds.kernel import SINGLE
from tests.mutation.references import build, exercise_source
from tools.build.notebook_execution import cannot_run
from tools.build.percent_format import side

SOURCE = Lesson("12")
section, says = SOURCE.section, SOURCE.says
if reason := cannot_run(SOURCE.source):
    pytest.skip(reason, allow_module_level=True)

from iocourse import gpu, kernels, traffic  # noqa: E402

# isort: split
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

USED = {"np": np, "exact": exact, "torch": torch, "triton": triton, "tl": tl, "kernels": kernels}
USED |= {f.__name__: f for f in (KernelProblem, sum_ledgers, dq_plain, dkdv_plain, fused_backward_plain)}


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


# ---------------------------------------------------------------------- 12.1 and 12.2, in NumPy
def test_section_12_1():
    arrays = [LESSON[name] for name in ("Q", "K", "V", "dO")]
    right = exact.attention_backward(*arrays)
    first = LESSON["two_sweeps"]([0, 1, 2, 3])
    for order in permutations(range(4)):
        for one, other in zip(first, LESSON["two_sweeps"](order), strict=True):
            assert np.array_equal(one, other)
    for one, want in zip(first, right, strict=True):
        np.testing.assert_allclose(one, want, rtol=0, atol=1e-12)
    assert (LESSON["N"], LESSON["BM"], LESSON["BN"], 100 % 32) == (100, 32, 32, 4)
    shares = [LESSON["share"](program) for program in range(4)]
    assert all(share.all(axis=1).all() for share in shares)  # each key block contributes to every row
    np.testing.assert_allclose(sum(shares), right.dQ, rtol=0, atol=1e-12)
    says("12.1", "All four, $\\lceil N/B_N \\rceil$")


def test_section_12_2():
    a, b, c = np.float32(2**24), np.float32(1), np.float32(-(2**24))
    assert (float((a + b) + c), float(a + (b + c))) == (0, 1)
    assert np.finfo(np.float32).nmant + 1 == 24
    shares = [LESSON["share"](program).astype(np.float32) for program in range(4)]
    sums = [sum(order) for order in permutations(shares)]
    assert len(sums) == 24 and sums[0].dtype == np.float32
    assert len({total.tobytes() for total in sums}) == 12
    assert (np.max(sums, axis=0) - np.min(sums, axis=0)).max() < 1e-6
    for one, two, three, four in permutations(shares):
        assert np.array_equal(((one + two) + three) + four, ((two + one) + three) + four)


# ---------------------------------------------------------------------- its kernels and the library's
SHAPES = [
    (100, 32, 32, False),
    (100, 32, 32, True),
    (47, 16, 32, True),
    (65, 64, 16, False),
    (1, 16, 16, True),
]


def tensors(N, causal, d=16, H=2):
    Q, K, V, dO = torch.from_numpy(np.random.default_rng(N).standard_normal((4, H, N, d)).astype(np.float32))
    return Q, K, V, dO, *LESSON["forward_pass"](Q, K, V, causal)


def library(q, k, v, do, BM, BN, causal, **options):
    """Return O, the gradients and the ledgers of both passes, by the names of the kernels' parameters."""
    q, k, v = (x[None].clone().requires_grad_() for x in (q, k, v))
    with kernels.using(forward=(BM, BN), fused=(BM, BN), queries=(BM, BN), keys=(BM, BN)):
        with traffic.count() as forward:
            o = kernels.attention(q, k, v, causal=causal, **options)
        with traffic.count() as backward:
            gradients = torch.autograd.grad(o, (q, k, v), do[None].to(q.dtype))
    return [x[0].detach() for x in (o, *gradients)], forward, backward


def counted(launcher, *arguments, **keywords):
    with traffic.count() as ledger:
        return launcher(*arguments, **keywords), ledger


@pytest.mark.parametrize(("N", "BM", "BN", "causal"), SHAPES)
def test_the_lessons_kernels_are_the_librarys_in_values_and_words(N, BM, BN, causal):
    Q, K, V, dO, O, LSE = tensors(N, causal)
    tiles = {"BM": BM, "BN": BN, "causal": causal}

    def split():
        dQ, D = LESSON["my_dq"](Q, K, V, O, dO, LSE, **tiles)
        return dQ, *LESSON["my_dk_dv"](Q, K, V, dO, LSE, D, **tiles)

    _, forward = counted(LESSON["forward_pass"], Q, K, V, **tiles)
    problem = KernelProblem(N, N, 16, high=0 if causal else None, H=2, H_kv=2)
    swept = sum_ledgers(dq_plain(problem, BM, BN), dkdv_plain(problem, BM, BN))
    for deterministic, (mine, ledger), form in (
        (True, counted(split), swept),
        (
            False,
            counted(LESSON["my_fused"], Q, K, V, O, dO, LSE, **tiles),
            fused_backward_plain(problem, BM, BN),
        ),
    ):
        (o, *theirs), its_forward, _ = library(Q, K, V, dO, **tiles, deterministic=deterministic)
        assert not ledger - form and not forward - its_forward
        torch.testing.assert_close(O, o, rtol=0, atol=1e-5)
        for one, other in zip(mine, theirs, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("N", "BM", "BN", "causal"), SHAPES)
def test_the_budgets_of_the_exercises_add_up_to_6_10(N, BM, BN, causal):
    problem = KernelProblem(N, N, 16, high=0 if causal else None, H=2, H_kv=2)
    parts = dq_plain(problem, BM, BN), dkdv_plain(problem, BM, BN)
    if not causal:
        T_q, T_k, Nd = -(-N // BM), -(-N // BN), N * 16
        assert parts[0].total == 2 * (4 * Nd + 2 * N + 2 * Nd * T_q)
        assert parts[1].total == 2 * (4 * Nd + T_k * (2 * Nd + 2 * N))
        assert (
            sum_ledgers(*parts).total == 2 * costs.split_backward(N, 16, Br1=BM, Bc1=BN, Br2=BM, Bc2=BN).total
        )
    says("12.4", "$4Nd + 2N + 2Nd\\lceil N/B_M \\rceil$")
    says("12.5", "$4Nd + \\lceil N/B_N \\rceil(2Nd + 2N)$")


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


# ---------------------------------------------------------------------- numbers, section by section
def test_the_kernel_for_D_moves_what_12_3_says():
    _, _, _, dO, O, _ = tensors(40, False)
    D, ledger = counted(LESSON["my_row_products"], O, dO)
    assert ledger.total == 2 * (2 * 40 * 16 + 40)
    torch.testing.assert_close(D, (O * dO).sum(2))
    says("12.3", "W_D = 2Nd + N")


def test_section_12_4_why_weights_of_missing_keys_are_set_to_zero():
    with np.errstate(over="ignore", invalid="ignore"):
        assert np.exp(np.float32(100)) == np.inf and np.isnan(np.exp(np.float32(100)) * np.float32(0))
    says("12.4", "$e^{100}$ is more than float32 can hold")


def test_the_fused_pass_moves_one_array_more_than_that_of_lesson_06():
    N, d, T = 100, 16, 4
    fused = fused_backward_plain(KernelProblem(N, N, d, H=2, H_kv=2), 32, 32)
    assert fused.total == 2 * (2 * N * d + N + 4 * N * d + T * (4 * N * d + 2 * N))
    assert fused.total == 2 * (costs.fused_backward(N, d, Br=32, Bc=32).total + N * d)
    assert "Against (6.8) this is $Nd$ more" in section("12.6")


def test_formulas_12_3_and_12_4():
    for N, d, B in ((128, 64, 128), (100, 16, 32), (4096, 64, 128), (7, 3, 2)):
        split, fused = LESSON["both"](N, d, B, width=2)
        T = -(-N // B)
        assert split.total == 8 * N * d + 2 * N + T * (4 * N * d + 2 * N)
        assert fused.total == 6 * N * d + N + T * (4 * N * d + 2 * N)
        assert split.total - fused.total == 2 * N * d + N
        assert split.bytes == 16 * N * d + 8 * N + T * (8 * N * d + 8 * N)
        assert fused.bytes == 12 * N * d + 4 * N + T * (12 * N * d + 8 * N)
    says("12.7", "8Nd + 2N + T(4Nd + 2N)", "6Nd + N + T(4Nd + 2N)", "$2Nd + N$ ahead")
    says("12.7", "16Nd + 8N + T(8Nd + 8N)", "12Nd + 4N + T(12Nd + 8N)")
    assert "by $2Nd + N$" in SOURCE.text.split("## Misconceptions")[1]


def test_formula_12_5_and_its_distance_to_12_3():
    for N, d, B in ((128, 64, 128), (100, 16, 32), (47, 16, 16)):
        T, whole = -(-N // B), -(-N // B) * B
        split = attention_split_backward(KernelProblem(N, N, d), queries=(B, B), keys=(B, B)).total
        fused = attention_fused_backward(KernelProblem(N, N, d), BM=B, BN=B).total
        prepared = 32 * -(-N // 32) if B < 32 else whole  # a program of the delta kernel has 32 rows
        assert split == 8 * N * d + N + 2 * whole + T * (4 * N * d + 2 * whole)
        assert fused == 7 * N * d + N + 2 * prepared + T * (4 * N * d + 2 * whole)
        plain = LESSON["both"](N, d, B, width=4)
        assert split - plain[0].total == 2 * T * (whole - N) + 2 * whole - N
        assert fused - plain[1].total == 2 * T * (whole - N) + 2 * prepared + N * d
    says("12.8", "8Nd + N + 2N' + T(4Nd + 2N')", "7Nd + N + 2N' + T(4Nd + 2N')")
    says("12.8", "$2T(N' - N)$ for rows that do not exist", "$N$ of which the split pass wrote before")


def test_in_float16_only_a_single_tile_is_cheaper_fused_and_the_rest_goes_to_1_5():
    split, fused = LESSON["both"](2**24, 64, 128, width=2)
    assert fused.bytes / split.bytes == pytest.approx(1.5 * (1 + 8 / 768) / (1 + 8 / 512), rel=1e-3)
    for T in range(1, 40):
        split, fused = LESSON["both"](128 * T, 64, 128, width=2)
        assert (fused.bytes < split.bytes) == (T == 1)


def test_the_words_of_12_8_are_counted_with_either_width():
    Q, K, V, dO, *_ = tensors(40, False)
    for deterministic in (True, False):
        _, _, full = library(Q, K, V, dO, 32, 32, False, deterministic=deterministic)
        _, _, half = library(*(x.half() for x in (Q, K, V, dO)), 32, 32, False, deterministic=deterministic)
        assert full.total == half.total and half.bytes < full.bytes == 4 * full.total


# ---------------------------------------------------------------------- autograd and training
def test_what_12_9_keeps_is_4Nd_and_N_a_head_and_its_gradients_are_right():
    says("12.9", "$4Nd + N$ words")
    assert f"{np.finfo(np.float32).eps / 2:.0e}" == "6e-08"
    Q, K, V, dO, *_ = tensors(40, True)
    leaves = [x.clone().requires_grad_() for x in (Q, K, V)]
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x.numel()) or x, lambda x: x):
        o = LESSON["my_kernel_attention"](*leaves, True)
    assert sum(kept) == 2 * (4 * 40 * 16 + 40)
    found = torch.autograd.grad(o, leaves, dO)
    wide = [x.double().requires_grad_() for x in (Q, K, V)]
    right = torch.autograd.grad(LESSON["forward_by_torch"](*wide, True)[0], wide, dO.double())
    assert all(abs(got - want).max() < 1e-5 for got, want in zip(found, right, strict=True))


def codes_of(*modules):
    text = "".join(map(inspect.getsource, modules))
    return torch.tensor([ord(letter) for letter in text if ord(letter) < 128])


@pytest.mark.parametrize("modules", [(textwrap, statistics), (difflib,)])
def test_what_section_12_10_says_of_its_losses_holds_for_other_texts_too(modules, monkeypatch):
    monkeypatch.setitem(LESSON, "codes", codes_of(*modules))
    monkeypatch.setitem(LESSON, "STEPS", 20)
    losses = LESSON["train"](LESSON["by_torch"])
    without = LESSON["train"](lambda q, k, v: 0 * v)
    assert "\nSTEPS = 20\n" in SOURCE.source
    assert np.mean(losses[-5:]) < losses[0] - 1
    assert abs(np.mean(without[-5:]) - np.mean(losses[-5:])) < 0.3


def test_a_few_steps_agree_for_every_attention(monkeypatch):
    monkeypatch.setitem(LESSON, "codes", codes_of(textwrap))
    monkeypatch.setitem(LESSON, "STEPS", 4)
    reference = LESSON["train"](LESSON["by_torch"])
    for attention in ("by_library", "by_mine"):
        assert LESSON["train"](LESSON[attention]) == pytest.approx(reference, abs=1e-4)


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
    says("12.5", "gives nothing, whatever its weight")


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
