"""The picture of a sweep counts as the rule of lesson 06 does, and refuses what it cannot draw."""

from itertools import combinations

import pytest

from iocourse import explore
from iocourse.course.exercises.lesson06 import constant

GRADIENTS = [frozenset(some) for n in (1, 2, 3) for some in combinations(("dQ", "dK", "dV"), n)]


@pytest.mark.parametrize("stays", ["rows", "columns"])
@pytest.mark.parametrize("gradients", GRADIENTS, ids=sorted)
def test_the_product_is_the_constant_of_the_rule(stays, gradients):
    rows = ["Q", "dO", *sorted(gradients & {"dQ"})]
    columns = ["K", *(["V"] if gradients != {"dV"} else []), *sorted(gradients & {"dK", "dV"})]
    picture = explore.resident_and_streamed(stays, rows=rows, columns=columns, sums=gradients)
    assert picture.title.endswith(f" {constant(stays, gradients)} together")
    assert picture.numbers.split()[-1] == str(constant(stays, gradients))
    travels = gradients - ({"dQ"} if stays == "rows" else {"dK", "dV"})
    assert ("Read and written" in picture.alt) == bool(travels)


@pytest.mark.parametrize(
    ("stays", "rows", "sums", "message"),
    [
        ("keys", ["Q"], [], "stays is 'keys'; it must be 'rows' or 'columns'"),
        ("rows", [], [], "rows has 0 arrays; 1 to 4"),
        ("rows", ["Q"] * 5, [], "rows has 5 arrays; 1 to 4"),
        ("rows", ["Q"], ["O"], "sums has 'O', which is neither"),
    ],
)
def test_what_is_refused(stays, rows, sums, message):
    with pytest.raises(ValueError, match=message):
        explore.resident_and_streamed(stays, rows=rows, columns=["K"], sums=sums)
