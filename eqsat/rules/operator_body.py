"""The body of a declared operator for given attributes: its templates as a program of standard operators.

A number takes the element type of its neighbours, as everywhere in the rule language. The types of the operands are not
known here, so that a ``CastLike`` says it, except where the schema leaves one type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError, ModelError
from eqsat.ops.properties import is_deterministic
from eqsat.rules import ast
from eqsat.rules.evaluation import Unknown, evaluate
from eqsat.rules.signatures import Parameter, Signature, signature
from eqsat.rules.tree import without_places
from eqsat.schema import opset
from eqsat.schema.attributes import make_attrs
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import CAST_LIKE, CONSTANT, Attrs, AttrValue, OpKey, TensorAttr

_SPLIT = OpKey("", "Split")
_KEPT = 256
"""Bodies that are kept, one for each combination of attributes."""

_Value = int | tuple[int, int]
"""An operand of the body by its position, or a result of a node by the numbers of both."""


class TemplateBody:
    """Makes bodies; two of the same template are equal.

    Args:
        inputs: Names of the operands.
        results: The values that the operator returns.
    """

    def __init__(self, inputs: tuple[str, ...], results: tuple[ast.TemplateTerm, ...]) -> None:
        self.inputs = inputs
        self.results = results
        self._said = (inputs, without_places(results))
        self._made: dict[Attrs, Body] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TemplateBody) and self._said == other._said

    def __hash__(self) -> int:
        return hash((self.inputs, len(self.results)))

    def __call__(self, attrs: Mapping[str, AttrValue]) -> Body:
        """The body for some attributes.

        Raises:
            ModelError: An expression has no value for them, or an operator does not accept its value.
        """
        key = tuple(sorted(attrs.items()))
        body = self._made.get(key)
        if body is None:
            writer = _Writer(self.inputs, attrs)
            body = writer.body([writer.value(result) for result in self.results])
            if len(self._made) >= _KEPT:
                self._made.clear()
            self._made[key] = body
        return body


@dataclass
class _WrittenNode:
    op: OpKey
    attrs: Attrs
    operands: tuple[_Value | None, ...]
    outputs: int


@dataclass
class _Writer:
    inputs: tuple[str, ...]
    attributes: Mapping[str, AttrValue]
    steps: list[_WrittenNode] = field(default_factory=list)
    known: dict[tuple[OpKey, Attrs, tuple[_Value | None, ...]], int] = field(default_factory=dict)
    built: dict[int, _Value] = field(default_factory=dict)

    def body(self, results: Sequence[_Value]) -> Body:
        first: list[int] = []
        count = len(self.inputs)
        for step in self.steps:
            first.append(count)
            count += step.outputs

        def number(value: _Value) -> int:
            return value if isinstance(value, int) else first[value[0]] + value[1]

        nodes = (
            BodyNode(s.op, s.attrs, tuple(None if v is None else number(v) for v in s.operands), s.outputs)
            for s in self.steps
        )
        return Body(len(self.inputs), tuple(nodes), tuple(map(number, results)))

    def value(self, template: ast.TemplateTerm) -> _Value:
        """The value of a template that contains an operand."""
        if isinstance(template, ast.Name):
            return self.inputs.index(template.name)
        assert isinstance(template, ast.Build) and isinstance(template.op, OpKey)
        if id(template) not in self.built:
            self.built[id(template)] = self._build(template, template.op)
        return self.built[id(template)]

    def _build(self, template: ast.Build, op: OpKey) -> _Value:
        found = signature(op)
        assert found is not None
        tensors = {i: self.value(a) for i, a in enumerate(template.args) if isinstance(a, ast.Name | ast.Build)}
        operands: list[_Value | None] = []
        for i, arg in enumerate(template.args):
            if isinstance(arg, ast.Number | ast.TensorTerm):
                operands.append(self._constant(arg, found, i, tensors))
            else:
                operands.append(tensors.get(i))
        given = {name: self._evaluate(expr) for name, expr in template.attrs}
        attrs = make_attrs(op, {n: int(v) if isinstance(v, ir.DataType | bool) else v for n, v in given.items()})
        outputs = self._outputs(template, found, attrs)
        return self._step(op, attrs, tuple(operands), template.output, max(outputs, template.output + 1))

    def _step(
        self, op: OpKey, attrs: Attrs, operands: tuple[_Value | None, ...], output: int, outputs: int
    ) -> tuple[int, int]:
        key = (op, attrs, operands)
        index = self.known.get(key) if is_deterministic(op, attrs) else None
        if index is None:
            index = self.known[key] = len(self.steps)
            self.steps.append(_WrittenNode(op, attrs, operands, outputs))
        self.steps[index].outputs = max(self.steps[index].outputs, outputs)
        return index, output

    def _outputs(self, template: ast.Build, found: Signature, attrs: Attrs) -> int:
        """How many results a node has; the optional ones that nothing reads are left out."""
        if found.op != _SPLIT:
            return sum(not p.optional and not p.variadic for p in found.outputs)
        parts = dict(attrs).get("num_outputs")
        sizes = template.args[1] if len(template.args) > 1 else None
        if isinstance(sizes, ast.TensorTerm):
            parts = len(np.atleast_1d(self._evaluate(sizes.value)))
        if not isinstance(parts, int):
            raise _error(template.place, "a Split into a known number of parts is required")
        return parts

    # ---- constants -------------------------------------------------------------------------------

    def _evaluate(self, expr: ast.Expr) -> Any:
        try:
            return evaluate(expr, self.attributes)
        except Unknown as error:
            shown = ", ".join(f"{name}={value}" for name, value in sorted(self.attributes.items()))
            raise _error(expr.place, "expressions that have a value are required", f"{error} ({shown})") from None

    def _constant(
        self, arg: ast.Number | ast.TensorTerm, found: Signature, position: int, tensors: Mapping[int, _Value]
    ) -> _Value:
        parameter = found.parameter(position)
        value = arg.value if isinstance(arg, ast.Number) else self._evaluate(arg.value)
        stated = arg.dtype if isinstance(arg, ast.TensorTerm) else None
        if stated is not None:
            return self._stored(value, self._evaluate(stated), arg.place)
        only = _only(parameter)
        if only is not None:
            return self._stored(value, only, arg.place)
        standard = opset.find_schema(found.op) is not None
        neighbours = (i for i in tensors if not standard or found.parameter(i).type_name == parameter.type_name)
        like = next((tensors[i] for i in neighbours), None)
        if like is None:
            if isinstance(arg, ast.TensorTerm) and opset.type_name(ir.DataType.INT64) in parameter.types:
                return self._stored(value, ir.DataType.INT64, arg.place)
            requirement = "a number whose element type no other operand determines must state it"
            raise _error(arg.place, requirement, hint="write `tensor(value, float32)`")
        # In the widest type, so that the element type of the neighbour rounds once.
        widest = ir.DataType.INT64 if np.asarray(value).dtype.kind in "biu" else ir.DataType.DOUBLE
        stored = self._stored(value, widest, arg.place)
        return self._step(CAST_LIKE, make_attrs(CAST_LIKE, {}), (stored, like), 0, 1)

    def _stored(self, value: Any, dtype: ir.DataType, place: ast.Place) -> _Value:
        try:
            with np.errstate(all="ignore"):
                array = np.asarray(value).astype(dtype.numpy())
        except (EqsatError, TypeError, ValueError, OverflowError):
            raise _error(place, "a number or a list of numbers is required as a constant", repr(value)) from None
        return self._step(CONSTANT, (("value", TensorAttr(array, dtype)),), (), 0, 1)


def _only(parameter: Parameter) -> ir.DataType | None:
    """The element type of an operand that may have only one."""
    return opset.dtype_of(next(iter(parameter.types))) if len(parameter.types) == 1 else None


def _error(place: ast.Place, requirement: str, actual: str = "", hint: str = "") -> ModelError:
    return ModelError(requirement, place=str(place), actual=actual, hint=hint)
