"""Data and text for the kernel tuner: one tile size of one Triton kernel on one chip.

The peak memory of a program is counted as the emulator counts it, and the traffic is a closed form.
Registers, spills and shared memory come from the record of `python -m tools.bench resources`. Nothing is
interpolated: a tile that was not compiled is reported as "not recorded", with the nearest recorded tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from math import log2
from typing import Any, NamedTuple

from ....console import table, with_unit
from ....costs.kernels import SLICED, KernelProblem, kernel_words, ledger_bytes
from ....data.records import NONE_YET, load_record
from ....gpu import Chip, Resources, chip_of
from ....ledger import Ledger
from ....sizes import positive_int
from ..draw.text import bold, paragraph, words
from .memory_states import moved_rows

Row = Mapping[str, Any]
START, START_SLICE, START_WARPS = 64, 32, 8  # default tile if none is recorded
VERDICTS = ("fits", "spills", "too large", "refused")


class KernelTunerState(NamedTuple):
    """Values of all controls. BD is None for kernels that do not split d; N counts queries and keys."""

    arch: int
    d: int
    itemsize: int
    kernel: str
    BM: int
    BN: int
    BD: int | None = None
    warps: int = START_WARPS
    N: int = 4096
    causal: bool = True

    def checked(self) -> KernelTunerState:
        """Return this state. Raises ValueError or TypeError that names the invalid field."""
        chip_of(self.arch)
        if self.itemsize not in (2, 4):
            raise ValueError(f"itemsize must be 2 or 4 bytes, got {self.itemsize!r}")
        for name in ("d", "BM", "BN", "warps", "N"):
            positive_int(name, getattr(self, name))
        launch_words(self)  # checks kernel and BD
        for name in ("BM", "BN", "BD"):
            size = getattr(self, name)
            if size is not None and (size < 16 or size & (size - 1)):
                raise ValueError(f"{name} must be a power of two of at least 16 (for tl.dot), got {size}")
        return self

    def with_tile(self, BM: int, BN: int, BD: int | None, warps: int) -> KernelTunerState:
        """Return this state with another tile."""
        return self._replace(BM=BM, BN=BN, BD=BD, warps=warps)

    @property
    def tile(self) -> tuple[int, int, int | None, int]:
        """(BM, BN, BD, warps)."""
        return self.BM, self.BN, self.BD, self.warps

    @property
    def columns(self) -> int:
        """Columns per tile: BD if d is split, otherwise d."""
        return self.BD or self.d


def launch_words(s: KernelTunerState) -> Ledger:
    """Return the traffic of one launch for one head of N queries and N keys."""
    problem = KernelProblem(s.N, s.N, s.d, high=0 if s.causal else None)
    return kernel_words(s.kernel, problem, BM=s.BM, BN=s.BN, BD=s.BD)


@lru_cache(maxsize=1)
def _shipped_record() -> Mapping[str, Any]:
    return load_record("resources") or {}


def record_of(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return `given`, or the shipped record "resources" if it is None; {} if it is missing."""
    return _shipped_record() if given is None else given


def record_rows(record: Mapping[str, Any]) -> list[Row]:
    """Return the rows of a record with a band mask and no shared heads: shipped tiles first, then others."""
    rows = [*record.get("shipped", ()), *record.get("forward_by_tile", ())]
    return [row for row in rows if row.get("pairs", "band") == "band" and row.get("group", 1) == 1]


def of_kernel(rows: Sequence[Row], s: KernelTunerState) -> list[Row]:
    """Return the rows with the kernel, chip and element size of a state, for any tile, mask and d."""
    return [
        row for row in rows if (row["arch"], row["bytes"], row["kernel"]) == (s.arch, s.itemsize, s.kernel)
    ]


def of_size(rows: Sequence[Row], s: KernelTunerState) -> list[Row]:
    """Return the rows of `of_kernel` with the mask and d of a state; any d if the kernel splits d."""
    return [row for row in of_kernel(rows, s) if _same_size(row, s) and row["causal"] == s.causal]


def _same_size(row: Row, s: KernelTunerState) -> bool:
    return s.kernel in SLICED or row["d"] == s.d


def tile_of(row: Row) -> tuple[int, int, int | None, int]:
    """Return (BM, BN, BD, warps) of a row."""
    return row["BM"], row["BN"], row.get("BD"), row["warps"]


def rows_of_tile(rows: Sequence[Row], s: KernelTunerState) -> list[Row]:
    """Return the rows with exactly this tile, the shipped one first; they differ in the number of stages."""
    return [row for row in of_size(rows, s) if tile_of(row) == s.tile]


