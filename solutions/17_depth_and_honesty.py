# %% [markdown]
# # 17 Depth, training and honesty
#
# Lessons 15 and 16 approximated one attention and its gradient, and counted what that saves. A model is many attentions, one after the other, and it is trained. Do small errors stay small through twelve layers? Does a model that is trained with the approximation learn what it would have learned without? Which heads of a real model could use it at all? And what has been published about it: what was measured, and how? Most of these answers are less smooth than a theorem, and each can be checked. At the end of the lesson, and of the course, you choose a schedule for problems of every kind, and defend the choice with its ledger.
#
# **What you will learn**
#
# - how the error of an approximation grows with the number of layers, and how to tell one law of growth from another;
# - what goes wrong in training when nothing bounds the logits, seen on a model with one parameter;
# - to bound logits by construction, with the gradient that belongs to it;
# - which heads of a trained model could use low rank, and what bounding their logits afterwards would do to them;
# - to read a table of results: its metric, its operator, its data, its clock;
# - to choose between exact, sparse, small-cache and low-rank schedules, with a ledger and a claim.
#
# **Prerequisites**: lesson 15 (degrees, ranks, the Poisson rule) and lessons 04, 07 and 08 (the schedules to choose from). What is said of gradients rests on lesson 16. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Exercises need NumPy only. Three cells train or differentiate a model, or draw the published data, and need PyTorch (`python -m pip install "torch>=2.6"`); without it they say so, and the rest goes on. If Numba is installed (`python -m pip install "numba>=0.61"`) they are several times faster, after some seconds of compiling the first time.

# %% tags=["setup"]
import time
from importlib.util import find_spec
from math import comb, factorial

import numpy as np

from iocourse import costs, exact, explore, lowrank, masks
from iocourse.course import attempt, check, hint, measured, predict
from iocourse.data import real_head, real_heads
from iocourse.data.recorded import provenance, recorded


def with_torch(work, *arguments):
    """work(*arguments); where PyTorch is not installed, None and a sentence."""
    if not find_spec("torch"):
        print('torch is not installed here: python -m pip install "torch>=2.6"')
        return None
    import torch

    torch.set_num_threads(1)  # small products: more threads would only wait for each other
    return work(*arguments)


# %% [markdown]
# ## 17.1 One error on top of another
#
# A layer of a transformer adds what its attention found to the *stream*, the rows that run through all layers: $x_{l+1} = x_l + f_l(x_l)$. An approximation makes a small error in each $f_l$, and all later layers work on rows that are already a little off. What is the error after $m$ layers?
#
# In the worst case each layer enlarges what is off by some factor $c$, and then it is $c^m$, exponential in the depth. That argument is safe, and it assumes that every layer does its worst, in the same direction. Here is another guess. The stream itself passes every layer unchanged, so an error is carried along rather than enlarged. Then $m$ layers add $m$ errors, one each. If these point in unrelated directions, they add up like steps of a random walk:
#
# $$ \lVert \varepsilon_1 + \dots + \varepsilon_m \rVert \approx \sqrt{m}\,\lVert \varepsilon \rVert \quad\text{rather than}\quad m\,\lVert \varepsilon \rVert \quad\text{or}\quad c^m \lVert \varepsilon \rVert . \tag{17.1} $$
#
# We measure. 128 tokens, 4 heads of $d = 8$, random weights, and rows brought to mean 0 and variance 1 before each attention, as LayerNorm does. One stream goes through exact softmax, the other through Taylor's polynomial of degree 4.

# %%
def taylor_weights(S, g=4):
    A = sum(S**l / factorial(l) for l in range(g + 1))
    return A / A.sum(axis=-1, keepdims=True)


def layer(x, W, weights):
    """x (N, 32) plus what 4 heads found; W: four (32, 32), for Q, K, V and the output."""
    rows = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True)
    q, k, v = ((rows @ w).reshape(len(x), 4, 8).transpose(1, 0, 2) for w in W[:3])
    O = weights(q @ k.transpose(0, 2, 1) / 8**0.5) @ v  # (4, N, 8)
    return x + O.transpose(1, 0, 2).reshape(x.shape) @ W[3]


def errors_over_layers(m, seed=17):
    """Relative error of the stream after each of m layers."""
    rng, found = np.random.default_rng(seed), []
    x = y = rng.standard_normal((128, 32))
    for _ in range(m):
        W = rng.uniform(-1, 1, (4, 32, 32)) / 32**0.5
        x, y = layer(x, W, exact.softmax), layer(y, W, taylor_weights)
        found.append(np.linalg.norm(y - x) / np.linalg.norm(x))
    return found


# %% [markdown]
# **Predict.** How many times the error of the first layer is the error after 8 layers? Steps in one direction would give 8, a factor of $e$ a layer 1,097.
# <!-- 1,097 = math.exp(7) -->

# %% tags=["predict"]
predict("17.1", times=3)  #> predict("17.1", times=...)

# %%
stream = errors_over_layers(16)
for m in (1, 2, 4, 8, 16):
    print(f"{m:2} layers: error {stream[m - 1]:.2e}, {stream[m - 1] / stream[0]:.2f} times "
          f"that of one; √m = {m**0.5:.2f}")
measured("17.1", times=stream[7] / stream[0])

# %% [markdown]
# 2.72 times after 8 layers, 4.00 after 16: the square roots are 2.83 and 4. There is no trace of an exponential. (These are one draw of weights. Eight others gave exponents, as you will fit them in a moment, from 0.37 to 0.58.)
#
# Looking at numbers is one thing, a fit another. Two laws compete, $\text{error} \approx C m^a$ and $\text{error} \approx C e^{bm}$, and each is a straight line if one takes logarithms of the right things:
#
# $$ \log \text{error} = \log C + a \log m , \qquad \log \text{error} = \log C + b\,m . \tag{17.2} $$
#
# <!-- exercise 17A --> Fit both by least squares in the logarithm of the error. Return $a$, $b$, and the name of the law that leaves the smaller sum of squares. A number of layers may occur several times, in any order. If you are stuck after five minutes, run `hint("17A")` in a cell of your own.

# %% tags=["exercise"] name="ex-17A"
def my_growth(layers, errors):
    """How errors grow with the number of layers.

    layers: list of whole numbers, each at least 1.
    errors: list of positive numbers, one for each.
    Returns (a, b, law): error ~ m^a, error ~ e^(b m), and "power" or "exponential",
    whichever lies closer.
    """
    ### BEGIN SOLUTION two lines through the same logarithms
    heights = np.log(errors)
    slopes, off = [], []
    for places in (np.log(layers), np.array(layers, dtype=float)):
        slope, start = np.polyfit(places, heights, 1)
        slopes.append(slope)
        off.append(((heights - slope * places - start) ** 2).sum())
    return *slopes, "power" if off[0] <= off[1] else "exponential"
    ### END SOLUTION


# %% tags=["check"] name="check-17A"
check("17A", my_growth)

