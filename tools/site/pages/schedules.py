"""Every schedule of the registry, with its closed form as `iocourse.costs` states it."""

from __future__ import annotations

from collections.abc import Mapping

from iocourse.schedules import REGISTRY, Schedule

HEAD = """# Schedules

Each schedule is a loop order that runs on the machine of lesson 02, word for word as its closed form says.
`iocourse count NAME --N 1024 --d 64 --M 16384` picks its best tiles and counts; `--run` also runs it. This
page is written from the registry.
"""


def schedules_page(sections: Mapping[str, str]) -> str:
    """The page, in Markdown; `sections` says how to link to section "4.1"."""
    parts = [HEAD, _contents(sections)]
    for pass_ in dict.fromkeys(schedule.pass_ for schedule in REGISTRY.values()):
        parts.append(f"## {pass_[0].upper()}{pass_[1:]}")
        parts += [_entry(schedule, sections) for schedule in REGISTRY.values() if schedule.pass_ == pass_]
    return "\n\n".join(parts) + "\n"


def anchor(name: str) -> str:
    """The place of a schedule on the page."""
    return f"schedule-{name.replace('_', '-')}"


def _contents(sections: Mapping[str, str]) -> str:
    rows = [
        f"| [{s.name}](#{anchor(s.name)}) | {s.label} | {_short(s, sections)} | {s.pass_} |"
        for s in REGISTRY.values()
    ]
    return "\n".join(["| name | label | section | pass |", "| --- | --- | --- | --- |", *rows])


def _taught(schedule: Schedule, sections: Mapping[str, str]) -> str:
    return sections[_section(schedule)]


def _short(schedule: Schedule, sections: Mapping[str, str]) -> str:
    """The link, of which the table shows the number: a row is one line on a phone too."""
    return f"[{_section(schedule)}]" + _taught(schedule, sections).partition("]")[2]


def _section(schedule: Schedule) -> str:
    return ".".join(str(number) for number in schedule.lesson[:2])


def _entry(schedule: Schedule, sections: Mapping[str, str]) -> str:
    tiles = ", ".join(f"`{name}`" for name in schedule.tile_names) or "none"
    needs = [("Must be told", ", ".join(f"`{name}`" for name in schedule.needs))]
    stands = schedule.stands_for.name if schedule.stands_for else ""
    facts = [
        ("Tiles", tiles),
        *needs,
        ("Regime", schedule.regime),
        ("Taught in", _taught(schedule, sections)),
    ]
    facts += [("Values", stands), ("Source", schedule.source)]
    told = " · ".join(f"{name}: {text}" for name, text in facts if text)
    said = _paragraphs(schedule.__doc__)[0]
    form = "\n\n".join(_paragraphs(schedule.cost_form.__doc__))
    return f"({anchor(schedule.name)})=\n### {schedule.title}\n\n{said}\n\n**Closed form.** {form}\n\n{told}"


def _paragraphs(text: str | None) -> list[str]:
    """The paragraphs of a docstring, in which a star or a line below is meant as it stands."""
    return [_plain(" ".join(part.split())) for part in (text or "").split("\n\n")]


def _plain(text: str) -> str:
    parts = text.split("`")
    parts[::2] = [part.replace("*", r"\*").replace("_", r"\_") for part in parts[::2]]
    return "`".join(parts)
