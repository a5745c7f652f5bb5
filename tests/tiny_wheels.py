"""Wheels in place of the package index, because tests do not use the network: most have no code."""

import re
import zipfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.utils import canonicalize_name

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"


def pins(path: Path) -> dict[str, str]:
    """name -> version of a constraints file; every line must be a public, exact version."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line and line[0] != "#"]
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9a-z.]*", line), f"not a public exact pin: {line}"
    return {canonicalize_name(line.split("==")[0]): line.split("==")[1] for line in lines}


def write_index(folder: Path, names: Iterable[str], *, complete: Iterable[str] = ()) -> None:
    """Write a wheel of each of these packages, which are installed here, with the version of constraints.txt.

    Each has its requirements; those in `complete` also have their code.
    """
    folder.mkdir(exist_ok=True)
    versions = pins(CONSTRAINTS)
    for name in names:
        package = metadata.distribution(name)
        requires = package.requires or []
        if name not in complete:
            write_wheel(folder, name, versions[name], *requires)
            continue
        code = [one for one in package.files or () if one.suffix != ".pyc" and one.parts[0] != ".."]
        files = {one.as_posix(): one.read_binary() for one in code if ".dist-info" not in one.parts[0]}
        commands = package.read_text("entry_points.txt") or ""
        write_wheel(folder, name, versions[name], *requires, commands=commands, files=files)


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    *requires: str,
    commands: str = "",
    files: dict[str, bytes] | None = None,
) -> None:
    """Write a wheel with these requirements, entry points and files."""
    stem, files = f"{name.replace('-', '_')}-{version}", files or {}
    told = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {one}" for one in requires)]
    info = {
        "METADATA": "\n".join(["Metadata-Version: 2.1", *told]),
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "entry_points.txt": commands,
    }
    files |= {f"{stem}.dist-info/{file}": text.encode() for file, text in info.items()}
    record = f"{stem}.dist-info/RECORD"
    files[record] = "".join(f"{file},,\n" for file in [*files, record]).encode()
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for file, data in files.items():
            wheel.writestr(file, data)
