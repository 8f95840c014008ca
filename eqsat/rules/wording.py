"""Expressions of rule and target files in words: the condition, and the values that were found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from eqsat.rules import ast
from eqsat.rules.evaluation import NodeFacts, TensorFacts, Unknown, evaluate, holds
from eqsat.rules.kinds import FACTS
from eqsat.rules.print_term import flat
from eqsat.rules.tree import parts
from eqsat.schema.dtypes import dtype_name
from eqsat.schema.types import TensorType

_LONGEST_LIST = 12

_LONGEST = 80
"""Characters of a condition that are worth showing where a ``because`` explains it."""


def condition_in_words(failed: ast.Condition, env: Mapping[str, object]) -> str:
    """The part of a condition that fails: requirement, the file's explanation, what was found."""
    required, found = required_and_found(failed, env)
    return f"{required}: {found}" if found else required


def required_and_found(failed: ast.Condition, env: Mapping[str, object]) -> tuple[str, str]:
    """The part of a condition that fails with the file's explanation, and what was found; empty if it tests nothing."""
    part = _failing(failed, env)
    requirement = flat(part)
    found = findings(part, env)
    if failed.because is None:
        return requirement, found
    return failed.because if len(requirement) > _LONGEST else f"{requirement} ({failed.because})", found


def _failing(condition: ast.Condition, env: Mapping[str, object]) -> ast.Expr:
    """Of ``a and b`` the side that fails."""
    expr = condition.expr
    while isinstance(expr, ast.Binary) and expr.op == "and":
        left = ast.Condition(expr.left, None, condition.place)
        expr = expr.right if holds((left,), env) is None else expr.left
    return expr


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else f"{value}"


def findings(expr: ast.Expr, env: Mapping[str, object]) -> str:
    """The values that an expression read, as ``x.dtype is int8, node.group is 2``; each thing once, in order."""
    seen: dict[str, str] = {}
    for part in _looked_at(expr, frozenset()):
        name = flat(part)
        if name not in seen and not (isinstance(part, ast.Name) and not _is_plain(env.get(part.name))):
            seen[name] = f"{name} is {_found(part, env)}"
    return ", ".join(seen.values())


def _is_plain(value: object) -> bool:
    """Whether a name denotes a value, such as that of an attribute, and not tensors or a node."""
    first = value[0] if isinstance(value, tuple) and value else value
    return first is not None and not isinstance(first, TensorFacts | NodeFacts | list)


def _looked_at(expr: ast.Expr, local: frozenset[str]) -> Iterable[ast.Expr]:
    """The facts and attributes that an expression reads, without those of comprehension variables."""
    match expr:
        case ast.Member(of=ast.Name(name=name)) if name not in local:
            yield expr
        case ast.Apply(function="const"):
            for arg in expr.args:
                if isinstance(arg, ast.Name) and arg.name not in local:
                    yield ast.Member(arg, "is_const", arg.place)
        case ast.Name(name=name) if name not in local:
            yield expr
        case ast.Apply(function="len", args=(ast.Name(),)):
            yield expr
            yield expr.args[0]
        case ast.Comprehension():
            yield from _looked_at(expr.source, local)
            for child in (expr.item, *([expr.condition] if expr.condition is not None else [])):
                yield from _looked_at(child, local | {expr.variable})
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
        return in_words(evaluate(part, env))
    except Unknown:
        return "not known"


def _shape(kind: TensorType) -> str:
    if kind.shape is None:
        return "not known"
    return f"[{', '.join('?' if d is None else str(d) for d in kind.shape)}]"


def in_words(value: object) -> str:
    """A value of an expression or an attribute."""
    if isinstance(value, ir.DataType):
        return dtype_name(value)
    if isinstance(value, np.ndarray) and value.size > 1 and (value == value.flat[0]).all():
        return f"{in_words(value.flat[0].item())}, {value.size} times"
    if isinstance(value, np.ndarray):
        value = tuple(value.ravel().tolist()) if value.ndim else value.item()
    if isinstance(value, tuple):
        shown = [in_words(v) for v in value[:_LONGEST_LIST]] + (["..."] if len(value) > _LONGEST_LIST else [])
        return f"[{', '.join(shown)}]"
    return _literal(value)
