"""nbgrader's own commands, one after the other, in a course's folder: python nbgrader_steps.py LESSON."""

import sys

from nbgrader.apps import AutogradeApp, ExportApp, GenerateAssignmentApp, GenerateFeedbackApp

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
