# %% [markdown]
# # 16 The gradient in almost linear time
#
# Lesson 15 put a polynomial in the place of the exponential, and attention became two products with a small state that does not grow with $N$. Training needs the gradient as well. The paper that this lesson follows, 2408.13233, shows that where the entries are bounded it too can be approximated in almost linear time, for any loss and a constant number of layers. We read its decomposition on a page and come to a product that is too wide to be built. There is a way not to build it, and a better one, which differentiates the features instead of the matrices. In the end a backward pass reads its inputs once, writes its results once, and moves one small state besides.
#
# **What you will learn**
#
# - to write the gradient in the paper's letters, for any loss, and to say which of its matrices matter;
# - what the product of two matrices of low rank, entry by entry, costs, and how it is used without being formed;
# - to pull a gradient back through monomials, one multiplication after the other;
# - to say why a gradient loses one degree, and what the lost degree costs;
# - to compute $dQ$, $dK$ and $dV$ in two sweeps, for $7Nd$ words and a state;
# - to do attention under a causal mask tile by tile, without a look at what comes later.
#
# **Prerequisites**: lesson 06 (the gradients and the D trick) and lesson 15 (monomials, the state $T$). Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes without 16A -->.
#
# <!-- exercises -->
#
# Sections 16.5 and 16.6 stand by themselves: if time runs short, read them another day. Section 16.6 needs torch and is passed over without it; everything else is NumPy. First a picture of where the lesson ends:

# %% tags=["setup"]
import importlib.util
import tracemalloc
from math import comb, factorial

import numpy as np

from iocourse import exact, lowrank, run, schedules
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.doctor import install_command
from iocourse.lowrank import paper_gradient
from iocourse.machine import Features
from iocourse.monomials import coordinates, features, features_vjp, plan

# %%
explore.lowrank_passes(512, 8, 2, pass_="backward")

# %% [markdown]
# In one scale, as in lesson 15. $T$ brings the queries what the keys have to say; a second state of the same 405 words, $U$, brings the keys the answer. Nothing of size $N \times N$ is formed, forward or back.
#
# Throughout the lesson a score is $s_{ij} = q_i \cdot k_j$, without a scale: where there is one, it is multiplied into $Q$ beforehand, and $dQ$ is multiplied by it afterwards.
#
# ## 16.1 The paper's gradient, on a page
#
# The paper writes attention of the tokens $X$, one a row, with a matrix $W$ for $W_QW_K^\top$:
#
# $$ f = \mathrm{softmax}(XWX^\top), \qquad h = XW_V, \qquad O = fh . \tag{16.1} $$
# <!-- (16.1) not evaluated: entries of arrays -->
#
# The loss comes after $O$, and behind it may be anything: an activation, ten more layers, a sum over words. All that attention has to know of it is $G = dL/dO$, an array of $N$ rows like $O$. This is what "for any loss" means, and it is how many layers work too: $G$ is what the layer above hands down. From there the paper goes back by $q = Gh^\top$, $p_1 = f \circ q$, $p_2 = \mathrm{diag}(p_1\mathbf 1)\,f$ and $p = p_1 - p_2$. Nothing here is new to you: $f$ is $P$, $h$ is $V$, $G$ is $dO$, $q$ is $dP$ and $p$ is $dS$ of lesson 06. The row sums of $p_1$ are the $D_i$ of section 6.4, which the forward pass has already made, and with them $p$ is one product:
#
# $$ \delta_i = (p_1\mathbf 1)_i = \sum_c G_{ic}\,O_{ic}, \qquad p = f \circ (Gh^\top - \delta\mathbf 1^\top) = f \circ \bigl([G, -\delta]\,[h, \mathbf 1]^\top\bigr) . \tag{16.2} $$
# <!-- (16.2) not evaluated: entries of arrays -->
#
# With $Q = XW$, $K = X$ and $V = h$ we have $dQ = pK$, $dK = p^\top Q$, $dV = f^\top G$, and everything else follows. $X$ stands in three places of (16.1), so $dX$ has three terms:
#
# $$ dW = X^\top dQ, \qquad dX = dQ\,W^\top + dK + dV\,W_V^\top, \qquad dW_V = X^\top dV . \tag{16.3} $$
# <!-- (16.3) not evaluated: derivative -->
#
# Is it right for any loss? Take $L = \frac13\sum O^3$, with slope $O^2$, move all inputs a little in random directions, and look at how $L$ changes:

# %%
def as_the_paper_writes_it(X, W, W_V, slope):
    """dX, dW, dW_V of a loss of O whose gradient is slope(O). X (N, d), W and W_V (d, d)."""
    f = exact.softmax(X @ W @ X.T)                 # (N, N)
    h = X @ W_V                                    # (N, d)
    G = slope(f @ h)                               # (N, d)
    p1 = f * (G @ h.T)                             # (N, N)
    p = p1 - p1.sum(axis=1, keepdims=True) * f     # (N, N)
    dX = p @ X @ W.T + p.T @ X @ W + f.T @ G @ W_V.T
    return dX, X.T @ p @ X, X.T @ f.T @ G


def loss(X, W, W_V):
    O = exact.softmax(X @ W @ X.T) @ X @ W_V
    return (O**3).sum() / 3


rng = np.random.default_rng(16)
N, d = 512, 8
X = rng.standard_normal((N, d))
W, W_V = rng.standard_normal((2, d, d)) / d
found = as_the_paper_writes_it(X, W, W_V, np.square)
moves = [rng.standard_normal(given.shape) for given in (X, W, W_V)]
ahead, behind = ([x + t * move for x, move in zip((X, W, W_V), moves, strict=True)]
                 for t in (1e-5, -1e-5))
change = (loss(*ahead) - loss(*behind)) / 2e-5
promised = sum((got * move).sum() for got, move in zip(found, moves, strict=True))
print(f"the loss changes by {change:.6f} a unit, the gradient says {promised:.6f}")

