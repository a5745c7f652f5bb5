"""Gradient at trained weights: the measurement on a tiny model, the claims of the record, and `--only`."""

from hashlib import sha256
from importlib import resources
from math import hypot

import numpy as np
import pytest

from iocourse.data.records import load_record, missing_metadata
from iocourse.errors import UsageError
from tools.bench import depth
from tools.bench.depth import trained_gradient as trained

TINY = trained.Sizes(seeds=(1,), steps=(0, 3), degrees=(2, 4), n=96, batch=1, layers=2, heads=2, d=4)
DIGITS = 6e-3  # of a ratio of two numbers of three digits, each within 0.5 %


@pytest.fixture(scope="module")
def rows():
    pytest.importorskip("torch")
    with depth._one_thread():
        return trained.measured(TINY)["rows"]


def test_each_model_is_measured_at_each_step_and_degree(rows):
    cases = [(row["bound"], row["step"], row["degree"]) for row in rows]
    assert cases == [(b, step, g) for b in (None, 2.0) for step in (0, 3) for g in (2, 4)]
    for low, high in zip(rows[::2], rows[1::2], strict=True):
        assert high["loss"] == low["loss"] and high["sigma"] == low["sigma"]
        for key in ("together", "root_of_squares", "sum"):
            assert 0 < high[key] < low[key] / 3
        assert 0 <= 1 - low["cosine"] <= low["together"] ** 2 / 2 + 1e-5  # of two vectors of similar length
        assert all(0 < y < x for x, y in zip(low["by_layer"], high["by_layer"], strict=True))
        assert len(low["alone"]) == len(low["sigma"]) == 2
    check_sums(rows)


def check_sums(rows):
    for row in rows:
        assert row["root_of_squares"] == pytest.approx(hypot(*row["alone"]), rel=DIGITS)
        assert row["sum"] == pytest.approx(sum(row["alone"]), rel=DIGITS)


def test_the_gradient_is_that_of_the_next_batch_of_exact_training(rows):
    from iocourse.lowrank import character_model
    from iocourse.lowrank.transformer import Shape, exactly, transformer

    text = character_model.prose()
    model = transformer(Shape(len(text.alphabet), 96, 2, 2, 4, bound=2.0), exactly(), seed=1)
    losses = character_model.train(model, text, range(4), batch=1, seed=1)
    found = {row["step"]: row["loss"] for row in rows if row["bound"]}
    assert found == {step: pytest.approx(losses[step], rel=DIGITS) for step in (0, 3)}


def test_the_error_of_one_layer_is_that_of_a_model_with_the_others_exact(rows):
    from iocourse.lowrank import character_model
    from iocourse.lowrank.transformer import Shape, exactly, low_rank, transformer

    text = character_model.prose()
    model = transformer(Shape(len(text.alphabet), 96, 2, 2, 4), exactly(), seed=1).double()
    tokens, wanted = next(character_model.batches(text.train, 1, 96, seed=1))

    def gradients(*names):
        ways = {"exact": exactly(), "g = 2": low_rank(2, polynomial="taylor", engine="torch")}
        return trained.gradient(model, [ways[name] for name in names], tokens, wanted)[1]

    exact, first, last = gradients("exact", "exact"), gradients("g = 2", "exact"), gradients("exact", "g = 2")
    norm = hypot(*(float(x.norm()) for x in exact.values()))
    for at, found in enumerate((first, last)):
        error = hypot(*(float((found[name] - x).norm()) for name, x in exact.items())) / norm
        assert rows[0]["alone"][at] == pytest.approx(error, rel=DIGITS)
    assert rows[0]["alone"][0] != rows[0]["alone"][1]


def test_errors_are_relative_and_those_of_a_layer_are_of_its_queries_and_keys():
    torch = pytest.importorskip("torch")
    names = [f"layers.{at}.{name}.weight" for at in (0, 1) for name in ("W_Q", "W_K", "W_V")]
    want = {name: torch.tensor([[2.0]]) for name in names}
    found = want | {
        "layers.0.W_K.weight": torch.tensor([[4.0]]),
        "layers.1.W_V.weight": torch.tensor([[3.0]]),
    }
    row = trained.compared(found, want, [0.3, 0.4])
    assert row["by_layer"] == [pytest.approx(2 / 8**0.5, rel=DIGITS), 0]
    assert row["together"] == pytest.approx((5 / 24) ** 0.5, rel=DIGITS)
    assert row["cosine"] == pytest.approx(30 / (24 * 41) ** 0.5, abs=1e-5)
    assert (row["root_of_squares"], row["sum"], row["alone"]) == (0.5, 0.7, [0.3, 0.4])


