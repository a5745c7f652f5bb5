"""Figure of the kernel tuner: one tile of one Triton kernel on one chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ....console import with_unit
from ....gpu import Chip, Resources
from ....gpu.chips import REGISTERS_A_THREAD
from ....ledger import Ledger
from ..draw.palette import BLUE, GRID, INK, PAPER, QUIET, SUM, TOO_MUCH, VERMILION, WRONG, Fill, fill_of
from ..draw.picture import NORMAL, SMALL, Element, Picture, Rect, Text, centred, figure, text_width, titled
from ..draw.shapes import Moved, read_and_written, read_written_legend, swatch
from ..models.kernel_tuner import (
    KernelTunerState,
    Row,
    TileReport,
    compiled_resources,
    kernel_tuner_alt,
    kernel_tuner_title,
    kilobytes,
    launch_words,
    numbers_of,
    record_of,
    recorded_tiles,
    report_of,
    share_of_capacity,
    standing,
    verdict,
    which,
    with_one_tile,
)

WIDTH, HEIGHT = 960.0, 578.0
LEFT, LEFT_WIDTH = 18.0, 540.0
RIGHT, RIGHT_WIDTH = 604.0, 338.0
LOWER = 300.0  # top of the lower half
SIDES = (16, 32, 64, 128)  # tile sizes in the map, in addition to the recorded ones
NAMES = 64.0  # width of the array names
TINY = 10.0
SPILLED = 1024  # bytes per thread at the end of the bar of spills
GAUGES = (
    "registers per thread",
    "registers of all threads",
    "spilled to local memory (bar: 1 KB)",
    "shared memory",
)
CELLS = {
    "fits": Fill("#D5EFE6", ""),
    "spills": Fill("#F9D9C4", "/"),
    "too large": Fill("#F9D9C4", "x"),
    "refused": Fill(GRID, "x"),
    "": Fill(PAPER, ""),
}


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
    """One tile of one kernel on one chip: memory footprint, compiled resources and traffic.

    Registers, spilled bytes and shared memory are from the record of `tools.bench resources`. A tile that is
    not in it is reported as "not recorded", with the nearest recorded tile; nothing is interpolated.

    Args:
        arch: 75, 80, 89, 90 or 100.
        d: head dimension.
        itemsize: bytes per element of Q, K and V, 2 or 4.
        kernel: one of `iocourse.costs.kernels.KERNELS`.
        BM: queries per tile.
        BN: keys per tile.
        BD: columns per slice, for kernels that split d; None for the others.
        warps: warps per program.
        N: queries and keys of the one head whose traffic is counted.
        causal: True for a causal mask.
        record: a record as of `load_record("resources")`. None selects the shipped one; {} is an empty one.

    Raises:
        ValueError, TypeError: an argument is not as described; the message names it.
    """
    setting = KernelTunerState(arch, d, itemsize, kernel, BM, BN, BD, warps, N, causal).checked()
    return draw_kernel_tuner(setting, record_of(record))


def draw_kernel_tuner(s: KernelTunerState, record: Mapping[str, Any]) -> Picture:
    """Return the figure of a checked state with a record ({} if missing)."""
    shown = report_of(s, record)
    drawn = [
        *(
            Text(LEFT, 48 + 17 * k, line, NORMAL, bold=not shown.found and not k)
            for k, line in enumerate(standing(shown))
        ),
        *_footprint(shown),
        *_gauges(shown),
        *_words(shown),
        *_map(shown),
    ]
    return titled(kernel_tuner_title(s), (WIDTH, HEIGHT), kernel_tuner_alt(shown), numbers_of(shown), drawn)


# ---------------------------------------------------------------------- footprint
def _footprint(shown: TileReport) -> Iterator[Element]:
    """Yield the tiles side by side, above the capacity of one SM: shared memory, then registers."""
    yield Text(LEFT, 88, "Tiles of a program, and capacity of one SM", NORMAL, bold=True)
    scale = LEFT_WIDTH / (1.01 * max(shown.held, shown.budget))
    x, y = LEFT, 98.0
    for k, (name, tile) in enumerate(shown.tiles.items()):
        yield Rect(x, y, tile.bytes * scale, 26, *fill_of(name, k), INK, 0.6)
        x += tile.bytes * scale
    shared, end = LEFT + shown.chip.shared_bytes * scale, LEFT + shown.budget * scale
    if x > end:
        yield Rect(end, y, x - end, 26, PAPER, TOO_MUCH.hatch, VERMILION, 2.5, VERMILION)
    yield Rect(LEFT, y + 30, shared - LEFT, 18, "#E8F3FB", "", QUIET)
    yield Rect(shared, y + 30, end - shared, 18, "#E9F6EF", "", QUIET)
    sizes = f"shared {shown.chip.shared_bytes // 1024} KB", f"registers {4 * shown.chip.registers // 1024} KB"
    for left, right, label in ((LEFT, shared, sizes[0]), (shared, end, sizes[1])):
        if text_width(label, SMALL) < right - left:
            yield Text((left + right) / 2, centred(137, SMALL), label, SMALL, "middle")
    over = shown.held > shown.budget
    yield Text(LEFT, y + 68, share_of_capacity(shown), NORMAL, bold=over, colour=WRONG if over else INK)
    for k, (name, tile) in enumerate(shown.tiles.items()):
        at, row = LEFT + 182 * (k % 3), y + 82 + 24 * (k // 3)
        yield from swatch(at, row, fill_of(name, k), f"{name} {tile.words:,}")


# ---------------------------------------------------------------------- compiled resources
def _gauges(shown: TileReport) -> Iterator[Element]:
    yield Text(RIGHT, 88, "Compiled resources", NORMAL, bold=True)
    report = compiled_resources(shown.found[0]) if shown.found else None
    unknown = (0, 1, "refused" if shown.found else "not recorded", bool(shown.found))
    readings = _readings(report, shown.chip) if report else [unknown] * len(GAUGES)
    for k, (label, (value, full, said, bad)) in enumerate(zip(GAUGES, readings, strict=True)):
        y, fill = 98 + 46.0 * k, Fill(VERMILION, "x") if bad else Fill(BLUE, "")
        yield Text(RIGHT, y + 10, label, SMALL)
        yield Text(RIGHT + RIGHT_WIDTH, y + 10, said, SMALL, "end", WRONG if bad else INK, bad)
        yield Rect(RIGHT, y + 16, RIGHT_WIDTH, 14, PAPER, "", QUIET)
        if value:
            yield Rect(RIGHT, y + 16, RIGHT_WIDTH * min(value / full, 1.0), 14, *fill, INK, 0.6)


def _readings(report: Resources, chip: Chip) -> list[tuple[int, int, str, bool]]:
    """Return for each gauge: recorded value, end of its bar, label, and True if it is too large."""
    a_thread, spilled = report.registers, report.spill_bytes
    of_all, shared, limit = 32 * report.warps * a_thread, report.shared_bytes, chip.shared_bytes
    return [
        (a_thread, REGISTERS_A_THREAD, f"{a_thread} of {REGISTERS_A_THREAD}", spilled > 0),
        (of_all, chip.registers, f"{of_all:,} of {chip.registers:,}", of_all > chip.registers),
        (spilled, SPILLED, f"{spilled:,} bytes per thread", spilled > 0),
        (shared, limit, f"{kilobytes(shared)} of {kilobytes(limit)} KB", shared > limit),
    ]


# ---------------------------------------------------------------------- traffic
def _words(shown: TileReport) -> Iterator[Element]:
    s, ledger = shown.state, shown.ledger
    yield Text(LEFT, LOWER, f"Traffic (words), one head of N = {s.N:,}", NORMAL, bold=True)
    yield from read_written_legend(LEFT + LEFT_WIDTH - 170, LOWER - 12)
    bars = list[Moved]()
    for k, (name, read, written) in enumerate(ledger.rows()):
        colour, said = fill_of(name.removesuffix("_sum"), k).colour, read_and_written(read, written)
        bars.append(Moved(name, colour, read, written, said))
    bars.append(Moved("total", SUM, ledger.read, ledger.written, _total(ledger, s)))
    # The longest bar is that of the smallest tile in the map. So the scale does not depend on the tile, and
    # the length of a bar follows its words.
    least = s.with_tile(SIDES[0], SIDES[0], s.BD and SIDES[0], s.warps)
    longest = launch_words(least)
    most = LEFT_WIDTH - NAMES - 8 - 1.08 * text_width(_total(longest, s), SMALL)
    for k, bar in enumerate(bars):
        yield from bar.bar(LEFT + NAMES, LOWER + 14 + 22 * k, most / longest.total, most)


def _total(ledger: Ledger, s: KernelTunerState) -> str:
    """Format a total, and its ratio to the traffic of a single tile."""
    return f"{ledger.total:,}, {ledger.total / with_one_tile(s).total:,.2f} times that of one N × N tile"


# ---------------------------------------------------------------------- the map of recorded tiles
class TileMap(NamedTuple):
    """The map of recorded tiles: BM down, BN across, and the pixels per cell."""

    BMs: list[int]
    BNs: list[int]
    width: float
    height: float

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Position in the figure: x, y, width, height."""
        return RIGHT + 40, LOWER + 34, self.width * len(self.BNs), self.height * len(self.BMs)

    def tile_at(self, x: float, y: float) -> tuple[int, int]:
        """Return (BM, BN) of the tile at a point of the figure, or of the nearest one."""
        left, top, *_ = self.box
        row, column = int((y - top) // self.height), int((x - left) // self.width)
        return (
            self.BMs[min(max(row, 0), len(self.BMs) - 1)],
            self.BNs[min(max(column, 0), len(self.BNs) - 1)],
        )


def map_of(rows: Sequence[Row], s: KernelTunerState) -> TileMap:
    """Return the map of a state: the usual tiles, the recorded ones, and the current one."""
    tiles = recorded_tiles(rows, s)
    BMs = sorted({*SIDES, s.BM, *(BM for BM, _ in tiles)})
    BNs = sorted({*SIDES, s.BN, *(BN for _, BN in tiles)})
    return TileMap(BMs, BNs, (RIGHT_WIDTH - 40) / len(BNs), min(34.0, 230 / len(BMs)))


def _map(shown: TileReport) -> Iterator[Element]:
    """Yield the map with the verdict for the best recorded number of warps; the current tile is outlined."""
    s, tiles = shown.state, recorded_tiles(shown.rows, shown.state)
    found = map_of(shown.rows, s)
    BMs, BNs, width, height = found
    left, top, *_ = found.box
    yield Text(RIGHT, LOWER, "Recorded tiles", NORMAL, bold=True)
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
        yield Text(RIGHT, below, f"None for {which(s)}.", SMALL)


def _cell(box: Rect, row: Row | None) -> Iterator[Element]:
    said = verdict(row) if row else ""
    fill = CELLS[said]
    yield Rect(box.x, box.y, box.width, box.height, *fill, QUIET, 0.6, "#B5651D")
    if row:
        middle, height = box.x + box.width / 2, box.y + box.height / 2
        yield Rect(box.x + 4, height - 12, box.width - 8, 24, fill.colour)
        yield Text(middle, height - 2, said, TINY, "middle")
        yield Text(middle, height + 10, with_unit(row["warps"], "warp"), TINY, "middle")
