"""Verdicts on goals, computed from made-up records, without torch."""

import sys
from pathlib import Path

import pytest

from tools.bench.lowrank.goals import JUDGED, MISSED, NEAR, REACHED, UNKNOWN, chosen, goals
from tools.bench.lowrank.text import text

sys.path.append(str(Path(__file__).parents[1] / "explore"))
from fake_lowrank_record import PUBLISHED, degree, record, row, time


def verdicts(**facts):
    return {one["what"]: one for one in goals(record(**facts))}


def of(what, **facts):
    (found,) = [one for name, one in verdicts(**facts).items() if name.startswith(what)]
    return found


def test_errors_are_reproduced_to_every_digit_or_not():
    assert of("their algorithm")["verdict"] == REACHED
    rows = [row(4, degree(2, 1, 2)), row(8, degree(2, 1, 2), their_error=2.0061)]
    found = of("their algorithm", rows=rows)
    assert (found["reached"], found["verdict"]) == ("1 of 2 rows", MISSED)
    assert of("their algorithm", forward=[])["verdict"] == UNKNOWN


@pytest.mark.parametrize(
    ("degrees", "verdict", "g"),
    [
        # the most accurate fast one
        ([degree(2, 1.9, 40), degree(3, 0.3, 10), degree(4, 0.1, 5)], REACHED, 3),
        ([degree(2, 1.9, 8.4), degree(3, 0.3, 7)], NEAR, 2),  # the script: 8.487×, published 9.43×
        ([degree(2, 1.9, 8.5), degree(3, 0.3, 7)], REACHED, 2),
        ([degree(2, 1.9, 6.3)], MISSED, 2),
        ([degree(2, 2.1, 100)], MISSED, None),  # speed does not make up for an error
        ([degree(2, 2.005, 100)], MISSED, None),  # as large as the script's is not below
    ],
)
@pytest.mark.parametrize("section", ["forward", "gradient"])
def test_a_row_needs_both_by_one_degree(section, degrees, verdict, g):
    rows = [row(8, *degrees)]
    found = next(one for one in goals(record(rows=rows)) if one["what"].startswith(f"{section}: "))
    assert found["verdict"] == verdict
    assert ("no degree" in found["reached"]) if g is None else found["reached"].endswith(f"(g = {g})")
    best = chosen(rows[0], "worst", 2.005, 0.9 * 9.43)
    assert (best and best["g"]) == g


def test_rows_are_counted_beside_the_script_of_the_same_run():
    """Made up: the script takes 20 / 8.487 = 2.36 ms at d = 8; its published ratio is not used."""
    rows = [row(8, degree(2, 1.9, 9, ms=2.3), degree(3, 0.3, 8, ms=2.4), degree(4, 2.1, 99, ms=0.1))]
    found = {one["what"][9:17]: one for one in goals(record(rows=rows)) if "than the script" in one["what"]}
    assert {g: one["reached"] for g, one in found.items()} == {
        "degree 2": "1 of 1 rows, a smaller error in 1",
        "degree 3": "0 of 1 rows, a smaller error in 1",
        "degree 4": "0 of 1 rows, a smaller error in 0",
    }
    assert [one["verdict"] for one in found.values()] == [REACHED, MISSED, MISSED]
    assert all(
        one["verdict"] == UNKNOWN for one in goals(record(forward=[])) if "than the script" in one["what"]
    )


def test_a_gradient_is_judged_by_the_scripts_forward_pass():
    """Its limits are those of the forward row of the same d, not those in the gradient's row."""
    gradient = row(8, degree(3, 1.0, 9), their_error=0.001, their_ms=1e-9)
    (found,) = [one for one in goals(record(rows=[row(8, degree(2, 1, 2))], gradient=[gradient]))
                if one["what"].startswith("gradient")]  # fmt: skip
    assert (found["wanted"], found["verdict"]) == ("< 2.005 % at > 8.49×", REACHED)


@pytest.mark.parametrize(
    ("error", "speedup", "verdict"),
    [(0.09, 240, REACHED), (0.09, 239, NEAR), (0.05, 180, NEAR), (0.05, 179, MISSED), (0.0901, 1e4, MISSED)],
)
def test_an_error_is_not_negotiable_and_a_speed_up_has_a_floor(error, speedup, verdict):
    rows = [row(12, degree(3, error, speedup))]
    found = of("forward, d = 12, g = 3", rows=rows)
    assert (found["wanted"], found["verdict"]) == ("≤ 0.09 % at ≥ 240×", verdict)
    assert found["reached"] == f"{error:.3f} % at {speedup:.4g}×"


@pytest.mark.parametrize(("speedup", "verdict"), [(290, REACHED), (217.5, NEAR), (217, MISSED)])
def test_both_passes_are_judged_by_their_own_speed_up_and_say_their_worst_error(speedup, verdict):
    gradient = [row(12, degree(3, 0.7, speedup, forward_speedup=1e4, judged_error=0.1))]
    found = of("forward+backward, d = 12, g = 3", gradient=gradient)
    assert (found["wanted"], found["verdict"]) == ("≥ 290×", verdict)
    assert found["reached"] == f"0.700 % at {speedup:.4g}×"


