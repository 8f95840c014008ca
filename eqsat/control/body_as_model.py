"""A body as a model of its own: captured values become inputs, and constants stay constants.

A body often declares no shapes of its inputs. They follow from the operator's operands, except for the values that a
loop carries: their shape may change from round to round. Such a shape is assumed to be that of the initial value, and
dimensions that the body does not keep become free. So do declared ones: for a list that grows in each round, PyTorch
declares the size before the first round.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from eqsat.errors import ModelError, OptimizationError
from eqsat.model.load import load
from eqsat.model.shadowing import defined_names
from eqsat.model.unused_names import unused
from eqsat.simplify.site import BodySite

_ATTEMPTS = 8
"""How often shapes of carried values are made more general; each time at least one dimension becomes free."""

_Shape = list[int | str | None] | None


def body_model(site: BodySite, model: ir.Model) -> ir.Model:
    """The body as a loaded model.

    Its inputs are those of the body, followed by the captured values that are not constants. Its outputs are those of
    the body.

    Args:
        site: The body.
        model: The loaded model around it; not changed.

    Raises:
        ModelError, OptimizationError: The body is not a model by itself, such as one that reads sequences.
    """
    shapes = [_shape(site, i) for i in range(len(site.graph.inputs))]
    carried = _carried(site)
    guessed = {i: {k for k, d in enumerate(_declared(site.graph.inputs[i])) if d is None} for i, _ in carried}
    declared = {i: {k for k, d in enumerate(_declared(site.graph.inputs[i])) if d is not None} for i, _ in carried}
    for i, _ in carried:
        if site.graph.inputs[i].shape is None and (shape := shapes[i]) is not None:
            guessed[i] = set(range(len(shape)))
    for _ in range(_ATTEMPTS):
        try:
            made = load(_written(site, model, shapes))
        except ModelError:
            if not any(guessed.values()):
                raise
            # The initial shape does not fit the body's operators, so it is not what they read in later rounds.
            for i, axes in guessed.items():
                _free(site, shapes, i, axes)
                axes.clear()
            continue
        open_axes = {i: _changed(made.graph, i, o, guessed[i], declared[i]) for i, o in carried}
        if not any(open_axes.values()):
            return made
        for i, axes in open_axes.items():
            _free(site, shapes, i, axes)
            guessed[i] -= axes
            declared[i] -= axes
    raise OptimizationError("values that a loop carries must have a shape", place=str(site), actual="none was found")


def _carried(site: BodySite) -> list[tuple[int, int]]:
    """Positions of carried values: among the body's inputs, and among its outputs."""
    if site.node.op_type == "Loop":
        return [(i, i - 1) for i in range(2, len(site.graph.inputs))]
    if site.node.op_type == "Scan":
        return [(i, i) for i in range(len(site.graph.inputs) - site.node.attributes["num_scan_inputs"].as_int())]
    return []


def _declared(value: ir.Value) -> Sequence[int | str | None]:
    return [] if value.shape is None else [d if isinstance(d, int) else d.value for d in value.shape]


def _operand(site: BodySite, index: int) -> ir.Value | None:
    """The operator's operand that becomes an input of the body in the first round."""
    if site.node.op_type == "Loop" and index < 2:
        return None
    return site.node.inputs[index] if index < len(site.node.inputs) else None


def _shape(site: BodySite, index: int) -> _Shape:
    """The declared shape of a body's input, completed by that of the operand; None if it is unknown."""
    value, outer = site.graph.inputs[index], _operand(site, index)
    if site.node.op_type == "Loop" and index < 2:
        return []
    found: _Shape = None
    if outer is not None and outer.shape is not None:
        found = list(_declared(outer))
        scanned = index - (len(site.graph.inputs) - _scans(site))
        if scanned >= 0 and found:
            axes = site.node.attributes.get("scan_input_axes")
            found.pop(0 if axes is None else axes.as_ints()[scanned])
    if value.shape is None:
        return found
    declared = _declared(value)
    if found is None or len(found) != len(declared):
        return list(declared)
    return [d if d is not None else e for d, e in zip(declared, found, strict=True)]


def _scans(site: BodySite) -> int:
    return site.node.attributes["num_scan_inputs"].as_int() if site.node.op_type == "Scan" else 0


def _free(site: BodySite, shapes: list[_Shape], index: int, axes: set[int]) -> None:
    """Gives dimensions of an input a symbol each."""
    shape = shapes[index]
    if shape is not None:
        for axis in axes:
            shape[axis] = f"{site.graph.inputs[index].name}_{axis}"


def _changed(graph: ir.Graph, given: int, result: int, guessed: set[int], declared: set[int]) -> set[int]:
    """The dimensions that may change in a round; for a result of unknown rank, the declared ones count."""
    before, after = graph.inputs[given].shape, graph.outputs[result].shape
    if before is None or after is None or len(before) != len(after):
        return set(guessed)
    return {k for k in guessed | declared if before[k] != after[k]}


def _written(site: BodySite, model: ir.Model, shapes: Sequence[_Shape]) -> ir.Model:
    """The body as a graph of its own, before it is loaded."""
    copy = site.graph.clone(allow_outer_scope_values=True)
    taken = {"", *defined_names(copy), *(v.name or "" for v in site.captured)}
    inputs, outputs = list(copy.inputs), list(copy.outputs)
    initializers = list(copy.initializers.values())
    own = {*inputs, *initializers}
    stand_ins: dict[ir.Value, ir.Value] = {}
    for outer in site.captured:
        made = ir.Value(name=outer.name, type=outer.type, shape=None if outer.shape is None else outer.shape.copy())
        if outer.is_initializer() and outer.const_value is not None:
            made.const_value = outer.const_value
            initializers.append(made)
        else:
            inputs.append(made)
        stand_ins[outer] = made
    for node in ir.traversal.RecursiveGraphIterator(copy):
        for i, value in enumerate(node.inputs):
            if value in stand_ins:
                node.replace_input_with(i, stand_ins[value])
    for value, shape in zip(inputs, shapes, strict=False):
        outer = _operand(site, inputs.index(value))
        if value.type is None:
            value.type = _loop_type(site, inputs.index(value)) or (None if outer is None else outer.type)
        value.shape = None if shape is None else ir.Shape(shape)
    nodes = list(copy)
    copy.inputs.clear()
    copy.outputs.clear()
    copy.initializers.clear()
    copy.remove(nodes)
    results: list[ir.Value] = []
    for value in outputs:
        value = stand_ins.get(value, value)
        if value in own or value in stand_ins.values() or value in results:
            # An output that no node computes, so that a program has a value of its own for it.
            bridge = ir.Node("", "Identity", [value])
            bridge.outputs[0].name = unused(f"{value.name}_result", taken)
            bridge.outputs[0].type, bridge.outputs[0].shape = value.type, value.shape
            nodes.append(bridge)
            value = bridge.outputs[0]
        elif site.node.op_type != "If":
            # The declared shape of a carried value need not fit the inferred one of its first round.
            value.shape = None
        results.append(value)
    graph = ir.Graph(
        inputs,
        results,
        nodes=nodes,
        initializers=initializers,
        opset_imports=dict(model.graph.opset_imports),
        name=str(site),
    )
    functions = [function.clone() for function in model.functions.values()]
    return ir.Model(graph, ir_version=model.ir_version, functions=functions)


def _loop_type(site: BodySite, index: int) -> ir.TensorType | None:
    if site.node.op_type != "Loop" or index > 1:
        return None
    return ir.TensorType(ir.DataType.BOOL if index else ir.DataType.INT64)
