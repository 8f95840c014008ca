"""The right side of a rule: first laid out as steps over egglog variables, then evaluated for one signature.

The layout is static (constructors, operands), so that egglog can build it; what depends on the matched facts
(attributes, constants, types of the intermediate values) is computed in Python once a signature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.egraph.encode import has_variadic_outputs
from eqsat.egraph.intern import Tables
from eqsat.egraph.language import ABSENT, Constructor
from eqsat.egraph.query import Query
from eqsat.errors import EqsatError, RuleError
from eqsat.model.attributes import make_attrs
from eqsat.model.infer import infer_types
from eqsat.model.opset import find_schema
from eqsat.model.normalize import complete
from eqsat.model.types import OpKey, TensorType
from eqsat.ops.properties import value_inputs
from eqsat.rules.ast import Build, Expr, Number, Place, Rest, Template, Tensor, Var
from eqsat.rules.expression import NodeFacts, TensorFacts, Unknown, evaluate

LARGEST_FILL = 1 << 20
"""A template that is only a number becomes a constant of the root's shape, up to this many elements."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Where an operand comes from: an egglog variable, or an earlier step (and which of its outputs)."""

    variable: str | None = None
    step: int | None = None
    output: int = 0


@dataclass(frozen=True, slots=True)
class ConstantStep:
    """A number or a computed constant; its id is one output column of the answer."""

    template: Number | Tensor


@dataclass(frozen=True, slots=True)
class BuildStep:
    """An operator; its attribute id is one output column of the answer."""

    template: Build
    constructor: Constructor
    operands: tuple[Operand | None, ...]


Step = ConstantStep | BuildStep


@dataclass(frozen=True, slots=True)
class Layout:
    """Steps in order and, per root, where its new value comes from."""

    steps: tuple[Step, ...]
    roots: tuple[Operand, ...]

    @property
    def variables(self) -> list[str]:
        """egglog variables read, in order of first use."""
        used: dict[str, None] = {}
        for operand in [*self._operands(), *self.roots]:
            if operand.variable is not None:
                used.setdefault(operand.variable)
        return list(used)

    @property
    def by_value(self) -> list[str]:
        """egglog variables that decide a type by their value."""
        found: dict[str, None] = {}
        for step in self.steps:
            if isinstance(step, BuildStep):
                for i in value_inputs(step.constructor.op):
                    if i < len(step.operands):
                        operand = step.operands[i]
                        if operand is not None and operand.variable is not None:
                            found.setdefault(operand.variable)
        return list(found)

    def _operands(self) -> Iterator[Operand]:
        for step in self.steps:
            if isinstance(step, BuildStep):
                yield from (o for o in step.operands if o is not None)

    def actions(self, rule: int) -> list[str]:
        """egglog actions; output column i is the variable ``o{i}``, step i's value ``b{i}``."""
        actions = []
        for i, step in enumerate(self.steps):
            if isinstance(step, BuildStep):
                operands = [self.expression(o) for o in step.operands]
                actions.append(f"(let b{i} {step.constructor.call(f'o{i}', operands)})")
                actions.append(step.constructor.made(f"o{i}", operands, str(rule)))
        return actions

    def expression(self, operand: Operand | None) -> str:
        """The egglog expression of an operand."""
        if operand is None:
            return ABSENT
        if operand.variable is not None:
            return operand.variable
        assert operand.step is not None
        step = self.steps[operand.step]
        if isinstance(step, ConstantStep):
            return f"(Const o{operand.step})"
        return f"(out b{operand.step} {operand.output})" if step.constructor.outputs else f"b{operand.step}"


