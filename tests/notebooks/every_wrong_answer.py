"""One wrong answer in each solved notebook: `pytest --nbval-lax` must fail, and first at its check.

`pytest -n 0 tests/notebooks/every_wrong_answer.py` takes some minutes; the suite tries one lesson.
"""

from pathlib import Path

import pytest
from wrong_answers import refused, with_wrong_answer

SOLVED = sorted((Path(__file__).parents[2] / "solutions").glob("[0-9]*.ipynb"))


@pytest.mark.parametrize("path", SOLVED, ids=lambda path: path.stem)
def test_lax_refuses_a_wrong_answer(path, tmp_path, nbval):
    text, exercise = with_wrong_answer(path)
    (tmp_path / path.name).write_text(text, encoding="utf-8")
    result = nbval(tmp_path / path.name, strict_outputs=False)
    assert refused(result, exercise), result