# %%
def print_growth(name, layers, errors):
    a, b, law = my_growth(layers, errors)
    print(f"{name}: m^{a:.2f}, or e^({b:.2f} m); closer lies the {law}")


attempt(print_growth, "stream", list(range(1, 17)), stream);

# %% [markdown]
# $m^{0.48}$, by a fit over all 16 numbers. The rate of the exponential, 0.07, is what a least-squares line makes of a curve that bends; the law's name says not to believe it.

# %% [markdown]
# ## 17.2 Gradients through layers
#
# Training wants gradients, and these pass all layers twice, forward and back. `lowrank.layers` holds a small transformer in PyTorch: attention of several heads, LayerNorm before each part, residual sums, a perceptron, and cross-entropy at the end. Its attention is whatever callable it is given, `layers.exactly()` or `layers.low_rank(4)`; everything else is ordinary autograd. We compare the gradients with respect to all parameters, in float64, 256 tokens and 8 heads of $d = 8$, with PyTorch's initial weights and random tokens.

# %%
def gradient_errors(m, degree, n=256):
    """Relative error of the gradient by all parameters of m layers."""
    import torch

    from iocourse.lowrank import layers, training

    source = torch.Generator().manual_seed(0)
    tokens, wanted = torch.randint(64, (2, 1, n), generator=source)
    model = layers.transformer(layers.Shape(64, n, m), layers.exactly(causal=False)).double()

    def gradient(attend):
        model.attend = attend
        loss = training.loss_of(model(tokens), wanted)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])

    want = gradient(layers.exactly(causal=False))
    return float((gradient(layers.low_rank(degree, causal=False)) - want).norm() / want.norm())


# %% [markdown]
# **Predict.** Degree 4. How large is the relative error of the gradient with one layer, and how many times as large with 8?

# %% tags=["predict"]
predict("17.2", one=1e-4, times=3)  #> predict("17.2", one=..., times=...)

# %%
def measured_gradients():
    found = {m: gradient_errors(m, 4) for m in (1, 2, 4, 8)}
    for m, error in found.items():
        print(f"{m} layers: gradient by all parameters off by {error:.2e}")
    measured("17.2", one=found[1], times=found[8] / found[1])
    attempt(print_growth, "gradient", list(found), list(found.values()))
    return found


by_layers = with_torch(measured_gradients)

# %% [markdown]
# 4.90e-05 with one layer, and 2.56 times that with eight: $m^{0.46}$. So the gradient behaves as the stream does, and stays a little below the square root. Nothing here proves a law: (17.1) was a guess, and a fit says which of two guesses lies closer.
#
# A run with up to 12 layers, 1024 tokens, three seeds and three degrees is kept with the package. (Where none has been recorded, the cell says so.)
# <!-- depth = recorded("depth") -->
# <!-- 1024 = depth["layers"]["sizes"]["n"] -->

# %%
depth_run = recorded("depth")
print(provenance(depth_run))
for law in depth_run["layers"]["growth"] if depth_run else ():
    if law["what"] == "parameters" and law["gradient_degree"] == law["degree"]:
        closer = "power" if law["off_power"] < law["off_exponential"] else "exponential"
        print(f"degree {law['degree']}: m^{law['exponent']:.2f}; closer lies the {closer}")
explore.depth_errors(depth_run)

# %% [markdown]
# The exponents of the record are 0.36 to 0.39: with more tokens and layers the error grows more slowly than $\sqrt m$. What this shows, and what it does not: these are *initial* weights, with logits that spread by about a third. It says that depth as such is no obstacle. It says nothing about weights that have been trained, and that is the next question.
# <!-- exponents = [law["exponent"] for law in depth["layers"]["growth"] if law["what"] == "parameters" and law["gradient_degree"] == law["degree"]] -->
# <!-- 0.36, 0.39 = min(exponents), max(exponents) -->

# %% [markdown]
# ## 17.3 A model with one parameter
#
# An optimiser knows the loss and nothing else. If attention is replaced by a polynomial, it trains a model *with that polynomial*. As long as the logits are small this is the same model. Who sees to it that they stay small?
#
# The smallest model in which one can watch: 400 keys on the unit sphere in 4 dimensions, each with a value, a noisy measurement of some function at that place. A query is another place, and attention is to guess the function there by averaging the values of keys nearby. The only parameter is how sharply it looks, $\gamma$, with logits $\gamma\,q \cdot k$. This is kernel regression: too small a $\gamma$ averages over everything, too large a one trusts a single noisy value.

# %%
rng = np.random.default_rng(17)
places = rng.standard_normal((2, 400, 4))
keys, queries = places / np.linalg.norm(places, axis=2, keepdims=True)
values = keys[:, 0] ** 2 + 0.3 * rng.standard_normal(400)
wanted = queries[:, 0] ** 2


def loss(gamma, weights):
    """Mean squared error in units of the variance of what is wanted."""
    return ((weights(gamma * queries @ keys.T) @ values - wanted) ** 2).mean() / wanted.var()


# %% [markdown]
# **Predict.** Degree 4 is trained: $\gamma$ goes where the loss *of the polynomial* is smallest, looking up to $\gamma = 128$. Then softmax is put in, with the same $\gamma$. What is the loss before, and after? (Always answering the mean would be about 1.)

# %% tags=["predict"]
predict("17.3", own=0.1, softmax=0.1)  #> predict("17.3", own=..., softmax=...)

# %%
gammas = [2 ** (k / 4) for k in range(-4, 29)]
curves = {name: [(gamma, loss(gamma, weights)) for gamma in gammas]
          for name, weights in (("softmax", exact.softmax), ("degree 4", taylor_weights))}
best = {name: min(points, key=lambda point: point[1]) for name, points in curves.items()}
for name, (gamma, least) in best.items():
    print(f"{name}: least loss {least:.4f}, at γ = {gamma:.2f}")
print(f"at γ = 2: softmax {loss(2, exact.softmax):.4f}, degree 4 {loss(2, taylor_weights):.4f}")
measured("17.3", own=best["degree 4"][1], softmax=loss(best["degree 4"][0], exact.softmax))

# %%
explore.curve(curves, title="One parameter: the loss of softmax and of degree 4",
              xlabel="γ", ylabel="loss", log=(True, False))

# %% [markdown]
# The polynomial is trained to a loss of 0.2798. With softmax in its place the same model has 1.078, worse than always answering the mean. Softmax itself would have reached 0.2023, at $\gamma = 13.45$. Nothing failed: no sum was negative, no number overflowed, the loss went down all the time. Only, it was the loss of another model. For large $\gamma$ degree 4 is $\gamma^4 c^4/24$ and little else, with $c = q \cdot k$; its weights $c^4/\sum c^4$ no longer depend on $\gamma$, and they are never very sharp. Sharper was better, so $\gamma$ grew until the end of the range. To softmax a $\gamma$ of 128 means: trust one key.
#
# Up to $\gamma = 2$ the two losses are alike, 0.7979 and 0.8009 there. Bounded logits make the approximation safe. In this problem they also make the model poor, exact or not: whoever bounds the logits decides how sharply a head may look.

