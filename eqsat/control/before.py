"""The cost of an unchanged model on the host, with its bodies as often as they run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from eqsat.control.body_as_model import body_model
from eqsat.control.recurrent.trips import outer_number
from eqsat.egraph.encode import operands
from eqsat.errors import EqsatError
from eqsat.extract.body_costs import BodyCost, BodyCosts, mean_seconds
from eqsat.ops.own_operators import ANNOTATIONS
from eqsat.ops.properties import is_deterministic
from eqsat.rules.ast import Target
from eqsat.rules.evaluation import TensorFacts
from eqsat.schema.attributes import op_key
from eqsat.schema.chosen_sizes import where_costed
from eqsat.schema.free_sizes import FreeSizes
from eqsat.schema.types import TensorType, type_of
from eqsat.simplify.edit import constant_of
from eqsat.simplify.site import is_control, sites
from eqsat.stages.load import sizes_inside
from eqsat.targets.kernel_cost import CostModel


def cost_before(model: ir.Model, targets: Sequence[Target], sizes: FreeSizes) -> tuple[float, int]:
    """Seconds on the host, and how many operators there are; constant expressions do not count.

    Args:
        model: As loaded.
        targets: The host first.
        sizes: Those that are free. A body may have others of its own, which are taken as in its search.

    Raises:
        OptimizationError: The size of a tensor is not known.
    """
    costs = CostModel(targets, bindable=False, sizes=where_costed(sizes))
    seconds, count = 0.0, 0
    bodies: dict[ir.Graph, BodyCost] = {}
    for site in sites(model.graph):
        try:
            body = body_model(site, model)
            once, inner = cost_before(body, targets, sizes_inside(sizes, body))
        except EqsatError:
            continue
        bodies[site.graph] = BodyCost(once, once, once)
        count += inner
    known = BodyCosts(bodies)
    fixed: set[ir.Value] = set(model.graph.initializers.values())
    for node in model.graph:
        op = op_key(node)
        inputs, attrs = operands(node)
        if inputs and all(v is None or v in fixed for v in inputs) and is_deterministic(op, attrs):
            fixed.update(node.outputs)
            continue
        if op in ANNOTATIONS:
            continue
        looped = is_control(node)
        facts = [
            None if v is None else TensorFacts(type_of(v), _number(v) if looped else None, v in fixed, True)
            for v in inputs
        ]
        count += 1
        if looped and known.knows(attrs):
            seconds += mean_seconds(costs, known, op, attrs, facts)
            continue
        read = [type_of(v) if v.uses() or v.is_graph_output() else None for v in node.outputs]
        seconds += costs.operator(0, op, attrs, facts, read, place=node.name or str(op))
    return seconds, count


def _number(value: ir.Value) -> np.ndarray | None:
    """A constant, or a number of rounds that is the size of a tensor."""
    known = constant_of(value)
    if known is not None or type_of(value) != _COUNT:
        return known
    found = outer_number(value)
    return None if found is None or found.size or not found.is_fixed else np.array(found.offset)


_COUNT = TensorType(ir.DataType.INT64, ())
