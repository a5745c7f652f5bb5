"""Two different answers, both below the check: nothing tells which one counts."""

from edited_notebooks import cell, doubled

POINTS = 11
LINE = (
    "2A: cell 57 (def my_centre(m, A, *, b):) and cell 58 (def my_centre(m, A, *, b):) have the name "
    "of exercise 2A, and no check cell follows them; none was graded: the student must choose one"
)


def change(notebook):
    again = doubled(notebook, "ex-2A")
    again["source"] += "\n# a second try"
    first = cell(notebook, "ex-2A")
    for one in (first, again):
        notebook["cells"].remove(one)
        notebook["cells"].append(one)
