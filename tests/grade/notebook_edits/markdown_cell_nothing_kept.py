"""A Markdown cell with an answer, without ids and metadata."""

from edited_notebooks import cell, turned, without_ids, without_metadata

POINTS = 11
LINE = (
    "2A: the cell of exercise 2A is a Markdown cell; change it to Code and submit again: cell 15 was "
    "not graded; 2B, 2C, 2D: the cell has lost its name and its ids; it was found by the function it "
    "defines and graded: the student should keep the lesson's file and not copy it into a new one"
)


def change(notebook):
    turned(cell(notebook, "ex-2A"), "markdown")
    without_metadata(notebook)
    without_ids(notebook, 4)
