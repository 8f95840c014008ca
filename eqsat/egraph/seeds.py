"""Takes types that inference inside the e-graph cannot find from the model's own declarations.

This is done only for operators that resist inference (control flow, data-dependent shapes, operators without a schema),
and only at the frontier, so that everything after them is inferred again.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from eqsat.egraph.bindings import bindings
from eqsat.egraph.demand_tables import Facts
from eqsat.egraph.encode import Encoding
from eqsat.egraph.engine import SPAN, Engine, call, integer
from eqsat.egraph.intern import Types
from eqsat.schema.types import type_of


def seed_unknown_types(engine: Engine, facts: Facts, types: Types, encoding: Encoding) -> None:
    """Types all values that can be typed; leaves the analysis saturated."""
    tried: set[int] = set()
    while True:
        facts.saturate()
        typed = _typed(engine)
        frontier = []
        for node in encoding.nodes:
            missing = [r for r in node.results if r not in typed and r not in tried]
            if missing and all(o is None or o in typed or o in tried for o in node.operands):
                frontier += missing
        if not frontier:
            return
        tried.update(frontier)
        _set_types(engine, types, [(k, encoding.values[k]) for k in frontier])


def _typed(engine: Engine) -> set[int]:
    """Numbers of the values whose class has a type."""
    tables = engine.tables()
    known = {row.inputs[0] for row in tables["type"].rows}
    to_int = engine.egraph.value_to_i64
    return {to_int(row.inputs[0]) for row in tables["ref"].rows if row.output in known}


def _set_types(engine: Engine, types: Types, items: Sequence[tuple[int, ir.Value]]) -> None:
    actions = []
    for k, value in items:
        kind = type_of(value)
        if kind is not None:
            actions.append(bindings.Set(SPAN, "type", [call("ref", integer(k))], integer(types.id(kind))))
    if actions:
        engine.run_commands([bindings.ActionCommand(a) for a in actions])
