"""What a commit tries a share of and `IOCOURSE_LONG=1` tries whole; see docs/guide/tests.md."""

import os
from typing import TypeVar

Many = TypeVar("Many")
LONG = os.environ.get("IOCOURSE_LONG") == "1"


def many(few: Many, all_of_them: Many) -> Many:
    """How many examples, or which: the few of every run, or with IOCOURSE_LONG=1 all."""
    return all_of_them if LONG else few
