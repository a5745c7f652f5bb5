"""The questions of `tools.bench gpu` without a GPU: their steps, and what the new steps time and compare."""

import os
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_gpu import CpuPlace

from tools.bench import cases, checks, contest, contests, gpu, problems, roofs, run_to_run, steps
from tools.bench.__main__ import parser
from tools.bench.cases import Case
from tools.bench.contest import TWO_PASS, Trial
from tools.bench.processes import printed_by

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]


# --- questions and steps -----------------------------------------------------------------------------------


def test_each_of_the_twelve_questions_has_a_step_or_a_reason():
    assert len(gpu.QUESTIONS) == 12
    for one in gpu.QUESTIONS:
        assert bool(one.steps) != bool(one.reason), one.asks
    named = [name for one in gpu.QUESTIONS for name in one.steps]
    planned = [*gpu.plan(Path("a tutorial"))]
    assert planned == [*named, *gpu.LEFT] and len(set(planned)) == len(planned)
    assert {*planned} == {*contests.CONTESTS, *gpu.STEPS}, "every comparison is in the plan"
    assert planned.index("values") < planned.index("two-pass") and planned[0] == "compile"


def test_the_help_and_the_page_name_every_step_and_every_question():
    said = " ".join(parser().format_help().split())
    page = (ROOT / "docs" / "guide" / "kernels.md").read_text(encoding="utf-8")
    for at, one in enumerate(gpu.QUESTIONS, 1):
        assert one.asks in said and one.reason in said and f"\n| {at}. " in page
        assert one.reason in page
    for name in gpu.plan(Path("a tutorial")):
        assert f"`{name}`" in page and name in said


def test_the_shares_of_the_questions_are_their_minutes():
    share = {name: minutes for name, (minutes, _) in gpu.plan(None).items()}
    each = [sum(share.get(name, 0) for name in one.steps) for one in gpu.QUESTIONS]
    # Values take more than the minute that is planned, because the kernels are compiled there.
    assert each == [2.75, 3, 2, 2, 1, 1.5, 2, 0, 1, 1, 1, 0.5]
    assert sum(share[name] for name in gpu.LEFT) == 1


