"""The build: notebooks and generated parts of pages from their sources, and the rules of every lesson.

Read the modules in this order: `percent_format` (cells of a source, solved and student's side),
`exercise_texts` (titles, hints and minutes as data), `rules.lesson_length` (words and minutes),
`exercise_tables` (tables and boxes of exercises in a lesson), `lesson` (both notebooks of a source),
`notebook_execution`, `setup_cell`, `course` (write or check everything). Independent of this order are
`generated_sections` and `instructor_guide` (generated pages), `absolute_links` (notebooks for Colab) and the
other modules of `rules`.
"""


class BuildFailed(Exception):
    """A source, a cell or an output has an error; nothing was written (exit code 1)."""
