"""The attributes of a node in a file: those that differ from their default.

In memory the normal form contains all attributes (:mod:`eqsat.model.normalize`). Readers of files are better off
without defaults: ONNX Runtime 1.31 refuses a quantized AveragePool with explicit dilations, even of one, because it
passes all attributes to an operator of its own without dilations. Missing attributes are filled in when the file is
loaded.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.schema.attributes import default_attrs, subgraphs, to_attrs
from eqsat.schema.types import Attrs, AttrValue, OpKey

_WINDOW = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
"""Attributes of convolutions and pools that have one value per dimension, with their implicit value."""


def concise(op: OpKey, attrs: Attrs) -> Attrs:
    """The bundle without defaults; bundles of operators outside ONNX's domain are kept unchanged."""
    if op.domain:
        return attrs
    defaults = dict(default_attrs(op))
    return tuple((name, value) for name, value in attrs if not _is_default(name, value, defaults))


def is_concise(model: ir.Model) -> bool:
    """Whether no node of the model contains a default."""
    return not any(_superfluous(node) for node in model.graph.all_nodes())


def make_concise(model: ir.Model) -> None:
    """Removes defaults from the nodes of the main graph and its subgraphs.

    Args:
        model: Changed in place.
    """
    for node in model.graph.all_nodes():
        for name in _superfluous(node):
            node.attributes.pop(name)


def without_unit_dilations(op: OpKey, attrs: Attrs) -> Attrs:
    """The bundle of an average pool without dilations of one.

    A composite's definition is shared by calls that differ in attributes, and must contain all others.
    """
    if op != OpKey("", "AveragePool"):
        return attrs
    return tuple((name, value) for name, value in attrs if name != "dilations" or not _is_default(name, value, {}))


def is_neutral(op: OpKey, name: str, value: AttrValue) -> bool:
    """Whether an attribute has its default, or the value that means nothing for a window."""
    return _is_default(name, value, dict(default_attrs(op)))


def _superfluous(node: ir.Node) -> list[str]:
    if node.domain or any(True for _ in subgraphs(node)) or any(a.is_ref() for a in node.attributes.values()):
        return []
    stated = to_attrs(node)
    op = OpKey("", node.op_type)
    kept = {name for name, _ in concise(op, stated)}
    return [name for name in node.attributes if name not in kept]


def _is_default(name: str, value: AttrValue, defaults: dict[str, AttrValue]) -> bool:
    if name in _WINDOW:
        return isinstance(value, tuple) and all(v == _WINDOW[name] for v in value)
    return name in defaults and defaults[name] == value
