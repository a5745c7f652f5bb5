"""Choices of kernels and tiles: every case has one row, each row has its reason, and recorded times agree."""

import copy
import json
import math

import pytest
import skip_without_interpreter  # noqa: F401
import torch

from iocourse.data.records import load_record
from iocourse.gpu import CHIPS
from iocourse.kernels import SlicedTileConfig, TileConfig, choices_of, using
from iocourse.kernels.host.choices import (
    MASKS,
    NAMES,
    PASSES,
    SLICED,
    WHOLE,
    Case,
    choice,
    decode_tile,
    padded,
    replaced,
    sliced_tile,
    tile,
)
from tools.bench import choices as file

LINES = json.loads(file.FILE.read_text(encoding="utf-8"))


# The file, and files with one fault.


def test_the_shipped_file_has_no_fault():
    assert file.faults() == []


def test_the_text_of_the_file_is_one_line_per_row():
    """So that a changed row is one changed line."""
    assert file.file_text(LINES["about"], LINES["rows"]) == file.FILE.read_text(encoding="utf-8")


def row_of(name, **limits):
    """Return the row of a copied file that chooses a name alone, with these limits and evidence."""
    rows = copy.deepcopy(LINES["rows"])
    (row,) = (
        row
        for row in rows
        if [*row["choose"]] == [name]
        and all({**row, **row.get("evidence", {})}.get(part) == limit for part, limit in limits.items())
    )
    return rows, row


def faults_of(*rows):
    """Return the faults of a file of these rows. Gaps are looked for only if no row has a fault."""
    return file.faults(json.dumps({"about": "", "rows": rows}))


def the_fault(*rows):
    (line,) = faults_of(*rows)
    return line


SLOW = {"arch": [75], "itemsize": [4], "d": [257, 512]}  # a tile that spills 675 registers


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"why": None}, "`choose` needs a name with its value, and `why` a reason"),
        ({"why": " "}, "`choose` needs a name with its value, and `why` a reason"),
        ({"choose": {}}, "`choose` needs a name with its value, and `why` a reason"),
        ({"heads of keys": [1, 2]}, f"heads of keys is not a limit. Use one of: {', '.join(Case._fields)}"),
        ({"d": 512}, "d must be [from, to], got 512"),
        ({"arch": 75}, "arch must be a list of values, got 75"),
    ],
    ids=str,
)
def test_a_row_of_another_form(change, reason):
    _, row = row_of("queries", **SLOW)
    row |= change
    assert the_fault(row) == f"a row of choices.json is not valid ({reason}): {json.dumps(row)}"


@pytest.mark.parametrize("part", ["choose", "why"])
def test_a_row_without_a_choice_or_a_reason(part):
    _, row = row_of("queries", **SLOW)
    del row[part]
    assert the_fault(row) == f"a row of choices.json lacks '{part}': {json.dumps(row)}"


ABOUT = "choices.json, {name} = {value} (arch [75], itemsize [4], d (257, 512)): "


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"choose": {"query": [16, 16, 8, 1]}}, "there is no choice of this name"),
        ({"itemsize": [4, 8]}, "itemsize must be some of 2, 4; got [4, 8]"),
        ({"mask": ["causal", "banded"]}, "mask must be some of full, causal, window, blocks, packed; got "),
        ({"d": [512, 257]}, "d must be [from, to], two integers, or null for no end; got (512, 257)"),
        ({"d": [None, 512]}, "d must be [from, to], two integers, or null for no end; got (None, 512)"),
        ({"rows": [0]}, "rows must be [from, to], two integers, or null for no end; got (0,)"),
        *(
            ({"choose": {"queries": tile}}, "the tile must be powers of two from 16 on, then warps and ")
            for tile in (
                [48, 16, 8, 1], [8, 16, 8, 1], [16, 16, 3, 1], [16, 16, 8, 0], [16, 16, 8],
                [16, 16, 16, 8, 1], [16, 16, 8, 1.0],
            )
        ),
        ({"choose": {"backward pass": "two passes"}}, "the value must be one of fused, two-pass, "),
        ({"choose": {"packed descriptors": "yes"}}, "the value must be one of False, True; got 'yes'"),
        ({"evidence": {"compiled": True}}, "the tile spills 675 registers in an iteration, the row states 0"),
        ({"evidence": {"spills": 674}}, "the tile spills 675 registers in an iteration, the row states 674"),
        ({"evidence": {}, "why": "fast"}, "it has no evidence. Add it, or state in the reason that "),
        ({"evidence": {"time": "tune"}}, "time is not a field of the evidence. Use one of: timed, against, "),
    ],
    ids=str,
)  # fmt: skip
def test_a_row_with_another_value(change, reason):
    _, row = row_of("queries", **SLOW)
    row |= change
    (name, value), *_ = row["choose"].items()
    found = [line for line in faults_of(row) if reason in line]
    assert found and found[0].startswith(f"choices.json, {name} = {value} (arch [75], "), found


