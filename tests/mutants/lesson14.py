"""What is known about the exercises of lesson 14: mistakes, other right answers, cheats.

Some right answers are kernels of their own; so this file needs torch and triton.
"""

from itertools import pairwise

from harness import Mutant, Suite, called, finite, kept_by_shape

from iocourse import kernels
from iocourse.costs.kernels import KernelProblem, attention_decode
from iocourse.course.checking import OWN, RUNS

# isort: split
import torch
import triton
import triton.language as tl

from iocourse.kernels.jit_helpers import Rows
from iocourse.kernels.split_kv_decode import Parts
from iocourse.kernels.split_kv_decode import merge_kernel as library_merge_kernel

LOG2_E = 1.4426950408889634
WORK, WORDS = "a kernel does the work", "loads and stores move exactly what the formula says"

# ---------------------------------------------------------------------- 14A
ONE, BATCH = "the bytes of one head are right", "every text and every head has a cache of its own"
SHARED, SHORT = (
    "keys that heads share are read once",
    "queries and outputs are counted: a short cache shows it",
)
TIME = "the time is in microseconds"


def array_by_array(B, H, H_kv, N, d, itemsize, gbytes_per_s):
    shapes = {"q": (B, H, 1, d), "k": (B, H_kv, N, d), "v": (B, H_kv, N, d), "o": (B, H, 1, d)}
    moved = sum(itemsize * b * h * n * width for b, h, n, width in shapes.values())
    return moved, moved / (gbytes_per_s * 1e9) * 1e6


def by_the_closed_form(B, H, H_kv, N, d, itemsize, gbytes_per_s):
    """One part; what the two kernels hand to one another, and the row sums, taken off again."""
    ledger = attention_decode(KernelProblem(1, N, d, B=B, H=H, H_kv=H_kv), parts=1)
    words = sum(ledger.reads[x] for x in "QKV") + ledger.writes["O"]
    return words * itemsize, words * itemsize / gbytes_per_s / 1000


def zeros(*args):
    return 0, 0.0


STEP = Suite(
    id="14A",
    mutants=(
        Mutant("2-bytes-a-word", ONE, ("itemsize * words", "2 * words")),
        Mutant("bytes-of-32-bits", BATCH, ("return moved,", "return np.int64(moved).astype(np.int32),")),
        Mutant("keys-of-every-head", SHARED, ("2 * B * H_kv * N * d", "2 * B * H * N * d")),
        Mutant("keys-only", ONE, ("2 * B * H_kv * N * d", "B * H_kv * N * d")),
        Mutant("one-text", BATCH, ("2 * B * H_kv * N * d", "2 * H_kv * N * d")),
        Mutant("no-queries", SHORT, (" + 2 * B * H * d", "")),
        Mutant("no-outputs", SHORT, (" + 2 * B * H * d", " + B * H * d")),
        Mutant("queries-of-every-token", ONE, ("2 * B * H * d", "2 * B * H * N * d")),
        Mutant("words-for-bytes", ONE, ("itemsize * words", "words")),
        Mutant("milliseconds", TIME, ("1000 * gbytes_per_s", "1e6 * gbytes_per_s")),
        Mutant("binary-gigabytes", TIME, ("1000 * gbytes_per_s", "2**30 / 1e6 * gbytes_per_s")),
    ),
    right=(array_by_array, by_the_closed_form),
    cheats=((zeros, ONE), (kernels.decode, OWN)),
)

# ---------------------------------------------------------------------- 14B
FORWARD = ["forward, limited by memory", "forward, limited by products"]
BACKWARD = ["backward, limited by memory", "backward, limited by products"]
DECODE, LIMIT = "a decode step", "the limit is named"


