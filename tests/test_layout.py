"""The house keeps its order: imports point one way, files say what they are for, and only one place prints."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "eqsat"

# A room may import from itself and from those above it; docs/architecture.md says what each is for.
ROOMS = (
    "text",
    "errors",
    "files",
    "bounds",
    "schema",
    "ops",
    "model",
    "frontends",
    "rules",
    "egraph",
    "targets",
    "extract",
    "partition",
    "execute",
    "stages",
    "check",
    "audit",
    "codegen",
    "report",
    "verify",
    "result",
    "search",
    "quantization",
    "api",
    "cli",
    "__main__",
)
LONGEST = 450

FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(tree: ast.AST, path: Path) -> list[tuple[int, str]]:
    """Line and room of each import from eqsat, those inside functions and ``TYPE_CHECKING`` included."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found: list[tuple[int, str]] = []
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join(base + (node.module.split(".") if node.module else []))
            modules = [f"{module}.{alias.name}" for alias in node.names] if module == "eqsat" else [module]
        for module in modules:
            parts = module.split(".")
            if parts[0] == "eqsat":
                found.append((node.lineno, parts[1] if len(parts) > 1 else "__init__"))
    return found


def breaches(path: Path, source: str) -> list[str]:
    """Imports in ``source`` that point downwards."""
    here = room_of(path)
    if here == "__init__":
        return []  # The top level gives out names of every room, lazily.
    allowed = {*ROOMS[: ROOMS.index(here) + 1], "__version__"}
    return [
        f"{name_of(path)}:{line} imports eqsat.{room}"
        for line, room in imported_rooms(ast.parse(source), path)
        if room not in allowed
    ]


def test_every_file_is_in_a_room() -> None:
    assert {room_of(path) for path in FILES} <= {"__init__", *ROOMS}


def test_imports_point_upwards() -> None:
    assert [b for path in FILES for b in breaches(path, path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    "source",
    [
        "import eqsat.execute.run",
        "from eqsat.api import optimize",
        "from eqsat import extract",
        "from ..targets import cost",
        "def f():\n    from eqsat.report import table",
        "import eqsat",
    ],
)
def test_a_breach_is_seen(source: str) -> None:
    assert breaches(PACKAGE / "rules" / "reader.py", source) != []
    assert breaches(PACKAGE / "rules" / "reader.py", "from eqsat.model import types\nfrom . import ast") == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_file(path: Path) -> None:
    source = path.read_text("utf-8")
    tree = ast.parse(source)
    assert ast.get_docstring(tree), "a file opens with what it is for"
    lines = source.count("\n")
    assert lines <= LONGEST, f"{lines} lines: one concept a file"
    if room_of(path) != "cli":
        # An imported `input` is not the built-in one: eqsat's own makes the input of a graph.
        imported = {a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        prints = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Call) and _prints(n.func, imported)]
        assert prints == [], "only the command line prints"
    elif path.name != "console.py":
        used = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Call) and _prints(n.func, set())]
        used += [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in ("secho", "print_exc")]
        used += [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n) == "click.echo"]
        assert used == [], "text reaches the terminal through eqsat/cli/console.py, which escapes it"


def test_files_are_written_in_one_place() -> None:
    """Whole or not at all: what opens a file for writing elsewhere writes to a folder of its own."""
    writes = re.compile(
        r"\bmkstemp\b|NamedTemporaryFile|\.write_bytes\(|\.write_text\(|os\.replace"
        r"""|open\([^)]*["'][wax]b?\+?["']"""
    )
    found = {name_of(path) for path in FILES if writes.search(path.read_text("utf-8"))}
    # The folders of these are made by eqsat/files.py, or are a compiler's.
    assert found == {
        "eqsat/files.py", "eqsat/codegen/folder.py", "eqsat/codegen/compiler.py", "eqsat/codegen/onednn/library.py"
    } | {"eqsat/execute/array_files.py"}  # fmt: skip


def _prints(function: ast.expr, imported: set[str]) -> bool:
    if isinstance(function, ast.Name):
        return function.id in {"print", "input"} - imported
    # sys.stdout.write(...), sys.stderr.write(...)
    return (
        isinstance(function, ast.Attribute)
        and function.attr == "write"
        and isinstance(function.value, ast.Attribute)
        and function.value.attr in ("stdout", "stderr")
    )
