"""Control flow and sequences that can be simpler before anything is searched: the passes, from the innermost bodies
outwards.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.model.load import load
from eqsat.schema.attributes import subgraphs
from eqsat.simplify.branches import merge_equal
from eqsat.simplify.counted import count_rounds
from eqsat.simplify.edit import Editor
from eqsat.simplify.loops import drop_useless, move_invariants
from eqsat.simplify.sequences import has_sequences, take_elements, unroll_sequences
from eqsat.simplify.site import is_control

MOST_PASSES = 8
"""Most repetitions: facts about elements of sequences may reveal shapes, and these further facts."""


def simplified(model: ir.Model) -> ir.Model:
    """The model with simpler control flow.

    Args:
        model: As loaded; not changed.

    Returns:
        The model itself if nothing in it changes, otherwise a new one, loaded as well.
    """
    for _ in range(MOST_PASSES):
        sequences = has_sequences(model)
        if not sequences and not any(is_control(node) for node in model.graph):
            return model
        copy = model.clone()
        editor = Editor(copy.graph)
        changed = _simplify(copy.graph, editor)
        elements = sequences and take_elements(copy.graph, editor)
        if not changed and not elements:
            return model
        try:
            model = load(copy)
        except ModelError:  # A round of a loop would fail, which only an unrolled one shows.
            return model
        if not elements:
            return model
    return model


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
        if unroll_sequences(node, editor):
            changed = True
            continue
        moved = move_invariants(node, editor)
        changed |= moved
        changed |= count_rounds(node, editor)
        changed |= drop_useless(node, editor)
    return changed
