"""Finds the pairs of terms that known rules join, with one e-graph for many pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import onnx_ir as ir

from eqsat.discover.elementwise_terms import ElementwiseTerm, Pair
from eqsat.egraph.saturate import Limits, Saturation
from eqsat.egraph.snapshot import snapshot
from eqsat.model.load import load
from eqsat.rules.ast import Rule

SHAPE = (2, 3)
TOGETHER = 30
"""Pairs of one e-graph."""
_LIMITS = Limits(iterations=6, nodes=20_000)


def not_implied(pairs: Sequence[Pair], rules: Sequence[Rule], dtype: ir.DataType) -> list[Pair]:
    """The pairs that rules do not join, in their order."""
    left: list[Pair] = []
    for start in range(0, len(pairs), TOGETHER):
        chunk = pairs[start : start + TOGETHER]
        joined = _joined(chunk, rules, dtype)
        left += [pair for pair, is_joined in zip(chunk, joined, strict=True) if not is_joined]
    return left


def joined_classes(model: ir.Model, rules: Sequence[Rule]) -> dict[str, int]:
    """The class of each value, by name, after rules have run."""
    saturation = Saturation(model, rules, [], _LIMITS)
    saturation.run()
    return {value.name or "": eclass for value, eclass in snapshot(saturation).refs.items()}


def _joined(pairs: Sequence[Pair], rules: Sequence[Rule], dtype: ir.DataType) -> list[bool]:
    import onnx
    from onnx import helper

    nodes: list[onnx.NodeProto] = []
    numbers: dict[float, str] = {}
    known: dict[str, str] = {}

    def name_of(term: ElementwiseTerm) -> str:
        if term.name:
            return term.name
        if term.text not in known:
            if term.number is not None:
                known[term.text] = numbers[term.number] = f"number{len(numbers)}"
            else:
                operands = [name_of(operand) for operand in term.operands]
                known[term.text] = f"value{len(nodes)}"
                nodes.append(helper.make_node(term.op, operands, [known[term.text]]))
        return known[term.text]

    kind = int(dtype)
    constants: list[onnx.TensorProto] = []
    sides: list[str] = []
    for pair in pairs:
        left, right = name_of(pair.left), f"number_of_side{len(sides)}"
        if pair.right.number is None:
            right = name_of(pair.right)
        else:
            # The number becomes a tensor like the left side.
            constants.append(helper.make_tensor(right, kind, SHAPE, [pair.right.number] * math.prod(SHAPE)))
        for name in (left, right):
            # An output is a value of its own, also where a term is a variable.
            sides.append(f"side{len(sides)}")
            nodes.append(helper.make_node("Identity", [name], [sides[-1]]))
    variables = sorted({name for pair in pairs for name in pair.left.variables})
    inputs = [helper.make_tensor_value_info(name, kind, SHAPE) for name in variables]
    constants += [helper.make_tensor(name, kind, [], [number]) for number, name in numbers.items()]
    outputs = [onnx.ValueInfoProto(name=side) for side in sides]
    proto = helper.make_model(
        helper.make_graph(nodes, "pairs", inputs, outputs, constants), opset_imports=[helper.make_opsetid("", 22)]
    )
    model = load(onnx.shape_inference.infer_shapes(proto))
    classes = joined_classes(model, rules)
    outputs = [classes[value.name or ""] for value in model.graph.outputs]
    return [a == b for a, b in zip(outputs[::2], outputs[1::2], strict=True)]
