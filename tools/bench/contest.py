"""Comparison of several implementations on one problem: check values against float64, time, and judge goals.

An implementation is a function of q, k, v and the mask (in dense attention `causal`), and returns O. If its
values are wrong, it is not timed. If it raises an exception, the reason replaces the time.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from iocourse.console import times_joined
from iocourse.errors import UsageError
from iocourse.gpu.roofline import PASSES, TIMES_FORWARD, tflops
from iocourse.gpu.timing import Staged, Timing, Work, side_by_side
from tools.bench import Row, grouped, verdict

if TYPE_CHECKING:
    from torch import Tensor as Tensor
else:
    Tensor = Any  # torch may be missing when this module is imported

Contender = Callable[[Tensor, Tensor, Tensor, Any], Tensor]
Pairs = Callable[[Tensor, Tensor], Tensor]  # positions i and j, which broadcast -> visible pairs
# The library's kernels: the backward pass of `attention`; `decode`; `attention` at large d.
FUSED, TWO_PASS, SPLIT_KV, DEFAULT = "fused", "two-pass", "split-KV", "default"
FIRST = (FUSED, SPLIT_KV, DEFAULT)  # ratios and goals are for these; each step has one of them
PACKED_DESCRIPTORS = "packed by descriptors"  # `attention_varlen`; "fused" loads packed sequences by pointers
LAST_MERGES = "last program merges"  # `decode` in one launch; "split-KV" merges in a second one
ROW_DESCRIPTORS = "rows by descriptors"  # only in earlier records; the library has no such kernel now


@dataclass(frozen=True)
class Chosen:
    """An implementation that runs with these choices in place of the recorded ones, forward and backward.

    choices: names and values, as in `iocourse.kernels.host.choices`. Each implementation of a record forces
    the choices that its name stands for, so that the name means the same after a choice has changed.
    """

    attend: Contender
    choices: Mapping[str, Any]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, seen: Any) -> Tensor:
        """Return O."""
        with self.replaced():
            return self.attend(q, k, v, seen)

    def replaced(self) -> AbstractContextManager[None]:
        """Return a block in which these choices hold, for the backward pass."""
        from iocourse.kernels.host.choices import replaced

        return replaced(self.choices)


Tiles = dict[str, tuple[int, ...]]  # of kernels, by their names in `using`


def named(tiles: Tiles) -> str:
    """Return the name of an implementation with these tiles, as in 'queries 64 × 64 × 8 × 2'."""
    return ", ".join(f"{kernel} {times_joined(tile)}" for kernel, tile in tiles.items())


# Tiles that the questions of `tools.bench gpu` compare with those of the choices: BM, BN, warps, stages.
# At d = 256 the chosen tile of the kernel for dK and dV is too small for wgmma; these use it, without spills
# in the inner loop.
WIDE_TILES: tuple[Tiles, ...] = (
    {"queries": (64, 64, 8, 2), "keys": (64, 64, 8, 2)},
    {"queries": (64, 64, 8, 2), "keys": (64, 64, 8, 1)},
    {"queries": (64, 64, 8, 2), "keys": (32, 64, 8, 2)},
)
WIDE_FUSED: Tiles = {"fused": (64, 64, 8, 1)}
SQUARE_TILES: tuple[Tiles, ...] = ({"forward": (64, 64, 4, 3)}, {"forward": (64, 128, 4, 3)})


def with_tiles(attend: Contender, *tiles: Tiles) -> dict[str, Contender]:
    """Return an implementation with each of these tiles, by name."""
    return {named(some): Chosen(attend, some) for some in tiles}


# --- the problem -------------------------------------------------------------------------------------------


class Shape(NamedTuple):
    """Dense attention: q, k, v are (B, H, N, d)."""

    dtype: str
    d: int
    N: int
    B: int
    H: int
    causal: bool


class Given(NamedTuple):
    """Arguments for one implementation."""

    inputs: Sequence[Tensor]  # q, k, v, in its layout
    do: Tensor  # gradient of O
    seen: Any  # the mask, in its form
    part: Callable[[Tensor], Tensor]  # selects the (rows, d) of a result that the reference has


@dataclass(frozen=True)
class Problem:
    """One problem with its random inputs."""

    given: Given  # arguments of most implementations
    pairs: Pairs | None  # visible pairs of the checked part; None: all
    figures: Callable[[str, float], Row]  # rates of a row, from its pass and milliseconds
    # Arguments of implementations that need another layout or another form of the mask.
    others: Mapping[str, Given] = dataclasses.field(default_factory=dict)

    def given_to(self, contender: str) -> Given:
        """Return the arguments of one implementation."""
        return self.others.get(contender, self.given)


def normal(sizes: tuple[int, ...], count: int, dtype: str, device: str, seed: int) -> list[Tensor]:
    """Return `count` normally distributed tensors of a type, drawn from the seed."""
    import torch

    source = torch.Generator(device).manual_seed(seed)
    kind = getattr(torch, dtype)
    return [torch.randn(sizes, generator=source, device=device, dtype=kind) for _ in range(count)]


def rates(forward_flop: float, **facts: Any) -> Callable[[str, float], Row]:
    """Return a function that computes a row's TFLOP/s from its pass and time, and adds `facts`."""
    return lambda pass_, ms: facts | {"tflops": tflops(TIMES_FORWARD[pass_] * forward_flop, ms)}


