# %% [markdown]
# # 06b How little the backward pass can move
#
# Lesson 06 ended at 14: B4, in code `split_backward`, two sweeps in which no partial result travels. This second evening asks whether anybody can do better. For those who move whole rows 14 is the end, once $M$ is far above $d^2$. For rows cut into pieces 12 is proved, and what lies between is open. Both proofs are here, one of them with a search that you can run. Then a causal mask, and at the end the open question as a challenge.
#
# **What you will learn**
#
# - to say what is proved about the backward pass, for whom 14 is the end, and what is open;
# - to turn what one pair must pay into a bound on words, and to let a search find what it pays;
# - to count what a causal mask saves, and where it saves nothing.
#
# **Prerequisites**: [lesson 06](06_backward.ipynb), and Theorem A (lesson 05) with its proof in section 5.9 ([05b](05b_lower_bound_proof.ipynb)). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 6E -->.
#
# <!-- exercises -->
#
# Nothing later needs this evening. Sections 6.11, 6.12 and 6.13 need 6.10 and not one another.

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, exact, explore, masks, run, schedules
from iocourse.course import attempt, challenge, check, hint, measured, predict
from iocourse.machine import probabilities

# %% [markdown]
# ## 6.10 How little is possible, and what is open
#
# We want to know whether the next order could bring 10. A bound must hold for schedules that nobody has written yet, so it must speak of something that all of them do. Here is one such thing. Each pair of a query and a key has seven rows, $q$, $do$, $dq$ on one side and $k$, $v$, $dk$, $dv$ on the other, and at certain moments some of them must be in fast memory together. The picture shows when they are there in B4, for one pair.

# %%
B3 = ["load k", "load v", "dk enters", "dv enters", "load q", "load do", "dq enters",
      "dq leaves", "drop q", "drop do", "dk leaves", "dv leaves", "drop k", "drop v"]
B4 = ["load q", "load do", "dq enters", "load k", "load v", "drop k", "drop v", "dq leaves",
      "drop q", "drop do", "load k", "load v", "dk enters", "dv enters", "load q", "load do",
      "drop q", "drop do", "dk leaves", "dv leaves", "drop k", "drop v"]
explore.pair_residency(B4, title="One pair in B4")

