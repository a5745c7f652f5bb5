"""Tests of lessons 13 and 13b: kernels compared with the library's, orders of programs, exercises and wrong
kernels.
"""

import itertools

import numpy as np
import pytest
from lesson_source import Lesson, execute

from iocourse import exact, masks
from iocourse.costs.kernel_masks import BlockLists
from iocourse.costs.kernels import attention_forward
from iocourse.course import check, diagnosis
from iocourse.course.checking import judge, report
from iocourse.course.exercise import Case, find
from iocourse.course.exercises import lesson13
from iocourse.data.records import load_record
from iocourse.gpu.chips import CHIPS
from tests.mutation.references import build, exercise_source
from tools.build.notebook_execution import cannot_run

SOURCE, SECOND = Lesson("13_"), Lesson("13b")
if reason := cannot_run(SOURCE.source):
    pytest.skip(reason, allow_module_level=True)

from iocourse import kernels, traffic  # noqa: E402
from iocourse.kernels.host import choices  # noqa: E402

# isort: split
import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

HEADS = (64, 128, 256, 512)


def defined(*names, **given):
    """Run the code cells that define these names, without the others, and return their namespace."""
    space = {"__name__": "__main__", "np": np, "torch": torch, "triton": triton, "tl": tl, "exact": exact}
    space |= {"BlockLists": BlockLists, "attention_forward": attention_forward, "masks": masks, **given}
    wanted = {*names, "scores_in_slices", "absorb"}
    for n, (_, source) in enumerate([*SOURCE.solved_cells(), *SECOND.solved_cells()]):
        text = "\n\n\n".join(
            part for part in source.split("\n\n\n") if part.startswith(("def ", "@triton.jit"))
        )
        if any(f"def {name}(" in text for name in wanted):
            execute(text, f"<lesson 13, cell {n}>", space)
    return [space[name] for name in names]


def counted(launcher, *arguments, **keywords):
    with traffic.count() as ledger:
        value = launcher(*arguments, **keywords)
    return ledger, value


def tensors(rows, columns, d, seed=0):
    rng = np.random.default_rng(seed)
    return [
        torch.from_numpy(rng.standard_normal((n, d)).astype(np.float32)) for n in (rows, columns, columns)
    ]


def same(one, other):
    """Assert that the words are equal, and that O and LSE differ only by rounding."""
    assert one[0] == other[0]
    for mine, theirs in zip(one[1], other[1], strict=True):
        assert torch.allclose(mine, theirs[0, 0], rtol=0, atol=2e-6)


# ---------------------------------------------------------------------- the lesson's kernels, the library's
@pytest.mark.parametrize(
    ("N", "d", "BM", "BN", "BD"), [(70, 40, 32, 16, 16), (33, 16, 16, 32, 32), (5, 50, 16, 16, 64)]
)
def test_the_sliced_kernel_and_the_librarys_have_the_same_values_and_words(N, d, BM, BN, BD):
    (mine,) = defined("my_sliced_attention")
    q, k, v = tensors(N, N, d)
    with kernels.using(sliced_forward=(BM, BN, BD)):
        theirs = counted(kernels.attention_with_lse, *(x[None, None] for x in (q, k, v)), tile_d="fused")
    same(counted(mine, q, k, v, BM, BN, BD), theirs)


@pytest.mark.parametrize(("BM", "BN"), [(32, 16), (16, 32), (64, 64)])
@pytest.mark.parametrize("name", ["causal", "blocks", "tokens"])
def test_the_listed_kernel_and_the_librarys_have_the_same_values_and_words(name, BM, BN):
    N = 90
    blocks = masks.BlockMask(N, np.random.default_rng(1).random((6, 6)) < 0.4, 16, allow_empty=True)
    mask = {"causal": masks.Causal(N), "blocks": blocks, "tokens": masks.Window(N, 9)}[name]
    mine, make = defined("my_listed_attention", "my_lists")
    q, k, v = tensors(N, N, 32)
    lists = [torch.from_numpy(part) for part in make(mask.pairs(), BM, BN)]
    with kernels.using(forward=(BM, BN)):
        heads = [x[None, None] for x in (q, k, v)]
        theirs = counted(kernels.attention_with_lse, *heads, block_mask=kernels.tiled_mask(mask, *heads[:2]))
    same(counted(mine, q, k, v, *lists, BM, BN), theirs)


