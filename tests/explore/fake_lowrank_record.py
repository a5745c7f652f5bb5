"""Build records of `tools.bench lowrank` with made-up numbers, to test readers of records."""

PUBLISHED = {4: (4.673, 1.42), 8: (2.005, 9.43), 12: (0.773, 79.0)}
KINDS = (("ours", 8, 3), ("ours", 12, 2), ("ours", 12, 3), ("SDPA", 8, None), ("SDPA", 12, None))
CONTENDERS = {"Taylor": 2.0, "Hermite (ours)": 1.0, "FAVOR+": 60.0, "Nyström": 3.0}


def degree(g, error, speedup, **facts):
    """Return one degree of one row; the usual errors are twice those in the published metric."""
    each = {"O": error / 8, "dQ": error, "dK": error / 2, "dV": error / 4}
    usual = {name: 2 * value for name, value in each.items()}
    row = {"g": g, "rank": 10 * g, "ms": 1.5, "quartiles_ms": [1.4, 1.6], "repeats": 3, "speedup": speedup}
    row |= {"torch_ms": 2.0, "torch_speedup": 0.75 * speedup, "judged_error": error, "error": 2 * error}
    row |= {"their_error": 1.5 * error, "their_operator_ms": 3.0, "worst": error}
    row |= {"their_errors": each, "errors": usual}
    return row | {"forward_ms": 0.5, "forward_speedup": 1.1 * speedup} | facts


def row(d, *degrees, **facts):
    """Return one of the published rows: exact softmax takes 20 ms, and the speed-up of the script is 0.9
    times the published one.
    """
    error, speedup = PUBLISHED[d]
    found = {"d": d, "n": 10 * 2**d, "published_error": error, "published_speedup": speedup}
    found |= {
        "their_error": error,
        "their_ms": 20.0 / (0.9 * speedup),
        "in_place_ms": 30.0,
        "sdpa_ms": 20.0,
    }
    found |= {"in_place_note": "12 rows of scores at a time", "baseline": "SDPA", "baseline_ms": 20.0}
    return found | {"sdpa_forward_ms": 7.0, "degrees": list(degrees)} | facts


def time(who, d, g, n, threads, pass_):
    """Return times that are linear in n for ours and quadratic for SDPA."""
    ms = n / 1000 * (g or n / 100) * (3 if "+" in pass_ else 1)
    kind = {"contender": who, "d": d, "g": g, "n": n, "threads": threads, "pass": pass_}
    return kind | {"ms": ms, "quartiles_ms": [ms, ms], "repeats": 1}


def record(rows=None, lengths=(2**13, 2**15, 2**20), **facts):
    """Return a record with these rows in all three sections."""
    rows = rows or [
        row(d, degree(2, e / 2, 4 * s), degree(3, e / 9, 2 * s)) for d, (e, s) in PUBLISHED.items()
    ]
    passes = ("forward", "forward+backward")
    times = [
        time(who, d, g, n, threads, pass_)
        for n in lengths for who, d, g in KINDS for threads in (1, 2) for pass_ in passes
        if who == "ours" or (n <= 2**15 and threads == 1)
    ]  # fmt: skip
    errors = [{"d": 12, "n": n, "g": 3, "O": 0.2, "dQ": 1.5} for n in lengths]
    found = {"subject": "lowrank", "date": "no date", "cores": 2, "versions": {"made up": "0"}, "threads": 1}
    found |= {
        "device": {"name": "no processor: made-up numbers of a test"},
        "quick": True,
        "engine": "nothing",
    }
    found |= {"forward": rows, "gradient": rows, "causal": rows, "scaling": times, "scaling_errors": errors}
    found |= {
        "fits": _fits(),
        "memory": {"n": 2**20, "d": 12, "g": 3, "held": 100, "grown": 101, "ratio": 1.01},
    }
    found |= {
        "panels": _panels(),
        "gpu": {"absent": "no GPU, this is a test"},
        "seconds": 0,
        "load": 0.0,
    }
    return found | facts


def _fits():
    return [
        {"contender": who, "d": d, "g": g, "threads": 1, "pass": pass_, "exponent": 1.0 if g else 2.0,
         "ms_at_1": 1e-4, "lengths": 3, "from": 2**13, "to": 2**20 if g else 2**15}
        for who, d, g in KINDS for pass_ in ("forward", "forward+backward")
    ]  # fmt: skip


def _panels():
    rows = [
        {"spread": spread, "contender": who, "features": m, "n": 64, "d": 8, "error": factor * spread / m,
         "least": factor * spread / m, "largest": factor * spread / m, "ms": m / 100, "repeats": 1}
        for spread in (0.25, 2.0) for who, factor in CONTENDERS.items() for m in (45, 165, 495)
    ]  # fmt: skip
    alone = {"spread": 0.25, "contender": "elu + 1", "features": 8, "n": 64, "d": 8, "error": 40.0, "ms": 0.1}
    refused = {"spread": 2.0, "contender": "Taylor", "features": 9, "n": 64, "d": 8, "refused": "made up"}
    return [*rows, alone, refused]
