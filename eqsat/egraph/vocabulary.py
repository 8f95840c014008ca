"""All constructors of one e-graph, and the clauses that can match in it.

Rules build operators that the model does not contain, which lets further rules match: rules are compiled until no new
constructor appears. Rules whose operators never occur cost nothing, and a rule is compiled again only if one of its
operators has a new constructor: a rule that removes one operand of a `Sum` makes one arity in each pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
        needs = [needed(rule.left) for rule in rules]
        known: list[tuple[int, ...]] = [()] * len(rules)
        compiled: list[list[CompiledClause]] = [[] for _ in rules]
        size = -1
        while size != len(self.constructors):
            size = len(self.constructors)
            for i, (rule, number) in enumerate(zip(rules, numbers, strict=True)):
                if not compiler.may_match(needs[i]):
                    continue
                now = tuple(len(self._by_op.get(op, ())) for op in operators(*rule.left))
                if now != known[i]:
                    look_at_clock()
                    known[i], compiled[i] = now, list(compiler.rule(rule, number))
            clauses = [c for of_rule in compiled for c in of_rule]
            for constructor in (b for clause in clauses for b in clause.built if b.inputs <= largest):
                self.add(constructor)
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
