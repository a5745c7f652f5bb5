"""Tiles of a record of the step `tune`: rows that cannot run, or are recorded to spill, are refused."""

import pytest

from iocourse.errors import UsageError
from tools.bench import measured_tiles

ROW = {"arch": 90, "kernel": "forward", "d": 128, "itemsize": 2, "causal": True, "tile": [64, 64, 4, 3]}


# A row as `python -m tools.bench resources` records it, of the tile above.
LOOP = {"spills": 0, "wgmma": 16, "waits": 1}
COMPILED = [
    {"arch": 90, "d": 128, "bytes": 2, "kernel": "forward", "causal": True, "pairs": "band",
     "BM": 64, "BN": 64, "warps": 4, "stages": 3, "hot_loop": LOOP},
]  # fmt: skip


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    """A made-up record of compiled kernels in place of the shipped one."""
    monkeypatch.setattr(measured_tiles, "load_record", lambda name: {"shipped": COMPILED})


@pytest.mark.parametrize(
    ("loop", "said"),
    [
        (
            {"spills": 3},
            "of forward spills 3 registers per iteration on sm_90 with d = 128, by the record of resources",
        ),
        ({"waits": 16}, "waits for each of its 16 products on sm_90"),
        ({"waits": 15}, ""),
        ({"waits": None}, ""),
    ],
    ids=str,
)
def test_a_tile_that_is_recorded_to_spill_or_to_be_serialised_is_refused(monkeypatch, loop, said):
    monkeypatch.setitem(COMPILED[0], "hot_loop", LOOP | loop)
    if not said:
        assert measured_tiles.tiles_of({"tiles": [ROW]})
        return
    with pytest.raises(UsageError, match="Use fewer queries or keys, or more warps") as caught:
        measured_tiles.tiles_of({"tiles": [ROW]})
    assert said in str(caught.value)
    assert measured_tiles.tiles_of({"tiles": [ROW | {"causal": False}]})  # of which nothing is recorded


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ([], "has no list of `tiles`"),
        ({"tiles": {}}, "has no list of `tiles`"),
        ({"tiles": [7]}, "must be a row of arch, causal, d, itemsize, kernel, tile; got 7"),
        ({"tiles": [{"arch": 90}]}, "must be a row of arch, causal, d, itemsize, kernel, tile; got {'arch"),
    ],
    ids=str,
)
def test_what_is_no_record_is_refused(record, said):
    with pytest.raises(UsageError) as caught:
        measured_tiles.tiles_of(record)
    assert said in str(caught.value)


def test_the_names_of_kernels_are_those_of_the_choices():
    pytest.importorskip("triton")
    from iocourse.kernels.host.choices import WHOLE

    assert measured_tiles.KERNELS == WHOLE


def test_heads_that_share_keys_are_compiled_but_not_timed(monkeypatch):
    shared = COMPILED[0] | {"group": 4, "hot_loop": LOOP | {"spills": 9}}
    monkeypatch.setattr(measured_tiles, "load_record", lambda name: {"shipped": [*COMPILED, shared]})
    assert measured_tiles.tiles_of({"tiles": [ROW]})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"arch": 86}, "arch of a measured tile must be one of 75, 80, 89, 90, 100; got 86"),
        (
            {"kernel": "sideways"},
            "kernel of a measured tile must be one of forward, fused, queries, keys; got 'sideways'",
        ),
        ({"d": 100}, "d of a measured tile must be one of 64, 128, 256, 512; got 100"),
        ({"itemsize": 8}, "itemsize of a measured tile must be one of 2, 4; got 8"),
        ({"causal": 1}, "causal of a measured tile must be one of False, True; got 1"),
        ({"tile": [64, 64, 4]}, "the measured tile [64, 64, 4] of forward cannot run"),
        ({"tile": [64, 48, 4, 2]}, "cannot run on sm_90 with d = 128"),
        ({"tile": [64, 64, 4, 0]}, "cannot run"),
        ({"tile": [64, 64, True, 1]}, "cannot run"),
        ({"tile": [256, 256, 4, 1]}, "within registers and shared memory"),
        ({"tile": [64, 128, 8, 4]}, "within registers and shared memory"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(changed, said):
    with pytest.raises(UsageError) as caught:
        measured_tiles.tiles_of({"tiles": [ROW, ROW | changed]})
    assert said in str(caught.value)
