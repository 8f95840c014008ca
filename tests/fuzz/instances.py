"""Left sides of the shipped rules as steps of a growing graph, so that every rule meets its pattern, nested at will."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.check.attempt import draw
from eqsat.check.draw_state import Drawing
from eqsat.check.instance import Instance, Leaf
from eqsat.check.instance_data import DTYPES
from eqsat.ops.sampling.chance import Chance, Rejected
from eqsat.rules.ast import Rule
from eqsat.rules.expand import Clause, expand
from eqsat.rules.selection import select_rules
from eqsat.schema.attributes import default_attrs
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Shape
from tests.fuzz.growing import Growing, RefusedError, Value
from tests.fuzz.numbers import data, is_float

ATTEMPTS = 60


class Guided(Chance):
    """Draws what fits the graph: its main type, and shapes that it has."""

    def __init__(self, g: Growing) -> None:
        super().__init__(0)
        self.rng = g.rng
        self._shapes = [v.shape for v in g.values if not v.constant and v.array.size <= 400][-8:]
        self._main = ir.DataType.from_numpy(g.floats)

    def weighted(self, weights: dict[Any, float]) -> Any:
        if weights is DTYPES and self.happens(0.7) and self._main in DTYPES:
            return self._main
        return super().weighted(weights)

    def shape(self, rank: int | None = None, least: int = 0) -> Shape:
        fits = [s for s in self._shapes if len(s) >= least and (rank is None or len(s) == rank)]
        return self.one_of(fits) if fits and self.happens(0.7) else super().shape(rank, least)


@cache
def _rules() -> tuple[tuple[Rule, tuple[Clause, ...]], ...]:
    return tuple((rule, tuple(expand(rule.left))) for rule in select_rules((), "real", default_rules=True).rules)


def rule_count() -> int:
    return len(_rules())


def instance(g: Growing, index: int | None = None) -> list[Value]:
    """The left side of a rule, on values of the graph where they fit and else on new inputs."""
    rules = _rules()
    rule, clauses = rules[g.size(0, len(rules) - 1) if index is None else index % len(rules)]
    drawing = Drawing(rule, g.one_of(clauses))
    for _ in range(ATTEMPTS if index is None else 20 * ATTEMPTS):
        chance = Guided(g)
        try:
            drawn = draw(drawing, chance, "plain")
        except Rejected:
            continue
        return _embedded(g, drawn)
    raise RefusedError("no instance")


def _embedded(g: Growing, drawn: Instance) -> list[Value]:
    taken: dict[str, Value] = {leaf.name: _leaf(g, _possible(leaf, drawn)) for leaf in drawn.leaves}
    for step in drawn.steps:
        defaults = dict(default_attrs(step.op))
        given = tuple((k, v) for k, v in step.attrs if defaults.get(k) != v)
        inputs = [None if name is None else taken[name] for name in step.inputs]
        made = g.add(step.op, step.attrs, given, inputs, len(step.outputs))
        taken |= dict(zip(step.outputs, made, strict=True))
    return [taken[name] for name in drawn.roots]


def _possible(leaf: Leaf, drawn: Instance) -> Leaf:
    """A leaf as integer kernels take it.

    ONNX Runtime's tables want known parameters (a QLinearWhere with others crashes it), and what becomes of an
    accumulator of 32 bits that overflows is open.
    """
    names = {step.op.name for step in drawn.steps}
    if names & {"QLinearConv", "QGemm"} and leaf.array.dtype == np.int32:
        return replace(leaf, array=np.clip(leaf.array, -(2**20), 2**20).astype(np.int32))
    read = [step for step in drawn.steps if leaf.name in step.inputs]
    tables = any(step.op.domain == MICROSOFT and step.op.name.startswith("QLinear") for step in read)
    return replace(leaf, constant=True) if tables and leaf.array.size == 1 else leaf


def _leaf(g: Growing, leaf: Leaf) -> Value:
    if leaf.constant:
        if leaf.array.dtype == np.bool_ and g.chance(0.5):
            # What loading a model does not know to be constant, and the e-graph does.
            return g.op("Not", g.constant(~leaf.array, np.bool_))
        return g.constant(leaf.array, leaf.array.dtype)
    fits = [v for v in g.values if not v.constant and v.shape == leaf.array.shape and v.array.dtype == leaf.array.dtype]
    if fits and g.chance(0.75):
        return g.one_of(fits[-6:])
    array = leaf.array
    if g.wild and is_float(array.dtype) and g.chance(0.3):
        array = data(g.rng, array.shape, array.dtype, wild=True)
    return g.input(array.shape, array.dtype, np.asarray(array))
