"""Signatures of the attention functions: each is written once, and tools show it for both functions that have
it.
"""

import inspect
import pickle
import pydoc
import re
import typing

import pytest
import skip_without_interpreter  # noqa: F401
import torch
from torch import Tensor

from iocourse.kernels import attention, attention_varlen, attention_varlen_with_lse, attention_with_lse

DERIVED = {attention: attention_with_lse, attention_varlen: attention_varlen_with_lse}
Q = torch.randn(1, 2, 9, 8)
PACKED = Q[0].transpose(0, 1)
CU = torch.tensor([0, 4, 9], dtype=torch.int32)

pairs = pytest.mark.parametrize(("one", "both"), DERIVED.items(), ids=[one.__name__ for one in DERIVED])


@pairs
def test_a_derived_function_has_the_parameters_of_the_other(one, both):
    signature, model = inspect.signature(one), inspect.signature(both)
    assert signature.parameters == model.parameters and len(signature.parameters) >= 10
    assert (signature.return_annotation, model.return_annotation) == ("Tensor", "tuple[Tensor, Tensor]")
    hints, others = typing.get_type_hints(one), typing.get_type_hints(both)
    assert (hints.pop("return"), others.pop("return")) == (Tensor, tuple[Tensor, Tensor])
    assert hints == others and list(hints) == list(signature.parameters)
    assert inspect.getfullargspec(one).kwonlydefaults == inspect.getfullargspec(both).kwonlydefaults


@pairs
def test_help_shows_the_signature_and_describes_each_parameter(one, both):
    shown = pydoc.render_doc(one, renderer=pydoc.plaintext)
    assert f"\n{one.__name__}{inspect.signature(one)}\n" in shown
    described = inspect.getdoc(one).partition("Args:\n")[2].partition("\n\n")[0]
    assert re.findall(r"^    (\w+): ", described, re.MULTILINE) == list(inspect.signature(one).parameters)


@pytest.mark.parametrize("function", [*DERIVED, *DERIVED.values()], ids=lambda one: one.__name__)
def test_a_function_is_pickled_by_name(function):
    assert pickle.loads(pickle.dumps(function)) is function


def test_a_derived_function_returns_the_first_result():
    for options in ({}, {"causal": True, "scale": 0.3}):
        assert torch.equal(attention(Q, Q, Q, **options), attention_with_lse(Q, Q, Q, **options)[0])
        packed = PACKED, PACKED, PACKED, CU, CU
        assert torch.equal(
            attention_varlen(*packed, **options), attention_varlen_with_lse(*packed, **options)[0]
        )


@pytest.mark.parametrize("function", [attention, attention_with_lse], ids=lambda one: one.__name__)
def test_tensors_by_name_are_traced_in_one_graph(function):
    def call(q):
        return function(k=q * 2, v=q, q=q, causal=True)

    got = torch.compile(call, fullgraph=True, backend="eager")(Q)
    assert all(map(torch.equal, got, call(Q)))
    assert all(map(torch.equal, got, function(Q, Q * 2, Q, causal=True)))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "attention must be called with q, k, v, got no q"),
        ((Q, Q), {"causal": True}, "attention must be called with q, k, v, got no v"),
        ((Q,), {"v": Q}, "attention must be called with q, k, v, got no k"),
        ((Q, Q, Q), {"k": Q}, "attention got k by position and by name. Pass it once"),
    ],
)
def test_tensors_that_are_missing_or_passed_twice(arguments, options, message):
    with pytest.raises(TypeError) as caught:
        attention(*arguments, **options)
    assert str(caught.value) == message
