"""Number of examples per test: few by default, all with `IOCOURSE_LONG=1`; see docs/guide/tests.md."""

import os
from typing import TypeVar

Many = TypeVar("Many")
LONG = os.environ.get("IOCOURSE_LONG") == "1"


def many(few: Many, all_of_them: Many) -> Many:
    """Return the number (or list) of examples of a default run, or with IOCOURSE_LONG=1 all of them."""
    return all_of_them if LONG else few
