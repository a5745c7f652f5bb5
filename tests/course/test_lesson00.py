"""What lesson 00 says in words and figures is what the library computes."""

import math
import re

import numpy as np
import pytest

from iocourse import FastMemoryFull, Ledger, costs, run
from iocourse.course import check
from iocourse.schedules import flash2

ROWS, COLS, BLOCK = 100, 50, 10


@pytest.fixture(scope="module")
def text(request):
    return (request.config.rootpath / "solutions" / "00_start_here.py").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def prose(text):
    return "\n".join(line[2:] for line in text.splitlines() if line.startswith("# "))


def shown_in(text, name):
    """A function as the lesson defines it."""
    found = re.search(rf"^def {name}\(.*?(?=^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    namespace = {}
    exec(found[0], namespace)
    return namespace[name]


@pytest.fixture(scope="module")
def product():
    rng = np.random.default_rng(1)
    return {"A": rng.standard_normal((ROWS, COLS)), "x": rng.standard_normal(COLS), "b": BLOCK}


def test_the_two_products_move_what_the_text_says(text, prose, product):
    anew = run(shown_in(text, "x_comes_anew"), M=600, **product)
    stays = run(shown_in(text, "x_stays"), M=600, **product)
    compulsory = ROWS * COLS + COLS + ROWS
    assert np.allclose(anew.O, product["A"] @ product["x"]) and np.array_equal(anew.O, stays.O)
    assert anew.ledger.total == ROWS * COLS + math.ceil(ROWS / BLOCK) * COLS + ROWS  # (0.2)
    assert stays.ledger.total == compulsory
    for said in (
        f"It takes {compulsory:,} words: {ROWS * COLS:,} for $A$, {COLS} for $x$ and {ROWS} for $y$",
        f"predicted {compulsory - ROWS:,} left out",
        f"The machine counted {anew.ledger.total:,}, and (0.1) says {compulsory:,}",
        f"the other {anew.ledger.total - compulsory} come from: {anew.ledger.reads['x']} words",
        f"this one moved {stays.ledger.total:,} words",
        f"One moved {anew.ledger.total:,} words, the other {stays.ledger.total:,}",
    ):
        assert said in prose


def test_formula_02_holds_for_ragged_blocks(text, product):
    for b in (1, 3, 7, 99, 100, 101):
        done = run(shown_in(text, "x_comes_anew"), M=10_000, **product | {"b": b})
        assert done.ledger.total == ROWS * COLS + math.ceil(ROWS / b) * COLS + ROWS


def test_the_ledger_of_the_least_is_the_one_in_the_lesson(text, product):
    least = eval(re.search(r"least = (Ledger\(.*\))", text)[1], {"Ledger": Ledger})
    assert run(shown_in(text, "x_stays"), M=600, **product).ledger == least
    anew = run(shown_in(text, "x_comes_anew"), M=600, **product).ledger
    assert repr(anew - least) == "x read 10×, closed form says 1×"


def test_500_words_are_too_few(text, prose, product):
    with pytest.raises(FastMemoryFull, match=r"A\[0:10\] needs 500 words, 450 are free.*x\[0:50\] 50"):
        run(shown_in(text, "x_stays"), M=500, **product)
    assert "10 rows of $A$ need 500 words, and $x$ already holds 50" in prose


def test_attention_in_one_block_moves_the_least_there_is(prose):
    whole = run(flash2, M=10_000, dry=True, Q=(64, 16), K=(64, 16), V=(64, 16), Br=64, Bc=64).ledger
    assert whole == costs.flash2(64, 16, Br=64, Bc=64)
    assert whole.total == 4 * 64 * 16
    assert f"It moved {whole.total:,} words, four arrays of {64 * 16:,}" in prose
    assert f"took {whole.peak:,} words of fast memory" in prose
    assert f"$K$, $V$ and $O$ and nothing else: {whole.total:,} words" in prose


def test_the_figures_of_section_04(prose):
    N, d = 4096, 64
    one, many = (2 * Nq * N * d / (2 * d * (Nq + N)) for Nq in (1, N))
    naive = 2 * N * N * d / (4 * N * d + 4 * N * N)
    chip = 312e12 / 2 / (1555e9 / 2)
    assert f"can do {chip:.1f} multiply-adds while one word arrives. A single query has {one:.1f}" in prose
    assert f"there are {many:,.1f} for each word, ten times" in prose and round(many / chip) == 10
    assert f"{naive:.1f}, and the chip waits" in prose and naive < chip < many
    assert f"does {naive:.1f} multiply-adds for each word, on a chip that could do {chip:.1f}" in prose
    least, alone = 4 * N * d, 2 * d * (1 + N)
    assert f"One query alone costs {alone:,} words, about half of the {least:,}" in prose
    assert f"one query must move {alone:,} words" in prose and abs(alone / least - 0.5) < 0.001


def test_the_failing_report_in_the_text_is_what_check_prints(prose, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("IOCOURSE_HOME", str(tmp_path))
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)

    def output_forgotten(Nq, Nk, d):
        return Nq * d + 2 * Nk * d

    check("0.1", output_forgotten, seed=7)
    assert capsys.readouterr().out.rstrip() in prose


def test_the_quiz_asks_and_does_not_tell(text):
    names = ("constant_traffic", "linear_traffic", "smaller_tiles_move_less")
    asked = re.search(r'^predict\("0\.2".*#> (.*)$', text, re.MULTILINE)
    assert asked[1] == f'predict("0.2", {", ".join(f"{name}=..." for name in names)})'
    assert 'measured("0.2", …)' not in text and 'measured("0.2", constant' not in text
    assert (
        len(set(re.findall(r"=(True|False)", asked[0]))) == 2
    )  # the guess of the solved notebook tells nothing
