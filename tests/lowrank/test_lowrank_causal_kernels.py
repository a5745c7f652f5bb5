"""Causal low rank in Triton: values and gradients against the dense block function in float64, words against
the closed form, and the face that launches it.
"""

import math

import dense
import needs_interpreter  # noqa: F401
import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iocourse import lowrank, traffic
from iocourse.costs.lowrank_kernels import (
    TOKENS,
    LowRank,
    causal_low_rank_backward,
    causal_low_rank_forward,
    low_rank_bytes,
)
from iocourse.kernels.host.launches import written_down
from iocourse.lowrank.arguments import checked_options
from iocourse.lowrank.passes import CAUSAL_TILE
from iocourse.lowrank.polynomials import CLIP, polynomial
from iocourse.lowrank.tensors import autograd
from iocourse.lowrank.tensors import launched_causal as causal
from iocourse.lowrank.tensors.launched import LowRankTiles, RowsByFeatures
from iocourse.monomials import plan

KINDS = {torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}  # as of the dense kernels
KEY_VARIANCE = 0.4

tiles = st.tuples(*(st.sampled_from([16, 32, 64]) for _ in range(2)), *(st.sampled_from([16, 32]),) * 3).map(
    lambda t: LowRankTiles(RowsByFeatures(16, t[2]), RowsByFeatures(t[0], t[3]), RowsByFeatures(t[1], t[4]))
)
cases = st.fixed_dictionaries(
    {
        "heads": st.sampled_from([(1, 1), (2, 1), (1, 2)]),
        "n": st.one_of(st.sampled_from([1, 63, 64, 65, 128]), st.integers(2, 130)),
        "sizes": st.sampled_from([(1, 1, 4), (3, 3, 3), (4, 7, 2), (5, 16, 2), (8, 3, 2), (16, 16, 1)]),
        "dtype": st.sampled_from([torch.float32, torch.float32, torch.float16, torch.bfloat16]),
        "adaptive": st.booleans(),
        "tiles": st.one_of(st.none(), tiles),
        "spans": st.sampled_from([1, 2, 7]),
    }
)
EVERYTHING = {
    "heads": (2, 1), "n": 130, "sizes": (4, 7, 2), "dtype": torch.float32, "adaptive": True, "tiles": None,
    "spans": 7,
}  # fmt: skip
BLOCKS = LowRankTiles(RowsByFeatures(16, 16), RowsByFeatures(16, 16), RowsByFeatures(32, 16))


def problem(case):
    """q, k, v, dO as tensors, the launches' other arguments, and the same for the dense formula."""
    (d, dv, g), n, heads = case["sizes"], case["n"], case["heads"]
    arrays = dense.draw(n * 101 + d, heads, n, n, d, dv, np.float32, size=0.6)
    tensors = [torch.from_numpy(x).to(case["dtype"]) for x in arrays]
    name = "hermite" if case["adaptive"] else "taylor"
    p = plan(d, g)
    weights = torch.as_tensor(polynomial(name, g).coefficients[p.degrees] * p.multiplicities)
    scale = 1 / math.sqrt(d)
    variance = ((tensors[0].float() * scale) ** 2).sum(-1).mul(KEY_VARIANCE).clamp(max=CLIP)
    given_ = (p, weights, variance if case["adaptive"] else None)
    options = {"degree": g, "polynomial": name, "causal": True}
    if case["adaptive"]:
        options["key_variance"] = KEY_VARIANCE
    return tensors, given_, {"scale": scale}, options


def close(got, want, tolerance):
    assert got.shape == want.shape
    want = torch.from_numpy(want)
    assert float((got.double() - want).abs().max()) <= tolerance * (0.1 + float(want.abs().max()))


