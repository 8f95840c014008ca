"""Regions that call oneDNN inside of a loop's body, and beside kernels that several threads share."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
from eqsat import op
from eqsat.codegen import sharing
from eqsat.codegen.runtime import CModel
from eqsat.execute.executor import Executor
from eqsat.execute.inputs import complete_inputs
from eqsat.model.load import load
from tests.codegen.onednn_cases import needs_onednn


@needs_onednn
def test_the_rest_of_a_program_has_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "WORTH", 0.0)  # Shares every kernel that can be.
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / 8).astype(np.float32)

    x = eqsat.input("x", (1, 64, 56, 56))
    convolved = op.Relu(op.Conv(x, weights(64, 64, 3, 3), weights(64)))
    result = eqsat.optimize(eqsat.graph(op.LRN(convolved, size=3)), targets=["dnnl"])
    inputs = complete_inputs(result.model)
    alone, shared = result.compile(vendors=["dnnl"]), result.compile(vendors=["dnnl"], threads=3)
    assert shared.emitted.served and shared.emitted.shared
    for name, array in alone.run(inputs).items():
        np.testing.assert_allclose(shared.run(inputs)[name], array, rtol=1e-5, atol=1e-6)


@needs_onednn
def test_regions_inside_of_bodies() -> None:
    """What a search placed on a target with a backend: the optimized convolutions become the body of a loop."""
    rng = np.random.default_rng(0)
    w = (rng.standard_normal((64, 64, 3, 3)) / 24).astype(np.float32)
    x = eqsat.input("x", (1, 64, 28, 28))
    y = op.Relu(op.Conv(op.Relu(op.Conv(x, w, pads=[1, 1, 1, 1])), w, pads=[1, 1, 1, 1]))
    inner = ir.to_proto(eqsat.optimize(eqsat.graph(y), targets=["dnnl"], verify=False).model)
    assert [f.name for f in inner.functions if f.name.startswith("dnnl_")] == ["dnnl_0"]
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["go"], ["go_out"]), *inner.graph.node],
        "body",
        [
            onnx.helper.make_tensor_value_info("round", onnx.TensorProto.INT64, ()),
            onnx.helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, ()),
            *inner.graph.input,
        ],
        [onnx.helper.make_tensor_value_info("go_out", onnx.TensorProto.BOOL, ()), *inner.graph.output],
        list(inner.graph.initializer),
    )
    loop = onnx.helper.make_node("Loop", ["m", "", "z"], ["last"], body=body)
    whole = onnx.ModelProto()
    whole.CopyFrom(inner)
    shape = (1, 64, 28, 28)
    whole.graph.CopyFrom(
        onnx.helper.make_graph(
            [loop],
            "whole",
            [
                onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, shape),
                onnx.helper.make_tensor_value_info("m", onnx.TensorProto.INT64, ()),
            ],
            [onnx.helper.make_tensor_value_info("last", onnx.TensorProto.FLOAT, shape)],
        )
    )
    model = load(whole)
    compiled = CModel(model, vendors=["dnnl"])
    coverage = compiled.emitted.coverage["dnnl"]
    assert coverage.total == coverage.called == 2
    assert {p.kernel for p in compiled.primitives() if not p.is_reorder}
    given = {"z": rng.standard_normal(shape).astype(np.float32), "m": np.array(2)}
    np.testing.assert_allclose(compiled.run(given)["last"], Executor(model).run(given)["last"], atol=1e-4)
