# %% [markdown]
# # 08b What can be proved about a mask
#
# A second evening with masks, in three parts. The backward pass passes the same tiles over. Then we ask what no schedule can avoid: a theorem that counts pairs, and what it cannot see. And we read a published bound whose words fit a mask well and which is about something else.
#
# **What you will learn**
#
# - the words of the backward pass under a mask;
# - two lower bounds for sparse attention, where they meet the schedules, and where they cannot;
# - how to tell that a bound has been misread, although its constant is unknown.
#
# **Prerequisites**: lesson 08, Theorem A of lesson 05, and for section 8.9 the schedules B3 and B4 of lesson 06. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 8E -->. It is for those who like to have a bound of their own; nothing needs it.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, costs, exact, explore, masks, run, schedules
from iocourse.course import attempt, check, hint, measured, predict

# %%
explore.block_mask(masks.random(2048, 64, 0.1), 64, 65536, title="Random tiles")

# %% [markdown]
# 124 of 1,024 tiles, drawn at random, with $M = 65\,536$. Most pairs are hidden, and 0.646 of the words are moved all the same. The black bar is what is proved to be unavoidable, here each input and each output once: F3 moves 1.94 times as many words. The distance between the first bar and the last is what this evening is about: is the schedule bad, or the bound?
#
# ## 8.9 The backward pass
#
# A hidden pair has weight 0 and gives nothing to any gradient, so the backward schedules of lesson 06 pass the same tiles over. With rows $r_i$ and columns $c_j$ of the tiles that are seen,
#
# $$ W_{\text{B3}} = 5Nd + N + (4d+2)\!\!\sum_{(i,j)\ \text{seen}}\!\! r_i , \qquad W_{\text{B4}} = 8Nd + 2N + \!\!\sum_{(i,j)\ \text{seen}}\!\! \bigl(2d\,c_j + (2d+2)\,r_i\bigr) , \tag{8.6} $$
#
# where every query sees a key. B3 is `fused_backward`, B4 `split_backward`; here what stays is a block of the mask's side $B$. The sums are the density $s$ times what they are without a mask.
#
# **Predict** (compute). Of the masks of section 8.2 the window has $s = 0.046$. Which part of the dense words does B4 move?

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
    print(f"{name:14} s = {mask.tiles.mean():.3f}: B3 {fused:10,}, B4 {split:10,} words, "
          f"{split / part['dense']:.3f} of dense")
measured("8.9", part=part["window 1"] / part["dense"])

# %% [markdown]
# <details><summary>More than the density, again</summary>
#
# 0.07518: $s$ and the $8Nd$ words that come anyway.
#
# </details>
#
# (At the same block size B3 moves fewer words than B4; B4's advantage of lesson 06, 14 against 16, comes from larger blocks in the same memory.) And the values, on a small input:

# %%
mask = masks.bigbird(256, 32, 1, 1, 1)
Q, K, V = np.random.default_rng(8).standard_normal((3, 256, 16))
leaves = schedules.saved_for_backward(Q, K, V, mask)
dO = np.random.default_rng(9).standard_normal((256, 16))
back = run(schedules.split_backward, M=4096, Q=Q, K=K, V=V, O=leaves["O"], dO=dO,
           LSE=leaves["LSE"], mask=mask, Br1=32, Bc1=8, Br2=8, Bc2=32)
want = exact.attention_backward(Q, K, V, dO, mask=mask.additive())
errors = [abs(got - right).max() for got, right in zip(back.outputs, want, strict=True)]
print("dQ, dK and dV right:", max(errors) < 1e-12)

