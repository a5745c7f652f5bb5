"""`iocourse profile WHAT`: print the bytes that one launch of the kernels must move, by its closed form.

This module parses the arguments into a LaunchRequest and prints the report. `launch_cost` finds the pass that
`attention` would launch, computes its closed form and its compulsory bytes, and needs torch and triton.
`recorded` prints the hardware counters of recorded launches, for `--recorded`.
`tools/bench/counters.py` of a checkout counts the bytes that a GPU moves.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

from .. import console
from ..count import mask_specs
from ..data.records import run_metadata
from ..errors import UsageError
from ..files import write_json
from ..gpu.chips import CHIPS
from ..gpu.choices import PASSES

FORWARD, BACKWARD = PASSES[:2]  # names of the choices


class Launch(NamedTuple):
    """A kind of launch: its description, its kernels in order, its tiles by their names in the choices, and
    the options that it takes in addition to the common ones.

    choice: the choice that `attention` or `decode` makes for it, of `iocourse.gpu.choices`. value: the value
    of this choice that has these kernels, or "" for the recorded value. Without kernels it stands for the
    launch with the recorded value.
    """

    meaning: str
    kernels: tuple[str, ...]
    tiles: tuple[str, ...]
    options: tuple[str, ...] = ("causal",)
    choice: str = FORWARD
    value: str = ""


LAUNCHES = {
    "forward": Launch("the forward pass that attention launches", (), ()),
    "backward": Launch("the backward pass that attention launches", (), (), choice=BACKWARD),
    "complete-rows": Launch(
        "forward pass, tiles of complete rows", ("forward_kernel",), ("forward",), value="complete rows"),
    "fused-backward": Launch(
        "D, then dQ, dK and dV in one kernel, dQ by atomic additions",
        ("row_products_kernel", "backward_keys_kernel"), ("fused",), choice=BACKWARD, value="fused"),
    "split-backward": Launch(
        "D and dQ, then dK and dV, every sum in a fixed order",
        ("backward_queries_kernel", "backward_keys_kernel"), ("queries", "keys"),
        choice=BACKWARD, value="two-pass"),
    "decode": Launch(
        "one query per head and N keys, split into parts, and the merge",
        ("parts_kernel", "merge_kernel"), (), ("parts",), choice="decode step"),
    "small-cache-fused": Launch(
        "forward with d in slices, scores not materialised",
        ("sliced_forward_kernel",), ("sliced_forward",), value="slices"),
    "small-cache-materialised": Launch(
        "forward with d in slices, scores materialised",
        ("scores_kernel", "averages_kernel"), ("scores", "averages"), value="materialised"),
    "small-cache-fused-backward": Launch(
        "backward with d in slices: D, then dQ, and then dK and dV",
        ("row_products_kernel", "sliced_queries_kernel", "sliced_keys_kernel"),
        ("sliced_queries", "sliced_keys"), choice=BACKWARD, value="slices"),
    "small-cache-materialised-backward": Launch(
        "backward with d in slices, P and dS materialised, then dQ, and then dK and dV",
        ("row_products_kernel", "weights_kernel", "query_gradients_kernel", "key_gradients_kernel"),
        ("weights", "query_gradients", "key_gradients"), choice=BACKWARD, value="materialised"),
    "block-sparse": Launch(
        "forward with a block mask", ("forward_kernel",), ("forward",), ("block_mask", "block")),
    "packed": Launch(
        "forward over packed sequences", ("forward_kernel",), ("forward",),
        ("causal", "lengths")),
}  # fmt: skip
DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4}  # bytes per number
N, D, D_SLICED = 4096, 128, 512  # defaults
LONGEST_MASK = 16384  # the closed form of a block mask evaluates every pair
ARCH = 90  # default
ROWS = {"read": "read", "added": "added to", "written": "written", "total": "total"}
ADDITIONS = (
    "An atomic addition is sent to L2 once and executed there, so it counts once here; a ledger counts one "
    "read and one write."
)


def _said(meaning: str, default: Any = MISSING, **how: Any) -> Any:
    """Return a dataclass field with its options for argparse; {} in the help text stands for `default`."""
    return field(default=default, metadata={"help": meaning.format(default), **how})


@dataclass(frozen=True)
class LaunchRequest:
    """The arguments of one launch. For packed sequences N is the sum of `lengths`; `parts` is 0 for the
    default of the chip.
    """

    what: str
    N: int = _said(f"sequence length ({N})", type=int)
    d: int = _said(f"head dimension ({D}; small caches {D_SLICED})", type=int)
    kv_heads: int = _said("key and value heads (default: as many as query heads)", type=int)
    heads: int = _said("query heads ({})", 16, type=int)
    batch: int = _said("batches ({})", 1, type=int)
    dtype: str = _said(", ".join(DTYPES) + " ({})", "bfloat16")
    causal: bool = _said("query i attends to keys 0 … i", False, action="store_true")
    block_mask: str = _said("for block-sparse: as --mask of iocourse count", "", metavar="SPEC")
    block: int = _said("for block-sparse: rows and columns per block ({})", 64, type=int, metavar="B")
    lengths: Sequence[int] = _said("for packed: rows of each sequence", (), metavar="L1,L2,…")
    parts: int = _said("for decode: parts of the keys (default: 4; launches on a GPU have more)", 0, type=int)

    @property
    def itemsize(self) -> int:
        """Bytes per number of Q, K and V."""
        return DTYPES[self.dtype]

    @property
    def sliced(self) -> bool:
        """True if d is split into slices."""
        return self.what.startswith("small-cache")

    @property
    def mask(self) -> Any:
        """The mask that `block_mask` names. Raises UsageError if it is not a mask or N is too large."""
        if not self.block_mask:
            raise UsageError(f"block-sparse needs --block-mask SPEC, one of {mask_specs.FORMS}")
        if self.N > LONGEST_MASK:
            allowed = f"at most {LONGEST_MASK}, because its closed form evaluates every pair"
            raise UsageError(f"--N is {self.N}, but with block-sparse it must be {allowed}")
        return mask_specs.mask_from_spec(self.block_mask, self.N, self.block, option="--block-mask")


OPTIONS = {one.name: dict(one.metadata) for one in fields(LaunchRequest) if one.metadata}  # for argparse


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add WHAT and the options of a launch to a parser."""
    parser.add_argument("what", metavar="WHAT", nargs="?", default="", help="the launch")
    for name, how in OPTIONS.items():
        parser.add_argument(option(name), **how)


