"""How long a large report takes: to be written, and to be opened in Chromium up to the first picture.

    python -m benchmarks.report_page [--nodes 1000 5000] [--json FILE]

Columns: ``write``: CPU seconds for layout and page; ``MB``: its size; ``open``: milliseconds from the navigation until
scripts, tables and both drawings are done, the least of three; ``search``: milliseconds to search all nodes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.executor import table
from benchmarks.output import write_json
from eqsat.report.html import to_html
from tests.report.browser import ask
from tests.report.large import large

_SCRIPT = """
const opened = performance.now(), input = document.querySelector("#graph input");
document.body.getBoundingClientRect();
const start = performance.now();
input.value = "add"; input.dispatchEvent(new Event("input"));
return [opened, performance.now() - start];
"""


def measure(nodes: int) -> dict[str, Any]:
    """One row of the table."""
    summary = large(nodes)
    start = time.process_time()
    html = to_html(summary)
    written = time.process_time() - start
    runs = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            runs.append(ask(html, _SCRIPT, Path(folder), real_time=True))
    return {
        "nodes": nodes,
        "write": written,
        "MB": len(html.encode()) / 1e6,
        "open": min(opened for opened, _ in runs),
        "search": min(search for _, search in runs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = [measure(nodes) for nodes in arguments.nodes]
    print(table(rows))
    if arguments.json:
        write_json(arguments.json, rows)


if __name__ == "__main__":
    main()
