"""The formatter: one layout, comments kept, nothing else changed; and rules printed from what was read."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat.errors import RuleError, TargetError
from eqsat.rules.format import format_file
from eqsat.rules.location import rules_dir
from eqsat.rules.reader import read_text
from eqsat.rules.tree import without_places
from tests.rules.printing import format_composite, format_rule, pattern_text, shown
from tests.rules.reading import rule, target

SHIPPED = sorted(rules_dir().rglob("*.rules")) + sorted(rules_dir().rglob("*.target"))

LAYOUT_ALONE = ()
"""Cases that say nothing meaningful."""
LAYOUTS = sorted(p.stem for p in (Path(__file__).parent / "layouts").glob("*.before"))


def layout(name: str) -> tuple[str, str]:
    """A text as someone might type it, and its canonical form."""
    folder = Path(__file__).parent / "layouts"
    return tuple((folder / f"{name}.{suffix}").read_text(encoding="utf-8") for suffix in ("before", "after"))


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout(name: str) -> None:
    text, expected = layout(name)
    found = format_file(text)
    assert found == expected
    assert format_file(found) == found


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_said_stays(name: str) -> None:
    text, expected = layout(name)
    if name in LAYOUT_ALONE:
        with pytest.raises(RuleError):
            read_text(text)
        return
    assert without_places(read_text(expected)) == without_places(read_text(text))


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_shipped_files_say_the_same_when_formatted(path) -> None:
    text = path.read_text(encoding="utf-8")
    formatted = format_file(text, str(path))
    assert format_file(formatted, str(path)) == formatted
    assert without_places(read_text(formatted, str(path))) == without_places(read_text(text, str(path)))
    # Every comment is still there, and none is new.
    assert _comments(formatted) == _comments(text)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_shipped_files_are_in_canonical_form(path) -> None:
    text = path.read_text(encoding="utf-8")
    assert format_file(text, str(path)) == text, f"`eqsat rules format {path}` was not run"


def _comments(text: str) -> list[str]:
    from eqsat.rules.source import Source

    return sorted(c.text.strip() for c in Source("", text).comments)


@pytest.mark.slow
@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
def test_shipped_rules_print_as_they_were_read(path) -> None:
    found = read_text(path.read_text(encoding="utf-8"), str(path))
    for each in found.rules:
        printed = format_rule(each)
        assert without_places(rule(printed)) == without_places(each), printed
        assert (rule(printed).name, rule(printed).doc) == (each.name, each.doc)
        assert "\n" not in pattern_text(each)
    for described in found.targets:
        for each in described.composites:
            printed = format_composite(each)
            priced = f"\n    family {each.family}\n        cost launch" if each.family else ""
            (again,) = target(printed.strip() + priced, head="host h" if each.family else "target t").composites
            assert (again.name, again.doc, again.family) == (each.name, each.doc, each.family)
            assert without_places(again.patterns) == without_places(each.patterns), printed
            assert without_places(again.written) == without_places(each.written), printed
            assert without_places(again.where) == without_places(each.where), printed
            assert without_places(again.cost) == without_places(each.cost)


def test_a_rule_printed() -> None:
    found = rule(
        "rule fold : real\n    # One line.\n    # Another.\n"
        "    BatchNormalization(c: Conv(x, w, b?), gamma, beta, mean, var, epsilon=e)\n"
        "        =>  Conv(x, w * per_channel(k, w), (b - mean) * k + beta, **c)\n"
        "    let k = gamma / Sqrt(var + e)\n    where const(w, gamma)"
    )
    assert format_rule(found) == (
        "rule fold : real\n    # One line.\n    # Another.\n"
        "    BatchNormalization(c: Conv(x, w, b?), gamma, beta, mean, var, epsilon=e)\n"
        "        =>  Conv(\n"
        "                x,\n"
        "                w * Reshape(gamma / Sqrt(var + e), [-1] + [1] * (w.rank - 1)),\n"
        "                (b - mean) * (gamma / Sqrt(var + e)) + beta,\n"
        "                **c\n"
        "            )\n"
        "    where const(w, gamma)\n"
    )
    assert without_places(rule(format_rule(found))) == without_places(found)
    assert pattern_text(found) == (
        "BatchNormalization(c: Conv(x, w, b?), gamma, beta, mean, var, epsilon=e) => "
        "Conv(x, w * Reshape(gamma / Sqrt(var + e), [-1] + [1] * (w.rank - 1)), "
        "(b - mean) * (gamma / Sqrt(var + e)) + beta, **c)"
    )
    assert [shown(c.expr) for c in found.where] == ["const(w, gamma)"]
    assert str(found.numerics) == "real"


def test_a_let_whose_type_is_asked_is_printed_as_one() -> None:
    found = rule("Relu(x)  =>  Reshape(k, k.shape)\n    let k = Exp(x)")
    assert format_rule(found) == "rule r : exact\n    Relu(x)  =>  Reshape(k, k.shape)\n    let k = Exp(x)\n"


def test_a_shared_part_of_a_pattern_is_printed_as_a_let() -> None:
    found = rule("let s = x + y | x\n    s * Sigmoid(s)  =>  x\n    where s.rank == 2")
    assert format_rule(found) == (
        "rule r : exact\n    let s = x + y | x\n    s * Sigmoid(s)  =>  x\n    where s.rank == 2\n"
    )


def test_syntax_errors_are_those_of_the_reader() -> None:
    with pytest.raises(RuleError, match="a term is required"):
        format_file("rule a : exact\n    x + => x")
    with pytest.raises(TargetError, match=r"a\.target:1:1"):
        format_file("§", "a.target")
