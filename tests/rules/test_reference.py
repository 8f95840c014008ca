"""docs/rules.md is what the reader does: its examples are read, and it names all there is."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from eqsat.errors import RuleError
from eqsat.ops.sets import operator_sets
from eqsat.rules.builtin_functions import FUNCTIONS
from eqsat.rules.declarations import Let
from eqsat.rules.element_types import DTYPE_LISTS
from eqsat.rules.kinds import FACTS
from eqsat.rules.location import rules_dir
from eqsat.rules.parse import parse
from eqsat.rules.reader import read_text
from eqsat.rules.source import Source, Sources
from eqsat.rules.syntax_errors import RESERVED
from tests.rules.reading import pattern, rule

REFERENCE = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
EXAMPLES = [textwrap.dedent(b) for b in re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", REFERENCE, flags=re.MULTILINE)]


def section(title: str) -> str:
    return REFERENCE.partition(f"### {title}\n")[2].partition("\n##")[0]


def rows(title: str) -> list[tuple[str, ...]]:
    """The first table of a section, without its head; code in the first column taken apart."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]) for line in lines[1:]]


def test_examples_are_read() -> None:
    read = [read_text(e) for e in EXAMPLES if e.strip().startswith(("rule", "target"))]
    assert [len(f.rules) + len(f.targets) for f in read] == [1, 1, 1, 1, 1, 1]
    roots = next(e for e in EXAMPLES if e.strip().startswith("a = MatMul"))
    assert len(rule(roots.strip()).left) == 2


@pytest.mark.parametrize(
    "form",
    [f.replace("\\|", "|") for row in rows("Patterns") for f in re.findall(r"`([^`]*)`", row[0]) if f not in "-*/@"],
)
def test_forms_of_patterns(form: str) -> None:
    complete = {
        "A | B": "Relu(x) | Tanh(x)",
        "b?": "Conv(x, w, b?)",
        "xs...": "Sum(xs...)",
        "[n, -1]": "Softmax(Reshape(x, [n, -1]), axis=n)",
    }
    assert pattern(complete.get(form, f"Identity({form})"))


def test_all_functions_facts_and_words_are_named() -> None:
    words = set(re.findall(r"\w+", section("Conditions and expressions")))
    assert set(FUNCTIONS) <= words
    assert set(FACTS) <= words
    assert set(DTYPE_LISTS) <= words
    text = re.search(r"`(rule let where.*?)`", section("Text"), flags=re.DOTALL)
    assert text is not None
    assert set(text.group(1).split()) == RESERVED


def test_the_named_sets_of_operators_are_named() -> None:
    assert [row[0].strip("`") for row in rows("Named sets of operators")] == list(operator_sets())


def test_the_macros_of_the_prelude_are_named() -> None:
    source = Source("prelude", (rules_dir() / "prelude.rules").read_text(encoding="utf-8"))
    lets = [d for d in parse(source, Sources()).declarations if isinstance(d, Let)]
    assert lets
    for let in lets:
        assert f"`{let.name}({', '.join(let.parameters or ())})`" in section("let")


@pytest.mark.parametrize("word", sorted(RESERVED - {"true", "false", "inf"}))
def test_reserved_words_are_no_names(word: str) -> None:
    with pytest.raises(RuleError, match="required"):
        rule(f"Relu({word})  =>  {word}")
