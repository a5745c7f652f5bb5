"""Tests of lesson 04: its formulas, statements and exercises."""

from math import exp

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import RowStats, bounds, costs, schedules
from iocourse.course.checking import judge
from iocourse.course.exercise import find
from iocourse.course.explore import tile_tuner
from iocourse.course.points import points_of
from iocourse.data import real_head
from tests.mutation.references import build, exercise_source

LESSON, SECOND = Lesson("04_flash_forward"), Lesson("04b_debugging_a_schedule")


def at(schedule, N, d, M):
    return schedule.cost(N, d, **schedule.tiles(N, d, M))


# ---------------------------------------------------------------------- statements in the text
def test_naive_attention_moves_the_scores_four_times_or_more():
    assert schedules.naive.cost(64, 8, Br=1, Bc=64, Bm=1, Bn=8).total >= 4 * 64 * 64


ORDERS = schedules.flash1, schedules.flash2, schedules.flash_optimal
N4, D4, M4 = 1024, 64, 16896  # the sizes of section 4.4
SLIDER = [*tile_tuner(N=N4, d=D4, M=M4).controls["Br"].offered.values()]


@pytest.mark.parametrize(
    ("schedule", "best"), [(schedules.flash1, (1, 128)), (schedules.flash2, (128, 1))], ids=["F1", "F2"]
)
def test_the_hand_finds_one_row_for_what_passes_and_no_other_tile(schedule, best):
    """Exactly one slider position of the tuner has the least traffic, and no tile has less."""
    forms = {(Br, Bc): schedule.cost(N4, D4, Br=Br, Bc=Bc) for Br in SLIDER for Bc in SLIDER if Br * Bc < M4}
    fits = {tile: form.total for tile, form in forms.items() if form.peak <= M4}
    assert [tile for tile, words in fits.items() if words == min(fits.values())] == [best]
    assert fits[best] == schedule.count(N4, D4, M4).total


def test_V_in_Ks_place_is_worth_d_words_of_room():
    N, d = 2**22, 64
    f2, f3 = schedules.flash2, schedules.flash_optimal
    assert costs.flash2(N, d, Br=128, Bc=1).peak == M4 == costs.flash_optimal(N, d, Br=128, Bc=1).peak + d
    more = [f3.tiles(N, d, M)["Br"] - f2.tiles(N, d, M)["Br"] for M in range(4 * d + 3, 20_000)]
    assert set(more) == {0, 1} and 0.45 < sum(more) / len(more) < 0.5
    for M in range(326, 390):
        assert (f2.tiles(N, d, M)["Br"], f3.tiles(N, d, M)["Br"]) == (1, 2)
    saved = [1 - f3.count(N, d, M).total / f2.count(N, d, M).total for M in range(d * d, 4 * d * d)]
    assert 0.03 < max(saved) < 1 / 30


def test_order_times_tile():
    """Ratios of 2 between columns and 3/2 between rows at the sizes of section 4.5."""
    N, d = 2**22, 64

    M = 64 * d * d
    f1, f2, f3 = (one.count(N, d, M).total for one in ORDERS)
    f1_quarter, f2_quarter = (one.count(N, d, M, published=True).total for one in ORDERS[:2])
    assert f1_quarter / f1 == pytest.approx(2, rel=0.03) == f2_quarter / f2
    assert f1_quarter / f2_quarter == pytest.approx(3 / 2, rel=0.03) == f1 / f2
    assert f2 == f3
    same = {"Br": 256, "Bc": 256}
    ratio = costs.flash2(4096, d, **same).total / costs.flash1(4096, d, **same).total
    assert ratio == pytest.approx(2 / 3, rel=0.03)


