"""Tests of lessons 07 and 07b: their formulas, statements, proof and exercises."""

import warnings
from itertools import product
from math import sqrt

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import bounds, costs, exact, run, schedules, sweeps
from iocourse.course import explore
from iocourse.course.checking import judge
from iocourse.course.exercise import NotReached, find
from iocourse.course.exercises.lesson07 import FORMS, MASKED, best_plan
from iocourse.course.explore.models.memory_states import memory_states, totals
from iocourse.course.points import points_of
from iocourse.machine import probabilities
from tests.mutation.references import build, exercise_source
from tools.build import latex

LESSON, SECOND = Lesson("07_small_caches"), Lesson("07b_input_gradient")


def at(name, N, d, M):
    schedule = schedules.get(name)
    return schedule.cost(N, d, **schedule.tiles(N, d, M))


def squares(name, N, d, M):
    return at(name, N, d, M).total / N**2


# ---------------------------------------------------------------------- the best schedule for each M
def test_the_search_finds_the_four_schedules_of_section_7_6_at_their_borders():
    pieces = sweeps.lower_envelope("forward", 0.5, 4)
    assert [piece.x_to for piece in pieces] == pytest.approx([1, sqrt(2), 2, 4])
    for piece, (words,) in zip(pieces, LESSON.table("7.6", 3)[1:], strict=True):
        x = (piece.x_from + piece.x_to) / 2
        assert latex.read(words).value({"x": x}) == pytest.approx(sweeps.min_cost("forward", x).cost)


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("flash_optimal", (1, 4)),
        ("scores_stored", (0.5, 1)),
        ("scores_stored_tiled", (0.26, 0.49)),
        ("small_cache", (1 / 64, 1 / 16, 1 / 4)),
    ],
)
def test_the_leading_terms_of_the_search_are_those_of_the_closed_forms(name, shares):
    N, d = 2**26, 2**14
    for share in shares:
        leading = sweeps.min_cost("forward", share**-0.5).cost
        assert squares(name, N, d, int(share * d * d)) == pytest.approx(leading, rel=0.004)


