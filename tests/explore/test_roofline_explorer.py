"""Tests of the roofline explorer: closed-form FLOPs and bytes, times at the roof, recorded rates."""

import numpy as np
import pytest
from figure_examples import ON_90, bench_record
from figure_layout import check_layout
from hypothesis import given
from hypothesis import strategies as st

from iocourse import costs
from iocourse.costs.kernel_masks import BlockLists
from iocourse.costs.kernels import (
    KernelProblem,
    attention_decode,
    attention_forward,
    ledger_bytes,
)
from iocourse.course.explore import roofline_explorer, roofline_explorer_picture
from iocourse.course.explore.draw.palette import INK
from iocourse.course.explore.draw.picture import Poly
from iocourse.course.explore.models.roofline_explorer import (
    RooflineState,
    chosen,
    points,
    recorded_rates,
    records_of,
    tiles_kept,
)
from iocourse.course.explore.widgets.gpu_explorers import SHARES
from iocourse.gpu import CHIPS
from iocourse.gpu.roofline import TIMES_FORWARD, attainable_tflops, compulsory_bytes


@st.composite
def any_sizes(draw):
    H_kv = draw(st.integers(1, 6))
    return RooflineState(
        draw(st.sampled_from(list(CHIPS))), draw(st.integers(1, 400)), draw(st.integers(1, 256)),
        H_kv * draw(st.integers(1, 70)), H_kv, draw(st.integers(1, 4)), draw(st.booleans()),
        draw(st.floats(0.01, 1.0)),
    )  # fmt: skip


def picture(sizes, records=None):
    arch, N, d, H, H_kv, B, causal, density = sizes
    return roofline_explorer_picture(
        arch, N, d, H, H_kv, B=B, causal=causal, density=density, records=records
    )  # fmt: skip


def by_name(sizes):
    return {one.name: one for one in points(sizes)}


# ---------------------------------------------------------------------- FLOP, bytes, time
@given(any_sizes())
def test_forward_and_backward_are_the_rooflines_own_counts(s):
    problem = KernelProblem(s.N, s.N, s.d, None, 0 if s.causal else None, s.B, s.H, s.H_kv)
    pairs = sum(i + 1 if s.causal else s.N for i in range(s.N))
    for name in ("forward", "backward"):
        point = by_name(s)[name]
        assert point.flop == TIMES_FORWARD[name] * 4 * s.B * s.H * s.d * pairs
        assert point.compulsory == compulsory_bytes(name, problem, 2)


@pytest.mark.parametrize(
    ("what", "sizes", "kernels"),
    [
        ("backward", RooflineState(90, 4096, 64, 16, 16, 4), "two-pass"),
        ("backward", RooflineState(90, 4096, 64, 16, 4, 4), "fused"),
        ("backward", RooflineState(80, 4096, 128, 16, 16, 4, causal=False), "fused"),
        ("backward", RooflineState(90, 2048, 256, 32, 32, 2), "materialised"),
        ("backward", RooflineState(90, 2048, 192, 32, 32, 2), "slices"),
        ("forward", RooflineState(90, 4096, 128, 16, 16, 4), "complete rows"),
        ("forward", RooflineState(90, 4096, 320, 32, 32, 2, causal=False), "slices"),
        ("decode", RooflineState(90, 8192, 128, 32, 32), "merged by the last program"),
        ("decode", RooflineState(90, 8192, 128, 32, 8), "merged by a second launch"),
    ],
)
def test_each_pass_has_the_kernels_and_the_bytes_of_its_launch(what, sizes, kernels):
    pytest.importorskip("triton")
    from iocourse import profile
    from iocourse.profile import launch_cost

    s, point = sizes, by_name(sizes)[what]
    request = profile.LaunchRequest(
        what, s.N, s.d, s.H_kv, heads=s.H, batch=s.B, causal=s.causal and what != "decode",
        parts=int(point.tile.split()[0]) if what == "decode" else 0,
    )  # fmt: skip
    must = launch_cost.cost(request, s.arch)
    assert (point.ledger, point.kernels) == (must.bytes["total"] + must.bytes["added"], kernels)
    assert f"{what} {kernels}" in picture(s).text


