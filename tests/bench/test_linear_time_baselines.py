"""Methods in the panels, the entries of their rows, and the timing of interleaved work."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from iocourse.data.attention_heads import real_heads  # noqa: E402
from iocourse.lowrank import NotCertified  # noqa: E402
from tools.bench.lowrank import linear_time_baselines as baselines  # noqa: E402
from tools.bench.lowrank import timing  # noqa: E402
from tools.bench.lowrank.exact_baselines import truth  # noqa: E402
from tools.bench.lowrank.published_protocol import relative_error  # noqa: E402
from tools.bench.lowrank.timing import QUICK, WHOLE, Plan  # noqa: E402

EVERYBODY = {
    *("exact (SDPA)", "Taylor (our passes)", "Hermite (ours)", "SATA"),
    *("WildCat", "Nyström", "FAVOR+", "elu + 1"),
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


def test_exact_attention_is_off_by_rounding_alone():
    inputs, o = of()
    assert 0 < off(baselines.exact, inputs, o) < 1e-4


def test_nobody_has_more_features_than_are_asked_for_nor_landmarks_than_keys():
    for plan in (QUICK, WHOLE):
        found = list(baselines.field(plan.most_features, plan.panel))
        assert max(one.features or 0 for one in found) <= plan.most_features
        assert {one.name for one in found} == EVERYBODY
    few = [one for one in baselines.field(1300, 100) if one.name in baselines.ANY_NUMBER]
    assert {one.features for one in few} == {16, 45}


def test_who_is_not_finite_or_not_certified_keeps_the_reason():
    inputs, o = of()

    def endless(q, k, v, seed):
        return np.full_like(v, np.inf)

    def uncertain(q, k, v, seed):
        raise NotCertified("made up: a row sum of 0")

    kept = [baselines.errors(baselines.Contender("x", 1, attend), [inputs], [o])
            for attend in (endless, uncertain)]  # fmt: skip
    assert kept == [{"refused": "its result is not finite"}, {"refused": "made up: a row sum of 0"}]


def test_a_real_head_has_a_panel_of_its_own():
    plan = Plan(seeds=1, most_head_features=600, seconds=0.0)
    rows = baselines.head_panel(0, plan)
    layer, head = real_heads()[0]
    assert {(row["layer"], row["head"], row["n"], row["d"]) for row in rows} == {(layer, head, 471, 32)}
    exact = next(row for row in rows if row["contender"] == baselines.EXACT)
    assert exact["features"] is None and exact["error"] < 1e-3 and exact["ms"] > 0
    assert {row["features"] for row in rows if row["contender"] == "SATA"} == {33, 561}
    assert all(("ms" in row) != ("refused" in row) for row in rows)


# --- the clock ---------------------------------------------------------------------------------------------


def test_every_round_visits_everyone_and_begins_with_another(monkeypatch):
    order = []
    works = {name: (lambda name=name: order.append(name)) for name in "abc"}
    monkeypatch.setattr(timing, "SLOW_S", -1.0)  # one warm run
    found = timing.interleaved(works, 0.0)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
    assert {timing.repeats for timing in found.values()} == {3}


def test_slow_work_is_run_once_a_round_and_quick_work_more_often():
    assert timing._repeats(10.0, 0.1) == 1 and timing._repeats(0.01, 0.1) == 10
    assert timing._repeats(1e-6, 0.1) == timing.MOST


def test_milliseconds_are_milliseconds(monkeypatch):
    ticks = iter(range(1000))
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(ticks) * 0.25)
    (took,) = timing.interleaved({"one": lambda: None}, 0.0).values()
    assert math.isclose(took.ms, 250.0)
