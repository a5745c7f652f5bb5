"""Tests of lessons 14 and 14b: kernels compared with the library's, an emulated cache, records, exercises."""

import subprocess
from itertools import pairwise

import numpy as np
import pytest
from lesson_source import Lesson, execute

from iocourse import costs, exact
from iocourse.costs.kernel_masks import PackedSequences
from iocourse.costs.kernels import KernelProblem, attention_decode, attention_forward
from iocourse.course.checking import judge, report
from iocourse.course.exercise import find
from iocourse.course.exercises import lesson14
from tests.mutation.references import build, exercise_source
from tools.build.notebook_execution import cannot_run

SOURCE, SECOND = Lesson("14c_what_the_chip_said"), Lesson("14b")
if reason := cannot_run(SECOND.source):
    pytest.skip(reason, allow_module_level=True)

from iocourse import kernels, traffic  # noqa: E402

# isort: split
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from iocourse.gpu import timing  # noqa: E402


def defined(*names):
    """Run the code cells that define these names, in order, and return their namespace."""
    space = {"__name__": "__main__", "np": np, "torch": torch, "triton": triton, "tl": tl, "exact": exact}
    for lesson in (SOURCE, SECOND):
        imports = "\n".join(next(c for c in lesson.cells if "setup" in c.tags).lines)
        exec(compile(imports, "<setup>", "exec"), space)
        for n, (_, source) in enumerate(lesson.solved_cells()):
            if any(f"def {name}(" in source for name in names):
                execute(source, f"<{lesson.name}, cell {n} of {id(space)}>", space)
    return [space[name] for name in names]


