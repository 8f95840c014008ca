"""The house keeps its order: imports point one way, files say what they are for, and only one place prints."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "eqsat"

# A room may import from itself and from those above it; docs/architecture.md says what each is for.
ROOMS = (
    "version",
    "later",
    "text",
    "units",
    "errors",
    "files",
    "arguments",
    "bounds",
    "schema",
    "ops",
    "model",
    "rules",
    "egraph",
    "targets",
    "extract",
    "partition",
    "backends",
    "execute",
    "simplify",
    "stages",
    "progress",
    "check",
    "proofs",
    "audit",
    "explain",
    "codegen",
    "report",
    "verify",
    "equivalence",
    "result",
    "control",
    "search",
    "optimization",
    "reasons",
    "quantization",
    "discover",
    "api",
    "cli",
    "__main__",
)
LONGEST = 450

FILES = sorted(PACKAGE.rglob("*.py"))
OF_THE_WHOLE = ("benchmarks", "broken", "conformance", "data", "fuzz", "hostile", "quantized", "seeds")
"""Folders of tests that are about no single room."""


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
    allowed = set(ROOMS[: ROOMS.index(here) + 1])
    return [
        f"{name_of(path)}:{line} imports eqsat.{room}"
        for line, room in imported_rooms(ast.parse(source), path)
        if room not in allowed
    ]


def test_every_file_is_in_a_room() -> None:
    assert {room_of(path) for path in FILES} == {"__init__", *ROOMS}


def test_folders_of_tests_are_those_of_the_package() -> None:
    tests = ROOT / "tests"
    folders = {path.parent.relative_to(tests) for path in tests.rglob("*.py")}
    assert {
        str(f) for f in folders if f.parts and f.parts[0] not in OF_THE_WHOLE and not (PACKAGE / f).is_dir()
    } == set()


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


def faults(path: Path, source: str) -> list[str]:
    """What is wrong with a file."""
    tree = ast.parse(source)
    found = [] if ast.get_docstring(tree) else ["a file opens with what it is for"]
    lines = source.count("\n")
    if lines > LONGEST:
        found.append(f"{lines} lines: one concept a file")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if room_of(path) != "cli":
        # An imported `input` is not the built-in one: eqsat's own makes the input of a graph.
        imported = {a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
        found += [f"line {c.lineno}: only the command line prints" for c in calls if _prints(c.func, imported)]
    elif path.name != "console.py":
        used = [c.lineno for c in calls if _prints(c.func, set())]
        attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        used += [n.lineno for n in attributes if n.attr in ("secho", "print_exc") or ast.unparse(n) == "click.echo"]
        rule = "text reaches the terminal through eqsat/cli/console.py, which escapes it"
        found += [f"line {line}: {rule}" for line in used]
    return [f"{name_of(path)}: {fault}" for fault in found]


def test_files() -> None:
    assert [fault for path in FILES for fault in faults(path, path.read_text("utf-8"))] == []


@pytest.mark.parametrize(
    ("file", "source"),
    [
        ("rules/reader.py", "x = 1"),
        ("rules/reader.py", '"""Long."""' + "\n" * (LONGEST + 1)),
        ("rules/reader.py", '"""Prints."""\nprint(1)'),
        ("rules/reader.py", '"""Prints."""\nsys.stdout.write("")'),
        ("cli/rules.py", '"""Prints."""\nclick.echo(1)'),
        ("cli/rules.py", '"""Prints."""\nimport click\nclick.secho(1)'),
    ],
)
def test_a_fault_is_seen(file: str, source: str) -> None:
    assert len(faults(PACKAGE / file, source)) == 1
    assert faults(PACKAGE / file, '"""What it is for."""\n') == []


OF_OPERATORS = ("ops", "codegen", "backends")
"""Rooms with a file for each family of operators, in several folders: the family's name is what these files share."""


def repeated(paths: Iterable[str]) -> dict[str, list[str]]:
    """Names of more than two files, with those of them that are not about a family of operators."""
    by_name: dict[str, list[str]] = {}
    for path in paths:
        if not path.endswith("__init__.py"):
            by_name.setdefault(path.rsplit("/", 1)[-1], []).append(path)
    found = {name: [path for path in same if path.split("/")[0] not in OF_OPERATORS]
             for name, same in by_name.items() if len(same) > 2}  # fmt: skip
    return {name: others for name, others in found.items() if others}


def test_names_of_files_say_what_is_in_them() -> None:
    assert repeated(path.relative_to(PACKAGE).as_posix() for path in FILES) == {}


def test_a_repeated_name_is_seen() -> None:
    families = ["ops/families/pooling.py", "codegen/kernels/loops/pooling.py", "backends/onednn/pooling.py"]
    assert repeated([*families, "api.py"]) == {}
    assert repeated([*families, "report/pooling.py"]) == {"pooling.py": ["report/pooling.py"]}


