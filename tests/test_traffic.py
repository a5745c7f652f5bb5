"""Tests of the traffic count of Triton launches: it equals the closed forms exactly, or raises an error."""

import types

import pytest
import skip_without_interpreter  # noqa: F401
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.runtime import interpreter, jit
from triton.runtime.errors import InterpreterError
from triton.tools.tensor_descriptor import TensorDescriptor

from iocourse import costs, traffic
from iocourse.costs.kernels import (
    KernelProblem,
    attention_forward,
    attention_fused_backward,
    attention_split_backward,
)
from iocourse.kernels import attention, attention_with_lse, using
from iocourse.kernels.host.checks import band_of
from iocourse.ledger import Ledger
from iocourse.traffic import CannotCount, OutsideEveryArray

FLOAT32 = {"LSE", "dLSE", "LSE2", "D", "dQ_sum"}  # of the kernels' arrays, whatever the type of q
sizes = st.one_of(st.integers(1, 20), st.integers(21, 70))
sides = st.one_of(st.none(), st.integers(0, 8), st.integers(0, 110))
blocks = st.tuples(st.sampled_from([32, 64, 32, 16]), st.sampled_from([32, 64, 32, 16]))


def expected_bytes(ledger, itemsize):
    """Return the bytes of a closed form: arrays of the type of q, and arrays that are always float32."""
    counts = [*ledger.reads.items(), *ledger.writes.items()]
    return sum(words * (4 if name in FLOAT32 else itemsize) for name, words in counts)


@settings(max_examples=50)
@given(
    sizes, sizes, st.integers(1, 40), st.sampled_from([(1, 1), (2, 1), (2, 2)]), st.sampled_from([1, 1, 2]),
    st.sampled_from([False, True, "lower_right"]), st.one_of(st.none(), st.tuples(sides, sides)),
    st.sampled_from([torch.float32, torch.float16, torch.bfloat16]), st.booleans(), st.booleans(),
    st.tuples(*[blocks] * 4),
)  # fmt: skip
def test_kernels_move_what_the_closed_forms_say(
    n_q, n_k, d, heads, B, causal, window, dtype, deterministic, dlse, tiles
):
    H, H_kv = heads
    q = torch.randn(B, H, n_q, d).to(dtype).requires_grad_()
    k, v = (torch.randn(B, H_kv, n_k, d).to(dtype).requires_grad_() for _ in range(2))
    forward, fused, queries, keys = tiles
    problem = KernelProblem(n_q, n_k, d, *band_of(causal, window, n_q, n_k), B, H, H_kv)
    with using(forward=forward, fused=fused, queries=queries, keys=keys):
        with traffic.count(Q=q, K=k, V=v) as ledger:
            o, lse = attention_with_lse(q, k, v, causal=causal, window=window, deterministic=deterministic)
        closed = attention_forward(problem, BM=forward[0], BN=forward[1])
        assert ledger == closed, ledger - closed
        assert ledger.bytes == expected_bytes(closed, dtype.itemsize)

        loss = o.sum() + torch.where(lse.isinf(), 0.0, lse).sum() if dlse else o.sum()
        with traffic.count(Q=q, K=k, V=v) as ledger:
            loss.backward()
    if deterministic:
        closed = attention_split_backward(problem, queries=queries, keys=keys, dlse=dlse)
    else:
        closed = attention_fused_backward(problem, BM=fused[0], BN=fused[1], dlse=dlse)
    assert ledger == closed, ledger - closed
    assert ledger.bytes == expected_bytes(closed, dtype.itemsize)


def test_a_causal_mask_is_met_in_whole_tiles():
    """N = 4 tiles of 16: query tile i loads i + 1 tiles of keys, in total 1 + 2 + 3 + 4."""
    assert KernelProblem(64, 64, 8, None, 0).keys_met(16, 16) == 10 * 16
    assert KernelProblem(64, 64, 8, None, 0).queries_met(16, 16) == 10 * 16
    assert KernelProblem(60, 60, 8, None, 0).keys_met(16, 16) == (1 + 2 + 3) * 16 + 60
    assert KernelProblem(64, 64, 8, -15, 0).keys_met(16, 16) == (1 + 2 + 2 + 2) * 16


