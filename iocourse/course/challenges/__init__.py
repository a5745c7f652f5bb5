"""Open challenges, one file each: nobody here knows the best schedule. `setting.py` says what a challenge is,
`best.py` what the library can do, `referee.py` how a schedule is tried.
"""
