"""Where attention stands under a roofline: FLOP and bytes of each pass for one state of the sizes.

Bytes twice: those nobody can avoid, each array once, and those the kernels load and store by their closed
form. Memory sees something in between: what its caches do not serve. Beside them the rates of recorded runs
that belong there: same chip, head size, length and mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ...console import with_unit
from ...costs.closed_form import ceil_div
from ...costs.kernels import (
    KernelProblem,
    attention_decode,
    attention_forward,
    attention_fused_backward,
    ledger_bytes,
)
from ...data.records import NONE_YET, load_record, record_source
from ...gpu import Chip, chip_of
from ...gpu.roofline import TIMES_FORWARD, arithmetic_intensity, compulsory_bytes, ridge_point
from ...ledger import Ledger
from ...sizes import positive_int
from .kernel_tuner import START, KernelTunerState, record_of, rows_of, start_tile

PASSES = ("forward", "backward", "decode", "block-sparse")
PARTS, PART = 64, 128  # of the decode step: so many stretches of keys, each of so many keys at least
ITEMSIZE = 2  # the roof is the tensor cores' rate for 16 bits
HEADS_A_TILE = 64  # query heads that read K and V together in the decode step
Record = Mapping[str, Any]
Row = Mapping[str, Any]
NAMES = ("resources", "attention", "sparse", "decode")  # the first for tiles, the others measured on a GPU
OURS = ("fused", "split-KV")  # contenders: of attention and masks, of decode
TYPES = ("bfloat16", "float16")
NEAR = 0.03  # how far a mask's share of the pairs may lie from the density asked for
UNMASKED = "no mask"  # rows of the kernel that knows of no mask


class RooflineState(NamedTuple):
    """The position of every control: N queries and keys, head size d, H heads of queries, H_kv of keys, B
    batches; the share of its tiles that a block mask keeps.
    """

    arch: int
    N: int
    d: int
    H: int
    H_kv: int
    B: int = 1
    causal: bool = True
    density: float = 0.25

    def checked(self) -> RooflineState:
        """This state, or the ValueError or TypeError that says which of them cannot be."""
        chip_of(self.arch)
        for name in ("N", "d", "H", "H_kv", "B"):
            positive_int(name, getattr(self, name))
        if self.H % self.H_kv:
            raise ValueError(f"H_kv is {self.H_kv}; allowed: a divisor of H = {self.H}")
        if not 0 < self.density <= 1:
            raise ValueError(f"density is {self.density!r}; allowed: more than 0, and 1 at most")
        return self

    @property
    def chip(self) -> Chip:
        """The chip whose roof it is."""
        return chip_of(self.arch)

    def problem(self, Nq: int | None = None, *, causal: bool = False) -> KernelProblem:
        """Nq queries a head, N of them if None, against N keys."""
        Nq = self.N if Nq is None else Nq
        return KernelProblem(Nq, self.N, self.d, None, 0 if causal else None, self.B, self.H, self.H_kv)


class Point(NamedTuple):
    """One pass: its FLOP, the bytes nobody can avoid, the bytes of its closed form, and its tile in words."""

    name: str
    flop: float
    compulsory: int
    ledger: int
    tile: str

    @property
    def intensity(self) -> float:
        """FLOP a compulsory byte."""
        return arithmetic_intensity(self.flop, self.compulsory)

    @property
    def ledger_intensity(self) -> float:
        """FLOP a byte of the closed form: as if no cache served anything."""
        return arithmetic_intensity(self.flop, self.ledger)

    def limit(self, chip: Chip) -> str:
        """Which roof it meets."""
        return "memory" if self.intensity < ridge_point(chip) else "products"

    def microseconds(self, chip: Chip) -> float:
        """The time at the roof: no kernel that moves its compulsory bytes is faster."""
        by_products = self.flop / (1e6 * chip.tensor_tflops)
        return max(by_products, self.compulsory / (1e3 * chip.gbytes_per_s))


def points(s: RooflineState, record: Mapping[str, Any] | None = None) -> list[Point]:
    """The four passes; tiles are those that `record`, of `tools.bench resources`, says are shipped."""
    forward = _whole(s, record, "forward", "forward", attention_forward)
    backward = _whole(s, record, "backward", "fused", attention_fused_backward)
    return [forward, backward, _decode(s), _sparse(s, record)]


def flop(s: RooflineState, pairs: int) -> float:
    """FLOP of the two products of the forward pass over so many pairs a head."""
    return 4.0 * s.B * s.H * s.d * pairs


def pairs(s: RooflineState) -> int:
    """Pairs of a query and a key that it sees, in one head."""
    return s.N * (s.N + 1) // 2 if s.causal else s.N * s.N


def tile(s: RooflineState, kernel: str, record: Mapping[str, Any] | None) -> tuple[int, int]:
    """BM and BN that the kernel ships with for this d, or 64 × 64 where that is not recorded."""
    width = max(64, 1 << (s.d - 1).bit_length())
    plain = KernelTunerState(s.arch, width, ITEMSIZE, kernel, START, START)
    placed = start_tile(plain, rows_of(record_of(record)))
    return placed.BM, placed.BN


def _point(s: RooflineState, name: str, count: float, compulsory: int, ledger: Ledger, tile: str) -> Point:
    return Point(name, count, compulsory, ledger_bytes(ledger, ITEMSIZE), tile)


def _whole(
    s: RooflineState,
    record: Mapping[str, Any] | None,
    name: str,
    kernel: str,
    closed_form: Callable[..., Ledger],
) -> Point:
    """A pass over all queries, with the tile that its kernel ships with."""
    BM, BN = tile(s, kernel, record)
    problem, count = s.problem(causal=s.causal), TIMES_FORWARD[name] * flop(s, pairs(s))
    least = compulsory_bytes(name, problem, ITEMSIZE)
    return _point(s, name, count, least, closed_form(problem, BM=BM, BN=BN), f"{BM} × {BN}")


def _decode(s: RooflineState) -> Point:
    problem, parts = s.problem(1), min(PARTS, ceil_div(s.N, PART))
    least = compulsory_bytes("forward", problem, ITEMSIZE)
    ledger = attention_decode(problem, parts=parts, tiles=ceil_div(s.H // s.H_kv, HEADS_A_TILE))
    return _point(s, "decode", flop(s, s.N), least, ledger, with_unit(parts, "part"))


def tiles_kept(s: RooflineState, BN: int) -> int:
    """Tiles of keys that each tile of queries sees: the share asked for, rounded, and 1 at least."""
    return max(1, round(s.density * ceil_div(s.N, BN)))


def _sparse(s: RooflineState, record: Mapping[str, Any] | None) -> Point:
    BM, BN = tile(s, "forward", record)
    rows, kept = ceil_div(s.N, BM), tiles_kept(s, BN)
    seen = min(s.N, kept * BN)  # keys, where the mask keeps the first tiles before a ragged last one
    programs, loaded = s.B * s.H * rows, s.B * s.H * rows * seen * s.d
    queries = s.problem().queries
    ledger = Ledger(
        reads={
            "Q": queries * s.d, "K": loaded, "V": loaded,
            "order": programs, "spans": 3 * programs, "entries": kept * programs,
        },
        writes={"O": queries * s.d, "LSE": queries},
    )  # fmt: skip
    reached = min(s.N, rows * seen)  # keys that some tile of queries sees: all, unless there are few rows
    least = compulsory_bytes(
        "forward", KernelProblem(s.N, reached, s.d, None, None, s.B, s.H, s.H_kv), ITEMSIZE
    )
    name = f"{BM} × {BN}, {kept} of {ceil_div(s.N, BN)}"
    return _point(s, "block-sparse", flop(s, s.N * seen), least, ledger, name)


# ---------------------------------------------------------------------- recorded rates
class Measured(NamedTuple):
    """A recorded rate of our kernels: the pass, FLOP a compulsory byte, TFLOP/s, and the sizes it had."""

    name: str
    intensity: float
    tflops: float
    sizes: str


@lru_cache(maxsize=1)
def _shipped_records() -> dict[str, Record]:
    return {name: load_record(name) or {} for name in NAMES}


def records_of(given: Mapping[str, Record | None] | None) -> dict[str, Record]:
    """Records by name, {} where there is none; None stands for those that are shipped."""
    if given is None:
        return _shipped_records()
    return {name: given.get(name) or {} for name in NAMES}


def measured(s: RooflineState, records: Mapping[str, Record]) -> list[Measured]:
    """What was recorded for these sizes on this chip, a pass at most once. Batches and heads are the run's
    own, because a rate hardly depends on how many heads there are; for decode they are those asked for.
    """
    on_chip = {name: record for name, record in records.items() if _arch(record) == s.arch}
    found: dict[str, Measured] = {}
    for name, row in _recorded_rows(s, on_chip):
        found.setdefault(name, _measured(s, name, row))
    return [found[name] for name in PASSES if name in found]


def remark(s: RooflineState, records: Mapping[str, Record]) -> str:
    """Where measured rates come from, or that there are none."""
    runs = [record for name, record in records.items() if name != "resources" and record]
    if not runs:
        return f"Measured: {NONE_YET}."
    if not measured(s, records):
        return f"Measured: nothing recorded for N = {s.N:,}, d = {s.d:,} and these masks on {s.chip.name}."
    here = dict.fromkeys(record_source(dict(record)) for record in runs if _arch(record) == s.arch)
    return f"Measured (◆): {'; '.join(here)}."


def _arch(record: Record) -> int | None:
    return (record.get("device") or {}).get("arch")


def _ours(record: Record, s: RooflineState, key: str = "rows") -> Iterator[Row]:
    """Rows of our kernels that were timed, of this N and d, in 16 bits."""
    for row in record.get(key, ()):
        same = (row["N"], row["d"]) == (s.N, s.d) and row["dtype"] in TYPES
        if row["contender"] in OURS and "ms" in row and same:
            yield row


def _recorded_rows(s: RooflineState, records: Mapping[str, Record]) -> Iterator[tuple[str, Row]]:
    """Rows that fit, each with the name of its pass."""
    for row in _ours(records.get("attention", {}), s):
        if row["causal"] == s.causal and row["pass"] in PASSES:
            yield row["pass"], row
    for row in _ours(records.get("decode", {}), s):
        if (row["B"], row["H"], row["H_kv"]) == (s.B, s.H, s.H_kv):
            yield "decode", row
    for row in _masked(s, records.get("sparse", {})):
        yield "block-sparse", row


def _masked(s: RooflineState, record: Record) -> list[Row]:
    """Rows of forward passes under a mask of about this density, the nearest first."""
    rows = [*_ours(record, s, "density_rows"), *_ours(record, s)]
    masked = [row for row in rows if row["pass"] == "forward" and row["mask"] != UNMASKED]
    near = [row for row in masked if abs(row["density"] - s.density) <= NEAR]
    return sorted(near, key=lambda row: abs(float(row["density"]) - s.density))


def _measured(s: RooflineState, name: str, row: Row) -> Measured:
    """The row at its own intensity: `points` of its own batches and heads."""
    H = row["H"]
    own = s._replace(B=row["B"], H=H, H_kv=row.get("H_kv", H))
    point: Point = next(one for one in points(own) if one.name == name)
    tflops = row["tflops"] if "tflops" in row else point.flop / row["ms"] / 1e9
    density = f", {row['mask']}, density {row['density']:.3f}" if name == "block-sparse" else ""
    return Measured(name, point.intensity, tflops, f"B = {own.B}, H = {H}, H_kv = {own.H_kv}{density}")
