"""Tests that 11B finds masks on full blocks: by tl.where, by arithmetic, and none in right kernels."""

from dataclasses import replace

import pytest

from tools.build.notebook_execution import cannot_run

if reason := cannot_run("import torch, triton\n"):
    pytest.skip(reason, allow_module_level=True)

from iocourse.course.checking import failed_properties, judge, read_first
from iocourse.course.exercise import TrafficCause, find
from tests.mutation.references import build

NO_MASK = "computes no mask for full blocks"
KERNEL = """
@triton.jit
def absorb(acc, m, l, q, k, v, scale, seen=None):
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if seen is not None:
        s = tl.where(seen, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))
    p = tl.exp2(s - m_new[:, None])
    old = tl.exp2(m - m_new)
    return tl.dot(p, v, acc * old[:, None], input_precision="ieee"), m_new, l * old + tl.sum(p, 1)


@triton.jit
def forward(Q, K, V, O, LSE, N, scale, CAUSAL: tl.constexpr, d: tl.constexpr, BM: tl.constexpr,
            BN: tl.constexpr):
    first = tl.program_id(0) * BM
    i, c = first + tl.arange(0, BM), tl.arange(0, d)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m, l = tl.full((BM,), float("-inf"), dtype=tl.float32), tl.zeros((BM,), dtype=tl.float32)
    if CAUSAL:
        whole, end = (first + 1) // BN * BN, tl.minimum(first + BM, N)
    else:
        whole, end = N // BN * BN, N
LOOPS
    tl.store(O + i[:, None] * d + c, acc / l[:, None], mask=i[:, None] < N)
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


def my_two_loops(Q, K, V, causal, BM, BN):
    N, d = Q.shape
    O, LSE = torch.empty_like(Q), torch.empty(N, dtype=torch.float32)
    forward[(triton.cdiv(N, BM),)](Q, K, V, O, LSE, N, 1.4426950408889634 * d**-0.5, CAUSAL=causal,
                                   d=d, BM=BM, BN=BN)
    return O, LSE
"""
LOADED = """        j = start + tl.arange(0, BN)
        k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
        v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
"""
ONE_LOOP = (
    "    for start in range(0, end, BN):\n"
    + LOADED
    + """        last = tl.minimum(i, N - 1) if CAUSAL else i * 0 + N - 1
        beyond = j[None, :] - last[:, None]
        seen = beyond <= 0
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        SCORES
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - m_new[:, None])
        WEIGHTS
        old = tl.exp2(m - m_new)
        acc = tl.dot(p, v, acc * old[:, None], input_precision="ieee")
        m, l = m_new, l * old + tl.sum(p, 1)
"""
)
HIDDEN = "(seen.to(tl.float32) - 1.0) * 1e30"
MASKS = {  # lines after the scores and after the weights; the values are right
    "tl.where": ('s = tl.where(seen, s, float("-inf"))', "pass"),
    "a bias of 0 or -1e30": (f"s += {HIDDEN}", "pass"),
    "a fused bias": ("s = tl.fma(seen.to(tl.float32) - 1.0, 1e30, s)", "pass"),
    "the maximum of positions": ("s -= tl.maximum(beyond, 0).to(tl.float32) * 1e30", "pass"),
    "a minimum with positions": ("s = tl.minimum(s, (0.5 - beyond.to(tl.float32)) * 1e30)", "pass"),
    "clamped positions": ("s -= tl.clamp(beyond.to(tl.float32), 0.0, 1.0) * 1e30", "pass"),
    "absolute distances": ("s -= (tl.abs(beyond) + beyond).to(tl.float32) * 1e30", "pass"),
    "bits of positions": ("s -= (((beyond - 1) >> 31) ^ -1).to(tl.float32) * -1e30", "pass"),
    "a division": ("s = tl.minimum(s, 1e30) - (1.0 / seen.to(tl.float32) - 1.0)", "pass"),
    "a row for all queries": (f"s += tl.where(j < N, 0.0, -1e30)[None, :]; s += {HIDDEN}", "pass"),
    "an accumulator of tl.dot": (
        f's = tl.dot(q * scale, tl.trans(k), {HIDDEN}, input_precision="ieee")',
        "pass",
    ),
    "bits of scores": (
        "h = seen.to(tl.int32) - 1; s = ((s.to(tl.int32, bitcast=True) & ~h) | (h & -8388608))"
        ".to(tl.float32, bitcast=True)",
        "pass",
    ),
    "a product with weights": ("pass", "p = p * seen"),
}


PRODUCT = 's = tl.dot(q, tl.trans(k), input_precision="ieee") * scale'


def failing(loops, kernel=KERNEL):
    """Return the properties that fail in the first two cases: a causal mask with square tiles, and none."""
    exercise = find("11B")
    some = replace(exercise, cases=lambda rng: exercise.cases(rng)[:2])
    function = build("11B", kernel.replace("LOOPS\n", loops))
    return failed_properties(judge(some, function, 3))


@pytest.mark.parametrize("how", MASKS)
def test_a_mask_on_every_block_is_found_however_it_is_computed(how):
    scores, weights = MASKS[how]
    loop = ONE_LOOP.replace(PRODUCT, "pass") if "tl.dot" in scores else ONE_LOOP
    failed = failing(loop.replace("SCORES", scores).replace("WEIGHTS", weights))
    assert failed[NO_MASK].startswith("28 tiles are masked, by tl.where or by arithmetic with positions, exp")
    assert "expected at most 7" in failed[NO_MASK] and len(failed) == 1


SEEN = """        seen = j[None, :] < N
        if CAUSAL:
            seen = seen & (j[None, :] <= i[:, None])
"""
CALL = "        acc, m, l = absorb(acc, m, l, q, k, v, scale"
FULL = f"    for start in range(0, whole, BN):\n{LOADED}{CALL})\n"
PARTIAL = f"    for start in range(whole, end, BN):\n{LOADED}{SEEN}{CALL}, seen)\n"
RIGHT = {
    "masked loads in full blocks": FULL + PARTIAL,
    "partial blocks first": PARTIAL + FULL,
    "a mask that full blocks do not use": FULL.replace(CALL, SEEN + CALL) + PARTIAL,
    "arithmetic on partial blocks": ONE_LOOP.replace(
        "SCORES", f"if start >= whole:\n            s += {HIDDEN}"
    ),
    "blocks in reverse": FULL.replace("start + tl", "whole - BN - start + tl") + PARTIAL,
    "a scale for each block": FULL.replace("scale)", "scale * (start + 1) / (start + 1))") + PARTIAL,
}


@pytest.mark.parametrize("how", RIGHT)
def test_a_right_kernel_masks_no_full_block(how):
    assert failing(RIGHT[how].replace("WEIGHTS", "pass")) == {}


def test_a_loop_past_the_end_is_read_before_the_masks_on_its_tiles():
    longer = KERNEL.replace("tl.minimum(first + BM, N)", "first + BM")
    failed = failing(FULL + PARTIAL, longer.replace("N // BN * BN, N", "N // BN * BN, N + BN"))
    past = "no loop iteration is completely out of bounds"
    assert list(failed) == [NO_MASK, past] and isinstance(failed[past], TrafficCause)
    assert read_first(find("11B"), failed) == past
    assert read_first(find("11B"), {"O is correct without a causal mask": "wrong"} | failed) != past
