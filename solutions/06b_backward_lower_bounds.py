# %% [markdown]
# # 06b Lower bounds for the backward pass
#
# The two-pass backward of lesson 06 (B4, `split_backward` in code) has the constant 14. Can another schedule do better? If it moves only complete rows and $M$ is far above $d^2$, it cannot. If rows may be split, 12 is proved, and the values between 12 and 14 are open.
#
# **What you will learn**
#
# - to state what is proved about the backward pass, and what is open;
# - to turn the charge of one query-key pair into a lower bound, with the help of a search;
# - to count how much traffic a causal mask saves.
#
# **Prerequisites**: [lesson 06](06_backward.ipynb), and Theorem A (lesson 05) with its proof in section 5.9 ([05b](05b_lower_bound_proof.ipynb)); [symbols and terms](notation.md).
#
# **Minutes**: <!-- minutes without 6E -->.
#
# <!-- exercises -->

# %% tags=["setup"]
import numpy as np

from iocourse import bounds, exact, masks, run, schedules
from iocourse.course import attempt, challenge, check, explore, hint, measured, predict
from iocourse.machine import probabilities

# %% [markdown]
# ## 6.10 Two lower bounds and an open question
#
# A lower bound must hold for every schedule, so it must use a property that all schedules share. Each pair of a query and a key has seven rows: $q$, $do$, $dq$ and $k$, $v$, $dk$, $dv$. Some of them must be in fast memory at the same time. The bars show when, for one pair in the two-pass backward.

# %%
FUSED = ["load k", "load v", "dk enters", "dv enters", "load q", "load do", "dq enters",
         "dq leaves", "drop q", "drop do", "dk leaves", "dv leaves", "drop k", "drop v"]
TWO_PASS = ["load q", "load do", "dq enters", "load k", "load v", "drop k", "drop v",
            "dq leaves", "drop q", "drop do", "load k", "load v", "dk enters", "dv enters",
            "load q", "load do", "drop q", "drop do", "dk leaves", "dv leaves",
            "drop k", "drop v"]
explore.pair_residency(TWO_PASS, title="One pair in the two-pass backward")

# %% [markdown]
# The numbers at the bottom are the *charges*: each load of an input, and each entry or exit of an accumulator, is charged 1 per resident row of the other side. They add up to 14, the constant of this schedule. Here are two bounds, both derivations of this course; section 6.11 derives the second from charges:
#
# | | holds for | words |
# | --- | --- | --- |
# | Theorem C | all schedules that compute every pair | $\frac{12N^2d^2}{M + 4d^2} - (M + 4d^2)$ |
# | Theorem E | schedules that move only complete rows, at most $t$ words per step | $\frac{14N^2d^2}{M + t} - 3Nd$ |
#
# **Predict** (compute). $N = 32\,768$, $d = 64$, $M = 64d^2$. The two-pass backward moves $15.63\,N^2d^2/M$ words with $t = 2d$. What are the ratios of its traffic to the two bounds?
# <!-- 15.63 = schedules.split_backward.count(2**15, 64, 64**3).total * 64**3 / (2**15 * 64) ** 2 -->

# %% tags=["predict"]
predict("6.10", over_C=1.386, over_E=1.148)  #> predict("6.10", over_C=..., over_E=...)

# %%
d, M, over_C, over_E = 64, 64 * 64**2, {}, {}
for N in (2**13, 2**14, 2**15, 2**16, 2**17):
    words = schedules.split_backward.count(N, d, M).total
    for_all, which = bounds.lower_bound("backward", N, d, M)
    for_rows, rows_by = bounds.lower_bound("backward", N, d, M, whole_rows=True)
    over_C[N], over_E[N] = words / for_all, words / for_rows
    print(f"N = {N:7,}  two-pass {words:13,}  {which} {for_all:13,}  {rows_by} {for_rows:13,}  "
          f"ratios {over_C[N]:.3f}, {over_E[N]:.3f}")