def by_intensity(pass_, B, H, H_kv, N, d, itemsize, tflops, gbytes_per_s):
    """The roofline as in (11.7): FLOP over what the chip reaches at this intensity."""
    rows = {"forward": (N, N, 2), "backward": (N, N, 4), "decode": (1, N, 2)}[pass_]
    queries, keys, arrays = rows
    flop = (2.5 if pass_ == "backward" else 1) * 4 * B * H * queries * keys * d
    intensity = flop / (itemsize * arrays * B * d * (H * queries + H_kv * keys))
    slope = intensity * gbytes_per_s / 1000  # TFLOP/s
    return flop / min(tflops, slope) / 1e6, "memory" if slope < tflops else "products"


def names_of_arrays(pass_, B, H, H_kv, N, d, itemsize, tflops, gbytes_per_s):
    queries, keys = B * H * d * (1 if pass_ == "decode" else N), B * H_kv * N * d
    arrays = {"Q": queries, "K": keys, "V": keys, "O": queries}
    if pass_ == "backward":
        arrays |= {"dO": queries, "dQ": queries, "dK": keys, "dV": keys}
    products = 5 if pass_ == "backward" else 2
    times = {
        "memory": itemsize * sum(arrays.values()) / gbytes_per_s / 1e3,
        "products": products * 2 * queries * N / tflops / 1e6,
    }
    longer = max(times, key=times.get)
    return times[longer], longer


ROOF = Suite(
    id="14B",
    mutants=(
        Mutant("2-bytes-a-word", FORWARD[0], ("itemsize * arrays", "2 * arrays")),
        Mutant("2-bytes-a-word-for-decode", DECODE, ("N, d, itemsize, gbytes", "N, d, 2, gbytes")),
        Mutant("times-added", FORWARD[0], ("max(multiplying, moving),", "multiplying + moving,")),
        Mutant("the-shorter", FORWARD[1], ("max(multiplying, moving),", "min(multiplying, moving),")),
        Mutant("limits-exchanged", LIMIT, ("moving > multiplying", "moving < multiplying")),
        Mutant("backward-as-forward", BACKWARD[1], ("(10, 4)", "(4, 4)")),
        Mutant("seven-products", BACKWARD[1], ("(10, 4)", "(14, 4)")),
        Mutant("gradients-not-written", BACKWARD[0], ("(10, 4)", "(10, 2)")),
        Mutant("keys-not-shared", FORWARD[0], ("(H + H_kv)", "(2 * H)")),
        Mutant("queries-as-keys", FORWARD[0], ("(H + H_kv)", "(2 * H_kv)")),
        Mutant("half-the-flop", FORWARD[1], ('"forward": (4, 2)', '"forward": (2, 2)')),
        Mutant("decode-as-a-pass", DECODE, ("flop = 4 * B * H * N * d", "flop = 4 * B * H * N**2 * d")),
        Mutant(
            "flop-of-heads-of-keys", FORWARD[1], ("products * B * H * N**2", "products * B * H_kv * N**2")
        ),
        Mutant("peak-in-gflops", FORWARD[1], ("1e6 * tflops", "1e3 * tflops")),
        Mutant("one-text", FORWARD[1], ("products * B * H * N**2", "products * H * N**2")),
    ),
    right=(by_intensity, names_of_arrays),
    cheats=(
        (called("always_memory", lambda *args: (by_intensity(*args)[0], "memory")), LIMIT),
        (zeros, LIMIT),
    ),
)

# ---------------------------------------------------------------------- 14C
HEAD, BETWEEN = "O of one head is right", "parts of one head are found between those of others"
LSE, NO_KEY = "LSE is the log-sum-exp of all parts", "a part without a key has no weight"
ZERO, MINUS_INF = "no part with a key: O = 0", "no part with a key: LSE = -∞"
LOW = "parts that are all low are merged as others are"
LARGE, LARGE_LSE = "log-sum-exps of ±200 neither overflow nor vanish", "LSE is right there too"


