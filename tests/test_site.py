"""The site of the documentation: nothing is left out of it. `make docs` builds it; this needs no MkDocs."""

from __future__ import annotations

import base64
import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import eqsat
from tests.report.browser import ask, needs_browser

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mkdocs_hooks", ROOT / "mkdocs_hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_navigation_has_each_page_once() -> None:
    nav = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1]
    pages = [path.name for path in DOCS.glob("*.md")] + [f"examples/{path.stem}.md" for path in NOTEBOOKS]
    assert sorted(re.findall(r": ([\w./-]+\.md)$", nav, re.MULTILINE)) == sorted(pages)


def test_the_list_of_pages_is_complete() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (DOCS / "README.md").read_text("utf-8"))
    assert sorted([*listed, "README.md"]) == sorted(path.name for path in DOCS.glob("*.md"))


def test_the_reference_has_all_public_names() -> None:
    named = re.findall(r"^::: eqsat\.(\w+)$", (DOCS / "python.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(name for name in eqsat.__all__ if not name.startswith("__"))


def test_notebooks_become_pages() -> None:
    notebook_page = hooks().notebook_page
    for path in NOTEBOOKS:
        page = notebook_page(path.read_text("utf-8"))
        cells = json.loads(path.read_text("utf-8"))["cells"]
        assert page.count("````python\n") == sum(cell["cell_type"] == "code" for cell in cells)
        for link in re.findall(r"\]\(([^)#]+\.(?:md|ipynb))", page):
            target, notebook = DOCS / "examples" / link, ROOT / "examples" / f"{Path(link).stem}.ipynb"
            assert link.endswith(".md") and (target.resolve().exists() or notebook.exists())


def test_pictures_of_notebooks_are_on_their_pages() -> None:
    page = hooks().notebook_page((ROOT / "examples" / "optimize.ipynb").read_text("utf-8"))
    (data,) = re.findall(r'<img alt="[^"]+" src="data:image/svg\+xml;base64,([^"]+)">', page)
    drawn = ElementTree.fromstring(base64.b64decode(data))
    assert drawn.tag == "{http://www.w3.org/2000/svg}svg" and len(list(drawn.iter())) > 20
    assert "IPython.core.display.SVG object" not in page


def test_words_for_the_tests_are_left_out_of_fences() -> None:
    text = "```console skip\n$ ls\n```\n"
    assert hooks().on_page_markdown(text, page=None, config=None, files=None) == "```console\n$ ls\n```\n"


@needs_browser
def test_pages_from_disk_have_a_worker(tmp_path: Path) -> None:
    # As the search works: what it is told before the worker is ready is not lost, and its scripts come from beside it.
    (tmp_path / "worker.js").write_text(
        'const ready = importScripts("twice.js");'
        'addEventListener("message", async (e) => { await ready; postMessage(twice(e.data)); });',
        "utf-8",
    )
    (tmp_path / "twice.js").write_text("self.twice = (n) => 2 * n;", "utf-8")
    shim = (DOCS / "javascripts" / "iframe-worker.js").read_text("utf-8")
    page = f"<html><head><script>{shim}</script></head><body></body></html>"
    script = """
        const worker = new Worker("worker.js"), heard = [];
        const done = new Promise((resolve) => worker.addEventListener("message", (e) => {
          heard.push(e.data);
          if (heard.length === 2) resolve();
        }));
        worker.postMessage(1);
        worker.postMessage(21);
        await done;
        return heard;"""
    assert ask(page, script, tmp_path) == [2, 42]


def test_the_search_needs_no_server() -> None:
    settings = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert "\n  - offline\n" in settings
    (script,) = re.findall(r"polyfills: \[(.*)\]", settings)
    assert (DOCS / script).is_file()
