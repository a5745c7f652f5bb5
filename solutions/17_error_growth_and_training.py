# %% [markdown]
# # 17 Error growth and training
#
# Lessons 15 and 16 approximated one attention and its gradient, and counted what that saves. A model is many attentions, one after the other, and it is trained. Do small errors stay small through twelve layers? Does a model that is trained with the approximation learn what it would have learned without? Which heads of a real model could use it at all? Most of these answers are less smooth than a theorem, and each can be checked. The last lesson of the course, [17b](17b_a_table_and_a_choice.ipynb), reads a published table with the same care, and ends with a choice.
#
# **What you will learn**
#
# - how the error of an approximation grows with the number of layers, and how to tell one law of growth from another;
# - what goes wrong in training when nothing bounds the logits, seen on a model with one parameter;
# - to bound logits by construction, with the gradient that belongs to it;
# - what a control is for; which heads of a trained model could use low rank, and what random features, landmarks and linear attention would leave of one.
#
# **Prerequisites**: lesson 15 (degrees, ranks). What is said of gradients rests on lesson 16. Signs and terms are on the [notation](notation.md) page.
#
# **Minutes**: <!-- minutes -->.
#
# <!-- exercises -->
#
# Exercises need NumPy only. Two cells differentiate or train a model and need PyTorch; without it they print the line that installs it, and the rest goes on.

# %% tags=["setup"]
import warnings
from importlib.util import find_spec
from math import factorial

import numpy as np

from iocourse import exact, lowrank
from iocourse.course import attempt, check, explore, hint, measured, predict
from iocourse.course.explore.models.lowrank_record import LIMITS, fastest, panels_of
from iocourse.data import real_head, real_heads
from iocourse.data.records import load_record, record_source
from iocourse.doctor import install_command
from iocourse.lowrank.baselines import FIELD, multiply_adds, svd_floor


def with_torch(work, *arguments):
    """work(*arguments); where PyTorch is not installed, None and a sentence."""
    if not find_spec("torch"):
        print("torch is not installed here:", install_command.command("torch"))
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
# <!-- (17.1) not evaluated: order of growth -->
#
# The three guesses, as multiples of the error of one layer, with $c = e$ for the worst case:

# %%
depths = range(1, 17)
guesses = {"the worst case, a factor of e a layer": [(m, np.exp(m - 1)) for m in depths],
           "one direction, m": [(m, m) for m in depths],
           "unrelated directions, √m": [(m, m**0.5) for m in depths]}
explore.curve({}, guesses, title="Three guesses at the error of m layers",
              xlabel="layers m", ylabel="times the error of one layer", log=(False, True))

# %% [markdown]
# At 16 layers they differ by 4, 16 and three million, so a measurement can tell them apart. 128 tokens, 4 heads of $d = 8$, random weights, and rows brought to mean 0 and variance 1 before each attention, as LayerNorm does. One stream goes through exact softmax, the other through Taylor's polynomial of degree 4.
#
# **Predict** (guess). How many times the error of the first layer is the error after 8 layers? Steps in one direction would give 8, a factor of $e$ a layer 1,097.
# <!-- 1,097 = math.exp(7) -->

# %% tags=["predict"]
predict("17.1", times=3)  #> predict("17.1", times=...)

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


stream = errors_over_layers(16)
for m in (1, 2, 4, 8, 16):
    print(f"{m:2} layers: error {stream[m - 1]:.2e}, {stream[m - 1] / stream[0]:.2f} times "
          f"that of one; √m = {m**0.5:.2f}")
measured("17.1", times=stream[7] / stream[0])

# %% [markdown]
# <details><summary>Which of the three guesses</summary>
#
# 2.72 times after 8 layers, 4.00 after 16: the square roots are 2.83 and 4. There is no trace of an exponential.
# <!-- 2.72 as output -->
#
# </details>
#
# Looking at numbers is one thing, a fit another. Two laws compete, $\text{error} \approx C m^a$ and $\text{error} \approx C e^{bm}$, and each is a straight line if one takes logarithms of the right things:
#
# $$ \log \text{error} = \log C + a \log m , \qquad \log \text{error} = \log C + b\,m . \tag{17.2} $$
# <!-- (17.2) not evaluated: definition -->
#
# <!-- exercise 17A --> Fit both by least squares in the logarithm of the error. Return $a$, $b$, and the name of the law that leaves the smaller sum of squares. A number of layers may occur several times, in any order. If you are stuck after five minutes, run `hint("17A")` in a cell of your own.

