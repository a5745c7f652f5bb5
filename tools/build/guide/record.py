"""What is recorded for the guide, in `docs/mutants.json`: scores, and what refuses each common error.

`python -m tests.mutation --record` writes the scores of the exercises it ran, `--remarks` what refuses the
errors that the remarks name. What was not run stays as it was recorded before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from iocourse.refusal import Refused

FILE = Path("docs") / "mutants.json"
Record = dict[str, dict[str, Any]]


def read_record(root: Path) -> Record:
    """What is recorded, by exercise; nothing where there is no file. Raises Refused where it is broken."""
    path = root / FILE
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise Refused(f"{path} is not JSON: {error}") from None
    return dict(record)
