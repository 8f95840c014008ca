"""Rules that place annotations: their right side has more of them than their left.

Every other rule says that two programs are equal, and the cheaper one is taken. An annotation is no work and makes no
program cheaper, so that nobody would ever take it. Such a rule is an instruction instead: wherever its left side stands
in the model, its right side takes the place (``partition/place.py``).
"""

from __future__ import annotations

from eqsat.ops.functions import ANNOTATIONS
from eqsat.rules import ast


def places_annotations(rule: ast.Rule) -> bool:
    """Whether applying the rule adds annotations."""
    bound: set[str] = set()
    left = sum(_matched(root, bound) for root in rule.left)
    return sum(_built(root, bound) for root in rule.right) > left


def _matched(pattern: ast.Pattern | None, bound: set[str]) -> int:
    """How many annotations a pattern matches; operators that may be one are added to ``bound`` by their name."""
    if isinstance(pattern, ast.Alternatives):
        return max((_matched(option, bound) for option in pattern.options), default=0)
    if not isinstance(pattern, ast.Match):
        return 0
    is_annotation = any(op in ANNOTATIONS for op in pattern.ops)
    if is_annotation and pattern.op_name is not None:
        bound.add(pattern.op_name)
    return is_annotation + sum(_matched(argument, bound) for argument in pattern.args)


def _built(template: ast.Template | None, bound: set[str]) -> int:
    if not isinstance(template, ast.Build):
        return 0
    is_annotation = template.op in bound if isinstance(template.op, str) else template.op in ANNOTATIONS
    return is_annotation + sum(_built(argument, bound) for argument in template.args)
