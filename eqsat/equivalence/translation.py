"""Proves that an optimized model computes what its input computes (translation validation, Pnueli et al. 1998).

The proof starts from the two models alone: neither the e-graph nor the extraction of the search is used, so a mistake
there cannot hide. What it shares with the search are the rules.
"""

from __future__ import annotations

from dataclasses import replace

import onnx_ir as ir

from eqsat.equivalence.compare_models import equivalence
from eqsat.errors import VerificationError
from eqsat.model.load import GivenModel
from eqsat.report.summary import ModelProof
from eqsat.stages.event import Progress
from eqsat.stages.options import SearchOptions


def prove_result(
    source: GivenModel, result: ir.Model, options: SearchOptions, *, seed: int = 0, progress: Progress | None = None
) -> ModelProof:
    """Whether rules prove a result equal to its input.

    Args:
        source: The input.
        result: The result of the search.
        options: Options of the search, whose rules are trusted.
        seed: Seed of the inputs on which both are executed.
        progress: Receives events.

    Raises:
        VerificationError: The two differ on an input.
    """
    trusting = replace(options, trust=True, numerics="real", free_sizes=True)
    found = equivalence(source, result, trusting, seed=seed, progress=progress)
    if found.counterexample is not None:
        raise VerificationError(
            "the result must compute what the input computes",
            place=found.counterexample.difference.name,
            actual=str(found.counterexample.difference),
            hint="`eqsat rules check` finds a wrong rule of your own; with the shipped ones alone, please report this",
        )
    return ModelProof(
        verdict=found.verdict,
        numerics=found.numerics if found.verdict == "equal" else None,
        statement=str(found),
        rules=found.used,
        apart=tuple(str(place) for place in found.places),
        stop_reason=found.stop_reason,
        trust=found.trust,
    )
