"""Patterns of composites that cannot match, found when a file is read.

A composite has one place in the model, so its results must hang together, be different values, and not be computed from
themselves. Each plain pattern of a composite is checked.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.rules.ast import Expr, Match, Name, Pattern, Rest, operands
from eqsat.rules.expand import Clause
from eqsat.rules.scope import Context
from eqsat.rules.tree import walk


def check_results(clauses: Sequence[Clause], names: Sequence[str], context: Context) -> None:
    """Checks the results of a composite.

    Args:
        clauses: All plain patterns.
        names: Of the results.

    Raises:
        TargetError: One is computed from itself, two are always one value, or one shares no operand with the others.
    """
    for clause in clauses:
        _check_order(clause, context)
        _check_connected(clause, names, context)
    for i, name in enumerate(names):
        for j in range(i):
            if all(c.roots[i].node == c.roots[j].node and c.roots[i].output == c.roots[j].output for c in clauses):
                raise context.error(
                    clauses[0].roots[i].place,
                    "each result must be a value of its own",
                    actual=f"`{name}` and `{names[j]}`, which are the same value",
                    hint="one name is enough, also for a result that another result uses",
                )


def check_buffers(
    call: Sequence[str | Expr], clauses: Sequence[Clause], names: Sequence[str], context: Context
) -> None:
    """Checks that the call of a composite with several results names no value that stays inside.

    Raises:
        TargetError: It does.
    """
    outside = {name for clause in clauses for name in _names_of_roots(clause)}
    for part in call if len(names) > 1 else ():
        if isinstance(part, Name) and part.name not in outside and context.bindings[part.name].kind == "node":
            raise context.error(
                part.place,
                f"an operand or a result is required: {', '.join(names)}",
                actual=f"`{part.name}`, a value inside of the composite, which is not in memory",
            )


def _names_of_roots(clause: Clause) -> set[str]:
    roots = {root.bind for root in clause.roots if root.bind is not None}
    return roots | {alias for alias, name in clause.aliases.items() if name in roots}


def _check_connected(clause: Clause, names: Sequence[str], context: Context) -> None:
    parts = [_mentioned(root, clause) for root in clause.roots]
    joined, found = {0}, set(parts[0])
    while more := [i for i, part in enumerate(parts) if i not in joined and part & found]:
        joined.update(more)
        found.update(*(parts[i] for i in more))
    apart = next((i for i in range(len(parts)) if i not in joined), None)
    if apart is not None:
        raise context.error(
            clause.roots[apart].place,
            "results that share operands are required, because a composite has one place in the model",
            actual=f"`{names[apart]}`, which shares no operand with `{names[0]}`: the composite cannot match",
            hint="use the name of an operand, or of a result, in both; patterns that share nothing are two composites",
        )


def _mentioned(root: Match, clause: Clause) -> set[str]:
    """Names of the values in a pattern."""
    found: set[str] = set()
    for part in walk((root,), operands):
        if isinstance(part, Name | Rest):
            found.add(clause.aliases.get(part.name, part.name))
        elif isinstance(part, Match) and part.bind is not None:
            found.add(part.bind)
    return found


def _check_order(clause: Clause, context: Context) -> None:
    """Raises: TargetError: A node is among its own operands."""
    nodes = {part.bind: part for part in walk(clause.roots, operands, once=True)
             if isinstance(part, Match) and part.bind is not None}  # fmt: skip
    done: set[str] = set()
    for name in nodes:
        _visit(name, nodes, clause, done, [], context)


def _visit(
    name: str, nodes: dict[str, Match], clause: Clause, done: set[str], above: list[str], context: Context
) -> None:
    if name in above:
        raise context.error(
            nodes[name].place,
            "a value must not be computed from itself",
            actual=f"`{name}` among its own operands: the composite cannot match",
        )
    if name in done:
        return
    for inner in _values_below(nodes[name]):
        inner = clause.aliases.get(inner, inner)
        if inner in nodes:
            _visit(inner, nodes, clause, done, [*above, name], context)
    done.add(name)


def _values_below(match: Match) -> list[str]:
    """Names that the operands of a node mention."""
    inner: tuple[Pattern, ...] = tuple(arg for arg in match.args if arg is not None)
    found: dict[str, None] = {}
    for part in walk(inner, operands, once=True):
        name = part.name if isinstance(part, Name) else part.bind if isinstance(part, Match) else None
        if name is not None:
            found.setdefault(name)
    return list(found)
