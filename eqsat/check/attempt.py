"""One instance of a clause: from the root down, each operator requests operands of fitting shapes.

A request is only a wish: a variable that occurs twice keeps its first value. Whether all fits is
settled by type inference and by the rule's own conditions, and what does not is drawn again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.check import instance_data
from eqsat.check.draw_state import Drawing
from eqsat.check.instance import Drawn, Instance, Leaf, LeftOperator
from eqsat.check.instance_data import Mood
from eqsat.check.pattern_node import PatternNode, Request
from eqsat.check.sides_of_or import met
from eqsat.check.wanted_values import keys_of
from eqsat.egraph import magnitudes
from eqsat.egraph.template import literal
from eqsat.errors import EqsatError
from eqsat.model.inference.infer import infer_types
from eqsat.model.normalize import complete
from eqsat.ops.operators import operator, sampler
from eqsat.ops.sampling.chance import Chance, Rejected
from eqsat.rules.ast import Match, Name, Number, Pattern, Rest, Wildcard
from eqsat.rules.evaluation import NodeFacts, TensorFacts, Unknown, evaluate, holds
from eqsat.rules.print_term import flat
from eqsat.schema.attributes import default_attrs, make_attrs
from eqsat.schema.types import Attrs, OpKey, Shape, TensorType

WISHED = 0.8
"""How often a leaf is drawn as the conditions ask for; otherwise it is left to chance, which they may want as well."""
_ADD, _MUL = OpKey("", "Add"), OpKey("", "Mul")


@dataclass(frozen=True)
class _Twins:
    """The common part of patterns that may be one node."""

    results: list[Drawn]
    step: LeftOperator


def draw(drawing: Drawing, chance: Chance, mood: Mood = "plain") -> Instance:
    """One instance of a clause.

    Raises:
        Rejected: It does not fit together.
    """
    return Attempt(drawing, chance, mood).instance()


@dataclass
class Attempt:
    """An instance while it is drawn.

    Attributes:
        main: Element type of values whose type nothing else decides.
        names: Values that the pattern binds.
        env: Facts about them for conditions, and the values of attributes and ``let``s.
        made: Drawn values by pattern.
        shared: Drawn nodes by the common part of their occurrences.
        sites: Step of each pattern.
        sides: The sides of alternatives in conditions that it should meet.
    """

    drawing: Drawing
    chance: Chance
    mood: Mood
    main: ir.DataType = ir.DataType.FLOAT
    leaves: dict[str, Leaf] = field(default_factory=dict)
    steps: list[LeftOperator] = field(default_factory=list)
    names: dict[str, Drawn] = field(default_factory=dict)
    env: dict[str, object] = field(default_factory=dict)
    made: dict[int, Drawn] = field(default_factory=dict)
    shared: dict[Any, _Twins] = field(default_factory=dict)
    sites: dict[Match, LeftOperator] = field(default_factory=dict)
    sides: dict[int, bool] = field(default_factory=dict)

    def instance(self) -> Instance:
        self.sides = self.drawing.wishes.sides(self.chance)
        self.main = self.chance.weighted(self.drawing.dtypes)
        rank = self.drawing.rank
        shape = self.chance.shape(rank) if rank and self.chance.happens(0.5) else None
        roots = [self.match(root, None, shape) for root in self.drawing.clause.roots]
        if any(root.constant for root in roots):
            raise Rejected("a root is constant")
        for alias, name in self.drawing.clause.aliases.items():
            if name in self.env:
                self.env[alias] = self.env[name]
        failed = holds(self.drawing.conditions, self.env)
        if failed is not None:
            raise Rejected(f"the condition `{flat(failed.expr)}` ({failed.place}) cannot be met")
        return Instance(
            self.drawing.rule,
            self.drawing.clause,
            tuple(self.leaves.values()),
            tuple(self.steps),
            tuple(root.name for root in roots),
            self.sites,
            met(self.drawing.conditions, self.env),
        )

    # ---- patterns ---------------------------------------------------------------------------------

    def known(self, pattern: Pattern | None) -> Drawn | None:
        """The value of a pattern that has been drawn before."""
        if isinstance(pattern, Name):
            return self.names.get(pattern.name)
        return self.made.get(id(pattern)) if isinstance(pattern, Match) else None

    def operand(self, pattern: Pattern, request: Request) -> Drawn:
        """The value of a pattern in an operand's place."""
        found = self.known(pattern)
        if found is not None:
            return found
        match pattern:
            case Name():
                return self.leaf(pattern.name, request)
            case Wildcard():
                return self.leaf("", request)
            case Number():
                return self.number(pattern.value, request.dtype, () if request.shape is None else request.shape)
            case Match():
                return self.match(pattern, request.dtype, request.shape)
            case _:
                raise Rejected(f"{type(pattern).__name__} is not a single operand")

    def leaf(self, name: str, request: Request) -> Drawn:
        """A new input or constant; ``""`` is a name that the rule does not give."""
        chance, demands = self.chance, self.drawing.demands
        dtype, shape, values = request.dtype, request.shape, request.values
        matters = name in demands.values
        constant = name in demands.constants or values is not None or chance.happens(0.08)
        if shape is None:
            shape = chance.shape() if values is None else values.shape
        wishes = self.drawing.wishes
        wished = name in wishes and chance.happens(WISHED)
        if wished and values is None:
            env = {**self.env, **request.seen}
            shape = wishes.shape(name, shape, dtype, env, chance, self.sides, of_size=request.of_size)
        if values is None and matters:
            values = self._asked(name, dtype, shape)
        asked = wished and (values is not None or matters)
        if values is None and not self.drawing.executed:
            values = np.broadcast_to(np.zeros((), dtype.numpy()), shape)
        elif values is None:
            mood: Mood = self.mood if not constant or not matters else "plain"
            pool = self.drawing.pool
            mentioned = pool.mentioned if self.drawing.pointed else None
            values = instance_data.array(chance, shape, dtype, request.fill, mood, mentioned, pool.reached)
        if asked:
            values = wishes.contents(name, np.asarray(values), self.env, chance, self.sides)
        found = np.asarray(values, dtype.numpy())
        if name in demands.bounds and dtype.is_floating_point() and chance.happens(0.6):
            found = instance_data.hiding(chance, found, dtype)
        return self._add(name, found, dtype, constant)

    def _asked(self, name: str, dtype: ir.DataType, shape: Shape) -> np.ndarray | None:
        """Contents that the rule's conditions may require; None leaves them to chance."""
        known = self.drawing.learned.get(name)
        if known is not None and dtype.is_floating_point() and self.chance.happens(0.5):
            with np.errstate(over="ignore"):
                return np.full(shape, self.chance.one_of(known)).astype(dtype.numpy())
        if dtype == ir.DataType.BOOL or self.chance.happens(0.2):
            return None
        each = shape if self.chance.happens(0.15) else ()
        drawn = [self.drawing.pool.draw(self.chance, dtype) for _ in range(int(np.prod(each)))]
        if dtype.is_integer():
            low, high = (int(v) for v in instance_data.limits(dtype))
            if any(v != v or not low <= v <= high or v != int(v) for v in drawn):
                return None
            exact = np.asarray([int(v) for v in drawn], dtype=object)
            return np.broadcast_to(exact.reshape(each), shape).astype(dtype.numpy())
        with np.errstate(over="ignore"):
            return np.broadcast_to(np.asarray(drawn, np.float64).reshape(each), shape).astype(dtype.numpy())

    def number(self, value: float, dtype: ir.DataType, shape: Shape) -> Drawn:
        try:
            array = literal(value, dtype)
        except (ValueError, OverflowError, TypeError):
            raise Rejected(f"{value} is not a {dtype.name.lower()}") from None
        if 0 in shape:
            raise Rejected("a number that does not occur")
        if value == 0 and dtype.is_floating_point() and self.chance.happens(0.2):
            array = -array  # It also equals 0.
        return self._add("", np.broadcast_to(array, shape).copy(), dtype, True)

    def _add(self, name: str, array: np.ndarray, dtype: ir.DataType, constant: bool) -> Drawn:
        known = TensorType(dtype, array.shape)
        exponent = None
        if name in self.drawing.demands.bounds and dtype.is_floating_point() and (constant or self.chance.happens(0.7)):
            exponent = magnitudes.exponent(float(np.abs(array).max(initial=0)))
        value = array if constant else None
        drawn = Drawn(name or self._unique("c" if constant else "v"), known, constant, value, exponent)
        self.leaves[drawn.name] = Leaf(drawn.name, array, known, constant, exponent)
        if name:
            self.names[name] = drawn
            self.env[name] = drawn.facts
        return drawn

    def _unique(self, stem: str) -> str:
        taken = {*self.leaves, *(o for s in self.steps for o in s.outputs), *self.drawing.demands.constants}
        k = 1
        while f"_{stem}{k}" in taken:
            k += 1
        return f"_{stem}{k}"

    # ---- operators ----------------------------------------------------------------------------------

    def match(self, pattern: Match, dtype: ir.DataType | None, shape: Shape | None) -> Drawn:
        if id(pattern) in self.made:
            return self.made[id(pattern)]
        key = pattern.node
        twins = self.shared.get(key)
        # Outputs of one pattern are outputs of one node; patterns of one output may also be two equal nodes.
        if twins is not None and (self.drawing.outputs[key] > 1 or self.chance.happens(0.65)):
            drawn = twins.results[pattern.output]
            self._bind(pattern, twins.step.attrs)
            self.sites[pattern] = twins.step
        else:
            drawn = self._node(pattern, key, dtype, shape)
        self.made[id(pattern)] = drawn
        if pattern.bind is not None:
            step = self.sites[pattern]
            self.names[pattern.bind] = drawn
            # These two facts decide where a rewrite helps, not where it is right: any sum or product will do.
            free = [step.op == op and not self._is_neutral(pattern, x) for op, x in ((_ADD, 0), (_MUL, 1))]
            facts = replace(drawn.facts, free_term=free[0], free_factor=free[1])
            self.env[pattern.bind] = NodeFacts(step.op, step.attrs, facts)
        return drawn

    def _is_neutral(self, pattern: Match, neutral: int) -> bool:
        """Whether a constant among the operands changes nothing."""
        drawn = [self.names.get(arg.name) if isinstance(arg, Name) else self.made.get(id(arg)) for arg in pattern.args]
        values = [d.value for d in drawn if d is not None and d.constant and d.value is not None]
        return any(bool(np.all(v == neutral)) for v in values)

    def _node(self, pattern: Match, key: Any, dtype: ir.DataType | None, shape: Shape | None) -> Drawn:
        op = pattern.ops[0]
        args = self._args(pattern)
        required = self._required(pattern)
        if dtype is None and pattern.bind is not None and len(self.drawing.required.get(pattern.bind, ())) == 1:
            (dtype,) = self.drawing.required[pattern.bind]
        # A root has no type yet. Its shape is wished for all the same where nothing is executed: sizes may be large.
        shaped = not self.drawing.executed and pattern.bind is not None and pattern.bind in self.drawing.wishes
        if dtype is not None or shaped:
            likely = self.main if dtype is None else dtype
            shape = self._wished(pattern, likely, shape)
            self._foresee(pattern, likely, shape)
        node = PatternNode(self, pattern, args, required, dtype, shape, self.drawing.outputs[key])
        sampler(op)(node)
        for name, default in default_attrs(op):
            if name in node.asked:
                node.attr(name, default)
        operands = node.operands()
        types = [None if o is None else o.type for o in operands]
        values = [None if o is None else o.value for o in operands]
        try:
            attrs = complete(op, make_attrs(op, node.attrs), types, node.outputs)
            found = infer_types(op, attrs, types, values, node.outputs)
        except EqsatError as error:
            raise Rejected(str(error)) from None
        self._bind(pattern, attrs)
        constant = all(o is None or o.constant for o in operands)
        names = [self._unique(op.name.lower())]
        names += [f"{names[0]}_{i}" for i in range(1, node.outputs)]
        results = []
        for name, known in zip(names, found, strict=True):
            if known is None or not known.is_static:
                raise Rejected(f"the type of {op} is not known")
            results.append(Drawn(name, known, constant))
        inputs = tuple(None if o is None else o.name for o in operands)
        self.steps.append(LeftOperator(op, attrs, inputs, tuple(names), results[0].type))
        self.sites[pattern] = self.steps[-1]
        self.shared[key] = _Twins(results, self.steps[-1])
        return results[pattern.output]

    def _wished(self, pattern: Match, dtype: ir.DataType, shape: Shape | None) -> Shape | None:
        """The shape of a result, as conditions on it and on the lengths of attributes ask for it."""
        wishes, chance = self.drawing.wishes, self.chance
        rank = wishes.rank(pattern, self.env, chance, self.sides)
        if rank is not None and (shape is None or len(shape) != rank) and chance.happens(WISHED):
            shape = chance.shape(rank)
        if pattern.bind is not None and pattern.bind in wishes and chance.happens(WISHED):
            given = chance.shape() if shape is None else shape
            shape = wishes.shape(pattern.bind, given, dtype, self.env, chance, self.sides)
        return shape

    def _foresee(self, pattern: Match, dtype: ir.DataType, shape: Shape | None) -> None:
        """Shows the wished shape of a result to conditions on its parts."""
        if pattern.bind is not None and shape is not None:
            facts = TensorFacts(TensorType(dtype, shape), None, False, True, False, False)
            self.env.setdefault(pattern.bind, NodeFacts(pattern.ops[0], (), facts))

    def wished(self, pattern: Match, dtype: ir.DataType, shape: Shape) -> Shape:
        """The shape that conditions require of a result, given the values known so far."""
        if pattern.bind is None or pattern.bind not in self.drawing.wishes:
            return shape
        env = {name: facts for name, facts in self.env.items() if name != pattern.bind}
        return self.drawing.wishes.shape(pattern.bind, shape, dtype, env, self.chance, self.sides)

    def attribute(self, pattern: Match, name: str, value: Any, attrs: Mapping[str, Any]) -> Any:
        """The value that conditions require of an attribute that the operator may choose.

        Args:
            value: The operator's choice.
            attrs: The attributes decided so far.
        """
        wishes = self.drawing.wishes
        keys = [key for key in keys_of(pattern, name) if key in wishes]
        if not keys or not self.chance.happens(WISHED):
            return value
        env = {**self.env, **self.seen(pattern, attrs)}
        return wishes.attribute(keys, value, env, self.chance, self.sides)

    def seen(self, pattern: Match, attrs: Mapping[str, Any]) -> dict[str, object]:
        """Facts for conditions about an incomplete operator: its attributes decided so far."""
        found: dict[str, object] = {}
        for bind in pattern.attrs:
            if bind.name is not None and bind.name not in self.env and bind.attribute in attrs:
                found[bind.name] = attrs[bind.attribute]
        if pattern.bind is not None:
            foreseen = self.env.get(pattern.bind)
            output = foreseen.output if isinstance(foreseen, NodeFacts) else None
            found[pattern.bind] = NodeFacts(pattern.ops[0], tuple(attrs.items()), output)
        return found

    def _args(self, pattern: Match) -> list[Pattern | None]:
        args: list[Pattern | None] = []
        for arg in pattern.args:
            if isinstance(arg, Rest):
                types = operator(pattern.ops[0]).typed_like
                each = 1 if types is None else types.group
                count = each * self.chance.number(0 if each == 1 else 1, 2)
                rest: list[Pattern | None] = [Name(f"{arg.name}_{i}", arg.place) for i in range(count)]
                args += rest
            else:
                args.append(arg)
        return args

    def _required(self, pattern: Match) -> dict[str, Any]:
        """Attributes that the pattern prescribes, as far as they are known by now."""
        required: dict[str, Any] = {}
        for bind in pattern.attrs:
            if bind.name is not None:
                known = self.drawing.learned.get(bind.name)
                if known is not None and self.chance.happens(0.5):
                    required[bind.attribute] = self.chance.one_of(known)
                if bind.name in self.env:
                    required[bind.attribute] = self.env[bind.name]
            elif bind.equals is not None:
                try:
                    required[bind.attribute] = evaluate(bind.equals, self.env)
                except Unknown:
                    continue
        return required

    def _bind(self, pattern: Match, attrs: Attrs) -> None:
        bundle = dict(attrs)
        for bind in pattern.attrs:
            if bind.attribute not in bundle:
                raise Rejected(f"no attribute {bind.attribute}")
            if bind.name is None:
                continue
            if self.env.setdefault(bind.name, bundle[bind.attribute]) != bundle[bind.attribute]:
                raise Rejected(f"{bind.name} is bound to another value")
