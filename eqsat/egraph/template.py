"""Evaluates the right side of a rule for one signature: attributes, constants, and the types of all its values.

The type of the result must be that of the left side, so that a wrong rule is found before anything enters the e-graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.egraph.intern import Numbers, Tables
from eqsat.egraph.made_constants import MadeConstants, OutOfRange
from eqsat.egraph.right_side import BuildStep, ConstantStep, OperandOrigin, StepOrder
from eqsat.egraph.shape_operands import EXPAND, RESHAPE, shape_operand
from eqsat.errors import EqsatError
from eqsat.model.inference.infer import infer_types
from eqsat.model.normalize import complete
from eqsat.rules.ast import Build, Expr, Number, TensorTerm
from eqsat.rules.evaluation import NodeFacts, TensorFacts, Unknown, evaluate, shape
from eqsat.schema.attributes import make_attrs
from eqsat.schema.opset import dtype_of, dtypes, find_schema
from eqsat.schema.types import OpKey, TensorType

LARGEST_FILL = 1 << 20
"""A template that is only a number becomes a constant of the root's shape, up to this many elements."""
_WHOLE = {ir.DataType.INT32, ir.DataType.INT64}
"""The types of operands that are indices or sizes."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How a clause applies to a signature.

    Attributes:
        columns: One id per step: of its attributes, or of the constant that replaces it.
        folded: Operators that are constants.
    """

    columns: tuple[int, ...]
    folded: frozenset[int] = frozenset()


class NotApplicable(Exception):
    """The rule does not apply to this signature (a type is unknown, an attribute cannot be computed)."""


class TypeMismatch(Exception):
    """The right side has another type than the left: the rule is wrong, or lacks a condition."""


