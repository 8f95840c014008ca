"""Both flows on random valid models of all operators: they give a program that computes the same, or say why not."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from benchmarks.baseline import FLOWS, partition
from benchmarks.baseline.price import price
from eqsat.errors import OptimizationError
from eqsat.execute.executor import Executor
from eqsat.model.load import load
from eqsat.targets.find_targets import load_targets
from eqsat.targets.kernel_cost import CostModel
from tests.benchmarks.programs import run
from tests.fuzz.generator import generate


@pytest.fixture(scope="module")
def costs() -> CostModel:
    return CostModel(load_targets(["dnnl", "ccompiler"]))


def _inputs(model: ir.Model, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    found = {}
    for value in model.graph.inputs:
        assert value.dtype is not None
        assert value.shape is not None
        dtype, shape = value.dtype.numpy(), [int(d) for d in value.shape]
        drawn = (
            rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2 if dtype.kind == "b" else 5, shape)
        )
        found[value.name or ""] = np.asarray(drawn).astype(dtype)
    return found


@pytest.mark.parametrize("seed", range(0, 40, 10))
def test_partitioned_models_compute_the_same(seed: int, costs: CostModel) -> None:
    done = 0
    for case in range(seed, seed + 10):
        model = generate(case)
        loaded = load(model)
        inputs = _inputs(loaded, case)
        expected = list(Executor(loaded).run(inputs).values())
        for flow in FLOWS:
            try:
                found = partition(load(model), costs, flow)
            except OptimizationError:
                assert flow == "relax", "only Relax fails, on what waits for itself"
                continue
            assert price(found, costs).total >= 0
            for a, b in zip(expected, run(found.program, inputs), strict=True):
                b = np.asarray(b)
                assert (a.dtype, a.shape) == (b.dtype, b.shape)
                if a.dtype.kind != "f":
                    np.testing.assert_array_equal(a, b)
                    continue
                finite = a[np.isfinite(a)]
                scale = max(float(np.max(np.abs(finite), initial=0)), 1e-3)
                np.testing.assert_allclose(b / scale, a / scale, rtol=1e-4, atol=1e-5)
            done += 1
    assert done >= 15
