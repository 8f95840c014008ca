"""Composites that an operator nearly became: the pattern occurs, and one of its conditions does not hold.

The match that gets furthest down its conditions is the reason.
"""

from __future__ import annotations

from eqsat.egraph.clause_refusal import ClauseRefusal
from eqsat.egraph.compile_rules import expanded
from eqsat.egraph.judge_match import Judge
from eqsat.egraph.partial import Partial
from eqsat.egraph.snapshot import ENode
from eqsat.rules.ast import Composite, Target
from eqsat.rules.expand import operators
from eqsat.rules.wording import condition_in_words


class NearMisses:
    """Reasons why operators are not part of composites, found when somebody asks."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self._matches: dict[int, dict[int, list[Partial]]] = {}
        self._judged: dict[int, ClauseRefusal | None] = {}

    def reason(self, target: Target, node: ENode, otherwise: str) -> str:
        """The condition that keeps an operator out of the target's composites, as a phrase.

        Args:
            target: The target.
            node: The operator, as it was chosen.
            otherwise: The reason if no composite's pattern occurs.

        Returns:
            The reason, empty if there is none: some composite matches and meets all conditions, but costs more.
        """
        best: tuple[ClauseRefusal, Composite] | None = None
        for composite in target.composites:
            if node.op not in operators(*composite.patterns):
                continue
            for match in self._of(composite).get(self.judge.snapshot.numbers.get(id(node), -1), ()):
                refused = self._judge(composite, target.name, match)
                if refused is None:
                    return ""
                if refused.condition is not None and (best is None or refused.progress > best[0].progress):
                    best = refused, composite
        if best is None:
            return otherwise
        refused, composite = best
        assert refused.condition is not None
        words = condition_in_words(refused.condition, refused.env)
        return f"{target.name} runs {node.op} within {composite.name} only where {words}"

    def _of(self, composite: Composite) -> dict[int, list[Partial]]:
        """The whole matches of a composite's pattern, by the e-nodes in them."""
        if id(composite) not in self._matches:
            found: dict[int, list[Partial]] = {}
            matcher = self.judge.matcher
            for clause in filter(matcher.occurs, expanded(composite.patterns)):
                for place in matcher.places(clause.roots[0]):
                    for match in matcher.at(clause, place):
                        for n in dict.fromkeys(n for _, n, _, _ in match.sites if not match.missed):
                            found.setdefault(n, []).append(match)
            self._matches[id(composite)] = found
        return self._matches[id(composite)]

    def _judge(self, composite: Composite, target: str, match: Partial) -> ClauseRefusal | None:
        if id(match) not in self._judged:
            _, _, answer = self.judge.judge(composite, 0, target, match)
            self._judged[id(match)] = answer if isinstance(answer, ClauseRefusal) else None
        return self._judged[id(match)]