def test_a_tile_that_waits_for_each_product(monkeypatch):
    """As the record would have it, if ptxas had serialised the products of a shipped tile."""
    compiled = copy.deepcopy(file._compiled())
    for one in compiled:
        if [one[part] for part in ("arch", "bytes", "d", "kernel", "pairs")] == [
            90,
            2,
            64,
            "queries",
            "band",
        ]:
            one["hot_loop"]["waits"] = one["hot_loop"]["wgmma"]
    monkeypatch.setattr(file, "_compiled", lambda: compiled)
    found = faults_of(*LINES["rows"])
    assert found and {line.split(": ")[0] for line in found} == {
        "choices.json, queries = [128, 64, 8, 3] (arch [90], itemsize [2], d (1, 64))"
    }
    assert "the loop waits for each of its " in found[0] and ", on sm_90. Choose another" in found[0]


# Gaps and overlaps.


def test_a_case_without_a_row():
    rows, row = row_of("queries", **SLOW)
    rows.remove(row)
    case = Case(75, 4, 257)
    assert the_fault(*rows) == f"choices.json, queries: no row decides {case}. Add or extend a row"


def test_a_gap_of_one_head_size():
    rows, row = row_of("queries", **SLOW)
    row["d"] = [258, 512]
    assert "queries: no row decides Case(arch=75, itemsize=4, d=257, mask='full'" in the_fault(*rows)


@pytest.mark.parametrize("arch", [[75], None])
def test_a_case_with_two_rows(arch):
    rows, row = row_of("queries", **SLOW)
    where = {"arch": arch or [75, 80], "mask": ["window"], "group": [3, 7], "evidence": {"compiled": True}}
    rows.append(copy.deepcopy(row) | where)
    assert "queries: 2 rows decide Case(arch=75, itemsize=4, d=257, mask='window', group=3" in the_fault(
        *rows
    )
    assert "; queries = [16, 16, 8, 1] (arch [75], itemsize [4], d (257, 512))" in the_fault(*rows)


def test_two_rows_for_the_other_cases():
    """A row marked `otherwise` gives way to one without the mark, but not to another `otherwise` row."""
    rows, row = row_of("decode step", otherwise=True)
    rows.append(copy.deepcopy(row) | {"d": [3, 4]})
    line = the_fault(*rows)
    assert "decode step: 2 rows decide Case(arch=None, itemsize=2, d=3, mask='full'" in line
    rows[-1]["otherwise"] = False
    assert faults_of(*rows) == []


def test_every_name_has_rows():
    for name in NAMES:
        rows = copy.deepcopy(LINES["rows"])
        for row in rows:
            row["choose"].pop(name, None)
        assert the_fault(*(row for row in rows if row["choose"])).startswith(
            f"choices.json, {name}: no row decides "
        )


# Times.

TWO_PASS = "backward pass", {"timed": "attention", "d": [64, 64]}
KEYS = "keys", {"timed": "tune", "mask": ["full"]}