# %% [markdown]
# ## 17.4 Logits that cannot grow
#
# Watching the logits during training is a repair. Better is a model in which they *cannot* grow, whatever the optimiser does. Give every query the length $R$ and every key the length 1:
#
# $$ \hat q_i = R\,\frac{q_i}{|q_i|}, \qquad \hat k_j = \frac{k_j}{|k_j|}, \qquad |\hat q_i \cdot \hat k_j| \le R . \tag{17.3} $$
#
# This is *QK-norm*: queries and keys are normalised. The assumption of bounded entries has become a part of the architecture, and the certificate (15.5) on $[-R, R]$ holds for every logit that can ever occur. (The length of a query is all that is left of a temperature; it is fixed, not learned.)
#
# It needs a gradient. With $u = x/|x|$ and a length $\lambda$, the result $\hat x = \lambda u$ changes with $x$ only across $u$, and the slower the longer $x$ is:
#
# $$ dx = \frac{\lambda}{|x|}\,\bigl(d\hat x - (u \cdot d\hat x)\,u\bigr) . \tag{17.4} $$
#
# <!-- exercise 17B --> Stretch all rows to a given length, and carry the gradient back by (17.4). There may be axes in front of the rows, for heads and texts. A row of zeros has no direction: it stays zero, and its gradient is zero. If you are stuck after six minutes, run `hint("17B")` in a cell of your own.

# %% tags=["exercise"] name="ex-17B"
def my_bounded(X, length, dY):
    """Rows stretched to one length, and the gradient through that.

    X: rows along the last axis, shape (..., d). length: a positive number.
    dY: gradient with respect to the stretched rows, shape (..., d).
    Returns (Y, dX), both (..., d).
    """
    ### BEGIN SOLUTION the unit rows, then what of dY goes across them
    norms = np.linalg.norm(X, axis=-1, keepdims=True)
    safe = np.where(norms > 0, norms, 1)
    U = X / safe
    across = dY - (dY * U).sum(axis=-1, keepdims=True) * U
    return length * U, np.where(norms > 0, length / safe * across, 0)
    ### END SOLUTION


# %% tags=["check"] name="check-17B"
check("17B", my_bounded)

# %% [markdown]
# A look at what that does to an optimiser. A row is pulled in its own direction and one across, with equal force, at three lengths:

# %%
def print_pulls():
    for size in (0.5, 2.0, 8.0):
        _, dX = my_bounded(np.array([[size, 0.0]]), 2.0, np.array([[1.0, 1.0]]))
        print(f"|x| = {size}: gradient {dX[0]}")


attempt(print_pulls);

# %% [markdown]
# The pull along the row is gone, and the one across goes down with the length: 4, 1, 0.25. If the row itself is what is learned, a step of gradient descent is orthogonal to it, so by Pythagoras the row can only become longer, and then later steps turn it less. The model is bounded; how fast it learns is another matter.

# %% [markdown]
# ## 17.5 A model that reads characters
#
# Now a real training, if a small one: two layers, 8 heads of $d = 8$, one stretch of 256 characters a step, causal, on the sentences of this course. Three times with the same first weights and the same batches, and logits within $\pm 2$ by (17.3): exact, with degree 4, and with *uniform* weights, which is degree 0, the mean of all values so far. The last is a control: it says what a difference of losses is worth. 40 steps are run here.

# %%
def trained(attention, steps, bound=2.0):
    """The losses of a model that attends like this; attention(layers) makes it."""
    from iocourse.lowrank import layers, training

    text = training.prose()
    shape = layers.Shape(len(text.alphabet), 256, layers=2, bound=bound)
    model = layers.transformer(shape, attention(layers))
    return training.train(model, text, range(steps), batch=1)


# %% [markdown]
# **Predict.** The loss falls from about 4.5 to below 3. How far from the exact curve do the other two go, at most, in 40 steps?

# %% tags=["predict"]
predict("17.5", degree_4=1e-3, uniform=0.5)  #> predict("17.5", degree_4=..., uniform=...)

# %% tags=["nbval-ignore-output"]
def train_three(steps=40):
    losses = {"exact": trained(lambda layers: layers.exactly(), steps),
              "degree 4": trained(
                  lambda layers: layers.low_rank(4, polynomial="taylor"), steps),
              "uniform": trained(lambda layers: layers.uniformly, steps)}
    off = {name: float(np.abs(np.subtract(found, losses["exact"])).max())
           for name, found in losses.items()}
    for name, found in losses.items():
        print(f"{name}: loss {found[0]:.2f}, after {steps} steps {found[-1]:.2f}")
    print(f"degree 4 within 0.001: {off['degree 4'] < 1e-3}; "
          f"uniform within 0.02: {off['uniform'] < 0.02}")
    measured("17.5", degree_4=off["degree 4"], uniform=off["uniform"])
    return off


here_off = with_torch(train_three)

# %% [markdown]
# Degree 4 stays within 0.001. That would be a fine result, were it not for the control: uniform weights stay within 0.02, although they are as bad an approximation as can be. In 40 steps a model learns which characters are frequent, and has hardly begun to use its attention. So all that has been shown here is that nothing breaks. An experiment needs a control that *could* fail.
#
# `iocourse bench depth` trains 400 steps, with three layers and 512 characters, with logits within $\pm 2$, within $\pm 4$, and free, with several polynomials each, and with uniform weights. Afterwards each model reads text that was kept from it, once with its own attention and once with exact softmax. Three things to look for: the largest difference to the exact training under the same bound, beside that of uniform weights; the gap between the last two columns, which is what section 17.3 warned of; and the exact rows under the three bounds, for what the bound itself costs.
# <!-- 400, 512 = depth["training"]["sizes"]["steps"], depth["training"]["sizes"]["n"] -->

# %%
def print_trainings(runs):
    print(f"{'logits':8}{'attention':14}{'difference':>11}{'largest logit':>14}"
          f"{'kept, own':>11}{'kept, exact':>12}")
    for run in runs:
        logits = "free" if run["bound"] is None else f"±{run['bound']:g}"
        name = run["attention"] + (f", g = {run['degree']}" if run["degree"] else "")
        off = max(phase["largest_difference"] for phase in run["phases"])
        print(f"{logits:8}{name:14}{off:11.4f}{run['largest_logit']:14.1f}"
              f"{run['validation_own']:11.4f}{run['validation_exact']:12.4f}")


print(provenance(depth_run))
if depth_run:
    print_trainings(depth_run["training"]["runs"])

# %%
explore.training_curves(depth_run, bound=2.0)

# %%
explore.training_curves(depth_run, bound=None)

# %% [markdown]
# The same in sentences, which the cell writes by itself, so that they are true of whatever record is there:

# %%
def gap(run):
    return run["validation_exact"] - run["validation_own"]


