"""Two different answers, and the check was deleted."""

from edited_notebooks import cell, doubled

POINTS = 11
LINE = (
    "2A: cell 15 (def my_centre(m, A, *, b):) and cell 16 (def my_centre(m, A, *, b):) have the name "
    "of exercise 2A, and no check cell follows them; none was graded: the student must choose one"
)


def change(notebook):
    doubled(notebook, "ex-2A")["source"] += "\n# a second try"
    notebook["cells"].remove(cell(notebook, "check-2A"))