# %% [markdown]
# First the query's rows stay and the pair's key comes by, for $dq$; later the key's rows stay and the query comes by, for $dk$ and $dv$. Below stands what each event pays, one for each row of the other side that it finds. Together that is 14, the constant of B4. Section 6.11 asks whether a pair can get by with less, and what that would cost the others. First what is proved, and for whom.
#
# The compulsory traffic gives $W \ge 7Nd$: $Q$, $K$, $V$, $dO$ in, $dQ$, $dK$, $dV$ out, with the row statistics as a gift (bound `compulsory_backward`). Beyond that there are two theorems, both derivations of this course.
#
# **Twelve for everybody.** Theorem C, here as bound `C_line`:
#
# $$ W \ge \frac{12N^2d^2}{M + 4d^2} - (M + 4d^2) . \tag{6.11} $$
#
# It holds for every $M$, order and tile, and everything may be computed again. The class: $Q$, $K$, $V$ and $dO$ are distinct arrays, no word of one serves as a word of another; $s_{ij}$ and $dp_{ij}$ are made from $d$ products each; $p_{ij}$ is any function of $s_{ij}$ and words of row $i$, or is handed over; $dv_{jc}$ sums the products $p_{ij}do_{ic}$; $dq_{ic}$ and $dk_{jc}$ sum products of $k_{jc}$ or $q_{ic}$ with a number that depends on the finished $s_{ij}$ and $dp_{ij}$. Not covered are orders that avoid the pairs, such as $(dO\,V^\top)K = dO\,(V^\top K)$ with the softmax left out, and fast matrix multiplication.
#
# The idea is that of Theorem A. Cut the run into segments in which $T$ words are read; at most $R = M + T$ words are at hand in one. A column that is complete, with $K$ and $V$ and room for $dK$ and $dV$, takes $4d$ words; a complete row takes $3d$, and the two form $3d$ products. So $R_r$ words of rows and $R_c$ of columns form at most $R_rR_c/4d$ of all $3N^2d$, and $n_s$ stored words of single pairs add at most $\sqrt{n_s}\,(R - n_s)/2$, by the Loomis-Whitney inequality of section 5.8 (05b). Since $R_r + R_c \le R - n_s$, together at most
#
# $$ \frac{(R-n_s)^2}{16d} + \frac{\sqrt{n_s}\,(R-n_s)}{2} \le \frac{(R + 4d^2)^2}{16d} . \tag{6.12} $$
#
# With $T = M + 4d^2$ that makes $12N^2d^2/(M+4d^2)^2$ segments, less one that may be incomplete. The proof in full is section 6.12.
#
# **Fourteen for whole rows.** B1 to B4 move rows of the seven arrays as wholes, and no score outlives the step that made it. For such schedules there is Theorem E, here as bound `E`:
#
# $$ W \ge \frac{14N^2d^2}{M + t} - 3Nd . \tag{6.13} $$
#
# The class: rows of $Q$, $dO$, $dQ$, $K$, $V$, $dK$, $dV$, distinct arrays, are read, begun, merged, stored and dropped as wholes. The run can be cut into steps in which at most $t$ words of rows come in (another $t$ than that of (6.9)); between steps no score, weight or part of one is in fast memory, and none is ever moved. Any order, several partial sums of a row, and everything computed again at will. B4 lets one row pass at a time, so $t = 2d$: 14 is exact. Section 6.11 has the idea, and lets you run its heart. (Theorem E′, `bounds.theorem_E_prime`, lets scores be kept and moved. It tends to 14 too, slowly: 10.2 where $M = 10^4d^2$.)
#
# **Predict** (compute). $N = 32\,768$, $d = 64$, $M = 64d^2$. How many times each of the two bounds does B4 move?
# <!-- 10.2 = bounds.theorem_E_prime(2**40, 64, 10**4 * 64**2) * 10**4 / 2**80 -->

# %% tags=["predict"]
predict("6.10", over_C=14 / 12, over_E=1)  #> predict("6.10", over_C=..., over_E=...)

# %%
d, M, over_C, over_E = 64, 64 * 64**2, {}, {}
for N in (2**13, 2**14, 2**15, 2**16, 2**17):
    words = schedules.split_backward.count(N, d, M).total
    for_all, which = bounds.lower_bound("backward", N, d, M)
    for_rows, rows_by = bounds.lower_bound("backward", N, d, M, whole_rows=True)
    over_C[N], over_E[N] = words / for_all, words / for_rows
    print(f"N = {N:7,}  B4 {words:13,}  {which} {for_all:13,}  {rows_by} {for_rows:13,}  "
          f"ratios {over_C[N]:.3f}, {over_E[N]:.3f}")
measured("6.10", over_C=over_C[2**15], over_E=over_E[2**15])

# %% [markdown]
# <details><summary>B4 beside both bounds</summary>
#
# 1.381 and 1.148 at $N = 32\,768$, falling to 1.285 and 1.048 at $N = 131\,072$. Most of what lies above $14/12$ and above 1 does not grow with $N^2$.
#
# </details>
#
# As $N$ and $M/d^2$ grow, B4 and the bound for whole rows meet, as the picture of section 6.9 shows, and the bound for all stays below at 12. And in between?
#
# - *12 is the best that counting reads can give.* B3 reads $12.2$ and writes $4.0$ times $N^2d^2/M$ words. So a proof of more than 12 must count written words, and that of Theorem E does.
# - *Who goes below 14, with $M$ far above $d^2$, cuts rows.* (Nearer to $d^2$ stored matrices pay: lesson 09.) A schedule may keep some of a row's $d$ words and let the others travel. None below 14 is known here, and no proof that there is none: for cut rows $12 \le c \le 14$ is **open** (`open_backward` in the library's list).
#
# Published results are about growth: the paper on fine-grained I/O complexity below shows, for a gradient of this kind, that $N^2d^2/M$ is right for $M \ge d^2$ and long sequences, and that for a smaller $M$ another schedule is better. Lesson 07 looks at that end.
# <!-- b3 = schedules.fused_backward.count(2**22, 64, 64**3) -->
# <!-- 12.2, 4.0 = (words * 64**3 / (2**22 * 64) ** 2 for words in (b3.read, b3.written)) -->

