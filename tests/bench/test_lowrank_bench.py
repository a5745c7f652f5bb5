"""`tools.bench lowrank`: the published digits, errors against float64, and a record of every section."""

import json
import os
import re
from dataclasses import asdict

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from iocourse.doctor.thread_settings import VARIABLES  # noqa: E402
from iocourse.errors import UsageError  # noqa: E402
from iocourse.lowrank import numba_backend  # noqa: E402
from tools.bench import lowrank  # noqa: E402
from tools.bench.__main__ import SUBJECTS, main  # noqa: E402
from tools.bench.lowrank import published_protocol, rows, scaling  # noqa: E402
from tools.bench.lowrank.timing import QUICK, Plan  # noqa: E402

SECTIONS = ("forward", "gradient", "causal", "causal_gradient")
METHODS = {
    *("exact, SDPA", "exact, SDPA, padded", "mean of V", "Taylor (our passes)", "Hermite (ours)", "SATA"),
    *("WildCat", "Nyström", "FAVOR+", "elu + 1"),
}
TINY = Plan(
    rows=((4, 160), (16, 64)), lengths=(64, 128), exact_to=64, shapes=((3, (1, 2)),), memory=2**15,
    spreads=(0.5, 2.0), panel=48, seeds=2, most_features=50, heads=1, most_head_features=40, seconds=0.0,
)  # fmt: skip


def normal(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


def materialised(q, k, v, do, causal=False):
    """O, dQ, dK, dV by autograd of the matrix written out, in float64."""
    inputs = [x.double().clone().requires_grad_() for x in (q, k, v)]
    scores = inputs[0] @ inputs[1].T
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=bool).triu(1), -torch.inf)
    o = scores.softmax(1) @ inputs[2]
    return [o.detach(), *torch.autograd.grad(o, inputs, do.double())]


# --- the published protocol --------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [4, 5, 6, 7, 8])
def test_their_algorithm_gives_their_errors_to_every_printed_digit(d):
    inputs = published_protocol.draw(d, 10 * 2**d)
    error = published_protocol.their_error(
        published_protocol.their_algorithm(*inputs), published_protocol.their_operator(*inputs)
    )
    assert f"{error:.3f}" == f"{published_protocol.TABLE[d][0]:.3f}"


def test_there_are_nine_rows_and_another_shape_does_not_depend_on_them():
    assert tuple((d, 10 * 2**d) for d in range(4, 13)) == published_protocol.ROWS
    q, k, v = published_protocol.draw(12, 30)
    assert q.shape == k.shape == v.shape == (30, 12) and q.dtype == torch.float32
    source = torch.Generator().manual_seed(published_protocol.SEED)
    assert torch.equal(q, torch.randn(30, 12, generator=source) / 12**0.5)


def test_their_features_on_softmax_are_the_series_of_degree_two_by_rows():
    q, k, v = normal(3, 50, 4, seed=1).double() / 2
    weights = 1 + q @ k.T + (q @ k.T) ** 2 / 2
    found = published_protocol.their_algorithm(q, k, v, softmax=True)
    assert torch.allclose(found, weights / weights.sum(1, keepdim=True) @ v)


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


# --- rows --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_our_calls_have_every_output(causal):
    q, k, v, do = normal(4, 80, 4, seed=4)
    inputs = q / 2, k / 2, v, do
    exact = materialised(*inputs, causal)
    found = rows.ours(inputs, 3, 1, causal)()
    assert np.allclose(rows.ours(inputs[:3], 3, 1, causal)(), found.O, atol=1e-6)
    each = rows.errors([torch.from_numpy(x) for x in found], exact)
    assert set(each["errors"]) == {"O", "dQ", "dK", "dV"} and max(each["errors"].values()) < 20
    assert each["judged"] == max(list(each["their_errors"].values())[1:])


@pytest.mark.parametrize("causal", [False, True])
def test_the_control_is_attention_with_equal_weights(causal):
    _, k, v, do = normal(4, 30, 4, seed=5)
    none = torch.zeros_like(k)  # every score is 0
    o, dq, _, dv = materialised(none, k, v, do, causal)
    found = rows.equal_weights(none, v, do, causal)
    assert torch.allclose(found[0], o) and torch.allclose(found[3], dv) and dq.abs().max() > 0
    assert found[1].abs().max() == found[2].abs().max() == 0


def counted(n, n_k, d, rank, causal, both):
    """Multiply-adds of both sides, added up product by product and row by row."""
    C = rows.CAUSAL_TILE
    pairs = sum(i + 1 for i in range(n)) if causal else n * n_k
    exact = pairs * d * len(("S", "O", "dP", "dQ", "dK", "dV")[: 6 if both else 2])
    m = d + 1  # of [V, 1] and of [G, -δ]
    if not causal:
        queries, keys = (("N", "U", "dφ"), ("T", "dV", "dψ")) if both else (("N",), ("T",))
        return exact / (rank * m * (n * len(queries) + n_k * len(keys)))
    forward, tile = 2 * rank * m, C * (d + m)  # N, T; S, P [V, 1]
    dq, dq_tile = 2 * rank * m, C * (d + m + d)  # T Gᵀ, T; S, G [V, 1]ᵀ, dS K
    dkv, dkv_tile = 3 * rank * m, C * (d + m + m + d)  # ψᵀ U, U [V, 1]ᵀ, U; S, Pᵀ G, G [V, 1]ᵀ, dSᵀ Q
    products = forward + tile + (dq + dq_tile + dkv + dkv_tile) * both
    return exact / (n * products)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("both", [False, True])
