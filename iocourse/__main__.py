"""`python -m iocourse` is `iocourse`."""

import sys

if __name__ == "__main__":  # and not in a process that this one starts, which imports this file too
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder: a random.py there does not stand for Python's own
    from iocourse.cli import main

    raise SystemExit(main())
