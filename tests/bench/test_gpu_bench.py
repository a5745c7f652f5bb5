"""`tools.bench gpu` without a GPU: the steps of dense attention, the command, and what is shipped.

Times are not measured, because the stopwatch of these tests makes its laps up. Features that need CUDA are
not covered (events, SDPA's CUDA kernels, compiled FlexAttention, compiled kernels). `tests/gpu_launches` has
a rehearsal of the complete run.
"""

import inspect
import math
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_gpu import CpuPlace, by_contender, holds_numbers, is_wrong, measured

from iocourse.data.records import format_record, load_record
from iocourse.errors import UsageError
from tools.bench import contest, contests, gpu, problems, steps
from tools.bench.__main__ import SUBJECTS, main
from tools.bench.contest import PASSES, Shape, geometric_mean
from tools.bench.problems import LENGTHS

torch = pytest.importorskip("torch")

STEP, BESIDE, MASKS = contests.CONTESTS["attention"], contests.CONTESTS["attention-tutorial"], (False, True)
LAYOUT, GOALS = STEP.layout, (*contests.GOALS["attention"], *contests.GOALS["attention-tutorial"])
attention = partial(measured, "attention", takes_part=lambda shape, name: True)


# --- what a run consists of -------------------------------------------------------------------------------


def test_every_shape_of_the_issue_once():
    asked = [*STEP.shapes(False), *BESIDE.shapes(False)]
    assert len(asked) == len(set(asked)) == 2 * 2 * 5 * 2
    assert {shape.N for shape in asked} == {1024, 2048, 4096, 8192, 16384}
    assert {(shape.B * shape.N, shape.H * shape.d) for shape in asked} == {(16384, 2048)}
    assert set(STEP.shapes(True)) < set(asked) and {shape.N for shape in STEP.shapes(True)} == {4096}
    assert {shape.dtype for shape in STEP.shapes(False)} == {"bfloat16"}
    assert STEP.shapes(False)[: len(STEP.shapes(True))] == STEP.shapes(True), "the most telling ones first"


def test_slow_contenders_meet_at_one_length_and_the_others_at_all():
    slow = ("SDPA efficient", "SDPA math", "FlexAttention")
    for shape in STEP.shapes(False):
        some = [name for name in problems.of_attention(CpuPlace()) if STEP.takes_part(shape, name)]
        assert set(some) >= {"fused", "two-pass", "SDPA flash", "SDPA cuDNN"}
        assert set(slow) <= set(some) if shape.N == 4096 else not set(slow) & set(some)


# --- ratios, means, verdicts (made-up times) ---------------------------------------------------------------


def made_up(contender, ms, pass_="forward", dtype="bfloat16", d=128, lengths=LENGTHS):
    """Rows as a run would hold them, with made-up times."""
    return [
        {"dtype": dtype, "d": d, "N": N, "causal": causal, "pass": pass_, "contender": contender, "ms": ms}
        for N in lengths
        for causal in MASKS
    ]


def with_ratios(rows):
    return contest.with_ratios(rows, LAYOUT)


def means(rows):
    return contest.means(rows, LAYOUT)


def test_the_geometric_mean():
    assert math.isclose(geometric_mean([2.0, 8.0]), 4.0)
    assert math.isclose(geometric_mean([3.0]), 3.0)
    for wrong in ([], [1.0, 0.0]):
        with pytest.raises(ValueError, match="ratios must be one number or more, all above 0, got"):
            geometric_mean(wrong)