measured("6.10", over_C=over_C[2**15], over_E=over_E[2**15])

# %% [markdown]
# <details><summary>Ratios to both bounds</summary>
#
# The ratios are 1.381 and 1.148 at $N = 32\,768$, and they fall to 1.285 and 1.048 at $N = 131\,072$. The difference to $14/12$ and to 1 has three parts: terms that do not grow with $N^2$, the $M + 4d^2$ in place of $M$ in Theorem C, and corrections of order $1/d$. (The program uses the exact form of Theorem C, (6.18), which is slightly larger than the formula of the table, and evaluates both bounds at $M + 4$.)
#
# </details>
#
# Now the exact statements. The compulsory traffic gives $W \ge 7Nd$ (bound `compulsory_backward`), because $Q$, $K$, $V$ and $dO$ are read and $dQ$, $dK$ and $dV$ are written; the row statistics are not counted.
#
# **12 for all schedules.** Theorem C states, here in the form of bound `C_line`,
#
# $$ W \ge \frac{12N^2d^2}{M + 4d^2} - (M + 4d^2) . \tag{6.11} $$
# <!-- (6.11) W >= bounds.theorem_C_line(N, d, M) rounded down -->
#
# It holds for every $M$, loop order and tile size, and for any recomputation. The class is as follows. $Q$, $K$, $V$ and $dO$ are distinct arrays, so that no word of one serves as a word of another. $s_{ij}$ and $dp_{ij}$ are computed from $d$ products each. $p_{ij}$ is any function of $s_{ij}$ and words of row $i$, or is given. $dv_{jc}$ sums the products $p_{ij}do_{ic}$. $dq_{ic}$ and $dk_{jc}$ sum products of $k_{jc}$ or $q_{ic}$ with a number that depends on the finished $s_{ij}$ and $dp_{ij}$. The theorem does not cover schedules that avoid the pairs, such as $(dO\,V^\top)K = dO\,(V^\top K)$ without softmax, or fast matrix multiplication.
#
# The idea is that of Theorem A. Divide the run into segments in which $T$ words are read; at most $R = M + T$ words are available in one segment. A complete column, with $K$ and $V$ and space for $dK$ and $dV$, has $4d$ words. A complete row has $3d$ words, and one row and one column form $3d$ products. So $R_r$ words of rows and $R_c$ words of columns form at most $R_rR_c/4d$ of the $3N^2d$ products. In addition, $n_s$ stored words of single pairs form at most $\sqrt{n_s}\,(R - n_s)/2$, by the Loomis–Whitney inequality of section 5.8 (05b). Since $R_r + R_c \le R - n_s$, the total is at most
#
# $$ \frac{(R-n_s)^2}{16d} + \frac{\sqrt{n_s}\,(R-n_s)}{2} \le \frac{(R + 4d^2)^2}{16d} . \tag{6.12} $$
# <!-- (6.12) not evaluated: step of a proof -->
#
# With $T = M + 4d^2$ this gives $12N^2d^2/(M+4d^2)^2$ segments, minus one that may be incomplete. Section 6.12 contains the full proof.
#
# **14 for complete rows.** The schedules of sections 6.5 to 6.8 move only complete rows of the seven arrays and keep no score after the step that computed it. For such schedules Theorem E states (bound `E`)
#
# $$ W \ge \frac{14N^2d^2}{M + t} - 3Nd . \tag{6.13} $$
# <!-- (6.13) W >= bounds.theorem_E(N, d, M, t) rounded down -->
#
# The class is as follows. Only complete rows of $Q$, $dO$, $dQ$, $K$, $V$, $dK$, $dV$, distinct arrays, are read, begun, merged, stored and dropped. The run can be divided into steps in which rows of at most $t$ words are loaded or begun (this $t$ is not that of (6.9)). Between steps, no score, weight or part of one is in fast memory, and none is ever moved. The loop order, several partial sums per row and recomputation are free. The two-pass backward streams one row of each of two arrays at a time, so $t = 2d$, and the constant 14 cannot be improved. Section 6.11 explains the idea and lets you run its main step. (Theorem E′, `bounds.theorem_E_prime`, also allows scores to be kept and moved. Its constant tends to 14 slowly: it is 10.2 at $M = 10^4d^2$.)
# <!-- 10.2 = bounds.theorem_E_prime(2**40, 64, 10**4 * 64**2) * 10**4 / 2**80 -->
#
# As $N$ and $M/d^2$ grow, the two-pass backward approaches the bound for complete rows (see the figure in section 6.9), and the bound for all schedules remains below, at 12. What is known in between?
#
# - *Counting reads alone cannot give more than 12 for large $M$.* The fused backward reads about $12$ and writes about $4$ times $N^2d^2/M$ words ($12.2$ and $4.0$ at $M = 64d^2$). A proof of more than 12 must therefore count written words, as the proof of Theorem E does.
# - *For $M$ far above $d^2$, a schedule below 14 must split rows.* (Closer to $d^2$, stored matrices can help: lesson 09.) It keeps some of a row's $d$ words and streams the others. We know neither such a schedule nor a proof that there is none. For split rows, $12 \le c \le 14$ is **open** (`open_backward` in the library's list).
#
# Published results are about growth rates. The paper on fine-grained I/O complexity below shows, for a gradient of this kind, that $N^2d^2/M$ is the correct rate for $M \ge d^2$ and long sequences, and that another schedule is better for smaller $M$. Lesson 07 covers that case.
#
# Sections 6.11, 6.12 and 6.13 do not depend on each other.
# <!-- b3 = schedules.fused_backward.count(2**22, 64, 64**3) -->
# <!-- 12.2, 4.0 = (words * 64**3 / (2**22 * 64) ** 2 for words in (b3.read, b3.written)) -->
# <!-- fused = schedules.fused_backward.cost(2**24, 64, **schedules.fused_backward.tiles(2**24, 64, 64 * 64**2)) -->
# <!-- 4 = sum(fused.writes.values()) * 64 / 2**48 -->
# <!-- over = lambda N, rows: schedules.split_backward.count(N, 64, 64**3).total / bounds.lower_bound("backward", N, 64, 64**3, whole_rows=rows)[0] -->
# <!-- 1.381, 1.148, 1.285, 1.048 = (over(N, rows) for N in (2**15, 2**17) for rows in (False, True)) -->

