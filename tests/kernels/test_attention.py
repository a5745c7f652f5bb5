"""`attention` against float64, over random shapes, types, masks, layouts and tiles, in Triton's interpreter.

The rule is FlashAttention's own: at most twice the error of same-precision PyTorch, and the result's rounding
besides. See `reference_attention`.
"""

import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import reference_attention
import skip_without_interpreter  # noqa: F401
import torch
from pairwise_cases import all_pairs, pairs_of, settings_of

from iocourse.kernels import attention, attention_with_lse, using
from iocourse.kernels.host.choices import WHOLE

SIXTEEN_BITS = (torch.float16, torch.bfloat16)


class Configuration(NamedTuple):
    """One call of attention, with the options of its backward pass."""

    dtype: torch.dtype
    B: int
    heads: tuple[int, int]
    n_q: int
    n_k: int
    d: int
    causal: Any = False
    window: Any = None
    scale: float | None = None
    deterministic: bool = False
    dlse: bool = False
    layout: str = "contiguous"
    do_layout: str = "contiguous"
    narrower: tuple[int, int] = (0, 0)  # halve BM and BN so often
    seed: int = 0


def block(n: int, halvings: int) -> int:
    """Return the largest tile size that splits n rows into about three tiles and a partial one, halved
    `halvings` times; at least 16.
    """
    return max(16, (1 << max(0, (n // 3).bit_length() - 1)) >> halvings)


def tiles(c: Configuration) -> dict[str, tuple[int, int]]:
    pair = (block(c.n_q, c.narrower[0]), block(c.n_k, c.narrower[1]))
    return dict.fromkeys(WHOLE, pair)


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """The same numbers (B, H, N, d) with other strides."""
    B, H, N, d = x.shape
    if layout == "rows of all heads":  # (B, N, H, d), as a projection leaves them
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "packed":  # every third row of (B, N, 3, H, d), next to the columns of other heads
        packed = torch.full((B, N, 3, H, d + 3), math.nan, dtype=x.dtype)
        packed[:, :, 1, :, 2 : d + 2] = x.transpose(1, 2)
        return packed[:, :, 1, :, 2 : d + 2].transpose(1, 2)
    if layout == "columns first":  # the last stride is N, not 1
        return x.transpose(2, 3).contiguous().transpose(2, 3)
    if layout == "expanded":
        return x[:, :1, :1, :1].expand(B, H, N, d)
    return x


# Less than a tile; then three or four of 16, or of 32, with a ragged edge: first, middle and last are there,
# and every further one is interpreted like the middle one.
LENGTHS = {"part": (1, 20), "of 16": (50, 64), "of 32": (97, 128)}
COLUMNS = {
    "one": (1,),
    "few": (2, 3, 5, 17, 24, 40, 48),
    "most": (64, 80, 96, 100, 128),
    "many": (192, 255, 256),
}
SIDES = (None, -1, 0, 1, 5, 17, 64)
OPTIONS = {
    "dtype": (torch.float16, torch.bfloat16, torch.float32),
    "B": (1, 2),
    "heads": ((1, 1), (2, 1), (2, 2), (4, 2)),
    "n_q": tuple(LENGTHS),
    "n_k": tuple(LENGTHS),
    "d": tuple(COLUMNS),
    "causal": (False, True, "upper_left", "lower_right"),
    "left": SIDES,
    "right": SIDES,
    "scale": (None, 0.3, 0.07, -0.2, 0.0),
    "deterministic": (False, True),
    "dlse": (False, True),
    "layout": ("contiguous", "rows of all heads", "packed", "columns first"),
    "do_layout": ("contiguous", "rows of all heads", "columns first", "expanded"),
    "narrower": ((0, 0), (1, 0), (0, 1)),
}


def configuration(seed: int, setting: dict[str, Any]) -> Configuration:
    """One of OPTIONS each, with lengths and columns of the kinds it names."""
    rng, setting = random.Random(seed), dict(setting)
    sides = setting.pop("left"), setting.pop("right")
    lengths = {name: rng.randint(*LENGTHS[setting[name]]) for name in ("n_q", "n_k")}
    columns = rng.choice(COLUMNS[setting["d"]])
    window = None if sides == (None, None) else sides
    return Configuration(**setting | lengths | {"d": columns, "window": window, "seed": seed})


CONFIGURATIONS = [configuration(*one) for one in enumerate(settings_of(OPTIONS))]
SPECIAL = [
    Configuration(torch.float16, 1, (4, 2), 50, 110, 64, "lower_right", dlse=True),
    Configuration(
        torch.float32, 1, (2, 1), 150, 60, 24, "lower_right", (9, None)
    ),  # queries without visible keys
    Configuration(torch.float32, 1, (1, 1), 50, 60, 16, True, scale=0),  # -∞ · 0 is not a number
    Configuration(torch.float16, 1, (1, 1), 60, 50, 16, True, scale=-0.2),  # and -∞ · -0.2 is the largest
    Configuration(torch.bfloat16, 1, (1, 1), 130, 50, 40, False, (5, 5), deterministic=True, dlse=True),
    Configuration(torch.float32, 1, (1, 1), 100, 1, 256, True, (3, 0)),  # one key: P is 1 or the row is blind
]


def test_blocks_leave_three_tiles_and_an_edge():
    for n in range(48, 200):
        assert 3 <= n / block(n, 0) < 6.1
    assert block(1, 0) == block(47, 0) == 16


def test_every_two_values_of_two_options_meet():
    """And few kinds are left out of the options: 1,400 pairs in less than a hundred configurations."""
    settings = settings_of(OPTIONS)
    assert {pair for one in settings for pair in pairs_of(one)} == all_pairs(OPTIONS)
    assert len(all_pairs(OPTIONS)) > 1400 and len(settings) < 100


def test_the_settings_are_the_same_in_every_process():
    code = "from pairwise_cases import settings_of; print(settings_of(dict(a='xyz', b='pqrs', c='uv')))"
    told = {"cwd": Path(__file__).parent, "text": True}
    seeds = ({**os.environ, "PYTHONHASHSEED": seed} for seed in "123")
    said = {subprocess.check_output([sys.executable, "-c", code], env=env, **told) for env in seeds}
    assert len(said) == 1


@pytest.mark.parametrize("c", [*SPECIAL, *CONFIGURATIONS], ids=lambda c: f"{c.d}-{c.n_q}x{c.n_k}-{c.seed}")
def test_twice_the_error_of_same_precision_pytorch(c: Configuration):
    generator = torch.Generator().manual_seed(c.seed)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(c.dtype)

    H, H_kv = c.heads
    q = laid_out(numbers(c.B, H, c.n_q, c.d), c.layout)
    k, v = (laid_out(numbers(c.B, H_kv, c.n_k, c.d), c.layout) for _ in range(2))
    do = laid_out(numbers(c.B, H, c.n_q, c.d), c.do_layout)
    dlse = torch.randn((c.B, H, c.n_q), generator=generator) if c.dlse else None
    allowed = reference_attention.seen(c.n_q, c.n_k, c.causal, c.window)

    def kernels(*leaves: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        options = {"causal": c.causal, "window": c.window, "scale": c.scale}
        return attention_with_lse(*leaves, **options, deterministic=c.deterministic)

    with using(**tiles(c)):
        got = reference_attention.results(kernels, q, k, v, do, dlse)
    in_float64 = (x.double() for x in (q, k, v))
    want = reference_attention.results(
        lambda *x: reference_attention.exact(*x, allowed, c.scale), *in_float64, do, dlse
    )
    ordinary = reference_attention.results(
        lambda *x: reference_attention.eager(*x, allowed, c.scale), q, k, v, do, dlse
    )
    bounds = reference_attention.bounds(ordinary, want, q, k, v, do, dlse, allowed, c.scale)

    check_what_is_exact(got, allowed)
    for name, one, exactly, bound in zip(got._fields, got, want, bounds, strict=True):
        assert one.dtype == (torch.float32 if name == "lse" else c.dtype)
        assert reference_attention.error(one, exactly) <= bound, name


def check_what_is_exact(got: reference_attention.Results, allowed: torch.Tensor) -> None:
    """A query without visible keys has O = 0, LSE = -∞ and gradient 0; a key without visible queries has
    gradient 0; there is no NaN."""
    blind, unseen = ~allowed.any(1), ~allowed.any(0)
    assert not any(one.isnan().any() for one in got)
    assert torch.equal(got.lse.isneginf(), blind.expand_as(got.lse))
    assert not got.lse.isposinf().any()
    for rows in (got.o[:, :, blind], got.dq[:, :, blind], got.dk[:, :, unseen], got.dv[:, :, unseen]):
        assert not rows.any()


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("causal", [False, "lower_right"])
def test_no_key_at_all(deterministic: bool, causal: Any):
    q = torch.randn(2, 2, 5, 8, requires_grad=True)
    k, v = (torch.randn(2, 1, 0, 8, requires_grad=True) for _ in range(2))
    o, lse = attention_with_lse(q, k, v, causal=causal, deterministic=deterministic)
    (o.sum() + torch.where(lse.isinf(), 0.0, lse).sum()).backward()
    assert not o.any() and lse.isneginf().all() and not q.grad.any()
    assert k.grad.shape == v.grad.shape == k.shape


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("q_shape", [(0, 2, 5, 8), (2, 0, 5, 8), (2, 2, 0, 8)])
def test_no_query_at_all(q_shape: tuple[int, ...], deterministic: bool):
    q = torch.randn(q_shape, requires_grad=True)
    k, v = (torch.randn(q_shape[0], q_shape[1], 7, 8, requires_grad=True) for _ in range(2))
    o, lse = attention_with_lse(q, k, v, deterministic=deterministic)
    (o.sum() + lse.sum()).backward()
    assert o.shape == q.shape and lse.shape == q.shape[:3] and q.grad.shape == q.shape
    assert k.grad.shape == k.shape and not k.grad.any() and not v.grad.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("magnitude", [30.0, 1e-4])
def test_large_and_small_scores_stay_finite(dtype: torch.dtype, magnitude: float):
    """Softmax is exact where one key takes all, and where all keys weigh the same."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 1, 60, 32, dtype=dtype) for _ in range(3))
    allowed = reference_attention.seen(60, 60, True)
    kernels = reference_attention.results(
        lambda *x: attention_with_lse(*x, causal=True, scale=magnitude), q, k, v, torch.ones_like(q), None
    )
    want, _ = reference_attention.exact(q, k, v, allowed, magnitude)
    assert not any(one.isnan().any() or one.isposinf().any() for one in kernels)
    assert reference_attention.error(kernels.o, want) <= (
        2e-3 if dtype == torch.float16 else 1e-3 if magnitude > 1 else 2e-6
    )


def test_minus_infinity_is_not_a_number_to_add():
    """A tile of queries whose first tile of keys is masked for some rows: FlashAttention issues 443 and
    1947."""
    q, k, v = (torch.ones(1, 1, 48, 16, requires_grad=True) for _ in range(3))
    with using(**dict.fromkeys(WHOLE, (16, 16))):
        o, lse = attention_with_lse(q, k, v, window=(3, -1), causal=True)
        o.sum().backward()
    seen = torch.clamp(torch.arange(48) + 1, max=4)
    assert torch.allclose(o, torch.ones_like(o), rtol=0, atol=1e-6)
    assert torch.allclose(lse[0, 0], 4 + torch.log(seen), atol=1e-5)
    assert torch.allclose(q.grad, torch.zeros_like(q), atol=1e-5)


@pytest.mark.parametrize("deterministic_first", [False, True])
@pytest.mark.parametrize("c", CONFIGURATIONS[::9], ids=lambda c: f"{c.d}-{c.n_q}x{c.n_k}-{c.seed}")
def test_fused_and_split_backward_agree(c: Configuration, deterministic_first: bool):
    generator = torch.Generator().manual_seed(c.seed)
    q, k, v, do = (
        torch.randn(1, heads, n, c.d, generator=generator).requires_grad_()
        for heads, n in ((2, c.n_q), (1, c.n_k), (1, c.n_k), (2, c.n_q))
    )
    both = []
    for deterministic in (deterministic_first, not deterministic_first):
        with using(**tiles(c)):
            o = attention(q, k, v, causal=c.causal, window=c.window, deterministic=deterministic)
            both.append(torch.autograd.grad(o, (q, k, v), do.detach()))
    for one, other in zip(*both, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4)
    # dK and dV add up the same tiles in the same order; only dQ's order differs.
    dv_one, dv_other = both[0][2], both[1][2]
    assert torch.equal(dv_one, dv_other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_deterministic_is_bit_equal_over_repeats(dtype: torch.dtype):
    """Every repeat from fresh tensors at other addresses, the heads of one group among them."""
    torch.manual_seed(0)
    numbers = [torch.randn(1, h, n, 24).to(dtype) for h, n in ((4, 90), (2, 110), (2, 110), (4, 90))]
    runs = []
    for _ in range(3):
        q, k, v, do = (x.clone().requires_grad_() for x in numbers)
        with using(queries=(32, 32), keys=(32, 32)):
            o = attention(q, k, v, causal="lower_right", deterministic=True)
            runs.append((o, *torch.autograd.grad(o, (q, k, v), do)))
    for again in runs[1:]:
        assert all(torch.equal(x, y) for x, y in zip(runs[0], again, strict=True))


def launched(monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[str]:
    """The kernels that one forward and backward pass launches, by name."""
    from iocourse.kernels.host import launches

    names: list[str] = []
    make = launches.start

    def noted(name: str, kernel: Any, *arguments: Any, **constants: Any) -> None:
        places = {one: at for at, one in enumerate(kernel.arg_names, 1)}  # the number of programs is first
        with_dq = "dQ_sum" in places and arguments[places["dQ_sum"]] is not None
        names.append(kernel.fn.__name__ + " with dQ" * with_dq)
        make(name, kernel, *arguments, **constants)

    monkeypatch.setattr(launches, "start", noted)
    q, k, v = (torch.randn(1, 1, 20, 8, requires_grad=True) for _ in range(3))
    attention(q, k, v, **options).sum().backward()
    return names


def test_which_kernels_run(monkeypatch: pytest.MonkeyPatch):
    assert launched(monkeypatch) == [
        "forward_kernel", "row_products_kernel with dQ", "backward_keys_kernel with dQ"
    ]  # fmt: skip


def test_which_kernels_run_deterministic(monkeypatch: pytest.MonkeyPatch):
    split = ["forward_kernel", "backward_queries_kernel", "backward_keys_kernel"]
    assert launched(monkeypatch, deterministic=True) == split


def test_torch_can_ask_for_determinism_too(monkeypatch: pytest.MonkeyPatch):
    torch.use_deterministic_algorithms(True)
    try:
        names = launched(monkeypatch)
    finally:
        torch.use_deterministic_algorithms(False)
    assert names[1:] == ["backward_queries_kernel", "backward_keys_kernel"]
