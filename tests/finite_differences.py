"""Slopes of a loss by central differences, each with a bound on its error, for tests of gradients."""

import numpy as np

UNIT = np.finfo(np.float64).eps / 2
STEP = float(np.cbrt(UNIT))  # 5e-6: with it both errors are near u^(2/3), 2e-11, in units of the loss
# The losses of the tests add up to 100 numbers near 1, each after up to 100 operations whose errors are
# independent in size: below 1,000 unit roundoffs of the loss and of 1.
ROUNDINGS = 1000


def slope(f):
    """Return the derivative of f at 0, and a bound on the error of this number.

    Truncation: that of D(h) = (f(h) - f(-h)) / 2h is h² f⁽³⁾ / 6, and that of D(2h) four times as much, so
    |D(2h) - D(h)| is three times the truncation of D(h). Rounding: the error of one value of f, over h.
    """
    near, far = ((f(h) - f(-h)) / (2 * h) for h in (STEP, 2 * STEP))
    return near, abs(far - near) + ROUNDINGS * UNIT * (1 + abs(f(0.0))) / STEP


def wrong_entries(loss, at, gradient):
    """Return the entries of the gradient of `loss` at `at` that slopes refute: index -> (slope, entry)."""
    found = {}
    for index in np.ndindex(at.shape):
        unit = np.zeros_like(at)
        unit[index] = 1
        wanted, error = slope(lambda t, unit=unit: loss(at + t * unit))
        if not abs(gradient[index] - wanted) <= error:
            found[index] = (wanted, gradient[index])
    return found
