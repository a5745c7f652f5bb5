"""Reports of hot loops by `bench resources` and `bench hot-loops`: two compiled, others made up."""

from dataclasses import fields

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from iocourse.data.records import kernel_row, kernels_code, load_record
from iocourse.gpu import Resources
from iocourse.gpu.hot_loop import Loop
from tools.bench import hot_loops, resources
from tools.bench.__main__ import SUBJECTS
from tools.bench.resources import a_score
from tools.bench.resources.compiling import launch_of, shipped

STEP = {field.name: 0 for field in fields(Loop)}


def row(**facts):
    """A made-up row."""
    size = {"arch": 90, "d": 64, "bytes": 2, "kernel": "fused", "causal": False, "pairs": "band"}
    tile = {"BM": 64, "BN": 128, "BD": None, "warps": 8, "stages": 2}
    taken = {"registers": 180, "spill_bytes": 4, "shared_bytes": 2048, "tensor_core": 24, "mma_sync": 0}
    return size | tile | taken | {"hot_loop": STEP | {"instructions": 480, "wgmma": 24, "spills": 2}} | facts


def test_instructions_for_each_score():
    """256 threads issue 480 each for 64 · 128 scores: 15 a score."""
    assert a_score(row()) == 15
    assert a_score(row(BM=128, warps=4)) == 3.75
    for other in ({"hot_loop": None}, {"BD": 64}, {"kernel": "decode_parts"}):
        assert a_score(row(**other)) is None
    assert a_score({name: value for name, value in row().items() if name != "hot_loop"}) is None


def test_the_table_shows_the_step_and_what_is_none():
    rows = [row(), row(kernel="row_products", hot_loop=None), row(causal=True, error="made up")]
    made_up = {"versions": {"triton": "0.1"}, "date": "1970-01-01", "shipped": rows, "variants": []}
    head, one, none, refused, why, how = resources.show(made_up).split("\n")
    assert head.split()[1:6] == ["registers", "spilled", "KB", "shared", "step"]
    assert one.split()[-10:] == ["480", "15.00", "24", "0", "0", "0", "0", "0", "0", "2"]
    assert none.split()[-3:] == ["180", "4", "2.0"]
    assert refused.split()[-1] == "64×128×8×2" and why.endswith("causal 64×128×8×2: made up")
    assert how == "3 kernels compiled with triton 0.1, 1970-01-01"


def test_hot_loops_are_compiled_with_the_tiles_of_the_table(monkeypatch):
    assert SUBJECTS["hot-loops"] is hot_loops
    asked = []

    def queries(arch, heads, widths):
        asked.append((arch, heads, widths))
        return shipped(arch, 128, 2, "queries")

    monkeypatch.setattr(resources, "every", queries)
    monkeypatch.setattr(resources, "variants", lambda *_: [])
    result = hot_loops.run(quick=True)
    assert asked == [(90, (128,), (2,))]
    assert [(one["d"], one["kernel"], one["causal"]) for one in result["shipped"]] == [
        (128, "queries", False),
        (128, "queries", True),
    ]
    for one in result["shipped"]:
        report = Resources.of(one)
        assert report.hot_loop.wgmma > 0 == report.hot_loop.mma == report.mma_sync and report.fits
        assert report.tensor_core % report.hot_loop.wgmma == 0  # in one loop, or in two alike
    assert f"triton {result['versions']['triton']}" in hot_loops.show(result)
    record = load_record("resources")
    if record["versions"]["triton"] == result["versions"]["triton"]:
        codes = [one["code"] for one in result["shipped"]]
        assert result["shipped"] == [{"group": 1} | one for one in record["shipped"] if one["code"] in codes]


def test_of_one_chip_hot_loops_are_those_of_resources():
    """The same kernels with the same tiles, so that two versions of Triton can be held side by side."""
    mine = [*resources.every(hot_loops.ARCH, resources.HEADS, (hot_loops.BYTES,))]
    every = [*resources.every(hot_loops.ARCH, resources.HEADS, resources.BYTES)]
    assert mine == [one for one in every if one.bytes == 2] and len(set(mine)) == len(mine)
    kernels = {(one.kernel, one.pairs) for one in mine}
    assert {"row_products", "decode_parts", "sliced_forward"} <= {name for name, _ in kernels}
    assert {("fused", "packed"), ("fused", "block_mask")} <= kernels
    shared = [*resources.variants(hot_loops.ARCH, resources.HEADS, (hot_loops.BYTES,))]
    assert len({(one.kernel, one.d, one.causal) for one in shared if one.pairs == "band"}) == 4 * 3 * 2
    assert {(one.pairs, one.group) for one in shared} == {("band", 4), ("window", 1), ("window", 4)}


def test_kernels_are_compiled_with_the_tiles_that_are_chosen_and_their_names_are_unique():
    """Heads that share keys with their tile, and packed sequences with descriptors where they are chosen."""
    parts = resources.asked_for((90,), resources.HEADS, (2,))
    mine = [*parts["shipped"], *parts["variants"]]
    names = [kernel_row(one._asdict()) for one in mine]
    assert len(set(names)) == len(names)
    known = {name for name in kernels_code()["3.7.1"] if name.startswith("sm_90") and " 2 " in name}
    assert known <= {*names}, "a row of the record that is no longer compiled"
    tiles = {name: (one.BM, one.BN) for name, one in zip(names, mine, strict=True)}
    assert tiles["sm_90 keys 64 2 causal band"] == (128, 128)
    assert tiles["sm_90 keys 64 2 causal band group=4"] == (64, 128)
    by = {name: launch_of(one) for name, one in zip(names, mine, strict=True) if "forward 64" in name or
          "forward 128" in name}  # fmt: skip
    by_descriptors = {name: made.constants["TILE"].DESCRIPTORS for name, made in by.items()}
    assert not by_descriptors["sm_90 forward 64 2 causal packed"]
    assert by_descriptors["sm_90 forward 128 2 causal packed"]
