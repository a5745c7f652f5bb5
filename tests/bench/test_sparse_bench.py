"""`python -m tools.bench sparse` without a GPU: masks, the line, goals, and its whole path on a tiny problem.

What needs CUDA is not covered: compiled FlexAttention and its backward pass, SDPA's memory-efficient kernel.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from made_up_gpu import LAP, by_contender, holds_numbers, is_wrong

from iocourse import masks
from tools.bench import sparse
from tools.bench.gpu import density as _density
from tools.bench.gpu.contenders import flex_mask
from tools.bench.gpu.density import SHARES, line, lines
from tools.bench.gpu.judging import compared
from tools.bench.sparse import (
    BLOCK,
    KINDS,
    NO_MASK,
    Shape,
    booleans,
    mask_of,
    masked,
    pairs_of,
    tiles_of,
)

torch = pytest.importorskip("torch")

NAMES = list(_density.NAMES)
SMALL = replace(sparse.BENCH, problem=partial(masked, block=16))


# --- masks ------------------------------------------------------------------------------------------------


def test_every_shape_of_the_issue_once():
    asked = [shape for shape in sparse.shapes(quick=False) if not sparse.BENCH.only_ours(shape)]
    assert len(asked) == len(set(asked)) == 3 * 3 * 2
    assert {(one.mask, one.N, one.d) for one in asked} == {
        (mask, N, d)
        for mask in ("window", "BigBird", "random")
        for N in (4096, 8192, 16384)
        for d in (64, 128)
    }  # fmt: skip
    assert {(one.B * one.N, one.H * one.d, one.dtype) for one in asked} == {(16384, 2048, "bfloat16")}
    assert set(sparse.shapes(quick=True)) < set(sparse.shapes(quick=False))
    for quick in (True, False):  # everyone first, then ours alone
        alone = sparse.densities(quick)
        assert {one.mask for one in alone} == {NO_MASK, *NAMES} and sparse.shapes(quick)[
            -len(alone) :
        ] == alone
        assert [shape for shape in sparse.shapes(quick) if sparse.BENCH.only_ours(shape)] == alone
    assert set(sparse.densities(quick=True)) < set(sparse.densities(quick=False))


@pytest.mark.parametrize(("name", "share"), _density.NAMES.items())
def test_a_random_mask_has_about_the_share_of_its_name(name, share):
    N = sparse.DENSITIES_AT
    mask = mask_of(name, N)
    assert math.isclose(mask.nnz / N**2, share, rel_tol=0.05)
    assert NAMES == ["random, 1/16", "random, 1/8", "random, 1/4", "random, 1/2", "random, all"]


@pytest.mark.parametrize("N", sparse.LENGTHS)
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
    with pytest.raises(ValueError, match=r"points is .*allowed: 3 or more, of different s"):
        line([(0.5, 1.0), (1.0, 2.0), (1.0, 2.1)])


def timed(ms_of, pass_="forward", d=64, N=sparse.DENSITIES_AT, shares=SHARES):
    return [
        {"dtype": "bfloat16", "d": d, "N": N, "pass": pass_, "contender": "fused"}
        | {"mask": name, "density": s, "ms": ms_of(s)}
        for name, s in _density.NAMES.items()
        if s in shares
    ]


def test_a_line_takes_every_share_and_stands_beside_the_kernel_without_a_mask():
    plain = {"d": 64, "N": 8192, "pass": "forward", "contender": "fused", "mask": NO_MASK, "ms": 7.5}
    (found,) = lines([*timed(lambda s: 8 * s + 1), plain], NO_MASK)
    assert (found["unmasked_ms"], len(found["points"])) == (7.5, 5)
    assert math.isclose(found["dense_ms"], 8.0) and math.isclose(found["overhead_ms"], 1.0)
    assert lines(timed(lambda s: s + 1, shares=SHARES[1:]), NO_MASK) == []
    shown = _density.text_of([found])
    assert "64, 8192, forward" in shown and "7.500" in shown and shown.endswith("0.0%")
    assert _density.text_of([]) == ""


@pytest.mark.parametrize(("bump", "verdict"), [(1.1, "goal met"), (1.6, "goal missed")])
def test_the_worst_line_is_judged(bump, verdict):
    rows = [
        row
        for d in sparse.HEADS
        for row in timed(lambda s, d=d: (8 * s + 1) * (bump if (d, s) == (128, 1 / 4) else 1), d=d)
    ]
    bench = sparse.BENCH
    record = compared({"rows": rows, "seed": 7}, bench.layout, bench.goals, bench.more)
    assert (record["rows"], len(record["density_rows"]), record["density_seed"]) == ([], len(rows), 7)
    goals = {one["what"]: one for one in record["goals"]}
    assert goals["forward, largest deviation from s · dense + overhead"]["verdict"] == verdict
    assert goals["backward, largest deviation from s · dense + overhead"]["verdict"].startswith(
        "not judged: 0"
    )


def test_goals_are_those_agreed():
    assert {(goal.where["mask"], goal.where["d"]) for goal in sparse.GOALS} == {
        (mask, d) for mask in KINDS for d in (64, 128)
    }
    both = [goal for goal in sparse.GOALS if goal.where["pass"] == "forward+backward"]
    backward = [goal for goal in sparse.GOALS if goal.where["pass"] == "backward"]
    assert {goal.rival for goal in sparse.GOALS} == {"FlexAttention"}
    assert {(goal.goal, goal.floor, goal.shapes) for goal in both} == {(1.1, 0.9, 3)} and len(both) == 6
    assert {(goal.goal, goal.floor, goal.shapes) for goal in backward} == {(0.95, None, 1)}
    assert [tuple(goal.where.values()) for goal in backward] == [
        ("backward", "random", d, 16384) for d in (64, 128)
    ]
    assert {(goal.goal, goal.floor, goal.over) for goal in sparse.LINE_GOALS} == {(0.15, None, "largest")}
    assert sparse.LAYOUT.rival == "FlexAttention" and BLOCK == 128


# --- the whole path but CUDA -------------------------------------------------------------------------------


def test_ours_and_every_rival_in_one_run_on_the_cpu(interpreter, place):
    field = sparse.contenders(place, compiled=False)
    asked = [Shape("float16", 16, 64, 1, 1, mask) for mask in ("window", NO_MASK, *NAMES)]
    record = SMALL.measured(asked, field, place, quick=True)
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
    shown = sparse.show(record)
    assert shown.count("not judged") == len(sparse.GOALS) + len(sparse.LINE_GOALS)
    assert "milliseconds of ours against the share s" in shown
    assert shown.splitlines()[-1].startswith("no GPU but a test, Python ")


def test_a_run_cut_off_among_the_densities_does_not_pass_for_whole(place, monkeypatch):
    kept, tried = [], []

    def third_is_cut_off(*given):
        tried.append(given)
        if len(tried) == 3:
            raise KeyboardInterrupt
        return [], []

    monkeypatch.setattr("tools.bench.gpu.trial.tried", third_is_cut_off)
    shapes = [Shape("bfloat16", 16, 96, 1, 1, mask) for mask in ("random", *NAMES[:3])]
    field = {"fused": None, "somebody": None}
    with pytest.raises(KeyboardInterrupt):
        sparse.measured(shapes, field, place, keep=kept.append)
    assert [list(some) for _, _, some, *_ in tried] == [["fused", "somebody"], ["fused"], ["fused"]]
    assert [record["shapes"] for record in kept] == [{"asked": 4, "done": 1}, {"asked": 4, "done": 2}]
    assert all(f"cut off after {n} of 4 shapes" in sparse.show(record) for n, record in enumerate(kept, 1))


def test_a_mask_that_is_not_obeyed_is_wrong_and_not_timed(place):
    def deaf(q, k, v, seen):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    shape = Shape("bfloat16", 16, 96, 1, 1, "random")
    assert is_wrong(SMALL.measured([shape], {"fused": deaf}, place))


def test_booleans_are_not_tried_where_they_do_not_fit(place):
    place.free = 2 * 3 * 96 * 96 - 1
    efficient = sparse.contenders(place)["SDPA efficient"]
    shape = Shape("float16", 16, 96, 1, 1, "random")
    record = SMALL.measured([shape], {"fused": efficient, "x": efficient}, place)
    assert by_contender(record, "forward")["x"]["refused"].startswith("N × N masks need about ")
