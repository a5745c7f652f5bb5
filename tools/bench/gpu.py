"""Our kernels on the GPU that is here, in one run of some minutes: values, times, tiles, bytes, lessons.

The steps, in this order: the values of every kernel against float64; then, for each kind of attention, the
times of our kernels and of those that they are compared with; tiles; byte counters, where Nsight Compute is
installed; the lessons on kernels with compiled kernels. Kernels with wrong values are not timed. Each step
has a share of the minutes; what it leaves is for the steps after it. A line is printed and the file is
written after every row, so that a run may be cut off at any moment. The parts of the file are records as the
package ships them; `--install FILE` puts them there.
"""

from __future__ import annotations

import gc
import json
import random
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from iocourse.console import number, paragraphs, table
from iocourse.course.project_paths import find_checkout
from iocourse.data import records
from iocourse.data.records import kernels_code, load_record, missing_metadata, record_source, run_metadata
from iocourse.errors import UsageError
from iocourse.files import read_json, write_json
from iocourse.gpu.roofline import PASSES
from iocourse.gpu.timing import CudaStopwatch, cuda_unavailable_reason
from iocourse.gpu.tuned_tiles import tiles_of
from iocourse.profile import LaunchRequest
from tools.bench import Row, problems, tiles
from tools.bench.contest import (
    DENSITIES,
    FIRST,
    FUSED,
    NO_MASK,
    TWO_PASS,
    Contender,
    Goal,
    Layout,
    Problem,
    Shape,
    Trial,
    about,
    compared,
    lines,
    reason_of,
    timed_with,
)  # fmt: skip
from tools.bench.device import device_facts, smi_query
from tools.bench.problems import (
    CUDNN,
    EFFICIENT,
    FLASH,
    FLEX,
    KINDS,
    LENGTH_KINDS,
    MATH,
    OURS,
    PACKED,
    TUTORIAL,
    Cached,
    Masked,
    Packs,
)  # fmt: skip

NAME = "gpu"
HELP = "our kernels on a GPU: values, times next to PyTorch's and others', tiles, bytes, lessons (needs CUDA)"
MINUTES = 15.0
FILE = Path("build", "gpu.json")  # without --json
ENOUGH = 2.0  # seconds below which no step begins
Keep = Callable[[Row], None]


