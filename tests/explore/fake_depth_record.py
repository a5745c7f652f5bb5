"""Build records of `python -m tools.bench depth` with made-up numbers, marked as such."""

from math import cos, exp


def depth_record(layers=(1, 2, 4, 8, 12), degrees=(2, 3, 4), seeds=(0, 1)):
    """Return a record with errors that grow about as √m, without training."""
    rows = [
        {"layers": m, "degree": g, "gradient_degree": g + more, "seed": seed}
        | {
            what: 10.0 ** -(g + more) * m**0.5 * (1 + 0.1 * seed)
            for what in ("output", "dX", "parameters", "W_QK")
        }
        for m in layers
        for g in degrees
        for more in (0, 1)
        for seed in seeds
    ]
    return made_up({"layers": {"rows": rows}})


def training_record(ways, steps=400, bound=2.0):
    """Return a record with falling losses: exact attention and each of (attention, degree, difference)."""
    exact = [2.4 + 2 * exp(-t / 40) + 0.05 * cos(t) for t in range(steps)]
    runs = [
        {
            "bound": bound,
            "attention": name,
            "degree": g,
            "losses": [x + off * cos(3 * t) for t, x in enumerate(exact)],
        }
        for name, g, off in [("exact", None, 0.0), *ways]
    ]
    return made_up({"training": {"runs": runs}})


def made_up(parts):
    """Add the date and the versions that every record has."""
    return {"date": "no date", "versions": {"made up": "0"}} | parts
