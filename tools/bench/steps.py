"""The steps of the GPU benchmark (`tools.bench gpu`), each with its part of the record."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from iocourse.console import number
from iocourse.course.project_paths import find_checkout
from iocourse.data import records
from iocourse.data.records import load_record, run_metadata
from iocourse.errors import UsageError
from iocourse.profile import LaunchRequest
from tools.bench import Row, problems, tiles, warming
from tools.bench.contest import Trial, about, compared, reason_of
from tools.bench.contests import CONTESTS, GOALS, Contest
from tools.bench.problems import HEADS_FASTEST, OURS, TILES_FASTEST
from tools.bench.resources import kernels_at_hand

# Comparisons with other implementations that were made before, and tiles: what is left of the time.
LEFT = ("sparse", "varlen", "small-cache", "tune")
# After every row, a step yields a line and its part of the record. It yields "", {} before other long work.
Said = Generator[tuple[str, Row], None, None]


@dataclass
class Visit:
    """State that the steps of one run share."""

    place: Any  # the GPU, its stopwatch and its clock
    quick: bool = False
    tutorial: Path | None = None
    seed: int = field(default_factory=lambda: random.SystemRandom().randrange(2**31))
    # By step: for (implementation, pass), the reason why it is not timed.
    wrong: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)
    before: Mapping[str, Any] = field(default_factory=dict)  # the file of the run that this one continues
    to_do: Sequence[str] = ()  # the steps of this run

    def facts(self, subject: str) -> Row:
        """Return the common entries of each part of the record."""
        facts = {"quick": self.quick, "subject": subject, **run_metadata("torch", "triton")}
        device = self.place.facts()
        kernels = kernels_at_hand(device.get("arch", 0))
        return facts | {"kernels_code": kernels, "device": device, "seed": self.seed}

    def begun(self, name: str, subject: str = "", key: str = "rows") -> Row:
        """Return the record of a step with the rows of the run that this one continues."""
        return self.facts(subject or name) | {key: list(self.before.get(name, {}).get(key, ()))}


def compiled(visit: Visit, seconds: float) -> Said:
    """Compile our kernels for the comparisons of this run. Those that are left are compiled when needed."""
    from iocourse.kernels.host.choices import table_architecture

    facts, part = visit.place.facts(), visit.facts("compile") | {"rows": []}
    names = [name for name in visit.to_do if name in CONTESTS and name not in LEFT]
    jobs = [(table_architecture(facts["arch"]), facts["multiprocessors"], *one)
            for one in warming.wanted(names, visit.quick)]  # fmt: skip
    if not jobs:
        raise UsageError("no comparison of this run is left, so there is nothing to compile")
    done = said = 0
    for reasons in warming.in_processes(warming.compile_one, jobs):
        done += len(reasons)
        part["rows"] += [{"refused": reason} for reason in reasons if reason]
        part["shapes"] = {"asked": len(jobs), "done": done}
        if done == len(jobs) or done >= said + 50:
            said = done
            yield f"{done} of {len(jobs)} compiled, {len(part['rows'])} failed", part
        else:
            yield "", {}


def values(visit: Visit, seconds: float) -> Said:
    """Check every kernel against float64, at small shapes with partial tiles."""
    part = visit.begun("values")
    asked = [(name, contest, shape) for name, contest in CONTESTS.items() for shape in contest.small]
    for done, (name, contest, shape) in enumerate(asked, 1):
        about_it = {"step": name, **shape._asdict()}
        if any(about_it.items() <= row.items() for row in part["rows"]):
            continue
        visit.place.tidy()
        some = {who: one for who, one in contest.contenders(visit.place).items()
                if who in OURS and contest.takes_part(shape, who)}  # fmt: skip
        problem = contest.problem(shape, visit.place.device, visit.seed)
        trial, said = Trial(shape, problem, some, contest.passes), []
        for who, found in zip(some, trial.errors(), strict=True):
            reasons = {at: f"{why} ({name} with {about(shape._asdict())})"
                       for at, why in trial.refused.items() if at[0] == who}  # fmt: skip
            visit.wrong.setdefault(name, {}).update(reasons)
            row = about_it | {"contender": who, **found}
            if reasons:
                row |= {"refused": next(iter(reasons.values())), "passes": [at for _, at in reasons]}
            part["rows"].append(row)
            said.append(f"{who} WRONG" if reasons else f"{who} {found['worst_block']:.1e}")
            yield "", {}
        part["shapes"] = {"asked": len(asked), "done": done}
        yield f"{name}, {about(shape._asdict())}: {', '.join(said)}", part


def wrong_before(whole: Row) -> dict[str, dict[tuple[str, str], str]]:
    """Return `Visit.wrong` from the step `values` of an earlier run."""
    found: dict[str, dict[tuple[str, str], str]] = {}
    for row in whole.get("values", {}).get("rows", ()):
        for pass_ in row.get("passes", ()):
            found.setdefault(row["step"], {})[row["contender"], pass_] = row["refused"]
    return found


def checked(visit: Visit, seconds: float) -> Said:
    """Run every check of compiled kernels against float64, in several processes."""
    from tools.bench import checks

    part = visit.begun("checks")
    part["rows"] = [row for row in part["rows"] if not row["check"].startswith("shard ")]
    done = [row["check"] for row in part["rows"]]
    for asked, row in checks.checked(checks.script(find_checkout()), done):
        if row is None:
            yield "", {}
            continue
        part["rows"].append(row)
        have = len(part["rows"])
        part["shapes"] = {"asked": max(asked, have), "done": have}
        if "refused" in row:
            visit.wrong.setdefault("checks", {})[row["check"], ""] = row["refused"]
        often = have % 25 and have < asked
        yield "" if often and "refused" not in row else _check_line(row, have, asked), part


def _check_line(row: Row, have: int, asked: int) -> str:
    how = f"WRONG, {row['refused']}" if "refused" in row else "holds"
    return f"{have} of {asked} checks; {row['check']}: {how}"


def bits(visit: Visit, seconds: float) -> Said:
    """Compare the bits of results with a fixed order of every sum, from run to run."""
    from tools.bench import run_to_run

    part, asked = visit.begun("bits"), run_to_run.promises()
    for done, promise in enumerate(asked, 1):
        if any(promise.facts.items() <= row.items() for row in part["rows"]):
            continue
        visit.place.tidy()
        for row in run_to_run.kept(promise, visit.place, visit.seed):
            if not row:
                yield "", {}
                continue
            part["rows"].append(row)
            part["shapes"] = {"asked": len(asked), "done": done}
            if "refused" in row:
                visit.wrong.setdefault("bits", {})[str(promise), promise.pass_] = row["refused"]
            yield f"{about(promise.facts)}: {row.get('refused', 'equal bits')}", part


def recorded(subject: str, visit: Visit) -> list[Row]:
    """Return the rows of other implementations in the shipped record of a subject, if it is of this GPU,
    torch and triton. A time that the host may have bounded is left out, and a quick run takes none.
    """
    record = (load_record(subject) if subject in records.NAMES else None) or {}
    here = visit.facts(subject)
    same = (record.get("device") or {}).get("name") == here["device"]["name"] and all(
        record["versions"].get(name) == here["versions"].get(name) for name in ("torch", "triton")
    )
    if visit.quick or not same:
        return []
    rows = (row for row in (*record["rows"], *record.get("density_rows", ())) if row["contender"] not in OURS)
    return [
        {key: value for key, value in row.items() if key != "ratio"} | {"recorded": record["date"]}
        for row in rows if "refused" in row or (row.get("host_ms") is not None and not row["host_bound"])
    ]  # fmt: skip


def contested(name: str, contest: Contest, visit: Visit) -> Said:
    """Check and time every implementation of one step at every shape; yields after each pass.

    Shapes that the shipped record lacks are timed first. Passes that the earlier run of this file has timed
    are not timed again. Other implementations with a row in the shipped record (see `recorded`) are not
    either; the row then has the date of that record as `recorded`.
    """
    import torch

    place, started, before = visit.place, time.perf_counter(), visit.before.get(name, {})
    field = dict(contest.contenders(place))
    if name == "attention-tutorial" and visit.tutorial:
        field |= problems.tutorial_contenders(visit.tutorial)
    subject = contest.subject or name
    known = recorded(name, visit)
    asked = sorted(contest.shapes(visit.quick), key=lambda shape: any(_is_of(row, shape) for row in known))
    facts = visit.facts(subject) | {"contenders": list(field)} | contest.facts(place, asked)
    rows = [*before.get("rows", ()), *before.get("density_rows", ())]
    errors = list(before.get("errors", ()))
    done = {shape: {row["pass"] for row in rows if _is_of(row, shape)} for shape in asked}

    def part() -> Row:
        spent = before.get("seconds", 0) + round(time.perf_counter() - started)
        whole = sum(passes >= {*contest.times} for passes in done.values())
        came = {"seconds": spent, "rows": rows, "errors": errors}
        counts = {"shapes": {"asked": len(asked), "done": whole}}
        return compared(facts | came | counts, contest.layout, GOALS.get(name, ()), contest.more)

    for shape in asked:
        left = [pass_ for pass_ in contest.times if pass_ not in done[shape]]
        if not left:
            continue
        place.tidy()
        old = [row for row in known if _is_of(row, shape) and row["pass"] in left]
        # Another implementation runs again, in all passes, if one of its passes is not recorded.
        have = {who: [row["pass"] for row in old if row["contender"] == who] for who in field}
        some = {who: one for who, one in field.items()
                if contest.takes_part(shape, who) and {*have[who]} != {*left}}  # fmt: skip
        old = [row for row in old if row["contender"] not in some]
        shown = about(shape._asdict())
        errors[:] = [row for row in errors if not _is_of(row, shape)]
        try:
            problem = contest.problem(shape, place.device, visit.seed)
            trial = Trial(shape, problem, some, contest.passes, dict(visit.wrong.get(subject, {})))
            for found in trial.errors():
                errors += [found] if found else []
                yield "", {}
        except torch.cuda.OutOfMemoryError as error:
            rows += [{**shape._asdict(), "contender": who, "pass": pass_, "refused": reason_of(error)}
                     for pass_ in left for who in some]  # fmt: skip
            done[shape] |= {*left}
            yield f"{shown}: {reason_of(error)}", part()
            continue
        for pass_ in left:
            place.sm_mhz()
            found_rows = trial.timed(place.stopwatch, pass_)
            mhz = place.sm_mhz()
            rows += [row | {"sm_mhz": mhz} if "ms" in row else row for row in found_rows]
            rows += [row for row in old if row["pass"] == pass_]
            done[shape].add(pass_)
            yield f"{shown}, {pass_}: {_times(found_rows, mhz)}", part()


def _is_of(row: Row, shape: Any) -> bool:
    """Return True if a row is of this shape."""
    return bool(shape._asdict().items() <= row.items())


def _times(rows: Sequence[Row], mhz: float | None) -> str:
    """Format times in one line: 'fused 0.368 (host 0.120), SDPA math not timed; ms, 1,980 MHz'."""
    said = []
    for row in rows:
        host = "" if row.get("host_ms") is None else f" (host {row['host_ms']:.3f}"
        host += ")" if host and not row["host_bound"] else ", which bounds it)" if host else ""
        said.append(f"{row['contender']} {number(row['ms'], 3)}{host}" if "ms" in row
                    else f"{row['contender']} not timed")  # fmt: skip
    return f"{', '.join(said)}; ms{'' if mhz is None else f', {mhz:,.0f} MHz'}"


TUNED_HEADS, TUNED_N, ALL_TILES = (64, 128), 4096, 1200.0  # seconds needed to time all tiles


def tune(visit: Visit, seconds: float) -> Said:
    """Time tiles of every kernel, full and causal; only a few tiles if there are less than 20 minutes."""
    from iocourse.kernels.host.choices import table_architecture

    place, before = visit.place, visit.before.get("tune", {})
    arch = table_architecture(place.facts()["arch"])
    dtype = "float16" if arch < 80 else "bfloat16"
    asked = tiles.searches(arch, TUNED_HEADS, few=seconds < ALL_TILES)
    shapes = {(d, causal): problems.filled(dtype, d, TUNED_N, causal)
              for d in TUNED_HEADS for causal in tiles.MASKS}  # fmt: skip
    place.tidy()
    left = [one for one in asked if not tiles.is_done(before, *one[:2])]
    tiles.warm(arch, tiles.wanted(left, list(shapes.values())), seconds / 2)
    facts = visit.facts("tune")
    for text, record in tiles.tuned(
        arch, asked, lambda d, causal: tiles.Problem(shapes[d, causal], place.device), place.stopwatch, before
    ):
        yield text, facts | record


def order(visit: Visit, seconds: float) -> Said:
    """Time the forward pass with its programs in both orders, and count the bytes of one launch of each."""
    part: Row = dict(visit.before.get("order", {}))
    runs: list[Row] = part.get("runs", [])

    def whole() -> Row:  # one shape, in one pass
        counts = {"asked": 1 + len(ORDERED), "done": bool(part["rows"]) + len(runs)}
        return part | {"runs": runs, "shapes": counts}

    for text, found in contested("order", CONTESTS["order"], visit):
        part = found or part
        yield text, whole() if found else {}
    for text, some in runs_of(ORDERED, runs, visit, seconds):
        runs = some
        yield text, whole()


Launched = tuple[LaunchRequest, str]  # a launch, and the order of its programs
# The launch of the step `order`, in both orders.
ORDERED: tuple[Launched, ...] = tuple(
    (LaunchRequest("forward", 8192, 64, 32, heads=32), order) for order in (TILES_FASTEST, HEADS_FASTEST)
)
# Launches whose bytes are counted: the forward pass with today's tiles, every backward pass, a block mask,
# and two more that the shipped record has.
COUNTED: tuple[Launched, ...] = tuple((one, TILES_FASTEST) for one in (
    LaunchRequest("forward", 4096, 64, 16), LaunchRequest("forward", 4096, 128, 16, causal=True),
    LaunchRequest("split-backward", 4096, 64, 8, heads=8),
    LaunchRequest("small-cache-materialised-backward", 2048, 256, 8, heads=8),
    LaunchRequest("block-sparse", 4096, 128, 16, block_mask="random:0.1", block=128),
    LaunchRequest("fused-backward", 4096, 64, 8, heads=8),
    LaunchRequest("decode", 65536, 128, 8, heads=32, parts=32),
    LaunchRequest("small-cache-fused", 2048, 512, 4, heads=4),
))  # fmt: skip


def counted(visit: Visit, seconds: float) -> Said:
    """Count the bytes of some launches with Nsight Compute. Raises UsageError if it is missing or fails."""
    part = visit.begun("counters", "profile", "runs")
    for text, runs in runs_of(COUNTED, part["runs"], visit, seconds):
        part |= {"runs": runs, "shapes": {"asked": len(COUNTED), "done": len(runs)}}
        part["device"] |= {"ncu": runs[-1]["ncu"]}
        yield text, part


def runs_of(
    asked: Sequence[Launched], done: Sequence[Row], visit: Visit, seconds: float
) -> Iterator[tuple[str, list[Row]]]:  # fmt: skip
    """Count the bytes of each launch that is not in `done`, and yield a text and all rows so far."""
    from tools.bench import counters

    visit.place.tidy()
    runs, ends = list(done), time.monotonic() + seconds
    for one, order in asked:
        question = json.loads(json.dumps(asdict(one)))
        if any((run["question"], run.get("order", TILES_FASTEST)) == (question, order) for run in runs):
            continue
        found = counters.record_of(one, max(1.0, ends - time.monotonic()), order)
        kept = ("question", "order", "place", "tiles", "bytes", "kernels", "counters")
        runs.append({key: found[key] for key in kept} | {"ncu": found["device"]["ncu"]})
        yield counters.show(found), runs


LESSONS_AT_ONCE = 8


def lessons(visit: Visit, seconds: float) -> Said:
    """Run the lessons on kernels with compiled kernels, each in its own process."""
    from tools.bench import compiled_lessons

    root, part = find_checkout(), visit.begun("lessons")
    files = compiled_lessons.files(root)
    done = {row["lesson"] for row in part["rows"]}
    visit.place.tidy()
    left = [file for file in files if file.stem not in done]
    for row in compiled_lessons.rows_of(left, root, LESSONS_AT_ONCE):
        if row is None:
            yield "", {}
            continue
        part["rows"].append(row)
        part["shapes"] = {"asked": len(files), "done": len(part["rows"])}
        yield compiled_lessons.text_of(row), part


def roofs(visit: Visit, seconds: float) -> Said:
    """Measure the rates of products, copies, L2, exponentials and shared memory."""
    from tools.bench import roofs

    facts = visit.facts("roofs")
    for text, found in roofs.measured(visit.place, dict(visit.before.get("roofs", {}))):
        yield text, found | facts
