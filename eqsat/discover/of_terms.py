"""Makes rules from pairs of equal terms: the most general ones that others do not imply, in the strictest valid
numerics class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from eqsat.discover.accept import FoundRule, Proposal, accept, needed
from eqsat.discover.elementwise_terms import NAMES, Enumeration, Pair
from eqsat.discover.general import most_general
from eqsat.discover.implied_pairs import not_implied
from eqsat.rules.ast import Rule
from eqsat.schema.dtypes import dtype_name

AT_ONCE = 5
"""Rules that are added before all remaining pairs are looked at again."""


@dataclass
class RulesOfTerms:
    """The rules among terms, and statistics of the search.

    Attributes:
        found: Rules in the order in which they were accepted.
        evaluated: Terms whose values were compared.
        equal: Pairs of terms of equal values.
        implied: Number of these that the known rules join.
        verdicts: Verdicts of the checks of the others.
        complete: False if there were too many terms to examine.
    """

    found: list[FoundRule]
    evaluated: int
    equal: int
    implied: int
    verdicts: Counter[str]
    complete: bool


def rules_of_terms(
    enumeration: Enumeration,
    known: Sequence[Rule],
    names: set[str],
    seed: int = 0,
    report: Callable[[int, int], None] = lambda step, steps: None,
) -> RulesOfTerms:
    """The rules that pairs of equal terms are instances of; none of them implies another, or is implied by known ones.

    Args:
        enumeration: The enumeration of the pairs.
        known: Known rules.
        names: Names of rules in use; new rules get other names.
        seed: Seed of the instances on which rules are checked.
        report: Called with the numbers of examined pairs and of all pairs.
    """
    return _Search(enumeration, known, names, seed, report).run()


@dataclass
class _Search:
    enumeration: Enumeration
    known: Sequence[Rule]
    names: set[str]
    seed: int
    report: Callable[[int, int], None]
    found: list[FoundRule] = field(default_factory=list)
    verdicts: Counter[str] = field(default_factory=Counter)

    def run(self) -> RulesOfTerms:
        ranked = _ranked(self.enumeration.pairs)
        waiting = self._open(ranked)
        implied = len(ranked) - len(waiting)
        special: dict[Pair, list[Pair]] = {}
        for pair in waiting:
            special.setdefault(_renamed(most_general(pair, self.enumeration.holds)), []).append(pair)
        # If the more general rule does not hold, or cannot be written, its instances may.
        refused = self._look_at(_ranked(list(special)))
        self._look_at(
            self._open(_ranked([pair for general in refused for pair in special[general] if pair != general]))
        )
        return RulesOfTerms(
            needed(self.found, self.known),
            self.enumeration.evaluated,
            len(ranked),
            implied,
            self.verdicts,
            self.enumeration.complete,
        )

    def _look_at(self, waiting: list[Pair]) -> list[Pair]:
        """Checks pairs, the first ones first; those that are refuted or have no instance."""
        refused: list[Pair] = []
        total, fresh = len(waiting), 0
        while waiting:
            pair = waiting.pop(0)
            self.report(total - len(waiting), total)
            if fresh and not self._open([pair]):
                continue
            verdict, rule, text = accept(_proposal(pair, self.enumeration.dtype), self.names, self.seed)
            self.verdicts[verdict] += 1
            if rule is not None:
                self.found.append(FoundRule(rule, text, lambda rules, pair=pair: not self._not_implied([pair], rules)))
                fresh += 1
            elif verdict != "grows":
                refused.append(pair)
            if fresh == AT_ONCE:
                waiting, fresh = self._open(waiting), 0
        return refused

    def _open(self, pairs: Sequence[Pair]) -> list[Pair]:
        return self._not_implied(pairs, [*self.known, *(f.rule for f in self.found)])

    def _not_implied(self, pairs: Sequence[Pair], rules: Sequence[Rule]) -> list[Pair]:
        return not_implied(pairs, rules, self.enumeration.dtype)


def _proposal(pair: Pair, dtype: ir.DataType) -> Proposal:
    conditions = [""]
    if pair.left.variables:
        variable = pair.left.variables[0]
        conditions += [f"{variable}.dtype in {'floats' if dtype.is_floating_point() else 'integers'}"]
        conditions += [f"{variable}.dtype == {dtype_name(dtype)}"]
    return Proposal(pair.left.text, pair.right.text, pair.left.words, conditions)


def _renamed(pair: Pair) -> Pair:
    """With variables named in the order in which they occur."""
    names = dict(zip(pair.left.variables, NAMES, strict=False))
    return Pair(pair.left.renamed(names), pair.right.renamed(names))


def _ranked(pairs: Sequence[Pair]) -> list[Pair]:
    """Each pair once, up to the names of variables: small terms first, then those with more variables."""

    def rank(pair: Pair) -> tuple[int, int, int, str]:
        numbers = pair.left.numbers + pair.right.numbers
        return pair.left.size + pair.right.size, numbers, -len(pair.left.variables), pair.left.text

    return sorted(dict.fromkeys(map(_renamed, pairs)), key=rank)
