"""Tests of the kernel explorer: quotients, times, map, roofs and recorded launches."""

import re

import pytest
import skips
from figure_examples import compiled, made_up_records, refused, sweep
from figure_layout import check_layout, texts

from iocourse.costs.kernels import KernelProblem, kernel_words, ledger_bytes
from iocourse.course import explore
from iocourse.course.explore.draw.picture import Rect
from iocourse.course.explore.figures import kernel_explorer as drawing
from iocourse.course.explore.figures.kernel_explorer import kernel_explorer_picture
from iocourse.course.explore.models import kernel_explorer as model
from iocourse.course.explore.models.kernel_explorer import (
    DRAM,
    KERNELS,
    L2,
    NO_RECORDS,
    SM,
    Configuration,
    KernelState,
    ceilings,
    entries,
    fastest,
    fastest_traffic,
    intensities,
    launch_bytes,
    launches,
    occupancy,
    quotients,
    shipped,
    shipped_records,
)
from iocourse.data.records import load_record
from iocourse.gpu import CHIPS, Resources
from iocourse.gpu.choices import KERNELS_OF, Case, recorded
from iocourse.gpu.timed_tiles import tables
from iocourse.kernels.host.choices import tile

skips.unless_installed("anywidget")

STATE = KernelState(90, 64, "forward", 64, 64, 4, 3)
RECORDS = shipped_records()
TIMED = [(name, row) for record in ("tiles", "tune") for name, rows in tables(record).items() for row in rows]


def state_of(row):
    """Return the state of a row of the timed tables."""
    sizes = (row[name] for name in ("BM", "BN", "warps", "stages"))
    return KernelState(90, row["d"], row["kernel"], *sizes, causal=row["causal"])


