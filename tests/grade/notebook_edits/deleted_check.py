"""The check cell was deleted."""

from edited_notebooks import cell

POINTS = 15
LINE = "2A: its check cell is missing; the answer was graded: no action needed"


def change(notebook):
    notebook["cells"].remove(cell(notebook, "check-2A"))
