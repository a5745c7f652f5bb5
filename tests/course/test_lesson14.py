"""Tests of lesson 14b: kernels compared with the library's, and exercises 14C and 14D."""

import numpy as np
import pytest
from lesson_source import Lesson, execute

from iocourse import exact
from iocourse.costs.kernel_masks import PackedSequences
from iocourse.costs.kernels import KernelProblem, attention_decode, attention_forward
from iocourse.course.checking import judge, report
from iocourse.course.exercise import find
from iocourse.course.exercises import lesson14
from tests.mutation.references import build, exercise_source
from tools.build.notebook_execution import cannot_run

SECOND = Lesson("14b")
if reason := cannot_run(SECOND.source):
    pytest.skip(reason, allow_module_level=True)

from iocourse import kernels, traffic  # noqa: E402

# isort: split
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402


def defined(*names):
    """Run the code cells that define these names, in order, and return their namespace."""
    space = {"__name__": "__main__", "np": np, "torch": torch, "triton": triton, "tl": tl, "exact": exact}
    imports = "\n".join(next(c for c in SECOND.cells if "setup" in c.tags).lines)
    exec(compile(imports, "<setup>", "exec"), space)
    for n, (_, source) in enumerate(SECOND.solved_cells()):
        if any(f"def {name}(" in source for name in names):
            execute(source, f"<{SECOND.name}, cell {n} of {id(space)}>", space)
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
