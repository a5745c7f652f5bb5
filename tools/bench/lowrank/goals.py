"""Goals of low-rank attention, and their verdicts, computed from the record of a run only."""

from __future__ import annotations

from collections.abc import Sequence

from tools.bench import Row, verdict

FLOOR = 0.75  # of each speed goal; errors have no floor
JUDGED = (
    "the judged error of a row is the error of softmax in the published metric, and both times are those of "
    "softmax, forward and gradient alike",
    "the only baseline is exact softmax of the same run; a row is compared with the published script in the "
    "same run, and never with a ratio published from another machine",
    "a gradient is compared with the script's forward pass, because the script has no gradient: its error "
    "must be smaller, and its speed-up over exact attention (both passes) larger than the script's (forward)",
    "a row's degree is chosen after measuring: the most accurate one below the script's error that is "
    "faster than the script, otherwise the fastest one below that error; the tables have every degree",
    "our times include the fixed costs of our checks of entries, denominators, outputs and gradients",
)  # notes on the goals and the tables
COUNTED = (2, 3, 4)  # degrees for which rows are counted
PASSES = {"forward": "forward", "gradient": "forward+backward"}
SPEEDUPS = (  # of complete calls: table, d, g, speed-up over exact attention, and maximum error in per cent
    ("forward", 12, 2, 600, 0.5),
    ("forward", 12, 3, 240, 0.09),
    ("forward", 12, 4, 75, 0.09),
    ("forward", 8, 2, 105, 2.005),
    ("forward", 8, 3, 52, 0.3),
    ("gradient", 12, 2, 780, None),
    ("gradient", 12, 3, 290, None),
    ("gradient", 8, 3, 75, None),
)
LONG_SECONDS = 0.3  # goal for 2²⁰ tokens
REACHED, NEAR, MISSED, UNKNOWN = "reached", "75 % floor reached", "missed", "not measured"
SAID = {"goal met": REACHED, "goal missed, floor met": NEAR, "floor missed": MISSED}


def goals(record: Row) -> list[Row]:
    """Return every goal: what it is about, the number wanted, the number reached, and the verdict."""
    return [
        _reproduced(record),
        *(_beside_script(record["forward"], g) for g in COUNTED),
        *_every_row(record, "forward", "forward: error and time", "judged_error"),
        *(_at(record, *asked) for asked in SPEEDUPS),
        *_every_row(record, "gradient", "gradient: worst of dQ, dK, dV, and speed-up", "worst"),
        _long_gradient(record),
        _exponent(record),
        _memory(record),
        _causal(record, "forward_speedup", "forward", 75),
        _causal(record, "speedup", "forward+backward", 70),
    ]


def _goal(what: str, wanted: str, reached: str = "", said: str = UNKNOWN) -> Row:
    return {"what": what, "wanted": wanted, "reached": reached, "verdict": said}


def _verdict(speed: float, wanted: float) -> str:
    return SAID[verdict(speed, wanted, FLOOR * wanted)]


def _reproduced(record: Row) -> Row:
    rows = record["forward"]
    same = [row["d"] for row in rows if f"{row['their_error']:.3f}" == f"{row['published_error']:.3f}"]
    said = UNKNOWN if not rows else REACHED if len(same) == len(rows) else MISSED
    count = f"{len(same)} of {len(rows)} rows"
    return _goal("their algorithm gives the printed errors", "every digit", count, said)


def script_speedup(row: Row) -> float:
    """Return the time of exact softmax, the faster of two, divided by that of the published script."""
    return float(row["baseline_ms"] / row["their_ms"])


def better_than_script(rows: Sequence[Row], g: int) -> tuple[int, int]:
    """Return the number of rows in which degree g has a smaller error than the script, and of these the
    number in which it is also faster.
    """
    each = [(row, one) for row in rows for one in row["degrees"] if one["g"] == g]
    accurate = [(row, one) for row, one in each if one["judged_error"] < row["their_error"]]
    return len(accurate), sum(one["ms"] < row["their_ms"] for row, one in accurate)


def _beside_script(rows: Sequence[Row], g: int) -> Row:
    what, wanted = f"forward, degree {g}: a smaller error and time than the script", "every row"
    if not rows:
        return _goal(what, wanted)
    accurate, both = better_than_script(rows, g)
    said = REACHED if both == len(rows) else MISSED
    return _goal(what, wanted, f"{both} of {len(rows)} rows, a smaller error in {accurate}", said)


