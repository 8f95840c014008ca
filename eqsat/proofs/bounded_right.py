"""The right side of a rule for one left side of known shapes, and the comparison of both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.proofs import choices, conditions, term_arrays
from eqsat.proofs.bounded import LeftSides, State
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, apply, number
from eqsat.proofs.term_tensors import ImpossibleChoice, TermTensor
from eqsat.rules import ast
from eqsat.rules.absent_operands import NEG, Remainder, remainder
from eqsat.rules.callee import SIGNS
from eqsat.rules.evaluation import NodeFacts, TensorFacts, Unknown, evaluate
from eqsat.schema.attributes import default_attrs
from eqsat.schema.opset import find_schema
from eqsat.schema.types import OpKey, TensorType


class NoAnswer(Exception):
    """The rule does not apply here: an expression of its right side has no value, or the sides have other types."""


class Right:
    """The right side of one left side."""

    def __init__(self, left: LeftSides, state: State) -> None:
        self.left = left
        self.state = state
        self.env = dict(state.env)
        self._built: dict[Any, list[TermTensor]] = {}
        self._outputs: dict[Any, int] = {}
        for template in left.rule.right:
            self._count(template)

    def pairs(self) -> Iterator[tuple[ScalarTerm, ScalarTerm]]:
        """All elements of both sides.

        Raises:
            NoAnswer: The rule does not apply.
            NotModelled: See there.
        """
        for root, template in zip(self.left.clause.roots, self.left.rule.right, strict=True):
            want = self.state.results[self.left.key(root)][root.output]
            found = self._template(template, want.type.dtype)
            if found is None:
                raise NoAnswer
            array = term_arrays.terms(found.array)
            if isinstance(template, ast.Number | ast.TensorTerm):
                array = np.broadcast_to(array, want.array.shape)
            elif found.type != want.type:
                raise NoAnswer
            yield from zip(term_arrays.terms(want.array).ravel().tolist(), array.ravel().tolist(), strict=True)

    def _count(self, template: ast.TemplateTerm | None) -> None:
        if isinstance(template, ast.Build):
            self._outputs[template.node] = max(self._outputs.get(template.node, 1), template.output + 1)
            for arg in template.args:
                self._count(arg)

    def _template(self, template: ast.TemplateTerm | None, dtype: ir.DataType) -> TermTensor | None:
        match template:
            case None:
                return None
            case ast.Name():
                name = self.left.clause.aliases.get(template.name, template.name)
                return None if name in self.left.clause.absent else self.state.names[name]
            case ast.Number():
                return self._constant(template.value, dtype)
            case ast.TensorTerm():
                given = dtype if template.dtype is None else self._evaluated(template.dtype)
                if not isinstance(given, ir.DataType):
                    raise NoAnswer
                return self._constant(self.value(template.value), given)
            case ast.Build():
                return self._build(template, dtype)
        raise NotModelled(f"{type(template).__name__.lower()} as an operand: not modelled")

    def _constant(self, value: Any, dtype: ir.DataType) -> TermTensor:
        if isinstance(value, ScalarTerm):
            array = term_arrays.filled((), lambda _: value)
        else:
            array = np.asarray(value)
            if array.dtype == object or array.dtype.kind not in "iufb":
                raise NotModelled("a constant of this kind")
            array = (
                array.astype(np.int64) if dtype.is_integer() and array.dtype.kind in "iu" else term_arrays.terms(array)
            )
        return TermTensor(TensorType(dtype, array.shape), array)

    def _build(self, template: ast.Build, dtype: ir.DataType) -> TermTensor | None:
        if template.node in self._built:
            return self._built[template.node][template.output]
        op = template.op if isinstance(template.op, OpKey) else self.left.clause.operators[template.op]
        given = self._operands(op, template, dtype)
        left = remainder(op, [operand is not None for operand in given])
        if left is not None:
            return self._remaining(left, given)
        while given and given[-1] is None:
            given.pop()
        attrs: dict[str, Any] = dict(default_attrs(op))
        schema = find_schema(op)
        for name in template.spread:
            node = self.state.nodes[self.left.clause.aliases.get(name, name)]
            attrs |= {k: v for k, v in node.items() if schema is None or k in schema.attributes}
        for name, expr in template.attrs:
            value = self.value(expr)
            attrs[name] = list(value) if isinstance(value, tuple) else value
        symbols = {k: v for k, v in attrs.items() if isinstance(v, ScalarTerm)}
        plain = {k: 1.0 if isinstance(v, ScalarTerm) else _plain(v) for k, v in attrs.items() if v is not None}
        try:
            _, results = self.left.apply(op, plain, symbols, given, self._outputs[template.node])
        except ImpossibleChoice:
            raise NoAnswer from None
        self._built[template.node] = results
        found = results[template.output]
        if template.name is not None:
            self.env[template.name] = TensorFacts(found.type)
        return found

    def _operands(self, op: OpKey, template: ast.Build, dtype: ir.DataType) -> list[TermTensor | None]:
        shaping = choices.SHAPING.get(op.name, ()) if not op.domain else ()
        found: list[TermTensor | None] = [None] * len(template.args)
        literal = (ast.Number, ast.TensorTerm)
        for late in (False, True):
            for i, arg in enumerate(template.args):
                if isinstance(arg, ast.Rest):
                    raise NotModelled("an operator of any number of operands: not modelled")
                if isinstance(arg, literal) == late:
                    near = next((t.type.dtype for t in found if t is not None), dtype)
                    found[i] = self._template(arg, ir.DataType.INT64 if i in shaping else near)
        return found

    def _remaining(self, left: Remainder, given: list[TermTensor | None]) -> TermTensor | None:
        if left == Remainder.NEGATED:
            return self.left.apply(NEG, {}, {}, given[1:], 1)[1][0]
        return {Remainder.LEFT: given[0], Remainder.RIGHT: given[-1]}.get(left)

    # ---- expressions ------------------------------------------------------------------------------

    def _evaluated(self, expr: ast.Expr) -> Any:
        try:
            return evaluate(expr, self.env)
        except Unknown:
            raise NoAnswer from None

    def value(self, expr: ast.Expr) -> Any:
        """The value of an expression; a term where it depends on contents or attributes that are terms."""
        expr = conditions.decided(expr, self.left.clause)
        if isinstance(expr, ast.Conditional):
            return self.value(expr.then if self._decides(expr.condition) else expr.otherwise)
        term = self._term(expr)
        if term is not None:
            return term
        if self._needs_terms(expr):
            raise NotModelled("an expression over contents: not modelled")
        return self._evaluated(expr)

    def _decides(self, condition: ast.Expr) -> bool:
        if isinstance(condition, ast.Member) and condition.name == "is_present":
            of = condition.of
            if isinstance(of, ast.Member) and isinstance(of.of, ast.Name) and of.of.name in self.state.nodes:
                return self.state.nodes[of.of.name].get(of.name) is not None
        return bool(self._evaluated(condition))

    def _needs_terms(self, expr: ast.Expr) -> bool:
        from eqsat.rules.dependencies import uses

        asked = uses(expr)
        contents = [self.state.names.get(name) for name in asked.values]
        return any(t is not None and t.array.dtype == object for t in contents) or any(
            name in self.state.symbols for name in asked.names
        )

    def _term(self, expr: ast.Expr) -> ScalarTerm | None:
        match expr:
            case ast.Name() if expr.name in self.state.symbols:
                return self.state.symbols[expr.name]
            case ast.Member(name="value") if isinstance(expr.of, ast.Name):
                return self._sole(expr.of.name)
            case ast.Member() if isinstance(expr.of, ast.Name) and isinstance(self.env.get(expr.of.name), NodeFacts):
                found = self.state.nodes[expr.of.name].get(expr.name)
                return found if isinstance(found, ScalarTerm) else None
            case ast.Index() if isinstance(expr.of, ast.Member) and expr.of.name == "value":
                return self._term(expr.of)
            case ast.Apply() if expr.function in ("max", "min") and len(expr.args) == 1:
                return self._term(expr.args[0])
            case ast.Unary(op="-"):
                inner = self._term(expr.operand)
                return None if inner is None else apply("Neg", (inner,))
            case ast.Binary(op="+" | "-" | "*" | "/"):
                sides = [self._term(expr.left), self._term(expr.right)]
                if all(side is None for side in sides):
                    return None
                whole = [
                    number(self._evaluated(part)) if side is None else side
                    for side, part in zip(sides, (expr.left, expr.right), strict=True)
                ]
                return apply(SIGNS[expr.op], whole)
        return None

    def _sole(self, name: str) -> ScalarTerm | None:
        tensor = self.state.names.get(self.left.clause.aliases.get(name, name))
        if tensor is None or tensor.array.dtype != object:
            return None
        if tensor.array.size != 1:
            raise NotModelled(f"the contents of `{name}`: not modelled")
        return tensor.array.ravel()[0]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else int(value) if isinstance(value, ir.DataType) else value