# %% [markdown]
# The same number twice. The formulas are exact, and quadratic in $N$. Now put an $f$ of low rank into (16.2). With the Taylor polynomial $e_g(s) = \sum_{l \le g} s^l/l!$ a query has the $r = \binom{d+g}{g}$ monomials up to degree $g$ for features, $\phi_a(q) = q^a$, and a key has the same with the weights $w_a = 1/a!$, $\psi_a(k) = w_a k^a$. Then
#
# $$ e_g(q_i\cdot k_j) = \phi(q_i)\cdot\psi(k_j), \qquad \tilde f = \Phi\Psi^\top \quad\text{with}\quad \Phi = \mathrm{diag}(1/\mathrm{den})\,\phi(Q), \quad \Psi = \psi(K) , \tag{16.4} $$
# <!-- (16.4) not evaluated: entries of arrays -->
#
# where $\mathrm{den}_i = \sum_j e_g(q_i \cdot k_j)$, and the state of the forward pass is $T = \Psi^\top[V, \mathbf 1]$, with $r$ rows and $d + 1$ columns. (The polynomials of lesson 15b have other weights, and the row-adaptive one multiplies $\phi(Q)$ by factors of its own, constants here; the library adds the derivatives of these factors and of the mean key.) With $G_e = [G, -\delta]$ and $V_e = [V, \mathbf 1]$ an entry of $\tilde p = \tilde f \circ (G_eV_e^\top)$ is a sum over $a$ times a sum over $c$. Multiplied out it is a sum over pairs $(a, c)$, and so $\tilde p$ is again a product:
#
# $$ \tilde p_{ij} = \sum_{a,c} \bigl(\Phi_{ia}G_{ic}\bigr)\bigl(\Psi_{ja}V_{jc}\bigr), \qquad \tilde p = (\Phi \oslash G_e)\,(\Psi \oslash V_e)^\top, \qquad \text{rank at most } r\,(d+1) . \tag{16.5} $$
# <!-- (16.5) not evaluated: entries of arrays -->
#
# Row $i$ of $\Phi \oslash G_e$ is the Kronecker product of rows $i$ of $\Phi$ and $G_e$; the whole is called the *row-wise Kronecker product*, also Khatri-Rao product. This is the heart of the paper: $\tilde p$ has low rank, so $\tilde pK$ is two thin products, and for a given $r$ the gradient takes time in proportion to $N$. Thin, but not very: at $d = 12$, $g = 3$ each factor has 5,915 columns, and with $N = 40\,960$ and four bytes a number takes 969 MB. Summed in another order, over $a$ first and over $c$ last, it need not be built:
#
# $$ \tilde p\,x = \sum_{c} \mathrm{diag}(G_{\cdot c})\;\Phi\,\bigl(\Psi^\top\,\mathrm{diag}(V_{\cdot c})\,x\bigr) , \tag{16.6} $$
# <!-- (16.6) not evaluated: entries of arrays -->
#
# $d + 1$ terms, none wider than $\Phi$ and $\Psi$. This is called *associativity*. In code: `plan(d, g)` of the library lists the monomials up to degree $g$ and how one is made from another, and `features` makes them for all rows. Features come first, $(r, N)$, so that one feature of all tokens is one row.
# <!-- 5,915, 969 = 13 * monomials.rank_of(12, 3), 40_960 * 5_915 * 4 / 10**6 -->

# %%
def taylor_weights(plan_g):
    """1/a! of each monomial, (r, 1)."""
    return (plan_g.multiplicities / [factorial(l) for l in plan_g.degrees])[:, None]


def with_ones(x):
    """[x, 1]."""
    return np.hstack([x, np.ones((len(x), 1))])


def forward(Q, K, V, plan_g):
    """O (N, d), den (N,) and the state T (r, d + 1), for a plan of the monomials."""
    T = taylor_weights(plan_g) * (features(K, plan_g) @ with_ones(V))   # features are (r, N)
    both = features(Q, plan_g).T @ T                                    # (N, d + 1)
    return both[:, :-1] / both[:, -1:], both[:, -1], T


def factors(Q, K, V, G, plan_g):
    """Phi (N, r), Psi (N, r), Ge (N, d + 1), Ve (N, d + 1) of (16.5)."""
    O, den, _ = forward(Q, K, V, plan_g)
    Phi = features(Q, plan_g).T / den[:, None]
    Psi = (taylor_weights(plan_g) * features(K, plan_g)).T
    return Phi, Psi, np.hstack([G, -(G * O).sum(axis=1, keepdims=True)]), with_ones(V)


def row_wise_kronecker(A, B):
    """Row i is the Kronecker product of rows i of A (N, a) and B (N, b): (N, a b)."""
    return (A[:, :, None] * B[:, None, :]).reshape(len(A), -1)


# entries with standard deviation 1/√d: scores have about 0.35
Q, K, V, G = rng.standard_normal((4, N, d))
Q, K = Q / np.sqrt(d), K / np.sqrt(d)
plan2 = plan(d, 2)  # all monomials of degree up to 2
Phi, Psi, Ge, Ve = factors(Q, K, V, G, plan2)
left, right = row_wise_kronecker(Phi, Ge), row_wise_kronecker(Psi, Ve)
print(f"{plan2.rank} features, {left.shape[1]} columns")
print("(16.5) is right:", np.allclose((Phi @ Psi.T) * (Ge @ Ve.T), left @ right.T, atol=1e-15))
by_kronecker = left @ (right.T @ K), right @ (left.T @ Q), Psi @ (Phi.T @ G)
want = exact.attention_backward(Q, K, V, G, scale=1.0)


def errors(found, right):
    """Relative errors in the Frobenius norm."""
    pairs = zip(found, right, strict=True)
    return [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in pairs]


off = errors(by_kronecker, want)
print("relative errors of dQ, dK, dV:", *[f"{error:.2%}" for error in off])

# %% [markdown]
# 405 columns, and the gradient of softmax attention is met to 4.09, 4.28 and 2.83 percent with a polynomial of degree 2. No $N \times N$ matrix was needed for that. But $\Phi \oslash G_e$ and $\Psi \oslash V_e$ together have $810\,N$ words: at $N = 512$ that is more than one $N \times N$ matrix.
# <!-- 810 = 2 * 405 -->
# <!-- 4.09, 4.28, 2.83 = 100 * 4.09e-02, 100 * 4.28e-02, 100 * 2.83e-02 -->
#
# <!-- exercise 16A --> Optional: section 16.2 has a better way. You get $\Phi$ and $\Psi$ of some $f = \Phi\Psi^\top$ whose rows sum to 1, and $G$ and $h$. Multiply $p$ of (16.2) by a matrix $x$, as (16.6) does. Neither an $N \times N$ matrix nor a row-wise Kronecker product may be built: the check measures how much memory is held, and counts the arithmetic for $N$ and for $2N$ tokens. Compute with the arrays as they come, for what `np.asarray` makes of them is not counted. If you are stuck after six minutes, run `hint("16A")` in a cell of your own.

# %% [raw] name="about-16A"
# title = "p times a matrix"
# difficulty = 3
# importance = 5
# minutes = 12
# hints = [
#   "p is f ∘ (G hᵀ - δ 1ᵀ). What is δ if f h is computed first, and how is f h computed without f?",
#   "Append -δ to G as one more column and ones to h. Then p is f ∘ (Ge Veᵀ): a sum over c of f with its rows scaled by column c of Ge and its columns scaled by column c of Ve.",
#   "For a matrix with scaled rows and columns times x: scale the rows of x by the column of Ve, multiply by Psiᵀ, then by Phi, then scale the rows by the column of Ge. Sum over the columns.",
# ]

