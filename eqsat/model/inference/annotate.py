"""Types of every value of a model, and with them the normal form of every node.

One pass in topological order calls :func:`eqsat.model.inference.infer.infer_types` for each node, so that a loaded
model has exactly the types with which rewriting compares. :mod:`eqsat.model.inference.symbolic` refines dimensions that
stay open.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from eqsat import bounds
from eqsat.errors import ModelError
from eqsat.model.inference.carried import CARRIED, CARRIED_SHAPE, IF, carried_types, types_of_branches
from eqsat.model.inference.containers import TAKES_ELEMENT, element_type
from eqsat.model.inference.index_ranges import keep_elements
from eqsat.model.inference.infer import infer_types, is_parameter, symbolic
from eqsat.model.inference.inlined_bodies import without_calls
from eqsat.model.inference.shape_values import FOLLOWED, content_key, propagate
from eqsat.model.inference.size_names import SizeNames, dims_of
from eqsat.model.normalize import complete, constant_axes, normal_axes
from eqsat.model.validate.extent import check_type
from eqsat.model.validate.model import label
from eqsat.ops.checks.check import same as same_dim
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import captured_values, from_attrs, op_key, subgraphs, tensor_of, to_attrs
from eqsat.schema.free_sizes import received, within
from eqsat.schema.types import Attrs, OpKey, TensorType, stored_type, tensor_type

MOST_FACTORS = 16
"""Elements of a float tensor by which sizes are multiplied."""
_Known = dict[ir.Value, TensorType | None]


@dataclass(slots=True)
class _Pass:
    """One pass over a graph.

    Attributes:
        functions: The model's functions.
        types: Type of each value so far, None if unknown or not a tensor.
        values: Contents of small constants and of values that follow from sizes.
        answers: Cache of the types and values of results, because layers repeat.
        place: Prefix of messages.
        normal: Whether nodes are brought to normal form.
        writes: Whether values in bodies get the inferred types.
        inner: Receives the types of values in functions, None if calls differ in them.
    """

    functions: Mapping[ir.OperatorIdentifier, ir.Function]
    place: str
    normal: bool = True
    writes: bool = False
    inner: _Known | None = None
    types: _Known = field(default_factory=dict)
    values: dict[ir.Value, np.ndarray | None] = field(default_factory=dict)
    answers: dict[Hashable, tuple[tuple[TensorType | None, ...], tuple[np.ndarray | None, ...]]] = field(
        default_factory=dict
    )


def annotate(model: ir.Model, place: str = "", *, outputs_may_change: bool = False) -> None:
    """Sets type and shape of every value, and brings the nodes' attributes and axes to normal form.

    Args:
        model: The model, changed in place.
        place: The file, for messages.
        outputs_may_change: Whether declared shapes of outputs are ignored (dimensions have been bound).

    Raises:
        ModelError: A node's inputs and attributes contradict each other, or an output's declared type is wrong.
    """
    with within(received(d for value in model.graph.inputs for d in dims_of(value))):
        _annotate(model, place, outputs_may_change)


def _annotate(model: ir.Model, place: str, outputs_may_change: bool) -> None:
    graph = model.graph
    run = _Pass(model.functions, place, writes=True)
    declared: dict[ir.Value, TensorType] = {}
    for value in (*graph.outputs, *(v for node in graph for v in node.outputs)):
        if (known := tensor_type(value)) is not None:
            declared[value] = known
    meter = bounds.current()
    for value in graph.inputs:
        check_type(tensor_type(value), f"{place}: input {value.name!r}" if place else f"input {value.name!r}")
    names = SizeNames(model)
    for i, node in enumerate(graph):
        meter.check(place)
        found = _infer(run, node, i, {})
        for value, known in zip(node.outputs, names.of(op_key(node), node.outputs, found, declared), strict=True):
            run.types[value] = known
            _set_type(value, known)
            keep_elements(value, run.values.get(value))
    names.settle(graph)
    if any(_is_vague(value) for node in graph for value in node.outputs):
        # Such as types of sequences, which the pass above does not infer.
        symbolic().refine(model, declared)
        # Inputs of a loop may have got symbols for their sizes only now, which then decide the types after the loop.
        while _carry_symbols(model, place):
            symbolic().refine(model, declared)
    _check_outputs(graph, declared, place, outputs_may_change)


def _is_vague(value: ir.Value) -> bool:
    """Whether not even the rank of a value is known."""
    known = tensor_type(value)
    return bool(value.name) and (known is None or known.shape is None)


def _carry_symbols(model: ir.Model, place: str) -> bool:
    """Infers the results of loops again where sizes are open; whether that found out something."""
    run, found_out = _Pass(model.functions, place, normal=False), False
    received = {name for value in model.graph.inputs for name in (value.shape.free_symbols() if value.shape else ())}
    for i, node in enumerate(model.graph):
        if op_key(node) not in CARRIED or all(v.shape is not None and v.shape.is_static() for v in node.outputs):
            continue
        for value, known in zip(node.outputs, _infer(run, node, i, {}), strict=True):
            if known is None or known.shape is None or CARRIED_SHAPE in value.meta:
                continue
            made = ir.Shape(known.shape)
            if value.shape is None or _open_sizes(made, received) < _open_sizes(value.shape, received):
                _set_type(value, known)
                value.meta[CARRIED_SHAPE] = found_out = True
    return found_out


def _open_sizes(shape: ir.Shape, received: set[str]) -> int:
    """The number of sizes that do not follow from those of the model's inputs."""
    return sum(not isinstance(d, int) and (d.value is None or not d.free_symbols() <= received) for d in shape)