def ruled(predicate, n_q, n_k):
    """Return the library's mask of a rule, without information on its blocks."""
    return kernels.tiled_mask(predicate, torch.empty(1, 1, n_q, 1), torch.empty(1, 1, n_k, 1))


def library_lists(mask, BM, BN, deterministic=False):
    """Return the lists that the kernels get for tiles of BM queries by BN keys."""
    with kernels.using(**dict.fromkeys(choices.WHOLE, (BM, BN))):
        return mask.lists(choices.Case(None, 4, 16, "blocks"), torch.device("cpu"), deterministic)


@pytest.mark.parametrize(("shape", "BM", "BN"), [((90, 90), 32, 16), ((40, 70), 16, 32), ((64, 64), 32, 32)])
def test_the_lists_of_13_1_are_the_librarys(shape, BM, BN):
    pairs = np.random.default_rng(2).random(shape) < 0.01
    pairs[:20, :50] = True
    (make,) = defined("my_lists")
    seen = torch.from_numpy(pairs)
    mask = ruled(lambda batch, head, i, j: seen[i, j], *shape)
    theirs = library_lists(mask, BM, BN)[:5]
    for mine, want in zip(make(pairs, BM, BN), theirs, strict=True):
        assert np.array_equal(mine, want.numpy().reshape(mine.shape)) and mine.dtype == want.numpy().dtype
    for mine, want in zip(lesson13.lists_of(pairs, BM, BN), theirs, strict=True):
        assert np.array_equal(mine, want.numpy().reshape(mine.shape))


def test_the_librarys_lists_refuse_to_be_called_while_a_check_runs():
    from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked
    from iocourse.kernels.host.masks import side_of

    mask = ruled(lambda batch, head, i, j: i >= j, 32, 32)
    kinds, patterns = mask.tiles(16, 16, torch.device("cpu"))
    with solutions_blocked():
        with pytest.raises(LibrarySolutionUsed):
            lesson13.lists_of(np.ones((16, 16), bool), 16, 16)
        with pytest.raises(LibrarySolutionUsed):
            mask.tiles(16, 32, torch.device("cpu"))
        with pytest.raises(LibrarySolutionUsed):
            side_of(kinds, patterns)


def test_the_program_of_13_2_is_exact_for_rows_that_attend_to_no_key_too():
    make, program = defined("my_lists", "listed_program")
    pairs = np.random.default_rng(3).random((50, 50)) < 0.05
    pairs[10:20] = False
    Q, K, V = np.random.default_rng(0).standard_normal((3, 50, 8))
    lists, O = make(pairs, 16, 32), np.empty((50, 8))
    keys = sum(program(place, Q, K, V, O, lists, 16, 32) for place in range(len(lists[4])))
    assert np.allclose(O, exact.attention(Q, K, V, mask=np.where(pairs, 0.0, -np.inf)), rtol=0, atol=1e-12)
    assert keys == BlockLists(50, 50, 8, pairs=pairs[None, None]).keys_met(16, 32)


# ---------------------------------------------------------------------- masks
def test_the_orders_of_13_9_take_the_steps_that_its_text_compares():
    timelines, steps = defined("timelines", "steps")
    small, large = (masks.causal(N, 64).tiles.sum(1) for N in (512, 4096))
    assert [max(map(len, timelines(small, order, 3))) for order in (range(8), np.argsort(-small))] == [15, 13]
    assert (steps(large, range(64)), steps(large, np.argsort(-large))) == (160, 130)
    summary = masks.bigbird(4096, 64, 1, 1, 2).tiles[::-1].sum(1)
    eight, first = np.tile(summary, 8), np.argsort(-summary, kind="stable")
    assert summary.max() == summary[-1] == 64
    each = [64 * head + row for head in range(8) for row in first]
    found = [steps(eight, order) for order in (range(512), each, np.argsort(-eight, kind="stable"))]
    assert found == sorted(found, reverse=True) and found[-1] == eight.sum() / 16 + 1


def test_the_librarys_order_is_that_of_each_head():
    blocks = torch.zeros(2, 4, 4, dtype=torch.bool)
    blocks[0, :2], blocks[1, 2:] = True, True
    q = torch.empty(1, 2, 64, 16)
    mask = kernels.tiled_mask(blocks, q, q, block=16)
    order = library_lists(mask, 16, 16)[4]
    assert order[0].tolist() == [[0, 1, 2, 3], [2, 3, 0, 1]]


