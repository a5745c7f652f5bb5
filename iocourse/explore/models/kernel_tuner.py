"""What is known of one tile of one Triton kernel on one chip, and how it is said.

Three sources: what a program holds at its fullest is counted as the emulator counts; words moved are a closed
form; registers, spills and shared memory are read from the record of `python -m tools.bench resources`, from
the row of this tile or the nearest one, said to be another. Nothing is interpolated: what nobody compiled is
"not recorded".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from html import escape
from math import log2
from typing import Any, NamedTuple

from ...console import table, with_unit
from ...costs.kernels import SLICED, KernelProblem, kernel_words, ledger_bytes
from ...data.records import NONE_YET, load_record
from ...gpu import Chip, Resources, chip_of
from ...ledger import Ledger
from ...sizes import positive_int
from ..draw.text import bold, paragraph, words
from .memory_states import moved_rows

Row = Mapping[str, Any]
START, START_SLICE, START_WARPS = 64, 32, 8  # of a tile where none is recorded
VERDICTS = ("fits", "spills", "too large", "refused")


class KernelTunerState(NamedTuple):
    """The position of every control. BD is None where tiles are whole rows; N counts queries, and keys."""

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
        """This state, or the ValueError or TypeError that says which part of it cannot be."""
        chip_of(self.arch)
        if self.itemsize not in (2, 4):
            raise ValueError(f"itemsize is {self.itemsize!r}; allowed: 2 or 4 bytes")
        for name in ("d", "BM", "BN", "warps", "N"):
            positive_int(name, getattr(self, name))
        words_of(self)  # knows the kernels, and which of them have a BD
        for name in ("BM", "BN", "BD"):
            size = getattr(self, name)
            if size is not None and (size < 16 or size & (size - 1)):
                raise ValueError(f"{name} is {size}; allowed: 16, 32, 64, 128, … as tl.dot asks for")
        return self

    def with_tile(self, BM: int, BN: int, BD: int | None, warps: int) -> KernelTunerState:
        """The same with another tile."""
        return self._replace(BM=BM, BN=BN, BD=BD, warps=warps)

    @property
    def tile(self) -> tuple[int, int, int | None, int]:
        """BM, BN, BD and warps."""
        return self.BM, self.BN, self.BD, self.warps

    @property
    def columns(self) -> int:
        """Columns of a tile: d, or a slice of it."""
        return self.BD or self.d


def words_of(s: KernelTunerState) -> Ledger:
    """The ledger of one launch for one head of N queries and N keys."""
    problem = KernelProblem(s.N, s.N, s.d, high=0 if s.causal else None)
    return kernel_words(s.kernel, problem, BM=s.BM, BN=s.BN, BD=s.BD)


@lru_cache(maxsize=1)
def _shipped_record() -> Mapping[str, Any]:
    return load_record("resources") or {}


def record_of(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """A record as `load_record("resources")` gives it, None standing for that one; {} where there is none."""
    return _shipped_record() if given is None else given


def rows_of(record: Mapping[str, Any]) -> list[Row]:
    """Every row with the mask as a band: first the tiles that are shipped, then those tried."""
    rows = [*record.get("shipped", ()), *record.get("forward_by_tile", ())]
    return [row for row in rows if row.get("pairs", "band") == "band"]


def of_kernel(rows: Sequence[Row], s: KernelTunerState) -> list[Row]:
    """Rows of a state's kernel, chip and type, whatever the tile, the mask and d."""
    return [
        row for row in rows if (row["arch"], row["bytes"], row["kernel"]) == (s.arch, s.itemsize, s.kernel)
    ]


def of_size(rows: Sequence[Row], s: KernelTunerState) -> list[Row]:
    """Those of them for its d, of which a kernel that cuts d takes any, and for its mask."""
    return [row for row in of_kernel(rows, s) if _same_size(row, s) and row["causal"] == s.causal]


