# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The iocourse authors. See LICENSE of the iocourse project.
"""FlashAttention-2 in one file to copy: forward and backward pass in Triton, as a PyTorch operator.

    from flash_attention import attention
    o = attention(q, k, v, causal=True)  # q (B, H, Nq, d); k and v (B, H_kv, Nk, d); o has q's shape
    o.sum().backward()                   # gradients of q, k and v

Needs PyTorch, Triton and an NVIDIA GPU from sm_80 on (sm_75 without bfloat16). Written with PyTorch 2.13 and
Triton 3.7.1. The first call for each d, mask, type, chip and rough length takes seconds, because it compiles
the kernels and times their tiles; make it before you capture a CUDA graph. B and H do not change the tiles.

Supported: float16, bfloat16 and float32; full and causal attention; any lengths; heads that share keys (H_kv
divides H); d = 16, 32, 64, 128 or 256; any strides (a tensor is copied first if its last stride is not 1, or
that of its rows is 2²⁴ or more); torch.compile; vmap, as a loop; gradients through O and through the
log-sum-exps, bit-equal from run to run with equal tiles.
Causal: query i attends to the keys j ≤ i, also where Nq and Nk differ (upper left, as in PyTorch's SDPA).
Not supported: windows and other masks, packed sequences, dropout, autocast (q, k and v keep their types),
second derivatives, forward-mode derivatives (an error), torch.func.grad, vjp and jacrev.
Large scores: they are rounded in float32, so a weight has a relative error of about 10⁻⁷ times the largest
|scale · q·k|, for example 10⁻³ at 10⁴. From 10⁶ on results are wrong, and from 10¹⁰ on they may be ∞ or NaN.

Compiled for sm_80, sm_90 and sm_100 and its machine code read; timed on no GPU yet. Without a GPU, set
TRITON_INTERPRET=1 before triton is imported; Triton's interpreter computes wrong numbers in bfloat16.
"""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError(
        "flash_attention.py needs Triton. Install it (pip install triton, on Linux), or use "
        "torch.nn.functional.scaled_dot_product_attention instead"
    ) from error

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)
LOWEST = tl.constexpr(-3.4028234663852886e38)  # the finite float32 before -∞
INTERPRETED = triton.knobs.runtime.interpret
if INTERPRETED and isinstance(tl.sum, triton.JITFunction):
    raise ImportError("TRITON_INTERPRET was set after triton was imported. Set it before Python starts")

__all__ = ["attention", "attention_with_lse"]


# --- The choice of tiles -----------------------------------------------------------------------------------

# (BM queries, BN keys, warps, stages): (the largest d at which the tile is tried in 16 bits before sm_90, in
# 16 bits from sm_90 on, in float32). There its loop spills no registers, except where a comment states it.
Tiles = dict[tuple[int, int, int, int], tuple[int, int, int]]
# float32 is multiplied on ordinary cores, with factors in registers, so its tiles are small. They are also
# tried in 16 bits, for chips with little shared memory.
SMALL: Tiles = {
    (32, 32, 8, 1): (256, 256, 64),
    (16, 16, 8, 1): (0, 0, 256),  # dQ spills at d = 256
}
FORWARD_TILES: Tiles = {
    (64, 64, 4, 3): (128, 128, 0),
    (128, 64, 4, 3): (64, 64, 0),
    (128, 128, 8, 3): (0, 128, 0),
    (64, 64, 8, 2): (256, 256, 0),
}
QUERIES_TILES: Tiles = {
    (64, 64, 4, 3): (128, 128, 0),
    (128, 64, 8, 3): (64, 128, 0),
    (64, 32, 8, 2): (256, 256, 0),
}
KEYS_TILES: Tiles = {
    (64, 64, 4, 3): (0, 64, 0),
    (64, 128, 8, 3): (64, 128, 0),  # spills at d = 128 on sm_90
    (64, 64, 8, 3): (128, 128, 0),
    (32, 64, 8, 2): (256, 256, 0),
}


