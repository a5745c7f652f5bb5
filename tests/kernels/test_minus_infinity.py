"""A score of -∞ is a score like any other: in every way of running, what float64 SDPA gives.

Keys get it as users give it: a column of Q that is 1 and a column of K that is the bias, -∞ for the keys of
left padding; or by scores below what float32 can hold.
"""

import math

import pytest
import reference_attention
import skip_without_interpreter  # noqa: F401
import torch
from error_tolerance import numbers
from pairwise_cases import settings_of
from test_varlen import pairs_of, starts
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from iocourse import masks
from iocourse.kernels import (
    attention_varlen_with_lse,
    attention_with_lse,
    decode,
    tiled_mask,
    using,
)
from iocourse.kernels.host.choices import SLICED, WHOLE

# NumPy warns where a chip does not: of 0 · -∞ in gradients and in rows past the end, and of scores
# that overflow.
pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow|All-NaN slice):RuntimeWarning")

TILE, N_Q, N_K, D = 16, 21, 37, 8  # ragged both ways, in tiles of 16
# A whole first tile; more than one, and a ragged last one; scattered; every key, so that rows are all -∞.
DEAD = {
    "first tile": range(TILE),
    "more than a tile": range(TILE + 3),
    "scattered": range(1, N_K, 3),
    "all": range(N_K),
}
WAYS = {
    "full": {"deterministic": False},
    "full, two kernels": {"deterministic": True},
    "causal": {"causal": True},
    "lower right, two kernels": {"causal": "lower_right", "deterministic": True},
    "window": {"window": (20, 6), "tile_d": "never"},
    "fused": {"tile_d": "fused"},
    "fused, causal": {"tile_d": "fused", "causal": "lower_right"},
    "materialised": {"tile_d": "materialised"},
    "materialised, window": {"tile_d": "materialised", "window": (20, 6)},
}
SMALL = dict.fromkeys(WHOLE, (TILE, TILE)) | dict.fromkeys(SLICED, (TILE, TILE, TILE))


def with_dead_keys(dead, dtype, how="bias", n_q=N_Q, n_k=N_K, heads=(2, 1)):
    """q, k, v, dO, dLSE, where the keys in `dead` score -∞ for every query."""
    dead = list(dead)
    q, do = numbers(0, dtype, *[(1, heads[0], n_q, D)] * 2)
    k, v = numbers(1, dtype, *[(1, heads[1], n_k, D)] * 2)
    (dlse,) = numbers(2, torch.float32, (1, heads[0], n_q))
    q[..., -1], k[..., -1] = 1.0, 0.0
    if how == "bias":
        k[:, :, dead, -1] = -math.inf
    else:  # float32 has no such number: the score overflows
        q[..., -1], k[:, :, dead, -1] = 2.0**70, -(2.0**70)
    return q, k, v, do, dlse


def sdpa(q, k, v, allowed):
    """O by PyTorch's own formula, and log-sum-exps."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    with sdpa_kernel(SDPBackend.MATH):
        o = scaled_dot_product_attention(q, k, v, attn_mask=allowed)
    s = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~allowed, -math.inf)
    alive = (s > -math.inf).any(-1)
    lse = torch.logsumexp(s.masked_fill(~alive[..., None], 0.0), -1)
    return o, torch.where(alive, lse, -math.inf)


def same(attend, q, k, v, do, dlse, allowed, exact=torch.float64):
    """Compare values and gradients, except where SDPA's are NaN, as for gradients of 0 · -∞."""
    got = reference_attention.results(attend, q, k, v, do, dlse)
    doubles = [x.to(exact) for x in (q, k, v, do, dlse)]
    want = reference_attention.results(lambda *x: sdpa(*x, allowed), *doubles)
    near = 2e-5 if q.dtype == torch.float32 else 2e-2
    for name, one, exactly in zip(want._fields, got, want, strict=True):
        there = ~exactly.isnan()
        assert there.any() and (there.all() or name == "dq"), name
        assert reference_attention.error(one[there], exactly[there]) < near * (1 + size_of(exactly)), name


def size_of(x):
    """The largest finite number of x."""
    return float(torch.where(x.isfinite(), x.abs(), 0.0).max())


def allowed_by(options):
    parts = {name: options.get(name) for name in ("causal", "window", "align")}
    return reference_attention.seen(N_Q, N_K, parts["causal"] or False, parts["window"], parts["align"])


