"""Declarations of rules to rules: both sides, conditions, ``let``s, and the checks that need the whole rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from eqsat.errors import EqsatError
from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.absent_operands import check_presence
from eqsat.rules.build_definition import Builder, read_doc, read_numerics
from eqsat.rules.callee import known
from eqsat.rules.operator_arguments import check_output
from eqsat.rules.roots import one_by_one, read_roots, targets_of
from eqsat.rules.scope import Frame
from eqsat.rules.source import Source, Sources
from eqsat.rules.tensor_types import check_types
from eqsat.schema.opset import did_you_mean


def build_rule(declaration: s.Definition, frame: Frame, source: Source, sources: Sources) -> list[ast.Rule]:
    """The rule of a declaration, or the two of a ``<=>``.

    Raises:
        RuleError: It contradicts itself or the operators' schemas.
    """
    numerics = read_numerics(declaration.numerics, sources)
    doc = read_doc(declaration, source)
    left, right = s.those(declaration.clauses, s.Side)
    forward = _direction(declaration, left, right, frame, sources, first=True)
    rules = [replace(forward, numerics=numerics, doc=doc)]
    if right.arrow == "<=>":
        try:
            backward = _direction(declaration, right, left, frame, sources, first=False)
        except EqsatError as error:
            raise type(error)(
                f"{error.requirement} (reading `<=>` from right to left)",
                place=error.place,
                actual=error.actual,
                hint=error.hint or "write `=>` if the rule holds in one direction only",
                excerpt=error.excerpt,
            ) from None
        rules.append(replace(backward, name=f"{declaration.name}.reverse", numerics=numerics, doc=doc))
    return rules


def _direction(
    declaration: s.Definition, left: s.Side, right: s.Side, frame: Frame, sources: Sources, *, first: bool
) -> ast.Rule:
    builder = Builder.over(frame, sources, declaration.clauses)
    context = builder.context
    names, patterns = read_roots(left.roots, builder)
    patterns, conditions = builder.resolve(patterns)
    templates = _right(right.roots, names, builder)
    conditions += builder.conditions(declaration.clauses)
    unbuilt = builder.templates.unbuilt()
    if unbuilt is not None:
        name, place = unbuilt
        raise context.error(place, f"`{name}` must be built on the right, so that its type can be asked")
    templates = [builder.templates.finish(t) for t in templates]
    if first:
        builder.check_lets()
    clauses = builder.clauses(patterns)
    for clause in clauses:
        for template in templates:
            check_presence(template, clause, context)
        check_types(clause, templates, context)
    return ast.Rule(
        declaration.name,
        ast.Numerics("exact"),
        tuple(patterns),
        tuple(templates),
        tuple(conditions),
        declaration.place,
        span=declaration.span,
    )


def _right(roots: Sequence[s.Root], names: list[str], builder: Builder) -> list[ast.TemplateTerm]:
    """Templates in the order of the left side's roots."""
    context, templates = builder.context, builder.templates
    found: dict[str, ast.TemplateTerm] = {}
    for root in one_by_one(roots, context):
        if root.target is None:
            if len(roots) > 1 or len(names) > 1:
                wanted = ", ".join(n for n in names if n) or "one root"
                raise context.error(
                    root.value.place,
                    f"the right side must give each root by its name: {wanted}",
                    hint="write `=> a = ..., b = ...` or `=> (a, b) = Split(...)`",
                )
            return [templates.build(root.value, builder.frame)]
        targets = targets_of(root.target, context)
        built = templates.build(root.value, builder.frame)
        for i, target in enumerate(targets):
            if target.name not in names:
                hint = did_you_mean(target.name, [n for n in names if n])
                raise context.error(
                    target.place,
                    f"`{target.name}` is not a root of the left side",
                    hint=hint or "name it there: `a = MatMul(x, u) => a = ...`",
                )
            if target.name in found:
                raise context.error(target.place, "each root must be given once", actual=f"`{target.name}` twice")
            if len(targets) == 1:
                found[target.name] = built
                continue
            if not isinstance(built, ast.Build):
                raise context.error(root.value.place, "an operator with several outputs is required")
            ops = (built.op,) if not isinstance(built.op, str) else context.bindings[built.op].ops
            check_output(i, [known(op) for op in ops], target.place, context)
            found[target.name] = replace(built, output=i)
    missing = [n for n in names if n not in found]
    if missing:
        raise context.error(
            roots[-1].value.place,
            "each root of the left side must be given on the right",
            actual=f"nothing for `{missing[0]}`",
        )
    return [found[n] for n in names]
