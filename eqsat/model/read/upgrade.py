"""Upgrades a model to the pinned opset, and inlines the model-local functions of others.

``onnx.version_converter`` upgrades and ``onnx.inliner`` inlines. The converter drops functions and metadata of nodes,
so it runs only if an operator in use changed between the two opsets, and its losses are repaired.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableSequence
from typing import Any

import onnx
from onnx import inliner, version_converter

from eqsat.errors import ModelError
from eqsat.model.read.converted import (
    MISREAD,
    drop_leftovers,
    element_types,
    flattened,
    give_coordinates,
    give_types,
    hidden_hardmax,
    keep_empty,
    needs_types,
    restore_hardmax,
)
from eqsat.model.read.function_defaults import state_defaults
from eqsat.model.read.sources import UncheckedModel
from eqsat.schema import opset
from eqsat.schema.metadata import PREFIX
from eqsat.schema.types import OpKey
from eqsat.schema.versions import BECAME_INPUT, added_attributes, means_same


def upgrade(source: UncheckedModel) -> None:
    """Brings every operator to the pinned opset.

    Raises:
        ModelError: An operator is newer than the pinned opset, or the conversion fails.
    """
    model = source.proto
    functions = list(model.functions)
    version = opset_of(model)
    _leave_out_defaults(model, version)
    changed = sorted({_key(node).name for node in _nodes(model) if not _is_said(node, version)})
    if version > opset.PINNED_OPSET and changed:
        names = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
        raise ModelError(
            f"operators of opset {opset.PINNED_OPSET} or older are required",
            place=source.place,
            actual=f"opset {version} with {names}, which changed since",
            hint=f"export the model with opset {opset.PINNED_OPSET}",
        )
    told = _told(source.proto)
    if changed:
        _convert(source, version, changed)
        source.proto.functions.extend(functions)
    for function in source.proto.functions:
        _respell(function)
    for target in (source.proto, *source.proto.functions):
        for entry in target.opset_import:
            if not entry.domain:
                entry.version = opset.PINNED_OPSET
    _replace(source.proto.graph.value_info, told)
    # ONNX Runtime requires that the model imports the opsets of its functions as well.
    imported = {e.domain for e in source.proto.opset_import}
    for entry in [e for f in source.proto.functions for e in f.opset_import]:
        if entry.domain not in imported:
            imported.add(entry.domain)
            source.proto.opset_import.add(domain=entry.domain, version=entry.version)


def _is_said(node: onnx.NodeProto, version: int) -> bool:
    """Whether a node of an opset says the same at the pinned one."""
    added = added_attributes(_key(node), version)
    return means_same(_key(node), version) and not any(a.name in added for a in node.attribute)


def _leave_out_defaults(model: onnx.ModelProto, version: int) -> None:
    """Removes attributes that only a newer opset has, if they have the value that the older opset implies."""
    for node in _nodes(model):
        added = added_attributes(_key(node), version)
        if any(a.name in added for a in node.attribute):
            kept = [a for a in node.attribute if a.name not in added or not _is_default(a, added[a.name])]
            _replace(node.attribute, kept)


def _is_default(attribute: onnx.AttributeProto, default: onnx.AttributeProto) -> bool:
    if attribute.ref_attr_name or attribute.type != default.type:
        return False
    return onnx.helper.get_attribute_value(attribute) == onnx.helper.get_attribute_value(default)


def is_own(function: onnx.FunctionProto) -> bool:
    """Whether eqsat wrote the function: a composite or a region of an optimized model, or an operator of eqsat."""
    own_domain = function.domain == opset.EQSAT or function.domain.startswith(opset.EQSAT + ".")
    return own_domain or any(entry.key.startswith(PREFIX) for entry in function.metadata_props)


def inline_foreign(source: UncheckedModel) -> None:
    """Inlines the functions that are not eqsat's own, and those of eqsat that are older than the pinned opset.

    Raises:
        ModelError: The inliner refuses them, or would change what they compute.
    """
    model = source.proto
    pinned = opset.PINNED_OPSET

    def stays(function: onnx.FunctionProto) -> bool:
        if not is_own(function):
            return False
        versions = {e.domain: e.version for e in function.opset_import}
        version = versions.get("", pinned)
        moved = {node.output[0] for node, _, _ in _attributes_that_moved(function, version)}
        moved |= {node.output[0] for node in function.node if _is_old_split(node, version)}
        rest = [node for node in function.node if not node.output or node.output[0] not in moved]
        return all(means_same(op, version) for op in _operators_of(rest))

    foreign = [f for f in model.functions if not stays(f)]
    if not foreign:
        return
    _check_function_opsets(source, foreign)
    foreign += state_defaults(model, model.functions)
    for function in foreign:
        _require_convertible(function, opset_of(model))
        _move_up(function, opset_of(model))
    try:
        if len(foreign) == len(model.functions):
            source.proto = inliner.inline_local_functions(model, convert_version=True)
        else:
            source.proto = inliner.inline_selected_functions(model, [(f.domain, f.name) for f in foreign])
    except Exception as error:  # the C++ side throws several kinds
        names = ", ".join(sorted({f"{f.domain}.{f.name}" for f in foreign}))
        message = "model-local functions that can be inlined are required"
        raise ModelError(message, place=source.place, actual=f"{names}: {_reason(error)}") from error
    gone = {f.domain for f in foreign} - {f.domain for f in source.proto.functions}
    used = {op.domain for op in _operators(source.proto)}
    kept = [e for e in source.proto.opset_import if e.domain in used or e.domain not in gone]
    _replace(source.proto.opset_import, kept)


def _require_convertible(function: onnx.FunctionProto, version: int) -> None:
    """Raises a ModelError if the inliner would change what a function computes."""
    own = next((e.version for e in function.opset_import if not e.domain), version)
    for node in _nodes_of(function.node):
        since = 0 if node.domain else MISREAD.get(node.op_type, 0)
        if own < since <= version:
            raise ModelError(
                f"a function of opset {since} or newer is required where it has {node.op_type}",
                place=f"function {function.domain}.{function.name}",
                actual=f"opset {own}, in a model of opset {version}",
                hint="export the function and the model with one opset",
            )


def _move_up(function: onnx.FunctionProto, version: int) -> None:
    """Sets a function's opset to the model's if its operators mean the same there.

    The inliner converts what is older, and its converter gives up where it does not know a type.
    """
    for entry in function.opset_import:
        is_older = not entry.domain and entry.version < version <= opset.PINNED_OPSET
        if is_older and all(means_same(op, entry.version) for op in _operators_of(function.node)):
            entry.version = version


def _attributes_that_moved(
    function: onnx.FunctionProto, version: int
) -> Iterator[tuple[onnx.NodeProto, onnx.AttributeProto, str]]:
    """Nodes of a function with an attribute that is an input by now, and the name of that attribute."""
    for node in function.node:
        name, since = BECAME_INPUT.get(node.op_type, ("", 0)) if not node.domain else ("", 0)
        for attribute in node.attribute:
            if attribute.name == name and version < since and not attribute.ref_attr_name:
                yield node, attribute, name


def _is_old_split(node: onnx.NodeProto, version: int) -> bool:
    return node.op_type == "Split" and not node.domain and version < 18


def _respell(function: onnx.FunctionProto) -> None:
    """Turns such attributes into inputs, and gives a Split without sizes the number of its parts."""
    version = next((e.version for e in function.opset_import if not e.domain), opset.PINNED_OPSET)
    for node in function.node:
        if _is_old_split(node, version) and len(node.input) < 2 and not any(a.name == "split" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("num_outputs", len(node.output)))
    constants: dict[str, onnx.NodeProto] = {}
    for node, attribute, name in list(_attributes_that_moved(function, version)):
        made = onnx.helper.make_node("Constant", [], [f"{node.output[0]}_{name}"], value_ints=attribute.ints)
        constants[node.output[0]] = made
        node.attribute.remove(attribute)
        node.input.append(made.output[0])
    if constants:
        nodes = [[constants.get(node.output[0]) if node.output else None, node] for node in function.node]
        _replace(function.node, [node for pair in nodes for node in pair if node is not None])


def _check_function_opsets(source: UncheckedModel, foreign: list[onnx.FunctionProto]) -> None:
    """A function may import a newer opset than the model; then the model must be converted first."""
    version = opset_of(source.proto)
    newest = max([version, *(e.version for f in foreign for e in f.opset_import if not e.domain)])
    if newest <= version:
        return
    changed = {op.name for op in _operators(source.proto, functions=False) if not opset.is_same(op, version, newest)}
    if changed:
        functions = list(source.proto.functions)
        _convert(source, version, sorted(changed), newest)
        source.proto.functions.extend(functions)
    for entry in source.proto.opset_import:
        if not entry.domain:
            entry.version = newest


def _convert(source: UncheckedModel, version: int, changed: list[str], target: int = opset.PINNED_OPSET) -> None:
    if version < 7:
        _spread_slopes(source.proto)
    types = element_types(source.proto) if version < 11 and needs_types(source.proto) else {}
    on_matrices = flattened(source.proto) if version < 13 else set()
    hidden = hidden_hardmax(source.proto) if version < 13 <= target else set()
    try:
        converted = version_converter.convert_version(source.proto, target)
    except Exception as error:  # the C++ side throws several kinds
        restore_hardmax(source.proto, hidden)
        raise ModelError(
            f"a model that can be brought from opset {version} to {target} is required",
            place=source.place,
            actual=_reason(error),
            hint=f"{', '.join(changed[:8])} changed since; exporting with a newer opset avoids the conversion",
        ) from error
    give_types(converted, types)
    keep_empty(converted, on_matrices)
    restore_hardmax(converted, hidden)
    if version < 11:
        drop_leftovers(converted.graph)
    if version < 11 <= target:
        give_coordinates(converted.graph)
    source.proto = converted


def _told(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The declared types that inference cannot find: those of unknown operators, and symbols."""
    if not model.graph.value_info:
        return []
    foreign = {o for n in model.graph.node if n.domain not in opset.OPSETS for o in n.output}

    def says_more(value: onnx.ValueInfoProto) -> bool:
        dims = value.type.tensor_type.shape.dim
        return value.name in foreign or any(d.dim_param for d in dims)

    return [v for v in model.graph.value_info if says_more(v)]


