"""Loops without what does not change: nodes that read only values of outside, and carried values of no use."""

from __future__ import annotations

import onnx_ir as ir

from eqsat.ops.operators import has
from eqsat.ops.properties import is_deterministic
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import op_key, read_values, subgraphs, to_attrs
from eqsat.simplify.edit import Editor, constant_of, is_read, number_of, rebuilt, through_identities


def first_carried(node: ir.Node) -> tuple[int, int, int]:
    """Numbers of the first carried value among the inputs of a loop, and the inputs and outputs of its body."""
    return (2, 2, 1) if node.op_type == "Loop" else (0, 0, 0)


def carried_count(node: ir.Node) -> int:
    """How many values a loop carries."""
    if node.op_type == "Loop":
        return max(0, len(node.inputs) - 2)
    return len(node.inputs) - node.attributes["num_scan_inputs"].as_int()


def runs(node: ir.Node) -> int | None:
    """The number of times the body of a loop runs; None if it is unknown."""
    body = node.attributes["body"].as_graph()
    if node.op_type == "Scan":
        scans = node.attributes["num_scan_inputs"].as_int()
        value = node.inputs[len(node.inputs) - scans]
        axes = node.attributes.get("scan_input_axes")
        axis = 0 if axis_is_first(axes) else axes.as_ints()[0]  # pyright: ignore[reportOptionalMemberAccess]
        size = None if value is None or value.shape is None else value.shape[axis]
        return size if isinstance(size, int) else None
    count = number_of(node.inputs[0]) if node.inputs else None
    if count is None:
        return None
    begins = node.inputs[1] if len(node.inputs) > 1 else None
    start = number_of(begins)
    if begins is not None and (start is None or not start.reshape(-1)[0]):
        return None if start is None else 0
    last = through_identities(body.outputs[0])
    goes_on = number_of(last)
    if last is not body.inputs[1] and (goes_on is None or not goes_on.reshape(-1)[0]):
        return None
    return max(0, int(count.reshape(-1)[0]))


def axis_is_first(axes: ir.Attr | None) -> bool:
    """Whether a list of axes is absent, so that they are all the first."""
    return axes is None or not axes.as_ints()


def move_invariants(node: ir.Node, editor: Editor) -> bool:
    """Moves nodes out of a loop that compute the same in each round; those that may fail only if the body runs."""
    graph = node.graph
    assert isinstance(graph, ir.Graph)
    body = node.attributes["body"].as_graph()
    surely = (runs(node) or 0) > 0
    inside = {*body.inputs, *(v for inner in body for v in inner.outputs)}
    moved = []
    for inner in list(body):
        own = [v for v in inner.inputs if v is not None]
        if any(v in inside for v in read_values(inner)) or any(True for _ in subgraphs(inner)):
            continue
        if not is_deterministic(op_key(inner), to_attrs(inner), training=len(inner.inputs) > 2):
            continue
        constant = all(v.is_initializer() for v in own)
        if constant or not (surely or _cannot_fail(inner)):
            continue  # Constants are computed in advance anyhow.
        for value in own:
            if value.is_initializer() and value.graph is body:
                outer = editor.constant(graph, value.name or "", constant_of(value))  # pyright: ignore[reportArgumentType]
                outer.const_value, outer.type = value.const_value, value.type
                for i, read in enumerate(inner.inputs):
                    if read is value:
                        inner.replace_input_with(i, outer)
        inside.difference_update(inner.outputs)
        moved.append(inner)
    results = set(body.outputs)
    for inner in moved:
        for value in inner.outputs:
            if value in results:
                bridge = ir.Node("", "Identity", [value])
                bridge.outputs[0].name = editor.name(value.name)
                bridge.outputs[0].type, bridge.outputs[0].shape = value.type, value.shape
                body.outputs[:] = [bridge.outputs[0] if v is value else v for v in body.outputs]
                body.append(bridge)
        body.remove(inner)
        graph.insert_before(node, inner)
    return bool(moved)


