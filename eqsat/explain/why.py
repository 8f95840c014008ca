"""Why a rule or a composite does not apply: its nearest matches in a saturated e-graph, and what each of them lacks."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from eqsat.audit.expressions import ENodeText
from eqsat.egraph.clause_refusal import ClauseRefusal
from eqsat.egraph.compile_rules import CompiledClause, expanded
from eqsat.egraph.judge_match import Classes, Judge
from eqsat.egraph.language import ORIGINAL
from eqsat.egraph.matched import MatchedNodes
from eqsat.egraph.partial import Miss, Partial
from eqsat.egraph.query import trim
from eqsat.egraph.template import Answer
from eqsat.rules.ast import Composite, Match, Number, Pattern, Rule, operands
from eqsat.rules.expand import Clause
from eqsat.rules.tree import walk
from eqsat.rules.wording import in_words

MOST_ANCHORS = 20_000
"""Places at which a pattern is tried, over all of its plain patterns."""
_ORDINALS = ("first", "second", "third", "fourth", "fifth")


@dataclass(frozen=True, slots=True)
class MatchAttempt:
    """Where a rule applies, or nearly does.

    Attributes:
        node: The tensor that the matched part computes.
        outcome: ``"applied"``; ``"there already"``: what the rule makes equal to it was there before;
            ``"not applied"``: all requirements are met, and the rule did not run, or not to its end; ``"refused"``: the
            operators match, and a condition, an attribute or a type does not; ``"partial"``: some operators match.
        matched: The operators that matched, as terms.
        operators: Number of operators in the pattern.
        required, found: The first failure; for the first two outcomes, the result of the rule.
    """

    node: str
    outcome: str
    matched: tuple[str, ...]
    operators: int
    required: str = ""
    found: str = ""

    @property
    def rank(self) -> tuple[int, float]:
        """Places are listed from the highest."""
        return _LISTED.index(self.outcome), len(self.matched) / self.operators if self.outcome == "partial" else 1.0

    def __str__(self) -> str:
        noun = "operator matches" if self.operators == 1 else "operators match"
        head = f"{self.node}: {len(self.matched)} of {self.operators} {noun}"
        if self.outcome == "applied":
            return f"{self.node}: applies" + (f", and makes {self.found}" if self.found else "")
        if self.outcome == "there already":
            return f"{self.node}: applies, and {self.found}"
        if self.outcome == "not applied":
            return f"{self.node}: meets all conditions, but {self.found}"
        ends = f", found {self.found}" if self.outcome == "partial" else f": {self.found}"
        return f"{head}; {self.required} is required{ends if self.found else ''}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a rule or a composite applied or not.

    Attributes:
        name, place, numerics: Those of the rule or composite.
        outcome: Outcome at the best place; ``"absent"`` if no operator of the pattern occurs.
        remark: A remark on the whole rule, such as that the options leave it out; otherwise empty.
        places: The places, nearest matches first.
        more: Number of further places by outcome.
    """

    name: str
    place: str
    numerics: str
    outcome: str
    remark: str = ""
    places: tuple[MatchAttempt, ...] = ()
    more: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{self.name} ({self.place}, {self.numerics})" if self.place else self.name]
        lines += [f"  {self.remark}"] if self.remark else []
        lines += [f"  {place}" for place in self.places]
        lines += [f"  and {n} further place{'s' if n > 1 else ''}: {outcome}" for outcome, n in self.more.items()]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A place with its rank among those of one outcome."""

    place: MatchAttempt
    rank: tuple[float, ...]

    @property
    def at_one(self) -> tuple[float, ...]:
        return (_AT_ONE.index(self.place.outcome), *self.rank)

    @property
    def listed(self) -> tuple[float, ...]:
        return (_LISTED.index(self.place.outcome), *self.rank)


_AT_ONE = ("partial", "refused", "not applied", "there already", "applied")
"""Outcomes at one place, the last counts."""
_LISTED = ("partial", "applied", "there already", "refused", "not applied")
"""Outcomes in the order in which places are listed, from the last."""


class Why:
    """Explains rules and composites in one e-graph."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self.snapshot = judge.snapshot
        self.matcher = judge.matcher
        self.text = ENodeText(judge.snapshot)
        self.nodes = MatchedNodes(judge.snapshot, None)
        self._readers: dict[int, list[int]] = {}
        for n, node in enumerate(self.snapshot.nodes):
            for c in dict.fromkeys(c for c in node.children if c is not None):
                self._readers.setdefault(c, []).append(n)

    # ---- rules ------------------------------------------------------------------------------------

    def places(
        self,
        definition: Rule | Composite,
        target: str = "",
        within: Collection[int] | None = None,
        left_out: str = "",
    ) -> list[MatchAttempt]:
        """All places, the nearest to an application that did not happen first, those where it applied last.

        Args:
            definition: The rule, or a composite of a target.
            target: Name of the target, empty for a rule.
            within: Only places at one of these classes.
            left_out: Why the rule did not run, empty if it did.
        """
        name = f"{target}.{definition.name}" if target else definition.name
        number = self.snapshot.rules.index(name) if name in self.snapshot.rules else len(self.snapshot.rules)
        best: dict[int, _Seen] = {}
        for anchor, match in self._matches(roots_of(definition), within):
            seen = self._seen(definition, number, target, match, left_out)
            known = best.get(anchor)
            if known is None or seen.at_one > known.at_one:
                best[anchor] = seen
            elif seen.at_one == known.at_one and seen.place.found == known.place.found:
                best[anchor] = replace(known, place=_either(known.place, seen.place))
        found = sorted(best.values(), key=lambda s: s.listed, reverse=True)
        # If an operator is part of a nearer match, a smaller match adds no information.
        kept: list[_Seen] = []
        for seen in found:
            if seen.place.outcome != "partial" or not any(
                set(seen.place.matched) <= set(k.place.matched) for k in kept
            ):
                kept.append(seen)
        return [seen.place for seen in kept]

    def _matches(self, roots: tuple[Pattern, ...], within: Collection[int] | None) -> Iterator[tuple[int, Partial]]:
        """Whole and partial matches, each with the class at which it is anchored."""
        budget = MOST_ANCHORS
        for clause in expanded(roots):
            most = 0
            for anchor in self.matcher.places(clause.roots[0]):
                budget -= 1
                for match in self.matcher.at(clause, anchor):
                    if within is None or not self._touched(match).isdisjoint(within):
                        most = max(most, len(match.sites))
                        yield anchor, match
            for part in _parts_of(clause):
                for anchor in self.matcher.places(part) if len(_parts_of_match(part)) >= most else ():
                    budget -= 1
                    match = self.matcher.below(clause, part, anchor)
                    if match is None or len(match.sites) < most:
                        continue
                    if within is None or not self._touched(match).isdisjoint(within):
                        yield anchor, match
            if budget < 0:
                return

    def _touched(self, match: Partial) -> set[int]:
        """The classes that a match and the first thing that it lacks are about."""
        found = {eclass for _, _, _, eclass in match.sites}
        for miss in match.missed[:1]:
            found.update(() if miss.eclass is None else (miss.eclass,))
            if miss.above and miss.eclass is not None:
                found.update(self.snapshot.nodes[n].eclass for n in self._readers.get(miss.eclass, ()))
        return found

    def _seen(self, definition: Rule | Composite, number: int, target: str, match: Partial, left_out: str) -> _Seen:
        nodes = self.snapshot.nodes
        matched = tuple(f"{self._named(c)} = {self.text.of(nodes[n], 1)}" for _, n, _, c in match.sites)
        operators = max(len(_operators(match.clause)), 1)
        root = match.sites[0][3] if match.sites else match.missed[0].eclass
        node = "" if root is None else self._named(root)
        share = len(matched) / operators
        if match.missed:
            required, found = self._miss(match.clause, match.missed[0])
            place = MatchAttempt(node, "partial", matched, operators, required, found)
            return _Seen(place, (share, len(matched), match.met))
        clause, variables, answer = self.judge.judge(definition, number, target, match)
        if isinstance(answer, ClauseRefusal):
            required, found = answer.words
            place = MatchAttempt(node, "refused", matched, operators, required, found)
            return _Seen(place, (answer.progress, len(matched)))
        outcome, what = self._outcome(clause, variables, answer, number, left_out)
        place = MatchAttempt(node, outcome, matched, operators, "", what)
        return _Seen(place, (len(matched),))

    # ---- what a match came to -----------------------------------------------------------------------

    def _outcome(
        self, clause: CompiledClause, classes: Classes, answer: Answer, number: int, left_out: str
    ) -> tuple[str, str]:
        """The outcome of a match that meets all requirements, and its description."""
        roots = [classes[v] for v in clause.query.roots]
        if clause.layout is None:
            made = [self.nodes.composite(clause, classes, answer, k) for k in range(len(roots))]
            there = all(n is not None for n in made)
            return (
                ("applied", f"{clause.target}.{clause.definition.name}") if there else self._stopped(number, left_out)
            )
        built = self.nodes.built(clause.layout, classes, answer)
        right = [
            classes.get(o.variable) if o.variable is not None else self._root(built, o.step, o.output)
            for o in clause.layout.roots
        ]
        if right != roots:
            return self._stopped(number, left_out)
        own = [n for n in built if n is not None and self.snapshot.nodes[n].rule == number]
        if own or not any(n is not None for n in built):
            text = self.text.of(self.snapshot.nodes[own[-1]], 1) if own else self._named(roots[0] or 0)
            return "applied", text
        makers = dict.fromkeys(self.snapshot.nodes[n].rule for n in built if n is not None)
        by = " and ".join("the input" if r == ORIGINAL else self.snapshot.rules[r] for r in makers)
        ends = [built[o.step] for o in clause.layout.roots if o.step is not None]
        end = next((n for n in ends if n is not None), None)
        same = self._named(roots[0] or 0) if end is None else self.text.of(self.snapshot.nodes[end], 1)
        return "there already", f"makes this equal to {same}, which was there already, from {by}"

    def _root(self, built: Sequence[int | None], step: int | None, output: int) -> int | None:
        found = None if step is None else built[step]
        if found is None:
            return None
        node = self.snapshot.nodes[found]
        if not node.outputs:
            return node.eclass
        part = self.nodes.index.get(("part", node.eclass, output))
        return None if part is None else self.snapshot.nodes[part].eclass

    def _stopped(self, number: int, left_out: str) -> tuple[str, str]:
        saturation = self.judge.saturation
        if left_out:
            return "not applied", left_out
        statistics = saturation.statistics[number - 2] if 2 <= number < len(saturation.names) else None
        if statistics is not None and statistics.held_back:
            return "not applied", f"the rule was held back for {statistics.held_back} rounds: it has too many matches"
        return "not applied", f"the search ended before (`{saturation.stop_reason}`): raise its limits"

    # ---- words --------------------------------------------------------------------------------------

    def _named(self, eclass: int) -> str:
        return self.text.name(eclass, 1)

    def _miss(self, clause: Clause, miss: Miss) -> tuple[str, str]:
        nodes, pattern = self.snapshot.nodes, miss.pattern
        if miss.above:
            assert isinstance(pattern, Match) and miss.eclass is not None
            return f"{pattern.ops[0]} as what reads {self._named(miss.eclass)}", self._found_readers(miss)
        found = "no operand" if miss.eclass is None else self._found(miss.eclass, pattern)
        where = ""
        if miss.reader is not None:
            n, i = miss.reader
            position = _ORDINALS[i] if i < len(_ORDINALS) else f"{i + 1}th"
            where = f" as {position} operand of {nodes[n].op} {self._named(nodes[n].eclass)}"
        if isinstance(pattern, Match):
            if miss.eclass is None and miss.reader is None:
                return f"{pattern.ops[0]} of the same operands", "none"
            members = () if miss.eclass is None else self.snapshot.classes[miss.eclass]
            count = len(trim(pattern.args, clause.absent))
            same = any(nodes[n].op == pattern.ops[0] and len(nodes[n].children) != count for n in members)
            return f"{pattern.ops[0]}{f' of {_operands(count)}' if same else ''}{where}", found
        if isinstance(pattern, Number):
            return f"the constant {in_words(pattern.value)}{where}", found
        if pattern is None:
            return f"no operand{where}", found
        if miss.bound is not None:
            return f"{self._named(miss.bound)}{where} (the pattern has one name for both)", found
        return f"an operand{where}", found

    def _found_readers(self, miss: Miss) -> str:
        assert miss.eclass is not None
        readers = [self.snapshot.nodes[n] for n in self._readers.get(miss.eclass, ())]
        readers = [r for r in readers if r.kind == "op"]
        own = [r for r in readers if r.rule == ORIGINAL] or readers
        same = [r for r in own if isinstance(miss.pattern, Match) and r.op == miss.pattern.ops[0]]
        if same:
            return f"{self.text.of(same[0], 1)}, where it is another operand"
        return _list([f"{r.op} {self._named(r.eclass)}" for r in own]) or "nothing: it is an output"

    def _found(self, eclass: int, wanted: object) -> str:
        """What computes a class, as far as it says why a pattern does not match it."""
        members = [self.snapshot.nodes[n] for n in self.snapshot.classes[eclass]]
        name = self._named(eclass)
        operators = sorted((m for m in members if m.kind == "op"), key=lambda m: m.rule)
        if isinstance(wanted, Match):
            same = next((m for m in operators if m.op == wanted.ops[0]), None)
            if same is not None:
                return f"{same.op} of {_operands(len(same.children))}: {self.text.of(same, 1)}"
        value = self.matcher.facts[eclass].value
        if value is not None and (value.size == 1 or (value == value.flat[:1]).all()):
            return f"{name}, which is {in_words(value)}" if name != in_words(value) else name
        if self.snapshot.constant[eclass] and not operators:
            return f"the constant {name}"
        if any(m.kind == "input" for m in members):
            return f"the input {name}"
        first = next(iter(operators), None)
        part = next((m for m in members if m.kind == "part" and m.children[0] is not None), None)
        if first is None and part is not None:
            holder = self.snapshot.nodes[self.snapshot.classes[part.children[0] or 0][0]]
            return f"{name}, output {part.number} of {self.text.of(holder, 1)}"
        if first is None:
            return name
        others = [str(m.op) for m in operators if m.op != first.op]
        also = f", also written with {_list(others)}" if others else ""
        return f"{first.op} {name}{also}"


