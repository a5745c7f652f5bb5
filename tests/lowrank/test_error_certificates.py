"""Errors of low-rank attention and their messages, and properties of all results that are returned."""

import re
import time
import tracemalloc
from inspect import signature

import dense_attention
import numpy as np
import pytest
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

RADIUS = {"chebyshev": {"radius": 4.0}, "minimax": {"radius": 4.0}}


@pytest.fixture
def arrays():
    return dense_attention.draw(0, (2,), 12, 15, 3, 4)


def refused(error, match, Q, K, V, dO, **options):
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
        dense_attention.by(engine, *arrays, degree=2)


@pytest.mark.filterwarnings("ignore:overflow")
def test_large_finite_entries_are_not_called_infinite():
    error_certificates.check_finite("Q", np.full((3, 2), 1e30, np.float32))  # their squares overflow


@pytest.mark.parametrize("which", range(2))
def test_a_bound_that_was_promised(engine, arrays, which):
    arrays[which][0, 5, 1] = -40.0
    name = ("Q", "K")[which]
    with pytest.raises(ValueError, match=f"^{name} has an entry of size 40 in row 5; bound is 6$"):
        dense_attention.by(engine, *arrays, degree=2, bound=6)
    arrays[which][0, 5, 1] = -6.0
    dense_attention.by(engine, *arrays, degree=2, bound=6.0)
    arrays[2][0, 5, 1] = 1000.0  # the values of V may be of any size
    dense_attention.by(engine, *arrays, degree=2, bound=6.0)


@pytest.mark.parametrize("polynomial", polynomials.NAMES)
def test_entries_whose_powers_overflow(engine, polynomial):
    Q, K, V, dO = dense_attention.draw(1, (), 20, 20, 3, 3, np.float32)
    with pytest.raises(lowrank.NotCertified, match=r"row 0 of Q .*±inf"):
        Q, K = Q * np.float32(1e20), K * np.float32(1e20)
        dense_attention.by(engine, Q, K, V, dO, degree=2, polynomial=polynomial, **RADIUS.get(polynomial, {}))


def test_values_whose_sums_overflow(engine):
    Q, K, V, dO = dense_attention.draw(2, (), 20, 20, 3, 3, np.float32)
    V[:] = 3e38
    with pytest.raises(ValueError, match=r"^V has entries whose weighted sums are not finite"):
        dense_attention.by(engine, Q, K, V, dO, degree=2)


# ---- options ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["degree", "gradient_degree", "threads"])
@pytest.mark.parametrize("bad", [0, -3, 2.0, True, "2", [2], np.float64(2)])
def test_whole_numbers(arrays, name, bad):
    for good in (1, 2):  # 2.0 == 2 and True == 1: cached options must not replace the invalid ones
        lowrank.attention(*arrays[:3], **{"degree": 2, name: good})
    refused((TypeError, ValueError), f"^{name} must be .*at least 1", *arrays, **{"degree": 2, name: bad})


@pytest.mark.parametrize("name", ["bound", "radius", "key_variance"])
@pytest.mark.parametrize("bad", [0, -1.0, np.inf, np.nan])
def test_positive_numbers(arrays, name, bad):
    refused(
        ValueError, f"^{name} must be positive and finite, got {bad}$", *arrays, **{"degree": 2, name: bad}
    )


@pytest.mark.parametrize("name", ["scale", "bound", "radius", "key_variance"])
@pytest.mark.parametrize("bad", ["1", [1.0], True, 1j])
def test_numbers(arrays, name, bad):
    what = re.escape(f"{name} must be a number, got {bad!r}")
    refused(TypeError, f"^{what}$", *arrays, **{"degree": 2, name: bad})


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_scale_is_finite(arrays, bad):
    refused(ValueError, rf"^scale must be within ±1e\+18, got {bad}$", *arrays, degree=2, scale=bad)


@pytest.mark.parametrize("name", ["degree", "gradient_degree", "threads"])
@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int32, np.int64])
def test_whole_numbers_of_numpy_are_those_of_python(arrays, name, kind):
    found = lowrank.gradient(*arrays, **{"degree": 2, name: kind(2)})
    for x, y in zip(found, lowrank.gradient(*arrays, **{"degree": 2, name: 2}), strict=True):
        np.testing.assert_array_equal(x, y)
    assert type(getattr(checked_options(**{"degree": 2, name: kind(2)}), name)) is int


