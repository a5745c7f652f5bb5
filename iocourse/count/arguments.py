"""What the arguments ask: a schedule, its sizes, what it computes and with which tiles."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..masks import BlockMask, Mask
from ..schedules import REGISTRY, Schedule, mask_of
from ..sizes import positive_int, zero_or_more
from . import mask_specs

TILE_OPTIONS = ("Br", "Bc", "Bd")
DEGREE = 2  # of a polynomial, where --g is not given


@dataclass(frozen=True)
class Question:
    """One schedule at N, d, M. `settings` is what it is told beside its tiles: mask, w, g, lse."""

    schedule: Schedule
    N: int
    d: int
    M: int
    settings: dict[str, Any]
    tiles: dict[str, int]
    note: str
    mask_name: str
    recompute: bool

    @property
    def told(self) -> dict[str, Any]:
        """Settings and tiles together, as a schedule takes them."""
        return self.settings | self.tiles

    @property
    def grid(self) -> BlockMask | None:
        """The mask of --mask."""
        return self.settings.get("mask")

    @property
    def seen(self) -> Mask | None:
        """The pairs that matter, by --mask or --w; None where all do."""
        return mask_of(self.N, self.settings)


def question(arguments: argparse.Namespace) -> Question:
    """The question the arguments ask. Raises UsageError, and ValueError naming an argument."""
    schedule = _schedule(arguments.name)
    _refuse_what_it_does_not_take(schedule, arguments)
    missing = [f"--{size}" for size in "NdM" if getattr(arguments, size) is None]
    if missing:
        raise UsageError(f"{' and '.join(missing)} must be given")
    N, d, M = (positive_int(f"--{name}", getattr(arguments, name)) for name in "NdM")
    given = _given_tiles(schedule, arguments)
    settings = _settings(schedule, arguments, N)
    tiles, note = _tiles(schedule, N, d, M, given, settings, arguments.published)
    return Question(
        schedule, N, d, M, settings, tiles, note, arguments.mask or "", not arguments.no_recompute
    )


def _schedule(name: str | None) -> Schedule:
    built = ", ".join(REGISTRY)
    if name is None:
        raise UsageError(f"NAME is missing; there are {built}")
    if name not in REGISTRY:
        raise UsageError(f"NAME {name!r} is unknown; there are {built}")
    return REGISTRY[name]


def _takers(setting: str) -> str:
    return ", ".join(s.name for s in REGISTRY.values() if setting in (*s.needs, *s.options))


def _refuse_what_it_does_not_take(schedule: Schedule, arguments: argparse.Namespace) -> None:
    takes = (*schedule.needs, *schedule.options)
    for option in ("mask", "w", "lse", "g"):
        value = getattr(arguments, option)
        if value is not None and value is not False and option not in takes:  # --g 0 is an option given
            others = f"; these do: {_takers(option)}" if _takers(option) else ""
            raise UsageError(f"{schedule.name} takes no --{option}{others}")
    if arguments.block is not None and arguments.mask is None:
        raise UsageError("--block is the side of the tiles of --mask, which is not given")
    if arguments.no_recompute and schedule.pass_ != "forward":
        raise UsageError(f"{schedule.name} takes no --no-recompute: bound B is one of the forward pass")
    if arguments.no_recompute and schedule.approximates is not None:
        raise UsageError(
            f"{schedule.name} takes no --no-recompute: it is an approximation and forms no score"
        )


def _settings(schedule: Schedule, arguments: argparse.Namespace, N: int) -> dict[str, Any]:
    settings: dict[str, Any] = {"lse": True} if arguments.lse else {}
    if "w" in schedule.needs:
        if arguments.w is None:
            raise UsageError(f"{schedule.name} needs --w W: the keys seen to either side of a query")
        settings["w"] = zero_or_more("--w", arguments.w)
    if "g" in schedule.needs:
        settings["g"] = positive_int("--g", DEGREE if arguments.g is None else arguments.g)
    if arguments.mask is not None:
        side = arguments.block if arguments.block is not None else arguments.Br or mask_specs.SIDE
        settings["mask"] = mask_specs.build(arguments.mask, N, positive_int("--block", side))
    elif "mask" in schedule.needs:
        raise UsageError(f"{schedule.name} needs --mask MASK, one of {mask_specs.FORMS}")
    return settings


def _given_tiles(schedule: Schedule, arguments: argparse.Namespace) -> dict[str, int]:
    by_name = {tile: getattr(arguments, tile) for tile in TILE_OPTIONS}
    given = {tile: size for tile, size in by_name.items() if size is not None}
    for tile, size in arguments.tile:
        if given.setdefault(tile, size) != size:
            raise UsageError(f"the tile size {tile} is given twice, as {given[tile]} and {size}")
    for name, size in given.items():
        if name not in schedule.tile_names:
            has = ", ".join(schedule.tile_names) or "none"
            raise UsageError(
                f"{schedule.name} takes no --{name}"
                if name in TILE_OPTIONS
                else f"{schedule.name} has no tile size {name}; it has {has}"
            )
        positive_int(f"the tile size {name}", size)
    return given


def _tiles(
    schedule: Schedule,
    N: int,
    d: int,
    M: int,
    given: dict[str, int],
    settings: dict[str, Any],
    published: bool,
) -> tuple[dict[str, int], str]:
    """The tile sizes to count with, and where they come from."""
    problem = {name: value for name, value in settings.items() if name != "lse"}
    if published:
        return _published(schedule, N, d, M, given), "tiles as published"
    picked = schedule.tiles(N, d, M, **problem)
    if not given:
        return picked, schedule.note(N, d, M, **schedule.needed(settings))
    left = [name for name in picked if name not in given]
    note = f"tiles as given; {', '.join(left)} as picked for M" if left else "tiles as given"
    return picked | given, note


def _published(schedule: Schedule, N: int, d: int, M: int, given: dict[str, int]) -> dict[str, int]:
    """The sizes of its paper. Raises UsageError beside sizes of one's own, or where they do not fit."""
    if given:
        raise UsageError(
            f"--published and --{next(iter(given))} both say what the tiles are; give one of them"
        )
    try:
        return schedule.tiles(N, d, M, published=True)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
