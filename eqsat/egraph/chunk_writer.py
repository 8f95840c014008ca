"""Writes nodes into an engine by chunks, each one egglog rule without premises.

A thousand top-level ``let`` commands would cost seconds, one rule with as many actions some hundredths. Nodes of one
chunk refer to each other by variables, and to those of earlier chunks by numbers of values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from eqsat.egraph.bindings import bindings
from eqsat.egraph.engine import CHUNK, SPAN, Engine, call, integer
from eqsat.egraph.language import Constructor


class ChunkWriter:
    """Collects actions; ``(ref k)`` is the class of the value of number k.

    Args:
        engine: Receives them. All constructors must have been declared there.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._actions: list[Any] = []
        self._variables: dict[int, Any] = {}
        self._tuples = 0

    def read(self, k: int | None) -> Any:
        """The expression of a value; None is an absent operand."""
        if k is None:
            return call("Const", integer(0))
        return self._variables[k] if k in self._variables else call("ref", integer(k))

    def define(self, k: int, expression: Any, kind: int | None = None, constant: int | None = None) -> None:
        """Gives a number to the value of an expression.

        Args:
            k: The number.
            expression: Of its class.
            kind: The id of its type where known; without it the analysis would take one round for each layer.
            constant: The id of its constant where known.
        """
        variable = bindings.Var(SPAN, f"v{k}")
        self._actions.append(bindings.Let(SPAN, variable.name, expression))
        self.unite(k, variable)
        for function, fact in (("type", kind), ("cval", constant)):
            if fact is not None:
                self._actions.append(bindings.Set(SPAN, function, [variable], integer(fact)))
        self._variables[k] = variable

    def unite(self, k: int, expression: Any) -> None:
        """Says that an expression is equal to a value."""
        self._actions.append(bindings.Union(SPAN, call("ref", integer(k)), expression))

    def say(self, fact: Any) -> None:
        """Adds an expression that is a fact."""
        self._actions.append(bindings.Expr_(SPAN, fact))

    def node(self, constructor: Constructor, attributes: int, operands: Sequence[int | None], rule: int) -> Any:
        """The expression of a node that a rule made.

        Args:
            constructor: Of the node.
            attributes: The id of its attributes.
            operands: Numbers of its operands.
            rule: Number of the rule.
        """
        args = [integer(attributes), *map(self.read, operands)]
        self._actions.append(bindings.Set(SPAN, f"made_{constructor.name}", args, integer(rule)))
        return call(constructor.name, *args)

    def results(self, constructor: Constructor, expression: Any, count: int) -> Iterator[Any]:
        """The expressions of a node's results: the node itself, or the projections of a tuple."""
        if not constructor.outputs:
            yield expression
            return
        name, self._tuples = f"m{self._tuples}", self._tuples + 1
        self._actions.append(bindings.Let(SPAN, name, expression))
        for i in range(count):
            yield call("out", bindings.Var(SPAN, name), integer(i))

    def end_node(self) -> None:
        """Writes the chunk if it is large enough."""
        if len(self._actions) > 4 * CHUNK:  # A node has about four.
            self.flush()

    def flush(self) -> None:
        """Writes what has been collected."""
        self._engine.run_once(self._actions)
        self._actions.clear()
        self._variables.clear()
