"""Closed forms: golden values, leading constants, arguments."""

import inspect

import pytest

from iocourse import costs
from iocourse.schedules import REGISTRY, flash1, flash2, flash_optimal, naive
from iocourse.schedules.flash1 import published_tiles

# N = 64, d = 8, M = 512 and N = 64, d = 32, M = 300: total words, footprint
GOLDEN = [
    (costs.flash1, (64, 8), {"Br": 8, "Bc": 16}, 8832, 528),
    (costs.flash1, (64, 8), {"Br": 1, "Bc": 29}, 7040, 511),
    (costs.flash2, (64, 8), {"Br": 26, "Bc": 1, "lse": True}, 4160, 510),
    (costs.flash_optimal, (64, 8), {"Br": 26, "Bc": 1, "lse": True}, 4160, 502),
    (costs.flash1, (64, 32), {"Br": 1, "Bc": 3}, 147072, 261),
    (costs.flash_optimal, (64, 32), {"Br": 4, "Bc": 1, "lse": True}, 69696, 300),
    (costs.matmul, (64, 64, 64), {"bm": 8, "bn": 8}, 2 * 64**3 // 8 + 64**2, 80),
]


@pytest.mark.parametrize(("form", "shape", "options", "total", "footprint"), GOLDEN)
def test_golden_values(form, shape, options, total, footprint):
    ledger = form(*shape, **options)
    assert (ledger.total, ledger.peak) == (total, footprint)


@pytest.mark.parametrize(
    ("schedule", "shape", "tiles"),
    [
        (flash1, (64, 8, 512), {"Br": 1, "Bc": 29}),
        (flash1, (64, 32, 300), {"Br": 1, "Bc": 3}),
        (flash2, (64, 8, 512), {"Br": 26, "Bc": 1}),
        (flash_optimal, (64, 8, 512), {"Br": 26, "Bc": 1}),
        (flash_optimal, (64, 32, 300), {"Br": 4, "Bc": 1}),
    ],
)
def test_golden_tiles(schedule, shape, tiles):
    assert schedule.tiles(*shape) == tiles


def constant(schedule, d, M, N=2**22, tiles=None):
    """Words moved in units of N²d²/M; large N leaves the leading term."""
    form = schedule.cost(N, d, **(tiles or schedule.tiles(N, d, M)))
    assert form.peak <= M
    return form.total * M / (N * d) ** 2


def test_the_leading_constants_12_8_4():
    d, M = 64, 64 * 64**2
    one_row = {"Br": 1, "Bc": (M - 2 * d - 2) // (2 * d + 1)}
    found = {
        "F1, published blocks": constant(flash1, d, M),
        "F1, Br = 1": constant(flash1, d, M, tiles=one_row),
        "F2": constant(flash2, d, M),
        "F3": constant(flash_optimal, d, M),
        "F0": constant(naive, d, M),
    }
    print({name: round(value, 3) for name, value in found.items()})
    assert list(found.values()) == pytest.approx([12.25, 6.18, 8.00, 4.10, 322], rel=2e-3)
    assert constant(flash1, d, M) == pytest.approx(12 * (1 + 4 / (3 * d)), rel=1e-3)
    assert constant(flash_optimal, d, M) == pytest.approx(4 * (1 + 3 / (2 * d)), rel=2e-3)


def test_published_blocks_fit_from_8d2_plus_8d_on():
    """Where d divides M; below 4d² they never fit."""
    N, d = 2**16, 16
    limit = 8 * d * d + 8 * d

    def fits(M):
        return costs.flash1(N, d, **published_tiles(N, d, M)).peak <= M

    multiples = range(4 * d, 4 * limit, 4 * d)
    fitting = [M for M in multiples if fits(M)]
    assert fitting == list(range(limit, 4 * limit, 4 * d))
    assert not any(fits(M) for M in range(1, 4 * d * d))
    assert "published block sizes Br=16" in flash1.note(N, d, limit - 4 * d)
    assert flash1.note(N, d, limit) == "published block sizes"


def test_tiles_larger_than_the_matrix_cost_what_whole_ones_do():
    assert costs.flash2(10, 4, Br=99, Bc=99) == costs.flash2(10, 4, Br=10, Bc=10)
    assert costs.matmul(3, 4, 5, bm=9, bn=9) == costs.matmul(3, 4, 5, bm=3, bn=4)


FORMS = [costs.matmul, *(schedule.cost_form for schedule in REGISTRY.values())]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.__name__)
def test_bad_sizes_are_named(form):
    names = [name for name in inspect.signature(form).parameters if name != "lse"]
    for name in names:
        for value, error in ((0, ValueError), (-1, ValueError), (2.0, TypeError), (True, TypeError)):
            with pytest.raises(error, match=rf"^{name} must be"):
                form(**{**dict.fromkeys(names, 4), name: value})


@pytest.mark.parametrize("schedule", REGISTRY.values(), ids=list(REGISTRY))
def test_a_schedule_names_tiles_it_does_not_have_or_lacks(schedule):
    tiles = dict.fromkeys(schedule.tile_names, 2)
    with pytest.raises(TypeError, match="has no tile size 'Bx'"):
        schedule.cost(8, 4, **tiles, Bx=2)
    tiles.pop("Br")
    with pytest.raises(TypeError, match=r"needs the tile size\(s\) Br"):
        schedule.cost(8, 4, **tiles)


def test_best_pair_tries_every_number_of_blocks():
    for extent in (1, 7, 30, 100):
        sizes = list(costs.distinct_sizes(extent))
        assert {-(-extent // b) for b in sizes} == {-(-extent // b) for b in range(1, extent + 1)}
        assert all(b == 1 or -(-extent // (b - 1)) > -(-extent // b) for b in sizes)
