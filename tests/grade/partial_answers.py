"""Partly right answers to the schedules of lesson 04, as changes of the solved cell, and what they earn.

The tests compare both graders on them, and the table of points in `docs/teaching.md` is bound to `parts`.
"""

import re
from collections.abc import Callable
from functools import cache

from iocourse.course.checking import judge
from iocourse.course.exercise import find
from iocourse.course.points import Points, points_of
from tests.mutation.references import build, exercise_source

SEED = 1
START = "    N, d = Q.shape\n"  # the first line of each function below its docstring
TWICE = "    def twice(*which):\n        m.load(*which).free()\n        return m.load(*which)\n\n"


def scale_forgotten(text: str) -> str:
    """Leave out the factor 1/√d."""
    return re.sub(r" +q \*= d\*\*-0\.5\n", "", text)


def one_row_at_a_time(text: str) -> str:
    """Use query blocks of one row, so that every row of Q reads K and V again."""
    return text.replace(START, f"{START}    Br = 1\n")


def every_load_twice(text: str) -> str:
    """Load every tile, free it and load it again, in the same footprint."""
    return text.replace("m.load(", "twice(").replace(START, START + TWICE)


def zeros_after_the_reads(text: str) -> str:
    """Load and store the right words, and compute nothing."""
    return re.sub(r"(stats\.update|o\.add_matmul|stats\.normalise)\(.*\)", "pass", text)


def copy_of_an_input(text: str) -> str:
    """Load and store the right words, and store the rows of Q as the result."""
    head, last, tail = text.rpartition("m.store(o, O, i)")
    return head + last.replace("(o,", "(q,") + tail


def keys_read_and_not_used(text: str) -> str:
    """Give every key the same weight, so that the result depends on V alone."""
    return re.sub(r"( +)(stats\.update\(s, o\))", r"\1s *= 0\n\1\2", text)


def one_tile_used(text: str) -> str:
    """Load and store the right words, and compute with the first tile of Q, of K and of V only."""
    used = r"\1if i.start == j.start == 0:\n\1    stats.update(s, o)\n\1    o.add_matmul(s, v)\n"
    text = re.sub(r"( +)stats\.update\(s, o\)\n +o\.add_matmul\(s, v\)\n", used, text)
    return text.replace("stats.normalise(o)", "pass")


def last_block_ignored(text: str) -> str:
    """Ignore the last block of keys, unless it is the only one."""
    unless = r"\1if j.start == 0 or not j.last:\n\1    stats.update(s, o)\n\1    o.add_matmul(s, v)\n"
    return re.sub(r"( +)stats\.update\(s, o\)\n +o\.add_matmul\(s, v\)\n", unless, text)


def without_softmax(text: str) -> str:
    """Compute QKᵀV/√d, which mixes all arrays."""
    return re.sub(r"stats\.(update|normalise)\(.*\)", "pass", text)


def unchanged(text: str) -> str:
    """Return the right answer."""
    return text


PARTIAL: tuple[Callable[[str], str], ...] = (
    scale_forgotten,
    one_row_at_a_time,
    every_load_twice,
    zeros_after_the_reads,
    copy_of_an_input,
    keys_read_and_not_used,
    one_tile_used,
    last_block_ignored,
    without_softmax,
)


def parts(answer: str) -> tuple[float, ...]:
    """Return points for values, points for traffic and all points of an answer to 4A, to two decimals."""
    points = share("4A", answer)
    return tuple(round(x, 2) for x in (points.values, points.traffic or 0.0, points.total))


@cache
def share(exercise_id: str, answer: str) -> Points:
    """Return the points of an answer by its name above; "stub" is the cell that students get."""
    exercise = find(exercise_id)
    source = exercise_source(exercise_id, solved=answer != "stub")
    function = build(exercise_id, source if answer == "stub" else globals()[answer](source))
    return points_of(exercise, judge(exercise, function, SEED))
