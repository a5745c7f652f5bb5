"""Build records of `tools.bench lowrank` with made-up numbers, to test readers of records."""

PUBLISHED = {4: (4.673, 1.42), 8: (2.005, 9.43), 12: (0.773, 79.0)}
KINDS = (("ours", 8, 3), ("ours", 12, 2), ("ours", 12, 3), *(
    (run, d, None) for d in (8, 12) for run in ("SDPA", "compiled loops")
))  # fmt: skip
CONTENDERS = {"Taylor": 2.0, "Hermite (ours)": 1.0, "FAVOR+": 60.0, "Nyström": 3.0}
PASSES = ("forward", "forward+backward")
SECTIONS = ("forward", "gradient", "causal", "causal_gradient")


def errors(judged):
    """Return errors of all outputs; the usual ones are twice those in the published metric."""
    theirs = {"O": judged / 8, "dQ": judged, "dK": judged / 2, "dV": judged / 4}
    return {
        "errors": {name: 2 * error for name, error in theirs.items()},
        "their_errors": theirs,
        "judged": judged,
    }


def degree(g, error, speedup, **facts):
    """Return one degree of one row."""
    row = {"g": g, "rank": 10 * g, "ms": 1.5, "quartiles_ms": [1.4, 1.6], "repeats": 3, "speedup": speedup}
    return row | {"multiply_adds": speedup / 2} | errors(error) | facts


def row(d, *degrees, n=None, **facts):
    """Return a row: the fastest exact run, compiled loops, takes 20 ms, and the quotient of the script is 0.9
    times the published one. Without n it is a published row.
    """
    error, speedup = PUBLISHED[d] if n is None else (None, None)
    found = {"d": d, "n": n or 10 * 2**d, "published_error": error, "published_speedup": speedup}
    found |= {"their_error": PUBLISHED[d][0], "their_softmax_error": 2 * PUBLISHED[d][0]}
    found |= {"their_ms": 20.0 / (0.9 * PUBLISHED[d][1]), "their_multiply_adds": 4.0}
    found |= {"exact_ms": {"SDPA": 30.0, "in place": 40.0, "compiled loops": 20.0}}
    found |= {"baseline": "compiled loops", "baseline_ms": 20.0, "mean_of_v_error": errors(40.0)}
    return found | {"degrees": list(degrees)} | facts


def time(who, d, g, n, threads, pass_):
    """Return times that are linear in n for ours and quadratic for exact runs, of which SDPA is slower."""
    ms = n / 1000 * (g or n / 100) * (3 if "+" in pass_ else 1) * (2 if who == "SDPA" else 1)
    kind = {"contender": who, "d": d, "g": g, "n": n, "threads": threads, "pass": pass_}
    return kind | {"ms": ms, "quartiles_ms": [ms, ms], "errors": {"O": 0.2, "dQ": 1.5} if g else {}}


def record(rows=None, lengths=(2**13, 2**15, 2**20), **facts):
    """Return a record with these rows in all sections; only the forward section has the script."""
    rows = rows or [
        row(d, degree(2, e / 2, 4 * s), degree(3, e / 9, 2 * s)) for d, (e, s) in PUBLISHED.items()
    ] + [row(12, degree(2, 0.5, 8.0), n=4096)]
    times = [
        time(who, d, g, n, threads, pass_)
        for n in lengths for who, d, g in KINDS for threads in (1, 2) for pass_ in PASSES
        if who == "ours" or (n <= 2**15 and threads == 1)
    ]  # fmt: skip
    found = {"subject": "lowrank", "date": "no date", "cores": 2, "versions": {"made up": "0"}, "threads": 1}
    found |= {"device": {"name": "no processor: made-up numbers of a test", "vector_bits": 64}}
    found |= {"quick": True, "engine": "nothing", "seconds": 0, "load": 0.0}
    scripts = [name for name in rows[0] if name.startswith("their_")]
    others = [{name: value for name, value in one.items() if name not in scripts} for one in rows]
    found |= {section: rows if section == "forward" else others for section in SECTIONS}
    found |= {"scaling": times, "fits": _fits(), "panels": _panels(), "heads": []}
    found |= {"memory": {"n": 2**20, "d": 12, "g": 3, "held": 100, "grown": 101, "ratio": 1.01}}
    return found | facts


def _fits():
    return [
        {"contender": who, "d": d, "g": g, "threads": 1, "pass": pass_, "exponent": 1.0 if g else 2.0,
         "ms_at_1": 1e-4, "to": 2**20 if g else 2**15}
        for who, d, g in KINDS for pass_ in PASSES
    ]  # fmt: skip


def _panels():
    rows = [
        {"spread": spread, "contender": who, "features": m, "n": 64, "d": 8, "error": factor * spread / m,
         "ms": m / 100, "multiply_adds": 1152 * m}
        for spread in (0.25, 2.0) for who, factor in CONTENDERS.items() for m in (45, 165, 495)
    ]  # fmt: skip
    rows += [
        {"spread": spread, "contender": who, "features": features, "n": 64, "d": 8, "error": error, "ms": ms,
         "multiply_adds": 65_536}
        for spread in (0.25, 2.0)
        for who, features, error, ms in (
            ("mean of V", 1, 40.0, 0.01),
            ("exact, SDPA", None, 1e-5, 9.0),
            ("exact, compiled loops", None, 1e-4, 6.0),
        )
    ]  # fmt: skip
    alone = {
        "spread": 0.25,
        "contender": "elu + 1",
        "features": 8,
        "n": 64,
        "d": 8,
        "error": 40.0,
        "ms": 0.1,
        "multiply_adds": 9216,
    }
    refused = {
        "spread": 2.0,
        "contender": "Taylor",
        "features": 9,
        "n": 64,
        "d": 8,
        "multiply_adds": 9216,
        "refused": "made up",
    }
    return [*rows, alone, refused]
