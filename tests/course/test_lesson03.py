"""Tests of lesson 03: its formulas, statements and exercises."""

import re

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import costs, exact, run
from iocourse.course.exercises import lesson03
from iocourse.data import real_head

LESSON = Lesson("03_online_softmax")


def defined(*names):
    """Functions defined in the lesson's cells, by name."""
    found = {"np": np}
    for name in names:
        lines = LESSON.code(f"def {name}(").split("\n")
        exec("\n".join(line for line in lines if not line.startswith(("print", "attempt"))), found)
    return [found[name] for name in names]


def scores_of(layer, head):
    h = real_head(layer, head)
    return exact.scores(h.Q.astype(float), h.K.astype(float))


@pytest.mark.parametrize(("schedule", "times"), [("three_loops", 4), ("two_loops", 3)])
def test_the_loops_move_what_the_formula_says(schedule, times):
    S = 3 * np.random.default_rng(3).standard_normal((128, 128))
    (loops,) = defined(schedule)
    done = run(loops, M=80, S=S, Bc=16)
    assert done.ledger.total == times * 128**2
    assert exact.max_abs_error(done.O, exact.softmax(S)) < 1e-12
    assert f"| {times - 1} | ${times}N^2$ |" in LESSON.text


@pytest.mark.parametrize(("N", "n", "Br", "Bc"), [(7, 23, 3, 4), (1, 9, 2, 2), (5, 5, 8, 8), (6, 40, 1, 1)])
def test_the_budget_of_the_lse_exercise_is_exact(N, n, Br, Bc):
    (my_lse,) = defined("my_lse")
    budget = lesson03.row_lse_cost(N, n, Br=Br, Bc=Bc)
    for M in (budget.peak, 10**6):
        done = run(my_lse, M=M, S=np.random.default_rng(0).standard_normal((N, n)), Br=Br, Bc=Bc)
        assert done.ledger == budget


def test_the_naive_softmax_of_the_library_costs_two_loops():
    cost = costs.naive(128, 32, Br=16, Bc=16, Bm=8, Bn=8)
    assert cost.reads["S"] + cost.writes["P"] == 3 * 128**2


def new_maxima(S, b):
    """Return the number of pieces of b scores that raise the maximum of their row, the first included."""
    tops = np.maximum.reduceat(S, np.arange(0, S.shape[1], b), axis=1)
    return 1 + (np.diff(np.maximum.accumulate(tops, axis=1), axis=1) > 0).sum(axis=1)


def expected_new_maxima(n, b):
    """Formula (3.3) for n scores in random order, in pieces of b."""
    sizes = np.minimum(b, n - np.arange(0, n, b))
    return (sizes / np.cumsum(sizes)).sum()


def test_the_harmonic_number():
    harmonic = sum(1 / k for k in range(1, 472))
    assert expected_new_maxima(471, 1) == pytest.approx(harmonic)
    assert harmonic == pytest.approx(np.log(471) + np.euler_gamma, abs=0.002)
    LESSON.says("3.3", f"{harmonic:.2f} new maxima")


def test_formula_3_3_is_the_mean_over_random_orders():
    LESSON.says("3.3", r"\sum_k \frac{b_k}{b_1 + \dots + b_k}")
    S = np.random.default_rng(0).standard_normal((20_000, 50))
    for b in (1, 7, 50, 60):
        assert new_maxima(S, b).mean() == pytest.approx(expected_new_maxima(50, b), abs=0.05)


def test_new_maxima_of_real_heads():
    """Section 3.3 names the head with the most and the head with the fewest, and why."""
    S = {head: scores_of(*head) for head in ((0, 2), (0, 11), (4, 5))}
    counts = {head: new_maxima(s, 1).mean() for head, s in S.items()}
    assert max(counts, key=counts.get) == (0, 2) and min(counts, key=counts.get) == (4, 5)
    between = f"is between {counts[4, 5]:.2f} and {counts[0, 2]:.2f}"
    most = max(new_maxima(s, 1).max() for s in S.values())
    LESSON.says(
        "3.3", f"the mean number of new maxima per row {between}", f"no single row has more than {most}"
    )
    LESSON.says(
        "3.3", "smallest mean belongs to head 5 of layer 4", "largest mean belongs to head 2 of layer 0"
    )
    assert (S[4, 5].argmax(axis=1) == 0).all()  # "always at the first token"
    assert (S[0, 2].argmax(axis=1) == np.arange(471) - 1).mean() > 0.75  # "mostly to the previous token"
    before = np.subtract.outer(np.arange(471), np.arange(471))  # distance from query back to key
    distances = (0, 20), (20, 80), (80, 471)
    near, middle, far = (S[0, 2][(a <= before) & (before < b)].mean() for a, b in distances)
    assert near > middle + 4 and middle > far + 2  # "larger for keys closer to the query"
    rises = np.diff(np.maximum.accumulate(S[0, 2], axis=1), axis=1) > 0
    assert rises[:, 50:].sum(axis=1).mean() > 1.5 * sum(1 / k for k in range(52, 472))  # "late in the row"
    assert (rises[:, 1:] & rises[:, :-1]).sum(axis=1).mean() > 1  # "several steps"
    assert np.corrcoef(S[0, 2][:, :-1].ravel(), S[0, 2][:, 1:].ravel())[0, 1] > 0.5  # "similar"


