"""Functions with many calls are inlined in few steps; values, names and the functions that stay are right."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import eqsat
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


_LEAKY = """<domain: "my", opset_import: ["": 17]>
  Leaky <alpha: float = 0.1> (a) => (r) { r = LeakyRelu<alpha: float = @alpha>(a) }"""
_OUTER = '<domain: "my", opset_import: ["": 17, "my": 1]> Outer %s (a) => (r) { r = my.Leaky%s(a) }'


@pytest.mark.parametrize(
    ("call", "outer", "slope"),
    [
        ("my.Leaky(x)", "", 0.1),
        ("my.Leaky<alpha = 0.3>(x)", "", 0.3),
        ("my.Outer(x)", _OUTER % ("", ""), 0.1),
        ("my.Outer(x)", _OUTER % ("<beta: float = 0.7>", "<alpha: float = @beta>"), 0.7),
        ("my.Outer(x)", _OUTER % ("<beta>", "<alpha: float = @beta>"), 0.1),
        ("my.Outer<beta = 0.4>(x)", _OUTER % ("<beta>", "<alpha: float = @beta>"), 0.4),
    ],
)
def test_attributes_that_calls_leave_out_have_the_defaults_of_functions(call: str, outer: str, slope: float) -> None:
    """In the main graph and in bodies, beside calls that give them."""
    text = f"""<ir_version: 8, opset_import: ["": 17, "my": 1]>
      g (bool c, float[5] x) => (float[5] y, float[5] z, float[5] w) {{ y = {call} w = my.Leaky<alpha = 0.6>(x)
      z = If(c) <then_branch = t () => (float[5] a) {{ a = {call} }}, else_branch = e () => (float[5] b) {{
        b = Neg(x) }}> }}
      {_LEAKY} {outer}"""
    x = np.array([-2, -1, 0, 1, -0.5], np.float32)
    feed = {"c": np.array(True), "x": x}
    wanted = np.where(x < 0, np.float32(slope) * x, x)
    for found in (eqsat.run(text, feed), eqsat.optimize(text).run(feed)):
        np.testing.assert_allclose(found["y"], wanted, rtol=1e-6)
        np.testing.assert_allclose(found["z"], wanted, rtol=1e-6)
        np.testing.assert_allclose(found["w"], np.where(x < 0, np.float32(0.6) * x, x), rtol=1e-6)
    np.testing.assert_allclose(run_ort(onnx.parser.parse_model(text), feed)[0], wanted, rtol=1e-6)
