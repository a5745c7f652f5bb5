"""Errors of low-rank attention and their messages, and properties of all results that are returned."""

import re
import time
import tracemalloc
from inspect import signature

import numpy as np
import pytest
from dense_attention import attend, by, draw, options_of
from hypothesis import example, given, settings
from hypothesis import strategies as st
from long_runs import many

from iocourse import lowrank
from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked
from iocourse.doctor import install_command
from iocourse.exact import softmax
from iocourse.lowrank import error_certificates, numba_backend, per_head, polynomials
from iocourse.lowrank.advice import predicted_error
from iocourse.lowrank.options import checked_options
from iocourse.monomials import rank_of

inaccurate = pytest.mark.filterwarnings("ignore:degree . is too low for these logits:RuntimeWarning")


@pytest.fixture
def arrays():
    return draw(0, (2,), 12, 15, 3, 4)


def assert_refused(error, match, Q, K, V, dO, **options):
    """Assert that `attention` and `gradient` both raise the error."""
    with pytest.raises(error, match=match):
        lowrank.attention(Q, K, V, **options)
    with pytest.raises(error, match=match):
        lowrank.gradient(Q, K, V, dO, **options)


# ---- entries ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("which", range(4))
def test_entries_that_are_not_finite_are_named(engine, arrays, which, bad):
    arrays[which][1, 7, 2] = bad
    name = ("Q", "K", "V", "dO")[which]
    if name == "dO" and engine.startswith("torch"):
        pytest.skip("a gradient that autograd brings is passed on as it is")
    with pytest.raises(ValueError, match=f"^{name} has an entry that is not finite in row 7$"):
        by(engine, *arrays, degree=2)


@pytest.mark.filterwarnings("ignore:overflow")
def test_large_finite_entries_are_not_called_infinite():
    error_certificates.check_finite("Q", np.full((3, 2), 1e30, np.float32))  # their squares overflow


@pytest.mark.parametrize("which", range(2))
def test_a_bound_that_was_promised(engine, arrays, which):
    arrays[which][0, 5, 1] = -40.0
    with pytest.raises(ValueError, match=f"^{'QK'[which]} has an entry of size 40 in row 5; bound is 6$"):
        by(engine, *arrays, degree=2, bound=6)
    arrays[which][0, 5, 1] = -6.0
    arrays[2][0, 5, 1] = 1000.0  # the values of V may be of any size
    by(engine, *arrays, degree=2, bound=6.0)


@pytest.mark.parametrize("polynomial", polynomials.NAMES)
def test_entries_whose_powers_overflow(engine, polynomial):
    Q, K, V, dO = draw(1, (), 20, 20, 3, 3, np.float32)
    Q, K = Q * np.float32(1e20), K * np.float32(1e20)
    with pytest.raises(lowrank.NotCertified, match=r"row 0 of Q .*±inf"):
        by(engine, Q, K, V, dO, degree=2, **options_of(polynomial))


def test_values_whose_sums_overflow(engine):
    Q, K, V, dO = draw(2, (), 20, 20, 3, 3, np.float32)
    V[:] = 3e38
    with pytest.raises(ValueError, match=r"^V has entries whose weighted sums are not finite"):
        by(engine, Q, K, V, dO, degree=2)


# ---- options ---------------------------------------------------------------------------------------------

