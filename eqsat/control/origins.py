"""The origins of a program's nodes together with those of its bodies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import onnx_ir as ir

from eqsat.control.nested import Inner
from eqsat.explain.carried_out import from_input
from eqsat.explain.explain import explain
from eqsat.explain.origin import ORIGINS, Origin, by_name, pack
from eqsat.partition.place import CarriedOut
from eqsat.schema.attributes import op_key
from eqsat.stages.assemble import Program
from eqsat.stages.price import Priced

SHARE = 10
"""The terms of the origins are at most the tenth part of a saved model without its tensors."""


LEAST = 4096
"""Characters that they may have in any model, however small."""


def add_origins(
    model: ir.Model, priced: Priced, program: Program, inner: Sequence[Inner], changes: Sequence[CarriedOut] = ()
) -> dict[str, Origin]:
    """Where each node of a program comes from; the model keeps it as metadata.

    Args:
        model: The program as a model, changed in place.
        priced: What it was chosen from.
        program: The chosen one.
        inner: The programs of its bodies.
        changes: What rules changed before the search.
    """
    saturated = priced.saturated
    own = from_input(explain(saturated.saturation, saturated.snapshot, program.assembled), changes)
    origins = by_name([*own.values(), *_inside(inner)])
    model.metadata_props[ORIGINS] = pack(origins, max(LEAST, _characters(model) // SHARE))
    return origins


def origins_of_input(model: ir.Model) -> dict[str, Origin]:
    """The same of a model that is left unchanged."""
    names = ((node, next((v.name for v in node.outputs if v.name), "")) for node in model.graph)
    return by_name(Origin(name, str(op_key(node)), (name,)) for node, name in names)


def _inside(inner: Sequence[Inner]) -> Iterator[Origin]:
    for one in inner:
        for origin in one.found.result.origins.values():
            yield origin if origin.body else replace(origin, body=str(one.site))


def _characters(model: ir.Model) -> int:
    """Of all names and metadata of the nodes: somewhat less than the nodes take in a file."""
    count = 0
    for graph in (model.graph, *model.functions.values()):
        for node in graph:
            texts = [node.name, node.domain, node.op_type, *(v.name for v in (*node.inputs, *node.outputs) if v)]
            count += sum(len(text or "") for text in texts)
            count += sum(len(key) + len(value) for key, value in node.metadata_props.items())
    return count
