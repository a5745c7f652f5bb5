"""Tests of `resident_and_streamed`: counts agree with the rule of lesson 06; bad input is refused."""

from itertools import combinations

import pytest

from iocourse.course import explore
from iocourse.course.exercises.lesson06 import constant

GRADIENTS = [frozenset(some) for n in (1, 2, 3) for some in combinations(("dQ", "dK", "dV"), n)]


@pytest.mark.parametrize("stays", ["rows", "columns"])
@pytest.mark.parametrize("gradients", GRADIENTS, ids=sorted)
def test_the_product_is_the_constant_of_the_rule(stays, gradients):
    rows = ["Q", "dO", *sorted(gradients & {"dQ"})]
    columns = ["K", *(["V"] if gradients != {"dV"} else []), *sorted(gradients & {"dK", "dV"})]
    picture = explore.resident_and_streamed(stays, rows=rows, columns=columns, sums=gradients)
    assert picture.title.endswith(f"product {constant(stays, gradients)}")
    assert picture.numbers.split()[-1] == str(constant(stays, gradients))
    travels = gradients - ({"dQ"} if stays == "rows" else {"dK", "dV"})
    assert ("Read and written" in picture.alt) == bool(travels)


@pytest.mark.parametrize(
    ("stays", "rows", "sums", "message"),
    [
        ("keys", ["Q"], [], "stays must be 'rows' or 'columns', got 'keys'"),
        ("rows", [], [], "rows must have 1 to 4 arrays, got 0"),
        ("rows", ["Q"] * 5, [], "rows must have 1 to 4 arrays, got 5"),
        ("rows", ["Q"], ["O"], "sums must be in rows or columns, got 'O'"),
    ],
)
def test_what_is_refused(stays, rows, sums, message):
    with pytest.raises(ValueError, match=message):
        explore.resident_and_streamed(stays, rows=rows, columns=["K"], sums=sums)