INTEGERS, NUMBERS = ("degree", "gradient_degree", "threads"), ("scale", "bound", "radius", "key_variance")
LATER = "needs key_variance, because.*later.*Pass key_variance"
RADIUS = r"polynomial='{}' needs radius, .*lowrank.advise\(Q, K\)"
INVALID = [
    *[({name: bad}, f"{name} must be .*at least 1") for name in INTEGERS for bad in (0, -3)],
    *[({name: bad}, f"{name} must be positive and finite, got {bad}$")
      for name in NUMBERS[1:] for bad in (0, -1.0, np.inf, np.nan)],
    *[({"scale": bad}, rf"scale must be within ±1e\+18, got {bad}$") for bad in (np.inf, np.nan)],
    ({"polynomial": "pade"}, "polynomial must be one of hermite, taylor, chebyshev, minimax, got 'pade'$"),
    ({"engine": "cuda"}, "engine must be one of numpy, numba, torch, got 'cuda'$"),
    ({"engine": "torch"}, "engine='torch' needs torch tensors, but Q is a NumPy array$"),
    ({"gradient_degree": 5000}, "degree is 5000"),
    *[({"polynomial": name, "causal": causal}, RADIUS.format(name))
      for name in ("chebyshev", "minimax") for causal in (False, True)],
    *[({"causal": True} | options, "polynomial='hermite' with causal=True " + LATER)
      for options in ({}, {"polynomial": "hermite"})],
]  # fmt: skip
WRONG_TYPE = [
    *[({name: bad}, f"{name} must be an integer of at least 1")
      for name in INTEGERS for bad in (2.0, True, "2", [2], np.float64(2))],
    *[({name: bad}, re.escape(f"{name} must be a number, got {bad!r}") + "$")
      for name in NUMBERS for bad in ("1", [1.0], True, 1j)],
    *[({"causal": bad}, re.escape(f"causal must be True or False, got {bad!r}") + "$")
      for bad in ("no", 0, 1, None, np.int64(1), [True])],
]  # fmt: skip


@pytest.mark.parametrize("options, message", INVALID, ids=str)
def test_invalid_options(arrays, options, message):
    assert_refused(ValueError, "^" + message, *arrays, **{"degree": 2} | options)


@pytest.mark.parametrize("options, message", WRONG_TYPE, ids=str)
def test_options_of_a_wrong_type(arrays, options, message):
    for good in (1, 2):  # 2.0 == 2 and True == 1: cached options must not replace the invalid ones
        lowrank.attention(*arrays[:3], **{"degree": 2} | dict.fromkeys(options.keys() & INTEGERS, good))
    assert_refused(TypeError, "^" + message, *arrays, **{"degree": 2} | options)


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int32, np.int64])
def test_options_may_be_numbers_of_numpy(arrays, kind):
    Q, K, V, dO = arrays
    for name in INTEGERS:
        found = lowrank.gradient(*arrays, **{"degree": 2, name: kind(2)})
        for x, y in zip(found, lowrank.gradient(*arrays, **{"degree": 2, name: 2}), strict=True):
            np.testing.assert_array_equal(x, y)
        assert type(getattr(checked_options(**{"degree": 2, name: kind(2)}), name)) is int
    lowrank.gradient(Q, K[:, :12], V[:, :12], dO, degree=2, polynomial="taylor", causal=np.True_)


def test_the_gradient_shows_its_options(arrays):
    of_attention, of_gradient = (signature(f).parameters for f in (lowrank.attention, lowrank.gradient))
    assert list(of_attention)[-2:] == ["state", "return_state"]  # a state has no gradient
    assert list(of_gradient) == ["Q", "K", "V", "dO", *list(of_attention)[3:-2]]
    assert all(of_gradient[name] == of_attention[name] for name in list(of_attention)[:-2])
    with pytest.raises(TypeError, match="degrees"):
        lowrank.gradient(*arrays, degree=2, degrees=3)


@pytest.mark.parametrize("rows, used", [(9, "numpy"), (10, "numba")])
def test_small_problems_are_not_worth_compiling(arrays, monkeypatch, rows, used):
    """Without the option engine, NumPy computes problems with less than SMALL rows times features."""
    pytest.importorskip("numba")
    Q, K, V, _ = (X[0, :rows] for X in arrays)
    monkeypatch.setattr(per_head, "SMALL", 10 * rank_of(3, 2))
    calls = []
    monkeypatch.setattr(
        per_head.fast, "forward", lambda *_: calls.append("numba") or per_head.plain.forward(*_[:4])
    )
    lowrank.attention(Q, K, V, degree=2)
    assert calls == ["numba"] * (used == "numba")
    lowrank.attention(Q, K, V, degree=2, engine="numba")
    assert len(calls) == 1 + (used == "numba")


