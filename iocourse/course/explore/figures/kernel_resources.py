"""Figure of compiler resources by tile and chip: registers, spills, shared memory, tensor cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import log2
from typing import Any, NamedTuple

from ....console import table
from ....gpu import chip_of
from ....gpu.chips import REGISTERS_A_THREAD
from ..draw.palette import FILLS, FORBIDDEN, INK, PAPER, QUIET, VERMILION, WRONG, Fill
from ..draw.picture import (
    NORMAL,
    SMALL,
    Element,
    Picture,
    Poly,
    Rect,
    Text,
    centred,
    figure,
    text_width,
    titled,
)
from ..draw.text import words

SMALLEST_DOT = 16  # smallest size of an operand of tl.dot
TOP, ROW, PLOT = 118.0, 128.0, 78.0  # top of the first panels; from chip to chip; height of the bars
BAR, APART, ONE, GAP = (
    22.0,
    6.0,
    18.0,
    38.0,
)  # widths: bar, gap between groups, column of BN = 1, gap between panels
WIDEST_HEAD = 180.0  # minimum width of a panel, for its heading
TINY = 10.0  # size of the numbers on the bars
HEADS = (
    "registers per thread",
    "spilled bytes per thread",
    "KB of shared memory",
    "tensor-core instructions",
)


class _Tile(NamedTuple):
    """One compiled tile. `refused` is the error of the compiler; then the other numbers are 0."""

    BM: int
    BN: int
    warps: int
    refused: str = ""
    registers: int = 0
    spilled: int = 0
    shared: int = 0
    tensor_core: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> _Tile:
        """Read a row of the record."""
        at = row["BM"], row["BN"], row["warps"]
        if "error" in row:
            return cls(*at, str(row["error"]))
        return cls(*at, "", row["registers"], row["spill_bytes"], row["shared_bytes"], row["tensor_core"])

    def __str__(self) -> str:
        if self.refused:
            return "refused"
        told = f"{self.registers}, {self.spilled}, {self.shared / 1024:.0f}, {self.warps}"
        return told if self.tensor_core else f"{told} *"

    @property
    def rank(self) -> tuple[bool, int, int]:
        """Sort key: the smallest is the best number of warps for a tile."""
        return bool(self.refused), self.spilled, self.registers


_Chips = dict[int, dict[tuple[int, int], _Tile]]


@figure
def kernel_resources(
    rows: Sequence[Mapping[str, Any]],
    *,
    d: int,
    chips: Sequence[int] | None = None,
    warps: int | None = None,
    title: str | None = None,
) -> Picture:
    """Compiler resources of the forward kernel by tile: one row of panels per chip, BN to the right.

    Args:
        rows: the list `forward_by_tile` in the record of `python -m tools.bench resources`.
        d: head dimension to show.
        chips: architectures to show, such as [75, 80, 90]; None shows all in `rows`.
        warps: per program; None selects for each tile the number with the fewest spills, then registers.
        title: of the figure.

    Raises:
        ValueError: `rows` has no entry for this d, one of these chips, or this number of warps.
    """
    shown = _read(rows, d, chips, warps)
    sizes = _Sizes.of(shown)
    name = title or f"The forward kernel's resources by tile, d = {d}"
    drawn = list(_key(shown, sizes))
    drawn += [Text(sizes.panel(k), TOP - 18, head, SMALL, bold=True) for k, head in enumerate(HEADS)]
    for k, (arch, tiles) in enumerate(shown.items()):
        drawn += _chip(sizes, TOP + ROW * k, arch, tiles)
    size = sizes.panel(3) + sizes.across + 24, TOP + ROW * len(shown) + 4
    chosen = f"{warps} warps" if warps else "with the number of warps that spills least"
    told = [
        f"{name}: for each chip, bars of registers per thread, spilled bytes per thread and KB of shared "
        f"memory by BN and BM, and the number of tensor-core instructions, {chosen}",
        f"a grey column without numbers marks BN = 1, because tl.dot needs at least {SMALLEST_DOT}",
    ]
    told += [_chip_in_words(arch, list(tiles.values())) for arch, tiles in shown.items()]
    return titled(name, size, ". ".join(told) + ".", _numbers(shown, sizes, chosen), drawn)


def _read(
    rows: Sequence[Mapping[str, Any]], d: int, chips: Sequence[int] | None, warps: int | None
) -> _Chips:
    wanted = [row for row in rows if row["d"] == d and warps in (None, row["warps"])]
    arches = list(dict.fromkeys(row["arch"] for row in wanted)) if chips is None else list(chips)
    if chips is not None and not arches:
        raise ValueError("chips must contain at least one, such as 90, got none")
    if not wanted:
        there = sorted({(row["d"], row["warps"]) for row in rows})
        raise ValueError(f"rows has no entry for d = {d}, warps = {warps}; recorded (d, warps): {there}")
    found: _Chips = {}
    for arch in arches:
        chip_of(arch)
        best: dict[tuple[int, int], _Tile] = {}
        for row in (row for row in wanted if row["arch"] == arch):
            tile = _Tile.of(row)
            at = tile.BM, tile.BN
            if at not in best or tile.rank < best[at].rank:
                best[at] = tile
        found[arch] = best
        if not found[arch]:
            raise ValueError(f"rows has no entry for chips = {arch}, d = {d}, warps = {warps}")
    return found


# ---------------------------------------------------------------------- layout
class _Sizes(NamedTuple):
    """Data that all panels share: tile sizes on both axes, maxima of the scales, left edge in pixels."""

    BMs: tuple[int, ...]
    BNs: tuple[int, ...]
    most_spilled: int
    most_shared: float  # KB
    left: float

    @classmethod
    def of(cls, shown: _Chips) -> _Sizes:
        """Return the layout for the chips."""
        tiles = [tile for of_chip in shown.values() for tile in of_chip.values()]
        limits = [chip_of(arch).shared_bytes for arch in shown]
        return cls(
            tuple(sorted({tile.BM for tile in tiles})),
            tuple(sorted({tile.BN for tile in tiles})),
            max(tile.spilled for tile in tiles),
            max([*limits, *(tile.shared for tile in tiles)]) / 1024,
            max(text_width(part, NORMAL) for arch in shown for part in _name_parts(arch)) + 40,
        )

    @property
    def group(self) -> float:
        """Pixels per BN, wide enough for the word "refused"."""
        return max(BAR * len(self.BMs) + APART, 48.0)

    @property
    def across(self) -> float:
        """Pixels per panel."""
        return max(ONE + self.group * len(self.BNs), WIDEST_HEAD)

    def panel(self, number: int) -> float:
        """Return the left edge of a panel."""
        return self.left + number * (self.across + GAP)

    def bar(self, left: float, tile: _Tile) -> float:
        """Return the left edge of the bar of a tile in the panel that starts at `left`."""
        middle = left + ONE + self.group * (self.BNs.index(tile.BN) + 0.5)
        return middle + BAR * (self.BMs.index(tile.BM) - len(self.BMs) / 2)


def _fill(sizes: _Sizes, BM: int) -> Fill:
    return FILLS[sizes.BMs.index(BM) % len(FILLS)]


# ---------------------------------------------------------------------- the panels of one chip
def _chip(sizes: _Sizes, top: float, arch: int, tiles: Mapping[tuple[int, int], _Tile]) -> Iterator[Element]:
    chip, floor = chip_of(arch), top + PLOT
    for k, part in enumerate(_name_parts(arch)):
        size, colour = (SMALL, QUIET) if k else (NORMAL, INK)
        yield Text(18, top + 26 + 18 * k, part, size, bold=not k, colour=colour)
    for k in range(3):
        yield from _axis(sizes, sizes.panel(k), floor)
    shared = chip.shared_bytes / 1024
    yield from _limit(sizes, 0, floor, PLOT, f"{REGISTERS_A_THREAD}")
    yield from _limit(sizes, 2, floor, PLOT * shared / sizes.most_shared, words(shared))
    for tile in tiles.values():
        yield from _bars(sizes, floor, tile, chip.shared_bytes)
    yield from _tensor_cores(sizes, top, tiles)


def _name_parts(arch: int) -> tuple[str, ...]:
    """Return the name of a chip in two or three lines, such as "A100", "SXM 80 GB", "sm_80"."""
    # <!-- 80 = float(CHIPS[80].name.split()[-2]) -->
    return (*chip_of(arch).name.split(" ", 1), f"sm_{arch}")


def _axis(sizes: _Sizes, left: float, floor: float) -> Iterator[Element]:
    """Yield the base line of a panel, the labels of BN, and the grey column of BN = 1."""
    yield Poly(((left, floor), (left + sizes.across, floor)), INK, 1.2)
    yield Rect(left + 2, floor - PLOT, ONE - 4, PLOT, FORBIDDEN)
    for at, label in [(left + ONE / 2, "1"), *_centres(sizes, left)]:
        yield Text(at, floor + 14, label, TINY, "middle", QUIET)
    yield Text(left - 5, floor + 14, "BN", TINY, "end", QUIET)


def _centres(sizes: _Sizes, left: float) -> Iterator[tuple[float, str]]:
    for k, BN in enumerate(sizes.BNs):
        yield left + ONE + sizes.group * (k + 0.5), str(BN)


def _limit(sizes: _Sizes, panel: int, floor: float, height: float, label: str) -> Iterator[Element]:
    """Yield the dashed line of a limit, with its number to the right."""
    left, y = sizes.panel(panel), floor - height
    yield Poly(((left, y), (left + sizes.across, y)), INK, 1.2, (4, 3))
    yield Text(left + sizes.across + 4, centred(y, TINY), label, TINY)


def _bars(sizes: _Sizes, floor: float, tile: _Tile, limit: int) -> Iterator[Element]:
    if tile.refused:
        left = sizes.bar(sizes.panel(0), tile)
        yield Rect(left + 1, floor - PLOT, BAR - 2, PLOT, PAPER, "x", QUIET)
        return
    spilled = log2(tile.spilled) / log2(max(sizes.most_spilled, 2)) if tile.spilled else 0.0
    kilobytes = tile.shared / 1024
    yield from _bar(sizes, 0, floor, tile, tile.registers / REGISTERS_A_THREAD, str(tile.registers))
    few = (
        str(tile.spilled) if tile.spilled < 1000 else f"{tile.spilled / 1000:.0f}K"
    )  # at most three characters
    yield from _bar(sizes, 1, floor, tile, spilled, few)
    yield from _bar(
        sizes, 2, floor, tile, kilobytes / sizes.most_shared, f"{kilobytes:.0f}", tile.shared > limit
    )


def _bar(
    sizes: _Sizes, panel: int, floor: float, tile: _Tile, share: float, label: str, over: bool = False
) -> Iterator[Element]:
    """Yield a bar with its number above it, highlighted if it exceeds the limit of the chip or spills."""
    left, height = sizes.bar(sizes.panel(panel), tile), PLOT * share
    bad = over or (panel < 2 and tile.spilled > 0)
    if height:
        edge, line = (VERMILION, 2.5) if bad else (INK, 0.8)
        yield Rect(left + 1.5, floor - height, BAR - 3, height, *_fill(sizes, tile.BM), edge, line)
    colour = WRONG if bad else INK
    yield Rect(left + 2, floor - height - 12, BAR - 4, 9, PAPER)  # hides the limit line behind the number
    yield Text(left + BAR / 2, floor - height - 4, label, TINY, "middle", colour, bad)


def _tensor_cores(sizes: _Sizes, top: float, tiles: Mapping[tuple[int, int], _Tile]) -> Iterator[Element]:
    """Yield a small table of tensor-core instructions, BM down and BN across."""
    left = sizes.panel(3)
    for at, label in _centres(sizes, left):
        yield Text(at, top + 10, label, TINY, "middle", QUIET)
    for row, BM in enumerate(sizes.BMs):
        y = top + 32 + 22 * row
        yield Rect(left, y - 10, 12, 12, *_fill(sizes, BM), INK, 0.8)
        for (at, _), BN in zip(_centres(sizes, left), sizes.BNs, strict=True):
            if tile := tiles.get((BM, BN)):
                none = "refused" if tile.refused else "none"
                said, colour = (words(tile.tensor_core), INK) if tile.tensor_core else (none, WRONG)
                yield Text(at, y, said, TINY, "middle", colour, not tile.tensor_core)


# ---------------------------------------------------------------------- the key
def _key(shown: _Chips, sizes: _Sizes) -> Iterator[Element]:
    """Yield the legend of colours, outlines and hatches."""
    entries = [(Rect(0, 0, 14, 14, *_fill(sizes, BM), INK, 0.8), f"BM = {BM}") for BM in sizes.BMs]
    entries.append((Rect(0, 0, 14, 14, FORBIDDEN, "", QUIET), "BN = 1: below the minimum of tl.dot, 16"))
    if any(
        tile.spilled or tile.shared > chip_of(arch).shared_bytes
        for arch, tiles in shown.items()
        for tile in tiles.values()
    ):
        entries.append(
            (Rect(0, 0, 14, 14, PAPER, "", VERMILION, 2.5), "spilled, or more than the chip provides")
        )
    if any(tile.refused for tiles in shown.values() for tile in tiles.values()):
        entries.append((Rect(0, 0, 14, 14, PAPER, "x", QUIET), "refused by the compiler"))
    x = 18.0
    for box, label in entries:
        yield replace(box, x=x, y=48)
        yield Text(x + 20, 60, label, SMALL)
        x += 40 + text_width(label, SMALL)


# ---------------------------------------------------------------------- in words
def _chip_in_words(arch: int, tiles: Sequence[_Tile]) -> str:
    chip, compiled = chip_of(arch), [tile for tile in tiles if not tile.refused]
    told = [f"{chip.name}: {len(tiles)} tiles"]
    if len(compiled) < len(tiles):
        told.append(f"{len(tiles) - len(compiled)} refused by the compiler")
    spilling = [tile for tile in compiled if tile.spilled]
    most = f", up to {max((tile.spilled for tile in spilling), default=0):,} bytes" if spilling else ""
    told.append(f"{_names(spilling)} spill{'s' if len(spilling) == 1 else ''}{most}")
    large = [tile for tile in compiled if tile.shared > chip.shared_bytes]
    limit = f"the chip's {words(chip.shared_bytes / 1024)} KB of shared memory"
    told.append(f"{_names(large)} need{'s' if len(large) == 1 else ''} more than {limit}")
    with_cores = sum(tile.tensor_core > 0 for tile in compiled)
    return "; ".join([*told, f"{with_cores} of {len(tiles)} use tensor cores"])


def _names(tiles: Sequence[_Tile]) -> str:
    return ", ".join(f"{tile.BM} × {tile.BN}" for tile in tiles) or "none"


def _numbers(shown: _Chips, sizes: _Sizes, chosen: str) -> str:
    head = ["registers, spilled bytes, KB shared, warps", "BM", *(f"BN = {BN}" for BN in sizes.BNs)]
    lines = [
        [
            f"{chip_of(arch).name} (of {chip_of(arch).shared_bytes // 1024} KB)",
            str(BM),
            *(str(tiles.get((BM, BN), "not compiled")) for BN in sizes.BNs),
        ]
        for arch, tiles in shown.items()
        for BM in sizes.BMs
    ]
    reasons = [
        f"{chip_of(arch).name}, {tile.BM} × {tile.BN}: {tile.refused}"
        for arch, tiles in shown.items()
        for tile in tiles.values()
        if tile.refused
    ]
    note = f"{chosen}; * without tensor-core instructions"
    return "\n".join([table([head, *lines], left=0), note, *reasons])