@pytest.mark.parametrize(
    ("name", "limits", "change", "fault"),
    [
        (*TWO_PASS, {"gain": [1.0, 1.5]}, "the gain is ["),
        (*TWO_PASS, {"d": [64, 80]}, "d 64 … 80 goes beyond the "),
        (*TWO_PASS, {"d": [63, 64]}, "d 63 … 64 goes beyond the "),
        (*TWO_PASS, {"group": [1, 4]}, "group 1 … 4 goes beyond "),
        (*TWO_PASS, {"group": [1, None]}, "group 1 … None goes "),
        (*TWO_PASS, {"rows": [16896, None]}, "rows from 16896 goes"),
        (*TWO_PASS, {"arch": [80]}, "has no times of two-pass and "),
        (*TWO_PASS, {"timed": "varlen"}, "the record varlen has no "),
        (*TWO_PASS, {"timed": "none"}, "timed must be one of attent"),
        (*TWO_PASS, {"against": "slices"}, "two-pass and slices for"),
        ("decode step", {"timed": "decode", "heads": [32, None]}, {"heads": [31, None]}, "heads from 31 "),
        ("packed descriptors", {"timed": "varlen", "d": [128, 128]}, {"gain": [0.9, 1.06]}, "the gain is ["),
        (*KEYS, {"gain": [1.17, 1.17]}, "the gain is [1.07, 1.07] by the r"),
        (*KEYS, {"d": [64, 128]}, "d 64 … 128 goes beyond the timed 64"),
        (*KEYS, {"against": [16, 16, 4, 1]}, "(16, 16, 4, 1) for a case"),
    ],
    ids=str,
)  # fmt: skip
def test_a_timed_row_that_its_record_does_not_support(name, limits, change, fault):
    _, row = row_of(name, **limits)
    for part, value in change.items():
        (row["evidence"] if part in ("gain", "timed", "against") else row)[part] = value
    found = [line for line in faults_of(row) if fault in line]
    assert found and found[0].startswith(f"choices.json, {name} = {row['choose'][name]} ("), faults_of(row)


def test_a_timed_row_with_larger_matrices():
    rows = [row for row in copy.deepcopy(LINES["rows"]) if "materialised" in row["choose"].values()]
    (row,) = (row for row in rows if row["d"] == [256, 256] and "timed" in row.get("evidence", ()))
    row["matrices"] = [0, 2**30]
    found = faults_of(row)
    assert found[0].startswith("choices.json, backward pass = materialised (")
    assert f": matrices to {2**30} goes beyond the timed {2**26}. Limit the row" in found[0]


RECORDED = {  # shapes at which two values were timed, and of these the ones that a row gives a reason for
    ("attention", "backward pass"): (7, 0),
    ("attention-lengths", "backward pass"): (17, 1),
    ("attention-tutorial", "backward pass"): (4, 0),
    ("small-cache", "forward pass"): (6, 0),
    ("small-cache", "backward pass"): (6, 0),
    ("varlen", "packed descriptors"): (8, 0),
    ("decode", "decode step"): (23, 0),
    **{("tune", kernel): (4, 0) for kernel in WHOLE},
}


@pytest.mark.parametrize(("record", "name"), RECORDED, ids=str)
def test_at_every_recorded_shape_the_choice_is_within_2_percent_of_the_fastest(record, name):
    shapes, reasons = file.timed(record, name), []
    for one in shapes:
        row = choice(name, one.case)
        value = tuple(row.value) if isinstance(row.value, list) else row.value
        if one.ms[value] > 1.02 * min(one.ms.values()):
            reasons.append(row.evidence["except"][one.about])
    assert (len(shapes), len(reasons)) == RECORDED[record, name] and all(reasons)


def test_a_slower_choice_needs_a_reason():
    """Two passes at d = 128, in a short causal sequence of an older record."""
    rows, row = row_of("backward pass", timed="attention", d=[128, 128])
    ((shape, reason),) = row["evidence"].pop("except").items()
    assert reason
    assert f"d (128, 128), group (1, 1), rows (262144, None)): at {shape} it took " in the_fault(*rows)


def test_a_row_cannot_choose_the_slower_way():
    """With the rows of packed descriptors turned round, each with the gain that the record then has."""
    rows = copy.deepcopy(LINES["rows"])
    (row,) = (one for one in rows if one["choose"] == {"packed descriptors": True} and one["d"] == [128, 128])
    row["choose"] = {"packed descriptors": False}
    row["evidence"] |= {"against": True, "gain": [0.94, 0.98]}
    assert {line.split(": ")[1].split(" it took ")[0][:27] for line in faults_of(*rows)} == {
        "at varlen d 128 H 16 lengths"[:27]
    }
    assert all("True took" in line.replace("ms, True", "True took") for line in faults_of(*rows))


# The look-up.

ARCHES = (None, *CHIPS)


def test_every_head_size_has_a_tile_on_every_chip():
    for arch in ARCHES:
        for itemsize in (2, 4):
            for d in range(1, 513):
                case = Case(arch, itemsize, d)
                assert all(min(tile(kernel, case)[:2]) >= 16 for kernel in WHOLE)
                assert all(min(sliced_tile(kernel, case)[:3]) >= 16 for kernel in SLICED)
                assert d > 256 or decode_tile(case).BN >= 16
    assert [padded(d) for d in (1, 16, 17, 64, 65, 255, 256)] == [16, 16, 32, 64, 128, 256, 256]


