"""GPU benchmark of our kernels, in one run of some minutes: values, times, tiles, byte counters and lessons.

Each step answers one of `QUESTIONS`, in their order. Values are first, and kernels with wrong values are not
timed. Each step has a share of the minutes, and unused time goes to later steps. After every row, a line is
printed and the file is written, so that a run may be interrupted at any time; another run with the same file
continues it. The parts of the file are records; `--install FILE` copies them into the package (see
`install.py`).
"""

from __future__ import annotations

import gc
import hashlib
import json
import signal
import subprocess
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from iocourse.console import number, paragraphs, table
from iocourse.data import records
from iocourse.data.records import load_record, record_source
from iocourse.errors import UsageError
from iocourse.files import read_json, write_json
from iocourse.gpu.timing import CudaStopwatch, cuda_unavailable_reason
from tools.bench import Row, problems, steps, tiles
from tools.bench.contest import reason_of
from tools.bench.contests import CONTESTS
from tools.bench.device import device_facts, smi_query
from tools.bench.steps import LEFT, Said, Visit, contested, wrong_before

NAME = "gpu"
HELP = "our kernels on a GPU: values, times next to PyTorch's and others', tiles, bytes, lessons (needs CUDA)"
MINUTES = 15.0
FILE = Path("build", "gpu.json")  # without --json
ENOUGH = 2.0  # minimum seconds to start a step
Keep = Callable[[Row], None]


class Question(NamedTuple):
    """A question to a GPU, and the steps that answer it, or the reason why none does."""

    asks: str
    steps: tuple[str, ...] = ()
    reason: str = ""


QUESTIONS = (
    Question("Are values correct, and deterministic results equal from run to run?",
             ("compile", "values", "checks", "bits")),
    Question("Is the two-pass backward faster where it was not timed?", ("two-pass",)),
    Question("Which tiles make the backward pass fast at d = 256 and 192?", ("d-256",)),
    Question("How fast are the default tiles next to FlashAttention-2, cuDNN and tutorial 06?",
             ("attention", "attention-tutorial")),
    Question("What does the order of programs change?", ("order",)),
    Question("Which bytes move with today's tiles, in every backward pass and under a block mask?",
             ("counters",)),
    Question("Do lessons 10 to 14b run with compiled kernels?", ("lessons",)),
    Question("How fast is a forward kernel in Gluon?", reason="the library has no such kernel"),
    Question("From which d on are slices faster than complete rows?", ("heads",)),
    Question("When is merging by the last program faster, and how fast are long caches?",
             ("merging", "decode")),
    Question("Which forward tiles are fast under block masks and for packed sequences?", ("tiles-64",)),
    Question("What are the rates of L2, of exponentials and of shared memory?", ("roofs",)),
)  # fmt: skip


class Place:
    """The current CUDA device, its stopwatch and its clock; tests use a replacement."""

    device = "cuda"
    facts = staticmethod(device_facts)  # facts about the device for a record

    def __init__(self) -> None:
        """Create a stopwatch, and start nvidia-smi, which prints the SM clock five times per second."""
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
            pass  # nvidia-smi is not installed

    def _listen(self, printed: Any) -> None:
        with printed:
            for said in printed:
                if said.strip().isdigit():
                    self._mhz.append(float(said))

    def sm_mhz(self) -> float | None:
        """Return the median SM clock in MHz since the last call, None if unknown."""
        found, self._mhz = self._mhz, []
        return median(found) if found else None

    def free_bytes(self) -> int:
        """Return the bytes available for tensors: free in the driver, or cached and unused by torch."""
        held = self._cuda.memory_reserved() - self._cuda.memory_allocated()
        return int(self._cuda.mem_get_info()[0] + held)

    def tidy(self) -> None:
        """Free unused memory: collect garbage and empty torch's cache."""
        gc.collect()
        self._cuda.empty_cache()

    def close(self) -> None:
        """Stop nvidia-smi."""
        if self._smi:
            self._smi.kill()
            self._smi.wait()
            self._listener.join(1.0)