def parse_request(arguments: argparse.Namespace) -> LaunchRequest:
    """Parse the arguments into a LaunchRequest. Raises UsageError naming the argument."""
    what = arguments.what
    _check_what(what)
    said = {name: value for name, value in vars(arguments).items() if name in OPTIONS and value is not None}
    _refuse_what_it_does_not_take(what, said)
    heads = said.get("heads", LaunchRequest.heads)
    said = {"N": N, "d": D_SLICED if what.startswith("small-cache") else D, "kv_heads": heads} | said
    if heads % said["kv_heads"]:
        raise UsageError(f"--kv-heads must divide --heads, {heads}, got {said['kv_heads']}")
    if what == "packed":
        lengths = _lengths(said.get("lengths"))
        said |= {"lengths": lengths, "N": sum(lengths)}
    asked = LaunchRequest(what, **said)
    if what == "block-sparse":
        asked.mask  # noqa: B018  # raises UsageError for an invalid mask
    return asked


def _check_what(what: str) -> None:
    if what not in LAUNCHES:
        came = f"WHAT {what!r} is unknown" if what else "WHAT is missing"
        raise UsageError(f"{came}. Use one of: {', '.join(LAUNCHES)}")


def option(name: str) -> str:
    """Return the command-line option of a field: --kv-heads for kv_heads."""
    return "--" + name.replace("_", "-")


def _refuse_what_it_does_not_take(what: str, said: dict[str, Any]) -> None:
    for name in dict.fromkeys(name for one in LAUNCHES.values() for name in one.options):
        takers = [launch for launch, one in LAUNCHES.items() if name in one.options]
        if said.get(name, False) is not False and what not in takers:
            raise UsageError(f"{what} does not take {option(name)}. Use it with: {', '.join(takers)}")
    if what == "packed" and "N" in said:
        raise UsageError("packed does not take --N, because --lengths sets the length of each sequence")
    if what == "packed" and said.get("batch", 1) != 1:
        raise UsageError(f"--batch must be 1 with packed, got {said['batch']}. The sequences are the batch")
    if "dtype" in said and said["dtype"] not in DTYPES:
        raise UsageError(f"--dtype must be one of {', '.join(DTYPES)}; got {said['dtype']!r}")
    for name, how in OPTIONS.items():
        if how.get("type") is int and said.get(name, 1) < 1:
            raise UsageError(f"{option(name)} must be at least 1, got {said[name]}")


