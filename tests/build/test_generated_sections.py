"""Tests of the generated parts of pages: README's figure, results and lesson tables, links, and run times."""

import json
import re
import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from iocourse import bounds, run, schedules
from tools.build import course
from tools.build import generated_sections as sections
from tools.build.lesson import read_lessons
from tools.build.percent_format import Cell
from tools.build.project import Project, read_project

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_figure_on_disk_shows_todays_numbers_in_few_bytes():
    assert sections.figure_is_current(ROOT)
    assert (ROOT / sections.FIGURE).stat().st_size <= 60 * 1024


def test_the_alt_text_in_readme_is_that_of_the_figure():
    found = sections.marked(README, "figure")
    assert found == f"![{sections.first_figure().alt}](docs/words-moved.png)\n"
    assert "]" not in sections.first_figure().alt


def test_the_figure_has_at_most_four_named_curves_and_the_lower_bound():
    drawn, *_ = sections.first_figure().numbers.splitlines()[1:]
    names = re.split(r"  +", drawn.strip())
    assert names[-1] == "lower bound" and 1 <= len(names[1:-1]) <= 4
    assert not [name for name in names if re.search(r"_|\b[FB]\d", name)]  # names, not ids or labels


def test_the_alt_text_and_the_sentence_below_the_figure_give_the_counted_words():
    N, d, M = sections.N, sections.d, sections.M
    words = {name: schedules.REGISTRY[name] for name in ("naive", "flash1", "flash2", "small_cache")}
    totals = {name: one.cost(N, d, **one.tiles(N, d, M)).total for name, one in words.items()}
    least = bounds.lower_bound("forward", N, d, M)[0]
    alt = sections.first_figure().alt
    for count in (totals["naive"], totals["flash1"], totals["flash2"], least):
        assert f"{count:,}" in alt
    said = f"{totals['flash2'] / least:.2f} × the lower bound"
    assert said in alt and f"M = {M:,} words" in README and said in README.split("<!-- /figure -->")[1]
    crossing = int(re.search(r"Up to about M = ([\d,]+)", alt)[1].replace(",", ""))
    for M, fewer in ((crossing, True), (crossing * 2, False)):
        split, whole = (
            words[n].cost(N, d, **words[n].tiles(N, d, M)).total for n in ("small_cache", "flash2")
        )
        assert (split < whole) == fewer


def test_the_result_that_was_counted_is_counted_again():
    counted = (sections.marked(README, "results") or "").splitlines()[2]
    N, d, M = (int(n.replace(",", "")) for n in re.findall(r"[NdM] = ([\d,]+\d)", counted))
    shapes, flash = np.zeros((3, N, d), dtype=np.float32), schedules.flash2
    dry = run(flash, M=M, dry=True, Q=shapes[0], K=shapes[1], V=shapes[2], **flash.tiles(N, d, M)).ledger
    least = bounds.lower_bound("forward", N, d, M)[0]
    assert f"{dry.total:,}, {dry.total / least:.2f} × the lower bound" in counted


def test_the_size_counts_the_lines_of_the_library_and_of_the_course(tmp_path):
    for name, lines in (
        ("course/a/b", 2600),
        ("course/c", 1005),
        ("ledger", 600),
        ("x/course", 900),
    ):
        path = tmp_path / "iocourse" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#\n" * lines)
    (tmp_path / "iocourse" / "data.txt").write_text("#\n" * 9000)
    assert re.findall(r"[\d,]+,\d+", sections.size(tmp_path)) == ["2,000", "4,000"]
    assert sections.marked(README, "size").strip() == sections.size(ROOT)


@pytest.fixture
def drawn(monkeypatch):
    """Replace README's figure by a 2 × 2 image whose numbers a test can change."""
    from PIL import Image

    class Drawn:
        alt, numbers = "A line from 1 to 2.", "1 2"

        def to_png(self):
            out = BytesIO()
            Image.new("P", (2, 2)).save(out, "PNG")
            return out.getvalue()

    picture = Drawn()
    monkeypatch.setattr(sections, "first_figure", lambda: picture)
    return picture


NOBODYS = Project("owner/course", "v1.0.0")
CLAIMED = Project("owner/course", "v1.0.0", claimed=True)


def test_a_figure_is_drawn_where_readme_shows_one_and_again_when_its_numbers_change(tmp_path, drawn):
    assert sections.write_figure(tmp_path) == []  # no README
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("<!-- figure -->\n<!-- /figure -->\n")
    stale = f"{sections.FIGURE.as_posix()} is stale: run python -m tools.build"
    assert stale in list(sections.problems(tmp_path, {}, NOBODYS))
    assert (
        sections.write_figure(tmp_path) == ["docs/words-moved.png"] and sections.write_figure(tmp_path) == []
    )
    before = (tmp_path / sections.FIGURE).read_bytes()
    drawn.numbers = "1 3"
    assert not sections.figure_is_current(tmp_path)
    assert sections.write_figure(tmp_path) == ["docs/words-moved.png"]
    assert (tmp_path / sections.FIGURE).read_bytes() != before
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["words-moved.png"]


