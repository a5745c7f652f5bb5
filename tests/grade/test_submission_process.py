"""Tests of a submission's process: cells run as in a notebook, magics are ignored, deadlines are enforced."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from iocourse.course.grade.sandbox import Limits
from iocourse.course.grade.submission_process import ProcessClient, ProcessEnded, execute, notebook_names

LEFT_OUT = {
    "a line": "%matplotlib inline\nx = 1",
    "in a block": "if True:\n    %timeit 1\n    x = 1",
    "shell": "!ls\ny = !ls\nx = 1",
    "over the cell": "%%time\nx = 1",
    "help": "x = 1\nx?",
    "by name": "get_ipython().run_line_magic('matplotlib', 'inline')\nx = 1",
    "display": "display(1, clear=True)\nx = 1",
    "await": "import asyncio\nawait asyncio.sleep(0)\nx = 1",
    "not in a text": "%pip list\nx = len('''\n%not magic\n''') - 11",
    "not in brackets": "%pip list\nx = (11\n  % 10)",
}


@pytest.mark.parametrize("source", LEFT_OUT.values(), ids=LEFT_OUT)
def test_what_a_notebook_adds_does_nothing(source):
    names = notebook_names()
    with ThreadPoolExecutor(1) as fresh:  # another test may have left an event loop in the main thread
        fresh.submit(execute, source, "<cell>", names).result()
    assert names["x"] == 1


def test_without_ipython_lines_that_begin_with_a_magic_are_left_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython.core.inputtransformer2", None)
    for name in ("a line", "in a block", "over the cell"):
        names = notebook_names()
        execute(LEFT_OUT[name], "<cell>", names)
        assert names["x"] == 1


def test_a_function_remembers_the_name_and_line_of_its_cell():
    names = notebook_names()
    execute("%pip list\n\ndef f():\n    raise ValueError", "<ex-0-1>", names)
    assert (names["f"].__code__.co_filename, names["f"].__code__.co_firstlineno) == ("<ex-0-1>", 3)


def test_what_is_no_python_either_way_is_a_syntax_error():
    with pytest.raises(SyntaxError):
        execute("%pip list\ndef f(:\n    pass", "<cell>", notebook_names())


ANSWERS_AHEAD = """
import os, time
for descriptor in range(3, 64):
    try: os.write(descriptor, (4).to_bytes(8, "big") + b"null")
    except OSError: pass
time.sleep(100)
"""


def test_a_process_that_answers_ahead_and_reads_no_more_is_ended_in_time():
    session = ProcessClient(Limits(seconds=1), sandboxed=False)
    try:
        session.ask("run cell", "<ahead>", ANSWERS_AHEAD)
        session.allow(1)
        with pytest.raises(ProcessEnded, match="took longer than 1 seconds"):
            session.ask("run cell", "<long>", "#" * 300_000)
            session.ask("run cell", "<next>", "")
    finally:
        session.close()