@triton.jit
def one_by_one_kernel(O_parts, LSE_parts, O, LSE, parts, group, d: tl.constexpr):
    """Part after part, as online softmax: a running maximum, sum and output."""
    pair, member = tl.program_id(1), tl.program_id(0)
    c = tl.arange(0, d)
    acc = tl.zeros((d,), dtype=tl.float32)
    m, l = float("-inf"), 0.0
    for part in range(parts):
        at = (pair * parts + part) * group + member
        L = tl.load(LSE_parts + at)
        o = tl.load(O_parts + at * d + c)
        top = tl.maximum(m, L)
        shift = tl.where(top == float("-inf"), 0.0, top)
        acc = acc * tl.exp(m - shift) + o * tl.exp(L - shift)
        l = l * tl.exp(m - shift) + tl.exp(L - shift)
        m = top
    seen = l > 0
    tl.store(O + (pair * group + member) * d + c, acc / tl.where(seen, l, 1.0))
    tl.store(LSE + pair * group + member, tl.where(seen, m + tl.log(tl.where(seen, l, 1.0)), float("-inf")))


def one_by_one(O_parts, LSE_parts):
    pairs, parts, group, d = O_parts.shape
    o, lse = torch.empty(pairs, group, d), torch.empty(pairs, group)
    one_by_one_kernel[(group, pairs)](O_parts, LSE_parts, o, lse, parts, group, d=d)
    return o, lse


@triton.jit
def columns_kernel(
    O_parts, LSE_parts, O, LSE, parts, group, d: tl.constexpr, PARTS: tl.constexpr, GROUP: tl.constexpr
):
    """All heads of a group in one program: (PARTS, GROUP) log-sum-exps, then one column of O at a time."""
    pair = tl.program_id(0)
    p, g = tl.arange(0, PARTS)[:, None], tl.arange(0, GROUP)
    at = (pair * parts + p) * group + g[None, :]
    there = (p < parts) & (g[None, :] < group)
    L = tl.load(LSE_parts + at, mask=there, other=-1e30) * 1.4426950408889634
    m = tl.maximum(tl.max(L, 0), -1e29)
    weights = tl.exp2(L - m[None, :])
    l = tl.sum(weights, 0)
    for c in range(d):
        o = tl.load(O_parts + at * d + c, mask=there, other=0.0)
        o = tl.sum(weights * o, 0) / tl.maximum(l, 1e-30)
        tl.store(O + (pair * group + g) * d + c, o, mask=g < group)
    total = tl.where(l > 0, (m + tl.log2(tl.maximum(l, 1e-30))) / 1.4426950408889634, float("-inf"))
    tl.store(LSE + pair * group + g, total, mask=g < group)


def group_by_group(O_parts, LSE_parts):
    pairs, parts, group, d = O_parts.shape
    o, lse = torch.empty(pairs, group, d), torch.empty(pairs, group)
    sizes = {"PARTS": triton.next_power_of_2(parts), "GROUP": triton.next_power_of_2(group)}
    columns_kernel[(pairs,)](O_parts, LSE_parts, o, lse, parts, group, d=d, **sizes)
    return o, lse


def merged_by_torch(O_parts, LSE_parts):
    lse = LSE_parts.logsumexp(1)
    return ((LSE_parts - lse[:, None]).exp()[..., None] * O_parts).sum(1), lse


def weights_by_torch(O_parts, LSE_parts):
    """The kernel gets weights that are ready."""
    return one_by_one(O_parts, LSE_parts.log_softmax(1))


def merged_by_the_library(O_parts, LSE_parts):
    pairs, parts, group, d = O_parts.shape
    o, lse = torch.empty(pairs, group, 1, d), torch.empty(pairs, group)
    library_merge_kernel[(pairs * group,)](
        O_parts, LSE_parts, Rows(o, *o.stride()[:3]), lse, Parts(parts, 1, 1, group, d),
        PARTS=triton.next_power_of_2(parts), MORE=False, DIM=d,
    )  # fmt: skip
    return o[:, :, 0], lse


def nothing_but_zeros(O_parts, LSE_parts):
    return torch.zeros_like(O_parts[:, 0]), torch.zeros_like(LSE_parts[:, 0])


