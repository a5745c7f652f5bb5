"""A new notebook that holds the four answers and nothing else."""

from edited_notebooks import cell, code

POINTS = 15
LINE = (
    "2A, 2B, 2C, 2D: the lesson's cell setup is missing or changed; the lesson's own text was run: no"
    " action needed; the cell has lost its name and its ids; it was found by the function it defines "
    "and graded: the student should keep the lesson's file and not copy it into a new one; its check "
    "cell is missing; the answer was graded: no action needed"
)


def change(notebook):
    answers = [cell(notebook, f"ex-2{letter}")["source"] for letter in "ABCD"]
    notebook["cells"] = [code(text, f"c{n}") for n, text in enumerate(answers)]