# %% tags=["exercise"] name="ex-16A"
def my_p_times(Phi, Psi, G, h, x):
    """p x (N, m), for p = f∘(G hᵀ) - diag(rowsum(f∘(G hᵀ))) f with f = Phi Psiᵀ.

    Phi: (N, r). Psi: (Nk, r). G: (N, dv). h: (Nk, dv). x: (Nk, m).
    """
    ### BEGIN SOLUTION delta from O, then (16.6)
    O = Phi @ (Psi.T @ h)                                          # (N, dv)
    Ge = np.hstack([G, -(G * O).sum(axis=1, keepdims=True)])       # (N, dv + 1)
    Ve = np.hstack([h, np.ones((len(h), 1))])                      # (Nk, dv + 1)
    found = np.zeros((len(G), x.shape[1]))
    for g, v in zip(Ge.T, Ve.T, strict=True):
        found += g[:, None] * (Phi @ (Psi.T @ (v[:, None] * x)))   # (N, m)
    return found
    ### END SOLUTION

# %% tags=["check"] name="check-16A"
check("16A", my_p_times)

# %% tags=["nbval-ignore-output"]
def held(function, *arguments):
    """The most words that NumPy holds at once during a call."""
    tracemalloc.start()
    try:
        function(*arguments)
        return tracemalloc.get_traced_memory()[1] / 8
    finally:
        tracemalloc.stop()


mine = attempt(my_p_times, Phi, Psi, G, V, K)
same = attempt(np.allclose, mine, by_kronecker[0], atol=1e-12)
print("as with the Kronecker products:", same)
wide = held(lambda: row_wise_kronecker(Phi, Ge) @ (row_wise_kronecker(Psi, Ve).T @ K))
narrow = attempt(held, my_p_times, Phi, Psi, G, V, K)
print(f"words held: {wide / N:,.0f} a token with the products, {narrow / N:,.0f} without")

# %% [markdown]
# 1,215 words a token with the products, and with the reference solution 59 without. The arithmetic has stayed: leaving the scalings aside, both take $2rd(d+1)$ multiply-adds a token for $\tilde pK$ and as many for $\tilde p^\top Q$. At $d = 12$ and $g = 3$ both together are 283,920 a token. It can be done with less.
# <!-- 283,920 = 2 * 2 * 455 * 12 * (12 + 1) -->
#
# ## 16.2 Differentiate the features
#
# So far we took the gradient of softmax attention and put a polynomial into it. Now the other way round: put the polynomial into the *forward pass* and take the gradient of that. A query's output is
#
# $$ [N_i, \mathrm{den}_i] = \phi(q_i)^\top T, \qquad O_i = N_i/\mathrm{den}_i , \tag{16.7} $$
# <!-- (16.7) not evaluated: entries of arrays -->
#
# $N_i$ a row of $d$ numerators. When they change, $O_i$ changes by $(dN_i - O_i\,d\mathrm{den}_i)/\mathrm{den}_i$, and the loss by $G_i \cdot dO_i$, so
#
# $$ \frac{\partial L}{\partial [N_i, \mathrm{den}_i]} = \frac{1}{\mathrm{den}_i}\,[\,G_i,\; -G_i\cdot O_i\,] = \frac{1}{\mathrm{den}_i}[\,G_i, -\delta_i\,] . \tag{16.8} $$
# <!-- (16.8) not evaluated: derivative -->
#
# There is $\delta$ again, without having been looked for. From here on let $G_e$ have the $1/\mathrm{den}_i$ in it. The rest is the rule for products. A query meets $T$; $T$ is a sum over keys; so there is a second state, which the keys meet:
#
# $$ d\phi_i = T\,G_{e,i}, \qquad U = \sum_i \phi(q_i)\,G_{e,i}^\top, \qquad d\psi_j = U\,V_{e,j}, \qquad [dV_j, \cdot\,] = \psi(k_j)^\top U . \tag{16.9} $$
# <!-- (16.9) not evaluated: derivative -->
#
# $U$ has the shape of $T$, and the same making: features of one side times what is to be handed to the other. (The dot stands for a last column that nobody asks for.) Last, $d\phi$ and $d\psi$ are to be *pulled back* to the row that the features were made of: multiplied by the transposed Jacobian $J_\phi$, a matrix of $r \times d$ slopes. That would be $rd$ multiplications a token, but few of the slopes are not zero: a feature has at most $g$ of them. For $d = 2$ and $g = 2$ the features are $1, x, y, x^2, xy, y^2$, and
#
# $$ dx = d\phi_x + 2x\,d\phi_{xx} + y\,d\phi_{xy}, \qquad dy = d\phi_y + x\,d\phi_{xy} + 2y\,d\phi_{yy} . \tag{16.10} $$
# <!-- (16.10) not evaluated: derivative -->
#
# Lesson 15 made each feature with a single multiplication, a coordinate times a feature that is there already. These are the steps of a plan, and they can be gone through backwards, with two multiplications each. Here are those of this small case:

# %%
small = plan(2, 2)
for step in small.steps:
    count = step.last - step.first
    print(f"features {step.first} to {step.last - 1} = coordinate {step.axis} "
          f"times features {step.source} to {step.source + count - 1}")

# %% [markdown]
# Features 1 and 2 are $x$ and $y$ themselves; no step makes them. Features 3 and 4 are $x$ times those two, so $x^2$ and $xy$. Feature 5 is $y$ times feature 2, so $y^2$.
#
# <!-- exercise 16B --> Go through the steps backwards and collect the gradient of the coordinates. Everything is an array over the tokens, and features come first, $(r, N)$. You may overwrite the gradient you are given. One pass is enough, however many coordinates there are, and the check counts your operations. If you are stuck after five minutes, run `hint("16B")` in a cell of your own.

# %% [raw] name="about-16B"
# title = "Backpropagation through the features"
# difficulty = 3
# importance = 5
# minutes = 10
# hints = [
#   "A step computes features as products of two factors. What is the gradient of a product with respect to its factors?",
#   "Each block of features gives two gradients: to its coordinate, the gradient times the source features, summed over the block; to the source features, the gradient times the coordinate.",
#   "Go through the steps from the last to the first, so that the gradient of a feature is complete before it is used. The gradients of features 1 to d at the end belong to the coordinates.",
# ]

# %% tags=["exercise"] name="ex-16B"
def my_pull_back(df, f, x, plan):
    """The gradient of x (N, d) from that of its features.

    df: the gradient of the features (r, N).
    f: the features (r, N), f[0] = 1, f[1 : d + 1] = x.T.
    plan.steps, in order: f[step.first : step.last] = x[:, step.axis] * f[step.source : ...], as
    many as there are from first to last.
    """
    ### BEGIN SOLUTION the last step first: each product hands its gradient to both factors
    dx = np.zeros_like(x)                                     # (N, d)
    for step in reversed(plan.steps):
        source = slice(step.source, step.source + step.last - step.first)
        up = df[step.first : step.last]
        dx[:, step.axis] += (up * f[source]).sum(axis=0)
        df[source] += up * x[:, step.axis]
    return dx + df[1 : x.shape[1] + 1].T
    ### END SOLUTION

# %% tags=["check"] name="check-16B"
check("16B", my_pull_back)