def tuned(tiles: Tiles) -> Callable[[Any], Any]:
    """Return a decorator. The first launch for a d, mask, type, chip and rough length measures the time of
    each tile, and later launches use the fastest.
    """
    largest_d = {
        triton.Config({"BM": BM, "BN": BN}, num_warps=warps, num_stages=stages): limits
        for (BM, BN, warps, stages), limits in (tiles | SMALL).items()
    }

    def without_spills(configs: list[Any], arguments: dict[str, Any], d: int, **_: Any) -> list[Any]:
        column = 2 if arguments["Q"].dtype == torch.float32 else int(arguments["chip"] >= 90)
        return [config for config in configs if d <= largest_d[config][column]]

    configs = [*largest_d][:1] if INTERPRETED else [*largest_d]  # the interpreter has no times to compare
    decorator: Callable[[Any], Any] = triton.autotune(
        configs,
        key=["d", "CAUSAL", "length", "chip"],  # the kernels have the last two arguments only for this
        prune_configs_by={"early_config_prune": without_spills},
    )
    return decorator


# --- Tiles of rows -----------------------------------------------------------------------------------------


@triton.jit
def program_place(tiles, H, LAST_FIRST: tl.constexpr):
    """Return the tile, batch and head of this program; tiles: number of them per head."""
    tile, pair = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    if LAST_FIRST:
        tile = tiles - 1 - tile  # with a causal mask it has the most work, so it starts first
    return tile, pair // H, pair % H


@triton.jit
def head_of(X, strides, batch, head):
    """Return a pointer to the first row of a head. strides: over batch, head and row."""
    # 64 bits, because an offset may be larger than 2³¹.
    return X + batch.to(tl.int64) * strides[0] + head.to(tl.int64) * strides[1]


@triton.jit
def rows_from(X, strides, start, ROWS: tl.constexpr, d: tl.constexpr):
    """Return pointers (ROWS, d) to the rows of a head from row `start` on."""
    # The offsets within a tile are the same in every iteration and fit in 32 bits (see `rows_together`).
    within = tl.arange(0, ROWS)[:, None] * strides[2] + tl.arange(0, d)[None, :]
    return X + tl.cast(start, tl.int64) * strides[2] + within


@triton.jit
def load_rows(X, strides, start, n, ROWS: tl.constexpr, d: tl.constexpr, CHECK: tl.constexpr):
    """Load a tile (ROWS, d) from row `start` on. CHECK: it may have rows out of bounds (from n on), which are
    then equal to the last row.
    """
    if CHECK:
        # Not zeros: a key with ∞ would give a query out of bounds the score 0 · ∞ = NaN.
        rows = tl.minimum(start + tl.arange(0, ROWS), n - 1)
        tile = tl.load(X + rows.to(tl.int64)[:, None] * strides[2] + tl.arange(0, d)[None, :])
    else:
        tile = tl.load(rows_from(X, strides, start, ROWS, d))
    return tile


@triton.jit
def store_rows(tile, X, strides, start, n):
    """Store the rows of a tile that are below n, in X's type."""
    ROWS: tl.constexpr = tile.shape[0]
    pointers = rows_from(X, strides, start, ROWS, tile.shape[1])
    tl.store(pointers, tile.to(X.dtype.element_ty), mask=start + tl.arange(0, ROWS)[:, None] < n)


# --- Forward pass ------------------------------------------------------------------------------------------


