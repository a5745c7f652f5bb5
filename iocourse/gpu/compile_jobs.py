"""A kernel and its arguments, written down so that another process can compile it."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Collection
from pathlib import Path
from typing import Any

MAIN = "notebook_kernel"  # the module that a notebook's own kernel becomes
_IMPORTS = "import triton\nimport triton.language as tl\n"
OPTIONS: dict[str, tuple[Collection[Any], str]] = {  # of a launch: the values allowed, and how to say them
    "num_warps": ((1, 2, 4, 8, 16, 32), "1, 2, 4, 8, 16 or 32"),
    "num_stages": (range(1, 17), "1 to 16"),
    "num_ctas": ((1, 2, 4, 8, 16), "1, 2, 4, 8 or 16"),
    "maxnreg": (range(1, 256), "1 to 255"),
    "enable_fp_fusion": ((True, False), "True or False"),
}
_TYPES = re.compile(r"float(16|32|64)|bfloat16|u?int(8|16|32|64)|bool")  # of a tensor's elements


def job(
    kernel: Any, arch: int, arguments: tuple[Any, ...], constants: dict[str, Any], folder: Path
) -> dict[str, Any]:
    """What `_compile` needs to compile `kernel` as a launch with these arguments would be compiled.

    Args:
        kernel: a function under @triton.jit, interpreted here or not, of a module or of a notebook's cell.
        arch: 90 for sm_90, say.
        arguments: what the launch would be given, in order: tensors, numbers, descriptors, None.
        constants: the kernel's tl.constexpr parameters, and num_warps, num_stages and the like.
        folder: where the source of a notebook's kernel is written.
    """
    function = _function(kernel)
    names = list(inspect.signature(function).parameters)
    options = {name: value for name, value in constants.items() if name not in names}
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: {function.__name__} has no such parameter; allowed besides its own: "
            f"{', '.join(OPTIONS)}"
        )
    for name, value in options.items():
        allowed, words = OPTIONS[name]
        if type(value) is not (bool if name == "enable_fp_fusion" else int) or value not in allowed:
            raise ValueError(f"{name} is {value!r}; allowed: {words}")
    if len(arguments) > len(names):
        raise ValueError(f"{function.__name__} takes {len(names)} arguments, {len(arguments)} were given")
    given = dict(zip(names, arguments, strict=False)) | {n: v for n, v in constants.items() if n in names}
    absent = [name for name in names if name not in given]
    if absent:
        raise ValueError(f"{function.__name__} is not given {', '.join(absent)}")
    signature, values, aligned = specialised(function, given, set(_do_not_specialize(kernel)))
    for (at, *_), value in values:
        try:
            json.dumps(value)
        except TypeError:
            raise TypeError(
                f"{names[at]} is {value!r}; allowed for a value that is compiled in: a number, True, False, "
                "None, a string, or a tuple of these"
            ) from None
    return {
        **_place(function, folder),
        "arch": arch,
        "signature": signature,
        "constants": values,
        "aligned": aligned,
        "options": options,
    }


def described(job: dict[str, Any]) -> str:
    """The kernel of a job with its constants and options, for a message."""
    names = list(job["signature"])
    given = {names[at[0]]: value for at, value in job["constants"] if len(at) == 1} | job["options"]
    parts = (
        f"{name}={tuple(value['values']) if isinstance(value, dict) else value}"
        for name, value in given.items()
    )
    return f"{job['name']}({', '.join(parts)}) for sm_{job['arch']}"


def specialised(
    function: types.FunctionType, given: dict[str, Any], plain: Collection[str] = ()
) -> tuple[dict[str, Any], list[tuple[list[int], Any]], list[list[int]]]:
    """What a launch of a kernel's function with these arguments is compiled for.

    Args:
        function: the Python function of the kernel.
        given: a value for each of its parameters.
        plain: parameters that Triton was told not to specialize.

    Returns:
        The type of each parameter, the values that are compiled in, with where they stand, and the places of
        what is a multiple of 16.
    """
    fixed = set(_constexprs(function))
    signature: dict[str, Any] = {}
    values: list[tuple[list[int], Any]] = []
    aligned: list[list[int]] = []
    for at, name in enumerate(inspect.signature(function).parameters):
        if name in fixed:
            signature[name] = "constexpr"
            values.append(([at], _constant(given[name])))
        else:
            try:
                signature[name] = _kinds(given[name], [at], name in plain, values, aligned)
            except TypeError as error:
                raise TypeError(f"{name} {error}") from None
    return signature, values, aligned


def _constant(value: Any) -> Any:
    """A value that is compiled in, as JSON can hold it; a NamedTuple becomes {"fields": …, "values": …}."""
    fields = getattr(value, "_fields", None)
    return {"fields": list(fields), "values": list(value)} if fields else value


def _kinds(
    value: Any, path: list[int], plain: bool, values: list[tuple[list[int], Any]], aligned: list[list[int]]
) -> Any:
    """The type of an argument, or of each part of a tuple; notes what is compiled in and what is aligned.

    A NamedTuple, whose parts a kernel reads by name, becomes {"fields": names, "kinds": types}.
    """
    if isinstance(value, tuple):
        # Triton does not look into tuples for what is not to be specialized.
        parts = [_kinds(one, [*path, at], False, values, aligned) for at, one in enumerate(value)]
        fields = getattr(value, "_fields", None)
        return {"fields": list(fields), "kinds": parts} if fields else parts
    kind = _type(value, plain)
    if kind == "constexpr":
        values.append((path, value))
    elif not plain and _divisible(value):
        aligned.append(path)
    return kind


def _function(kernel: Any) -> types.FunctionType:
    """The Python function of a kernel, under whatever decorators."""
    function = kernel
    while not inspect.isfunction(function) and hasattr(function, "fn"):
        function = function.fn
    if function is kernel or not inspect.isfunction(function):
        raise TypeError(f"kernel is a {type(kernel).__name__}; allowed: a function under @triton.jit")
    return function


def _do_not_specialize(kernel: Any) -> list[str]:
    stated = getattr(kernel, "do_not_specialize", None)
    if stated is None:  # an interpreted kernel forgets it; the decorator's own arguments are in the source
        found = re.search(r"do_not_specialize=\[([^\]]*)\]", inspect.getsource(_function(kernel)))
        stated = re.findall(r"[\"'](\w+)[\"']", found[1]) if found else []
    return list(stated)


def _constexprs(function: types.FunctionType) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if "constexpr" in str(p.annotation)]


def _type(value: Any, plain: bool) -> str:
    """The type of an argument in Triton's own short names; "constexpr" for what a launch compiles in."""
    if value is None or isinstance(value, bool):
        return "constexpr"
    if isinstance(value, int):
        if value == 1 and not plain:
            return "constexpr"
        return "i32" if -(2**31) <= value < 2**31 else "i64"
    if isinstance(value, float):
        return "fp32"
    if hasattr(value, "block_shape"):
        return f"tensordesc<{_short(value.base.dtype)}{list(value.block_shape)}>"
    if hasattr(value, "data_ptr"):
        return f"*{_short(value.dtype)}"
    raise TypeError(f"is or holds a {type(value).__name__}; allowed: tensors, numbers, descriptors, None")


