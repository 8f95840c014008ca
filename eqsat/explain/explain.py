"""The origins of a chosen program's nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property

from eqsat.egraph.encode import EncodedNode
from eqsat.egraph.engine import TimeUp
from eqsat.egraph.matched import key, key_of
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.explain.derivations import Derivations, RuleApplication
from eqsat.explain.match_terms import Terms
from eqsat.explain.origin import DerivationStep, FoldedConstant, Origin
from eqsat.partition.make_plan import Assembled
from eqsat.partition.value_names import value_names
from eqsat.rules.ast import Rule
from eqsat.rules.listing import short_place


def explain(saturation: Saturation, snapshot: Snapshot, assembled: Assembled) -> dict[str, Origin]:
    """The origin of each node of a program, by the name of its first result.

    Where the time is over, the chain is left out: the last rule and the tensors that the node computes stay.
    """
    return _OfProgram(saturation, snapshot, assembled).origins()


class GraphExplainer:
    """The known facts about the e-nodes of one e-graph.

    Args:
        saturation: A finished saturation.
        snapshot: The snapshot of it.
    """

    def __init__(self, saturation: Saturation, snapshot: Snapshot) -> None:
        self.saturation = saturation
        self.snapshot = snapshot
        self.terms = Terms(snapshot)
        self._places = {s.name: s.place for s in saturation.statistics}

    @cached_property
    def derivations(self) -> Derivations:
        return Derivations(self.saturation, self.snapshot)

    @cached_property
    def own(self) -> dict[int, dict[str, None]]:
        """For each e-node of the input the names of the nodes that it represents."""
        return {n: dict.fromkeys(map(self.name, nodes)) for n, nodes in self.nodes.items()}

    @cached_property
    def nodes(self) -> dict[int, list[EncodedNode]]:
        """For each e-node of the input the encoded nodes that it represents."""
        found: dict[int, list[EncodedNode]] = {}
        for node in self.saturation.encoding.nodes:
            children = [None if o is None else self.classes[o] for o in node.operands]
            c = node.constructor
            # The first output of several may also be computed alone.
            for outputs in dict.fromkeys((c.outputs, 0)):
                n = self._index.get(key("op", c.op, node.attrs, children, outputs))
                if n is not None:
                    found.setdefault(n, []).append(node)
        return found

    @cached_property
    def classes(self) -> list[int]:
        """The class of each value of the input."""
        return [self.snapshot.refs[v] for v in self.saturation.encoding.values]

    def name(self, node: EncodedNode) -> str:
        """The name of the first result of a node of the input."""
        values = self.saturation.encoding.values
        return next((name for k in node.results if (name := values[k].name)), "")

    @cached_property
    def _index(self) -> Mapping[object, int]:
        return {key_of(node): n for n, node in enumerate(self.snapshot.nodes)}

    def step(self, match: RuleApplication) -> DerivationStep:
        """The application of a rule."""
        assert match.clause is not None
        definition = match.clause.definition
        is_rule = isinstance(definition, Rule)
        name = definition.name if is_rule else f"{match.clause.target}.{definition.name}"
        numerics = str(definition.numerics) if is_rule else ""
        before, after = self.terms.before(match), self.terms.after(match)
        return DerivationStep(name, short_place(definition.place), numerics, before, after)

    def bare(self, rule: str) -> DerivationStep:
        """The same where nothing else is known of it."""
        return DerivationStep(rule, short_place(self._places.get(rule, "")), "", "", "")


class _OfProgram(GraphExplainer):
    def __init__(self, saturation: Saturation, snapshot: Snapshot, assembled: Assembled) -> None:
        super().__init__(saturation, snapshot)
        self.plan = assembled.plan
        self.enodes = assembled.enodes

    @cached_property
    def _computes(self) -> dict[int, list[int]]:
        """For each class the e-nodes of the input in it; the class of a tuple has them by its outputs as well."""
        computes: dict[int, list[int]] = {}
        for n in self.own:
            computes.setdefault(self.snapshot.nodes[n].eclass, []).append(n)
        for n, node in enumerate(self.snapshot.nodes):
            if node.kind == "part" and any(h in self.own for h in self.snapshot.classes[node.children[0] or 0]):
                computes.setdefault(node.eclass, []).append(n)
        return computes

    # ---- origins ----------------------------------------------------------------------------------

    def origins(self) -> dict[str, Origin]:
        names = value_names(self.plan).of
        found: dict[str, Origin] = {}
        try:
            numbers = self.snapshot.numbers
            wanted = [numbers[id(e)] for e in self.enodes if id(e) in numbers]
            chains = self.derivations.of(wanted)
        except TimeUp:
            chains = {}
        for node, enode in zip(self.plan.nodes, self.enodes, strict=True):
            results = [v for v in node.outputs if v is not None]
            name = next((names[v] for v in results), "")
            if name:
                found[name] = self._origin(name, enode, results, chains, names)
        for eclass, value in self.plan.outputs:
            k = self.saturation.encoding.number.get(value)
            if k is not None and value.name and self._is_leaf(eclass) and k in self._producers:
                found[value.name] = self._of_leaf(value.name, eclass, self._producers[k])
        return found

    def _origin(
        self,
        name: str,
        enode: ENode,
        results: Sequence[int],
        chains: Mapping[int, Sequence[RuleApplication]],
        names: Mapping[int, str],
    ) -> Origin:
        n = self.snapshot.numbers.get(id(enode), -1)
        matches = dict.fromkeys(chains.get(n, ()))
        matches.update(dict.fromkeys(self._others(n, results, matches)))
        reached = dict.fromkeys([n, *(s for m in matches for s in m.sites)])
        below = dict.fromkeys(m for way in self._below(enode, reached) for m in self._to_leaf(*way))
        matches = {**below, **matches}
        reached.update(dict.fromkeys(s for m in below for s in m.sites))
        sources = dict.fromkeys(tensor for s in reached for tensor in self.own.get(s, ()))
        rules = [m for m in matches if m.clause is not None]
        steps = list(self._steps(matches))
        for eclass, _ in self._below(enode, reached):
            steps = [*self._to_constant(eclass), *steps]
        made = {b for m in rules for b in m.built}
        for s in dict.fromkeys([*reached]):
            node = self.snapshot.nodes[s] if s >= 0 else enode
            if node.rule > 1 and s not in made:
                # Nothing was matched: other programs of loops, roundings, and what there was no time for.
                steps.insert(0, self.bare(self.snapshot.rules[node.rule]))
                sources.update(dict.fromkeys(self._tensors(node, results)))
        constants = self._constants(enode, rules, names)
        return Origin(name, str(enode.op), tuple(sources), tuple(dict.fromkeys(steps)), constants)

    def _steps(self, matches: Iterable[RuleApplication]) -> tuple[DerivationStep, ...]:
        return tuple(dict.fromkeys(self.step(m) for m in matches if m.clause is not None))

    def _others(
        self, n: int, results: Sequence[int], known: Mapping[RuleApplication, None]
    ) -> Iterable[RuleApplication]:
        """The matches that unite an e-node with the nodes of the input whose results it computes as well."""
        reached = {n, *(s for m in known for s in m.sites)}
        tuples = {h for s in reached if s >= 0 and self.snapshot.nodes[s].kind == "part"
                  for h in self.snapshot.classes[self.snapshot.nodes[s].children[0] or 0]}  # fmt: skip
        for eclass in dict.fromkeys((*results, self.snapshot.nodes[n].eclass) if n >= 0 else ()):
            start = n if self.snapshot.nodes[n].eclass == eclass else self._projection(n, eclass)
            for goal in self._computes.get(eclass, ()):
                if goal in reached or goal in tuples or start is None or self.snapshot.constant[eclass]:
                    continue
                try:
                    way = self.derivations.chain(start, goal)
                    sites = [s for m in way for s in m.sites]
                    before = self.derivations.of(sites)
                except TimeUp:
                    return
                yield from dict.fromkeys(m for s in sites for m in before[s])
                yield from way

    def _below(self, enode: ENode, reached: Iterable[int]) -> Iterable[tuple[int, list[EncodedNode]]]:
        """The leaves that an e-node reads where its nodes of the input read the results of these nodes."""
        for eclass in dict.fromkeys(c for c in enode.children if c is not None and self._is_leaf(c)):
            for n in reached:
                ways = [self._computed(node, eclass) for node in self.nodes.get(n, ())]
                if ways and all(ways):
                    yield eclass, ways[0]

    def _of_leaf(self, name: str, eclass: int, node: EncodedNode) -> Origin:
        """The origin of an output that is an input of the result, or a constant."""
        matches = list(self._to_leaf(eclass, [node])) if self._moves(node) else []
        sources = {self.name(node): None, **{t: None for m in matches for s in m.sites for t in self.own.get(s, ())}}
        steps = self._steps(matches) or tuple(self._to_constant(eclass) if self._moves(node) else ())
        return Origin(name, "Identity", tuple(sources), steps)

    def _to_constant(self, eclass: int) -> Iterable[DerivationStep]:
        """The rules that may have made a class a constant. Its e-nodes no longer match, so all candidates are named."""
        ops = {self.snapshot.nodes[n].op for n in self.snapshot.classes[eclass]}
        if not self.snapshot.constant[eclass]:
            return
        for clause, _ in self.saturation.answered():
            roots = {site.constructor.op for site in clause.query.sites if site.value in clause.query.roots}
            if roots & ops and self.saturation.statistics[clause.number - 2].applied:
                yield self.bare(self.snapshot.rules[clause.number])

    def _is_leaf(self, eclass: int) -> bool:
        return eclass in self._leaf and (eclass in self._given or eclass in self.plan.constants)

    @cached_property
    def _given(self) -> frozenset[int]:
        return frozenset(eclass for eclass, _ in self.plan.inputs)

    @cached_property
    def _leaf(self) -> dict[int, int]:
        """By class its graph input or constant."""
        return {node.eclass: n for n, node in enumerate(self.snapshot.nodes) if node.kind in ("input", "const")}

    def _moves(self, node: EncodedNode) -> bool:
        """Whether a node of the input is not a constant expression."""
        return any(k in self._moving for k in node.results)

    @cached_property
    def _moving(self) -> frozenset[int]:
        encoding = self.saturation.encoding
        found = {encoding.number[value] for value in encoding.inputs}
        for node in encoding.nodes:
            if any(k in found for k in node.operands):
                found.update(node.results)
        return frozenset(found)

    @cached_property
    def _producers(self) -> dict[int, EncodedNode]:
        """The node of the input that computes a value."""
        return {k: node for node in self.saturation.encoding.nodes for k in node.results}

    def _computed(self, node: EncodedNode, eclass: int) -> list[EncodedNode]:
        """The nodes that compute those operands of a node that are in a class, unless they are constant expressions."""
        inside = [k for k in node.operands if k is not None and self.classes[k] == eclass]
        found = [self._producers[k] for k in inside if k in self._producers]
        return [one for one in found if self._moves(one)]

    def _to_leaf(self, eclass: int, nodes: Sequence[EncodedNode]) -> Iterable[RuleApplication]:
        """The matches that unite the results of nodes of the input with the leaf of their class."""
        wanted = {id(node) for node in nodes}
        goals = (g for g in self.snapshot.classes[eclass] if self._stands_for(g, wanted))
        try:
            for goal in goals:
                way = self.derivations.chain(self._leaf[eclass], goal)
                before = self.derivations.of([s for m in way for s in m.sites])
                yield from dict.fromkeys(m for matches in before.values() for m in matches)
                yield from reversed(way)
        except TimeUp:
            return

    def _stands_for(self, n: int, wanted: Set[int]) -> bool:
        node = self.snapshot.nodes[n]
        holders = self.snapshot.classes[node.children[0] or 0] if node.kind == "part" else (n,)
        return any(id(one) in wanted for holder in holders for one in self.nodes.get(holder, ()))

    def _projection(self, n: int, eclass: int) -> int | None:
        holder = self.snapshot.nodes[n].eclass
        members = self.snapshot.classes[eclass]
        return next((m for m in members if self.snapshot.nodes[m].children == (holder,)), None)

    def _tensors(self, node: ENode, results: Sequence[int]) -> Iterable[str]:
        """What the class of an e-node, or else its operands, are in the input."""
        for classes in ((node.eclass, *results), node.children):
            found = [
                n for c in classes if c is not None for m in self._computes.get(c, ()) for n in self.own.get(m, ())
            ]
            if found:
                return found
        return ()

    # ---- constants --------------------------------------------------------------------------------

    @cached_property
    def _initializers(self) -> dict[int, str]:
        refs = self.snapshot.refs.items()
        return {c: v.name or "" for v, c in refs if v.is_initializer()}

    def _constants(
        self, enode: ENode, rules: Sequence[RuleApplication], names: Mapping[int, str]
    ) -> tuple[FoldedConstant, ...]:
        found = []
        for eclass in dict.fromkeys(enode.children):
            if eclass in self.plan.constants and eclass not in self._initializers:
                sources = self._leaves(eclass, rules)
                if sources:
                    found.append(FoldedConstant(names.get(eclass, ""), sources))
        return tuple(found)

    def _leaves(self, eclass: int, rules: Sequence[RuleApplication]) -> tuple[str, ...]:
        """The constants of the input that a constant was computed from."""
        snapshot = self.snapshot
        found: dict[str, None] = {}
        seen: set[int] = set()
        todo = [eclass]
        while todo:
            here = todo.pop()
            if here in seen:
                continue
            seen.add(here)
            if here in self._initializers:
                found[self._initializers[here]] = None
                continue
            members = sorted(snapshot.classes[here], key=lambda n: snapshot.nodes[n].rule)
            for n in members:
                children = [c for c in snapshot.nodes[n].children if c is not None]
                if children and n not in snapshot.unfit and not seen.intersection(children):
                    todo += children
                    break
            else:
                made = (m for m in rules if not set(m.built).isdisjoint(members))
                todo += [c for m in made for c in m.leaves if snapshot.constant[c]]
        return tuple(reversed(found))
