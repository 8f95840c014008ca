"""``annotate CastHint(dtype=int8), StopFusion`` of a composite: what its result bears, in this order."""

from __future__ import annotations

from eqsat.ops.functions import ANNOTATIONS
from eqsat.rules import ast
from eqsat.rules import syntax as s
from eqsat.rules.attribute_values import check_attribute
from eqsat.rules.builder import Builder
from eqsat.rules.callee import dotted_name, known, operator
from eqsat.rules.expression import evaluate
from eqsat.rules.facts import Unknown
from eqsat.schema.attributes import make_attrs
from eqsat.schema.types import Attrs, OpKey


def read_annotations(clause: s.Annotate, builder: Builder) -> tuple[tuple[OpKey, Attrs], ...]:
    """Annotations with their attributes, the one next to the composite first.

    Raises:
        TargetError: One is no annotation, or its attributes depend on what the pattern matches.
    """
    return tuple(_annotation(term, builder) for term in clause.terms)


def _annotation(term: ast.Term, builder: Builder) -> tuple[OpKey, Attrs]:
    context = builder.context
    callee, arguments = (term.callee, term.args) if isinstance(term, ast.Apply) else (term, ())
    name = dotted_name(callee)
    choices = " or ".join(sorted(op.name for op in ANNOTATIONS))
    if name is None:
        raise context.error(term.place, f"an annotation is required: {choices}")
    op = operator(name, callee.place, context)
    if op not in ANNOTATIONS:
        raise context.error(callee.place, f"an annotation is required: {choices}", actual=f"`{name}`")
    attributes: dict[str, object] = {}
    for argument in arguments:
        if not isinstance(argument, ast.Keyword):
            raise context.error(
                argument.place,
                f"attributes of `{name}` by name are required",
                hint="the annotated value is the composite's result, and is not written",
            )
        if argument.name not in known(op).attributes or argument.name in attributes:
            actual = f"`{argument.name}`" + (" twice" if argument.name in attributes else "")
            allowed = ", ".join(f"`{a}`" for a in known(op).attributes)
            raise context.error(argument.place, f"an attribute of `{name}` is required", actual=actual, hint=allowed)
        expr, kind = builder.templates.expressions.typed(argument.value, builder.frame)
        check_attribute(argument.name, known(op), expr, kind, argument.value, context)
        try:
            attributes[argument.name] = evaluate(expr, {})
        except Unknown:
            raise context.error(
                argument.value.place,
                f"a fixed value is required for `{argument.name}`",
                actual="one that depends on what the pattern matches",
                hint="a partition function in Python may look at the composite",
            ) from None
    return op, make_attrs(op, attributes)