def _cannot_fail(node: ir.Node) -> bool:
    op = op_key(node)
    if op.domain:
        return False
    if has(op, Trait.TOTAL) or has(op, Trait.UNARY):
        return True
    # Conditions that depend only on shapes are decided once these are known.
    known = all(v is None or (v.shape is not None and v.shape.is_static()) for v in node.inputs)
    floats = all(v is None or v.dtype is None or v.dtype.is_floating_point() for v in node.inputs)
    by_shape = has(op, Trait.FITS) or has(op, Trait.BROADCASTS)
    return by_shape and known and (floats or not has(op, Trait.POLES))


def drop_useless(node: ir.Node, editor: Editor) -> bool:
    """Drops carried values and stacked outputs of a loop that nobody reads, and carried values that never change."""
    body = node.attributes["body"].as_graph()
    count = carried_count(node)
    at, given, made = first_carried(node)
    fixed = []
    for k in range(count):
        initial = node.inputs[at + k]
        if initial is not None and through_identities(body.outputs[made + k]) is body.inputs[given + k]:
            fixed.append(k)
    live = _live(node, body, count, set(fixed))
    dropped = [k for k in range(count) if k in fixed or k not in live]
    stacked = [k for k in range(count, len(node.outputs)) if not is_read(node.outputs[k])]
    if node.op_type == "Scan" and len(dropped) == count and len(stacked) == len(node.outputs) - count:
        return False
    if not dropped and not stacked:
        return False
    for k in fixed:
        initial = node.inputs[at + k]
        assert initial is not None
        if is_read(node.outputs[k]):
            editor.replace(node.outputs[k], initial, node)
        bridge = ir.Node("", "Identity", [initial])
        bridge.outputs[0].name = editor.name(body.inputs[given + k].name)
        bridge.outputs[0].type, bridge.outputs[0].shape = initial.type, initial.shape
        # The body may return it unchanged, also as rows of a stack.
        body.inputs[given + k].replace_all_uses_with(bridge.outputs[0], replace_graph_outputs=True)
        if len(body):
            body.insert_before(body[0], bridge)
        else:
            body.append(bridge)
    kept = [k for k in range(len(node.outputs)) if k not in dropped and k not in stacked]
    inputs = [v for i, v in enumerate(node.inputs) if i - at not in dropped or i < at]
    body.outputs[:] = [v for i, v in enumerate(body.outputs) if i < made or i - made in kept]
    body.inputs[:] = [v for i, v in enumerate(body.inputs) if i < given or i - given not in dropped]
    _prune(body)
    attributes = node.attributes
    for name in ("scan_output_axes", "scan_output_directions"):
        if name in attributes and attributes[name].as_ints():
            values = [v for i, v in enumerate(attributes[name].as_ints()) if count + i in kept]
            attributes[name] = ir.AttrInt64s(name, values)
    if not kept:
        assert node.graph is not None
        node.graph.remove(node, safe=True)
        return True
    node.attributes.pop("body")
    rebuilt(node, inputs, body, kept)
    return True


def _live(node: ir.Node, body: ir.Graph, count: int, fixed: set[int]) -> set[int]:
    """The carried values that decide a value that is read, or whether the loop continues."""
    _, given, made = first_carried(node)
    position = {v: k for k, v in enumerate(body.inputs[given : given + count])}
    live = {k for k in range(count) if is_read(node.outputs[k]) and k not in fixed}
    waiting = [body.outputs[made + k] for k in live]
    waiting += body.outputs[:made]
    waiting += [body.outputs[made + k] for k in range(count, len(node.outputs)) if is_read(node.outputs[k])]
    seen: set[ir.Value] = set()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        k = position.get(value)
        if k is not None and k not in live and k not in fixed:
            live.add(k)
            waiting.append(body.outputs[made + k])
        producer = value.producer()
        if producer is not None and producer.graph is body:
            waiting += read_values(producer)
    return live


def _prune(body: ir.Graph) -> None:
    """Removes nodes of a body whose results nobody reads."""
    for inner in reversed(list(body)):
        if not any(is_read(v) for v in inner.outputs):
            body.remove(inner, safe=True)
