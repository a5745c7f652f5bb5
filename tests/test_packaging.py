"""Tests of packaging: required packages, modules loaded at import, and the commands of the set-up files."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from printed_examples import examples
from tiny_wheels import pins, write_index, write_wheel

import iocourse
from iocourse.cli import build_parser
from iocourse.data.records import load_record, record_source
from tools.build import generated_sections
from tools.build.project import read_project

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = {
    path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "guide").glob("*.md"))
}


def python(code: str) -> str:
    """Run a new Python process and return its output."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    return done.stdout


def requirements(*extras: str) -> list[Requirement]:
    """The requirements with these extras, and with the extras that they name."""
    found, wanted, lines = [], list(extras), list(PROJECT["dependencies"])
    while lines or wanted:
        lines = lines or list(EXTRAS[wanted.pop()])
        one = Requirement(lines.pop(0))
        if one.name == "iocourse":
            wanted += one.extras
        else:
            found.append(one)
    return found


# ---- importing -------------------------------------------------------------------------------------------


def test_import_loads_neither_torch_nor_triton():
    code = """
import sys, time
start = time.perf_counter()
import iocourse
print(f"import iocourse: {time.perf_counter() - start:.3f} s (goal: below 0.3 s)")
print(sorted({"torch", "triton"} & set(sys.modules)))
"""
    timing, loaded = python(code).splitlines()
    print(timing)
    assert loaded == "[]"


def test_every_numpy_room_imports_where_torch_and_triton_cannot():
    code = """
import importlib, pkgutil, sys
for name in ("torch", "triton", "numba", "llvmlite"):
    sys.modules[name] = None
import iocourse
kernels = {"selftest_kernel", "kernels", "gpu", "traffic", "profile", "__main__"}
with_torch = {"iocourse.lowrank." + name for name in ("transformer", "character_model")}
with_torch |= {"iocourse.lowrank." + name for name in ("torch_backend", "torch_passes")}
with_torch |= {"iocourse.doctor." + name for name in ("bfloat16_repair", "fast_interpreter")}
with_torch |= {"iocourse.distributed.engines." + name for name in ("torch_backend", "multiprocess")}
compiled = ("products", "tiles", "dense", "causal", "checks")
with_numba = {"iocourse.lowrank.numba_backend." + name for name in compiled}
for module in pkgutil.walk_packages(iocourse.__path__, "iocourse."):
    if not kernels & set(module.name.split(".")) and module.name not in with_torch | with_numba:
        importlib.import_module(module.name)
        print(module.name)
"""
    assert "iocourse.doctor" in python(code).split()


def test_one_version():
    assert PROJECT["version"] == iocourse.__version__


# ---- requirements and constraints ------------------------------------------------------------------------


def test_extras_have_exactly_these_names():
    assert set(EXTRAS) == {"course", "torch", "triton", "lab", "test", "fast"}


def test_the_library_needs_numpy_alone():
    assert [one.name for one in requirements()] == ["numpy"]


def test_python_has_a_floor_and_no_ceiling():
    assert PROJECT["requires-python"] == ">=3.11"


def test_triton_is_asked_for_on_linux_only():
    (triton,) = [r for r in requirements("triton") if r.name == "triton"]
    assert triton.marker is not None
    assert triton.marker.evaluate({"sys_platform": "linux"})
    assert not triton.marker.evaluate({"sys_platform": "darwin"})
    assert not triton.marker.evaluate({"sys_platform": "win32"})


def test_constraints_pin_every_requirement_within_its_range():
    pinned = pins(ROOT / "constraints.txt")
    for requirement in requirements(*EXTRAS):
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{requirement} excludes {version}"
    assert (pinned["torch"], pinned["triton"]) == ("2.13.0", "3.7.1")  # torch 2.13.0 was built for 3.7.1


@pytest.mark.parametrize(
    "versions",
    [
        {"torch": "2.11.0", "triton": "3.6.0", "numpy": "2.5.0"},
        pins(ROOT / "tests" / "colab-constraints.txt"),
    ],
    ids=["Python 3.12 with NumPy 2.5", "Colab"],
)
def test_ranges_are_wide_enough_for(versions: dict[str, str]):
    for requirement in requirements("torch", "triton"):
        if requirement.name in versions:
            assert requirement.specifier.contains(versions[requirement.name]), requirement


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree, built from a copy so that the checkout does not change."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "LICENSE-text"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "lessons", source / "lessons")
    shutil.copytree(ROOT / "iocourse", source / "iocourse", ignore=shutil.ignore_patterns("__pycache__"))
    build = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", build, str(out)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_carries_everything_in_the_package(wheel: Path):
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    files = [
        path
        for path in (ROOT / "iocourse").rglob("*")
        if path.is_file()
        and not any(part.startswith((".", "__pycache__")) for part in path.relative_to(ROOT).parts)
    ]
    assert {path.relative_to(ROOT).as_posix() for path in files} <= packed
    assert {
        f"iocourse-{iocourse.__version__}.dist-info/licenses/{name}" for name in ("LICENSE", "LICENSE-text")
    } <= packed