# %% [markdown]
# The whole gradient is now a dozen lines. `features_vjp` is the library's twin of your function:

# %%
def jacobian_form(Q, K, V, G, plan_g, found, features_vjp=features_vjp):
    """dQ, dK, dV of Σ G∘O from found = (O, den, T): (16.8), (16.9) and two pull-backs."""
    O, den, T = found
    Ge = np.hstack([G, -(G * O).sum(axis=1, keepdims=True)]) / den[:, None]   # (N, d + 1)
    w, phi, monomials = taylor_weights(plan_g), features(Q, plan_g), features(K, plan_g)
    U = phi @ Ge                                                              # (r, d + 1)
    dQ = features_vjp(T @ Ge.T, phi, Q, plan_g)                                  # (N, d)
    dK = features_vjp(w * (U @ with_ones(V).T), monomials, K, plan_g)            # (N, d)
    return dQ, dK, ((w * monomials).T @ U)[:, :-1]


found = jacobian_form(Q, K, V, G, plan2, forward(Q, K, V, plan2))
mine = attempt(jacobian_form, Q, K, V, G, plan2, forward(Q, K, V, plan2), my_pull_back)
print("with your pull-back the same:", attempt(np.allclose, mine[0], found[0], atol=1e-12))
moves = rng.standard_normal((3, N, d))
ahead, behind = (forward(Q + t * moves[0], K + t * moves[1], V + t * moves[2], plan2)[0]
                 for t in (1e-5, -1e-5))
change = ((ahead - behind) * G).sum() / 2e-5
print(f"the sum of G∘O changes by {change:.5f} a unit, the gradient says "
      f"{sum((a * b).sum() for a, b in zip(found, moves, strict=True)):.5f}")
print("relative errors against softmax:", *[f"{error:.2%}" for error in errors(found, want)])

# %% [markdown]
# It is the exact gradient of what the forward pass computes, and it is less close to the gradient of softmax attention than what we had: 12.36 percent for $dQ$ where there were 4.09. Only $dV$ is the same. Before we ask why, what do the forms cost?
# <!-- 12.36 as output -->
# <!-- 4.09 = 100 * 4.09e-02 -->
#
# **Predict** (guess). $d = 12$ and $g = 3$, so $r = 455$. The associative form (16.6) takes 294,840 multiply-adds a token for $dQ$, $dK$ and $dV$ together, without the making of the features. How many does the form that differentiates the features take?
# <!-- 294,840 = 4 * 455 * 12 * (12 + 1) + 2 * 455 * 12 -->

# %% tags=["predict"]
predict("16.2", multiply_adds=100_000)  #> predict("16.2", multiply_adds=...)

# %%
def multiply_adds(d, r):
    """A token's, of (16.5), (16.6) and (16.9)."""
    return {"row-wise Kronecker": 2 * r * (d + 1) * (2 * d + 1) + 2 * r * d,
            "associative": 4 * r * d * (d + 1) + 2 * r * d,
            "Jacobian": 3 * r * (d + 1) + r * d + 4 * r}


for form, count in multiply_adds(12, 455).items():
    print(f"{form:18} {count:9,} multiply-adds a token")
measured("16.2", multiply_adds=multiply_adds(12, 455)["Jacobian"])

# %% [markdown]
# <details><summary>Multiply-adds of three forms</summary>
#
# 25,025: nearly twelve times fewer at the same rank.
#
# </details>
#
# | form | multiply-adds a token | widest array |
# | --- | --- | --- |
# | row-wise Kronecker (16.5) | $2r(d+1)(2d + 1) + 2rd$ | $N \times r(d+1)$, twice |
# | associative (16.6) | $4rd(d+1) + 2rd$ | $N \times r$, twice |
# | Jacobian (16.9) | $3r(d+1) + rd + 4r$ | $N \times r$, or a tile of it |
#
# The first line has $r(d+1)$ multiplications for each of the two products to be built. In the third, $U$, $d\phi$ and $d\psi$ take $r(d+1)$ each, $dV$ takes $rd$, and each of the two pull-backs two multiplications for each feature. And the features in the third need to exist for a tile of tokens only, since the states are sums over tokens.
#
# ## 16.3 Why a gradient loses one degree
#
# Why was it less close? A derivative of a polynomial of degree $g$ has degree $g - 1$. For Taylor's polynomial, $e_g' = e_{g-1}$ exactly. In the softmax gradient $dS = P \circ (dP - D)$ the weight in front comes from the derivative of $\exp$, which is $\exp$ again. The paper's form puts $e_g$ in its place. The Jacobian form has $e_g' = e_{g-1}$ there:
#
# $$ d s_{ij} = \frac{e_{g-1}(s_{ij})}{\mathrm{den}_i}\;(G_i \cdot V_j - \delta_i) . \tag{16.11} $$
# <!-- (16.11) not evaluated: derivative -->
#
# The output keeps $e_g$, and so does $dV$, whose formula has no derivative in it.
#
# **Predict** (guess). Which degree of the Jacobian form gives the errors for $dQ$ and $dK$ that the paper's form has at degree 2?

# %% tags=["predict"]
predict("16.3", degree=3)  #> predict("16.3", degree=...)

# %%
exact_O = exact.attention(Q, K, V, scale=1.0)
table = {}
for g in range(1, 6):
    plan_g = plan(d, g)
    done = forward(Q, K, V, plan_g)
    phi, psi, ge, ve = factors(Q, K, V, G, plan_g)
    weights = (phi @ psi.T) * (ge @ ve.T)   # (N, N), the paper's p: short, and fine at N = 512
    jacobian = jacobian_form(Q, K, V, G, plan_g, done)
    table[g] = [*errors([done[0]], [exact_O]), *errors(jacobian, want),
                *errors([weights @ K, weights.T @ Q], want[:2])]
print(" g features        O   Jacobian: dQ       dK       dV   paper: dQ       dK")
for g, (o, q, k, v, paper_q, paper_k) in table.items():
    print(f"{g:2} {plan(d, g).rank:8} {o:.2e}       {q:.2e} {k:.2e} {v:.2e}    "
          f"{paper_q:.2e} {paper_k:.2e}")
same = min(table, key=lambda g: abs(table[g][1] / table[2][4] - 1))
measured("16.3", degree=same)


columns = {"O": 0, "dQ, Jacobian form": 1, "dQ, paper's form": 4}
lines = {name: [(g, row[at]) for g, row in table.items()] for name, at in columns.items()}
explore.curve(lines, title="Errors by degree, N = 512, d = 8",
              xlabel="degree g", ylabel="relative error",
              log=(False, True))