# --- values ------------------------------------------------------------------------------------------------

RESULTS = ("O", "dQ", "dK", "dV")
BLOCK = 64  # rows per block, so that an error in a few rows is not averaged away
# Relative error of the worst block of rows above which a result counts as wrong: ten times the error of
# PyTorch's kernels.
WRONG = {"float16": 0.02, "bfloat16": 0.05}


def exact_head(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, seen: Pairs | None = None, rows: int = 1024
) -> dict[str, Tensor]:
    """Return O, dQ, dK, dV of one head in float64, from q and dO (Nq, d), k and v (Nk, d), by autograd.

    seen: the visible pairs, at least one per query; None: all. rows: queries computed at a time.
    """
    import torch

    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    i, j = (torch.arange(len(x), device=x.device) for x in (q, k))
    o = []
    # Single-threaded, because in autograd's own thread cuBLAS warns of a missing context.
    with torch.autograd.set_multithreading_enabled(False):
        for some in i.split(rows):
            scores = q.shape[1] ** -0.5 * q[some] @ k.T  # (rows, Nk)
            if seen is not None:
                scores = scores.masked_fill(~seen(some[:, None], j[None, :]), float("-inf"))
            o.append(torch.softmax(scores, 1) @ v)  # (rows, d)
            o[-1].backward(do[some].detach().double())  # adds to the gradients of q, k, v
    return dict(zip(RESULTS, (torch.cat(o).detach(), q.grad, k.grad, v.grad), strict=True))


def relative_error(x: Tensor, reference: Tensor) -> float:
    """Return ‖x - reference‖ / ‖reference‖; x and reference (N, d)."""
    return float((x.detach().double() - reference).norm() / reference.norm())


def worst_block(x: Tensor, reference: Tensor) -> float:
    """Return the largest relative error of any BLOCK rows, NaN if x has one; x and reference (N, d).

    Blocks with a norm near 0 are divided by a hundredth of the mean norm instead.
    """
    import torch

    off = (x.detach().double() - reference).split(BLOCK)
    least = 0.01 * reference.norm() / len(reference) ** 0.5
    sizes = [torch.maximum(rows.norm(), least * len(rows) ** 0.5) for rows in reference.split(BLOCK)]
    return float(torch.stack([a.norm() / b for a, b in zip(off, sizes, strict=True)]).max())


# --- one problem -------------------------------------------------------------------------------------------


def reason_of(error: BaseException, said: Sequence[str] = ()) -> str:
    """Return one line with the exception and the warnings that preceded it."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    parts = [f"{type(error).__name__}: {first}" if first else type(error).__name__]
    parts += dict.fromkeys(line.strip().splitlines()[0] for line in said if line.strip())
    return "; ".join(parts)


def with_warnings(work: Callable[[], Any]) -> tuple[Any, str]:
    """Return the result of `work` and "", or None and the reason of its failure. SDPA gives
    reasons as warnings.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            return work(), ""
        except UsageError as error:
            return None, str(error)
        except Exception as error:
            return None, reason_of(error, [str(one.message) for one in said])


