"""What is known of one tile of one Triton kernel on one chip, and how it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from ...console import counted, table
from ...costs.kernels import ledger_bytes
from ...data.records import NONE_YET
from ...gpu import Chip, chip_of
from ...ledger import Ledger
from ..draw.text import bold, paragraph, words
from .compiler_reports import (
    Row,
    Setting,
    exact,
    nearest,
    of_size,
    resources_of,
    rows_of,
    tile_of,
    verdict,
    words_of,
)
from .memory_states import moved_rows
from .tile_footprint import Held, held


class Shown(NamedTuple):
    """A setting with everything that is said about it."""

    setting: Setting
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


def shown_of(s: Setting, record: Mapping[str, Any]) -> Shown:
    """Everything about a checked setting, from a record or {}."""
    rows = rows_of(record)
    versions = f"triton {record['versions']['triton']}" if record else ""
    tiles = held(s.kernel, s.BM, s.BN, s.columns, s.itemsize)
    return Shown(s, chip_of(s.arch), tiles, words_of(s), rows, exact(rows, s), versions)


def title_of(s: Setting) -> str:
    """The setting in a line."""
    mask = "causal" if s.causal else "no mask"
    return f"{s.kernel} on {chip_of(s.arch).name}: d = {s.d:,}, {8 * s.itemsize} bit, {mask}, {sides(s)}"


def sides(s: Setting) -> str:
    """A tile and its warps: 64 × 128, slices of 32, 8 warps."""
    cut = f", slices of {s.BD}" if s.BD else ""
    return f"{s.BM} × {s.BN}{cut}, {counted(s.warps, 'warp')}"


# ---------------------------------------------------------------------- what the record says
def standing(shown: Shown) -> list[str]:
    """Whether this tile was compiled, and if not, which one was: a line, or two."""
    if shown.found:
        row = shown.found[0]
        return [f"Recorded with {shown.versions}, {counted(row['stages'], 'stage')}: {_said(row)}."]
    if not shown.rows:
        return [f"Resources: {NONE_YET}."]
    near = nearest(shown.rows, shown.setting)
    if near is None:
        return ["Not recorded, nor any other tile of this kernel on this chip."]
    return [f"Not recorded. The nearest recorded tile is {_named(near, shown.setting)}:", f"{_said(near)}."]


def _named(row: Row, s: Setting) -> str:
    """A recorded tile by its sides, and by what else is not as in the setting."""
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


def filling(shown: Shown) -> str:
    """How much of the chip's room the tiles are."""
    total = sum(tile.words for tile in shown.tiles.values())
    said = f"{total:,} words, {kilobytes(shown.held)} KB of {kilobytes(shown.budget)} KB"
    over = shown.held - shown.budget
    return said if over <= 0 else f"{said}: {kilobytes(over)} KB too many"


def kilobytes(count: int) -> str:
    """Bytes in KB of 1,024, as text."""
    return words(round(count / 1024, 1))


def with_one_tile(s: Setting) -> Ledger:
    """The same launch with a tile that holds everything."""
    return words_of(s._replace(BM=s.N, BN=s.N, BD=s.BD and s.d))


def which(s: Setting) -> str:
    """What the recorded tiles of the map have in common besides kernel, chip and type."""
    return f"{'any d' if s.BD else f'd = {s.d:,}'}, {'causal' if s.causal else 'no mask'}"


def recorded_tiles(rows: Sequence[Row], s: Setting) -> dict[tuple[int, int], Row]:
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
def alt_of(shown: Shown) -> str:
    """The picture in sentences."""
    s, ledger = shown.setting, shown.ledger
    listed = ", ".join(f"{name} {tile.words:,}" for name, tile in shown.tiles.items())
    told = [
        f"{title_of(s)}. {' '.join(standing(shown))[:-1]}",
        f"Its tiles are {filling(shown)} of shared memory and registers ({listed} words)",
        f"For one head of N = {s.N:,} it moves {ledger.total:,} words, {_mb(shown)}, "
        f"{ledger.total / with_one_tile(s).total:,.2f} times those of one tile of N × N",
    ]
    return ". ".join([*told, *_at_once(shown), _map_in_words(shown)]) + "."


def _at_once(shown: Shown) -> list[str]:
    """How many such programs a multiprocessor holds, where that is recorded and they run at all."""
    report = resources_of(shown.found[0]) if shown.found else None
    if report is None or not report.programs_at_once:
        return []
    return [f"A multiprocessor can hold {counted(report.programs_at_once, 'such program')} at once"]


def _mb(shown: Shown) -> str:
    return f"{ledger_bytes(shown.ledger, shown.setting.itemsize) / 2**20:,.1f} MB"


def _map_in_words(shown: Shown) -> str:
    tiles = recorded_tiles(shown.rows, shown.setting)
    fitting = [f"{BM} × {BN}" for (BM, BN), row in sorted(tiles.items()) if verdict(row) == "fits"]
    named = f": {', '.join(fitting)}" if fitting else ""
    fit = "1 fits" if len(fitting) == 1 else f"{len(fitting)} fit"
    return f"Of {counted(len(tiles), 'tile')} recorded for {which(shown.setting)}, {fit}{named}"


def numbers_of(shown: Shown) -> str:
    """The numbers behind the picture, as tables."""
    tiles = [["held at once", "words", "bytes"]]
    tiles += [[name, f"{tile.words:,}", f"{tile.bytes:,}"] for name, tile in shown.tiles.items()]
    moved = [["moved", "words read", "words written"], *moved_rows(shown.ledger)]
    took = [f"{counted(row['stages'], 'stage')}: {_said(row)}, {verdict(row)}" for row in shown.found]
    return "\n".join([table(tiles, left=0), table(moved, left=0), *(took or standing(shown))])


def kernel_tuner_words(s: Setting, record: Mapping[str, Any], note: str = "") -> str:
    """The headline of a setting as HTML: words and bytes, and a remark; the rest is said in the picture."""
    shown = shown_of(s, record)
    return paragraph(
        [
            f"{bold(f'{shown.ledger.total:,} words moved')}, {_mb(shown)}, for one head of N = {s.N:,}.",
            *(f"{one}." for one in _at_once(shown)),
            escape(note),
        ]
    )
