"""Other linear attentions, each against what defines it; and the clock they are timed with."""

import math

import pytest

torch = pytest.importorskip("torch")

from iocourse.bench.lowrank import contenders, measuring  # noqa: E402
from iocourse.bench.lowrank import on_gpu as gpu  # noqa: E402
from iocourse.bench.lowrank.exact_side import truth  # noqa: E402
from iocourse.bench.lowrank.measuring import QUICK, WHOLE  # noqa: E402
from iocourse.bench.lowrank.published import relative_error  # noqa: E402

EVERYBODY = {"Taylor", "Hermite (ours)", "FAVOR+", "Nyström (float64)", "elu + 1"}


def drawn(n=200, spread=0.25, seed=0):
    q, k, v = contenders.draw(n, spread, seed)
    return (q, k, v), truth(q, k, v)[0]


@pytest.mark.parametrize("spread", [0.25, 2.0])
def test_logits_spread_as_the_panel_says(spread):
    q, k, _ = contenders.draw(2000, spread, 1)
    assert float((q @ k.T).std()) == pytest.approx(spread, rel=0.05)


def test_directions_are_orthogonal_in_blocks_and_as_long_as_normal_vectors():
    W = contenders.orthogonal_directions(20, 8, 3)
    assert W.shape == (20, 8)
    for block in (W[:8], W[8:16], W[16:]):
        gram = block @ block.T
        assert torch.allclose(gram, torch.diag(gram.diag()), atol=1e-4)
    lengths = contenders.orthogonal_directions(8000, 8, 0).square().sum(1)
    assert float(lengths.mean()) == pytest.approx(8, rel=0.02)


def test_favor_is_an_unbiased_estimate_of_the_exponential():
    q, k = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(5)) / 3
    W = contenders.orthogonal_directions(400_000, 8, 1)
    left, right = (torch.exp(x @ W.T - (x * x).sum(1, keepdim=True) / 2) for x in (q, k))
    assert torch.allclose(left @ right.T / len(W), (q @ k.T).exp(), rtol=0.05)


def test_random_features_come_near_slowly_and_nystrom_fast():
    inputs, o = drawn()
    few, many = (relative_error(contenders.favor(*inputs, m, 0), o) for m in (45, 20_000))
    assert many < few / 4
    whole = relative_error(contenders.nystrom(*inputs, 200, 0), o)  # every key is a landmark
    assert whole < 1e-3 < relative_error(contenders.nystrom(*inputs, 20, 0), o)


def test_elu_is_the_sum_written_out():
    (q, k, v), _ = drawn(30)
    left, right = (torch.where(x > 0, x, x.exp() - 1) + 1 for x in (q, k))
    A = left @ right.T
    assert torch.allclose(contenders.elu(q, k, v, 8, 0), A / A.sum(1, keepdim=True) @ v, atol=1e-5)


@pytest.mark.parametrize("name", ["taylor", "hermite"])
def test_ours_is_the_face_at_that_degree(name):
    inputs, o = drawn()
    errors = [relative_error(contenders.polynomial(name, g)(*inputs, 0, 0), o) for g in (1, 2, 3, 4)]
    assert sorted(errors, reverse=True) == errors and errors[-1] < 0.5


def test_nobody_has_more_features_than_are_asked_for():
    for plan in (QUICK, WHOLE):
        found = list(contenders.field(plan.most_features))
        assert max(m for _, m, _ in found) <= plan.most_features
        assert {name for name, _, _ in found} == EVERYBODY


# --- the clock ---------------------------------------------------------------------------------------------


def test_every_round_visits_everyone_and_begins_with_another(monkeypatch):
    order = []
    works = {name: (lambda name=name: order.append(name)) for name in "abc"}
    monkeypatch.setattr(measuring, "SLOW_S", -1.0)  # one warm run
    found = measuring.interleaved(works, 0.0)
    assert "".join(order) == "abc" + "abc" + "bca" + "cab"
    assert {timing.repeats for timing in found.values()} == {3}


def test_slow_work_is_run_once_a_round_and_quick_work_more_often():
    assert measuring._repeats(10.0, 0.1) == 1 and measuring._repeats(0.01, 0.1) == 10
    assert measuring._repeats(1e-6, 0.1) == measuring.MOST


def test_milliseconds_are_milliseconds(monkeypatch):
    ticks = iter(range(1000))
    monkeypatch.setattr(measuring.time, "perf_counter", lambda: next(ticks) * 0.25)
    (took,) = measuring.interleaved({"one": lambda: None}, 0.0).values()
    assert math.isclose(took.ms, 250.0)


# --- on a GPU, with a CPU standing in ----------------------------------------------------------------------


def test_the_gpu_section_times_who_can_and_keeps_the_reason_of_who_cannot(monkeypatch):
    from made_up_gpu import CpuPlace

    from iocourse.bench.lowrank.exact_side import sdpa

    def cannot(q, k, v):
        raise RuntimeError("made up: no room")

    monkeypatch.setattr(gpu, "DEGREES", ())
    monkeypatch.setattr(gpu, "field", lambda: {"SDPA": (sdpa, "float32"), "no": (cannot, "float32")})
    rows = gpu.times(40, CpuPlace(), d=3)
    assert [(row["contender"], row["pass"]) for row in rows] == [
        (name, pass_) for pass_ in ("forward", "forward+backward") for name in ("SDPA", "no")
    ]
    assert rows[0]["error"] < 1e-4 and rows[0]["ms"] > 0 and rows[1]["error"] is None
    assert rows[1]["refused"] == "RuntimeError: made up: no room"


def test_the_kernels_of_the_gpu_section_are_right_on_a_few_tokens(interpreter, place):
    rows = {(row["contender"], row["pass"]): row for row in gpu.times(40, place)}
    for name, most in (("low rank, g = 2", 3), ("low rank, g = 3", 0.6), ("exact, ours, float32", 1e-3)):
        assert rows[name, "forward"]["error"] < most and "ms" in rows[name, "forward+backward"]
    for g in (2, 3):  # the same numbers without the face
        face, alone = (rows[f"low rank{which}, g = {g}", "forward"] for which in ("", ", kernels alone"))
        assert alone["error"] == pytest.approx(face["error"], rel=1e-3)
        assert "ms" in rows[f"low rank, kernels alone, g = {g}", "forward+backward"]
    assert rows["exact, ours, bfloat16", "forward"]["error"] < 2