def cuda_place() -> Place:
    """Return the GPU of this process, for which kernels are compiled.

    Raises UsageError if there is no GPU, triton is missing, or kernels are interpreted; the message
    names an alternative.
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
            f"{reason}, but this subject times kernels on an NVIDIA GPU. Run it on a machine with one; "
            "without one, `python -m tools.bench resources` compiles every kernel for every chip. "
            f"Shipped with the course: {record_source(load_record('attention'))}."
        )
    return Place()


# --- the run -----------------------------------------------------------------------------------------------

Step = Callable[[Visit, float], Said]
# The other steps and their shares, in minutes; those of comparisons are in `CONTESTS`.
STEPS: dict[str, tuple[float, Step]] = {
    "compile": (1.0, steps.compiled), "values": (0.5, steps.values), "checks": (1.0, steps.checked),
    "bits": (0.25, steps.bits), "order": (1.0, steps.order), "counters": (1.5, steps.counted),
    "lessons": (2.0, steps.lessons), "roofs": (0.5, steps.roofs), "tune": (0.25, steps.tune),
}  # fmt: skip
ALWAYS = ("compile",)  # what it makes is not in the file


def plan(tutorial: Path | None) -> dict[str, tuple[float, Step]]:
    """Return the steps in order, each with its share of the minutes."""

    def contest(name: str) -> tuple[float, Step]:
        return CONTESTS[name].minutes, lambda visit, seconds: contested(name, CONTESTS[name], visit)

    order = [name for question in QUESTIONS for name in question.steps]
    return {
        name: STEPS[name] if name in STEPS else contest(name)
        for name in (*order, *LEFT) if tutorial or name != "attention-tutorial"
    }  # fmt: skip


def run(
    quick: bool, minutes: float = MINUTES, tutorial: Path | None = None, only: Sequence[str] = (),
    install: Path | None = None, file: Path = FILE,
) -> Row:  # fmt: skip
    """Run the steps and return the record. If `file` has the record of an earlier run, continue that run.

    Args:
        quick: use few shapes, and judge no goals.
        minutes: time limit of the run.
        tutorial: a copy of Triton's tutorial 06.
        only: run only these steps.
        install: copy the records of this file into the package, and do nothing else.
        file: the record is written to it after every row.

    Raises:
        UsageError: an argument is invalid, there is no GPU, or `file` is not the record of a run that this
            one can continue.
    """
    if install:
        from tools.bench.install import installed

        return {"installed": installed(install)}
    if not 0 < minutes < inf:
        raise UsageError(f"--minutes must be more than 0, got {minutes:g}")
    known = plan(tutorial)
    for name in only:
        if name not in known:
            raise UsageError(f"--only must be one of {', '.join(known)}; got {name!r}")
    if tutorial:
        problems.tutorial_contenders(tutorial)  # raises UsageError for another file
    visit = Visit(cuda_place(), quick, tutorial)
    ends, code = time.monotonic() + 60 * minutes, 0
    try:
        whole = begun(file, visit.facts(NAME))
        if whole["commit"].endswith("+"):
            said = "This checkout has changed files, so --install will refuse the records. Commit first."
            print(said, flush=True)
        visit.seed, visit.before, visit.wrong = whole["seed"], dict(whole), wrong_before(whole)
        whole |= {"minutes": minutes, "steps": dict(whole.get("steps", {}))}
        to_do = {name: step for name, step in known.items() if not only or name in only}
        for name in [*to_do]:
            if whole["steps"].get(name, {}).get("state") == "done" and name not in ALWAYS:
                print(f"--- {name}: done by an earlier run of {file}", flush=True)
                del to_do[name]
        visit.to_do = tuple(to_do)
        with interrupts() as stop:
            keep = stop.outside(lambda record: write_json(file, record))
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


def begun(file: Path, facts: Row) -> Row:
    """Return the record in a file, for a run with these facts that continues it; the facts if there is no
    file. Raises UsageError if the run of the file had another GPU, commit, version or option.
    """
    if not file.exists():
        return facts
    before, remedy = read_json(file), "Move the file away, or write to another one with --json FILE"
    if before.get("subject") != NAME:
        raise UsageError(f"{file} was not written by `python -m tools.bench gpu`. {remedy}")
    for name in ("device", "versions", "commit", "kernels_code", "quick"):
        there, here = (_comparable(name, one.get(name)) for one in (before, facts))
        if there != here:
            raise UsageError(
                f"{file} holds a run with {name} {there}, and this one has {here}: it cannot be continued. "
                f"{remedy}"
            )
    return {key: value for key, value in before.items() if key != "exit"}


def _comparable(name: str, value: Any) -> Any:
    """Return a value in the form in which two runs are compared and an error names it."""
    if name == "kernels_code":  # hundreds of fingerprints
        return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]
    return (value or {}).get("name") if name == "device" else value


def _run_step(
    name: str, step: Step, visit: Visit, whole: Row, seconds: float, keep: Keep, stop: Interrupts
) -> Row:  # fmt: skip
    """Run one step and return its entry. It stops if its longest piece so far no longer fits in `seconds`."""
    entry: Row = {"state": "no time left", "seconds": 0.0, "at_most": round(max(0.0, seconds))}
    whole["steps"][name] = entry
    if seconds < ENOUGH:
        keep(whole)
        return entry
    print(f"--- {name}: {seconds:.0f} s at most", flush=True)
    entry["state"] = "running"
    last = started = time.monotonic()
    longest, rows = 0.0, step(visit, seconds)
    try:
        for text, part in rows:
            if part:
                whole[name], entry["seconds"] = part, round(time.monotonic() - started, 1)
                keep(whole)
            if text:
                print(text, flush=True)
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
        entry |= {"state": "cut off" if name in whole else "not run", "why": str(error)}
    except Exception as error:
        traceback.print_exc()
        entry |= {"state": "failed", "why": reason_of(error)}
    finally:
        rows.close()  # ends the processes of a step that is cut off
    entry["seconds"] = round(time.monotonic() - started, 1)
    print(f"--- {name}: {entry['state']} after {entry['seconds']:.0f} s", flush=True)
    keep(whole)
    return entry


@dataclass
class Interrupts:
    """State of interrupts. seen: the run must end. held: not yet, because a file is being written."""

    seen: bool = False
    held: bool = False

    def outside(self, keep: Keep) -> Keep:
        """Wrap `keep` so that interrupts wait until it returns."""

        def whole(record: Row) -> None:
            self.held = True
            try:
                keep(record)
            finally:
                self.held = False

        return whole


@contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt within this block, except while a file is written. They
    are also recorded in `seen`, because an exception in a finaliser is lost; the next row then checks it.
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
    """Return the completed fraction of a record, from 0 to 1; 0 for None."""
    if not part:
        return 0.0
    if "kernels" in part and "asked" in part:  # of tune
        return float(len(part["kernels"]) / part["asked"])
    counted = part.get("shapes", {"asked": 1, "done": 1})
    return float(counted["done"] / counted["asked"])


# --- report and shipped records ----------------------------------------------------------------------------


def show(result: Row) -> str:
    """Format the tables of the steps, the steps, the goals, and how to ship the record."""
    if "installed" in result:
        return "\n".join(result["installed"])
    return paragraphs(
        *(f"{name}\n\n{_told(name, result[name])}" for name in result["steps"] if name in result),
        _steps(result), _goals(result),
        "To ship the records, run python -m tools.bench gpu --install FILE, then python -m tools.build.",
        record_source(result),
    )  # fmt: skip


def _told(name: str, part: Row) -> str:
    if name in CONTESTS:
        return paragraphs(records.format_record(part), _bytes_of(part) if part.get("runs") else "")
    if name == "tune":
        return tiles.shown(part)
    if name == "lessons":
        from tools.bench import compiled_lessons

        return "\n".join(map(compiled_lessons.text_of, part["rows"]))
    if name == "roofs":
        return "\n".join(f"{key} {value:.4g}" for key, value in part.items() if isinstance(value, float))
    if name in HELD:
        wrong = [f"{row.get('contender') or row.get('check', name)}: {row['refused']}"
                 for row in part["rows"] if "refused" in row]  # fmt: skip
        return "\n".join(wrong) or HELD[name].format(len(part["rows"]), **part["shapes"])
    return _bytes_of(part)


# Texts of steps in which nothing is wrong; the number is that of the rows.
HELD = {
    "compile": "{done} compiled",
    "values": "{} results of our kernels agree with float64",
    "checks": "{} checks of compiled kernels hold",
    "bits": "{} results have equal bits in every run",
}


def _bytes_of(part: Row) -> str:
    """Format the counted bytes of a record, one line per launch."""
    return "\n".join(
        f"{run['question']['what']}, {run.get('order', '')}: L2 {run['bytes']['l2']['read']}, DRAM "
        f"{run['bytes']['dram']['read']} bytes read; {json.dumps(run['counters'])}"
        for run in part["runs"]
    )


def _steps(result: Row) -> str:
    cells = [["step", "", "seconds", "at most", "of its shapes"]]
    for name, entry in result["steps"].items():
        far = f"{how_far(result[name]):.0%}" if name in result else ""
        cells.append([name, entry["state"], f"{entry['seconds']:.0f}", f"{entry['at_most']}", far])
    why = (f"{name}: {entry['why']}" for name, entry in result["steps"].items() if "why" in entry)
    return "\n".join([table(cells, left=2), *why])


def _goals(result: Row) -> str:
    """Format every goal as a line: the number reached, goal, floor and verdict."""
    cells, verdicts = [["", "reached", "goal", "floor"]], [""]
    for name in result["steps"]:
        for one in result.get(name, {}).get("goals", ()):
            reached, floor = number(one["reached"], 3), number(one["floor"], 2)
            cells.append([f"{name}: {one['what']}", reached, f"{one['goal']:.2f}", floor])
            verdicts.append(f"  {one['verdict']}")
    stated = f"goals (stated for an H200; this GPU: {result['device']['name']})"
    lined = map(str.__add__, table(cells).splitlines(), verdicts)
    return "\n".join([stated, *lined]) if len(cells) > 1 else ""
