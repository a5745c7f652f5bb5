"""Eight broken kernels with one wrong line each, to be diagnosed from the report of `check`.

Three of them are shown as A, B and C. Each report comes from a run of the kernel, always on the same inputs.
All kernels are attempts at exercise 13C, attention over lists of blocks (section 13.2 has it in NumPy). The
descriptions of the faults can be printed without torch and triton.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ..doctor.triton_missing import TritonMissing, require_triton
from .checking import judge, report
from .exercise import find
from .missing_packages import Placeholder

try:
    require_triton()
    import torch
    import triton
    import triton.language as tl
except TritonMissing:
    torch = triton = tl = Placeholder()

EXERCISE, SEED = "13C", 13
SUSPECTS = (
    "the number of the query block is the program id, not the entry of order",
    "the loop over the partial blocks ends where it starts",
    "a pattern is read column by column",
    "masked scores are set to -1e9 instead of -inf",
    "the partial outputs are not rescaled",
    "the partial row sums are not rescaled",
    "the running maximum starts at 0",
    "a slot is loaded for full blocks too",
)
LOG2_E = 1.4426950408889634
_FAULTY = {"A": 5, "B": 7, "C": 3}


def broken_kernels() -> None:
    """Print the numbered list of faults that a broken kernel of lesson 13b may have, one per line."""
    for number, said in enumerate(SUSPECTS, 1):
        print(f"{number}  {said}")


def faulty_line(kernel: str) -> int:
    """Return the number of the fault in kernel "A", "B" or "C". Raises ValueError for any other name."""
    if kernel not in _FAULTY:
        raise ValueError(f"kernel must be A, B or C, got {kernel!r}")
    return _FAULTY[kernel]


def show(which: str | int) -> None:
    """Print the report of `check` on kernel "A", "B" or "C", or on the kernel with fault number 1 to 8.

    Raises ValueError for any other name or number, and TritonMissing if torch or triton is missing.
    """
    print(report_for(which if isinstance(which, int) else faulty_line(which)))


def report_for(suspect: int) -> str:
    """Return the report of `check` on the kernel with this fault. Raises the same errors as `show`."""
    if isinstance(suspect, bool) or not 1 <= suspect <= len(SUSPECTS):
        raise ValueError(f"suspect must be a number from 1 to {len(SUSPECTS)}, got {suspect!r}")
    return _report(suspect)


@cache
def _report(suspect: int) -> str:
    require_triton()
    exercise = find(EXERCISE)
    return report(exercise, judge(exercise, launcher(suspect), SEED), SEED)


# ------------------------------------------------------------------ the kernels
@triton.jit
def wrong_kernel(
    Q, K, V, O, LSE, spans, entries, slots, patterns, order, Nq, Nk, scale,
    FAULT: tl.constexpr, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Compute BM rows of O and LSE, with the fault of number FAULT (1 to 8)."""
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
    """Return a launcher for exercise 13C of the kernel with this fault."""

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

    wrong_attention.__module__ = wrong_kernel.fn.__module__ = (
        "__main__"  # so that check treats it as a student's function
    )
    return wrong_attention
