"""Exercises of lesson 12: D, dQ, dK and dV as Triton kernels, the fused backward pass, and autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact, traffic
from ...costs.kernels import (
    KernelProblem,
    attention_forward,
    dkdv_plain,
    dq_plain,
    fused_backward_plain,
    sum_ledgers,
)
from ...doctor.triton_missing import require_triton
from ...ledger import Ledger, PhaseTotal
from ..exercise import Case, Draw, Exercise, Property, Sample, Trial, snapshot, trial_from_error, wrong_return
from ..kinds.forward_cases import token_major
from ..kinds.function import EVERY, TOGETHER, function_exercise
from ..kinds.kernel import MOVES, SINGLE, kernel_exercise
from ..properties import as_traffic, budget_of, each, idle
from ..trials.compile_check import Launch
from ..trials.kernel_launch import (
    as_shared_arrays,
    kernels_compute,
    launch,
    launch_and_count_programs,
    nothing_in_vain,
)

Array = NDArray[Any]
Arrays = dict[str, Any]
# For scores near -100 a weight has a relative error of 1e-5 in float32; ten times the error of the reference.
LOW_TOLERANCE = 2e-4
RAGGED, CAUSAL, LOW, STRIDED = "a ragged last tile", "causal", "scores near -100", "dO with strides"
HEADS = "two heads"


# ------------------------------------------------------------------ inputs and exact results
def _gradients(
    rng: np.random.Generator, H: int, N: int, d: int, *, causal: bool, low: bool = False, far: bool = False
) -> Arrays:
    """Return Q, K, V, O, dO (H, N, d), LSE and D (H, N) in float32, and the exact gradients.

    With `far`, odd rows of scores start at -2^85 / √d (about -10^25) and decrease with every key, so one
    weight is 1 also in float32. A finite replacement of -inf that is larger would get all the weight. Only dQ
    is that exact, because rounding errors in such a row of dS are multiplied by Q in dK.
    """
    Q, K, V, dO = rng.standard_normal((4, H, N, d)).astype(np.float32)
    if low:
        Q[:] = Q / 4 + 5
        K[:] = K / 4 - 80 / d  # 5 · 80 / √d is 100 at d = 16
    if far:
        K[:, :, 0], Q[:, :, 0] = 1 + np.arange(N) / 8, 0
        Q[:, 1::2] = 0
        Q[:, 1::2, 0] = -(2.0**85)
    return {"Q": Q, "K": K, "V": V, "dO": dO} | _right(Q, K, V, dO, causal)


def _right(Q: Array, K: Array, V: Array, dO: Array, causal: bool) -> Arrays:
    """Return O, LSE, D and the gradients, computed in float64 per head; inputs of kernels as float32."""
    heads = []
    for q, k, v, do in zip(*(x.astype(np.float64) for x in (Q, K, V, dO)), strict=True):
        S = exact.scores(q, k)
        S = np.where(np.tri(len(q), dtype=bool), S, -np.inf) if causal else S
        O = exact.softmax(S) @ v
        gradients = exact.attention_backward(q, k, v, do, causal=causal)._asdict()
        heads.append({"O": O, "LSE": exact.log_sum_exp(S), "D": (do * O).sum(axis=1), **gradients})
    found = {name: np.stack([head[name] for head in heads]) for name in heads[0]}
    return found | {name: found[name].astype(np.float32) for name in ("O", "LSE", "D")}


# ------------------------------------------------------------------ 12A: D
def row_blocks(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield complete and ragged blocks, two heads, O and dO in other memory layouts, one row, and a call
    without BM (twice, with other values).
    """
    N = int(rng.integers(33, 63))
    for H, n, d, BM, difficulty in [
        (1, 64, 16, 32, ""),
        (2, 32, 16, 32, HEADS),
        (2, N, 16, 32, RAGGED),
        (2, N + 1, 16, 16, STRIDED),
        *[(1, 1, 32, None, RAGGED)] * 2,
    ]:
        O, dO = rng.standard_normal((2, H, n, d)).astype(np.float32)
        if difficulty == STRIDED:  # dO in the layout of a layer, and padding after the heads of a token in O
            dO, room = token_major(dO), np.pad(O.transpose(1, 0, 2), ((0, 0), (0, 0), (0, 5)))
            O = room.transpose(1, 0, 2)[:, :, :d]
        tile = {} if BM is None else {"BM": BM}
        yield Sample(
            {"H": H, "N": n, "d": d, "BM": BM or "as given"},
            {"O": O, "dO": dO, **tile},
            {"D": (O.astype(np.float64) * dO).sum(axis=2)},
            Ledger(reads={"O": O.size, "dO": O.size}, writes={"D": H * n}),
            (difficulty,),
        )


