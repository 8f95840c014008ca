"""Reads partitioned models back: the regions of a saved model, and the same model without eqsat's functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.inlined_names import name_inlined, prepare_names
from eqsat.model.inlining import inline_calls
from eqsat.model.shadowing import unshadow
from eqsat.model.symbols import WRITTEN_SYMBOLS
from eqsat.model.write.written_definitions import with_definitions
from eqsat.partition.calls import inner_nodes
from eqsat.schema.metadata import CALL, PARTS_DOMAIN, PREFIX, RANGES, REGION, TARGET, is_own_domain
from eqsat.schema.versions import SOURCE_OPSET

_KEPT = (SOURCE_OPSET, WRITTEN_SYMBOLS, RANGES)
"""Metadata that a model in plain ONNX has as well."""


@dataclass(frozen=True)
class SavedRegion:
    """A region in a saved model.

    Attributes:
        name: Such as ``dnnl_0``; empty for nodes of the main graph without a region.
        target: Name of the target; empty if the metadata has none.
        function: The region's function; None for a piece on the host, which is in the main graph.
        nodes: Its nodes in execution order: calls of composites and plain operators.
        call: The node of the main graph that calls the function; None for a piece on the host.
    """

    name: str
    target: str
    function: ir.Function | None
    nodes: tuple[ir.Node, ...]
    call: ir.Node | None


def read_regions(model: ir.Model) -> list[SavedRegion]:
    """Regions of a partitioned model in the order of its nodes, pieces on the host included.

    A model that eqsat did not write is one piece without name and target.

    Raises:
        ModelError: A call of a region whose function is missing.
    """
    result: list[SavedRegion] = []
    pending: list[ir.Node] = []

    def flush() -> None:
        if pending:
            marks = pending[0].metadata_props
            result.append(SavedRegion(marks.get(REGION, ""), marks.get(TARGET, ""), None, tuple(pending), None))
            pending.clear()

    for node in model.graph:
        function = model.functions.get(node.op_identifier())
        if function is not None and REGION in function.metadata_props:
            flush()
            marks = function.metadata_props
            result.append(SavedRegion(marks[REGION], marks.get(TARGET, ""), function, tuple(function), node))
        elif function is None and is_own_domain(node.domain):
            raise ModelError(
                "every function that is called must be part of the model",
                place=f"node {node.name!r}",
                actual=f"no `{node.domain}.{node.op_type}`",
            )
        else:
            if pending and node.metadata_props.get(REGION) != pending[-1].metadata_props.get(REGION):
                flush()
            pending.append(node)
    flush()
    return result


def is_partitioned(model: ir.Model) -> bool:
    """Whether the model has regions or composites of eqsat."""
    return any(_is_piece(function) for function in model.functions.values())


def without_parts(model: ir.Model) -> ir.Model:
    """A quantized model without the functions ``prefix``, ``core`` and ``suffix``; its regions and composites stay.

    Any other model is returned as it is.
    """
    if not any(map(_is_part, model.functions.values())):
        return model
    result = model.clone()
    _inline(result, _is_part)
    result.opset_imports.pop(PARTS_DOMAIN, None)
    return result


def _inline(model: ir.Model, goes: Callable[[ir.Function], bool]) -> None:
    """Puts the bodies of some functions in the place of their calls."""
    prepare_names(model)
    inline_calls(model, goes)
    name_inlined(model.graph)
    for identifier in [f.identifier() for f in model.functions.values() if goes(f)]:
        del model.functions[identifier]
    unshadow(model.graph)


def inline(model: ir.Model, *, operators: bool = True) -> ir.Model:
    """The model in plain ONNX: without regions, composites and functions of eqsat, and without its metadata.

    Other functions of the model stay. Tensors are shared, the given model is not changed.

    Args:
        model: Partitioned or not.
        operators: Whether the operators that eqsat defines are removed as well. Annotations are then lost, so set this
            to False for a model that will be optimized again.
    """
    if operators:
        result = with_definitions(model)
        result = model.clone() if result is model else result
    else:
        result = model.clone()

    def goes(function: ir.Function) -> bool:
        return is_own_domain(function.domain) if operators else _is_piece(function)

    _inline(result, goes)
    scopes: list[ir.Graph | ir.Function] = [result.graph, *result.functions.values()]
    for scope in scopes:
        used = {node.domain for node in _all_nodes(scope)}
        for domain in [d for d in scope.opset_imports if is_own_domain(d) and d not in used]:
            del scope.opset_imports[domain]
        for node in _all_nodes(scope):
            # A region that is a function like all others, because its caller took the target from it, keeps its call.
            called = result.functions.get(node.op_identifier())
            kept = CALL if called is not None and REGION in called.metadata_props else ""
            for key in [k for k in node.metadata_props if k.startswith(PREFIX) and k != kept]:
                del node.metadata_props[key]
    for key in [k for k in result.metadata_props if k.startswith(PREFIX) and k not in _KEPT]:
        del result.metadata_props[key]
    return result


def _is_piece(function: ir.Function) -> bool:
    """Whether the function is a region, a composite, or a part of a quantized model."""
    return is_own_domain(function.domain) and (TARGET in function.metadata_props or _is_part(function))


def _is_part(function: ir.Function) -> bool:
    return function.domain == PARTS_DOMAIN


def _all_nodes(scope: ir.Graph | ir.Function) -> Iterator[ir.Node]:
    for node in scope:
        yield node
        yield from inner_nodes(node)
