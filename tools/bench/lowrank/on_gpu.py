"""On a GPU: low rank beside exact attention, the course's own and PyTorch's, d = 12.

Low rank twice: the face with its checks, and its kernels alone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iocourse.doctor.circumstances import circumstances
from iocourse.gpu.timing import Work
from iocourse.refusal import write_json
from tools.bench import Row
from tools.bench.gpu.contenders import ours
from tools.bench.gpu.place import Place, nothing_compiled
from tools.bench.gpu.trial import outcomes, work_of
from tools.bench.lowrank.exact_side import sampled_truth, sdpa
from tools.bench.lowrank.published import relative_error
from tools.bench.lowrank.scaling import PASSES, SAMPLED, draw

if TYPE_CHECKING:
    from torch import Tensor

D = 12
DEGREES = (2, 3)
LENGTHS = (40_960, 2**17, 2**18, 2**19, 2**20)
OURS, ALONE, EXACT, SDPA = "low rank", "low rank, kernels alone", "exact, ours", "SDPA"
TYPES = ("float32", "bfloat16")


def section(keep: Callable[[Row], None] | None = None) -> Row:
    """Facts of the device and its rows; where there is none, the reason alone. `keep` takes it after each
    length, so that a run that is cut off leaves those.
    """
    reason = nothing_compiled()
    if reason:
        return {"absent": reason}
    place, rows = Place(), list[Row]()
    found = circumstances("torch", "triton") | {"device": place.facts(), "rows": rows}
    for done, n in enumerate(LENGTHS, 1):
        rows += times(n, place)
        found["shapes"] = {"asked": len(LENGTHS), "done": done}
        if keep:
            keep(found)
    return found


def times(n: int, place: Place, d: int = D) -> list[Row]:
    """Every contender at one length, forward and forward with backward; who raises keeps the reason."""
    tensors = [x.to(place.device) for x in draw(n, d)]
    errors = _errors(tensors, _works(tensors, PASSES[0]))
    return [
        {"contender": name, "n": n, "d": d, "pass": pass_, "error": errors.get(name)} | outcome
        for pass_ in PASSES
        for name, outcome in outcomes(_works(tensors, pass_), place.stopwatch).items()
    ]


def _works(tensors: list[Tensor], pass_: str) -> dict[str, Work]:
    """What is timed in a pass, by name: the faces, then our kernels alone."""
    import torch

    works = {}
    for name, (attend, dtype) in field().items():
        *inputs, do = (x.to(getattr(torch, dtype), copy=True) for x in tensors)
        works[name] = work_of(attend, inputs, do, pass_)
    return works | {f"{ALONE}, g = {g}": _alone(g, tensors, pass_) for g in DEGREES}


def _errors(tensors: list[Tensor], works: Mapping[str, Any]) -> dict[str, float]:
    """The usual relative error of O, in per cent, at some queries; of those who can."""
    import torch

    q, k, v, do = (x.cpu() for x in tensors)
    at = torch.linspace(0, len(q) - 1, min(SAMPLED, len(q))).long()
    o, _ = sampled_truth(q, k, v, do, at)
    found = {}
    for name, work in works.items():
        with suppress(Exception):  # who raises is refused with its reason when it is timed
            o_here = work()[0][0, 0] if name.startswith(ALONE) else work()
            found[name] = relative_error(o_here[at].cpu(), o)
    return found


def field() -> dict[str, tuple[Callable[..., Tensor], str]]:
    """Who takes part, and in which type: ours in float32, exact attention also where it is fastest."""
    found = {f"{OURS}, g = {g}": (partial(_low_rank, g), "float32") for g in DEGREES}
    return found | {
        f"{name}, {dtype}": (attend, dtype)
        for dtype in TYPES
        for name, attend in ((EXACT, _exact), (SDPA, sdpa))
    }


def _low_rank(g: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    import iocourse.lowrank as lowrank

    found: Tensor = lowrank.attention(q, k, v, degree=g, scale=1.0, engine="triton")
    return found


def _alone(g: int, tensors: list[Tensor], pass_: str) -> Callable[[], Any]:
    """The launches of the kernels and nothing else: no check of entries, nothing that waits for the GPU.

    The weights, the keys' mean and each query's σ² are made beforehand, when the work is first called.
    """

    @cache
    def given() -> tuple[Any, ...]:
        return _statistics(g, *tensors[:3])

    def launched() -> Any:
        from iocourse.lowrank.tensors.launched import low_rank_backward, low_rank_forward

        q, k, v, *setting, shift = given()
        found = low_rank_forward(q, k, v, *setting, shift=shift)
        if pass_ == PASSES[0]:
            return found
        return low_rank_backward(q, k, v, *found, tensors[3][None, None], *setting, shift=shift)

    return launched


def _statistics(g: int, q: Tensor, k: Tensor, v: Tensor) -> tuple[Any, ...]:
    """The launches' q, k, v (1, 1, n, d), plan, weights (rank,), σ² (1, 1, n) and keys' mean (1, 1, d)."""
    import torch

    from iocourse.lowrank.polynomials import CLIP, polynomial
    from iocourse.monomials import plan

    p, mean = plan(q.shape[1], g), k.mean(0)
    weights = polynomial("hermite", g).coefficients[p.degrees] * p.multiplicities
    rest = k - mean
    variance = ((q @ (rest.T @ rest / len(k))) * q).sum(1).clamp(max=CLIP)
    on_device = torch.as_tensor(weights, dtype=torch.float32, device=q.device)
    heads = (x[None, None] for x in (q, k, v))
    return (*heads, p, on_device, variance[None, None], mean[None, None])


def _exact(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ours(q[None, None], k[None, None], v[None, None], False, scale=1.0)[0, 0]


def main(path: Path) -> int:
    """Measure the section alone, for a visit to a GPU; its record on disk grows with each length."""

    def keep(found: Row) -> None:
        about = {name: found[name] for name in ("date", "cores", "versions", "device", "shapes")}
        write_json(path, {"subject": "lowrank", **about, "gpu": found})
        print(f"{found['shapes']['done']} of {found['shapes']['asked']} lengths", flush=True)

    found = section(keep)
    if "absent" in found:
        print(found["absent"], file=sys.stderr)
    return int("absent" in found)


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
