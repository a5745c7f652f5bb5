"""Launches of a call: the kernels of its choice, one side if that is all it needs, and never one that does
not fit the chip.
"""

from importlib import import_module

import pytest
import skip_without_interpreter  # noqa: F401
import torch

from iocourse import traffic
from iocourse.data.records import load_record
from iocourse.gpu import CHIPS
from iocourse.gpu.choices import KERNELS_OF
from iocourse.kernels import INTERPRETED, attention, attention_with_lse, resources_of, tiled_mask, using
from iocourse.kernels.host import launches, passes
from iocourse.kernels.host.choices import (
    NAMES,
    PASSES,
    SLICED,
    WHOLE,
    Case,
    choice,
    matrix_bytes_of,
    padded,
    replaced,
)
from iocourse.kernels.host.launches import record_launches
from iocourse.kernels.host.passes import backward_kernels, launch_backward, launch_forward
from iocourse.kernels.host.ranges import Band, VisiblePairs


def kernels_of(call, *, run=True):
    """Return the kernels that a call launches; run: whether they run, too."""
    names, start = [], launches.start

    def noted(name, kernel, *arguments, **constants):
        names.append(kernel.fn.__name__)
        if run:
            start(name, kernel, *arguments, **constants)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launches, "start", noted)
        call()
    return names


# The kernels of a choice.


def test_each_pass_has_a_choice_of_its_own():
    """Complete rows forward, slices backward: what one pass cannot does not bind the other."""
    q, k, v = (torch.randn(1, 1, 20, 8, requires_grad=True) for _ in range(3))
    with replaced({"forward pass": "complete rows", "backward pass": "slices"}):
        names = kernels_of(lambda: attention(q, k, v).sum().backward(), run=False)
    assert names == ["forward_kernel", "row_products_kernel", "sliced_queries_kernel", "sliced_keys_kernel"]


FORWARD = {
    "complete rows": ["forward_kernel"],
    "slices": ["sliced_forward_kernel"],
    "materialised": ["scores_kernel", "averages_kernel"],
}


@pytest.mark.parametrize("way", FORWARD)
def test_kernels_of_the_forward_pass(way):
    q = torch.randn(1, 1, 20, 8)
    with replaced({"forward pass": way}):
        assert kernels_of(lambda: attention(q, q, q)) == FORWARD[way]


MATERIALISED = ["row_products_kernel", "weights_kernel", "query_gradients_kernel", "key_gradients_kernel"]
SLICES = ["row_products_kernel", "sliced_queries_kernel", "sliced_keys_kernel"]
FUSED, TWO_PASS = (
    ["row_products_kernel", "backward_keys_kernel"],
    ["backward_queries_kernel", "backward_keys_kernel"],
)


def launches_of(
    arch, n, d, *, heads=33, deterministic=None, way="", needed="qkv", causal=False, kv_heads=None
):
    """Return the launches of a backward pass on an architecture: 33 heads of 1,024 queries are 264 tiles."""
    q = torch.empty(1, heads, n, d, dtype=torch.bfloat16)
    k = torch.empty(1, kv_heads or heads, n, d, dtype=torch.bfloat16)
    lse, visible = torch.empty(1, heads, n), VisiblePairs(Band(None, 0 if causal else None))
    with record_launches(arch) as made:
        launch_backward(q, None, q, k, k, q, lse, visible, 1.0, deterministic, way, needed)
    return made


def backward_of(*case, **options):
    """Return the kernels of these launches."""
    return [one.kernel.fn.__name__ for one in launches_of(*case, **options)]


def names_of(*case, **options):
    """Return the names of these launches."""
    return [one.name for one in launches_of(*case, **options)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("arch", "d", "n", "deterministic", "kernels"),
    [
        (90, 64, 1024, None, TWO_PASS),
        (90, 64, 1024, True, TWO_PASS),
        (90, 64, 1024, False, FUSED),
        (90, 64, 504, None, FUSED),  # 33 heads of 504 queries are fewer tiles than SMs
        (80, 64, 1024, None, FUSED),
        (80, 64, 1024, True, TWO_PASS),
        (90, 192, 1024, None, SLICES),
        (90, 640, 1024, None, MATERIALISED),
        (90, 640, 1024, True, MATERIALISED),
        (90, 640, 1024, False, MATERIALISED),
        (90, 640, 504, None, SLICES),
        (80, 640, 1024, None, SLICES),
    ],
)
def test_kernels_of_the_backward_pass(arch, d, n, deterministic, kernels, causal):
    assert backward_of(arch, n, d, deterministic=deterministic, causal=causal) == kernels