# %% [markdown]
# ## 6.11 Why whole rows pay 14
#
# What must a single pair of a query and a key pay, in any order? Each of its seven rows is in fast memory or is not. So for this pair a run is a *walk*: inputs are loaded and dropped, accumulators enter and leave. On its way it does three tasks, each with all its rows there at once: for $dQ$ the rows $q, do, k, v, dq$, for $dK$ the same with $dk$, for $dV$ the rows $q, do, k, dv$.
#
# Every load, entry and exit is *charged* one for each of the pair's rows that is there on the other side. In a step at most $(M + t)/d$ rows are there, so over all pairs a row that comes or goes is charged at most that often. And each of these events moves $d$ words, but for one entry of each of the $3N$ accumulators, which begins at zero. If every pair is charged at least $c$, then
#
# $$ c\,N^2 \le \frac{W + 3Nd}{d} \cdot \frac{M + t}{d} . \tag{6.14} $$
#
# <!-- exercise 6E --> Compute what a walk is charged. Its events are texts such as "load q", "drop q", "dq enters" and "dq leaves": an input is loaded and dropped, an accumulator enters and leaves, and the first line of the loop finds the row. These are the meetings of lesson 05, with three rows more and with exits. If you are stuck after four minutes, run `hint("6E")` in a cell of your own.

# %% [raw] name="about-6E"
# title = "The charge of a pair"
# difficulty = 2
# importance = 2
# minutes = 8
# hints = [
#   "Keep a set of the resident rows. How does an event change it, and when do you look at it?",
#   "An event of a query row counts the resident key rows, and the other way round. One kind of event counts nothing.",
#   "For each event except a drop, add the number of resident rows of the other side. Then add the row of the event to the set if it was absent, or remove it if it was present.",
# ]

# %% tags=["exercise"] name="ex-6E"
def my_charges(walk):
    """What a pair is charged: loads, entries and exits pay for the rows of the other side.

    walk: a list of texts such as "load q", "dq enters", "dq leaves", "drop q".
    Returns a whole number.
    """
    queries, keys = {"q", "do", "dq"}, {"k", "v", "dk", "dv"}
    there, paid = set(), 0
    for event in walk:
        (row,) = set(event.split()) & (queries | keys)
        ### BEGIN SOLUTION what the event finds on the other side, and what it changes
        other = keys if row in queries else queries
        if not event.startswith("drop"):
            paid += len(other & there)
        there ^= {row}  # it comes if it was not there, and goes if it was
        ### END SOLUTION
    return paid


# %% tags=["check"] name="check-6E"
check("6E", my_charges)

# %% [markdown]
# In B3 a pair is charged 16, in B4 14: the charges are the rule (6.9), pair by pair. Seven rows have only 128 sets, and Dijkstra's search for the shortest path goes through them all (`bounds/row_schedules.py`).
#
# **Predict** (guess). What is the cheapest of all walks charged that do the three tasks?
# <!-- 128 = 2**7 -->

# %% tags=["predict"]
predict("6.11", least=14)  #> predict("6.11", least=...)

# %%
whole = bounds.row_schedules
cost, walk = whole.min_pair_cost(whole.BACKWARD, whole.LOADS_AND_EXITS)
print("B3, B4 and the cheapest:", attempt(lambda: [my_charges(one) for one in (B3, B4, walk)]))
measured("6.11", least=int(cost))
explore.pair_residency(walk, title="One pair, as cheap as can be")