def _short(dtype: Any) -> str:
    name = str(dtype).removeprefix("torch.")
    if not _TYPES.fullmatch(name):
        raise TypeError(
            f"is a tensor of {name}; allowed: float16, bfloat16, float32, float64, bool and integers"
        )
    return {"bfloat16": "bf16", "bool": "i1"}.get(name) or re.sub(r"^(float|int|uint)", _letter, name)


def _letter(found: re.Match[str]) -> str:
    return {"float": "fp", "int": "i", "uint": "u"}[found[1]]


def _divisible(value: Any) -> bool:
    if isinstance(value, int):
        return value % 16 == 0
    return hasattr(value, "data_ptr") and value.data_ptr() % 16 == 0


def _place(function: types.FunctionType, folder: Path) -> dict[str, str]:
    if function.__module__ != "__main__":
        return {"module": function.__module__, "name": function.__name__}
    path = folder / f"{MAIN}.py"
    path.write_text(_IMPORTS + "\n\n".join(_sources(function, {})), encoding="utf-8")
    return {"module": MAIN, "name": function.__name__, "file": str(path)}


def _sources(function: types.FunctionType, seen: dict[str, str]) -> list[str]:
    """The sources of a notebook's kernel and of what it uses, what is used first."""
    if function.__name__ in seen:
        return []
    seen[function.__name__] = ""
    parts: list[str] = []
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if name not in seen and value is not None:
            parts += _source_of(name, value, seen)
    return [*parts, inspect.getsource(function)]


def _source_of(name: str, value: Any, seen: dict[str, str]) -> list[str]:
    if inspect.ismodule(value) and value.__name__.split(".")[0] == "triton":
        seen[name] = ""
        return [f"import {value.__name__} as {name}"]
    used = getattr(value, "fn", None)
    if inspect.isfunction(used):
        if used.__module__ == "__main__":
            return _sources(used, seen)
        if not used.__module__.startswith("triton"):
            return [f"from {used.__module__} import {used.__name__} as {name}"]
    if type(value).__name__ == "constexpr":
        seen[name] = ""
        return [f"{name} = tl.constexpr({value.value!r})"]
    return []