def _spread_slopes(model: onnx.ModelProto) -> None:
    """Before opset 7 the slope vector of PRelu had one number per channel; the converter does not change that."""
    ranks: dict[str, int] | None = None
    tensors = {t.name: t for t in model.graph.initializer}
    for i in reversed(range(len(model.graph.node))):
        node = model.graph.node[i]
        if node.op_type != "PRelu" or node.domain:
            continue
        if ranks is None:
            inferred = onnx.shape_inference.infer_shapes(model).graph
            values = (*inferred.input, *inferred.value_info)
            ranks = {v.name: len(v.type.tensor_type.shape.dim) for v in values if v.type.tensor_type.HasField("shape")}
            ranks |= {name: len(t.dims) for name, t in tensors.items()}
        rank, slope = ranks.get(node.input[0]), node.input[1]
        if rank is None or rank < 3 or ranks.get(slope) != 1:
            continue
        spread = f"{slope}_per_channel_{i}"
        axes = list(range(1, rank - 1))
        unsqueeze = onnx.helper.make_node("Unsqueeze", [slope], [spread], axes=axes)
        node.input[1] = spread
        model.graph.node.insert(i, unsqueeze)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return re.sub(r"^\S+\.(cc|h):\d+: \w+: ", "", text)[:300]


def opset_of(model: onnx.ModelProto) -> int:
    """The opset of the default domain that a model imports; by default the pinned one."""
    imports = model.opset_import
    return next((e.version for e in imports if not opset.canonical_domain(e.domain)), opset.PINNED_OPSET)


def _operators(model: onnx.ModelProto, *, functions: bool = True) -> Iterator[OpKey]:
    """Every operator of the graph, its subgraphs and, unless told otherwise, its functions."""
    yield from map(_key, _nodes(model, functions=functions))


def _operators_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[OpKey]:
    yield from map(_key, _nodes_of(nodes))


def _key(node: onnx.NodeProto) -> OpKey:
    return OpKey(opset.canonical_domain(node.domain), node.op_type)


def _nodes(model: onnx.ModelProto, *, functions: bool = True) -> Iterator[onnx.NodeProto]:
    yield from _nodes_of(model.graph.node)
    if functions:
        for function in model.functions:
            yield from _nodes_of(function.node)


def _nodes_of(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _nodes_of(attribute.g.node)
            for graph in attribute.graphs:
                yield from _nodes_of(graph.node)


def _replace(field: MutableSequence[Any], entries: list) -> None:
    copies = [type(e).FromString(e.SerializeToString()) for e in entries]
    del field[:]
    field.extend(copies)
