"""A copy below the check, where the student tried something else."""

from edited_notebooks import doubled, place, stub

POINTS = 15
LINE = (
    "2A: 2 cells are marked as its cell (cells 15, 17); cell 15 (def my_centre(m, A, *, b):), the "
    "last before its check, was graded: the student should keep the one that counts, because they "
    "differ"
)


def change(notebook):
    again = doubled(notebook, "ex-2A")
    again["source"] = stub("ex-2A")
    notebook["cells"].remove(again)
    notebook["cells"].insert(place(notebook, "check-2A") + 1, again)
