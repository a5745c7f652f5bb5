"""Tests of the generated parts of pages: README's figure, results and lesson tables, links, and run times."""

import re
import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from iocourse import bounds, run, schedules
from tools.build import generated_sections as sections
from tools.build.project import Project

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
    assert stale in list(sections.problems(tmp_path, [], NOBODYS))
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


def test_links_to_colab_and_binder_are_written_once_the_address_is_claimed():
    assert "http" not in sections.published(NOBODYS) and "publishing.md" in sections.published(NOBODYS)
    said = sections.published(CLAIMED)
    assert CLAIMED.colab("lessons/00_start_here.ipynb") in said
    assert "https://mybinder.org/v2/gh/owner/course/v1.0.0?" in said


def test_pieces_go_between_their_markers_and_nowhere_else():
    text = "a\n<!-- x -->\nold\n<!-- /x -->\nb\n<!-- y -->\n"
    assert sections.with_marked(text, {"x": "new", "y": "no end", "z": "no"}) == text.replace("old", "new")
    assert sections.marked(text, "y") is None
