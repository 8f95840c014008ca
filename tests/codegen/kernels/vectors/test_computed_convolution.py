"""Convolutions whose weights are inputs, in C on every instruction set and with threads, against ``onnx.reference``."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from onnx.reference import ReferenceEvaluator

import eqsat
from eqsat import op
from eqsat.codegen import sharing
from eqsat.codegen.isa import AVX2, AVX512, PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.codegen.kernels.vectors.harness import runnable

NAME, POINTWISE = "convolution of computed weights", "pointwise convolution"
UNDEFINED = ("-fsanitize=undefined", "-fsanitize-undefined-trap-on-error")
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((1, 5, 9, 11), (16, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    "strides": ((2, 7, 12, 13), (21, 7, 3, 2), {"strides": [2, 3], "pads": [0, 1, 2, 1]}),
    "dilations": ((1, 3, 40), (9, 3, 4), {"dilations": [3], "pads": [4, 2]}),
    "groups": ((2, 8, 7, 6), (40, 4, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
    "pointwise": ((1, 18, 5, 5), (33, 18, 1, 1), {}),
    "pointwise row": ((2, 5, 40), (9, 5, 1), {}),
    "pointwise volume": ((2, 3, 2, 5, 6), (4, 3, 1, 1, 1), {}),
    "volume": ((1, 3, 5, 6, 4), (8, 3, 2, 3, 2), {"pads": [0, 1, 0, 1, 1, 1]}),
}


def model() -> ir.Model:
    """All cases, each with another kind of bias than the one before."""
    rng, results = np.random.default_rng(4), []
    for number, (name, (shape, weights, attributes)) in enumerate(CASES.items()):
        name = name.replace(" ", "_")
        x, w = eqsat.input(f"x_{name}", shape), eqsat.input(f"w_{name}", weights)
        fixed = rng.standard_normal(weights[0]).astype(np.float32)
        b = (None, fixed, eqsat.input(f"b_{name}", weights[:1]))[number % 3]
        results.append(op.Relu(op.Conv(x, w, b, **attributes) + np.float32(0.1)))
    return eqsat.graph(results)


@pytest.mark.parametrize(
    "isas", [(AVX512, PORTABLE), (AVX2, PORTABLE), (PORTABLE,), (PORTABLE, SCALAR)], ids=lambda isas: isas[0].name
)
def test_values(isas: tuple[Isa, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    if not set(isas) - {SCALAR} <= set(runnable()):
        pytest.skip("not on this machine")
    for name in ("WORTH", "ENOUGH"):
        monkeypatch.setattr(sharing, name, 0.0)
    monkeypatch.setattr(sharing, "LEAST", 1e-15)
    graph = model()
    loaded = load(graph)
    inputs = complete_inputs(loaded, seed=5)
    want: Any = ReferenceEvaluator(ir.to_proto(graph)).run(None, inputs)
    scalar = ("-DMODEL_SCALAR",) if SCALAR in isas else ()
    compiled = CModel(loaded, isas=isas, threads=3, flags=(*UNDEFINED, *scalar))
    families = [kernel.family for kernel in compiled.emitted.kernels]
    assert families.count(POINTWISE) == sum(set(w[2:]) == {1} for _, w, _ in CASES.values())
    assert families.count(NAME) == len(CASES) - families.count(POINTWISE)
    found = compiled.run(inputs)
    alone = CModel(loaded, isas=isas, flags=scalar).run(inputs)
    for (name, array), exact in zip(found.items(), want, strict=True):
        np.testing.assert_allclose(array, exact, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(array, alone[name])


def test_few_channels_stay_in_loops() -> None:
    x, w = eqsat.input("x", (1, 4, 9, 9)), eqsat.input("w", (4, 1, 3, 3))
    found = CModel(load(eqsat.graph(op.Conv(x, w, group=4)))).emitted.kernels
    assert [kernel.family for kernel in found] == ["convolution loops"]
