"""nbgrader's settings for these lessons: copy this file into the folder of your nbgrader course."""

from typing import Any

from nbgrader.preprocessors import (
    CheckCellMetadata,
    ClearOutput,
    DeduplicateIds,
    OverwriteCells,
    OverwriteKernelspec,
)


class LastCopyCounts(DeduplicateIds):
    """Of a graded cell that a student has copied, the last one counts.

    nbgrader leaves empty metadata in the others, and then ends the grading of the whole class over them
    (https://github.com/jupyter/nbgrader/issues/1083).
    """

    def preprocess_cell(self, cell: Any, resources: Any, cell_index: int) -> tuple[Any, Any]:
        """Mark the copies, then take the mark away."""
        cell, resources = super().preprocess_cell(cell, resources, cell_index)
        if cell.metadata.get("nbgrader") == {}:
            del cell.metadata["nbgrader"]
        return cell, resources


c = get_config()  # noqa: F821 (nbgrader brings it)
kept = [ClearOutput, LastCopyCounts, OverwriteKernelspec, OverwriteCells, CheckCellMetadata]
c.Autograde.sanitize_preprocessors = kept

# The exercise cells of lessons/ are blank already. nbgrader would clear them whole, names and docstrings too.
c.ClearSolutions.enabled = False

# A check cell that a student has deleted is put back below its exercise.
c.OverwriteCells.add_missing_cells = True

# Seconds that a cell may take. nbgrader's 30 are few for the check of a Triton kernel.
c.Execute.timeout = 120