class Evaluation:
    """Evaluates a layout for one signature.

    Args:
        facts: egglog variable -> facts.
        env: Names of the rule -> facts, attributes, numbers.
        roots: Types of the left side's roots.
        numbers: egglog variable -> known facts about its numbers, if it is constant.
        exact: Whether the rule computes the same bits as its left side.
    """

    def __init__(
        self,
        layout: StepOrder,
        tables: Tables,
        facts: Mapping[str, TensorFacts],
        env: dict[str, object],
        roots: list[TensorType],
        numbers: Mapping[str, Numbers],
        *,
        exact: bool,
    ) -> None:
        self.layout = layout
        self.tables = tables
        self.facts = facts
        self.env = env
        self.roots = roots
        self._made = MadeConstants(layout, tables, numbers, exact=exact)
        self._results: list[tuple[TensorFacts, ...] | None] = [None] * len(layout.steps)
        self._columns = [0] * len(layout.steps)

    def answer(self) -> Answer:
        """The output columns.

        Raises:
            NotApplicable: A type is unknown, or an attribute cannot be computed.
            TypeMismatch: The right side has another type than the left.
            OutOfRange: The element type of a constant cannot hold it.
        """
        for i, step in enumerate(self.layout.steps):
            if isinstance(step, BuildStep):
                self._build(i, step)
        for operand, root in zip(self.layout.roots, self.roots, strict=True):
            if operand.step is not None and isinstance(self.layout.steps[operand.step], ConstantStep):
                self._constant(operand.step, root.dtype, root)
            found = self._facts(operand).type
            if found is None or found.shape is None:
                raise NotApplicable("the type of the right side is unknown")
            if found != root:
                raise TypeMismatch(f"left is {root}, right is {found}")
        self._made.check()
        for step, constant in self._made.folded().items():
            self._columns[step] = constant
        return Answer(tuple(self._columns), frozenset(self._made.folded()))

    def _facts(self, operand: OperandOrigin) -> TensorFacts:
        if operand.variable is not None:
            return self.facts[operand.variable]
        assert operand.step is not None
        results = self._results[operand.step]
        assert results is not None
        return results[operand.output]

    def _build(self, index: int, step: BuildStep) -> None:
        op = step.constructor.op
        pending = []
        types: list[TensorType | None] = [None] * len(step.operands)
        values: list[np.ndarray | None] = [None] * len(step.operands)
        for i, operand in enumerate(step.operands):
            if operand is None:
                continue
            if operand.step is not None and isinstance(self.layout.steps[operand.step], ConstantStep):
                pending.append((i, operand.step))
                continue
            facts = self._facts(operand)
            types[i], values[i] = facts.type, facts.value
        for i, constant in pending:
            value = self._shape(constant, op, types[0]) if i == 1 else None
            self._constant(constant, self._operand_dtype(op, i, types, constant), None, value)
            facts = self._facts(OperandOrigin(step=constant))
            types[i], values[i] = facts.type, facts.value
        if any(t is None for t, o in zip(types, step.operands, strict=True) if o is not None):
            raise NotApplicable("the type of an operand is unknown")
        attrs = self._attributes(op, step.template, types)
        try:
            bundle = complete(op, make_attrs(op, attrs, place=str(step.template.place)), types)
            found = infer_types(op, bundle, types, values, max(step.constructor.outputs, 1))
        except EqsatError as error:
            raise TypeMismatch(str(error)) from error
        self._made.built(index, step, bundle, found)
        self._columns[index] = self.tables.attrs.id(bundle)
        self._results[index] = results = tuple(TensorFacts(t) for t in found)
        if step.template.name is not None:
            self.env[step.template.name] = results[step.template.output]

    def _attributes(self, op: OpKey, template: Build, types: Sequence[TensorType | None]) -> dict[str, object]:
        schema = find_schema(op)
        allowed = None if schema is None else set(schema.attributes)
        attrs: dict[str, object] = {}
        for name in template.spread:
            node = self.env[name]
            assert isinstance(node, NodeFacts)
            attrs.update({k: v for k, v in node.attrs if allowed is None or k in allowed})
        for name, expr in template.attrs:
            value = self._evaluate(expr)
            if isinstance(value, float) and not isinstance(expr, Number):
                _require_single(value, name, types)
            attrs[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return attrs

    def _evaluate(self, expr: Expr) -> object:
        try:
            return evaluate(expr, self.env)
        except Unknown as error:
            raise NotApplicable(str(error)) from error

    def _operand_dtype(self, op: OpKey, index: int, types: Sequence[TensorType | None], constant: int) -> ir.DataType:
        """The element type of a literal operand: the schema's only one, or a neighbour's, first of the same kind."""
        step = self.layout.steps[constant]
        assert isinstance(step, ConstantStep)
        if isinstance(step.template, TensorTerm) and step.template.dtype is not None:
            dtype = self._evaluate(step.template.dtype)
            assert isinstance(dtype, ir.DataType)
            return dtype
        schema = find_schema(op)
        if schema is None:
            found = next((t.dtype for t in types if t is not None), None)
        else:
            formals = [schema.inputs[min(i, len(schema.inputs) - 1)] for i in range(len(types))]
            kind = formals[index].type_str
            if len(formals[index].types) == 1 and (only := dtype_of(next(iter(formals[index].types)))) is not None:
                return only
            found = next(
                (t.dtype for t, f in zip(types, formals, strict=True) if t is not None and f.type_str == kind), None
            )
            allowed = dtypes(formals[index].types)
            whole = isinstance(step.template, TensorTerm) or allowed <= _WHOLE
            if found is None and whole and ir.DataType.INT64 in allowed:
                return ir.DataType.INT64
            # The exponent of Pow may have a type of its own, and is a number like its neighbour all the same.
            found = found or next((t.dtype for t in types if t is not None and t.dtype in allowed), None)
        if found is None:
            raise NotApplicable("no neighbour gives the literal its element type")
        return found

    def _shape(self, index: int, op: OpKey, operand: TensorType | None) -> list[int] | None:
        """The constant for a shape with free sizes; None for an ordinary constant."""
        step = self.layout.steps[index]
        if op not in (RESHAPE, EXPAND) or not isinstance(step, ConstantStep) or isinstance(step.template, Number):
            return None
        try:
            wanted = shape(step.template.value, self.env)
        except Unknown:
            return None
        return None if all(isinstance(d, int) for d in wanted) else shape_operand(op, wanted, operand)

    def _constant(self, index: int, dtype: ir.DataType, root: TensorType | None, value: object = None) -> None:
        step = self.layout.steps[index]
        assert isinstance(step, ConstantStep)
        template = step.template
        if value is None:
            value = template.value if isinstance(template, Number) else self._evaluate(template.value)
        try:
            array = literal(value, dtype)
        except (ValueError, OverflowError, TypeError) as error:
            raise NotApplicable(f"{value} is not a {dtype.name.lower()}") from error
        if root is not None and root.shape != array.shape:
            if not root.is_static or (root.elements or 0) > LARGEST_FILL:
                raise NotApplicable("the constant would be too large")
            shape = tuple(d for d in root.shape or () if isinstance(d, int))
            array = np.broadcast_to(array, shape)
        self._made.literal(index, value, dtype)
        self._columns[index] = number = self.tables.constants.of_array(array, dtype)
        facts = TensorFacts(self.tables.constants[number].type, array, True, True)
        self._results[index] = (facts,)


def _require_single(value: float, name: str, types: Sequence[TensorType | None]) -> None:
    """ONNX's attributes are float32: a value computed for one must fit there, except for the last bits of float64."""
    with np.errstate(all="ignore"):
        single = float(np.float32(value))
    double = any(t is not None and t.dtype == ir.DataType.DOUBLE for t in types)
    if not np.isfinite(single) or (value and abs(single) < np.finfo(np.float32).tiny) or (double and single != value):
        raise OutOfRange(f"attribute `{name}`, a float32, cannot hold {value!r}")


def literal(value: object, dtype: ir.DataType) -> np.ndarray:
    """A value of the expression language as an array.

    Raises:
        ValueError: The element type cannot hold the value.
    """
    source = np.asarray(value)
    if source.dtype == object:
        raise ValueError(f"{value!r} is not a tensor")
    with np.errstate(over="ignore", invalid="ignore"):
        array = source.astype(dtype.numpy())
    exact = dtype.numpy().kind in "iub"
    if exact and source.size and not np.array_equal(array.astype(np.float64), source.astype(np.float64)):
        raise ValueError(f"{value!r} is not exact")
    return array