@pytest.mark.parametrize("bad", ["no", 0, 1, None, np.int64(1), [True]])
def test_causal_is_true_or_false(arrays, bad):
    refused(
        TypeError,
        rf"^causal must be True or False, got {re.escape(repr(bad))}$",
        *arrays,
        degree=2,
        causal=bad,
    )
    Q, K, V, dO = arrays
    lowrank.gradient(Q, K[:, :12], V[:, :12], dO, degree=2, polynomial="taylor", causal=np.True_)


def test_the_gradient_shows_its_options():
    of_attention, of_gradient = (signature(f).parameters for f in (lowrank.attention, lowrank.gradient))
    assert list(of_attention)[-2:] == ["state", "return_state"]  # a state has no gradient
    assert list(of_gradient) == ["Q", "K", "V", "dO", *list(of_attention)[3:-2]]
    assert all(of_gradient[name] == of_attention[name] for name in list(of_attention)[:-2])


@pytest.mark.parametrize(
    ("name", "bad", "allowed"),
    [
        ("polynomial", "pade", "hermite, taylor, chebyshev, minimax"),
        ("engine", "cuda", "numpy, numba, torch"),
    ],
)
def test_unknown_names(arrays, name, bad, allowed):
    refused(
        ValueError, f"^{name} must be one of {allowed}, got '{bad}'$", *arrays, **{"degree": 2, name: bad}
    )
    with pytest.raises(TypeError, match="degrees"):
        lowrank.gradient(*arrays, degree=2, degrees=3)


def test_the_engine_of_tensors_refuses_arrays(arrays):
    match = "^engine='torch' needs torch tensors, but Q is a NumPy array$"
    refused(ValueError, match, *arrays, degree=2, engine="torch")


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
    with pytest.raises(
        ImportError,
        match=r"engine=\"numba\" needs Numba, .* \(No module named 'numba'\)\. .*: .*"
        + re.escape(install_command.command("fast")),
    ):
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
        dense_attention.by(engine, Q, K, V, np.ones(1), degree=2)


def test_the_shape_and_type_of_dO(arrays):
    Q, K, V, dO = arrays
    with pytest.raises(ValueError, match=r"dO must have the shape of O, \(2, 12, 4\), got \(12, 4\)"):
        lowrank.gradient(Q, K, V, dO[0], degree=2)
    with pytest.raises(TypeError, match="dO must have the dtype of Q, float64, got float32"):
        lowrank.gradient(Q, K, V, dO.astype(np.float32), degree=2)


@pytest.mark.parametrize("kind", [np.longdouble, np.int64, np.complex128, bool, object])
def test_types(arrays, kind):
    Q, K, V, dO = (X.astype(kind) for X in arrays)
    match = f"Q must have dtype float16, float32 or float64, got {np.dtype(kind)}"
    refused(TypeError, match, Q, K, V, dO, degree=2)


def test_mixed_types(arrays):
    Q, K, V, dO = arrays
    match = "V must have the dtype of Q, float64, got float32"
    refused(TypeError, match, Q, K, V.astype(np.float32), dO, degree=2)


# ---- ranks that do not fit -------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [8, 40, 10**6, 10**9])
def test_a_rank_that_does_not_fit_is_refused_at_once(engine, degree):
    Q, K, V, dO = dense_attention.draw(3, (), 10, 10, 64, 64, np.float32)
    tracemalloc.start()
    start = time.thread_time()
    with pytest.raises(
        lowrank.RankTooLarge,
        match=rf"degree is {degree}: at d = 64 that is [\d.,e+]+ features, .* take [\d.,e+]+ GB; at",
    ):
        dense_attention.by(engine, Q, K, V, dO, degree=degree)
    took, peak = time.thread_time() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert took < 0.1 and peak < 1e6


def test_the_estimate_is_shown_in_full():
    rank = rank_of(64, 4)
    needed = rank * 4 * (2 * 65 + 2 * 256) / 1e9
    with pytest.raises(
        lowrank.RankTooLarge, match=rf"814,385 features, whose states take {needed:.1f} GB; at most 0.5 GB"
    ):
        error_certificates.check_rank(64, 4, 64, memory=10**9)
    assert error_certificates.check_rank(64, 4, 64, memory=10**10) == rank


