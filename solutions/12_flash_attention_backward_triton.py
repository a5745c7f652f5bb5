# %% [markdown]
# # 12 The backward pass in Triton
#
# On a GPU hundreds of programs run at the same time. Let two of them read the same word of $dQ$, add to it and write it back: one of the two sums is lost. So the question of lesson 06, which gradients stay and which travel, becomes a sharper one: *who may write here?* One answer is two sweeps, in which every program writes what nobody else writes. The other is one sweep with atomic additions. This lesson writes both as Triton kernels, counts their words against lesson 06, finds out why the second answer is not the same from run to run, and in the end trains a small language model with them.
#
# **What you will learn**
#
# - to turn the two sweeps of lesson 06 into kernels whose loads and stores are counted and equal (6.10) to the word;
# - to add up a gradient from many programs at once, and what each addition costs in words and in bytes;
# - to say why the order of additions changes the bits of a sum, and what a deterministic backward pass gives up;
# - to put kernels under PyTorch's autograd, test the gradients against float64, and train with them.
#
# **Prerequisites**: lesson 06 (the backward pass), lesson 10 (programs, masks, `tl.dot`) and lesson 11 (the forward kernel and its log-sum-exp). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Sections 12.1 and 12.2 need NumPy only. From section 12.3 on cells run Triton kernels.

# %% tags=["setup"]
from itertools import permutations

import numpy as np

from iocourse import costs, exact
from iocourse.course import attempt, check, explore, hint, measured, predict

# %% [markdown]
# ## 12.1 Two sweeps, program by program
#
# We want the backward pass as a set of programs. A program owns one block of rows or of columns and cannot know what the others are doing. Here is what one of them does if columns stay, as in B3 of lesson 06:

# %%
explore.resident_and_streamed("columns", rows=["Q", "dO", "dQ"], columns=["K", "V", "dK", "dV"],
                              sums=["dQ", "dK", "dV"], title="One sweep for all gradients")

# %% [markdown]
# Its rows of $dK$ and $dV$ are its own. But $dQ$ passes by, is read and written (two of the title's four, as in lesson 06), and this is not the only program. Lesson 06 had a way without: two sweeps, (6.10), rows stay for $dQ$, and columns stay for $dK$ and $dV$. Here is the first, for one program, without any `for` over the blocks of queries: that loop has become the number of the program. A kernel's tile has $B_M$ queries and $B_N$ keys, lesson 06's $B_r$ and $B_c$. The second sweep takes $D$ from the first. Its tiles of scores stand on their side, keys down and queries across: then $P^\top$ and $dS^\top$ are the left factors of $dV = P^\top dO$ and $dK = dS^\top Q/\sqrt d$ as they are, and nothing has to be transposed after the exponential.

# %%
rng = np.random.default_rng(12)
N, d, BM, BN = 100, 16, 32, 32
scale = d**-0.5
Q, K, V, dO = rng.standard_normal((4, N, d))
O, L = exact.attention(Q, K, V), exact.log_sum_exp(exact.scores(Q, K))  # (N, d), (N,)


def dq_program(program, dQ, D):
    """Rows stay: BM rows of dQ, and D of the same rows."""
    i = slice(program * BM, (program + 1) * BM)
    D[i] = (dO[i] * O[i]).sum(axis=1)
    for at in range(0, N, BN):
        k, v = K[at:at + BN], V[at:at + BN]
        p = np.exp(scale * Q[i] @ k.T - L[i, None])  # (BM, BN), by (6.5)
        ds = p * (dO[i] @ v.T - D[i, None])          # (BM, BN), by (6.3)
        dQ[i] += scale * ds @ k


def dk_dv_program(program, D, dK, dV):
    """Columns stay: BN rows of dK and of dV."""
    j = slice(program * BN, (program + 1) * BN)
    for at in range(0, N, BM):
        i = slice(at, at + BM)
        p = np.exp(scale * K[j] @ Q[i].T - L[None, i])  # (BN, BM)
        dV[j] += p @ dO[i]
        ds = p * (V[j] @ dO[i].T - D[None, i])          # (BN, BM)
        dK[j] += scale * ds @ Q[i]


def two_sweeps(programs):
    """dQ, dK, dV; `programs` is the order in which the programs of each sweep run."""
    D, (dQ, dK, dV) = np.zeros(N), np.zeros((3, N, d))
    for program in programs:
        dq_program(program, dQ, D)
    for program in programs:
        dk_dv_program(program, D, dK, dV)
    return dQ, dK, dV


# %% [markdown]
# $N = 100$ makes four blocks of 32, the last of them with four rows. Does it matter which program runs first?

