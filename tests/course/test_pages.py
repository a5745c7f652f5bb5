"""What release writes into pages: the map with its words, the table of lessons, the run times."""

import json
import re
import struct
import zlib
from io import BytesIO
from pathlib import Path

import pytest

from iocourse import schedules
from iocourse.course.authoring import pages, release
from iocourse.course.authoring.source import Cell
from iocourse.course.checkout import read_project

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_map_on_disk_shows_todays_numbers_in_few_bytes():
    assert pages.map_is_current(ROOT)
    assert (ROOT / pages.MAP).stat().st_size <= 60 * 1024


def test_the_words_beside_the_map_are_its_own():
    found = pages.marked(README, "map")
    assert found == f"![{pages.the_map().alt}](docs/map.png)\n"
    assert "1.19 × the lower bound" in found and "]" not in pages.the_map().alt


def test_what_the_map_calls_best_no_schedule_of_the_course_beats():
    N, d, M = 8192, 64, 58368
    best = schedules.best(N, d, M)
    assert f"M = {M:,}: {best.schedule.title} (" in pages.the_map().alt
    assert f"moves the fewest words, {best.cost.total:,}." in pages.the_map().alt


@pytest.fixture
def drawn(monkeypatch):
    """A picture that takes no time to draw, with numbers that a test may change."""
    from PIL import Image

    class Drawn:
        alt, numbers = "A line from 1 to 2.", "1 2"

        def to_png(self):
            out = BytesIO()
            Image.new("P", (2, 2)).save(out, "PNG")
            return out.getvalue()

    picture = Drawn()
    monkeypatch.setattr(pages, "the_map", lambda: picture)
    return picture


def test_a_map_is_drawn_where_readme_shows_one_and_again_when_its_numbers_change(tmp_path, drawn):
    assert pages.write_map(tmp_path) == []  # no README
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("<!-- map -->\n<!-- /map -->\n")
    assert f"{pages.MAP.as_posix()} is stale: run iocourse release" in list(pages.problems(tmp_path, []))
    assert pages.write_map(tmp_path) == ["docs/map.png"] and pages.write_map(tmp_path) == []
    before = (tmp_path / pages.MAP).read_bytes()
    drawn.numbers = "1 3"
    assert not pages.map_is_current(tmp_path)
    assert pages.write_map(tmp_path) == ["docs/map.png"]
    assert (tmp_path / pages.MAP).read_bytes() != before
    assert [path.name for path in (tmp_path / "docs").iterdir()] == ["map.png"]


def test_a_signed_picture_is_a_whole_png(drawn):
    from PIL import Image

    png = pages.signed_png(drawn)
    image = Image.open(BytesIO(png))
    image.load()
    assert image.size == (2, 2) and image.text == {"iocourse": pages.signature(drawn).decode()}
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
            "**Prerequisites**: Theorem A (lesson 05), section 5.9 ([05b](05b_the_proof.ipynb)).",
            ["05", "05b"],
        ),
        ("**Prerequisites**: lesson 02 (formulas (2.4) and (12.16)). Signs and terms of lesson 09.", ["02"]),
        ("Prerequisites are lessons 01 and 02.", []),
    ],
)
def test_what_a_lesson_builds_on_is_what_its_prerequisites_name(said, numbers):
    assert pages.builds_on(lesson(said)) == numbers


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
    assert pages.needs(code) == what


def test_readmes_table_has_a_row_a_lesson_with_the_minutes_that_stand_at_its_head():
    rows = (pages.marked(README, "lessons") or "").splitlines()[2:]
    notebooks = sorted((ROOT / "lessons").glob("*.ipynb"))
    assert len(rows) == len(notebooks) > 25
    for row, path in zip(rows, notebooks, strict=True):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        _, link, minutes, _, needed, colab, _ = (part.strip() for part in row.split("|"))
        assert link == f"[{text.splitlines()[0].removeprefix('# ')}](solutions/{path.name})"
        assert re.search(rf"\*\*Minutes\*\*: {minutes}\b", text)
        assert needed in ("NumPy", "Triton", "NumPy, torch in part") and f"/lessons/{path.name})" in colab
    assert release.rows(release.read_lessons(ROOT, read_project(ROOT), only=["04"])) == rows[4:6]


def test_pieces_go_between_their_markers_and_nowhere_else():
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n<!-- y -->\n"
    assert pages.with_marked(text, {"x": "new", "y": "no end", "z": "no"}) == text.replace("old", "new")
    assert pages.marked(text, "y") is None