# ---------------------------------------------------------------------- programs per SM
@pytest.mark.parametrize("arch", CHIPS)
def test_the_four_quotients_are_those_of_the_resources(arch):
    records = made_up_records(sweep(arch))
    for row in sweep(arch):
        s = KernelState(arch, 64, "forward", row["BM"], row["BN"], row["warps"], 2, causal=True)
        entry = entries(s, records)[s.configuration]
        limits = Resources.of(row).program_limits
        found = quotients(s, entry)
        assert {one.limit: one.programs for one in found} == limits
        assert all(one.programs == one.capacity // one.need for one in found)
        total = occupancy(s, entry)
        assert total.programs == min(limits.values()) == Resources.of(row).programs_at_once
        assert set(total.limits) == {name for name, one in limits.items() if one == total.programs}
        assert total.warps == total.programs * row["warps"] == 4 * total.warpgroups


@pytest.mark.parametrize(("name", "row"), TIMED[::7], ids=str)
def test_programs_and_warps_of_a_timed_tile_are_the_columns_of_its_table(name, row):
    s = state_of(row)
    assert model.table_name(s) == name
    found = occupancy(s, entries(s, RECORDS)[s.configuration])
    assert (found.programs, found.warps, int(found.warpgroups)) == (
        row["blocks"], row["warps_per_sm"], row["warpgroups_per_sm"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "limit"),
    [
        ({"registers": 255}, "registers"),
        ({"registers": 32, "shared_bytes": 100_000}, "shared memory"),
        ({"registers": 16, "shared_bytes": 0, "warps": 16}, "warps"),
        ({"registers": 16, "shared_bytes": 0, "warps": 1}, "blocks"),
    ],
)
def test_the_lowest_limit_is_named_and_marked(facts, limit):
    row = compiled(**facts)
    s = STATE._replace(warps=row["warps"], stages=2, causal=True)
    picture = drawing.draw_kernel_explorer(s, made_up_records([row]))
    headline = drawing.kernel_explorer_headline(s, made_up_records([row]))
    assert f"per SM, limited by {limit}: " in headline and f"limited by {limit}: " in picture.alt
    bold = [one.text for one in picture.elements if getattr(one, "bold", False)]
    assert [name for name in ("registers", "shared memory", "warps", "blocks") if name in bold] == [limit]


def test_a_bar_grows_with_its_programs_and_not_with_the_other_bars():
    def bar(registers, shared):
        row = compiled(registers=registers, shared_bytes=shared)
        s = STATE._replace(stages=2, causal=True)
        drawn = drawing.draw_kernel_explorer(s, made_up_records([row])).elements
        bars = [one for one in drawn if isinstance(one, Rect) and one.height == 18 and one.line == 0.6]
        return next(one.width for one in bars if one.fill != "#FFFFFF")

    assert bar(64, 0) > bar(128, 0) == bar(128, 100_000) > bar(255, 0)


def test_what_was_not_compiled_is_named_and_not_guessed():
    picture = kernel_explorer_picture(90, 64, BM=256, BN=256, warps=16, stages=4)
    assert texts(picture).count("unknown") == 2 and "16 ÷" not in picture.alt
    assert "Programs per SM: unknown, because this configuration was not compiled" in picture.alt
    assert "Not compiled: registers and shared memory are unknown" in picture.alt


def test_a_refused_and_a_too_large_tile_say_so():
    s = STATE._replace(stages=2, causal=True)
    row = refused(compiled()) | {"bytes": 2, "kernel": "forward", "causal": True, "stages": 2}
    assert "Refused by Triton made up" in drawing.draw_kernel_explorer(s, made_up_records([row])).alt
    large = made_up_records([compiled(shared_bytes=300_000)])
    assert "No program fits on an SM, because of shared memory" in drawing.draw_kernel_explorer(s, large).alt
    assert "too large" in texts(drawing.draw_kernel_explorer(s, large))
    spilled = made_up_records([compiled(spill_bytes=64)])
    assert "spills" in texts(drawing.draw_kernel_explorer(s, spilled))


# ---------------------------------------------------------------------- times and the map
@pytest.mark.parametrize(("name", "row"), TIMED[::11], ids=str)
def test_time_and_ratio_of_a_timed_tile_are_those_of_its_table(name, row):
    s, rows = state_of(row), [other for table, other in TIMED if table == name]
    best = min(rows, key=lambda one: one["ms"])
    found = entries(s, RECORDS)
    assert found[s.configuration].ms == row["ms"] and fastest(found).ms == best["ms"]
    text = drawing.time_text(drawing.facts(s, RECORDS))
    if row is best:
        assert text.endswith("the fastest of the timed configurations.")
    else:
        assert f"{row['ms'] / best['ms']:.2f} × the fastest, {fastest(found).at}" in text
    assert ("both halves" in text) == (s.kernel in ("queries", "keys"))


@pytest.mark.parametrize("kernel", KERNELS)
def test_each_cell_names_the_warps_and_stages_of_what_it_shows(kernel):
    s = KernelState(90, 64, kernel, *(64, 64, 4, 2))
    f = drawing.facts(s, RECORDS)
    for BM in drawing.SIZES:
        for BN in drawing.SIZES:
            at = drawing.shown_in_cell(f, BM, BN)
            here = [one for one in f.found.values() if one.at[:2] == (BM, BN)]
            if (BM, BN) == (64, 64):
                assert at == s.configuration
            elif not here:
                assert at is None
            else:
                times = [one.ms for one in here if one.ms]
                assert f.found[at].ms == min(times, default=None)


def test_a_tile_is_chosen_in_the_map_with_its_warps_and_stages():
    one = explore.kernel_explorer(90, 64, "draft", 64, 64, 4, 2)
    (map_,) = one.grabs
    wide, high = map_.width / 5, map_.height / 5
    one.touched("down", map_.x + 2.5 * wide, map_.y + 3.5 * high)  # 128 × 64
    assert one.state.configuration == (128, 64, 8, 3), "the fastest of this tile"
    one.touched("up", 0, 0)
    one.touched("down", map_.x + 0.5 * wide, map_.y + 0.5 * high)  # 16 × 16 is not recorded
    assert one.state.configuration == (16, 16, 8, 3)
    one.set("narrow", True)
    (map_,) = one.grabs
    one.touched("down", map_.x + 3.5 * map_.width / 5, map_.y + 2.5 * map_.height / 5)
    assert one.state.configuration[:2] == (64, 128)


def test_no_button_proposes_a_tile_without_a_time():
    one = explore.kernel_explorer(90, 128, causal=True, BM=128, BN=16, warps=4, stages=2)
    for button, said in (("shipped", "Launched by dispatch"), ("fastest", "Fastest recorded")):
        one.press(button)
        assert one.state.configuration == (64, 64, 4, 3)
        assert f"{said}: 64 × 64, 4 warps, 3 stages." in one.words
    one.set("arch", 80)
    one.press("fastest")
    assert "No time is recorded for this kernel, chip, d, mask and element size." in one.words
    assert one.buttons == ["shipped", "fastest"]


def test_times_hold_for_one_length_only():
    words = explore.kernel_explorer(N=8192).words
    assert "1.21 ms at N = 4,096: the fastest" in words and "; recorded" not in words


@pytest.mark.parametrize("kernel", ["forward", "fused", "queries", "keys"])
@pytest.mark.parametrize("causal", [False, True])
def test_the_shipped_configuration_is_that_of_dispatch(kernel, causal):
    mask = "causal" if causal else "full"
    for arch in CHIPS:
        for d in (64, 128, 256, 512):
            heads = max(1, 8192 // d)
            case = Case(arch, 2, d, mask, 1, heads * 4096, heads, 4 * 4096**2)
            s = KernelState(arch, d, kernel, 64, 64, 4, 2, causal=causal)
            assert shipped(s) == tuple(tile(kernel, case))
            passed = "forward pass" if kernel == "forward" else "backward pass"
            found, value = model.dispatch(s), recorded(passed, case).value
            assert (found.value, found.kernels) == (value, KERNELS_OF[passed][value])
            assert found.launched == (kernel in found.kernels)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ((90, 64), "Dispatch launches 64 × 128, 4 warps, 3 stages."),
        ((90, 64, "keys"), "Dispatch launches 128 × 128, 8 warps, 3 stages (backward pass: two-pass)."),
        (
            (90, 64, "fused"),
            "Dispatch launches two-pass here, and this kernel with deterministic=False: "
            "64 × 128, 8 warps, 2 stages.",
        ),
        (
            (90, 320),
            "Dispatch does not launch this kernel here: its forward pass is slices (sliced_forward).",
        ),
        (
            (75, 512, "fused"),
            "Dispatch does not launch this kernel here: its backward pass is slices "
            "(sliced_queries, sliced_keys).",
        ),
        ((90, 64, "draft"), "The draft is not a kernel of the library."),
    ],
)
def test_the_words_name_what_dispatch_launches(call, text):
    one, picture = explore.kernel_explorer(*call), kernel_explorer_picture(*call)
    assert text in one.words and picture.alt.endswith(text) and picture.numbers.endswith(text)


