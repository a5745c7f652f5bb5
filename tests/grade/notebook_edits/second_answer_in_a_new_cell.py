"""Two answers: one in the lesson's cell, another in a new cell below it."""

from edited_notebooks import code, place, stub

POINTS = 15
LINE = (
    "2A: cell 16 (def my_centre(m, A, *, b):) also defines my_centre and was not graded; cell 15 (def"
    " my_centre(m, A, *, b):) was: the student must choose one"
)


def change(notebook):
    new = code(stub("ex-2A"))
    new["source"] += "  # the first try"
    notebook["cells"].insert(place(notebook, "ex-2A") + 1, new)
