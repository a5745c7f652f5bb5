# %% [markdown]
# # 08b Lower bounds for sparse attention
#
# This part of lesson 08 treats the backward pass under a mask, a lower bound that counts pairs, and a published bound that is easily misread.
#
# **What you will learn**
#
# - to compute the traffic of the backward pass under a mask;
# - to state two lower bounds for a mask, and where schedules are close;
# - to recognise a misread bound, even if its constant is unknown.
#
# **Prerequisites**: lesson 08, Theorem A (lesson 05), fused and two-pass backward (lesson 06); [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes without 8E -->.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, costs, exact, masks, run, schedules
from iocourse.course import attempt, check, explore, hint, measured, predict

# %%
explore.block_mask(masks.random(2048, 64, 0.1), 64, 65536, title="Random blocks")

# %% [markdown]
# This block mask has 124 of 1,024 blocks, drawn at random, with $N = 2048$, $d = 64$ and $M = 65\,536$. Most pairs are masked, but 0.646 of the dense traffic remains. The black bar is the lower bound, here each input read once and each output written once. The schedule of lesson 08 moves 1.94 times the bound. Is the schedule poor, or is the bound too low? (Section 8.10 answers in part.)
#
# ## 8.9 The backward pass
#
# A masked pair has weight 0 and contributes nothing to any gradient, so the backward schedules of lesson 06 skip the same blocks. Let every query attend to some key, let the resident blocks have the side $B$ of the mask, and let a visible block $(i, j)$ have $r_i$ rows and $c_j$ columns. Then the fused backward (B3, `fused_backward`) and the two-pass backward (B4, `split_backward`) move
#
# $$ W_{\text{B3}} = 5Nd + N + (4d+2)\!\!\sum_{(i,j)\ \text{visible}}\!\! r_i , \qquad W_{\text{B4}} = 8Nd + 2N + \!\!\sum_{(i,j)\ \text{visible}}\!\! \bigl(2d\,c_j + (2d+2)\,r_i\bigr) . \tag{8.6} $$
# <!-- (8.6) not evaluated: sum over a set -->
#
# These are (6.8) and (6.10), with a sum over the visible blocks in place of the factors $\lceil N/B \rceil$. With equal blocks, each sum is proportional to the density $s$, the fraction of visible blocks.
#
# **Predict** (compute). The window of section 8.2 has $N = 4096$, $d = 64$, $B = 64$ and 190 of 4096 visible blocks. Which fraction of the dense traffic does the two-pass backward move?
# <!-- 190 = 64 * (2 * 1 + 1) - 1 * (1 + 1) -->
# <!-- drawn = masks.random(2048, 64, 0.1) -->
# <!-- sparse = schedules.get("block_sparse").count(2048, 64, 2**16, mask=drawn).total -->
# <!-- 0.646, 1.94 = sparse / schedules.flash_optimal.count(2048, 64, 2**16).total, sparse / bounds.lower_bound("forward", 2048, 64, 2**16, mask=drawn)[0] -->

# %% tags=["predict"]
predict("8.9", part=0.075)  #> predict("8.9", part=...)

