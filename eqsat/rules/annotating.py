"""Rules that place annotations: their right side has more of them than their left.

Every other rule says that two programs are equal, and the cheaper one is taken. An annotation is no work and makes no
program cheaper, so that nobody would ever take it. Such a rule is an instruction instead: wherever its left side stands
in the model, its right side takes the place (``partition/place.py``).
"""

from __future__ import annotations

from eqsat.ops.functions import ANNOTATIONS
from eqsat.rules import ast
from eqsat.rules.tree import walk


def places_annotations(rule: ast.Rule) -> bool:
    """Whether applying the rule adds annotations."""
    bound = {m.op_name for m in walk(rule.left, ast.operands, once=True) if isinstance(m, ast.Match) and _annotates(m)}
    built = [t.op for t in walk(rule.right, ast.operands) if isinstance(t, ast.Build)]
    return sum(op in ANNOTATIONS or op in bound for op in built) > sum(map(_matched, rule.left))


def _annotates(match: ast.Match) -> bool:
    return any(op in ANNOTATIONS for op in match.ops)


def _matched(pattern: ast.Pattern | None) -> int:
    """How many annotations a pattern matches, whichever of its alternatives it is."""
    if isinstance(pattern, ast.Alternatives):
        return max(map(_matched, pattern.options), default=0)
    return _annotates(pattern) + sum(map(_matched, pattern.args)) if isinstance(pattern, ast.Match) else 0
