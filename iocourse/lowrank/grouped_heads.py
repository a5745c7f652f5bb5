"""Grouped heads: query head h uses key head h // G, as in `iocourse.kernels`. The engines need equal heads.

Without a causal mask the G·n queries of a group are the queries of one head, so its state exists once. With a
causal mask they stay apart, and K and V are repeated without a copy.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np


class Groups(NamedTuple):
    """Groups of `size` query heads, n queries each. If size is 1, no array is changed."""

    size: int
    n: int
    causal: bool

    def queries(self, X: Any) -> Any:
        """Return X (…, H, n, ·) as (…, H/G, G·n, ·), or (…, H/G, G, n, ·) if causal."""
        rows = (self.size, self.n) if self.causal else (self.size * self.n,)
        return X if self.size == 1 else X.reshape(*X.shape[:-3], -1, *rows, X.shape[-1])

    def output(self, X: Any) -> Any:
        """Return X (…, H, n, ·), the inverse of `queries`."""
        lead = X.shape[: -4 if self.causal else -3]
        return X if self.size == 1 else X.reshape(*lead, -1, self.n, X.shape[-1])

    def keys(self, X: Any) -> Any:
        """Return X (…, ·, ·) of the key heads, repeated as (…, G, ·, ·) if causal; a key mask may stay."""
        if self.size == 1 or not self.causal:
            return X
        return library(X).broadcast_to(X[..., None, :, :], (*X.shape[:-2], self.size, *X.shape[-2:]))

    def first(self, X: Any) -> Any:
        """Return a copy of the first of each group of X (…, G, ·, ·), where all are equal."""
        return X if self.size == 1 else X[..., 0, :, :] * 1

    def sum(self, dX: Any) -> Any:
        """Return the gradient of the argument of `keys` from that of its result."""
        return dX.sum(-3) if self.size > 1 and self.causal else dX

    @contextmanager
    def naming_rows(self, earlier: int = 0) -> Iterator[None]:
        """In an error, count a row of Q in its own head, and a row of K or V after `earlier` rows."""
        try:
            yield
        except ValueError as error:
            text = str(error)
            of_keys = text.startswith(("K ", "V "))
            number = lambda at: f"row {int(at[1]) - earlier if of_keys else int(at[1]) % self.n}"  # noqa: E731
            if (renamed := re.sub(r"\brow (\d+)", number, text)) == text:
                raise
            raise type(error)(renamed) from None


def groups_of(Q: tuple[int, ...], K: tuple[int, ...], causal: bool) -> Groups:
    """Return the groups of these shapes, which have been checked."""
    return Groups(Q[-3] // K[-3] if len(Q) > 2 else 1, Q[-2], causal)


def is_tensor(X: Any) -> bool:
    """Return True for a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(X, torch.Tensor)


def check_one_library(**inputs: Any) -> None:
    """Raise TypeError if an input is a torch tensor and Q is not."""
    for name, X in inputs.items():
        if is_tensor(X) and not is_tensor(inputs["Q"]):
            raise TypeError(f"{name} is a torch tensor, but Q is not. Pass all as tensors, or all as arrays")


def library(X: Any) -> Any:
    """Return torch for a tensor, and otherwise numpy."""
    return sys.modules["torch"] if is_tensor(X) else np
