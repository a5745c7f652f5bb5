"""Tests of lessons 09 and 09b: their formulas, statements and exercises."""

import json
from math import sqrt

import numpy as np
import pytest
from lesson_source import ROOT, Lesson

from iocourse import bounds, costs, run, schedules, sweeps
from iocourse.course.exercise import Trial, find
from iocourse.course.exercises import lesson09
from iocourse.course.exercises.lesson09 import envelope, given, keys_sweep, whole_backward
from tools.build import latex
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


def min_cost(task, x):
    return sweeps.min_cost(task, x).cost


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
def test_the_table_of_sweeps_of_9_2_is_the_exercise_s_and_the_library_s():
    """The table contains every useful pass of the forward computation, as an exhaustive search confirms."""
    space = {}
    exec(SOURCE.code("FORWARD = {"), space)
    assert space["FORWARD"] == lesson09.FORWARD
    for M in (0.55, 0.8, 0.99, 1.01, 2, 50):  # in units of d²; below d²/2 slices are best
        words, _ = my_cheapest(lesson09.FORWARD, M**-0.5, "inputs", "outputs")
        assert words == pytest.approx(sweeps.min_cost("forward", M**-0.5).cost)


TABLES = {  # section 9.2: the column of M, that of the pass, and the borders in units of d²
    "forward": (0, 1, [1, 1 / 2, 1 / 4]),
    "backward": (2, 3, [5 / 2, 4 / 3, 1 / 2, 1 / 4]),
    "given": (2, 4, [5 / 2, 1 / 2, 1 / 4]),
}


@pytest.mark.parametrize("task", TABLES)
def test_the_table_of_9_2_is_what_the_search_finds(task):
    at, column, borders = TABLES[task]
    pieces = sweeps.lower_envelope(task, 0.25, 4)
    assert [1 / piece.x_to**2 for piece in pieces[:-1]] == pytest.approx(borders)
    shown = [row for row in SOURCE.table("9.2", at, column) if row[1] and row[1] != "the same"][1:]
    for piece, (_, words) in zip(pieces, shown, strict=True):
        x = (piece.x_from + piece.x_to) / 2
        assert latex.read(words.split("$")[-1]).value({"x": x}) == pytest.approx(min_cost(task, x))


def test_slices_win_6_percent_at_most_over_the_eight_forms():
    for slices, whole_width, tiles in (((1.5, 3), (2, 2), (4, 1)), ((4, 7), (5, 5), (10, 3))):
        x = np.linspace(sqrt(2), 2, 10_001)
        with_slices = slices[0] * x**2 + slices[1]
        without = np.minimum(whole_width[0] * x**2 + whole_width[1], tiles[0] * x + tiles[1])
        assert 0.05 < (1 - with_slices / without).max() < 0.06


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
    sizes = {"N": N, "d": d, "b": b, "R1": one, "R2": two, "R3": three, "R4": four}
    shown = {label.split(",")[0]: latex.read(words) for label, words in SOURCE.table("9.3", 0, 1)[1:]}
    assert shown.keys() == exactly.keys()
    for label, ledger in exactly.items():
        statistics = sum(
            n for name, n in (*ledger.reads.items(), *ledger.writes.items()) if name in ("LSE", "D")
        )
        assert ledger.total - statistics == shown[label].value(sizes), label


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
    assert ledger.total == keys_sweep(N, d, Bc=2).total
    assert ledger.peak == keys_sweep(N, d, Bc=2).peak == 2 * (4 * d + 1) + 2 * d + 2
    done = run(space["dQ_sweep"], M=M, dS=np.eye(N), K=K, Br=10)
    assert np.allclose(done.outputs, K / sqrt(d)) and done.ledger.peak == 10 * (d + 1) + d
    SECOND.says("9.10", "$B_c(4d + 2) + 2d + 4$")


def test_the_room_of_9_4_holds_two_rows_of_scores():
    for case in find("9D").cases(np.random.default_rng(0)):
        N, d = case.inputs["Q"].shape
        assert min(case.inputs["Bc"], N) * (4 * d + 2) + 2 * d + 4 == case.M


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
    (shown,) = (line for line in SECOND.text.splitlines() if r"\tag{9.5}" in line)
    formula = latex.read(shown.removeprefix(r"$$ W \ge ").partition(" . ")[0])
    for N in (13_000, 2**20):
        least = bounds.theorem_tied(N, 64, 64**3)
        assert 0.9 * least < formula.value({"N": N, "d": 64, "M": 64**3}) <= least
    SECOND.says("9.11", "(5.11) is the line that fails")


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
