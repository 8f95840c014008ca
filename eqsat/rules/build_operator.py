"""Turns declarations of operators into functions: parameters, their element types and defaults, and the body.

The body is a template over the operands, like a right side, whose expressions may use the attributes. For given
attributes, :mod:`eqsat.rules.operator_body` makes it a small program of standard operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.rules import ast
from eqsat.rules import declarations as s
from eqsat.rules.build_expression import ExpressionBuilder
from eqsat.rules.build_pattern import MOST_OPERATORS
from eqsat.rules.build_rule import build_rule
from eqsat.rules.build_template import TemplateBuilder
from eqsat.rules.classify import is_tensor
from eqsat.rules.element_types import DTYPE_LISTS, DTYPES
from eqsat.rules.evaluation import Unknown, evaluate
from eqsat.rules.kinds import ATTRIBUTE_KINDS, ValueKind
from eqsat.rules.operator_body import TemplateBody
from eqsat.rules.scope import Context, Frame, PatternBinding
from eqsat.rules.source import Source, Sources
from eqsat.rules.tree import DEEPEST, walk
from eqsat.schema import opset
from eqsat.schema.attributes import declared_kinds, make_attrs
from eqsat.schema.body import Body
from eqsat.schema.declared_operators import Declared, Dtypes, Function, declared, find_function
from eqsat.schema.types import Attrs, AttrValue, OpKey

MOST_PARAMETERS = 48
"""Most operands of an operator: the e-graph does not look into more."""
MOST_RESULTS = 16


def read_signature(
    declaration: s.OperatorDeclaration, frame: Frame, sources: Sources
) -> tuple[Declared, tuple[Dtypes, ...]]:
    """The name, operands and attributes of a declaration, and the element types of the operands.

    Raises:
        RuleError: The name is taken, or a parameter is not valid.
    """
    op = _name(declaration, sources)
    formals = declaration.formals
    if len(formals) > MOST_PARAMETERS:
        raise sources.error(
            formals[MOST_PARAMETERS].place,
            f"at most {MOST_PARAMETERS} parameters of an operator are required",
            actual=f"{len(formals):,}",
        )
    context = Context(sources)
    expressions = ExpressionBuilder(context, lambda entry: None)
    inputs: list[str] = []
    dtypes: list[Dtypes] = []
    attributes: dict[str, AttrValue] = {}
    for formal in formals:
        if formal.name in (*inputs, *attributes):
            raise sources.error(
                formal.place, "each parameter must have a name of its own", actual=f"`{formal.name}` twice"
            )
        if formal.name == "_" or formal.name in DTYPES or formal.name in DTYPE_LISTS:
            raise sources.error(formal.place, "a name of its own is required", actual=f"`{formal.name}`")
        if formal.default is None:
            if attributes:
                hint = "a parameter with `= VALUE` is an attribute, one without is an operand"
                raise sources.error(
                    formal.place, "operands must come before attributes", actual=f"`{formal.name}`", hint=hint
                )
            inputs.append(formal.name)
            dtypes.append(_dtypes(formal, expressions, frame))
        else:
            attributes[formal.name] = _default(op, formal, expressions, frame)
    return Declared(op, tuple(inputs), tuple(sorted(attributes.items()))), tuple(dtypes)


def build_operator(declaration: s.OperatorDeclaration, frame: Frame, source: Source, sources: Sources) -> Function:
    """The function of a declaration.

    Raises:
        RuleError: It contradicts itself or the operators' schemas.
    """
    signature, dtypes = read_signature(declaration, frame, sources)
    body = declaration.body
    if body is None:
        raise sources.error(
            declaration.place,
            f"a body of `{signature.op}` is required, as in `operator acme.ScaledRelu(x, alpha = 1.0) = Relu(x) * "
            "alpha`",
            hint="one that no standard operators express is declared in Python: eqsat.operator",
        )
    _check_recursion(body, signature.op, sources)
    templates = _templates(body, signature, frame, sources)
    function = Function(
        signature.op,
        signature.inputs,
        signature.attributes,
        TemplateBody(signature.inputs, templates),
        source.doc(declaration.span.first, declaration.span.first, declaration.span.last),
        dtypes,
        str(declaration.place),
    )
    try:
        count, depth = _extent(function.body(dict(function.attributes)))
    except EqsatError as error:
        place = error.place if error.place.startswith(f"{source.name}:") else ""
        raise sources.error(
            declaration.place,
            f"a body that has a meaning for the default attributes is required: {error.requirement}",
            actual=" ".join(filter(None, (error.actual, f"at {place}" if place else ""))),
            hint=error.hint,
        ) from None
    if count > MOST_OPERATORS or depth > DEEPEST:
        raise sources.error(
            declaration.place,
            f"a body of at most {MOST_OPERATORS} operators, nested at most {DEEPEST} deep, is required",
            actual=f"{count if count <= MOST_OPERATORS else 'more'}, nested {depth} deep, with all bodies written out",
        )
    return function


def definition_rule(
    declaration: s.OperatorDeclaration, function: Function, frame: Frame, source: Source, sources: Sources
) -> ast.Rule:
    """The rule from an operator to its body; building it checks element types and operands of the body.

    Raises:
        RuleError: A value would need two types at once.
    """
    assert declaration.body is not None
    place, span = declaration.place, declaration.span
    callee: ast.Term = ast.Name(function.op.name, place)
    for part in reversed(function.op.domain.split(".")):
        callee = _dotted(part, callee)
    names = tuple(ast.Name(name, place) for name in function.inputs)
    bound = tuple(ast.Keyword(name, ast.Name(name, place), place) for name, _ in function.attributes)
    applied = ast.Apply(callee, (*names, *bound), place)
    results = _results(declaration.body)
    if len(results) == 1:
        left, right = (s.Root(None, applied, span),), (s.Root(None, results[0], span),)
    else:
        roots = tuple(ast.Name(_unused(f"result_{i}", function), place) for i in range(len(results)))
        left = (s.Root(ast.Sequence(roots, False, place), applied, span),)
        right = tuple(s.Root(root, value, span) for root, value in zip(roots, results, strict=True))
    clauses = (s.Side("", left), s.Side("=>", right))
    written = s.Definition("rule", str(function.op), s.NumericsClause("exact", None, "", place), clauses, place, span)
    with declared([function]):
        (rule,) = build_rule(written, frame, source, sources)
    return replace(rule, doc=function.doc)


def _extent(body: Body, left: int = MOST_OPERATORS) -> tuple[int, int]:
    """How many operators a body has with the bodies of its operators written out, and how deep these are nested.

    Args:
        left: Where counting ends.
    """
    count, depth = 0, 1
    for node in body.nodes:
        function = find_function(node.op)
        if function is None or not function.place:
            count += 1
        else:
            inner, deep = _extent(function.body(dict(function.complete(node.attrs))), left - count)
            count, depth = count + inner, max(depth, 1 + deep)
        if count > left:
            break
    return count, depth


# ---- details -------------------------------------------------------------------------------------


def _name(declaration: s.OperatorDeclaration, sources: Sources) -> OpKey:
    domain, _, name = declaration.name.rpartition(".")
    if not domain:
        raise sources.error(
            declaration.place,
            "an operator of a domain of your own is required",
            actual=f"`{name}`",
            hint=f"write `operator my_domain.{name}(...)`",
        )
    taken = ("ai.onnx", opset.EQSAT, *filter(None, opset.OPSETS))
    owner = next((d for d in taken if domain == d or domain.startswith(f"{d}.")), None)
    if owner is not None:
        raise sources.error(
            declaration.place,
            "an operator of a domain of your own is required",
            actual=f"`{declaration.name}`; the domain `{owner}` belongs to "
            f"{'eqsat' if owner == opset.EQSAT else 'ONNX Runtime' if owner == opset.MICROSOFT else 'ONNX'}",
        )
    return OpKey(domain, name)


def _dtypes(formal: s.Formal, expressions: ExpressionBuilder, frame: Frame) -> Dtypes:
    """The element types of an operand: one, or a list of them; all types if none is given."""
    if formal.dtype is None:
        return frozenset()
    expr, kind = expressions.typed(formal.dtype, frame)
    expressions.expect(kind, ("type", "list"), formal.dtype)
    found = evaluate(expr, {})
    listed = found if isinstance(found, tuple) else (found,)
    if not listed or not all(isinstance(d, ir.DataType) for d in listed):
        raise expressions.context.error(
            formal.dtype.place,
            "an element type or a list of them is required, as in `x: float32`, `x: floats`, `x: (int8, uint8)`",
        )
    return frozenset(listed)


def _default(op: OpKey, formal: s.Formal, expressions: ExpressionBuilder, frame: Frame) -> AttrValue:
    assert formal.default is not None
    requirement = f"a default of `{formal.name}` that is a number, a text, an element type or a list is required"
    context, term = expressions.context, formal.default
    if is_tensor(term, frame, context):
        raise context.error(term.place, requirement)
    expr = expressions.build(term, frame)
    try:
        value = evaluate(expr, {})
    except Unknown as error:
        raise context.error(term.place, requirement, actual=str(error)) from None
    try:
        found = dict(make_attrs(op, {formal.name: _plain(value)}))[formal.name]
    except (EqsatError, TypeError, ValueError, OverflowError):
        raise context.error(term.place, requirement, actual=repr(value)) from None
    return found


def _plain(value: object) -> object:
    """A value of an expression in the form of an attribute: an element type is its number, a truth value is 0 or 1."""
    if isinstance(value, ir.DataType | bool):
        return int(value)
    if isinstance(value, tuple):
        if any(isinstance(v, tuple | np.ndarray) for v in value):
            raise TypeError
        return [_plain(v) for v in value]
    return value


def _templates(body: ast.Term, signature: Declared, frame: Frame, sources: Sources) -> tuple[ast.TemplateTerm, ...]:
    context = Context(sources)
    for name in signature.inputs:
        context.bindings[name] = PatternBinding("tensor", body.place)
    for name, kind in _kinds(signature.attributes).items():
        context.bindings[name] = PatternBinding("attribute", body.place, value=kind)
    builder = TemplateBuilder(context)
    terms = _results(body)
    if not 1 <= len(terms) <= MOST_RESULTS:
        requirement = f"from 1 to {MOST_RESULTS} results of an operator are required"
        raise sources.error(body.place, requirement, actual=str(len(terms)))
    templates = tuple(builder.build(term, frame) for term in terms)
    for template, term in zip(templates, terms, strict=True):
        if not isinstance(template, ast.Build):
            raise sources.error(
                term.place,
                "an operator is required as the body of an operator",
                actual="a bare value",
                hint="`Identity(x)` is the operand itself",
            )
        for node in walk(template, once=True):
            if isinstance(node, ast.Member):
                raise sources.error(
                    node.place,
                    "a body over operands and attributes is required",
                    actual=f"`.{node.name}`, which is known only where the operator is used",
                    hint="`Shape(x)` is an operator",
                )
    return templates


def _kinds(attributes: Attrs) -> dict[str, ValueKind]:
    """Kind of each attribute for expressions."""
    kinds = declared_kinds(Declared(OpKey("", ""), (), attributes))
    return {name: ATTRIBUTE_KINDS.get(kinds[name].name, "any") if name in kinds else "list" for name, _ in attributes}


def _results(body: ast.Term) -> Sequence[ast.Term]:
    """The results of a body: ``(a, b)`` are two."""
    return body.items if isinstance(body, ast.Sequence) and not body.square else (body,)


def _check_recursion(body: ast.Term, op: OpKey, sources: Sources) -> None:
    if find_function(op) is not None:
        return  # Read before; declared in another way, it is an error anyhow.
    for term in walk(body):
        if isinstance(term, ast.Apply) and _text(term.callee) == str(op):
            raise sources.error(term.place, "a body that does not use its own operator is required", actual=f"`{op}`")


def _text(term: ast.Term) -> str:
    if isinstance(term, ast.Member):
        return f"{_text(term.of)}.{term.name}"
    return term.name if isinstance(term, ast.Name) else ""


def _dotted(first: str, rest: ast.Term) -> ast.Term:
    """``first.rest``, where ``rest`` is a name or again such a term."""
    if isinstance(rest, ast.Member):
        return ast.Member(_dotted(first, rest.of), rest.name, rest.place)
    assert isinstance(rest, ast.Name)
    return ast.Member(ast.Name(first, rest.place), rest.name, rest.place)


def _unused(name: str, function: Function) -> str:
    taken = {*function.inputs, *dict(function.attributes)}
    while name in taken:
        name += "_"
    return name
