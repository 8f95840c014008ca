"""Names of nodes that come out of functions when these are inlined.

A node that computes the result of a function gets the name of the call. The call of a composite also says which nodes
of the input those of its function are. Other nodes keep the names that the function gives them, with numbers where
these would clash.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import onnx_ir as ir

from eqsat.schema.metadata import NODES, REGION

_PLACE = "eqsat.place"
"""Key of a node's ``meta``: which node of its function it is."""


def prepare_names(model: ir.Model) -> None:
    """Marks calls and the nodes of functions, in place; inlining keeps the marks."""
    for function in model.functions.values():
        for place, node in enumerate(function):
            node.meta[_PLACE] = place
    for scope in (model.graph, *model.functions.values()):
        for node in ir.traversal.RecursiveGraphIterator(scope):
            function = model.functions.get(node.op_identifier())
            if function is not None and REGION not in function.metadata_props:
                node.metadata_props[NODES] = json.dumps(_inside(function, node))


def _inside(function: ir.Function, call: ir.Node) -> list[str]:
    known = dict(enumerate(_names(call.metadata_props.get(NODES))))
    names = [known.get(place, "") for place in range(len(function))]
    last = function.outputs[0].producer() if function.outputs else None
    if last is not None:
        names[last.meta[_PLACE]] = names[last.meta[_PLACE]] or call.name or ""
    return names


def name_inlined(graph: ir.Graph) -> None:
    """Names the nodes that have been inlined, and removes the marks; no name is given twice."""
    nodes = list(ir.traversal.RecursiveGraphIterator(graph))
    taken = {node.name for node in nodes}
    for node in nodes:
        place = node.meta.pop(_PLACE, None)
        name = _at(place, _names(node.metadata_props.pop(NODES, None)))
        if name and name not in taken:
            taken.add(name)
            node.name = name


def _at(place: int | None, names: Sequence[str]) -> str:
    return names[place] if place is not None and place < len(names) else ""


def _names(said: str | None) -> list[str]:
    """The names in metadata, which may come from anywhere."""
    try:
        found = json.loads(said or "[]")
    except ValueError:
        return []
    return [name if isinstance(name, str) else "" for name in found] if isinstance(found, list) else []
