"""Proofs for all ranks and sizes: each side as a function from any position of the result to a term.

Elementwise operators read their operands at that position, fitted to their shapes; operators that move elements read
their first operand at another position, by a map that the same attributes and shapes always decide in the same way.
Of any other operator only this is used: equal operands and attributes give equal results.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.proofs import conditions
from eqsat.proofs.names import Denotation, Names, Value
from eqsat.proofs.shapes import SCALAR, SOLE, Position, Shape
from eqsat.proofs.terms import Attributes, NotModelled, Term, apply, either_zero, number, symbol
from eqsat.rules import ast
from eqsat.rules.ast import Rule
from eqsat.rules.evaluation import TensorFacts, Unknown, evaluate
from eqsat.rules.expand import Clause
from eqsat.schema.attributes import default_attrs
from eqsat.schema.opset import attribute_types, find_schema
from eqsat.schema.types import OpKey, TensorType

_VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_SAME = frozenset({"Identity", "CastHint", "StopFusion"})
_MOVES = frozenset(
    {"Transpose", "Slice", "Gather", "GatherElements", "GatherND", "Tile", "DepthToSpace", "SpaceToDepth", "Split"}
)
_QUANTIZES = frozenset({"QuantizeLinear", "DequantizeLinear"})


class EveryRank(Names):
    """One clause of a rule, denoted.

    Args:
        dtypes: Element types that are known, by name.

    Attributes:
        lefts: The roots of the pattern.
        parts: What is assumed.
        reads_types: Whether the right side depends on element types.
    """

    def __init__(self, rule: Rule, clause: Clause, dtypes: Mapping[str, ir.DataType]) -> None:
        super().__init__(clause)
        self.rule = rule
        self.dtypes = dtypes
        self.parts = conditions.assumed(rule, clause)
        self.single = conditions.single(self.parts)
        self.scalars = conditions.scalars(self.parts)
        self.positive = {self.alias(n) for n in conditions.positive(self.parts)}
        self.reads_types = False
        self._matched: dict[Hashable, list[Denotation]] = {}
        self._built: dict[Hashable, Denotation] = {}
        self._attributes: dict[Hashable, dict[str, Value]] = {}
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

    def pairs(self) -> list[tuple[Term, Term]]:
        """Both sides at any position, by root.

        Raises:
            NotModelled: Something that the template computes has no meaning here.
        """
        rights = [self._template(template) for template in self.rule.right]
        for left, right in zip(self.lefts, rights, strict=True):
            # Rules apply only where both sides have one type.
            self.shapes.unite(left.shape, right.shape)
        # Shapes that have become equal are found in what is computed from here on.
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
            shape: Shape = SCALAR if name in self.scalars else ("shape", name)

            def element(position: Position) -> Term:
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
                self._apply(op, attributes, operands, output, ("node", len(self._matched)))
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

    def _matched_attributes(self, op: OpKey, pattern: ast.Match, index: int) -> dict[str, Value]:
        found: dict[str, Value] = {}
        schema = find_schema(op)
        kinds = attribute_types(op) if schema is not None else {}
        names = set(kinds) | {name for name, _ in default_attrs(op)}
        bound = {bind.attribute: bind for bind in pattern.attrs}
        for name in sorted(names | set(bound)):
            bind = bound.get(name)
            is_number = name in kinds and kinds[name] == ir.AttributeType.FLOAT
            if bind is not None and bind.name is not None:
                fresh: Value = symbol("attribute", bind.name) if is_number else ("attribute", bind.name)
                found[name] = self.values.setdefault(bind.name, fresh)
            elif bind is not None and bind.equals is not None:
                found[name] = self.value(bind.equals)
            else:
                found[name] = symbol("attribute", index, name) if is_number else ("attribute", index, name)
        return found

    # ---- templates --------------------------------------------------------------------------------

    def _template(self, template: ast.Template | None) -> Any:
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
            case ast.Tensor():
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
        if not op.domain and op.name in ("Add", "Sub", "Mul", "Div", "Neg") and None in operands:
            return self._neutral(op.name, operands)
        attributes: dict[str, Value] = dict(default_attrs(op))
        schema = find_schema(op)
        for name in template.spread:
            node = self.nodes[self.alias(name)]
            attributes |= {k: v for k, v in node.items() if schema is None or k in schema.attributes}
        for name, expr in template.attrs:
            attributes[name] = self.value(expr)
        if not op.domain and op.name in ("Reshape", "Expand") and isinstance(template.args[1], ast.Tensor):
            name = conditions.member(template.args[1].value, "shape")
            if name in self.tensors and operands[0] is not None:
                found = self._shaped(op.name, operands[0], self.tensors[name].shape)
                self._built[key] = found
                return found
        while operands and operands[-1] is None:
            operands.pop()
        found = self._apply(op, attributes, operands, template.output, None)
        self._built[key] = found
        return found

    def _neutral(self, name: str, operands: list[Denotation | None]) -> Denotation | None:
        if name in ("Mul", "Div", "Neg"):
            return None
        left, right = operands
        if right is None:
            return left
        return right if name == "Add" else self._apply(OpKey("", "Neg"), {}, [right], 0, None)

    def _shaped(self, op: str, x: Denotation, shape: Shape) -> Denotation:
        shapes = self.shapes
        if op == "Reshape":
            return Denotation(shape, lambda p: x.element(shapes.view(x.shape, shape, p)), x.single)
        return Denotation(shape, lambda p: x.element(shapes.fit(x.shape, p)), False)

    def _literal(self, template: ast.Tensor) -> Denotation:
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

    # ---- operators --------------------------------------------------------------------------------

    def _apply(
        self, op: OpKey, attributes: dict[str, Value], operands: list[Any], output: int, node: Hashable
    ) -> Denotation:
        if has(op, Trait.RANDOM):
            raise NotModelled(f"{op}: draws random numbers")
        shapes, name = self.shapes, op.name
        given = [o for o in operands if o is not None]
        if op.domain in ("", "eqsat") and name in _SAME and given:
            return given[0]
        if not op.domain and has(op, Trait.ELEMENTWISE) and given:
            present = tuple(o is not None for o in operands[1:])
            data = _data(attributes) if name not in _PLAIN else ()
            if name == "Clip":
                data = (("present", (*present, *(False for _ in range(2 - len(present))))),)
                given = [given[0], *(Denotation(SCALAR, o.element, True) for o in given[1:])]
            return self._elementwise(name, data, given)
        if op.domain in ("", "com.microsoft") and name in _QUANTIZES and all(o.single for o in given[1:]):
            data = tuple((k, v) for k, v in _data(attributes) if k not in ("axis", "block_size"))
            return self._quantizing(str(op), data, given)
        if not op.domain and name in _VIEWS:
            x = given[0]
            shape: Shape = ("view", x.shape, name, _data(attributes), tuple(self.key(o) for o in given[1:]), node)
            if x.single and name == "Reshape" and self._is_empty_list(given[1]):
                shape = SCALAR
            return Denotation(shape, lambda p: x.element(shapes.view(x.shape, shape, p)), x.single)
        if not op.domain and name == "Expand":
            x = given[0]
            shape = shapes.stretched(x.shape, ("target", self.key(given[1])))
            return Denotation(shape, lambda p: x.element(shapes.fit(x.shape, p)), False)
        if not op.domain and name == "Gather" and self._is_table(given[0]):
            return self._looked_up(given[0], given[1])
        if not op.domain and name in _MOVES:
            return self._moved(op, attributes, given, output)
        if not op.domain and name == "Concat":
            return given[0] if len(given) == 1 else self._pieces(op, attributes, given, ())
        if not op.domain and name == "Pad" and len(operands) >= 2:
            fill = number(0)
            value = operands[2] if len(operands) > 2 else None
            outside = Denotation(SCALAR, lambda _: fill, True) if value is None else value
            outside = Denotation(SCALAR, outside.element, True)
            rest = (operands[1], operands[3] if len(operands) > 3 else None)
            return self._pieces(op, attributes, [given[0], outside], rest)
        if not op.domain and name == "Resize" and self._copies(attributes):
            return self._pieces(op, attributes, given[:1], tuple(operands[1:]))
        return self._opaque(op, attributes, operands, output)

    def _elementwise(self, name: str, data: Attributes, given: list[Denotation]) -> Denotation:
        shapes = self.shapes
        # A single element of a rank that is no greater stretches nothing.
        stretching = [
            o
            for o in given
            if not (o.single and any((o.shape, other.shape) in shapes.within for other in given if other is not o))
        ]
        shape = shapes.stretched(*(o.shape for o in stretching or given))

        def element(position: Position) -> Term:
            return apply(name, (o.element(shapes.fit(o.shape, position)) for o in given), data)

        return Denotation(shape, element, all(o.single for o in given))

    def _quantizing(self, name: str, data: Attributes, given: list[Denotation]) -> Denotation:
        x, parameters = given[0], given[1:]

        def element(position: Position) -> Term:
            return apply(name, (x.element(position), *(o.sole() for o in parameters)), data)

        return Denotation(x.shape, element, x.single)

    def _moved(self, op: OpKey, attributes: dict[str, Value], given: list[Denotation], output: int) -> Denotation:
        shapes, x = self.shapes, given[0]
        if op.name == "Split" and len(given) > 1:
            attributes = {k: v for k, v in attributes.items() if k != "num_outputs"}  # The sizes say it.
        rest = tuple(self.key(o) for o in given[1:])
        own = (str(op), _data(attributes), output, rest)

        def key() -> Hashable:
            return ("moved", own, shapes.find(x.shape), tuple(shapes.find(o.shape) for o in given[1:]))

        shape = key()
        return Denotation(shape, lambda p: x.element(shapes.through(key(), x.shape, p)), False)

    def _pieces(
        self, op: OpKey, attributes: dict[str, Value], given: list[Denotation], rest: tuple[Denotation | None, ...]
    ) -> Denotation:
        """An operator of which each result is an element of one of its operands, wherever that lies."""
        shapes = self.shapes
        own = (str(op), _data(attributes), tuple(None if o is None else self.key(o) for o in rest))

        def key() -> Hashable:
            return ("pieces", own, tuple(shapes.find(o.shape) for o in given))

        def element(position: Position) -> Term:
            places = (shapes.through((key(), k), o.shape, position) for k, o in enumerate(given))
            elements = [o.sole() if o.single else o.element(p) for o, p in zip(given, places, strict=True)]
            return apply("Piece", elements, (("which", (key(), position)),))

        return Denotation(key(), element, False)

    def _copies(self, attributes: Mapping[str, Value]) -> bool:
        """Whether a Resize copies elements: it takes the nearest, and none from outside of its operand."""
        if attributes.get("mode") != "nearest":
            return False
        mode = attributes.get("coordinate_transformation_mode")
        if isinstance(mode, str):
            return mode != "tf_crop_and_resize"
        return any(
            sign == "!="
            and self.value(left) == mode
            and isinstance(right, ast.String)
            and right.value == "tf_crop_and_resize"
            for left, sign, right in conditions.comparisons(self.parts)
            if isinstance(left, ast.Member) and isinstance(left.of, ast.Name) and left.of.name in self.nodes
        )

    def _is_table(self, x: Denotation) -> bool:
        shape = self.shapes.find(x.shape)
        return isinstance(shape, tuple) and shape[0] == "table" and isinstance(shape[2], tuple) and len(shape[2]) == 1

    def _is_empty_list(self, target: Denotation) -> bool:
        return isinstance(target.shape, tuple) and target.shape[:2] == ("table", ())

    def _looked_up(self, table: Denotation, indices: Denotation) -> Denotation:
        def element(position: Position) -> Term:
            return table.element(("entry", self.shapes.find(table.shape), indices.element(position)))

        return Denotation(indices.shape, element, indices.single)

    def _opaque(self, op: OpKey, attributes: dict[str, Value], operands: list[Any], output: int) -> Denotation:
        keys = tuple(None if o is None else self.key(o) for o in operands)
        own = ("result", str(op), output, _data(attributes), keys)
        return Denotation(own, lambda p: apply(f"element of {op}", (), (("of", (own, p)),)), False)


_PLAIN = frozenset({"Clip"})


def _entry(table: tuple[Any, ...], position: Position) -> Term:
    if position[0] == "entry":
        index = position[2]
        assert isinstance(index, Term)
        return apply("Entry", (index,), (("table", table[1]),))
    return symbol(table, position)


def _data(attributes: Mapping[str, Value]) -> Attributes:
    return tuple(sorted(attributes.items(), key=lambda item: item[0]))


def _is_plain(value: Value) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, Term)
