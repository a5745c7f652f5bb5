"""`python -m tools.bench gpu` from end to end on small shapes: kernels are interpreted, the times made up."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from fake_gpu import LAP, CpuPlace, in_a_hurry, needs_the_interpreter
from test_launches import kernels

from iocourse.course.own_gpu.compiled_run import CudaDevice
from iocourse.data.records import format_record, missing_metadata
from tools.bench import (
    checks,
    compiled_lessons,
    contest,
    contests,
    gpu,
    problems,
    roofs,
    run_to_run,
    steps,
    tiles,
    warming,
)
from tools.bench.__main__ import main
from tools.bench.cases import Case
from tools.bench.contest import DENSITIES, NO_MASK, TWO_PASS, Shape
from tools.bench.problems import Cached, Masked, Packs
from tools.bench.processes import Printed

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
KINDS = tuple(contests.CONTESTS)


def dense(causal=True, N=48, d=16):
    return Shape("float16", d, N, 1, 2, causal)


def case(pairs, N=48, H=2, H_kv=2):
    return Case("float16", 16, N, 2, H, H_kv, pairs)


SMALL = {  # by step: shapes that are timed, and those at which values are checked
    "two-pass": (
        [case("packed log-uniform"), case("blocks random", 64), case("window"), case("causal", H=4, H_kv=1)],
        [case("full", 33, 4, 2)],
    ),
    "d-256": ([dense(N=24, d=24)], [dense(N=20, d=24)]),
    "order": ([dense()], [dense(N=33)]),
    "heads": ([dense(N=24, d=24)], []),
    "merging": ([Cached("float16", 16, 200, 1, 4, 1)], []),
    "tiles-64": ([case("packed equal"), case("blocks window", 64)], []),
    "attention": ([dense(), dense(False)], [dense(N=33)]),
    "attention-tutorial": ([dense()], []),
    "sparse": (
        [Masked("float16", 16, 64, 1, 1, mask) for mask in ("window", NO_MASK, *DENSITIES)],
        [Masked("float16", 16, 50, 1, 1, "random")],
    ),
    "varlen": (
        [Packs("float16", 16, 1, "log-uniform", 3, 8, 48)],
        [Packs("float16", 16, 1, "log-uniform", 3, 5, 20)],
    ),
    "decode": ([Cached("float16", 16, 200, 2, 4, 2)], [Cached("float16", 16, 70, 1, 2, 1)]),
    "small-cache": ([dense(N=24, d=24)], [dense(N=20, d=24)]),
}


@pytest.fixture
def place(monkeypatch):
    """All of the script with less of everything: no step does something else than on a GPU."""
    needs_the_interpreter()
    in_a_hurry(monkeypatch)
    here = CpuPlace()
    monkeypatch.setattr(gpu, "cuda_place", lambda: here)
    for name, (timed, checked) in SMALL.items():
        change = {"shapes": lambda quick, timed=timed: timed, "small": checked}
        change |= {"problem": partial(problems.masked, block=16)} if name == "sparse" else {}
        change |= {"takes_part": lambda shape, name: True} if name == "attention" else {}
        monkeypatch.setitem(contests.CONTESTS, name, replace(contests.CONTESTS[name], **change))
    monkeypatch.setattr(problems.copy_speed, "__defaults__", (1024,))
    monkeypatch.setattr(steps, "TUNED_HEADS", (64,))
    monkeypatch.setattr(roofs, "SIZES", roofs.Sizes(16, 64, 8 * roofs.WORDS, 1, 2))
    promises = [run_to_run.Promise("two-pass", case("window"), TWO_PASS, "forward+backward")]
    promises += [run_to_run.Promise("decode", SMALL["merging"][0][0], "last program merges", "forward")]
    monkeypatch.setattr(run_to_run, "promises", lambda: promises)
    monkeypatch.setattr(run_to_run, "RUNS", 2)
    # Separate processes: those that compile, those that check compiled kernels, those of the lessons.
    monkeypatch.setattr(warming, "in_processes", lambda work, jobs: iter([[], [""] * len(jobs)]))
    held = [(0, None), (2, {"check": "one"}), (2, {"check": "two"})]
    monkeypatch.setattr(checks, "checked", lambda file, done: iter(held))
    monkeypatch.setattr(problems, "filled", lambda dtype, d, N, causal: dense(causal, 32, d))
    candidates = tiles.candidates
    monkeypatch.setattr(tiles, "candidates", lambda *asked: candidates(*asked)[:2])
    monkeypatch.setattr(tiles, "warm", lambda *_: None)  # in separate processes
    lesson = {"lesson": "10_x", "cells": 3, "ran": 2, "uncounted": [], "failed": {"cell 1": "NameError: x"}}
    lesson |= {"seconds": 1.0}
    monkeypatch.setattr(compiled_lessons, "rows_of", lambda files, root, at_once: iter([None, lesson]))
    monkeypatch.setattr(compiled_lessons, "files", lambda root: [root])
    return here


@pytest.fixture
def file(tmp_path):
    return tmp_path / "gpu.json"


def states(record):
    return {name: entry["state"] for name, entry in record["steps"].items()}


def rows_of(record, name, contender):
    return [row for row in record[name]["rows"] if row["contender"] == contender]


@pytest.mark.timeout(900)
def test_the_whole_run_prints_its_rows_and_leaves_records(place, file, capsys, monkeypatch):
    from iocourse.kernels.host import launches

    started, real = set(), launches.start

    def start(name, kernel, *rest, **more):
        started.add(kernel.fn.__name__)
        real(name, kernel, *rest, **more)

    monkeypatch.setattr(launches, "start", start)
    kept, write = [], gpu.write_json
    monkeypatch.setattr(
        gpu, "write_json", lambda file, record: kept.append(held(record)) or write(file, record)
    )
    tutorial = Path(__file__).with_name("stub_tutorial.py")
    assert main(["gpu", "--json", str(file), "--tutorial", str(tutorial), "--minutes", "900"]) == 0
    said, record = capsys.readouterr().out, json.loads(file.read_text())
    without_ncu = {"order": "cut off", "counters": "not run"}
    assert states(record) == dict.fromkeys(gpu.plan(tutorial), "done") | without_ncu
    assert [*states(record)][:2] == ["compile", "values"]
    assert all("ncu" in record["steps"][name]["why"] for name in without_ncu)
    assert started == kernels(), "values and times meet every kernel"
    for name in (*KINDS, "tune"):
        assert (
            missing_metadata(record[name] | {"device": {"name": "x"}}) == [] and record[name]["kernels_code"]
        )
    for name in KINDS:
        part = record[name]
        whole = len(SMALL[name][0])
        assert part["shapes"] == {"asked": whole + 2 * (name == "order"), "done": whole}
        rows = [*part["rows"], *part.get("density_rows", [])]
        mine = [row for row in rows if row["contender"] in problems.OURS]
        assert mine and all(row["ms"] == LAP and row["sm_mhz"] == 1980.0 for row in mine)
        assert all({"what", "reached", "goal", "floor", "verdict"} <= goal.keys() for goal in part["goals"])
        assert bool(part["goals"]) == (name in contests.GOALS)
        assert format_record(part) in said
    assert record["subject"] == "gpu" and record["attention-tutorial"]["subject"] == "attention"
    assert len(record["tune"]["kernels"]) == record["tune"]["asked"] == 4 and record["tune"]["tiles"] == []
    # A row is a pass at a shape: its line is printed when it is done, and the file is written then.
    rows = [
        line
        for line in said.splitlines()
        if line.startswith("float16, d = 16, N = 48, B = 1, H = 2, causal, ")
    ]
    assert [line.split(", ")[6].split(":")[0] for line in rows] == [
        *contest.PASSES, *contest.PASSES, contest.PASSES[0],  # the last one of the step order
    ]  # fmt: skip
    passes = sum(len(SMALL[name][0]) * len(contests.CONTESTS[name].times) for name in KINDS)
    checked = sum(len(some) for _, some in SMALL.values())
    # A row of compile, two of checks and of bits, four of tune, one of lessons, five of roofs.
    assert len(kept) == passes + checked + 1 + 2 + 2 + 4 + 1 + 5 + len(record["steps"])
    assert kept == sorted(kept) and kept[-1] == held(record) and len(set(kept)) > passes
    assert all("refused" not in row for name in ("values", "bits") for row in record[name]["rows"])
    assert {"l2_tb_s", "exp2_t_s", "shared_tb_s", "product_tflops", "copy_tb_s"} <= record["roofs"].keys()
    assert "10_x: 2 of 3 cells ran\n  cell 1: NameError: x" in said
    assert "goals (stated for an H200; this GPU: no GPU but a test)" in said and "1,980 MHz" in said


def held(record):
    """Return the total number of rows of a record."""
    parts = [record[name] for name in record["steps"] if name in record]
    return sum(len(part.get(key, ())) for part in parts for key in ("rows", "density_rows", "kernels"))


def test_without_a_tutorial_nobody_waits_for_it_and_a_step_can_run_alone(place, file, capsys):
    assert "attention-tutorial" not in gpu.plan(None)
    assert main(["gpu", "--json", str(file), "--only", "decode"]) == 0
    assert states(json.loads(file.read_text())) == {"decode": "done"}
    assert "--- decode: done" in capsys.readouterr().out


def test_wrong_values_are_refused_before_anything_is_timed(place, file, capsys, monkeypatch):
    """At the small shapes alone: there the kernel is not timed at any shape, and the others are."""
    right, timed = problems.ours, []

    def wrong(q, k, v, causal, **options):
        o = right(q, k, v, causal, **options)
        return o * 1.2 if q.shape[2] == 33 and options.get("deterministic") is False else o

    monkeypatch.setattr(problems, "ours", wrong)
    laps = place.stopwatch.laps
    monkeypatch.setattr(
        place.stopwatch, "laps", lambda work, repeats: timed.append(work) or laps(work, repeats)
    )
    assert main(["gpu", "--json", str(file), "--only", "values", "--only", "attention"]) == 1
    said, record = capsys.readouterr().out, json.loads(file.read_text())
    assert "fused WRONG" in said and said.index("fused WRONG") < said.index("--- attention")
    for row in rows_of(record, "attention", "fused"):
        assert (
            row["refused"].startswith("its values are wrong: relative errors O 0.2")
            and "N = 33" in row["refused"]
        )
    assert "fused" not in {row["contender"] for row in record["attention"]["errors"]}
    others = [row for row in record["attention"]["rows"] if "ms" in row]
    assert {row["contender"] for row in others} >= {
        "two-pass",
        "SDPA flash",
        "SDPA math",
    }
    assert "fused: its values are wrong" in said and "fused not timed" in said
    assert timed, "the others are timed"


def test_a_step_that_fails_keeps_its_reason_and_the_next_one_runs(place, file, capsys, monkeypatch):
    broken = replace(contests.CONTESTS["decode"], facts=lambda place, asked: 1 / 0)
    monkeypatch.setitem(contests.CONTESTS, "decode", broken)
    assert main(["gpu", "--json", str(file), "--only", "decode", "--only", "small-cache"]) == 1
    record = json.loads(file.read_text())
    assert states(record) == {"decode": "failed", "small-cache": "done"}
    assert record["steps"]["decode"]["why"] == "ZeroDivisionError: division by zero"
    assert "decode: ZeroDivisionError" in capsys.readouterr().out


# --- cut off ------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(place, monkeypatch):
    """A clock that only the stopwatch advances, by a fixed number of seconds for each work that it times."""
    now, laps = [0.0], place.stopwatch.laps
    monkeypatch.setattr(
        gpu, "time", SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter)
    )
    clock = SimpleNamespace(now=now, seconds=1.0)

    def taken(work, repeats):
        now[0] += clock.seconds
        return laps(work, repeats)

    monkeypatch.setattr(place.stopwatch, "laps", taken)
    return clock


def only_ours(monkeypatch, *names):
    field = {"fused": problems.ours}
    for name in names:
        change = replace(contests.CONTESTS[name], contenders=lambda place: field)
        monkeypatch.setitem(contests.CONTESTS, name, change)


def test_a_step_stops_before_a_row_that_would_not_fit_and_nothing_is_lost(clock, file, monkeypatch, capsys):
    only_ours(monkeypatch, "attention")
    clock.seconds = 5.0  # a row is a pass, for which the stopwatch is called twice: 10 s
    assert main(["gpu", "--json", str(file), "--only", "attention", "--minutes", "0.75"]) == 0
    record, said = json.loads(file.read_text()), capsys.readouterr().out
    assert states(record) == {"attention": "cut off"}
    rows = rows_of(record, "attention", "fused")
    assert [(row["causal"], row["pass"]) for row in rows] == [
        *((True, pass_) for pass_ in contest.PASSES), (False, "forward"),
    ]  # fmt: skip
    assert record["attention"]["shapes"] == {"asked": 2, "done": 1} and clock.now[0] == 40.0 < 45.0
    assert format_record(record["attention"]) in said
    assert "not judged: 0 of 10 shapes" in said and "cut off" in said


def test_what_a_step_leaves_is_for_those_after_it_and_without_time_none_begins(clock, file, monkeypatch):
    only_ours(monkeypatch, "attention", "small-cache")
    asked = ["--only", "attention", "--only", "small-cache"]
    clock.seconds = 0.0
    main(["gpu", "--json", str(file), *asked, "--minutes", "0.9"])
    steps = json.loads(file.read_text())["steps"]
    assert [entry["at_most"] for entry in steps.values()] == [48, 54], (
        "2 of 2.25 parts, and then all that is left"
    )
    clock.seconds = 200.0
    file.unlink()  # a new run
    main(["gpu", "--json", str(file), *asked, "--minutes", "0.9"])
    record = json.loads(file.read_text())
    assert states(record) == {"attention": "cut off", "small-cache": "no time left"}
    assert len(record["attention"]["rows"]) == 1, "the row during which the time was up is there"


@pytest.mark.parametrize("where", ["values", "a row", "a finaliser", "SIGTERM"])
def test_an_interrupted_run_prints_what_it_has(place, file, monkeypatch, capsys, where):
    """A signal within a row; in a finaliser Python loses the exception, and the next row ends the run."""
    only_ours(monkeypatch, "attention")
    calls, laps = [], place.stopwatch.laps

    class Finalised:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def interrupted(work, repeats):
        calls.append(work)
        if len(calls) == 4:  # within the second row
            if where == "a finaliser":
                with contextlib.suppress(KeyboardInterrupt):
                    Finalised()
            else:
                signal.raise_signal(signal.SIGTERM if where == "SIGTERM" else signal.SIGINT)
        return laps(work, repeats)

    monkeypatch.setattr(place.stopwatch, "laps", interrupted)
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    only = ["--only", "attention", "--only", "decode"]
    if where == "values":
        monkeypatch.setattr(contest, "exact_head", lambda *_: signal.raise_signal(signal.SIGINT))
        only += ["--only", "values"]
    assert main(["gpu", "--json", str(file), *only]) == 130
    record, said = json.loads(file.read_text()), capsys.readouterr().out
    if where == "values":
        assert states(record) == {"values": "interrupted"} and "values  interrupted" in said
        return
    rows = rows_of(record, "attention", "fused")
    assert states(record) == {"attention": "interrupted"}
    assert [row["pass"] for row in rows] == list(contest.PASSES[: 2 if where == "a finaliser" else 1])
    assert format_record(record["attention"]) in said and "attention  interrupted" in said
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "the handlers are those of before"


def test_an_interrupt_waits_for_a_file_that_is_being_written():
    written = []

    def keep(record):
        signal.raise_signal(signal.SIGINT)
        written.append(record)

    with gpu.interrupts() as stop:
        with contextlib.suppress(KeyboardInterrupt):  # or it would end pytest, and name no test
            stop.outside(keep)({"rows": 1})
        assert written == [{"rows": 1}] and stop.seen
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_an_interrupt_while_a_step_ends_begins_no_other(place, file, monkeypatch):
    write = gpu.write_json

    def interrupted(path, record):
        write(path, record)
        if states(record) == {"decode": "done"}:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(gpu, "write_json", interrupted)
    assert main(["gpu", "--json", str(file), "--only", "decode", "--only", "small-cache"]) == 130
    assert states(json.loads(file.read_text())) == {"decode": "done"}


KILLED = """
import sys, time
from tools.bench import gpu
from tools.bench.__main__ import main