# %% [markdown]
# <details><summary>The cheapest walk</summary>
#
# 12, the constant of Theorem C once more. The picture shows how: $dq$ leaves before $dk$ and $dv$ enter, and $q$, $do$, $k$ and $v$ *wait* in between, so that nothing is loaded twice.
#
# </details>
#
# An input may also pay half of its charge as it comes and half as it goes, which (6.14) allows too. Either way, rows of a pair may wait for one another. For one pair that is cheap, but not all pairs can wait at once: who waits takes room.
#
# Therefore, when $dk_j$ enters for the first time since $dq_i$ left, and $q_i$, $do_i$ and one of $k_j$, $v_j$ have stayed in between, an *edge* is drawn from that exit to this entry. The same for $dv_j$. Who pays for edges? Charges count rows of the other side. With the rows on an event's *own* side they are still at most $(M + t)/d$. Each edge has one number at its entry, $a$, and one at its exit, $b$, both counted from 1:
#
# - Number the edges to one entry by the time of their exits; that is $a$. At exit number $a$, as many queries wait with $q$ and $do$: its own side has at least $2a + 1$ rows.
# - Number the edges from one exit backwards by the time of their entries; that is $b$. At the entry that is number $b$ from the end, as many keys wait: its own side has at least $b + 1$ rows.
# - An edge with $b \le a$ is put down to its exit. The exit gets at most half as many of these as it has own rows, for $dk$, and as many for $dv$. Any other edge is put down to its entry, which gets fewer than it has own rows.
#
# For example, two queries and two keys: $dq_1$ and then $dq_2$ leave, $dk_1$ and then $dk_2$ enter, and all inputs stay. There are four edges for $dk$. The one from $dq_1$ to $dk_1$ has $a = 1$, $b = 2$, and is put down to the entry of $dk_1$. The one from $dq_1$ to $dk_2$ has $a = b = 1$, so it goes to the exit of $dq_1$. Both edges from $dq_2$ have $a = 2$ and go to its exit, where $q_1, do_1, q_2, do_2, dq_2$ are there: 2 edges, 5 own rows.
#
# So there are no more edges than own rows, and an edge may be charged one, like a row. The search again, with half charges and with edges:

# %%
for told, charged in (("halves", whole.HALVES), ("edges", whole.WITH_EDGES)):
    print(f"backward, with {told}: {whole.min_pair_cost(whole.BACKWARD, charged).cost:g}")
cost, _ = whole.min_pair_cost(whole.FORWARD, whole.ENTRIES)
print(f"forward, loads and entries: {cost:g}")

# %% [markdown]
# With halves it is 13. With edges every pair is charged at least 14, and (6.14) with $c = 14$ is (6.13). (Small print: within a step, what comes counts at its beginning and what goes at its end, so a score, made there from nothing, has all its rows; a row that goes and returns within a step has stayed; of an accumulator's stays only those count that add a useful product of column 1.) The forward pass needs no edges: 4, the constant of F3, with no more than loads and entries. $\square$

# %% [markdown]
# ## 6.12 The whole proof of Theorem C
#
# It stands on section 5.9 (05b), whose steps it follows.
#
# **Products and segments.** We count the products $p_{ij}do_{ic}$ for $dV$, $g_{ij}k_{jc}$ for $dQ$ and $g_{ij}q_{ic}$ for $dK$, where $g_{ij}$ is made from the finished $s_{ij}$ and $dp_{ij}$. There are $3N^2d$. Steps 1 to 3 of section 5.9 hold word for word with $3Nd$ accumulators in place of $Nd$. So $W \ge E$, where $E$ counts reads and entries of accumulators, and a segment of $T$ of these events works with $R = M + T$ different words. Let $n_s$ be the number of pairs of which a word ($s$, $p$, $dp$, $ds$, or a part of one) was there at the segment's start or was read.
#
# **Products of these pairs.** Those for $dV$ have their shadows among the $n_s$ pairs, $n_{dO}$ words of $dO$ and $n_{dV}$ accumulators of $dV$; those for $dQ$ and $dK$ likewise. Loomis and Whitney bound the three kinds by
#
# $$ \sqrt{n_s}\,\bigl(\sqrt{n_{dO}\,n_{dV}} + \sqrt{n_K\,n_{dQ}} + \sqrt{n_Q\,n_{dK}}\bigr) \le \frac{\sqrt{n_s}\,(R - n_s)}{2} . \tag{6.15} $$

