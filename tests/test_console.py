"""Tests of terminal output: tables are aligned; progress bars appear in a terminal only."""

import io
import json
import os
import signal
import subprocess
import sys

import pytest

from iocourse import cli, console, pebbling
from iocourse.cli import main
from iocourse.console import exit_on_sigterm, number, progress_meter, table, times_joined, with_progress_bar
from iocourse.files import atomic_write, read_json


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "seen"), [(Terminal(), True), (io.StringIO(), False)])
def test_a_bar_is_drawn_on_a_terminal_only(monkeypatch, stream, seen):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys, "stderr", stream)
    assert list(with_progress_bar([1, 2, 3], "things done")) == [1, 2, 3]
    assert ("things done" in stream.getvalue()) is seen


def test_without_tqdm_the_items_come_all_the_same(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    assert list(with_progress_bar([1, 2, 3], "things done")) == [1, 2, 3]


def test_a_table_has_names_to_the_left_and_numbers_to_the_right():
    assert (
        table([["array", "words"], ["Q", "1,024"], ["LSE", 64]]) == "array  words\nQ      1,024\nLSE       64"
    )


def test_columns_can_stand_to_the_left_apart_and_wide():
    assert table([["a", "b", "c"], ["aa", "b", "c"]], left=2, gap=1, least=(3, 2)) == "a   b  c\naa  b  c"


def test_a_row_that_misses_a_cell_is_refused():
    with pytest.raises(ValueError):
        table([["a", "b"], ["a"]])


@pytest.fixture
def at_once(monkeypatch):
    """Make the progress meter print at once and after every piece of work."""
    monkeypatch.setattr(console, "PATIENCE", 0.0)
    monkeypatch.setattr(console, "PACE", 0.0)


@pytest.mark.parametrize(("stream", "seen"), [(Terminal(), True), (io.StringIO(), False)])
def test_a_meter_says_the_share_on_a_terminal_and_wipes_it(monkeypatch, at_once, stream, seen):
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_meter("words", 200) as tell:
        tell(50)
        tell(100)
    wiped = f"\r{' ' * len('words: 75 %')}\r"
    assert stream.getvalue() == ("\rwords: 25 %\rwords: 75 %" + wiped if seen else "")


def test_a_meter_says_nothing_of_what_is_over_in_a_second(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress_meter("words", 200) as tell:
        tell(200)
    assert sys.stderr.getvalue() == ""


def test_a_long_run_of_count_says_how_far_it_has_come(monkeypatch, at_once, capsys):
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert main(["count", "low_rank", "--N", "5", "--d", "3", "--M", "30", "--g", "2", "--run"]) == 0
    said = sys.stderr.getvalue().split("\r")[1:-2]
    assert len(said) > 30 and said == sorted(said, key=lambda line: int(line.split()[-2]))
    assert said[-1].startswith("low_rank moves ") and said[-1].endswith(" words on the emulator: 100 %")


def test_a_long_search_says_how_far_it_has_come(monkeypatch, at_once):
    monkeypatch.setattr(sys, "stderr", Terminal())
    found = pebbling.optimum(pebbling.dot(3), 4, max_states=1000)
    said = sys.stderr.getvalue().split("\r")[1:-2]
    assert f"states examined, of at most 1,000: {found.states // 10} %" in said


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("anna", "anna"),
        ("eve\nzoe", "eve?zoe"),
        ("\x1b[2J", "?[2J"),
        ("M\udcfcller", "Müller"),
        ("Mu\u0308", "Mü"),
    ],
)
def test_a_name_is_shown_without_what_steers_a_terminal(name, seen):
    assert console.display_path(name) == seen


def test_long_names_are_cut_and_stay_apart():
    one, other = console.display_path("x" * 240), console.display_path("x" * 241)
    assert one != other and len(one.encode()) <= 121 and one.startswith("xxx")


@pytest.mark.skipif(sys.platform == "win32", reason="needs links and pipes")
def test_files_are_written_through_links_and_into_what_is_no_file(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    atomic_write(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    reading = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    atomic_write(tmp_path / "pipe", "new")
    assert os.read(reading, 9) == b"new" and (tmp_path / "pipe").is_fifo()
    os.close(reading)


def test_what_is_no_number_is_a_dash_and_sizes_are_crossed():
    assert (number(None, 3), number(1.23456, 3), number(2, 0)) == ("–", "1.235", "2")
    assert (times_joined((128, 64, None, 2)), times_joined(())) == ("128×64×2", "")


@pytest.mark.parametrize("text", [None, "", '{"half": ', "[1]", b"\xff"])
def test_an_object_that_is_not_there_is_an_empty_one(tmp_path, text):
    file = tmp_path / "file.json"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert read_json(file) == {}
    file.write_text('{"whole": ["–"]}', encoding="utf-8")
    assert read_json(file) == {"whole": ["–"]}


def test_a_polite_end_is_as_ctrl_c_within_the_block_and_nowhere_else():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), exit_on_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


SHOWN = """
import json
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from iocourse.console import display_then_replace

shell = InteractiveShell.instance(colors="NoColor")
shell.run_cell("from iocourse.ledger import Ledger; Ledger(reads={'Q': 7})")
print("---")
sent = []


class Page(DisplayPublisher):
    def publish(self, data, metadata=None, *, transient=None, update=False, **_):
        sent.append([data, metadata, transient["display_id"], update])


shell.display_pub = Page(parent=shell)
display_then_replace({"text/plain": "in words"}, "<b>bold</b>", {"text/plain": {"a": 1}})
shell.run_cell("Ledger(reads={'Q': 7})")
print(json.dumps(sent))
"""


def test_what_is_saved_comes_first_then_html_in_its_place_and_a_terminal_has_the_text_once(tmp_path):
    pytest.importorskip("IPython", reason="IPython is not installed")
    env = os.environ | {"IPYTHONDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SHOWN], env=env, capture_output=True, text=True, timeout=280, check=True
    )
    terminal, page = done.stdout.split("---\n")
    assert terminal.count("7 words moved") == 1 and "<table>" not in terminal
    assert terminal.startswith("Out[0]: \narray ")  # so that its columns stand one below the other
    first, second, ledger, html = json.loads(page.splitlines()[0].removeprefix("Out[0]: "))
    assert first == [{"text/plain": "in words"}, {"text/plain": {"a": 1}}, first[2], False]
    assert second == [first[0] | {"text/html": "<b>bold</b>"}, first[1], first[2], True]
    assert set(ledger[0]) == {"text/plain"} and ledger[0]["text/plain"].startswith("array ")
    assert html[2:] == [ledger[2], True] and "<table><caption>7 words moved" in html[0]["text/html"]


# ------------------------------------------------------------------ output that is not UTF-8
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437", "latin-1", "utf-8"])
def test_no_encoding_ends_a_command(encoding, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    cli.print_anything()
    print("2 × 3 ≤ √36 … Müller \u2713 \u4e2d \ud800", flush=True)
    said = written.getvalue().decode(encoding)
    assert said.endswith("\\ud800\n")
    if encoding == "ascii":
        assert said == "2 x 3 <= sqrt36 ... Muller + \\u4e2d \\ud800\n"


@pytest.mark.parametrize(
    "command", [[], ["grade"], ["profile"], ["count"], ["lab"], ["progress"], ["doctor"]]
)
def test_each_command_explains_itself_in_ascii(command):
    env = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ours = [sys.executable, "-m", "iocourse", *command, "--help"]
    done = subprocess.run(ours, env=env, capture_output=True, check=False)
    assert done.returncode == 0 and b"Traceback" not in done.stderr, done.stderr
    done.stdout.decode("ascii")
