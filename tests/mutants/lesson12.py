"""Lesson 12: alternative correct answers, and wrong answers that no recorded mutant covers."""

import torch
import triton
import triton.language as tl
from harness import EXACT, Mutant, Suite, as_scratch, empty_round, launched_twice

CAUSAL = "applies the causal mask"


# ---------------------------------------------------------------------- pieces of other right answers
@triton.jit
def addresses(x, head, at, N, d: tl.constexpr, ROWS: tl.constexpr):
    rows = head * N + at + tl.arange(0, ROWS)
    return x + rows[:, None] * d + tl.arange(0, d)[None, :]


@triton.jit
def tile_of(x, head, at, N, d: tl.constexpr, ROWS: tl.constexpr):
    there = (at + tl.arange(0, ROWS))[:, None] < N
    return tl.load(addresses(x, head, at, N, d, ROWS), mask=there, other=0.0)


@triton.jit
def keep_tile(tile, x, head, at, N, d: tl.constexpr, ROWS: tl.constexpr):
    there = (at + tl.arange(0, ROWS))[:, None] < N
    tl.store(addresses(x, head, at, N, d, ROWS), tile, mask=there)


@triton.jit
def words_of(x, head, at, N, other, ROWS: tl.constexpr):
    rows = at + tl.arange(0, ROWS)
    return tl.load(x + head * N + rows, mask=rows < N, other=other)


# ---------------------------------------------------------------------- 12A
@triton.jit
def one_row_kernel(O, o_head, o_row, dO, do_head, do_row, D, N, d: tl.constexpr):
    row, head = tl.program_id(0), tl.program_id(1)
    c = tl.arange(0, d)
    o = tl.load(O + head * o_head + row * o_row + c).to(tl.float32)
    do = tl.load(dO + head * do_head + row * do_row + c)
    tl.store(D + head * N + row, tl.sum(o * do, 0))


def a_program_a_row(O, dO, BM=32):
    """Return D, the row sums of O ∘ dO, by one program per row, which needs no mask; BM is ignored."""
    H, N, d = O.shape
    D = torch.empty((H, N))
    one_row_kernel[(N, H)](O, *O.stride()[:2], dO, *dO.stride()[:2], D, N, d=d)
    return D


ROWS = Suite(
    "12A",
    right=a_program_a_row,
    wrong={
        "it has no loop": (empty_round("O", "c", "    tl.store(D"),),
        "no operator makes it": (
            launched_twice("my_row_products"),
            as_scratch(
                "dO",
                "tl.store(D +",
                "tl.store(dO + head * do_head + i[:, None] * do_row + c, do * o, mask=there)",
            ),
        ),
    },
)

# ---------------------------------------------------------------------- 12B
DQ_EXACT = "dQ and D are exact"


