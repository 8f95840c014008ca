"""Sizes of a model that its operators require to be equal, although its types do not say so.

Exporters give each dimension of an input a symbol of its own: the length of a mask is ``T``, although it can only be
``P + S``, as long as the keys. Operators say so: where their operands have axes that belong together
(:mod:`eqsat.ops.equal_axes`) and different sizes, these have to agree. :mod:`eqsat.schema.agreement` computes with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.model.inference.annotate import annotate
from eqsat.model.inference.index_ranges import greatest_index
from eqsat.model.inference.infer import infer_body
from eqsat.model.inlining import inline_calls
from eqsat.model.onnx_definitions import definition
from eqsat.model.symbols import put_in_place, symbols
from eqsat.model.validate.model import label
from eqsat.ops.checks.check import CheckedNode
from eqsat.ops.operators import operator, together
from eqsat.schema import opset
from eqsat.schema.agreement import Requirement, solved
from eqsat.schema.attributes import captured_values, op_key, subgraphs, to_attrs
from eqsat.schema.free_sizes import FreeSize, FreeSizes
from eqsat.schema.types import Attrs, Dim, OpKey, TensorType, stored_type, tensor_type

_KEY = "eqsat.requirements"
_MOST_ROUNDS = 4
"""How often types are inferred again with the sizes found; each time the sizes of more operators become known."""
_SMALL = 64
"""Elements of an operand whose values may say sizes."""


def requirements(model: ir.Model) -> tuple[Requirement, ...]:
    """The sizes that must agree, in the order of the operators.

    Args:
        model: A model with types; it is not changed, but caches the result.
    """
    shapes = tuple(str(value.shape) for value in model.graph.inputs)
    kept = model.meta.get(_KEY)
    if kept is None or kept[0] != shapes:
        kept = model.meta[_KEY] = (shapes, _collected(model) if symbols(model) else ())
    return kept[1]


def _collected(model: ir.Model) -> tuple[Requirement, ...]:
    free = {name: FreeSize(1, None, 0) for name in symbols(model)}
    if model.functions:
        model = model.clone()
        inline_calls(model)
        annotate(model)
    found = dict.fromkeys(of_graph(model.graph, free))
    for _ in range(_MOST_ROUNDS):
        known = {name: size.text for name, size in solved(tuple(found), free).items()}
        if not known or all(map(_is_known, _results(model.graph))):
            break
        try:
            model = model.clone()
            put_in_place(model, known)
            annotate(model)
        except EqsatError:
            break  # Branches that exclude each other may require different sizes.
        before = len(found)
        found.update(dict.fromkeys(of_graph(model.graph, free)))
        if len(found) == before:
            break
    return tuple(found)


def _results(graph: ir.Graph) -> Iterator[ir.Value]:
    return (value for node in graph for value in node.outputs if value.name)


def _is_known(value: ir.Value) -> bool:
    return value.shape is not None and all(isinstance(d, int) or d.value is not None for d in value.shape)


def of_graph(graph: ir.Graph, free: FreeSizes) -> Iterator[Requirement]:
    """The requirements of a graph and of the branches in it.

    Args:
        graph: With types.
        free: The symbols of the model's inputs.
    """
    for i, node in enumerate(graph):
        if node.op_type == "If" and not node.domain:
            yield from _of_branches(node, graph, free)
        inputs = [None if value is None else stored_type(value) for value in node.inputs]
        if all(t is None or t.is_static for t in inputs):
            continue
        values = [None if value is None else _value(value) for value in node.inputs]
        place = label(node.name, node.op_type, next((v.name for v in node.outputs if v.name), ""), i)
        outputs = [tensor_type(value) for value in node.outputs]
        yield from _of_operator(op_key(node), to_attrs(node), inputs, values, outputs, place)
        if node.op_type == "Gather" and not node.domain:
            yield from _of_indices(node, inputs[0], free, place)


def _of_indices(node: ir.Node, data: TensorType | None, free: FreeSizes, place: str) -> Iterator[Requirement]:
    """The requirement that an axis is longer than the greatest index, if that is computed from sizes."""
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    indices = node.inputs[1]
    size = _dim(data, axis)
    if size is None or indices is None or ir.convenience.get_const_tensor(indices) is not None:
        return
    greatest = greatest_index(indices, free)
    if greatest is not None:
        yield Requirement(size, f"{greatest} + 1", "least", place, True)


def _of_branches(node: ir.Node, around: ir.Graph, free: FreeSizes) -> Iterator[Requirement]:
    """Requirements of all branches, and those of single branches, which only apply if the branch is executed."""
    found: list[list[Requirement]] = []
    for branch in subgraphs(node):
        if any(
            not _is_known(value) or not ir.Shape(value.shape or ()).is_static() for value in captured_values(branch)
        ):
            try:
                found.append(list(of_graph(_as_graph(branch, around), free)))
                continue
            except EqsatError:
                pass  # Executed, it fails: it says nothing of the other one.
        found.append([])
    in_all = set.intersection(*({r.pair for r in one} for one in found))
    yield from dict.fromkeys(r._replace(always=r.always and r.pair in in_all) for one in found for r in one)


def _as_graph(branch: ir.Graph, around: ir.Graph) -> ir.Graph:
    """A branch with the types that follow from the values that it captures."""
    copy = branch.clone(allow_outer_scope_values=True)
    stand_ins: dict[ir.Value, ir.Value] = {}
    for outer in captured_values(copy):
        made = stand_ins[outer] = ir.Value(name=outer.name, type=outer.type, shape=outer.shape)
        made.const_value = ir.convenience.get_const_tensor(outer)
    for inner in ir.traversal.RecursiveGraphIterator(copy):
        for value in inner.outputs:
            value.shape = None
        for k, value in enumerate(inner.inputs):
            if value in stand_ins:
                inner.replace_input_with(k, stand_ins[value])
    nodes, own = list(copy), list(copy.initializers.values())
    copy.remove(nodes)
    copy.initializers.clear()
    made = ir.Graph(
        [v for v in stand_ins.values() if v.const_value is None],
        [],
        nodes=nodes,
        initializers=[*(v for v in stand_ins.values() if v.const_value is not None), *own],
        opset_imports=dict(around.opset_imports),
    )
    annotate(ir.Model(made, ir_version=opset.IR_VERSION))
    return made


def _value(value: ir.Value) -> np.ndarray | None:
    tensor = ir.convenience.get_const_tensor(value)
    return tensor.numpy() if tensor is not None and tensor.size <= _SMALL else None


def _of_operator(
    op: OpKey,
    attrs: Attrs,
    inputs: Sequence[TensorType | None],
    values: Sequence[np.ndarray | None],
    outputs: Sequence[TensorType | None],
    place: str,
    depth: int = 0,
) -> Iterator[Requirement]:
    node = CheckedNode(op, attrs, inputs, values, outputs)
    groups = list(together(op)(node))
    for group in groups:
        sizes = [_dim(inputs[number], axis) for number, axis in group.axes]
        wanted = [group.size] if group.size is not None else []
        given = [d for d in dict.fromkeys([*wanted, *sizes]) if d is not None and not (group.repeats and d == 1)]
        for a, b in itertools.pairwise(given):
            yield Requirement(a, b, "broadcast" if group.repeats else "equal", place, True)
    for size in _windows(op, attrs, outputs):
        yield Requirement(size, 1, "least", place, True)
    if op == OpKey("", "Reshape") and outputs and (pair := _reshaped(inputs[0], outputs[0])) is not None:
        yield Requirement(*pair, "equal", place, True)
    if groups or depth > 1 or operator(op).together is not None or len(set(_open(inputs))) < 2:
        return
    try:
        body = definition(op, attrs, inputs)
        if body is None:
            return
        types = infer_body(body, [*inputs, *[None] * (body.inputs - len(inputs))], values)
    except EqsatError:
        return
    for inner in body.nodes:
        given = [None if i is None else types[i] for i in inner.inputs]
        yield from _of_operator(inner.op, inner.attrs, given, [None] * len(given), (), place, depth + 1)


def _windows(op: OpKey, attrs: Attrs, outputs: Sequence[TensorType | None]) -> Iterator[str]:
    """The numbers of windows along axes of open size: at least one has to fit into the padded operand."""
    slides = op.name.endswith("Conv") or any(name == "kernel_shape" for name, _ in attrs)
    made = outputs[0] if outputs and slides else None
    yield from (d for d in (made.shape or ())[2:] if isinstance(d, str)) if made is not None else ()


def _dim(known: TensorType | None, axis: int) -> Dim:
    return None if known is None or known.shape is None else known.shape[axis]


def _open(inputs: Sequence[TensorType | None]) -> Iterator[str]:
    return (d for t in inputs if t is not None for d in t.shape or () if isinstance(d, str))


def _reshaped(x: TensorType | None, y: TensorType | None) -> tuple[str, str] | None:
    """The numbers of elements before and after, where both are known."""
    if x is None or y is None or x.shape is None or y.shape is None or None in (*x.shape, *y.shape):
        return None
    before, after = ("*".join(f"({d})" for d in kind.shape or ()) or "1" for kind in (x, y))
    return None if sorted(map(str, x.shape)) == sorted(map(str, y.shape)) else (before, after)