ROWS = kernel_exercise(
    "12A",
    "D",
    row_blocks,
    {
        (TOGETHER, EVERY): "D is exact",
        (TOGETHER, HEADS): "is exact for every head",
        (TOGETHER, RAGGED): "is exact for ragged tiles",
        (TOGETHER, STRIDED): "is exact for any strides of O and dO",
    },
    loads="O dO",
    also=(nothing_in_vain(),),
    products=False,
    run_case=launch_and_count_programs,
)


# ------------------------------------------------------------------ 12B to 12D: the kernels
Words = Callable[[KernelProblem, int, int], Ledger]


def _tiles(takes: str, returns: str, words: Words) -> Draw:
    """Return a generator of samples for a kernel with tiles of BM queries and BN keys.

    Complete tiles, two heads, ragged tiles with very negative scores in every second row, causal masks, one
    ragged row and key, and all keys in one tile (twice, with equal sizes).
    """

    def draw(rng: np.random.Generator) -> Iterator[Sample]:
        N = int(rng.integers(33, 47))
        far = "dK" not in returns.split()  # because dK multiplies rounding errors of dS by rows of Q
        for H, n, d, BM, BN, difficulty in [
            (1, 64, 32, 32, 32, ""),
            (2, 32, 16, 16, 32, HEADS),
            (2, N, 16, 16, 32, RAGGED),
            (1, N + 16, 16, 32, 16, CAUSAL),
            (2, N, 16, 16, 32, CAUSAL),
            (1, 33, 16, 16, 16, LOW),  # one row and one key in the last tile
            (1, 1, 16, 16, 16, RAGGED),
            *[(1, 3, 16, 32, 16, RAGGED)] * 2,  # all keys, and more queries in a tile than columns
        ]:
            causal = difficulty == CAUSAL
            arrays = _gradients(
                rng, H, n, d, causal=causal, low=difficulty == LOW, far=far and n == N and not causal
            )
            tile = {"BM": BM, "BN": BN}
            yield Sample(
                {"H": H, "N": n, "d": d, **tile},
                {name: arrays[name] for name in takes.split()} | tile | {"causal": causal},
                {name: arrays[name] for name in returns.split()},
                words(KernelProblem(n, n, d, high=0 if causal else None, H=H, H_kv=H), BM, BN),
                (difficulty,),
            )

    return draw


def _backward(
    id: str, takes: str, returns: str, words: Words, *also: Property, moves: Property = MOVES
) -> Exercise:
    *some, last = returns.split()
    return kernel_exercise(
        id,
        returns,
        _tiles(takes, returns, words),
        {
            (TOGETHER, EVERY): f"{', '.join(some)} and {last} are exact",
            (TOGETHER, HEADS): "is exact for every head",
            (TOGETHER, RAGGED): "is exact for ragged tiles",
            (TOGETHER, CAUSAL): "applies the causal mask",
            (TOGETHER, LOW): "scores near -100 do not overflow",
        },
        loads=takes,
        words=moves,
        also=also,
        looser={LOW: LOW_TOLERANCE},
        run_case=launch,
    )


def added_atomically() -> Property:
    """Return the property that atomic additions have exactly the words of the closed form."""

    def judge(trial: Trial) -> str | None:
        got, want = sum(trial.ledger.atomics.values()), sum(budget_of(trial).atomics.values())
        return None if got == want else f"adds {got:,} words atomically, expected {want:,}"

    return as_traffic(each("accumulates dQ with atomic additions", judge))


DQ = _backward("12B", "Q K V O dO LSE", "dQ D", dq_plain)
KEYS = _backward("12C", "Q K V dO LSE D", "dK dV", dkdv_plain)
# Words that are added atomically are among all words, and their property is read first.
FUSED = _backward(
    "12D", "Q K V O dO LSE", "dQ dK dV", fused_backward_plain, added_atomically(),
    moves=replace(MOVES, general=True),
)  # fmt: skip


