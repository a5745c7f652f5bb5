"""The function has another name."""

from edited_notebooks import cell

POINTS = 11
LINE = (
    "2A: cell 15 (def centre(m, A, *, b):) does not define my_centre; it was graded as it is: the "
    "student should keep the name of the function"
)


def change(notebook):
    one = cell(notebook, "ex-2A")
    one["source"] = one["source"].replace("def my_centre", "def centre")