def test_the_numbers_worked_by_hand():
    w = np.array([2.0, 1, 8, 4, 4, 1])
    assert (w[:2].sum() / 2, w[:5].sum() / 8, w.sum() / 8) == (1.5, 2.375, 2.5)
    assert (1 * 8 + 3 * 4) / 4 == 5 and pytest.approx(9) == (8 + 4) / (1 / 3 + 1)
    assert (6 * 10 + 12 * 4) / 18 == 6 and (10 + 4) / 2 == 7


def test_digits_in_float32():
    """The quoted digits do not depend on the order of summation."""
    found = []
    for place in ((0, 2), (0, 11)):
        S, V = scores_of(*place), real_head(*place).V.astype(float)
        want = exact.softmax(S) @ V
        got = [_three_loops(S, V, np.float32), _one_loop(S, V, np.float32)]
        found += [-np.log10(np.sqrt(np.mean((o - want) ** 2))) for o in got]
    assert {int(x) for x in found} == {7} and min(x % 1 for x in found) > 0.04
    LESSON.says("3.7", "In float32 both are correct to 7 digits")


def test_in_float16_the_way_of_adding_matters_and_rescaling_does_not():
    """The cell of section 3.7, with its errors computed and not only printed."""
    found = {"np": np, "exact": exact, "scores": {"flat": scores_of(0, 11)}}
    found["heads"] = {"flat": real_head(0, 11)}
    exec(LESSON.code("def error("), found)
    errors = {
        b: [found["error"](b, found[start], np.float16) for start in ("unknown", "known")]
        for b in (1, 32, 471)
    }
    assert all(one == pytest.approx(other, rel=0.03) for one, other in errors.values())
    assert errors[1][0] > 3 * errors[32][0] > 5 * errors[471][0]
    S, V = (x.astype(np.float16).astype(float) for x in (scores_of(0, 11), real_head(0, 11).V))
    rounded_inputs = found["error"](471, found["unknown"], float)
    want = exact.softmax(scores_of(0, 11)) @ real_head(0, 11).V.astype(float)
    assert rounded_inputs == pytest.approx(np.sqrt(np.mean((exact.softmax(S) @ V - want) ** 2)))
    for b in (1, 32, 471):
        assert found["error"](b, found["unknown"], np.float32) == pytest.approx(rounded_inputs, rel=0.01)
    ones = np.ones((1, 4096), np.float16)
    assert ones.sum(axis=1)[0] == (ones @ ones.T)[0, 0] == 4096 > np.cumsum(ones)[-1]
    LESSON.says("3.7", "Inside a piece, NumPy adds in float32")
    LESSON.says("3.7", "the first two columns are equal", "only the rounding of the inputs is left")


def _three_loops(S, V, dtype):
    S, V = S.astype(dtype), V.astype(dtype)
    e = np.exp(S - S.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True) @ V


def _one_loop(S, V, dtype):
    (my_online_attention,) = defined("my_online_attention")
    S, V = S.astype(dtype), V.astype(dtype)
    pieces = [slice(j, j + 32) for j in range(0, S.shape[1], 32)]
    O = np.array([my_online_attention((s[p], V[p]) for p in pieces) for s in S])
    assert O.dtype == dtype
    return O


def test_every_numbered_formula_has_its_section():
    tags = re.findall(r"\\tag\{(3\.\d)\}", LESSON.text)
    assert tags == ["3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.8"]
    assert all(f"\\tag{{{tag}}}" in LESSON.section(tag) for tag in tags)


@pytest.mark.parametrize("scale", [3, 10_000])
def test_the_algorithm_box_computes_the_output_of_a_row_with_a_masked_piece(scale):
    """Its lines are run as they are written, with Python's names for the symbols."""
    box = LESSON.text.split("**Online softmax for one query.**")[1].split("Now apply")[0]
    lines = [line.split(" | ", 1)[1].removesuffix(" |") for line in re.findall(r"^\| (\d \| .*)$", box, re.M)]
    assert [line.startswith("&emsp;") for line in lines] == [False, False, *[True] * 6, False]
    rng = np.random.default_rng(0)
    row = np.where(np.arange(12) < 4, -np.inf, np.sort(scale * rng.standard_normal(12)))
    V = rng.standard_normal((12, 3))
    names = {"np": np}
    _run_line(lines[0], names)
    for j in range(0, 12, 4):
        names |= {"s": row[j : j + 4], "v": V[j : j + 4]}
        for line in lines[3:8]:
            _run_line(line.removeprefix("&emsp; "), names)
    assert np.allclose(names["o"] / names["l"], exact.softmax(row) @ V)
    assert lines[8] == r"**return** $o/\ell$ if $\ell > 0$, otherwise zeros"


def _run_line(line, names):
    for written, python in (
        (r"\max(m, \max_j s_j)", "max(m, s.max())"),
        (", otherwise", " else"),
        (r"\sum_j e^{s_j-\hat m}v_j", "np.exp(s - m_hat) @ v"),
        (r"\sum_j e^{s_j-\hat m}", "np.exp(s - m_hat).sum()"),
        (r"e^{m-\hat m}", "np.exp(m - m_hat) * "),
        (r"\hat m", "m_hat"),
        ("m'", "m_new"),
        (r"\ell", "l"),
        (r"-\infty", "-np.inf"),
        (r"\leftarrow", "="),
        ("$", ""),
    ):
        line = line.replace("\\,", "").replace(written, python)
    exec(line.replace(", l =", "; l =").replace(", o =", "; o ="), names)