def _infer(run: _Pass, node: ir.Node, index: int, outer: Mapping[str, ir.Attr]) -> Sequence[TensorType | None]:
    """Types of a node's outputs; the node is brought to normal form on the way."""
    inputs = list(node.inputs)
    for graph in subgraphs(node):
        inputs += [v for v in captured_values(graph) if v not in inputs[len(node.inputs) :]]
    types = [None if v is None else _type(run, v) for v in inputs]
    key = node.op_identifier()
    place = _place(run, node, index)
    if key in run.functions:
        return _infer_function(run, run.functions[key], node, types, place)
    op = op_key(node)
    attrs = to_attrs(_bound(node, outer) if outer else node)
    own = len(node.inputs)
    if any(t is None and v is not None for t, v in zip(types[:own], inputs, strict=False)):
        return [element_type(node.inputs[0])] if op in TAKES_ELEMENT else [None] * len(node.outputs)
    if run.normal:
        attrs = _normalize(run, node, op, attrs, types[:own])
        types = types[: len(node.inputs)] + types[own:]
        inputs = [*node.inputs, *inputs[own:]]
    values = _values(run, op, inputs[: len(node.inputs)])
    graph = node.graph
    flat = attrs if graph is None else without_calls(attrs, run.functions, graph.opset_imports)
    key = (op, flat, tuple(types), tuple(map(content_key, values)), len(node.outputs))
    if key not in run.answers:
        found = infer_types(op, flat, types, values, len(node.outputs), place=place)
        if op in CARRIED:
            found = carried_types(
                op, attrs, types[:own], values[:2], found, lambda graph, given: _body_types(run, graph, given)
            )
        elif op == IF:
            found = types_of_branches(attrs, found, lambda graph: _branch_types(run, graph))
        for known in found:
            check_type(known, place)
        results = propagate(op, attrs, types[: len(node.inputs)], values, found)
        run.answers[key] = tuple(found), results
    found, results = run.answers[key]
    run.values.update({v: x for v, x in zip(node.outputs, results, strict=False) if x is not None})
    return found


def _body_types(run: _Pass, graph: ir.Graph, given: Sequence[TensorType | None]) -> Sequence[TensorType | None]:
    """Types of the results of a body for some types of its inputs.

    The values in the body get element types; in a branch they get shapes as well, but in a loop shapes may differ
    between rounds.
    """
    types = {**run.types, **dict(zip(graph.inputs, given, strict=True))}
    inner = _Pass(run.functions, run.place, normal=False, writes=run.writes, types=types, values=dict(run.values))
    for i, node in enumerate(graph):
        bounds.current().check(run.place)
        found = _infer(inner, node, i, {})
        inner.types.update(zip(node.outputs, found, strict=True))
        for value, known in zip(node.outputs, found, strict=True):
            if known is not None and run.writes:
                value.type = ir.TensorType(known.dtype)
                if known.shape is not None and not graph.inputs:
                    value.shape = ir.Shape(known.shape)
    for value, known in zip(graph.inputs, given, strict=True):
        if known is not None and run.writes:
            value.type = ir.TensorType(known.dtype)
    return [_type(inner, value) for value in graph.outputs]


