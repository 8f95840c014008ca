"""Which tensors of a model are quantized, how, and which nodes read the quantized form.

- An operator that takes part reads integers and writes integers: its float inputs and outputs are quantized.
- A result of such an operator is quantized for every reader; a result of another operator, or a value of the caller,
  only for readers that take part.
- Nothing is quantized between an operator and a Relu or Clip that is its only reader: they are one step.
- Data movement passes integers on, with their scale and zero point. Neither data movement nor a lone Relu or Clip makes
  a float tensor quantized: that would cost accuracy and gain nothing.
- Constants: weights int8, biases int32 with the scale of the products, other operands like activations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import onnx_ir as ir

from eqsat.errors import QuantizationError
from eqsat.execute.trace import Trace
from eqsat.quantization.calibrate import is_float
from eqsat.quantization.hints import hinted_types
from eqsat.quantization.node_role import Role, attributes, role
from eqsat.quantization.options import Options
from eqsat.quantization.quantizer import (
    Quantizer,
    activation_quantizer,
    bias_quantizer,
    weight_quantizer,
    weight_quantizer_with_bias,
)
from eqsat.quantization.ranges import Range, constant_range
from eqsat.schema import opset

ScaledKind = Literal["activation", "constant", "weight", "bias"]
OperandPlace = tuple[int, int]
"""An input of a node: position of the node in the graph, index of the input."""


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedTensor:
    """One tensor and the integers for it.

    Attributes:
        name: Name of the tensor.
        kind: The role of the tensor. All but activations are constant.
        quantizer: Scale and zero point.
        readers: The readers of the quantized form; None for all, including outputs of the model.
        follows: The tensor whose integers data movement made these from; None if it is quantized itself.
            The second rounding of such a tensor changes nothing, so it adds no noise.
        integers: For a constant, if they are not the nearest ones.
    """

    name: str
    kind: ScaledKind
    quantizer: Quantizer
    readers: tuple[OperandPlace, ...] | None
    follows: str | None = None
    integers: np.ndarray | None = None

    def quantize(self, x: np.ndarray) -> np.ndarray:
        """The integers for the tensor's value."""
        return self.quantizer.quantize(x) if self.integers is None else self.integers

    def round_trip(self, x: np.ndarray) -> np.ndarray:
        """The tensor's value after rounding."""
        return self.quantizer.dequantize(self.quantize(x))


@dataclass(frozen=True)
class Scheme:
    """A quantization of a model: all pairs that :func:`eqsat.quantization.insert.quantize_dequantize` inserts.

    Attributes:
        tensors: In execution order.
        operators: Positions of the nodes that take part.
        unranged: Nodes that would take part but for a tensor without a range, and that tensor's name.
    """

    tensors: tuple[QuantizedTensor, ...]
    operators: tuple[int, ...]
    unranged: dict[int, str] = field(default_factory=dict)

    def only(self, kept: frozenset[int]) -> Scheme:
        """The scheme with some of its tensors, by position."""
        return replace(self, tensors=tuple(t for i, t in enumerate(self.tensors) if i in kept))


def make_scheme(model: ir.Model, ranges: Mapping[str, Range], options: Options | None = None) -> Scheme:
    """Decides which tensors are quantized.

    Args:
        model: A loaded model.
        ranges: Range by tensor name (:func:`eqsat.quantization.ranges.ranges`). Constants need none.
        options: Element types, skipped nodes, operators.

    Raises:
        QuantizationError: A skipped node or an operator does not exist.
    """
    options = options or Options()
    _check_names(model, options)
    return _Maker(model, ranges, options).make()


