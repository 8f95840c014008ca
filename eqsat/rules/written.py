"""How resolved rules and composites are written: operators by name or sign, parts that are used twice as ``let``s.

Macros stay expanded. The printer asks for one node at a time and goes on with its parts, so that what was parsed and
what was resolved are printed alike.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from eqsat.rules import ast
from eqsat.rules.callee import SIGNS, known
from eqsat.rules.operators import find_operator
from eqsat.rules.tree import parts, replaced, walk
from eqsat.schema.opset import EQSAT
from eqsat.schema.types import OpKey

_SIGNS = {name: sign for sign, name in SIGNS.items()}


def as_written(term: ast.Term) -> ast.Term:
    """A node as it is written in a file; its parts may be resolved ones."""
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
        case ast.Tensor():
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
    written: list[ast.Term] = []
    for i, arg in enumerate(args):
        if arg is not None and None in args[:i]:
            op = node.ops[0] if isinstance(node, ast.Match) else node.op
            assert isinstance(op, OpKey)
            written.append(ast.Keyword(known(op).parameter(i).name, arg, place))
        elif arg is not None:
            written.append(arg)
    term = ast.Apply(callee, (*written, *given), place)
    return ast.Index(term, ast.Number(node.output, str(node.output), place), place) if node.output else term


def named_parts(patterns: Sequence[ast.Pattern]) -> tuple[Sequence[Any], dict[str, ast.Term]]:
    """Patterns with names for their parts that are used several times, and these parts, each after those in it."""
    references = Counter(map(id, patterns))
    for node in walk(tuple(patterns), once=True):
        references.update(map(id, parts(node)))

    def shared(node: Any) -> str | None:
        return node.bind if isinstance(node, ast.Match | ast.Alternatives) and references[id(node)] > 1 else None

    return _with_lets(patterns, shared, "bind")


def built_parts(templates: Sequence[ast.Template]) -> tuple[Sequence[Any], dict[str, ast.Term]]:
    """Templates with names for their parts of which the type is asked, and these parts, each after those in it."""
    return _with_lets(templates, lambda node: node.name if isinstance(node, ast.Build) else None, "name")


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
