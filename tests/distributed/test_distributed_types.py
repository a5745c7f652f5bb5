"""Types of arrays between ranks: what is sent arrives in its type, and sums of 16-bit arrays are float32."""

import collections

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from distributed_cases import (
    NAMES,
    arrays_of,
    divisors,
    expected,
    placement,
    settings_of,
    worst_error,
)
from long_runs import many

from iocourse import distributed, exact
from iocourse.distributed import partial_attention
from iocourse.distributed.shape_arrays import ShapeArray

TYPES = ("float64", "float32", "bfloat16", "float16")
UNIT = {"float64": 2.0**-53, "float32": 2.0**-24}  # of a sum of 16-bit numbers: that of float32
STRICT = tuple(name for name in NAMES if not distributed.get(name).any_layout)


def in_type(given, kind):
    """Return the arrays in a type, and their values in float64. LSE is saved at least in float32."""
    typed, values = {}, {}
    for name, x in given.items():
        if not isinstance(x, np.ndarray):
            typed[name] = values[name] = x
            continue
        own = "float32" if name == "LSE" and kind.endswith("16") else kind
        t = torch.from_numpy(x.copy()).to(getattr(torch, own))
        typed[name] = t if own == "bfloat16" else t.numpy()
        values[name] = t.double().numpy()
    return typed, values


def bound(schedule, P, values, kind):
    """Return a bound on the error of any output against float64, derived from the rounding of its type.

    With unit u, a score is a sum of d products: its error is at most u(d + 4)·max(|Q||K|ᵀ), which changes a
    weight by the factor e^δ at most. A sum over m keys adds a relative error of um, and a merge of P partial
    results 6uP. Gradients have two such sums more. A 16-bit type has no place in it, because u is float32's.
    """
    u = UNIT.get(kind, UNIT["float32"])
    Q, K = (np.abs(values[name]) for name in "QK")
    d, m = Q.shape[-1], len(K)
    largest = d * Q.max(initial=0) * K.max(initial=0)
    if schedule.pass_ == "states":  # weights are products: only relative errors, of sums of positive numbers
        return 4 * u * (d + m + P + 8) * np.abs(values["V"]).max(initial=1)
    delta = u * (d + 4) * largest + 4 * u * (1 + largest)
    relative = np.expm1(2 * delta) + u * (2 * m + 6 * P + 16)
    if schedule.pass_ != "backward":
        return relative * np.abs(values["V"]).max(initial=1)
    size = np.prod([1 + d * np.abs(values[name]).max(initial=1) for name in ("V", "dO")])
    return relative * 4 * (1 + max(Q.max(initial=0), K.max(initial=0))) * m * size


def drawn(rng, name, most_ranks, most_rows):
    """Draw (P, N, d, options, layout) of a schedule, ragged, with a layout that it may not be written for."""
    schedule = distributed.get(name)
    P, d = int(rng.integers(1, most_ranks + 1)), int(rng.integers(1, 9))
    N = int(rng.integers(1, most_rows + 1))
    told = {"a": int(rng.choice(divisors(P)))} if "a" in schedule.options else {}
    if schedule.heads:
        told["H"] = int(rng.integers(1, 2 * P + 1))  # often not to be shared out
    elif schedule.pass_ == "states":
        told["r"] = int(rng.integers(1, 7))
    elif rng.random() < 0.5:
        told["H"] = int(rng.integers(1, 4))
    if name == "decode":
        told["m"] = int(rng.integers(1, 4))
    if name == "packed":
        cuts = np.sort(rng.integers(0, N + 1, size=3))
        told["texts"] = np.diff([0, *cuts, N]) + (rng.random() < 0.2) * np.array([0, 1, 0, 0])
    layout = rng.choice(["contiguous", "zigzag", "striped", "own", "placed"])
    if layout == "placed":
        told["layout"] = placement(rng.integers(0, P, size=N).tolist(), P)
    elif layout != "own":
        told["layout"] = str(layout)
    return P, N, d, told


