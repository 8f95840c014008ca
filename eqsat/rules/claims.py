"""The claims of targets about values: the operator as which a composite is written computes the composite's pattern.

A composite without such an operator is its pattern itself. A claim is a rule, and is checked like one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from eqsat.rules.ast import Composite, Rule, Target
from eqsat.rules.location import is_shipped


def claims_of(targets: Iterable[Target]) -> list[Rule]:
    """A rule for each composite that is written as an operator, ``TARGET.COMPOSITE`` by name."""
    return [rule for target in targets for composite in target.composites for rule in _claims(target, composite)]


def strange_claims(targets: Iterable[Target]) -> list[Rule]:
    """Claims of targets that do not ship with eqsat."""
    return claims_of(target for target in targets if not is_shipped(target.place.file))


def _claims(target: Target, composite: Composite) -> Iterator[Rule]:
    written = composite.written
    if written is None:
        return
    outputs = {result: k for k, result in enumerate(written.outputs) if result is not None}
    yield Rule(
        f"{target.name}.{composite.name}",
        composite.numerics,
        composite.patterns,
        tuple(replace(written.operator, output=outputs[k]) for k in range(len(composite.patterns))),
        composite.where,
        composite.place,
        composite.doc,
        composite.span,
        target.operators,
    )
