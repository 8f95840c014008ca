"""What is known of an operator stands where it is declared; files that name many elsewhere are listed here."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import onnx

PACKAGE = Path(__file__).parent.parent / "eqsat"
NAMES = {schema.name for schema in onnx.defs.get_all_schemas_with_history()}

HOMES = ("ops/", "codegen/expressions/", "codegen/kernels/", "backends/")
"""Folders whose files are about single operators: their declarations, their C, a library's calls."""
MOST = 5
"""Operators that another file may name without being about operators."""
ABOUT_OPERATORS = {
    # The meaning of operators for proofs, which must not come from the kernels that proofs speak for.
    "proofs/arrays.py", "proofs/bits.py", "proofs/choices.py", "proofs/equal.py", "proofs/operators_of_every_rank.py",
    "proofs/polynomial.py", "proofs/reals.py", "proofs/term_tensors.py",
    # Operators whose results the standard decides to the bit.
    "proofs/all_values.py",
    # The history of the standard.
    "model/write/older.py", "schema/versions.py",
    # Mistakes of other implementations.
    "model/inference/corrections.py", "model/kept_floats.py", "model/read/converted.py",
    "verify/oracle.py",
    # Shapes that operators compute: sizes are followed through them, element by element.
    "model/inference/shape_values.py", "model/inference/size_elements.py", "model/inference/sized_shapes.py",
    # The same in C, where sizes are polynomials, and sizes that data decides.
    "codegen/data_axes.py", "codegen/data_sizes.py", "codegen/found_sizes.py", "codegen/value_ranges.py",
    # Programs of loops, as exporters write them.
    "control/recurrent/cells.py", "control/recurrent/rewrite.py", "control/recurrent/round.py",
    "control/recurrent/trips.py", "simplify/counted.py", "simplify/sequences.py",
    # Sums and products; the signs of Python.
    "egraph/free_constants.py", "model/expression.py",
}  # fmt: skip
SUFFIXES = frozenset({".py", ".pyi", ".json", ".jinja", ".c", ".js", ".lark"})
MOST_FILES = 6
"""Files of any kind that may name an activation: its declaration, C, a library, tables of schemas and of ONNX Runtime's
kernels, and stubs for editors. Its form for 8-bit integers follows from its declaration."""


def named(source: str) -> set[str]:
    """The operators of ONNX that strings of a file name, alone or in a list of words."""
    constants = (node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    lists = [text.split() for text in constants if isinstance(text, str)]
    return {word for words in lists if NAMES.issuperset(words) for word in words}


def files() -> dict[str, set[str]]:
    """The operators that each file names."""
    paths = sorted(PACKAGE.rglob("*.py"))
    return {path.relative_to(PACKAGE).as_posix(): named(path.read_text("utf-8")) for path in paths}


def test_files_that_are_not_about_operators_name_few() -> None:
    others = {name: found for name, found in files().items() if not name.startswith(HOMES)}
    many = {name for name, found in others.items() if len(found) > MOST}
    assert many == ABOUT_OPERATORS


def test_an_activation_is_named_in_few_files() -> None:
    texts = {path: path.read_text("utf-8") for path in PACKAGE.rglob("*") if path.suffix in SUFFIXES}
    for name in ("LeakyRelu", "HardSwish", "Elu", "Celu", "Selu", "ThresholdedRelu", "Shrink"):
        written = re.compile(rf"\b(QLinear)?{name}\b")
        where = [path.relative_to(PACKAGE).as_posix() for path, text in texts.items() if written.search(text)]
        assert len(where) <= MOST_FILES, f"{name}: {sorted(where)}"


def test_names_are_seen() -> None:
    assert named('X = {"Relu", "Elu"}\nY = "Celu Selu"\nZ = "Relu and Tanh"') == {"Relu", "Elu", "Celu", "Selu"}
