"""Names of nodes after functions are inlined.

A node that computes the result of a function gets the name of the call. The call of a composite also records the nodes
of the input that its function replaces. Other nodes keep the names that the function gives them, with numbers where
these would clash.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import onnx_ir as ir

from eqsat.model.unused_names import Namer
from eqsat.ops.own_operators import ANNOTATIONS
from eqsat.schema.attributes import op_key
from eqsat.schema.metadata import NODES, is_region

_PLACE = "eqsat.place"
"""Key of a node's ``meta``: its number in its function, and its name there."""


def prepare_names(model: ir.Model) -> None:
    """Marks calls and the nodes of functions, in place; inlining keeps the marks."""
    for function in model.functions.values():
        for place, node in enumerate(function):
            node.meta[_PLACE] = (place, node.name)
    for scope in (model.graph, *model.functions.values()):
        for node in ir.traversal.RecursiveGraphIterator(scope):
            function = model.functions.get(node.op_identifier())
            if function is not None and not is_region(function.metadata_props):
                node.metadata_props[NODES] = json.dumps(_inside(function, node))


def _inside(function: ir.Function, call: ir.Node) -> list[str]:
    known = dict(enumerate(_names(call.metadata_props.get(NODES))))
    names = [known.get(place, "") for place in range(len(function))]
    last = function.outputs[0].producer() if function.outputs else None
    while last is not None and op_key(last) in ANNOTATIONS:  # which are not work: the work gets the name of the call
        last = None if last.inputs[0] is None else last.inputs[0].producer()
    if last is not None:
        names[last.meta[_PLACE][0]] = names[last.meta[_PLACE][0]] or call.name or ""
    return names


def name_inlined(graph: ir.Graph) -> None:
    """Names the nodes that have been inlined, and removes the marks; no name is given twice.

    Names from calls come before names from functions. Otherwise the name of a call could clash with one inside its
    function, and would change each time that the model is saved and loaded.
    """
    nodes = list(ir.traversal.RecursiveGraphIterator(graph))
    places = [node.meta.pop(_PLACE, None) for node in nodes]
    texts = [node.metadata_props.pop(NODES, None) for node in nodes]
    lists = {text: _names(text) for text in dict.fromkeys(texts)}  # All nodes of a call have the same.
    said = [_at(place, lists[text]) for place, text in zip(places, texts, strict=True)]
    namer = Namer(node.name or "" for place, node in zip(places, nodes, strict=True) if place is None)
    others: list[tuple[str | None, ir.Node]] = []
    for place, name, node in zip(places, said, nodes, strict=True):
        if name and name not in namer.taken:
            node.name = namer.keep(name)
        elif place is not None:
            others.append((place[1], node))
    for own, node in others:
        if own:
            node.name = namer.keep(own)


def _at(place: tuple[int, str | None] | None, names: Sequence[str]) -> str:
    return names[place[0]] if place is not None and place[0] < len(names) else ""


def _names(said: str | None) -> list[str]:
    """The names in metadata, which may come from anywhere."""
    try:
        found = json.loads(said or "[]")
    except ValueError:
        return []
    return [name if isinstance(name, str) else "" for name in found] if isinstance(found, list) else []
