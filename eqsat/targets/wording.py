"""Expressions of a target file in words: the condition, and the values that were found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from eqsat.rules import ast
from eqsat.rules.evaluation import TensorFacts, Unknown, evaluate
from eqsat.rules.kinds import FACTS
from eqsat.rules.print_term import flat
from eqsat.rules.tree import parts
from eqsat.schema.dtypes import dtype_name
from eqsat.schema.types import TensorType

_LONGEST_LIST = 12


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else f"{value}"


def findings(expr: ast.Expr, env: Mapping[str, object]) -> str:
    """The values that an expression read, as ``x.dtype is int8, node.group is 2``; each thing once, in order."""
    seen: dict[str, str] = {}
    for part in _looked_at(expr, frozenset()):
        name = flat(part)
        if name not in seen:
            seen[name] = f"{name} is {_found(part, env)}"
    return ", ".join(seen.values())


def _looked_at(expr: ast.Expr, local: frozenset[str]) -> Iterable[ast.Expr]:
    """The facts and attributes that an expression asks for, without those of comprehension variables."""
    match expr:
        case ast.Member(of=ast.Name(name=name)) if name not in local:
            yield expr
        case ast.Apply(function="const"):
            for arg in expr.args:
                if isinstance(arg, ast.Name) and arg.name not in local:
                    yield ast.Member(arg, "is_const", arg.place)
        case ast.Apply(function="len", args=(ast.Name(),)):
            yield expr
        case ast.Comprehension():
            yield from _looked_at(expr.source, local)
            yield from _looked_at(expr.item, local | {expr.variable})
        case _:
            for child in parts(expr):
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
