"""A helper function in a cell of the student's own."""

from edited_notebooks import cell, code, place

POINTS = 15
LINE = (
    "2C: it uses candidates of cell 38, which is the student's own; both were graded: the student "
    "should move it into the cell of the exercise"
)


def change(notebook):
    helper = "def candidates(m):\n    return range(1, m + 1)"
    notebook["cells"].insert(place(notebook, "ex-2C"), code(helper))
    one = cell(notebook, "ex-2C")
    one["source"] = "assert list(candidates(2)) == [1, 2]\n\n\n" + one["source"]
