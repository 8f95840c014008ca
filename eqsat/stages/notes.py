"""Notes of a summary on the model: whether it was exported for training, and the effect of free sizes.

Costs are taken at some sizes; rules that could be applied at these may not be valid at all sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import onnx_ir as ir

from eqsat.egraph.limits import RuleStatistics
from eqsat.model.read.dims import following_option
from eqsat.model.read.tidy import is_false
from eqsat.schema.chosen_sizes import where_costed
from eqsat.stages.load import LoadedInput

MOST_UNDECIDED = 5
"""Rules and composites that a note on free sizes lists."""


def about_model(loaded: LoadedInput) -> list[str]:
    """Notes on a model as a whole, which are not repeated for its bodies."""
    return [*_about_training(loaded.model), *_about_sizes(loaded)]


def _about_sizes(loaded: LoadedInput) -> list[str]:
    """At which sizes costs are taken, where some are free."""
    if not loaded.sizes:
        return []
    places = where_costed(loaded.sizes)
    values = [", ".join(f"{name} = {size}" for name, size in place.items()) for place in places]
    costs = f"costs are at {values[0]}" if len(places) == 1 else f"costs are the mean of those at {'; '.join(values)}"
    notes = [f"sizes stay free, and rules and kernels apply only where they hold for all of them; {costs}"]
    following = {name: size for name, size in loaded.sizes.items() if size.follows}
    if following:
        said = ", ".join(f"{name} = {size.follows}" for name, size in following.items())
        options = [following_option(name, size.follows) for name, size in following.items()]
        told = f"; with {' '.join(options)} rules know it too" if all(options) else ""
        notes.append(f"operators require sizes to agree, and costs and verification use this: {said}{told}")
    return notes


def _about_training(model: ir.Model) -> list[str]:
    """Operators in training mode, which few who deploy a model mean to have."""
    found = Counter(node.op_type for node in model.graph.all_nodes() if _trains(node))
    if not found:
        return []
    said = ", ".join(f"{count} {name}" for name, count in sorted(found.items()))
    return [
        f"operators in training mode are hardly rewritten, since they compute what training needs: {said}; export the "
        "model for inference, in PyTorch after `model.eval()`"
    ]


def _trains(node: ir.Node) -> bool:
    if node.domain or node.op_type not in ("Dropout", "BatchNormalization"):
        return False
    if node.op_type == "Dropout":
        return len(node.inputs) > 2 and not is_false(node.inputs[2])
    return node.attributes.get_int("training_mode", 0) == 1


def about_undecided(statistics: Sequence[RuleStatistics]) -> list[str]:
    """Rules that did not apply because of free sizes, the most frequent first."""
    rows = sorted((s for s in statistics if s.undecided), key=lambda s: (-s.undecided, s.name))
    shown = [f"{s.name} ({s.undecided_condition})" for s in rows[:MOST_UNDECIDED]]
    if len(rows) > len(shown):
        shown.append(f"and {len(rows) - len(shown)} more, see the table of rules")
    return [f"not applied because sizes are free, each with a condition that fails: {'; '.join(shown)}"] if rows else []
