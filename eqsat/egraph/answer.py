"""Answers one signature of a clause: whether it applies, and with which attributes, constants or composite.

Called once for each distinct combination of attributes, types and small constants that a pattern met.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from eqsat.egraph.clause_refusal import ATTRIBUTES, RIGHT, ClauseRefusal, of_condition
from eqsat.egraph.compile_rules import CompiledClause
from eqsat.egraph.intern import Numbers, Tables
from eqsat.egraph.made_constants import OutOfRange
from eqsat.egraph.magnitudes import bound
from eqsat.egraph.query import MatchedOperator
from eqsat.egraph.signature import const_names
from eqsat.egraph.template import Answer, Evaluation, NotApplicable, TypeMismatch, literal
from eqsat.egraph.undecided import UndecidedCount
from eqsat.model.normalize import complete
from eqsat.rules.ast import Composite, Rule
from eqsat.rules.evaluation import NodeFacts, TensorFacts, Unknown, evaluate, holds
from eqsat.rules.wording import in_words
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import CONSTANT, Attrs, OpKey, TensorAttr, TensorType


@dataclass(frozen=True)
class CompositeInstance:
    """The meaning of a composite e-node: its definition and the concrete body that matched.

    Attributes:
        leaves: Name in the pattern of each input, None without one.
        nodes: Name of each bound node, its operator and attributes.
        attributes: Name of each bound attribute and its value.
        results: For a composite with several results, the names of these values, and their numbers.
        types: Name of each bound node and the type of its value, if the composite is written as an operator whose
            attributes may depend on them.
    """

    target: str
    composite: Composite
    body: Body
    leaves: tuple[str | None, ...]
    nodes: tuple[tuple[str, OpKey, Attrs], ...]
    attributes: tuple[tuple[str, object], ...]
    results: tuple[tuple[str, int], ...] = ()
    types: tuple[tuple[str, TensorType], ...] = ()

    def names(self, types: Sequence[TensorType | None]) -> dict[str, object]:
        """The values of its nodes' and attributes' names, for costs and calls.

        Args:
            types: Of the results.
        """
        known = {name: TensorFacts(kind) for name, kind in self.types}
        env: dict[str, object] = {name: NodeFacts(op, attrs, known.get(name)) for name, op, attrs in self.nodes}
        nodes = {k: env[name] for name, k in self.results if name in env}
        for name, k in self.results:
            node, facts = nodes.get(k), TensorFacts(types[k])
            env[name] = replace(node, output=facts) if isinstance(node, NodeFacts) else facts
        return env | dict(self.attributes)


class Answerer:
    """Answers signatures of one clause.

    Attributes:
        mismatch: First message of a type mismatch, empty if there was none.
        mismatches: Number of signatures with a mismatch.
        misfit: First message of a constant that its element type cannot hold, empty if there was none.
        misfits: Number of signatures with a misfit.
        unknown: First message of a right side that cannot be computed, empty if there was none.
        undecided: Signatures on which the clause does not apply because of free sizes.
    """

    def __init__(self, clause: CompiledClause, tables: Tables, places: Sequence[Mapping[str, int]] = ()) -> None:
        self.clause = clause
        self.tables = tables
        self.mismatch = ""
        self.mismatches = 0
        self.misfit = ""
        self.misfits = 0
        self.unknown = ""
        self.undecided = UndecidedCount(places)
        self._names = {v: k for k, v in clause.query.tensors.items()}

    def answer(self, key: tuple[int, ...]) -> Answer | None:
        """The answer to a signature; None if the clause does not apply."""
        found = self.judge(key)
        return found if isinstance(found, Answer) else None

    def judge(self, key: tuple[int, ...]) -> Answer | ClauseRefusal:
        """The answer to a signature, or the reason why the clause does not apply."""
        clause = self.clause
        facts, attrs = self._facts(key)
        env = self.names(facts, attrs)
        if isinstance(env, ClauseRefusal):
            return env
        refused = self.conditions(env)
        if refused is not None:
            assert refused.condition is not None
            conditions = [c for c in clause.definition.where if not const_names(c)]
            self.undecided.look(refused.condition, conditions, facts, lambda bound: self._known_names(bound, attrs))
            return refused
        if clause.layout is None:
            return Answer((self.tables.composites.id(self._instance(facts, attrs, env)),))
        roots = [self._root_type(facts, root) for root in clause.query.roots]
        assert isinstance(clause.definition, Rule)
        exact = clause.definition.numerics.kind == "exact"
        try:
            numbers = self._numbers(key)
            return Evaluation(clause.layout, self.tables, facts, env, roots, numbers, exact=exact).answer()
        except OutOfRange as error:
            self.misfits += 1
            self.misfit = self.misfit or str(error)
            return ClauseRefusal(RIGHT, "a right side whose constants fit their types", str(error))
        except NotApplicable as error:
            self.unknown = self.unknown or str(error)
            return ClauseRefusal(RIGHT, "a right side that can be computed", str(error))
        except TypeMismatch as error:
            self.mismatches += 1
            self.mismatch = self.mismatch or str(error)
            return ClauseRefusal(RIGHT, "a right side of the type of the left side", str(error))

    def conditions(self, env: Mapping[str, object], *, constants: bool = False) -> ClauseRefusal | None:
        """The first condition that does not hold.

        Args:
            env: The values of the pattern's names.
            constants: Look at ``const(...)`` as well, which egglog checks for the signatures that Python answers.
        """
        conditions = [c for c in self.clause.definition.where if constants or not const_names(c)]
        failed = holds(conditions, env)
        return None if failed is None else of_condition(failed, conditions.index(failed), len(conditions), env)

    def names(self, facts: Mapping[str, TensorFacts], attrs: Mapping[str, Attrs]) -> dict[str, object] | ClauseRefusal:
        """The values of the pattern's names, or why a number or an attribute is not the pattern's.

        Args:
            facts: By egglog variable.
            attrs: By egglog variable.
        """
        for variable, wanted in self.clause.query.numbers:
            if not is_number(facts[variable], wanted):
                return ClauseRefusal(0.0, f"the constant {wanted:g}", "another value")
        env = self._env(facts, attrs)
        try:
            return self._bind(env, attrs, facts) or env
        except Unknown as error:
            return ClauseRefusal(ATTRIBUTES, "an attribute that can be computed", str(error))

    def _known_names(self, facts: Mapping[str, TensorFacts], attrs: Mapping[str, Attrs]) -> dict[str, object] | None:
        found = self.names(facts, attrs)
        return None if isinstance(found, ClauseRefusal) else found

    def _root_type(self, facts: Mapping[str, TensorFacts], root: str) -> TensorType:
        found = facts[root].type
        assert found is not None
        return found

    def _facts(self, key: tuple[int, ...]) -> tuple[dict[str, TensorFacts], dict[str, Attrs]]:
        types: dict[str, TensorType | None] = {}
        values: dict[str, np.ndarray | None] = {}
        attrs: dict[str, Attrs] = {}
        free: set[tuple[str, str]] = set()
        bounds: dict[str, float] = {}
        for column, number in zip(self.clause.columns, key, strict=True):
            if column.kind == "attrs":
                attrs[column.variable] = self.tables.attrs[number]
            elif column.kind == "type":
                types[column.variable] = self.tables.types[number]
            elif column.kind == "value":
                constant = self.tables.constants[number]
                values[column.variable] = constant.numpy()
                types.setdefault(column.variable, constant.type)
            elif column.kind == "element":
                element = self.tables.elements[number]
                values[column.variable] = element.numpy()
                types.setdefault(column.variable, TensorType(element.dtype, ()))
            elif column.kind in ("free_term", "free_factor") and number == 1:
                free.add((column.kind, column.variable))
            elif column.kind == "bound":
                bounds[column.variable] = bound(number)
        query = self.clause.query
        variables = [*query.leaves, *(s.value for s in query.sites), *(v for v, _ in query.numbers)]
        facts = {}
        for v in variables:
            constant = v in self.clause.constants or v in values
            term, factor = (("free_term", v) in free, ("free_factor", v) in free)
            reach = bounds.get(v, math.inf)
            facts[v] = TensorFacts(types.get(v), values.get(v), constant, True, term, factor, reach)
        return facts, attrs

    def _numbers(self, key: tuple[int, ...]) -> dict[str, Numbers]:
        """The known facts about the constant operands."""
        pairs = zip(self.clause.columns, key, strict=True)
        found = ((c.variable, self.tables.numbers[n]) for c, n in pairs if c.kind == "numbers")
        known = {variable: numbers for variable, numbers in found if numbers is not None}
        if any(self.tables.is_infinite(known[v]) for v in self.clause.watched if v in known):
            raise OutOfRange("an operand is a constant that is infinite or not a number")
        return known

    def _env(self, facts: Mapping[str, TensorFacts], attrs: Mapping[str, Attrs]) -> dict[str, object]:
        query = self.clause.query
        env: dict[str, object] = {}
        for name, variable in query.tensors.items():
            env[name] = facts[variable]
        for name, variables in query.rests.items():
            env[name] = [facts[v] for v in variables]
        for site in query.sites:
            if site.match.bind is not None:
                tensor = facts[site.value]
                env[site.match.bind] = NodeFacts(site.constructor.op, attrs.get(site.attrs, ()), tensor)
        for alias, name in self.clause.aliases.items():
            if name in env:
                env[alias] = env[name]
        return env

    def _bind(
        self, env: dict[str, object], attrs: Mapping[str, Attrs], facts: Mapping[str, TensorFacts]
    ) -> ClauseRefusal | None:
        """Binds attributes by name; the reason where a required value differs."""
        required = []
        for site in self.clause.query.sites:
            bundle = dict(attrs.get(site.attrs, ()))
            for bind in site.match.attrs:
                value = bundle.get(bind.attribute)
                if value is None:
                    return _other(site, bind.attribute, "a value", "none")
                if bind.name is None:
                    required.append((value, site, bind))
                elif bind.name in env:
                    if env[bind.name] != value:
                        return _other(site, bind.attribute, in_words(env[bind.name]), in_words(value))
                else:
                    env[bind.name] = value
        for value, site, bind in required:
            wanted = evaluate(bind.equals, env)
            if isinstance(wanted, np.ndarray | list):
                wanted = tuple(np.asarray(wanted).tolist())
            if isinstance(wanted, float) and isinstance(value, float):
                wanted = float(np.float32(wanted))
            if wanted != value and not _means(site, bind.attribute, wanted, attrs, facts):
                return _other(site, bind.attribute, in_words(wanted), in_words(value))
        return None

    def _results(self) -> tuple[tuple[str, int], ...]:
        query = self.clause.query
        return tuple((n, query.roots.index(v)) for n, v in sorted(query.tensors.items()) if v in query.roots)

    def _instance(
        self, facts: Mapping[str, TensorFacts], attrs: Mapping[str, Attrs], env: Mapping[str, object]
    ) -> CompositeInstance:
        clause, query = self.clause, self.clause.query
        assert isinstance(clause.definition, Composite)
        values: dict[str, int | None] = {v: i for i, v in enumerate(query.leaves)}
        nodes: list[BodyNode] = []
        count = len(values)
        for variable, _ in query.numbers:
            fact = facts[variable]
            assert fact.value is not None and fact.type is not None
            shape = tuple(d for d in fact.type.shape or () if isinstance(d, int))
            constant = (("value", TensorAttr(np.broadcast_to(fact.value, shape), fact.type.dtype)),)
            nodes.append(BodyNode(CONSTANT, constant, ()))
            values[variable] = count
            count += 1
        first: dict[str, int] = {}
        for site in query.sites:
            if site.attrs not in first:
                first[site.attrs] = count
                inputs = tuple(values.get(o) for o in site.operands)
                outputs = max(site.constructor.outputs, 1)
                nodes.append(BodyNode(site.constructor.op, attrs[site.attrs], inputs, outputs))
                count += outputs
            values[site.value] = first[site.attrs] + site.match.output
        results = [values[root] for root in query.roots]
        names = {s.match.bind for s in query.sites if s.match.bind is not None}
        bound = {b.name for s in query.sites for b in s.match.attrs if b.name is not None}
        return CompositeInstance(
            clause.target,
            clause.definition,
            Body(len(query.leaves), tuple(nodes), tuple(r for r in results if r is not None)),
            tuple(query.names_of.get(v) for v in query.leaves),
            tuple((n, f.op, f.attrs) for n in sorted(names) if isinstance(f := env.get(n), NodeFacts)),
            tuple((n, env[n]) for n in sorted(bound)),
            self._results() if len(results) > 1 else (),
            _types(env, names) if clause.definition.written is not None else (),
        )


def is_number(fact: TensorFacts, wanted: int | float) -> bool:
    """Whether all elements of a tensor equal a number of a pattern."""
    if fact.value is None or fact.type is None or fact.value.size == 0:
        return False
    if isinstance(wanted, bool) and fact.type.dtype != ir.DataType.BOOL:
        return False
    try:
        number = literal(wanted, fact.type.dtype)
        # If a type cannot hold the number, no constant of the type equals it.
        held = bool(np.isfinite(number)) == math.isfinite(wanted) and bool(number) == bool(wanted)
        return held and bool(np.all(fact.value == number))
    except (ValueError, OverflowError, TypeError):
        return False


def _other(site: MatchedOperator, attribute: str, wanted: str, found: str) -> ClauseRefusal:
    return ClauseRefusal(ATTRIBUTES, f"{site.constructor.op} with {attribute} = {wanted}", f"{attribute} = {found}")


def _types(env: Mapping[str, object], names: Iterable[str]) -> tuple[tuple[str, TensorType], ...]:
    """The types of the values of some nodes, where known."""
    facts = ((name, env.get(name)) for name in sorted(names))
    outputs = ((name, node.output) for name, node in facts if isinstance(node, NodeFacts))
    return tuple((name, output.type) for name, output in outputs if output is not None and output.type is not None)


def _means(
    site: MatchedOperator, attribute: str, wanted: object, attrs: Mapping[str, Attrs], facts: Mapping[str, TensorFacts]
) -> bool:
    """Whether a required attribute says the same as a node's, which are in normal form: an axis may be counted from the
    end, padding given by ``auto_pad``, and an equation written in other letters.
    """
    if not isinstance(wanted, int | tuple | str):
        return False
    types = [facts[v].type if v in facts else None for v in site.operands]
    bundle = tuple((name, wanted if name == attribute else value) for name, value in attrs[site.attrs])
    outputs = max(site.constructor.outputs, 1)
    return dict(complete(site.constructor.op, bundle, types, outputs)) == dict(attrs[site.attrs])
