"""Processes that start with their imports done: a server imports modules and forks on request.

Starting Python and importing a kernel, NumPy and matplotlib takes longer than the cells of most notebooks.
`python forked_processes.py DESCRIPTOR MODULE...` imports the modules and waits at that socket until its input
ends. Each connection gets a new process, which takes over the environment, folder, search path and output
of the request and then does the same as `python -m`. No module of the course is imported in advance.
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

CAN = sys.platform == "linux"  # on other systems a process that has loaded libraries is not safe to fork
MOST = 1 << 20  # bytes of a message
ADDRESS = "IOCOURSE_WARM"  # variable with the address for the kernels of a forked process


# ------------------------------------------------------------------ client
@contextmanager
def imported(modules, env):
    """Start a fork server with these modules in the environment `env`, and yield its address."""
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
    """A forked process with the part of the `subprocess.Popen` interface that jupyter_client uses."""

    stdin = stdout = stderr = None

    def __init__(self, address, arguments, *, env, cwd, output):
        self._told = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._told.connect(address)
        asked = {"arguments": arguments, "env": dict(env), "cwd": str(cwd or Path.cwd())}
        socket.send_fds(self._told, [json.dumps(asked).encode()], [output.fileno()])
        self.pid = int(self._told.recv(MOST))
        self.returncode, self._code = None, -signal.SIGKILL  # unless it sends another code before it ends

    def poll(self):
        """Return its exit code, or None while it runs."""
        while self.returncode is None and select.select([self._told], [], [], 0)[0]:
            self._hear()
        return self.returncode

    def wait(self):
        """Wait until it has ended and return its exit code."""
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
    """Run `python -m` with these arguments, forked at `address` or started normally (None); the exit code."""
    if address is None:
        command = [sys.executable, "-m", *arguments]
        return subprocess.run(command, env=env, stdout=output, stderr=output, check=False).returncode
    return Forked(address, arguments, env=env | {ADDRESS: address}, cwd=None, output=output).wait()


def kernels_from(address, monkeypatch):
    """Replace the start of jupyter_client's kernels by a fork at `address`."""
    from jupyter_client.provisioning import local_provisioner

    def launch_kernel(cmd, *, env, cwd=None, **_):
        assert cmd[1] == "-m", cmd
        with open(os.devnull, "w") as nowhere:
            return Forked(address, cmd[2:], env=env, cwd=cwd, output=nowhere)

    monkeypatch.setattr(local_provisioner, "launch_kernel", launch_kernel)


# ------------------------------------------------------------------ server
def serve(descriptor, modules):
    """Import the modules, then fork for each connection.

    It returns the connection in each forked process, and None in the server when its input ends.
    """
    sys.modules["rfc3987_syntax"] = None  # as in the suite's conftest.py
    for module in modules:
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "a process with threads is not safe to fork"
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the server does not read their exit codes
    with socket.socket(fileno=descriptor) as waiting:
        while sys.stdin not in select.select([waiting, sys.stdin], [], [])[0]:
            connection, _ = waiting.accept()
            if os.fork() == 0:
                return connection
            connection.close()


def become(connection):
    """Take over what the request contains, and run its module as `python -m` does."""
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
    tempfile.tempdir = None  # the cached folder belongs to the previous environment
    os.chdir(cwd)
    sys.path[0:1] = [cwd, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    sys.modules.pop("sitecustomize", None)
    site.execsitecustomize()


if __name__ == "__main__" and (asking := serve(int(sys.argv[1]), sys.argv[2:])):
    become(asking)
