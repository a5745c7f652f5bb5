"""`python -m iocourse` is `iocourse`."""

from iocourse.cli import main

if __name__ == "__main__":  # and not in a process that `bench tune` starts, which imports this file too
    raise SystemExit(main())
