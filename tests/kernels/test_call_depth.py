"""Call depth of `attention` in the library before its kernel runs: eight files, each once, and look-ups."""

import sys
from pathlib import Path
from types import FrameType

import pytest
import skip_without_interpreter  # noqa: F401
import torch

import iocourse
from iocourse.kernels import attention

HOUSE = Path(iocourse.__file__).parent
KERNELS = "kernels/"  # the @jit files stand here, and the host's in kernels/host/
MOST_FILES = 8
# Choices are looked up in several places. A look-up calls no other file, so the walk leaves it out.
LOOK_UPS = ("kernels/host/choices.py", "gpu/choices.py")
STAND_INS = (
    "doctor/fast_interpreter.py",
    "doctor/bfloat16_repair.py",
    "machine/run.py",
)  # for parts of Triton's interpreter


def file_of(frame: FrameType) -> str | None:
    """Return a frame's file of the library, or None for other code (the guard, finders)."""
    path = Path(frame.f_code.co_filename)
    ours = path.is_relative_to(HOUSE) and not path.is_relative_to(HOUSE / "course")
    ours = ours and frame.f_code.co_name != "find_spec"
    return path.relative_to(HOUSE).as_posix() if ours else None


def caller_of(frame: FrameType) -> str | None:
    """The file of the nearest caller that is the library's own: PyTorch and Triton may stand between."""
    above = frame.f_back
    while above is not None and file_of(above) is None:
        above = above.f_back
    return None if above is None else file_of(above)


def calls_of(work) -> list[tuple[str | None, str, str]]:
    """The functions of iocourse that `work` enters, in order: the caller's file, their own, their name.

    Without those that stand in for the interpreter's own: no GPU ever calls them.
    """
    calls = []

    def entered(frame, event, _):
        file = file_of(frame) if event == "call" else None
        if file is not None and file not in STAND_INS:
            calls.append((caller_of(frame), file, frame.f_code.co_name))

    sys.setprofile(entered)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def walked(calls) -> tuple[list[str], list[str]]:
    """The files in the order of the first visit, and the returns.

    A call from within a file to another function of the same file moves nowhere. Any other call goes to a
    file: to the one where the walk stands already, to a new one, or back to one that it had left, and that
    is a return. The @jit files are one place: the kernel is read with the pieces it is made of.
    """
    files: list[str] = []
    returns, here = [], ""
    for caller, file, name in (call for call in calls if call[1] not in LOOK_UPS):
        place = KERNELS if is_jit(file) else file
        if caller is not None and (KERNELS if is_jit(caller) else caller) == place:
            if file not in files:
                files.append(file)
            here = place
            continue
        if place != here and place in [KERNELS if is_jit(one) else one for one in files]:
            returns.append(f"{file}: {name}, from {caller}")
        if file not in files:
            files.append(file)
        here = place
    return files, returns


def is_jit(file: str) -> bool:
    return file.startswith(KERNELS) and "/" not in file.removeprefix(KERNELS)


@pytest.mark.parametrize("options", [{}, {"causal": True}, {"window": (9, 3)}], ids=str)
def test_a_call_of_attention_crosses_eight_files_and_never_turns_back(options):
    q, k, v = (torch.randn(1, 2, 40, 24) for _ in range(3))
    calls = calls_of(lambda: attention(q, k, v, **options))
    files, returns = walked(calls)
    print(" → ".join(files))
    assert files[0] == "kernels/host/api.py" and files[-2:] == [
        "kernels/forward.py",
        "kernels/jit_helpers.py",
    ]
    assert len(files) <= MOST_FILES, files
    assert returns == []
    assert any(file in LOOK_UPS for _, file, _ in calls)
    assert [call for call in calls if call[0] in LOOK_UPS and call[1] not in LOOK_UPS] == []


def test_the_walk_sees_a_return():
    there, elsewhere = "kernels/host/api.py", "kernels/host/ranges.py"
    once = [(None, there, "a"), (there, elsewhere, "b"), (there, there, "c"), (there, elsewhere, "d")]
    assert walked(once) == ([there, elsewhere], [f"{elsewhere}: d, from {there}"])
    up = [(None, there, "a"), (there, elsewhere, "b"), (elsewhere, there, "c")]
    assert walked(up)[1] == [f"{there}: c, from {elsewhere}"]
    on = [(None, there, "a"), (there, elsewhere, "b"), (there, elsewhere, "c"), (there, there, "d")]
    assert walked(on)[1] == []
