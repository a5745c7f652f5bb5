"""Causal low rank in many calls: the state, queries that are the last tokens, and the errors of a state."""

import re

import dense_attention
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import many

from iocourse import lowrank
from iocourse.monomials import features, plan

EXTRA = {
    "hermite": {"key_variance": 0.4},
    "taylor": {},
    "chebyshev": {"radius": 2.0},
    "minimax": {"radius": 4.0},
}
names = st.sampled_from(list(EXTRA))
sizes = st.tuples(st.integers(1, 9), st.integers(1, 9))
widths = st.tuples(st.sampled_from([np.float32, np.float64]), sizes)
TOLERANCE = {np.float32: 1e-6, np.float64: 1e-12}


def attend(engine, Q, K, V, state=None, **options):
    """Return `lowrank.attention` of arrays by an engine, as arrays; a state is converted too."""
    arrays, tensors = (Q, K, V), engine.startswith("torch")
    if tensors:
        torch = pytest.importorskip("torch")
        arrays = [torch.from_numpy(np.ascontiguousarray(X)) for X in arrays]
        state = state and state.each(torch.from_numpy)
    found = lowrank.attention(*arrays, engine=engine.split()[-1], causal=True, state=state, **options)
    if not tensors:
        return found
    in_numpy = lambda X: X.numpy()  # noqa: E731
    return (found[0].numpy(), found[1].each(in_numpy)) if isinstance(found, tuple) else found.numpy()


def in_parts(engines, cuts, Q, K, V, **options):
    """Return O of a call for each part of the tokens, by one engine after the other, and the last state."""
    state, found = None, []
    for part, (start, stop) in enumerate(zip([0, *cuts], [*cuts, Q.shape[-2]], strict=True)):
        rows = [X[..., start:stop, :] for X in (Q, K, V)]
        by = engines[part % len(engines)]
        O, state = attend(by, *rows, state=state, return_state=True, **options)
        found.append(O)
    return np.concatenate(found, -2), state


@given(
    st.integers(1, 220), st.lists(st.integers(1, 219), max_size=5), st.sampled_from([(), (2,), (2, 2)]),
    widths, st.integers(1, 5), names, st.sampled_from([0, 100]), st.integers(0, 10**6),
)  # fmt: skip
@settings(max_examples=many(15, 40))
def test_many_calls_are_one(engine, n, cuts, heads, wide, degree, name, mean, seed):
    dtype, (d, d_v) = wide
    Q, K, V, _ = dense_attention.draw(seed, heads, n, n, d, d_v, dtype, size=0.5)
    options = {"degree": degree, "polynomial": name, **EXTRA[name]}
    V += dtype(mean)
    whole = attend(engine, Q, K, V, **options)
    found, state = in_parts([engine], sorted({cut for cut in cuts if cut < n}), Q, K, V, **options)
    assert abs(found - whole).max() <= TOLERANCE[dtype] * abs(whole).max()
    assert (state.keys, state.degree, state.K.shape[-2]) == (n, degree, n % 64)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("mean", [0, 1000])
def test_steps_of_one_token_in_changing_engines(engine, dtype, mean):
    """The state of one engine continues in another; in float32 their results differ by up to 2e-6."""
    Q, K, V, _ = dense_attention.draw(1, (2,), 150, 150, 5, 3, dtype, size=0.5)
    V += dtype(mean)
    options = {"degree": 3, "key_variance": 0.3}
    whole = attend(engine, Q, K, V, **options)
    for engines, cuts in (([engine], range(1, 150)), ([engine, "numpy"], (50, 90, *range(120, 150)))):
        found, _ = in_parts(engines, [*cuts], Q, K, V, **options)
        tolerance = TOLERANCE[dtype] * (1 if len(engines) == 1 else 2)
        assert abs(found - whole).max() <= tolerance * abs(whole).max()