def summary(runs):
    """What attention is worth under each bound, and the worst that putting softmax in does."""
    for bound in dict.fromkeys(run["bound"] for run in runs):
        some = [run for run in runs if run["bound"] == bound]
        own = {run["attention"]: run["validation_own"] for run in some if not run["degree"]}
        worst = max((run for run in some if run["degree"]), key=gap)
        yield (f"{'free logits' if bound is None else f'within ±{bound:g}'}: exact attention "
               f"{own['exact']:.3f}, uniform weights {own['uniform']:.3f}; "
               f"putting softmax in for a polynomial costs up to {gap(worst):.3f} "
               f"(degree {worst['degree']})")


print("\n".join(summary(depth_run["training"]["runs"])) if depth_run else provenance(depth_run))

# %% [markdown]
# Where putting softmax in costs something, the model has learned *polynomial attention*. That may be a good model: with free logits each polynomial reads the kept text better than exact attention does. But it is no longer an approximation of anything. Whoever wants to train with one attention and serve with another has to bound the logits, and to take a degree that suits the bound: within $\pm 4$ degree 2 is not enough.
#
# The other side is the distance from exact attention to uniform weights. The tighter the bound, the smaller it is, and within $\pm 2$ most of what attention was worth is gone. That is the price from section 17.3, in a model with more than one parameter. And keep in mind what kind of evidence this is: one seed, one small text, 400 steps. It is a demonstration of what can go well and what can go wrong; it is no benchmark.

# %% [markdown]
# ## 17.6 Real heads
#
# The course ships eight heads of a trained model with $d = 32$, whose logits nothing bounds, and lesson 15 found that they spread widely. Let `lowrank.advise` say what 1 percent would take, at the 471 tokens of our text. And in a second step, let us bound their logits afterwards, by (17.3) with $R = 2$, and look at two things: what low rank would then take, and how much of the head is left.
#
# **Predict.** For how many of the eight is low rank the better choice, as they were trained? And for the sharp head of lesson 08, layer 0, head 2: by how many percent do its weights change (relative to their norm) when its logits are bounded?
# <!-- 471 = len(real_head(0, 11).Q) -->

# %% tags=["predict"]
predict("17.6", heads=1, percent=50)  #> predict("17.6", heads=..., percent=...)

# %%
def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


usable, changed = 0, {}
for pair in real_heads():
    Q, K = (X.astype(float) for X in (real_head(*pair).Q, real_head(*pair).K))
    now, then = lowrank.advise(Q, K), lowrank.advise(2 * unit(Q), unit(K), scale=1.0)
    P = exact.softmax(exact.scores(Q, K))
    off = np.linalg.norm(exact.softmax(2 * unit(Q) @ unit(K).T) - P) / np.linalg.norm(P)
    usable, changed[pair] = usable + (not now.exact_is_better), 100 * off
    rank = f"{now.rank:,}" if now.rank else "none"
    print(f"layer {pair[0]}, head {pair[1]:2}: σ = {now.logit_std:5.2f}, error of degree 4 "
          f"{now.errors[3]:5.1%}, rank for 1 % {rank:>14}; bounded: {then.rank:6,}, "
          f"weights change by {off:.0%}")
measured("17.6", heads=usable, percent=changed[0, 2])

# %% [markdown]
# None. The flattest head, layer 0, head 11, would need 76,904,685 features, for texts of 471 tokens; for the others it is billions, or no degree up to 12. (The head of layer 0 with $\sigma = 19.55$ looks at one token at a time; a polynomial of low degree is nothing like that.)
#
# With bounded logits 6,545 or 58,905 features would do, which is still more than the 512 tokens that this model can read. And the weights change by 35 to 99 percent: these are other heads now. A bound is nothing to be added afterwards. A model that is to use low rank has to be *trained* with it, and it has to have small $d$ as well: at $d = 8$ the same degrees 3 and 4 have 165 and 495 features.
# <!-- 6,545, 58,905, 165, 495 = (math.comb(d + g, g) for d in (32, 8) for g in (3, 4)) -->

# %%
print(f"degree 3: {comb(32 + 3, 3):,} features at d = 32, {comb(8 + 3, 3)} at d = 8; "
      f"degree 4: {comb(32 + 4, 4):,} and {comb(8 + 4, 4)}")

# %% [markdown]
# ## 17.7 A table: its metric
#
# The paper on multi-layer gradients, 2408.13233, has a table of measurements of the forward pass. $n$ is the number of tokens, which grows with $d$ as $n = 10 \cdot 2^d$:
#
# | $d$ | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 |
# | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
# | relative error, percent | 4.673 | 2.505 | 2.846 | 1.838 | 2.005 | 1.620 | 1.286 | 1.558 | 0.773 |
# | speed-up | 1.42 | 1.73 | 2.58 | 3.90 | 9.43 | 26.4 | 26.7 | 40.3 | 79.0 |
#
# Its authors have published the script (in `JamesSand/MultiLayer`). A script says exactly what a number means. This section reads its metric, the next one its operator, its data and its clock. The table's error of an approximation $x$ of $y$ is
#
# $$ e = \frac{\lVert x - y \rVert}{\lVert x + y \rVert} , \qquad\text{where the usual relative error is}\qquad u = \frac{\lVert x - y \rVert}{\lVert y \rVert} . \tag{17.5} $$
#
# If $x$ is close to $y$, then $x + y$ is close to $2y$, so $e$ is about half of $u$. How close to half, if only $e$ is known?
#
# <!-- exercise 17C --> Give the least and the largest usual error that go with a printed one. Both as fractions, not in percent; `float("inf")` where there is no limit. The triangle inequality is enough, and the range has to be as narrow as possible. If you are stuck after four minutes, run `hint("17C")` in a cell of your own.
# <!-- 4.673, 2.505, 2.846, 1.838, 2.005, 1.620, 1.286, 1.558, 0.773 from https://arxiv.org/abs/2408.13233 -->
# <!-- 1.42, 1.73, 2.58, 3.90, 9.43, 26.4, 26.7, 40.3, 79.0 from https://arxiv.org/abs/2408.13233 -->

# %% tags=["exercise"] name="ex-17C"
def my_usual_range(theirs):
    """The least and the largest |x - y| / |y| for a given |x - y| / |x + y|.

    theirs: a number of at least 0. Returns (least, largest).
    """
    ### BEGIN SOLUTION |x + y| lies between 2 - u and 2 + u times |y|
    least = 2 * theirs / (1 + theirs)
    largest = 2 * theirs / (1 - theirs) if theirs < 1 else float("inf")
    return least, largest
    ### END SOLUTION


# %% tags=["check"] name="check-17C"
check("17C", my_usual_range)

# %%
def print_ranges():
    for percent in (4.673, 0.773):
        least, largest = my_usual_range(percent / 100)
        print(f"printed {percent} percent: usual error between {least:.3%} and {largest:.3%}")


attempt(print_ranges);

# %% [markdown]
# So the 4.673 percent of the first row are between 8.929 and 9.804 percent in the usual metric, and the 0.773 of the last between 1.534 and 1.558. The metric is a legitimate one, symmetric in $x$ and $y$. It is not what a reader takes a relative error to be.

