"""Processes that begin with their imports done, each forked from one that has done nothing but import.

To start Python and load a kernel, NumPy and matplotlib takes longer than the cells of most notebooks.
`python forked_processes.py DESCRIPTOR MODULE...` imports the modules and waits at that socket until its input
ends. Every connection gets a process of its own: it takes over the environment, folder and search path that
it is sent, writes where it is told, and does what `python -m` does. No module of the course is among those
imported.
"""

import gc
import importlib
import json
import os
import runpy
import select
import signal
import site
import socket
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

CAN = sys.platform == "linux"  # elsewhere a process that has loaded libraries is not safe to fork
MOST = 1 << 20  # bytes of a message
ADDRESS = "IOCOURSE_WARM"  # where a process that was forked finds the address for its own kernels


# ------------------------------------------------------------------ who asks
@contextmanager
def imported(modules, env):
    """The address of a process in the environment `env` that has imported these modules."""
    with tempfile.TemporaryDirectory(prefix="iocourse-warm-") as folder:
        address = f"{folder}/socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting:
            waiting.bind(address)
            waiting.listen()
            command = [sys.executable, __file__, str(waiting.fileno()), *modules]
            pipes = {"stdin": subprocess.PIPE, "pass_fds": [waiting.fileno()]}
            process = subprocess.Popen(command, env=env, start_new_session=True, **pipes)
        with process:  # which closes its input and waits for it
            yield address


class Forked:
    """A process that was forked for us: what jupyter_client uses of `subprocess.Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, address, arguments, *, env, cwd, output):
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._told.connect(address)
        asked = {"arguments": arguments, "env": dict(env), "cwd": str(cwd or Path.cwd())}
        socket.send_fds(self._told, [json.dumps(asked).encode()], [output.fileno()])
        self.pid = int(self._told.recv(MOST))
        self.returncode, self._code = None, -signal.SIGKILL  # unless it says otherwise before it ends

    def poll(self):
        """Its exit code, None while it runs."""
        while self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._hear()
        return self.returncode

    def wait(self):
        """Its exit code, once it has ended."""
        while self.returncode is None:
            self._hear()
        return self.returncode

    def _hear(self):
        if told := self._told.recv(MOST):
            self._code = int(told)
        else:  # the process has ended, and its end of the connection with it
            self.returncode = self._code
            self._told.close()

    def send_signal(self, number):
        os.kill(self.pid, number)


def run(arguments, address, env, output):
    """The exit code of what `python -m` does with these arguments, begun at `address` or cold (None)."""
    if address is None:
        command = [sys.executable, "-m", *arguments]
        return subprocess.run(command, env=env, stdout=output, stderr=output, check=False).returncode
    return Forked(address, arguments, env=env | {ADDRESS: address}, cwd=None, output=output).wait()


def kernels_from(address, monkeypatch):
    """From now on jupyter_client's kernels begin at `address`."""
    from jupyter_client.provisioning import local_provisioner

    def launch_kernel(cmd, *, env, cwd=None, **_):
        assert cmd[1] == "-m", cmd
        with open(os.devnull, "w") as nowhere:
            return Forked(address, cmd[2:], env=env, cwd=cwd, output=nowhere)

    monkeypatch.setattr(local_provisioner, "launch_kernel", launch_kernel)


# ------------------------------------------------------------------ the process that forks
def serve(descriptor, modules):
    """Import, then fork for everyone who connects. It returns in each process that is forked, with its
    connection, and in the first one with None when its input ends.
    """
    sys.modules["rfc3987_syntax"] = None  # as in the suite's conftest.py
    for module in modules:
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads is not safe to fork"
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody here asks how they ended
    with socket.socket(fileno=descriptor) as waiting:
        while sys.stdin not in select.select([waiting, sys.stdin], [], [])[0]:
            connection, _ = waiting.accept()
            if os.fork() == 0:
                return connection
            connection.close()


def become(connection):
    """What this process is asked to be, as by `python -m`."""
    message, descriptors, _, _ = socket.recv_fds(connection, MOST, 1)
    asked = json.loads(message)
    _take_over(asked["env"], asked["cwd"], *descriptors)
    connection.send(str(os.getpid()).encode())
    sys.argv = asked["arguments"]
    code = 1
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leaving:
        code = int(leaving.code or 0)
        raise
    finally:
        connection.send(str(code).encode())


def _take_over(env, cwd, output):
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # what was found before is not what this environment says
    os.chdir(cwd)
    sys.path[0:1] = [cwd, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    sys.modules.pop("sitecustomize", None)
    site.execsitecustomize()


if __name__ == "__main__" and (asking := serve(int(sys.argv[1]), sys.argv[2:])):
    become(asking)
