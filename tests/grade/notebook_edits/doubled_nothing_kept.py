"""Two copies without ids and metadata: only the check cell tells which one counts."""

from edited_notebooks import cell, doubled, stub, without_ids, without_metadata

POINTS = 15
LINE = (
    "2A, 2B, 2C, 2D: the cell has lost its name and its ids; it was found by the function it defines "
    "and graded: the student should keep the lesson's file and not copy it into a new one; 2A: 2 "
    "cells are marked as its cell (cells 15, 16); cell 16 (def my_centre(m, A, *, b):), the last "
    "before its check, was graded: the student should keep the one that counts, because they differ"
)


def change(notebook):
    doubled(notebook, "ex-2A")
    cell(notebook, "ex-2A")["source"] = stub("ex-2A")
    without_metadata(notebook)
    without_ids(notebook, 4)
