"""Lesson 01: the figures its text quotes are computed here and looked up there."""

from pathlib import Path

import numpy as np
import pytest

from iocourse import costs, exact
from iocourse.course import attempt, check
from iocourse.course.authoring.source import parse
from iocourse.data import provenance, real_head, real_heads

PATH = Path(__file__).parents[2] / "solutions" / "01_naive_attention.py"
TEXT = "\n".join(
    line
    for cell in parse(PATH.read_text(encoding="utf-8"), PATH)
    if cell.kind == "markdown"
    for line in cell.lines
)
SHARP, AHEAD, BROAD = (0, 2), (1, 8), (0, 11)


def quoted(*sentences):
    for sentence in sentences:
        assert sentence.replace("-", "−") in TEXT or sentence in TEXT, sentence


def scores(pair):
    head = real_head(*pair)
    return exact.scores(head.Q.astype(np.float64), head.K.astype(np.float64))


def naive(S, dtype):
    """(rows with NaN, rows of zeros) of softmax without the maximum."""
    with np.errstate(all="ignore"):
        E = np.exp(S.astype(dtype))
        P = E / E.sum(axis=-1, keepdims=True)
    return int(np.isnan(P).any(axis=1).sum()), int((P == 0).all(axis=1).sum())


def test_the_scores_of_the_three_heads():
    S = scores(BROAD)
    quoted(f"between {S.min():.2f} and {S.max():.2f}")
    S = scores(SHARP)
    quoted(f"{S.min():.2f} to {S.max():.2f}", f"leaves {88.72 - S.max():.2f} to the limit")
    quoted(f"the first 128 tokens alone reach {S[:128, :128].max():.2f}")
    quoted(
        f"s > {np.log(float(np.finfo(np.float16).max)):.2f}", f"s > {np.log(np.finfo(np.float32).max):.2f}"
    )
    assert len(S) == provenance()["N"] == 471


def test_the_rows_that_break():
    assert naive(scores(SHARP), np.float16) == (471, 0)
    assert naive(scores(BROAD), np.float16) == (0, 0)
    nan, zero = naive(scores(AHEAD), np.float16)
    quoted(
        f"with {nan + zero} rows",
        f"In {nan} rows",
        f"In {zero} more rows",
        f'*"An overflow shows as NaN."* {zero}',
    )
    assert naive(scores(SHARP), np.float32) == (0, 0)
    tenth, unscaled = (sum(naive(f * scores(SHARP), np.float32)) for f in (1.1, np.sqrt(32)))
    quoted(f"and {tenth} rows are gone", f"{unscaled} of 471", f"broke {tenth} rows", f"broke {unscaled}.")


def test_no_count_of_rows_hangs_on_the_last_digit():
    """Rows are counted against the overflow of float16; none is so near to it that rounding could decide."""
    E = np.exp(scores(AHEAD).astype(np.float16).astype(np.float64))
    limit = 65520  # from here on float16 rounds to infinity
    for values in (E.max(axis=1), E.sum(axis=1)):
        assert np.abs(values / limit - 1).min() > 0.005


def test_what_the_maps_show():
    P, rows = exact.softmax(scores(SHARP)), np.arange(471)
    hit = P.argmax(axis=1) == rows - 1
    quoted(f"{hit.sum()} rows, and the map", f"the other {(~hit).sum()} are", f"only {hit[:128].sum()} do")
    quoted(f"{hit[128:].sum()} of {len(hit[128:])} rows")
    cut = exact.softmax(scores(SHARP)[:128, :128]).argmax(axis=1) == rows[:128] - 1
    quoted(f"{cut.sum()} of the 128 rows look at the token before")
    held = np.sort(exact.softmax(scores(BROAD)), axis=1)[:, ::-1].cumsum(axis=1)
    quoted(f"needs {int(np.median((held < 0.9).sum(axis=1) + 1))} keys")
    quoted(f"{exact.softmax(scores(BROAD)[:32, :32]).max():.2f} of its weight on itself")
    S = np.where(np.tri(471, dtype=bool), scores(SHARP), -np.inf)
    causal = exact.softmax(S).argmax(axis=1) == rows - 1
    quoted(f"From {hit.sum()} rows to {causal.sum()} of 471")


def test_a_mask_after_softmax_loses_weight():
    kept = np.tril(exact.softmax(scores(AHEAD))).sum(axis=1).mean()
    quoted(f"Only {kept:.4f} is left", f"rows that sum to {kept:.4f} on average")


