"""Example calls of all figures, typical and extreme, in addition to those registered with `@example`.

A figure without examples fails the tests.
"""

from functools import cache
from itertools import product

import numpy as np
from fake_depth_record import depth_record, trained_record, training_record
from fake_lowrank_record import degree as lowrank_degree
from fake_lowrank_record import record as lowrank_record
from fake_lowrank_record import row as lowrank_entry

from iocourse import exact, masks, pebbling, schedules
from iocourse.course import explore
from iocourse.course.explore.draw.picture import EXAMPLES as OWN_EXAMPLES
from iocourse.course.explore.models.kernel_explorer import NO_RECORDS
from iocourse.course.explore.models.memory_regimes import bounds_of
from iocourse.data import real_head, real_heads
from iocourse.gpu import CHIPS
from iocourse.machine import run


@cache
def ledger(name, N=48, d=8, M=700, **tiles):
    """Return the ledger of a real run."""
    rng = np.random.default_rng(0)
    arrays = {array: rng.normal(size=(N, d)) for array in ("Q", "K", "V")}
    return run(schedules.get(name), M=M, **arrays, **tiles).ledger


def attention(N):
    """Return the weights of the first stored head for its first N tokens, and the tokens."""
    head = real_head(*real_heads()[0])
    Q, K = head.Q[:N].astype(float), head.K[:N].astype(float)
    return exact.softmax(Q @ K.T / np.sqrt(Q.shape[1])), head.tokens[:N]


def compiled(**facts):
    """Return one made-up row of `python -m tools.bench resources`."""
    row = {"arch": 90, "d": 64, "bytes": 2, "kernel": "forward", "causal": True, "BM": 64, "BN": 64}
    row |= {"warps": 4, "stages": 2, "registers": 100, "spill_bytes": 0, "shared_bytes": 40_000}
    return row | {"tensor_core": 16, "async_copies": 8, "bulk_reductions": 0} | facts


