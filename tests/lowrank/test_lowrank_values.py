"""Low-rank attention and its gradient equal the dense formula, on every engine and for all memory layouts."""

from unittest.mock import patch

import dense_attention
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import many

from iocourse import lowrank
from iocourse.lowrank import feature_tiles
from iocourse.monomials import plan, rank_of

TOLERANCE = {np.float64: 1e-10, np.float32: 3e-5}
CANCELS = 30  # polynomials of an interval wider than the logits have large coefficients of both signs


@st.composite
def problems(draw):
    """Draw (Q, K, V, dO) and options: ragged sizes, leading head axes, every polynomial."""
    heads = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    n, n_k = (draw(st.sampled_from([1, 2, 5, 63, 64, 65, 255, 256, 257, 300])) for _ in range(2))
    dtype, (d, d_v) = draw(dense_attention.widths)
    degree = draw(st.integers(1, 6))
    arrays = dense_attention.draw(draw(st.integers(0, 10**6)), heads, n, n_k, d, d_v, dtype)
    options = {
        "degree": degree,
        "polynomial": draw(st.sampled_from(["hermite", "taylor", "chebyshev", "minimax"])),
    }
    if draw(st.booleans()):
        options["scale"] = draw(st.sampled_from([-0.4, 0.1, 0.3]))
    if options["polynomial"] == "hermite" and draw(st.booleans()):
        options["key_variance"] = 0.5
    if options["polynomial"] in ("chebyshev", "minimax"):
        options["radius"] = 4.0
    return arrays, options


def is_justified(arrays, options):
    """Return True if a head has a row with a denominator or output that is impossible for a softmax."""
    heads = [X.reshape(-1, *X.shape[-2:]) for X in arrays]
    for head in zip(*heads, strict=True):
        found = dense_attention.attend(*head, **options)
        shares = found.P.sum(1) / found.P.shape[1]
        if (
            shares.min() < 0.5 * np.exp(dense_attention.CLIP / 2)
            or abs(found.O).max() > 1.99 * abs(head[2]).max()
        ):
            return True
    return False


@given(problems())
@settings(max_examples=many(25, 50))
@pytest.mark.filterwarnings("ignore:degree . is too low for these logits:RuntimeWarning")
def test_every_engine_computes_the_dense_formula(engine, problem):
    """Compare with the dense polynomial formula only; a low degree may be far from softmax."""
    arrays, options = problem
    try:
        found = dense_attention.by(engine, *arrays, **options)
    except lowrank.NotCertified:
        assert is_justified(arrays, options)
        return
    assert all(X.dtype == arrays[0].dtype for X in found)
    tolerance = TOLERANCE[arrays[0].dtype.type] * (
        CANCELS if options["polynomial"] in ("chebyshev", "minimax") else 1
    )
    dense_attention.agree(found, dense_attention.every_head(*arrays, **options), tolerance, arrays[3])


@given(
    st.tuples(*[st.integers(1, 70)] * 2, st.integers(1, 6), st.integers(1, 12)),
    st.integers(1, 5),
    st.sampled_from(["hermite", "taylor"]),
    st.sampled_from([np.float32, np.float64]),
    st.integers(1, 40),
    st.integers(0, 10**6),
)
@settings(max_examples=many(40, 100))
@pytest.mark.filterwarnings("ignore:degree . is too low for these logits:RuntimeWarning")
def test_numpy_computes_the_dense_formula_in_tiles_of_any_size(sizes, degree, name, dtype, columns, seed):
    """Most shapes end with an incomplete tile, and have both stored and omitted blocks of the last degree."""
    arrays = dense_attention.draw(seed, (), *sizes, dtype, size=0.4)
    options = {"degree": degree, "polynomial": name}
    with patch.multiple(feature_tiles, MOST=columns, LEAST=1):
        try:
            found = dense_attention.by("numpy", *arrays, **options)
        except lowrank.NotCertified:
            assert is_justified(arrays, options)
            return
    wanted = dense_attention.every_head(*arrays, **options)
    dense_attention.agree(found, wanted, {np.float32: 1e-5, np.float64: 1e-12}[dtype], arrays[3])


def test_blocks_of_the_last_degree_are_stored_only_if_they_are_short():
    stored = {d_v: feature_tiles.layout(plan(6, 5), d_v + 1, True).stored for d_v in (1, 12, 200)}
    assert rank_of(6, 4) + 6 > stored[1] > rank_of(6, 4)
    assert stored[1] < stored[12] < stored[200] == rank_of(6, 5)


