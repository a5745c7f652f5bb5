"""Lesson 09: its formulas, what it says of the map in words, and its exercises' own ground."""

import json
from itertools import pairwise
from math import ceil, sqrt

import numpy as np
import pytest
from lesson_source import ROOT, Lesson

from iocourse import bounds, costs, masks, run, schedules
from iocourse.bench import ratios
from iocourse.course.authoring.source import side
from iocourse.course.exercise import Trial, find
from iocourse.course.exercises.lesson09 import envelope, given, whole_backward
from iocourse.explore.facts.memory_map import crossover

SOURCE = Lesson("09")
says = SOURCE.says

NAMED = {
    "forward": {"F3": "flash_optimal", "F5": "small_cache", "F6": "small_cache_fused"},
    "backward": {"B3": "fused_backward", "B4": "split_backward", "B5": "small_cache_backward"},
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


def solution(exercise_id):
    """The reference of an exercise, as it stands in the solved notebook."""
    namespace = {}
    for cell in SOURCE.cells:
        if "setup" in cell.tags or cell.name == f"ex-{exercise_id}":
            exec("\n".join(side(cell, solved=True)), namespace)
    return namespace[find(exercise_id).function]


my_envelope, my_smallest_memory, my_whole_backward = (solution(f"9.{k}") for k in (1, 2, 3))


# ---------------------------------------------------------------------- section by section
def test_inside_the_regimes_of_9_1_the_gap_stays_below_a_half():
    N, d, gaps = 8192, 64, {}
    for M in (round(2 ** (k / 2)) for k in range(8, 47)):
        gaps[M] = counted(N, d, M, "forward")[1] / bounds.lower_bound("forward", N, d, M)[0]
    assert min(gaps) == 16 and round(max(gaps, key=gaps.get) / d**2, 2) == 0.71
    assert max(gaps[M] for M in gaps if 32768 <= M <= 92682 or 64 <= M <= 512) < 1.5


def test_below_16_words_no_tile_of_9_1_is_wider_than_3():
    below = [schedules.small_cache.tiles(8192, 64, M) for M in range(5, 17)]
    assert max(tiles[rows] for tiles in below for rows in ("Br", "Bc")) == 3
    assert {below[-1]["Br"], below[-1]["Bc"]} == {2, 3}


def closed_forms(N, d, M, pass_):
    """The table of section 9.2 with ceilings, at the block sizes of (9.1) as whole rows."""
    n, b = N * d, max(1, int(sqrt(M)))
    if pass_ == "forward":
        Br = max(1, M // (2 * d))
        return {
            "F3": 2 * n + 2 * n * ceil(N / Br),
            "F5": n + 3 * n * ceil(N / b) + N * N * (1 + ceil(d / b)),
        }
    Br, Bc = max(1, M // (3 * d)), max(1, M // (4 * d))
    return {
        "B3": 5 * n + 4 * n * ceil(N / Bc),
        "B4": 8 * n + 2 * n * ceil(N / Br) + 2 * n * ceil(N / Bc),
        "B5": 5 * n + 7 * n * ceil(N / b) + 3 * N * N * (1 + ceil(d / b)),
    }


@pytest.mark.parametrize(("N", "d", "M"), [(90, 8, 400), (37, 5, 1000), (64, 8, 49), (200, 12, 90)])
def test_the_table_of_section_9_2_is_the_closed_forms_without_statistics(N, d, M):
    b = int(sqrt(M))
    exactly = {
        "F3": costs.flash_optimal(N, d, Br=max(1, M // (2 * d)), Bc=1),
        "F5": costs.small_cache(N, d, Br=b, Bc=b, Bd=b),
        "B3": costs.fused_backward(N, d, Br=1, Bc=max(1, M // (4 * d))),
        "B4": costs.split_backward(N, d, Br1=max(1, M // (3 * d)), Bc1=1, Br2=1, Bc2=max(1, M // (4 * d))),
        "B5": costs.small_cache_backward(N, d, Br=b, Bc=b, Bm=b, Bd=b),
    }
    for sign, shown in (closed_forms(N, d, M, "forward") | closed_forms(N, d, M, "backward")).items():
        ledger = exactly[sign]
        statistics = sum(
            n for name, n in (*ledger.reads.items(), *ledger.writes.items()) if name in ("LSE", "D")
        )
        assert ledger.total - statistics == shown, sign


def test_the_forms_of_section_9_2_are_the_ones_shown():
    says("9.2", r"$2Nd + 2Nd\lceil N/B_r\rceil$", r"$Nd + 3Nd\lceil N/b\rceil + N^2(1 + \lceil d/b\rceil)$")
    says("9.2", r"$5Nd + 4Nd\lceil N/B_c\rceil$", r"$8Nd + 2Nd\lceil N/B_r\rceil + 2Nd\lceil N/B_c\rceil$")
    says("9.2", r"$5Nd + 7Nd\lceil N/b\rceil + 3N^2(1 + \lceil d/b\rceil)$", r"\max(1, x)")


def test_the_envelope_of_9_3_is_wrong_once_and_never_names_too_few_words():
    factors, wrong = {}, []
    for pass_ in NAMED:
        for N in LENGTHS:
            for M in MEMORIES:
                guess, by_guess = my_envelope(N, 64, M, pass_)
                sign, least = counted(N, 64, M, pass_)
                wrong += [sign] if guess != sign else []
                factors[pass_, N, M] = least / by_guess
    assert len(factors) == 238 and wrong == ["F6"] and round(min(factors.values()), 2) == 1.0
    pass_, N, M = max(factors, key=factors.get)
    assert pass_ == "forward" and counted(N, 64, M, pass_)[1] == 6 * N * 64
    assert my_envelope(N, 64, M, pass_)[1] == 4 * N * 64


def test_the_borders_of_section_9_3():
    forward = [my_envelope(N, 64, M, "forward")[0] for N in LENGTHS for M in MEMORIES]
    assert forward == (["F5"] * 4 + ["F3"] * 13) * len(LENGTHS)
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


def test_the_smallest_memory_of_9_4_is_the_smallest():
    N, d, shares = 8192, 128, (1, 1.5, 2, 4, 8, 16)
    M = [my_smallest_memory(N, d, int(times * 4 * N * d)) for times in shares]
    assert 3.9 < 2 * M[0] / 2**20 < 4.1 and M[1] / M[0] == pytest.approx(0.5, abs=0.01)
    assert all(0.4 < small / large < 0.5 for large, small in pairwise(M[2:]))
    for least, times in zip(M, shares, strict=True):
        assert words("flash_optimal", N, d, least) <= times * 4 * N * d
        assert words("flash_optimal", N, d, least - 1) > times * 4 * N * d


def test_the_backward_border_of_9_5_is_where_the_counts_cross():
    x = 1 / sqrt(crossover("backward"))
    assert 14 * x * x - 10 * x - 3 == pytest.approx(0, abs=1e-9)
    border = [counted(2**22, 4096, int(share * 4096**2), "backward")[0] for share in (1.11, 1.15)]
    at_64 = [counted(8192, 64, int(share * 64**2), "backward")[0] for share in (1.18, 1.24)]
    assert border == at_64 == ["B5", "B4"]


def test_with_a_billion_words_b3_is_the_best_of_the_library():
    every = {s.name: words(s.name, 8192, 128, 10**9) for s in schedules.of_pass("backward")}
    assert every["fused_backward"] == min(every.values())


def test_keeping_the_scores_spares_a_fifth():
    """10 N²d/√M without P, 8 with it, to leading order."""
    N, d, M = 2**20, 4096, 1024
    b0, b5 = (words(name, N, d, M) for name in ("standard_backward", "small_cache_backward"))
    assert b0 / b5 == pytest.approx(0.8, abs=0.02)


def test_the_new_schedule_of_9_3_moves_what_its_text_says():
    N, d = 64, 8
    rng = np.random.default_rng(9)
    Q, K, V, dO = rng.standard_normal((4, N, d))
    LSE = schedules.forward_leaves(Q, K, V)["LSE"]
    ledger = run(my_whole_backward, M=6 * N * d, Q=Q, K=K, V=V, dO=dO, LSE=LSE, Br=1).ledger
    assert ledger.total == 7 * N * d + N == whole_backward(N, d, Br=1).total
    assert ledger.peak == whole_backward(N, d, Br=1).peak <= given(N, d, 1)
    assert bounds.lower_bound("backward", N, d, 6 * N * d)[0] == 7 * N * d
    says("9.5", "$4Nd + B_r(3d + 2N + 6)$")


def test_the_gradient_border_of_9_6_and_a_causal_mask_at_both_ends():
    x = 1 / sqrt(crossover("gradient"))
    assert 10 * x * x - 8 * x - 3 == pytest.approx(0, abs=1e-9)
    N, d, part = 8192, 64, {}
    for M in (16384, 2_000_000):
        causal = schedules.against_bound("block_sparse", N, d, M, mask=masks.Causal(N))
        part[M] = causal.words / words("flash_optimal", N, d, M)
    assert 0.5 < part[16384] < 0.52 and part[2_000_000] == 1


def test_every_goal_of_9_8_is_met():
    found = {claim: comparison.ratio for claim, comparison in ratios.comparisons()}
    assert all(ratio <= claim.goal for claim, ratio in found.items() if claim.goal is not None)
    assert [claim.recompute for claim in found][:3] == [True, False, True]
    assert "print(ratios.show(ratios.run(quick=True)))" in SOURCE.source


def test_the_issue_asks_for_these_ratios():
    for name, N, d, M, most, recompute in (
        ("flash_optimal", 8192, 64, 58368, 1.20, True),
        ("flash_optimal", 8192, 64, 16384, 1.10, False),
        ("small_cache", 2**20, 4096, 16384, 1.10, True),
        ("split_backward", 32768, 64, 64 * 64**2, 1.45, True),
    ):
        assert schedules.against_bound(name, N, d, M, recompute=recompute).ratio <= most


def test_the_leading_constants_in_the_table_of_9_8():
    N, d = 2**22, 4096
    at_border = counted(N, d, int(0.7 * d * d), "forward")[1]
    assert at_border / N**2 == pytest.approx(6, abs=0.4)
    assert 1.9 < at_border / bounds.lower_bound("forward", N, d, int(0.7 * d * d))[0] < 2.2
    backward, least = counted(N, d, d * d, "backward")[1], bounds.lower_bound("backward", N, d, d * d)[0]
    assert backward / N**2 == pytest.approx(13, abs=0.5) and least < 5 * N**2


def test_the_chips_of_9_9_want_the_orders_that_its_text_names():
    N, d = 8192, 128
    signs = {}
    for pass_ in NAMED:
        for chip, M in CHIPS.items():
            sign, least = counted(N, d, M, pass_)
            signs[pass_, chip] = sign
            assert my_envelope(N, d, M, pass_)[0] == sign
            assert schedules.best(N, d, M, pass_).cost.total == least
    assert [signs["forward", chip] for chip in CHIPS] == ["F5", "F3", "F3", "F3"]
    assert [signs["backward", chip] for chip in CHIPS] == ["B5", "B5", "B4", "B3"]
    assert CHIPS["stm32"] == d * d == 4 * 64**2 and CHIPS["l2"] == 25 * N * d
    assert [counted(N, 64, CHIPS["stm32"], pass_)[0] for pass_ in NAMED] == ["F3", "B4"]


def test_your_schedule_on_the_l2_cache_stays_at_the_bound():
    N, d = 8192, 128
    rows = {name: (N, d) for name in ("Q", "K", "V", "dO")}
    ledger = run(my_whole_backward, M=CHIPS["l2"], dry=True, **rows, LSE=(N,), Br=16).ledger
    assert ledger.total < 1.002 * bounds.lower_bound("backward", N, d, CHIPS["l2"])[0]


def test_the_tiles_of_9_10_fit_a_multiprocessor():
    N, d, M = 8192, 128, CHIPS["sm"]
    best = costs.flash_optimal(N, d, Br=(M - d) // (2 * d + 3), Bc=1)
    Br = (M - 64 * d) // (2 * d + 2 + 64) // 16 * 16
    assert max(best.peak, costs.flash_optimal(N, d, Br=Br, Bc=64).peak) <= M


# ---------------------------------------------------------------------- the exercises' own ground
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


def test_the_cases_of_9_1_have_every_schedule_as_best_and_no_ties():
    for seed in range(20):
        cases = find("9.1").cases(np.random.default_rng(seed))
        assert {case.expected[0] for case in cases} == {"F3", "F5", "B3", "B4", "B5"}
        for case in cases:
            by_name = sorted(envelope(**case.inputs).values())
            assert by_name[1] > 1.002 * by_name[0], case.label


def test_among_the_cases_of_9_1_f3_is_best_below_its_border_too():
    """For N well below d the border is not at 0.69 d²."""
    for seed in range(20):
        cases = find("9.1").cases(np.random.default_rng(seed))
        assert any(c.expected[0] == "F3" and c.inputs["M"] < 0.5 * c.inputs["d"] ** 2 for c in cases)


def test_every_property_of_9_1_is_asked_of_some_case():
    """A property of some cases that meets none would hold for anybody."""
    for prop in find("9.1").properties[1:7]:
        for seed in range(5):
            cases = find("9.1").cases(np.random.default_rng(seed))
            assert prop.judge([Trial(case, value=("none", 1.0)) for case in cases]), prop.name


def test_the_memory_of_9_2_is_the_smallest_of_all_blocks():
    for seed in range(3):
        for case in find("9.2").cases(np.random.default_rng(seed)):
            N, d, W = (case.inputs[name] for name in ("N", "d", "W"))
            if N > 10**4:
                continue
            every = (costs.flash_optimal(N, d, Br=Br, Bc=1) for Br in range(1, N + 1))
            assert case.expected == min(ledger.peak for ledger in every if ledger.total <= W)


def test_the_room_of_9_3_holds_no_square_of_scores():
    for seed in range(20):
        for case in find("9.3").cases(np.random.default_rng(seed))[:2]:
            N, d = case.inputs["Q"].shape
            assert case.M - 4 * N * d < N * N


def test_the_widget_has_a_cell_of_its_own_in_the_students_notebook():
    notebook = json.loads((ROOT / "lessons" / "09_the_map.ipynb").read_text(encoding="utf-8"))
    assert ["explore.memory_explorer()"] in [cell["source"] for cell in notebook["cells"]]