@pytest.mark.parametrize("name", PASSES)
@pytest.mark.parametrize("itemsize", [2, 4])
def test_interpreted_kernels_hold_complete_rows_to_256(name, itemsize):
    """Whatever a GPU is faster with: the lessons count the words of these."""
    whole = {PASSES[0]: "complete rows", PASSES[2]: "two-pass"}.get(name, "fused")
    for d in (1, 16, 64, 65, 200, 256):
        assert choice(name, Case(None, itemsize, d, rows=10**6)).value == whole
    for d in (257, 300, 512, 1024):
        assert choice(name, Case(None, itemsize, d, rows=10**6)).value == "slices"


@pytest.mark.parametrize("arch", [arch for arch in CHIPS if arch != 75])
@pytest.mark.parametrize("d", [64, 80, 128])
def test_common_heads_keep_complete_rows_where_there_are_tensor_cores(arch, d):
    assert [choice(name, Case(arch, 2, d)).value for name in PASSES] == [
        "complete rows", "fused", "two-pass", "fused"
    ]  # fmt: skip


@pytest.mark.parametrize("arch", CHIPS)
@pytest.mark.parametrize("name", PASSES)
def test_no_chip_holds_complete_rows_of_more_than_512(arch, name):
    for itemsize, d in ((2, 513), (4, 1024)):
        assert choice(name, Case(arch, itemsize, d)).value == "slices"


def test_a_t4_splits_d_in_every_pass_from_257_on():
    for name in PASSES:
        assert choice(name, Case(75, 2, 512)).value == choice(name, Case(75, 4, 512)).value == "slices"
    assert choice(PASSES[2], Case(75, 2, 256)).value == choice(PASSES[3], Case(75, 2, 256)).value == "slices"


def test_a_case_that_no_row_names():
    with pytest.raises(LookupError, match=r"^iocourse/data/choices\.json has no row of 'forward' for Case\("):
        choice("forward", Case(90, 2, 513))


TIMED = Case(90, 2, 64, "full", 1, rows=2**19, heads=128, matrices=2**26)
FEW = 132 * 128  # rows of Q from which each SM of an H200 has a tile


@pytest.mark.parametrize("rows", [FEW, 2**19])
@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize("d", [64, 128])
def test_two_passes_where_they_were_timed(d, mask, rows):
    assert choice("backward pass", TIMED._replace(d=d, mask=mask, rows=rows)).value == "two-pass"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"arch": None}, "interpreted"),
        ({"arch": 80}, "not timed in two passes on this chip"),
        ({"arch": 100}, "not timed in two passes on this chip"),
        ({"itemsize": 4}, "not timed in two passes in float32"),
        ({"d": 100}, "not timed in two passes at this head size"),
        ({"mask": "blocks"}, "two passes were not timed for block masks"),
        ({"mask": "packed"}, "two passes were not timed for block masks"),
        ({"mask": "window"}, "windows were not timed in two passes"),
        ({"group": 4}, "heads that share keys were not timed in two passes"),
        ({"rows": FEW - 1}, "not timed with less than one tile of 128 queries for each of 132 SMs"),
    ],
    ids=str,
)
def test_elsewhere_one_kernel_with_its_reason(other, reason):
    row = choice("backward pass", TIMED._replace(**other))
    assert row.value == "fused" and reason in row.why and "timed" not in row.evidence


LARGE = Case(90, 2, 512, "full", 1, rows=2**16, heads=16, matrices=2**26)


@pytest.mark.parametrize("rows", [FEW, 2**17])
@pytest.mark.parametrize("mask", ["full", "causal"])
@pytest.mark.parametrize("d", [256, 257, 300, 320, 512, 513, 1024])
def test_large_heads_store_the_weights(d, mask, rows):
    for matrices in (0, 2**26, 2**30):
        case = LARGE._replace(d=d, mask=mask, rows=rows, matrices=matrices)
        assert choice("backward pass", case).value == "materialised"


@pytest.mark.parametrize(
    "other",
    [
        {"arch": None}, {"arch": 80}, {"itemsize": 4}, {"d": 255}, {"mask": "window"}, {"group": 2},
        {"rows": FEW - 1}, {"matrices": 2**30 + 1},
    ],
    ids=str,
)  # fmt: skip
def test_elsewhere_large_heads_store_no_matrix(other):
    row = choice("backward pass", LARGE._replace(**other))
    assert row.value == "slices" and row.why


