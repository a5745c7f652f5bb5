"""Isolation of a submission's process: bubblewrap, resource limits and a seccomp filter of system calls.

The grader starts the process in bubblewrap (`command`). Before it runs any cell, the process permanently
limits its own resources (`apply_limits`) and its right to start other processes (`forbid_subprocesses`). With
`--no-sandbox` these two are the only protection.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...doctor import thread_settings
from ...errors import UsageError
from ..flash_attention_file import packaged_file

NO_SANDBOX = "To grade without it, use --no-sandbox, and only in an account that submissions may damage"
INSTALL = "Install it (sudo apt-get install bubblewrap)"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
_DEVICES = ("/dev/null", "/dev/random", "/dev/urandom")  # not /dev/zero: its pages escape the memory limit
HOME = "/tmp"  # the only writable folder in the sandbox
_ADDRESSES = 4  # ratio of address space to memory, because libraries reserve much more than they use


@dataclass(frozen=True)
class Limits:
    """Resources that one submission may use.

    Attributes:
        seconds: wall-clock time per exercise.
        memory: bytes of data of the process.
        file: bytes per file; all files together may use 5 · `file`.
        printed: characters that one cell or one trial may print.
        answer: bytes of one answer to the grader.
    """

    seconds: float = 60.0
    memory: int = 4 << 30
    file: int = 50 << 20
    printed: int = 1 << 20
    answer: int = 64 << 20


def command(limits: Limits, sandboxed: bool) -> list[str]:
    """Return the command that starts the process of a submission, in bubblewrap if `sandboxed`."""
    start = f"import sys; sys.path[:] = {_paths_of_submission()!r}; "
    start += "from iocourse.course.grade import submission_process; "
    serve = f"submission_process.serve(submission_process.{limits!r})"
    own = [sys.executable, "-I", "-c", start + serve]
    return [*_bubblewrap(limits), *own] if sandboxed else own


def sandbox_environment(home: str) -> dict[str, str]:
    """Return the environment variables of the process: none of the grader's, all caches below `home`."""
    own = {"PATH": "/usr/bin:/bin", "HOME": home, "TMPDIR": home, "IOCOURSE_HOME": home, "LC_ALL": "C.UTF-8"}
    own |= {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}  # Windows needs it
    caches = {name: f"{home}/{name}" for name in ("MPLCONFIGDIR", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR")}
    one_core = thread_settings.environment(1)  # submissions are graded in parallel
    return own | caches | one_core | {"MPLBACKEND": "Agg", "TRITON_INTERPRET": "1"}


def require_bubblewrap(limits: Limits) -> None:
    """Check that bubblewrap works on this machine.

    Raises:
        UsageError: it is missing or does not work; the message names the remedy.
    """
    if not sys.platform.startswith("linux"):
        raise UsageError(f"bubblewrap, which isolates submissions, needs Linux. {NO_SANDBOX}")
    if shutil.which("bwrap") is None:
        raise UsageError(f"bubblewrap, which isolates submissions, is not installed. {INSTALL}. {NO_SANDBOX}")
    tried = subprocess.run(
        [*_bubblewrap(limits), sys.executable, "-I", "-c", "print('inside')"],
        env=sandbox_environment(HOME),
        capture_output=True,
        text=True,
    )
    if tried.stdout.strip() != "inside":
        said = (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1]
        raise UsageError(f"bubblewrap does not work here ({said}). Allow user namespaces. {NO_SANDBOX}")


def _bubblewrap(limits: Limits) -> list[str]:
    """Return the bwrap command: no network, read access to Python and this library, one writable folder."""
    arguments = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    arguments += ["--as-pid-1"]  # otherwise bwrap's own process is inside, unlimited and open to attack
    arguments += ["--size", str(5 * limits.file), "--tmpfs", HOME]
    for path in _readable():
        arguments += ["--ro-bind", path, path]
    for device in _DEVICES:
        arguments += ["--dev-bind", device, device]
    return [*arguments, "--proc", "/proc", "--remount-ro", "/", "--chdir", HOME]


def _readable() -> Iterator[str]:
    """Yield the readable paths: system libraries, Python and its packages, `iocourse` without solutions.

    And `flash_attention.py`: a submission that imports it is refused by the code of its functions.
    """
    seen: list[Path] = []
    library = str(Path(__file__).parents[2])
    found = [*_SYSTEM, sys.base_prefix, sys.prefix, str(Path(sys.executable).parent), library]
    if file := packaged_file():
        found.append(str(file))
    for name in [*found, *(path for path in _paths() if path.endswith(("site-packages", "dist-packages")))]:
        path = Path(name)
        if path.exists() and not any(path.is_relative_to(other) for other in seen):
            seen.append(path)
            yield name


def _paths() -> list[str]:
    """Return the existing entries of the grader's module search path, as absolute paths."""
    return list(dict.fromkeys(os.path.abspath(path) for path in sys.path if os.path.exists(path or ".")))


def _paths_of_submission() -> list[str]:
    """Return `_paths` and the folder of `flash_attention.py`, which students have next to their notebook."""
    path = packaged_file()
    return [*_paths(), *([str(path.parent)] if path else [])]


# ------------------------------------------------------------------ limits
def apply_limits(limits: Limits) -> None:
    """Limit the resources of this process permanently. Without `resource` (Windows) only time is limited."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return
    for kind, most in (
        ("RLIMIT_DATA", limits.memory),
        ("RLIMIT_AS", _ADDRESSES * limits.memory),  # also limits pages that do not count as data
        ("RLIMIT_FSIZE", limits.file),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_NOFILE", 256),
    ):
        if hasattr(resource, kind):
            number = getattr(resource, kind)
            _, hard = resource.getrlimit(number)
            least = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(number, (least, least))


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# ------------------------------------------------------------------ seccomp filter
# On Linux, x86-64 and arm64.
# A seccomp program consists of classic BPF instructions on (number, architecture, …, arguments).
_LOAD, _AND, _EQUAL, _SET, _RETURN = 0x20, 0x54, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_FIRST, _FOURTH = 16, 40  # offsets of the lower halves of the first and the fourth argument
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_CLONE_THREAD = 0x00010000
_SHARED, _ANONYMOUS = 0x01, 0x20  # mmap flags of pages that the limit on data does not count
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER, _DEATH_SIGNAL = 38, 22, 2, 1  # arguments of prctl
_X32 = 0x40000000  # first number of the second table of system calls (x32) on x86-64
# io_uring (3), open_tree move_mount fsopen fsconfig fsmount fspick pidfd_open, pidfd_getfd, mount_setattr,
# memfd_secret: newer calls have the same numbers on all architectures.
_NEWER = (425, 426, 427, 428, 429, 430, 431, 432, 433, 434, 438, 442, 447)

_Step = tuple[int, int, int, int]  # opcode, steps to skip if true, steps to skip if false, operand


@dataclass(frozen=True)
class _Calls:
    """Numbers of system calls on one architecture: filtered by an argument, or always refused."""

    architecture: int  # seccomp's constant of the architecture
    clone: int
    mmap: int
    prctl: int
    refused: tuple[int, ...]
    clone3: int = 435


_CALLS = {
    "x86_64": _Calls(
        *(0xC000003E, 56, 9, 157),
        # fork vfork unshare setns ptrace process_vm_readv process_vm_writev, mount umount2 pivot_root chroot,
        # keyctl add_key request_key bpf perf_event_open userfaultfd, memfd_create shmget shmat
        (57, 58, 272, 308, 101, 310, 311, 165, 166, 155, 161, 250, 248, 249, 321, 298, 323, 319, 29, 30),
    ),
    "aarch64": _Calls(
        *(0xC00000B7, 220, 222, 167),
        # unshare setns ptrace process_vm_readv process_vm_writev and so on, in the same order
        (97, 268, 117, 270, 271, 40, 39, 41, 51, 219, 217, 218, 280, 241, 282, 279, 194, 196),
    ),
}


def forbid_subprocesses() -> bool:
    """Permanently forbid this process to start others or to outlive its parent; return True on success.

    A seccomp filter refuses the system calls. RLIMIT_NPROC is not sufficient, because it counts all processes
    of a user on the machine and does not apply to root. Threads are allowed; their stacks count as memory.
    The filter also refuses calls that no lesson needs and that would bypass the limits or the sandbox: access
    to other processes, mounting, memory that the limits do not count, and staying alive after the parent.
    """
    if not sys.platform.startswith("linux"):
        return False
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if platform.machine() not in _CALLS or prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    program = _program(_CALLS[platform.machine()])
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    return bool(prctl(_SECCOMP, _FILTER, ctypes.create_string_buffer(header, len(header)), 0, 0) == 0)


def _program(calls: _Calls) -> bytes:
    refuse, unknown = _ERROR | errno.EPERM, _ERROR | errno.ENOSYS  # ENOSYS: glibc falls back to clone
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, calls.architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_SET, 0, 1, _X32),
        (_RETURN, 0, 0, refuse),
    ]
    for number in (*calls.refused, *_NEWER):
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    steps += [(_EQUAL, 0, 1, calls.clone3), (_RETURN, 0, 0, unknown)]
    steps += _looked_at(calls.clone, [(_LOAD, 0, 0, _FIRST), (_SET, 1, 0, _CLONE_THREAD)], refuse)
    counted = [
        (_LOAD, 0, 0, _FOURTH),
        (_AND, 0, 0, _SHARED | _ANONYMOUS),
        (_EQUAL, 0, 1, _SHARED | _ANONYMOUS),
    ]
    steps += _looked_at(calls.mmap, counted, refuse)
    steps += _looked_at(calls.prctl, [(_LOAD, 0, 0, _FIRST), (_EQUAL, 0, 1, _DEATH_SIGNAL)], refuse)
    steps += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _looked_at(number: int, test: list[_Step], refuse: int) -> list[_Step]:
    """Return the steps for one system call: refuse it unless `test` skips the next step; then allow it."""
    decided = [*test, (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(decided), number), *decided]
