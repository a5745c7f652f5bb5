"""Data of the kernel explorer: one configuration of one Triton kernel on one chip, and recorded launches.

A configuration is a tile (BM, BN), its warps and its stages. Registers, shared memory and spills are those
that a compiler reported (records "tune" and "tiles", compiled with the Triton that timed them, then
"resources"). Times are those of the record "tune", and of "tiles" for the kernel "draft". Nothing is
interpolated: a configuration that was not compiled is "not compiled", one that the compiler or the driver
refused is "refused", and one without a time is "not timed".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from ....console import with_unit
from ....costs.kernels import (
    WHOLE,
    KernelProblem,
    attention_fused_backward,
    attention_split_backward,
    kernel_words,
    ledger_bytes,
)
from ....data.records import load_record
from ....gpu import Chip, Resources, chip_of
from ....gpu.choices import KERNELS_OF, PASSES, Case, loaded_width, padded, recorded
from ....gpu.roofline import TIMES_FORWARD, arithmetic_intensity, attainable_tflops, flops
from ....gpu.timed_tiles import DRAFT, EXPONENTIALS, ROWS, SHARED_BYTES, TENSOR_FLOP, WARPGROUP, tables
from ....ledger import Ledger
from ....sizes import positive_int

Record = Mapping[str, Any]
Row = Mapping[str, Any]
KERNELS = (*WHOLE, DRAFT)
HALVES = ("queries", "keys")  # of the two-pass backward pass, timed together
# The timed problem: an H200, 16 bits, 16,384 tokens in sequences of 4,096, heads times d 2,048.
TIMED_ARCH, TIMED_BYTES, TIMED_N, TIMED_ROWS, TIMED_COLUMNS = 90, 2, 4096, 16_384, 2_048
WIDEST = 512  # the largest d for which tiles with complete rows are recorded
# FLOP per score and column of d: 2 for each matrix product.
PRODUCTS = {"forward": 2, DRAFT: 2, "queries": 3, "keys": 4, "fused": 5}
SM, L2, DRAM = "L2 to SM", "in L2", "DRAM"  # levels at which bytes are counted
SM_READ = "l1tex__m_xbar2l1tex_read_bytes.sum"  # the counter of bytes from L2 to the SMs


class Configuration(NamedTuple):
    """A tile of BM queries and BN keys, with the warps and the stages of its program."""

    BM: int
    BN: int
    warps: int
    stages: int

    def __str__(self) -> str:
        warps, stages = with_unit(self.warps, "warp"), with_unit(self.stages, "stage")
        return f"{self.BM} × {self.BN}, {warps}, {stages}"


class KernelState(NamedTuple):
    """Values of all controls. N counts the queries and the keys of one head."""

    arch: int
    d: int
    kernel: str
    BM: int
    BN: int
    warps: int
    stages: int
    N: int = TIMED_N
    causal: bool = False
    itemsize: int = 2

    def checked(self) -> KernelState:
        """Return this state. Raises ValueError or TypeError that names the invalid field."""
        chip_of(self.arch)
        if self.kernel not in KERNELS:
            raise ValueError(f"kernel must be one of {', '.join(KERNELS)}; got {self.kernel!r}")
        if self.itemsize not in (2, 4):
            raise ValueError(f"itemsize must be 2 or 4 bytes, got {self.itemsize!r}")
        for name in ("d", "BM", "BN", "warps", "stages", "N"):
            positive_int(name, getattr(self, name))
        if self.d > WIDEST:
            raise ValueError(
                f"d must be at most {WIDEST}, because no tile with complete rows is recorded for a larger d; "
                f"got {self.d}"
            )
        if not isinstance(self.causal, bool):
            raise TypeError(f"causal must be True or False, got {self.causal!r}")
        for name in ("BM", "BN"):
            size = getattr(self, name)
            if size < 16 or size & (size - 1):
                raise ValueError(f"{name} must be a power of two of at least 16 (for tl.dot), got {size}")
        if self.warps & (self.warps - 1) or self.warps > 16:
            raise ValueError(f"warps must be 1, 2, 4, 8 or 16, got {self.warps}")
        return self

    @property
    def chip(self) -> Chip:
        """The chip of this state."""
        return chip_of(self.arch)

    @property
    def configuration(self) -> Configuration:
        """The tile with its warps and stages."""
        return Configuration(self.BM, self.BN, self.warps, self.stages)

    @property
    def compiled_as(self) -> str:
        """The library's kernel with these closed forms: "forward" for the draft."""
        return "forward" if self.kernel == DRAFT else self.kernel

    def at(self, configuration: Configuration) -> KernelState:
        """Return this state with another configuration."""
        return self._replace(**configuration._asdict())


