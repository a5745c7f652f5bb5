"""The answer to 2A is in the cell of 2B, and its own cell was deleted."""

from edited_notebooks import cell

POINTS = 15
LINE = (
    "2A: its own cell is missing; cell 28 (def my_centre(m, A, *, b):), which defines my_centre, was "
    "graded: the student should answer each exercise in its own cell; its check cell is above the "
    "answer; the answer was graded: no action needed"
)


def change(notebook):
    one, other = cell(notebook, "ex-2A"), cell(notebook, "ex-2B")
    other["source"] = one["source"] + "\n\n\n" + other["source"]
    notebook["cells"].remove(one)
