"""The functions of the library that solve exercises; they are guarded when the course is imported.

The library does not know about the guard. Whoever adds an answer to the library adds its name to `ANSWERS`,
unless it is a schedule or a bound of the package: these are found in their registries.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

from .guard import AnswersOf, Guarded, is_guarded, refuse


# ------------------------------------------------------------------ schedules, bounds, the machine
def _schedules(package: ModuleType) -> Iterator[Guarded]:
    """Yield the schedules, their tile sizes, and all public functions of their files."""
    for schedule in package.REGISTRY.values():
        for function in (schedule.body, schedule.choose, schedule.publish):
            if function is not None:
                yield function, None
        if schedule.approximates:
            yield schedule.approximates.exact, None
        if schedule.forward_extras:
            yield schedule.forward_extras.made, None
        yield from _public_functions(sys.modules[schedule.body.__module__])
    yield from ((function, None) for function in (package.best, package.break_even_length))
    yield from ((function, None) for function in (package.matmul, package.matmul_tiles))
    yield package.Schedule.__call__, lambda _, one, *args, **named: refuse(f"iocourse.schedules.{one.name}")
    yield (
        package.Schedule.largest_tiles,
        lambda _, one, *args, **named: refuse(f"iocourse.schedules.{one.name}.largest_tiles"),
    )


def _public_functions(module: ModuleType) -> Iterator[Guarded]:
    for name, part in vars(module).items():
        if name[0] != "_" and isinstance(part, FunctionType) and part.__module__ == module.__name__:
            yield part, None


def _bounds(package: ModuleType) -> Iterator[Guarded]:
    """Yield the functions that evaluate a bound, and the calls of the objects."""
    yield from ((bound.evaluate, None) for bound in package.BOUNDS.values())
    for method in (package.Bound.__call__, package.Bound.order):
        yield method, lambda _, one, *args, **named: refuse(f"iocourse.bounds, bound {one.id},")


def _distributed_schedules(package: ModuleType) -> Iterator[Guarded]:
    yield from ((schedule.body, None) for schedule in package.REGISTRY.values())


def _distributed_bounds(module: ModuleType) -> Iterator[Guarded]:
    yield from ((bound.evaluate, None) for bound in module.BOUNDS.values())
    yield from ((function, None) for function in (module.words_of_one_rank, module.words_in_segments))


def _machine(module: ModuleType) -> Iterator[Guarded]:
    """Yield Machine.show. During a check it prints nothing: an answer could read values in the text."""
    yield module.Machine.show, _show_nothing


def _show_nothing(_: Any, machine: Any, tile: Any) -> None:
    machine._tiles_of(tile)  # raises the errors of show


# ------------------------------------------------------------------ Triton kernels
def _launches(module: ModuleType) -> Iterator[Guarded]:
    yield module.start, lambda _, name, kernel, *args, **named: _refuse_kernel(kernel)


def _interpreted_kernels(module: ModuleType) -> Iterator[Guarded]:
    """Yield the launch of an interpreted kernel and the call of a function by a kernel, for all kernels."""
    for method in (module.InterpretedFunction.run, module.InterpretedFunction.__call__):
        yield inspect.unwrap(method, stop=is_guarded), _call_unless_known


def _autotuned_kernels(module: ModuleType) -> Iterator[Guarded]:
    """Yield the launch of a kernel with several tiles, which the interpreter cannot time."""
    yield module.Autotuner.run, _call_unless_known


def _call_unless_known(original: Callable[..., Any], kernel: Any, *args: Any, **named: Any) -> Any:
    """Launch or call a kernel, unless it is one of the library or of `flash_attention.py`."""
    from .functions_of_file import is_of_file  # lessons without kernels do not need it
    from .project_paths import FILE

    own = getattr(kernel, "base_fn", kernel.fn)  # of an autotuned kernel, whose `fn` is a kernel
    if own.__module__.startswith("iocourse."):
        refuse(f"{own.__module__}.{own.__name__}")
    if is_of_file(own):
        refuse(f"{own.__module__}.{own.__name__}, code of {FILE},")
    return original(kernel, *args, **named)


def _refuse_kernel(kernel: Any) -> None:
    refuse(f"{kernel.fn.__module__}.{kernel.fn.__name__}")


def _limits_of_an_sm(module: ModuleType) -> Iterator[Guarded]:
    yield module.Resources.program_limits.fget, None


# Per module: the names of its functions, or a function that yields them.
ANSWERS: dict[str, AnswersOf] = {
    "iocourse.exact": "softmax scores attention log_sum_exp attention_backward softmax_backward grad_x",
    "iocourse.monomials": "features_vjp",
    "iocourse.machine.machine": _machine,
    "iocourse.schedules": _schedules,
    "iocourse.bounds": _bounds,
    "iocourse.bounds.segments": (
        "products_per_segment all_products_per_segment segments_A segments_B segments_C best_segment"
    ),
    "iocourse.bounds.row_schedules": "min_pair_cost _words_E_prime",
    "iocourse.sweeps": "min_cost lower_envelope",
    "iocourse.pebbling.search": "optimum",
    "iocourse.kernels.host.launches": _launches,
    "iocourse.kernels.host.masks": "build side_of",
    "iocourse.gpu.compilation": _limits_of_an_sm,
    "iocourse.gpu.timed_tiles": "tables",
    "triton.runtime.interpreter": _interpreted_kernels,
    "triton.runtime.autotuner": _autotuned_kernels,
    "iocourse.lowrank.polynomials": "largest_error smallest_degree",
    "iocourse.lowrank.per_head": "forward_heads backward_heads attention_with_state",
    "iocourse.lowrank.numpy_backend": "forward backward causal_forward causal_backward",
    "iocourse.lowrank.numba_backend": "forward from_state backward causal_forward causal_backward",
    "iocourse.lowrank.torch_backend": "attention_with_autograd attention_with_state",
    "iocourse.lowrank.torch_passes": "features_vjp forward backward causal_forward causal_backward",
    "iocourse.lowrank.paper_gradient": (
        "kronecker_factors row_wise_kronecker kronecker associative in_paper_notation"
    ),
    "iocourse.distributed.schedules": _distributed_schedules,
    "iocourse.distributed.bounds": _distributed_bounds,
    "iocourse.distributed.load_balance": (
        "pairs_of_ranks words_of_ranks equal_tokens whole_texts split_texts"
    ),
    "iocourse.distributed.partial_attention": "merge",
    "iocourse.distributed.time_model": "compare_schedules",
}