# %%
N, d, B = 4096, 64, 64
given = {
    "dense": masks.BlockMask(N, np.ones((N // B, N // B), dtype=bool), B),
    "causal": masks.causal(N, B),
    "window 1": masks.sliding_window(N, B, 1),
    "strided 8": masks.strided(N, B, 8),
    "bigbird 1,1,2": masks.bigbird(N, B, 1, 1, 2),
    "random 0.1": masks.random(N, B, 0.1),
}
part = {}
for name, mask in given.items():
    fused = costs.fused_backward(N, d, Br=1, Bc=B, mask=mask).total
    split = costs.split_backward(N, d, Br1=B, Bc1=1, Br2=1, Bc2=B, mask=mask).total
    part[name] = split
    print(f"{name:14} s = {mask.tiles.mean():.3f}: fused {fused:10,}, two-pass {split:10,} "
          f"words, {split / part['dense']:.3f} of dense")
measured("8.9", part=part["window 1"] / part["dense"])

# %% [markdown]
# <details><summary>Traffic and density in the backward pass</summary>
#
# 0.07518, which is larger than $s = 0.046$ because of the $8Nd + 2N$ words that every mask moves.
#
# </details>
#
# (With equal blocks the fused backward moves fewer words. In lesson 06 the two-pass backward moved fewer, $14N^2d^2/M$ words compared with $16N^2d^2/M$, because its blocks can be larger in the same memory.) The next cell checks the values on a small input:
# <!-- fused = lambda mask: costs.fused_backward(4096, 64, Br=1, Bc=64, mask=mask).total -->
# <!-- two_pass = lambda mask: costs.split_backward(4096, 64, Br1=64, Bc1=1, Br2=1, Bc2=64, mask=mask).total -->
# <!-- "With equal blocks the fused backward moves fewer words" if all(fused(mask) < two_pass(mask) for mask in (masks.sliding_window(4096, 64, 1), masks.causal(4096, 64))) -->

# %%
mask = masks.bigbird(256, 32, 1, 1, 1)
Q, K, V = np.random.default_rng(8).standard_normal((3, 256, 16))
leaves = schedules.saved_for_backward(Q, K, V, mask)
dO = np.random.default_rng(9).standard_normal((256, 16))
back = run(schedules.split_backward, M=4096, Q=Q, K=K, V=V, O=leaves["O"], dO=dO,
           LSE=leaves["LSE"], mask=mask, Br1=32, Bc1=8, Br2=8, Bc2=32)
want = exact.attention_backward(Q, K, V, dO, mask=mask.additive())
errors = [abs(got - right).max() for got, right in zip(back.outputs, want, strict=True)]
print("dQ, dK and dV correct:", max(errors) < 1e-12)

# %% [markdown]
# ## 8.10 A bound from the number of pairs
#
# The proof of Theorem A (lesson 05b) cuts a run into segments, and in each a fixed number $T$ of words enters fast memory. From these words and those already there, one segment can form at most $F$ products $p_{ij}v_{jc}$. So a run that needs $n$ products has at least $\lfloor n/F \rfloor$ full segments and moves at least about $Tn/F$ words. Without a mask $n = N^2d$. Under a mask only visible pairs need their products: with $\mathrm{nnz}$ visible pairs, $n = \mathrm{nnz}\,d$. The limit $F$ holds whichever pairs the products belong to, so the rest of the proof does not change. This is Theorem D, bound `D`, a derivation of this course. It holds if $M \ge d^2$, for every schedule of Theorem A's class (section 5.7 lists its three conditions):
#
# $$ W \ge \frac{4\,\mathrm{nnz}\,d^2}{M + d^2} - (M + d^2) . \tag{8.7} $$
# <!-- (8.7) W >= bounds.theorem_A_large(N, d, M) rounded down with nnz = N**2 where M >= d**2 -->
#
# The compulsory traffic, bound `compulsory_sparse`, is another one: $2d$ words per query that attends to a key, and $2d$ words per key that some query attends to. `bounds.lower_bound(..., mask=mask)` returns the larger bound.
#
# Theorem D depends on the number of pairs, not on their places. It is close to the traffic of a schedule if queries share keys as in dense attention. Otherwise it can be far below every known schedule.
#
# Take two block masks with $N = M = 65\,536$, $d = 64$ and blocks of $64 \times 64$ pairs, so 1,024 blocks per side. One is a window of $w = 16$ blocks to either side, which is 33 blocks per row. The other has 33 random blocks in each row. Buffer reuse has query blocks of 448 queries, which are seven rows of blocks of the mask.
# <!-- 1,024 = 65536 // 64 -->
# <!-- "Buffer reuse has query blocks of 448 queries" if costs.flash_optimal(2**16, 64, Br=448, Bc=1).peak <= 2**16 -->
#
# **Predict** (guess). What is the ratio of the scattered mask's traffic to the window's traffic? And what is the ratio of their lower bounds?
# <!-- 64 \times 64 as input -->

# %% tags=["predict"]
predict("8.10", words=4.7, bound=1)  #> predict("8.10", words=..., bound=...)

# %%
N, M = 2**16, 2**16
rng, anywhere = np.random.default_rng(8), np.zeros((N // 64, N // 64), dtype=bool)
for row in anywhere:
    row[rng.choice(N // 64, 33, replace=False)] = True
long = {"causal": masks.Causal(N), "window": masks.sliding_window(N, 64, 16),
        "scattered": masks.BlockMask(N, anywhere, 64)}
moved, least = {}, {}
for name, mask in long.items():
    moved[name] = costs.block_sparse(N, d, mask=mask, Br=448, Bc=1).total
    least[name], which = bounds.lower_bound("forward", N, d, M, mask=mask)
    print(f"{name:10} {mask.nnz:13,} pairs: {moved[name]:11,} words, "
          f"bound {which} {least[name]:11,}, {moved[name] / least[name]:.3f} times")
measured("8.10", words=moved["scattered"] / moved["window"],
         bound=least["scattered"] / least["window"])

# %% [markdown]
# <details><summary>Traffic and bounds of the two masks</summary>
#
# The window and the scattered mask have nearly the same number of pairs, and so nearly the same bound. Their traffic differs by a factor of more than four. Buffer reuse moves 1.699 times the bound under the window and 8.003 times under the scattered mask. (Under a causal mask of the same size, printed for comparison, it moves 1.239 times.) For the scattered mask we know no schedule near 32 million words, and (8.7) does not exclude one.
#
# </details>
#
# Under the mask of the first figure, the compulsory traffic is the larger of the two bounds. Part of the gap is due to the schedule: the best known schedule of the challenge "sparsity" (section 8.8) moves about a fifth fewer words under this mask than buffer reuse (a count of the course's tests, not of a cell). The rest of the gap is open.
#
# For a wide window, buffer reuse reaches the bound to leading order. By section 8.4 the traffic is $4Nd + 8wNd^2/M$. With $\mathrm{nnz} \approx 2wN$ the bound is $8wNd^2/(M+d^2)$. If $w$ is much larger than $B_r$, the second term of the traffic dominates.
# <!-- 8.003 as output -->
# <!-- over = lambda mask: costs.block_sparse(2**16, 64, mask=mask, Br=448, Bc=1).total / bounds.lower_bound("forward", 2**16, 64, 2**16, mask=mask)[0] -->
# <!-- 1.699, 1.239 = over(masks.sliding_window(2**16, 64, 16)), over(masks.Causal(2**16)) -->

# %%
for w in (1024, 4096, 16384, 65536):
    window = masks.Window(2**19, w)
    Br = (M - d) // (2 * d + 3)
    sparse = costs.block_sparse(2**19, d, mask=window, Br=Br, Bc=1).total
    least, which = bounds.lower_bound("forward", 2**19, d, M, mask=window)
    print(f"w = {w:6,} = {w / Br:5.1f} Br: {sparse / least:.3f} times bound {which}")

# %% [markdown]
# Here $N = 2^{19}$, $d = 64$ and $M = 65\,536$. The ratio approaches $(1 + d^2/M)(1 + 3/(2d)) = 1.09$, the factors of (4.6) and of section 4.7. A narrow window, whose ring buffer fits, moves $4Nd$ words and reaches the compulsory bound. In between, where $w$ is about $B_r$, a factor of up to about two is open. The first challenge of section 8.8 is in this range.
# <!-- 1.09 = (1 + 64**2 / 2**16) * (1 + 3 / (2 * 64)) -->
# <!-- least = lambda w: bounds.lower_bound("forward", 2**19, 64, 2**16, mask=masks.Window(2**19, w))[0] -->
# <!-- wide = lambda w: costs.block_sparse(2**19, 64, mask=masks.Window(2**19, w), Br=499, Bc=1).total / least(w) -->
# <!-- "The ratio approaches $(1 + d^2/M)(1 + 3/(2d)) = 1.09$" if 0 < wide(65536) - (1 + 64**2 / 2**16) * (1 + 3 / (2 * 64)) < 0.02 -->
# <!-- "where $w$ is about $B_r$, a factor of up to about two is open" if 1.7 < wide(499) < 2.1 -->
#
# <!-- exercise 8E --> Compute the lower bound from the pairs: the larger of (8.7) and the compulsory traffic. For the compulsory traffic, count only the queries that attend to a key and the keys that some query attends to. For a large $M$ (8.7) is negative. If you are stuck after four minutes, run `hint("8E")` in a new cell.

# %% [raw] name="about-8E"
# title = "A bound from the pairs"
# difficulty = 2
# importance = 2
# minutes = 8
# hints = [
#   "Two lower bounds hold, so the larger one holds. What does each of them count?",
#   "For the compulsory traffic: how many rows of the mask contain a True, and how many columns? Each such row has a query and an output, each such column a key and a value.",
#   "any along an axis tells whether each row, or each column, contains a True; the sum counts them. The sum of the complete mask is nnz. Then compute both bounds and take the larger one.",
# ]

# %% tags=["exercise"] name="ex-8E"
def my_least(pairs, d, M):
    """Return a lower bound on the traffic of every schedule of Theorem D's class.

    pairs: boolean (N, N), True where query i attends to key j. d: head dimension.
    M: words of fast memory, at least d².
    Returns a number: the larger of (8.7) and the compulsory traffic.
    """
    ### BEGIN SOLUTION rows and columns with a visible pair, and the number of pairs
    queries, keys = pairs.any(axis=1).sum(), pairs.any(axis=0).sum()
    compulsory = 2 * d * (queries + keys)
    return max(compulsory, 4 * pairs.sum() * d**2 / (M + d**2) - (M + d**2))
    ### END SOLUTION


# %% tags=["check"] name="check-8E"
check("8E", my_least)


# %%
def how_far(mask, d, M):
    """Return the traffic of buffer reuse with its best blocks, and its ratio to your bound."""
    moved = schedules.get("block_sparse").count(mask.N, d, M, mask=mask).total
    return f"{moved:,} words, {moved / my_least(mask.pairs(), d, M):.2f} times the bound"


for w in (8, 32, 128, 512):
    print(f"w = {w:3}:", attempt(how_far, masks.Window(2048, w), 32, 8192))

# %% [markdown]
# Up to $w = 128$ the compulsory traffic is the larger bound. It does not depend on $w$, so the ratio grows from 1.06 to 1.99. At $w = 512$ the number of pairs determines the bound, and the ratio is smaller again.
#
# ## 8.11 Reading a published bound correctly
#
# The paper *On fine-grained I/O complexity of attention backward passes* has a lower bound for sparse attention, bound `omega_sparse`, of the form
#
# $$ W = \Omega\left(\min\left\{ \frac{Z_{\mathrm{in}}^2}{M},\; \frac{Z_{\mathrm{in}}\sqrt{Z_{QK}}}{\sqrt M} \right\}\right) . \tag{8.8} $$
# <!-- (8.8) W = bounds.omega_sparse.order(Zin, ZQK, M) with Omega = lambda order: order -->
#
# $\Omega$ means "at least this, up to a constant factor"; the constant is not known. $Z_{\mathrm{in}}$ is the number of *nonzero words of $Q$ and $K$*, and $Z_{QK}$ is that of $QK^\top$. The bound is due to Pagh and Stöckel, for algorithms that only add and multiply entries of sparse matrices, and the paper applies it to $QK^\top$. It is a worst-case statement: some inputs with these two numbers need this much traffic.
# <!-- "the constant is not known" if bounds.omega_sparse.status == "asymptotic only" -->
#
# It is tempting to read $Z_{QK}$ as the number of visible pairs of a mask. That is wrong. A score of zero has the weight $e^{0 - L_i}$ in the softmax, where $L_i$ is the log-sum-exp of the row. This is not 0, but a masked pair has weight 0. If $Z_{QK}$ were the number of visible pairs, (8.8) with dense $Q$ and $K$ would also contradict your ring buffer. A single number cannot contradict a bound with an unknown constant, but growth can. Fix $d$, the width $w$ of a window, and $M$ as the footprint of its ring buffer, and let $N$ grow:
#
# **Predict** (guess). Insert $Z_{\mathrm{in}} = 2Nd$ and $Z_{QK} = \mathrm{nnz}$ of the window into (8.8), and divide by the $4Nd$ words of the ring buffer. For large $N$ the second term of (8.8) is the smaller one. By what factor does the quotient grow if $N$ becomes four times as large?

# %% tags=["predict"]
predict("8.11", growth=2)  #> predict("8.11", growth=...)

# %%
w, quotient = 64, []
M = costs.window(4096, d, w=w).peak
for N in (2**12, 2**14, 2**16, 2**18):
    misread = bounds.omega_sparse.order(2 * N * d, masks.Window(N, w).nnz, M)
    ring = costs.window(N, d, w=w).total
    quotient.append(misread / ring)
    print(f"N = {N:7,}: ring {ring:10,} words, (8.8) misread {misread:13,.0f}, "
          f"quotient {quotient[-1]:.2f}")
measured("8.11", growth=quotient[1] / quotient[0])

# %% [markdown]
# <details><summary>Why the reading is wrong</summary>
#
# The quotient doubles each time. For any constant, the misread bound exceeds the traffic of your ring buffer if $N$ is large enough. So it is false as a statement about masks.
#
# </details>
# <!-- M = costs.window(4096, 64, w=64).peak -->
# <!-- misread = lambda N: bounds.omega_sparse.order(2 * N * 64, masks.Window(N, 64).nnz, M) / costs.window(N, 64, w=64).total -->
# <!-- "The quotient doubles each time" if all(1.99 < misread(4 * N) / misread(N) < 2.01 for N in (2**12, 2**14, 2**16, 2**18)) -->
#
# For the correct reading, look for sparse inputs that need as many words as (8.8). Put all nonzero words of $Q$ and $K$ into a dense block of $N'$ tokens and $d'$ features, and set everything else to zero. Then $QK^\top$ has $N'^2$ nonzero scores, and up to a constant
#
# $$ N' = \sqrt{Z_{QK}}, \qquad d' = \frac{Z_{\mathrm{in}}}{\sqrt{Z_{QK}}} , \qquad \frac{N'^2d'^2}{M} = \frac{Z_{\mathrm{in}}^2}{M}, \qquad \frac{N'^2d'}{\sqrt M} = \frac{Z_{\mathrm{in}}\sqrt{Z_{QK}}}{\sqrt M} . \tag{8.9} $$
# <!-- (8.9) N' = not evaluated: definition -->
# <!-- (8.9) d' = not evaluated: definition -->
# <!-- (8.9) \frac{N'^2d'^2}{M} = bounds.omega_sparse.order(Zin, ZQK, M) with Zin = tokens * features, ZQK = tokens**2 where M >= features**2 -->
# <!-- (8.9) \frac{N'^2d'}{\sqrt M} = bounds.omega_sparse.order(Zin, ZQK, M) with Zin = tokens * features, ZQK = tokens**2 where M <= features**2 -->
#
# These are the two terms of the dense bound for $N'$ and $d'$, with the same crossover at $M = d'^2$. For example, $Z_{\mathrm{in}} = 2^{20}$ and $Z_{QK} = 2^{24}$ correspond to about $4{,}096$ tokens with 256 features.
#
# So (8.8) is *the dense bound of the densest block* that such an input can contain. Sparse $Q$ and $K$ do not help in the worst case, because all nonzero words may be in one block. (This reading is the course's.) About a mask that is known in advance it states nothing. For masks we have Theorem D and the compulsory traffic. A gap remains between them and the schedules, and we know no bound that depends on the *places* of the pairs.
# <!-- 4{,}096, 256 = math.sqrt(2**24), 2**20 / math.sqrt(2**24) -->
#
# ## Misconceptions
#
# - **"The sparse lower bound is about my mask."** The published bound is about zeros in $Q$ and $K$ (8.11). Theorem D is about masks, and depends only on the number of pairs (8.10).
# - **"A score of zero is a masked pair."** Its weight is $e^{-L_i}$, not 0 (8.11).
# - **"A bound far below the schedule shows that the schedule is bad."** It shows only that the question is open (8.10).
#
# ## Take-away
#
# - Under a block mask, the fused backward moves $5Nd + N$ words and the two-pass backward $8Nd + 2N$ words for every mask. The rest of their dense traffic is multiplied by $s$.
# - Theorem D is Theorem A with the number of visible pairs in place of $N^2$. Buffer reuse reaches it to leading order for wide windows. For scattered blocks, all known schedules move far more words.
# - A single number cannot refute an $\Omega$, but growth can.
#
# **In the literature's words**: (8.7) is an I/O lower bound in the two-level memory model, and nnz is the usual name for the number of nonzeros. Pagh and Stöckel's bound is for sparse matrix multiplication in the external-memory model.
#
# ## References
#
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Section 3.3 is block-sparse FlashAttention.
# - X. Li et al.: *On fine-grained I/O complexity of attention backward passes*, 2024, [arXiv 2410.09397](https://arxiv.org/abs/2410.09397). The sparse bound of section 8.11.
# - R. Pagh, M. Stöckel: *The input/output complexity of sparse matrix multiplication*, 2014, [arXiv 1403.3551](https://arxiv.org/abs/1403.3551).
#
# **What comes next.** <!-- next -->
