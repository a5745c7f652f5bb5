"""A round trip through jupytext that filters all metadata of cells."""

from edited_notebooks import renumbered, without_metadata

POINTS = 15
LINE = (
    "2A, 2B, 2C, 2D: the cell has lost its name and its ids; it was found by the function it defines "
    "and graded: the student should keep the lesson's file and not copy it into a new one"
)


def change(notebook):
    without_metadata(notebook)
    renumbered(notebook, "{:08x}")
