"""No schedule may beat a lower bound of its class: every schedule against every bound of its pass."""

import inspect
import random
from functools import lru_cache

import numpy as np
import pytest
from long_runs import many

from iocourse import masks
from iocourse.bounds import BOUNDS, OutsideRegime, lower_bound
from iocourse.bounds.bound import Bound
from iocourse.machine import FREE_REGISTERS
from iocourse.monomials import rank_of
from iocourse.schedules import REGISTRY

EXAMPLES = many(75, 300)
LARGEST_MASKED = 96  # the closed form of a masked schedule visits every block
WITH_WORDS = [bound for bound in BOUNDS.values() if bound.in_words]
SIZES = {bound.id: tuple(inspect.signature(bound.evaluate).parameters) for bound in WITH_WORDS}

# Schedules of complete rows that keep no score between steps, with t, the maximum of words loaded while
# a score is in fast memory. Rows may be loaded in separate steps.
STEP = {
    "flash1": lambda d, tiles: 1,
    "flash2": lambda d, tiles: 1,
    "flash_optimal": lambda d, tiles: d * tiles["Bc"],  # V_j comes when S is there
    "resident_keys": lambda d, tiles: d,
    "flash1_backward": lambda d, tiles: 1,
    "flash2_backward": lambda d, tiles: 1,
    "fused_backward": lambda d, tiles: 2 * d * tiles["Br"],  # dO_i, then dQ_i
    "split_backward": lambda d, tiles: d * tiles["Br2"],  # dO_i
}
# Those of whole rows that keep scores, for tiles of whole rows.
KEEPS_SCORES = {
    "score_gradients_stored": lambda d, tiles: True,
    "weights_stored": lambda d, tiles: tiles["Bd"] >= d,
}
# Bounds of schedules without P as an input.
OWN_WEIGHTS = {"C'_line", *(bound.id for bound in WITH_WORDS if bound.schedules == "own weights")}
NO_SCHEDULE = {"matmul", "latent"}  # attacked in tests/bounds, by blocked products and by tied schedules

every_schedule = pytest.mark.parametrize("schedule", REGISTRY.values(), ids=list(REGISTRY))


@pytest.fixture(autouse=True)
def evaluated_once(monkeypatch):
    """Evaluate each bound once, although it is used by its id and twice by `lower_bound`."""
    monkeypatch.setattr(Bound, "__call__", lru_cache(maxsize=100)(Bound.__call__))


def size(rng, doublings=13):
    """Return a random integer with a logarithm that is uniform from 0 to one doubling more."""
    return max(1, round(2 ** (rng.randint(0, doublings) + rng.random())))


