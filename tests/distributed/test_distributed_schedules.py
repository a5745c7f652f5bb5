"""Distributed schedules: values against float64 on ragged shapes, with and without heads; layouts; merge."""

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
