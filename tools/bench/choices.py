"""The choices file of the kernels, `iocourse/data/choices.json`: its form, its checks, and a new row.

A row has `choose` (names and values), limits for fields of `Case`, `why`, and `evidence`, which is one of

- `{"timed": RECORD, "against": VALUE, "gain": [least, most]}`: at every shape of the record that the row
  decides, the value is this many times as fast as the other value. `rival` and `share`: the speed relative to
  another library at the slowest of these shapes. `except`: shapes of any record at which the value is more
  than 2 % slower than another one, each with a reason.
- `{"bytes": true}`: complete rows fit the chip and move no more bytes than slices, or the reverse, at each
  head size of the row that `BYTES_AT` has, and at the ends of the row (see `resources/whole_rows.py`).
- `{"compiled": true}`: chosen from compiled code. `spills`: of an iteration of the loop, if there are any.
  `shared_bytes`: what the tile needs, if the chip has less; such a tile is refused before a launch.
- nothing: the reason alone, for a case that no record decides.

`otherwise`: the row decides the cases within its limits that no other row names.

`faults` lists what is wrong with the file; `python -m tools.build --check` and the tests call it.
`python -m tools.bench gpu --install` writes the tiles of the step `tune` into the file (`with_record`), and
prints the rows whose gain is not that of another new record (`stale`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from iocourse import data
from iocourse.console import times_joined
from iocourse.data.records import load_record
from iocourse.gpu import CHIPS
from iocourse.gpu.choices import MASKS, PASSES, Case, Choice, is_within, read_rows
from iocourse.kernels.host.choices import NAMES, SLICED, WHOLE

FILE = Path(data.__file__).with_name("choices.json")
Row = dict[str, Any]  # of the file
ARCHES = (None, *CHIPS)
SETS: dict[str, tuple[Any, ...]] = {"arch": ARCHES, "itemsize": (2, 4), "mask": MASKS}
RANGES = {"d": (1, 1024), "group": (1, None), "rows": (0, None), "heads": (0, None), "matrices": (0, None)}
BACKWARD = ("fused", "two-pass", "slices", "materialised")
VALUES: dict[str, tuple[Any, ...]] = {
    "forward pass": ("complete rows", "slices", "materialised"),
    **dict.fromkeys(PASSES[1:], BACKWARD),
    "decode step": ("second launch", "last program"),
    "packed descriptors": (False, True),
}
LARGEST = (
    dict.fromkeys(WHOLE, 512)
    | dict.fromkeys(("decode step", "decode_parts"), 256)
    | {"packed descriptors": 512}
)  # largest d of a name, where it is not 1,024


def domain(name: str) -> dict[str, Any]:
    """Return the cases that the rows of a name must decide, as limits."""
    masks: tuple[str, ...] = MASKS
    if name in SLICED:
        masks = MASKS[:3]
    elif name.startswith("decode"):
        masks = MASKS[:1]
    elif name == "packed descriptors":
        masks = MASKS[4:]
    sets = {**SETS, "mask": masks}
    return {
        **{axis: list(values) for axis, values in sets.items()},
        **RANGES,
        "d": (1, LARGEST.get(name, 1024)),
    }


# Head sizes at which `faults` compares a row that bytes decide: the common ones, and each side of the sizes
# up to which rows are padded.
BYTES_AT = (*range(32, 1025, 32), *(size + 1 for size in (64, 128, 256, 512)))


# Faults.


def faults(text: str | None = None, records: Mapping[str, Row] | None = None) -> list[str]:
    """Return one line for each fault of choices.json, or of a text of the same form; [] if there is none.

    records: records by name that take the place of the shipped ones.
    """
    try:
        rows = read_rows(text)
    except (ValueError, KeyError) as error:
        return [str(error)]
    records = records or {}
    found = [line for row in rows for line in _faults_of(row, rows, records)]
    of = {name: [row for row in rows if row.name == name] for name in NAMES}
    found = found or [line for name, some in of.items() for line in _cover(some, name)]
    shapes = product((*WAYS, TUNE), NAMES)
    return found or [line for record, name in shapes for line in _slower(record, of[name], records)]


def stale(text: str, records: Mapping[str, Row]) -> list[str]:
    """Return the faults of a text of choices.json by these records, by name: of rows that were timed in one
    of them, and of rows that one of them shows to be slower than another choice; [] if there is none.
    """
    rows = read_rows(text)
    of_record = [row for row in rows if row.evidence.get("timed") in records]
    found = [line for row in of_record for line in _faults_of(row, rows, records)]
    of = {name: [row for row in rows if row.name == name] for name in NAMES}
    shapes = product([record for record in records if record in (*WAYS, TUNE)], NAMES)
    return found or [line for record, name in shapes for line in _slower(record, of[name], records)]


def _faults_of(row: Choice, rows: Sequence[Choice], records: Mapping[str, Row]) -> Iterator[str]:
    about = f"choices.json, {described(row)}"
    if row.name not in NAMES:
        yield f"{about}: there is no choice of this name. Use one of {NAMES}"
        return
    if lines := [*_limit_faults(row)]:
        yield from (f"{about}: {line}" for line in lines)
        return  # what follows compares with the limits
    if row.name in VALUES and row.value not in VALUES[row.name]:
        yield f"{about}: the value must be one of {', '.join(map(str, VALUES[row.name]))}; got {row.value!r}"
    elif row.name not in VALUES and not _is_tile(row.name, row.value):
        yield f"{about}: the tile must be powers of two from 16 on, then warps and stages; got {row.value!r}"
    elif row.name in WHOLE or row.name in SLICED:
        yield from (f"{about}: {line}" for line in _loop_faults(row, rows))
    yield from (f"{about}: {line}" for line in _evidence_faults(row))
    if "timed" in row.evidence:
        yield from (f"{about}: {line}" for line in _timing_faults(row, records))
    if "bytes" in row.evidence:
        yield from (f"{about}: {line}" for line in _bytes_faults(row))


def _limit_faults(row: Choice) -> Iterator[str]:
    for name, limit in row.where.items():
        if name in SETS and not set(limit) <= set(SETS[name]):
            yield f"{name} must be some of {', '.join(map(str, SETS[name]))}; got {limit}"
        elif name in RANGES and not _is_range(limit):
            yield f"{name} must be [from, to], two integers, or null for no end; got {limit}"


EVIDENCE = (
    "timed", "against", "gain", "rival", "share", "except", "bytes", "compiled", "spills", "shared_bytes",
)  # fmt: skip
WITHOUT = ("not timed", "interpreted")  # words of a reason without evidence


def _evidence_faults(row: Choice) -> Iterator[str]:
    """Yield an unknown field of the evidence, and a reason that states neither evidence nor its lack."""
    if unknown := [part for part in row.evidence if part not in EVIDENCE]:
        yield f"{unknown[0]} is not a field of the evidence. Use one of: {', '.join(EVIDENCE)}"
    elif not row.evidence.keys() & {"timed", "bytes", "compiled"} and not any(
        words in row.why for words in WITHOUT
    ):
        yield 'it has no evidence. Add it, or state in the reason that this was "not timed"'


def described(row: Choice) -> str:
    """Return the name and limits of a row in one line."""
    limits = ", ".join(f"{name} {limit}" for name, limit in row.where.items())
    return f"{row.name} = {row.value} ({limits})"


def _is_range(limit: Any) -> bool:
    if not isinstance(limit, tuple) or len(limit) != 2 or type(limit[0]) is not int:
        return False
    return limit[1] is None or (type(limit[1]) is int and limit[0] <= limit[1])


def _is_tile(name: str, value: Any) -> bool:
    count = 5 if name in SLICED else 3 if name == "decode_parts" else 4
    if not isinstance(value, list) or [type(size) for size in value] != [int] * count:
        return False
    *sizes, warps, stages = value
    return (
        all(size >= 16 and not size & (size - 1) for size in sizes)
        and warps in (1, 2, 4, 8, 16)
        and stages >= 1
    )


@cache
def _compiled() -> list[Row]:
    record = load_record("resources")
    return [] if record is None else [*record["shipped"], *record.get("variants", ())]


def _loop_faults(row: Choice, rows: Sequence[Choice]) -> Iterator[str]:
    """Yield what the compiled record has about a tile and its row does not state: spills in an iteration,
    serialised products, and more shared memory than the chip has.
    """
    most = shared = 0
    # A row for other cases does not decide those that another row names.
    named = [other for other in rows if row.otherwise and other.name == row.name and not other.otherwise]
    for one in _compiled():
        if "error" in one or not is_of(one, row) or any(_covers(other, one) for other in named):
            continue
        if one["shared_bytes"] > CHIPS[one["arch"]].shared_bytes:
            shared = max(shared, one["shared_bytes"])
        if not (loop := one.get("hot_loop")):
            continue
        most = max(most, loop["spills"])
        if 0 < loop["wgmma"] <= (loop["waits"] or 0):
            yield (
                f"the loop waits for each of its {loop['wgmma']} products, on sm_{one['arch']}. "
                "Choose another tile"
            )
    if most != (stated := row.evidence.get("spills", 0)):
        if most:
            what, advice = f"spills {most} registers", f'Write "spills": {most}, or choose another tile'
        else:  # perhaps because the record lacks this kernel
            what, advice = "has no recorded spills", "Record `resources` again, or remove `spills`"
        yield f"the tile {what} in an iteration, the row states {stated}. {advice}"
    if shared != row.evidence.get("shared_bytes", 0):
        advice = f'Write "shared_bytes": {shared}' if shared else "Remove `shared_bytes`"
        what = f"needs {shared} bytes of shared memory, more than the chip has" if shared else "fits the chip"
        yield f"the tile {what}. {advice}"


def is_of(one: Row, row: Choice) -> bool:
    """Return True if a compiled kernel is one that the row decides, with the row's tile."""
    sizes = [one[part] for part in ("BM", "BN", "BD", "warps", "stages") if one[part] is not None]
    return one["kernel"] == row.name and sizes == row.value and _covers(row, one)