# %% [raw] name="about-17A"
# title = "Which law?"
# difficulty = 2
# importance = 4
# minutes = 8
# hints = [
#   "Take the logarithm of each law. What does the power law become, what the exponential law, and which number is the slope of a line?",
#   "The logarithm of the error against the logarithm of m is a line of slope a for a power law; against m it is a line of slope b for an exponential law. np.polyfit with degree 1 fits a line.",
#   "Fit both lines to the logarithms of the errors. For each line, sum the squares of the residuals: logarithm of the error - slope · position - constant. The smaller sum determines the law.",
# ]

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


def print_other_draws():
    draws = [errors_over_layers(16, seed) for seed in range(8)]
    exponents = [my_growth(list(range(1, 17)), draw)[0] for draw in draws]
    print(f"eight other draws: from m^{min(exponents):.2f} to m^{max(exponents):.2f}")


attempt(print_growth, "stream", list(range(1, 17)), stream)
attempt(print_other_draws)

# %% [markdown]
# <details><summary>The law, and its rival's rate</summary>
#
# $m^{0.48}$, by a fit over all 16 numbers. The rate of the exponential, 0.07, is what a least-squares line makes of a curve that bends; the law's name says not to believe it. (One draw of weights; eight others give exponents from 0.37 to 0.58.)
#
# </details>
#
# ## 17.2 Gradients through layers
#
# Training wants gradients, and these pass all layers twice, forward and back. `lowrank.transformer` holds a small transformer in PyTorch: attention of several heads, LayerNorm before each part, residual sums, a perceptron, and cross-entropy at the end. Its attention is whatever callable it is given. We compare the gradients by all parameters, in float64, with PyTorch's initial weights and 256 random tokens. Beside it stands a run with up to 12 layers, 1024 tokens, three seeds and three degrees, which is kept with the package. (Where none has been recorded, the cell says so.)
# <!-- depth = load_record("depth") -->
# <!-- 1024 = depth["layers"]["sizes"]["n"] -->
# <!-- "up to 12 layers" if max(depth["layers"]["sizes"]["layers"]) == 12 -->

# %%
def gradient_errors(m, degree, n=256):
    """Relative error of the gradient by all parameters of m layers."""
    import torch

    from iocourse.lowrank import character_model, transformer

    source = torch.Generator().manual_seed(0)
    tokens, wanted = torch.randint(64, (2, 1, n), generator=source)
    exact_attention = transformer.exactly(causal=False)
    model = transformer.transformer(transformer.Shape(64, n, m), exact_attention).double()

    def gradient(attend):
        model.attend = attend
        loss = character_model.loss_of(model(tokens), wanted)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])

    want = gradient(exact_attention)
    found = gradient(transformer.low_rank(degree, causal=False))
    return float((found - want).norm() / want.norm())


def gradients_here():
    found = {m: gradient_errors(m, 4) for m in (1, 2, 4, 8)}
    print("here, degree 4, layers and error:", {m: f"{e:.2e}" for m, e in found.items()})
    attempt(print_growth, "gradient", list(found), list(found.values()))


with_torch(gradients_here)
depth_run = load_record("depth")
print(record_source(depth_run))
for law in depth_run["layers"]["growth"] if depth_run else ():
    if law["what"] == "parameters" and law["gradient_degree"] == law["degree"]:
        closer = "power" if law["off_power"] < law["off_exponential"] else "exponential"
        print(f"degree {law['degree']}: m^{law['exponent']:.2f}; closer lies the {closer}")
explore.depth_errors(depth_run)

# %% [markdown]
# The gradient behaves as the stream does: $m^{0.45}$ here. In the record, where tokens and layers are more, it is 0.36 to 0.39. Nothing here proves a law, and a fit says which of two guesses lies closer. But (17.1) has a reason: the initial $W_O$ is symmetric about 0, so the errors that different layers make are orthogonal in expectation. And these are *initial* weights, with logits that spread by about a third. Depth as such is no obstacle.
# <!-- exponents = [law["exponent"] for law in depth["layers"]["growth"] if law["what"] == "parameters" and law["gradient_degree"] == law["degree"]] -->
# <!-- 0.36, 0.39 = min(exponents), max(exponents) -->
# <!-- "a fit says which of two guesses lies closer" if all(law["off_power"] < law["off_exponential"] for law in depth["layers"]["growth"] if law["what"] == "parameters") -->
# <!-- 0.45 as output -->

# %%
explore.depth_errors(load_record("depth"), what="trained")

