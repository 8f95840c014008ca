"""Composites that an operator nearly became: the pattern is there, and one condition of it does not hold.

Saturation asks only for what matches. Why something does not is a question of reports: here the patterns of a
target's composites are looked up in the finished e-graph, around one operator, and the match that gets furthest down
its conditions is the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from eqsat.egraph.compile import expanded
from eqsat.egraph.snapshot import ENode, Snapshot
from eqsat.ops.properties import is_commutative
from eqsat.rules.ast import Composite, Match, Name, Number, Pattern, Target, Wildcard
from eqsat.rules.expand import Clause
from eqsat.rules.expression import NodeFacts, TensorFacts, Unknown, evaluate, holds
from eqsat.rules.values import equal
from eqsat.targets.refusal import condition_in_words

MATCHES = 32
"""Matches of one plain pattern at one place that are looked at."""

_Env = dict[str, object]


@dataclass(frozen=True, slots=True)
class _Found:
    """A match: what names are bound to, and the e-nodes that its operators are."""

    env: _Env
    classes: Mapping[str, int]
    nodes: tuple[ENode, ...]


class NearMisses:
    """Reasons why operators are not part of composites.

    Args:
        snapshot: The saturated e-graph.
        facts: Of each of its classes.
    """

    def __init__(self, snapshot: Snapshot, facts: Sequence[TensorFacts]) -> None:
        self.snapshot = snapshot
        self.facts = facts
        self._parents: dict[int, list[int]] | None = None

    def reason(self, target: Target, node: ENode, otherwise: str) -> str:
        """The condition that keeps an operator out of the target's composites, as a phrase.

        Args:
            target: The target.
            node: The operator, as it was chosen.
            otherwise: What to say if no composite has a pattern that is there.

        Returns:
            The reason, empty if there is none: some composite has its pattern and all conditions, and is dearer.
        """
        best: tuple[float, str] | None = None
        for composite in target.composites:
            for clause in expanded((composite.pattern,)):
                (root,) = clause.roots
                depth = _depth_of(root, node)
                if depth is None:
                    continue
                for eclass in self._above(node.eclass, depth):
                    for found in islice(self._at(root, eclass, _Found({}, {}, ())), MATCHES):
                        if node not in found.nodes:
                            continue
                        judged = _judge(composite, clause, found.env)
                        if judged is None:
                            return ""
                        if best is None or judged[0] > best[0]:
                            best = (
                                judged[0],
                                f"{target.name} runs {node.op} within {composite.name} only where {judged[1]}",
                            )
        return otherwise if best is None else best[1]

    # ---- the e-graph --------------------------------------------------------------------------------

    def _above(self, eclass: int, depth: int) -> list[int]:
        """The class and those that are computed from it in up to ``depth`` steps."""
        if self._parents is None:
            self._parents = {}
            for node in self.snapshot.nodes:
                if node.kind == "op":
                    for child in node.children:
                        if child is not None:
                            self._parents.setdefault(child, []).append(node.eclass)
        found, edge = {eclass: None}, [eclass]
        for _ in range(depth):
            edge = [p for c in edge for p in self._parents.get(c, ()) if p not in found]
            found.update(dict.fromkeys(edge))
        return list(found)

    def _at(self, pattern: Pattern | None, eclass: int | None, so_far: _Found) -> Iterator[_Found]:
        """The ways in which a class matches a pattern, given what is bound already."""
        if pattern is None or eclass is None:
            if pattern is None and eclass is None:
                yield so_far
            return
        if isinstance(pattern, Wildcard):
            yield so_far
        elif isinstance(pattern, Name):
            if so_far.classes.get(pattern.name, eclass) == eclass:
                env = so_far.env | {pattern.name: self.facts[eclass]}
                yield _Found(env, {**so_far.classes, pattern.name: eclass}, so_far.nodes)
        elif isinstance(pattern, Number):
            value = self.facts[eclass].value
            if value is not None and value.size and equal(np.asarray(value), pattern.value):
                yield so_far
        elif isinstance(pattern, Match):
            for index in self.snapshot.classes[eclass]:
                yield from self._node(pattern, self.snapshot.nodes[index], so_far)

    def _node(self, pattern: Match, node: ENode, so_far: _Found) -> Iterator[_Found]:
        if node.kind != "op" or node.op != pattern.ops[0] or node.outputs or len(node.children) < len(pattern.args):
            return
        if any(c is not None for c in node.children[len(pattern.args) :]):
            return
        env = so_far.env
        if pattern.bind is not None:
            env = env | {pattern.bind: NodeFacts(node.op, node.attrs, self.facts[node.eclass])}
        bound = _with_attributes(pattern, node, env)
        if bound is None:
            return
        start = _Found(bound, so_far.classes, (*so_far.nodes, node))
        orders = [node.children]
        if is_commutative(node.op) and len(node.children) == 2:
            orders.append(node.children[::-1])
        for children in orders:
            yield from self._operands(pattern.args, children, start)

    def _operands(
        self, args: Sequence[Pattern | None], children: Sequence[int | None], so_far: _Found
    ) -> Iterator[_Found]:
        if not args:
            yield so_far
            return
        for found in self._at(args[0], children[0], so_far):
            yield from self._operands(args[1:], children[1:], found)


def _with_attributes(pattern: Match, node: ENode, env: _Env) -> _Env | None:
    """The environment with what the pattern says of attributes, None if they are others."""
    bundle = dict(node.attrs)
    for bind in pattern.attrs:
        value = bundle.get(bind.attribute)
        if value is None:
            return None
        if bind.name is not None:
            if env.get(bind.name, value) != value:
                return None
            env = env | {bind.name: value}
        elif bind.equals is not None:
            try:
                if not equal(evaluate(bind.equals, env), value):
                    return None
            except Unknown:
                return None
    return env


def _depth_of(pattern: Pattern | None, node: ENode) -> int | None:
    """How far below its root a pattern has the node's operator at most, None if nowhere."""
    if not isinstance(pattern, Match):
        return None
    below = [d for d in (_depth_of(arg, node) for arg in pattern.args) if d is not None]
    return max(below) + 1 if below else 0 if pattern.ops[0] == node.op else None


def _judge(composite: Composite, clause: Clause, env: _Env) -> tuple[float, str] | None:
    """Which part of the conditions holds before the first that does not, and that one; None if all hold."""
    env = env | {alias: env[name] for alias, name in clause.aliases.items() if name in env}
    for i, condition in enumerate(composite.where):
        if holds((condition,), env) is not None:
            return i / len(composite.where), condition_in_words(condition, env)
    return None
