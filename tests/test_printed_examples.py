"""Every example on a page prints what the page shows, here and on another processor."""

import json
import subprocess
import sys

import other_processor
import pytest
from printed_examples import ROOT, SAYS, can_run, examples, pages, printed

EXAMPLES = [one for page in pages() for one in examples(page)]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_output_on_a_page_is_that_of_an_example(page):
    """An example in another form would not be run."""
    assert page.read_text(encoding="utf-8").count(SAYS) == len(examples(page))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.page)
def test_an_example_prints_what_its_page_shows(example):
    if not can_run(example):
        pytest.skip("triton is not installed")
    assert printed(example) == example.output


@pytest.mark.skipif(
    not other_processor.CAN, reason="the variables that simulate another processor are for x86-64"
)
def test_the_examples_print_the_same_on_another_processor():
    """A printed rounding error would differ."""
    command = [sys.executable, "tests/printed_examples.py"]
    env = other_processor.environment(other_processor.OTHER) | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [one.output for one in EXAMPLES if can_run(one)]
