"""Quantization by the data's own range, in C beside ONNX Runtime: to the bit, for any range and readers."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from eqsat.codegen.isa import PORTABLE, SCALAR
from eqsat.codegen.runtime import CModel
from eqsat.model.load import load
from tests.quantization.runtime import has_exact_products

SHAPES = [(), (1,), (7,), (3, 70), (2, 5, 9, 11), (128, 96)]


def _model(shape: str, results: str = "uint8 y, float s, uint8 z") -> onnx.ModelProto:
    dims = f"[{shape}]" if shape else ""
    parts = dict(zip("ysz", (f"uint8{dims} y", "float s", "uint8 z"), strict=True))
    outputs = ", ".join(parts[r.split()[1]] for r in results.split(", "))
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float{dims} x) => ({outputs}) '
        "{ y, s, z = DynamicQuantizeLinear(x) }"
    )


def _ranges(shape: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(len(shape))
    normal = rng.standard_normal(shape).astype(np.float32)
    kinds = [normal, np.abs(normal), -np.abs(normal), 0 * normal, normal * 1e-30, normal * 1e30, normal + 100]
    return [np.asarray(kind, np.float32) for kind in (*kinds, np.full(shape, 3.5), np.full(shape, -0.0))]


def _agree(model: onnx.ModelProto, compiled: CModel, x: np.ndarray) -> None:
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    found = compiled.run({"x": x})
    for output, wanted in zip(model.graph.output, expected, strict=True):
        np.testing.assert_array_equal(found[output.name], wanted, f"{output.name} of {x.shape}")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scalar", [False, True])
def test_values(shape: tuple[int, ...], scalar: bool) -> None:
    model = _model(",".join(map(str, shape)))
    isas, flags = ([PORTABLE, SCALAR], ("-DMODEL_SCALAR",)) if scalar else (None, ())
    compiled = CModel(load(model), isas=isas, flags=flags)
    for x in _ranges(shape):
        _agree(model, compiled, x)


@pytest.mark.parametrize("results", ["float s", "uint8 z", "uint8 y", "float s, uint8 z"])
def test_only_some_results_are_read(results: str) -> None:
    model = _model("4,33", results)
    _agree(model, CModel(load(model)), _ranges((4, 33))[0])


def test_it_runs_in_vectors() -> None:
    kernels = CModel(load(_model("128,96"))).emitted.kernels
    assert {"range of data", "elementwise bytes"} == {kernel.family for kernel in kernels}


@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("shape", ["N,40", "3,N", "N,5,N"])
def test_a_free_size(shape: str, scalar: bool) -> None:
    model = _model(shape)
    isas, flags = ([PORTABLE, SCALAR], ("-DMODEL_SCALAR",)) if scalar else (None, ())
    compiled = CModel(load(model), dims={"N": (1, 70)}, isas=isas, flags=flags)
    assert "range of data" in {kernel.family for kernel in compiled.emitted.kernels}
    for n in (1, 7, 70):
        for x in _ranges(tuple(n if d == "N" else int(d) for d in shape.split(","))):
            _agree(model, compiled, x)
            at = tuple(s - 1 for s in x.shape)
            for last in (-1e3, 1e3):  # Also the elements after the last whole vector count.
                x[at] = last
                _agree(model, compiled, x)


PRODUCTS = {
    "weights": "(float[5,33] x) => (float[5,19] y) {y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z, c)}",
    "without zero point and addend": "(float[2,3,33] x) => (float[2,3,19] y) "
    "{y = com.microsoft.DynamicQuantizeMatMul(x, w, s)}",
    "computed weights": "(float[5,33] x, int8[33,19] v) => (float[5,19] y) "
    "{y = com.microsoft.DynamicQuantizeMatMul(x, v, s, z, c)}",
    "one scale": "(float[1,33] x) => (float[1,19] y) {y = com.microsoft.DynamicQuantizeMatMul(x, w, t)}",
    "then more": "(float[5,33] x) => (float[5,19] r) "
    "{y = com.microsoft.DynamicQuantizeMatMul(x, w, s, z, c) r = Relu(y)}",
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("scalar", [False, True])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_products(name: str, scalar: bool, dtype: type[np.integer]) -> None:
    rng = np.random.default_rng(3)
    text = PRODUCTS[name].replace("int8[33", f"{np.dtype(dtype).name}[33")
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18, "com.microsoft": 1]> g {text}')
    bounds = np.iinfo(dtype)
    # Without exact products, only those of small weights are right in ONNX Runtime.
    part = 1 if dtype is np.uint8 or has_exact_products() else 2
    weights = rng.integers(bounds.min // part, bounds.max // part, (33, 19), dtype)
    constants = {
        "w": weights,
        "s": rng.uniform(0.01, 0.1, 19).astype(np.float32),
        "t": np.array(0.03, np.float32),
        "z": rng.integers(bounds.min // 8, bounds.max // 8, 19, dtype),
        "c": rng.standard_normal(19).astype(np.float32),
    }
    used = {x for node in model.graph.node for x in node.input}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(v, n) for n, v in constants.items() if n in used)
    isas, flags = ([PORTABLE, SCALAR], ("-DMODEL_SCALAR",)) if scalar else (None, ())
    compiled = CModel(load(model), isas=isas, flags=flags)
    families = {kernel.family for kernel in compiled.emitted.kernels}
    assert name == "computed weights" or "integer matrix product" in families
    feeds = {"x": rng.standard_normal((2, 3, 33) if "without" in name else (1 if name == "one scale" else 5, 33))}
    feeds = {"x": feeds["x"].astype(np.float32)} | ({"v": weights} if name == "computed weights" else {})
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    (found,) = compiled.run(feeds).values()
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-5, atol=1e-5)
