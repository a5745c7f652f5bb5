"""Low rank in Triton: values and gradients against dense polynomials in float64, words against the closed
form, and what the compiler makes of it.
"""

import math
from importlib import metadata
from pathlib import Path

import needs_interpreter  # noqa: F401
import numpy as np
import pytest
import torch
from compiled import as_reported
from hypothesis import example, given, settings
from hypothesis import strategies as st

from iocourse import traffic
from iocourse.costs.lowrank_kernels import LowRank, low_rank_backward, low_rank_bytes, low_rank_forward
from iocourse.gpu import chip_of
from iocourse.guard import LibraryAnswer, exam
from iocourse.lowrank.tensors import launched as low_rank
from iocourse.lowrank.tensors.launched import LowRankTiles, RowsByFeatures, tiles_of
from iocourse.lowrank.tensors.written import launches
from iocourse.monomials import coordinates, features, plan

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
IS_PINNED = f"triton=={metadata.version('triton')}" in CONSTRAINTS.read_text().splitlines()
KINDS = {torch.float32: 3e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}  # of the largest number


def weights_of(p):
    """Of Taylor's series: 1/a! of each monomial."""
    factorials = np.array([math.factorial(l) for l in range(p.g + 1)])
    return torch.tensor(p.multiplicities / factorials[p.degrees], dtype=torch.float32)


def dense(q, k, v, g, variance, scale, shift):
    """O and the denominators from n × n polynomials, in the type of q."""
    s = (q * scale) @ (k if shift is None else k - shift[:, :, None]).mT
    half = torch.zeros(q.shape[:3], dtype=q.dtype) if variance is None else -variance.to(q.dtype) / 2
    weights = torch.zeros_like(s)
    for l in range(g + 1):
        terms = (g - l) // 2 if variance is not None else 0
        factor = sum(half**m / math.factorial(m) for m in range(terms + 1))
        weights = weights + factor[..., None] * s**l / math.factorial(l)
    den = weights.sum(-1)
    return weights @ v / den[..., None], den


def close(got, want, tolerance):
    assert got.shape == want.shape
    assert float((got.double() - want).abs().max()) <= tolerance * (0.1 + float(want.abs().max()))


powers = st.sampled_from([16, 32])
row_blocks = st.builds(RowsByFeatures, powers, powers, st.just(8))
sizes = st.fixed_dictionaries(
    {
        "heads": st.sampled_from([(1, 1), (2, 1), (1, 2)]),
        "n_q": st.one_of(st.integers(1, 20), st.integers(30, 70)),
        "n_k": st.one_of(st.integers(1, 20), st.integers(30, 70)),
        "sizes": st.sampled_from(  # d, dv, g
            [(1, 1, 4), (3, 3, 3), (4, 7, 4), (5, 16, 2), (8, 8, 1), (8, 3, 2), (12, 5, 2), (16, 16, 1)]
        ),
        "dtype": st.sampled_from([torch.float32, torch.float32, torch.float16, torch.bfloat16]),
        "adaptive": st.booleans(),
        "shifted": st.booleans(),
        "scale": st.sampled_from([1.0, 0.4, -0.5]),
        "tiles": st.one_of(st.none(), st.builds(LowRankTiles, row_blocks, row_blocks, row_blocks)),
        "spans": st.sampled_from([1, 2, 7]),
    }
)


def problem(sizes):
    """q, k, v, dO, the plan and the other arguments; logits small enough for positive denominators."""
    (B, H), (d, dv, g), dtype = sizes["heads"], sizes["sizes"], sizes["dtype"]
    generator = torch.Generator().manual_seed(sizes["n_q"] * 101 + sizes["n_k"])

    def numbers(n, columns, size):
        return (torch.rand(B, H, n, columns, generator=generator) * 2 - 1).mul(size).to(dtype)

    size = 0.8 / math.sqrt(d)  # so that |q·k| is at most 0.64
    q, k = numbers(sizes["n_q"], d, size), numbers(sizes["n_k"], d, size)
    v, do = numbers(sizes["n_k"], dv, 1.0), numbers(sizes["n_q"], dv, 1.0)
    variance = torch.rand(B, H, sizes["n_q"], generator=generator) * 0.3 if sizes["adaptive"] else None
    shift = k.float().mean(2) if sizes["shifted"] else None
    return q, k, v, do, plan(d, g), {"variance": variance, "scale": sizes["scale"], "shift": shift}


EVERYTHING = {
    "heads": (2, 1), "n_q": 45, "n_k": 60, "sizes": (4, 7, 4), "dtype": torch.float32,
    "adaptive": True, "shifted": True, "scale": -0.5, "tiles": None, "spans": 2,
}  # fmt: skip
SMALL_TILES = LowRankTiles(*[RowsByFeatures(16, 16)] * 3)


