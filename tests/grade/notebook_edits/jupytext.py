"""A round trip through jupytext: new ids, and its entry in the metadata."""

from edited_notebooks import renumbered

POINTS = 15
LINE = (
    "2A, 2B, 2C, 2D: the cell has another cell id than in the lesson; it was found by its name and "
    "graded: no action needed"
)


def change(notebook):
    renumbered(notebook, "{:08x}")
    notebook["metadata"]["jupytext"] = {"formats": "ipynb,py:percent"}
