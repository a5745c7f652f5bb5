"""Lesson 03 says what is so: every number its text quotes is computed here and looked for in the source."""

import re
from pathlib import Path

import numpy as np
import pytest

from iocourse import costs, exact, run
from iocourse.course.authoring.source import parse, side
from iocourse.course.exercises import lesson03
from iocourse.data import real_head

PATH = Path(__file__).parents[2] / "solutions" / "03_online_softmax.py"
CELLS = parse(PATH.read_text(encoding="utf-8"), PATH)
TEXT = "\n".join(line for cell in CELLS if cell.kind == "markdown" for line in cell.lines)
N = 128


def defined(*names):
    """The functions of the lesson's cells by name."""
    found = {"np": np}
    for cell in CELLS:
        if cell.kind == "code" and any(
            line.startswith(f"def {name}(") for line in cell.lines for name in names
        ):
            body = [text for text in side(cell, solved=True) if not text.startswith(("print", "answer"))]
            exec("\n".join(body).split("\nfor name in")[0], found)
    return [found[name] for name in names]


def scores_of(layer, head):
    h = real_head(layer, head)
    return exact.scores(h.Q.astype(float), h.K.astype(float))


@pytest.fixture(scope="module")
def S():
    return 3 * np.random.default_rng(3).standard_normal((N, N))


@pytest.mark.parametrize(
    ("schedule", "formula", "words"), [("three_loops", "4N^2", 4 * N * N), ("two_loops", "3N^2", 3 * N * N)]
)
def test_the_loops_move_what_the_formula_says(S, schedule, formula, words):
    (loops,) = defined(schedule)
    done = run(loops, M=80, S=S, Bc=16)
    assert done.ledger.total == words
    assert exact.max_abs_error(done.O, exact.softmax(S)) < 1e-12
    assert f"{formula} = {words:,}".replace(",", "{,}") in TEXT
    assert f"${formula}$ | {words:,} |" in TEXT


def test_one_loop_moves_what_the_formula_says(S):
    (my_lse,) = defined("my_lse")
    done = run(my_lse, M=80, S=S, Br=2, Bc=16)
    budget = lesson03.row_lse_cost(N, N, Br=2, Bc=16)
    assert (done.ledger.reads, done.ledger.writes, done.ledger.peak) == (
        budget.reads,
        budget.writes,
        budget.peak,
    )
    assert budget.total == N * N + N and f"N^2 + N = {budget.total:,}".replace(",", "{,}") in TEXT
    assert f"| $N^2 + N$ | {budget.total:,} |" in TEXT
    assert "$B_r B_c + 2 B_r$" in TEXT and budget.peak == 2 * 16 + 2 * 2
    assert N > 80, "fast memory must not hold a row"


@pytest.mark.parametrize(("N", "n", "Br", "Bc"), [(7, 23, 3, 4), (1, 9, 2, 2), (5, 5, 8, 8), (6, 40, 1, 1)])
def test_the_budget_of_the_lse_exercise_is_exact(N, n, Br, Bc):
    (my_lse,) = defined("my_lse")
    budget = lesson03.row_lse_cost(N, n, Br=Br, Bc=Bc)
    for M in (budget.peak, 10**6):
        done = run(my_lse, M=M, S=np.random.default_rng(0).standard_normal((N, n)), Br=Br, Bc=Bc)
        assert done.ledger == budget


def test_the_naive_softmax_of_the_library_costs_two_loops():
    cost = costs.naive(N, 32, Br=16, Bc=16, Bm=8, Bn=8)
    assert cost.reads["S"] + cost.writes["P"] == 3 * N * N


def test_the_harmonic_number():
    harmonic = sum(1 / k for k in range(1, 472))
    (expected,) = defined("expected_new_maxima")
    assert expected(471, 1) == pytest.approx(harmonic)
    assert abs(harmonic - np.log(471) - 0.577) < 0.002
    assert TEXT.count(f"{harmonic:.2f}") == 2


def test_formula_3_3_is_the_mean_over_random_orders():
    new_maxima, expected = defined("new_maxima", "expected_new_maxima")
    S = np.random.default_rng(0).standard_normal((20_000, 50))
    for b in (1, 7, 50, 60):
        assert new_maxima(S, b).mean() == pytest.approx(expected(50, b), abs=0.05)


