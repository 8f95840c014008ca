"""Composites that an operator nearly became: the pattern occurs, and one of its conditions does not hold.

The match that gets furthest down its conditions is the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eqsat.egraph.occurrences import Occurrences
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.rules.ast import Composite, Target
from eqsat.rules.evaluation import TensorFacts, holds
from eqsat.targets.refusal import condition_in_words


class NearMisses:
    """Reasons why operators are not part of composites.

    Args:
        saturation: The saturated e-graph.
        snapshot: What was read of it.
        facts: Of each of its classes.
    """

    def __init__(self, saturation: Saturation, snapshot: Snapshot, facts: Sequence[TensorFacts]) -> None:
        self.occurrences = Occurrences(saturation, snapshot)
        self.facts = facts

    def reason(self, target: Target, node: ENode, otherwise: str) -> str:
        """The condition that keeps an operator out of the target's composites, as a phrase.

        Args:
            target: The target.
            node: The operator, as it was chosen.
            otherwise: The reason if no composite's pattern occurs.

        Returns:
            The reason, empty if there is none: some composite matches and meets all conditions, but costs more.
        """
        best: tuple[float, str] | None = None
        for found in self.occurrences.of(target.name, node):
            answerer = found.answerer
            env = answerer.names({v: self.facts[c] for v, c in found.classes.items()}, found.attrs)
            if env is None:
                continue
            composite = answerer.clause.definition
            assert isinstance(composite, Composite)
            judged = _judge(composite, env)
            if judged is None:
                return ""
            if best is None or judged[0] > best[0]:
                best = judged[0], f"{target.name} runs {node.op} within {composite.name} only where {judged[1]}"
        return otherwise if best is None else best[1]


def _judge(composite: Composite, env: Mapping[str, object]) -> tuple[float, str] | None:
    """Which part of the conditions holds before the first that does not, and that one; None if all hold."""
    for i, condition in enumerate(composite.where):
        if holds((condition,), env) is not None:
            return i / len(composite.where), condition_in_words(condition, env)
    return None