@pytest.mark.parametrize("arch", CHIPS)
def test_the_button_sets_no_configuration_that_dispatch_does_not_launch(arch):
    for kernel in KERNELS:
        for d in (64, 128, 320, 512):
            one = explore.kernel_explorer(arch, d, kernel, 32, 16, 2, 4)
            one.press("shipped")
            found = model.dispatch(one.state)
            launched = kernel != "draft" and (found.launched or found.option)
            expected = shipped(one.state) if launched else (32, 16, 2, 4)
            assert one.state.configuration == expected
            assert launched or "Not changed, because dispatch does not launch this kernel here." in one.words


def test_a_recorded_refusal_is_shown_with_its_bytes():
    call = (90, 128, "queries", 128, 128, 8, 3)
    picture, words = kernel_explorer_picture(*call), explore.kernel_explorer(*call).words
    assert "Refused: a program needs 256 KB of shared memory, 227 KB are possible." in words
    assert "refused" in texts(picture) and "0 = 228 ÷ 257 KB" in texts(picture)
    assert "Refused by Triton 3.6.0: 256 KB shared memory." in picture.alt
    assert "No roof, because no program runs." in picture.alt and not any(
        text.startswith("this tile") for text in texts(picture)
    )


def test_the_selected_cell_is_compared_with_the_fastest_of_its_tile():
    picture = kernel_explorer_picture(kernel="draft", BM=64, BN=128, warps=8, stages=2)
    assert "2.69 × the fastest, 128 × 64, 8 warps, 3 stages; 64 × 128, 4 warps, 3 stages takes 1.02 ×." in (
        picture.alt
    )
    assert "framed: selected; others: fastest; blank: no record" in texts(picture)


