"""Open challenges, one file each: the best schedule is not known.

`challenge_spec.py` says what a challenge is, `library_best.py` what the library can do, `scoring.py` how a
schedule is tried.
"""
