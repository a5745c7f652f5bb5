"""The lesson's cell is not filled in; the answer is in a new cell below it."""

from edited_notebooks import cell, code, place, stub

POINTS = 15
LINE = (
    "2A: the lesson's cell is not filled in; cell 16 (def my_centre(m, A, *, b):), which defines "
    "my_centre below it, was graded: the student should answer in the lesson's cell"
)


def change(notebook):
    new = code(cell(notebook, "ex-2A")["source"])
    notebook["cells"].insert(place(notebook, "ex-2A") + 1, new)
    cell(notebook, "ex-2A")["source"] = stub("ex-2A")
