"""Constants of the result against what the input computes them to be."""

from __future__ import annotations

import numpy as np

from eqsat.verify import judge
from eqsat.verify.judge import Difference
from eqsat.verify.oracle import Failed, Oracle, Value
from eqsat.verify.programs import Programs, run_nodes


def wrong_constant(programs: Programs, oracle: Oracle, budget: int) -> tuple[int, Difference] | None:
    """The first value of the input that is constant there and another one in the result.

    Args:
        budget: Work beyond which nothing is computed any more.
    """
    values: dict[int, Value] = {}
    for i, node in enumerate(programs.nodes):
        if any(programs.dynamic[k] for k in node.results) or any(
            o in values and values[o] is None for o in node.operands
        ):
            continue
        budget -= programs.work(i)
        if budget < 0:
            return None
        for k in programs.reads(i):
            if k not in values:
                values[k] = programs.initial(k)
        if any(values[k] is None for k in programs.reads(i)):
            continue
        try:
            run_nodes(programs, [i], values, oracle)
        except Failed:
            values.update(dict.fromkeys(node.results))
            continue
        for k in node.results:
            found = _compare(programs, k, values[k])
            if found is not None:
                return k, found
    for k in range(len(programs.classes)):
        if k not in programs.producer and not programs.dynamic[k]:
            found = _compare(programs, k, None)
            if found is not None:
                return k, found
    return None


def _compare(programs: Programs, k: int, left: Value) -> Difference | None:
    eclass = programs.classes[k]
    if not programs.is_constant(eclass):
        return None
    if left is None:
        if programs.plan.constants[eclass] is programs.encoding.values[k].const_value:
            return None
        left = programs.initial(k)
    right = programs.constant(eclass)
    found = judge.incomparable(left, right)
    if found is not None or not isinstance(left, np.ndarray):
        return found
    mask = judge.beyond(left, right, strict=False, lsb=0)
    if left.dtype.kind == "f":
        rtol = judge.WIDE.get(left.dtype.name, judge.COARSE)
        mask &= judge.distance(left, right) > rtol * np.abs(left.astype(np.float64))
    return judge.difference(mask, left, right) if mask.any() else None