# %%
right = exact.attention_backward(Q, K, V, dO)
forwards, backwards = two_sweeps([0, 1, 2, 3]), two_sweeps([3, 1, 0, 2])
for name, one, other, want in zip(right._fields, forwards, backwards, right, strict=True):
    print(f"{name}: right {np.allclose(one, want, rtol=0, atol=1e-12)}, "
          f"the same bits in another order: {np.array_equal(one, other)}")

# %% [markdown]
# It does not matter to a single bit: within a sweep no program reads what another one writes. Only between the sweeps there is an order, for the second needs $D$. A GPU keeps it: one launch begins when the launch before it has ended.
#
# The price is arithmetic. The first sweep takes three products of matrices a tile ($S$, $dP$, $dQ$), the second four ($S$, $dP$, $dV$, $dK$): seven in all, since $S$ and $dP$ are made twice.
#
# **Predict** (guess). Suppose the second sweep added up $dQ$ too, so that $S$ and $dP$ are made once. How many programs would then add to the same row of $dQ$, with $N = 100$ and blocks of 32 keys?

# %% tags=["predict"]
predict("12.1", programs=4)  #> predict("12.1", programs=...)

# %%
def share(program):
    """What one block of keys adds to dQ: (N, d)."""
    j = slice(program * BN, (program + 1) * BN)
    p = np.exp(scale * Q @ K[j].T - L[:, None])
    ds = p * (dO @ V[j].T - (dO * O).sum(axis=1)[:, None])
    return scale * ds @ K[j]


measured("12.1", programs=sum(bool(share(program)[0].all()) for program in range(4)))

# %% [markdown]
# <details><summary>Who has something to say about a row</summary>
#
# All four, $\lceil N/B_N \rceil$: each block of keys has something to say about every row. So $dQ$ is shared.
#
# </details>
#
# ## 12.2 One sweep, and a shared sum
#
# We want to know what sharing does to the answer, before we write it as a kernel. A GPU has *atomic* additions: read, add and write in one step that no other program can come between. No share gets lost. But the shares arrive in the order in which the programs happen to get there, and that order is not ours. For numbers on paper the order of a sum is nothing to worry about. For floating-point numbers?
#
# **Predict** (guess). $a = 2^{24}$, $b = 1$, $c = -2^{24}$, all float32, which has 24 bits for the digits of a number. What are $(a + b) + c$ and $a + (b + c)$?

# %% tags=["predict"]
predict("12.2", left=0, right=1)  #> predict("12.2", left=..., right=...)

# %%
a, b, c = np.float32(2**24), np.float32(1), np.float32(-(2**24))
measured("12.2", left=float((a + b) + c), right=float(a + (b + c)))

# %% [markdown]
# <details><summary>What the order does to three numbers</summary>
#
# 0 and 1. $2^{24} + 1$ needs 25 bits, and is rounded to $2^{24}$ before $c$ comes; $1 - 2^{24}$ needs 24 bits and is exact. Floating-point addition is *commutative*, $a + b = b + a$ to the bit, and it is not *associative*.
#
# </details>
#
# Now for $dQ$, in float32: the shares of four blocks of keys, in all $4! = 24$ orders in which four programs can finish.
#
# <!-- 25, 24 = (2**24 + 1).bit_length(), (2**24 - 1).bit_length() -->

# %%
shares = [share(program).astype(np.float32) for program in range(4)]
answers = {}
for order in permutations(shares):
    total = sum(order)                # (N, d), float32, added from left to right
    answers[total.tobytes()] = total  # answers of the same bits are kept once
every = np.array(list(answers.values()))
apart = (every.max(axis=0) - every.min(axis=0)).max()
print(f"{len(answers)} different answers from 24 orders")
print(f"never further apart than 1e-6: {apart < 1e-6}")