@triton.jit
def dq_of_whole_tiles_kernel(
    Q, K, V, O, dO, LSE, D, dQ, N, scale,
    d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Use a while loop, and load K transposed."""
    base = tl.program_id(1) * N
    i, c = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, d)
    rows, there = (base + i[:, None]) * d + c[None, :], i[:, None] < N
    do = tl.load(dO + rows, mask=there, other=0.0)
    products = tl.sum(tl.load(O + rows, mask=there, other=0.0).to(tl.float32) * do, 1)
    tl.store(D + base + i, products, mask=i < N)
    q = tl.load(Q + rows, mask=there, other=0.0) * scale
    total = tl.load(LSE + base + i, mask=i < N, other=float("inf"))
    dq = tl.zeros((BM, d), dtype=tl.float32)
    at = 0
    end = tl.minimum((tl.program_id(0) + 1) * BM, N) if CAUSAL else N
    while at < end:
        j = at + tl.arange(0, BN)
        turned = c[:, None] + (base + j[None, :]) * d  # (d, BN)
        k = tl.load(K + turned, mask=j[None, :] < N, other=0.0)
        v = tl.load(V + turned, mask=j[None, :] < N, other=0.0)
        s = tl.dot(q.to(k.dtype), k, input_precision="ieee")
        shown = (j[None, :] < N) & ((i[:, None] >= j[None, :]) | (not CAUSAL))
        p = tl.exp(tl.where(shown, s - total[:, None], float("-inf")))
        ds = p * (tl.dot(do, v, input_precision="ieee") - products[:, None])
        dq += tl.dot(ds.to(k.dtype), tl.trans(k), input_precision="ieee")
        at += BN
    tl.store(dQ + rows, dq * scale, mask=there)


def with_k_turned(Q, K, V, O, dO, LSE, BM, BN, causal):
    H, N, d = Q.shape
    dQ, D = torch.empty_like(Q), torch.empty_like(LSE)
    dq_of_whole_tiles_kernel[(triton.cdiv(N, BM), H)](
        Q, K, V, O, dO, LSE, D, dQ, N, d**-0.5, d=d, BM=BM, BN=BN, CAUSAL=causal
    )
    return dQ, D


DQ = Suite(
    "12B",
    right=with_k_turned,
    wrong={
        "its size": (
            Mutant(
                "hidden-as-1e9",
                DQ_EXACT,
                ("p = tl.where(seen, p, 0.0)", "p = tl.exp(tl.where(seen, s, -1e9) - L)"),
            ),
        ),
        "no operator makes it": (
            Mutant(
                "one-round-more",
                "no loop iteration is completely out of bounds",
                ("range(0, end, BN)", "range(0, end + BN, BN)"),
            ),
            launched_twice("my_dq"),
            as_scratch("dQ", "dq = tl.zeros", "tl.store(dQ + rows, q, mask=there)", EXACT),
        ),
    },
)


# ---------------------------------------------------------------------- 12C
@triton.jit
def keys_kernel(
    Q, K, V, dO, LSE, D, dQ, dK, dV, N, d: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """Store score tiles as (queries, keys), transpose them in products, and start at the last queries."""
    tiles = tl.cdiv(N, BN)
    tile, head = tl.program_id(0) % tiles, tl.program_id(0) // tiles
    start = tile * BN
    k = tile_of(K, head, start, N, d, BN)
    v = tile_of(V, head, start, N, d, BN)
    dk, dv = tl.zeros((BN, d), dtype=tl.float32), tl.zeros((BN, d), dtype=tl.float32)
    scale = 1 / tl.sqrt(d * 1.0)
    j = start + tl.arange(0, BN)
    begin = start // BM * BM if CAUSAL else 0
    last = (tl.cdiv(N, BM) - 1) * BM
    for back in range(0, last - begin + 1, BM):
        at = last - back
        i = at + tl.arange(0, BM)
        q = tile_of(Q, head, at, N, d, BM)
        do = tile_of(dO, head, at, N, d, BM)
        total = words_of(LSE, head, at, N, 0.0, BM)
        products = words_of(D, head, at, N, 0.0, BM)
        seen = (i[:, None] < N) & (j[None, :] < N)
        if CAUSAL:
            seen = seen & (i[:, None] >= j[None, :])
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        p = tl.exp(tl.where(seen, s - total[:, None], float("-inf")))
        ds = p * (tl.dot(do, tl.trans(v), input_precision="ieee") - products[:, None]) * scale
        dv += tl.dot(tl.trans(p).to(do.dtype), do, input_precision="ieee")
        dk += tl.dot(tl.trans(ds).to(q.dtype), q, input_precision="ieee")
        if SHARE:
            rows = (head * N + i[:, None]) * d + tl.arange(0, d)[None, :]
            tl.atomic_add(dQ + rows, tl.dot(ds.to(k.dtype), k, input_precision="ieee"), mask=i[:, None] < N)
    keep_tile(dk, dK, head, start, N, d, BN)
    keep_tile(dv, dV, head, start, N, d, BN)


def head_by_head(Q, K, V, dO, LSE, D, BM, BN, causal):
    """Launch once per head, on views."""
    dK, dV = torch.empty_like(K), torch.empty_like(V)
    N, d = Q.shape[1:]
    for h in range(Q.shape[0]):
        keys_kernel[(triton.cdiv(N, BN),)](
            Q[h], K[h], V[h], dO[h], LSE[h], D[h], dK[h], dK[h], dV[h],
            N, d=d, BM=BM, BN=BN, CAUSAL=causal, SHARE=False,
        )  # fmt: skip
    return dK, dV


KEYS = Suite(
    "12C",
    right=head_by_head,
    wrong={
        "no operator makes it": (
            launched_twice("my_dk_dv"),
            as_scratch("dK", "dk = tl.zeros", "tl.store(dK + columns, k, mask=there)", EXACT),
        )
    },
)


# ---------------------------------------------------------------------- 12D
def other_order(Q, K, V, O, dO, LSE, BM, BN, causal):
    """Store scores as (queries, keys), visit queries in reverse, and compute D with one program per row."""
    H, N, d = Q.shape
    D = a_program_a_row(O, dO, BM)
    dQ = Q.new_zeros(Q.shape, dtype=torch.float32)
    dK, dV = torch.empty_like(K), torch.empty_like(V)
    keys_kernel[(H * triton.cdiv(N, BN),)](
        Q, K, V, dO, LSE, D, dQ, dK, dV, N, d=d, BM=BM, BN=BN, CAUSAL=causal, SHARE=True
    )
    return dQ, dK, dV


FUSED = Suite("12D", right=other_order, wrong={"no operator makes it": (launched_twice("my_fused"),)})

# ---------------------------------------------------------------------- 12E
BOTH_EXACT = "O and the three gradients are exact"
BOTH_WORK = "kernels do the work, forward and backward"
BOTH_CAUSAL = "applies the causal mask in both passes"
ANY_STRIDES = "is exact for any strides of dO"
KEEPS = "saves only Q, K, V, O and LSE"
ONCE = "moves each pass once"
IN_OPERATORS = "launches its kernels in operators registered with torch"
HALF = "is right in float16, up to rounding"
FAKES = "its operators have fakes with the right shapes, types and strides"
ONE_GRAPH = "torch.compile makes one graph of it, with equal results"
SAVE = "ctx.save_for_backward(Q, K, V, *output)"
FORWARD = "return forward_pass(Q, K, V, causal)"
FORMULA = "return *backward_operator(dO, *ctx.saved_tensors, ctx.causal), None"
KEYS_TOO = "return dQ, *my_dk_dv(Q, K, V, dO, LSE, D, causal=causal)"
APPLIED = "return attention_operator(Q, K, V, causal)[0]"


@triton.jit
def plain_forward_kernel(Q, K, V, O, LSE, N, scale, d: tl.constexpr, ALL: tl.constexpr, CAUSAL: tl.constexpr):
    """Use one program per head, with all queries and all keys in one tile."""
    head = tl.program_id(0)
    i, j = tl.arange(0, ALL)[:, None], tl.arange(0, ALL)[None, :]
    q, k, v = tile_of(Q, head, 0, N, d, ALL), tile_of(K, head, 0, N, d, ALL), tile_of(V, head, 0, N, d, ALL)
    seen = (j < N) & ((j <= i) | (not CAUSAL))
    s = tl.where(seen, tl.dot(q, tl.trans(k), input_precision="ieee") * scale, float("-inf"))
    m = tl.max(s, 1)
    p = tl.exp(s - m[:, None])
    l = tl.sum(p, 1)
    keep_tile(tl.dot(p.to(v.dtype), v, input_precision="ieee") / l[:, None], O, head, 0, N, d, ALL)
    rows = tl.arange(0, ALL)
    tl.store(LSE + head * N + rows, m + tl.log(l), mask=rows < N)


def plain_forward(Q, K, V, causal=False):
    H, N, d = Q.shape
    O, LSE = torch.empty_like(Q), torch.empty((H, N))
    size = max(16, triton.next_power_of_2(N))
    plain_forward_kernel[(H,)](Q, K, V, O, LSE, N, d**-0.5, d=d, ALL=size, CAUSAL=causal)
    return O, LSE


@torch.library.custom_op(
    "another_student::attend",
    mutates_args=(),
    schema="(Tensor Q, Tensor K, Tensor V, bool causal) -> Tensor[]",
)
def attend(Q, K, V, causal):
    return list(plain_forward(Q, K, V, causal))


@torch.library.custom_op("another_student::attend_back", mutates_args=())
def attend_back(
    Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, LSE: torch.Tensor, dO: torch.Tensor, causal: bool
) -> list[torch.Tensor]:
    """Use the fused pass, recompute O instead of saving it, and copy dO explicitly."""
    O, _ = plain_forward(Q, K, V, causal)
    stored = torch.empty(dO.shape, dtype=dO.dtype).copy_(dO)
    dQ, dK, dV = other_order(Q, K, V, O, stored, LSE, 16, 16, causal)
    return [dQ.to(Q.dtype), dK, dV]  # the sums of dQ are in float32


def fake_attend(Q, K, V, causal):
    return [torch.empty_like(Q), torch.empty(Q.shape[0], Q.shape[1])]


def fake_attend_back(Q, K, V, LSE, dO, causal):
    return [torch.empty_like(Q), torch.empty_like(K), torch.empty_like(V)]


def keep_all_but_O(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:3], output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.options = inputs[3:]


def back(ctx, gradients):
    return *attend_back(*ctx.saved_tensors, gradients[0], *ctx.options), None


torch.library.register_fake("another_student::attend", fake_attend)
torch.library.register_fake("another_student::attend_back", fake_attend_back)
torch.library.register_autograd("another_student::attend", back, setup_context=keep_all_but_O)


def fused_as_an_operator(Q, K, V, causal=False):
    return torch.ops.another_student.attend(Q, K, V, causal)[0]


class OfAnOlderCopy(torch.autograd.Function):
    """The answer that 12E required before it required operators."""

    @staticmethod
    def forward(ctx, Q, K, V, causal):
        O, LSE = plain_forward(Q, K, V, causal)
        ctx.save_for_backward(Q, K, V, O, LSE)
        ctx.causal = causal
        return O

    @staticmethod
    def backward(ctx, dO):
        Q, K, V, O, LSE = ctx.saved_tensors
        return *other_order(Q, K, V, O, dO.contiguous(), LSE, 16, 16, ctx.causal), None


def under_autograd(Q, K, V, causal=False):
    return OfAnOlderCopy.apply(Q, K, V, causal)


OPERATOR = Suite(
    "12E",
    right=fused_as_an_operator,
    wrong={
        "a change of several lines": (
            (under_autograd, IN_OPERATORS),
            Mutant(
                "kernels-in-the-formula",
                IN_OPERATORS,
                (
                    FORMULA,
                    "Q, K, V, O, LSE = ctx.saved_tensors; dO = dO.contiguous()\n"
                    "    dQ, D = my_dq(Q, K, V, O, dO, LSE, causal=ctx.causal)\n"
                    "    return dQ, *my_dk_dv(Q, K, V, dO, LSE, D, causal=ctx.causal), None",
                ),
            ),
            Mutant(
                "kept-in-a-global",
                BOTH_EXACT,
                (SAVE, "global KEPT\n    KEPT = Q, K, V, *output"),
                ("ctx.saved_tensors", "KEPT"),
            ),
            Mutant(
                "kept-on-ctx",
                "saves its tensors with save_for_backward",
                (SAVE, "ctx.kept = Q, K, V, *output"),
                ("ctx.saved_tensors", "ctx.kept"),
            ),
            Mutant(
                "P-kept-too",
                KEEPS,
                (SAVE, "ctx.save_for_backward(Q, K, V, *output, Q.new_zeros(2 * Q.numel()))"),
                ("*ctx.saved_tensors", "*ctx.saved_tensors[:5]"),
            ),
            Mutant(
                "LSE-in-16-bits",
                HALF,
                (SAVE, "ctx.save_for_backward(Q, K, V, output[0], output[1].half())"),
                ("*ctx.saved_tensors", "*ctx.saved_tensors[:4], ctx.saved_tensors[4].float()"),
            ),
            Mutant(
                "torch-when-compiled",
                ONE_GRAPH,
                (
                    APPLIED,
                    "if torch.compiler.is_compiling():\n"
                    "        return torch.nn.functional.scaled_dot_product_attention("
                    "Q, K, V, is_causal=causal)\n"
                    f"    {APPLIED}",
                ),
            ),
        ),
        "the type, which no operator changes": (
            Mutant("fake-in-the-type-of-Q", FAKES, ("Q.shape[:2], dtype=torch.float32)", "Q.shape[:2])")),
            Mutant("dO-of-ones", ANY_STRIDES, ("dO.contiguous()", "torch.ones(dO.shape, dtype=dO.dtype)")),
            Mutant("causal-forgotten-backward", BOTH_CAUSAL, (SAVE, f"{SAVE}\n    ctx.causal = False")),
            Mutant(
                "zeros-backward", BOTH_WORK, (KEYS_TOO, "return dQ, torch.zeros_like(K), torch.zeros_like(V)")
            ),
            Mutant("prints", ONE_GRAPH, (APPLIED, f"print(end='')\n    {APPLIED}")),
        ),
        "no operator repeats a line": (
            Mutant(
                "dk-dv-twice", ONCE, (KEYS_TOO, KEYS_TOO.replace("return dQ, *", "") + f"\n    {KEYS_TOO}")
            ),
            Mutant("forward-twice", ONCE, (FORWARD, FORWARD.replace("return ", "") + f"\n    {FORWARD}")),
            Mutant("forward-again", ONCE, (KEYS_TOO, f"forward_pass(Q, K, V, causal)\n    {KEYS_TOO}")),
        ),
    },
)

SUITES = (ROWS, DQ, KEYS, FUSED, OPERATOR)