def _covers(row: Choice, one: Row) -> bool:
    """Return True if the case of a compiled kernel is within the limits of a row."""
    band = "causal" if one["causal"] else "full"
    mask = {"block_mask": "blocks", "packed": "packed", "window": "window"}.get(one["pairs"], band)
    case = {"arch": one["arch"], "itemsize": one["bytes"], "d": one["d"], "mask": mask}
    case["group"] = one.get("group", 1)
    if one["kernel"] in SLICED:
        case.pop("d")  # any d runs the same code
    whole = domain(row.name)
    return all(is_within(value, row.where.get(name, whole[name])) for name, value in case.items())


def _bytes_faults(row: Choice) -> Iterator[str]:
    """Yield the head sizes of a row at which fit and bytes decide otherwise than the row."""
    from tools.bench.resources.whole_rows import SLICES, WHOLE_VALUE, by_bytes

    if row.name not in WHOLE_VALUE or row.value not in (WHOLE_VALUE[row.name], SLICES):
        yield f"bytes decide only {', '.join(WHOLE_VALUE)}, and only between complete rows and slices"
        return
    low, high = row.where.get("d", RANGES["d"])
    for arch, itemsize in product(set(row.where["arch"]) - {None}, row.where["itemsize"]):
        for d in sorted({low, high, *(d for d in BYTES_AT if low <= d <= high)}):
            if (value := by_bytes(row.name, arch, itemsize, d)) != row.value:
                yield f"fit and bytes decide for {value} on sm_{arch}, {itemsize} bytes per number, d = {d}"
                return


