"""The ids of 2A and 2B are swapped, and there are no names."""

from edited_notebooks import cell, without_metadata

POINTS = 15
LINE = (
    "2A: cell 29 (def my_matmul(m, A, B, *, bm, bn):) has its cell id but does not define my_centre; "
    "cell 15 (def my_centre(m, A, *, b):) does and was graded: the student should answer each "
    "exercise in its own cell; 2B: cell 15 (def my_centre(m, A, *, b):) has its cell id but does not "
    "define my_matmul; cell 29 (def my_matmul(m, A, B, *, bm, bn):) does and was graded: the student "
    "should answer each exercise in its own cell; 2C, 2D: the cell has lost its name; it was found by"
    " its cell id and graded: no action needed"
)


def change(notebook):
    one, other = cell(notebook, "ex-2A"), cell(notebook, "ex-2B")
    one["id"], other["id"] = other["id"], one["id"]
    without_metadata(notebook)
