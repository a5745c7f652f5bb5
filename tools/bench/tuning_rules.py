"""Rules that choose or exclude tiles without a run, tried on the recorded times (`iocourse.gpu.timed_tiles`).

Nothing is measured. *Regret* is the time of the choice divided by the best time of the table; tiles that a
rule cannot distinguish count with their mean. *Place* counts the best tile and those that a rule puts before
it or level with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import mean, median
from typing import Any

from iocourse.console import table
from iocourse.course.tuning import chance_of_best
from iocourse.data.records import load_record, record_source
from iocourse.gpu.timed_tiles import TILE, tables
from tools.bench import Row

NAME = "tuning-rules"
HELP = "rules that choose tiles without a run, tried on the recorded times of `tiles` and `tune`"
Rule = Callable[[Row], Any]  # the tile with the smallest value is chosen
Table = Sequence[Row]
KEPT = "kept"
RULES: dict[str, Rule] = {
    "most warps per SM": lambda row: -row["warps_per_sm"],
    "most programs per SM": lambda row: -row["blocks"],
    "fewest words": lambda row: row["words"],
    "largest BM, then BN": lambda row: (-row["BM"], -row["BN"]),
    "no spills, then instructions": lambda row: (row["spills"] > 0, row["instructions"]),
    "fewest instructions per score": lambda row: row["instructions"],
    "fewest waits per product": lambda row: row["waits"] / row["products"],
    "fewest stall clocks per score": lambda row: row["stall_clocks"],
    "clock model": lambda row: -row["clock_model_tflops"],
    "64 rows per warpgroup, 3 stages, then clock model": lambda row: (
        row["rows_per_warpgroup"] != 64, row["stages"] != 3, -row["clock_model_tflops"]
    ),
}  # fmt: skip


def run(quick: bool) -> Row:
    """Return the rules, pairs of stages and the pruned tables of each group of tables; `quick` changes
    nothing.
    """
    groups = [_on_trial(name, rows) for name, rows in grouped_tables().items()]
    return {"subject": NAME, "groups": groups}


def grouped_tables() -> dict[str, list[Table]]:
    """Return the tables of the draft, of the library's forward pass, and of the backward halves."""
    tune = tables("tune")
    return {
        "draft": [*tables("tiles").values()],
        "forward": [rows for name, rows in tune.items() if name.startswith("forward")],
        "backward halves": [rows for name, rows in tune.items() if not name.startswith("forward")],
    }


def _on_trial(name: str, group: Sequence[Table]) -> Row:
    """Return the results of one group of tables, as numbers."""
    rules = [
        {"rule": rule, "regret": mean(regret(rows, of) for rows in group),
         "places": [place(rows, of) for rows in group]} for rule, of in RULES.items()
    ]  # fmt: skip
    pruned = [[*filter(may_be_best, rows)] for rows in group]
    chance = [mean(chance_of_best(rows, k) for rows in group) for k in (1, 2, 3)]
    after = [
        chance_of_best(rows, min(3, len(rows))) * best(rows)["ms"] / best(some)["ms"]
        for rows, some in zip(pruned, group, strict=True)
    ]
    return {
        "group": name,
        "tiles": [len(rows) for rows in group],
        "chance": chance,
        "rules": rules,
        "stages": [_stages(group, *change) for change in ((2, 3), (3, 4))],
        KEPT: {
            "tiles": [len(rows) for rows in pruned],
            "best": all(best(rows) in some for rows, some in zip(group, pruned, strict=True)),
            "chance": mean(after),
        },
    }


def best(rows: Table) -> Row:
    """Return the fastest tile of a table."""
    return min(rows, key=lambda row: row["ms"])


def regret(rows: Table, rule: Rule) -> float:
    """Return the mean time of the tiles with the rule's smallest value, divided by the best time."""
    least = min(map(rule, rows))
    return float(mean(row["ms"] for row in rows if rule(row) == least) / best(rows)["ms"])


def place(rows: Table, rule: Rule) -> int:
    """Return the place of the fastest tile in the rule's order; ties count against the rule."""
    return sum(rule(row) <= rule(best(rows)) for row in rows)


def may_be_best(row: Row) -> bool:
    """Return True for 3 stages, at least 64 rows per warpgroup, and at least 2 warpgroups per SM."""
    return bool(row["stages"] == 3 and row["rows_per_warpgroup"] >= 64 and row["warpgroups_per_sm"] >= 2)


def pairs(rows: Table, factor: str, a: Any, b: Any, *equal: str) -> Iterator[tuple[Row, Row]]:
    """Yield the pairs of tiles that differ only in one size, which is a in the first and b in the second.

    equal: columns that must be equal too.
    """
    fixed = [name for name in (*TILE, *equal) if name != factor]
    for one in rows:
        for other in rows:
            alike = all(one[name] == other[name] for name in fixed)
            if (one[factor], other[factor]) == (a, b) and alike:
                yield one, other


def _stages(group: Sequence[Table], a: int, b: int) -> Row:
    """Return how often b stages are faster than a: in all pairs, and with equal programs per SM and no
    spills.
    """
    found = [pair for rows in group for pair in pairs(rows, "stages", a, b)]
    clean = [(x, y) for x, y in found if x["blocks"] == y["blocks"] and not x["spills"] + y["spills"]]
    return {"from": a, "to": b, "all": _faster(found), "clean": _faster(clean)}


def _faster(found: Sequence[tuple[Row, Row]]) -> Row:
    ratios = [one["ms"] / other["ms"] for one, other in found]
    if not ratios:
        return {"pairs": 0}
    middle = {"median": median(ratios), "least": min(ratios), "most": max(ratios)}
    return {"pairs": len(ratios), "faster": sum(ratio > 1 for ratio in ratios), **middle}


def show(result: Row) -> str:
    """Format the results as plain text: rules by group of tables, then pairs of stages, then pruning."""
    groups = result["groups"]
    cells = [
        ["mean regret", *(one["group"] for one in groups), *(f"place, {one['group']}" for one in groups)]
    ]
    for k, name in enumerate(("one at random", "best of 2", "best of 3")):
        cells.append([name, *(f"{one['chance'][k]:.2f}" for one in groups), *[""] * len(groups)])
    for at, name in enumerate(RULES):
        mine = [one["rules"][at] for one in groups]
        places = (_list(one["places"]) for one in mine)
        cells.append([name, *(f"{one['regret']:.2f}" for one in mine), *places])
    lines = [line for one in groups for line in _sentences(one)]
    sources = [record_source(load_record(name)) for name in ("tiles", "tune")]
    return "\n".join([table(cells), "", *lines, *sources])


def _sentences(one: Row) -> Iterator[str]:
    for change in one["stages"]:
        for which, pairs_of in (("all", "pairs"), ("clean", "pairs, equal programs per SM, no spills")):
            if change[which]["pairs"]:
                yield (
                    "{group}: {from} to {to} stages faster in {faster} of {pairs} {which}, {median:.2f} "
                    "({least:.2f} to {most:.2f})"
                ).format(**change | change[which] | {"group": one["group"], "which": pairs_of})
    kept, best_is_kept = one[KEPT], "in all" if one[KEPT]["best"] else "not in all"
    yield (
        f"{one['group']}: of {_list(one['tiles'])} tiles, {_list(kept['tiles'])} have 3 stages, at least 64 "
        f"rows per warpgroup and at least 2 warpgroups per SM, the best {best_is_kept} tables; "
        f"best of 3 of them {kept['chance']:.3f}"
    )


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
