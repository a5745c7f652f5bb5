"""The cell was split: a helper above, the answer below, both with the name."""

from edited_notebooks import cell, doubled

POINTS = 15
LINE = (
    "2C: 2 cells are marked as its cell (cells 38, 39); cell 39 (assert list(candidates(2)) == [1, "
    "2]), the only one that defines my_tile, was graded: the student should keep the one that counts,"
    " because they differ; it uses candidates of cell 38, which is the student's own; both were "
    "graded: the student should move it into the cell of the exercise"
)


def change(notebook):
    lower = doubled(notebook, "ex-2C", "lower")
    cell(notebook, "ex-2C")["source"] = "def candidates(m):\n    return range(1, m + 1)"
    lower["source"] = "assert list(candidates(2)) == [1, 2]\n\n\n" + lower["source"]
