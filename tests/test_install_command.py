"""Tests of the line that installs packages: its text, how the environment is recognised, and that it works.

The lines are run, without the network, in environments of pip and of uv, and in one without both. conda,
Colab and JupyterLite are stubs: their lines were not tried on the real ones.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from tiny_wheels import pins, write_index, write_wheel

from iocourse.doctor import install_command
from iocourse.doctor.install_command import EXTRAS, Environment, command

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
posix = pytest.mark.skipif(
    shutil.which("bash") is None or os.name == "nt", reason="needs a POSIX bash"
)  # the lines are run by it


def stated(extra):
    """The requirements of an extra in pyproject.toml, without markers, with those of the extras it names."""
    for line in PROJECT["optional-dependencies"][extra]:
        one = Requirement(line)
        if one.name == "iocourse":
            yield from (found for name in one.extras for found in stated(name))
        else:
            yield line.split(";")[0]


def test_the_extras_are_those_of_pyproject():
    assert {name: list(stated(name)) for name in PROJECT["optional-dependencies"] if name != "test"} == {
        name: list(lines) for name, lines in EXTRAS.items()
    }


# ---- text --------------------------------------------------------------------------------------------------
IN_CLONE = '-c "/c/constraints.txt" -e "/c"'
LAB_AND_FAST = '"anywidget>=0.9.18" "ipywidgets>=7.7.1,<9" "matplotlib>=3.9" "jupyterlab>=4.2" "numba>=0.61"'
CLONE = Environment("pip", "/c/.venv/bin/python", checkout="/c")


@pytest.mark.parametrize(
    ("wanted", "at", "line"),
    [
        (["fast"], Environment(), 'python -m pip install "numba>=0.61"'),
        (["numpy<2.4"], CLONE, '/c/.venv/bin/python -m pip install -c "/c/constraints.txt" "numpy<2.4"'),
        (["course"], CLONE, '/c/.venv/bin/python -m pip install -c "/c/constraints.txt" -e "/c[course]"'),
        (["x"], CLONE._replace(cell=True), '%pip install -c "/c/constraints.txt" "x"'),
        (["lab", "fast"], CLONE._replace(cell=True), f"%pip install {IN_CLONE[:-1]}[lab,fast]\""),
        (["a.whl[course]"], Environment(cell=True), '%pip install "a.whl[course]"'),
        (["fast"], Environment("uv", "/e/bin/python"), 'uv pip install --python /e/bin/python "numba>=0.61"'),
        (["x"], Environment("uv", "/e/bin/python", cell=True), '!uv pip install --python /e/bin/python "x"'),
        (["x"], Environment("ensurepip", "p"), 'p -m ensurepip && p -m pip install "x"'),
        (["x"], Environment("ensurepip", "p", cell=True), '!p -m ensurepip && p -m pip install "x"'),
        (["x"], Environment("conda", "p", "/m n"), 'conda install -y -p "/m n" pip && p -m pip install "x"'),
        (
            ["x"],
            Environment("none", "p"),
            'uv pip install --python p "x"  # install uv first: this Python has neither pip nor ensurepip',
        ),
        (
            ["torch"],
            Environment(cpu=True),
            "python -m pip install --extra-index-url https://download.pytorch.org/whl/cpu "
            '"cloudpickle>=2.2" "torch>=2.6"',
        ),
        (
            ["triton"],
            Environment("uv", "p", checkout="/c", cpu=True),
            "uv pip install --python p --extra-index-url https://download.pytorch.org/whl/cpu "
            '--index-strategy unsafe-best-match -c "/c/constraints.txt" -e "/c[triton]"',
        ),
        (["lab", "fast", "course"], Environment(cpu=True), f"python -m pip install {LAB_AND_FAST}"),
    ],
)  # fmt: skip
@pytest.mark.skipif(os.name == "nt", reason="paths and && are POSIX's")
def test_the_line_for(wanted, at, line):
    assert command(*wanted, at=at) == line


def test_powershell_separates_commands_by_a_semicolon(monkeypatch):
    monkeypatch.setattr(install_command, "os", SimpleNamespace(name="nt", path=os.path))
    assert command("x", at=Environment("ensurepip", "p")) == 'p -m ensurepip ; p -m pip install "x"'


@posix
@pytest.mark.parametrize(
    "text", ["plain", "my folder", "a$b", 'a"b', "a`b", "a!b", "a'b", "a\\b", "ü(1)", "a<b"]
)
def test_a_shell_reads_the_path_back(text):
    line = f"printf %s {install_command._quoted(text)}"
    assert subprocess.run(["bash", "-c", line], capture_output=True, text=True).stdout == text


PY, NUMBA = "/me/.venv/bin/python", "numba>=0.61"
SHOWN = {  # the rows of the page on installing
    "pip, environment activated": Environment(),
    "pip, environment not activated": Environment(python=PY),
    "made by uv, which installs no pip": Environment("uv", PY),
    "neither pip nor uv": Environment("ensurepip", PY),
    "conda without pip": Environment("conda", PY, "/me/.venv"),
    "a notebook with pip, Colab, JupyterLite": Environment(cell=True),
    "a notebook in an environment of uv": Environment("uv", PY, cell=True),
}


@posix
def test_the_page_on_installing_shows_the_lines():
    page = (ROOT / "docs" / "guide" / "install.md").read_text(encoding="utf-8")
    table = page.split("| environment | line |\n| --- | --- |\n")[1].split("\n\n")[0]
    assert table.splitlines() == [f"| {where} | `{command(NUMBA, at=at)}` |" for where, at in SHOWN.items()]
    assert install_command.CPU_BUILDS in page
    assert all(f"| `{extra}` |" in page for extra in PROJECT["optional-dependencies"])


# ---- recognising the environment ---------------------------------------------------------------------------
@pytest.fixture
def here(monkeypatch, tmp_path):
    """An environment in `tmp_path` whose facts a test sets: modules, programs on PATH, platform, files."""
    facts = SimpleNamespace(modules={"pip", "ensurepip"}, programs={}, folder=tmp_path)
    monkeypatch.setattr(install_command, "_is_there", facts.modules.__contains__)
    monkeypatch.setattr(install_command, "shutil", SimpleNamespace(which=facts.programs.get))
    monkeypatch.setattr(install_command, "__file__", str(tmp_path / "lib/iocourse/doctor/install_command.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("COLAB_RELEASE_TAG", raising=False)
    return facts


def tool_of(facts):
    return install_command.this_environment().tool


def test_pip_is_used_where_it_can_be_imported(here):
    here.programs["uv"] = "/bin/uv"
    (here.folder / "conda-meta").mkdir()
    (here.folder / "pyvenv.cfg").write_text("uv = 0.13\n")
    assert tool_of(here) == "pip"


def test_uv_is_recognised_by_its_mark_or_on_the_path(here):
    here.modules.remove("pip")
    assert tool_of(here) == "ensurepip"
    (here.folder / "pyvenv.cfg").write_text("home = /opt\nuv = 0.13.9\n")
    assert tool_of(here) == "uv"
    (here.folder / "pyvenv.cfg").write_text("home = /opt/uv\nprompt = uv = x\n")
    assert tool_of(here) == "ensurepip"
    here.programs["uv"] = "/bin/uv"
    assert tool_of(here) == "uv"


def test_an_environment_of_conda_without_pip(here):
    here.modules.remove("pip")
    here.programs["uv"] = "/bin/uv"
    (here.folder / "conda-meta").mkdir()
    assert tool_of(here) == "conda"
    assert install_command.this_environment().prefix == str(here.folder)


def test_neither_pip_nor_ensurepip(here, monkeypatch, tmp_path):
    here.modules.clear()
    assert tool_of(here) == "none"
    here.modules.add("ensurepip")
    monkeypatch.setattr(sys, "base_prefix", str(here.folder))  # not an environment
    monkeypatch.setattr(install_command.sysconfig, "get_path", lambda name: str(tmp_path))
    assert tool_of(here) == "ensurepip"
    (tmp_path / "EXTERNALLY-MANAGED").write_text("")
    assert tool_of(here) == "none"


def test_looking_for_pip_leaves_setuptools_as_it_is():
    """On Python 3.11 importlib's `find_spec("pip")` would make this import fail."""
    code = "import sys; from iocourse.doctor.install_command import command; line = command('fast'); "
    code += "assert 'distutils' not in sys.modules; import setuptools; print(line)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "install" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("running", "found", "said"),
    [
        ("/env/bin/python", "/env/bin/python", "python"),
        ("/env/bin/python", "/usr/bin/python", "/env/bin/python"),
        ("/my env/bin/python", None, '"/my env/bin/python"'),
        ("", None, "python"),
    ],
)
def test_the_line_names_the_python_that_runs(here, monkeypatch, running, found, said):
    monkeypatch.setattr(sys, "executable", running)
    here.programs["python"] = found
    assert install_command.this_environment().python == said


