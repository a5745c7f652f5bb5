# SPDX-License-Identifier: MIT
# Copyright (c) 2026 The iocourse authors. See LICENSE of the iocourse project.
"""FlashAttention-2 in one file to copy: forward and backward pass in Triton, as a PyTorch operator.

    from flash_attention import attention
    o = attention(q, k, v, causal=True)  # q (B, H, Nq, d); k, v (B, H_kv, Nk, d); o as q
    o.backward(do)                       # gradients of q, k and v

Needs PyTorch and Triton (written with 2.13 and 3.7.1), and a GPU from sm_80 on (sm_75 for float16).

Supported: float16, bfloat16 and float32; full and causal attention; any lengths; heads that share keys (H_kv
divides H); d = 16, 32, 64, 128 or 256; any strides (a tensor whose last stride is not 1 is copied);
torch.compile; gradients with equal bits in every run with the same tiles.
Not supported: windows, other masks, packed sequences, dropout, second derivatives, vmap.
Causal: query i attends to the keys j ≤ i, also if Nq ≠ Nk (upper left, as in torch's SDPA).

Compiled and read for sm_80, sm_90 and sm_100 with Triton 3.7.1; not timed on any GPU yet. Without a GPU, set
TRITON_INTERPRET=1 before triton is imported; Triton's interpreter is wrong in bfloat16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError(
        "flash_attention.py needs Triton. Install it (pip install triton, Linux only), or use "
        "torch.nn.functional.scaled_dot_product_attention"
    ) from error

LOG2_E = tl.constexpr(1.4426950408889634)
LN_2 = tl.constexpr(0.6931471805599453)


# --- tiles -------------------------------------------------------------------------------------------------
# (BM queries, BN keys, warps, stages): the largest d in 16 bits for which the tile is tried. The first tile
# that is allowed is also the one for the interpreter.
FORWARD_TILES = {
    (64, 64, 4, 3): 128, (128, 64, 4, 3): 64, (128, 64, 8, 3): 128, (128, 128, 8, 3): 128,
    (64, 64, 8, 2): 256, (32, 32, 8, 1): 512,
}  # fmt: skip
QUERIES_TILES = {
    (64, 64, 4, 3): 64, (128, 64, 8, 3): 128, (128, 64, 8, 2): 128, (64, 32, 8, 2): 256, (32, 32, 8, 1): 512,
}  # fmt: skip
KEYS_TILES = {
    (64, 64, 4, 3): 64, (64, 128, 8, 3): 128, (64, 128, 8, 2): 128, (64, 64, 8, 2): 128, (32, 32, 8, 1): 512,
}  # fmt: skip

Tiles = dict[tuple[int, int, int, int], int]


def tuned(tiles: Tiles) -> Callable[[Any], Any]:
    """Return a decorator: time the tiles at the first call for each d, mask, type and rough length."""

    def fitting(configs: list[Any], arguments: dict[str, Any], d: int, **_: Any) -> list[Any]:
        """Return the tiles that do not spill at this d. float32 takes twice the room of 16 bits."""
        width = d * arguments["Q"].element_size() // 2
        return [config for config, largest in zip(configs, tiles.values(), strict=True) if width <= largest]

    configs = [triton.Config({"BM": BM, "BN": BN}, num_warps=w, num_stages=s) for BM, BN, w, s in tiles]
    if triton.knobs.runtime.interpret:  # nothing can be timed
        configs = configs[:1]
    return triton.autotune(
        configs, key=["d", "CAUSAL", "length"], prune_configs_by={"early_config_prune": fitting}
    )


# --- tiles of rows -----------------------------------------------------------------------------------------
@triton.jit
def program_place(tiles, H, LAST_FIRST: tl.constexpr):
    """Return the tile, batch and head of this program; tiles: per head."""
    tile, pair = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    if LAST_FIRST:
        tile = tiles - 1 - tile
    return tile, pair // H, pair % H


@triton.jit
def head_of(X, strides, batch, head):
    """Return a pointer to the first row of a head; strides: over batch, head and row."""
    # 64 bits, because a tensor may have more than 2³¹ elements.
    return X + batch.to(tl.int64) * strides[0] + head.to(tl.int64) * strides[1]


@triton.jit
def rows_from(X, strides, start, ROWS: tl.constexpr, d: tl.constexpr):
    """Return pointers (ROWS, d) to the rows of a head from row `start` on."""
    within = tl.arange(0, ROWS)[:, None] * strides[2] + tl.arange(0, d)[None, :]
    return X + tl.cast(start, tl.int64) * strides[2] + within


@triton.jit
def load_rows(X, strides, start, n, ROWS: tl.constexpr, d: tl.constexpr, CHECK: tl.constexpr):
    """Load a tile (ROWS, d) from row `start` on. CHECK: rows from n on are out of bounds, and zeros."""
    pointers = rows_from(X, strides, start, ROWS, d)
    if CHECK:
        tile = tl.load(pointers, mask=start + tl.arange(0, ROWS)[:, None] < n, other=0.0)
    else:
        tile = tl.load(pointers)
    return tile


@triton.jit
def store_rows(tile, X, strides, start, n):
    """Store the rows of a tile that are below n, in X's type."""
    ROWS: tl.constexpr = tile.shape[0]
    pointers = rows_from(X, strides, start, ROWS, tile.shape[1])
    tl.store(pointers, tile.to(X.dtype.element_ty), mask=start + tl.arange(0, ROWS)[:, None] < n)