def test_the_gradients_degree_must_fit_too(arrays):
    with pytest.raises(lowrank.RankTooLarge, match="degree is 5000"):
        lowrank.attention(*arrays[:3], degree=2, gradient_degree=5000)


# ---- denominators ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree, causal", [(3, False), (5, False), (1, True), (3, True), (5, True)])
@pytest.mark.filterwarnings("ignore:degree . is too low for these logits:RuntimeWarning")
def test_odd_taylor_is_refused_where_its_denominators_fail(engine, degree, causal):
    Q, K, V, dO = dense_attention.draw(4, (), 100, 100, 4, 3, size=4.0)
    if causal:  # far from every key, so that no exact term is large compared with the wrong ones
        Q, K = abs(Q), -abs(K)
    with pytest.raises(lowrank.NotCertified) as caught:
        dense_attention.by(engine, Q, K, V, dO, degree=degree, polynomial="taylor", causal=causal)
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
    P = dense_attention.attend(Q, K, V, dO, degree=degree, polynomial="taylor", causal=causal).P
    assert float(den) == pytest.approx(P[int(row)].sum(), rel=5e-3)
    dense_attention.by(
        engine, Q, K, V, dO, degree=even, polynomial="taylor", causal=causal
    )  # the degree that the message recommends


def test_the_message_names_an_accurate_degree_and_its_rank():
    with pytest.raises(
        lowrank.NotCertified, match=r"'minimax' of degree 7 \(rank 330\) is within 1 % of exp on \[-4, 4\]"
    ):
        raise lowrank.NotCertified(error_certificates.what_would_do(4, 3, 4.0))
    assert "none that float64 can evaluate is within 1 %" in error_certificates.what_would_do(4, 3, 50.0)


def test_degree_1_is_refused_by_its_output(engine):
    """The denominators are n for all logits, because centred keys sum to 0; so the output is checked."""
    Q, K, V, dO = dense_attention.draw(4, (), 100, 100, 4, 3, size=4.0)
    with pytest.raises(
        lowrank.NotCertified,
        match=r"^the output leaves the range of V's columns: .*"  # style: ok (recorded text)
        r"'taylor' of degree 1 is positive for "
        r"\|s\| < 1, .*'taylor' and 'hermite' of degree 2 are positive everywhere\.$",
    ):
        dense_attention.by(engine, Q, K, V, dO, degree=1, polynomial="taylor")


def test_an_odd_degree_is_certified_by_the_data(engine):
    """Logits exceed the root of the polynomial, but the measured denominators are large enough."""
    arrays = dense_attention.draw(5, (), 60, 80, 4, 3, size=0.8)
    k = arrays[1] - arrays[1].mean(0)
    assert np.linalg.norm(arrays[0], axis=1).max() / 2 * np.linalg.norm(k, axis=1).max() > 1.6
    found = dense_attention.by(engine, *arrays, degree=3, polynomial="taylor")[0]
    assert (
        dense_attention.off(found, dense_attention.every_head(*arrays, degree=3, polynomial="taylor")[0])
        < 1e-12
    )


@pytest.mark.filterwarnings("ignore:degree . is too low for these logits:RuntimeWarning")
def test_a_polynomial_that_is_negative_at_0_is_not_certified_by_small_logits(engine):
    """All its values there are negative, while the exact tile of causal attention is positive."""
    arrays = dense_attention.draw(6, (), 130, 130, 2, 2, size=0.1)
    with pytest.raises(
        lowrank.NotCertified, match=r"row 64 .*'chebyshev' of degree 3: .*it is positive for \|s\| < 0\."
    ):
        dense_attention.by(engine, *arrays, degree=3, polynomial="chebyshev", radius=4.0, causal=True)


@pytest.mark.filterwarnings("ignore:degree . is too low for these logits:RuntimeWarning")
def test_weights_of_both_signs_are_refused_though_denominators_are_positive():
    """An odd degree with certified denominators can give an output of 400 times the largest value."""
    worst, refusals = 0.0, 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        n = rng.integers(3, 40)
        Q, K, V = (
            rng.standard_normal((20, 2)) * rng.choice([5, 30]),
            rng.standard_normal((n, 2)),
            rng.standard_normal((n, 2)),
        )
        try:
            O = lowrank.attention(Q, K, V, degree=int(rng.choice([1, 3])), polynomial="taylor")
            worst = max(worst, abs(O).max() / abs(V).max())
        except lowrank.NotCertified as error:
            refusals += "the output leaves" in str(error)  # style: ok (recorded text)
    assert 1 < worst <= 2 and refusals > 0


