# %% [markdown]
# # 12 The backward pass in Triton
#
# You write the two-pass backward of lesson 06 as two Triton kernels, whose loads and stores equal (6.10) to the word. You register them as an operator that PyTorch differentiates and compiles. At the end you read a file of kernels that you can copy into your own project.
#
# **What you will learn**
#
# - to decide which program may write which gradient, and to write both passes;
# - to compare the two-pass and the fused backward by words, bytes and recorded times;
# - to register and test an operator, and to read a complete implementation.
#
# **Prerequisites**: lessons 06 (backward pass), 10 (Triton) and 11 (the forward kernel and its log-sum-exp); [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Exercise 12D is in lesson 13b (section 13.14). From section 12.3 on, cells need Triton, which is published for Linux (Colab runs Linux). No GPU is needed.

# %% tags=["setup"]
from itertools import permutations

import numpy as np

from iocourse import costs, exact
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.data.records import load_record, record_source

# %% [markdown]
# ## 12.1 Who may write where
#
# On a GPU, many programs run at the same time. If two of them load the same word of $dQ$, add to it and store it, one of the two sums can be lost. So a program must own the words that it writes, or add to them in one uninterrupted step.
#
# The figure shows one program of the fused backward (section 6.6). Its key block is resident, and blocks of queries are streamed (the figure draws one row). No other program writes its rows of $dK$ and $dV$, but all programs add to $dQ$, so it counts twice among the streamed arrays (section 6.7).

# %%
explore.resident_and_streamed("columns", rows=["Q", "dO", "dQ"], columns=["K", "V", "dK", "dV"],
                              sums=["dQ", "dK", "dV"], title="Fused backward")

# %% [markdown]
# **Predict** (compute). $N = 100$, and each program has a key block of 32 rows. How many programs add to the same row of $dQ$?

# %% tags=["predict"]
predict("12.1", programs=4)  #> predict("12.1", programs=...)

# %%
rng = np.random.default_rng(12)
N, d, BM, BN = 100, 16, 32, 32  # a tile has BM queries and BN keys
scale = d**-0.5
Q, K, V, dO = rng.standard_normal((4, N, d))
O, L = exact.attention(Q, K, V), exact.log_sum_exp(exact.scores(Q, K))  # (N, d), (N,)
D = (dO * O).sum(axis=1)                                                # (N,)


def weights_and_gradients_in_numpy(a, b, da, db, L, D):
    """Return p and ds of one tile, by (6.5) and (6.3). If a has keys, both are transposed."""
    p = np.exp(scale * a @ b.T - L)
    return p, p * (da @ db.T - D)


def share_of_dQ(t):
    """Return the part of dQ that comes from key block t, (N, d)."""
    j = slice(t * BN, (t + 1) * BN)
    _, ds = weights_and_gradients_in_numpy(Q, K[j], dO, V[j], L[:, None], D[:, None])
    return scale * ds @ K[j]


