"""Why a target does not run an operator: the question that users of partitioners ask most ("why is it on the CPU?")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.rules import ast
from eqsat.rules.evaluation import holds
from eqsat.rules.expand import operators
from eqsat.rules.wording import condition_in_words
from eqsat.schema.types import OpKey


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
