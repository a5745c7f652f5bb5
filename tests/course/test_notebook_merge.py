"""Tests that a merge keeps the student's cells, for all lessons and for small random ones."""

import copy
import json
from pathlib import Path

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iocourse.course.project_paths import find_course
from iocourse.course.student_copies import notebook
from iocourse.course.student_copies.copies import lesson_of_copy
from iocourse.course.student_copies.merge import merge_copy
from iocourse.course.student_copies.notebook import as_copy, cell_key, fingerprints, text_of

ROOT = Path(__file__).parents[2]
LESSONS = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in find_course(ROOT).notebooks()}


def students(cells):
    """Return the cells of a lesson in which the student writes."""
    return [cell for cell in cells if {"exercise", "predict"} & set(cell["metadata"].get("tags", ()))]


def with_source(cell, text):
    cell["source"] = text.splitlines(keepends=True)


def markdown(text, name="new"):
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": [text]}


def code(text, cell_id, **metadata):
    cell = {"cell_type": "code", "id": cell_id, "metadata": metadata, "source": [text]}
    return cell | {"outputs": [], "execution_count": None}


def exercise(text, name):
    return code(text, name, name=name, tags=["exercise"])


def small(*cells):
    return {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def answered(lesson, name):
    """Return a copy with an answer and outputs in each student cell, and a note after each."""
    mine = as_copy(copy.deepcopy(lesson), name)
    cells = []
    for cell in mine["cells"]:
        cells.append(cell)
        if cell in students(mine["cells"]):
            with_source(cell, text_of(cell).replace("...", "1") + f"\n# my answer to {cell_key(cell)}")
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": [f"ran {cell_key(cell)}"]}]
            cells.append(markdown(f"note after {cell_key(cell)}", name=f"note{len(cells)}"))
    return mine | {"cells": cells}


def changed(lesson):
    """Return the lesson as in a later release: one more paragraph, changed texts, another order."""
    new = copy.deepcopy(lesson)
    for cell in new["cells"]:
        if not students([cell]):
            with_source(cell, text_of(cell) + "\n# a word more")
    first = next(n for n, cell in enumerate(new["cells"]) if cell in students(new["cells"]))
    new["cells"].insert(first, markdown("a new paragraph", "new-paragraph"))
    new["cells"].reverse()  # also another order
    return new


# ------------------------------------------------------------------ all lessons
@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_with_every_exercise_answered_keeps_every_answer_in_a_changed_text(name):
    lesson, new = LESSONS[name], changed(LESSONS[name])
    mine = answered(lesson, name)
    merged = merge_copy(mine, new, name)
    cells = merged.notebook["cells"]
    nbformat.validate(nbformat.from_dict(merged.notebook))
    assert len(students(lesson["cells"])) == len(merged.answers) > 0 and not merged.homeless
    at = {cell["id"]: n for n, cell in enumerate(cells)}
    for cell in students(mine["cells"]):
        kept = cells[at[cell["id"]]]
        assert text_of(kept) == text_of(cell) and kept["outputs"] == cell["outputs"]
        assert kept["metadata"] == cell["metadata"]
        assert text_of(cells[at[cell["id"]] + 1]) == f"note after {cell_key(cell)}"
    theirs = {text_of(cell) for cell in new["cells"] if not students([cell])}
    assert theirs <= set(map(text_of, cells))
    assert (
        merge_copy(merged.notebook, new, name).notebook == merged.notebook
    )  # a second merge changes nothing


@pytest.mark.parametrize("name", LESSONS)
def test_a_lesson_that_was_only_run_is_the_new_text(name):
    lesson, new = LESSONS[name], changed(LESSONS[name])
    mine = as_copy(copy.deepcopy(lesson), name)
    mine["metadata"]["language_info"]["version"] = "3.14.1"
    for cell in mine["cells"]:
        cell["metadata"]["collapsed"] = False
        cell["execution_count"] = 3
    assert fingerprints(mine) == notebook.recorded_fingerprints(mine)
    merged = merge_copy(mine, new, name)
    assert (
        fingerprints(merged.notebook) == fingerprints(new) == notebook.recorded_fingerprints(merged.notebook)
    )
    assert not merged.answers and not merged.others and not merged.homeless


@pytest.mark.parametrize("name", LESSONS)
def test_cells_of_a_lesson_have_keys_of_their_own(name):
    keys = [cell_key(cell) for cell in LESSONS[name]["cells"]]
    assert all(keys) and len(set(keys)) == len(keys)


@pytest.mark.parametrize("name", LESSONS)
def test_a_copy_that_says_nothing_of_its_lesson_is_found_and_keeps_its_answers(name):
    mine = answered(LESSONS[name], name)
    del mine["metadata"]["iocourse"]
    assert lesson_of_copy(mine, LESSONS) == name
    cells = {
        cell["id"]: text_of(cell) for cell in merge_copy(mine, changed(LESSONS[name]), name).notebook["cells"]
    }
    for cell in mine["cells"]:
        if cell in students(mine["cells"]) or cell["id"].startswith("note"):
            assert cells[cell["id"]] == text_of(cell)


# ------------------------------------------------------------------ small notebooks
TEXTS = st.sampled_from(["", "a", "b", "c"])
NAMES = [f"n{k}" for k in range(6)]


@st.composite
def lessons(draw):
    """Strategy for lessons: cells in any order, some of them exercises, with repeated texts."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, 6))]
    kinds = [draw(st.booleans()) for _ in names]
    return small(
        *(
            exercise(draw(TEXTS), f"ex-{n}") if asks else code(draw(TEXTS), n)
            for n, asks in zip(names, kinds, strict=True)
        )
    )


@st.composite
def edited(draw, lesson):
    """Strategy for edited copies (cells changed, added, doubled, moved, removed), and the texts written."""
    mine = as_copy(copy.deepcopy(lesson), "lesson")
    cells, written = mine["cells"], []
    for step in range(draw(st.integers(0, 6))):
        what, at = draw(st.sampled_from(["edit", "add", "double", "move", "delete"])), draw(st.integers(0, 9))
        text = f"written {step}"
        if what == "add":
            cells.insert(at, code(text, f"mine-{step}"))
        elif cells:
            cell = cells[at % len(cells)]
            if what == "edit":
                with_source(cell, text)
            elif what == "double":
                cells.insert(at, copy.deepcopy(cell) | {"id": f"mine-{step}"})
            else:
                cells.remove(cell)
                if what == "move":
                    cells.insert(draw(st.integers(0, 9)), cell)
    written = [text_of(cell) for cell in cells if text_of(cell).startswith("written")]
    return mine, written


@settings(max_examples=300, deadline=None)
@given(data=st.data(), lesson=lessons(), new=lessons())
def test_nothing_that_was_written_is_lost(data, lesson, new):
    mine, written = data.draw(edited(lesson))
    before = copy.deepcopy((mine, new))
    merged = merge_copy(mine, new, "lesson").notebook
    assert (mine, new) == before
    texts = [text_of(cell) for cell in merged["cells"]]
    assert all(texts.count(text) >= written.count(text) for text in written)
    ids = [cell["id"] for cell in merged["cells"]]
    assert len(set(ids)) == len(ids)
    asked = {cell_key(cell) for cell in students(mine["cells"])}
    as_before = {text_of(cell) for cell in lesson["cells"]}
    for cell in new["cells"]:  # the new text is present, except where the student replaced an unchanged cell
        assert cell["id"] in ids
        if cell_key(cell) not in asked and text_of(cell) not in as_before:
            assert text_of(cell) in texts
    assert [n for n in ids if n in {c["id"] for c in new["cells"]}] == [c["id"] for c in new["cells"]]
    again = merge_copy(merged, new, "lesson")
    assert again.notebook == merged


@settings(max_examples=100, deadline=None)
@given(data=st.data(), lesson=lessons(), new=lessons())
def test_of_a_copy_without_a_record_answers_and_cells_of_ones_own_are_kept(data, lesson, new):
    mine, _ = data.draw(edited(lesson))
    del mine["metadata"]["iocourse"]
    own = [
        c for c in mine["cells"] if text_of(c).startswith("written") and (students([c]) or "mine" in c["id"])
    ]
    texts = [text_of(cell) for cell in merge_copy(mine, new, "lesson").notebook["cells"]]
    assert all(text_of(cell) in texts for cell in own)


def sources(merged):
    return [text_of(cell) for cell in merged.notebook["cells"]]


def test_an_exercise_that_has_gone_stands_at_the_end_under_one_heading():
    lesson = small(markdown("title", "t"), exercise("stub A", "ex-1A"), exercise("stub B", "ex-1B"))
    mine = as_copy(copy.deepcopy(lesson), "l")
    with_source(mine["cells"][1], "answer A")
    merged = merge_copy(
        mine, small(markdown("title", "t"), exercise("stub", "ex-1Z"), exercise("stub B", "ex-1B")), "l"
    )
    assert merged.homeless == ["1A"]
    assert sources(merged)[:3] == ["title", "stub", "stub B"]
    assert sources(merged)[3].startswith("### Kept from your copy") and sources(merged)[4:] == ["answer A"]
    assert "nbgrader" not in merged.notebook["cells"][-1]["metadata"]
    merged.notebook["cells"][2]["source"] = ["answer B"]
    later = merge_copy(merged.notebook, small(markdown("title", "t")), "l")
    assert sources(later).count(sources(merged)[3]) == 1 and sources(later)[-2:] == ["answer A", "answer B"]


def prediction(text, name):
    return code(text, name, tags=["predict"])


@pytest.mark.parametrize("answer", ['predict("1.2", heads=207)', 'predict("1.2", heads=...)'])
def test_a_number_of_another_prediction_gets_no_answer_to_the_earlier_one(answer):
    stub = 'predict("1.2", words=...)'
    mine = as_copy(small(prediction('predict("1.2", heads=...)', "p"), markdown("end", "t")), "l")
    with_source(mine["cells"][0], answer)
    merged = merge_copy(mine, small(prediction(stub, "p"), markdown("end", "t")), "l")
    kept = [answer] if "207" in answer else []
    assert sources(merged)[:2] == [stub, "end"] and sources(merged)[3:] == kept
    assert merged.homeless == ["prediction 1.2"] * len(kept) and merged.answers == []


@pytest.mark.parametrize("answer", ['predict("1.2", words=7)', 'predict("1.2", words=7'])  # not Python
def test_an_answer_to_the_same_prediction_stays_in_its_cell(answer):
    mine = as_copy(small(prediction('predict("1.2", words=...)', "p")), "l")
    with_source(mine["cells"][0], answer)
    merged = merge_copy(mine, small(prediction('predict("1.2", words=...)  # new', "p")), "l")
    assert sources(merged) == [answer] and merged.answers == ["prediction 1.2"]


def test_a_stub_that_nobody_wrote_in_goes_with_its_exercise():
    lesson = small(markdown("title", "t"), exercise("stub A", "ex-1A"))
    assert sources(merge_copy(as_copy(lesson, "l"), small(markdown("title", "t")), "l")) == ["title"]


def test_of_a_copied_exercise_cell_the_original_is_the_answer():
    lesson = small(exercise("stub", "ex-1A"), markdown("after", "t"))
    mine = as_copy(copy.deepcopy(lesson), "l")
    mine["cells"].insert(0, copy.deepcopy(mine["cells"][0]) | {"id": "mine", "source": ["a try"]})
    mine["cells"][1]["source"] = ["the answer"]
    merged = merge_copy(mine, small(exercise("new stub", "ex-1A"), markdown("after", "t")), "l")
    assert sources(merged) == ["a try", "the answer", "after"]
    assert [cell["id"] for cell in merged.notebook["cells"]][1:] == ["ex-1A", "t"]
    assert merged.asked_anew == ["1A"]


def test_a_changed_example_stays_or_follows_the_lessons_where_that_changed_too():
    lesson = small(code("N = 1", "a"), code("M = 1", "b"))
    mine = as_copy(copy.deepcopy(lesson), "l")
    mine["cells"][0]["source"], mine["cells"][1]["source"] = ["N = 7"], ["M = 7"]
    merged = merge_copy(mine, small(code("N = 1", "a"), code("M = 2", "b")), "l")
    assert sources(merged) == ["N = 7", "M = 2", "M = 7"] and merged.others == 2


def test_a_new_paragraph_moves_ids_and_no_changed_example():
    lesson = small(code("N = 1", "id0"), code("M = 1", "id1"))
    mine = as_copy(copy.deepcopy(lesson), "l")
    mine["cells"][1]["source"] = ["M = 7"]
    mine["cells"].append(markdown("my note", "mine"))
    new = small(code("N = 1", "id0"), markdown("new", "id1"), code("M = 1", "id2"), markdown("end", "id3"))
    merged = merge_copy(mine, new, "l")
    assert sources(merged) == ["N = 1", "new", "M = 7", "my note", "end"]


def test_what_came_out_stays_with_the_text_it_came_from():
    mine = as_copy(small(code("a", "id0"), code("b", "id1")), "l")
    for cell in mine["cells"]:
        cell |= {
            "execution_count": 5,
            "outputs": [{"name": "stdout", "output_type": "stream", "text": ["5"]}],
        }
    same, other = merge_copy(mine, small(code("a", "id0"), code("c", "id1")), "l").notebook["cells"]
    assert same["execution_count"] == 5 and same["outputs"] == mine["cells"][0]["outputs"]
    assert other["execution_count"] is None and other["outputs"] == []


def test_two_cells_of_ones_own_with_one_id_are_told_apart():
    mine = as_copy(small(code("a", "id0")), "l")
    mine["cells"] += [
        markdown("one", "mine"),
        markdown("two", "mine"),
        markdown("two", "an id that nbformat rejects"),
    ]
    cells = merge_copy(mine, small(code("a", "id0")), "l").notebook["cells"]
    nbformat.validate(nbformat.from_dict({**small(*cells)}))
    assert [text_of(cell) for cell in cells] == ["a", "one", "two", "two"]
    assert len({cell["id"] for cell in cells}) == 4
