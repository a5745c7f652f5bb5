"""The subject depth: laws are fitted as they should be, goals judged by what was measured, records whole."""

import json
import re
import sys
from hashlib import sha256
from importlib import resources
from math import exp

import pytest

from iocourse.data import real_head, real_heads
from iocourse.data.records import load_record
from iocourse.doctor import install_command
from iocourse.errors import UsageError
from iocourse.lowrank import advise
from tools.bench import depth
from tools.bench.__main__ import SUBJECTS
from tools.bench.depth import layers as over_layers
from tools.bench.depth import real_heads as real
from tools.bench.depth import trained_gradient
from tools.bench.depth import training as trainings

TINY_LAYERS = over_layers.Sizes(layers=(1, 2), degrees=(2, 4), seeds=(0,), n=80, heads=2, d=4)
TINY_TRAINED = trained_gradient.Sizes(
    seeds=(0,), steps=(0,), degrees=(2,), n=80, layers=2, heads=2, d=4, batch=1
)
TINY_TRAINING = trainings.Sizes(steps=7, n=96, layers=1, heads=2, d=4, bounds=(2.0, None))


# ---------------------------------------------------------------------- error over layers
def made_up_rows(law, layers=(1, 2, 4, 8, 12), seeds=(0, 1), degree=4):
    about = [
        {"layers": m, "degree": degree, "gradient_degree": degree, "seed": s} for m in layers for s in seeds
    ]
    return [row | {what: law(row["layers"]) for what in over_layers.WHAT} for row in about]


def test_errors_that_grow_as_a_root_have_the_exponent_one_half():
    for found in over_layers.growth(made_up_rows(lambda m: 3e-5 * m**0.5)):
        assert found["exponent"] == 0.5 and found["off_power"] == 0 < 0.1 < found["off_exponential"]


def test_errors_that_grow_exponentially_have_their_rate():
    for found in over_layers.growth(made_up_rows(lambda m: 1e-9 * exp(m))):
        assert found["rate"] == 1 and found["off_exponential"] == 0 < 0.1 < found["off_power"]


def test_the_goal_is_judged_by_the_worst_seed_of_12_layers():
    rows = made_up_rows(lambda m: 1e-6 * m)
    assert over_layers.verdict(rows)["reached"] == pytest.approx(1.2e-5)
    rows[-1]["parameters"] = 2e-4  # 12 layers, the last seed
    assert over_layers.verdict(rows)["reached"] == 2e-4
    assert over_layers.verdict(made_up_rows(lambda m: 1e-6, layers=(1, 2)))["reached"] is None
    assert over_layers.verdict(made_up_rows(lambda m: 1e-6, degree=3))["reached"] is None


def test_mean_errors_are_root_mean_squares_over_seeds():
    rows = made_up_rows(lambda m: 1.0, layers=(3,))
    rows[0]["dX"], rows[1]["dX"] = 3.0, 4.0
    assert over_layers.mean_errors(rows, "dX", 4) == {3: pytest.approx(12.5**0.5)}


@pytest.fixture(scope="module")
def layers():
    pytest.importorskip("torch")
    with depth._one_thread():  # as the subject runs; two threads on busy cores are many times slower
        return over_layers.measured(TINY_LAYERS)


def test_a_higher_degree_is_nearer_and_so_is_a_gradient_of_one_degree_more(layers):
    rows = {(row["layers"], row["degree"], row["gradient_degree"]): row for row in layers["rows"]}
    assert len(rows) == len(layers["rows"]) == 8
    for m in TINY_LAYERS.layers:
        for what in over_layers.WHAT:
            assert 0 < rows[m, 4, 4][what] < rows[m, 2, 2][what] / 5 < 1
        assert rows[m, 2, 3]["W_QK"] < rows[m, 2, 2]["W_QK"] / 2
        assert rows[m, 2, 3]["output"] == rows[m, 2, 2]["output"]


