"""`iocourse bench decode` without a GPU: bytes, the copy, goals, and its whole path on a tiny problem."""

import math

import pytest
from made_up_gpu import LAP, CpuPlace, by_contender, holds_numbers, is_wrong

from iocourse.bench import decode
from iocourse.bench.decode import Shape
from iocourse.bench.gpu.judging import judged
from iocourse.costs.kernels import Problem, attention_decode

torch = pytest.importorskip("torch")


def test_every_shape_of_the_issue_once():
    asked = decode.shapes(quick=False)
    assert len(asked) == len(set(asked)) == 6 * 3 * 2
    assert {one.N for one in asked} == {4096, 8192, 16384, 32768, 65536, 131072}
    assert {(one.H, one.H_kv, one.d) for one in asked} == {(32, 32, 128), (32, 8, 128), (32, 1, 128)}
    assert {one.B for one in asked} == {1, 8} and decode.LONG == (32768, 65536, 131072)
    assert set(decode.shapes(quick=True)) < set(asked)


@pytest.mark.parametrize(("H_kv", "expected"), [(32, 2 * 8 * 32), (8, 2 * 8 * 8), (1, 2 * 8)])
def test_what_must_be_read_is_k_and_v_once(H_kv, expected):
    assert decode.must_read(Shape("bfloat16", 128, 4096, 8, 32, H_kv)) == expected * 4096 * 128 * 2
    reads = attention_decode(Problem(1, 4096, 128, B=8, H=32, H_kv=H_kv), parts=1).reads
    assert reads["K"] + reads["V"] == expected * 4096 * 128


def test_a_copied_byte_counts_twice():
    copy = decode.copy_speed(CpuPlace(), 1024)
    assert copy == {"bytes": 1024, "ms": LAP, "gbytes_per_s": 2 * 1024 / LAP / 1e6}


def test_goals_are_those_agreed_and_the_worst_length_is_judged():
    assert {(goal.goal, goal.floor, goal.over, goal.figure) for goal in decode.GOALS} == {
        (0.80, 0.65, "least", "share")
    }
    where = {"H": 32, "H_kv": 8, "B": 1, "contender": "split-KV"}
    shares = {4096: 0.1, 32768: 0.9, 65536: 0.7, 131072: 0.85}
    rows = [where | {"N": N, "share": share} for N, share in shares.items()]
    found = {goal.what: judged(rows, goal) for goal in decode.GOALS}
    one = found["least share of the copy bandwidth, N ≥ 32,768, 32 heads, 8 of keys, B = 1"]
    assert (one["reached"], one["verdict"]) == (0.7, "goal missed, floor met")
    assert sum("not judged: 0 of 3" in goal["verdict"] for goal in found.values()) == len(found) - 1 == 5


def copied(monkeypatch, copy):
    """Nothing is copied: this is what a copy came to."""
    monkeypatch.setattr(decode, "copy_speed", lambda place: copy)


def test_ours_and_every_rival_in_one_run_on_the_cpu(interpreter, place, monkeypatch):
    field = decode.contenders()
    assert list(field) == [
        "split-KV",
        "last program merges",
        "SDPA flash",
        "SDPA cuDNN",
        "SDPA efficient",
        "SDPA math",
    ]
    shapes = [Shape("float16", 16, 200, 2, 4, H_kv) for H_kv in (4, 2)]
    copied(monkeypatch, {"bytes": 1024, "ms": 1.0, "gbytes_per_s": 1e-13})
    record = decode.measured(shapes, field, place)
    assert holds_numbers(record | {"quick": True})
    for shape in shapes:
        some = {"rows": [row for row in record["rows"] if row["H_kv"] == shape.H_kv]}
        rows = by_contender(some, "forward")
        rate = decode.must_read(shape) / LAP / 1e6
        for name in ("split-KV", "last program merges", "SDPA math"):
            assert math.isclose(rows[name]["gbytes_per_s"], rate)
            assert math.isclose(rows[name]["share"], rate / 1e-13) and rows[name]["us"] == 1000 * LAP
        assert rows["SDPA cuDNN"]["refused"]
    assert {row["pass"] for row in record["rows"]} == {"forward"}
    ours = [row for row in record["errors"] if row["contender"] in ("split-KV", "last program merges")]
    assert len(ours) == 4 and all(set(row) & {"O", "dQ"} == {"O"} for row in record["errors"])
    assert all(row["O"] < 0.002 for row in record["errors"])
    shown = decode.show(record)
    assert "the copy: " in shown and shown.count("not judged: 0 of 3 shapes") == len(decode.GOALS)
    assert "GB/s of K and V, float16, H = 4, H_kv = 2, B = 2" in shown


def test_a_query_that_misses_half_its_keys_is_wrong(monkeypatch):
    def forgetful(q, k, v, seen):
        return torch.nn.functional.scaled_dot_product_attention(q, k[:, :, 20:], v[:, :, 20:])

    copied(monkeypatch, {"bytes": 1, "ms": 1.0, "gbytes_per_s": 1.0})
    assert is_wrong(decode.measured([Shape("float16", 16, 40, 1, 1, 1)], {"split-KV": forgetful}, CpuPlace()))


def test_who_takes_how_many_launches():
    from iocourse.kernels.host.launches import written_down

    q, k = torch.empty(1, 8, 1, 64).half(), torch.empty(1, 2, 4096, 64).half()
    launched = {}
    for name in ("split-KV", "last program merges"):
        with written_down(90) as made:
            decode.contenders()[name](q, k, k, False)
        launched[name] = [one.kernel.fn.__name__ for one in made]
    assert launched == {
        "split-KV": ["parts_kernel", "merge_kernel"],
        "last program merges": ["last_merges_kernel"],
    }
