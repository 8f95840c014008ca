"""Evaluation of the expressions of rules: conditions, computed attributes and constants, costs.

Logic is three-valued (Kleene's strong logic): ``and`` and ``or`` have a value as soon as the known operands decide it.
An expression without a known value raises :class:`Unknown`; a condition that raises it does not hold.

>>> from eqsat.rules.evaluation import evaluate
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from eqsat.rules import ast
from eqsat.rules.arithmetic import (
    all_known,
    arithmetic,
    as_number,
    contains,
    contents,
    equal,
    finish,
    is_whole,
    items,
    less,
    negate,
    truth,
)
from eqsat.rules.builtin_functions import FUNCTIONS, is_const
from eqsat.rules.dependencies import Uses, uses
from eqsat.rules.element_types import DTYPE_LISTS, DTYPES
from eqsat.rules.kinds import FACTS
from eqsat.rules.known_facts import NodeFacts, SymbolicDim, TensorFacts, Unknown
from eqsat.rules.step_limit import Env
from eqsat.schema.dimension import dimension
from eqsat.schema.size import Undecided
from eqsat.schema.types import TensorType

__all__ = ["NodeFacts", "TensorFacts", "Unknown", "Uses", "evaluate", "holds", "uses"]


def evaluate(expr: ast.Expr, env: Mapping[str, object], *, sizes: bool = False) -> Any:
    """The value of an expression.

    Args:
        expr: The expression.
        sizes: Whether the value, or an item of it, may be a free size.
        env: By name: :class:`TensorFacts` of a tensor, a sequence of them for ``xs...``, :class:`NodeFacts` of a bound
            node, a plain value for a bound attribute or a cost symbol. A name that is missing is absent.

    Returns:
        int, float, str, bool, ``ir.DataType``, a tuple of those, or an array (int64, float or bool).

    Raises:
        Unknown: It depends on something unknown, or has no value (an index out of range, a division by 0).
        RuleError: It takes more steps than an expression may.
    """
    return finish(_value(expr, Env(env)), sizes=sizes)


def holds(conditions: Iterable[ast.Condition], env: Mapping[str, object]) -> ast.Condition | None:
    """The first condition that does not hold or cannot be answered, None when all hold."""
    for condition in conditions:
        try:
            if not _truth(condition.expr, Env(env)):
                return condition
        except Unknown:
            return condition
    return None


def _truth(expr: ast.Expr, env: Env) -> bool:
    return truth(_value(expr, env))


def _value(expr: ast.Expr, env: Env) -> Any:
    env.steps.term(expr.place)
    try:
        found = _found(expr, env)
    except Undecided as undecided:
        raise Unknown(str(undecided)) from None
    env.steps.result(found, expr.place)
    return found


def _found(expr: ast.Expr, env: Env) -> Any:
    match expr:
        case ast.Number() | ast.String() | ast.Truth():
            return expr.value
        case ast.Name():
            return _name(expr.name, env)
        case ast.Member():
            return _member(expr, env)
        case ast.Index():
            return _index(_value(expr.of, env), _value(expr.index, env))
        case ast.Slice():
            return _slice(expr, env)
        case ast.Apply():
            return _call(expr, env)
        case ast.Unary(op="not"):
            return not _truth(expr.operand, env)
        case ast.Unary():
            return negate(_value(expr.operand, env))
        case ast.Binary(op="and" | "or"):
            return _logic(expr, env)
        case ast.Binary():
            return arithmetic(expr.op, _value(expr.left, env), _value(expr.right, env))
        case ast.Compare():
            return _compare(expr, env)
        case ast.Sequence():
            return tuple(_value(item, env) for item in expr.items)
        case ast.Comprehension():
            return _comprehension(expr, env)
        case ast.Conditional():
            return _value(expr.then if _truth(expr.condition, env) else expr.otherwise, env)
        case _:
            raise TypeError(f"{expr!r} is not an expression")


def _name(name: str, env: Env) -> Any:
    if name in env:
        return env[name]
    if name in DTYPES:
        return DTYPES[name]
    if name in DTYPE_LISTS:
        return DTYPE_LISTS[name]
    raise Unknown(f"`{name}` is absent")


def _member(expr: ast.Member, env: Env) -> Any:
    if expr.name == "is_present":
        return _is_present(expr.of, env)
    of = _value(expr.of, env)
    if isinstance(of, NodeFacts):
        # The `node` of a target's entry has no value of its own (`y` is it), so that LRN's `size` is its attribute.
        if expr.name not in FACTS or of.output is None:
            attrs = dict(of.attrs)
            if expr.name not in attrs:
                raise Unknown(f"{of.op} has no attribute `{expr.name}` here")
            return attrs[expr.name]
        of = of.output
    if expr.name == "is_const":
        return is_const(of)
    if not isinstance(of, TensorFacts) or not of.is_present:
        raise Unknown(f"`{expr.name}` of something absent")
    if expr.name in _FREE:
        return of.free_term if expr.name == "has_free_term" else of.free_factor
    if expr.name == "bound":
        return of.bound
    return _fact(of, expr.name)


_FREE = ("has_free_term", "has_free_factor")


def _is_present(of: ast.Expr, env: Env) -> bool:
    if isinstance(of, ast.Name) and of.name not in env:
        return False
    try:
        found = _value(of, env)
    except Unknown:
        return False
    if isinstance(found, NodeFacts):
        return found.output is None or found.output.is_present
    return found.is_present if isinstance(found, TensorFacts) else True


def _fact(of: TensorFacts, name: str) -> Any:
    if name == "value":
        if of.value is None:
            raise Unknown("the contents are not known")
        return contents(of.value)
    if of.type is None:
        raise Unknown("the type is not known")
    if name == "dtype":
        return of.type.dtype
    shape = of.type.shape
    if shape is None:
        raise Unknown("the shape is not known")
    if name == "rank":
        return len(shape)
    dims = dimensions(of.type)
    if name == "size":
        return math.prod(map(as_number, dims))
    if name == "shape":
        return dims
    raise Unknown(f"a tensor has no `{name}`")


def dimensions(kind: TensorType) -> tuple[int | SymbolicDim, ...]:
    """The dimensions of a type of known rank: numbers, free sizes, or opaque values for others."""
    return tuple(dim if isinstance(dim, int) else _dimension(dim) for dim in kind.shape or ())


def shape(expr: ast.Expr, env: Mapping[str, object]) -> tuple[Any, ...]:
    """The value of an expression that is a list; its items need not be numbers.

    Raises:
        Unknown: It is not a list, or depends on something that is not known.
    """
    return tuple(items(_value(expr, Env(env))))


def _dimension(dim: str | None) -> int | SymbolicDim:
    """A dimension that is not a number, as an expression of sizes if it is one."""
    found = dimension(dim)
    return SymbolicDim(dim) if found is None else found


def _index(of: Any, index: Any) -> Any:
    if isinstance(of, np.ndarray | tuple | list) and is_whole(index):
        position = int(index)
        if (not isinstance(of, np.ndarray) or of.ndim) and -len(of) <= position < len(of):
            return of[position]
        raise Unknown(f"there is no item {position}")
    raise Unknown("an item of a list is required")


def _slice(expr: ast.Slice, env: Env) -> Any:
    of = _value(expr.of, env)
    bounds = [None if b is None else _value(b, env) for b in (expr.start, expr.stop)]
    if not all(b is None or is_whole(b) for b in bounds):
        raise Unknown("whole numbers are required as bounds")
    if isinstance(of, np.ndarray):
        items(of)
        return of[slice(*bounds)]
    return tuple(items(of)[slice(*bounds)])


def _call(expr: ast.Apply, env: Env) -> Any:
    function = FUNCTIONS[expr.function]
    args = [_argument(expr.function, arg, env) for arg in expr.args]
    try:
        return function.call(*args)
    except (ArithmeticError, ValueError, TypeError) as error:
        raise Unknown(f"{expr.function}: {error}") from None


def _argument(function: str, arg: ast.Expr, env: Env) -> Any:
    if function == "const" and isinstance(arg, ast.Name) and arg.name not in env:
        return TensorFacts(None, None, True, False)
    return _value(arg, env)


def _logic(expr: ast.Binary, env: Env) -> bool:
    """One known side may decide: a true one of ``or``, a false one of ``and``."""
    sides = (expr.left, expr.right)
    if expr.op == "or":
        return not all_known(lambda side: not _truth(side, env), sides)
    return all_known(lambda side: _truth(side, env), sides)


def _compare(expr: ast.Compare, env: Env) -> bool:
    operands = [_value(expr.first, env), *(_value(operand, env) for _, operand in expr.rest)]
    signs = [sign for sign, _ in expr.rest]
    return all_known(lambda pair: _compare_two(*pair), zip(signs, operands, operands[1:], strict=False))


def _compare_two(sign: str, a: Any, b: Any) -> bool:
    if isinstance(a, TensorFacts | NodeFacts) or isinstance(b, TensorFacts | NodeFacts):
        raise Unknown("a tensor does not compare")
    return _COMPARISONS[sign](a, b)


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": equal,
    "!=": lambda a, b: not equal(a, b),
    "<": less,
    "<=": lambda a, b: less(a, b, or_equal=True),
    ">": lambda a, b: less(b, a),
    ">=": lambda a, b: less(b, a, or_equal=True),
    "in": lambda a, b: contains(b, a),
    "not in": lambda a, b: not contains(b, a),
}


def _comprehension(expr: ast.Comprehension, env: Env) -> tuple[Any, ...]:
    source: Sequence[Any] = items(_value(expr.source, env))
    results: list[Any] = []
    inner = Env(env, env.steps)
    for item in source:
        inner[expr.variable] = item
        if expr.condition is None or _truth(expr.condition, inner):
            results.append(_value(expr.item, inner))
    return tuple(results)
