"""Tests of lesson 02: its formulas and statements."""

from math import isqrt

from iocourse import costs, run, schedules


def test_dot_products_move_eleven_times_the_compulsory_traffic():
    assert costs.matmul(16, 16, 16, bm=1, bn=1).total == 11 * 3 * 16**2


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
