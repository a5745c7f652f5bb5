"""Run attention that is an operator of torch.library: both passes, fakes, opcheck and torch.compile.

The operators are those that a call dispatches to and that Python code defined, by whatever function of
`torch.library`. Their bodies run in the trial: kernels in them are counted, and torch must not compute there.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import traffic
from ...doctor.triton_missing import require_triton
from ...errors import error_text
from ...ledger import PhaseTotal
from ..exercise import (
    Case,
    Trial,
    differs,
    modified_inputs_error,
    snapshot,
    student_call,
    trial_from_error,
    wrong_return,
)
from .compile_check import Launch
from .kernel_errors import KernelError
from .kernel_launch import (
    Operators,
    address_of,
    as_shared_arrays,
    file_of,
    kernels_compute,
    products_seen,
    replaced,
)

AS_OPERATOR = "as an operator"  # a tag: the case on which fakes, opcheck and torch.compile are tried
FAKES, OPCHECK, ONE_GRAPH = "fakes", "opcheck", "one graph"  # keys of `OperatorTrial.tried`
LONGEST = 240  # characters of torch's messages
TRACED = (
    "torch traces a launch of a kernel, as in the body of a triton_op, and cannot trace interpreted kernels: "
    "launch it in a function under torch.library.custom_op"
)


@dataclass(frozen=True)
class OperatorTrial(Trial):
    """A trial of both passes.

    Attributes:
        on_ctx: names of the attributes of ctx that hold tensors.
        operators: names of the student's operators that were called.
        outside: the passes in which a kernel was launched outside an operator: "forward", "backward".
        function: the class of the torch.autograd.Function that returned O, or "".
        no_gradients: why gradients are missing, or "".
        new_words: number of saved words beyond Q, K and V.
        unsaved: which kernel of the backward pass gets memory of the forward pass that is not saved, or "".
        wide: as in a `KernelTrial`.
        wrong_type: which result of an operator has a wrong type, or "".
        tried: for each trial in `FAKES`, `OPCHECK` and `ONE_GRAPH` that was made, what is wrong, or "".
        launches: the distinct launches.
    """

    on_ctx: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    function: str = ""
    no_gradients: str = ""
    new_words: int = 0
    unsaved: str = ""
    wide: str = ""
    wrong_type: str = ""
    tried: Mapping[str, str] = field(default_factory=dict)
    launches: tuple[Launch, ...] = ()


@trial_from_error
def differentiate(student: Callable[..., Any], case: Case) -> Trial:
    """Compute O and the gradients with autograd and count every launch; computing with torch is an error.

    If the case has a `layer`, the function is also applied to it before the backward pass. The ledger of the
    trial has the phases forward and backward, and its `peak` is the number of words saved in between. Missing
    gradients are None in the value.
    """
    require_triton()
    import torch

    inputs, operators, outside = case.inputs, Operators(), []
    leaves, gradient = _leaves(inputs), _as_autograd_has_it(inputs["dO"])
    operators.note(leaves)
    own, kept = set(operators.made), dict[int, int]()

    def keep(tensor: Any) -> Any:
        kept[tensor.data_ptr()] = tensor.numel()
        operators.saved.add(address_of(tensor))
        return tensor

    with (
        _dO_is_strided(gradient),
        kernels_compute(operators=operators, cell=file_of(student)) as launches,
        traffic.count(dO=gradient) as ledger,
        products_seen() as products,
    ):
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            O = _one_tensor(student(*leaves, *_given(inputs, "causal")))
        forward = PhaseTotal(ledger.read, ledger.written)
        on_ctx = _tensors_on_ctx(O)
        for tensor in (tensor for tensors in on_ctx.values() for tensor in tensors):
            keep(tensor)
        outside += ["forward"] * (operators.outside > 0)
        for arrays, causal in _given(inputs, "layer"):
            student(*(torch.from_numpy(x.copy()).requires_grad_() for x in arrays), causal)
        before = PhaseTotal(ledger.read, ledger.written)
        operators.outside, operators.is_backward = 0, True
        gradients, no_gradients = _gradients(O, leaves, gradient)
        outside += ["backward"] * (operators.outside > 0)
    now = zip(("Q", "K", "V", "dO"), (*leaves, gradient), strict=True)
    if changed := [name for name, tensor in now if differs(inputs[name], tensor.detach().numpy())]:
        raise modified_inputs_error(changed, "your operators write into")
    backward = PhaseTotal(ledger.read - before.read, ledger.written - before.written)
    ledger.phases.update(forward=forward, backward=backward)
    ledger.peak = sum(kept.values())
    shared = as_shared_arrays((O, *gradients))
    value = tuple(x if x is None else x.detach().double().numpy() for x in (O, *gradients))
    tried = {}
    if not (outside or no_gradients):
        tried = _try_operators(student, case, operators, value)
    return OperatorTrial(
        case,
        value=value,
        ledger=ledger,
        returned=(snapshot(shared), shared),
        on_ctx=tuple(on_ctx),
        operators=tuple(operators.calls),
        outside=tuple(outside),
        function=_function_of(O),
        no_gradients=no_gradients,
        new_words=sum(words for address, words in kept.items() if address not in own),
        unsaved=operators.unsaved,
        wide=products.wide,
        wrong_type=_wrong_type(operators, leaves[0]),
        tried=tried,
        launches=tuple(launches.seen.values()),
    )


def _leaves(inputs: Mapping[str, Any]) -> list[Any]:
    import torch

    return [torch.from_numpy(inputs[name].copy()).requires_grad_() for name in ("Q", "K", "V")]


def _given(inputs: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    """Return a tuple with the input of this name, or an empty one."""
    return (inputs[name],) if name in inputs else ()


def _as_autograd_has_it(dO: NDArray[Any]) -> Any:
    """Return a tensor with the strides of the array; an array with strides of 0 stays one word in memory."""
    import torch

    if not any(dO.strides):
        return torch.from_numpy(np.array([dO.flat[0]])).expand(dO.shape)
    return torch.from_numpy(dO.copy(order="K"))


@contextmanager
def _dO_is_strided(dO: Any) -> Iterator[None]:
    """Add advice to an error of a kernel that reads outside a dO that is not contiguous."""
    try:
        yield
    except KernelError as error:
        if dO.is_contiguous() or not str(error).partition(": is a mask missing")[0].endswith(" dO"):
            raise
        strides = f"dO has the strides {dO.stride()} here, and these addresses are those of contiguous rows"
        raise KernelError(f"{error} {strides}: use dO.contiguous()") from None


def _tensors_of(results: Any) -> list[Any]:
    """Return the tensors that an operator returned, in order; one that returns nothing has none."""
    import torch
    from torch.utils._pytree import tree_leaves

    return [x for x in tree_leaves(results) if isinstance(x, torch.Tensor)]


def _wrong_type(operators: Operators, Q: Any) -> str:
    """Return which result of an operator has another type than Q, or than float32 with one word per row."""
    import torch

    right = {Q.shape: Q.dtype, Q.shape[:2]: torch.float32}
    names = ["O", "LSE"]  # of the first operator
    for name, call in operators.calls.items():
        results = _tensors_of(call.results)
        names = ["dQ", "dK", "dV"] if len(results) == 3 else names
        for k, x in enumerate(results):
            if x.dtype != (want := right.get(x.shape, x.dtype)):
                which = names[k] if names else f"result {k}"
                got, wanted = (str(one).removeprefix("torch.") for one in (x.dtype, want))
                return f"{which}, as {name} returns it, is {got}, expected {wanted}"
        names = []
    return ""


def _one_tensor(O: Any) -> Any:
    if not hasattr(O, "data_ptr"):
        raise wrong_return(O, f"expected one tensor O, got a {type(O).__name__}")
    return O


# ------------------------------------------------------------------ gradients
NO_GRADIENTS = (
    "O requires no gradients: register their formula with register_autograd, and call the operator without "
    "no_grad or detach"
)
NO_ATTRIBUTE = re.compile(r"'GeneratedBackwardFor\w*' object has no attribute ('\w+')")
WRONG_NUMBER = re.compile(r"incorrect number of gradients \(expected (\d+), got (\d+)\)")
NO_FORMULA = re.compile(r"through (\S+?)(?:\.default)? but no autograd formula was registered")


def _gradients(O: Any, leaves: list[Any], dO: Any) -> tuple[tuple[Any, ...], str]:
    """Return the gradients, and why they are missing ("" if they are not); a missing one is None."""
    import torch

    none = (None,) * len(leaves)
    if not O.requires_grad:
        return none, NO_GRADIENTS
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an operator without a formula
            gradients = torch.autograd.grad(O, leaves, dO, allow_unused=True)
    except RuntimeError as error:
        if found := NO_FORMULA.search(str(error)):
            name = found[1].replace(".", "::", 1)
            return none, f"{name} has no formula of its gradients: register one with register_autograd"
        if found := WRONG_NUMBER.search(str(error)):
            asked, got = (int(count) - _is_generated(O.grad_fn) for count in found.groups())
            return none, f"the formula returns {got} values, expected {asked}: one per input of the operator"
        raise
    except AttributeError as error:
        if found := NO_ATTRIBUTE.search(str(error)):
            set_it = "set it in the function that is passed to register_autograd as setup_context"
            raise AttributeError(f"ctx has no attribute {found[1]}: {set_it}") from error
        raise
    missing = [name for name, one in zip("QKV", gradients, strict=True) if one is None]
    reached = {id(getattr(node, "variable", None)) for node in _nodes(O)}
    cut = [name for name, leaf in zip("QKV", leaves, strict=True) if id(leaf) not in reached]
    if cut:
        return gradients, f"the operator gets {' and '.join(cut)} without gradients, as after detach()"
    return gradients, f"the formula returns no gradient for {' and '.join(missing)}" if missing else ""


def _nodes(O: Any) -> Iterator[Any]:
    """Yield the nodes of the graph of O; O may be a view of what an operator returned."""
    nodes = [O.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None:
            yield node
            nodes += [earlier for earlier, _ in node.next_functions]


def _tensors_on_ctx(O: Any) -> dict[str, list[Any]]:
    """Return the tensors stored as attributes of ctx, by attribute name."""
    found: dict[str, list[Any]] = {}
    for node in _nodes(O):
        for name, value in getattr(node, "__dict__", {}).items():
            if tensors := list(_tensors_in(value)):
                found.setdefault(name, []).extend(tensors)
    return found


def _tensors_in(value: Any) -> Iterator[Any]:
    if hasattr(value, "data_ptr"):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(part)


def _is_generated(node: Any) -> bool:
    """Return whether torch made this node of a graph for an operator, whose inputs it extends by one."""
    return type(node).__name__.startswith("GeneratedBackwardFor")


def _function_of(O: Any) -> str:
    """Return the name of the first torch.autograd.Function of O that an operator did not make, or ""."""
    own = (node for node in _nodes(O) if hasattr(node, "__dict__") and not _is_generated(node))
    return next((type(node).__name__.removesuffix("Backward") for node in own), "")


# ------------------------------------------------------------------ fakes, opcheck and torch.compile
def _try_operators(
    student: Callable[..., Any], case: Case, operators: Operators, value: tuple[Any, ...]
) -> dict[str, str]:
    """Return what is wrong with fakes, with opcheck and with the compiled function; stop at the first."""
    steps: dict[str, Callable[[], str]] = {FAKES: lambda: _wrong_fake(operators)}
    if case.has(AS_OPERATOR):
        steps[OPCHECK] = lambda: _failed_opcheck(operators)
        steps[ONE_GRAPH] = lambda: _no_graph(student, case, value)
    tried: dict[str, str] = {}
    with _silent(), student_call():
        for name, step in steps.items():
            tried[name] = step()
            if tried[name]:
                break
    return tried


@contextmanager
def _silent() -> Iterator[None]:
    """Show no warning or log within the block, and forget at its end what torch.compile has compiled."""
    import torch._dynamo

    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        torch._dynamo.reset()


def _wrong_fake(operators: Operators) -> str:
    """Return what is wrong with the fake of an operator: it is missing, or differs from what it returned."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._pytree import tree_map_only

    for name, call in operators.calls.items():
        mode = FakeTensorMode()
        args, kwargs = tree_map_only(torch.Tensor, lambda x: mode.from_tensor(x.detach()), call.arguments)  # noqa: B023
        with mode, torch.no_grad(), _no_launch():
            try:
                got = _tensors_of(call.operator(*args, **kwargs))
            except Exception as error:
                return _missing_fake(name, error)
        want = _tensors_of(call.results)
        if len(got) != len(want):
            return f"the fake of {name} returns {len(got)} tensors, the operator {len(want)}"
        for k, (one, other) in enumerate(zip(got, want, strict=True)):
            which = f"result {k}" if len(want) > 1 else "its result"
            for what in ("shape", "dtype", "stride"):
                mine, right = (_described(x, what) for x in (one, other))
                if mine != right:
                    return f"the fake of {name}: {which} has {what} {mine}, that of the operator {right}"
    return ""