def test_the_ratio_is_the_time_of_flash_over_the_own_time_at_the_same_work():
    flash = made_up("SDPA flash", 3.0) + made_up("SDPA flash", 7.0, pass_="backward")
    refused = {**made_up("SDPA math", 1.0)[0], "refused": "too large"}
    del refused["ms"]
    rows = with_ratios([*flash, *made_up("fused", 2.0), *made_up("fused", 2.0, d=64), refused])
    assert {row["ratio"] for row in rows if row["contender"] == "fused" and row["d"] == 128} == {1.5}
    assert {row["ratio"] for row in rows if row["contender"] == "fused" and row["d"] == 64} == {None}
    assert {row["ratio"] for row in rows if row["contender"] == "SDPA flash"} == {1.0}
    assert rows[-1] == refused
    mean = {(row["contender"], row["pass"], row["d"]): row for row in means(rows)}
    assert math.isclose(mean["fused", "forward", 128]["ratio"], 1.5)
    assert (mean["fused", "forward", 128]["shapes"], mean["fused", "forward", 128]["of"]) == (10, 10)
    assert ("fused", "forward", 64) not in mean and ("SDPA math", "forward", 128) not in mean


def test_a_mean_weighs_every_shape_alike():
    rows = (
        made_up("SDPA flash", 4.0)
        + made_up("fused", 2.0, lengths=LENGTHS[:1])
        + made_up("fused", 1.0, lengths=LENGTHS[1:2])
    )
    (ours,) = (row for row in means(with_ratios(rows)) if row["contender"] == "fused")
    assert math.isclose(ours["ratio"], math.sqrt(8)) and (ours["shapes"], ours["of"]) == (4, 10)


def verdict(rows, what="forward, d = 128, bfloat16, against SDPA flash"):
    (goal,) = (contest.judged(rows, goal, LAYOUT.same_work) for goal in GOALS if goal.what == what)
    return goal["verdict"], goal["reached"]


@pytest.mark.parametrize(
    ("flash_ms", "expected"),
    [
        (1.36, "goal met"),
        (1.34, "goal missed, floor met"),
        (1.16, "goal missed, floor met"),
        (1.14, "floor missed"),
    ],
)
def test_a_goal_is_judged_by_the_mean_over_all_shapes(flash_ms, expected):
    found, ratio = verdict(made_up("fused", 1.0) + made_up("SDPA flash", flash_ms))
    assert found == expected and math.isclose(ratio, flash_ms)


def test_part_of_the_shapes_is_no_verdict():
    rows = made_up("fused", 1.0, lengths=LENGTHS[:4]) + made_up("SDPA flash", 2.0)
    found, ratio = verdict(rows)
    assert found == "not judged: 8 of 10 shapes have both times" and math.isclose(ratio, 2.0)
    assert verdict([]) == ("not judged: 0 of 10 shapes have both times", None)


def test_the_tutorial_is_met_at_its_best():
    what = "forward, d = 128, float16, against tutorial"
    rows = made_up("fused", 1.0, dtype="float16") + made_up("tutorial", 1.2, dtype="float16")
    assert verdict(rows, what)[0] == "goal met"
    faster = [*rows, *made_up("tutorial, warp-specialised", 0.95, dtype="float16")]
    assert verdict(faster, what)[0] == "goal missed"


def test_goals_are_those_agreed():
    by = {(goal.where["pass"], goal.where["d"], goal.rival): (goal.goal, goal.floor) for goal in GOALS}
    flash, cudnn, both = "SDPA flash", "SDPA cuDNN", "forward+backward"
    assert [by["forward", d, flash] for d in (64, 128)] == [(1.40, 1.33), (1.35, 1.15)]
    assert [by["backward", d, flash] for d in (64, 128)] == [(1.34, 1.28), (1.55, 1.30)]
    assert [by[both, d, flash] for d in (64, 128)] == [(1.33, 1.30), (1.49, 1.21)]
    assert [by["forward", d, "tutorial"] for d in (64, 128)] == [(1.0, None)] * 2
    assert [by["forward", d, cudnn][0] for d in (64, 128)] == [0.85, 0.72]
    assert [by["backward", d, cudnn][0] for d in (64, 128)] == [0.81, 0.81]
    assert len(by) == len(GOALS) == 12


