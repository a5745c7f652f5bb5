"""Recorded resources of lessons/flash_attention.py: of its code as it stands, without waits and spills in the
loops, and with about as many instructions as the library's kernels.
"""

import dataclasses
from importlib import metadata

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from compiled_launches import as_reported, compiled  # noqa: E402

from iocourse.data.records import load_record, missing_metadata  # noqa: E402
from iocourse.gpu import Resources, chip_of  # noqa: E402
from tools.bench import file_to_copy as bench  # noqa: E402
from tools.bench.__main__ import SUBJECTS  # noqa: E402
from tools.bench.resources import a_score  # noqa: E402
from tools.bench.resources.compiling import Compilation, code_as_it_stands  # noqa: E402
from tools.bench.resources.compiling import launch_of as launch_of_library  # noqa: E402

RECORD = load_record(bench.NAME)
AGAIN = f"record it again: python -m tools.bench {bench.NAME} --json iocourse/data/bench/{bench.NAME}.json"
RECORDED_TRITON = pytest.mark.skipif(
    metadata.version("triton") != RECORD["versions"]["triton"], reason="the record is of another Triton"
)
# The tile of which a comment in the file states that it spills. With it the library's kernel for dK and dV
# was the fastest on an H200.
STATED = {(90, 128, "keys", 64, 128, 8, 3)}
# Compiled again here: a kernel of each pass, on the chips that take seconds.
SAMPLE = [
    Compilation(80, 64, 2, "keys", True, 64, 128, 8, 3),
    Compilation(90, 128, 2, "forward", True, 64, 64, 4, 3),
    Compilation(90, 64, 2, "queries", False, 128, 64, 8, 3),
]


def compilation(row):
    return Compilation(*(row[part] for part in Compilation._fields))


@pytest.fixture(scope="module")
def rows():
    return {compilation(row): row for row in RECORD["rows"]}


def test_the_record_has_every_tile_of_the_file(rows):
    assert [*rows] == [*bench.asked_for(bench.ARCHES, bench.HEADS)], AGAIN
    assert not any("error" in row for row in rows.values()) and missing_metadata(RECORD) == []
    assert RECORD["versions"].keys() >= {"triton", "torch"}


def test_the_record_is_of_the_code_as_it_stands(rows):
    changed = [one for one, row in rows.items() if row["code"] != code_as_it_stands(one, bench.launch_of)]
    assert changed == [], AGAIN


def test_no_loop_waits_for_each_product_and_only_stated_ones_spill(rows):
    loops = {one: Resources.of(row).hot_loop for one, row in rows.items()}
    assert [one for one, loop in loops.items() if loop.serialised] == []
    assert all(row["shared_bytes"] <= chip_of(one.arch).shared_bytes for one, row in rows.items())
    assert all(loop.wgmma > 0 == loop.mma for one, loop in loops.items() if one.arch == 90)
    spilling = {one for one, loop in loops.items() if loop.spills}
    assert {(one.arch, one.d, one.kernel, *one[5:9]) for one in spilling} == STATED
    assert max(loops[one].spills / loops[one].instructions for one in spilling) < 0.03


@RECORDED_TRITON
def test_the_compiler_returns_what_is_recorded(rows):
    said = compiled([(one.arch, bench.launch_of(one)) for one in SAMPLE])
    for one, found in zip(SAMPLE, said, strict=True):
        assert dataclasses.replace(found, seconds=0.0) == Resources.of(rows[one])


def test_a_loop_has_at_most_a_tenth_more_instructions_than_the_librarys(rows):
    """With the same tile and options, where the library has chosen this tile and it is recorded."""
    chosen = {(80, 64, "forward", 128, 64, 4, 3)} | {
        (90, d, kernel, *tile)
        for d in (64, 128)
        for kernel, tile in (
            ("forward", (64, 64, 4, 3)), ("queries", (128, 64, 8, 3)), ("keys", (64, 128, 8, 3)),
        )
        if (d, kernel) != (64, "keys")
    }  # fmt: skip
    asked = [one for one in rows if (one.arch, one.d, one.kernel, *one[5:9]) in chosen]
    theirs = as_reported([(one.arch, launch_of_library(one)) for one in asked])
    assert len(asked) == 2 * len(chosen)
    for one, library in zip(asked, theirs, strict=True):
        assert rows[one]["hot_loop"]["instructions"] <= 1.1 * library.hot_loop.instructions, one


def test_the_table_has_a_line_for_each_kernel(rows):
    assert SUBJECTS[bench.NAME] is bench
    lines = bench.show(RECORD).splitlines()
    assert len(lines) == len(rows) + 2 and lines[-1].startswith(f"{len(rows)} kernels compiled with ")
    (one,) = [line for line in lines if "sm_90 d=128 forward causal" in line and "64×64×4×3" in line]
    row = rows[SAMPLE[1]]
    assert one.split()[-6:] == [
        f"{a_score(row):.2f}", *(str(row["hot_loop"][kind]) for kind in bench.COUNTED)
    ]  # fmt: skip
    broken = bench.show(RECORD | {"rows": [RECORD["rows"][0] | {"error": "made up"}]})
    assert "made up" in broken
