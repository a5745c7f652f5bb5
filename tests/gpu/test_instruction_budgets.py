"""Instruction budgets of the hot loops on sm_90, in 16 bits, because a GPU would only show slower times.

Five rules: products are wgmma, which reads tiles from shared memory and is the only one to reach the chip's
full rate, never mma.sync; the loop spills nothing; it waits fewer times than it has products, and no more
often than the kernel needs; it computes each exponential once, for one warp group; and it issues no more
instructions per score than a budget. They are checked for the current code, and for the records of the pinned
Triton and of 3.6.0.

Kernels that split d compute only partial scores in an iteration, so only the first three rules apply to
them. For complete rows with heads above 128 only the rules of all kernels apply: no spills, and no wait
for each product.
"""

import itertools
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import torch
from compiled_launches import as_reported

from iocourse.data.records import load_record
from iocourse.gpu.hot_loop import Loop
from iocourse.kernels.host.resources import SLICED
from tools.bench import resources
from tools.bench.resources import TILED, a_score
from tools.bench.resources.compiling import Compilation, launch_of, shipped
from tools.bench.tiles import CURATED

ROOT = Path(__file__).parents[2]
PINNED = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
)["triton"]
OLDER = "3.6.0"
ARCH, WIDTH, LARGEST = 90, 2, 128  # larger whole rows take tiles of 32, below wgmma's 64
MATERIALISED = "averages", "query_gradients", "key_gradients"  # once serialised: TURNED, materialised_scores

# Instructions of a thread for each of its scores, in the loop without a mask: (kernel, d). In the fused pass,
# 256 threads share 64 × 128 scores: 32 a thread and step. Forward tiles of 64 × 64, faster on an H200, spread
# the instructions of a step over fewer scores than 128 × 128.
BUDGETS = {("forward", 64): 8.6, ("forward", 128): 11.0, ("fused", 64): 420 / 32, ("fused", 128): 490 / 32}
OLDER_BUDGETS = BUDGETS | {("fused", 64): 450 / 32}  # 3.6.0 copies rows of numbers word by word
# Waits for wgmma per iteration: one for each product that is needed at once, as in all shipped kernels.
# ptxas does not fail where it waits for each; it only warns, and Triton does not show the warning.
WAITS = dict.fromkeys(SLICED, 1) | {"forward": 1, "queries": 2, "keys": 2, "fused": 3, "key_gradients": 2}
# Exponentials of a thread for each of its scores: where fewer rows than warps are shared out, warps repeat
# those of others. The forward pass has one more a row, to scale what came before.
EXPONENTIALS = {"forward": 1.1, "queries": 1.0, "keys": 1.0, "fused": 1.0}
# Spills that a row of the choices states: a window and heads that share keys, where tiles without spills
# compute far more instructions per score.
STATED_SPILLS = {("keys", 128, "window"): 2}
CAUSAL = 1.1  # the loop without a mask is the same, but what the other one needs takes registers as well


def broken(row, budgets, known_spills=()):
    """Return the rules that a recorded kernel violates, as texts with the number found; empty if none."""
    loop, each = row["hot_loop"], a_score(row)
    said = lost(row, known_spills) | {
        f"{row['mma_sync']} mma.sync": row["mma_sync"] > 0,
        f"{loop['wgmma']} wgmma": loop["wgmma"] == 0,
        f"{loop['waits']} waits per iteration, of {WAITS[row['kernel']]}": loop["waits"]
        > WAITS[row["kernel"]],
    }
    if each is not None:
        said |= too_much_a_score(row, each, budgets)
    return [text for text, is_so in said.items() if is_so]


def lost(row, known_spills=()):
    """Return the faults that no kernel may have, each with True if this loop has it."""
    loop = row["hot_loop"]
    return {
        f"{loop['spills']} spills per iteration": loop["spills"] > dict(known_spills).get(_key(row), 0),
        f"{loop['waits']} waits for {loop['wgmma']} wgmma": Loop(**loop).serialised,
    }


