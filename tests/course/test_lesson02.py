"""Tests of lesson 02: its formulas and statements."""

from math import isqrt

import pytest

from iocourse import bounds, costs, run, schedules


def test_formula_2_3():
    assert costs.matmul(16, 16, 16, bm=1, bn=1).total == 2 * 16**3 + 16**2 == 11 * 3 * 16**2


@pytest.mark.parametrize("sizes", [(16, 16, 16, 4, 4), (7, 11, 5, 3, 4), (1, 1, 1, 2, 2), (5, 9, 2, 50, 1)])
def test_formula_2_4(sizes):
    m, n, k, bm, bn = sizes
    tiled = costs.matmul(m, n, k, bm=bm, bn=bn)
    assert tiled.total == m * k * -(-n // bn) + k * n * -(-m // bm) + m * n
    assert tiled.peak == min(bm, m) * min(bn, n) + min(bm, m) + min(bn, n)


@pytest.mark.parametrize("M", [3, 8, 100, 483, 10_000])
def test_the_square_of_formula_2_5_is_the_largest_that_fits(M):
    b = isqrt(M + 1) - 1
    assert b * b + 2 * b <= M < (b + 1) ** 2 + 2 * (b + 1)
    assert b == bounds.square_side(M)


def test_three_square_tiles_cost_about_1_7_times_as_much():
    n = 1024
    for M in (64, 256, 1024, 4096, 16_384):
        best = costs.matmul(n, n, n, **schedules.matmul_tiles(n, n, n, M)).total
        three = isqrt(M // 3)
        assert 1.6 < costs.matmul(n, n, n, bm=three, bn=three).total / best < 1.8


def test_formula_2_8():
    N, d, M = 256, 32, 4096
    tiles = schedules.naive.tiles(N, d, M)
    ledger = run(schedules.naive, M=M, dry=True, **dict.fromkeys("QKV", (N, d)), **tiles).ledger
    row_blocks, tile_rows = -(-N // tiles["Br"]), -(-N // tiles["Bm"])
    assert tiles["Bm"] == tiles["Br"] and tiles["Bc"] >= N and tiles["Bn"] >= d  # the case of the statement
    for b in (tiles["Br"], tiles["Bm"]):  # the largest with b rows, one more row and a column of b words
        assert b * d + d + b <= M < (b + 1) * d + d + (b + 1)
    scores, softmax = N * d + N * d * row_blocks + N * N, 2 * N * N
    output = N * N + N * d * tile_rows + N * d
    assert [sum(phase) for phase in ledger.phases.values()] == [scores, softmax, output]
    assert ledger.total == 10 * 4 * N * d  # "ten times the compulsory traffic"
