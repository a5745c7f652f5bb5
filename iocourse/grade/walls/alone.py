"""No further process: a filter in the kernel refuses to start one (Linux on x86-64 and arm64).

The limit on processes that the system has (RLIMIT_NPROC) counts those of a user over the whole machine, and
does not bind root; so it would stop others, or nobody. Threads are allowed: their stacks count as memory.
The filter also refuses what nothing in a lesson needs and what would lead past the limits or the walls.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import signal
import struct
import sys
from dataclasses import dataclass

# seccomp's program: instructions of Linux's classic BPF over (number, architecture, …, arguments).
_LOAD, _AND, _EQUAL, _SET, _RETURN = 0x20, 0x54, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4  # offsets in struct seccomp_data
_FIRST, _FOURTH = 16, 40  # the lower halves of the first and the fourth argument
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_CLONE_THREAD = 0x00010000
_SHARED, _ANONYMOUS = 0x01, 0x20  # of mmap: pages that no limit on data counts
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER, _DEATH_SIGNAL = 38, 22, 2, 1  # of prctl
_X32 = 0x40000000  # numbers from here on are those of a second table on x86-64
# io_uring (3), open_tree move_mount fsopen fsconfig fsmount fspick pidfd_open, pidfd_getfd, mount_setattr,
# memfd_secret: the newer calls have the same numbers everywhere.
_NEWER = (425, 426, 427, 428, 429, 430, 431, 432, 433, 434, 438, 442, 447)

_Step = tuple[int, int, int, int]  # what to do, steps to skip where it holds and where not, operand


@dataclass(frozen=True)
class _Calls:
    """Numbers of system calls: looked at, or refused whatever they are given."""

    architecture: int  # as seccomp calls it
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


def stay_alone() -> bool:
    """Refuse every further process to this one, for good, and end with its parent. Whether that worked.

    Refused too: to look into other processes, to mount, to get memory that the limits do not count, and to
    outlive the parent.
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
    refuse, unknown = _ERROR | errno.EPERM, _ERROR | errno.ENOSYS  # glibc then takes clone for clone3
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
    """For one call: a test that ends in a jump over the next step, which refuses; otherwise it is allowed."""
    decided = [*test, (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW)]
    return [(_EQUAL, 0, len(decided), number), *decided]