# %% [markdown]
# ## 8.10 What counting pairs can prove
#
# Is there a lower bound for a given mask? The proof of Theorem A in lesson 05 counts the products $p_{ij}v_{jc}$ that a stretch of the run can form, $N^2d$ in all. Under a mask only those of seen pairs are needed. Let $\mathrm{nnz}$ be their number; nothing else in the proof changes. This is Theorem D, bound `D`, a derivation of this course like Theorem A:
#
# $$ W \ge \frac{4\,\mathrm{nnz}\,d^2}{M + d^2} - (M + d^2) . \tag{8.7} $$
#
# Beside it stands the compulsory traffic, bound `compulsory_sparse`: $2d$ words for each query that sees a key and $2d$ for each key that is seen. `bounds.lower_bound(..., mask=mask)` takes the larger one.
#
# Theorem D knows the number of pairs and not their places. Where queries share their keys as well as in dense attention, it is close to what is possible; where they do not, it cannot know.
#
# Two masks for $N = M = 65\,536$ and $d = 64$: a window of 33 tiles in each row, and 33 tiles in each row at random. F3 works in blocks of 448 queries, seven rows of tiles.
#
# **Predict** (guess). How many times the window's words does the scattered mask move? And how many times the window's bound is its bound?

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
# <details><summary>What the bound cannot see</summary>
#
# Window and scattered mask have nearly the same number of pairs, so nearly the same bound; the words differ by a factor of more than four. F3 moves 1.239 times the bound under a causal mask, 1.699 times under the window, 8.003 times under the scattered one. We know no schedule that comes near 32 million words there, and (8.7) cannot exclude one.
#
# </details>
#
# For a window the bound is right to leading order. The words are $4Nd + 8wNd^2/M$ by section 8.4, and with $\mathrm{nnz} \approx 2wN$ the bound is $8wNd^2/(M+d^2)$: where $w$ is much larger than $B_r$, the second term is what counts.

# %%
for w in (1024, 4096, 16384, 65536):
    window = masks.Window(2**19, w)
    Br = (M - d) // (2 * d + 3)
    sparse = costs.block_sparse(2**19, d, mask=window, Br=Br, Bc=1).total
    least, which = bounds.lower_bound("forward", 2**19, d, M, mask=window)
    print(f"w = {w:6,} = {w / Br:5.1f} Br: {sparse / least:.3f} times bound {which}")

# %% [markdown]
# The ratio goes towards $(1 + d^2/M)(1 + 3/(2d)) = 1.09$, the same remainders as in lesson 04. A narrow window, whose ring fits, moves $4Nd$ words and meets the compulsory bound. In between, where $w$ is about $B_r$, a factor of up to about two is open: the first challenge of section 8.8 stands there.
# <!-- 1.09 = (1 + 64**2 / 2**16) * (1 + 3 / (2 * 64)) -->
#
# <!-- exercise 8E --> Write the bound yourself, from the pairs: the larger one of (8.7) and the compulsory words. A query that sees nothing has neither to be read nor to be written for this bound, and a key that nobody sees not to be read. For a large $M$ (8.7) is negative and says nothing. If you are stuck after four minutes, run `hint("8E")` in a cell of your own.

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
    """Words that no schedule of Theorem D's class can avoid under a mask.

    pairs: boolean (N, N), True where query i sees key j. d: head dimension.
    M: words of fast memory, at least d².
    Returns a number: the larger one of (8.7) and the compulsory words.
    """
    ### BEGIN SOLUTION rows and columns that see or are seen, and the pairs, wherever they lie
    queries, keys = pairs.any(axis=1).sum(), pairs.any(axis=0).sum()
    compulsory = 2 * d * (queries + keys)
    return max(compulsory, 4 * pairs.sum() * d**2 / (M + d**2) - (M + d**2))
    ### END SOLUTION


# %% tags=["check"] name="check-8E"
check("8E", my_least)


# %%
def how_far(mask, d, M):
    """Words of F3 with its best block, over the bound above."""
    moved = schedules.get("block_sparse").count(mask.N, d, M, mask=mask).total
    return f"{moved:,} words, {moved / my_least(mask.pairs(), d, M):.2f} times the bound"


for w in (8, 32, 128, 512):
    print(f"w = {w:3}:", attempt(how_far, masks.Window(2048, w), 32, 8192))

