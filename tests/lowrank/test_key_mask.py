"""A key mask is the same as slicing the keys, in every engine; masks that are not understood are refused."""

import numpy as np
import pytest
from dense_attention import by, draw, off, options_of

from iocourse import lowrank

LENGTHS = np.array([[70, 70], [33, 33], [1, 1]])  # of three texts with two heads each


def padded(n=70):
    """Return Q, K, V, dO (3, 2, n, d) whose padding is not a number, and the mask (3, 1, n)."""
    arrays = draw(0, (3, 2), n, n, 4, 3, size=0.5)
    mask = np.arange(n) < LENGTHS[:, :1, None]
    for X in arrays[1:3]:
        X[~np.broadcast_to(mask, X.shape[:-1])] = np.nan
    return arrays, mask


def sliced(engine, arrays, mask, causal, **options):
    """Return O, dQ, dK, dV of every head with its keys sliced by hand, and zeros elsewhere."""
    whole = [np.zeros_like(X) for X in (arrays[3], *arrays[:3])]
    for head in np.ndindex(*arrays[0].shape[:-2]):
        keys = np.broadcast_to(mask, arrays[1].shape[:-1])[head]
        rows = keys if causal else slice(None)
        Q, K, V, dO = (X[head] for X in arrays)
        found = by(engine, Q[rows], K[keys], V[keys], dO[rows], causal=causal, **options)
        for X, part, at in zip(whole, found, (rows, rows, keys, keys), strict=True):
            X[head][at] = part
    return whole


@pytest.mark.parametrize("name", ["hermite", "taylor", "minimax"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_mask_is_slicing(engine, causal, name):
    """Padding that took part as keys of zeros changed the output by half."""
    arrays, mask = padded()
    options = {"degree": 2} | options_of(name, causal, radius=3.0)
    found = by(engine, *arrays, key_mask=mask, **options)
    for f, w in zip(found, sliced(engine, arrays, mask, **options), strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_any_keys_may_be_left_out_and_masks_may_be_shared(engine, causal):
    arrays = draw(1, (3, 2), 150, 150, 4, 3, np.float32, size=0.5)
    rng = np.random.default_rng(2)
    options = {"degree": 3, "key_variance": 0.3, "causal": causal}
    for shape in ((150,), (1, 1, 150), (1, 2, 150), (3, 2, 150)):
        mask = rng.random(shape) < 0.6
        found = by(engine, *arrays, key_mask=mask, **options)
        whole = np.broadcast_to(mask, (3, 2, 150))
        for f, w in zip(found, sliced(engine, arrays, whole, **options), strict=True):
            np.testing.assert_allclose(f, w, rtol=1e-4, atol=1e-6)
        assert not found[3][~whole].any() and found[3][whole].all()


def test_masks_of_torch():
    torch = pytest.importorskip("torch")
    arrays, mask = padded()
    q, k, v = (torch.from_numpy(X) for X in arrays[:3])
    wanted = lowrank.attention(*arrays[:3], degree=2, key_mask=mask)
    found = lowrank.attention(q, k, v, degree=2, key_mask=torch.from_numpy(mask))
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12)
    short = lowrank.attention(*(x.bfloat16() for x in (q, k, v)), degree=2, key_mask=mask)
    assert short.dtype == torch.bfloat16 and off(short.float().numpy(), wanted) < 0.02


@pytest.mark.parametrize(
    "mask, error, message",
    [
        (np.ones(70, int), TypeError, r"key_mask must be Boolean, .* got int64\. For ones and zeros pass"),
        (np.ones((3, 70), bool), ValueError, r"\(70,\) or .* \(3, 2\), .* \(3, 70\)\. .*key_mask\[:, None\]"),
        (np.ones((3, 2, 69), bool), ValueError, r"with the leading axes of K, \(3, 2\), .* got \(3, 2, 69\)"),
        (np.ones((2, 2, 70), bool), ValueError, r"got \(2, 2, 70\)"),
        (np.array(True), ValueError, r"got \(\)"),
        (np.arange(70) < np.array([[[5]], [[0]], [[5]]]), ValueError, r"keeps no key in its row \(1, 0\)"),
    ],
)
def test_bad_masks(mask, error, message):
    arrays, _ = padded()
    with pytest.raises(error, match=message):
        lowrank.attention(*arrays[:3], degree=2, key_mask=mask)
    with pytest.raises(error, match=message):
        lowrank.gradient(*arrays, degree=2, key_mask=mask)


def test_other_errors_stay_those_of_a_call_without_a_mask():
    (Q, K, V, dO), mask = padded()
    with pytest.raises(ValueError, match=r"V must have as many rows as K, got 69 and 70"):
        lowrank.attention(Q, K, V[..., :69, :], degree=2, key_mask=mask)
    with pytest.raises(ValueError, match=r"dO must have the shape of O, \(3, 2, 70, 3\), got \(2, 70, 3\)"):
        lowrank.gradient(Q, K, V, dO[0], degree=2, key_mask=mask)
    with pytest.raises(ValueError, match="K has an entry that is not finite in row 33"):
        lowrank.attention(Q, K, V, degree=2, key_mask=np.ones(70, bool))
