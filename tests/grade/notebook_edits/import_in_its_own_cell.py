"""An import in a cell of the student's own, and a helper that uses it."""

from edited_notebooks import cell, code, place

POINTS = 15
LINE = (
    "2C: it uses statistics of cell 38, which is the student's own; both were graded: the student "
    "should move it into the cell of the exercise; it uses mean of cell 39, which is the student's "
    "own; both were graded: the student should move it into the cell of the exercise"
)


def change(notebook):
    own = [code("import statistics", "own-1"), code("def mean(x):\n    return statistics.mean(x)", "own-2")]
    at = place(notebook, "ex-2C")
    notebook["cells"][at:at] = own
    one = cell(notebook, "ex-2C")
    one["source"] = "assert mean([1, 3]) == 2\n\n\n" + one["source"]
