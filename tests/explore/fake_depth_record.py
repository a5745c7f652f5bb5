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


def trained_record(bounds=(None, 2.0), steps=(0, 60, 200), degrees=(2, 4, 6), seeds=(0, 1), layers=4):
    """Return a record of gradients at trained weights whose errors add in quadrature, up to 2 % per seed."""
    rows = []
    for bound in bounds:
        for seed in seeds:
            for step in steps:
                for g in degrees:
                    sigma = 0.7 if bound else 0.3 + step / 100
                    alone = [10.0**-g * (1 + at) * (1 + step) for at in range(layers)]
                    root = sum(x * x for x in alone) ** 0.5
                    rows.append(
                        {"bound": bound, "seed": seed, "step": step, "degree": g, "loss": 2.0, "norm": 1.0}
                        | {"sigma": [sigma] * layers, "by_layer": alone, "alone": alone, "cosine": 1.0}
                        | {"root_of_squares": root, "together": root * (1 + 0.02 * seed), "sum": sum(alone)}
                    )
    return made_up({"trained_gradient": {"rows": rows}})


def made_up(parts):
    """Add the date and the versions that every record has."""
    return {"date": "no date", "versions": {"made up": "0"}} | parts
