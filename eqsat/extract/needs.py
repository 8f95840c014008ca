"""What must be where: dominators of the placed problem.

A program is a derivation in an AND/OR graph of facts: class c is computed; computed on d; in the memory of d; copied out of d;
copied into d. Running e-node n on d needs its inputs in the memory of d; a value is there if it was computed
there or came there; and so on. A fact that every derivation of another contains gives a valid row, activity of
the one at most that of the other (``eqsat.extract.cuts``). Facts that every program contains are left out, which keeps the sets
small: nothing reaches beyond the next such fact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from eqsat.extract.cost import HOST
from eqsat.extract.formulation import Formulation


@dataclass
class Fact:
    """An OR vertex.

    Attributes:
        columns: Its activity is their sum.
        options: Ways to derive it: the column that says so, and the facts it needs.
        implied: Facts that it contains in any case, itself among them.
        needs: All facts in every derivation, without those in every program.
    """

    columns: list[int]
    options: list[tuple[int, list[int]]] = field(default_factory=list)
    implied: list[int] = field(default_factory=list)
    needs: frozenset[int] = frozenset()


class Needs:
    """The facts of a formulation, inputs first as far as there are no cycles.

    Attributes:
        facts: All facts.
        always: Per fact whether every program contains it.
        readers: Per fact the facts that some option derives from it.
    """

    def __init__(self, formulation: Formulation) -> None:
        self.formulation = formulation
        self.facts: list[Fact] = []
        classes, targets = formulation.made.shape
        self._any = [-1] * classes
        self._made = [[-1] * targets for _ in range(classes)]
        self._held = [[-1] * targets for _ in range(classes)]
        dominators = formulation.dominators
        self._rings = [self._fact([int(column)]) for column in formulation.active]
        for klass in dominators.order:
            self._add_class(klass)
        x = formulation.x.tolist()
        children = formulation.problem.children
        for klass in dominators.order:
            for target, fact in enumerate(self._made[klass]):
                if fact >= 0:
                    self.facts[fact].options = [
                        (x[node][target], [self._held[k][target] for k in children[node]])
                        for node in dominators.options[klass] if x[node][target] >= 0
                    ]
        lead = formulation.lead.tolist()
        for ring, fact in zip(dominators.rings, self._rings, strict=True):
            self.facts[fact].options = [
                (lead[node], [self._any[k] for k in children[node]])
                for klass in ring for node in dominators.options[klass] if lead[node] >= 0
            ]
        self._find_always()
        self._find_needs()

    def _fact(self, columns: list[int]) -> int:
        self.facts.append(Fact(columns, implied=[len(self.facts)]))
        return len(self.facts) - 1

    def _either(self, sources: list[int]) -> int:
        """The fact that one of some facts holds, which is the fact itself if there is but one."""
        if len(sources) == 1:
            return sources[0]
        fact = self._fact([column for source in sources for column in self.facts[source].columns])
        self.facts[fact].options = [(self.facts[source].columns[0], [source]) for source in sources]
        return fact

    def _add_class(self, klass: int) -> None:
        """Facts of one class; how it is computed follows when all classes have theirs."""
        formulation = self.formulation
        made, out, come = (columns[klass].tolist() for columns in
                           (formulation.made, formulation.out, formulation.come))
        first = len(self.facts)
        for target, column in enumerate(made):
            if column >= 0:
                self._made[klass][target] = self._fact([column])
        home = [self._made[klass][HOST]] if made[HOST] >= 0 else []
        for target, column in enumerate(out):
            if column >= 0:
                home.append(self._fact([column]))
                self.facts[-1].options = [(column, [self._made[klass][target]])]
        if home:
            self._held[klass][HOST] = self._either(home)
        for target, column in enumerate(come):
            here = [self._made[klass][target]] if made[target] >= 0 and target != HOST else []
            if column >= 0:
                here.append(self._fact([column]))
                self.facts[-1].options = [(column, [self._held[klass][HOST]])]
            if here and target != HOST:
                self._held[klass][target] = self._either(here)
        self._any[klass] = self._either([fact for fact in self._made[klass] if fact >= 0])
        ring = formulation.dominators.ring_of[klass]
        common = [self._any[klass]] + ([self._rings[ring]] if ring >= 0 else [])
        for fact in range(first, len(self.facts)):
            self.facts[fact].implied += [other for other in common if other != fact]

    def _find_always(self) -> None:
        formulation = self.formulation
        self.always = [False] * len(self.facts)
        todo = [self._any[klass] for klass in formulation.must.tolist()]
        todo += [self._held[root][HOST] for root in formulation.problem.roots]
        while todo:
            fact = todo.pop()
            if self.always[fact]:
                continue
            self.always[fact] = True
            todo += self.facts[fact].implied
            options = [needed for _, needed in self.facts[fact].options]
            if options:
                todo += sorted(set(options[0]).intersection(*options[1:]))

    def _find_needs(self) -> None:
        facts = self.facts
        self.readers: list[list[int]] = [[] for _ in facts]
        for number, fact in enumerate(facts):
            for _, needed in fact.options:
                for other in needed:
                    self.readers[other].append(number)
        known: list[frozenset[int] | None] = [None] * len(facts)
        heap = list(range(len(facts)))
        queued = [True] * len(facts)
        while heap:
            number = heappop(heap)
            queued[number] = False
            if self.always[number]:
                # All that an omnipresent fact needs is omnipresent.
                common: frozenset[int] | None = frozenset()
            else:
                common = None
                for _, needed in facts[number].options:
                    below = [known[other] for other in needed]
                    if any(b is None for b in below):
                        continue
                    union = frozenset().union(*[b for b in below if b is not None])
                    common = union if common is None else common & union
                if common is None:
                    continue
                common = common.union(other for other in facts[number].implied if not self.always[other])
            if common != known[number]:
                known[number] = common
                for reader in self.readers[number]:
                    if not queued[reader]:
                        queued[reader] = True
                        heappush(heap, reader)
        for fact, found in zip(facts, known, strict=True):
            fact.needs = found or frozenset()
