"""Names and ids are gone; nbgrader's metadata are kept."""

from edited_notebooks import renumbered

POINTS = 15
LINE = (
    "2A, 2B, 2C, 2D: the cell has lost its name; it was found by its nbgrader id and graded: no action needed"
)


def change(notebook):
    renumbered(notebook)
    for one in notebook["cells"]:
        one["metadata"].pop("name", None)