# %% [markdown]
# ## 17.8 Its operator, its data, its clock
#
# **The operator.** With $A = e^{QK^\top}$ and its row sums on the diagonal of $D$, softmax attention is $D^{-1}AV$. In the script the sums are transposed before the division, so that what is divided by the sum of row $j$ is *column* $j$: it computes $A D^{-1} V$. It does so in the exact and in the approximate code alike, so both are compared consistently; the comparison is of another operator. Here are the two on three tokens:

# %%
A = np.exp(np.array([[1.0, 0.0, -1.0], [0.5, 0.5, 0.0], [-1.0, 2.0, 0.0]]))
sums = A.sum(axis=1)
for name, weights in (("D⁻¹A", A / sums[:, None]), ("AD⁻¹", A / sums[None, :])):
    print(name, "rows sum to", np.round(weights.sum(axis=1), 3))

# %% [markdown]
# Rows of softmax weights sum to 1. Those of $AD^{-1}$ sum to 0.94, 0.901 and 1.924: its outputs are not means of values.
#
# **The data.** Queries and keys are normal, divided by $\sqrt d$, and the scores are not scaled again. So a score is a sum of $d$ products of variance $1/d^2$, and its standard deviation is $1/\sqrt d$: 0.5 in the first row, 0.29 in the last. The tokens do not come into it. From row to row of the table $n$ doubles *and* $d$ grows; which of the two brings the error down?
#
# **Predict.** Taylor's degree 2, softmax, the usual error. By what factor does it change from $n = 160$ to $n = 2560$ with $d = 4$, and by what factor from $d = 4$ to $d = 12$ with $n = 640$?

# %% tags=["predict"]
predict("17.8", more_tokens=1, more_columns=0.2)  #> predict("17.8", more_tokens=..., more_columns=...)

# %%
def error_of_degree_2(n, d, seeds=5):
    found = []
    for seed in range(seeds):
        q, k, v = np.random.default_rng(seed).standard_normal((3, n, d))
        S = q @ k.T / d  # both divided by √d
        o = exact.softmax(S) @ v
        found.append(np.linalg.norm(taylor_weights(S, 2) @ v - o) / np.linalg.norm(o))
    return np.mean(found)


here = {(n, d): error_of_degree_2(n, d)
        for n, d in ((160, 4), (640, 4), (2560, 4), (640, 8), (640, 12))}
for (n, d), error in here.items():
    print(f"n = {n:4}, d = {d:2}: σ = {d**-0.5:.2f}, error {error:.1%}")
measured("17.8", more_tokens=here[2560, 4] / here[160, 4],
         more_columns=here[640, 12] / here[640, 4])

# %% [markdown]
# Sixteen times the tokens change little, by a factor of 1.14, and if anything upwards. Three times the columns divide the error by 6.1. In the table it falls because $1/\sqrt d$ does. With $d$ fixed and $n$ growing it would stand still, as (15.6) and the Poisson rule say it must.
#
# Now the first rows themselves. Everything is drawn from one generator, row after row, $d = 4$ first. The features are those of degree 2 without collecting, $1 + d + d^2$ of them, and single precision throughout. If we have read the script correctly, the printed digits must come out.
# <!-- 6.1 = 1 / 0.1634 -->

# %%
def drawn_rows(last):
    """(d, q, k, v) of the published rows from d = 4 to `last`, arrays (n, d) in float32."""
    import torch

    source = torch.Generator().manual_seed(2)
    for d in range(4, last + 1):
        n = 10 * 2**d
        q, k, v = (torch.randn(1, 1, n, d, generator=source)[0, 0].numpy() for _ in range(3))
        yield d, q / d**0.5, k / d**0.5, v


def their_features(x):
    """1, x and all products of two entries over √2, shape (n, 1 + d + d²)."""
    squares = (x[:, :, None] * x[:, None, :]).reshape(len(x), -1) / 2**0.5
    return np.concatenate([np.ones_like(x[:, :1]), x, squares], axis=1)


def their_exact(q, k, v):
    A = np.exp(q @ k.T)
    return A @ (v / A.sum(axis=1)[:, None])


def their_algorithm(q, k, v):
    left, right = their_features(q), their_features(k)
    sums = left @ right.sum(axis=0)
    return left @ (right.T @ (v / sums[:, None]))


# %%
def theirs(x, y):
    return 100 * np.linalg.norm(x - y) / np.linalg.norm(x + y)


def usual(x, y):
    return 100 * np.linalg.norm(x - y) / np.linalg.norm(y)


def reproduce(last=7):
    print("d      n   their metric   usual, theirs   usual, softmax: Taylor 2   own 2   own 3")
    for d, q, k, v in drawn_rows(last):
        x, y = their_algorithm(q, k, v), their_exact(q, k, v)
        o = exact.softmax((q @ k.T).astype(float)) @ v
        taylor = taylor_weights((q @ k.T).astype(float), 2) @ v
        own = [lowrank.attention(q, k, v, degree=g, scale=1.0) for g in (2, 3)]
        print(f"{d} {len(q):6} {theirs(x, y):14.3f} {usual(x, y):15.3f}"
              f" {usual(taylor, o):26.3f} {usual(own[0], o):7.2f} {usual(own[1], o):7.2f}")


with_torch(reproduce);

# %% [markdown]
# 4.673, 2.505, 2.846, 1.838: digit for digit. (The other five rows come out as well; they take longer, and `iocourse bench lowrank` makes them.) Beside them the same approximation in the usual metric, 9.211 percent in the first row; then on softmax, with the same degree, 6.954 percent; then what each row's own polynomial of section 15.5 makes of degree 2 and of degree 3, 5.13 and 1.19. These two have 15 and 35 features in the first row, where the script has 21.
#
# **The clock.** The speed-ups are quotients of single runs, timed with `time.time()`, without a run before to warm up. What does that do? Time the same exact attention first once, then again:
# <!-- 15, 35, 21 = math.comb(6, 2), math.comb(7, 3), 1 + 4 + 4**2 -->

# %% tags=["nbval-ignore-output"]
def laps(count=9, n=1280, d=7):
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, n, d)).astype(np.float32) / d**0.5
    found = []
    for _ in range(count):
        start = time.perf_counter()
        their_exact(q, k, v)
        found.append(1000 * (time.perf_counter() - start))
    return found


first, *later = laps()
print(f"first run {first:.1f} ms; then median {np.median(later):.1f}, "
      f"from {min(later):.1f} to {max(later):.1f} ms")

# %% [markdown]
# What you see depends on your machine and on what else it does, so no number is quoted. A first run may pay for things that later ones do not: pages that the system hands out for the first time, threads that are started, code that is loaded. One lap tells nothing about the spread either. Worse for a quotient, what is paid may fall on one side of it only. So a comparison warms up both sides, interleaves them, repeats, and gives a median with the range; and it says how many threads both had.
#
# None of this shows that the idea is bad. It shows what the table is: a measurement of the forward pass of one operator, in one metric, on data whose scores shrink with $d$, timed once. (An early state of the repository also holds a log of a run on a GPU, in which the approximation is slower than exact attention in eight of nine rows. The script shows no synchronisation, without which a clock on the host says little about a GPU in either direction. We conclude nothing from it.)