@triton.jit
def absorb(acc, m, l, q, k, v, scale, seen=None):
    """Add one tile of keys to the online softmax. Returns the new acc (BM, d), m (BM,) and l (BM,).

    q (BM, d); k and v (BN, d); seen (BM, BN): True for visible pairs, None for a full block. scale includes
    log₂ e, because the GPU's exponential is 2ˣ. acc, m and l are in float32.
    """
    # "ieee" is for float32, which is otherwise rounded to TF32. It does not change products of 16 bits.
    s = tl.dot(q, tl.trans(k), input_precision="ieee")  # (BM, BN)
    if seen is not None:
        s = tl.where(seen, s, float("-inf"))
    # The scale is positive, so the maximum may be scaled after the reduction: once per row, not per score.
    m_new = tl.maximum(m, tl.max(s, 1) * scale)
    p = tl.exp2(s * scale - m_new[:, None])  # one multiply-add per score, then the exponential
    old = tl.exp2(m - m_new)
    l = l * old + tl.sum(p, 1)  # before p is rounded to v's type, which tensor cores need
    acc = tl.dot(p.to(v.dtype), v, acc * old[:, None], input_precision="ieee")
    return acc, m_new, l


@triton.jit
def visible(i, j, Nk, CAUSAL: tl.constexpr):
    """Return a mask: True where query i attends to key j. i and j broadcast; keys from Nk on are masked."""
    seen = j < Nk
    if CAUSAL:
        seen = seen & (j <= i)
    return seen


