"""Complete rows or slices of d, where no times decide: by the record of resources and the closed forms."""

from dataclasses import fields

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

from iocourse.gpu import CHIPS
from iocourse.gpu.hot_loop import Loop
from iocourse.kernels import using
from iocourse.kernels.host.choices import SLICED, WHOLE, Case, tile
from tools.bench.resources import whole_rows
from tools.bench.resources.whole_rows import by_bytes, bytes_moved

FORWARD, FIXED, ONE_KERNEL = "forward pass", "backward pass, fixed order", "backward pass, one kernel"
STEP = {field.name: 0 for field in fields(Loop)}  # an iteration of a hot loop
LIMIT = CHIPS[90].shared_bytes


def row(kernel, *, arch=90, d=128, bytes=2, causal=False, pairs="band", spill=0, shared=1000, group=1):
    return {
        "arch": arch, "d": d, "bytes": bytes, "kernel": kernel, "causal": causal, "pairs": pairs,
        "group": group, "spill_bytes": spill, "shared_bytes": shared, "registers": 200, "warps": 8,
        "tensor_core": 20, "async_copies": 4, "bulk_reductions": 0,
    }  # fmt: skip


def forget():
    whole_rows._recorded.cache_clear()
    by_bytes.cache_clear()


@pytest.fixture
def record(monkeypatch):
    """A function that puts these rows in the place of the record."""

    def put(*rows):
        monkeypatch.setattr(whole_rows, "load_record", lambda name: {"shipped": list(rows)})
        forget()

    yield put
    forget()


def test_rows_that_fit_and_move_less_stay_complete(record):
    record(row("forward"), row("forward", causal=True), row("queries"), row("keys"))
    assert by_bytes(FORWARD, 90, 2, 128) == "complete rows" and by_bytes(FIXED, 90, 2, 128) == "two-pass"
    assert by_bytes(FORWARD, 90, 2, 65) == "complete rows"  # the row of 128 stands for 65 to 128
    assert by_bytes(ONE_KERNEL, 90, 2, 128) == "slices"  # of this pass nothing is recorded


@pytest.mark.parametrize("bad", [{"spill": 8}, {"shared": LIMIT + 1}, {"spill": 8, "causal": True}], ids=str)
def test_one_row_that_does_not_fit_is_enough(record, bad):
    record(row("queries"), row("keys"), row("keys", causal=True) | row("keys", **bad))
    assert by_bytes(FIXED, 90, 2, 128) == "slices"


def test_the_last_byte_fits(record):
    record(row("forward", shared=LIMIT))
    assert by_bytes(FORWARD, 90, 2, 128) == "complete rows"


def test_a_spill_counts_where_it_is_in_the_hot_loop(record):
    record(row("forward", spill=48) | {"hot_loop": STEP})
    assert by_bytes(FORWARD, 90, 2, 128) == "complete rows"
    for loop in (STEP | {"spills": 2}, None):
        record(row("forward", spill=48) | {"hot_loop": loop})
        assert by_bytes(FORWARD, 90, 2, 128) == "slices"


def test_a_kernel_that_does_not_compile_does_not_fit(record):
    broken = {
        name: value for name, value in row("forward").items() if name not in ("spill_bytes", "shared_bytes")
    }
    record(row("forward", causal=True), broken | {"error": "out of registers"})
    assert by_bytes(FORWARD, 90, 2, 128) == "slices"


@pytest.mark.parametrize(
    "other",
    [{"arch": 80}, {"d": 64}, {"bytes": 4}, {"pairs": "block_mask"}, {"pairs": "packed"}, {"group": 4}],
    ids=str,
)
def test_other_rows_decide_other_cases(record, other):
    """Rows of other settings have no effect on this one."""
    record(row("forward", **other))
    assert by_bytes(FORWARD, 90, 2, 128) == "slices"
    record(row("forward"), row("forward", **other, spill=100))
    assert by_bytes(FORWARD, 90, 2, 128) == "complete rows"


def test_nothing_recorded_is_no_guess(monkeypatch):
    monkeypatch.setattr(whole_rows, "load_record", lambda name: None)
    forget()
    assert by_bytes(FORWARD, 90, 2, 64) == "slices"
    forget()


def test_bytes_decide_between_ways_that_fit(record, monkeypatch):
    for whole, sliced, value in ((10, 11, "complete rows"), (10, 10, "complete rows"), (11, 10, "slices")):
        record(row("forward"))
        there = {"complete rows": whole, "slices": sliced}
        monkeypatch.setattr(whole_rows, "bytes_moved", lambda name, way, *_, there=there: there[way])
        assert by_bytes(FORWARD, 90, 2, 128) == value


def test_bytes_by_hand():
    """sm_90, d = 128, 16 bits, the forward pass in tiles of 128 × 128: Q and O once, K and V 32 times."""
    case = Case(90, 2, 128, "packed")  # whose tiles are the compiled ones
    assert tile("forward", case)[:2] == (128, 128)
    N, d = 4096, 128
    assert bytes_moved(FORWARD, "complete rows", 90, d, 2) == 2 * (2 * N * d + 2 * 32 * N * d) + 4 * N
    whole = bytes_moved(ONE_KERNEL, "fused", 90, d, 2)
    BN = tile("fused", case).BN
    added = 4 * 2 * (N // BN) * N * d  # dQ is read and written in float32, once for each tile of keys
    assert added < whole < added + 2 * (10 + 2 * N // BN) * N * d


def test_tiles_of_the_user_do_not_change_the_fit():
    """`using` has no effect on what the record holds of the shipped tiles."""
    forget()
    with using(**dict.fromkeys(WHOLE, (16, 16)), **dict.fromkeys(SLICED, (256, 256, 16))):
        assert by_bytes(FORWARD, 75, 2, 256) == "slices"  # does not fit
    forget()
