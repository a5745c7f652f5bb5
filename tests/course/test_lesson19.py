"""Tests of lesson 19: statements on layouts and PyTorch, and exercises. The build compares its formulas."""

import functools
import importlib.util
import inspect
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lesson_source import Lesson

from iocourse import distributed, exact
from iocourse.course import explore
from iocourse.course.checking import judge
from iocourse.course.exercise import find
from iocourse.course.exercises import lesson19
from iocourse.distributed import load_balance

LESSON = Lesson("19_load_balance")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
few = st.integers(1, 7)


def refused(exercise_id, answer, seed=3):
    """Return the properties that fail for an answer."""
    return {name for name, said in judge(find(exercise_id), answer, seed) if said}


def test_partial_results_merge_in_every_order_also_where_ranks_have_no_frame():
    """(18.2) is used as taught, on parts of which several are empty."""
    merged = Lesson("18_").run()["merged"]

    def pooled(backwards):
        def my_pooling(me, Q, K, V):
            o, L = distributed.attend(Q, K, V)
            all_o, all_L = me.all_gather(O=o[None], L=L[None])
            parts = list(zip(all_o, all_L, strict=True))
            return functools.reduce(lambda a, b: merged(*a, *b), parts[::-1] if backwards else parts)[0]

        return my_pooling

    assert refused("19C", pooled(False)) == set() == refused("19C", pooled(True))


def test_a_reduce_scatter_and_an_all_gather_move_fewer_words_than_gathering():
    LESSON.says("19.4", "a reduce-scatter of the weighted outputs and an all-gather of their sums move 231")
    LESSON.says("19.5", "move $2r(d + 1)(P - 1)/P$ words, $P/2$ times fewer")

    def all_reduced(me, Q, K, V):
        o, L = distributed.attend(Q, K, V)
        all_L = me.all_gather(L=L[None])
        weights = np.exp(all_L - all_L.max(0))
        pieces = np.split((o * weights[me.rank][:, None]).reshape(-1), me.size)
        summed = me.all_gather(O=me.reduce_scatter(O=pieces))
        return summed.reshape(o.shape) / weights.sum(0)[:, None]

    def states_reduced(me, Q, K, V):
        state = K.T @ np.concatenate([V, np.ones((len(V), 1))], axis=1)
        pieces = np.split(state.reshape(-1), me.size)
        whole = me.all_gather(KV=me.reduce_scatter(KV=pieces)).reshape(state.shape)
        o = Q @ whole
        return o[:, :-1] / o[:, -1:]

    Q, K, V = np.abs(np.random.default_rng(0).standard_normal((3, 64, 128)))
    run = distributed.run(all_reduced, 8, Q=Q[:1], K=K, V=V, shared=("Q",))
    assert np.allclose(run.O, exact.attention(Q[:1], K, V))
    assert run.words == 231 and distributed.get("decode").dry(8, 64, 128).words == 903
    P, r, d = 16, 64, 64
    Q, K, V = Q[:, :r], K[:, :r], V[:, :d]
    run = distributed.run(states_reduced, P, Q=Q, K=K, V=V)
    assert np.allclose(run.O, distributed.get("states").run(P, Q=Q, K=K, V=V).O)
    gathered = distributed.get("states").dry(P, 64, d, r=r).words
    assert run.words * P == 2 * r * (d + 1) * (P - 1) and gathered == run.words * P // 2


# ---------------------------------------------------------------------- work and words
def test_the_picture_has_the_pairs_of_the_library():
    for layout, (N, P) in product(distributed.LAYOUTS, ((16, 4), (13, 3), (1, 1))):
        by_rows = [int((distributed.rows_of(layout, N, P, rank) + 1).sum()) for rank in range(P)]
        assert tuple(by_rows) == load_balance.pairs_of_ranks(layout, N, P)
        assert f"{layout} {', '.join(map(str, by_rows))}" in explore.causal_load(N, P).alt
    with pytest.raises(ValueError, match="P must be at most 7 to be drawn, got 8"):
        explore.causal_load(16, 8)


@given(seed=st.integers(0, 50), P=few)
def test_my_owner_is_the_zigzag_of_the_library(seed, P):
    N, mine = 2 * P * (seed + 1), LESSON.solved("19A", distributed=distributed)
    for rank in range(P):
        owned = [t for t in range(N) if mine(t, N, P) == rank]
        assert owned == sorted(distributed.rows_of("zigzag", N, P, rank).tolist())


