"""Finds rules in a model: classes of its saturated e-graph that are always equal and that no rule joined.

Two such classes are cut at classes that they share, and the smallest programs between become a rule, whose variables
are the cuts. A refuted rule is cut further away, since it may hold only because of more of the model: ``Relu(x) => x``
is wrong, ``Relu(Softmax(x)) => Softmax(x)`` is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from eqsat.discover.accept import FoundRule, Proposal, accept, needed
from eqsat.discover.classes import ClassValues, Twins
from eqsat.discover.cuts import Cuts, Sides
from eqsat.discover.joined import joins
from eqsat.discover.spelling import Spelling, conditions, number_text, spellings, words
from eqsat.egraph.saturate import Limits, Saturation
from eqsat.egraph.snapshot import Snapshot, snapshot
from eqsat.rules.ast import Rule

LIMITS = Limits(iterations=12, work=60.0)
MOST_CUTS = 8
"""Pairs of programs of two classes that become proposals."""
MOST_PROPOSALS = 300
"""Rules that are checked in all."""


@dataclass
class ModelCounts:
    """Statistics of the search.

    Attributes:
        compared: Classes that have values.
        equal: Pairs of classes of equal values, apart from those that follow from others.
        implied: Pairs that the known rules join outside of the model.
        refuted: Proposals that a check refuted.
        undecided: Proposals without an instance.
        rules: Rules that were found.
        complete: Whether all proposals were checked.
    """

    compared: int
    equal: int = 0
    implied: int = 0
    refuted: int = 0
    undecided: int = 0
    rules: int = 0
    complete: bool = True

    @property
    def notes(self) -> list[str]:
        """The statistics, a line each."""
        lines = [
            f"{self.compared:,} classes of the model compared, {self.equal:,} equal pairs that no rule joined: "
            f"{self.implied:,} implied by known rules, {self.refuted:,} proposals refuted, "
            f"{self.undecided:,} without an instance, {self.rules:,} new rules"
        ]
        if not self.complete:
            lines.append(f"note: only the first {MOST_PROPOSALS:,} proposals of the model were checked")
        return lines


@dataclass
class ModelFindings:
    """The rules that a model shows, and what was looked at."""

    counts: ModelCounts
    found: list[FoundRule] = field(default_factory=list)


def rules_of_model(
    model: ir.Model,
    known: Sequence[Rule],
    names: set[str],
    seed: int,
    report: Callable[[int, int], None],
) -> ModelFindings:
    """The rules that a model shows beyond the known ones; none of them implies another.

    Args:
        names: Names of rules in use; new rules get other names.
        report: Called with the numbers of examined pairs and of all pairs.
    """
    saturation = Saturation(model, known, [], LIMITS)
    saturation.run()
    taken = snapshot(saturation)
    return _Search(saturation, taken, known, names, seed).run(report)


class _Search:
    def __init__(
        self, saturation: Saturation, taken: Snapshot, known: Sequence[Rule], names: set[str], seed: int
    ) -> None:
        self._taken = taken
        self._known = list(known)
        self._names = names
        self._seed = seed
        self._values = ClassValues(saturation, taken)
        self._equal: dict[int, int] = {}
        self._cuts = Cuts(taken, self._find, lambda c: bool(number_text(taken, c)))
        self._tried: dict[tuple[str, str], FoundRule | None] = {}
        self._proposals = 0
        self._readers: dict[int, set[int]] = {}
        for node in taken.nodes:
            for child in node.children:
                if child is not None:
                    self._readers.setdefault(child, set()).add(node.eclass)
        self._places: dict[int, list[str]] = {}
        for node in saturation.model.graph:
            for value in node.outputs:
                if value in taken.refs:
                    self._places.setdefault(taken.refs[value], []).append(node.name or value.name or "")
        self.findings = ModelFindings(ModelCounts(self._values.compared))

    def run(self, report: Callable[[int, int], None]) -> ModelFindings:
        twins = self._values.twins()
        for k, pair in enumerate(twins):
            report(k + 1, len(twins))
            # Equal operators of operands that are equal for a reason of their own need no rule.
            if not self._cuts.are_alike(pair.first, pair.second):
                self.findings.counts.equal += 1
                self._explain(pair)
            self._equal[self._find(pair.second)] = self._find(pair.first)
        self.findings.found = needed(self.findings.found, self._known)
        self.findings.counts.rules = len(self.findings.found)
        return self.findings

    def _find(self, eclass: int) -> int:
        while eclass in self._equal:
            eclass = self._equal[eclass]
        return eclass

    def _explain(self, pair: Twins) -> None:
        for sides in self._cuts.sides(pair.first, pair.second)[:MOST_CUTS]:
            proposals = spellings(sides, self._taken)
            keys = [(p.left, p.right) for p in proposals]
            found = next((f for f in map(self._tried.get, keys) if f is not None), None)
            if found is None and not all(key in self._tried for key in keys):
                # A layer that repeats is looked at once.
                if joins(sides, self._taken, [*self._known, *(f.rule for f in self.findings.found)]):
                    self.findings.counts.implied += 1
                    return
                found = self._accepted(sides, proposals)
            if found is not None:
                found.places.extend(n for n in self._names_of(pair) if n not in found.places)
                return

    def _accepted(self, sides: Sides, proposals: Sequence[Spelling]) -> FoundRule | None:
        for spelling in proposals:
            if self._proposals >= MOST_PROPOSALS:
                self.findings.counts.complete = False
                return None
            self._proposals += 1
            asked = conditions(spelling, self._taken)
            proposal = Proposal(spelling.left, spelling.right, words(sides.left), asked, of_one_shape=True)
            verdict, rule, text = accept(proposal, self._names, self._seed)
            self.findings.counts.refuted += verdict == "refuted"
            self.findings.counts.undecided += verdict == "undecided"
            found = None
            if rule is not None:
                found = FoundRule(rule, text, lambda others: joins(sides, self._taken, others))
                self.findings.found.append(found)
            self._tried[spelling.left, spelling.right] = found
            if found is not None:
                return found
        return None

    def _names_of(self, pair: Twins) -> list[str]:
        """The model's nodes that compute two classes, or those that read what only rules have made."""
        own = [name for c in (pair.first, pair.second) for name in self._places.get(c, ())]
        if own:
            return own
        reached, seen = [pair.first, pair.second], {pair.first, pair.second}
        for eclass in reached:
            for node in sorted(self._readers.get(eclass, ())):
                if node not in seen:
                    seen.add(node)
                    if self._places.get(node):
                        return self._places[node]
                    reached.append(node)
        return []
