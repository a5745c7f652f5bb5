"""The cell was split inside the function, so its end is not valid Python by itself."""

from edited_notebooks import cell, doubled

POINTS = 11
LINE = (
    "2A: 2 cells are marked as its cell (cells 15, 16); cell 15 (def my_centre(m, A, *, b):), the "
    "only one that defines my_centre, was graded: the student should keep the one that counts, "
    "because they differ"
)


def change(notebook):
    lower, upper = doubled(notebook, "ex-2A", "lower"), cell(notebook, "ex-2A")
    upper["source"], lower["source"] = upper["source"].rsplit("\n", 1)
