"""The notebooks of `examples/`: their outputs are what their cells print, and readers find them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.notebooks import EXAMPLES, ROOT, executed, printed, read


@pytest.mark.slow
@pytest.mark.every_case
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_outputs_are_what_the_cells_print(path: Path, tmp_path: Path) -> None:
    committed = read(path)
    # `python -m tests.notebooks` writes them anew.
    assert printed(executed(committed, tmp_path)) == printed(committed)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_notebooks_are_complete(path: Path) -> None:
    notebook = read(path)
    assert notebook["cells"][0]["cell_type"] == "markdown"
    assert any(cell.get("outputs") for cell in notebook["cells"])
    text = "".join("".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown")
    for target in re.findall(r"\]\(([^)#\s]+)\)", text):
        assert (path.parent / target).is_file(), f"{path.name} links to {target}"
    assert f"examples/{path.name}" in (ROOT / "README.md").read_text("utf-8")


def test_a_cell_that_fails_is_seen(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": ["1 / 0"], "outputs": []}]
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        executed({"cells": cells}, tmp_path)


def test_another_output_is_seen(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": [text], "outputs": []} for text in ("print(1)\n2", "!echo three", "None")]
    found = executed({"cells": cells}, tmp_path)
    assert [cell["outputs"] for cell in found["cells"]] == [
        [
            {"name": "stdout", "output_type": "stream", "text": ["1\n"]},
            {
                "output_type": "execute_result",
                "execution_count": None,
                "data": {"text/plain": ["2"]},
                "metadata": {},
            },
        ],
        [{"name": "stdout", "output_type": "stream", "text": ["three\n"]}],
        [],
    ]
    assert printed(found) != printed({"cells": cells})
