# %% [markdown]
# # 09b Off the map
#
# A second evening with the map, in three parts that do not need one another. B6, which a search found, becomes a program. A schedule moves half of what a theorem allows, and you look for the reason. And the map ends where the machine has more than two memories.
#
# **What you will learn**
#
# - to turn a sequence of sweeps into a schedule;
# - to read a theorem's hypotheses where it seems to be beaten;
# - what a GPU has that the model has not, and what one step away from the best tile costs.
#
# **Prerequisites**: lesson 09; section 9.11 uses the proof of section 5.9. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 9D -->. It is the larger part of section 9.10.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, costs, exact, explore, run, schedules
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.machine import probabilities

# %%
explore.resident_and_streamed("columns", rows=("Q", "dO"), columns=("K", "V", "dK", "dV"),
                              sums=("dK", "dV"), title="B6, first sweep")

# %% [markdown]
# The first of the two sweeps of B6. Blocks of four arrays stay, rows of two pass by, and by (9.1) that is $8x^2$. What the picture does not show: $dS$, which is made in the tile, goes to slow memory, for $N^2$ words more.
#
# ## 9.10 B6 on the machine
#
# The search said what stays, what passes and what travels; that is nearly a program. B6 has two sweeps. In the first $B_c$ rows of $K$, $V$, $dK$, $dV$ stay and queries pass one at a time, as in B3; but $dQ$ does not travel, and $dS$ goes to slow memory instead. In the second $B_r$ rows of $dQ$ stay, and rows of $K$ and pieces of $dS$ pass. The second is here:

# %%
def dQ_sweep(m, dS, K, *, Br):
    """dQ = dS K/√d: a block of dQ stays, rows of K and of dS pass. Footprint Br(d + 1) + d."""
    N, d = K.shape
    dQ = m.new("dQ", (N, d))
    for i in m.blocks(N, Br):
        with m.zeros(i, d) as dq:
            for j in m.blocks(N, 1):
                with m.load(dS, i, j) as ds, m.load(K, j) as k:  # (Br, 1), (1, d)
                    dq.add_matmul(ds, k)
            dq *= d**-0.5
            m.store(dq, dQ, i)
    return dQ


# %% [markdown]
# <!-- exercise 9D --> Write the first. $D$ is given, as LSE is. $dS$ is the gradient of the scores, so `s.multiply_by_matmul(do, v.T, less=D_i)` makes a row of it from weights. The words are
#
# $$ W = 4Nd + (2Nd + 2N)\left\lceil \frac N{B_c} \right\rceil + N^2 , \tag{9.4} $$
#
# and the check gives $B_c(4d + 2) + 2d + 4$ words: what stays, a row each of $Q$ and $dO$, two rows of scores, and four words. `m.store(s, dS, i, j)` stores a tile at the rows of `i` and the columns of `j`. If you are stuck after six minutes, run `hint("9D")` in a cell of your own.

# %% [raw] name="about-9D"
# title = "Stored score gradients"
# difficulty = 3
# importance = 3
# minutes = 12
# hints = [
#   "This is the loop of B3 with one change. Which lines of B3 compute dQ, and what must be stored per pair so that dQ can be computed later?",
#   "A block of K, V, dK and dV is resident; one query at a time is streamed, with its row of dO and its two statistics. Store the row of score gradients when it is complete.",
#   "For a query: scale q; scores with the block; weights from L; update dV; turn the weights into score gradients; update dK; store the row for this query and this block of keys. Store the block of dK and dV after the last query.",
# ]

# %% tags=["exercise"] name="ex-9D"
def my_keys_sweep(m, Q, K, V, dO, LSE, D, *, Bc):
    """dS, dK and dV with Bc keys at a time in fast memory and one query at a time passing.

    m: the machine. Q, K, V, dO: slow arrays (N, d). LSE, D: slow arrays (N,).
    Bc: keys in a block. Returns the slow arrays dS (N, N), dK and dV (N, d).
    """
    N, d = Q.shape
    dS, dK, dV = m.new("dS", (N, N)), m.new("dK", (N, d)), m.new("dV", (N, d))
    ### BEGIN SOLUTION B3's loop with one query at a time; dS is stored, and dQ left to others
    for j in m.blocks(N, Bc):
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            for i in m.blocks(N, 1):  # q, do (1, d), L_i and D_i (1,), s (1, Bc)
                with (m.load(Q, i) as q, m.load(dO, i) as do,
                      m.load(LSE, i) as L_i, m.load(D, i) as D_i):
                    q *= d**-0.5
                    with q @ k.T as s:
                        probabilities(s, L_i)
                        dv.add_matmul(s.T, do)
                        s.multiply_by_matmul(do, v.T, less=D_i)
                        dk.add_matmul(s.T, q)
                        m.store(s, dS, i, j)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    ### END SOLUTION
    return dS, dK, dV


# %% tags=["check"] name="check-9D"
check("9D", my_keys_sweep)


# %%
def b6(m, Q, K, V, dO, LSE, D, *, Bc, Br):
    dS, dK, dV = my_keys_sweep(m, Q, K, V, dO, LSE, D, Bc=Bc)
    return dQ_sweep(m, dS, K, Br=Br), dK, dV


