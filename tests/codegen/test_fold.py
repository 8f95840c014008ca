"""Scales that are folded into weights while C is written leave no type's range."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat import op


@pytest.mark.parametrize("product", ["Conv", "Gemm"])
@pytest.mark.parametrize(
    ("weight", "scales"),
    [(1e25, (1e20, 1e-30)), (1e-25, (1e-20, 1e30)), (2.0, (0.5, 3.0)), (1e30, (1e-35, 1e10))],
)
def test_chains_of_scales(product: str, weight: float, scales: tuple[float, float]) -> None:
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.uniform(0.5, 2, shape).astype(np.float32)  # noqa: E731
    if product == "Conv":
        x = eqsat.input("x", (1, 3, 4, 4))
        y = op.Conv(x, draw(3, 3, 1, 1) * np.float32(weight))
    else:
        x = eqsat.input("x", (4, 3))
        y = op.Gemm(x, draw(3, 3) * np.float32(weight))
    model = eqsat.graph(y * np.float32(scales[0]) * np.float32(scales[1]))
    total = weight * scales[0] * scales[1]
    values = {"x": draw(*((1, 3, 4, 4) if product == "Conv" else (4, 3))) * np.float32(min(1 / total, 1e10))}
    # What overflows or vanishes on the way in the model itself is not compared: small inputs for large weights.
    values["x"] *= np.float32(min(1.0, 1e37 / (weight * scales[0]) / 20))
    (expected,), (found,) = eqsat.run(model, values).values(), eqsat.run(model, values, backend="c").values()
    assert np.isfinite(expected).all()
    if (expected != 0).all():
        np.testing.assert_allclose(found, expected, rtol=1e-5)
