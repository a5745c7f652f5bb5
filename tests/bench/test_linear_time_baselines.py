"""Methods in the panels, the entries of their rows, and the timing of interleaved work."""

import math
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from iocourse.data.attention_heads import real_heads  # noqa: E402
from iocourse.lowrank import NotCertified  # noqa: E402
from tools.bench.lowrank import linear_time_baselines as baselines  # noqa: E402
from tools.bench.lowrank import timing  # noqa: E402
from tools.bench.lowrank.exact_baselines import truth  # noqa: E402
from tools.bench.lowrank.published_protocol import relative_error  # noqa: E402
from tools.bench.lowrank.timing import QUICK, Plan  # noqa: E402

METHODS = {
    *("mean of V", "Taylor (our passes)", "Hermite (ours)", "SATA"),
    *("WildCat", "Nyström", "FAVOR+", "elu + 1", "centroids", "PolySketch", "Based", "support basis"),
}


def of(spread=0.25, seed=0, n=200):
    inputs = baselines.draw(n, spread, seed)
    return inputs, truth(*(torch.from_numpy(x) for x in inputs))[0]


def off(attend, inputs, o):
    return relative_error(torch.from_numpy(attend(*inputs, 0)), o)


@pytest.mark.parametrize("spread", [0.25, 2.0])
def test_logits_spread_as_the_panel_says(spread):
    q, k, _ = baselines.draw(2000, spread, 1)
    assert float((q @ k.T).std()) == pytest.approx(spread, rel=0.05)


@pytest.mark.parametrize("name", ["taylor", "hermite"])
def test_ours_is_the_face_at_that_degree(name):
    inputs, o = of()
    errors = [off(baselines.polynomial(name, g), inputs, o) for g in (1, 2, 3, 4)]
    assert sorted(errors, reverse=True) == errors and errors[-1] < 0.5


def test_the_mean_of_v_is_degree_zero():
    inputs, o = of()
    mean = np.broadcast_to(inputs[2].astype(float).mean(0), o.shape)
    wanted = relative_error(torch.from_numpy(mean.copy()), o)
    assert off(baselines.mean_of_v, inputs, o) == pytest.approx(wanted, rel=1e-5) and wanted > 20


def test_no_method_has_more_features_than_allowed_nor_landmarks_than_keys():
    for plan in (Plan(**QUICK), Plan()):
        found = list(baselines.field(plan.most_features, plan.panel))
        assert max(features for _, features, _ in found) <= plan.most_features
        assert {name for name, *_ in found} == METHODS
    few = [features for name, features, _ in baselines.field(1300, 100) if name in baselines.ANY_NUMBER]
    assert set(few) == {16, 45}


def test_a_result_that_is_not_finite_or_not_certified_has_its_reason():
    inputs, o = of()

    def endless(q, k, v, seed):
        return np.full_like(v, np.inf)

    def uncertain(q, k, v, seed):
        raise NotCertified("made up: a row sum of 0")

    kept = [baselines.error_of(attend, [inputs], [o]) for attend in (endless, uncertain)]
    assert kept == [{"refused": "its result is not finite"}, {"refused": "made up: a row sum of 0"}]


def test_every_exact_run_is_in_a_panel_and_is_refused_if_it_is_not_exact(monkeypatch):
    inputs, _ = of(n=60)
    runs = {
        "good": lambda: truth(*map(torch.from_numpy, inputs))[0],
        "bad": lambda: torch.full((60, 8), np.nan),
    }
    monkeypatch.setattr(baselines, "exact_runs", lambda tensors: runs)
    good, bad, *_ = baselines.rows({}, [inputs], 1, 0.0)
    assert good["contender"] == "exact, good" and good["features"] is None and good["error"] < 1e-4
    assert good["ms"] > 0 and bad["refused"] == "it is not exact for these logits" and "ms" not in bad


def test_a_real_head_has_a_panel():
    plan = Plan(seeds=1, most_head_features=600, seconds=0.0)
    rows = baselines.head_panel(0, plan)
    layer, head = real_heads()[0]
    assert {(row["layer"], row["head"], row["n"], row["d"]) for row in rows} == {(layer, head, 471, 32)}
    exact = next(row for row in rows if row["contender"] == "exact, SDPA")
    assert exact["features"] is None and exact["error"] < 1e-3 and exact["ms"] > 0
    assert {row["features"] for row in rows if row["contender"] == "SATA"} == {33, 561}
    assert all(("ms" in row) != ("refused" in row) for row in rows)


# --- the clock ---------------------------------------------------------------------------------------------


def test_every_round_runs_all_works_and_begins_with_another(monkeypatch):
    order = []
    works = {name: (lambda name=name: order.append(name)) for name in "abc"}
    monkeypatch.setattr(timing, "MOST", 1)
    found = timing.interleaved(works, 0.0)
    assert "".join(order) == "abc" + "abc" + "abc" + "bca" + "cab"
    assert {timing.repeats for timing in found.values()} == {3}


def test_the_first_lap_of_slow_work_is_one_of_three_and_of_the_slowest_the_only_one(monkeypatch):
    seconds, order, clock = {"a": 2.0, "b": 2.9, "c": 3.1, "d": 0.5}, [], [0.0]

    def work(name):
        order.append(name)
        clock[0] += seconds[name]

    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock[0])
    found = timing.interleaved({name: partial(work, name) for name in seconds}, 0.0)
    assert "".join(order) == "abcd" + "d" + "d" + "bda" + "dab"
    assert {name: one.repeats for name, one in found.items()} == {"a": 3, "b": 3, "c": 1, "d": 3}
    assert all(one.ms == pytest.approx(1000 * seconds[name]) for name, one in found.items())


def test_quick_work_is_repeated_until_its_time_is_over(monkeypatch):
    ticks = iter(range(10_000))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(ticks) * 0.25)
    (took,) = timing.interleaved({"one": lambda: None}, 7.5).values()
    assert math.isclose(took.ms, 250.0) and took.repeats == 3 * 10
    monkeypatch.setattr(timing, "MOST", 4)
    (took,) = timing.interleaved({"one": lambda: None}, 7.5).values()
    assert took.repeats == 3 * 4
