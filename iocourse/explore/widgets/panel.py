"""The controls of an explorer, as data: what each offers, where it stands, and what its values are called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

SEEN = ("kind", "name", "label", "hint", "interval", "group", "steers", "hidden", "disabled")


class NotOffered(ValueError):
    """A value that a control does not offer."""


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
    steers: tuple[str, ...] = ()  # sliders that the arrow keys on it move: across, and down
    hidden: bool = False
    disabled: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """All it can be moved to, by name; where it stands is among them."""
        if self.kind == "button" or self.value in self.offered.values():
            return dict(self.offered)
        return by_name([*self.offered.values(), self.value])

    @property
    def text(self) -> str:
        """What its value is called."""
        return next(text for text, value in self.options.items() if value == self.value)

    def move_to(self, value: Any) -> None:
        """Stand on a value. Raises NotOffered, which says what there is."""
        offered = list(self.offered.values())
        if value in offered:
            self.value = offered[offered.index(value)]
        elif self.free and isinstance(value, type(offered[0])) and offered[0] <= value <= offered[-1]:
            self.value = value
        else:
            raise NotOffered(f"{self.name} = {value!r}: {self._allowed()}")

    def named(self, text: str) -> Any:
        """The value with this name. Raises NotOffered."""
        try:
            return self.options[text]
        except KeyError:
            raise NotOffered(f"{self.name} = {text!r}: {self._allowed()}") from None

    def _allowed(self) -> str:
        texts = list(self.offered)
        if self.free:
            kind = "whole numbers" if isinstance(next(iter(self.offered.values())), int) else "numbers"
            return f"it takes {kind} from {texts[0]} to {texts[-1]}"
        some = texts if len(texts) <= 12 else [*texts[:3], "…", texts[-1]]
        return f"it offers {', '.join(some)}"

    def on_page(self) -> dict[str, Any]:
        """What the page is told of it."""
        seen = {name: getattr(self, name) for name in SEEN}
        texts = list(self.options)
        at = None if self.kind == "button" else texts.index(self.text)
        return {**seen, "texts": texts, "at": at}


def slider_values(first: int, last: int, per_octave: int) -> list[int]:
    """Whole numbers from first to last, `per_octave` of them evenly between a number and its double."""
    values = set()
    power = first
    while power <= last:
        values |= {power + power * k // per_octave for k in range(per_octave)}
        power *= 2
    return sorted(value for value in values if value <= last)


def by_name(values: Iterable[float]) -> dict[str, Any]:
    """Numbers from the least to the largest, each under its name."""
    return {f"{value:,}" if isinstance(value, int) else f"{value:g}": value for value in sorted(set(values))}


def slider(name: str, label: str, values: Iterable[float], value: float, *, free: bool = False) -> Control:
    """A slider over these numbers, and `value`, where it starts; all of them whole, or none."""
    return Control("slider", name, label, by_name([*values, value]), value, free)


def size_slider(name: str, label: str, first: int, last: int, per_octave: int, value: int) -> Control:
    """A slider over `slider_values`, that takes the numbers between them too."""
    return slider(name, label, [*slider_values(first, last, per_octave), last], value, free=True)


def player(interval: int, last: int, value: int = 0, first: int = 0) -> Control:
    """The steps 0 to `last`, the first called move `first`: a slider, and buttons that play and step."""
    return Control("player", "step", "move", moves(last, first), value, interval=interval)


def moves(last: int, first: int = 0) -> dict[str, int]:
    """The steps 0 to `last` of a player by name: the first is move `first`."""
    return {f"{first + step:,}": step for step in range(last + 1)}


def choice(name: str, label: str, options: Iterable[str] | Mapping[str, Any], value: Any) -> Control:
    """One of a few: their names side by side, or in a list where there are more than four."""
    offered = options if isinstance(options, Mapping) else {one: one for one in options}
    return Control("choice" if len(offered) <= 4 else "list", name, label, offered, value)


def tick(name: str, label: str, value: bool, group: str = "") -> Control:
    """A box to tick."""
    return Control("tick", name, label, {"off": False, "on": True}, value, group=group)


def button(name: str, label: str, hint: str) -> Control:
    """A button, and what it does."""
    return Control("button", name, label, {}, hint=hint)