# %% [markdown]
# 12 different answers, not 24: the first two shares may change places, since addition is commutative. Every other change of order shows in some bit. None of the twelve is wrong, they are never further apart than $10^{-6}$; but on a GPU you do not choose which one you get. In training, two runs with the same seed then part ways, bit by bit, and an error that came up once may not come up again. So it is worth having both: a fast pass, and one whose sums have a fixed order.
#
# ## 12.3 A kernel for D
#
# From here on we need Triton. The next cell sets `TRITON_INTERPRET`, because bytes can be counted in the interpreter only; and it imports `iocourse.kernels` first, because Triton must know about the interpreter before it is imported. Where Triton is missing, that cell and each later one that needs it say in a line what to install; lesson 06 has exercises on the same passes that need NumPy only.

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
# In this lesson a tensor is $(H, N, d)$, float32: $H$ heads, each an attention of its own. A launch has two axes, blocks and heads. $d$ is a power of two (`tl.arange` asks for one; lesson 11 shows how the library pads), and every product says `input_precision="ieee"`: without it a GPU may round float32 factors to TF32, which keeps 11 significant bits.
#
# We want $D_i = \sum_c dO_{ic}\,O_{ic}$, one word a row. It streams two arrays once,
#
# $$ W_D = 2Nd + N \quad\text{for each head,} \tag{12.1} $$
# <!-- (12.1) W_D = kernel_costs.delta_plain(kernel_costs.KernelProblem(N, N, d)).total -->
#
# and there is one difficulty in it. $O$ is ours, we know how it lies in memory. $dO$ comes from autograd, and lies as autograd pleases. Take the simplest loss there is, the sum of all outputs: its gradient is 1 everywhere.
#
# **Predict** (guess). Autograd hands over this $dO$, of shape $(2, 40, 16)$. What is its stride from one row to the next, in elements? (A tensor that is stored whole has 16.)

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
# <details><summary>How one word fills an array</summary>
#
# Strides of 0: the tensor is one word, shown 1,280 times. A kernel that takes $16$ for granted reads far past its end. (`contiguous()` makes a stored copy, and costs its words. The library's kernels take any strides that end in 1. A last stride of 1 alone promises yours nothing: a layer may hand over $(d, Hd, 1)$.)
#
# </details>
#
# <!-- exercise 12A --> Write the kernel; what launches it stands below. Each of the two arrays has a stride from head to head and a stride from row to row of its own (`o_head`, `o_row`, `do_head`, `do_row`); within a row, elements lie side by side. The check has ragged $N$ and a $dO$ that was transposed, counts (12.1), and refuses copies. If you are stuck after five minutes, run `hint("12A")` in a cell of your own.
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
# ## 12.4 Rows stay
#
# We want `dq_program` as a kernel. Two heads of 100 queries will do. The forward pass has left $O$ and the log-sum-exp $L$; here they come from PyTorch, in section 12.9 from a kernel.

# %%
H, N, d = 2, 100, 16
torch.manual_seed(12)
Q, K, V, dO = torch.randn(4, H, N, d)


def forward_by_torch(Q, K, V, causal):
    """O (H, N, d) and LSE (H, N), with all scores written out."""
    S = Q @ K.transpose(1, 2) * Q.shape[2] ** -0.5
    hidden = torch.full(S.shape, float("-inf"), dtype=S.dtype).triu(1)
    S = S + hidden if causal else S
    return S.softmax(2) @ V, S.logsumexp(2)


O, LSE = forward_by_torch(Q, K, V, causal=False)

# %% [markdown]
# New against NumPy are the edges. In a kernel a tile always has its full size; we say what stands in the rows that do not exist: zeros in $q$, $dO$, $k$ and $v$, and $+\infty$ in $L$, so that a query that does not exist has the weights $e^{s - \infty} = 0$.
#
# A key that does not exist is a trap of its own. Its $k$ is zero, so its score is 0 and its weight $e^{0 - L_i}$. Mostly that does no harm: in the end the weight meets the same $k = 0$. But if all real scores of a row are near $-100$, then $L_i \approx -100$ as well, and $e^{100}$ is more than float32 can hold: $\infty \cdot 0$ is not a number. So weights of such keys are set to 0, as those behind a causal mask are.
#
# With a causal mask query $i$ sees keys up to $i$, and the loop ends with the last tile that one of the rows sees.
#
# <!-- exercise 12B --> Write the loop over the keys. What comes before and after it is there, $D$ included. The check counts every load and store: $4Nd + 2N + 2Nd\lceil N/B_M \rceil$ words a head without a mask, the first bracket of (6.10). If you are stuck after eight minutes, run `hint("12B")` in a cell of your own.
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
    """p and ds of one tile, (BA, BB) float32. a, da: (BA, d); b, db: (BB, d); L, D: broadcast."""
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
    q = tl.load(Q + rows, mask=there, other=0.0)        # (BM, d), stays
    do = tl.load(dO + rows, mask=there, other=0.0)      # (BM, d), stays
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
        k = tl.load(K + columns, mask=j[:, None] < N, other=0.0)     # (BN, d), passes by
        v = tl.load(V + columns, mask=j[:, None] < N, other=0.0)     # (BN, d), passes by
        seen = (j[None, :] < N) & (j[None, :] <= i[:, None]) if CAUSAL else j[None, :] < N
        p, ds = weights_and_gradients(q, k, do, v, L_i[:, None], D_i[:, None], scale, seen)
        dq = tl.dot(ds.to(k.dtype), k, dq, input_precision="ieee")
        ### END SOLUTION
    tl.store(dQ + rows, dq * scale, mask=there)