class Place:
    facts = lambda self: {"name": "a toy"}
    tidy = close = lambda self: None

def step(visit, seconds):
    for done in range(1, 200):
        yield f"row {done}", {"rows": list(range(done)), "shapes": {"asked": 200, "done": done}}
        time.sleep(0.05)

gpu.cuda_place = Place
gpu.plan = lambda tutorial: {"toy": (1.0, step)}
gpu._told = lambda name, part: f"{len(part['rows'])} rows in the end"
sys.exit(main(["gpu", "--json", sys.argv[1]]))
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_a_run_that_is_killed_loses_nothing_that_was_printed(file, how):
    running = subprocess.Popen(
        [sys.executable, "-u", "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    said = [running.stdout.readline()]
    while said[-1] != "row 4\n":
        assert said[-1], "it ended by itself"
        said.append(running.stdout.readline())
    running.send_signal(how)
    rest = running.communicate(timeout=120)[0]
    record = json.loads(file.read_text())
    # The line is printed before the file is written, and the process may be killed in between.
    assert len(record["toy"]["rows"]) >= 3
    if how != signal.SIGKILL:
        assert running.returncode == 130 and states(record) == {"toy": "interrupted"}
        assert f"{len(record['toy']['rows'])} rows in the end" in rest
        assert [one.name for one in file.parent.iterdir()] == ["gpu.json"], "no half of a file is left"


# --- a run that continues another ---------------------------------------------------------------------------


def test_a_run_with_the_same_file_times_only_what_the_earlier_one_left(clock, file, monkeypatch, capsys):
    only_ours(monkeypatch, "attention")
    clock.seconds = 5.0  # a row is a pass, for which the stopwatch is called twice
    arguments = ["gpu", "--json", str(file), "--only", "attention", "--minutes"]
    assert main([*arguments, "0.75"]) == 0
    first = json.loads(file.read_text())
    assert states(first) == {"attention": "cut off"} and len(first["attention"]["rows"]) == 4
    began = clock.now[0]
    assert main([*arguments, "60"]) == 0
    whole = json.loads(file.read_text())
    assert clock.now[0] - began == 2 * 10, "two passes were left"
    rows = whole["attention"]["rows"]
    assert rows[:4] == first["attention"]["rows"] and states(whole) == {"attention": "done"}
    assert [(row["causal"], row["pass"]) for row in rows] == [
        (causal, pass_) for causal in (True, False) for pass_ in contest.PASSES
    ]
    assert whole["attention"]["shapes"] == {"asked": 2, "done": 2} and whole["seed"] == first["seed"]
    assert len(whole["attention"]["errors"]) == 2, "one for each shape"
    capsys.readouterr()
    assert main([*arguments, "60"]) == 0
    said = capsys.readouterr().out
    assert f"--- attention: done by an earlier run of {file}" in said and clock.now[0] - began == 20
    assert format_record(whole["attention"]) in said


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("commit", "another"),
        ("versions", {"torch": "1.0"}),
        ("device", {"name": "another GPU"}),
        ("kernels_code", "0"),
        ("quick", True),
        ("subject", "decode"),
    ],
)
def test_a_file_of_another_run_is_refused_in_one_line_and_stays(place, file, capsys, name, other):
    facts = steps.Visit(place).facts("gpu") | {"steps": {}}
    text = json.dumps(facts | {name: other})
    file.write_text(text)
    assert main(["gpu", "--json", str(file), "--only", "decode"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and str(file) in said and "--json FILE" in said
    assert name == "subject" or f"holds a run with {name} " in said
    assert file.read_text() == text


def test_wrong_values_of_an_earlier_run_are_not_timed():
    row = {"step": "attention", "contender": "fused", "refused": "why", "passes": ["forward", "backward"]}
    earlier = {"values": {"rows": [row, {"step": "decode", "contender": "split-KV"}]}}
    assert steps.wrong_before(earlier) == {
        "attention": {("fused", "forward"): "why", ("fused", "backward"): "why"}
    }
    assert steps.wrong_before({}) == {}


def test_every_other_step_leaves_out_the_rows_it_finds(place, file, monkeypatch):
    """Of a whole run: the last row of each step is removed, and a second run makes it again."""
    asked, names = [], ("values", "checks", "bits", "lessons", "roofs", "tune")
    files = [Path("10_x.ipynb"), Path("11_y.ipynb")]
    monkeypatch.setattr(compiled_lessons, "files", lambda root: files)

    def rows_of(some, root, at_once):
        asked.append(("lessons", [file.stem for file in some]))
        yield from ({"lesson": file.stem, "refused": "why", "seconds": 0.0} for file in some)

    def checked(file, done):
        asked.append(("checks", sorted(done)))
        yield from ((2, {"check": name}) for name in ("one", "two") if name not in done)

    kept, rates = run_to_run.kept, roofs.rates
    monkeypatch.setattr(compiled_lessons, "rows_of", rows_of)
    monkeypatch.setattr(checks, "checked", checked)
    monkeypatch.setattr(run_to_run, "kept", lambda one, *rest: asked.append("bits") or kept(one, *rest))
    for name, one in contests.CONTESTS.items():
        few = [shape for shape in one.small if name in ("order", "decode")]
        monkeypatch.setitem(contests.CONTESTS, name, replace(one, small=few))
    trial = contest.Trial
    monkeypatch.setattr(steps, "Trial", lambda *all_: asked.append("values") or trial(*all_))

    def noted(*arguments):
        return {name: partial(noting, name, make) for name, make in rates(*arguments).items()}

    def noting(name, make):
        asked.append(name)
        return make()

    monkeypatch.setattr(roofs, "rates", noted)
    only = [word for name in names for word in ("--only", name)]
    arguments = ["gpu", "--json", str(file), *only, "--minutes", "900"]
    assert main(arguments) == 0
    first = json.loads(file.read_text())
    assert states(first) == dict.fromkeys(names, "done")
    less = json.loads(file.read_text())
    for name in names:
        less["steps"][name]["state"] = "cut off"
    gone = {name: less[name][key].pop() for name, key in dict.fromkeys(names[:4], "rows").items()}
    gone["tune"] = less["tune"]["kernels"].pop()
    # All rows of the last shape of `values`, which are made together.
    less["values"]["rows"] = [row for row in less["values"]["rows"] if row["step"] != gone["values"]["step"]]
    del less["roofs"]["l2_tb_s"]
    file.write_text(json.dumps(less))
    asked.clear()
    assert main(arguments) == 0
    again = json.loads(file.read_text())
    assert states(again) == dict.fromkeys(names, "done")
    assert asked == ["values", ("checks", ["one"]), "bits", ("lessons", ["11_y"]), "l2_tb_s"]
    for name in ("checks", "bits", "lessons"):
        assert again[name]["rows"] == first[name]["rows"], name
    assert len(again["tune"]["kernels"]) == len(first["tune"]["kernels"]) == 4
    assert again["roofs"].keys() == first["roofs"].keys()


def a_record(rows, **facts):
    about = {"device": {"name": "no GPU but a test"}, "date": "1970-01-01", "density_rows": []}
    return about | {"versions": steps.Visit(CpuPlace()).facts("x")["versions"], "rows": rows} | facts


def flash_row(shape, pass_, ms=2.0, **facts):
    made = {**shape._asdict(), "contender": "SDPA flash", "pass": pass_, "ms": ms, "ratio": 7.0}
    return made | {"host_ms": 0.1, "host_bound": False, "tflops": 1.0} | facts


def contested_beside(monkeypatch, record, calls):
    """The rows of `attention` at both shapes, where the shipped record is this one."""
    monkeypatch.setattr(steps, "load_record", lambda name: record if name == "attention" else None)

    def flash(q, k, v, causal):
        calls.append(causal)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    field = {"fused": problems.ours, "SDPA flash": flash}
    change = replace(contests.CONTESTS["attention"], contenders=lambda place: field)
    parts = [part for _, part in steps.contested("attention", change, steps.Visit(CpuPlace())) if part]
    return parts[-1]["rows"]


@pytest.mark.parametrize("mine", ["", "device", "torch", "host", "a pass"])
def test_rivals_of_the_shipped_record_are_not_run_again(place, monkeypatch, mine):
    """Unless it is of another GPU or torch, the host bounded the time, or a pass is missing."""
    first = SMALL["attention"][0][0]
    rows = [flash_row(first, pass_) for pass_ in contest.PASSES]
    rows = [row | {"host_bound": True} for row in rows] if mine == "host" else rows
    record = a_record(rows[: 2 if mine == "a pass" else 3])
    record |= {"device": {"name": "another"}} if mine == "device" else {}
    record |= {"versions": record["versions"] | {"torch": "0"}} if mine == "torch" else {}
    calls = []
    found = contested_beside(monkeypatch, record, calls)
    flash = [row for row in found if row["contender"] == "SDPA flash"]
    assert len(flash) == 6 and all(row["ms"] for row in flash)
    old = [row for row in flash if "recorded" in row]
    if mine:
        assert old == [] and {*calls} == {True, False}
    else:
        assert {*calls} == {False}, "only at the shape that the record lacks"
        assert [(row["causal"], row["ms"], row["recorded"]) for row in old] == [(True, 2.0, "1970-01-01")] * 3
        assert {row["ratio"] for row in old} == {1.0}, "and not that of the record"
        ours_ = [row for row in found if row["contender"] == "fused"]
        assert [row["causal"] for row in ours_] == [False] * 3 + [True] * 3, (
            "what is not measured comes first"
        )


def test_a_lesson_is_a_process_and_one_that_dies_has_a_row(tmp_path, monkeypatch):
    lost = tmp_path / "10_lost.ipynb"
    (row,) = [row for row in compiled_lessons.rows_of([lost], ROOT, 2) if row]
    assert row["lesson"] == "10_lost" and "ended with exit code 1; KeyError: " in row["refused"]
    assert compiled_lessons.text_of(row) == f"10_lost: {row['refused']}"
    printed = [None, Printed("10_a", "noise"), Printed("10_a", '{"lesson": "10_a"}'), Printed("10_a", "", 0)]
    monkeypatch.setattr(compiled_lessons, "printed_by", lambda *_: iter(printed))
    assert [*compiled_lessons.rows_of([tmp_path / "10_a.ipynb"], ROOT, 2)] == [None, {"lesson": "10_a"}]


def test_what_every_step_raises_is_its_own(place, file, monkeypatch):
    """All of them raise, and each of them is run."""

    def broken(*_):
        raise RuntimeError("it fails")

    monkeypatch.setattr(place, "tidy", broken)
    monkeypatch.setattr(warming, "in_processes", broken)
    monkeypatch.setattr(checks, "checked", broken)
    assert main(["gpu", "--json", str(file), "--minutes", "900"]) == 1
    record = json.loads(file.read_text())
    assert states(record) == dict.fromkeys(gpu.plan(None), "failed")
    assert {entry["why"] for entry in record["steps"].values()} == {"RuntimeError: it fails"}


# --- lessons ------------------------------------------------------------------------------------------------


def test_a_launch_copies_its_tensors_and_brings_back_what_was_written():
    """Views of one memory stay so, with offset and strides; in tuples and descriptors too."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    from iocourse.kernels.host.launches import ListedSide

    whole = torch.arange(12.0).reshape(3, 4)
    view, other = whole[:, 1:3], torch.zeros(3)
    assert whole.data_ptr() % 16 == 0
    descriptor = TensorDescriptor.from_tensor(whole, [1, 4])
    seen = []

    def run(kernel, x, y, pair, given, described, scale, *, grid, out):
        tensors = (x, y, *pair[:1], given.spans, described.base, out)
        assert not any(one.data_ptr() == mine.data_ptr() for one in tensors for mine in (whole, view, other))
        assert (x.stride(), x.storage_offset()) == (
            (4, 1),
            1,
        ) and x.untyped_storage()._cdata != whole.untyped_storage()._cdata
        assert (kernel, pair[1], scale, grid) == ("kernel", 7, 2.0, (1,)) and given.spans_batch == 5
        x += 100
        seen.append(bool((y == whole_as_it_was[0] + torch.tensor([0, 100.0, 100.0, 0])).all()))
        out += 1
        return "launched"

    whole_as_it_was = whole.clone()
    given = ListedSide(other, 5, *[0] * 10)
    launched = compiled_lessons.on_device(run, "cpu")
    assert (
        launched("kernel", view, whole[0], (whole, 7), given, descriptor, 2.0, grid=(1,), out=other)
        == "launched"
    )
    assert seen == [True] and other.tolist() == [1.0] * 3
    assert torch.equal(whole[:, 1:3], whole_as_it_was[:, 1:3] + 100) and torch.equal(
        whole[:, 0], whole_as_it_was[:, 0]
    )


def test_a_check_sees_neither_copies_to_the_device_nor_empty_counts(monkeypatch):
    """The check of a correct kernel fails only in what needs counts. A kernel that is also wrong is an error,
    and so is a copy by torch in a student's own function.
    """
    from triton.runtime.interpreter import InterpretedFunction

    from iocourse import traffic
    from iocourse.course import checking
    from iocourse.course.exercise import find
    from tests.mutation.references import build, exercise_source

    source = exercise_source("12A", solved=True)
    assert source.count("(tl.float32) * o") == source.count("    return D") == 1

    def complaint(old="", new=""):
        verdicts = checking.judge(find("12A"), build("12A", source.replace(old, new)), 0)
        return " ".join(compiled_lessons.errors_first(checking.failed_properties, verdicts).values())

    assert complaint() == ""
    run = InterpretedFunction.run
    monkeypatch.setattr(InterpretedFunction, "run", compiled_lessons.on_device(run, "cpu"))
    monkeypatch.setattr(traffic, "count", lambda **_: contextlib.nullcontext(compiled_lessons.Uncounted()))
    assert compiled_lessons.UNCOUNTED in complaint()
    wrong = complaint("(tl.float32) * o", "(tl.float32) + o")
    assert wrong and compiled_lessons.UNCOUNTED not in wrong
    assert "torch copies here (clone)" in complaint("    return D", "    return D.clone()")


def test_a_lesson_runs_to_its_end_and_its_row_says_what_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(compiled_lessons, "START", "start = 1")
    sources = [
        'import os\nos.environ["TRITON_INTERPRET"] = "1"\nassert start',
        "1 / 0",
        "os.environ['TRITON_INTERPRET']",
        "from tools.bench.compiled_lessons import Uncounted\nUncounted().read",
    ]
    cells = [
        {
            "cell_type": "code",
            "id": f"c{at}",
            "metadata": {},
            "source": [source],
            "outputs": [],
            "execution_count": None,
        }
        for at, source in enumerate(sources)
    ]
    cells.append({"cell_type": "markdown", "id": "m", "metadata": {}, "source": ["text"]})
    (tmp_path / "solutions").mkdir()
    lesson = tmp_path / "solutions" / "10_a.ipynb"
    lesson.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    for other in ("09_b.ipynb", "14_without_kernels.ipynb"):
        (tmp_path / "solutions" / other).write_text("")
    assert compiled_lessons.files(tmp_path) == [lesson]
    row = compiled_lessons.row_of(lesson, tmp_path)
    assert (row["lesson"], row["cells"], row["ran"]) == ("10_a", 5, 3) and row["seconds"] > 0
    assert len(row["uncounted"]) == 1 and "c3" in row["uncounted"][0]
    assert list(row["failed"].values()) == ["ZeroDivisionError: division by zero"]
    assert "c1" in next(iter(row["failed"]))
    assert compiled_lessons.text_of(row).startswith("10_a: 3 of 5 cells ran\n  cell 2 (id c1)")
    assert compiled_lessons.text_of(row).endswith(f": {compiled_lessons.UNCOUNTED}")
    changed = compiled_lessons.for_the_gpu(json.loads(lesson.read_text()))
    assert 'os.environ["TRITON_INTERPRET"] = "0"' in changed["cells"][1]["source"]
    assert "outputs" in json.loads(lesson.read_text())["cells"][0], "the file stays as it is"


def test_every_lesson_on_kernels_says_what_is_replaced():
    """A lesson that selects the interpreter in another way would run interpreted, and its row not show it."""
    for file in compiled_lessons.files(ROOT):
        text = json.dumps(json.loads(file.read_text())["cells"])
        asks = text.count('TRITON_INTERPRET\\"] = \\"1\\"')
        changed = "".join(
            cell["source"] for cell in compiled_lessons.for_the_gpu(json.loads(file.read_text()))["cells"]
        )
        assert (
            changed.count('["TRITON_INTERPRET"] = "0"') == asks
            and '["TRITON_INTERPRET"] = "1"' not in changed
        )
        assert "assert kernels.INTERPRETED" not in changed
    assert len(compiled_lessons.files(ROOT)) == 8


def test_the_students_command_replaces_the_same_lines_and_the_benchmark_does_not_load_the_course():
    assert CudaDevice.replacements is compiled_lessons.COMPILED_INSTEAD
    code = "import sys, tools.bench.compiled_lessons; print('iocourse.course' in sys.modules)"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout == "False\n"


def test_a_count_raises_and_launches_are_wrapped():
    code = """
import os
os.environ["TRITON_INTERPRET"] = "0"
from tools.bench.compiled_lessons import compile_kernels
compile_kernels()
from triton.runtime.jit import JITFunction
from iocourse import kernels, traffic
from iocourse.kernels.host import checks
with traffic.count(Q=1) as ledger:
    pass
try:
    print(ledger.total)
except traffic.CannotCount as error:
    print(error)
print(kernels.INTERPRETED, JITFunction.run.__name__, checks._check_device("cpu"))
"""
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout == f"{compiled_lessons.UNCOUNTED}\nFalse launched None\n"


def test_the_minutes_are_some(place, capsys):
    for minutes in ("0", "-3", "nan", "inf"):
        assert main(["gpu", "--minutes", minutes]) == 2
        assert f"--minutes must be more than 0, got {float(minutes):g}" in capsys.readouterr().err
