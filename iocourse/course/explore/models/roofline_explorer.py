"""Data for the roofline explorer: FLOPs and bytes of four attention passes, and measured rates.

Bytes are counted in two ways: compulsory bytes (each array once), and the loads and stores of the kernels by
their closed form, with the kernels and tiles that `attention` and `decode` choose. The real memory traffic is
in between, depending on the caches. Measured rates come from recorded runs with the same chip, head size,
length and mask.
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
    attention_split_backward,
    ledger_bytes,
    scores_backward,
    scores_forward,
    sliced_backward,
    sliced_forward,
)
from ....data.records import NONE_YET, load_record, record_source
from ....gpu import Chip, chip_of
from ....gpu.choices import KERNELS_OF, Case, loaded_width, recorded
from ....gpu.roofline import TIMES_FORWARD, arithmetic_intensity, compulsory_bytes, ridge_point
from ....ledger import Ledger
from ....sizes import positive_int

PASSES = ("forward", "backward", "decode", "block-sparse")
PARTS, PART = 64, 128  # split-KV of the decode step: most parts, and keys per part at least
ITEMSIZE = 2  # the peak rate is that of 16-bit tensor-core products
HEADS_A_TILE = 64  # query heads that share the loads of K and V in the decode step
Record = Mapping[str, Any]
Row = Mapping[str, Any]
NAMES = ("attention", "sparse", "decode")  # records measured on a GPU
# Names of our kernels in the records: forward and masks; decode, by the choice of its step.
FORWARD_KERNEL = "fused"
MERGE = {"second launch": "a second launch", "last program": "the last program"}
DECODE = {"second launch": "split-KV", "last program": "last program merges"}
LARGEST_HEAD = 512  # of kernels that read block masks
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
        if self.d > LARGEST_HEAD:
            raise ValueError(f"d must be at most {LARGEST_HEAD}, got {self.d}")
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
    """One pass: FLOPs, compulsory bytes, bytes of the closed form (`ledger`), the tiles as text, and the
    kernels that are chosen.
    """

    name: str
    flop: float
    compulsory: int
    ledger: int
    tile: str
    kernels: str

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


def points(s: RooflineState) -> list[Point]:
    """Return the four passes with the kernels and tiles that are chosen for these sizes."""
    return [_whole(s, "forward"), _whole(s, "backward"), _decode(s), _sparse(s)]


def flop(s: RooflineState, pairs: int) -> float:
    """Return the FLOPs of the two forward products for `pairs` query-key pairs per head."""
    return 4.0 * s.B * s.H * s.d * pairs


def pairs(s: RooflineState) -> int:
    """Return the number of visible query-key pairs per head."""
    return s.N * (s.N + 1) // 2 if s.causal else s.N * s.N


def chosen(s: RooflineState, name: str, mask: str | None = None, Nq: int | None = None) -> Any:
    """Return the value of a choice for these sizes, by default with the mask of the state and N queries."""
    Nq, group, width = s.N if Nq is None else Nq, s.H // s.H_kv, loaded_width(s.d)
    mask = mask or ("causal" if s.causal else "full")
    sizes = s.B * s.H * Nq, s.B * s.H_kv, 2 * group * Nq * s.N * ITEMSIZE
    return recorded(name, Case(s.arch, ITEMSIZE, width, mask, group, *sizes)).value


# Closed form of a pass, by the value of its choice, from the tiles of its kernels.
FORMS: dict[tuple[str, str], Callable[..., Ledger]] = {
    ("forward", "complete rows"): lambda p, a: attention_forward(p, BM=a[0], BN=a[1]),
    ("forward", "slices"): lambda p, a: sliced_forward(p, BM=a[0], BN=a[1]),
    ("forward", "materialised"): lambda p, a, b: scores_forward(p, scores=a[:2], averages=b),
    ("backward", "fused"): lambda p, a: attention_fused_backward(p, BM=a[0], BN=a[1]),
    ("backward", "two-pass"): lambda p, a, b: attention_split_backward(p, queries=a, keys=b),
    ("backward", "slices"): lambda p, a, b: sliced_backward(p, queries=a[:2], keys=b[:2]),
    ("backward", "materialised"): lambda p, a, b, c: scores_backward(
        p, weights=a[:2], query_gradients=b, key_gradients=c
    ),
}


def tiles(s: RooflineState, name: str) -> dict[str, tuple[int, ...]]:
    """Return the tile of each kernel that a pass launches, (BM, BN) or (BM, BN, BD)."""
    choice = f"{name} pass"
    kernels = KERNELS_OF[choice][chosen(s, choice)]
    return {kernel: tuple(chosen(s, kernel)[:-2]) for kernel in kernels}


def _whole(s: RooflineState, name: str) -> Point:
    """Return the point of a pass over all queries."""
    way, found = chosen(s, f"{name} pass"), list(tiles(s, name).values())
    problem, count = s.problem(causal=s.causal), TIMES_FORWARD[name] * flop(s, pairs(s))
    moved = ledger_bytes(FORMS[name, way](problem, *found), ITEMSIZE)
    sides = [f"{BM} × {BN}" for BM, BN, *_ in found]
    label = ", ".join(sides[:2]) + " …" * (len(sides) > 2)
    return Point(name, count, compulsory_bytes(name, problem, ITEMSIZE), moved, label, way)


def _decode(s: RooflineState) -> Point:
    problem, parts = s.problem(1), min(PARTS, ceil_div(s.N, PART))
    least, step = compulsory_bytes("forward", problem, ITEMSIZE), chosen(s, "decode step", "full", 1)
    shared = ceil_div(s.H // s.H_kv, HEADS_A_TILE)
    ledger = attention_decode(problem, parts=parts, tiles=shared, last_merges=step == "last program")
    moved = ledger_bytes(ledger, ITEMSIZE)
    return Point("decode", flop(s, s.N), least, moved, with_unit(parts, "part"), f"merged by {MERGE[step]}")


def tiles_kept(s: RooflineState, BN: int) -> int:
    """Return the key tiles that each query tile attends to: the density, rounded to tiles, at least 1."""
    return max(1, round(s.density * ceil_div(s.N, BN)))


def _sparse(s: RooflineState) -> Point:
    BM, BN, *_ = chosen(s, "forward", "blocks")
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
    moved = ledger_bytes(ledger, ITEMSIZE)
    return Point("block-sparse", flop(s, s.N * seen), least, moved, name, chosen(s, "forward pass", "blocks"))


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
    runs = [record for record in records.values() if record]
    if not runs:
        return f"Measured: {NONE_YET}."
    if not recorded_rates(s, records):
        return f"Measured: nothing recorded for N = {s.N:,}, d = {s.d:,} and these masks on {s.chip.name}."
    here = dict.fromkeys(record_source(dict(record)) for record in runs if _arch(record) == s.arch)
    return f"Measured (◆): {'; '.join(here)}."


def _arch(record: Record) -> int | None:
    return (record.get("device") or {}).get("arch")


def kernels_remark(s: RooflineState) -> str:
    """Return a sentence on the kernels that are chosen for each pass."""
    return f"Kernels: {'; '.join(f'{one.name} {one.kernels}' for one in points(s))}."


def _ours(record: Record, s: RooflineState, contender: str, key: str = "rows") -> Iterator[Row]:
    """Yield the rows of `record[key]` that time our kernel `contender` in 16 bits for the N and d of `s`."""
    for row in record.get(key, ()):
        same = (row["N"], row["d"]) == (s.N, s.d) and row["dtype"] in TYPES
        if row["contender"] == contender and "ms" in row and same:
            yield row


def _recorded_rows(s: RooflineState, records: Mapping[str, Record]) -> Iterator[tuple[str, Row]]:
    """Yield the matching rows of the chosen kernels, each with the name of its pass."""
    ours = {"forward": FORWARD_KERNEL, "backward": chosen(s, "backward pass")}
    for name, contender in ours.items():
        for row in _ours(records.get("attention", {}), s, contender):
            if row["causal"] == s.causal and row["pass"] == name:
                yield name, row
    for row in _ours(records.get("decode", {}), s, DECODE[chosen(s, "decode step", "full", 1)]):
        if (row["B"], row["H"], row["H_kv"]) == (s.B, s.H, s.H_kv):
            yield "decode", row
    for row in _masked(s, records.get("sparse", {})):
        yield "block-sparse", row


def _masked(s: RooflineState, record: Record) -> list[Row]:
    """Return the rows of forward passes with a mask of nearly this density, the nearest first."""
    rows = [*_ours(record, s, FORWARD_KERNEL, "density_rows"), *_ours(record, s, FORWARD_KERNEL)]
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