def moved(ledger):
    """Return reads and writes only; peak and atomics differ between kernel and emulator."""
    return Ledger(reads=ledger.reads, writes=ledger.writes)


@pytest.mark.parametrize("N, d", [(100, 24), (65, 16), (30, 8)])
def test_the_emulator_moves_the_same_forward(N, d):
    q, k, v = (torch.randn(1, 1, N, d) for _ in range(3))
    with using(forward=(32, 16)), traffic.count(Q=q, K=k, V=v) as ledger:
        attention(q, k, v)
    assert moved(ledger) == moved(costs.flash2(N, d, Br=32, Bc=16, lse=True))


def backward(N, d, *, deterministic, **tiles):
    q, k, v = (torch.randn(1, 1, N, d, requires_grad=True) for _ in range(3))
    o = attention(q, k, v, deterministic=deterministic)
    with using(**tiles), traffic.count(Q=q, K=k, V=v) as ledger:
        o.sum().backward()
    return ledger


def as_they_lie(ledger, N):
    """Return the ledger with LSE in place of the arrays that are computed and written from it first."""
    assert ledger.writes.pop("LSE2") == N
    ledger.reads["LSE"] += ledger.reads.pop("LSE2")
    return ledger


@pytest.mark.parametrize("N, d", [(96, 24), (64, 16), (32, 8)])
def test_the_emulator_moves_the_same_split_backward(N, d):
    ledger = as_they_lie(backward(N, d, deterministic=True, queries=(32, 16), keys=(16, 32)), N)
    assert moved(ledger) == moved(costs.split_backward(N, d, Br1=32, Bc1=16, Br2=16, Bc2=32))


@pytest.mark.parametrize("N, d", [(96, 24), (64, 16), (32, 8)])
def test_the_emulator_moves_the_same_fused_backward_but_for_the_zeros(N, d):
    """The emulator's first addition to a row of dQ is a write only; a GPU writes zeros and reads them."""
    ledger = as_they_lie(backward(N, d, deterministic=False, fused=(16, 32)), N)
    ledger.reads["LSE"] -= N  # it is prepared in a separate launch
    for side in (ledger.reads, ledger.writes):
        side["dQ"] = side.pop("dQ_sum") - N * d
    assert moved(ledger) == moved(costs.fused_backward(N, d, Br=16, Bc=32))


# ------------------------------------------------------------------ which launches a count includes


@triton.jit
def copy_kernel(source, target, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < n), mask=at < n)


@triton.jit
def unmasked_copy_kernel(source, target, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at, mask=at < n, other=7.0))


@triton.jit
def unmasked_read_kernel(source, target, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + at), mask=at < n)


