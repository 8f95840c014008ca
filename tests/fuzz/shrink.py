"""Makes a failing model small: drop outputs, then nodes, as long as it still fails in the same way."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import helper, shape_inference


def shrink(model: onnx.ModelProto, fails: Callable[[onnx.ModelProto], bool]) -> onnx.ModelProto:
    """The smallest model found that still fails.

    Args:
        fails: Whether a valid model fails in the way that is being looked at.
    """
    typed = shape_inference.infer_shapes(model, strict_mode=False, data_prop=True)
    progress = True
    while progress:
        progress = False
        for candidate in _candidates(typed):
            if _is_valid(candidate) and fails(candidate):
                typed = shape_inference.infer_shapes(candidate, strict_mode=False, data_prop=True)
                progress = True
                break
    return typed


def _candidates(model: onnx.ModelProto):
    outputs = list(model.graph.output)
    if len(outputs) > 1:
        for output in outputs:
            yield _with_outputs(model, [output])
    known = {v.name: v for v in [*model.graph.value_info, *outputs]}
    # An inner value as the only output cuts everything behind it.
    for node in model.graph.node:
        for name in node.output:
            if name in known and [name] != [o.name for o in outputs]:
                yield _with_outputs(model, [known[name]])
    # An inner value as an input cuts everything before it.
    names = {i.name for i in model.graph.input}
    for node in reversed(model.graph.node):
        for name in node.output:
            if name in known and name not in names and not any(o.name == name for o in outputs):
                yield _with_input(model, known[name])


def _with_outputs(model: onnx.ModelProto, outputs: list[onnx.ValueInfoProto]) -> onnx.ModelProto:
    return _pruned(model, list(model.graph.node), list(model.graph.input), outputs)


def _with_input(model: onnx.ModelProto, value: onnx.ValueInfoProto) -> onnx.ModelProto:
    nodes = [n for n in model.graph.node if value.name not in n.output]
    if any(len([o for o in n.output if o]) > 1 for n in model.graph.node if value.name in n.output):
        nodes = list(model.graph.node)
    return _pruned(model, nodes, [*model.graph.input, value], list(model.graph.output))


def _pruned(
    model: onnx.ModelProto,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    needed = {o.name for o in outputs}
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if any(o in needed for o in node.output):
            kept.insert(0, node)
            needed.update(node.input)
    graph = helper.make_graph(
        kept,
        model.graph.name,
        [i for i in inputs if i.name in needed],
        outputs,
        [t for t in model.graph.initializer if t.name in needed],
    )
    return helper.make_model(graph, opset_imports=list(model.opset_import), ir_version=model.ir_version)


def _is_valid(model: onnx.ModelProto) -> bool:
    if not model.graph.node or not model.graph.output:
        return False
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True
