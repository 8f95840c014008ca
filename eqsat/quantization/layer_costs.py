"""Layers of a quantized model: what each costs in floats and in the result, and the error that its integers add."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from eqsat.quantization.noise import Noise, decibel
from eqsat.quantization.scheme import Scheme
from eqsat.report.cover import shared_costs
from eqsat.report.graphs import GraphComparison
from eqsat.report.quantized import LayerRow


def layer_rows(
    model: ir.Model, scheme: Scheme, noise: Noise, rounded: Collection[int], comparison: GraphComparison
) -> tuple[LayerRow, ...]:
    """The operators that have tensors of a scheme, in execution order.

    Args:
        model: The calibrated model.
        scheme: The scheme of its tensors.
        noise: Noise of each tensor.
        rounded: Positions of the tensors that the result rounds.
        comparison: Comparison of the model and the result.
    """
    nodes = list(model.graph)
    made = {value.name: i for i, node in enumerate(nodes) for value in node.outputs}
    own: dict[int, list[int]] = {}
    for k, tensor in enumerate(scheme.tensors):
        if tensor.kind == "activation":
            places = {made[tensor.name]} if tensor.name in made else set()
        else:
            places = {node for node, _ in tensor.readers or ()}
        for place in places:
            own.setdefault(place, []).append(k)
    costs = shared_costs(comparison)
    rows = []
    for place, tensors in sorted(own.items()):
        name = nodes[place].outputs[0].name or ""
        before, after = costs.get(name, (0.0, 0.0))
        error = float(noise.weights[tensors].sum(axis=0).max(initial=0.0))
        used = sum(k in rounded for k in tensors)
        rows.append(LayerRow(name, nodes[place].op_type, len(tensors), used, decibel(error), before, after))
    return tuple(rows)
