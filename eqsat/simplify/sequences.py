"""Sequences and optionals whose elements are known: what reads them reads the elements.

Exporters write Python lists as sequences: PyTorch's ``split`` and ``tensor_split`` make one that a loop fills and of
which each element is then taken. Everything after a sequence has no known shape, so nothing there could be optimized.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from eqsat.schema.attributes import subgraphs
from eqsat.simplify.edit import Editor, constant_of, number_of
from eqsat.simplify.site import is_control
from eqsat.simplify.unroll import MOST_OPERATORS, copies, unroll

MOST_ELEMENTS = 512
"""Elements of a sequence that are followed; each may become an output of a Split."""

_Elements = tuple[ir.Value, ...]


def has_sequences(model: ir.Model) -> bool:
    """Whether a node makes a sequence or an optional."""
    nodes = ir.traversal.RecursiveGraphIterator(model.graph)
    return any(node.op_type in _MAKERS and node.op_type != "Identity" and not node.domain for node in nodes)


def unroll_sequences(node: ir.Node, editor: Editor) -> bool:
    """Unrolls a loop that hands on a sequence and makes a known number of rounds."""
    if not any(isinstance(v.type, ir.SequenceType) for v in node.outputs):
        return False
    rounds = copies(node)
    return bool(rounds) and unroll(node, editor, rounds)


def take_elements(graph: ir.Graph, editor: Editor, known: dict[ir.Value, _Elements] | None = None) -> bool:
    """Lets nodes read elements of sequences in their place.

    Args:
        graph: Changed in place, with the bodies in it.
        editor: Of the main graph.
        known: The elements of sequences around a body.

    Returns:
        Whether anything changed.
    """
    known = {} if known is None else known
    changed = False
    for node in list(graph):
        for body in subgraphs(node):
            changed |= take_elements(body, editor, known)
        if node.domain or is_control(node):
            continue
        if node.op_type == "SequenceMap":
            changed |= _map(node, known, editor)
        elif node.op_type in _MAKERS:
            elements = _MAKERS[node.op_type](node, known, editor)
            if elements is not None and len(elements) <= MOST_ELEMENTS:
                known[node.outputs[0]] = elements
        elif node.op_type in _READERS:
            elements = known.get(node.inputs[0]) if node.inputs[0] is not None else None
            result = None if elements is None else _READERS[node.op_type](node, elements, editor)
            if result is not None:
                editor.replace(node.outputs[0], result, node)
                graph.remove(node, safe=True)
                changed = True
    return changed


# ---- what makes sequences --------------------------------------------------------------------------


def _empty(node: ir.Node, known: dict[ir.Value, _Elements], editor: Editor) -> _Elements | None:
    return ()


def _construct(node: ir.Node, known: dict[ir.Value, _Elements], editor: Editor) -> _Elements | None:
    return tuple(v for v in node.inputs if v is not None)


def _optional(node: ir.Node, known: dict[ir.Value, _Elements], editor: Editor) -> _Elements | None:
    return tuple(v for v in node.inputs[:1] if v is not None)


def _copy(node: ir.Node, known: dict[ir.Value, _Elements], editor: Editor) -> _Elements | None:
    return _given(node, known)


def _insert(node: ir.Node, known: dict[ir.Value, _Elements], editor: Editor) -> _Elements | None:
    elements, element = _given(node, known), node.inputs[1]
    if elements is None or element is None:
        return None
    at = _position(node, 2, len(elements) + 1, len(elements))
    return None if at is None else (*elements[:at], element, *elements[at:])


def _erase(node: ir.Node, known: dict[ir.Value, _Elements], editor: Editor) -> _Elements | None:
    elements = _given(node, known)
    if elements is None:
        return None
    at = _position(node, 1, len(elements), len(elements) - 1)
    return None if at is None else (*elements[:at], *elements[at + 1 :])


def _split(node: ir.Node, known: dict[ir.Value, _Elements], editor: Editor) -> _Elements | None:
    """The pieces of a tensor, which a Split makes."""
    value, graph = node.inputs[0], node.graph
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
    length = None if value is None or value.shape is None else value.shape[axis]
    given = node.inputs[1] if len(node.inputs) > 1 else None
    sizes = None if given is None else constant_of(given)
    if value is None or not isinstance(length, int) or not length or (given is not None and sizes is None):
        return None
    pieces = _pieces(length, sizes)
    readers = {*_MAKERS, *_READERS, "SequenceMap"}
    read = any(not user.domain and user.op_type in readers for user, _ in node.outputs[0].uses())
    if not read or len(pieces) > MOST_ELEMENTS or sum(pieces) != length or not isinstance(graph, ir.Graph):
        return None
    if len(pieces) == 1:
        parts = [value]
    else:
        numbers = editor.constant(graph, "sizes", np.array(pieces, np.int64))
        made = ir.Node("", "Split", [value, numbers], [ir.AttrInt64("axis", axis)], num_outputs=len(pieces))
        for part in made.outputs:
            part.name = editor.name(f"{node.outputs[0].name}_part")
        graph.insert_before(node, made)
        parts = list(made.outputs)
    if sizes is None and "keepdims" in node.attributes and not node.attributes["keepdims"].as_int():
        axes = editor.constant(graph, "axes", np.array([axis], np.int64))
        parts = [editor.insert(node, "Squeeze", [part, axes], f"{part.name}_row") for part in parts]
    return tuple(parts)


def _pieces(length: int, sizes: np.ndarray | None) -> list[int]:
    if sizes is not None and sizes.ndim:
        return sizes.tolist()
    size = 1 if sizes is None else max(int(sizes), 1)
    return [min(size, length - at) for at in range(0, length, size)]


def _map(node: ir.Node, known: dict[ir.Value, _Elements], editor: Editor) -> bool:
    """Puts a copy of the body for each element in the place of a SequenceMap; its results are sequences of elements."""
    graph, first = node.graph, _given(node, known)
    body = node.attributes["body"].as_graph()
    size = len(first or ()) * max(sum(1 for _ in ir.traversal.RecursiveGraphIterator(body)), 1)
    if not first or size > MOST_OPERATORS or not isinstance(graph, ir.Graph):
        return False
    columns: list[_Elements] = [first]
    for value in node.inputs[1:]:
        if value is None:
            return False
        sequence = isinstance(value.type, ir.SequenceType)
        column = known.get(value) if sequence else (value,) * len(first)
        if column is None or len(column) != len(first):
            return False
        columns.append(column)
    rows = [editor.copy_in(body, node, dict(zip(body.inputs, row, strict=True))) for row in zip(*columns, strict=True)]
    for value, elements in zip(node.outputs, zip(*rows, strict=True), strict=True):
        made = ir.Node("", "SequenceConstruct", elements)
        made.outputs[0].name = editor.name(f"{value.name}_elements")
        made.outputs[0].type, made.outputs[0].shape = value.type, value.shape
        graph.insert_before(node, made)
        known[made.outputs[0]] = tuple(elements)
        editor.replace(value, made.outputs[0], node)
    graph.remove(node, safe=True)
    return True


# ---- what reads sequences --------------------------------------------------------------------------


def _at(node: ir.Node, elements: _Elements, editor: Editor) -> ir.Value | None:
    at = _position(node, 1, len(elements), None)
    return None if at is None else elements[at]


def _length(node: ir.Node, elements: _Elements, editor: Editor) -> ir.Value | None:
    assert isinstance(node.graph, ir.Graph)
    return editor.constant(node.graph, "length", np.array(len(elements), np.int64))


def _concat(node: ir.Node, elements: _Elements, editor: Editor) -> ir.Value | None:
    axis, graph = node.attributes["axis"].as_int(), node.graph
    if not elements or not isinstance(graph, ir.Graph):
        return None
    parts = list(elements)
    if "new_axis" in node.attributes and node.attributes["new_axis"].as_int():
        axes = editor.constant(graph, "axes", np.array([axis], np.int64))
        parts = [editor.insert(node, "Unsqueeze", [part, axes], f"{part.name}_row") for part in parts]
    return editor.insert(node, "Concat", parts, f"{node.outputs[0].name}_joined", axis=axis)


def _has(node: ir.Node, elements: _Elements, editor: Editor) -> ir.Value | None:
    assert isinstance(node.graph, ir.Graph)
    return editor.constant(node.graph, "has_element", np.array(bool(elements)))


def _get(node: ir.Node, elements: _Elements, editor: Editor) -> ir.Value | None:
    return elements[0] if elements else None


def _given(node: ir.Node, known: dict[ir.Value, _Elements]) -> _Elements | None:
    first = node.inputs[0]
    return None if first is None else known.get(first)


def _position(node: ir.Node, index: int, count: int, default: int | None) -> int | None:
    """A position among ``count`` ones that an operand gives; None if it is unknown or out of range."""
    value = node.inputs[index] if index < len(node.inputs) else None
    if value is None:
        return default if default is not None and default >= 0 else None
    number = number_of(value)
    if number is None:
        return None
    at = int(number.reshape(()))
    # An insertion has one more position than the sequence has elements, but counts from its end.
    last = count - 1 if node.op_type == "SequenceInsert" else count
    return None if not -last <= at < count else at + last if at < 0 else at


_MAKERS: dict[str, Callable[[ir.Node, dict[ir.Value, _Elements], Editor], _Elements | None]] = {
    "SequenceEmpty": _empty,
    "SequenceConstruct": _construct,
    "SequenceInsert": _insert,
    "SequenceErase": _erase,
    "SplitToSequence": _split,
    "Optional": _optional,
    "Identity": _copy,
}
_READERS: dict[str, Callable[[ir.Node, _Elements, Editor], ir.Value | None]] = {
    "SequenceAt": _at,
    "SequenceLength": _length,
    "ConcatFromSequence": _concat,
    "OptionalHasElement": _has,
    "OptionalGetElement": _get,
}