def nearest(rows: Sequence[Row], s: KernelTunerState) -> Row | None:
    """Return the row of the nearest recorded tile, or None.

    Distance is the number of doublings; d has the largest weight, then the tile sizes.
    """
    return min(of_kernel(rows, s), key=lambda row: _distance(row, s), default=None)


def _distance(row: Row, s: KernelTunerState) -> float:
    d = 0.0 if _same_size(row, s) else abs(log2(max(64, s.d) / row["d"]))
    sides = [(row["BM"], s.BM), (row["BN"], s.BN), (row.get("BD") or 1, s.BD or 1)]
    apart = sum(abs(log2(one / other)) for one, other in sides)
    other_mask = float(row["causal"] != s.causal)
    return 100 * d + 2 * apart + abs(log2(row["warps"] / s.warps)) + other_mask


def shipped_tile(rows: Sequence[Row], s: KernelTunerState) -> KernelTunerState | None:
    """Return the state with the shipped tile of its kernel, or None if it is not recorded."""
    found = of_size(rows, s) or [row for row in of_kernel(rows, s) if _same_size(row, s)]
    return s.with_tile(*tile_of(found[0])) if found else None


def best_tile(rows: Sequence[Row], s: KernelTunerState) -> KernelTunerState | None:
    """Return the state with the fitting recorded tile that has the least traffic, or None if none fits."""
    fitting = [s.with_tile(*tile_of(row)) for row in of_size(rows, s) if verdict(row) == "fits"]
    return min(fitting, key=lambda one: launch_words(one).total, default=None)


def start_tile(s: KernelTunerState, rows: Sequence[Row]) -> KernelTunerState:
    """Return the initial state of a kernel: its shipped tile, or `START` if none is recorded."""
    plain = s.with_tile(START, START, START_SLICE if s.kernel in SLICED else None, START_WARPS)
    return shipped_tile(rows, plain) or plain


def compiled_resources(row: Row) -> Resources | None:
    """Return the resources that the compiler reported, or None if it refused the tile."""
    return None if "error" in row else Resources.of(row)


def verdict(row: Row) -> str:
    """Return one of `VERDICTS`: "fits", or the reason why the compiled kernel does not fit its chip."""
    report = compiled_resources(row)
    if report is None:
        return "refused"
    if report.shared_bytes > chip_of(report.arch).shared_bytes:
        return "too large"
    return "fits" if report.fits else "spills"


# ---------------------------------------------------------------------- memory footprint of a program
# Always float32, independent of the type of Q, K and V.
COMPUTED = frozenset({"O", "dQ", "dK", "dV", "scores", "dP", "row statistics"})

# Shape of each tile in letters: M is BM, N is BN, D is d or the slice BD, 2 is two columns.
# A kernel with several phases has one entry per phase; the phase with the largest footprint counts.
_FORWARD = {"Q": "MD", "O": "MD", "K": "ND", "V": "ND", "scores": "MN", "row statistics": "M2"}
_QUERIES = {"Q": "MD", "dO": "MD", "dQ": "MD", "K": "ND", "V": "ND", "scores": "MN", "dP": "MN"}
_KEYS = {"K": "ND", "V": "ND", "dK": "ND", "dV": "ND", "Q": "MD", "dO": "MD", "scores": "MN", "dP": "MN"}
_NUMBERS = {"row statistics": "M2"}
_PRODUCT = {"Q": "MD", "K": "ND", "scores": "MN"} | _NUMBERS
_SECOND = {"dO": "MD", "V": "ND", "scores": "MN", "dP": "MN"} | _NUMBERS
TILES: dict[str, tuple[dict[str, str], ...]] = {
    "forward": (_FORWARD,),
    "fused": (_KEYS | _NUMBERS,),
    "queries": (_QUERIES | _NUMBERS,),
    "keys": (_KEYS | _NUMBERS,),
    "sliced_forward": (_PRODUCT, {"O": "MD", "V": "ND", "scores": "MN"} | _NUMBERS),
    "sliced_queries": (_PRODUCT, _SECOND, {"dQ": "MD", "K": "ND", "scores": "MN"} | _NUMBERS),
    "sliced_keys": (
        _PRODUCT,
        {"dV": "ND", "dO": "MD", "scores": "MN"} | _NUMBERS,
        _SECOND,
        {"dK": "ND", "Q": "MD", "scores": "MN"} | _NUMBERS,
    ),
    "scores": (_PRODUCT,),
    "averages": ({"O": "MD", "V": "ND", "scores": "MN", "row statistics": "M1"},),
    "weights": (_PRODUCT, _SECOND),
    "query_gradients": ({"dQ": "MD", "K": "ND", "dS": "MN"},),
    "key_gradients": ({"dK": "ND", "dV": "ND", "P": "MN", "dO": "MD"},),
}