# %% [markdown]
# ## 6.11 Why complete rows need the constant 14
#
# What is the smallest charge of one query-key pair, for any loop order? Each of its seven rows is in fast memory or is not. For this pair, a run is therefore a *walk* through sets of rows: inputs are loaded and dropped, and accumulators enter and leave fast memory. The walk performs three tasks, and each task needs all of its rows at the same time: $q, do, k, v, dq$ for $dQ$, the same with $dk$ for $dK$, and $q, do, k, dv$ for $dV$.
#
# In one step at most $(M + t)/d$ rows are resident. Over all pairs, one event of a row is therefore charged at most $(M + t)/d$. By (5.9), each of the $3N$ accumulators has at most one entry more than loads, so a run that moves $W$ words has at most $(W + 3Nd)/d$ charged events. If every pair is charged at least $c$, then
#
# $$ c\,N^2 \le \frac{W + 3Nd}{d} \cdot \frac{M + t}{d} . \tag{6.14} $$
# <!-- (6.14) not evaluated: step of a proof -->
#
# <!-- exercise 6E --> Write a function that returns the charge of a walk. The events are strings such as "load q", "drop q", "dq enters" and "dq leaves". Inputs are loaded and dropped, accumulators enter and leave. The first line of the loop finds the row of the event. This is the charge of lesson 05, with three more rows and with exits. If you are stuck after four minutes, run `hint("6E")` in a new cell.

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
    """The charge of a pair: 1 for each row of the other side at each load, entry and exit.

    walk: a list of strings such as "load q", "dq enters", "dq leaves", "drop q".
    Returns an integer.
    """
    queries, keys = {"q", "do", "dq"}, {"k", "v", "dk", "dv"}
    resident, charge = set(), 0
    for event in walk:
        (row,) = set(event.split()) & (queries | keys)
        ### BEGIN SOLUTION charge the resident rows of the other side, then update the set
        other = keys if row in queries else queries
        if not event.startswith("drop"):
            charge += len(other & resident)
        resident ^= {row}  # add the row if it is absent, remove it if it is present
        ### END SOLUTION
    return charge