# %% [markdown]
# Weights that have been trained are another case. A record has it for a model of characters with 4 layers. Also there the errors of layers in the gradient add in quadrature, within a factor of 0.82 to 1.10 in 54 cases. With free logits $\sigma$ grows in 200 steps to between 1.17 and 3.34, the error of each layer grows with it, and degree 6 leaves 21 to 38 percent. Within $\pm 2$ errors grow 5.8 to 13.1 times at nearly constant $\sigma$; degree 4 leaves at most 0.679 percent.
# <!-- 4 = load_record("depth")["trained_gradient"]["sizes"]["layers"] -->
# <!-- of_gradient = load_record("depth")["trained_gradient"]["rows"] -->
# <!-- of = lambda bound, step, key, *degrees: [row[key] for row in of_gradient if (row["bound"], row["step"]) == (bound, step) and row["degree"] in (degrees or (2, 4, 6))] -->
# <!-- ratios = [row["together"] / row["root_of_squares"] for row in of_gradient] -->
# <!-- 54, 0.82, 1.10 = len(ratios), min(ratios), max(ratios) -->
# <!-- "add in quadrature" if max(abs(ratio - 1) for ratio in ratios) < 0.2 -->
# <!-- 200 = of_gradient[-1]["step"] -->
# <!-- 1.17, 3.34 = min(map(min, of(None, 200, "sigma"))), max(map(max, of(None, 200, "sigma"))) -->
# <!-- "the error of each layer grows with it" if all(x < y < z for of_steps in zip(*(of(None, step, "alone") for step in (0, 60, 200))) for x, y, z in zip(*of_steps)) -->
# <!-- 21, 38 = 100 * min(of(None, 200, "together", 6)), 100 * max(of(None, 200, "together", 6)) -->
# <!-- growth = [last / first for first, last in zip(of(2, 0, "together"), of(2, 200, "together"))] -->
# <!-- 5.8, 13.1 = min(growth), max(growth) -->
# <!-- "at nearly constant $\sigma$" if max(max(row["sigma"]) / min(row["sigma"]) for row in of_gradient if row["bound"]) < 1.05 > max(map(max, of(2, 200, "sigma"))) / 0.705 -->
# <!-- 0.679 = 100 * max(of(2, 200, "together", 4)) -->

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
# **Predict** (guess). Degree 4 is trained: $\gamma$ goes where the loss *of the polynomial* is smallest, looking up to $\gamma = 128$. Then softmax is put in, with the same $\gamma$. What is the loss before, and after? (Always answering the mean would be about 1.)

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
# <details><summary>What the polynomial's γ is worth to softmax</summary>
#
# The polynomial is trained to a loss of 0.2798. With softmax in its place the same model has 1.078, worse than always answering the mean. Softmax itself would have reached 0.2023, at $\gamma = 13.45$. Nothing failed: no sum was negative, no number overflowed, the loss went down all the time. Only, it was the loss of another model. For large $\gamma$ degree 4 is $\gamma^4 c^4/24$ and little else, with $c = q \cdot k$; its weights $c^4/\sum c^4$ no longer depend on $\gamma$, and they are never very sharp. Sharper was better, so $\gamma$ grew until the end of the range. To softmax a $\gamma$ of 128 means: trust one key.
#
# Up to $\gamma = 2$ the two losses are alike, 0.7979 and 0.8009 there. Bounded logits make the approximation safe. In this problem they also make the model poor, exact or not: whoever bounds the logits decides how sharply a head may look.
#
# </details>
#
# ## 17.4 Logits that cannot grow
#
# Watching the logits during training is a repair. Better is a model in which they *cannot* grow, whatever the optimiser does. Give every query the length $R$ and every key the length 1:
#
# $$ \hat q_i = R\,\frac{q_i}{|q_i|}, \qquad \hat k_j = \frac{k_j}{|k_j|}, \qquad |\hat q_i \cdot \hat k_j| \le R . \tag{17.3} $$
# <!-- (17.3) not evaluated: entries of arrays -->
#
# This is *QK-norm*: queries and keys are normalised. The assumption of bounded entries has become a part of the architecture, and the certificate (15.5) on $[-R, R]$ holds for every logit that can ever occur. (The length of a query is all that is left of a temperature; it is fixed, not learned.)
#
# It needs a gradient. With $u = x/|x|$ and a length $\lambda$, the result $\hat x = \lambda u$ changes with $x$ only across $u$, and the slower the longer $x$ is:
# <!-- "slower the longer $x$ is" as definition -->
#
# $$ dx = \frac{\lambda}{|x|}\,\bigl(d\hat x - (u \cdot d\hat x)\,u\bigr) . \tag{17.4} $$
# <!-- (17.4) not evaluated: derivative -->
#
# <!-- exercise 17B --> Stretch all rows to a given length, and carry the gradient back by (17.4). There may be axes in front of the rows, for heads and texts. A row of zeros has no direction: it stays zero, and its gradient is zero. If you are stuck after six minutes, run `hint("17B")` in a cell of your own.

