"""Tests of lesson 06: its formulas, statements, proof and exercises."""

from itertools import combinations

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import bounds, costs, exact, run, schedules
from iocourse.course.checking import judge
from iocourse.course.exercise import find
from iocourse.course.exercises.lesson06 import ALL_KEYS
from iocourse.course.exercises.lesson06 import constant as predicted_constant
from iocourse.machine import probabilities

LESSON = Lesson("06_backward")
section, says = LESSON.section, LESSON.says
d = 64
LARGE = 64 * d**2  # the M of sections 6.6 to 6.10


def at(name, N, d, M, **problem):
    schedule = schedules.get(name)
    return schedule.cost(N, d, **schedule.tiles(N, d, M), **problem)


def constant(words, N, d, M):
    return words * M / (N * d) ** 2


# ---------------------------------------------------------------------- constants of long sequences
CORRECTED = {
    "flash2_backward": (16, lambda d: 16 * (1 + 1 / (2 * d)) * (1 + 1 / (4 * d))),
    "fused_backward": (16, lambda d: 16 * (1 + 1 / (2 * d)) * (1 + 1 / (4 * d))),
    "split_backward": (14, lambda d: 6 * (1 + 1 / d) + 8 * (1 + 1 / d) * (1 + 1 / (4 * d))),
}


@pytest.mark.parametrize("name", CORRECTED)
def test_the_corrected_constants_hold_for_long_sequences(name):
    leading, corrected = CORRECTED[name]
    for d in (64, 128, 256):
        N, M = 2**30, 64 * d * d
        found = constant(at(name, N, d, M).total, N, d, M)
        assert found == pytest.approx(corrected(d), rel=3e-3)
    assert corrected(10**9) == pytest.approx(leading)


# ---------------------------------------------------------------------- resident arrays times streamed arrays
def one_pass(m, Q, K, V, dO, LSE, D, *, stays, gradients, b):
    """One pass as in section 6.7: b rows of one side are resident, the other is streamed row by row."""
    sides = {"rows": {"Q": Q, "dO": dO, "L": LSE, "D": D}, "columns": {"K": K}}
    if gradients & {"dQ", "dK"}:
        sides["columns"]["V"] = V
    N, d = Q.shape
    made = {name: m.new(name, (N, d)) for name in sorted(gradients)}
    at_home = sorted(gradients & ({"dQ"} if stays == "rows" else {"dK", "dV"}))
    travelling = sorted(gradients - set(at_home))
    here, there = sides[stays], sides["columns" if stays == "rows" else "rows"]
    for block in m.blocks(N, b):
        tiles = {name: m.load(array, block) for name, array in here.items()}
        tiles |= {name: m.zeros(block, d) for name in at_home}
        for one in m.blocks(N, 1):
            tiles |= {name: m.load(array, one) for name, array in there.items()}
            for name in travelling:
                tiles[name] = m.zeros(one, d) if block.first else m.load(made[name], one)
            add_tile(tiles)
            for name in travelling:
                m.store(tiles[name], made[name], one)
            for name in (*there, *travelling):
                tiles.pop(name).free()
        for name in at_home:
            m.store(tiles[name], made[name], block)
        for tile in tiles.values():
            tile.free()
    return tuple(made[name] for name in ("dQ", "dK", "dV") if name in made)


def add_tile(t):
    """Add the contribution of one tile of scores to the resident gradients."""
    scale = t["Q"].shape[1] ** -0.5
    with t["Q"] @ t["K"].T as s:
        s *= scale
        probabilities(s, t["L"])
        if "dV" in t:
            t["dV"].add_matmul(s.T, t["dO"])
        if "V" not in t:
            return
        s.multiply_by_matmul(t["dO"], t["V"].T, less=t["D"])
        s *= scale
        if "dQ" in t:
            t["dQ"].add_matmul(s, t["K"])
        if "dK" in t:
            t["dK"].add_matmul(s.T, t["Q"])


ALL_PASSES = [
    (stays, frozenset(some))
    for stays in ("rows", "columns")
    for n in (1, 2, 3)
    for some in combinations(("dQ", "dK", "dV"), n)
]


