"""`sparse` of `tools.bench gpu`, no GPU: masks, the line, goals, and its whole path on a tiny problem.

What needs CUDA is not covered: compiled FlexAttention and its backward pass, SDPA's memory-efficient kernel.
"""

import dataclasses
import math
from functools import partial

import numpy as np
import pytest
from fake_gpu import LAP, by_contender, holds_numbers, is_wrong, measured

from iocourse import masks
from iocourse.data.records import format_record
from tools.bench import contests, gpu, problems, steps
from tools.bench.contest import DENSITIES, NO_MASK, SHARES, compared, line, lines
from tools.bench.problems import BLOCK, KINDS, booleans, flex_mask, mask_of, masked, pairs_of
from tools.bench.problems import Masked as Shape
from tools.bench.problems import tiles_seen as tiles_of

torch = pytest.importorskip("torch")

NAMES = list(DENSITIES)
STEP, GOALS = contests.CONTESTS["sparse"], contests.GOALS["sparse"]
LINE_GOALS = [goal for goal in GOALS if goal.figure == "deviation"]
RIVAL_GOALS = [goal for goal in GOALS if goal.rival]
small = partial(measured, "sparse", problem=partial(masked, block=16))


# --- masks ------------------------------------------------------------------------------------------------


def test_every_shape_of_the_issue_once():
    asked = [shape for shape in STEP.shapes(False) if STEP.takes_part(shape, "FlexAttention")]
    assert len(asked) == len(set(asked)) == 3 * 3 * 2
    assert {(one.mask, one.N, one.d) for one in asked} == {
        (mask, N, d)
        for mask in ("window", "BigBird", "random")
        for N in (4096, 8192, 16384)
        for d in (64, 128)
    }  # fmt: skip
    assert {(one.B * one.N, one.H * one.d, one.dtype) for one in asked} == {(16384, 2048, "bfloat16")}
    assert set(STEP.shapes(True)) < set(STEP.shapes(False))
    densities = {}
    for quick in (True, False):  # everyone first, then ours alone
        densities[quick] = [
            shape for shape in STEP.shapes(quick) if not STEP.takes_part(shape, "SDPA efficient")
        ]
        assert all(STEP.takes_part(shape, "fused") for shape in STEP.shapes(quick))
        assert {one.mask for one in densities[quick]} == {NO_MASK, *NAMES}
        assert STEP.shapes(quick)[-len(densities[quick]) :] == densities[quick]
        assert {one.d for one in densities[quick]} == ({128} if quick else {64, 128})
    assert set(densities[True]) < set(densities[False])


@pytest.mark.parametrize(("name", "share"), DENSITIES.items())
def test_a_random_mask_has_about_the_share_of_its_name(name, share):
    N = problems.DENSITIES_AT
    mask = mask_of(name, N)
    assert math.isclose(mask.nnz / N**2, share, rel_tol=0.05)
    assert NAMES == ["random, 1/16", "random, 1/8", "random, 1/4", "random, 1/2", "random, all"]


@pytest.mark.parametrize("N", problems.SPARSE_LENGTHS)
def test_masks_are_sparse_and_no_query_is_blind(N):
    for kind in KINDS:
        mask = mask_of(kind, N)
        assert mask.nonempty_rows == N and 0.02 < mask.nnz / N**2 < 0.3


@pytest.mark.parametrize("name", (*KINDS, *NAMES))
def test_every_contender_is_told_the_same_pairs(name):
    mask = mask_of(name, 96, 16)
    told = pairs_of(mask, "cpu"), 96, "cpu"
    assert np.array_equal(booleans(*told).numpy(), mask.pairs())
    i = torch.arange(96)
    zero = torch.tensor(0)
    assert torch.equal(flex_mask(*told).mask_mod(zero, zero, i[:, None], i[None, :]), booleans(*told))


def test_what_is_tiled_for_ours_is_the_blockmask_of_flex_and_it_is_made_once(interpreter):
    told = pairs_of(masks.Window(200, 40), "cpu"), 200, "cpu"
    assert flex_mask(*told) is flex_mask(*told) and booleans(*told) is booleans(*told)
    assert tiles_of(*told) is tiles_of(*told)
    kinds, patterns = tiles_of(*told).tiles(32, 32, torch.device("cpu"))
    blocks = mask_blocks(booleans(*told), 32)
    assert torch.equal(kinds[0, 0] == -2, ~blocks.any((2, 3))) and len(patterns) == (kinds >= 0).sum()


