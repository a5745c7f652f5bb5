"""The whole of `tools.bench visit` on a stubbed driver, in this one process: prints what happened as JSON.

    TRITON_INTERPRET=0 PYTHONPATH=. python tests/rehearsal/a_visit.py FOLDER

Launches, options, files and records are real; lengths are as short as they can be, nothing is compiled
(`variants` does that), no rival computes anything, and no number says anything.
"""

import contextlib
import json
import sys
import time
import traceback
from pathlib import Path
from types import SimpleNamespace

import stubbed_gpu
import torch
import triton

from tools.bench.gpu.problem import Shape


class Uncompiled:
    """Stands in for a compiled kernel: a launch is packed as its signature says, descriptors taken apart."""

    function, packed_metadata = None, ()

    def __init__(self, source, **_):
        self.run = stubbed_gpu.Launcher(source, SimpleNamespace(global_scratch_size=0))

    def launch_metadata(self, *_):
        return None


class Attended(torch.autograd.Function):
    """Zeros for O, and for every gradient: a rival that takes no time, nor memory until somebody looks."""

    @staticmethod
    def forward(ctx, q, k, v):
        ctx.sizes = q.shape, k.shape, v.shape
        return torch.zeros(*q.shape[:-1], v.shape[-1], dtype=q.dtype)

    @staticmethod
    def backward(ctx, do):
        return tuple(torch.zeros(size, dtype=do.dtype) for size in ctx.sizes)


def rival(q, k, v, **options):
    return Attended.apply(q, k, v)


def zeros(q, k, v, do, seen=None, rows=1024):
    """In the place of `exact_head`, which nobody is held against."""
    return {name: torch.zeros_like(x) for name, x in zip(("O", "dQ", "dK", "dV"), (q, q, k, v), strict=True)}


def unseen(q, k, v, allowed, scale):
    """In the place of what the checks hold values against: O and LSE, zeros."""
    return rival(q, k, v), q.sum(-1).float()


class OneHead(int):
    """The width of all heads together, of which a head of any size takes all."""

    def __floordiv__(self, d):
        return 1


def shorter(dtype, d, N, causal):
    """In the place of `filled`: one head of one sequence, and an eighth of its length."""
    return Shape(dtype, d, N // 8, 1, 1, causal)


def replace(name, new):
    """Put a function in the place of one that modules of the benchmarks have imported by this name."""
    found = [m for n, m in list(sys.modules.items()) if n.startswith("tools.bench") and hasattr(m, name)]
    assert found, f"no benchmark knows {name} any more"
    for module in found:
        setattr(module, name, new)


def in_a_hurry():
    """One lap of everything, and none of what only takes time."""
    import torch.nn.attention.flex_attention as flex

    from iocourse.gpu import timing
    from tools.bench import attention, decode, sparse, subjects, varlen
    from tools.bench.gpu import place

    subjects()  # imports them all
    triton.compiler.compile = Uncompiled
    timing.WARM_UPS = timing.LEADS = 0
    decode.copy_speed.__defaults__ = (2**10,)
    place.Place.device, place.Place.tidy = "cpu", lambda self: None
    replace("exact_head", zeros)
    replace("WIDTH", OneHead(2048))
    replace("filled", shorter)
    replace("errors", lambda found, reference: (dict.fromkeys(found, 0.0), 0.0))
    attention.LENGTHS = attention.LENGTHS[:1]
    sparse.KINDS = sparse.KINDS[:1]
    masked = sparse._filled
    sparse._filled = lambda d, N, mask: masked(d, 1024, mask)._replace(B=1)
    varlen.LONGEST = 512
    timing.CudaStopwatch.__init__ = lambda self: setattr(self, "_buffer", torch.zeros(1))
    real = timing.side_by_side
    replace("side_by_side", lambda works, stopwatch: real(works, stopwatch=stopwatch, rounds=1, least=1))
    torch.nn.functional.scaled_dot_product_attention = flex.flex_attention = rival
    torch.compile = lambda work, **options: work
    for name in ("randn", "full_like"):  # memory that nobody touches costs nothing
        setattr(torch, name, zeros_for(getattr(torch, name)))


def zeros_for(function):
    def made(*sizes, **options):
        options = {key: value for key, value in options.items() if key not in ("generator", "fill_value")}
        if function.__name__ == "full_like":
            return torch.empty_like(sizes[0])
        return torch.zeros(*sizes, **options)

    return made


def in_this_process(commands, logs, limit, environment):
    """In the place of the visit's processes: the same commands, called."""
    return {label: said_to(logs[label], command) for label, command in commands.items()}, False


def said_to(log, command):
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as file, contextlib.redirect_stdout(file), contextlib.redirect_stderr(file):
        try:
            return called(command)
        except SystemExit as error:
            return error.code
        except Exception:
            traceback.print_exc()
            return 1


def called(command):
    from iocourse.cli import main
    from tools.bench.visit import tuned

    if command[0] == "nvidia-smi" or "doctor" in command:
        return 0  # they know nothing of the stub
    assert command[0] == sys.executable, command
    if command[1] == "-m":
        run = {
            "iocourse": main,
            tuned.__name__: tuned.main,
        }
        return run[command[2]](command[3:])
    import on_gpu

    on_gpu.oracle.exact = on_gpu.oracle.eager = unseen
    on_gpu.oracle.bounds = lambda *_: [0.0] * 5
    sys.argv, every = command[1:], on_gpu.checks()
    kinds = {getattr(check, "func", check).__name__: name for name, check in reversed(every.items())}
    for name in ("far_apart", "low_rank"):  # 4 GB, and certificates that made-up values break
        del kinds[name]
    on_gpu.checks = lambda: {name: every[name] for name in kinds.values()}  # one of each kind
    try:
        with stubbed_gpu.OnTheCpu():
            return on_gpu.main()
    finally:
        on_gpu.checks = lambda: every


def main(out, *more):
    stubbed_gpu.install()
    in_a_hurry()
    from iocourse.cli import main as iocourse
    from tools.bench import visit
    from tools.bench.tune import fitting, problem

    visit.run_commands = in_this_process
    visit.needless = lambda *_: ""  # all times are alike, and tune finds nothing
    problem.warm = lambda *_: None  # in processes of their own, without this stub
    candidates = fitting.candidates
    fitting.candidates = lambda *asked: candidates(*asked)[:2]
    started = time.perf_counter()
    tutorial = str(Path(__file__).with_name("a_tutorial.py"))
    code = iocourse(["bench", "visit", "--anyway", "--out", str(out), "--tutorial", tutorial, *more])
    said = {"code": code, "seconds": round(time.perf_counter() - started, 1)}
    said |= {"launches": sum(stubbed_gpu.launches.values()), "maps": stubbed_gpu.maps}
    (out / "rehearsal.json").write_text(json.dumps(said))
    return code


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "kernels"))
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
