# %% [markdown]
# # 09b Beyond the model
#
# This part of lesson 09 has three independent parts: a schedule that the search found, a schedule that moves half as many words as a lower bound requires, and the limits of the model.
#
# **What you will learn**
#
# - to turn a sequence of passes into a schedule;
# - to check the hypotheses of a theorem that seems to be beaten;
# - to list what the model leaves out, and to count the cost of a tile that is not the best.
#
# **Prerequisites**: lesson 09; for section 9.11, also section 5.9 ([05b](05b_lower_bound_proof.ipynb)); [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes without 9D -->. Exercise 9D is the larger part of section 9.10.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, costs, exact, run, schedules
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.machine import probabilities

# %%
explore.resident_and_streamed("columns", rows=("Q", "dO"), columns=("K", "V", "dK", "dV"),
                              sums=("dK", "dV"), title="Stored dS, first pass")

# %% [markdown]
# ## 9.10 Stored dS on the machine
#
# Stored dS (B6, `score_gradients_stored` in code) has two passes. The figure shows the first. Blocks of $B_c$ rows of $K$, $V$, $dK$ and $dV$ are resident, and queries are streamed one at a time. Unlike the fused backward, this pass does not stream $dQ$; it stores $dS$ (not in the figure). By (9.1) it moves $(8x^2 + 1)N^2$ words: four resident arrays, two streamed ones, and one matrix.
#
# In the second pass, $B_r$ rows of $dQ$ are resident, and rows of $K$ and words of $dS$ are streamed. Here is the second pass:

# %%
def dQ_sweep(m, dS, K, *, Br):
    """Return dQ = dS K/√d: dQ resident, K and dS streamed. Footprint Br(d + 1) + d."""
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
# <!-- exercise 9D --> Write the first pass. $D$ and LSE are inputs. `s.multiply_by_matmul(do, v.T, less=D_i)` turns a row of weights into a row of $dS$, and `m.store(s, dS, i, j)` stores it at the rows of `i` and the columns of `j`. Your function may move at most
#
# $$ W = 4Nd + (2Nd + 2N)\left\lceil \frac N{B_c} \right\rceil + N^2 \tag{9.4} $$
# <!-- (9.4) W = lesson09.keys_sweep(N, d, Bc=Bc).total -->
#
# words. The available fast memory is $B_c(4d + 2) + 2d + 4$ words: the resident rows, one row each of $Q$ and $dO$, two rows of scores, and four words. If you are stuck after six minutes, run `hint("9D")` in a new cell.

# %% [raw] name="about-9D"
# title = "Stored score gradients"
# difficulty = 3
# importance = 3
# minutes = 12
# hints = [
#   "This is the loop of exercise 6B with one change. Which of its lines compute dQ, and what must be stored per pair so that dQ can be computed later?",
#   "A block of K, V, dK and dV is resident; one query at a time is streamed, with its row of dO and its two statistics. Store the row of score gradients when it is complete.",
#   "For a query: scale q; scores with the block; weights from L; update dV; turn the weights into score gradients; update dK; store the row for this query and this block of keys. Store the block of dK and dV after the last query.",
# ]

# %% tags=["exercise"] name="ex-9D"
def my_keys_sweep(m, Q, K, V, dO, LSE, D, *, Bc):
    """First pass of stored dS: Bc keys at a time resident, one query at a time streamed.

    m: the machine. Q, K, V, dO: slow arrays (N, d). LSE, D: slow arrays (N,).
    Bc: rows per key block. Returns the slow arrays dS (N, N), dK and dV (N, d).
    """
    N, d = Q.shape
    dS, dK, dV = m.new("dS", (N, N)), m.new("dK", (N, d)), m.new("dV", (N, d))
    ### BEGIN SOLUTION the loop of 6B with one query at a time, which stores dS instead of dQ
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
def stored_dS(m, Q, K, V, dO, LSE, D, *, Bc, Br):
    dS, dK, dV = my_keys_sweep(m, Q, K, V, dO, LSE, D, Bc=Bc)
    return dQ_sweep(m, dS, K, Br=Br), dK, dV