def test_formula_13_8_and_grahams_bound():
    """Total work divided by P, and the time of the last program; heaviest first compared with the optimum."""
    (timelines,) = defined("timelines")
    rng = np.random.default_rng(0)
    for _ in range(300):
        P, work = int(rng.integers(1, 6)), rng.integers(1, 30, size=int(rng.integers(1, 12)))
        for order in (range(len(work)), np.argsort(-work)):
            done = [0] * P
            last = 0
            for program in order:
                free = min(range(P), key=done.__getitem__)
                done[free] += int(work[program])
                last = work[program] if done[free] == max(done) else last
            ends = [len(line) for line in timelines(work, order, P)]
            assert sorted(ends) == sorted(done)
            assert max(ends) <= work.sum() / P + (1 - 1 / P) * last + 1e-9
    for _ in range(40):
        P, work = int(rng.integers(2, 4)), rng.integers(1, 12, size=6)
        least = min(
            max(sum(work[np.array(where) == p]) for p in range(P))
            for where in itertools.product(range(P), repeat=6)
        )
        heavy = max(map(len, timelines(work, np.argsort(-work), P)))
        assert heavy <= (4 / 3 - 1 / (3 * P)) * least + 1e-9


# ---------------------------------------------------------------------- kernels
@pytest.mark.parametrize("arch", CHIPS)
def test_the_library_takes_the_tile_of_13A_where_no_times_are_recorded(arch):
    (choose,) = defined("my_choice")
    shipped = load_record("resources")["shipped"]

    def compiled(kernel, d):
        wanted = {"kernel": kernel, "arch": arch, "d": d, "bytes": 2, "pairs": "band"}
        return next(row for row in shipped if wanted.items() <= row.items())

    for d in (64, 128, 256, 512):
        two = [compiled("forward", d), compiled("sliced_forward", 512)]
        tile, _ = choose(two, CHIPS[arch].shared_bytes, 4096, d, 2)
        chosen = kernels.choices_of(arch, d=d, mask="full")["forward pass"].value
        assert chosen == ("slices" if tile["BD"] else "complete rows"), d


def test_patterns_are_not_kept_twice_for_the_backward_pass():
    mask = ruled(lambda batch, head, i, j: (i * j) % 7 < 4, 40, 40)
    lists = library_lists(mask, 16, 16, deterministic=True)
    rows, columns = lists[5:10], lists[10:15]
    assert rows[3].data_ptr() == columns[3].data_ptr() and rows[3].stride() != columns[3].stride()


# ---------------------------------------------------------------------- form of the lesson, exercises
def test_the_lists_come_before_the_cell_that_needs_triton():
    before = SOURCE.above("iocourse import kernels")
    assert "def listed_program(" in before
    assert "import triton" not in before and "torch" not in before


def test_the_cases_of_13A_are_what_their_labels_say():
    for seed in range(20):
        for case in find("13A").cases(np.random.default_rng(seed)):
            tiles, limit, N, d, itemsize = case.inputs.values()
            ranked = sorted(tiles, key=lambda tile: lesson13.bytes_of(tile, N, d, itemsize))
            best = next(tile for tile in ranked if lesson13.fits(tile, limit))
            if lesson13.UNFIT in case.label:
                assert not lesson13.fits(ranked[0], limit)
            if lesson13.WHOLE in case.label or lesson13.SLICES in case.label:
                assert (best["BD"] is None) == (lesson13.WHOLE in case.label), case.label


def blind_in_a_listed_tile(case):
    """Return True if a fully masked query is in a row of blocks that has listed blocks."""
    rows = np.flatnonzero(np.isneginf(case.expected[1])) // case.inputs["BM"]
    return bool(np.ptp(case.inputs["spans"], axis=1)[rows].any())