def _same_size(row: Row, s: KernelTunerState) -> bool:
    return s.kernel in SLICED or row["d"] == s.d


def tile_of(row: Row) -> tuple[int, int, int | None, int]:
    """BM, BN, BD and warps."""
    return row["BM"], row["BN"], row.get("BD"), row["warps"]


def rows_of_tile(rows: Sequence[Row], s: KernelTunerState) -> list[Row]:
    """The rows of this very tile, the shipped one first; they differ in how far loads run ahead."""
    return [row for row in of_size(rows, s) if tile_of(row) == s.tile]


def nearest(rows: Sequence[Row], s: KernelTunerState) -> Row | None:
    """The recorded tile with the fewest doublings from this one, d counting most, then the sides."""
    return min(of_kernel(rows, s), key=lambda row: _distance(row, s), default=None)


def _distance(row: Row, s: KernelTunerState) -> float:
    d = 0.0 if _same_size(row, s) else abs(log2(max(64, s.d) / row["d"]))
    sides = [(row["BM"], s.BM), (row["BN"], s.BN), (row.get("BD") or 1, s.BD or 1)]
    apart = sum(abs(log2(one / other)) for one, other in sides)
    other_mask = float(row["causal"] != s.causal)
    return 100 * d + 2 * apart + abs(log2(row["warps"] / s.warps)) + other_mask


def shipped_tile(rows: Sequence[Row], s: KernelTunerState) -> KernelTunerState | None:
    """The state with the tile that the kernels ship with, or None where there is no record of it."""
    found = of_size(rows, s) or [row for row in of_kernel(rows, s) if _same_size(row, s)]
    return s.with_tile(*tile_of(found[0])) if found else None


def best_tile(rows: Sequence[Row], s: KernelTunerState) -> KernelTunerState | None:
    """The state with the recorded tile that fits the chip and moves the fewest words; None: none fits."""
    fitting = [s.with_tile(*tile_of(row)) for row in of_size(rows, s) if verdict(row) == "fits"]
    return min(fitting, key=lambda one: words_of(one).total, default=None)


def start_tile(s: KernelTunerState, rows: Sequence[Row]) -> KernelTunerState:
    """Where the sliders of a kernel start: its shipped tile, or one that stands for itself."""
    plain = s.with_tile(START, START, START_SLICE if s.kernel in SLICED else None, START_WARPS)
    return shipped_tile(rows, plain) or plain


def resources_of(row: Row) -> Resources | None:
    """What the compiler reports; None where it refused."""
    return None if "error" in row else Resources.of(row)


def verdict(row: Row) -> str:
    """One of `VERDICTS`: whether the compiled kernel fits its chip, or what is wrong."""
    report = resources_of(row)
    if report is None:
        return "refused"
    if report.shared_bytes > chip_of(report.arch).shared_bytes:
        return "too large"
    return "fits" if report.fits else "spills"


# ---------------------------------------------------------------------- what a program holds
# Computed in float32 whatever Q, K and V are.
COMPUTED = frozenset({"O", "dQ", "dK", "dV", "scores", "dP", "row statistics"})

# Rows and columns of each tile: M and N stand for BM and BN, D for d or the slice BD, 2 for two columns.
# A kernel that does one thing after another has a line for each; its fullest one counts.
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


class Held(NamedTuple):
    """A tile: its words, and its bytes."""

    words: int
    bytes: int


def tiles_held(kernel: str, BM: int, BN: int, columns: int, itemsize: int) -> dict[str, Held]:
    """The tiles that a program holds at its fullest, by name; `columns` are d, or BD where d is cut."""
    sides = {"M": BM, "N": BN, "D": columns, "1": 1, "2": 2}
    moments = list[dict[str, Held]]()
    for tiles in TILES[kernel]:
        words = {name: sides[two[0]] * sides[two[1]] for name, two in tiles.items()}
        moments.append({n: Held(w, w * (4 if n in COMPUTED else itemsize)) for n, w in words.items()})
    return max(moments, key=lambda tiles: sum(tile.bytes for tile in tiles.values()))


