"""Figure of the kernel explorer: programs per SM, a map of tiles, and the roofs of one configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from textwrap import wrap
from typing import NamedTuple

from ....console import table, with_unit
from ....gpu.choices import padded
from ....gpu.timed_tiles import DRAFT
from ..draw.line_chart import Frame, Scale, marker, spread
from ..draw.palette import BLUE, GRID, INK, PAPER, QUIET, RUST, VERMILION, Fill, Stroke, ink_on, ramp
from ..draw.picture import LARGE, NORMAL, SMALL, Element, Picture, Poly, Rect, Text, centred, figure
from ..draw.shapes import circle, framed
from ..draw.text import bold, duration, figures, paragraph, words
from ..models.kernel_explorer import (
    DRAM,
    HALVES,
    L2,
    SM,
    TIMED_ARCH,
    TIMED_N,
    Configuration,
    Entry,
    KernelState,
    Launch,
    Quotient,
    Records,
    achieved_tflops,
    ceilings,
    dispatch,
    entries,
    fastest,
    fastest_traffic,
    intensities,
    launch_bytes,
    launches,
    lowest_roof,
    occupancy,
    quotients,
    shipped,
    shipped_records,
    table_name,
    unknown_products,
)

PLAIN = (64, 64, 4, 2)  # BM, BN, warps, stages of a state before its shipped ones are known
SIZES = (16, 32, 64, 128, 256)  # BM and BN of the map
TINY = 9.5
PANEL = 372.0  # width of each panel
NARROW = 18 + PANEL + 6
WIDE = 2 * (PANEL + 22)
MOST = 32  # programs per SM at the end of a bar
LEVELS = {  # marker of each level at which bytes are counted
    SM: Stroke(BLUE, (), "circle"),
    L2: Stroke(BLUE, (), "square"),
    DRAM: Stroke(BLUE, (), "triangle"),
}
LABELS = 166.0  # width of the names next to the roofs
THIS = RUST  # of this configuration
FITS, BAD = Fill(PAPER, ""), Fill("#F9D9C4", "/")


class Facts(NamedTuple):
    """A state with its recorded entry (None: not recorded), all entries of its map, and the records."""

    s: KernelState
    entry: Entry | None
    found: Mapping[Configuration, Entry]
    records: Records

    @property
    def best(self) -> Entry | None:
        """The configuration of the map with the shortest recorded time."""
        return fastest(self.found)


def facts(s: KernelState, records: Records) -> Facts:
    """Return the facts of a checked state."""
    found = entries(s, records)
    return Facts(s, found.get(s.configuration), found, records)


@figure
def kernel_explorer_picture(
    arch: int = 90,
    d: int = 64,
    kernel: str = "forward",
    BM: int | None = None,
    BN: int | None = None,
    warps: int | None = None,
    stages: int | None = None,
    *,
    N: int = TIMED_N,
    causal: bool = False,
    itemsize: int = 2,
    records: Records | None = None,
) -> Picture:
    """One configuration of one kernel on one chip: programs per SM, time / best, and its roofs.

    Registers, spills and shared memory are those that a compiler reported, times those of recorded runs on
    an H200. What was not compiled or not timed is named so; nothing is interpolated. Default of BM, BN, warps
    and stages: the configuration that the choices record for this kernel; the picture's words name what
    dispatch launches.

    Args:
        arch: 75, 80, 89, 90 or 100.
        d: head dimension, at most 512.
        kernel: "forward", "fused", "queries" or "keys"; "draft" is a timed draft of the forward kernel.
        BM: queries per tile.
        BN: keys per tile.
        warps: warps per program.
        stages: stages of the loads in the inner loop.
        N: queries and keys of one head.
        causal: True for a causal mask.
        itemsize: bytes per element of Q, K and V, 2 or 4.
        records: the records to read. None selects the shipped ones, `NO_RECORDS` none.

    Raises:
        ValueError, TypeError: an argument is not as described; the message names it.
    """
    plain = KernelState(arch, d, kernel, *PLAIN, N, causal, itemsize)
    return draw_kernel_explorer(start(plain, BM, BN, warps, stages), records or shipped_records())


def start(
    plain: KernelState, BM: int | None, BN: int | None, warps: int | None, stages: int | None
) -> KernelState:
    """Return the checked state with the given sizes; the others are those of the shipped configuration."""
    at = shipped(plain.checked())
    given = (size if size is not None else own for size, own in zip((BM, BN, warps, stages), at, strict=True))
    return plain.at(Configuration(*given)).checked()


def draw_kernel_explorer(s: KernelState, records: Records, narrow: bool = False) -> Picture:
    """Return the figure of a checked state; `narrow`: one panel below the other, for a narrow page."""
    f = facts(s, records)
    title = kernel_explorer_title(s)
    lines = wrap(title, 38 if narrow else 80)
    top = 28.0 + 20 * (len(lines) - 1)
    drawn: list[Element] = [Text(18, 28 + 20 * k, one, LARGE, bold=True) for k, one in enumerate(lines)]
    x, y = (18.0, top + 494) if narrow else (18 + PANEL + 22, top + 26)
    drawn += [*_occupancy(f, 18, top + 26), *_map(f, 18, top + MAP_AT), *_roofs(f, x, y, narrow)]
    width, height = (NARROW, top + 494 + 480) if narrow else (WIDE, top + 464)
    return Picture(width, height, title, _alt(f), _numbers(f), tuple(drawn))


def kernel_explorer_title(s: KernelState) -> str:
    """Return the title of a state: kernel, chip, sizes, mask and configuration."""
    mask = "causal" if s.causal else "no mask"
    bits = ", 32 bits" if s.itemsize == 4 else ""
    return f"{s.kernel}, {s.chip.name}: d = {s.d:,}, N = {s.N:,}, {mask}{bits}, {s.configuration}"


# ---------------------------------------------------------------------- programs per SM
def _occupancy(f: Facts, x: float, y: float) -> Iterator[Element]:
    """Yield a bar for each limit, all on one scale; the lowest limit is marked."""
    found, left, width = occupancy(f.s, f.entry), x + 106, 118.0
    scale = Scale(0.5, MOST, left, left + width, 2)
    yield Text(x, y, "Programs per SM, by each limit alone", NORMAL, bold=True)
    for tick in (1, 2, 4, 8, 16, 32):
        yield Text(scale(tick), y + 17, str(tick), TINY, "middle", QUIET)
    for k, one in enumerate(quotients(f.s, f.entry)):
        at, binding = y + 22 + 24 * k, bool(found and one.limit in found.limits)
        yield Text(left - 8, centred(at + 9, SMALL), one.limit, SMALL, "end", bold=binding)
        yield Rect(left, at, width, 18, PAPER, "", QUIET, 0.6)
        if one.programs:
            end = scale(min(one.programs, MOST)) - left
            fill = Fill(VERMILION, "/") if binding else Fill(GRID, "")
            yield Rect(left, at, max(end, 3), 18, *fill, INK, 0.6)
        yield Text(left + width + 8, centred(at + 9, SMALL), quotient_text(one), SMALL, bold=binding)
    for k, line in enumerate([*wrap(_compiled_text(f), 58)[:2], _shared_text(f.s)]):
        yield Text(x, y + 134 + 16 * k, line, SMALL, colour=QUIET)


def quotient_text(one: Quotient) -> str:
    """Format a quotient: programs = capacity ÷ need, or "unknown"."""
    if one.programs is None:
        return "unknown"
    if one.limit == "blocks":
        return f"{one.programs}"
    return f"{one.programs} = {words(one.capacity)} ÷ {figures(one.need)} {one.unit}"


def _compiled_text(f: Facts) -> str:
    if f.entry is None or not f.entry.compiler:
        return "Not compiled: registers and shared memory are unknown."
    report = f.entry.resources
    if report is None:
        needs = f": {words(f.entry.required / 1024)} KB shared memory" if f.entry.required else ""
        return f"Refused by {f.entry.compiler}{needs}."
    spilled = (
        with_unit(f.entry.spills, "spill") + " in the loop" if f.entry.spills else "no spill in the loop"
    )
    shared = f"{figures(report.shared_bytes / 1024)} KB shared memory"
    return f"{report.registers} registers per thread, {spilled}, {shared} ({f.entry.compiler})."


def _shared_text(s: KernelState) -> str:
    """Return why one program may not use the shared memory of a complete SM."""
    whole, one, own = (
        words(size / 1024)
        for size in (s.chip.shared_bytes_per_sm, s.chip.shared_bytes, s.chip.reserved_bytes)
    )
    if not s.chip.reserved_bytes:
        return f"{whole} KB per SM, none reserved: {one} KB for one program."
    return f"{whole} KB per SM, {own} KB reserved per program: {one} for one."


# ---------------------------------------------------------------------- the map of tiles
MAP_AT = 214.0  # below the title
CELL, ROW = 64.0, 39.0


class TileMap(NamedTuple):
    """The map of tiles, BM down and BN across, with its upper left corner."""

    x: float
    y: float

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Position in the figure: x, y, width, height."""
        return self.x, self.y, CELL * len(SIZES), ROW * len(SIZES)

    def tile_at(self, x: float, y: float) -> tuple[int, int]:
        """Return (BM, BN) of the tile at a point of the figure, or of the nearest one."""
        last = len(SIZES) - 1
        row, column = int((y - self.y) // ROW), int((x - self.x) // CELL)
        return SIZES[min(max(row, 0), last)], SIZES[min(max(column, 0), last)]


def map_of(s: KernelState, narrow: bool = False) -> TileMap:
    """Return the map in the figure of a state."""
    lines = len(wrap(kernel_explorer_title(s), 38 if narrow else 80))
    return TileMap(18 + 40, 28 + 20 * (lines - 1) + MAP_AT + 42)


def shown_in_cell(f: Facts, BM: int, BN: int) -> Configuration | None:
    """Return the configuration that the map shows for a tile, or None if none is recorded.

    For the tile of the state it is the state's. For another it is the one with the shortest time,
    or without times the one with the same or the nearest warps and stages.
    """
    s = f.s
    if (BM, BN) == (s.BM, s.BN):
        return s.configuration
    here = [one for one in f.found.values() if one.at[:2] == (BM, BN)]

    def rank(one: Entry) -> tuple[float, int]:
        return one.ms or float("inf"), abs(one.at.warps - s.warps) + abs(one.at.stages - s.stages)

    return min(here, key=rank).at if here else None


def _map(f: Facts, x: float, y: float) -> Iterator[Element]:
    s, tile_map = f.s, TileMap(x + 40, y + 42)
    timed = sum(one.ms is not None for one in f.found.values())
    heading = f"Time / best of {timed} timed configurations" if timed else "Tiles: none is timed"
    yield Text(x, y, heading + (f" (N = {TIMED_N:,})" if timed else ""), NORMAL, bold=True)
    left, top, *_ = tile_map.box
    others = "fastest" if timed else "nearest warps"
    yield Text(x, y + 16, f"framed: selected; others: {others}; blank: no record", SMALL, colour=QUIET)
    yield Text(left - 6, top - 6, "BM  BN", TINY, "end", QUIET)
    for k, size in enumerate(SIZES):
        yield Text(left + CELL * (k + 0.5), top - 6, str(size), SMALL, "middle", QUIET)
        yield Text(left - 6, centred(top + ROW * (k + 0.5), SMALL), str(size), SMALL, "end", QUIET)
    for row, BM in enumerate(SIZES):
        for column, BN in enumerate(SIZES):
            box = Rect(left + CELL * column, top + ROW * row, CELL, ROW)
            yield from _cell(f, box, shown_in_cell(f, BM, BN))
    if s.BM in SIZES and s.BN in SIZES:
        at = left + CELL * SIZES.index(s.BN), top + ROW * SIZES.index(s.BM)
        yield from framed(Rect(*at, CELL, ROW, "", "", THIS, 2.5))


def _cell(f: Facts, box: Rect, at: Configuration | None) -> Iterator[Element]:
    entry = f.found.get(at) if at else None
    label, fill = cell_of(f, at)
    bad = bool(entry and entry.verdict != "fits" and entry.ms is None and entry.compiler)
    fill = BAD.colour if bad else fill
    if at is None:
        yield Rect(box.x, box.y, box.width, box.height, PAPER, "", QUIET, 0.6)
        return
    inner = box.x + 1.5, box.y + 1.5, box.width - 3, box.height - 3  # a gap keeps dark cells apart
    yield Rect(*inner, fill, BAD.hatch if bad else "", INK, 0.7, "#B5651D")
    if bad:
        yield Rect(box.x + 4, box.y + 3, box.width - 8, box.height - 6, fill)
    middle, ink = box.x + box.width / 2, ink_on(fill)
    rows = ((label, SMALL), (with_unit(at.warps, "warp"), TINY), (with_unit(at.stages, "stage"), TINY))
    for k, (text, size) in enumerate(rows):
        yield Text(middle, box.y + 13 + 10.5 * k, text, size, "middle", ink, k == 0)


def cell_of(f: Facts, at: Configuration | None) -> tuple[str, str]:
    """Return the label of a configuration and its colour: time / best, or the verdict of its compiler."""
    entry, best = f.found.get(at) if at else None, f.best
    if entry is None:
        return ("no data" if at else ""), PAPER
    if entry.ms is None or best is None or best.ms is None:
        return entry.verdict, FITS.colour
    ratio = entry.ms / best.ms
    return f"{ratio:.2f}", ramp(0.9 - 0.85 * min(ratio - 1, 1.0))


# ---------------------------------------------------------------------- roofs
def _roofs(f: Facts, x: float, y: float, narrow: bool) -> Iterator[Element]:
    peak, bottom, top = f.s.chip.tensor_tflops, y + 294, y + 38
    across = Scale(1, 4e4, x + 46, x + PANEL - LABELS, 10, (1.0, 10.0, 100.0, 1000.0))
    frame = Frame(across, Scale(peak / 200, 2.6 * peak, bottom, top, 10))
    yield Text(x, y, "Roofs: TFLOP/s against FLOP per byte", NORMAL, bold=True)
    yield Text(x, y + 16, _roof_note(f), SMALL, colour=QUIET)
    yield from frame.elements("FLOP per byte", "")
    yield from _slopes(f, frame)
    this = [*_this(f, frame)]
    drawn, others = _apart([*_launch_lines(f, frame)], this) if narrow else ([*_launch_lines(f, frame)], [])
    names = [*_ceiling_lines(f, frame), *drawn, *this]
    heights = spread([one.y for one in names], 15, top + 4, bottom)
    for one, height in zip(names, heights, strict=True):
        yield from one.drawn
        yield Poly(((one.x, one.y), (across.stop, one.y), (across.stop + 11, height)), QUIET, 0.7)
        yield Text(across.stop + 14, centred(height, TINY), one.text, TINY, "start", one.colour, one.bold)
    yield from _roof_key(f, x, bottom + 58)
    if others:
        said = "; ".join(one.text for one in others)
        for k, line in enumerate(wrap(f"Near these points, not drawn: {said}.", 54)):
            yield Text(x, bottom + 144 + 15 * k, line, SMALL, colour=QUIET)


def _roof_note(f: Facts) -> str:
    """Return a line on the roofs of a state: why there is none, or which one is bold."""
    d, width = f.s.d, padded(f.s.d)
    if not _runs(f):
        return "no program runs, so this tile is not drawn"
    if unknown_products(f.s):
        return "products: rate not recorded, so this tile has no roof"
    return "bold: the lowest roof" + f"; products: {d:,} of {width:,} columns are not 0" * (width > d)


class _Named(NamedTuple):
    """A line or point of the chart with its name: where the leader to the name begins, and its elements."""

    x: float
    y: float
    text: str
    drawn: list[Element]
    colour: str = INK
    bold: bool = False


APART = 9.0  # pixels between the heights of launches that a narrow figure draws


def _apart(launched: list[_Named], this: list[_Named]) -> tuple[list[_Named], list[_Named]]:
    """Return the launches to draw in a narrow figure, no two at the same height, and the others."""
    drawn, others = list[_Named](), list[_Named]()
    for one in launched:
        free = all(abs(one.y - other.y) >= APART for other in (*this, *drawn))
        (drawn if free else others).append(one)
    return drawn, others


def _slopes(f: Facts, frame: Frame) -> Iterator[Element]:
    """Yield the line of DRAM up to the products (without their roof: to the top), and that of L2."""
    top = ceilings(f.s).get("products", frame.y.high)
    for rate, width, dash in ((f.s.chip.gbytes_per_s, 2.4, ()), (_traffic(f), 1.6, (6.0, 3.0))):
        if rate:
            begin, end = max(frame.x.low, 1000 * frame.y.low / rate), 1000 * top / rate
            yield Poly(tuple(frame.at((at, at * rate / 1000)) for at in (begin, end)), INK, width, dash)


def _traffic(f: Facts) -> float:
    """Return the largest recorded traffic from L2 on this chip in GB/s, or 0."""
    found = fastest_traffic(f.records) if f.s.arch == TIMED_ARCH else None
    return found.gbytes_per_s if found else 0.0


def _ceiling_lines(f: Facts, frame: Frame) -> Iterator[_Named]:
    for name, rate in ceilings(f.s).items():
        label = f"{name} {figures(rate)}"
        if rate > frame.y.high:
            continue
        begin = frame.at((max(frame.x.low, 1000 * rate / (_traffic(f) or f.s.chip.gbytes_per_s)), rate))
        end = frame.at((frame.x.high, rate))
        thick, dash = (2.4, ()) if name == "products" else (1.6, (2.0, 3.0))
        roof = lowest_roof(f.s)
        lowest = roof is not None and _runs(f) and name in roof.names
        yield _Named(*end, label, [Poly((begin, end), INK, thick, dash)], bold=lowest)


def _launch_lines(f: Facts, frame: Frame) -> Iterator[_Named]:
    if f.s.arch != TIMED_ARCH:
        return
    for one in (one for one in launches(f.records) if one.height(f.s.chip)):
        points = [(level, frame.at((one.intensity(level), one.height(f.s.chip)))) for level in one.bytes]
        label = one.name if one.tflops is None else f"{one.name}: {figures(one.tflops)}"
        drawn: list[Element] = [Poly((points[0][1], points[-1][1]), BLUE, 1)] if len(points) > 1 else []
        for level, at in points:
            drawn += _mark(level, at, BLUE, hollow=one.tflops is None)
        yield _Named(*points[-1][1], label, drawn, BLUE)


def _this(f: Facts, frame: Frame) -> Iterator[_Named]:
    rate, roof, found = achieved_tflops(f.s, f.entry), lowest_roof(f.s), intensities(f.s)
    height = rate or (roof.tflops if roof and _runs(f) else 0.0)
    if not height:
        return
    points = [
        (level, frame.at((min(at, frame.x.high), max(height, frame.y.low)))) for level, at in found.items()
    ]
    drawn: list[Element] = [Poly((points[0][1], points[-1][1]), THIS, 2)]
    for level, at in points:
        drawn += _mark(level, at, THIS, hollow=rate is None, size=6)
    said = f"this tile: {figures(rate)}" if rate else f"this tile: at most {figures(height)}"
    yield _Named(*points[-1][1], said, drawn, "#8F3B00", True)


def _mark(level: str, at: tuple[float, float], colour: str, hollow: bool, size: float = 4.5) -> list[Element]:
    made = marker(at, LEVELS[level]._replace(colour=colour), size)
    if hollow:
        made = [Poly(one.points, colour, 1.6, (), PAPER) for one in made if isinstance(one, Poly)]
    return list(made)


def _roof_key(f: Facts, x: float, y: float) -> Iterator[Element]:
    chip, found = f.s.chip, fastest_traffic(f.records) if _traffic(f) else None
    yield Poly(((x, y - 4), (x + 26, y - 4)), INK, 2.4)
    yield Text(x + 34, y, f"DRAM, {chip.gbytes_per_s:,.0f} GB/s (data sheet)", SMALL)
    if found:
        yield Poly(((x, y + 14), (x + 26, y + 14)), INK, 1.6, (6, 3))
        yield Text(
            x + 34, y + 18, f"L2 to SM, {found.gbytes_per_s:,.0f} GB/s: largest recorded, not a roof", SMALL
        )
        yield Text(x + 34, y + 32, f"(by {found.table}, {found.at})", TINY, colour=QUIET)
    else:
        yield Text(x + 34, y + 18, "L2 to SM: bandwidth unmeasured, no roof", SMALL)
    for level, left in zip((SM, L2, DRAM), (x, x + 90, x + 222), strict=True):
        yield from marker((left + 6, y + 48), LEVELS[level]._replace(colour=INK))
        yield Text(left + 16, y + 52, f"{level} (looked up)" if level == L2 else level, SMALL)
    yield circle((x + 6, y + 64), 4.5, PAPER, 1.6, 12)
    yield Text(x + 16, y + 68, "hollow: no recorded rate, drawn at its lowest roof", SMALL)


# ---------------------------------------------------------------------- in words
def time_text(f: Facts) -> str:
    """Return a sentence on the recorded time of this configuration, compared with the shortest."""
    entry, best = f.entry, f.best
    if best is None or best.ms is None:
        where = "on an H200 in 16 bits, d = 64 and 128" if f.s.arch != TIMED_ARCH else "for these sizes"
        return f"Not timed: no time is recorded on {f.s.chip.name}" + (
            "." if f.s.arch != TIMED_ARCH else f" {where}."
        )
    if entry is None or entry.ms is None:
        return f"Not timed. The fastest of the timed ones is {best.at}: {duration(1000 * best.ms)}."
    both = ", both halves of the backward pass" if f.s.kernel in HALVES else ""
    at = f" at N = {TIMED_N:,}" if f.s.N != TIMED_N else ""
    if entry.at == best.at:
        return f"{duration(1000 * entry.ms)}{at}{both}: the fastest of the timed configurations."
    text = f"{duration(1000 * entry.ms)}{at}{both}: {entry.ms / best.ms:.2f} × the fastest, {best.at}"
    own = fastest({one: found for one, found in f.found.items() if one[:2] == entry.at[:2]})
    if own is None or own.ms is None or own.at in (entry.at, best.at):
        return f"{text}."
    return f"{text}; {own.at} takes {own.ms / best.ms:.2f} ×."


def _runs(f: Facts) -> bool:
    """Return False if it is recorded that no program fits on an SM."""
    found = occupancy(f.s, f.entry)
    return found is None or found.programs > 0


def occupancy_text(f: Facts) -> str:
    """Return a sentence on the programs of one SM and what limits them."""
    found, why = occupancy(f.s, f.entry), f.entry and f.entry.required
    if why:
        most = words(f.s.chip.shared_bytes / 1024)
        return f"Refused: a program needs {words(why / 1024)} KB of shared memory, {most} KB are possible"
    if found is None:
        return "Programs per SM: unknown, because this configuration was not compiled"
    if not found.programs:
        return f"No program fits on an SM, because of {' and '.join(found.limits)}"
    programs, groups = with_unit(found.programs, "program"), figures(found.warpgroups)
    return (
        f"{programs} per SM, limited by {' and '.join(found.limits)}: {with_unit(found.warps, 'warp')} "
        f"({groups} warpgroups)"
    )


def roof_text(f: Facts) -> str:
    """Return a sentence on the lowest roof, with the share of it that was reached, or why none is known."""
    roof, rate = lowest_roof(f.s), achieved_tflops(f.s, f.entry)
    if not _runs(f):
        return "No roof, because no program runs"
    if roof is None:
        return f"Lowest roof: unknown, because {unknown_products(f.s)} and no other rate is recorded"
    said = f"Lowest roof: {' and '.join(roof.names)}, {figures(roof.tflops)} TFLOP/s"
    if "products" in roof.names and padded(f.s.d) > f.s.d:
        said += f" ({padded(f.s.d):,} columns are multiplied for d = {f.s.d:,})"
    return f"{said}; recorded {figures(rate)}, {rate / roof.tflops:.2f} of it" if rate else said


def traffic_text(f: Facts) -> str:
    """Return a sentence on what the largest recorded traffic from L2 would allow, or why there is none."""
    rate = _traffic(f)
    if not _runs(f):
        return ""
    if not rate:
        return "L2 to SM: bandwidth unmeasured, no roof"
    allowed = intensities(f.s)[SM] * rate / 1000
    return (
        f"At the largest recorded traffic from L2 to the SMs, {rate:,.0f} GB/s: {figures(allowed)} TFLOP/s "
        "(not a roof, more may be possible)"
    )


def kernel_explorer_headline(s: KernelState, records: Records, note: str = "") -> str:
    """Return the headline of a state as HTML: programs per SM, time, lowest roof, traffic from L2, what
    dispatch launches, and `note`.
    """
    f = facts(s, records)
    lines = (occupancy_text(f), time_text(f), roof_text(f), traffic_text(f), dispatch_text(s), note)
    bold_first, *others = (f"{one.removesuffix('.')}." if one else "" for one in lines)
    return paragraph([bold(bold_first), *others])


def dispatch_text(s: KernelState) -> str:
    """Return a sentence on what dispatch launches for these sizes: this kernel with its tile, or another."""
    if s.kernel == DRAFT:
        return "The draft is not a kernel of the library"
    found, backward = dispatch(s), s.compiled_as != "forward"
    if found.launched:
        return f"Dispatch launches {shipped(s)}" + f" (backward pass: {found.value})" * backward
    if found.option:
        return f"Dispatch launches {found.value} here, and this kernel with {found.option}: {shipped(s)}"
    pass_ = "backward pass" if backward else "forward pass"
    kernels = ", ".join(found.kernels)
    return f"Dispatch does not launch this kernel here: its {pass_} is {found.value} ({kernels})"


def _alt(f: Facts) -> str:
    found = intensities(f.s)
    said = [
        kernel_explorer_title(f.s),
        occupancy_text(f),
        _compiled_text(f).removesuffix("."),
        _shared_text(f.s).removesuffix("."),
        time_text(f).removesuffix("."),
        roof_text(f),
        *filter(None, [traffic_text(f)]),
        f"FLOP per byte: {words(found[SM])} from L2 to the SMs, {words(found[DRAM])} from DRAM",
        dispatch_text(f.s),
    ]
    return ". ".join(said) + "."


def _numbers(f: Facts) -> str:
    moved, found = launch_bytes(f.s), intensities(f.s)
    rows = [["limit", "programs per SM"]]
    rows += [[one.limit, quotient_text(one)] for one in quotients(f.s, f.entry)]
    tiles = [["configuration", "ms", "time / best", "compiler"]]
    best = f.best
    for one in sorted(f.found.values(), key=lambda one: (one.ms or float("inf"), one.at)):
        timed = one.ms is not None and best is not None and best.ms
        ratio = f"{one.ms / best.ms:.3f}" if timed and one.ms and best and best.ms else "not timed"
        tiles.append(
            [str(one.at), f"{one.ms:.4f}" if one.ms else "", ratio, one.verdict if one.compiler else ""]
        )
    levels = [["one head", "MB", "FLOP per byte"]]
    levels += [[level, figures(moved[level] / 1e6, 4), figures(found[level], 4)] for level in moved]
    roofs = [["roof", "TFLOP/s"], *([name, figures(rate)] for name, rate in ceilings(f.s).items())]
    parts = [table(rows, left=0), table(tiles, left=0), table(levels, left=0), table(roofs, left=0)]
    if f.s.arch == TIMED_ARCH and (known := launches(f.records)):
        parts.append(table(launch_rows(known), left=0))
    if _traffic(f):
        found_in = fastest_traffic(f.records)
        where = f" ({found_in.table}, {found_in.at})" if found_in else ""
        parts.append(f"L2 to SM: at least {_traffic(f):,.0f} GB/s{where}")
    if f.best and table_name(f.s) in f.records.timed:
        parts.append(f"table of times: {table_name(f.s)}")
    return "\n".join([*parts, f"{dispatch_text(f.s)}."])


def launch_rows(known: list[Launch]) -> list[list[str]]:
    """Return the recorded launches as text: name, tile, TFLOP/s, and per level MB and FLOP per byte."""
    rows = [["recorded launch", "tile", "TFLOP/s", *(f"{level}, MB (FLOP/B)" for level in LEVELS)]]
    for one in known:
        cells = [
            f"{figures(one.bytes[level] / 1e6, 4)} ({figures(one.intensity(level), 4)})"
            if level in one.bytes
            else ""
            for level in LEVELS
        ]
        name = one.name if one.counted else f"{one.name} (closed form)"
        rows.append([name, one.tile, figures(one.tflops) if one.tflops else "not timed", *cells])
    return rows