def test_shared_memory_of_an_sm_and_of_a_program_are_both_named():
    assert "228 KB per SM, 1 KB reserved per program: 227 for one." in texts(kernel_explorer_picture())
    assert "64 KB per SM, none reserved: 64 KB for one program." in texts(kernel_explorer_picture(75))


# ---------------------------------------------------------------------- roofs
def test_the_roofs_are_those_of_equation_11_7():
    for d, BM, BN, warps in ((64, 64, 128, 4), (128, 64, 64, 4), (128, 128, 128, 8), (64, 128, 64, 4)):
        s = KernelState(90, d, "forward", BM, BN, warps, 3)
        clocks = {
            "products": 4 * BM * BN * d / 4096,
            "exponentials": BM * BN / 16,
            "shared memory": (2 * BM * d + BM * BN * d / 16 + 4 * BN * d) / 128,
        }
        expected = {name: 989 * clocks["products"] / one for name, one in clocks.items()}
        assert ceilings(s) == pytest.approx(expected)
    for kernel, sizes, clocks in (("queries", (128, 64, 8), 1536), ("keys", (64, 128, 8), 1792)):
        s = KernelState(90, 128, kernel, *sizes, 3)
        products = 2 * model.PRODUCTS[kernel] * s.BM * s.BN * s.d / 4096
        assert ceilings(s)["shared memory"] == pytest.approx(989 * products / clocks)


def test_roofs_without_a_source_are_not_drawn():
    assert set(ceilings(STATE._replace(arch=80))) == {"products"}
    assert "shared memory" not in ceilings(STATE._replace(warps=8)), "fewer than 64 rows per warpgroup"
    assert "L2 to SM: bandwidth unmeasured, no roof" in texts(kernel_explorer_picture(80, 64))
    assert "L2 to SM: bandwidth unmeasured, no roof" in texts(kernel_explorer_picture(records=NO_RECORDS))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"itemsize": 4}, "products of 32 bits do not use the tensor cores"),
        ({"arch": 75}, "Triton does not use the tensor cores of the T4"),
    ],
)
def test_products_without_tensor_cores_have_no_roof_and_the_words_say_why(change, why):
    picture = kernel_explorer_picture(**change)
    assert ceilings(STATE._replace(**change)) == {} and model.lowest_roof(STATE._replace(**change)) is None
    assert f"Lowest roof: unknown, because {why} and no other rate is recorded." in picture.alt
    assert not any(text.startswith(("products ", "this tile")) for text in texts(picture))


def test_columns_of_zeros_lower_the_roof_of_the_products():
    assert ceilings(STATE._replace(d=320))["products"] == pytest.approx(989 * 320 / 512)
    text = "Lowest roof: products, 618 TFLOP/s (512 columns are multiplied for d = 320)."
    assert text in kernel_explorer_picture(d=320).alt


def test_headline_and_picture_name_the_same_lowest_roof():
    for row in [row for _, row in TIMED[::9]]:
        s = state_of(row)
        roof, drawn = model.lowest_roof(s), drawing.draw_kernel_explorer(s, RECORDS)
        bold = [one.text for one in drawn.elements if getattr(one, "bold", False)]
        assert all(any(text.startswith(f"{name} ") for text in bold) for name in roof.names)
        assert f"Lowest roof: {' and '.join(roof.names)}, " in drawn.alt
        assert roof.tflops == pytest.approx(min(ceilings(s).values()))
    both = KernelState(90, 64, "forward", 64, 64, 8, 3)
    assert model.lowest_roof(both).names == ("products", "exponentials")
    assert "L2 to SM, 8,277 GB/s: largest recorded, not a roof" in texts(kernel_explorer_picture())
    assert "8,277 GB/s: 521 TFLOP/s (not a roof, more may be possible)" in kernel_explorer_picture().alt