def test_the_backward_formulas():
    rng = np.random.default_rng(0)
    p, N, d = exact.softmax(rng.standard_normal(6)), 471, 32
    step = 1e-6 * np.eye(6)
    s = np.log(p)
    slopes = np.array([(exact.softmax(s + e) - exact.softmax(s - e)) / 2e-6 for e in step]).T
    assert np.allclose(slopes, np.diag(p) - np.outer(p, p), atol=1e-8)  # (1.5)
    P, V, dO = exact.softmax(rng.standard_normal((6, 6))), *rng.standard_normal((2, 6, 3))
    assert np.allclose((P * (dO @ V.T)).sum(axis=1), (dO * (P @ V)).sum(axis=1))  # (1.9)
    quoted(f"{N**3:,}", f"{2 * N * d:,} words instead of {2 * N * N:,}", f"N/d = {N / d:.2f}")
    quoted(f"{2 * 3 * N * d:,} forward passes")


@pytest.mark.parametrize(("N", "d"), [(4096, 64), (471, 32), (7, 3)])
def test_words_of_the_naive_schedule(N, d):
    ledger = costs.naive(N, d, Br=N, Bc=N, Bm=N, Bn=d)
    assert ledger.total == 4 * N * N + 4 * N * d  # (1.12)


def test_the_words_that_are_quoted():
    N, d, long = 4096, 64, 131_072
    quoted(f"takes {N // (4 * d)} times", f"N = 4d = {4 * d}", f"N = 2d = {2 * d}", f"N/d = {N // d}$")
    quoted(f"ratio is {long // (4 * d)}", f"{long**2:,} words", f"{2 * long**2 / 1e9:.1f} GB")
    quoted(f"3N/8d = {3 * N // (8 * d)}", f"{4 * N * N + 4 * N * d:,} words, of which {4 * N * d:,}")
    assert (4 * N * N) / (4 * N * d) == 64 and "64 more move" in TEXT
    quoted(f"2N^2d / W = {2 * N * N * d / (4 * N * N + 4 * N * d):.1f}$ multiply-adds, about $d/2$")
    assert round((312 / 2) / (1.555 / 2), -1) == 200 and "about 200 while one word arrives" in TEXT
    heads, n, e = len(real_heads()), 471, 32
    quoted(f"{heads * n * n:,} of $S$ beside {heads * 4 * n * e:,}", f"{n / (4 * e):.2f} is that of one head")


# ---------------------------------------------------------------------- an earlier exercise still unsolved
def my_softmax(S):
    raise NotImplementedError


def my_attention(Q, K, V, causal=False):
    return my_softmax(Q @ K.T) @ V


def test_a_check_names_the_unsolved_exercise_that_was_called(capsys, monkeypatch):
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    check("1.2", my_attention, seed=0)
    assert "it calls my_softmax, which is not written yet: solve 1.1 first" in capsys.readouterr().out
    check("1.1", my_softmax, seed=0)
    assert "not written yet\n" in capsys.readouterr().out


def test_an_attempt_names_it_too(capsys, monkeypatch):
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    Q = np.eye(2)
    assert str(attempt(my_attention, Q, Q, Q)) == "solve 1.1 first"
    assert str(attempt(lambda f: f(Q), my_softmax)) == "solve 1.1 first"
    capsys.readouterr()


# ---------------------------------------------------------------------- three gradients, in their order
def my_backward_in_another_order(Q, K, V, dO, causal=False):
    scale = Q.shape[1] ** -0.5
    S = scale * (Q @ K.T)
    S = np.where(np.tri(len(S)) > 0, S, -np.inf) if causal else S
    E = np.exp(S - S.max(axis=1, keepdims=True))
    P = E / E.sum(axis=1, keepdims=True)
    dS = P * (dO @ V.T - (dO * (P @ V)).sum(axis=1, keepdims=True))
    return P.T @ dO, scale * dS.T @ Q, scale * dS @ K


def test_a_swapped_gradient_is_named(capsys, monkeypatch):
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    check("1.4", my_backward_in_another_order, seed=0)
    said = capsys.readouterr().out
    assert "dQ equals the exact gradient: yours is dV; return dQ, dK, dV in this order" in said
    assert "dV equals the exact gradient: yours is dQ" in said and "holds  dK equals" in said


def test_one_gradient_alone_is_refused_before_any_property_reads_it(capsys, monkeypatch):
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    check("1.4", lambda *inputs: my_backward_in_another_order(*inputs)[2], seed=0)
    said = capsys.readouterr().out
    assert "your function returned one ndarray, expected the three arrays dQ, dK, dV" in said
    assert said.count("FAILS") == 1
