"""Helpers of the tests of the rule language."""

from __future__ import annotations

from eqsat.rules import ast
from eqsat.rules.reader import read_text

MARK = "‸"
"""Stands in a text where an error is expected to point."""


def rule(text: str) -> ast.Rule:
    """The single rule of a text; a text without a header gets one."""
    rules = read_text(text if text.startswith("rule ") else f"rule r : exact\n    {text}").rules
    assert len(rules) == 1
    return rules[0]


def pattern(text: str) -> ast.Match | ast.Alternatives:
    """A pattern by itself, as the composite of a target: nothing need be built of it."""
    return composite(text).patterns[0]


def composite(text: str) -> ast.Composite:
    """A composite by its body."""
    return target(f"composite c : exact\n        {text}").composites[0]


def target(items: str = "", *, head: str = "target t") -> ast.Target:
    """A target with the settings that it must have."""
    link = "link bandwidth = 1e9, latency = 1e-6" if head.startswith("target") else ""
    text = f"{head}\n    peak float32 = 1e12\n    bandwidth = 1e9, launch = 1e-6\n    {link}\n    {items}\n"
    return read_text(text).targets[0]


def expression(text: str, *, given: str = "n: Conv(x, w, b?)") -> ast.Expr:
    """An expression over the names that a pattern binds, of whatever kind."""
    cost = composite(f"{given}\n        cost len([{text}])").cost
    assert isinstance(cost, ast.Apply)
    items = cost.args[0]
    assert isinstance(items, ast.Sequence)
    return items.items[0]


def at(text: str) -> tuple[str, int, int]:
    """The text without its mark, and the line and column of the mark."""
    before, _, after = text.partition(MARK)
    assert MARK in text
    assert MARK not in after
    return before + after, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
