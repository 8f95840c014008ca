"""Named sets of operators in rules and target files, and sets made with ``let``."""

from __future__ import annotations

import json

import pytest

from eqsat.cli import main
from eqsat.errors import EqsatError
from eqsat.ops.sets import operator_sets
from eqsat.rules.ast import Match
from eqsat.rules.reader import read_text
from eqsat.schema.types import OpKey

HEAD = (
    "target t\n    peak float32 = 1e9\n    bandwidth = 1e9, launch = 1e-6\n    link bandwidth = 1e9, latency = 1e-6\n"
)
UNARY = operator_sets()["unary"].operators


def root(text: str) -> Match:
    (rule,) = read_text(text).rules
    (found,) = rule.left
    assert isinstance(found, Match)
    return found


def rule(pattern: str, right: str = "Identity(x)") -> str:
    return f"rule r : exact\n    {pattern}  =>  {right}\n"


def named(*names: str) -> tuple[OpKey, ...]:
    return tuple(OpKey("", n) for n in names)


def composite(pattern: str) -> Match:
    (target,) = read_text(f"{HEAD}    composite c : exact\n        {pattern}\n").targets
    found = target.composites[0].patterns[0]
    assert isinstance(found, Match)
    return found


def supported(entry: str, before: str = "") -> tuple[OpKey, ...]:
    (target,) = read_text(f"{before}{HEAD}    {entry}\n").targets
    return target.supports[0].ops


def test_a_set_stands_for_its_operators() -> None:
    assert root(rule("(f: unary)(x)", "f(x)")).ops == UNARY
    assert composite("unary(x)").ops == composite("(unary)(x)").ops == UNARY


def test_a_set_is_joined_with_others_without_repetition() -> None:
    assert root(rule("(f: Relu | unary | Tanh | Identity)(x)", "f(x)")).ops == (
        *named("Relu"),
        *(op for op in UNARY if op.name != "Relu"),
        *named("Identity"),
    )


def test_a_let_lists_operators() -> None:
    lets = "let soft = Softplus | Softsign\nlet some = Relu | soft\n"
    assert root(lets + rule("(f: some | Tanh)(x)", "f(x)")).ops == named("Relu", "Softplus", "Softsign", "Tanh")
    assert root(lets + rule("some(x)")).ops == named("Relu", "Softplus", "Softsign")
    assert root("let one = com.microsoft.QuickGelu\n" + rule("one(x)")).ops == (OpKey("com.microsoft", "QuickGelu"),)
    assert supported("supports some, Tanh", lets) == named("Relu", "Softplus", "Softsign", "Tanh")


def test_a_let_in_a_rule_is_used() -> None:
    text = "rule r : exact\n    let some = Relu | Tanh\n    some(x)  =>  Identity(x)\n"
    assert root(text).ops == named("Relu", "Tanh")


def test_a_let_is_looked_up_before_a_set() -> None:
    assert root("let unary = Relu | Tanh\n" + rule("unary(x)")).ops == named("Relu", "Tanh")
    assert root("let unary(v) = Relu(v)\n" + rule("unary(x)")).ops == named("Relu")


def test_a_set_of_another_domain() -> None:
    found = operator_sets()["com.microsoft.elementwise"].operators
    assert OpKey("com.microsoft", "QuickGelu") in found
    assert supported("supports com.microsoft.elementwise") == found
    assert supported("supports all", "let all = Relu | com.microsoft.elementwise\n") == (*named("Relu"), *found)


def test_sets_in_supports() -> None:
    assert supported("supports reductions") == operator_sets()["reductions"].operators
    assert supported("supports unary, Relu, Add") == (*UNARY, *named("Add"))
    (target,) = read_text(HEAD + "    supports reductions\n        where node.keepdims == 1, data.rank == 2\n").targets
    assert len(target.supports[0].where) == 2, "what all operators of the set have can be named"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (rule("(f: unari)(x)", "f(x)"), "no operator `unari`.*did you mean `unary`"),
        (rule("unari(x)"), "no operator `unari`.*did you mean `unary`"),
        (rule("(f: elementwise)(x)", "f(x)"), "Add"),
        (rule("com.microsoft.elementwise(x)"), "`com.microsoft.BiasAdd.*` needs its operand `bias`"),
        (HEAD + "    supports unari\n", "no operator `unari`.*did you mean `unary`"),
        (HEAD + "    supports unary, unary\n", "each operator must be listed once.*`unary` twice"),
        ("let k = 2\n" + rule("k(x)"), "an operator or a macro is required.*`k`, a `let` without parameters"),
        ("let k = Relu | x\n" + rule("k(x)"), "a `let` that lists operators"),
        ("let k = Relu | k\n" + rule("k(x)"), "k"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(EqsatError, match=f"(?s){message}"):
        read_text(text)


def test_the_sets_are_listed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["rules", "list", "--sets"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"unary: {', '.join(op.name for op in UNARY)}" in lines
    assert main(["rules", "list", "--sets", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(operator_sets())
    assert rows[1]["operators"] == [op.name for op in UNARY]
    assert main(["rules", "list", "--sets", "a.rules"]) != 0
    assert "no files are required with --sets" in capsys.readouterr().err
