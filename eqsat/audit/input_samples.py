"""Inputs that reach both sides of what an e-graph compares: small and large ones, and numbers near its constants."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir

from eqsat.egraph.intern import Constants
from eqsat.execute.inputs import complete_inputs
from eqsat.schema.dtypes import limits

_SCALES = (1.0, 30.0, 0.1)
_NEAR = (0.999, 1.001, 0.5, 1.5, -1.0)


def sample(model: ir.Model, constants: Constants, seed: int) -> Mapping[str, np.ndarray]:
    """The inputs of one sample.

    Every second goes through numbers just below, just above and around the model's and the rules' constants; the others
    are normally distributed, with three deviations. Integers are drawn as by
    :func:`eqsat.execute.inputs.complete_inputs`.
    """
    drawn = complete_inputs(model, seed=seed)
    rng = np.random.default_rng(seed)
    near = _around(_thresholds(constants), rng) if seed % 2 else None
    taken = 0
    for value in model.graph.inputs:
        name = value.name or ""
        if name not in drawn or value.dtype is None or not value.dtype.is_floating_point():
            continue
        array = np.asarray(drawn[name]).astype(np.float64)
        if near is None:
            array = array * _SCALES[seed // 2 % len(_SCALES)]
        else:
            array = near[(np.arange(array.size) + taken) % near.size].reshape(array.shape)
            taken += max(array.size, 1)
        low, high = limits(value.dtype)
        drawn[name] = np.clip(array, low, high)
    return drawn


def _around(thresholds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.permutation(np.outer(thresholds, _NEAR).ravel())


def _thresholds(constants: Constants) -> np.ndarray:
    """The finite numbers of the smallest constants."""
    found = {0.0, 1.0}
    for number in range(1, len(constants)):
        constant = constants[number]
        if constant.type is None or not constant.type.dtype.is_floating_point() or (constant.type.elements or 0) > 4:
            continue
        array = constant.numpy()
        assert array is not None
        found.update(float(v) for v in array.astype(np.float64).flat if np.isfinite(v) and abs(v) < 1e6)
    return np.array(sorted(found))