def some_mask(rng, N):
    """A mask for N positions: causal, a window, or tiles at random, with empty rows and columns."""
    kind = rng.choice(["causal", "window", "tiles", "causal tiles"])
    if kind == "causal":
        return masks.Causal(N)
    if kind == "window":
        return masks.Window(N, rng.randint(0, N))
    side, drawn = rng.randint(1, N), np.random.default_rng(rng.randint(0, 10**6))
    tiles = drawn.random((-(-N // side),) * 2) < rng.choice([0.1, 0.5, 0.9])
    return masks.BlockMask(N, tiles, side, causal=kind == "causal tiles", allow_empty=True)


def problem(rng, schedule):
    """Return random (N, d, required arguments of the schedule, its mask or None)."""
    masked = bool(schedule.needs) or ("mask" in schedule.options and rng.random() < 0.5)
    N, d = size(rng), size(rng)
    if not masked:
        return N, d, {}, None
    if "g" in schedule.needs:
        return N, d, {"g": rng.randint(1, 4)}, None
    if "w" in schedule.needs:
        w = rng.randint(0, N)
        return N, d, {"w": w}, masks.Window(N, w)
    N = min(N, LARGEST_MASKED)
    mask = some_mask(rng, N)
    return N, d, {"mask": mask}, mask


def classes_of(schedule, d, tiles, mask):
    """The class of a schedule with these tiles: its t, whether rows are whole, and whether P is its own."""
    name = schedule.name
    t = STEP[name](d, tiles) if name in STEP and mask is None else None
    whole = t is not None or (name in KEEPS_SCORES and mask is None and KEEPS_SCORES[name](d, tiles))
    return {"t": t, "whole_rows": whole, "own_weights": not schedule.given_weights}


def bounds_at(pass_, N, d, M, mask, T, *, t=None, whole_rows=False, own_weights=False, r=None):
    """(id, words) of every bound with a number of this pass and class, with the T it picks and with T."""
    known = {"N": N, "d": d, "M": M, "t": t, "r": r}
    known = {name: size for name, size in known.items() if size is not None}
    if mask is not None:
        known = {"d": d, "M": M, "nnz": mask.nnz}
        known |= {"rows": mask.nonempty_rows, "columns": mask.nonempty_columns}
    for bound in WITH_WORDS:
        names = SIZES[bound.id]
        if pass_ not in bound.passes or not {*names} - {"T"} <= set(known):
            continue
        if bound.schedules == "whole rows" and not whole_rows:
            continue
        if bound.id in OWN_WEIGHTS and not own_weights:
            continue
        sizes = [known[name] for name in names if name in known]
        try:
            yield bound.id, bound(*sizes)
            if "T" in names:
                yield bound.id, bound(*sizes, T=T)
        except OutsideRegime:
            continue


def clipped(tiles, N):
    """Tiles as they come: a block has no more rows than there are."""
    return {name: min(size, N) if name != "Bd" else size for name, size in tiles.items()}


@every_schedule
def test_no_schedule_beats_a_bound_of_its_class(schedule):
    """Drawn without Hypothesis, whose examples are near each other and take as long as the bounds do."""
    rng, closest = random.Random(0), {}
    for at in range(EXAMPLES):
        N, d, told, mask = problem(rng, schedule)
        tiles = {name: size(rng, rng.choice([6, 13])) for name in schedule.tile_names}
        T = size(rng)
        form = schedule.cost(N, d, **tiles, **told)
        # Its own footprint is the M at which a schedule looks best.
        picked = schedule.tiles(N, d, form.peak, **told)
        for used in [tiles] + [picked] * (picked != tiles):
            ledger = form if used is tiles else schedule.cost(N, d, **used, **told)
            of_class = classes_of(schedule, d, clipped(used, N), mask)
            try:
                attack(schedule, (N, d, mask, T), ledger, of_class, closest)
            except AssertionError:
                print(f"problem {at}: N = {N}, d = {d}, {told}, {used}, T = {T}")
                raise
    shown = ", ".join(f"{id} {share:.2f}" for id, share in closest.items())
    print(f"{schedule.name}: {EXAMPLES} problems, with drawn and with chosen tiles; bound/words {shown}")
    assert any(share > 0.3 for share in closest.values())


def attack(schedule, problem, ledger, of_class, closest):
    """Compare a schedule's words with every bound of its class and the best one; record bound/words."""
    N, d, mask, T = problem
    M, approximate = ledger.peak, schedule.approximates is not None
    for id, words in bounds_at(schedule.pass_, N, d, M + FREE_REGISTERS, mask, T, **of_class):
        if approximate and BOUNDS[id].schedules != "any":
            continue
        assert ledger.total >= words, id
        closest[id] = max(closest.get(id, 0.0), words / max(1, ledger.total))
    # None of ours forms a score twice within a forward pass; to other passes it is all the same.
    for recompute in (True, False) if schedule.pass_ == "forward" else (True,):
        best, _ = lower_bound(
            schedule.pass_, N, d, M, mask=mask, recompute=recompute, approximate=approximate,
            given_weights=schedule.given_weights,
            whole_rows=of_class["t"] is not None and of_class["t"] <= 2 * d,
        )  # fmt: skip
        assert ledger.total >= best


def test_a_score_formed_twice_matters_to_forward_passes_alone():
    for pass_ in ("backward", "gradient", "tied"):
        for M in (10, 100, 1000, 10**4):
            given = (pass_, 1000, 30, M)
            assert lower_bound(*given, recompute=True) == lower_bound(*given, recompute=False)


def test_every_bound_with_a_number_is_attacked():
    attacked, all_classes = set(), {"t": 2, "whole_rows": True, "own_weights": True, "r": 9}
    for pass_ in ("forward", "backward", "gradient", "tied", "low rank"):
        for mask in (None, masks.Causal(64)):
            for M in (16, 48, 4096):
                attacked |= {id for id, _ in bounds_at(pass_, 64, 8, M, mask, 10, **all_classes)}
    assert attacked == {bound.id for bound in WITH_WORDS} - NO_SCHEDULE


def test_every_class_has_a_schedule():
    assert {name for name in STEP if name in REGISTRY} >= {"flash_optimal", "split_backward"}
    for names in (STEP, KEEPS_SCORES):
        assert {REGISTRY[name].pass_ for name in names if name in REGISTRY} <= {"forward", "backward"}
    made = {s.name for s in REGISTRY.values() if s.pass_ == "backward" and not s.given_weights}
    assert "small_cache_backward" in made and "standard_backward" not in made


def test_schedules_that_cut_rows_or_keep_scores_are_not_in_W_of_t():
    """Small caches move fewer words than whole rows may: the class is needed."""
    N, d, M = 2**20, 4096, 4096
    for name, id, t in (("small_cache", "A_rows", 1), ("small_cache_backward", "E", 1)):
        schedule = REGISTRY[name]
        words = schedule.cost(N, d, **schedule.tiles(N, d, M)).total
        assert words < BOUNDS[id](N, d, M + FREE_REGISTERS, t=t)


def test_low_rank_keeps_to_the_bound_of_its_class():
    rng = random.Random(1)
    for _ in range(EXAMPLES):
        N, d, g, rc, Bd = size(rng), size(rng), rng.randint(1, 4), size(rng), size(rng)
        r = rank_of(d, g)
        form = REGISTRY["low_rank"].cost(N, d, g=g, rc=min(rc, r), Bd=min(Bd, d + 1))
        picked = REGISTRY["low_rank"].count(N, d, form.peak, g=g)
        for ledger in (form, picked):
            for _, words in bounds_at("low rank", N, d, ledger.peak + FREE_REGISTERS, None, 1, r=r):
                assert ledger.total >= words, (N, d, g, rc, Bd)


def test_low_rank_comes_near_its_bound():
    N, d, g = 2**24, 256, 2
    M = 4 * rank_of(d, g) + d + 4  # four columns of the state
    words = REGISTRY["low_rank"].count(N, d, M, g=g).total
    assert 1 <= words / BOUNDS["low_rank"](N, d, rank_of(d, g), M + FREE_REGISTERS) < 1.1


def test_C_prime_does_not_hold_where_P_is_handed_over():
    N, d, M = 2**22, 2**15, 256
    schedule = REGISTRY["standard_backward"]
    assert schedule.given_weights
    words = schedule.cost(N, d, **schedule.tiles(N, d, M)).total
    assert BOUNDS["C''"](N, d, M + FREE_REGISTERS) <= words < BOUNDS["C'"](N, d, M + FREE_REGISTERS)
