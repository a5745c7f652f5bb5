"""Two different answers above the check cell, without ids."""

from edited_notebooks import cell, doubled, stub, without_ids

POINTS = 15
LINE = (
    "2A: 2 cells are marked as its cell (cells 15, 16); cell 16 (def my_centre(m, A, *, b):), the "
    "last before its check, was graded: the student should keep the one that counts, because they "
    "differ; 2B, 2C, 2D: the cell has no cell id; it was found by its name and graded: no action "
    "needed"
)


def change(notebook):
    doubled(notebook, "ex-2A")
    cell(notebook, "ex-2A")["source"] = stub("ex-2A")
    without_ids(notebook, 0)