def _cover(rows: Sequence[Choice], name: str) -> Iterator[str]:
    """Yield the gaps and overlaps of the rows of one name: every case must be in exactly one row."""
    whole = domain(name)
    for arch, itemsize in product(whole["arch"], whole["itemsize"]):
        near = [row for row in rows if arch in row.where["arch"] and itemsize in row.where["itemsize"]]
        points = [_points(axis, whole[axis], near) for axis in Case._fields[2:]]
        for rest in product(*points):
            case = Case(arch, itemsize, *rest)
            named = [row for row in near if row.covers(case)]
            decide = [row for row in named if not row.otherwise] or named
            if len(decide) != 1:
                what = "no row decides" if not decide else f"{len(decide)} rows decide"
                some = "".join(f"; {described(row)}" for row in decide)
                advice = "Change their limits, or mark one `otherwise`" if decide else "Add or extend a row"
                yield f"choices.json, {name}: {what} {case}{some}. {advice}"
                return


def _points(axis: str, whole: Any, rows: Sequence[Choice]) -> list[Any]:
    """Return one value in each part of an axis that the limits of the rows separate."""
    if axis in SETS:
        return list(whole)
    starts = {whole[0]}
    for row in rows:
        low, high = row.where.get(axis, whole)
        starts |= {low} | ({high + 1} if high is not None else set())
    return sorted(at for at in starts if whole[0] <= at and (whole[1] is None or at <= whole[1]))