def test_a_narrow_page_draws_no_two_launches_at_one_height_and_names_the_others():
    drawn = texts(drawing.draw_kernel_explorer(KernelState(90, 64, "forward", 64, 128, 4, 3), RECORDS, True))
    names = [one.name for one in launches(RECORDS) if one.height(CHIPS[90])]
    alone = [name for name in names if any(text.split(":")[0] == name for text in drawn if ";" not in text)]
    assert alone == ["fused backward, d = 64", "decode, d = 128"]
    said = " ".join(drawn).split("Near these points, not drawn: ")[1]
    assert all(f"{name}: " in said for name in set(names) - set(alone))


def test_bytes_are_the_closed_form_and_each_array_once():
    words = kernel_words("forward", KernelProblem(4096, 4096, 64), BM=64, BN=64)
    moved = launch_bytes(STATE)
    assert moved == {SM: ledger_bytes(words, 2), DRAM: 2 * 4 * 4096 * 64 + 4 * 4096}
    assert intensities(STATE)[SM] == 4 * 4096**2 * 64 / moved[SM]
    larger = STATE._replace(BM=128)
    assert intensities(larger)[SM] > 1.9 * intensities(STATE)[SM]
    assert intensities(larger)[DRAM] == intensities(STATE)[DRAM], "the tile does not move it"


def test_the_traffic_from_l2_is_the_largest_recorded():
    found = fastest_traffic(RECORDS)
    for name, row in TIMED[::5]:
        if row["kernel"] not in ("queries", "keys"):
            s = state_of(row)
            rate = launch_bytes(s)[SM] * 8192 / row["d"] / row["ms"] / 1e6
            assert rate <= found.gbytes_per_s * (1 + 1e-9), name
    assert found.table in dict(TIMED) and 8000 < found.gbytes_per_s < 8500


# ---------------------------------------------------------------------- recorded launches
def test_recorded_launches_have_the_counted_bytes_and_the_time_of_the_same_tile():
    runs, found = load_record("profile")["runs"], {one.name: one for one in launches(RECORDS)}
    assert list(found) == [
        "forward, d = 64", "forward, d = 128, causal", "fused backward, d = 64", "decode, d = 128",
        "slices of d, d = 512", "two-pass backward, d = 64",
    ]  # fmt: skip
    for run, one in zip(runs, found.values(), strict=False):
        assert (
            one.bytes[L2] == run["bytes"]["l2"]["total"] and one.bytes[DRAM] == run["bytes"]["dram"]["total"]
        )
        assert one.bytes[SM] == pytest.approx(run["bytes"]["closed_form"]["total"], rel=2e-3)
    forward, fused, two_pass = (found[name] for name in list(found)[::2][:1] + list(found)[2::3])
    assert forward.bytes[SM] == runs[0]["bytes"]["closed_form"]["total"], "to the byte"
    assert forward.tflops == pytest.approx(4 * 128 * 4096**2 * 64 / 1.3207039833068848 / 1e9)
    assert fused.bytes[SM] == two_pass.bytes[SM] == 579_207_168 and not two_pass.counted
    assert two_pass.tflops / fused.tflops == pytest.approx(1.46, abs=0.01)
    assert found["decode, d = 128"].tflops is None


def test_each_drawn_launch_is_named_and_only_on_its_chip():
    names = [one.name for one in launches(RECORDS)]
    drawn = texts(kernel_explorer_picture())
    untimed = [one.name for one in launches(RECORDS) if not one.height(CHIPS[90])]
    assert untimed == ["slices of d, d = 512"]
    for name in names:
        assert any(one.split(":")[0] == name for one in drawn) == (name not in untimed)
        assert name in kernel_explorer_picture().numbers
    assert not any(one.split(":")[0] in names for one in texts(kernel_explorer_picture(100)))


