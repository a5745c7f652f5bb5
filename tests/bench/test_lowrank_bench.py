"""`tools.bench lowrank`: the published digits, errors against float64, and a record of every section."""

import json
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from iocourse.doctor.thread_settings import VARIABLES  # noqa: E402
from iocourse.errors import UsageError  # noqa: E402
from iocourse.lowrank import numba_backend  # noqa: E402
from tools.bench import lowrank  # noqa: E402
from tools.bench.__main__ import SUBJECTS, main  # noqa: E402
from tools.bench.lowrank import published_protocol, scaling  # noqa: E402
from tools.bench.lowrank.library_calls import Ours  # noqa: E402
from tools.bench.lowrank.timing import QUICK, WHOLE, Plan  # noqa: E402

EVERYBODY = {
    *("exact (SDPA)", "Taylor (our passes)", "Hermite (ours)", "SATA"),
    *("WildCat", "Nyström", "FAVOR+", "elu + 1"),
}
TINY = Plan(
    rows=(4,), lengths=(64, 128), sdpa_to=64, shapes=((3, (1, 2)),), memory=2**15, spreads=(0.5, 2.0),
    panel=48, seeds=2, most_features=50, heads=1, most_head_features=40, seconds=0.0,
)  # fmt: skip


def normal(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


# --- the published protocol --------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [4, 5, 6, 7, 8])
def test_their_algorithm_gives_their_errors_to_every_printed_digit(d):
    data = published_protocol.row(d)
    error = published_protocol.their_error(
        published_protocol.their_algorithm(data.q, data.k, data.v),
        published_protocol.their_operator(data.q, data.k, data.v),
    )
    assert f"{error:.3f}" == f"{published_protocol.TABLE[d][0]:.3f}"


def test_there_are_nine_rows_and_no_other():
    sizes = [(data.d, tuple(data.q.shape)) for data in published_protocol.rows()]
    assert sizes == [(d, (10 * 2**d, d)) for d in range(4, 13)] and set(published_protocol.TABLE) == set(
        published_protocol.ROWS
    )
    with pytest.raises(ValueError, match="d must be 4 to 12, got 13"):
        published_protocol.row(13)


def test_their_operator_divides_columns_and_is_not_softmax(monkeypatch):
    q, k, v = normal(3, 50, 4, seed=1)
    A = (q @ k.T).exp().double()
    columns = (A / A.sum(1)[None, :]) @ v.double()
    monkeypatch.setattr(published_protocol, "BLOCK", 350)  # ragged blocks of seven rows
    assert torch.allclose(published_protocol.their_operator(q, k, v).double(), columns, atol=1e-5)
    assert not torch.allclose(columns, A.softmax(1) @ v.double(), atol=0.01)


def test_their_features_multiply_to_the_series_of_degree_two():
    q, k = normal(2, 9, 5)
    s = q @ k.T
    found = published_protocol.their_features(q) @ published_protocol.their_features(k).T
    assert torch.allclose(found, 1 + s + s * s / 2, atol=1e-5)
    assert published_protocol.their_features(q).shape == (9, 1 + 5 + 25)


def test_their_error_is_half_of_the_usual_one():
    y = normal(100, 4).double()
    x = y * 1.001
    assert published_protocol.relative_error(x, y) == pytest.approx(0.1, rel=1e-9)
    assert published_protocol.their_error(x, y) == pytest.approx(0.05, rel=1e-3)


# --- ours --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_arrays_and_tensors_are_the_same_work(causal):
    q, k, v, do = normal(4, 80, 4, seed=4)
    ours = Ours(q / 2, k / 2, v, do, 3, causal=causal)
    arrays = ours.backward()
    assert np.allclose(ours.forward(), arrays.O, atol=1e-6)
    assert np.allclose(ours.torch_forward().numpy(), arrays.O, atol=1e-6)
    for x, y in zip(ours.torch_backward(), arrays[1:], strict=True):
        assert np.allclose(x.numpy(), y, atol=1e-5)


def test_their_operator_with_our_polynomials_comes_near_it_and_nearer_with_every_degree():
    data = published_protocol.row(4)
    exact = published_protocol.their_operator(data.q, data.k, data.v)
    errors = [
        published_protocol.their_error(torch.from_numpy(Ours(*data[1:], None, g).their_operator()), exact)
        for g in (2, 3, 4, 8)
    ]
    assert errors[0] < published_protocol.TABLE[4][0] and sorted(errors, reverse=True) == errors
    assert errors[-1] < 0.005  # without the row factors it would stay at some per cent


# --- scaling -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_the_exponent_of_a_power_is_found(exponent):
    about = {"contender": "ours", "d": 8, "g": 3, "threads": 1, "pass": "forward"}
    rows = [about | {"n": n, "ms": 3e-5 * n**exponent} for n in (2**10, 2**13, 2**15, 2**20)]
    rows[0]["ms"] = 99.0  # below 2¹³: not part of the line
    (fit,) = scaling.fits(rows)
    assert fit["exponent"] == pytest.approx(exponent) and fit["ms_at_1"] == pytest.approx(3e-5)
    assert (fit["from"], fit["to"], fit["lengths"]) == (2**13, 2**20, 3)
    assert scaling.fits(rows[:3]) == []  # two points meet any line


@pytest.mark.skipif(
    not numba_backend.installed(), reason="in plain NumPy a tile of features is not negligible for few tokens"
)
def test_the_memory_of_a_gradient_is_read_in_a_process_of_its_own():
    found = scaling.memory(2**16, 12, 3, 1)
    assert found["held"] == 4 * (8 * 2**16 * 12 + 2 * 455 * 13)
    assert 0.9 < found["ratio"] < 1.5 and found["peak"] - found["before"] == found["grown"]


def test_a_process_that_cannot_measure_its_memory_says_why(monkeypatch):
    found = scaling.memory(64, 12, 0, 1)
    assert "degree" in found["refused"] and "ratio" not in found


# --- the record --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny():
    """Return a complete record of the smallest plan, measured in a separate process as by the command."""
    return {"quick": True} | lowrank.in_own_process(TINY)


def test_a_record_holds_every_section_and_survives_as_json(tiny):
    assert json.loads(json.dumps(tiny, allow_nan=False)) == tiny
    assert (tiny["subject"], tiny["threads"]) == ("lowrank", 1) and tiny["versions"]["torch"]
    assert [len(tiny[name]) for name in ("forward", "gradient", "causal")] == [1, 1, 1]
    assert tiny["device"]["name"] and tiny["engine"] in ("Numba", "NumPy")
    assert tiny["memory"]["ratio"] > 0 and tiny["fits"] == []


def test_a_row_holds_both_metrics_and_every_time(tiny):
    (row,) = tiny["forward"]
    assert (row["d"], row["n"], row["published_error"], row["published_speedup"]) == (4, 160, 4.673, 1.42)
    assert f"{row['their_error']:.3f}" == "4.673" and [one["g"] for one in row["degrees"]] == [2, 3, 4, 5]
    assert row["baseline_ms"] == min(row["in_place_ms"], row["sdpa_ms"])
    for one in row["degrees"]:
        assert one["speedup"] == pytest.approx(row["baseline_ms"] / one["ms"]) and one["torch_ms"] > 0
        assert one["judged_error"] < row["published_error"] and one["error"] < 6
        assert one["judged_error"] == pytest.approx(one["error"] / 2, rel=0.05)  # both of softmax
        assert one["their_error"] < row["published_error"] and one["their_error"] != one["judged_error"]
        assert one["their_operator_ms"] > 0
    assert row["their_ms"] > 0 and not any("their" in key and "speedup" in key for key in row)


def test_gradients_are_the_worst_of_three_and_causal_has_both_passes(tiny):
    for section in ("gradient", "causal"):
        (row,) = tiny[section]
        made = [ms for ms in (row["in_place_ms"], row["sdpa_ms"]) if ms is not None]
        assert len(made) == (1 if section == "causal" else 2) and row["baseline_ms"] == min(made)
        assert ("SDPA skips" in row["in_place_note"]) == (section == "causal")
        for one in row["degrees"]:
            assert one["worst"] == max(one["their_errors"][name] for name in ("dQ", "dK", "dV"))
            assert all(one["errors"][name] > one["their_errors"][name] for name in one["errors"])
    assert all([one["g"] for one in tiny[s][0]["degrees"]] == [2, 3, 4, 5] for s in ("gradient", "causal"))
    for one in tiny["causal"][0]["degrees"]:
        assert one["forward_speedup"] == pytest.approx(
            tiny["causal"][0]["sdpa_forward_ms"] / one["forward_ms"]
        )


def test_lengths_are_timed_and_their_errors_fall_with_the_degree(tiny):
    kinds = {(row["contender"], row["g"], row["n"], row["pass"]) for row in tiny["scaling"]}
    passes = ("forward", "forward+backward")
    assert kinds == {("ours", g, n, p) for g in (1, 2) for n in (64, 128) for p in passes} | {
        ("SDPA", None, 64, p) for p in passes
    }
    errors = {(row["n"], row["g"]): row for row in tiny["scaling_errors"]}
    assert errors[64, 2]["O"] < errors[64, 1]["O"] and errors[128, 2]["dQ"] < errors[128, 1]["dQ"]


def test_panels_hold_everybody_and_ours_is_better_than_taylor_at_equal_rank(tiny):
    errors = {
        (r["spread"], r["contender"], r["features"]): r["error"] for r in tiny["panels"] if "error" in r
    }
    assert {name for _, name, _ in errors} == {r["contender"] for r in tiny["panels"]} == EVERYBODY
    assert errors[0.5, "Hermite (ours)", 45] < errors[0.5, "Taylor (our passes)", 45]
    assert {row["layer"] for row in tiny["heads"]} == {0} and {r["d"] for r in tiny["heads"]} == {32}


def test_the_text_shows_the_record(tiny):
    shown = lowrank.show(tiny)
    for part in (
        "4, 160",
        "4.673, 1.42×",
        "peak memory of a gradient",
        "Nyström",
        "fastest at an error of at most",
    ):
        assert part in shown
    assert "a quick run, 1 thread for all, ours with" in shown and shown.count("not measured") >= 5


def test_pictures_are_drawn_from_the_record(tiny):
    drawn = lowrank.pictures(tiny)
    assert set(drawn) == {"rows", "gradient", "scaling", "contenders"}
    assert all(picture.to_png().startswith(b"\x89PNG") for picture in drawn.values())


# --- the command -------------------------------------------------------------------------------------------


def test_the_subject_is_found_and_its_plans_survive_the_way_to_another_process():
    assert SUBJECTS["lowrank"] is lowrank
    for plan in (WHOLE, QUICK, TINY):
        assert Plan.from_json(plan.to_json()) == plan
    assert WHOLE.rows == tuple(range(4, 13)) and (WHOLE.lengths[0], WHOLE.lengths[-1]) == (2**10, 2**20)


def test_the_process_is_told_its_threads_before_it_starts(monkeypatch):
    seen = {}

    def started(command, env, check):
        seen.update(env=env, command=command)
        return type("Done", (), {"returncode": 1})

    monkeypatch.setattr(lowrank.subprocess, "run", started)
    with pytest.raises(UsageError, match="ended early"):
        lowrank.run(True, threads=2)
    assert all(seen["env"][name] == "2" for name in VARIABLES)
    assert Plan.from_json(seen["command"][3]).threads == 2 and set(os.environ) <= set(seen["env"])


def test_bad_arguments_are_refused_in_one_line(capsys, monkeypatch):
    assert main(["lowrank", "--threads", "0"]) == 2
    assert "--threads must be 1 or more, got 0" in capsys.readouterr().err
    assert main(["ratios", "--threads", "1"]) == 2
    assert "ratios does not take --threads. Use it with: lowrank" in capsys.readouterr().err
    monkeypatch.setattr(lowrank.importlib.util, "find_spec", lambda name: None)
    assert main(["lowrank"]) == 2
    assert "torch is not installed here" in capsys.readouterr().err
