"""Processes control flow before a model becomes an e-graph.

It is simplified, other programs of its loops are found, and its bodies are searched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic

import onnx_ir as ir

from eqsat.control.equal_branches import with_equal_branches
from eqsat.control.nested import Nested, S, search_bodies
from eqsat.egraph.alternatives import Alternative
from eqsat.rules.selection import NumericsClass
from eqsat.simplify.passes import simplified
from eqsat.simplify.site import is_control
from eqsat.stages.clock import Clock
from eqsat.stages.load import LoadedInput


@dataclass(frozen=True)
class Flow(Generic[S]):
    """The result of processing a model's control flow.

    Attributes:
        loaded: The model with simpler control flow.
        nested: The searches of its bodies, and of those in alternatives.
        alternatives: Other programs of its loops.
    """

    loaded: LoadedInput
    nested: Nested[S]
    alternatives: tuple[Alternative, ...] = ()


def search_flow(
    loaded: LoadedInput,
    clock: Clock,
    search: Callable[[LoadedInput, Clock], S],
    counts: dict[str, int],
    numerics: NumericsClass,
    *,
    changes: bool = True,
) -> Flow[S]:
    """Simplifies control flow and searches bodies.

    Args:
        numerics: How far values may change.
        changes: Whether control flow is made simpler; otherwise all values keep their names.

    The other arguments are those of :func:`~eqsat.control.nested.search_bodies`.
    """
    if not changes:
        return Flow(loaded, search_bodies(loaded, clock, search, counts, (loaded.model,)))
    loaded = replace(loaded, model=simplified(loaded.model))
    flow = _searched(loaded, clock, search, counts, numerics)
    model = with_equal_branches(loaded.model, flow.nested)
    if model is loaded.model:
        return flow
    return _searched(replace(loaded, model=model), clock, search, counts, numerics)


def _searched(
    loaded: LoadedInput,
    clock: Clock,
    search: Callable[[LoadedInput, Clock], S],
    counts: dict[str, int],
    numerics: NumericsClass,
) -> Flow[S]:
    alternatives = _alternatives(loaded.model, numerics)
    models: Sequence[ir.Model] = (loaded.model, *(a.model for a in alternatives))
    return Flow(loaded, search_bodies(loaded, clock, search, counts, models), alternatives)


def _alternatives(model: ir.Model, numerics: NumericsClass) -> tuple[Alternative, ...]:
    loops = [node for node in model.graph if is_control(node) and node.op_type != "If"]
    if not loops:
        return ()
    from eqsat.control.recurrent.rewrite import recurrent
    from eqsat.control.unrolled_loops import unrolled

    found = [unrolled(node, model) for node in loops]
    if numerics != "exact":
        found += [recurrent(node, model) for node in loops]
    return tuple(a for a in found if a is not None)
