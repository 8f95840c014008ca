"""Branches that are found equal only once each has been searched."""

from __future__ import annotations

import onnx_ir as ir

from eqsat.control.nested import Nested, S
from eqsat.model.load import load
from eqsat.partition.saved import inline
from eqsat.schema.attributes import subgraphs
from eqsat.simplify.branches import equal_outputs, merge_equal
from eqsat.simplify.edit import Editor


def with_equal_branches(model: ir.Model, nested: Nested[S]) -> ir.Model:
    """The model with less work in branches whose programs turn out to be the same.

    Args:
        model: As loaded; not changed.
        nested: The programs of its bodies.

    Returns:
        The model itself if no branches are equal, otherwise a new one, loaded as well.
    """
    programs = {inner.site.graph: inner.found.result.model for inner in nested.best}
    equal: dict[int, list[int]] = {}
    for at, node in enumerate(model.graph):
        branches = [programs.get(body) for body in subgraphs(node)] if node.op_type == "If" else []
        if len(branches) == 2 and branches[0] is not None and branches[1] is not None:
            one, other = (inline(branch).graph for branch in branches if branch is not None)
            if found := equal_outputs(one, other):
                equal[at] = found
    if not equal:
        return model
    copy = model.clone()
    editor = Editor(copy.graph)
    for at, node in enumerate(list(copy.graph)):
        if at in equal:
            merge_equal(node, editor, equal[at])
    return load(copy)
