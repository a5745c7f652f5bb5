"""Goals and verdicts, and the order of things in a trial. All times are made up."""

import math

import pytest
from fake_gpu import CpuPlace, measured

from tools.bench.contest import Goal, Layout, Shape, compared, judged

SHARE = Goal({"N": (2, 3), "B": 1}, 0.8, 0.65, 2, figure="share", over="least")
OFF = Goal({}, 0.15, 0.3, 2, figure="off", over="largest")


def rows(key, *values, **facts):
    return [{"contender": "fused", "N": 2 + n, "B": 1, key: x, **facts} for n, x in enumerate(values)]


@pytest.mark.parametrize(
    ("goal", "key", "values", "reached", "verdict"),
    [
        (SHARE, "share", (0.9, 0.81), 0.81, "goal met"),
        (SHARE, "share", (0.99, 0.79), 0.79, "goal missed, floor met"),
        (SHARE, "share", (0.64, 0.99), 0.64, "floor missed"),
        (SHARE, "share", (0.9,), 0.9, "not judged: 1 of 2 shapes have the times it takes"),
        (SHARE, "share", (), None, "not judged: 0 of 2 shapes have the times it takes"),
        (OFF, "off", (0.01, 0.15), 0.15, "goal met"),
        (OFF, "off", (0.16, 0.0), 0.16, "goal missed, floor met"),
        (OFF, "off", (0.31, 0.0), 0.31, "floor missed"),
    ],
)
def test_a_number_is_judged_by_the_worst_of_all_shapes(goal, key, values, reached, verdict):
    others = [
        {"contender": "SOMEBODY", "N": 2, "B": 1, key: 7.0},
        {"contender": "fused", "N": 2, "B": 1, "refused": "tired"},
    ]
    if goal is SHARE:
        others += [*rows(key, 0.1, B=8), {"contender": "fused", "N": 9, "B": 1, key: 0.1}]
    found = judged([*rows(key, *values), *others], goal)
    assert (found["reached"], found["verdict"]) == (reached, verdict)


def test_a_record_is_compared_by_what_its_rows_have_in_common():
    record = {
        "rows": [
            {"pass": "forward", "mask": mask, "N": N, "contender": name, "ms": ms}
            for mask, N, name, ms in [
                ("a", 1, "fused", 1.0), ("a", 1, "Flex", 2.0), ("a", 2, "fused", 1.0), ("a", 2, "Flex", 8.0),
                ("b", 1, "fused", 1.0), ("b", 2, "Flex", 64.0),
            ]
        ]
    }  # fmt: skip
    goals = [Goal({"mask": mask}, 4.0, None, 2, "Flex") for mask in "ab"]
    layout = Layout(("mask", "pass"), ("N",), "Flex", 2)
    found = compared(record, layout, goals)
    assert [row["ratio"] for row in found["rows"] if row["contender"] == "fused"] == [2.0, 8.0, None]
    (mean,) = (row for row in found["means"] if row["contender"] == "fused")
    assert (mean["mask"], mean["shapes"], mean["of"]) == ("a", 2, 2) and math.isclose(mean["ratio"], 4.0)
    assert [goal["verdict"] for goal in found["goals"]] == [
        "goal met",
        "not judged: 0 of 2 shapes have both times",
    ]
    assert [goal["what"] for goal in found["goals"]] == ["a, against Flex", "b, against Flex"]
    assert found["goals_stated_for"] == "H200"


def test_a_forward_pass_comes_before_each_backward_pass_and_is_not_timed():
    torch = pytest.importorskip("torch")
    from iocourse.gpu.timing import ready

    log, laps = [], []

    class Watch:
        def laps(self, work, repeats):
            log.clear()
            run = ready(work)
            log.append("clock")
            run()
            laps.append(" ".join(log))
            return [1e9] * repeats

    def attend(q, k, v, causal):
        assert all(x.is_leaf and x.requires_grad == torch.is_grad_enabled() for x in (q, k, v))
        log.append("attend")
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    place = CpuPlace()
    place.stopwatch = Watch()
    record = measured("attention", [Shape("float16", 16, 8, 1, 1, True)], {"fused": attend}, place)
    assert not [row for row in record["rows"] if "refused" in row]
    # Forward; backward, whose forward pass is not timed; both.
    assert list(dict.fromkeys(laps)) == ["clock attend", "attend clock"]
    assert len(laps) % 3 == 0 and laps.count("attend clock") == len(laps) // 3


def test_a_problem_too_large_for_the_memory_is_refused_with_its_reason():
    torch = pytest.importorskip("torch")

    def too_large(shape, place, seed):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate\nmore")

    shape = Shape("float16", 16, 8, 1, 1, True)
    field = {"fused": None, "SDPA flash": None}
    record = measured("attention", [shape], field, CpuPlace(), problem=too_large)
    assert len(record["rows"]) == 6 and not record["errors"]
    for row in record["rows"]:
        assert row["refused"] == "OutOfMemoryError: CUDA out of memory. Tried to allocate"
        assert row["N"] == 8 and "ms" not in row


def test_a_goal_names_who_is_judged_or_ours_is():
    goal = Goal({}, 0.8, None, 1, figure="share", over="least")
    rows = [
        {"contender": name, "share": share}
        for name, share in (("fused", 0.5), ("two-pass", 0.9), ("rival", 0.1))
    ]
    assert judged(rows, goal)["reached"] == 0.5
    assert judged(rows, goal._replace(where={"contender": "two-pass"}))["reached"] == 0.9


@pytest.mark.parametrize(("quick", "verdict"), [(True, "not judged: a quick run"), (False, "goal met")])
def test_of_a_quick_run_no_goal_is_judged(quick, verdict):
    goal = Goal({}, 0.8, None, 1, figure="share", over="least")
    layout = Layout(("d",), ("N",))
    found = compared({"quick": quick, "rows": [{"contender": "fused", "share": 0.9}]}, layout, [goal])
    assert [(one["verdict"], one["reached"]) for one in found["goals"]] == [(verdict, 0.9)]