def test_new_maxima_of_the_real_heads():
    (new_maxima,) = defined("new_maxima")
    before, everywhere, first = (scores_of(*place) for place in ((0, 2), (0, 11), (4, 5)))
    assert f"has {new_maxima(before, 1).mean():.2f} new maxima a row" in TEXT
    assert f"has {new_maxima(first, 1).mean():.2f}, since nothing" in TEXT
    assert f"{new_maxima(before, 1).mean():.2f} brought a new maximum in the head with the most" in TEXT
    trivial = [1 - (new_maxima(s, 32).mean() - 1) / 14 for s in (before, everywhere, first)]
    assert f"{trivial[0]:.0%} of the 14".replace("%", " %") in TEXT
    assert f"{trivial[1]:.0%} in the second".replace("%", " %") in TEXT
    assert trivial[2] == 1 and -(-471 // 32) == 15


def test_what_is_said_about_the_head_that_looks_at_the_token_before():
    S = scores_of(0, 2)
    share = (S.argmax(axis=1) == np.arange(len(S)) - 1).mean()
    assert f"in {share:.0%} of its rows".replace("%", " %") in TEXT
    assert np.corrcoef(S[:, :-1].ravel(), S[:, 1:].ravel())[0, 1] > 0.5  # neighbouring scores are alike
    assert f"its scores reach {S.max():.0f}" in TEXT


def test_how_much_the_rows_weigh():
    for place, sentence in (((0, 2), "sharp head weighs {:.2f}"), ((0, 11), "broad head weighs {:.2f}")):
        s = scores_of(*place)[200]
        assert sentence.format(np.exp(s - s.max()).sum()) in TEXT


def test_the_numbers_worked_by_hand():
    w = np.array([2.0, 1, 8, 4, 4, 1])
    assert (w[:2].sum() / 2, w[:5].sum() / 8, w.sum() / 8) == (1.5, 2.375, 2.5)
    assert "1 + \\tfrac12 = 1.5" in TEXT and "2.5 units of 8 are 20" in TEXT
    assert (1 * 8 + 3 * 4) / 4 == 5
    assert abs((8 + 4) / (1 / 3 + 1) - 9) < 1e-12
    assert (6 * 10 + 12 * 4) / 18 == 6 and "It is 6, not the average 7" in TEXT


@pytest.mark.parametrize("b", [1, 3, 8, 20])
def test_formulas_3_2_3_4_and_3_6(b):
    my_running, my_online_attention, my_merge = defined("my_running", "my_online_attention", "my_merge")
    rng = np.random.default_rng(b)
    s, v = 5 * rng.standard_normal(20), rng.standard_normal((20, 3))
    m, l = my_running(s[j : j + b] for j in range(0, 20, b))
    assert m == s.max() and m + np.log(l) == pytest.approx(exact.log_sum_exp(s), abs=1e-12)
    o = my_online_attention((s[j : j + b], v[j : j + b]) for j in range(0, 20, b))
    assert exact.max_abs_error(o, exact.softmax(s) @ v) < 1e-12
    part = lesson03._part
    merged = my_merge(part(s[:b], v[:b]), part(s[b:], v[b:]))
    assert lesson03.triple_difference(merged, part(s, v)) is None


def test_digits_that_are_right():
    """The margins are wide: another order of summation must not change a digit that the text quotes."""
    (in_three_loops,) = defined("in_three_loops")
    found = {}
    for name, place in (("sharp", (0, 2)), ("broad", (0, 11))):
        S, V = scores_of(*place), real_head(*place).V.astype(float)
        want = exact.softmax(S) @ V
        for dtype in (np.float32, np.float16):
            rounded = exact.softmax(S.astype(dtype)) @ V
            got = [in_three_loops(S, V, dtype), _one_pass(S, V, dtype), rounded]
            found[name, dtype] = [-np.log10(np.sqrt(np.mean((o - want) ** 2))) for o in got]
    whole = {key: tuple(int(x) for x in value) for key, value in found.items()}
    assert whole["sharp", np.float32] == (7, 7, 7) and "one pass keeps 7 digits, as many as" in TEXT
    assert whole["broad", np.float32] == (7, 7, 9)
    assert whole["broad", np.float16] == (4, 3, 5) and "in one pass, 3 instead of 4" in TEXT
    assert whole["sharp", np.float16] == (3, 3, 3)
    assert min(x % 1 for value in found.values() for x in value) > 0.04
    assert np.spacing(np.float32(83)) / 2 == pytest.approx(4e-6, rel=0.1)  # "a few millionths"


def _one_pass(S, V, dtype):
    (my_online_attention,) = defined("my_online_attention")
    S, V = S.astype(dtype), V.astype(dtype)
    pieces = [slice(j, j + 32) for j in range(0, S.shape[1], 32)]
    O = np.array([my_online_attention((s[p], V[p]) for p in pieces) for s in S])
    assert O.dtype == dtype
    return O


def test_how_large_the_outputs_are():
    heads = [real_head(0, 2), real_head(0, 11)]
    largest = max(float(np.abs(exact.attention(h.Q, h.K, h.V)).max()) for h in heads)
    assert 1.79 < largest < 1.8 and "no entry of these outputs is larger than 1.8" in TEXT


def test_where_float16_stops_counting():
    assert np.float16(2048) + np.float16(1) == 2048 and np.spacing(np.float16(2048)) == 2
    assert "The sum stops at 2048" in TEXT and "the next number float16 knows is 2050" in TEXT


def test_every_numbered_formula_has_its_section():
    tags = re.findall(r"\\tag\{(3\.\d)\}", TEXT)
    assert tags == ["3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.8"]
    for tag in tags:
        section = TEXT.split(f"## {tag} ", 1)[1].split("\n## ", 1)[0]
        assert f"\\tag{{{tag}}}" in section
