"""Lesson 14, tuning: alternative correct answers, and wrong answers that no recorded mutant covers."""

import statistics

from harness import Mutant, Suite

from iocourse.course.tuning import SETTINGS, scores_of, times_of


# ---------------------------------------------------------------------- 14E
def sorted_pairs(rows, rule):
    """Sort pairs of number and time; the place is that of the best time, after all rows with its number."""
    pairs = sorted(zip(scores_of(rows, rule), times_of(rows), strict=True))
    best = min(time for _, time in pairs)
    first = [time for score, time in pairs if score == pairs[0][0]]
    of_best = next(score for score, time in pairs if time == best)
    place = max(n for n, (score, _) in enumerate(pairs, 1) if score == of_best)
    return statistics.fmean(first) / best, place, statistics.fmean(time for _, time in pairs) / best


TRIAL = Suite(
    "14E",
    right=sorted_pairs,
    wrong={
        "no operator makes it": (
            Mutant(
                "the-best-of-the-ties",
                "several rows with the smallest number count by their mean time",
                ("times[chosen].mean()", "times[chosen].min()"),
            ),
            Mutant(
                "the-first-of-the-ties",
                "several rows with the smallest number count by their mean time",
                ("times[chosen].mean()", "times[scores.argmin()]"),
            ),
            Mutant(
                "best-over-choice",
                "regret is the time of the choice divided by the best time",
                ("times[chosen].mean() / times.min()", "times.min() / times[chosen].mean()"),
            ),
            Mutant(
                "place-from-0",
                "place is the position of the best row in the order of the rule, from 1",
                ("np.sum(scores <= scores[times.argmin()])", "np.sum(scores < scores[times.argmin()])"),
            ),
            Mutant(
                "ties-for-the-rule",
                "ties are counted against the rule",
                ("np.sum(scores <= scores[times.argmin()])", "np.sum(scores < scores[times.argmin()]) + 1"),
            ),
            Mutant(
                "sorted-by-time",
                "place is the position of the best row in the order of the rule, from 1",
                ("np.sum(scores <= scores[times.argmin()])", "np.sum(times <= times[scores.argmin()])"),
            ),
            Mutant(
                "median-for-mean",
                "chance is the mean regret of one row at random",
                ("place, times.mean()", "place, np.median(times)"),
            ),
        )
    },
)


# ---------------------------------------------------------------------- 14F
def grouped(rows, factor, a, b, held=()):
    """Group the rows by all that must be equal; a group has at most one row per value of the factor."""
    groups = {}
    for row in rows:
        key = tuple((name, row[name]) for name in [*SETTINGS, *held] if name != factor)
        groups.setdefault(key, {})[row[factor]] = row["ms"]
    return [times[a] / times[b] for times in groups.values() if a in times and b in times]


FACTOR_ONLY = "the two rows of a pair differ in the factor only"
ORDER = "each ratio is the time at a divided by the time at b"
PAIRS = Suite(
    "14F",
    right=grouped,
    wrong={
        "no operator makes it": (
            Mutant("other-tables", FACTOR_ONLY, ("(*SETTINGS, *held)", "(*SETTINGS[3:], *held)")),
            Mutant("other-warps", FACTOR_ONLY, ("(*SETTINGS, *held)", "(*SETTINGS[:5], *held)")),
            Mutant("nothing-held", "held columns are equal in a pair", ("(*SETTINGS, *held)", "SETTINGS")),
            Mutant("inverted", ORDER, ('one["ms"] / other["ms"]', 'other["ms"] / one["ms"]')),
            Mutant(
                "counted-twice",
                "counts every pair once",
                ("if one[factor] == a", "if one[factor] in (a, b)"),
                ("if other[factor] == b", "if other[factor] in (a, b) and other is not one"),
            ),
            Mutant("differences", ORDER, ('one["ms"] / other["ms"]', 'one["ms"] - other["ms"]')),
        )
    },
)


# ---------------------------------------------------------------------- 14G
def three_stages_or_more(rows, stopwatch):
    """Discard by two of the three effects only, and time three."""
    kept = [row for row in rows if row["stages"] > 2 and row["rows_per_warpgroup"] >= 64]
    times = [(stopwatch(row), n) for n, row in enumerate(kept[:3])]
    return kept[min(times)[1]]


def a_fourth_time(rows, stopwatch):
    return min(rows[:4], key=stopwatch)


def first_three(rows, stopwatch):
    return min(rows[:3], key=stopwatch)


def until_it_raises(rows, stopwatch):
    """Time rows until the stopwatch raises, and catch its error."""
    times = []
    try:
        for row in rows:
            times.append(stopwatch(row))
    except Exception:
        pass
    return rows[times.index(min(times))]


def a_rule_of_the_printed_tables(rows, stopwatch):
    """Choose without a timing: the three effects, the best tile of the draft, then stall clocks."""
    kept = [r for r in rows if r["stages"] == 3 and r["rows_per_warpgroup"] >= 64]
    kept = [r for r in kept if r["warpgroups_per_sm"] >= 2 and not r["spills"]]
    return min(kept, key=lambda r: ((r["BM"], r["BN"], r["warps"]) != (64, 64, 4), r["stall_clocks"]))