@triton.jit
def add_kernel(source, target, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(target + at % 3, tl.load(source + at, mask=at < n), mask=at < n)


@triton.jit
def add_outside_kernel(target, far):
    tl.atomic_add(target + far, 1.0)


@triton.jit
def swap_kernel(target):
    tl.atomic_cas(target, 0, 5)


@triton.jit
def descriptor_kernel(source, target, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    at = tl.program_id(0) * ROWS
    target.store([at, 0], source.load([at, 0]))


@triton.jit
def device_descriptor_kernel(source, target, n, m, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    table = tl.make_tensor_descriptor(source, [n, m], [m, 1], [ROWS, COLUMNS])
    tile = table.load([tl.program_id(0) * ROWS, 0])
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    tl.store(target + rows, tl.sum(tile, 1), mask=rows < n)


def copied(source, target, **names):
    """Return the ledger of a kernel that copies `source` in blocks of 16."""
    n = source.numel()
    with traffic.count(**names) as ledger:
        copy_kernel[(triton.cdiv(n, 16),)](source, target, n, BLOCK=16)
    return ledger


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.float64, torch.bool])
def test_words_have_the_width_of_their_tensor(dtype):
    x = torch.ones(100).to(dtype)
    y = torch.zeros_like(x)
    ledger = copied(x, y, x=x)
    assert torch.equal(x, y)
    assert ledger == Ledger(reads={"x": 100}, writes={"target": 100})  # 112 lanes, 12 of them switched off
    assert ledger.itemsizes == {"x": dtype.itemsize, "target": dtype.itemsize}
    assert ledger.sizes == {"x": 100, "target": 100}
    assert ledger.bytes == 200 * dtype.itemsize


def test_tensors_that_are_not_named_take_the_names_of_parameters():
    assert copied(torch.ones(20), torch.empty(20)) == Ledger(reads={"source": 20}, writes={"target": 20})


def test_a_name_holds_for_every_launch_and_every_parameter():
    x, y, z = torch.arange(20.0), torch.zeros(20), torch.zeros(20)
    with traffic.count(x=x, y=y) as ledger:
        copy_kernel[(2,)](x, y, 20, BLOCK=16)
        copy_kernel[(2,)](y, z, 20, BLOCK=16)
    assert ledger == Ledger(reads={"x": 20, "y": 20}, writes={"y": 20, "target": 20})


def test_keyword_arguments_have_names_too():
    x, y = torch.ones(20), torch.zeros(20)
    with traffic.count() as ledger:
        copy_kernel[(2,)](target=y, source=x, n=20, BLOCK=16)
    assert ledger == Ledger(reads={"source": 20}, writes={"target": 20})


def test_atomics_are_reads_and_writes():
    x, y = torch.ones(20), torch.zeros(3)
    with traffic.count(x=x, y=y) as ledger:
        add_kernel[(2,)](x, y, 20, BLOCK=16)
    assert ledger == Ledger(reads={"x": 20, "y": 20}, writes={"y": 20}, atomics={"y": 20})
    assert y.tolist() == [7, 7, 6]


def test_compare_and_swap_is_an_atomic():
    y = torch.zeros(1, dtype=torch.int32)
    with traffic.count(y=y) as ledger:
        swap_kernel[(3,)](y)
    assert ledger == Ledger(reads={"y": 3}, writes={"y": 3}, atomics={"y": 3})
    assert y.item() == 5


def test_nothing_happens_nothing_is_counted():
    x, y = torch.ones(20), torch.zeros(20)
    with traffic.count(x=x, y=y) as ledger:
        y += x  # torch's own work
        copy_kernel[(1,)](x, y, 0, BLOCK=16)  # every lane is switched off
    assert ledger == Ledger() and ledger.bytes == 0


def test_descriptors_move_what_lies_inside():
    x, y = torch.randn(20, 12), torch.zeros(20, 12)
    tiles = [TensorDescriptor(t, [20, 12], [12, 1], [8, 16]) for t in (x, y)]
    with traffic.count(x=x) as ledger:
        descriptor_kernel[(3,)](*tiles, ROWS=8, COLUMNS=16)
    assert torch.equal(x, y)
    assert ledger == Ledger(reads={"x": 240}, writes={"target": 240})


def test_descriptors_made_in_the_kernel():
    x, y = torch.randn(20, 12), torch.zeros(20)
    with traffic.count(x=x) as ledger:
        device_descriptor_kernel[(3,)](x, y, 20, 12, ROWS=8, COLUMNS=16)
    assert torch.allclose(y, x.sum(1), atol=1e-5)
    assert ledger == Ledger(reads={"x": 240}, writes={"target": 20})


def packed_projection(B=2, N=40, H=2, d=8):
    whole = torch.randn(B, N, 3, H, d)
    return whole, [x.transpose(1, 2) for x in whole.unbind(2)]


@pytest.mark.parametrize("named", [True, False])
def test_q_k_and_v_of_one_tensor_are_told_apart(named):
    """They are interleaved, within each other's first and last address."""
    _, (q, k, v) = packed_projection()
    names = {"first": q, "second": k, "third": v} if named else {}
    with using(forward=(32, 16)), traffic.count(**names) as ledger:
        attention(q, k, v, causal=True)
    closed = attention_forward(KernelProblem(40, 40, 8, None, 0, 2, 2, 2), BM=32, BN=16)
    renamed = {"Q": "first", "K": "second", "V": "third"} if named else {}
    assert ledger.reads == {renamed.get(name, name): words for name, words in closed.reads.items()}
    assert ledger.writes == closed.writes


def test_columns_of_one_tensor_are_told_apart():
    """q, k, v side by side in each row: (B, N, H, 3d), as GPT-2 and NeoX have it."""
    whole = torch.randn(1, 40, 2, 24)
    q, k, v = (x.transpose(1, 2) for x in whole.split(8, -1))
    with using(forward=(32, 16)), traffic.count() as ledger:
        attention(q, k, v)
    assert ledger == attention_forward(KernelProblem(40, 40, 8, H=2, H_kv=2), BM=32, BN=16)


def test_one_tensor_in_three_places_goes_by_the_first_name():
    x = torch.randn(1, 1, 40, 8)
    with using(forward=(32, 16)), traffic.count() as ledger:
        attention(x, x, x)
    closed = attention_forward(KernelProblem(40, 40, 8), BM=32, BN=16)
    assert ledger.reads == {"Q": closed.read} and ledger.writes == closed.writes


def test_a_tensor_made_and_dropped_does_not_lend_its_address():
    """The second target may reuse the address of the first; its words must not count for the first."""
    x = torch.ones(20)
    with traffic.count(x=x) as ledger:
        for _ in range(3):
            copy_kernel[(2,)](x, torch.empty(20), 20, BLOCK=16)
    assert ledger == Ledger(reads={"x": 60}, writes={"target": 60})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bits_are_counted_at_2_bytes(dtype):
    """All arrays but LSE, which is float32; no array is copied, so all words are under the caller's names."""
    q, k, v = (torch.randn(1, 1, 40, 8).to(dtype) for _ in range(3))
    with using(forward=(32, 16)), traffic.count(Q=q, K=k, V=v) as ledger:
        attention(q, k, v)
    closed = attention_forward(KernelProblem(40, 40, 8), BM=32, BN=16)
    assert ledger == closed and ledger.bytes == 2 * closed.total + 2 * closed.writes["LSE"]
    assert ledger.itemsizes == {"Q": 2, "K": 2, "V": 2, "O": 2, "LSE": 4}


def test_the_atomic_additions_of_a_bfloat16_kernel_are_counted():
    x = torch.ones(20, dtype=torch.bfloat16)
    total = torch.zeros(3, dtype=torch.bfloat16)
    with traffic.count(x=x, total=total) as ledger:
        add_kernel[(2,)](x, total, 20, BLOCK=16)
    assert ledger == Ledger(reads={"x": 20, "total": 20}, writes={"total": 20}, atomics={"total": 20})
    assert ledger.bytes == 2 * 60 and total.tolist() == [7, 7, 6]
    with pytest.raises(InterpreterError) as caught, traffic.count(x=x, total=total[:2]):
        add_kernel[(2,)](x, total[:2], 20, BLOCK=16)
    assert isinstance(caught.value.__cause__, OutsideEveryArray) and total.tolist() == [7, 7, 6]


# Ends of arrays.


@pytest.mark.parametrize("kernel", [unmasked_copy_kernel, unmasked_read_kernel])
def test_past_the_end_raises_and_moves_nothing(kernel):
    """The memory behind the array belongs to another one and must not change."""
    others, memory = torch.ones(64), torch.zeros(64)
    x, y = others[:20], memory[:20]
    with pytest.raises(InterpreterError) as caught, traffic.count(x=x, y=y):
        kernel[(2,)](x, y, 20, BLOCK=16)
    cause = caught.value.__cause__
    assert isinstance(cause, OutsideEveryArray)
    assert "12 of 16 words are outside every array, the first 0 bytes behind the end of" in str(cause)
    assert "is a mask missing" in str(cause)
    assert not memory[20:].any() and not y[16:].any()


def test_past_the_end_of_an_array_with_heads_names_its_shape():
    """The number of a query's head, 4 of them, in place of that of its key, 2 of them."""
    k, y = torch.zeros(128)[:64].view(1, 2, 2, 16), torch.zeros(16)
    with pytest.raises(InterpreterError) as caught, traffic.count(K=k, Y=y):
        copy_from_kernel[(1,)](k, y, 2 * k.stride(1), BLOCK=16)
    assert str(caught.value.__cause__).endswith(
        "0 bytes behind the end of K: "
        "is a mask missing, a stride wrong, or an index too large for K (1, 2, 2, 16)?"
    )


@triton.jit
def copy_from_kernel(X, Y, first, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(Y + i, tl.load(X + first + i))


def test_an_atomic_far_outside():
    y = torch.zeros(20)
    with pytest.raises(InterpreterError) as caught, traffic.count(y=y):
        add_outside_kernel[(1,)](y, 25)
    assert "1 of 1 word is outside every array, 20 bytes behind the end of y" in str(caught.value.__cause__)


def test_before_the_first_array():
    y = torch.zeros(20)
    with pytest.raises(InterpreterError) as caught, traffic.count(y=y):
        add_outside_kernel[(1,)](y, -(10**9))
    assert isinstance(caught.value.__cause__, OutsideEveryArray)


@triton.jit
def columns_unmasked_kernel(X, Y, stride, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i, j = tl.arange(0, ROWS)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(Y + i * BLOCK + j, tl.load(X + i * stride + j))


@pytest.mark.parametrize(
    ("rows", "words", "where"),
    [
        (2, "6 of 32", "between two rows or columns of X"),
        (1, "3 of 16", "0 bytes behind the end of X"),
    ],
)
@pytest.mark.parametrize("y_first", [False, True])
def test_past_the_end_of_a_row_names_the_array_of_the_row(rows, words, where, y_first):
    """A missing mask of the columns of a slice; the words of Y lie before or after those of X."""
    memory = torch.zeros(400)
    large, y = (memory[100:180], memory[:32]) if y_first else (memory[:80], memory[200:232])
    X = large.view(2, 40)[:rows, 4:17]
    with pytest.raises(InterpreterError) as caught, traffic.count(X=X, Y=y):
        columns_unmasked_kernel[(1,)](X, y, 40, ROWS=rows, BLOCK=16)
    assert str(caught.value.__cause__) == (
        f"{words} words are outside every array, the first {where}: is a mask missing, or a stride wrong?"
    )


@pytest.mark.parametrize(
    ("grid", "wanted"), [(4, "write (4,), not 4"), ([2, 2], "write a tuple, not [2, 2]")]
)
def test_a_grid_that_is_not_a_tuple_is_named(grid, wanted):
    x = torch.ones(16)
    with pytest.raises(TypeError, match="a grid is a tuple") as caught, traffic.count(x=x):
        unmasked_copy_kernel[grid](x, x, 16, BLOCK=4)
    assert wanted in str(caught.value)


# The hooks.


def hooks():
    return interpreter._interpreter, interpreter.InterpretedFunction.run, jit.JITFunction.run


def test_everything_is_put_back():
    before = hooks()
    with traffic.count():
        assert all(now is not then for now, then in zip(hooks(), before, strict=True))
    assert hooks() == before


def test_everything_is_put_back_after_an_error():
    before = hooks()
    with pytest.raises(ZeroDivisionError), traffic.count():
        _ = 1 / 0
    assert hooks() == before
    x, y = torch.ones(20), torch.zeros(16)
    with pytest.raises(InterpreterError), traffic.count(x=x, y=y):
        unmasked_copy_kernel[(2,)](x, y, 20, BLOCK=16)
    assert hooks() == before
    with pytest.raises(TypeError, match=r"x must be a torch tensor, got int"), traffic.count(x=3):
        pass
    assert hooks() == before


def test_counts_nest():
    """The inner block counts for itself and for the outer one."""
    x, y = torch.ones(20), torch.zeros(20)
    with traffic.count(x=x) as outer:
        copy_kernel[(2,)](x, y, 20, BLOCK=16)
        with traffic.count(z=x) as inner:
            copy_kernel[(2,)](x, y, 20, BLOCK=16)
        copy_kernel[(2,)](x, y, 20, BLOCK=16)
    assert inner == Ledger(reads={"z": 20}, writes={"target": 20})
    assert outer == Ledger(reads={"x": 60}, writes={"target": 60})


def test_triton_keeps_its_loads_where_the_hook_stands():
    """If a new version of Triton moves one of these, check the counting before allowing that version."""
    assert traffic.HOOKS == ("load", "store", "atomic_rmw", "atomic_cas")
    for name in traffic.HOOKS:
        assert callable(getattr(interpreter._interpreter, name))
    assert callable(interpreter.InterpretedFunction.run) and callable(jit.JITFunction.run)
    # An interpreted kernel must look these functions up at each call; otherwise it would bypass a proxy.
    x, y = torch.ones(20), torch.zeros(20)
    assert copied(x, y).total == 40


@pytest.mark.parametrize("absent", traffic.HOOKS)
def test_a_hook_that_moved_is_reported(absent, monkeypatch):
    rest = {name: getattr(interpreter._interpreter, name) for name in traffic.HOOKS if name != absent}
    monkeypatch.setattr(interpreter, "_interpreter", types.SimpleNamespace(**rest))
    with (
        pytest.raises(
            CannotCount, match=f"this version of triton cannot be counted: its interpreter lacks {absent}"
        ),
        traffic.count(),
    ):
        pass


def test_an_interpreter_without_hooks_is_reported(monkeypatch):
    monkeypatch.delattr(interpreter, "_interpreter")
    with (
        pytest.raises(CannotCount, match="its interpreter lacks load, store, atomic_rmw, atomic_cas"),
        traffic.count(),
    ):
        pass


def test_where_kernels_are_compiled(monkeypatch):
    from triton import knobs

    monkeypatch.setattr(knobs.runtime, "interpret", False)
    with pytest.raises(CannotCount, match="Start a new process with TRITON_INTERPRET=1"), traffic.count():
        pass


# ------------------------------------------------------------------ saved and printed counts


def test_a_ledger_survives_json():
    x, y = torch.ones(20).half(), torch.zeros(20).half()
    with traffic.count(x=x, y=y) as ledger:
        copy_kernel[(2,)](x, y, 20, BLOCK=16)
    again = Ledger.from_json(ledger.to_json())
    assert again == ledger and again.itemsizes == ledger.itemsizes == {"x": 2, "y": 2}
    assert (again.bytes_read, again.bytes_written, again.bytes) == (40, 40, 80)
    assert again.sizes == ledger.sizes


def test_a_ledger_shows_its_bytes():
    x, y = torch.ones(1000).half(), torch.zeros(1000).half()
    ledger = copied(x, y, x=x, y=y)
    last = repr(ledger).splitlines()[-1]
    assert last == "2,000 words moved, 4,000 bytes"  # without a peak, which is not measured
    assert f"<caption>{last}</caption>" in ledger._repr_html_()


def test_words_of_the_model_have_no_bytes():
    with pytest.raises(
        ValueError, match="the bytes per word of Q, K, V are not known; this ledger counts words only"
    ):
        _ = costs.flash2(8, 4, Br=2, Bc=2, lse=True).bytes