def work_of(attend: Contender, given: Given, pass_: str) -> Work:
    """Return the work of a pass: "backward" is preceded by an untimed forward pass."""
    import torch

    alone = pass_ == PASSES[0]
    inputs = q, k, v = [x.detach().requires_grad_(not alone) for x in given.inputs]
    replaced = attend.replaced if isinstance(attend, Chosen) else nullcontext

    def forward() -> Tensor:
        with torch.set_grad_enabled(not alone):
            return attend(q, k, v, given.seen)

    def gradients(o: Tensor) -> Any:
        with replaced():
            return torch.autograd.grad(o, inputs, given.do)

    if alone:
        return forward
    return Staged(forward, gradients) if pass_ == PASSES[1] else lambda: gradients(forward())


def outcomes(works: Mapping[str, Work], stopwatch: Any) -> dict[str, Row]:
    """Time the works, and return the entries of their rows, the time or {"refused": reason}."""
    return {
        name: dataclasses.asdict(took) if isinstance(took, Timing) else {"refused": reason_of(took)}
        for name, took in side_by_side(works, stopwatch=stopwatch).items()
    }


@dataclass(frozen=True)
class Trial:
    """All implementations on one problem. refused: the reason for each (name, pass) that is not run."""

    shape: Any  # a named tuple with a `dtype`, of JSON types
    problem: Problem
    field: Mapping[str, Contender]
    passes: Sequence[str]
    refused: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)

    def errors(self) -> Iterator[Row]:
        """Yield the errors of each implementation in the checked part, against float64; {} if refused."""
        import torch

        given, later = self.problem.given, self.passes[1:]
        q, k, v, do = map(given.part, (*given.inputs, given.do))
        reference = exact_head(q, k, v, do, self.problem.pairs)
        for name in self.field:
            row: Row = {}
            if (name, self.passes[0]) not in self.refused:
                row = self._accepted(name, self.passes, RESULTS[:1], reference)
            gradients: Row = {}
            if row and later and (name, later[0]) not in self.refused:
                gradients = self._accepted(name, later, RESULTS[1:], reference)
            if gradients:
                both: Any = self._work(name, PASSES[-1])
                row |= gradients | {"worst_block": max(row["worst_block"], gradients["worst_block"])}
                row["bit_equal"] = all(map(torch.equal, both(), both()))
            yield {**self.shape._asdict(), "contender": name, **row} if row else {}

    def _accepted(
        self, name: str, passes: Sequence[str], results: Sequence[str], reference: Mapping[str, Tensor]
    ) -> Row:
        """Return the errors of an implementation's results. If it raises an exception or is wrong, refuse the
        passes and return {}.
        """
        import torch

        given = self.problem.given_to(name)
        # Fill memory that the next results will reuse with NaN, to detect elements that are not written.
        junk = [torch.full_like(given.do, float("nan")) for _ in range(6)]
        del junk
        work: Any = self._work(name, PASSES[0] if len(results) == 1 else PASSES[-1])
        found, reason = with_warnings(work)
        if not reason:
            named = zip(results, found if isinstance(found, tuple) else [found], strict=True)
            parts = {key: given.part(x) for key, x in named}
            each = {key: relative_error(x, reference[key]) for key, x in parts.items()}
            worst = float(torch.tensor([worst_block(x, reference[key]) for key, x in parts.items()]).max())
            if worst <= WRONG[self.shape.dtype]:
                return {**each, "worst_block": worst}
            largest = ", ".join(f"{key} {error:.2g}" for key, error in each.items())
            reason = f"its values are wrong: relative errors {largest}, worst block {worst:.2g}"
        self.refused.update({(name, pass_): reason for pass_ in passes})
        return {}

    def timed(self, stopwatch: Any, pass_: str) -> list[Row]:
        """Return one row per implementation for a pass: its time, or the reason why there is none. Two-pass
        and fused share a forward pass, which is timed once.
        """
        names = [name for name in self.field if (name, pass_) != (TWO_PASS, PASSES[0])]
        works = {name: self._work(name, pass_) for name in names if (name, pass_) not in self.refused}
        found = outcomes(works, stopwatch)
        rows = []
        for name in names:
            row = {**self.shape._asdict(), "contender": name, "pass": pass_}
            row |= found.get(name) or {"refused": self.refused[name, pass_]}
            rows.append(row if "refused" in row else row | self.problem.figures(pass_, row["ms"]))
        return rows

    def _work(self, name: str, pass_: str) -> Work:
        return work_of(self.field[name], self.problem.given_to(name), pass_)


