"""The cell was turned into a Markdown cell (key m)."""

from edited_notebooks import cell, turned

POINTS = 11
LINE = (
    "2A: the cell of exercise 2A is a Markdown cell; change it to Code and submit again: cell 15 was "
    "not graded"
)


def change(notebook):
    turned(cell(notebook, "ex-2A"), "markdown")