def test_the_spread_of_the_logits_leaves_out_hidden_keys_and_the_mean_of_a_row():
    torch = pytest.importorskip("torch")
    S = np.random.default_rng(0).normal(size=(2, 3, 5, 5))
    wanted = np.sqrt(
        np.mean([S[b, h, i, : i + 1].var() for b in range(2) for h in range(3) for i in range(5)])
    )
    assert trained.logit_spread(torch.tensor(S)) == pytest.approx(wanted)
    assert trained.logit_spread(torch.tensor(S + 100 * S[..., :1])) == pytest.approx(wanted)


# ---------------------------------------------------------------------- the record
@pytest.fixture(scope="module")
def recorded():
    return load_record("depth")["trained_gradient"]


def test_the_section_has_its_own_source_and_all_cases(recorded):
    assert missing_metadata(recorded) == [] and not recorded["commit"].endswith("+")
    whole = {name: list(x) if isinstance(x, tuple) else x for name, x in trained.Sizes()._asdict().items()}
    assert recorded["sizes"] == whole and recorded["polynomial"] == trained.POLYNOMIAL
    prose = resources.files("iocourse.data").joinpath("prose.txt").read_bytes()
    assert recorded["text"] == sha256(prose).hexdigest()
    cases = {(row["bound"], row["seed"], row["step"], row["degree"]) for row in recorded["rows"]}
    assert len(cases) == len(recorded["rows"]) == 2 * 3 * 3 * 3
    check_sums(recorded["rows"])
    assert trained.show(recorded).count("\n") == 2 + 2 * 3 * 3


def test_the_errors_of_layers_add_in_quadrature(recorded):
    found = trained.ratios(recorded["rows"])
    assert (round(min(found), 2), round(max(found), 2)) == (0.82, 1.10)
    initial = trained.ratios(row for row in recorded["rows"] if row["step"] == 0)
    assert (round(min(initial), 2), round(max(initial), 2)) == (0.99, 1.01)


@pytest.mark.parametrize("degree", [2, 4, 6])
def test_with_free_logits_each_layers_spread_and_error_grow_in_training(recorded, degree):
    rows = [row for row in recorded["rows"] if row["bound"] is None and row["degree"] == degree]
    for key in ("sigma", "alone"):
        for seed in (0, 1, 2):
            start, middle, end = (row[key] for row in rows if row["seed"] == seed)
            assert all(x < y < z for x, y, z in zip(start, middle, end, strict=True))
    sigma, alone = ([x for row in rows for x in row[key]] for key in ("sigma", "alone"))
    assert round(spearman(sigma, alone), 2) == 0.93


def spearman(x, y):
    return np.corrcoef(*(np.argsort(np.argsort(values)) for values in (x, y)))[0, 1]


def test_within_a_bound_the_error_grows_too_although_the_spread_does_not(recorded):
    rows = [row for row in recorded["rows"] if row["bound"] == 2]
    sigma = [x for row in rows for x in row["sigma"]]
    assert (min(sigma), max(sigma)) == (0.692, 0.739)
    first, last = ([row for row in rows if row["step"] == step] for step in (0, 200))
    growth = [b["together"] / a["together"] for a, b in zip(first, last, strict=True)]
    assert (round(min(growth), 1), round(max(growth), 1)) == (5.8, 13.1)
    norms = [a["norm"] / b["norm"] for a, b in zip(first, last, strict=True)]
    assert (round(min(norms), 1), round(max(norms), 1)) == (2.9, 3.2)  # so relative errors grow by this alone
    largest = {g: max(row["together"] for row in last if row["degree"] == g) for g in (2, 4, 6)}
    assert largest == {2: 0.0546, 4: 0.00679, 6: 0.000493}


# ---------------------------------------------------------------------- one section of a record
@pytest.fixture
def sections(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setitem(depth.SECTIONS, "trained_gradient", lambda quick: {"rows": ["new"]})


def test_one_section_is_renewed_with_its_own_date_and_the_others_are_kept(sections):
    before = load_record("depth")
    after = depth.run(quick=False, only=["trained_gradient"])
    renewed = after.pop("trained_gradient")
    assert renewed["rows"] == ["new"] and missing_metadata(renewed) == []
    assert after == {key: value for key, value in before.items() if key != "trained_gradient"}


def test_a_section_that_cannot_be_renewed_is_refused_in_one_line(sections, monkeypatch):
    with pytest.raises(UsageError, match=r"--only must be one of layers, .*, trained_gradient; got 'lairs'"):
        depth.run(quick=False, only=["lairs"])
    with pytest.raises(UsageError, match="--quick cannot be used with --only"):
        depth.run(quick=True, only=["heads"])
    monkeypatch.setattr(depth, "load_record", lambda name: None)
    with pytest.raises(UsageError, match="there is none: omit --only"):
        depth.run(quick=False, only=["heads"])
