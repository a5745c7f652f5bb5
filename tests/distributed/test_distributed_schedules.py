"""Distributed schedules: values against float64 on ragged shapes, with and without heads; layouts; merge."""

import re
from types import ModuleType

import numpy as np
import pytest
from distributed_cases import NAMES, arrays_of, expected, settings_of, sizes, worst_error
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse import distributed, exact
from iocourse.distributed.schedules import registry


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=8, deadline=None)
@given(data=st.data(), seed=st.integers(0, 10**6))
def test_values_are_exact_and_counted_as_on_shapes(name, data, seed):
    P, N, d, told = data.draw(sizes(name, most_ranks=6, most_rows=40))
    schedule = distributed.get(name)
    arrays = arrays_of(schedule, N, d, told, seed)
    run = schedule.run(P, **arrays, **settings_of(schedule, told))
    assert worst_error(run, expected(schedule, arrays, told)) < 1e-11
    assert run.ledgers == schedule.ledgers(P, N, d, **told)


def test_the_log_sum_exp_comes_with_the_rows():
    Q, K, V = np.random.default_rng(1).standard_normal((3, 23, 4))
    run = distributed.get("ring").run(5, Q=Q, K=K, V=V)
    assert exact.max_abs_error(run.outputs[1], exact.log_sum_exp(exact.scores(Q, K))) < 1e-13


@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_two_halves_merge_to_the_whole(m, other, seed):
    rng = np.random.default_rng(seed)
    q, k, v = (50.0 * rng.standard_normal((n, 3)) for n in (4, m + other, m + other))
    o, L = distributed.merge(*distributed.attend(q, k[:m], v[:m]), *distributed.attend(q, k[m:], v[m:]))
    whole_o, whole_L = distributed.attend(q, k, v)
    assert np.allclose(o, whole_o, atol=1e-9) and np.allclose(L, whole_L, atol=1e-9)
    if m + other:
        assert exact.max_abs_error(o, exact.attention(q, k, v)) < 1e-9
    else:
        assert (o == 0).all() and np.isneginf(L).all()


def test_a_query_that_sees_no_key_is_passed_over_by_merge():
    q, k, v = np.random.default_rng(0).standard_normal((3, 4, 3))
    at = np.arange(4)
    hidden = distributed.attend(q, k, v, rows=at, cols=at + 9)
    assert (hidden[0] == 0).all() and np.isneginf(hidden[1]).all()
    seen = distributed.attend(q, k, v)
    for o, L in (distributed.merge(*hidden, *seen), distributed.merge(*seen, *hidden)):
        assert np.array_equal(o, seen[0]) and np.array_equal(L, seen[1])
    o, L = distributed.merge(*hidden, *hidden)
    assert (o == 0).all() and np.isneginf(L).all()


def test_rows_and_columns_are_as_many_as_queries_and_keys():
    q, k, v = np.random.default_rng(0).standard_normal((3, 4, 3))
    with pytest.raises(ValueError, match="of the 4 queries and 4 keys, got 4 and 3 positions"):
        distributed.attend(q, k, v, rows=np.arange(4), cols=np.arange(3))


def raises(run, *says, error=distributed.RankError):
    with pytest.raises(error) as caught:
        run()
    for said in says:
        assert said in str(caught.value)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------ layouts
WRITTEN_FOR = {
    "causal_contiguous": "contiguous",
    "causal_zigzag": "zigzag",
    "causal_striped": "striped",
    "states_causal": "contiguous",
}
Q16, K16, V16 = np.abs(np.random.default_rng(0).standard_normal((3, 16, 4)))


@pytest.mark.parametrize("layout", distributed.LAYOUTS)
@pytest.mark.parametrize("name", NAMES)
def test_another_layout_is_right_or_refused_on_every_way_to_run(name, layout):
    schedule, told = distributed.get(name), {"texts": (16,)} if name == "packed" else {}
    told |= {"a": 2} if "a" in schedule.options else {}
    told |= {"H": 4} if schedule.heads else {}
    arrays = arrays_of(schedule, 16, 4, told, 0)

    def by_name():
        return schedule.run(4, layout=layout, **arrays, **settings_of(schedule, told))

    def by_run():
        own = {"layout": layout, "shared": schedule.shared}
        return distributed.run(schedule, 4, **own, **arrays, **settings_of(schedule, told))

    for run in (by_name, by_run):
        if layout == WRITTEN_FOR.get(name, layout):
            assert worst_error(run(), expected(schedule, arrays, told)) < 1e-11
        else:
            own = WRITTEN_FOR[name]
            raises(run, f'rank 0 raised ValueError: {name} is written for rows in the layout "{own}"')


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("causal_contiguous", [[range(9)], [range(9, 9)], [range(9, 10), range(10, 16)]]),
        ("causal_zigzag", [[range(1), range(9, 16)], [range(1, 5), range(5, 9)]]),
        ("causal_striped", [[range(0, 16, 2)], [range(1, 16, 2)]]),
        ("states_causal", [[range(3)], [range(3, 16)]]),
    ],
)
def test_uneven_blocks_in_the_order_of_the_layout_are_right(name, layout):
    schedule = distributed.get(name)
    run = schedule.run(len(layout), layout=layout, Q=Q16, K=K16, V=V16)
    assert worst_error(run, expected(schedule, {"Q": Q16, "K": K16, "V": V16}, {})) < 1e-11