def sweep(arch, d=64, **facts):
    """Return made-up rows that grow with the tile: some spill, and the largest exceeds every chip."""
    return [
        compiled(
            arch=arch, d=d, BM=BM, BN=BN, warps=warps, registers=min(255, BM * BN // warps // 4),
            spill_bytes=max(0, BM * BN // warps - 2000), shared_bytes=BM * BN * 16, **facts,
        )
        for BM in (64, 128)
        for BN in (16, 32, 64, 128)
        for warps in (4, 8)
    ]  # fmt: skip


def refused(row):
    """Return the row of the same tile if the compiler refuses it."""
    return {name: row[name] for name in ("arch", "d", "BM", "BN", "warps")} | {"error": "PTXASError: made up"}


def compiled_keys():
    """Return the keys of a row other than its tile and its resources."""
    return {"bytes": 2, "kernel": "forward", "causal": True, "stages": 2}


def made_up_records(rows):
    """Return records in which only these rows of `python -m tools.bench resources` exist."""
    return NO_RECORDS._replace(resources={"versions": {"triton": "made up"}, "shipped": rows})


CONTENDERS = ("fused", "two-pass", "SDPA flash", "SDPA cuDNN",
              "SDPA efficient", "SDPA math", "FlexAttention", "tutorial",
              "tutorial, warp-specialised")  # fmt: skip


def bench_record(Ns, contenders=CONTENDERS, pass_="forward", kinds=(0, 1)):
    """Return a record of `python -m tools.bench attention` with made-up numbers, marked as such."""
    rows = []
    for N, kind, (k, contender) in product(Ns, kinds, enumerate(contenders)):
        row = {"dtype": "bfloat16", "d": 128, "N": N, "B": max(1, 16_384 // N), "H": 16}
        row |= {"causal": bool(kind), "pass": pass_, "contender": contender}
        rows.append(row | _answer(contender, N, 100.25 + 7 * k + N / 1000 - 30 * kind))
    device = {"name": "no device: made-up numbers of a test"}
    record = {"subject": "attention", "date": "no date", "cores": 0, "versions": {"made up": "0"}}
    return record | {"quick": True, "device": device, "rows": rows, "errors": [], "means": [], "goals": []}


def _answer(contender, N, tflops):
    if contender == "SDPA math" and N > 4096:
        return {"refused": "made up: out of memory"}
    ratio = None if contender == "tutorial" else tflops / 114.25
    return {"ms": 1.0, "quartiles_ms": [1.0, 1.0], "repeats": 1, "tflops": tflops, "ratio": ratio}


TRAININGS = [("uniform", None, 0.2), ("taylor", 2, 0.03), ("hermite", 2, 0.03), ("minimax", 2, 0.02),
             ("taylor", 4, 3e-3), ("hermite", 4, 2e-3), ("minimax", 4, 0.0)]  # fmt: skip
ON_90 = {"device": {"name": "no device: made-up numbers of a test", "arch": 90}}
COLUMN_BY_COLUMN = [(i, j) for j in range(5) for i in range(4)]
RAGGED = masks.BlockMask(1000, np.ones((7, 8), bool), 150, 130, causal=True)
MATMUL = pebbling.matmul(2, 2, 2, fma=True)
SIZES = [256, 512, 1024, 2048]
EXAMPLES = {
    "traffic_vs_memory": [
        lambda: explore.traffic_vs_memory(4096, 64),
        lambda: explore.traffic_vs_memory(1, 1),
        lambda: explore.traffic_vs_memory(1000, 37, ["flash2", "naive"], (100, 9000)),
        lambda: explore.traffic_vs_memory(64, 16, ["flash1"], (2, 30)),
        lambda: explore.traffic_vs_memory(512, 32, [s.name for s in schedules.of_pass("forward")]),
    ],
    "curve": [
        lambda: explore.curve(
            {"naive": [(n, 5.1 * n * n) for n in SIZES], "flash2": [(n, 130 * n) for n in SIZES]},
            {"flash2": [(n, 128 * n) for n in SIZES], "4N²": [(n, 4 * n * n) for n in SIZES]},
            title="Words against N", xlabel="N", ylabel="words moved",
        ),
        lambda: explore.curve({"one": [(3, 7)]}, title="One point", xlabel="x", ylabel="y"),
        lambda: explore.curve(
            {"flat": [(-1, 0.5), (0, 0.5), (2, 0.5)]},
            title="Flat", xlabel="x", ylabel="y", log=(False, False),
        ),
        lambda: explore.curve(
            {}, {"falls": [(n, 1e6 / n) for n in SIZES]},
            title="With a note", xlabel="n", ylabel="y", notes={"falls": "slope −1"},
        ),
    ],
    "bars": [
        lambda: explore.bars({"Q": 65_536, "K": 1_048_576, "a long name": 0}, {"K": 524_288}, title="Words"),
        lambda: explore.bars({"a": 1, "b": 1e9}, title="Far apart", log=True, unit=""),
        lambda: explore.bars({}, {"only predicted": 3}, title="Nothing measured"),
    ],
    "tile_order": [
        lambda: explore.tile_order("flash2", 1000, 64, {"Br": 128, "Bc": 96}, step=9),
        lambda: explore.tile_order("flash1", 256, 64, {"Br": 32, "Bc": 64}),
        lambda: explore.tile_order("flash_optimal", 1024, 64, {"Br": 124, "Bc": 1}, step=700),
        lambda: explore.tile_order("flash1", 4096, 64, {"Br": 1, "Bc": 64}),
        lambda: explore.tile_order("flash2", 1, 1, {"Br": 7, "Bc": 9}, step=0),
        lambda: explore.tile_order("naive", 30, 4, {"Br": 7, "Bc": 9, "Bm": 3, "Bn": 2}),
        lambda: explore.tile_order("fused_backward", 64, 8, {"Br": 8, "Bc": 16}, step=3),
    ],
    "memory_timeline": [
        lambda: explore.memory_timeline(ledger("flash2", Br=16, Bc=8), 700),
        lambda: explore.memory_timeline(ledger("flash_optimal", N=200, M=900, Br=40, Bc=1), 900),
        lambda: explore.memory_timeline(ledger("naive", Br=16, Bc=8, Bm=16, Bn=8), 100, title="Too small"),
        lambda: explore.memory_timeline(ledger("flash1", N=1, d=1, Br=1, Bc=1), 7),
        lambda: explore.memory_timeline(ledger("scores_stored_tiled", d=16, Br=16, Bo=24, Bd=8), 160),
    ],
    "footprint_bar": [
        lambda: explore.footprint_bar({"Q": 4096, "O": 4096, "K": 4096, "V": 4096, "scores": 4096}, 16_384),
        lambda: explore.footprint_bar({"Q": 1}, 1),
        lambda: explore.footprint_bar({f"part {k}": 2**k for k in range(12)}, 100_000, title="Many parts"),
        lambda: explore.footprint_bar({"Q": 10_000}, 3),
    ],
    "attention_map": [
        lambda: explore.attention_map(*attention(20), title="Twenty tokens"),
        lambda: explore.attention_map(*attention(200)),
        lambda: explore.attention_map(attention(32)[0]),
        lambda: explore.attention_map([[1.0]]),
        lambda: explore.attention_map(np.zeros((3, 3))),
    ],
    "traffic_map": [
        lambda: explore.traffic_map(8192, 64, 16_384),
        lambda: explore.traffic_map(65_536, 256, 2**25),
        lambda: explore.traffic_map(4096, 64, 5000, "backward", bounds=bounds_of("backward")[:8]),
        lambda: explore.traffic_map(4096, 64, 600, "gradient"),
        lambda: explore.traffic_map(1024, 128, bounds=bounds_of("forward")),
        lambda: explore.traffic_map(4096, 64, 150, schedules=["flash_optimal", "flash2"], bounds=["A"]),
        lambda: explore.traffic_map(4096, 64, 2, schedules=[], bounds=["compulsory"]),
        lambda: explore.traffic_map(100, 16, 50, bounds=[], M_range=(40, 60)),
        lambda: explore.traffic_map(1, 1, 1),
        lambda: explore.traffic_map(3, 200, 700, "gradient"),
        lambda: explore.traffic_map(7, 1, 10**9, "backward"),
        lambda: explore.traffic_map(256, 4, 5, "backward"),
    ],
    "block_mask": [
        lambda: explore.block_mask(masks.causal(4096, 256), 64, title="Causal", cursor=(3, 2)),
        lambda: explore.block_mask(masks.bigbird(4096, 256, 1, 1, 2), 64),
        lambda: explore.block_mask(RAGGED, 64, 3000),
        lambda: explore.block_mask(masks.strided(2048, 64, 8), 64),
        lambda: explore.block_mask(masks.sliding_window(2000, 30, 1), 8),
        lambda: explore.block_mask(masks.BlockMask(9, np.zeros((5, 1), bool), 2, 99, allow_empty=True), 1),
        lambda: explore.block_mask(masks.causal(1, 1), 1, cursor=(0, 0)),
    ],
    "pebbles": [
        lambda: explore.pebbles(pebbling.optimum(pebbling.dot(2), 3), 6),
        lambda: explore.pebbles(pebbling.optimum(pebbling.softmax_row(3), 3), 0),
        lambda: explore.pebbles(pebbling.optimum(MATMUL, 4, slide=True), 13),
        lambda: explore.pebbles(pebbling.optimum(pebbling.attention(2, 2, fma=True), 5, slide=True)),
        lambda: explore.pebbles(pebbling.optimum(pebbling.attention(2, 3, fma=True), 9, slide=True), 14),
        lambda: explore.pebbles(pebbling.attention(3, 3), moves=["load q1"], M=40),
        lambda: explore.pebbles({"alone": []}, moves=["load alone"]),
        lambda: explore.pebbles({("a long name", 1): [], ("other", 2): [], "c" * 300: [("a long name", 1)]}),
    ],
    "loomis_whitney": [
        lambda: explore.loomis_whitney({"all": np.ones((3, 3, 3)), "none": np.zeros((3, 3, 3))}),
        lambda: explore.loomis_whitney({"one": [[[1]], [[True]], [[1.0]]]}, title="One word of each"),
        lambda: explore.loomis_whitney({"flat": [np.ones((1, 6)), np.ones((6, 2)), np.eye(1, 2)]}),
        lambda: explore.loomis_whitney(
            {"a diagonal": 3 * [np.eye(6)], "small": 3 * [np.eye(2)]}, title="T" * 90,
        ),
    ],
    "roofline": [
        lambda: explore.roofline(
            [75, 80, 90], {"naive": 15.9, "flash, BM = 64": 62, "flash, BM = 128": 125, "compulsory": 4096},
            title="Three chips",
        ),
        lambda: explore.roofline(list(CHIPS.values()), {f"a kernel, BM = {2**k}": 2**k for k in range(10)}),
        lambda: explore.roofline(90, {"made up": (300, 500), "above the roof, made up": (20, 150.5)}),
        lambda: explore.roofline(CHIPS[100], {}, title="Only the roof"),
        lambda: explore.roofline([75], {"far left": 1e-3, "far right, with a long name": 1e6, "same": 1e6}),
    ],
    "kernel_resources": [
        lambda: explore.kernel_resources([row for arch in CHIPS for row in sweep(arch)], d=64),
        lambda: explore.kernel_resources(sweep(75, tensor_core=0), d=64, warps=8, title="No tensor cores"),
        lambda: explore.kernel_resources([refused(row) for row in sweep(80)[:5]] + sweep(80)[5:], d=64),
        lambda: explore.kernel_resources([refused(compiled(d=7))], d=7),
        lambda: explore.kernel_resources([compiled(BM=BM, BN=16) for BM in (16, 32, 48, 64)], d=64),
    ],
    "kernel_explorer_picture": [
        lambda: explore.kernel_explorer_picture(),
        lambda: explore.kernel_explorer_picture(90, 128, causal=True),
        lambda: explore.kernel_explorer_picture(75, 128, records=NO_RECORDS),
        lambda: explore.kernel_explorer_picture(90, 64, "draft", 64, 64, 4, 2),
        lambda: explore.kernel_explorer_picture(80, 512, "fused", 256, 256, 16, 4, N=65_536, itemsize=4),
        lambda: explore.kernel_explorer_picture(90, 128, "keys", 64, 128, 16, 3, causal=True),
        lambda: explore.kernel_explorer_picture(100, 64, "queries", 16, 16, 1, 1, N=1),
        lambda: explore.kernel_explorer_picture(
            90, 64, "forward", 64, 64, 4, 2, causal=True, records=made_up_records(sweep(90)),
        ),
        lambda: explore.kernel_explorer_picture(
            90, 64, causal=True, BM=128, BN=16, warps=4, stages=2,
            records=made_up_records([refused(one) | compiled_keys() for one in sweep(90)]),
        ),
    ],
    "tuning_table_picture": [
        lambda: explore.tuning_table_picture(),
        lambda: explore.tuning_table_picture("draft, d = 128", "clock_model_tflops", "largest", stages=3),
        lambda: explore.tuning_table_picture("keys, d = 128, causal", "registers", rows=64, warpgroups=4),
        lambda: explore.tuning_table_picture("forward, d = 64", "spills", stages=1),
        lambda: explore.tuning_table_picture([{"ms": 1.0, "own": 3}], "own", "largest"),
        lambda: explore.tuning_table_picture([{"ms": k, "own": 10**k} for k in range(1, 10)], "own"),
    ],
    "low_rank_explorer_picture": [
        lambda: explore.low_rank_explorer_picture(),
        lambda: explore.low_rank_explorer_picture(4, head=(2, 9), polynomial="minimax"),
        lambda: explore.low_rank_explorer_picture(12, 2**22, 1024, d=128, sigma=2.0, polynomial="taylor"),
        lambda: explore.low_rank_explorer_picture(1, head=(0, 2), polynomial="chebyshev", B=8.0),
        lambda: explore.low_rank_explorer_picture(2, Q=np.ones((1, 1)), K=np.ones((1, 1)), B=0.01),
        lambda: explore.low_rank_explorer_picture(3, Q=1e3 * np.eye(9), K=1e3 * np.eye(9), B=1e3),
    ],
    "polynomial_errors": [
        lambda: explore.polynomial_errors(
            2, [("taylor", 3), ("chebyshev", 3), ("minimax", 3), ("hermite", 3)], variance=0.25, error=0.01,
        ),
        lambda: explore.polynomial_errors(4, [("taylor", g) for g in (1, 2, 3, 4, 5, 6, 12)]),
        lambda: explore.polynomial_errors(300, [("hermite", 2)], variance=9.0, title="T" * 90),
        lambda: explore.polynomial_errors(0.001, [("minimax", 8), ("taylor", 12)], error=1.0),
    ],
    "rank_growth": [
        lambda: explore.rank_growth(of="rank", lines={"a million tokens": 1e6}, degrees=range(1, 7)),
        lambda: explore.rank_growth([1], [3], lines={}),
        lambda: explore.rank_growth(range(1, 8), range(1, 40), title="T" * 90),
    ],
    "traffic_vs_length": [
        lambda: explore.traffic_vs_length(12, 3, [4096, 16_384, 65_536]),
        lambda: explore.traffic_vs_length(64, 6, [1000], title="Far away, " * 9),
        lambda: explore.traffic_vs_length(1, 1, [2**30]),
        lambda: explore.traffic_vs_length(12, 3, [100, 16_384], Ns=(5, 6)),
    ],
    "mask_tiles": [
        lambda: explore.mask_tiles(masks.Causal(200), 64, 32, title="T" * 80),
        lambda: explore.mask_tiles(masks.Causal(1), 9),
        lambda: explore.mask_tiles(masks.Full(1024), 16),
        lambda: explore.mask_tiles(masks.BlockMask(9, np.zeros((5, 1), bool), 2, 99, allow_empty=True), 1),
    ],
    "causal_tiles": [
        lambda: explore.causal_tiles(512, 64),
        lambda: explore.causal_tiles(500, 64, at=4),
        lambda: explore.causal_tiles(500, 64, at=7, pass_="backward", title="T" * 90),
        lambda: explore.causal_tiles(2048, 32, at=0),
        lambda: explore.causal_tiles(1, 99, at=0, pass_="backward"),
    ],
    "benchmark_bars": [
        lambda: explore.benchmark_bars(bench_record((1024, 2048, 8192, 16_384))),
        lambda: explore.benchmark_bars(bench_record((128,), ("fused",)), causal=True),
        lambda: explore.benchmark_bars(
            bench_record((512, 8192), CONTENDERS[:7], "forward+backward", (0,)),
            pass_="forward+backward", title="T" * 100,
        ),
        lambda: explore.benchmark_bars(bench_record((8192,), ("SDPA math",))),
    ],
    "program_grid": [
        lambda: explore.program_grid(100, 70, 32, 16, outlined=(3, 4)),
        lambda: explore.program_grid(100, 70, 32, 16, order=COLUMN_BY_COLUMN, title="Column by column"),
        lambda: explore.program_grid(5, 50, 1, 64),
        lambda: explore.program_grid(1, 1000, 1, 128),
        lambda: explore.program_grid(1000, 1, 64, 1),
        lambda: explore.program_grid(1, 1, 1, 1, order=[(0, 0)], outlined=(0, 0)),
        lambda: explore.program_grid(3, 2, 128, 1024),
        lambda: explore.program_grid(2048, 2040, 64, 64, order=np.argwhere(np.ones((32, 32))).tolist()),
        lambda: explore.program_grid(1024, 1, 1, 1),
    ],
    "lowrank_vs_published": [
        lambda: explore.lowrank_vs_published(lowrank_record()),
        lambda: explore.lowrank_vs_published(lowrank_record(), section="gradient", title="T" * 90),
        lambda: explore.lowrank_vs_published(lowrank_record([lowrank_entry(4, lowrank_degree(3, 0.7, 2.0))])),
        lambda: explore.lowrank_vs_published(None),
    ],
    "lowrank_times": [
        lambda: explore.lowrank_times(lowrank_record()),
        lambda: explore.lowrank_times(lowrank_record(), 4, 2),
        lambda: explore.lowrank_times(lowrank_record([lowrank_entry(4, lowrank_degree(3, 0.7, 2.0))]), 4),
        lambda: explore.lowrank_times(None),
    ],
    "lowrank_scaling": [
        lambda: explore.lowrank_scaling(lowrank_record()),
        lambda: explore.lowrank_scaling(lowrank_record(lengths=(64,), fits=[])),
        lambda: explore.lowrank_scaling(lowrank_record(lengths=tuple(2**p for p in range(10, 21)))),
        lambda: explore.lowrank_scaling(None),
    ],
    "lowrank_baselines": [
        lambda: explore.lowrank_baselines(lowrank_record()),
        lambda: explore.lowrank_baselines(lowrank_record(), against="ms"),
        lambda: explore.lowrank_baselines(lowrank_record(panels=lowrank_record()["panels"][:1])),
        lambda: explore.lowrank_baselines(None),
    ],
    "depth_errors": [
        lambda: explore.depth_errors(depth_record()),
        lambda: explore.depth_errors(depth_record((1, 3), (2,), (0,)), what="W_QK", title="T" * 90),
        lambda: explore.depth_errors({"layers": depth_record((5,))["layers"]}),
        lambda: explore.depth_errors(trained_record(), what="trained"),
        lambda: explore.depth_errors(
            trained_record((3.0,), (7,), (2,), (0,), 1), what="trained", title="T" * 90
        ),
        lambda: explore.depth_errors(None),
    ],
    "training_curves": [
        lambda: explore.training_curves(training_record(TRAININGS)),
        lambda: explore.training_curves(training_record(TRAININGS[:2], 7, None), None, title="T" * 90),
        lambda: explore.training_curves({"training": training_record([], 40)["training"]}),
        lambda: explore.training_curves(None, None),
    ],
    "tile_tuner_picture": [
        lambda: explore.tile_tuner_picture(1024, 64, 16_384, 64, 32, "flash2", 17),
        lambda: explore.tile_tuner_picture(1024, 64, 16_384, 64, 64, "flash2", 60),
        lambda: explore.tile_tuner_picture(1000, 64, 16_384, 124, 1, "flash_optimal", 399),
        lambda: explore.tile_tuner_picture(65_536, 128, 2**20, 1024, 512, "flash1", 100),
        lambda: explore.tile_tuner_picture(65_536, 256, 2**20, 1024, 512, "naive", 30),
        lambda: explore.tile_tuner_picture(1, 1, 1, 8192, 5, "flash2", 3),
        lambda: explore.tile_tuner_picture(7, 3, 16, 1, 1, "flash1"),
    ],
}  # fmt: skip
CASES = [
    (f"{name}-{k}", draw)
    for name in sorted({*EXAMPLES, *OWN_EXAMPLES})
    for k, draw in enumerate([*OWN_EXAMPLES.get(name, ()), *EXAMPLES.get(name, ())])
]
drawn = cache(lambda draw: draw())  # one drawing of a case, for all who only look at it
drawn_anew = cache(lambda draw: draw())  # another of the same, for all who compare the two