def _every_row(record: Row, section: str, what: str, error: str) -> list[Row]:
    """Return a goal per row: one degree has a smaller error and a larger speed-up than the script."""
    scripts = {row["d"]: row for row in record["forward"]}
    rows = [row for row in record[section] if row["d"] in scripts]
    return [_one_row(row, scripts[row["d"]], f"{what}, d = {row['d']}", error) for row in rows]


def _one_row(row: Row, script: Row, what: str, error: str) -> Row:
    limit, speedup = script["their_error"], script_speedup(script)
    wanted = f"< {limit:.3f} % at > {speedup:.3g}×"
    best = chosen(row, error, limit, speedup)
    if best is None:
        return _goal(what, wanted, "no degree is accurate enough", MISSED)
    reached = f"{best[error]:.3f} % at {best['speedup']:.3g}× (g = {best['g']})"
    faster = best["speedup"] > speedup
    near = NEAR if best["speedup"] >= FLOOR * speedup else MISSED
    return _goal(what, wanted, reached, REACHED if faster else near)


def chosen(row: Row, error: str, limit: float, speedup: float) -> Row | None:
    """Return the degree that a row is judged by: among degrees with an error below the limit, the most
    accurate one that exceeds the speed-up, otherwise the fastest; None if no error is below the limit.
    """
    accurate = [one for one in row["degrees"] if one[error] < limit]
    fast = [one for one in accurate if one["speedup"] > speedup]
    found: Row | None = max(accurate, key=lambda one: one["speedup"], default=None)
    return min(fast, key=lambda one: float(one[error])) if fast else found


def _degree(rows: Sequence[Row], d: int, g: int) -> Row | None:
    """Return the measurement of a degree at one d; None if there is none."""
    return next((one for row in rows if row["d"] == d for one in row["degrees"] if one["g"] == g), None)


def _at(record: Row, section: str, d: int, g: int, speedup: float, error: float | None) -> Row:
    """Return the goal of a degree: a speed-up of at least `speedup`, with an error of at most `error`."""
    limit = "" if error is None else f"≤ {error:g} % at "
    what, wanted = f"{PASSES[section]}, d = {d}, g = {g}", f"{limit}≥ {speedup:g}×"
    one = _degree(record[section], d, g)
    if one is None:
        return _goal(what, wanted)
    found = one["judged_error" if error else "worst"]
    said = _verdict(one["speedup"], speedup) if error is None or found <= error else MISSED
    return _goal(what, wanted, f"{found:.3f} % at {one['speedup']:.4g}×", said)


def _long_gradient(record: Row) -> Row:
    what, wanted = "2²⁰ tokens, d = 12, g = 3, forward+backward, 2 threads", f"≤ {LONG_SECONDS:g} s"
    found = [row["ms"] / 1000 for row in record["scaling"]
             if (row["n"], row["d"], row["g"], row["threads"]) == (2**20, 12, 3, 2)
             and row["pass"] == "forward+backward"]  # fmt: skip
    if not found:
        return _goal(what, wanted)
    return _goal(what, wanted, f"{found[0]:.2f} s", _verdict(LONG_SECONDS / found[0], 1))


def _exponent(record: Row) -> Row:
    """Return the goal of the exponent, for lines up to 2²⁰ with the run's number of threads."""
    what, wanted = "largest exponent of ours over 2¹³ … 2²⁰", "≤ 1.05"
    found = [fit for fit in record["fits"] if fit["contender"] == "ours" and fit["to"] == 2**20
             and fit["threads"] == record["threads"]]  # fmt: skip
    if not found:
        return _goal(what, wanted)
    worst = max(found, key=lambda fit: fit["exponent"])
    reached = f"{worst['exponent']:.3f} (d = {worst['d']}, g = {worst['g']}, {worst['pass']})"
    return _goal(what, wanted, reached, REACHED if worst["exponent"] <= 1.05 else MISSED)


def _memory(record: Row) -> Row:
    found = record["memory"]
    what = f"peak memory of a gradient of {found['n']:,} tokens, over what it must hold"
    if "refused" in found:
        return _goal(what, "< 1.5", found["refused"], UNKNOWN)
    said = REACHED if found["ratio"] < 1.5 else MISSED
    return _goal(what, "< 1.5", f"{found['ratio']:.3f}", said)


def _causal(record: Row, key: str, pass_: str, speedup: float) -> Row:
    what, wanted = f"causal, d = 12, g = 3, {pass_}", f"≤ 0.16 % of O at ≥ {speedup:g}×"
    one = _degree(record["causal"], 12, 3)
    if one is None:
        return _goal(what, wanted)
    error = one["errors"]["O"]
    said = _verdict(one[key], speedup) if error <= 0.16 else MISSED
    return _goal(what, wanted, f"{error:.3f} % at {one[key]:.3g}×", said)
