"""Machine code of the passes in registers for several processors; it is compiled but not run."""

import re

import pytest

from iocourse.lowrank import numba_backend

if not numba_backend._found():
    pytest.skip("llvmlite, which comes with Numba, is not installed", allow_module_level=True)

from llvmlite import binding

from iocourse.lowrank.numba_backend.registers import calls, writer

CPUS = {writer.AVX512: "skylake-avx512", writer.AVX2: "haswell"}
WIDE = {writer.AVX512: "zmm", writer.AVX2: "ymm"}
PRODUCTS = 8  # minimum number of products in a loop that is checked


def assembly(part, d, m, processor):
    """Return LLVM's assembly of a part for this kind of processor."""
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    try:
        target = binding.Target.from_triple("x86_64-unknown-linux-gnu")
    except RuntimeError:
        pytest.skip("this LLVM cannot compile for x86-64")
    machine = target.create_target_machine(cpu=CPUS[processor], features=processor.told, opt=2)
    machine.set_asm_verbosity(True)
    return machine.emit_assembly(binding.parse_assembly(str(calls.written(part, d, m, processor).p.module)))


def loops(text):
    """Return the lines of each innermost loop that is a single block, by LLVM's comments."""
    blocks = re.split(r"^(?=\.LBB|# %bb)", text, flags=re.MULTILINE)
    return [block.splitlines() for block in blocks if "Inner Loop Header" in block]


@pytest.mark.parametrize("part", ["forward", "backward"])
@pytest.mark.parametrize(
    "processor, d",
    [(writer.AVX512, 12), *((writer.AVX2, d) for d in (4, 8, 12))],
    ids=lambda x: str(getattr(x, "lanes", x)),
)
def test_sums_of_products_stay_in_their_registers(part, processor, d):
    """In the inner loops no sum is spilled, and few operands are reloaded from memory."""
    text = assembly(part, d, d + 1, processor)
    product = re.compile(r"\tvfn?madd\w+ps\b.*%" + WIDE[processor])
    hot = [loop for loop in loops(text) if sum(map(bool, map(product.search, loop))) >= PRODUCTS]
    assert len(hot) >= 2
    for loop in hot:
        products, remarks = sum(map(bool, map(product.search, loop))), "\n".join(loop)
        assert "Spill" not in remarks and remarks.count("Reload") <= products / 8


@pytest.mark.parametrize("part", list(calls.PARTS))
def test_a_processor_is_given_only_what_it_has(part):
    """Code for AVX2 has no masked stores, which take about 12 cycles on AMD processors without AVX-512."""
    narrow, wide = (assembly(part, 8, 9, processor) for processor in (writer.AVX2, writer.AVX512))
    assert "%zmm" in wide and "%ymm" in narrow and "%zmm" not in narrow and "vmaskmov" not in narrow
