"""Eight wrong kernels for exercise 13C, one line of each at fault; there is no right one among them.

Attention over lists of tiles, as section 13.4 has it in NumPy.
"""

from __future__ import annotations

from typing import Any

from ...doctor.triton_missing import require_triton

require_triton()

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402

LOG2_E = 1.4426950408889634


@triton.jit
def wrong_kernel(
    Q, K, V, O, LSE, spans, entries, slots, patterns, order, Nq, Nk, scale,
    FAULT: tl.constexpr, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """BM rows of O and LSE, wrong in the line that FAULT, 1 to 8, says."""
    tl.static_assert(FAULT >= 1 and FAULT <= 8)
    tile = tl.program_id(0) if FAULT == 1 else tl.load(order + tl.program_id(0))
    begin, cut = tl.load(spans + 3 * tile), tl.load(spans + 3 * tile + 1)
    end = tl.load(spans + 3 * tile + 2)
    if FAULT == 2:
        end = cut
    i, c = tile * BM + tl.arange(0, BM), tl.arange(0, d)
    rows, columns = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    places = rows + columns * BM if FAULT == 3 else rows * BN + columns
    unseen = -1e9 if FAULT == 4 else float("-inf")
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=0.0)  # (BM, d)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), 0.0 if FAULT == 7 else float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    for step in range(begin, end):
        j = tl.load(entries + step) * BN + tl.arange(0, BN)
        k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)  # (BN, d)
        v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale  # (BM, BN)
        if step >= cut or FAULT == 8:
            slot = tl.load(slots + step)
            if step >= cut:
                s = tl.where(tl.load(patterns + slot * BM * BN + places) != 0, s, unseen)
        m_new = tl.maximum(m, tl.max(s, 1))
        shift = tl.where(m_new == float("-inf"), 0.0, m_new)
        p, old = tl.exp2(s - shift[:, None]), tl.exp2(m - shift)
        before = acc if FAULT == 5 else acc * old[:, None]
        acc = tl.dot(p, v, before, input_precision="ieee")
        l = (l if FAULT == 6 else l * old) + tl.sum(p, 1)
        m = m_new
    nothing = l == 0.0
    safe = tl.where(nothing, 1.0, l)
    total = tl.where(nothing, float("-inf"), (m + tl.log2(safe)) * 0.6931471805599453)
    tl.store(O + i[:, None] * d + c, acc / safe[:, None], mask=i[:, None] < Nq)
    tl.store(LSE + i, total, mask=i < Nq)


def launcher(fault: int) -> Any:
    """A launcher as exercise 13C wants it, of the kernel with that fault."""

    def wrong_attention(
        Q: Any,
        K: Any,
        V: Any,
        spans: Any,
        entries: Any,
        slots: Any,
        patterns: Any,
        order: Any,
        BM: int,
        BN: int,
    ) -> Any:
        Nq, d = Q.shape
        O, LSE = torch.empty_like(Q), torch.empty(Nq)
        wrong_kernel[(triton.cdiv(Nq, BM),)](
            Q, K, V, O, LSE, spans, entries, slots, patterns, order, Nq, K.shape[0], LOG2_E * d**-0.5,
            FAULT=fault, d=d, BM=BM, BN=BN,
        )  # fmt: skip
        return O, LSE

    wrong_attention.__module__ = wrong_kernel.fn.__module__ = "__main__"  # tried as a student's would be
    return wrong_attention
