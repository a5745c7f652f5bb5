"""Exercise and check were copied to the end, and the answer is in the copy."""

import copy

from edited_notebooks import cell, stub

POINTS = 15
LINE = (
    "2A: 2 cells are marked as its cell (cells 15, 58); cell 58 (def my_centre(m, A, *, b):), the "
    "last before its check, was graded: the student should keep the one that counts, because they "
    "differ"
)


def change(notebook):
    answer = copy.deepcopy(cell(notebook, "ex-2A")) | {"id": "a"}
    check = copy.deepcopy(cell(notebook, "check-2A")) | {"id": "b"}
    notebook["cells"] += [answer, check]
    cell(notebook, "ex-2A")["source"] = stub("ex-2A")