class _Launched(Exception):
    """A kernel was launched where there are no data."""


@contextmanager
def _no_launch() -> Iterator[None]:
    """Raise _Launched at each launch of a kernel within the block."""
    from triton.runtime.interpreter import InterpretedFunction

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise _Launched

    with replaced(InterpretedFunction, run=refuse):
        yield


def _described(x: Any, what: str) -> str:
    if what == "dtype":
        return str(x.dtype).removeprefix("torch.")
    return str(tuple(x.shape if what == "shape" else x.stride()))


def _is_traced(name: str) -> bool:
    """Return whether the operator is a triton_op, whose fake is its body."""
    from torch._library import custom_ops

    operator = getattr(custom_ops, "OPDEFS", {}).get(name)
    return bool(getattr(operator, "_torch_dispatch_fns", ()))


def _missing_fake(name: str, error: Exception) -> str:
    if isinstance(error, NotImplementedError) and not str(error):
        return f"the fake of {name} is not written yet"
    if type(error).__name__ == "UnsupportedOperatorException" or "no fake impl registered" in str(error):
        return f"{name} has no fake: register one with register_fake"
    if "is not an instance of 'sequence'" in str(error):
        return f"the fake of {name} returns one tensor, the operator several"
    if isinstance(error, _Launched) and _is_traced(name):
        return f"{name}: {TRACED}"
    if isinstance(error, _Launched):
        said = "it launches a kernel, and a fake has shapes and types but no data"
    elif type(error).__name__.startswith("DataDependent"):
        said = "it reads data, and a fake has only shapes and types"
    else:
        said = _line(error)
    return f"the fake of {name} fails: {said}"