@given(
    st.sampled_from(polynomials.NAMES),
    st.integers(1, 6),
    st.sampled_from([1, 3]),  # the passes in registers are compiled for each
    st.integers(1, 30),
    st.integers(1, 30),
    st.sampled_from([1e-30, 1e-3, 0.3, 1.0, 3.0, 10.0, 100.0, 1e4, 1e12, 1e30]),
    st.sampled_from([1e-30, 1e-3, 1.0, 10.0, 1e6]),
    st.sampled_from([np.float32, np.float64]),
    st.integers(0, 10**6),
)
@example("taylor", 1, 1, 1, 1, 1e30, 1e-30, np.float32, 0)  # |q|² is infinite there, and |k|² is 0
@settings(max_examples=many(40, 100))
@pytest.mark.filterwarnings("ignore:degree . is too low for these logits:RuntimeWarning")
def test_whatever_comes_back_is_sane(engine, name, degree, d, n, n_k, of_Q, of_K, dtype, seed):
    """A result is finite and at most twice the values (once for positive polynomials); otherwise an error."""
    Q, K, V, dO = dense_attention.draw(seed, (), n, n_k, d, 3, dtype, size=1.0)
    Q, K = Q * dtype(of_Q), K * dtype(of_K)
    try:
        options = {"degree": degree, "polynomial": name} | RADIUS.get(name, {})
        found = dense_attention.by(engine, Q, K, V, dO, **options)
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
    Q, K, V, dO = (X.astype(np.float32) for X in dense_attention.draw(3, (), 64, 64, 8, 8, size=0.3))
    K[5, 3] = entry
    with pytest.warns(
        RuntimeWarning, match=rf"degree 2 is too low .* about {share}% of the rows .* is 1\.73 or"
    ):
        O = dense_attention.by(engine, Q, K, V, dO, degree=2, polynomial=polynomial)[0]
    exact = softmax(Q.astype(np.float64) @ K.T / 8**0.5) @ V
    assert (np.linalg.norm(O - exact, axis=1) / np.linalg.norm(exact, axis=1)).max() > 1


@pytest.mark.parametrize("which, entry", [(1, 0.3), (1, 10), (0, 1e4)])
def test_there_is_no_warning_where_few_rows_are_off(engine, which, entry):
    """At most one row of 64 is inaccurate; a warning (an error in this test) needs one row in ten."""
    arrays = dense_attention.draw(3, (), 64, 64, 8, 8, size=0.3)
    arrays[which][5, 3] = entry
    dense_attention.by(engine, *arrays, degree=2)


def test_causal_attention_looks_at_no_statistics(engine):
    Q, K, V, dO = dense_attention.draw(3, (), 70, 70, 2, 2, size=0.3)
    K[::2, 0], K[1::2, 0] = 20, -20
    with pytest.warns(RuntimeWarning, match="too low"):
        dense_attention.by(engine, Q, K, V, dO, degree=2)
    dense_attention.by(engine, Q, K, V, dO, degree=2, polynomial="taylor", causal=True)


@pytest.mark.parametrize("degree", range(1, 9))
def test_the_variance_from_which_on_a_row_is_off_by_half(degree):
    assert predicted_error(np.array([error_certificates.largest_variance(degree)]), degree) == pytest.approx(
        0.5
    )


# ---- exams -----------------------------------------------------------------------------------------------


def test_the_library_does_not_answer_in_an_exam(engine, arrays):
    Q, K, V, dO = arrays
    with solutions_blocked():
        with pytest.raises(LibrarySolutionUsed):
            dense_attention.by(engine, *arrays, degree=2)
        with pytest.raises(LibrarySolutionUsed):
            lowrank.attention(Q, K, V, degree=2)
        with pytest.raises(LibrarySolutionUsed):
            lowrank.gradient(Q, K, V, dO, degree=2)
        with pytest.raises(LibrarySolutionUsed):
            polynomials.largest_error(polynomials.taylor(3), 1.0)
    dense_attention.by(engine, *arrays, degree=2)
