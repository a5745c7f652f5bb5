"""Launches compiled all at once: starting the compiler takes longer than most kernels do."""

import tempfile
from pathlib import Path

from iocourse.gpu import CompilationFailed, Resources
from iocourse.gpu.jobs import job
from iocourse.gpu.resources import reports


def compiled(launches) -> list[Resources]:
    """What each launch (arch, launch) takes of its chip, in order; one process compiles them."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = [
            job(one.kernel, arch, one.arguments, {"enable_fp_fusion": True} | one.constants, Path(folder))
            for arch, one in launches
        ]
        answers = list(reports(jobs))
    for answer in answers:
        assert not isinstance(answer, CompilationFailed), answer
    return answers
