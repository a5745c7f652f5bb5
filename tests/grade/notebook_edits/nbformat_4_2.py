"""Saved in format 4.2, which has no ids."""

from edited_notebooks import without_ids

POINTS = 15
LINE = "2A, 2B, 2C, 2D: the cell has no cell id; it was found by its name and graded: no action needed"


def change(notebook):
    without_ids(notebook, 2)
