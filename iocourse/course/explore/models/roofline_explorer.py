"""Data for the roofline explorer: FLOPs and bytes of four attention passes, and measured rates.

Bytes are counted in two ways: compulsory bytes (each array once), and the loads and stores of the kernels by
their closed form. The real memory traffic is in between, depending on the caches. Measured rates come
from recorded runs with the same chip, head size, length and mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ....console import with_unit
from ....costs.closed_form import ceil_div
from ....costs.kernels import (
    KernelProblem,
    attention_decode,
    attention_forward,
    attention_fused_backward,
    ledger_bytes,
)
from ....data.records import NONE_YET, load_record, record_source
from ....gpu import Chip, chip_of
from ....gpu.roofline import TIMES_FORWARD, arithmetic_intensity, compulsory_bytes, ridge_point
from ....ledger import Ledger
from ....sizes import positive_int
from .kernel_tuner import START, KernelTunerState, record_of, record_rows, start_tile

PASSES = ("forward", "backward", "decode", "block-sparse")
PARTS, PART = 64, 128  # split-KV of the decode step: most parts, and keys per part at least
ITEMSIZE = 2  # the peak rate is that of 16-bit tensor-core products
HEADS_A_TILE = 64  # query heads that share the loads of K and V in the decode step
Record = Mapping[str, Any]
Row = Mapping[str, Any]
NAMES = ("resources", "attention", "sparse", "decode")  # tile sizes; then the records measured on a GPU
OURS = ("fused", "split-KV")  # names of our kernels in the records: attention and masks; decode
TYPES = ("bfloat16", "float16")
NEAR = 0.03  # largest difference between the density of a recorded mask and the requested one
UNMASKED = "no mask"  # rows of the kernel without a mask


class RooflineState(NamedTuple):
    """Values of all controls: N queries and keys, head size d, H query heads, H_kv key heads, B batches.

    `density` is the share of the tiles that a block mask keeps.
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
        """Return this state. Raises ValueError or TypeError that names the invalid field."""
        chip_of(self.arch)
        for name in ("N", "d", "H", "H_kv", "B"):
            positive_int(name, getattr(self, name))
        if self.H % self.H_kv:
            raise ValueError(f"H_kv must be a divisor of H = {self.H}, got {self.H_kv}")
        if not 0 < self.density <= 1:
            raise ValueError(f"density must be larger than 0 and at most 1, got {self.density!r}")
        return self

    @property
    def chip(self) -> Chip:
        """The chip of the roofline."""
        return chip_of(self.arch)

    def problem(self, Nq: int | None = None, *, causal: bool = False) -> KernelProblem:
        """Return the kernel problem with Nq queries per head (default N) and N keys."""
        Nq = self.N if Nq is None else Nq
        return KernelProblem(Nq, self.N, self.d, None, 0 if causal else None, self.B, self.H, self.H_kv)


class Point(NamedTuple):
    """One pass: FLOPs, compulsory bytes, bytes of the closed form (`ledger`), and the tile as text."""

    name: str
    flop: float
    compulsory: int
    ledger: int
    tile: str

    @property
    def intensity(self) -> float:
        """FLOPs per compulsory byte."""
        return arithmetic_intensity(self.flop, self.compulsory)

    @property
    def ledger_intensity(self) -> float:
        """FLOPs per byte of the closed form, as without any caches."""
        return arithmetic_intensity(self.flop, self.ledger)

    def limit(self, chip: Chip) -> str:
        """Return what limits the pass: "memory" below the ridge point, otherwise "products"."""
        return "memory" if self.intensity < ridge_point(chip) else "products"

    def microseconds(self, chip: Chip) -> float:
        """Return the time at the roof, a lower bound for every kernel that moves the compulsory bytes."""
        by_products = self.flop / (1e6 * chip.tensor_tflops)
        return max(by_products, self.compulsory / (1e3 * chip.gbytes_per_s))


def points(s: RooflineState, record: Mapping[str, Any] | None = None) -> list[Point]:
    """Return the four passes with the tiles that `record` (of `tools.bench resources`) lists as shipped."""
    forward = _whole(s, record, "forward", "forward", attention_forward)
    backward = _whole(s, record, "backward", "fused", attention_fused_backward)
    return [forward, backward, _decode(s), _sparse(s, record)]


def flop(s: RooflineState, pairs: int) -> float:
    """Return the FLOPs of the two forward products for `pairs` query-key pairs per head."""
    return 4.0 * s.B * s.H * s.d * pairs


def pairs(s: RooflineState) -> int:
    """Return the number of visible query-key pairs per head."""
    return s.N * (s.N + 1) // 2 if s.causal else s.N * s.N


def tile(s: RooflineState, kernel: str, record: Mapping[str, Any] | None) -> tuple[int, int]:
    """Return the shipped (BM, BN) of a kernel for this d, or (64, 64) if it is not recorded."""
    width = max(64, 1 << (s.d - 1).bit_length())
    plain = KernelTunerState(s.arch, width, ITEMSIZE, kernel, START, START)
    placed = start_tile(plain, record_rows(record_of(record)))
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
    """Return the point of a pass over all queries, with the shipped tile of its kernel."""
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
    """Return the key tiles that each query tile attends to: the density, rounded to tiles, at least 1."""
    return max(1, round(s.density * ceil_div(s.N, BN)))