N, d, M = 256, 16, 400
Q, K, V, dO = np.random.default_rng(6).standard_normal((4, N, d))
leaves = schedules.saved_for_backward(Q, K, V)
D = (dO * leaves["O"]).sum(axis=1)
done = attempt(run, stored_dS, M=M, Q=Q, K=K, V=V, dO=dO, LSE=leaves["LSE"], D=D,
               Bc=(M - 2 * d - 4) // (4 * d + 2), Br=(M - d) // (d + 1))
want = exact.attention_backward(Q, K, V, dO)
error = max(abs(done.outputs[k] - want[k]).max() for k in range(3))
two_pass = schedules.split_backward
other = two_pass.cost(N, d, **two_pass.tiles(N, d, M)).total
print(f"M = {M / d**2:.2f} d²: largest error below 1e-12: {error < 1e-12}; stored dS "
      f"{done.ledger.total:,} words, two-pass {other:,}")

# %% [markdown]
# Stored dS moves 653,312 words, and the two-pass backward 788,992, although every word of $dS$ is written once and read once. Here $D$ was an input. The library's schedule computes $D$ from $O$ in the first key block:
#
# <!-- algorithm score_gradients_stored -->
#
# | | **Stored dS, first pass.** Resident: $K_j$, $V_j$, $dK_j$, $dV_j$. Streamed: $Q_i$, $dO_i$. **Second pass.** Resident: $dQ_i$. Streamed: $K_j$. | words |
# | --- | :--- | ---: |
# | 1 | **for** each key block $j$: load $K_j$, $V_j$ | $2Nd$ |
# | 2 | &emsp; **for** each query $i$: load $Q_i$, $dO_i$, $L_i$ | $T_c(2Nd + N)$ |
# | 3 | &emsp;&emsp; first key block: load $O_i$; $D_i$ by (6.6) | $Nd$ |
# | 4 | &emsp;&emsp; first key block: store $D_i$ | $N$ |
# | 5 | &emsp;&emsp; other key blocks: load $D_i$ | $(T_c - 1)N$ |
# | 6 | &emsp;&emsp; update $dV_j$ and $dK_j$; store $dS_{ij}$ | $N^2$ |
# | 7 | &emsp; store $dK_j$, $dV_j$ | $2Nd$ |
# | 8 | **for** each block $i$ of $dQ$, **for** each key $j$: load $dS_{ij}$ | $N^2$ |
# | 9 | &emsp; load $K_j$; add $dS_{ij}K_j/\sqrt d$ to $dQ_i$ | $T_r Nd$ |
# | 10 | &emsp; after the last key: store $dQ_i$ | $Nd$ |
#
# ## 9.11 One array for keys and values
#
# In Theorem A, $K$ and $V$ are distinct arrays. Now use one array for both, $K = V = X$. The schedule `shared_key_value` is buffer reuse in which each row of $X$ is loaded once for both.
#
# **Predict** (guess). What is the ratio of its traffic to the bound of Theorem A, for a large $M$? If the ratio is below 1, which line of the proof in section 5.9 (part 05b) fails?

# %% tags=["predict"]
predict("9.11", times=1)  #> predict("9.11", times=...)

# %%
N, d, M = 2**22, 256, 64 * 256**2
unit = (N * d) ** 2 / M
tied = schedules.shared_key_value.cost(N, d, **schedules.shared_key_value.tiles(N, d, M)).total
print(f"in N²d²/M: K = V {tied / unit:.3f}; Theorem A {bounds.theorem_A(N, d, M) / unit:.3f}, "
      f"bound for K = V {bounds.theorem_tied(N, d, M) / unit:.3f}")
measured("9.11", times=tied / bounds.theorem_A(N, d, M))

# %% [markdown]
# <details><summary>The line that fails</summary>
#
# The ratio is 0.51. The constant $WM/(N^2d^2)$ of the schedule is about two, because $r\,t = 2 \cdot 1$, and that of Theorem A is about 4 for large $M/d^2$. (5.11) is the line that fails. It adds $d$ words for each complete row of $K$ *and* the $n_v$ words of $V$, as if they were different words. Here, a complete row of $X$ is both. If its words are counted once, step 4 allows $(R + d^2)^2/8d$ products per segment, twice as many, and the bound becomes
#
# $$ W \ge \frac{2N^2d^2}{M + d^2} - (M + d^2) . \tag{9.5} $$
# <!-- (9.5) not evaluated: step of a proof -->
#
# So the constant 2 is exact for large $M/d^2$.
#
# </details>
#
# When a theorem seems to be beaten, check its hypotheses.
#
# ## 9.12 Limits of the model
#
# The two-level memory model has one fast memory and one slow memory, and it counts words. A GPU is different in four ways:
#
# - **Which traffic?** A program runs on one SM of the chip. The next level is the L2 cache, which all SMs share. With $N = 8192$ and $d = 128$ (section 9.9), $K$ and $V$ of one head are 4 MiB, so they are kept in L2 while many programs load them. So the words of section 9.9 for `sm` are words from L2, and the traffic of HBM is closer to the words for `l2`. One kernel is at two values of $M$ in the first figure of lesson 09.
# - **Which fast memory?** In addition to its shared memory, an SM has 256 KB of registers, and real kernels keep $O$ and the scores there. Several programs may share an SM. A program that loads the next block while it computes with this one needs space for two.
# - **Which word?** In real kernels, inputs are bf16, and sums are float32. So a word of $O$ takes as many bytes as two words of $Q$, and fewer rows fit than in section 9.9.
# - **Which tile?** Matrix units multiply a tile by a tile. A tile with $B_c = 1$ moves the fewest words, but leaves these units almost idle.
#
# The last difference can be counted. Let a key block have 64 keys, and a query block a multiple of 16 queries.
#
# **Predict** (compute). For buffer reuse with $N = 8192$, $d = 128$ and $M = 116\,224$ words (`sm` in section 9.9), what is the ratio of this tile's traffic to that of the best tile, which has $B_c = 1$? The memory footprint (4.3) is $B_r(2d + 2 + B_c) + B_c d$ words, and the traffic is $2Nd + 2Nd\lceil N/B_r\rceil$.
# <!-- 4 = 2 * 8192 * 128 * 2 / 2**20 -->
# <!-- 116,224 = 227 * 1024 // 2 -->
# <!-- 256 = CHIPS[90].registers * 4 / 1024 -->
# <!-- 0.51 = schedules.shared_key_value.count(2**22, 256, 64 * 256**2).total / bounds.theorem_A(2**22, 256, 64 * 256**2) -->

# %% tags=["predict"]
predict("9.12", times=1.35)  #> predict("9.12", times=...)

# %%
N, d, M, words = 8192, 128, 227 * 1024 // 2, {}  # 227 KB, two bytes per word
for Bc in (1, 16, 64, 128):
    Br = (M - Bc * d) // (2 * d + 2 + Bc)  # (4.3), solved for Br
    Br = Br if Bc == 1 else Br // 16 * 16
    words[Bc] = costs.flash_optimal(N, d, Br=Br, Bc=Bc).total
    print(f"Br = {Br:3}, Bc = {Bc:3}: {words[Bc]:11,} words, ratio {words[Bc] / words[1]:.2f}")
measured("9.12", times=words[64] / words[1])

# %% [markdown]
# <details><summary>The cost of a tile for matrix units</summary>
#
# The ratio is 1.35. With 64 keys per block, 320 queries fit instead of 448, so there are 26 passes over $K$ and $V$ instead of 19: $(2 + 2 \cdot 26)/(2 + 2 \cdot 19)$.
#
# </details>
# <!-- "320 queries fit instead of 448" if max(Br for Br in range(16, 1024, 16) if costs.flash_optimal(8192, 128, Br=Br, Bc=64).peak <= 116224) == 320 and schedules.flash_optimal.tiles(8192, 128, 116224)["Br"] == 448 -->
#
# So start with the schedule that is best in your memory regime, and count what a more practical tile costs.
#
# ## Misconceptions
#
# - **"A theorem that is beaten is wrong."** Perhaps one of its hypotheses does not hold: with $K = V$ there are not two arrays (9.11).
# - **"The words of the model are the words of HBM."** For one SM, they are words from L2 (9.12).
#
# ## Take-away
#
# - A sequence of passes names the resident arrays, the streamed arrays and the stored matrices. It fixes the loops of the program.
# - With one array for keys and values, the traffic and its lower bound are halved.
# - The tile with the fewest words need not be one that a chip can multiply quickly. The closed form gives the cost of another tile.
#
# **In the literature's words**: one array for keys and values is called tied or shared keys and values; several levels of memory are a memory hierarchy; and loading the next block during the arithmetic is double buffering, or software pipelining. Each level of a hierarchy has its own bandwidth.
#
# ## References
#
# - T. Dao: *FlashAttention-2*, 2023, [arXiv 2307.08691](https://arxiv.org/abs/2307.08691).
# - B. Saha, C. Ye: *The I/O complexity of attention, or how optimal is FlashAttention?*, 2024, [arXiv 2402.07443](https://arxiv.org/abs/2402.07443).
# - NVIDIA: *Tuning CUDA Applications for Hopper GPU Architecture*, [docs.nvidia.com](https://docs.nvidia.com/cuda/hopper-tuning-guide/index.html), sections 1.4.1.1 and 1.4.2.2.
#
# **What comes next.** <!-- next --> Nothing has been timed so far; lesson 14c compares counted words with recorded times.
# <!-- 1.35 = costs.flash_optimal(8192, 128, Br=320, Bc=64).total / schedules.flash_optimal.count(8192, 128, 116224).total -->
