"""Exercise 12E: operators registered with torch are found, tried alone, and judged in both types."""

import gc
import logging

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse.course.checking import failed_properties, judge
from iocourse.course.exercise import KEEPS_INPUTS, find
from tests.mutation.references import build, exercise_source
from tools.build.notebook_execution import cannot_run

if reason := cannot_run(Lesson("12").source):
    pytest.skip(reason, allow_module_level=True)

import torch

from iocourse.course.trials.sixteen_bit_gradients import EXACT_O, HALF, allowed_gradient_errors

SAVE = "ctx.save_for_backward(Q, K, V, *output)"
FORWARD = "return forward_pass(Q, K, V, causal)"
FORMULA = "return *backward_operator(dO, *ctx.saved_tensors, ctx.causal), None"
FAKE = "return torch.empty_like(Q), Q.new_empty(Q.shape[:2], dtype=torch.float32)"
BACK = "return dQ, *my_dk_dv(Q, K, V, dO, LSE, D, causal=causal)"
THREE = "return backward_operator(dO, *ctx.saved_tensors, ctx.causal)"
NO_DQ = f"dQ, dK, dV = {THREE.removeprefix('return ')}\n    return None, dK, dV, None"
TRACED = 'triton_op("mine::attention"'
APPLIED = "return attention_operator(Q, K, V, causal)[0]"
REGISTERED = "attention_operator.register_autograd(differentiate, setup_context=keep)"
GRADIENTS, FAKES = "registers the gradients of Q, K and V", "its operators have fakes"
OPCHECK, ONE_GRAPH = "its operators pass torch.library.opcheck", "torch.compile makes one graph of it"
HALVES, SAVES, KEEPS = "is right in float16", "saves its tensors with", "saves only Q, K, V, O and LSE"
RUNS, WRAPPER = "runs without an error", "def my_kernel_attention"
BACK_FAKE = "return torch.empty_like(Q), torch.empty_like(K), torch.empty_like(V)"
IN_FLOAT32 = BACK_FAKE.replace(")", ", dtype=torch.float32)")
SAVED = "*ctx.saved_tensors"
TRITON_OP = (
    ("@attention_operator.register_fake", "@torch.no_grad()"),
    ('torch.library.custom_op("mine::attention"', 'torch.library.triton_op("mine::attention"'),
)
LAUNCHES, FORM = "launches its kernels in operators", "returns a value of the requested form"


def complaints(*edits, seed=0):
    """Return the failed properties of the reference with these edits, and their messages."""
    source = exercise_source("12E", solved=True)
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    return failed_properties(judge(find("12E"), build("12E", source), seed))