def _lengths(text: str | None) -> list[int]:
    if text is None:
        raise UsageError("packed needs --lengths L1,L2,…, for example --lengths 4096,1024,300")
    parts = text.split(",")
    if not all(part.strip().isdecimal() for part in parts) or not any(map(int, parts)):
        came = f"got {text!r}"
        raise UsageError(f"--lengths must be integers separated by commas, not all of them 0, {came}")
    return list(map(int, parts))


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Add `profile` to the subparsers of the command line and set its handler."""
    meaning = "print the bytes that one launch must move"
    listed = "; ".join(f"{name}: {one.meaning}" for name, one in LAUNCHES.items())
    parser = commands.add_parser(
        "profile", help=meaning, description=f"{meaning}. WHAT is one of: {listed}.", allow_abbrev=False
    )
    parser.set_defaults(handler=profile)
    add_options(parser)
    parser.add_argument(
        "--closed-form", action="store_true",
        help="print the closed form, as without this option; to count bytes on a GPU, run "
             "`python -m tools.bench.counters WHAT` in a checkout of iocourse",
    )  # fmt: skip
    parser.add_argument(
        "--recorded", action="store_true",
        help="print the hardware counters of the recorded launches, of all or of WHAT, next to the closed "
             "form with the tiles of the run; options select launches",
    )  # fmt: skip
    parser.add_argument(
        "--arch", type=int, default=ARCH, help=f"use the tiles of this chip, such as 90 for sm_90 ({ARCH})"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the numbers to FILE")


def profile(arguments: argparse.Namespace) -> int:
    """Run `iocourse profile`: print the report and return 0. Raises UsageError (exit code 2)."""
    record, report = (_recorded if arguments.recorded else _computed)(arguments)
    print(report)
    if arguments.json:
        write_json(arguments.json, record)
    return 0


def _recorded(arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    from . import recorded

    if arguments.what:
        _check_what(arguments.what)
    given = recorded.given_sizes(vars(arguments))
    record = recorded.recorded_launches(arguments.what, given, arguments.arch)
    return record, (recorded.details if arguments.what else recorded.summary)(record)


def _computed(arguments: argparse.Namespace) -> tuple[dict[str, Any], str]:
    request = parse_request(arguments)
    if arguments.arch not in CHIPS:
        raise UsageError(f"--arch must be one of {', '.join(map(str, CHIPS))}; got {arguments.arch}")
    try:
        from .launch_cost import cost
    except ImportError as error:  # the tiles and the closed forms need the kernels
        raise UsageError(str(error)) from None
    must = cost(request, arguments.arch)
    record = {
        "subject": "profile", **run_metadata("torch", "triton"), "question": asdict(must.request),
        "place": f"tiles of sm_{arguments.arch}", "tiles": must.tiles, "choice": must.reason,
        "bytes": {"compulsory": must.compulsory, "closed_form": must.bytes},
    }  # fmt: skip
    return record, launch_report(record)


def launch_report(record: dict[str, Any]) -> str:
    """Format a record: the launch, the choice with its reason, a table of its bytes, and their ratio to the
    compulsory bytes.
    """
    least, moved = record["bytes"]["compulsory"], record["bytes"]["closed_form"]
    lines = [["bytes", "compulsory", "closed form"]]
    for row, name in ROWS.items():
        if row != "added" or moved["added"]:
            lines.append([name, "" if row == "added" else f"{least[row]:,}", f"{moved[row]:,}"])
    said = [f"The closed form is {moved['total'] / least['total']:.2f} times the compulsory bytes."]
    said += [ADDITIONS] * bool(moved["added"])
    return console.paragraphs(f"{heading(record)}\n{record['choice']}", console.table(lines), "\n".join(said))


def heading(record: dict[str, Any]) -> str:
    """Format the launch in one line, and the place and the tiles in a second one."""
    asked = record["question"]
    facts = {
        f"N = {asked['N']}, d = {asked['d']}, {console.with_unit(asked['heads'], 'head')}": True,
        f"{asked['kv_heads']} of keys": asked["kv_heads"] != asked["heads"],
        f"{asked['batch']} batches": asked["batch"] > 1,
        "causal": asked["causal"],
        f"mask {asked['block_mask']} in blocks of {asked['block']}": asked["block_mask"],
        console.with_unit(len(asked["lengths"]), "sequence"): asked["lengths"],
        console.with_unit(asked["parts"], "part"): asked["what"] == "decode",
        asked["dtype"]: True,
    }
    tiles = ", ".join(f"{name} {' × '.join(map(str, tile[:-2]))}" for name, tile in record["tiles"].items())
    told = ", ".join(filter(facts.get, facts))
    return f"{asked['what']}: {told}\n{record['place']}; tiles {tiles}"
