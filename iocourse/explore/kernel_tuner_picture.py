"""The picture of the kernel tuner: one tile of one Triton kernel against one chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from ..costs.each_kernel import ledger_bytes
from ..data.recorded import NONE_YET
from ..gpu import Chip, Resources, chip_of
from ..gpu.chips import REGISTERS_A_THREAD
from ..ledger import Ledger
from .compiled_tiles import (
    Row,
    Setting,
    exact,
    nearest,
    of_size,
    record_of,
    resources_of,
    rows_of,
    tile_of,
    verdict,
    words_of,
)
from .figure import figure
from .frame import words
from .kernel_tiles import Held, held
from .lines import table
from .memory import swatch
from .palette import BLUE, GRID, INK, PAPER, QUIET, TOO_MUCH, VERMILION, Fill, fill_of
from .picture import LARGE, NORMAL, SMALL, Element, Picture, Rect, Text, centred, text_width

WIDTH, HEIGHT = 960.0, 578.0
LEFT, LEFT_WIDTH = 18.0, 540.0
RIGHT, RIGHT_WIDTH = 604.0, 338.0
LOWER = 300.0  # where the lower half begins
SIDES = (16, 32, 64, 128)  # of tiles in the map, and those that were recorded besides
NAMES = 64.0  # pixels for the names of arrays
WRITTEN = "\\"
TINY = 10.0
WRONG = "#8F3B00"  # dark enough for text
CELLS = {
    "fits": Fill("#D5EFE6", ""),
    "spills": Fill("#F9D9C4", "/"),
    "too large": Fill("#F9D9C4", "x"),
    "refused": Fill(GRID, "x"),
    "": Fill(PAPER, ""),
}


class _Shown(NamedTuple):
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


@figure
def kernel_tuner_picture(
    arch: int,
    d: int,
    itemsize: int,
    kernel: str,
    BM: int,
    BN: int,
    BD: int | None = None,
    warps: int = 8,
    *,
    N: int = 4096,
    causal: bool = True,
    record: Mapping[str, Any] | None = None,
) -> Picture:
    """One tile of one kernel on one chip: what it holds, what the compiler took for it, what it moves.

    Registers, spilled bytes and shared memory are those of the recorded run of `iocourse bench resources`. A
    tile that is not in it is called "not recorded", with the nearest one that is; nothing is interpolated.

    Args:
        arch: 75, 80, 89, 90 or 100.
        d: head size, columns.
        itemsize: bytes of a number of Q, K and V, 2 or 4.
        kernel: one of `iocourse.costs.each_kernel.KERNELS`.
        BM: queries of a tile.
        BN: keys of a tile.
        BD: columns of a slice, for kernels that cut d; None for those with whole rows.
        warps: of 32 threads, of one program.
        N: queries, and keys, of the one head whose words are counted.
        causal: whether query i sees the keys up to i only.
        record: as `recorded("resources")` gives it; None: that one; {}: as where there is none.

    Raises:
        ValueError, TypeError: an argument is not as described; the message names it.
    """
    setting = Setting(arch, d, itemsize, kernel, BM, BN, BD, warps, N, causal).checked()
    return picture_of(setting, record_of(record))


def picture_of(s: Setting, record: Mapping[str, Any]) -> Picture:
    """The picture of a checked setting against a record, {} where there is none."""
    shown = _shown(s, record)
    title = title_of(s)
    drawn: list[Element] = [
        Text(LEFT, 28, title, LARGE, bold=True),
        Text(LEFT, 52, _standing(shown), NORMAL, bold=not shown.found),
        *_footprint(shown),
        *_gauges(shown),
        *_words(shown),
        *_map(shown),
    ]
    return Picture(WIDTH, HEIGHT, title, _alt(shown), _numbers(shown), tuple(drawn))


def _shown(s: Setting, record: Mapping[str, Any]) -> _Shown:
    rows = rows_of(record)
    versions = f"triton {record['versions']['triton']}" if record else ""
    tiles = held(s.kernel, s.BM, s.BN, s.columns, s.itemsize)
    return _Shown(s, chip_of(s.arch), tiles, words_of(s), rows, exact(rows, s), versions)


def title_of(s: Setting) -> str:
    """The setting in a line."""
    mask = "causal" if s.causal else "no mask"
    return f"{s.kernel} on {chip_of(s.arch).name}: d = {s.d:,}, {8 * s.itemsize} bit, {mask}, {sides(s)}"


def sides(s: Setting) -> str:
    """A tile and its warps: 64 × 128, slices of 32, 8 warps."""
    cut = f", slices of {s.BD}" if s.BD else ""
    return f"{s.BM} × {s.BN}{cut}, {_warps(s.warps)}"


def _warps(count: int) -> str:
    return f"{count} warp{'s' * (count != 1)}"


# ---------------------------------------------------------------------- what the record says
def _standing(shown: _Shown) -> str:
    """Whether this tile was compiled, and if not, which one was."""
    if shown.found:
        row = shown.found[0]
        return f"Recorded with {shown.versions}, {_ahead(row)}: {_said(row)}."
    if not shown.rows:
        return f"Resources: {NONE_YET}."
    near = nearest(shown.rows, shown.setting)
    if near is None:
        return "Not recorded, nor any other tile of this kernel on this chip."
    return f"Not recorded. The nearest recorded tile is {_named(near, shown.setting)}: {_said(near)}."


def _ahead(row: Row) -> str:
    return f"{row['stages']} stage{'s' * (row['stages'] != 1)}"


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


# ---------------------------------------------------------------------- what the tiles take
def _footprint(shown: _Shown) -> Iterator[Element]:
    """The tiles side by side, above what one multiprocessor has: shared memory, then registers."""
    yield Text(LEFT, 84, "Tiles that a program holds, and room for them", NORMAL, bold=True)
    scale = LEFT_WIDTH / (1.01 * max(shown.held, shown.budget))
    x, y = LEFT, 98.0
    for k, (name, tile) in enumerate(shown.tiles.items()):
        fill = fill_of(name, k)
        yield Rect(x, y, tile.bytes * scale, 26, fill.colour, fill.hatch, INK, 0.6)
        x += tile.bytes * scale
    shared, end = LEFT + shown.chip.shared_bytes * scale, LEFT + shown.budget * scale
    if x > end:
        yield Rect(end, y, x - end, 26, PAPER, TOO_MUCH.hatch, VERMILION, 2.5, VERMILION)
    yield Rect(LEFT, y + 30, shared - LEFT, 18, "#E8F3FB", "", QUIET)
    yield Rect(shared, y + 30, end - shared, 18, "#E9F6EF", "", QUIET)
    yield from _room(LEFT, shared, f"shared {shown.chip.shared_bytes // 1024} KB")
    yield from _room(shared, end, f"registers {4 * shown.chip.registers // 1024} KB")
    over = shown.held > shown.budget
    yield Text(LEFT, y + 68, _filling(shown), NORMAL, bold=over, colour=WRONG if over else INK)
    for k, (name, tile) in enumerate(shown.tiles.items()):
        at, row = LEFT + 182 * (k % 3), y + 82 + 24 * (k // 3)
        yield from swatch(at, row, fill_of(name, k), f"{name} {tile.words:,}")


def _room(left: float, right: float, label: str) -> Iterator[Element]:
    if text_width(label, SMALL) < right - left:
        yield Text((left + right) / 2, centred(137, SMALL), label, SMALL, "middle")


def _filling(shown: _Shown) -> str:
    """How much of the chip's room the tiles are."""
    total = sum(tile.words for tile in shown.tiles.values())
    said = f"{total:,} words, {_kb(shown.held)} KB of {_kb(shown.budget)} KB"
    return said if shown.held <= shown.budget else f"{said}: {_kb(shown.held - shown.budget)} KB too many"