def too_much_a_score(row, each, budgets):
    """The same of what a kernel with whole scores issues for one of them; each: instructions."""
    exponentials = each * row["hot_loop"]["exponentials"] / row["hot_loop"]["instructions"]
    # Lists, packed rows and heads that share keys have more addresses to work out.
    known = budgets if row["pairs"] == "band" and row.get("group", 1) == 1 else {}
    budget = known.get((row["kernel"], row["d"]), float("inf")) * (CAUSAL if row["causal"] else 1)
    return {
        f"{exponentials:.2f} exponentials for each score": exponentials > EXPONENTIALS[row["kernel"]],
        f"{each:.2f} instructions per score, of {budget:.2f}": each > budget,
    }


def _key(row):
    return row["kernel"], row["d"], row["pairs"]


def recorded(record):
    return [*record["shipped"], *record["variants"]]


def held_to(row):
    """Return True if the rules apply to a recorded row: 16 bits on sm_90; complete rows with heads to 128,
    and all that cut d.
    """
    whole = row["kernel"] in TILED and row["d"] <= LARGEST  # a decode step has fewer rows than wgmma takes
    return (row["arch"], row["bytes"]) == (ARCH, WIDTH) and (whole or row["kernel"] in SLICED)


def named(row):
    return " ".join(str(row[part]) for part in ("kernel", "d", "causal", "pairs", "BM", "BN", "warps"))


@pytest.fixture(scope="module")
def plain():
    """Return (kernel, d) -> the row of the kernel without a mask: its compilation and its resources."""
    asked = [next(shipped(ARCH, d, WIDTH, kernel)) for kernel, d in BUDGETS]
    reports = as_reported([(ARCH, launch_of(one)) for one in asked])
    return {
        of: one._asdict() | asdict(report) for of, one, report in zip(BUDGETS, asked, reports, strict=True)
    }


@pytest.mark.parametrize(("kernel", "d"), BUDGETS)
def test_a_kernel_as_it_stands(plain, kernel, d):
    """Recorded of this code by the Triton that is here, or compiled by it."""
    row = plain[kernel, d]
    assert not row["causal"]
    budgets = BUDGETS if metadata.version("triton") == PINNED else OLDER_BUDGETS
    assert broken(row, budgets) == [], named(row)


@pytest.mark.parametrize("case", ["window", "ragged"])
def test_keys_in_what_is_not_recorded_wait_no_more_often(case, monkeypatch):
    """At d = 64, where loops waited for each product: a window, and a length with partial tiles."""
    from iocourse.kernels.host import resources as launched

    monkeypatch.setattr(launched, "N", 1000 if case == "ragged" else launched.N)
    window = (256, 0) if case == "window" else None
    made = launched.launches(ARCH, 64, torch.bfloat16, causal=case == "window", window=window)
    (report,) = as_reported([(ARCH, made["keys"])])
    assert report.hot_loop.waits == WAITS["keys"] < report.hot_loop.wgmma


def test_materialised_kernels_in_what_is_not_recorded_wait_no_more_often():
    """At d = 512 without a mask, one of the two cases that they are launched for; the other is recorded."""
    from iocourse.kernels.host import resources as launched

    made = launched.launches(ARCH, 512, torch.bfloat16, causal=False)
    for kernel, report in zip(
        MATERIALISED, as_reported([(ARCH, made[kernel]) for kernel in MATERIALISED]), strict=True
    ):
        row = {"kernel": kernel, "d": 512, "causal": False, "pairs": "band", "warps": report.warps}
        row |= {name: getattr(made[kernel].constants["SLICE"], name) for name in ("BM", "BN", "BD")}
        row |= {"mma_sync": report.mma_sync, "hot_loop": asdict(report.hot_loop)}
        assert broken(row, {}) == [], named(row)


