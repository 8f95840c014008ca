"""Proofs for all ranks and sizes: each side as a function from any position of the result to a term.

This file reads patterns and templates; what operators mean is in :mod:`eqsat.proofs.operators_of_every_rank`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.proofs import conditions
from eqsat.proofs.clause_names import AttributeTerm, Denotation
from eqsat.proofs.operators_of_every_rank import OperatorsOfEveryRank, OperatorUse
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, apply, either_zero, number, symbol
from eqsat.proofs.symbolic_shapes import SCALAR, SOLE, ElementPosition, SymbolicShape
from eqsat.rules import ast
from eqsat.rules.absent_operands import NEG, Remainder, remainder
from eqsat.rules.ast import Rule
from eqsat.rules.evaluation import TensorFacts, Unknown, evaluate
from eqsat.rules.expand import Clause
from eqsat.schema.attributes import default_attrs
from eqsat.schema.opset import attribute_types, find_schema
from eqsat.schema.types import OpKey, TensorType


class EveryRank(OperatorsOfEveryRank):
    """One clause of a rule, denoted.

    Args:
        dtypes: Element types that are known, by name.

    Attributes:
        lefts: The roots of the pattern.
        reads_types: Whether the right side depends on element types.
    """

    def __init__(self, rule: Rule, clause: Clause, dtypes: Mapping[str, ir.DataType]) -> None:
        super().__init__(clause, conditions.assumed(rule, clause))
        self.rule = rule
        self.dtypes = dtypes
        self.single = conditions.single(self.parts)
        self.scalars = conditions.scalars(self.parts)
        self.positive = {self.alias(n) for n in conditions.positive(self.parts)}
        self.reads_types = False
        self._matched: dict[Hashable, list[Denotation]] = {}
        self._built: dict[Hashable, Denotation] = {}
        self._attributes: dict[Hashable, dict[str, AttributeTerm]] = {}
        self._outputs: dict[Hashable, int] = {}
        for root in clause.roots:
            self._count(root)
        self.lefts = [self._pattern(root) for root in clause.roots]
        for alias, name in clause.aliases.items():
            if name in self.tensors:
                self.tensors[alias] = self.tensors[name]
            if name in self.nodes:
                self.nodes[alias] = self.nodes[name]
        self._learn()

    def pairs(self) -> list[tuple[ScalarTerm, ScalarTerm]]:
        """Both sides at any position, by root.

        Raises:
            NotModelled: Something that the template computes has no meaning here.
        """
        rights = [self._template(template) for template in self.rule.right]
        for left, right in zip(self.lefts, rights, strict=True):
            # Rules apply only where both sides have one type.
            self.shapes.unite(left.shape, right.shape)
        # Shapes that have become equal are found in everything computed from here on.
        self._built.clear()
        rights = [self._template(template) for template in self.rule.right]
        found = []
        for left, right in zip(self.lefts, rights, strict=True):
            at = SOLE if left.single or right.single else self.shapes.whole(left.shape)
            found.append((left.element(at), right.element(at)))
        return found

    # ---- what conditions say ----------------------------------------------------------------------

    def _learn(self) -> None:
        shapes = self.shapes
        for left, sign, right in conditions.comparisons(self.parts):
            for fact in ("shape", "size", "rank"):
                a, b = conditions.member(left, fact), conditions.member(right, fact)
                if sign == "==" and a in self.tensors and b in self.tensors:
                    x, y = self.tensors[a].shape, self.tensors[b].shape
                    if fact == "shape":
                        shapes.unite(x, y)
                    elif fact == "size":
                        shapes.unite(shapes.size(x), shapes.size(y))
                    else:
                        shapes.unite(("rank", shapes.find(x)), ("rank", shapes.find(y)))
                if sign == "<=" and fact == "rank" and a in self.tensors and b in self.tensors:
                    shapes.within.add((self.tensors[a].shape, self.tensors[b].shape))
            name = conditions.member(left, "size")
            if sign == ">" and name in self.tensors and isinstance(right, ast.Number) and right.value >= 0:
                shapes.not_empty.add(self.tensors[name].shape)

    # ---- patterns ---------------------------------------------------------------------------------

    def _count(self, pattern: ast.Pattern | None) -> None:
        if isinstance(pattern, ast.Match):
            self._outputs[pattern.node] = max(self._outputs.get(pattern.node, 0), pattern.output + 1)
            for arg in pattern.args:
                self._count(arg)

    def _pattern(self, pattern: ast.Pattern | None) -> Any:
        match pattern:
            case None:
                return None
            case ast.Name():
                return self._leaf(pattern.name)
            case ast.Wildcard():
                return self._leaf(f"_{pattern.place.line}:{pattern.place.column}")
            case ast.Number():
                place = (pattern.place.line, pattern.place.column)
                term = either_zero(place) if pattern.value == 0 else number(pattern.value)
                return Denotation(("number", place), lambda _: term, False)
            case ast.Match():
                return self._match(pattern)
            case _:
                raise NotModelled(f"{type(pattern).__name__.lower()} as an operand of the pattern: not modelled")

    def _leaf(self, name: str) -> Denotation:
        if name not in self.tensors:
            single = name in self.single
            shape: SymbolicShape = SCALAR if name in self.scalars else ("shape", name)

            def element(position: ElementPosition) -> ScalarTerm:
                return symbol("element", name, SOLE if single else position)

            self.tensors[name] = Denotation(shape, element, single)
        return self.tensors[name]

    def _match(self, pattern: ast.Match) -> Denotation:
        key: Hashable = pattern.node if self._outputs[pattern.node] > 1 else id(pattern)
        if key not in self._matched:
            op = pattern.ops[0]
            if any(isinstance(arg, ast.Rest) for arg in pattern.args):
                raise NotModelled("an operator of any number of operands: not modelled for all ranks")
            operands = [self._pattern(arg) for arg in pattern.args]
            self._attributes[key] = attributes = self._matched_attributes(op, pattern, len(self._matched))
            if pattern.bind is not None:
                self.nodes[pattern.bind] = attributes
            self._matched[key] = [
                self.applied(OperatorUse(op, attributes, operands, output, ("node", len(self._matched))))
                for output in range(self._outputs[pattern.node])
            ]
        else:
            self._matched_attributes(pattern.ops[0], pattern, -1)
        found = self._matched[key][pattern.output]
        if pattern.bind is not None:
            if pattern.bind in self.single and not found.single:
                inner = found
                found = Denotation(found.shape, inner.element, True)
            self.tensors[pattern.bind] = found
            self.nodes[pattern.bind] = self._attributes[key]
        return found

    def _matched_attributes(self, op: OpKey, pattern: ast.Match, index: int) -> dict[str, AttributeTerm]:
        found: dict[str, AttributeTerm] = {}
        schema = find_schema(op)
        kinds = attribute_types(op) if schema is not None else {}
        names = set(kinds) | {name for name, _ in default_attrs(op)}
        bound = {bind.attribute: bind for bind in pattern.attrs}
        for name in sorted(names | set(bound)):
            bind = bound.get(name)
            is_number = name in kinds and kinds[name] == ir.AttributeType.FLOAT
            if bind is not None and bind.name is not None:
                fresh: AttributeTerm = symbol("attribute", bind.name) if is_number else ("attribute", bind.name)
                found[name] = self.values.setdefault(bind.name, fresh)
            elif bind is not None and bind.equals is not None:
                found[name] = self.value(bind.equals)
            else:
                found[name] = symbol("attribute", index, name) if is_number else ("attribute", index, name)
        return found

    # ---- templates --------------------------------------------------------------------------------

    def _template(self, template: ast.TemplateTerm | None) -> Any:
        match template:
            case None:
                return None
            case ast.Name():
                if template.name in self.clause.absent:
                    return None
                return self.tensors[self.alias(template.name)]
            case ast.Number():
                term = number(template.value)
                return Denotation(SCALAR, lambda _: term, True)
            case ast.TensorTerm():
                return self._literal(template)
            case ast.Build():
                return self._build(template)
            case _:
                raise NotModelled(f"{type(template).__name__.lower()} as an operand: not modelled")

    def _build(self, template: ast.Build) -> Denotation | None:
        key = (template.node, template.output)
        if key in self._built:
            return self._built[key]
        op = template.op if isinstance(template.op, OpKey) else self.clause.operators[template.op]
        if any(isinstance(arg, ast.Rest) for arg in template.args):
            raise NotModelled("an operator of any number of operands: not modelled for all ranks")
        operands = [self._template(arg) for arg in template.args]
        left = remainder(op, [operand is not None for operand in operands])
        if left is not None:
            return self._remaining(left, operands)
        attributes: dict[str, AttributeTerm] = dict(default_attrs(op))
        schema = find_schema(op)
        for name in template.spread:
            node = self.nodes[self.alias(name)]
            attributes |= {k: v for k, v in node.items() if schema is None or k in schema.attributes}
        for name, expr in template.attrs:
            attributes[name] = self.value(expr)
        if not op.domain and op.name in ("Reshape", "Expand") and isinstance(template.args[1], ast.TensorTerm):
            name = conditions.member(template.args[1].value, "shape")
            if name in self.tensors and operands[0] is not None:
                found = self._shaped(op.name, operands[0], self.tensors[name].shape)
                self._built[key] = found
                return found
        while operands and operands[-1] is None:
            operands.pop()
        found = self.applied(OperatorUse(op, attributes, operands, template.output))
        self._built[key] = found
        return found

    def _remaining(self, left: Remainder, operands: list[Denotation | None]) -> Denotation | None:
        if left == Remainder.NEGATED:
            return self.applied(OperatorUse(NEG, {}, operands[1:]))
        return {Remainder.LEFT: operands[0], Remainder.RIGHT: operands[-1]}.get(left)

    def _shaped(self, op: str, x: Denotation, shape: SymbolicShape) -> Denotation:
        shapes = self.shapes
        if op == "Reshape":
            return Denotation(shape, lambda p: x.element(shapes.view(x.shape, shape, p)), x.single)
        return Denotation(shape, lambda p: x.element(shapes.fit(x.shape, p)), False)

    def _literal(self, template: ast.TensorTerm) -> Denotation:
        value: Any = None
        try:
            facts = {n: TensorFacts(TensorType(dtype, None)) for n, dtype in self.dtypes.items()}
            value = evaluate(template.value, {**facts, **{n: v for n, v in self.values.items() if _is_plain(v)}})
        except Unknown:
            value = None
        self.reads_types |= value is not None and not isinstance(template.value, ast.Number | ast.Sequence)
        if isinstance(value, int | float):
            term = number(value)
            return Denotation(SCALAR, lambda _: term, True)
        if value is not None and not isinstance(value, str):
            array = np.asarray(value)
            table = ("table", tuple(array.ravel().tolist()), array.shape)
            if array.dtype.kind in "iuf":
                return Denotation(table, lambda p: _entry(table, p), array.ndim == 0)
        key = ("literal", self.structure(template.value))
        return Denotation(key, lambda p: symbol(key, p), False)


def _is_plain(value: AttributeTerm) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, ScalarTerm)


def _entry(table: tuple[Any, ...], position: ElementPosition) -> ScalarTerm:
    if position[0] == "entry":
        index = position[2]
        assert isinstance(index, ScalarTerm)
        return apply("Entry", (index,), (("table", table[1]),))
    return symbol(table, position)
