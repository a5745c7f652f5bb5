"""Resources of compiled launches: read from a record of the same code, otherwise compiled in one process."""

from functools import cache
from importlib import metadata

from iocourse.data.records import load_record
from iocourse.gpu import CompilationFailed, Resources
from iocourse.gpu.compilation import reports
from tools.bench.resources.code_fingerprint import fingerprint
from tools.bench.resources.compiling import job_of


def as_reported(launches) -> list[Resources]:
    """Return the resources of each launch (arch, launch), in order: recorded for this code, or compiled."""
    launches = list(launches)
    known = [recorded_codes().get(fingerprint(one.kernel, job_of(arch, one))) for arch, one in launches]
    answers = iter(compiled([launch for launch, row in zip(launches, known, strict=True) if row is None]))
    return [Resources.of(row) if row else next(answers) for row in known]


def compiled(launches) -> list[Resources]:
    """Compile all launches in one process and return their resources; a start takes longer than a kernel."""
    answers = list(reports([job_of(arch, one) for arch, one in launches])) if launches else []
    for answer in answers:
        assert not isinstance(answer, CompilationFailed), answer
    return answers


@cache
def recorded_codes():
    """Return fingerprint -> row of the records made with the installed version of Triton."""
    records = [record for name in ("resources", "hot-loops") if (record := load_record(name))]
    return {
        row["code"]: row
        for record in records
        if record["versions"]["triton"] == metadata.version("triton")
        for part in ("shipped", "variants", "forward_by_tile")
        for row in record[part]
        if "error" not in row
    }
