"""nbgrader's own commands, one after the other, in a course's folder: python nbgrader_steps.py LESSON."""

import sys

sys.modules["rfc3987_syntax"] = None  # a checker of addresses, slow to import, as in the suite's conftest.py

from nbgrader.apps import AutogradeApp, ExportApp, GenerateAssignmentApp, GenerateFeedbackApp  # noqa: E402

LESSON = sys.argv[1]
STEPS = (
    (GenerateAssignmentApp, LESSON),
    (AutogradeApp, LESSON),
    (ExportApp, "--to=grades.csv"),
    (GenerateFeedbackApp, LESSON),
)
for app, *arguments in STEPS:
    step = app()
    step.initialize(arguments)
    step.start()  # ends this process where it fails