def test_numba_that_is_not_installed(arrays, monkeypatch):
    wanted = lowrank.attention(*arrays[:3], degree=2, engine="numpy")
    monkeypatch.setattr(numba_backend, "problem", lambda: "No module named 'numba'")
    np.testing.assert_array_equal(lowrank.attention(*arrays[:3], degree=2), wanted)  # NumPy is used then
    command = re.escape(install_command.command("fast"))
    with pytest.raises(ImportError, match=rf"needs Numba, .* \(No module named 'numba'\)\. .*: .*{command}"):
        lowrank.attention(*arrays[:3], degree=2, engine="numba")


# ---- shapes and types ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shapes, match",
    [
        (((4,), (5, 3), (5, 2)), r"Q must have shape \(…, rows, columns\) without zeros, got \(4,\)"),
        (((4, 0), (5, 0), (5, 2)), r"Q must have shape .* without zeros, got \(4, 0\)"),
        (((4, 3), (0, 3), (0, 2)), r"K must have shape .* without zeros, got \(0, 3\)"),
        (((0, 4, 3), (0, 5, 3), (0, 5, 2)), r"Q must have shape .* without zeros, got \(0, 4, 3\)"),
        (((4, 3), (5, 3), (5, 0)), r"V must have shape .* without zeros, got \(5, 0\)"),
        (((4, 3), (5, 2), (5, 2)), "K must have as many columns as Q, got 2 and 3"),
        (((4, 3), (5, 3), (6, 2)), "V must have as many rows as K, got 6 and 5"),
        (((2, 4, 3), (1, 5, 3), (2, 5, 2)), "must have the same heads and batch, got"),
        (((2, 4, 3), (5, 3), (5, 2)), "must have the same heads and batch, got"),
    ],
)
def test_shapes(engine, shapes, match):
    Q, K, V = (np.ones(shape) for shape in shapes)
    with pytest.raises(ValueError, match=match):
        by(engine, Q, K, V, np.ones(1), degree=2)


@pytest.mark.parametrize("kind", [np.longdouble, np.int64, np.complex128, bool, object])
def test_types(arrays, kind):
    match = f"Q must have dtype float16, float32 or float64, got {np.dtype(kind)}"
    assert_refused(TypeError, match, *(X.astype(kind) for X in arrays), degree=2)


def test_mixed_types_and_the_shape_of_dO(arrays):
    Q, K, V, dO = arrays
    match = "V must have the dtype of Q, float64, got float32"
    assert_refused(TypeError, match, Q, K, V.astype(np.float32), dO, degree=2)
    with pytest.raises(TypeError, match="dO must have the dtype of Q, float64, got float32"):
        lowrank.gradient(Q, K, V, dO.astype(np.float32), degree=2)
    with pytest.raises(ValueError, match=r"dO must have the shape of O, \(2, 12, 4\), got \(12, 4\)"):
        lowrank.gradient(Q, K, V, dO[0], degree=2)


# ---- ranks that do not fit -------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [8, 40, 10**6, 10**9])
def test_a_rank_that_does_not_fit_is_refused_at_once(engine, degree):
    arrays = draw(3, (), 10, 10, 64, 64, np.float32)
    match = rf"degree is {degree}: at d = 64 that is [\d.,e+]+ features, .* take [\d.,e+]+ GB; at"
    tracemalloc.start()
    start = time.thread_time()
    with pytest.raises(lowrank.RankTooLarge, match=match):
        by(engine, *arrays, degree=degree)
    took, peak = time.thread_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took < 0.1 and peak < 1e6


def test_the_estimate_is_shown_in_full():
    needed = rank_of(64, 4) * 4 * (2 * 65 + 2 * 256) / 1e9
    match = rf"814,385 features, whose states take {needed:.1f} GB; at most 0.5 GB"
    with pytest.raises(lowrank.RankTooLarge, match=match):
        error_certificates.check_rank(64, 4, 64, memory=10**9)
    assert error_certificates.check_rank(64, 4, 64, memory=10**10) == 814_385