def test_backward_is_judged_by_the_way_that_is_the_default_on_sm_90():
    from iocourse.kernels.host.choices import Case, choice

    assert choice("backward pass", Case(90, 2, 64, "full", 1, rows=2**19)).value == "two-pass"
    what = "backward, d = 64, bfloat16, two-pass, against SDPA flash"
    rows = [made_up(name, ms, d=64, pass_="backward") for name, ms in (("fused", 9.0), ("two-pass", 1.0))]
    found, ratio = verdict([*rows[0], *rows[1], *made_up("SDPA flash", 1.35, d=64, pass_="backward")], what)
    assert found == "goal met" and math.isclose(ratio, 1.35)


MORE_THAN_REACHED = {
    ("forward", "SDPA flash", 64),
    ("forward", "SDPA flash", 128),
    ("forward", "SDPA cuDNN", 64),
    ("forward", "SDPA cuDNN", 128),
}


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.what)
def test_a_goal_that_was_reached_is_no_more_than_what_the_record_says(goal):
    """And no less than a hundredth below: rows of the run that the goals were renewed from."""
    record = load_record("attention")
    if record["date"] != "2026-11-27":
        pytest.skip("the goals were renewed from another record")
    found = contest.judged(record["rows"], goal, LAYOUT.same_work)["reached"]
    key = goal.where["pass"], goal.rival, goal.where["d"]
    if goal.rival == "tutorial":
        assert found is None  # in a separate record
    elif key in MORE_THAN_REACHED:
        assert found < goal.goal
    else:
        assert 0 <= found - goal.goal < 0.01


# --- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", MASKS)
def test_the_reference_is_autograd_of_the_formula_written_out(causal):
    from tools.bench.contest import RESULTS, exact_head
    from tools.bench.problems import not_later

    N, d = 37, 8
    q, k, v, do = (torch.randn(N, d, dtype=torch.float64).requires_grad_() for _ in range(4))
    scores = q @ k.T / d**0.5
    if causal:
        scores = scores.masked_fill(torch.ones(N, N, dtype=torch.bool).triu(1), float("-inf"))
    o = torch.softmax(scores, 1) @ v
    expected = (o, *torch.autograd.grad(o, (q, k, v), do))
    for rows in (37, 16):
        found = exact_head(q, k, v, do, not_later if causal else None, rows=rows)
        assert tuple(found) == RESULTS
        for name, right in zip(RESULTS, expected, strict=True):
            assert torch.allclose(found[name], right, rtol=1e-10, atol=1e-12), name


def test_the_reference_runs_in_one_thread():
    """In autograd's own thread cuBLAS warns on a GPU that it has no context."""
    from tools.bench.contest import exact_head

    asked = []

    def everything(i, j):
        asked.append(torch._C._is_multithreading_enabled())
        return i == i + 0 * j

    q = torch.randn(8, 4)
    exact_head(q, q, q, q, everything)
    assert asked == [False] and torch._C._is_multithreading_enabled()


def test_one_wrong_row_in_many_shows():
    from tools.bench.contest import WRONG, relative_error, worst_block

    right = torch.randn(4096, 64, dtype=torch.float64)
    wrong = right.clone()
    wrong[1234] *= 2
    assert math.isclose(relative_error(2 * right, right), 1.0)
    assert relative_error(wrong, right) < WRONG["bfloat16"] < worst_block(wrong, right)
    assert worst_block(right.bfloat16(), right) < WRONG["bfloat16"] / 10
    wrong[1234, 5] = float("nan")
    assert not worst_block(wrong, right) <= WRONG["bfloat16"]


# --- the whole path but CUDA -------------------------------------------------------------------------------


def tiny(dtype="float16", causal=True):
    return Shape(dtype, 16, 48, 1, 2, causal)


