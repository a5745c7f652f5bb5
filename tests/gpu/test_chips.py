"""Data of chips, and occupancy: the number of programs of a kernel that one SM holds."""

from dataclasses import asdict, fields

import pytest

from iocourse.gpu import CHIPS, Resources, chip_of
from iocourse.gpu.hot_loop import Loop


def test_the_table():
    assert list(CHIPS) == [75, 80, 89, 90, 100]
    for arch, chip in CHIPS.items():
        assert chip.arch == arch and chip.source and chip.registers == 64 * 1024
        assert chip.tensor_cores_in_triton == (arch >= 80)
    # Kilobytes of shared memory a block may use: CUDA C++ Programming Guide, "Compute Capabilities".
    assert [chip.shared_bytes // 1024 for chip in CHIPS.values()] == [64, 163, 99, 227, 227]


def test_the_ridge_rises_from_one_generation_to_the_next():
    """Flops a byte that a product must do to be bound by the tensor cores."""
    ridge_point = {arch: chip.tensor_tflops * 1000 / chip.gbytes_per_s for arch, chip in CHIPS.items()}
    assert round(ridge_point[80]) == 153 and round(ridge_point[90]) == 206
    assert ridge_point[80] < ridge_point[90] < ridge_point[100]


@pytest.mark.parametrize("arch", [91, "90", 90.0, True, None, "sm_90"])
def test_an_unknown_architecture(arch):
    with pytest.raises(ValueError) as caught:
        chip_of(arch)
    assert str(caught.value) == f"arch must be one of 75, 80, 89, 90, 100; got {arch!r}"


def taking(*, registers=64, shared=0, warps=4, spilled=0, arch=90):
    return Resources(arch, registers, spilled, shared, warps, 0, 0, 0, 0.0)


def test_programs_at_once():
    """65,536 registers: 64 a thread are 64 · 32 · 4 = 8,192 a program of four warps."""
    assert taking().programs_at_once == 8
    assert taking(registers=65).programs_at_once == 7  # allocated to a warp in units of 256: 72 per thread
    assert taking(registers=255, warps=8).programs_at_once == 1
    assert taking(registers=255, warps=16).programs_at_once == 0
    assert taking(registers=16).programs_at_once == 16  # 64 warps per SM
    assert taking(registers=16, shared=227 * 1024).programs_at_once == 1
    assert taking(registers=16, shared=113 * 1024).programs_at_once == 2  # 228 KB, of which 1 a program
    assert taking(registers=16, shared=114 * 1024).programs_at_once == 1
    assert taking(registers=16, shared=228 * 1024).programs_at_once == 0


def test_programs_at_once_on_chips_with_other_limits():
    """Warps, blocks, shared memory and reserve per SM: the CUDA guide's table of technical specifications."""
    table = {75: (32, 16, 64, 0), 80: (64, 32, 164, 1), 89: (48, 24, 100, 1), 90: (64, 32, 228, 1)}
    for arch, (warps, blocks, shared, reserved) in table.items():
        assert taking(registers=16, arch=arch).programs_at_once == warps // 4
        assert taking(registers=16, warps=1, arch=arch).programs_at_once == blocks
        exact = shared * 1024 // 2 - reserved * 1024  # two blocks that fill the SM
        assert taking(registers=16, shared=exact, arch=arch).programs_at_once == 2
        assert taking(registers=16, shared=exact + 1, arch=arch).programs_at_once == 1
    assert taking(registers=16, shared=64 * 1024, arch=75).programs_at_once == 1
    assert taking(registers=16, shared=64 * 1024 + 1, arch=75).programs_at_once == 0


def test_a_warp_has_the_registers_of_one_scheduler():
    """176 registers: 5,632 per warp, so 2 warps per quarter of 16,384, although 11 would fit in 65,536."""
    assert taking(registers=176, warps=1).programs_at_once == 8
    assert taking(registers=176, warps=2).programs_at_once == 4
    assert taking(registers=176, warps=4).programs_at_once == 2


def test_the_limits_of_a_program_by_name():
    assert taking(registers=168, shared=64 * 1024).program_limits == {
        "registers": 3, "shared memory": 3, "warps": 16, "blocks": 32
    }  # fmt: skip
    assert taking(arch=75).program_limits["shared memory"] == 16  # no shared memory, no reserve


def test_what_fits():
    assert taking(shared=227 * 1024).fits
    assert not taking(shared=227 * 1024 + 1).fits
    assert not taking(spilled=8).fits
    assert not taking(shared=100 * 1024, arch=89).fits


@pytest.mark.parametrize("spills", [0, 1])
def test_what_is_spilled_outside_the_hot_loop_fits(spills):
    step = {field.name: 0 for field in fields(Loop)} | {"spills": spills}
    facts = asdict(taking(spilled=8)) | {"hot_loop": step}
    assert Resources.of(facts).fits == (spills == 0)
    assert Resources.of(facts | {"BM": 64}) == Resources.of(facts)
    assert not Resources.of(facts | {"hot_loop": None}).fits


def test_a_report_reads_as_a_sentence():
    assert str(taking(registers=168, shared=98 * 1024)) == (
        "sm_90: 168 of 255 registers per thread, nothing spilled, 98.0 of 227 KB shared memory, "
        "0 tensor-core and 0 asynchronous copy instructions"
    )
    assert "16 bytes spilled" in str(taking(spilled=16))
