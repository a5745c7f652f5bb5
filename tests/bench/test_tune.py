"""`tune` of `tools.bench gpu`, no GPU: candidates, choice and the tiles to take, from made-up times."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from iocourse.gpu import CHIPS
from iocourse.kernels.host.choices import Case, TileConfig, tile
from tools.bench import steps, tiles
from tools.bench.contest import Shape
from tools.bench.gpu import how_far
from tools.bench.measured_tiles import KERNELS, may_run, tiles_of
from tools.bench.tiles import BYTES, CURATED, SIZES, Problem, candidates, searches

SHIPPED = TileConfig(64, 64, 4, 2)


def compiled(kernel, arch, d):
    """Return the tile that was chosen from compiled code."""
    return tile(kernel, Case(arch, BYTES, d, "packed"))


@pytest.mark.parametrize("d", steps.TUNED_HEADS)
@pytest.mark.parametrize("arch", CHIPS)
def test_what_is_shipped_passes_the_filter_and_comes_first(arch, d):
    for kernel in KERNELS:
        shipped = compiled(kernel, arch, d)
        assert may_run(kernel, shipped, arch, d)
        every = candidates(kernel, shipped, arch, d, few=False)
        few = candidates(kernel, shipped, arch, d, few=True)
        assert every[0] == few[0] == shipped and len(set(every)) == len(every)
        assert 1 < len(few) < len(every) and set(few) <= set(every)


def test_what_cannot_run_is_not_tried():
    assert not may_run("forward", TileConfig(128, 128, 4, 1), 90, 128), "256 sums and scores per thread"
    assert may_run("forward", TileConfig(128, 128, 8, 1), 90, 128)
    assert may_run("forward", TileConfig(64, 128, 8, 3), 90, 128), "192 KB of 227"
    assert not may_run("forward", TileConfig(64, 128, 8, 4), 90, 128), "256 KB of 227"
    assert not may_run("forward", TileConfig(64, 128, 8, 3), 80, 128), "192 KB of 163"


def test_few_are_tried_where_time_is_short_and_what_compiled_code_speaks_for_is_among_them():
    for (arch, d, kernel), curated in CURATED.items():
        shipped = compiled(kernel, arch, d)
        few = candidates(kernel, shipped, arch, d, few=True)
        assert few[0] == shipped and set(few) == {shipped, *curated}, "one of them does not pass the filter"
        assert len(few) <= 8
    near = candidates("keys", compiled("keys", 90, 128), 90, 128, few=True)
    assert 1 < len(near) <= 8 and (90, 128, "keys") not in CURATED


def test_a_run_that_is_cut_off_leaves_the_kernels_it_tried():
    class CutOff(Made):
        def work(self, kernel, tile):
            if kernel == KERNELS[-1]:
                raise KeyboardInterrupt
            return super().work(kernel, tile)

    with pytest.raises(KeyboardInterrupt):
        for _, kept in tiles.tuned(80, searches(80, (64,), True), CutOff, MadeUpWatch()):
            record = json.loads(json.dumps(kept))
    assert record["asked"] == 4 and [one["kernel"] for one in record["kernels"]] == [*KERNELS[:-1]]
    assert "forward, d = 64" in tiles.shown(record) and how_far(record) == 3 / 4


def tried(**ms):
    """Made-up times: the name is BM."""
    return [{"tile": SHIPPED._replace(BM=int(name[1:])), "ms": times} for name, times in ms.items()]


def test_the_fastest_is_taken_under_each_mask_where_that_is_worth_it():
    times = tried(_64=[4.0, 1.0], _32=[2.0, 1.0], _128=[3.0, 0.9])
    assert [tiles.chosen(times, SHIPPED, mask).BM for mask in (0, 1)] == [32, 128]
    assert tiles.chosen(tried(_64=[1.0, 1.0], _32=[0.99, 0.5]), SHIPPED, 0) == SHIPPED, "noise"
    failed = [{"tile": SHIPPED._replace(BM=16), "ms": [], "failed": "OutOfResources"}]
    assert tiles.chosen([*tried(_64=[1.0, 1.0]), *failed], SHIPPED, 0) == SHIPPED
    assert tiles.chosen([failed[0] | {"tile": SHIPPED}, *tried(_32=[9.0, 9.0])], SHIPPED, 1).BM == 32
    assert tiles.chosen(failed, SHIPPED, 0) == SHIPPED


class MadeUpWatch:
    """Each work's own made-up time."""

    def laps(self, work, repeats):
        work()
        return [work.ms] * repeats


class Made:
    """A problem whose time is its tile's: fastest at BM = 32; more than two stages do not run."""

    def __init__(self, d, causal):
        self.d, self.causal = d, causal

    def work(self, kernel, tile):
        if tile.stages == 3:
            raise RuntimeError("out of resource: shared memory")

        def work():
            if tile.stages == 4:
                raise RuntimeError("an error when it runs")

        work.ms = (1.0 if self.causal else 2.0) * (1.0 if tile.BM == 32 else 2.0)
        return work


def tuned(asked, problem):
    """The record at the end, as it comes back from a file."""
    return json.loads(
        json.dumps([record for _, record in tiles.tuned(80, asked, problem, MadeUpWatch())][-1])
    )


def test_a_made_up_run_ends_in_tiles_to_take():
    result = tuned(searches(80, (64, 128), False), Made)
    assert [(one["d"], one["kernel"]) for one in result["kernels"]] == [
        (d, kernel) for d in (64, 128) for kernel in KERNELS
    ]
    for one in result["kernels"]:
        assert [tile[0] for tile in one["chosen"]] == [32, 32]
        reasons = {entry["tile"][3]: entry.get("failed") for entry in one["tried"]}
        assert reasons[3] == "RuntimeError: out of resource: shared memory"
        assert reasons[4] == "RuntimeError: an error when it runs" and reasons[1] is None
    text = tiles.shown(result)
    assert "4.000, 2.000" in text and "2.000" in text and "16 faster than the shipped" in text
    taken = tiles_of(result)
    assert {(at.arch, at.itemsize) for at in taken} == {(80, 2)} and len(taken) == 2 * 4 * 2
    assert all(BM == 32 for BM, *_ in taken.values())


def test_nothing_better_leaves_the_table_as_it_is():
    class Flat(Made):
        def work(self, kernel, tile):
            def work():
                pass

            work.ms = 1.0
            return work

    result = tuned(searches(80, (128,), True), Flat)
    assert result["tiles"] == [] and "0 faster than the shipped" in tiles.shown(result)


def test_a_real_problem_runs_with_other_tiles_and_refuses_wrong_values(interpreter):
    one = Problem(Shape("float16", 16, 48, 1, 1, True), "cpu")
    for kernel in KERNELS:
        results = one.work(kernel, TileConfig(32, 16))()
        assert len(results) == (2 if kernel == "forward" else 3)
    one._expected["fused"] = tuple(1.1 * x for x in one._expected["fused"])  # which is kept
    with pytest.raises(ValueError, match=r"differ from the shipped tile's by a relative 0\.09"):
        one.work("fused", TileConfig(32, 16))


def test_sizes_are_those_of_a_tile():
    assert tuple(SIZES) == TileConfig._fields
