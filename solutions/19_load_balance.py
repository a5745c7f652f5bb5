# %% [markdown]
# # 19 Load balance
#
# Lesson 18 gave every rank as many rows as every other, and each had as much to do. A causal mask ends that: late rows see more keys than early ones. So do texts of different length, and clips of a film that look mainly at themselves. Then the ranks that have finished wait for one that has not, and the words that a rank needs depend on which rows it was given. This lesson deals rows out: by work, by words, and by what a mask asks for.
#
# **What you will learn**
#
# - to give each rank the same work under a causal mask, and to see what that does to its words;
# - to place texts of different length by work, and what else is then unequal;
# - to answer a query whose keys lie on many ranks, for a number of words that no longer knows their number;
# - to send a few rows, or a state, where a ring would send all keys;
# - when a network hides behind products, what PyTorch's own context parallelism does, and how to start real ranks.
#
# **Prerequisites**: lesson 18 (ranks, the ring, $W$ of a rank), lesson 03 (merging partial results). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Everything runs in NumPy, on the counting engine. One cell runs on PyTorch's network library, gloo, and one on processes of their own; without PyTorch they print how to install it.

# %% tags=["setup"]
from importlib.util import find_spec

import numpy as np

from iocourse import distributed, exact
from iocourse.course import check, explore, hint, measured, predict
from iocourse.distributed import bounds, load_balance, time_model
from iocourse.doctor import install_command

rng = np.random.default_rng(19)


def with_torch(work, *arguments):
    """work(*arguments); where a library that it needs is missing, a sentence."""
    missing = [name for name in ("torch", "cloudpickle") if not find_spec(name)]
    if missing:
        print(*missing, "not installed here:", install_command.command("torch"))
    else:
        work(*arguments)


# %% [markdown]
# ## 19.1 Who waits for whom
#
# Under a causal mask the query at row $t$, counted from 0, sees the $t + 1$ keys up to it, and a pair of a query and a key is a unit of work. Three ways to deal $N$ rows to $P$ ranks: *contiguous*, one stretch each; *zigzag*, where $2P$ blocks are dealt down the ranks and up again, so that rank $p$ has the blocks $p$ and $2P - 1 - p$; and *striped*, where row $t$ goes to rank $t \bmod P$.

# %%
explore.causal_load(16, 4)

# %% [markdown]
# On contiguous rows the last rank has the rows from $N - N/P$ on, which see $N - N/2P$ keys in the middle, while the mean over all rows is about $N/2$. So
#
# $$ \frac{\text{pairs of the busiest rank}}{\text{mean}} \approx \frac{N - \frac{N}{2P}}{N/2} = 2 - \frac1P . \tag{19.1} $$
# <!-- (19.1) \frac{\text{pairs of the busiest rank}}{\text{mean}} ~ distributed.load_balance.imbalance(distributed.load_balance.pairs_of_ranks("contiguous", N, P)) within 0.005 with N = n * P where n >= 200 and P <= 200 -->
#
# That factor is what a step costs: everybody waits for the last. In zigzag an early block is paid for by a late one. With $n = N/2P$ rows in a block, block $b$ has $bn^2 + n(n+1)/2$ pairs, and the blocks $p$ and $2P - 1 - p$ together
#
# $$ (2P - 1)\,n^2 + n(n + 1) = n(N + 1), \tag{19.2} $$
# <!-- (19.2) distributed.load_balance.pairs_of_ranks("zigzag", N, P)[0] = distributed.load_balance.pairs_of_ranks("zigzag", N, P)[-1] with N = 2 * P * n where P <= 200 -->
#
# whatever $p$ is: all ranks have the same, to the pair.
#
# **Predict** (compute). $P = 16$ ranks, $2^{20}$ contiguous rows: how many times the mean has the busiest? And how many times would it be without a mask?

# %% tags=["predict"]
predict("19.1", causal=1.9375, full=1)  #> predict("19.1", causal=..., full=...)

# %%
N, d, P = 4096, 64, 16
pairs = {layout: load_balance.pairs_of_ranks(layout, N, P) for layout in distributed.LAYOUTS}
busy = {layout: load_balance.imbalance(shares) for layout, shares in pairs.items()}
longer = load_balance.imbalance(load_balance.pairs_of_ranks("contiguous", 2**20, P))
measured("19.1", causal=longer, full=load_balance.imbalance([N * N / P] * P))
print(f"N = {N:,}:", ", ".join(f"{layout} {most:.3f}" for layout, most in busy.items()))

