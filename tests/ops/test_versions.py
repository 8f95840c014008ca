"""Operators as they were: kernels of ours for old versions, and that every version in between behaves the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.defs
import pytest

from eqsat.errors import ExecutionError
from eqsat.ops.numpy_kernel import find
from eqsat.ops.operators import declared, operator
from eqsat.ops.registry import declare
from eqsat.ops.schemas import defaults, since_version
from eqsat.schema.declared_operators import find_function
from eqsat.schema.opset import find_schema
from eqsat.schema.types import OpKey
from tests.ops.oracle import check, run_ours, same, values

RNG = np.random.default_rng(0)
X = values(RNG, (2, 3, 4), np.float32)


@pytest.mark.parametrize("version", [1, 6])
def test_broadcast_by_attribute(version: int):
    for axis, shape in ((1, (3,)), (0, (2, 3)), (-1, (4,)), (1, (3, 4))):
        y = values(RNG, shape, np.float32)
        start = axis % 3
        stretched = y.reshape(*y.shape, *(1,) * (3 - start - y.ndim))
        (ours,) = run_ours(OpKey("", "Add"), {"broadcast": 1, "axis": axis}, [X, y], 1, version)
        same(ours, X + stretched)
    (suffix,) = run_ours(OpKey("", "Mul"), {"broadcast": 1}, [X, X[0]], 1, version)
    same(suffix, X * X[0])


@pytest.mark.parametrize("version", [6, 7, 9, 16])
def test_prelu(version: int):
    slope = values(RNG, (3,), np.float32)
    shaped = slope.reshape(3, 1) if version >= 7 else slope
    (ours,) = run_ours(OpKey("", "PRelu"), {}, [X, shaped], 1, version)
    same(ours, np.where(X < 0, X * slope.reshape(3, 1), X))


def test_clip_limits():
    check("Clip", [X], {"min": -1.0, "max": 0.5}, version=6)
    check("Clip", [X], {"max": 0.5}, version=7)
    check("Clip", [X], {}, version=10)


@pytest.mark.parametrize("version", [1, 11])
@pytest.mark.parametrize("name", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp"])
def test_reduction_axes(name: str, version: int):
    for attrs in ({}, {"axes": [1]}, {"axes": [0, 2], "keepdims": 0}, *([{"axes": [-1]}] if version == 11 else [])):
        check(name, [X], attrs, version=version, rtol=1e-5, atol=1e-6)


def test_top_k():
    check("TopK", [X], {"k": 2, "axis": 1}, outputs=2, version=1)
    check("TopK", [X, np.array([2])], {"axis": 1}, outputs=2, version=10)


def test_reshape_tile_concat_of_the_first_version():
    same(run_ours(OpKey("", "Reshape"), {"shape": [4, -1]}, [X], 1, 1)[0], X.reshape(4, -1))
    tiles = [np.array([3.0], np.float32), np.array([1.0], np.float32)]
    same(run_ours(OpKey("", "Tile"), {}, [X, *tiles], 1, 1)[0], np.tile(X, (1, 3, 1)))
    same(run_ours(OpKey("", "Concat"), {}, [X, X], 1, 1)[0], np.concatenate([X, X], 1))
    assert len(run_ours(OpKey("", "Split"), {"axis": 1}, [X, np.array([1, 2])], 2, 1)) == 2


@pytest.mark.parametrize(
    ("version", "attrs", "mask"),
    [(6, {"is_test": 1}, np.float32), (7, {}, np.bool_), (10, {}, np.bool_), (12, {}, np.bool_)],
)
def test_dropout(version: int, attrs: dict[str, Any], mask: type):
    y, kept = run_ours(OpKey("", "Dropout"), attrs, [X], 2, version)
    same(y, X)
    same(kept, np.ones(X.shape, mask))
    assert len(run_ours(OpKey("", "Dropout"), attrs, [X], 1, version)) == 1


@pytest.mark.parametrize("version", [7, 9])
def test_batch_normalization(version: int):
    channel = [values(RNG, (3,), np.float32, 0.5, 1) for _ in range(4)]
    check("BatchNormalization", [X, *channel], {}, version=version, rtol=1e-5, atol=1e-5)


def test_batch_normalization_by_element():
    element = [values(RNG, (3, 4), np.float32, 0.5, 1) for _ in range(4)]
    scale, bias, mean, var = element
    (ours,) = run_ours(OpKey("", "BatchNormalization"), {"spatial": 0}, [X, *element], 1, 7)
    same(ours, (X - mean) / np.sqrt(var + np.float32(1e-5)) * scale + bias, 1e-6, 1e-6)
    channel = [v[:, 0] for v in element]
    (first,) = run_ours(OpKey("", "BatchNormalization"), {"is_test": 1}, [X, *channel], 1, 6)
    same(first, run_ours(OpKey("", "BatchNormalization"), {}, [X, *channel])[0])


@pytest.mark.parametrize("name", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("version", [7, 10, 11])
def test_pooling(name: str, version: int):
    x = values(RNG, (1, 2, 7, 8), np.float32)
    attrs = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    if version >= 10:
        attrs["ceil_mode"] = 1
    check(name, [x], attrs, version=version, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("version", [10, 13, 19, 21, 23])
def test_quantization(version: int):
    scale, zero = np.array(0.1, np.float32), np.array(3, np.uint8)
    q = check("QuantizeLinear", [X, scale, zero], version=version)[0]
    check("DequantizeLinear", [q, scale, zero], version=version)


# Inputs on which every version of an operator that accepts float32 must agree with the kernel for the newest.
SIMPLE: dict[str, tuple[list[np.ndarray], dict[str, Any]]] = {
    **{name: ([X], {}) for name in ("Abs", "Ceil", "Exp", "Floor", "Neg", "Relu", "Sigmoid", "Tanh", "Identity")},
    **{name: ([np.abs(X) + 1], {}) for name in ("Log", "Sqrt", "Reciprocal")},
    **{name: ([X, X[::-1]], {}) for name in ("Sum", "Mean", "Max", "Min", "MatMul") if name != "MatMul"},
    "MatMul": ([X, X.transpose(0, 2, 1)], {}),
    "Transpose": ([X], {"perm": [2, 0, 1]}),
    "Elu": ([X], {"alpha": 0.5}),
    "Selu": ([X], {"alpha": 1.5, "gamma": 1.1}),
    "LeakyRelu": ([X], {"alpha": 0.5}),
    "HardSigmoid": ([X], {}),
    "Softplus": ([X], {}),
    "Gather": ([X, np.array([1, 0])], {"axis": 2}),
    "Flatten": ([X], {"axis": 2}),
    "Shape": ([X], {}),
    "Concat": ([X, X], {"axis": 1}),
    "ArgMax": ([X], {"axis": 1}),
    "DepthToSpace": ([values(RNG, (1, 8, 2, 3), np.float32)], {"blocksize": 2}),
    "Where": ([X > 0, X, -X], {}),
    "InstanceNormalization": ([X, *(values(RNG, (3,), np.float32) for _ in range(2))], {}),
}


@pytest.mark.parametrize("name", sorted(SIMPLE))
def test_every_version_agrees_with_the_newest(name: str):
    inputs, attrs = SIMPLE[name]
    op = OpKey("", name)
    versions = sorted(
        {s.since_version for s in onnx.defs.get_all_schemas_with_history() if s.name == name and not s.domain}
    )
    assert versions
    (newest,) = run_ours(op, attrs, inputs)
    for version in versions:
        if version > 26:
            continue
        (old,) = run_ours(op, attrs, inputs, 1, version)
        same(old, newest)
        if version >= 7 and version == max(v for v in versions if v <= 26):
            check(name, inputs, attrs, rtol=1e-5, atol=1e-6)


REMOVED = {OpKey("", "Scatter"), OpKey("", "Upsample")}
"""What old models have and the pinned opset has not."""


def test_registry():
    assert find(operator(OpKey("", "Nonsense")).kernels, 1) is None
    kernels = operator(OpKey("", "Softmax")).kernels
    softmax = find(kernels, 13)
    assert softmax is not None and softmax is not find(kernels, 11)
    assert find(operator(OpKey("", "Pad")).kernels, 1) is None
    with pytest.raises(ValueError, match="a second time"):
        declare("Softmax")
    for found in declared():
        assert [e.since for e in found.kernels] == sorted(e.since for e in found.kernels), found.op
        assert find_schema(found.op) or find_function(found.op) or found.op in REMOVED, found.op


def test_schemas_by_version():
    assert since_version(OpKey("", "Softmax"), 12) == 11
    assert since_version(OpKey("", "Softmax")) == 13
    assert since_version(OpKey("elsewhere", "Thing"), 3) == 1
    assert defaults(OpKey("", "Softmax"), 11) == {"axis": 1}
    assert defaults(OpKey("", "Softmax")) == {"axis": -1}
    assert defaults(OpKey("com.microsoft", "FusedMatMul"))["alpha"] == 1.0
    assert defaults(OpKey("elsewhere", "Thing")) == {}


def test_an_operator_that_no_one_has():
    with pytest.raises(ExecutionError, match="Gradient"):
        run_ours(OpKey("ai.onnx.preview.training", "Gradient"), {"xs": ("x",), "y": "y"}, [X])
