"""Points as nbgrader counts them, without its kernel: run the transplanted cells one after the other."""

import ast
import contextlib
import io

from iocourse.course.grade.submission_process import execute, notebook_names
from iocourse.course.nbgrader_submission import AssignmentCell, transplanted
from iocourse.course.student_copies.notebook import text_of


def sources(lesson):
    """Return the cells of the assignment, as nbgrader stores them."""
    told = [(cell["metadata"].get("nbgrader"), text_of(cell)) for cell in lesson["cells"]]
    return [
        AssignmentCell(one["grade_id"], text, one["locked"], one.get("points"), one["solution"], None)
        for one, text in told
        if one
    ]


def graded(notebook, lesson):
    """Return the points, the teacher's line and the output of the checks."""
    cells, line = transplanted(notebook["cells"], sources(lesson))
    names, points, said = notebook_names(), 0.0, io.StringIO()
    with contextlib.redirect_stdout(said):
        for cell in cells:
            told = cell["metadata"].get("nbgrader", {})
            with contextlib.suppress(Exception):  # a cell that raises costs its own points, as in nbgrader
                if told.get("grade"):
                    *before, check = ast.parse(text_of(cell)).body
                    execute("\n".join(map(ast.unparse, before)), "<check>", names)
                    points += eval(ast.unparse(check), names)
                elif cell["cell_type"] == "code":
                    execute(text_of(cell), f"<{cell['id']}>", names)
    return points, line, said.getvalue()
