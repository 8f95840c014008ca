"""Restores the functions of a file that was written without them, so that its placement can be read.

The file has a record of them (:mod:`eqsat.model.write.record`). The record is never trusted: it is used only if
inlining it gives the graph of the file once more, node for node and with the same marks. Other tools may rename tensors
and reorder nodes; after any other change, the file is a model without a plan, and a note says so.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Container, Hashable, Mapping, MutableSequence
from dataclasses import replace

import onnx
import onnx_ir as ir

from eqsat.errors import EqsatError, note, reason
from eqsat.model.read.sources import UncheckedModel
from eqsat.model.validate.model import check
from eqsat.model.write.flat import inline_functions
from eqsat.model.write.record import read_record
from eqsat.schema.metadata import COMPOSITE, COST, FUNCTIONS, KERNEL, REGION, RULE, TARGET, targets_of

_MARKS = (TARGET, REGION, COMPOSITE, KERNEL)
"""The marks on the nodes of a file without functions; the record has them too."""
_STALE = frozenset((*_MARKS, COST, RULE))


def restore_functions(source: UncheckedModel) -> None:
    """Replaces the nodes of a file without functions by the calls of functions that it was made from.

    If the record of them does not describe the file, marks of placement are removed from the nodes.
    """
    proto = source.proto
    texts = [entry.value for entry in proto.metadata_props if entry.key == FUNCTIONS]
    if not texts and (proto.functions or not _is_placed(proto)):
        return
    _drop(proto.metadata_props, {FUNCTIONS})
    try:
        restored = _restored(source, texts)
    except ValueError as error:
        for node in proto.graph.node:
            _drop(node.metadata_props, _STALE)
        where = f"{source.place}: " if source.place else ""
        note(
            f"{where}the regions and composites of this file are not used, because its nodes are not those that eqsat "
            f"wrote ({error}); the model is taken as one without placement. To place it again, optimize it with "
            "its targets"
        )
        return
    source.proto = restored


def _restored(source: UncheckedModel, texts: list[str]) -> onnx.ModelProto:
    """The file with functions.

    Raises:
        ValueError: The record of them is missing or describes another file.
    """
    proto = source.proto
    if len(texts) != 1:
        raise ValueError(f"it has {len(texts) or 'no'} metadata `{FUNCTIONS}`")
    if proto.functions:
        raise ValueError("it has functions")
    record = read_record(texts[0], proto)
    versions = {e.domain: e.version for e in record.opset_import}
    for entry in proto.opset_import:
        if versions.setdefault(entry.domain, entry.version) != entry.version:
            raise ValueError(f"its opset is {entry.version} and was {versions[entry.domain]}")
    restored = onnx.ModelProto()
    restored.CopyFrom(proto)
    del restored.graph.node[:], restored.functions[:], restored.opset_import[:]
    restored.graph.node.extend(record.graph.node)
    restored.functions.extend(record.functions)
    restored.opset_import.extend(record.opset_import)
    types = {value.name: value.type for value in proto.graph.input}
    if any(types.get(value.name) != value.type for value in record.graph.input):
        # The types that functions state are those for other sizes of the inputs.
        for function in restored.functions:
            del function.value_info[:]
    inside = {name for node in record.graph.node for name in node.output}
    del restored.graph.value_info[:]
    restored.graph.value_info.extend(info for info in proto.graph.value_info if info.name in inside)
    try:
        # It also limits what inlining may give.
        check(replace(source, proto=restored))
        # Inlining changes the model.
        inlined = ir.from_proto(restored)
        inline_functions(inlined)
        contents = _Contents()
        same = contents.of(inlined.graph) == contents.of(ir.from_proto(proto).graph)
    except EqsatError as error:
        raise ValueError(f"{error.requirement}; got {error.actual}") from error
    except Exception as error:  # onnx_ir has no common base of its errors
        raise ValueError(reason(error)) from error
    if not same:
        raise ValueError("nodes were changed, added or removed")
    return restored


def _drop(entries: MutableSequence[onnx.StringStringEntryProto], keys: Container[str]) -> None:
    kept = [entry for entry in entries if entry.key not in keys]
    del entries[:]
    entries.extend(kept)


def _is_placed(proto: onnx.ModelProto) -> bool:
    """Whether nodes of the main graph say that they are part of a region on an accelerator, or of a composite."""
    targets = targets_of({entry.key: entry.value for entry in proto.metadata_props})
    marks = ({e.key: e.value for e in node.metadata_props} for node in proto.graph.node)
    return any(KERNEL in m or (REGION in m and m.get(TARGET, targets[0]) != targets[0]) for m in marks if targets)


class _Contents:
    """Graphs as comparable values.

    Each value is numbered by its computation, with the same numbers in all graphs: two graphs are equal if they have
    the same number of nodes of each kind. Equal nodes correspond in the order in which they occur.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def of(self, graph: ir.Graph) -> Hashable:
        """Everything that a main graph computes, without the names inside."""
        known = {value: self._number("given", value.name) for value in (*graph.inputs, *graph.initializers.values())}
        nodes = self._nodes(graph, known)
        return nodes, tuple((value.name, known.get(value)) for value in graph.outputs)

    def _number(self, *key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _nodes(self, graph: ir.Graph, known: dict[ir.Value, int]) -> Hashable:
        seen: Counter[Hashable] = Counter()
        for node in graph:
            marks = tuple(node.metadata_props.get(key) for key in _MARKS)
            reads = tuple(None if v is None or not v.name else known[v] for v in node.inputs)
            attributes = tuple((name, self._attribute(a, known)) for name, a in sorted(node.attributes.items()))
            written = tuple(bool(v.name) for v in node.outputs)
            kind = self._number(node.op_identifier(), marks, reads, attributes, written)
            known.update({v: self._number("result", kind, seen[kind], i) for i, v in enumerate(node.outputs)})
            seen[kind] += 1
        return frozenset(seen.items())

    def _attribute(self, attribute: ir.Attr, known: Mapping[ir.Value, int]) -> Hashable:
        if attribute.type == ir.AttributeType.GRAPH:
            return self._body(attribute.as_graph(), known)
        if attribute.type == ir.AttributeType.GRAPHS:
            return tuple(self._body(graph, known) for graph in attribute.as_graphs())
        if attribute.type == ir.AttributeType.TENSOR:
            return _tensor(attribute.as_tensor())
        if attribute.type == ir.AttributeType.TENSORS:
            return tuple(map(_tensor, attribute.as_tensors()))
        content = ir.to_proto(attribute)
        content.doc_string = ""
        return content.SerializeToString(deterministic=True)

    def _body(self, graph: ir.Graph, outer: Mapping[ir.Value, int]) -> Hashable:
        known = dict(outer)
        known.update({value: self._number("argument", i) for i, value in enumerate(graph.inputs)})
        for value in graph.initializers.values():
            assert value.const_value is not None
            known[value] = self._number("constant", _tensor(value.const_value))
        nodes = self._nodes(graph, known)
        return len(graph.inputs), nodes, tuple(known.get(value) for value in graph.outputs)


def _tensor(tensor: ir.TensorProtocol) -> Hashable:
    kind = tensor.dtype, tuple(tensor.shape.numpy())
    if tensor.dtype == ir.DataType.STRING:
        return kind, tuple(tensor.numpy().ravel().tolist())
    return kind, hashlib.sha256(tensor.tobytes()).digest()