def my_dq(Q, K, V, O, dO, LSE, BM=32, BN=32, causal=False):
    """dQ (H, N, d) and D (H, N). Q, K, V, O, dO: (H, N, d), LSE: (H, N), all contiguous."""
    H, N, d = Q.shape
    dQ, D = torch.empty_like(Q), torch.empty_like(LSE)
    my_dq_kernel[(triton.cdiv(N, BM), H)](Q, K, V, O, dO, LSE, D, dQ, N, d**-0.5,
                                          d=d, BM=BM, BN=BN, CAUSAL=causal)
    return dQ, D


# %% tags=["check"] name="check-12B"
check("12B", my_dq)

# %% [markdown]
# ## 12.5 Columns stay
#
# Now `dk_dv_program`. $k$, $v$, $dK$ and $dV$ stay, $q$, $dO$, $L$ and $D$ pass by, and a tile of scores is (keys, queries). At the edges there is less to do this time. A key that does not exist may have any weights: they go into rows of $dK$ and $dV$ of its own, which are never stored. A query that does not exist gives nothing, whatever its weight: its $q$, $dO$ and $D$ are 0. ($L = +\infty$ would do where rows of $dO$ are not masked. Say so by `other`: without it a lane that is off may hold anything, and 0 times what is no number is no number.)
#
# With a causal mask the first query that sees key $j$ is query $j$. So the loop begins with the tile of queries that holds the block's first key: the largest multiple of $B_M$ that is not above it.
#
# <!-- exercise 12C --> Write the loop over the queries. Words: $4Nd + \lceil N/B_N \rceil(2Nd + 2N)$ a head without a mask, the second bracket of (6.10). If you are stuck after eight minutes, run `hint("12C")` in a cell of your own.
# <!-- 0 as input -->
# <!-- ($4Nd + \lceil N/B_N \rceil(2Nd + 2N)$) = kernel_costs.dkdv_plain(kernel_costs.KernelProblem(N, N, d), 16, BN).total where N <= 1000 -->

# %% [raw] name="about-12C"
# title = "dK and dV: key blocks resident"
# difficulty = 3
# importance = 5
# minutes = 14
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
    k = tl.load(K + columns, mask=there, other=0.0)     # (BN, d), stays
    v = tl.load(V + columns, mask=there, other=0.0)     # (BN, d), stays
    dk = tl.zeros((BN, d), dtype=tl.float32)
    dv = tl.zeros((BN, d), dtype=tl.float32)
    begin = start // BM * BM if CAUSAL else 0
    for at in range(begin, N, BM):
        ### BEGIN SOLUTION tiles of Q and dO, weights, dv takes in, score gradients, dk takes in
        i = at + tl.arange(0, BM)
        rows = (first + i)[:, None] * d + c
        q = tl.load(Q + rows, mask=i[:, None] < N, other=0.0)        # (BM, d), passes by
        do = tl.load(dO + rows, mask=i[:, None] < N, other=0.0)      # (BM, d), passes by
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
    """dK and dV (H, N, d). Q, K, V, dO: (H, N, d), LSE, D: (H, N), all contiguous."""
    H, N, d = Q.shape
    dK, dV = torch.empty_like(K), torch.empty_like(V)
    my_dk_dv_kernel[(triton.cdiv(N, BN), H)](Q, K, V, dO, LSE, D, dK, dV, N, d**-0.5,
                                             d=d, BM=BM, BN=BN, CAUSAL=causal)
    return dK, dV


# %% tags=["check"] name="check-12C"
check("12C", my_dk_dv)

# %% [markdown]
# Together the two kernels are the split backward pass. What does it move? `traffic.count` sees every load and store of both launches; the closed form is (6.10) for two heads.

# %%
def split(Q, K, V, O, dO, LSE, causal=False):
    dQ, D = my_dq(Q, K, V, O, dO, LSE, causal=causal)
    return dQ, *my_dk_dv(Q, K, V, dO, LSE, D, causal=causal)


problem = KernelProblem(N, N, d, H=2, H_kv=2)
budget = sum_ledgers(dq_plain(problem, 32, 32), dkdv_plain(problem, 32, 32))
with traffic.count(Q=Q, K=K, V=V, O=O, dO=dO, LSE=LSE) as ledger:
    mine = attempt(split, Q, K, V, O, dO, LSE)
print(ledger)
print("kernels against the closed form:", ledger - budget)