class TileWords(NamedTuple):
    """The size of a tile in words and in bytes."""

    words: int
    bytes: int


def tiles_held(kernel: str, BM: int, BN: int, columns: int, itemsize: int) -> dict[str, TileWords]:
    """Return the tiles that a program holds at its peak, by name; `columns` is d, or BD if d is split."""
    sides = {"M": BM, "N": BN, "D": columns, "1": 1, "2": 2}
    moments = list[dict[str, TileWords]]()
    for tiles in TILES[kernel]:
        words = {name: sides[two[0]] * sides[two[1]] for name, two in tiles.items()}
        moments.append({n: TileWords(w, w * (4 if n in COMPUTED else itemsize)) for n, w in words.items()})
    return max(moments, key=lambda tiles: sum(tile.bytes for tile in tiles.values()))


# ---------------------------------------------------------------------- everything about one state
class TileReport(NamedTuple):
    """A state with all data that the kernel tuner shows for it."""

    state: KernelTunerState
    chip: Chip
    tiles: dict[str, TileWords]
    ledger: Ledger
    rows: list[Row]
    found: list[Row]
    versions: str

    @property
    def budget(self) -> int:
        """Bytes available to a program on one SM: shared memory plus registers."""
        return self.chip.shared_bytes + 4 * self.chip.registers

    @property
    def held(self) -> int:
        """Bytes of all tiles together."""
        return sum(tile.bytes for tile in self.tiles.values())


def report_of(s: KernelTunerState, record: Mapping[str, Any]) -> TileReport:
    """Return the report on a checked state from a record ({} if missing)."""
    rows = record_rows(record)
    versions = f"triton {record['versions']['triton']}" if record else ""
    tiles = tiles_held(s.kernel, s.BM, s.BN, s.columns, s.itemsize)
    return TileReport(s, chip_of(s.arch), tiles, launch_words(s), rows, rows_of_tile(rows, s), versions)


def kernel_tuner_title(s: KernelTunerState) -> str:
    """Return the title of a state: kernel, chip, sizes, mask and tile."""
    mask = "causal" if s.causal else "no mask"
    return f"{s.kernel} on {chip_of(s.arch).name}: d = {s.d:,}, {8 * s.itemsize} bit, {mask}, {tile_label(s)}"


def tile_label(s: KernelTunerState) -> str:
    """Format a tile and its warps: "64 × 128, slices of 32, 8 warps"."""
    # <!-- 64 × 128, 32, 8 as input -->
    cut = f", slices of {s.BD}" if s.BD else ""
    return f"{s.BM} × {s.BN}{cut}, {with_unit(s.warps, 'warp')}"


# ---------------------------------------------------------------------- text from the record
def standing(shown: TileReport) -> list[str]:
    """Return one or two lines: the recorded resources of this tile, or the nearest recorded tile."""
    if shown.found:
        row = shown.found[0]
        return [f"Recorded with {shown.versions}, {with_unit(row['stages'], 'stage')}: {_said(row)}."]
    if not shown.rows:
        return [f"Resources: {NONE_YET}."]
    near = nearest(shown.rows, shown.state)
    if near is None:
        return ["Not recorded. No tile of this kernel is recorded on this chip."]
    return [f"Not recorded. The nearest recorded tile is {_named(near, shown.state)}:", f"{_said(near)}."]


def _named(row: Row, s: KernelTunerState) -> str:
    """Return the name of a recorded tile: its sizes, and d or the mask if they differ from the state."""
    other = s.with_tile(*tile_of(row))
    said = tile_label(other)
    said += "" if other.BD or row["d"] == s.d else f", d = {row['d']}"
    return said if row["causal"] == s.causal else f"{said}, {'causal' if row['causal'] else 'no mask'}"


def _said(row: Row) -> str:
    report = compiled_resources(row)
    if report is None:
        return "refused by the compiler"
    spilled = f"{report.spill_bytes:,} bytes spilled" if report.spill_bytes else "nothing spilled"
    took = f"{report.registers} registers per thread, {spilled}, {report.shared_bytes / 1024:.0f} KB shared"
    return took if verdict(row) != "too large" else f"{took}, more than the chip provides"