def test_the_state_has_the_sums_that_it_describes(engine):
    Q, K, V, _ = dense_attention.draw(2, (2,), 150, 150, 4, 3)
    V[..., 1:] += 50
    kept = [X.copy() for X in (Q, K, V)]
    _, state = attend(engine, Q, K, V, degree=2, polynomial="taylor", return_state=True)
    values = np.concatenate([V - state.offset, np.ones_like(V[..., :1])], -1)[:, :128]
    for k, v, T in zip(K, values, state.T, strict=True):
        np.testing.assert_allclose(T, features(k[:128], plan(4, 2)) @ v, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(state.K, K[:, 128:])
    np.testing.assert_array_equal(state.V, V[:, 128:])
    np.testing.assert_allclose(state.largest[:, 0, 0], np.linalg.norm(K, axis=-1).max(-1))
    assert (state.offset[..., 0] == 0).all() and (abs(state.offset[..., 1:] - 50) < 1).all()
    before = [X.copy() for X in state[:5]]
    attend(engine, Q, K, V, degree=2, polynomial="taylor", state=state)
    for now, was in zip((Q, K, V, *state[:5]), (*kept, *before), strict=True):
        np.testing.assert_array_equal(now, was)


@given(st.integers(1, 200), st.integers(1, 200), widths, names, st.booleans(), st.integers(0, 99))
@settings(max_examples=many(10, 30))
def test_queries_are_the_last_tokens(engine, n, n_k, wide, name, large, seed):
    """O, dQ, dK and dV are those of the dense formula for all tokens, where no other row has a dO."""
    n, n_k, (dtype, (d, d_v)) = min(n, n_k), max(n, n_k), wide
    arrays = dense_attention.draw(seed, (2,), n_k, n_k, d, d_v, dtype, size=0.5)
    arrays[2][:] += dtype(20 * large)
    arrays[3][:, : n_k - n] = 0
    options = {"degree": 3, "polynomial": name, "causal": True, **EXTRA[name]}
    Q, K, V, dO = (X[:, n_k - n :] if at in (0, 3) else X for at, X in enumerate(arrays))
    found = dense_attention.by(engine, Q, K, V, dO, **options)
    wanted = dense_attention.every_head(*arrays, **options)
    wanted = [X[:, n_k - n :] if at in (0, 1) else X for at, X in enumerate(wanted)]
    dense_attention.agree(found, wanted, 1e-10 if dtype == np.float64 else 5e-5 * (1 + 20 * large), dO)


def test_fewer_queries_with_a_mask_and_more_than_keys(engine):
    Q, K, V, dO = dense_attention.draw(4, (3,), 100, 100, 4, 3, size=0.5)
    mask = np.arange(100) < np.array([[100], [85], [60]])
    options = {"degree": 2, "polynomial": "taylor", "causal": True}
    whole = dense_attention.by(
        engine, Q, K, V, dO * (np.arange(100) >= 70)[:, None], key_mask=mask, **options
    )
    found = dense_attention.by(engine, Q[:, 70:], K, V, dO[:, 70:], key_mask=mask, **options)
    for name, f, w in zip(dense_attention.NAMES, found, whole, strict=True):
        np.testing.assert_allclose(f, w[:, -f.shape[1] :], rtol=1e-9, atol=1e-12, err_msg=name)
    assert not found[0][2].any() and found[0][1, :15].all() and not found[0][1, 15:].any()
    with pytest.raises(
        ValueError, match=r"at least as many keys as queries, .*, got 100 queries and 99 keys"
    ):
        dense_attention.by(engine, Q, K[:, :99], V[:, :99], dO, **options)


@pytest.mark.parametrize("mean", [0, 100])
def test_the_error_stays_below_a_hundred_thousandth_of_the_spread(engine, mean):
    """The mean of V does not matter, also through a state. Half a unit of 100 is 3.8e-6."""
    Q, K, V, _ = dense_attention.draw(5, (), 60_000, 60_000, 3, 3, np.float32, size=0.5)
    V += np.float32(mean)
    wide = [X.astype(np.float64) for X in (Q, K, V - np.float64(mean))]
    options = {"degree": 2, "polynomial": "taylor"}
    wanted = lowrank.attention(*wide, causal=True, engine="numpy", **options)
    found = [
        attend(engine, Q, K, V, **options),
        in_parts([engine], [20_000, 20_001], Q, K, V, **options)[0],
        attend(engine, Q[10:], K, V, **options),
    ]
    for O in found:
        error = abs(O.astype(np.float64) - mean - wanted[-len(O) :])
        # In torch the first tile is summed in float32 as it is: some GPUs have no float64.
        assert error[64 if engine.startswith("torch") else 0 :].max() <= 1e-5
    V[40:] += 3000  # later rows of the first tile, whose mean is the offset
    np.testing.assert_array_equal(attend(engine, Q[10:], K, V, **options)[:30], found[2][:30])


# ---- errors


def test_states_that_do_not_fit():
    Q, K, V, _ = dense_attention.draw(6, (2,), 70, 70, 4, 3)
    options = {"degree": 2, "polynomial": "taylor", "causal": True}
    _, state = lowrank.attention(Q, K, V, return_state=True, **options)
    short = [X.astype(np.float32) for X in (Q, K, V)]
    for arrays, other, message in (
        ((Q, K, V), {"degree": 3}, "must have the degree of this call, 3, got 2"),
        ((Q[..., 1:], K[..., 1:], V), {}, "must have the d of this call, 3, got 4"),
        ((Q, K, V[..., 1:]), {}, "must have the d_v of this call, 2, got 3"),
        ((Q[0], K[0], V[0]), {}, "must have the leading axes of this call, (), got (2,)"),
        (short, {}, "must have the type of this call, float32, got float64"),
        ((Q, K, V), {"state": tuple(state)}, "must be a State, from return_state=True, got tuple"),
        ((Q, K, V), {"causal": False}, "and return_state need causal=True: otherwise"),
        ((Q, K, V), {"causal": False, "state": None, "return_state": True}, "and return_state need causal"),
        ((Q, K, V), {"key_mask": np.ones(70, bool)}, "and return_state need key_mask=None"),
    ):
        with pytest.raises((ValueError, TypeError), match=f"^state {re.escape(message)}"):
            lowrank.attention(*arrays, **options | {"state": state} | other)
    with pytest.raises(ValueError, match=r"^K has an entry that is not finite in row 0$"):
        lowrank.attention(Q[:, :1], K[:, :1] * np.nan, V[:, :1], state=state, **options)
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"type of this call, float64, got torch\.float64$"):
        lowrank.attention(Q, K, V, state=state.each(torch.from_numpy), **options)
    with pytest.raises(ValueError, match=r"type of this call, torch\.float64, got float64$"):
        lowrank.attention(*(torch.from_numpy(X) for X in (Q, K, V)), state=state, **options)


def test_a_negative_normaliser_of_earlier_keys_is_refused(engine):
    """The keys of this call are 0; the bound of the logits is that of the keys in the state."""
    Q, K, V, _ = dense_attention.draw(7, (), 129, 129, 4, 3, size=4.0)
    Q, K = abs(Q), -abs(K)
    K[3], K[128] = 9 * K[3], 0
    options = {"degree": 3, "polynomial": "taylor"}
    state = attend(engine, Q[:64], K[:64], V[:64], return_state=True, **options)[1]
    state = attend(engine, Q[127:128] * 0, K[64:128], V[64:128], state=state, return_state=True, **options)[1]
    limit = np.linalg.norm(Q[128]) / 2 * np.linalg.norm(K, axis=1).max()
    assert (state.keys, state.K.shape) == (128, (0, 4))
    with pytest.raises(lowrank.NotCertified, match=r"^row 0 of Q has the denominator -.* reach ±") as caught:
        attend(engine, Q[128:], K[128:], V[128:], state=state, **options)
    assert f"±{limit:.3g} " in str(caught.value)