AT = "(pair * parts + p) * group + member"
GUARD = 'm = tl.where(m == float("-inf"), 0.0, m)'
CHOSEN = 'tl.where(total == 0.0, float("-inf"), m + tl.log(safe))'
OUTPUTS = "o = tl.load(O_parts + at[:, None] * d + c, mask=p[:, None] < parts, other=0.0)"
MAXIMUM = "m = tl.max(L, 0)\n"
NO_KEYS_WEIGH = 'L = tl.where((L == float("-inf")) & (p < parts), 0.0, L)'
MERGE = Suite(
    id="14C",
    mutants=(
        Mutant("parts-side-by-side", BETWEEN, (AT, "(pair * group + member) * parts + p")),
        Mutant("other-head-of-the-group", BETWEEN, (AT, AT.replace("member", "group - 1 - member"))),
        Mutant("all-heads-of-the-first-pair", BETWEEN, ("(pair * parts + p)", "(0 * parts + p)")),
        Mutant("plain-mean", HEAD, ("tl.exp(L - m)  ", "tl.where(p < parts, 1.0, 0.0)  ")),
        Mutant("not-divided", HEAD, ("weights[:, None] * o, 0) / safe", "weights[:, None] * o, 0)")),
        Mutant("no-maximum", LARGE, (MAXIMUM, "m = 0.0 * tl.max(L, 0)\n")),
        Mutant("first-part-for-maximum", LARGE, (MAXIMUM, "m = tl.sum(tl.where(p == 0, L, 0.0), 0)\n")),
        Mutant("parts-without-a-key-weigh", NO_KEY, (MAXIMUM, f"{NO_KEYS_WEIGH}\n    {MAXIMUM}")),
        Mutant("powers-of-two", HEAD, ("tl.exp(L - m)", "tl.exp2(L - m)")),
        Mutant("maximum-for-lse", LSE, ("m + tl.log(safe)", "m")),
        Mutant("log-of-base-2", LSE, ("tl.log(safe)", "tl.log2(safe)")),
        Mutant("minus-inf-subtracted", ZERO, (GUARD, "m = m + 0.0")),
        Mutant("divided-by-zero", ZERO, ("tl.where(total == 0.0, 1.0, total)", "total")),
        Mutant("lse-of-nothing-is-0", MINUS_INF, (CHOSEN, "m + tl.log(safe)")),
        Mutant("missing-parts-weigh", LSE, ('other=float("-inf")', "other=0.0")),
        Mutant("missing-parts-at-100", LARGE, ('other=float("-inf")', "other=-100.0")),
        Mutant("missing-parts-at-10000", LOW, ('other=float("-inf")', "other=-10000.0")),
        Mutant("no-maximum-below-0", LOW, (MAXIMUM, "m = tl.maximum(tl.max(L, 0), 0.0)\n")),
        Mutant("missing-outputs-undefined", HEAD, (OUTPUTS, OUTPUTS.replace(", other=0.0", ""))),
        Mutant("no-mask", RUNS, ('mask=p < parts, other=float("-inf")', "")),
        Mutant("outputs-twice", WORDS, (MAXIMUM, f"{OUTPUTS}\n    {MAXIMUM}")),
    ),
    right=(one_by_one, group_by_group),
    cheats=(
        (merged_by_torch, OWN),
        (weights_by_torch, OWN),
        (merged_by_the_library, OWN),
        (kernels.decode, OWN),
        (called("one_result", lambda O_parts, LSE_parts: one_by_one(O_parts, LSE_parts)[0]), HEAD),
        (nothing_but_zeros, HEAD),
        (nothing_but_zeros, WORK),
    ),
)

# ---------------------------------------------------------------------- 14D
ALONE, SEVERAL, NONE = "one text is right", "texts of several lengths are right", "empty texts change nothing"
FAR = "scores far from 0 neither overflow nor vanish"
HEADS, ROWS = "heads that lie side by side are told apart", "no word of padding or of a neighbour is read"


