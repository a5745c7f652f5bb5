"""One query against a cache: values against float64, words against the closed form, and what is refused."""

import json
import math
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import reference_attention
import skip_without_interpreter  # noqa: F401
import torch
from compiled_launches import as_reported
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import traffic
from iocourse.costs.kernels import KernelProblem, attention_decode
from iocourse.course.guard import LibrarySolutionUsed, solutions_blocked
from iocourse.kernels import attention_with_lse, decode
from iocourse.kernels.host import launches as host
from iocourse.kernels.host.choices import replaced
from iocourse.kernels.host.launches import enough_parts, record_launches, split_keys
from tools.bench.resources.compiling import job_of

sizes = st.fixed_dictionaries(
    {
        "B": st.sampled_from([1, 2]),
        "heads": st.sampled_from([(1, 1), (4, 1), (6, 3), (20, 1), (3, 3)]),
        "n_k": st.one_of(st.integers(1, 40), st.integers(100, 250)),
        "d": st.one_of(st.integers(1, 48), st.sampled_from([64, 96, 128, 256])),
        "dtype": st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
        "parts": st.sampled_from([None, 1, 2, 3, 7, 64]),
        "last_merges": st.booleans(),
        "scale": st.sampled_from([None, None, 0.2, -0.1, 0.0]),
    }
)


def merging(last):
    """A block in which the last program of a head merges, or a second launch does, whatever is recorded."""
    return replaced({"decode step": "last program" if last else "second launch"})


