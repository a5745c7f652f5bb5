"""The forward pass with specialised warps: the same bits and words as the plain one, and a plain refusal of
what it does not take.
"""

from types import SimpleNamespace

import needs_interpreter  # noqa: F401
import on_gpu
import pytest
import torch
import triton
from compiled import as_reported
from hypothesis import example, given, settings
from hypothesis import strategies as st
from judge import judge, numbers, same_bits
from oracle import seen
from test_attention import launched
from triton.runtime import _allocation

from iocourse import traffic
from iocourse.bench.gpu.contenders import contenders
from iocourse.costs.kernels import Problem, attention_forward
from iocourse.kernels import attention, attention_with_lse, using
from iocourse.kernels.host import launches as made_by
from iocourse.kernels.host import operators, runtime, tiles
from iocourse.kernels.host.arguments import band_of
from iocourse.kernels.host.launches import written_down
from iocourse.kernels.host.resources import launches
from iocourse.kernels.host.tiles import SPECIALISED
from iocourse.kernels.host.visibility import Band, Seen

HALVES = torch.float16, torch.bfloat16
side = st.sampled_from([32, 64, 16])


def taken(n_q, n_k, BN, causal, right, align):
    """Whether every query sees key 0, and what follows the last key in its tile is hidden."""
    high = band_of(causal, (None, right), n_q, n_k, align).high
    last_key = n_k - 1 if high is None else n_q - 1 + high
    return (high is None or high >= 0) and (n_k % BN == 0 or (high is not None and last_key < n_k))


