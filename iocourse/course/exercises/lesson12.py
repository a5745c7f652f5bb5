"""Exercises of lesson 12: D, dQ, dK and dV as Triton kernels, the fused backward pass, and an operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import exact
from ...costs.kernels import (
    KernelProblem,
    attention_forward,
    dkdv_plain,
    dq_plain,
    fused_backward_plain,
    sum_ledgers,
)
from ...ledger import Ledger
from ..exercise import Draw, Exercise, NotReached, Property, RunCase, Sample, Trial, WrongForm
from ..kinds.forward_cases import token_major
from ..kinds.function import EVERY, TOGETHER, function_exercise
from ..kinds.kernel import MOVES, SINGLE, kernel_exercise
from ..properties import as_traffic, budget_of, each, idle
from ..trials.helper_call import helper_is_right, launch_and_test_helper
from ..trials.kernel_launch import launch, launch_and_count_programs, nothing_in_vain
from ..trials.operator_launch import (
    AS_OPERATOR,
    FAKES,
    LEAST,
    ONE_GRAPH,
    OPCHECK,
    OperatorTrial,
    differentiate,
    works,
)
from ..trials.sixteen_bit_gradients import (
    EXACT_O,
    HALF,
    ORDER_TOLERANCE,
    half_inputs,
    with_exact_O,
    within_rounding,
)

Array = NDArray[Any]
Arrays = dict[str, Any]
# For scores near -100 a weight has a relative error of 1e-5 in float32; ten times the error of the reference.
LOW_TOLERANCE = 2e-4
RAGGED, CAUSAL, LOW, STRIDED = "a ragged last tile", "causal", "scores near -100", "dO with strides"
HEADS = "two heads"
LARGE_Q = 2.0  # of float16 inputs: scores of about ±6, and LSE of about 5


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
    return {"Q": Q, "K": K, "V": V, "dO": dO} | _right(Q, K, V, dO, causal, np.float32)


def _right(Q: Array, K: Array, V: Array, dO: Array, causal: bool, stored: Any = np.float64) -> Arrays:
    """Return O, LSE, D and the gradients, computed in float64 per head; inputs of kernels as float32.

    `stored` is the type of O: D and the gradients are those of O as it is stored.
    """
    heads = []
    for q, k, v, do in zip(*(x.astype(np.float64) for x in (Q, K, V, dO)), strict=True):
        S, scale = exact.scores(q, k), q.shape[1] ** -0.5
        S = np.where(np.tri(len(q), dtype=bool), S, -np.inf) if causal else S
        P = exact.softmax(S)
        O = (P @ v).astype(stored)
        D = (do * O).sum(axis=1)
        dS = P * (do @ v.T - D[:, None])
        gradients = {"dQ": scale * dS @ k, "dK": scale * dS.T @ q, "dV": P.T @ do}
        heads.append({"O": O, "LSE": exact.log_sum_exp(S), "D": D, **gradients})
    found = {name: np.stack([head[name] for head in heads]) for name in heads[0]}
    return found | {name: found[name].astype(np.float32) for name in ("LSE", "D")}


def _half_gradients(rng: np.random.Generator, H: int, N: int, d: int) -> Arrays:
    """Return causal inputs as `_gradients`, with Q, K, V, O and dO in float16, and the exact results."""
    inputs = half_inputs(rng, H, N, d)
    return inputs | _right(**inputs, causal=True, stored=np.float16)


# ------------------------------------------------------------------ 12A: D
def row_blocks(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield complete and ragged blocks, two heads, O and dO in other memory layouts, one row, and a call
    without BM (twice, with other values). One sample is in float16.
    """
    N = int(rng.integers(33, 63))
    for H, n, d, BM, difficulty in [
        (1, 64, 16, 32, ""),
        (2, 32, 16, 32, HEADS),
        (1, 32, 32, 32, HALF),
        (2, N, 16, 32, RAGGED),
        (2, N + 1, 16, 16, STRIDED),
        *[(1, 1, 32, None, RAGGED)] * 2,
    ]:
        O, dO = rng.standard_normal((2, H, n, d)).astype(np.float16 if difficulty == HALF else np.float32)
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
        (TOGETHER, HALF): "sums rows of float16 in float32",
    },
    loads="O dO",
    also=(nothing_in_vain(),),
    products=False,
    run_case=launch_and_count_programs,
)


# ------------------------------------------------------------------ 12B to 12D: the kernels
Words = Callable[[KernelProblem, int, int], Ledger]


