"""Calls in the style of PyTorch's SDPA, FlexAttention and FlashAttention: accepted, or rejected with a
one-line error that names the equivalent call.
"""

import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import skip_without_interpreter  # noqa: F401
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from iocourse.kernels import (
    attention,
    attention_varlen,
    attention_varlen_with_lse,
    attention_with_lse,
    decode,
    tiled_mask,
)
from iocourse.kernels.host.checks import ELSEWHERE

Q, K = torch.randn(1, 2, 9, 8), torch.randn(1, 1, 9, 8)
PACKED = Q[0].transpose(0, 1), K[0].transpose(0, 1), K[0].transpose(0, 1)
CU = torch.tensor([0, 4, 9], dtype=torch.int32)
CALLS = {
    "attention": lambda **options: attention(Q, K, K, **options),
    "attention_with_lse": lambda **options: attention_with_lse(Q, K, K, **options),
    "attention_varlen": lambda **options: attention_varlen(*PACKED, CU, CU, **options),
    "attention_varlen_with_lse": lambda **options: attention_varlen_with_lse(*PACKED, CU, CU, **options),
    "decode": lambda **options: decode(Q[:, :, :1], K, K, **options),
}


def refused(kind, call, *arguments, **options):
    """Return the message of the error that the call raises: one line that states what to do or to pass."""
    with pytest.raises(kind) as caught:
        call(*arguments, **options)
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "\n" not in message and re.search(r" must |; use: |\. (Use|Call|Pass) ", message), message
    return message


@pytest.mark.parametrize("name", CALLS)
def test_arguments_of_other_attentions(name):
    for argument, instead in ELSEWHERE.items():
        message = refused(TypeError, CALLS[name], **{argument: 1})
        assert message == f"{argument} is not an argument of {name}; use: {instead}"


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("is_causal", "causal=True"),
        ("attn_mask", "scaled_dot_product_attention(q, k, v, attn_mask=…)"),
        ("score_mod", "flex_attention(q, k, v, score_mod=…)"),
        ("window_size", "align='lower_right' for FlashAttention's diagonal"),
        ("cache_seqlens", "attn_mask=torch.arange(k.shape[2]) < lengths[:, None, None, None]"),
        ("casual", "q, k, v, causal, scale, window, align, block_mask, deterministic, tile_d"),
    ],
)
def test_what_is_said_of_them(argument, said):
    assert said in refused(TypeError, attention, Q, K, K, **{argument: True})


def test_a_mask_where_sdpa_has_it():
    message = refused(TypeError, attention, Q, K, K, torch.ones(9, 9).bool())
    assert message.startswith(
        "attention takes 3 positional arguments, got 4. Pass options by name; for a mask"
    )
    assert "attn_mask=…" in message


def test_the_line_for_lengths_is_a_decode_step_with_lengths():
    """The expression for `lengths` in the error message, run with SDPA, agrees with `decode`."""
    q, k = torch.randn(3, 2, 1, 8), torch.randn(3, 2, 9, 8)
    lengths = torch.tensor([9, 4, 1])
    got = sdpa(q, k, k, attn_mask=torch.arange(k.shape[2]) < lengths[:, None, None, None])
    for at, length in enumerate(lengths):
        want, _ = decode(*(x[at : at + 1, :, :length] for x in (q, k, k)))
        assert torch.allclose(got[at : at + 1], want, atol=1e-5)


def test_values_of_another_head_size():
    message = refused(ValueError, attention, Q, K, K[..., :4])
    assert message.endswith(
        ", got (1, 1, 9, 4). For another head size of v, use "
        "torch.nn.functional.scaled_dot_product_attention(q, k, v)"
    )
    message = refused(ValueError, attention_varlen, *PACKED[:2], PACKED[2][..., :4], CU, CU)
    assert "another head size of v" in message
    assert "another head size" not in refused(ValueError, attention, Q, K, K[:, :, :4])


# NumPy's numbers and booleans, as Python's.


@pytest.mark.parametrize("number", [np.float32, np.float64, np.float16])
def test_a_scale_of_numpys(number):
    assert torch.equal(attention(Q, K, K, scale=number(0.5)), attention(Q, K, K, scale=0.5))