@triton.jit
def borders_of_keys(first, Nk, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Return the ends of the full and of the partial blocks of keys, for BM queries from `first` on."""
    if CAUSAL:
        full, end = tl.minimum(first + 1, Nk) // BN * BN, tl.minimum(first + BM, Nk)
    else:
        full, end = Nk // BN * BN, Nk
    return full, end


@tuned(FORWARD_TILES)
@triton.jit(do_not_specialize=["Nq", "Nk", "length", "chip"])
def forward_kernel(
    Q, K, V, O, LSE, q_strides, k_strides, v_strides, o_strides, H, group, Nq, Nk, length, chip, scale,
    d: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """BM rows of O and LSE: first the full blocks of keys, then the partial ones."""
    tile, batch, head = program_place(tl.cdiv(Nq, BM), H, CAUSAL)
    first = tile * BM
    K, V = head_of(K, k_strides, batch, head // group), head_of(V, v_strides, batch, head // group)
    q = load_rows(head_of(Q, q_strides, batch, head), q_strides, first, Nq, BM, d, True)
    i = first + tl.arange(0, BM)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    # Not -∞: if all scores of the first block are -∞, then -∞ - (-∞) = NaN.
    m = tl.full((BM,), LOWEST, dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    full, end = borders_of_keys(first, Nk, CAUSAL, BM, BN)
    for start in tl.range(0, full, BN):
        k = load_rows(K, k_strides, start, Nk, BN, d, False)
        v = load_rows(V, v_strides, start, Nk, BN, d, False)
        acc, m, l = absorb(acc, m, l, q, k, v, scale * LOG2_E)
    # Not pipelined (one stage): with a second pipelined loop, sm_90 waits for each product of the first.
    for start in tl.range(full, end, BN, num_stages=1):
        k = load_rows(K, k_strides, start, Nk, BN, d, True)
        v = load_rows(V, v_strides, start, Nk, BN, d, True)
        j = start + tl.arange(0, BN)
        seen = visible(i[:, None], j[None, :], Nk, CAUSAL)
        acc, m, l = absorb(acc, m, l, q, k, v, scale * LOG2_E, seen)
    store_rows(acc / l[:, None], head_of(O, o_strides, batch, head), o_strides, first, Nq)
    rows = (batch * H + head).to(tl.int64) * Nq + i
    tl.store(LSE + rows, (m + tl.log2(l)) * LN_2, mask=i < Nq)


# --- Backward pass -----------------------------------------------------------------------------------------


@triton.jit
def weights_and_gradients(a, b, da, db, L, D, scale, seen=None):
    """Return the weights p and the gradients ds of one tile of scores, in float32, before the factor scale.

    dQ needs them by queries: a = q, b = k, da = do, db = v, and L and D are columns (BM, 1). dK and dV need
    them transposed: a = k, b = q, da = v, db = do, and L and D are rows (1, BM). L: log-sum-exps; scale and L
    include log₂ e. seen: True for visible pairs, None for a full block.
    """
    s = tl.dot(a, tl.trans(b), input_precision="ieee")
    # The log-sum-exp of a row gives its final weights at once, without a maximum and a division.
    p = tl.exp2(s * scale - L)
    if seen is not None:
        p = tl.where(seen, p, 0.0)
    ds = p * (tl.dot(da, tl.trans(db), input_precision="ieee") - D)
    return p, ds


@tuned(QUERIES_TILES)
@triton.jit(do_not_specialize=["Nq", "Nk", "length", "chip"])
def queries_kernel(
    Q, K, V, O, dO, LSE, dLSE, D, dQ, q_strides, k_strides, v_strides, o_strides, do_strides, dq_strides,
    H, group, Nq, Nk, length, chip, scale,
    d: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """BM rows of dQ = scale · dS K. Their D = rowsum(dO ∘ O) - dLSE is stored for the next kernel.

    dLSE, the gradient of the log-sum-exp, adds dLSE · P to dS, which is the same as subtracting it from D.
    """
    tile, batch, head = program_place(tl.cdiv(Nq, BM), H, CAUSAL)
    first = tile * BM
    K, V = head_of(K, k_strides, batch, head // group), head_of(V, v_strides, batch, head // group)
    q = load_rows(head_of(Q, q_strides, batch, head), q_strides, first, Nq, BM, d, True)
    o = load_rows(head_of(O, o_strides, batch, head), o_strides, first, Nq, BM, d, True)
    do = load_rows(head_of(dO, do_strides, batch, head), do_strides, first, Nq, BM, d, True)
    i = first + tl.arange(0, BM)
    rows = (batch * H + head).to(tl.int64) * Nq + i
    # A query out of bounds has the log-sum-exp +∞, so its weights are 0.
    L = tl.load(LSE + rows, mask=i < Nq, other=float("inf"))[:, None] * LOG2_E
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1) - tl.load(dLSE + rows, mask=i < Nq, other=0.0)
    tl.store(D + rows, delta, mask=i < Nq)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    full, end = borders_of_keys(first, Nk, CAUSAL, BM, BN)
    for start in tl.range(0, full, BN):
        k = load_rows(K, k_strides, start, Nk, BN, d, False)
        v = load_rows(V, v_strides, start, Nk, BN, d, False)
        _, ds = weights_and_gradients(q, k, do, v, L, delta[:, None], scale * LOG2_E)
        acc = tl.dot(ds.to(k.dtype), k, acc, input_precision="ieee")
    for start in tl.range(full, end, BN, num_stages=1):
        k = load_rows(K, k_strides, start, Nk, BN, d, True)
        v = load_rows(V, v_strides, start, Nk, BN, d, True)
        j = start + tl.arange(0, BN)
        seen = visible(i[:, None], j[None, :], Nk, CAUSAL)
        _, ds = weights_and_gradients(q, k, do, v, L, delta[:, None], scale * LOG2_E, seen)
        acc = tl.dot(ds.to(k.dtype), k, acc, input_precision="ieee")
    store_rows(acc * scale, head_of(dQ, dq_strides, batch, head), dq_strides, first, Nq)


@tuned(KEYS_TILES)
@triton.jit(do_not_specialize=["Nq", "Nk", "length", "chip"])
def keys_kernel(
    Q, K, V, dO, LSE, D, dK, dV, q_strides, k_strides, v_strides, do_strides, dk_strides, dv_strides,
    H, group, Nq, Nk, length, chip, scale,
    d: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """BN rows of dK = scale · dSᵀ Q and dV = Pᵀ dO, for one head of keys.

    The program sums over the `group` query heads of its keys in a fixed order, so it needs no atomics.
    """
    tile, batch, key_head = program_place(tl.cdiv(Nk, BN), H // group, False)
    first = tile * BN
    k = load_rows(head_of(K, k_strides, batch, key_head), k_strides, first, Nk, BN, d, True)
    v = load_rows(head_of(V, v_strides, batch, key_head), v_strides, first, Nk, BN, d, True)
    j = first + tl.arange(0, BN)[:, None]
    dk = tl.zeros((BN, d), dtype=tl.float32)
    dv = tl.zeros((BN, d), dtype=tl.float32)
    # The blocks of queries from `full` to `full_end` are full: all their queries attend to all BN keys.
    # Example (causal, BM = BN = 64, Nq = 1000, first = 128): begin = 128, full = 192, full_end = 960. The
    # partial blocks start at 128 and 960, where `at` is 128 and 192.
    begin, full, full_end = 0, 0, Nq // BM * BM
    if CAUSAL:
        begin = tl.minimum(first, Nq) // BM * BM
        full = tl.minimum(tl.cdiv(first + BN - 1, BM) * BM, full_end)
    if first + BN > Nk:
        full = full_end  # in every block a key is out of bounds
    for member in range(group):
        head = key_head * group + member
        q_head, do_head = head_of(Q, q_strides, batch, head), head_of(dO, do_strides, batch, head)
        rows = (batch * H + head).to(tl.int64) * Nq
        for start in tl.range(full, full_end, BM):
            q = load_rows(q_head, q_strides, start, Nq, BM, d, False)
            do = load_rows(do_head, do_strides, start, Nq, BM, d, False)
            i = start + tl.arange(0, BM)[None, :]
            L, delta = tl.load(LSE + rows + i) * LOG2_E, tl.load(D + rows + i)
            p, ds = weights_and_gradients(k, q, v, do, L, delta, scale * LOG2_E)
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
            dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
        # The partial blocks: those before the full ones, on the diagonal, and the last one. They come second,
        # because in the other order sm_90 waits for each product.
        for at in tl.range(begin, Nq - (full_end - full), BM, num_stages=1):
            start = tl.where(at < full, at, at + full_end - full)
            q = load_rows(q_head, q_strides, start, Nq, BM, d, True)
            do = load_rows(do_head, do_strides, start, Nq, BM, d, True)
            i = start + tl.arange(0, BM)[None, :]
            L = tl.load(LSE + rows + i, mask=i < Nq, other=float("inf")) * LOG2_E
            delta = tl.load(D + rows + i, mask=i < Nq, other=0.0)
            seen = visible(i, j, Nk, CAUSAL)
            p, ds = weights_and_gradients(k, q, v, do, L, delta, scale * LOG2_E, seen)
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
            dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
    store_rows(dk * scale, head_of(dK, dk_strides, batch, key_head), dk_strides, first, Nk)
    store_rows(dv, head_of(dV, dv_strides, batch, key_head), dv_strides, first, Nk)


# --- PyTorch -----------------------------------------------------------------------------------------------


TYPES, HEAD_SIZES = (torch.float16, torch.bfloat16, torch.float32), (16, 32, 64, 128, 256)
COMPILED_FOR = (80, 90, 100)  # compute capabilities, times ten
# Each copy of this file has its own operators, also where modules share a name.
COPY = hashlib.sha256(f"{__name__} {globals().get('__file__')}".encode()).hexdigest()[:8]
NAMESPACE = f"flash_attention_{COPY}"
LAUNCH = threading.Lock()  # Triton's tuner has one place for the arguments of a launch, for all threads


def check_inputs(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float | None) -> None:
    """Raise an error with one line for inputs that the kernels cannot compute."""
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or x.layout != torch.strided or x.is_nested:
            raise TypeError(f"{name} ({type(x).__name__}) is not a dense torch.Tensor. Convert it, or pad it")
        if x.dtype not in TYPES:
            raise TypeError(f"{name} is {x.dtype}. Allowed: float16, bfloat16 or float32. Use {name}.to(...)")
        if x.ndim != 4 or x.numel() == 0:
            raise ValueError(
                f"{name} has the shape {tuple(x.shape)}. Allowed: (batch, heads, rows, d), no size 0. Add "
                "axes of length 1, or skip the call for empty inputs"
            )
        if x.shape[3] not in HEAD_SIZES:
            raise ValueError(
                f"{name} has d = {x.shape[3]}. Allowed: 16, 32, 64, 128 or 256. Pad q, k and v with zeros, "
                f"and pass scale={x.shape[3]}**-0.5"
            )
        if (x.dtype, x.device) != (q.dtype, q.device):
            raise TypeError(
                f"{name} is {x.dtype} on {x.device}, q is {q.dtype} on {q.device}. Allowed: one type, one "
                f"device. Use {name}.to(q)"
            )
        if forward_ad.unpack_dual(x).tangent is not None:
            raise NotImplementedError(f"{name} has a tangent. Allowed: reverse mode, such as backward()")
    (B, H, _, d), (B_kv, H_kv, _, d_kv) = q.shape, k.shape
    if k.shape != v.shape or (B, d) != (B_kv, d_kv) or H % H_kv:
        raise ValueError(
            f"q has the shape {tuple(q.shape)}, k {tuple(k.shape)} and v {tuple(v.shape)}. Allowed: k and v "
            "of one shape, with q's batch and d, and with a number of heads that divides q's"
        )
    if not isinstance(causal, bool):
        raise TypeError(f"causal is a {type(causal).__name__}. Allowed: True or False")
    if not isinstance(scale, (int, float, type(None))):
        raise TypeError(f"scale is a {type(scale).__name__}. Allowed: a Python number. Use float(scale)")
    if scale is not None and not 1e-37 <= scale <= 1e38:
        raise ValueError(f"scale is {scale!r:.40}. Allowed: from 1e-37 to 1e38. For -scale pass -q")


def chip_of(device: torch.device) -> int:
    """Return the compute capability of a GPU times ten (sm_90: 90), and 0 for another device."""
    major, minor = torch.cuda.get_device_capability(device) if device.type == "cuda" else (0, 0)
    return 10 * major + minor


def check_device(device: torch.device, dtype: torch.dtype) -> None:
    """Raise a ValueError if the kernels cannot run on a device; warn if they were not compiled for it."""
    if INTERPRETED:
        if dtype == torch.bfloat16:
            warn_once("Triton's interpreter computes wrong numbers in bfloat16. Use float16 or float32")
        return
    if device.type != "cuda":
        raise ValueError(
            f"q is on {device}. Allowed: a CUDA GPU. Move q, k and v there, or set TRITON_INTERPRET=1 before "
            "triton is imported"
        )
    chip, name = chip_of(device), torch.cuda.get_device_name(device)
    if chip < (80 if dtype == torch.bfloat16 else 75):
        raise ValueError(
            f"q is {dtype} on {name}, sm_{chip}. Allowed: sm_80 or later, or sm_75 without bfloat16. Use "
            "another type or scaled_dot_product_attention"
        )
    if chip not in COMPILED_FOR or torch.version.hip:
        warn_once(
            f"attention runs on {name}, sm_{chip}. flash_attention.py was compiled for sm_80, sm_90 and "
            "sm_100 only, and timed on no GPU. Compare its results with those of scaled_dot_product_attention"
        )


@cache
def warn_once(text: str) -> None:
    """Warn, once for each text."""
    warnings.warn(text, stacklevel=2)


def rows_together(x: Tensor) -> Tensor:
    """Return x, or a copy if the numbers of a row are not next to each other in memory, or its rows so far
    apart that offsets in a tile of 128 rows do not fit in 32 bits.
    """
    return x if x.stride(3) == 1 and x.stride(2) < 2**24 else x.contiguous()


def result_like(x: Tensor) -> Tensor:
    """Return an empty tensor without gaps, in memory (B, N, H, d) if x has that order, else (B, H, N, d)."""
    if x.stride(1) < x.stride(2):
        return torch.empty_like(x.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2)
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def strides_of(x: Tensor) -> tuple[int, ...]:
    """Return the strides over batch, head and row."""
    batch, head, row, _ = x.stride()
    return batch, head, row


def sizes(q: Tensor, k: Tensor) -> tuple[int, ...]:
    """Return H, query heads per head of keys, Nq, Nk, and for the tuner a rough length and the chip: tiles
    are tuned for powers of two from 512 to 4096, not for every length.
    """
    H, Nq, Nk = q.shape[1], q.shape[2], k.shape[2]
    length = min(max(512, triton.next_power_of_2(max(Nq, Nk))), 4096)
    return H, H // k.shape[1], Nq, Nk, length, chip_of(q.device)


@torch.library.custom_op(f"{NAMESPACE}::forward", mutates_args=())
def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Return O (B, H, Nq, d) in q's type and order, and the log-sum-exps (B, H, Nq) in float32."""
    check_device(q.device, q.dtype)
    q, k, v = rows_together(q), rows_together(k), rows_together(v)
    B, H, Nq, d = q.shape
    o, lse = result_like(q), q.new_empty((B, H, Nq), dtype=torch.float32)
    with LAUNCH, torch.cuda.device_of(q):
        forward_kernel[lambda tile: (B * H * triton.cdiv(Nq, tile["BM"]),)](
            q, k, v, o, lse, *map(strides_of, (q, k, v, o)), *sizes(q, k), scale, d=d, CAUSAL=causal
        )
    return o, lse


@forward.register_fake  # the results without their values, for torch.compile
def fake_forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    return result_like(rows_together(q)), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op(f"{NAMESPACE}::backward", mutates_args=())
def backward(
    do: Tensor, dlse: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return dQ, dK and dV, each in the type and order of its input."""
    do, q, k, v, o = (rows_together(x) for x in (do, q, k, v, o))
    dlse, lse = dlse.contiguous(), lse.contiguous()
    B, H, Nq, d = q.shape
    dq, dk, dv, D = result_like(q), result_like(k), result_like(v), torch.empty_like(lse)
    with LAUNCH, torch.cuda.device_of(q):
        queries_kernel[lambda tile: (B * H * triton.cdiv(Nq, tile["BM"]),)](
            q, k, v, o, do, lse, dlse, D, dq, *map(strides_of, (q, k, v, o, do, dq)), *sizes(q, k), scale,
            d=d, CAUSAL=causal,
        )  # fmt: skip
        keys_kernel[lambda tile: (B * k.shape[1] * triton.cdiv(k.shape[2], tile["BN"]),)](
            q, k, v, do, lse, D, dk, dv, *map(strides_of, (q, k, v, do, dk, dv)), *sizes(q, k), scale,
            d=d, CAUSAL=causal,
        )  # fmt: skip
    return dq, dk, dv


@backward.register_fake
def fake_backward(
    do: Tensor, dlse: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    dq, dk, dv = (result_like(rows_together(x)) for x in (q, k, v))
    return dq, dk, dv


def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Save the tensors of the backward pass. It recomputes the scores, so none are stored."""
    q, k, v, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, *output)


def gradients(ctx: Any, do: Tensor, dlse: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of the arguments of `forward`. PyTorch passes zeros for an unused result."""
    return *backward(do, dlse, *ctx.saved_tensors, ctx.causal, ctx.scale), None, None


forward.register_autograd(gradients, setup_context=keep)


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return O as `attention` does, and the row log-sum-exps (B, H, Nq) in float32 (natural logarithm)."""
    check_inputs(q, k, v, causal, scale)
    o, lse = forward(q, k, v, causal, q.shape[3] ** -0.5 if scale is None else scale)
    return o, lse


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None) -> Tensor:
    """Return O = softmax(scale · QKᵀ) V, in the shape and type of q, without gaps in memory, and in its order
    there ((B, H, N, d) or (B, N, H, d)).

    q (B, H, Nq, d); k and v (B, H_kv, Nk, d), of q's type; H_kv divides H. causal: query i attends to the
    keys j ≤ i. scale: 1/√d if None.
    """
    return attention_with_lse(q, k, v, causal=causal, scale=scale)[0]