parts = [share_of_dQ(t) for t in range(-(-N // BN))]
print("their sum is dQ:", np.allclose(sum(parts), exact.attention_backward(Q, K, V, dO).dQ))
measured("12.1", programs=sum(part[0].any() for part in parts))

# %% [markdown]
# <details><summary>Programs that add to a row</summary>
#
# 4, because every key block contributes to every row.
#
# </details>
#
# The two-pass backward (section 6.8) shares no sums. In its first pass query blocks are resident, and each program owns rows of $dQ$. In the second pass key blocks are resident, and each program owns rows of $dK$ and $dV$. Both passes call `weights_and_gradients_in_numpy`:

# %%
def dq_program(t, dQ):
    """First pass: query block t is resident."""
    i = slice(t * BM, (t + 1) * BM)
    for start in range(0, N, BN):
        j = slice(start, start + BN)
        _, ds = weights_and_gradients_in_numpy(Q[i], K[j], dO[i], V[j], L[i, None], D[i, None])
        dQ[i] += scale * ds @ K[j]      # ds is (BM, BN)


def dk_dv_program(t, dK, dV):
    """Second pass: key block t is resident."""
    j = slice(t * BN, (t + 1) * BN)
    for start in range(0, N, BM):
        i = slice(start, start + BM)
        p, ds = weights_and_gradients_in_numpy(K[j], Q[i], V[j], dO[i], L[None, i], D[None, i])
        dV[j] += p @ dO[i]              # p is (BN, BM), transposed
        dK[j] += scale * ds @ Q[i]


def two_passes(order):
    """Return dQ, dK and dV; order: of the programs in each pass."""
    dQ, dK, dV = np.zeros((3, N, d))
    for t in order:
        dq_program(t, dQ)
    for t in order:
        dk_dv_program(t, dK, dV)
    return dQ, dK, dV


# %%
right = exact.attention_backward(Q, K, V, dO)
forwards, backwards = two_passes([0, 1, 2, 3]), two_passes([3, 1, 0, 2])
for name, one, other, want in zip(right._fields, forwards, backwards, right, strict=True):
    print(f"{name}: correct {np.allclose(one, want, rtol=0, atol=1e-12)}, "
          f"equal bits in another order of programs {np.array_equal(one, other)}")

# %% [markdown]
# No bit depends on the order of the programs, because no program reads what another program of its pass writes. Here $D$ is computed in advance. As kernels the passes have an order, because the first stores $D$ and the second loads it; on a GPU a launch starts after the previous launch has ended.
#
# The price is arithmetic. A tile takes three products in the first pass ($S$, $dP$, $dQ$) and four in the second ($S$, $dP$, $dV$, $dK$). The fused backward takes five instead of seven, because it computes $S$ and $dP$ once.
#
# ## 12.2 The order of additions
#
# An *atomic addition* loads, adds and stores in one step, so no contribution is lost. But the order of the contributions may differ from run to run. In float32, which keeps 24 significant bits, each sum is rounded to the nearest number, and a tie to the one whose last bit is 0.
#
# **Predict** (compute). $a = 2^{24}$, $b = 1$ and $c = -2^{24}$ in float32. What are $(a + b) + c$ and $a + (b + c)$?

# %% tags=["predict"]
predict("12.2", left=0, right=1)  #> predict("12.2", left=..., right=...)

# %%
a, b, c = np.float32(2**24), np.float32(1), np.float32(-(2**24))
measured("12.2", left=float((a + b) + c), right=float(a + (b + c)))

# %% [markdown]
# <details><summary>Two orders of three numbers</summary>
#
# 0 and 1. $2^{24} + 1$ needs 25 bits and is rounded to $2^{24}$. $1 - 2^{24}$ needs 24 bits and is exact. So floating-point addition is *commutative* ($a + b$ and $b + a$ have equal bits) but not *associative*.
#
# </details>
#
# Four programs can finish in $4! = 24$ orders. The next cell adds their contributions to $dQ$ in each order, in float32.
# <!-- 25, 24 = (2**24 + 1).bit_length(), (2**24 - 1).bit_length() -->

# %%
results = set()
for order in permutations([part.astype(np.float32) for part in parts]):
    results.add(sum(order).tobytes())  # added from left to right
every = np.array([np.frombuffer(one, dtype=np.float32) for one in results])
apart = (every.max(axis=0) - every.min(axis=0)).max()
print(f"{len(results)} different results from 24 orders")
print(f"largest difference below 1e-6: {apart < 1e-6}")

# %% [markdown]
# There are 12 different results: the first two contributions commute, and every other exchange changes some bit. All are correct up to rounding, but on a GPU chance selects one. A pass is *deterministic* if every sum has a fixed order, so that all runs have equal bits. Otherwise two training runs with the same seed diverge.
#
# ## 12.3 A kernel for D
#
# From here on, cells run Triton kernels in the interpreter.

# %% tags=["given"]
import os

os.environ["TRITON_INTERPRET"] = "1"

from iocourse import traffic
from iocourse.costs.kernels import (
    KernelProblem,
    attention_fused_backward,
    attention_split_backward,
    dkdv_plain,
    dq_plain,
    fused_backward_plain,
    sum_ledgers,
)
from iocourse.course import TritonMissing, missing_package

try:
    from iocourse import kernels

    assert kernels.INTERPRETED, "triton was imported earlier: restart the notebook"
    import torch
    import triton
    import triton.language as tl
except TritonMissing as missing:
    kernels = torch = triton = tl = missing_package(missing)
else:
    print("Kernels run in Triton's interpreter here, and every word they move is counted.")

# %% [markdown]
# In this lesson a tensor is $(H, N, d)$: $H$ heads, each with its own attention. A grid has two axes, blocks and heads. $d$ is a power of two, at least 16, and products use `input_precision="ieee"`, as in lesson 11.
#
# $D_i = \sum_c dO_{ic}\,O_{ic}$ is one word per row, in float32. Per head the kernel moves
#
# $$ W_D = 2Nd + N . \tag{12.1} $$
# <!-- (12.1) W_D = kernel_costs.delta_plain(kernel_costs.KernelProblem(N, N, d)).total -->
#
# The difficulty is the layout of $dO$, which autograd determines. The gradient of `y.sum()` with respect to `y` is 1 everywhere. Autograd stores one word and views it in the shape of `y`.
#
# **Predict** (compute). `y` has the shape $(2, 40, 16)$. By (10.2), which stride does this view have from a row to the next? (A contiguous tensor has 16.)

# %% tags=["predict"]
predict("12.3", step=0)  #> predict("12.3", step=...)

# %%
seen = []
x = torch.ones(2, 40, 16, requires_grad=True)
y = 2 * x
y.register_hook(lambda gradient: seen.append(gradient))
y.sum().backward()
print("shape", tuple(seen[0].shape), "strides", seen[0].stride())
measured("12.3", step=seen[0].stride(1))

# %% [markdown]
# <details><summary>The strides of one word</summary>
#
# 0, like the other strides: all 1,280 elements have the offset 0. A kernel that assumes 16 reads out of bounds.
#
# </details>
#
# `dO.contiguous()` makes a copy, which costs its words. A last stride of 1 does not determine the others: a layer that joins its heads may pass $(d, Hd, 1)$.
#
# <!-- exercise 12A --> Write the kernel; the launcher is given. $O$ and $dO$ each have their own strides from head to head and from row to row (`o_head`, `o_row`, `do_head`, `do_row`); the last stride is 1. The check uses ragged $N$, a transposed $dO$ and float16 (multiply and sum in float32), expects the words of (12.1), and refuses copies. If you are stuck after five minutes, run `hint("12A")` in a new cell.
# <!-- 1,280 = 2 * 40 * 16 -->

# %% [raw] name="about-12A"
# title = "A kernel for D"
# difficulty = 2
# importance = 3
# minutes = 8
# hints = [
#   "Which rows does one program compute? Which of them may be out of bounds, and what must not happen there?",
#   "An address is the base pointer plus head times the head stride, plus row times the row stride, plus column. O and dO have two strides each; D is contiguous.",
#   "Two loads of (BM, d), with a mask of rows that broadcasts over the columns; the sum of their product over axis 1; one store of (BM,) with the same mask without its second axis.",
# ]

# %% tags=["exercise"] name="ex-12A"
@triton.jit
def my_row_products_kernel(O, o_head, o_row, dO, do_head, do_row, D, N,
                           d: tl.constexpr, BM: tl.constexpr):
    """BM words of D, which is (H, N) and contiguous. program_id: (block, head)."""
    ### BEGIN SOLUTION two tiles by their own steps, a sum over columns, one store
    head = tl.program_id(1)
    i = tl.program_id(0) * BM + tl.arange(0, BM)  # (BM,)
    c = tl.arange(0, d)
    there = i[:, None] < N
    o = tl.load(O + head * o_head + i[:, None] * o_row + c, mask=there, other=0.0)  # (BM, d)
    do = tl.load(dO + head * do_head + i[:, None] * do_row + c, mask=there, other=0.0)
    tl.store(D + head * N + i, tl.sum(do.to(tl.float32) * o, 1), mask=i < N)
    ### END SOLUTION


def my_row_products(O, dO, BM=32):
    """D (H, N) = the sum over columns of dO * O. O, dO: (H, N, d), last stride 1."""
    H, N, d = O.shape
    D = O.new_empty((H, N), dtype=torch.float32)
    grid = (triton.cdiv(N, BM), H)
    my_row_products_kernel[grid](O, O.stride(0), O.stride(1), dO, dO.stride(0), dO.stride(1),
                                 D, N, d=d, BM=BM)
    return D


# %% tags=["check"] name="check-12A"
check("12A", my_row_products)

# %% [markdown]
# ## 12.4 dQ: query blocks resident
#
# `dq_program` becomes a kernel, with two heads of 100 queries. PyTorch computes $O$ and the log-sum-exp $L$.

# %%
H, N, d = 2, 100, 16
torch.manual_seed(12)
Q, K, V, dO = torch.randn(4, H, N, d)


def forward_by_torch(Q, K, V, causal):
    """Return O (H, N, d) and LSE (H, N); the scores are materialised."""
    S = Q @ K.transpose(1, 2) * Q.shape[2] ** -0.5
    hidden = torch.full(S.shape, float("-inf"), dtype=S.dtype).triu(1)
    S = S + hidden if causal else S
    return S.softmax(2) @ V, S.logsumexp(2)


O, LSE = forward_by_torch(Q, K, V, causal=False)

# %% [markdown]
# Both passes compute $P$ and $dS$ of a tile. You write this once, as a helper under `@triton.jit`:
#
# | | 12B: tiles of (queries, keys) | 12C: tiles of (keys, queries) |
# | --- | --- | --- |
# | `a`, `da` | `q`, `do`, resident | `k`, `v`, resident |
# | `b`, `db` | `k`, `v`, streamed | `q`, `do`, streamed |
# | `L`, `D` | columns, `L_i[:, None]` | rows, `L_i[None, :]` |
# | products of the loop | $dQ \mathrel{+}= dS\,K$ | $dV \mathrel{+}= P^\top dO$, $dK \mathrel{+}= dS^\top Q$ |
#
# $L$ and $D$ belong to queries, so they broadcast along the keys. In 12C `p` and `ds` are already the left factors $P^\top$ and $dS^\top$. `seen` is None or a tile of booleans (section 11.5).
#
# Inputs have float32 or float16. The helper returns `p` and `ds` in float32, like all accumulators. `tl.dot` needs two factors of one type, so cast the float32 factor to the type of the other one, as in 11F: `ds.to(k.dtype)`.
#
# Loads fill rows out of bounds with 0, and $L$ with $+\infty$, so a query out of bounds has the weights $e^{s - \infty} = 0$. A key out of bounds has the score 0 and the weight $e^{-L_i}$, later multiplied by $k = 0$. If all scores of a query are near $-100$, then $L_i \approx -100$, $e^{100}$ overflows in float32, and $\infty \cdot 0$ is NaN. So set these weights to 0 with `seen`, like those of masked pairs.
#
# Under a causal mask, the given loop ends with the last tile that a query of the block attends to.
#
# <!-- exercise 12B --> Write the helper and the loop over the keys. The code around the loop is given. Scores are scaled by `scale`; $dQ$ is scaled when it is stored. The check also runs the kernel in float16. It expects $4Nd + 2N + 2Nd\lceil N/B_M \rceil$ words per head without a mask, the first bracket of (6.10). If you are stuck after eight minutes, run `hint("12B")` in a new cell.
# <!-- ($4Nd + 2N + 2Nd\lceil N/B_M \rceil$) = kernel_costs.dq_plain(kernel_costs.KernelProblem(N, N, d), BM, 16).total where N <= 1000 -->

# %% [raw] name="about-12B"
# title = "dQ: query blocks resident"
# difficulty = 3
# importance = 5
# helpers = ["weights_and_gradients"]
# minutes = 14
# hints = [
#   "Go through dq_program line by line. Which lines are products of tiles, which are elementwise, and which need a mask?",
#   "The keys of the tile are at, at + 1 and so on; compute their addresses like those of the rows. Use tl.trans for the transposes. Weights of out-of-bounds and masked keys become 0 after the exponential.",
#   "In the helper two products, for scores and dp, an exponential with L, tl.where, and ds from D. In the loop two loads, a call of the helper, and a third product, with ds in the type of k and dq as its third argument. The scores are scaled; scale dq at the store.",
# ]

# %% tags=["exercise"] name="ex-12B"
@triton.jit
def weights_and_gradients(a, b, da, db, L, D, scale, seen=None):
    """p and ds (BA, BB) in float32. a and da are (BA, d), b and db (BB, d); L, D broadcast."""
    ### BEGIN SOLUTION scores, weights, their gradients
    s = tl.dot(a, tl.trans(b), input_precision="ieee") * scale
    p = tl.exp(s - L)
    if seen is not None:
        p = tl.where(seen, p, 0.0)
    ds = p * (tl.dot(da, tl.trans(db), input_precision="ieee") - D)
    return p, ds
    ### END SOLUTION


@triton.jit
def my_dq_kernel(Q, K, V, O, dO, LSE, D, dQ, N, scale, d: tl.constexpr,
                 BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """BM rows of dQ and D. All (H, N, d) or (H, N), contiguous; LSE and D float32."""
    start = tl.program_id(0) * BM
    first = tl.program_id(1) * N                        # rows of the heads before this one
    i, c = start + tl.arange(0, BM), tl.arange(0, d)    # (BM,), (d,)
    rows = (first + i)[:, None] * d + c                 # (BM, d), as offsets
    there = i[:, None] < N
    q = tl.load(Q + rows, mask=there, other=0.0)        # (BM, d), resident
    do = tl.load(dO + rows, mask=there, other=0.0)      # (BM, d), resident
    o = tl.load(O + rows, mask=there, other=0.0)
    D_i = tl.sum(do.to(tl.float32) * o, 1)              # (BM,), summed in float32
    tl.store(D + first + i, D_i, mask=i < N)
    L_i = tl.load(LSE + first + i, mask=i < N, other=float("inf"))
    dq = tl.zeros((BM, d), dtype=tl.float32)
    end = tl.minimum(start + BM, N) if CAUSAL else N
    for at in range(0, end, BN):
        ### BEGIN SOLUTION the tiles of K and V, weights, score gradients, dq takes in
        j = at + tl.arange(0, BN)                       # (BN,)
        columns = (first + j)[:, None] * d + c
        k = tl.load(K + columns, mask=j[:, None] < N, other=0.0)     # (BN, d), streamed
        v = tl.load(V + columns, mask=j[:, None] < N, other=0.0)     # (BN, d), streamed
        seen = (j[None, :] < N) & (j[None, :] <= i[:, None]) if CAUSAL else j[None, :] < N
        _, ds = weights_and_gradients(q, k, do, v, L_i[:, None], D_i[:, None], scale, seen)
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
        ### END SOLUTION
    tl.store(dQ + rows, dq * scale, mask=there)


def my_dq(Q, K, V, O, dO, LSE, BM=32, BN=32, causal=False):
    """dQ (H, N, d) and D (H, N). LSE is (H, N), the others (H, N, d), all contiguous."""
    H, N, d = Q.shape
    dQ, D = torch.empty_like(Q), torch.empty_like(LSE)
    my_dq_kernel[(triton.cdiv(N, BM), H)](Q, K, V, O, dO, LSE, D, dQ, N, d**-0.5,
                                          d=d, BM=BM, BN=BN, CAUSAL=causal)
    return dQ, D


# %% tags=["check"] name="check-12B"
check("12B", my_dq)

# %% [markdown]
# ## 12.5 dK and dV: key blocks resident
#
# In `dk_dv_program` $k$, $v$, $dK$ and $dV$ are resident, and $q$, $dO$, $L$ and $D$ are streamed. The weights of a key out of bounds only enter its own rows of $dK$ and $dV$, which are not stored. A query out of bounds has zeros in $q$, $dO$ and $D$. Its weights are finite (0 with $L = +\infty$), so it contributes 0. But every load needs `other`: otherwise a masked lane may be NaN, and $0 \cdot \text{NaN}$ is NaN.
#
# Under a causal mask, query $j$ is the first that attends to key $j$, so the given loop starts at the block of queries that contains query `start`.
#
# <!-- exercise 12C --> Write the loop over the queries. Call `weights_and_gradients` of 12B again, and cast `p` too. The check expects $4Nd + \lceil N/B_N \rceil(2Nd + 2N)$ words per head without a mask, the second bracket of (6.10). If you are stuck after five minutes, run `hint("12C")` in a new cell.
# <!-- 0 as input -->
# <!-- ($4Nd + \lceil N/B_N \rceil(2Nd + 2N)$) = kernel_costs.dkdv_plain(kernel_costs.KernelProblem(N, N, d), 16, BN).total where N <= 1000 -->

# %% [raw] name="about-12C"
# title = "dK and dV: key blocks resident"
# difficulty = 3
# importance = 5
# minutes = 10
# hints = [
#   "Go through dk_dv_program. Four arrays are streamed, two of them with one word per row. Which shape do these need to broadcast with a tile of (keys, queries)?",
#   "L and D belong to queries, which are the second axis now. An out-of-bounds query must add nothing to dv and dk: which zeros in its rows ensure this for any weight?",
#   "Four loads; a call of weights_and_gradients with k and q, v and do, and L and D as rows; if causal, seen hides a key after its query. Add p times do to dv and ds times q to dk, p in the type of do and ds in that of q. Only the scale of dk is left for the store.",
# ]

# %% tags=["exercise"] name="ex-12C"
@triton.jit
def my_dk_dv_kernel(Q, K, V, dO, LSE, D, dK, dV, N, scale, d: tl.constexpr,
                    BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    """BN rows of dK and dV. All (H, N, d) or (H, N), contiguous; LSE and D float32."""
    start = tl.program_id(0) * BN
    first = tl.program_id(1) * N
    j, c = start + tl.arange(0, BN), tl.arange(0, d)
    columns = (first + j)[:, None] * d + c
    there = j[:, None] < N
    k = tl.load(K + columns, mask=there, other=0.0)     # (BN, d), resident
    v = tl.load(V + columns, mask=there, other=0.0)     # (BN, d), resident
    dk = tl.zeros((BN, d), dtype=tl.float32)
    dv = tl.zeros((BN, d), dtype=tl.float32)
    begin = start // BM * BM if CAUSAL else 0
    for at in range(begin, N, BM):
        ### BEGIN SOLUTION tiles of Q and dO, weights, dv takes in, score gradients, dk takes in
        i = at + tl.arange(0, BM)
        rows = (first + i)[:, None] * d + c
        q = tl.load(Q + rows, mask=i[:, None] < N, other=0.0)        # (BM, d), streamed
        do = tl.load(dO + rows, mask=i[:, None] < N, other=0.0)      # (BM, d), streamed
        L_i = tl.load(LSE + first + i, mask=i < N, other=float("inf"))
        D_i = tl.load(D + first + i, mask=i < N, other=0.0)
        seen = j[:, None] <= i[None, :] if CAUSAL else None
        p, ds = weights_and_gradients(k, q, v, do, L_i[None, :], D_i[None, :], scale, seen)
        dv = tl.dot(p.to(do.dtype), do, dv, input_precision="ieee")
        dk = tl.dot(ds.to(q.dtype), q, dk, input_precision="ieee")
        ### END SOLUTION
    tl.store(dK + columns, dk * scale, mask=there)
    tl.store(dV + columns, dv, mask=there)


def my_dk_dv(Q, K, V, dO, LSE, D, BM=32, BN=32, causal=False):
    """dK and dV (H, N, d). LSE and D are (H, N), the others (H, N, d), all contiguous."""
    H, N, d = Q.shape
    dK, dV = torch.empty_like(K), torch.empty_like(V)
    my_dk_dv_kernel[(triton.cdiv(N, BN), H)](Q, K, V, dO, LSE, D, dK, dV, N, d**-0.5,
                                             d=d, BM=BM, BN=BN, CAUSAL=causal)
    return dK, dV


# %% tags=["check"] name="check-12C"
check("12C", my_dk_dv)

# %% [markdown]
# ## 12.6 The traffic of both passes
#
# Together the two kernels are the two-pass backward. The ledger of both launches, minus the closed form:

# %%
def two_pass_backward(Q, K, V, O, dO, LSE, causal=False):
    dQ, D = my_dq(Q, K, V, O, dO, LSE, causal=causal)
    return dQ, *my_dk_dv(Q, K, V, dO, LSE, D, causal=causal)


problem = KernelProblem(N, N, d, H=2, H_kv=2)
budget = sum_ledgers(dq_plain(problem, 32, 32), dkdv_plain(problem, 32, 32))
with traffic.count(Q=Q, K=K, V=V, O=O, dO=dO, LSE=LSE) as ledger:
    mine = attempt(two_pass_backward, Q, K, V, O, dO, LSE)
print(ledger)
print("kernels minus closed form:", ledger - budget)
lesson_06 = costs.split_backward(N, d, Br1=32, Bc1=32, Br2=32, Bc2=32)
print(f"(6.10), one head: {lesson_06.total:,} words; two heads: {budget.total:,}")
masked = KernelProblem(N, N, d, high=0, H=2, H_kv=2)  # causal: key j - query i is at most 0
causal = sum_ledgers(dq_plain(masked, 32, 32), dkdv_plain(masked, 32, 32))
print(f"causal: {causal.total:,} words, a fraction of {causal.total / budget.total:.3f}")

# %% [markdown]
# Your kernels move 78,800 words, 39,400 per head, as (6.10) predicts for each array. Under a causal mask the fraction is 0.747, because partial blocks are loaded completely (section 6.13).
#
# ## 12.7 Words, bytes and times
#
# The fused backward is the second pass with $dQ$ added atomically (exercise 12D). With the kernel of 12A it moves, per head,
#
# $$ W_{\text{fused}} = \underbrace{2Nd + N}_{D} + \underbrace{4Nd + \left\lceil \frac{N}{B_N} \right\rceil (4Nd + 2N)}_{\text{key blocks resident}} . \tag{12.2} $$
# <!-- (12.2) W_fused = kernel_costs.fused_backward_plain(kernel_costs.KernelProblem(N, N, d), BM, BN).total where N <= 1000 -->
#
# With tiles of $B \times B$ in all kernels and $T = \lceil N/B \rceil$, (6.10) and (12.2) become
#
# $$ W_{\text{two-pass}} = 8Nd + 2N + T(4Nd + 2N), \qquad W_{\text{fused}} = 6Nd + N + T(4Nd + 2N) . \tag{12.3} $$
# <!-- (12.3) W_two-pass = kernel_costs.dq_plain(problem, B, B).total + kernel_costs.dkdv_plain(problem, B, B).total with problem = kernel_costs.KernelProblem(N, N, d), T = math.ceil(N / B) where N <= 1000 -->
# <!-- (12.3) W_fused = kernel_costs.fused_backward_plain(problem, B, B).total with problem = kernel_costs.KernelProblem(N, N, d), T = math.ceil(N / B) where N <= 1000 -->
#
# The terms with $T$ are equal. In two passes they are reads of $K$, $V$, $Q$ and $dO$; in the fused backward they are reads of $Q$ and $dO$, and reads and writes of $dQ$. So its kernels move fewer *words*, by $2Nd + N$. (In lesson 06 each pass has its own best tile, and two passes move fewer.)
#
# Formulas (12.2) to (12.4) do not count two launches by PyTorch: $dQ$ is filled with zeros before ($Nd$ words), and with 16-bit inputs it is converted after ($2Nd$ words). With the zeros the fused backward moves $Nd + N$ fewer words than two passes, and with both $Nd - N$ more.
#
# In *bytes* this changes. Inputs of 16 bits have 2 bytes per word, but $dQ$ of the fused backward is float32 with 4, because $T$ additions would each be rounded. $L$ and $D$ are float32 too.
#
# **Predict** (compute). The inputs are float16. Count only the terms $4TNd$ of (12.3). What is the ratio of their bytes, fused / two-pass?
# <!-- 2, 4 = np.dtype(np.float16).itemsize, np.dtype(np.float32).itemsize -->
# <!-- ($2Nd + N$) = kernel_costs.dq_plain(problem, B, B).total + kernel_costs.dkdv_plain(problem, B, B).total - kernel_costs.fused_backward_plain(problem, B, B).total with problem = kernel_costs.KernelProblem(N, N, d) where N <= 1000 -->
# <!-- saved = lambda N, d, B: kernel_costs.dq_plain(kernel_costs.KernelProblem(N, N, d), B, B).total + kernel_costs.dkdv_plain(kernel_costs.KernelProblem(N, N, d), B, B).total - kernel_costs.fused_backward_plain(kernel_costs.KernelProblem(N, N, d), B, B).total -->
# <!-- "With the zeros the fused backward moves $Nd + N$ fewer words than two passes" if all(saved(N, d, B) - N * d == N * d + N for N in (100, 4096) for d in (16, 64) for B in (32, 128)) -->
# <!-- "and with both $Nd - N$ more" if all(saved(N, d, B) - 3 * N * d == N - N * d for N in (100, 4096) for d in (16, 64) for B in (32, 128)) -->

# %% tags=["predict"]
predict("12.7", bytes_ratio=1.5)  #> predict("12.7", bytes_ratio=...)

# %%
def both(N, d, B, width, row_width=4):
    """Return the closed forms of the two-pass and the fused backward for one head.

    width: bytes per word of the inputs; row_width: of L and D, which have one word per row.
    """
    problem = KernelProblem(N, N, d)
    two_pass = sum_ledgers(dq_plain(problem, B, B), dkdv_plain(problem, B, B))
    fused = fused_backward_plain(problem, B, B)
    for ledger in (two_pass, fused):
        ledger.itemsizes = dict.fromkeys(ledger.arrays, width)
        ledger.itemsizes |= {"LSE": row_width, "D": row_width}
    fused.itemsizes["dQ"] = 4
    return two_pass, fused


print("fused / two-pass, d = 64, B = 128, float16")
for N in (128, 256, 1024, 4096, 16384):
    two_pass, fused = both(N, 64, 128, width=2)
    by_torch = N * 64 * (4 + 4 + 2)  # dQ: zeros in float32, and the conversion
    print(f"N = {N:6,}: {fused.total / two_pass.total:.3f} in words, "
          f"{fused.bytes / two_pass.bytes:.3f} in bytes, "
          f"{(fused.bytes + by_torch) / two_pass.bytes:.3f} with zeros and conversion")

# B / 2 doubles T, so the difference has only terms with T. L and D are neglected.
coarse, fine = (both(4096, 64, B, width=2, row_width=0) for B in (256, 128))
two_pass, fused = (more.bytes - less.bytes for less, more in zip(coarse, fine, strict=True))
measured("12.7", bytes_ratio=fused / two_pass)

# %% [markdown]
# <details><summary>Fewer words and more bytes</summary>
#
# 1.5. In two passes these words have 2 bytes; in the fused backward half of them have 4. With all terms the kernels move
#
# $$ 16Nd + 8N + T(8Nd + 8N) \text{ bytes in two passes}, \qquad 12Nd + 4N + T(12Nd + 8N) \text{ in the fused one.} \tag{12.4} $$
# <!-- (12.4) = kernel_costs.ledger_bytes(kernel_costs.dq_plain(problem, B, B), 2) + kernel_costs.ledger_bytes(kernel_costs.dkdv_plain(problem, B, B), 2) with problem = kernel_costs.KernelProblem(N, N, d), T = math.ceil(N / B) where N <= 1000 -->
# <!-- (12.4) = kernel_costs.ledger_bytes(kernel_costs.fused_backward_plain(problem, B, B), 2) with problem = kernel_costs.KernelProblem(N, N, d), T = math.ceil(N / B) where N <= 1000 -->
#
# The ratio is 1.449 at $N = 4096$. Only for $T = 1$ do the kernels of the fused backward move fewer bytes. With the $10Nd$ bytes of the zeros and the conversion, it moves more for every $T$.
#
# </details>
#
# Bytes favour two passes, and arithmetic favours the fused backward. Here are the recorded ratios of their times:
# <!-- plain = lambda N: kernel_costs.KernelProblem(N, N, 64) -->
# <!-- two_pass_bytes = lambda N: kernel_costs.ledger_bytes(kernel_costs.sum_ledgers(kernel_costs.dq_plain(plain(N), 128, 128), kernel_costs.dkdv_plain(plain(N), 128, 128)), 2) -->
# <!-- fused_bytes = lambda N: kernel_costs.ledger_bytes(kernel_costs.fused_backward_plain(plain(N), 128, 128), 2) -->
# <!-- fused_complete = lambda N: fused_bytes(N) + N * 64 * 10 -->
# <!-- 1.5, 1.449 = 12 / 8, fused_bytes(4096) / two_pass_bytes(4096) -->
# <!-- 2, 4 = np.dtype(np.float16).itemsize, np.dtype(np.float32).itemsize -->
# <!-- "it moves more for every $T$" if all(fused_complete(128 * T) > two_pass_bytes(128 * T) for T in range(1, 40)) -->
# <!-- "Only for $T = 1$ do the kernels of the fused backward move fewer bytes" if all((fused_bytes(128 * T) < two_pass_bytes(128 * T)) == (T == 1) for T in range(1, 40)) -->

# %%
def time_ratios(name):
    """Return time of the fused backward / time of the two-pass one, by shape (N, d, causal)."""
    times = {}
    for row in load_record(name)["rows"]:
        if row["pass"] == "backward" and "ms" in row:
            shape = times.setdefault((row["N"], row["d"], row["causal"]), {})
            shape[row["contender"]] = row["ms"]
    return {shape: ms["fused"] / ms["two-pass"] for shape, ms in times.items() if "fused" in ms}


for name in ("attention", "attention-lengths"):
    ratios = time_ratios(name)
    print(record_source(load_record(name)))
    for N in sorted({shape[0] for shape in ratios}):
        some = [ratio for shape, ratio in ratios.items() if shape[0] == N]
        print(f"   N = {N:6,}: {len(some)} shapes, {min(some):.3f} to {max(some):.3f}")
    below = [shape for shape, ratio in ratios.items() if ratio < 1]
    print("   below 1, (N, d, causal):", below)

# %% [markdown]
# Both records are of an H200 in bfloat16, with $d = 64$ and 128, full and causal, with 262,144 or 524,288 rows of $Q$ in all batches and heads ($BHN$). In one the fused backward takes 1.08 to 1.46 times as long as two passes. In the other the ratios are 0.954 to 1.376, below 1 only for $N = 1024$, $d = 128$ and a causal mask. The kernels have changed since then and were not timed again.
# <!-- times = lambda name: {(one["d"], one["N"], one["causal"], one["contender"]): one["ms"] for one in rows(name, pass_="backward") if "ms" in one} -->
# <!-- ratios = lambda name: {shape: ms / times(name)[(*shape, "two-pass")] for (*key, kind), ms in times(name).items() if kind == "fused" for shape in [tuple(key)] if (*shape, "two-pass") in times(name)} -->
# <!-- 1.08, 1.46 = min(ratios("attention").values()), max(ratios("attention").values()) -->
# <!-- 0.954, 1.376 = min(ratios("attention-lengths").values()), max(ratios("attention-lengths").values()) -->
# <!-- "below 1 only for $N = 1024$, $d = 128$ and a causal mask" if [shape for shape, ratio in ratios("attention-lengths").items() if ratio < 1] == [(128, 1024, True)] -->
# <!-- "Both records are of an H200 in bfloat16, with $d = 64$ and 128, full and causal" if all(device(name)["name"] == "NVIDIA H200" and {one["dtype"] for one in rows(name)} == {"bfloat16"} and {(one["d"], one["causal"]) for one in rows(name)} == {(64, False), (64, True), (128, False), (128, True)} for name in ("attention", "attention-lengths")) -->
# <!-- "rows of $Q$ in all batches and heads ($BHN$)" if all({one["B"] * one["H"] * one["N"] for one in rows(name, pass_="backward", contender="two-pass")} == {262144, 524288} for name in ("attention", "attention-lengths")) -->
# <!-- 262,144, 524,288 = min(one["B"] * one["H"] * one["N"] for one in rows("attention", pass_="backward", contender="two-pass")), max(one["B"] * one["H"] * one["N"] for one in rows("attention", pass_="backward", contender="two-pass")) -->
# <!-- "The kernels have changed since" if all("measured before a later change" in checkout("iocourse.data.records").record_source(load_record(name)) for name in ("attention", "attention-lengths")) -->
#
# `kernels.attention` relies on these times. On an H200 it selects the two-pass backward if the inputs have 16 bits, the mask is full or causal, $d$ is 64 or 128, no heads share keys, and $BHN$ is at least 16,896 (128 for each of the 132 SMs, an estimate). In all other cases with $d \le 128$ it selects the fused backward, because two passes were not timed there.
# <!-- few = min(row.where["rows"][0] for row in choices.read_rows() if (row.name, row.value) == ("backward pass", "two-pass")) -->
# <!-- 16,896, 128, 132 = few, few // device("attention")["multiprocessors"], device("attention")["multiprocessors"] -->
# <!-- cases = [(arch, launch(arch, d, size, mask, group, n)) for arch in (75, 80, 89, 90, 100) for d in (16, 32, 64, 96, 128) for size in (2, 4) for mask in ("full", "causal", "window", "blocks", "packed") for group in (1, 2) for n in (few - 1, few, 2**19)] -->
# <!-- taken = lambda arch, case: (arch, case.itemsize, case.group) == (90, 2, 1) and case.mask in ("full", "causal") and case.d in (64, 128) and case.rows >= few -->
# <!-- "On an H200 it selects the two-pass backward if the inputs have 16 bits" if all((choice("backward pass", case).value == "two-pass") == taken(arch, case) for arch, case in cases) -->
# <!-- "In all other cases with $d \le 128$ it selects the fused backward, because two passes were not timed there" if all(choice("backward pass", case).value == "fused" and "not timed" in choice("backward pass", case).why for arch, case in cases if arch == 90 and not taken(arch, case)) -->
#
# ## 12.8 The library's kernels and `deterministic=True`
#
# `deterministic=True` selects two passes and `deterministic=False` the fused backward. The second pass and the fused backward are one kernel (`iocourse/kernels/backward_dkdv.py`), without or with $dQ$. The kernel before it stores $L \log_2 e$ and $D$ for $N' = B_M \lceil N/B_M \rceil$ rows, with $+\infty$ and 0 out of bounds, so that they are loaded without a mask. Before the fused backward it also writes the zeros of $dQ$, in programs of 32 rows. Per head:
# <!-- 32 = checkout("iocourse.costs.kernel_masks").rows_of_delta(64) -->
#
# $$ W'_{\text{two-pass}} = 8Nd + N + 2N' + T(4Nd + 2N'), \qquad W'_{\text{fused}} = 7Nd + N + 2N' + T(4Nd + 2N') \quad (B \ge 32) . \tag{12.5} $$
# <!-- (12.5) W'_two-pass = kernel_costs.attention_split_backward(problem, queries=(B, B), keys=(B, B)).total with problem = kernel_costs.KernelProblem(N, N, d), T = math.ceil(N / B), Nprime = B * math.ceil(N / B) where N <= 1000 -->
# <!-- (12.5) W'_fused = kernel_costs.attention_fused_backward(problem, BM=B, BN=B).total with problem = kernel_costs.KernelProblem(N, N, d), T = math.ceil(N / B), Nprime = B * math.ceil(N / B) where N <= 1000 and B >= 32 -->

# %%
def library(deterministic, dtype=torch.float32):
    """Return dQ, dK and dV of one call, and the ledger of its backward pass."""
    q, k, v = (x[None].to(dtype).requires_grad_() for x in (Q, K, V))  # (1, H, N, d)
    with kernels.using(forward=(32, 32), fused=(32, 32), queries=(32, 32), keys=(32, 32)):
        o = kernels.attention(q, k, v, deterministic=deterministic)
        with traffic.count() as ledger:
            gradients = torch.autograd.grad(o, (q, k, v), dO[None].to(dtype))
    return gradients, ledger


forms = {True: attention_split_backward(problem, queries=(32, 32), keys=(32, 32)),
         False: attention_fused_backward(problem, BM=32, BN=32)}
for deterministic, form in forms.items():
    gradients, ledger = library(deterministic)
    close = [bool(abs(one[0] - other).max() < 1e-5)
             for one, other in zip(gradients, mine, strict=False)]
    again, _ = library(deterministic)
    equal = all(torch.equal(one, other) for one, other in zip(gradients, again, strict=True))
    _, half = library(deterministic, torch.float16)
    print(f"deterministic={deterministic}: {ledger.total:,} words, (12.5) {form.total:,}; "
          f"{half.bytes:,} bytes in float16\n"
          f"  gradients as yours: {all(close) if close else mine}; bit-equal twice: {equal}")


# %% [markdown]
# The library's kernels move 79,560 words in two passes (yours 78,800) and 76,360 in the fused backward. PyTorch then scales and converts $dQ$ in one launch, $2Nd$ uncounted words per head; with them it moves 82,760, more than two passes. In float16 the kernels already have this order: 164,640 and 215,840 bytes. In the interpreter both repeat their bits. On a GPU only `deterministic=True` guarantees it.
# <!-- two_heads = kernel_costs.KernelProblem(100, 100, 16, H=2, H_kv=2) -->
# <!-- split_pass, fused_pass = kernel_costs.attention_split_backward(two_heads, queries=(32, 32), keys=(32, 32)), kernel_costs.attention_fused_backward(two_heads, BM=32, BN=32) -->
# <!-- 79,560, 76,360 = split_pass.total, fused_pass.total -->
# <!-- 82,760 = fused_pass.total + 2 * two_heads.queries * two_heads.d -->
# <!-- "PyTorch then scales and converts $dQ$ in one launch" if "return torch.mul(total, x.scale, out=torch.empty_like(x.q)), dk, dv" in checkout("iocourse/kernels/host/launches.py") -->
# <!-- "more than two passes" if fused_pass.total + 2 * two_heads.queries * two_heads.d > split_pass.total > fused_pass.total -->
# <!-- 164,640, 215,840 = kernel_costs.ledger_bytes(split_pass, 2), kernel_costs.ledger_bytes(fused_pass, 2) -->
#
# ## 12.9 An operator for PyTorch
#
# Autograd cannot differentiate a kernel, and `torch.compile`, which traces a model into a graph, should not trace your launchers. So you register *operators*, each of which is one node of the graph:
#
# | part | purpose |
# | --- | --- |
# | `torch.library.custom_op` | launches the kernels; returns new tensors that share no memory |
# | `register_fake` | same parameters; returns empty tensors with the shapes, types and strides of the results; called while a graph is made, so it reads no data |
# | `register_autograd` | `keep` receives all arguments as `inputs`, saves tensors by `ctx.save_for_backward` and other values as attributes of `ctx`; `differentiate` receives one gradient per output and returns one per input, None for `causal` |
# | a second operator | for the kernels of the backward pass, because `differentiate` is traced too |
#
# `torch.library.opcheck` tests that the parts agree. (A `torch.autograd.Function` has gradients, but `torch.compile` traces into its methods.)
#
# Saved tensors are kept until the backward pass, for every layer of a model. Attention written in PyTorch saves $P$, $N^2$ words per head. By section 6.3, $Q$, $K$, $V$, $O$ and $L$ are enough: $4Nd + N$ words. Here is a simple forward kernel:
# <!-- ($4Nd + N$) = costs.flash2(N, d, Br=N, Bc=1, lse=True).total -->

# %% tags=["given"]
@triton.jit
def absorb(acc, m, l, q, k, v, scale, seen=None):
    """Exercise 11B: add one tile of keys and values to the online softmax."""
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if seen is not None:
        s = tl.where(seen, s, float("-inf"))
    m_new = tl.maximum(m, tl.max(s, 1))  # key 0 is in the first tile: never -inf
    p, old = tl.exp(s - m_new[:, None]), tl.exp(m - m_new)
    acc = tl.dot(p.to(v.dtype), v, acc * old[:, None], input_precision="ieee")
    return acc, m_new, l * old + tl.sum(p, 1)


@triton.jit
def forward_kernel(Q, K, V, O, LSE, N, scale, d: tl.constexpr,
                   BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    start, first = tl.program_id(0) * BM, tl.program_id(1) * N
    i, c = start + tl.arange(0, BM), tl.arange(0, d)
    rows = (first + i)[:, None] * d + c
    q = tl.load(Q + rows, mask=i[:, None] < N, other=0.0)
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    l = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, d), dtype=tl.float32)
    for at in range(0, tl.minimum(start + BM, N) if CAUSAL else N, BN):
        j = at + tl.arange(0, BN)
        columns = (first + j)[:, None] * d + c
        k = tl.load(K + columns, mask=j[:, None] < N, other=0.0)
        v = tl.load(V + columns, mask=j[:, None] < N, other=0.0)
        seen = (j[None, :] < N) & (j[None, :] <= i[:, None]) if CAUSAL else j[None, :] < N
        acc, m, l = absorb(acc, m, l, q, k, v, scale, seen)
    tl.store(O + rows, acc / l[:, None], mask=i[:, None] < N)
    tl.store(LSE + first + i, m + tl.log(l), mask=i < N)


def forward_pass(Q, K, V, causal, BM=32, BN=32):
    """O (H, N, d) and LSE (H, N). Q, K, V: (H, N, d), contiguous."""
    H, N, d = Q.shape
    O, LSE = torch.empty_like(Q), Q.new_empty((H, N), dtype=torch.float32)
    forward_kernel[(triton.cdiv(N, BM), H)](Q, K, V, O, LSE, N, d**-0.5,
                                            d=d, BM=BM, BN=BN, CAUSAL=causal)
    return O, LSE

# %% [markdown]
# <!-- exercise 12E --> Write the missing parts. Make $dO$ contiguous before the launches; torch may copy, but not compute. $L$ is float32 for all inputs, and the gradients have the type of the inputs, float32 or float16. You may ignore `dLSE`. The check counts saved words and moved words, runs `opcheck` on both operators, and `torch.compile` must make one graph of forward and backward (`fullgraph=True`). In the backward pass, kernels may read $dO$, saved tensors and new ones; do not cast inputs to float32. If you are stuck after eight minutes, run `hint("12E")` in a new cell.

# %% [raw] name="about-12E"
# title = "Attention as an operator"
# difficulty = 3
# importance = 5
# minutes = 14
# hints = [
#   "Which inputs of my_dq does the forward pass have, and which of them can be recomputed? Which functions launch kernels? Each of these is an operator.",
#   "A fake has the parameters of its operator and returns empty tensors like its results. Which of them is float32 whatever the inputs are? keep saves five tensors; causal is an attribute. Whose strides can be arbitrary?",
#   "Backward operator: a contiguous dO, then the two passes with D from the first passed to the second. Fakes: empty tensors like Q, like K and like V, and a new (H, N) tensor in float32 for LSE. differentiate calls the backward operator with dO, the saved tensors and causal, and returns four results, the last of them None.",
# ]

# %% tags=["exercise"] name="ex-12E"
@torch.library.custom_op("mine::attention", mutates_args=())
def attention_operator(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor,
                       causal: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """O (H, N, d), and LSE (H, N) in float32. Q, K, V: (H, N, d), contiguous."""
    return forward_pass(Q, K, V, causal)


@torch.library.custom_op("mine::attention_backward", mutates_args=())
def backward_operator(dO: torch.Tensor, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor,
                      O: torch.Tensor, LSE: torch.Tensor, causal: bool
                      ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dQ, dK, dV (H, N, d). dO: (H, N, d), any strides; the others contiguous."""
    ### BEGIN SOLUTION a contiguous dO, then the two passes
    dO = dO.contiguous()
    dQ, D = my_dq(Q, K, V, O, dO, LSE, causal=causal)
    return dQ, *my_dk_dv(Q, K, V, dO, LSE, D, causal=causal)
    ### END SOLUTION


@attention_operator.register_fake
def _(Q, K, V, causal):
    ### BEGIN SOLUTION shapes and types of O and LSE
    return torch.empty_like(Q), Q.new_empty(Q.shape[:2], dtype=torch.float32)
    ### END SOLUTION


@backward_operator.register_fake
def _(dO, Q, K, V, O, LSE, causal):
    ### BEGIN SOLUTION shapes and types of the gradients
    return torch.empty_like(Q), torch.empty_like(K), torch.empty_like(V)
    ### END SOLUTION


def keep(ctx, inputs, output):
    """Store what the backward pass needs. output: O and LSE."""
    ### BEGIN SOLUTION five tensors, and the mask
    Q, K, V, ctx.causal = inputs
    ctx.save_for_backward(Q, K, V, *output)
    ### END SOLUTION


def differentiate(ctx, dO, dLSE):
    """The gradients of Q, K, V and causal. dLSE is 0, because only O is returned."""
    ### BEGIN SOLUTION the other operator
    return *backward_operator(dO, *ctx.saved_tensors, ctx.causal), None
    ### END SOLUTION


attention_operator.register_autograd(differentiate, setup_context=keep)


def my_kernel_attention(Q, K, V, causal=False):
    """softmax(QKᵀ/√d) V, (H, N, d), by your kernels, forward and backward."""
    return attention_operator(Q, K, V, causal)[0]


# %% tags=["check"] name="check-12E"
check("12E", my_kernel_attention)

# %% [markdown]
# How accurate are the gradients? PyTorch differentiates the same attention in float64:

# %%
def gradients_of(attention, dtype):
    q, k, v = (x.to(dtype).requires_grad_() for x in (Q, K, V))
    return torch.autograd.grad(attention(q, k, v, True), (q, k, v), dO.to(dtype))


exact_ones = gradients_of(lambda *inputs: forward_by_torch(*inputs)[0], torch.float64)
found = attempt(gradients_of, my_kernel_attention, torch.float32)
for name, got, want in zip(("dQ", "dK", "dV"), found, exact_ones, strict=False):
    print(f"{name}: largest error below 1e-5: {abs(got - want).max() < 1e-5}")


# %% [markdown]
# All errors are below $10^{-5}$, so they are rounding: a missing mask would cause a much larger one. `docs/guide/training.md` trains a small language model with such operators.
#
# ## 12.10 A file to copy
#
# `flash_attention.py` has the forward pass, the backward pass and the operator in one file. It was tested in the interpreter and compiled for sm_80, sm_90 and sm_100, but not timed on a GPU yet. The next cell copies it into this notebook's folder. Checks refuse its functions, because it solves 11A to 12E.
# <!-- file = checkout("lessons/flash_attention.py") -->
# <!-- "compiled for sm_80, sm_90 and sm_100, but not timed on a GPU yet" if re.findall(r"Compiled for sm_80, sm_90 and sm_100 .*timed on no GPU yet", file) != [] -->

# %%
from iocourse.course.flash_attention_file import copy_flash_attention

copy_flash_attention()
if kernels:  # otherwise this cell prints what to install
    import flash_attention

# %% [markdown]
# `@triton.autotune`, the *tuner*, selects a tile by timing several at the first launch. `first`, `acc` and `delta` are the `start`, `dq` and `D_i` of 12B. Read the file to answer ten questions, the first three with numbers (from the tiles and `tuned`, `keep`, `queries_kernel`):
#
# 1. How many tiles does the tuner try for `forward_kernel`, for $d = 128$ in 16 bits on an H200 (sm_90)?
# 2. $Q$, $K$ and $V$ have the shape $(1, 2, 128, 64)$. How many words are saved for the backward pass?
# 3. How many words more than (6.10) with the same tiles does the backward pass move, for both heads?
#
# **Predict** (compute).
# <!-- 128, 64 as input -->

# %% tags=["predict"]
predict("12.10", tiles=4, saved=65792, more=256)  #> predict("12.10", tiles=..., saved=..., more=...)

# %%
def read_file():
    """Answer the three questions by running the file; return the backward pass's ledger too."""
    saved = []
    q, k, v = (torch.randn(1, 2, 128, 64, requires_grad=True) for _ in range(3))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: saved.append(x) or x, lambda x: x):
        o = flash_attention.attention(q, k, v)
    with traffic.count() as ledger:
        torch.autograd.grad(o, (q, k, v), torch.randn_like(o))
    tiles = flash_attention.FORWARD_TILES | flash_attention.SMALL
    tried = sum(largest_d[1] >= 128 for largest_d in tiles.values())
    return tried, sum(x.numel() for x in saved), ledger


tiles, saved, ledger = read_file()
queries = next(iter(flash_attention.QUERIES_TILES))[:2]
keys = next(iter(flash_attention.KEYS_TILES))[:2]
problem = KernelProblem(128, 128, 64, H=2, H_kv=2)
form = sum_ledgers(dq_plain(problem, *queries), dkdv_plain(problem, *keys))
print("backward pass minus (6.10):", ledger - form)
measured("12.10", tiles=tiles, saved=saved, more=ledger.total - form.total)

# %% [markdown]
# <details><summary>Three numbers</summary>
#
# Three tiles of `FORWARD_TILES` and one of `SMALL` allow $d = 128$. Two heads save $4Nd + N$ words each: 65,792. The operator also returns $L$, so the backward pass reads its gradient `dLSE`, 256 words, and subtracts it from $D$.
# <!-- 65,792, 256 = 2 * (4 * 128 * 64 + 128), 2 * 128 -->
#
# </details>
#
# The others are optional; reading the complete file takes about 20 minutes more:
#
# 4. How many kernels does a backward pass launch, and how many products does an iteration of each compute?
# 5. Which loops have `num_stages=1`?
# 6. Which kernels start with the last rows under a causal mask?
# 7. Where are offsets 64-bit integers?
# 8. Which inputs are copied?
# 9. When do two runs have equal bits?
# 10. Which masks does the file support?
#
# <details><summary>Answers 4 to 10</summary>
#
# 4. Two, with three products in `queries_kernel` and four in `keys_kernel`.
# 5. Those over partial blocks. With more stages, loads run during the products (section 11.6), but with two such loops sm_90 waits for each product. Now it waits once for 16 products (`iocourse/data/bench/flash-attention-file.json`: tile $128 \times 64$, $d = 64$, causal).
# 6. `forward_kernel` and `queries_kernel`, because the last queries attend to the most keys.
# 7. In `head_of`, `rows_from` and `load_rows`, and in `rows` of the three kernels, because a tensor can have more than $2^{31}$ elements.
# 8. $Q$, $K$, $V$, $O$ and $dO$ by `rows_together`, for example if their last stride is not 1; $L$ and its gradient if they are not contiguous.
# 9. With the same tiles, because there are no atomic additions.
# 10. Full and causal masks, no others.
# <!-- functions = {name: body for name, body in re.findall(r"^def (\w+)\((.*?)(?=^def |^@|\Z)", file, re.M | re.S)} -->
# <!-- "three products in `queries_kernel` and four in `keys_kernel`" if [functions["weights_and_gradients"].count("tl.dot(") + functions[name].count("tl.dot(") // 2 for name in ("queries_kernel", "keys_kernel")] == [3, 4] -->
# <!-- "Two, with three products" if re.findall(r"(\w+)\[lambda tile", functions["backward"]) == ["queries_kernel", "keys_kernel"] -->
# <!-- "Those over partial blocks" if sorted(re.findall(r"in tl.range\((\w+), .*num_stages=1\)", file)) == ["begin", "full", "full"] and file.count("num_stages=1)") == 3 -->
# <!-- "`forward_kernel` and `queries_kernel`, because the last queries attend to the most keys" if [name for name, body in functions.items() if re.search(r"= program_place\(.*, CAUSAL\)", body)] == ["forward_kernel", "queries_kernel"] -->
# <!-- "In `head_of`, `rows_from` and `load_rows`, and in `rows` of the three kernels" if [name for name, body in functions.items() if "int64" in body] == ["head_of", "rows_from", "load_rows", "forward_kernel", "queries_kernel", "keys_kernel"] and len(re.findall(r"rows = .batch.*int64", file)) == 3 -->
# <!-- "for example if their last stride is not 1; $L$ and its gradient if they are not contiguous" if "return x if x.stride(" in functions["rows_together"] and re.findall(r"(\w+)\.contiguous\(\)", file) == ["x", "dlse", "lse"] and "do, q, k, v, o = (rows_together(x) for x in (do, q, k, v, o))" in file and "q, k, v = rows_together(q), rows_together(k), rows_together(v)" in file -->
# <!-- "because there are no atomic additions" if "tl.atomic" not in file -->
# <!-- "Full and causal masks, no others" if "windows and other masks" in file.partition("Not supported:")[2][:300] and "full and causal attention" in file -->
# <!-- recorded = row("flash-attention-file", arch=90, d=64, kernel="forward", causal=True, BM=128, BN=64) -->
# <!-- 16 = recorded["hot_loop"]["wgmma"] -->
# <!-- 128 \times 64 = recorded["BM"], recorded["BN"] -->
# <!-- "it waits once for 16 products" if recorded["hot_loop"]["waits"] == 1 -->
#
# </details>
#
# ## 12.11 Optional: your own GPU
#
# With an NVIDIA GPU, `iocourse gpu` runs your kernels of 12A to 12D compiled, in a second process. It compares values and then prints time and rate next to your prediction. Save the notebook first: the command reads your copies in `work/`, or `--file NOTEBOOK`; in Colab, call `time_in_colab` (`docs/guide/run-times.md`). Predict the bandwidth for 12A, which is memory-bound (`iocourse gpu 12A --gbytes X`), and for 12B the float32 rate outside the tensor cores (`--tflops X`). A copy on an H200 was recorded with 4,294 GB/s; 12B was not recorded. The command was tested with a stub, not yet on a GPU.
# <!-- "12A to 12D" if [one for one in course.own_gpu.timed_problems.PROBLEMS if one.startswith("12")] == ["12A", "12B", "12C", "12D"] -->
# <!-- 4,294 = 1000 * load_record("roofs")["copy_tb_s"] -->
#
# ## Misconceptions
#
# - **"Atomic additions make a sum wrong."** No contribution is lost. The order varies, and with it the last bits: 12 results from 24 orders (12.2).
# - **"Five products move fewer bytes than seven."** The kernels move fewer words, by $2Nd + N$, without the zeros and the conversion of $dQ$. In 16 bits they move up to 1.5 times the bytes, because $dQ$ is float32 (12.7).
#
# ## Take-away
#
# - Decide for every array which program may write it. Two passes give each word one owner, for two more products. The fused backward shares $dQ$ and needs atomic additions.
# - The loads and stores of both kernels equal (6.10): 39,400 words per head here. Wider words can reverse a comparison in bytes, and only a measurement gives the time.
# - An operator has an implementation, a fake, saved tensors and gradients. Test it with `opcheck` and against float64.
#
# ## References
#
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691). Section 3.2 adds $dQ$ atomically.
# - D. Goldberg: *What every computer scientist should know about floating-point arithmetic*, ACM Computing Surveys 23, 1991.
# - PyTorch: [torch.library](https://docs.pytorch.org/docs/stable/library.html) and [Custom Python operators](https://docs.pytorch.org/tutorials/advanced/python_custom_ops.html).
#
# **What comes next.** <!-- next -->
# <!-- 1.5 = fused_bytes(2**20) / two_pass_bytes(2**20) -->
# <!-- "they move up to 1.5 times the bytes" if fused_bytes(2**20) > fused_bytes(2**12) > two_pass_bytes(2**12) -->
# <!-- ($2Nd + N$) = kernel_costs.dq_plain(problem, B, B).total + kernel_costs.dkdv_plain(problem, B, B).total - kernel_costs.fused_backward_plain(problem, B, B).total with problem = kernel_costs.KernelProblem(N, N, d) where N <= 1000 -->