@pytest.mark.parametrize(("k", "x"), [(1, 1.1), (1, 1.3), (2, 1.8), (2, 2.2), (3, 3.0)])
def test_F5_with_k_reads(k, x):
    N, d = 2**24, 2**13
    M = int((d / x) ** 2)
    Br = k * M // d
    f5 = costs.small_cache(N, d, Br=Br, Bc=M // Br, Bd=d // k + 1)
    assert f5.total / N**2 == pytest.approx(2 * x**2 / k + 2 * k + 1, rel=0.01)
    assert f5.peak == pytest.approx(M, rel=0.01)


# ---------------------------------------------------------------------- statements in the text
def test_a_row_of_F4_is_lost_where_its_largest_score_exceeds_the_limit():
    Q, K, V = np.random.default_rng(7).standard_normal((3, 32, 8))
    S = exact.scores(1000 * Q, K)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        O = run(schedules.square_tiling, M=64, Q=1000 * Q, K=K, V=V, B=4).O
    finite = np.isfinite(O).all(axis=1)
    assert finite.sum() == 1 and (finite == (S.max(axis=1) < 709.78)).all()


def test_step_4_of_the_proof_is_the_one_shown():
    SECOND.says("7.10", r"\frac{\sqrt{n_s},(R - n_s)}{2} + \frac{(R - n_s)^2}{16d}")


def test_the_pictures_of_sections_7_7_and_7_12_show_what_the_text_reads_off_them():
    names = ["square_tiling", "small_cache", "scores_stored", "scores_stored_tiled", "flash_optimal"]
    assert f"shown = {names}".replace("'", '"') in " ".join(LESSON.code("shown = [").split())
    picture = explore.traffic_vs_memory(2**16, 1024, names, (2**8, 2**22))
    assert "flash_optimal needs 3,075 words and is drawn from there" in picture.alt
    for stored in ("scores_stored", "scores_stored_tiled"):
        assert f"{stored} needs {2 * 1024 + 3:,} words and is drawn from there" in picture.alt
    small = [*names[:2], "small_cache_fused"]
    fall = {n: squares(n, 2**16, 1024, 2**10) / squares(n, 2**16, 1024, 2**14) for n in small}
    assert all(3.8 < factor < 4.3 for factor in fall.values())
    for M in (2**8, 2**10, 2**14, 2**18, 2**20):  # the fused line is above, except near d² = 2**20
        fused, stored = (squares(n, 2**16, 1024, M) for n in ("small_cache_fused", "small_cache"))
        assert (fused > stored) == (M < 2**20)
    steep = squares("flash_optimal", 2**16, 1024, 2**14) / squares("flash_optimal", 2**16, 1024, 2**18)
    assert 16 < steep < 20
    just_below, beyond = ({n: squares(n, 2**16, 1024, M) for n in [*names, *small]} for M in (2**19, 2**22))
    assert just_below["scores_stored"] == pytest.approx(min(just_below.values()), rel=1e-3)
    assert all(beyond[n] > 2 * beyond["flash_optimal"] for n in beyond if n != "flash_optimal")


GRADIENTS = {  # name: fractions of d² at which it is best
    "gradient": (1.6, 2, 4),
    "gradient_dp_materialised": (1.02, 1.2, 1.45),
    "gradient_scores_materialised": (0.55, 0.75, 0.95),
    "gradient_small_cache": (1 / 64, 1 / 8),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_which_gradient_is_least_where_and_its_words(name):
    n, d = 2**40, 2**13
    for share in GRADIENTS[name]:
        M = int(share * d * d)
        assert schedules.best(n, d, M, "gradient").schedule.name == name
        leading = sweeps.min_cost("gradient", share**-0.5).cost
        assert squares(name, n, d, M) == pytest.approx(leading, rel=0.035)


def test_the_table_of_section_7_9_is_what_the_search_finds():
    pieces = sweeps.lower_envelope("gradient", 0.25, 4)
    assert [1 / piece.x_to**2 for piece in pieces[:-1]] == pytest.approx([1.5, 1, 0.5, 0.25])
    rows = SECOND.table("7.9", 2, 3)[1:]
    for piece, (stored, words) in zip(pieces, rows, strict=True):
        x = (piece.x_from + piece.x_to) / 2
        assert latex.read(words).value({"x": x}) == pytest.approx(sweeps.min_cost("gradient", x).cost)
        written = {matrix for sweep in piece.sweeps for matrix in sweep.written}
        assert bool(written) == (stored != "nothing")


def test_all_products_of_section_7_10_take_all_12_words():
    names = {"np": np, "bounds": bounds, "measured": lambda question, **numbers: None}
    exec(SECOND.code("def both_kinds"), names)
    most = names["most"]
    assert most[12] == 8 > most[11]
    assert all(most[R] <= bounds.all_products_per_segment(R, 1) for R in range(1, 13))


# ---------------------------------------------------------------------- exercises
def test_the_masked_case_of_7E_has_a_gradient_of_its_own():
    for seed in range(5):
        case = find("7E").cases(np.random.default_rng(seed))[-1]
        arrays = {name: value for name, value in case.inputs.items() if name not in ("forward", "backward")}
        assert case.has(MASKED) and not np.allclose(case.expected, exact.grad_x(**arrays), rtol=0.01)


def test_every_schedule_of_7D_is_somewhere_the_best():
    for seed in range(10):
        cases = find("7D").cases(np.random.default_rng(seed))
        names = {best_plan(*(case.inputs[key] for key in "NdM")).name for case in cases}
        assert names == set(FORMS)


def test_the_best_plan_is_the_best_of_all_tiles():
    N, d = 7, 5
    sizes = {"Br": range(1, N + 1), "Bc": range(1, N + 1), "Bo": range(1, N + 1), "Bd": range(1, d + 1)}
    every = [
        form(N, d, **dict(zip(names, tiles, strict=True)))
        for form, names in FORMS.values()
        for tiles in product(*(sizes[name] for name in names))
    ]
    for M in (5, 6, 9, 13, 20, 35, 45, 60, 200):
        assert best_plan(N, d, M).ledger.total == min(ledger.total for ledger in every if ledger.peak <= M)


def test_a_plan_of_7D_that_does_not_fit_is_not_praised_for_few_words():
    verdicts = judge(find("7D"), lambda N, d, M: ("flash_optimal", {"Br": N, "Bc": 1}), 0)
    said = dict(verdicts)["no plan that fits moves fewer words"]
    assert isinstance(said, NotReached) and said.startswith("flash_optimal {")
    assert points_of(find("7D"), verdicts).total < 0.2 * find("7D").importance


def test_the_calls_of_7E_count_only_if_the_gradient_depends_on_their_results():
    def calls_in_vain(X, A1, A2, A3, Y, E, forward, backward):
        backward(A1 @ X, A2, A3 @ Y, forward(A1 @ X, A2, A3 @ Y))
        return A1.T @ (A1 @ X - E)

    def stops_at_dQ(X, A1, A2, A3, Y, E, forward, backward):
        Q, V = A1 @ X, A3 @ Y
        return Q.T @ backward(Q, A2, V, forward(Q, A2, V) - E)[0]

    points = [points_of(find("7E"), judge(find("7E"), one, 0)) for one in (calls_in_vain, stops_at_dQ)]
    assert [one.traffic for one in points] == [0, points[1].traffic_of] and points[0].total == 0


def test_messages_on_stored_scores_count_all_scores():
    line = "                    with m.load(S, (0, i.size), j) as s"
    again = "                    m.load(S, (0, i.size), j).free()\n" + line
    twice = exercise_source("7C", solved=True).replace(line, again)
    said = dict(judge(find("7C"), build("7C", twice), 0))["S is read once"]
    assert said.startswith("S is read 2 times (") and "expected at most once (" in said


def test_rows_of_two_arrays_never_fit_in_the_room_of_7C():
    for seed in range(20):
        for case in find("7C").cases(np.random.default_rng(seed)):
            (N, d), Br = case.inputs["Q"].shape, case.inputs["Br"]
            assert costs.flash_optimal(N, d, Br=Br).peak > case.M


def test_whole_rows_never_fit_in_the_room_of_7A():
    for seed in range(20):
        for case in find("7A").cases(np.random.default_rng(seed)):
            N, d = case.inputs["Q"].shape
            Br, Bc = (min(case.inputs[name], N) for name in ("Br", "Bc"))
            assert case.M == Br * Bc + Br + Bc < Br * Bc + (Br + Bc) * d


# ---------------------------------------------------------------------- 7.11, a schedule to repair
def body(source):
    """Return the lines of a function after its docstring."""
    return source.split('"""\n', 2)[-1].split("\n\n\n")[0].splitlines()


def test_the_student_repairs_the_schedule_that_the_evidence_is_of():
    """After the line that raises, the exercise's cell contains exactly the code with the faults."""
    stub = body(exercise_source("7F", solved=False))
    assert stub[1].strip() == "raise NotImplementedError"
    assert stub[2:] == body(SECOND.code("def as_found"))


def as_found():
    space = {"np": np, "run": run, "exact": exact, "probabilities": probabilities}
    exec(SECOND.code("def as_found"), space)
    return space["found"], costs.scores_stored_tiled(space["N"], space["d"], **space["tiles"])


def test_the_schedule_as_found_has_two_faults_and_right_values():
    found, closed_form = as_found()
    assert (found.ledger - closed_form).lines() == [
        "LSE read 96×, closed form says 1×",
        "peak of fast memory 512 words, closed form says 320",
    ]
    assert found.ledger.reads["LSE"] == found.ledger.reads["S"] == 4608


def test_the_timeline_shows_the_tile_that_never_leaves():
    found, closed_form = as_found()
    held = [totals(state) for state in memory_states(found.ledger.moves)]
    second_half = next(n for n, kinds in enumerate(held) if "S" in kinds)
    assert {kinds.get("Q") for kinds in held[second_half:-1]} == {16 * 16}
    assert max(kinds.get("Q", 0) for kinds in held) == closed_form.peak + 192 == 512
    mended = run(schedules.scores_stored_tiled, M=closed_form.peak, **drawn(), Br=16, Bo=24, Bd=8)
    held = [totals(state) for state in memory_states(mended.ledger.moves)]
    second_half = next(n for n, kinds in enumerate(held) if "S" in kinds)
    assert not any("Q" in kinds for kinds in held[second_half:])


def drawn():
    return dict(zip("QKV", np.random.default_rng(7).standard_normal((3, 48, 16)), strict=True))


def test_each_fault_alone_is_refused_in_the_room_of_7F():
    """The last queries and the output do not fit together in some case; two query blocks, in another."""
    found = [(*(case.inputs[b] for b in ("Br", "Bo", "Bd")), *case.inputs["Q"].shape, case.M)
             for case in find("7F").cases(np.random.default_rng(0))]  # fmt: skip
    assert any(Br * d + Bo * Bd + 2 * Bo + Bd > M for Br, Bo, Bd, N, d, M in found if max(Br, Bo) <= N)
    assert any(2 * Br * d > M for Br, Bo, Bd, N, d, M in found if 2 * Br <= N)
    assert any(d > Bd for Br, Bo, Bd, N, d, M in found)


def test_the_schedule_as_found_is_worth_nothing_and_half_repaired_a_third():
    """Of the three properties that the faults violate, the half without the spare tile has one."""
    exercise, most = find("7F"), find("7F").importance
    reference = exercise_source("7F", solved=True)
    stub = exercise_source("7F", solved=False).replace("    raise NotImplementedError\n", "")
    half = stub.replace("LSE, i)\n    for i", "LSE, i)\n        q.free()\n    for i")
    assert half != stub
    answers = (build("7F", one) for one in (stub, half, reference))
    points = [points_of(exercise, judge(exercise, one, 0)).total for one in answers]
    assert points[0] == 0 and points[1] == pytest.approx(most / 3) and points[2] == most