@pytest.mark.parametrize("polynomial", ["hermite", "taylor", "minimax"])
def test_a_gradient_can_have_its_own_degree(engine, polynomial):
    arrays = dense_attention.draw(3, (2,), 90, 70, 4, 3)
    options = {"polynomial": polynomial} | ({"radius": 4.0} if polynomial == "minimax" else {})
    found = dense_attention.by(engine, *arrays, degree=2, gradient_degree=3, **options)
    values, gradients = (dense_attention.every_head(*arrays, degree=degree, **options) for degree in (2, 3))
    dense_attention.agree(found, (values[0], *gradients[1:]), 1e-10, arrays[3])
    assert dense_attention.off(found[1], values[1]) > 1e-3  # and not that of degree 2


@pytest.fixture(scope="module")
def many():
    """Compare with float64 for more than two spans of a thread and two tiles of torch's features."""
    arrays = dense_attention.draw(5, (), 17_000, 16_500, 4, 3, np.float32, size=0.5)
    wanted = lowrank.gradient(*(X.astype(np.float64) for X in arrays), degree=3, engine="numpy")
    rows = np.r_[0:3, 255:258, 8190:8194, 16380:16388, 16997:17000]
    Q, K, V, dO = arrays
    few = dense_attention.attend(Q[rows], K, V, dO[rows], degree=3)
    assert (
        max(dense_attention.off(wanted.O[rows], few.O), dense_attention.off(wanted.dQ[rows], few.dQ)) < 1e-10
    )
    return arrays, wanted


def test_many_tokens_over_spans_and_tiles(engine, many):
    arrays, wanted = many
    dense_attention.agree(dense_attention.by(engine, *arrays, degree=3), wanted, 1e-4, arrays[3])


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_more_than_rounding(threads):
    pytest.importorskip("numba")
    arrays = dense_attention.draw(6, (2,), 25_000, 17_000, 3, 2)
    one, more = (lowrank.gradient(*arrays, degree=3, engine="numba", threads=count) for count in (1, threads))
    for name, a, b in zip(dense_attention.NAMES, one, more, strict=True):
        assert dense_attention.off(b, a) < 1e-12, name
    assert not np.array_equal(one.dK, more.dK)  # the sums were really split


def layouts(X):
    """Return the same numbers (H, n, d) in other memory layouts."""
    wide = np.zeros((*X.shape[:-1], 2 * X.shape[-1]), X.dtype)
    wide[..., ::2] = X
    yield "every other column", wide[..., ::2]
    yield "columns first", np.asfortranarray(X)
    yield "heads last", np.ascontiguousarray(X.transpose(1, 2, 0)).transpose(2, 0, 1)
    yield "backwards", np.ascontiguousarray(X[:, ::-1])[:, ::-1]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("which", range(4))
def test_strided_arrays(engine, causal, which):
    if engine.startswith("torch") and which == 3:
        pytest.skip("torch has no negative strides")
    arrays = dense_attention.draw(7, (2,), 70, 70, 5, 5)
    options = {"degree": 3, "causal": causal, "polynomial": "taylor"}
    wanted = dense_attention.by(engine, *arrays, **options)
    strided = [list(layouts(X))[which][1] for X in arrays]
    assert not any(X.flags.c_contiguous for X in strided)
    copies = [X.copy() for X in strided]
    found = _by_strided(engine, *strided, **options)
    dense_attention.agree(found, wanted, 1e-12, arrays[3])
    for X, copy in zip(strided, copies, strict=True):
        np.testing.assert_array_equal(X, copy)  # inputs are not modified


def _by_strided(engine, Q, K, V, dO, **options):
    """Run `dense_attention.by` with tensors that keep the strides of the arrays."""
    if not engine.startswith("torch"):
        return dense_attention.by(engine, Q, K, V, dO, **options)
    import torch

    q, k, v = (torch.from_numpy(X).requires_grad_() for X in (Q, K, V))
    O = lowrank.attention(q, k, v, engine=engine.split()[-1], **options)
    return (O.detach().numpy(), *(g.numpy() for g in torch.autograd.grad(O, (q, k, v), torch.from_numpy(dO))))


