"""The set-up cell was deleted."""

from edited_notebooks import cell

POINTS = 15
LINE = (
    "2A, 2B, 2C, 2D: the lesson's cell setup is missing or changed; the lesson's own text was run: no"
    " action needed"
)


def change(notebook):
    notebook["cells"].remove(cell(notebook, "setup"))