def test_uv_always_gets_the_path(here):
    """`--python python` could find another one."""
    here.modules.remove("pip")
    here.programs |= {"uv": "/bin/uv", "python": sys.executable}
    assert install_command.this_environment().python == sys.executable


def test_torch_comes_without_cuda_where_there_is_no_nvidia_gpu(here, monkeypatch):
    monkeypatch.setattr(install_command, "NVIDIA_DRIVER", here.folder / "nvidia")
    assert install_command.this_environment().cpu
    here.programs["nvidia-smi"] = "/bin/nvidia-smi"
    assert not install_command.this_environment().cpu
    here.programs.clear()
    (here.folder / "nvidia").mkdir()
    assert not install_command.this_environment().cpu
    (here.folder / "nvidia").rmdir()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not install_command.this_environment().cpu


def test_on_colab_the_line_is_for_a_cell(here, monkeypatch):
    """A stub; not tried on Colab. It is the same for `!iocourse doctor`, which a cell starts."""
    monkeypatch.setenv("COLAB_RELEASE_TAG", "release-colab")
    assert command("torch") == '%pip install "cloudpickle>=2.2" "torch>=2.6"'


def test_in_jupyterlite_the_line_is_piplites(here, monkeypatch):
    """A stub; not tried in JupyterLite, which has no module pip."""
    here.modules.clear()
    monkeypatch.setattr(sys, "platform", "emscripten")
    assert command("fast") == '%pip install "numba>=0.61"'