def test_where_times_decide_against_complete_rows_that_fit():
    """Forward on sm_90 in 16 bits: rows of 257 to 320 are padded to 512 columns."""
    case = Case(90, 2, 320, "causal", 1, rows=98304)
    values = [choice("forward pass", case._replace(d=d)).value for d in (256, 257, 320, 321, 512, 513)]
    rows = "complete rows"
    assert values == [rows, "slices", "slices", rows, rows, "slices"]
    for other in ({"rows": FEW - 1}, {"mask": "window"}, {"group": 2}, {"mask": "blocks"}):
        assert choice("forward pass", case._replace(**other)).value == rows


def test_packed_sequences_take_descriptors_where_that_was_faster():
    packed = Case(90, 2, 128, "packed")
    assert choice("packed descriptors", packed).value is True
    for other in ({"arch": 100}, {"d": 64}, {"d": 127}, {"itemsize": 4}, {"arch": None}):
        assert choice("packed descriptors", packed._replace(**other)).value is False
    assert choice("packed descriptors", packed._replace(group=2)).evidence == {"compiled": True}


def test_the_last_program_merges_where_that_was_faster():
    step = Case(90, 2, 128, "full", group=4, rows=128, heads=32)
    assert choice("decode step", step).value == "last program"
    for other in ({"heads": 31}, {"group": 5}, {"d": 64}, {"itemsize": 4}, {"arch": 80}, {"arch": None}):
        assert choice("decode step", step._replace(**other)).value == "second launch"


# Choices of the user.


def test_tiles_hold_for_the_block_and_no_longer():
    case = Case(90, 2, 100)
    before = {kernel: tile(kernel, case) for kernel in WHOLE}

    def found():
        return {kernel: tile(kernel, case) for kernel in WHOLE}

    with using(forward=(64, 32)):
        outer = found()
        assert outer == before | {"forward": (64, 32, 4, 1)}
        with using(forward=(32, 32, 8), keys=TileConfig(16, 64, 2, 3)):
            assert found() == before | {"forward": (32, 32, 8, 1), "keys": (16, 64, 2, 3)}
        assert found() == outer
    assert found() == before
    with pytest.raises(RuntimeError), using(forward=(64, 32)):
        raise RuntimeError
    assert found() == before


def test_sliced_tiles_hold_for_the_block_and_no_longer():
    case = Case(90, 2, 300)
    before, whole = {kernel: sliced_tile(kernel, case) for kernel in SLICED}, tile("keys", case)
    with using(scores=(64, 32, 16), sliced_keys=(16, 16, 16, 2, 3)):
        assert {kernel: sliced_tile(kernel, case) for kernel in SLICED} == before | {
            "scores": SlicedTileConfig(64, 32, 16, 4, 1), "sliced_keys": (16, 16, 16, 2, 3)
        }  # fmt: skip
        assert tile("keys", case) == whole
    assert {kernel: sliced_tile(kernel, case) for kernel in SLICED} == before


def test_a_look_up_is_not_kept_beyond_the_block():
    """Looked up before, within and after, also with another case."""
    cases = [Case(90, 2, 128), Case(80, 4, 64, "causal")]
    before = [choice("keys", case) for case in cases]
    with using(keys=(16, 64)):
        assert {choice("keys", case).value for case in cases} == {(16, 64, 4, 1)}
        assert {choice("keys", case).why for case in cases} == {"chosen by `using`"}
    assert [choice("keys", case) for case in cases] == before


def test_a_forced_way_holds_for_the_block_and_no_longer():
    case = Case(90, 2, 128, "full", 4, heads=64)
    with replaced({"decode step": "second launch"}):
        with replaced({"packed descriptors": True, "decode step": "last program"}):
            assert choice("decode step", case).value == "last program"
            assert choice("packed descriptors", case).value is True
        assert choice("decode step", case).value == "second launch"
        with pytest.raises(ZeroDivisionError), replaced({"decode step": "last program"}):
            math.floor(1 / 0)
        assert choice("decode step", case).value == "second launch"
    assert choice("decode step", case).value == "last program"  # as timed


def test_tiles_of_the_user_do_not_change_the_way():
    """Otherwise a tile that is tried might never run."""
    cases = [Case(arch, 2, d, rows=10**6) for arch in (None, 75, 90) for d in (64, 256, 512)]
    before = [choice(name, case).value for name in PASSES for case in cases]
    with using(**dict.fromkeys(WHOLE, (16, 16)), **dict.fromkeys(SLICED, (256, 256, 16))):
        assert [choice(name, case).value for name in PASSES for case in cases] == before


