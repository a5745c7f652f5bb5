"""The build: notebooks and generated parts of pages from their sources, and the rules of every lesson.

To read it from the ground up: `percent_format` (the cells of a file and their two sides), `exercise_texts`
(their titles, hints and minutes as data), `rules.lesson_length` (words and minutes), `exercise_tables` (what
a lesson shows of its exercises), `lesson` (both notebooks of a source), `notebook_execution`, `setup_cell`,
`course` (writing and checking all of it).
Beside these are `generated_sections` and `instructor_guide` (what the build writes into pages),
`absolute_links` (the notebooks for Colab) and the other `rules`.
"""


class BuildFailed(Exception):
    """A source, a cell or an output is at fault; nothing was written (exit code 1)."""
