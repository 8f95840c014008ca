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
    return sum(map(_built, rule.right)) > sum(map(_matched, rule.left))


def _built(template: ast.Template | None) -> int:
    if not isinstance(template, ast.Build):
        return 0
    return (template.op in ANNOTATIONS) + sum(map(_built, template.args))


def _matched(pattern: ast.Pattern | None) -> int:
    if isinstance(pattern, ast.Alternatives):
        return max(map(_matched, pattern.options), default=0)
    if not isinstance(pattern, ast.Match):
        return 0
    return any(op in ANNOTATIONS for op in pattern.ops) + sum(map(_matched, pattern.args))
