"""Contenders at one problem: their values against float64 first, then their times, and what the times say.

A contender is called with q, k, v and what a query sees (in dense attention `causal`), and returns O. Results
that are wrong are not timed. A contender that raises has its reason in the place of a time.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from iocourse.errors import UsageError
from iocourse.gpu.roofline import PASSES, TIMES_FORWARD, tflops
from iocourse.gpu.timing import Staged, Timing, Work, side_by_side
from tools.bench import Row, grouped, verdict

if TYPE_CHECKING:
    from torch import Tensor as Tensor
else:
    Tensor = Any  # this module is read where torch may be absent

Contender = Callable[[Tensor, Tensor, Tensor, Any], Tensor]
Pairs = Callable[[Tensor, Tensor], Tensor]  # positions i and j, which broadcast -> whether i sees j
# The library's kernels by what runs: the backward pass of `attention`; `decode`; `attention` at large d.
FUSED, TWO_PASS, SPLIT_KV, DEFAULT = "fused", "two-pass", "split-KV", "default"
FIRST = (FUSED, SPLIT_KV, DEFAULT)  # whose ratios and goals are judged: one of them in each step
# The library's kernels in ways that are off unless `using` turns them on: by contender, the name there.
PACKED_DESCRIPTORS, ROW_DESCRIPTORS = "packed by descriptors", "rows by descriptors"
LAST_MERGES = "last program merges"  # `decode` in one launch
WAYS = {
    PACKED_DESCRIPTORS: "packed_descriptors", ROW_DESCRIPTORS: "row_descriptors", LAST_MERGES: "last_merges",
}  # fmt: skip


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
    """What one contender gets."""

    inputs: Sequence[Tensor]  # q, k, v, in the layout it takes
    do: Tensor  # gradient of O
    seen: Any  # what a query sees, as it is told
    part: Callable[[Tensor], Tensor]  # cuts a result or gradient to the (rows, d) of the reference


@dataclass(frozen=True)
class Problem:
    """One problem, drawn."""

    given: Given  # what contenders get
    pairs: Pairs | None  # which query of the part sees which key; None: all see all
    figures: Callable[[str, float], Row]  # what a pass and its milliseconds mean: a row's rates
    # What those contenders get that take, or are told, something else.
    others: Mapping[str, Given] = dataclasses.field(default_factory=dict)

    def given_to(self, contender: str) -> Given:
        """The inputs of one contender."""
        return self.others.get(contender, self.given)


def normal(sizes: tuple[int, ...], count: int, dtype: str, device: str, seed: int) -> list[Tensor]:
    """So many normal tensors of a type from the seed."""
    import torch

    source = torch.Generator(device).manual_seed(seed)
    kind = getattr(torch, dtype)
    return [torch.randn(sizes, generator=source, device=device, dtype=kind) for _ in range(count)]


def rates(forward_flop: float, **facts: Any) -> Callable[[str, float], Row]:
    """A row's TFLOP/s, from the FLOP of the forward pass, and facts that every row has."""
    return lambda pass_, ms: facts | {"tflops": tflops(TIMES_FORWARD[pass_] * forward_flop, ms)}


# --- values ------------------------------------------------------------------------------------------------

RESULTS = ("O", "dQ", "dK", "dV")
BLOCK = 64  # rows; an error in a few of them must not drown in all the others
# Relative error of the worst block of rows, from which on a result is wrong and not rounded: ten times what
# PyTorch's own kernels show.
WRONG = {"float16": 0.02, "bfloat16": 0.05}


def exact_head(
    q: Tensor, k: Tensor, v: Tensor, do: Tensor, seen: Pairs | None = None, rows: int = 1024
) -> dict[str, Tensor]:
    """O, dQ, dK, dV of one head in float64, from q and dO (Nq, d), k and v (Nk, d), by torch's autograd.

    `seen` says which query sees which key; each must see one. None: all see all. `rows` queries at a time.
    """
    import torch

    q, k, v = (x.detach().double().requires_grad_() for x in (q, k, v))
    i, j = (torch.arange(len(x), device=x.device) for x in (q, k))
    o = []
    # In this thread: in a thread of autograd's own, cuBLAS warns that it has no context yet.
    with torch.autograd.set_multithreading_enabled(False):
        for some in i.split(rows):
            scores = q.shape[1] ** -0.5 * q[some] @ k.T  # (rows, Nk)
            if seen is not None:
                scores = scores.masked_fill(~seen(some[:, None], j[None, :]), float("-inf"))
            o.append(torch.softmax(scores, 1) @ v)  # (rows, d)
            o[-1].backward(do[some].detach().double())  # adds to the gradients of q, k, v
    return dict(zip(RESULTS, (torch.cat(o).detach(), q.grad, k.grad, v.grad), strict=True))


def relative_error(x: Tensor, reference: Tensor) -> float:
    """‖x - reference‖ / ‖reference‖; x and reference (N, d)."""
    return float((x.detach().double() - reference).norm() / reference.norm())