def mask_blocks(pairs, size):
    """(N, N) as (tiles, tiles, size, size), False past the end."""
    n = -(-len(pairs) // size) * size
    whole = torch.zeros(n, n, dtype=torch.bool)
    whole[: len(pairs), : len(pairs)] = pairs
    return whole.reshape(n // size, size, n // size, size).transpose(1, 2)


# --- time against density (made-up times) ------------------------------------------------------------------


def test_the_line_is_found_and_what_lies_off_it():
    dense, overhead, off = line([(s, 8.0 * s + 0.5) for s in SHARES])
    assert math.isclose(dense, 8.0) and math.isclose(overhead, 0.5) and off < 1e-12
    *_, off = line([(s, (8.0 * s + 0.5) * (1.3 if s == 1 / 4 else 1.0)) for s in SHARES])
    assert 0.1 < off < 0.3
    # A kernel that computes every pair and then hides them does not follow the share: all overhead.
    dense, overhead, off = line([(s, 5.0) for s in SHARES])
    assert abs(dense) < 1e-9 and math.isclose(overhead, 5.0)
    with pytest.raises(ValueError, match=r"points must be 3 or more, with different s, got \["):
        line([(0.5, 1.0), (1.0, 2.0), (1.0, 2.1)])


def timed(ms_of, pass_="forward", d=64, N=problems.DENSITIES_AT, shares=SHARES):
    return [
        {"dtype": "bfloat16", "d": d, "N": N, "pass": pass_, "contender": "fused"}
        | {"mask": name, "density": s, "ms": ms_of(s)}
        for name, s in DENSITIES.items()
        if s in shares
    ]


def test_a_line_takes_every_share_and_stands_beside_the_kernel_without_a_mask():
    plain = {"d": 64, "N": 8192, "pass": "forward", "contender": "fused", "mask": NO_MASK, "ms": 7.5}
    (found,) = lines([*timed(lambda s: 8 * s + 1), plain])
    assert (found["unmasked_ms"], len(found["points"])) == (7.5, 5)
    assert math.isclose(found["dense_ms"], 8.0) and math.isclose(found["overhead_ms"], 1.0)
    assert lines(timed(lambda s: s + 1, shares=SHARES[1:])) == []
    said = format_record({"rows": [], "contenders": [], "versions": {}, "date": "today", "lines": [found]})
    assert "64  8192  forward     8.000        1.000      0.000" in said
    assert "dense" not in format_record(
        {"rows": [], "contenders": [], "versions": {}, "date": "today", "lines": []}
    )


def test_a_time_that_the_host_bounds_is_no_point_of_the_line():
    """Python's time alone at the smallest shares would look like overhead."""

    def bound(rows, *shares):
        return [row | {"host_bound": row["density"] in shares} for row in rows]

    def ms(s):
        return max(8 * s + 0.1, 1.5)  # 1.5 ms to queue

    (of_all,) = lines(timed(ms))
    (found,) = lines(bound(timed(ms), 1 / 16, 1 / 8))
    assert of_all["deviation"] > 0.1 and of_all["overhead_ms"] > 0.5
    assert math.isclose(found["dense_ms"], 8.0) and found["deviation"] < 1e-9
    assert [s for s, _ in found["points"]] == [1 / 4, 1 / 2, 1.0]
    assert found["host_bound"] == ["random, 1/16", "random, 1/8"] and of_all["host_bound"] == []
    assert lines(bound(timed(ms), 1 / 16, 1 / 8, 1 / 4)) == [], "two points do not make a line"


@pytest.mark.parametrize(("bump", "verdict"), [(1.1, "goal met"), (1.6, "goal missed")])
def test_the_worst_line_is_judged(bump, verdict):
    rows = [
        row
        for d in (64, 128)
        for row in timed(lambda s, d=d: (8 * s + 1) * (bump if (d, s) == (128, 1 / 4) else 1), d=d)
    ]
    record = compared({"rows": rows, "seed": 7}, STEP.layout, GOALS, STEP.more)
    assert (record["rows"], len(record["density_rows"]), record["density_seed"]) == ([], len(rows), 7)
    goals = {one["what"]: one for one in record["goals"]}
    assert goals["forward, largest deviation from s · dense + overhead"]["verdict"] == verdict
    assert goals["backward, largest deviation from s · dense + overhead"]["verdict"].startswith(
        "not judged: 0"
    )


def test_goals_are_those_agreed():
    assert {(goal.where["mask"], goal.where["d"]) for goal in RIVAL_GOALS} == {
        (mask, d) for mask in KINDS for d in (64, 128)
    }
    both = [goal for goal in RIVAL_GOALS if goal.where["pass"] == "forward+backward"]
    backward = [goal for goal in RIVAL_GOALS if goal.where["pass"] == "backward"]
    assert {goal.rival for goal in RIVAL_GOALS} == {"FlexAttention"}
    assert {(goal.goal, goal.floor, goal.shapes) for goal in both} == {(1.1, 0.9, 3)} and len(both) == 6
    assert {(goal.goal, goal.floor, goal.shapes) for goal in backward} == {(0.95, None, 1)}
    assert [tuple(goal.where.values()) for goal in backward] == [
        ("backward", "random", d, 16384) for d in (64, 128)
    ]
    assert {(goal.goal, goal.floor, goal.over) for goal in LINE_GOALS} == {(0.15, None, "largest")}
    assert STEP.layout.rival == "FlexAttention" and BLOCK == 128 and len(LINE_GOALS) == 3


# --- the whole path but CUDA -------------------------------------------------------------------------------


def test_ours_and_every_rival_in_one_run_on_the_cpu(interpreter, place):
    field = problems.of_sparse(place)
    asked = [Shape("float16", 16, 64, 1, 1, mask) for mask in ("window", NO_MASK, *NAMES)]
    record = small(asked, field, place, quick=True)
    assert holds_numbers(record)
    forward, both = by_contender(record, "forward"), by_contender(record, "forward+backward")
    assert (forward["fused"]["ratio"], forward["fused"]["density"]) == (1.0, 1.0)
    assert "CPU" in both["FlexAttention"]["refused"] and "ms" in both["fused"]
    assert forward["SDPA efficient"]["refused"]  # off a GPU it has no kernel
    assert [one["pass"] for one in record["lines"]] == ["forward", "backward", "forward+backward"]
    assert {row["mask"] for row in record["density_rows"]} == {NO_MASK, *NAMES}
    for row in record["density_rows"]:
        factor = {"forward": 1.0, "backward": 2.5, "forward+backward": 3.5}[row["pass"]]
        flop = factor * 4 * 16 * (64**2 if row["mask"] == NO_MASK else mask_of(row["mask"], 64, 16).nnz)
        assert math.isclose(row["tflops"], flop / LAP / 1e9)
    assert {row["density"] for row in record["density_rows"]} >= {0.25, 1.0}
    worst = {(row["contender"], row["mask"]): row["worst_block"] for row in record["errors"]}
    assert {mask for name, mask in worst if name == "fused"} == {"window", NO_MASK, *NAMES}
    assert all(error < 0.002 for error in worst.values())
    assert [one["verdict"].split(":")[0] for one in record["goals"]] == ["not judged"] * len(GOALS)
    said = format_record(record)
    assert "time of ours ≈ share of pairs" in said
    assert said.splitlines()[-1].startswith("no GPU but a test (sm_90), Python ")


def test_a_run_cut_off_among_the_densities_does_not_pass_for_whole(place, monkeypatch):
    kept, tried = [], []

    class Tried:
        """Stub of a trial with a row per implementation; the third is interrupted."""

        def __init__(self, shape, problem, field, passes, refused):
            tried.append(list(field))
            self.shape, self.field = shape, field

        def errors(self):
            if len(tried) == 3:
                raise KeyboardInterrupt
            yield {}

        def timed(self, stopwatch, pass_):
            about = self.shape._asdict() | {"pass": pass_, "density": 0.5}
            return [about | {"contender": name, "refused": "nothing is timed here"} for name in self.field]

    monkeypatch.setattr(steps, "Trial", Tried)
    shapes = [Shape("bfloat16", 16, 96, 1, 1, mask) for mask in ("random", *NAMES[:3])]
    step = dataclasses.replace(
        STEP, shapes=lambda quick: shapes, problem=partial(masked, block=16),
        contenders=lambda place: {"fused": None, "somebody": None},
    )  # fmt: skip
    with pytest.raises(KeyboardInterrupt):
        for _, part in steps.contested("sparse", step, steps.Visit(place)):
            kept += [part] if part else []
    assert tried == [["fused", "somebody"], ["fused"], ["fused"]]
    assert [(part["shapes"]["done"], part["shapes"]["asked"]) for part in kept] == [
        (0, 4), (0, 4), (1, 4), (1, 4), (1, 4), (2, 4),
    ]  # fmt: skip
    assert [gpu.how_far(part) for part in kept[-1:]] == [0.5]


def test_a_mask_that_is_not_obeyed_is_wrong_and_not_timed(place):
    def deaf(q, k, v, seen):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    shape = Shape("bfloat16", 16, 96, 1, 1, "random")
    assert is_wrong(small([shape], {"fused": deaf}, place))


def test_booleans_are_not_tried_where_they_do_not_fit(place):
    place.free = 2 * 3 * 96 * 96 - 1
    efficient = problems.of_sparse(place)["SDPA efficient"]
    shape = Shape("float16", 16, 96, 1, 1, "random")
    record = small([shape], {"fused": efficient, "x": efficient}, place)
    assert by_contender(record, "forward")["x"]["refused"].startswith("N × N masks need about ")