NAMED = (
    "is written for rows in the layout",
    "heads cannot be distributed evenly",
    "texts must be the lengths of the sequences",
)


def outcome(rng, on, most_ranks=7, most_rows=30):
    """Run one random case; return its type and "right" or the named error. Fail if it is wrong."""
    name, kind = str(rng.choice(NAMES)), str(rng.choice(TYPES))
    schedule = distributed.get(name)
    P, N, d, told = drawn(rng, name, most_ranks, most_rows)
    made = dict(told, texts=None) if "texts" in told else told
    typed, values = in_type(arrays_of(schedule, N, d, made, int(rng.integers(10**6))), kind)
    try:
        run = schedule.run(P, on=on, **typed, **settings_of(schedule, told))
    except distributed.RankError as error:
        said = str(error)
        assert "\n" not in said and any(one in said for one in NAMED), said
        return kind, next(one for one in NAMED if one in said)
    # The outputs of a backward pass in a low type depend on its rounded O and LSE, so they are the inputs.
    error = worst_error(run, exact_of(schedule, values, told))
    assert error <= bound(schedule, P, values, kind), (name, kind, P, N, d, told, error)
    in_layout = {k: v for k, v in told.items() if k != "layout"}
    if schedule.any_layout and "layout" not in told:
        assert run.ledgers == schedule.ledgers(P, N, d, **in_layout)
    return kind, "right"


def exact_of(schedule, values, told):
    """Return the exact outputs; a backward pass has the D and LSE that it was given."""
    if schedule.pass_ != "backward":
        return expected(schedule, values, told)
    Q, K, V, O, dO = (heads(values[name]) for name in ("Q", "K", "V", "O", "dO"))
    LSE = values["LSE"] if Q.ndim == 2 else values["LSE"].T
    s = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    p = np.exp(s - LSE[..., None])
    ds = p * (dO @ V.swapaxes(-1, -2) - (dO * O).sum(-1)[..., None]) / np.sqrt(Q.shape[-1])
    return tuple(map(heads, (ds @ K, ds.swapaxes(-1, -2) @ Q, p.swapaxes(-1, -2) @ dO)))


def heads(x):
    return x.swapaxes(0, 1) if x.ndim == 3 else x


def test_ragged_cases_of_all_types_layouts_and_heads_are_right_or_a_named_error():
    rng, found = np.random.default_rng(20), collections.Counter()
    for _ in range(many(120, 500)):
        found[outcome(rng, "count")] += 1
    assert {kind for kind, _ in found} == set(TYPES)
    assert {what for _, what in found} == {"right", *NAMED}
    assert sum(number for (_, what), number in found.items() if what == "right") > 0.4 * sum(found.values())


def test_ragged_cases_between_threads_are_right_or_a_named_error():
    rng, found = np.random.default_rng(21), collections.Counter()
    for _ in range(many(16, 160)):
        found[outcome(rng, "gloo", most_ranks=4, most_rows=20)] += 1
    assert {kind for kind, what in found if what == "right"} == set(TYPES)


def test_sums_in_bfloat16_would_break_the_bound(monkeypatch):
    """The bound is one of float32: partial results that are rounded to bfloat16 exceed it."""
    rng = np.random.default_rng(0)
    given = {name: rng.standard_normal((64, 4)) for name in "QKV"}
    typed, values = in_type(given, "bfloat16")
    wanted, merge = exact.attention(*values.values()), distributed.get("ring").body
    largest = bound(distributed.get("ring"), 8, values, "bfloat16")

    def rounded(me, Q, K, V):
        o, L = merge(me, Q, K, V)
        return o.bfloat16().float(), L

    error = exact.max_abs_error(distributed.run(rounded, 8, **typed).O, wanted)
    assert exact.max_abs_error(distributed.get("ring").run(8, **typed).O, wanted) < largest < error

    monkeypatch.setattr(partial_attention, "at_least_float32", lambda *arrays: arrays)  # the kind of mistake
    assert exact.max_abs_error(distributed.get("ring").run(8, **typed).O, wanted) > largest