@triton.jit
def whole_texts_kernel(
    Q, K, V, O, cu, H, scale, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, AGAIN: tl.constexpr
):
    """All tiles of one head of one text in one program, which reads cu once; weights by e, masked weights."""
    text, head = tl.program_id(0), tl.program_id(1)
    c = tl.arange(0, d)
    begin = tl.load(cu + text)
    end = tl.load(cu + text + 1)
    for first in range(begin, end, BM):
        i = first + tl.arange(0, BM)
        q = tl.load(Q + i[:, None] * H * d + head * d + c, mask=i[:, None] < end, other=0.0)
        acc = tl.zeros((BM, d), dtype=tl.float32)
        m = tl.zeros((BM,), dtype=tl.float32) - 1e30
        l = tl.zeros((BM,), dtype=tl.float32)
        for start in range(0 if AGAIN else begin, end, BN):
            j = start + tl.arange(0, BN)
            own = (j >= begin) & (j < end)
            k = tl.load(K + j[:, None] * H * d + head * d + c, mask=j[:, None] < end, other=0.0)
            v = tl.load(V + j[:, None] * H * d + head * d + c, mask=j[:, None] < end, other=0.0)
            s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            top = tl.maximum(m, tl.max(tl.where(own[None, :], s, -1e30), 1))
            p = tl.where(own[None, :], tl.exp(s - top[:, None]), 0.0)
            l = l * tl.exp(m - top) + tl.sum(p, 1)
            acc = tl.dot(p, v, acc * tl.exp(m - top)[:, None], input_precision="ieee")
            m = top
        tl.store(O + i[:, None] * H * d + head * d + c, acc / l[:, None], mask=i[:, None] < end)


def whole_texts(Q, K, V, cu, longest, BM, BN, AGAIN=False):
    o = torch.empty_like(Q)
    H, d = Q.shape[1:]
    whole_texts_kernel[(len(cu) - 1, H)](Q, K, V, o, cu, H, d**-0.5, d=d, BM=BM, BN=BN, AGAIN=AGAIN)
    return o


@triton.jit
def leaves_kernel(Q, K, V, O, cu, H, scale, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """Three axes, last tile first; a program without rows returns; pointers moved to the text's head."""
    text, head = tl.program_id(2), tl.program_id(1)
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    begin = tl.load(cu + text)
    n = tl.load(cu + text + 1) - begin
    if tile * BM >= n:
        return
    i, c = tile * BM + tl.arange(0, BM), tl.arange(0, d)
    corner = (begin * H + head) * d
    rows = corner + i[:, None] * (H * d) + c
    q = tl.load(Q + rows, mask=(i < n)[:, None], other=0.0) * scale
    acc = tl.zeros((BM, d), dtype=tl.float32)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    for t in range(tl.cdiv(n, BN)):
        j = t * BN + tl.arange(0, BN)
        columns = corner + j[None, :] * (H * d) + c[:, None]
        k = tl.load(K + columns, mask=(j < n)[None, :], other=0.0)
        v = tl.load(V + columns, mask=(j < n)[None, :], other=0.0)
        s = tl.where((j < n)[None, :], tl.dot(q, k, input_precision="ieee"), float("-inf"))
        top = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - top[:, None])
        l = l * tl.exp2(m - top) + tl.sum(p, 1)
        acc = acc * tl.exp2(m - top)[:, None] + tl.dot(p, tl.trans(v), input_precision="ieee")
        m = top
    tl.store(O + rows, acc / l[:, None], mask=(i < n)[:, None])


def programs_that_leave(Q, K, V, cu, longest, BM, BN):
    o = torch.empty_like(Q)
    H, d = Q.shape[1:]
    grid = (triton.cdiv(longest, BM), H, len(cu) - 1)
    leaves_kernel[grid](Q, K, V, o, cu, H, LOG2_E * d**-0.5, d=d, BM=BM, BN=BN)
    return o


