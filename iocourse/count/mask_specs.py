"""Build a mask of square tiles from its specification on the command line, such as window:4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from .. import masks
from ..errors import UsageError
from ..masks import BlockMask
from ..sizes import positive_int

SIDE = 64  # of the tiles, by default
MOST = 4096  # tiles along one side: 16 million in the grid


class Rule(NamedTuple):
    """One kind of mask: names of the numbers in its specification, and a function build(N, B, *numbers)."""

    numbers: tuple[str, ...]
    build: Callable[..., BlockMask]
    optional: tuple[str, ...] = ()

    @property
    def form(self) -> str:
        """Form of the numbers after the name, such as :G,W,R."""
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


def mask_from_spec(spec: str, N: int, B: int, option: str = "--mask") -> BlockMask:
    """Return the mask of specification `spec`, for N queries in tiles of side B.

    Raises UsageError that names `option` and the wrong part.
    """
    name, colon, rest = spec.partition(":")
    if name not in RULES:
        raise UsageError(f"{option} must be one of {FORMS}; got {spec!r}")
    rule = RULES[name]
    given = rest.split(",") if colon else []
    least, most = len(rule.numbers), len(rule.numbers) + len(rule.optional)
    if not least <= len(given) <= most:
        raise UsageError(
            f"{option} must have the form {name}{rule.form}, got {spec!r} with {len(given)} numbers"
        )
    _check_side(N, B)
    names = (*rule.numbers, *rule.optional)
    numbers = [_number(f"{option} {spec!r}", part, value) for part, value in zip(names, given, strict=False)]
    return rule.build(N, B, *numbers)


def _check_side(N: int, B: int) -> None:
    tiles = -(-N // positive_int("--block", B))
    if tiles > MOST:
        made = f"--block {B} gives {tiles} x {tiles} tiles for N = {N}, more than {MOST} x {MOST}"
        raise UsageError(f"{made}; use at least {-(-N // MOST)}")


def _number(where: str, part: str, value: str) -> Any:
    """Return `value` as a probability P, a step S of at least 1, or a number of tiles of at least 0."""
    least = 1 if part == "S" else 0
    allowed = "a number from 0 to 1" if part == "P" else f"an integer of at least {least}"
    try:
        number = float(value) if part == "P" else int(value)
    except ValueError:
        number = -1
    if not least <= number <= (1 if part == "P" else float("inf")):
        raise UsageError(f"{where}: {part} must be {allowed}, got {value!r}")
    return number
