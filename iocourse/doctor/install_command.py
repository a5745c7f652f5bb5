"""The line that installs packages into the Python that runs: in a terminal, or in a cell of a notebook.

pip is not everywhere: environments of uv and some of conda have none. A checkout has tested versions, a
package on its own has not. This module decides; every message and page takes its line from here. It uses the
standard library only.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path
from typing import NamedTuple

# Each extra of pyproject.toml for users, in full. An installed package cannot name itself here, because its
# name may not be claimed on the package index; so its requirements are listed.
_COURSE = ("anywidget>=0.9.18", "ipywidgets>=7.7.1,<9", "matplotlib>=3.9")
EXTRAS = {
    "course": _COURSE,
    "lab": (*_COURSE, "jupyterlab>=4.2"),
    "torch": ("cloudpickle>=2.2", "torch>=2.6"),
    "triton": ("cloudpickle>=2.2", "torch>=2.6", "triton>=3.6"),
    "fast": ("numba>=0.61",),
}
# Brings pip to the Python of a notebook. It needs no path, and works in an environment of uv. The kernel must
# be restarted, because ensurepip removes the variables PIP_* from its environment.
PIP_IN_A_CELL = "%run -m ensurepip"
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"  # PyTorch without several GB of CUDA libraries
NVIDIA_DRIVER = Path("/proc/driver/nvidia")  # exists while the driver is loaded
_SAFE_IN_DOUBLE_QUOTES = frozenset(" <>=~,;[]()@*?&'#|")


class Environment(NamedTuple):
    """The facts that decide on the line; without arguments, those of an active environment with pip.

    Attributes:
        tool: "pip", "uv", "ensurepip" (no pip, but Python can install it), "conda" (which has no pip yet) or
            "none".
        python: what starts this Python in a terminal.
        prefix: the folder of the environment, for conda.
        cell: the line is for a cell of a notebook.
        checkout: the folder of the checkout that iocourse is imported from; "" if it is from elsewhere.
        cpu: torch is taken from `CPU_BUILDS`.
    """

    tool: str = "pip"
    python: str = "python"
    prefix: str = ""
    cell: bool = False
    checkout: str = ""
    cpu: bool = False


def command(*wanted: str, at: Environment | None = None) -> str:
    """Return the line that installs `wanted`, in a form that can be pasted.

    Args:
        wanted: extras of `EXTRAS`, or requirements such as "numpy<2.4" or a wheel's path.
        at: where to install; this Python if None.
    """
    at = this_environment() if at is None else at
    what = " ".join(_arguments(wanted, at))
    pip, uv = f"{at.python} -m pip install {what}", f"uv pip install --python {at.python} {what}"
    if at.tool == "pip":
        return f"%pip install {what}" if at.cell else pip
    then = ";" if os.name == "nt" else "&&"  # PowerShell 5 lacks &&
    lines = {
        "uv": uv,
        "ensurepip": f"{at.python} -m ensurepip {then} {pip}",
        "conda": f"conda install -y -p {_quoted(at.prefix)} pip {then} {pip}",
        "none": f"{uv}  # install uv first: this Python has neither pip nor ensurepip",
    }
    return f"{'!' * at.cell}{lines[at.tool]}"


def missing(package: str, extra: str, what: str) -> ModuleNotFoundError:
    """Return the error of `what`, which needs a package of an extra that is not installed."""
    return ModuleNotFoundError(
        f"{what} needs {package}, which is not installed here: {command(extra)}", name=package
    )


def this_environment() -> Environment:
    """Return the facts about the Python that runs."""
    browser = sys.platform == "emscripten"  # JupyterLite, where %pip is piplite's
    colab = "COLAB_RELEASE_TAG" in os.environ
    root = Path(__file__).parents[2]
    tool = "pip" if browser else _tool()
    return Environment(
        tool=tool,
        python=_python(tool),
        prefix=sys.prefix,
        cell=browser or colab or _is_notebook(),
        checkout=str(root) if (root / "constraints.txt").is_file() else "",
        cpu=sys.platform == "linux" and not colab and not _has_nvidia_gpu(),
    )


def _arguments(wanted: tuple[str, ...], at: Environment) -> list[str]:
    extras = [name for name in wanted if name in EXTRAS]
    requirements = [name for name in wanted if name not in EXTRAS]
    found = []
    if at.cpu and ({"torch", "triton"} & {*extras} or any(one.startswith("torch") for one in requirements)):
        found.append(f"--extra-index-url {CPU_BUILDS}")
        # By default uv takes every package from the first index that has a package of this name.
        found += ["--index-strategy unsafe-best-match"] if at.tool in ("uv", "none") else []
    if at.checkout:
        found.append(f"-c {_quoted(os.path.join(at.checkout, 'constraints.txt'), always=True)}")
        if extras:
            editable = f"{at.checkout}[{','.join(extras)}]"
            found.append(f"-e {_quoted(editable, always=True)}")
    else:
        requirements = [*dict.fromkeys(one for name in extras for one in EXTRAS[name]), *requirements]
    return [*found, *(_quoted(one, always=True) for one in requirements)]


def _tool() -> str:
    if _is_there("pip"):
        return "pip"
    if (Path(sys.prefix) / "conda-meta").is_dir():
        return "conda"
    if shutil.which("uv") or _made_by_uv():
        return "uv"
    # Debian's Python outside an environment has an ensurepip that refuses to run.
    of_the_system = sys.prefix == sys.base_prefix
    managed = of_the_system and Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").is_file()
    return "none" if managed or not _is_there("ensurepip") else "ensurepip"


def _is_there(name: str) -> bool:
    # Not importlib.util.find_spec: for pip, setuptools then removes its distutils from this process.
    return PathFinder.find_spec(name) is not None


def _made_by_uv() -> bool:
    try:
        lines = (Path(sys.prefix) / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return any(line.partition("=")[0].strip() == "uv" for line in lines)


def _python(tool: str) -> str:
    """Return `python` if that starts the running Python, otherwise its path (its environment is inactive)."""
    active = shutil.which("python") == sys.executable and tool not in ("uv", "none")
    return "python" if active or not sys.executable else _quoted(sys.executable)


def _is_notebook() -> bool:
    """Return True in a kernel of Jupyter, False in a script and in IPython's terminal."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython and ipython.get_ipython(), "kernel", None) is not None


def _has_nvidia_gpu() -> bool:
    return shutil.which("nvidia-smi") is not None or NVIDIA_DRIVER.exists()


def _quoted(text: str, *, always: bool = False) -> str:
    """Quote for a shell, with double quotes, which Windows also reads, unless they are not enough."""
    special = {letter for letter in text if not letter.isalnum() and letter not in "-_./:\\+%,"}
    if os.name != "nt" and ("\\" in text or special - _SAFE_IN_DOUBLE_QUOTES):
        return shlex.quote(text)
    return f'"{text}"' if always or special else text
