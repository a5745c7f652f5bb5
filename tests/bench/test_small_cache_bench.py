"""`small-cache` of `tools.bench gpu`, no GPU: shapes, goals, and its whole path on a tiny problem."""

import math

import pytest
from fake_gpu import by_contender, holds_numbers, measured

from iocourse.data.records import format_record
from tools.bench import contests, problems
from tools.bench.contest import Shape

torch = pytest.importorskip("torch")

STEP, GOALS = contests.CONTESTS["small-cache"], contests.GOALS["small-cache"]


def test_every_head_size_of_the_issue_with_whole_heads():
    asked = STEP.shapes(False)
    assert len(asked) == len(set(asked)) == 4 * STEP.layout.shapes == 4 * 3 * 2
    assert {(one.d, one.H) for one in asked} == {(256, 8), (320, 6), (512, 4), (1024, 2)}
    assert set(STEP.shapes(True)) < set(asked)


def test_goals_are_those_agreed():
    by = {(goal.where["pass"], goal.where["d"]): goal for goal in GOALS}
    assert {key: (goal.goal, goal.floor) for key, goal in by.items()} == {
        ("forward", 512): (1.8, 1.3),
        ("backward", 512): (4.49, 3.5),
    }
    assert {(goal.rival, goal.shapes) for goal in GOALS} == {("SDPA efficient", 6)}


def test_ours_in_every_way_beside_its_rivals_on_the_cpu(interpreter, place):
    field = problems.of_small_cache(place)
    ways = ["default", "whole rows", "fused split-d", "materialised"]
    assert list(field) == [*ways, "SDPA efficient", "SDPA flash", "SDPA math"]
    record = measured("small-cache", [Shape("float16", 24, 24, 1, 1, True)], field, place)
    assert holds_numbers(record)
    for pass_ in ("forward", "backward", "forward+backward"):
        rows = by_contender(record, pass_)
        assert all("ms" in rows[name] for name in (*ways, "SDPA math")), pass_
        assert rows["SDPA efficient"]["refused"] and rows["default"]["ratio"] is None
    flop = 4 * 24 * 24 * 24 / 2
    assert math.isclose(by_contender(record, "backward")["fused split-d"]["tflops"], 2.5 * flop / 1e18)
    assert {row["contender"] for row in record["errors"]} >= set(ways)
    assert all(row["worst_block"] < 0.002 for row in record["errors"])
    assert [one["verdict"] for one in record["goals"]] == ["not judged: 0 of 6 shapes have both times"] * 2
    said = format_record(record)
    assert "materialised" in said and said.splitlines()[-1].startswith("no GPU but a test (sm_90), Python ")


def test_a_way_that_does_not_exist_and_matrices_that_do_not_fit_say_so(interpreter, place):
    from iocourse.kernels.host.checks import LARGEST_WHOLE

    place.free = 0
    field = problems.of_small_cache(place)
    some = {name: field[name] for name in ("whole rows", "materialised", "SDPA math")}
    shape = Shape("float16", LARGEST_WHOLE + 8, 16, 1, 1, False)
    rows = by_contender(measured("small-cache", [shape], some, place), "forward")
    assert rows["whole rows"]["refused"].startswith(
        f"ValueError: q must have head size d from 1 to 512 here, got d = {shape.d}"
    )
    for name in ("materialised", "SDPA math"):
        assert rows[name]["refused"].startswith("its N × N matrices need about ")


def test_each_way_is_asked_for_by_name(interpreter, place, monkeypatch):
    from iocourse import kernels

    asked = []
    monkeypatch.setattr(kernels, "attention", lambda q, k, v, **options: asked.append(options))
    field = problems.of_small_cache(place)
    q = torch.zeros(1, 1, 1, 1)
    for name in ("default", *problems.BY_TILE_D.values()):
        field[name](q, q, q, True)
    ways = ({}, *({"tile_d": way} for way in ("never", "fused", "materialised")))
    assert asked == [{"causal": True} | way for way in ways]