class LayoutBuilder:
    """Lays out the templates of one clause over one of its queries."""

    def __init__(self, query: Query, absent: frozenset[str], operators: Mapping[str, OpKey], place: Place) -> None:
        self.query = query
        self.absent = absent
        self.operators = operators
        self.place = place
        self._steps: list[Step] = []
        self._known: dict[Any, int] = {}
        self._sizes: dict[tuple[Any, ...], int] = {}

    def layout(self, templates: Sequence[Template]) -> Layout:
        for template in templates:
            self._count_outputs(template)
        roots = []
        for template in templates:
            root = self._operand(template)
            if root is None:
                raise RuleError("a right side that is present is required", place=str(self.place), actual="absent")
            roots.append(root)
        return Layout(tuple(self._steps), tuple(roots))

    def _count_outputs(self, template: Template | None) -> None:
        """Notes how many outputs each built operator must have: as many as the templates name."""
        if isinstance(template, Build):
            key = _identity(template)
            self._sizes[key] = max(self._sizes.get(key, 1), template.output + 1)
            for arg in template.args:
                self._count_outputs(arg)

    def _operand(self, template: Template | None) -> Operand | None:
        if template is None:
            return None
        if isinstance(template, Var):
            if template.name in self.absent:
                return None
            return Operand(variable=self.query.tensors[template.name])
        if isinstance(template, Number | Tensor):
            return Operand(step=self._step(template, ConstantStep(template)))
        assert isinstance(template, Build), f"{template} cannot stand here"
        return self._build(template)

    def _build(self, template: Build) -> Operand | None:
        op = template.op if isinstance(template.op, OpKey) else self.operators[template.op]
        operands: list[Operand | None] = []
        for arg in template.args:
            if isinstance(arg, Rest):
                operands += [Operand(variable=v) for v in self.query.rests[arg.name]]
            else:
                operands.append(self._operand(arg))
        if op.domain == "" and op.name in ("Add", "Sub", "Mul", "Div") and len(operands) == 2 and None in operands:
            return self._neutral(op.name, template, operands)
        while operands and operands[-1] is None:
            operands.pop()
        size = self._sizes[_identity(template)]
        outputs = size if size > 1 or has_variadic_outputs(op) else 0
        step = BuildStep(template, Constructor(op, len(operands), outputs), tuple(operands))
        return Operand(step=self._step(_identity(template), step), output=template.output)

    def _neutral(self, name: str, template: Build, operands: list[Operand | None]) -> Operand | None:
        """Arithmetic with an absent operand, which counts as zero."""
        left, right = operands
        if name in ("Mul", "Div"):
            if name == "Div" and right is None and left is not None:
                raise RuleError("a divisor is required", place=str(template.place), actual="an absent operand")
            return None
        if right is None:
            return left
        if name == "Add":
            return right
        step = BuildStep(
            Build(OpKey("", "Neg"), template.args[1:], (), (), 0, template.place),
            Constructor(OpKey("", "Neg"), 1),
            (right,),
        )
        return Operand(step=self._step(("neg", _identity(template)), step))

    def _step(self, key: Any, step: Step) -> int:
        if key not in self._known:
            self._known[key] = len(self._steps)
            self._steps.append(step)
        return self._known[key]