# ---------------------------------------------------------------------- compiled and timed configurations
class Entry(NamedTuple):
    """A recorded configuration: the resources that its compiler reported (None: refused), the loads and
    stores of spilled registers in an iteration of its inner loop, the compiler, its time (None: none), and
    for a refused one the bytes of shared memory that it required (None: not recorded).
    """

    at: Configuration
    resources: Resources | None
    spills: int
    compiler: str
    ms: float | None = None
    required: int | None = None

    @property
    def verdict(self) -> str:
        """Return "fits", or why no program or no fast one runs: "refused", "too large" or "spills"."""
        if self.resources is None:
            return "refused"
        if not self.resources.programs_at_once:
            return "too large"
        return "spills" if self.spills else "fits"


class Records(NamedTuple):
    """The records that the explorer reads: `resources`, `profile`, `tune`, and the tables of timed tiles."""

    resources: Record
    profile: Record
    tune: Record
    timed: Mapping[str, Sequence[Row]]


NO_RECORDS = Records({}, {}, {}, {})


@lru_cache(maxsize=1)
def shipped_records() -> Records:
    """Return the records of the package; an empty one for each that is missing."""
    known = {name: load_record(name) or {} for name in ("resources", "profile", "tune")}
    timed = {name: rows for record in ("tiles", "tune") for name, rows in tables(record).items()}
    return Records(**known, timed=timed)


def entries(s: KernelState, records: Records) -> dict[Configuration, Entry]:
    """Return the recorded configurations of a state's kernel, chip, d, mask and element size."""
    found = dict[Configuration, Entry]()
    for row in _resource_rows(s, records.resources):
        found.setdefault(_configuration(row), _compiled(row, records.resources))
    if (s.arch, s.itemsize) == (TIMED_ARCH, TIMED_BYTES):
        for at, entry in _timed(s, records).items():
            known = found.get(at)
            found[at] = entry if entry.compiler or known is None else known._replace(ms=entry.ms)
    return found


def _configuration(row: Row) -> Configuration:
    return Configuration(*(row[name] for name in Configuration._fields))


def _resource_rows(s: KernelState, record: Record) -> Iterator[Row]:
    """Yield the compiled rows of a state: shipped configurations first, then others. The draft has none."""
    wanted = s.arch, s.d, s.itemsize, s.kernel, s.causal, "band", 1
    for row in (*record.get("shipped", ()), *record.get("forward_by_tile", ())):
        here = row["arch"], row["d"], row["bytes"], row["kernel"], row["causal"]
        if (*here, row.get("pairs", "band"), row.get("group", 1)) == wanted:
            yield row


def _compiled(row: Row, record: Record) -> Entry:
    report = None if "error" in row else Resources.of(row)
    loop = report and report.hot_loop
    spills = loop.spills if loop else (report.spill_bytes if report else 0)
    return Entry(_configuration(row), report, spills, f"Triton {record['versions']['triton']}")


def table_name(s: KernelState) -> str:
    """Return the name of a state's table of timed tiles, such as "forward, d = 64, causal"."""
    return f"{s.kernel}, d = {s.d}{', causal' * s.causal}"


