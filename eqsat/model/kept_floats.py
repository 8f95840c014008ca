"""Keeps ONNX Runtime from rounding weights to 8 bits that the input model has in a higher precision.

ONNX Runtime 1.31 quantizes float weights of a convolution or Gemm between a DequantizeLinear and a QuantizeLinear: to
int8, with one scale for the whole tensor. Weights that were folded, from 4 bits or with a scale per channel, would get
other values. So would those of an operator that quantization has left in floats. A Max of a single operand, which ONNX
Runtime leaves alone, keeps the DequantizeLinear apart. Where the input has such weights itself, ONNX Runtime rounds
them in both files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from eqsat.model.across_calls import AcrossCalls, Use
from eqsat.model.unused_names import unused
from eqsat.model.write.runnable import names_of
from eqsat.ops.interval_arithmetic import keeps_numbers
from eqsat.schema.attributes import op_key
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.metadata import COST
from eqsat.schema.opset import MICROSOFT

KEPT = "eqsat.kept_floats"
"""In the ``meta`` of a constant: ONNX Runtime does not round it in the input of the optimization."""

_ROUNDED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators whose second operand ONNX Runtime rounds; which ones eqsat itself quantizes has no influence on that."""
_ABSORBED = {
    "Conv": frozenset({"Add", "BatchNormalization", "Mul"}),
    "ConvTranspose": frozenset({"BatchNormalization"}),
    "MatMul": frozenset({"Add", "BatchNormalization"}),
}
"""Operators that ONNX Runtime first fuses into the product before them, if their other operands are constants."""
_MADE_GEMM = "MatMul"
"""ONNX Runtime makes it a Gemm if it fuses a following operator, in either order of operands; only the Gemm is
rounded.
"""
_PASSED = frozenset({"Clip", "MaxPool", "Relu"})
"""Besides operators that move elements: those past which ONNX Runtime moves quantization, or which it fuses with it."""


def mark_floats(model: ir.Model) -> None:
    """Marks the constants of a file that ONNX Runtime does not round in it."""
    found = _Products(model)
    rounded = {weights for node, _ in found.weighted() for weights in found.constants(node.inputs[1])}
    read = (weights for node in found.products() for weights in found.constants(node.inputs[1]))
    for weights in (*read, *model.graph.initializers.values()):
        if weights not in rounded:
            weights.meta[KEPT] = True


def may_be_rounded(model: ir.Model) -> set[ir.TensorProtocol]:
    """The constants of the input that ONNX Runtime may round as it does there."""
    return {
        value.const_value
        for value in model.graph.initializers.values()
        if value.const_value is not None and KEPT not in value.meta
    }


def with_floats_kept(model: ir.Model) -> ir.Model:
    """The model with a Max of one operand for each marked weight; the model itself if there is none. It is not
    changed.
    """
    found = _Products(model)
    if not found.is_quantized or not any(found.kept_apart()):
        return model
    copy = model.clone()
    taken = names_of(copy)
    for node, index in dict.fromkeys(_Products(copy).kept_apart()):
        _keep_apart(node, index, taken)
    return copy


class _Products:
    """The products of a model and the operators around them."""

    def __init__(self, model: ir.Model) -> None:
        self.across = AcrossCalls(model)
        self.is_quantized = any(_is(node, "QuantizeLinear") for node in self.across.nodes)

    def kept_apart(self) -> Iterator[Use]:
        """Uses of dequantized values that make ONNX Runtime round marked weights."""
        for node, uses in self.weighted():
            if any(KEPT in weights.meta for weights in self.constants(node.inputs[1])):
                yield from uses

    def weighted(self) -> Iterator[tuple[ir.Node, list[Use]]]:
        """Products of float constants between a DequantizeLinear and a QuantizeLinear, with the uses of the former."""
        for node in self.products() if self.is_quantized else ():
            if any(self.constants(node.inputs[1])):
                uses = list(self._dequantized((node, 0)))
                if uses and self._meets_quantization(self._results(node)):
                    yield node, uses

    def products(self) -> Iterator[ir.Node]:
        return (n for n in self.across.nodes if n.op_type in _ROUNDED and not n.domain and len(n.inputs) > 1)

    def constants(self, value: ir.Value | None) -> Iterator[ir.Value]:
        """The constants of floats that a value is: one for each call if it is an operand of a function."""
        if value is None:
            return
        given = self.across.given(value)
        if given is not None:
            for call, index in given:
                yield from self.constants(call.inputs[index])
        elif value.dtype in FLOATS and (value.const_value is not None or _is(value.producer(), "Constant")):
            yield value

    def _dequantized(self, use: Use) -> Iterator[Use]:
        value = use[0].inputs[use[1]]
        while value is not None:
            given = self.across.given(value)
            if given is not None:
                for call in given:
                    yield from self._dequantized(call)
                return
            node = self.across.maker(value)
            if node is None:
                return
            if _is(node, "DequantizeLinear"):
                yield use
                return
            value = node.inputs[0] if _is_passed(node) else None

    def _results(self, node: ir.Node) -> list[ir.Value]:
        """The result of a product, and the results of the operators that ONNX Runtime fuses into it."""
        absorbed = _ABSORBED.get(node.op_type, frozenset())
        is_made_gemm = node.op_type == _MADE_GEMM
        found = [node.outputs[0]]
        for value in found:
            for reader, index in self.across.readers(value):
                if reader.op_type in absorbed and not reader.domain and (index == 0 or is_made_gemm):
                    others = (v for i, v in enumerate(reader.inputs) if i != index)
                    if all(any(self.constants(other)) for other in others):
                        found.append(reader.outputs[0])
        return found[1:] if is_made_gemm else found

    def _meets_quantization(self, values: Iterable[ir.Value]) -> bool:
        todo = list(values)
        seen = set(todo)
        while todo:
            for node, index in self.across.readers(todo.pop()):
                if index == 0 and _is(node, "QuantizeLinear"):
                    return True
                if index == 0 and _is_passed(node) and node.outputs[0] not in seen:
                    todo.append(node.outputs[0])
                    seen.add(node.outputs[0])
        return False


def _is(node: ir.Node | None, name: str) -> bool:
    """Whether a node is this operator; the one of ONNX Runtime's domain quantizes in the same way."""
    return node is not None and node.op_type == name and node.domain in ("", MICROSOFT)


def _is_passed(node: ir.Node) -> bool:
    return (node.op_type in _PASSED and not node.domain) or keeps_numbers(op_key(node))


def _keep_apart(node: ir.Node, index: int, taken: set[str]) -> None:
    value, scope = node.inputs[index], node.graph
    assert value is not None and scope is not None
    kept = ir.Value(name=unused(f"{value.name}_kept", taken), type=value.type, shape=value.shape)
    made = ir.Node("", "Max", [value], outputs=[kept], name=kept.name)
    made.metadata_props.update({k: v for k, v in node.metadata_props.items() if k != COST})
    node.replace_input_with(index, kept)
    scope.insert_before(node, made)