# %%
lesson_06 = costs.split_backward(N, d, Br1=32, Bc1=32, Br2=32, Bc2=32)
print(f"(6.10), one head: {lesson_06.total:,} words; two kernels, two heads: {budget.total:,}")
seen = KernelProblem(N, N, d, high=0, H=2, H_kv=2)  # causal: key j - query i is at most 0
causal = sum_ledgers(dq_plain(seen, 32, 32), dkdv_plain(seen, 32, 32))
print(f"causal: {causal.total:,} words, {causal.total / budget.total:.3f} of them")

# %% [markdown]
# 39,400 words a head by (6.10), 78,800 by two kernels for two heads, and the difference, array by array, is none. A causal mask leaves 0.747 of them: four blocks a side are few, and tiles on the diagonal are loaded whole (section 6.9).
#
# ## 12.7 Which one moves less?
#
# The other answer of 12.2 is one sweep, the second one with $dQ$ added by atomic additions (lesson 13b writes it, exercise 12D). It moves
#
# $$ W_{\text{fused}} = \underbrace{2Nd + N}_{D} + \underbrace{4Nd + \left\lceil \frac{N}{B_N} \right\rceil (4Nd + 2N)}_{\text{columns stay}} . \tag{12.2} $$
# <!-- (12.2) W_fused = kernel_costs.fused_backward_plain(kernel_costs.KernelProblem(N, N, d), BM, BN).total where N <= 1000 -->
#
# We want to compare (12.2) with (6.10). With the same square tiles of $B$ rows for all kernels, and $T = \lceil N/B \rceil$:
#
# $$ W_{\text{split}} = 8Nd + 2N + T(4Nd + 2N), \qquad W_{\text{fused}} = 6Nd + N + T(4Nd + 2N) . \tag{12.3} $$
# <!-- (12.3) W_split = kernel_costs.dq_plain(problem, B, B).total + kernel_costs.dkdv_plain(problem, B, B).total with problem = kernel_costs.KernelProblem(N, N, d), T = math.ceil(N / B) where N <= 1000 -->
# <!-- (12.3) W_fused = kernel_costs.fused_backward_plain(problem, B, B).total with problem = kernel_costs.KernelProblem(N, N, d), T = math.ceil(N / B) where N <= 1000 -->
#
# The part that grows with $T$ is the same. One pass reads $K$, $V$ once more for every block of queries; the other reads and writes $dQ$ once more for every block of keys. In *words* the fused pass is $2Nd + N$ ahead, for any $N$. (Lesson 06 found $14$ against $16$ the other way round: there each sweep had the tile that is best for it.)
#
# On a GPU words have widths. With float16 inputs $K$ and $V$ are 2 bytes a word and the float32 $dQ$ is 4; $L$ and $D$ are 4 as well.
#
# **Predict** (guess). $N = 4096$, $d = 64$, $B = 128$, float16. How many times as many bytes as the split pass does the fused one move?
# <!-- 2 = np.dtype(np.float16).itemsize -->
# <!-- ($2Nd + N$) = kernel_costs.dq_plain(problem, B, B).total + kernel_costs.dkdv_plain(problem, B, B).total - kernel_costs.fused_backward_plain(problem, B, B).total with problem = kernel_costs.KernelProblem(N, N, d) where N <= 1000 -->

# %% tags=["predict"]
predict("12.7", bytes_ratio=1.5)  #> predict("12.7", bytes_ratio=...)

# %%
def both(N, d, B, width):
    """Closed forms of the split and the fused pass, one head; `width`: bytes of an input."""
    problem = KernelProblem(N, N, d)
    split = sum_ledgers(dq_plain(problem, B, B), dkdv_plain(problem, B, B))
    fused = fused_backward_plain(problem, B, B)
    for ledger in (split, fused):
        ledger.itemsizes = dict.fromkeys(ledger.arrays, width) | {"LSE": 4, "D": 4}
    fused.itemsizes["dQ"] = 4
    return split, fused


for N in (128, 256, 1024, 4096, 16384):
    s, f = both(N, 64, 128, width=2)
    words, moved = f.total / s.total, f.bytes / s.bytes
    print(f"N = {N:6,}: fused/split {words:.3f} in words, {moved:.3f} in bytes")
s, f = both(4096, 64, 128, width=2)
measured("12.7", bytes_ratio=f.bytes / s.bytes)