def test_the_quotient_of_multiply_adds_counts_every_product(causal, both):
    for n, n_k, d, rank in ((4096, 4096, 12, 455), (200, 200 if causal else 77, 4, 15)):
        found = rows.multiply_adds(n, n_k, d, rank, causal, both)
        assert found == pytest.approx(counted(n, n_k, d, rank, causal, both), rel=1e-12)
    if not causal:
        assert rows.multiply_adds(40_960, 40_960, 12, 455, causal, both) == pytest.approx(
            40_960 / 455 * 12 / 13
        )


def test_degrees_are_limited_by_rank():
    assert [rows.degrees(d) for d in (4, 8, 9, 12, 16, 32)] == [
        [2, 3, 4, 5], [2, 3, 4, 5], [2, 3, 4], [2, 3, 4], [2, 3, 4], [2, 3],
    ]  # fmt: skip


# --- scaling -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [1.0, 2.0])
def test_the_exponent_of_a_power_is_found(exponent):
    about = {"contender": "ours", "d": 8, "g": 3, "threads": 1, "pass": "forward"}
    some = [about | {"n": n, "ms": 3e-5 * n**exponent} for n in (2**10, 2**12, 2**15, 2**20)]
    some[0]["ms"] = 99.0  # below 2¹²: not part of the line
    (fit,) = scaling.fits([*some, *(row | {"threads": 2, "ms": 1.0} for row in some)])  # of one thread only
    assert fit["exponent"] == pytest.approx(exponent) and fit["ms_at_1"] == pytest.approx(3e-5)
    assert fit["to"] == 2**20 and scaling.fits(some[:3]) == []  # two points lie on any line


@pytest.mark.skipif(
    not numba_backend.installed(), reason="in plain NumPy a tile of features is not negligible for few tokens"
)
def test_the_memory_of_a_gradient_is_read_in_a_process_of_its_own():
    found = scaling.memory(2**16, 12, 3, 1)
    assert found["held"] == 4 * (8 * 2**16 * 12 + 2 * 455 * 13)
    assert 0.9 < found["ratio"] < 1.5 and found["grown"] == found["ratio"] * found["held"]


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
    assert (tiny["subject"], tiny["threads"]) == ("lowrank", 1)
    assert {"Python", "torch", "numpy"} <= set(tiny["versions"])
    assert all([(row["d"], row["n"]) for row in tiny[name]] == [(4, 160), (16, 64)] for name in SECTIONS)
    assert tiny["device"]["name"] and tiny["engine"] in ("Numba", "NumPy")
    assert tiny["memory"]["ratio"] > 0 and tiny["fits"] == []


def test_a_row_has_both_metrics_every_exact_run_and_the_control(tiny):
    row, other = tiny["forward"]
    assert (row["published_error"], row["published_speedup"]) == (4.673, 1.42)
    assert other["published_error"] is None and other["published_speedup"] is None
    assert f"{row['their_error']:.3f}" == "4.673" and row["their_ms"] > 0
    assert row["their_multiply_adds"] == pytest.approx(160 / 21 * 4 / 5)
    assert [one["g"] for one in row["degrees"]] == [2, 3, 4, 5]
    for one in row["degrees"]:
        assert set(one["errors"]) == {"O"} and one["judged"] == one["their_errors"]["O"]
        assert one["judged"] == pytest.approx(one["errors"]["O"] / 2, rel=0.05)
        assert (
            one["judged"] < row["their_softmax_error"] < row["their_error"] < row["mean_of_v_error"]["judged"]
        )
        assert one["multiply_adds"] == pytest.approx(160 / one["rank"] * 4 / 5)


@pytest.mark.parametrize("section", ["forward", "gradient", "causal", "causal_gradient"])
def test_a_quotient_is_over_the_fastest_exact_run(tiny, section):
    for row in tiny[section]:
        runs = {"SDPA"} | ({"SDPA, padded"} if row["d"] % 16 else set())
        assert runs <= set(row["exact_ms"]) and ("in place" in row["exact_ms"]) == ("causal" not in section)
        assert row["baseline_ms"] == row["exact_ms"][row["baseline"]] == min(row["exact_ms"].values())
        for one in row["degrees"]:
            assert one["speedup"] == pytest.approx(row["baseline_ms"] / one["ms"])
        assert ("their_ms" in row) == (section == "forward")