# %% [markdown]
# <details><summary>What came out</summary>
#
# 1.9375 by (19.1), and 1 without a mask. A causal mask halves the pairs, and contiguous rows give nearly all of that away again. On the printed 4,096 rows zigzag has 1.000, striped 1.004: rank $p + 1$ has the row below each of rank $p$, and sees one key more in it.
#
# </details>
# <!-- 1.9375 = 2 - 1 / 16 -->
#
# ## 19.2 Equal work, other words
#
# A rank needs the keys and values of all rows up to its last query, less those it has. On contiguous rows rank $p$ needs $2d$ words for each of $pN/P$ rows, and rank 0 needs nothing.
#
# **Predict** (guess). The mask hides half of the pairs. What does the *busiest* rank in zigzag receive, as a share of the $2Nd$ words of all keys and values? The ring without a mask has $1 - 1/P$, here 0.9375.

# %% tags=["predict"]
predict("19.2", zigzag=0.94)  #> predict("19.2", zigzag=...)

# %%
every, share = 2 * N * d, {}
for layout in distributed.LAYOUTS:
    needed = np.array(load_balance.words_of_ranks(layout, N, d, P))
    done = distributed.get(f"causal_{layout}").dry(P, N, d)
    words = np.array([ledger.words for ledger in done.ledgers])
    share[layout] = words / every
    mean, most = needed.mean() / every, needed.max() / every
    print(f"{layout:10} needs {mean:.4f} in the mean, {most:.4f} at most; "
          f"receives that: {(words == needed).all()}; holds {done.peak:,} at once")
measured("19.2", zigzag=share["zigzag"].max())

# %% [markdown]
# <details><summary>What came out</summary>
#
# 0.9375, as if there were no mask. Rank $p$ ends with block $2P - 1 - p$, and has two of the blocks up to it:
#
# $$ W_p = (2P - 2 - p)\,\frac{Nd}{P} . \tag{19.3} $$
# <!-- (19.3) Wp = distributed.load_balance.words_of_ranks("zigzag", N, d, P)[p] with N = 2 * P * n, p = k % P where P <= 200 -->
#
# Rank 0 has the last block of the text, and needs every key that it has not: zigzag halves the time of the products, and the busiest rank's words stay. The mean tells the layouts apart: 0.469 contiguous, 0.703 zigzag, 0.936 striped. What a rank of the library's schedules receives is what it needs, to the word: a block goes no further than somebody can see it. The last number is memory, the most words of others that a rank holds at once: of two blocks, one in use and one arriving.
# <!-- "as if there were no mask" if max(distributed.load_balance.words_of_ranks("zigzag", 4096, 64, 16)) == distributed.get("ring").ledgers(16, 4096, 64)[0].words -->
#
# </details>
#
# Striped rows are those of Striped Attention. DistFlashAttn takes a third way: rows stay contiguous, and ranks that are done take work over from those that are not. What is *possible* under the mask falls by less than half, too: in the bound of lesson 18 stand $N^2/2$ pairs in place of $N^2$, under a root.

# %%
full, causal = (bounds.network(2**17, 128, P, causal=mask) for mask in (False, True))
print(f"N = 131,072, d = 128: {full:,} words for some rank, causal {causal:,}: "
      f"{causal / full:.3f} times")

# %% [markdown]
# <!-- exercise 19A --> Deal the rows out yourself: `my_owner(t, N, P)` is the rank of row $t$. Each rank gets $N/P$ rows and the same work, and all ranks together need no more words than in zigzag. $2P$ divides $N$. If you are stuck after four minutes, run `hint("19A")` in a cell of your own.

# %% [raw] name="about-19A"
# title = "The rank of a row"
# difficulty = 1
# importance = 4
# minutes = 6
# hints = [
#   "Split the rows into 2P blocks. Which pairs of blocks have equal work?",
#   "The first and the last block, the second and the last but one, and so on. How many rows has a block, and in which block is row t?",
#   "Blocks 0 to P - 1 belong to the ranks of these numbers. The later blocks go in reverse: block 2P - 1 belongs to rank 0, block P to rank P - 1.",
# ]

# %% tags=["exercise"] name="ex-19A"
def my_owner(t, N, P):
    """The rank, 0 to P - 1, that has row t of N."""
    ### BEGIN SOLUTION one block down, one block up
    block = t // (N // (2 * P))
    return min(block, 2 * P - 1 - block)
    ### END SOLUTION


# %% tags=["check"] name="check-19A"
check("19A", my_owner)

# %% [markdown]
# ## 19.3 Texts of different length
#
# A training batch is many texts in one row of tokens, and each sees itself alone. Its work grows with the square of its length, so a few long ones have nearly all of it. Here lengths are drawn from a log-normal distribution: most are short, and a few are very long.