class Place:
    """The current CUDA device and what takes its time; the tests have another one."""

    device = "cuda"
    facts = staticmethod(device_facts)  # what a record says about it

    def __init__(self) -> None:
        """Make a stopwatch, and let nvidia-smi print the clock of the multiprocessors five times a second."""
        import torch

        self.stopwatch, self._cuda, self._mhz = CudaStopwatch(), torch.cuda, list[float]()
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        smi = smi_query(properties, "clocks.sm", "--format=csv,noheader,nounits", "-lms", "200")
        self._smi: subprocess.Popen[str] | None = None
        try:
            self._smi = subprocess.Popen(smi, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            self._listener = threading.Thread(target=self._listen, args=[self._smi.stdout], daemon=True)
            self._listener.start()
        except OSError:
            pass  # there is no nvidia-smi

    def _listen(self, printed: Any) -> None:
        with printed:
            for said in printed:
                if said.strip().isdigit():
                    self._mhz.append(float(said))

    def sm_mhz(self) -> float | None:
        """The median clock of the multiprocessors since the last call, None where it is not known."""
        found, self._mhz = self._mhz, []
        return median(found) if found else None

    def free_bytes(self) -> int:
        """Memory for tensors: what the driver has free, and what torch holds for tensors to come."""
        held = self._cuda.memory_reserved() - self._cuda.memory_allocated()
        return int(self._cuda.mem_get_info()[0] + held)

    def tidy(self) -> None:
        """Give memory back that nobody uses any more: collect garbage and empty torch's cache."""
        gc.collect()
        self._cuda.empty_cache()

    def close(self) -> None:
        """End nvidia-smi."""
        if self._smi:
            self._smi.kill()
            self._smi.wait()
            self._listener.join(1.0)


def cuda_place() -> Place:
    """The GPU of this process, where kernels are compiled for it.

    Raises UsageError where there is none, triton is missing, or kernels are interpreted; the line says what
    can be done instead.
    """
    if reason := cuda_unavailable_reason():
        reason = f"no GPU, {reason}"
    else:
        try:
            from iocourse.kernels import INTERPRETED

            reason = "kernels are interpreted in this process; unset TRITON_INTERPRET" if INTERPRETED else ""
        except ImportError as error:
            reason = f"no kernels, {error}"
    if reason:
        raise UsageError(
            f"{reason}, and this subject times kernels on an NVIDIA GPU: run it where one is; without one, "
            "`python -m tools.bench resources` compiles every kernel for every chip. "
            f"Shipped with the course: {record_source(load_record('attention'))}."
        )
    return Place()


# --- steps that compare kernels ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """One kind of attention: which kernels are compared at which shapes, and how."""

    minutes: float  # its share
    shapes: Callable[[bool], Sequence[Any]]  # every problem of a run, or the few of a quick one
    small: Sequence[Any]  # those at which the values of our kernels are checked first
    problem: Callable[[Any, str, int], Problem]  # draws one from a shape, a device and a seed
    contenders: Callable[[Place], Mapping[str, Contender]]  # by name, ours first
    layout: Layout
    passes: Sequence[str] = PASSES
    subject: str = ""  # what the record calls itself, where that is not the step's name
    takes_part: Callable[[Any, str], bool] = lambda shape, name: True  # whether a contender does at a shape
    # What else the record says, measured or known before anything is timed.
    facts: Callable[[Place, Sequence[Any]], Row] = lambda place, asked: {}
    more: Callable[[Row], Row] = dict  # makes of a record with ratios what it says before it is judged


def with_density_lines(record: Row) -> Row:
    """Rows of masks of every density apart, and the lines through their times."""
    alone = [row for row in record["rows"] if row["mask"] in (NO_MASK, *DENSITIES)]
    rows = [row for row in record["rows"] if row["mask"] not in (NO_MASK, *DENSITIES)]
    more = {"rows": rows, "density_seed": record["seed"], "density_rows": alone, "lines": lines(alone)}
    return record | more


def with_part_saved(record: Row) -> Row:
    """`of_saved`: how much of the padding saved is speed gained, in rows whose rival has a time too."""
    return record | {"rows": timed_with(
        record["rows"], lambda row: {"of_saved": row["ratio"] / row["saved"]} if row["ratio"] else {}
    )}  # fmt: skip


def with_share(record: Row) -> Row:
    """`share`: GB/s as a share of the copy's, in each row that has a time."""
    copied = record["copy"]["gbytes_per_s"]
    return record | {"rows": timed_with(record["rows"], lambda row: {"share": row["gbytes_per_s"] / copied})}


DENSE, MASKED = ("dtype", "d", "pass"), ("dtype", "d", "mask", "pass")
CONTESTS = {
    "attention": Contest(
        3, problems.dense_shapes("bfloat16", (64, 128), problems.LENGTHS),
        [Shape("bfloat16", d, 1000, 1, 4, causal) for d in (64, 128) for causal in (False, True)],
        problems.dense, problems.of_attention, Layout(DENSE, ("N", "causal"), FLASH, 10),
        # The slow ones, one of which is compiled for each shape, at one length only.
        takes_part=lambda shape, name: name not in (EFFICIENT, MATH, FLEX) or problems.LENGTHS[0] == shape.N,
    ),
    "attention-tutorial": Contest(  # where a copy of the tutorial is given; its values are attention's
        3, problems.dense_shapes("float16", (64, 128), problems.LENGTHS), [],
        problems.dense, lambda place: {
            name: one for name, one in problems.of_attention(place).items()
            if name in (FUSED, TWO_PASS, FLASH, CUDNN)
        },
        Layout(DENSE, ("N", "causal"), FLASH, 10), subject="attention",
    ),
    "sparse": Contest(
        1.5, problems.sparse_shapes, [Masked("bfloat16", 128, 1000, 1, 4, kind) for kind in KINDS],
        problems.masked, problems.of_sparse, Layout(MASKED, ("N",), FLEX, 3),
        takes_part=lambda shape, name: name in FIRST or shape.mask in KINDS, more=with_density_lines,
    ),
    "varlen": Contest(
        1, problems.packs, [Packs("bfloat16", d, 4, "log-uniform", 5, 20, 700) for d in (64, 128)],
        problems.sequences, problems.of_varlen, Layout(DENSE, ("lengths",), FLASH, 3), more=with_part_saved,
        facts=lambda place, asked: {"lengths": {shape.lengths: problems.drawn(shape) for shape in asked}},
    ),
    "decode": Contest(
        1, problems.caches, [Cached("bfloat16", 128, 5000, 2, 8, H_kv) for H_kv in (8, 2, 1)],
        problems.cache, problems.of_decode, Layout(("dtype", "H", "H_kv", "B", "pass"), ("N",)), PASSES[:1],
        facts=lambda place, asked: {"copy": problems.copy_speed(place)}, more=with_share,
    ),
    "small-cache": Contest(
        1.5, problems.dense_shapes("bfloat16", problems.SMALL_CACHE_HEADS, problems.SMALL_CACHE_LENGTHS),
        [Shape("bfloat16", d, 333, 1, 2, d == 320) for d in (320, 512)],
        problems.dense, problems.of_small_cache, Layout(DENSE, ("N", "causal"), EFFICIENT, 6),
    ),
}  # fmt: skip

# Reached is what an NVIDIA H200 did, 2026-11-26, in the shipped record of each step. A goal is what was
# reached, unless more is stated; a floor is what was reached or was the goal before.
BOTH = PASSES[2]
LONG = tuple(sorted(N for N in problems.DECODE_LENGTHS if N >= 32768))
BY_DEFAULT = {"contender": TWO_PASS}  # what a backward pass is unasked where the goals are stated for
GOALS: dict[str, tuple[Goal, ...]] = {
    # - Forward against flash: 1.33 and 1.17 at d = 64 and 128, before the tiles that were tuned there; the
    #   goals are more.
    # - Backward, and both passes: the two-pass way, which a call takes unasked there; against flash 1.28 and
    #   1.24 (goal: 1.30) backward, 1.30 and 1.21 both; against cuDNN 0.77 and 0.65 backward.
    # - Forward against cuDNN: 0.85, and 0.63 where the goal stays.
    "attention": tuple(
        Goal({"pass": pass_, "d": d, "dtype": "bfloat16"} | who, goal, floor, 10, rival)
        for pass_, who, rival, *each in (
            ("forward", {}, FLASH, (1.40, 1.33), (1.35, 1.15)),
            ("backward", BY_DEFAULT, FLASH, (1.28, 1.15), (1.30, 1.15)),
            (BOTH, BY_DEFAULT, FLASH, (1.30, 1.20), (1.21, 1.05)),
            ("forward", {}, CUDNN, (0.85, None), (0.72, None)),
            ("backward", BY_DEFAULT, CUDNN, (0.77, None), (0.65, None)),
        )
        for d, (goal, floor) in zip((64, 128), each, strict=True)
    ),
    # 0.93 and 0.83 at N = 4,096 alone: the goal is to be as fast.
    "attention-tutorial": tuple(
        Goal({"pass": "forward", "d": d, "dtype": "float16"}, 1.0, None, 10, TUTORIAL) for d in (64, 128)
    ),
    # A backward pass alone is held to FlexAttention where its time is the GPU's and not Python's, which took
    # 1.4 ms to queue it (d = 128). By the times of the larger densities there, 0.10 + 7.6 s ms at N = 8,192
    # for a share s, that is a tenth of the blocks at twice that N: 1.6 ms. The window and BigBird take about
    # 1.1 ms at every N. Nothing is measured at the longest N.
    "sparse": (
        *(Goal({"pass": BOTH, "mask": mask, "d": d}, 1.1, 0.9, 3, FLEX) for mask in KINDS for d in (64, 128)),
        *(Goal({"pass": "backward", "mask": "random", "d": d, "N": 16384}, 0.95, None, 1, FLEX)
          for d in (64, 128)),
        *(Goal({"pass": pass_, "d": (64, 128), "N": problems.DENSITIES_AT}, 0.15, None, 2, figure="deviation",
               over="largest", called=f"{pass_}, largest deviation from s · dense + overhead")
          for pass_ in PASSES),
    ),
    # At d = 128 with log-uniform lengths: 0.66 of the speed of PyTorch's packed kernel backward, and 1.11
    # forward; of the padding saved 0.63 and 0.97.
    "varlen": (
        *(Goal({"pass": pass_, "d": d}, 0.9, 0.75, len(LENGTH_KINDS), figure="of_saved",
               called=f"{pass_}, d = {d}: speedup against padded {FLASH} / padding saved")
          for pass_ in PASSES for d in (64, 128)),
        *(Goal({"pass": "backward", "d": d}, 0.95, None, len(LENGTH_KINDS), PACKED) for d in (64, 128)),
    ),
    # At N = 32,768 and B = 1, with 32, 8 and 1 heads of keys, K and V would take 125.5, 31.4 and 3.9 µs at
    # the speed of the copy, 4,279 GB/s. The step took 142.0, 47.2 and 25.1 µs: 16 to 21 more, whatever the
    # bytes.
    # - 32 heads, B = 1: 0.88 of the copy was reached, and with more keys those 16 µs weigh less.
    # - Few bytes are a matter of µs, not of a share. With 8 heads 0.8 of the copy is 39.2 µs, 7.8 more than
    #   the copy's own; PyTorch's fastest, cuDNN, needs 10.5 more, 41.9 µs. With one head it is 4.9 µs, 1.0
    #   more, which is less than two launches take: no kernel can. The goals are what cuDNN took, 41.9 (42)
    #   and 18.1 µs; the floors what was reached, rounded up.
    # - Eight sequences with one head have the bytes of one with 8. Where B = 8 nothing is measured.
    "decode": (
        *(Goal({"H_kv": H_kv, "B": B, "N": Ns}, goal, floor, len(Ns), figure="share", over="least",
               called=f"least share of the copy bandwidth, N ≥ {Ns[0]:,}, {H_kv} heads of keys, B = {B}")
          for H_kv, B, Ns, goal, floor in (
              (32, 1, LONG, 0.88, 0.80), (32, 8, LONG, 0.80, 0.65),
              (8, 1, LONG[1:], 0.80, 0.65), (8, 8, LONG, 0.80, 0.65),
              (1, 8, LONG[1:], 0.80, 0.65))),
        *(Goal({"H_kv": H_kv, "B": B, "N": 32768}, goal, floor, 1, figure="us", over="largest",
               called=f"µs, N = 32,768, {H_kv} heads of keys, B = {B}")
          for H_kv, B, goal, floor in ((8, 1, 42.0, 48.0), (1, 8, 42.0, 48.0), (1, 1, 18.1, 26.0))),
    ),
    # At N = 4,096 alone 1.38 forward and 1.87 backward by what was chosen then, and 4.14 backward with the
    # scores written out.
    "small-cache": tuple(
        Goal({"pass": pass_, "d": 512}, goal, floor, 6, EFFICIENT)
        for pass_, goal, floor in (("forward", 1.8, 1.3), ("backward", 3.5, 2.0))
    ),
}  # fmt: skip


# --- the steps ---------------------------------------------------------------------------------------------

# A step yields a line and its part of the record after every row; and "", {} where it is about to go on with
# something long.
Said = Iterator[tuple[str, Row]]


@dataclass
class Visit:
    """What the steps of one run share."""

    place: Place
    quick: bool = False
    tutorial: Path | None = None
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**31))
    # By step: who is not timed in a pass, and why.
    wrong: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)

    def facts(self, subject: str) -> Row:
        """What each part of the record begins with."""
        facts = {"quick": self.quick, "subject": subject, **run_metadata("torch", "triton")}
        return facts | {"kernels_code": kernels_code(), "device": self.place.facts(), "seed": self.seed}


