"""Random problems for distributed schedules, and their expected results."""

import numpy as np
from hypothesis import strategies as st

from iocourse import distributed, exact

NAMES = tuple(distributed.REGISTRY)
HEADED = tuple(name for name in NAMES if distributed.get(name).heads)


def divisors(P):
    return [a for a in range(1, P + 1) if P % a == 0]


@st.composite
def sizes(draw, name, most_ranks=12, most_rows=70):
    """Draw (P, N, d, options of the schedule): usually ragged, sometimes with fewer rows than ranks."""
    schedule = distributed.get(name)
    P, d = draw(st.integers(1, most_ranks)), draw(st.integers(1, 5))
    N = draw(st.integers(1, most_rows))
    told = {"a": draw(st.sampled_from(divisors(P)))} if "a" in schedule.options else {}
    if schedule.heads:
        told["H"] = P // told.get("a", 1) * draw(st.integers(1, 2))
    elif schedule.pass_ == "states":
        told["r"] = draw(st.integers(1, 6))
    elif draw(st.booleans()):
        told["H"] = draw(st.integers(1, 3))
    if name == "decode":
        told["m"] = draw(st.integers(1, 3))
    if name == "packed":
        cuts = sorted(draw(st.lists(st.integers(0, N), max_size=5)))
        told["texts"] = tuple(int(n) for n in np.diff([0, *cuts, N]))
        told["layout"] = placement(draw(st.lists(st.integers(0, P - 1), min_size=N, max_size=N)), P)
    return P, N, d, told


def placement(owners, P):
    """Return the rows of each rank as ranges, from the owner of each row."""
    rows = [np.flatnonzero(np.array(owners) == rank) for rank in range(P)]
    runs = [np.split(own, np.flatnonzero(np.diff(own) > 1) + 1) if len(own) else [] for own in rows]
    return tuple(tuple(range(int(run[0]), int(run[-1]) + 1) for run in own) for own in runs)


def settings_of(schedule, told):
    """Return the options that `run` of the schedule gets in addition to the arrays."""
    return {name: value for name, value in told.items() if name in (*schedule.options, "layout")}


def arrays_of(schedule, N, d, told, seed):
    """Return random inputs; for a backward pass with the O and LSE of its forward pass."""
    rng = np.random.default_rng(seed)
    given = {name: rng.standard_normal(shape) for name, shape in schedule.shapes(N, d, **told).items()}
    if schedule.pass_ == "states":
        given["Q"], given["K"] = np.abs(given["Q"]), np.abs(given["K"])
    if "LSE" in given:
        S = exact.scores(heads_first(given["Q"]), heads_first(given["K"]))
        given["O"] = heads_first(exact.softmax(S) @ heads_first(given["V"])).copy()
        given["LSE"] = exact.log_sum_exp(S).T.copy()
    return given


def heads_first(a):
    return a.swapaxes(0, 1) if a.ndim == 3 else a


def expected(schedule, given, told):
    """Return the exact value of the first output of the schedule; of all outputs for a backward pass."""
    Q, K, V = (heads_first(given[name]) for name in "QKV")
    if schedule.pass_ == "backward":
        return tuple(map(heads_first, exact.attention_backward(Q, K, V, heads_first(given["dO"]))))
    if schedule.pass_ == "states":
        S = Q @ K.T if schedule.name == "states" else np.tril(Q @ K.T)
        return (S @ V / S.sum(axis=1, keepdims=True),)
    return (heads_first(exact.attention(Q, K, V, mask=mask_of(schedule, len(given["K"]), told))),)


def mask_of(schedule, N, told):
    if schedule.pass_ not in ("causal", "packed"):
        return None
    text = np.repeat(range(len(told.get("texts", (N,)))), told.get("texts", (N,)))
    return np.where((np.tri(N) > 0) & (text[:, None] == text), 0.0, -np.inf)


def worst_error(run, wanted):
    return max(exact.max_abs_error(got, want) for got, want in zip(run.outputs, wanted, strict=False))
