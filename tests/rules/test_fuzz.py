"""Whatever a file says, the reader answers with rules or with one of our errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.errors import RuleError, TargetError
from eqsat.rules.format import format_file
from eqsat.rules.location import rules_dir
from eqsat.rules.reader import read_text
from eqsat.rules.tree import without_places
from tests.rules.printing import format_rule, pattern_text

WORDS = [
    *(
        "rule",
        "let",
        "where",
        "because",
        "target",
        "host",
        "composite",
        "supports",
        "cost",
        "call",
        "within",
        "and",
        "or",
    ),
    *("not", "in", "if", "else", "for", "true", "false", "inf", "exact", "real", "lsb", "peak", "bandwidth", "launch"),
    *(
        "link",
        "latency",
        "summary",
        "maybe",
        "tensor",
        "const",
        "len",
        "range",
        "min",
        "x",
        "y",
        "w",
        "b",
        "c",
        "op",
        "p",
    ),
    *("xs", "Conv", "Relu", "Add", "Concat", "Split", "Transpose", "Reshape", "Clip", "com.microsoft.Gelu"),
    *("float32", "int8", "floats", "macs", "bytes", ":", "=", "=>", "<=>", "==", "!=", "<", "<=", "+", "-", "*", "/"),
    *("//", "%", "**", "@", "|", "(", ")", "[", "]", ",", ".", "...", "?", "_", "0", "1", "2", "0.5", "1e3", "-1"),
    *('"a"', "#", "\n", "‸", "'", "{", "}", "\\", "$"),
]


def answer(text: str) -> None:
    """Reads and formats a text; anything but our own errors is a failure."""
    try:
        found = read_text(text)
    except (RuleError, TargetError) as error:
        assert error.place.startswith("<text>:") or "prelude.rules:" in error.place
        assert error.requirement
        return
    formatted = format_file(text)
    assert without_places(read_text(formatted)) == without_places(found)
    assert format_file(formatted) == formatted
    for rule in found.rules:
        assert without_places(read_text(format_rule(rule)).rules[0]) == without_places(rule)
        assert pattern_text(rule)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    answer(text)


@settings(max_examples=200)
@given(st.lists(st.sampled_from(WORDS), max_size=30))
def test_any_words(words: list[str]) -> None:
    answer(" ".join(words))
    answer("rule r : exact\n    " + " ".join(words))
    answer("rule r : exact\n    Relu(x)  =>  x\n    where " + " ".join(words))


LEAVES = ["x", "y", "w", "x?", "_", "2", "-1", "0.5", "[1, 2]", "x.rank", "p", "xs...", "k", '"a"', "**c", "int8"]
CALLEES = ["Relu", "Conv", "Add", "Concat", "Clip", "f", "maybe(Pad)", "(op: Add | Mul)", "op", "len", "tensor", "Sum"]
SIGNS = ["+", "-", "*", "/", "@", "|", "==", "and", "**"]
TERMS = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: st.one_of(
        st.builds("{}({})".format, st.sampled_from(CALLEES), st.lists(inner, max_size=3).map(", ".join)),
        st.builds("({} {} {})".format, inner, st.sampled_from(SIGNS), inner),
        st.builds("Transpose({}, perm={})".format, inner, inner),
        st.builds("(c: {})".format, inner),
        st.builds("-{}".format, inner),
        st.builds("{}[{}]".format, inner, inner),
        st.builds("[{} for i in {}]".format, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=200)
@given(TERMS, TERMS, TERMS, TERMS)
def test_any_terms(left: str, right: str, let: str, condition: str) -> None:
    answer(f"let f(t) = t * {let}\nrule r : exact\n    {left}  =>  {right}\n    let k = {let}\n    where {condition}")
    answer(f"rule r : exact\n    {left}  <=>  {right}")
    answer(f"rule r : exact\n    {left}  =>  x")
    answer(
        "target t\n    peak int8 = 1\n    bandwidth = 1, launch = 1\n    link bandwidth = 1, latency = 1\n"
        f"    composite c : exact\n        {left}\n        where {condition}\n        cost {right}\n"
        f'        call "f({{{let}}})"'
    )


SHIPPED = sorted(rules_dir().rglob("*.rules")) + sorted(rules_dir().rglob("*.target"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.name)
@settings(max_examples=20)
@given(data=st.data())
def test_shipped_files_with_a_piece_cut_out_or_put_in(path: Path, data: st.DataObject) -> None:
    text = path.read_text(encoding="utf-8")[:4000]
    start = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 8))
    piece = data.draw(st.sampled_from(WORDS))
    try:
        read_text(text[:start] + piece + text[start + length :])
    except (RuleError, TargetError) as error:
        assert error.place
