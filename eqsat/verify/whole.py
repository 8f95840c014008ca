"""Executes the result as it will be saved, next to the input, as a whole."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat import bounds
from eqsat.errors import EqsatError, LimitError
from eqsat.execute.difference import Difference, NumericsName, compare_values
from eqsat.execute.executor import Executor
from eqsat.ops.evaluate import TensorValue
from eqsat.schema.types import GraphAttr
from eqsat.verify import judge_values
from eqsat.verify.oracle import MOST_ROUNDS, Failed, UndefinedConversion, own
from eqsat.verify.programs import CallOperator, Programs, run_kernels, run_nodes
from eqsat.verify.sides import Perturbation

MOST_KEPT = 1 << 27
"""Bytes of inner tensors that are kept while the rest of a network runs."""
_DRAWS = 4
"""Executions of the input with tiny changes."""


def run_input(
    programs: Programs,
    arrays: Mapping[str, TensorValue],
    call: CallOperator,
    keep: Collection[int] = (),
    noise: Perturbation | None = None,
) -> tuple[list[TensorValue], dict[int, TensorValue]]:
    """Outputs of the input model, and the values of some classes as far as memory allows.

    Raises:
        Failed: An operator cannot be evaluated.
    """
    values: dict[int, TensorValue] = {}
    kept: dict[int, TensorValue] = {}
    left = MOST_KEPT

    def hold(k: int) -> None:
        nonlocal left
        c = programs.classes[k]
        if c in keep and c not in kept and isinstance(values[k], np.ndarray) and values[k].nbytes <= left:
            left -= values[k].nbytes
            kept[c] = values[k]

    last = {o: i for i, node in enumerate(programs.nodes) for o in node.operands if o is not None}
    for k, value in programs.inputs.items():
        values[k] = arrays[value.name or ""] if noise is None else noise.on(arrays[value.name or ""])
        hold(k)
    outputs = set(programs.outputs)
    for i, node in enumerate(programs.nodes):
        for k in programs.reads(i):
            if k not in values:
                values[k] = programs.initial(k)
        run_nodes(programs, [i], values, call)
        for k in node.results:
            if noise is not None and k in values:
                values[k] = noise.on(values[k])
            hold(k)
        for k in {o for o in (*node.operands, *node.results) if o is not None}:
            if last.get(k, -1) <= i and k not in outputs:
                values.pop(k, None)
    return [values[k] if k in values else programs.initial(k) for k in programs.outputs], kept


def run_result(model: ir.Model, arrays: Mapping[str, TensorValue]) -> list[TensorValue]:
    """Outputs of the result, by eqsat's executor.

    Raises:
        Failed: It cannot be executed.
        LimitError: It exceeds the limits of memory, time or loop iterations.
    """
    given = {value.name or "": arrays[value.name or ""] for value in model.graph.inputs if value.name in arrays}
    try:
        with bounds.metered(steps=MOST_ROUNDS + 2 * len(model.graph)):
            found: dict[str, Any] = Executor(model).run(given)
    except LimitError:
        raise
    except EqsatError as error:
        raise Failed(str(error)) from error
    return [found[value.name or ""] for value in model.graph.outputs]


def compare_outputs(
    programs: Programs, left: list[TensorValue], right: list[TensorValue], numerics: NumericsName
) -> list[Difference]:
    """One entry per output."""
    return [
        compare_values(programs.name(k), a, b, numerics=numerics)
        for k, a, b in zip(programs.outputs, left, right, strict=True)
    ]


def is_explained(
    programs: Programs, arrays: Mapping[str, TensorValue], right: list[TensorValue], numerics: NumericsName
) -> bool:
    """Whether outputs differ only because the implementations do, or because tiny changes change as much."""
    try:
        same, _ = run_input(programs, arrays, own)
        if all(d.agrees for d in compare_outputs(programs, same, right, numerics)):
            return True
        if numerics == "exact":
            return False
        draws: list[list[TensorValue]] = []
        for seed in range(_DRAWS):
            noise = Perturbation(1e-5, seed, rounds=True)
            draws.append(run_input(programs, arrays, own, noise=noise)[0])
            # Most networks are explained by the first draw, and each executes the network.
            if all(map(_is_like_draws, same, right, zip(*draws, strict=True))):
                return True
    except Failed:
        return False
    return False


def _is_like_draws(same: TensorValue, right: TensorValue, draws: Sequence[TensorValue]) -> bool:
    """Whether an output is as far from the expected one as outputs of the network after tiny changes are.

    If a network rounds to few values, a change of the last digit may become a whole step, or vanish: a few draws do not
    find all elements that can move. So as many elements may remain as one draw moves and the others do not.
    """
    mask = _beyond(same, right)
    if mask is None:
        return False
    moved = [judge_values.distance(same, draw) for draw in draws if judge_values.incomparable(same, draw) is None]
    error = judge_values.distance(same, right)
    left = mask & _unmoved(error, moved)
    if len(moved) < _DRAWS:
        return not left.any()
    alone = [_unmoved(one, [other for other in moved if other is not one]) for one in moved]
    most = max(np.max(one, where=a, initial=0.0) for one, a in zip(moved, alone, strict=True))
    return bool(left.sum() <= max(a.sum() for a in alone) and np.max(error, where=left, initial=0.0) <= 2 * most)


def _unmoved(error: np.ndarray, moved: Sequence[np.ndarray]) -> np.ndarray:
    return ~(error <= judge_values.SAFETY * np.max(moved, axis=0, initial=0.0))


def is_put_together(programs: Programs, arrays: Mapping[str, TensorValue], right: list[TensorValue]) -> bool:
    """Whether the kernels, executed one by one, compute the same as the result as a whole.

    Values that follow from an impossible cast to integers, such as that of an infinity, are not compared.
    """
    values: dict[int, TensorValue] = {c: arrays[value.name or ""] for c, value in programs.plan.inputs}
    last = {c: i for i, kernel in enumerate(programs.kernels) for c in kernel.inputs if c is not None}
    wanted = {c for c, _ in programs.plan.outputs}
    undefined: set[int] = set()
    for i, kernel in enumerate(programs.kernels):
        reads = {c for c in kernel.inputs if c is not None}
        for c in reads - values.keys() - undefined:
            values[c] = programs.constant(c)
        try:
            if reads & undefined:
                raise UndefinedConversion("an operand is undefined")
            run_kernels(programs, [i], values, own)
        except UndefinedConversion:
            undefined.update(c for c in kernel.outputs if c is not None)
        except Failed:
            return False
        for c in reads:
            if last[c] == i and c not in wanted:
                values.pop(c, None)
    outputs = [c for c, _ in programs.plan.outputs]
    found = [values.get(c) if c in values or c in undefined else programs.constant(c) for c in outputs]
    # Bodies of control flow are executed by another implementation here.
    flow = any(isinstance(value, GraphAttr) for kernel in programs.kernels for _, value in kernel.attrs)
    numerics: NumericsName = "real" if flow else "exact"
    return all(
        compare_values("", a, b, numerics=numerics).agrees
        for c, a, b in zip(outputs, found, right, strict=True)
        if c not in undefined
    )


def _beyond(left: TensorValue, right: TensorValue) -> np.ndarray | None:
    if not isinstance(left, np.ndarray) or judge_values.incomparable(left, right) is not None:
        return None
    return judge_values.beyond(left, right, strict=False, lsb=1)
