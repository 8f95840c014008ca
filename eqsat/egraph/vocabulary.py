"""All constructors of one e-graph, and the clauses that can match in it.

Rules build operators that the model does not contain, which lets further rules match: rules are compiled until no new
constructor appears. Rules whose operators never occur cost nothing, and a rule is compiled again only if one of its
operators has a new constructor: a rule that removes one operand of a `Sum` makes one arity in each pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from eqsat.egraph.compile_rules import CompiledClause, Compiler
from eqsat.egraph.language import MOST_OPERANDS, Constructor
from eqsat.rules.ast import Composite, Rule, Target
from eqsat.rules.expand import needed, operators
from eqsat.schema.types import OpKey


class Vocabulary:
    """Attributes:
    constructors: By egglog name, in order of first use.
    """

    def __init__(self) -> None:
        self.constructors: dict[str, Constructor] = {}
        self._by_op: dict[OpKey, list[Constructor]] = {}

    def add(self, constructor: Constructor) -> None:
        """Adds a constructor; with a tuple of optional outputs also the form that has only the first."""
        if constructor.name in self.constructors:
            return
        self.constructors[constructor.name] = constructor
        self._by_op.setdefault(constructor.op, []).append(constructor)
        if constructor.first_stands_alone:
            self.add(constructor.first)

    def compile_rules(
        self, rules: Sequence[Rule], numbers: Sequence[int], look_at_clock: Callable[[], None] = lambda: None
    ) -> list[CompiledClause]:
        """All clauses that can match; variadic operators may grow to about twice the model's largest arity.

        Their number is bounded, because each arity needs its own table and clauses.
        """
        largest = min(2 * max((c.inputs for c in self.constructors.values()), default=1) + 8, MOST_OPERANDS)
        compiler = Compiler(self._by_op)
        clauses: list[CompiledClause] = []
        patterns = _read_of(tuple(rules))
        compiled: list[list[CompiledClause]] = [[] for _ in rules]
        fresh = frozenset(self._by_op)
        while fresh:
            for i, (rule, number, (occurring, needs)) in enumerate(zip(rules, numbers, patterns, strict=True)):
                if not fresh.isdisjoint(occurring) and compiler.may_match(needs):
                    look_at_clock()
                    compiled[i] = list(compiler.rule(rule, number))
            clauses = [c for of_rule in compiled for c in of_rule]
            known = {op: len(constructors) for op, constructors in self._by_op.items()}
            for constructor in (b for clause in clauses for b in clause.built if b.inputs <= largest):
                self.add(constructor)
            fresh = frozenset(op for op, constructors in self._by_op.items() if len(constructors) > known.get(op, 0))
        clauses = [c for c in clauses if all(b.name in self.constructors for b in c.built)]
        for i, clause in enumerate(clauses):
            clause.key = f"r{i}_"
        return clauses

    def compile_composites(self, composites: Sequence[tuple[Target, Composite, int]]) -> list[CompiledClause]:
        """All clauses of targets' composites, each with the number of its definition."""
        compiler = Compiler(self._by_op)
        clauses = [c for target, composite, n in composites for c in compiler.composite(composite, target.name, n)]
        for i, clause in enumerate(clauses):
            clause.key = f"k{i}_"
            for constructor in clause.built:
                self.add(constructor)
        return clauses


@lru_cache(maxsize=16)
def _read_of(rules: tuple[Rule, ...]) -> tuple[tuple[tuple[OpKey, ...], tuple[frozenset[OpKey], ...]], ...]:
    """For each rule the operators in its patterns, and the operators that it needs."""
    return tuple((operators(*rule.left), needed(rule.left)) for rule in rules)