@settings(max_examples=8)
@example(EVERYTHING)
@example(EVERYTHING | {"tiles": BLOCKS, "spans": 2})
@given(cases)
def test_values_gradients_and_words(case):
    (q, k, v, do), given_, scale, options = problem(case)
    tiling = {"tiles": case["tiles"], "spans": case["spans"]}
    countable = q.dtype != torch.bfloat16  # else the kernels are given copies
    with traffic.count(**({"Q": q, "K": k, "V": v} if countable else {})) as ledger:
        o, den = causal.causal_low_rank_forward(q, k, v, *given_, **scale, **tiling)
    with traffic.count(**({"Q": q, "K": k, "V": v, "O": o, "dO": do} if countable else {})) as back:
        got = causal.causal_low_rank_backward(q, k, v, o, den, do, *given_, **scale, **tiling)

    assert (o.dtype, o.shape, den.dtype) == (q.dtype, v.shape, torch.float32)
    want = dense.every_head(*(x.double().numpy() for x in (q, k, v, do)), **options)
    for one, exactly, factor in zip((o, *got), want, (1, 4, 4, 4), strict=True):
        assert one.dtype == q.dtype
        close(one, exactly, factor * KINDS[q.dtype])

    size = LowRank(case["n"], case["n"], *case["sizes"], *case["heads"], variance=case["adaptive"])
    chosen = case["tiles"] or causal.causal_tiles_of(given_[0], v.shape[-1])
    if countable:
        expected = causal_low_rank_forward(size, tiles=chosen, spans=case["spans"])
        assert ledger == expected, ledger - expected
        assert ledger.bytes_read + ledger.bytes_written == low_rank_bytes(expected, q.element_size())
        expected = causal_low_rank_backward(size, tiles=chosen, spans=case["spans"])
        assert back == expected, back - expected


def test_a_tile_is_the_same_everywhere():
    assert TOKENS == CAUSAL_TILE == dense.TILE


def test_words_of_states_are_one_tile_after_the_other():
    """A tile reads the state for two blocks of queries and once more to add its keys, and writes it once."""
    chosen = causal.causal_tiles_of(plan(5, 2), 5)
    got = causal_low_rank_forward(LowRank(10 * TOKENS, 10 * TOKENS, 5, 5, 2), tiles=chosen, spans=1)
    assert (got.reads["states"], got.writes["states"]) == (3 * 10 * 21 * 6, 10 * 21 * 6)
    assert got.reads["K"] == (1 + 1.5) * 10 * TOKENS * 5  # to be added; by one block, then by two
    assert got.reads["Q"] == got.writes["O"] == 10 * TOKENS * 5


@pytest.mark.parametrize("row", [40, 64, 100])
def test_later_rows_change_no_bit_of_earlier_ones(row):
    """Three spans, and the tokens after a row others: also the sums over spans know nothing of them."""
    q, k, v = (
        torch.from_numpy(x)[None, None] for x in dense.draw(3, (), 192, 192, 5, 4, np.float32, 0.6)[:3]
    )
    p = plan(5, 2)
    given_ = (p, torch.tensor(p.multiplicities), torch.full((1, 1, 192), 0.3))
    before, _ = causal.causal_low_rank_forward(q, k, v, *given_, spans=3)
    for x in (q, k, v):
        x[:, :, row + 1 :] *= -0.7
    after, _ = causal.causal_low_rank_forward(q, k, v, *given_, spans=3)
    assert torch.equal(before[:, :, : row + 1], after[:, :, : row + 1])
    assert bool((before[:, :, row + 1 :] != after[:, :, row + 1 :]).any(-1).all())


def test_the_same_bits_every_time_and_any_layout():
    p = plan(4, 2)
    weights = torch.tensor(p.multiplicities)
    packed = torch.rand(1, 70, 3, 2, 4)  # (B, N, 3, H, d)
    views = [x.transpose(1, 2) for x in packed.unbind(2)]
    columns = [x.mT.contiguous().mT for x in views]  # a last stride that is not 1
    found = []
    for q, k, v in (views, [x.contiguous() for x in views], columns):
        o, den = causal.causal_low_rank_forward(q, k, v, p, weights)
        found.append((o, den, *causal.causal_low_rank_backward(q, k, v, o, den, v, p, weights)))
    assert all(torch.equal(x, y) for other in found[1:] for x, y in zip(found[0], other, strict=True))


