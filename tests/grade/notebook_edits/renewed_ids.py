"""Every cell has a new id; names are kept."""

from edited_notebooks import renumbered

POINTS = 15
LINE = (
    "2A, 2B, 2C, 2D: the cell has another cell id than in the lesson; it was found by its name and "
    "graded: no action needed"
)


def change(notebook):
    renumbered(notebook)
