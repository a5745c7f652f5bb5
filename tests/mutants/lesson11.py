"""Lesson 11: alternative correct answers, and wrong answers that no recorded mutant covers."""

from harness import EXACT, Mutant, Suite, as_scratch, empty_round, first_program_first, launched_twice

# isort: split
import torch
import triton
import triton.language as tl

LOG2_E = 1.4426950408889634
O, LSE = "O equals exact attention", "LSE is the natural logarithm of the row sums"
START = 'm = tl.full((BM,), float("-inf")'


def results(Q):
    """Allocate O and LSE of one head."""
    return torch.empty_like(Q), torch.empty(Q.shape[0], dtype=torch.float32)


# ---------------------------------------------------------------------- 11A
@triton.jit
def whole_rows_kernel(Q, K, V, O, LSE, N, scale, d: tl.constexpr, BM: tl.constexpr, ROW: tl.constexpr):
    """Use one tile for all keys, without a loop: equal traffic."""
    i, j, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, ROW), tl.arange(0, d)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=0.0)
    k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
    v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
    s = tl.where(j[None, :] < N, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
    m = tl.max(s, 1)
    p = tl.exp2(s - m[:, None])
    l = tl.sum(p, 1)
    acc = tl.dot(p, v, input_precision="ieee") / l[:, None]
    tl.store(O + i[:, None] * d + c, acc, mask=i[:, None] < N)
    tl.store(LSE + i, (m + tl.log2(l)) / 1.4426950408889634, mask=i < N)


def all_keys_in_one_tile(Q, K, V, BM, BN):
    return whole_rows(Q, K, V, BM)


def whole_rows(Q, K, V, BM):
    N, d = Q.shape
    o, lse = results(Q)
    row = max(16, triton.next_power_of_2(N))
    whole_rows_kernel[(-(-N // BM),)](Q, K, V, o, lse, N, LOG2_E * d**-0.5, d=d, BM=BM, ROW=row)
    return o, lse


FORWARD = Suite(
    "11A",
    right=all_keys_in_one_tile,
    wrong={
        "no operator makes it": (
            launched_twice("my_flash_forward"),
            as_scratch(
                "Q",
                "acc = tl.zeros((BM, d)",
                "tl.store(Q + i[:, None] * d + c, q * scale, mask=i[:, None] < N)",
            ),
        )
    },
)

# ---------------------------------------------------------------------- 11B
CAUSAL = "O is correct with a causal mask"


@triton.jit
def parts_kernel(
    Q, K, V, O, LSE, N, scale, CAUSAL: tl.constexpr, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    MASK_ALL: tl.constexpr, VISIT_ALL: tl.constexpr, LAST_FIRST: tl.constexpr,
):  # fmt: skip
    """Unroll both loops by one static_range, and mask weights as well as scores."""
    tile = tl.program_id(0)
    if LAST_FIRST:
        tile = tl.cdiv(N, BM) - 1 - tile
    i, c = tile * BM + tl.arange(0, BM), tl.arange(0, d)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    end = tl.minimum(N, tile * BM + BM) if CAUSAL and not VISIT_ALL else N
    whole = (tile * BM if CAUSAL else N) // BN * BN
    if MASK_ALL:
        whole = 0
    for part in tl.static_range(2):
        begin, stop = (0, whole) if part == 0 else (whole, end)
        for at in range(begin, stop, BN):
            j = at + tl.arange(0, BN)
            k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
            v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
            s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            seen = (j[None, :] < N) & (i[:, None] >= j[None, :] if CAUSAL else True)
            if part == 1:
                s = tl.where(seen, s, float("-inf"))
            top = tl.maximum(m, tl.max(s, 1))
            p = tl.exp2(s - top[:, None])
            if part == 1:
                p = tl.where(seen, p, 0.0)
            l = l * tl.exp2(m - top) + tl.sum(p, 1)
            acc = tl.dot(p, v, acc * tl.exp2(m - top)[:, None], input_precision="ieee")
            m = top
    tl.store(O + i[:, None] * d + c, acc / l[:, None], mask=i[:, None] < N)
    tl.store(LSE + i, (m + tl.log2(l)) * 0.6931471805599453, mask=i < N)


def parts(Q, K, V, causal, BM, BN, MASK_ALL=False, VISIT_ALL=False, LAST_FIRST=False):
    N, d = Q.shape
    o, lse = results(Q)
    parts_kernel[(-(-N // BM),)](
        Q, K, V, o, lse, N, LOG2_E * d**-0.5, CAUSAL=causal, d=d, BM=BM, BN=BN,
        MASK_ALL=MASK_ALL, VISIT_ALL=VISIT_ALL, LAST_FIRST=LAST_FIRST,
    )  # fmt: skip
    return o, lse


def loops_by_static_range(Q, K, V, causal, BM, BN):
    return parts(Q, K, V, causal, BM, BN)


LOOPS = Suite(
    "11B",
    right=loops_by_static_range,
    wrong={
        "no operator makes it": (
            Mutant(
                "starts-at-1e9",
                "scores far from 0 neither overflow nor vanish",
                ('m = tl.full((BM,), float("-inf")', "m = tl.full((BM,), -1e9"),
            ),
            launched_twice("my_two_loops", "moves exactly the words of the blocks that are not empty"),
            as_scratch(
                "Q",
                "acc = tl.zeros((BM, d)",
                "tl.store(Q + i[:, None] * d + c, q * scale, mask=i[:, None] < N)",
            ),
        )
    },
)


# ---------------------------------------------------------------------- 11F
@triton.jit
def joined_kernel(
    Q, K, V, O, LSE, N, scale, CAUSAL: tl.constexpr, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Keep the maximum of unscaled scores, add acc after the product, and take the row sum last."""
    first, c = tl.program_id(0) * BM, tl.arange(0, d)
    i = first + tl.arange(0, BM)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < N, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    end = tl.minimum(first + BM, N) if CAUSAL else N
    whole = (first if CAUSAL else N) // BN * BN
    for part in tl.static_range(2):
        begin, stop = (0, whole) if part == 0 else (whole, end)
        for start in range(begin, stop, BN):
            j = start + tl.arange(0, BN)
            if part == 0:
                k, v = tl.load(K + j[:, None] * d + c), tl.load(V + j[:, None] * d + c)
            else:
                k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
                v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < N, other=0.0)
            s = tl.dot(q, tl.trans(k))
            if part == 1:
                seen = (j[None, :] < N) & ((i[:, None] >= j[None, :]) if CAUSAL else True)
                s = tl.where(seen, s, float("-inf"))
            top = tl.maximum(m, tl.max(s, 1))
            p = tl.exp2(s * scale - (top * scale)[:, None])
            old = tl.exp2((m - top) * scale)
            acc = acc * old[:, None] + tl.dot(p.to(Q.dtype.element_ty), v)
            l = l * old + tl.sum(p, 1)
            m = top
    tl.store(O + i[:, None] * d + c, (acc / l[:, None]).to(O.dtype.element_ty), mask=i[:, None] < N)
    tl.store(LSE + i, (m * scale + tl.log2(l)) / 1.4426950408889634, mask=i < N)


def joined(Q, K, V, causal, BM, BN):
    N, d = Q.shape
    o, lse = results(Q)
    joined_kernel[(-(-N // BM),)](
        Q, K, V, o, lse, N, LOG2_E * d**-0.5, CAUSAL=causal, d=d, BM=BM, BN=BN, num_stages=3
    )
    return o, lse


PRODUCT = "acc = tl.dot(p.to(v.dtype), v, acc * old[:, None])"
SCORES = "s = tl.dot(q, tl.trans(k))  "
WEIGHTS = "p = tl.exp2(s * scale - m_new[:, None])"
IN_16, LARGE = "O is correct in float16", "large scores lose no bits"
CORES = "both products multiply 16-bit numbers on tensor cores, with float32 sums"
FEW, FITS = "the inner loop needs few instructions", "registers and shared memory suffice"
RUNS, FAR_FROM_0 = "runs without an error", "scores far from 0 neither overflow nor vanish"
RAISED = "q, k, v = q.to(tl.float32), k.to(tl.float32), v.to(tl.float32); s = tl.dot(q, tl.trans(k))"
LN_2 = "0.6931471805599453"


def product(name, fails, arguments, *edits):
    """Return the mutant whose second product has these arguments."""
    return Mutant(name, fails, (PRODUCT, f"acc = tl.dot({arguments})"), *edits)


SIXTEEN_BITS = Suite(
    "11F",
    right=joined,
    wrong={
        "no single change rounds a score, a sum or a weight": (
            Mutant("scores-in-16-bits", LARGE, (SCORES, f"{SCORES.strip()}.to(q.dtype).to(tl.float32)")),
            Mutant(
                "q-scaled-in-16-bits",
                LARGE,
                (SCORES, "q = (q * scale).to(q.dtype); s = tl.dot(q, tl.trans(k))"),
                ("tl.max(s, 1) * scale", "tl.max(s, 1)"),
                ("tl.exp2(s * scale - m_new", "tl.exp2(s - m_new"),
            ),
            Mutant(
                "p-cast-before-the-sum",
                "LSE has the precision of float32",
                (WEIGHTS, f"{WEIGHTS}.to(v.dtype)"),
                ("tl.sum(p, 1)", "tl.sum(p.to(tl.float32), 1)"),
            ),
            product("p-in-fp8", IN_16, "p.to(tl.float8e5).to(v.dtype), v, acc * old[:, None]"),
            product("bfloat16-by-habit", IN_16, "p.to(tl.bfloat16), v.to(tl.bfloat16), acc * old[:, None]"),
        ),
        "no single change puts a finite number for -inf, or scales a maximum twice": (
            Mutant("masks-with-minus-1e4", FAR_FROM_0, ('float("-inf"))\n    m_new', "-1e4)\n    m_new")),
            Mutant("masks-with-minus-1e9", FAR_FROM_0, ('float("-inf"))\n    m_new', "-1e9)\n    m_new")),
            Mutant(
                "m-scaled-again",
                FAR_FROM_0,
                ("tl.maximum(m, tl.max(s, 1) * scale)", "tl.maximum(m, tl.max(s, 1)) * scale"),
            ),
        ),
        "no single change exchanges types": (
            product("p-stays-float32", RUNS, "p, v, acc * old[:, None]"),
            product("float16-by-habit", RUNS, "p.to(tl.float16), v, acc * old[:, None]"),
        ),
        "the values are right, and no single change makes the code slow": (
            product("v-raised", CORES, "p, v.to(tl.float32), acc * old[:, None]"),
            product("all-raised", CORES, "p, v, acc * old[:, None]", (SCORES, RAISED)),
            product(
                "sums-in-16-bits", CORES, "p.to(v.dtype), v, out_dtype=tl.float16) + (acc * old[:, None]"
            ),
            Mutant(
                "exp",
                FEW,
                (WEIGHTS, f"p = tl.exp((s * scale - m_new[:, None]) * {LN_2})"),
                ("old = tl.exp2(m - m_new)", f"old = tl.exp((m - m_new) * {LN_2})"),
            ),
            Mutant(
                "one-loop",
                FEW,
                ("full, end = (first + 1) // BN * BN", "full, end = 0"),
                ("full, end = N // BN * BN", "full, end = 0"),
            ),
            Mutant("too-many-stages", FITS, ("num_stages=3", "num_stages=12")),
            Mutant("one-warp", FITS, ("num_warps=4", "num_warps=1")),
            launched_twice("my_sixteen_bits", "moves exactly the words of the blocks that are not empty"),
        ),
        "the loops are given": (
            empty_round("K", "c", "    tl.store(LSE"),
            first_program_first("O", "acc", "    tl.store(O + i"),
        ),
    },
)


# ---------------------------------------------------------------------- 11C
@triton.jit
def guarded_weights_kernel(
    Q, K, V, O, LSE, Nq, Nk, low, high, scale, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    START: tl.constexpr,
):  # fmt: skip
    """Set the weights of masked pairs to 0 after the exponential, and start the maximum at START."""
    first = tl.program_id(0) * BM
    i, c = first + tl.arange(0, BM), tl.arange(0, d)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), START, dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    begin, end = tl.maximum(0, first + low), tl.minimum(Nk, tl.minimum(first + BM, Nq) + high)
    if begin < end:
        for at in range(begin // BN * BN, end, BN):
            j = at + tl.arange(0, BN)
            k = tl.load(K + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)
            v = tl.load(V + j[:, None] * d + c, mask=j[:, None] < Nk, other=0.0)
            apart = j[None, :] - i[:, None]
            seen = (j[None, :] < Nk) & (apart >= low) & (apart <= high)
            s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            top = tl.maximum(m, tl.max(tl.where(seen, s, START), 1))
            p = tl.where(seen, tl.exp2(s - top[:, None]), 0.0)
            l = l * tl.exp2(m - top) + tl.sum(p, 1)
            acc = tl.dot(p, v, acc * tl.exp2(m - top)[:, None], input_precision="ieee")
            m = top
    o = tl.where(l[:, None] > 0, acc / tl.maximum(l, 1e-30)[:, None], 0.0)
    tl.store(O + i[:, None] * d + c, o, mask=i[:, None] < Nq)
    total = (m + tl.log2(tl.maximum(l, 1e-30))) * 0.6931471805599453
    tl.store(LSE + i, tl.where(l > 0, total, float("-inf")), mask=i < Nq)


def band_from(Q, K, V, low, high, BM, BN, start):
    (Nq, d), Nk = Q.shape, K.shape[0]
    o, lse = results(Q)
    guarded_weights_kernel[(-(-Nq // BM),)](
        Q, K, V, o, lse, Nq, Nk, low, high, LOG2_E * d**-0.5, d=d, BM=BM, BN=BN, START=start
    )
    return o, lse


def weights_guarded(Q, K, V, low, high, BM, BN):
    return band_from(Q, K, V, low, high, BM, BN, -1e30)


BAND = Suite(
    "11C",
    right=weights_guarded,
    wrong={
        "no operator makes it": (
            Mutant(
                "hidden-and-started-at-1e30",
                "a row that attends to no key has O = 0",
                ('s = tl.where(seen, s, float("-inf"))', "s = tl.where(seen, s, -1e30)"),
                ('m = tl.full((BM,), float("-inf")', "m = tl.full((BM,), -1e30"),
            ),
            launched_twice("my_band_attention"),
            as_scratch(
                "Q",
                "acc = tl.zeros((BM, d)",
                "tl.store(Q + i[:, None] * d + c, q * scale, mask=i[:, None] < Nq)",
            ),
            Mutant(
                "nearest-to-the-right-missing", "O equals exact attention", ("apart <= high", "apart < high")
            ),
            Mutant(
                "log-sum-exp-in-base-2",
                "LSE is the natural logarithm of a row sum that is not 0",
                (") * 0.6931471805599453)", ") * 1.0)"),
            ),
            Mutant(
                "i-minus-j",
                "O is correct for a band in which each row attends to a key in the first tile of its program",
                ("apart = j[None, :] - i[:, None]", "apart = i[:, None] - j[None, :]"),
            ),
            Mutant("no-lower-end", "O equals exact attention", ("(apart >= low) & ", "")),
            Mutant("begins-at-0", EXACT, ("begin = tl.maximum(0, first + low)", "begin = first * 0")),
        )
    },
)


# ---------------------------------------------------------------------- 11D
@triton.jit
def three_axes_kernel(
    Q, qb, qh, qn, K, kb, kh, kn, V, vb, vh, vn, O, ob, oh, on, group, N, scale,
    d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Use a grid of three axes with heads fastest in the interpreter, and separate strides."""
    head, batch, tile = tl.program_id(2), tl.program_id(1), tl.program_id(0)
    i, c = tile * BM + tl.arange(0, BM), tl.arange(0, d)
    q = tl.load(Q + batch * qb + head * qh + i[:, None] * qn + c, mask=i[:, None] < N, other=0.0)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.zeros((BM,), dtype=tl.float32) - 1e30
    l = tl.zeros((BM,), dtype=tl.float32)
    of_keys, of_values = K + batch * kb + head // group * kh, V + batch * vb + head // group * vh
    for at in range(0, N, BN):
        j = at + tl.arange(0, BN)
        k = tl.load(of_keys + j[:, None] * kn + c, mask=j[:, None] < N, other=0.0)
        v = tl.load(of_values + j[:, None] * vn + c, mask=j[:, None] < N, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(j[None, :] < N, s, -1e30)
        top = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - top[:, None])
        l = l * tl.exp2(m - top) + tl.sum(p, 1)
        acc = tl.dot(p, v, acc * tl.exp2(m - top)[:, None], input_precision="ieee")
        m = top
    tl.store(O + batch * ob + head * oh + i[:, None] * on + c, acc / l[:, None], mask=i[:, None] < N)


def a_grid_of_three_axes(Q, K, V, BM, BN):
    return three_axes(Q, K, V, torch.empty_like(Q), BM, BN)


def three_axes(Q, K, V, o, BM, BN):
    B, H, N, d = Q.shape
    given = (part for x in (Q, K, V, o) for part in (x, *x.stride()[:3]))
    three_axes_kernel[(-(-N // BM), B, H)](*given, H // K.shape[1], N, LOG2_E * d**-0.5, d=d, BM=BM, BN=BN)
    return o


HEADS = Suite(
    "11D",
    right=a_grid_of_three_axes,
    wrong={
        "its address has another name": (first_program_first("O", "acc", "    tl.store(to"),),
        "no operator makes it": (
            launched_twice("my_heads"),
            as_scratch(
                "O",
                "acc = tl.zeros((BM, d)",
                "tl.store(O + i[:, None] * o_strides[2] + c, q, mask=i[:, None] < N)",
                EXACT,
            ),
        ),
    },
)


# ---------------------------------------------------------------------- 11E
def whole_tiles_apart(Q, K, V, BM, BN):
    return parts(Q, K, V, True, BM, BN)


REPAIR = Suite(
    "11E",
    right=whole_tiles_apart,
    wrong={
        "no operator makes it": (
            launched_twice("my_repaired"),
            as_scratch("Q", "acc = tl.zeros((BM, d)", "tl.store(Q + rows, q * scale, mask=here)"),
            Mutant(
                "without-itself",
                "O equals exact attention",
                ("j[None, :] <= i[:, None]", "j[None, :] < i[:, None]"),
            ),
        )
    },
)

# ---------------------------------------------------------------------- 11G
LEAN = Suite(
    "11G",
    right=joined,  # the answer of 11F
    wrong={
        "a line as it was given": (
            Mutant(
                "exp",
                FEW,
                ("tl.exp2(s * scale - m_new[:, None])", f"tl.exp((s * scale - m_new[:, None]) * {LN_2})"),
                ("tl.exp2(m - m_new)", f"tl.exp((m - m_new) * {LN_2})"),
            ),
            Mutant(
                "scale-before-the-maximum",
                FEW,
                ("s = tl.dot(q, tl.trans(k))", "s = tl.dot(q, tl.trans(k)) * scale"),
                ("tl.max(s, 1) * scale", "tl.max(s, 1)"),
                ("s * scale - m_new", "s - m_new"),
            ),
            Mutant("masked-throughout", FEW, ("full = (first + 1 if CAUSAL else N) // BN * BN", "full = 0")),
        ),
        "no operator makes it": (
            launched_twice("my_lean_attention", "moves exactly the words of the blocks that are not empty"),
            as_scratch(
                "Q", "acc = tl.zeros((BM, d)", "tl.store(Q + i[:, None] * d + c, q * 2, mask=i[:, None] < N)"
            ),
            Mutant("v-raised", CORES, ("p.to(v.dtype), v, acc", "p, v.to(tl.float32), acc")),
            Mutant("one-warp", FITS, ("num_warps=4", "num_warps=1")),
            Mutant("acc-not-rescaled", IN_16, ("v, acc * old[:, None])", "v, acc)")),
            Mutant("masks-with-minus-1e4", FAR_FROM_0, ('float("-inf"))\n    m_new', "-1e4)\n    m_new")),
            Mutant(
                "p-cast-before-the-sum",
                "LSE has the precision of float32",
                (WEIGHTS, f"{WEIGHTS}.to(v.dtype)"),
                ("tl.sum(p, 1)", "tl.sum(p.to(tl.float32), 1)"),
            ),
            Mutant(
                "one-iteration-more",
                "no loop iteration is completely out of bounds",
                ("range(full, end, BN)", "range(full, end + BN, BN)"),
            ),
        ),
        "its address has another name": (first_program_first("O", "acc", "    tl.store(O + i"),),
    },
)


# ---------------------------------------------------------------------- 11H
def by_search(registers, shared_bytes, warps, sm):
    """Count up to the first number of programs that one resource cannot hold."""
    programs = 0
    while True:
        needed = {
            "registers": (programs + 1) * warps * 256 * -(-registers // 8),
            "shared memory": (programs + 1) * (shared_bytes + sm["reserved_bytes"]),
            "warps": (programs + 1) * warps,
            "blocks": programs + 1,
        }
        available = {
            "registers": sm["registers"],
            "shared memory": sm["shared_bytes"],
            "warps": sm["warps"],
            "blocks": sm["blocks"],
        }
        for limit, most in available.items():
            if needed[limit] > most:
                return programs, limit
        programs += 1


def per_thread(registers, shared_bytes, warps, sm):
    """Ignore the unit in which registers are allocated."""
    fit = {
        "registers": sm["registers"] // (32 * registers * warps),
        "shared memory": sm["shared_bytes"] // max(1, shared_bytes + sm["reserved_bytes"]),
        "warps": sm["warps"] // warps,
        "blocks": sm["blocks"],
    }
    return min(fit.values()), min(fit, key=fit.get)


def one_kilobyte_on_every_chip(registers, shared_bytes, warps, sm):
    """Reserve 1 KB also on a T4."""
    return by_search(registers, shared_bytes, warps, sm | {"reserved_bytes": 1024})


def reserve_once_per_sm(registers, shared_bytes, warps, sm):
    """Subtract one reserve from the shared memory of the SM."""
    available = sm["shared_bytes"] - sm["reserved_bytes"]
    return by_search(registers, shared_bytes, warps, sm | {"shared_bytes": available, "reserved_bytes": 0})


def no_reserve_without_shared_memory(registers, shared_bytes, warps, sm):
    return by_search(registers, shared_bytes, warps, sm if shared_bytes else sm | {"reserved_bytes": 0})


def blocks_per_warp(registers, shared_bytes, warps, sm):
    """Divide the number of blocks by the warps of a program."""
    return by_search(registers, shared_bytes, warps, sm | {"blocks": sm["blocks"] // warps})


def registers_in_bytes(registers, shared_bytes, warps, sm):
    return by_search(registers, shared_bytes, warps, sm | {"registers": 4 * sm["registers"]})


def shared_memory_rounded_up(registers, shared_bytes, warps, sm):
    whole = shared_bytes + sm["reserved_bytes"]
    room = -(-sm["shared_bytes"] // whole) * whole if whole else sm["shared_bytes"]
    return by_search(registers, shared_bytes, warps, sm | {"shared_bytes": room})


def at_least_one(registers, shared_bytes, warps, sm):
    programs, limit = by_search(registers, shared_bytes, warps, sm)
    return max(1, programs), limit


PER_SM = Suite(
    "11H",
    right=by_search,
    wrong={
        "no operator makes it": (
            (per_thread, "allocates registers to a warp in units of 256"),
            (one_kilobyte_on_every_chip, "adds the reserve to the shared memory of each program"),
            (reserve_once_per_sm, "adds the reserve to the shared memory of each program"),
            (no_reserve_without_shared_memory, "adds the reserve to the shared memory of each program"),
            (blocks_per_warp, "holds no more blocks than the SM has"),
            (registers_in_bytes, "holds no more programs than the registers of the SM allow"),
            (shared_memory_rounded_up, "holds no more programs than the shared memory of the SM allows"),
            (at_least_one, "returns 0 if no program fits"),
        )
    },
)

SUITES = (FORWARD, LOOPS, SIXTEEN_BITS, BAND, HEADS, PER_SM, LEAN, REPAIR)
