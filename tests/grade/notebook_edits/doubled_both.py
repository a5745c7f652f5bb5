"""Two copies, both with the answer."""

from edited_notebooks import doubled

POINTS = 15
LINE = (
    "2A: 2 cells are marked as its cell (cells 15, 16); cell 16 (def my_centre(m, A, *, b):), the "
    "last before its check, was graded: the student should keep one of them"
)


def change(notebook):
    doubled(notebook, "ex-2A")
