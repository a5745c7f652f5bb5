"""Measured tiles: a row takes effect where it belongs and nowhere else, and nonsense is refused."""

import json

import pytest

from iocourse.errors import UsageError
from iocourse.gpu import tuned_tiles

ROW = {"arch": 90, "kernel": "forward", "d": 128, "itemsize": 2, "causal": True, "tile": [64, 64, 4, 3]}


# A row as `python -m tools.bench resources` records it, of the tile above.
LOOP = {"spills": 0, "wgmma": 16, "waits": 1}
COMPILED = [
    {"arch": 90, "d": 128, "bytes": 2, "kernel": "forward", "causal": True, "pairs": "band",
     "BM": 64, "BN": 64, "warps": 4, "stages": 3, "hot_loop": LOOP},
]  # fmt: skip


@pytest.fixture
def package(monkeypatch, tmp_path):
    """A file in the place of the package's record of tune; what was read is forgotten before and after."""
    file = tmp_path / "tune.json"
    read = {
        "tune": lambda: json.loads(file.read_text()) if file.exists() else None,
        "resources": lambda: {"shipped": COMPILED},
    }
    monkeypatch.setattr(tuned_tiles, "load_record", lambda name: read[name]())
    tuned_tiles.shipped_tiles.cache_clear()
    yield file
    tuned_tiles.shipped_tiles.cache_clear()


def test_without_a_record_nothing_is_measured(package):
    assert tuned_tiles.shipped_tiles() == {} and tuned_tiles.measured_for(90, 128, 2, True) == {}


def test_a_measured_row_takes_effect_where_it_belongs_and_nowhere_else(package):
    pytest.importorskip("triton")
    from iocourse.kernels import using
    from iocourse.kernels.host.tile_table import TABLE, TileConfig, tiles_for

    package.write_text(json.dumps({"tiles": [ROW]}))
    table = TABLE[90, 128, 2]
    assert tiles_for(90, 100, 2, causal=True) == table._replace(forward=TileConfig(64, 64, 4, 3)) != table
    for elsewhere in ({"causal": False}, {}):
        assert tiles_for(90, 100, 2, **elsewhere) == table
    assert tiles_for(90, 64, 2, causal=True) == TABLE[90, 64, 2]
    assert tiles_for(80, 128, 2, causal=True) == TABLE[80, 128, 2]
    assert tiles_for(90, 128, 2, listed=True, causal=True).forward == table.forward
    with using(forward=(32, 32)):
        assert tiles_for(90, 128, 2, causal=True).forward == (32, 32, 4, 1)


def test_a_launch_takes_it_but_not_of_packed_sequences(package):
    pytest.importorskip("triton")
    from iocourse.kernels import attention, attention_varlen
    from iocourse.kernels.host.launches import record_launches

    import torch  # isort: skip  # after the kernels

    package.write_text(json.dumps({"tiles": [ROW]}))
    q = torch.empty(1, 1, 256, 128, dtype=torch.float16)
    for causal, BM in ((True, 64), (False, 128)):
        with record_launches(90) as written:
            attention(q, q, q, causal=causal)
        assert written[0].constants["TILE"].BM == BM
    with record_launches(90) as written:
        packed, cu = q[0].transpose(0, 1), torch.tensor([0, 100, 256], dtype=torch.int32)
        attention_varlen(packed, packed, packed, cu, cu, causal=True)
    assert written[0].constants["TILE"].BM == 128  # the table's: nothing was measured with them


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
def test_a_tile_that_is_recorded_to_spill_or_to_be_serialised_is_refused(package, monkeypatch, loop, said):
    monkeypatch.setitem(COMPILED[0], "hot_loop", LOOP | loop)
    if not said:
        assert tuned_tiles.tiles_of({"tiles": [ROW]})
        return
    with pytest.raises(UsageError, match="Use fewer queries or keys, or more warps") as caught:
        tuned_tiles.tiles_of({"tiles": [ROW]})
    assert said in str(caught.value)
    assert tuned_tiles.tiles_of({"tiles": [ROW | {"causal": False}]})  # of which nothing is recorded


def test_tiles_measured_with_another_triton_are_used_and_said_once(package, monkeypatch):
    pytest.importorskip("triton")
    from iocourse.kernels.host import tile_table

    package.write_text(json.dumps({"tiles": [ROW], "versions": {"triton": "3.6.0"}}))
    assert (
        tuned_tiles.made_with_another_triton(90, "3.6.0")
        == tuned_tiles.made_with_another_triton(80, "3.7.1")
        == ""
    )
    monkeypatch.setattr(tile_table.torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(tile_table.triton, "__version__", "3.7.1")
    tile_table._device_row_once.cache_clear()
    with pytest.warns(UserWarning, match=r"were measured with Triton 3\.6\.0, and this is 3\.7\.1") as said:
        assert tile_table._device_row_once(0) == tile_table._device_row_once(0) == 90
    assert len(said) == 1
    assert tile_table.tiles_for(90, 128, 2, causal=True).forward == tuple(ROW["tile"])
    tile_table._device_row_once.cache_clear()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"tiles": [', "tune.json is not valid JSON"),
        ("[]", "has no list of `tiles`"),
        ('{"tiles": {}}', "has no list of `tiles`"),
        (
            '{"tiles": [7]}',
            "A measured tile must be a row of arch, causal, d, itemsize, kernel, tile; got 7",
        ),
        ('{"tiles": [{"arch": 90}]}', "must be a row of arch, causal, d, itemsize, kernel, tile; got {'arch"),
    ],
)
def test_what_is_no_record_is_refused(package, text, said):
    package.write_text(text)
    with pytest.raises(UsageError) as caught:
        tuned_tiles.shipped_tiles()
    assert said in str(caught.value)


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
        tuned_tiles.tiles_of({"tiles": [ROW, ROW | changed]})
    assert said in str(caught.value)