@settings(max_examples=14)
@given(
    st.integers(1, 75), st.integers(1, 75), st.sampled_from([8, 16, 24, 64, 80]), st.sampled_from([1, 1, 2]),
    st.sampled_from([(1, 1), (2, 1), (2, 2)]), st.sampled_from(HALVES), st.sampled_from([False, True, True]),
    st.sampled_from([None, None, 0, 20]), st.sampled_from([None, "lower_right"]), side, side, st.booleans(),
    st.sampled_from([None, -0.2]),
)  # fmt: skip
@example(64, 96, 64, 1, (2, 1), torch.float16, False, None, None, 64, 32, True, None)  # whole tiles
@example(75, 75, 16, 1, (1, 1), torch.float16, True, None, None, 32, 64, False, None)  # n_k cuts a tile
@example(70, 32, 16, 1, (1, 1), torch.bfloat16, True, None, None, 64, 16, False, None)  # queries beyond keys
@example(30, 75, 24, 2, (2, 2), torch.float16, True, None, "lower_right", 16, 32, True, -0.2)
def test_the_same_bits_and_words(
    n_q, n_k, d, B, heads, dtype, causal, right, align, BM, BN, rows_of_all_heads, scale
):
    """As the plain kernel at the same tiles, and as its closed form says."""
    n_k = n_k if taken(n_q, n_k, BN, causal, right, align) else -(-max(n_q, n_k) // BN) * BN
    H, H_kv = heads
    q, k, v = numbers(n_q, dtype, (B, H, n_q, d), *[(B, H_kv, n_k, d)] * 2)
    if rows_of_all_heads:
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    options = {"causal": causal, "window": (None, right), "align": align, "scale": scale}
    with using(forward=(BM, BN), specialised=(BM, BN)):
        with traffic.count(Q=q, K=k, V=v) as ledger:
            got = attention_with_lse(q, k, v, **options, specialised=True)
        assert same_bits(got, attention_with_lse(q, k, v, **options))
    band = band_of(causal, (None, right), n_q, n_k, align)
    closed = attention_forward(Problem(n_q, n_k, d, *band, B, H, H_kv), BM=BM, BN=BN)
    assert ledger == closed, ledger - closed


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("causal", [False, True])
def test_as_exact_as_pytorch_at_the_tile_of_the_table(causal, dtype):
    q, k, v, do = numbers(0, dtype, (1, 2, 256, 64), *[(1, 1, 256, 64)] * 2, (1, 2, 256, 64))

    def attend(*leaves):
        return attention_with_lse(*leaves, causal=causal, specialised=True)

    judge(attend, q, k, v, do, None, seen(256, 256, causal))


def test_the_backward_pass_is_the_usual_one(monkeypatch):
    numbers_of_16_bits = [x.half() for x in numbers(0, torch.float32, *[(1, 1, 16, 8)] * 3)]
    monkeypatch.setattr(torch, "randn", lambda *_, **__: numbers_of_16_bits.pop().requires_grad_())
    with using(specialised=(16, 16)):
        names = launched(monkeypatch, specialised=True)
    assert names == [
        "forward_specialised_kernel",
        "row_products_kernel with dQ",
        "backward_keys_kernel with dQ",
    ]


def test_gradients_are_those_of_the_plain_call():
    q, k, v, do = numbers(3, torch.float16, *[(1, 2, 64, 16)] * 4)
    runs = []
    with using(forward=(32, 32), specialised=(32, 32)):
        for specialised in (False, True):
            leaves = [x.clone().requires_grad_() for x in (q, k, v)]
            o = attention(*leaves, causal=True, specialised=specialised, deterministic=True)
            runs.append((o, *torch.autograd.grad(o, leaves, do)))
    assert same_bits(*runs)


def test_pytorch_knows_it():
    """opcheck, and torch.compile in one graph."""
    leaves = [x.requires_grad_() for x in numbers(0, torch.float16, *[(1, 2, 32, 16)] * 3)]
    with using(specialised=(16, 16)):
        torch.library.opcheck(
            torch.ops.iocourse.attention.default,
            (*leaves, [], [], None, 0, False, -1, -1, 0.3, False, "specialised"),
        )
        fast = torch.compile(
            lambda *x: attention(*x, causal=True, specialised=True), fullgraph=True, backend="aot_eager"
        )
        assert torch.equal(fast(*leaves), attention(*leaves, causal=True, specialised=True))


# What it does not take. Each message names the argument, what came and what is allowed.

Q, K = numbers(0, torch.float16, (1, 2, 40, 16), (1, 2, 48, 16))
WIDE = torch.zeros(1, 1, 16, 264, dtype=torch.float16)
NARROW = torch.zeros(1, 1, 16, 12, dtype=torch.float16)
ONE_HEAD = K[:, :1].expand(K.shape)
KEYS = "a multiple of 16, or causal attention with no more queries than keys"
RIGHT = "causal or align is 'lower_right' with 40 queries and 32 keys: query 0 sees none, "
ROWS = "rows on 16-byte borders, no stride of 0, and no size of 0"
REFUSED = [
    ("q is float32, ", "float16, bfloat16", (Q.float(), K.float()), {}),
    ("q has head size d = 264, ", "1 to 256", (WIDE, WIDE), {}),
    ("q has shape (1, 1, 16, 12), strides (192, 192, 12, 1) and address 0x", ROWS, (NARROW, NARROW), {}),
    ("k has shape (1, 2, 48, 16), strides (1536, 0, 16, 1) and address 0x", ROWS, (Q, ONE_HEAD), {}),
    ("k has shape (1, 2, 0, 16), ", ROWS, (Q, K[:, :, :0]), {}),
    ("window hides keys before i -3, ", "no limit on the left", (Q, K), {"window": (3, 0)}),
    (RIGHT, "no more queries than keys", (Q, K[:, :, :32]), {"causal": "lower_right"}),
    ("k has 47 keys, ", KEYS, (Q, K[:, :, :47]), {}),
    ("k has 39 keys, ", KEYS, (Q, K[:, :, :39]), {"causal": True}),
    ("specialised is True with a block_mask", "with it: False", (Q, K), {"block_mask": [[True] * 3] * 3}),
    ("specialised is True with tile_d = 'never'", "with it: False", (Q, K), {"tile_d": "never"}),
    ("specialised is 1", "True or False", (Q, K), {"specialised": 1}),
]


@pytest.mark.parametrize(("came", "allowed", "tensors", "options"), REFUSED, ids=[row[0] for row in REFUSED])
def test_what_is_refused(came, allowed, tensors, options):
    q, k = tensors
    with using(specialised=(16, 16)), pytest.raises(ValueError) as caught:
        attention(q, k, k, **({"specialised": True} | options))
    said, _, rest = str(caught.value).partition("; allowed")
    assert said.startswith(came) and allowed in rest, str(caught.value)
    if "with specialised=True" in said:
        assert rest.endswith(", or attention without specialised")
        assert attention(q, k, k, **options).shape == q.shape


@pytest.mark.parametrize("arch", [75, 80, 89, 100])
def test_other_chips_are_refused(arch):
    message = (
        rf"^q is on sm_{arch}, with specialised=True; allowed: sm_90 \(H100, H200\), or attention without"
    )
    with written_down(arch), pytest.raises(ValueError, match=message):
        operators.forward(Q, K, K, Seen(Band(None, None)), 1.0, "specialised")


# How it starts.


def test_whoever_has_an_allocator_keeps_it(monkeypatch):
    """Triton asks one for the room of a descriptor that a kernel makes."""
    there = []
    monkeypatch.setattr(made_by, "start", lambda *_, **__: there.append(_allocation._allocator.get()))

    def own(size, alignment, stream):
        raise AssertionError("nobody asked for this one")

    triton.set_allocator(own)
    try:
        with using(specialised=(16, 16)):
            attention(Q, K, K, specialised=True)
        assert _allocation._allocator.get() is own
    finally:
        triton.set_allocator(_allocation._NULL_ALLOCATOR)
    assert len(there) == 1 and there[0] not in (own, _allocation._NULL_ALLOCATOR)


def test_what_is_launched_and_where():
    """On sm_90 in 16 bits, for bands without a left limit; nothing is written down for others."""
    assert "specialised" in launches(90, 96, torch.bfloat16)
    absent = [
        launches(80, 64, torch.float16), launches(90, 64, torch.float32), launches(90, 512, torch.float16),
        launches(90, 64, torch.float16, window=(5, 0)), launches(90, 64, torch.float16, pairs="packed"),
    ]  # fmt: skip
    assert not any("specialised" in made for made in absent)


@pytest.fixture(scope="module")
def on_sm_90():
    """(d, causal) -> Resources; and at d = 64 with eight warps. The other pairs and d = 256 are recorded."""
    asked = {
        (d, causal): launches(90, d, torch.bfloat16, causal=causal)
        for d, causal in ((64, True), (128, False))
    }
    asked["eight warps"] = launches(90, 64, torch.bfloat16, causal=False, specialised=(128, 128, 8, 2))
    return dict(zip(asked, as_reported([(90, made["specialised"]) for made in asked.values()]), strict=True))


@pytest.mark.parametrize(("d", "causal"), [(64, True), (128, False)], ids=["64, causal", "128, full"])
def test_warps_specialise_and_nothing_spills(on_sm_90, d, causal):
    """Four warps that are asked for become twelve, each with as many registers as it needs."""
    got = on_sm_90[d, causal]
    assert got.warps == 12 and got.fits and got.programs_at_once == 1, str(got)
    assert got.tensor_core > 0 and got.async_copies > 0
    assert causal or got.hot_loop.instructions <= 460  # of a thread and step; causal masks every step


def test_eight_warps_do_not_specialise(on_sm_90):
    """Triton says nothing of it, so the table asks for four."""
    assert on_sm_90["eight warps"].warps == 8 and {tile.warps for tile in SPECIALISED.values()} == {4}


# What it does on a GPU.

LINE = "specialised=True gave wrong values on an H200 with Triton 3.6.0: leave it out"


def test_on_a_gpu_one_line_says_that_it_is_wrong(monkeypatch):
    """Called, checked and timed: one function decides for all three."""
    place = SimpleNamespace(free_bytes=lambda: 0)
    assert operators.specialised_is_wrong() == ""
    assert "specialised" in contenders(place) and on_gpu.specialised in _checked()
    monkeypatch.setattr(runtime, "INTERPRETED", False)
    monkeypatch.setattr(tiles, "_device_row", lambda index: 90)
    q = torch.ones(1, 1, 128, 64, dtype=torch.float16)
    with pytest.raises(ValueError) as caught:
        attention(q, q, q, specialised=True)
    assert str(caught.value) == LINE
    assert "specialised" not in contenders(place) and on_gpu.specialised not in _checked()
    assert list(contenders(place))[:2] == ["fused", "two-pass"] and on_gpu.packed in _checked()
    with runtime.pretending(90):
        assert operators.specialised_is_wrong() == ""  # only compiled


def _checked():
    return {variant for variant, *_ in on_gpu.variants()}
