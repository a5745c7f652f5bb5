"""Tests of the gaps between the best schedule and the best bound: recomputed for every row."""

import json
from contextlib import redirect_stdout
from io import StringIO

import pytest

from iocourse.bounds import lower_bound
from iocourse.cli import main
from iocourse.schedules import (
    REGISTRY,
    against_bound,
    best,
    best_given_weights,
    optimality_gap_table,
    optimality_gaps,
)

N = 2**22


@pytest.mark.parametrize("pass_", ["forward", "backward", "gradient"])
def test_a_gap_is_the_best_schedule_over_the_best_bound(pass_):
    d, at = 64, [64**2 // 4, 64**2, 64**3]
    found = optimality_gaps(pass_, N, d, at)
    assert [gap.M for gap in found] == at
    for gap in found:
        chosen = best(pass_, N, d, gap.M)
        assert (gap.schedule, gap.words) == (chosen.schedule.name, chosen.cost.total)
        assert (gap.bound, gap.bound_id) == lower_bound(pass_, N, d, gap.M, given_weights=False)
        assert gap.ratio == gap.words / gap.bound >= 1


def test_where_P_is_handed_over_both_sides_know_it():
    d, M = 4096, 4096
    (own,), (given,) = (optimality_gaps("backward", N, d, [M], given_weights=told) for told in (False, True))
    assert not REGISTRY[own.schedule].given_weights and REGISTRY[given.schedule].given_weights
    assert given.words < own.words and given.bound < own.bound
    assert (own.bound_id, given.bound_id) == ("C'", "C''")
    assert best_given_weights("backward", N, d, M).cost.total == given.words
    with pytest.raises(
        ValueError, match=r"^no backward schedule with P as an input fits in M = 2 with N = 8, d = 4"
    ):
        best_given_weights("backward", 8, 4, 2)


@pytest.mark.parametrize(("name", "id"), [("small_cache_backward", "C'"), ("standard_backward", "C''")])
def test_a_schedule_knows_whether_it_is_handed_P(name, id):
    found = against_bound(name, N, 4096, 4096)
    assert found.bound_id == id and found.ratio >= 1
    assert run_cli(name)["bound_id"] == id


def run_cli(name):
    """Return the JSON object that `iocourse count NAME --json` prints."""
    with redirect_stdout(StringIO()) as said:
        assert main(["count", name, "--N", str(N), "--d", "4096", "--M", "4096", "--json"]) == 0
    return json.loads(said.getvalue())


def test_whole_rows_ask_for_theorem_E():
    found = against_bound("split_backward", N, 64, 64**3, whole_rows=True)
    assert found.bound_id == "E" and 1 <= found.ratio < 1.05
    assert against_bound("split_backward", N, 64, 64**3).bound_id == "C"


def test_the_best_may_be_somebody_elses():
    def rows(pass_, N, d, M):
        chosen = best(pass_, N, d, M)
        split = REGISTRY["split_backward"]
        tiles = split.tiles(N, d, M)
        return chosen._replace(schedule=split, tiles=tiles, cost=split.cost(N, d, **tiles))

    (gap,), (least,) = (optimality_gaps("backward", N, 64, [2048], chooser=choose) for choose in (rows, None))
    assert gap.schedule == "split_backward" and gap.words > least.words and gap.bound == least.bound


def test_the_table_shows_every_gap():
    found = optimality_gaps("backward", N, 256, [256**2, 256**3])
    lines = optimality_gap_table(found, 256).splitlines()
    assert lines[0].split() == ["M", "M/d²", "schedule", "words", "bound", "by", "ratio"]
    for line, gap in zip(lines[1:], found, strict=True):
        assert line.split() == [
            *(f"{gap.M:,}", f"{gap.M / 256**2:.2f}", gap.schedule, f"{gap.words:,}", f"{gap.bound:,}"),
            *(gap.bound_id, f"{gap.ratio:.2f}"),
        ]


def test_at_d_squared_the_backward_pass_is_open_by_a_factor_of_two_and_a_half_at_most():
    (gap,) = optimality_gaps("backward", N, 256, [256**2])
    assert gap.ratio <= 2.5


def test_for_small_caches_with_P_handed_over_at_most_16_percent_are_open():
    (gap,) = optimality_gaps("backward", N, 4096, [4096], given_weights=True)
    assert gap.ratio <= 1.16