def _line(error: BaseException) -> str:
    """Return the error in one line, shortened."""
    if "data pointer" in str(error):
        return TRACED
    text = " ".join(error_text(error).partition("\n  Hint:")[0].split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


SCHEMA = ("test_schema",)
OTHER_TESTS = ("test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
MEANINGS = {  # of a message of torch.library.opcheck, in words of the exercise
    r"Argument (\w+) is not defined to alias output": "a result is a view of {}: return new tensors",
    r"outputs\[\d+\] is (\w+)": "it returns its input {}: return new tensors",
    r"(outputs_alias_inputs) check True": "its fake returns an input: return new tensors",
    r"Argument (\w+) is not defined as mutable": "it writes into {}, which mutates_args lacks",
}


def _failed_opcheck(operators: Operators) -> str:
    """Return in one line what torch.library.opcheck rejects, or ""."""
    import torch.fx.operator_schemas
    from torch.utils._pytree import tree_map_only

    getattr(
        torch.fx.operator_schemas, "_SCHEMA_TO_SIGNATURE_CACHE", {}
    ).clear()  # of an earlier run of the cell
    for name, call in operators.calls.items():
        # With gradients the test of the schema would also judge what setup_context does.
        plain = tree_map_only(torch.Tensor, lambda x: x.detach(), call.arguments)
        for (args, kwargs), tests in ((plain, SCHEMA), (call.arguments, OTHER_TESTS)):
            failed = torch.library.opcheck(
                call.operator, args, kwargs, test_utils=tests, raise_exception=False
            )
            for test, error in failed.items():
                if isinstance(error, Exception):
                    return f"{name} fails {test}: {_meaning(error)}"
    return ""


def _meaning(error: Exception) -> str:
    for pattern, words in MEANINGS.items():
        if found := re.search(pattern, str(error)):
            return words.format(found[1])
    return _line(error)


def _no_graph(student: Callable[..., Any], case: Case, value: tuple[Any, ...]) -> str:
    """Return why the compiled function is not one graph whose kernels compute the same results, or ""."""
    import torch

    leaves, inputs = _leaves(case.inputs), case.inputs
    if getattr(student, "_torchdynamo_disable", False):  # torch.compile ignores it on the function itself
        return "a function that calls it does not compile: remove @torch.compiler.disable"
    try:
        with traffic.count() as forward:
            compiled = torch.compile(student, fullgraph=True, backend="aot_eager")
            O = compiled(*leaves, *_given(inputs, "causal"))
        with traffic.count() as backward:
            gradients = torch.autograd.grad(O, leaves, _as_autograd_has_it(inputs["dO"]))
    except Exception as error:
        return _line(error)
    for name, got, want in zip(("O", "dQ", "dK", "dV"), (O, *gradients), value, strict=True):
        off = np.abs(got.detach().double().numpy() - want).max()
        if not off <= 1e-6 * (1 + np.abs(want).max()):
            return f"compiled, {name} differs by up to {off:.2g} from that of the same function not compiled"
    for phase, moved in (("forward", forward), ("backward", backward)):
        if not works(phase, moved.read, moved.written, inputs["Q"].size):
            return (
                f"compiled, kernels read {moved.read:,} and write {moved.written:,} words in the {phase} pass"
            )
    return ""


LEAST = {"forward": (3, 1), "backward": (4, 3)}  # arrays of the size of Q that kernels read and write


def works(phase: str, read: int, written: int, size: int) -> bool:
    """Return whether kernels read all inputs of a pass and write all its outputs, of `size` words each."""
    inputs, outputs = LEAST[phase]
    return read >= inputs * size and written >= outputs * size
