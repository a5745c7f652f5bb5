"""What is known about the exercises of lesson 11: mistakes, other right answers, cheats.

Some right answers are kernels of their own; so this file needs torch and triton.
"""

from harness import FINITE, Mutant, Suite, called, finite, kept_by_shape

from iocourse import kernels
from iocourse.course.checking import OWN, RUNS

# isort: split
import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from iocourse.kernels.forward import forward_kernel as library_kernel
from iocourse.kernels.jit_helpers import Rows, Seeing, Shape, Tiling

LOG2_E = 1.4426950408889634
O, LSE = "O equals exact attention", "LSE is the natural logarithm of the row sums"
ONE_TILE = "O is right where one tile holds all keys"
FAR = "scores far from 0 neither overflow nor vanish"
FULL_PRODUCTS = "float32 is multiplied as float32"
START = 'm = tl.full((BM,), float("-inf")'
LARGEST = "tl.maximum(m, tl.max(s, 1))"
WORK = "a kernel does the work"
WORDS = "loads and stores move exactly what the formula says"


def results(Q):
    """Room for O and LSE of one head."""
    return torch.empty_like(Q), torch.empty(Q.shape[0], dtype=torch.float32)


# ---------------------------------------------------------------------- 11A
@triton.jit
def folded_kernel(Q, K, V, O, LSE, N, scale, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Scale folded into Q, keys loaded transposed, a finite start for the maximum, weights by e."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    c = tl.arange(0, d)
    rows = (i < N)[:, None]
    q = tl.load(Q + i[:, None] * d + c[None, :], mask=rows, other=0.0) * scale
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.zeros((BM,), dtype=tl.float32) - 1e30
    l = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, tl.cdiv(N, BN)):
        j = start * BN + tl.arange(0, BN)
        k = tl.load(K + j[None, :] * d + c[:, None], mask=(j < N)[None, :], other=0.0)
        v = tl.load(V + j[:, None] * d + c[None, :], mask=(j < N)[:, None], other=0.0)
        s = tl.dot(q, k, input_precision="ieee")
        s = tl.where((j < N)[None, :], s, -1e30)
        top = tl.maximum(tl.max(s, 1), m)
        p = tl.exp(s - top[:, None])
        l = l * tl.exp(m - top) + tl.sum(p, 1)
        acc = acc * tl.exp(m - top)[:, None] + tl.dot(p, v, input_precision="ieee")
        m = top
    tl.store(O + i[:, None] * d + c[None, :], acc / l[:, None], mask=rows)
    tl.store(LSE + i, m + tl.log(l), mask=i < N)


