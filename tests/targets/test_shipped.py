"""Each shipped target: it loads, and every plain pattern of every composite is possible, allowed and worth it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from eqsat.rules.ast import Composite, Target
from eqsat.rules.expand import expand
from eqsat.schema.types import TensorType
from eqsat.targets.find_targets import list_targets, load_targets, read_target_file, targets_dir
from eqsat.targets.kernel_cost import CostModel
from eqsat.targets.validate import problems
from tests.targets.instances import Operand, instance

LO, HI = np.array(0, np.float32), np.array(6, np.float32)
BOUNDS: dict[str, Operand] = {"lo": LO, "hi": HI, "low": LO, "high": HI}
SAME: dict[str, Operand] = dict.fromkeys(("a", "b", "c", "x", "y"), (2, 8))
IMAGE: dict[str, Operand] = {"x": (2, 4, 9, 9), "w": (6, 4, 3, 3), "b": (6,), "r": (2, 6, 7, 7), **BOUNDS}
MATRIX: dict[str, Operand] = {"x": (3, 5, 8), "w": (3, 8, 8), "b": (8,), "r": (3, 5, 8), "f": (), **BOUNDS}
DENSE: dict[str, Operand] = {"x": (4, 8), "w": (8, 6), "b": (6,), "r": (4, 6), **BOUNDS}
FACTORS = np.array([1, 1, 2, 2], np.float32)


def byte(*shape: int) -> TensorType:
    return TensorType(ir.DataType.UINT8, shape)


def weight(*shape: int) -> np.ndarray:
    return np.ones(shape, np.uint8)


def scale(value: float) -> np.ndarray:
    return np.array(value, np.float32)


ZERO, WIDE = np.array(0, np.uint8), np.array(0, np.int32)
SCALES: dict[str, Operand] = {
    **{"sx": scale(0.02), "sw": scale(0.01), "sr": scale(0.03), "sk": scale(0.04), "sy": scale(0.05), "s": scale(0.02)},
    **{"zx": ZERO, "zw": ZERO, "zr": ZERO, "zk": ZERO, "zy": ZERO, "z": ZERO},
    **{"si": scale(0.0002), "so": scale(0.05), "zi": WIDE, "zo": WIDE},
}
BYTES: dict[str, Operand] = {"x": byte(1, 16, 64, 64), "w": weight(32, 16, 3, 3), **SCALES}
PADDED = {"widths": np.array([0, 0, 1, 1, 0, 0, 1, 1])}
JOINED: dict[str, Operand] = {
    **{name: byte(1, 16, 8, 8) for name in "xruv"},
    **{"su": scale(0.03), "sv": scale(0.04), "zu": ZERO, "zv": ZERO},
}
UNSIGNED: dict[str, dict[str, object]] = {"Requantize": {"dtype": 2}, "r": {"dtype": 2}}
SHUFFLED = {"s": np.array([2, 3, 4, 5, 5]), "u": np.array([2, 12, 5, 5])}

# oneDNN's int8: unsigned activations, signed weights; `low` and `high` bound integers, `lo` and `hi` floats.
NO_ZERO, FULL = np.array(0, np.int8), np.array(250, np.uint8)


def signed(*shape: int) -> np.ndarray:
    return np.ones(shape, np.int8)


QUANTIZED: dict[str, Operand] = {
    **{f"s{n}": scale(0.02 + 0.01 * i) for i, n in enumerate("xwvrscuy")},
    **{f"z{n}": ZERO for n in "xrscuy"},
    **{"zw": NO_ZERO, "zv": NO_ZERO, "lo": LO, "hi": HI, "low": np.array(3, np.uint8), "high": FULL},
    **{"least": np.array(9, np.uint8), "most": FULL},
    **{"si": scale(0.0002), "so": scale(0.05), "zi": WIDE, "zo": WIDE},
}
BYTE_IMAGE: dict[str, Operand] = QUANTIZED | {
    "x": byte(2, 4, 9, 9),
    "w": signed(6, 4, 3, 3),
    "b": np.zeros(6, np.int32),
    "r": byte(2, 6, 7, 7),
}
BYTE_MATRIX: dict[str, Operand] = QUANTIZED | {
    "x": byte(4, 8),
    "w": signed(8, 6),
    "b": np.zeros(6, np.int32),
    "r": byte(4, 6),
    "u": byte(6),
}
NARROW = {"r": {"dtype": 2}}

CASES: dict[str, dict[str, tuple[dict[str, Operand], dict[str, dict[str, object]]]]] = {
    "ccompiler": {"add_subtract_multiply": (SAME, {})},
    "ethos_n": {
        "qnn_conv2d": (
            BYTES | PADDED | {"b": np.zeros(32, np.int32), "k": np.zeros((32, 1, 1), np.int32)},
            UNSIGNED,
        ),
        "qnn_conv2d_transpose": (BYTES | {"w": weight(16, 32, 3, 3), "b": np.zeros(32, np.float32)}, {}),
        "qnn_fc": (
            SCALES
            | {"x": byte(1, 512), "w": weight(512, 256), "b": np.zeros(256, np.int32), "k": np.zeros(256, np.int32)},
            UNSIGNED,
        ),
        "qnn_add": (BYTES | {"r": byte(1, 16, 64, 64)}, {}),
        "qnn_add_to_depthwise": (BYTES | {"k": weight(1, 16, 1, 1)}, {}),
        "qnn_mul_to_depthwise": (BYTES | {"k": weight(1, 16, 1, 1)}, {}),
        "qnn_add_to_reinterpret_quantize": (
            BYTES | {"k": np.array(3, np.uint8), "sy": scale(0.02), "zx": np.array(6, np.uint8)},
            {},
        ),
        "qnn_mul_to_reinterpret_quantize": (BYTES | {"k": np.array(3, np.uint8), "sy": scale(0.0024)}, {}),
        "qnn_concatenate": (BYTES | JOINED, {"c": {"axis": 1}}),
        "qnn_avg_pool2d": (
            BYTES,
            {"p": {"kernel_shape": [3, 3], "strides": [1, 1], "pads": [1, 1, 1, 1]}},
        ),
        "qnn_mean": (BYTES | {"x": byte(1, 16, 7, 7)}, {}),
        "qnn_resize": (
            BYTES | {"roi": (8,), "scales": FACTORS, "sizes": np.array([1, 16, 128, 128])},
            {"Resize": {"mode": "nearest"}, "n": {"mode": "nearest"}},
        ),
        "qnn_sigmoid": (BYTES | {"sy": scale(1 / 256)}, {}),
        "qnn_tanh": (BYTES | {"sy": scale(1 / 128), "zy": np.array(128, np.uint8)}, {}),
        "qnn_leaky_relu": (BYTES, {}),
        "qnn_requantize": (BYTES | {"si": scale(0.01)}, UNSIGNED),
    },
    "toy_chain": {"add_relu": (SAME, {}), "relu_mul": (SAME, {}), "mul_add": (SAME, {})},
    "toy_regions": {},
    "toy_shared": {"add_relu": (SAME, {}), "add_sigmoid": (SAME, {})},
    "toy_matmul": {"matmul_add_relu": (DENSE, {})},
    "dnnl": {
        "conv_eltwise": (IMAGE, {}),
        "conv_sum": (IMAGE, {}),
        "conv_eltwise_sum": (IMAGE, {}),
        "conv_binary": (IMAGE | {"r": (1, 6, 1, 1)}, {}),
        "conv_depthwise": (
            IMAGE | {"w": (6, 4, 1, 1), "v": (6, 1, 3, 3), "k": (6,)},
            {"d": {"group": 6, "pads": [1, 1, 1, 1], "strides": [2, 2]}},
        ),
        "deconv_eltwise": (IMAGE | {"w": (4, 6, 3, 3)}, {}),
        "matmul_transposed": (MATRIX, {"Transpose": {"perm": [0, 2, 1]}}),
        "matmul_eltwise": (MATRIX, {"Transpose": {"perm": [0, 2, 1]}}),
        "matmul_sum": (MATRIX, {"Transpose": {"perm": [0, 2, 1]}}),
        "matmul_scale": (MATRIX, {"Transpose": {"perm": [0, 2, 1]}}),
        "gemm_eltwise": (DENSE, {}),
        "gemm_sum": (DENSE, {}),
        "inner_product": (
            DENSE | {"x": (4, 2, 3, 3), "w": (18, 6), "s": np.array([0, -1])},
            {"Flatten": {"axis": 1}},
        ),
        "scale_shift": ({"x": (2, 6, 7, 7), "k": (1, 6, 1, 1), "t": (1, 6, 1, 1), **BOUNDS}, {}),
        "binary_eltwise": ({"x": (2, 6, 7, 7), "r": (2, 6, 7, 7), **BOUNDS}, {}),
        "eltwise_binary": ({"x": (2, 6, 7, 7), "r": (2, 6, 7, 7), **BOUNDS}, {}),
        "batch_normalization_relu": (
            {"x": (2, 6, 7, 7), "scale": (6,), "bias": (6,), "mean": (6,), "variance": (6,)},
            {},
        ),
        "pooling_eltwise": (
            {"x": (2, 6, 7, 7)},
            {"MaxPool": {"kernel_shape": [2, 2]}, "AveragePool": {"kernel_shape": [2, 2]}},
        ),
        "resampling_sum": (
            {"x": (2, 6, 7, 7), "f": FACTORS, "z": np.array([2, 6, 14, 14]), "r": (2, 6, 14, 14)},
            {},
        ),
        "channel_shuffle": ({"x": (2, 12, 5, 5), **SHUFFLED}, {"Transpose": {"perm": [0, 2, 1, 3, 4]}}),
        "int8_conv_eltwise": (BYTE_IMAGE, {}),
        "int8_conv_sum": (BYTE_IMAGE, {}),
        "int8_conv_mul": (BYTE_IMAGE | {"r": byte(1, 6, 1, 1)}, {}),
        "int8_conv_depthwise": (
            BYTE_IMAGE | {"w": signed(6, 4, 1, 1), "v": signed(6, 1, 3, 3), "k": np.zeros(6, np.int32)},
            {"d": {"group": 6, "pads": [1, 1, 1, 1], "strides": [2, 2]}},
        ),
        "int8_conv_chain": (BYTE_IMAGE | {"b": (6,)}, {"d": {"axis": 0}}),
        "int8_conv_to_float": (BYTE_IMAGE | {"b": (6,)}, {"d": {"axis": 0}}),
        "int8_conv_requantize": (BYTE_IMAGE | {"k": np.zeros((6, 1, 1), np.int32)}, NARROW),
        "int8_deconv": (BYTE_IMAGE | {"w": signed(4, 6, 3, 3), "b": (6,)}, {}),
        "int8_matmul_transposed": (
            BYTE_MATRIX | {"x": byte(3, 5, 8), "w": TensorType(ir.DataType.INT8, (3, 8, 8))},
            {"Transpose": {"perm": [0, 2, 1]}},
        ),
        "int8_matmul_eltwise": (BYTE_MATRIX, {}),
        "int8_matmul_sum": (BYTE_MATRIX, {}),
        "int8_matmul_chain": (BYTE_MATRIX | {"b": (6,)}, {}),
        "int8_matmul_to_float": (BYTE_MATRIX | {"b": (6,)}, {}),
        "int8_matmul_requantize": (BYTE_MATRIX | {"k": np.zeros(6, np.int32)}, NARROW),
        "int8_inner_product": (
            BYTE_MATRIX | {"x": byte(4, 2, 3, 3), "w": signed(18, 6), "s": np.array([0, -1])},
            {"Flatten": {"axis": 1}},
        ),
        "int8_binary_eltwise": (BYTE_IMAGE | {"x": byte(2, 6, 7, 7)}, {}),
        "int8_eltwise": (BYTE_IMAGE, {}),
        "int8_concat": (QUANTIZED | JOINED, {"Concat": {"axis": 1}}),
        "int8_linear": (BYTE_IMAGE | {"c": scale(1.5)}, {}),
        "int8_softmax": (BYTE_IMAGE, {}),
    },
}  # fmt: skip


def accelerators() -> dict[str, Target]:
    """By name; what a host has is generated code, see tests/codegen/test_select.py."""
    found = [t for name in list_targets() for t in read_target_file(_path(name))]
    return {t.name: t for t in found if not t.is_host}


def composites() -> list[tuple[str, Composite]]:
    return [(name, c) for name, target in accelerators().items() for c in target.composites]


def _path(name: str) -> Path:
    return targets_dir() / f"{name}.target"


@pytest.mark.parametrize("name", list_targets())
def test_each_file_holds_the_target_of_its_name_and_is_valid(name: str) -> None:
    (target,) = read_target_file(_path(name))
    assert target.name == name
    assert target.summary
    assert not list(problems(target))


def test_every_composite_has_a_case() -> None:
    assert {name: set(cases) for name, cases in CASES.items() if cases} == {
        name: {c.name for c in target.composites} for name, target in accelerators().items() if target.composites
    }


@pytest.mark.parametrize(("name", "composite"), composites(), ids=lambda v: getattr(v, "name", v))
def test_every_pattern_is_possible_allowed_and_cheaper_than_its_parts(name: str, composite: Composite) -> None:
    model = CostModel(load_targets(name))
    operands, attributes = CASES[name][composite.name]
    clauses = expand(composite.patterns)
    assert len(clauses) <= 40
    for clause in clauses:
        made = instance(clause, operands, attributes)
        assert made.failing(composite) is None, (clause, made.failing(composite))
        cost = model.composite(1, composite, made.env, made.body, made.inputs, made.output)
        assert 0 < cost < math.inf
        if len(made.body.nodes) > 1:
            parts = [_alone(model, made, i) for i in range(len(made.body.nodes))]
            assert cost < sum(parts)


def _alone(model: CostModel, made, number: int) -> float:
    """The node as a kernel of its own: on the target where that runs it, else on the host."""
    node = made.body.nodes[number]
    inputs = [None if i is None else made.fact(i) for i in node.inputs]
    output = made.types[made.body.inputs + number]
    on_target = model.operator(1, node.op, node.attrs, inputs, [output])
    return on_target if on_target < math.inf else model.operator(0, node.op, node.attrs, inputs, [output])


FLOATS = [(name, c) for name, c in composites() if not c.name.startswith("int8_")]


@pytest.mark.parametrize(("name", "composite"), FLOATS, ids=lambda v: getattr(v, "name", v))
def test_composites_with_a_condition_on_the_element_type_refuse_others(name: str, composite: Composite) -> None:
    operands, attributes = CASES[name][composite.name]
    doubles = {n: v.astype(np.float64) if n in BOUNDS and isinstance(v, np.ndarray) else v for n, v in operands.items()}
    for clause in expand(composite.patterns):
        failing = instance(clause, doubles, attributes, dtype=ir.DataType.DOUBLE).failing(composite)
        assert (failing is not None) == (name in ("dnnl", "ccompiler"))