def test_what_is_compared_are_these_gradients():
    torch = pytest.importorskip("torch")
    from iocourse.lowrank.transformer import Shape, exactly, transformer

    model = transformer(Shape(11, 20, layers=2, heads=2, d=4), exactly())
    tokens, wanted = torch.arange(20)[None] % 11, torch.arange(20)[None] % 7
    found = over_layers._vectors(model, exactly(), tokens, wanted)
    assert torch.equal(found["output"], model(tokens).detach())
    assert found["dX"].shape == (1, 20, 8) and bool(found["dX"].abs().sum() > 0)
    of_layers = sum(p.numel() for name, p in model.named_parameters() if not name.startswith("of_token"))
    assert found["parameters"].shape == (of_layers,)  # what the layers are given is a constant here
    names = [(layer, name) for layer in model.layers for name in ("W_Q", "W_K")]
    wanted_ones = [getattr(layer, name).weight.grad.flatten() for layer, name in names]
    assert torch.equal(found["W_QK"], torch.cat(wanted_ones))


def test_the_same_errors_come_out_again(layers):
    with depth._one_thread():
        assert list(over_layers._errors(TINY_LAYERS, 2, seed=0)) == layers["rows"][4:]


# ---------------------------------------------------------------------- training
def test_phases_hold_the_largest_difference_of_100_steps_each():
    exact, losses = [2.0] * 250, [2.0] * 250
    losses[99], losses[100], losses[249] = 2.5, 1.9, 2.25
    found = trainings.phases(losses, exact)
    assert [(p["first"], p["last"]) for p in found] == [(1, 100), (101, 200), (201, 250)]
    assert [p["largest_difference"] for p in found] == [0.5, 0.1, 0.25]


def made_up_training(steps=400, **off):
    exact = {"bound": 2.0, "attention": "exact", "degree": None, "losses": [2.0] * steps}
    runs = [exact | {"attention": name, "degree": 4, "losses": [2.0 + x] * steps} for name, x in off.items()]
    return {"sizes": {"steps": steps}, "runs": trainings.compared([exact, *runs])}


def test_the_goal_is_judged_by_the_polynomial_that_stays_nearest():
    found = trainings.verdict(made_up_training(taylor=0.01, hermite=0.003))
    assert (found["reached"], found["by"]) == (0.003, "hermite")
    assert depth._verdict(found) == "goal met"
    missed = trainings.verdict(made_up_training(taylor=0.01, hermite=-0.02))
    assert (missed["reached"], depth._verdict(missed)) == (0.01, "goal missed")
    few = trainings.verdict(made_up_training(steps=40, taylor=0.0))
    assert few["reached"] is None and depth._verdict(few).startswith("not judged")


def test_every_bound_has_an_exact_training_and_its_control():
    for bound in (2.0, 4.0, None):
        some = [kind for kind in trainings.kinds(trainings.Sizes()) if kind.bound == bound]
        assert [str(way) for way in some[:2]] == ["exact", "uniform"]
        names = {(way.attention, way.degree) for way in some[2:]}
        kinds = {"taylor", "hermite"} | ({"minimax"} if bound else set())
        assert names == {(kind, g) for kind in kinds for g in (2, 4)} and len(some) == 2 + len(names)


@pytest.fixture(scope="module")
def training():
    pytest.importorskip("torch")
    with depth._one_thread():
        return trainings.measured(TINY_TRAINING)


def test_each_training_starts_where_the_exact_one_does(training):
    exact = {run["bound"]: run["losses"] for run in training["runs"] if run["attention"] == "exact"}
    assert len(training["runs"]) == 8 + 6
    for run in training["runs"]:
        assert len(run["losses"]) == TINY_TRAINING.steps
        if run["degree"] == 4:
            assert run["losses"][0] == pytest.approx(exact[run["bound"]][0], abs=2e-3)
        if run["attention"] == "exact":
            assert run["phases"][0]["largest_difference"] == 0
            assert run["validation_own"] == run["validation_exact"]
        if run["bound"]:
            assert 0.95 * run["bound"] < run["largest_logit"] <= run["bound"] + 1e-3


def test_an_own_attention_is_not_the_exact_one_when_it_is_judged(training):
    uniform = next(run for run in training["runs"] if run["attention"] == "uniform")
    assert uniform["validation_own"] != uniform["validation_exact"]