def test_the_cases_of_13B_and_13C_have_every_kind_of_tile_and_both_ragged_ends():
    for seed in range(5):
        cases = find("13B").cases(np.random.default_rng(seed))
        ends = [
            (len(c.inputs["pairs"]) % c.inputs["BM"], c.inputs["pairs"].shape[1] % c.inputs["BN"])
            for c in cases
        ]
        assert any(q and not k for q, k in ends) and any(k and not q for q, k in ends)
        kinds = set()
        for case in find("13C").cases(np.random.default_rng(seed)):
            spans, blind = case.inputs["spans"], np.isneginf(case.expected[1])
            if case.has(lesson13.EMPTY):
                kinds.add((bool((spans[:, 2] > spans[:, 1]).any()), blind_in_a_listed_tile(case)))
            assert (case.expected[0][blind] == 0).all()
        assert (True, True) in kinds, "rows are fully masked in a partial block that other rows use"


def test_cut_tiles_that_are_alike_may_share_a_pattern():
    def shared(pairs, BM, BN):
        spans, entries, slots, patterns, order = lists(pairs, BM, BN)
        kept, places = np.unique(patterns, axis=0, return_inverse=True)
        cut = [step for _, first, last in spans for step in range(first, last)]
        slots[cut] = places.reshape(-1)[slots[cut]]
        return spans, entries, slots, kept, order

    lists = build("13B", exercise_source("13B", solved=True))
    verdicts = judge(find("13B"), shared, 0)
    assert not any(complaint for _, complaint in verdicts)
    assert "fewer patterns than partial blocks" in report(find("13B"), verdicts, 0)
    lost = judge(
        find("13B"), lambda *given: (*shared(*given)[:3], shared(*given)[3][:-1], shared(*given)[4]), 0
    )
    assert "but there are" in dict(lost)["lists exactly the visible pairs"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda *parts: np.array([*parts], dtype=object), "expected a tuple of five results"),
        (lambda s, e, *rest: (s, e.astype(np.int8), *rest), "entries has dtype int8"),
        (lambda s, e, *rest: (s, e.astype(object), *rest), "entries has dtype object"),
        (lambda s, e, t, p, o: (s, e, t, 255 * p, o), "patterns has the value 255"),
        (lambda s, e, t, p, o: (s, e, t, [p[:, 1:], p], o), "patterns has parts of different shapes"),
        (lambda s, e, t, p, o: (s, e, t, np.repeat(p, 2, axis=0), o), "but your lists have"),
    ],
)
def test_lists_of_another_type_get_one_line(change, said):
    lists = build("13B", exercise_source("13B", solved=True))
    verdicts = dict(judge(find("13B"), lambda *given: change(*lists(*given)), 0))
    assert said in verdicts["the five parts have the lengths that the mask requires"]


def test_lists_in_torch_tensors_are_accepted():
    lists = build("13B", exercise_source("13B", solved=True))
    verdicts = judge(find("13B"), lambda *given: tuple(map(torch.from_numpy, lists(*given))), 0)
    assert not any(complaint for _, complaint in verdicts)


def test_partial_blocks_past_the_last_query_fail_the_property_about_them():
    source = exercise_source("13B", solved=True)
    assert "unasked[Nq:] = True" in source
    lists = build("13B", source.replace("unasked[Nq:] = True", "unasked[Nq:] = False"))
    verdicts = dict(judge(find("13B"), lists, 0))
    assert verdicts["the five parts have the lengths that the mask requires"] is None
    assert "2 partial ones" in verdicts["out-of-bounds queries do not make a block partial"]


def test_sums_that_are_not_rescaled_are_first_reported_as_such():
    source = exercise_source("13D", solved=True)
    assert "so_far * old[:, None]" in source
    verdicts = judge(find("13D"), build("13D", source.replace("so_far * old[:, None]", "so_far")), 0)
    assert next(name for name, complaint in verdicts if complaint).startswith("rescales partial sums")


def test_rows_that_attend_to_no_key_are_judged_apart_from_the_others():
    verdicts = dict(judge(find("13C"), diagnosis.launcher(5), 0))
    assert verdicts["O equals exact attention"]
    assert verdicts["a row that attends to no key has O = 0"] is None


def test_shuffled_lists_are_lists_of_the_same_mask():
    pairs = np.random.default_rng(0).random((70, 50)) < 0.03
    pairs[:33, :20] = True
    lists = lesson13.lists_of(pairs, 16, 16)
    case = Case("", {"pairs": pairs, "BM": 16, "BN": 16}, lists)
    shuffled = lesson13._shuffled(np.random.default_rng(1), lists)
    assert any(not np.array_equal(a, b) for a, b in zip(lists, shuffled, strict=True))
    for value in (lists, shuffled):
        trial = lesson13.Trial(case, value=value)
        assert lesson13._same_pairs(trial) is None and lesson13._cut_where_needed(trial) is None


