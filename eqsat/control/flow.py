"""What is done with control flow before a model becomes an e-graph: it is made simpler, and its bodies are searched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eqsat.control.nested import Nested, S, search_bodies
from eqsat.control.simplify import simplified, with_equal_branches
from eqsat.stages.clock import Clock
from eqsat.stages.load import Loaded


def search_flow(
    loaded: Loaded, clock: Clock, search: Callable[[Loaded, Clock], S], counts: dict[str, int]
) -> tuple[Nested[S], Loaded]:
    """The searches of a model's bodies, and the model with simpler control flow; arguments as for ``search_bodies``."""
    model = simplified(loaded.model)
    loaded = replace(loaded, model=model)
    nested = search_bodies(loaded, clock, search, counts)
    model = with_equal_branches(loaded.model, nested)
    if model is loaded.model:
        return nested, loaded
    loaded = replace(loaded, model=model)
    return search_bodies(loaded, clock, search, counts), loaded