# --- ratios, means and goals: no GPU, no torch -------------------------------------------------------------


class Layout(NamedTuple):
    """Rules for the comparison of a record's rows."""

    tables: tuple[str, ...]  # one mean is computed per combination of these keys' values
    lines: tuple[str, ...]  # keys that distinguish the shapes within one mean
    rival: str = ""  # the baseline of ratios and means
    shapes: int = 0  # number of shapes that a mean should include

    @property
    def same_work(self) -> tuple[str, ...]:
        """The keys whose values are equal in rows for the same work."""
        return (*self.tables, *self.lines)


class Goal(NamedTuple):
    """A goal and a floor for a number of our implementation."""

    # Values of its rows, by key; a tuple means any of its values. Default implementation: FIRST.
    where: Mapping[str, Any]
    goal: float  # the number to reach
    floor: float | None  # the minimum; None: no minimum
    shapes: int  # number of rows needed for a verdict
    rival: str = ""  # judge the speedup over this baseline, unless `figure` is set
    figure: str = ""  # key of the value to judge in our rows
    over: str = "mean"  # reduction over the rows, a name in OVER
    called: str = ""  # description of the goal; default: from `where` and `rival`

    @property
    def what(self) -> str:
        """Description of the goal, as in 'forward, d = 64, bfloat16, against SDPA flash'."""
        return self.called or f"{about(self.where)}, against {self.rival}"


def about(facts: Mapping[str, Any]) -> str:
    """Format facts as text: 'bfloat16, d = 64, causal, forward'. Only integers are shown with their names."""
    return ", ".join(
        f"{name} = {value}" if type(value) is int else cell(value) for name, value in facts.items()
    )


def cell(value: Any) -> str:
    """Format a value for a table: "causal" or "full" for a bool, otherwise str."""
    return {True: "causal", False: "full"}[value] if isinstance(value, bool) else str(value)


def geometric_mean(ratios: Sequence[float]) -> float:
    """Return (∏ ratios)^(1/n). Raises ValueError if there are no ratios, or one is not above 0."""
    if not ratios or min(ratios) <= 0:
        raise ValueError(f"ratios must be one number or more, all above 0, got {list(ratios)!r}")
    return exp(sum(log(ratio) for ratio in ratios) / len(ratios))


# Reductions over rows. For "largest", less is better.
OVER: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": geometric_mean, "least": min, "largest": max,
}  # fmt: skip


def with_ratios(rows: Sequence[Row], layout: Layout) -> list[Row]:
    """Add `ratio` to rows: the baseline's time over theirs, None if it has no time for the same work."""
    times = _times_of(rows, layout.rival, layout.same_work)
    return timed_with(rows, lambda row: {"ratio": times(row)}) if layout.rival else list(rows)


def timed_with(rows: Iterable[Row], more: Callable[[Row], Row]) -> list[Row]:
    """Return the rows, with the entries `more(row)` added to those that have a time."""
    return [row | more(row) if "ms" in row else row for row in rows]


def _times_of(rows: Sequence[Row], rival: str, same_work: Sequence[str]) -> Callable[[Row], float | None]:
    """Return a function for the speedup of a row over the baseline, or over its fastest variant ("tutorial,
    warp…"); None without a time.
    """
    known = (row for row in rows if "ms" in row and row["contender"].split(", warp")[0] == rival)
    best = {work: min(row["ms"] for row in some) for work, some in grouped(known, same_work).items()}

    def ratio(row: Row) -> float | None:
        ms: float | None = best.get(tuple(row.get(key) for key in same_work))
        return None if ms is None or "ms" not in row else ms / row["ms"]

    return ratio


def means(rows: Iterable[Row], layout: Layout) -> list[Row]:
    """Return the geometric mean of `ratio` per table and implementation, over `shapes` `of` all shapes."""
    keys = (*layout.tables, "contender")
    found = []
    for kind, some in grouped((row for row in rows if row.get("ratio") is not None), keys).items():
        mean = {"ratio": geometric_mean([row["ratio"] for row in some])}
        found.append(dict(zip(keys, kind, strict=True)) | mean | {"shapes": len(some), "of": layout.shapes})
    return found


