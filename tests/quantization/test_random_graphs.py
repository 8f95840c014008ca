"""Random graphs: whatever is in them, the quantized model is valid and means the same to two executors."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from eqsat.quantization.calibrate import calibrate
from eqsat.quantization.insert import apply_scheme
from eqsat.quantization.methods import METHODS
from eqsat.quantization.options import ACTIVATIONS, Options
from eqsat.quantization.ranges import ranges
from eqsat.quantization.scheme import make_scheme
from tests.fuzz.generator import generate
from tests.quantization import runtime


@pytest.mark.parametrize("seed", range(24))
def test_random_graph(seed: int):
    model = load(generate(seed))
    data = [complete_inputs(model, seed=s) for s in range(3)]
    options = Options(
        method=tuple(METHODS)[seed % len(METHODS)],
        activation=ACTIVATIONS[seed // 4 % 2],
        symmetric=bool(seed // 8 % 2),
        per_channel=bool(seed % 3),
    )
    scheme = make_scheme(model, ranges(calibrate(model, data), options), options)
    result = apply_scheme(model, scheme)
    onnx.checker.check_model(ir.to_proto(result), full_check=True)
    for before, after in zip(model.graph.outputs, result.graph.outputs, strict=True):
        assert (before.name, before.dtype, before.shape) == (after.name, after.dtype, after.shape)
    pairs = sum(node.op_type == "DequantizeLinear" for node in result.graph)
    assert pairs - sum(node.op_type == "DequantizeLinear" for node in model.graph) == len(scheme.tensors)
    session, executor = runtime.session(result, optimized=False), Executor(result)
    for sample in data:
        for a, b in zip(executor.run(sample).values(), session.run(None, sample), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            if a.dtype.kind == "f" and a.size:
                # A float between two integers may go either way; that moves few elements, or none.
                scale = np.max(np.abs(b), where=np.isfinite(b), initial=0)
                assert np.mean(~np.isclose(a, b, rtol=0, atol=1e-4 * scale, equal_nan=True)) <= 0.05