# %% [markdown]
# <details><summary>Which degree has the same errors</summary>
#
# Degree 3: 4.13e-02 and 4.30e-02 against 4.09e-02 and 4.28e-02. With each degree an error is divided by about three, and so a gradient that is one degree behind has about three times the error: in the picture the squares are the triangles, moved by one degree to the right. $dV$ stays with $O$.
#
# </details>
#
# That the errors nearly agree is no accident. Look at one term of $\tilde p K$: a feature of key $j$ times a coordinate of the same key, $\phi_a(k_j)\,k_{jb}$. This is again a monomial, of one degree more. So $\tilde pK$ needs no $r(d+1)$ columns: all that it sums over keys are monomials of degree up to $g + 1$ times $[V, \mathbf 1]$, and these sums are the state $T$ of degree $g+1$. What the monomials are multiplied with is right too, since $e_{g+1}' = e_g$. The two forms are one:
# <!-- 1 as definition -->
#
# > the paper's $dQ$ and $dK$ at degree $g$ are the Jacobian form's with the states of degree $g + 1$, where $O$ and $\mathrm{den}$ are those of degree $g$.
#
# Here is the second, from the functions above, beside the library's row-wise Kronecker product:

# %%
plan3 = plan(d, 3)
O, den, _ = forward(Q, K, V, plan2)         # degree 2
_, _, T3 = forward(Q, K, V, plan3)          # the state of degree 3
found = jacobian_form(Q, K, V, G, plan3, (O, den, T3))
head = lowrank.approximation.Approximation(plan2, lowrank.polynomial("taylor", 2))
library = paper_gradient.kronecker(Q, K, V, G, head)
pairs = zip(found[:2], library[:2], strict=True)
difference = max(abs(a - b).max() / abs(b).max() for a, b in pairs)
print("the same to 14 digits:", difference < 1e-14)


for d_, g in ((12, 2), (12, 3), (64, 2)):
    columns, rank = (d_ + 1) * comb(d_ + g, g), comb(d_ + g + 1, g + 1)
    print(f"d = {d_}, g = {g}: {columns:7,} columns of the row-wise Kronecker product, "
          f"{rank:6,} features of degree {g + 1}: {columns / rank:.2f} times fewer")

# %% [markdown]
# The monomials of degree $g+1$ are the columns of the row-wise Kronecker product with everything that stands there twice left out. They are fewer by a factor of
#
# $$ \frac{(d+1)\binom{d+g}{g}}{\binom{d+g+1}{g+1}} = \frac{(d+1)(g+1)}{d+g+1} , \tag{16.12} $$
# <!-- (16.12) (d + 1) * monomials.rank_of(d, g) / monomials.rank_of(d, g + 1) = (d + 1) * monomials.rank_of(d, g) / monomials.rank_of(d, g + 1) where d <= 1000 and g <= 12 -->
#
# 2.60 and 3.25 at $d = 12$, and towards $g + 1$ when $d$ grows. For the same $dQ$ and $dK$ at $g = 3$ the associative form took 294,840 multiply-adds a token; the Jacobian form with 1,820 features takes $55 \cdot 1{,}820 = 100{,}100$. (The identity is a derivation of this course.)
# <!-- 2.60, 3.25, 1,820 = (*((12 + 1) * monomials.rank_of(12, g) / monomials.rank_of(12, g + 1) for g in (2, 3)), monomials.rank_of(12, 4)) -->
#
# A choice remains. With the same degree in both passes the gradient is that of the function that is computed, which is what an optimiser expects. With one degree more in the backward pass it is closer to that of softmax. The library lets you choose, here with each row's own polynomial of lesson 15b:
# <!-- 100{,}100 = 55 * 1_820 -->

# %%
for wanted in (3, 4):
    found = lowrank.gradient(Q, K, V, G, degree=3, gradient_degree=wanted,
                             scale=1.0, engine="numpy")
    got = errors(found, (exact_O, *want))
    shown = [f"{name} {error:.2e}" for name, error in zip(found._fields, got, strict=True)]
    print(f"O of degree 3, gradient of degree {wanted}: {', '.join(shown)}")

# %% [markdown]
# With the gradient of degree 4 the error of $dQ$ falls from 2.20e-02 to 4.65e-03, below that of $O$, 6.32e-03.
#
# ## 16.4 Two sweeps
#
# We want to know what the gradient moves. Suppose the forward pass leaves $T$ in slow memory, $r(d+1)$ words. Then two sweeps over tokens do everything:
#
# - **queries.** $T$ is loaded and stays. A query $q_i$ and its $G_i$ come. $[N_i, \mathrm{den}_i] = \phi(q_i)^\top T$ is made again, for $O_i$ and $\delta_i$; then $dQ_i$ goes out, and $U$ grows.
# - **keys.** $U$ stays. A key and its value come, $dK_j$ and $dV_j$ go.
#
# $O$ is not read: it is computed again, as the weights were in lesson 06. So
#
# $$ W = 7Nd + r(d+1), \qquad \text{footprint } 2r(d+1) + 5d + 2 . \tag{16.13} $$
# <!-- (16.13) W = costs.low_rank_backward(N, d, g=g, rc=r, Bd=d + 1).total with g = 1 + j % 4, r = monomials.rank_of(d, g) where d <= 500 -->
# <!-- (16.13) footprint = costs.low_rank_backward(N, d, g=g, rc=r, Bd=d + 1).peak + 2 * d with g = 1 + j % 4, r = monomials.rank_of(d, g) where d <= 500 -->
#
# $7Nd$ is the compulsory traffic of a backward pass. (Where the two states do not fit, they are made in parts, as in lesson 15, and the tokens pass for each part. `schedules.low_rank_backward` does both, with $2d$ words less of room.)
#
# **Predict** (guess). $N = 40\,960$, $d = 12$, $g = 3$, $M = 16\,384$. How many times fewer words than the cheapest backward pass of lesson 06 is that?
# <!-- "the cheapest backward pass of lesson 06" if schedules.split_backward.count(40_960, 12, 16_384).total < schedules.fused_backward.count(40_960, 12, 16_384).total -->

# %% tags=["predict"]
predict("16.4", times=50)  #> predict("16.4", times=...)

# %%
N_long, d_long, M = 40960, 12, 16384
r = comb(12 + 3, 3)
split = schedules.get("split_backward")
flash = split.cost(N_long, d_long, **split.tiles(N_long, d_long, M))
two = 7 * N_long * d_long + r * (d_long + 1)
print(f"split_backward {flash.total:,} words, two sweeps {two:,}, "
      f"compulsory {7 * N_long * d_long:,}; "
      f"footprint {2 * r * (d_long + 1) + 5 * d_long + 2:,}")
measured("16.4", times=flash.total / two)

