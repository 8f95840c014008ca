"""The origins of a program's nodes together with those of its bodies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import onnx_ir as ir

from eqsat.control.nested import Inner
from eqsat.explain.carried_out import from_input
from eqsat.explain.explain import explain
from eqsat.explain.origin import ORIGINS, Origin, Origins, pack
from eqsat.model.write.runnable import scopes
from eqsat.partition.place import CarriedOut
from eqsat.schema.attributes import op_key
from eqsat.stages.assemble import ExtractedProgram
from eqsat.stages.price import PricedGraph

SHARE = 10
"""The terms of the origins are at most the tenth part of a saved model without its tensors."""


LEAST = 4096
"""Characters that origins may always take, even in small models."""


def add_origins(
    model: ir.Model,
    priced: PricedGraph,
    program: ExtractedProgram,
    inner: Sequence[Inner],
    changes: Sequence[CarriedOut] = (),
) -> Origins:
    """Where each node of a program comes from; the model keeps it as metadata.

    Args:
        model: The program as a model, changed in place.
        priced: The problem that it was chosen from.
        program: The chosen program.
        inner: The programs of its bodies.
        changes: Changes by rules before the search.
    """
    saturated = priced.saturated
    own = from_input(explain(saturated.saturation, saturated.snapshot, program.assembled), changes)
    nodes = _results(value.producer() for value in saturated.saturation.encoding.values)
    for one in inner:
        nodes.update(one.found.result.origins.nodes)
    nodes.update(_results(node for scope in scopes(model) for node in scope))
    origins = Origins([*own.values(), *_inside(inner)], nodes)
    model.metadata_props[ORIGINS] = pack(origins, max(LEAST, _characters(model) // SHARE))
    return origins


def origins_of_input(model: ir.Model) -> Origins:
    """The same for a model that is left unchanged."""
    names = [(node, _first(node)) for node in model.graph]
    return Origins((Origin(name, str(op_key(node)), (name,)) for node, name in names), _results(model.graph))


def _results(nodes: Iterable[ir.Node | None]) -> dict[str, str]:
    """Names of nodes with the names of their first results, where they differ."""
    named = {node.name: _first(node) for node in nodes if node is not None and node.name}
    return {name: result for name, result in named.items() if result and name != result}


def _first(node: ir.Node) -> str:
    return next((v.name for v in node.outputs if v.name), "")


def _inside(inner: Sequence[Inner]) -> Iterator[Origin]:
    for one in inner:
        for origin in one.found.result.origins.values():
            yield origin if origin.body else replace(origin, body=str(one.site))


def _characters(model: ir.Model) -> int:
    """Characters of all names and metadata of the nodes: somewhat less than the nodes take in a file."""
    count = 0
    for graph in (model.graph, *model.functions.values()):
        for node in graph:
            texts = [node.name, node.domain, node.op_type, *(v.name for v in (*node.inputs, *node.outputs) if v)]
            count += sum(len(text or "") for text in texts)
            count += sum(len(key) + len(value) for key, value in node.metadata_props.items())
    return count