# %% tags=["check"] name="check-6E"
check("6E", my_charges)

# %% [markdown]
# A pair is charged 16 in the fused backward and 14 in the two-pass backward, which is the rule (6.9) for a single pair. Seven rows have only 128 sets. [Dijkstra's algorithm](https://en.wikipedia.org/wiki/Dijkstra%27s_algorithm) for shortest paths can therefore search all walks (`bounds/row_schedules.py`).
#
# **Predict** (guess). What is the smallest charge of a walk that performs the three tasks?
# <!-- 128 = 2**7 -->

# %% tags=["predict"]
predict("6.11", least=14)  #> predict("6.11", least=...)

# %%
whole = bounds.row_schedules
cost, walk = whole.min_pair_cost(whole.BACKWARD, whole.LOADS_AND_EXITS)
charges = attempt(lambda: [my_charges(one) for one in (FUSED, TWO_PASS, walk)])
print("fused, two-pass, cheapest:", charges)
measured("6.11", least=int(cost))
explore.pair_residency(walk, title="Cheapest walk of one pair")

# %% [markdown]
# <details><summary>The cheapest walk</summary>
#
# The smallest charge is 12, which is again the constant of Theorem C. In the figure, $dq$ leaves before $dk$ and $dv$ enter, and $q$, $do$ and $k$ *wait* in fast memory in between, so that nothing is loaded twice.
#
# </details>
#
# We may also charge an input half when it is loaded and half when it is dropped; (6.14) still holds. In both cases, the rows of a pair may wait for each other. This is cheap for one pair, but not all pairs can wait at the same time, because waiting rows use capacity.
#
# We therefore count the waiting. When $dk_j$ enters for the first time since the latest exit of $dq_i$, and $q_i$, $do_i$ and one of $k_j$, $v_j$ have been resident in between, we draw an *edge* from that exit to this entry. We do the same for $dv_j$. (The search below draws at most one edge for each interval in which these rows are together. So it may understate a charge, never overstate it.) To which event can an edge be charged? The charges so far count rows of the other side. Together with the rows on an event's *own* side, they are still at most $(M + t)/d$. Each edge has a number $a$ at its entry and a number $b$ at its exit, both counted from 1:
#
# - Number the edges of one entry by the time of their exits; this is $a$. At exit number $a$, $a$ queries are waiting with $q$ and $do$, so the exit's own side has at least $2a + 1$ rows.
# - Number the edges of one exit backwards by the time of their entries; this is $b$. At the entry that is number $b$ from the end, $b$ keys are waiting, so the entry's own side has at least $b + 1$ rows.
# - Assign an edge with $b \le a$ to its exit. The edges of one exit have different numbers $b$, so it gets at most $a$ of them, for the largest $a$ among them, and it has at least $2a + 1$ own rows. For $dk$ this is at most half as many edges as own rows; the same holds for $dv$. Assign every other edge to its entry, which gets fewer edges than it has own rows.
#
# For example, take two queries and two keys. First $dq_1$ and then $dq_2$ leave, $dk_1$ and then $dk_2$ enter, and all inputs remain resident. There are four edges for $dk$. The edge from $dq_1$ to $dk_1$ has $a = 1$ and $b = 2$, and is assigned to the entry of $dk_1$. The edge from $dq_1$ to $dk_2$ has $a = b = 1$, and is assigned to the exit of $dq_1$. Both edges from $dq_2$ have $a = 2$ and are assigned to its exit, where $q_1, do_1, q_2, do_2, dq_2$ are resident: 2 edges, 5 own rows.
#
# So no event gets more edges than it has own rows, and an edge may be charged 1, like a row. We run two more searches: one with half charges, and one with the charges of exercise 6E plus 1 for each edge. The proof uses only the second.