def test_ours_and_every_rival_in_one_run_on_the_cpu(interpreter, monkeypatch):
    monkeypatch.setattr("iocourse.gpu.timing.WARM_UPS", 0)
    place = CpuPlace()
    field = problems.of_attention(place)
    backends = ("flash", "cuDNN", "efficient", "math")
    ours_ = ("fused", "two-pass", "flash_attention.py")
    assert tuple(field) == (*ours_, *(f"SDPA {name}" for name in backends), "FlexAttention")
    record = attention([tiny()], field, place)
    assert holds_numbers(record)
    forward, backward = by_contender(record, "forward"), by_contender(record, "backward")
    assert "two-pass" not in forward and "ms" in backward["two-pass"]
    for name in ("fused", "flash_attention.py", "SDPA flash", "SDPA math"):
        for pass_ in PASSES:
            row = by_contender(record, pass_)[name]
            assert (row["ms"], row["repeats"], row["ratio"]) == (1e9, 9, 1.0), (name, pass_)
    pairs = 4 * 2 * 48 * 48 * 16 / 2
    assert math.isclose(forward["fused"]["tflops"], pairs / 1e18)
    assert math.isclose(backward["fused"]["tflops"], 2.5 * pairs / 1e18)
    # Off a GPU these have no kernel, and FlexAttention has no backward pass: a reason, not a hole.
    for name in ("SDPA cuDNN", "SDPA efficient"):
        assert forward[name]["refused"] and backward[name]["refused"]
    assert "ms" in forward["FlexAttention"] and "CPU" in backward["FlexAttention"]["refused"]
    errors = {row["contender"]: row for row in record["errors"]}
    assert set(errors) == {*ours_, "SDPA flash", "SDPA math", "FlexAttention"}
    assert errors["two-pass"]["bit_equal"] is errors["flash_attention.py"]["bit_equal"] is True
    assert all(row["worst_block"] < 0.002 for row in errors.values())
    text = format_record(record)
    assert "\nfused: " not in text and "\nSDPA cuDNN: " in text
    assert [one["verdict"][:25] for one in record["goals"]] == ["not judged: 0 of 10 shape"] * 10
    assert text.splitlines()[-1].startswith("no GPU but a test (sm_90), Python ")


def test_the_file_to_copy_is_not_timed_if_its_values_are_wrong(interpreter, monkeypatch):
    """Twice the scale: its values are refused in each pass, and the library's are timed."""
    file = problems.file_to_copy()
    assert Path(file.__file__).relative_to(Path(problems.__file__).parents[2]) == Path(
        "lessons/flash_attention.py"
    )
    right = file.attention
    monkeypatch.setattr(file, "attention", lambda q, k, v, causal: right(2 * q, k, v, causal=causal))
    field = {name: problems.of_attention(CpuPlace())[name] for name in ("fused", "flash_attention.py")}
    record = attention([tiny()], field, CpuPlace())
    for pass_ in PASSES:
        rows = by_contender(record, pass_)
        assert rows["flash_attention.py"]["refused"].startswith("its values are wrong: ")
        assert "ms" in rows["fused"] and "ms" not in rows["flash_attention.py"]


def test_the_compiler_processes_leave_the_file_to_copy_to_its_tuner():
    from tools.bench import warming

    names = {one.contender for one in warming.wanted(["attention"], quick=True)}
    assert {"fused", "two-pass"} == names and "flash_attention.py" in problems.OURS


