"""JupyterLab's server: `python -m iocourse.course.lab.server` with JupyterLab's options.

Among what JupyterLab brings is a checker of international web addresses, which takes half the time of its
start to load. jsonschema asks for it and does without where it is not there; nothing of Jupyter's has such
addresses to check.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    from jupyterlab.labapp import main

    sys.exit(main())
