"""Recorded resources of the shipped kernels on each chip, each row with a fingerprint of its code."""

import dataclasses
import importlib
import io
import itertools
import json
import select
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from compiled_launches import as_reported, compiled  # noqa: E402
from long_runs import many  # noqa: E402
from small_kernels import double_kernel, product_kernel, uneven_kernel  # noqa: E402
from triton.tools.tensor_descriptor import TensorDescriptor  # noqa: E402

from iocourse.data.records import NAMES, kernel_row, kernels_code, load_record  # noqa: E402
from iocourse.discovery import loaded  # noqa: E402
from iocourse.gpu import CHIPS, CompilationFailed, Resources, chip_of, compilation, resources  # noqa: E402
from iocourse.gpu.compilation import job, reports  # noqa: E402
from iocourse.gpu.compile_worker import DIGITS  # noqa: E402
from iocourse.kernels.host.choices import (  # noqa: E402
    PASSES,
    SLICED,
    Case,
    TileConfig,
    choice,
    decode_tile,
    sliced_tile,
    tile,
)
from iocourse.kernels.host.launches import row_products_tile  # noqa: E402
from iocourse.kernels.host.passes import OF_PASS  # noqa: E402
from iocourse.kernels.host.resources import KERNELS, WHOLE, check_tile, launches, resources_of  # noqa: E402
from tools.bench import hot_loops  # noqa: E402
from tools.bench import resources as bench  # noqa: E402
from tools.bench.resources.compiling import code_as_it_stands, launch_of  # noqa: E402
from tools.bench.resources.whole_rows import fits  # noqa: E402

ROOT = Path(__file__).parents[2]
PINNED = dict(
    line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
)
IS_PINNED = metadata.version("triton") == PINNED["triton"]
PRODUCTS = [name for name in KERNELS if name not in ("row_products", "decode_merge")]  # of matrices
WHOLE_PRODUCTS = [name for name in PRODUCTS if name in WHOLE]


# The shipped configuration at d = 128 in 16 bits, as the code stands.


@pytest.fixture(scope="session")
def as_it_stands():
    """(arch, kernel, causal) -> Resources, of sm_80 and sm_90."""
    made = {
        (arch, name, causal): launch
        for arch in (80, 90)
        for causal in (False, True)
        for name, launch in launches(arch, 128, torch.bfloat16, causal=causal).items()
        if name in WHOLE
    }
    asked = [(arch, launch) for (arch, *_), launch in made.items()]
    return dict(zip(made, as_reported(asked), strict=True))


@pytest.mark.parametrize("causal", [False, True], ids=["plain", "causal"])
@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("arch", [80, 90])
def test_shipped_kernels_fit(as_it_stands, arch, name, causal):
    got = as_it_stands[arch, name, causal]
    assert got.shared_bytes <= chip_of(arch).shared_bytes
    assert got.programs_at_once >= 1
    if IS_PINNED:
        assert got.fits, str(got)
    elif not got.fits:
        pytest.skip(f"triton {metadata.version('triton')}, not the pinned {PINNED['triton']}: {got}")


@pytest.mark.parametrize("causal", [False, True], ids=["plain", "causal"])
@pytest.mark.parametrize("name", WHOLE_PRODUCTS)
@pytest.mark.parametrize("arch", [80, 90])
def test_shipped_kernels_use_what_the_chip_has(as_it_stands, arch, name, causal):
    got = as_it_stands[arch, name, causal]
    assert got.tensor_core > 0
    assert got.async_copies > 0


@pytest.mark.parametrize("causal", [False, True], ids=["plain", "causal"])
def test_the_fused_pass_reduces_in_bulk_where_there_is_an_engine_for_it(as_it_stands, causal):
    assert as_it_stands[90, "fused", causal].bulk_reductions == 1 + causal  # one in each loop
    assert as_it_stands[80, "fused", causal].bulk_reductions == 0
    assert as_it_stands[90, "keys", causal].bulk_reductions == 0


def test_a_mask_is_a_loop_of_its_own(as_it_stands):
    """Plain kernels have one loop; causal ones another, so each product stands there twice."""
    for arch, name in itertools.product((80, 90), WHOLE_PRODUCTS):
        assert as_it_stands[arch, name, True].tensor_core == 2 * as_it_stands[arch, name, False].tensor_core


# Every row of the tables, as recorded.


