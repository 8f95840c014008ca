"""Replaces operators without a kernel in ONNX Runtime by their definitions, so that it runs the file.

ONNX Runtime executes such an operator by its definition, if the operators in it are the same at the opset of the model.
The opset that eqsat writes is newer than most definitions, so a model that ran at the opset of the input might no
longer run. The definition is therefore written instead of the operator, for the given types. In memory the operator
stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.inference.annotate import function_types
from eqsat.model.inference.infer import infer_body
from eqsat.model.onnx_definitions import definition, definition_opset
from eqsat.model.unused_names import unused
from eqsat.model.write.onnxruntime_kernels import has_kernel
from eqsat.schema import opset
from eqsat.schema.attributes import from_attrs, make_attrs, op_key, to_attrs
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.metadata import COST
from eqsat.schema.types import (
    CAST,
    CAST_LIKE,
    Attrs,
    AttrValue,
    GraphAttr,
    OpaqueAttr,
    OpKey,
    TensorType,
    TensorTypes,
    tensor_type,
)

_RANGE = OpKey("", "Range")
_DEEPEST = 8
"""Levels to which definitions may be nested."""
_Inner = dict[ir.Value, TensorType | None]


def runs_alone(op: OpKey, attrs: Attrs, inputs: TensorTypes, outputs: TensorTypes = ()) -> bool:
    """Whether ONNX Runtime runs an operator itself: by a kernel, or by a definition that is still up to date.

    Args:
        op: The operator. An operator of another domain is a function; each of its operators is checked.
        attrs: Its attributes.
        inputs: Types of its inputs.
        outputs: Types of its outputs.
    """
    if opset.find_schema(op) is None or has_kernel(op, inputs, outputs):
        return True
    return _defined(op, attrs, tuple(inputs))


def written(op: OpKey, attrs: Attrs, inputs: TensorTypes, outputs: TensorTypes = ()) -> Body | None:
    """The program written instead of an operator, None for the operator itself.

    Args:
        op: The operator.
        attrs: Its attributes.
        inputs: Types of its inputs.
        outputs: Types of its outputs.
    """
    if op == _RANGE:
        return _of_scalars(inputs)
    if runs_alone(op, attrs, inputs, outputs):
        return None
    return _flattened(op, attrs, tuple(inputs))


def with_runnable(model: ir.Model) -> ir.Model:
    """The model with every operator replaced that ONNX Runtime would not run.

    Args:
        model: Not changed.

    Returns:
        The model itself if there is none, otherwise a copy.
    """
    types = function_types(model)
    if not any(_instead(node, types) for scope in scopes(model) for node in scope):
        return model
    copy = model.clone()
    types = function_types(copy)
    taken = names_of(copy)
    for scope in scopes(copy):
        for node in list(scope):
            body = _instead(node, types)
            if body is not None:
                _replace(node, body, types, taken)
    return copy


def replace_by_definitions(model: ir.Model, types: _Inner, is_wanted: Callable[[ir.Node], bool]) -> None:
    """Replaces operators by their definitions, also inside these definitions.

    Args:
        model: Changed in place.
        types: Types of the values in functions; types of new values are added.
        is_wanted: Whether to replace a node; one without a definition stays.
    """
    taken = names_of(model)
    for scope in scopes(model):
        waiting = [node for node in scope if is_wanted(node)]
        for _ in range(_DEEPEST):
            made: list[ir.Node] = []
            for node in waiting:
                body = _definition_of(node, types)
                if body is not None:
                    made += _replace(node, body, types, taken)
            waiting = [node for node in made if is_wanted(node)]


def _definition_of(node: ir.Node, types: _Inner) -> Body | None:
    op = op_key(node)
    inputs = [_known(v, types) for v in node.inputs]
    if op.domain or any(a.is_ref() for a in node.attributes.values()):
        return None
    if op == CAST_LIKE:
        return _cast(to_attrs(node), inputs)
    if any(t is None and v is not None for t, v in zip(inputs, node.inputs, strict=True)):
        return None
    return _definition(op, to_attrs(node), tuple(inputs))


@lru_cache(maxsize=4096)
def _defined(op: OpKey, attrs: Attrs, inputs: tuple[TensorType | None, ...]) -> bool:
    """Whether ONNX Runtime accepts the definition of an operator: its operators have not changed since it was
    written.
    """
    version = definition_opset(op)
    body = _definition(op, attrs, inputs) if version is not None else None
    if version is None or body is None:
        return False
    nodes = _typed(body, inputs)
    return nodes is not None and all(
        opset.is_same(node.op, version, opset.PINNED_OPSET) and runs_alone(node.op, node.attrs, given, made)
        for node, given, made in nodes
    )


@lru_cache(maxsize=4096)
def _flattened(op: OpKey, attrs: Attrs, inputs: tuple[TensorType | None, ...]) -> Body | None:
    return _flat(op, attrs, inputs, 0)


def _flat(op: OpKey, attrs: Attrs, inputs: TensorTypes, depth: int) -> Body | None:
    """A definition by operators that run themselves, None if there is none."""
    if op == CAST_LIKE:
        return _cast(attrs, inputs)
    body = _definition(op, attrs, inputs) if depth < _DEEPEST else None
    nodes = None if body is None else _typed(body, inputs)
    if body is None or nodes is None:
        return None
    made: list[BodyNode] = []
    count = body.inputs
    number: list[int | None] = list(range(body.inputs))
    for node, given, results in nodes:
        operands = [None if i is None else number[i] for i in node.inputs]
        stays = node.op != CAST_LIKE and runs_alone(node.op, node.attrs, given, results)
        inner = None if stays else _flat(node.op, node.attrs, given, depth + 1)
        if inner is None and not stays:
            return None
        if inner is None:
            made.append(BodyNode(node.op, node.attrs, tuple(operands), node.outputs))
            number += range(count, count + node.outputs)
            count += node.outputs
            continue
        place: list[int | None] = [*operands, *[None] * (inner.inputs - len(operands))]
        for step in inner.nodes:
            read = tuple(None if i is None else place[i] for i in step.inputs)
            made.append(BodyNode(step.op, step.attrs, read, step.outputs))
            place += range(count, count + step.outputs)
            count += step.outputs
        number += [place[r] for r in inner.results[: node.outputs]]
    results_of = [number[r] for r in body.results]
    if any(r is None for r in results_of):
        return None
    return Body(body.inputs, tuple(made), tuple(r for r in results_of if r is not None))


def _cast(attrs: Attrs, inputs: TensorTypes) -> Body | None:
    like = inputs[1]
    if like is None:
        return None
    values: dict[str, AttrValue] = {**dict(attrs), "to": int(like.dtype)}
    return Body(2, (BodyNode(CAST, make_attrs(CAST, values), (0,)),), (2,))


def _of_scalars(inputs: TensorTypes) -> Body | None:
    """A Range of scalars: ONNX Runtime refuses vectors of one element whose value it can derive."""
    vectors = [i for i, t in enumerate(inputs) if t is not None and t.shape]
    if not vectors:
        return None
    count = len(inputs)
    squeezed = tuple(BodyNode(OpKey("", "Squeeze"), (), (i,)) for i in vectors)
    read = tuple(count + vectors.index(i) if i in vectors else i for i in range(count))
    return Body(count, (*squeezed, BodyNode(_RANGE, (), read)), (count + len(vectors),))


def _definition(op: OpKey, attrs: Attrs, inputs: TensorTypes) -> Body | None:
    """The definition of an operator for its inputs."""
    if any(isinstance(value, GraphAttr | OpaqueAttr) for _, value in attrs):
        return None
    body = definition(op, attrs, inputs)
    if body is None:
        return None
    absent = {i for i in range(body.inputs) if i >= len(inputs) or inputs[i] is None}
    nodes = (replace(n, inputs=tuple(None if i in absent else i for i in n.inputs)) for n in body.nodes)
    return replace(body, nodes=tuple(nodes))


_Typed = list[tuple[BodyNode, Sequence[TensorType | None], Sequence[TensorType | None]]]


def _typed(body: Body, inputs: TensorTypes) -> _Typed | None:
    """The nodes of a body with the types of their operands and results; None where these are not known."""
    try:
        types = infer_body(body, [*inputs, *[None] * (body.inputs - len(inputs))])
    except ModelError:
        return None
    found: _Typed = []
    first = body.inputs
    for node in body.nodes:
        made = types[first : first + node.outputs]
        first += node.outputs
        if made and made[0] is None:
            return None
        found.append((node, [None if i is None else types[i] for i in node.inputs], made))
    return found


# ---- graphs --------------------------------------------------------------------------------------


def scopes(model: ir.Model) -> Iterator[ir.Graph | ir.Function]:
    """The main graph, its functions, and the graphs within their nodes."""
    yield model.graph
    yield from model.graph.subgraphs()
    for function in model.functions.values():
        yield function
        yield from function.subgraphs()


def _known(value: ir.Value | None, inner: _Inner) -> TensorType | None:
    return None if value is None else inner[value] if value in inner else tensor_type(value)


def _instead(node: ir.Node, inner: _Inner) -> Body | None:
    """The nodes written instead of a node; None for the node itself, or if too little is known about it."""
    op = op_key(node)
    if op.domain not in opset.OPSETS or any(a.is_ref() for a in node.attributes.values()):
        return None
    inputs = [_known(v, inner) for v in node.inputs]
    if any(t is None and v is not None for t, v in zip(inputs, node.inputs, strict=True)):
        return None
    return written(op, to_attrs(node), inputs, [_known(v, inner) for v in node.outputs])


def names_of(model: ir.Model) -> set[str]:
    """Names of all values and nodes; those in subgraphs must differ from those outside."""
    found: set[str] = set()
    for scope in scopes(model):
        found |= {v.name or "" for v in scope.inputs}
        if isinstance(scope, ir.Graph):
            found |= set(scope.initializers)
        found |= {v.name or "" for node in scope for v in node.outputs}
        found |= {node.name or "" for node in scope}
    return found


def _replace(node: ir.Node, body: Body, inner: _Inner, taken: set[str]) -> list[ir.Node]:
    """Writes a body in the place of a node; its outputs keep their names and types, its metadata stays with them."""
    base = node.name or next((v.name for v in node.outputs if v.name), None) or node.op_type
    values: list[ir.Value | None] = [*node.inputs, *[None] * (body.inputs - len(node.inputs))]
    types = infer_body(body, [_known(v, inner) for v in values])
    made: list[ir.Node] = []
    for part in body.nodes:
        outputs = []
        for _ in range(part.outputs):
            known = types[len(values) + len(outputs)]
            shape = None if known is None or known.shape is None else ir.Shape(known.shape)
            kind = None if known is None else ir.TensorType(known.dtype)
            outputs.append(ir.Value(name=unused(f"{base}_{part.op.name}", taken), type=kind, shape=shape))
        attributes = from_attrs(part.attrs, part.op)
        operands = [None if i is None else values[i] for i in part.inputs]
        made.append(ir.Node(part.op.domain, part.op.name, operands, attributes, outputs=outputs, name=outputs[0].name))
        values += outputs
    results: list[ir.Value] = []
    for old, number in zip(node.outputs, body.results, strict=False):
        new = values[number]
        assert new is not None
        if number < body.inputs or new in results:
            copy = ir.Value(name=unused(f"{base}_Identity", taken), type=old.type, shape=old.shape)
            made.append(ir.Node("", "Identity", [new], outputs=[copy], name=copy.name))
            new = copy
        results.append(new)
        new.name, new.type, new.shape = old.name, old.type, old.shape
        new.metadata_props.update(old.metadata_props)
        new.doc_string = old.doc_string
    last = results[0].producer() if results else None
    if last is not None and node.name:
        last.name = node.name
    kept = list(node.outputs[: len(results)])
    scope = node.graph
    assert scope is not None
    made[-1].metadata_props.update(node.metadata_props)
    made[-1].doc_string = node.doc_string
    for step in made[:-1]:
        # The cost is that of all these nodes together.
        step.metadata_props.update({k: v for k, v in node.metadata_props.items() if k != COST})
    ir.convenience.replace_nodes_and_values(scope, node, [node], made, kept, results)
    return made