# ------------------------------------------------------------------ types of single calls
Q, K, V = np.random.default_rng(0).standard_normal((3, 11, 4))


def ring_in(cast):
    """Return a ring whose blocks are sent in another type, and are used in that of Q."""

    def ring(me, Q, K, V):
        k, v = cast(K), cast(V)
        o, L = distributed.attend(Q, k, v)
        for _ in range(1, me.size):
            k, v = me.shift(K=k, V=v)
            o, L = distributed.merge(o, L, *distributed.attend(Q, k, v))
        return o

    return ring


@pytest.mark.parametrize("on", ["gloo", "processes"])
def test_blocks_that_travel_in_float32_arrive_as_they_are_counted(on):
    run = distributed.run(ring_in(lambda x: x.float()), 2, on=on, Q=Q, K=K, V=V)
    counted = distributed.run(
        ring_in(lambda x: x.astype(np.float32)), 2, Q=Q, K=K.astype(np.float32), V=V.astype(np.float32)
    )
    assert exact.max_abs_error(run.O, counted.O) < 1e-6 and run.ledgers == counted.ledgers
    assert run.ledgers == distributed.get("ring").ledgers(2, 11, 4)  # a word is a word in every type


@pytest.mark.parametrize(
    "kind", ["float64", "float32", "bfloat16", "float16", "int64", "int32", "uint8", "bool"]
)
@pytest.mark.parametrize("on", ["count", "gloo"])
def test_every_call_returns_the_type_that_was_sent(kind, on):
    dtype = getattr(torch, kind)

    def calls(me, Q):
        mine = torch.full((me.rank + 1, 2), 3).to(dtype)  # ragged: another length on every rank
        even = torch.full((2,), 1).to(dtype)
        me.send((me.rank + 1) % me.size, M=mine)
        came = [me.shift(A=mine), me.all_gather(A=mine), me.all_gather(B=even)]
        came += [*me.all_to_all(C=[mine] * me.size), me.recv((me.rank - 1) % me.size, "M")]
        right = all(one.dtype == dtype and bool((one == one.reshape(-1)[0]).all()) for one in came)
        return torch.full((len(Q), 1), float(right), dtype=torch.float64)

    assert (distributed.run(calls, 3, on=on, Q=torch.from_numpy(Q)).O == 1).all()


def test_a_sum_over_ranks_of_a_16_bit_type_is_float32():
    def summed(me, Q):
        pieces = [torch.full((2,), 1.0 + 2**-7, dtype=torch.bfloat16)] * me.size
        total = me.reduce_scatter(S=pieces)
        assert total.dtype == torch.float32
        return total.double()[: len(Q)].reshape(-1, 1)

    for on in ("count", "gloo"):
        assert (distributed.run(summed, 5, on=on, Q=torch.ones(5, 1)).O == 5 * (1 + 2**-7)).all()


def fails(schedule, error, *says, P=2, on="gloo", **given):
    with pytest.raises(error) as caught:
        distributed.run(schedule, P, on=on, **({"Q": Q} | given))
    for said in says:
        assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (lambda Q: Q.float(), "as float32 (6, 4), but the counting run sent float64 (6, 4). "),
        (lambda Q: Q[:2], "as float64 (2, 4), but the counting run sent float64 (6, 4). "),
        (lambda Q: Q.numpy(), "as a NumPy array; on this engine arrays are tensors: torch.as_tensor(Q)"),
    ],
)
@pytest.mark.parametrize("call", ["shift", "all_gather"])
def test_another_type_or_shape_than_planned_is_refused(other, told, call):
    def sends(me, Q):
        getattr(me, call)(Q=Q if isinstance(Q, ShapeArray) or me.rank else other(Q))
        return Q

    fails(sends, distributed.RankError, f"rank 0 sends Q in {call}(Q) {told}")


