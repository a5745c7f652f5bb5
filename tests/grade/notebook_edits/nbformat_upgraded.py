"""Saved in format 4.0 and upgraded to 4.5, which draws new ids."""

from edited_notebooks import renumbered, without_ids

POINTS = 15
LINE = (
    "2A, 2B, 2C, 2D: the cell has another cell id than in the lesson; it was found by its name and "
    "graded: no action needed"
)


def change(notebook):
    without_ids(notebook, 5)
    renumbered(notebook, "{:08x}")
