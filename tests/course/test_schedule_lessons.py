"""Tests of the table of the sections that teach the schedules, against the registries and the lessons."""

import re

import pytest

from iocourse import distributed, schedules
from iocourse.course.project_paths import find_checkout
from iocourse.course.schedule_lessons import SECTION_OF

NAMES = [*schedules.REGISTRY, *distributed.REGISTRY]
SOURCES = sorted((find_checkout() / "solutions").glob("[0-9]*.py"))
SECTIONS = {
    number: text
    for source in SOURCES
    for number, text in re.findall(
        r"^# ## (\d+\.\d+) (.*?)(?=^# ## |\Z)", source.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
}
# Sections that make the name of a schedule in code, or describe it in other words.
PARAPHRASED = {
    "ulysses_ring": "ulysses ring",
    "causal_contiguous": 'f"causal_{layout}"',
    "causal_zigzag": 'f"causal_{layout}"',
    "causal_striped": 'f"causal_{layout}"',
    "packed": "many texts in one row of tokens",
    "states_causal": "Under a causal mask a rank adds the states",
}


def test_no_name_is_in_both_registries_so_one_table_serves_both():
    assert len(NAMES) == len(set(NAMES))
    assert set(SECTION_OF) <= set(NAMES)


@pytest.mark.parametrize("name", SECTION_OF)
def test_the_section_of_a_schedule_exists_and_names_it(name):
    section = SECTIONS[SECTION_OF[name]]
    assert PARAPHRASED.get(name, name) in section
    assert name not in PARAPHRASED or not re.search(rf"\b{name}\b", section), "remove it from PARAPHRASED"


def test_a_schedule_that_a_lesson_names_in_code_has_a_section():
    for name in set(NAMES) - set(SECTION_OF):
        used = [number for number, text in SECTIONS.items() if re.search(rf'[`."]{name}\b', text)]
        assert not used, f"{name} is named in sections {', '.join(used)}; add the one that teaches it"
