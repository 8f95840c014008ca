"""Expressions of a target file in words: the condition as it could be written, and what was found instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from eqsat.model.types import TensorType
from eqsat.rules import ast
from eqsat.rules.dtypes import dtype_name
from eqsat.rules.expression import TensorFacts, Unknown, evaluate
from eqsat.rules.facts import FACTS
from eqsat.rules.uses import children

_LEVELS = (("or",), ("and",), ("not",), ("==",), ("+", "-"), ("*", "/", "//", "%"), ("neg",), ("**",))
_LEVEL = {op: level for level, ops in enumerate(_LEVELS) for op in ops}
_ATOM = len(_LEVELS)
_LONGEST_LIST = 12


def in_words(expr: ast.Expr) -> str:
    """An expression in the rule language; macros stay expanded."""
    return _text(expr)[0]


def _text(expr: ast.Expr) -> tuple[str, int]:
    """Text and how tightly its outermost operator binds."""
    match expr:
        case ast.Literal_():
            return _literal(expr.value), _ATOM
        case ast.Name():
            return expr.name, _ATOM
        case ast.Member():
            return f"{_inner(expr.of, _ATOM)}.{expr.name}", _ATOM
        case ast.Index():
            return f"{_inner(expr.of, _ATOM)}[{in_words(expr.index)}]", _ATOM
        case ast.Slice():
            bounds = ["" if b is None else in_words(b) for b in (expr.start, expr.stop)]
            return f"{_inner(expr.of, _ATOM)}[{':'.join(bounds)}]", _ATOM
        case ast.CallExpr():
            return f"{expr.function}({', '.join(in_words(a) for a in expr.args)})", _ATOM
        case ast.Unary():
            level = _LEVEL["not" if expr.op == "not" else "neg"]
            sign = "not " if expr.op == "not" else "-"
            return sign + _inner(expr.operand, level), level
        case ast.Binary():
            level = _LEVEL[expr.op]
            left, right = (level + 1, level) if expr.op == "**" else (level, level + 1)
            return f"{_inner(expr.left, left)} {expr.op} {_inner(expr.right, right)}", level
        case ast.Compare():
            level = _LEVEL["=="]
            parts = [f"{op} {_inner(e, level + 1)}" for op, e in expr.rest]
            return " ".join((_inner(expr.first, level + 1), *parts)), level
        case ast.ListExpr():
            return f"[{', '.join(in_words(i) for i in expr.items)}]", _ATOM
        case ast.Comprehension():
            condition = f" if {in_words(expr.condition)}" if expr.condition is not None else ""
            return f"[{in_words(expr.item)} for {expr.variable} in {in_words(expr.source)}{condition}]", _ATOM
        case ast.Conditional():
            then, condition = _inner(expr.then, 0), _inner(expr.condition, 0)
            return f"{then} if {condition} else {in_words(expr.otherwise)}", -1


def _inner(expr: ast.Expr, level: int) -> str:
    text, own = _text(expr)
    return text if own >= level else f"({text})"


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else f"{value}"


def findings(expr: ast.Expr, env: Mapping[str, object]) -> str:
    """What an expression looked at, as ``x.dtype is int8, node.group is 2``; each thing once, in order."""
    seen: dict[str, str] = {}
    for part in _looked_at(expr, frozenset()):
        name = in_words(part)
        if name not in seen:
            seen[name] = f"{name} is {_found(part, env)}"
    return ", ".join(seen.values())


def _looked_at(expr: ast.Expr, local: frozenset[str]) -> Iterable[ast.Expr]:
    """The facts and attributes that an expression asks for, without those of comprehension variables."""
    match expr:
        case ast.Member(of=ast.Name(name=name)) if name not in local:
            yield expr
        case ast.CallExpr(function="const"):
            for arg in expr.args:
                if isinstance(arg, ast.Name) and arg.name not in local:
                    yield ast.Member(arg, "is_const", arg.place)
        case ast.CallExpr(function="len", args=(ast.Name(),)):
            yield expr
        case ast.Comprehension():
            yield from _looked_at(expr.source, local)
            yield from _looked_at(expr.item, local | {expr.variable})
        case _:
            for child in children(expr):
                yield from _looked_at(child, local)


def _found(part: ast.Expr, env: Mapping[str, object]) -> str:
    if isinstance(part, ast.Member) and isinstance(part.of, ast.Name) and part.name in FACTS:
        facts = env.get(part.of.name)
        if isinstance(facts, TensorFacts) and part.name not in ("is_const", "is_present"):
            if not facts.is_present:
                return "absent"
            if part.name == "shape" and facts.type is not None:
                return _shape(facts.type)
    try:
        return _plain(evaluate(part, env))
    except Unknown:
        return "not known"


def _shape(kind: TensorType) -> str:
    if kind.shape is None:
        return "not known"
    return f"[{', '.join('?' if d is None else str(d) for d in kind.shape)}]"


def _plain(value: object) -> str:
    if isinstance(value, ir.DataType):
        return dtype_name(value)
    if isinstance(value, np.ndarray):
        value = tuple(value.ravel().tolist()) if value.ndim else value.item()
    if isinstance(value, tuple):
        shown = [_plain(v) for v in value[:_LONGEST_LIST]] + (["..."] if len(value) > _LONGEST_LIST else [])
        return f"[{', '.join(shown)}]"
    return _literal(value)
