"""Files say no defaults, loading fills them in, and ONNX Runtime takes what it refuses otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

import eqsat
from eqsat.model.load import load
from eqsat.model.normalize import complete
from eqsat.model.write.concise import concise, is_concise
from eqsat.schema.attributes import make_attrs, to_attrs
from eqsat.schema.types import OpKey, TensorType
from eqsat.search import Search
from tests.fuzz.generator import generate

FLOAT = ir.DataType.FLOAT
IMAGE, WEIGHT = TensorType(FLOAT, (1, 4, 9, 9)), TensorType(FLOAT, (6, 4, 3, 3))

SAID = [
    ("Conv", [IMAGE, WEIGHT], {}, {"kernel_shape"}),
    ("Conv", [IMAGE, WEIGHT], {"strides": [1, 2]}, {"kernel_shape", "strides"}),
    ("Conv", [IMAGE, WEIGHT], {"pads": [0, 0, 1, 0], "dilations": [1, 1]}, {"kernel_shape", "pads"}),
    ("Conv", [IMAGE, WEIGHT], {"dilations": [2, 1], "group": 1}, {"kernel_shape", "dilations"}),
    ("Conv", [IMAGE, WEIGHT], {"auto_pad": "SAME_UPPER"}, {"kernel_shape", "pads"}),
    ("ConvTranspose", [IMAGE, TensorType(FLOAT, (4, 6, 3, 3))], {"output_padding": [0, 0]}, {"kernel_shape"}),
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "dilations": [1, 1]}, {"kernel_shape"}),
    ("AveragePool", [IMAGE], {"kernel_shape": [2, 2], "count_include_pad": 1}, {"kernel_shape", "count_include_pad"}),
    ("Softmax", [IMAGE], {"axis": -1}, {"axis"}),
    ("Concat", [IMAGE, IMAGE], {"axis": 0}, {"axis"}),
    ("Gather", [IMAGE, TensorType(ir.DataType.INT64, (2,))], {"axis": 0}, set()),
    ("Gemm", [TensorType(FLOAT, (2, 3)), TensorType(FLOAT, (3, 2))], {"alpha": 0.5, "beta": 1.0}, {"alpha"}),
    ("LeakyRelu", [IMAGE], {"alpha": 0.01}, set()),
    ("QuantizeLinear", [IMAGE, TensorType(FLOAT, ()), TensorType(ir.DataType.INT8, ())], {"axis": 1}, set()),
]


@pytest.mark.parametrize(("name", "inputs", "attributes", "said"), SAID)
def test_what_is_left_out_follows(name: str, inputs: list[TensorType], attributes: dict, said: set[str]) -> None:
    op = OpKey("", name)
    full = complete(op, make_attrs(op, attributes), inputs)
    short = concise(op, full)
    assert {key for key, _ in short} == said
    assert complete(op, make_attrs(op, dict(short)), inputs) == full


POOL = """<ir_version: 10, opset_import: ["": 21]>
g (float[1,2,8,8] x) => (float[1,2,4,4] y) <float s = {0.02}, uint8 z = {128}> {
    q = QuantizeLinear(x, s, z)
    d = DequantizeLinear(q, s, z)
    a = AveragePool<kernel_shape = [2, 2], strides = [2, 2]>(d)
    p = QuantizeLinear(a, s, z)
    y = DequantizeLinear(p, s, z)
}"""


def run(content: bytes) -> np.ndarray:
    """ONNX Runtime with its fusions."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(0).normal(0, 1, (1, 2, 8, 8)).astype(np.float32)
    return np.asarray(session.run(None, {"x": x})[0])


def test_onnx_runtime_refuses_what_states_dilations() -> None:
    model = onnx.parser.parse_model(POOL)
    model.graph.node[2].attribute.append(onnx.helper.make_attribute("dilations", [1, 1]))
    with pytest.raises(Exception, match="dilations"):
        run(model.SerializeToString())


def test_quantized_pools_of_ours_run(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(POOL)
    expected = run(model.SerializeToString())
    eqsat.save(load(model), tmp_path / "saved.onnx")
    np.testing.assert_array_equal(run((tmp_path / "saved.onnx").read_bytes()), expected)
    near = "dnnl -dispatch=0 -launch=1e-12 -link.latency=0 -link.bandwidth=1e18"
    for targets, rules in (((), []), (near, []), (near, None)):
        result = Search.of(model, targets, rules=rules or (), default_rules=rules is None).extract()
        np.testing.assert_array_equal(run(ir.to_proto(result.model).SerializeToString()), expected)


def test_a_composite_around_a_pool_runs() -> None:
    text = """host h
    peak float32 = 1e9
    bandwidth = 1e9, launch = 1e-3
    supports *
    composite q_pool : exact
        QuantizeLinear(AveragePool(DequantizeLinear(x, s, z)), s, z)
    """
    from eqsat.rules.reader import read_text

    model = onnx.parser.parse_model(POOL)
    result = Search.of(model, [*read_text(text).targets], default_rules=False).extract()
    assert "h.q_pool" in [n for r in result.regions for n in r.nodes]
    np.testing.assert_array_equal(run(ir.to_proto(result.model).SerializeToString()), run(model.SerializeToString()))


@pytest.mark.parametrize("seed", range(6))
def test_saving_and_loading_gives_the_same_normal_form(seed: int, tmp_path: Path) -> None:
    model = load(generate(seed))
    eqsat.save(model, tmp_path / "saved.onnx")
    assert is_concise(ir.load(tmp_path / "saved.onnx"))
    again = load(tmp_path / "saved.onnx")
    assert [(n.op_type, to_attrs(n)) for n in again.graph] == [(n.op_type, to_attrs(n)) for n in model.graph]