# %%
for name, charged in (("halves", whole.HALVES), ("edges", whole.WITH_EDGES)):
    print(f"backward, with {name}: {whole.min_pair_cost(whole.BACKWARD, charged).cost:g}")
cost, _ = whole.min_pair_cost(whole.FORWARD, whole.ENTRIES)
print(f"forward, loads and entries: {cost:g}")

# %% [markdown]
# With half charges the minimum is 13. With the charges of exercise 6E and edges every pair is charged at least 14, and (6.14) with $c = 14$ is (6.13). (Details: within a step, loads and entries count at its beginning, drops and exits at its end. A score is computed in one step from nothing, so it has all its rows. A row that is absent only within a step counts as resident. Of the intervals in which an accumulator is resident, only those count that add a useful product of column 1.) The forward pass needs no edges: loads and entries alone give 4, the constant of the FA-2 order with K/V buffer reuse. $\square$

# %% [markdown]
# ## 6.12 Proof of Theorem C
#
# The proof follows the steps of section 5.9 (05b).
#
# **Products and segments.** We count the products $p_{ij}do_{ic}$ for $dV$, $g_{ij}k_{jc}$ for $dQ$ and $g_{ij}q_{ic}$ for $dK$, where $g_{ij}$ is computed from the finished $s_{ij}$ and $dp_{ij}$. There are $3N^2d$ of them. Steps 1 to 3 of section 5.9 hold word for word with $3Nd$ accumulators instead of $Nd$. So $W \ge E$, where $E$ counts reads and entries of accumulators, and a segment of $T$ of these events uses $R = M + T$ different words. Let $n_s$ be the number of pairs of which a word ($s$, $p$, $dp$, $ds$, or a part of one) was in fast memory at the start of the segment or was read in it.
#
# **Products of these pairs.** The products for $dV$ have their projections among the $n_s$ pairs, $n_{dO}$ words of $dO$ and $n_{dV}$ accumulators of $dV$. The same holds for $dQ$ and $dK$. The Loomis–Whitney inequality bounds the three kinds together by
#
# $$ \sqrt{n_s}\,\bigl(\sqrt{n_{dO}\,n_{dV}} + \sqrt{n_K\,n_{dQ}} + \sqrt{n_Q\,n_{dK}}\bigr) \le \frac{\sqrt{n_s}\,(R - n_s)}{2} . \tag{6.15} $$
# <!-- (6.15) not evaluated: step of a proof -->