@pytest.mark.parametrize(
    ("way", "deterministic", "kernels"),
    [
        ("slices", None, SLICES),
        ("materialised", None, MATERIALISED),
        ("complete rows", None, FUSED),
        ("complete rows", True, TWO_PASS),
        ("complete rows", False, FUSED),
    ],
)
def test_a_way_that_the_caller_names_takes_the_place_of_the_choice(way, deterministic, kernels):
    """Also complete rows at a head size that takes slices or stores its weights by default."""
    for d in (192, 320):
        assert backward_of(90, 1024, d, way=way, deterministic=deterministic) == kernels
    if way != "complete rows":
        assert backward_of(90, 1024, 64, way=way, deterministic=deterministic) == kernels


def test_complete_rows_that_the_caller_names_are_the_chosen_ones():
    case = Case(90, 2, 64, rows=2**19)
    assert backward_kernels(case, None, "complete rows") == backward_kernels(case) == "two-pass"
    assert backward_kernels(case, False, "complete rows") == "fused"
    assert backward_kernels(Case(90, 2, 200), True, "complete rows") == "two-pass"


def test_heads_that_share_keys_take_one_kernel():
    assert backward_of(90, 1024, 64, heads=32, kv_heads=8) == FUSED


@pytest.mark.parametrize(
    ("needed", "names"),
    [
        ("q", ["queries"]),
        ("k", ["row_products", "keys"]),
        ("kv", ["row_products", "keys"]),
        ("qv", ["row_products", "fused"]),
    ],
)
def test_one_side_alone_takes_its_kernel_of_the_two(needed, names):
    """Also where all gradients take the fused pass, whose kernel adds to dQ."""
    assert names_of(80, 1024, 64, needed=needed) == names
    assert names_of(90, 1024, 64, needed=needed) == (["queries", "keys"] if needed == "qv" else names)


def test_one_side_takes_slices_where_its_kernel_of_complete_rows_does_not_fit():
    """On a T4 in 16 bits at d = 256, the two kernels take slices; one of them is left out."""
    assert choice("backward pass, fixed order", Case(75, 2, 256)).value == "slices"
    assert backward_of(75, 1024, 256, needed="q") == ["row_products_kernel", "sliced_queries_kernel"]


def test_the_way_of_the_forward_pass_at_320():
    """Slices, by times; complete rows with few queries."""
    for n, kernel in ((4096, "sliced_forward_kernel"), (512, "forward_kernel")):
        q = torch.empty(1, 24, n, 320, dtype=torch.bfloat16)
        with record_launches(90) as made:
            launch_forward(q, q, q, VisiblePairs.all(), 1.0)
        assert [one.kernel.fn.__name__ for one in made] == [kernel]


def test_nothing_is_compiled_to_decide(monkeypatch):
    """A process that could compile would be started by one of these."""

    def refused(*_, **__):
        raise AssertionError("compiled")

    monkeypatch.setattr(import_module("iocourse.gpu.compilation"), "_idle", {})  # no process yet
    monkeypatch.setattr(import_module("iocourse.gpu.compilation"), "_Compiler", refused)
    with pytest.raises(AssertionError, match="compiled"):
        resources_of("row_products", 90)  # the trap works
    for arch in CHIPS:
        for d in (64, 128, 256):
            for name in NAMES:
                mask = "packed" if name == "packed descriptors" else "full"
                assert choice(name, Case(arch, 2, d, mask)).why


# A chip that is too small for any tile.

ROWS = torch.zeros(1, 1, 32, 400)


@pytest.mark.parametrize(
    "options", [{"tile_d": "never"}, {"block_mask": tiled_mask(torch.ones(2, 2).bool(), ROWS, ROWS)}], ids=str
)
def test_whole_rows_that_do_not_fit_are_refused_before_a_launch(options, monkeypatch):
    """d = 512 in float32 on a T4: the recorded tile needs more shared memory than there is."""
    needed = max(
        one["shared_bytes"]
        for one in load_record("resources")["shipped"]
        if (one["arch"], one["d"], one["bytes"], one["pairs"]) == (75, 512, 4, "band")
        and one["kernel"] == "fused"
    )
    assert needed > CHIPS[75].shared_bytes
    q = ROWS.clone().requires_grad_()
    o = attention(q, q, q, **options)
    monkeypatch.setattr(passes, "architecture", lambda device: 75)
    launched = []
    monkeypatch.setattr(launches, "start", lambda *_, **__: launched.append(1))
    with pytest.raises(
        ValueError,
        match=rf"^q has head size 400 in 32 bits, so tiles of complete rows need {needed // 1024} KB of "
        r"shared memory, but sm_75 has 64 KB\. Use a smaller d, 16 bits, or attention without ",
    ):
        o.sum().backward()
    assert not launched and padded(400) == 512 and INTERPRETED