# ------------------------------------------------------------------ 12E: under autograd
def layers(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield a contiguous dO, dO in the layout of a layer, in column-major order, and with strides of 0.

    The first sample is without `causal`. Some have a second layer of equal sizes before the backward
    pass, with the same mask or another one.
    """
    N = int(rng.integers(33, 48))
    drawn: list[tuple[int, int, bool | None, bool | None, Callable[[Array], Array]]] = [
        (2, 32, None, None, np.asarray),
        (1, N, True, False, np.asarray),
        (2, 32, True, True, np.asarray),
        (1, N, True, None, np.asarray),
        (1, N, False, None, _one_word),
        (2, 20, False, None, _columns_first),
        (2, 20, False, None, token_major),
    ]
    for H, n, causal, second, lies in drawn:
        Q, K, V, dO = rng.standard_normal((4, H, n, 16)).astype(np.float32)
        dO = lies(dO)
        right = _right(Q, K, V, dO, bool(causal))
        inputs = {"Q": Q, "K": K, "V": V, "dO": dO} | ({} if causal is None else {"causal": causal})
        difficulty = CAUSAL if causal else "" if lies is np.asarray else STRIDED
        if second is not None:
            inputs["layer"] = rng.standard_normal((3, H, n, 16)).astype(np.float32), second
            difficulty = f"before its backward pass a second layer, causal={second}"
        sizes = {"H": H, "N": n, "d": 16, "causal": causal or False}
        results = {name: right[name] for name in ("O", "dQ", "dK", "dV")}
        yield Sample(sizes, inputs, results, None, (difficulty,))


def _columns_first(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(2, 1, 0)).transpose(2, 1, 0)


def _one_word(x: Array) -> Array:
    return np.broadcast_to(np.float32(1), x.shape)


@dataclass(frozen=True)
class AutogradTrial(Trial):
    """A trial of both passes, with the attributes of ctx that hold tensors, and the distinct launches."""

    on_ctx: tuple[str, ...] = ()
    launches: tuple[Launch, ...] = ()


@trial_from_error
def differentiate(student: Callable[..., Any], case: Case) -> Trial:
    """Compute O and the gradients with autograd and count every launch; computing with torch is an error.

    If the case has a `layer`, the function is also applied to it before the backward pass. The ledger of the
    trial has the phases forward and backward, and its `peak` is the number of words saved in between.
    """
    require_triton()
    import torch

    inputs = case.inputs
    leaves = [torch.from_numpy(inputs[name].copy()).requires_grad_() for name in ("Q", "K", "V")]
    gradient = _as_autograd_has_it(inputs["dO"])
    kept: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with kernels_compute() as launches, traffic.count(dO=gradient) as ledger:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            O = _one_tensor(student(*leaves, *_given(inputs, "causal")))
        forward = PhaseTotal(ledger.read, ledger.written)
        on_ctx = _tensors_on_ctx(O)
        for tensor in (tensor for tensors in on_ctx.values() for tensor in tensors):
            keep(tensor)
        for arrays, causal in _given(inputs, "layer"):
            student(*(torch.from_numpy(x.copy()).requires_grad_() for x in arrays), causal)
        before = PhaseTotal(ledger.read, ledger.written)
        gradients = torch.autograd.grad(O, leaves, gradient)
    backward = PhaseTotal(ledger.read - before.read, ledger.written - before.written)
    ledger.phases.update(forward=forward, backward=backward)
    ledger.peak = sum(kept.values())
    shared = as_shared_arrays((O, *gradients))
    value = tuple(x.detach().double().numpy() for x in (O, *gradients))
    return AutogradTrial(
        case,
        value=value,
        ledger=ledger,
        returned=(snapshot(shared), shared),
        on_ctx=tuple(on_ctx),
        launches=tuple(launches.seen.values()),
    )


def _given(inputs: Mapping[str, Any], name: str) -> tuple[Any, ...]:
    """Return a tuple with the input of this name, or an empty one."""
    return (inputs[name],) if name in inputs else ()


def _as_autograd_has_it(dO: Array) -> Any:
    """Return a tensor with the strides of the array; an array with strides of 0 stays one word in memory."""
    import torch

    if not any(dO.strides):
        return torch.from_numpy(np.array([dO.flat[0]])).expand(dO.shape)
    return torch.from_numpy(dO.copy(order="K"))


def _one_tensor(O: Any) -> Any:
    if not hasattr(O, "data_ptr"):
        raise wrong_return(O, f"expected one tensor O, got a {type(O).__name__}")
    return O


def _tensors_on_ctx(O: Any) -> dict[str, list[Any]]:
    """Return the tensors stored as attributes of ctx, by attribute name."""
    found: dict[str, list[Any]] = {}
    nodes = [O.grad_fn]
    while nodes:  # O may be a view of what a Function returned
        node = nodes.pop()
        if node is not None:
            nodes += [earlier for earlier, _ in node.next_functions]
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


def keeps_little() -> Property:
    """Return the property that at most 4Nd + N words per head are saved: Q, K, V, O and LSE."""

    def judge(trial: Trial) -> str | None:
        H, N, d = trial.case.inputs["Q"].shape
        allowed = 4 * H * N * d + H * N
        kept = trial.ledger.peak
        return (
            None
            if kept <= allowed
            else f"saves {kept:,} words, expected at most {allowed:,} (4Nd + N per head)"
        )

    return as_traffic(each("saves only Q, K, V, O and LSE", judge))


def both_passes_launch() -> Property:
    """Return the property that kernels read all inputs and write all outputs of each pass."""

    def judge(trial: Trial) -> str | None:
        words = int(np.size(trial.case.inputs["Q"]))
        for phase, inputs, outputs in (("forward", 3, 1), ("backward", 4, 3)):
            moved = trial.ledger.phases[phase]
            if moved.read < inputs * words or moved.written < outputs * words:
                return (
                    f"{phase}: your kernels read {moved.read:,} and write {moved.written:,} words, expected "
                    f"at least {inputs * words:,} and {outputs * words:,}"
                )
        return None

    return as_traffic(each("kernels do the work, forward and backward", judge))


SMALLEST = 16  # queries and keys per tile in `tl.dot`


def moves_each_pass_once() -> Property:
    """Return the property that the words are at most those of one forward pass and one backward pass.

    The limits are the closed forms with the smallest tiles and without a mask. An answer that does not save O
    may compute it again in the backward pass.
    """

    def judge(trial: Trial) -> str | None:
        H, N, d = trial.case.inputs["Q"].shape
        words, rows, tile = H * N * d, H * N, (SMALLEST, SMALLEST)
        problem = KernelProblem(N, N, d, H=H, H_kv=H)
        forward = attention_forward(problem, BM=SMALLEST, BN=SMALLEST).read, words + 2 * rows
        two = sum_ledgers(dq_plain(problem, *tile), dkdv_plain(problem, *tile))
        fused = fused_backward_plain(problem, *tile)
        read, written = max(two.read, fused.read), 3 * words + 2 * rows
        if trial.ledger.peak <= 3 * words + rows:  # without O
            read, written = read + forward[0], written + forward[1]
        added = sum(trial.ledger.atomics.values())
        for phase, most, atomics in (("forward", forward, 0), ("backward", (read, written), added)):
            moved = trial.ledger.phases[phase]
            for verb, got, limit in (
                ("read", moved.read, most[0]),
                ("write", moved.written - atomics, most[1]),
            ):
                if got > limit:
                    return (
                        f"{phase}: your kernels {verb} {got:,} words, expected at most {limit:,}. "
                        "Is a kernel launched twice?"
                    )
        return None

    return as_traffic(each("moves each pass once", judge))


def saves_with_autograd() -> Property:
    """Return the property that tensors are saved with autograd, which frees them and detects changes."""

    def judge(trial: Trial) -> str | None:
        names = trial.on_ctx if isinstance(trial, AutogradTrial) else ()
        if not names:
            return None
        hung, hold = " and ".join(f"ctx.{name}" for name in names), "holds" if len(names) == 1 else "hold"
        return f"{hung} {hold} tensors that autograd cannot free; use ctx.save_for_backward"

    return idle(each("saves its tensors with save_for_backward", judge))


AUTOGRAD = function_exercise(
    "12E",
    "O dQ dK dV",
    layers,
    {
        (TOGETHER, EVERY): "O and the three gradients are exact",
        (TOGETHER, CAUSAL): "applies the causal mask in both passes",
        (TOGETHER, STRIDED): "is exact for any strides of dO",
    },
    before=(both_passes_launch(),),
    after=(keeps_little(), moves_each_pass_once(), saves_with_autograd()),
    tolerance=SINGLE,
    run_case=differentiate,
    compiles=True,
)

EXERCISES = (ROWS, DQ, KEYS, FUSED, AUTOGRAD)