def sdpa(q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


def run_with(**field):
    return attention([tiny("bfloat16")], field | {"SDPA flash": sdpa}, CpuPlace())


def test_a_contender_that_is_wrong_is_not_timed():
    record = run_with(fused=lambda q, k, v, causal: sdpa(q, k, v, causal) * 1.2)
    for pass_ in PASSES:
        assert is_wrong(record, pass_, ": relative errors O 0.2")
        assert "ms" in by_contender(record, pass_)["SDPA flash"]
    assert [row["contender"] for row in record["errors"]] == ["SDPA flash"]
    assert "fused: its values are wrong" in format_record(record)


def test_a_choice_holds_for_its_contender_alone_and_in_both_passes():
    from iocourse.kernels.host.choices import Case, choice

    seen, name = {"forward": set(), "backward": set()}, "packed descriptors"

    def chosen():
        return choice(name, Case(90, 2, 64, "packed")).value

    class Reading(torch.autograd.Function):
        @staticmethod
        def forward(ctx, o, contender):
            seen["forward"].add((contender, chosen()))
            ctx.contender = contender
            return o.clone()

        @staticmethod
        def backward(ctx, do):
            seen["backward"].add((ctx.contender, chosen()))
            return do, None

    def reading(contender):
        return lambda q, k, v, causal: Reading.apply(sdpa(q, k, v, causal), contender)

    other = contest.Chosen(reading("packed by descriptors"), {name: True})
    record = run_with(fused=reading("fused"), **{"packed by descriptors": other})
    assert seen["forward"] == seen["backward"] == {("fused", False), ("packed by descriptors", True)}
    assert all("ms" in by_contender(record, pass_)["packed by descriptors"] for pass_ in PASSES)
    assert chosen() is False


def test_names_mean_what_they_meant_in_earlier_records():
    """The choices that an implementation forces, so that another default does not change its name."""
    forced = {
        (field, name): one.choices
        for field in ("attention", "varlen", "decode", "small_cache", "sparse")
        for name, one in getattr(problems, f"of_{field}")(CpuPlace()).items()
        if isinstance(one, contest.Chosen)
    }
    assert forced == {
        ("varlen", "fused"): {"packed descriptors": False, "backward pass": "fused"},
        ("varlen", "packed by descriptors"): {"packed descriptors": True, "backward pass": "fused"},
        ("decode", "split-KV"): {"decode step": "second launch"},
        ("decode", "last program merges"): {"decode step": "last program"},
        ("small_cache", "whole rows"): {"backward pass": "fused"},
        ("sparse", "fused"): {"backward pass": "fused"},
    }


def test_an_implementation_that_is_gone_is_still_shown_and_is_not_taken_for_another_library():
    record = load_record("attention")
    gone = [row for row in record["rows"] if row["contender"] == "rows by descriptors"]
    if not gone:
        pytest.skip("a record after the kernel was removed")
    assert "rows by descriptors" in format_record(record)
    assert "rows by descriptors" in problems.OURS, "`steps.recorded` would copy its rows into new records"


def test_what_is_not_written_is_wrong():
    record = run_with(fused=lambda q, k, v, causal: sdpa(q, k, v, causal) * float("nan"))
    assert is_wrong(record)


def test_a_wrong_gradient_costs_the_backward_passes_only():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, o):
            return o.clone()

        @staticmethod
        def backward(ctx, do):
            return do * 1.5

    record = run_with(fused=lambda q, k, v, causal: Wrong.apply(sdpa(q, k, v, causal)))
    assert "ms" in by_contender(record, "forward")["fused"]
    for pass_ in ("backward", "forward+backward"):
        assert "wrong: relative errors dQ 0.5" in by_contender(record, pass_)["fused"]["refused"]


def test_a_contender_that_fails_keeps_its_reason():
    def failing(q, k, v, causal):
        import warnings

        warnings.warn("the head size is odd", stacklevel=1)
        raise RuntimeError("no kernel\nand more lines")

    record = run_with(fused=sdpa, SOMEBODY=failing)
    for pass_ in PASSES:
        row = by_contender(record, pass_)["SOMEBODY"]
        assert row["refused"] == "RuntimeError: no kernel; the head size is odd" and "ms" not in row
        assert "ms" in by_contender(record, pass_)["fused"]


def test_a_contender_that_fails_under_the_clock_keeps_its_reason_too():
    calls = []

    def soon_tired(q, k, v, causal):
        calls.append(causal)
        if len(calls) > 4:  # the check calls it four times: forward, and three times with gradients
            raise RuntimeError("out of memory")
        return sdpa(q, k, v, causal)

    record = run_with(fused=soon_tired)
    for pass_ in PASSES:
        assert by_contender(record, pass_)["fused"]["refused"] == "RuntimeError: out of memory"
        assert "ms" in by_contender(record, pass_)["SDPA flash"]
    assert "fused" in {row["contender"] for row in record["errors"]}


