"""Lesson 02 says numbers and shows formulas: here they are computed again and looked up in its text."""

from math import isqrt, sqrt
from pathlib import Path

import numpy as np
import pytest

from iocourse import bounds, costs, run, schedules
from iocourse.course.authoring.source import parse

SOURCE = Path(__file__).parents[2] / "solutions" / "02_two_memories.py"
CELLS = parse(SOURCE.read_text(encoding="utf-8"), SOURCE)
TEXT = "\n".join("\n".join(cell.lines) for cell in CELLS if cell.kind == "markdown")


def section(number):
    """The text from one numbered heading to the next."""
    return TEXT.split(f"## {number} ")[1].split("\n## ")[0]


def words(m, n, k, b):
    return costs.matmul(m, n, k, bm=b, bn=b).total


def test_formula_2_3_and_its_numbers():
    m = n = k = 16
    one_by_one = costs.matmul(m, n, k, bm=1, bn=1)
    assert one_by_one.total == 2 * m * n * k + m * n == 8448
    once = costs.matmul(m, n, k, bm=m, bn=n)
    assert (once.total, once.peak) == (768, 288)
    assert 8448 // 768 == 11
    for number in ("8,448", "768", "eleven times", "288", "33"):
        assert number in section("2.3"), number


@pytest.mark.parametrize("sizes", [(16, 16, 16, 4, 4), (7, 11, 5, 3, 4), (1, 1, 1, 2, 2), (5, 9, 2, 50, 1)])
def test_formula_2_4(sizes):
    m, n, k, bm, bn = sizes
    A, B = np.ones((m, k)), np.ones((k, n))
    done = run(schedules.matmul, M=10**6, A=A, B=B, bm=bm, bn=bn).ledger
    assert done.total == m * k * -(-n // bn) + k * n * -(-m // bm) + m * n
    cut_m, cut_n = min(bm, m), min(bn, n)
    assert done.peak == cut_m * cut_n + cut_m + cut_n
    assert all(number in section("2.4") for number in ("2,304", "24 words", "33:"))


def test_section_2_5():
    at = {b: words(120, 120, 120, b) for b in (6, 10, 20)}
    assert [isqrt(120 // 3), isqrt(121) - 1] == [6, 10]
    said = [f"{count:,}" for count in at.values()]
    said += [f"{at[10] / at[20]:.2f}", f"{at[6] / at[10]:.2f}", f"{sqrt(3):.2f}", "72 of the 120"]
    assert costs.matmul(120, 120, 120, bm=6, bn=6).peak == 120 - 72
    for number in said:
        assert number in section("2.5"), number
    for number in said[:3] + said[4:5]:
        assert number in TEXT.split("## Misconceptions")[1], number


def test_the_thin_product_of_section_2_5():
    best = schedules.matmul_tiles(8, 1024, 256, 1024)
    assert f"{costs.matmul(8, 1024, 256, **best).total:,}" in section("2.5")
    side = bounds.square_side(1024)
    assert f"side {side}" in section("2.5")
    assert f"{words(8, 1024, 256, side):,}" in section("2.5")
    assert (1024 - 8) // (8 + 1) == 112 and "112" in section("2.5")


@pytest.mark.parametrize("M", [3, 8, 100, 483, 10_000])
def test_the_square_of_formula_2_5_is_the_largest_that_fits(M):
    b = isqrt(M + 1) - 1
    assert b * b + 2 * b <= M < (b + 1) ** 2 + 2 * (b + 1)
    assert b == bounds.square_side(M)


def test_section_2_6():
    n = 1024
    ratio = {}
    for M in (1024, 4096, n * n // 4, 2**22):
        got = costs.matmul(n, n, n, **schedules.matmul_tiles(n, n, n, M)).total
        ratio[M] = got / bounds.matmul(n, n, n, M + 4)
    assert f"{100 * (ratio[1024] - 1):.1f} percent" in section("2.6")
    assert f"ratio is {ratio[4096]:.2f} as well" in section("2.6")
    assert f"{ratio[n * n // 4]:.2f}" in section("2.6")
    assert ratio[2**22] == 1 and f"{3 * n * n:,} words move" in section("2.6")
    assert f"we measured a ratio of {ratio[1024]:.2f}" in TEXT


def test_three_square_tiles_cost_about_1_7_times_as_much():
    n = 1024
    for M in (64, 256, 1024, 4096, 16_384):
        best = costs.matmul(n, n, n, **schedules.matmul_tiles(n, n, n, M)).total
        assert 1.6 < words(n, n, n, isqrt(M // 3)) / best < 1.8
    assert "about 1.7" in section("2.6")


@pytest.mark.parametrize("M", [7, 60, 1000])
def test_formula_2_6_is_what_bounds_evaluates(M):
    for m, n, k in [(5, 6, 7), (50, 60, 70), (300, 200, 400)]:
        assert bounds.matmul(m, n, k, M) == max(int(2 * m * n * k / sqrt(M)) - 2 * M, m * k + k * n + m * n)


def test_formula_2_7_and_its_numbers():
    m = k = 16
    assert m * k * 4 + m * m == 1280 and words(16, 16, 16, 4) == 2304
    assert "1,280 words instead of 2,304" in section("2.6")


def test_section_2_7():
    N, d, M = 256, 32, 4096
    naive = schedules.get("naive")
    tiles = naive.tiles(N, d, M)
    shapes = dict.fromkeys("QKV", (N, d))
    ledger = run(naive, M=M, dry=True, **shapes, **tiles).ledger
    assert f"B_r = B_m = {tiles['Br']}$ rows" in section("2.7") and tiles["Bm"] == tiles["Br"]
    row_blocks, tile_rows = -(-N // tiles["Br"]), -(-N // tiles["Bm"])
    assert tiles["Bc"] >= N and tiles["Bn"] >= d  # the case formula (2.8) is stated for
    scores, softmax = N * d + N * d * row_blocks + N * N, 2 * N * N
    output = N * N + N * d * tile_rows + N * d
    assert [sum(phase) for phase in ledger.phases.values()] == [scores, softmax, output]
    assert ledger.total == scores + softmax + output == 10 * 4 * N * d
    assert 4 * N * N / ledger.total == 0.80
    least = bounds.matmul(N, N, d, M + 4), bounds.matmul(N, d, N, M + 4)
    assert scores == output and least[0] == least[1]
    for number in (scores, softmax, ledger.total, least[0]):
        assert f"{number:,} " in section("2.7"), number
    assert "80 percent" in section("2.7") and "ten times" in section("2.7")