def _kb(count: int) -> str:
    return words(round(count / 1024, 1))


# ---------------------------------------------------------------------- what the compiler took
class _Gauge(NamedTuple):
    """A number of the record against what the chip has; `full` is where its bar would end."""

    label: str
    value: float
    full: float
    said: str
    bad: bool


def _gauges(shown: _Shown) -> Iterator[Element]:
    yield Text(RIGHT, 84, "What the compiler took", NORMAL, bold=True)
    report = resources_of(shown.found[0]) if shown.found else None
    for k, gauge in enumerate(_measured(report, shown.chip) if report else _unknown(shown)):
        y = 98 + 46.0 * k
        yield Text(RIGHT, y + 10, gauge.label, SMALL)
        colour = WRONG if gauge.bad else INK
        yield Text(RIGHT + RIGHT_WIDTH, y + 10, gauge.said, SMALL, "end", colour, gauge.bad)
        yield Rect(RIGHT, y + 16, RIGHT_WIDTH, 14, PAPER, "", QUIET)
        share = min(gauge.value / gauge.full, 1.0)
        fill = Fill(VERMILION, "x") if gauge.bad else Fill(BLUE, "")
        if share:
            yield Rect(RIGHT, y + 16, RIGHT_WIDTH * share, 14, fill.colour, fill.hatch, INK, 0.6)


