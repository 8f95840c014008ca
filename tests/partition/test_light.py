"""Real networks, every convolution and activation on an accelerator: the same outputs to the bit."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import version_converter

from benchmarks.models import light
from eqsat.partition.regions import regions
from eqsat.partition.saved import inline
from eqsat.partition.write_plan import to_model
from eqsat.schema.opset import IR_VERSION, PINNED_OPSET
from tests.partition.plans import plan_of, random_feeds, run_ort

OFFLOADED = {"Conv", "Relu", "Sum", "Add", "MaxPool", "BatchNormalization"}


@pytest.mark.parametrize("name", ["squeezenet", "shufflenet"])
def test_light_networks(name):
    flat = version_converter.convert_version(light(name), PINNED_OPSET)
    flat.ir_version = IR_VERSION
    flat = onnx.shape_inference.infer_shapes(flat)
    original = ir.from_proto(flat)
    plan = plan_of(original, lambda node: int(node.op_type in OFFLOADED))
    model = to_model(plan, regions(plan), original)
    proto = ir.to_proto(model)
    onnx.checker.check_model(proto, full_check=True)
    feeds = random_feeds(flat, 0)
    (expected,) = run_ort(flat, feeds)
    np.testing.assert_array_equal(run_ort(proto, feeds)[0], expected)
    np.testing.assert_array_equal(run_ort(ir.to_proto(inline(model)), feeds)[0], expected)
    tensors = {v.name for node in original.graph for v in node.outputs}
    written = {v.name for scope in (model.graph, *model.functions.values()) for n in scope for v in n.outputs}
    assert tensors <= written, "every tensor keeps its name"
