"""The controls of an explorer, as data: what each offers, where it stands, and what its values are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any


@dataclass
class Control:
    """One control. `offered` holds its values by name: names are what a reader sees, hears and sends back.

    kind: slider, player (a slider that plays), choice (all names in view), list (they drop down), tick or
    button. `free`: a slider that takes what lies between its ends too, for a pointer or a script; whole
    numbers, where those it offers are.
    """

    kind: str
    name: str
    label: str
    offered: Mapping[str, Any]
    value: Any = None
    free: bool = False
    hint: str = ""  # what a button does
    interval: int = 0  # milliseconds of a step that a player takes
    group: str = ""  # neighbours of one group stand in a frame with this name
    hangs: tuple[float, float] | None = None  # the place of the picture that their frame hangs from, if any
    steers: tuple[str, ...] = ()  # sliders that the arrow keys on it move: across, and down
    hidden: bool = False
    disabled: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """All it can be moved to, by name; where it stands is among them."""
        if self.kind == "button" or self.value in self.offered.values():
            return dict(self.offered)
        return dict(sorted({**self.offered, called(self.value): self.value}.items(), key=itemgetter(1)))

    def offer(self, offered: Mapping[str, Any]) -> None:
        """Offer other values; where its own is gone, it goes to the next smaller number, or the first."""
        values = list(offered.values())
        smaller = [one for one in values if self.kind != "list" and one <= self.value]
        self.offered = offered
        self.value = self.value if self.value in values else max(smaller, default=values[0])

    def move_to(self, value: Any) -> None:
        """Stand on a value. Raises ValueError, which says what there is."""
        values = list(self.offered.values())
        between = self.free and isinstance(value, type(values[0])) and values[0] <= value <= values[-1]
        if value not in values and not between:
            raise ValueError(f"{self.name} = {value!r}: {self._allowed()}")
        self.value = next((one for one in values if one == value), value)

    def move_near(self, value: Any) -> None:
        """Stand on a number, or the end of the slider before it."""
        values = self.offered.values()
        self.move_to(min(max(value, min(values)), max(values)))

    def _allowed(self) -> str:
        texts = list(self.offered)
        if self.free:
            kind = "whole numbers" if isinstance(self.offered[texts[0]], int) else "numbers"
            return f"it takes {kind} from {texts[0]} to {texts[-1]}"
        return f"it offers {', '.join(texts if len(texts) <= 12 else [*texts[:3], '…', texts[-1]])}"

    def on_page(self, width: float, height: float) -> dict[str, Any]:
        """What the page is told of it, beside a picture of this size."""
        seen = {name: told for name, told in vars(self).items() if name not in ("offered", "value")}
        at = None if self.kind == "button" else list(self.options.values()).index(self.value)
        hangs = self.hangs and (self.hangs[0] / width, self.hangs[1] / height)
        return {**seen, "texts": list(self.options), "at": at, "hangs": hangs}


def called(value: float) -> str:
    """The name of a number."""
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def by_name(values: Iterable[float]) -> dict[str, Any]:
    """Numbers from the least to the largest, each under its name."""
    return {called(value): value for value in sorted(set(values))}


def slider(name: str, label: str, values: Iterable[float] = (), value: Any = None, **others: Any) -> Control:
    """A slider over these numbers; all of them whole, or none. `others` are fields of a Control."""
    return Control("slider", name, label, by_name(values), value, **others)


def size_slider(name: str, label: str, first: int, last: int, per_octave: int) -> Control:
    """A slider with so many numbers from each to its double, that takes those between them too."""
    powers = [first << k for k in range((last // first).bit_length())]
    values = {power + power * k // per_octave for power in powers for k in range(per_octave)}
    return slider(name, label, (value for value in values if value <= last), free=True)


def player(interval: int, last: int = 0) -> Control:
    """The steps 0 to `last`: a slider, and buttons that play and step."""
    return Control("player", "step", "move", moves(last), 0, interval=interval)


def moves(last: int, first: int = 0) -> dict[str, int]:
    """The steps 0 to `last` of a player by name: the first is move `first`."""
    return {f"{first + step:,}": step for step in range(last + 1)}


def choice(name: str, label: str, options: Iterable[str] | Mapping[str, Any]) -> Control:
    """One of a few, at first the first: names side by side, or in a list where there are more than four."""
    offered = options if isinstance(options, Mapping) else {one: one for one in options}
    kind = "choice" if len(offered) <= 4 else "list"
    return Control(kind, name, label, offered, next(iter(offered.values())))


def tick(name: str, label: str, value: bool = False, **others: Any) -> Control:
    """A box to tick. `others` are fields of a Control."""
    return Control("tick", name, label, {"off": False, "on": True}, value, **others)


def button(name: str, label: str, hint: str, **others: Any) -> Control:
    """A button, and what it does. `others` are fields of a Control."""
    return Control("button", name, label, {}, hint=hint, **others)