def test_every_default_fits_its_chip():
    """No kernel that a default launches needs more shared memory than the chip has."""
    for arch in CHIPS:
        for itemsize in (2, 4):
            for d in (*range(1, 1025, 63), 64, 128, 256, 512):
                case = Case(arch, itemsize, d)
                for name in PASSES:
                    kernels = passes.OF_PASS.get(choice(name, case).value, ())
                    assert not any("shared_bytes" in choice(one, case).evidence for one in kernels), (
                        name,
                        case,
                    )


def test_the_kernels_of_complete_rows_are_those_of_the_choices():
    recorded = {value: kernels for values in KERNELS_OF.values() for value, kernels in values.items()}
    assert len(passes.OF_PASS) == 3
    assert all(kernels is recorded[value] for value, kernels in passes.OF_PASS.items())


# P and dS of a few heads at once.


def gradients(inputs, do, **options):
    leaves = [x.detach().requires_grad_() for x in inputs]
    o, lse = attention_with_lse(*leaves, **options)
    return torch.autograd.grad((o, lse), leaves, (do, lse.detach()))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "most", "chunks"),  # most: heads of keys at once, in two batches
    [(3, 3, 1, 6), (3, 3, 2, 4), (3, 3, 5, 2), (3, 3, 6, 1), (4, 2, 1, 4), (2, 1, 1, 2)],
)
def test_a_few_heads_at_a_time_give_the_same_bits_and_words(heads, kv_heads, most, chunks):
    source = torch.Generator().manual_seed(0)
    q, do = (torch.randn(2, heads, 19, 20, generator=source) for _ in range(2))
    k, v = (torch.randn(2, kv_heads, 23, 20, generator=source) for _ in range(2))
    options = {"causal": most != 2, "tile_d": "materialised"}
    with traffic.count() as whole:
        expected = gradients((q, k, v), do, **options)
    each = matrix_bytes_of(q, k)
    assert each == 2 * (heads // kv_heads) * 19 * 23 * 4
    got = []
    with using(matrix_bytes=(most + 1) * each - 1), traffic.count() as parts:
        names = kernels_of(lambda: got.extend(gradients((q, k, v), do, **options)))
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert (whole.read, whole.written) == (parts.read, parts.written)
    assert names.count("weights_kernel") == chunks


def test_a_bound_too_small_for_one_head_names_the_bytes():
    q = torch.randn(1, 2, 20, 8, requires_grad=True)
    o = attention(q, q, q, tile_d="materialised")
    needed = 2 * 20 * 20 * 4
    with (
        using(matrix_bytes=needed - 1),
        pytest.raises(ValueError, match=f"^matrix_bytes must be at least {needed:,}, got {needed - 1:,}: P "),
    ):
        o.sum().backward(retain_graph=True)
    with using(matrix_bytes=needed):
        o.sum().backward()
    with pytest.raises(ValueError, match=r"^matrix_bytes must be at least 1, got 0"), using(matrix_bytes=0):
        pass


def test_a_bound_of_the_user_decides_whether_weights_are_stored():
    """In place of the limit of the rows, 1 GiB, in both directions."""
    q = torch.empty(1, 33, 1024, 640, dtype=torch.bfloat16, device="meta")
    each = 2 * 1024 * 1024 * 2
    for most, kernels in ((each - 1, "slices"), (each, "materialised")):
        with using(matrix_bytes=most):
            assert backward_kernels(passes.case_of(90, q, q, VisiblePairs.all())) == kernels
    long = torch.empty(1, 1, 2**15, 640, dtype=torch.bfloat16, device="meta")
    assert matrix_bytes_of(long, long) == 2**32
    assert backward_kernels(passes.case_of(90, long, long, VisiblePairs.all())) == "slices"
    with using(matrix_bytes=2**32):
        assert backward_kernels(passes.case_of(90, long, long, VisiblePairs.all())) == "materialised"


@pytest.mark.parametrize(
    ("band", "mask"),
    [
        ((None, None), "full"),
        ((None, 0), "causal"),
        ((None, 1), "window"),
        ((-5, 0), "window"),
        ((-5, None), "window"),
    ],
)
def test_the_case_of_a_call(band, mask):
    q, k = torch.empty(2, 6, 10, 8, device="meta"), torch.empty(2, 3, 7, 8, device="meta")
    case = passes.case_of(90, q, k, VisiblePairs(Band(*band)))
    assert case == Case(90, 4, 8, mask, group=2, rows=2 * 6 * 10, heads=6, matrices=2 * 2 * 10 * 7 * 4)
    assert {kernel for kernel in (*WHOLE, *SLICED) if not choice(kernel, case).why} == set()