# Times.


class Timed(NamedTuple):
    """A timed shape: its case, its name in `except` of a row, and the milliseconds of each value."""

    case: Case
    about: str
    ms: Mapping[Any, float]


TUNE = "tune"  # the record of tiles
SLOWER = 1.02  # a choice that takes longer than this many times the fastest needs a reason


# The value of a choice that each implementation of a record ran: record -> choice -> implementation -> value.
WAYS: dict[str, dict[str, dict[str, Any]]] = {
    **{
        record: {"backward pass": {"fused": "fused", "two-pass": "two-pass"}}
        for record in ("attention", "attention-lengths", "attention-tutorial")
    },
    "small-cache": {
        "forward pass": {
            "whole rows": "complete rows", "fused split-d": "slices", "materialised": "materialised",
        },
        "backward pass": {"whole rows": "fused", "fused split-d": "slices", "materialised": "materialised"},
    },
    "varlen": {"packed descriptors": {"fused": False, "packed by descriptors": True}},
    "decode": {"decode step": {"split-KV": "second launch", "last program merges": "last program"}},
}  # fmt: skip


def timed(record: str, name: str, records: Mapping[str, Row] | None = None) -> list[Timed]:
    """Return the shapes of a record at which two values of a choice were timed. records: as in `faults`."""
    run = (records or {}).get(record) or load_record(record)
    if run is None:
        return []
    if record == TUNE:
        return _tuned(run, name)
    ways, found = WAYS.get(record, {}).get(name.split(",")[0], {}), dict[tuple[Case, str], dict[Any, float]]()
    passes = (name.split()[0], *_ANY.get(record, ()))
    for one in run["rows"]:
        ms = one.get("ms") or one.get("us", 0) / 1000
        if one["contender"] in ways and ms and one["pass"].split()[0] in passes:
            about = " ".join(
                [record, *(f"{part} {one[part]}" for part in _SHAPE if one.get(part) is not None)]
            )
            found.setdefault((_case_of(run, one), about), {})[ways[one["contender"]]] = ms
    return [Timed(case, about, ms) for (case, about), ms in found.items() if len(ms) > 1]


_SHAPE = ("d", "N", "B", "H", "H_kv", "causal", "lengths", "pass")  # of a row, in the name of a shape
_ANY = {"varlen": ("forward", "backward"), "decode": ("forward",)}  # passes that count for any choice


