"""Tensor descriptors, with which streamed tiles are loaded on sm_90, compared with pointers
in the interpreter.

The fused backward pass also adds to dQ through a descriptor, which `descriptors_everywhere` adds to Triton's
interpreter. Packed sequences use descriptors where a choice of `choices.json` is to use them.
"""

from itertools import accumulate

import pytest
import skip_without_interpreter  # noqa: F401
import torch
from triton.runtime import interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

from iocourse import traffic
from iocourse.kernels import attention_varlen_with_lse, attention_with_lse, using
from iocourse.kernels.host import launches as made_by
from iocourse.kernels.host.choices import replaced
from iocourse.kernels.host.launches import record_launches
from iocourse.kernels.host.passes import launch_backward, launch_forward
from iocourse.kernels.host.ranges import Band, Packed, VisiblePairs

CAUSAL, WINDOW, FULL = {"causal": "lower_right"}, {"window": (40, 9)}, {}


def transposed(*shape, dtype):
    B, H, N, d = shape
    return torch.randn(B, N, H, d).to(dtype).transpose(1, 2)


def added(self, kind, descriptor, value, indices):
    """An interpreted addition through a descriptor."""
    pointers, there = descriptor.materialize_pointers(indices)
    add = self.ir_rmw_op_to_interpreter_rmw_op[interpreter._ir.ATOMIC_OP.FADD]
    relaxed = self.ir_sem_to_interpreter_sem[interpreter._ir.MEM_SEMANTIC.RELAXED]
    interpreter._interpreter.atomic_rmw(add, pointers.data, value.data, there, relaxed)


def descriptors_everywhere(monkeypatch):
    """From here on, whatever can be streamed through a descriptor is; the list of what was streamed."""
    made = []

    def streamed(*given, real=made_by.streamed):
        made.append(real(*given))
        return made[-1]

    monkeypatch.setattr(made_by, "descriptors_fit", lambda *_: True)
    monkeypatch.setattr(made_by, "streamed", streamed)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_descriptor_reduce", added, raising=False)
    return made


def outcome(attend, q, k, v, do):
    """Words, and O, its log-sum-exps and all gradients, by both backward passes."""
    results = []
    tiles = {"forward": (32, 32), "queries": (32, 16), "keys": (16, 32), "fused": (32, 16)}
    with using(**tiles), traffic.count() as ledger:
        for deterministic in (True, False):
            leaves = [x.detach().requires_grad_() for x in (q, k, v)]
            o, lse = attend(*leaves, deterministic=deterministic)
            results += [o, lse, *torch.autograd.grad(o, leaves, do)]
    return ledger, results


def kinds(made):
    """Return, for each launch, the arguments that are descriptors."""
    return [[isinstance(one, TensorDescriptor) for one in some] for some in made]


# What `outcome` streams through descriptors: K and V forward; K and V for dQ; Q, dO, and no dQ to add to. In
# the fused pass there is one.
STREAMED = [[True] * 2, [True] * 2, [True, True, False], [True] * 2, [True] * 3]


# Type, columns, and which pairs are seen: each option with another case.
DENSE = [(torch.float16, 24, CAUSAL), (torch.float16, 64, FULL), (torch.float32, 20, WINDOW)]
PACKED = [(torch.float16, 24, WINDOW, "nan"), (torch.float32, 20, CAUSAL, "inf")]


@pytest.mark.parametrize(("dtype", "d", "options"), DENSE, ids=str)
def test_descriptors_change_no_bit(dtype, d, options, monkeypatch):
    torch.manual_seed(0)
    q, do = (transposed(1, 4, 75, d, dtype=dtype) for _ in range(2))
    k, v = (transposed(1, 2, 90, d, dtype=dtype) for _ in range(2))

    def attend(*leaves, **more):
        return attention_with_lse(*leaves, **options, **more)

    ledger, by_pointer = outcome(attend, q, k, v, do)
    made = descriptors_everywhere(monkeypatch)
    descriptor_ledger, by_descriptor = outcome(attend, q, k, v, do)
    assert kinds(made) == STREAMED
    assert descriptor_ledger == ledger
    for one, other in zip(by_pointer, by_descriptor, strict=True):
        assert torch.equal(one, other)