def test_math_is_not_tried_where_its_matrices_do_not_fit():
    from tools.bench.problems import MATRIX_BYTES_A_PAIR, of_attention

    needed = MATRIX_BYTES_A_PAIR * 2 * 48 * 48
    for free, fits in ((2 * needed, True), (2 * needed - 1, False)):
        place = CpuPlace(free)
        field = {"SDPA math": of_attention(place)["SDPA math"]}
        row = by_contender(attention([tiny()], field, place), "forward")["SDPA math"]
        assert ("ms" in row) == fits
        assert fits or row["refused"].startswith("its N × N matrices need about ")


# --- the tutorial's file -----------------------------------------------------------------------------------

STAND_IN = """
import torch
class Tuned:
    configs = [1, 2]
    cache = {"what another shape": "chose"}
tuned = Tuned()
calls = []
class _attention:
    @staticmethod
    def forward(ctx, q, k, v, causal, sm_scale%s):
        pass
def attention(q, k, v, causal, sm_scale, *rest):
    calls.append((rest, dict(tuned.cache)))
    tuned.cache["chosen"] = causal
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, scale=sm_scale)
"""


@pytest.mark.parametrize(("parameter", "names"), [("", 1), (", warp_specialize=True", 2)])
def test_a_tutorial_takes_part_in_float16(tmp_path, parameter, names):
    from tools.bench.problems import SPECIALISED, TUTORIAL, tutorial_contenders

    file = tmp_path / "06-fused-attention.py"
    file.write_text(STAND_IN % parameter)
    field = tutorial_contenders(file)
    assert tuple(field) == (TUTORIAL, SPECIALISED)[:names]
    record = attention([tiny(), tiny(causal=False), tiny("bfloat16")], field, CpuPlace())
    for row in record["rows"]:
        assert ("ms" in row) == (row["dtype"] == "float16")
        assert "ms" in row or row["refused"].endswith("so it is timed in float16 only")
    assert len(record["rows"]) == 3 * 3 * names
    module = inspect.getclosurevars(field[TUTORIAL]).nonlocals["module"]
    switches = [(), ()] if names == 1 else [(False,), (True,)]
    assert {rest for rest, _ in module.calls} == set(switches[:names])
    # Every shape begins without what another one chose, and keeps what it chose itself.
    assert [seen for _, seen in module.calls].count({}) == 2 * names
    assert "what another shape" not in [key for _, seen in module.calls for key in seen]


