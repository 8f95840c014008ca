"""Operators that have a declaration instead of a schema: functions with a body, and Python functions.

They are looked up here. Those of eqsat are declared in :mod:`eqsat.ops.own_operators`, for the whole process; a module
that needs them imports that module, as the rooms ``model`` and ``rules`` do. Those of a user's domain are known within
a scope (:func:`declared`) and nowhere else, so that two calls with different declarations do not meet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import onnx_ir as ir

from eqsat.errors import RuleError
from eqsat.schema.body import Body
from eqsat.schema.types import Attrs, AttrValue, OpKey, TensorType

Dtypes = frozenset[ir.DataType]
"""Element types that an operand may have; empty where it may have any."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The common part of all declarations.

    Attributes:
        op: Domain and name; the domain is ``EQSAT`` or one of its subdomains for functions of eqsat.
        inputs: Names of the inputs, in order; all are required.
        attributes: Names and default values, sorted by name.
    """

    op: OpKey
    inputs: tuple[str, ...]
    attributes: Attrs

    def complete(self, attrs: Attrs) -> Attrs:
        """The attributes with defaults filled in."""
        return tuple(sorted((dict(self.attributes) | dict(attrs)).items(), key=lambda pair: pair[0]))


@dataclass(frozen=True, slots=True)
class Function(Declared):
    """An operator whose meaning is a body of other operators.

    Attributes:
        body: The definition for given attributes (defaults filled in).
        doc: Its meaning.
        dtypes: Element types of each input; empty where all may be any.
        place: Where it is declared; empty for those of eqsat.
    """

    body: Callable[[Mapping[str, AttrValue]], Body]
    doc: str = ""
    dtypes: tuple[Dtypes, ...] = ()
    place: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Reference(Declared):
    """An operator whose meaning is a Python function. Nothing looks into it.

    Attributes:
        compute: Arrays and attributes by name to an array, or to a tuple of them.
        types: Types of the operands and attributes by name to a type, or to a tuple of them.
        results: How many results it has.
        dtypes, place: As of :class:`Function`.
    """

    compute: Callable[..., Any]
    types: Callable[..., Any]
    results: int = 1
    dtypes: tuple[Dtypes, ...] = ()
    place: str = field(default="", compare=False)

    def infer(self, inputs: Iterable[TensorType | None], attrs: Attrs) -> tuple[TensorType, ...]:
        """The types of its results, as its function states them."""
        found = self.types(*inputs, **dict(self.complete(attrs)))
        return tuple(found) if isinstance(found, tuple | list) else (found,)


DeclaredOperator = Function | Reference
_Operator = TypeVar("_Operator", bound=DeclaredOperator)

_FUNCTIONS: dict[OpKey, Function] = {}
_scope: ContextVar[Mapping[OpKey, DeclaredOperator]] = ContextVar("declared operators")
_NONE: Mapping[OpKey, DeclaredOperator] = {}


def declare_function(function: Function) -> Function:
    """Makes a function of eqsat known to loading, checking, type inference, rules and evaluation."""
    _FUNCTIONS[function.op] = function
    return function


@contextmanager
def declared(operators: Iterable[DeclaredOperator]) -> Iterator[None]:
    """Makes operators known to everything that runs inside, besides those that are known already.

    Raises:
        RuleError: An operator is declared in two ways.
    """
    token = _scope.set(merged((*declared_here(), *operators)))
    try:
        yield
    finally:
        _scope.reset(token)


def merged(operators: Iterable[_Operator]) -> Mapping[OpKey, _Operator]:
    """Declarations by operator; one that is made twice in the same way counts once.

    Raises:
        RuleError: An operator is declared in two ways.
    """
    found: dict[OpKey, _Operator] = {}
    for operator in operators:
        first = found.setdefault(operator.op, operator)
        if first != operator:
            raise RuleError(
                f"one declaration of `{operator.op}` is required",
                place=operator.place,
                actual=f"another one at {first.place}",
                hint="declarations that are made twice must agree in parameters, element types, defaults and body",
            )
    return found


def declared_here() -> tuple[DeclaredOperator, ...]:
    """The operators of users' domains that are known here, in the order of their declarations."""
    return tuple(_scope.get(_NONE).values())


def find_declared(op: OpKey) -> DeclaredOperator | None:
    """The declaration of an operator, None if it has none."""
    return _FUNCTIONS.get(op) or (_scope.get(_NONE).get(op) if op.domain else None)


def declared_name(op: OpKey) -> OpKey:
    """The operator of a user that a function of this name defines; any other name as it is.

    Files number the functions of one operator for several combinations of attributes: ``Scale``, ``Scale_1``.
    """
    base, _, number = op.name.rpartition("_")
    if find_declared(op) is None and number.isdigit():
        found = find_declared(OpKey(op.domain, base))
        return op if found is None or not found.place else found.op
    return op


def find_function(op: OpKey) -> Function | None:
    """The declared function with a body, None if there is none."""
    found = find_declared(op)
    return found if isinstance(found, Function) else None


def find_reference(op: OpKey) -> Reference | None:
    """The operator that a Python function defines, None if there is none."""
    found = find_declared(op)
    return found if isinstance(found, Reference) else None


def function_body(op: OpKey, attrs: Attrs = ()) -> Body | None:
    """Body of a declared function for some attributes (defaults filled in), None for anything else."""
    found = find_function(op)
    return None if found is None else found.body(dict(found.complete(attrs)))


def result_count(op: OpKey) -> int:
    """Number of results of a declared operator, 0 for any other."""
    found = find_declared(op)
    if isinstance(found, Function):
        return len(found.body(dict(found.attributes)).results)
    return 0 if found is None else found.results


def functions() -> tuple[OpKey, ...]:
    """All declared operators, sorted."""
    return tuple(sorted({*_FUNCTIONS, *_scope.get(_NONE)}))