# %%
lengths = load_balance.draw_lengths(np.random.default_rng(19), 2**19)
work = sorted((n * (n + 1) // 2 for n in lengths), reverse=True)
first = work[0] / sum(work)
print(f"{len(lengths)} texts, {sum(lengths):,} tokens; the longest, {max(lengths):,}, has "
      f"{first:.1%} of the pairs, {P * first:.1f} times a rank's share")

# %% [markdown]
# Three placements. *Equal tokens*: one text behind the other, cut into 16 stretches of equal length. *Whole texts*: the longest first, each on the rank with the least work so far; no word moves. *Split texts*: a text with more than one rank's share is split over just so many ranks that each part is at most a share, in zigzag, so that its parts are equal up to the rounding of blocks to whole rows; then, as before, the largest part first, and the parts of a text go to those ranks that have the least work so far.
#
# **Predict** (guess). The busiest rank's work over the mean, for each of the three?

# %% tags=["predict"]
predict("19.3", tokens=4.5, whole=9.2, split=1)  #> predict("19.3", tokens=..., whole=..., split=...)

# %%
placed = {"tokens": load_balance.equal_tokens(lengths, P),
          "whole": load_balance.whole_texts(lengths, P),
          "split": load_balance.split_texts(lengths, P)}
measured("19.3", **{name: load_balance.imbalance(one.pairs) for name, one in placed.items()})
for name, one in placed.items():
    work, tokens = load_balance.imbalance(one.pairs), load_balance.imbalance(one.tokens)
    print(f"{name:6} work {work:.2f}, tokens {tokens:.2f} times the mean; texts split: "
          f"{len(one.split)}; words of all ranks {sum(one.words(128)):,}")

# %% [markdown]
# <details><summary>What came out</summary>
#
# 4.52, 9.21 and 1.00. Whole texts are the worst: one text is more than nine shares, and no order of the others can mend that. With three of 114 texts split the work is even. Two prices are printed beside it. A rank that has much of a long text has few tokens, and one with short texts many: 1.89 times the mean, so balanced work is not balanced memory. And 176,230,400 words move, 3.5 times as many as where tokens are cut without a thought, because the longest text now stands on ten ranks in place of four, and because in zigzag each of the ten has a block near its end, and needs nearly all keys before it; a stretch near the start would need few. Zigzag is not the cheapest of all cuts with equal work: on ten ranks its parts need 6.75 times the rows of the text from others, and contiguous parts that end at $n\sqrt{k/10}$ need 6.11 times.
#
# </details>
# <!-- tokens, split = (sum(place(distributed.load_balance.draw_lengths(np.random.default_rng(19), 2**19), 16).words(128)) for place in (distributed.load_balance.equal_tokens, distributed.load_balance.split_texts)) -->
# <!-- 3.5 = split / tokens -->
# <!-- 1.89 = distributed.load_balance.imbalance(distributed.load_balance.split_texts(distributed.load_balance.draw_lengths(np.random.default_rng(19), 2**19), 16).tokens) -->
# <!-- 6.75, 6.11 = (sum((18 - p) / 20 for p in range(10)), sum((k / 10) ** 0.5 for k in range(10))) -->
#
# Zeppelin (see the references, of which we use the abstract) also splits texts by what they cost, in a hierarchy, and routes what moves between nodes of a cluster, which we do not.
#
# <!-- exercise 19B --> Place the texts: `my_placement(lengths, P)` returns, for each text, the list of ranks that share it. A text on several ranks is cut in zigzag: count an equal part of its $n(n+1)/2$ pairs for each of them, and each lacks the keys of the others. Make the work as even as *split texts* does, and split no more than that needs.

# %% [raw] name="about-19B"
# title = "Sequences on ranks"
# difficulty = 3
# importance = 4
# minutes = 10
# hints = [
#   "How much work is there in total, and what is the share of one rank? Which sequences have more work than that?",
#   "A sequence needs its work divided by the share, rounded up, ranks, at most P. Start with the sequence with the largest part; assign it to the ranks with the least work so far.",
#   "Keep a list of the work of each rank. Sort the ranks by it, take as many as the sequence needs, and add an equal part of its work to each of them. Return the result in the order of the sequences, not in the order of assignment.",
# ]

# %% tags=["exercise"] name="ex-19B"
def my_placement(lengths, P):
    """For each text the list of ranks, of 0 to P - 1, that share it."""
    ### BEGIN SOLUTION the largest part first, on those ranks that have least to do
    n = np.array(lengths)
    work = n * (n + 1)
    parts = -(-P * work // work.sum())      # rounded up
    part = work / parts
    load, placed = [0.0] * P, [[]] * len(lengths)
    for text in sorted(range(len(lengths)), key=lambda text: -part[text]):
        placed[text] = sorted(range(P), key=lambda rank: load[rank])[:parts[text]]
        for rank in placed[text]:
            load[rank] += part[text]
    return placed
    ### END SOLUTION


# %% tags=["check"] name="check-19B"
check("19B", my_placement)

# %% [markdown]
# ## 19.4 One query, keys everywhere
#
# While a model writes, it has one new query a step, and its keys lie where they were made, on $P$ ranks. A ring would bring $2Nd(P-1)/P$ words to a query of $d$. The other way round is cheap: the query is small, so every rank gets it, attends to its own keys, and has $(o, L)$ as in lesson 03: an output, and the log-sum-exp of its scores. These are merged.
#
# **Predict** (compute). $d = 128$ and $P = 8$. A rank sends its $(o, L)$ to all others. How many words does it send for one query at $N = 1{,}000$, and how many at $N = 10^6$?

# %% tags=["predict"]
predict("19.4", thousand=903, million=903)  #> predict("19.4", thousand=..., million=...)

# %%
short, long = (distributed.get("decode").dry(8, N, 128) for N in (1000, 10**6))
measured("19.4", thousand=short.words, million=long.words)

# %% [markdown]
# <details><summary>What came out</summary>
#
# $(d + 1)(P - 1) = 903$ words, and $N$ is not in it. DistAttention, in Infinite-LLM, keeps the cache of one long text on many machines in this way. Fewer words are possible: an all-gather of the log-sum-exps, a reduce-scatter of the weighted outputs and an all-gather of their sums move 231.
#
# </details>
# <!-- 231 = 2 * 128 * 7 // 8 + 7 -->
# <!-- 903 = max(distributed.get("decode").ledgers(8, N, 128)[0].words for N in (1_000, 10**6)) -->
#
# The same few lines serve wherever few queries meet many keys. A film is summed up by *attentive pooling*: one learned query, the same for all films, attends to the frames, and its output is the film's vector. Put 10,000 frames on ranks, and the pooling is a decode step.
#
# <!-- exercise 19C --> Pool the frames: every rank has the queries `Q` $(m, d)$, its own frames' `K` and `V` $(n, d)$, and returns all of `O` $(m, d)$. A rank sends $m(d + 1)(P - 1)$ words at most, as `O` and `L`. `distributed.attend(q, k, v)` gives $(o, L)$ of a rank's own keys, $(0, -\infty)$ where it has none; `distributed.merge` refuses to work in a check. `me.all_gather(X=x)` joins the arrays of all ranks along their first axis: `x[None]` has an axis more in front, shape $(1, m, d)$, so that $(P, m, d)$ arrive.

# %% [raw] name="about-19C"
# title = "Pooling over ranks"
# difficulty = 2
# importance = 5
# minutes = 10
# hints = [
#   "What does a rank know after it attends to its own frames, and what do the other ranks need of it?",
#   "Gather the outputs and log-sum-exps of all ranks. The weight of a rank's output is its fraction of the row sum: exp(L) divided by the sum of all exp(L).",
#   "exp(L) may overflow: subtract the largest L of each query first. With shapes (P, m, d) and (P, m) the weights need one more axis, and the sum is over the first axis.",
# ]

# %% tags=["exercise"] name="ex-19C"
def my_pooling(me, Q, K, V):
    """O (m, d) of queries that every rank has, from the keys and values of all ranks."""
    ### BEGIN SOLUTION own frames, all (o, L), a common maximum of each query
    o, L = distributed.attend(Q, K, V)
    all_o, all_L = me.all_gather(O=o[None], L=L[None])      # (P, m, d) and (P, m)
    weights = np.exp(all_L - all_L.max(axis=0))
    return (weights[:, :, None] * all_o).sum(axis=0) / weights.sum(axis=0)[:, None]
    ### END SOLUTION


# %% tags=["check"] name="check-19C"
check("19C", my_pooling)

# %% [markdown]
# ## 19.5 States instead of keys
#
# Where weights are products of features, $\phi(q) \cdot \phi(k)$, as in linear attention and in lesson 15's polynomials, a rank's keys and values are summed up in one *state*, $\sum_j \phi(k_j)\,[v_j, 1]$, of $r(d+1)$ words for $r$ features. States are added. So every rank sends its state to all others, and no key travels: $r(d + 1)(P - 1)$ words, again without $N$. LASP-2 gathers states so.

# %%
def phi(x):
    """Positive features, as many as columns: elu(x) + 1."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def states(me, Q, K, V):
    own = phi(K).T @ np.concatenate([V, np.ones((len(V), 1))], axis=1)      # (r, d + 1)
    T = me.all_gather(KV=own[None]).sum(axis=0)     # the states of all ranks, added
    o = phi(Q) @ T
    return o[:, :-1] / o[:, -1:]


Q, K, V = rng.standard_normal((3, 1000, 16))
done = distributed.run(states, 4, Q=Q, K=K, V=V)
A = phi(Q) @ phi(K).T
right = abs(done.O - A @ V / A.sum(axis=1, keepdims=True)).max() < 1e-12
print(f"right: {right}; W = {done.words:,}, r(d + 1)(P - 1) = {16 * 17 * 3:,}")

# %% [markdown]
# Against the ring's $2Nd(P-1)/P$ the gathered states win when $r(d + 1) < 2dN/P$, that is, from about this many rows a rank on:
#
# $$ \frac NP > \frac r2 . \tag{19.4} $$
# <!-- (19.4) not evaluated: order of growth -->
#
# **Predict** (compute). Linear attention has $r = d = 64$; a polynomial of degree 2 in $d = 64$ columns has $r = \binom{66}{2}$ features. From how many rows a rank on does each send less than the ring? Use the inequality in front of (19.4), and round to the nearest ten.

# %% tags=["predict"]
predict("19.5", linear=30, degree2=1090)  #> predict("19.5", linear=..., degree2=...)

# %%
least = {name: r * 65 / (2 * 64) for name, r in (("linear", 64), ("degree2", 66 * 65 // 2))}
measured("19.5", **{name: round(rows, -1) for name, rows in least.items()})

# %% [markdown]
# <details><summary>What came out</summary>
#
# 30 and 1,090 rows: a state is a bargain for linear attention at any length worth distributing, and for a polynomial from a thousand rows a rank on. This holds for states that are gathered: a reduce-scatter and then an all-gather, which together are an all-reduce, move $2r(d + 1)(P - 1)/P$ words, $P/2$ times fewer. Under a causal mask a rank adds the states of the ranks *below* it, and treats its own rows by itself; the words are the same.
# <!-- 30, 1,090 = (round(next(n for n in range(1, 2_000) if distributed.get("states").ledgers(4, 4 * n, 64, r=r)[0].words < distributed.get("ring").ledgers(4, 4 * n, 64)[0].words), -1) for r in (64, math.comb(66, 2))) -->
# <!-- 2 as definition -->
#
# </details>
#
# What grows with $N$ and what does not, for 16 ranks:

# %%
Ns = [2**k for k in range(8, 21, 2)]
names = {"ring": {}, "states": {"r": 64}, "decode": {}}
lines = {name: [(N, distributed.get(name).dry(16, N, 64, **more).words) for N in Ns]
         for name, more in names.items()}
lines["states, degree 2"] = [(N, 2145 * 65 * 15) for N in Ns]
explore.curve({}, lines, title="Words of a rank, P = 16, d = 64",
              xlabel="rows N", ylabel="words W of a rank")

# %% [markdown]
# The ring answers $N$ queries exactly, the states answer $N$ queries of another kernel, and decode answers one query exactly: the lines compare words, and a choice begins with what is to be computed.
#
# ## 19.6 A film, clip by clip
#
# Many masks for film are *local plus global*: a frame sees all of its own clip, and of every other clip one row, its first, which stands for it. If clips lie whole on ranks, the first rows are all that must travel. Of $C$ clips a rank has $C/P$ and receives
#
# $$ W = 2d\,(C - C/P) \tag{19.5} $$
# <!-- (19.5) W = distributed.get("ring").ledgers(P, C * c, d)[0].words / c with C = k * P where P <= 200 -->
#
# words. For clips of $c$ rows these are $1/c$ of the ring's. The mask decides which words a rank needs, and the layout whether it already has them.

# %%
c = 4
clip = np.arange(24) // c
sees = (clip[:, None] == clip) | (np.arange(24) % c == 0)
print("\n".join("".join("#" if x else "." for x in row) for row in sees[::4]))

# %% [markdown]
# Six clips of four frames, the first frame of each as a query: a block of its own, and one key of every clip.
#
# <!-- exercise 19D --> Write it as a rank: `Q`, `K`, `V` are its rows $(n, d)$, whole clips of `c` rows, and every rank has as many. No rank receives more than (19.5), and a clip's own first row is one key, not two.

# %% [raw] name="about-19D"
# title = "Local and global attention of clips"
# difficulty = 3
# importance = 4
# minutes = 10
# hints = [
#   "Which rows of K and V does a rank need from others, and which of its own do the others need? They are the same rows.",
#   "The other ranks need every c-th row, starting with the first: gather those of K and of V. Then each of your clips attends to its own rows and to the first rows that it does not already have.",
#   "The gathered rows are one per clip, in the order of the film. Your n-th clip is clip me.rank times the clips per rank, plus n, of the film: leave that one out, and join the rest to the clip's own keys.",
# ]

# %% tags=["exercise"] name="ex-19D"
def my_clips(me, Q, K, V, c):
    """O (n, d): each row sees its own clip of c rows, and the first row of every other clip."""
    ### BEGIN SOLUTION first rows of all, less one's own
    first_k, first_v = me.all_gather(K=K[::c], V=V[::c])    # (C, d), the clips of all ranks
    mine, O = len(K) // c, np.empty_like(Q)
    for n in range(mine):
        rows = slice(n * c, n * c + c)
        others = np.arange(len(first_k)) != me.rank * mine + n
        k = np.concatenate([K[rows], first_k[others]])
        v = np.concatenate([V[rows], first_v[others]])
        O[rows], _ = distributed.attend(Q[rows], k, v)
    return O
    ### END SOLUTION


# %% tags=["check"] name="check-19D"
check("19D", my_clips)

# %% [markdown]
# ## 19.7 When the network hides
#
# Words can travel while products are made. `me.start_shift` sends and returns at once, `wait()` gives what came; in between the arrays may be read and not changed. The ring in that order:

# %%
def overlapped(me, Q, K, V):
    found, k, v = None, K, V
    for step in range(me.size):
        last = step == me.size - 1
        moving = None if last else me.start_shift(K=k, V=v)     # the next block sets off
        part = distributed.attend(Q, k, v)                      # meanwhile this one is used
        found = distributed.merge(*found, *part) if found else part
        if not last:
            k, v = moving.wait()
    return found[0]


both = distributed.get("ring"), overlapped
plain, ahead = (distributed.run(body, 4, Q=Q, K=K, V=V) for body in both)
print(f"W = {plain.words:,} and {ahead.words:,}, held {plain.peak:,} and {ahead.peak:,} words")

# %% [markdown]
# The same words, and the same two blocks held: one in use and one arriving. The order of two lines is all. What it gains is a matter of clocks, and here the course has a model and no measurement: $\gamma$ seconds a flop, $\beta$ seconds a word, with peaks from data sheets, of which kernels reach about 60 percent. A step of the ring makes $4(N/P)^2d$ flops and moves $2(N/P)d$ words, so it hides if
#
# $$ 4\Big(\frac NP\Big)^2 d\,\gamma \ge 2\,\frac NP\,d\,\beta \quad\text{if and only if}\quad \frac NP \ge \frac{\beta}{2\gamma} , \tag{19.6} $$
# <!-- (19.6) 4\Big(\frac NP\Big)^2 d\,\gamma >= distributed.get("ring").ledgers(P, N, d)[0].words * beta / (P - 1) with N = n * P where P >= 2 and P <= 200 -->
# <!-- (19.6) \frac NP >= distributed.time_model.rows_that_hide("ring", link) with link = distributed.time_model.cluster("ndr"), beta = link.beta, gamma = link.gamma -->
#
# whatever $d$ and the number of heads are. Causal zigzag that moves whole blocks has half the flops for the same words: $\beta/\gamma$.
# <!-- 60 = 100 * distributed.time_model.REACHED -->
# <!-- "half the flops for the same words" if distributed.time_model.HIDES["ring, causal zigzag"] == 2 * distributed.time_model.HIDES["ring"] -->
# <!-- "no measurement" if "Nothing is measured" in distributed.time_model.__doc__ -->
#
# **Predict** (compute). An H200 that reaches 593 TFLOP/s, on NVLink with 450 GB/s, 2 bytes a word. From how many rows a rank on does the ring hide, to the nearest hundred?
# <!-- 2 = distributed.time_model.BYTES -->
# <!-- 593, 450 = distributed.time_model.REACHED * CHIPS[90].tensor_tflops, distributed.time_model.LINKS["nvlink4"].gbytes_per_s -->

# %% tags=["predict"]
predict("19.7", rows=1300)  #> predict("19.7", rows=...)

# %%
rows = time_model.rows_that_hide("ring", time_model.cluster("nvlink4"))
measured("19.7", rows=round(rows, -2))
for name, link in time_model.LINKS.items():
    there = time_model.cluster(name)
    rows = [time_model.rows_that_hide(what, there) for what in ("ring", "ring, causal zigzag")]
    print(f"{link.name:16}{link.gbytes_per_s:6.1f} GB/s: "
          f"ring {rows[0]:7,.0f} rows, causal zigzag {rows[1]:7,.0f}")

# %% [markdown]
# <details><summary>What came out</summary>
#
# About 1,300 rows on NVLink, where a rank has them soon; 12,000 on InfiniBand and 47,000 on Ethernet, where only a very long text gives them. Below that a ring waits for its words in every step; and far below it a schedule with fewer of them, Ulysses or a grid, is ahead although it hides nothing. The model leaves out latency here, shared links and kernels that start late: it orders schedules, and promises no time.
#
# </details>
# <!-- least = [distributed.time_model.rows_that_hide("ring", distributed.time_model.cluster(link)) for link in ("nvlink4", "ndr", "ethernet")] -->
# <!-- 1,300, 12,000, 47,000 = round(least[0], -2), round(least[1], -3), round(least[2], -3) -->
#
# ## 19.8 Real ranks, and PyTorch's
#
# The text of a rank does not change when the network is real. On `"gloo"` the ranks are threads of this process, and every word goes through `torch.distributed`; on `"processes"` each rank is a process of its own.

# %%
def once_more(engine):
    done = distributed.run(overlapped, 4, on=engine, Q=Q, K=K, V=V)
    print(f"{engine}: ledgers as counted: {done.ledgers == ahead.ledgers}, "
          f"values within 1e-12: {abs(done.O - exact.attention(Q, K, V)).max() < 1e-12}")


with_torch(once_more, "gloo")

# %%
with_torch(once_more, "processes")

# %% [markdown]
# PyTorch has *context parallelism* of its own, `torch.distributed.tensor.experimental.context_parallel`, a prototype whose interface may change. Its source, read in version 2.13.0, is now an open book to you:
#
# - It replaces `scaled_dot_product_attention` and cuts the buffers along the sequence. Where balance is on, the cut is zigzag, under the name head-tail; a balance without `is_causal` is refused.
# - A loop over $P$ steps merges $(o, L)$, in float32. Its default, `"allgather"`, gathers all keys and values once: the words of a ring, and the memory of none, $2Nd(P-1)/P$ held. `set_rotate_method("alltoall")` rotates the blocks as a ring does; each is asked for before the products of a step and waited for after them.
# - Under a causal mask it multiplies in each step just the half of two blocks' pairs that zigzag needs, and moves whole blocks: every rank receives $2Nd(P-1)/P$, where (19.3) is enough.
# - Backward, keys and values travel as forward, and their gradients in a ring of $P$ steps. Of lesson 18's two orders it has the one with columns, and its gradients take one step more.
# - This holds for the flash, memory-efficient and cuDNN kernels, on GPUs. On a CPU with gloo, as tried with two ranks, attention without a mask ran two all-gathers and no ring; with `is_causal` it ended in a `NotImplementedError`, for want of a sharding rule.
#
# So on GPUs one call gives you lesson 18's ring, and you can say in words what it receives too much. The next step is your own: a file with your rank's function, started by `torchrun --nproc-per-node 4 my_ranks.py`. In it `init_process_group("gloo")`, or `"nccl"` on GPUs, joins the processes; `get_rank()` is your `me.rank`, `batch_isend_irecv` your `shift`, and `all_gather` and `all_to_all` have the same names. Count on paper first, then let it move.
#
# ## 19.9 A last challenge: whose keys are they?
#
# A film of $F$ frames, each cut into $h$ tiles of the picture. The mask is one of tiles, and it is *repeated*: tile $a$ of any frame sees tile $b$ of every frame where `mask[a, b]`. On contiguous rows a rank has whole frames, and lacks all frames of the others: $F - F/P$ of $F$. But the mask says nothing of time. Give a rank some *positions* of the picture, in all frames, and it needs the keys of those positions that its queries see:
#
# $$ W_p = 2\,d\,F\,\Big|\bigcup_{a \in S_p} \{b : \text{mask}[a, b]\} \setminus S_p\Big| \quad\text{per row of a tile,} \qquad |S_p| = \frac hP . \tag{19.7} $$
# <!-- (19.7) not evaluated: sum over a set -->
#
# Which positions? Those that see the same keys. This is grouping of queries driven by their keys, and the groups do not lie side by side:

# %%
group = np.array([0, 1, 2, 0, 2, 1, 1, 0, 2, 2, 1, 0])      # of 12 positions, known to nobody
mask = group[:, None] == group
mask[:, [1, 4]] = True                                      # two positions that all look at
print("\n".join("".join("#" if x else "." for x in row) for row in mask))
for name, owner in (("side by side", np.arange(12) // 4), ("by their keys", group)):
    lacks = [int((mask[owner == p].any(axis=0) & (owner != p)).sum()) for p in range(3)]
    print(f"{name}: positions that the ranks lack: {lacks}")

# %% [markdown]
# There is a bound, in one line. A rank that answers a tile with $k$ keys in its row of the mask must have them all, and owns $h/P$ positions; so some rank lacks at least
#
# $$ \max_a \big|\{b : \text{mask}[a, b]\}\big| - \frac hP \tag{19.8} $$
# <!-- (19.8) not evaluated: sum over a set -->
#
# positions. Here it is $6 - 4 = 2$, and the second grouping attains it. In the exercise groups are less plain: a tile sees more than half of those of its group that not everybody sees, and one tile in each group sees them all.
#
# <!-- exercise 19E --> Group them: `my_groups(mask, P)` returns the owner of each of $h$ positions, $h/P$ to a rank, so that no rank lacks more than (19.8) says.

# %% [raw] name="about-19E"
# title = "Grouping positions by their keys"
# difficulty = 4
# importance = 3
# minutes = 14
# hints = [
#   "What do two positions of the same group have in common that two of different groups do not have?",
#   "Two positions of a group attend to more than half of it, so they share at least one key that not all positions attend to. Start with any position, and add the one that shares the most keys with the group.",
#   "Keep the ranks in an array that starts with -1. For each rank take the first unassigned position. The union of its group's rows of the mask gives the available keys. For every unassigned position, count how many of its keys are among them, and add the one with the largest count, until the group has h/P positions.",
# ]

# %% tags=["exercise"] name="ex-19E"
def my_groups(mask, P):
    """The rank of each position, from a mask (h, h) of who sees whom. P divides h."""
    ### BEGIN SOLUTION begin anywhere, add those that share most keys with the group
    h = len(mask)
    owner = np.full(h, -1)
    for rank in range(P):
        group = [np.argmax(owner < 0)]
        while len(group) < h // P:
            common = (mask & mask[group].any(axis=0)).sum(axis=1)
            common[group] = -1                      # taken already
            group.append(np.argmax(common))
        owner[group] = rank
    return owner
    ### END SOLUTION


# %% tags=["check"] name="check-19E"
check("19E", my_groups)

# %% [markdown]
# ## Misconceptions
#
# - **"A causal mask halves the words."** In zigzag the busiest rank receives what it would without a mask (19.2).
# - **"Equal tokens are equal work."** Work grows with the square of a text's length (19.3).
# - **"Equal work is equal memory."** The rank with many short texts has most of the tokens (19.3).
# - **"More keys, more words."** Partial results and states know nothing of $N$ (19.4, 19.5).
# - **"Overlap saves words."** It saves time, where there is enough to do meanwhile (19.7).
#
# ## Take-away
#
# - Deal rows out by the work they bring, and then count the words: the two are balanced by different layouts.
# - Send the smaller side: queries or keys, keys or states, all rows or the few that a mask asks for.
# - A layout can do what no schedule can: put the keys where their queries are.
#
# ## References
#
# - W. Brandon, A. Nrusimha, K. Qian, Z. Ankner, T. Jin, Z. Song, J. Ragan-Kelley: *Striped Attention: faster ring attention for causal transformers*, 2023, [arXiv 2311.09431](https://arxiv.org/abs/2311.09431).
# <!-- "faster" from https://arxiv.org/abs/2311.09431 -->
# - D. Li, R. Shao, A. Xie, E. P. Xing, X. Ma, I. Stoica, J. E. Gonzalez, H. Zhang: *DistFlashAttn: distributed memory-efficient attention for long-context LLMs training*, 2023, [arXiv 2310.03294](https://arxiv.org/abs/2310.03294).
# - B. Lin and others: *Infinite-LLM: efficient LLM service for long context with DistAttention and distributed KVCache*, 2024, [arXiv 2401.02669](https://arxiv.org/abs/2401.02669).
# - W. Sun and others: *LASP-2: rethinking sequence parallelism for linear attention and its hybrid*, 2025, [arXiv 2502.07563](https://arxiv.org/abs/2502.07563).
# - C. Chen and others: *Zeppelin: balancing variable-length workloads in data parallel large model training*, 2025, [arXiv 2509.21841](https://arxiv.org/abs/2509.21841). The abstract.
# - PyTorch 2.13.0, `torch/distributed/tensor/experimental/_context_parallel`.
#
# **What comes next.** <!-- next --> `iocourse count --list` also lists the schedules between ranks, and a new one takes one file.