# ------------------------------------------------------------------ packed sequences
def packed(texts, N=7, P=3, **told):
    Q, K, V = np.random.default_rng(0).standard_normal((3, N, 4))
    return distributed.get("packed").run(P, Q=Q, K=K, V=V, texts=texts, **told)


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ([3, 3], "they sum to 6, but there are 7 rows"),
        ([3, 5], "they sum to 8, but there are 7 rows"),
        ([], "they sum to 0, but there are 7 rows"),
        ([9, -2], "texts[1] must be at least 0, got -2"),
        ([3.0, 4.0], "texts[0] must be an integer of at least 0, got 3.0"),
        ([True, 6], "texts[0] must be an integer of at least 0, got True"),
        (7, "texts must be a list of the lengths of the sequences, got 7"),
        ([[3, 4]], "texts[0] must be an integer of at least 0, got [3, 4]"),
        ([0, 3, 7], "For cu_seqlens, pass the differences np.diff(cu_seqlens)"),
        (np.array([0, 3, 7]), "they sum to 10, but there are 7 rows. For cu_seqlens"),
    ],
)
def test_lengths_that_do_not_describe_the_rows_are_named(texts, said):
    raises(lambda: packed(texts), said, "rank 0 raised ", "texts")
    with pytest.raises((ValueError, TypeError), match=re.escape(said)):
        distributed.get("packed").ledgers(3, 7, 4, texts=texts)


@pytest.mark.parametrize("texts", [(3, 4), [3, 4], np.diff([0, 3, 7]), [3, 0, 4], [np.int32(3), 4]])
def test_lengths_may_be_a_list_a_tuple_or_an_array(texts):
    assert exact.max_abs_error(packed(texts).O, packed((3, 4), P=1).O) < 1e-12
    shapes = dict.fromkeys("QKV", (7, 4))
    dry = distributed.get("packed").run(3, on="dry", texts=texts, **shapes)
    assert dry.ledgers == packed((3, 4)).ledgers


# ------------------------------------------------------------------ heads
def with_heads(name, H, of_keys, P=4, **told):
    rng = np.random.default_rng(0)
    Q, (K, V) = rng.standard_normal((8, H, 2)), rng.standard_normal((2, 8, of_keys, 2))
    return lambda: distributed.get(name).run(P, Q=Q, K=K, V=V, **told)


@pytest.mark.parametrize("of_keys", [1, 2, 4])
@pytest.mark.parametrize("name", ["ring", "grid", "causal_zigzag", "causal_striped", "packed"])
def test_fewer_heads_of_keys_are_refused_in_one_line(name, of_keys):
    told = {"a": 2} if name == "grid" else {"texts": [8]} if name == "packed" else {}
    said = f"q has 8 heads and k has {of_keys}: repeat the heads of k and v"
    raises(with_heads(name, 8, of_keys, **told), "attend(q, k, v) got q, k, v of shapes (", said)


@pytest.mark.parametrize(
    ("name", "H", "of_keys", "told", "said"),
    [
        ("ulysses", 8, 2, {}, "with the same H heads, got (2, 8, 2), (2, 2, 2), (2, 2, 2)"),
        ("ulysses", 6, 6, {}, "H = 6 heads cannot be distributed evenly over 4 ranks. Use 1, 2, 3, 6 ranks"),
        ("ulysses", 2, 2, {}, "H = 2 heads cannot be distributed evenly over 4 ranks. Use 1, 2 ranks"),
        ("ulysses_ring", 3, 3, {"a": 2}, "H = 3 heads cannot be distributed evenly over 2 ranks"),
        ("ulysses_ring", 8, 4, {"a": 2}, "with the same H heads"),
    ],
)
def test_heads_that_cannot_be_shared_out_are_refused_in_one_line(name, H, of_keys, told, said):
    raises(with_heads(name, H, of_keys, **told), said, "rank 0 raised ValueError")
    flat = np.ones((8, 2))
    arrays = {"Q": flat, "K": flat, "V": flat}
    raises(lambda: distributed.get(name).run(4, **arrays, **told), "must have shape (n, H, d) with the same")


@pytest.mark.parametrize("layout", distributed.LAYOUTS)
@pytest.mark.parametrize(("N", "P"), [(1, 3), (17, 5), (24, 4), (7, 7)])
def test_each_row_has_one_owner_and_sizes_differ_little(layout, N, P):
    owned = [distributed.rows_of(layout, N, P, rank) for rank in range(P)]
    assert sorted(np.concatenate(owned)) == list(range(N))
    assert [len(rows) for rows in owned] == [distributed.row_count(layout, N, P, rank) for rank in range(P)]
    assert max(map(len, owned)) - min(map(len, owned)) <= (2 if layout == "zigzag" else 1)


def test_zigzag_gives_all_ranks_the_same_pairs():
    N, P = 64, 8
    pairs = [int((distributed.rows_of("zigzag", N, P, rank) + 1).sum()) for rank in range(P)]
    assert set(pairs) == {N // (2 * P) * (N + 1)}


def test_a_schedule_is_found_by_its_decorator_and_a_file_without_one_is_named():
    before = list(distributed.REGISTRY)
    assert distributed.get("causal_zigzag").body.__module__ == "iocourse.distributed.schedules.causal_ring"
    with pytest.raises(ImportError, match=r"iocourse/distributed/schedules/toy\.py registers no schedule"):
        registry.collect([ModuleType("iocourse.distributed.schedules.toy")])
    assert list(distributed.REGISTRY) == before
