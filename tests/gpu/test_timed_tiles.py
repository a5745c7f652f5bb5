"""Timed tiles: closed form of the columns, the clock model as recorded, pairs and rules on both records."""

import json
from pathlib import Path

import pytest

from iocourse.costs.kernels import KernelProblem, kernel_words
from iocourse.data.records import load_record
from iocourse.gpu import Resources, timed_tiles
from iocourse.gpu.timed_tiles import TILE, clock_model, tables

# TFLOP/s and limit of the clock model, computed when the draft was timed: one line per table of `tiles`.
RECORDED = json.loads((Path(__file__).parent / "recorded_clock_model.json").read_text(encoding="utf-8"))


def all_rows():
    return [row for name in ("tiles", "tune") for rows in tables(name).values() for row in rows]


def test_there_is_one_table_for_each_kernel_head_size_and_mask():
    draft, tune = tables("tiles"), tables("tune")
    assert {name: len(rows) for name, rows in draft.items()} == {
        "draft, d = 64": 36, "draft, d = 64, causal": 36, "draft, d = 128": 32, "draft, d = 128, causal": 32
    }  # fmt: skip
    counts = {"forward": (8, 6), "queries": (9, 6), "keys": (7, 6)}
    assert {name: len(rows) for name, rows in tune.items()} == {
        f"{kernel}, d = {d}{mask}": count
        for kernel, both in counts.items()
        for d, count in zip((64, 128), both, strict=True)
        for mask in ("", ", causal")
    }
    assert next(iter(tune)) == "forward, d = 64" and {len(row) for row in all_rows()} == {22}
    assert all(
        len({tuple(row[name] for name in TILE) for row in rows}) == len(rows) for rows in tune.values()
    )


def test_times_are_those_of_the_records():
    assert [row["ms"] for rows in tables("tiles").values() for row in rows] == [
        row["ms"] for row in load_record("tiles")["rows"]
    ]
    (recorded,) = [
        one for one in load_record("tune")["kernels"] if (one["kernel"], one["d"]) == ("keys", 128)
    ]
    for at, name in enumerate(("keys, d = 128", "keys, d = 128, causal")):
        rows = [([row[size] for size in TILE[3:]], row["ms"]) for row in tables("tune")[name]]
        assert rows == [
            (tried["tile"], tried["ms"][at]) for tried in recorded["tried"] if "failed" not in tried
        ]


def test_a_tile_that_failed_has_no_row(monkeypatch):
    record = load_record("tune")
    tried = record["kernels"][0]["tried"]
    tried[0] = {"tile": tried[0]["tile"], "ms": [], "failed": "made up"}
    monkeypatch.setattr(
        timed_tiles, "load_record", lambda name: record if name == "tune" else load_record(name)
    )
    assert [len(rows) for name, rows in tables("tune").items() if name.startswith("forward, d = 64")] == [
        7,
        7,
    ]


