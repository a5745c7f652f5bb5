"""bfloat16 in Triton's interpreter: each operation equals torch's, and no other type is changed."""

import json
import os
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import bfloat16_operations as ops
import pytest
import skip_without_interpreter  # noqa: F401
import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import InterpreterError

from iocourse import kernels, traffic
from iocourse.course.trials.kernel_launch import kernels_compute
from iocourse.doctor import bfloat16_repair
from iocourse.doctor.bfloat16_repair import repair_bfloat16

# isort: split
from triton.runtime import interpreter

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "kernels.md"
# Operations that are right in Triton 3.7.1 itself. Each other one is wrong, or raises an error.
RIGHT_BY_ITSELF = {
    "x % y", "abs", "x == y", "clamp", "x > 0.25", "x + float32", "x * float16", "x - float64", "x + int32",
    "zeros", "sum in float32", "max", "min", "argmax", "argmin", "argmax without order", "cumsum",
    "cumsum from the end", "cumprod", "softmax", "reshape", "permute", "join", "split", "interleave", "flip",
    "gather", "bits", "from bits", "to float16", "to int8", "to uint8", "to int16", "to int32", "to int64",
}  # fmt: skip


@pytest.mark.parametrize("name", ops.OPERATIONS)
def test_an_operation_equals_torch(name):
    assert ops.complaint(ops.OPERATIONS[name]) == ""


@pytest.mark.parametrize("name", ops.REFUSED)
def test_what_triton_refuses_raises(name):
    kernel, said = ops.REFUSED[name]
    if name in ops.REFUSED_BY_THE_COMPILER and triton.__version__ >= "3.8":
        pytest.skip("the list is from the compiler of Triton 3.7.1; later versions compute more in bfloat16")
    with pytest.raises(InterpreterError, match=said):
        ops.run(kernel, ops.table(), ops.other_table(), ops.table())


@pytest.mark.parametrize("name", ops.REFUSED_ATOMICS)
def test_atomics_that_triton_refuses_raise(name):
    def kernel(x, y, out):
        getattr(tl, f"atomic_{name}")(ops.line(x), tl.load(ops.line(y)))

    before = ops.normal(64)
    with pytest.raises(InterpreterError, match=f"atomic_{name} does not support bf16"):
        ops.run(kernel, before, ops.normal(64, seed=1), torch.zeros(64), pointers=True)


def test_fma_rounds_once():
    """The exact sum is next to a tie, on one side or the other, by less than float64 can hold."""
    tie = 1 + 2.0**-8  # (1 + 2⁻⁴)² = 1 + 2⁻³ + 2⁻⁸: between 1 + 2⁻³ and 1 + 2⁻³ + 2⁻⁷
    x = torch.full((16, 32), 1 + 2.0**-4, dtype=torch.bfloat16)
    z = torch.tensor([2.0**-70, -(2.0**-70), 0.0, 2.0**-20] * 128, dtype=torch.bfloat16).reshape(16, 32)
    out = torch.zeros_like(x)
    ops.run(lambda x, z: tl.fma(x, x, z), x, z, out)
    low, high = 1 + 2.0**-3, 1 + 2.0**-3 + 2.0**-7
    assert Fraction(low) + Fraction(tie) - 1 == Fraction(1 + 2.0**-4) ** 2
    assert out.flatten()[:4].tolist() == [high, low, low, high]


def test_a_sum_has_the_error_of_a_gpu():
    """Each addition is rounded: 1 + 1/256 + … stays 1 only if the order is bad, and is never exact."""
    x = ops.normal(16, 1024)
    out = torch.zeros(16, dtype=torch.bfloat16)
    ops.run(lambda x, y: tl.sum(x, 1), x, x[:, :16].contiguous(), out)
    exact, most = x.double().sum(1), x.double().abs().sum(1)
    error = (out.double() - exact).abs()
    assert (error <= 10 * 2.0**-8 * most).all()  # 10 additions of halves
    assert not torch.equal(out, exact.to(torch.bfloat16))


