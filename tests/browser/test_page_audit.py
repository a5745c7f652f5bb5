"""Tests of the page audit on a small page, with and without faults."""

import pytest
from page_audit import contrast, ratio, spoken, unnamed

NAMED = """<svg role="img"><title>A map</title><desc>It falls.</desc><text>inside</text></svg>
<img alt="Words." src="data:,"><button>Go</button><label>M <input type="range" value="7"
aria-valuetext="1,024 words"></label>
<a href="#x">on</a><select aria-label="pass"><option>forward</option></select>"""
NAMELESS = [
    '<svg role="img"><text>inside</text></svg>',
    '<img src="data:,">',
    '<button aria-pressed="true"></button>',
    '<input type="range">',
    '<input type="checkbox">',
    '<input type="number">',
    '<a href="#x"></a>',
    "<select><option>forward</option></select>",
]


@pytest.fixture(scope="module")
def page(chromium):
    page = chromium.new_page()
    yield page
    page.close()


def test_what_has_a_name_is_told_with_it(page):
    page.set_content(NAMED)
    assert unnamed(page) == []
    said = spoken(page)
    assert [one.role for one in said[:6]] == ["image", "image", "button", "slider", "link", "combobox"]
    assert [one.name for one in said[:6]] == ["A map", "Words.", "Go", "M", "on", "pass"]
    assert said[0].description == "It falls." and said[3].value == "1,024 words"


@pytest.mark.parametrize("element", NAMELESS)
def test_what_has_no_name_is_found(page, element):
    page.set_content(f"<main>{NAMED}</main><aside>{element}</aside>")
    assert len(unnamed(page)) == len(unnamed(page, "aside")) == 1
    assert element.startswith(unnamed(page)[0].tag[:4])
    assert unnamed(page, "main") == []


def test_the_text_that_is_hardest_to_read_is_found(page):
    page.set_content(
        '<p>black</p><div style="background:#222"><p style="color:#ddd">light</p>'
        '<p style="color:#777">dim</p></div><svg><text fill="#fff">in a picture</text></svg>'
        '<p style="color:#fff;visibility:hidden">hidden</p><button disabled>off</button>'
    )
    worst = contrast(page)
    assert worst.text == "dim" and worst.colour == [0x77] * 3 and worst.ground == [0x22] * 3
    assert worst.ratio == pytest.approx(3.55, abs=0.01)


def test_what_shines_through_counts(page):
    page.set_content('<div style="opacity:.5"><p style="color:black">half</p></div>')
    assert contrast(page).colour == [127] * 3 or contrast(page).colour == [128] * 3
    page.set_content('<div style="background:rgba(0,0,0,.5)"><p style="color:black">on grey</p></div>')
    assert contrast(page).ground in ([127] * 3, [128] * 3)
    page.set_content("")
    assert contrast(page) is None


def test_contrast_is_that_of_wcag():
    assert ratio((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert ratio((230, 159, 0), (255, 255, 255)) == pytest.approx(2.25, abs=0.01)