# %% [raw] name="about-17B"
# title = "Bounded logits"
# difficulty = 3
# importance = 5
# minutes = 10
# hints = [
#   "If a row is scaled by a factor, how does Y change? What does this say about the component of dX along the row?",
#   "Let u be the row divided by its length. Y is length times u. dX is dY without its component along u, divided by the length of the row, times the requested length.",
#   "The component of dY along u is the sum of their product over the last axis (with keepdims), times u. Rows of zeros have no direction: divide them by 1 instead, and set their gradient to zero.",
# ]

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
#
# ## 17.5 A model that reads characters
#
# Now a real training, if a small one: two layers, 8 heads of $d = 8$, one stretch of 256 characters a step, causal, on the sentences of this course. Three times with the same first weights and the same batches, and logits within $\pm 2$ by (17.3): exact, with degree 4, and with *uniform* weights, which is degree 0, the mean of all values so far. The last is a control: it says what a difference of losses is worth. 40 steps are run here.

# %%
def trained(attention, steps, bound=2.0):
    """The losses of a model that attends like this; attention(transformer) makes it."""
    from iocourse.lowrank import character_model, transformer

    text = character_model.prose()
    shape = transformer.Shape(len(text.alphabet), 256, layers=2, bound=bound)
    model = transformer.transformer(shape, attention(transformer))
    return character_model.train(model, text, range(steps), batch=1)


# %% [markdown]
# **Predict** (guess). The loss falls from about 4.5 to below 3. How far from the exact curve do the other two go, at most, in 40 steps?

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
# <details><summary>Two differences, and what the second says of the first</summary>
#
# Degree 4 stays within 0.001. That would be a fine result, were it not for the control: uniform weights stay within 0.02, although they are as bad an approximation as can be. In 40 steps a model learns which characters are frequent, and has hardly begun to use its attention. So all that has been shown here is that nothing breaks. An experiment needs a control that *could* fail.
#
# </details>
#
# `python -m tools.bench depth` trains 400 steps, with three layers and 512 characters, with logits within $\pm 2$, within $\pm 4$, and free, with several polynomials each, and with uniform weights. Afterwards each model reads text that was kept from it, once with its own attention and once with exact softmax. Three things to look for: the largest difference to the exact training under the same bound, beside that of uniform weights; the gap between the last two columns, which is what section 17.3 warned of; and the exact rows under the three bounds, for what the bound itself costs.
# <!-- 400, 512 = depth["training"]["sizes"]["steps"], depth["training"]["sizes"]["n"] -->
# <!-- "three layers" if depth["training"]["sizes"]["layers"] == 3 -->
# <!-- "within $\pm 2$, within $\pm 4$, and free" if depth["training"]["sizes"]["bounds"] == [2, 4, None] -->

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


print(record_source(depth_run))
if depth_run:
    print_trainings(depth_run["training"]["runs"])
    print("\n".join(summary(depth_run["training"]["runs"])))

# %%
explore.training_curves(depth_run, bound=None)

