"""The names of a rule in one clause: tensors as functions of positions, and attributes, computed ones among them.

An unknown value has a name as well; values known to be equal share a name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from eqsat.proofs import conditions
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, apply, number
from eqsat.proofs.symbolic_shapes import SOLE, ElementPosition, EqualShapes, SymbolicShape
from eqsat.rules import ast
from eqsat.rules.callee import SIGNS
from eqsat.rules.expand import Clause

AttributeTerm = Hashable
"""An attribute: a number, a term, or a name for an unknown value."""


@dataclass(frozen=True)
class Denotation:
    """A tensor as a function.

    Attributes:
        element: The term at a position.
        single: Whether it has one element.
        key: Two tensors with the same key are equal.
    """

    shape: SymbolicShape
    element: Callable[[ElementPosition], ScalarTerm]
    single: bool = False

    def sole(self) -> ScalarTerm:
        return self.element(SOLE)


class ClauseNames:
    """The meaning of names.

    Attributes:
        tensors: Tensors by name.
        values: Values of attributes that the pattern binds.
        nodes: Attributes of nodes that the pattern binds.
    """

    def __init__(self, clause: Clause) -> None:
        self.clause = clause
        self.shapes = EqualShapes()
        self.tensors: dict[str, Denotation] = {}
        self.values: dict[str, AttributeTerm] = {}
        self.nodes: dict[str, dict[str, AttributeTerm]] = {}

    def alias(self, name: str) -> str:
        """The name of the value that a name denotes in this clause."""
        return self.clause.aliases.get(name, name)

    def key(self, tensor: Denotation) -> Hashable:
        """A key of a tensor; equal keys mean equal tensors."""
        shape = self.shapes.find(tensor.shape)
        return (shape, tensor.element(SOLE if tensor.single else self.shapes.whole(shape)))

    def value(self, expr: ast.Expr) -> AttributeTerm:
        """An attribute that the rule states or computes.

        Raises:
            NotModelled: It depends on contents in a way that is not stated here.
        """
        expr = conditions.decided(expr, self.clause)
        match expr:
            case ast.Number() | ast.String() | ast.Truth():
                return expr.value
            case ast.Name() if expr.name in self.values:
                return self.values[expr.name]
            case ast.Member(name="value") if isinstance(expr.of, ast.Name):
                return self._contents(expr.of.name)
            case ast.Member() if isinstance(expr.of, ast.Name) and expr.name in self.nodes.get(expr.of.name, {}):
                return self.nodes[expr.of.name][expr.name]
            case ast.Index() if isinstance(expr.of, ast.Member) and expr.of.name == "value":
                return self.value(expr.of)
            case ast.Apply() if expr.function in ("max", "min", "sum", "prod") and len(expr.args) == 1:
                found = self.value(expr.args[0])
                if isinstance(found, ScalarTerm):
                    return found
            case ast.Unary(op="-"):
                found = self.value(expr.operand)
                if isinstance(found, ScalarTerm):
                    return apply("Neg", (found,))
            case ast.Binary(op="+" | "-" | "*" | "/"):
                found = [self.value(expr.left), self.value(expr.right)]
                terms = [
                    v if isinstance(v, ScalarTerm) else number(v)
                    for v in found
                    if isinstance(v, ScalarTerm | int | float)
                ]
                if len(terms) == 2 and any(isinstance(v, ScalarTerm) for v in found):
                    return apply(SIGNS[expr.op], terms)
        return self.structure(expr)

    def _contents(self, name: str) -> AttributeTerm:
        tensor = self.tensors.get(self.alias(name))
        if tensor is None:
            raise NotModelled(f"the contents of `{name}`: not modelled")
        if tensor.single:
            return tensor.sole()
        return ("contents", self.key(tensor))

    def structure(self, expr: object) -> Hashable:
        """A name for the value of an expression, the same for the same expression of the same facts."""
        if isinstance(expr, ast.Name):
            if expr.name in self.values:
                return self.values[expr.name]
            tensor = self.tensors.get(self.alias(expr.name))
            return ("name", expr.name) if tensor is None else ("tensor", self.key(tensor))
        if isinstance(expr, ast.Member) and isinstance(expr.of, ast.Name):
            name = self.alias(expr.of.name)
            if name in self.nodes and expr.name in self.nodes[name]:
                return self.nodes[name][expr.name]
            if name in self.tensors and expr.name in ("shape", "rank", "size"):
                return (expr.name, self.shapes.find(self.tensors[name].shape))
        if isinstance(expr, ast.Number):
            return expr.value
        if isinstance(expr, tuple):
            return tuple(self.structure(part) for part in expr)
        if dataclasses.is_dataclass(expr):
            parts = [getattr(expr, f.name) for f in dataclasses.fields(expr) if f.name not in ("place", "sign", "text")]
            return (type(expr).__name__, *(self.structure(part) for part in parts))
        return expr if isinstance(expr, Hashable) else repr(expr)