def a_rule_that_times_rows(rows, stopwatch):
    """Call the stopwatch, and choose by the rule of the printed tables."""
    stopwatch(rows[0])
    return a_rule_of_the_printed_tables(rows, stopwatch)


def one_tile(rows, stopwatch):
    """Choose the best tile of the draft where it is offered, without a time."""
    wanted = (64, 64, 4, 3)
    return next((r for r in rows if (r["BM"], r["BN"], r["warps"], r["stages"]) == wanted), rows[0])


def clock_model(rows, stopwatch):
    return max(rows, key=lambda row: row["clock_model_tflops"])


def the_tile_alone(rows, stopwatch):
    best = min(rows[:3], key=stopwatch)
    return best["BM"], best["BN"], best["warps"], best["stages"]


def slowest(rows, stopwatch):
    return max(rows[:3], key=stopwatch)


BETTER = "has at most 0.6 of the excess of three random rows on"
CHOOSE = Suite(
    "14G",
    right=three_stages_or_more,
    wrong={
        "no operator makes it": (
            (a_fourth_time, "calls the stopwatch at most 3 times per table"),
            (until_it_raises, "calls the stopwatch at most 3 times per table"),
            (a_rule_of_the_printed_tables, f"{BETTER} made-up kernels"),
            (a_rule_that_times_rows, f"{BETTER} made-up kernels"),
            (first_three, f"{BETTER} the draft"),
            (first_three, f"{BETTER} the library's forward pass"),
            (one_tile, f"{BETTER} its backward halves"),
            (clock_model, f"{BETTER} the library's forward pass"),
            (the_tile_alone, "returns a row of the table"),
            (slowest, f"{BETTER} the draft"),
        )
    },
)


# ---------------------------------------------------------------------- 14H
def until_busy(device, launch):
    """Double the number of flushes until the device has not reached the first event when all is queued."""
    for _ in range(25):
        launch()
    flushes, laps = 1, []
    while len(laps) < 15:
        for _ in range(flushes):
            device.flush()
        start = device.event()
        launch()
        end = device.event()
        late = start.reached
        device.synchronize()
        if late:
            flushes *= 2
        else:
            laps.append(end.ms - start.ms)
    return sorted(laps)[7]


def host_clock(device, launch):
    """Read the clock of the host around a launch, without waiting for the device."""
    for _ in range(25):
        launch()
    laps = []
    for _ in range(21):
        device.flush()
        start = device.now()
        launch()
        laps.append(device.now() - start)
    return statistics.median(laps)


def waiting_host(device, launch):
    """Read the clock of the host, and wait for the device within each lap."""
    for _ in range(25):
        launch()
    laps = []
    for _ in range(21):
        device.flush()
        device.synchronize()
        start = device.now()
        launch()
        device.synchronize()
        laps.append(device.now() - start)
    return statistics.median(laps)


LAP = "        for _ in range(20):\n            device.flush()\n"
STOPWATCH = Suite(
    "14H",
    right=until_busy,
    wrong={
        "no operator makes it": (
            (host_clock, "waits for the device"),
            (waiting_host, "a slow host does not change the result"),
            Mutant("no-flush", "every lap starts with an empty L2 cache", (LAP, "")),
            Mutant(
                "mean", "disturbed laps do not change the result", ("statistics.median", "statistics.fmean")
            ),
            Mutant(
                "no-warm-up",
                "the first launches do not change the result",
                ("for _ in range(25):\n        launch()", "launch()"),
            ),
            Mutant(
                "no-warm-up-and-50-laps",
                "the first launches do not change the result",
                ("for _ in range(25):\n        launch()", "pass"),
                ("range(21)", "range(50)"),
            ),
            Mutant("one-lap", "disturbed laps do not change the result", ("range(21)", "range(1)")),
            Mutant("three-laps", "disturbed laps do not change the result", ("range(21)", "range(3)")),
            Mutant("five-laps", "disturbed laps do not change the result", ("range(21)", "range(5)")),
            Mutant("nine-laps", "disturbed laps do not change the result", ("range(21)", "range(9)")),
            Mutant("ten-flushes", "a slow host does not change the result", ("range(20)", "range(10)")),
            Mutant("one-flush", "a slow host does not change the result", ("range(20)", "range(1)")),
            Mutant(
                "flush-inside",
                "a slow host does not change the result",
                (
                    "        start = device.event()\n        launch()",
                    "        start = device.event()\n        device.flush()\n        launch()",
                ),
            ),
            Mutant(
                "many-laps",
                "launches the kernel at most 50 times",
                ("range(21)", "range(101)"),
            ),
            Mutant("seconds", "waits for the device", ("end.ms - start.ms", "(end.ms - start.ms) / 1000")),
        )
    },
)

SUITES = (TRIAL, PAIRS, CHOOSE, STOPWATCH)