@given(any_sizes())
def test_decode_reads_the_cache_once_for_the_heads_that_share_it(s):
    point = by_name(s)["decode"]
    problem = KernelProblem(1, s.N, s.d, B=s.B, H=s.H, H_kv=s.H_kv)
    parts = int(point.tile.split()[0])
    last = point.kernels == "merged by the last program"
    ledger = attention_decode(problem, parts=parts, tiles=costs.ceil_div(s.H // s.H_kv, 64), last_merges=last)
    assert point.ledger == ledger_bytes(ledger, 2)
    assert point.flop == 4 * s.B * s.H * s.N * s.d
    cache = 2 * 2 * s.B * s.H_kv * s.N * s.d
    assert point.compulsory == cache + s.B * s.H * (2 * 2 * s.d + 4)
    assert 1 <= parts <= 64


@given(any_sizes(), st.integers(1, 6))
def test_block_sparse_is_the_closed_form_of_a_mask_with_as_many_tiles_in_each_row(s, blocks):
    BM, BN, *_ = chosen(s, "forward", "blocks")
    s = s._replace(N=max(BM, BN) * blocks)
    rows, columns = s.N // BM, s.N // BN
    kept = tiles_kept(s, BN)
    seen = (np.arange(columns) + np.arange(rows)[:, None]) % columns < kept  # a band that wraps around
    pairs = np.repeat(np.repeat(seen, BM, 0), BN, 1)[None, None]
    mask = BlockLists(s.N, s.N, s.d, None, None, s.B, s.H, s.H_kv, pairs)
    point = by_name(s)["block-sparse"]
    assert point.ledger == ledger_bytes(attention_forward(mask, BM=BM, BN=BN), 2)
    assert point.flop == 4 * s.d * s.B * s.H * pairs.sum()
    assert kept == 1 or abs(kept / columns - s.density) <= 0.5 / columns


@given(any_sizes())
def test_the_time_is_that_of_the_roof_at_the_points_intensity(s):
    for point in points(s):
        allowed = attainable_tflops(point.intensity, s.chip)
        assert point.flop / point.microseconds(s.chip) / 1e6 == pytest.approx(allowed)
        assert (point.limit(s.chip) == "products") == (allowed == s.chip.tensor_tflops)
        assert point.ledger_intensity <= point.intensity


def test_sharing_keys_raises_the_intensity_of_decode_by_the_group():
    alone, shared = (by_name(RooflineState(90, 2**17, 128, 32, H_kv))["decode"] for H_kv in (32, 4))
    assert alone.intensity == pytest.approx(1, rel=1e-3)
    assert shared.intensity == pytest.approx(8, rel=1e-3)
    assert alone.limit(CHIPS[90]) == shared.limit(CHIPS[90]) == "memory"


# ---------------------------------------------------------------------- the picture
@given(any_sizes(), st.sampled_from([None, {}]))
def test_the_picture_says_every_number(s, records):
    drawn = picture(s, records)
    check_layout(drawn)
    for point in points(s):
        assert f"{point.name}: " in drawn.alt and point.tile in drawn.numbers
        assert f"{point.name}: {point.limit(s.chip)}" in drawn.to_svg()
    assert "no recorded run yet" in drawn.text or records is None


def test_the_roof_stays_where_it_is_when_sizes_change():
    lines = [
        [
            e.points
            for e in picture(RooflineState(90, N, d, 16, 4)).elements
            if isinstance(e, Poly) and e.line == 2.4
        ]
        for N, d in ((512, 64), (65_536, 128))
    ]
    assert lines[0] == lines[1] and len(lines[0]) == 1


def test_a_chip_whose_tensor_cores_triton_does_not_use_carries_the_caveat():
    assert "Triton uses no tensor cores on a T4" in picture(RooflineState(75, 512, 64, 4, 4)).text
    assert "no tensor cores" not in picture(RooflineState(90, 512, 64, 4, 4)).text


# ---------------------------------------------------------------------- measured rates
def diamonds(drawn):
    """Return the diamonds of measured points, without the one in the legend."""
    return [e for e in drawn.elements if isinstance(e, Poly) and e.fill == INK][1:]


def dense_record():
    """Return made-up rates of the dense forward pass at N = 1024 and 8192, on an sm_90."""
    return bench_record((1024, 8192)) | ON_90


def test_without_a_record_there_is_no_point_and_the_words_say_so():
    drawn = picture(RooflineState(90, 1024, 128, 16, 16), {})
    assert not diamonds(drawn) and "Measured: no recorded run yet." in drawn.numbers


@pytest.mark.parametrize("causal", [False, True])
def test_a_recorded_rate_stands_where_it_was_measured(causal):
    s = RooflineState(90, 1024, 128, 32, 8, causal=causal)
    record = dense_record()
    row = next(
        row for row in record["rows"]
        if (row["N"], row["causal"], row["contender"]) == (1024, causal, "fused")
    )  # fmt: skip
    (one,) = recorded_rates(s, records_of({"attention": record}))
    assert (one.name, one.tflops) == ("forward", row["tflops"])
    own = s._replace(B=row["B"], H=row["H"], H_kv=row["H"])  # the run had as many heads of keys
    assert one.intensity == by_name(own)["forward"].intensity != by_name(s)["forward"].intensity
    drawn = picture(s, {"attention": record})
    assert len(diamonds(drawn)) == 1
    assert f"Measured forward (B = {row['B']}, H = 16, H_kv = 16): {row['tflops']:.3g} TFLOP/s" in drawn.alt
    assert "made-up numbers of a test (sm_90)" in drawn.numbers


@pytest.mark.parametrize("change", [{"arch": 100}, {"N": 2048}, {"d": 64}])
def test_rates_of_other_chips_and_sizes_are_not_shown(change):
    s = RooflineState(90, 1024, 128, 16, 16)._replace(**change)
    drawn = picture(s, {"attention": dense_record()})
    assert not diamonds(drawn)
    assert f"nothing recorded for N = {s.N:,}, d = {s.d:,} and these masks on {s.chip.name}" in drawn.numbers


def row_of(**facts):
    """Return a made-up row of our kernels at N = 4096, d = 128."""
    row = {"dtype": "bfloat16", "d": 128, "N": 4096, "B": 1, "H": 32, "pass": "forward", "contender": "fused"}
    return row | {"ms": 0.25} | facts


def test_decode_is_taken_for_the_very_heads_and_its_rate_is_flop_over_time():
    ours = {"H_kv": 8, "contender": "split-KV"}
    rows = [row_of(**ours | {"H_kv": 32}, ms=9.0), row_of(**ours)]
    rows += [row_of(H_kv=8, contender="SDPA flash", ms=0.01), row_of(**ours | {"d": 64})]
    (one,) = recorded_rates(
        RooflineState(90, 4096, 128, 32, 8), records_of({"decode": {"rows": rows} | ON_90})
    )
    assert one.name == "decode" and one.tflops == pytest.approx(4 * 32 * 4096 * 128 / 0.25e-3 / 1e12)
    assert not recorded_rates(
        RooflineState(90, 4096, 128, 32, 4), records_of({"decode": {"rows": rows} | ON_90})
    )


def test_a_recorded_rate_is_one_of_the_chosen_kernels():
    times = {"fused": 2.0, "two-pass": 1.0, "last program merges": 4.0, "split-KV": 8.0}
    dense, steps = (
        [row_of(contender=name, H=heads, H_kv=heads, causal=False, **{"pass": pass_}, ms=times[name])
         for name in names]
        for pass_, names, heads in (
            ("backward", ("fused", "two-pass"), 16), ("forward", ("last program merges", "split-KV"), 32),
        )
    )  # fmt: skip
    records = records_of({"attention": {"rows": dense} | ON_90, "decode": {"rows": steps} | ON_90})
    for H_kv, backward in ((32, "two-pass"), (8, "fused")):
        s = RooflineState(90, 4096, 128, 32, H_kv, causal=False)
        rate = {one.name: one.tflops for one in recorded_rates(s, records)}
        flop = by_name(s._replace(H=16, H_kv=16))["backward"].flop
        assert by_name(s)["backward"].kernels == backward
        assert rate["backward"] == pytest.approx(flop / times[backward] / 1e9)
        assert ("decode" in rate) == (H_kv == 32)
    whole = by_name(s._replace(H_kv=32))["decode"].flop
    (step,) = [one for one in recorded_rates(s._replace(H_kv=32), records) if one.name == "decode"]
    assert step.tflops == pytest.approx(whole / 4.0 / 1e9)


def test_a_block_mask_is_taken_where_its_density_is_near():
    record = ON_90 | {
        "rows": [row_of(mask="window", density=0.27, tflops=100.0)],
        "density_rows": [
            row_of(mask="random, 1/4", density=0.251, tflops=200.0),
            row_of(mask="random, 1/2", density=0.5, tflops=300.0),
            row_of(mask="no mask", density=1.0, tflops=400.0),
            row_of(mask="random, 1/8", density=0.125, refused="no room", ms=None),
        ],
    }
    s, records = RooflineState(90, 4096, 128, 32, 8), records_of({"sparse": record})
    (one,) = recorded_rates(s, records)
    assert (one.name, one.tflops) == ("block-sparse", 200.0) and "random, 1/4, density 0.251" in one.sizes
    assert [found.tflops for found in recorded_rates(s._replace(density=0.5), records)] == [300.0]
    assert not recorded_rates(s._replace(density=1.0), records)
    assert not recorded_rates(s._replace(density=0.35), records)


# ---------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"arch": 86}, ValueError, "arch must be one of 75, 80, 89, 90, 100; got 86"),
        ({"H_kv": 3}, ValueError, "H_kv must be a divisor of H = 8, got 3"),
        ({"H_kv": 16}, ValueError, "H_kv must be a divisor of H = 8, got 16"),
        ({"N": 0}, ValueError, "N must be at least 1, got 0"),
        ({"d": 513}, ValueError, "d must be at most 512, got 513"),
        ({"d": 1.5}, TypeError, "d must be an integer of at least 1"),
        ({"B": -1}, ValueError, "B must be at least 1, got -1"),
        ({"density": 0}, ValueError, "density must be larger than 0 and at most 1, got 0"),
        ({"density": 1.01}, ValueError, "density must be larger than 0 and at most 1, got 1.01"),
        ({"density": float("nan")}, ValueError, "density must be larger than 0 and at most 1, got nan"),
    ],
)
def test_bad_input_is_named(change, error, text):
    given = {"arch": 90, "N": 64, "d": 64, "H": 8, "H_kv": 8} | change
    with pytest.raises(error, match=text):
        roofline_explorer_picture(**given)
    with pytest.raises(error, match=text):
        roofline_explorer(**given)


# ---------------------------------------------------------------------- the widget
@pytest.fixture
def explorer():
    """Return a new widget."""
    return roofline_explorer()


def test_heads_of_keys_are_divisors_of_the_heads_of_queries(explorer):
    explorer.set("H", 12)
    assert explorer.state.H_kv == 6
    assert list(explorer.controls["H_kv"].options.values()) == [1, 2, 3, 4, 6, 12]
    explorer.set("H", 1)
    assert explorer.state.H_kv == 1
    explorer.set("H", 128)
    assert explorer.state == RooflineState(90, 4096, 128, 128, 1)
    assert explorer.svg == explorer.shown().picture.to_svg()


def test_it_starts_where_it_is_told_to():
    setting = roofline_explorer(100, 1000, 80, 12, 3, B=5, causal=False, density=0.3).state
    assert setting == RooflineState(100, 1000, 80, 12, 3, 5, False, 0.3)
    options = roofline_explorer(density=0.3).controls["density"].options
    assert options == SHARES | {"0.3": 0.3}