# ---- denominators ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree, causal", [(3, False), (5, False), (1, True), (3, True), (5, True)])
@inaccurate
def test_odd_taylor_is_refused_where_its_denominators_fail(engine, degree, causal):
    Q, K, V, dO = draw(4, (), 100, 100, 4, 3, size=4.0)
    if causal:  # far from every key, so that no exact term is large compared with the wrong ones
        Q, K = abs(Q), -abs(K)
    options = options_of("taylor", causal)
    with pytest.raises(lowrank.NotCertified) as caught:
        by(engine, Q, K, V, dO, degree=degree, **options)
    even = degree + 1
    words = (
        r"^row (\d+) of Q has the denominator (-?[\d.e+]+) with the polynomial 'taylor' of degree "
        rf"{degree}: its logits can reach ±([\d.]+) \(\|q\| times the largest \|k\|\), and it is positive "
        rf"for \|s\| < [\d.]+\. Degree {even} \(rank {rank_of(4, even)}\) of 'taylor' or "
        "'hermite' is positive everywhere; "
    )
    row, den, limit = re.match(words, str(caught.value)).groups()
    k = K if causal else K - K.mean(0)
    wanted = np.linalg.norm(Q[int(row)]) / 2 * np.linalg.norm(k, axis=1).max()
    assert float(limit) == pytest.approx(wanted, rel=5e-3)
    P = attend(Q, K, V, dO, degree=degree, **options).P
    assert float(den) == pytest.approx(P[int(row)].sum(), rel=5e-3)
    by(engine, Q, K, V, dO, degree=even, **options)  # the degree that the message recommends


def test_the_message_names_an_accurate_degree_and_its_rank():
    message = error_certificates.what_would_do(4, 3, 4.0)
    assert "'minimax' of degree 7 (rank 330) is within 1 % of exp on [-4, 4]" in message
    assert "none that float64 can evaluate is within 1 %" in error_certificates.what_would_do(4, 3, 50.0)


def test_degree_1_is_refused_by_its_output(engine):
    """The denominators are n for all logits, because centred keys sum to 0; so the output is checked."""
    arrays = draw(4, (), 100, 100, 4, 3, size=4.0)
    match = (
        r"^the output leaves the range of V's columns: .*"  # style: ok (recorded text)
        r"'taylor' of degree 1 is positive for \|s\| < 1, .*'taylor' and 'hermite' of degree 2 are positive "
        r"everywhere\.$"
    )
    with pytest.raises(lowrank.NotCertified, match=match):
        by(engine, *arrays, degree=1, polynomial="taylor")


@inaccurate
def test_a_polynomial_that_is_negative_at_0_is_not_certified_by_small_logits(engine):
    """All its values there are negative, while the exact tile of causal attention is positive."""
    arrays = draw(6, (), 130, 130, 2, 2, size=0.1)
    match = r"row 64 .*'chebyshev' of degree 3: .*it is positive for \|s\| < 0\."
    with pytest.raises(lowrank.NotCertified, match=match):
        by(engine, *arrays, degree=3, **options_of("chebyshev", causal=True))


@inaccurate
def test_weights_of_both_signs_are_refused_though_denominators_are_positive():
    """An odd degree with certified denominators can give an output of 400 times the largest value."""
    worst, refusals = 0.0, 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        n = rng.integers(3, 40)
        Q, K, V = (rng.standard_normal((rows, 2)) for rows in (20, n, n))
        Q *= rng.choice([5, 30])
        try:
            O = lowrank.attention(Q, K, V, degree=int(rng.choice([1, 3])), polynomial="taylor")
            worst = max(worst, abs(O).max() / abs(V).max())
        except lowrank.NotCertified as error:
            refusals += "the output leaves" in str(error)  # style: ok (recorded text)
    assert 1 < worst <= 2 and refusals > 0


