"""A new notebook that holds the four answers and nothing else."""

from edited_notebooks import cell, code

POINTS = 15
LINE = (
    "2A, 2B, 2C, 2D: the lesson's cell setup is missing or changed; the lesson's own text was "
    "run: nothing to ask; the cell has lost its name and its ids; it was found by the "
    "function it defines and graded: ask the student to keep the lesson's file and not to "
    "copy it into a new one; its check cell is missing; the answer was graded: nothing to ask"
)


def change(notebook):
    answers = [cell(notebook, f"ex-2{letter}")["source"] for letter in "ABCD"]
    notebook["cells"] = [code(text, f"c{n}") for n, text in enumerate(answers)]
