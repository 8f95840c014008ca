"""State that the attempts to draw an instance of a clause share, and learn from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.check.instance import Instance
from eqsat.check.instance_data import Pool, dtypes_of, named_in
from eqsat.check.wanted_values import Wishes
from eqsat.egraph.signature import const_names, template_expressions
from eqsat.rules.ast import Condition, Match, Name, Number, Pattern, Rule, Sequence
from eqsat.rules.evaluation import uses
from eqsat.rules.expand import Clause
from eqsat.rules.tensor_types import required_types
from eqsat.rules.tree import walk
from eqsat.schema.opset import dtypes


@dataclass
class _Demands:
    """Facts about leaves in a rule's text: which are constants, whose contents matter, and whose bounds."""

    constants: frozenset[str]
    values: frozenset[str]
    bounds: frozenset[str]

    @staticmethod
    def of(rule: Rule) -> _Demands:
        expressions = [c.expr for c in rule.where if not const_names(c)]
        expressions += [e for t in rule.right for e in template_expressions(t)]
        used = uses(*expressions)
        constants = {name for c in rule.where for name in const_names(c)}
        return _Demands(frozenset(constants | set(used.values)), frozenset(used.values), frozenset(used.bounds))


class Drawing:
    """State that the attempts for one clause share.

    Attributes:
        pointed: Whether instances are drawn where the rule may be wrong: at the numbers that it mentions, and with the
            shapes and contents that its conditions require; otherwise only by chance.
        executed: Whether instances are executed. Others may be of any size, and only have the data that conditions and
            operators read.
        dtypes: Element types of its values, each as often as it should be drawn.
        named: Unusual element types that the rule mentions.
        wishes: Requirements of the conditions on the leaves.
        required: Element types that the conditions require, by the name of a tensor or a node.
        rank: Least rank of some tensor, by an axis or a permutation in the pattern; 0 if there is none.
        learned: By name, numbers that met the conditions, which may be hard to find again.
    """

    def __init__(self, rule: Rule, clause: Clause, pointed: bool = False, executed: bool = True) -> None:
        self.rule = rule
        self.clause = clause
        self.pool = Pool.of(rule, pointed)
        self.dtypes = dtypes_of(rule)
        self.named = named_in(rule)
        self.demands = _Demands.of(rule)
        self.conditions = [c for c in rule.where if not const_names(c)]
        self.pointed = pointed
        self.executed = executed
        self.wishes = Wishes(self.conditions if pointed else (), limited=executed)
        self.required = _required(self.conditions) if pointed else {}
        self.learned: dict[str, list[Any]] = {}
        self._in_conditions = {n.name for c in self.conditions for n in walk(c.expr) if isinstance(n, Name)}
        self.outputs: dict[Any, int] = {}
        for root in clause.roots:
            self._count(root)
        self.rank = max((_least_rank(root) for root in clause.roots if isinstance(root, Match)), default=0)

    def learn(self, instance: Instance) -> None:
        """Remembers the numbers of an instance that was good."""
        for leaf in instance.leaves:
            if (
                leaf.constant
                and leaf.array.size
                and leaf.name in self.demands.values
                and leaf.type.dtype.is_floating_point()
            ):
                first = float(leaf.array.flat[0])
                if np.isfinite(first) and np.all(leaf.array == first):
                    self.learned.setdefault(leaf.name, []).append(first)
        for site, step in instance.sites.items():
            for bind in site.attrs:
                value = dict(step.attrs).get(bind.attribute)
                if bind.name in self._in_conditions and isinstance(value, float):
                    self.learned.setdefault(bind.name, []).append(value)

    def _count(self, pattern: Pattern | None) -> None:
        if isinstance(pattern, Match):
            self.outputs[pattern.node] = max(self.outputs.get(pattern.node, 0), pattern.output + 1)
            for arg in pattern.args:
                self._count(arg)


def _required(conditions: Iterable[Condition]) -> dict[str, frozenset[ir.DataType]]:
    found: dict[str, frozenset[ir.DataType]] = {}
    for condition in conditions:
        for name, types in required_types(condition.expr):
            if isinstance(types, frozenset):
                kinds = frozenset(dtypes(types))
                found[name.name] = found.get(name.name, kinds) & kinds
    return found


def _least_rank(pattern: Match) -> int:
    found = 0
    for node in walk(pattern, once=True):
        if not isinstance(node, Match):
            continue
        for bind in node.attrs:
            if bind.attribute == "axis" and isinstance(bind.equals, Number):
                found = max(found, int(bind.equals.value) + 1)
            elif bind.attribute == "perm" and isinstance(bind.equals, Sequence):
                found = max(found, len(bind.equals.items))
    return found