LENGTHS = (20, 37), (35, 18), (0, 5), (3, 0), (64, 33), (9, 21)  # queries and keys of each sequence


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy computes with the poison too
@pytest.mark.parametrize(("dtype", "d", "options", "poison"), PACKED, ids=str)
def test_descriptors_of_packed_sequences_change_no_bit_and_end_where_a_sequence_does(
    dtype, d, options, poison, monkeypatch
):
    """No word of another sequence is read or written, so its values have no effect."""
    torch.manual_seed(0)
    ends = [[0, *accumulate(pair[side] for pair in LENGTHS)] for side in (0, 1)]
    cu = [torch.tensor(some, dtype=torch.int32) for some in ends]
    q, do = (torch.randn(ends[0][-1], 4, d).to(dtype) for _ in range(2))
    k, v = (torch.randn(ends[1][-1], 2, d).to(dtype) for _ in range(2))

    def attend(*leaves, **more):
        return attention_varlen_with_lse(*leaves, *cu, **options, **more)

    ledger, by_pointer = outcome(attend, q, k, v, do)
    made = descriptors_everywhere(monkeypatch)
    descriptor_ledger, by_descriptor = outcome(attend, q, k, v, do)
    for side, tensors in ((0, (q, do)), (1, (k, v))):
        for x in tensors:
            x[ends[side][1] : ends[side][4]] = float(poison)
            x[ends[side][5] :] = float(poison)
    _, poisoned = outcome(attend, q, k, v, do)
    assert kinds(made) == STREAMED * 2
    assert descriptor_ledger == ledger
    for at, (want, got, other) in enumerate(zip(by_pointer, by_descriptor, poisoned, strict=True)):
        assert torch.equal(want, got)
        side = int(at % 5 > 2)  # dK and dV
        for s in (0, 4):
            axis = 1 if at % 5 == 1 else 0  # log-sum-exps have heads before rows
            want_s, other_s = (
                x.narrow(axis, ends[side][s], ends[side][s + 1] - ends[side][s]) for x in (want, other)
            )
            assert torch.equal(want_s, other_s)


def launched_on(arch, q, k, v, do=None, packed=None):
    """The launches on that architecture."""
    do = torch.randn(q.shape, dtype=q.dtype) if do is None else do
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3])
    everything = VisiblePairs(Band(None, None), packed=packed)
    with record_launches(arch) as launches:
        launch_forward(q, k, v, everything, 1.0, "complete rows")
        launch_backward(do, None, q, k, v, o, lse, everything, 1.0, False, "complete rows")
        launch_backward(do, None, q, k, v, o, lse, everything, 1.0, True, "complete rows")
    assert len(launches) == 5  # forward, D, fused, dQ, dK and dV
    return launches


def descriptors_on(*given, **more):
    """For each launch on an architecture: does it take descriptors?"""
    launches = launched_on(*given, **more)
    return ["TILE" in one.constants and one.constants["TILE"].DESCRIPTORS for one in launches]


def halves(d=64, n=64):
    return [torch.randn(1, 2, n, d).to(torch.float16) for _ in range(3)]


def test_descriptors_where_the_copy_engine_can():
    q, k, v = halves()
    assert descriptors_on(90, q, k, v) == [True, False, True, True, True]
    assert descriptors_on(100, q, k, v) == [True, False, True, True, True]
    assert descriptors_on(80, q, k, v) == [False] * 5


def test_pointers_where_it_cannot():
    """It reads no row twice, and nothing of an empty tensor."""
    q, k, v = halves()
    one_head_for_all = q[:, :1].expand(q.shape)
    assert descriptors_on(90, q, k, v, do=one_head_for_all) == [True, False, False, True, False]
    q, k, v = halves(n=0)
    assert descriptors_on(90, q, k, v) == [False] * 5


def test_copies_where_borders_were_missing():
    """Descriptors need 16-byte alignment, which a launch gets by a copy (see test_memory_alignment)."""
    q, k, v = halves()
    off = torch.cat((k.new_zeros(1), k.flatten()))[1:].view(k.shape)  # starts 2 bytes past a border
    assert not made_by._aligned(off) and not made_by._aligned(halves(d=20)[0])
    assert descriptors_on(90, q, off, v) == [True, False, True, True, True]
    for d in (8, 12, 20):
        assert descriptors_on(90, *halves(d=d)) == [True, False, True, True, True]


def test_packed_sequences_take_descriptors_where_they_are_the_choice():
    """On sm_90 in 16 bits at d = 128, and elsewhere only if forced."""
    cu = torch.tensor([0, 40, 64], dtype=torch.int32)
    packed, given = Packed(cu, cu, 40, 40, False), halves()
    descriptors, pointers = [True, False, True, True, True], [False] * 5
    assert descriptors_on(90, *halves(d=128), packed=packed) == descriptors
    assert descriptors_on(90, *given, packed=packed) == pointers
    assert descriptors_on(100, *halves(d=128), packed=packed) == pointers
    with replaced({"packed descriptors": False}):
        assert descriptors_on(90, *halves(d=128), packed=packed) == pointers
        assert descriptors_on(90, *halves(d=128)) == descriptors  # one sequence
    with replaced({"packed descriptors": True}):
        assert descriptors_on(90, *given, packed=packed) == descriptors
        assert descriptors_on(80, *given, packed=packed) == pointers
        assert descriptors_on(90, *(x.float() for x in given), packed=packed) == pointers
