"""The last exercise and its check were moved to the top."""

from edited_notebooks import cell

POINTS = 15
LINE = "2D: its check cell is above the answer; the answer was graded: no action needed"


def change(notebook):
    moved = [cell(notebook, "check-2D"), cell(notebook, "ex-2D")]
    for one in moved:
        notebook["cells"].remove(one)
    notebook["cells"][1:1] = moved
