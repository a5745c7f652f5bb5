"""Lesson 00: alternative correct answers, and wrong answers that no recorded mutant covers."""

from harness import Suite


def by_rows(Nq, Nk, d):
    return d * (Nq + Nq + Nk + Nk)


SUITES = (Suite("0A", right=by_rows),)
