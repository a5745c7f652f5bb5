"""Lesson 14: alternative correct answers, and wrong answers that no recorded mutant covers."""

from harness import MOST, Mutant, Suite, as_scratch, empty_round, launched_twice

from iocourse.costs.kernels import KernelProblem, attention_decode

# isort: split
import torch
import triton
import triton.language as tl


# ---------------------------------------------------------------------- 14A
def by_the_closed_form(B, H, H_kv, N, d, itemsize, gbytes_per_s):
    """Use the closed form of one part, and subtract the traffic between the kernels and the row sums."""
    ledger = attention_decode(KernelProblem(1, N, d, B=B, H=H, H_kv=H_kv), parts=1)
    words = sum(ledger.reads[x] for x in "QKV") + ledger.writes["O"]
    return words * itemsize, words * itemsize / gbytes_per_s / 1000


STEP = Suite("14A", right=by_the_closed_form)


# ---------------------------------------------------------------------- 14B
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
    "14B",
    right=names_of_arrays,
    wrong={
        "no operator makes it": (
            Mutant(
                "always-memory",
                "returns the correct limit",
                ('"memory" if moving > multiplying else "products"', '"memory"'),
            ),
            Mutant(
                "times-added",
                "is correct for a decode step",
                ("max(multiplying, moving)", "multiplying + moving"),
            ),
        )
    },
)

# ---------------------------------------------------------------------- 14C
LSE = "LSE is the log-sum-exp of all parts"


@triton.jit
def one_by_one_kernel(O_parts, LSE_parts, O, LSE, parts, group, d: tl.constexpr):
    """Merge part after part by online softmax: running maximum, sum and output."""
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


MERGE = Suite(
    "14C",
    right=one_by_one,
    wrong={
        "it has no loop": (empty_round("O_parts", "c", "    row = pair"),),
        "no operator makes it": (
            Mutant(
                "LSE-of-1e30",
                "LSE is -∞ when no part has a key",
                ('tl.where(total == 0.0, float("-inf")', "tl.where(total == 0.0, -1e30"),
            ),
            Mutant(
                "lanes-of-1e38",
                "LSE is -∞ when no part has a key",
                ('mask=p < parts, other=float("-inf")', "mask=p < parts, other=-1e38"),
            ),
            launched_twice("my_merge", MOST),
        ),
    },
)


# ---------------------------------------------------------------------- 14D
@triton.jit
def whole_texts_kernel(Q, K, V, O, cu, H, scale, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """One program per head and sequence, which reads cu once; powers of e and masked weights."""
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
        for start in range(begin, end, BN):
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


def whole_texts(Q, K, V, cu, longest, BM, BN):
    o = torch.empty_like(Q)
    H, d = Q.shape[1:]
    whole_texts_kernel[(len(cu) - 1, H)](Q, K, V, o, cu, H, d**-0.5, d=d, BM=BM, BN=BN)
    return o


PACKED = Suite(
    "14D",
    right=whole_texts,
    wrong={
        "no operator makes it": (
            launched_twice("my_packed", "moves exactly the words of the sequences, and no padding"),
            as_scratch(
                "O",
                "acc = tl.zeros",
                "tl.store(O + rows, q, mask=i[:, None] < end)",
                "moves exactly the words of the sequences, and no padding",
            ),
        )
    },
)

SUITES = (STEP, ROOF, MERGE, PACKED)