@pytest.mark.parametrize("descriptors", [False, True])
@pytest.mark.parametrize("d", [64, 128])
def test_packed_sequences_spill_nothing_either_way(descriptors, d):
    """Causal kernels, which have a loop with a mask and one without. The record has those that are chosen."""
    from iocourse.kernels.host import resources as launched
    from iocourse.kernels.host.choices import replaced

    kernels = ("forward", "queries", "keys", "fused")
    with replaced({"packed descriptors": descriptors}):
        made = launched.launches(ARCH, d, torch.bfloat16, causal=True, pairs="packed")
    for kernel, report in zip(kernels, as_reported([(ARCH, made[of]) for of in kernels]), strict=True):
        row = {"kernel": kernel, "d": d, "causal": True, "pairs": "packed", "BD": None}
        row |= {"BM": made[kernel].constants["TILE"].BM, "BN": made[kernel].constants["TILE"].BN}
        row |= {"warps": report.warps, "mma_sync": report.mma_sync, "hot_loop": asdict(report.hot_loop)}
        assert broken(row, {}) == [], named(row)
        assert (report.hot_loop.tile_loads > 0) == descriptors


@pytest.mark.parametrize("key", CURATED, ids=str)
def test_a_tile_that_the_tuner_tries_first_spills_nothing(key):
    """Full and causal, each as recorded of this code or compiled: about a second."""
    arch, d, kernel = key
    asked = [
        Compilation(arch, d, WIDTH, kernel, causal, *tile)
        for tile in CURATED[key]
        for causal in (False, True)
    ]
    loops = [report.hot_loop for report in as_reported([(arch, launch_of(one)) for one in asked])]
    found = {one: loop for one, loop in zip(asked, loops, strict=True) if loop.spills or loop.serialised}
    assert found == {}


@pytest.mark.parametrize(
    ("name", "triton", "budgets", "known"),
    [("resources", PINNED, BUDGETS, STATED_SPILLS), ("hot-loops", OLDER, OLDER_BUDGETS, STATED_SPILLS)],
)
def test_every_recorded_kernel(name, triton, budgets, known):
    record = load_record(name)
    assert record["versions"]["triton"] == triton
    rows = [row for row in recorded(record) if held_to(row)]
    assert {(row["kernel"], row["d"], row["causal"]) for row in rows} == {
        (kernel, d, causal) for kernel in TILED for d in (64, 128) for causal in (False, True)
    } | {(kernel, resources.SLICED_D, True) for kernel in SLICED}
    again = f"record it again: python -m tools.bench {name}"
    assert [row for row in rows if "hot_loop" not in row] == [], again
    found = {named(row): broken(row, budgets, known) for row in rows}
    assert {name: said for name, said in found.items() if said} == {}


@pytest.mark.parametrize(("name", "known"), [("resources", STATED_SPILLS), ("hot-loops", STATED_SPILLS)])
def test_no_recorded_step_spills_or_waits_for_each_product(name, known):
    """Every kernel and head size, whatever instruction multiplies."""
    rows = [row for row in recorded(load_record(name)) if (row["arch"], row["bytes"]) == (ARCH, WIDTH)]
    looping = [row for row in rows if row["hot_loop"] is not None]
    assert {row["d"] for row in looping if row["hot_loop"]["wgmma"]} == set(resources.HEADS)
    assert {row["kernel"] for row in rows if row["hot_loop"] is None} == {"row_products", "decode_merge"}
    found = {named(row): [text for text, is_so in lost(row, known).items() if is_so] for row in looping}
    assert {name: said for name, said in found.items() if said} == {}


def test_the_fused_pass_spills_next_to_nothing_outside_its_loop_either():
    """Without a mask: bytes per thread; the loop itself has no spills."""
    for name in ("resources", "hot-loops"):
        rows = [row for row in load_record(name)["shipped"] if held_to(row) and row["pairs"] == "band"]
        fused = [row for row in rows if row["kernel"] == "fused" and not row["causal"]]
        assert {row["d"] for row in fused} == {64, 128}
        assert [named(row) for row in fused if row["spill_bytes"] > 8] == []