@pytest.fixture(scope="module")
def rows():
    """`key_of` a row -> what `python -m tools.bench resources` recorded."""
    record = load_record("resources")
    assert record is not None, "no record: run `python -m tools.bench resources`"
    assert record["versions"]["triton"] == PINNED["triton"]
    recorded = [*record["shipped"], *record["variants"]]
    found = {key_of(row): row for row in recorded}
    assert len(found) == len(recorded)
    return found


def key_of(row):
    """Return (arch, d, bytes, kernel, causal, pairs, query heads per key head) of a row of the record. The
    kernels of decoding are compiled for one number of heads, which is 1 here.
    """
    names = ("arch", "d", "bytes", "kernel", "causal", "pairs")
    group = 1 if row["kernel"].startswith("decode") else row.get("group", 1)
    return (*(row[name] for name in names), group)


def shipped_tiles():
    """The same keys -> BM, BN, BD, warps, stages, as chosen."""
    shipped = {}
    for arch, d, width in SIZES:
        for causal in (False, True):
            case = Case(arch, width, d, "causal" if causal else "full")
            for name in WHOLE:
                BM, BN, *rest = row_products_tile(d) if name == "row_products" else tile(name, case)
                shipped[arch, d, width, name, causal, "band", 1] = (BM, BN, None, *rest)
            if arch in bench.GROUPED_ARCHES and d in bench.GROUPED_HEADS and width == 2:
                for name in OF_TILES:
                    BM, BN, *rest = tile(name, case._replace(group=bench.GROUPED))
                    shipped[arch, d, width, name, causal, "band", bench.GROUPED] = (BM, BN, None, *rest)
                for name, group in itertools.product(OF_TILES, (1, bench.GROUPED)):
                    BM, BN, *rest = tile(name, Case(arch, width, d, "window", group))
                    shipped[arch, d, width, name, False, "window", group] = (BM, BN, None, *rest)
        if width == 2 and d <= 128:
            for name, (pairs, mask) in itertools.product(
                OF_TILES, (("block_mask", "blocks"), ("packed", "packed"))
            ):
                BM, BN, *rest = tile(name, Case(arch, width, d, mask))
                shipped[arch, d, width, name, True, pairs, 1] = (BM, BN, None, *rest)
        if d <= 256:
            BM, BN, warps, stages = decode_tile(Case(arch, width, d, group=8))
            for name in ("decode_parts", "decode_merge"):
                shipped[arch, d, width, name, False, "band", 1] = (BM, BN, None, warps, stages)
    for arch, width, name in itertools.product(CHIPS, (2, 4), SLICED):
        # BM, BN, BD, warps, stages
        shipped[arch, 512, width, name, True, "band", 1] = tuple(sliced_tile(name, Case(arch, width, 512)))
    return shipped


SIZES = [*itertools.product(CHIPS, (64, 128, 256, 512), (2, 4))]  # arch, d, bytes
OF_TILES = [name for name in WHOLE if name != "row_products"]


ANEW = {
    "resources": "python -m tools.bench resources --json iocourse/data/bench/resources.json",
    "hot-loops": (
        "PYTHONPATH=FOLDER python -m tools.bench hot-loops --json iocourse/data/bench/hot-loops.json"
    ),
}


def of_other_code(record, asked):
    """Return the recorded rows that do not belong to the current code, each as (part, compilation)."""
    return [
        (part, one)
        for part in asked
        for one, row in zip(asked[part], record[part], strict=True)
        if row["code"] != code_as_it_stands(one)
    ]


@pytest.mark.parametrize("subject", [bench, hot_loops], ids=lambda subject: subject.NAME)
def test_every_row_is_of_the_code_as_it_stands(subject):
    """Held without compiling, by what the compiler would be given."""
    other = of_other_code(load_record(subject.NAME), bench.asked_for(*subject.WHOLE_RECORD))
    assert other == [], f"of other code: {len(other)} rows. Record them anew: {ANEW[subject.NAME]}"


def test_a_row_of_other_code_is_found():
    """A tile that is not the recorded one."""
    (one,) = (asked for asked in bench.every(90, (64,), (2,)) if asked.kernel == "decode_parts")
    record = {"shipped": [{"code": code_as_it_stands(one)}]}
    assert of_other_code(record, {"shipped": [one]}) == []
    other = one._replace(kernel="decode_merge")
    assert of_other_code(record, {"shipped": [other]}) == [("shipped", other)]


