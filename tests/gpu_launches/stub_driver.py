"""Stub of a GPU: Triton's JIT specialises every launch and compiles it for sm_90; the last step, the call of
CUDA's driver, is checked and counted instead.

Tensors stay on the CPU, and the outputs of a kernel are filled with ones, so values and times have no
meaning. A process that calls `install` must have been started with TRITON_INTERPRET=0.
"""

from collections import Counter
from types import SimpleNamespace

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia import driver as nvidia

ARCH, PROCESSORS, SHARED_BYTES = 90, 132, 227 * 1024
# Arguments of kernels that hold results; in a backward pass some are inputs, and ones already.
RESULTS = {
    "O",
    "LSE",
    "D",
    "dQ",
    "dQ_sum",
    "dK",
    "dV",
    "O_parts",
    "LSE_parts",
    "O_sum",
    "S",
    "P",
    "dS",
    "den",
    "state",
}
INTEGERS = {
    "i1": 1,
    "i8": 8,
    "i16": 16,
    "i32": 32,
    "i64": 64,
    "u1": 1,
    "u8": 8,
    "u16": 16,
    "u32": 32,
    "u64": 64,
}
FLOATS = ("fp16", "bf16", "fp32", "f32", "fp64")
SWIZZLES = {0: None, 1: 32, 2: 64, 3: 128}  # bytes of a box's row at most

launches: Counter = Counter()  # by kernel
maps = 0  # tensor maps that were filled


class NotLaunched(RuntimeError):
    """CUDA's driver would have refused this launch, or read what it must not."""


def must(holds, what):
    """`what`: words, or what makes them, where that takes time."""
    if not holds:
        raise NotLaunched(what() if callable(what) else what)


# CUDA driver functions that Triton calls.


class Utils:
    """Loads nothing, and holds tensor maps to the rules of cuTensorMapEncodeTiled."""

    def load_binary(self, name, binary, shared, device):
        must(binary[:4] == b"\x7fELF", f"{name} is not a compiled kernel")
        return 1, 1, 0, 0, 1024  # module, function, registers, spills, threads at most

    def get_device_properties(self, device):
        return {"max_shared_mem": SHARED_BYTES, "multiprocessor_count": PROCESSORS}

    def fill_tma_descriptor(self, address, swizzle, width, kind, box, sizes, strides, padding):
        """Triton 3.6's name of it."""
        global maps
        maps += 1
        borders = [address, *(width * stride for stride in strides[:-1])]
        must(all(border % 16 == 0 for border in borders), f"a tensor map not on 16-byte borders: {borders}")
        must(len(box) == len(sizes) == len(strides) <= 5, f"a tensor map of {box} in {sizes}")
        must(all(1 <= side <= 256 for side in box), f"a tensor map with a box {box}")
        must(all(0 < size < 2**32 for size in sizes), f"a tensor map over {sizes}")
        must(all(0 < width * stride < 2**40 for stride in strides), f"a tensor map with strides {strides}")
        most = SWIZZLES[swizzle]
        must(most is None or width * box[-1] <= most, f"rows of {width * box[-1]} bytes swizzled by {most}")
        return "a tensor map"

    fill_tma_descriptor_tiled = fill_tma_descriptor


class Launcher:
    """Packs what a launch is given as CUDA's driver would find it."""

    def __init__(self, source, metadata):
        self.name, self.names = source.fn.__name__, source.fn.arg_names
        self.kinds = tuple(source.signature.values())
        self.descriptors = getattr(metadata, "tensordesc_meta", None) or ()
        self.scratch = metadata.global_scratch_size

    def __call__(self, x, y, z, stream, function, packed, metadata, before, after, *arguments):
        must(1 <= x < 2**31 and 1 <= y < 2**16 and 1 <= z < 2**16, f"{self.name}: a grid of {x}, {y}, {z}")
        described = iter(self.descriptors)
        for name, kind, value in zip(self.names, self.kinds, arguments, strict=True):
            self.pack(name, kind, value, described)
        must(next(described, None) is None, f"{self.name}: compiled for more descriptors than it is given")
        if self.scratch:
            triton.runtime._allocation._allocator.get()(x * y * z * self.scratch, 128, stream)
        launches[self.name] += 1
        for name, value in zip(self.names, arguments, strict=True):
            if name in RESULTS and value is not None:
                written(value).fill_(1)

    def pack(self, name, kind, value, described):
        def where():
            return f"{self.name}({name}): {value!r:.60} for {kind}"

        if isinstance(kind, tuple):
            must(isinstance(value, tuple) and len(value) == len(kind), where)
            for one, part in zip(kind, value, strict=True):
                self.pack(name, one, part, described)
        elif kind.startswith("tensordesc"):
            meta = next(described, None)
            must(not self.descriptors or meta is not None, where)
            nvidia.make_tensordesc_arg(value, meta)
        elif kind.startswith("*"):
            must(isinstance(value, torch.Tensor), where)
            must(not value.numel() or value.data_ptr(), where)
        elif kind in INTEGERS:
            must(isinstance(value, int) and -(2**63) <= value < 2 ** INTEGERS[kind], where)
        elif kind != "constexpr":
            must(kind in FLOATS and isinstance(value, float), where)


def written(value):
    """The tensor behind an argument: itself, one with its strides, or a descriptor's."""
    return value[0] if isinstance(value, tuple) else getattr(value, "base", value)


class Driver(DriverBase):
    """An H200, as far as Triton looks."""

    utils, launcher_cls = Utils(), Launcher

    @classmethod
    def is_active(cls):
        return True

    def map_python_to_cpp_type(self, ty):
        return nvidia.ty_to_cpp(ty)

    def get_current_target(self):
        return GPUTarget("cuda", ARCH, 32)

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_benchmarker(self):
        raise NotImplementedError("nothing is timed here")

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def set_current_device(self, device):
        pass

    def get_device_capability(self, device=0):
        return divmod(ARCH, 10)


# Queries about CUDA that PyTorch answers.


PROPERTIES = SimpleNamespace(
    name="no GPU but a rehearsal", major=ARCH // 10, minor=ARCH % 10, multi_processor_count=PROCESSORS,
    L2_cache_size=0, total_memory=2**37,
)  # fmt: skip


def install():
    """Install the stub: from now on this process appears to have a GPU, except for results."""
    triton.runtime.driver.set_active(Driver())
    made_up = {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "get_device_capability": lambda device=0: divmod(ARCH, 10),
        "get_device_properties": lambda device=0: PROPERTIES,
        "get_device_name": lambda device=0: PROPERTIES.name,
        "synchronize": lambda device=None: None,
        "memory_reserved": lambda device=None: 0,
        "memory_allocated": lambda device=None: 0,
        "mem_get_info": lambda device=None: (2**37, 2**37),
        "empty_cache": lambda: None,
    }
    for name, value in made_up.items():
        setattr(torch.cuda, name, value)
    from iocourse.kernels import INTERPRETED
    from iocourse.kernels.host import checks

    assert not INTERPRETED, "start this process with TRITON_INTERPRET=0"
    checks._check_device = lambda device: None  # tensors are on the CPU here
