"""Settings of nbgrader for these lessons; copy this file into the folder of your nbgrader course."""

from typing import Any

import nbformat
from nbgrader.api import Gradebook
from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearOutput,
    NbGraderPreprocessor,
    OverwriteCells,
    OverwriteKernelspec,
)

from iocourse.course.nbgrader_submission import AssignmentCell, transplanted


class AnswersInTheirPlaces(NbGraderPreprocessor):
    """Find the answers as `iocourse grade` does, and run them in the cells of the assignment.

    By default nbgrader needs its metadata in every cell. Without them it ends with a KeyError, and a copied
    cell ends the grading of the whole class (https://github.com/jupyter/nbgrader/issues/1083).
    """

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        """Return the cells of the assignment with the student's answers, and log which cells were found."""
        told = resources["nbgrader"]
        with Gradebook(told["db_url"]) as gradebook:
            of = gradebook.find_notebook(told["notebook"], told["assignment"])
            points = {cell.name: cell.max_score for cell in of.grade_cells}
            solutions = {cell.name for cell in of.solution_cells}
            sources = [
                AssignmentCell(
                    one.name,
                    one.source,
                    one.locked,
                    points.get(one.name),
                    one.name in solutions,
                    one.checksum,
                )
                for one in of.source_cells
            ]
        cells, line = transplanted(nb.cells, sources)
        if line:
            self.log.warning("%s: %s", told["student"], line)
            cells.insert(0, {"cell_type": "markdown", "id": "found", "metadata": {}, "source": line})
        whole = {"cells": cells, "metadata": nb.metadata, "nbformat": 4, "nbformat_minor": 5}
        return nbformat.from_dict(whole), resources


c = get_config()  # noqa: F821 (nbgrader brings it)
kept = [AnswersInTheirPlaces, ClearOutput, OverwriteKernelspec, OverwriteCells, CheckCellMetadata]
c.Autograde.sanitize_preprocessors = kept

# The exercise cells of lessons/ are already blank. nbgrader would also remove their names and docstrings.
c.ClearSolutions.enabled = False

# Time limit of a cell in seconds. nbgrader's default of 30 is too short for the check of a Triton kernel.
c.Execute.timeout = 120