@pytest.mark.parametrize(
    ("edits", "prop", "says"),
    [
        ([("attention_operator.register_fake", "torch.no_grad()")], FAKES, "mine::attention has no fake"),
        ([(FAKE, "raise NotImplementedError")], FAKES, "the fake of mine::attention is not written yet"),
        ([(FAKE, FORWARD)], FAKES, "it launches a kernel, and a fake has shapes and types but no data"),
        ([(FAKE, f"assert Q.max().item()\n    {FAKE}")], FAKES, "it reads data, and a fake has only shapes"),
        ([(FAKE, FAKE.replace("[:2]", ""))], FAKES, "result 1 has shape (2, 32, 16), that of"),
        ([(FAKE, FAKE.replace(", dtype=torch.float32", ""))], FAKES, "result 1 has dtype float16, that"),
        ([("torch.empty_like(Q), torch", "torch.empty_like(dO), torch")], FAKES, "result 0 has stride "),
        ([(REGISTERED, "")], GRADIENTS, "mine::attention has no formula of its gradients: register one with"),
        ([("attention_operator.register_a", "backward_operator.register_a")], GRADIENTS, "has no formula"),
        ([(FORMULA, THREE)], GRADIENTS, "the formula returns 3 values, expected 4: one per input"),
        ([(FORMULA, NO_DQ)], GRADIENTS, "the formula returns no gradient for Q"),
        ([(FORWARD, "return forward_pass(Q, K, V, causal)[0], Q[:, :, 0]")], FORM, "or a view of one"),
        ([(FORWARD, f"V.zero_()\n    {FORWARD}")], KEEPS_INPUTS, "your operators write into V"),
        ([(TRACED.replace("triton", "custom"), TRACED)], OPCHECK, "as in the body of a triton_op"),
        ([(APPLIED, f"print(end='')\n    {APPLIED}")], ONE_GRAPH, "Unsupported: Failed to trace builtin"),
        ([("dO.contiguous()", "dO.contiguous() * 1")], "is your own work", "torch computes here (mul)"),
        ([(FORMULA, FORMULA.replace("(dO,", "(dO * 1,"))], "is your own work", "torch computes here (mul)"),
        ([(BACK, "return dQ, dQ, dQ")], FORM, "or a view of one, or one tensor twice"),
        ([(WRAPPER, f"@torch.compiler.disable\n{WRAPPER}")], ONE_GRAPH, "remove @torch.compiler.disable"),
        ([(SAVE, "global KEPT\n    KEPT = Q, K, V, *output"), (SAVED, "*KEPT")], SAVES,
         "in the backward pass my_dq_kernel gets Q, a tensor that"),
        ([(SAVE, f"{SAVE[:-10]})\n    global KEPT\n    KEPT = output"), (SAVED, f"{SAVED}, *KEPT")], SAVES,
         "in the backward pass my_dq_kernel gets O, a tensor that"),
        ([(SAVE, SAVE.replace("Q, K", "Q.clone(), K"))], KEEPS, "words besides Q, K and V, expected at most"),
        ([(BACK, BACK.replace("*my_dk_dv(", "*(x.float() for x in my_dk_dv(") + ")"),
          (BACK_FAKE, IN_FLOAT32)],
         HALVES, "dK, as mine::attention_backward returns it, is float32, expected"),
        ([(FORWARD, "O, LSE = forward_pass(Q, K, V, causal)\n    return O, LSE.to(Q.dtype)"),
          (FAKE, FAKE.replace(", dtype=torch.float32", ""))],
         HALVES, "LSE, as mine::attention returns it, is float16, expected float32"),
        ([(FORWARD, "O, LSE = forward_pass(Q, K.float(), V.float(), causal)\n    return O.to(Q.dtype), LSE")],
         "runs without an error", "both factors of tl.dot must have one type"),
        ([(FORWARD, "O, LSE = forward_pass(Q.float(), K.float(), V.float(), causal)\n"
                    "    return O.to(Q.dtype), LSE")],
         HALVES, "Q reaches forward_kernel in float32, expected float16"),
        (TRITON_OP,
         FAKES, "mine::attention: torch traces a launch of a kernel, as in the body of a triton_op"),
        ([("=())\ndef attention", '=(), device_types="cuda")\ndef attention')],
         RUNS, "leave out device_types"),
        ([(APPLIED, f"with torch.no_grad():\n        {APPLIED}")],
         GRADIENTS, "call the operator without no_grad"),
        ([(APPLIED, APPLIED.replace("Q,", "Q.detach(),"))],
         GRADIENTS, "gets Q without gradients, as after det"),
        ([(FAKE, FAKE.replace("torch.empty_like(Q)", "Q"))],
         OPCHECK, "its fake returns an input: return new"),
        ([(FAKE, "return torch.empty_like(Q)")], FAKES, "returns one tensor, the operator several"),
        ([(SAVE, SAVE.replace("*output", "*output[::-1]"))], RUNS,
         "gets a tensor of shape (2, 32) as O: pass tensors in the order of its arguments, dO, Q, K,"),
        ([("ctx.causal = inputs", "_ = inputs")],
         RUNS, "ctx has no attribute 'causal': set it in the function"),
        ([("dO = dO.contiguous()", "pass")], RUNS, "use dO.contiguous()"),
        ([("dO = dO.contiguous()", "pass")], RUNS, "of the cell of 12B (in my_dq_kernel)"),
    ],
)  # fmt: skip
def test_each_wrong_registration_is_named_in_one_line(edits, prop, says, recwarn, capfd):
    failed = complaints(*edits)
    said = next(said for name, said in failed.items() if name.startswith(prop))
    assert says in said and "\n" not in said.partition("\n         line")[0]
    assert not recwarn.list and "Traceback" not in "".join(capfd.readouterr())


RIGHT = {
    "setup_context converts a tensor": [(SAVE, SAVE.replace("*output", "output[0], output[1].float()"))],
    "copies that copy nothing": [(SAVE, SAVE.replace("Q, K", "Q.contiguous(), K.detach()"))],
    "a copy of dO": [(FORMULA, FORMULA.replace("dO,", "dO.clone(),"))],
    "LSE computed again": [
        (SAVE, SAVE.replace("*output", "output[0]")),
        (SAVED, f"{SAVED}, attention_operator(*ctx.saved_tensors[:3], ctx.causal)[1]"),
    ],
    "an operator that fills its arguments": [
        (FORMULA, "Q = ctx.saved_tensors[0]\n    made = [torch.empty_like(Q) for _ in range(3)]\n"
                  "    fill(dO, *ctx.saved_tensors, *made, ctx.causal)\n    return *made, None"),
        ("def keep(", """
@torch.library.custom_op("mine::fill", mutates_args=("dQ", "dK", "dV"))
def fill(dO: torch.Tensor, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, O: torch.Tensor,
         LSE: torch.Tensor, dQ: torch.Tensor, dK: torch.Tensor, dV: torch.Tensor, causal: bool) -> None:
    dO = dO.contiguous()
    made, D = my_dq(Q, K, V, O, dO, LSE, causal=causal)
    for mine, other in zip((dQ, dK, dV), (made, *my_dk_dv(Q, K, V, dO, LSE, D, causal=causal))):
        mine.copy_(other)


def keep("""),
    ],
}  # fmt: skip


@pytest.mark.parametrize("edits", RIGHT.values(), ids=RIGHT)
def test_an_unusual_right_answer_is_accepted(edits):
    assert complaints(*edits) == {}


