"""Operators that draw random numbers; evaluated by ``onnx.reference``."""

from __future__ import annotations

from eqsat.ops.need_by_parameters import need_multinomial, need_of_shape_attribute
from eqsat.ops.registry import declare
from eqsat.ops.traits import PARAMETRIC, RANDOM
from eqsat.schema.opset import MICROSOFT

# ---- declarations ----------------------------------------------------------------------------------

declare("Bernoulli", "RandomNormalLike", "RandomUniformLike", traits=RANDOM)
declare("Multinomial", traits=PARAMETRIC | RANDOM, need=need_multinomial)
declare("RandomNormal", "RandomUniform", traits=PARAMETRIC | RANDOM, need=need_of_shape_attribute)
declare("Sampling", domain=MICROSOFT, traits=RANDOM)
