"""Tests of the notation page: valid tables, valid links, and statements on the code."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from iocourse import bounds, costs, run, schedules
from iocourse.exact import attention
from iocourse.gpu import CHIPS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "lessons" / "notation.md"
NOTEBOOKS = [*sorted((ROOT / "lessons").glob("*.ipynb")), *sorted((ROOT / "solutions").glob("*.ipynb"))]
LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)(?:#[^)]*)?\)")


def tables(text):
    """Return the tables as lists of rows, each a list of cells."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        yield [[cell.strip() for cell in line.strip()[1:-1].split("|")] for line in block.splitlines()]


def test_every_table_has_a_header_and_rows_of_one_width():
    found = list(tables(PAGE.read_text(encoding="utf-8")))
    assert len(found) >= 6
    for header, rule, *rows in found:
        assert all(header) and set("".join(rule)) <= set("-: |")
        assert rows and {len(row) for row in rows} == {len(header)}, header


@pytest.mark.parametrize(
    "path", [PAGE, ROOT / "README.md", *NOTEBOOKS], ids=lambda p: f"{p.parent.name}/{p.name}"
)
def test_every_relative_link_leads_to_a_file(path):
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    missing = [target for target in LINK.findall(text) if not (path.parent / target).exists()]
    assert not missing


def test_the_architectures_are_those_of_the_table_of_chips():
    text = PAGE.read_text(encoding="utf-8").split("## Architectures")[1].split("\n## ")[0]
    rows = next(tables(text))[2:]
    assert [(row[0], row[2]) for row in rows] == [
        (f"sm_{chip.arch}", f"{chip.shared_bytes // 1024} KB") for chip in CHIPS.values()
    ]
    assert all(chip.name.split()[0] in row[1] for chip, row in zip(CHIPS.values(), rows, strict=True))


def test_the_conventions_are_those_of_the_code():
    text = PAGE.read_text(encoding="utf-8")
    N, d = 7, 3
    Q, K, V = np.random.default_rng(0).standard_normal((3, N, d))
    assert "the forward pass that is $W \\ge 4Nd$" in text and bounds.compulsory(N, d) == 4 * N * d
    S = Q @ K.T / np.sqrt(d)
    P = np.exp(S) / np.exp(S).sum(axis=1, keepdims=True)
    assert np.allclose(attention(Q, K, V), P @ V)
    hidden = np.full((N, N), -np.inf)
    assert not attention(Q, K, V, mask=hidden).any()
    plain, kept = (costs.flash2(N, d, Br=2, Bc=2, lse=lse) for lse in (False, True))
    assert kept.total - plain.total == N
    done = run(schedules.flash2, M=plain.peak, Q=Q, K=K, V=V, Br=2, Bc=2)
    assert done.ledger.peak == plain.peak and done.ledger.total == plain.total