@settings(max_examples=50)
@example(EVERYTHING)
@example(EVERYTHING | {"tiles": SMALL_TILES})
@given(sizes)
def test_values_gradients_and_words(sizes):
    q, k, v, do, p, options = problem(sizes)
    weights = weights_of(p)
    tiling = {"tiles": sizes["tiles"], "spans": sizes["spans"]}
    countable = q.dtype != torch.bfloat16  # else the kernels are given copies
    with traffic.count(**({"Q": q, "K": k, "V": v} if countable else {})) as ledger:
        o, den, T = low_rank.low_rank_forward(q, k, v, p, weights, **options, **tiling)
    assert o.dtype == q.dtype and den.dtype == T.dtype == torch.float32

    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    want, want_den = dense(*leaves, p.g, **options)
    tolerance = KINDS[q.dtype]
    close(o, want.detach(), tolerance)
    close(den, want_den.detach(), 1e-5)

    with traffic.count(**({"Q": q, "K": k, "V": v, "O": o, "dO": do} if countable else {})) as back:
        got = low_rank.low_rank_backward(q, k, v, o, den, T, do, p, weights, **options, **tiling)
    for one, asked, exactly in zip(
        got, (q, k, v), torch.autograd.grad(want, leaves, do.double()), strict=True
    ):
        assert (one.dtype, one.shape) == (asked.dtype, asked.shape)
        close(one, exactly, 4 * tolerance)

    size = LowRank(
        sizes["n_q"], sizes["n_k"], p.d, v.shape[3], p.g, *sizes["heads"],
        variance=sizes["adaptive"], shift=sizes["shifted"],
    )  # fmt: skip
    chosen = sizes["tiles"] or tiles_of(p.rank, v.shape[3])
    if countable:
        expected = low_rank_forward(size, tiles=chosen, spans=sizes["spans"])
        assert ledger == expected, ledger - expected
        assert ledger.bytes_read + ledger.bytes_written == low_rank_bytes(expected, q.element_size())
        expected = low_rank_backward(size, tiles=chosen, spans=sizes["spans"])
        assert back == expected, back - expected


def test_words_of_one_block_are_4nd_and_states_that_know_no_n():
    """THEORY: where the state stays in fast memory, every token is read once, and the rest does not grow."""
    p = plan(5, 2)
    x = {
        n: low_rank_forward(LowRank(n, n, 5, 5, 2), tiles=tiles_of(p.rank, 5), spans=4)
        for n in (256, 4096, 2**20)
    }
    states = {n: ledger.total - 4 * n * 5 - n for n, ledger in x.items()}  # - n: the denominators
    assert len(set(states.values())) == 1
    assert states[256] == (4 + 4 + 1 + 4) * p.rank * 6 + p.rank + (4 + 4) * 2 * p.rank
    q = torch.rand(1, 1, 256, 5)
    with traffic.count(Q=q) as ledger:
        low_rank.low_rank_forward(q, q.clone(), q.clone(), p, weights_of(p))
    assert ledger.total == 4 * 256 * 5 + 256 + states[256]


def test_words_of_k_blocks():
    """K and V are read once a block; the state once a tile of queries."""
    tiles = LowRankTiles(*[RowsByFeatures(32, 16)] * 3)
    p = LowRank(100, 200, 6, 4, 3)
    got = low_rank_forward(p, tiles=tiles, spans=1)
    k = math.ceil(p.rank / 16)
    assert k == 6
    assert (got.reads["K"], got.reads["V"]) == (k * 200 * 6, k * 200 * 4)
    assert got.reads["Q"] == 100 * 6 and got.reads["state"] == 4 * p.rank * 5
    back = low_rank_backward(p, tiles=tiles, spans=1)
    assert back.reads["Q"] == (1 + k) * 100 * 6 and back.reads["K"] == 200 * 6
    assert back.reads["T"] == 4 * p.rank * 5 and back.reads["state"] == 7 * p.rank * 5


@pytest.mark.parametrize(("d", "g"), [(1, 1), (1, 4), (3, 3), (5, 2), (4, 5)])
def test_coordinates_name_every_monomial(d, g):
    p = plan(d, g)
    x = np.random.default_rng(d).normal(size=(7, d))
    named = np.concatenate([x, np.ones((7, 1))], axis=1)[:, coordinates(p)]  # (7, g, rank)
    np.testing.assert_allclose(named.prod(1).T, features(x, p))
    assert ((coordinates(p) != d).sum(0) == p.degrees).all()


def small(n_q=5, n_k=6, d=4, dv=3):
    return torch.rand(1, 2, n_q, d), torch.rand(1, 2, n_k, d), torch.rand(1, 2, n_k, dv)