@pytest.mark.parametrize("row", all_rows(), ids=lambda row: "-".join(str(row[name]) for name in TILE))
def test_columns_follow_from_tile_and_machine_code(row):
    kernel = "forward" if row["kernel"] == "draft" else row["kernel"]
    problem = KernelProblem(4096, 4096, row["d"], high=0 if row["causal"] else None)
    assert row["words"] == kernel_words(kernel, problem, BM=row["BM"], BN=row["BN"]).total
    facts = {"arch": 90, "warps": row["warps"], "spill_bytes": 0, "tensor_core": 0, "async_copies": 0}
    facts |= {"bulk_reductions": 0} | {name: row[name] for name in ("registers", "shared_bytes")}
    assert row["blocks"] == Resources.of(facts).programs_at_once
    assert row["warps_per_sm"] == row["blocks"] * row["warps"] == 4 * row["warpgroups_per_sm"]
    resident = row["BN"] if row["kernel"] == "keys" else row["BM"]
    assert row["rows_per_warpgroup"] * (row["warps"] // 4) == resident
    scores = row["BM"] * row["BN"] / (32 * row["warps"])
    for column in ("instructions", "exponentials", "stall_clocks"):
        assert (row[column] * scores).is_integer()
    if (
        kernel == "forward"
    ):  # a thread of a program that repeats no score has one exponential per score, and more
        twice = row["rows_per_warpgroup"] < 64
        assert (2 if twice else 1) < row["exponentials"] <= (2.25 if twice else 1.125)


def test_words_of_one_head_by_hand():
    """Q and O once, K and V once per 64 queries, and LSE."""
    row = tables("tiles")["draft, d = 64"][0]
    assert (row["BM"], row["words"]) == (64, 2 * 4096 * 64 + 2 * (4096 // 64) * 4096 * 64 + 4096)


def test_the_clock_model_is_the_recorded_one_in_all_136_rows():
    rows = [row for some in tables("tiles").values() for row in some]
    assert [(round(speed, 1), limit) for speed, limit in map(clock_model, rows)] == [*map(tuple, RECORDED)]
    assert len(RECORDED) == 136 and {limit for _, limit in RECORDED} == {"issue", "L2", "alone"}
    assert all(row["clock_model_tflops"] == clock_model(row)[0] for row in all_rows())


def test_one_tile_of_the_clock_model_by_hand():
    """214 instructions of four warps take 214 clocks of an SM, for 4 · 64 · 32 · 64 FLOP."""
    row = tables("tiles")["draft, d = 64"][0]
    assert (row["BM"], row["BN"], row["warps"]) == (64, 32, 4) and row["instructions"] == 214 / 16
    speed, limit = clock_model(row)
    assert limit == "issue" and speed == pytest.approx(4 * 64 * 32 * 64 / 214 * 132 * 1.755e-3)


LIMITS = [
    ("tensor", {"BM": 512, "instructions": 0.1, "exponentials": 0.1}, 4 * 512 * 32 * 64 / 4096),
    ("exponentials", {"instructions": 0.1, "exponentials": 3.0}, 64 * 32 * 3 / 16),
    ("issue", {"instructions": 20.0}, 64 * 32 * 20 / 128),
    ("L2", {"d": 128, "instructions": 0.1, "exponentials": 0.1}, 2 * 32 * 128 * 2 / 40),
    ("alone", {"blocks": 1}, 4 * 214 + 4 * 64 * 32 * 64 / 4096),
    ("alone", {"spills": 100}, (4 * (214 + 800) + 128) / 2),
]


@pytest.mark.parametrize(("limit", "changed", "clocks"), LIMITS)
def test_each_limit_of_the_clock_model_by_hand(limit, changed, clocks):
    tile = {
        "kernel": "forward",
        "d": 64,
        "BM": 64,
        "BN": 32,
        "warps": 4,
        "blocks": 2 if "spills" in changed else 9,
    }
    row = tile | {"instructions": 214 / 16, "exponentials": 1.0, "spills": 0} | changed
    speed, found = clock_model(row)
    assert found == limit
    assert speed == pytest.approx(4 * row["BM"] * row["BN"] * row["d"] / clocks * 132 * 1.755e-3)


@pytest.mark.parametrize(
    ("kernel", "products", "BM", "BN"),
    [("draft", 2, 32, 128), ("forward", 2, 32, 128), ("queries", 3, 32, 128), ("keys", 4, 128, 32)],
)
def test_the_clock_model_counts_the_products_and_streamed_rows_of_each_kernel(kernel, products, BM, BN):
    row = {"kernel": kernel, "d": 64, "BM": BM, "BN": BN, "warps": 8, "blocks": 9, "spills": 0}
    streaming = row | {"instructions": 0.1, "exponentials": 0.0}  # 128 rows of two arrays
    flop = products * 2 * 32 * 128 * 64
    speed = flop / (2 * 128 * 64 * 2 / 40) * 132 * 1.755e-3
    assert clock_model(streaming) == (pytest.approx(speed), "L2")
    issuing = streaming | {"instructions": 100.0}
    assert clock_model(issuing) == (pytest.approx(flop / (32 * 128 * 100 / 128) * 132 * 1.755e-3), "issue")


def test_compiled_columns_are_of_the_tiles_and_the_triton_that_were_timed():
    timed, compiled = load_record("tune"), load_record("tune-compiled")
    assert compiled["timed_commit"] == timed["commit"] and compiled["arch"] == timed["arch"]
    assert compiled["versions"]["triton"] == timed["versions"]["triton"]
    asked = {
        (one["kernel"], one["d"], causal, *tried["tile"])
        for one in timed["kernels"] for tried in one["tried"] for causal in (False, True) if tried["ms"]
    }  # fmt: skip
    rows = {tuple(row[name] for name in TILE): row["compiled"] for row in compiled["tiles"]}
    assert rows.keys() == asked and len(rows) == len(compiled["tiles"]) == 94


def test_compiled_columns_are_those_of_todays_kernels():
    """Tiles that the record of hot loops has too have the same machine code there."""
    rows = {
        tuple(row[name] for name in TILE): row["compiled"] for row in load_record("tune-compiled")["tiles"]
    }
    shipped = [
        row for row in load_record("hot-loops")["shipped"]
        if row["pairs"] == "band" and tuple(row[name] for name in TILE) in rows
    ]  # fmt: skip
    assert len(shipped) == 16
    for row in shipped:
        assert row["machine_code"] == rows[tuple(row[name] for name in TILE)]["machine_code"]


@pytest.mark.parametrize("name", ["roofs", "tune-compiled", 3, None])
def test_another_record_is_refused_in_one_line(name):
    with pytest.raises(ValueError, match=f"^name must be one of tiles, tune; got {name!r}$"):
        tables(name)


@pytest.mark.parametrize("lacking", ["tiles", "tune", "tune-compiled"])
def test_a_record_that_is_not_shipped_is_named(monkeypatch, lacking):
    monkeypatch.setattr(
        timed_tiles, "load_record", lambda name: None if name == lacking else load_record(name)
    )
    with pytest.raises(ValueError, match=f"^record {lacking}: no recorded run yet$"):
        tables(lacking.removesuffix("-compiled"))


def test_a_table_without_a_time_or_columns_is_refused_in_one_line(monkeypatch):
    tiles = load_record("tiles")
    del tiles["rows"][7]["ms"]
    monkeypatch.setattr(timed_tiles, "load_record", lambda name: tiles)
    with pytest.raises(ValueError, match=r"^the tile draft, 64, False, 64, 64, 4, 3 has no time, so"):
        tables("tiles")
    tiles["rows"][7] |= {"ms": 1.0}
    del tiles["rows"][7]["compiled"]
    with pytest.raises(
        ValueError, match=r"^the tile draft, 64, False, 64, 64, 4, 3 has no compiled columns, so"
    ):
        tables("tiles")


def test_half_of_the_times_of_tune_is_refused(monkeypatch):
    record = load_record("tune")
    del record["kernels"][0]["tried"][0]["ms"][1]
    monkeypatch.setattr(
        timed_tiles, "load_record", lambda name: record if name == "tune" else load_record(name)
    )
    with pytest.raises(ValueError, match=r"^the tile forward, 64, True, 128, 64, 4, 3 has no time, so"):
        tables("tune")