def resident(stays, gradients):
    columns = 1 + bool(gradients & {"dQ", "dK"}) + len(gradients & {"dK", "dV"})
    return 2 + ("dQ" in gradients) if stays == "rows" else columns


@pytest.mark.parametrize(("stays", "gradients"), ALL_PASSES)
def test_a_pass_on_the_machine_has_the_constant_of_the_rule(stays, gradients):
    rng = np.random.default_rng(1)
    Q, K, V, dO = rng.standard_normal((4, 7, 3))
    leaves = schedules.saved_for_backward(Q, K, V)
    given = {"Q": Q, "K": K, "V": V, "dO": dO, "LSE": leaves["LSE"], "D": (dO * leaves["O"]).sum(axis=1)}
    done = run(one_pass, M=10**4, **given, stays=stays, gradients=gradients, b=3)
    exact_ones = exact.attention_backward(Q, K, V, dO)._asdict()
    wanted = [value for name, value in exact_ones.items() if name in gradients]
    for got, want in zip(done.outputs, wanted, strict=True):
        np.testing.assert_allclose(got, want, atol=1e-10)
    N, d = 2**20, 256
    M = 64 * d * d
    b = (M - 5 * d) // (resident(stays, gradients) * d + 3)
    shapes = {**dict.fromkeys(("Q", "K", "V", "dO"), (N, d)), "LSE": (N,), "D": (N,)}
    ledger = run(one_pass, M=M, dry=True, **shapes, stays=stays, gradients=gradients, b=b).ledger
    found = constant(ledger.total, N, d, M)
    rule = predicted_constant(stays, gradients)
    assert rule <= found < rule * 1.03 + 0.5 and round(found) == rule