def _case_of(run: Row, one: Row) -> Case:
    arch, itemsize = run["device"]["arch"], {"float32": 4}.get(one["dtype"], 2)
    if run["subject"] == "varlen":
        return Case(arch, itemsize, one["d"], "packed", one["H"] // one.get("H_kv", one["H"]))
    H, H_kv, N = one["H"], one.get("H_kv") or one["H"], one["N"]
    if run["subject"] == "decode":
        return Case(arch, itemsize, one["d"], "full", H // H_kv, one["B"] * H, one["B"] * H_kv)
    mask = "causal" if one["causal"] else "full"
    size = 2 * (H // H_kv) * N * N * itemsize
    return Case(arch, itemsize, one["d"], mask, H // H_kv, one["B"] * H * N, one["B"] * H_kv, size)


def _tuned(run: Row, name: str) -> list[Timed]:
    """Return the times of tiles: two masks for each kernel and head size."""
    found = []
    for search in run["kernels"]:
        if search["kernel"] == name:
            for at, mask in enumerate(("full", "causal")):
                ms = {tuple(one["tile"]): one["ms"][at] for one in search["tried"] if one["ms"]}
                about = f"{TUNE} d {search['d']} {mask}"
                found.append(Timed(Case(run["arch"], 2, search["d"], mask), about, ms))
    return found


def _timing_faults(row: Choice, records: Mapping[str, Row]) -> Iterator[str]:
    """Yield the differences between a timed row and its record."""
    record, value = row.evidence["timed"], _key(row.value)
    if record not in (*WAYS, TUNE):
        yield f"timed must be one of {', '.join((*WAYS, TUNE))}; got {record!r}"
        return
    against, gain = _key(row.evidence.get("against")), row.evidence.get("gain")
    shapes = [
        one
        for one in timed(record, row.name, records)
        if decides(row, one.case) and {value, against} <= one.ms.keys()
    ]
    if not shapes:
        yield (
            f"the record {record} has no times of {value} and {against} for a case of this row. Write as the "
            "reason that it was not timed, without `timed`"
        )
        return
    ratios = [one.ms[against] / one.ms[value] for one in shapes]
    if gain != (found := [round(min(ratios), 2), round(max(ratios), 2)]):
        yield f"the gain is {found} by the record {record}, the row states {gain}. {_advice(found, against)}"
    for axis in ("d", "group", "heads", "rows", "matrices"):
        low, high = row.where.get(axis, RANGES[axis])
        values = [getattr(one.case, axis) for one in shapes]
        if axis in ("d", "group") and not (min(values) <= low and high is not None and high <= max(values)):
            yield f"{axis} {low} … {high} goes beyond the timed {min(values)} … {max(values)}. {_DIVIDE}"
        elif row.name not in WHOLE and axis in ("heads", "rows") and (low and low < min(values)):
            yield f"{axis} from {low} goes below the timed {min(values)}. {_DIVIDE}"
        elif axis == "matrices" and row.value == "materialised" and (high is None or high > max(values)):
            yield f"{axis} to {high} goes beyond the timed {max(values)}. {_DIVIDE}"


_DIVIDE = "Limit the row to these, and give the other cases a row without `timed`"


def _advice(gain: Sequence[float], against: Any) -> str:
    """Return the change of a row that states another gain."""
    if min(gain) >= 1:
        return f'Write "gain": {list(gain)}'
    if max(gain) <= 1:
        return f"Choose {against}, which was faster at each shape"
    return f"Limit the row to cases where it was faster than {against}, or state a reason"


def _slower(record: str, rows: Sequence[Choice], records: Mapping[str, Row]) -> Iterator[str]:
    """Yield the shapes of a record at which the choice is slower than another, and its row has no reason."""
    for name in {row.name for row in rows} - {*PASSES[2:]}:  # in these a caller has chosen
        for one in timed(record, name, records):
            near = [row for row in rows if decides(row, one.case)]
            row = next((row for row in near if not row.otherwise), near[0])
            ms, least = one.ms.get(_key(row.value)), min(one.ms.values())
            if (ms is None or ms > SLOWER * least) and one.about not in row.evidence.get("except", {}):
                fast = next(value for value, time in one.ms.items() if time == least)
                took = "it took no recorded time" if ms is None else f"it took {ms:.3f} ms"
                yield (
                    f"choices.json, {described(row)}: at {one.about} {took}, {fast} {least:.3f} ms. Choose "
                    "that, or give the reason in `except`"
                )


def decides(row: Choice, case: Case) -> bool:
    """Return True if the row decides a case, its architecture and bytes included."""
    return case.arch in row.where["arch"] and case.itemsize in row.where["itemsize"] and row.covers(case)


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# Rows of the file.


def with_record(text: str, record: Row) -> tuple[str, list[str]]:
    """Return the text of choices.json with the tiles of a record of the step `tune`, and a line for each row
    that is new, changed or removed.
    """
    before = json.loads(text)
    rows = with_measured_tiles(before["rows"], record)
    then, now = ({_place(row): row for row in some if _is_tuned(row)} for some in (before["rows"], rows))
    lines = [_change(then.get(place), now.get(place)) for place in {**then, **now}]
    return file_text(before["about"], rows), [line for line in lines if line]


def _is_tuned(row: Row) -> bool:
    return bool(row.get("evidence", {}).get("timed") == "tune")


def _place(row: Row) -> tuple[Any, ...]:
    """Return what a row of a measured tile decides: the kernel, and its limits."""
    return (*row["choose"], *(json.dumps(row[name]) for name in ("arch", "itemsize", "mask", "d", "group")))


def _change(before: Row | None, after: Row | None) -> str:
    """Return a line about a changed row of a measured tile; "" if it is equal."""
    row = after or before or {}
    if before == after:
        return ""
    (kernel,) = row["choose"]
    about = f"choices.json: {kernel} on sm_{row['arch'][0]}, d = {row['d'][0]}, {row['mask'][0]}:"
    if after is None:
        return f"{about} no longer {times_joined(row['choose'][kernel])}, but the tile of another row"
    gain, against = row["evidence"]["gain"][0], times_joined(row["evidence"]["against"])
    return f"{about} {times_joined(row['choose'][kernel])}, {gain:.2f} times as fast as {against}"


def with_measured_tiles(rows: Sequence[Row], record: Row) -> list[Row]:
    """Return the rows of the file with the tiles of a record of the step `tune`, each for its timed case. The
    rows that decided these cases before become `otherwise`.
    """
    kept = [row for row in rows if not _is_tuned(row)]
    measured = [row for search in record["kernels"] for row in _measured(record["arch"], search)]
    for new in measured:
        kept = [one for row in kept for one in _below(row, new)]
    at = next((n for n, row in enumerate(rows) if _is_tuned(row)), len(rows))
    at += len(kept) + sum(map(_is_tuned, rows)) - len(rows)  # rows that `_below` has divided
    return [*kept[:at], *measured, *kept[at:]]


def _measured(arch: int, search: Row) -> Iterator[Row]:
    """Yield the rows of a search, one for each mask for which another tile than the shipped is faster."""
    shipped = tuple(search["shipped"])
    for at, mask in enumerate(("full", "causal")):
        ms = {tuple(one["tile"]): one["ms"][at] for one in search["tried"] if len(one["ms"]) > at}
        tile = tuple(search["chosen"][at])
        # A shipped tile that failed has no time; then the gain is that over the next fastest tile.
        rivals = [shipped] if shipped in ms else sorted(ms.keys() - {tile}, key=lambda one: ms[one])
        if tile == shipped or not rivals:
            continue
        gain = round(ms[rivals[0]] / ms[tile], 2)
        where = {"arch": [arch], "itemsize": [2], "mask": [mask], "d": [search["d"]] * 2, "group": [1, 1]}
        evidence = {"timed": "tune", "against": list(rivals[0]), "gain": [gain, gain]}
        row = {"choose": {search["kernel"]: list(tile)}, **where, "why": "the fastest of the tiles tried"}
        yield {**row, "evidence": evidence}


def _below(row: Row, new: Row) -> Iterator[Row]:
    """Yield a row so that the new row decides its case: the kernel as a separate row, with `otherwise`."""
    ((kernel, _),) = new["choose"].items()
    case = Case(new["arch"][0], 2, new["d"][0], new["mask"][0])
    named = [one for one in read_rows(json.dumps({"rows": [row]})) if one.name == kernel]
    if not any(decides(one, case) and not one.otherwise and "timed" not in one.evidence for one in named):
        yield row
        return
    if others := {name: value for name, value in row["choose"].items() if name != kernel}:
        yield {**row, "choose": others}
    yield {**row, "choose": {kernel: row["choose"][kernel]}, "otherwise": True}


def file_text(about: str, rows: Sequence[Row]) -> str:
    """Return the text of choices.json: one line per row."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return f'{{"about": {json.dumps(about, ensure_ascii=False)},\n"rows": [\n{lines}\n]}}\n'