def share_of_capacity(shown: TileReport) -> str:
    """Format the size of the tiles against the capacity of one SM."""
    total = sum(tile.words for tile in shown.tiles.values())
    said = f"{total:,} words, {kilobytes(shown.held)} KB of {kilobytes(shown.budget)} KB"
    over = shown.held - shown.budget
    return said if over <= 0 else f"{said}: {kilobytes(over)} KB too many"


def kilobytes(count: int) -> str:
    """Format bytes in KB of 1,024 bytes."""
    # <!-- 1,024 as definition -->
    return words(round(count / 1024, 1))


def with_one_tile(s: KernelTunerState) -> Ledger:
    """Return the traffic of the same launch with a single tile of N × N."""
    return launch_words(s._replace(BM=s.N, BN=s.N, BD=s.BD and s.d))


def which(s: KernelTunerState) -> str:
    """Format d and the mask of the recorded tiles in the map, such as "d = 128, causal"."""
    return f"{'any d' if s.BD else f'd = {s.d:,}'}, {'causal' if s.causal else 'no mask'}"


def recorded_tiles(rows: Sequence[Row], s: KernelTunerState) -> dict[tuple[int, int], Row]:
    """Return by (BM, BN) the recorded row with the fewest spilled bytes, then the fewest registers."""
    found: dict[tuple[int, int], Row] = {}
    for row in of_size(rows, s):
        at = row["BM"], row["BN"]
        if at not in found or _rank(row) < _rank(found[at]):
            found[at] = row
    return found


def _rank(row: Row) -> tuple[bool, bool, int, int]:
    report = compiled_resources(row)
    if report is None:
        return True, True, 0, 0
    return False, verdict(row) == "too large", report.spill_bytes, report.registers


# ---------------------------------------------------------------------- text
def kernel_tuner_alt(shown: TileReport) -> str:
    """Return the alternative text of the figure."""
    s, ledger = shown.state, shown.ledger
    listed = ", ".join(f"{name} {tile.words:,}" for name, tile in shown.tiles.items())
    told = [
        f"{kernel_tuner_title(s)}. {' '.join(standing(shown))[:-1]}",
        f"Its tiles take {share_of_capacity(shown)} of shared memory and registers ({listed} words)",
        f"For one head of N = {s.N:,} it moves {ledger.total:,} words, {_mb(shown)}, "
        f"{ledger.total / with_one_tile(s).total:,.2f} times the traffic of a single N × N tile",
    ]
    return ". ".join([*told, *_at_once(shown), _map_in_words(shown)]) + "."


def _at_once(shown: TileReport) -> list[str]:
    """Return a sentence on the number of programs that run on one SM at once; empty if not recorded."""
    report = compiled_resources(shown.found[0]) if shown.found else None
    if report is None or not report.programs_at_once:
        return []
    return [f"One SM can run {with_unit(report.programs_at_once, 'such program')} at once"]


def _mb(shown: TileReport) -> str:
    return f"{ledger_bytes(shown.ledger, shown.state.itemsize) / 2**20:,.1f} MiB"


def _map_in_words(shown: TileReport) -> str:
    tiles = recorded_tiles(shown.rows, shown.state)
    fitting = [f"{BM} × {BN}" for (BM, BN), row in sorted(tiles.items()) if verdict(row) == "fits"]
    named = f": {', '.join(fitting)}" if fitting else ""
    fit = "1 fits" if len(fitting) == 1 else f"{len(fitting)} fit"
    return f"Of {with_unit(len(tiles), 'tile')} recorded for {which(shown.state)}, {fit}{named}"


def numbers_of(shown: TileReport) -> str:
    """Return the numbers of the figure as tables."""
    tiles = [["held at once", "words", "bytes"]]
    tiles += [[name, f"{tile.words:,}", f"{tile.bytes:,}"] for name, tile in shown.tiles.items()]
    moved = [["moved", "words read", "words written"], *moved_rows(shown.ledger)]
    took = [f"{with_unit(row['stages'], 'stage')}: {_said(row)}, {verdict(row)}" for row in shown.found]
    return "\n".join([table(tiles, left=0), table(moved, left=0), *(took or standing(shown))])


def kernel_tuner_words(s: KernelTunerState, record: Mapping[str, Any], note: str = "") -> str:
    """Return the headline of a state as HTML: traffic in words and bytes, programs per SM, and `note`."""
    shown = report_of(s, record)
    return paragraph(
        [
            f"{bold(f'{shown.ledger.total:,} words moved')}, {_mb(shown)}, for one head of N = {s.N:,}.",
            *(f"{one}." for one in _at_once(shown)),
            escape(note),
        ]
    )
