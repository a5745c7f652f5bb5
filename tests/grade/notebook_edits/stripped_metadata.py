"""All metadata are gone; ids are kept."""

from edited_notebooks import without_metadata

POINTS = 15
LINE = "2A, 2B, 2C, 2D: the cell has lost its name; it was found by its cell id and graded: no action needed"


def change(notebook):
    without_metadata(notebook)
