"""Compares constants of the result with the values that the input computes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from eqsat.ops.evaluate import TensorValue
from eqsat.schema.dtypes import FLOATS
from eqsat.verify import judge_values
from eqsat.verify.judge_values import ValueDifference
from eqsat.verify.oracle import Failed, FallbackOracle
from eqsat.verify.programs import Programs, extended, prolonged, run_nodes


def wrong_constant(programs: Programs, oracle: FallbackOracle, budget: int) -> tuple[int, ValueDifference] | None:
    """The first constant value of the input that differs in the result.

    Args:
        budget: Work after which no more values are computed.
    """
    values: dict[int, TensorValue] = {}
    computed: list[int] = []
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
        computed.append(i)
        for k in node.results:
            found = _compare(programs, k, values[k], computed)
            if found is not None:
                return k, found
    for k in range(len(programs.classes)):
        if k not in programs.producer and not programs.dynamic[k]:
            found = _compare(programs, k, None, ())
            if found is not None:
                return k, found
    return None


def _compare(programs: Programs, k: int, left: TensorValue, computed: Sequence[int]) -> ValueDifference | None:
    eclass = programs.classes[k]
    if not programs.is_constant(eclass):
        return None
    if left is None:
        if programs.plan.constants[eclass] is programs.encoding.values[k].const_value:
            return None
        left = programs.initial(k)
    right = programs.constant(eclass)
    found = judge_values.incomparable(left, right)
    if found is not None or not isinstance(left, np.ndarray):
        return found
    mask = judge_values.beyond(left, right, strict=False, lsb=0)
    if mask.any() and ir.DataType.from_numpy(left.dtype) in FLOATS:
        rtol = judge_values.WIDE[left.dtype.name]
        mask &= judge_values.distance(left, right) > rtol * np.abs(left.astype(np.float64))
        meant = _meant(programs, k, computed) if mask.any() else None
        if meant is not None and meant.shape == left.shape:
            # If the input leaves the range of its type, there is nothing to compare with.
            mask &= np.isfinite(left) & ~judge_values.beyond_wide(meant, left, rtol)
    return judge_values.difference(mask, left, right) if mask.any() else None


def _meant(programs: Programs, k: int, computed: Sequence[int]) -> np.ndarray | None:
    """A constant over the reals; None if it is not computed or cannot be."""
    needed: list[int] = []
    wanted = {k}
    for i in reversed(computed):
        if wanted & set(programs.nodes[i].results):
            needed.append(i)
            wanted.update(programs.reads(i))
    values = {o: prolonged(programs.initial(o)) for o in wanted if o not in programs.producer}
    try:
        run_nodes(programs, needed[::-1], values, extended)
    except (Failed, KeyError):
        return None
    found = values.get(k)
    return found if needed and isinstance(found, np.ndarray) and found.dtype.kind == "f" else None
