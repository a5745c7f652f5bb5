"""`python -m iocourse` is `iocourse`."""

from iocourse.cli import main

raise SystemExit(main())