def test_a_row_that_was_not_measured_is_no_verdict():
    found = goals(record(rows=[row(4, degree(2, 1, 2))]))
    asked = [one for one in found if one["what"].startswith(("forward, d =", "forward+backward, d ="))]
    assert [one["verdict"] for one in asked] == [UNKNOWN] * 8
    assert [one["verdict"] for one in found if one["what"].startswith("causal")] == [UNKNOWN] * 2


@pytest.mark.parametrize(("ms", "verdict"), [(300, REACHED), (301, NEAR), (399, NEAR), (401, MISSED)])
def test_a_million_tokens_in_three_tenths_of_a_second_on_two_threads(ms, verdict):
    rows = [time("ours", 12, 3, 2**20, threads, "forward+backward") | {"ms": ms * (1 + (threads == 1))}
            for threads in (1, 2)]  # fmt: skip
    assert of("2²⁰ tokens", scaling=rows)["verdict"] == verdict
    assert of("2²⁰ tokens", scaling=rows[:1])["verdict"] == UNKNOWN


@pytest.mark.parametrize(("exponent", "verdict"), [(1.05, REACHED), (1.0501, MISSED)])
def test_the_largest_exponent_of_ours_counts(exponent, verdict):
    fits = record()["fits"]
    fits[2]["exponent"] = exponent
    found = of("largest exponent", fits=fits)
    assert found["verdict"] == verdict and found["reached"].startswith(f"{exponent:.3f}")
    assert of("largest exponent", fits=[fit | {"to": 2**16} for fit in fits])["verdict"] == UNKNOWN


def test_memory_is_held_against_what_it_must_hold():
    assert of("peak memory")["verdict"] == REACHED
    memory = record()["memory"]
    assert of("peak memory", memory=memory | {"ratio": 1.5})["verdict"] == MISSED
    assert of("peak memory", memory={"n": 1, "refused": "why"})["verdict"] == UNKNOWN


@pytest.mark.parametrize(("error", "verdict"), [(0.64, REACHED), (0.65, MISSED)])
def test_causal_is_judged_by_the_usual_error_of_o(error, verdict):
    rows = [row(12, degree(2, 9, 1e5), degree(3, error, 75))]  # error / 4 of O; forward 1.1 times as fast
    found = [one for one in goals(record(rows=rows)) if one["what"].startswith("causal")]
    assert [one["verdict"] for one in found] == [verdict] * 2


def test_a_row_is_judged_by_softmax_and_not_by_the_published_operator():
    softmax_fails = row(8, degree(2, 2.1, 100, their_error=0.1, their_operator_ms=1e-4))
    operator_fails = row(8, degree(2, 0.1, 100, their_error=9.0, their_operator_ms=1e4))
    for rows, verdict in (([softmax_fails], MISSED), ([operator_fails], REACHED)):
        found = [one for one in goals(record(forward=rows)) if one["what"].startswith("forward")]
        assert {one["verdict"] for one in found if one["what"].endswith("d = 8")} == {verdict}


def test_every_row_of_a_record_is_judged_twice():
    found = [one["what"] for one in goals(record())]
    for d in PUBLISHED:
        assert sum(what.endswith(f", d = {d}") and ": " in what for what in found) == 2


# --- the same record as text -------------------------------------------------------------------------------


def test_what_was_skipped_refused_or_extrapolated_is_said():
    skipped = row(12, degree(3, 0.08, 120), in_place_ms=None, in_place_note="skipped at n = 40,960: made up")
    shown = text(record(rows=[skipped]))
    assert "in place: skipped at n = 40,960: made up" in shown
    assert "extrapolated, not measured: SDPA, d = 12, 1 thread, forward+backward at 2²⁰: 109,951 s" in shown
    assert "extrapolated, not measured: ours" not in shown
    assert "refused" in shown and "GPU" not in shown
    refused = record(memory={"n": 2**20, "d": 12, "g": 3, "refused": "made up: no room"})
    assert "not measured, made up: no room" in text(refused)


def test_the_text_ends_its_goals_with_what_they_mean():
    assert text(record()).index(JUDGED[0]) > text(record()).index("goals")
    for said in ("error of softmax in the published metric", "only baseline", "chosen after measuring",
                 "fixed costs of our checks"):  # fmt: skip
        assert any(said in sentence for sentence in JUDGED)


def test_a_busy_machine_is_owned_up_to():
    said = "other programs were running at the start (load 3.4, 2 cores)"
    assert said in text(record(load=3.4)) and "too large" in text(record(load=3.4))
    for load in (0.0, 1.2, None):
        assert "other programs" not in text(record(load=load))
