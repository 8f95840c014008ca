"""The site of the documentation: nothing is left out of it. `make docs` builds it; this needs no MkDocs."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import eqsat

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


def test_words_for_the_tests_are_left_out_of_fences() -> None:
    text = "```console skip\n$ ls\n```\n"
    assert hooks().on_page_markdown(text, page=None, config=None, files=None) == "```console\n$ ls\n```\n"
