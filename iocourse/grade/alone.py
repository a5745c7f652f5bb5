"""No further process: a filter in the kernel refuses to start one (Linux on x86-64 and arm64).

The limit on processes that the system has (RLIMIT_NPROC) counts those of a user over the whole machine, and
does not bind root; so it would stop others, or nobody. Threads are allowed: their stacks count as memory.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import signal
import struct
import sys

# seccomp's program: instructions of Linux's classic BPF over (number, architecture, …, arguments).
_LOAD, _EQUAL, _SET, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FLAGS = 0, 4, 16  # offsets in struct seccomp_data; clone's flags come first
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_CLONE_THREAD = 0x00010000
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER, _DEATH_SIGNAL = 38, 22, 2, 1  # of prctl
_X32 = 0x40000000  # numbers from here on are those of a second table on x86-64
# (architecture as seccomp calls it, clone, clone3, calls that are refused whatever they are given)
_CALLS = {
    "x86_64": (0xC000003E, 56, 435, (57, 58, 272, 101, 310, 311)),  # fork vfork unshare ptrace process_vm_*
    "aarch64": (0xC00000B7, 220, 435, (97, 117, 270, 271)),  # unshare ptrace process_vm_*
}


def stay_alone() -> bool:
    """Refuse every further process to this one, for good, and end with its parent. Whether that worked."""
    if not sys.platform.startswith("linux"):
        return False
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    if platform.machine() not in _CALLS or prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    program = _program(*_CALLS[platform.machine()])
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    return bool(prctl(_SECCOMP, _FILTER, ctypes.create_string_buffer(header, len(header)), 0, 0) == 0)


def _program(architecture: int, clone: int, clone3: int, others: tuple[int, ...]) -> bytes:
    refuse, unknown = _ERROR | errno.EPERM, _ERROR | errno.ENOSYS  # glibc then takes clone for clone3
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for number in others:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    steps += [(_EQUAL, 0, 1, clone3), (_RETURN, 0, 0, unknown)]
    steps += [(_SET, 0, 1, _X32), (_RETURN, 0, 0, refuse)]
    steps += [(_EQUAL, 1, 0, clone), (_RETURN, 0, 0, _ALLOW)]
    steps += [(_LOAD, 0, 0, _FLAGS), (_SET, 1, 0, _CLONE_THREAD), (_RETURN, 0, 0, refuse)]
    steps += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("HBBI", *step) for step in steps)