def _identity(template: Build) -> tuple[Any, ...]:
    """What makes two templates the same e-node: all but which output is meant."""
    return (template.op, template.args, template.attrs, template.spread, template.place)


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
    """

    def __init__(
        self, layout: Layout, tables: Tables, facts: Mapping[str, TensorFacts], env: dict[str, object], roots: list[TensorType]
    ) -> None:
        self.layout = layout
        self.tables = tables
        self.facts = facts
        self.env = env
        self.roots = roots
        self._results: list[tuple[TensorFacts, ...] | None] = [None] * len(layout.steps)
        self._columns = [0] * len(layout.steps)

    def columns(self) -> tuple[int, ...]:
        """The output columns.

        Raises:
            NotApplicable, TypeMismatch
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
        return tuple(self._columns)

    def _facts(self, operand: Operand) -> TensorFacts:
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
            self._constant(constant, self._operand_dtype(op, i, types, constant), None)
            facts = self._facts(Operand(step=constant))
            types[i], values[i] = facts.type, facts.value
        if any(t is None for t, o in zip(types, step.operands, strict=True) if o is not None):
            raise NotApplicable("the type of an operand is unknown")
        attrs = self._attributes(op, step.template)
        try:
            bundle = complete(op, make_attrs(op, attrs, place=str(step.template.place)), types)
            found = infer_types(op, bundle, types, values, max(step.constructor.outputs, 1))
        except EqsatError as error:
            raise TypeMismatch(str(error)) from error
        self._columns[index] = self.tables.attrs.id(bundle)
        self._results[index] = tuple(TensorFacts(t, None, False, True) for t in found)
        if step.template.name is not None:
            self.env[step.template.name] = self._results[index][step.template.output]

    def _attributes(self, op: OpKey, template: Build) -> dict[str, object]:
        schema = find_schema(op)
        allowed = None if schema is None else set(schema.attributes)
        attrs: dict[str, object] = {}
        for name in template.spread:
            node = self.env[name]
            assert isinstance(node, NodeFacts)
            attrs.update({k: v for k, v in node.attrs if allowed is None or k in allowed})
        for name, expr in template.attrs:
            value = self._evaluate(expr)
            attrs[name] = value.tolist() if isinstance(value, np.ndarray) else value
        return attrs

    def _evaluate(self, expr: Expr) -> object:
        try:
            return evaluate(expr, self.env)
        except Unknown as error:
            raise NotApplicable(str(error)) from error

    def _operand_dtype(self, op: OpKey, index: int, types: Sequence[TensorType | None], constant: int) -> ir.DataType:
        """The element type of a literal operand: the schema's only one, or that of a neighbour of the same kind."""
        step = self.layout.steps[constant]
        assert isinstance(step, ConstantStep)
        if isinstance(step.template, Tensor) and step.template.dtype is not None:
            dtype = self._evaluate(step.template.dtype)
            assert isinstance(dtype, ir.DataType)
            return dtype
        schema = find_schema(op)
        if schema is None:
            found = next((t.dtype for t in types if t is not None), None)
        else:
            formals = [schema.inputs[min(i, len(schema.inputs) - 1)] for i in range(len(types))]
            kind = formals[index].type_str
            if len(formals[index].types) == 1:
                return _dtype_named(next(iter(formals[index].types)))
            found = next((t.dtype for t, f in zip(types, formals, strict=True) if t is not None and f.type_str == kind), None)
            if found is None and isinstance(step.template, Tensor) and "tensor(int64)" in formals[index].types:
                return ir.DataType.INT64
        if found is None:
            raise NotApplicable("no neighbour gives the literal its element type")
        return found

    def _constant(self, index: int, dtype: ir.DataType, root: TensorType | None) -> None:
        step = self.layout.steps[index]
        assert isinstance(step, ConstantStep)
        template = step.template
        value = template.value if isinstance(template, Number) else self._evaluate(template.value)
        try:
            array = literal(value, dtype)
        except (ValueError, OverflowError, TypeError) as error:
            raise NotApplicable(f"{value} is no {dtype.name.lower()}") from error
        if root is not None and root.shape != array.shape:
            if not root.is_static or (root.elements or 0) > LARGEST_FILL:
                raise NotApplicable("the constant would be too large")
            shape = tuple(d for d in root.shape or () if isinstance(d, int))
            array = np.broadcast_to(array, shape)
        self._columns[index] = number = self.tables.constants.of_array(array, dtype)
        facts = TensorFacts(self.tables.constants[number].type, array, True, True)
        self._results[index] = (facts,)


def _dtype_named(name: str) -> ir.DataType:
    """``tensor(int64)`` -> INT64."""
    text = name.removeprefix("tensor(").removesuffix(")")
    return ir.DataType[{"float": "FLOAT", "double": "DOUBLE"}.get(text, text.upper())]


def literal(value: object, dtype: ir.DataType) -> np.ndarray:
    """A value of the expression language as an array.

    Raises:
        ValueError: The element type cannot hold the value.
    """
    source = np.asarray(value)
    if source.dtype == object:
        raise ValueError(f"{value!r} is no tensor")
    array = source.astype(dtype.numpy())
    exact = dtype.numpy().kind in "iub"
    if exact and source.size and not np.array_equal(array.astype(np.float64), source.astype(np.float64)):
        raise ValueError(f"{value!r} is not exact")
    return array
