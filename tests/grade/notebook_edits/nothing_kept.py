"""Ids and metadata are both gone, as in format 4.4."""

from edited_notebooks import without_ids, without_metadata

POINTS = 15
LINE = (
    "2A, 2B, 2C, 2D: the cell has lost its name and its ids; it was found by the function it defines "
    "and graded: the student should keep the lesson's file and not copy it into a new one"
)


def change(notebook):
    without_metadata(notebook)
    without_ids(notebook, 4)