# %% [markdown]
# <details><summary>Fewer words, and how many bytes</summary>
#
# In bytes:
#
# $$ 16Nd + 8N + T(8Nd + 8N) \text{ for the split pass}, \qquad 12Nd + 4N + T(12Nd + 8N) \text{ for the fused one.} \tag{12.4} $$
# <!-- (12.4) = kernel_costs.ledger_bytes(kernel_costs.dq_plain(problem, B, B), 2) + kernel_costs.ledger_bytes(kernel_costs.dkdv_plain(problem, B, B), 2) with problem = kernel_costs.KernelProblem(N, N, d), T = math.ceil(N / B) where N <= 1000 -->
# <!-- (12.4) = kernel_costs.ledger_bytes(kernel_costs.fused_backward_plain(problem, B, B), 2) with problem = kernel_costs.KernelProblem(N, N, d), T = math.ceil(N / B) where N <= 1000 -->
#
# 1.449 times the bytes, and the ratio goes to 1.49 as $N$ grows. Only where one tile holds the whole sequence ($T = 1$) does the fused pass move fewer bytes in float16; from two tiles on the split pass does.
#
# </details>
#
# Which pass should be the library's default? FlashAttention-2 takes the fused one. Bytes are one cost; arithmetic is the other, and the split pass has seven products against five. Our counts do not show how many words a cache answers: one head's $Q$, $dO$ and $dQ$ at $N = 4096$, $d = 64$ are 2 MiB. So only a measurement decides. On one NVIDIA H200 (bfloat16, $d$ = 64 and 128, full and causal) the fused pass took 1.08 to 1.46 times the time of the split pass at $N = 4096$. On that chip the split pass is the default in such cases from 16,896 rows of $Q$ on; otherwise, up to $d = 128$, the fused pass.
# <!-- rows = {(row["d"], row["N"], row["causal"], row["contender"]): row["ms"] for row in load_record("attention")["rows"] if row["pass"] == "backward" and "ms" in row} -->
# <!-- ratios = [ms / rows[(*shape, "two-pass")] for (*shape, name), ms in rows.items() if name == "fused" and shape[1] == 4096] -->
# <!-- 1.08, 1.46 = min(ratios), max(ratios) -->
# <!-- "the fused pass took 1.08 to 1.46 times the time of the split pass" if min(ratios) > 1 -->
#
# ## 12.8 The library's kernels, and `deterministic=True`
#
# `iocourse.kernels.attention` holds both passes. Its kernels are yours with what a library needs: any strides, any $d$ up to 1,024, heads that share keys, windows, float16 and bfloat16. They stand in `iocourse/kernels`, and the sweep with columns that stay is one kernel for both passes: `backward_dkdv.py`, with a `dQ_sum` or without. `kernels.using` chooses tiles by hand.
#
# One thing is done elsewhere. In your loop each tile of queries loads $L$ and $D$ under a mask, again for each tile of keys. In the library the kernel that comes first prepares both once: it leaves $L \log_2 e$ and $D$ for $N' = B_M \lceil N/B_M \rceil$ rows, those after the last with $+\infty$ and $0$. What the loop loads needs no mask and no product then. The first kernel of the fused pass also writes the zeros of $dQ$. It costs words, few of them:
#
# $$ W'_{\text{split}} = 8Nd + N + 2N' + T(4Nd + 2N'), \qquad W'_{\text{fused}} = 7Nd + N + 2N' + T(4Nd + 2N') \quad (B \ge 32) . \tag{12.5} $$
# <!-- (12.5) W'_split = kernel_costs.attention_split_backward(problem, queries=(B, B), keys=(B, B)).total with problem = kernel_costs.KernelProblem(N, N, d), T = math.ceil(N / B), Nprime = B * math.ceil(N / B) where N <= 1000 -->
# <!-- (12.5) W'_fused = kernel_costs.attention_fused_backward(problem, BM=B, BN=B).total with problem = kernel_costs.KernelProblem(N, N, d), T = math.ceil(N / B), Nprime = B * math.ceil(N / B) where N <= 1000 and B >= 32 -->
#
# Against (12.3) that is $2T(N' - N)$ for rows that do not exist, and $2N'$ for what is left behind, $N$ of which the split pass wrote before. The fused pass has $Nd$ zeros more; yours are written by PyTorch, and not counted.
#
# <!-- 2 = 4096 * 64 * (2 + 2 + 4) / 2**20 -->
# <!-- 1,024 = kernels.host.checks.LARGEST_HEAD -->
# <!-- plain = lambda N: kernel_costs.KernelProblem(N, N, 64) -->
# <!-- split_bytes = lambda N: kernel_costs.ledger_bytes(kernel_costs.sum_ledgers(kernel_costs.dq_plain(plain(N), 128, 128), kernel_costs.dkdv_plain(plain(N), 128, 128)), 2) -->
# <!-- fused_bytes = lambda N: kernel_costs.ledger_bytes(kernel_costs.fused_backward_plain(plain(N), 128, 128), 2) -->
# <!-- 1.449, 1.49 = fused_bytes(4096) / split_bytes(4096), fused_bytes(2**20) / split_bytes(2**20) -->
# <!-- "does the fused pass move fewer bytes in float16; from two tiles on the split pass does" if all((fused_bytes(128 * T) < split_bytes(128 * T)) == (T == 1) for T in range(1, 40)) -->
# <!-- few = min(row.where["rows"][0] for row in choices.read_rows() if (row.name, row.value) == ("backward pass", "two-pass")) -->
# <!-- 16,896 = few -->
# <!-- default = lambda arch, d, **of: choice("backward pass", launch(arch, d, **of)).value -->
# <!-- "the split pass is the default in such cases" if all([default(90, d, mask=mask, rows=rows) for rows in (few, few - 1)] == ["two-pass", "fused"] for d in (64, 128) for mask in ("full", "causal")) -->
# <!-- "otherwise, up to $d = 128$, the fused pass" if all(default(arch, d) == "fused" for arch, d in ((75, 64), (80, 128), (89, 128), (100, 128), (90, 16), (90, 32), (90, 96))) and all(default(90, 64, **other) == "fused" for other in (dict(itemsize=4), dict(mask="window"), dict(mask="blocks"), dict(mask="packed"), dict(group=2))) -->
# <!-- ($2T(N' - N)$) = attention.reads["LSE2"] + attention.reads["D"] - plain.reads["LSE"] - plain.reads["D"] with attention = kernel_costs.kernel_words("keys", kernel_costs.KernelProblem(N, N, d), BM=B, BN=B), plain = kernel_costs.dkdv_plain(kernel_costs.KernelProblem(N, N, d), B, B), T = math.ceil(N / B), Nprime = B * math.ceil(N / B) where N <= 1000 -->

