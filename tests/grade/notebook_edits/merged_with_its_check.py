"""The exercise and its check were merged into one cell."""

from edited_notebooks import cell

POINTS = 15
LINE = "2A: its check is in the same cell; the answer was graded: no action needed"


def change(notebook):
    one, check = cell(notebook, "ex-2A"), cell(notebook, "check-2A")
    one["source"] += "\n\n" + "".join(check["source"])
    notebook["cells"].remove(check)
