"""Run the command line with `python -m iocourse`."""

import sys

if __name__ == "__main__":  # False in processes that this one starts, which import this file too
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder, where a random.py would hide Python's own
    from iocourse.cli import main

    raise SystemExit(main())