def values(visit: Visit, seconds: float) -> Said:
    """Every kernel against float64 at small shapes that fill no tile."""
    part = visit.facts("values") | {"rows": []}
    asked = [(name, contest, shape) for name, contest in CONTESTS.items() for shape in contest.small]
    for done, (name, contest, shape) in enumerate(asked, 1):
        visit.place.tidy()
        some = {who: one for who, one in contest.contenders(visit.place).items() if who in OURS}
        problem = contest.problem(shape, visit.place.device, visit.seed)
        trial, said = Trial(shape, problem, some, contest.passes), []
        for who, found in zip(some, trial.errors(), strict=True):
            reasons = {at: f"{why} ({name} with {about(shape._asdict())})"
                       for at, why in trial.refused.items() if at[0] == who}  # fmt: skip
            visit.wrong.setdefault(name, {}).update(reasons)
            row = {"step": name, **shape._asdict(), "contender": who, **found}
            row |= {"refused": next(iter(reasons.values()))} if reasons else {}
            part["rows"].append(row)
            said.append(f"{who} WRONG" if reasons else f"{who} {found['worst_block']:.1e}")
            yield "", {}
        part["shapes"] = {"asked": len(asked), "done": done}
        yield f"{name}, {about(shape._asdict())}: {', '.join(said)}", part


