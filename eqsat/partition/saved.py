"""Reads partitioned models back: the regions of a saved model, and the same model without eqsat's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby

import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.inlined_names import name_inlined, prepare_names
from eqsat.model.inlining import inline_calls
from eqsat.model.shadowing import unshadow
from eqsat.model.symbols import WRITTEN_SYMBOLS
from eqsat.model.write.written_definitions import with_definitions
from eqsat.partition.calls import all_nodes
from eqsat.partition.opaque_calls import hide_operators
from eqsat.partition.plan import PlanNode
from eqsat.partition.read_plan import read_plan, region_target
from eqsat.schema.metadata import CALL, PARTS_DOMAIN, PREFIX, RANGES, TARGET, is_own_domain
from eqsat.schema.types import OpKey
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
    for node in model.graph:
        if is_own_domain(node.domain) and node.op_identifier() not in model.functions:
            raise ModelError(
                "every function that is called must be part of the model",
                place=f"node {node.name!r}",
                actual=f"no `{node.domain}.{node.op_type}`",
            )
    saved = read_plan(model)
    result: list[SavedRegion] = []

    def piece(entry: tuple[PlanNode, ir.Node, str]) -> tuple[str, ir.Node | None]:
        return entry[2], entry[1] if entry[0].op in saved.regions else None

    main = saved.main
    for (name, call), nodes in groupby(zip(main.plan.nodes, main.nodes, main.pieces, strict=True), piece):
        first, *_ = members = tuple(nodes)
        if call is None:
            target = main.plan.targets[first[0].target]
            result.append(SavedRegion(name, target, None, tuple(node for _, node, _ in members), None))
        else:
            region = saved.regions[first[0].op]
            result.append(SavedRegion(region.name, region.target, region.function, tuple(region.function), call))
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
    for function in model.functions.values():
        for called in (model.functions.get(node.op_identifier()) for node in function):
            if called is not None and goes(called):
                for domain, version in called.opset_imports.items():
                    function.opset_imports.setdefault(domain, version)
    prepare_names(model)
    inline_calls(model, goes)
    name_inlined(model.graph)
    for identifier in [f.identifier() for f in model.functions.values() if goes(f)]:
        del model.functions[identifier]
    unshadow(model.graph)


def inline(model: ir.Model, *, operators: bool = True, opaque: Mapping[ir.Node, OpKey] | None = None) -> ir.Model:
    """The model in plain ONNX: without regions, composites and functions of eqsat, and without its metadata.

    Other functions of the model stay. Tensors are shared, the given model is not changed.

    Args:
        model: Partitioned or not.
        operators: Whether the operators that eqsat defines are removed as well. Annotations are then lost, so set this
            to False for a model that will be optimized again.
        opaque: Nodes of the model that become, or stay, calls of functions, with the names of these functions.
    """
    if operators:
        result = with_definitions(model)
        result = model.clone() if result is model else result
    else:
        result = model.clone()
    if opaque:
        hide_operators(result, model, opaque)
    whole = frozenset((opaque or {}).values())

    def goes(function: ir.Function) -> bool:
        is_ours = is_own_domain(function.domain) if operators else _is_piece(function)
        return is_ours and OpKey(function.domain, function.name) not in whole

    _inline(result, goes)
    scopes: list[ir.Graph | ir.Function] = [result.graph, *result.functions.values()]
    for scope in scopes:
        used = {node.domain for node in all_nodes(scope)}
        for domain in [d for d in scope.opset_imports if is_own_domain(d) and d not in used]:
            del scope.opset_imports[domain]
        for node in all_nodes(scope):
            # A region that stays keeps its C call.
            kept = "" if region_target(result.functions.get(node.op_identifier())) is None else CALL
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
