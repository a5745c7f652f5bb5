"""Attacks that a submission may try: bodies of the student's function, and the expected reason."""

FORK = "import os\nwhile True: os.fork()"
WALK = """
import gc, sys
frame, found = sys._getframe(), []
while frame:
    found += frame.f_locals.values()
    frame = frame.f_back
found += gc.get_objects()
known = [one for one in found if type(one).__name__.endswith("Case")]
answers = [case.expected for case in known if case.expected is not None]
verdicts = [one for one in found if type(one).__name__ == "Mark"]
if answers or verdicts: raise SystemExit("found")
return None
"""
FORGED = """
import os, pickle
message = pickle.dumps([("runs without an error", None)] * 9)
for descriptor in range(3, 64):
    for text in (b'{"held": 9, "asked": 9}\\n', len(message).to_bytes(8, "big") + message):
        try: os.write(descriptor, text)
        except OSError: pass
os._exit(0)
"""
PATCHED = """
from iocourse.course import checking, exercise
checking.judge = checking._ask = lambda *_: None
for one in exercise.exercises().values():
    object.__setattr__(one, "properties", ())
return 0
"""
STRICT = "import os\nos.environ['IOCOURSE_STRICT'] = '0'\nraise NotImplementedError"
SHARED = """
import mmap, os
ways = lambda: mmap.mmap(-1, 10 << 30), lambda: os.memfd_create("x"), lambda: open("/dev/zero", "r+b")
for way in ways:
    try: way()
    except OSError: continue
    raise SystemExit("memory beyond the limits is available")
raise PermissionError("nothing shared")
"""
PID_1 = """
import os
place = int(open("/proc/1/syscall").read().split()[-1], 16)  # address of the code that process 1 executes
with open("/proc/1/mem", "r+b", 0) as memory:
    memory.seek(place)
    memory.write(bytes.fromhex("b8390000000f05ebfe"))  # fork, and an endless loop
os._exit(0)
"""
OUTLIVE = """
import ctypes
if ctypes.CDLL(None).prctl(1, 0, 0, 0, 0) == 0: raise SystemExit("outlives the grader")
raise PermissionError("ends with the grader")
"""
SEND_CODE = """
import os
class Code:
    def __reduce__(self): return os.system, ("touch broken-out",)
return Code()
"""

# name -> (body, text expected in the reason when it runs in the sandbox)
BODIES = {
    "endless loop": ("while True: pass", "took longer than"),
    "10 GB of memory": ("import numpy\nreturn numpy.ones(10 << 30, 'u1')", "allocate 10.0 GiB"),
    "shared memory": (SHARED, "nothing shared"),
    "fork bomb": (FORK, "Operation not permitted"),
    "write outside": ("open('/usr/forged', 'w')", "Read-only file system"),
    "code in the first process": (PID_1, "its process ended (exit code 0)"),
    "outliving the grader": (OUTLIVE, "ends with the grader"),
    "network": ("import socket\nsocket.create_connection(('192.0.2.1', 80), 1)", "unreachable"),
    "os._exit": ("import os\nos._exit(0)", "its process ended (exit code 0)"),
    "patched judge": (PATCHED, ""),
    "strict flag off": (STRICT, "not written yet"),
    "forged output": (FORGED, "is not a valid answer"),
    "10 MB of output": ("print('x' * 10_000_000)", "printed more than"),
    "walking the stack": (WALK, ""),
    "a message that UTF-8 cannot encode": ("raise ValueError('\\ud800')", "ValueError: ?"),
    "an answer that is code": (SEND_CODE, ""),
}  # fmt: skip
