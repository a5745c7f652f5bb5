"""Exact attention of the low-rank benchmark: compiled loops, in-place and padded runs against float64."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tools.bench.lowrank import exact_baselines, exact_kernel  # noqa: E402
from tools.bench.lowrank.exact_baselines import (  # noqa: E402
    fastest,
    fits,
    forward_runs,
    gradient_runs,
    in_place,
    in_place_gradient,
    sampled_truth,
    truth,
)

needs_numba = pytest.mark.skipif(not exact_kernel.installed(), reason="Numba is not installed")
TOLERANCE = 5e-6
SHAPES = (  # n, n_k, d, d_v: token counts are not multiples of the lanes, the rows or the blocks
    (70, 130, 1, 2), (130, 70, 3, 3), (333, 333, 8, 5), (97, 201, 11, 11),
    (2, 50, 12, 12), (201, 201, 12, 12), (50, 7, 16, 16), (85, 77, 32, 33),
)  # fmt: skip


def drawn(n, n_k, d, d_v, largest=5.0):
    """q, k, v, do with max |q| · max |k| = largest; v has a mean."""
    source = torch.Generator().manual_seed(n + d)
    q, k, v, do = (torch.randn(*size, generator=source) for size in ((n, d), (n_k, d), (n_k, d_v), (n, d_v)))
    q *= (largest / (q.norm(dim=1).max() * k.norm(dim=1).max())).clone()
    return q, k, v + 0.5, do


def materialised(q, k, v, do, causal=False):
    """O, dQ, dK, dV by autograd of the matrix written out, in float64."""
    inputs = [x.double().clone().requires_grad_() for x in (q, k, v)]
    scores = inputs[0] @ inputs[1].T
    if causal:
        scores = scores.masked_fill(torch.arange(len(k)) > torch.arange(len(q))[:, None], -torch.inf)
    o = scores.softmax(1) @ inputs[2]
    return [o.detach(), *torch.autograd.grad(o, inputs, do.double())]


def arrays(tensors):
    return [x.numpy() for x in tensors]


def worst_error(found, wanted):
    """The largest of the relative errors of the arrays, in the Euclidean norm."""
    errors = [np.linalg.norm(x - y.numpy()) / np.linalg.norm(y) for x, y in zip(found, wanted, strict=True)]
    return max(errors)


# --- compiled loops ----------------------------------------------------------------------------------------


@needs_numba
@pytest.mark.parametrize("shape", SHAPES)
def test_compiled_loops_agree_with_float64(shape):
    inputs = drawn(*shape)
    before = [x.clone() for x in inputs]
    for causal in (False, True):
        found = exact_kernel.gradient(*arrays(inputs), causal=causal)
        assert all(x.dtype == np.float32 and x.flags.c_contiguous for x in found)
        assert worst_error(found, materialised(*inputs, causal)) < 1e-6  # scores of at most 5
        assert np.array_equal(exact_kernel.forward(*arrays(inputs[:3]), causal=causal), found[0])
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))


@needs_numba
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_compiled_loops_work_with_every_number_of_lanes(monkeypatch, lanes):
    monkeypatch.setattr(exact_kernel, "_lanes", lambda: lanes)
    inputs = drawn(101, 90, lanes + 2, 4)  # sizes of no other test, because compiled loops are kept by size
    for causal in (False, True):
        found = exact_kernel.gradient(*arrays(inputs), causal=causal)
        assert worst_error(found, materialised(*inputs, causal)) < TOLERANCE


@needs_numba
@pytest.mark.parametrize("causal", [False, True])
def test_compiled_loops_are_accurate_up_to_their_largest_score(causal):
    inputs = drawn(201, 201, 12, 12, largest=0.999 * exact_kernel.MOST)
    q, k = inputs[:2]
    longest = q[q.norm(dim=1).argmax()]
    k[2] = longest * k.norm(dim=1).max() / longest.norm()
    k[3] = -k[2]
    assert (q @ k.T).max() > 49.9 and (q @ k.T).min() < -49.9
    found = exact_kernel.gradient(*arrays(inputs), causal=causal)
    assert worst_error(found, materialised(*inputs, causal)) < TOLERANCE


@needs_numba
@pytest.mark.parametrize("entry", [1e3, 1e30, np.inf, np.nan])
def test_scores_that_may_overflow_are_an_error(entry):
    q, k, v, do = arrays(drawn(20, 20, 3, 3))
    q[7, 1] = entry
    with (
        np.errstate(all="ignore"),
        pytest.raises(ValueError, match=r"max \|q\| · max \|k\| must be at most 50, got"),
    ):
        exact_kernel.gradient(q, k, v, do)


@needs_numba
def test_views_are_accepted():
    q, k, v, do = arrays(drawn(*SHAPES[1]))
    views = [np.asfortranarray(q), np.repeat(k, 2, 0)[::2], v, np.asfortranarray(do)]
    for x, y in zip(exact_kernel.gradient(*views), exact_kernel.gradient(q, k, v, do), strict=True):
        assert np.array_equal(x, y)


@needs_numba
def test_other_arguments_are_an_error():
    q, k, v, do = arrays(drawn(20, 20, 3, 3))
    with pytest.raises(
        ValueError, match=r"q, k, v must be float32 matrices .*, got float64 \(20, 3\), float32"
    ):
        exact_kernel.forward(q.astype(np.float64), k, v)
    with pytest.raises(ValueError, match=r"at least one entry, got float32 \(20, 3\), float32 \(0, 3\)"):
        exact_kernel.forward(q, k[:0], v[:0])
    with pytest.raises(ValueError, match=r"sizes must be .*, got \(20, 3\), \(20, 2\), \(20, 3\)"):
        exact_kernel.forward(q, k[:, :2], v)
    with pytest.raises(ValueError, match=r"sizes must be .*, got \(20, 3\), \(20, 3\), \(19, 3\)"):
        exact_kernel.forward(q, k, v[1:])
    with pytest.raises(ValueError, match=r"do must be float32 of shape \(20, 3\), got float32 \(20, 2\)"):
        exact_kernel.gradient(q, k, v, do[:, :2])


def test_without_numba_there_are_no_compiled_loops(monkeypatch):
    monkeypatch.setattr(exact_kernel, "find_spec", lambda name: None)
    inputs = drawn(20, 20, 3, 3)
    assert exact_kernel.NAME not in forward_runs(*inputs[:3])
    with pytest.raises(ImportError, match="needs Numba, which is not installed"):
        exact_kernel.forward(*arrays(inputs[:3]))


# --- the runs of the record --------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "causal"), [(12, False), (12, True), (16, False)])
def test_every_run_is_exact(d, causal):
    q, k, v, do = drawn(60, 60, d, d)
    wanted = materialised(q, k, v, do, causal)
    expected = {"SDPA"} | ({"SDPA, padded"} if d == 12 else set()) | (set() if causal else {"in place"})
    expected |= {"compiled loops"} if exact_kernel.installed() else set()
    runs = forward_runs(q, k, v, causal)
    assert set(runs) == expected == set(gradient_runs(q, k, v, do, causal))
    for run in runs.values():
        assert worst_error([np.asarray(run())[:, :d]], wanted[:1]) < TOLERANCE
    for run in gradient_runs(q, k, v, do, causal).values():
        found = [np.asarray(x)[:, :d] for x in run()][-3:]
        assert worst_error(found, wanted[1:]) < TOLERANCE


def test_scores_beyond_the_range_of_compiled_loops_leave_the_other_runs():
    q, k, v, _ = drawn(60, 60, 3, 3, largest=51)
    assert set(forward_runs(q, k, v)) == {"SDPA", "SDPA, padded", "in place"}


@pytest.mark.parametrize("block", [1, 7, 60, 100])
def test_in_place_runs_do_not_depend_on_the_block(block):
    q, k, v, do = drawn(60, 50, 5, 4)
    wanted = materialised(q, k, v, do)
    forward, gradient = in_place(q, k, v, block), in_place_gradient(q, k, v, do, block)
    for _ in range(2):  # buffers are reused; dK and dV start from zero again
        assert worst_error([forward().numpy()], wanted[:1]) < TOLERANCE
        assert worst_error(arrays(gradient()), wanted[1:]) < TOLERANCE


@pytest.mark.parametrize(("n", "wanted"), [(300, 300), (6000, 10)])
def test_the_fastest_block_is_used(monkeypatch, n, wanted):
    monkeypatch.setattr(
        exact_baselines, "_seconds_a_row", lambda attend, n, block: abs(block - (300 if n == 300 else 11))
    )
    tried = []
    assert fastest(lambda block: tried.append(block) or block, n, 6000 if n == 6000 else 300) == wanted
    assert set(tried) == ({109, 218, 300} if n == 300 else {5, 10, 21, 43})


def test_in_place_is_skipped_at_40960_below_12_gb():
    assert fits(40_959, memory=0) and fits(40_960, memory=12 * 10**9) and not fits(40_960, memory=11 * 10**9)


@pytest.mark.parametrize("causal", [False, True])
def test_the_reference_is_exact(causal):
    q, k, v, do = drawn(70, 70, 5, 5)
    for x, y in zip(truth(q, k, v, do, causal), materialised(q, k, v, do, causal), strict=True):
        assert torch.allclose(x, y, atol=1e-10)
    assert not q.requires_grad


def test_the_reference_of_some_rows_is_exact():
    q, k, v, do = drawn(70, 70, 5, 5)
    rows = torch.tensor([0, 13, 69])
    o, dq = sampled_truth(q, k, v, do, rows)
    exact = materialised(q, k, v, do)
    assert torch.allclose(o, exact[0][rows], atol=1e-10) and torch.allclose(dq, exact[1][rows], atol=1e-10)