# --- forward pass ------------------------------------------------------------------------------------------
@triton.jit
def absorb(acc, m, l, q, k, v, scale, seen=None):
    """Add one tile of keys to the online softmax. Returns the new acc (BM, d), m (BM,) and l (BM,) in float32.

    q (BM, d); k, v (BN, d); seen (BM, BN): True for visible pairs, None for a full block. scale includes
    log₂ e, so scores are in base 2, as the GPU's exponential is.
    """
    s = tl.dot(q, tl.trans(k), input_precision="ieee")
    if seen is not None:
        s = tl.where(seen, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1) * scale)
    p = tl.exp2(s * scale - m_new[:, None])  # one multiply-add per score
    old = tl.exp2(m - m_new)
    l = l * old + tl.sum(p, 1)  # before p is rounded
    acc = tl.dot(p.to(v.dtype), v, acc * old[:, None], input_precision="ieee")
    return acc, m_new, l


@tuned(FORWARD_TILES)
@triton.jit(do_not_specialize=["Nq", "Nk", "length"])
def forward_kernel(
    Q, K, V, O, LSE, q_steps, k_steps, v_steps, o_steps, H, group, Nq, Nk, length, scale,
    d: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """BM rows of O and LSE: first the full blocks of keys, then the partial ones."""
    tile, batch, head = program_place(tl.cdiv(Nq, BM), H, CAUSAL)
    first = tile * BM
    K, V = head_of(K, k_steps, batch, head // group), head_of(V, v_steps, batch, head // group)
    q = load_rows(head_of(Q, q_steps, batch, head), q_steps, first, Nq, BM, d, True)
    i = first + tl.arange(0, BM)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    if CAUSAL:
        full, end = tl.minimum(first + 1, Nk) // BN * BN, tl.minimum(first + BM, Nk)
    else:
        full, end = Nk // BN * BN, Nk
    for start in tl.range(0, full, BN):
        k = load_rows(K, k_steps, start, Nk, BN, d, False)
        v = load_rows(V, v_steps, start, Nk, BN, d, False)
        acc, m, l = absorb(acc, m, l, q, k, v, scale * LOG2_E)
    for start in tl.range(full, end, BN, num_stages=1):
        k = load_rows(K, k_steps, start, Nk, BN, d, True)
        v = load_rows(V, v_steps, start, Nk, BN, d, True)
        j = start + tl.arange(0, BN)[None, :]
        seen = (j < Nk) & (j <= i[:, None]) if CAUSAL else j < Nk
        acc, m, l = absorb(acc, m, l, q, k, v, scale * LOG2_E, seen)
    store_rows(acc / l[:, None], head_of(O, o_steps, batch, head), o_steps, first, Nq)
    rows = (batch * H + head).to(tl.int64) * Nq + i
    tl.store(LSE + rows, (m + tl.log2(l)) * LN_2, mask=i < Nq)


# --- backward pass -----------------------------------------------------------------------------------------
@triton.jit
def weights_and_gradients(a, b, da, db, L, D, scale, seen=None):
    """Return p and ds in float32: p = 2 ** (scale · a bᵀ - L), and ds = p ∘ (da dbᵀ - D).

    For dQ: a = q, b = k, da = do, db = v; L and D are columns. For dK and dV: a = k, b = q, da = v, db = do;
    L and D are rows. seen: visible pairs, None for a full block. scale and L include log₂ e.
    """
    s = tl.dot(a, tl.trans(b), input_precision="ieee")
    p = tl.exp2(s * scale - L)
    if seen is not None:
        p = tl.where(seen, p, 0.0)
    ds = p * (tl.dot(da, tl.trans(db), input_precision="ieee") - D)
    return p, ds


@tuned(QUERIES_TILES)
@triton.jit(do_not_specialize=["Nq", "Nk", "length"])
def queries_kernel(
    Q, K, V, O, dO, LSE, dLSE, D, dQ, q_steps, k_steps, v_steps, o_steps, do_steps, dq_steps,
    H, group, Nq, Nk, length, scale,
    d: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """BM rows of dQ = scale · dS K, and of D = rowsum(dO ∘ O) - dLSE, which the next kernel reads."""
    tile, batch, head = program_place(tl.cdiv(Nq, BM), H, CAUSAL)
    first = tile * BM
    K, V = head_of(K, k_steps, batch, head // group), head_of(V, v_steps, batch, head // group)
    q = load_rows(head_of(Q, q_steps, batch, head), q_steps, first, Nq, BM, d, True)
    o = load_rows(head_of(O, o_steps, batch, head), o_steps, first, Nq, BM, d, True)
    do = load_rows(head_of(dO, do_steps, batch, head), do_steps, first, Nq, BM, d, True)
    i = first + tl.arange(0, BM)
    rows = (batch * H + head).to(tl.int64) * Nq + i
    L = tl.load(LSE + rows, mask=i < Nq, other=0.0)[:, None] * LOG2_E
    delta = tl.sum(o.to(tl.float32) * do.to(tl.float32), 1) - tl.load(dLSE + rows, mask=i < Nq, other=0.0)
    tl.store(D + rows, delta, mask=i < Nq)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    if CAUSAL:
        full, end = tl.minimum(first + 1, Nk) // BN * BN, tl.minimum(first + BM, Nk)
    else:
        full, end = Nk // BN * BN, Nk
    for start in tl.range(0, full, BN):
        k = load_rows(K, k_steps, start, Nk, BN, d, False)
        v = load_rows(V, v_steps, start, Nk, BN, d, False)
        _, ds = weights_and_gradients(q, k, do, v, L, delta[:, None], scale * LOG2_E)
        acc = tl.dot(ds.to(k.dtype), k, acc, input_precision="ieee")
    for start in tl.range(full, end, BN, num_stages=1):
        k = load_rows(K, k_steps, start, Nk, BN, d, True)
        v = load_rows(V, v_steps, start, Nk, BN, d, True)
        j = start + tl.arange(0, BN)[None, :]
        seen = (j < Nk) & (j <= i[:, None]) if CAUSAL else j < Nk
        _, ds = weights_and_gradients(q, k, do, v, L, delta[:, None], scale * LOG2_E, seen)
        acc = tl.dot(ds.to(k.dtype), k, acc, input_precision="ieee")
    store_rows(acc * scale, head_of(dQ, dq_steps, batch, head), dq_steps, first, Nq)


@tuned(KEYS_TILES)
@triton.jit(do_not_specialize=["Nq", "Nk", "length"])
def keys_kernel(
    Q, K, V, dO, LSE, D, dK, dV, q_steps, k_steps, v_steps, do_steps, dk_steps, dv_steps,
    H, group, Nq, Nk, length, scale,
    d: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """BN rows of dK = scale · dSᵀ Q and dV = Pᵀ dO of one head of keys, summed over its `group` query heads
    in a fixed order.
    """
    tile, batch, key_head = program_place(tl.cdiv(Nk, BN), H // group, False)
    first = tile * BN
    k = load_rows(head_of(K, k_steps, batch, key_head), k_steps, first, Nk, BN, d, True)
    v = load_rows(head_of(V, v_steps, batch, key_head), v_steps, first, Nk, BN, d, True)
    j = first + tl.arange(0, BN)[:, None]
    dk = tl.zeros((BN, d), dtype=tl.float32)
    dv = tl.zeros((BN, d), dtype=tl.float32)
    # Full blocks of queries: from `full` on every query attends to every key, to `full_end`.
    begin = tl.minimum(first, Nq) // BM * BM if CAUSAL else 0
    full_end = Nq // BM * BM
    full = tl.minimum(tl.cdiv(first + BN - 1, BM) * BM, full_end) if CAUSAL else 0
    if first + BN > Nk:
        full = full_end  # a key is out of bounds in every block
    for member in range(group):
        head = key_head * group + member
        q_head, do_head = head_of(Q, q_steps, batch, head), head_of(dO, do_steps, batch, head)
        rows = (batch * H + head).to(tl.int64) * Nq
        for start in tl.range(full, full_end, BM):
            q = load_rows(q_head, q_steps, start, Nq, BM, d, False)
            do = load_rows(do_head, do_steps, start, Nq, BM, d, False)
            i = start + tl.arange(0, BM)[None, :]
            L, delta = tl.load(LSE + rows + i) * LOG2_E, tl.load(D + rows + i)
            p, ds = weights_and_gradients(k, q, v, do, L, delta, scale * LOG2_E)
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
            dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
        # The partial blocks are before and after them: on the diagonal, and at the last query.
        for at in tl.range(begin, Nq - (full_end - full), BM, num_stages=1):
            start = tl.where(at < full, at, at + full_end - full)
            q = load_rows(q_head, q_steps, start, Nq, BM, d, True)
            do = load_rows(do_head, do_steps, start, Nq, BM, d, True)
            i = start + tl.arange(0, BM)[None, :]
            L = tl.load(LSE + rows + i, mask=i < Nq, other=0.0) * LOG2_E
            delta = tl.load(D + rows + i, mask=i < Nq, other=0.0)
            seen = (i < Nq) & (j < Nk)
            if CAUSAL:
                seen = seen & (j <= i)
            p, ds = weights_and_gradients(k, q, v, do, L, delta, scale * LOG2_E, seen)
            dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
            dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
    store_rows(dk * scale, head_of(dK, dk_steps, batch, key_head), dk_steps, first, Nk)
    store_rows(dv, head_of(dV, dv_steps, batch, key_head), dv_steps, first, Nk)


# --- PyTorch -----------------------------------------------------------------------------------------------
def rows_together(x: Tensor) -> Tensor:
    """Return x, or a copy if the numbers of a row are not next to each other in memory."""
    return x if x.stride(-1) == 1 else x.contiguous()


def steps(x: Tensor) -> tuple[int, ...]:
    """Return the strides over batch, head and row."""
    return x.stride()[:3]


def sizes(q: Tensor, k: Tensor) -> tuple[int, ...]:
    """Return H, heads per key head, Nq, Nk and a power of two near the longer length, for the tuner."""
    H, Nq, Nk = q.shape[1], q.shape[2], k.shape[2]
    return H, H // k.shape[1], Nq, Nk, min(triton.next_power_of_2(max(Nq, Nk)), 4096)


@torch.library.custom_op("flash_attention::forward", mutates_args=())
def forward(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    """Return O (B, H, Nq, d) in q's type and layout, and the log-sum-exps (B, H, Nq) in float32."""
    q, k, v = rows_together(q), rows_together(k), rows_together(v)
    B, H, Nq, d = q.shape
    o, lse = torch.empty_like(q), q.new_empty((B, H, Nq), dtype=torch.float32)
    with torch.cuda.device_of(q):
        forward_kernel[lambda tile: (B * H * triton.cdiv(Nq, tile["BM"]),)](
            q, k, v, o, lse, steps(q), steps(k), steps(v), steps(o), *sizes(q, k), scale, d=d, CAUSAL=causal
        )
    return o, lse


@forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float) -> tuple[Tensor, Tensor]:
    return torch.empty_like(rows_together(q)), q.new_empty(q.shape[:3], dtype=torch.float32)


@torch.library.custom_op("flash_attention::backward", mutates_args=())
def backward(
    do: Tensor, dlse: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return dQ, dK and dV, each in the type and layout of its input."""
    do, q, k, v, o = (rows_together(x) for x in (do, q, k, v, o))
    dlse, lse = dlse.contiguous(), lse.contiguous()
    B, H, Nq, d = q.shape
    dq, dk, dv, D = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v), torch.empty_like(lse)
    with torch.cuda.device_of(q):
        queries_kernel[lambda tile: (B * H * triton.cdiv(Nq, tile["BM"]),)](
            q, k, v, o, do, lse, dlse, D, dq, steps(q), steps(k), steps(v), steps(o), steps(do), steps(dq),
            *sizes(q, k), scale, d=d, CAUSAL=causal,
        )  # fmt: skip
        keys_kernel[lambda tile: (B * k.shape[1] * triton.cdiv(k.shape[2], tile["BN"]),)](
            q, k, v, do, lse, D, dk, dv, steps(q), steps(k), steps(v), steps(do), steps(dk), steps(dv),
            *sizes(q, k), scale, d=d, CAUSAL=causal,
        )  # fmt: skip
    return dq, dk, dv


@backward.register_fake
def _(
    do: Tensor, dlse: Tensor, q: Tensor, k: Tensor, v: Tensor, o: Tensor, lse: Tensor, causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    dq, dk, dv = (torch.empty_like(rows_together(x)) for x in (q, k, v))
    return dq, dk, dv


def keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    """Save what the backward pass needs: the inputs, O and the log-sum-exps, but no scores."""
    q, k, v, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, *output)


def gradients(ctx: Any, do: Tensor, dlse: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of forward's arguments."""
    return *backward(do, dlse, *ctx.saved_tensors, ctx.causal, ctx.scale), None, None


forward.register_autograd(gradients, setup_context=keep)


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None) -> Tensor:
    """Return O = softmax(scale · QKᵀ) V."""
    return attention_with_lse(q, k, v, causal, scale)[0]


def attention_with_lse(
    q: Tensor, k: Tensor, v: Tensor, causal: bool = False, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Return O and the row log-sum-exps (B, H, Nq) in float32; both can be differentiated."""
    o, lse = forward(q, k, v, causal, q.shape[3] ** -0.5 if scale is None else scale)
    return o, lse
