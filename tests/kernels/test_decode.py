"""One query against a cache: values against float64, words against the closed form, and what is refused."""

import math

import needs_interpreter  # noqa: F401
import oracle
import pytest
import torch
from compiled import as_reported
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import traffic
from iocourse.costs.kernels import Problem, attention_decode
from iocourse.guard import LibraryAnswer, exam
from iocourse.kernels import attention_with_lse, decode
from iocourse.kernels.host.launches import cut, written_down

sizes = st.fixed_dictionaries(
    {
        "B": st.sampled_from([1, 2]),
        "heads": st.sampled_from([(1, 1), (4, 1), (6, 3), (20, 1), (3, 3)]),
        "n_k": st.one_of(st.integers(1, 40), st.integers(100, 250)),
        "d": st.one_of(st.integers(1, 48), st.sampled_from([64, 96, 128, 256])),
        "dtype": st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
        "parts": st.sampled_from([None, 1, 2, 3, 7, 64]),
        "scale": st.sampled_from([None, None, 0.2, -0.1, 0.0]),
    }
)


@settings(max_examples=40)
@given(sizes)
def test_values_and_words(sizes):
    B, (H, H_kv), n_k, d, dtype = (sizes[name] for name in ("B", "heads", "n_k", "d", "dtype"))
    generator = torch.Generator().manual_seed(n_k * 257 + d)

    def numbers(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    q, k, v = numbers(B, H, 1, d), numbers(B, H_kv, n_k, d), numbers(B, H_kv, n_k, d)
    options = {"scale": sizes["scale"]}
    with traffic.count(**({"Q": q, "K": k, "V": v} if dtype != torch.bfloat16 else {})) as ledger:
        o, lse = decode(q, k, v, parts=sizes["parts"], **options)
    allowed = torch.ones(1, n_k, dtype=torch.bool)
    want_o, want_lse = oracle.exact(q, k, v, allowed, sizes["scale"])
    pytorch, _ = oracle.eager(q, k, v, allowed, sizes["scale"])
    assert o.dtype == dtype and lse.dtype == torch.float32 and lse.shape == (B, H, 1)
    assert (
        oracle.error(o, want_o) <= 2 * oracle.error(pytorch, want_o) + oracle.rounding(want_o, dtype) + 2e-6
    )
    assert oracle.error(lse, want_lse) <= 1e-5 * (1 + float(want_lse.abs().max()))
    if options["scale"] is None or options["scale"] > 0:  # else Q is another tensor by then
        parts = ledger.writes["LSE_parts"] // (B * H)
        tiles = 1 if H // H_kv <= 64 else 2
        expected = attention_decode(Problem(1, n_k, d, B=B, H=H, H_kv=H_kv), parts=parts, tiles=tiles)
        assert not ledger - expected, ledger - expected


def test_a_group_larger_than_a_tile_reads_the_keys_once_a_tile():
    q, k = torch.randn(1, 80, 1, 16), torch.randn(1, 1, 50, 16)
    with traffic.count(Q=q, K=k) as ledger:
        o, _ = decode(q, k, k.clone(), parts=1)
    assert ledger.reads["K"] == 2 * 50 * 16
    torch.testing.assert_close(o, oracle.exact(q, k, k, torch.ones(1, 50, dtype=torch.bool), None)[0].float())


@pytest.mark.parametrize("n_k", [1, 31, 32, 33, 1000])
@pytest.mark.parametrize("asked", [1, 2, 3, 64])
def test_parts_are_whole_tiles_and_cover_every_key_once(n_k, asked):
    parts, length = cut(n_k, 32, asked)
    assert 1 <= parts <= asked and length % 32 == 0
    assert (parts - 1) * length < n_k <= parts * length


def test_no_key_and_no_batch():
    o, lse = decode(torch.randn(2, 4, 1, 8), torch.randn(2, 2, 0, 8), torch.randn(2, 2, 0, 8))
    assert not o.any() and (lse == -math.inf).all()
    assert decode(*[torch.randn(0, 2, 1, 8)] * 3)[0].shape == (0, 2, 1, 8)


def test_as_attention_says_it_and_from_any_layout():
    cache = torch.randn(2, 90, 2, 3, 16)  # (B, N, 2, H_kv, d): keys and values side by side
    k, v = (x.transpose(1, 2) for x in cache.unbind(2))
    q = torch.randn(2, 1, 6, 16).transpose(1, 2)
    for got, want in zip(decode(q, k, v), attention_with_lse(q, k, v), strict=True):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()


def test_the_operator_for_torch_compile():
    q, k, v = torch.randn(1, 2, 1, 8), torch.randn(1, 1, 40, 8), torch.randn(1, 1, 40, 8)
    torch.library.opcheck(torch.ops.iocourse.decode, (q, k, v, 0.3, 2))
    step = torch.compile(lambda q, k, v: decode(q * 2, k, v)[0], fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(step(q, k, v), decode(q * 2, k, v)[0])


def test_no_gradient_is_pretended():
    q = torch.randn(1, 1, 1, 8, requires_grad=True)
    o, _ = decode(q, *[torch.randn(1, 1, 5, 8)] * 2)
    with pytest.raises(RuntimeError, match="decode keeps nothing for a backward pass"):
        o.sum().backward()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.zeros(1, 2, 2, 8)}, "q has 2 queries a head; allowed: 1"),
        ({"parts": 0}, "parts"),
        ({"parts": 65}, "parts is 65; allowed: 1 to 64, or None"),
        ({"parts": 1.5}, "parts"),
        ({"scale": math.nan}, "scale is nan; allowed"),
        ({"k": torch.zeros(1, 3, 5, 8)}, "k has 3 heads|v has shape"),
    ],
)
def test_what_is_refused(change, message):
    given = {
        "q": torch.zeros(1, 2, 1, 8),
        "k": torch.zeros(1, 2, 5, 8),
        "v": torch.zeros(1, 2, 5, 8),
    } | change
    with pytest.raises((ValueError, TypeError), match=message):
        decode(**given)


def test_it_steps_aside_in_an_exam():
    with exam(), pytest.raises(LibraryAnswer):
        decode(*[torch.zeros(1, 1, 1, 8)] * 3)


CHIPS = [(75, 128), (80, 256), (90, 64)]


def launches(arch, d):
    dtype = torch.float16 if arch == 75 else torch.bfloat16
    q, k, v = (
        torch.empty(1, 8, 1, d, dtype=dtype),
        *(torch.empty(1, 2, 4096, d, dtype=dtype) for _ in range(2)),
    )
    with written_down(arch) as made:
        decode(q, k, v, parts=4)
    assert len(made) == 2
    return made


@pytest.fixture(scope="session")
def fitted():
    """(arch, d) -> what its two kernels take."""
    found = iter(as_reported([(arch, one) for arch, d in CHIPS for one in launches(arch, d)]))
    return {chip: [next(found), next(found)] for chip in CHIPS}


@pytest.mark.parametrize(("arch", "d"), CHIPS)
def test_it_fits_the_chips(fitted, arch, d):
    """Nothing spilled, within shared memory, on tensor cores where Triton has them."""
    for found in fitted[arch, d]:
        assert found.arch == arch
        assert found.shared_bytes <= {75: 64, 80: 163, 90: 227}[arch] * 1024
        assert found.spill_bytes == 0 or arch == 75