# %%
def library(deterministic, dtype=torch.float32):
    """dQ, dK, dV of one call, and the ledger of its backward pass."""
    q, k, v = (x[None].to(dtype).requires_grad_() for x in (Q, K, V))  # (1, H, N, d)
    with kernels.using(forward=(32, 32), fused=(32, 32), queries=(32, 32), keys=(32, 32)):
        o = kernels.attention(q, k, v, deterministic=deterministic)
        with traffic.count() as ledger:
            gradients = torch.autograd.grad(o, (q, k, v), dO[None].to(dtype))
    return gradients, ledger


def closed_form(deterministic):
    """(12.5) for both heads, array by array."""
    if deterministic:
        return attention_split_backward(problem, queries=(32, 32), keys=(32, 32))
    return attention_fused_backward(problem, BM=32, BN=32)


for deterministic, own in ((True, mine), (False, fused)):
    gradients, ledger = library(deterministic)
    again, _ = library(deterministic)
    same = all(torch.equal(one, other) for one, other in zip(gradients, again, strict=True))
    close = [bool(abs(one[0] - other).max() < 1e-5)
             for one, other in zip(gradients, own, strict=False)]
    form = closed_form(deterministic)
    print(f"deterministic={deterministic}: {ledger.total:,} words, {form.total:,} by (12.5), "
          f"gradients as yours: {all(close) if close else own}, "
          f"bit-equal twice: {same}")

for deterministic in (True, False):
    _, ledger = library(deterministic, torch.float16)
    print(f"float16, deterministic={deterministic}: {ledger.total:,} words, "
          f"{ledger.bytes:,} bytes")


