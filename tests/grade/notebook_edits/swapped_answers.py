"""The answers to 2A and 2B are in each other's cell."""

from edited_notebooks import cell

POINTS = 15
LINE = (
    "2A: cell 15 (def my_matmul(m, A, B, *, bm, bn):) has its name but does not define my_centre; "
    "cell 29 (def my_centre(m, A, *, b):) does and was graded: the student should answer each "
    "exercise in its own cell; its check cell is above the answer; the answer was graded: no action "
    "needed; 2B: cell 29 (def my_centre(m, A, *, b):) has its name but does not define my_matmul; "
    "cell 15 (def my_matmul(m, A, B, *, bm, bn):) does and was graded: the student should answer each"
    " exercise in its own cell"
)


def change(notebook):
    one, other = cell(notebook, "ex-2A"), cell(notebook, "ex-2B")
    one["source"], other["source"] = other["source"], one["source"]