def published(d, M):
    Bc = -(-M // (4 * d))
    return costs.flash1(10**6, d, Br=min(Bc, d), Bc=Bc).peak


@pytest.mark.parametrize("d", [2, 3, 8, 17, 64])
def test_8dd_plus_8d_is_the_least_memory_for_the_published_sizes(d):
    limit = 8 * d * d + 8 * d
    assert all(published(d, M) > M for M in range(1, limit))
    assert published(d, limit) <= limit < published(d, limit + 1)
    assert all(published(d, M) <= M for M in range(limit, 20 * d * d, 4 * d) if M % (4 * d) == 0)


def test_no_schedule_saves_more_than_a_sixth_and_the_reasons_multiply_to_the_ratio():
    N, d, M = 8192, 64, 58368
    least, which = bounds.lower_bound("forward", N, d, M)
    ratio = at(schedules.flash_optimal, N, d, M).total / least
    blocks = -(-N // schedules.flash_optimal.tiles(N, d, M)["Br"])
    parts = (M + d**2) / M, 1 + 3 / (2 * d), blocks / (N * (2 * d + 3) / M), (blocks + 1) / blocks
    assert which == "A" and 1 - 1 / ratio < 1 / 6
    assert np.prod(parts) == pytest.approx(ratio, rel=5e-3)


def test_the_lines_of_section_4_7_run_as_the_text_says():
    drawn = [round(2 ** (k / 4)) for k in range(33, 85)]
    for order in ORDERS:
        words = [order.count(8192, 64, M).total for M in drawn]
        assert words == sorted(words, reverse=True)
    for M in [2**power for power in range(10, 22)]:
        f1, f2, f3 = (one.count(8192, 64, M).total for one in ORDERS)
        assert 1.45 < f1 / f2 < 1.55
        assert f2 == pytest.approx(f3, rel=0.02) or M < 64**2
    naive, f3 = schedules.naive, schedules.flash_optimal
    assert at(naive, 8192, 64, 512).total < at(f3, 8192, 64, 512).total
    assert at(naive, 8192, 64, 8192).total > at(f3, 8192, 64, 8192).total
    whole = costs.flash_optimal(8192, 64, Br=8192, Bc=1)
    assert whole.total == bounds.compulsory(8192, 64) and whole.peak < 2**21


def test_the_sharp_head_is_near_the_limit_of_float32_and_F3_moves_a_quarter():
    sharp, (N, d, M) = real_head(0, 2), (471, 32, 4096)
    largest = exp(sharp.stats["logit_max"])
    assert 0.5e36 < largest < 2e36 and 100 < np.finfo(np.float32).max / largest < 500
    assert sharp.Q.shape == (N, d) and 4 * d * d == M
    assert 0.22 < at(schedules.flash_optimal, N, d, M).total / at(schedules.naive, N, d, M).total < 0.28


# ---------------------------------------------------------------------- exercises
def test_the_two_tiles_that_are_compared_never_cut_the_keys_alike():
    for seed in range(50):
        one, other = find("4B").cases(np.random.default_rng(seed))[:2]
        assert one.inputs["Q"].tobytes() == other.inputs["Q"].tobytes()
        assert one.inputs["Bc"] != other.inputs["Bc"]


def rescale_dropped(m, Q, K, V, *, Br, Bc):
    """FA-2 order without rescaling of the output: correct for one key block, wrong for several."""
    N, d = Q.shape
    O = m.new("O", (N, d))
    for i in m.blocks(N, Br):
        with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
            q *= d**-0.5
            for j in m.blocks(N, Bc):
                with m.load(K, j) as k, m.load(V, j) as v, q @ k.T as s:
                    stats.update(s)
                    o.add_matmul(s, v)
            stats.normalise(o)
            m.store(o, O, i)
    return O


def test_a_mistake_between_blocks_leaves_the_values_of_one_block_right():
    verdicts = dict(judge(find("4A"), rescale_dropped, 0))
    assert verdicts["values equal exact attention"]
    assert verdicts["is correct when one block holds all keys"] is None


ONE_TILE_MORE = {"product": ("o.add_matmul(s, v)", "o += s @ v"), "queries": ("q *= ", "q = q * ")}


@pytest.mark.parametrize("more", ONE_TILE_MORE)
@pytest.mark.parametrize("exercise", ["4A", "4B"])
def test_one_tile_of_outputs_or_queries_more_is_refused_whatever_is_drawn(exercise, more):
    right = LESSON.code(f"def {find(exercise).function}")
    wrong = right.replace(*ONE_TILE_MORE[more])
    space = {"RowStats": RowStats}
    exec(wrong, space)
    for seed in range(20):
        verdicts = dict(judge(find(exercise), space[find(exercise).function], seed))
        assert [name for name, complaint in verdicts.items() if complaint] == ["fits in fast memory"], seed


def test_the_room_of_4_3_is_the_footprint_and_K_beside_V_never_fits_it():
    find_cases = find("4C").cases
    for seed in range(20):
        for case in find_cases(np.random.default_rng(seed)):
            N, d = case.inputs["Q"].shape
            tiles = {"Br": case.inputs["Br"], "Bc": case.inputs["Bc"]}
            assert case.M == costs.flash_optimal(N, d, **tiles).peak < costs.flash2(N, d, **tiles).peak


def test_the_widget_has_a_cell_of_its_own_in_the_students_notebook():
    assert "explore.tile_tuner(N=1024, d=64, M=16896)" in LESSON.student_sources()


# ---------------------------------------------------------------------- 4E: a schedule to repair
def repaired(*edits):
    """Return the schedule given in 4E, with some of its lines replaced."""
    text = exercise_source("4E", solved=False)
    for old, new in (("    raise NotImplementedError\n", ""), *edits):
        assert text.count(old) == 1
        text = text.replace(old, new)
    return build("4E", text)


FREED = ("                o.add_matmul(s, v)\n", "                o.add_matmul(s, v); s.free(); v.free()\n")
LOADED_ONCE = (
    ("as stats:", "as stats, m.load(Q, i) as q:"),
    ("with m.load(Q, i) as q, m.load(K", "with m.load(K"),
)


ROOM, READ_ONCE, TOTAL = "fits in the footprint of (4.3)", "Q is read once", "moves no more words than (4.3)"


@pytest.mark.parametrize(
    ("edits", "fails"),
    [
        ((), {ROOM, READ_ONCE, TOTAL}),
        ((FREED,), {READ_ONCE, TOTAL}),
        (LOADED_ONCE, {ROOM}),
        ((*LOADED_ONCE, FREED), set()),
    ],
)
def test_what_is_handed_out_is_worth_nothing_and_each_repair_something(edits, fails):
    exercise = find("4E")
    verdicts = judge(exercise, repaired(*edits), 2)
    assert {name for name, complaint in verdicts if complaint} == fails
    assert points_of(exercise, verdicts).total == pytest.approx(exercise.importance * (1 - len(fails) / 3))


def test_both_copies_of_the_schedule_to_repair_are_one():
    shown = SECOND.code("def wasteful(").split("def wasteful")[1].split("return O")[0]
    to_repair = exercise_source("4E", solved=False).split("def my_repaired")[1].split("return O")[0]
    assert shown.split("O = m.new")[1] == to_repair.split("O = m.new")[1]


# ---------------------------------------------------------------------- reports on the scale factor
@pytest.mark.parametrize(("power", "named"), [(0.0, "1"), (-1.0, "1/{d}"), (0.5, "√{d}")])
@pytest.mark.parametrize("exercise", ["4A", "4C"])
def test_a_wrong_scale_is_named(exercise, power, named):
    def unscaled(m, Q, K, V, *, Br, Bc):
        (N, d), O = Q.shape, m.new("O", Q.shape)
        for i in m.blocks(N, Br):
            with m.load(Q, i) as q, m.zeros(i, d) as o, m.row_stats(i) as stats:
                q *= d**power
                for j in m.blocks(N, Bc):
                    with m.load(K, j) as k:
                        s = q @ k.T
                    with s, m.load(V, j) as v:
                        stats.update(s, o)
                        o.add_matmul(s, v)
                stats.normalise(o)
                m.store(o, O, i)
        return O

    said = dict(judge(find(exercise), unscaled, 3))["is correct when one block holds all keys"]
    d = int(said.split("d=")[1].split(",")[0])
    assert f"; QKᵀ is multiplied by {named.format(d=d)}, expected 1/√{d} = " in said