# %% [markdown]
# <details><summary>How many times fewer</summary>
#
# 67.43 times fewer, 3,446,555 words, of which the state is 5,915. The comparison is between different things, one exact and the other not; lesson 15b says when that is a good exchange.
# <!-- two_sweeps = costs.low_rank_backward(40_960, 12, g=3, rc=455, Bd=13).total -->
# <!-- 67.43, 3,446,555 = schedules.split_backward.count(40_960, 12, 16_384).total / two_sweeps, two_sweeps -->
#
# </details>
#
# <!-- exercise 16C --> Write the two sweeps for the machine, one token at a time. As in lesson 15, `phi` and `psi` make the features of a query and of a key in a free register. Beside `add_outer(state, x, y)` and `add_matmul(o, x, state)` there is `add_gradient(dx, x, state, y)`: it adds to $dx$ the gradient of $\phi(x)^\top\,\mathrm{state}\,y^\top$ with respect to $x$, which is your pull-back for one row. All rows are tiles of one row, $(1, d)$ or $(1, d + 1)$; slices of a tile are views, and can be assigned to. Room is the footprint of (16.13) and two more rows of $d + 1$ words. If you are stuck after ten minutes, run `hint("16C")` in a cell of your own.

# %% [raw] name="about-16C"
# title = "The gradient in two passes"
# difficulty = 4
# importance = 5
# minutes = 20
# hints = [
#   "Which of T and U does the pass over the queries need, and which one does it compute? And the other pass?",
#   "The numerators and denominator of a query come from T with add_matmul; with them G = [dO, -dO·O]/den. Its gradient is add_gradient with T and G; add its features times G to U. A key has [v, 1] for G.",
#   "Queries use phi and keys psi in both passes: phi with T for the output and dQ, phi to compute U, psi with U for dV (its first d columns) and dK. G is [dO, -δ] over den: divide by den once.",
# ]

# %% tags=["exercise"] name="ex-16C"
def my_two_sweeps(m, Q, K, V, dO, T, *, phi, psi):
    """dQ, dK, dV of attention with weights φ(q)·ψ(k) over row sums.

    m: the machine. Q, K, V, dO: slow arrays (N, d).
    T: slow, (r, d + 1), the sum of ψ(k) [v, 1].
    phi, psi: Features of a query and of a key. Returns the slow arrays dQ, dK, dV, each (N, d).
    """
    N, d = Q.shape
    r = len(phi)
    dQ, dK, dV = (m.new(name, (N, d)) for name in ("dQ", "dK", "dV"))
    ### BEGIN SOLUTION queries with T, which make U; then keys with U
    U = m.zeros(r, d + 1)
    with m.load(T, (0, r)) as t:
        for i in m.blocks(N, 1):
            with m.load(Q, i) as q, m.load(dO, i) as do, m.zeros(1, d + 1) as o:
                phi.add_matmul(o, q, t)                     # [N_i, den_i]
                o[:, :d] /= o[:, d:]                         # O_i
                with m.zeros(1, d + 1) as ge, m.zeros(1, d) as dq:
                    ge[:, d].add_row_dots(do, o[:, :d])  # delta_i
                    ge *= -1.0
                    ge[:, :d] = do
                    ge /= o[:, d:]                           # [G_i, -delta_i] / den_i
                    phi.add_gradient(dq, q, t, ge)
                    phi.add_outer(U, q, ge)
                    m.store(dq, dQ, i)
    for j in m.blocks(N, 1):
        with m.load(K, j) as k, m.load(V, j) as v, m.full(1, d + 1, 1.0) as ve:
            ve[:, :d] = v                                    # [v_j, 1]
            with m.zeros(1, d) as dk, m.zeros(1, d) as dv:
                psi.add_gradient(dk, k, U, ve)
                psi.add_matmul(dv, k, U[:, :d])
                m.store(dk, dK, j)
                m.store(dv, dV, j)
    U.free()
    return dQ, dK, dV
    ### END SOLUTION

# %% tags=["check"] name="check-16C"
check("16C", my_two_sweeps)

# %% [markdown]
# On the first 256 rows of the input of section 16.1, in degree 2:

# %%
def machine_features(plan_g, weights=None):
    rows = [[axis for axis in column if axis < plan_g.d] for column in coordinates(plan_g).T]
    return Features(rows, weights)


few = {"Q": Q[:256], "K": K[:256], "V": V[:256], "dO": G[:256]}
O, den, T = forward(few["Q"], few["K"], few["V"], plan2)
made = {"phi": machine_features(plan2),
        "psi": machine_features(plan2, taylor_weights(plan2)[:, 0])}
mine = attempt(run, my_two_sweeps, M=900, **few, T=T, **made)
print(mine.ledger)
want_few = jacobian_form(few["Q"], few["K"], few["V"], few["dO"], plan2, (O, den, T))
same = [attempt(np.allclose, mine.outputs[n], want_few[n], atol=1e-12) for n in range(3)]
print("dQ, dK, dV as in the Jacobian form:", *same)
print(f"(16.13): {7 * 256 * 8 + 45 * 9:,} words, footprint {2 * 45 * 9 + 5 * 8 + 2:,}")

# %% [markdown]
# 14,741 words, as (16.13) says, in a fast memory of 900. Keys and values alone are 4,096 words, so no schedule could have kept them there: what is kept of them is the state.
# <!-- 4,096 = 2 * 256 * 8 -->
# <!-- 14,741 = costs.low_rank_backward(256, 8, g=2, rc=45, Bd=9).total -->
#
# ## 16.5 Causal, tile by tile
#
# We want the same under a causal mask: query $i$ sees the keys up to $i$. Then the state must be a *prefix sum*. Query $i$ needs $T$ of the keys up to $i$, the next query one key more. Token by token this is a chain of $N$ small steps, one after the other. So tokens are taken in tiles of $B$: the queries of a tile meet the keys of all tiles before by the state, and the keys of their own tile directly, with the exponential itself, under a triangle:
#
# $$ [N_i, \mathrm{den}_i] = \phi(q_i)^\top\,T_{<\text{tile}} + \sum_{j \le i,\; j \text{ in the tile}} e^{q_i\cdot k_j}\,[v_j, 1] . \tag{16.14} $$
# <!-- (16.14) not evaluated: entries of arrays -->
#
# Near pairs are exact, far ones polynomial. The cost is up to $B$ pairs a token. Here are the scores of 512 tokens in tiles of 64; outlined is what the queries of one tile need (the picture writes $n$ and $C$ for $N$ and $B$):

# %%
explore.causal_tiles(512, 64, at=4)

# %% [markdown]
# 16,640 pairs are exact, and 114,688 are in the state.
#
# One thing must match: the two parts are added, so both must stand for the exponential itself. A factor that is common to a row and cancels in softmax, such as the $e^{\sigma^2/2}$ that lesson 15b left out of the row-adaptive polynomial, has to be put back in.
#
# <!-- exercise 16D --> Compute the output by (16.14), in NumPy, with the arrays as they come. Tiles begin at $0, B, 2B, \dots$, the last one may be smaller. No $N \times N$ matrix: the check counts the work for $N$ and for $2N$ tokens. And no row may depend on what comes after it. If you are stuck after seven minutes, run `hint("16D")` in a cell of your own.