# %% [markdown]
# Four windows of 2,048 tokens with $d = 32$ and $M = 8192$. Up to $w = 128$ the compulsory words decide, and the factor grows from 1.06 to 1.99, for they do not know the width. At $w = 512$ the pairs decide, and it falls again.
#
# ## 8.11 A sparse bound, read correctly
#
# The paper on fine-grained I/O complexity has a lower bound for sparse attention, bound `omega_sparse` of the list, of the form
#
# $$ W = \Omega\left(\min\left\{ \frac{Z_{\mathrm{in}}^2}{M},\; \frac{Z_{\mathrm{in}}\sqrt{Z_{QK}}}{\sqrt M} \right\}\right) . \tag{8.8} $$
#
# $Z_{\mathrm{in}}$ is the number of *nonzero words of $Q$ and $K$*, $Z_{QK}$ that of $QK^\top$. It is a bound for multiplying sparse matrices with sums and products alone, due to Pagh and Stöckel, applied to $QK^\top$, and it speaks of the worst case: among all inputs with these numbers there are some that need so many words. It is *asymptotic only*; the constant in front is not known.
#
# It is tempting to read $Z_{QK}$ as the number of pairs in a mask. It is not that. A score of zero is not a hidden pair: it has the weight $e^0/\ell_i$ in the softmax, and a hidden pair has none. And with dense $Q$ and $K$, (8.8) would contradict what you have built. An $\Omega$ hides a constant, so no single number can contradict it, but growth can. Take a window with fixed $w$ and let $N$ grow:
#
# **Predict** (guess). Put $Z_{\mathrm{in}} = 2Nd$ and $Z_{QK} = \mathrm{nnz}$ of the window into (8.8) and divide by the $4Nd$ words of the ring. By what factor does the quotient grow when $N$ becomes four times as large?

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
# <details><summary>Why one reading must be wrong</summary>
#
# The quotient doubles each time, without end: whatever the constant, for large $N$ the misread bound is larger than what your ring moves. So as a statement about masks it is false.
#
# </details>
#
# What does (8.8) say, then? Ask which sparse inputs are the hard ones. Put all nonzero words of $Q$ and $K$ into a dense block of $N'$ tokens and $d'$ features, and let everything else be zero. Then $QK^\top$ has $N'^2$ nonzero scores, and up to a constant
#
# $$ N' = \sqrt{Z_{QK}}, \qquad d' = \frac{Z_{\mathrm{in}}}{\sqrt{Z_{QK}}} , \qquad \frac{N'^2d'^2}{M} = \frac{Z_{\mathrm{in}}^2}{M}, \qquad \frac{N'^2d'}{\sqrt M} = \frac{Z_{\mathrm{in}}\sqrt{Z_{QK}}}{\sqrt M} . \tag{8.9} $$
#
# These are the two terms of the dense bound for $N'$ and $d'$, with the same change of regime at $M = d'^2$. For example, $Z_{\mathrm{in}} = 2^{20}$ and $Z_{QK} = 2^{24}$ may be $4{,}096$ tokens with 256 features.
#
# So read (8.8) as *the dense bound of the densest block* that such an input can hide. It says that sparse $Q$ and $K$ do not help in the worst case, because the nonzero words may all sit together. It says nothing about a mask that you know beforehand. For that there are Theorem D and the compulsory traffic. Between them and the schedules of this lesson there is room, and a bound that sees the *places* of the pairs is something we do not have. (The reading as a densest block is this course's.)
# <!-- 4{,}096, 256 = math.sqrt(2**24), 2**20 / math.sqrt(2**24) -->
#
# ## Misconceptions
#
# - **"The sparse lower bound is about my mask."** The published one is about zeros in $Q$ and $K$ (8.11); Theorem D is about masks, and counts pairs without looking where they are (8.10).
# - **"A score of zero is a hidden pair."** Its weight is $e^0/\ell_i$ (8.11).
# - **"A bound far below the schedule says that the schedule is bad."** It says that nobody knows (8.10).
#
# ## Take-away
#
# - A backward pass under a mask moves the density's share of its sums, and $8Nd$ words that come anyway.
# - Theorem D is Theorem A with the seen pairs in place of $N^2$: right to leading order for wide windows, blind for scattered tiles.
# - An $\Omega$ cannot be refuted by a number, but by growth.
#
# ## References
#
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). Section 3.3 is block-sparse FlashAttention.
# - X. Li et al.: *On fine-grained I/O complexity of attention backward passes*, 2024, [arXiv 2410.09397](https://arxiv.org/abs/2410.09397). The sparse bound of section 8.11.
# - R. Pagh, M. Stöckel: *The input/output complexity of sparse matrix multiplication*, 2014, [arXiv 1403.3551](https://arxiv.org/abs/1403.3551).
#
# **What comes next.** Lesson 09 puts all schedules and bounds on one map, and asks which of them a real chip wants.