# %% [markdown]
# ## 17.9 The table, redone
#
# So let us do it again with care: the same data; the published operator and metric beside true softmax and the usual error; the library's compiled passes with every check they make; against the faster of two exact attentions, the best one that writes its weights in place and PyTorch's; one run, the same threads for all, warm, interleaved, medians. That is `iocourse bench lowrank`, and its record is kept with the package.

# %%
lowrank_run = recorded("lowrank")
print(provenance(lowrank_run))


def print_redone(rows):
    print(" d       n    published  script here   g: error, their metric, speed-up, usual")
    for row in rows:
        shown = [one for one in row["degrees"] if one["g"] in (2, 3, 4)]
        best = "   ".join(f"{one['g']}: {one['judged_error']:.3f} {one['speedup']:6.1f}× "
                          f"{one['error']:.3f}" for one in shown)
        script = f"{row['their_speedup']:.1f}×" if row["their_speedup"] else "skipped"
        print(f"{row['d']:2} {row['n']:7,}  {row['published_error']:.3f} "
              f"{row['published_speedup']:5.2f}×  {script:>10}   {best}")


def above_published(rows, g):
    """Rows in which degree g has a smaller error and a larger speed-up than the table."""
    return sum(one["judged_error"] < row["published_error"]
               and one["speedup"] > row["published_speedup"]
               for row in rows for one in row["degrees"] if one["g"] == g)


if lowrank_run:
    print_redone(lowrank_run["forward"])
    for g in (2, 3, 4):
        count, rows = above_published(lowrank_run["forward"], g), len(lowrank_run["forward"])
        print(f"degree {g}: smaller error and larger speed-up than the table "
              f"in {count} of {rows} rows")

# %%
explore.lowrank_rows(lowrank_run)

# %% [markdown]
# The idea is better than the table: each monomial once instead of all products, each row's own polynomial, features that are made in a small tile and never stored. Three things to keep in mind when you read these speed-ups. They are against exact attention on the *same* CPU. They grow with $n$ because exact attention is quadratic, so a large factor can be had by choosing $n$. And the error to hold against the table's is that of softmax attention in the published metric, because the time is softmax attention's too; the usual error, about twice as large, stands last. The column "script here" is the published algorithm itself, written anew and timed in the same run against exact attention with its own operator.
#
# The gradient, which the paper is about and did not measure, the causal mask, and lengths up to a million tokens are in the same record:

# %%
explore.lowrank_scaling(lowrank_run)

# %% [markdown]
# **On a GPU** there is no recorded run yet. The library has Triton kernels for both passes, for all keys and under the causal mask; `traffic` counts their words, and the closed forms stand in `costs.lowrank_kernels`. What they take in time, on which chip, beside FlashAttention, is not known to this course, and no number stands here in its place. With a GPU at hand, `iocourse bench lowrank` fills the gap.
#
# **Others do it too.** Polynomials are one way to features among several. *Random features*, of the Performer's kind, draw directions $w$ and take $e^{w \cdot x - |x|^2/2}$, whose products are right on average. *Landmarks*, as in Nyström's method, compare everything with a few of the keys. *Linear attention* with $\mathrm{elu}(x) + 1$ takes as many features as there are columns, and does not try to be softmax. All of them, like ours, are products from the other end, so they differ in the features alone.
#
# **Predict.** $d = 8$, 1024 tokens, 495 features for each, which is degree 4 for us. Logits spread by 0.5. What is the relative error of random features, in percent? (Values are normal with mean 0, the hardest case; an answer of zeros has 100.)

# %% tags=["predict"]
predict("17.9", percent=5)  #> predict("17.9", percent=...)

# %%
def linear(left, right, v):
    return left @ (right.T @ v) / (left @ right.sum(axis=0))[:, None]


def contenders(q, k, v, m, rng):
    """Name and output of each with m features; degree 4 has 495 at d = 8."""
    w, marks = rng.standard_normal((m, q.shape[1])), k[:m]
    inner = np.linalg.pinv(np.exp(marks @ marks.T), rcond=1e-10, hermitian=True)
    yield "own polynomial", lowrank.attention(q, k, v, degree=4, scale=1.0)
    yield "landmarks", linear(np.exp(q @ marks.T) @ inner, np.exp(k @ marks.T), v)
    yield "random features", linear(*(np.exp(x @ w.T - (x * x).sum(axis=1, keepdims=True) / 2)
                                      for x in (q, k)), v)
    yield "elu + 1", linear(*(np.where(x > 0, x + 1, np.exp(x)) for x in (q, k)), v)


# %%
off_by = {}
for sigma in (0.25, 0.5, 1.0, 2.0):
    rng = np.random.default_rng(17)
    q, k, v = rng.standard_normal((3, 1024, 8))
    q, k = (x * sigma**0.5 / 8**0.25 for x in (q, k))
    o = exact.softmax(q @ k.T) @ v
    for name, found in contenders(q, k, v, 495, rng):
        off_by[sigma, name] = 100 * np.linalg.norm(found - o) / np.linalg.norm(o)
    print(f"σ = {sigma:4}: " + ", ".join(
        f"{name} {error:.3g} %" for (s, name), error in off_by.items() if s == sigma))
measured("17.9", percent=off_by[0.5, "random features"])

# %%
explore.lowrank_contenders(lowrank_run)