def test_backward_passes_that_are_fused_for_want_of_a_time_are_timed_both_ways():
    """Each reason of a choice about a missing time for a kind of pairs has a shape in `two-pass`."""
    from iocourse.kernels.host.choices import Case as Decided
    from iocourse.kernels.host.choices import choice

    def chosen(shape):
        kind = shape.pairs.split()[0]
        sizes = shape.H // shape.H_kv, shape.B * shape.H * shape.N, shape.B * shape.H_kv
        return choice("backward pass", Decided(90, 2, shape.d, kind, *sizes))

    asked = cases.two_pass_shapes(False)
    assert {chosen(shape).value for shape in asked} == {"fused"}
    reasons = " ".join({chosen(shape).why for shape in asked})
    for untimed in (
        "two passes were not timed for block masks and packed sequences",
        "windows were not timed",
        "heads that share keys were not timed",
    ):
        assert untimed in reasons
    assert {(shape.d, shape.H // shape.H_kv) for shape in asked} >= {
        (d, g) for d in (64, 128) for g in (4, 8)
    }
    assert len(set(asked)) == len(asked) and {*cases.two_pass_shapes(True)} < {*asked}


def test_shapes_of_the_other_questions():
    wide = contests.CONTESTS["d-256"].shapes(False)
    assert [shape.d for shape in wide[:4]] == [256, 256, 192, 192] and {shape.N for shape in wide} == {
        4096,
        16384,
    }
    names = problems.of_wide(CpuPlace())
    assert [name for name in names if name.startswith("queries 64×64×8×2, keys ")] and "SDPA flash" in names
    merging = contests.CONTESTS["merging"].shapes(False)
    assert {shape.B * shape.H_kv for shape in merging} == {8, 12, 16, 24, 32}
    assert max(shape.N for shape in contests.CONTESTS["decode"].shapes(False)) > 32768
    assert {288, 448} <= {shape.d for shape in contests.CONTESTS["heads"].shapes(False)}
    square = contests.CONTESTS["tiles-64"]
    assert {shape.pairs.split()[0] for shape in square.shapes(False)} == {"packed", "blocks"}
    (order,) = contests.CONTESTS["order"].shapes(False)
    assert (order.H, order.N, order.d) == (32, 8192, 64)
    counted = {one.what for one, _ in steps.COUNTED}
    assert counted >= {"split-backward", "small-cache-materialised-backward", "block-sparse"}


TILES = contest.with_tiles(lambda *x: x, *contest.WIDE_TILES, contest.WIDE_FUSED, *contest.SQUARE_TILES)


@pytest.mark.parametrize("name", TILES)
def test_tiles_that_are_tried_are_those_of_their_names_and_within_the_chip(name):
    from tools.bench.measured_tiles import may_run

    for kernel, tile in TILES[name].choices.items():
        assert f"{kernel} {'×'.join(map(str, tile))}" in name
        # At d = 256 the keys tiles are near the limit of registers, which `fits` bounds from below.
        assert may_run(kernel, tile, 90, 64)


# --- problems ----------------------------------------------------------------------------------------------


def small(pairs, N=48, H=4, H_kv=2):
    return Case("float16", 16, N, 2, H, H_kv, pairs)


ASKED = {
    "full": lambda i, j: j == j,
    "causal": lambda i, j: j <= i,
    "window": lambda i, j: (j <= i) & (i - j <= problems.REACH),
}


@pytest.mark.parametrize("pairs", ASKED)
def test_the_checked_rows_are_all_query_heads_of_one_key_head(pairs):
    shape = small(pairs, N=600 if pairs == "window" else 48)
    made = cases.problem(shape, "cpu", 0)
    q, k, v = (x.double() for x in made.given.inputs)
    do = made.given.do.double()
    for x in (q, k, v):
        x.requires_grad_()
    i, j = torch.arange(shape.N)[:, None], torch.arange(shape.N)[None]
    wide = [x.repeat_interleave(2, 1) for x in (k, v)]
    scores = (q @ wide[0].mT / 4).masked_fill(~ASKED[pairs](i, j), float("-inf"))
    o = torch.softmax(scores, 3) @ wide[1]
    expected = (o, *torch.autograd.grad(o, (q, k, v), do))
    given = made.given
    found = contest.exact_head(*map(given.part, (*given.inputs, given.do)), made.pairs)
    for name, right in zip(contest.RESULTS, expected, strict=True):
        assert torch.allclose(found[name], given.part(right), rtol=1e-9, atol=1e-11), name
    assert found["O"].shape == (2 * shape.N, 16) and found["dK"].shape == (shape.N, 16)


@pytest.mark.parametrize("pairs", ["packed log-uniform", "blocks random", "causal"])
def test_both_backward_passes_hold_for_every_kind_of_pairs(interpreter, pairs):
    shape = small(pairs, N=64)
    field = cases.of_two_pass(None)
    trial = Trial(shape, cases.problem(shape, "cpu", 0), field, contest.PASSES)
    rows = [*trial.errors()]
    assert trial.refused == {} and [row["contender"] for row in rows] == [*field]
    assert all(row["worst_block"] < 0.01 for row in rows)


@pytest.mark.parametrize("pairs", ["packed log-uniform", "blocks random", "causal", "window"])
def test_a_pair_too_many_is_wrong(pairs):
    """Every pair visible, in the place of the mask."""
    shape = small(pairs, N=700 if pairs == "window" else 64)

    def blind(q, k, v, seen):
        if q.ndim == 3:  # packed: one sequence
            q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))
        o = torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return o[0].transpose(0, 1) if "cu_q" in seen else o

    trial = Trial(shape, cases.problem(shape, "cpu", 0), {"fused": blind}, contest.PASSES)
    assert [*trial.errors()] == [{}] and "its values are wrong" in trial.refused["fused", "forward"]


def test_a_case_that_does_not_exist_names_the_others():
    with pytest.raises(
        ValueError, match="pairs must be full, causal, window, blocks … or packed …, got 'odd'"
    ):
        cases.problem(small("odd"), "cpu", 0)


# --- the order of programs ---------------------------------------------------------------------------------