def _sparse(s: RooflineState, record: Mapping[str, Any] | None) -> Point:
    BM, BN = tile(s, "forward", record)
    rows, kept = ceil_div(s.N, BM), tiles_kept(s, BN)
    seen = min(s.N, kept * BN)  # visible keys per query if the mask keeps full tiles first
    programs, loaded = s.B * s.H * rows, s.B * s.H * rows * seen * s.d
    queries = s.problem().queries
    ledger = Ledger(
        reads={
            "Q": queries * s.d, "K": loaded, "V": loaded,
            "order": programs, "spans": 3 * programs, "entries": kept * programs,
        },
        writes={"O": queries * s.d, "LSE": queries},
    )  # fmt: skip
    reached = min(s.N, rows * seen)  # keys visible to at least one query tile
    least = compulsory_bytes(
        "forward", KernelProblem(s.N, reached, s.d, None, None, s.B, s.H, s.H_kv), ITEMSIZE
    )
    name = f"{BM} × {BN}, {kept} of {ceil_div(s.N, BN)}"
    return _point(s, "block-sparse", flop(s, s.N * seen), least, ledger, name)


# ---------------------------------------------------------------------- recorded rates
class RecordedRate(NamedTuple):
    """A recorded rate of our kernels: pass, FLOPs per compulsory byte, TFLOP/s, and the sizes of the run."""

    name: str
    intensity: float
    tflops: float
    sizes: str


@lru_cache(maxsize=1)
def _shipped_records() -> dict[str, Record]:
    return {name: load_record(name) or {} for name in NAMES}


def records_of(given: Mapping[str, Record | None] | None) -> dict[str, Record]:
    """Return the records by name, {} for a missing one; None selects the shipped records."""
    if given is None:
        return _shipped_records()
    return {name: given.get(name) or {} for name in NAMES}


def recorded_rates(s: RooflineState, records: Mapping[str, Record]) -> list[RecordedRate]:
    """Return the recorded rates for these sizes on this chip, at most one per pass.

    Batches and heads may differ from `s`, because a rate hardly depends on them. For decode they must agree.
    """
    on_chip = {name: record for name, record in records.items() if _arch(record) == s.arch}
    found: dict[str, RecordedRate] = {}
    for name, row in _recorded_rows(s, on_chip):
        found.setdefault(name, _measured(s, name, row))
    return [found[name] for name in PASSES if name in found]


def remark(s: RooflineState, records: Mapping[str, Record]) -> str:
    """Return a sentence on the source of the measured rates, or on their absence."""
    runs = [record for name, record in records.items() if name != "resources" and record]
    if not runs:
        return f"Measured: {NONE_YET}."
    if not recorded_rates(s, records):
        return f"Measured: nothing recorded for N = {s.N:,}, d = {s.d:,} and these masks on {s.chip.name}."
    here = dict.fromkeys(record_source(dict(record)) for record in runs if _arch(record) == s.arch)
    return f"Measured (◆): {'; '.join(here)}."


def _arch(record: Record) -> int | None:
    return (record.get("device") or {}).get("arch")


def _ours(record: Record, s: RooflineState, key: str = "rows") -> Iterator[Row]:
    """Yield the rows of `record[key]` that time our 16-bit kernels for the N and d of the state."""
    for row in record.get(key, ()):
        same = (row["N"], row["d"]) == (s.N, s.d) and row["dtype"] in TYPES
        if row["contender"] in OURS and "ms" in row and same:
            yield row


def _recorded_rows(s: RooflineState, records: Mapping[str, Record]) -> Iterator[tuple[str, Row]]:
    """Yield the matching rows, each with the name of its pass."""
    for row in _ours(records.get("attention", {}), s):
        if row["causal"] == s.causal and row["pass"] in PASSES:
            yield row["pass"], row
    for row in _ours(records.get("decode", {}), s):
        if (row["B"], row["H"], row["H_kv"]) == (s.B, s.H, s.H_kv):
            yield "decode", row
    for row in _masked(s, records.get("sparse", {})):
        yield "block-sparse", row


def _masked(s: RooflineState, record: Record) -> list[Row]:
    """Return the rows of forward passes with a mask of nearly this density, the nearest first."""
    rows = [*_ours(record, s, "density_rows"), *_ours(record, s)]
    masked = [row for row in rows if row["pass"] == "forward" and row["mask"] != UNMASKED]
    near = [row for row in masked if abs(row["density"] - s.density) <= NEAR]
    return sorted(near, key=lambda row: abs(float(row["density"]) - s.density))


def _measured(s: RooflineState, name: str, row: Row) -> RecordedRate:
    """Return the rate of a row at the arithmetic intensity of the batches and heads of that run."""
    H = row["H"]
    own = s._replace(B=row["B"], H=H, H_kv=row.get("H_kv", H))
    point: Point = next(one for one in points(own) if one.name == name)
    tflops = row["tflops"] if "tflops" in row else point.flop / row["ms"] / 1e9
    density = f", {row['mask']}, density {row['density']:.3f}" if name == "block-sparse" else ""
    return RecordedRate(name, point.intensity, tflops, f"B = {own.B}, H = {H}, H_kv = {own.H_kv}{density}")