N, d, M = 256, 16, 400
Q, K, V, dO = np.random.default_rng(6).standard_normal((4, N, d))
leaves = schedules.saved_for_backward(Q, K, V)
D = (dO * leaves["O"]).sum(axis=1)
two_sweeps = attempt(run, b6, M=M, Q=Q, K=K, V=V, dO=dO, LSE=leaves["LSE"], D=D,
                     Bc=(M - 2 * d - 4) // (4 * d + 2), Br=(M - d) // (d + 1))
want = exact.attention_backward(Q, K, V, dO)
error = max(abs(two_sweeps.outputs[k] - want[k]).max() for k in range(3))
b4 = schedules.split_backward
print(f"M = {M / d**2:.2f} d²: largest error below 1e-12: {error < 1e-12}; B6 "
      f"{two_sweeps.ledger.total:,} words, B4 {b4.cost(N, d, **b4.tiles(N, d, M)).total:,}")

# %% [markdown]
# 653,312 words against 788,992, although every word of $dS$ makes two trips. ($D$ was a gift here. The library's `score_gradients_stored` makes it on the way, in the first block of keys, for the $Nd$ words of $O$.)
#
# ## 9.11 One array for keys and values
#
# In Theorem A $K$ and $V$ are distinct arrays. Let one array be both, $K = V = X$. The schedule is F3 with each row of $X$ read once: `shared_key_value`.
#
# **Predict** (guess). For a large $M$, how many times Theorem A's bound does it move? And if it is less than once: which line of the proof in section 5.9 must break?

# %% tags=["predict"]
predict("9.11", times=1)  #> predict("9.11", times=...)

# %%
N, d, M = 2**22, 256, 64 * 256**2
unit = (N * d) ** 2 / M
tied = schedules.shared_key_value.cost(N, d, **schedules.shared_key_value.tiles(N, d, M)).total
print(f"tied F3 {tied / unit:.3f}; Theorem A {bounds.theorem_A(N, d, M) / unit:.3f}, "
      f"its tied relative {bounds.theorem_tied(N, d, M) / unit:.3f}")
measured("9.11", times=tied / bounds.theorem_A(N, d, M))

# %% [markdown]
# <details><summary>Which line breaks</summary>
#
# Its constant $WM/(N^2d^2)$ is two, $r\,t = 2 \cdot 1$: half of what Theorem A forbids to go below. (5.11) is the line that breaks. It adds $d$ words for each whole row of $K$ *and* the $n_v$ words of $V$ as if they were different words; now a whole row of $X$ is both. With the words counted once, step 4 allows $(R + d^2)^2/8d$ products in a segment, twice as many, and the bound becomes
#
# $$ W \ge \frac{2N^2d^2}{M + d^2} - (M + d^2) , \tag{9.5} $$
#
# so 2 is exact here.
#
# </details>
#
# When a theorem seems to be beaten, look at its hypotheses.
#
# ## 9.12 Where the map ends
#
# The model has one fast memory, one slow one, and counts words. A GPU differs in ways that later lessons measure:
#
# - **Whose traffic?** A program runs on one multiprocessor, and below it lies L2, which all share. $K$ and $V$ of one head are 4 MB here and stay in L2 while many programs read them. So our words for `sm` are words from L2, and HBM sees rather those for `l2`: two places on the map, at the same time.
# - **Which fast memory?** Beside its shared memory a multiprocessor has 256 KB of registers, and real kernels keep $O$ and the scores there. Several programs may share one, and a program that loads the next block while it works on this one needs room for two.
# - **How large is a word?** In real kernels inputs are bf16, sums float32.
# - **Which tiles?** Matrix units multiply a tile by a tile. $B_c = 1$ is best in words, and leaves them almost idle.
#
# The last one we can count. Let a block have 64 keys, and take queries in multiples of 16.
#
# **Predict** (guess). With $N = 8192$ and $d = 128$, as in section 9.9: how many times the words of F3's best tile does that move, on `sm`?
# <!-- 4 = 2 * 8192 * 128 * 2 / 2**20 -->

# %% tags=["predict"]
predict("9.12", times=1.3)  #> predict("9.12", times=...)

# %%
N, d, M, words = 8192, 128, 227 * 1024 // 2, {}  # 227 KB, two bytes a word
for Bc in (1, 16, 64, 128):
    Br = (M - Bc * d) // (2 * d + 2 + Bc)  # (4.3), solved for Br
    Br = Br if Bc == 1 else Br // 16 * 16
    words[Bc] = costs.flash_optimal(N, d, Br=Br, Bc=Bc).total
    print(f"Br = {Br:3}, Bc = {Bc:3}: {words[Bc]:11,} words, {words[Bc] / words[1]:.2f} times")
measured("9.12", times=words[64] / words[1])

# %% [markdown]
# <details><summary>A step away from the best tile</summary>
#
# 1.35 for tiles that matrix units can use.
#
# </details>
#
# The map says which order to begin with, and what a step away from it costs.
#
# ## Misconceptions
#
# - **"A theorem that is beaten is wrong."** Or one of its hypotheses does not hold: $K = V$ is not two arrays (9.11).
# - **"The words of the model are the words of HBM."** For one multiprocessor they are words from L2 (9.12).
#
# ## Take-away
#
# - What stays, what passes, what travels: a sequence of sweeps is nearly a program.
# - Tied keys and values halve the words, and the bound with them.
# - The best tile in words need not be one that a chip can multiply; on the map the step away from it has a price.
#
# ## References
#
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691).
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443).
# - NVIDIA: *Tuning CUDA Applications for Hopper GPU Architecture*, [docs.nvidia.com](https://docs.nvidia.com/cuda/hopper-tuning-guide/index.html), sections 1.4.1.1 and 1.4.2.2.
#
# **What comes next.** The later lessons leave the emulator: the same schedules as kernels of a GPU, counted, and then timed.