def test_the_older_hot_loops_are_of_all_that_is_shipped():
    """As `test_every_row_of_the_tables_is_recorded_with_its_tiles` holds of the pinned version's."""
    asked = [part(ARCH, resources.HEADS, (WIDTH,)) for part in (resources.every, resources.variants)]
    asked = [*itertools.chain(*asked)]
    parts = [part for part in Compilation._fields if part != "warps"]  # the compiler makes more of some
    rows = recorded(load_record("hot-loops"))
    assert [[row[part] for part in parts] for row in rows] == [
        [getattr(one, part) for part in parts] for one in asked
    ]
    assert [named(row) for row in rows if "error" in row] == []


def test_each_rule_can_be_broken():
    loop = {field.name: 0 for field in fields(Loop)} | {"instructions": 419, "wgmma": 24, "waits": 3}
    row = {"kernel": "fused", "d": 64, "causal": False, "BM": 64, "BN": 128, "BD": None, "warps": 8}
    row |= {"pairs": "band", "mma_sync": 0, "hot_loop": loop}
    assert broken(row, BUDGETS) == []
    for facts, said in (
        ({"mma_sync": 32}, "32 mma.sync"),
        ({"hot_loop": loop | {"wgmma": 0}}, "0 wgmma"),
        ({"hot_loop": loop | {"wgmma": 3}}, "3 waits for 3 wgmma"),
        ({"hot_loop": loop | {"waits": 4}}, "4 waits per iteration, of 3"),
        ({"hot_loop": loop | {"exponentials": 64}}, "2.00 exponentials for each score"),
        ({"hot_loop": loop | {"spills": 2}}, "2 spills per iteration"),
        ({"hot_loop": loop | {"instructions": 424}}, "13.25 instructions per score, of 13.12"),
    ):
        assert broken(row | facts, BUDGETS) == [said]
        kept = [] if "per score" in said else [said]
        assert broken(row | facts | {"causal": True}, BUDGETS) == kept
        assert broken(row | facts | {"pairs": "packed"}, BUDGETS) == kept


def test_a_kernel_that_cuts_d_has_no_budget_a_score():
    loop = {field.name: 0 for field in fields(Loop)} | {"instructions": 980, "wgmma": 8, "waits": 2}
    row = {"kernel": "key_gradients", "d": 512, "causal": True, "BM": 64, "BN": 128, "BD": 128, "warps": 8}
    row |= {"pairs": "band", "mma_sync": 0, "hot_loop": loop}
    assert broken(row, BUDGETS) == broken(row | {"hot_loop": loop | {"exponentials": 64}}, BUDGETS) == []
    assert broken(row | {"hot_loop": loop | {"spills": 28}}, BUDGETS) == ["28 spills per iteration"]
    assert broken(row | {"mma_sync": 64}, BUDGETS) == ["64 mma.sync"]


def test_what_the_kernels_were_would_have_failed():
    """Row numbers masked and converted in the loop at d = 64; tiles of 32 rows at d = 128; weights as the
    first factor of a product at d = 512: as compiled.
    """
    loop = {field.name: 0 for field in fields(Loop)}
    masked = {"kernel": "fused", "d": 64, "causal": False, "BM": 64, "BN": 128, "BD": None, "warps": 8}
    masked |= {"pairs": "band", "mma_sync": 0}
    for budgets, instructions in ((BUDGETS, 534), (OLDER_BUDGETS, 793)):
        row = masked | {"hot_loop": loop | {"instructions": instructions, "wgmma": 24}}
        assert [said for said in broken(row, budgets) if "per score" in said]
    few_rows = masked | {"d": 128, "BM": 32, "mma_sync": 32}
    few_rows["hot_loop"] = loop | {"instructions": 469, "wgmma": 0}
    assert {"32 mma.sync", "0 wgmma"} < set(broken(few_rows, BUDGETS))
    for kernel, wgmma, waits in (("averages", 4, 4), ("query_gradients", 4, 4), ("key_gradients", 8, 8)):
        row = masked | {"kernel": kernel, "d": 512, "causal": True, "BM": 128, "BN": 64, "BD": 128}
        row["hot_loop"] = loop | {"instructions": 635, "wgmma": wgmma, "waits": waits}
        said = [f"{waits} waits for {wgmma} wgmma", f"{waits} waits per iteration, of {WAITS[kernel]}"]
        assert broken(row, BUDGETS) == said
