"""Grouped heads: query head h uses key head h // G, as in `iocourse.kernels`. The engines need equal heads.

Without a causal mask the G·n queries of a group are the queries of one head, so its state exists once. With a
causal mask they stay apart, and K and V are repeated without a copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .state import library


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
        """Return X (…, ·, ·) of the key heads, repeated along a new axis as (…, G, ·, ·) if causal."""
        if self.size == 1 or not self.causal:
            return X
        return library(X).broadcast_to(X[..., None, :, :], (*X.shape[:-2], self.size, *X.shape[-2:]))

    def mask(self, X: Any) -> Any:
        """Return a key mask (n_k,) or (…, n_k), or None, for the result of `keys`."""
        return X[..., None, :] if self.size > 1 and self.causal and X is not None and X.ndim > 1 else X

    def first(self, X: Any) -> Any:
        """Return a copy of the first of each group of X (…, G, ·, ·), where all are equal."""
        return X if self.size == 1 else X[..., 0, :, :] * 1

    def sum(self, dX: Any) -> Any:
        """Return the gradient of the argument of `keys` from that of its result."""
        return dX.sum(-3) if self.size > 1 and self.causal else dX

    @contextmanager
    def naming_rows(self) -> Iterator[None]:
        """In an error, replace a query row's number among G·n queries by that in its own head."""
        try:
            yield
        except ValueError as error:
            text = str(error)
            if self.size == 1 or self.causal or text.startswith(("K ", "V ")):
                raise
            raise type(error)(re.sub(r"\brow (\d+)", lambda at: f"row {int(at[1]) % self.n}", text)) from None


def groups_of(Q: tuple[int, ...], K: tuple[int, ...], causal: bool) -> Groups:
    """Return the groups of these shapes, which have been checked."""
    return Groups(Q[-3] // K[-3] if len(Q) > 2 else 1, Q[-2], causal)
