"""Layout of the package: few files, short signatures, and one function per name."""

import ast
from collections import Counter
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "iocourse" / "kernels"
HOST = KERNELS / "host"


def functions(folder: Path) -> list[ast.FunctionDef]:
    """The functions at the top of each file of a folder, but for fakes and the like that are called `_`."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.py"))]
    found = [node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef)]
    return [node for node in found if node.name != "_"]


def is_jit(node: ast.FunctionDef) -> bool:
    return any("triton.jit" in ast.unparse(one) for one in node.decorator_list)


@pytest.mark.parametrize("folder", [KERNELS, HOST], ids=lambda folder: folder.name)
def test_a_listing_is_a_table_of_contents(folder):
    assert 5 < len(list(folder.glob("*.py"))) <= 12


def test_no_two_functions_of_one_name():
    kernels, host = functions(KERNELS), functions(HOST)
    assert len(kernels) > 55 and all(is_jit(node) for node in kernels)
    assert len(host) > 80 and not any(is_jit(node) for node in host)
    public = [node.name for node in kernels + host if not node.name.startswith("_")]
    assert [name for name, times in Counter(public).items() if times > 1] == []


def test_a_kernel_has_fewer_than_twenty_parameters():
    many = {node.name: len(node.args.args) for node in functions(KERNELS) if node.name.endswith("_kernel")}
    assert len(many) == 15 and {name: n for name, n in many.items() if n >= 20} == {}