@pytest.mark.parametrize("dead", DEAD)
@pytest.mark.parametrize("way", WAYS)
def test_a_bias_of_minus_infinity(way, dead):
    dtype = torch.float16 if way in ("full", "fused") else torch.float32
    options = WAYS[way]
    with using(**SMALL):
        same(
            lambda *x: attention_with_lse(*x, **options),
            *with_dead_keys(DEAD[dead], dtype), allowed_by(options),
        )  # fmt: skip


@pytest.mark.parametrize("n_q", [16, 21])
@pytest.mark.parametrize("way", ["full", "causal", "fused", "materialised"])
def test_scores_that_overflow(way, n_q):
    q, k, v, do, dlse = with_dead_keys(DEAD["more than a tile"], torch.float32, "overflow", n_q)
    allowed = reference_attention.seen(n_q, N_K, WAYS[way].get("causal", False))
    with using(**SMALL):
        # In float64 they do not overflow: float32's own SDPA is what to equal.
        same(lambda *x: attention_with_lse(*x, **WAYS[way]), q, k, v, do, dlse, allowed, torch.float32)


@pytest.mark.parametrize(
    "setting",
    settings_of({"blocks": ("causal", "all"), "dead": tuple(DEAD), "deterministic": (False, True)}),
    ids=lambda one: "-".join(map(str, one.values())),
)
def test_a_block_mask(setting):
    """Whole tiles of a list pass the last query too."""
    blocks, dead, deterministic = setting.values()
    n = N_K
    tensors = with_dead_keys(DEAD[dead], torch.float32, n_q=n)
    mask = masks.Causal(n) if blocks == "causal" else torch.ones(3, 3, dtype=torch.bool)
    with using(**SMALL):
        cut = tiled_mask(mask, *tensors[:2], block=None if blocks == "causal" else TILE)
        same(
            lambda *x: attention_with_lse(*x, block_mask=cut, deterministic=deterministic),
            *tensors, reference_attention.seen(n, n, blocks == "causal"),
        )  # fmt: skip


PACKED = {"full": {}, "lower right": {"causal": "lower_right"}, "window": {"window": (9, 4)}}


@pytest.mark.parametrize(
    "setting",
    settings_of({"options": tuple(PACKED), "dead": tuple(DEAD), "deterministic": (False, True)}),
    ids=lambda one: "-".join(map(str, one.values())),
)
def test_packed_sequences(setting):
    options, dead, deterministic = PACKED[setting["options"]], setting["dead"], setting["deterministic"]
    lengths = ((4, 18), (0, 2), (17, 17))
    cu = [starts(lengths, side) for side in (0, 1)]

    def attend(*leaves):
        packed = (x[0].transpose(0, 1) for x in leaves)
        o, lse = attention_varlen_with_lse(*packed, *cu, deterministic=deterministic, **options)
        return o.transpose(0, 1)[None], lse[None]

    allowed = pairs_of(lengths, options.get("causal", False), options.get("window"))
    with using(**SMALL):
        same(attend, *with_dead_keys(DEAD[dead], torch.float32), allowed)


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("dead", DEAD)
def test_a_decode_step(dead, parts):
    q, k, v, _, _ = with_dead_keys(DEAD[dead], torch.float32, n_q=1)
    o, lse = decode(q, k, v, parts=parts)
    want = sdpa(*(x.double() for x in (q, k, v)), torch.ones(1, N_K, dtype=torch.bool))
    assert reference_attention.error(o, want[0]) < 1e-5 and reference_attention.error(lse, want[1]) < 1e-5


def test_a_row_of_nothing_but_minus_infinity_is_a_row_that_sees_nothing():
    q, k, v, _, _ = with_dead_keys(DEAD["all"], torch.float32)
    o, lse = attention_with_lse(q, k, v)
    assert not o.any() and (lse == -math.inf).all()


def test_a_score_that_is_not_a_number_stays_one():
    """-∞ is taken as a score; NaN and +∞ are not hidden."""
    for wrong in (math.nan, math.inf):
        q, k, v, _, _ = with_dead_keys([], torch.float32)
        k[:, :, 3, -1] = wrong
        o, lse = attention_with_lse(q, k, v, causal=True)
        assert o[:, :, 3:].isnan().all() and lse[:, :, 3:].isnan().all()
        assert o[:, :, :3].isfinite().all()