def test_the_report_of_a_causal_case_names_its_mask():
    assert "BN=16, partial blocks, causal mask)" in diagnosis.report_for(3)


@pytest.mark.parametrize("name", ["sliced_kernel", "listed_kernel"])
def test_the_lessons_kernels_compile_for_a_gpu(name):
    """The interpreter also accepts code that the compiler rejects."""
    from iocourse.gpu import resources

    (kernel,) = defined(name)
    x, total = torch.empty(1024, 64, dtype=torch.float32), torch.empty(1024)
    numbers, patterns = torch.empty(1024, dtype=torch.int32), torch.empty(8, 64, 32, dtype=torch.uint8)
    given = {
        "sliced_kernel": ((x, x, x, x, x, total, 1000, 60, 0.18), {"BD": 32}),
        "listed_kernel": (
            (x, x, x, x, total, numbers, numbers, numbers, patterns, numbers, 1000, 900, 0.18),
            {"d": 64},
        ),
    }
    arguments, constants = given[name]
    found = resources(kernel, 80, *arguments, BM=64, BN=32, num_warps=4, num_stages=2, **constants)
    assert found.registers > 0 and found.shared_bytes > 0


# ---------------------------------------------------------------------- three wrong kernels
def lines(suspect):
    """Return the line of each property in a report, without its numbers."""
    told = diagnosis.report_for(suspect).splitlines()[1:]
    return {line.split(":")[0].strip() for line in told if line.startswith("  ")}


@pytest.mark.parametrize("suspect", range(1, 9))
def test_a_report_on_a_suspect_is_what_check_prints(suspect, capsys, monkeypatch):
    monkeypatch.delenv("IOCOURSE_STRICT", raising=False)
    check("13C", diagnosis.launcher(suspect), seed=diagnosis.SEED)
    printed = capsys.readouterr().out.strip()
    assert printed == diagnosis.report_for(suspect)
    assert "FAILS" in printed and "error" not in printed and "Not solved yet" in printed


def test_no_two_suspects_have_the_same_report_and_the_culprits_are_three_of_them():
    reports = {frozenset(lines(suspect)) for suspect in range(1, 9) if suspect not in (3, 4)}
    assert len(reports) == 6
    first = [
        diagnosis.report_for(n).split("FAILS")[1] for n in (3, 4)
    ]  # distinguished by the number of entries that differ
    assert "[0, 0]" in first[0] and "[0, 0]" not in first[1]
    assert {diagnosis.faulty_line(kernel) for kernel in "ABC"} == {3, 5, 7}


def test_what_the_readings_of_13_13_rest_on():
    words = "holds  moves exactly the words of the closed form, lists included"
    clear = {suspect for suspect in range(1, 9) if words in lines(suspect)}
    assert clear == {3, 4, 5, 6, 7}
    assert "holds  O is correct when all blocks are full" in lines(3) & lines(4) & lines(7)
    log_sums = "holds  LSE is the natural logarithm of the row sums"
    assert {suspect for suspect in clear if log_sums in lines(suspect)} == {5, 7}
    assert [line for line in lines(7) if "FAILS" in line] == [
        "FAILS  scores far from 0 neither overflow nor vanish"
    ]
    assert "672 of 1024" in diagnosis.report_for(5)  # 21 of 32 rows, d = 32
    case = find("13C").cases(np.random.default_rng(diagnosis.SEED))[0].inputs
    met_first = case["entries"][case["spans"][:, 0]].repeat(case["BM"])
    best = (case["Q"] @ case["K"].T).argmax(axis=1) // case["BN"]
    assert case["Q"].shape == (32, 32) and (best == met_first).sum() == 11


def test_among_the_wrong_kernels_there_is_no_right_one():
    for fault in (0, 9):
        verdicts = judge(find("13C"), diagnosis.launcher(fault), 0)
        assert any(complaint for _, complaint in verdicts), fault


@pytest.mark.parametrize("which", ["D", "a", "", 0, 9, True])
def test_who_is_not_in_the_lineup_is_refused(which):
    with pytest.raises(ValueError, match=r"A, B or C|1 to 8"):
        diagnosis.show(which)