def _timed(s: KernelState, records: Records) -> dict[Configuration, Entry]:
    """Return the timed configurations of a state on the timed chip, with what their compiler reported."""
    found = dict[Configuration, Entry]()
    for row in records.timed.get(table_name(s), ()):
        facts = {name: row[name] for name in ("registers", "shared_bytes", "warps")}
        none = dict.fromkeys(("spill_bytes", "tensor_core", "async_copies", "bulk_reductions"), 0)
        report = Resources.of({"arch": TIMED_ARCH} | facts | none)
        at = _configuration(row)
        found[at] = Entry(at, report, row["spills"], "Triton 3.6.0", row["ms"])
    for one in records.tune.get("kernels", ()):
        if (one["kernel"], one["d"]) == (s.kernel, s.d):
            for tried in one["tried"]:
                at = Configuration(*tried["tile"])
                if why := tried.get("failed"):
                    needed = re.search(r"shared memory, Required: (\d+)", why)
                    found[at] = Entry(at, None, 0, "Triton 3.6.0", None, int(needed[1]) if needed else None)
                elif at not in found:
                    found[at] = Entry(at, None, 0, "", tried["ms"][s.causal])
    return found


def fastest(found: Mapping[Configuration, Entry]) -> Entry | None:
    """Return the entry with the shortest time, or None if no time is recorded."""
    timed = [one for one in found.values() if one.ms is not None]
    return min(timed, key=lambda one: one.ms or 0.0, default=None)


def shipped(s: KernelState) -> Configuration:
    """Return the recorded configuration of a state's kernel for its chip, d, mask and type.

    `dispatch` returns whether this kernel is launched.
    """
    return Configuration(*recorded(s.compiled_as, _case(s)).value)


class Dispatch(NamedTuple):
    """The launch of `attention` in the pass of a kernel: the value of the choice, its kernels, and if this
    kernel is one of them. option: the argument with which this kernel is launched, "" if it needs none or
    there is none.
    """

    value: str
    kernels: tuple[str, ...]
    launched: bool
    option: str = ""


def dispatch(s: KernelState) -> Dispatch:
    """Return what `attention` launches for a state's pass, chip, d, mask and type."""
    forward, backward, fixed_order, one_kernel = PASSES
    case, name = _case(s), forward if s.compiled_as == "forward" else backward
    value = str(recorded(name, case).value)
    kernels = KERNELS_OF[name][value]
    if s.kernel in kernels or name == forward:
        return Dispatch(value, kernels, s.kernel in kernels)
    for asked, option in ((fixed_order, "deterministic=True"), (one_kernel, "deterministic=False")):
        if s.kernel in KERNELS_OF[backward][recorded(asked, case).value]:
            return Dispatch(value, kernels, False, option)
    return Dispatch(value, kernels, False)