# ---- nothing else changes
def results(dtype: torch.dtype) -> list[Tensor]:
    """Results of many operations of the list in another type."""
    made = []
    for name, one in ops.OPERATIONS.items():
        if one.pointers or one.x is not ops.table or name == "full":  # which has no operand
            continue
        x, y = (8 * ops.table()).to(dtype), (8 * ops.other_table() + 0.5).to(dtype)
        out = torch.full((1024,), 7.0, dtype=torch.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                ops.run(one.kernel, x, y, out)
            except InterpreterError as error:
                made.append(repr(error))
        made.append(out)
    return made


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int8, torch.int32])
def test_other_types_have_the_same_bits_without_the_repair(dtype, monkeypatch):
    repaired = results(dtype)
    without_repair(monkeypatch)
    assert ops.without_error(ops.OPERATIONS["x + y"]) != ""
    own = results(dtype)
    assert len(own) == len(repaired) > 30
    for one, other in zip(own, repaired, strict=True):
        if isinstance(one, str):
            assert one == other
        else:
            assert torch.equal(one.view(torch.int32), other.view(torch.int32))


def without_repair(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Put Triton's own methods in place, and return the names of those that were repaired."""
    changed = []
    owners = interpreter.InterpreterBuilder, interpreter.ReduceOps, interpreter.ScanOps, interpreter
    for owner in owners:
        for name, method in list(vars(owner).items()):
            if hasattr(method, "repairs"):
                changed.append(f"{owner.__name__.rpartition('.')[2]}.{name}")
                if method.repairs is None:
                    monkeypatch.delattr(owner, name)
                else:
                    monkeypatch.setattr(owner, name, method.repairs)
    return changed


def test_the_repair_is_applied_once(monkeypatch):
    assert repair_bfloat16() == ()
    changed = without_repair(monkeypatch)
    monkeypatch.setattr(bfloat16_repair, "_tried", [])
    assert sorted(repair_bfloat16()) == sorted(changed) and repair_bfloat16() == ()
    assert ops.complaint(ops.OPERATIONS["x + y"]) == ""
    monkeypatch.setattr(bfloat16_repair, "_tried", [])
    assert repair_bfloat16() == ()  # a method that is right is not replaced


def test_another_storage_of_bfloat16_is_not_touched(monkeypatch):
    without_repair(monkeypatch)
    monkeypatch.setattr(bfloat16_repair, "_tried", [])
    monkeypatch.setattr(interpreter, "_get_np_dtype", lambda _: "float32")
    assert repair_bfloat16() == ()


def test_launches_of_several_threads():
    one = ops.OPERATIONS["sum of a row"]
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(lambda _: ops.complaint(one), range(12))) == {""}


# ---- the operations without the repair
@pytest.fixture(scope="module")
def by_itself() -> dict[str, str]:
    """Complaints about the operations in a process without iocourse."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    script = Path(ops.__file__)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_the_repair_is_still_needed(by_itself):
    """Fails when a newer Triton computes more by itself."""
    mended = set(ops.OPERATIONS) - set(by_itself) - RIGHT_BY_ITSELF
    assert not mended, f"Triton {triton.__version__} mends these: shorten the repair, and list them: {mended}"
    if triton.__version__ == "3.7.1":
        assert not RIGHT_BY_ITSELF & set(by_itself)
        assert f"{len(by_itself)} of {len(ops.OPERATIONS)} operations" in GUIDE.read_text(encoding="utf-8")


def test_the_guide_lists_what_is_refused():
    text = GUIDE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in ops.REFUSED if name.isidentifier())


# ---- the library's kernels and the checks
@triton.jit
def masked_kernel(x, out):
    lanes = tl.arange(0, 64)
    tl.store(out + lanes, tl.load(x + lanes, mask=lanes < 10))


def test_the_library_multiplies_and_stores_16_bits():
    """P is rounded to bfloat16 before the product with V, as on a GPU: O is within that rounding only."""
    q, k, v = (ops.normal(1, 1, 64, 64, seed=s) for s in range(3))
    p = (q.double() @ k.double().mT / 8).softmax(-1)
    exact, terms = p @ v.double(), p @ v.double().abs()
    with traffic.count(Q=q, K=k, V=v) as ledger:
        o = kernels.attention(q, k, v)
    unit, single = 2.0**-8, 2.0**-24
    bound = unit * (terms + exact.abs()) * (1 + unit) + 64 * single * terms
    assert ((o.double() - exact).abs() <= bound).all()
    assert not torch.equal(o, exact.to(torch.bfloat16)) and ledger.itemsizes["O"] == 2


def test_a_masked_lane_of_bfloat16_is_nan_in_a_check():
    x, out = torch.ones(64, dtype=torch.bfloat16), torch.zeros(64, dtype=torch.bfloat16)
    with kernels_compute():
        masked_kernel[(1,)](x, out)
    assert out[:10].eq(1).all() and out[10:].isnan().all()
