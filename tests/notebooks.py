"""Notebooks without a server: their cells run in IPython, as a notebook would run them.

    python -m tests.notebooks [FILE ...]     # runs the examples and writes what they print into them

A notebook's own outputs are what readers see, so `tests/test_examples.py` compares them with those of a new run.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.ipynb"))

# What two runs print differently: times of this machine, errors by rounding, and lines of files that change.
VARIES = re.compile(r"\d+(\.\d+)?e-\d+|(?<=seconds ).*|(?<=\.rules:)\d+|(?<=\.target:)\d+|[\d.]+ [µn]s")

CONFIG = {"HistoryManager": {"enabled": False}, "InteractiveShell": {"colors": "nocolor"}}

Notebook = dict[str, Any]


def executed(notebook: Notebook, folder: Path) -> Notebook:
    """The notebook with the outputs of its code cells, which run in ``folder``.

    Raises:
        RuntimeError: A cell fails.
    """
    from IPython.core.displayhook import CapturingDisplayHook
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    from traitlets.config import Config

    program = folder / ".bin" / "eqsat"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m eqsat "$@"\n', "utf-8")
    program.chmod(0o755)
    environment = {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "IPYTHONDIR": str(folder / ".ipython"),
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    cells: list[dict[str, Any]] = []
    with chdir(folder), patch.dict(os.environ, environment):
        shell = InteractiveShell(config=Config(CONFIG))
        shell.system = _print_command
        for cell in notebook["cells"]:
            if cell["cell_type"] != "code":
                cells.append(cell)
                continue
            values: list[dict[str, Any]] = []
            shell.display_trap.hook = CapturingDisplayHook(shell, values)
            with capture_output() as streams:
                done = shell.run_cell("".join(cell["source"]), store_history=False)
            if not done.success:
                raise RuntimeError(f"a cell fails: {''.join(cell['source'])}\n{streams.stdout}{streams.stderr}")
            cells.append(cell | {"outputs": _outputs(streams.stdout, values)})
    return notebook | {"cells": cells}


def _print_command(command: str) -> None:
    """A line that starts with `!`, without the terminal that IPython makes for it."""
    done = subprocess.run(["bash", "-c", command], encoding="utf-8", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, end="")


def _outputs(stdout: str, values: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Outputs in the form of a notebook's file."""
    found: list[dict[str, Any]] = []
    if stdout:
        found.append({"name": "stdout", "output_type": "stream", "text": _lines(stdout)})
    for value in values:
        data = {kind: _lines(text) for kind, text in value["data"].items()}
        found.append({"output_type": "execute_result", "execution_count": None, "data": data, "metadata": {}})
    return found


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def printed(notebook: Notebook) -> list[str]:
    """What each code cell prints, without what varies."""
    return [
        VARIES.sub("…", json.dumps(cell["outputs"], ensure_ascii=False, indent=0).replace("\\n", "\n"))
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def read(path: Path) -> Notebook:
    """A notebook's file."""
    return json.loads(path.read_text("utf-8"))


def main(names: Sequence[str]) -> None:
    """Run notebooks and write their outputs."""
    for path in [Path(name) for name in names] or EXAMPLES:
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(read(path), Path(folder))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")
        print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
