"""The exercise cell was deleted."""

from edited_notebooks import cell

POINTS = 11
LINE = (
    "2A: the cell of exercise 2A was deleted, and no code cell defines my_centre; nothing was graded:"
    " the student should answer in the lesson's own cells"
)


def change(notebook):
    notebook["cells"].remove(cell(notebook, "ex-2A"))