@settings(max_examples=40)
@given(sizes)
def test_values_and_words(sizes):
    B, (H, H_kv), n_k, d, dtype = (sizes[name] for name in ("B", "heads", "n_k", "d", "dtype"))
    generator = torch.Generator().manual_seed(n_k * 257 + d)

    def numbers(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    q, k, v = numbers(B, H, 1, d), numbers(B, H_kv, n_k, d), numbers(B, H_kv, n_k, d)
    options = {"scale": sizes["scale"]}
    last = sizes["last_merges"]
    with merging(last), traffic.count(Q=q, K=k, V=v) as ledger:
        o, lse = decode(q, k, v, parts=sizes["parts"], **options)
    allowed = torch.ones(1, n_k, dtype=torch.bool)
    want_o, want_lse = reference_attention.exact(q, k, v, allowed, sizes["scale"])
    pytorch, _ = reference_attention.eager(q, k, v, allowed, sizes["scale"])
    assert o.dtype == dtype and lse.dtype == torch.float32 and lse.shape == (B, H, 1)
    assert (
        reference_attention.error(o, want_o)
        <= 2 * reference_attention.error(pytorch, want_o) + reference_attention.rounding(want_o, dtype) + 2e-6
    )
    assert reference_attention.error(lse, want_lse) <= 1e-5 * (1 + float(want_lse.abs().max()))
    if options["scale"] is None or options["scale"] > 0:  # else Q is another tensor by then
        parts = ledger.writes["LSE_parts"] // (B * H)
        tiles = 1 if H // H_kv <= 64 else 2
        problem = KernelProblem(1, n_k, d, B=B, H=H, H_kv=H_kv)
        expected = attention_decode(problem, parts=parts, tiles=tiles, last_merges=last)
        assert not ledger - expected, ledger - expected
        assert ledger.atomics == expected.atomics


def test_a_group_larger_than_a_tile_reads_the_keys_once_a_tile():
    q, k = torch.randn(1, 80, 1, 16), torch.randn(1, 1, 50, 16)
    with traffic.count(Q=q, K=k) as ledger:
        o, _ = decode(q, k, k.clone(), parts=1)
    assert ledger.reads["K"] == 2 * 50 * 16
    torch.testing.assert_close(
        o, reference_attention.exact(q, k, k, torch.ones(1, 50, dtype=torch.bool), None)[0].float()
    )


# --- the last program of a head merges -------------------------------------------------------------------

CUTS = [  # B, heads of queries and of keys, keys, d, parts
    (2, 6, 2, 300, 16, 3),
    (1, 80, 1, 300, 16, 2),  # two tiles of query heads, 64 and 16, each with a counter
    (1, 2, 1, 8448, 16, 66),  # one block of 64 parts, and 2 of another
    (1, 1, 1, 5, 8, 1),
]


@pytest.fixture(params=[False, True], ids=["in turn", "in another order"])
def order(request, monkeypatch):
    """The order of a launch's programs: by their number, or backwards in strides of 7."""
    from triton.runtime.interpreter import InterpreterBuilder as Builder

    begin = Builder.set_grid_idx

    def set_grid_idx(self, x, y, z):
        programs = self.grid_dim[0]
        step = next(step for step in (7, 11, 13, 1) if math.gcd(step, programs) == 1)
        begin(self, (programs - 1 - x) * step % programs, y, z)

    if request.param:
        monkeypatch.setattr(Builder, "set_grid_idx", set_grid_idx)


@pytest.mark.parametrize("sizes", CUTS, ids=str)
def test_the_last_program_merges_to_the_very_bits_of_a_second_launch(order, sizes, monkeypatch):
    """In any order of programs, again and again with the same counters, which it leaves as they were."""
    B, H, H_kv, n_k, d, parts = sizes
    q, (k, v) = torch.randn(B, H, 1, d), torch.randn(2, B, H_kv, n_k, d)
    expected = decode(q, k, v, parts=parts)
    kept = torch.zeros(B * H_kv * (2 if H > 64 else 1), dtype=torch.int32)
    monkeypatch.setattr(host, "counters", lambda n, like: kept[:n])
    with merging(True), traffic.count() as ledger:
        for _ in range(2):
            for got, want in zip(decode(q, k, v, parts=parts), expected, strict=True):
                assert torch.equal(got, want)
            assert not kept.any()
    assert ledger.atomics == {"arrived": 2 * len(kept) * parts}
    want_o, want_lse = reference_attention.exact(q, k, v, torch.ones(1, n_k, dtype=torch.bool), None)
    assert (
        reference_attention.error(expected[0], want_o) < 2e-6
        and reference_attention.error(expected[1], want_lse) < 2e-6
    )


def test_nothing_is_merged_before_the_last_program_has_come(monkeypatch):
    """If the counter is one too high, the merge is too early: its result is wrong, and the counter
    is not reset.
    """
    q, (k, v) = torch.randn(1, 1, 1, 8), torch.randn(2, 1, 1, 400, 8)
    kept = torch.ones(1, dtype=torch.int32)
    monkeypatch.setattr(host, "counters", lambda n, like: kept)
    with merging(True):
        early = decode(q, k, v, parts=2)[0]
    assert kept.item() == 1 and not torch.equal(early, decode(q, k, v, parts=2)[0])


def test_how_many_parts_where_the_last_program_merges():
    """More parts for few heads, but no more rows than one SM reads in the time of a launch."""

    def made(H, H_kv, N=32768):
        q, k = torch.empty(1, H, 1, 128), torch.empty(1, H_kv, N, 128)
        with merging(True), record_launches(90) as launched:
            decode(q.bfloat16(), k.bfloat16(), k.bfloat16())
        assert [one.kernel.fn.__name__ for one in launched] == ["last_merges_kernel"]
        (shape,) = (one for one in launched[0].arguments if isinstance(one, host.Parts))
        return shape.parts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "processors", lambda arch, device: 132)
        assert made(32, 8) == 32 and made(32, 1) == 32 == host.MERGED_BY_ONE // 32
        assert made(1, 1) == 256  # 512 tiles of keys, two to a part
    assert enough_parts(132, 1, 1024) == host.MOST_PARTS == 264
    assert enough_parts(132, 1) == host.AT_ONCE == 64  # as measured with a second launch


def test_counters_are_kept_for_each_stream_and_a_graph_has_its_own(monkeypatch):
    """As on a GPU: zeros are filled once for a stream, and for all that is captured."""
    made, zeros, now = [], torch.zeros, SimpleNamespace(stream=7, capturing=False)

    def filled(n, **options):
        made.append(n)
        return zeros(n, dtype=options["dtype"])

    monkeypatch.setattr(host, "_counters", {})
    monkeypatch.setattr(host.backend, "INTERPRETED", False)
    monkeypatch.setattr(torch, "zeros", filled)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: now.capturing)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=now.stream))
    like = SimpleNamespace(device=torch.device("cuda", 0))
    first = host.counters(8, like)
    assert host.counters(3, like) is first and first.dtype == torch.int32 and made == [8]
    assert len(host.counters(9, like)) == 9 and host.counters(8, like) is host.counters(9, like)
    kept = host.counters(8, like)
    now.stream = 8
    assert host.counters(8, like) is not kept
    now.stream, now.capturing = 7, True
    captured = host.counters(8, like)
    assert captured is not kept and host.counters(8, like) is not captured
    now.capturing = False
    assert host.counters(8, like) is kept and made == [8, 9, 8, 8, 8]