class _Maker:
    def __init__(self, model: ir.Model, ranges: Mapping[str, Range], options: Options) -> None:
        self.graph = model.graph
        self.nodes = list(model.graph)
        self.index = {node: i for i, node in enumerate(self.nodes)}
        self.options = options
        self.constants = Trace(model).constants
        known = {name: constant_range(a) for name, a in self.constants.items() if is_float(a)}
        self.ranges = {**{name: r for name, r in known.items() if r is not None}, **ranges}
        self.skip = set(options.skip)
        self.hinted = hinted_types(self.nodes, self.is_data)
        self.outputs = set(self.graph.outputs)
        self.written: dict[ir.Value, QuantizedTensor] = {}
        self.fused: set[ir.Value] = set()
        # Tensors that are quantized for some readers, in order of first use, with those readers.
        self.found: dict[tuple, tuple[QuantizedTensor, list[OperandPlace]]] = {}
        self.unranged: dict[int, str] = {}

    def make(self) -> Scheme:
        taking_part = []
        for i, node in enumerate(self.nodes):
            found = self.role(node)
            if found is None:
                continue
            if found.moves:
                if self.move(node):
                    taking_part.append(i)
            elif self.compute(i, node, found):
                taking_part.append(i)
        tensors = [t if t.readers is None else replace(t, readers=tuple(readers)) for t, readers in self.found.values()]
        return Scheme(tuple(tensors), tuple(taking_part), self.unranged)

    def role(self, node: ir.Node) -> Role | None:
        if node.name in self.skip or not self.skip.isdisjoint(v.name for v in node.outputs):
            return None
        if all(v.name in self.constants for v in node.outputs if v.name):
            return None
        return role(node, self.options.operators)

    def move(self, node: ir.Node) -> bool:
        """Quantize the result of a moving operator with the parameters of its operand."""
        source = self.written.get(node.inputs[0]) if node.inputs and node.inputs[0] is not None else None
        if source is None:
            return False
        for value in node.outputs:
            if self.is_data(value):
                self.write(value, source.quantizer, source.follows or source.name)
        return True

    def compute(self, i: int, node: ir.Node, found: Role) -> bool:
        """Quantize the operands and results of an operator; False if it cannot take part."""
        inputs = [
            (k, v)
            for k, v in enumerate(node.inputs)
            if v is not None and (found.data is None or k in found.data) and self.is_data(v)
        ]
        outputs = [v for v in node.outputs if self.is_data(v)]
        if found.limits and not self.is_settled(node.inputs[0]):
            return False
        if not inputs or not outputs or outputs[0] is not node.outputs[0]:
            return False
        fused = self.limited(outputs)
        wanted = [v for _, v in inputs if not self.is_settled(v)] + [v for v in outputs if v is not fused]
        lacking = next((v.name or "" for v in wanted if v.name not in self.ranges), None)
        if lacking is not None:
            self.unranged[i] = lacking
            return False
        scale: np.ndarray | None = None
        weight: Quantizer | None = None
        keys: set[tuple] = set()
        for k, value in inputs:
            if found.weight is not None and found.weight.index == k and value.name in self.constants:
                weight = self.read_weight(i, node, found, value, scale)
                continue
            quantizer = self.read(i, k, value)
            if k == 0 and quantizer is not None:
                scale = quantizer.scale
            if quantizer is not None:
                keys.add(quantizer.key)
        self.read_bias(i, node, found, scale, weight)
        for value in outputs:
            if value is fused:
                self.fused.add(value)
                continue
            written = self.activation(value.name or "", found.result)
            if found.keeps and written.key in keys:
                # With equal parameters the integers of both sides would be equal, and both sides would be merged,
                # whatever the reason for rounding the other one.
                written = replace(written, scale=np.array(written.scale * np.float32(256 / 255)))
            self.write(value, written, None)
        return True

    def read(self, i: int, k: int, value: ir.Value) -> Quantizer | None:
        """Quantize an operand, unless it is already."""
        if value in self.written:
            return self.written[value].quantizer
        if value in self.fused or _is_dequantized(value):
            return None
        name = value.name or ""
        kind: ScaledKind = "constant" if name in self.constants else "activation"
        return self.add(name, kind, self.activation(name), (i, k))

    def read_weight(
        self, i: int, node: ir.Node, found: Role, value: ir.Value, scale: np.ndarray | None
    ) -> Quantizer | None:
        if _is_dequantized(value):
            return None
        array, weight = self.constants[value.name or ""], found.weight
        assert weight is not None
        axis = weight.axis(attributes(node), array.ndim) if self.options.per_channel else None
        bias = self.bias(node, found)
        if bias is None or scale is None:
            quantizer = weight_quantizer(array, axis)
        else:
            quantizer = weight_quantizer_with_bias(array, axis, bias, float(scale))
        return self.add(value.name or "", "weight", quantizer, (i, weight.index))

    def read_bias(self, i: int, node: ir.Node, found: Role, scale: np.ndarray | None, weight: Quantizer | None) -> None:
        bias = self.bias(node, found)
        if bias is None or scale is None or weight is None or found.weight is None or found.weight.bias is None:
            return
        value = node.inputs[found.weight.bias]
        assert value is not None
        self.add(value.name or "", "bias", bias_quantizer(scale, weight.scale, bias.size), (i, found.weight.bias))

    def bias(self, node: ir.Node, found: Role) -> np.ndarray | None:
        """The bias if it can be an integer: constant, one value per channel, added to the products without a factor."""
        read = found.weight
        if read is None or read.bias is None or read.bias >= len(node.inputs) or read.scales_bias(attributes(node)):
            return None
        value = node.inputs[read.bias]
        if value is None or value.name not in self.constants:
            return None
        array = self.constants[value.name]
        weight = self.constants.get((node.inputs[read.index] or value).name or "")
        if weight is None or array.ndim != 1 or not np.isfinite(array).all() or _is_dequantized(value):
            return None
        axis = read.axis(attributes(node), weight.ndim)
        return array if axis is None or array.size == weight.shape[axis] else None

    def limited(self, outputs: list[ir.Value]) -> ir.Value | None:
        """The result, if its only reader is a Relu or Clip that takes part."""
        if len(outputs) != 1 or outputs[0] in self.outputs:
            return None
        uses = list(outputs[0].uses())
        if len(uses) != 1 or uses[0].idx != 0 or uses[0].node not in self.index:
            return None
        node = uses[0].node
        found = self.role(node)
        if found is None or not found.limits or node.outputs[0].name not in self.ranges:
            return None
        bounds = [v for v in node.inputs[1:] if v is not None and v.name]
        return outputs[0] if all(v.name in self.constants for v in bounds) else None

    def add(self, name: str, kind: ScaledKind, quantizer: Quantizer, edge: OperandPlace) -> Quantizer:
        key = (name, kind == "bias", quantizer.key)
        if key not in self.found:
            self.found[key] = (QuantizedTensor(name, kind, quantizer, ()), [])
        self.found[key][1].append(edge)
        return quantizer

    def write(self, value: ir.Value, quantizer: Quantizer, follows: str | None) -> None:
        uses = list(value.uses())
        if value not in self.outputs and uses and all(_quantizes(use.node) for use in uses):
            return
        tensor = QuantizedTensor(value.name or "", "activation", quantizer, None, follows)
        self.written[value] = tensor
        self.found[(value.name, "written")] = (tensor, [])

    def activation(self, name: str, fixed: tuple[float, float] | None = None) -> Quantizer:
        found = self.ranges[name] if fixed is None else Range(*fixed)
        dtype = self.hinted.get(name, self.options.activation)
        return activation_quantizer(found, dtype, symmetric=self.options.symmetric)

    def is_settled(self, value: ir.Value | None) -> bool:
        """Whether a value is, or becomes within one step, integers without another pair."""
        return value is not None and (value in self.written or value in self.fused or _is_dequantized(value))

    def is_data(self, value: ir.Value) -> bool:
        return bool(value.name) and value.dtype == ir.DataType.FLOAT


def _is_dequantized(value: ir.Value) -> bool:
    producer = value.producer()
    return producer is not None and producer.op_type == "DequantizeLinear"


def _quantizes(node: ir.Node) -> bool:
    return node.op_type == "QuantizeLinear"


def _check_names(model: ir.Model, options: Options) -> None:
    known = dict.fromkeys(name for node in model.graph for name in (node.name, *(v.name for v in node.outputs)) if name)
    for name in options.skip:
        if name not in known:
            raise QuantizationError(
                "the name of a node, or of one of its outputs, is required",
                place="option skip",
                actual=repr(name),
                hint=opset.name_hint(name, known),
            )
    for name in options.operators or ():
        if name not in opset.operator_names():
            raise QuantizationError(
                "an operator of ONNX is required",
                place="option operators",
                actual=repr(name),
                hint=opset.did_you_mean(name, opset.operator_names()),
            )
