"""A forked process equals one that `python -m` starts, and keeps nothing of earlier ones."""

import json
import os
import signal
import subprocess
import sys

import forked_processes
import pytest

pytestmark = pytest.mark.skipif(not forked_processes.CAN, reason="processes are not forked on this system")
PROBE = """
import json, os, signal, sys
left = getattr(json, "left_behind", None)
json.left_behind = "by the first"
loaded = sorted(name for name in sys.modules if name.startswith("iocourse"))
told = [sys.argv[1:], os.getcwd(), dict(os.environ), sys.path, __name__, sys.flags.hash_randomization, left]
told += [loaded, os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGCHLD)]
told += [getattr(sys.modules["sitecustomize"], "here", None)]
print(json.dumps(told))
print("stderr", file=sys.stderr)
sys.exit(7)
"""


@pytest.fixture(scope="module")
def address():
    env = os.environ | {"PYTHONHASHSEED": "0", "ONLY": "the first one's"}
    env.pop("PYTHONPATH", None)
    with forked_processes.imported(["json", "numpy"], env) as address:
        yield address


@pytest.fixture
def ask(address, tmp_path):
    """A function: text of a module, arguments -> exit code and output, forked or started normally."""

    def run(text, *arguments, cold=False):
        (tmp_path / "probe.py").write_text(text)
        (tmp_path / "sitecustomize.py").write_text("here = True")
        env = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONHASHSEED": "0", "OWN": "yes"}
        with open(tmp_path / "output", "w+") as output:
            code = forked_processes.run(["probe", *arguments], None if cold else address, env, output)
            output.seek(0)
            return code, output.read()

    return run


def test_it_is_what_python_m_would_have_started(ask):
    (cold_code, cold), (code, said) = ask(PROBE, "a b", cold=True), ask(PROBE, "a b")
    assert code == cold_code == 7 and said.endswith("stderr\n") and cold.endswith("stderr\n")
    expected, told = (json.loads(text.partition("\n")[0]) for text in (cold, said))
    expected[8] = True  # a new session, as for the kernels of jupyter_client
    assert told[2].pop(forked_processes.ADDRESS)
    assert told == expected and told[2]["OWN"] == "yes" and "ONLY" not in told[2]


def test_what_one_has_changed_the_next_does_not_know(ask):
    for _ in range(2):
        assert '"by the first"' not in ask(PROBE)[1]


def test_an_error_is_1_and_its_traceback_is_written(ask):
    code, said = ask("1 / 0")
    assert code == 1 and "ZeroDivisionError" in said


def test_it_can_be_interrupted_and_killed(address, tmp_path):
    (tmp_path / "slow.py").write_text("import os, time\nprint(os.getcwd(), flush=True)\ntime.sleep(60)")
    for number, expected in ((signal.SIGINT, 1), (signal.SIGKILL, -signal.SIGKILL)):
        with open(tmp_path / "output", "w+") as output:
            slow = forked_processes.Forked(address, ["slow"], env=os.environ, cwd=tmp_path, output=output)
            while not (tmp_path / "output").stat().st_size:
                assert slow.poll() is None
            os.killpg(slow.pid, number)
            assert slow.wait() == slow.poll() == expected
        assert (tmp_path / "output").read_text().startswith(f"{tmp_path}\n")


def test_a_process_with_threads_is_not_forked(tmp_path):
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=[9], daemon=True).start()"
    )
    command = [sys.executable, forked_processes.__file__, "0", "threaded"]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1 and "threads is not safe to fork" in done.stderr
