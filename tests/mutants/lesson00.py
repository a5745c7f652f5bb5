"""Lesson 00: other right answers, and wrong ones that no recorded mutant stands for."""

from harness import Suite


def by_rows(Nq, Nk, d):
    return d * (Nq + Nq + Nk + Nk)


SUITES = (Suite("0A", right=by_rows),)