def natural_units(Q, K, V, BM, BN):
    N, d = Q.shape
    o, lse = results(Q)
    folded_kernel[(-(-N // BM),)](Q, K, V, o, lse, N, d**-0.5, d=d, BM=BM, BN=BN)
    return o, lse


@triton.jit
def whole_rows_kernel(Q, K, V, O, LSE, N, scale, d: tl.constexpr, BM: tl.constexpr, ROW: tl.constexpr):
    """All keys as one tile: no loop, and the same words."""
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


def one_program_for_all_rows(Q, K, V, BM, BN):
    return whole_rows(Q, K, V, max(16, triton.next_power_of_2(Q.shape[0])))


def nothing_but_zeros(Q, K, V, BM, BN):
    return torch.zeros_like(Q), torch.zeros(Q.shape[0])


def torch_does_it(Q, K, V, BM, BN):
    S = Q @ K.T * Q.shape[1] ** -0.5
    return torch.softmax(S, -1) @ V, torch.logsumexp(S, -1)


def torch_attention(Q, K, V, BM, BN):
    return F.scaled_dot_product_attention(Q[None], K[None], V[None])[0], torch.zeros(Q.shape[0])


def library_call(Q, K, V, BM, BN):
    o, lse = kernels.attention_with_lse(*(x[None, None] for x in (Q, K, V)))
    return o[0, 0], lse[0, 0]


def library_launch(Q, K, V, BM, BN):
    N, d = Q.shape
    o, lse = results(Q)
    given = (Rows(x, N * d, N * d, d) for x in (Q, K, V, o))
    library_kernel[(-(-N // BM),)](
        *given, lse, None, None, Shape(-(-N // BM), 1, 1, d), d**-0.5, N, N, 0, 0,
        TILE=Tiling(BM, BN, d, False, False, "ieee"), SEEN=Seeing(False, False),
    )  # fmt: skip
    return o, lse


FORWARD = Suite(
    id="11A",
    mutants=(
        kept_by_shape(O, "my_flash_forward"),
        Mutant(
            "one-output-for-each-shape",
            RUNS,
            ("def my_flash_forward(", "KEPT = {}\n\n\ndef my_flash_forward("),
            (
                "O, LSE = torch.empty_like(Q), torch.empty(N, dtype=torch.float32)",
                "O, LSE = KEPT.setdefault(N, (torch.empty_like(Q), torch.empty(N, dtype=torch.float32)))",
            ),
        ),
        Mutant("output-not-rescaled", O, ("acc * old[:, None]", "acc")),
        Mutant("sum-not-rescaled", LSE, ("l * old + tl.sum(p, 1)", "l + tl.sum(p, 1)")),
        Mutant("zeros-take-weight", O, ('s = tl.where(j[None, :] < N, s, float("-inf"))', "s = s * 1.0")),
        Mutant("e-in-units-of-2", ONE_TILE, ("tl.exp2", "tl.exp")),
        Mutant("no-scale", ONE_TILE, (" * scale  # (BM, BN)", "")),
        Mutant("keys-as-values", ONE_TILE, ("tl.load(V", "tl.load(K")),
        Mutant("written-into-the-queries", RUNS, ("torch.empty_like(Q)", "Q")),
        Mutant("no-maximum", FAR, (LARGEST, "tl.zeros((BM,), dtype=tl.float32)")),
        *finite(FAR, "starts-at", START),
        *finite(FAR, "hidden-as", '(j[None, :] < N, s, float("-inf"))'),
        Mutant("factors-rounded", FULL_PRODUCTS, ('tl.trans(k), input_precision="ieee"', "tl.trans(k)")),
        Mutant(
            "undefined-values",
            O,
            (
                "v = tl.load(V + j[:, None] * d + c, mask=there, other=0.0)",
                "v = tl.load(V + j[:, None] * d + c, mask=there)",
            ),
        ),
        Mutant("no-mask-on-loads", RUNS, ("mask=there, other=0.0", "")),
        Mutant("last-keys-forgotten", O, ("range(0, N, BN)", "range(0, N // BN * BN, BN)")),
        Mutant(
            "keys-twice",
            WORDS,
            (
                "        m = m_new",
                "        v = tl.load(K + j[:, None] * d + c, mask=there)\n        m = m_new",
            ),
        ),
        Mutant("lse-in-units-of-2", LSE, (" * 0.6931471805599453", "")),
    ),
    right=(natural_units, all_keys_in_one_tile),
    cheats=(
        (nothing_but_zeros, O),
        (nothing_but_zeros, WORK),
        (torch_does_it, OWN),
        (torch_attention, OWN),
        (library_call, OWN),
        (library_launch, OWN),
        (kernels.attention, OWN),
        (one_program_for_all_rows, WORDS),
        (called("one_result", lambda Q, K, V, BM, BN: whole_rows(Q, K, V, BM)[0]), O),
    ),
)

# ---------------------------------------------------------------------- 11B
CAUSAL, FULL = "O is right under a causal mask", "O is right without a causal mask"
VISITS, MASKS = "tiles that no query sees are not loaded", "tiles without a hidden pair pay for no mask"


@triton.jit
def parts_kernel(
    Q, K, V, O, LSE, N, scale, CAUSAL: tl.constexpr, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    MASK_ALL: tl.constexpr, VISIT_ALL: tl.constexpr, LAST_FIRST: tl.constexpr,
):  # fmt: skip
    """Both loops laid out by one static_range, weights masked as well as scores."""
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


def longest_program_first(Q, K, V, causal, BM, BN):
    return parts(Q, K, V, causal, BM, BN, LAST_FIRST=True)


def one_loop_that_masks_all(Q, K, V, causal, BM, BN):
    return parts(Q, K, V, causal, BM, BN, MASK_ALL=True)


def every_tile_is_visited(Q, K, V, causal, BM, BN):
    return parts(Q, K, V, causal, BM, BN, VISIT_ALL=True)


def causal_library_call(Q, K, V, causal, BM, BN):
    o, lse = kernels.attention_with_lse(*(x[None, None] for x in (Q, K, V)), causal=causal)
    return o[0, 0], lse[0, 0]


def causal_torch(Q, K, V, causal, BM, BN):
    return F.scaled_dot_product_attention(Q, K, V, is_causal=causal), torch.zeros(Q.shape[0])


LOOPS = Suite(
    id="11B",
    mutants=(
        kept_by_shape(CAUSAL, "my_two_loops"),
        Mutant(
            "all-masked",
            MASKS,
            ("whole = (first + 1) // BN * BN", "whole = 0"),
            ("whole = N // BN * BN", "whole = 0"),
        ),
        Mutant("causal-all-masked", MASKS, ("whole = (first + 1) // BN * BN", "whole = 0")),
        Mutant("full-all-masked", MASKS, ("whole = N // BN * BN", "whole = 0")),
        Mutant("every-tile-visited", VISITS, ("end = tl.minimum(first + BM, N)", "end = N")),
        Mutant("no-diagonal", CAUSAL, ("seen = seen & (j[None, :] <= i[:, None])", "pass")),
        Mutant("own-key-hidden", CAUSAL, ("<= i[:, None]", "< i[:, None]")),
        Mutant(
            "diagonal-taken-for-whole",
            CAUSAL,
            ("whole = (first + 1) // BN * BN", "whole = tl.minimum(first + BM, N) // BN * BN"),
        ),
        Mutant(
            "whole-tile-masked",
            MASKS,
            ("whole = (first + 1) // BN * BN", "whole = tl.maximum(first // BN * BN - BN, 0)"),
        ),
        Mutant("one-tile-on-the-diagonal", CAUSAL, ("range(whole, end, BN)", "range(whole, whole + 1, BN)")),
        Mutant("past-the-last-key", MASKS, ("end = tl.minimum(first + BM, N)", "end = first + BM")),
        Mutant("ragged-keys-forgotten", FULL, ("        end = N\n", "        end = whole\n")),
        Mutant("ragged-keys-not-hidden", FULL, ("seen = j[None, :] < N", "seen = j[None, :] >= 0")),
        Mutant("masks-the-other-loop", MASKS, ("CAUSAL, False, d", "CAUSAL, True, d")),
        Mutant("no-mask-on-loads", RUNS, ("mask=j[:, None] < N, other=0.0", "")),
        Mutant("sum-not-rescaled", LSE, ("l * old + tl.sum(p, 1)", "l + tl.sum(p, 1)")),
        Mutant("no-maximum", FAR, (START, START.replace('float("-inf")', "0.0")), (LARGEST, "m")),
        Mutant("no-maximum-below-0", FAR, (LARGEST, "tl.maximum(tl.max(s, 1), 0.0)")),
        Mutant("zero-for-the-row's-maximum", FAR, (LARGEST, "tl.maximum(m, 0.0)")),
        *finite(FAR, "starts-at", START),
        *finite(FAR, "hidden-as", 's = tl.where(seen, s, float("-inf"))', FINITE[1:]),
        Mutant("factors-rounded", FULL_PRODUCTS, ('tl.trans(k), input_precision="ieee"', "tl.trans(k)")),
    ),
    right=(loops_by_static_range, longest_program_first),
    cheats=(
        (one_loop_that_masks_all, MASKS),
        (every_tile_is_visited, VISITS),
        (causal_library_call, OWN),
        (causal_torch, OWN),
    ),
)

# ---------------------------------------------------------------------- 11C
NO_MASK = "O is right where every row sees a key in every tile"
LATE = "a row that sees its first key late is right"
NOTHING, NOTHING_LSE = "a row that sees nothing has O = 0", "a row that sees nothing has LSE = -∞"


@triton.jit
def guarded_weights_kernel(
    Q, K, V, O, LSE, Nq, Nk, low, high, scale, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    START: tl.constexpr,
):  # fmt: skip
    """Weights are 0 where a pair is hidden, chosen after the exponential; START is the first maximum."""
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


def maximum_at_least_minus_100(Q, K, V, low, high, BM, BN):
    """A finite maximum to start with is wrong as soon as all scores of a row lie far below it."""
    return band_from(Q, K, V, low, high, BM, BN, -100.0)


def maximum_at_least_minus_10000(Q, K, V, low, high, BM, BN):
    return band_from(Q, K, V, low, high, BM, BN, -10_000.0)


@triton.jit
def whole_band_kernel(
    Q, K, V, O, LSE, Nq, Nk, low, high, scale, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    ROW: tl.constexpr,
):  # fmt: skip
    """All keys of the band as one tile, without a loop; weights by e."""
    first = tl.program_id(0) * BM
    i, j, c = first + tl.arange(0, BM), tl.arange(0, ROW), tl.arange(0, d)
    begin, end = tl.maximum(0, first + low), tl.minimum(Nk, tl.minimum(first + BM, Nq) + high)
    visited = (begin < end) & (j >= begin // BN * BN) & (j < tl.cdiv(end, BN) * BN) & (j < Nk)
    q = tl.load(Q + i[:, None] * d + c, mask=i[:, None] < Nq, other=0.0)
    k = tl.load(K + j[:, None] * d + c, mask=visited[:, None], other=0.0)
    v = tl.load(V + j[:, None] * d + c, mask=visited[:, None], other=0.0)
    apart = j[None, :] - i[:, None]
    seen = visited[None, :] & (apart >= low) & (apart <= high)
    s = tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
    m = tl.max(s, 1)
    m = tl.where(m == float("-inf"), 0.0, m)
    p = tl.exp(s - m[:, None])
    l = tl.sum(p, 1)
    safe = tl.where(l > 0, l, 1.0)
    o = tl.dot(p, v, input_precision="ieee") / safe[:, None]
    tl.store(O + i[:, None] * d + c, o, mask=i[:, None] < Nq)
    tl.store(LSE + i, tl.where(l > 0, m + tl.log(safe), float("-inf")), mask=i < Nq)


def all_keys_of_the_band_at_once(Q, K, V, low, high, BM, BN):
    (Nq, d), Nk = Q.shape, K.shape[0]
    o, lse = results(Q)
    row = max(16, triton.next_power_of_2(Nk))
    whole_band_kernel[(-(-Nq // BM),)](
        Q, K, V, o, lse, Nq, Nk, low, high, d**-0.5, d=d, BM=BM, BN=BN, ROW=row
    )
    return o, lse


def banded_library_call(Q, K, V, low, high, BM, BN):
    o, lse = kernels.attention_with_lse(*(x[None, None] for x in (Q, K, V)), window=(-low, max(high, 0)))
    return o[0, 0], lse[0, 0]


BAND = Suite(
    id="11C",
    mutants=(
        kept_by_shape(O, "my_band_attention"),
        Mutant("rows-of-16-words", NO_MASK, ("j[:, None] * d + c", "j[:, None] * 16 + c")),
        Mutant("minus-inf-subtracted", LATE, ('tl.where(m_new == float("-inf"), 0.0, m_new)', "m_new")),
        Mutant("divided-by-zero", NOTHING, ("safe = tl.where(nothing, 1.0, l)", "safe = l")),
        Mutant("lse-of-nothing-is-0", NOTHING_LSE, ('float("-inf"), (m', "0.0, (m")),
        Mutant(
            "hidden-by-a-large-number",
            NOTHING,
            ('s = tl.where(seen, s, float("-inf"))', "s = tl.where(seen, s, -1e6)"),
        ),
        Mutant("keys-past-the-end", NO_MASK, ("(j[None, :] < Nk) & (apart >= low)", "(apart >= low)")),
        Mutant("left-edge-off-by-one", O, ("(apart >= low)", "(apart > low)")),
        Mutant("diagonal-off-by-one", O, ("(apart <= high)", "(apart < high)")),
        Mutant("every-key-visited", WORDS, ("range(begin // BN * BN, end, BN)", "range(0, end, BN)")),
        Mutant("old-factor-by-m-new", LATE, ("old = tl.exp2(m - shift)", "old = tl.exp2(m - m_new)")),
        Mutant("no-maximum", FAR, (START, START.replace('float("-inf")', "0.0")), (LARGEST, "m")),
        *finite(FAR, "starts-at", START),
        Mutant("last-key-forgotten", NO_MASK, ("BN * BN, end, BN)", "BN * BN, end - 1, BN)")),
        Mutant(
            "a-tile-of-no-key", WORDS, ("tl.where(begin < end, end, 0)", "tl.where(begin <= end, end, 0)")
        ),
        Mutant("factors-rounded", FULL_PRODUCTS, ('tl.trans(k), input_precision="ieee"', "tl.trans(k)")),
    ),
    right=(weights_guarded, all_keys_of_the_band_at_once),
    cheats=(
        (banded_library_call, OWN),
        (kernels.attention_with_lse, OWN),
        (maximum_at_least_minus_100, FAR),
        (maximum_at_least_minus_10000, FAR),
    ),
)

# ---------------------------------------------------------------------- 11D
ONE_HEAD, OWN_KEYS = "one head is right", "each head meets its own keys"
SHARED, LAYOUT = "heads that share keys are right", "strides are taken from the tensors"


@triton.jit
def three_axes_kernel(
    Q, qb, qh, qn, K, kb, kh, kn, V, vb, vh, vn, O, ob, oh, on, group, N, scale,
    d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A grid of three axes, heads fastest in the order of the interpreter; strides one by one."""
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


def a_launch_for_each_head(Q, K, V, BM, BN):
    """Views of one head at a time: as many programs, in as many launches as there are heads."""
    o, group = torch.empty(Q.shape), Q.shape[1] // K.shape[1]
    for head in range(Q.shape[1]):
        mine, shared = slice(head, head + 1), slice(head // group, head // group + 1)
        three_axes(Q[:, mine], K[:, shared], V[:, shared], o[:, mine], BM, BN)
    return o


def three_axes(Q, K, V, o, BM, BN):
    B, H, N, d = Q.shape
    given = (part for x in (Q, K, V, o) for part in (x, *x.stride()[:3]))
    three_axes_kernel[(-(-N // BM), B, H)](*given, H // K.shape[1], N, LOG2_E * d**-0.5, d=d, BM=BM, BN=BN)
    return o


def copied_by_torch(Q, K, V, BM, BN):
    return three_axes(Q.contiguous(), K.contiguous(), V.contiguous(), torch.empty(Q.shape), BM, BN)


def keys_repeated_by_torch(Q, K, V, BM, BN):
    group = Q.shape[1] // K.shape[1]
    K, V = (x[:, :, None].expand(-1, -1, group, -1, -1).reshape(Q.shape) for x in (K, V))
    return three_axes(Q, K, V, torch.empty(Q.shape), BM, BN)


def heads_by_torch(Q, K, V, BM, BN):
    return F.scaled_dot_product_attention(Q, K, V, enable_gqa=True)


KEYS_STRIDES = "K.stride()[:3]"
HEADS = Suite(
    id="11D",
    mutants=(
        kept_by_shape(FAR, "my_heads"),
        Mutant("scale-of-16-columns", OWN_KEYS, ("* d**-0.5", "* 16**-0.5")),
        Mutant("tiles-of-32-rows", RUNS, ("tile * BM + tl.arange(0, BM)", "tile * 32 + tl.arange(0, 32)")),
        Mutant("keys-taken-for-contiguous", LAYOUT, (KEYS_STRIDES, "torch.empty(K.shape).stride()[:3]")),
        Mutant("rows-of-keys-taken-for-contiguous", LAYOUT, ("k_strides[2]", "d")),
        Mutant("keys-by-strides-of-queries", RUNS, (KEYS_STRIDES, "Q.stride()[:3]")),
        Mutant("keys-by-strides-of-values", RUNS, (KEYS_STRIDES, "V.stride()[:3]")),
        Mutant("no-maximum", FAR, (START, START.replace('float("-inf")', "0.0")), (LARGEST, "m")),
        *finite(FAR, "starts-at", START),
        *finite(FAR, "hidden-as", '(j[None, :] < N, s, float("-inf"))', FINITE[1:]),
        Mutant("factors-rounded", FULL_PRODUCTS, ('tl.trans(k), input_precision="ieee"', "tl.trans(k)")),
        Mutant("groups-interleaved", SHARED, ("head // group", "head % (H // group)")),
        Mutant("one-batch-for-all", OWN_KEYS, ("batch * k_strides[0] + ", "")),
        Mutant("one-head-of-values", OWN_KEYS, ("head // group * v_strides[1]", "0")),
        Mutant("rows-taken-for-contiguous", LAYOUT, ("q_strides[2]", "d")),
        Mutant("output-taken-for-contiguous", LAYOUT, ("o_strides[2]", "d")),
        Mutant("values-by-strides-of-keys", LAYOUT, ("v_strides[2]", "k_strides[2]")),
        Mutant("output-by-strides-of-queries", RUNS, ("o_strides[2]", "q_strides[2]")),
        Mutant("batches-forgotten", OWN_KEYS, ("programs = B * H *", "programs = H *")),
        Mutant(
            "zeros-take-weight", ONE_HEAD, ('s = tl.where(j[None, :] < N, s, float("-inf"))', "s = s * 1.0")
        ),
        Mutant(
            "tiles-and-heads-exchanged",
            RUNS,
            ("program % tiles, program // tiles", "program // tiles, program % tiles"),
        ),
        Mutant(
            "keys-twice",
            WORDS,
            (
                "        m = m_new",
                "        v = tl.load(K + j[:, None] * k_strides[2] + c, mask=there)\n        m = m_new",
            ),
        ),
    ),
    right=(a_grid_of_three_axes, a_launch_for_each_head),
    cheats=(
        (called("heads_by_the_library", lambda Q, K, V, BM, BN: kernels.attention(Q, K, V)), OWN),
        (heads_by_torch, OWN),
        (kernels.attention, OWN),
        (copied_by_torch, OWN),
        (keys_repeated_by_torch, OWN),
    ),
)

# ---------------------------------------------------------------------- 11E
IN_LOOP = "tl.load(Q + rows, mask=here, other=0.0), k, input"
Q_STAYS, TO_THE_DIAGONAL = "tl.dot(q, k, input", "range(0, tl.minimum(first + BM, N), BN)"
RESCALED = "acc * old[:, None]"
AS_FOUND = ((Q_STAYS, f"tl.dot({IN_LOOP}"), (TO_THE_DIAGONAL, "range(0, N, BN)"), (RESCALED, "acc"))


def one_loop_to_the_diagonal(Q, K, V, BM, BN):
    """Scores masked and weights masked, one loop laid out by static_range."""
    return parts(Q, K, V, True, BM, BN, MASK_ALL=True)


def whole_tiles_apart(Q, K, V, BM, BN):
    return parts(Q, K, V, True, BM, BN)


def all_tiles_of_keys(Q, K, V, BM, BN):
    return parts(Q, K, V, True, BM, BN, VISIT_ALL=True)


def library_for_a_repair(Q, K, V, BM, BN):
    return causal_library_call(Q, K, V, True, BM, BN)


REPAIR = Suite(
    id="11E",
    mutants=(
        Mutant("as-found", WORDS, *AS_FOUND),
        Mutant("as-found-in-values", O, *AS_FOUND),
        Mutant("queries-in-every-round", WORDS, AS_FOUND[0]),
        Mutant("past-the-diagonal", WORDS, AS_FOUND[1]),
        Mutant("output-not-rescaled", O, AS_FOUND[2]),
        Mutant("output-rescaled-twice", O, (RESCALED, f"{RESCALED} * old[:, None]")),
        Mutant("ends-at-its-first-row", O, ("tl.minimum(first + BM, N)", "tl.minimum(first + 1, N)")),
        Mutant("a-tile-too-far", WORDS, ("tl.minimum(first + BM, N)", "tl.minimum(first + 2 * BM, N)")),
        Mutant("own-key-hidden", O, ("<= i[:, None], s", "< i[:, None], s")),
        Mutant("no-maximum", FAR, (START, START.replace('float("-inf")', "0.0")), (LARGEST, "m")),
        Mutant("factors-rounded", FULL_PRODUCTS, (f'{Q_STAYS}_precision="ieee"', "tl.dot(q, k")),
    ),
    right=(one_loop_to_the_diagonal, whole_tiles_apart),
    cheats=(
        (all_tiles_of_keys, WORDS),
        (library_for_a_repair, OWN),
        (called("torch_for_a_repair", lambda Q, K, V, BM, BN: causal_torch(Q, K, V, True, BM, BN)), OWN),
    ),
)

SUITES = (FORWARD, LOOPS, BAND, HEADS, REPAIR)