@pytest.fixture(scope="module")
def colab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty environment with the names and versions of Colab's packages, but not their code."""
    home = tmp_path_factory.mktemp("colab")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    script = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    ask = [str(script), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())
    for name, version in pins(ROOT / "tests" / "colab-constraints.txt").items():
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "INSTALLER").write_text("pip\n")
    return script


@pytest.mark.parametrize("extras", ["", "[course]", "[course,torch,triton]"])
def test_on_colab_pip_installs_iocourse_and_nothing_else(colab: Path, wheel: Path, extras: str):
    command = [sys.executable, "-m", "pip", "--python", str(colab), "install", "--dry-run", "--no-index"]
    command += [
        "-c",
        str(ROOT / "tests" / "colab-constraints.txt"),
        "--quiet",
        "--report",
        "-",
        f"{wheel}{extras}",
    ]
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=bare)
    assert done.returncode == 0, done.stderr
    assert [item["metadata"]["name"] for item in json.loads(done.stdout)["install"]] == ["iocourse"]


# ---- README's commands, CI, Binder -----------------------------------------------------------------------


def commands() -> dict[str, str]:
    """Marker -> the one-line code block that follows it in README.md or on the page of installing."""
    block = r"^<!-- command: ([\w-]+) -->\n```\w*\n(.*)\n```$"
    return dict(re.findall(block, README + GUIDE["install.md"], flags=re.MULTILINE))


def test_readme_has_exactly_the_marked_commands_each_one_line():
    assert set(commands()) == {"course", "course-uv", "course-windows", "test", "test-uv"}
    assert (README.count("<!-- command:"), GUIDE["install.md"].count("<!-- command:")) == (4, 1)
    assert commands()["course"] in GUIDE["install.md"]


@pytest.mark.parametrize("name", ["course", "test"])
def test_the_line_for_uv_differs_from_pips_in_nothing_but_the_two_tools(name: str):
    pip, uv = commands()[name], commands()[f"{name}-uv"]
    assert uv.replace("uv venv -q", "python3 -m venv").replace("uv pip", ".venv/bin/pip") == (
        pip if "--clear" in pip else pip.replace("venv .venv", "venv .venv")
    )


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """Every package of constraints.txt that is installed here, and a newer JupyterLab, which they exclude."""
    folder = tmp_path / "index"
    names = {canonicalize_name(one.name) for one in metadata.distributions()}
    # `iocourse --version` and an editable install execute two of them
    versions = pins(ROOT / "constraints.txt")
    later = {"torch", "triton", "numba"}  # they may be missing here; torch's requirements depend on its build
    write_index(folder, (names & versions.keys()) - later, complete={"numpy", "setuptools"})
    for name in later:
        write_wheel(folder, name, versions[name])
    write_wheel(folder, "jupyterlab", "999.0")
    return folder


