"""Outcomes of long runs in a file, so that one that was stopped goes on where it was.

The first line is a digest of the sources of eqsat and of these tests: outcomes of another program are not taken. What
went wrong is not kept either, as one wants to see it again.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
ENDINGS = {".py", ".jinja", ".c", ".lark", ".rules", ".target"}


class Progress:
    """What was seen to be well.

    Attributes:
        known: Outcome by way and case.

    Args:
        file: Where to keep it; None: nowhere.
    """

    def __init__(self, file: Path | None) -> None:
        self.known: dict[tuple[str, str], str] = {}
        self._file = file
        self._start = time.monotonic()
        if file is None:
            return
        head = digest()
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        if lines[:1] == [head]:
            for line in lines[1:]:
                if line.count("\t") == 2:  # a run that was stopped may leave half a line
                    how, name, outcome = line.split("\t")
                    self.known[how, name] = outcome
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(head + "\n", encoding="utf-8")

    def add(self, how: str, outcomes: Mapping[str, str]) -> None:
        """Keep what is well."""
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.writelines(f"{how}\t{n}\t{o}\n" for n, o in outcomes.items() if not o.startswith("fail"))

    def minutes(self) -> str:
        """Time since the beginning."""
        seconds = round(time.monotonic() - self._start)
        return f"{seconds // 60}:{seconds % 60:02} minutes"


def digest() -> str:
    """Of all that decides outcomes."""
    result = hashlib.sha256()
    for folder in ("eqsat", "rules", "tests/codegen", "tests/conformance", "tests/fuzz"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in ENDINGS:
                result.update(f"{path.relative_to(ROOT)}\0".encode() + path.read_bytes())
    return result.hexdigest()