def contested(name: str, contest: Contest, visit: Visit) -> Said:
    """Every contender of one step at every shape, its values first; a row per pass."""
    import torch

    place, started = visit.place, time.perf_counter()
    asked, field = contest.shapes(visit.quick), dict(contest.contenders(place))
    if name == "attention-tutorial" and visit.tutorial:
        field |= problems.tutorial_contenders(visit.tutorial)
    subject = contest.subject or name
    facts = visit.facts(subject) | {"contenders": list(field)} | contest.facts(place, asked)
    rows, errors = list[Row](), list[Row]()

    def part(done: int) -> Row:
        came = {"seconds": round(time.perf_counter() - started), "rows": rows, "errors": errors}
        counts = {"shapes": {"asked": len(asked), "done": done}}
        return compared(facts | came | counts, contest.layout, GOALS[name], contest.more)

    for done, shape in enumerate(asked):
        place.tidy()
        some = {who: one for who, one in field.items() if contest.takes_part(shape, who)}
        shown = about(shape._asdict())
        try:
            problem = contest.problem(shape, place.device, visit.seed)
            trial = Trial(shape, problem, some, contest.passes, dict(visit.wrong.get(subject, {})))
            for found in trial.errors():
                errors += [found] if found else []
                yield "", {}
        except torch.cuda.OutOfMemoryError as error:
            rows += [{**shape._asdict(), "contender": who, "pass": pass_, "refused": reason_of(error)}
                     for pass_ in contest.passes for who in some]  # fmt: skip
            yield f"{shown}: {reason_of(error)}", part(done + 1)
            continue
        for at, pass_ in enumerate(contest.passes, 1):
            place.sm_mhz()
            found_rows = trial.timed(place.stopwatch, pass_)
            mhz = place.sm_mhz()
            rows += [row | {"sm_mhz": mhz} if "ms" in row else row for row in found_rows]
            yield f"{shown}, {pass_}: {_times(found_rows, mhz)}", part(done + at // len(contest.passes))


def _times(rows: Sequence[Row], mhz: float | None) -> str:
    """'fused 0.368 (host 0.120), SDPA math not timed; ms, 1,980 MHz'."""
    said = []
    for row in rows:
        host = "" if row.get("host_ms") is None else f" (host {row['host_ms']:.3f}"
        host += ")" if host and not row["host_bound"] else ", which bounds it)" if host else ""
        said.append(f"{row['contender']} {number(row['ms'], 3)}{host}" if "ms" in row
                    else f"{row['contender']} not timed")  # fmt: skip
    return f"{', '.join(said)}; ms{'' if mhz is None else f', {mhz:,.0f} MHz'}"


TUNED_HEADS, TUNED_N, ALL_TILES = (64, 128), 4096, 1200.0  # seconds that all tiles take


def tune(visit: Visit, seconds: float) -> Said:
    """Tiles of every kernel, full and causal; few of them, unless there are 20 minutes for it."""
    from iocourse.kernels.host.tile_table import row_of

    place = visit.place
    arch = row_of(place.facts()["arch"])
    dtype = "float16" if arch < 80 else "bfloat16"
    asked = tiles.searches(arch, TUNED_HEADS, few=seconds < ALL_TILES)
    shapes = {(d, causal): problems.filled(dtype, d, TUNED_N, causal)
              for d in TUNED_HEADS for causal in tiles.MASKS}  # fmt: skip
    place.tidy()
    tiles.warm(arch, tiles.wanted(asked, list(shapes.values())), seconds / 2)
    facts = visit.facts("tune")
    for text, record in tiles.tuned(
        arch, asked, lambda d, causal: tiles.Problem(shapes[d, causal], place.device), place.stopwatch
    ):
        yield text, facts | record


# Launches whose bytes are counted: those of the shipped record.
COUNTED = (
    LaunchRequest("forward", 4096, 64, 16), LaunchRequest("forward", 4096, 128, 16, causal=True),
    LaunchRequest("fused-backward", 4096, 64, 8, heads=8),
    LaunchRequest("decode", 65536, 128, 8, heads=32, parts=32),
    LaunchRequest("small-cache-fused", 2048, 512, 4, heads=4),
)  # fmt: skip


def counted(visit: Visit, seconds: float) -> Said:
    """The bytes of some launches by Nsight Compute. Raises UsageError where it is not installed or fails."""
    from tools.bench import counters

    visit.place.tidy()
    part, ends = visit.facts("profile") | {"runs": []}, time.monotonic() + seconds
    for done, asked in enumerate(COUNTED, 1):
        found = counters.record_of(asked, max(1.0, ends - time.monotonic()))
        kept = ("question", "place", "tiles", "bytes", "kernels", "counters")
        part["runs"].append({key: found[key] for key in kept})
        part |= {"device": found["device"], "shapes": {"asked": len(COUNTED), "done": done}}
        yield counters.show(found), part


def lessons(visit: Visit, seconds: float) -> Said:
    """The lessons on kernels, compiled."""
    from tools.bench import compiled_lessons

    root, part = find_checkout(), visit.facts("lessons") | {"rows": []}
    files = compiled_lessons.files(root)
    for done, file in enumerate(files, 1):
        visit.place.tidy()
        part["rows"].append(compiled_lessons.row_of(file, root))
        part["shapes"] = {"asked": len(files), "done": done}
        yield compiled_lessons.text_of(part["rows"][-1]), part


# --- the run -----------------------------------------------------------------------------------------------

Step = Callable[[Visit, float], Said]


def plan(tutorial: Path | None) -> dict[str, tuple[float, Step]]:
    """Each step with its share of the minutes, in the order in which they run."""

    def contest(name: str) -> tuple[float, Step]:
        return CONTESTS[name].minutes, lambda visit, seconds: contested(name, CONTESTS[name], visit)

    found: dict[str, tuple[float, Step]] = {"values": (2.0, values)}
    found |= {name: contest(name) for name in CONTESTS if tutorial or name != "attention-tutorial"}
    return found | {"tune": (2.0, tune), "counters": (1.0, counted), "lessons": (1.5, lessons)}


def run(
    quick: bool, minutes: float = MINUTES, tutorial: Path | None = None, only: Sequence[str] = (),
    install: Path | None = None, keep: Keep | None = None,
) -> Row:  # fmt: skip
    """Run the steps, or those in `only`; `keep` takes the record after every row.

    `quick`: at few shapes, and no goal is judged. `tutorial`: a copy of Triton's tutorial 06. `install`: put
    the records in this file into the package, and do nothing else. Raises UsageError where an argument is not
    allowed, or there is no GPU.
    """
    if install:
        return {"installed": installed(install)}
    if not 0 < minutes < inf:
        raise UsageError(f"--minutes is {minutes:g}; allowed: more than 0")
    known = plan(tutorial)
    for name in only:
        if name not in known:
            raise UsageError(f"--only {name!r} is no step; allowed: {', '.join(known)}")
    if tutorial:
        problems.tutorial_contenders(tutorial)  # refuses what is none
    visit = Visit(cuda_place(), quick, tutorial)
    keep, ends = keep or (lambda whole: write_json(FILE, whole)), time.monotonic() + 60 * minutes
    whole = visit.facts(NAME) | {"minutes": minutes, "steps": {}}
    to_do = {name: step for name, step in known.items() if not only or name in only}
    code = 0
    try:
        with interrupts() as stop:
            keep = stop.outside(keep)
            for at, (name, (share, step)) in enumerate(to_do.items()):
                rest = sum(share for share, _ in list(to_do.values())[at:])
                seconds = (ends - time.monotonic()) * share / rest
                entry = _run_step(name, step, visit, whole, seconds, keep, stop)
                code = max(code, int(entry["state"] == "failed" or any(visit.wrong.values())))
                if entry["state"] == "interrupted" or stop.seen:
                    code = 130
                    break
    except KeyboardInterrupt:
        code = 130
    finally:
        visit.place.close()
    return whole | {"exit": code}


def _run_step(
    name: str, step: Step, visit: Visit, whole: Row, seconds: float, keep: Keep, stop: Interrupts
) -> Row:  # fmt: skip
    """Run one step for so many seconds; it ends where the longest piece so far would not fit any more."""
    entry: Row = {"state": "no time left", "seconds": 0.0, "at_most": round(max(0.0, seconds))}
    whole["steps"][name] = entry
    if seconds < ENOUGH:
        keep(whole)
        return entry
    print(f"--- {name}: {seconds:.0f} s at most", flush=True)
    entry["state"] = "running"
    last = started = time.monotonic()
    longest = 0.0
    try:
        for text, part in step(visit, seconds):
            if part:
                whole[name], entry["seconds"] = part, round(time.monotonic() - started, 1)
                print(text, flush=True)
                keep(whole)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
            if stop.seen:
                raise KeyboardInterrupt
            if now + longest > started + seconds:
                break
        entry["state"] = "done" if how_far(whole.get(name)) == 1 else "cut off"
    except KeyboardInterrupt:
        entry["state"] = "interrupted"
    except UsageError as error:
        entry |= {"state": "not run", "why": str(error)}
    except Exception as error:
        traceback.print_exc()
        entry |= {"state": "failed", "why": reason_of(error)}
    entry["seconds"] = round(time.monotonic() - started, 1)
    print(f"--- {name}: {entry['state']} after {entry['seconds']:.0f} s", flush=True)
    keep(whole)
    return entry


@dataclass
class Interrupts:
    """Whether the run was asked to end, and whether that must wait."""

    seen: bool = False
    held: bool = False

    def outside(self, keep: Keep) -> Keep:
        """`keep` without an interrupt in the middle."""

        def whole(record: Row) -> None:
            self.held = True
            try:
                keep(record)
            finally:
                self.held = False

        return whole


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Within this block Ctrl-C and SIGTERM raise KeyboardInterrupt, but not while a file is written. They are
    kept in `seen`: where the exception was lost, as in a finaliser, the next row sees them.
    """
    found = Interrupts()

    def end(number: int, frame: Any) -> None:
        found.seen = True
        if not found.held:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield found
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def how_far(part: Row | None) -> float:
    """How much of what was asked for a record holds, from 0 to 1; 0 for none."""
    if not part:
        return 0.0
    if "kernels" in part and "asked" in part:  # of tune
        return float(len(part["kernels"]) / part["asked"])
    counted = part.get("shapes", {"asked": 1, "done": 1})
    return float(counted["done"] / counted["asked"])


# --- what is printed at the end, and what is shipped -------------------------------------------------------


def show(result: Row) -> str:
    """The steps, their tables, the goals, and what to do with the record."""
    if "installed" in result:
        return "\n".join(result["installed"])
    return paragraphs(
        *(f"{name}\n\n{_told(name, result[name])}" for name in result["steps"] if name in result),
        _steps(result), _goals(result),
        "to ship the records: python -m tools.bench gpu --install FILE, then python -m tools.build",
        record_source(result),
    )  # fmt: skip


def _told(name: str, part: Row) -> str:
    if name in CONTESTS:
        return records.format_record(part)
    if name == "tune":
        return tiles.shown(part)
    if name == "lessons":
        from tools.bench import compiled_lessons

        return "\n".join(map(compiled_lessons.text_of, part["rows"]))
    if name == "values":
        wrong = [f"{row['contender']}: {row['refused']}" for row in part["rows"] if "refused" in row]
        return "\n".join(wrong) or f"{len(part['rows'])} results of our kernels hold against float64"
    return "\n".join(f"{run['question']['what']}: {json.dumps(run['counters'])}" for run in part["runs"])


def _steps(result: Row) -> str:
    cells = [["step", "", "seconds", "at most", "of its shapes"]]
    for name, entry in result["steps"].items():
        far = f"{how_far(result[name]):.0%}" if name in result else ""
        cells.append([name, entry["state"], f"{entry['seconds']:.0f}", f"{entry['at_most']}", far])
    why = (f"{name}: {entry['why']}" for name, entry in result["steps"].items() if "why" in entry)
    return "\n".join([table(cells, left=2), *why])


def _goals(result: Row) -> str:
    """Every goal with its floor, what was reached, and the verdict."""
    cells, verdicts = [["", "reached", "goal", "floor"]], [""]
    for name in result["steps"]:
        for one in result.get(name, {}).get("goals", ()):
            reached, floor = number(one["reached"], 3), number(one["floor"], 2)
            cells.append([f"{name}: {one['what']}", reached, f"{one['goal']:.2f}", floor])
            verdicts.append(f"  {one['verdict']}")
    stated = f"goals, stated for an H200; this is {result['device']['name']}"
    lined = map(str.__add__, table(cells).splitlines(), verdicts)
    return "\n".join([stated, *lined]) if len(cells) > 1 else ""


FOLDER = Path(records.__file__).parent / "bench"


def installed(file: Path) -> list[str]:
    """Put every part that a lesson can read into the package; a line for each says what became of it.

    What is shipped is not replaced by less: a quick record takes the place of none that is whole. Raises
    UsageError where the file is not what this command wrote, or a part cannot be a record.
    """
    whole, said = read_json(file), []
    if whole.get("subject") != NAME:
        raise UsageError(f"--install {file} is no record of this command; allowed: a file that --json wrote")
    for name in (*CONTESTS, "tune", "counters"):
        if not (part := whole.get(name)):
            continue
        if absent := missing_metadata(part):
            raise UsageError(f"{file} has no record of {name}: it lacks {', '.join(absent)}")
        if name == "tune":
            tiles_of(part)  # refuses rows that no launch could take
        target = FOLDER / f"{'profile' if name == 'counters' else name}.json"
        before = read_json(target)
        fullness = [(not one.get("quick"), how_far(one)) for one in (before, part)]
        if before and fullness[0] > fullness[1]:
            said.append(f"{target} is left as it is: it holds more than {file}")
        else:
            write_json(target, part)
            said.append(f"{target} written, from {file}")
    if not said:
        raise UsageError(f"--install {file} holds no record that the package ships")
    return said
