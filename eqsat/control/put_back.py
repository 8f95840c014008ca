"""Puts optimized bodies in the place of those of the input, and their functions beside those of the model around them.

A body's program is a model with functions: regions and composites. Functions belong to a whole model, so bodies share
equal functions, and others get unique names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from eqsat.model.unused_names import Namer
from eqsat.partition.calls import all_nodes
from eqsat.partition.kept_remarks import parameters
from eqsat.simplify.site import BodySite

_Id = tuple[str, str, str]
_MARK = "@"
"""Separates a provisional name of a function from the number of its body; no name of eqsat contains it."""


def to_body(site: BodySite, program: ir.Model, number: int) -> tuple[ir.Graph, list[ir.Function]]:
    """A body's program as a body, which reads captured values from outside again.

    Args:
        site: The body in the input model.
        program: Made from :func:`eqsat.control.body_as_model.body_model`; its graph is moved.
        number: Of the body; functions are called by provisional names with this number.

    Returns:
        The body, and the functions that it calls, callees first.
    """
    functions = list(program.functions.values())
    _rename(
        [*program.graph, *(node for f in functions for node in f)],
        {f.identifier(): f"{f.name}{_MARK}{number}" for f in functions},
    )
    for function in functions:
        function.name = f"{function.name}{_MARK}{number}"
    graph = program.graph
    inputs, outputs, initializers = list(graph.inputs), list(graph.outputs), list(graph.initializers.values())
    nodes = list(graph)
    count = len(site.graph.inputs)
    outer = {value.name: value for value in site.captured}
    constants = [v for v in site.captured if v.is_initializer()]
    graph.inputs.clear()
    graph.outputs.clear()
    graph.initializers.clear()
    graph.remove(nodes)
    kept: list[ir.Value] = []
    for value in (*inputs[count:], *initializers):
        there = outer.get(value.name)
        if value.const_value is not None:
            there = next((v for v in constants if _is_same(v.const_value, value.const_value)), None)
        if there is None:
            kept.append(value)
        else:
            value.replace_all_uses_with(there)
    body = ir.Graph(inputs[:count], outputs, nodes=nodes, initializers=kept, name=site.graph.name)
    body.doc_string = site.graph.doc_string
    body.metadata_props.update(site.graph.metadata_props)
    return body, functions


def add_functions(model: ir.Model, functions: Sequence[ir.Function]) -> None:
    """Gives a model the functions that its bodies call by provisional names, under names of their own.

    Args:
        model: With bodies of :func:`to_body`; changed in place.
        functions: Of all bodies, callees first.
    """
    if not functions:
        return
    known: dict[_Id, bytes] = {}
    for identifier, function in model.functions.items():
        known[identifier] = _content(function)
    namers: dict[str, Namer] = {}
    final: dict[_Id, str] = {}
    added: list[ir.Function] = []
    for function in functions:
        provisional = function.identifier()
        function = function.clone()
        _rename(function, final)
        name = function.name.rpartition(_MARK)[0]
        function.name = name
        content = _content(function)
        same = next((i[1] for i, c in known.items() if c == content and i[0] == function.domain), "")
        if not same:
            taken = (i[1] for i in known if i[0] == function.domain)
            same = namers.setdefault(function.domain, Namer(taken)).keep(name)
            function.name = same
            known[function.identifier()] = content
            added.append(function)
        final[provisional] = same
    for function in added:
        model.functions[function.identifier()] = function
    _rename(model.graph, final)
    for domain in {f.domain for f in added}:
        model.graph.opset_imports.setdefault(domain, 1)


def drop_unread(graph: ir.Graph) -> None:
    """Removes constants that only the bodies of the input have read."""
    unread = [name for name, v in graph.initializers.items() if not v.uses() and not v.is_graph_output()]
    kept = parameters(graph)
    for name in (name for name in unread if name not in kept):
        graph.initializers.pop(name)


def _is_same(one: ir.TensorProtocol | None, other: ir.TensorProtocol) -> bool:
    if one is None or one is other:
        return one is not None
    return one.dtype == other.dtype and tuple(one.shape) == tuple(other.shape) and one.tobytes() == other.tobytes()


def _content(function: ir.Function) -> bytes:
    """The contents of a function, without its name."""
    proto = ir.to_proto(function)
    proto.name = ""
    return proto.SerializeToString(deterministic=True)


def _rename(nodes: Iterable[ir.Node], names: dict[_Id, str]) -> None:
    """Lets calls, also those in bodies, call functions by other names."""
    for node in all_nodes(nodes):
        found = names.get(node.op_identifier())
        if found is not None:
            node.op_type = found