# ---------------------------------------------------------------------- sequences
@pytest.mark.parametrize("seed", range(3))
def test_the_cases_of_19B_can_be_placed_evenly_and_need_splitting(seed):
    cases = find("19B").cases(np.random.default_rng(seed))
    long = [case for case in cases if case.has("long and short sequences")]
    assert all(
        case.expected[0] < 1.05
        for case in cases
        if case.tags & {"short sequences", "long and short sequences"}
    )
    whole = [load_balance.imbalance(load_balance.whole_texts(**case.inputs).pairs) for case in long]
    assert max(whole) > 1.1  # so that assigning complete sequences to ranks is not sufficient


# ---------------------------------------------------------------------- few words
# ---------------------------------------------------------------------- time
# ---------------------------------------------------------------------- behaviour of PyTorch
@needs_torch
def test_what_is_said_of_pytorchs_context_parallelism_stands_in_its_source():
    import torch

    if not torch.__version__.startswith("2.13.0"):
        pytest.skip(f"the lesson speaks of 2.13.0, here is {torch.__version__}")
    from torch.distributed.tensor.experimental._context_parallel import _attention as source

    options = source._ContextParallelOptions()
    assert options.rotate_method is source._RotateMethod.ALL_GATHER and options.convert_to_f32
    assert options.enable_load_balance
    text = inspect.getsource(source)
    assert 'raise RuntimeError("Load balancing requires `is_causal=True`.")' in text
    backward = inspect.getsource(source._templated_ring_attention_backward)
    assert "dkv_rotater = _create_rotater(group, 2, method=_RotateMethod.ALL_TO_ALL)" in backward
    assert backward.count("dkv_rotater.exchange_buffers(next_grad_kv)") == 1  # in each of the P steps
    handled = [str(name) for name in source.custom_ops]
    assert len(handled) == 6 and not any("cpu" in name for name in handled)
    assert {"flash", "efficient", "cudnn"} == {name.split("product_")[1].split("_")[0] for name in handled}


@needs_torch
def test_what_the_next_step_needs_is_in_torch_distributed():
    import torch.distributed

    section = LESSON.section("19.8")
    for name in ("init_process_group", "get_rank", "batch_isend_irecv", "all_gather", "all_to_all"):
        assert callable(getattr(torch.distributed, name)) and f"`{name}" in section


@needs_torch
def test_head_tail_is_zigzag():
    from torch.distributed.tensor.experimental._context_parallel import _load_balancer as source

    order = source._HeadTailLoadBalancer(24, 3, "cpu")._generate_indices().flatten().tolist()
    assert order == [row for rank in range(3) for row in distributed.rows_of("zigzag", 24, 3, rank)]


# ---------------------------------------------------------------------- groups
@pytest.mark.parametrize("seed", range(5))
def test_the_bound_19_8_is_attained_in_every_case(seed):
    mine = LESSON.solved("19E", distributed=distributed)
    for case in find("19E").cases(np.random.default_rng(seed)):
        mask, P = case.inputs["mask"], case.inputs["P"]
        lacks = lesson19.lacked(mask, mine(mask, P), P)
        assert max(lacks) == lesson19.lacks_at_least(mask, P) == case.expected
    LESSON.says("19.9", r"- \frac hP \tag{19.8}")


@given(seed=st.integers(0, 200))
def test_no_grouping_lacks_less_than_19_8(seed):
    rng = np.random.default_rng(seed)
    P, size = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    mask = rng.random((P * size, P * size)) < rng.random()
    owners = rng.permutation(np.repeat(np.arange(P), size))
    assert max(lesson19.lacked(mask, owners, P)) >= lesson19.lacks_at_least(mask, P)


# ---------------------------------------------------------------------- reports
def test_a_wrong_answer_is_told_in_ranks_and_words():
    said = dict(judge(find("19A"), lambda t, N, P: t * P // N, 3))
    assert (
        "rank" in said["every rank has the same work"]
        and "times the mean" in said["every rank has the same work"]
    )
    said = dict(judge(find("19E"), lambda mask, P: np.arange(len(mask)) * P // len(mask), 3))
    assert "but the bound is" in said["no rank receives more than the bound"]


@pytest.mark.parametrize("answer", [None, "0", [0.5], [[0]], [[]], [[0, 0]], [[9]], {0: [0]}])
def test_a_placement_of_another_form_is_refused_by_its_form(answer):
    assert "assigns a list of ranks to every sequence" in refused("19B", lambda lengths, P: answer)
