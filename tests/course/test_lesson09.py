"""Tests of lessons 09 and 09b: their formulas, statements and exercises."""

import json
from math import ceil, sqrt

import numpy as np
import pytest
from lesson_source import ROOT, Lesson

from iocourse import bounds, costs, run, schedules, sweeps
from iocourse.course.exercise import Trial, find
from iocourse.course.exercises import lesson09
from iocourse.course.exercises.lesson09 import envelope, given, keys_sweep, whole_backward
from tools.build.percent_format import side

SOURCE, SECOND = Lesson("09_memory_regimes"), Lesson("09b_")
says = SOURCE.says

NAMED = {
    "forward": {"F3": "flash_optimal", "F7": "scores_stored_tiled", "F5": "small_cache"},
    "backward": {
        "B3": "fused_backward",
        "B4": "split_backward",
        "B6": "score_gradients_stored",
        "B7": "weights_stored",
        "B5": "small_cache_backward",
    },
}
MEMORIES = [2**k for k in range(8, 25)]
LENGTHS = [4**k for k in range(4, 11)]
CHIPS = {"uno": 2 * 1024 // 4, "stm32": 64 * 1024 // 4, "sm": 227 * 1024 // 2, "l2": 50 * 1024**2 // 2}


def words(name, N, d, M):
    s = schedules.get(name)
    return s.cost(N, d, **s.tiles(N, d, M)).total if s.smallest_M(N, d) <= M else None


def counted(N, d, M, pass_):
    found = {sign: w for sign, name in NAMED[pass_].items() if (w := words(name, N, d, M))}
    return min(found.items(), key=lambda item: item[1])


def solution(exercise_id, lesson=SOURCE):
    """Return the reference solution of an exercise, from the solved notebook."""
    namespace = {}
    for cell in lesson.cells:
        if "setup" in cell.tags or cell.name == f"ex-{exercise_id}":
            exec("\n".join(side(cell, solved=True)), namespace)
    return namespace[find(exercise_id).function]


my_cheapest, my_envelope, my_whole_backward = map(solution, ("9A", "9B", "9C"))
my_keys_sweep = solution("9D", SECOND)


# ---------------------------------------------------------------------- section by section
def test_inside_the_regimes_of_9_1_the_gap_stays_below_a_half_and_is_widest_at_two_borders():
    N, d = 8192, 64
    found = schedules.optimality_gaps("forward", N, d, [round(2 ** (k / 2)) for k in range(8, 47)])
    gaps = {gap.M: gap.ratio for gap in found}
    assert max(gaps, key=gaps.get) == d * d
    assert max(gaps[M] for M in gaps if 2 * d * d < M) == gaps[N * d]
    assert max(gaps[M] for M in gaps if 32768 <= M <= 92682 or 64 <= M <= 512) < 1.5


def test_the_table_of_sweeps_of_9_2_is_the_exercise_s_and_the_library_s():
    """The table contains every useful pass of the forward computation, as an exhaustive search confirms."""
    space = {}
    exec(SOURCE.code("FORWARD = {"), space)
    assert space["FORWARD"] == lesson09.FORWARD
    for M in (0.55, 0.8, 0.99, 1.01, 2, 50):  # in units of d²; below d²/2 slices are best
        words, _ = my_cheapest(lesson09.FORWARD, M**-0.5, "inputs", "outputs")
        assert words == pytest.approx(sweeps.min_cost("forward", M**-0.5).cost)


TABLE = {  # section 9.2: boundaries in units of d², and a, b, c
    "forward": ([1, 1 / 2, 1 / 4], [(4, 0, 0), (2, 0, 2), (1.5, 0, 3), (0, 4, 1)]),
    "backward": ([5 / 2, 4 / 3, 1 / 2, 1 / 4], [(14, 0, 0), (9, 0, 2), (5, 0, 5), (4, 0, 7), (0, 10, 3)]),
    "given": ([5 / 2, 1 / 2, 1 / 4], [(14, 0, 0), (4, 0, 4), (3, 0, 6), (0, 8, 2)]),
}


@pytest.mark.parametrize("task", TABLE)
def test_the_table_of_9_2_is_what_the_search_finds(task):
    pieces = sweeps.lower_envelope(task, 0.25, 4)
    borders, terms = TABLE[task]
    assert [1 / piece.x_to**2 for piece in pieces[:-1]] == pytest.approx(borders)
    assert [(piece.a, piece.b, piece.c) for piece in pieces] == terms
    for a, b, c in terms:
        x_squared = f"{a:g}x^2" if a else f"{b:g}x"
        says_it = f"${x_squared} + {c}$" if c else f"${x_squared}$"
        assert says_it in SOURCE.section("9.2"), says_it


def test_slices_win_6_percent_at_most_over_the_eight_forms():
    for slices, whole_width, tiles in (((1.5, 3), (2, 2), (4, 1)), ((4, 7), (5, 5), (10, 3))):
        x = np.linspace(sqrt(2), 2, 10_001)
        with_slices = slices[0] * x**2 + slices[1]
        without = np.minimum(whole_width[0] * x**2 + whole_width[1], tiles[0] * x + tiles[1])
        assert 0.05 < (1 - with_slices / without).max() < 0.06


def test_below_16_words_no_tile_of_9_1_is_wider_than_3():
    below = [schedules.small_cache.tiles(8192, 64, M) for M in range(5, 17)]
    assert max(tiles[rows] for tiles in below for rows in ("Br", "Bc")) == 3
    assert {below[-1]["Br"], below[-1]["Bc"]} == {2, 3}


def closed_forms(N, d, M, pass_):
    """Return the costs of section 9.3 with ceilings, at the block sizes of (9.2) rounded to rows."""
    n, b = N * d, max(1, int(sqrt(M)))
    one, two, three, four = (max(1, M // (arrays * d)) for arrays in (1, 2, 3, 4))
    if pass_ == "forward":
        return {
            "F3": 2 * n + 2 * n * ceil(N / two),
            "F7": 2 * n + 2 * n * ceil(N / one) + 2 * N * N,
            "F5": n + 3 * n * ceil(N / b) + N * N * (1 + ceil(d / b)),
        }
    return {
        "B3": 5 * n + 4 * n * ceil(N / four),
        "B4": 8 * n + 2 * n * ceil(N / three) + 2 * n * ceil(N / four),
        "B6": 6 * n + 2 * n * ceil(N / four) + n * ceil(N / one) + 2 * N * N,
        "B7": 6 * n + 3 * n * ceil(N / one) + n * ceil(N / two) + 5 * N * N,
        "B5": 5 * n + 7 * n * ceil(N / b) + 3 * N * N * (1 + ceil(d / b)),
    }


@pytest.mark.parametrize(("N", "d", "M"), [(90, 8, 400), (37, 5, 1000), (64, 8, 49), (200, 12, 90)])
def test_the_table_of_section_9_3_is_the_closed_forms_without_statistics(N, d, M):
    b = int(sqrt(M))
    one, two, three, four = (max(1, M // (arrays * d)) for arrays in (1, 2, 3, 4))
    exactly = {
        "F3": costs.flash_optimal(N, d, Br=two, Bc=1),
        "F7": costs.scores_stored(N, d, Br=one),
        "F5": costs.small_cache(N, d, Br=b, Bc=b, Bd=b),
        "B3": costs.fused_backward(N, d, Br=1, Bc=four),
        "B4": costs.split_backward(N, d, Br1=three, Bc1=1, Br2=1, Bc2=four),
        "B6": costs.score_gradients_stored(N, d, Br=one, Bc=four),
        "B7": costs.weights_stored(N, d, Bk=one, Bv=two, Bo=one, Bd=d),
        "B5": costs.small_cache_backward(N, d, Br=b, Bc=b, Bm=b, Bd=b),
    }
    for sign, shown in (closed_forms(N, d, M, "forward") | closed_forms(N, d, M, "backward")).items():
        ledger = exactly[sign]
        statistics = sum(
            n for name, n in (*ledger.reads.items(), *ledger.writes.items()) if name in ("LSE", "D")
        )
        assert ledger.total - statistics == shown, sign


def test_the_forms_of_section_9_3_are_the_ones_shown():
    says("9.3", r"$2Nd + 2Nd\lceil N/R_2\rceil$", r"$Nd + 3Nd\lceil N/b\rceil + N^2(1 + \lceil d/b\rceil)$")
    says("9.3", r"$5Nd + 4Nd\lceil N/R_4\rceil$", r"$8Nd + 2Nd\lceil N/R_3\rceil + 2Nd\lceil N/R_4\rceil$")
    says(
        "9.3",
        r"$2Nd + 2Nd\lceil N/R_1\rceil + 2N^2$",
        r"$6Nd + 3Nd\lceil N/R_1\rceil + Nd\lceil N/R_2\rceil + 5N^2$",
    )
    says("9.3", r"$6Nd + 2Nd\lceil N/R_4\rceil + Nd\lceil N/R_1\rceil + 2N^2$")
    says("9.3", r"$5Nd + 7Nd\lceil N/b\rceil + 3N^2(1 + \lceil d/b\rceil)$", r"\max(1, y)")


def test_the_envelope_of_9_3_is_wrong_on_a_border_alone_and_never_names_too_few_words():
    factors, wrong = {}, []
    for pass_ in NAMED:
        for N in LENGTHS:
            for M in MEMORIES:
                guess, by_guess = my_envelope(N, 64, M, pass_)
                sign, least = counted(N, 64, M, pass_)
                wrong += [(M, guess, sign)] if guess != sign else []
                factors[pass_, N, M] = least / by_guess
    assert len(factors) == 238 and wrong == [(64**2, "F3", "F7")] * 6
    assert round(min(factors.values()), 2) == 1.0
    pass_, N, M = max(factors, key=factors.get)
    assert pass_ == "forward" and counted(N, 64, M, pass_)[1] == 6 * N * 64
    assert my_envelope(N, 64, M, pass_)[1] == 4 * N * 64


def test_at_d_squared_two_forms_of_9_3_are_equal_and_the_count_prefers_f7():
    for N in LENGTHS[1:]:
        by_name = envelope(N, 64, 64**2, "forward")
        assert by_name["F3"] == by_name["F7"]
        f3, f7 = (words(name, N, 64, 64**2) for name in ("flash_optimal", "scores_stored_tiled"))
        assert 1.025 < f3 / f7 < 1.045
    assert counted(LENGTHS[0], 64, 64**2, "forward")[0] == "F3"
    assert schedules.get("flash_optimal").tiles(8192, 64, 64**2)["Br"] == 30
    for name in ("scores_stored", "scores_stored_tiled"):
        assert schedules.get(name).tiles(8192, 64, 64**2)["Br"] == 60
    says("9.3", "30 instead of 32 and 60 instead of 64")


def test_the_slanting_border_of_section_9_3():
    N, d = 2**20, 64
    for share, sign in ((0.65, "B4"), (0.68, "B3")):
        assert my_envelope(N, d, int(share * N * d), "backward")[0] == sign


def test_one_token_more_than_fits_is_one_more_reading_in_9_4():
    d, M = 64, 58368
    rows = (M - d) // (2 * d + 3)

    def f3(N):
        return costs.flash_optimal(N, d, Br=min(N, rows), Bc=1).total

    assert f3(445) == 4 * 445 * d and f3(446) == 6 * 446 * d and rows == 445
    assert all(f3(N) == words("flash_optimal", N, d, M) for N in (300, 446, 8192))


def test_the_blocks_and_the_kept_keys_of_9_4():
    d, M = 64, 58368
    assert schedules.resident_keys.tiles(600, d, M) == {"Br": 300, "places": 149}
    for N, size in ((600, M), (2048, 64**3), (8192, M)):
        tiles = schedules.resident_keys.tiles(N, d, size)
        k, C = ceil(N / tiles["Br"]), tiles["places"] - 1
        assert words("resident_keys", N, d, size) == 2 * N * d + 2 * N * d * k - 2 * C * d * (k - 1)
    assert words("resident_keys", 2048, d, 64**3) == 658_560
    for C in (0, 10, 148):  # (9.3), for C < N
        assert costs.resident_keys(600, d, Br=300, places=C + 1).peak == 2 * C * d + 300 * (2 * d + 3) + d
    assert 2 * 148 * d + 300 * (2 * d + 3) + d <= M < 2 * 149 * d + 300 * (2 * d + 3) + d
    free = {Br: M - costs.flash_optimal(600, d, Br=Br, Bc=1).peak for Br in (155, 300)}
    assert free[300] == 19_004 and free[155] == pytest.approx(2 * free[300], rel=0.001)
    says("9.4", "half as many words are free, but in both passes")
    says("9.4", "W = 2Nd + 2Nd,k - 2Cd,(k - 1)", "2Cd + B_r(2d + 3) + d")


def test_p_as_a_gift_is_worth_a_fifth_below_the_border_and_nothing_above():
    for x in (0.7, 1, 1.3):
        own, gift = (sweeps.min_cost(task, x) for task in ("backward", "given"))
        assert gift.cost == pytest.approx(min(4 * x * x + 4, 14 * x * x)) and gift.cost < own.cost
    assert (4 * 2 + 4) / (5 * 2 + 5) == 8 / 10 == 0.8
    assert sweeps.min_cost("given", 0.6).terms == sweeps.min_cost("backward", 0.6).terms == (14, 0, 0)


def test_with_a_billion_words_b3_is_the_best_of_the_library():
    every = {s.name: words(s.name, 8192, 128, 10**9) for s in schedules.of_pass("backward")}
    assert every["fused_backward"] == min(every.values())


def test_the_new_schedule_of_9_3_moves_what_its_text_says():
    N, d = 64, 8
    rng = np.random.default_rng(9)
    Q, K, V, dO = rng.standard_normal((4, N, d))
    LSE = schedules.saved_for_backward(Q, K, V)["LSE"]
    ledger = run(my_whole_backward, M=6 * N * d, Q=Q, K=K, V=V, dO=dO, LSE=LSE, Br=1).ledger
    assert ledger.total == 7 * N * d + N == whole_backward(N, d, Br=1).total
    assert ledger.peak == whole_backward(N, d, Br=1).peak <= given(N, d, 1)
    assert bounds.lower_bound("backward", N, d, 6 * N * d)[0] == 7 * N * d
    says("9.5", "$4Nd + B_r(3d + 2N + 6)$")


def test_b6_of_9_10_moves_what_its_formula_says_and_its_second_sweep_is_exact():
    N, d, M = 64, 8, 100
    space = {"np": np}
    exec(SECOND.code("def dQ_sweep("), space)
    Q, K, V, dO = np.random.default_rng(6).standard_normal((4, N, d))
    leaves = schedules.saved_for_backward(Q, K, V)
    D = (dO * leaves["O"]).sum(axis=1)
    ledger = run(my_keys_sweep, M=M, Q=Q, K=K, V=V, dO=dO, LSE=leaves["LSE"], D=D, Bc=2).ledger
    blocks = ceil(N / 2)
    assert ledger.total == 4 * N * d + (2 * N * d + 2 * N) * blocks + N * N == keys_sweep(N, d, Bc=2).total
    assert ledger.peak == keys_sweep(N, d, Bc=2).peak == 2 * (4 * d + 1) + 2 * d + 2
    done = run(space["dQ_sweep"], M=M, dS=np.eye(N), K=K, Br=10)
    assert np.allclose(done.outputs, K / sqrt(d)) and done.ledger.peak == 10 * (d + 1) + d
    SECOND.says(
        "9.10", "$B_c(4d + 2) + 2d + 4$", r"W = 4Nd + (2Nd + 2N)\left\lceil \frac N{B_c} \right\rceil + N^2"
    )


def test_the_room_of_9_4_holds_two_rows_of_scores():
    for case in find("9D").cases(np.random.default_rng(0)):
        N, d = case.inputs["Q"].shape
        assert min(case.inputs["Bc"], N) * (4 * d + 2) + 2 * d + 4 == case.M


def test_the_backward_ratios_of_9_7_are_about_2_between_a_quarter_and_4_d_squared_and_largest_at_2nd():
    N, d = 8192, 64
    sizes = [round(2 ** (k / 4)) for k in range(16, 85)]
    found = {gap.M: gap for gap in schedules.optimality_gaps("backward", N, d, sizes)}
    wide = [M for M, gap in found.items() if gap.ratio > 1.98 and gap.schedule != "fused_backward"]
    assert (min(wide), max(wide)) == (d * d // 4, 4 * d * d)
    assert all(found[M].ratio > 1.98 for M in sizes if min(wide) <= M <= max(wide))
    assert found[2 * N * d].ratio == max(gap.ratio for gap in found.values()) and 2 * N * d == 256 * d * d
    fused = schedules.fused_backward
    assert found[2 * N * d].schedule == fused.name and ceil(N / fused.tiles(N, d, 2 * N * d)["Bc"]) == 3


def test_the_forward_traffic_of_9_1_is_compulsory_from_a_little_over_2nd():
    N, d = 8192, 64
    least = {share: schedules.best(N, d, int(share * N * d)).cost.total for share in (1, 2, 2.05, 4)}
    assert least[1] > 7 * N * d and least[2] > 5 * N * d
    assert least[2.05] == least[4] == 4 * N * d


def test_the_leading_constants_in_the_table_of_9_8():
    N, d = 2**22, 4096
    (forward,) = schedules.optimality_gaps("forward", N, d, [d * d])
    assert forward.words / N**2 == pytest.approx(4, abs=0.02) and round(forward.bound / N**2, 1) == 2.1
    assert round(forward.ratio, 1) == 1.9
    at = [int(share * d * d) for share in (0.5, 0.75, 1, 4 / 3, 2, 2.5)]
    backward = schedules.optimality_gaps("backward", N, d, at)
    assert {gap.bound_id for gap in backward} == {"C"}
    assert all(2.05 < gap.ratio < 2.25 for gap in backward)
    assert {gap.schedule for gap in backward} == {"weights_stored", "score_gradients_stored"}
    N, d = 8192, 64
    around = schedules.optimality_gaps("forward", N, d, [N * d * tenth // 10 for tenth in range(6, 20)])
    assert round(max(gap.ratio for gap in around), 1) == 1.9 and {gap.schedule for gap in around} == {
        "resident_keys"
    }


def test_the_small_memory_constants_of_9_8():
    """Split-d backward pass compared with bound C', schedules that receive P with C'', in small memory."""
    N, d, M = 2**30, 2**20, 2**12
    unit = N * N * d // int(sqrt(M))
    assert bounds.BOUNDS["C'"](N, d, M) / unit == pytest.approx(4 + 3 * sqrt(3), rel=0.01)
    assert bounds.BOUNDS["C''"](N, d, M) / unit == pytest.approx(8, rel=0.01)
    for name, constant in (("small_cache_backward", 10), ("small_cache_precomputed", 8)):
        assert words(name, N, d, M) / unit == pytest.approx(constant, rel=0.06)


def test_keys_that_are_values_need_half_of_theorem_a_in_9_11():
    N, d, M = 2**36, 1024, 1024**3
    unit = (N * d) ** 2 / M
    assert words("shared_key_value", N, d, M) / unit == pytest.approx(2, rel=0.02)
    assert bounds.theorem_tied(N, d, M) / unit == pytest.approx(2, rel=0.02)
    assert words("shared_key_value", N, d, M) < bounds.theorem_A(N, d, M) / 1.9
    N, M = 2**20, 64**3
    assert bounds.theorem_tied(N, 64, M) >= 2 * N**2 * 64**2 // (M + 64**2) - (M + 64**2)
    SECOND.says("9.11", r"W \ge \frac{2N^2d^2}{M + d^2} - (M + d^2)", "(5.11) is the line that fails")


def test_the_chips_of_9_9_want_the_orders_that_its_text_names():
    N, d = 8192, 128
    signs = {}
    for pass_ in NAMED:
        for chip, M in CHIPS.items():
            sign, least = counted(N, d, M, pass_)
            signs[pass_, chip] = sign
            if (pass_, chip) != ("forward", "stm32"):
                assert my_envelope(N, d, M, pass_)[0] == sign
            if (pass_, chip) != ("forward", "sm"):
                assert schedules.best(N, d, M, pass_).cost.total == least
    tied = envelope(N, d, CHIPS["stm32"], "forward")
    assert tied["F3"] == tied["F7"] < tied["F5"]
    assert schedules.best(N, d, CHIPS["sm"]).schedule.name == "resident_keys"
    assert [signs["forward", chip] for chip in CHIPS] == ["F5", "F7", "F3", "F3"]
    assert [signs["backward", chip] for chip in CHIPS] == ["B5", "B7", "B4", "B3"]
    assert CHIPS["stm32"] == d * d == 4 * 64**2 and CHIPS["l2"] == 25 * N * d
    assert [counted(N, 64, CHIPS["stm32"], pass_)[0] for pass_ in NAMED] == ["F3", "B4"]


def test_your_schedule_on_the_l2_cache_stays_at_the_bound():
    N, d = 8192, 128
    rows = {name: (N, d) for name in ("Q", "K", "V", "dO")}
    ledger = run(my_whole_backward, M=CHIPS["l2"], dry=True, **rows, LSE=(N,), Br=16).ledger
    assert ledger.total < 1.002 * bounds.lower_bound("backward", N, d, CHIPS["l2"])[0]


def test_the_tiles_of_9_12_fit_a_multiprocessor():
    N, d, M = 8192, 128, CHIPS["sm"]
    best = costs.flash_optimal(N, d, Br=(M - d) // (2 * d + 3), Bc=1)
    Br = (M - 64 * d) // (2 * d + 2 + 64) // 16 * 16
    assert max(best.peak, costs.flash_optimal(N, d, Br=Br, Bc=64).peak) <= M


# ---------------------------------------------------------------------- exercises
def test_the_reference_envelope_is_the_exercise_s():
    for pass_ in NAMED:
        for N, d, M in (
            (8192, 64, 100),
            (8192, 64, 5000),
            (8192, 64, 10**5),
            (8192, 64, 10**7),
            (30, 90, 85),
        ):
            by_name = envelope(N, d, M, pass_)
            sign, least = my_envelope(N, d, M, pass_)
            assert least == pytest.approx(min(by_name.values())) and by_name[sign] == min(by_name.values())


def test_the_cases_of_9_2_have_every_schedule_as_best_and_no_ties():
    for seed in range(20):
        cases = find("9B").cases(np.random.default_rng(seed))
        assert {case.expected[0] for case in cases} == {"F3", "F5", "F7", "B3", "B4", "B5", "B6", "B7"}
        for case in cases:
            by_name = sorted(envelope(**case.inputs).values())
            assert by_name[1] > 1.002 * by_name[0], case.label


def test_among_the_cases_of_9_2_f3_is_best_below_its_border_too():
    """For N much smaller than d the boundary is not at d²."""
    for seed in range(20):
        cases = find("9B").cases(np.random.default_rng(seed))
        assert any(c.expected[0] == "F3" and c.inputs["M"] < 0.5 * c.inputs["d"] ** 2 for c in cases)


def test_every_property_of_9_2_is_asked_of_some_case():
    """A property that selects no case would hold for every answer."""
    for prop in find("9B").properties[1:10]:
        for seed in range(5):
            cases = find("9B").cases(np.random.default_rng(seed))
            assert prop.judge([Trial(case, value=("none", 1.0)) for case in cases]), prop.name


def test_the_cases_of_9_1_mislead_whoever_takes_the_first_the_nearest_or_the_fewest_sweeps():
    for seed in range(20):
        for case in find("9A").cases(np.random.default_rng(seed)):
            words_, path = my_cheapest(**case.inputs)
            assert (
                words_
                == pytest.approx(case.expected)
                == sum(lesson09.words_of(sweep, case.inputs["x"]) for sweep in path)
            )
    later, longer = (lesson09.LATER, lesson09.LONGER)
    assert my_cheapest(later, 1, "inputs", "outputs")[0] == 5 < 17
    assert len(my_cheapest(longer, 1, "inputs", "outputs")[1]) == 3


def test_the_room_of_9_3_holds_no_square_of_scores():
    for seed in range(20):
        for case in find("9C").cases(np.random.default_rng(seed))[:2]:
            N, d = case.inputs["Q"].shape
            assert case.M - 4 * N * d < N * N


def test_the_widget_has_a_cell_of_its_own_in_the_students_notebook():
    notebook = json.loads((ROOT / "lessons" / "09_memory_regimes.ipynb").read_text(encoding="utf-8"))
    assert ["explore.traffic_explorer()"] in [cell["source"] for cell in notebook["cells"]]