# %% [markdown]
# **Products of all other pairs.** There $p_{ij}$, and $g_{ij}$ with it, is made from nothing within the segment. For $p_{ij}$, $q_i$ and $k_j$ must be whole; for $g_{ij}$, $do_i$ and $v_j$ as well. Look at the rows with $q_i$ whole: let $\alpha$ be their words of $Q$ and $\gamma$ their words of $dO$. In those of them where $do_i$ is whole too, let $\beta$ be the words of $dO$ and $\eta$ the accumulators of $dQ$. Then $\eta \le \beta \le \gamma \le \alpha$, and $R_r = \alpha + \gamma + \eta$. Now take one column with $k_j$ whole, $\sigma d$ accumulators of $dV$ and $\tau d$ of $dK$, where $\sigma$ and $\tau$ are between 0 and 1.
#
# - *$v_j$ is not whole.* Only products for $dV$ are possible. Each of $\sigma d$ accumulators meets at most $\alpha/d$ rows, and each word of $dO$ meets one accumulator: at most $\min(\sigma\alpha, \gamma)$ products, with $(1 + \sigma)d$ words. And
#
# $$ \min(\sigma\alpha, \gamma) \le \sqrt{\sigma\alpha\gamma} \le \frac{\sqrt\sigma\,(\alpha + \gamma)}{2} \le \frac{(1 + \sigma)\,R_r}{4} . \tag{6.16} $$
#
# - *$v_j$ is whole.* In addition each accumulator of $dQ$ takes in one product, and each of $\tau d$ accumulators of $dK$ one for each of $\beta/d$ rows. The column has at least $(2 + \sigma + \tau)d$ words. We show
#
# $$ \min(\sigma\alpha, \gamma) + \eta + \tau\beta \le \frac{(2 + \sigma + \tau)\,R_r}{4} . \tag{6.17} $$
#
# Four times the right side less four times the left falls as $\eta$ or $\beta$ grows. With the largest values, $\eta = \beta = \gamma$, it is $(2 + \sigma + \tau)\alpha + 2(\sigma - \tau)\gamma - 4\min(\sigma\alpha, \gamma)$. If $\tau \ge \sigma$, the minimum is at most $\sigma\alpha$, and $\gamma \le \alpha$ leaves at least $(2 - \sigma - \tau)\alpha \ge 0$. If $\tau < \sigma$, the minimum is at most $(\sigma\alpha + \gamma)/2$, which leaves $(2 - \sigma + \tau)\alpha - 2(1 - \sigma + \tau)\gamma \ge (\sigma - \tau)\alpha \ge 0$. A hundred thousand draws agree:

# %%
draws = np.random.default_rng(8)
eta, beta, gamma, alpha = np.sort(draws.random((4, 10**5)), axis=0)
sigma, tau = draws.random((2, 10**5))
left = np.minimum(sigma * alpha, gamma) + eta + tau * beta
right = (2 + sigma + tau) * (alpha + gamma + eta) / 4
print(f"(6.17) holds in every draw: {(left <= right).all()}")

# %% [markdown]
# Either way a column makes at most $R_r/4d$ products for each of its words. All columns together make at most $R_rR_c/4d \le (R - n_s)^2/16d$.
#
# **The sum.** With (6.15) this is the left side of (6.12). Write it as $(R - n_s)(R - n_s + 8d\sqrt{n_s})/16d$. A product of two numbers is at most the square of their mean, $(R - n_s + 4d\sqrt{n_s})^2/16d$, and $4d\sqrt{n_s} - n_s$ is at most $4d^2$. That is (6.12).
#
# **How many segments.** Let $F_b(R)$ be the left side of (6.12) for the $n_s$ where it is largest. As in step 5 of section 5.9,
#
# $$ W \ge T\left\lfloor \frac{3N^2d}{F_b(M + T)} \right\rfloor . \tag{6.18} $$
#
# This is Theorem C, bound `C`. With $T = M + 4d^2$, $F_b(M + T) \le (M + 4d^2)^2/4d$, and (6.11) follows. $\square$