@pytest.mark.parametrize("integer", [np.int64, np.int32, np.uint8])
def test_options_of_numpys(integer):
    window = integer(3), integer(0)
    got = attention(
        Q, K, K, causal=np.bool_(True), window=window, deterministic=np.bool_(True), scale=integer(1)
    )
    assert torch.equal(got, attention(Q, K, K, causal=True, window=(3, 0), deterministic=True, scale=1))
    longest = integer(5), integer(5)
    got = attention_varlen(*PACKED, CU, CU, causal=np.bool_(True), window=window, longest=longest)
    assert torch.equal(got, attention_varlen(*PACKED, CU, CU, causal=True, window=(3, 0)))
    one = Q[:, :, :1]
    assert torch.equal(decode(one, K, K, parts=integer(2))[0], decode(one, K, K, parts=2)[0])


def test_numpys_truth_and_a_block_mask():
    blocks = tiled_mask(torch.ones(1, 1, dtype=torch.bool), Q, K, block=16)
    message = refused(ValueError, attention, Q, K, K, causal=np.bool_(True), block_mask=blocks)
    assert message.startswith("block_mask must be passed without causal")


@pytest.mark.parametrize("scale", [np.bool_(True), np.float32("nan"), np.complex64(1)])
def test_scales_of_numpys_that_are_none(scale):
    assert refused(ValueError, attention, Q, K, K, scale=scale).startswith("scale must be None for 1/√d")


# Transforms, autocast, second derivatives.


def summed(q):
    return attention(q, K, K).sum()


@pytest.mark.parametrize(
    "transform",
    [torch.func.grad, torch.func.jacrev, torch.func.vmap, lambda f: lambda q: torch.func.vjp(f, q)],
)
def test_transforms_of_torch_func(transform):
    q = torch.stack([Q, Q]) if transform is torch.func.vmap else Q
    message = refused(NotImplementedError, transform(summed), q)
    assert message.startswith("q, k or v is within a transform of torch.func") and "torch.autograd" in message


def test_a_transform_around_other_tensors_is_none_of_ours():
    got = torch.func.vmap(lambda x: x + attention(Q, K, K).detach().sum())(torch.zeros(3))
    assert torch.equal(got, attention(Q, K, K).sum().expand(3))


def test_batched_gradients():
    q = Q.clone().requires_grad_()
    o = attention(q, K, K)
    message = refused(
        NotImplementedError, torch.autograd.grad, o, q, torch.stack([o, o]).detach(), is_grads_batched=True
    )
    assert message.startswith("dO is a batch (is_grads_batched), which attention does not support. ")


def test_the_gradient_of_a_decode_step():
    q = Q[:, :, :1].clone().requires_grad_()
    message = refused(NotImplementedError, decode(q, K, K)[0].sum().backward)
    assert (
        message
        == "decode has no backward pass. Use attention(q, k, v), or call decode within torch.no_grad()"
    )


def test_autocast_leaves_float64_as_sdpa_does():
    x = Q.double()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert sdpa(x, x, x).dtype == torch.float64
        message = refused(TypeError, attention, x, x, x)
    assert message == "q must be one of float16, bfloat16, float32; got float64"


# (B, N, H, d).