# ---------------------------------------------------------------------- heads
@pytest.fixture(scope="module")
def heads():
    return real.measured()


def test_every_shipped_head_is_asked_about(heads):
    assert [(row["layer"], row["head"]) for row in heads["rows"]] == real_heads()
    one = real_head(*real_heads()[1])
    advice, row = advise(one.Q, one.K), heads["rows"][1]
    assert (row["degree"], row["rank"], row["break_even"]) == (advice.degree, advice.rank, advice.break_even)
    assert row["logit_std"] == pytest.approx(advice.logit_std, abs=1e-3)
    for row in heads["rows"]:
        one = real_head(row["layer"], row["head"])
        S = one.Q.astype(float) @ one.K.T.astype(float) / 32**0.5
        assert row["largest_logit"] == pytest.approx(abs(S).max(), abs=0.01)


def test_no_head_of_this_model_could_use_it(heads):
    assert all(row["exact_is_better"] for row in heads["rows"])
    assert "better choice for 0 of 8" in real.show(heads)


# ---------------------------------------------------------------------- the whole
def test_a_quick_run_from_the_command_line(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    from tools.bench.__main__ import main

    monkeypatch.setattr(over_layers, "QUICK", TINY_LAYERS)
    monkeypatch.setattr(trainings, "QUICK", TINY_TRAINING)
    monkeypatch.setattr(trained_gradient, "QUICK", TINY_TRAINED)
    file = tmp_path / "depth.json"
    assert main(["depth", "--quick", "--json", str(file)]) == 0
    record, said = json.loads(file.read_text(encoding="utf-8")), capsys.readouterr().out
    assert SUBJECTS["depth"] is depth
    check_record(record)
    assert [goal["verdict"] for goal in record["goals"]] == [
        "not judged: a quick run does not measure it"
    ] * 2
    for line in (
        "W_QK",
        "minimax, g = 4",
        "better choice for 0 of 8",
        "gradient at trained weights: 2 layers",
        "not judged",
        record["date"],
        "1 thread",
    ):
        assert line in said


def test_threads_are_put_back():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    with pytest.raises(ZeroDivisionError), depth._one_thread():
        assert torch.get_num_threads() == 1
        raise ZeroDivisionError
    assert torch.get_num_threads() == before


def test_without_torch_it_is_refused_with_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=re.escape(f"torch is missing: {install_command.command('torch')}")):
        depth.run(quick=True)


def check_record(record):
    """Check the properties of a record that readers rely on."""
    assert record["subject"] == "depth" and record["threads"] == 1 and record["date"]
    assert {"Python", "numpy", "torch"} <= set(record["versions"])
    sizes = record["layers"]["sizes"]
    count = len(sizes["layers"]) * len(sizes["degrees"]) * 2 * len(sizes["seeds"])
    assert len(record["layers"]["rows"]) == count
    assert record["layers"]["growth"] == over_layers.growth(record["layers"]["rows"])
    runs = record["training"]["runs"]
    assert all(len(run["losses"]) == record["training"]["sizes"]["steps"] for run in runs)
    assert runs == trainings.compared(runs)
    judged = [over_layers.verdict(record["layers"]["rows"]), trainings.verdict(record["training"])]
    assert record["goals"] == [goal | {"verdict": depth._verdict(goal)} for goal in judged]


def test_the_shipped_record_is_whole_and_says_what_the_code_would_say(heads):
    record = load_record("depth")
    if record is None:
        pytest.skip("no recorded run yet")
    check_record(record)
    assert not record["quick"]
    for row, now in zip(record["heads"]["rows"], heads["rows"], strict=True):
        floats = [key for key, value in row.items() if isinstance(value, float)]
        assert [row[key] for key in floats] == pytest.approx([now[key] for key in floats], rel=0.01)
        assert {k: v for k, v in row.items() if k not in floats} == {
            k: v for k, v in now.items() if k not in floats
        }
    prose = resources.files("iocourse.data").joinpath("prose.txt").read_bytes()
    assert record["training"]["text"]["sha256"] == sha256(prose).hexdigest()
    assert all(goal["verdict"] == "goal met" for goal in record["goals"])