# %% [raw] name="about-16D"
# title = "Causal attention by tiles"
# difficulty = 3
# importance = 4
# minutes = 13
# hints = [
#   "When the queries of a tile are processed, which keys may the state T contain?",
#   "Numerators and denominators are the sum of two parts: features of the queries times T for all earlier tiles, and the lower triangle of exp(q kᵀ) times [v, 1] for the tile itself.",
#   "Add the keys of the tile to T only after its queries are processed. Divide once, after both parts have been added, and not each part by itself.",
# ]

# %% tags=["exercise"] name="ex-16D"
def my_causal(Q, K, V, phi, w, B):
    """Causal attention: exp within a tile of B tokens, the polynomial for the tiles before.

    Q, K: (N, d). V: (N, dv). phi: a function, phi(x) are the monomials (r, n) of n rows x.
    w: their weights 1/a!, (r, 1): a key's features are w * phi(k). Returns O (N, dv).
    """
    ### BEGIN SOLUTION answer a tile's queries, then let its keys into the state
    V1 = np.hstack([V, np.ones((len(V), 1))])                 # (N, dv + 1)
    T = np.zeros((len(w), V1.shape[1]))                       # (r, dv + 1)
    O = np.empty_like(V)
    for at in range(0, len(Q), B):
        rows = slice(at, at + B)
        q, k, v1 = Q[rows], K[rows], V1[rows]
        near = np.tril(np.exp(q @ k.T))                       # (B, B)
        both = phi(q).T @ T + near @ v1                       # (B, dv + 1)
        O[rows] = both[:, :-1] / both[:, -1:]
        T += w * (phi(k) @ v1)
    return O
    ### END SOLUTION

# %% tags=["check"] name="check-16D"
check("16D", my_causal)

# %%
def of_degree_2(x):
    return features(x, plan2)


w2 = taylor_weights(plan2)
exact_causal = exact.attention(Q, K, V, causal=True, scale=1.0)
for B in (1, 64):
    found = attempt(
        lambda B=B: errors([my_causal(Q, K, V, of_degree_2, w2, B)], [exact_causal])[0])
    print(f"tiles of {B}: relative error {found:.2e}")
one_tile = attempt(my_causal, Q, K, V, of_degree_2, w2, 512)
print("one tile of 512 is exact:", attempt(np.allclose, one_tile, exact_causal, atol=1e-12))

# %% [markdown]
# 3.05e-02 with tiles of one token, 1.71e-02 with tiles of 64, and none where one tile holds everything. A wide tile costs more pairs and takes fewer steps; exactness nearby comes with it.
#
# **The future leaks through statistics.** Lesson 15b subtracts the mean of the keys, which softmax does not see and which makes scores smaller. The mean of *all* keys knows the last one. Change the last key, and watch the rows before it:

# %%
K_new = K.copy()
K_new[-1] += 3.0
before = slice(0, N - 1)
for name, shift in (("nothing subtracted", lambda K: 0.0),
                    ("mean of all keys subtracted", lambda K: K.mean(axis=0))):
    was, now = (attempt(my_causal, Q, keys - shift(keys), V, of_degree_2, w2, 64)
                for keys in (K, K_new))
    change = attempt(lambda was=was, now=now: abs(now - was)[before].max(axis=1))
    print(f"{name}: earlier rows change by up to {attempt(np.max, change):.1e}")

# %% [markdown]
# 0.0 against 3.3e-04. The second is small, and it is a leak all the same: a model in training could learn to read it, and when it generates text there is no last key to take the mean with. The same holds for the covariance of the keys, which the row-adaptive polynomial uses. In causal mode such numbers have to be known beforehand: `lowrank.attention(..., causal=True)` with that polynomial wants `key_variance`, and refuses to take it from the data.
#
# **The way back.** A query was answered by the keys before it, so a key hears from the queries after it. $dQ$ needs the prefix state $T$ once more, in the order of the tokens. $dK$ and $dV$ need $U$ of the tiles *after*, a *suffix sum*: that sweep goes from the last tile to the first. (In the picture $l$ is $\mathrm{den}$ and $dO$ is $G$.)

# %%
explore.causal_tiles(512, 64, at=4, pass_="backward")

# %%
def queries_in_order(Q, K, V, G, plan_g, w, B):
    """dQ, and Ge = [G, -delta] / den of every row, with the state of the tiles before."""
    V1, dQ = with_ones(V), np.empty_like(Q)
    Ge, T = np.empty_like(V1), np.zeros((len(w), V1.shape[1]))
    for at in range(0, len(Q), B):
        rows = slice(at, at + B)
        phi, near = features(Q[rows], plan_g), np.tril(np.exp(Q[rows] @ K[rows].T))
        both = phi.T @ T + near @ V1[rows]                                # [N, den]
        delta = (G[rows] * both[:, :-1]).sum(axis=1, keepdims=True) / both[:, -1:]
        Ge[rows] = np.hstack([G[rows], -delta]) / both[:, -1:]
        dnear = near * (Ge[rows] @ V1[rows].T)                            # (B, B)
        dQ[rows] = features_vjp(T @ Ge[rows].T, phi, Q[rows], plan_g) + dnear @ K[rows]
        T += w * (features(K[rows], plan_g) @ V1[rows])
    return dQ, Ge


def keys_from_the_end(Q, K, V, Ge, plan_g, w, B):
    """dK and dV, with the state of the tiles after."""
    V1, dK, dV = with_ones(V), np.empty_like(K), np.empty_like(V)
    U = np.zeros((len(w), V1.shape[1]))
    for at in reversed(range(0, len(Q), B)):
        rows = slice(at, at + B)
        monomials, near = features(K[rows], plan_g), np.tril(np.exp(Q[rows] @ K[rows].T))
        dnear = near * (Ge[rows] @ V1[rows].T)                            # (B, B)
        dV[rows] = ((w * monomials).T @ U + near.T @ Ge[rows])[:, :-1]
        far = features_vjp(w * (U @ V1[rows].T), monomials, K[rows], plan_g)
        dK[rows] = far + dnear.T @ Q[rows]
        U += features(Q[rows], plan_g) @ Ge[rows]
    return dK, dV


want_causal = exact.attention_backward(Q, K, V, G, causal=True, scale=1.0)
for g in (2, 3, 4):
    plan_g = plan(d, g)
    dQ, Ge = queries_in_order(Q, K, V, G, plan_g, taylor_weights(plan_g), 64)
    dK, dV = keys_from_the_end(Q, K, V, Ge, plan_g, taylor_weights(plan_g), 64)
    print(f"g = {g}: relative errors of dQ, dK, dV",
          *[f"{error:.2e}" for error in errors((dQ, dK, dV), want_causal)])