@pytest.mark.skipif(shutil.which("bash") is None or os.name == "nt", reason="needs a POSIX bash")
@pytest.mark.parametrize("tool", ["pip", "uv"])
def test_each_of_readmes_lines_installs_the_course_and_what_is_printed_next_works(
    tmp_path: Path, index: Path, tool: str
):
    """All of the line runs in a copy of the checkout, with `iocourse doctor` in place of the server.

    Then each line that the doctor prints is run, and README's line for nbval.
    """
    # uv creates an environment from the first Python on PATH that is not itself in an environment.
    python = Path(sys._base_executable).parent
    path = os.pathsep.join([str(Path(sys.executable).parent), str(python), os.environ["PATH"]])
    if tool == "uv" and shutil.which("uv", path=path) is None:
        pytest.skip("uv is not installed: the extra `test` brings it")
    course, settings = tmp_path / "course", tmp_path / "uv.toml"
    course.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE", "LICENSE-text", "constraints.txt"):
        shutil.copy(ROOT / name, course)
    for name in ("iocourse", "lessons"):
        shutil.copytree(ROOT / name, course / name, ignore=shutil.ignore_patterns("__pycache__"))
    settings.write_text(f"no-index = true\nfind-links = ['{index}']\n", encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "PIP_"))}
    env = kept | {"PATH": path, "UV_OFFLINE": "1", "UV_PYTHON_DOWNLOADS": "never"}
    env |= {"UV_CONFIG_FILE": str(settings), "UV_CACHE_DIR": str(tmp_path / "cache")}
    env |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PIP_CONFIG_FILE": os.devnull}
    for name in ("VIRTUAL_ENV", "PYTHONPATH"):
        env.pop(name, None)

    def run(line: str) -> str:
        done = subprocess.run(["bash", "-c", line], cwd=course, env=env, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        return done.stdout

    def installed() -> set[str]:
        return {one.stem for one in (course / ".venv").rglob("*.dist-info")}

    line = commands()["course" if tool == "pip" else "course-uv"]
    report = run(line.replace("iocourse lab", "iocourse doctor"))
    assert f"iocourse     {iocourse.__version__}" in report
    assert len(installed()) > 80
    assert f"jupyterlab-{pins(ROOT / 'constraints.txt')['jupyterlab']}" in installed()
    (editable,) = (course / ".venv").rglob("__editable__*.pth")
    assert editable.read_text(encoding="utf-8").strip() == str(course)
    lines = [advice.split(": ", 1)[1] for advice in report.splitlines() if " install " in advice]
    assert len(lines) == 5  # the packages here have no code: for the doctor all are missing
    for line in lines:
        run(line)
    assert {"numba", "torch", "triton"} <= {name.partition("-")[0] for name in installed()}
    by_pip, by_uv = re.search(
        r"\(`(pip install nbval)`, after uv's line `(uv pip install nbval)`\)", README
    ).groups()
    run(f"source .venv/bin/activate && {by_pip if tool == 'pip' else by_uv}")
    assert "nbval" in {name.partition("-")[0] for name in installed()}


def test_the_course_needs_only_the_light_extra():
    assert re.findall(r"'\.\[([\w,]+)\]'", commands()["course"]) == ["lab"]
    assert commands()["course"].endswith("iocourse lab")
    assert '".[lab]"' in commands()["course-windows"]


def test_the_test_command_brings_all_it_needs_and_runs_everything():
    command = commands()["test"]
    assert re.findall(r"'\.\[([\w,]+)\]'", command) == ["lab,torch,triton,fast,test"]
    assert "-c constraints.txt" in command
    assert command.endswith("/pytest")  # no file named: everything under testpaths


@pytest.mark.skipif(shutil.which("bash") is None or os.name == "nt", reason="needs a POSIX bash")
def test_ci_runs_readmes_test_command():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    done = subprocess.run(["bash", ".ci/run", "--print"], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == commands()["test"], done.stderr


def test_ci_has_no_install_step_besides_the_browser_and_the_walls():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    lines = [line for line in script.splitlines() if not line.lstrip().startswith("#")]
    assert not [line for line in lines if re.search(r"\b(pip|uv|conda|venv .)\b", line.replace(".venv", ""))]
    assert [line.split()[-1] for line in lines if "install" in line] == ['"${missing[@]}"']
    assert re.findall(r"missing\+=\((\w+)\)", "\n".join(lines)) == ["chromium", "bubblewrap"]


@pytest.mark.skipif(shutil.which("bash") is None or os.name == "nt", reason="needs a POSIX bash")
@pytest.mark.parametrize("there", [(), ("chromium",), ("bwrap",), ("chromium", "bwrap")])
def test_ci_installs_what_is_missing_of_the_browser_and_the_walls(there, tmp_path):
    installs = tmp_path / "installed"
    programs = {"apt-get": f'echo "$@" >> {installs}', "id": "echo 0", **dict.fromkeys(there, "")}
    for name, does in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    for name in ("bash", "sh", "awk", "dirname"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = subprocess.run(["bash", ".ci/run", "--print"], cwd=ROOT, env={"PATH": str(tmp_path)}, check=True)
    assert done.returncode == 0
    asked = installs.read_text().split() if installs.exists() else []
    wanted = {"chromium": "chromium", "bwrap": "bubblewrap"}
    assert [one for one in asked if one in wanted.values()] == [wanted[n] for n in wanted if n not in there]


def test_the_workflow_runs_ci_on_linux_and_the_numpy_tests_elsewhere():
    path = ROOT / ".github" / "workflows" / "tests.yml"
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    everything, numpy = jobs["everything"], jobs["numpy"]
    assert everything["env"]["PIP_EXTRA_INDEX_URL"].endswith("/whl/cpu")
    assert ".ci/run" in [step.get("run") for step in everything["steps"]]
    assert numpy["strategy"]["matrix"]["os"] == ["macos-latest", "windows-latest"]
    for job in (everything, numpy):
        assert job["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    assert not [step for step in numpy["steps"] if re.search(r"torch|triton", str(step.get("run")))]


def test_binder_is_accepted_by_repo2docker():
    pytest.importorskip("repo2docker", reason="jupyter-repo2docker is not installed")
    if os.name == "nt":
        pytest.skip("repo2docker does not run on Windows")
    command = [
        sys.executable,
        "-m",
        "repo2docker",
        "--no-build",
        "--debug",
        "--user-id",
        "1000",
        "--user-name",
        "reader",
    ]
    done = subprocess.run([*command, "."], cwd=ROOT, capture_output=True, text=True, timeout=280)
    dockerfile = done.stdout + done.stderr
    assert done.returncode == 0, dockerfile
    assert "python=3.12" in dockerfile
    copied = dockerfile.index("COPY --chown=1000:1000 src/ ${REPO_DIR}/")
    installed = dockerfile.index('pip install --no-cache-dir -r "binder/requirements.txt"')
    assert copied < installed < dockerfile.index("RUN ./binder/postBuild")


def test_binder_has_triton_with_the_cpu_build_of_torch_and_keeps_the_pins():
    lines = (ROOT / "binder" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "--extra-index-url https://download.pytorch.org/whl/cpu",
        "-c ../constraints.txt",
        ".[course,triton,fast]",
        "nbgitpuller",
    ]


def test_whatever_installs_for_notebooks_asks_for_the_extra():
    """The workflow colab.yml only writes notebooks, for which NumPy is enough."""
    (hub,) = re.findall(
        r"iocourse\[([\w,]+)\] @ git", (ROOT / "docs" / "teaching.md").read_text(encoding="utf-8")
    )
    assert "course" in hub.split(",")
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for extras in re.findall(r"pip install .*-e \S?\.(\S*)", path.read_text(encoding="utf-8")):
            assert "lab" in re.findall(r"\w+", extras) or path.name == "colab.yml", path.name


# ---- README and the guide --------------------------------------------------------------------------------


def alone(text: str) -> str:
    """A page without the text of its picture."""
    return re.sub(r"!\[[^\]]*\]", "![]", text)


def test_readme_is_a_page():
    before, after = (  # without marks and expressions, which readers do not see
        [line for line in part.splitlines() if not re.match(r"\s*<!-- .* -->$", line)]
        for part in README.split("<!-- spine -->\n")
    )
    assert len(before) + len(after) <= 180
    assert max(map(len, alone("\n".join(before + after)).splitlines())) < 480  # a row of a table
    assert len(" ".join(before).split()) <= 700  # words before the lessons


def test_the_example_in_readme_has_eight_lines():
    """`test_printed_examples.py` runs it."""
    (example,) = examples(ROOT / "README.md")
    assert len([line for line in example.code.splitlines() if line]) == 8


def test_every_title_opens_the_students_notebook_and_the_word_solution_the_solved_one():
    for text, up in ((README, ""), (GUIDE["lessons.md"], "../../")):
        links = re.findall(r"\[([^\]]+)\]\(([^)]+\.ipynb)\)", text)
        titles = [path for said, path in links if said != "solution"]
        solved = [path for said, path in links if said == "solution"]
        names = sorted(path.name for path in (ROOT / "lessons").glob("*.ipynb"))
        assert sorted(titles) == [f"{up}lessons/{name}" for name in names]
        assert sorted(solved) == [f"{up}solutions/{name}" for name in names]


def test_what_an_instructor_types_is_shown_and_names_what_there_is():
    (lax,) = re.findall(r"`pytest --nbval-lax ([^`]+)`", README)
    assert (ROOT / lax).is_file()
    (graded,) = re.findall(r"`(iocourse grade [^`]+)`", README)
    told = build_parser("grade").parse_args(graded.split()[1:])
    assert told.csv == Path("points.csv")


@pytest.mark.parametrize("name", ["README.md", *GUIDE])
def test_links_to_files_lead_somewhere(name: str):
    folder, text = (ROOT, README) if name == "README.md" else (ROOT / "docs" / "guide", GUIDE[name])
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)  # kernel[grid](X) is code
    targets = [t.split("#")[0] for t in re.findall(r"\]\(([^)]+)\)", text) if "://" not in t]
    assert [target for target in targets if target and not (folder / target).exists()] == []


def test_every_page_of_the_guide_is_reached_from_readme():
    assert [name for name in GUIDE if f"(docs/guide/{name})" not in README] == []


NOTEBOOKS = sorted([*(ROOT / "lessons").glob("*.ipynb"), *(ROOT / "solutions").glob("*.ipynb")])
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "lessons" / "notation.md"]


def test_colab_and_binder_links_name_the_published_place_and_this_version_or_there_are_none():
    """A link to an unregistered address would lead to the content of whoever registers it first."""
    project = read_project(ROOT)
    texts = {path: path.read_text(encoding="utf-8") for path in (*PAGES, *NOTEBOOKS)}
    assert len(texts) > 75
    host = r"https://(?:github\.com|colab\.research\.google\.com/github|mybinder\.org/v2/gh)/"
    found = {
        path.relative_to(ROOT).as_posix(): links
        for path, text in texts.items()
        if (links := re.findall(rf"{host}{re.escape(project.slug)}\b[^)\s\"\\]*", text))
    }
    if not project.claimed:
        assert found == {}
        return
    assert set(found) >= {"README.md", "docs/guide/install.md", *(f"lessons/{p.name}" for p in NOTEBOOKS)}
    assert all(f"/v{iocourse.__version__}" in link for links in found.values() for link in links)


def test_the_page_on_publishing_says_that_name_and_address_are_to_be_claimed_while_they_are_not():
    text = " ".join(GUIDE["publishing.md"].split())
    told = (
        "The address in `pyproject.toml` and the name `iocourse` on the package index have not been claimed"
        in text
    )
    assert told != read_project(ROOT).claimed


def test_the_row_of_the_gpu_names_the_device_the_versions_and_the_day_of_the_record():
    record = load_record("attention")
    (row,) = [line for line in README.splitlines() if line.startswith("| GPU |")]
    assert record is not None
    for said in (
        record["device"]["name"],
        record["date"],
        *(f"{n} {record['versions'][n]}" for n in ("torch", "triton")),
    ):
        assert said in row
    results = README.split("<!-- results -->")[1].split("<!-- /results -->")[0]
    assert results.count(record_source(record)) == 1
    assert results.count("| the same run |") == len(generated_sections.TIMED) - 1


def test_the_support_matrix_names_the_versions_that_are_pinned_and_the_legs_of_the_workflow():
    matrix = README.split("## What it runs on")[1].split("\n## ")[0]
    pinned = pins(ROOT / "constraints.txt")
    for name, label in (("numpy", "NumPy"), ("torch", "torch"), ("triton", "triton")):
        assert f"{label} {pinned[name]}" in matrix
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))["jobs"]
    for job in jobs.values():
        assert all(version in matrix for version in job["strategy"]["matrix"]["python"])
    recorded = json.loads(
        (ROOT / "iocourse" / "data" / "bench" / "resources.json").read_text(encoding="utf-8")
    )
    compiled = {str(row["arch"]) for row in recorded["shipped"]}
    assert set(re.findall(r"sm_(\d+)", matrix)) == compiled