def _measured(report: Resources, chip: Chip) -> list[_Gauge]:
    taken, spilled = report.registers * 32 * report.warps, report.spill_bytes
    shared, limit = report.shared_bytes, chip.shared_bytes
    held_ = f"{_kb(shared)} of {_kb(limit)} KB"
    return [
        _Gauge(
            "registers a thread",
            report.registers,
            REGISTERS_A_THREAD,
            f"{report.registers} of {REGISTERS_A_THREAD}",
            spilled > 0,
        ),
        _Gauge(
            "registers of all its threads",
            taken,
            chip.registers,
            f"{taken:,} of {chip.registers:,}",
            taken > chip.registers,
        ),
        _Gauge("spilled to local memory", spilled, 1024, f"{spilled:,} bytes a thread", spilled > 0),
        _Gauge("shared memory", shared, limit, held_, shared > limit),
    ]


def _unknown(shown: _Shown) -> list[_Gauge]:
    said = "refused" if shown.found else "not recorded"
    labels = (
        "registers a thread",
        "registers of all its threads",
        "spilled to local memory",
        "shared memory",
    )
    return [_Gauge(label, 0, 1, said, bool(shown.found)) for label in labels]


# ---------------------------------------------------------------------- words moved
def _words(shown: _Shown) -> Iterator[Element]:
    s, ledger = shown.setting, shown.ledger
    yield Text(LEFT, LOWER, f"Words moved, one head of N = {s.N:,}", NORMAL, bold=True)
    key = LEFT + LEFT_WIDTH - 170
    yield from swatch(key, LOWER - 12, Fill(PAPER, ""), "read")
    yield from swatch(key + 76, LOWER - 12, Fill(PAPER, WRITTEN), "written")
    bars = [(name, read, written, _amount(read, written)) for name, read, written in ledger.rows()]
    total = f"{ledger.total:,} = {ledger.total / _least(s).total:.2f} × one tile of N × N"
    bars.append(("total", ledger.read, ledger.written, total))
    room = LEFT_WIDTH - NAMES - 8
    scale = min(
        (room - 1.08 * text_width(said, SMALL)) / max(read + written, 1) for _, read, written, said in bars
    )
    for k, (name, read, written, said) in enumerate(bars):
        y, colour = LOWER + 14 + 22 * k, "#A6A6A6" if name == "total" else fill_of(name, k).colour
        yield from _bar(y, name, colour, scale, read, written, said, bold=name == "total")


def _least(s: Setting) -> Ledger:
    """The same launch with a tile that holds everything."""
    return words_of(s._replace(BM=s.N, BN=s.N, BD=s.BD and s.d))


def _amount(read: int, written: int) -> str:
    parts = [f"{read:,} read"] if read else []
    return ", ".join(parts + ([f"{written:,} written"] if written else [])) or "0"


def _bar(
    y: float, name: str, colour: str, scale: float, read: int, written: int, said: str, bold: bool
) -> Iterator[Element]:
    left, middle = LEFT + NAMES, y + 8
    yield Text(left - 8, centred(middle, SMALL), name, SMALL, "end", bold=bold)
    yield Rect(left, y, read * scale, 16, colour, "", INK, 0.6)
    yield Rect(left + read * scale, y, written * scale, 16, colour, WRITTEN if written else "", INK, 0.6)
    yield Text(left + (read + written) * scale + 8, centred(middle, SMALL), said, SMALL, bold=bold)


# ---------------------------------------------------------------------- the map of recorded tiles
def _map(shown: _Shown) -> Iterator[Element]:
    """BM down, BN across: what the best recorded number of warps gives; the tile at hand is outlined."""
    s, tiles = shown.setting, recorded_tiles(shown.rows, shown.setting)
    BMs = sorted({*SIDES, s.BM, *(BM for BM, _ in tiles)})
    BNs = sorted({*SIDES, s.BN, *(BN for _, BN in tiles)})
    yield Text(RIGHT, LOWER, "Recorded tiles", NORMAL, bold=True)
    left, top = RIGHT + 40, LOWER + 34
    width, height = (RIGHT_WIDTH - 40) / len(BNs), min(34.0, 230 / len(BMs))
    yield Text(left - 6, top - 8, "BM, BN", SMALL, "end", QUIET)
    for k, BN in enumerate(BNs):
        yield Text(left + width * (k + 0.5), top - 8, str(BN), SMALL, "middle", QUIET)
    for row, BM in enumerate(BMs):
        yield Text(left - 6, centred(top + height * (row + 0.5), SMALL), str(BM), SMALL, "end", QUIET)
        for k, BN in enumerate(BNs):
            box = Rect(left + width * k, top + height * row, width, height)
            yield from _cell(box, tiles.get((BM, BN)))
    x, y = left + width * BNs.index(s.BN), top + height * BMs.index(s.BM)
    yield Rect(x, y, width, height, "", "", INK, 3)
    if not tiles:
        below = top + height * len(BMs) + 20
        yield Text(RIGHT, below, f"None for {_which(s)}.", SMALL)


