"""The README as a package index shows it, where relative links lead nowhere.

With a ``Source`` among the project's URLs, links lead there. Without one, links become their text, and pictures are
left out with the paragraph that describes them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

RELATIVE = r"(?![a-z]+:|#)"


class Readme(MetadataHookInterface):
    """Sets the dynamic field ``readme``."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling."""
        text = Path(self.root, "README.md").read_text("utf-8")
        source = metadata.get("urls", {}).get("Source", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_index(text, source)}


def for_index(text: str, source: str) -> str:
    """The text with absolute links."""
    if source:
        text = re.sub(rf'(<img src="){RELATIVE}', rf"\1{source}/raw/main/", text)
        return re.sub(rf"(\[[^\]]*\]\(){RELATIVE}", rf"\1{source}/blob/main/", text)
    text = re.sub(rf'<img src="{RELATIVE}[^>]*>\n\n.*?\n\n', "", text, flags=re.DOTALL)
    return re.sub(rf"\[([^\]]*)\]\({RELATIVE}[^)]*\)", r"\1", text)
