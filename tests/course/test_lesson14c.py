"""Tests of lesson 14c: emulated reads and cache, records, the timed step, and exercises 14A and 14B."""

import subprocess
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from lesson_source import Lesson

from iocourse import costs
from iocourse.costs.kernels import KernelProblem
from iocourse.course.checking import judge
from iocourse.course.exercise import exercises, find
from iocourse.course.exercises import lesson14
from iocourse.course.properties import is_number
from iocourse.data.records import load_record
from iocourse.gpu import timing
from tests.mutation.references import build, exercise_source

SOURCE = Lesson("14c")


def defined(*names):
    """Run the setup cell and the cells that define these functions, and return the functions."""
    space = {"__name__": "__main__"}
    exec("\n".join(next(c for c in SOURCE.cells if "setup" in c.tags).lines), space)
    return SOURCE.define(names, space)


# ---------------------------------------------------------------------- the emulated reads and cache
@pytest.fixture(scope="module")
def cache():
    """Functions of sections 14.16 and 14.17."""
    return defined("program", "side_by_side", "fetched", "deliveries")


def read_by_the_library(monkeypatch, H, N, d, tile):
    """Return the rows of Q, K and V that the forward kernel loads, in order, as (array, head, row)."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    from iocourse import kernels, traffic

    rows, count = [], traffic._Arrays.count

    def noting(self, ptrs, mask, width, *, reads=False, writes=False):
        addresses = np.asarray(ptrs)[np.broadcast_to(np.asarray(mask, dtype=bool), np.shape(ptrs))]
        name, _ = self._owner(addresses, addresses.size)
        if reads:
            start = next(array.start for array in self.known if array.name == name)
            found = np.unique((addresses.astype(np.int64) - start) // (width * d))
            rows.extend((name, int(row) // N, int(row) % N) for row in found)
        count(self, ptrs, mask, width, reads=reads, writes=writes)

    monkeypatch.setattr(traffic._Arrays, "count", noting)
    q, k, v = torch.from_numpy(np.random.default_rng(0).standard_normal((3, 1, H, N, d)).astype(np.float32))
    with traffic.count(Q=q, K=k, V=v), kernels.using(forward=(tile, tile)):
        kernels.attention(q, k, v)
    return rows


def test_the_rows_of_14_16_are_those_that_the_librarys_kernel_loads_in_that_order(monkeypatch):
    H, N, tile = 2, 96, 32
    program, together = defined("program", "side_by_side")[0], []
    program.__globals__.update(BM=tile, TILES=N // tile)
    rows = read_by_the_library(monkeypatch, H, N, 16, tile)
    starts = [n for n, row in enumerate(rows) if row[0] == "Q" and row[2] % tile == 0]
    for a, b in pairwise([*starts, len(rows)]):
        _, head, first = rows[a]
        together.append((head, first // tile))
        assert rows[a:b] == [row for turn in program(head, first // tile) for row in turn]
    assert sorted(together) == [(head, t) for head in range(H) for t in range(N // tile)]
    assert [head for head, _ in together] == sorted(head for head, _ in together)  # all of one head first


def test_the_cache_is_lru_by_another_implementation(cache):
    *_, fetched, _ = cache
    rng = np.random.default_rng(0)
    for capacity in (1, 2, 5, 9):
        reads = [int(x) for x in rng.integers(0, 12, 300)]
        held, misses = [], 0
        for row in reads:
            misses += row not in held
            held = [row, *(x for x in held if x != row)][:capacity]
        assert fetched(reads, capacity) == misses


TOGETHER = [(head, tile) for head in range(8) for tile in range(8)]
SCATTERED = [(head, tile) for tile in range(8) for head in range(8)]


def test_the_closed_form_counts_the_reads_of_14_16(cache):
    _, side_by_side, fetched, _ = cache
    for order in (TOGETHER, SCATTERED):
        reads = sum(1 for _ in side_by_side(order, 4, late=1))
        assert reads * 64 == 8 * costs.flash2(512, 64, Br=64, Bc=64).read
    assert fetched(side_by_side(TOGETHER, 4), 2**14) == 8 * 3 * 512  # the compulsory rows


def test_the_sentences_of_14_17_on_caches_of_every_size(cache):
    *_, deliveries = cache
    steps = {64: 8, 128: 2, 1024: 2, 2048: 1}
    assert {size: deliveries(TOGETHER, 4, size) for size in steps} == steps
    scattered = {128: 8, 8192: 8, 2**14: 1}
    assert {size: deliveries(SCATTERED, 4, size) for size in scattered} == scattered
    assert deliveries(TOGETHER, 4, 256, late=1) == 7.75
    assert all(deliveries(TOGETHER, 4, 1280, late=late) == 1 for late in (1, 2, 4, 8))


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("capacity", [64, 256, 2048])
def test_the_dram_words_by_the_emulated_cache(cache, at_once, capacity):
    _, side_by_side, fetched, _ = cache
    T = 8
    r = {64: T, 256: -(-T // at_once), 2048: 1}[capacity]
    programs = [(0, tile) for tile in range(T)]  # one head, so that no wave contains programs of two heads
    assert fetched(side_by_side(programs, at_once), capacity) == 512 + 2 * 512 * r


# ---------------------------------------------------------------------- counters
def test_the_counters_of_the_lesson_are_those_that_the_benchmark_reads():
    from tools.bench import ncu

    names = ncu.L2.format("read"), ncu.DRAM.format("read"), "l1tex__m_xbar2l1tex_read_bytes.sum"
    assert {names[2]} <= set(ncu.MORE)
    assert all(f"`{name}`" in SOURCE.section("14.18") for name in names)


def test_the_launches_that_the_lesson_names_are_in_this_order():
    runs = load_record("profile")["runs"]
    names = [run["question"]["what"] for run in runs]
    assert names == ["forward", "forward", "fused-backward", "decode", "small-cache-fused"]
    assert [k["name"] for k in runs[2]["kernels"]] == ["row_products_kernel", "backward_keys_kernel"]


# ---------------------------------------------------------------------- decoding and rooflines
def test_the_table_of_14_22_counts_by_the_convention():
    from iocourse.gpu.roofline import compulsory_bytes, flops

    (mine,) = defined("my_least_time", "my_decode_step")[:1]
    problem = KernelProblem(96, 96, 32, B=2, H=6, H_kv=2)
    for pass_ in ("forward", "backward"):
        flop = flops(pass_, B=2, H=6, N=96, d=32)
        moved = compulsory_bytes(pass_, problem, 2) - 4 * problem.queries  # without row statistics
        assert mine(pass_, 2, 6, 2, 96, 32, 2, 1, 1e12) == (pytest.approx(flop / 1e6), "products")
        assert mine(pass_, 2, 6, 2, 96, 32, 2, 1e12, 1) == (pytest.approx(moved / 1e3), "memory")
    SOURCE.says("14.22", "| forward | $4N^2d$ |", "| backward | $10N^2d$ |")


# ---------------------------------------------------------------------- the timed step
@pytest.fixture
def timed_here():
    pytest.importorskip("torch")
    return defined("timed_here")[0]


def test_the_recorded_steps_are_those_of_14_20():
    steps = [row for row in load_record("decode")["rows"] if row["contender"] == "split-KV"][:3]
    assert [(r["B"], r["H"], r["H_kv"], r["N"], r["d"]) for r in steps] == [
        (1, 32, H_kv, 32768, 128) for H_kv in (32, 8, 1)
    ]


class Watch:
    """Timer that runs the work and returns invented times in ms."""

    def laps(self, work, repeats):
        timing.ready(work)()
        return [0.5] * repeats


def test_the_script_times_the_librarys_step(timed_here, monkeypatch, capsys):
    """On the CPU with an invented timer: the script runs and prints microseconds."""
    pytest.importorskip("triton")
    script = timed_here.__globals__["STEP"].replace('"cuda"', '"cpu"')
    monkeypatch.setattr(timing, "CudaStopwatch", Watch)
    monkeypatch.setattr("sys.argv", ["-c", "1", "4", "2", "70", "32"])
    capsys.readouterr()
    exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip() == "500.0"


def test_without_a_gpu_the_cell_names_what_is_needed(timed_here):
    timed_here.__globals__["cuda_unavailable_reason"] = lambda: "there is none"
    assert timed_here(1, 4, 2, 64, 32).startswith("there is none; needed: an NVIDIA GPU")


def test_with_a_gpu_the_script_is_run_compiled(timed_here, monkeypatch):
    import torch

    space = timed_here.__globals__
    space["cuda_unavailable_reason"], space["os"] = (lambda: ""), __import__("os")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    seen = []

    def run(command, **options):
        seen.append((command, options["env"]["TRITON_INTERPRET"]))
        return subprocess.CompletedProcess(command, code, stdout="28.5\n", stderr="a line\nout of memory")

    monkeypatch.setattr(subprocess, "run", run)
    code = 0
    assert timed_here(1, 4, 2, 64, 32) == 28.5
    code = 1
    assert timed_here(1, 4, 2, 64, 32).endswith("out of memory")
    assert seen[0][0][3:] == ["1", "4", "2", "64", "32"] and seen[0][1] == "0"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert "no tensor cores" in timed_here(1, 4, 2, 64, 32) and len(seen) == 2


# ---------------------------------------------------------------------- exercises
@pytest.mark.parametrize("seed", range(20))
def test_in_14B_no_two_times_are_close_and_every_limit_occurs(seed):
    limits = set()
    for case in find("14B").cases(np.random.default_rng(seed)):
        pass_, *sizes, peak, bandwidth = case.inputs.values()
        named = dict(zip(("B", "H", "H_kv", "N", "d", "itemsize"), sizes, strict=True))
        moving = lesson14._least_bytes(pass_, named) / (bandwidth * 1e3)
        multiplying = lesson14.FLOP[pass_](named["N"]) * named["B"] * named["H"] * named["d"] / (peak * 1e6)
        assert not 0.7 < moving / multiplying < 1.4
        limits.add((pass_, case.expected[1]))
    assert limits == {
        (p, limit) for p in ("forward", "backward", "decode") for limit in ("memory", "products")
    }


def messages(exercise, answer):
    """Return the messages of the properties that fail."""
    return [found for _, found in judge(exercise, answer, 0) if found is not None]


def test_a_wrong_number_next_to_a_text_gets_a_message_about_the_number():
    exercise, right = find("14B"), build("14B", exercise_source("14B", solved=True))
    found = messages(exercise, lambda *sizes, **rates: (1.0, right(*sizes, **rates)[1]))
    assert found and all("got 1, expected" in one and "Error" not in one for one in found)
    exchanged = messages(exercise, lambda *sizes, **rates: right(*sizes, **rates)[::-1])
    assert any("got limit; return time, limit in this order" in one for one in exchanged)
    assert not any("Error" in one for one in exchanged)


def test_an_array_and_a_fraction_are_two_numbers_too():
    step, least = (build(name, exercise_source(name, solved=True)) for name in ("14A", "14B"))
    exact = lambda *sizes: (step(*sizes)[0], Fraction(step(*sizes)[1]))  # noqa: E731
    for answer in (lambda *sizes: np.array(step(*sizes)), exact):
        assert not messages(find("14A"), answer)
    assert not messages(find("14B"), lambda *sizes: np.array(least(*sizes), dtype=object))
    late = messages(find("14A"), lambda *sizes: (step(*sizes)[0], 2 * step(*sizes)[1]))
    assert any("expected for your bytes:" in one for one in late)


def numbers_and_texts():
    """Return the ids of the exercises that return numbers together with texts."""
    found = []
    for exercise in exercises().values():
        expected = next(iter(exercise.cases(np.random.default_rng(0)))).expected
        kinds = [isinstance(x, str) for x in expected] if isinstance(expected, tuple) else []
        if any(kinds) and not all(kinds):
            found.append(exercise.id)
    return found


def test_no_exercise_with_a_number_and_a_text_answers_with_a_python_error():
    ids = numbers_and_texts()
    assert "14B" in ids
    for exercise_id in ids:
        exercise = find(exercise_id)
        wrong = {
            repr([*case.inputs.values()]): tuple(x + 1 if is_number(x) else x for x in case.expected)
            for case in exercise.cases(np.random.default_rng(0))
        }
        found = messages(exercise, lambda *args, w=wrong, **kw: w[repr([*args, *kw.values()])])
        assert found and not any("Error" in str(one) for one in found), (exercise_id, found)