# %% [markdown]
# 6.95e-02 for $dQ$ at degree 2, where section 16.3 had 1.24e-01 without a mask: near pairs are exact. The triangle needed nothing new: $\delta$ and the division by $\mathrm{den}$ are in $G_e$, which both parts share.
#
# ## 16.6 Any loss, any depth
#
# We want whole networks. Nothing more has to be derived for them: a framework with automatic differentiation asks each operation for two things, its result, and the gradient of its inputs given that of its result. $G$ is what it hands in. So attention becomes *one* operation of torch's `autograd`, with the gradient of this lesson, and projections, heads, residual connections and the loss remain ordinary code.
#
# What such an operation keeps between its forward and its backward pass is memory that a deep network pays for in each layer and each head. Exact attention, written with a product, a softmax and a product, keeps the weights, $N^2$ words. Ours keeps $Q$, $K$, $V$, $O$, $\mathrm{den}$ and $T$.
#
# **Predict** (guess). Three layers of two heads, $d = 8$, $N = 512$, degree 3. How many times fewer words does the whole network keep? (One head with $N^2 = 262{,}144$ words of weights has $4Nd = 16{,}384$ words of $Q$, $K$, $V$ and $O$.)
# <!-- 262{,}144, 16{,}384 = 512**2, 4 * 512 * 8 -->

# %% tags=["predict"]
predict("16.6", times=10)  #> predict("16.6", times=...)

# %%
if importlib.util.find_spec("torch") is None:
    print("torch is not installed here:", install_command.command("torch"))
else:
    import torch

    class LowRank(torch.autograd.Function):
        """Attention of one head, (N, d) each, with the polynomial of degree 3."""

        @staticmethod
        def forward(ctx, Q, K, V):
            made = forward(*(x.detach().numpy() for x in (Q, K, V)), plan3)
            O, den, T = (torch.from_numpy(x) for x in made)
            ctx.save_for_backward(Q, K, V, O, den, T)
            return O

        @staticmethod
        def backward(ctx, G):
            Q, K, V, *made = (x.detach().numpy() for x in ctx.saved_tensors)
            dQ, dK, dV = jacobian_form(Q, K, V, G.numpy(), plan3, made)
            return torch.from_numpy(dQ), torch.from_numpy(dK), torch.from_numpy(dV)

    x = torch.ones(4, 8, dtype=torch.float64, requires_grad=True)
    print("backward pass:", LowRank.apply(x, x, x).grad_fn.name())

# %% [markdown]
# That is all: torch will call our backward pass. Now a network around it: three layers of two heads with a residual connection, and a loss of the kind of section 16.1. Hooks of torch count what is kept.

# %%
def network(X, layers, attend):
    """X (N, 16) through layers of two heads; W_Q, W_K, W_V (2, 16, 8), W_O (2, 8, 16)."""
    for W_Q, W_K, W_V, W_O in layers:
        heads = zip(W_Q, W_K, W_V, W_O, strict=True)
        X = X + sum(attend(X @ a, X @ b, X @ c) @ o for a, b, c, o in heads)
    return X


def kept_and_gradients(attend):
    """The words kept for the backward pass, and the gradient of every parameter."""
    make = np.random.default_rng(9)
    shapes = ((2, 16, 8), (2, 16, 8), (2, 16, 8), (2, 8, 16))
    layers = [[torch.tensor(0.08 * make.standard_normal(shape), requires_grad=True)
               for shape in shapes] for _ in range(3)]
    X, kept = torch.tensor(make.standard_normal((512, 16))), {}

    def pack(x):
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // 8
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        total = (network(X, layers, attend) ** 3).sum() / 3
    kept_words = sum(kept.values())
    total.backward()
    grads = [w.grad.numpy().ravel() for layer in layers for w in layer]
    return kept_words, np.concatenate(grads)


if importlib.util.find_spec("torch") is not None:
    softmax_words, right = kept_and_gradients(lambda Q, K, V: torch.softmax(Q @ K.T, -1) @ V)
    words, ours = kept_and_gradients(LowRank.apply)
    print(f"kept by exact attention {softmax_words:,} words, by low rank {words:,}")
    print(f"gradient of all parameters: relative error {errors([ours], [right])[0]:.1e}")
    measured("16.6", times=softmax_words / words)

# %% [markdown]
# <details><summary>What a network keeps</summary>
#
# 10.04 times fewer words, and the gradient of all parameters, through three layers, has a relative error of 6.5e-03.
# <!-- 10.04 = 1_706_240 / 169_886 -->
#
# </details>
#
# `lowrank.attention` does the same for tensors of any leading axes, all heads at once, on the CPU or a GPU, and keeps the same arrays. What becomes of the error in twelve layers, and in training, is the subject of lesson 17; so are times. Low rank has no recorded run on a GPU yet.
# <!-- "no recorded run" if "gpu" not in load_record("lowrank") -->
#
# ## Misconceptions
#
# - **"The paper needs the loss to be a particular one."** The loss comes in through $G$ alone (section 16.1).
# - **"A product of low-rank matrices entry by entry has low rank, so build its factors."** Its rank is the product of the two; the factors had 5,915 columns where 1,820 monomials say the same (section 16.3).
# - **"The gradient is as accurate as the output."** At the same degree its error was about three times that of $O$ (section 16.3).
# - **"The mean of the keys is harmless, softmax does not see it."** The polynomial does, and in causal mode it carries the last key to rows before it (section 16.5).
#
# ## Take-away
#
# - Everything the backward pass has to know of the loss is $G$, and of the softmax's sums $\delta$. Both fit in $[G, -\delta]$, as $V$ and the denominators fit in $[V, \mathbf 1]$.
# - Two states carry everything: $T$ from the keys to the queries, $U$ from the queries to the keys. $7Nd + r(d+1)$ words, and nothing of size $N \times N$ or $N \times r$.
# - The paper's gradient of degree $g$ is the derivative of the features of degree $g + 1$: the same numbers from $(d+1)(g+1)/(d+g+1)$ times fewer columns.
# <!-- 1 as definition -->
# - Causal: prefix sums forward, suffix sums backward, tiles in between, and no statistic that knows the future.
#
# ## References
#
# - Y. Liang, Z. Sha, Z. Shi, Z. Song, Y. Zhou: *Multi-layer transformers gradient can be approximated in almost linear time*, 2024, [arXiv 2408.13233](https://arxiv.org/abs/2408.13233). The decomposition of section 16.1, any loss, many layers.
# - J. Alman, Z. Song: *The fine-grained complexity of gradient computation for training large language models*, 2024, [arXiv 2402.04497](https://arxiv.org/abs/2402.04497). When such a gradient is possible at all.
# - J. Alman, Z. Song: *Fast attention requires bounded entries*, 2023, [arXiv 2302.13214](https://arxiv.org/abs/2302.13214). The forward pass.
# - J. Gu, Y. Liang, H. Liu, Z. Shi, Z. Song, J. Yin: *Conv-basis*, 2024, [arXiv 2405.05219](https://arxiv.org/abs/2405.05219). Another structure for attention under a causal mask.
# - T. Dao, D. Fu, S. Ermon, A. Rudra, C. Ré: *FlashAttention*, 2022, [arXiv 2205.14135](https://arxiv.org/abs/2205.14135). $D_i$ from $dO$ and $O$.
#
# **What comes next.** <!-- next -->
