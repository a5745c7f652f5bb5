"""Controls of an explorer as data: kind, label, options with their names, and current value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any


@dataclass
class Control:
    """One control. `offered` maps names, which the page shows and sends back, to values.

    `kind` is "slider", "player" (a slider with a play button), "choice" (radio buttons), "list" (a drop-down
    list), "tick" or "button". A `free` slider also accepts other values between its ends, from a pointer or a
    script; only integers if its options are integers.
    """

    kind: str
    name: str
    label: str
    offered: Mapping[str, Any]
    value: Any = None
    free: bool = False
    hint: str = ""  # tooltip of a button
    interval: int = 0  # milliseconds per step of a player
    group: str = ""  # controls of one group share a frame with this title
    hangs: tuple[float, float] | None = None  # position in the figure at which this frame is attached, if any
    steers: tuple[str, ...] = ()  # sliders moved by its arrow keys: horizontal, vertical
    hidden: bool = False
    disabled: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """All options by name, including the current value."""
        if self.kind == "button" or self.value in self.offered.values():
            return dict(self.offered)
        if isinstance(self.value, str):
            return {**self.offered, self.value: self.value}
        return dict(sorted({**self.offered, number_label(self.value): self.value}.items(), key=itemgetter(1)))

    def offer(self, offered: Mapping[str, Any]) -> None:
        """Replace the options; a value that is no longer offered becomes the next smaller or first one."""
        values = list(offered.values())
        smaller = [one for one in values if self.kind != "list" and one <= self.value]
        self.offered = offered
        self.value = self.value if self.value in values else max(smaller, default=values[0])

    def move_to(self, value: Any) -> None:
        """Set the value. Raises ValueError that lists the accepted values."""
        values = list(self.offered.values())
        between = self.free and isinstance(value, type(values[0])) and values[0] <= value <= values[-1]
        if value not in (*values, self.value) and not between:
            raise ValueError(f"{self.name} must be {self._allowed()}, got {value!r}")
        self.value = next((one for one in values if one == value), value)

    def move_near(self, value: Any) -> None:
        """Set the value, clamped to the ends of the slider."""
        values = self.offered.values()
        self.move_to(min(max(value, min(values)), max(values)))

    def _allowed(self) -> str:
        texts = list(self.offered)
        if self.free:
            kind = "an integer" if isinstance(self.offered[texts[0]], int) else "a number"
            return f"{kind} from {texts[0]} to {texts[-1]}"
        return f"one of {', '.join(texts if len(texts) <= 12 else [*texts[:3], '…', texts[-1]])}"

    def on_page(self, width: float, height: float) -> dict[str, Any]:
        """Return the data of this control for the page, with positions as fractions of the figure size."""
        seen = {name: told for name, told in vars(self).items() if name not in ("offered", "value")}
        at = None if self.kind == "button" else list(self.options.values()).index(self.value)
        hangs = self.hangs and (self.hangs[0] / width, self.hangs[1] / height)
        return {**seen, "texts": list(self.options), "at": at, "hangs": hangs}


def number_label(value: float) -> str:
    """Return the name of a number: "16,384" or "0.25"."""
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def by_name(values: Iterable[float]) -> dict[str, Any]:
    """Return numbers in ascending order, by name."""
    return {number_label(value): value for value in sorted(set(values))}


def slider(name: str, label: str, values: Iterable[float] = (), value: Any = None, **others: Any) -> Control:
    """Return a slider over numbers, all integers or all floats. `others` are fields of a Control."""
    return Control("slider", name, label, by_name(values), value, **others)


def size_slider(name: str, label: str, first: int, last: int, per_octave: int) -> Control:
    """Return a free slider from `first` to `last` with `per_octave` integers between a value and twice it."""
    powers = [first << k for k in range((last // first).bit_length())]
    values = {power + power * k // per_octave for power in powers for k in range(per_octave)}
    return slider(name, label, (value for value in values if value <= last), free=True)


def player(interval: int, last: int = 0) -> Control:
    """Return a player for the steps 0 to `last`: a slider with buttons to play and to step."""
    return Control("player", "step", "move", player_steps(last), 0, interval=interval)


def player_steps(last: int, first: int = 0) -> dict[str, int]:
    """Return the steps 0 to `last` of a player by name; step 0 is named `first`."""
    return {f"{first + step:,}": step for step in range(last + 1)}


def choice(name: str, label: str, options: Iterable[str] | Mapping[str, Any]) -> Control:
    """Return a choice, initially the first option: radio buttons, or a list for more than four options."""
    offered = options if isinstance(options, Mapping) else {one: one for one in options}
    kind = "choice" if len(offered) <= 4 else "list"
    return Control(kind, name, label, offered, next(iter(offered.values())))


def tick(name: str, label: str, value: bool = False, **others: Any) -> Control:
    """Return a check box. `others` are fields of a Control."""
    return Control("tick", name, label, {"off": False, "on": True}, value, **others)


def button(name: str, label: str, hint: str, **others: Any) -> Control:
    """Return a button with a tooltip. `others` are fields of a Control."""
    return Control("button", name, label, {}, hint=hint, **others)
