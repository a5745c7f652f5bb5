"""Progress bars are seen in a terminal and nowhere else."""

import io
import sys

import pytest

from iocourse.progress_bar import steps


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
