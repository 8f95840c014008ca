"""Recurrent vectors whose weights are inputs, all or some of them, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat import op
from eqsat.codegen.isa import PORTABLE, SCALAR, Isa
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from tests.codegen.kernels.vectors.harness import runnable
from tests.codegen.kernels.vectors.test_recurrent import built
from tests.codegen.kernels.vectors.test_recurrent_conditions import BOTH, FAMILY, KINDS, STRICT, UNDEFINED, close

COMPUTED = [("w",), ("r",), ("b",), ("w", "r"), ("w", "b"), ("r", "b"), ("w", "r", "b")]
PEDANTIC = ("-pedantic", "-Wshadow", "-Wconversion", "-DMODEL_SCALAR")


@pytest.mark.slow
@pytest.mark.parametrize("computed", COMPUTED, ids="_".join)
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_some_are_constant(kind: str, more: dict[str, Any], computed: tuple[str, ...]) -> None:
    for seed, (shape, way) in enumerate((((6, 3, 5, 19), BOTH), ((5, 1, 17, 16), {"bias": True}))):
        model, feeds = built(kind, shape, way | more | {"computed": computed}, seed)
        close(CModel(load(model), flags=(*STRICT, *UNDEFINED)), model, feeds)


@pytest.mark.slow
@pytest.mark.parametrize("isa", [*runnable()], ids=lambda isa: isa.name)
@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_instruction_sets(kind: str, more: dict[str, Any], isa: Isa) -> None:
    for way in (BOTH, {"direction": "reverse", "lengths": "given"}):
        model, feeds = built(kind, (4, 2, 6, 21), way | more | {"computed": ("w", "r")}, 3)
        isas, flags = ((PORTABLE, SCALAR), PEDANTIC) if isa is SCALAR else ((isa,), UNDEFINED)
        close(CModel(load(model), isas=isas, flags=(*STRICT, *flags)), model, feeds)


@pytest.mark.parametrize(("kind", "more"), KINDS)
def test_threads_do_not_change_a_bit(kind: str, more: dict[str, Any]) -> None:
    for way in (BOTH, {"bias": True}):
        model, feeds = built(kind, (20, 4, 32, 72), way | more | {"computed": ("w", "r", "b")}, 4)
        shared = CModel(load(model), threads=3)
        close(shared, model, feeds)
        alone = CModel(load(model)).run(feeds)
        for name, found in shared.run(feeds).items():
            np.testing.assert_array_equal(found, alone[name], err_msg=name)


def test_weights_in_any_layout_and_of_half_precision() -> None:
    """Transposed weights are packed from where they lie; those of float16 are converted first."""
    shapes = {"x": (6, 2, 9), "w": (9, 68, 1), "r": (1, 17, 68)}
    halves = {"half_x": (6, 2, 9), "half_w": (1, 51, 9), "half_r": (1, 51, 17)}
    x, w, r = (eqsat.input(name, shape) for name, shape in shapes.items())
    turned = op.LSTM(x, op.Transpose(w, perm=[2, 1, 0]), op.Transpose(r, perm=[0, 2, 1]), hidden_size=17, outputs=3)[0]
    half = op.GRU(*(eqsat.input(name, shape, "float16") for name, shape in halves.items()), hidden_size=17, outputs=2)
    graph = load(eqsat.graph([turned, half[0]]))
    rng = np.random.default_rng(6)
    feeds = {name: 0.3 * rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    feeds |= {name: (0.3 * rng.standard_normal(shape)).astype(np.float16) for name, shape in halves.items()}
    compiled = CModel(graph)
    assert sum(kernel.family == FAMILY for kernel in compiled.emitted.kernels) == 2
    wanted = Executor(graph).run(feeds)
    for (name, found), rtol in zip(compiled.run(feeds).items(), (2e-5, 2e-2), strict=True):
        np.testing.assert_allclose(found, np.asarray(wanted[name]), rtol=rtol, atol=rtol / 10, err_msg=name)