# %% [markdown]
# In the picture the logits are free. For some sixty steps even uniform weights keep up; then they hardly learn any more, and the polynomials leave the exact curve, downwards.
#
# Where putting softmax in costs something, the model has learned *polynomial attention*. That may be a good model: with free logits each polynomial reads the kept text better than exact attention does. But it is no longer an approximation of anything. Whoever wants to train with one attention and serve with another has to bound the logits, and to take a degree that suits the bound: within $\pm 4$ degree 2 is not enough.
# <!-- runs = depth["training"]["runs"] -->
# <!-- own = {(run["bound"], run["attention"], run["degree"]): run["validation_own"] for run in runs} -->
# <!-- "with free logits each polynomial reads the kept text better than exact attention does" if all(run["validation_own"] < own[None, "exact", None] < run["validation_exact"] for run in runs if run["bound"] is None and run["degree"]) -->
# <!-- gaps = {(bound, g): max(run["validation_exact"] - run["validation_own"] for run in runs if (run["bound"], run["degree"]) == (bound, g)) for bound in (2, 4) for g in (2, 4)} -->
# <!-- "within $\pm 4$ degree 2 is not enough" if gaps[4, 2] > 10 * max(gaps[4, 4], gaps[2, 2], gaps[2, 4]) -->
# <!-- worth = [own[bound, "uniform", None] - own[bound, "exact", None] for bound in (2, 4, None)] -->
# <!-- "within $\pm 2$ most of what attention was worth is gone" if worth == sorted(worth) and worth[0] < worth[2] / 2 -->
#
# The other side is the distance from exact attention to uniform weights. The tighter the bound, the smaller it is, and within $\pm 2$ most of what attention was worth is gone. That is the price from section 17.3, in a model with more than one parameter. And keep in mind what kind of evidence this is: one seed, one small text, 400 steps. It is a demonstration of what can go well and what can go wrong; it is no benchmark.
#
# ## 17.6 Real heads, and other features
#
# The course ships eight heads of a trained model with $d = 32$, whose logits nothing bounds, and lesson 15 found that they spread widely. Let `lowrank.advise` say what 1 percent would take, at the 471 tokens of our text. And in a second step, let us bound their logits afterwards, by (17.3) with $R = 2$, and look at two things: what low rank would then take, and how much of the head is left.
# <!-- 1 as input -->
#
# **Predict** (guess). For how many of the eight is low rank the better choice, as they were trained? And for the sharp head of lesson 08, layer 0, head 2: by how many percent do its weights change (relative to their norm) when its logits are bounded?
# <!-- 471 = len(real_head(0, 11).Q) -->

# %% tags=["predict"]
predict("17.6a", heads=1, percent=50)  #> predict("17.6a", heads=..., percent=...)

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
measured("17.6a", heads=usable, percent=changed[0, 2])

# %% [markdown]
# <details><summary>How many heads, and what a bound afterwards does</summary>
#
# None. The flattest head, layer 0, head 11, would need 76,904,685 features, for texts of 471 tokens; for the others it is billions, or no degree up to 12. (The head of layer 0 with $\sigma = 19.55$ looks at one token at a time; a polynomial of low degree is nothing like that.)
#
# With bounded logits 6,545 or 58,905 features would do, which is still more than the 512 tokens that this model can read. And the weights change by 35 to 99 percent: these are other heads now. A bound is nothing to be added afterwards. A model that is to use low rank has to be *trained* with it, and it has to have small $d$ as well: at $d = 8$ the same degrees 3 and 4 have 165 and 495 features.
#
# </details>
# <!-- 6,545, 58,905, 165, 495 = (math.comb(d + g, g) for d in (32, 8) for g in (3, 4)) -->
# <!-- 35, 99 as output -->
#
# ### Other features
#
# Polynomials are one way to features among several. Would others serve these heads? Five of the methods in `iocourse.lowrank.baselines`, each a few lines:
#
# - *SATA*, of Heinsen and Kozachkov (2602.00294), takes the monomials that we take, each once, with Taylor's coefficients;
# - *FAVOR+*, of the Performer, draws orthogonal directions $w$ and takes $e^{w \cdot x - |x|^2/2}$, whose products are right on average;
# - *Nyström's* method takes the exponential itself, at a few of the keys, its landmarks;
# - *WildCat*, of Schröder and Mackey (2602.10056), picks such keys by a randomly pivoted Cholesky factorisation, and gives them the best weights;
# - *linear attention* with $\mathrm{elu}(x) + 1$ takes as many features as there are columns, and does not try to be softmax.
#
# All of them, like ours, are products from the other end, so they differ in the features alone. Ours beside them: known features, own coefficients, certificates and a gradient.
#
# **Predict** (guess). $d = 8$, 1024 tokens, 495 features for each, which is degree 4 for us. Logits spread by 0.5. What is the relative error of random features, in percent? (Values are normal with mean 0, the hardest case; an answer of zeros has 100.)

# %% tags=["predict"]
predict("17.6b", percent=5)  #> predict("17.6b", percent=...)

# %%
# Where a degree is too low for the logits the library warns. Here we measure what it costs.
warnings.filterwarnings("ignore", "degree . is too low", RuntimeWarning)


FIVE = ("SATA", "WildCat", "Nyström", "FAVOR+", "elu + 1")


def contenders(q, k, v, m, rng):
    """Name and output of each with m features; degree 4 has 495 at d = 8."""
    yield "own polynomial", lowrank.attention(q, k, v, degree=4, scale=1.0)
    for name in FIVE:
        yield name, FIELD[name](q, k, v, m, rng)
    yield "mean of V", np.broadcast_to(v.mean(axis=0), v.shape)  # the control