def roots_of(definition: Rule | Composite) -> tuple[Pattern, ...]:
    """The patterns of a rule's left side, or of a composite."""
    return definition.left if isinstance(definition, Rule) else definition.patterns


def _operators(clause: Clause) -> list[Match]:
    return list({id(m): m for m in walk(clause.roots, operands) if isinstance(m, Match)}.values())


def _parts_of_match(match: Match) -> list[Match]:
    return [m for m in walk((match,), operands) if isinstance(m, Match)]


def _parts_of(clause: Clause) -> list[Match]:
    """The operators below the roots; operators of large parts come first."""
    below = [m for m in _operators(clause) if not any(m is root for root in clause.roots)]
    return sorted(below, key=lambda m: -len(_parts_of_match(m)))


def _operands(count: int) -> str:
    return f"{count} operand{'' if count == 1 else 's'}"


def _either(a: MatchAttempt, b: MatchAttempt) -> MatchAttempt:
    """One place of two plain patterns of a rule that lack something at the same spot."""
    if a.required == b.required or a.outcome != "partial":
        return a
    first, _, where = a.required.partition(" as ")
    second, _, other = b.required.partition(" as ")
    known = chain.from_iterable(part.split(" or ") for part in first.split(", "))
    if where != other or second in known:
        return a
    return replace(a, required=f"{first} or {second} as {where}")


def _list(words: Sequence[str], most: int = 3) -> str:
    shown = list(dict.fromkeys(words))
    rest = f" and {len(shown) - most} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + rest
