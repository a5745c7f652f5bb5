"""Another processor, simulated by environment variables that keep libraries from using newer instructions.

Sums are then added in another order, so every rounding error differs. A test that compares printed text, and
passes with and without these variables, compares no rounding errors. `pytest --processor Nehalem` sets them
for a whole run. `python tests/other_processor.py` prints what each library uses in this environment, as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# The variables by processor. A library reads its own at import, and ignores a value that it does not know.
# NumPy: features that are not listed stay enabled, so a processor with AVX-512 needs the later ones as well.
PROCESSORS = {
    "Nehalem": {  # x86-64 without AVX
        "OPENBLAS_CORETYPE": "Nehalem",
        "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",  # matrix products of torch
        "NUMBA_CPU_NAME": "generic",
    },
    "Haswell": {  # with AVX2 and FMA, without AVX-512; MKL has no name for it on a processor of AMD
        "OPENBLAS_CORETYPE": "Haswell",
        "NPY_DISABLE_CPU_FEATURES": "X86_V4 AVX512_ICL AVX512_SPR",
        "ATEN_CPU_CAPABILITY": "avx2",
        "NUMBA_CPU_NAME": "haswell",
    },
}
# The state of each library with these variables.
USED = {
    "Nehalem": {
        "OpenBLAS": "Nehalem",
        "NumPy": "baseline(X86_V2)",
        "torch": "DEFAULT",
        "MKL": 3,  # MKL_CBWR_COMPATIBLE
        "Numba": "generic",
    },
    "Haswell": {
        "OpenBLAS": "Haswell",
        "NumPy": "X86_V3",
        "torch": "AVX2",
        "Numba": "haswell",
    },
}
# Another processor than that of this run.
OTHER = "Haswell" if os.environ.get("OPENBLAS_CORETYPE") == "Nehalem" else "Nehalem"
CAN = platform.machine() in ("x86_64", "AMD64")


def environment(processor: str | None) -> dict[str, str]:
    """Return the environment of this process with the variables of a processor, or without any (None)."""
    others = set().union(*PROCESSORS.values())
    kept = {name: value for name, value in os.environ.items() if name not in others}
    return kept | PROCESSORS.get(processor, {})


def used(processor: str | None) -> dict[str, object]:
    """Return what each installed library uses in a new process with the environment of a processor."""
    command = [sys.executable, __file__]
    done = subprocess.run(command, env=environment(processor), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def differences(processor: str) -> dict[str, tuple[object, object]]:
    """Return the libraries that do not use what the processor has: name -> (used, expected)."""
    found = used(processor)
    return {
        library: (found[library], wanted)
        for library, wanted in USED[processor].items()
        if library in found and found[library] != wanted
    }


def _used_here() -> dict[str, object]:
    from numpy._core import _multiarray_umath
    from numpy.lib import introspect

    # The symbols of OpenBLAS are found through the module that is linked to it.
    core = getattr(ctypes.CDLL(_multiarray_umath.__file__), "scipy_openblas_get_corename64_", None)
    found: dict[str, object] = {}
    if core is not None:  # NumPy's wheels; another build may have another library
        core.restype = ctypes.c_char_p
        found["OpenBLAS"] = core().decode()
    found["NumPy"] = introspect.opt_func_info(func_name="^add$", signature="float64")["add"]["ddd"]["current"]
    if find_spec("torch"):
        import torch

        found["torch"] = torch.backends.cpu.get_cpu_capability()
        library = ctypes.CDLL(str(next(Path(torch.__file__).parent.glob("lib/*torch_cpu.*"))))
        if torch.backends.mkl.is_available() and hasattr(library, "mkl_serv_cbwr_get"):
            found["MKL"] = library.mkl_serv_cbwr_get(1)
    if find_spec("numba"):
        from numba.core.registry import cpu_target

        found["Numba"] = cpu_target.target_context.codegen().magic_tuple()[1]
    return found


def simulate(processor: str) -> None:
    """Set the variables of a processor for this process and its workers, which have not loaded NumPy yet."""
    if wrong := differences(processor):
        said = ", ".join(f"{name} uses {found}, not {wanted}" for name, (found, wanted) in wrong.items())
        raise pytest.UsageError(f"--processor {processor} has no effect here: {said}")
    os.environ.update(PROCESSORS[processor])


if __name__ == "__main__":
    print(json.dumps(_used_here()))
