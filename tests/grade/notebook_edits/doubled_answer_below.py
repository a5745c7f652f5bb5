"""A copy below has the answer; the original is not filled in."""

from edited_notebooks import cell, doubled, stub

POINTS = 15
LINE = (
    "2A: 2 cells are marked as its cell (cells 15, 16); cell 16 (def my_centre(m, A, *, b):), the "
    "last before its check, was graded: the student should keep the one that counts, because they "
    "differ"
)


def change(notebook):
    doubled(notebook, "ex-2A")
    cell(notebook, "ex-2A")["source"] = stub("ex-2A")
