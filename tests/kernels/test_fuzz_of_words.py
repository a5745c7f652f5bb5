"""Random calls, forward and backward, for gradients of any of q, k and v: every result is within its bound
(see `fuzz`), and the words of every array are those of the closed form. 48 cases, or with IOCOURSE_LONG=1
1,200.
"""

import math
from itertools import accumulate
from typing import Any, NamedTuple

import fuzz
import numpy as np
import pytest
import reference_attention
import skip_without_interpreter  # noqa: F401
import torch
from long_runs import many

from iocourse import traffic
from iocourse.costs import kernels as forms
from iocourse.costs.kernel_masks import BlockLists, PackedSequences
from iocourse.kernels import (
    attention_varlen_with_lse,
    attention_with_lse,
    decode,
    tiled_mask,
    using,
)
from iocourse.kernels.host.checks import band_of, band_parts
from iocourse.kernels.host.choices import SLICED, WHOLE, replaced

MANY, EACH = many(48, 1200), 12
NEEDED = ("q", "k", "v", "qk", "qv", "kv", "qkv", "qkv")
KINDS = ("", "never", "fused", "materialised", "blocks", "predicate", "packed", "packed", "decode")
FAR = (None, -1, 0, 1, 15, 16, 17, 40, 2**31 - 1, 10**12)  # limits of a window


class Call(NamedTuple):
    """A drawn call: a `fuzz.Case`, its kind of `KINDS`, and the inputs that need gradients."""

    case: fuzz.Case
    kind: str
    needed: str
    seen: Any = None  # of a predicate: modulus and remainders
    parts: int | None = None
    last_merges: bool = False