def test_heads_fastest_runs_the_same_programs_in_another_order(interpreter):
    import places_kernel

    from iocourse.kernels.jit_helpers import Shape as Grid
    from iocourse.kernels.jit_helpers import program_place
    from tools.bench.program_order import heads_first_place

    def places(place, last_first):
        """(tile, batch and head, batch, head) of each of 2 · 3 · 4 programs."""
        out = torch.zeros(24, 4, dtype=torch.int32)
        places_kernel.using(place)[(24,)](out, Grid(4, 3, 1, 16), last_first)
        return [tuple(row) for row in out.tolist()]

    for last_first in (False, True):
        usual, scattered = (places(one, last_first) for one in (program_place, heads_first_place))
        assert sorted(usual) == sorted(scattered) and len(set(scattered)) == 24
        tile = 3 if last_first else 0
        assert scattered[:6] == [(tile, pair, pair // 3, pair % 3) for pair in range(6)]
        assert [pair for _, pair, _, _ in usual[:4]] == [0] * 4


@pytest.mark.parametrize("causal", [False, True])
def test_results_do_not_depend_on_the_order_and_the_library_keeps_its_own(interpreter, monkeypatch, causal):
    from iocourse.kernels import attention
    from iocourse.kernels.host import launches
    from tools.bench.program_order import HEADS_FASTEST, TILES_FASTEST, heads_first_place, order_of

    q, started, real = torch.randn(2, 3, 300, 16), [], launches.start
    monkeypatch.setattr(
        launches,
        "start",
        lambda name, kernel, *rest, **more: started.append(kernel) or real(name, kernel, *rest, **more),
    )
    found = []
    for name in (TILES_FASTEST, HEADS_FASTEST):
        with order_of(name):
            found.append(attention(q, q, q, causal=causal))
    assert torch.equal(*found)
    usual, scattered = (one.fn.__globals__["place_of_queries"].fn.__globals__ for one in started)
    assert scattered["program_place"] is heads_first_place
    assert started[0] is launches.forward_kernel and usual["program_place"] is not heads_first_place
    assert started[1].fn.__name__ == "forward_kernel", "the name by which a profiler finds it"
    with pytest.raises(ValueError, match="name must be 'tiles fastest' or 'heads fastest', got 'odd'"):
        order_of("odd").__enter__()


# --- bits, checks, roofs -----------------------------------------------------------------------------------


def promise(step="two-pass", contender=TWO_PASS, pass_="forward+backward", shape=None):
    return run_to_run.Promise(step, shape or small("causal"), contender, pass_)


def kept(one, monkeypatch, attend, runs=3):
    monkeypatch.setattr(run_to_run, "RUNS", runs)
    change = {
        one.step: SimpleNamespace(problem=cases.problem, contenders=lambda place: {one.contender: attend})
    }
    monkeypatch.setattr(run_to_run, "CONTESTS", change)
    return [row for row in run_to_run.kept(one, CpuPlace(), 0) if row]


def test_results_that_change_from_run_to_run_are_counted(monkeypatch):
    calls = []

    def drifting(q, k, v, seen):
        calls.append(1)
        return (q * k.repeat_interleave(2, 1) * v.repeat_interleave(2, 1)) * (1 + (len(calls) == 3))

    (row,) = kept(promise(), monkeypatch, drifting)
    assert row["refused"] == "1 of 3 runs differ from the first" and row["pairs"] == "causal"
    calls[:] = [0] * 9
    (row,) = kept(promise(), monkeypatch, drifting)
    assert "refused" not in row and row["runs"] == 3
    (row,) = kept(promise(), monkeypatch, lambda *_: 1 / 0)
    assert row["refused"] == "ZeroDivisionError: division by zero"


def test_promises_are_of_every_kind_of_pairs_and_of_both_ways_of_decoding():
    every = run_to_run.promises()
    assert len(set(every)) == len(every)
    kinds = {(one.shape.pairs, one.shape.d) for one in every if one.step == "two-pass"}
    assert kinds == {(shape.pairs, shape.d) for shape in cases.two_pass_shapes(False)}
    assert {one.contender for one in every} == {TWO_PASS, "default", "split-KV", "last program merges"}
    for one in every:
        assert one.contender in contests.CONTESTS[one.step].contenders(CpuPlace())


SCRIPT = r"""
import sys
shard, skip = sys.argv[2], sys.argv[3:]
print("4 checks", flush=True)
if shard == "1/2":
    print("torch.float16 d=64 {'causal': True}: holds", flush=True)
    if "b: one" not in skip:
        print("b: one: WRONG, O errs by: 7", flush=True)
    sys.exit(1)
print("a warning")
sys.stderr.write("Segmentation fault\n")
sys.exit(139)
"""


def test_a_check_is_a_row_and_a_process_that_dies_is_one_too(tmp_path):
    file = tmp_path / "on_gpu.py"
    file.write_text(SCRIPT)
    found = [(asked, row) for asked, row in checks.checked(file, [], 2) if row]
    rows = [row for _, row in found]
    assert sorted(rows, key=lambda row: row["check"]) == [
        {"check": "b: one", "refused": "O errs by: 7"},
        {"check": "shard 2/2", "refused": "exit code 139; Segmentation fault"},
        {"check": "torch.float16 d=64 {'causal': True}"},
    ]
    assert {asked for asked, row in found if "shard" not in row["check"]} == {4}
    again = [row["check"] for _, row in checks.checked(file, ["b: one"], 2) if row]
    assert "b: one" not in again and len(again) == 2


def test_the_checks_are_those_of_the_script_and_can_be_left_out(monkeypatch, capsys):
    on_gpu = ROOT / "tests" / "kernels" / "on_gpu.py"
    assert checks.script(ROOT) == on_gpu
    monkeypatch.syspath_prepend(on_gpu.parent)
    import on_gpu as script

    monkeypatch.setattr(script, "checks", lambda: {"a": lambda: "", "b": lambda: "errs", "c": lambda: ""})
    monkeypatch.setattr(script.torch.cuda, "get_device_name", lambda: "a toy")
    monkeypatch.setattr(sys, "argv", ["on_gpu.py", "--skip", "b"])
    assert script.main() == 0
    assert capsys.readouterr().out.splitlines() == ["3 checks", "a: holds", "c: holds", "0 failed on a toy"]


def test_programs_that_are_left_are_killed():
    """After the first line of one; the other sleeps."""
    say = "import sys, time; print(sys.argv[1], flush=True); time.sleep(600 * (sys.argv[1] == 'two'))"
    commands = {name: [sys.executable, "-c", say, name] for name in ("one", "two", "three")}
    started = printed_by(commands, {}, 2, wait=0.05)
    seen = []
    while len(seen) < 5:
        one = next(started)
        seen += [one] if one else []
    assert {(one.name, one.line, one.code) for one in seen} == {
        *((name, name, None) for name in commands), ("one", "", 0), ("three", "", 0),
    }  # fmt: skip
    children = {*Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()}
    started.close()
    left = {*Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()}
    assert len(children - left) == 1


def test_a_rate_is_measured_once_and_per_clock_and_sm(interpreter, monkeypatch):
    monkeypatch.setattr(roofs, "SIZES", roofs.Sizes(16, 64, 8 * roofs.WORDS, 1, 2))
    monkeypatch.setattr("iocourse.gpu.timing.WARM_UPS", 0)
    parts = [part for _, part in roofs.measured(CpuPlace(), {"copy_tb_s": 4.0})]
    assert [part["shapes"]["done"] for part in parts] == [2, 3, 4, 5]
    last, near = parts[-1], partial(pytest.approx, rel=1e-9, abs=0)
    # One work takes 10⁹ ms, on two SMs of 1,980 MHz with one program each.
    assert last["copy_tb_s"] == 4.0 and last["product_tflops"] == near(2 * 16**3 / 1e18)
    assert last["l2_tb_s"] == near(2 * 4 * roofs.WORDS * 2 / 1e18)
    assert last["exp2_per_clock"] == near(2 * roofs.NUMBERS * 2 / 1e6 / 1980e6 / 2)
    assert last["shared_tb_s"] == near(2 * 2 * 128 * (64 + 16) * 2 / 1e18)
    assert last["sm_mhz"].keys() == {"product_tflops", "l2_tb_s", "exp2_t_s", "shared_tb_s"}


def test_the_works_of_the_roofs_compute_what_they_say(interpreter):
    sizes = roofs.Sizes(16, 64, 4 * 8 * roofs.WORDS, 1, 3)
    works = {name: make() for name, make in roofs.rates("cpu", 2, sizes).items()}
    seen = {}
    for name in ("l2_tb_s", "exp2_t_s", "shared_tb_s"):
        works[name].work()
        cells = dict(zip(works[name].work.__code__.co_freevars, works[name].work.__closure__, strict=True))
        seen[name] = {key: cell.cell_contents for key, cell in cells.items()}
    x, out = seen["l2_tb_s"]["x"].reshape(8, -1), seen["l2_tb_s"]["out"].reshape(2, -1)
    assert torch.allclose(out, torch.stack([x[:3].sum(0), x[1:4].sum(0)]), atol=1e-5)
    assert seen["exp2_t_s"]["out"].min() >= 0.5  # 2⁻ˣ of 0 … 1, three times
    a, b, out = (seen["shared_tb_s"][name].float() for name in ("a", "b", "out"))
    assert torch.allclose(out.reshape(2, 64, 16), 3 * (a @ b).expand(2, -1, -1), rtol=1e-3, atol=1e-2)