# %%
def errors_at(sigma, seed=17):
    """Percent of error by name, of one draw whose logits spread by sigma."""
    rng = np.random.default_rng(seed)
    q, k, v = rng.standard_normal((3, 1024, 8))
    q, k = (x * sigma**0.5 / 8**0.25 for x in (q, k))
    o = exact.softmax(q @ k.T) @ v
    return {name: 100 * np.linalg.norm(found - o) / np.linalg.norm(o)
            for name, found in contenders(q, k, v, 495, rng)}


off_by = {sigma: errors_at(sigma) for sigma in (0.25, 0.5, 1.0, 2.0)}
for sigma, errors in off_by.items():
    said = ", ".join(f"{name} {error:.3g} %" for name, error in errors.items())
    print(f"σ = {sigma:4}: {said}")
drawn = [errors_at(0.5, seed)["FAVOR+"] for seed in range(3)]
print("random features in other draws:", *(f"{error:.3g} %" for error in drawn))
measured("17.6b", percent=off_by[0.5]["FAVOR+"])

# %% [markdown]
# <details><summary>Random features beside the others</summary>
#
# 75 percent for random features in this draw, and 29.4 to 60.3 in three others: their tails are heavy. Our polynomial leaves 0.718 percent. SATA has the same monomials, and 1.91: that is what a row's own coefficients are worth here. With half of all keys WildCat is the best at every spread, 0.421 percent here, and at $\sigma = 2$ still 10.7, where polynomials have 68.3 and more. So many chosen keys say more than monomials that nobody chose. The choice has its price: picking $m$ of $N$ keys takes about $m^2N/2$ multiply-adds, one key after the other, here 125,452,800, before anything is multiplied by a value. Polynomials pick nothing, and their degree is chosen before the data come.
#
# </details>
# <!-- 125,452,800 = 495**2 * 1024 // 2 -->
# <!-- 75, 0.718, 0.421 as output -->
#
# And the eight stored heads? SATA and ours have degree 1 there, 33 features. The others get 235, half as many as there are keys:

# %%
def own(q, k, v, degree):
    """Low rank's output, or NaN where it refuses: a row sum might not be positive."""
    try:
        return lowrank.attention(q, k, v, degree=degree, scale=1.0, engine="numpy")
    except lowrank.NotCertified:
        return np.full_like(v, np.nan)


def in_words(error):
    return "refuses" if np.isnan(error) else f"{error:.3g} %" if error < 100 else "over 100 %"


def on_heads(m=235):
    for layer, number in real_heads():
        h = real_head(layer, number)
        q, k, v = h.Q / 32**0.5, h.K, h.V
        o = exact.softmax((q @ k.T).astype(float)) @ v
        found = {"ours": own(q, k, v, degree=1)}
        found |= {name: FIELD[name](q, k, v, m, np.random.default_rng(17)) for name in FIVE}
        found["mean of V"] = np.broadcast_to(v.mean(axis=0), v.shape)
        size = np.linalg.norm(o)
        off = {name: 100 * np.linalg.norm(x - o) / size for name, x in found.items()}
        sigma = (q @ (k - k.mean(axis=0)).T).std()
        print(f"head {layer}.{number:<2} σ = {sigma:5.2f}: "
              + ", ".join(f"{name} {in_words(error)}" for name, error in off.items()))


on_heads()

# %% [markdown]
# On the flattest head our 33 features leave 4.49 percent, less than any of these five methods with 235 features. SATA's same monomials leave 99.9: without the mean taken off the keys, row sums come near zero, and then anything may come out. On head 0.2 ours refuses. On six of the others WildCat is ahead, between 5.73 and 73.6 percent with half of all keys. Exact attention is what seven of them want, at 471 tokens and at any length that this model can read.
# <!-- 4.49, 5.73, 73.6 as output -->
#
# Is low rank impossible here, or do monomials not find it? The singular value decomposition of the softmax weights gives their best approximation of each rank, if all weights are known. The next cell compares the error in $O$ of that matrix with ours, with WildCat, and with *centroids*: means of clusters of keys, weighted by the number of keys.

# %%
def percent_off(found, o):
    return 100 * np.linalg.norm(found - o) / np.linalg.norm(o)