# %% [markdown]
# **Products of all other pairs.** For these pairs, $p_{ij}$, and with it $g_{ij}$, is computed from nothing within the segment. For $p_{ij}$, $q_i$ and $k_j$ must be complete; for $g_{ij}$, $do_i$ and $v_j$ as well. Consider the rows whose $q_i$ is complete: let $\alpha$ be the number of their words of $Q$, and $\gamma$ that of their words of $dO$. For those of them whose $do_i$ is complete too, let $\beta$ be the number of words of $dO$, and $\eta$ that of accumulators of $dQ$. Then $\eta \le \beta \le \gamma \le \alpha$, and $R_r = \alpha + \gamma + \eta$. Now take one column with $k_j$ complete, and with $\sigma d$ accumulators of $dV$ and $\tau d$ of $dK$, where $\sigma$ and $\tau$ are between 0 and 1.
#
# - *$v_j$ is not complete.* Only products for $dV$ are possible. Each of the $\sigma d$ accumulators is combined with at most $\alpha/d$ rows, and each word of $dO$ with one accumulator. So there are at most $\min(\sigma\alpha, \gamma)$ products, for $(1 + \sigma)d$ words. And
#
# $$ \min(\sigma\alpha, \gamma) \le \sqrt{\sigma\alpha\gamma} \le \frac{\sqrt\sigma\,(\alpha + \gamma)}{2} \le \frac{(1 + \sigma)\,R_r}{4} . \tag{6.16} $$
# <!-- (6.16) not evaluated: step of a proof -->
#
# - *$v_j$ is complete.* In addition, each accumulator of $dQ$ receives one product, and each of the $\tau d$ accumulators of $dK$ receives one for each of $\beta/d$ rows. The column has at least $(2 + \sigma + \tau)d$ words. We show
#
# $$ \min(\sigma\alpha, \gamma) + \eta + \tau\beta \le \frac{(2 + \sigma + \tau)\,R_r}{4} . \tag{6.17} $$
# <!-- (6.17) not evaluated: step of a proof -->
#
# Four times the right side minus four times the left side decreases as $\eta$ or $\beta$ grows. At the largest values, $\eta = \beta = \gamma$, it is $(2 + \sigma + \tau)\alpha + 2(\sigma - \tau)\gamma - 4\min(\sigma\alpha, \gamma)$. If $\tau \ge \sigma$, the minimum is at most $\sigma\alpha$, and $\gamma \le \alpha$ leaves at least $(2 - \sigma - \tau)\alpha \ge 0$. If $\tau < \sigma$, the minimum is at most $(\sigma\alpha + \gamma)/2$, which leaves $(2 - \sigma + \tau)\alpha - 2(1 - \sigma + \tau)\gamma \ge (\sigma - \tau)\alpha \ge 0$. A hundred thousand random draws agree:

# %%
draws = np.random.default_rng(8)
eta, beta, gamma, alpha = np.sort(draws.random((4, 10**5)), axis=0)
sigma, tau = draws.random((2, 10**5))
left = np.minimum(sigma * alpha, gamma) + eta + tau * beta
right = (2 + sigma + tau) * (alpha + gamma + eta) / 4
print(f"(6.17) holds in every draw: {(left <= right).all()}")

# %% [markdown]
# In both cases a column forms at most $R_r/4d$ products per word of the column. All columns together form at most $R_rR_c/4d \le (R - n_s)^2/16d$.
#
# **The sum.** With (6.15) this is the left side of (6.12). Write it as $(R - n_s)(R - n_s + 8d\sqrt{n_s})/16d$. A product of two numbers is at most the square of their mean, here $(R - n_s + 4d\sqrt{n_s})^2/16d$, and $4d\sqrt{n_s} - n_s$ is at most $4d^2$. That is (6.12).
#
# **The number of segments.** Let $F_b(R)$ be the left side of (6.12) for the $n_s$ at which it is largest. As in step 5 of section 5.9,
#
# $$ W \ge T\left\lfloor \frac{3N^2d}{F_b(M + T)} \right\rfloor . \tag{6.18} $$
# <!-- (6.18) W >= bounds.theorem_C(N, d, M, T) with Fb = lambda R: bounds.all_products_per_segment(R, d) -->
#
# This is Theorem C, bound `C`. With $T = M + 4d^2$, $F_b(M + T) \le (M + 4d^2)^2/4d$, and (6.11) follows. $\square$

