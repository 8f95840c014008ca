"""Resolved rules and composites as text, macros expanded: what the reader understood, to be read again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from eqsat.rules import ast
from eqsat.rules.callee import SIGNS, known
from eqsat.rules.format import format_file
from eqsat.rules.print_term import flat, quote
from eqsat.rules.signatures import find_operator
from eqsat.rules.tree import Node, parts, replaced, walk, without_places
from eqsat.schema.dtypes import dtype_name
from eqsat.schema.opset import EQSAT
from eqsat.schema.types import OpKey

_SIGNS = {name: sign for sign, name in SIGNS.items()}


def format_rule(rule: ast.Rule) -> str:
    """A rule in the rule language. Reading it gives the same rule."""
    before, sides, after = _sides(rule)
    return format_file(_text(f"rule {rule.name} : {rule.numerics}", rule.doc, [*before, sides, *after, *_where(rule)]))


def format_composite(composite: ast.Composite) -> str:
    """A composite in the rule language, indented as in a target."""
    results = [name or None for name in composite.results]
    patterns, lets = _named_parts(_by_name(composite.patterns) if len(results) > 1 else list(composite.patterns))
    by = [f"by {composite.family}"] if composite.family else []
    body = [*_lets(lets), _roots(results if len(results) > 1 else [None], patterns), *by, *_where(composite)]
    body += [f"cost {shown(composite.cost)}"] if composite.cost is not None else []
    body += [f"call {quote(composite.call)}"] if composite.call is not None else []
    body += [f"annotate {', '.join(_annotation(*a) for a in composite.annotations)}"] if composite.annotations else []
    body += [_as(composite.written, composite.results)] if composite.written is not None else []
    text = _text(f"    composite {composite.name} : {composite.numerics}", composite.doc, body)
    head = "host h\n"
    return format_file(f"{head}{text}").removeprefix(head).lstrip("\n")


def pattern_text(definition: ast.Rule | ast.Composite) -> str:
    """``left => right`` of a rule, the pattern of a composite, on one line; reading it gives the same."""
    if isinstance(definition, ast.Rule):
        before, sides, after = _sides(definition)
        return "; ".join([*before, sides, *after])
    (pattern,), lets = _named_parts(list(definition.patterns))
    return "; ".join([*_lets(lets), shown(pattern)])


def shown(term: Any) -> str:
    """A term, resolved or not, on one line."""
    return flat(_written(term))


def _text(header: str, doc: str, body: Iterable[str]) -> str:
    comments = [f"# {line}" for line in doc.split("\n")] if doc else []
    return header + "".join(f"\n        {line}" for line in [*comments, *body]) + "\n"


def _sides(rule: ast.Rule) -> tuple[list[str], str, list[str]]:
    """The ``let``s before, both sides, and the ``let``s after."""
    names = [None if len(rule.left) == 1 else root.bind for root in rule.left]
    # The name of a root stands before its `=`, and not in it.
    left, before = _named_parts(rule.left if len(rule.left) == 1 else _by_name(rule.left))
    right, after = _with_lets(rule.right, lambda node: node.name if isinstance(node, ast.Build) else None, "name")
    return _lets(before), f"{_roots(names, left)} => {_roots(names, right)}", _lets(after)


def _roots(names: Sequence[str | None], values: Sequence[Any]) -> str:
    return ", ".join((f"{name} = " if name else "") + shown(v) for name, v in zip(names, values, strict=True))


def _lets(terms: dict[str, Any]) -> list[str]:
    return [f"let {name} = {shown(term)}" for name, term in terms.items()]


def _where(definition: ast.Rule | ast.Composite) -> list[str]:
    because = ["" if c.because is None else f" because {quote(c.because)}" for c in definition.where]
    conditions = [shown(c.expr) + reason for c, reason in zip(definition.where, because, strict=True)]
    return [f"where {', '.join(conditions)}"] if conditions else []


def _by_name(patterns: Sequence[Any]) -> list[Any]:
    """Results without their names, which stand before the `=`, and with those of earlier ones in their places."""
    found: list[Any] = []
    for i, pattern in enumerate(patterns):
        names = {_bare(p): ast.Name(p.bind, p.place) for p in patterns[:i] if _bare(p)}
        own = replace(pattern, bind=None) if _bare(pattern) else pattern
        found.append(replaced(own, lambda n, names=names: names.get(_bare(n))))
    return found


def _bare(node: Any) -> Any:
    return without_places(node) if isinstance(node, ast.Match | ast.Alternatives) else None


def _as(written: ast.Written, results: Sequence[str]) -> str:
    names = ["_" if k is None else results[k] for k in written.outputs]
    left = "" if names == [""] else f"({', '.join(names)}) = " if len(names) > 1 else f"{names[0]} = "
    return f"as {left}{shown(written.operator)}"


def _annotation(op: OpKey, attrs: Iterable[tuple[str, Any]]) -> str:
    words = (f"{n}={dtype_name(ir.DataType(v)) if n == 'dtype' else v}" for n, v in attrs)
    return f"{op.name}({', '.join(words)})" if attrs else op.name


# ---- from what was resolved to what is written ---------------------------------------------------


def _written(term: Any) -> Any:
    """A tree as it is written in a file: operators by name or sign."""

    def change(node: Any) -> Any:
        spelled = _spelled(node) if isinstance(node, Node) else node
        return None if spelled is node else _written(spelled)

    return replaced(term, change)


def _spelled(term: Any) -> ast.Term:
    """A node as it is written; its parts may be resolved ones."""
    place = term.place
    match term:
        case ast.Match() | ast.Alternatives() if term.bind is not None:
            return ast.Bind(term.bind, replace(term, bind=None), place)
        case ast.Match():
            names = tuple(_operator(op, place) for op in term.ops)
            callee: ast.Term = names[0] if len(names) == 1 else ast.Alternatives(names, place)
            if term.op_name is not None:
                return _applied(term, ast.Bind(term.op_name, callee, place), term.attrs)
            literal = all(arg is None or isinstance(arg, ast.Number) for arg in term.args)
            return _applied(term, callee, term.attrs, term.ops[0] if len(names) == 1 and not literal else None)
        case ast.Build():
            given = [ast.Spread(name, place) for name in term.spread]
            given += [ast.Keyword(name, value, place) for name, value in term.attrs]
            if isinstance(term.op, str):
                return _applied(term, ast.Name(term.op, place), given)
            literal = not any(isinstance(arg, ast.Name | ast.Build) for arg in term.args)
            return _applied(term, _operator(term.op, place), given, None if literal else term.op)
        case ast.TensorTerm():
            args = () if term.dtype is None else (term.value, term.dtype)
            return ast.Apply(ast.Name("tensor", place), args, place) if args else term.value
        case ast.Rest(each=OpKey() as each):
            return ast.Apply(_operator(each, place), (ast.Rest(term.name, place),), place)
        case ast.AttrBind():
            return ast.Keyword(term.attribute, term.equals or ast.Name(term.name or "_", place), place)
        case ast.Wildcard():
            return ast.Name("_", place)
        case ast.Optional() if term.name.startswith("_."):
            return ast.Optional("_", place)
        case _:
            return term


def _operator(op: OpKey, place: ast.Place) -> ast.Name:
    """How a rule names an operator: without domain where that is clear."""
    return ast.Name(op.name if op.domain == EQSAT and find_operator(op.name) == op else str(op), place)


def _applied(
    node: ast.Match | ast.Build, callee: ast.Term, given: Sequence[ast.Term], sugar: OpKey | None = None
) -> ast.Term:
    """An operator with its operands, where one is left out by name; ``x + y`` for what ``sugar`` says is Add."""
    place, args = node.place, node.args
    if sugar is not None and not (given or node.output or sugar.domain):
        operands = [arg for arg in args if arg is not None and not isinstance(arg, ast.Rest | ast.Optional)]
        if sugar.name in _SIGNS and len(args) == len(operands) == 2:
            return ast.Binary(_SIGNS[sugar.name], operands[0], operands[1], place, place)
        if sugar.name == "Neg" and len(args) == len(operands) == 1:
            return ast.Unary("-", operands[0], place)
    term = ast.Apply(callee, (*_given(node), *given), place)
    return ast.Index(term, ast.Number(node.output, str(node.output), place), place) if node.output else term


def _given(node: ast.Match | ast.Build) -> Iterator[ast.Term]:
    for i, arg in enumerate(node.args):
        if arg is not None and None in node.args[:i]:
            op = node.ops[0] if isinstance(node, ast.Match) else node.op
            assert isinstance(op, OpKey)
            yield ast.Keyword(known(op).parameter(i).name, arg, node.place)
        elif arg is not None:
            yield arg


def _named_parts(patterns: Sequence[ast.Pattern]) -> tuple[Sequence[Any], dict[str, ast.Term]]:
    """Patterns with names for their parts that are used several times, and these parts, each after those in it."""
    references = Counter(map(id, patterns))
    for node in walk(tuple(patterns), once=True):
        references.update(map(id, parts(node)))

    def shared(node: Any) -> str | None:
        return node.bind if isinstance(node, ast.Match | ast.Alternatives) and references[id(node)] > 1 else None

    return _with_lets(patterns, shared, "bind")


def _with_lets(
    trees: Sequence[Any], named: Callable[[Any], str | None], field: str
) -> tuple[Sequence[Any], dict[str, ast.Term]]:
    lets: dict[str, ast.Term] = {}

    def change(node: Any) -> ast.Name | None:
        name = named(node)
        if name is None:
            return None
        if name not in lets:
            lets[name] = replaced(replace(node, **{field: None}), change)
        return ast.Name(name, node.place)

    return [replaced(tree, change) for tree in trees], lets
