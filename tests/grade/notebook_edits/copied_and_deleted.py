"""One cell was copied and pasted, and the original deleted."""

from edited_notebooks import cell, doubled

POINTS = 15
LINE = (
    "2A: the cell has another cell id than in the lesson; it was found by its name and graded: no "
    "action needed"
)


def change(notebook):
    doubled(notebook, "ex-2A")
    notebook["cells"].remove(cell(notebook, "ex-2A"))