@given(
    st.sampled_from(polynomials.NAMES),
    st.integers(1, 6),
    st.sampled_from([1, 3]),
    st.integers(1, 30),
    st.integers(1, 30),
    st.sampled_from([1e-30, 1e-3, 0.3, 1.0, 3.0, 10.0, 100.0, 1e4, 1e12, 1e30]),
    st.sampled_from([1e-30, 1e-3, 1.0, 10.0, 1e6]),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 10**6),
)
@example("taylor", 1, 1, 1, 1, 1e30, 1e-30, np.float32, 0)  # |q|² is infinite there, and |k|² is 0
@settings(max_examples=many(40, 100))
@inaccurate
def test_whatever_comes_back_is_sane(engine, name, degree, d, n, n_k, of_Q, of_K, dtype, seed):
    """A result is finite and at most twice the values (once for positive polynomials); otherwise an error."""
    Q, K, V, dO = draw(seed, (), n, n_k, d, 3, dtype, size=1.0)
    Q, K = Q * dtype(of_Q), K * dtype(of_K)
    try:
        found = by(engine, Q, K, V, dO, degree=degree, **options_of(name))
    except ValueError as error:
        assert isinstance(error, lowrank.NotCertified)
        assert "of Q" in str(error) or "both signs" in str(error) or "not finite" in str(error)
        return
    assert all(np.isfinite(X).all() for X in found)
    positive = degree % 2 == 0 and name in ("hermite", "taylor")
    assert abs(found[0]).max() <= (1 + 1e-4 if positive else 2) * abs(V).max()


# ---- accuracy --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("entry, share", [(100, 20), (1e4, 100), (1e10, 100)])
@pytest.mark.parametrize("polynomial", ["hermite", "taylor"])
def test_there_is_a_warning_where_one_huge_entry_spoils_many_rows(engine, polynomial, entry, share):
    """Denominators are positive and no error is raised, but rows are wrong by several times their size."""
    Q, K, V, dO = (X.astype(np.float32) for X in draw(3, (), 64, 64, 8, 8, size=0.3))
    K[5, 3] = entry
    match = rf"degree 2 is too low .* about {share}% of the rows .* is 1\.73 or"
    with pytest.warns(RuntimeWarning, match=match):
        O = by(engine, Q, K, V, dO, degree=2, polynomial=polynomial)[0]
    exact = softmax(Q.astype(np.float64) @ K.T / 8**0.5) @ V
    assert (np.linalg.norm(O - exact, axis=1) / np.linalg.norm(exact, axis=1)).max() > 1


@pytest.mark.parametrize("which, entry", [(1, 0.3), (1, 10), (0, 1e4)])
def test_there_is_no_warning_where_few_rows_are_off(engine, which, entry):
    """At most one row of 64 is inaccurate; a warning (an error in this test) needs one row in ten."""
    arrays = draw(3, (), 64, 64, 8, 8, size=0.3)
    arrays[which][5, 3] = entry
    by(engine, *arrays, degree=2)


def test_causal_attention_looks_at_no_statistics(engine):
    Q, K, V, dO = draw(3, (), 70, 70, 2, 2, size=0.3)
    K[::2, 0], K[1::2, 0] = 20, -20
    with pytest.warns(RuntimeWarning, match="too low"):
        by(engine, Q, K, V, dO, degree=2)
    by(engine, Q, K, V, dO, degree=2, polynomial="taylor", causal=True)


@pytest.mark.parametrize("degree", range(1, 9))
def test_the_variance_from_which_on_a_row_is_off_by_half(degree):
    variance = np.array([error_certificates.largest_variance(degree)])
    assert predicted_error(variance, degree) == pytest.approx(0.5)


# ---- exams -----------------------------------------------------------------------------------------------


def test_the_library_does_not_answer_in_an_exam(engine, arrays):
    with solutions_blocked():
        with pytest.raises(LibrarySolutionUsed):
            by(engine, *arrays, degree=2)
        with pytest.raises(LibrarySolutionUsed):
            lowrank.attention(*arrays[:3], degree=2)
        with pytest.raises(LibrarySolutionUsed):
            polynomials.largest_error(polynomials.taylor(3), 1.0)
    by(engine, *arrays, degree=2)
