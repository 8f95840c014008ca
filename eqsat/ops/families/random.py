"""Operators that draw random numbers; evaluated by ``onnx.reference``."""

from __future__ import annotations

from eqsat.ops.registry import declare
from eqsat.ops.traits import RANDOM
from eqsat.schema.opset import MICROSOFT

# ---- declarations ----------------------------------------------------------------------------------

declare(
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", traits=RANDOM
)
declare("Sampling", domain=MICROSOFT, traits=RANDOM)
