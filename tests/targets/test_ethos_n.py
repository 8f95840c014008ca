"""``ethos_n.target``: what is just outside a condition stays on the host, and the report says which condition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from eqsat.report.table import as_text
from eqsat.result import Result
from eqsat.rules.ast import Composite, Target
from eqsat.rules.expand import Clause, expand
from eqsat.schema.types import TensorType
from eqsat.search import Search
from eqsat.targets.find_targets import load_targets
from tests.fuzz.check import ort_outputs
from tests.targets.instances import instance, model_of, variables
from tests.targets.test_shipped import BYTES, CASES, byte, scale, weight

NEAR = "ethos_n -dispatch=0 -launch=1e-12 -link.latency=0 -link.bandwidth=1e18"
(TARGET,) = (t for t in load_targets(NEAR) if t.name == "ethos_n")
COMPOSITES = {c.name: c for c in TARGET.composites}

SHORT = np.array(0, np.int16)
PADS = {"q": {"pads": [1] * 4}, "i": {"pads": [1] * 4}}


def wide(*shape: int) -> TensorType:
    return TensorType(ir.DataType.INT16, shape)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


KNOWN, EIGHT = "weights and zero points are known when it is compiled", "results have 8 bits"
WINDOWS, STEPS = "windows are 1, 2, 3, 5, 7 or 9 wide and high", "strides are 1 or 2"
ONE_IMAGE, RESCALED = "convolutions take one 8-bit image", "lies between 2.33e-10 and 1"
DEVICE = "tensors have 8 bits, four dimensions and batch 1"
# What a pattern must contain, and after a minus what it must not.
CONV = {"QLinearConv", "b", "-Pad"}
INTEGER = {"ConvInteger", "k", "-Pad"}
PADDED = {"QLinearConv", "b", "Pad"}
SHIFTED = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}

# Composite, what its pattern must contain, operands, attributes by operator, the reason.
OUTSIDE: list[tuple[str, set[str], dict[str, Any], dict[str, dict[str, Any]], str]] = [
    ("qnn_conv2d", CONV, {"w": byte(32, 16, 3, 3)}, {}, KNOWN),
    ("qnn_conv2d", CONV, {"zx": byte()}, {}, KNOWN),
    ("qnn_conv2d", INTEGER, {"k": TensorType(ir.DataType.INT32, (32, 1, 1))}, {}, KNOWN),
    ("qnn_conv2d", CONV, {"x": byte(2, 16, 64, 64)}, {}, ONE_IMAGE),
    ("qnn_conv2d", INTEGER, {}, {"Requantize": {"dtype": 5}, "r": {"dtype": 5}}, EIGHT),
    ("qnn_conv2d", CONV, {"w": weight(32, 16, 4, 4)}, {}, WINDOWS),
    ("qnn_conv2d", CONV, {}, {"QLinearConv": {"dilations": [2, 2]}, "q": {"dilations": [2, 2]}}, WINDOWS),
    ("qnn_conv2d", CONV, {}, {"QLinearConv": {"strides": [3, 3]}, "q": {"strides": [3, 3]}}, STEPS),
    ("qnn_conv2d", CONV, {"w": weight(32, 16, 9, 9)}, {"q": {"strides": [2, 2]}}, STEPS),
    ("qnn_conv2d", CONV, {"w": weight(32, 4, 3, 3)}, {"q": {"group": 4}}, "a convolution is dense, or depthwise"),
    ("qnn_conv2d", CONV, {"w": weight(32, 16, 5, 5)}, PADS, "the padding keeps the size, or there is none"),
    ("qnn_conv2d", PADDED, {"w": weight(32, 16, 5, 5)}, PADS, "the padding is that of Pad or that of the"),
    ("qnn_conv2d", PADDED, {}, {"p": {"mode": "edge"}}, "rows and columns are padded"),
    ("qnn_conv2d", INTEGER, {"k": zeros(1, 1, 62)}, {}, "the bias is one number per channel"),
    ("qnn_conv2d", INTEGER, {"zi": np.array(1, np.int32)}, {}, "accumulators have no zero point"),
    ("qnn_conv2d", INTEGER, {"so": scale(0.0002)}, {}, RESCALED),
    ("qnn_conv2d", CONV, {"sy": scale(0.0001)}, {}, RESCALED),
    ("qnn_conv2d_transpose", {"b"}, {"w": byte(16, 32, 3, 3)}, {}, KNOWN),
    ("qnn_conv2d_transpose", {"b"}, {"x": byte(2, 16, 64, 64)}, {}, ONE_IMAGE),
    ("qnn_conv2d_transpose", {"b"}, {"zy": SHORT}, {}, ONE_IMAGE),
    ("qnn_conv2d_transpose", {"b"}, {"sw": np.full(16, 0.1, np.float32), "zw": np.zeros(16, np.uint8)},
     {"d": {"axis": 0}}, "weights have one scale, or one per output channel"),
    ("qnn_conv2d_transpose", {"b"}, {"w": weight(16, 32, 4, 4)}, {}, WINDOWS),
    ("qnn_conv2d_transpose", {"b"}, {}, {"c": {"strides": [3, 3]}}, STEPS),
    ("qnn_conv2d_transpose", {"b"}, {"w": weight(16, 16, 3, 3)}, {"c": {"group": 2}}, "convolution is dense"),
    ("qnn_conv2d_transpose", {"b"}, {}, {"c": {"pads": [0, 0, 2, 2], "strides": [2, 2]}},
     "the size is multiplied by the stride"),
    ("qnn_conv2d_transpose", {"b"}, {"sy": scale(0.0001)}, {}, RESCALED),
    ("qnn_fc", {"QGemm", "b"}, {"w": byte(512, 256)}, {}, KNOWN),
    ("qnn_fc", {"QGemm", "b"}, {"x": byte(2, 512)}, {}, "a fully connected layer takes one 8-bit vector"),
    ("qnn_fc", {"QLinearMatMul"}, {"x": byte(2, 512)}, {}, "a fully connected layer takes one 8-bit vector"),
    ("qnn_fc", {"MatMulInteger", "k"}, {}, {"r": {"dtype": 5}}, EIGHT),
    ("qnn_fc", {"QGemm", "b"}, {}, {"g": {"alpha": 0.5}}, "a product has no factor"),
    ("qnn_fc", {"MatMulInteger", "k"}, {"k": zeros(2, 256)}, {}, "the bias is one number per column"),
    ("qnn_fc", {"MatMulInteger", "k"}, {"zi": np.array(1, np.int32)}, {}, "accumulators have no zero point"),
    ("qnn_fc", {"MatMulInteger", "k"}, {"so": scale(0.0002)}, {}, RESCALED),
    ("qnn_fc", {"QGemm", "b"}, {"sy": scale(0.0001)}, {}, RESCALED),
    ("qnn_add", set(), {"x": byte(2, 16, 64, 64), "r": byte(2, 16, 64, 64)}, {}, DEVICE),
    ("qnn_add", set(), {"r": byte(1, 16, 1, 1)}, {}, "both operands have one shape"),
    ("qnn_add", set(), {"sr": TensorType(ir.DataType.FLOAT, ())}, {}, "scales are known when it is compiled"),
    ("qnn_add_to_depthwise", set(), {"x": byte(2, 16, 64, 64), "k": weight(16, 1, 1)}, {}, ONE_IMAGE),
    ("qnn_add_to_depthwise", set(), {"k": byte(1, 16, 1, 1)}, {}, KNOWN),
    ("qnn_add_to_depthwise", set(), {"k": weight(1, 1, 64, 1)}, {}, "the constant is one number per channel"),
    ("qnn_add_to_depthwise", set(), {"sy": scale(0.02)}, {}, RESCALED),
    ("qnn_mul_to_depthwise", set(), {"x": byte(2, 16, 64, 64), "k": weight(16, 1, 1)}, {}, ONE_IMAGE),
    ("qnn_mul_to_depthwise", set(), {"k": byte(1, 16, 1, 1)}, {}, KNOWN),
    ("qnn_mul_to_depthwise", set(), {"k": weight(1, 1, 64, 1)}, {}, "the constant is one number per channel"),
    ("qnn_mul_to_depthwise", set(), {"sy": scale(0.0001)}, {}, RESCALED),
    ("qnn_add_to_reinterpret_quantize", set(), {"k": weight(1, 16, 1, 1)}, {}, "the constant is one number"),
    ("qnn_add_to_reinterpret_quantize", set(), {"sy": scale(0.0201)}, {}, "both scales are equal"),
    ("qnn_add_to_reinterpret_quantize", set(), {"zx": np.array(5, np.uint8)}, {}, "the integers stay as they are"),
    ("qnn_mul_to_reinterpret_quantize", set(), {"k": weight(1, 16, 1, 1)}, {}, "the constant is one number"),
    ("qnn_mul_to_reinterpret_quantize", set(), {"zy": np.array(1, np.uint8)}, {}, "both zero points are equal"),
    ("qnn_mul_to_reinterpret_quantize", set(), {"sy": scale(0.0025)}, {}, "the integers stay as they are"),
    ("qnn_concatenate", {"u"}, dict.fromkeys("xruv", byte(2, 16, 8, 8)), {}, DEVICE),
    ("qnn_concatenate", {"-u"}, {"sr": scale(7.0)}, {}, "the output scale is at least 1/128 of each input's"),
    ("qnn_concatenate", {"v"}, {"v": byte(1, 8, 8, 8)}, {}, "channels are joined in groups of 16"),
    ("qnn_avg_pool2d", set(), {"x": byte(2, 16, 64, 64)}, {}, "pooling takes one 8-bit image"),
    ("qnn_avg_pool2d", set(), {}, {"p": {"kernel_shape": [5, 5], "pads": [2] * 4}}, "means are taken over"),
    ("qnn_avg_pool2d", set(), {"x": byte(1, 1, 256, 256)}, {}, "means are taken over"),
    ("qnn_mean", set(), {"x": byte(2, 16, 7, 7)}, {}, "pooling takes one 8-bit image"),
    ("qnn_mean", set(), {"x": byte(1, 16, 6, 6)}, {}, "means are taken over all of 7x7 or 8x8"),
    ("qnn_resize", {"scales"}, {"x": byte(2, 16, 64, 64)}, {}, "it takes one 8-bit image"),
    ("qnn_resize", {"scales"}, {}, {"n": {"mode": "linear"}}, "it repeats the nearest pixel"),
    ("qnn_resize", {"scales"}, {}, {"n": {"mode": "nearest", "coordinate_transformation_mode": "align_corners"}},
     "each pixel becomes two by two"),
    ("qnn_resize", {"scales"}, {"scales": np.array([1, 1, 3, 3], np.float32)},
     {"n": SHIFTED}, "sizes double"),
    ("qnn_resize", {"sizes"}, {"sizes": np.array([1, 16, 127, 128])},
     {"n": SHIFTED}, "both even or both odd"),
    ("qnn_sigmoid", set(), {"x": byte(2, 16, 64, 64)}, {}, DEVICE),
    ("qnn_sigmoid", set(), {"sy": scale(1 / 255)}, {}, "the output scale is 1/256"),
    ("qnn_tanh", set(), {"x": byte(2, 16, 64, 64)}, {}, DEVICE),
    ("qnn_tanh", set(), {"zy": np.array(0, np.uint8)}, {}, "the output scale is 1/128, zero in the middle"),
    ("qnn_leaky_relu", set(), {"x": byte(2, 16, 64, 64)}, {}, DEVICE),
    ("qnn_leaky_relu", set(), {}, {"l": {"alpha": 1.5}}, "the slope is between 0 and 1"),
    ("qnn_requantize", set(), {"x": byte(2, 16, 64, 64)}, {}, DEVICE),
    ("qnn_requantize", set(), {"so": scale(0.00005)}, {}, "the output scale is beyond 1/128 of the input's"),
]  # fmt: skip


def contents(pattern: Any) -> set[str]:
    """Operators and operands of a plain pattern."""
    if pattern is None or not hasattr(pattern, "args"):
        return {pattern.name} if pattern is not None else set()
    return {pattern.ops[0].name}.union(*map(contents, pattern.args))


def clause_of(composite: Composite, needed: set[str]) -> Clause:
    for clause in expand(composite.patterns):
        found = contents(clause.roots[0])
        if all(n[1:] not in found if n[0] == "-" else n in found for n in needed):
            return clause
    raise AssertionError(f"no pattern with {needed}")


def alone(name: str) -> Target:
    """The target with one composite only, so that no other explains itself first."""
    return replace(TARGET, composites=(COMPOSITES[name],), supports=())


def optimized(
    name: str, needed: set[str], operands: dict[str, Any], attributes: dict[str, dict[str, Any]]
) -> tuple[Result, Any, dict[str, np.ndarray]]:
    usual, settings = CASES["ethos_n"][name]
    clause = clause_of(COMPOSITES[name], needed)
    merged = {key: settings.get(key, {}) | attributes.get(key, {}) for key in settings | attributes}
    made = instance(clause, usual | operands, merged)
    model, feed = model_of(made, clause, usual | operands, np.random.default_rng(0))
    return Search.of(model, [alone(name)], default_rules=False).extract(), model, feed


@pytest.mark.parametrize(("name", "needed", "operands", "attributes", "because"), OUTSIDE)
def test_just_outside_a_condition_it_stays_on_the_host_and_the_report_says_why(
    name: str, needed: set[str], operands: dict[str, Any], attributes: dict[str, dict[str, Any]], because: str
) -> None:
    result, _, _ = optimized(name, needed, operands, attributes)
    assert result.summary.host_operators
    reasons = [refusal.reason for row in result.summary.host_operators for refusal in row.refusals]
    assert any(because in reason and name in reason for reason in reasons), reasons
    shown = "".join(as_text(result.summary).split())
    assert any(because in r and "".join(r.split())[:60] in shown for r in reasons), "the table has it, too"


@pytest.mark.parametrize("name", COMPOSITES)
def test_inside_it_is_offloaded_and_computes_what_onnx_runtime_does(name: str) -> None:
    for clause in expand(COMPOSITES[name].patterns):
        usual, settings = CASES["ethos_n"][name]
        made = instance(clause, usual, settings)
        model, feed = model_of(made, clause, usual, np.random.default_rng(1))
        result = Search.of(model, [alone(name)], default_rules=False).extract()
        assert [n for region in result.regions for n in region.nodes] == [f"ethos_n.{name}"]
        (output,) = result.run(feed).values()
        own = Search.of(model, default_rules=False).extract().model
        (expected,) = ort_outputs(ir.to_proto(own).SerializeToString(), feed).values()
        (saved,) = ort_outputs(ir.to_proto(result.model).SerializeToString(), feed).values()
        np.testing.assert_array_equal(saved, expected)
        assert np.abs(output.astype(int) - expected).max() <= 1


def test_every_reason_has_its_instance() -> None:
    told: dict[str, set[str]] = {}
    for name, *_, because in OUTSIDE:
        told.setdefault(name, set()).add(because)
    for composite in COMPOSITES.values():
        reasons = {c.because for c in composite.where if c.because is not None}
        missing = {r for r in reasons if not any(t in r for t in told[composite.name])}
        assert not missing, (composite.name, missing)


def test_variables_are_those_of_the_pattern() -> None:
    clause = clause_of(COMPOSITES["qnn_add"], set())
    assert variables(clause.roots[0]) == ["x", "sx", "zx", "r", "sr", "zr", "sy", "zy"]
    assert set(variables(clause.roots[0])) <= set(CASES["ethos_n"]["qnn_add"][0]) | set(BYTES)


def reasons_for(text: str) -> dict[str, str]:
    """What the report says of each operator that stays on the host of the shipped target."""
    result = Search.of(onnx.parser.parse_model(text), "ethos_n", default_rules=False).extract()
    return {row.op: row.refusals[0].reason for row in result.summary.host_operators}


HEAD = '<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1]>'
PARAMETERS = "float s = {0.02}, uint8 z = {3}, float t = {0.05}"


def test_a_composite_that_is_dearer_is_no_refusal() -> None:
    found = reasons_for(f"""{HEAD} g (uint8[1,16,4,4] x, uint8[1,16,4,4] r) => (uint8[1,16,4,4] y) <{PARAMETERS}> {{
        y = com.microsoft.QLinearAdd(x, s, z, r, s, z, t, z)
    }}""")
    assert found == {"com.microsoft.QLinearAdd": "cheaper on the host, including copies and dispatch"}


def test_an_operator_outside_of_all_patterns() -> None:
    found = reasons_for(f"""{HEAD} g (float[1,16] x) => (float[1,16] y) <{PARAMETERS}> {{
        q = QuantizeLinear(x, s, z)
        d = DequantizeLinear(q, s, z)
        y = Softmax(d)
    }}""")
    assert found["Softmax"] == "operator not supported by ethos_n"
    assert found["QuantizeLinear"].startswith("ethos_n runs QuantizeLinear only within qnn_conv2d_transpose, ")


def test_an_operator_inside_of_a_pattern() -> None:
    found = reasons_for(f"""{HEAD} g (uint8[1,16,4,4] x) => (uint8[1,16,4,4] y) <{PARAMETERS}> {{
        d = DequantizeLinear(x, s, z)
        l = LeakyRelu<alpha = 1.5>(d)
        y = QuantizeLinear(l, t, z)
    }}""")
    reason = (
        "ethos_n runs {} within qnn_leaky_relu only where l.alpha < 1 (the slope is between 0 and 1): l.alpha is 1.5"
    )
    assert found == {op: reason.format(op) for op in ("DequantizeLinear", "LeakyRelu", "QuantizeLinear")}
