"""Model-local functions, and the functions of eqsat, interpreted from their bodies."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.errors import ExecutionError
from eqsat.execute.executor import Executor
from tests.execute.test_executor import against_ort, executor, f

HEAD = '<ir_version: 10, opset_import: ["": 21, "local": 1]>'
FUNCTION = '<domain: "local", opset_import: ["": 21, "local": 1]>'


def test_attribute_references_and_defaults():
    text = f"""{HEAD} g (float[2,3] x) => (float[2,3] a, float[2,3] b, float[2,3] c) {{
        a = local.leaky<alpha=0.5>(x)
        b = local.leaky<alpha=0.25>(x)
        c = local.leaky2(x)
    }}
    {FUNCTION} leaky<alpha>(x) => (y) {{ y = LeakyRelu<alpha: float = @alpha>(x) }}
    {FUNCTION} leaky2<alpha: float = 0.75>(x) => (y) {{ y = LeakyRelu<alpha: float = @alpha>(x) }}"""
    x = f(2, 3)
    results = executor(text).run({"x": x})
    for name, alpha in (("a", 0.5), ("b", 0.25), ("c", 0.75)):
        np.testing.assert_allclose(results[name], np.where(x < 0, x * np.float32(alpha), x), rtol=1e-7)
    against_ort(text, {"x": x}, rtol=1e-6)


def test_an_unbound_reference_leaves_the_operators_default():
    text = f"""{HEAD} g (float[4] x) => (float[4] y) {{ y = local.leaky(x) }}
    {FUNCTION} leaky<alpha>(x) => (y) {{ y = LeakyRelu<alpha: float = @alpha>(x) }}"""
    x = f(4)
    y = executor(text).run({"x": x})["y"]
    np.testing.assert_allclose(y, np.where(x < 0, x * np.float32(0.01), x), rtol=1e-7)


def test_nesting_passes_attributes_on():
    text = f"""{HEAD} g (float[2,3] x) => (float[2,3] y, float[2,3] z) {{
        y, z = local.outer<slope=0.5, k=2.0>(x)
    }}
    {FUNCTION} inner<a>(x) => (y) {{ y = Elu<alpha: float = @a>(x) }}
    {FUNCTION} outer<slope, k>(x) => (p, q) {{
        p = local.inner<a: float = @slope>(x)
        q = local.inner<a: float = @k>(p)
    }}"""
    against_ort(text, {"x": f(2, 3)}, rtol=1e-5, atol=1e-6)


def test_absent_inputs_and_outputs():
    text = f"""{HEAD} g (float[5] x, float high) => (float[5] y, float[2] s) {{
        y = local.limit(x, , high)
        s, unused = local.halves()
    }}
    {FUNCTION} limit(x, low, high) => (y) {{ y = Clip(x, low, high) }}
    {FUNCTION} halves() => (a, b) {{ a = Constant<value_floats=[1.0, 2.0]>()  b = Exp(a) }}"""
    x = f(5)
    results = executor(text).run({"x": x, "high": np.array(0.5, np.float32)})
    np.testing.assert_array_equal(results["y"], np.minimum(x, 0.5))
    assert results["s"].tolist() == [1, 2]


def test_a_function_has_opsets_of_its_own():
    text = """<ir_version: 10, opset_import: ["": 21, "local": 1]>
    g (float[2,3,4] x) => (float[2,3,4] y, float[2,3,4] z) {
        y = local.old(x)
        z = Softmax<axis=1>(x)
    }
    <domain: "local", opset_import: ["": 11]> old(x) => (y) { y = Softmax<axis=1>(x) }"""
    x = f(2, 3, 4)
    results = executor(text).run({"x": x})
    flat = np.exp(x.reshape(2, 12))
    np.testing.assert_allclose(results["y"], (flat / flat.sum(1, keepdims=True)).reshape(x.shape), rtol=1e-5)
    np.testing.assert_allclose(results["z"].sum(1), np.ones((2, 4)), rtol=1e-5)
    assert not np.allclose(results["y"], results["z"])


def test_subgraphs_inside_functions_see_attributes_and_locals():
    text = f"""{HEAD} g (float[3] x, bool c) => (float[3] y) {{ y = local.choose<k=3.0>(x, c) }}
    {FUNCTION} choose<k>(x, c) => (y) {{
        factor = Constant<value_float: float = @k>()
        y = If (c) <then_branch = t () => (float[3] p) {{ p = Mul(x, factor) }},
                    else_branch = e () => (float[3] q) {{ s = Constant<value_float: float = @k>()  q = Sub(x, s) }}>
    }}"""
    x = f(3)
    for flag, wanted in ((True, x * np.float32(3)), (False, x - np.float32(3))):
        y = executor(text).run({"x": x, "c": np.array(flag)})["y"]
        np.testing.assert_allclose(y, wanted, rtol=1e-7)


def test_overloads_are_told_apart():
    def function(overload: str, op: str) -> onnx.FunctionProto:
        node = onnx.helper.make_node(op, ["x"], ["y"])
        made = onnx.helper.make_function("local", "f", ["x"], ["y"], [node], [onnx.helper.make_opsetid("", 21)])
        made.overload = overload
        return made

    nodes = [onnx.helper.make_node("f", ["x"], [f"y{i}"], domain="local", overload=o) for i, o in enumerate("ab")]
    values = [onnx.helper.make_tensor_value_info(n, 1, [2]) for n in ("x", "y0", "y1")]
    model = onnx.helper.make_model(
        onnx.helper.make_graph(nodes, "g", values[:1], values[1:]),
        functions=[function("a", "Neg"), function("b", "Exp")],
        opset_imports=[onnx.helper.make_opsetid("", 21), onnx.helper.make_opsetid("local", 1)],
        ir_version=10,
    )
    x = f(2)
    results = Executor(ir.from_proto(model)).run({"x": x})
    np.testing.assert_array_equal(results["y0"], -x)
    np.testing.assert_array_equal(results["y1"], np.exp(x))


def test_recursion_is_refused():
    text = f"""{HEAD} g (float[2] x) => (float[2] y) {{ y = local.a(x) }}
    {FUNCTION} a(x) => (y) {{ y = local.b(x) }}
    {FUNCTION} b(x) => (y) {{ t = Neg(x)  y = local.a(t) }}"""
    with pytest.raises(ExecutionError, match="functions that do not call themselves"):
        executor(text).run({"x": f(2)})


def test_errors_say_which_call():
    text = f"""{HEAD} g (float[2] x) => (float[3] y) {{ y = local.outer(x) }}
    {FUNCTION} outer(x) => (y) {{ y = local.inner(x) }}
    {FUNCTION} inner(x) => (y) {{ s = Constant<value_ints=[3]>()  y = Reshape(x, s) }}"""
    with pytest.raises(
        ExecutionError, match=r"node 'y' \(local.outer\), node 'y' \(local.inner\), node 'y' \(Reshape\)"
    ):
        executor(text).run({"x": f(2)})


def test_functions_of_eqsat_need_no_definition_in_the_model():
    text = """<ir_version: 10, opset_import: ["": 21, "eqsat": 1]>
    g (int32[2,3] x) => (int8[2,3] y, int32[2,3] z)
    <float si = {0.5}, int32 zi = {2}, float so = {0.25}, int8 zo = {-1}> {
        z = eqsat.StopFusion(x)
        y = eqsat.Requantize<axis=1, dtype=3>(z, si, zi, so, zo)
    }"""
    x = np.array([[2, 3, 4], [-100, 100, 0]], np.int32)
    results = executor(text).run({"x": x})
    np.testing.assert_array_equal(results["y"], np.clip((x - 2) * 2 - 1, -128, 127))
    np.testing.assert_array_equal(results["z"], x)


def test_a_definition_in_the_model_comes_first():
    text = """<ir_version: 10, opset_import: ["": 21, "eqsat": 1]>
    g (float[2] x) => (float[2] y) { y = eqsat.StopFusion(x) }
    <domain: "eqsat", opset_import: ["": 21]> StopFusion(x) => (y) { y = Neg(x) }"""
    x = f(2)
    np.testing.assert_array_equal(executor(text).run({"x": x})["y"], -x)


def test_the_same_function_fails_in_the_call_that_failed():
    text = f"""{HEAD} g (float[2] x, int64[1] m, int64[1] n) => (float[M] y, float[N] z) {{
        y = local.shape(x, m)
        z = local.shape(x, n)
    }}
    {FUNCTION} shape(x, s) => (y) {{ y = Reshape(x, s) }}"""
    feeds = {"x": f(2), "m": np.array([2]), "n": np.array([3])}
    with pytest.raises(ExecutionError, match=r"node 'z' \(local.shape\), node 'y' \(Reshape\)"):
        executor(text).run(feeds)
