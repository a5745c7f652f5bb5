"""A copy of 2A's cell, with its name, was used to answer 2B."""

import copy

from edited_notebooks import cell, place, stub

POINTS = 15
LINE = (
    "2A: 2 cells are marked as its cell (cells 15, 30); cell 15 (def my_centre(m, A, *, b):), the "
    "only one that defines my_centre, was graded: the student should keep the one that counts, "
    "because they differ; 2B: the lesson's cell is not filled in; cell 30 (def my_matmul(m, A, B, *, "
    "bm, bn):), which defines my_matmul below it, was graded: the student should answer in the "
    "lesson's cell"
)


def change(notebook):
    again = copy.deepcopy(cell(notebook, "ex-2A")) | {"id": "copied"}
    again["source"] = cell(notebook, "ex-2B")["source"]
    notebook["cells"].insert(place(notebook, "ex-2B") + 1, again)
    cell(notebook, "ex-2B")["source"] = stub("ex-2B")
