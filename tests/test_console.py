"""Tables stand in columns; progress bars are seen in a terminal and nowhere else."""

import io
import sys

import pytest

from iocourse.console import steps, table


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "seen"), [(Terminal(), True), (io.StringIO(), False)])
def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch, stream, seen):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(steps([1, 2, 3], "things done")) == [1, 2, 3]
    assert ("things done" in stream.getvalue()) is seen


def test_without_tqdm_the_items_come_all_the_same(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert list(steps([1, 2, 3], "things done")) == [1, 2, 3]


def test_a_table_has_names_to_the_left_and_numbers_to_the_right():
    assert (
        table([["array", "words"], ["Q", "1,024"], ["LSE", 64]]) == "array  words\nQ      1,024\nLSE       64"
    )


def test_columns_can_stand_to_the_left_apart_and_wide():
    assert table([["a", "b", "c"], ["aa", "b", "c"]], left=2, gap=1, least=(3, 2)) == "a   b  c\naa  b  c"


def test_a_row_that_misses_a_cell_is_refused():
    with pytest.raises(ValueError):
        table([["a", "b"], ["a"]])
