"""Lesson 07: the formulas it shows, what it says in words, its proof, and its exercises' own ground."""

import warnings
from math import exp, isclose, sqrt

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import bounds, costs, exact, explore, run, schedules
from iocourse.course.exercise import find
from iocourse.course.exercises.lesson07 import MASKED, best_plan, gradient_cases, plan_cases, small_cases

LESSON = Lesson("07_small_caches")
says = LESSON.says


def at(name, N, d, M):
    schedule = schedules.get(name)
    return schedule.cost(N, d, **schedule.tiles(N, d, M))


def squares(name, N, d, M):
    return at(name, N, d, M).total / N**2


def constant(name, N, d, M):
    return at(name, N, d, M).total * sqrt(M) / (N**2 * d)


# ---------------------------------------------------------------------- formulas
SIZES = [(64, 8, 5, 7, 3), (7, 3, 2, 5, 4), (1, 1, 1, 1, 1), (9, 12, 20, 30, 5), (30, 10, 4, 4, 4)]


@pytest.mark.parametrize(("N", "d", "Br", "Bc", "Bd"), SIZES)
def test_formulas_7_1_to_7_4(N, d, Br, Bc, Bd):
    i, j, k = -(-N // Br), -(-N // Bc), -(-d // Bd)
    r, c, e = min(Br, N), min(Bc, N), min(Bd, d)
    made = costs.matmul(N, N, d, bm=Br, bn=Bc)
    assert (made.total, made.peak) == (N * d * j + N * d * i + N * N, r * c + r + c)
    f4 = costs.square_tiling(N, d, B=Br)
    assert f4.total == 2 * N * d * i + N * N + 2 * N + N * N * -(-d // Br) + N * d * i + N * d
    f5 = costs.small_cache(N, d, Br=Br, Bc=Bc, Bd=Bd)
    assert f5.total == N * d * j + 2 * N * d * i + N * N * (1 + k) + N * d
    assert f5.peak == max(r * c + c + 3 * r, r * e + e + 2 * r)
    f6 = costs.small_cache_fused(N, d, Br=Br, Bc=Bc)
    assert (f6.total, f6.peak) == (N * d * (3 * j - 1 + 2 * i), r * c + 4 * r + c)


def test_formulas_7_1_to_7_4_are_the_ones_shown():
    keys = r"Nd\left\lceil \frac{N}{B_c} \right\rceil + Nd\left\lceil \frac{N}{B_r} \right\rceil + N^2"
    says("7.2", keys, "footprint } B_rB_c + B_r + B_c ,")
    says("7.3", r"2Nd\left\lceil \frac NB \right\rceil + N^2 + 2N + N^2\left\lceil \frac dB \right\rceil")
    says("7.4", r"2Nd\left\lceil \frac N{B_r} \right\rceil}_{K,,V}", "B_rB_c + B_c + 3B_r")
    says("7.4", r"N^2 + N^2\left\lceil \frac d{B_d} \right\rceil}_{S}", "B_rB_d + B_d + 2B_r")
    says("7.5", r"3\left\lceil \frac N{B_c} \right\rceil - 1 + 2\left\lceil \frac N{B_r} \right\rceil")
    says("7.5", "footprint } B_rB_c + 4B_r + B_c .")


def test_F6_is_cheapest_with_three_columns_for_two_rows():
    ratios = {c: 3 / sqrt(c) + 2 * sqrt(c) for c in np.arange(0.5, 3, 0.01).round(2)}
    assert min(ratios, key=ratios.get) == 1.5  # Bc/Br, with BrBc fixed
    assert ratios[1.5] == pytest.approx(2 * sqrt(6))


def test_formulas_7_5_and_7_6():
    assert isclose(4 * ((1 + sqrt(2)) / 2) ** 2, 4 * (1 + sqrt(2)) / 2 + 1)
    for x in np.linspace(0.5, 4, 50):
        assert isclose(2 * x**2 + 3 - 2 * sqrt(6) * x, 2 * (x - sqrt(1.5)) ** 2, abs_tol=1e-9)
        lower = x**2 + 5 < 2 * sqrt(6) * x
        assert lower == (sqrt(6) - 1 < x < sqrt(6) + 1)
    x = sqrt(1.5)
    assert isclose(2 * x**2 + 3, 6) and isclose(2 * sqrt(6) * x, 6) and isclose(4 * x**2, 6)


def continuous_F5(x):
    """(7.3) in units of N², N large and sizes any numbers: u = d·Br/M, and a score is read ⌈u⌉ times."""
    best_u = ((k, min(max(sqrt(2) * x, k - 1 + 1e-12), k)) for k in range(1, 40))
    return min(u + 2 * x * x / u + 1 + k for k, u in best_u)


def with_k_reads(x):
    return min((2 * x * x / k + 2 * k + 1, k) for k in range(1, 40))


def test_formula_7_6_is_the_best_F5_and_says_how_often_a_score_is_read():
    for share in np.linspace(0.02, 0.99, 98):
        x = 1 / sqrt(share)
        words, k = with_k_reads(x)
        assert words == pytest.approx(continuous_F5(x), rel=1e-9)
        assert 1 / (k * (k + 1)) <= share * 1.0001 and share * k * (k - 1) <= 1.0001
    says("7.6", "$2 - 2x^2/(k(k+1))$", "M > d^2/2", "down to $M = d^2/6$")


def test_the_three_stretches_of_section_7_6():
    border = 1 / (sqrt(6) - 1) ** 2
    for share in np.linspace(0.01, 1, 400):
        x = 1 / sqrt(share)
        words = {"F3": 4 * x * x, "F5": with_k_reads(x)[0], "F6": 2 * sqrt(6) * x}
        found = "F5" if share < border else "F6" if share < 2 / 3 else "F3"
        assert min(words, key=words.get) == found
        real = {**words, "F5": 4 * x + 1}
        assert min(real, key=real.get) == ("F3" if x < (1 + sqrt(2)) / 2 else "F5")


def test_near_two_thirds_F5_and_F6_differ_by_less_than_a_thousandth():
    N, d = 2**22, 4096
    for share in (0.63, 0.64, 0.65, 0.66, 0.667):
        f5, f6 = (squares(n, N, d, int(share * d * d)) for n in ("small_cache", "small_cache_fused"))
        assert 1 <= f5 / f6 < 1.001
    names = [schedules.best(2**26, d, int(share * d * d)).schedule.name for share in (0.63, 0.66)]
    assert names == ["small_cache_fused", "small_cache"]


@pytest.mark.parametrize(("k", "x"), [(1, 1.1), (1, 1.3), (2, 1.8), (2, 2.2), (3, 3.0)])
def test_formula_7_6_is_F5_with_k_reads(k, x):
    N, d = 2**24, 2**13
    M = int((d / x) ** 2)
    Br = k * M // d
    f5 = costs.small_cache(N, d, Br=Br, Bc=M // Br, Bd=d // k + 1)
    assert f5.total / N**2 == pytest.approx(2 * x**2 / k + 2 * k + 1, rel=0.01)
    assert f5.peak == pytest.approx(M, rel=0.01)


# ---------------------------------------------------------------------- what the text says in words
def test_where_fast_memory_is_small_naive_attention_moves_less_than_F3():
    N, d = 4096, 64
    f3, naive = ({M: squares(n, N, d, M) for M in (2048, 1024, 256)} for n in ("flash_optimal", "naive"))
    assert f3[2048] < naive[2048] and f3[1024] > naive[1024] and f3[256] > naive[256]
    assert [schedules.flash_optimal.tiles(N, d, M)["Br"] for M in (1024, 512, 256)] == [7, 3, 1]
    assert schedules.flash_optimal.smallest_M(N, d) == 3 * d + 3
    made = costs.matmul(N, N, d, bm=30, bn=32)
    assert made.peak <= 1024 and 3 * made.total < at("flash_optimal", N, d, 1024).total


def test_a_row_of_F4_is_lost_where_its_largest_score_exceeds_the_limit():
    Q, K, V = np.random.default_rng(7).standard_normal((3, 32, 8))
    S = exact.scores(1000 * Q, K)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        O = run(schedules.square_tiling, M=64, Q=1000 * Q, K=K, V=V, B=4).O
    finite = np.isfinite(O).all(axis=1)
    assert finite.sum() == 1 and (finite == (S.max(axis=1) < 709.78)).all()
    assert exp(-745) > 0 == exp(-746)


def test_how_often_F5_reads_a_score_and_that_safety_costs_no_words():
    square, best = (
        costs.small_cache(4096, 64, Br=Br, Bc=Bc, Bd=Bd) for Br, Bc, Bd in ((30, 30, 30), (29, 31, 32))
    )
    assert square.reads["S"] == 3 * 4096**2 and best.reads["S"] == 2 * 4096**2 and best.peak <= 1024
    assert costs.small_cache(32, 8, Br=4, Bc=6, Bd=6).total < costs.square_tiling(32, 8, B=4).total
    least = costs.small_cache(32, 8, Br=1, Bc=1, Bd=1)
    assert least.peak == 5 == schedules.small_cache.smallest_M(10**6, 512)


def test_F6_keeps_no_scores_in_slow_memory():
    f6 = at("small_cache_fused", 4096, 64, 1024)
    assert "S" not in f6.writes and "S" not in f6.sizes


def test_at_64_F3_comes_with_its_21st_row_and_again_with_its_22nd():
    changes, before = [], "small_cache"
    for M in range(2700, 3000):
        choice = schedules.best(2**16, 64, M)
        if choice.schedule.name != before:
            changes.append((choice.schedule.name, choice.tiles["Br"]))
        before = choice.schedule.name
    assert changes == [("flash_optimal", 21), ("small_cache", 42), ("flash_optimal", 22)]
    says("7.6", "21st row", "F5's 42nd", "with its 22nd")


def test_at_d_squared_F3_moves_4_and_F5_5_times_N_squared():
    assert squares("flash_optimal", 2**22, 4096, 4096**2) == pytest.approx(4, rel=0.01)
    whole = costs.small_cache(2**22, 4096, Br=4090, Bc=4090, Bd=4096)
    assert whole.total / 2**44 == pytest.approx(5, rel=0.01) and whole.peak <= 4096**2


def test_up_to_a_factor_of_2_is_open_and_most_at_two_thirds_of_d_squared():
    N, d = 2**20, 4096
    ratios = {}
    for M in (4096, 16384, 65536, d**2 // 4, 2 * d**2 // 3, d**2):
        least, which = bounds.lower_bound("forward", N, d, M)
        ratios[M] = schedules.best(N, d, M).cost.total / least
        assert which == "B'"
    assert max(ratios, key=ratios.get) == 2 * d**2 // 3
    assert ratios[2 * d**2 // 3] == pytest.approx(2, rel=0.005)


def test_the_bounds_are_the_ones_shown():
    """They are evaluated in tests/bounds."""
    says("7.7", r"\frac{4N^2d}{\sqrt M\left(1 + \frac{9\sqrt M}{16d}\right)} - 2M - N^2")
    says("7.7", r"2N^2d/\sqrt M - 2M - N^2", "saha_ye_small", "theta_attention")
    says("7.10", r"\frac{2N^2d}{F_b(M + T)}", r"\frac{\sqrt{n_s},(R - n_s)}{2} + \frac{(R - n_s)^2}{16d}")
    assert bounds.BOUNDS["theta_attention"].status == "asymptotic only"
    assert bounds.BOUNDS["B'"].status == "proved here"


def test_the_bound_is_closer_the_smaller_the_memory_beside_d_squared():
    ratios = []
    for d in (2**12, 2**14, 2**16):
        least = bounds.lower_bound("forward", 2**24, d, 2**16)[0]
        ratios.append(at("small_cache", 2**24, d, 2**16).total / least)
    assert ratios == sorted(ratios, reverse=True) and ratios[-1] < 1.02


def test_the_picture_of_section_7_7_shows_what_the_text_reads_off_it():
    names = ["square_tiling", "small_cache", "small_cache_fused", "flash_optimal"]
    picture = explore.words_against_memory(2**16, 1024, names, (2**8, 2**22))
    assert "flash_optimal needs 3,075 words and is drawn from there" in picture.alt
    fall = {n: squares(n, 2**16, 1024, 2**10) / squares(n, 2**16, 1024, 2**14) for n in names[:3]}
    assert all(3.8 < factor < 4.3 for factor in fall.values())
    steep = squares("flash_optimal", 2**16, 1024, 2**14) / squares("flash_optimal", 2**16, 1024, 2**18)
    assert 16 < steep < 20
    assert squares("small_cache", 2**16, 1024, 2**22) > 1.3 * squares("small_cache_fused", 2**16, 1024, 2**22)


def test_which_gradient_is_best_where():
    assert schedules.gradient_small_cache.tiles(2**22, 256, 2**10) == {"B": 30}
    best = [schedules.best(2**22, 256, 4**k, "gradient").schedule.name for k in range(5, 12)]
    assert best == ["gradient_small_cache"] * 3 + ["gradient"] * 2 + ["gradient_reassociated"] * 2


@pytest.mark.parametrize("M", [2**10, 2**12])
def test_formula_7_11(M):
    for n, d in ((2**26, 2**12), (2**16, 2**12)):
        shown = 8 * n**2 * d / sqrt(M) + 6 * n * d**2 / sqrt(M) + 3 * n**2
        assert at("gradient_small_cache", n, d, M).total == pytest.approx(shown, rel=8 / sqrt(M))
    says("7.9", r"\frac{8n^2d}{\sqrt M} + \frac{6nd^2}{\sqrt M} + 3n^2")


def test_the_constants_of_the_large_gradients_are_10_and_8():
    n, d, M = 2**40, 4096, 2**36
    for name, leading in (("gradient", 10), ("gradient_reassociated", 8)):
        assert at(name, n, d, M).total * M / (n * d) ** 2 == pytest.approx(leading, rel=0.01)
    says("7.9", "10,n^2d^2/M", "8,n^2d^2/M")


def test_X_is_read_nd_words_or_less_above_d_squared():
    n, d = 2**22, 256
    for M in (d * d, 4 * d * d, 64 * d * d):
        assert at("gradient", n, d, M).reads["X"] <= 1.01 * n * d
    small = at("gradient_small_cache", n, d, 2**10).reads["X"]
    assert small == pytest.approx(d / 30 * n * d, rel=0.001)


@pytest.mark.parametrize(("d", "M"), [(4096, 16384), (64, 1024), (8, 4096), (1, 1)])
def test_formula_7_7_follows_from_7_15(d, M):
    most = bounds.all_products_per_segment(3 * M, d)
    assert most <= (M**1.5 + 9 * M * M / (16 * d)) * (1 + 1e-9)


def test_all_products_of_section_7_10_take_all_12_words():
    names = {"np": np, "bounds": bounds}
    exec(LESSON.code("def both_kinds"), names)
    most = names["most"]
    assert most[12] == 8 > most[11]
    assert all(most[R] <= bounds.all_products_per_segment(R, 1) for R in range(1, 13))


# ---------------------------------------------------------------------- the exercises' own ground
def test_the_masked_case_of_7_4_has_a_gradient_of_its_own():
    for seed in range(5):
        case = gradient_cases(np.random.default_rng(seed))[-1]
        arrays = {name: value for name, value in case.inputs.items() if name not in ("forward", "backward")}
        assert MASKED in case.label and not np.allclose(case.expected, exact.grad_x(**arrays), rtol=0.01)


def test_every_schedule_of_7_3_is_somewhere_the_best():
    for seed in range(10):
        cases = plan_cases(np.random.default_rng(seed))
        names = {best_plan(*(case.inputs[key] for key in "NdM")).name for case in cases}
        assert names == {"flash_optimal", "small_cache", "small_cache_fused"}


def test_the_best_plan_is_the_best_of_all_tiles():
    N, d = 7, 5
    for M in (5, 6, 9, 20, 35, 60, 200):
        f5 = [
            costs.small_cache(N, d, Br=a, Bc=b, Bd=c)
            for a in range(1, N + 1)
            for b in range(1, N + 1)
            for c in range(1, d + 1)
        ]
        two = [f(N, d, Br=a, Bc=b) for f in (costs.flash_optimal, costs.small_cache_fused)
               for a in range(1, N + 1) for b in range(1, N + 1)]  # fmt: skip
        least = min(ledger.total for ledger in (*f5, *two) if ledger.peak <= M)
        assert best_plan(N, d, M).ledger.total == least


def test_the_large_scores_of_7_2_would_overflow_without_their_maximum():
    for seed in range(10):
        case = small_cases(np.random.default_rng(seed))[-1]
        S = exact.scores(case.inputs["Q"], case.inputs["K"])
        assert S.max() > 1e4 and S.min() < -1e4 and np.isfinite(case.expected).all()


def test_whole_rows_never_fit_in_the_room_of_7_1():
    for seed in range(20):
        for case in find("7.1").cases(np.random.default_rng(seed)):
            N, d = case.inputs["Q"].shape
            Br, Bc = (min(case.inputs[name], N) for name in ("Br", "Bc"))
            assert case.M == Br * Bc + Br + Bc < Br * Bc + (Br + Bc) * d
