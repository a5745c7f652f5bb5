"""The original has the answer; a copy below it, which the check used, is not filled in."""

from edited_notebooks import doubled, stub

POINTS = 11
LINE = (
    "2A: 2 cells are marked as its cell (cells 15, 16); cell 16 (def my_centre(m, A, *, b):), the "
    "last before its check, was graded: the student should keep the one that counts, because they "
    "differ"
)


def change(notebook):
    doubled(notebook, "ex-2A")["source"] = stub("ex-2A")
