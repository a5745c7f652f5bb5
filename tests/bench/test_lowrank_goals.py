"""Verdicts on goals, computed from made-up records, without torch."""

import sys
from pathlib import Path

import pytest

from tools.bench.lowrank.goals import JUDGED, MISSED, REACHED, UNKNOWN, best_against_script, goals
from tools.bench.lowrank.text import text

sys.path.append(str(Path(__file__).parents[1] / "explore"))
from fake_lowrank_record import PUBLISHED, degree, record, row, time


def of(what, **facts):
    (found,) = [one for one in goals(record(**facts)) if one["what"].startswith(what)]
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
        # the most accurate one that takes less time than the script, 20 / (0.9 · 9.43) = 2.357 ms
        ([degree(2, 1.9, 4, ms=1.0), degree(3, 0.3, 4, ms=2.3), degree(4, 0.1, 4, ms=2.4)], REACHED, 3),
        ([degree(2, 1.9, 4, ms=2.4), degree(3, 0.3, 4, ms=2.5)], MISSED, 2),
        ([degree(2, 2.1, 4, ms=0.1)], MISSED, 2),  # speed does not make up for an error
        ([degree(2, 2.005, 4, ms=0.1)], MISSED, 2),  # as large as the script's is not below
        ([degree(2, 2.1, 4, ms=0.1), degree(3, 2.0, 4, ms=2.3)], REACHED, 3),
    ],
)
def test_a_row_needs_both_by_one_degree(degrees, verdict, g):
    rows = [row(8, *degrees)]
    found = of("error and time below the script's, d = 8, n = 2,560", rows=rows)
    assert (found["wanted"], found["verdict"]) == ("< 2.005 % in < 2.36 ms", verdict)
    assert found["reached"].endswith(f"(g = {g})") and best_against_script(rows[0])["g"] == g


def test_the_script_is_judged_by_the_smaller_of_its_two_errors():
    rows = [row(8, degree(2, 1.9, 4, ms=1.0), their_softmax_error=1.0)]
    found = of("error and time", rows=rows)
    assert (found["wanted"], found["verdict"]) == ("< 1.000 % in < 2.36 ms", MISSED)


def test_every_published_row_has_a_goal_and_no_quotient_has_one():
    found = [one["what"] for one in goals(record())]
    rows = [what for what in found if what.startswith("error and time")]
    assert [what.split("d = ")[1] for what in rows] == [f"{d}, n = {10 * 2**d:,}" for d in PUBLISHED]
    assert not any("×" in one["wanted"] + one["reached"] for one in goals(record()))


@pytest.mark.parametrize(("ms", "verdict"), [(300, REACHED), (301, MISSED)])
def test_a_million_tokens_in_three_tenths_of_a_second_on_two_threads(ms, verdict):
    rows = [time("ours", 12, 3, 2**20, threads, "forward+backward") | {"ms": ms * (1 + (threads == 1))}
            for threads in (1, 2)]  # fmt: skip
    assert of("2²⁰ tokens", scaling=rows)["verdict"] == verdict
    assert of("2²⁰ tokens", scaling=rows[:1])["verdict"] == UNKNOWN


@pytest.mark.parametrize(("exponent", "verdict"), [(1.05, REACHED), (1.0501, MISSED)])
def test_the_largest_exponent_of_ours_counts(exponent, verdict):
    fits = record()["fits"]
    fits[2]["exponent"] = exponent
    found = of("exponents of ours", fits=fits)
    assert found["verdict"] == verdict and found["reached"].startswith(f"{exponent:.3f}")
    assert of("exponents of ours", fits=[fit | {"to": 2**16} for fit in fits])["verdict"] == UNKNOWN


def test_memory_is_compared_with_what_it_must_hold():
    assert of("peak memory")["verdict"] == REACHED
    memory = record()["memory"]
    assert of("peak memory", memory=memory | {"ratio": 1.51})["verdict"] == MISSED
    assert of("peak memory", memory={"n": 1, "refused": "why"})["verdict"] == UNKNOWN


@pytest.mark.parametrize(("error", "verdict"), [(0.64, REACHED), (0.65, MISSED)])
def test_causal_is_judged_by_the_usual_error_of_o(error, verdict):
    """The usual error of O is a quarter of the made-up error; only the longest row of d = 12 counts."""
    rows = [row(12, degree(2, 9, 1e5), degree(3, error, 75)), row(12, degree(3, 9, 75), n=4096)]
    assert of("causal", rows=rows)["verdict"] == verdict
    assert of("causal", causal=[])["verdict"] == UNKNOWN


# --- the same record as text -------------------------------------------------------------------------------


def test_what_was_not_measured_or_refused_is_printed():
    assert "refused" in text(record()) and "its process grew by 0 MB" in text(record())
    refused = record(memory={"n": 2**20, "d": 12, "g": 3, "held": 100, "refused": "made up: no room"})
    assert "not measured, made up: no room" in text(refused)


def test_the_text_has_every_section_and_ends_its_goals_with_what_they_mean():
    shown = text(record())
    heads = ("forward", "gradient", "causal", "causal_gradient", "scaling", "contenders", "goals")
    assert [part.split()[0] for part in shown.split("\n\n") if part.split()[0] in heads] == list(heads)
    assert shown.index(JUDGED[0]) > shown.index("goals")
    for said in ("quotients over the fastest exact run", "error of softmax, in the published metric",
                 "chosen after measuring", "every check"):  # fmt: skip
        assert any(said in sentence for sentence in JUDGED)


def test_a_busy_machine_is_reported():
    said = "other programs were running at the start (load 3.4, 2 cores)"
    assert said in text(record(load=3.4)) and "too large" in text(record(load=3.4))
    for load in (0.0, 1.2, None):
        assert "other programs" not in text(record(load=load))
