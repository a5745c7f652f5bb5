"""Masks by name, as the command line takes them: a rule for a grid of square tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import masks
from ..errors import UsageError
from ..masks import BlockMask
from ..sizes import positive_int

SIDE = 64  # of the tiles, where nothing else is said
MOST = 4096  # tiles along one side: 16 million in the grid


class Rule(NamedTuple):
    """How a mask is built from N, the side B of a tile, and the numbers after its name."""

    numbers: tuple[str, ...]
    build: Callable[..., BlockMask]
    optional: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """What stands after the name."""
        rest = "".join(f"[,{name}]" for name in self.optional)
        return f":{','.join(self.numbers)}{rest}" if self.numbers else ""


RULES = {
    "causal": Rule((), masks.causal),
    "window": Rule(("W",), masks.sliding_window),
    "bigbird": Rule(("G", "W", "R"), masks.bigbird),
    "strided": Rule(("S",), masks.strided),
    "random": Rule(("P",), lambda N, B, P, seed=0: masks.random(N, B, P, seed=seed), ("SEED",)),
}
FORMS = ", ".join(f"{name}{rule.form}" for name, rule in RULES.items())


def build(spec: str, N: int, B: int, option: str = "--mask") -> BlockMask:
    """The mask that `spec` names, for N queries in tiles of side B. Raises UsageError naming the part of the
    option.
    """
    name, colon, rest = spec.partition(":")
    if name not in RULES:
        raise UsageError(f"{option} {spec!r} is unknown; allowed are {FORMS}")
    rule = RULES[name]
    given = rest.split(",") if colon else []
    least, most = len(rule.numbers), len(rule.numbers) + len(rule.optional)
    if not least <= len(given) <= most:
        raise UsageError(f"{option} {spec!r} has {len(given)} numbers; allowed is {name}{rule.form}")
    _check_side(N, B)
    names = (*rule.numbers, *rule.optional)
    numbers = [_number(f"{option} {spec!r}", part, value) for part, value in zip(names, given, strict=False)]
    return rule.build(N, B, *numbers)


def _check_side(N: int, B: int) -> None:
    tiles = -(-N // positive_int("--block", B))
    if tiles > MOST:
        made = f"--block {B} makes {tiles} x {tiles} tiles of N = {N}, more than {MOST} x {MOST}"
        raise UsageError(f"{made}: take at least {-(-N // MOST)}")


def _number(where: str, part: str, value: str) -> Any:
    """A probability P, a step S of at least 1, or a number of tiles, which may be 0."""
    least = 1 if part == "S" else 0
    allowed = "a number from 0 to 1" if part == "P" else f"a whole number of at least {least}"
    try:
        number = float(value) if part == "P" else int(value)
    except ValueError:
        number = -1
    if not least <= number <= (1 if part == "P" else float("inf")):
        raise UsageError(f"{where}: {part} must be {allowed}, got {value!r}")
    return number