# %% [markdown]
# 34.6 percent for random features, where our polynomial leaves 0.718 and landmarks 1.15. At $\sigma = 0.25$ the order is the same and the distances are larger. At $\sigma = 1$ landmarks are ahead, 11.6 percent against 16.8, and at $\sigma = 2$ nobody is of use: 68.3 percent for the polynomial, and more than a third even for landmarks, which are nearly half of all keys here. (One draw: at $\sigma = 0.5$ three others change the first three numbers by up to 36 percent, and not their order.) Two remarks for fairness. Independent normal tokens suit polynomials at small $\sigma$; clustered ones would suit landmarks. And linear attention is a model of its own, to be trained as such, and never promised to be softmax. (The picture has more counts of features, as recorded: medians over draws of 2048 tokens. There random features with orthogonal directions are called FAVOR+ and landmarks Nyström.)
#
# ## 17.10 Choose and defend
#
# The last exercise takes the whole course. Somebody comes with a head and a chip: $N$ tokens, $d$ columns, $M$ words of fast memory; the standard deviation $\sigma$ of a row's logits, which are about normal; the largest relative error of $O$ that the model bears; and perhaps a window, if the model was trained to look $w$ tokens to either side and no farther. You answer with a schedule, its tiles, the words it moves, and what you claim about its error. Five schedules of the forward pass are on offer:
#
# | name in `costs` | computes | tile |
# | --- | --- | --- |
# | `flash_optimal`, F3 | attention to all keys, exactly | $B_c = 1$ and $B_r = \min\bigl(N, \lfloor (M - d)/(2d + 3) \rfloor\bigr)$ |
# | `small_cache`, F5 | the same | a square, $B_r = B_c = B_d = \lfloor\sqrt{M + 4}\rfloor - 2$, cut to $N$, $N$ and $d$ |
# | `window` | a window, by a ring of keys | none; `costs.window(N, d, w=w)` |
# | `block_sparse` | the same, by F3's order | $B_c = 1$, $B_r$ as in F3; `mask=masks.Window(N, w)` |
# | `low_rank` | about attention to all keys | $g$; any $B_d \le d + 1$ with $r_c = \min\bigl(r, \lfloor (M - d - B_d)/B_d \rfloor\bigr)$ |
#
# And five rules, each of which you have met:
#
# 1. A window belongs to the model. With one, `window` and `block_sparse` compute what was asked for, and the other three do not. Without one it is the other way round.
# 2. What is exact claims an error of 0. Low rank claims what the Poisson rule (15.10) gives for $\sigma$ and its degree, and the claim must not exceed the allowed error. The rule is about normal logits and the unclipped polynomial, so for $\sigma^2 > 0.8$ it claims nothing.
# 3. Nobody has told us a limit on the largest logit. So only even degrees are certified to have positive row sums (section 15.8).
# 4. The footprint, `peak` of the closed form, is at most $M$.
# 5. Fewest words win. At equal words exact attention wins: an approximation has to pay for its error.
#
# <!-- exercise 17D --> Write the choice. `costs.<name>(N, d, …)` gives a ledger for given tiles, with `total` and `peak`; the library's own choosers are not available here. The check has problems of every kind, some of which are traps for a chooser that looks at words alone. It recomputes your words from your tiles, your claim from your degree, and allows a tenth more words than the library's best tiles need. If you are stuck after fifteen minutes, run `hint("17D")` in a cell of your own.
# <!-- 2048 = recorded("lowrank")["panels"][0]["n"] -->