def _which(s: Setting) -> str:
    return f"d = {s.d:,}, {'causal' if s.causal else 'no mask'}"


def _cell(box: Rect, row: Row | None) -> Iterator[Element]:
    said = verdict(row) if row else ""
    fill = CELLS[said]
    yield Rect(box.x, box.y, box.width, box.height, fill.colour, fill.hatch, QUIET, 0.6, "#B5651D")
    if row:
        middle, height = box.x + box.width / 2, box.y + box.height / 2
        yield Rect(box.x + 4, height - 12, box.width - 8, 24, fill.colour)
        yield Text(middle, height - 2, said, TINY, "middle")
        yield Text(middle, height + 10, _warps(row["warps"]), TINY, "middle")


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
def _alt(shown: _Shown) -> str:
    s, ledger = shown.setting, shown.ledger
    listed = ", ".join(f"{name} {tile.words:,}" for name, tile in shown.tiles.items())
    told = [
        f"{title_of(s)}. {_standing(shown)[:-1]}",
        f"Its tiles are {_filling(shown)} of shared memory and registers ({listed} words)",
        f"For one head of N = {s.N:,} it moves {ledger.total:,} words, {_mb(shown)}, "
        f"{ledger.total / _least(s).total:.2f} times those of one tile of N × N",
    ]
    return ". ".join([*told, *_at_once(shown), _map_in_words(shown)]) + "."


def _at_once(shown: _Shown) -> list[str]:
    """How many such programs a multiprocessor holds, where that is recorded and they run at all."""
    report = resources_of(shown.found[0]) if shown.found else None
    if report is None or not report.programs_at_once:
        return []
    count = report.programs_at_once
    return [f"A multiprocessor can hold {count} such program{'s' * (count != 1)} at once"]


def _mb(shown: _Shown) -> str:
    return f"{ledger_bytes(shown.ledger, shown.setting.itemsize) / 1e6:,.1f} MB"


def _map_in_words(shown: _Shown) -> str:
    tiles = recorded_tiles(shown.rows, shown.setting)
    fitting = [f"{BM} × {BN}" for (BM, BN), row in sorted(tiles.items()) if verdict(row) == "fits"]
    named = f": {', '.join(fitting)}" if fitting else ""
    count = f"{len(tiles)} tile{'s' * (len(tiles) != 1)}"
    return f"Of {count} recorded for {_which(shown.setting)}, {len(fitting)} fit{named}"


def _numbers(shown: _Shown) -> str:
    tiles = [["held at once", "words", "bytes"]]
    tiles += [[name, f"{tile.words:,}", f"{tile.bytes:,}"] for name, tile in shown.tiles.items()]
    moved = [["moved", "words read", "words written"]]
    moved += [[name, f"{read:,}", f"{written:,}"] for name, read, written in shown.ledger.rows()]
    moved += [["total", f"{shown.ledger.read:,}", f"{shown.ledger.written:,}"]]
    took = [f"{_ahead(row)}: {_said(row)}, {verdict(row)}" for row in shown.found] or [_standing(shown)]
    return "\n".join([table(tiles), table(moved), *took])


def kernel_tuner_words(s: Setting, record: Mapping[str, Any], note: str = "") -> str:
    """The headline of a setting as HTML: what the record says, words and bytes, and a remark."""
    shown = _shown(s, record)
    ledger = shown.ledger
    says = escape(_standing(shown))
    bad = not shown.found or verdict(shown.found[0]) != "fits"
    lines = [
        f"<b>{ledger.total:,} words moved</b>, {_mb(shown)}, for one head of N = {s.N:,}.",
        f"Tiles: {_filling(shown)} of shared memory and registers.",
        f"<b>{says}</b>" if bad else says,
        *(f"{one}." for one in _at_once(shown)),
        escape(note),
    ]
    return f'<div style="font-size:14px;line-height:1.5">{"<br>".join(lines)}</div>'
