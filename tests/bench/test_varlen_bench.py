"""`varlen` of `tools.bench gpu`, no GPU: lengths, padding saved, goals, and its whole path on a tiny problem.

What needs CUDA is not covered: PyTorch's varlen_attn, and SDPA's CUDA kernels.
"""

import math

import pytest
from fake_gpu import LAP, by_contender, holds_numbers, is_wrong, measured

from iocourse.data.records import format_record
from tools.bench import contests, problems
from tools.bench.contest import compared
from tools.bench.problems import LENGTH_KINDS as KINDS
from tools.bench.problems import Packs as Shape
from tools.bench.problems import drawn, saved
from tools.bench.problems import pairs_in as pairs

torch = pytest.importorskip("torch")

STEP, GOALS = contests.CONTESTS["varlen"], contests.GOALS["varlen"]


def test_lengths_are_drawn_once_for_all_runs_and_within_their_limits():
    by = {one.lengths: drawn(one) for one in problems.packs(quick=False)}
    assert list(by) == list(KINDS) and all(drawn(one) == by[one.lengths] for one in problems.packs(False))
    for lengths in by.values():
        assert len(lengths) == 16 and min(lengths) >= 128 and max(lengths) <= 8192
    assert by["equal"] == [2048] * 16
    assert sorted(by["log-uniform"])[8] < 2048 < sorted(by["uniform"])[8], "half are short, and half are long"
    assert set(problems.packs(quick=True)) < set(problems.packs(quick=False))


def test_padding_saved_counts_pairs():
    assert pairs([1, 2, 3]) == 1 + 3 + 6
    assert saved([4, 4]) == 1.0
    assert math.isclose(saved([1, 3]), (6 + 6) / (1 + 6))
    lengths = [drawn(one) for one in problems.packs(quick=False)]
    assert all(saved(some) >= 1 for some in lengths) and max(map(saved, lengths)) > 2


def test_packed_and_padded_hold_the_same_numbers():
    shape = Shape("float16", 8, 2, "log-uniform", 4, 3, 30)
    one = problems.sequences(shape, "cpu", 7)
    lengths = drawn(shape)
    assert all(some.tolist() == [sum(lengths[:s]) for s in range(5)] for some in one.given.seen[:2])
    assert one.given.seen[2:] == (max(lengths), max(lengths))
    packed, padded = one.given_to("fused"), one.given_to("SDPA flash")
    assert one.given_to("varlen_attn") is packed and one.given_to("SDPA cuDNN") is padded
    for x, wide in zip((*packed.inputs, packed.do), (*padded.inputs, padded.do), strict=True):
        assert wide.shape == (4, 2, max(lengths), 8) and x.shape == (sum(lengths), 2, 8)
        assert torch.equal(packed.part(x), padded.part(wide)) and len(packed.part(x)) == lengths[-1]
        for s, n in enumerate(lengths):
            begin = sum(lengths[:s])
            assert torch.equal(wide[s, :, :n].transpose(0, 1), x[begin : begin + n])
            assert not wide[s, :, n:].any()


def made_up(ours, padded, kinds=KINDS):
    return [
        {"pass": "backward", "d": 64, "dtype": "bfloat16", "lengths": kind, "contender": name, "ms": ms}
        for kind in kinds
        for name, ms in (("fused", ours), ("SDPA flash", padded))
    ]


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.81, "goal met"), (1.79, "goal missed, floor met"), (1.49, "floor missed")]
)
def test_speed_is_judged_against_the_padding_saved(ratio, verdict):
    rows = [row | {"saved": 2.0} for row in made_up(1.0, ratio)]
    judged = compared({"rows": rows}, STEP.layout, GOALS, STEP.more)["goals"]
    found = {goal["what"]: goal for goal in judged}
    one = found["backward, d = 64: speedup against padded SDPA flash / padding saved"]
    assert one["verdict"] == verdict and math.isclose(one["reached"], ratio / 2)
    assert sum(goal["verdict"].startswith("not judged: 0 of 3") for goal in found.values()) == 5 + 2
    of_saved = [
        (goal.where["d"], goal.goal, goal.floor, goal.over) for goal in GOALS if goal.figure == "of_saved"
    ]
    assert [one[1:] for one in of_saved if one[0] == 64] == [(0.9, 0.75, "mean")] * 3
    assert [one[1:] for one in of_saved if one[0] == 128] == [(x, 0.9, "mean") for x in (1.15, 0.98, 1.01)]


def test_the_packed_backward_pass_is_judged_against_pytorchs_packed_kernel():
    rows = [row | {"saved": 2.0} for row in made_up(1.0, 9.0)]
    packed = [row | {"contender": "varlen_attn", "ms": 0.96} for row in rows if row["contender"] == "fused"]
    judged = compared({"rows": [*rows, *packed]}, STEP.layout, GOALS, STEP.more)["goals"]
    found = {goal["what"]: goal for goal in judged if "varlen_attn" in goal["what"]}
    assert [(goal["goal"], goal["floor"], goal["of"]) for goal in found.values()] == [
        (0.95, None, 3),
        (0.96, None, 3),
    ]
    assert list(found) == [f"backward, d = {d}, against varlen_attn" for d in (64, 128)]
    one = found["backward, d = 64, against varlen_attn"]
    assert one["verdict"] == "goal met" and math.isclose(one["reached"], 0.96)


def test_ours_and_every_rival_in_one_run_on_the_cpu(interpreter, place):
    field = problems.of_varlen(place)
    assert list(field) == ["fused", "packed by descriptors", "varlen_attn", "SDPA flash", "SDPA cuDNN"]
    ours = ("fused", "packed by descriptors")
    shape = Shape("float16", 16, 1, "log-uniform", 3, 8, 48)
    record = measured("varlen", [shape], field, place)
    assert holds_numbers(record) and record["lengths"] == {"log-uniform": drawn(shape)}
    for pass_, factor in (("forward", 1.0), ("backward", 2.5), ("forward+backward", 3.5)):
        rows = by_contender(record, pass_)
        assert {rows[name]["ratio"] for name in (*ours, "SDPA flash")} == {1.0}
        assert math.isclose(rows["fused"]["of_saved"], 1 / saved(drawn(shape)))
        assert math.isclose(rows["fused"]["tflops"], factor * 4 * 16 * pairs(drawn(shape)) / LAP / 1e9)
        # Off a GPU these have no kernel.
        assert rows["varlen_attn"]["refused"] and rows["SDPA cuDNN"]["refused"]
    assert {row["contender"] for row in record["errors"]} == {*ours, "SDPA flash"}
    assert all(row["worst_block"] < 0.002 for row in record["errors"])
    assert "padding saved" in format_record(record)
    assert sum(one["verdict"].startswith("not judged: 0 of 3 shapes") for one in record["goals"]) == len(
        GOALS
    )


def test_a_neighbour_that_is_read_is_wrong(place):
    def one_sequence(q, k, v, seen):
        wide = (x.transpose(0, 1)[None] for x in (q, k, v))
        o = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True)
        return o[0].transpose(0, 1)

    shape = Shape("float16", 16, 1, "equal", 3, 8, 48)
    assert is_wrong(measured("varlen", [shape], {"fused": one_sequence}, place))