def normal(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def counted(launcher, *arguments, **keywords):
    with traffic.count() as ledger:
        value = launcher(*arguments, **keywords)
    return ledger, value


# ---------------------------------------------------------------------- the lesson's kernels, the library's
@pytest.mark.parametrize(
    ("B", "H", "H_kv", "N", "d", "parts"),
    [(1, 8, 2, 500, 64, 4), (2, 4, 4, 100, 16, 3), (1, 12, 1, 65, 32, 8), (1, 2, 1, 5, 16, 1)],
)
def test_the_decode_step_of_14_13_and_the_librarys_have_the_same_values_and_words(B, H, H_kv, N, d, parts):
    from iocourse.kernels.host.choices import Case, decode_tile

    *_, mine = defined("absorb", "parts_kernel", "merge_kernel", "my_merge", "my_decode")
    BN = decode_tile(Case(None, 4, d, group=H // H_kv)).BN
    q, k, v = normal(B, H, 1, d), normal(B, H_kv, N, d, seed=1), normal(B, H_kv, N, d, seed=2)
    ledger, (o, lse) = counted(mine, q, k, v, parts, BN)
    theirs, (want, want_lse) = counted(kernels.decode, q, k, v, parts=parts)
    assert ledger == theirs
    assert torch.allclose(o, want, rtol=0, atol=2e-6) and torch.allclose(lse, want_lse, rtol=0, atol=2e-6)
    tiles = -(-N // BN)
    cut = -(-tiles // -(-tiles // min(parts, tiles)))  # number of parts that consist of complete tiles
    assert ledger == attention_decode(KernelProblem(1, N, d, B=B, H=H, H_kv=H_kv), parts=cut)


@pytest.mark.parametrize(
    ("lengths", "H", "d", "BM", "BN"),
    [([150, 90, 40, 0, 17], 2, 32, 32, 32), ([1, 33, 16], 1, 16, 16, 32), ([0, 70], 3, 16, 32, 16)],
)
def test_packed_sequences_of_14_15_and_the_librarys_have_the_same_values_and_words(lengths, H, d, BM, BN):
    *_, mine = defined("absorb", "my_packed")
    cu = torch.tensor(np.concatenate([[0], np.cumsum(lengths)]), dtype=torch.int32)
    q, k, v = normal(3, sum(lengths), H, d)
    ledger, o = counted(mine, q, k, v, cu, max(lengths), BM, BN)
    with kernels.using(forward=(BM, BN)):
        theirs, want = counted(kernels.attention_varlen, q, k, v, cu, cu)
    assert torch.allclose(o, want, rtol=0, atol=2e-6)
    assert {x: ledger.reads[x] for x in "QKV"} == {x: theirs.reads[x] for x in "QKV"}
    assert ledger.written == ledger.writes["O"] == theirs.writes["O"]
    assert ledger.reads["cu"] == 2 * len(lengths) * H * -(-max(lengths) // BM)
    pairs = tuple((n, n) for n in lengths)
    closed = attention_forward(PackedSequences(len(q), len(q), d, H=H, H_kv=H, lengths=pairs), BM=BM, BN=BN)
    assert {x: ledger.reads[x] for x in "QKV"} == {x: closed.reads[x] for x in "QKV"}


def asked_by_the_library(monkeypatch, H, N, d, tile):
    """Return the rows of Q, K and V that the forward kernel loads, in order, as (array, head, row)."""
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
    q, k, v = normal(3, 1, H, N, d)
    with traffic.count(Q=q, K=k, V=v), kernels.using(forward=(tile, tile)):
        kernels.attention(q, k, v)
    return rows


def test_the_rows_of_14_1_are_those_that_the_librarys_kernel_loads_in_that_order(monkeypatch):
    H, N, tile = 2, 96, 32
    program, together = defined("program", "side_by_side")[0], []
    program.__globals__.update(BM=tile, TILES=N // tile)
    rows = asked_by_the_library(monkeypatch, H, N, 16, tile)
    starts = [n for n, row in enumerate(rows) if row[0] == "Q" and row[2] % tile == 0]
    for a, b in pairwise([*starts, len(rows)]):
        _, head, first = rows[a]
        together.append((head, first // tile))
        assert rows[a:b] == [row for turn in program(head, first // tile) for row in turn]
    assert sorted(together) == [(head, t) for head in range(H) for t in range(N // tile)]
    assert [head for head, _ in together] == sorted(head for head, _ in together)  # all of one head first


# ---------------------------------------------------------------------- the emulated cache
@pytest.fixture(scope="module")
def cache():
    """Functions of sections 14.1 and 14.2."""
    return defined("program", "side_by_side", "fetched", "readings")


def test_the_cache_is_lru_by_another_implementation(cache):
    *_, fetched, _ = cache
    rng = np.random.default_rng(0)
    for room in (1, 2, 5, 9):
        asked = [int(x) for x in rng.integers(0, 12, 300)]
        held, misses = [], 0
        for row in asked:
            misses += row not in held
            held = [row, *(x for x in held if x != row)][:room]
        assert fetched(asked, room) == misses


TOGETHER = [(head, tile) for head in range(8) for tile in range(8)]
SCATTERED = [(head, tile) for tile in range(8) for head in range(8)]


def test_the_ledger_counts_what_the_programs_of_14_1_ask_for(cache):
    _, side_by_side, fetched, _ = cache
    for order in (TOGETHER, SCATTERED):
        asked = sum(1 for _ in side_by_side(order, 4, late=1))
        assert asked * 64 == 8 * costs.flash2(512, 64, Br=64, Bc=64).read
    assert fetched(side_by_side(TOGETHER, 4), 2**14) == 8 * 3 * 512  # the compulsory rows


def test_what_14_2_says_of_caches_of_every_size(cache):
    *_, readings = cache
    steps = {64: 8, 128: 2, 1024: 2, 2048: 1}
    assert {room: readings(TOGETHER, 4, room) for room in steps} == steps
    assert {room: readings(SCATTERED, 4, room) for room in (128, 8192, 2**14)} == {128: 8, 8192: 8, 2**14: 1}
    assert all(readings(TOGETHER, 4, 1280, late=late) == 1 for late in (2, 4, 8))


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("room", [64, 256, 2048])
def test_formula_14_1(cache, at_once, room):
    _, side_by_side, fetched, _ = cache
    T = 8
    r = {64: T, 256: -(-T // at_once), 2048: 1}[room]
    programs = [(0, tile) for tile in range(T)]  # one head, so that no wave contains programs of two heads
    assert fetched(side_by_side(programs, at_once), room) == 512 + 2 * 512 * r


# ---------------------------------------------------------------------- decoding and rooflines
def test_the_table_of_14_5_counts_as_the_field_does():
    from iocourse.gpu.roofline import compulsory_bytes, flops

    (mine,) = defined("my_least_time", "my_decode_step")[:1]
    problem = KernelProblem(96, 96, 32, B=2, H=6, H_kv=2)
    for pass_ in ("forward", "backward"):
        flop = flops(pass_, B=2, H=6, N=96, d=32)
        moved = compulsory_bytes(pass_, problem, 2) - 4 * problem.queries  # without row sums
        assert mine(pass_, 2, 6, 2, 96, 32, 2, 1, 1e12) == (pytest.approx(flop / 1e6), "products")
        assert mine(pass_, 2, 6, 2, 96, 32, 2, 1e12, 1) == (pytest.approx(moved / 1e3), "memory")
    SOURCE.says("14.5", "| forward | $4N^2d$ |", "| backward | $10N^2d$ |")


# ---------------------------------------------------------------------- parts and packs
@pytest.mark.parametrize(("parts", "N", "BN"), [(1, 50, 16), (3, 100, 16), (4, 33, 32), (7, 128, 16)])
def test_formula_14_5(parts, N, BN):
    merge, part, _ = defined("merge", "part", "with_keys")
    rng = np.random.default_rng(0)
    q, K, V = rng.standard_normal((4, 8)), *rng.standard_normal((2, N, 8))
    length = -(-N // (parts * BN)) * BN
    found = [part(number, q, K, V, length, BN) for number in range(-(-N // length))]
    O, L = merge(*(np.array(x) for x in zip(*found, strict=True)))
    assert np.allclose(O, exact.attention(q, K, V), rtol=0, atol=1e-13)
    assert np.allclose(L, exact.log_sum_exp(exact.scores(q, K)), rtol=0, atol=1e-13)
    SECOND.says("14.11", r"L = \log \sum_p e^{L_p}, \qquad O = \sum_p e^{L_p - L}\, O_p".replace("\\,", ","))


def test_the_packed_program_of_14_14_reads_the_words_of_the_closed_form():
    lengths = [1000, 600, 350, 200, 120, 64, 30, 0]
    program, _ = defined("packed_program", "with_keys")
    packed = PackedSequences(2364, 2364, 64, lengths=tuple((n, n) for n in lengths))
    closed = attention_forward(packed, BM=64, BN=64)
    read = sum(closed.reads[x] for x in "QKV")
    cu, Q = np.concatenate([[0], np.cumsum(lengths)]), np.random.default_rng(0).standard_normal((2364, 64))
    assert read == sum(program(s, t, Q, Q, Q, Q.copy(), cu, 64, 64) for s in range(8) for t in range(16))


# ---------------------------------------------------------------------- records, clocks and counters
def last_cells():
    """Functions of the last sections of 14c, and the names that they use."""
    timed_here, recorded_step = defined("timed_here", "recorded_step")
    return timed_here, recorded_step, timed_here.__globals__


def test_a_record_is_read_where_there_is_one():
    _, recorded_step, space = last_cells()
    space["record_source"] = lambda record: "no recorded run yet"
    row = {"B": 1, "H": 32, "H_kv": 8, "N": 32768, "contender": "split-KV"}
    timed, others = (
        row | {"us": 31.5},
        [row | {"N": 4096, "us": 9.0}, row | {"contender": "other", "us": 50.0}],
    )
    for record, want in (
        ({"rows": [*others, timed]}, 31.5),
        ({"rows": [row | {"refused": "out of memory"}]}, "out of memory"),
        ({"rows": others}, "the record has no such step"),
        (None, "no recorded run yet"),
    ):
        space["load_record"] = lambda name, record=record: record
        assert recorded_step() == want


def test_the_rows_of_a_real_record_have_what_the_lesson_asks_for():
    from tools.bench import problems
    from tools.bench.contest import SPLIT_KV

    assert f'"contender": "{SPLIT_KV}"' in SOURCE.source
    shape = problems.Cached("bfloat16", 128, 32768, 1, 32, 8)
    assert shape in problems.caches(quick=True)
    assert {"B", "H", "H_kv", "N"} <= set(shape._asdict())
    small = problems.cache(shape._replace(N=4), "cpu", 0)
    assert small.figures("forward", 0.0315)["us"] == pytest.approx(31.5)


class Watch:
    """Timer that runs the work and returns invented times in ms."""

    def laps(self, work, repeats):
        timing.ready(work)()
        return [0.5] * repeats


def test_the_script_times_the_librarys_step(monkeypatch, capsys):
    """On the CPU with an invented timer: the script runs and prints microseconds."""
    script = last_cells()[-1]["STEP"].replace('"cuda"', '"cpu"')
    monkeypatch.setattr(timing, "CudaStopwatch", Watch)
    monkeypatch.setattr("sys.argv", ["-c", "1", "4", "2", "70", "32"])
    exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out.strip() == "500.0"


def test_without_a_gpu_the_cell_says_what_is_needed(monkeypatch):
    timed_here, _, space = last_cells()
    space["cuda_unavailable_reason"] = lambda: "there is none"
    assert timed_here(1, 4, 2, 64, 32).startswith("there is none; needed: an NVIDIA GPU")


def test_with_a_gpu_the_script_is_run_compiled(monkeypatch):
    timed_here, _, space = last_cells()
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


def test_every_subject_of_the_table_in_14_6_is_printed_below_it():
    cell = next(c for c in SOURCE.cells if any("for subject in" in line for line in c.lines))
    line = next(line for line in cell.lines if "for subject in" in line)
    for subject in ("decode", "attention", "varlen", "sparse", "small-cache"):
        assert f'"{subject}"' in line and f"`{subject}`" in SOURCE.section("14.6")


# ---------------------------------------------------------------------- the form of the lesson
@pytest.mark.parametrize("number", ["14.10", "14.11", "14.14"])
def test_the_numpy_sections_of_14b_need_neither_torch_nor_triton(number):
    """Only sections 14.12, 14.13 and 14.15 run kernels; their text before the import states it."""
    here, code = "", []
    for cell in SECOND.cells:
        heads = [line for line in cell.lines if cell.kind == "markdown" and line.startswith("## ")]
        here = heads[-1].split()[1] if heads else here
        code += cell.lines if cell.kind == "code" and here == number else []
    assert any("def " in line for line in code) or number == "14.10"
    assert not any(name in line for line in code for name in ("torch", "triton", "tl.", "kernels."))
    SECOND.says("14.12", "sections 14.12, 14.13 and 14.15 run Triton kernels")


def test_absorb_is_that_of_exercise_11C():
    """All lessons from 11b on use one `absorb`; its body may not differ from the student's."""
    code = exercise_source("11C", solved=True)
    (given,) = (text for _, text in SECOND.solved_cells() if "def absorb(" in text)

    def body(source):
        lines = source.split("def absorb(")[1].split('"""')[2].split("\n\n")[0].splitlines()
        return [line.strip() for line in lines if line.strip() and "###" not in line]

    assert body(given) == body(code)


# ---------------------------------------------------------------------- exercises
@pytest.mark.parametrize("seed", range(10))
def test_the_parts_of_14C_are_large_empty_and_of_odd_numbers(seed):
    """Large sums overflow float32 without their maximum; some cases have empty parts, some only these."""
    cases = find("14C").cases(np.random.default_rng(seed))
    sums = {
        tag: [c.inputs["LSE_parts"] for c in cases if c.has(tag)] for tag in (lesson14.LARGE, lesson14.EMPTY)
    }
    with np.errstate(over="ignore"):
        high, low = (np.exp(L) for L in sums[lesson14.LARGE][:2])
    assert np.isinf(high).all() and not low.any()
    for case in cases:
        assert np.isneginf(case.inputs["LSE_parts"]).all() == case.has(lesson14.NOTHING)
        assert (case.expected[0][np.isneginf(case.expected[1])] == 0).all()
    assert any(c.inputs["LSE_parts"].shape[1] & (c.inputs["LSE_parts"].shape[1] - 1) for c in cases)
    assert np.isneginf(sums[lesson14.EMPTY][0]).any() and not np.isneginf(sums[lesson14.EMPTY][0]).all()


SKIPS_EMPTY_PARTS = (
    ("o = tl.load(O_parts + at[:, None] * d + c, mask=p[:, None] < parts, other=0.0)",
     'full = (p < parts) & (L > float("-inf"))\n'
     "    o = tl.load(O_parts + at[:, None] * d + c, mask=full[:, None], other=0.0)"),
)  # fmt: skip


def test_who_reads_nothing_of_parts_without_a_key_is_told_so():
    source = exercise_source("14C", solved=True)
    for old, new in SKIPS_EMPTY_PARTS:
        assert old in source
        source = source.replace(old, new)
    verdicts = judge(find("14C"), build("14C", source), 0)
    assert not any(complaint for _, complaint in verdicts)
    report_of = report(find("14C"), verdicts, 0)
    assert "moves no more words than the closed form: fewer than the words of all parts" in report_of.replace(
        "(", ": "
    )


@pytest.mark.parametrize("seed", range(10))
def test_sequences_of_14D_are_ragged_and_some_are_empty(seed):
    cases = find("14D").cases(np.random.default_rng(seed))
    lengths = [np.diff(case.inputs["cu"]) for case in cases]
    assert any((n % case.inputs["BM"]).any() for n, case in zip(lengths, cases, strict=True))
    assert any((n == 0).any() for n in lengths) and any(case.inputs["Q"].shape[1] > 1 for case in cases)
    for n, case in zip(lengths, cases, strict=True):
        assert case.inputs["longest"] == n.max() and n.sum() == len(case.inputs["Q"]) <= 128


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


# ---------------------------------------------------------------------- kernels compile
@triton.jit
def weighted_sum_kernel(P, V, O, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    i, j, c = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, d)
    p, v = tl.load(P + i[:, None] * BN + j), tl.load(V + j[:, None] * d + c)
    tl.store(O + i[:, None] * d + c, tl.dot(p, v))


def test_one_row_costs_as_many_tensor_core_instructions_as_sixteen():
    from iocourse.gpu import resources

    x, o = torch.empty(16, 16, dtype=torch.float16), torch.empty(16, 16)
    found = [resources(weighted_sum_kernel, 80, x, x, o, d=16, BM=BM, BN=16).tensor_core for BM in (1, 16)]
    assert found[0] == found[1] > 0


@pytest.mark.parametrize("name", ["parts_kernel", "merge_kernel", "packed_kernel"])
def test_the_lessons_kernels_compile_for_a_gpu(name):
    """The interpreter also accepts code that the compiler rejects."""
    from iocourse.gpu import resources

    *_, kernel = defined("absorb", name)
    x, sums, cu = torch.empty(1024, 64), torch.empty(1024), torch.empty(9, dtype=torch.int32)
    arguments, constants = {
        "parts_kernel": ((x, x, x, x, sums, 4, 256, 8, 1000, 0.18), {"d": 64, "ROWS": 16, "BN": 64}),
        "merge_kernel": ((x, sums, x, sums, 5, 8), {"d": 64, "PARTS": 8}),
        "packed_kernel": ((x, x, x, x, cu, 4, 8, 0.18), {"d": 64, "BM": 64, "BN": 32}),
    }[name]
    found = resources(kernel, 80, *arguments, num_warps=4, num_stages=2, **constants)
    assert found.registers > 0


# ---------------------------------------------------------------------- 14B: a number and a text
def of_14B(answer):
    """Return the messages of the properties of 14B that fail."""
    return [said for _, said in judge(find("14B"), answer, 0) if said is not None]


def test_a_wrong_number_next_to_a_text_gets_a_message_about_the_number():
    right = build("14B", exercise_source("14B", solved=True))
    said = of_14B(lambda *sizes, **rates: (1.0, right(*sizes, **rates)[1]))
    assert said and all("got 1, expected" in one and "Error" not in one for one in said)
    exchanged = of_14B(lambda *sizes, **rates: right(*sizes, **rates)[::-1])
    assert any("got limit; return time, limit in this order" in one for one in exchanged)
    assert not any("Error" in one for one in exchanged)


# ---------------------------------------------------------------------- 14D: the order of the programs
def test_programs_of_one_head_that_start_apart_get_a_remark():
    source = exercise_source("14D", solved=True)
    place = "block, pair = tl.program_id(0) % blocks, tl.program_id(0) // blocks"
    assert place in source and "head, sequence = pair % H, pair // H" in source
    apart = source.replace(place, "head, pair = tl.program_id(0) % H, tl.program_id(0) // H")
    apart = apart.replace(
        "head, sequence = pair % H, pair // H", "block, sequence = pair % blocks, pair // blocks"
    )
    for text, remarked in ((source, False), (apart, True)):
        verdicts = judge(find("14D"), build("14D", text), 0)
        said = report(find("14D"), verdicts, 0)
        assert "FAILS" not in said
        assert ("programs of one head and sequence do not start one after the other" in said) is remarked
