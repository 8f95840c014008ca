"""Dominators of a problem's facts: the facts that every derivation of another fact contains.

A program is a derivation in an AND/OR graph of facts. A problem has two such graphs. Without places, a fact is that
class c is computed, by an e-node, from its inputs. With places, there are these facts: class c is computed on d; it is
copied out of d, or into d; it is in the memory of d, because it was computed there or copied there; a region of d is
launched. An e-node that runs on d needs its inputs in d's memory, and a region that may contain it. A fact that every
derivation of another one contains gives a valid row: the activity of the latter is at most that of the former
(``eqsat.extract.milp.implication_rows``). Facts that every program contains are left out, which keeps the sets small:
nothing reaches beyond the next such fact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapify, heappop, heappush

from eqsat.extract.graph import components
from eqsat.extract.milp.formulation import Formulation
from eqsat.extract.milp.zones import Zones
from eqsat.extract.program_cost import HOST

NOTHING: frozenset[int] = frozenset()


@dataclass
class Derivation:
    """A way to derive a fact: the columns that choose it (one of them is 1), and the facts that it needs."""

    columns: tuple[int, ...]
    reads: list[int]


@dataclass
class Fact:
    """An OR vertex.

    Attributes:
        columns: Its activity is their sum.
        options: Ways to derive it.
        implied: Facts that hold whenever it does, itself among them.
        needs: All facts in every derivation, without those in every program.
    """

    columns: tuple[int, ...]
    options: list[Derivation] = field(default_factory=list)
    implied: list[int] = field(default_factory=list)
    needs: frozenset[int] = NOTHING


class AndOrGraph:
    """An AND/OR graph, inputs first as far as there are no cycles.

    Attributes:
        facts: All facts.
        always: Per fact whether every program contains it.
        readers: Per fact those that some option derives from it.
    """

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.always: list[bool] = []
        self.readers: list[list[int]] = []

    def add(self, columns: tuple[int, ...]) -> int:
        """Append a fact; its number."""
        self.facts.append(Fact(columns, implied=[len(self.facts)]))
        return len(self.facts) - 1

    def either(self, sources: list[int]) -> int:
        """The fact that at least one of some facts holds; a single fact is returned itself."""
        if len(sources) == 1:
            return sources[0]
        fact = self.add(tuple(column for source in sources for column in self.facts[source].columns))
        self.facts[fact].options = [Derivation(self.facts[source].columns, [source]) for source in sources]
        return fact

    @cached_property
    def uncertain_reads(self) -> list[list[list[int]]]:
        """Per fact and option the inputs that not every program contains, once all is settled."""
        return [[[r for r in option.reads if not self.always[r]] for option in fact.options] for fact in self.facts]

    def settle(self, certain: list[int]) -> None:
        """Finds the facts that every program contains, given some such facts, and the facts that each fact needs."""
        self.always = [False] * len(self.facts)
        todo = list(certain)
        while todo:
            number = todo.pop()
            if self.always[number]:
                continue
            self.always[number] = True
            fact = self.facts[number]
            todo += fact.implied
            if fact.options:
                todo += sorted(set(fact.options[0].reads).intersection(*(o.reads for o in fact.options[1:])))
        self.readers = [[] for _ in self.facts]
        for number, fact in enumerate(self.facts):
            for option in fact.options:
                for other in option.reads:
                    self.readers[other].append(number)
        self._find_needs()

    def _find_needs(self) -> None:
        known: list[frozenset[int] | None] = [NOTHING if certain else None for certain in self.always]
        group = [0] * len(self.facts)
        below = [[r for option in fact.options for r in option.reads] for fact in self.facts]
        for number, facts in enumerate(components(below)):
            for fact in facts:
                group[fact] = number
        # In a component, what changes is read again only after all others have been: going back at once would read
        # everything in between once for each step of a change.
        heap = [(group[number], 0, number) for number, found in enumerate(known) if found is None]
        heapify(heap)
        queued = [found is None for found in known]
        while heap:
            _, turn, number = heappop(heap)
            queued[number] = False
            common: frozenset[int] | None = None
            for option in self.facts[number].options:
                needed = union([known[other] for other in option.reads])
                if needed is not None:
                    common = needed if common is None else common & needed
            if common is None:
                continue
            common = common.union(other for other in self.facts[number].implied if not self.always[other])
            if common != known[number]:
                known[number] = common
                for reader in self.readers[number]:
                    if not self.always[reader] and not queued[reader]:
                        queued[reader] = True
                        heappush(heap, (group[reader], turn + (reader <= number), reader))
        for fact, found in zip(self.facts, known, strict=True):
            fact.needs = found or NOTHING


def union(sets: list[frozenset[int] | None]) -> frozenset[int] | None:
    """Union; None means everything."""
    known = [found for found in sets if found is not None]
    return NOTHING.union(*known) if len(known) == len(sets) else None


def unplaced_facts(formulation: Formulation) -> AndOrGraph:
    """Facts of classes and of components of classes, on any target."""
    graph = AndOrGraph()
    dominators = formulation.dominators
    rings = [graph.add((int(column),)) for column in formulation.active]
    number = [-1] * formulation.problem.classes
    for klass in dominators.order:
        number[klass] = graph.add(tuple(c for c in formulation.made[klass].tolist() if c >= 0))
        if dominators.ring_of[klass] >= 0:
            graph.facts[-1].implied.append(rings[dominators.ring_of[klass]])
    x = formulation.x.tolist()
    children = formulation.problem.children
    for klass in dominators.order:
        for node in dominators.options[klass]:
            columns = tuple(c for c in x[node] if c >= 0)
            if columns:
                graph.facts[number[klass]].options.append(Derivation(columns, [number[k] for k in children[node]]))
    _add_leaders(graph, formulation, rings, number)
    graph.settle([number[klass] for klass in formulation.must.tolist()])
    return graph


def placed_facts(formulation: Formulation, zones: Zones) -> AndOrGraph:
    """Facts of classes in places, and of launches."""
    graph = AndOrGraph()
    problem, dominators = formulation.problem, formulation.dominators
    classes, targets = formulation.made.shape
    anywhere = [-1] * classes
    made = [[-1] * targets for _ in range(classes)]
    held = [[-1] * targets for _ in range(classes)]
    rings = [graph.add((int(column),)) for column in formulation.active]
    # Inputs first: what each fact needs is found in the order of their numbers.
    launched = _add_launches(graph, zones)
    for klass in dominators.order:
        first = len(graph.facts)
        for target, column in enumerate(formulation.made[klass].tolist()):
            if column >= 0:
                made[klass][target] = graph.add((column,))
        home = [made[klass][HOST]] if made[klass][HOST] >= 0 else []
        for target, column in enumerate(formulation.out[klass].tolist()):
            if column >= 0:
                home.append(graph.add((column,)))
                graph.facts[-1].options = [Derivation((column,), [made[klass][target]])]
        if home:
            held[klass][HOST] = graph.either(home)
        for target, column in enumerate(formulation.come[klass].tolist()):
            here = [made[klass][target]] if made[klass][target] >= 0 and target != HOST else []
            if column >= 0:
                here.append(graph.add((column,)))
                graph.facts[-1].options = [Derivation((column,), [held[klass][HOST]])]
            if here and target != HOST:
                held[klass][target] = graph.either(here)
        anywhere[klass] = graph.either([fact for fact in made[klass] if fact >= 0])
        ring = dominators.ring_of[klass]
        common = [anywhere[klass]] + ([rings[ring]] if ring >= 0 else [])
        for fact in range(first, len(graph.facts)):
            graph.facts[fact].implied += [other for other in common if other != fact]
    x = formulation.x.tolist()
    for klass in dominators.order:
        for target, fact in enumerate(made[klass]):
            if fact >= 0:
                graph.facts[fact].options = [
                    Derivation(
                        (x[node][target],),
                        [held[k][target] for k in problem.children[node]] + launched[klass][target],
                    )
                    for node in dominators.options[klass]
                    if x[node][target] >= 0
                ]
    _add_leaders(graph, formulation, rings, anywhere)
    certain = [anywhere[klass] for klass in formulation.must.tolist()]
    graph.settle(certain + [held[root][HOST] for root in problem.roots])
    return graph


def _add_launches(graph: AndOrGraph, zones: Zones) -> list[list[list[int]]]:
    """Per class and target the fact that a region is launched which may contain the class, if that has a price."""
    launched: list[list[list[int]]] = [[[] for _ in row] for row in zones.of.tolist()]
    either: dict[tuple[int, ...], int] = {}
    for zone in zones.all:
        # Several of these can hold at once. So they need nothing here: rows would add up what needs the same.
        fact: dict[int, int] = {}
        for column in (*zone.cells.columns, *(link.column for link in zone.cells.links.values())):
            fact[column] = graph.add((column,))
            graph.facts[-1].options = [Derivation((column,), [])]
        for klass in zone.classes:
            ways = zone.cells.ways[klass]
            if ways not in either:
                either[ways] = graph.either([fact[column] for column in ways])
            launched[klass][zone.target] = [either[ways]]
    return launched


def _add_leaders(graph: AndOrGraph, formulation: Formulation, rings: list[int], number: list[int]) -> None:
    """A component is entered through an e-node that reads nothing inside."""
    children = formulation.problem.children
    lead = formulation.lead.tolist()
    for ring, fact in zip(formulation.dominators.rings, rings, strict=True):
        graph.facts[fact].options = [
            Derivation((lead[node],), [number[k] for k in children[node]])
            for klass in ring
            for node in formulation.dominators.options[klass]
            if lead[node] >= 0
        ]
