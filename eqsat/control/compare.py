"""Executes a model next to the same model with simpler control flow."""

from __future__ import annotations

import onnx_ir as ir

from eqsat.errors import EqsatError, ExecutionError, LimitError, VerificationError
from eqsat.execute.difference import compare_values
from eqsat.execute.inputs import complete_inputs
from eqsat.schema.free_sizes import FreeSizes, samples
from eqsat.verify.oracle import Failed
from eqsat.verify.whole import run_result


def require_equal(before: ir.Model, after: ir.Model, sizes: FreeSizes, seed: int) -> None:
    """Executes both models on random inputs.

    Args:
        before: As loaded.
        after: With simpler control flow.
        sizes: Of the inputs, as far as they are free.
        seed: Of the inputs.

    Raises:
        VerificationError: They compute something else.
    """
    for values in samples(sizes):
        try:
            arrays = complete_inputs(before, dims=values, seed=seed)
            expected = run_result(before, arrays)
        except (Failed, ExecutionError, EqsatError):
            continue  # There is nothing to compare with.
        place = f"model {before.graph.name!r}, control flow"
        hint = "please report it with the model; verify=False (--no-verify) keeps the result as it is"
        try:
            found = run_result(after, arrays)
        except LimitError:
            continue  # Rounds are counted by operators, of which there may be others now.
        except Failed as error:
            requirement = "the model must be executable after its control flow has been simplified"
            raise VerificationError(requirement, place=place, actual=str(error)[:300], hint=hint) from error
        for value, left, right in zip(before.graph.outputs, expected, found, strict=True):
            difference = compare_values(value.name or "", left, right, numerics="real")
            if not difference.agrees:
                requirement = f"control flow must compute what it computed before it was simplified, as {value.name!r}"
                raise VerificationError(requirement, place=place, actual=str(difference), hint=hint)
