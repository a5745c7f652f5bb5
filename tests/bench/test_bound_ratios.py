"""The table of ratios: every claim is kept, and the backward ratio falls with N."""

import pytest

from tools.bench import bound_ratios as ratios


@pytest.mark.parametrize(("claim", "found"), ratios.comparisons(), ids=lambda x: getattr(x, "schedule", ""))
def test_every_claim_is_kept(claim, found):
    assert found.words >= found.bound > 0
    if claim.goal is not None:
        assert found.ratio <= claim.goal


def test_the_backward_ratio_falls_with_N():
    falling = [found.ratio for claim, found in ratios.comparisons() if claim.schedule == "split_backward"]
    assert falling == sorted(falling, reverse=True) and falling[0] > falling[-1] + 0.1


def test_the_table_shows_what_was_computed():
    result = ratios.run(quick=True)
    lines = ratios.show(result).splitlines()
    assert len(lines) == 1 + len(ratios.CLAIMS) == 1 + len(result["measured"])
    for line, row in zip(lines[1:], result["measured"], strict=True):
        assert f"{row['words']:,}" in line and f"{row['ratio']:.3f}" in line and row["bound_id"] in line
