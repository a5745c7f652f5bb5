"""What exercise 0A must refuse and accept."""

from harness import Suite


def by_rows(Nq, Nk, d):
    return d * (Nq + Nq + Nk + Nk)


SUITES = (Suite("0A", right=by_rows),)
