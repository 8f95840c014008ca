"""Files that benchmarks write."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path


def write_json(path: Path, content: object) -> None:
    """Writes JSON to a temporary file that then takes the place of the old one."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps(content, indent=1) + "\n")
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