def test_an_operator_whose_arguments_change_is_tested_with_its_new_ones():
    """torch keeps the signature of the name."""
    assert complaints() == {}
    assert (
        complaints(
            ("LSE: torch.Tensor, causal", "LSE: torch.Tensor, unused: bool, causal"),
            ("O, LSE, causal):", "O, LSE, unused, causal):"),
            (SAVED, f"{SAVED}, True"),
        )
        == {}
    )


def test_gradients_that_are_missing_have_one_message():
    assert [*complaints((FORMULA, NO_DQ))] == ["registers the gradients of Q, K and V"]


def test_an_answer_of_an_older_copy_is_told_what_the_exercise_asks_for_now():
    older = f"""
class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, Q, K, V, causal):
        O, LSE = forward_pass(Q, K, V, causal)
        ctx.save_for_backward(Q, K, V, O, LSE)
        ctx.causal = causal
        return O

    @staticmethod
    def backward(ctx, dO):
        Q, K, V, O, LSE = ctx.saved_tensors
        dO, causal = dO.contiguous(), ctx.causal
        dQ, D = my_dq(Q, K, V, O, dO, LSE, causal=causal)
        {BACK}, None


def my_kernel_attention(Q, K, V, causal=False):
    return Attention.apply(Q, K, V, causal)
"""
    ((name, said),) = failed_properties(judge(find("12E"), build("12E", older), 0)).items()
    assert name.startswith(LAUNCHES)
    assert said.startswith(
        "O comes from Attention, a torch.autograd.Function; this exercise now requires operators"
    )


def test_operators_of_define_and_impl_are_found_and_their_names_are_free():
    source = exercise_source("12E", solved=True)
    source += """
library = torch.library.Library("an_old_hand", "FRAGMENT")
library.define("attend(Tensor Q, Tensor K, Tensor V, bool causal) -> (Tensor, Tensor)")
library.impl("attend", lambda Q, K, V, causal: forward_pass(Q, K, V, causal), "CPU")


@torch.library.register_fake("an_old_hand::attend", lib=library)
def _(Q, K, V, causal):
    return torch.empty_like(Q), Q.new_empty(Q.shape[:2], dtype=torch.float32)


torch.library.register_autograd("an_old_hand::attend", differentiate, setup_context=keep, lib=library)


def my_kernel_attention(Q, K, V, causal=False):
    return torch.ops.an_old_hand.attend(Q, K, V, causal)[0]
"""
    attention = build("12E", source)
    assert failed_properties(judge(find("12E"), attention, 0)) == {}
    attention.__globals__["library"]._destroy()


def test_a_cell_that_runs_again_is_judged_by_its_last_registration():
    """Also after a run that ended with an error between two registrations."""
    source = exercise_source("12E", solved=True)
    forgetful = source.replace("*ctx.saved_tensors, ctx.causal)", "*ctx.saved_tensors, False)")
    assert failed_properties(judge(find("12E"), build("12E", source), 0)) == {}
    with pytest.raises(ZeroDivisionError):
        build(
            "12E",
            source.replace("@backward_operator.register_fake", "1 / 0\n@backward_operator.register_fake"),
        )
    wrong = build("12E", forgetful)
    gc.collect()
    assert "applies the causal mask in both passes" in failed_properties(judge(find("12E"), wrong, 0))
    right = build("12E", source)
    del wrong
    gc.collect()  # the libraries of earlier runs go now
    assert failed_properties(judge(find("12E"), right, 0)) == {}


def test_nothing_is_left_after_a_check(recwarn, capfd):
    attention = build("12E", exercise_source("12E", solved=True))
    judge(find("12E"), attention, 0)
    before, cache = logging.root.manager.disable, torch._dynamo.eval_frame._debug_get_cache_entry_list
    judge(find("12E"), attention, 0)
    assert cache(attention.__code__) == []
    assert logging.root.manager.disable == before and not recwarn.list
    assert "".join(capfd.readouterr()) == ""


def test_the_reference_is_within_the_bound_and_16_bit_mistakes_are_not():
    """The error as a share of the allowed one."""
    exercise = find("12E")

    def shares(source, exact_O):
        attention = build("12E", source)
        for case in exercise.cases(np.random.default_rng(3)):
            if case.has(HALF) and case.has(EXACT_O) == exact_O:
                arrays = {name: x for name, x in case.inputs.items() if isinstance(x, np.ndarray)}
                causal = case.inputs.get("causal", False)
                allowed = allowed_gradient_errors(arrays, causal=causal, exact_O=exact_O)
                trial = exercise.run_case(attention, case)
                both = zip(("O", "dQ", "dK", "dV"), trial.value, case.expected, strict=True)
                yield {name: float((abs(got - want) / allowed[name]).max()) for name, got, want in both}

    source = exercise_source("12E", solved=True)
    for exact_O in (False, True):
        assert all(max(found.values()) < 1 for found in shares(source, exact_O))
    in_16_bits = source.replace("*ctx.saved_tensors, ctx", "*ctx.saved_tensors[:4], kept_LSE(ctx), ctx") + (
        "\n\ndef kept_LSE(ctx):\n    return ctx.saved_tensors[4].half().float()\n"
    )
    (found,) = shares(in_16_bits, True)
    assert found["dV"] > 1.5