# ---------------------------------------------------------------------- input
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"arch": 86}, ValueError, "arch must be one of 75, 80, 89, 90, 100; got 86"),
        ({"itemsize": 8}, ValueError, "itemsize must be 2 or 4 bytes, got 8"),
        (
            {"kernel": "flash"},
            ValueError,
            "kernel must be one of forward, fused, queries, keys, draft; got 'flash'",
        ),
        ({"BM": 48}, ValueError, r"BM must be a power of two of at least 16 \(for tl.dot\), got 48"),
        ({"BM": 0}, ValueError, "BM must be at least 1, got 0"),
        ({"BN": 8}, ValueError, r"BN must be a power of two of at least 16 \(for tl.dot\), got 8"),
        (
            {"d": 1024},
            ValueError,
            "d must be at most 512, because no tile with complete rows is .*; got 1024",
        ),
        ({"causal": "yes"}, TypeError, "causal must be True or False, got 'yes'"),
        ({"d": 0}, ValueError, "d must be at least 1, got 0"),
        ({"N": 2.5}, TypeError, "N must be an integer of at least 1"),
        ({"warps": 3}, ValueError, "warps must be 1, 2, 4, 8 or 16, got 3"),
        ({"stages": 0}, ValueError, "stages must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named_in_one_line(change, error, text):
    for call in (kernel_explorer_picture, explore.kernel_explorer):
        with pytest.raises(error, match=text) as caught:
            call(**change)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["kernel_tuner", "kernel_tuner_picture", "roofline_explorer", "roofline_explorer_picture"]
)
def test_an_earlier_name_says_what_to_write(name):
    with pytest.raises(
        AttributeError, match=rf"explore.{name} was replaced: write `explore\.kernel_explorer"
    ) as it:
        getattr(explore, name)
    assert eval(re.search("`(.*)`", str(it.value)).group(1), {"explore": explore})


def test_without_records_everything_is_drawn_and_named_as_unknown():
    for kernel in KERNELS:
        picture = kernel_explorer_picture(90, 128, kernel, records=NO_RECORDS)
        assert "Not timed: no time is recorded" in picture.alt and "unknown" in texts(picture)
        check_layout(picture)


@pytest.mark.parametrize("N", [1, 128, 65_536])
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_narrow_page_shows_the_same_in_one_column(kernel, N):
    s = KernelState(90, 64, kernel, 64, 64, 4, 2, N)
    wide, narrow = (drawing.draw_kernel_explorer(s, RECORDS, one) for one in (False, True))
    check_layout(wide)
    check_layout(narrow)
    assert narrow.width <= 400 and (narrow.alt, narrow.numbers) == (wide.alt, wide.numbers)
    kept = set(texts(narrow)) - set(texts(wide))
    assert kept <= {line for line in kept if line in " ".join(kept)}


def test_the_same_call_in_the_same_cell_goes_on_where_it_was(monkeypatch):
    cell = "of a notebook"
    monkeypatch.setattr("iocourse.course.explore.widgets.explorer.running_cell", lambda: cell)
    first = explore.kernel_explorer(arch=80)
    first.set("BM", 16)
    first.set("narrow", True)
    again = explore.kernel_explorer(arch=80)
    assert again.state == first.state and again.svg == again.shown().picture.to_svg()
    assert not again.value("narrow"), "which the page sets"
    assert explore.kernel_explorer(arch=90).state != first.state
    cell = "another"
    monkeypatch.setattr("iocourse.course.explore.widgets.explorer.running_cell", lambda: cell)
    assert explore.kernel_explorer(arch=80).state != first.state
    assert Configuration(64, 64, 1, 1) and str(Configuration(64, 64, 1, 1)) == "64 × 64, 1 warp, 1 stage"