# --- parts, layouts, what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize("n_k", [1, 31, 32, 33, 1000])
@pytest.mark.parametrize("asked", [1, 2, 3, 64])
def test_parts_are_whole_tiles_and_cover_every_key_once(n_k, asked):
    parts, length = split_keys(n_k, 32, asked)
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
    with pytest.raises(RuntimeError, match="decode has no backward pass"):
        o.sum().backward()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": torch.zeros(1, 2, 2, 8)}, "q must have 1 query per head, got 2"),
        ({"parts": 0}, "parts"),
        ({"parts": 265}, "parts must be None or 1 to 264, got 265"),
        ({"parts": 1.5}, "parts"),
        ({"scale": math.nan}, "scale must be None for 1/√d, .*, got nan"),
        ({"k": torch.zeros(1, 3, 5, 8)}, r"v must have the shape of k, \(1, 3, 5, 8\), got \(1, 2, 5, 8\)"),
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
    with solutions_blocked(), pytest.raises(LibrarySolutionUsed):
        decode(*[torch.zeros(1, 1, 1, 8)] * 3)


CHIPS = [(75, 128), (80, 256), (90, 64), (90, 128), (90, 256)]


def launches(arch, d, last=False):
    dtype = torch.float16 if arch == 75 else torch.bfloat16
    q, k, v = (
        torch.empty(1, 8, 1, d, dtype=dtype),
        *(torch.empty(1, 2, 65536, d, dtype=dtype) for _ in range(2)),
    )
    with merging(last), record_launches(arch) as made:
        decode(q, k, v, parts=264 if last else 4)
    assert len(made) == (1 if last else 2)
    return made


@pytest.fixture(scope="session")
def fitted():
    """Return (arch, d) -> resources of both kernels, and on sm_90 of the one whose last program merges."""
    made = {
        (arch, d): [*launches(arch, d), *(launches(arch, d, last=True) if arch == 90 else [])]
        for arch, d in CHIPS
    }
    found = iter(as_reported([(arch, one) for (arch, _), some in made.items() for one in some]))
    return {chip: [next(found) for _ in some] for chip, some in made.items()}


@pytest.mark.parametrize(("arch", "d"), CHIPS)
def test_it_fits_the_chips(fitted, arch, d):
    """Nothing spilled, within shared memory, on tensor cores where Triton has them."""
    for found in fitted[arch, d]:
        assert found.arch == arch
        assert found.shared_bytes <= {75: 64, 80: 163, 90: 227}[arch] * 1024
        assert found.spill_bytes == 0 or arch == 75


ORDER = """
import json, re, sys
from iocourse.gpu.compile_worker import compile_kernel

ptx = compile_kernel(json.loads(sys.stdin.read())).asm["ptx"]
found = re.findall(r"(bar\\.sync|barrier\\.cta\\.sync|\\batom\\S+|st\\.global|ld\\.global)", ptx)
at = next(i for i, one in enumerate(found) if one.startswith("atom"))
before, after = found[:at], found[at + 1 :]
last_store = max(i for i, one in enumerate(before) if one == "st.global")
first_load = after.index("ld.global")
atomics = sum(one.startswith("atom") for one in found)
print(json.dumps([found[at], before[last_store + 1 :], after[:first_load], atomics]))
"""


def test_compiled_barriers_stand_on_both_sides_of_the_addition():
    """The PTX for sm_90 has the barriers on which the argument in the kernel's docstring depends."""
    (made,) = launches(90, 64, last=True)
    environment = os.environ | {"TRITON_INTERPRET": "0"}
    done = subprocess.run(
        [sys.executable, "-c", ORDER], input=json.dumps(job_of(90, made)), capture_output=True, text=True,
        check=True, env=environment,
    )  # fmt: skip
    atomic, before, after, atomics = json.loads(done.stdout)
    assert atomics == 1 and "acq_rel" in atomic and ".gpu" in atomic
    assert any("sync" in one for one in before) and any("sync" in one for one in after)
