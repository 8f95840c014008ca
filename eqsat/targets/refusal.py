"""Why a target does not run an operator: the question that users of partitioners ask most ("why is it on the CPU?")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.rules import ast
from eqsat.rules.evaluation import holds
from eqsat.rules.expand import operators
from eqsat.rules.print_term import flat
from eqsat.schema.types import OpKey
from eqsat.targets.wording import findings

_LONGEST = 80
"""Characters of a condition that are worth showing where a ``because`` explains it."""


def refusal(target: ast.Target, op: OpKey, entries: Sequence[ast.Supports], env: Mapping[str, object]) -> str:
    """The reason as a phrase, empty if one of the entries takes the operator.

    Args:
        entries: The target's entries for this operator.
        env: The operator's names and facts (``names.bind_operands``).
    """
    reasons: dict[str, None] = {}
    for entry in entries:
        failed = holds(entry.where, env)
        if failed is None:
            return ""
        reasons[condition_in_words(failed, env)] = None
    if reasons:
        return f"{target.name} runs {op} only where " + "; or where ".join(reasons)
    composites = [c.name for c in target.composites if op in operators(*c.patterns)]
    if composites:
        return f"{target.name} runs {op} only within {', '.join(composites)}"
    return f"operator not supported by {target.name}"


def condition_in_words(failed: ast.Condition, env: Mapping[str, object]) -> str:
    """The part of a condition that fails: requirement, the file's explanation, what was found."""
    part = _failing(failed, env)
    requirement = flat(part)
    found = findings(part, env)
    here = f": {found}" if found else ""
    if failed.because is None:
        return f"{requirement}{here}"
    if len(requirement) > _LONGEST:
        return f"{failed.because}{here}"
    return f"{requirement} ({failed.because}){here}"


def _failing(condition: ast.Condition, env: Mapping[str, object]) -> ast.Expr:
    """Of ``a and b`` the side that fails."""
    expr = condition.expr
    while isinstance(expr, ast.Binary) and expr.op == "and":
        left = ast.Condition(expr.left, None, condition.place)
        expr = expr.right if holds((left,), env) is None else expr.left
    return expr
