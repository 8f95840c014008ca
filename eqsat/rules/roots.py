"""The roots of a pattern: the values that a rule replaces, or the results of a composite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.build_definition import Builder
from eqsat.rules.callee import known
from eqsat.rules.operator_arguments import check_output
from eqsat.rules.scope import Context, PatternBinding


def read_roots(roots: Sequence[s.Root], builder: Builder) -> tuple[list[str], list[ast.Match | ast.Alternatives]]:
    """Names ("" for a single root without one) and patterns of the left side, or of a composite.

    A root's name denotes its pattern in later roots.

    Raises:
        RuleError: A root has no name, or the same value as another one.
    """
    context, known_roots = builder.context, builder.patterns.roots
    names: list[str] = []
    patterns: list[ast.Match | ast.Alternatives] = []
    for root in one_by_one(roots, context):
        if root.target is None:
            if len(roots) > 1:
                raise context.error(
                    root.value.place,
                    "each of several roots must have a name",
                    hint="write `a = MatMul(x, u), b = MatMul(x, v)`",
                )
            return [""], [builder.root(root.value)]
        targets = targets_of(root.target, context, skips=True)
        for name in targets:
            if name.name in names:
                raise context.error(name.place, "each root must have a name of its own", actual=f"`{name.name}` twice")
            if name.name != "_":
                names.append(name.name)
        if len(targets) == 1:
            found = builder.root(root.value, targets[0].name, targets[0].place)
            known_roots[targets[0].name] = found
            patterns.append(found)
            continue
        node = builder.root(root.value)
        if not isinstance(node, ast.Match):
            raise context.error(root.value.place, "an operator with several outputs is required")
        node = builder.patterns.pinned(node)
        for i, name in enumerate(targets):
            check_output(i, [known(op) for op in node.ops], name.place, context)
            if name.name == "_":
                continue
            context.bind(name.name, PatternBinding("node", name.place, node.ops))
            if node.bind is not None and not i:
                # The node's own name, `(a, b) = n: Split(x)`, is another one of its first output.
                patterns.append(ast.Alternatives((node,), node.place, name.name))
            else:
                patterns.append(replace(node, output=i, bind=name.name))
            known_roots[name.name] = patterns[-1]
    return names, patterns


def one_by_one(roots: Sequence[s.Root], context: Context) -> list[s.Root]:
    """Roots, with each element of a tuple ``(a, b) = (A, B)`` as a root.

    Raises:
        RuleError: Names and values of a tuple differ in number.
    """
    found: list[s.Root] = []
    for root in roots:
        if root.target is None or not _is_tuple(root.value):
            found.append(root)
            continue
        targets = targets_of(root.target, context)
        values = root.value.items
        if len(targets) != len(values):
            raise context.error(
                root.value.place,
                f"a value for each name before `=` is required: {', '.join(t.name for t in targets)}",
                actual=str(len(values)),
            )
        found += [s.Root(target, value, root.span) for target, value in zip(targets, values, strict=True)]
    return found


def _is_tuple(term: ast.Term) -> TypeGuard[ast.Sequence]:
    return isinstance(term, ast.Sequence) and not term.square


def targets_of(term: ast.Term, context: Context, *, skips: bool = False) -> list[ast.Name]:
    """The names before the ``=`` of a root.

    Args:
        skips: Whether ``_`` may mark an output of an operator that is not a root.

    Raises:
        RuleError: Something is not a name.
    """
    terms = term.items if _is_tuple(term) else (term,)
    names = [part for part in terms if isinstance(part, ast.Name)]
    for part in terms:
        if not isinstance(part, ast.Name) or (part.name == "_" and not (skips and len(terms) > 1)):
            raise context.error(part.place, "the name of a root is required before `=`")
    if all(name.name == "_" for name in names):
        raise context.error(term.place, "the name of a root is required before `=`")
    return names