# %% [markdown]
# **For a small fast memory**, also count, as in Theorem B′, the $N^2d$ products $do_{ic}v_{jc}$ of the first finished sum for each $dp_{ij}$. Until it is finished, such a sum is an accumulator. When it enters, its pair is among the $n_s$, and $N^2$ first entries have no store that they could be charged to. Give these products and those for $dV$ the weight $1/\sqrt2$ each, and those for $dQ$ and $dK$ the weight 1. In (6.15) only the term with $dO$ changes, to $\sqrt{n_{dO}}\,(\sqrt{n_{dV}} + \sqrt{n_V})/\sqrt2$. This is at most $\sqrt{n_{dO}(n_{dV} + n_V)}$, so the right side still holds, and the weight of the other pairs is no larger than before. Hence, as bound `C_small`,
#
# $$ W \ge T\left\lfloor \frac{(2 + \sqrt2)N^2d}{F_b(M + T)} \right\rfloor - N^2 . \tag{6.19} $$
# <!-- (6.19) W >= bounds.theorem_C_small(N, d, M, T) with Fb = lambda R: bounds.all_products_per_segment(R, d) -->
#
# With $T = 2M$ and $M$ far below $d^2$ this is about $(4 + 2\sqrt2)N^2d/\sqrt M$, a constant of 6.83. Counting the products of $S$ as well gives 9.2 (`bounds.theorem_C_prime`). The schedule `small_cache_backward` has 10, and the values in between are open.
# <!-- 6.83 = 4 + 2 * math.sqrt(2) -->
# <!-- 9.2 = 4 + 3 * math.sqrt(3) -->

# %% [markdown]
# ## 6.13 With a causal mask
#
# In a language model, query $i$ attends to the keys $0 \dots i$ only. The weight of a masked pair is 0, and so is its $ds_{ij}$. A tile above the diagonal contributes nothing to any gradient, so the schedule skips it and its traffic. With resident columns, block $j$ needs only the rows from its first column on. With resident rows, block $i$ needs only the columns up to its last row. A tile on the diagonal is computed completely, and `m.hide(s, i, j, mask)` sets the scores of masked pairs to $-\infty$ before `probabilities` turns them into zeros. The library's backward schedules accept the mask as `mask=masks.Causal(N)`.
#
# The last block of a loop is often shorter than the others. With a causal mask the library puts the short block first in a pass with resident rows, where it needs the fewest keys.
#
# **Predict** (guess). $N = 256$, $d = 64$, $M = 16\,384$. Which fraction of its traffic does the two-pass backward move if the mask is causal?

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
    print(f"O and L from a forward pass with {label}: gradients correct: {right}")

# %% [markdown]
# Both passes need the mask. $O$ and $L$ must come from a forward pass that used it, because $L$ is a sum over the visible pairs only. Now the traffic:

# %%
def causal_part(name, N, d, M):
    """Words with a causal mask, divided by words without, for the same tiles."""
    schedule = schedules.get(name)
    tiles = schedule.tiles(N, d, M)
    causal = schedule.cost(N, d, **tiles, mask=masks.Causal(N))
    return causal.total / schedule.cost(N, d, **tiles).total


for N in (256, 1024, 4096, 16384):
    parts = [f"{name} {causal_part(name, N, 64, 16384):.3f}"
             for name in ("standard_backward", "fused_backward", "split_backward")]
    print(f"N = {N:6,}  " + "  ".join(parts))
measured("6.13", part=causal_part("split_backward", 256, 64, 16384))

# %% [markdown]
# <details><summary>Traffic of the two-pass backward with a causal mask</summary>
#
# It moves 0.661 of its words at $N = 256$, with four query blocks and five key blocks. It is more than half, because a tile on the diagonal is processed completely and $8Nd$ words are moved in any case. The short query block is the first of its pass, where it needs only a few keys; as the last block it would need all of them. The fraction is 0.518 at $N = 4096$ and 0.505 at $N = 16\,384$, about half. The standard backward pass saves nothing, because it stores its matrices with their zeros.
#
# </details>
# <!-- both = schedules.split_backward -->
# <!-- tiles = both.tiles(256, 64, 16384) -->
# <!-- 0.661 = both.cost(256, 64, **tiles, mask=masks.Causal(256)).total / both.cost(256, 64, **tiles).total -->