def test_fingerprints_at_hand_are_those_of_unchanged_code(monkeypatch):
    """Of two kernels with other code nothing is known, and of a GPU that no table has neither."""
    recorded = [row for row in load_record("resources")["shipped"] if row["arch"] == 90]
    codes = {kernel_row(row): row["code"] for row in recorded}
    now = {name: "other" if " keys " in name else code for name, code in codes.items()}
    monkeypatch.setattr(bench, "code_as_it_stands", lambda one: now[kernel_row(one._asdict())])
    at_hand = bench.kernels_at_hand.__wrapped__
    for version, rows in at_hand(90).items():
        assert rows.keys() == codes.keys()
        known = kernels_code()[version]
        assert rows == {name: "" if now[name] == "other" else known.get(name, "") for name in codes}
    assert at_hand(50) == {}


def test_machine_code_is_recorded_where_times_are():
    """A record of times is compared with it; elsewhere it may be missing until the next compilation."""
    timed = {
        record["device"]["arch"] for name in NAMES if "kernels_code" in (record := load_record(name) or {})
    }
    known = [{name: digits for name, digits in rows.items()} for rows in kernels_code().values()]
    for arch, rows in itertools.product(timed, known):
        assert [name for name, digits in rows.items() if f"sm_{arch} " in name and not digits] == []
    every = [digits for rows in known for digits in rows.values() if digits]
    assert {len(digits) for digits in every} == {DIGITS} and len({*every}) > len(every) / 2


# One with bulk reductions and wgmma, and one with mma.sync; tests/bench/test_hot_loops.py compiles two more.
# With IOCOURSE_LONG=1 every row of every chip.
SAMPLE = [("fused", False), ("decode_parts", False)]


@pytest.mark.skipif(not IS_PINNED, reason=f"the record is of triton {PINNED['triton']}")
@pytest.mark.timeout(many(300, 4 * 3600))
def test_the_compiler_says_what_is_recorded(rows):
    sample = [one for one in bench.every(90, (64,), (2,)) if (one.kernel, one.causal) in SAMPLE]
    asked = many(sample, [one for arch in CHIPS for one in bench.every(arch, bench.HEADS, bench.BYTES)])
    said = compiled([(one.arch, launch_of(one)) for one in asked])
    record = [Resources.of(rows[key_of(one._asdict())]) for one in asked]
    for found, row in zip(said, record, strict=True):
        code = found.machine_code if row.machine_code else ""  # not yet recorded for every chip
        assert dataclasses.replace(found, seconds=0.0, machine_code=code) == row


def test_every_row_of_the_tables_is_recorded_with_its_tiles(rows):
    parts = ("BM", "BN", "BD", "warps", "stages")
    assert {key: tuple(row[part] for part in parts) for key, row in rows.items()} == shipped_tiles()


def test_every_row_compiles(rows):
    assert [key for key, row in rows.items() if "error" in row] == []


def spilled(row):
    """In a step of the hot loop, or at all where no loop multiplies."""
    return row["hot_loop"]["spills"] if row["hot_loop"] else row["spill_bytes"]


def too_large(key, row):
    return row["shared_bytes"] > CHIPS[key[0]].shared_bytes


def mask_of(causal, pairs):
    forms = {"block_mask": "blocks", "packed": "packed", "window": "window"}
    return forms.get(pairs, "causal" if causal else "full")


def stated(key):
    """Return the spills that the choice of this tile states."""
    arch, d, width, kernel, causal, pairs, group = key
    if kernel not in OF_TILES:
        return 0
    return choice(kernel, Case(arch, width, d, mask_of(causal, pairs), group)).evidence.get("spills", 0)


def avoided(key):
    """Return True if `attention` never launches this row by default, with any number of queries and heads:
    complete rows, where each pass with this kernel has another choice.
    """
    arch, d, width, kernel, causal, pairs, group = key
    mask = mask_of(causal, pairs)
    sizes = itertools.product((0, 2**14, 2**17, 2**20), (0, 2**26, 2**30))
    cases = [Case(arch, width, d, mask, group, rows, 0, matrices) for rows, matrices in sizes]
    chosen = {choice(name, case).value for name in PASSES for case in cases}
    launched = {one for value in chosen for one in OF_PASS.get(value, ())}
    return kernel in {one for kernels in OF_PASS.values() for one in kernels} - launched