# %% [markdown]
# **For a small fast memory** count also, as in Theorem B′, the $N^2d$ products $do_{ic}v_{jc}$ of the first finished sum for each $dp_{ij}$. Such a sum is an accumulator until then. Where it enters, its pair is among the $n_s$, and $N^2$ first entries have no store to pay for them. Let these products and those for $dV$ weigh $1/\sqrt2$ each, those for $dQ$ and $dK$ 1. In (6.15) only the term with $dO$ changes, to $\sqrt{n_{dO}}\,(\sqrt{n_{dV}} + \sqrt{n_V})/\sqrt2$. This is at most $\sqrt{n_{dO}(n_{dV} + n_V)}$, so the right side stays, and other pairs weigh no more than before. Hence, as bound `C_small`,
#
# $$ W \ge T\left\lfloor \frac{(2 + \sqrt2)N^2d}{F_b(M + T)} \right\rfloor - N^2 . \tag{6.19} $$
#
# With $T = 2M$ and $M$ far below $d^2$ this is about $(4 + 2\sqrt2)N^2d/\sqrt M$, a constant of 6.83. Whoever counts the products of $S$ too gets further, to 9.2 (`bounds.theorem_C_prime`); `small_cache_backward` has 10, and in between it is open.
# <!-- 6.83 = 4 + 2 * math.sqrt(2) -->
# <!-- 9.2 = 4 + 3 * math.sqrt(3) -->

# %% [markdown]
# ## 6.13 With a causal mask
#
# In a language model query $i$ sees the keys $0 \dots i$ only. The weight of a hidden pair is 0, and so is its $ds_{ij}$: a tile above the diagonal contributes nothing to any gradient. So we pass it over, and its words with it. With columns staying, block $j$ meets only the rows from its first column on; with rows staying, block $i$ meets only the columns up to its last row. On the diagonal a tile is computed whole, and `m.hide(s, i, j, mask)` sets the scores of hidden pairs to $-\infty$ before `probabilities` turns them into zeros. The library's backward schedules take the mask as `mask=masks.Causal(N)`.
#
# **Predict** (guess). $N = 256$, $d = 64$, $M = 16\,384$. Which part of its words does B4 move when the mask is causal?

# %% tags=["predict"]
predict("6.13", part=0.5)  #> predict("6.13", part=...)

# %%
Q, K, V, dO = np.random.default_rng(6).standard_normal((4, 64, 8))
want = exact.attention_backward(Q, K, V, dO, causal=True)
for label, used in (("no mask", None), ("a causal mask", masks.Causal(64))):
    leaves = schedules.saved_for_backward(Q, K, V, used)
    given = {"Q": Q, "K": K, "V": V, "O": leaves["O"], "dO": dO, "LSE": leaves["LSE"]}
    causal = run(schedules.split_backward, M=1100, **given, Br1=32, Bc1=1, Br2=1, Bc2=32,
                 mask=masks.Causal(64))
    right = np.allclose(causal.outputs, want, rtol=0, atol=1e-9)
    print(f"O and L from a forward pass with {label}: gradients right: {right}")

# %% [markdown]
# A mask belongs to both passes: $O$ and $L$ have to come from a forward pass that used it, for $L$ is a sum over the visible keys alone. Now the words:

# %%
def causal_part(name, N, d, M):
    """Words with a causal mask, divided by words without, for the same tiles."""
    schedule = schedules.get(name)
    tiles = schedule.tiles(N, d, M)
    seen = schedule.cost(N, d, **tiles, mask=masks.Causal(N))
    return seen.total / schedule.cost(N, d, **tiles).total


for N in (256, 1024, 4096, 16384):
    parts = [f"{name} {causal_part(name + '_backward', N, 64, 16384):.3f}"
             for name in ("standard", "fused", "split")]
    print(f"N = {N:6,}  " + "  ".join(parts))
measured("6.13", part=causal_part("split_backward", 256, 64, 16384))

# %% [markdown]
# <details><summary>What B4 moves under a causal mask</summary>
#
# 0.661 of the words at $N = 256$, with four blocks of queries and five of keys, because a tile on the diagonal counts whole and because $8Nd$ words come anyway. At $N = 4096$ it is 0.518, and at 16,384 0.505: about half. B0 saves nothing: its matrices are stored with their zeros.
#
# </details>

