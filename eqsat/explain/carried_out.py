"""Rules that are carried out before the search become the first steps of the origins.

The search, and the chains that it finds, start from the model that these rules made. But the user knows the model
before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from eqsat.egraph.engine import TimeUp
from eqsat.explain.explain import GraphExplainer
from eqsat.explain.origin import DerivationStep, Origin
from eqsat.partition.place import CarriedOut

_Made = tuple[tuple[str, ...], tuple[DerivationStep, ...]]
"""The nodes that a node was made from, and the rules that made it."""


def from_input(origins: Mapping[str, Origin], changes: Sequence[CarriedOut]) -> dict[str, Origin]:
    """The origins of a result's nodes among those of the model as it was given.

    Args:
        origins: Origins among the nodes of the model after all changes.
        changes: Changes in the order in which they were carried out.
    """
    found = dict(origins)
    for change in reversed(changes):
        made = _made(change)
        found = {name: _through(origin, made, change.renamed) for name, origin in found.items()}
    return found


def _through(origin: Origin, made: Mapping[str, _Made], renamed: Mapping[str, str]) -> Origin:
    sources: dict[str, None] = {}
    steps: dict[DerivationStep, None] = {}
    for source in origin.sources:
        before, rules = made.get(source, ((renamed.get(source, source),), ()))
        sources.update(dict.fromkeys(before))
        steps.update(dict.fromkeys(rules))
    return replace(origin, sources=tuple(sources), steps=tuple(dict.fromkeys((*steps, *origin.steps))))


def _made(change: CarriedOut) -> dict[str, _Made]:
    explanation = GraphExplainer(change.saturation, change.egraph)
    try:
        chains = explanation.derivations.of(change.made.values())
    except TimeUp:
        chains = {}
    found: dict[str, _Made] = {}
    for name, number in change.made.items():
        matches = [match for match in chains.get(number, ()) if match.clause is not None]
        sources = dict.fromkeys(tensor for m in matches for s in m.sites for tensor in explanation.own.get(s, ()))
        sources = dict.fromkeys(change.renamed.get(tensor, tensor) for tensor in sources)
        steps = [explanation.step(match) for match in matches]
        if not steps:
            steps = [explanation.bare(change.egraph.rules[change.egraph.nodes[number].rule])]
        found[name] = tuple(sources), tuple(steps)
    return found
