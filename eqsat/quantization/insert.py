"""Writes a scheme into a model: QuantizeLinear and DequantizeLinear pairs around float operators.

The result computes in floats what integers would give ("simulation"). It is a standard ONNX file, in the form from
which ONNX Runtime and vendors' compilers fuse integer operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from eqsat.execute.trace import Trace
from eqsat.model.unused_names import Namer
from eqsat.quantization.balance import balanced
from eqsat.quantization.calibrate import Calibration
from eqsat.quantization.options import Options
from eqsat.quantization.quantizer import Quantizer
from eqsat.quantization.ranges import Range
from eqsat.quantization.scheme import QuantizedTensor, Scheme, make_scheme


def quantize_dequantize(
    model: ir.Model,
    ranges: Mapping[str, Range],
    options: Options | None = None,
    *,
    calibration: Calibration | None = None,
) -> ir.Model:
    """The model with all tensors quantized that can be, in QDQ form.

    Args:
        model: A loaded model; not changed.
        ranges: Range by tensor name (:func:`eqsat.quantization.ranges.ranges`).
        options: Element types, skipped nodes, operators.
        calibration: Statistics for balanced weights; without them weights are rounded to nearest.

    Raises:
        QuantizationError: A skipped node or an operator does not exist.
    """
    scheme = make_scheme(model, ranges, options)
    if calibration is not None and (options is None or options.balance):
        scheme = balanced(model, scheme, calibration)
    return apply_scheme(model, scheme)


def apply_scheme(model: ir.Model, scheme: Scheme) -> ir.Model:
    """The model with the tensors of a scheme quantized and dequantized. Names of all others stay."""
    constants = Trace(model).constants
    copy = model.clone()
    writer = _Pairs(copy, constants)
    _redirect(copy, scheme.tensors, writer.make)
    RemoveUnusedNodesPass()(copy)
    for node in copy.graph:
        # ONNX Runtime 1.31 refuses its own fusion of a quantized AveragePool that states the default.
        if node.op_type == "AveragePool" and set(node.attributes.get_ints("dilations", [1])) == {1}:
            node.attributes.pop("dilations", None)
    return copy


def with_taps(model: ir.Model, scheme: Scheme) -> tuple[ir.Model, list[str]]:
    """The model with an Identity where a scheme quantizes a tensor: the same values, but open to change one by one.

    Returns:
        The model, and the name of each tensor's tap.
    """
    copy = model.clone()
    namer = _namer(copy)
    taps: list[ir.Value] = []

    def make(tensor: QuantizedTensor, value: ir.Value) -> tuple[list[ir.Node], ir.Value]:
        taps.append(_like(value, namer.keep(f"{tensor.name}_tap")))
        return [ir.Node("", "Identity", [value], outputs=[taps[-1]])], taps[-1]

    _redirect(copy, scheme.tensors, make)
    # A tap of an output has the output's name.
    return copy, [tap.name or "" for tap in taps]


def _redirect(
    model: ir.Model,
    tensors: Sequence[QuantizedTensor],
    make: Callable[[QuantizedTensor, ir.Value], tuple[list[ir.Node], ir.Value]],
) -> None:
    """Replace each tensor, for its readers, by the result of ``make``."""
    graph = model.graph
    nodes = list(graph)
    values = {v.name: v for v in (*graph.inputs, *graph.initializers.values())}
    values |= {v.name: v for node in nodes for v in node.outputs if v.name}
    namer = _namer(model)
    for tensor in tensors:
        value = values[tensor.name]
        if tensor.readers is None:
            uses = [(use.node, use.idx) for use in value.uses()]
        else:
            uses = [(nodes[i], k) for i, k in tensor.readers]
        made, result = make(tensor, value)
        if tensor.readers is None:
            producer = value.producer()
            assert producer is not None, "only results of operators are quantized for all readers"
            graph.insert_after(producer, made)
        else:
            graph.insert_before(nodes[min(tensor.readers)[0]], made)
        for node, index in uses:
            node.replace_input_with(index, result)
        if tensor.readers is None and value in graph.outputs:
            for position, output in enumerate(graph.outputs):
                if output is value:
                    graph.outputs[position] = result
            # The output keeps its name for its readers.
            name = value.name
            value.name = namer.keep(f"{name}_float")
            result.name = name


class _Pairs:
    """Makes the pairs of a model."""

    def __init__(self, model: ir.Model, constants: Mapping[str, np.ndarray]) -> None:
        self.graph = model.graph
        self.constants = constants
        self.namer = _namer(model)

    def make(self, tensor: QuantizedTensor, value: ir.Value) -> tuple[list[ir.Node], ir.Value]:
        quantizer = tensor.quantizer
        scale = self.initializer(f"{tensor.name}_scale", quantizer.scale)
        zero = self.initializer(f"{tensor.name}_zero_point", quantizer.zero)
        result = _like(value, self.namer.keep(f"{tensor.name}_dequantized"))
        name = f"{tensor.name}_quantized"
        nodes = []
        if tensor.kind == "activation":
            integers = _like(value, self.namer.keep(name), ir.DataType.from_numpy(quantizer.dtype))
            nodes.append(
                ir.Node("", "QuantizeLinear", [value, scale, zero], _attributes(quantizer), outputs=[integers])
            )
        else:
            integers = self.initializer(name, tensor.quantize(self.constants[tensor.name]))
        nodes.append(ir.Node("", "DequantizeLinear", [integers, scale, zero], _attributes(quantizer), outputs=[result]))
        return nodes, result

    def initializer(self, name: str, array: np.ndarray) -> ir.Value:
        name = self.namer.keep(name)
        value = ir.Value(
            name=name,
            type=ir.TensorType(ir.DataType.from_numpy(array.dtype)),
            shape=ir.Shape(array.shape),
            const_value=ir.Tensor(array, name=name),
        )
        self.graph.register_initializer(value)
        return value


def _attributes(quantizer: Quantizer) -> list[ir.Attr]:
    return [] if quantizer.axis is None else [ir.AttrInt64("axis", quantizer.axis)]


def _like(value: ir.Value, name: str, dtype: ir.DataType | None = None) -> ir.Value:
    """A value of the same shape."""
    kind = value.type if dtype is None else ir.TensorType(dtype)
    return ir.Value(name=name, type=kind, shape=None if value.shape is None else value.shape.copy())


def _namer(model: ir.Model) -> Namer:
    """Names that no value has, those in bodies included."""
    graph = model.graph
    taken = {v.name for v in (*graph.inputs, *graph.initializers.values())}
    taken |= {v.name for node in graph.all_nodes() for v in node.outputs}
    return Namer(name for name in taken if name)
