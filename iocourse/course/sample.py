"""Samples: the data from which a kind of exercise makes its cases, with the label that a report shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..ledger import Ledger


@dataclass(frozen=True)
class Sample:
    """The data of one case; a kind of exercise adds the exact result, the closed form and the memory size.

    Attributes:
        sizes: the sizes that the label shows, by name.
        inputs: arguments of the student's function, by name and in its order.
        results: exact results by name, in the order in which the function returns them (kinds `function`
            and `kernel`).
        words: the closed form of a kernel's loads and stores (kind `kernel`).
        tags: the difficulties of this case, in the order in which the label shows them; "" is ignored.
        prefix: the first words of the label.
        facts: further arguments of the exact result and of the closed form, by name (kind `schedule`).
    """

    sizes: Mapping[str, Any]
    inputs: Mapping[str, Any]
    results: Mapping[str, Any] = field(default_factory=dict)
    words: Ledger | None = None
    tags: tuple[str, ...] = ()
    prefix: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The prefix, the sizes, and each tag that the prefix does not contain, separated by commas."""
        sizes = (f"{name}={size}" for name, size in self.sizes.items())
        tags = (tag for tag in self.tags if tag not in self.prefix)
        return ", ".join(part for part in (self.prefix, *sizes, *tags) if part)

    @property
    def tag_set(self) -> frozenset[str]:
        """The tags of the case, as `Case.tags` has them."""
        return frozenset(self.tags) - {""}

    def of(self, form: Callable[..., Any]) -> Any:
        """Call a closed form with the sizes, the facts and the inputs that are not arrays (tiles, a mask)."""
        options = {name: value for name, value in self.inputs.items() if not isinstance(value, np.ndarray)}
        return form(**{**self.sizes, **self.facts, **options})


Draw = Callable[[np.random.Generator], Iterable[Sample]]