def test_a_kernel_is_a_notebook_and_a_terminal_is_not(here, monkeypatch):
    for shell, cell in ((None, False), (SimpleNamespace(), False), (SimpleNamespace(kernel=1), True)):
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell))
        assert install_command.this_environment().cell is cell


def test_the_error_of_what_needs_a_package_is_one_line_with_the_command(here):
    error = install_command.missing("numba", "fast", "this")
    assert str(error) == f"this needs numba, which is not installed here: {command('fast')}"
    assert "\n" not in str(error) and error.name == "numba"


# ---- the lines, run ----------------------------------------------------------------------------------------
PACKAGES = ("anywidget", "cloudpickle", "ipywidgets", "jupyterlab", "matplotlib", "numba", "numpy", "triton")
PRINT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("found", sys.argv[1])
module = sys.modules["found"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(module.command(*sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """The packages of the extras without their code, and setuptools, which an editable install executes."""
    folder, versions = tmp_path_factory.mktemp("index"), pins(ROOT / "constraints.txt")
    write_index(folder, ["setuptools"], complete=["setuptools"])
    for name in PACKAGES:
        write_wheel(folder, name, versions[name])
        write_wheel(folder, name, "999.0")  # which the constraints exclude
    write_wheel(folder, "package-of-the-tests", "1.0")
    write_wheel(folder, "torch", f"{versions['torch']}+cpu")
    return folder


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The module in a checkout and outside one: the paths of both files."""
    checkout, elsewhere = tmp_path_factory.mktemp("a clone"), tmp_path_factory.mktemp("site-packages")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "LICENSE-text", "constraints.txt"):
        shutil.copy(ROOT / name, checkout)
    for place in (checkout, elsewhere):
        (place / "iocourse" / "doctor").mkdir(parents=True)
        (place / "iocourse" / "__init__.py").touch()
        shutil.copy(ROOT / "iocourse" / "doctor" / "install_command.py", place / "iocourse" / "doctor")
    file = Path("iocourse") / "doctor" / "install_command.py"
    return {"checkout": checkout / file, "elsewhere": elsewhere / file}


WITH_OURS = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])


def require_uv():
    """Return the program's name, or skip the test."""
    if shutil.which("uv", path=WITH_OURS) is None:
        pytest.skip("uv is not installed: the extra `test` brings it")
    return ["uv"]


def settings(folder, index, programs=()):
    """The variables of a machine without network that has the packages of `index` and these programs."""
    (folder / "bin").mkdir()
    for name in ("bash", "sh", *programs):
        (folder / "bin" / name).symlink_to(shutil.which(name, path=WITH_OURS))
    (folder / "uv.toml").write_text(f"no-index = true\nfind-links = ['{index}']\n")
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
    uv = {"UV_OFFLINE": "1", "UV_CONFIG_FILE": str(folder / "uv.toml"), "UV_CACHE_DIR": str(folder / "cache")}
    return pip | uv | {"PATH": str(folder / "bin"), "HOME": str(folder), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def an_environment(folder, kind, env):
    """Make an environment of this kind, and return its Python."""
    home = folder / "my env"
    if kind == "uv":
        command = ["uv", "venv", "-q", "--python", sys._base_executable, str(home)]
    else:
        command = [sys.executable, "-m", "venv", *["--without-pip"] * (kind != "pip"), str(home)]
    subprocess.run(command, env=os.environ | env, check=True)
    return home / "bin" / "python"


def installed_by(python, line, env):
    """Run the line in bash, and return name -> version of the packages that the environment then has."""
    done = subprocess.run(["bash", "-c", line], env=env, capture_output=True, text=True)
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    found = (path.stem.split("-") for path in python.parents[1].rglob("*.dist-info"))
    return {name: version for name, version in found}


WANTED = {  # what is requested -> packages that it must bring, but for torch
    ("lab", "fast"): ("anywidget", "ipywidgets", "matplotlib", "jupyterlab", "numba"),
    ("triton",): ("cloudpickle", "triton"),
    ("numpy<3",): ("numpy",),
}


@posix
@pytest.mark.parametrize("place", ["checkout", "elsewhere"])
@pytest.mark.parametrize("kind", ["pip", "uv", "neither", "conda"])
def test_each_line_that_is_printed_installs(kind, place, index, places, tmp_path):
    """It is printed by the module in the environment, and run there. conda is a stub that installs pip."""
    env = settings(tmp_path, index, require_uv() if kind == "uv" else ())
    python = an_environment(tmp_path, kind, env)
    if kind == "conda":
        (python.parents[1] / "conda-meta").mkdir()
        (tmp_path / "bin" / "conda").write_text(
            f'#!/bin/sh\n[ "$*" = "install -y -p {python.parents[1]} pip" ] && "{python}" -m ensurepip\n'
        )
        (tmp_path / "bin" / "conda").chmod(0o755)
    starts = {"uv": "uv pip install", "conda": "conda install", "neither": f'"{python}" -m ensurepip'}
    pinned = pins(ROOT / "constraints.txt")
    for wanted, brings in WANTED.items():
        program = [python, "-c", PRINT, places[place], *wanted]
        line = subprocess.run(program, env=env, capture_output=True, text=True, check=True).stdout.strip()
        assert line.startswith(starts.get(kind, f'"{python}" -m pip install'))
        found = installed_by(python, line, env)
        assert set(brings) <= set(found)
        assert ("iocourse" in found) == (place == "checkout")
        if place == "checkout":
            assert [found[name] for name in brings] == [pinned[name] for name in brings]
        kind = "uv" if kind == "uv" else "pip"  # the first line has installed pip
    assert found["torch"] == f"{pinned['torch']}+cpu"


def simple_index(folder, **versions):
    """Write a package index of wheels without code, and return its URL."""
    for name, version in versions.items():
        (folder / name).mkdir(parents=True)
        write_wheel(folder / name, name, version)
        (file,) = (folder / name).glob("*.whl")
        (folder / name / "index.html").write_text(f'<a href="{file.name}">{file.name}</a>')
    return folder.as_uri()


@posix
@pytest.mark.parametrize("kind", ["pip", "uv"])
def test_torch_is_taken_from_the_index_of_cpu_builds_and_other_packages_are_not(kind, tmp_path, monkeypatch):
    """The index of CPU builds has old versions of other packages too. Both indexes are folders here."""
    env = settings(tmp_path, tmp_path, require_uv() if kind == "uv" else ())
    ours = simple_index(tmp_path / "index", torch="2.13.0", cloudpickle="3.1")
    monkeypatch.setattr(
        install_command, "CPU_BUILDS", simple_index(tmp_path / "cpu", torch="2.13.0+cpu", cloudpickle="2.2")
    )
    (tmp_path / "uv.toml").write_text("")
    env |= {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": ours, "UV_DEFAULT_INDEX": ours}
    python = an_environment(tmp_path, kind, env)
    line = command("torch", at=Environment(kind, f'"{python}"', cpu=True))
    found = installed_by(python, line, env)
    assert (found["torch"], found["cloudpickle"]) == ("2.13.0+cpu", "3.1")


@posix
def test_a_cell_runs_its_line(index, tmp_path):
    """IPython runs `%pip` with the pip of its Python, and `!uv` in a shell."""
    pytest.importorskip("IPython", reason="IPython is not installed")
    env = settings(tmp_path, index, require_uv())
    run = "import sys; from IPython.core.interactiveshell import InteractiveShell as S; "
    run += "S.instance().run_cell(sys.argv[1]).raise_error()"
    packages = {"PYTHONPATH": str(Path(pytest.__file__).parents[1])}
    for kind in ("pip", "uv"):
        folder = tmp_path / kind
        folder.mkdir()
        python = an_environment(folder, kind, env)
        at = Environment(kind, f'"{python}"', cell=True)
        subprocess.run(
            [python, "-c", run, command("package-of-the-tests", at=at)], env=env | packages, check=True
        )
        assert list(python.parents[1].rglob("package_of_the_tests-*.dist-info")), kind
