"""Functions with many calls are inlined in few steps; values, names and the functions that stay are right."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.model.inlining import MOST_CALLS, inline_calls
from tests.model.running import run_ort

COUNT = 300
FUNCTIONS = """
<domain: "my", opset_import: ["": 17]>
inner <alpha> (x) => (z) {
  l = LeakyRelu<alpha: float = @alpha>(x)
  s = ReduceSum<keepdims = 0>(l)
  zero = Constant<value_float = 0.0>()
  t = Less(s, zero)
  z = If(t)<then_branch = p () => (u) { u = Neg(l) }, else_branch = q () => (v) { v = Identity(l) }>
}
<domain: "my", opset_import: ["": 17, "my": 1]>
outer <slope> (a) => (c) { b = my.inner<alpha: float = @slope>(a) c = my.inner<alpha = 0.5>(b) }
"""


def _model(count: int) -> onnx.ModelProto:
    calls = "".join(f"v{i + 1} = my.outer<slope = {0.9 + 0.001 * (i % 7)}>(v{i}) " for i in range(count))
    head = '<ir_version: 8, opset_import: ["": 17, "my": 1]>'
    return onnx.parser.parse_model(f"{head} g (float[4] v0) => (float[4] v{count}) {{ {calls} }} {FUNCTIONS}")


@pytest.mark.parametrize("count", [1, MOST_CALLS, MOST_CALLS + 1, COUNT])
def test_calls_are_replaced_by_what_they_compute(count: int) -> None:
    proto = _model(count)
    feed = {"v0": np.array([-1.0, 2.0, -3.0, 0.5], np.float32)}
    model = ir.from_proto(proto)
    inline_calls(model)
    assert not model.functions
    written = ir.to_proto(model)
    onnx.checker.check_model(written, full_check=True)
    np.testing.assert_array_equal(run_ort(proto, feed)[0], run_ort(written, feed)[0])
    names = [v.name or "" for node in ir.traversal.RecursiveGraphIterator(model.graph) for v in node.outputs]
    assert len(set(names)) == len(names)
    # A name is found by counting: no count is as high as the number of calls.
    numbers = [int(found[1]) for name in names if (found := re.search(r"_([0-9]+)$", name))]
    assert max(numbers, default=0) <= 2 * MOST_CALLS + 1


def test_what_stays_is_neither_copied_nor_changed() -> None:
    proto = _model(COUNT)
    model = ir.from_proto(proto)
    inline_calls(model, lambda function: function.name.startswith("outer"))
    assert [function.name for function in model.functions.values()] == ["inner"]
    assert len(model.graph) == 2 * COUNT
    feed = {"v0": np.array([-1.0, 2.0, -3.0, 0.5], np.float32)}
    np.testing.assert_array_equal(run_ort(proto, feed)[0], run_ort(ir.to_proto(model), feed)[0])