def worst_block(x: Tensor, reference: Tensor) -> float:
    """The largest relative error of any BLOCK rows, NaN where there is one; x and reference (N, d).

    Rows that are nearly 0 count as a hundredth of the mean: a division by them would say nothing.
    """
    import torch

    off = (x.detach().double() - reference).split(BLOCK)
    least = 0.01 * reference.norm() / len(reference) ** 0.5
    sizes = [torch.maximum(rows.norm(), least * len(rows) ** 0.5) for rows in reference.split(BLOCK)]
    return float(torch.stack([a.norm() / b for a, b in zip(off, sizes, strict=True)]).max())


# --- one problem -------------------------------------------------------------------------------------------


def reason_of(error: BaseException, said: Sequence[str] = ()) -> str:
    """One line: what was raised, and what was warned of before."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    parts = [f"{type(error).__name__}: {first}" if first else type(error).__name__]
    parts += dict.fromkeys(line.strip().splitlines()[0] for line in said if line.strip())
    return "; ".join(parts)


def with_warnings(work: Callable[[], Any]) -> tuple[Any, str]:
    """What `work` returned and "", or None and why it could not: SDPA says its reasons as warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            return work(), ""
        except UsageError as error:
            return None, str(error)
        except Exception as error:
            return None, reason_of(error, [str(one.message) for one in said])


def work_of(attend: Contender, given: Given, pass_: str, way: str | None = None) -> Work:
    """A pass on what is given; before a backward pass alone a forward one runs, untimed. Each runs within
    `using(way=True)`, should there be a way.
    """
    import torch

    alone = pass_ == PASSES[0]
    inputs = q, k, v = [x.detach().requires_grad_(not alone) for x in given.inputs]

    def on() -> Any:
        if way is None:
            return nullcontext()
        from iocourse.kernels import using

        return using(**{way: True})

    def forward() -> Tensor:
        with on(), torch.set_grad_enabled(not alone):
            return attend(q, k, v, given.seen)

    def gradients(o: Tensor) -> Any:
        with on():
            return torch.autograd.grad(o, inputs, given.do)

    if alone:
        return forward
    return Staged(forward, gradients) if pass_ == PASSES[1] else lambda: gradients(forward())


def outcomes(works: Mapping[str, Work], stopwatch: Any) -> dict[str, Row]:
    """What a row says of each piece of work: its time, or why it has none."""
    return {
        name: dataclasses.asdict(took) if isinstance(took, Timing) else {"refused": reason_of(took)}
        for name, took in side_by_side(works, stopwatch=stopwatch).items()
    }


@dataclass(frozen=True)
class Trial:
    """Every contender at one problem; `refused` has who takes no part in a pass, and why."""

    shape: Any  # a named tuple with a `dtype`, as JSON can hold it
    problem: Problem
    field: Mapping[str, Contender]
    passes: Sequence[str]
    refused: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)

    def errors(self) -> Iterator[Row]:
        """The errors of each contender in one part, against float64, {} for one that is refused."""
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
        """The errors of a contender's results; none, and the passes refused, where it raises or is wrong."""
        import torch

        given = self.problem.given_to(name)
        # NaN in the memory that the next results will get: what is not written shows.
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
        """A row per contender of one pass: its time, or why it has none. Two-pass and fused have one forward
        pass, which is timed once.
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
        return work_of(self.field[name], self.problem.given_to(name), pass_, WAYS.get(name))


# --- ratios, means and goals: no GPU, no torch -------------------------------------------------------------


class Layout(NamedTuple):
    """How the rows of a record are compared."""

    tables: tuple[str, ...]  # keys of which each combination of values has a mean of its own
    lines: tuple[str, ...]  # keys that tell the shapes of one mean apart
    rival: str = ""  # the contender that ratios and means are relative to
    shapes: int = 0  # over how many a mean should be

    @property
    def same_work(self) -> tuple[str, ...]:
        """What two rows about the same work have in common, the pass among it."""
        return (*self.tables, *self.lines)


class Goal(NamedTuple):
    """What ours shall reach, and what it must reach."""

    # What its rows have in common, by key; a tuple stands for any of its values. Without a contender: FIRST.
    where: Mapping[str, Any]
    goal: float  # the number to reach
    floor: float | None  # the number that must be reached; None: none
    shapes: int  # how many rows a verdict takes
    rival: str = ""  # where no figure is judged: how many times as fast as this contender ours is
    figure: str = ""  # what is judged of a row of ours, by its key
    over: str = "mean"  # of all rows' figures, by its name in OVER
    called: str = ""  # the goal in words, where `where` and `rival` do not say it

    @property
    def what(self) -> str:
        """The goal in words: 'forward, d = 64, bfloat16, against SDPA flash'."""
        return self.called or f"{about(self.where)}, against {self.rival}"


def about(facts: Mapping[str, Any]) -> str:
    """'bfloat16, d = 64, causal, forward': numbers by their names, full and causal by theirs."""
    return ", ".join(
        f"{name} = {value}" if type(value) is int else cell(value) for name, value in facts.items()
    )


def cell(value: Any) -> str:
    """A fact of a row in a table."""
    return {True: "causal", False: "full"}[value] if isinstance(value, bool) else str(value)


def geometric_mean(ratios: Sequence[float]) -> float:
    """(∏ ratios)^(1/n). Raises ValueError where there is none, or one is not above 0."""
    if not ratios or min(ratios) <= 0:
        raise ValueError(f"ratios is {list(ratios)!r}; allowed: one number or more, all above 0")
    return exp(sum(log(ratio) for ratio in ratios) / len(ratios))


# What is judged of all rows; of the largest, less is better.
OVER: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": geometric_mean, "least": min, "largest": max,
}  # fmt: skip


def with_ratios(rows: Sequence[Row], layout: Layout) -> list[Row]:
    """Rows with `ratio`: the rival's time over their own, None where the rival has none at the same work."""
    times = _times_of(rows, layout.rival, layout.same_work)
    return timed_with(rows, lambda row: {"ratio": times(row)}) if layout.rival else list(rows)


