"""How much a run measures: all of it, or the quick part."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from . import _published


@dataclass(frozen=True)
class Plan:
    """What is measured.

    Attributes:
        rows: d of the published rows.
        lengths: tokens of the scaling runs, growing.
        sdpa_to: up to how many of them exact attention takes part.
        shapes: (d, degrees) of the scaling runs.
        memory: tokens at which the peak memory of a gradient is measured.
        spreads: standard deviations of logits, one panel each.
        panel: keys and queries of the panels.
        seeds: draws that a panel's errors are the medians of.
        most_features: of a contender of the panels.
        seconds: about how long the laps of one piece of work take, slow ones aside.
        threads: of both sides.
    """

    rows: tuple[int, ...] = tuple(_published.ROWS)
    lengths: tuple[int, ...] = tuple(2**p for p in range(10, 21))
    sdpa_to: int = 2**15
    shapes: tuple[tuple[int, tuple[int, ...]], ...] = ((8, (3,)), (12, (2, 3)))
    memory: int = 2**20
    spreads: tuple[float, ...] = (0.25, 0.5, 1.0, 2.0)
    panel: int = 2048
    seeds: int = 5
    most_features: int = 1300
    seconds: float = 0.3
    threads: int = 1

    def to_json(self) -> str:
        """As one line, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan of that line."""
        return cls(**{name: _tuples(value) for name, value in json.loads(text).items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


WHOLE = Plan()
QUICK = replace(
    WHOLE, rows=(4, 5, 6, 7, 8), lengths=tuple(2**p for p in (10, 12, 13, 14, 15, 16)), sdpa_to=2**12,
    memory=2**17, panel=1024, seeds=3, most_features=500, seconds=0.06,
)  # fmt: skip