def test_what_spills_or_does_not_fit_is_avoided(rows):
    left = {key: row for key, row in rows.items() if not avoided(key)}
    # It reads every row once, without a loop; d = 512 twice, and two numbers per thread.
    once = {key for key, row in left.items() if key[3] == "row_products" and 0 < row["spill_bytes"] <= 8}
    assert {(arch, d) for arch, d, *_ in once} == {(75, 512), (100, 512)}
    assert [
        key
        for key, row in left.items()
        if (spilled(row) > stated(key) or too_large(key, row)) and key not in once
    ] == []


def test_slices_fit_every_chip(rows):
    """The fallback of `attention` always fits: no spills, and within shared memory."""
    sliced = {key: row for key, row in rows.items() if row["BD"] is not None}
    assert len(sliced) == len(CHIPS) * 2 * len(SLICED)
    assert all(spilled(row) == 0 and not too_large(key, row) for key, row in sliced.items())


@pytest.mark.parametrize("value", OF_PASS)
def test_whole_rows_fit_where_the_record_has_it_so(rows, value):
    """`fits` against the rows themselves, for all kernels of the pass, with the diagonal and without."""
    for arch, d, width in SIZES:
        needed = [
            rows[arch, d, width, name, causal, "band", 1]
            for name in OF_PASS[value]
            for causal in (False, True)
        ]
        good = all(spilled(row) == 0 and not too_large((arch,), row) for row in needed)
        assert fits(value, arch, d, width) == good


def test_tensor_cores_wherever_there_are_any(rows):
    """Two-byte products on sm_80 and later; float32 is computed exactly, on ordinary cores."""
    for (arch, _, width, name, *_), row in rows.items():
        there = width == 2 and name in PRODUCTS and CHIPS[arch].tensor_cores_in_triton
        assert (row["tensor_core"] > 0) == there


# `resources`, for a user's kernels.


ARGUMENTS = torch.zeros(64), torch.zeros(64), 64, 64


def test_a_kernel_of_a_module():
    got = resources(double_kernel, 90, *ARGUMENTS, BLOCK=64, num_warps=2)
    assert got.arch == 90 and got.warps == 2 and got.fits
    assert 0 < got.registers < 64 and got.shared_bytes == got.tensor_core == 0


KERNEL = """
{decorators}@triton.jit
def {name}(x, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, 2.0, mask=None if EVEN else at < n)
"""
TUNER = '@triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 128)], key=["n"])\n'
HEURISTICS = '@triton.heuristics({"EVEN": lambda given: given["n"] % given["BLOCK"] == 0})\n'
WRAPPED = {"bare": "", "tuned": TUNER, "heuristic": HEURISTICS, "both": TUNER + HEURISTICS}


@pytest.mark.parametrize("also_on_the_path", [False, True])
def test_kernels_under_a_tuner_and_heuristics_in_a_file_outside_any_package(
    tmp_path, monkeypatch, also_on_the_path
):
    """Each is compiled as the kernel without them. Python does not find the file by the name of its module,
    or finds another one.
    """
    file, name = tmp_path / "copied" / "kernels_in_a_file.py", "kernels_in_a_file"
    file.parent.mkdir()
    kernels = (KERNEL.format(name=f"{name}_kernel", decorators=some) for name, some in WRAPPED.items())
    file.write_text("import triton\nimport triton.language as tl\n" + "".join(kernels))
    if also_on_the_path:
        (tmp_path / file.name).write_text("raise RuntimeError('the wrong file')")
        monkeypatch.syspath_prepend(tmp_path)
    module = loaded(file, name)
    x, facts = torch.zeros(64), set()
    for one in WRAPPED:
        got = resources(getattr(module, f"{one}_kernel"), 90, x, 64, EVEN=True, BLOCK=64)
        facts.add((got.registers, got.shared_bytes, got.warps))
    assert len(facts) == 1 and min(facts) > (0,)


def test_a_kernel_of_which_a_program_needs_more_than_there_is():
    """A product of 64 × 64 by two warps needs 64 registers per thread for each operand and for the result."""
    tile = torch.zeros(64, 64)
    got = resources(product_kernel, 75, tile, tile, tile, SIZE=64, num_warps=2)
    assert got.spill_bytes > 0 and not got.fits
    assert resources(product_kernel, 75, tile, tile, tile, SIZE=32, num_warps=4).fits