names = ("rank 33", "rank 235", "ours 33", "ours 561", "WildCat", "centroids")
print("head     σ ", *(f"{name:>10}" for name in names))
for layer, number in real_heads():
    h = real_head(layer, number)
    q, k, v = h.Q / 32**0.5, h.K, h.V
    P = exact.softmax(q @ k.T)
    errors = [100 * svd_floor(P, r, v) for r in (33, 235)]
    errors += [percent_off(own(q, k, v, degree), P @ v) for degree in (1, 2)]
    errors += [percent_off(FIELD[name](q, k, v, 235, np.random.default_rng(17)), P @ v)
               for name in ("WildCat", "centroids")]
    sigma = (q @ (k - k.mean(axis=0)).T).std()
    print(f"{layer}.{number:<3} {sigma:5.2f} ", *(f"{in_words(error):>10}" for error in errors))
for name, m in (("exact", 1), ("low rank", 33), ("low rank", 561),
                ("WildCat", 235), ("centroids", 235)):
    print(f"{name:9} {m:3} {multiply_adds(name, 471, 471, 32, 32, m):12,} multiply-adds")

# %% [markdown]
# The last two heads, with $\sigma$ of 1.23 and 1.42, are close to rank 33: the best matrix of that rank has errors of 6.96 and 3.29 percent. Our 33 monomials have 55.4 and 63.4 percent, and even 561 have 51.7 and 37.8, because low degree is not low rank. At $d = 32$ degree 2 cannot save anything for these heads in any case: its 561 features are more than the 471 tokens. Centroids are closer to the best matrix, and more accurate than WildCat on six of the eight heads. But with 235 features WildCat takes 57,565,443 multiply-adds here, centroids 18,674,208, and exact attention 14,197,824.
# <!-- 6.96, 3.29, 55.4, 63.4, 51.7, 37.8 as output -->
# <!-- 57,565,443, 18,674,208, 14,197,824 as output -->
# <!-- 561, 471 = math.comb(34, 2), len(real_head(0, 11).Q) -->
#
# Time is the other side. A recorded run, over draws of 2048 tokens, says who was the fastest below an error; where nobody is accurate enough, exact attention is left:
# <!-- 2048 = load_record("lowrank")["panels"][0]["n"] -->
# <!-- "who was the fastest" if {one["n"] for one in load_record("lowrank")["panels"]} == {2048} -->
# <!-- 471 = len(real_head(0, 11).Q) -->

# %%
lowrank_run = load_record("lowrank")
print(record_source(lowrank_run))
if lowrank_run:
    found = panels_of([*lowrank_run["panels"], *lowrank_run.get("heads", [])])
    for problem, rows in found.items():
        for limit in LIMITS:
            one = fastest(rows, limit)
            said = "nobody"
            if one:
                count = one["features"] or "no"
                said = f"{one['contender']}, {count} features, {one['ms']:.3g} ms"
            print(f"{problem}, at most {limit:g} %: {said}")
explore.lowrank_baselines(lowrank_run)