# %% [markdown]
# ## 6.14 An open challenge
#
# For rows that are cut, the constant of the backward pass lies between 12, which is proved, and 14, which is known. Whoever finds an order below 14, or a proof that there is none, knows something that nobody here does.
#
# The machine is the referee. `challenge` tries a schedule as a check does, on fresh numbers and ragged shapes; then it counts a dry run at a million tokens, and says how the words stand to the best schedule of the library and to both theorems. There is no budget, and there are no hints. (Loop with `m.blocks`, or the dry run takes for ever.) A winner will keep some of a row's $d$ words while the others travel, and section 6.11 tells what whole rows cannot do. What a schedule does that asks how long the sequence is, no referee can know: a winner would be read as well.
#
# Begin with yours of exercise 6B, so that you see what there is to beat:

# %%
def my_fused_backward(m, Q, K, V, O, dO, LSE, *, Br, Bc):
    """dQ, dK, dV: your schedule of exercise 6B, copied here."""
    N, d = Q.shape
    D, dQ = m.new("D", (N,)), m.new("dQ", (N, d))
    dK, dV = m.new("dK", (N, d)), m.new("dV", (N, d))
    for i in m.blocks(N, Br):
        with m.load(O, i) as o, m.load(dO, i) as do, m.zeros(i) as D_i:
            D_i.add_row_dots(do, o)
            m.store(D_i, D, i)
    ### BEGIN SOLUTION the body of yours, as in exercise 6B
    for j in m.blocks(N, Bc):  # stays: k, v, dk, dv (Bc, d)
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            for i in m.blocks(N, Br):  # passes by: q (Br, d), L_i and D_i (Br,), s (Br, Bc)
                with m.load(Q, i) as q, m.load(LSE, i) as L_i, m.load(D, i) as D_i:
                    q *= d**-0.5
                    with q @ k.T as s:
                        probabilities(s, L_i)
                        with m.load(dO, i) as do:  # (Br, d)
                            dv.add_matmul(s.T, do)
                            s.multiply_by_matmul(do, v.T, less=D_i)
                        dk.add_matmul(s.T, q)
                        s *= d**-0.5
                        with m.zeros(i, d) if j.first else m.load(dQ, i) as dq:  # where do was
                            dq.add_matmul(s, k)
                            m.store(dq, dQ, i)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV
    ### END SOLUTION


challenge("backward", my_fused_backward, Br=1, Bc=507)

# %% [markdown]
# B3 moves 1.1290 times as many words as B4, the best we know. Your fewest words are kept with your progress.

# %% [markdown]
# ## Misconceptions
#
# - **"A lower bound of 12 and a schedule of 14 mean that the proof is weak."** Or the schedule, and nobody knows which. For whole rows it is settled (6.10).
# - **"The cheapest way for one pair is the cheapest for all."** One pair may wait for 12; who waits takes room, and with the room counted all pay 14 (6.11).
# - **"A causal mask halves the traffic."** Of a schedule that passes tiles over, nearly, for long sequences: 0.518 at $N = 4096$, 0.661 at 256. Of B0 it saves nothing (6.13).
#
# ## Take-away
#
# - No order of the class has a constant below 12, and far above $d^2$ none that moves whole rows has one below 14. For rows that are cut, what lies between is open.
# - What one pair must pay, found by a search over 128 sets, becomes a bound for all schedules of whole rows at once.
# - With a mask, count the tiles that are seen, and what comes anyway.
#
# ## References
#
# - X. Li, Y. Liang, Z. Shi, Z. Song, Y. Zhou: *On fine-grained I/O complexity of attention backward passes*, 2024, [arXiv 2410.09397](https://arxiv.org/abs/2410.09397), first called *Fine-grained Attention I/O Complexity: Comprehensive Analysis for Backward Passes*. Upper and lower bounds up to constant factors, for the gradient with respect to one weight matrix.
# - D. Irony, S. Toledo, A. Tiskin: *Communication lower bounds for distributed-memory matrix multiplication*, 2004. Segments and Loomis-Whitney, as in the proof of Theorem C.
#
# **What comes next.** Lesson 07 goes to the other end, $M < d^2$, and meets the backward pass again inside a larger gradient.