# %% tags=["exercise"] name="ex-17D"
def my_choice(N, d, M, sigma, error, w):
    """A schedule for this problem, and its defence.

    N, d, M: tokens, columns, words of fast memory. sigma: standard deviation of a row's
    logits. error: the largest relative error allowed. w: half width of the window, or None.
    Returns (name, tiles, words, claim): a name of the table; a dictionary such as
    {"Br": 4, "Bc": 1}, with "g", "rc" and "Bd" for low rank and {} for "window"; whole
    words; the relative error claimed, 0 for what is exact.
    """
    ### BEGIN SOLUTION every candidate that computes the right thing and fits; the smallest
    found = []  # (words, claim, name, tiles)

    def offer(name, tiles, claim=0.0, **problem):
        if min(tiles.values(), default=1) < 1:
            return
        ledger = getattr(costs, name)(N, d, **tiles, **problem)
        if ledger.peak <= M:
            found.append((ledger.total, claim, name, tiles))

    rows = {"Br": min(N, (M - d) // (2 * d + 3)), "Bc": 1}
    if w is not None:
        offer("window", {}, w=w)
        offer("block_sparse", rows, mask=masks.Window(N, w))
    else:
        offer("flash_optimal", rows)
        side = int((M + 4) ** 0.5) - 2
        offer("small_cache", {"Br": min(side, N), "Bc": min(side, N), "Bd": min(side, d)})
    if w is None and sigma**2 <= 0.8:
        g, claim = 0, 1.0
        while claim > error:
            g += 2
            tail = sum(sigma ** (2 * l) / factorial(l) for l in range(g + 1, g + 40))
            claim = (np.exp(-(sigma**2)) * tail) ** 0.5
        for Bd in range(1, d + 2):
            rc = min(comb(d + g, g), (M - d - Bd) // Bd)
            offer("low_rank", {"g": g, "rc": rc, "Bd": Bd}, claim)
    words, claim, name, tiles = min(found, key=lambda one: one[:2])
    return name, tiles, words, claim
    ### END SOLUTION


# %% tags=["check"] name="check-17D"
check("17D", my_choice)

# %% [markdown]
# Your choice for seven problems. The first four have the head of the published table's last row, and differ in the memory, in the error, and in the logits. The fifth is a head of a large language model, with logits kept small, on one multiprocessor of an H100, as in section 9.9; the sixth has a window; the seventh is the smallest chip of that section.

# %%
PROBLEMS = {
    "the table's last row": (40_960, 12, 16_384, 12**-0.5, 0.01, None),
    "less memory": (40_960, 12, 1024, 12**-0.5, 0.01, None),
    "a strict error": (40_960, 12, 16_384, 12**-0.5, 1e-6, None),
    "trained logits": (40_960, 12, 16_384, 1.5, 0.01, None),
    "a language model": (32_768, 128, 116_224, 0.8, 0.01, None),
    "and its window": (32_768, 128, 116_224, 0.8, 0.01, 400),
    "a very small chip": (8192, 128, 512, 0.8, 0.01, None),
}


def print_choices():
    for label, (N, d, *rest) in PROBLEMS.items():
        name, tiles, words, claim = my_choice(N, d, *rest)
        print(f"{label:21} {name:14} {words:13,} words = {words / (4 * N * d):6.2f} × 4Nd, "
              f"error {claim:.1e}, {tiles}")


attempt(print_choices);

# %% [markdown]
# With $\sigma = 1/\sqrt{12}$ the rule gives degree 2 an error of 0.95 percent, and the state of $91 \cdot 13 = 1183$ words fits in 16,384: $4Nd$. With 1,024 words it is cut into two tiles of columns, 1.54 times $4Nd$. An error of $10^{-6}$ would take degree 8, whose 125,970 features move more words than F3; with trained logits the rule claims nothing. Both get F3, at 34.5 times $4Nd$: that is the price of an answer without an if. The language model has small logits and wide rows: degree 6 at $d = 128$ has 7,177,979,809 features. Its window of 801 keys would fill 205,315 words, more than there are, so F3 passes hidden tiles over instead. And with 512 words for rows of 128 only square tiles are left.
#
# One more look at the first line. The claim is 0.95 percent of an allowed 1, for normal logits. Would you sign it? What would you ask for first?
#
# ## 17.11 In your own words
#
# The check has judged a choice. It cannot judge an argument, and nothing in this section is checked by a machine: it is for you, or for whoever you show it to.
#
# Take one problem that you care about: a model you use, a chip you have, a text of the length you need. Write one page: what you would run, and why not the others. Then go through it with this list, and give a point for each line that your page passes.
#
# | | point |
# | --- | --- |
# | **Sizes** | $N$, $d$, $M$ are stated in words, and it is said which memory $M$ is (lesson 14). |
# | | It is said which attention the model computes: all keys, causal, window, trained with what. |
# | **Ledger** | Words are given for the choice and for the best alternative, from a closed form or a run. |
# | | A lower bound stands beside them, with the class of schedules that it holds for; for an approximation, that only the compulsory one holds. |
# | **Error** | The metric is written as a formula, and what is compared with what. |
# | | What is claimed is measured, certified or predicted by a rule; it says which, and when the rule fails. |
# | **Logits** | Their spread was measured, or bounded by construction; not assumed. |
# | **Time** | No time is given without the machine, threads, warm-up, repeats and spread; or it says that nothing was timed. |
# | **Against oneself** | One fact is named that would overturn the choice, with the number at which it does. |
# | **Honesty** | What is not known is said to be not known. |
#
# Eight points are a defence. The one before the last is the hardest, and the most useful to a reader.
# <!-- 0.95 = 100 * math.sqrt(1 - math.exp(-1 / 12) * (1 + 1 / 12 + 1 / 12**2 / 2)) -->
# <!-- 1183, 125,970, 7,177,979,809 = math.comb(14, 2) * 13, math.comb(20, 8), math.comb(128 + 6, 6) -->
# <!-- 801, 205,315 = 2 * 400 + 1, costs.window(32_768, 128, w=400).peak -->

# %% [markdown]
# ## 17.12 What the course has shown, and what stays open
#
# **Shown**, each by a count that you can repeat:
#
# - Attention's words depend on the order of its loops and on its tiles: $12.25$ or $6.18$ times $N^2d^2/M$ for one order, $8.00$ or $4.10$ for another, with the sizes of a paper or with the best (lesson 04), and no order of the exact forward pass does better than 4 in the leading term, for $d^2 \ll M \ll Nd$ (lesson 05).
# - From $M = d^2$ down it pays to store the scores, below $d^2/4$ to cut $d$ as well: $4N^2d/\sqrt M + N^2$, where the 4 is again the best constant for $M \ll d^2$ (lesson 07).
# - The backward pass has 14, no schedule that moves whole rows has less, and none at all less than 12 (lesson 06); where everything fits, $7Nd + N$ (lesson 09).
# - A mask saves words where neighbours agree on their keys, down to $4Nd$ for any window whose keys fit, and next to nothing where pairs are drawn at random (lesson 08).
# - Kernels move what the closed forms say, to the word (lessons 10 to 13), and how much of that reaches DRAM is a matter of the order of programs (lesson 14).
# - With bounded logits and small $d$ attention and its gradient take a time that is linear in $N$, and the forward pass $4Nd$ words if the state fits; otherwise fewer words than exact attention from about half a rank to $1.4$ ranks on (lessons 15 and 16). The error can be certified or predicted beforehand, and at initial weights it grew no faster than about the square root of the depth (this lesson).
# - For the heads of the trained model that we have it is of no use, for none of the eight (this lesson).
#
# **Open**, as far as we know:
#
# - The two borders of the map, around $d^2$ and around $Nd$, where the best schedule and the best bound are a factor of 2 apart; and whether cutting rows can bring the backward pass below 14, down to 12 (section 9.8).
# - Constants for approximate attention. Lower bounds there are: the abstract of 2605.23751 announces them for each regime, with algorithms after Alman and Song whose words are almost linear in $N$. What a given error at a given $N$ and $d$ must cost, to the word, is another matter; (15.15) says it for one class and a given rank alone.
# - Depth with trained weights. Section 17.2 measured initial ones.
# - Training at scale with bounded logits: how much does a bound cost, and which bound costs nothing? Sections 17.3 and 17.5 show two small cases, one of which pays dearly.
# - The clock. Every number of this course about a GPU is a count of words, bytes or registers, unless a record with a name and a date stands beside it.
#
# You began with a claim that could not be checked, "FlashAttention uses memory efficiently", and a habit: to make it one that can. The habit is what the course would like to leave with you. The closed forms are in the library.
# <!-- unit = (2**22 * 64)**2 / 2**18 -->
# <!-- 12.25, 6.18 = (schedules.flash1.count(2**22, 64, 2**18, published=p).total / unit for p in (True, False)) -->
# <!-- 8.00, 4.10 = (schedules.flash2.count(2**22, 64, 2**18, published=p).total / unit for p in (True, False)) -->

# %% [markdown]
# ## Misconceptions
#
# - **"Errors of layers multiply."** In the worst case. Where a residual stream carries them along they add up like a random walk, 2.72 times after 8 layers (17.1).
# - **"The loss went down, so the approximation is good."** It went down for the polynomial. With softmax put in, the loss was 1.078 instead of 0.2798 (17.3).
# - **"Normalise queries and keys of a trained model, and low rank can be used."** The weights of our eight heads change by 35 to 99 percent (17.6).
# - **"A relative error is a relative error."** The printed 4.673 percent are 9.211 in the usual metric, and the same degree has 6.954 on softmax (17.8).
# - **"The error falls with the number of tokens."** With $d$ fixed it stands still; the table's falls because $1/\sqrt d$ does (17.8).
# - **"Fewest words is best."** Of what computes the right thing, within its error, in the memory there is (17.10).
#
# ## Take-away
#
# - Depth is no obstacle: at initial weights errors grow about like $\sqrt m$, or more slowly. Training is one, unless the architecture bounds the logits and the degree suits the bound.
# - Low rank wants small $d$ and small logits, and a model trained that way. Measure the spread before anything else.
# - Read a number with its metric, its operator, its data and its clock. Reproduce it before you criticise it.
# - A choice is a name, tiles, words and a claim. Each of the four can be checked.
#
# ## References
#
# - Y. Liang, Z. Sha, Z. Shi, Z. Song, Y. Zhou: *Multi-layer transformers gradient can be approximated in almost linear time*, 2024, [arXiv 2408.13233](https://arxiv.org/abs/2408.13233). The script of its table: [JamesSand/MultiLayer](https://github.com/JamesSand/MultiLayer), `low_rank_approx.py`.
# - A. Henry, P. R. Dachapally, S. Pawar, Y. Chen: *Query-key normalization for transformers*, 2020, [arXiv 2010.04245](https://arxiv.org/abs/2010.04245). With a temperature that is learned; here it is fixed.
# - K. Choromanski et al.: *Rethinking attention with Performers*, 2020, [arXiv 2009.14794](https://arxiv.org/abs/2009.14794). Random features that are positive; the Performer makes the directions orthogonal.
# - Y. Xiong et al.: *Nyströmformer*, 2021, [arXiv 2102.03902](https://arxiv.org/abs/2102.03902). Landmarks.
# - A. Katharopoulos, A. Vyas, N. Pappas, F. Fleuret: *Transformers are RNNs*, 2020, [arXiv 2006.16236](https://arxiv.org/abs/2006.16236). Linear attention.
# - J. Alman, Z. Song: *Fast attention requires bounded entries*, 2023, [arXiv 2302.13214](https://arxiv.org/abs/2302.13214).
# - P. A. Papp, A. Sobczyk, A. Zouzias: *Approaching I/O-optimality for approximate attention*, 2026, [arXiv 2605.23751](https://arxiv.org/abs/2605.23751). The abstract.
#
# **What comes next.** This was the last lesson. `iocourse count --list` names the schedules, `iocourse count` counts them, and a new one takes one file.
