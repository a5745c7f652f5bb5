"""Misleading tables: each number is the ratio or the error that its trick defines."""

import pytest

from iocourse.course import misleading_table
from iocourse.data.records import load_record


def run(method, n=1000, passes="both", threads=1, ms=(9.0, 10.0, 11.0), errors=None, exact=False):
    lower, median, upper = ms
    return {
        "method": method, "exact": exact, "d": 8, "n": n, "passes": passes, "threads": threads,
        "median": median, "lower": lower, "upper": upper, "errors": errors or {},
    }  # fmt: skip


RUNS = [
    run("degree 2", errors={"O": 1.0, "dQ": 4.0, "dK": 1.0}),
    run("degree 2", threads=2, ms=(5.0, 6.0, 7.0)),
    run("degree 2", passes="forward", ms=(3.0, 4.0, 5.0), errors={"O": 1.0}),
    run("in place", ms=(290.0, 300.0, 310.0), exact=True),
    run("SDPA", ms=(190.0, 200.0, 220.0), exact=True),
    run("SDPA", threads=2, ms=(90.0, 100.0, 110.0), exact=True),
    run("degree 2", n=4000, ms=(39.0, 40.0, 41.0), errors={"O": 1.0, "dQ": 3.0}),
]


@pytest.mark.parametrize(
    ("trick", "speedup", "error"),
    [
        ("none", 20.0, 4.0),
        ("a slower baseline", 30.0, 4.0),
        ("own lower quartile, their upper one", 24.4, 4.0),
        ("two threads against one", 33.3, 4.0),
        ("one pass against two", 50.0, 4.0),
        ("the mean of the errors", 20.0, 2.0),
    ],
)
def test_a_claim_is_what_its_trick_makes_of_the_runs(trick, speedup, error):
    claim = misleading_table.row(RUNS, trick, "degree 2", 8, 1000, "both")
    place = {"method": "degree 2", "d": 8, "n": 1000, "passes": "both"}
    assert claim == place | {"speedup": speedup, "error": error}


def test_a_baseline_that_nobody_ran_grows_with_the_square_of_the_length():
    claim = misleading_table.row(RUNS, "a baseline that nobody ran", "degree 2", 8, 4000, "both")
    assert claim["speedup"] == 200 * 4**2 / 40


def test_every_trick_is_tried_above():
    (marked,) = test_a_claim_is_what_its_trick_makes_of_the_runs.pytestmark
    assert {trick for trick, *_ in marked.args[1]} | {"a baseline that nobody ran"} == set(
        misleading_table.TRICKS
    )


def test_what_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"no run has .*'degree 9'"):
        misleading_table.row(RUNS, "none", "degree 9", 8, 1000, "both")
    with pytest.raises(KeyError, match="a lucky day"):
        misleading_table.row(RUNS, "a lucky day", "degree 2", 8, 1000, "both")


def test_runs_carry_the_records_own_numbers():
    record = load_record("lowrank")
    runs = misleading_table.runs_of(record)
    kinds = [tuple(one[key] for key in ("method", *misleading_table.PLACE, "threads")) for one in runs]
    assert len(set(kinds)) == len(kinds)
    (row,) = (row for row in record["gradient"] if (row["d"], row["n"]) == (12, 40_960))
    wanted = {"d": 12, "n": 40960, "passes": "both", "method": "degree 3"}
    (one,) = (one for one in runs if wanted.items() <= one.items())
    (degree_3,) = (degree for degree in row["degrees"] if degree["g"] == 3)
    assert one["median"] == degree_3["ms"] and one["errors"] == degree_3["errors"]
    exact = {run["method"]: run["median"] for run in runs if run["exact"] and run["n"] == 40_960
             and run["passes"] == "both"}  # fmt: skip
    assert exact == row["exact_ms"]
    long = {"d": 12, "n": 2**20, "passes": "both", "method": "degree 2", "threads": 2}
    (one,) = (one for one in runs if long.items() <= one.items())
    there = {"d": 12, "n": 2**20, "g": 2, "threads": 2, "pass": "forward+backward"}
    (own,) = (one for one in record["scaling"] if there.items() <= one.items())
    assert (one["lower"], one["upper"]) == tuple(own["quartiles_ms"]) and set(one["errors"]) == {"O", "dQ"}
    assert all(bool(one["errors"]) != one["exact"] for one in runs)
