"""Grouped heads, 16-bit arrays, and the warning for arrays whose tokens come before their heads."""

import warnings

import dense_attention
import numpy as np
import pytest

from iocourse import lowrank
from iocourse.lowrank.grouped_heads import Groups

CAUSAL = {"causal": True, "key_variance": 0.3}


@pytest.mark.parametrize("options", [{}, CAUSAL], ids=["full", "causal"])
@pytest.mark.parametrize("masked", [False, True])
def test_groups_are_heads_whose_keys_are_repeated(engine, options, masked):
    """Query head h uses key head h // 3; dK and dV are sums over the group."""
    Q, _, _, dO = dense_attention.draw(0, (2, 6), 70, 70, 4, 3, size=0.5)
    _, K, V, _ = dense_attention.draw(1, (2, 2), 70, 90, 4, 3, size=0.5)
    options = {"degree": 2, "polynomial": "hermite"} | options
    mask = np.random.default_rng(2).random((2, 2, 90)) < 0.7 if masked else None
    repeated = [X if X is None else np.repeat(X, 3, axis=1) for X in (K, V, mask)]
    found = dense_attention.by(engine, Q, K, V, dO, key_mask=mask, **options)
    wanted = dense_attention.by(engine, Q, *repeated[:2], dO, key_mask=repeated[2], **options)
    sums = [X.reshape(2, 2, 3, *X.shape[2:]).sum(2) for X in wanted[2:]]
    dense_attention.agree(found, (*wanted[:2], *sums), 1e-10, dO)


def test_a_state_of_groups_is_that_of_the_key_heads():
    Q, K, V, _ = dense_attention.draw(3, (2, 6), 100, 100, 4, 3, size=0.5)
    K, V, options = K[:, ::3], V[:, ::3], {"degree": 2, **CAUSAL}
    whole = lowrank.attention(Q, K, V, **options)
    O, state = lowrank.attention(Q[..., :70, :], K[..., :70, :], V[..., :70, :], return_state=True, **options)
    assert (state.T.shape, state.largest.shape, state.T.base) == ((2, 2, 15, 4), (2, 2, 1, 1), None)
    rest = lowrank.attention(Q[..., 70:, :], K[..., 70:, :], V[..., 70:, :], state=state, **options)
    np.testing.assert_allclose(np.concatenate([O, rest], -2), whole, rtol=1e-12)
    assert np.shares_memory(Groups(3, 100, True).keys(K), K)


@pytest.mark.parametrize("name", ["Q", "K"])
@pytest.mark.parametrize("options", [{}, CAUSAL], ids=["full", "causal"])
def test_errors_name_a_row_of_its_own_head(engine, name, options):
    Q, K, V, dO = dense_attention.draw(4, (6,), 40, 90, 4, 3)
    K, V = K[:2], V[:2]
    row = {"Q": 7, "K": 77}[name]
    (Q if name == "Q" else K)[1, row, 0] = np.nan
    with pytest.raises(ValueError, match=rf"^{name} has an entry that is not finite in row {row}$"):
        dense_attention.by(engine, Q, K, V, dO, degree=2, **options)


@pytest.mark.parametrize("options", [{}, CAUSAL], ids=["full", "causal"])
def test_sixteen_bit_arrays_are_computed_in_float32(options):
    short = [X.astype(np.float16) for X in dense_attention.draw(5, (2,), 90, 90, 4, 3, size=0.5)]
    wide = [X.astype(np.float32) for X in short]
    for found, wanted in zip(
        *(lowrank.gradient(*X, degree=2, **options) for X in (short, wide)), strict=True
    ):
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, wanted.astype(np.float16))
    if options:
        O, state = lowrank.attention(*short[:3], degree=2, return_state=True, **options)
        assert (O.dtype, state.T.dtype, state.K.dtype) == (np.float16, np.float32, np.float32)
        assert lowrank.attention(*short[:3], degree=2, state=state, **options).dtype == np.float16
        with pytest.raises(TypeError, match=r"^K must have the dtype of Q, float16, got float32$"):
            lowrank.attention(short[0], *wide[1:3], degree=2, state=state, **options)
    K, V = np.zeros((200_000, 2), np.float16), np.full((200_000, 1), 1000, np.float16)
    with np.errstate(all="raise"):  # a float16 sum of 200,000 ones is infinite
        assert (lowrank.attention(K[:2], K, V, degree=2, **options) == 1000).all()


def layout_warning(Q, K, **options):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lowrank.attention(np.full(Q, 0.1), np.full(K, 0.1), np.ones(K), degree=2, **options)
    assert all(one.filename == __file__ for one in caught)
    return [str(one.message) for one in caught]


def test_tokens_before_heads_cause_a_warning():
    (text,) = layout_warning((512, 4, 8), (512, 4, 8))
    assert text.startswith("Q is read as (…, H, n, d): 512 heads of 4 tokens. If it is (…, n, H, d), pass ")
    assert "\n" not in text and layout_warning((3, 200, 8, 4), (3, 200, 2, 4))
    taylor = {"polynomial": "taylor", "causal": True}
    for shape in ((4, 512, 8), (1000, 20, 8), (1000, 1, 10, 8), (16, 16, 8), (512, 1, 8), (512, 8)):
        assert not layout_warning(shape, shape) and not layout_warning(shape, shape, **taylor)
    assert not layout_warning((512, 1, 8), (512, 300, 8), **taylor)  # decoding
    _, state = lowrank.attention(*np.ones((3, 512, 64, 8)), degree=2, return_state=True, **taylor)
    assert not layout_warning((512, 4, 8), (512, 4, 8), state=state, **taylor)


@pytest.mark.parametrize("entry", [1e2, 1e4, 1e10, 1e30])
def test_one_huge_entry_in_causal_attention_is_finite_or_refused(engine, entry):
    """Without a causal mask there is a warning, see test_error_certificates."""
    arrays = [X.astype(np.float32) for X in dense_attention.draw(3, (), 130, 130, 8, 8, size=0.3)]
    arrays[1][5, 3] = entry
    if entry == 100:
        assert all(np.isfinite(X).all() for X in dense_attention.by(engine, *arrays, degree=2, **CAUSAL))
        return
    with pytest.raises(
        lowrank.NotCertified, match=r"^row \d+ of Q .* not finite in this type\. .*attention\.$"
    ):
        dense_attention.by(engine, *arrays, degree=2, **CAUSAL)
