"""The interpreter without its repetitions computes what Triton's own does."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import skip_without_interpreter  # noqa: F401
import torch
import triton
import triton.language as tl

from iocourse import kernels, traffic  # which change the interpreter

# isort: split
from triton.runtime import interpreter


@triton.jit
def squared(x):
    return x * x


@triton.jit
def sums_kernel(X, Y, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + i, mask=i < N, other=0)
    tl.store(Y + i, squared(x) + tl.max(x, 0), mask=i < N)


def sums(x):
    y = torch.zeros_like(x)
    sums_kernel[(triton.cdiv(len(x), 8),)](x, y, len(x), BLOCK=8)
    return y


@triton.jit
def mixed_kernel(X, Y, Z, N: tl.constexpr):
    """Operands of every kind: two types, two shapes, a number on either side, truths, quotients, nothing."""
    i = tl.arange(0, N)
    x, y = tl.load(X + i), tl.load(Y + i)
    table = (x[:, None] + y[None, :]) * 2 - 0.5 * x[:, None] + tl.sum(y, 0)
    table = tl.where((y[:, None] > x[None, :]) & (y[:, None] >= 1), table, float("-inf"))
    tl.store(Z + i[:, None] * N + i[None, :], table.to(tl.float32) / (1 + y[None, :] * y[:, None]))


def mixed(x, y):
    z = torch.zeros(len(x), len(x))
    mixed_kernel[(1,)](x, y, z, N=len(x))
    return z


def as_tritons_own(monkeypatch):
    """The interpreter as Triton has it."""
    for place, name in [(interpreter, "_patch_lang"), (interpreter, "_get_np_dtype"), *OPERANDS]:
        monkeypatch.setattr(place, name, getattr(place, name).instead_of)


OPERANDS = [(interpreter.TritonSemantic, f) for f in ("binary_op_type_checking_impl", "broadcast_impl_value")]
DTYPES = (torch.int8, torch.uint8, torch.int32, torch.int64, torch.float16, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_are_those_of_tritons_own(dtype, monkeypatch):
    x = torch.arange(21).remainder(5).to(dtype)
    quick = [sums(x), sums(x)]  # names are looked for the first time, and remembered the second
    as_tritons_own(monkeypatch)
    assert all(torch.equal(sums(x), y) for y in quick) and quick[0].any()


@pytest.mark.parametrize("one", DTYPES, ids=str)
@pytest.mark.parametrize("other", DTYPES, ids=str)
def test_operands_of_any_two_types_become_what_tritons_own_makes_of_them(one, other, monkeypatch):
    x, y = torch.arange(16).remainder(5).to(one), torch.arange(16).remainder(3).to(other)
    quick = [mixed(x, y), mixed(x, y)]
    as_tritons_own(monkeypatch)
    assert all(torch.equal(mixed(x, y), z) for z in quick) and quick[0].isfinite().any()


@triton.jit
def plus_kernel(X, NUMBER: tl.constexpr, N: tl.constexpr):
    tl.store(X + tl.arange(0, N), tl.load(X + tl.arange(0, N)) + NUMBER)


@pytest.mark.parametrize(
    ("dtype", "number", "said"),
    [(torch.int8, 1000, "Scalar 1000 is out of range for type int8"), (torch.uint8, -1, "negative scalar")],
)
def test_a_number_that_does_not_fit_is_refused_also_after_one_that_does(dtype, number, said):
    x = torch.zeros(8, dtype=dtype)
    for _ in range(2):
        plus_kernel[(1,)](x, 5, N=8)
    with pytest.raises(interpreter.InterpreterError, match=said):
        plus_kernel[(1,)](x, number, N=8)
    assert x.tolist() == [10] * 8


@triton.jit
def unlike_kernel(X, N: tl.constexpr, M: tl.constexpr):
    tl.store(X + tl.arange(0, N), tl.arange(0, N) + tl.arange(0, M))


def test_shapes_that_do_not_go_together_are_refused_every_time():
    for _ in range(2):
        with pytest.raises(interpreter.InterpreterError, match="incompatible dimensions at index 0: 8 and 4"):
            unlike_kernel[(1,)](torch.zeros(8, dtype=torch.int32), N=8, M=4)


@pytest.mark.parametrize(("size", "error"), [(16.0, TypeError), (15, ValueError)])
def test_what_is_no_size_is_refused_at_any_time_also_where_it_equals_one(size, error):
    assert list(tl.block_type(tl.float32, [16]).shape) == [16]
    for _ in range(2):
        with pytest.raises(error):
            tl.block_type(tl.float32, [size])


def test_types_and_tensors_of_one_shape_differ_in_all_else():
    handle, wide = object(), tl.block_type(tl.float64, [16, 2])
    made = [tl.block_type(kind, [16, tl.constexpr(2)]) for kind in (tl.float32, tl.float64, tl.float32)]
    assert made[0] == made[2] != made[1] == wide and [one.numel for one in made] == [32, 32, 32]
    assert [str(one) for one in made] == [str(made[0]), str(wide), str(made[0])] and str(wide) != str(made[0])
    tensors = [tl.tensor(handle, one) for one in (*made, tl.int32)]
    assert [one.dtype for one in tensors] == [tl.float32, tl.float64, tl.float32, tl.int32]
    assert [one.type for one in tensors] == [*made, tl.int32] and tensors[0].handle is handle
    assert [[int(size) for size in one.shape] for one in tensors] == [[16, 2]] * 3 + [[]]
    assert [one.numel.value for one in tensors] == [32, 32, 32, 1]


def test_the_language_is_restored_as_tritons_own_restores_it():
    sums(torch.arange(9.0))
    assert tl.core.is_builtin(tl.load) and tl.core.is_builtin(tl.tensor.to)


def test_who_counts_what_kernels_move_needs_nothing_else_for_it(monkeypatch):
    changed = [(interpreter, "_patch_lang"), (interpreter, "_get_np_dtype"), *OPERANDS]
    made = [(tl.tensor, "__init__"), (tl.block_type, "__init__"), (tl.block_type, "to_ir")]
    as_tritons_own(monkeypatch)
    for place, name in made:
        monkeypatch.setattr(place, name, getattr(place, name))  # for it to be put back
    with traffic.count():
        assert all(hasattr(getattr(place, name), "instead_of") for place, name in changed)


def test_overflow_is_asserted_by_a_debug_build_alone():
    options = interpreter.interpreter_builder.options
    assert options.sanitize_overflow == options.debug


SHAPES = [(1, 1, 3, 16), (1, 2, 5, 16), (2, 1, 8, 16)]


def test_threads_take_turns_to_launch():
    """48 calls by six threads: forward passes, backward passes, and launches of a user's kernel."""
    made = []
    for seed, shape in enumerate(SHAPES):
        torch.manual_seed(seed)
        made.append([torch.randn(shape, requires_grad=True) for _ in range(3)])

    def calls(number):
        inputs = made[number % len(made)]
        O = kernels.attention(*inputs)
        return O, *torch.autograd.grad(O.sum(), inputs), sums(inputs[0].detach().flatten())

    expected = [calls(number) for number in range(len(made))]
    for inputs, (O, *_) in zip(made, expected, strict=True):
        torch.testing.assert_close(O, torch.nn.functional.scaled_dot_product_attention(*inputs))
    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(calls, range(48)))
    for number, values in enumerate(found):
        for value, right in zip(values, expected[number % len(made)], strict=True):
            torch.testing.assert_close(value, right)
