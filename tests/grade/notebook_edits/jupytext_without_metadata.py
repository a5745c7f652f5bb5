"""A round trip through jupytext that filters all metadata of cells."""

from edited_notebooks import renumbered, without_metadata

POINTS = 15
LINE = (
    "2A, 2B, 2C, 2D: the cell has lost its name and its ids; it was found by the function it "
    "defines and graded: ask the student to keep the lesson's file and not to copy it into a "
    "new one"
)


def change(notebook):
    without_metadata(notebook)
    renumbered(notebook, "{:08x}")
