"""Exact parsing of ncu's table, and error messages for failures of ncu."""

import json
import os

import pytest
from fake_ncu import HEAD, fake, table

from iocourse import doctor
from tools.bench import ncu

READ, WRITE, RED, ATOM = (ncu.L2.format(kind) for kind in ("read", "write", "red", "atom"))
FROM, TO = (ncu.DRAM.format(kind) for kind in ("read", "write"))


def test_sectors_are_32_bytes_and_commas_group_digits():
    (kernel,) = ncu.parse(table(["1,048,576", "2,048", "0", "3", "33,554,432", "65,536"]))
    assert kernel.name == "forward_kernel"
    assert kernel.bytes == {READ: 2**25, WRITE: 2**16, RED: 0, ATOM: 96, FROM: 2**25, TO: 2**16}


def test_units_are_those_of_the_second_row():
    units = ("sector", "Ksector", "Msector", "sector", "Mbyte", "Kbyte")
    (kernel,) = ncu.parse(table(["1", "1.5", "0.25", "0", "33.554432", "0.5"], units=units))
    assert list(kernel.bytes.values()) == [32, 48_000, 8_000_000, 0, 33_554_432, 500]


def test_columns_are_found_by_name_and_others_are_left_alone():
    metrics, values = ("gpu__time_duration.sum", *reversed(ncu.METRICS)), ["9", "6", "5", "4", "3", "2", "1"]
    (kernel,) = ncu.parse(table(values, metrics=metrics, units=("nsecond", *["byte"] * 2, *["sector"] * 4)))
    assert kernel.bytes == {READ: 32, WRITE: 64, RED: 96, ATOM: 128, FROM: 5, TO: 6}


def test_every_kernel_is_a_row_and_totals_add_them():
    kernels = ncu.parse(table([*"123456"], [*"111111"], names=("a_kernel", "b_kernel(int *, int)")))
    assert [one.name for one in kernels] == ["a_kernel", "b_kernel"]
    assert ncu.total(kernels, RED, ATOM) == 32 * (3 + 4 + 1 + 1)


def test_what_a_chip_does_not_count_is_not_zero():
    kernels = ncu.parse(table([*"1234", "n/a", "7"]))
    assert kernels[0].bytes[FROM] is None
    assert ncu.total(kernels, FROM, TO) is None and ncu.total(kernels, TO) == 7


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "printed no table"),
        ("==WARNING== No kernels were profiled.\n", "No kernels were profiled"),
        (table(metrics=ncu.METRICS[1:], names=()), f"ncu's table is missing {READ}"),
        (HEAD + "".join(f',"{m}"' for m in ncu.METRICS), "row of units"),
        (table([*"12345x"]), "must be a number, got 'x'"),
        (table([*"123456"], units=("furlong",) * 6), "must be in one of byte, sector, Kbyte"),
    ],
)
def test_a_table_that_cannot_be_read_is_refused(text, part):
    with pytest.raises(ncu.CannotMeasure, match=r"ncu|lts|dram") as error:
        ncu.parse(text)
    assert part in str(error.value)


# --- a program named ncu ------------------------------------------------------------------------------------


def run(program, *names: str):
    return ncu.measure(str(program), names, ["python", "x.py"], os.environ)


def test_ncu_is_asked_for_one_launch_with_cold_caches(tmp_path):
    program = fake(tmp_path, table([*"123456"], [*"123456"], names=("a_kernel", "b_kernel")))
    assert [one.name for one in run(program, "a_kernel", "b_kernel")] == ["a_kernel", "b_kernel"]
    arguments = json.loads((tmp_path / "asked.json").read_text())["arguments"]
    options = dict(zip(arguments[1:-2:2], arguments[2:-2:2], strict=True))
    assert arguments[0] == "--csv" and arguments[-2:] == ["python", "x.py"]
    assert options["--page"] == "raw" and options["--print-units"] == "base"
    assert options["--cache-control"] == "all" and options["--profile-from-start"] == "off"
    assert options["--clock-control"] == "none"  # ncu's own default would lock the GPU's clocks
    assert options["--kernel-name"] == "regex:a_kernel|b_kernel"
    assert options["--metrics"].split(",") == list(ncu.METRICS)