def timed_with(rows: Iterable[Row], more: Callable[[Row], Row]) -> list[Row]:
    """The rows, those that have a time with more that follows from it."""
    return [row | more(row) if "ms" in row else row for row in rows]


def _times_of(rows: Sequence[Row], rival: str, same_work: Sequence[str]) -> Callable[[Row], float | None]:
    """How many times as fast as the rival a row is; of one with variants ("tutorial, warp…") the fastest."""
    known = (row for row in rows if "ms" in row and row["contender"].split(", warp")[0] == rival)
    best = {work: min(row["ms"] for row in some) for work, some in grouped(known, same_work).items()}

    def ratio(row: Row) -> float | None:
        ms: float | None = best.get(tuple(row.get(key) for key in same_work))
        return None if ms is None or "ms" not in row else ms / row["ms"]

    return ratio


def means(rows: Iterable[Row], layout: Layout) -> list[Row]:
    """The geometric mean of `ratio` for each table and contender, over how many shapes, `of` how many."""
    keys = (*layout.tables, "contender")
    found = []
    for kind, some in grouped((row for row in rows if row.get("ratio") is not None), keys).items():
        mean = {"ratio": geometric_mean([row["ratio"] for row in some])}
        found.append(dict(zip(keys, kind, strict=True)) | mean | {"shapes": len(some), "of": layout.shapes})
    return found


def compared(record: Row, layout: Layout, goals: Iterable[Goal], more: Callable[[Row], Row] = dict) -> Row:
    """A record of times with every row's ratio to the rival and what `more` makes of these, the means, and
    the goals, about rows and `lines`, which are stated for an H200. Of a quick run none is judged.
    """
    record = more(record | {"rows": with_ratios(record["rows"], layout)})
    rows, points = record["rows"], [*record["rows"], *record.get("lines", ())]
    quick = record.get("quick", False)
    verdicts = [judged(points, goal, layout.same_work, quick=quick) for goal in goals]
    return record | {"means": means(rows, layout), "goals_stated_for": "H200", "goals": verdicts}


def judged(rows: Sequence[Row], goal: Goal, same_work: Sequence[str] = (), *, quick: bool = False) -> Row:
    """A goal with what was reached and a verdict; part of the shapes, or a quick run, is no verdict."""
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


# --- does time follow the share of tiles that a mask leaves? -----------------------------------------------

SHARES = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)
# The names of random masks with these shares of their tiles seen, and of none.
DENSITIES = {f"random, {f'1/{round(1 / share)}' if share < 1 else 'all'}": share for share in SHARES}
NO_MASK = "no mask"
LEAST = 3  # points through which a line says something


def line(points: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """time ≈ s · dense + overhead: dense, overhead, and the largest |line - time| / time.

    Of points (s, milliseconds) the squares of relative deviations have the least sum. Raises ValueError where
    fewer than three have different s: any line meets these.
    """
    if len({s for s, _ in points}) < LEAST:
        raise ValueError(f"points is {list(points)!r}; allowed: {LEAST} or more, of different s")
    s, ms = np.asarray(points, dtype=np.float64).T
    dense, overhead = np.polyfit(s, ms, 1, w=1 / ms)
    off = np.abs(s * dense + overhead - ms) / ms
    return float(dense), float(overhead), float(off.max())


def lines(rows: Sequence[Row]) -> list[Row]:
    """A line for each d, N and pass of which every share was timed: points [[s, ms], …], and what they give.

    Times that the host bounds are no points; their masks are in `host_bound`. Where fewer than three are left
    there is no line. unmasked_ms is the time of the kernel that knows of no mask, None where it has none.
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
