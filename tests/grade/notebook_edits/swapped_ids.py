"""The ids of 2A and 2B are swapped; names are correct."""

from edited_notebooks import cell

POINTS = 15
LINE = (
    "2A, 2B: the cell has another cell id than in the lesson; it was found by its name and graded: no"
    " action needed"
)


def change(notebook):
    one, other = cell(notebook, "ex-2A"), cell(notebook, "ex-2B")
    one["id"], other["id"] = other["id"], one["id"]