def circles(imports: Mapping[str, Iterable[str]]) -> list[set[str]]:
    """Modules that import each other, directly or through others."""
    graph = nx.DiGraph([(module, other) for module, others in imports.items() for other in others if other != module])
    return [circle for circle in nx.strongly_connected_components(graph) if len(circle) > 1]


def imported_modules(path: Path, source: str) -> set[str]:
    """The modules of eqsat that a file imports anywhere in it; those for types only and by name included."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level + 1]) if node.level else []
            module = ".".join(base + (node.module.split(".") if node.module else []))
            names = {f"{module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else module for name in names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module") and node.args:
            named = node.args[0]
            found |= {str(named.value)} if isinstance(named, ast.Constant) else set()
    return found & MODULES.keys()


MODULES = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}


LOADED = [name for name, path in MODULES.items() if path.name == "__init__.py" and "pkgutil" in path.read_text("utf-8")]
"""Folders whose every file is loaded with the first."""
LOADERS = {"eqsat.ops.operators": "eqsat.ops.families", "eqsat.backends.find_backends": "eqsat.backends"}
"""Other modules that load every file or folder of a folder."""
BY_NAME = {"eqsat.later", "eqsat.egraph.bindings"}
"""Modules that import by a name that they compute: packages, and their own caller's modules."""


def loaded_with(module: str) -> str:
    """The folder that is loaded where a module is imported, or the module."""
    return next((folder for folder in LOADED if f"{module}.".startswith(f"{folder}.")), module)


def loaded_by(module: str) -> set[str]:
    """The modules that another finds in a folder and loads."""
    folder = LOADERS.get(module)
    if folder is None:
        return set()
    inner = {name for name in MODULES if name.rpartition(".")[0] == folder}
    packages = {name for name in inner if MODULES[name].name == "__init__.py"}
    return packages if folder == "eqsat.backends" else inner


def test_no_circle_of_imports() -> None:
    imports = {
        name: imported_modules(path, path.read_text("utf-8")) | loaded_by(name) for name, path in MODULES.items()
    }
    assert [sorted(circle) for circle in circles(imports)] == []
    # The files of a folder that is loaded as a whole are one module to the others.
    folders: dict[str, set[str]] = {}
    for name, others in imports.items():
        folders.setdefault(loaded_with(name), set()).update(map(loaded_with, others))
    assert [sorted(circle) for circle in circles(folders)] == []


def computed_imports(source: str) -> list[str]:
    """Imports of modules whose names are computed."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    named = [c for c in calls if re.search(r"\b(import_module|__import__)$", ast.unparse(c.func))]
    return [ast.unparse(c) for c in named if not (c.args and isinstance(c.args[0], ast.Constant))]


def test_imports_by_computed_names_are_known() -> None:
    found = {name for name, path in MODULES.items() if computed_imports(path.read_text("utf-8"))}
    assert found == {*LOADED, *LOADERS, *BY_NAME}


def test_a_circle_is_seen() -> None:
    types = "if TYPE_CHECKING:\n    from eqsat.rules.scope import Frame"
    named = "import importlib\nimportlib.import_module('eqsat.rules.ast')"
    reader, scope = PACKAGE / "rules" / "reader.py", PACKAGE / "rules" / "scope.py"
    assert imported_modules(reader, types) == {"eqsat.rules.scope"}
    assert imported_modules(scope, f"from . import reader\n{named}") == {"eqsat.rules.reader", "eqsat.rules.ast"}
    assert circles({"a": ["b"], "b": ["c"], "c": ["a", "d"], "d": []}) == [{"a", "b", "c"}]
    assert computed_imports("import_module(f'eqsat.{name}')\nimport_module('eqsat.rules')") == [
        "import_module(f'eqsat.{name}')"
    ]


def test_files_are_written_in_one_place() -> None:
    """Whole or not at all: what opens a file for writing elsewhere writes to a folder of its own."""
    writes = re.compile(
        r"\bmkstemp\b|NamedTemporaryFile|\.write_bytes\(|\.write_text\(|os\.replace"
        r"""|open\([^)]*["'][wax]b?\+?["']"""
    )
    found = {name_of(path) for path in FILES if writes.search(path.read_text("utf-8"))}
    # The folders of these are made by eqsat/files.py, or are a compiler's; a backend may look for its library with one.
    libraries = {name_of(path) for path in PACKAGE.glob("backends/*/library.py")}
    assert found - libraries == {
        "eqsat/files.py",
        "eqsat/codegen/folder.py",
        "eqsat/codegen/compiler.py",
        "eqsat/execute/array_files.py",
    }


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
