"""What launches take of their chips: read where a record is of their very code, else compiled all at once."""

from functools import cache
from importlib import metadata

from iocourse.data.records import load_record
from iocourse.gpu import CompilationFailed, Resources
from iocourse.gpu.compilation import reports
from tools.bench.resources.code_fingerprint import fingerprint
from tools.bench.resources.compiling import job_of


def as_reported(launches) -> list[Resources]:
    """What each launch (arch, launch) takes, in order: recorded of this code by this Triton, or compiled."""
    launches = list(launches)
    known = [recorded_codes().get(fingerprint(one.kernel, job_of(arch, one))) for arch, one in launches]
    answers = iter(compiled([launch for launch, row in zip(launches, known, strict=True) if row is None]))
    return [Resources.of(row) if row else next(answers) for row in known]


def compiled(launches) -> list[Resources]:
    """The same, compiled here and now, by one process: starting takes it longer than most kernels do."""
    answers = list(reports([job_of(arch, one) for arch, one in launches])) if launches else []
    for answer in answers:
        assert not isinstance(answer, CompilationFailed), answer
    return answers


@cache
def recorded_codes():
    """Fingerprint -> row, of the records that were made with the Triton which is installed."""
    records = [record for name in ("resources", "hot-loops") if (record := load_record(name))]
    return {
        row["code"]: row
        for record in records
        if record["versions"]["triton"] == metadata.version("triton")
        for part in ("shipped", "forward_by_tile")
        for row in record[part]
        if "error" not in row
    }