def compared(record: Row, layout: Layout, goals: Iterable[Goal], more: Callable[[Row], Row] = dict) -> Row:
    """Complete a record of times: ratios to the baseline, the entries of `more`, means, and judged goals.

    Goals are for rows and `lines`, and are stated for an H200. In a quick run no goal is judged.
    """
    record = more(record | {"rows": with_ratios(record["rows"], layout)})
    rows, points = record["rows"], [*record["rows"], *record.get("lines", ())]
    quick = record.get("quick", False)
    verdicts = [judged(points, goal, layout.same_work, quick=quick) for goal in goals]
    return record | {"means": means(rows, layout), "goals_stated_for": "H200", "goals": verdicts}


def judged(rows: Sequence[Row], goal: Goal, same_work: Sequence[str] = (), *, quick: bool = False) -> Row:
    """Return a goal with the number reached and a verdict. A quick run or missing shapes are not judged."""
    figure = _times_of(rows, goal.rival, same_work) if goal.rival else lambda row: row.get(goal.figure)
    wanted = {key: value if isinstance(value, tuple) else (value,)
              for key, value in ({"contender": FIRST} | dict(goal.where)).items()}  # fmt: skip
    ours = (row for row in rows if all(row.get(key) in values for key, values in wanted.items()))
    numbers = [number for number in map(figure, ours) if number is not None]
    reached = OVER[goal.over](numbers) if numbers else None
    if reached is None or len(numbers) < goal.shapes:
        have = "both times" if goal.rival else "the times it takes"
        said = f"not judged: {len(numbers)} of {goal.shapes} shapes have {have}"
    elif quick:
        said = "not judged: a quick run"
    else:
        said = verdict(reached, goal.goal, goal.floor, less=goal.over == "largest")
    return {
        "what": goal.what, "reached": reached, "goal": goal.goal, "floor": goal.floor,
        "shapes": len(numbers), "of": goal.shapes, "verdict": said,
    }  # fmt: skip


# --- time as a function of the share of visible tiles ------------------------------------------------------

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
# Names of random masks by the share of visible tiles, and of no mask.
DENSITIES = {f"random, {f'1/{round(1 / share)}' if share < 1 else 'all'}": share for share in SHARES}
NO_MASK = "no mask"
LEAST = 3  # points that a fitted line needs to be informative


def line(points: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Fit time ≈ s · dense + overhead to points (s, milliseconds), by least squares of relative deviations.

    Returns dense, overhead and the largest |line - time| / time. Raises ValueError for fewer than three
    different s, because two points always fit.
    """
    if len({s for s, _ in points}) < LEAST:
        raise ValueError(f"points must be {LEAST} or more, with different s, got {list(points)!r}")
    s, ms = np.asarray(points, dtype=np.float64).T
    dense, overhead = np.polyfit(s, ms, 1, w=1 / ms)
    off = np.abs(s * dense + overhead - ms) / ms
    return float(dense), float(overhead), float(off.max())


def lines(rows: Sequence[Row]) -> list[Row]:
    """Fit a line for each d, N and pass with times for every share; return points [[s, ms], …] and results.

    Host-bound times are left out, and their masks listed in `host_bound`; there is no line for fewer than
    three points. unmasked_ms: time of the kernel without a mask, or None.
    """
    keys = ("d", "N", "pass", "contender")
    found = []
    mine = (row for row in rows if row["contender"] in FIRST and "ms" in row)
    for kind, some in grouped(mine, keys).items():
        here = {row["mask"]: row for row in some}
        late = [name for name in DENSITIES if here.get(name, {}).get("host_bound")]
        points = [[here[name]["density"], here[name]["ms"]]
                  for name in DENSITIES if name in here and name not in late]  # fmt: skip
        if here.keys() >= DENSITIES.keys() and len(points) >= LEAST:
            dense, overhead, off = line(points)
            one: Row = {"points": points, "dense_ms": dense, "overhead_ms": overhead, "deviation": off}
            one |= {"unmasked_ms": here.get(NO_MASK, {}).get("ms"), "host_bound": late}
            found.append(dict(zip(keys, kind, strict=True)) | one)
    return found
