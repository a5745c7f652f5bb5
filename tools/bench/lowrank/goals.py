"""Goals of low-rank attention, and their verdicts, computed from the record of a run only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tools.bench import Row

JUDGED = (
    "quotients over the fastest exact run are reported and have no goal; former goals had a slower baseline",
    "a published row needs one degree with a smaller error of softmax, in the published metric, and a "
    "smaller time than the script, whose error is the smaller of those on its own operator and on softmax",
    "that degree is chosen after measuring; times include every check of the library",
)
REACHED, MISSED, UNKNOWN = "reached", "missed", "not measured"


def goals(record: Row) -> Iterator[Row]:
    """Yield every goal: what it is about, the number wanted, the number reached, and the verdict."""
    rows = [row for row in record["forward"] if row["published_error"] is not None]
    same = [f"{row['their_error']:.3f}" == f"{row['published_error']:.3f}" for row in rows]
    what, reached = "their algorithm gives the printed errors", f"{sum(same)} of {len(same)} rows"
    yield _goal(what, "every digit", reached, all(same) if same else None)
    for row in rows:
        best = best_against_script(row)
        yield _goal(
            f"error and time below the script's, d = {row['d']}, n = {row['n']:,}",
            f"< {script_error(row):.3f} % in < {row['their_ms']:.3g} ms",
            f"{best['judged']:.3f} % in {best['ms']:.3g} ms (g = {best['g']})",
            best["judged"] < script_error(row) and best["ms"] < row["their_ms"],
        )
    yield _number(
        "2²⁰ tokens, d = 12, g = 3, forward+backward, 2 threads: seconds", 0.3,
        [row["ms"] / 1000 for row in record["scaling"]
         if (row["n"], row["d"], row["g"], row["threads"]) == (2**20, 12, 3, 2) and "+" in row["pass"]],
    )  # fmt: skip
    ours = [fit["exponent"] for fit in record["fits"] if (fit["contender"], fit["to"]) == ("ours", 2**20)]
    yield _number("exponents of ours over 2¹² … 2²⁰", 1.05, ours)
    memory = record["memory"]
    what = f"peak memory of a gradient of {memory['n']:,} tokens, over what it must hold"
    yield _number(what, 1.5, [memory["ratio"]] if "ratio" in memory else [])
    causal = [one["errors"]["O"] for row in record["causal"] if (row["d"], row["n"]) == (12, 40_960)
              for one in row["degrees"] if one["g"] == 3]  # fmt: skip
    yield _number("causal, d = 12, n = 40,960, g = 3: usual error of O in per cent", 0.16, causal)


def _goal(what: str, wanted: str, reached: str, fine: bool | None) -> Row:
    said = UNKNOWN if fine is None else REACHED if fine else MISSED
    return {"what": what, "wanted": wanted, "reached": reached, "verdict": said}


def _number(what: str, limit: float, found: Sequence[float]) -> Row:
    """Return the goal that the largest of the numbers is at most the limit."""
    worst = max(found, default=None)
    reached = "" if worst is None else f"{worst:.3f}"
    return _goal(what, f"≤ {limit:g}", reached, None if worst is None else worst <= limit)


def script_error(row: Row) -> float:
    """Return the smaller error of the script, on its own operator or on softmax, in per cent."""
    return float(min(row["their_error"], row["their_softmax_error"]))


def best_against_script(row: Row) -> Row:
    """Return the degree that a row is judged by: the most accurate one that takes less time than the script,
    or the fastest one if none does.
    """
    fast = [one for one in row["degrees"] if one["ms"] < row["their_ms"]]
    found: Row = min(row["degrees"], key=lambda one: float(one["ms"]))
    return min(fast, key=lambda one: float(one["judged"])) if fast else found