def _tiles(takes: str, returns: str, words: Words, half: bool) -> Draw:
    """Return a generator of samples for a kernel with tiles of BM queries and BN keys.

    Complete tiles, two heads, ragged tiles with very negative scores in every second row, causal masks, one
    ragged row and key, all keys in one tile (twice, with equal sizes), and with `half` causal float16.
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
            *[(2, N, 16, 16, 32, HALF)] * half,
        ]:
            causal = difficulty in (CAUSAL, HALF)
            apart = far and n == N and not causal
            arrays = (
                _half_gradients(rng, H, n, d)
                if difficulty == HALF
                else _gradients(rng, H, n, d, causal=causal, low=difficulty == LOW, far=apart)
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


IN_HALF = "is right in float16, up to rounding"


def _backward(
    id: str,
    takes: str,
    returns: str,
    words: Words,
    *also: Property,
    moves: Property = MOVES,
    half: bool = True,
    run_case: RunCase = launch,
) -> Exercise:
    *some, last = returns.split()
    sixteen_bits = (within_rounding(IN_HALF, returns.split()),) if half else ()
    return kernel_exercise(
        id,
        returns,
        _tiles(takes, returns, words, half),
        {
            (TOGETHER, EVERY): f"{', '.join(some)} and {last} are exact",
            (TOGETHER, HEADS): "is exact for every head",
            (TOGETHER, RAGGED): "is exact for ragged tiles",
            (TOGETHER, CAUSAL): "applies the causal mask",
            (TOGETHER, LOW): "scores near -100 do not overflow",
        },
        loads=takes,
        words=moves,
        also=(*sixteen_bits, *also),
        looser={LOW: LOW_TOLERANCE, HALF: ORDER_TOLERANCE},
        run_case=run_case,
    )


def added_atomically() -> Property:
    """Return the property that atomic additions have exactly the words of the closed form."""

    def judge(trial: Trial) -> str | None:
        got, want = sum(trial.ledger.atomics.values()), sum(budget_of(trial).atomics.values())
        return None if got == want else f"adds {got:,} words atomically, expected {want:,}"

    return as_traffic(each("accumulates dQ with atomic additions", judge))


DQ = _backward("12B", "Q K V O dO LSE", "dQ D", dq_plain, helper_is_right(), run_case=launch_and_test_helper)
KEYS = _backward("12C", "Q K V dO LSE D", "dK dV", dkdv_plain)
# Words that are added atomically are among all words, and their property is read first.
FUSED = _backward(
    "12D", "Q K V O dO LSE", "dQ dK dV", fused_backward_plain, added_atomically(),
    moves=replace(MOVES, general=True), half=False,
)  # fmt: skip


# ------------------------------------------------------------------ 12E: an operator
def layers(rng: np.random.Generator) -> Iterator[Sample]:
    """Yield a contiguous dO, dO in the layout of a layer, in column-major order, and with strides of 0.

    The first sample is without `causal`. Some have a second layer of equal sizes before the backward
    pass, with the same mask or another one. The operators of one are tried alone, and two are in float16.
    """
    N = int(rng.integers(33, 48))
    drawn: list[tuple[int, int, bool | None, bool | None, Callable[[Array], Array], tuple[str, ...]]] = [
        (2, 32, None, None, np.asarray, ()),
        (1, N, True, False, np.asarray, ()),
        (2, 32, True, True, np.asarray, ()),
        (1, N, True, None, np.asarray, (CAUSAL,)),
        (1, N, False, None, _one_word, (STRIDED,)),
        (2, 20, False, None, _columns_first, (STRIDED,)),
        (2, 20, False, None, token_major, (STRIDED,)),
        (2, 20, True, None, token_major, (AS_OPERATOR,)),
        (2, N, True, None, token_major, (HALF,)),
        (1, 32, None, None, np.asarray, (HALF, EXACT_O)),
    ]
    for H, n, causal, second, lies, tags in drawn:
        inputs: Arrays = {}
        if EXACT_O in tags:
            inputs |= with_exact_O(rng, H, n, 16)
        elif HALF in tags:
            inputs |= half_inputs(rng, H, n, 16, large=LARGE_Q)
        else:
            Q, K, V, dO = rng.standard_normal((4, H, n, 16)).astype(np.float32)
            inputs |= {"Q": Q, "K": K, "V": V, "dO": dO}
        inputs["dO"] = lies(inputs["dO"])
        right = _right(**inputs, causal=bool(causal))
        inputs |= {} if causal is None else {"causal": causal}
        if second is not None:
            inputs["layer"] = rng.standard_normal((3, H, n, 16)).astype(np.float32), second
            tags = (f"before its backward pass a second layer, causal={second}",)
        sizes = {"H": H, "N": n, "d": 16, "causal": causal or False}
        results = {name: right[name] for name in ("O", "dQ", "dK", "dV")}
        yield Sample(sizes, inputs, results, None, tags)


def _columns_first(x: Array) -> Array:
    return np.ascontiguousarray(x.transpose(2, 1, 0)).transpose(2, 1, 0)


def _one_word(x: Array) -> Array:
    return np.broadcast_to(np.float32(1), x.shape)


def keeps_little() -> Property:
    """Return the property that at most 4Nd + N words per head are saved: Q, K, V, O and LSE."""

    def judge(trial: Trial) -> str | None:
        H, N, d = trial.case.inputs["Q"].shape
        allowed = 4 * H * N * d + H * N
        kept = trial.ledger.peak
        if kept > allowed:
            return f"saves {kept:,} words, expected at most {allowed:,} (4Nd + N per head)"
        new = trial.new_words if isinstance(trial, OperatorTrial) else 0
        if new > H * N * (d + 1):
            return f"saves {new:,} words besides Q, K and V, expected at most {H * N * (d + 1):,}: O and LSE"
        return None

    return as_traffic(each("saves only Q, K, V, O and LSE", judge))


def both_passes_launch() -> Property:
    """Return the property that kernels read all inputs and write all outputs of each pass."""

    def judge(trial: Trial) -> str | None:
        words = int(np.size(trial.case.inputs["Q"]))
        if isinstance(trial, OperatorTrial) and trial.no_gradients:
            return NotReached("gradients are missing")
        for phase, (inputs, outputs) in LEAST.items():
            moved = trial.ledger.phases[phase]
            if not works(phase, moved.read, moved.written, words):
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
    or LSE may run the forward pass again in the backward pass.
    """

    def judge(trial: Trial) -> str | None:
        H, N, d = trial.case.inputs["Q"].shape
        words, rows, tile = H * N * d, H * N, (SMALLEST, SMALLEST)
        problem = KernelProblem(N, N, d, H=H, H_kv=H)
        forward = attention_forward(problem, BM=SMALLEST, BN=SMALLEST).read, words + 2 * rows
        two = sum_ledgers(dq_plain(problem, *tile), dkdv_plain(problem, *tile))
        fused = fused_backward_plain(problem, *tile)
        read, written = max(two.read, fused.read), 3 * words + 2 * rows
        if trial.ledger.peak < 4 * words + rows:  # without O or LSE
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
        if not isinstance(trial, OperatorTrial) or not (trial.on_ctx or trial.unsaved):
            return None
        names = trial.on_ctx
        if not names:
            lost = "a tensor that the forward pass did not pass to ctx.save_for_backward"
            return f"in the backward pass {trial.unsaved}, {lost}"
        hung, hold = " and ".join(f"ctx.{name}" for name in names), "holds" if len(names) == 1 else "hold"
        return f"{hung} {hold} tensors that autograd cannot free; use ctx.save_for_backward"

    return idle(each("saves its tensors with save_for_backward", judge))