@pytest.mark.parametrize("content", ["import nothing_of_this_name", "x = 1", "def broken("])
def test_another_file_is_no_tutorial(tmp_path, content, monkeypatch, capsys):
    file = tmp_path / "other.py"
    file.write_text(content)
    monkeypatch.setattr(gpu, "cuda_place", CpuPlace)
    assert main(["gpu", "--tutorial", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{file} is not a copy of Triton's tutorial 06: " in said


def test_pictures_are_written_where_they_are_asked_for(capsys, tmp_path, monkeypatch):
    lowrank = SUBJECTS["lowrank"]
    monkeypatch.setattr(lowrank, "run", lambda quick: {})
    monkeypatch.setattr(lowrank, "show", lambda result: "")
    monkeypatch.setattr(lowrank, "pictures", lambda result: {"one": SimpleNamespace(to_png=lambda: b"PNG")})
    assert main(["lowrank", "--pictures", str(tmp_path / "new")]) == 0
    assert (tmp_path / "new" / "one.png").read_bytes() == b"PNG"
    assert main(["ratios", "--pictures", "x"]) == 2
    assert "ratios does not take --pictures. Use it with: lowrank" in capsys.readouterr().err


def test_the_options_are_for_one_subject_only(capsys, tmp_path):
    for option, value in (("tutorial", "x"), ("minutes", "1"), ("only", "x"), ("install", "x")):
        assert main(["ratios", f"--{option}", value]) == 2
        subjects = "depth, gpu" if option == "only" else "gpu"
        assert f"ratios does not take --{option}. Use it with: {subjects}\n" in capsys.readouterr().err
    assert main(["gpu", "--tutorial", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "--tutorial must be a copy of Triton's 06-fused-attention.py" in said and "is not a file" in said
    assert main(["gpu", "--only", "speed"]) == 2
    assert "--only must be one of compile, values, checks, bits, two-pass, " in capsys.readouterr().err


# --- without a GPU -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reason", ["torch is not installed here", "there is no CUDA device that torch can use here"]
)
def test_without_a_gpu_one_line_says_what_can_be_done(monkeypatch, capsys, reason):
    monkeypatch.setattr(gpu, "cuda_unavailable_reason", lambda: reason)
    assert main(["gpu", "--quick"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"python -m tools.bench: no GPU, {reason}") and said.count("\n") == 1
    assert "python -m tools.bench resources" in said and "Shipped with the course: " in said


def test_the_record_named_is_that_of_attention(monkeypatch):
    monkeypatch.setattr(gpu, "cuda_unavailable_reason", lambda: "no GPU")
    monkeypatch.setattr(gpu, "load_record", lambda name: {"versions": {name: "1"}, "date": "1970-01-01"})
    with pytest.raises(UsageError, match=r"Shipped with the course: attention 1, 1970-01-01\.$"):
        gpu.cuda_place()


def test_interpreted_kernels_are_not_timed(monkeypatch):
    monkeypatch.setattr(gpu, "cuda_unavailable_reason", lambda: "")
    monkeypatch.setitem(sys.modules, "iocourse.kernels", SimpleNamespace(INTERPRETED=True))
    with pytest.raises(UsageError, match=r"interpreted in this process.*unset TRITON_INTERPRET"):
        gpu.cuda_place()


def test_the_clock_of_the_multiprocessors_is_the_median_since_it_was_read_last(tmp_path, monkeypatch):
    """Of a program in the place of nvidia-smi, and of none."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpu, "CudaStopwatch", lambda: None)
    properties = SimpleNamespace(uuid="1-2")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    assert gpu.Place().sm_mhz() is None
    smi, asked = tmp_path / "nvidia-smi", tmp_path / "asked"
    says = f"#!/bin/sh\necho $@ > {asked}; echo 1980; echo [N/A]; echo 1410; echo 1500; exec /bin/sleep 60"
    smi.write_text(says)
    smi.chmod(0o755)
    place = gpu.Place()
    end = time.monotonic() + 120
    while len(place._mhz) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    assert place.sm_mhz() == 1500 and place.sm_mhz() is None
    assert "clocks.sm" in asked.read_text() and "--id=GPU-1-2" in asked.read_text()
    place.close()
    assert place._smi.wait(60) != 0


# --- what is printed and shipped ---------------------------------------------------------------------------


def test_a_line_says_the_time_of_the_host_and_whether_it_bounds_the_other():
    row = {"contender": "fused", "ms": 0.25, "host_ms": 0.125, "host_bound": False}
    rows = [row, row | {"contender": "B", "host_bound": True}, {"contender": "C", "refused": "why"}]
    said = steps._times(rows, 1980.0)
    assert (
        said == "fused 0.250 (host 0.125), B 0.250 (host 0.125, which bounds it), C not timed; ms, 1,980 MHz"
    )
    assert steps._times([row | {"host_ms": None}], None) == "fused 0.250; ms"


def test_a_record_has_what_the_shipped_one_of_its_step_has(interpreter, place):
    """A new record has the same keys as the shipped one."""
    new = attention([tiny()], problems.of_attention(place), place)
    old = load_record("attention")
    assert old.keys() <= new.keys()
    for key in ("rows", "errors"):
        assert set(old[key][0]) <= set(new[key][0])
    assert set(old["means"][0]) == set(new["means"][0]) and set(old["goals"][0]) == set(new["goals"][0])
