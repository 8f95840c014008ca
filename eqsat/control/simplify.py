"""Control flow that can be simpler before anything is searched: the passes, from the innermost bodies outwards."""

from __future__ import annotations

import onnx_ir as ir

from eqsat.control.branches import equal_outputs, merge_equal
from eqsat.control.edit import Editor
from eqsat.control.loops import drop_useless, move_invariants
from eqsat.control.nested import Nested, S
from eqsat.control.site import is_control
from eqsat.model.load import load
from eqsat.partition.saved import inline
from eqsat.schema.attributes import subgraphs


def simplified(model: ir.Model) -> ir.Model:
    """The model with simpler control flow.

    Args:
        model: As loaded; not changed.

    Returns:
        The model itself if nothing in it changes, otherwise a new one, loaded as well.
    """
    if not any(is_control(node) for node in model.graph):
        return model
    copy = model.clone()
    return load(copy) if _simplify(copy.graph, Editor(copy.graph)) else model


def _simplify(graph: ir.Graph, editor: Editor) -> bool:
    changed = False
    for node in list(graph):
        if not is_control(node):
            continue
        for body in subgraphs(node):
            changed |= _simplify(body, editor)
        if node.op_type == "If":
            changed |= merge_equal(node, editor)
            continue
        moved = move_invariants(node, editor)
        changed |= moved
        changed |= drop_useless(node, editor)
    return changed


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
