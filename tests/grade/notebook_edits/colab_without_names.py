"""Colab, where the cells were copied into a new notebook: only its own metadata."""

from edited_notebooks import without_ids

POINTS = 15
LINE = (
    "2A, 2B, 2C, 2D: the cell has lost its name and its ids; it was found by the function it defines "
    "and graded: the student should keep the lesson's file and not copy it into a new one"
)


def change(notebook):
    without_ids(notebook, 0)
    for n, one in enumerate(notebook["cells"]):
        one["metadata"] = {"id": f"aB3x{n}"}