def launches_in_operators() -> Property:
    """Return the property that every kernel is launched by an operator that the student registered."""

    def judge(trial: Trial) -> str | None:
        if not isinstance(trial, OperatorTrial) or (trial.operators and not trial.outside):
            return None
        if trial.function:
            return (
                f"O comes from {trial.function}, a torch.autograd.Function; this exercise now requires "
                "operators: register the launches of each pass with torch.library.custom_op"
            )
        passes = " and ".join(trial.outside) or "forward"
        return (
            f"{passes}: a kernel is launched outside an operator, where torch.compile cannot follow: launch "
            "it in a function under torch.library.custom_op"
        )

    return idle(each("launches its kernels in operators registered with torch", judge))


def has_gradients() -> Property:
    """Return the property that the gradients of Q, K and V are registered for the operator that returns O."""

    def judge(trial: Trial) -> str | None:
        missing = trial.no_gradients if isinstance(trial, OperatorTrial) else ""
        return WrongForm(missing) if missing else None

    return idle(each("registers the gradients of Q, K and V", judge))


def tried(key: str, name: str) -> Property:
    """Return the property that the trials of this key found nothing wrong, not reached without one."""

    def judge(trial: Trial) -> str | None:
        if not isinstance(trial, OperatorTrial):
            return None
        if key in trial.tried:
            return trial.tried[key] or None
        if trial.outside or trial.no_gradients:
            return NotReached("operators are not tried before both passes are registered")
        return NotReached("an earlier trial of its operators fails") if trial.case.has(AS_OPERATOR) else None

    return idle(each(name, judge))


OPERATOR = function_exercise(
    "12E",
    "O dQ dK dV",
    layers,
    {
        (TOGETHER, EVERY): "O and the three gradients are exact",
        (TOGETHER, CAUSAL): "applies the causal mask in both passes",
        (TOGETHER, STRIDED): "is exact for any strides of dO",
    },
    before=(both_passes_launch(), launches_in_operators(), has_gradients()),
    after=(
        within_rounding(IN_HALF, ("O", "dQ", "dK", "dV")),
        keeps_little(),
        moves_each_pass_once(),
        saves_with_autograd(),
        tried(FAKES, "its operators have fakes with the right shapes, types and strides"),
        tried(OPCHECK, "its operators pass torch.library.opcheck"),
        tried(ONE_GRAPH, "torch.compile makes one graph of it, with equal results"),
    ),
    tolerance=SINGLE,
    looser={HALF: ORDER_TOLERANCE},
    run_case=differentiate,
    compiles=True,
)

EXERCISES = (ROWS, DQ, KEYS, OPERATOR, FUSED)  # 12D is in lesson 13b