@pytest.mark.parametrize("shape", [(0, 2, 5, 4), (1, 2, 0, 4)])
def test_no_head_and_no_token(shape):
    p = plan(4, 2)
    q, weights = torch.rand(shape), torch.tensor(p.multiplicities)
    o, den = causal.causal_low_rank_forward(q, q, q, p, weights)
    got = causal.causal_low_rank_backward(q, q, q, o, den, q, p, weights)
    assert [x.shape for x in (o, den, *got)] == [q.shape, q.shape[:3], *[q.shape] * 3]


def test_a_single_span_needs_no_sums_of_others():
    p = plan(4, 2)
    q, weights = torch.empty(2, 3, 300, 4), torch.empty(p.rank)
    for spans, forward, both in ((None, 3, 9), (1, 1, 3)):
        with written_down(90) as made:
            o, den = causal.causal_low_rank_forward(q, q, q, p, weights, spans=spans or 4)
            assert len(made) == forward
            causal.causal_low_rank_backward(q, q, q, o, den, q, p, weights, spans=spans or 4)
            assert len(made) == both


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.rand(1, 2, 7, 4)}, "k has 6 rows and q 7; allowed: the same, as it is causal"),
        ({"v": torch.rand(1, 2, 7, 4)}, r"v has shape \(1, 2, 7, 4\), k \(1, 2, 6, 4\); allowed"),
        (
            {"tiles": BLOCKS._replace(output=RowsByFeatures(128, 16))},
            "tiles has one of 128 rows; allowed: parts of 64",
        ),
    ],
)
def test_bad_input_is_named(change, message):
    q, k, v = (torch.rand(1, 2, 6, 4) for _ in range(3))
    asked = {"q": q, "k": k, "v": v, "p": plan(4, 2), "weights": torch.ones(15)} | change
    with pytest.raises(ValueError, match=message):
        causal.causal_low_rank_forward(**asked)


# The face.


@pytest.mark.parametrize("name", ["hermite", "taylor", "minimax"])
def test_the_face_agrees_with_torch(name):
    arrays = dense.draw(1, (), 70, 70, 4, 3, np.float32, size=0.6)
    more = {"hermite": {"key_variance": 0.4}, "taylor": {}, "minimax": {"radius": 4.0}}[name]
    options = {"degree": 2, "gradient_degree": 3, "polynomial": name, "causal": True, **more}
    found = dense.by("torch triton", *arrays, **options)
    for ours, theirs in zip(found, dense.by("torch torch", *arrays, **options), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(dtype):
    arrays = dense.draw(2, (1, 2), 66, 66, 4, 4, np.float32, size=0.6)
    q, k, v, do = (torch.from_numpy(x).to(dtype) for x in arrays)
    leaves = [x.requires_grad_() for x in (q, k, v)]
    options = {"degree": 2, "causal": True, "key_variance": 0.4}
    o = lowrank.attention(*leaves, **options, engine="triton")
    want = dense.every_head(*(x.detach().double().numpy() for x in (q, k, v, do)), **options)
    for one, exactly in zip((o.detach(), *torch.autograd.grad(o, leaves, do)), want, strict=True):
        assert one.dtype == dtype
        close(one, exactly, 4 * KINDS[dtype])


def test_which_engine_a_gpu_gets():
    """By type and width alone, so a tensor without memory will do: no float64, nothing wider than 64."""
    options = checked_options(degree=2, causal=True, polynomial="taylor")
    for dtype, columns, engine in (
        (torch.float32, 64, "triton"), (torch.bfloat16, 4, "triton"),
        (torch.float64, 4, "torch"), (torch.float32, 65, "torch"),
    ):  # fmt: skip
        q = torch.empty(1, 10, columns, dtype=dtype, device="meta")
        assert autograd._engine(q, q, options) == engine


def test_no_state_is_kept_for_the_gradient():
    q = torch.rand(2, 130, 4).requires_grad_()
    o = lowrank.attention(q, q, q, degree=2, polynomial="taylor", causal=True, engine="triton")
    assert [x.numel() for x in o.grad_fn.runner.found] == [0, 2 * 130, 0]
