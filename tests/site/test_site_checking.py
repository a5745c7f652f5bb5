"""Tests of the checks of built pages: they find broken links and images without text, and only these."""

import pytest
from built_site import problems_of


@pytest.fixture
def site(tmp_path):
    """Return a function: names and bodies of pages → folder with these pages."""

    def made(**pages):
        for name, body in pages.items():
            path = tmp_path / f"{name.replace('__', '/')}.html"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"<!doctype html><title>{name}</title><body>{body}", encoding="utf-8")
        return tmp_path

    return made


def test_a_site_without_a_fault_has_no_problems(site):
    folder = site(
        index='<a href="lessons/a.html#one">a</a><a href="#">top</a><a href="lessons/">all</a>'
        '<a href="x.txt">x</a>'
        '<a href="https://example.org/none">away</a><a href="mailto:a@example.org">post</a>'
        '<img src="data:," alt="Two bars, 3 and 4 words.">',
        lessons__a='<h2 id="one">One</h2><a href="../index.html">up</a><a name="old"></a>'
        '<a href="#old">old</a>',
        lessons__index="all",
    )
    (folder / "x.txt").write_text("x")
    assert problems_of(folder) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<a href="none.html">x</a>', "index.html: no such place: none.html"),
        ('<a href="other.html#two">x</a>', "index.html: no such place: other.html#two"),
        ('<a href="#two">x</a>', "index.html: no such place: #two"),
        ('<script src="_static/none.js"></script>', "index.html: no such place: _static/none.js"),
        ('<img src="data:,">', "index.html: a picture without alternative text: data:,"),
        ('<img src="data:," alt=" ">', "index.html: a picture without alternative text: data:,"),
        (
            '<img src="data:," alt="_images/0a1b.png">',
            "index.html: a picture without alternative text: data:,",
        ),
    ],
)
def test_a_fault_is_named_with_its_page(site, body, said):
    assert problems_of(site(index=body, other='<p id="one">')) == [said]


def test_the_same_broken_link_is_said_once_a_page(site):
    assert len(problems_of(site(index='<a href="no">x</a>' * 3, other='<a href="no">x</a>'))) == 2