# Printed choices.


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("arch", CHIPS)
def test_printed_choices_have_a_reason_for_each_line(arch, mask):
    for d in (64, 128, 256, 320, 512):
        found = choices_of(arch, d=d, mask=mask, dtype=torch.float16)
        lines = str(found).splitlines()
        assert repr(found) == str(found) and len(lines) == 2 * len(found) >= 8
        for (name, row), line, reason in zip(found.items(), lines[::2], lines[1::2], strict=True):
            assert line.startswith(f"{name}: ") and reason.startswith(f"    {row.why}") and row.why


def test_printed_choices_are_those_of_a_launch():
    found = choices_of(90, d=64, B=8)
    text = str(found)
    assert [*found] == ["forward pass", "forward", "backward pass", "queries", "keys"]
    assert found["backward pass"].value == "two-pass"
    assert "backward pass: two-pass\n    no atomic additions (record attention, NVIDIA H200, " in text
    assert "forward: 64 × 64 × 4 × 3\n    the fastest of the tiles tried (record tune, NVIDIA H200, " in text
    assert [*choices_of(90, d=64, kv_heads=4)] == ["forward pass", "forward", "backward pass", "fused"]
    assert [*choices_of(90, d=320, N=8192)] == [
        "forward pass", "sliced_forward", "backward pass", "weights", "query_gradients", "key_gradients"
    ]  # fmt: skip
    assert [*choices_of(90, d=320, N=8)][3:] == ["sliced_queries", "sliced_keys"]
    line, reason = str(choice("queries", Case(90, 4, 200))).splitlines()
    assert line == "queries: 16 × 16 × 8 × 1"
    assert reason == "    compiled only: the smallest tile; 104 spills in an iteration of its loop"


@pytest.mark.parametrize("mask", ["full", "causal"])
def test_printed_choices_name_the_rival_that_is_faster(mask):
    """At d = 256 the backward pass is slower than FlashAttention-2."""
    assert "; 0.60 of the speed of SDPA flash" in str(choices_of(90, d=256, mask=mask)["backward pass"])
    rows = load_record("small-cache")["rows"]
    ms = {
        one["contender"]: one["ms"]
        for one in rows
        if (one["d"], one["pass"], one["causal"]) == (256, "backward", mask == "causal") and "ms" in one
    }
    assert 0.59 < ms["SDPA flash"] / ms["materialised"] < 0.605


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arch": 91}, r"arch must be one of 75, 80, 89, 90, 100; got 91"),
        ({"arch": None}, r"arch must be one of 75, 80, 89, 90, 100; got None"),
        ({"d": 0}, r"d must be at least 1, got 0"),
        ({"d": 1025}, r"d must be at most 1024 with mask = 'causal', got 1025"),
        ({"d": 513, "mask": "blocks"}, r"d must be at most 512 with mask = 'blocks', got 513"),
        ({"dtype": torch.float64}, r"dtype must be float16, bfloat16 or float32, got torch\.float64"),
        ({"dtype": "float16"}, r"dtype must be float16, bfloat16 or float32, got float16"),
        ({"mask": "band"}, r"mask must be one of full, causal, window, blocks, packed; got 'band'"),
        ({"N": 0}, r"N must be at least 1, got 0"),
        ({"B": -1}, r"B must be at least 1, got -1"),
        ({"heads": 0}, r"heads must be at least 1, got 0"),
        ({"kv_heads": 0}, r"kv_heads must be at least 1, got 0"),
        ({"heads": 6, "kv_heads": 4}, r"kv_heads must divide heads, 6, got 4"),
    ],
    ids=str,
)
def test_printed_choices_refuse_other_arguments(given, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        choices_of(**({"arch": 90} | given))


def test_printed_choices_are_those_of_the_copy_that_a_gpu_pads():
    """Rows of 60 numbers are copied to 64 columns before a launch."""
    assert str(choices_of(90, d=60)) == str(choices_of(90, d=64)) != str(choices_of(90, d=48))


@pytest.mark.parametrize(("fixed", "kernels"), [(None, "two-pass"), (True, "two-pass"), (False, "fused")])
def test_printed_choices_follow_deterministic(fixed, kernels):
    assert choices_of(90, d=64, deterministic=fixed)["backward pass"].value == kernels
    assert choices_of(80, d=64, deterministic=fixed)["backward pass"].value == (
        "two-pass" if fixed else "fused"
    )