# ---------------------------------------------------------------------- everything about one state
class TileReport(NamedTuple):
    """A state with everything that is said about it."""

    state: KernelTunerState
    chip: Chip
    tiles: dict[str, Held]
    ledger: Ledger
    rows: list[Row]
    found: list[Row]
    versions: str

    @property
    def budget(self) -> int:
        """Bytes that one multiprocessor offers a program: shared memory and registers."""
        return self.chip.shared_bytes + 4 * self.chip.registers

    @property
    def held(self) -> int:
        """Bytes of the tiles."""
        return sum(tile.bytes for tile in self.tiles.values())


def report_of(s: KernelTunerState, record: Mapping[str, Any]) -> TileReport:
    """Everything about a checked state, from a record or {}."""
    rows = rows_of(record)
    versions = f"triton {record['versions']['triton']}" if record else ""
    tiles = tiles_held(s.kernel, s.BM, s.BN, s.columns, s.itemsize)
    return TileReport(s, chip_of(s.arch), tiles, words_of(s), rows, rows_of_tile(rows, s), versions)


def title_of(s: KernelTunerState) -> str:
    """The state in a line."""
    mask = "causal" if s.causal else "no mask"
    return f"{s.kernel} on {chip_of(s.arch).name}: d = {s.d:,}, {8 * s.itemsize} bit, {mask}, {sides(s)}"


def sides(s: KernelTunerState) -> str:
    """A tile and its warps: 64 × 128, slices of 32, 8 warps."""
    cut = f", slices of {s.BD}" if s.BD else ""
    return f"{s.BM} × {s.BN}{cut}, {with_unit(s.warps, 'warp')}"


# ---------------------------------------------------------------------- what the record says
def standing(shown: TileReport) -> list[str]:
    """Whether this tile was compiled, and if not, which one was: a line, or two."""
    if shown.found:
        row = shown.found[0]
        return [f"Recorded with {shown.versions}, {with_unit(row['stages'], 'stage')}: {_said(row)}."]
    if not shown.rows:
        return [f"Resources: {NONE_YET}."]
    near = nearest(shown.rows, shown.state)
    if near is None:
        return ["Not recorded, nor any other tile of this kernel on this chip."]
    return [f"Not recorded. The nearest recorded tile is {_named(near, shown.state)}:", f"{_said(near)}."]


def _named(row: Row, s: KernelTunerState) -> str:
    """A recorded tile by its sides, and by what else is not as in the state."""
    other = s.with_tile(*tile_of(row))
    said = sides(other)
    said += "" if other.BD or row["d"] == s.d else f", d = {row['d']}"
    return said if row["causal"] == s.causal else f"{said}, {'causal' if row['causal'] else 'no mask'}"


def _said(row: Row) -> str:
    report = resources_of(row)
    if report is None:
        return "refused by the compiler"
    spilled = f"{report.spill_bytes:,} bytes spilled" if report.spill_bytes else "nothing spilled"
    took = f"{report.registers} registers a thread, {spilled}, {report.shared_bytes / 1024:.0f} KB shared"
    return took if verdict(row) != "too large" else f"{took}, more than the chip has"


def filling(shown: TileReport) -> str:
    """How much of the chip's room the tiles are."""
    total = sum(tile.words for tile in shown.tiles.values())
    said = f"{total:,} words, {kilobytes(shown.held)} KB of {kilobytes(shown.budget)} KB"
    over = shown.held - shown.budget
    return said if over <= 0 else f"{said}: {kilobytes(over)} KB too many"


def kilobytes(count: int) -> str:
    """Bytes in KB of 1,024, as text."""
    return words(round(count / 1024, 1))