def test_more_counters_are_asked_for_where_the_chip_has_them(tmp_path):
    """As on a chip with two of them, one in sectors; the names stand first in a line, without `.sum`."""
    sm, lrc = ncu.MORE[0], "lrc__lts2lrc_sectors_op_read.sum"
    listed = f"Device H200\nMetric Name   Unit  Description\n{sm.removesuffix('.sum')}  byte  # of bytes\n"
    listed += "lrc__lts2lrc_sectors_op_read  sector  # of sectors\nlts__t_sectors  sector\n"
    columns = {"metrics": (*ncu.METRICS, sm, lrc), "units": (*["sector"] * 4, *["byte"] * 3, "sector")}
    program = fake(tmp_path, table([*"12345678"], names=("a_kernel",), **columns), metrics=listed)
    (kernel,) = run(program, "a_kernel")
    assert (kernel.bytes[sm], kernel.bytes[lrc]) == (7, 8 * 32) and len(kernel.bytes) == 6 + 2
    arguments = json.loads((tmp_path / "asked.json").read_text())["arguments"]
    assert arguments[arguments.index("--metrics") + 1].split(",") == [*ncu.METRICS, sm, lrc]
    fake(tmp_path, table([*"123456"], names=("a_kernel",)), metrics=listed)
    with pytest.raises(ncu.CannotMeasure, match=f"ncu's table is missing {sm}, {lrc}"):
        run(program, "a_kernel")


def test_other_kernels_than_expected_are_refused(tmp_path):
    program = fake(tmp_path, table([*"123456"], names=("a_kernel",)))
    with pytest.raises(
        ncu.CannotMeasure, match="must measure a_kernel, b_kernel, once each, but measured a_kernel"
    ):
        run(program, "a_kernel", "b_kernel")


def test_a_missing_permission_says_what_to_do(tmp_path):
    said = (
        "==PROF== Connected to process 7 (/usr/bin/python3)\n==ERROR== ERR_NVGPUCTRPERM - The user does not "
        "have permission to access NVIDIA GPU Performance Counters on the target device 0.\n"
    )
    with pytest.raises(ncu.CannotMeasure, match="NVreg_RestrictProfilingToAdminUsers=0") as error:
        run(fake(tmp_path, said, code=1), "a_kernel")
    assert "ERR_NVGPUCTRPERM" in str(error.value) and "\n" not in str(error.value)


def test_a_program_that_fails_is_quoted(tmp_path):
    program = fake(tmp_path, "==ERROR== The application returned an error code (1).\n", code=1,
                   printed="Traceback (most recent call last):\nValueError: q is too large\n")  # fmt: skip
    with pytest.raises(ncu.CannotMeasure, match=r"exit code 1 .* code \(1\).; ValueError: q is too large"):
        run(program, "a_kernel")


def test_silence_is_given_up(tmp_path, monkeypatch):
    program = tmp_path / "ncu"
    program.write_text("#!/bin/sh\nexec sleep 30\n")
    program.chmod(0o755)
    monkeypatch.setattr(ncu, "SECONDS", 0.2)
    with pytest.raises(ncu.CannotMeasure, match=r"ncu did not finish within 0\.2 seconds"):
        run(program, "a_kernel")


def test_ncu_is_found_on_the_path_or_where_it_is_installed(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor, "NCU_PLACES", (str(tmp_path / "nsight" / "*" / "ncu"),))
    assert ncu.find() is None
    for year in ("2024.1", "2025.2"):
        (tmp_path / "nsight" / year).mkdir(parents=True)
        (tmp_path / "nsight" / year / "ncu").touch()
    assert ncu.find() == str(tmp_path / "nsight" / "2025.2" / "ncu")
    program = fake(tmp_path, "")
    assert ncu.find() == str(program)
    assert ncu.version(str(program)) == "2025.1.0.0 (build 1)" and ncu.version("/no/such/ncu") == ""
