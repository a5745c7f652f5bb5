"""The fingerprint of machine code, on edited copies of the kernels: words do not count, operations do."""

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from compiled_launches import compiled  # noqa: E402

from iocourse import kernels  # noqa: E402
from iocourse.gpu import Resources  # noqa: E402
from iocourse.gpu.compilation import reports  # noqa: E402
from iocourse.gpu.compile_worker import DIGITS  # noqa: E402
from iocourse.kernels.host.resources import launches  # noqa: E402
from tools.bench.resources.compiling import job_of  # noqa: E402

FILES = ("jit_helpers", "forward")
# Names in `average_keys`; the new ones have another alphabetical order.
RENAMED = {"m_new": "highest", "old": "a_factor", "k_tile": "z_tile", "averaged": "mean_rows", "acc": "sums"}
WORDS = {
    "nothing": lambda text: text,
    "a comment and empty lines": lambda text: text.replace("    BN: tl", "\n\n    # A comment.\n    BN: tl"),
    "a docstring": lambda text: re.sub('"""Continue [^"]*"""', '"""Other words."""', text),
    "names": lambda text: re.sub(r"\b(" + "|".join(RENAMED) + r")\b", lambda at: RENAMED[at[0]], text),
}
OPERATIONS = {
    "an operation": ("tl.maximum(m, tl.max", "tl.minimum(m, tl.max"),
    "a constant": ("(l == 0.0, 1.0, l)[:, None]", "(l == 0.0, 2.0, l)[:, None]"),
    "the order of two factors": (
        "tl.dot(q_tile, tl.trans(k_tile), input_precision=TILE.PRECISION)",
        "tl.trans(tl.dot(k_tile, tl.trans(q_tile), input_precision=TILE.PRECISION))",
    ),
}


@pytest.fixture(scope="module")
def prints(tmp_path_factory):
    """Edit -> fingerprint of the forward kernel on sm_80, each compiled from a copy of its two files."""
    folder = tmp_path_factory.mktemp("copies")
    launch = launches(80, 64, torch.float16, forward=(64, 32, 4, 1))["forward"]
    edits = WORDS | {name: lambda text, pair=pair: text.replace(*pair) for name, pair in OPERATIONS.items()}
    jobs = []
    for at, (name, edit) in enumerate(edits.items()):
        package = folder / f"copy_{at}"
        package.mkdir()
        texts = {file: Path(kernels.__file__).with_name(f"{file}.py").read_text("utf-8") for file in FILES}
        assert (edit(texts["forward"]) == texts["forward"]) == (name == "nothing")
        for file, text in texts.items():
            (package / f"{file}.py").write_text(edit(text) if file == "forward" else text, "utf-8")
        (package / "__init__.py").touch()
        jobs.append(job_of(80, launch) | {"module": f"copy_{at}.forward"})
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        found = dict(zip(edits, reports(jobs), strict=True))
    assert not [f"{name}: {one}" for name, one in found.items() if not isinstance(one, Resources)]
    found["the file itself"] = compiled([(80, launch)])[0]
    return {name: one.machine_code for name, one in found.items()}


@pytest.mark.parametrize("edit", [*WORDS, "the file itself"])
def test_words_and_places_do_not_count(prints, edit):
    assert prints[edit] == prints["nothing"] and len(prints[edit]) == DIGITS


@pytest.mark.parametrize("edit", OPERATIONS)
def test_operations_count(prints, edit):
    assert prints[edit] != prints["nothing"]