def with_one_tile(s: KernelTunerState) -> Ledger:
    """The same launch with a tile that holds everything."""
    return words_of(s._replace(BM=s.N, BN=s.N, BD=s.BD and s.d))


def which(s: KernelTunerState) -> str:
    """What the recorded tiles of the map have in common besides kernel, chip and type."""
    return f"{'any d' if s.BD else f'd = {s.d:,}'}, {'causal' if s.causal else 'no mask'}"


def recorded_tiles(rows: Sequence[Row], s: KernelTunerState) -> dict[tuple[int, int], Row]:
    """By BM and BN the recorded row that spills least, then the one with the fewest registers."""
    found: dict[tuple[int, int], Row] = {}
    for row in of_size(rows, s):
        at = row["BM"], row["BN"]
        if at not in found or _rank(row) < _rank(found[at]):
            found[at] = row
    return found


def _rank(row: Row) -> tuple[bool, bool, int, int]:
    report = resources_of(row)
    if report is None:
        return True, True, 0, 0
    return False, verdict(row) == "too large", report.spill_bytes, report.registers


# ---------------------------------------------------------------------- in words
def alt_of(shown: TileReport) -> str:
    """The picture in sentences."""
    s, ledger = shown.state, shown.ledger
    listed = ", ".join(f"{name} {tile.words:,}" for name, tile in shown.tiles.items())
    told = [
        f"{title_of(s)}. {' '.join(standing(shown))[:-1]}",
        f"Its tiles are {filling(shown)} of shared memory and registers ({listed} words)",
        f"For one head of N = {s.N:,} it moves {ledger.total:,} words, {_mb(shown)}, "
        f"{ledger.total / with_one_tile(s).total:,.2f} times those of one tile of N × N",
    ]
    return ". ".join([*told, *_at_once(shown), _map_in_words(shown)]) + "."


def _at_once(shown: TileReport) -> list[str]:
    """How many such programs a multiprocessor holds, where that is recorded and they run at all."""
    report = resources_of(shown.found[0]) if shown.found else None
    if report is None or not report.programs_at_once:
        return []
    return [f"A multiprocessor can hold {with_unit(report.programs_at_once, 'such program')} at once"]


def _mb(shown: TileReport) -> str:
    return f"{ledger_bytes(shown.ledger, shown.state.itemsize) / 2**20:,.1f} MB"


def _map_in_words(shown: TileReport) -> str:
    tiles = recorded_tiles(shown.rows, shown.state)
    fitting = [f"{BM} × {BN}" for (BM, BN), row in sorted(tiles.items()) if verdict(row) == "fits"]
    named = f": {', '.join(fitting)}" if fitting else ""
    fit = "1 fits" if len(fitting) == 1 else f"{len(fitting)} fit"
    return f"Of {with_unit(len(tiles), 'tile')} recorded for {which(shown.state)}, {fit}{named}"


def numbers_of(shown: TileReport) -> str:
    """The numbers behind the picture, as tables."""
    tiles = [["held at once", "words", "bytes"]]
    tiles += [[name, f"{tile.words:,}", f"{tile.bytes:,}"] for name, tile in shown.tiles.items()]
    moved = [["moved", "words read", "words written"], *moved_rows(shown.ledger)]
    took = [f"{with_unit(row['stages'], 'stage')}: {_said(row)}, {verdict(row)}" for row in shown.found]
    return "\n".join([table(tiles, left=0), table(moved, left=0), *(took or standing(shown))])


def kernel_tuner_words(s: KernelTunerState, record: Mapping[str, Any], note: str = "") -> str:
    """The headline of a state as HTML: words and bytes, and a remark; the rest is said in the picture."""
    shown = report_of(s, record)
    return paragraph(
        [
            f"{bold(f'{shown.ledger.total:,} words moved')}, {_mb(shown)}, for one head of N = {s.N:,}.",
            *(f"{one}." for one in _at_once(shown)),
            escape(note),
        ]
    )