def _case(s: KernelState) -> Case:
    """Return the case of a state, with as many heads as the timed problem has in all."""
    mask, heads = "causal" if s.causal else "full", max(1, TIMED_ROWS * TIMED_COLUMNS // (s.d * s.N))
    matrices = 2 * s.N * s.N * s.itemsize
    return Case(s.arch, s.itemsize, loaded_width(s.d), mask, 1, heads * s.N, heads, matrices)


# ---------------------------------------------------------------------- programs per SM
class Quotient(NamedTuple):
    """The programs that one limit allows: capacity // need, both in `unit`. None: unknown."""

    limit: str
    programs: int | None
    capacity: float = 0
    need: float = 0
    unit: str = ""


def quotients(s: KernelState, entry: Entry | None) -> list[Quotient]:
    """Return the programs per SM that registers, shared memory, warps and blocks allow, in this order."""
    chip, report = s.chip, entry and entry.resources
    known = [
        Quotient("warps", chip.warps // s.warps, chip.warps, s.warps, "warps"),
        Quotient("blocks", chip.blocks, chip.blocks, 1, "blocks"),
    ]
    bytes_used = report.shared_bytes if report else entry and entry.required
    shared = Quotient("shared memory", None)
    if bytes_used is not None:
        whole, need = chip.shared_bytes_per_sm, bytes_used + chip.reserved_bytes
        programs = report.program_limits["shared memory"] if report else whole // need
        shared = Quotient("shared memory", programs, whole / 1024, need / 1024, "KB")
    if not report:
        return [Quotient("registers", None), shared, *known]
    of_registers = replace(report, warps=1).program_limits["registers"]  # warps
    registers = Quotient("registers", report.program_limits["registers"], of_registers, s.warps, "warps")
    return [registers, shared, *known]


class Occupancy(NamedTuple):
    """Programs per SM, the limits that allow no more, and the warps and warpgroups of these programs."""

    programs: int
    limits: tuple[str, ...]
    warps: int

    @property
    def warpgroups(self) -> float:
        """Groups of four warps."""
        return self.warps / WARPGROUP


def occupancy(s: KernelState, entry: Entry | None) -> Occupancy | None:
    """Return the occupancy of one SM, or None if registers or shared memory are not recorded.

    A configuration that was refused because of its shared memory has no programs.
    """
    found = {one.limit: one.programs for one in quotients(s, entry)}
    known = [programs for programs in found.values() if programs is not None]
    least = min(known)
    if len(known) < len(found) and least:
        return None
    return Occupancy(least, tuple(name for name, one in found.items() if one == least), least * s.warps)


# ---------------------------------------------------------------------- FLOP, bytes and roofs
def launch_words(s: KernelState) -> Ledger:
    """Return the traffic of the launch for one head (the fused backward pass with its row products)."""
    problem = KernelProblem(s.N, s.N, s.d, high=0 if s.causal else None)
    if s.kernel == "fused":
        return attention_fused_backward(problem, BM=s.BM, BN=s.BN)
    return kernel_words(s.compiled_as, problem, BM=s.BM, BN=s.BN)


def launch_flop(s: KernelState) -> float:
    """Return the FLOP of the kernel's matrix products for one head; half of them if causal."""
    return 2.0 * PRODUCTS[s.kernel] * s.d * s.N * s.N * (0.5 if s.causal else 1.0)


@lru_cache(maxsize=512)
def launch_bytes(s: KernelState) -> dict[str, int]:
    """Return the bytes of the launch for one head, by level: the closed form, and each array once."""
    once = s._replace(BM=s.N, BN=s.N)
    return {level: ledger_bytes(launch_words(one), s.itemsize) for level, one in ((SM, s), (DRAM, once))}


def intensities(s: KernelState) -> dict[str, float]:
    """Return FLOP per byte of the launch by level."""
    return {level: arithmetic_intensity(launch_flop(s), moved) for level, moved in launch_bytes(s).items()}


def timed_heads(d: int) -> int:
    """Return batches times heads of the timed problem."""
    return TIMED_ROWS * TIMED_COLUMNS // (d * TIMED_N)


def achieved_tflops(s: KernelState, entry: Entry | None) -> float | None:
    """Return the TFLOP/s of the recorded time. None without one, for another N, and for one half of the
    two-pass backward pass, whose time includes the other half.
    """
    if entry is None or entry.ms is None or s.N != TIMED_N or s.kernel in HALVES:
        return None
    return launch_flop(s) * timed_heads(s.d) / entry.ms / 1e9


def ceilings(s: KernelState) -> dict[str, float]:
    """Return the roofs of the SMs in TFLOP/s: products, and for sm_90 in 16 bits also the exponentials and
    shared memory. Empty if the rate of the products is not recorded (`unknown_products` returns why).

    Per clock an SM computes 4,096 FLOP of products and 16 exponentials, and moves 128 bytes to or from shared
    memory (CUDA guide; FlashAttention-3, arXiv 2407.08608). The clock is that of the data sheet's peak rate.
    A tile has `padded(d)` columns; the products of the others are not counted as FLOP. Shared memory is not
    counted for the fused kernel, nor for fewer than 64 rows per warpgroup.
    """
    # <!-- 4,096, 16 = gpu.timed_tiles.TENSOR_FLOP, gpu.timed_tiles.EXPONENTIALS -->
    # <!-- 128 = gpu.timed_tiles.SHARED_BYTES -->
    # <!-- 64 = gpu.timed_tiles.ROWS -->
    if unknown_products(s):
        return {}
    peak = s.chip.tensor_tflops
    found = {"products": peak * s.d / padded(s.d)}
    if (s.arch, s.itemsize) == (TIMED_ARCH, TIMED_BYTES):
        a_score = 2 * PRODUCTS[s.kernel] * s.d
        found["exponentials"] = peak * EXPONENTIALS * a_score / TENSOR_FLOP
        if moved := shared_traffic(s):
            found["shared memory"] = peak * SHARED_BYTES * a_score * s.BM * s.BN / moved / TENSOR_FLOP
    return found


def unknown_products(s: KernelState) -> str:
    """Return why the products have no roof, or "": only the tensor cores' rate in 16 bits is recorded."""
    if not s.chip.tensor_cores_in_triton:
        return f"Triton does not use the tensor cores of the {s.chip.name}"
    return "products of 32 bits do not use the tensor cores" if s.itemsize == 4 else ""


def shared_traffic(s: KernelState) -> float:
    """Return the bytes to and from shared memory in one iteration of the inner loop; 0 if not counted.

    A product of 64 rows reads its 64 rows once, unless they are in registers, and its other factor
    completely; the loads of the streamed tiles write them. Equation (11.7) of lesson 11 for "forward".
    """
    # <!-- 64 = gpu.timed_tiles.ROWS -->
    resident, streamed = (s.BN, s.BM) if s.kernel == "keys" else (s.BM, s.BN)
    if s.kernel == "fused" or resident < ROWS * max(1, s.warps // WARPGROUP) or s.warps < WARPGROUP:
        return 0
    per_row = s.itemsize * padded(s.d)
    scores = per_row * streamed * resident / ROWS
    # Products that read their rows from shared memory; the others have them in registers.
    shared_rows = {"forward": 1, DRAFT: 1, "queries": 2, "keys": 2}[s.kernel]
    return shared_rows * resident * per_row + PRODUCTS[s.kernel] * scores + 2 * streamed * per_row


class Limit(NamedTuple):
    """The lowest roof of a state: its names (two if equal) and TFLOP/s."""

    names: tuple[str, ...]
    tflops: float


def lowest_roof(s: KernelState) -> Limit | None:
    """Return the lowest of the roofs of the SM and of DRAM, each word of an array loaded once.

    None if the rate of the products is not recorded, because they may be the lowest.
    """
    if not ceilings(s):
        return None
    found = ceilings(s) | {DRAM: intensities(s)[DRAM] * s.chip.gbytes_per_s / 1000}
    least = min(found.values())
    return Limit(tuple(name for name, rate in found.items() if rate <= least * (1 + 1e-9)), least)


# ---------------------------------------------------------------------- recorded launches
class Launch(NamedTuple):
    """A recorded launch: FLOP and bytes by level, and TFLOP/s if the same kernel and tile was timed.

    `counted` is False if the bytes are those of the closed form.
    """

    name: str
    flop: float
    bytes: Mapping[str, float]
    tflops: float | None
    tile: str
    counted: bool = True

    def intensity(self, level: str) -> float:
        """FLOP per byte at a level."""
        return arithmetic_intensity(self.flop, self.bytes[level])

    def height(self, chip: Chip) -> float:
        """Return the recorded TFLOP/s. Without a time: what DRAM allows if it is the limit, otherwise 0."""
        by_dram = attainable_tflops(self.intensity(DRAM), chip) if DRAM in self.bytes else chip.tensor_tflops
        return self.tflops or (by_dram if by_dram < chip.tensor_tflops else 0.0)


_NAMES = {"fused-backward": "fused backward", "small-cache-fused": "slices of d"}


def launches(records: Records) -> list[Launch]:
    """Return the launches of the record "profile" with their counted bytes, and the two-pass backward pass of
    the fused one's size, whose bytes are the closed form.

    A time is that of the record "tune": the same kernel, tile, N, d and mask, with more heads.
    """
    found = [_profiled(run, records) for run in records.profile.get("runs", ())]
    return found + [one for one in (_two_pass(64, 8, records),) if one]


def _profiled(run: Row, records: Records) -> Launch:
    asked, counted = run["question"], run["bytes"]
    N, d, B, H = (asked[name] for name in ("N", "d", "batch", "heads"))
    what = asked["what"]
    (kernel, tile), *_ = run["tiles"].items()
    flop = flops("backward" if "backward" in what else "forward", B=B, H=H, N=N, d=d, causal=asked["causal"])
    flop /= N if what == "decode" else 1
    moved = {
        SM: run["counters"][SM_READ] + counted["closed_form"]["added"] + counted["closed_form"]["written"],
        L2: counted["l2"]["total"],
        DRAM: counted["dram"]["total"],
    }
    tflops = None
    if N == TIMED_N and kernel in WHOLE:
        s = KernelState(TIMED_ARCH, d, kernel, 64, 64, 4, 2, N, asked["causal"]).at(Configuration(*tile))
        tflops = achieved_tflops(s, _timed(s, records).get(s.configuration))
    name = f"{_NAMES.get(what, what)}, d = {d}{', causal' * asked['causal']}"
    return Launch(name, flop, moved, tflops, " × ".join(map(str, tile)))


def _two_pass(d: int, heads: int, records: Records) -> Launch | None:
    """Return the two-pass backward pass of N = 4,096 without a mask, with the tiles that its run chose."""
    # <!-- 4,096 = course.explore.models.kernel_explorer.TIMED_N -->
    runs = {one["kernel"]: one for one in records.tune.get("kernels", ()) if one["d"] == d}
    if not set(HALVES) <= set(runs):
        return None
    tiles = {kernel: runs[kernel]["chosen"][0] for kernel in HALVES}
    both = [one["ms"][0] for one in runs["keys"]["tried"] if one["tile"] == tiles["keys"]]
    problem = KernelProblem(TIMED_N, TIMED_N, d, B=1, H=heads, H_kv=heads)
    words = attention_split_backward(problem, queries=tiles["queries"][:2], keys=tiles["keys"][:2])
    forward = KernelState(TIMED_ARCH, d, "forward", 64, 64, 4, 3)
    flop = TIMES_FORWARD["backward"] * launch_flop(forward) * heads
    tflops = flop / heads * timed_heads(d) / both[0] / 1e9
    label = ", ".join(" × ".join(map(str, tile)) for tile in tiles.values())
    return Launch(
        f"two-pass backward, d = {d}", flop, {SM: ledger_bytes(words, TIMED_BYTES)}, tflops, label, False
    )


class Fastest(NamedTuple):
    """The largest recorded traffic from L2 to the SMs: GB/s, and the table and configuration of its tile."""

    gbytes_per_s: float
    table: str
    at: Configuration


@lru_cache(maxsize=1)
def _shipped_fastest() -> Fastest | None:
    return _fastest_traffic(shipped_records())


def fastest_traffic(records: Records) -> Fastest | None:
    """Return the largest closed form per second of all timed tiles of complete passes, or None.

    These bytes reach the SMs. No data sheet states how many are possible, so this traffic is a lower limit.
    """
    return _shipped_fastest() if records is shipped_records() else _fastest_traffic(records)


def _fastest_traffic(records: Records) -> Fastest | None:
    found = list[Fastest]()
    for table, rows in records.timed.items():
        for row in rows:
            if row["kernel"] not in HALVES and "ms" in row:
                at = _configuration(row)
                s = KernelState(TIMED_ARCH, row["d"], row["kernel"], *at, causal=row["causal"])
                moved = launch_bytes(s)[SM] * timed_heads(s.d)
                found.append(Fastest(moved / row["ms"] / 1e6, table, at))
    return max(found, default=None)