def test_gradients_are_judged_by_the_worst_of_three_and_the_control_has_none(tiny):
    for section in ("gradient", "causal_gradient"):
        row = tiny[section][0]
        for one in (*row["degrees"], row["mean_of_v_error"]):
            assert one["judged"] == max(one["their_errors"][name] for name in ("dQ", "dK", "dV"))
        assert row["mean_of_v_error"]["errors"]["dQ"] == row["mean_of_v_error"]["errors"]["dK"] == 100
        forward = tiny["causal" if "causal" in section else "forward"][0]["mean_of_v_error"]
        assert row["mean_of_v_error"]["errors"]["O"] == forward["errors"]["O"] > 20


def test_lengths_are_timed_and_their_errors_fall_with_the_degree(tiny):
    kinds = {(row["contender"], row["g"], row["n"], row["pass"]) for row in tiny["scaling"]}
    passes = ("forward", "forward+backward")
    assert {kind for kind in kinds if kind[0] == "ours"} == {
        ("ours", g, n, p) for g in (1, 2) for n in (64, 128) for p in passes
    }
    assert {("SDPA", None, 64, p) for p in passes} <= kinds
    assert {n for _, g, n, _ in kinds if g is None} == {64}
    errors = {(row["n"], row["g"]): row["errors"] for row in tiny["scaling"]}
    assert errors[64, 2]["O"] < errors[64, 1]["O"] and errors[128, 2]["dQ"] < errors[128, 1]["dQ"]


def test_panels_have_all_methods_and_ours_is_better_than_taylor_at_equal_rank(tiny):
    errors = {
        (r["spread"], r["contender"], r["features"]): r["error"] for r in tiny["panels"] if "error" in r
    }
    assert METHODS <= {name for _, name, _ in errors} == {r["contender"] for r in tiny["panels"]}
    assert errors[0.5, "Hermite (ours)", 45] < errors[0.5, "Taylor (our passes)", 45]
    assert errors[0.5, "Hermite (ours)", 45] < errors[0.5, "mean of V", 1]
    assert {row["layer"] for row in tiny["heads"]} == {0} and {r["d"] for r in tiny["heads"]} == {32}


def test_the_text_shows_the_record(tiny):
    shown = lowrank.show(tiny)
    assert re.search(r" 4  160 +ours, g = 2 .*× .*×", shown) and re.search(r"16 +64 +mean of V ", shown)
    for part in ("a gradient of 32,768 tokens must hold", "Nyström", "fastest at ≤ 10 %"):
        assert part in shown
    assert "a quick run, 1 thread for all, ours with" in shown and shown.count("not measured") >= 3


def test_pictures_are_drawn_from_the_record(tiny):
    drawn = lowrank.pictures(tiny)
    assert set(drawn) == {*SECTIONS, "scaling", "contenders"}
    assert all(picture.to_png().startswith(b"\x89PNG") for picture in drawn.values())


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("model name\t: A CPU\nflags\t\t: sse2 avx avx2 fma\n", {"name": "A CPU", "vector_bits": 256}),
        ("model name\t: B: new\nflags\t\t: sse2 avx2 avx512f\n", {"name": "B: new", "vector_bits": 512}),
        ("model name\t: C\nFeatures\t: fp asimd\n", {"name": "C", "vector_bits": 128}),
        ("model name\t: D\nflags\t: fpu\n", {"name": "D", "vector_bits": None}),
    ],
)
def test_the_processor_and_its_vector_width_are_read(tmp_path, content, expected):
    file = tmp_path / "cpuinfo"
    file.write_text(content)
    assert lowrank.processor(file) == expected
    assert lowrank.processor(tmp_path / "none")["vector_bits"] is None


# --- the command -------------------------------------------------------------------------------------------


def test_the_subject_is_found_and_its_plans_survive_the_way_to_another_process():
    assert SUBJECTS["lowrank"] is lowrank
    for plan in (Plan(), Plan(**QUICK), TINY):
        there = json.dumps(asdict(plan))
        assert json.dumps(asdict(Plan(**json.loads(there)))) == there
    assert {(d, 4096) for d in (12, 16, 32)} | {(12, 10_240), *published_protocol.ROWS} == set(Plan().rows)
    assert (Plan().lengths[0], Plan().lengths[-1]) == (2**10, 2**20)


def test_the_process_is_told_its_threads_before_it_starts(monkeypatch):
    seen = {}

    def started(command, env, check):
        seen.update(env=env, command=command)
        return type("Done", (), {"returncode": 1})

    monkeypatch.setattr(lowrank.subprocess, "run", started)
    with pytest.raises(UsageError, match="ended early"):
        lowrank.run(True, threads=2)
    assert all(seen["env"][name] == "2" for name in VARIABLES)
    assert Plan(**json.loads(seen["command"][3])).threads == 2 and set(os.environ) <= set(seen["env"])


def test_bad_arguments_are_refused_in_one_line(capsys, monkeypatch):
    assert main(["lowrank", "--threads", "0"]) == 2
    assert "--threads must be 1 or more, got 0" in capsys.readouterr().err
    assert main(["ratios", "--threads", "1"]) == 2
    assert "ratios does not take --threads. Use it with: lowrank" in capsys.readouterr().err
    monkeypatch.setattr(lowrank.importlib.util, "find_spec", lambda name: None)
    assert main(["lowrank"]) == 2
    assert "torch is not installed here" in capsys.readouterr().err
