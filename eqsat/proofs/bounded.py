"""Proofs at bounded ranks and sizes: all shapes and attributes within bounds are tried, with symbols as elements.

Conditions that depend on contents hold or do not hold for all that is tried; they are assumptions of each proof.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.proofs import choices, conditions, term_arrays
from eqsat.proofs.choices import SizeBounds
from eqsat.proofs.scalar_terms import NotModelled, ScalarTerm, number, symbol
from eqsat.proofs.symbolic_shapes import SOLE
from eqsat.proofs.term_tensors import ImpossibleChoice, TermTensor, applied, sizes
from eqsat.rules import ast
from eqsat.rules.arithmetic import truth
from eqsat.rules.ast import Rule
from eqsat.rules.dependencies import uses
from eqsat.rules.evaluation import NodeFacts, Unknown, evaluate
from eqsat.rules.expand import Clause
from eqsat.rules.tree import walk
from eqsat.schema.attributes import default_attrs
from eqsat.schema.opset import attribute_types, find_schema
from eqsat.schema.types import Attrs, OpKey, TensorType


@dataclass
class State:
    """A left side during its construction, operator by operator.

    Attributes:
        names: Tensors by name.
        env: Facts about them for conditions.
        symbols: Attributes that are terms, by name.
        results: Results by operator of the pattern.
        nodes: Attributes of bound nodes, with those that are terms.
    """

    names: dict[str, TermTensor] = field(default_factory=dict)
    env: dict[str, object] = field(default_factory=dict)
    symbols: dict[str, ScalarTerm] = field(default_factory=dict)
    results: dict[Any, list[TermTensor]] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)

    def copy(self) -> State:
        found = copy(self)
        found.names, found.env, found.symbols = dict(self.names), dict(self.env), dict(self.symbols)
        found.results, found.nodes = dict(self.results), dict(self.nodes)
        return found


class TooMuch(Exception):
    """There are more choices than are tried."""


MOST_WORK = 30_000
"""Choices of one clause within one bound."""


class LeftSides:
    """All left sides of a clause within bounds.

    Args:
        dtypes: Element types by name.
    """

    def __init__(self, rule: Rule, clause: Clause, bounds: SizeBounds, dtypes: Mapping[str, ir.DataType]) -> None:
        self.rule = rule
        self.clause = clause
        self.bounds = bounds
        self.dtypes = dtypes
        self.parts = [p for p in conditions.assumed(rule, clause) if not _asks_where_it_helps(p)]
        if any(
            isinstance(p, ast.Member) and p.name == "is_present" and self._is_number(p.of) for p in _parts(self.parts)
        ):
            raise NotModelled("a condition on whether a number is given: not modelled at bounded sizes")
        self._asked = [(part, _names(part)) for part in self.parts]
        self.work = 0
        self._outputs: dict[Any, int] = {}
        self._shaping: set[str] = set()
        self._places: dict[str, tuple[ast.Match, int]] = {}
        self._order: list[ast.Match | ast.Name] = []
        for root in clause.roots:
            self._visit(root)
        random = [p.ops[0] for p in self._order if isinstance(p, ast.Match) and has(p.ops[0], Trait.RANDOM)]
        if random:
            raise NotModelled(f"{random[0]}: draws random numbers")

    def _is_number(self, of: ast.Expr) -> bool:
        """Whether an attribute of a node may be a term."""
        if not isinstance(of, ast.Member) or not isinstance(of.of, ast.Name):
            return False
        ops = [op for m in walk(self.rule.left, ast.operands, once=True) if isinstance(m, ast.Match) for op in m.ops]
        kinds = [attribute_types(op).get(of.name) for op in ops if find_schema(op) is not None]
        return ir.AttributeType.FLOAT in kinds

    # ---- order ------------------------------------------------------------------------------------

    def _visit(self, pattern: ast.Pattern | None) -> None:
        match pattern:
            case ast.Match():
                key = self.key(pattern)
                self._outputs[pattern.node] = max(self._outputs.get(pattern.node, 0), pattern.output + 1)
                shaping = choices.SHAPING.get(pattern.ops[0].name, ()) if not pattern.ops[0].domain else ()
                for i, arg in enumerate(pattern.args):
                    if i in shaping and isinstance(arg, ast.Name):
                        self._shaping.add(arg.name)
                    elif i in shaping and not isinstance(arg, ast.Wildcard | None):
                        raise NotModelled(f"operand {i} of {pattern.ops[0]} that is computed: not modelled")
                for i, arg in enumerate(pattern.args):
                    if i not in shaping:
                        if isinstance(arg, ast.Number | ast.Wildcard | ast.Name):
                            leaf = arg if isinstance(arg, ast.Name) else _named(arg)
                            self._places.setdefault(leaf.name, (pattern, i))
                        self._visit(arg)
                if all(not isinstance(p, ast.Match) or self.key(p) != key or p is not pattern for p in self._order):
                    self._order.append(pattern)
            case ast.Name() if pattern.name not in self._shaping:
                if all(not isinstance(p, ast.Name) or p.name != pattern.name for p in self._order):
                    self._order.append(pattern)
            case ast.Number() | ast.Wildcard():
                self._order.append(_named(pattern))
            case ast.Rest():
                raise NotModelled("an operator of any number of operands: not modelled")

    def key(self, pattern: ast.Match) -> Any:
        """The common part of the occurrences of one node."""
        return pattern.node if self._outputs.get(pattern.node, 0) > 1 or pattern.output else id(pattern)

    # ---- search -----------------------------------------------------------------------------------

    def states(self) -> Iterator[State]:
        """All choices that meet the conditions, as far as they do not depend on contents."""
        yield from self._from(0, State())

    def _from(self, index: int, state: State) -> Iterator[State]:
        if index == len(self._order):
            for alias, name in self.clause.aliases.items():
                if name in state.env:
                    state.env[alias] = state.env[name]
                    if name in state.names:
                        state.names[alias] = state.names[name]
            if self._holds(state, None):
                yield state
            return
        pattern = self._order[index]
        options = self._leaves(pattern, state) if isinstance(pattern, ast.Name) else self._nodes(pattern, state)
        before = frozenset(state.env)
        for option in options:
            self.work += 1
            if self.work > MOST_WORK:
                raise TooMuch
            if self._holds(option, before):
                yield from self._from(index + 1, option)

    def _holds(self, state: State, before: frozenset[str] | None) -> bool:
        """Whether no condition on names bound since ``before`` is known to fail.

        Each is asked once all of its names are bound, and at the end.
        """
        for part, names in self._asked:
            if before is not None and (names <= before or not names <= state.env.keys()):
                continue
            try:
                if not truth(evaluate(part, state.env)):
                    return False
            except Unknown:
                continue
        return True

    # ---- leaves -----------------------------------------------------------------------------------

    def _leaves(self, pattern: ast.Name, state: State) -> Iterator[State]:
        if pattern.name in state.names:
            yield state
            return
        place = self._places.get(pattern.name)
        first = None
        if place is not None and place[1] > 0:
            first = self._operand(place[0].args[0], state, [])
        for shape in choices.shapes(self.bounds):
            if (
                place is not None
                and first is not None
                and not choices.fits(place[0].ops[0], place[1], shape, sizes(first.type))
            ):
                continue
            found = state.copy()
            self._bind(found, pattern.name, self._symbols(pattern.name, shape))
            yield found

    def _symbols(self, name: str, shape: tuple[int, ...]) -> TermTensor:
        def element(place: tuple[int, ...]) -> ScalarTerm:
            return symbol("element", name, ("place", *place) if max(shape, default=1) > 1 else SOLE)

        array = term_arrays.filled(shape, element)
        return TermTensor(TensorType(self.dtypes.get(name, ir.DataType.FLOAT), shape), array)

    def _bind(self, state: State, name: str, tensor: TermTensor) -> None:
        state.names[name] = tensor
        state.env[name] = tensor.facts

    # ---- operators --------------------------------------------------------------------------------

    def _nodes(self, pattern: ast.Match, state: State) -> Iterator[State]:
        key = self.key(pattern)
        if key in state.results:
            found = state.copy()
            self._name(found, pattern, key)
            yield found
            return
        op = pattern.ops[0]
        for given, shaped in self._operands(pattern, state):
            first = next((t.type.shape for t in given if t is not None), ())
            for attrs, terms, bound in self._attributes(op, pattern, shaped, first or ()):
                self.work += 1
                if self.work > MOST_WORK:
                    raise TooMuch
                try:
                    results = self.apply(op, attrs, terms, given, self._outputs[pattern.node])
                except ImpossibleChoice:
                    continue
                found = bound.copy()
                found.results[key] = results[1]
                found.nodes[str(key)] = dict(results[0]) | terms
                self._name(found, pattern, key)
                yield found

    def _name(self, state: State, pattern: ast.Match, key: Any) -> None:
        if pattern.bind is None:
            return
        tensor = state.results[key][pattern.output]
        state.names[pattern.bind] = tensor
        state.nodes[pattern.bind] = state.nodes[str(key)]
        known = tuple((k, v) for k, v in state.nodes[pattern.bind].items() if not isinstance(v, ScalarTerm))
        state.env[pattern.bind] = NodeFacts(pattern.ops[0], known, tensor.facts)

    def _operands(self, pattern: ast.Match, state: State) -> Iterator[tuple[list[TermTensor | None], State]]:
        op, given = pattern.ops[0], []
        wanted: list[int] = []
        shaping = choices.SHAPING.get(op.name, ()) if not op.domain else ()
        for i, arg in enumerate(pattern.args):
            if i in shaping and arg is not None:
                wanted.append(i)
                given.append(None)
            else:
                given.append(self._operand(arg, state, given))
        if not wanted:
            yield given, state
            return
        if given[0] is None:
            raise NotModelled(f"{op} without operands")
        names = [arg.name if isinstance(arg := pattern.args[i], ast.Name) else "" for i in wanted]
        shape = sizes(given[0].type)
        before = frozenset(state.env)
        for values in choices.operands(op, shape, wanted, self._outputs[pattern.node], self.bounds):
            found, chosen = state.copy(), list(given)
            for i, name, value in zip(wanted, names, values, strict=True):
                dtype = ir.DataType.BOOL if value.dtype == bool else ir.DataType.INT64
                tensor = TermTensor(TensorType(dtype, value.shape), value)
                if name in found.names and not np.array_equal(found.names[name].array, value):
                    break
                if name:
                    self._bind(found, name, tensor)
                chosen[i] = tensor
            else:
                if self._holds(found, before):
                    yield chosen, found

    def _operand(self, arg: ast.Pattern | None, state: State, before: list[TermTensor | None]) -> TermTensor | None:
        match arg:
            case None:
                return None
            case ast.Name():
                return state.names[arg.name]
            case ast.Match():
                return state.results[self.key(arg)][arg.output]
            case ast.Number():
                dtype = next((t.type.dtype for t in before if t is not None), self.dtypes.get(".0", ir.DataType.FLOAT))
                if self.rule.numerics.kind == "exact" and arg.value == 0:
                    raise NotModelled("a zero of either sign: not modelled at bounded sizes")
                shape = sizes(state.names[_named(arg).name].type)
                return TermTensor(TensorType(dtype, shape), term_arrays.filled(shape, lambda _: number(arg.value)))
            case ast.Wildcard():
                return state.names[_named(arg).name]
        raise NotModelled(f"{type(arg).__name__.lower()} as an operand: not modelled")

    def _attributes(
        self, op: OpKey, pattern: ast.Match, state: State, x: tuple[Any, ...]
    ) -> Iterator[tuple[dict[str, Any], dict[str, ScalarTerm], State]]:
        """All attributes, the ones that are terms, and the names that they bind."""
        kinds = attribute_types(op) if find_schema(op) is not None else {}
        defaults = dict(default_attrs(op))
        bound = {bind.attribute: bind for bind in pattern.attrs}
        partial: list[tuple[dict[str, Any], dict[str, ScalarTerm], State]] = [({}, {}, state)]
        for name in sorted(set(kinds) | set(defaults) | set(bound)):
            bind = bound.get(name)
            following = []
            for attrs, terms, found in partial:
                if name in kinds and kinds[name] == ir.AttributeType.FLOAT:
                    following += self._number(name, bind, attrs, terms, found, defaults, pattern)
                    continue
                for value in self._values(op, name, bind, found, x, defaults, pattern):
                    after = found
                    if bind is not None and bind.name is not None:
                        after = found.copy()
                        after.env[bind.name] = tuple(value) if isinstance(value, list) else value
                    following.append(({**attrs, **({} if value is None else {name: value})}, terms, after))
            partial = following
        yield from partial

    def _number(
        self, name: str, bind: Any, attrs: Any, terms: Any, found: State, defaults: Any, pattern: ast.Match
    ) -> list[Any]:
        if bind is not None and bind.equals is not None:
            try:
                value = evaluate(bind.equals, found.env)
            except Unknown:
                return []
            return [({**attrs, name: float(value)}, terms, found)]
        if bind is not None and bind.name is not None:
            term = found.symbols.get(bind.name) or symbol("attribute", bind.name)
            after = found.copy()
            after.symbols[bind.name] = term
        else:
            term, after = symbol("attribute", str(pattern.place), name), found
        present = [({**attrs, name: defaults.get(name, 1.0)}, {**terms, name: term}, after)]
        if name in choices.OFF and (bind is None or bind.name is None):
            present.append(({**attrs, name: defaults[name]}, terms, found))
        return present if name in defaults else [*present, (attrs, terms, found)]

    def _values(
        self, op: OpKey, name: str, bind: Any, state: State, x: tuple[Any, ...], defaults: Any, pattern: ast.Match
    ) -> list[Any]:
        if bind is not None and bind.equals is not None:
            try:
                value = evaluate(bind.equals, state.env)
            except Unknown:
                raise NotModelled(f"attribute `{name}` that depends on contents: not modelled") from None
            if op.name == "Softmax" and name == "axis" and value < 0:
                value += len(x)
            return [
                list(value) if isinstance(value, tuple) else int(value) if isinstance(value, ir.DataType) else value
            ]
        if bind is not None and bind.name is not None and bind.name in state.env:
            value = state.env[bind.name]
            return [list(value) if isinstance(value, tuple) else value]
        if name == "kernel_shape" and op.name.startswith("Conv"):
            return [None]
        if name == "group" and op.name == "ConvTranspose":
            return [1, 2]
        if name in choices.ATTRIBUTES:
            return choices.ATTRIBUTES[name](x)
        if name in choices.SETTLED and (bind is None or bind.name is None):
            return [defaults.get(name)]
        if name in (
            "output_shape",
            "output_padding",
            "num_outputs",
            "softmax_precision",
            "q_num_heads",
            "kv_num_heads",
        ):
            if name == "num_outputs" and len(pattern.args) < 2:
                return [self._outputs[pattern.node]]
            return [None]
        raise NotModelled(f"attribute `{name}` of {op}: not modelled at bounded sizes")

    def apply(
        self,
        op: OpKey,
        attrs: dict[str, Any],
        terms: Mapping[str, ScalarTerm],
        given: list[TermTensor | None],
        outputs: int,
    ) -> tuple[Attrs, list[TermTensor]]:
        """The results of an operator, and its attributes in normal form."""
        return applied(op, attrs, terms, given, outputs, exact=self.rule.numerics.kind == "exact")


def _parts(exprs: list[ast.Expr]) -> Iterator[ast.Expr]:
    for expr in exprs:
        yield from walk(expr)


def _named(pattern: ast.Number | ast.Wildcard) -> ast.Name:
    """A leaf without a name, by its place."""
    return ast.Name(f"_{pattern.place.line}:{pattern.place.column}", pattern.place)


def _names(part: ast.Expr) -> frozenset[str]:
    """All names that a condition asks of."""
    found = uses(part)
    return frozenset().union(*(getattr(found, f.name) for f in fields(found)))


def _asks_where_it_helps(part: ast.Expr) -> bool:
    """Whether a condition is about where constants may move, which is true or not without making a rule wrong."""
    return any(isinstance(p, ast.Member) and p.name in ("has_free_term", "has_free_factor") for p in walk(part))
