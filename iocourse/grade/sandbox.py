"""The walls: bubblewrap's, where it is installed and works here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ..doctor import threads
from ..refusal import Refused
from .walls.limits import Limits

TRUST = "--i-trust-these grades without walls, in an account that may be broken"
INSTALL = "install it (sudo apt-get install bubblewrap)"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/ld.so.cache", "/etc/alternatives")
_DEVICES = ("/dev/null", "/dev/random", "/dev/urandom")  # pages of /dev/zero would be memory without a limit
HOME = "/tmp"  # the one folder inside that can be written to


def command(limits: Limits, walls: bool) -> list[str]:
    """What starts the process of a submission, behind walls or not."""
    start = f"import sys; sys.path[:] = {_paths()!r}; from iocourse.grade import submission_process; "
    serve = f"submission_process.serve(submission_process.{limits!r})"
    own = [sys.executable, "-I", "-c", start + serve]
    return [*_walls(limits), *own] if walls else own


def environment(home: str) -> dict[str, str]:
    """Nothing of the grader's own environment, and a home for the caches of libraries."""
    own = {"PATH": "/usr/bin:/bin", "HOME": home, "TMPDIR": home, "IOCOURSE_HOME": home, "LC_ALL": "C.UTF-8"}
    own |= {name: os.environ[name] for name in ("SYSTEMROOT",) if name in os.environ}  # Windows needs it
    caches = {name: f"{home}/{name}" for name in ("MPLCONFIGDIR", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR")}
    one_core = threads.environment(1)  # several are graded at once
    return own | caches | one_core | {"MPLBACKEND": "Agg", "TRITON_INTERPRET": "1"}


def refuse_without(limits: Limits) -> None:
    """Raise Refused where there is no bubblewrap, or it does not work here; the line says what to do."""
    if not sys.platform.startswith("linux"):
        raise Refused(f"bubblewrap, which keeps submissions apart, needs Linux; {TRUST}")
    if shutil.which("bwrap") is None:
        raise Refused(f"bubblewrap, which keeps submissions apart, is not here: {INSTALL}; {TRUST}")
    tried = subprocess.run(
        [*_walls(limits), sys.executable, "-I", "-c", "print('inside')"],
        env=environment(HOME),
        capture_output=True,
        text=True,
    )
    if tried.stdout.strip() != "inside":
        said = (tried.stderr.strip().splitlines() or [f"exit code {tried.returncode}"])[-1]
        raise Refused(f"bubblewrap does not work here ({said}): allow user namespaces; {TRUST}")


def _walls(limits: Limits) -> list[str]:
    """No network, no other process, Python and this library to read, and one folder to write to."""
    walls = ["bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    walls += ["--as-pid-1"]  # or bwrap's own process were inside, without limits and open to the student's
    walls += ["--size", str(5 * limits.file), "--tmpfs", HOME]
    for path in _readable():
        walls += ["--ro-bind", path, path]
    for device in _DEVICES:
        walls += ["--dev-bind", device, device]
    return [*walls, "--proc", "/proc", "--remount-ro", "/", "--chdir", HOME]


def _readable() -> Iterator[str]:
    """The system's libraries, this Python with its packages, and `iocourse` without lessons and solutions."""
    seen: list[Path] = []
    library = str(Path(__file__).parents[1])
    found = [*_SYSTEM, sys.base_prefix, sys.prefix, str(Path(sys.executable).parent), library]
    for name in [*found, *(path for path in _paths() if path.endswith(("site-packages", "dist-packages")))]:
        path = Path(name)
        if path.exists() and not any(path.is_relative_to(other) for other in seen):
            seen.append(path)
            yield name


def _paths() -> list[str]:
    """Where the grader's own modules come from."""
    return list(dict.fromkeys(os.path.abspath(path) for path in sys.path if os.path.exists(path or ".")))