def _branch_types(run: _Pass, graph: ir.Graph) -> Sequence[TensorType | None]:
    """Types of the results of a branch; no types if these sizes contradict it, because then it is never taken."""
    try:
        return _body_types(run, graph, ())
    except ModelError:
        return [None] * len(graph.outputs)


def _infer_function(
    run: _Pass, function: ir.Function, node: ir.Node, types: Sequence[TensorType | None], place: str
) -> Sequence[TensorType | None]:
    """Types through the body of a model-local function; its own values get no types."""
    inner = _Pass(run.functions, place, normal=False, inner=run.inner)
    arguments: list[TensorType | None] = [*types, *[None] * (len(function.inputs) - len(types))]
    actual = [*node.inputs, *[None] * (len(function.inputs) - len(node.inputs))]
    for formal, known, value in zip(function.inputs, arguments, actual, strict=True):
        inner.types[formal] = known
        if value is not None and known is not None:
            inner.values[formal] = _value(run, OpKey("", ""), value)
    attributes = {**function.attributes, **node.attributes}
    for i, step in enumerate(function):
        bounds.current().check(place)
        absent = any(v is not None and v in inner.types and inner.types[v] is None for v in step.inputs)
        found = [None] * len(step.outputs) if absent else _infer(inner, step, i, attributes)
        inner.types.update(zip(step.outputs, found, strict=True))
    if run.inner is not None:
        for value, known in inner.types.items():
            other = run.inner.setdefault(value, known)
            if known is None or other is None or known.dtype != other.dtype:
                run.inner[value] = None
    found = [inner.types.get(value) for value in function.outputs]
    return found[: len(node.outputs)]


def function_types(model: ir.Model) -> dict[ir.Value, TensorType | None]:
    """Types of the values in the functions of an annotated model; None if calls differ in element types.

    Args:
        model: Not changed.
    """
    run = _Pass(model.functions, "", normal=False, inner={})
    assert run.inner is not None
    for i, node in enumerate(model.graph):
        if node.op_identifier() in model.functions:
            types = [None if v is None else _type(run, v) for v in node.inputs]
            _infer_function(run, model.functions[node.op_identifier()], node, types, _place(run, node, i))
    return run.inner


def _bound(node: ir.Node, outer: Mapping[str, ir.Attr]) -> ir.Node:
    """The node with its references to the function's attributes replaced by the values of the call."""
    if not any(a.ref_attr_name for a in node.attributes.values()):
        return node
    attributes = []
    for name, attribute in node.attributes.items():
        if not attribute.ref_attr_name:
            attributes.append(attribute)
            continue
        given = outer.get(attribute.ref_attr_name)
        if given is not None and given.value is not None:
            attributes.append(ir.Attr(name, given.type, given.value))
    return ir.Node(node.domain, node.op_type, [None] * len(node.inputs), attributes, num_outputs=len(node.outputs))


def _type(run: _Pass, value: ir.Value) -> TensorType | None:
    if value not in run.types:
        run.types[value] = stored_type(value)
    return run.types[value]


def _value(run: _Pass, op: OpKey, value: ir.Value) -> np.ndarray | None:
    if value not in run.values:
        tensor = value.const_value if value.is_initializer() else None
        known = run.types.get(value)
        if tensor is None or known is None or tensor.dtype == ir.DataType.STRING:
            run.values[value] = None
        elif is_parameter(op, known.dtype.numpy(), tensor.size):
            run.values[value] = tensor.numpy()
        else:
            return None  # another operator may read it
    return run.values[value]