def all_keys_before_are_read(Q, K, V, cu, longest, BM, BN):
    """Right values, by a mask over the neighbours' keys."""
    return whole_texts(Q, K, V, cu, longest, BM, BN, AGAIN=True)


def packed_by_the_library(Q, K, V, cu, longest, BM, BN):
    return kernels.attention_varlen(Q, K, V, cu, cu, longest=(longest, longest))


def text_by_text_in_torch(Q, K, V, cu, longest, BM, BN):
    o = torch.zeros_like(Q)
    for a, b in pairwise(cu):
        s = torch.einsum("ihd,jhd->hij", Q[a:b], K[a:b]) * Q.shape[2] ** -0.5
        o[a:b] = torch.einsum("hij,jhd->ihd", s.softmax(2), V[a:b])
    return o


def padded_by_torch(Q, K, V, cu, longest, BM, BN):
    padded = torch.zeros(len(cu) - 1, longest, *Q.shape[1:])
    for n in range(len(cu) - 1):
        padded[n, : cu[n + 1] - cu[n]] = Q[cu[n] : cu[n + 1]]
    return padded


def zeros_of_O(Q, K, V, cu, longest, BM, BN):
    return torch.zeros_like(Q)


ALL_TOKENS = "tl.load(cu + tl.num_programs(0) // (tiles * H))"  # the last number of cu
QUERIES = "tl.load(Q + rows, mask=i[:, None] < end"
STORED = "acc / l[:, None], mask=i[:, None] < end"
PACKED = Suite(
    id="14D",
    mutants=(
        kept_by_shape(FAR, "my_packed"),
        Mutant("a-tile-past-the-end", ROWS, ("if begin + tile * BM < end:", "if tile * BM <= end - begin:")),
        Mutant("keys-of-all-before", SEVERAL, ("range(begin, end, BN)", "range(0, end, BN)")),
        Mutant("keys-of-the-next-text", SEVERAL, ("j < end, scale", f"j < {ALL_TOKENS}, scale")),
        Mutant("keys-not-masked", RUNS, ("j < end, scale", "j >= 0, scale")),
        Mutant("queries-of-a-neighbour", ROWS, (QUERIES, QUERIES.replace("end", ALL_TOKENS))),
        Mutant("writes-over-a-neighbour", ROWS, (STORED, STORED.replace("end", ALL_TOKENS))),
        Mutant("no-if", ROWS, ("if begin + tile * BM < end:", "if begin <= end:")),
        Mutant("tile-from-zero", SEVERAL, ("i = begin + tile * BM", "i = tile * BM")),
        Mutant("rows-of-one-head", HEADS, ("rows = (i[:, None] * H + head)", "rows = (i[:, None] + head)")),
        Mutant("keys-of-one-head", HEADS, ("at = (j[:, None] * H + head)", "at = (j[:, None] * H)")),
        Mutant("one-head", HEADS, ("(len(cu) - 1) * H * tiles", "(len(cu) - 1) * tiles")),
        Mutant("last-text-forgotten", SEVERAL, ("(len(cu) - 1) * H", "(len(cu) - 2) * H")),
        Mutant("not-divided", ALONE, ("acc / l[:, None]", "acc")),
        *finite(FAR, "starts-at", 'm = tl.full((BM,), float("-inf")'),
        Mutant("every-text-from-zero", SEVERAL, ("begin, end = tl.load(cu + text)", "begin, end = 0")),
    ),
    right=(whole_texts, programs_that_leave),
    cheats=(
        (all_keys_before_are_read, ROWS),
        (packed_by_the_library, OWN),
        (kernels.attention_varlen, OWN),
        (text_by_text_in_torch, OWN),
        (padded_by_torch, OWN),
        (zeros_of_O, ALONE),
        (zeros_of_O, WORK),
    ),
)

SUITES = (STEP, ROOF, MERGE, PACKED)