def test_the_table_of_6_7_is_what_the_schedules_move():
    says("6.7", "2 \\cdot 2 = 4", "2 \\cdot 3 = 6", "4 \\cdot 5 = 20", "4 \\cdot 4 = 16")
    assert predicted_constant("columns", frozenset({"dQ", "dK", "dV"})) == 16
    N, M = 2**30, LARGE
    f3 = at("flash_optimal", N, d, M)
    f1 = costs.flash1(N, d, Br=1, Bc=(M - 2 * d - 2) // (2 * d + 1))
    assert [round(constant(ledger.total, N, d, M)) for ledger in (f3, f1)] == [4, 6]


# ---------------------------------------------------------------------- statements in the text
def test_standard_backward_moves_its_three_matrices_as_the_table_of_6_2_says():
    b0 = at("standard_backward", 4096, d, 16384)
    moved = [(b0.reads.get(x, 0) + b0.writes.get(x, 0)) / 4096**2 for x in ("P", "dP", "dS")]
    table = [line.split("|")[2:5] for line in section("6.2").splitlines() if line.startswith("|")][2:]
    columns = [" ".join(column) for column in zip(*table, strict=True)]
    assert moved == [column.count("read") + column.count("written") for column in columns] == [3, 3, 3]


@pytest.mark.parametrize(("d", "M"), [(8, 512), (64, 16384), (64, LARGE), (3, 1200)])
def test_section_6_5_the_published_sizes_never_fit(d, M):
    Bc = -(-M // (4 * d))
    assert 4 * Bc * d >= M and costs.flash1_backward(10**6, d, Br=1, Bc=Bc).peak > M
    largest = schedules.flash1_backward.tiles(10**6, d, M)
    assert largest["Br"] == 1 and abs(largest["Bc"] - M / (4 * d + 1)) < 2
    with pytest.raises(ValueError, match=r"words, [\d,]+ more than M"):
        schedules.flash1_backward.tiles(10**6, d, M, published=True)


def test_a_quarter_of_the_words_of_the_fused_backward_is_written():
    b3 = at("fused_backward", 65536, d, LARGE)
    assert b3.written / b3.total == pytest.approx(0.25, abs=2e-3)


def test_the_rows_of_6_8_are_the_largest():
    tiles = schedules.split_backward.tiles(65536, d, LARGE)
    assert tiles["Br1"] == (LARGE - 2 * d) // (3 * d + 3)


def test_dQ_in_the_buffer_of_dO_saves_d_words():
    """The best tile of the FA-2 backward pass equals that of the fused pass with d fewer words."""
    for M in range(2000, 9000, 7):
        b2, b3 = (schedules.get(name).tiles(65536, d, M) for name in ("flash2_backward", "fused_backward"))
        assert b2 == schedules.fused_backward.tiles(65536, d, M - d)
        assert 0 <= b3["Bc"] - b2["Bc"] <= 1
    assert at("flash2_backward", 2**22, d, LARGE).total == at("fused_backward", 2**22, d, LARGE).total


def test_section_6_8_where_each_order_wins():
    for N, winner in ((2048, "fused"), (4096, "fused"), (8192, "split"), (16384, "split")):
        assert schedules.best(N, d, LARGE, "backward").schedule.name == f"{winner}_backward"
    fused, split = (r * (6144 * d) ** 2 / LARGE + once * 6144 * d for r, once in ((16, 5), (14, 8)))
    assert fused == split


def test_prediction_6_8_follows_from_the_numbers_of_blocks_in_the_text():
    says("6.8", "give 5 key blocks in the fused backward")
    says("6.8", "they give 4 query blocks in the first pass and 5 key blocks in the second")
    fused, split = (schedules.get(f"{name}_backward").tiles(4096, d, LARGE) for name in ("fused", "split"))
    assert [costs.ceil_div(4096, b) for b in (fused["Bc"], split["Br1"], split["Bc2"])] == [5, 4, 5]
    fused, split = (at(f"{name}_backward", 4096, d, LARGE).total for name in ("fused", "split"))
    assert split / fused == pytest.approx((4 + 2 * 4 + 4 + 2 * 5) / (5 + 4 * 5), abs=1e-3)


def test_section_6_8_the_two_pass_backward_moves_more_for_short_sequences():
    ratios = [
        at("split_backward", N, d, LARGE).total / at("fused_backward", N, d, LARGE).total
        for N in (4096, 8192)
    ]
    assert ratios[0] > 1 > ratios[1]


def test_section_6_9_the_constants_between_the_lines():
    N = 2**22
    for M in (4**k * d * d for k in range(1, 6)):
        b4 = constant(at("split_backward", N, d, M).total, N, d, M)
        whole, cut = (
            constant(bounds.lower_bound("backward", N, d, M, whole_rows=rows)[0], N, d, M)
            for rows in (True, False)
        )
        assert cut < 12 and cut < whole < 14 < 14.2 <= b4 <= 14.5


# ---------------------------------------------------------------------- exercises
@pytest.mark.parametrize(("power", "named"), [(0.5, "√d"), (-0.5, "1/√d"), (1, None)])
def test_a_scale_too_many_is_named(power, named):
    def off(q, k, v, do, o, L):
        p = np.exp(q @ k.T * q.shape[1] ** -0.5 - L[:, None])
        return p, p * (do @ v.T - (do * o).sum(axis=1)[:, None]) * q.shape[1] ** power

    complaint = dict(judge(find("6A"), off, 0))["ds is the tile's part of dS"]
    assert complaint is not None and (f"every entry is {named} times the expected value" in complaint) == (
        named is not None
    )


def test_a_second_row_tile_never_fits_where_the_check_looks_for_it():
    for seed in range(20):
        for case in find("6B").cases(np.random.default_rng(seed))[:2]:
            N, d_ = case.inputs["Q"].shape
            tiles = {"Br": case.inputs["Br"], "Bc": case.inputs["Bc"]}
            assert costs.flash2_backward(N, d_, **tiles).peak > case.M


def test_a_tile_of_6_4_is_the_part_of_the_whole():
    for case in find("6A").cases(np.random.default_rng(3)):
        p, ds = case.expected
        assert p.shape == ds.shape == (len(case.inputs["q"]), len(case.inputs["k"]))
        if case.has(ALL_KEYS):
            np.testing.assert_allclose(p.sum(axis=1), 1)
            np.testing.assert_allclose(ds.sum(axis=1), 0, atol=1e-12)