# %% [markdown]
# 79,560 words where yours were 78,800, and 76,360 where yours were 72,200, 3,200 of the difference being zeros. Be careful with the last column. Both passes repeat their bits *here*, because the interpreter has one order. On a GPU only `deterministic=True` promises it: every sum has a fixed order there, whatever the programs do. In float16 the same launch goes the way of (12.4), with what (12.5) adds: 164,640 bytes for the split pass, 215,840 for the fused one, fewer words and more bytes.
#
# ## 12.9 Under autograd
#
# We want to call our kernels from a model and have PyTorch find the gradients. Autograd does not look into a kernel. It has to be told two things: what the forward pass keeps, and what the backward pass does with it. That is a `torch.autograd.Function` with two static methods:
#
# - `forward(ctx, ...)` computes, and hands to `ctx.save_for_backward` the tensors that the backward pass will need;
# - `backward(ctx, dO)` returns one gradient for each argument of `forward`, `None` for those that are no tensors.
#
# What is kept stays in memory until the backward pass comes, for each layer of a model. Attention written in PyTorch keeps $P$, $N^2$ words a head. By section 6.3 we need $Q$, $K$, $V$, $O$ and $L$: $4Nd + N$ words. Here is the forward kernel, that of lesson 11 in its plainest form, so that $O$ and $L$ come from a kernel too:
# <!-- two_heads = kernel_costs.KernelProblem(100, 100, 16, H=2, H_kv=2) -->
# <!-- split_pass, fused_pass = kernel_costs.attention_split_backward(two_heads, queries=(32, 32), keys=(32, 32)), kernel_costs.attention_fused_backward(two_heads, BM=32, BN=32) -->
# <!-- 79,560, 76,360 = split_pass.total, fused_pass.total -->
# <!-- 164,640, 215,840 = kernel_costs.ledger_bytes(split_pass, 2), kernel_costs.ledger_bytes(fused_pass, 2) -->
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
# <!-- exercise 12E --> Write both methods. The kernels are `forward_pass`, and yours: `my_dq` and `my_dk_dv`, or `my_fused`. Options such as `causal` are attributes of `ctx`. The check asks what `save_for_backward` keeps, counts the words of both passes, refuses tensors on `ctx` and what torch computes (copies are allowed), and hands over $dO$ with the strides of section 12.3 and others, for which your kernels were not made. If you are stuck after seven minutes, run `hint("12E")` in a cell of your own.

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
    ### BEGIN SOLUTION dO in an order that the kernels know, then the two sweeps
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
    """The gradients of Q, K, V and causal. dLSE is not used: only O leaves my_kernel_attention."""
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
# How good are such gradients? Float32 kernels cannot be compared with finite differences to more than three or four digits. So we let PyTorch differentiate the same attention in float64, with every matrix written out, and look at the largest error.

# %%
def gradients_of(attention, dtype):
    q, k, v = (x.to(dtype).requires_grad_() for x in (Q, K, V))
    return torch.autograd.grad(attention(q, k, v, True), (q, k, v), dO.to(dtype))


exact_ones = gradients_of(lambda *inputs: forward_by_torch(*inputs)[0], torch.float64)
found = attempt(gradients_of, my_kernel_attention, torch.float32)
for name, got, want in zip(("dQ", "dK", "dV"), found, exact_ones, strict=False):
    print(f"{name}: largest error below 1e-5: {abs(got - want).max() < 1e-5}")


# %% [markdown]
# All three are below $10^{-5}$. Float32 rounds a number by up to $6 \cdot 10^{-8}$ of it, and an entry of a gradient is a sum of up to 100 rounded products: such errors are rounding, and a forgotten factor or mask is far above them.
#
# ## Misconceptions
#
# - **"Atomic additions make a sum wrong."** No share is lost. The order is open, and with it the last bits: 12 answers from 24 orders, never further apart than $10^{-6}$ (12.2).
# - **"Five products move fewer bytes than seven."** Fewer words, by $2Nd + N$. In float16 the fused pass moves up to 1.5 times the bytes, for its $dQ$ is float32 and travels both ways (12.7).
# - **"It gave the same bits twice, so it is deterministic."** In the interpreter everything does. A promise needs a fixed order of every sum (12.8).
# - **"A gradient comes as a stored tensor."** It comes with any strides, 0 among them (12.3).
# - **"The losses agree, so the attention is at work."** Without any attention they are nearly as low; test the gradients themselves (12.9, 12.10).
#
# ## Take-away
#
# - Ask of every array: who may write here? Two sweeps make every answer "one program", at the price of two more products. One sweep shares $dQ$.
# - The kernels' loads and stores are the ledger of lesson 06, to the word: 39,400 a head for the split pass. Widths turn words into bytes, and can turn a comparison round.
# - A backward pass for autograd is what to keep, $4Nd + N$ words, and three gradients. Test it against float64.
#
# ## References
#
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691). Section 3.2: programs for blocks of keys in the backward pass, and atomic additions for dQ.
# - D. Goldberg: *What every computer scientist should know about floating-point arithmetic*, ACM Computing Surveys 23, 1991. Why addition is not associative.
# - PyTorch: [Extending PyTorch](https://docs.pytorch.org/docs/stable/notes/extending.html). `torch.autograd.Function`.
#
# **What comes next.** <!-- next -->
# <!-- 0.3 as input -->
# <!-- 1.5 = fused_bytes(2**20) / split_bytes(2**20) -->
# <!-- "the fused pass moves up to 1.5 times the bytes" if fused_bytes(2**20) > fused_bytes(2**12) > split_bytes(2**12) -->
# <!-- ($2Nd + N$) = kernel_costs.dq_plain(problem, B, B).total + kernel_costs.dkdv_plain(problem, B, B).total - kernel_costs.fused_backward_plain(problem, B, B).total with problem = kernel_costs.KernelProblem(N, N, d) where N <= 1000 -->
# <!-- ($4Nd + N$) = costs.flash2(N, d, Br=N, Bc=1, lse=True).total -->
