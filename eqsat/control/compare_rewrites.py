"""Executes a model next to its form before the search, after rules were carried out on it and control flow was
simplified.

The search, and the verification of its result, start from that form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import onnx_ir as ir

from eqsat.egraph.limits import Limits
from eqsat.egraph.saturate import Saturation
from eqsat.egraph.snapshot import snapshot
from eqsat.errors import EqsatError, LimitError, VerificationError
from eqsat.execute.difference import Difference, compare_values
from eqsat.execute.inputs import complete_inputs
from eqsat.ops.evaluate import TensorValue
from eqsat.partition.plan import Plan
from eqsat.schema.chosen_sizes import samples, typical_sizes
from eqsat.schema.free_sizes import FreeSizes
from eqsat.stages.load import LoadedInput
from eqsat.verify.oracle import Failed
from eqsat.verify.programs import Programs
from eqsat.verify.verify import MOST_WORK
from eqsat.verify.whole import is_explained, run_result

SCALES = (8.0, 0.1, 30.0)
"""Factors of normal random inputs, besides 1: rules differ at their thresholds."""


def require_equal(loaded: LoadedInput, after: ir.Model, seed: int) -> tuple[str, ...]:
    """Executes the given model and another one on random inputs.

    Args:
        loaded: The model as it was given, and the rules that were carried out on it.
        after: The rewritten model.
        seed: Seed of the inputs.

    Returns:
        The parts that were not compared, a phrase each.

    Raises:
        VerificationError: The models differ.
    """
    rules = {rule.name: rule for rule in loaded.every_rule}
    applied = [rules[s.name] for s in loaded.placed if s.applied and s.name in rules] if loaded.carried_out else []
    if any(rule.numerics.kind == "approximate" for rule in applied):
        return ("the input before rules of class approximate were carried out",)
    before = _Before(loaded.given, loaded.sizes)
    if before.work > MOST_WORK:
        return (f"the input before it was changed: its work of {before.work:.2g} is beyond {MOST_WORK:.2g}",)
    obstacle = before.programs.obstacle_to_comparing()
    if obstacle:
        return (f"the input before it was changed: {obstacle}",)
    place = f"model {loaded.given.graph.name!r}"
    hint = "verify=False (--no-verify) keeps the result as it is"
    hint = (
        f"the rules carried out on it are {', '.join(rule.name for rule in applied)}: check them "
        f"with `eqsat rules check`; {hint}"
        if applied
        else f"please report it with the model; {hint}"
    )
    replaced = (
        "new operators have been replaced by definitions" if loaded.newer else "its control flow has been simplified"
    )
    done = "rules have been carried out on it" if applied else replaced
    compared = False
    for arrays in _inputs(loaded.given, loaded.sizes, seed, more=bool(applied) and 10 * before.work < MOST_WORK):
        try:
            expected = run_result(loaded.given, arrays)
        except (Failed, EqsatError):
            continue  # There is nothing to compare with.
        try:
            found = run_result(after, arrays)
        except LimitError:
            continue  # Rounds are counted by operators, which may be others now.
        except Failed as error:
            requirement = f"the model must be executable after {done}"
            raise VerificationError(requirement, place=place, actual=str(error)[:300], hint=hint) from error
        compared = True
        wrong = _differing(loaded.given.graph.outputs, expected, found)
        if wrong is not None and not before.explains(arrays, found):
            requirement = f"the model must compute what it computed before {done}, as {wrong.name!r}"
            raise VerificationError(requirement, place=place, actual=str(wrong), hint=hint)
    return () if compared else (f"the input before {done}: it cannot be executed",)


def _inputs(model: ir.Model, sizes: FreeSizes, seed: int, *, more: bool) -> Iterator[dict[str, TensorValue]]:
    """Ordinary inputs at several sizes, and with ``more`` also of other magnitudes."""
    for values in samples(sizes):
        try:
            arrays = complete_inputs(model, dims=values, seed=seed)
        except EqsatError:
            continue
        yield arrays
        for factor in SCALES if more else ():
            yield {name: _scaled(array, factor) for name, array in arrays.items()}


def _scaled(array: TensorValue, factor: float) -> TensorValue:
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        return array
    return np.asarray(array * array.dtype.type(factor))


def _differing(
    outputs: Iterable[ir.Value], left: Sequence[TensorValue], right: Sequence[TensorValue]
) -> Difference | None:
    pairs = zip(outputs, left, right, strict=True)
    differences = (compare_values(value.name or "", a, b, numerics="real") for value, a, b in pairs)
    return next((d for d in differences if not d.agrees), None)


class _Before:
    """The model as it was given, as a program of numbered values."""

    def __init__(self, model: ir.Model, sizes: FreeSizes) -> None:
        self.model = model
        self.sizes = sizes

    @cached_property
    def programs(self) -> Programs:
        saturation = Saturation(self.model, (), (), Limits(iterations=1))
        saturation.run()
        encoding = saturation.encoding
        outputs = tuple(encoding.number[value] for value in self.model.graph.outputs)
        nothing = Plan((), (), (), (), (), {}, {}, {})
        return Programs(encoding, snapshot(saturation), nothing, outputs, typical_sizes(self.sizes))

    @property
    def work(self) -> int:
        return sum(map(self.programs.work, range(len(self.programs.nodes))))

    def explains(self, arrays: Mapping[str, TensorValue], found: list[TensorValue]) -> bool:
        """Whether outputs differ no more than tiny changes of the values explain."""
        return is_explained(self.programs, arrays, found, "real")