def drawn(seed: int) -> Call:
    """The call of a seed. Sizes are on and next to borders of the tiles."""
    dice = np.random.default_rng([54, seed])

    def one(values: Any) -> Any:
        return values[int(dice.integers(len(values)))]

    def size() -> int:
        return one([1, 2, 15, 16, 17, 31, 32, 33, 48, 49, int(dice.integers(3, 64))])

    kind = KINDS[seed % len(KINDS)]
    n_q, n_k, kv_heads = size(), size(), one([1, 1, 2])
    heads = kv_heads * one([1, 1, 2, 3]), kv_heads
    d = one([1, 8, 15, 16, 17, 32, int(dice.integers(2, 40))])
    options: dict[str, Any] = {"scale": one([None, None, 0.6, -0.4, 0, 3e-3])}
    lengths = blocks = seen = parts = None
    if kind not in ("blocks", "predicate", "decode"):
        options |= {"causal": one([False, True, "lower_right"]), "deterministic": one([None, False, True])}
        options["window"] = one([None, None, (one(FAR), one(FAR))])
    if kind in ("never", "fused", "materialised"):
        options["tile_d"] = kind
    if kind == "packed":
        lengths = tuple((one([0, size()]), one([0, size()])) for _ in range(one([1, 2, 3])))
        n_q, n_k = (max(1, sum(pair[side] for pair in lengths)) for side in (0, 1))
        most = [max(pair[side] for pair in lengths) for side in (0, 1)]
        short = any(sum(pair[side] for pair in lengths) == 0 for side in (0, 1))
        bounds = [tuple(most), (most[0] + 5, most[1] + 40), (4096, 2**40)]
        options["longest"] = one(bounds if short else [None, *bounds])
    if kind in ("blocks", "predicate"):
        options["deterministic"] = one([None, False, True])
        n_q, n_k = max(n_q, 17), max(n_k, 17)  # blocks of 16 and of no other size
        blocks = torch.from_numpy(dice.random((-(-n_q // 16), -(-n_k // 16))) < 0.6)
        seen = (one([2, 3, 5, 20]), one([1, 2]))
    if kind == "decode":
        n_q, n_k, parts = 1, one([1, 16, 63, 127, 129, 300]), one([None, 1, 2, 3, 7])
    shape = {name: tuple(one([16, 16, 32]) for _ in range(2)) for name in WHOLE}
    shape |= {name: tuple(one([16, 32]) for _ in range(3)) for name in SLICED}
    case = fuzz.Case(
        seed, one([torch.float32, torch.float32, torch.float16, torch.bfloat16]),
        1 if lengths else one([1, 1, 2]), heads, (n_q, n_k), d,
        tuple(one(list(fuzz.LAYOUTS)) for _ in range(4)), one([0.3, 1.0, 3.0]),
        lengths, blocks if kind == "blocks" else None, shape, options,
    )  # fmt: skip
    return Call(case, kind, one(NEEDED), seen, parts, bool(one([False, True])))


def allowed_of(call: Call) -> torch.Tensor:
    """Return the visible pairs (n_q, n_k)."""
    if call.kind == "predicate":
        i, j = (torch.arange(n) for n in call.case.sizes)
        return predicate(*call.seen)(0, 0, i[:, None], j[None, :])
    return fuzz.allowed_of(call.case)


def predicate(modulus: int, some: int) -> Any:
    return lambda b, h, i, j: (3 * i + 2 * j) // 16 % modulus < some


def attend(call: Call, q: Any, k: Any, v: Any) -> Any:
    """Return O and LSE (B, H, N, …) of the call."""
    case = call.case
    if call.kind == "decode":
        return decode(q, k, v, parts=call.parts, **case.options)
    if case.lengths is None:
        mask = case.blocks if call.kind == "blocks" else predicate(*call.seen) if call.seen else None
        made = {} if mask is None else {"block_mask": tiled_mask(mask, q[:1, :1], k[:1, :1])}
        return attention_with_lse(q, k, v, **case.options, **made)
    cu = [
        torch.tensor([0, *accumulate(pair[side] for pair in case.lengths)], dtype=torch.int32)
        for side in (0, 1)
    ]
    o, lse = attention_varlen_with_lse(*(x[0].transpose(0, 1) for x in (q, k, v)), *cu, **case.options)
    return o.transpose(0, 1)[None], lse[None]


def closed_forms(call: Call, rows_of_parts: int) -> tuple[Any, Any]:
    """Return the words of the forward pass and of the backward pass.

    rows_of_parts: partial results of a decode step, whose number depends on the bytes of a tile.
    """
    case, tiles = call.case, call.case.tiles
    (H, H_kv), (n_q, n_k), options = case.heads, case.sizes, case.options
    size = (n_q, n_k, case.d)
    heads = {"B": case.batches, "H": H, "H_kv": H_kv}
    band = options.get("causal", False), options.get("window")
    if call.kind == "decode":
        problem = forms.KernelProblem(*size, **heads)
        parts = rows_of_parts // (case.batches * H)
        assert 1 <= parts <= (call.parts or 4) and (n_k < 300 or call.parts == 1 or parts > 1)
        return forms.attention_decode(problem, parts=parts, last_merges=call.last_merges), None
    problem = forms.KernelProblem(*size, *band_of(*band, n_q, n_k), **heads)
    if call.seen:
        problem = BlockLists(*size, **heads, pairs=allowed_of(call)[None, None].numpy())
    if case.lengths is not None:
        left, right, alignment = band_parts(*band, None, max(n_q, n_k))
        own = None if left is None else -left, right
        given = options["longest"]
        longest = None if given is None else (min(given[0], n_q), min(given[1], n_k))
        sums = [sum(pair[side] for pair in case.lengths) for side in (0, 1)]
        problem = PackedSequences(
            *sums, case.d, *own, **heads, lengths=case.lengths, lower_right=alignment == "lower_right",
            longest=longest,
        )  # fmt: skip
    dlse, needed = True, call.needed
    if call.kind == "fused":
        forward = forms.sliced_forward(problem, **cut(tiles["sliced_forward"]))
        queries, keys = tiles["sliced_queries"][:2], tiles["sliced_keys"][:2]
        return forward, forms.sliced_backward(problem, queries=queries, keys=keys, dlse=dlse, needed=needed)
    if call.kind == "materialised":
        forward = forms.scores_forward(problem, scores=tiles["scores"][:2], averages=tiles["averages"])
        made = {name: tiles[name] for name in ("query_gradients", "key_gradients")}
        return forward, forms.scores_backward(
            problem, weights=tiles["weights"][:2], **made, dlse=dlse, needed=needed
        )
    forward = forms.attention_forward(problem, **cut(tiles["forward"]))
    fixed, queries, keys = options["deterministic"], tiles["queries"], tiles["keys"]
    one_side = needed == "q" or "q" not in needed
    if call.seen and not fixed:  # the lists of a mask are made before, for the forward and the fused kernel
        one_side &= needed != "q" or all(a <= b for a, b in zip(tiles["forward"], queries, strict=True))
        queries, keys = tiles["forward"], tiles["fused"]
    if fixed or one_side:
        backward = forms.attention_split_backward(
            problem, queries=queries, keys=keys, dlse=dlse, needed=needed
        )
    else:
        backward = forms.attention_fused_backward(problem, **cut(tiles["fused"]), dlse=dlse)
    return forward, backward


def cut(tile: Any) -> dict[str, int]:
    return {"BM": tile[0], "BN": tile[1]}


def words(ledger: Any) -> Any:
    """Return the words of the arrays, without those of which none moved."""
    return [{name: n for name, n in x.items() if n} for x in (ledger.reads, ledger.writes, ledger.atomics)]


def run(call: Call) -> tuple[dict[str, Any], Any, Any]:
    """Return the results by name, and the ledgers of the two passes."""
    q, k, v, do, dlse = fuzz.tensors(call.case)
    leaves = {
        name: x.detach().requires_grad_(name in call.needed and call.kind != "decode")
        for name, x in zip("qkv", (q, k, v), strict=True)
    }
    step = {"decode step": "last program" if call.last_merges else "second launch"}
    with using(**call.case.tiles), replaced(step):
        with traffic.count() as forward:
            o, lse = attend(call, **leaves)
        found = {"o": o.detach(), "lse": lse.detach()}
        if call.kind == "decode":
            return found, forward, None
        with traffic.count() as backward:
            torch.autograd.backward([o, lse], [do.to(o.dtype), dlse])
    gradients = {f"d{name}": x.grad for name, x in leaves.items()}
    assert {name[1] for name, x in gradients.items() if x is not None} == set(call.needed)
    return found | {name: x for name, x in gradients.items() if x is not None}, forward, backward


def check(call: Call) -> None:
    """Assert that every result is within its bound, and that the words are those of the closed forms."""
    found, *ledgers = run(call)
    q, k, v, do, dlse = fuzz.tensors(call.case)
    allowed, scale = allowed_of(call), call.case.options["scale"]
    wide = (x.double() for x in (q, k, v, do, dlse))
    want = reference_attention.results(lambda *x: reference_attention.exact(*x, allowed, scale), *wide)
    bounds = fuzz.bounds(q, k, v, do, dlse, allowed, scale)
    last, smallest = fuzz.UNITS[call.case.dtype]
    for name, got in found.items():
        exactly, bound = getattr(want, name), getattr(bounds, name)
        # Parts of a decode step are merged by their log-sum-exps: twice the roundings.
        bound = 2 * bound if call.kind == "decode" else bound
        rounding = 0.0 if name == "lse" else last * exactly.abs().nan_to_num(posinf=0.0) + smallest
        off = torch.where(got.double() == exactly, 0.0, (got.double() - exactly).abs())
        part = off.nan_to_num(nan=math.inf) / (bound + rounding + 1e-300)
        assert got.shape == exactly.shape and float(part.max()) <= 1, (name, float(part.max()), call)
    rows_of_parts = ledgers[0].writes.get("LSE_parts", 0)
    for ledger, form in zip(ledgers, closed_forms(call, rows_of_parts), strict=True):
        assert ledger is form is None or words(ledger) == words(form), (ledger - form, call)


# NumPy warns of masked scores that overflow, and of masked elements of uninitialised memory: they are loaded,
# and their results are discarded.
@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")
@pytest.mark.timeout(900)  # where the machine is busy
@pytest.mark.parametrize("first", range(0, MANY, EACH))
def test_values_and_words(first):
    for seed in range(first, min(first + EACH, MANY)):
        check(drawn(seed))


def test_what_is_drawn():
    """Every kind, subset of gradients and type is among the first 48 calls."""
    calls = [drawn(seed) for seed in range(48)]
    assert {call.kind for call in calls} == set(KINDS)
    assert {call.needed for call in calls} == set(NEEDED)
    assert {call.case.dtype for call in calls} == set(fuzz.UNITS)
    packed = (drawn(seed) for seed in range(KINDS.index("packed"), 60 * len(KINDS), len(KINDS)))
    longest = [call.case.options["longest"] for call in packed]
    assert (4096, 2**40) in longest and None in longest