# ---- files next to the course ----------------------------------------------------------------------------


def test_changelog_and_citation_have_this_version_and_the_same_day():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[?([\d.]+)\]? - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert newest is not None
    assert newest.groups() == (citation["version"], citation["date-released"])
    assert citation["version"] == iocourse.__version__ and citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(citation)


def test_what_runs_before_a_commit_is_local_and_runs():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (repo,) = config["repos"]
    assert repo["repo"] == "local" and {hook["language"] for hook in repo["hooks"]} == {"system"}
    entries = {hook["id"]: hook["entry"].split() for hook in repo["hooks"]}
    assert entries["release"] == ["python", "-m", "tools.build", "--check"]
    bad = "import os,sys\n"  # both of Ruff's complain
    for name in ("ruff-check", "ruff-format"):
        command = [sys.executable, *entries[name][1:], "--stdin-filename", "iocourse/x.py", "-"]
        done = subprocess.run(command, input=bad, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 1, done.stderr


FORMS = [ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml" for name in ("lesson", "check", "question")]


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_what_it_needs(path: Path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(form)
    ids = [field["id"] for field in form["body"]]
    assert len(ids) == len(set(ids))
    for field in form["body"]:
        assert field["type"] in {"input", "textarea", "dropdown"}
        assert field["attributes"]["label"]
        assert (field["type"] == "dropdown") == ("options" in field["attributes"])
    assert any(field.get("validations", {}).get("required") for field in form["body"])
