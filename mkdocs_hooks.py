"""What MkDocs does not read by itself: notebooks as pages, and fences as the tests of the documentation write them.

MkDocs finds the functions by their names; mkdocs.yml is its configuration.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent


def on_files(files: Any, *, config: Any) -> Any:
    """Adds a page for each notebook."""
    from mkdocs.structure.files import File

    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        files.append(File.generated(config, f"examples/{path.stem}.md", content=notebook_page(path.read_text("utf-8"))))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Takes words after the language of a fence away: they are for the tests, and not understood here."""
    return re.sub(r"^(\s*```\w+)[ \t].*$", r"\1", markdown, flags=re.MULTILINE)


def notebook_page(text: str) -> str:
    """The cells of a notebook, and the text that each has printed."""
    parts: list[str] = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            # Pages of the documentation are in the same place as on a code host, seen from examples/.
            source = source.replace("](../docs/", "](../")
            parts.append(re.sub(r"\]\((\w+)\.ipynb\)", r"](\1.md)", source))
        elif cell["cell_type"] == "code":
            parts.append(f"````python\n{source}\n````")
            parts += [picture for output in cell["outputs"] if (picture := _picture(output))]
            if printed := "".join(map(_printed, cell["outputs"])).rstrip():
                parts.append(f"````text\n{printed}\n````")
    return "\n\n".join(parts) + "\n"


def _picture(output: dict[str, Any]) -> str:
    """The picture of one output of a cell; empty if it has none."""
    drawn = "".join(output.get("data", {}).get("image/svg+xml", ""))
    data = base64.b64encode(drawn.encode()).decode()
    return f'<img alt="Output of the cell above" src="data:image/svg+xml;base64,{data}">' if drawn else ""


def _printed(output: dict[str, Any]) -> str:
    """The text of one output of a cell that is no picture."""
    if _picture(output):
        return ""
    return "".join(output.get("text") or output.get("data", {}).get("text/plain", ""))
