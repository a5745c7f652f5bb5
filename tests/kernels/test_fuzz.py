"""The kernels on cases drawn by chance (`fuzz`): 100 of them, or with IOCOURSE_LONG=1 a thousand."""

import fuzz
import pytest
import skip_without_interpreter  # noqa: F401
import torch
from long_runs import many

MANY, EACH = many(100, 1000), 10


# NumPy warns of masked scores that overflow, and of masked elements in memory that nobody wrote: they are
# loaded, and their results are discarded.
@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning")
@pytest.mark.parametrize("first", range(0, MANY, EACH))
def test_every_element_is_within_its_bound(first):
    for seed in range(first, min(first + EACH, MANY)):
        case = fuzz.drawn(seed)
        assert fuzz.worst(case) <= 1, case


def test_what_is_drawn():
    """Every kind of case is among the first 100."""
    cases = [fuzz.drawn(seed) for seed in range(100)]
    assert {case.dtype for case in cases} == set(fuzz.UNITS)
    assert {layout for case in cases for layout in case.layouts} == set(fuzz.LAYOUTS)
    assert {case.options.get("tile_d") for case in cases} == {None, "fused", "materialised"}
    assert {case.heads[0] // case.heads[1] for case in cases} == {1, 2, 3}
    assert any(case.blocks is not None for case in cases)
    assert sum(case.lengths is not None for case in cases) > 10
    assert sum(case.options.get("window") is not None for case in cases) > 10


@pytest.mark.parametrize("name", ["o", "lse", "dq", "dk", "dv"])
def test_an_element_beyond_its_bound_is_found(name, monkeypatch):
    """One small number of one result, off by a hundredth of itself: a tolerance for all would pass it."""
    results = fuzz.reference_attention.results

    def off(attend, q, *rest):
        found = results(attend, q, *rest)
        if q.dtype == torch.float64:
            return found
        x = getattr(found, name).clone()
        at = x.abs().flatten().argsort()[x.numel() // 10]
        x.view(-1)[at] *= 1.01
        return found._replace(**{name: x})

    case = fuzz.drawn(0)._replace(
        dtype=torch.float32, batches=1, heads=(2, 1), sizes=(20, 20), d=8, size=1.0, lengths=None,
        blocks=None, layouts=("plain",) * 4, options={"scale": None},
    )  # fmt: skip
    assert fuzz.worst(case) <= 1
    monkeypatch.setattr(fuzz.reference_attention, "results", off)
    assert fuzz.worst(case) > 1