def test_nothing_instead_of_a_planned_array_is_refused():
    def sends(me, Q):
        me.shift(Q=Q if isinstance(Q, ShapeArray) or me.rank else None)
        return Q

    told = "rank 0 sends Q in shift(Q) as None, but the counting run sent float64 (6, 4). "
    fails(sends, distributed.RankError, told)


def test_pieces_of_two_types_are_refused_before_they_are_joined():
    def mixed(me, Q):
        me.all_gather(Q=Q.astype(np.float32) if me.rank else Q)
        return Q

    said = "rank 1 receives Q in all_gather(Q) as float64 from rank 0, float32 from rank 1; expected one type"
    fails(mixed, distributed.RankError, said, on="count")
    fails(mixed, distributed.RankError, said, on="dry")


@pytest.mark.parametrize(
    ("array", "kind"),
    [(np.ones(2, np.complex128), "complex128"), (np.array(["a"]), "<U1"), (np.ones(2, ">f8"), ">f8")],
)
def test_a_type_that_cannot_travel_is_named(array, kind):
    def sends(me, Q):
        me.shift(X=array)
        return Q

    said = f"X in shift(X) has type {kind}, expected one of float64, float32, bfloat16, float16, int64, int32"
    fails(sends, distributed.RankFailed, "rank 0 raised TypeError", said, on="count")


def test_scores_that_overflow_float32_are_refused():
    for kind in (np.float32, torch.bfloat16):
        big = np.full((3, 4), 1e20)
        given = torch.from_numpy(big).to(kind) if kind is torch.bfloat16 else big.astype(kind)
        with pytest.raises(ValueError, match="the scores QKᵀ overflow float32"):
            distributed.get("ring").run(2, Q=given, K=given, V=given)
    distributed.get("ring").run(2, Q=big, K=big, V=big / 1e20)
    with pytest.raises(ValueError, match="K holds 1 NaN"):
        bad = torch.ones(3, 4, dtype=torch.bfloat16)
        bad[1, 1] = float("nan")
        distributed.get("ring").run(2, Q=given, K=bad, V=given)


@pytest.mark.parametrize("on", ["count", "gloo"])
def test_a_bfloat16_ring_between_threads_and_in_turns_gives_the_same(on):
    typed, values = in_type({"Q": Q, "K": K, "V": V}, "bfloat16")
    run = distributed.get("ring").run(3, on=on, **typed)
    assert exact.max_abs_error(run.O, exact.attention(*values.values())) < 1e-6
    assert run.outputs[0].dtype == np.float64 and run.ledgers == distributed.get("ring").ledgers(3, 11, 4)


def test_dry_arrays_have_the_types_of_tensors():
    shapes = {kind: ShapeArray((2, 3), kind=kind) for kind in (*TYPES, "int64", "int32", "bool")}
    tensors = {kind: torch.ones(2, 3).to(getattr(torch, kind)) for kind in shapes}
    operations = [
        lambda a, b: a + b,
        lambda a, b: a * 2.5,
        lambda a, b: a / 2,
        lambda a, b: a > b,
        lambda a, b: a.sum(),
        lambda a, b: a[:1, None],
        lambda a, b: a.swapaxes(0, 1),
        lambda a, b: a.reshape(-1),
    ]
    for first in shapes:
        for second in shapes:
            for number, operation in enumerate(operations):
                made = operation(shapes[first], shapes[second])
                wanted = operation(tensors[first], tensors[second])
                told = (number, first, second)
                assert (made.kind, made.shape) == (str(wanted.dtype)[6:], tuple(wanted.shape)), told
            joined = np.concatenate([shapes[first], shapes[second]])
            assert joined.kind == str(torch.promote_types(tensors[first].dtype, tensors[second].dtype))[6:]
        assert np.exp(shapes[first]).kind == str(torch.exp(tensors[first]).dtype)[6:]
        assert shapes[first].astype(np.float32).kind == "float32" and np.isnan(shapes[first]).kind == "bool"
