"""Tests of `blocked_product`: words agree with `small_cache`, and invalid arguments are refused."""

import re

import pytest

from iocourse import costs
from iocourse.course import explore


@pytest.mark.parametrize(("N", "d", "Br", "Bc", "Bd"), [(24, 18, 6, 8, 6), (12, 4, 3, 2, 4), (8, 8, 8, 1, 2)])
def test_words_of_a_step_times_the_steps_of_all_tiles_are_what_F5_reads(N, d, Br, Bc, Bd):
    """The sizes have no remainders, so all tiles equal the drawn one."""
    told = explore.blocked_product(N, d, Br=Br, Bc=Bc, Bd=Bd).numbers.splitlines()
    tile, passing, products, steps = (tuple(map(int, re.findall(r"\d+", line))) for line in told[1:])
    tiles = (N // Br) * (N // Bc), (N // Br) * (d // Bd)
    reads = costs.small_cache(N, d, Br=Br, Bc=Bc, Bd=Bd).reads
    assert tiles[0] * steps[0] * passing[0] == reads["Q"] + reads["K"]
    assert tiles[1] * steps[1] * passing[1] == reads["S"] + reads["V"]
    assert all(n * s * p == N * N * d for n, s, p in zip(tiles, steps, products, strict=True))
    assert tile == (Br * Bc, Br * Bd)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"N": 65}, "N must be at most 64, got 65"),
        ({"d": 65}, "d must be at most 64, got 65"),
        ({"Br": 9}, "Br must be at most 8, got 9"),
        ({"Bc": 9}, "Bc must be at most 8, got 9"),
        ({"Bd": 5}, "Bd must be at most 4, got 5"),
        ({"Br": 0}, "Br"),
    ],
)
def test_what_is_refused(sizes, message):
    given = {"N": 8, "d": 4, "Br": 2, "Bc": 2, "Bd": 2} | sizes
    with pytest.raises(ValueError, match=message):
        explore.blocked_product(given.pop("N"), given.pop("d"), **given)