@pytest.mark.parametrize("arch", [91, "90", True, 70])
def test_an_unknown_architecture(arch):
    with pytest.raises(ValueError, match=r"arch must be one of 75, 80, 89, 90, 100; got "):
        resources(double_kernel, arch, *ARGUMENTS, BLOCK=64)


def test_a_missing_argument():
    with pytest.raises(ValueError, match=r"^double_kernel is missing the arguments rows, BLOCK$"):
        resources(double_kernel, 90, *ARGUMENTS[:3])


def test_an_option_no_launch_has():
    with pytest.raises(
        ValueError, match=r"^num_wraps: double_kernel has no such parameter. Use its own .* num_warps"
    ):
        resources(double_kernel, 90, *ARGUMENTS, BLOCK=64, num_wraps=4)


def test_an_argument_too_many():
    with pytest.raises(ValueError, match=r"^double_kernel takes 5 arguments, got 6$"):
        resources(double_kernel, 90, *ARGUMENTS, 64, 1)


@pytest.mark.parametrize("kernel", [len, 3, lambda x: x])
def test_no_kernel(kernel):
    with pytest.raises(TypeError, match=r"^kernel must be a function under @triton.jit, got a \w+$"):
        resources(kernel, 90)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d": 0}, "d must be an integer from 1 to 1024, got 0"),
        ({"d": 1025}, "d must be an integer from 1 to 1024, got 1025"),
        ({"dtype": torch.float64}, "dtype must be one of float16, bfloat16, float32; got torch.float64"),
        ({"kernel": "back"}, f"kernel must be one of {', '.join(KERNELS)}; got 'back'"),
        ({"pairs": "all"}, "pairs must be one of band, block_mask, packed; got 'all'"),
        ({"group": 0}, "group must be at least 1, got 0"),
        (
            {"kernel": "scores", "d": 64, "pairs": "packed"},
            "scores is not launched with d = 64 and pairs = 'packed'. Use one of: forward, .*, keys",
        ),
        (
            {"kernel": "forward", "d": 600},
            "forward is not launched with d = 600 and pairs = 'band'. Use one of: row_products, sliced_f.*",
        ),
        ({"arch": 70}, "arch must be one of 75, 80, 89, 90, 100; got 70"),
    ],
)
def test_a_shipped_kernel_that_there_is_not(options, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        resources_of(**({"kernel": "forward", "arch": 90} | options))


@pytest.fixture
def no_compiler(monkeypatch):
    """A compiler must not be started."""
    monkeypatch.setattr(compilation, "_idle", {})
    monkeypatch.setattr(compilation, "_Compiler", lambda surroundings: pytest.fail("a compiler was started"))


@pytest.mark.parametrize(
    ("arguments", "constants", "message"),
    [
        (("x",), {}, "source must be or contain tensors, numbers, descriptors or None, got a str"),
        (((1, "x"),), {}, "source must be or contain tensors, numbers, descriptors or None, got a str"),
        (
            (torch.zeros(4, dtype=torch.complex64),),
            {},
            "source must be a tensor of float16, .*, got complex64",
        ),
        (
            (),
            {"BLOCK": torch.float16},
            "BLOCK is compiled in, so it must be a .*, got torch.float16",
        ),
        ((), {"num_warps": 3}, "num_warps must be 1, 2, 4, 8, 16 or 32, got 3"),
        ((), {"num_warps": 64}, "num_warps must be .*, got 64"),
        ((), {"num_warps": "4"}, "num_warps must be .*, got '4'"),
        ((), {"num_warps": True}, "num_warps must be .*, got True"),
        ((), {"num_stages": 0}, "num_stages must be 1 to 16, got 0"),
        ((), {"num_stages": 2.0}, "num_stages must be 1 to 16, got 2.0"),
        ((), {"num_ctas": 3}, "num_ctas must be 1, 2, 4, 8 or 16, got 3"),
        ((), {"maxnreg": 256}, "maxnreg must be 1 to 255, got 256"),
        ((), {"enable_fp_fusion": 1}, "enable_fp_fusion must be True or False, got 1"),
    ],
)
def test_what_cannot_compile_is_refused_before_a_compiler_starts(no_compiler, arguments, constants, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}$"):
        resources(double_kernel, 90, *arguments, *ARGUMENTS[len(arguments) :], **{"BLOCK": 64} | constants)


@pytest.mark.parametrize(
    ("kernel", "tile", "message"),
    [
        ("forward", (48, 64), r"forward: BM must be 16, 32, 64, 128, … \(for tl.dot\), got 48"),
        ("forward", (64, 64.0), "BN must be an integer of at least 1, .*"),
        ("forward", (64, 64, 3), "num_warps must be 1, 2, 4, 8, 16 or 32, got 3"),
        ("forward", (64, 64, 4, 17), "num_stages must be 1 to 16, got 17"),
        (
            "forward",
            (1024, 1024, 4, 1),
            r"tile \(1024, 1024, 4, 1\) is too large: 1024 × 1024 scores take 8192 registers per thread, but "
            "sm_90 has 255. Use smaller sizes, or more than 4 warps",
        ),
        (
            "scores",
            (16, 2048, 128, 4),
            r"tile \(16, 2048, 128, 4, 1\) is too large: 2048 rows of 128 numbers take 512 KB of shared "
            "memory, but sm_90 has 227 KB. Use smaller sizes",
        ),
    ],
)
def test_a_tile_that_no_chip_can_hold_is_refused_before_a_compiler_starts(no_compiler, kernel, tile, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}$"):
        resources_of(kernel, 90, tile=tile)


def test_no_tile_that_was_recorded_is_refused():
    """Tiles that spill or need too much shared memory are compiled too, because the report shows that."""
    tried = 0
    for row in load_record("resources")["forward_by_tile"]:
        tile = TileConfig(*(row[part] for part in TileConfig._fields))
        check_tile(tile, row["arch"], row["d"], row["bytes"])
        tried += row["shared_bytes"] > CHIPS[row["arch"]].shared_bytes
    assert tried > 10


def test_a_kernel_that_does_not_compile():
    with pytest.raises(CompilationFailed, match="power of 2"):
        resources(uneven_kernel, 90, torch.zeros(64), BLOCK=48)


def test_one_failure_loses_no_other_report(tmp_path):
    uneven = job(uneven_kernel, 90, (torch.zeros(64),), {"BLOCK": 48}, tmp_path)
    even = job(uneven_kernel, 90, (torch.zeros(64),), {"BLOCK": 64}, tmp_path)
    first, second, third = reports([even, uneven, even])
    assert first.registers == third.registers > 0 and isinstance(second, CompilationFailed)


def test_a_job_says_what_a_launch_would(tmp_path):
    """Types, alignment, and which values are compiled in."""
    aligned = torch.zeros(64, dtype=torch.bfloat16)
    off = torch.zeros(65, dtype=torch.float16)[1:]
    one = job(double_kernel, 80, (aligned, off, 64, 48), {"BLOCK": 64, "num_warps": 8}, tmp_path)
    assert one["signature"] == {
        "source": "*bf16", "target": "*fp16", "n": "i32", "rows": "i32", "BLOCK": "constexpr",
    }  # fmt: skip
    assert one["aligned"] == [[0], [3]]  # n is 64, and not specialized
    assert one["constants"] == [([4], 64)] and one["options"] == {"num_warps": 8}
    assert (one["name"], one["arch"]) == ("double_kernel", 80) and "file" not in one

    table = TensorDescriptor(torch.zeros(8, 16), [8, 16], [16, 1], [4, 16])
    other = job(double_kernel, 80, (table, None, 2**40, 1), {"BLOCK": 64}, tmp_path)
    assert other["signature"] == {
        "source": "tensordesc<fp32[4, 16]>", "target": "constexpr", "n": "i64", "rows": "constexpr",
        "BLOCK": "constexpr",
    }  # fmt: skip
    assert other["constants"] == [([1], None), ([3], 1), ([4], 64)]

    strided = job(double_kernel, 80, (aligned, (32, 5, 1), 1, 0.5), {"BLOCK": 64}, tmp_path)
    assert strided["signature"]["target"] == ["i32", "i32", "constexpr"]
    assert strided["signature"]["n"] == "i32"  # 1, and not specialized
    assert strided["signature"]["rows"] == "fp32"
    assert strided["aligned"] == [[0], [1, 0]]


CELL = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import torch, triton
import triton.language as L
from iocourse.kernels.jit_helpers import inside
from iocourse.gpu import CompilationFailed, resources

tl = L

HALF = tl.constexpr(0.5)
PLAIN = 0.5

@triton.jit
def halved(x):
    return x * HALF + L.zeros_like(x)

@triton.jit
def half_kernel(source, n, SIZE: tl.constexpr):
    rows = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    there = inside(0, n, n, SIZE, SIZE)
    tl.store(source + rows, halved(tl.load(source + rows, mask=there)), mask=there)

@triton.jit
def plain_kernel(source, SIZE: tl.constexpr):
    tl.store(source + tl.arange(0, SIZE), PLAIN)

x = torch.ones(16, 16)
half_kernel[(1,)](x, 16, SIZE=16)
assert (x == 0.5).all()
got = resources(half_kernel, 90, x, 16, SIZE=16)
print(got.registers > 0, got.spill_bytes)
plain_kernel[(1,)](x, SIZE=16)
try:
    resources(plain_kernel, 90, x, SIZE=16)
except CompilationFailed as error:
    print("PLAIN" in str(error))
"""
IN_A_CELL = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell({cell!r}).raise_error()
"""


@pytest.mark.parametrize("where", ["script", "notebook"])
def test_a_kernel_of_a_script_or_a_notebooks_cell(where, tmp_path):
    """A kernel with a helper, a constant and a kernel of the library: interpreted there, compiled
    for the report.

    The compiler does not accept a plain Python number as a constant, but the interpreter does; the report
    has the error.
    """
    if where == "notebook":
        pytest.importorskip("IPython")
    script = tmp_path / "script.py"
    script.write_text(CELL if where == "script" else IN_A_CELL.format(cell=CELL))
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=280, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["True 0", "True"], done.stdout


# ---------------------------------------------------------------------- one compiler for all calls
def compiler_of_a_report():
    """The process that has made a report, and waits for the next."""
    before = set(compilation._idle.values())
    assert resources(uneven_kernel, 80, torch.zeros(64), BLOCK=64).registers > 0
    (found,) = set(compilation._idle.values()) - before or before
    return found


def test_a_compiler_is_kept_and_one_that_ended_or_was_started_otherwise_is_not_asked(monkeypatch):
    monkeypatch.setattr(compilation, "_idle", {})
    first = compiler_of_a_report()
    assert compiler_of_a_report() is first
    first.kill()
    first.wait()
    second = compiler_of_a_report()
    assert second.pid != first.pid
    monkeypatch.setenv("TRITON_KERNEL_DUMP", "0")
    assert compiler_of_a_report() is not second
    compilation._end_all()
    assert second.poll() == 0 and not compilation._idle


def test_a_compiler_that_was_not_heard_to_the_end_is_not_kept(monkeypatch):
    monkeypatch.setattr(compilation, "_idle", {})
    ended = []
    compiler = SimpleNamespace(poll=lambda: None)
    monkeypatch.setattr(compilation, "_compiler", lambda surroundings: compiler)
    monkeypatch.setattr(compilation, "_report", lambda process, one: {"error": "none"})
    monkeypatch.setattr(compilation, "_end", ended.append)
    answers = reports([{"arch": 80}, {"arch": 80}])
    next(answers)
    answers.close()
    assert ended == [compiler] and not compilation._idle


# ---------------------------------------------------------- what a compiler prints, and how long it takes
NOISY = """
import os, subprocess, sys
os.environ["TRITON_INTERPRET"] = "1"
print("printed at import", "ü")
print("to stderr", file=sys.stderr)
subprocess.run(["echo", "by a tool"])
assert sys.stdin.read() == ""
import iocourse.kernels
import triton
import triton.language as tl

@triton.jit
def noisy_kernel(source, SIZE: tl.constexpr):
    tl.static_print("SIZE is", SIZE)
    tl.store(source + tl.arange(0, SIZE), 1.0)
"""


@pytest.fixture
def module_of(tmp_path, monkeypatch):
    """Import a module with this source, which the compiler process can import too, with an empty cache."""
    monkeypatch.setattr(compilation, "_idle", {})
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.syspath_prepend(tmp_path)

    def imported(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.setattr(sys, "stdin", io.StringIO())
        return importlib.import_module(name)

    yield imported
    compilation._end_all()


def test_what_is_printed_is_passed_on_and_interpreting_is_not(module_of, capfd):
    """A kernel, its module and a program that it starts all print, and the module sets TRITON_INTERPRET."""
    kernel = module_of("noisy_module", NOISY).noisy_kernel
    capfd.readouterr()
    got = resources(kernel, 80, torch.zeros(16), SIZE=16)
    assert got.registers > 0
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "Printed while noisy_kernel(SIZE=16, enable_fp_fusion=True) for sm_80 was compiled:",
        "printed at import ü",
        "to stderr",
        "by a tool",
        "SIZE is 16",
    ]
    assert resources(kernel, 80, torch.zeros(16), SIZE=16).registers == got.registers  # from Triton's cache
    assert capfd.readouterr() == ("", "")


ENDING = """
import os
import triton
import triton.language as tl

if os.environ["TRITON_INTERPRET"] == "0":
    print("last words")
    os._exit(3)

@triton.jit
def ending_kernel(source, SIZE: tl.constexpr):
    tl.store(source + tl.arange(0, SIZE), 1.0)
"""


def test_a_compiler_that_ends_loses_no_other_report(module_of, capfd, tmp_path):
    kernel = module_of("ending_module", ENDING).ending_kernel
    asked = [job(one, 80, (torch.zeros(16),), {size: 16}, tmp_path)
             for one, size in ((kernel, "SIZE"), (uneven_kernel, "BLOCK"))]  # fmt: skip
    failed, made = reports(asked)
    assert str(failed) == "ending_kernel(SIZE=16) for sm_80: the compiler ended with exit code 3"
    assert made.registers > 0 and "last words" in capfd.readouterr().err


ENDLESS = """
import os, subprocess
import triton
import triton.language as tl

if os.environ["TRITON_INTERPRET"] == "0":
    tool = subprocess.Popen(["sleep", "100"])
    open(os.environ["TRITON_PIDS"], "w").write(f"{os.getpid()} {tool.pid}")
    tool.wait()

@triton.jit
def endless_kernel(source, SIZE: tl.constexpr):
    tl.store(source + tl.arange(0, SIZE), 1.0)
"""


def is_running(pid):
    """Return True if the process runs; one that has ended but was not yet reaped does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def have_ended(pids):
    """Return True if there are processes and all of them end within ten seconds."""
    deadline = time.monotonic() + 10
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return len(pids) == 2 and not any(map(is_running, pids))


def test_a_compiler_whose_caller_is_gone_ends_with_its_tools(module_of, monkeypatch, tmp_path):
    pids = tmp_path / "pids"
    monkeypatch.setenv("TRITON_PIDS", str(pids))
    kernel = module_of("endless_module", ENDLESS).endless_kernel
    compiler = compilation._compiler(compilation._surroundings())
    compiler.stdin.write(json.dumps(job(kernel, 80, (torch.zeros(16),), {"SIZE": 16}, tmp_path)) + "\n")
    compiler.stdin.flush()
    while not (pids.exists() and len(pids.read_text().split()) == 2):
        assert compiler.poll() is None
        time.sleep(0.05)
    compiler.stdin.close()  # as the system does for a process that is killed
    assert have_ended([int(pid) for pid in pids.read_text().split()])
    compilation._end(compiler)


@pytest.mark.parametrize("how", ["limit", "interrupt"])
def test_a_compiler_that_takes_too_long_is_ended_with_its_tools(module_of, capfd, monkeypatch, tmp_path, how):
    pids = tmp_path / "pids"
    monkeypatch.setenv("TRITON_PIDS", str(pids))
    kernel = module_of("endless_module", ENDLESS).endless_kernel
    wait = select.select
    limits = []

    def until_started(files, *rest):
        limits.append(rest[-1])
        while not (pids.exists() and len(pids.read_text().split()) == 2):
            assert not wait(files, [], [], 0.05)[0], "the compiler answered"
        if how == "interrupt":
            raise KeyboardInterrupt
        return [], [], []

    monkeypatch.setattr(compilation.select, "select", until_started)
    expected = CompilationFailed if how == "limit" else KeyboardInterrupt
    with pytest.raises(expected) as raised:
        resources(kernel, 80, torch.zeros(16), SIZE=16)
    assert have_ended([int(pid) for pid in pids.read_text().split()])
    assert not compilation._idle
    if how == "limit":
        what = "endless_kernel(SIZE=16, enable_fp_fusion=True) for sm_80: not compiled"
        assert limits == [60, 240]
        assert f"{what} after 60 s; the limit is 300 s" in capfd.readouterr().err
        assert str(raised.value) == (
            f"{what} within 300 s, so the compiler was stopped. Use a smaller tile, more warps or fewer "
            "stages"
        )