# %% [markdown]
# At spreads of 0.25 and 0.5, from 45 to 495 features, a quarter of these keys, no other method is as accurate as our polynomial with the same number. With 165 and 495 features all others take longer. Taylor's coefficients in the same passes are less accurate. From a spread of 1 on exact attention is the fastest at errors of 1 and 0.1 percent; WildCat's 495 features, below 10 percent at a spread of 1, take longer. Of the heads only the flattest may have another winner, and at 10 percent alone: our 33 features (at degree 1 Taylor's coefficients are our own). Exact attention is the fastest of several exact runs that section 17.9 describes, on heads as on draws. The mean of $V$, the control, is one feature.
# <!-- 33, 495 = math.comb(33, 1), math.comb(12, 4) -->
# <!-- record, model = load_record("lowrank"), course.explore.models.lowrank_record -->
# <!-- 10 = model.LIMITS[0] -->
# <!-- panels, heads = model.panels_of(record["panels"]), model.panels_of(record["heads"]) -->
# <!-- narrow = [rows for name, rows in panels.items() if rows[0]["spread"] < 1] -->
# <!-- ours = lambda rows, count: min((one for one in rows if one["contender"] == "Hermite (ours)" and one["features"] == count), key=lambda one: one["ms"]) -->
# <!-- "no other method is as accurate as our polynomial" if all(ours(rows, one["features"])["error"] < one["error"] for rows in narrow for one in rows if one["features"] in (45, 165, 495) and "our" not in one["contender"]) -->
# <!-- "all others take longer" if all(ours(rows, one["features"])["ms"] < one["ms"] for rows in narrow for one in rows if one["features"] in (165, 495) and "our" not in one["contender"]) -->
# <!-- 165 = math.comb(11, 3) -->
# <!-- "Taylor's coefficients in the same passes are less accurate" if all(ours(rows, one["features"])["error"] < one["error"] for rows in narrow for one in rows if one["features"] in (45, 165, 495) and "Taylor" in one["contender"]) -->
# <!-- 1, 0.1 = model.LIMITS[1:] -->
# <!-- "exact attention is the fastest at errors of 1 and 0.1 percent" if all(model.fastest(rows, limit)["features"] is None for rows in panels.values() if rows[0]["spread"] >= 1 for limit in model.LIMITS[1:]) -->
# <!-- wild = [(one, rows) for rows in panels.values() for one in rows if (one["spread"], one["contender"], one["features"]) == (1, "WildCat", 495)] -->
# <!-- "WildCat's 495 features, below 10 percent" if all(one["error"] < 10 and one["ms"] > model.fastest_exact(rows)["ms"] for one, rows in wild) and len(wild) == 1 -->
# <!-- winners = {(name.split()[1], limit) for name, rows in heads.items() for limit in model.LIMITS if model.fastest(rows, limit)["features"]} -->
# <!-- "only the flattest may have another winner, and at 10 percent alone" if winners <= {("0.11,", 10)} -->
# <!-- "the fastest of several exact runs" if all(sum(one["features"] is None for one in rows) > 1 for rows in [*panels.values(), *heads.values()]) -->
# <!-- "is one feature" if all(one["features"] == 1 for rows in panels.values() for one in rows if one["contender"] == "mean of V") -->
#
# So each has its place. Small $d$ and bounded logits: a polynomial, for its time. Larger logits, or keys in clusters: a chosen coreset, for its size. Short texts and trained heads: exact attention. And linear attention is a model of its own, which never promised to be softmax.
#
# ## Misconceptions
#
# - **"Errors of layers multiply."** In the worst case. Where a residual stream carries them along they add up like a random walk (17.1).
# - **"The loss went down, so the approximation is good."** It went down for the polynomial; ask what softmax makes of the same weights (17.3).
# - **"The curves agree, so the approximation is good."** Ask what uniform weights would have done (17.5).
# - **"Normalise queries and keys of a trained model, and low rank can be used."** Then they are other heads (17.6).
#
# ## Take-away
#
# - Depth is no obstacle: at initial weights errors grow about like $\sqrt m$, or more slowly. Training is one, unless the architecture bounds the logits and the degree suits the bound.
# - Low rank wants small $d$ and small logits, and a model trained that way. Measure the spread before anything else.
# - An experiment needs a control that could fail.
#
# ## References
#
# - Y. Liang, Z. Sha, Z. Shi, Z. Song, Y. Zhou: *Multi-layer transformers gradient can be approximated in almost linear time*, 2024, [arXiv 2408.13233](https://arxiv.org/abs/2408.13233).
# - A. Henry, P. R. Dachapally, S. Pawar, Y. Chen: *Query-key normalization for transformers*, 2020, [arXiv 2010.04245](https://arxiv.org/abs/2010.04245). With a temperature that is learned; here it is fixed.
# - K. Choromanski et al.: *Rethinking attention with Performers*, 2020, [arXiv 2009.14794](https://arxiv.org/abs/2009.14794). Random features that are positive; the Performer makes the directions orthogonal.
# - Y. Xiong et al.: *Nyströmformer*, 2021, [arXiv 2102.03902](https://arxiv.org/abs/2102.03902). Landmarks.
# - T. Schröder, L. Mackey: *WildCat: near-linear attention in theory and practice*, 2026, [arXiv 2602.10056](https://arxiv.org/abs/2602.10056). The abstract, and the code, [microsoft/wildcat](https://github.com/microsoft/wildcat).
# - F. A. Heinsen, L. Kozachkov: *Self-attention at constant cost per token via symmetry-aware Taylor approximation*, 2026, [arXiv 2602.00294](https://arxiv.org/abs/2602.00294). SATA.
# - A. Katharopoulos, A. Vyas, N. Pappas, F. Fleuret: *Transformers are RNNs*, 2020, [arXiv 2006.16236](https://arxiv.org/abs/2006.16236). Linear attention.
# - J. Alman, Z. Song: *Fast attention requires bounded entries*, 2023, [arXiv 2302.13214](https://arxiv.org/abs/2302.13214).
#
# **What comes next.** <!-- next -->
# <!-- 0.25, 0.5 = sorted({one["spread"] for one in record["panels"]})[:2] -->
