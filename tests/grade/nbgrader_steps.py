"""Run nbgrader's commands one after the other in the folder of a course: python nbgrader_steps.py LESSON."""

import sys

sys.modules["rfc3987_syntax"] = None  # a URL checker that is slow to import, as in tests/conftest.py

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
    step.start()  # exits the process if it fails