def test_a_signed_picture_is_a_whole_png(drawn):
    from PIL import Image

    png = sections.signed_png(drawn)
    image = Image.open(BytesIO(png))
    image.load()
    assert image.size == (2, 2) and image.text == {"iocourse": sections.signature(drawn).decode()}
    at, kinds = 8, []
    while at < len(png):  # each chunk: length, kind, body, checksum
        (size,), kind = struct.unpack(">I", png[at : at + 4]), png[at + 4 : at + 8]
        assert png[at + 8 + size : at + 12 + size] == struct.pack(
            ">I", zlib.crc32(png[at + 4 : at + 8 + size])
        )
        kinds, at = [*kinds, kind], at + 12 + size
    assert kinds[-2:] == [b"tEXt", b"IEND"]


def lesson(said, code="import numpy as np"):
    return [Cell("markdown", ("# 05 A title", "", said), (), "", 1), Cell("code", (code,), (), "", 9)]


@pytest.mark.parametrize(
    ("said", "numbers"),
    [
        ("**Prerequisites**: Python with a little NumPy, and the matrix product. No GPU.", []),
        ("**Prerequisites**: [lesson 05](05_how.ipynb), and lesson 02 for the matrix product.", ["02", "05"]),
        ("**Prerequisites**: lessons 04, 06 and 07 (F3, F7) and 05 (bounds).", ["04", "05", "06", "07"]),
        (
            "**Prerequisites**: Theorem A (lesson 05), section 5.9 ([05b](05b_lower_bound_proof.ipynb)).",
            ["05", "05b"],
        ),
        ("**Prerequisites**: lesson 02 (formulas (2.4) and (12.16)). Signs and terms of lesson 09.", ["02"]),
        ("Prerequisites are lessons 01 and 02.", []),
    ],
)
def test_what_a_lesson_builds_on_is_what_its_prerequisites_name(said, numbers):
    assert sections.builds_on(lesson(said)) == numbers


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import numpy as np", "NumPy"),
        ("try:\n    import torch\nexcept ImportError: pass", "NumPy, torch in part"),
        ("import torch, triton\n", "Triton"),
        ("from iocourse import kernels, masks\n", "Triton"),
        ("text = 'import torch'", "NumPy"),
    ],
)
def test_what_a_lesson_needs_is_read_off_its_code(code, what):
    assert sections.needs(code) == what


def table(name):
    """Return the cells of each row in one of README's tables, by lesson number, in order."""
    rows = (sections.marked(README, name) or "").splitlines()[2:]
    found = [[part.strip() for part in row.split("|")[1:-1]] for row in rows]
    return {re.match(r"\[(\w+) ", row[0])[1]: row for row in found}


def test_readmes_tables_have_a_row_a_lesson_with_the_minutes_that_stand_at_its_head():
    rows = table("spine") | table("electives")
    notebooks = sorted((ROOT / "lessons").glob("*.ipynb"))
    assert sorted(rows) == [path.name.partition("_")[0] for path in notebooks] and len(rows) > 25
    for path in notebooks:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        links, minutes, _, needed = rows[path.name.partition("_")[0]]
        title = text.splitlines()[0].removeprefix("# ")
        assert links == f"[{title}](lessons/{path.name}) · [solution](solutions/{path.name})"
        assert re.search(rf"\*\*Minutes\*\*: {minutes}\b", text)
        assert needed in ("NumPy", "Triton", "NumPy, torch in part")
    built = course.rows(read_lessons(ROOT, read_project(ROOT), only=["04"]))
    assert [row.split(" | ")[0].removeprefix("| ") for row in built.values()] == [
        rows[number][0] for number in ("04", "04b")
    ]


def test_the_main_path_is_complete_in_order_and_builds_on_itself_alone():
    main = table("spine")
    assert tuple(main) == sections.SPINE == tuple(sorted(sections.SPINE))
    for number, (_, _, builds_on, _) in main.items():
        before = [other for other in main if other < number]
        assert [other for other in re.findall(r"\w+", builds_on) if other not in before] == []


def test_links_to_colab_and_binder_are_written_once_the_address_is_claimed():
    cells = lesson("**Prerequisites**: none.")
    row, claimed = (sections.lesson_row("05_a", cells, 9, project) for project in (NOBODYS, CLAIMED))
    assert claimed == f"{row[:-2]} | [Colab]({CLAIMED.colab('lessons/05_a.ipynb')}) |" and "http" not in row
    heads = [sections.lesson_table([], project).splitlines()[0] for project in (NOBODYS, CLAIMED)]
    assert [head.count("|") for head in heads] == [row.count("|"), claimed.count("|")]
    assert "http" not in sections.published(NOBODYS) and "publishing.md" in sections.published(NOBODYS)
    said = sections.published(CLAIMED)
    assert CLAIMED.colab("lessons/00_start_here.ipynb") in said
    assert "https://mybinder.org/v2/gh/owner/course/v1.0.0?" in said


def test_pieces_go_between_their_markers_and_nowhere_else():
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n<!-- y -->\n"
    assert sections.with_marked(text, {"x": "new", "y": "no end", "z": "no"}) == text.replace("old", "new")
    assert sections.marked(text, "y") is None