def test_arrays_that_may_not_be_written_and_broadcast_ones(engine):
    Q, K, V, dO = dense_attention.draw(8, (3,), 40, 50, 4, 4)
    K, V = (np.broadcast_to(X[:1], X.shape) for X in (K, V))  # keys that heads share
    for X in (Q, K, V, dO):
        X.flags.writeable = False
    found = (
        _by_strided(engine, Q, K, V, dO, degree=2)
        if not engine.startswith("torch")
        else dense_attention.by(engine, *(X.copy() for X in (Q, K, V, dO)), degree=2)
    )
    dense_attention.agree(found, dense_attention.every_head(Q, K, V, dO, degree=2), 1e-10, dO)


@pytest.mark.parametrize("causal", [False, True])
def test_loops_are_compiled_once_whether_arrays_may_be_written_or_not(causal):
    """Read-only arrays do not cause another compilation, although Numba treats them as another type."""
    pytest.importorskip("numba")
    from iocourse.lowrank.numba_backend import causal_loops, loops

    def types():
        functions = (f for module in (loops, causal_loops) for f in vars(module).values())
        return {f: f.signatures for f in functions if hasattr(f, "signatures")}

    arrays, options = (
        dense_attention.draw(8, (), 40, 40, 4, 4),
        {"degree": 2, "causal": causal, "key_variance": 0.4},
    )
    wanted, before = dense_attention.by("numba", *arrays, **options), types()
    copies = [X.copy() for X in arrays]
    for X in arrays:
        X.flags.writeable = False
    for found, was in zip(dense_attention.by("numba", *arrays, **options), wanted, strict=True):
        np.testing.assert_array_equal(found, was)
    assert types() == before and any(before.values())
    for X, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(X, copy)


def test_lists_are_arrays():
    Q, K, V, _ = dense_attention.draw(9, (), 4, 5, 2, 3)
    O = lowrank.attention(Q.tolist(), K.tolist(), V.tolist(), degree=2)
    np.testing.assert_array_equal(O, lowrank.attention(Q, K, V, degree=2))


@pytest.mark.parametrize("offset", [30.0, 300.0])
def test_keys_that_share_an_offset_keep_their_precision(engine, offset):
    """A common offset of keys cancels in softmax; sums of squares about 0 would lose the covariance."""
    Q, K, V, dO = dense_attention.draw(10, (), 900, 700, 4, 3, np.float32)
    K = K + np.float32(offset)
    wanted = dense_attention.every_head(Q, K, V, dO, degree=3)
    dense_attention.agree(
        dense_attention.by(engine, Q, K, V, dO, degree=3), wanted, 5e-5 * max(1, offset / 100), dO
    )


def test_one_key_gets_all_weight(engine):
    Q, K, V, dO = dense_attention.draw(11, (2,), 30, 1, 3, 4)
    O, dQ, dK, dV = dense_attention.by(engine, Q, K, V, dO, degree=2)
    np.testing.assert_allclose(O, np.broadcast_to(V, O.shape), rtol=1e-14)
    assert abs(dQ).max() < 1e-13 and abs(dK).max() < 1e-13
    np.testing.assert_allclose(dV, dO.sum(1, keepdims=True), rtol=1e-12)


@pytest.mark.parametrize("polynomial", ["hermite", "taylor", "chebyshev", "minimax"])
def test_errors_against_softmax_fall_with_the_degree(engine, polynomial):
    """Outputs and gradients converge to those of exact attention for small logits."""
    arrays = dense_attention.draw(12, (), 200, 210, 4, 4, size=0.45)
    exact = dense_attention.softmax(*arrays, scale=1 / 2)
    # Chebyshev and minimax approximate on an interval much wider than the range of the logits.
    degree_4 = {"hermite": 1.2e-4, "taylor": 4.5e-4}.get(polynomial, 2e-3)
    before = [np.inf] * 4
    for degree in (2, 4, 6, 8):
        options = {"degree": degree, "polynomial": polynomial}
        if polynomial in ("chebyshev", "minimax"):
            options["radius"] = lowrank.advise(*arrays[:2]).logit_limit
        after = [
            dense_attention.off(f, w)
            for f, w in zip(dense_attention.by(engine, *arrays, **options), exact, strict=True)
        ]
        assert all(a < b / 4 for a, b in zip(after, before, strict=True)), (degree, before, after)
        assert degree != 4 or after[0] < degree_4
        before = after