@pytest.mark.parametrize(("n_q", "n_k"), [(0, 5), (5, 0), (0, 0)])
def test_no_query_and_no_key(n_q, n_k):
    p = plan(4, 2)
    q, k, v = small(n_q, n_k)
    o, den, T = low_rank.low_rank_forward(q, k, v, p, weights_of(p))
    got = low_rank.low_rank_backward(q, k, v, o, den, T, torch.ones_like(o), p, weights_of(p))
    assert not any(x.isnan().any() for x in (o, den, T, *got))
    assert not any(x.any() for x in got)
    if not n_k:
        assert not o.any() and not den.any() and not T.any()


def test_no_head():
    p = plan(4, 2)
    q = torch.rand(0, 2, 5, 4)
    o, den, T = low_rank.low_rank_forward(q, q, q, p, weights_of(p))
    assert (o.shape, den.shape, T.shape) == ((0, 2, 5, 4), (0, 2, 5), (0, 2, p.rank, 5))


def test_any_layout_and_the_same_bits_every_time():
    p, w = plan(4, 2), weights_of(plan(4, 2))
    packed = torch.rand(2, 90, 3, 2, 4)  # (B, N, 3, H, d)
    views = [x.transpose(1, 2) for x in packed.unbind(2)]
    columns = [x.mT.contiguous().mT for x in views]  # a last stride that is not 1
    results = []
    for q, k, v in (views, [x.contiguous() for x in views], columns, views):
        o, den, T = low_rank.low_rank_forward(q, k, v, p, w)
        results.append((o, den, T, *low_rank.low_rank_backward(q, k, v, o, den, T, v, p, w)))
    assert all(torch.equal(x, y) for other in results[1:] for x, y in zip(results[0], other, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"q": torch.rand(1, 4, 5, 4)},
            "k has 2 heads, q 4; allowed: as many as q, low rank knows no groups",
        ),
        ({"q": torch.rand(1, 2, 5, 4).double()}, "q is float64; allowed: float16"),
        (
            {"q": torch.rand(1, 2, 5, 65), "k": torch.rand(1, 2, 6, 65)},
            "q has head size d = 65; allowed here: 1 to 64",
        ),
        ({"v": torch.rand(1, 2, 7, 3)}, r"v has shape \(1, 2, 7, 3\), k \(1, 2, 6, 4\); allowed"),
        ({"v": torch.rand(1, 2, 6, 3).half()}, "v is torch.float16 on cpu, q torch.float32"),
        ({"p": plan(5, 2)}, "p is a plan for 5 coordinates, q has 4"),
        ({"weights": torch.ones(3)}, r"weights has shape \(3,\) on cpu; allowed: \(15,\)"),
        ({"weights": np.ones(15)}, "weights is a ndarray; allowed: a torch tensor"),
        ({"variance": torch.ones(2, 5)}, r"variance has shape \(2, 5\) on cpu; allowed: \(1, 2, 5\)"),
        ({"shift": torch.ones(4)}, r"shift has shape \(4,\) on cpu; allowed: \(1, 2, 4\)"),
    ],
)
def test_bad_input_is_named(change, message):
    q, k, v = small()
    asked = {"q": q, "k": k, "v": v, "p": plan(4, 2), "weights": weights_of(plan(4, 2))} | change
    with pytest.raises((ValueError, TypeError), match=message):
        low_rank.low_rank_forward(**asked)


def test_it_steps_aside_in_an_exam():
    with exam(), pytest.raises(LibraryAnswer):
        low_rank.low_rank_forward(*small(), plan(4, 2), weights_of(plan(4, 2)))


# d, degree, bytes and kernels on a chip, and which kernels are asked about.
ON_CHIPS = {90: (12, 3, 2, 12, ""), 80: (8, 3, 2, 11, ""), 75: (8, 3, 4, 12, "gradient")}


@pytest.fixture(scope="session")
def fitted():
    """(arch, name of a kernel) -> what it takes; one that all keys and the causal mask share, once."""
    made = {}
    for arch, (d, g, width, count, which) in ON_CHIPS.items():
        of_chip = launches(arch, d, g, width)
        assert len(of_chip) == count
        made |= {(arch, one.kernel): launch for one, launch in of_chip.items() if which in one.kernel}
    found = as_reported([(arch, one) for (arch, _), one in made.items()])
    return dict(zip(made, found, strict=True))


@pytest.mark.parametrize("chip", ON_CHIPS)
def test_it_fits_the_chips(fitted, chip):
    """Within shared memory, and nothing spilled by the compiler the tiles were chosen with."""
    of_chip = {name: got for (arch, name), got in fitted.items() if arch == chip}
    assert len(of_chip) == {90: 10, 80: 10, 75: 2}[chip]
    for name, got in of_chip.items():
        assert got.arch == chip and got.shared_bytes <= chip_of(chip).shared_bytes
        assert got.spill_bytes <= (0 if IS_PINNED else 64), (name, str(got))