def layouts(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        call()
    return caught


@pytest.mark.parametrize("heads", [(4, 4), (4, 2), (8, 1)])
def test_heads_after_rows_are_warned_of(heads):
    q, k = (torch.randn(1, 300, h, 8) for h in heads)
    for call in (attention, attention_with_lse):
        (caught,) = layouts(lambda call=call: call(q, k, k))
        assert caught.filename == __file__ and "q.transpose(1, 2)" in str(caught.message)


def test_once_for_each_caller():
    q = torch.randn(1, 257, 4, 8)

    def twice():
        for _ in range(2):
            attention(q, q, q)
        attention(q, q, q)

    caught = layouts(twice)
    assert len(caught) == 2 and caught[0].lineno + 1 == caught[1].lineno


@pytest.mark.parametrize(
    ("q", "k"),
    [((1, 4, 12, 8), (1, 2, 12, 8)), ((1, 32, 1, 8), (1, 32, 20, 8)), ((1, 6, 4, 8), (1, 2, 3, 8)),
     ((1, 32, 10, 16), (1, 32, 10, 16)), ((1, 128, 2, 8), (1, 128, 2, 8)), ((1, 256, 9, 1), (1, 256, 3, 1))],
)  # fmt: skip
def test_rows_after_heads_are_not(q, k):
    """A prompt may be shorter than the number of heads."""
    q, k = torch.randn(q), torch.randn(k)
    assert layouts(lambda: attention(q, k, k)) == []


# Packed sequences: wrong numbers on the CPU, in a separate process, which they must not crash.

ROWS = 20
WRONG = {
    "cu_q must not decrease, but falls from 17 to 5 at index 2": ([0, 17, 5], (20, 20)),
    "cu_q goes from 0 to 1000000, but must go from 0 to 20, the number of rows, or fewer": (
        [0, 10**6],
        (20, 20),
    ),
    "cu_q goes from -5 to 20, but must go from 0 to 20, the number of rows, or fewer": ([-5, 20], (20, 20)),
    "longest must be at least (15, 15), from cu_q and cu_k, got (5, 20)": ([0, 15, 20], (5, 20)),
    "longest must be at least (15, 15), from cu_q and cu_k, got (20, 5)": ([0, 15, 20], (20, 5)),
    "cu_q goes from 0 to 15, but must go from 0 to 20, the number of rows": ([0, 15], None),
}
PROGRAM = """
import torch
from iocourse.kernels import attention_varlen
x = torch.randn({rows}, 1, 8)
for said, (cu, longest) in {wrong!r}.items():
    cu = torch.tensor(cu, dtype=torch.int32)
    try:
        attention_varlen(x, x, x, cu, cu, longest=longest)
    except ValueError as error:
        assert str(error) == said, (str(error), said)
    else:
        raise AssertionError(said)
print("all refused")
"""


def test_wrong_numbers_of_packed_sequences():
    program = PROGRAM.format(rows=ROWS, wrong=WRONG)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stdout.strip()) == (0, "all refused"), done.stderr


@pytest.mark.parametrize("longest", [(9, 9), (4096, 4096), (2**31, 2**40), (5, 10**12)], ids=str)
def test_a_bound_of_the_lengths_is_accepted(longest):
    """As FlashAttention's max_seqlen, which code sets to a constant; results and gradients are the same."""
    results = []
    for given in (None, longest):
        leaves = [x.clone().requires_grad_() for x in PACKED]
        o = attention_varlen(*leaves, CU, CU, longest=given, causal=True)
        results.append([o, *torch.autograd.grad(o.square().sum(), leaves)])
    assert all(map(torch.equal, *results))


def test_starts_that_are_changed_before_the_backward_pass():
    """cu_q is changed through NumPy, which PyTorch's check of modified tensors does not detect."""
    q = PACKED[0].clone().requires_grad_()
    cu = np.array([0, 4, 9], dtype=np.int32)
    o = attention_varlen(q, *PACKED[1:], *[torch.from_numpy(cu)] * 2, longest=(5, 5))
    cu[1] = 10**7
    message = refused(ValueError, o.sum().backward)
    assert message == "cu_q must not decrease, but falls from 10000000 to 9 at index 2"


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_past_the_last_sequence(dtype, deterministic):
    """Results are 0, and log-sum-exps -∞, although `empty` returns NaN here; other rows do not change."""
    cu = torch.tensor([0, 4, 7], dtype=torch.int32)
    before = torch.are_deterministic_algorithms_enabled()
    leaves = [x.to(dtype, copy=True).requires_grad_() for x in PACKED]
    fewer = [x.detach()[:7].clone().requires_grad_() for x in leaves]
    torch.use_deterministic_algorithms(True)  # `empty` then returns NaN
    try:
        assert torch.empty(3).isnan().all()
        o, lse = attention_varlen_with_lse(*leaves, cu, cu, longest=(4, 4), deterministic=deterministic)
        gradients = torch.autograd.grad([o, lse[:, :7]], leaves, [torch.ones_like(o), torch.ones(2, 7)])
    finally:
        torch.use_deterministic_algorithms(before)
    assert not o[7:].any() and (lse[:, 7:] == -torch.inf).all() and o[:7].isfinite().all()
    assert all(x.isfinite().all() and x[:7].any() and not x[7:].any() for x in gradients)
    o, lse = attention_varlen_with_lse(*fewer, cu, cu, deterministic=True)
    want = torch.autograd.grad([o, lse], fewer, [torch.ones_like(o), torch.ones(2, 7)])
    for one, other in zip(gradients, want, strict=True):
        assert torch.allclose(one[:7], other, atol=1e-5)