# %% [markdown]
# ## 6.14 An open challenge
#
# For split rows, the constant of the backward pass is between 12, which is proved, and 14, which is achieved. A schedule below 14, or a proof that there is none, would be a new result.
#
# `challenge` runs your schedule on the machine. It first tests it like a check, on random numbers and ragged shapes. Then it counts a dry run at a million tokens, and compares the traffic with the best schedule of the library and with both theorems. There is no budget, and there are no hints. (Loop with `m.blocks`; otherwise the dry run takes too long.) A better schedule has to keep some of a row's $d$ words and stream the others; section 6.11 shows the limit of complete rows. The challenge cannot detect a schedule that behaves differently for long sequences, so a better result would also be read by a person.
#
# Start with your schedule of exercise 6B, to see the result that you have to beat:

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
    ### BEGIN SOLUTION your code of exercise 6B
    for j in m.blocks(N, Bc):  # resident: k, v, dk, dv (Bc, d)
        with m.load(K, j) as k, m.load(V, j) as v, m.zeros(j, d) as dk, m.zeros(j, d) as dv:
            for i in m.blocks(N, Br):  # streamed: q (Br, d), L_i and D_i (Br,), s (Br, Bc)
                with m.load(Q, i) as q, m.load(LSE, i) as L_i, m.load(D, i) as D_i:
                    q *= d**-0.5
                    with q @ k.T as s:
                        probabilities(s, L_i)
                        with m.load(dO, i) as do:  # (Br, d)
                            dv.add_matmul(s.T, do)
                            s.multiply_by_matmul(do, v.T, less=D_i)
                        dk.add_matmul(s.T, q)
                        s *= d**-0.5
                        with m.zeros(i, d) if j.first else m.load(dQ, i) as dq:  # do's buffer
                            dq.add_matmul(s, k)
                            m.store(dq, dQ, i)
            m.store(dk, dK, j)
            m.store(dv, dV, j)
    return dQ, dK, dV
    ### END SOLUTION


challenge("backward", my_fused_backward, Br=1, Bc=507)

# %% [markdown]
# The fused backward moves 1.1290 times the traffic of the two-pass backward, the best schedule that we know. Your best result is stored with your progress.
# <!-- 1.1290 as output -->

# %% [markdown]
# ## Misconceptions
#
# - **"A lower bound of 12 and a schedule of 14 mean that the proof is weak."** The schedule may be the weak part. For complete rows the question is settled, for split rows it is open (6.10).
# - **"The cheapest walk for one pair is the cheapest for all pairs."** One pair may wait and is charged 12. Waiting rows use capacity, and with the capacity counted every pair is charged 14 (6.11).
# - **"A causal mask halves the traffic."** This is nearly true for a schedule that skips tiles, for long sequences: 0.518 at $N = 4096$, but 0.661 at 256. The standard backward pass saves nothing (6.13).
#
# ## Take-away
#
# - No schedule of the class has a constant below 12. For $M$ far above $d^2$, no schedule that moves only complete rows has a constant below 14. For split rows, the values in between are open.
# - The smallest charge of one pair, found by a search over 128 sets, gives a bound for all schedules that move only complete rows.
# - With a causal mask, count the tiles that are not skipped, and the words that are moved in any case.
#
# **In the literature's words**: these are lower bounds on the I/O complexity of attention's backward pass. Dividing a run into segments and bounding the products of each one is the method of Irony, Toledo and Tiskin.
#
# ## References
#
# - X. Li, Y. Liang, Z. Shi, Z. Song, Y. Zhou: *On fine-grained I/O complexity of attention backward passes*, 2024, [arXiv 2410.09397](https://arxiv.org/abs/2410.09397), first called *Fine-grained Attention I/O Complexity: Comprehensive Analysis for Backward Passes*. Upper and lower bounds up to constant factors, for the gradient with respect to one weight matrix.
# - D. Irony, S. Toledo, A. Tiskin: *Communication lower bounds for distributed-memory matrix multiplication*, 2004. Segments and the Loomis–Whitney inequality, as in the proof of Theorem C.
#
# **What comes next.** <!-- next -->