def _values(run: _Pass, op: OpKey, inputs: Sequence[ir.Value | None]) -> list[np.ndarray | None]:
    """The known contents of a node's operands."""
    values = [None if v is None else _value(run, op, v) for v in inputs]
    if has(op, Trait.SIZES) and any(x is not None for x in values):
        # Sizes may be multiplied by floats.
        for i, v in enumerate(inputs):
            tensor = v.const_value if v is not None and v.is_initializer() else None
            if values[i] is None and tensor is not None and tensor.dtype in FOLLOWED and tensor.size <= MOST_FACTORS:
                values[i] = tensor.numpy()
    return values


def _place(run: _Pass, node: ir.Node, index: int) -> str:
    what = label(node.name, node.op_type, next((v.name for v in node.outputs if v.name), ""), index)
    return f"{run.place}: {what}" if run.place else what


def _set_type(value: ir.Value, known: TensorType | None) -> None:
    if known is None:
        return
    value.type = ir.TensorType(known.dtype)
    value.shape = None if known.shape is None else ir.Shape(known.shape)


# ---- normal form of nodes ------------------------------------------------------------------------


def _normalize(run: _Pass, node: ir.Node, op: OpKey, attrs: Attrs, types: list[TensorType | None]) -> Attrs:
    used = max((i + 1 for i, v in enumerate(node.outputs) if v.uses() or v.is_graph_output()), default=1)
    normal = complete(op, attrs, types, max(used, 1) if op.name == "MaxPool" else len(node.outputs))
    if normal is not attrs:
        before, after = dict(attrs), dict(normal)
        for name in before.keys() - after.keys():
            node.attributes.pop(name, None)
        changed = tuple((n, v) for n, v in normal if n not in before or before[n] != v)
        for attribute in from_attrs(changed, op):
            node.attributes[attribute.name] = attribute
    position = constant_axes(op, types)
    if position is not None and (value := node.inputs[position]) is not None:
        axes = _value(run, op, value)
        if axes is not None and value.is_initializer():
            wanted = normal_axes(op, types, axes)
            if wanted.shape != axes.shape or not np.array_equal(wanted, axes):
                types[position] = _type(run, _replace_constant(run, node, position, wanted))
    return normal


def _replace_constant(run: _Pass, node: ir.Node, position: int, wanted: np.ndarray) -> ir.Value:
    """Gives the node another constant, and returns it; a tensor without other readers keeps its name."""
    value = node.inputs[position]
    graph = node.graph
    assert value is not None and value.const_value is not None and isinstance(graph, ir.Graph)
    dtype = value.const_value.dtype
    if len(value.uses()) > 1 or value.is_graph_output():
        name, k = f"{value.name}_{node.op_type}", 0
        while (unique := f"{name}_{k}" if k else name) in graph.initializers:
            k += 1
        value = ir.Value(name=unique)
        value.const_value = tensor_of(wanted, dtype, unique)
        graph.register_initializer(value)
        node.replace_input_with(position, value)
    value.const_value = tensor_of(wanted, dtype, value.name)
    value.type = ir.TensorType(dtype)
    value.shape = ir.Shape(wanted.shape)
    run.types.pop(value, None)
    run.values[value] = wanted
    return value


# ---- outputs -------------------------------------------------------------------------------------


_REDECLARE = "declare the output as it is computed, or without a shape; the operators before it decide both"


def _check_outputs(graph: ir.Graph, declared: Mapping[ir.Value, TensorType], place: str, may_change: bool) -> None:
    for value in graph.outputs:
        said, found = declared.get(value), tensor_type(value)
        if said is None or found is None:
            continue
        name = f"output {value.name!r}"
        where = f"{place}: {name}" if place else name
        if said.dtype != found.dtype:
            raise ModelError(
                f"an output of the declared type {said} is required", place=where, actual=str(found), hint=_REDECLARE
            )
        if said.shape is None or found.shape is None or may_change:
            continue
        if not said.is_static and not found.is_static:
            continue  # ONNX Runtime takes a declaration of open sizes as a hint, so it may contradict.
        same = len(said.shape) == len(found.shape) and all(map(same_dim, said.shape, found.shape))
        if not same:
            raise ModelError(
                f"an output of the declared shape {said} is required", place=where, actual=str(found), hint=_REDECLARE
            )
